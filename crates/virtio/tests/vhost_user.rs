//! The vhost-user front end against back ends that go by a script: every step may be refused, answered with nonsense, or
//! not answered at all. (Real back ends are in the workspace's `tests`.)
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{trusted, wait};
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use rustix::net::SendFlags;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use virtio::{Config, Features, Opened, VhostUser};

const PROTOCOL: u64 = 1 << 30;
const MQ: u64 = 1;
const REPLY_ACK: u64 = 8;
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const GET_PROTOCOL: u32 = 15;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
/// Set in a test's own process.
const OWN_PROCESS: &str = "RINGWAY_TEST_OWN_PROCESS";

/// What a back end says when it is asked something.
#[derive(Clone, Copy)]
struct Script {
    features: u64,
    protocol: u64,
    pairs: u64,
    /// A request that it answers in another way, and how.
    odd: Option<(u32, Odd)>,
}

#[derive(Clone, Copy)]
enum Odd {
    Refuse,
    HangUp,
    Silence,
    /// Answers the first of them only.
    SilenceLater,
    Raw(&'static [u8]),
}

impl Default for Script {
    fn default() -> Self {
        let features = (Features::VERSION_1 | Features::MRG_RXBUF).0 | PROTOCOL;
        Self { features, protocol: MQ | REPLY_ACK, pairs: 4, odd: None }
    }
}

/// A request as the back end saw it.
type Seen = (u32, Vec<u8>);

/// Plays the back end on a thread until the front end hangs up.
fn play(mut socket: UnixStream, script: Script) -> (JoinHandle<()>, Receiver<Seen>) {
    let (report, seen) = channel();
    let thread = std::thread::spawn(move || {
        let (mut header, mut odd_ones) = ([0; 12], 0);
        while socket.read_exact(&mut header).is_ok() {
            let word = |n: usize| u32::from_ne_bytes(header[4 * n..4 * n + 4].try_into().unwrap());
            let (request, flags, size) = (word(0), word(1), word(2));
            let mut body = vec![0; size as usize];
            socket.read_exact(&mut body).unwrap();
            let _ = report.send((request, body.clone()));
            let mut answer = match request {
                GET_FEATURES => Some(script.features),
                GET_PROTOCOL => Some(script.protocol),
                GET_QUEUE_NUM => Some(script.pairs),
                GET_VRING_BASE => Some(u64::from_ne_bytes(body[..8].try_into().unwrap())),
                _ if flags & 8 != 0 => Some(0),
                _ => None,
            };
            let odd = script.odd.filter(|(odd, _)| *odd == request);
            odd_ones += u32::from(odd.is_some());
            match odd {
                None => {}
                Some((_, Odd::SilenceLater)) if odd_ones == 1 => {}
                Some((_, Odd::Refuse)) => answer = answer.map(|_| 1),
                Some((_, Odd::HangUp)) => return,
                Some((_, Odd::Silence | Odd::SilenceLater)) => answer = None,
                Some((_, Odd::Raw(bytes))) => {
                    answer = None;
                    let _ = socket.write_all(bytes);
                }
            }
            if let Some(number) = answer {
                let mut reply: Vec<u8> = [request, 5, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
                reply.extend(number.to_ne_bytes());
                if socket.write_all(&reply).is_err() {
                    return;
                }
            }
        }
    });
    (thread, seen)
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap()
}

fn config(pairs: u16) -> Config {
    let mut config = common::config();
    (config.port.rx_queues, config.port.tx_queues) = (pairs, pairs);
    config
}

/// Opens a device with such a back end: what came of it, and what the back end saw.
fn open(script: Script, pairs: u16) -> (Result<Vec<Seen>, String>, usize) {
    let pool = pool();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (thread, seen) = play(theirs, script);
    let result = VhostUser::over(ours, trusted()).and_then(|device| virtio::open(device, &config(pairs), &pool));
    let result = result.and_then(|Opened { port, rx, tx }| {
        assert!(port.link()?.up);
        port.close()?;
        drop((rx, tx));
        Ok(())
    });
    thread.join().unwrap();
    (result.map(|()| seen.iter().collect()).map_err(|error| error.to_string()), pool.away())
}

/// The one line that opening with such a back end ends in.
fn refusal(script: Script, pairs: u16) -> String {
    let (result, away) = open(script, pairs);
    let message = result.unwrap_err();
    assert!(message.starts_with("vhost-user:") && !message.contains('\n'), "{message}");
    assert_eq!(away, 0, "every slot is home: {message}");
    message
}

#[test]
fn rings_are_started_in_the_order_of_the_protocol_and_stopped() {
    for protocol in [0, MQ, MQ | REPLY_ACK] {
        for pairs in [1, 2] {
            let (result, away) = open(Script { protocol, ..Script::default() }, pairs);
            if pairs == 2 && protocol & MQ == 0 {
                assert!(result.unwrap_err().contains("2 queue pairs are asked for"));
                continue;
            }
            assert_eq!(away, 0);
            let seen = result.unwrap();
            let position = |request| seen.iter().position(|(seen, _)| *seen == request).unwrap();
            assert!(position(SET_FEATURES) < position(SET_MEM_TABLE));
            assert!(position(SET_MEM_TABLE) < position(SET_VRING_BASE));
            assert!(position(SET_VRING_KICK) < position(SET_VRING_ENABLE));
            let count = |request| seen.iter().filter(|(seen, _)| *seen == request).count();
            let rings = 2 * usize::from(pairs);
            assert_eq!(count(SET_VRING_KICK), rings);
            assert_eq!(count(SET_VRING_ENABLE), 2 * rings, "on, and off at the end");
            assert_eq!(count(GET_VRING_BASE), rings);
            let (_, features) = &seen[position(SET_FEATURES)];
            let features = u64::from_ne_bytes(features[..].try_into().unwrap());
            assert_eq!(features & PROTOCOL, PROTOCOL, "protocol features stay agreed on");
            assert_eq!(features & (Features::MAC | Features::STATUS).0, 0, "these are the front end's own");
        }
    }
}

#[test]
fn a_back_end_without_protocol_features_is_enough_for_one_pair() {
    let features = Features::VERSION_1.0;
    let (result, away) = open(Script { features, ..Script::default() }, 1);
    assert!(result.unwrap().iter().all(|(request, _)| *request != SET_VRING_ENABLE && *request != GET_PROTOCOL));
    assert_eq!(away, 0);
}

#[test]
fn packed_rings_start_at_their_first_lap() {
    let features = Script::default().features | Features::RING_PACKED.0;
    let (result, _) = open(Script { features, ..Script::default() }, 1);
    let seen = result.unwrap();
    let bases = seen.iter().filter(|(request, _)| *request == SET_VRING_BASE);
    assert!(bases.map(|(_, body)| &body[4..]).all(|base| base == 0x8000_8000_u32.to_ne_bytes()));
}

#[test]
fn what_is_missing_is_named() {
    let message = refusal(Script { features: PROTOCOL, ..Script::default() }, 1);
    assert!(message.contains("VIRTIO_F_VERSION_1"), "{message}");
    let message = refusal(Script { pairs: 2, ..Script::default() }, 4);
    assert!(message.contains("4 queue pairs are asked for, and the device has 2"), "{message}");
}

#[test]
fn every_step_that_is_refused_is_named() {
    let steps = [
        (SET_FEATURES, "SET_FEATURES"),
        (SET_MEM_TABLE, "SET_MEM_TABLE"),
        (SET_VRING_BASE, "SET_VRING_BASE"),
        (SET_VRING_KICK, "SET_VRING_KICK"),
        (SET_VRING_ENABLE, "SET_VRING_ENABLE"),
    ];
    for (request, name) in steps {
        let message = refusal(Script { odd: Some((request, Odd::Refuse)), ..Script::default() }, 1);
        assert!(message.contains(name) && message.contains("refuses"), "{message}");
        let message = refusal(Script { odd: Some((request, Odd::HangUp)), ..Script::default() }, 1);
        assert!(message.contains(name) && message.contains("closed the connection"), "{message}");
        // Without acknowledgements the end of the connection shows it, at that step or a later one.
        let script = Script { odd: Some((request, Odd::HangUp)), protocol: MQ, ..Script::default() };
        assert!(refusal(script, 1).contains("closed the connection"));
    }
}

#[test]
fn answers_that_make_no_sense() {
    let header = |request: u32, flags: u32, size: u32| -> &'static [u8] {
        let bytes: Vec<u8> = [request, flags, size, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.leak()
    };
    for (bytes, what) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), "no vhost-user reply"),
        (header(GET_FEATURES, 1, 8), "no vhost-user reply"),
        (header(GET_FEATURES, 6, 8), "no vhost-user reply"),
        (header(SET_FEATURES, 5, 8), "answers something else"),
        (header(GET_FEATURES, 5, 0), "a length that it cannot have"),
        (header(GET_FEATURES, 5, u32::MAX), "a length that it cannot have"),
    ] {
        let message = refusal(Script { odd: Some((GET_FEATURES, Odd::Raw(bytes))), ..Script::default() }, 1);
        assert!(message.contains(what) && message.contains("is it a vhost-user back end?"), "{message}");
    }
}

#[test]
fn a_back_end_that_closes_behind_nonsense_has_closed() {
    // It answers the request to stop with more than a reply, and goes when nobody listens.
    let script = Script { odd: Some((GET_VRING_BASE, Odd::Raw(&[0xee; 200]))), ..Script::default() };
    let (result, away) = open(script, 1);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(away, 0, "every slot is home");
}

/// A connection that nobody closes says nothing either, so the memory stays with the back end.
#[test]
fn an_answer_for_another_ring_is_no_sign_that_the_back_end_has_stopped() {
    let answer: Vec<u8> = [GET_VRING_BASE, 5, 8, 7, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let pool = pool();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let hand = theirs.try_clone().unwrap();
    let script = Script { odd: Some((GET_VRING_BASE, Odd::Raw(answer.leak()))), ..Script::default() };
    let (thread, seen) = play(theirs, script);
    let device = VhostUser::over(ours, trusted()).unwrap();
    let Opened { port, mut rx, tx } = virtio::open(device, &config(1), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    rx[0].recv(&mut cache, &mut batch);
    let message = port.close().unwrap_err().to_string();
    assert!(message.contains("the back end to stop its rings"), "{message}");
    drop((rx, tx, cache, batch));
    assert_ne!(pool.away(), 0, "it may still write there");
    thread.join().unwrap();
    assert_eq!(seen.iter().filter(|(request, _)| *request == GET_VRING_BASE).count(), 1, "it is asked no more");
    drop(hand);
}

/// A conversation that was broken off has no second one after it, even if the rings go on.
#[test]
fn a_back_end_that_does_not_take_a_pool_in_time_is_lost() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (thread, seen) = play(theirs, Script { odd: Some((SET_MEM_TABLE, Odd::SilenceLater)), ..Script::default() });
    let pool = pool();
    let mut opened = virtio::open(VhostUser::over(ours, trusted()).unwrap(), &config(1), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let others = [self::pool(), self::pool()];
    for other in &others {
        let mut packet = other.alloc().unwrap();
        packet.append(60).unwrap();
        batch.push(packet).unwrap();
    }
    wait("the session to end", || {
        opened.tx[0].send(&mut cache, &mut batch);
        assert_eq!(opened.tx[0].counters().unmapped_pool, 0, "nobody has refused a pool");
        !opened.port.link().unwrap().up
    });
    opened.port.close().unwrap();
    thread.join().unwrap();
    let tables = seen.iter().filter(|(request, _)| *request == SET_MEM_TABLE).count();
    assert_eq!(tables, 2, "that of the start, and the one without an answer");
}

#[test]
fn silence_ends_in_an_error() {
    let begun = Instant::now();
    let message = refusal(Script { odd: Some((GET_FEATURES, Odd::Silence)), ..Script::default() }, 1);
    assert!(message.contains("no answer: not done within 5 s"), "{message}");
    assert!(begun.elapsed() < common::PATIENCE);
}

#[test]
fn a_path_without_a_back_end_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let try_open = |path: &Path| {
        virtio::open(VhostUser::connect(path, trusted()).unwrap(), &config(1), &pool()).unwrap_err().to_string()
    };
    let message = try_open(&folder.path().join("none"));
    assert!(message.contains("No such file") && message.contains("start the back end first"), "{message}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let message = try_open(&file);
    assert!(message.contains("Socket operation on non-socket") && message.contains("must be the Unix"), "{message}");
}

#[test]
fn a_listener_replaces_a_socket_that_nobody_listens_at_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    drop(UnixListener::bind(&path).unwrap());
    let device = VhostUser::listen(&path, trusted()).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600, "for this user only");
    let message = VhostUser::listen(&path, trusted()).unwrap_err().to_string();
    assert!(message.contains("another process listens there"), "{message}");
    drop(device);
    assert!(!path.exists(), "the socket goes with its device");
    std::fs::write(&path, "precious").unwrap();
    assert!(VhostUser::listen(&path, trusted()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    // Another is about to listen somewhere in the folder.
    let path = folder.path().join("b.sock");
    let other = std::fs::File::open(&folder).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let message = VhostUser::listen(&path, trusted()).unwrap_err().to_string();
    assert!(
        message.contains("b.sock") && message.contains("locked") && message.contains("another folder"),
        "{message}"
    );
    assert!(!path.exists());
}

#[test]
fn more_pools_than_a_back_end_takes_are_refused_and_counted() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (thread, _seen) = play(theirs, Script::default());
    let pool = pool();
    let mut opened = virtio::open(VhostUser::over(ours, trusted()).unwrap(), &config(1), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let others: Vec<Pool> = (0..8).map(|_| self::pool()).collect();
    for other in &others {
        let mut packet = other.alloc().unwrap();
        packet.append(60).unwrap();
        batch.push(packet).unwrap();
    }
    // Another thread shares each with the back end; until then its packets stay in the batch.
    let mut sent = 0;
    wait("the pools to be shared", || {
        sent += opened.tx[0].send(&mut cache, &mut batch);
        sent == 8
    });
    // The first pool and the rings are two of the eight.
    assert_eq!((opened.tx[0].counters().packets, opened.tx[0].counters().unmapped_pool), (6, 2));
    opened.port.close().unwrap();
    thread.join().unwrap();
}

#[test]
fn a_listening_port_is_down_until_a_back_end_comes_and_whenever_it_is_gone() {
    // It counts the descriptors of its process, so it has one for itself.
    if std::env::var_os(OWN_PROCESS).is_none() {
        let name = "a_listening_port_is_down_until_a_back_end_comes_and_whenever_it_is_gone";
        let mut own = Command::new(std::env::current_exe().unwrap());
        let output = own.args(["--exact", name]).env(OWN_PROCESS, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let pool = pool();
    let Opened { port, mut rx, mut tx } =
        virtio::open(VhostUser::listen(&path, trusted()).unwrap(), &config(2), &pool).unwrap();
    assert!(!port.link().unwrap().up);
    assert_ne!(port.mac().0, [0; 6]);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = 0;
    // Each is followed by a pause of twice the length: some 11 s for all of them.
    for round in 0..7 {
        // A back end that cannot be used: the port stays down and says why.
        if round % 3 == 0 && round < 6 {
            let socket = UnixStream::connect(&path).unwrap();
            let (thread, _seen) = play(socket, Script { pairs: 1, ..Script::default() });
            thread.join().unwrap();
            assert!(!port.link().unwrap().up);
        }
        let socket = UnixStream::connect(&path).unwrap();
        let hand = socket.try_clone().unwrap();
        let (thread, _seen) = play(socket, Script::default());
        wait("the link to come up", || port.link().unwrap().up);
        for queue in 0..2 {
            rx[queue].recv(&mut cache, &mut batch);
            cache.alloc_batch(&mut batch, 3, 60);
            assert_eq!(tx[queue].send(&mut cache, &mut batch), 3);
        }
        // Nobody takes them: they are lost with the back end.
        hand.shutdown(std::net::Shutdown::Both).unwrap();
        thread.join().unwrap();
        wait("the link to go down", || !port.link().unwrap().up);
        wait("what was in flight to be counted", || {
            for queue in &mut tx {
                queue.send(&mut cache, &mut batch);
            }
            tx.iter().map(|queue| queue.counters().lost).sum::<u64>() == 6 * (round + 1)
        });
        if round == 1 {
            before = fds();
        }
    }
    wait("descriptors to be closed", || fds() <= before + 4);
    assert!(port.wait_link(Duration::from_millis(1)).is_ok_and(|link| !link.up));
    port.close().unwrap();
    drop((rx, tx, cache, batch));
    assert_eq!(pool.away(), 0);
}

/// A byte that no question was followed by, in the stream or out of band (send(2), `MSG_OOB`), ends the session.
#[test]
fn a_back_end_that_speaks_unasked_is_reset() {
    for (flags, what) in [(SendFlags::empty(), "in the stream"), (SendFlags::OOB, "out of band")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let pool = pool();
        let opened = virtio::open(VhostUser::listen(&path, trusted()).unwrap(), &config(1), &pool).unwrap();
        let socket = UnixStream::connect(&path).unwrap();
        let hand = socket.try_clone().unwrap();
        let (thread, _seen) = play(socket, Script::default());
        wait("the link to come up", || opened.port.link().unwrap().up);
        match rustix::net::send(&hand, b"x", flags) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                return skip::test!("this kernel's Unix sockets send nothing out of band");
            }
            sent => assert_eq!(sent.unwrap(), 1, "{what}"),
        }
        // Whoever holds the connection may hold the memory.
        drop(hand);
        wait("the link to go down", || !opened.port.link().unwrap().up);
        thread.join().unwrap();
        opened.port.close().unwrap();
    }
}

/// Starts a back end, on a thread, that connects to a listening front end, or listens for one that connects. Returns what
/// cuts its connection off.
fn start(path: &Path, front_end_listens: bool) -> JoinHandle<(UnixStream, JoinHandle<()>)> {
    let listener = (!front_end_listens).then(|| {
        // One that was killed leaves its socket behind.
        let _ = std::fs::remove_file(path);
        UnixListener::bind(path).unwrap()
    });
    let path = path.to_owned();
    std::thread::spawn(move || {
        let socket = match listener {
            Some(listener) => listener.accept().unwrap().0,
            None => UnixStream::connect(path).unwrap(),
        };
        let hand = socket.try_clone().unwrap();
        (hand, play(socket, Script::default()).0)
    })
}

#[test]
fn a_back_end_that_comes_back_is_in_use_within_seconds() {
    // A port that has lost its back end five times makes ever longer pauses, so it is a new one then.
    for listens in [false, true, false, true, false, true, false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let pool = pool();
        let device =
            if listens { VhostUser::listen(&path, trusted()) } else { VhostUser::connect(&path, trusted()) }.unwrap();
        let mut back_end = start(&path, listens);
        let Opened { port, mut rx, mut tx } = virtio::open(device, &config(1), &pool).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        let turns = Turns::start();
        let mut longest = 0;
        for round in 0..5 {
            let begun = turns.count();
            wait("frames to be taken", || {
                rx[0].recv(&mut cache, &mut batch);
                cache.alloc_batch(&mut batch, 3, 60);
                let sent = tx[0].send(&mut cache, &mut batch);
                cache.free_batch(&mut batch);
                sent == 3
            });
            longest = longest.max(turns.count() - begun);
            let (hand, thread) = back_end.join().unwrap();
            hand.shutdown(std::net::Shutdown::Both).unwrap();
            thread.join().unwrap();
            wait("the link to go down", || !port.link().unwrap().up);
            wait("what was in flight to be counted", || {
                tx[0].send(&mut cache, &mut batch);
                tx[0].counters().lost == 3 * (round + 1)
            });
            back_end = start(&path, listens);
        }
        println!("listens {listens}: in use again after {longest} turns at most");
        assert!(longest < 400, "{longest} turns of 10 ms");
        let (hand, thread) = back_end.join().unwrap();
        // The port may be closed amid the greeting, and then ends it by hanging up: nobody else may hold the back end's end.
        drop(hand);
        port.close().unwrap();
        drop((rx, tx, cache, batch));
        assert_eq!(pool.away(), 0);
        // It may not have been accepted, and then ends with the listener.
        thread.join().unwrap();
    }
}

/// A clock that goes as slowly as this machine gives threads their turn: it counts sleeps of 10 ms.
struct Turns {
    count: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
}

impl Turns {
    fn start() -> Self {
        let (count, stop) = <(Arc<AtomicU32>, Arc<AtomicBool>)>::default();
        let turns = Self { count: Arc::clone(&count), stop: Arc::clone(&stop) };
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        turns
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
