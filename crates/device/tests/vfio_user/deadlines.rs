//! One deadline for the whole of an open, a close or a command, however slowly a server answers.

use crate::server::{BY_MESSAGE, HOUR, Server, limit, lingering, open, peer, send_many, soon};
use device::vfio_user::message::{self, command};
use device::{Device as _, DmaMemory, MemoryRequest, PageSize, TimeLimit, VfioUserDevice};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(350);

#[test]
fn answers_that_come_just_in_time_do_not_outlast_the_deadline() {
    let (count, answered) = mpsc::channel();
    let (opened, server) = open(&limit(SHORT), move |socket| {
        let slow = |_: &_| {
            std::thread::sleep(Duration::from_millis(100));
            true
        };
        count.send(Server::default().serve(&socket, slow)).unwrap();
    });
    let text = opened.unwrap_err().to_string();
    assert!(text.contains("vfio-user:given") && text.contains("not done within 0.35 s"), "{text}");
    server.join().unwrap();
    let answered = answered.recv().unwrap();
    assert!(answered <= 4, "{answered} answers of 100 ms each in 350 ms, and one on its way");
}

#[test]
fn a_server_that_never_reads_is_given_up() {
    let (hold, held) = mpsc::channel();
    let (opened, server) = open(&limit(SHORT), move |socket| hold.send(socket).unwrap());
    assert!(opened.unwrap_err().to_string().contains("not done within 0.35 s"));
    server.join().unwrap();
    drop(held);
}

#[test]
fn a_full_backlog_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.sock");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let text = VfioUserDevice::open(&path, peer(), &limit(SHORT).begin()).unwrap_err().to_string();
    assert!(text.contains("full.sock: not done within 0.35 s; its server takes no connections"), "{text}");
}

#[test]
fn a_connection_that_ends_at_any_step_is_an_error_and_then_no_more() {
    for answers in 0.. {
        let (opened, server) = open(&limit(HOUR), move |socket| {
            let mut left = answers;
            Server::default().serve(&socket, |_| {
                left -= 1;
                left >= 0
            });
        });
        if let Ok(nic) = opened {
            assert!(answers > 10, "{answers}");
            drop(nic);
            return server.join().unwrap();
        }
        let text = opened.unwrap_err().to_string();
        assert!(text.contains("vfio-user:given") && text.lines().count() == 1, "{text}");
        server.join().unwrap();
    }
}

/// What SIGINT does in the programs: without it, each of these would take an hour.
#[test]
fn a_flag_ends_an_open_at_any_step() {
    for answers in 0..12 {
        let flag = Arc::new(AtomicBool::new(false));
        let limit = TimeLimit { total: HOUR, cancel: Some(Arc::clone(&flag)) };
        let (hold, held) = mpsc::channel();
        let (opened, server) = open(&limit, move |socket| {
            let mut left = answers;
            Server::default().serve(&socket, |_| {
                left -= 1;
                flag.store(left < 0, Ordering::Relaxed);
                left >= 0
            });
            hold.send(socket).unwrap();
        });
        let text = opened.unwrap_err().to_string();
        assert!(text.contains("interrupted"), "{answers}: {text}");
        server.join().unwrap();
        drop(held);
    }
}

/// Serves until the first reset beyond opening, or interrupt; then neither answers nor closes.
fn until_interrupts(socket: UnixStream, hold: &mpsc::Sender<UnixStream>) {
    Server::default().serve(&socket, |asked| asked.header.command != command::DEVICE_GET_IRQ_INFO);
    hold.send(socket).unwrap();
}

#[test]
fn a_command_and_a_close_end_at_the_deadline_and_memory_is_kept() {
    let (hold, held) = mpsc::channel();
    let (opened, server) = open(&limit(HOUR), move |socket| until_interrupts(socket, &hold));
    let nic = opened.unwrap();
    assert!(nic.deadline().is_some(), "that of the open goes on");
    let request = MemoryRequest { bytes: 4096, pages: PageSize::Ordinary, numa_node: None };
    let memory = DmaMemory::allocate(&request).unwrap();
    nic.dma().map(&memory).unwrap();
    nic.set_deadline(Some(limit(SHORT).begin()));
    let text = nic.enable_msix(1).unwrap_err().to_string();
    assert!(text.contains("not done within 0.35 s"), "{text}");
    assert!(nic.reset().is_err(), "nobody knows what the server does");
    drop(nic);
    assert_eq!(Arc::strong_count(&memory), 2, "it may still write there");
    server.join().unwrap();
    drop(held);
}

#[test]
fn what_has_no_time_left_is_not_begun_and_harms_nothing() {
    let (opened, server) = open(&limit(HOUR), |socket| Server::default().serve_all(&socket));
    let nic = opened.unwrap();
    nic.set_deadline(Some(limit(Duration::ZERO).begin()));
    assert!(nic.set_bus_master(true).unwrap_err().to_string().contains("not done within 0 s"));
    nic.set_deadline(None);
    nic.set_bus_master(true).unwrap();
    assert_eq!(nic.registers().read32(8), BY_MESSAGE);
    drop(nic);
    server.join().unwrap();
}

#[test]
fn a_thread_that_waits_for_another_ones_answer_has_its_own_deadline() {
    let ((hold, held), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let (opened, server) = open(&limit(HOUR), move |socket| {
        Server::default().serve(&socket, |asked| asked.header.command != command::DEVICE_GET_IRQ_INFO);
        tell.send(()).unwrap();
        // Closes when the test is done.
        let _: Result<(), _> = held.recv();
        drop(socket);
    });
    let nic = opened.unwrap();
    nic.set_deadline(None);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| nic.enable_msix(1).is_err());
        told.recv().unwrap();
        nic.set_deadline(Some(limit(SHORT).begin()));
        let text = nic.config::<4>(0).unwrap_err().to_string();
        assert!(text.contains("not done within 0.35 s"), "{text}");
        drop::<mpsc::Sender<()>>(hold);
        assert!(first.join().unwrap());
    });
    server.join().unwrap();
}

#[test]
fn a_trickle_of_bytes_ends_at_the_deadline() {
    let (opened, server) = open(&limit(SHORT), |mut socket| {
        let asked = message::receive(&socket, None).unwrap().unwrap();
        let bytes = asked.header.reply(1000).to_bytes();
        // A byte at a time, until the client has gone.
        for byte in bytes.iter().chain(std::iter::repeat(&0)) {
            std::thread::sleep(Duration::from_millis(5));
            if std::io::Write::write_all(&mut socket, &[*byte]).is_err() {
                return;
            }
        }
    });
    assert!(opened.unwrap_err().to_string().contains("not done within 0.35 s"));
    server.join().unwrap();
}

/// Unwanted descriptors end the connection, and nobody waits until they are closed.
#[test]
fn descriptors_that_are_slow_to_close_hold_no_open_up() {
    // The kernel would close itself what is beyond the room that there is.
    for (many, cause) in [(1, "descriptors that nobody asked for"), (200, "more descriptors than a message has")] {
        let (slow, _unread) = lingering();
        let (ours, theirs) = UnixStream::pair().unwrap();
        // The answer is there before the question, and holds the last handles of the socket.
        let answer = message::Header::command(0, command::VERSION, 0).reply(0);
        send_many(&theirs, answer, &vec![slow.as_fd(); many]);
        drop(slow);
        let text = soon(|| VfioUserDevice::over(ours, peer(), &limit(HOUR).begin()).unwrap_err().to_string());
        assert!(text.contains(cause) && text.lines().count() == 1, "{text}");
    }
}

/// What a server has said and nobody has read is closed with the connection.
#[test]
fn descriptors_that_are_never_received_hold_no_close_up() {
    let (slow, _unread) = lingering();
    let (lend, lent) = mpsc::channel();
    let (opened, server) = open(&limit(HOUR), move |socket| {
        lend.send(socket.try_clone().unwrap()).unwrap();
        Server::default().serve_all(&socket);
    });
    let nic = opened.unwrap();
    let hand = lent.recv().unwrap();
    for _ in 0..2 {
        send_many(&hand, message::Header::command(0, 0, 0), &[slow.as_fd()]);
    }
    drop(slow);
    soon(move || drop(nic));
    soon(|| server.join()).unwrap();
}

/// The address may be the server's by now. It cannot be given to other memory, as nothing more is asked of this server.
#[test]
fn a_mapping_in_doubt_is_the_last_thing_that_is_asked() {
    let (tell, told) = mpsc::channel();
    let (hold, held) = mpsc::channel::<()>();
    let (opened, server) = open(&limit(HOUR), move |socket| {
        Server::default().serve(&socket, |asked| asked.header.command != command::DMA_MAP);
        // Until the client has given up. What comes then is the end, or a message too many.
        let _ = held.recv();
        tell.send(message::receive(&socket, None).unwrap().map(|asked| asked.header)).unwrap();
    });
    let nic = opened.unwrap();
    let request = MemoryRequest { bytes: 4096, pages: PageSize::Ordinary, numa_node: None };
    let (first, second) = (DmaMemory::allocate(&request).unwrap(), DmaMemory::allocate(&request).unwrap());
    nic.set_deadline(Some(limit(SHORT).begin()));
    let text = nic.dma().map(&first).unwrap_err().to_string();
    assert!(text.contains("not done within 0.35 s"), "{text}");
    drop(hold);
    nic.set_deadline(None);
    assert!(nic.dma().map(&first).is_err() && nic.dma().map(&second).is_err());
    drop(nic);
    assert_eq!(told.recv().unwrap(), None, "the connection has ended, and nothing else");
    server.join().unwrap();
}
