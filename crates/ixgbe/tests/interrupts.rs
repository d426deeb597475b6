#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]
#![cfg(not(miri))] // Miri has neither poll(2) on eventfds nor sockets.
//! Waiting for frames and for the link, on the strict and the threaded software 82599 and on one behind a socket.
#![expect(unsafe_code, reason = "the word for a server of its own")]

use device::{Device, EventFd, Interrupts, TimeLimit};
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use ixgbe::{Config, Opened, RxQueue};
use mempool::{Batch, Pool, PoolConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnic::{Fault, SoftDevice, StrictControl, StrictNic};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// No test waits for it unless something is broken.
const FOR_EVER: Duration = Duration::from_secs(120);
/// Frames that come one at a time.
const SINGLES: u32 = 2000;

fn config(rx_queues: u16) -> Config {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring, config.port.rx_queues) = (64, 64, rx_queues);
    config.port.interrupts = Interrupts::Required;
    config.port.time_limit = long();
    config
}

/// Each access to a register behind a socket takes turns of two threads.
fn long() -> TimeLimit {
    TimeLimit { total: FOR_EVER, cancel: None }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() }).unwrap()
}

fn strict(rx_queues: u16) -> (StrictControl, Pool, Opened<StrictNic>) {
    let (device, pool) = (StrictNic::builder().build(), pool());
    let nic = device.control();
    // A device that is moved by hand fires when it is moved, not when an interval is over.
    let mut config = config(rx_queues);
    config.interrupt_interval_us = 0;
    let opened = ixgbe::open(device, &config, &pool).unwrap();
    (nic, pool, opened)
}

/// UDP/IPv4 to port 53 of 10.0.0.1, with this number in the payload, and from a port that follows from it.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend(u16::try_from(number % 60_000).unwrap().to_be_bytes());
    frame.extend([0, 53, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

/// Steps until frames and the link have settled, and the intervals of interrupts are over (of a millisecond at most).
fn settle(nic: &StrictControl) {
    for _ in 0..1500 {
        nic.step();
    }
}

/// Waits for frames `0..SINGLES`, reports each, and checks that they are those.
fn receive_singles<D: Device>(rx: &mut RxQueue<D>, pool: &Pool, seen: &mpsc::Sender<u32>) {
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let mut next = 0;
    while next < SINGLES {
        assert!(rx.wait(FOR_EVER).unwrap(), "frame {next} came and nobody was woken");
        rx.recv(&mut cache, &mut batch);
        for packet in batch.iter() {
            assert_eq!(number(packet.data()), next);
            next += 1;
        }
        cache.free_batch(&mut batch);
        // Nobody listens any more when the other side has failed.
        let _ = seen.send(next);
    }
}

/// Hands over frames one by one, each only when the one before has been received, a moment later that differs.
fn send_singles(seen: &mpsc::Receiver<u32>, mut send: impl FnMut(u32)) {
    for single in 0..SINGLES {
        (0..(single * 7919) % 4096).for_each(|_| std::hint::spin_loop());
        send(single);
        while seen.recv_timeout(FOR_EVER).unwrap() <= single {}
    }
}

#[test]
fn each_of_thousands_of_single_frames_wakes_the_receiver() {
    let (nic, pool, mut opened) = strict(1);
    let (seen, received) = mpsc::channel();
    thread::scope(|scope| {
        let nic = &nic;
        scope.spawn(move || {
            send_singles(&received, |single| {
                nic.inject(&frame(single));
                nic.step_until_idle(100);
            });
        });
        receive_singles(&mut opened.rx[0], &pool, &seen);
    });
    assert_eq!(opened.rx[0].counters().packets, u64::from(SINGLES));
    opened.port.close().unwrap();
}

/// Two devices back to back: one sends singles, the other waits for them.
fn singles_between<D: Device>(mut from: Opened<SoftDevice>, mut to: Opened<D>, pool: &Pool) {
    to.port.wait_link(FOR_EVER).unwrap();
    from.port.wait_link(FOR_EVER).unwrap();
    let (seen, received) = mpsc::channel();
    thread::scope(|scope| {
        let (tx, pool) = (&mut from.tx[0], &pool);
        scope.spawn(move || {
            let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
            send_singles(&received, |single| {
                let mut packet = cache.alloc().unwrap();
                packet.append(60).unwrap().copy_from_slice(&frame(single));
                batch.push(packet).unwrap();
                while tx.send(&mut cache, &mut batch) == 0 {
                    thread::yield_now();
                }
            });
        });
        receive_singles(&mut to.rx[0], pool, &seen);
    });
    from.port.close().unwrap();
    to.port.close().unwrap();
}

#[test]
fn a_device_on_a_thread_of_its_own_loses_no_wake_up() {
    let pool = pool();
    let to = ixgbe::open(SoftDevice::open("waiting-to").unwrap(), &config(1), &pool).unwrap();
    let from = SoftDevice::open("waiting-from?wire=peer:waiting-to").unwrap();
    singles_between(ixgbe::open(from, &config(1), &pool).unwrap(), to, &pool);
}

#[test]
fn a_device_behind_a_socket_loses_no_wake_up() {
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let server = softnic::VfioUserServer::start("waiting-served", &folder.path().join("nic.sock")).unwrap();
    // SAFETY: the server is the software NIC above.
    let peer = unsafe { device::TrustedPeer::vouched_for() };
    let deadline = long().begin();
    let client = device::VfioUserDevice::open(server.socket(), peer, &deadline).unwrap();
    client.set_deadline(None);
    let to = ixgbe::open(client, &config(1), &pool).unwrap();
    let from = SoftDevice::open("waiting-beside?wire=peer:waiting-served").unwrap();
    singles_between(ixgbe::open(from, &config(1), &pool).unwrap(), to, &pool);
}

#[test]
fn a_wait_without_frames_ends_with_its_limit() {
    let (nic, pool, mut opened) = strict(1);
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let begun = Instant::now();
        assert!(!opened.rx[0].wait(limit).unwrap());
        assert!(begun.elapsed() >= limit);
    }
    // A limit that no clock can count is none.
    nic.inject(&frame(0));
    settle(&nic);
    assert!(opened.rx[0].wait(Duration::MAX).unwrap());
    assert!(opened.rx[0].wait(Duration::ZERO).unwrap(), "it still is there");
    assert_eq!(opened.rx[0].recv(&mut pool.cache(), &mut Batch::with_capacity(4)).len(), 1);
    assert!(!opened.rx[0].wait(Duration::ZERO).unwrap());
}

#[test]
fn a_wake_up_for_nothing_is_waited_through() {
    let (_nic, _pool, mut opened) = strict(1);
    let signal = EventFd::from(opened.rx[0].eventfd().unwrap().try_clone_to_owned().unwrap());
    let limit = Duration::from_millis(100);
    let begun = Instant::now();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                signal.signal();
                thread::yield_now();
            }
        });
        assert!(!opened.rx[0].wait(limit).unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(begun.elapsed() >= limit);
}

#[test]
fn a_queue_that_is_polled_is_not_interrupted() {
    let (nic, pool, mut opened) = strict(1);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let rx = &mut opened.rx[0];
    for single in 0..100 {
        nic.inject(&frame(single));
        settle(&nic);
        assert_eq!(rx.recv(&mut cache, &mut batch).len(), 1);
        cache.free_batch(&mut batch);
    }
    assert!(!is_readable(rx.eventfd().unwrap()));
    // What was polled is told of once when it is armed, and once armed it fires once.
    let (mut armed, mut fired) = (0, 0);
    while rx.arm() {
        armed += 1;
        fired += u32::from(is_readable(rx.eventfd().unwrap()));
        assert!(armed <= 2);
        if !is_readable(rx.eventfd().unwrap()) {
            break;
        }
    }
    assert_eq!((armed, fired), (2, 1));
    for single in 0..2 {
        nic.inject(&frame(single));
        settle(&nic);
        assert!(is_readable(rx.eventfd().unwrap()));
        assert!(!rx.arm(), "a frame is there");
        rx.recv(&mut cache, &mut batch);
        while rx.arm() && is_readable(rx.eventfd().unwrap()) {}
    }
}

#[test]
fn each_queue_has_an_eventfd_of_its_own() {
    let (nic, pool, mut opened) = strict(16);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let mut woken = [false; 16];
    for single in 0..200 {
        for rx in &mut opened.rx {
            while rx.arm() && is_readable(rx.eventfd().unwrap()) {}
        }
        nic.inject(&frame(single));
        settle(&nic);
        let readable = opened.rx.iter().map(|rx| is_readable(rx.eventfd().unwrap())).collect::<Vec<_>>();
        let received = opened.rx.iter_mut().map(|rx| rx.recv(&mut cache, &mut batch).len() == 1).collect::<Vec<_>>();
        assert_eq!(readable, received, "frame {single}");
        woken.iter_mut().zip(readable).for_each(|(woken, readable)| *woken |= readable);
        cache.free_batch(&mut batch);
    }
    assert!(woken.iter().filter(|woken| **woken).count() > 8, "RSS spreads flows");
}

#[test]
fn the_last_vectors_work() {
    let device = StrictNic::builder().build();
    let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() }).unwrap();
    let control = device.control();
    let mut config = config(63);
    config.port.rss.reta = ethdev::Reta::Table(vec![15]);
    let mut opened = ixgbe::open(device, &config, &pool).unwrap();
    settle(&control);
    assert!(opened.rx[62].arm() && opened.rx[15].arm());
    control.inject(&frame(1));
    settle(&control);
    assert!(is_readable(opened.rx[15].eventfd().unwrap()) && !is_readable(opened.rx[62].eventfd().unwrap()));
    opened.port.events().unwrap();
    control.set_link(false);
    settle(&control);
    assert!(is_readable(opened.port.event_fds()[0]));
    assert!(opened.port.events().unwrap().link_changed);
}

#[test]
fn a_link_change_is_told_and_takes_no_frame_s_interrupt() {
    let (nic, _pool, mut opened) = strict(1);
    settle(&nic);
    opened.port.events().unwrap();
    for up in [false, true, false, true] {
        assert!(!is_readable(opened.port.event_fds()[0]));
        nic.set_link(up);
        settle(&nic);
        assert!(is_readable(opened.port.event_fds()[0]), "up: {up}");
        assert!(opened.port.events().unwrap().link_changed);
        assert_eq!(opened.port.link().unwrap().up, up);
        assert!(!opened.port.events().unwrap().link_changed, "told once");
    }
    nic.inject(&frame(0));
    settle(&nic);
    let events = opened.port.events().unwrap();
    assert!(!events.link_changed && !events.memory_error);
    let _ = opened.rx[0].arm();
    assert!(is_readable(opened.rx[0].eventfd().unwrap()), "the cause of the frame is still there");
}

#[test]
fn closing_wakes_who_waits() {
    let (_nic, _pool, Opened { port, mut rx, tx }) = strict(2);
    let begun = Instant::now();
    thread::scope(|scope| {
        for rx in &mut rx {
            scope.spawn(|| assert!(!rx.wait(FOR_EVER).unwrap()));
        }
        port.close().unwrap();
    });
    assert!(!rx[0].wait(FOR_EVER).unwrap() && !rx[0].arm());
    assert!(begun.elapsed() < FOR_EVER);
    drop(tx);
}

#[test]
fn without_interrupts_a_wait_is_an_error_that_says_so() {
    let (device, pool) = (StrictNic::builder().build(), pool());
    let mut config = config(1);
    config.port.interrupts = Interrupts::Off;
    let mut opened = ixgbe::open(device, &config, &pool).unwrap();
    let rx = &mut opened.rx[0];
    assert!(rx.eventfd().is_none() && !rx.arm() && opened.port.event_fds().is_empty());
    let error = rx.wait(FOR_EVER).unwrap_err();
    assert!(error.to_string().contains("or poll"), "{error}");
}

/// A strict device with `frames` in its transmit ring, none of them sent.
fn loaded(frames: u32) -> (StrictControl, Opened<StrictNic>) {
    let (nic, pool, mut opened) = strict(1);
    settle(&nic);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    for single in 0..frames {
        let mut packet = cache.alloc().unwrap();
        packet.append(60).unwrap().copy_from_slice(&frame(single));
        batch.push(packet).unwrap();
    }
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), frames as usize);
    assert!(!opened.port.transmit_idle());
    (nic, opened)
}

#[test]
fn a_port_says_when_all_is_sent() {
    let (nic, opened) = loaded(40);
    thread::scope(|scope| {
        scope.spawn(|| while nic.step().transmitted == 0 {});
        while !opened.port.transmit_idle() {
            thread::yield_now();
        }
    });
    let numbers: Vec<_> = nic.transmitted().iter().map(|frame| number(frame)).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    opened.port.close().unwrap();
}

#[test]
fn closing_gives_up_on_a_transmitter_that_stands_still_or_has_no_link() {
    let (nic, opened) = loaded(5);
    nic.inject_fault(Fault::TxFrozen);
    opened.port.close().unwrap();
    let (nic, opened) = loaded(5);
    nic.set_link(false);
    opened.port.close().unwrap();
    assert!(nic.transmitted().is_empty());
}
