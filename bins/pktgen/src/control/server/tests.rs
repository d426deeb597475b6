use super::*;
use crate::clock::ClockReport;
use crate::control::{Facts, Orders, PairState};
use crate::trial::Phase;
use std::io::BufRead as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

const CLIENTS: usize = 200;

/// Clients that have sent a thousand orders each, and ask for nothing else.
fn flood(clients: usize) -> (Vec<UnixStream>, Vec<Client>) {
    let pipelined = |_| {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        for stream in [&theirs, &ours] {
            stream.set_nonblocking(true).unwrap();
        }
        theirs.write_all(&b"{\"do\":\"start\"}\n".repeat(1000)).unwrap();
        (theirs, Client::new(Box::new(ours), Duration::ZERO))
    };
    (0..clients).map(pipelined).unzip()
}

fn answers(streams: &[UnixStream]) -> Vec<usize> {
    let lines = |stream: &UnixStream| io::BufReader::new(stream).lines().map_while(Result::ok).count();
    streams.iter().map(lines).collect()
}

#[test]
fn a_round_is_a_request_of_each_and_none_is_done_after_the_end() {
    let facts = Facts {
        queues: 1,
        ports: Vec::new(),
        senders: Vec::new(),
        streams: Vec::new(),
        steerable: Vec::new(),
        lines: Vec::new(),
        patterns: Vec::new(),
        loads: Vec::new(),
        clock: ClockReport::default(),
        hz: 1,
        catch_up: 0,
        tagged: true,
        has_end: false,
    };
    let orders = Arc::new(Orders::new(1, true));
    let desk = Arc::new(Desk::new(Arc::clone(&orders), facts));
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::open(&ControlAddress::Unix(folder.path().join("a.sock"))).unwrap();
    let over = Arc::new(EventFd::new().unwrap());
    let (streams, clients) = flood(CLIENTS);
    let rests_until = Duration::ZERO;
    let mut serving = Serving { listener, desk: Arc::clone(&desk), over, begun: Instant::now(), clients, rests_until };
    // A worker that is told of three orders, and with the third the run is over.
    let worker = {
        let (orders, desk) = (Arc::clone(&orders), Arc::clone(&desk));
        std::thread::spawn(move || {
            for number in 1..=3 {
                while orders.number() < number {
                    std::thread::yield_now();
                }
                if number == 3 {
                    desk.close();
                }
                orders.answer(0, number, PairState { phase: Phase::Counted, runs: true, ..PairState::default() });
            }
        })
    };
    for round in 1..=3 {
        serving.round(Duration::ZERO);
        assert_eq!((answers(&streams), orders.number()), (vec![1; CLIENTS], round));
    }
    worker.join().unwrap();
    // Nobody would answer a further order: there is none.
    for _ in 0..3 {
        serving.round(Duration::ZERO);
    }
    assert_eq!((answers(&streams), orders.number()), (vec![0; CLIENTS], 3));
}

/// A connection that is closed with bytes that nobody has read is reset.
#[test]
fn who_is_turned_away_after_a_request_reads_why_and_then_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    theirs.write_all(&b"{\"do\":\"get\"}\n".repeat(100)).unwrap();
    let (mut ours, _) = listener.accept().unwrap();
    // All of it is there.
    while ours.peek(&mut [0; 1300]).unwrap() < 1300 {}
    ours.set_nonblocking(true).unwrap();
    turn_away(&mut ours, "go");
    // Nor does it wait for more.
    turn_away(&mut ours, "again");
    drop(ours);
    let mut said = String::new();
    theirs.read_to_string(&mut said).unwrap();
    let words =
        ["go", "again"].map(|why| format!("{{\"ok\":false,\"error\":\"there are 256 clients already; {why}\"}}\n"));
    assert_eq!(said, words.concat());
}
