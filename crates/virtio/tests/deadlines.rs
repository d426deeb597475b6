//! vhost-user back ends that are slow: an operation has one limit, however many messages it takes. That a peer was given up
//! is seen by how much it was asked, since time alone says nothing on a busy machine.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{trusted, wait};
use ethdev::{Port as _, TxQueue as _};
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
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use virtio::{Config, Features, Opened, VhostUser};

const PROTOCOL: u64 = 1 << 30;
/// Long enough that only a cancelled operation ends within a test.
const HOUR: Duration = Duration::from_secs(3600);
/// Long enough for what a good back end answers at once, on a busy machine too.
const ENOUGH: Duration = Duration::from_secs(2);
/// So long that ten of them are too long.
const SLOW: Duration = Duration::from_millis(200);

/// How long a back end takes to answer, in milliseconds; it may be changed while it is at work.
type Delay = Arc<AtomicU64>;
/// It reads what it is asked, and says nothing.
const NEVER: u64 = u64::MAX;

/// A back end that answers each message after `delay`. Returns the number of messages that it saw.
fn answer(socket: UnixStream, delay: Duration) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    let delay = u64::try_from(delay.as_millis()).unwrap();
    answer_after(Arc::new(AtomicU64::new(delay)), socket)
}

/// The same, with a delay that changes.
fn answer_after(delay: Delay, mut socket: UnixStream) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let thread = std::thread::spawn(move || {
        while let Some((request, reply)) = next_message(&mut socket) {
            count.fetch_add(1, Ordering::Relaxed);
            let delay = delay.load(Ordering::Relaxed);
            if delay == NEVER {
                continue;
            }
            std::thread::sleep(Duration::from_millis(delay));
            if let Some(number) = reply
                && socket.write_all(&reply_to(request, number)).is_err()
            {
                return;
            }
        }
    });
    (thread, seen)
}

/// A message that the front end sends, and the number that a good back end answers, if any; `None` at the end.
fn next_message(socket: &mut UnixStream) -> Option<(u32, Option<u64>)> {
    let mut header = [0; 12];
    socket.read_exact(&mut header).ok()?;
    let word = |n: usize| u32::from_ne_bytes(header[4 * n..4 * n + 4].try_into().unwrap());
    let (request, flags, size) = (word(0), word(1), word(2));
    let mut body = vec![0; size as usize];
    socket.read_exact(&mut body).ok()?;
    let answer = match request {
        1 => Some((Features::VERSION_1 | Features::MRG_RXBUF).0 | PROTOCOL),
        15 => Some(1 | 8),
        17 => Some(4),
        11 => Some(u64::from_ne_bytes(body[..8].try_into().unwrap())),
        _ => (flags & 8 != 0).then_some(0),
    };
    Some((request, answer))
}

fn reply_to(request: u32, number: u64) -> Vec<u8> {
    let mut reply: Vec<u8> = [request, 5, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
    reply.extend(number.to_ne_bytes());
    reply
}

/// What `act` returns, on a thread; a panic if that takes too long.
fn in_time<R: Send + 'static>(what: &str, act: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    wait.recv_timeout(common::PATIENCE).unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

fn config(total: Duration) -> Config {
    let mut config = common::config();
    config.port.time_limit.total = total;
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
    let Opened { port, rx, tx } = virtio::open(device, &config(ENOUGH), &pool).unwrap();
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
fn a_back_end_that_answers_each_message_of_a_close_just_in_time_is_given_up_as_a_whole() {
    let pool = pool();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let delay = Delay::default();
    let (thread, seen) = answer_after(Arc::clone(&delay), theirs);
    let mut config = config(ENOUGH);
    (config.port.rx_queues, config.port.tx_queues) = (4, 4);
    let device = VhostUser::over(ours, trusted()).unwrap();
    let Opened { port, rx, tx } = virtio::open(device, &config, &pool).unwrap();
    let before = seen.load(Ordering::Relaxed);
    delay.store(SLOW.as_millis().try_into().unwrap(), Ordering::Relaxed);
    let closed = port.close();
    thread.join().unwrap();
    drop((rx, tx));
    // Two messages for each of eight rings, of which 200 ms each would be 3.2 s.
    let seen = seen.load(Ordering::Relaxed) - before;
    assert!((1..=10).contains(&seen), "{seen} messages");
    // It goes when nobody is there any more. Where it took too long for that, its memory is kept.
    assert!(closed.is_err() || pool.away() == 0);
}

/// The one answer that a new pool takes, byte by byte: each comes in time, and all together do not.
#[test]
fn a_back_end_that_trickles_its_answer_about_a_pool_is_lost() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut tables = 0;
        while let Some((request, answer)) = next_message(&mut theirs) {
            let Some(number) = answer else { continue };
            tables += u32::from(request == 5);
            for byte in reply_to(request, number) {
                if request == 5 && tables == 2 {
                    std::thread::sleep(SLOW);
                }
                if theirs.write_all(&[byte]).is_err() {
                    return;
                }
            }
        }
    });
    let (pool, other) = (pool(), pool());
    let device = VhostUser::over(ours, trusted()).unwrap();
    let mut opened = virtio::open(device, &config(ENOUGH), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), mempool::Batch::with_capacity(32));
    let mut packet = other.alloc().unwrap();
    packet.append(60).unwrap();
    batch.push(packet).unwrap();
    wait("the session to end", || {
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0, "20 bytes take 4 s, and there are 2");
        assert_eq!(opened.tx[0].counters().unmapped_pool, 0, "nobody has refused the pool");
        !opened.port.link().unwrap().up
    });
    // It may still be at that answer, and not notice that it is asked to stop.
    let _ = opened.port.close();
    thread.join().unwrap();
}

/// A port whose first back end answers at once, a hand on that connection, and where the next ones are accepted.
struct Reconnecting {
    opened: Opened<VhostUser>,
    pool: Pool,
    listener: UnixListener,
    hand: UnixStream,
    first: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Reconnecting {
    /// The first one takes `parting` to close its end when the front end has.
    fn new(config: &Config, parting: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let device = VhostUser::connect(&path, trusted()).unwrap();
        let playing = std::thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            let hand = socket.try_clone().unwrap();
            let first = std::thread::spawn(move || {
                while let Some((request, reply)) = next_message(&mut socket) {
                    if let Some(number) = reply {
                        let _ = socket.write_all(&reply_to(request, number));
                    }
                }
                std::thread::sleep(parting);
            });
            (listener, hand, first)
        });
        let pool = pool();
        let opened = virtio::open(device, config, &pool).unwrap();
        let (listener, hand, first) = playing.join().unwrap();
        Self { opened, pool, listener, hand, first, _folder: folder }
    }

    /// The first back end hangs up. Returns the next connection.
    fn lose(&self) -> UnixStream {
        self.hand.shutdown(std::net::Shutdown::Both).unwrap();
        self.accept()
    }

    fn accept(&self) -> UnixStream {
        let listener = self.listener.try_clone().unwrap();
        in_time("the front end to connect again", move || listener.accept().unwrap().0)
    }

    /// A good back end is in use again after all; then the port is closed.
    fn come_back(self, socket: UnixStream) {
        let serve = |socket: UnixStream| (socket.try_clone().unwrap(), answer(socket, Duration::ZERO).0);
        let mut served = vec![serve(socket)];
        self.listener.set_nonblocking(true).unwrap();
        wait("the link to come up again", || {
            // Where nobody answered for too long, the front end has called again.
            if let Ok((socket, _)) = self.listener.accept() {
                served.push(serve(socket));
            }
            self.opened.port.link().unwrap().up
        });
        for (hand, _) in &served {
            let _ = hand.shutdown(std::net::Shutdown::Both);
        }
        let Opened { port, rx, tx } = self.opened;
        port.close().unwrap();
        for (_, thread) in served {
            thread.join().unwrap();
        }
        self.first.join().unwrap();
        drop((rx, tx));
        assert_eq!(self.pool.away(), 0);
    }
}

#[test]
fn a_back_end_that_answers_each_message_of_a_reconnect_just_in_time_is_given_up_as_a_whole() {
    let port = Reconnecting::new(&config(ENOUGH), Duration::ZERO);
    let (thread, seen) = answer(port.lose(), SLOW);
    // It is given up, and the next one is found.
    let next = port.accept();
    thread.join().unwrap();
    // 200 ms each. Rings were being started: to stop them takes nothing more of this back end either.
    let seen = seen.load(Ordering::Relaxed);
    assert!((1..=10).contains(&seen), "{seen} messages");
    port.come_back(next);
}

/// The end of one session and the beginning of the next are one operation.
#[test]
fn what_the_end_of_a_session_takes_the_next_one_lacks() {
    let (limit, parting) = (Duration::from_millis(2500), Duration::from_millis(500));
    let port = Reconnecting::new(&config(limit), parting);
    let begun = Instant::now();
    // It is to be reset, and holds the connection a while.
    port.hand.try_clone().unwrap().write_all(b"x").unwrap();
    let Reconnecting { opened, pool, listener, hand, first, _folder } = port;
    drop(hand);
    let port = Reconnecting { opened, pool, listener, hand: UnixStream::pair().unwrap().0, first, _folder };
    let socket = port.accept();
    let found = begun.elapsed();
    let (thread, seen) = answer(socket, SLOW);
    let next = port.accept();
    thread.join().unwrap();
    let seen = seen.load(Ordering::Relaxed);
    // Where this machine was so slow that the second that a farewell may take was not enough, it has begun anew.
    if found < Duration::from_secs(1) {
        assert!((1..=10).contains(&seen), "{seen} messages, with 2 s of 2.5 left");
    }
    port.come_back(next);
}

#[test]
fn a_back_end_that_is_silent_after_a_reconnect_is_given_up() {
    let config = config(ENOUGH);
    // One that does not even read.
    let port = Reconnecting::new(&config, Duration::ZERO);
    let deaf = port.lose();
    let next = port.accept();
    drop(deaf);
    port.come_back(next);
    // Ones that answer so many messages: none, and some after memory was shared.
    for answers in [0, 9] {
        let port = Reconnecting::new(&config, Duration::ZERO);
        let mut socket = port.lose();
        let thread = std::thread::spawn(move || {
            let mut left = answers;
            while let Some((request, reply)) = next_message(&mut socket) {
                if left > 0
                    && let Some(number) = reply
                {
                    let _ = socket.write_all(&reply_to(request, number));
                    left -= 1;
                }
            }
        });
        let next = port.accept();
        thread.join().unwrap();
        port.come_back(next);
    }
}

/// With the flag set, a close has a second, once the thread that waits has been stopped.
fn close_cancelled(opened: Opened<VhostUser>, cancel: &AtomicBool) {
    cancel.store(true, Ordering::Relaxed);
    let Opened { port, rx, tx } = opened;
    // Whether it is seen to go in that time is another matter.
    let _ = in_time("the port to be closed", move || port.close());
    drop((rx, tx));
}

fn cancellable() -> (Config, Arc<AtomicBool>) {
    let (mut config, cancel) = (config(HOUR), Arc::<AtomicBool>::default());
    config.port.time_limit.cancel = Some(Arc::clone(&cancel));
    (config, cancel)
}

#[test]
fn a_flag_and_a_close_end_the_mapping_of_a_pool_that_waits_for_an_answer() {
    let (config, cancel) = cancellable();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let delay = Delay::default();
    let (thread, seen) = answer_after(Arc::clone(&delay), theirs);
    let (pool, other) = (pool(), pool());
    let mut opened = virtio::open(VhostUser::over(ours, trusted()).unwrap(), &config, &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), mempool::Batch::with_capacity(32));
    let mut packet = other.alloc().unwrap();
    packet.append(60).unwrap();
    batch.push(packet).unwrap();
    delay.store(NEVER, Ordering::Relaxed);
    let before = seen.load(Ordering::Relaxed);
    wait("the question about the pool", || {
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0);
        seen.load(Ordering::Relaxed) > before
    });
    close_cancelled(opened, &cancel);
    thread.join().unwrap();
}

#[test]
fn a_flag_and_a_close_end_a_reconnect_that_waits_for_an_answer() {
    let (config, cancel) = cancellable();
    let port = Reconnecting::new(&config, Duration::ZERO);
    let (thread, seen) = answer_after(Arc::new(AtomicU64::new(NEVER)), port.lose());
    wait("the first question", || seen.load(Ordering::Relaxed) > 0);
    close_cancelled(port.opened, &cancel);
    thread.join().unwrap();
    port.first.join().unwrap();
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
    config.port.time_limit.cancel = Some(Arc::clone(&cancel));
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
        let dials = device.dials();
        let playing = std::thread::spawn(move || {
            let socket = first.accept().unwrap().0;
            let hand = socket.try_clone().unwrap();
            (hand, answer(socket, Duration::ZERO).0)
        });
        let Opened { port, rx, tx } = virtio::open(device, &config(HOUR), &pool).unwrap();
        let (hand, thread) = playing.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let (_listener, _waiting) = full_listener(&path);
        let before = dials();
        hand.shutdown(std::net::Shutdown::Both).unwrap();
        thread.join().unwrap();
        wait("the link to go down", || !port.link().unwrap().up);
        wait("a second attempt to connect, behind the first that found no room", || dials() > before + 1);
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
    let delay = Delay::default();
    let (thread, seen) = answer_after(Arc::clone(&delay), theirs);
    let device = VhostUser::over(ours, trusted()).unwrap();
    let mut opened = virtio::open(device, &config(ENOUGH), &pool).unwrap();
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
    delay.store(NEVER, Ordering::Relaxed);
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
