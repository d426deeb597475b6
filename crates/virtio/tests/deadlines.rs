//! vhost-user back ends that are slow: an operation has one limit, however many messages it takes. That a peer was given up
//! is seen by how much it was asked, since time alone says nothing on a busy machine.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{trusted, wait};
use mempool::{Pool, PoolConfig};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use virtio::{Config, Features, Opened, VhostUser};

const PROTOCOL: u64 = 1 << 30;
/// Long enough that only a cancelled operation ends within a test.
const HOUR: Duration = Duration::from_secs(3600);

/// A back end that answers each message after `delay`. Returns the number of messages that it saw.
fn answer(socket: UnixStream, delay: Duration) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    answer_unless(Arc::default(), socket, delay)
}

/// As [`answer`], until it is made silent: from then on it reads and says nothing.
fn answer_unless(
    silent: Arc<AtomicBool>,
    mut socket: UnixStream,
    delay: Duration,
) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let thread = std::thread::spawn(move || {
        let mut header = [0; 12];
        while socket.read_exact(&mut header).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
            let word = |n: usize| u32::from_ne_bytes(header[4 * n..4 * n + 4].try_into().unwrap());
            let (request, flags, size) = (word(0), word(1), word(2));
            let mut body = vec![0; size as usize];
            socket.read_exact(&mut body).unwrap();
            let answer = match request {
                1 => Some((Features::VERSION_1 | Features::MRG_RXBUF).0 | PROTOCOL),
                15 => Some(1 | 8),
                17 => Some(4),
                11 => Some(u64::from_ne_bytes(body[..8].try_into().unwrap())),
                _ => (flags & 8 != 0).then_some(0),
            };
            std::thread::sleep(delay);
            if let Some(number) = answer.filter(|_| !silent.load(Ordering::Relaxed)) {
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

fn config(total: Duration) -> Config {
    let mut config = common::config();
    config.time_limit.total = total;
    config
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap()
}

#[test]
fn a_back_end_that_answers_each_message_just_in_time_is_given_up_as_a_whole() {
    let delay = Duration::from_millis(100);
    for (total, most) in [(300, 4), (1000, 20)] {
        let (pool, total) = (pool(), Duration::from_millis(total));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (thread, seen) = answer(theirs, delay);
        let device = VhostUser::over(ours, trusted()).unwrap();
        let message = virtio::open(device, &config(total), &pool).unwrap_err().to_string();
        assert!(message.contains(&format!("not done within {} s", total.as_secs_f64())), "{message}");
        thread.join().unwrap();
        // Each takes 100 ms at least; what was started is stopped within another limit.
        let seen = seen.load(Ordering::Relaxed);
        assert!(seen <= most, "{seen} messages");
        assert_eq!(pool.away(), 0);
    }
}

#[test]
fn closing_has_one_limit_too() {
    let pool = pool();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let slow = Arc::new(AtomicBool::new(false));
    // Everything is answered at once but the questions that stop rings.
    let (relay, far) = UnixStream::pair().unwrap();
    let (thread, _) = answer(far, Duration::ZERO);
    let (silent, mut from, mut to) = (Arc::clone(&slow), theirs.try_clone().unwrap(), relay.try_clone().unwrap());
    let forward = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            if !silent.load(Ordering::Relaxed) && to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let backward = std::thread::spawn(move || {
        let (mut relay, mut theirs) = (relay, theirs);
        let _ = std::io::copy(&mut relay, &mut theirs);
        let _ = theirs.shutdown(std::net::Shutdown::Both);
    });
    let device = VhostUser::over(ours, trusted()).unwrap();
    let Opened { port, rx, tx } = virtio::open(device, &config(Duration::from_millis(600)), &pool).unwrap();
    slow.store(true, Ordering::Relaxed);
    // It says nothing any more; but it goes when it sees that nobody is there.
    port.close().unwrap();
    drop((rx, tx));
    assert_eq!(pool.away(), 0);
    for thread in [forward, backward, thread] {
        thread.join().unwrap();
    }
}

#[test]
fn a_back_end_that_never_reads() {
    for full in [false, true] {
        let pool = pool();
        let (ours, theirs) = UnixStream::pair().unwrap();
        if full {
            let mut ours = ours.try_clone().unwrap();
            ours.set_nonblocking(true).unwrap();
            while ours.write(&[0; 4096]).is_ok() {}
            ours.set_nonblocking(false).unwrap();
        }
        let device = VhostUser::over(ours, trusted()).unwrap();
        let message = virtio::open(device, &config(Duration::from_millis(200)), &pool).unwrap_err().to_string();
        assert!(message.contains("no answer: not done within 0.2 s"), "{message}");
        let step = if full { "SET_OWNER" } else { "GET_FEATURES" };
        assert!(message.contains(step), "{message}");
        drop(theirs);
        assert_eq!(pool.away(), 0);
    }
}

/// Listens with room for one, and has it taken. Returns what keeps it so.
fn full_listener(path: &Path) -> (UnixListener, Vec<OwnedFd>) {
    let address = SocketAddrUnix::new(path).unwrap();
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = socket();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = socket();
        match rustix::net::connect(&client, &address) {
            Ok(()) => waiting.push(client),
            Err(Errno::AGAIN) => return (listener.into(), waiting),
            Err(errno) => panic!("{errno}"),
        }
    }
}

#[test]
fn a_listener_whose_backlog_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.sock");
    let (_listener, _waiting) = full_listener(&path);
    let pool = pool();
    let open = |config: &Config| {
        let device = VhostUser::connect(&path, trusted()).unwrap();
        virtio::open(device, config, &pool).unwrap_err().to_string()
    };
    let message = open(&config(Duration::from_millis(200)));
    assert!(message.contains("not done within 0.2 s") && message.contains("accepts nobody"), "{message}");
    // And when it is cancelled, at once.
    let cancel = Arc::new(AtomicBool::new(false));
    let mut config = config(HOUR);
    config.time_limit.cancel = Some(Arc::clone(&cancel));
    let cancelling = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        cancel.store(true, Ordering::Relaxed);
    });
    let message = open(&config);
    assert!(message.contains("interrupted"), "{message}");
    cancelling.join().unwrap();
    assert_eq!(pool.away(), 0);
    // Somebody listens there: the socket is not replaced.
    assert!(VhostUser::listen(&path, trusted()).is_err());
}

#[test]
fn a_port_whose_back_end_is_behind_a_full_backlog_is_closed_and_dropped_at_once() {
    for close in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let first = UnixListener::bind(&path).unwrap();
        let pool = pool();
        let device = VhostUser::connect(&path, trusted()).unwrap();
        let playing = std::thread::spawn(move || {
            let socket = first.accept().unwrap().0;
            let hand = socket.try_clone().unwrap();
            (hand, answer(socket, Duration::ZERO).0)
        });
        let Opened { port, rx, tx } = virtio::open(device, &config(HOUR), &pool).unwrap();
        let (hand, thread) = playing.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let (_listener, _waiting) = full_listener(&path);
        hand.shutdown(std::net::Shutdown::Both).unwrap();
        thread.join().unwrap();
        wait("the link to go down", || !port.link().unwrap().up);
        // It is connecting now, or about to.
        std::thread::sleep(Duration::from_millis(100));
        if close {
            port.close().unwrap();
        } else {
            drop(port);
        }
        drop((rx, tx));
        assert_eq!(pool.away(), 0);
    }
}

#[test]
fn a_silent_back_end_holds_up_nobody_who_sends_from_a_new_pool() {
    let pool = pool();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let silent = Arc::<AtomicBool>::default();
    let (thread, seen) = answer_unless(Arc::clone(&silent), theirs, Duration::ZERO);
    let device = VhostUser::over(ours, trusted()).unwrap();
    let mut opened = virtio::open(device, &config(Duration::from_millis(500)), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), mempool::Batch::with_capacity(32));
    let other = self::pool();
    let mut packet = other.alloc().unwrap();
    packet.append(60).unwrap();
    batch.push(packet).unwrap();
    cache.alloc_batch(&mut batch, 3, 60);
    // The first call asks for the pool; another thread talks to the back end.
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0, "nothing overtakes");
    wait("the pool", || opened.tx[0].send(&mut cache, &mut batch) == 4);
    // Now it does not answer that thread, while packets of a third pool wait, and those behind them.
    silent.store(true, Ordering::Relaxed);
    let third = self::pool();
    let mut packet = third.alloc().unwrap();
    packet.append(60).unwrap();
    batch.push(packet).unwrap();
    cache.alloc_batch(&mut batch, 3, 60);
    let before = seen.load(Ordering::Relaxed);
    let mut sends = 0;
    wait("the question about the third pool", || {
        sends += 1;
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0);
        seen.load(Ordering::Relaxed) > before
    });
    // The answer is waited for until the limit; a sender that waited, too, would not come round so often.
    for _ in 0..10_000 {
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0);
    }
    opened.port.close().unwrap();
    thread.join().unwrap();
    drop((opened.rx, opened.tx, cache, batch));
    assert_eq!((pool.away(), other.away(), third.away()), (0, 0, 0));
}

/// A descriptor that nobody asked for ends the conversation, and nobody waits until it is closed: a socket that lingers for an
/// hour, as what was sent on it is never read. (The kernel would close itself what is beyond the room that there is.)
#[test]
fn descriptors_that_are_slow_to_close_hold_nobody_up() {
    for many in [1, 200] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _unread = listener.accept().unwrap();
        slow.set_nonblocking(true).unwrap();
        while (&slow).write(&[0; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&slow, Some(HOUR)).unwrap();

        let (ours, theirs) = UnixStream::pair().unwrap();
        // The answer to GET_FEATURES is there before the question; the same lies unread behind it.
        let answer: Vec<u8> = [1, 5, 8, 0, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        for _ in 0..2 {
            let fds = vec![slow.as_fd(); many];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            rustix::net::sendmsg(&theirs, &[IoSlice::new(&answer)], &mut control, SendFlags::empty()).unwrap();
        }
        drop(slow);
        let (done, wait) = mpsc::channel();
        std::thread::spawn(move || {
            let device = VhostUser::over(ours, trusted()).unwrap();
            done.send(virtio::open(device, &config(HOUR), &pool()).unwrap_err().to_string())
        });
        let text = wait.recv_timeout(common::PATIENCE).unwrap();
        assert!(text.contains("descriptors that nobody asked for"), "{text}");
    }
}
