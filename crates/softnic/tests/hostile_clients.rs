//! Clients of the vfio-user server that want to stop it, or one another.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "system calls of a client, and the word for a server of its own")]

mod wire_client;

use device::{Bar as _, Device as _, TimeLimit, TrustedPeer, VfioUserDevice};
use memmap2::MmapOptions;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::MemfdFlags;
use softnic::VfioUserServer;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire_client::{WireClient, dwords, message, qwords, sealed_memfd};

const MAP: u8 = 2;
const SET_IRQS: u8 = 8;
const READ: u8 = 9;
const WRITE: u8 = 10;
const RESET: u8 = 13;
const EPERM: u8 = 1;
const ENOSPC: u8 = 28;

fn serve(name: &str) -> (TempDir, VfioUserServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = VfioUserServer::start(&format!("{name}?wire=sink"), &folder.path().join("nic.sock")).unwrap();
    (folder, server)
}

fn unsealed_memfd(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

fn map_body(offset: u64, iova: u64, size: u64) -> Vec<u8> {
    [dwords(&[32, 3]), qwords(&[offset, iova, size])].concat()
}

/// Opens with our own client; what it is asked afterwards has no deadline.
fn open(path: &Path) -> device::Result<VfioUserDevice> {
    // SAFETY: the servers of these tests are software NICs.
    let peer = unsafe { TrustedPeer::vouched_for() };
    let nic = VfioUserDevice::open(path, peer, &TimeLimit::default().begin())?;
    nic.set_deadline(None);
    Ok(nic)
}

/// As soon as the server has seen that the last client is gone.
fn next_client(server: &VfioUserServer) -> VfioUserDevice {
    open(server.socket()).unwrap()
}

/// The client fills its eventfd and clears O_NONBLOCK, a flag of the file and not of the server's descriptor.
#[test]
fn s2_a_full_blocking_eventfd_stops_neither_the_server_nor_others() {
    let (_folder, server) = serve("full-eventfd");
    let (_other_folder, other) = serve("full-eventfd-neighbour");
    let client = WireClient::connect(server.socket());
    let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for (index, what) in [(0, "INTx"), (1, "MSI"), (2, "MSI-X")] {
        assert_eq!(client.errno(SET_IRQS, &dwords(&[20, 32 | 4, index, 0, 1]), &[fd.as_fd()]), 0, "{what}");
        rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        for _ in 0..200 {
            // Fires, and takes off the mask that INTx has then.
            assert_eq!(client.errno(SET_IRQS, &dwords(&[20, 32 | 1, index, 0, 1]), &[]), 0, "{what}");
            if index == 0 {
                assert_eq!(client.errno(SET_IRQS, &dwords(&[20, 16 | 1, 0, 0, 1]), &[]), 0);
            }
        }
        rustix::io::read(&fd, &mut [0; 8]).unwrap();
    }
    assert_eq!(next_client(&other).bar().read32(8), 1 << 19);
    drop(client);
    assert_eq!(next_client(&server).bar().read32(8), 1 << 19);
}

#[test]
fn s2_a_client_may_map_so_much_and_no_more() {
    let (_folder, server) = serve("greedy");
    let (_other_folder, other) = serve("greedy-neighbour");
    let client = WireClient::connect(server.socket());
    // A file of 32 GiB with nothing in it.
    let large = sealed_memfd("memory", 32 << 30);
    let map = |offset, iova, size, file: &OwnedFd| client.errno(MAP, &map_body(offset, iova, size), &[file.as_fd()]);
    assert_eq!(map(0, 0, 32 << 30, &large), 0);
    assert_eq!(map(0, 32 << 30, 32 << 30, &large), 0);
    assert_eq!(map(0, 64 << 30, 4096, &large), ENOSPC, "64 GiB are enough");
    assert_eq!(client.errno(MAP, &map_body(0, 64 << 30, 1 << 40), &[]), 0, "without a file it costs nothing");
    let unmap_all = [dwords(&[24, 2]), qwords(&[0, 0])].concat();
    assert_eq!(client.errno(3, &unmap_all, &[]), 0);
    let mut mapped = 0;
    // Every other page, so that the kernel cannot join them.
    while map(mapped * 8192, mapped * 8192, 4096, &large) == 0 {
        mapped += 1;
    }
    assert!((4096..=16_384).contains(&mapped), "{mapped}");
    assert_eq!(map(0, 1 << 40, 4096, &large), ENOSPC);
    let neighbour = WireClient::connect(other.socket());
    let own = sealed_memfd("memory", 1 << 20);
    assert_eq!(neighbour.errno(MAP, &map_body(0, 0, 1 << 20), &[own.as_fd()]), 0);
    drop(client);
    let next = WireClient::connect(server.socket());
    assert_eq!(next.errno(MAP, &map_body(0, 0, 1 << 20), &[own.as_fd()]), 0);
}

#[test]
fn s4_a_second_client_is_refused_at_once_and_the_first_not_disturbed() {
    let (_folder, server) = serve("second");
    let first = WireClient::connect(server.socket());
    for _ in 0..50 {
        let second = WireClient::silent(server.socket());
        let reply = second.exchange(wire_client::VERSION, &[]);
        assert_eq!((reply[0], reply[2], reply[8], reply[12]), (1, 1, 0x21, 16), "VERSION: EBUSY");
        assert_eq!((&second.0).read(&mut [0]).unwrap(), 0, "and that is all");
        assert_eq!(first.errno(RESET, &[], &[]), 0);
    }
    let error = open(server.socket()).unwrap_err().to_string();
    assert!(error.contains("another client"), "{error}");
    // Those who say nothing, and more of them than there is room for, change nothing.
    let silent: Vec<_> = (0..40).map(|_| WireClient::silent(server.socket())).collect();
    let error = open(server.socket()).unwrap_err().to_string();
    assert!(error.contains("another client"), "{error}");
    assert_eq!(first.errno(RESET, &[], &[]), 0);
    drop((silent, first));
    next_client(&server);
}

#[test]
fn s2_a_message_that_never_ends_costs_its_client_the_connection() {
    let (_folder, server) = serve("endless");
    let client = WireClient::connect(server.socket());
    client.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let whole = message(READ, 0, &[0; 4096]);
    // A byte at a time: each alone comes soon enough.
    let closed = whole
        .iter()
        .any(|byte| (&client.0).write_all(&[*byte]).is_err() || matches!((&client.0).read(&mut [0]), Ok(0)));
    assert!(closed);
    next_client(&server);
}

#[test]
fn s2_a_client_that_never_reads_is_put_out() {
    let (_folder, server) = serve("deaf");
    let client = WireClient::connect(server.socket());
    let read = message(READ, 0, &[qwords(&[0]), dwords(&[0, 4096])].concat());
    // Until the buffers are full both ways, and then until the server has hung up.
    while (&client.0).write_all(&read).is_ok() {}
    next_client(&server);
}

#[test]
fn clients_that_come_and_go_in_hundreds_leave_a_server_that_serves() {
    let (_folder, server) = serve("storm");
    for round in 0..500 {
        let client = WireClient::silent(server.socket());
        if round % 3 == 0 {
            // It may be gone, or be refused, before it has said all.
            let _ = client.send(&wire_client::VERSION[..20 + round % 20], &[]);
        }
    }
    next_client(&server);
}

#[test]
fn a_server_ends_with_clients_at_the_door() {
    let (_folder, server) = serve("closing");
    let first = WireClient::connect(server.socket());
    let silent: Vec<_> = (0..5).map(|_| WireClient::silent(server.socket())).collect();
    drop(server);
    assert_eq!((&first.0).read(&mut [0]).unwrap_or(0), 0);
    drop(silent);
}

/// The kernel takes no more than 16 out of a message here, and what has more is no message.
#[test]
fn a_message_with_too_many_descriptors_costs_its_client_the_connection() {
    let (_folder, server) = serve("many");
    let file = tempfile::tempfile().unwrap();
    for many in [17, 253] {
        let client = WireClient::connect(server.socket());
        client.send(&message(RESET, 0, &[]), &vec![file.as_fd(); many]).unwrap();
        assert_eq!((&client.0).read(&mut [0]).unwrap_or(0), 0, "{many}");
    }
    assert_eq!(WireClient::connect(server.socket()).errno(RESET, &[], &[file.as_fd(); 16]), 0);
}

/// A page of memory that is not there until the first value is dropped: who reads or writes it waits (ioctl_userfaultfd(2)).
fn missing_page() -> Option<(File, usize)> {
    const PAGE: usize = 4096;
    // SAFETY: takes flags and returns a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a new descriptor that nobody else has.
    let file = unsafe { File::from_raw_fd(fd) };
    // Mapped until the process ends, as the kernel may access it until then.
    let page = Box::leak(Box::new(MmapOptions::new().len(PAGE).map_anon().unwrap())).as_mut_ptr() as usize;
    // UFFDIO_API, with the features and the ioctls that there are; UFFDIO_REGISTER, for pages that are missing.
    let mut api = [0xAA_u64, 0, 0];
    let mut register = [page as u64, PAGE as u64, 1, 0];
    for (request, argument) in [(0xC018_AA3F, &mut api[..]), (0xC020_AA00, &mut register[..])] {
        // SAFETY: reads and writes the three or four words of the structure that the request is for.
        assert_eq!(unsafe { libc::ioctl(fd, request, argument.as_mut_ptr()) }, 0);
    }
    Some((file, page))
}

/// A write(2) keeps a memfd's inode locked while it waits for what it writes.
#[test]
fn a_file_that_is_being_written_for_ever_holds_nobody_up() {
    let Some((mut faults, page)) = missing_page() else {
        return skip::test!("no userfaultfd without root");
    };
    let (_folder, server) = serve("written");
    let (_other_folder, other) = serve("written-neighbour");
    let (client, neighbour) = (WireClient::connect(server.socket()), WireClient::connect(other.socket()));
    let (sealed, unsealed) = (sealed_memfd("written", 1 << 20), unsealed_memfd(1 << 20));
    for file in [&sealed, &unsealed] {
        let file = file.try_clone().unwrap();
        // SAFETY: the kernel reads no more than the page, which stays mapped.
        std::thread::spawn(move || unsafe { libc::write(file.as_raw_fd(), page as *const libc::c_void, 4096) });
        // The fault: it waits.
        faults.read_exact(&mut [0; 32]).unwrap();
    }
    assert_eq!(client.errno(MAP, &map_body(0, 0, 1 << 20), &[sealed.as_fd()]), 0);
    assert_eq!(client.errno(MAP, &map_body(0, 1 << 20, 1 << 20), &[unsealed.as_fd()]), EPERM);
    assert_eq!(client.errno(RESET, &[], &[]), 0);
    assert_eq!(neighbour.errno(RESET, &[], &[]), 0);
    soon(|| drop(server));
    assert_eq!(neighbour.errno(RESET, &[], &[]), 0);
    drop(faults);
}

/// Writes a dword of BAR 0.
fn register(offset: u64, value: u32) -> Vec<u8> {
    message(WRITE, 0, &[qwords(&[offset]), dwords(&[0, 4, value])].concat())
}

/// The last close(2) of an eventfd takes the lock of the epolls that watch it, which epoll_wait(2) keeps while it hands out what
/// it has found.
#[test]
fn an_eventfd_that_is_slow_to_close_holds_nobody_up() {
    const EITR: u64 = 0x820;
    const EICS: u64 = 0x808;
    const EIMS: u64 = 0x880;
    const RXCTRL: u64 = 0x3000;
    let Some((mut faults, page)) = missing_page() else {
        return skip::test!("no userfaultfd without root");
    };
    let (_folder, server) = serve("slow-eventfd");
    let folder = tempfile::tempdir().unwrap();
    let spec = "slow-eventfd-neighbour?wire=gen&rate=1000000&mode=drop";
    let other = VfioUserServer::start(spec, &folder.path().join("nic.sock")).unwrap();
    let (client, neighbour) = (WireClient::connect(server.socket()), WireClient::connect(other.socket()));
    // The command register: memory and bus mastering. The neighbour drops all frames, as it has nowhere to put them.
    let command = message(WRITE, 0, &[qwords(&[4]), dwords(&[7, 2]), vec![6, 0]].concat());
    let setup = [(&client, register(EITR, 0xFF8)), (&client, register(EIMS, 1)), (&neighbour, register(RXCTRL, 1))];
    for (client, message) in [(&client, command.clone()), (&neighbour, command)].into_iter().chain(setup) {
        assert_eq!(client.exchange(&message, &[])[12], 0);
    }
    let engine_works = || {
        let before = other.control().wire_counters().offered;
        until(|| other.control().wire_counters().offered > before + 1000);
    };
    engine_works();

    let eventfd = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&epoll, &eventfd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    assert_eq!(client.errno(SET_IRQS, &dwords(&[20, 32 | 4, 2, 0, 1]), &[eventfd.as_fd()]), 0);
    std::thread::spawn(move || {
        // SAFETY: the kernel writes no more than one event into the page, which stays mapped.
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), page as *mut libc::epoll_event, 1, -1) }
    });
    faults.read_exact(&mut [0; 32]).unwrap();
    drop(eventfd);
    // The vector fires a millisecond after it did last: when the server has begun to close the eventfd.
    let disconnect = message(SET_IRQS, 0, &dwords(&[20, 32 | 1, 2, 0, 0]));
    client.send(&[register(EITR, 0xFF8 | 0x7F << 21), register(EICS, 1), disconnect].concat(), &[]).unwrap();
    engine_works();
    soon(|| drop(server));
    engine_works();
    drop(faults);
}

fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

/// 16 may be at the door, and say nothing for a second.
#[test]
fn who_says_nothing_at_the_door_is_sent_away() {
    let (_folder, server) = serve("silent");
    let first = WireClient::connect(server.socket());
    let mut silent: Vec<_> = (0..17).map(|_| WireClient::silent(server.socket())).collect();
    // The seventeenth takes the place of the first, and the second one's time ends.
    for client in silent.drain(..2) {
        assert_eq!((&client.0).read(&mut [0]).unwrap(), 0);
    }
    let last = silent.pop().unwrap();
    drop(silent);
    assert_eq!((&last.0).read(&mut [0]).unwrap(), 0);
    assert_eq!(first.errno(RESET, &[], &[]), 0);
}

/// A socket whose last close(2) waits for minutes, unless its other end, the second value, is closed before.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(300))).unwrap();
    (socket.into(), listener.accept().unwrap().0)
}

/// Sends a message with a descriptor that takes minutes to close, of which the server has the last handle. Returns what ends it.
fn send_slow(client: &WireClient, bytes: &[u8]) -> TcpStream {
    let (slow, far) = lingering();
    client.send(&bytes[..1], &[slow.as_fd()]).unwrap();
    // The server cannot have done with it, as the message is not whole.
    drop(slow);
    client.send(&bytes[1..], &[]).unwrap();
    far
}

/// What `work` returns, which must not take minutes.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn descriptors_that_are_slow_to_close_hold_nobody_up() {
    let (_folder, server) = serve("slow");
    let client = WireClient::connect(server.socket());
    let mut slow = Vec::new();
    let requests = [
        (RESET, Vec::new(), "unasked"),
        (MAP, map_body(0, 0, 4096), "no memfd"),
        (SET_IRQS, dwords(&[20, 32 | 4, 2, 0, 1]), "no eventfd"),
    ];
    for (command, body, what) in requests {
        slow.push(send_slow(&client, &message(command, 0, &body)));
        assert_eq!(client.receive()[12] != 0, command != RESET, "{what}");
        assert_eq!(client.errno(RESET, &[], &[]), 0, "{what}");
    }
    // At the door, with what is answered by the refusal, and with what is never read. Some are the last handles.
    for _ in 0..3 {
        let (socket, far) = lingering();
        let refused = WireClient::silent(server.socket());
        refused.send(wire_client::VERSION, &[socket.as_fd()]).unwrap();
        // It may be gone by now.
        let _ = refused.send(wire_client::VERSION, &[socket.as_fd()]);
        std::thread::spawn(move || drop(socket));
        slow.push(far);
        assert_eq!(refused.receive()[12], 16, "EBUSY");
        assert_eq!((&refused.0).read(&mut [0]).unwrap_or(0), 0, "and that is all");
    }
    // In what breaks the connection, and behind it.
    slow.push(send_slow(&client, &[0; 16]));
    let (unread, far) = lingering();
    // It may have ended by now.
    let _ = client.send(&[0; 16], &[unread.as_fd()]);
    std::thread::spawn(move || drop(unread));
    slow.push(far);
    assert_eq!((&client.0).read(&mut [0]).unwrap_or(0), 0);
    let next = WireClient::connect(server.socket());
    assert_eq!(next.errno(RESET, &[], &[]), 0);
    soon(|| drop(server));
    assert_eq!((&next.0).read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn more_slow_descriptors_than_a_device_has_threads_for_hold_up_that_device_only() {
    let (_folder, server) = serve("slower");
    let (_other_folder, other) = serve("slower-neighbour");
    let neighbour = WireClient::connect(other.socket());
    let overload = || {
        let client = WireClient::connect(server.socket());
        (0..20).map(|_| send_slow(&client, &message(RESET, 0, &[]))).collect::<Vec<_>>()
    };
    let slow = overload();
    assert_eq!(neighbour.errno(RESET, &[], &[]), 0);
    drop(neighbour);
    next_client(&other);
    drop(slow);
    // Once they are closed, it goes on.
    next_client(&server);
    let slow = overload();
    soon(|| drop(server));
    next_client(&other);
    drop(slow);
}
