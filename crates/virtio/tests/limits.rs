//! What is bounded: memory of rings, work of a call, time of an operation, restarts; and the rules of the specification about
//! frames and buffers that only some devices make use of.
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BASE, MERGING, Rig, config, frame, wait};
use ethdev::{MacAddress, Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use virtio::fake::{FakeConfig, FakeDevice};
use virtio::transport::Interface;
use virtio::{Config, Features, Opened};

fn with(features: Features) -> FakeConfig {
    FakeConfig { features, ..FakeConfig::default() }
}

/// Rings of 32 pairs of 1,024 split descriptors, and of 64 of 512 packed ones, end on a boundary of huge pages.
#[test]
fn p10_rings_that_end_on_a_huge_page_boundary() {
    let mq = BASE | Features::MQ | Features::CTRL_VQ;
    for (pairs, size, layout) in
        [(32, 1024, Features::default()), (64, 512, Features::RING_PACKED), (64, 512, Features::default())]
    {
        let mut config = Config::default();
        (config.port.rx_queues, config.port.tx_queues, config.port.rx_ring, config.port.tx_ring) =
            (pairs, pairs, size, size);
        let slots = usize::from(pairs) * usize::from(size) + 4096;
        let pool = Pool::new(&PoolConfig { slots, data_room: 1600, ..PoolConfig::default() }).unwrap();
        let device = FakeDevice::new(FakeConfig { pairs, queue_size: 4096, ..with(mq | layout) });
        let opened = virtio::open(device.transport(), &config, &pool).unwrap();
        opened.port.close().unwrap();
    }
}

#[test]
fn p10_a_device_that_comes_back_with_other_rings_is_in_use_again() {
    let mq = BASE | Features::MQ | Features::CTRL_VQ;
    let (pairs, size) = (64, 512);
    let mut config = Config::default();
    (config.port.rx_queues, config.port.tx_queues, config.port.rx_ring, config.port.tx_ring) =
        (pairs, pairs, size, size);
    let pool = Pool::new(&PoolConfig { slots: 40_000, data_room: 1600, ..PoolConfig::default() }).unwrap();
    let device = FakeDevice::new(FakeConfig { pairs, queue_size: 4096, ..with(mq) });
    let Opened { port, rx, tx } = virtio::open(device.transport(), &config, &pool).unwrap();
    for layout in [Features::RING_PACKED, Features::default(), Features::RING_PACKED] {
        let resets = device.resets();
        device.offer(mq | layout);
        device.lose("another one comes");
        wait("the next session", || device.resets() > resets && port.link().unwrap().up);
        assert_eq!(port.features().contains(Features::RING_PACKED), layout == Features::RING_PACKED);
    }
    port.close().unwrap();
    drop((rx, tx));
    assert_eq!(pool.away(), 0);
}

/// A device that fills the ring with bad frames again and again: a call looks at no more of them than batch and ring
/// have room for together.
#[test]
fn a_stream_of_bad_frames_is_bounded_work_for_a_call() {
    for features in [BASE | MERGING, BASE | Features::RING_PACKED | MERGING] {
        let mut rig = Rig::new(features);
        let (device, stop) = (rig.device.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let liar = std::thread::spawn(move || {
            let mut lies = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                while let Some(chain) = device.next(0) {
                    // A frame of many buffers, and then buffers of no length.
                    // SAFETY: a chain that the device has taken and not reported.
                    unsafe { device.write(&chain.parts[0], 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]) };
                    device.report(0, &chain, if lies.is_multiple_of(100) { 72 } else { 0 });
                    lies += 1;
                }
            }
            lies
        });
        let mut dropped = 0;
        wait("bad frames", || {
            for _ in 0..1000 {
                assert_eq!(rig.rx.recv(&mut rig.cache, &mut rig.batch).len(), 0);
                let now = rig.rx.counters().dropped();
                assert!(now - dropped <= 64 + 32, "{features}: {} buffers in a call", now - dropped);
                dropped = now;
            }
            dropped > 10_000
        });
        stop.store(true, Ordering::Relaxed);
        assert!(liar.join().unwrap() >= dropped);
        rig.close();
    }
}

/// A device that reports all the time, in whatever order, while buffers are taken back; and then reports one of them again and
/// again, which it may not: a call takes back no more than was in flight when it began, each of them once, and returns.
#[test]
fn a_stream_of_reports_is_bounded_work_for_a_send_of_nothing() {
    for features in [BASE, BASE | Features::RING_PACKED, BASE | Features::IN_ORDER] {
        let mut rig = Rig::new(features);
        let (phase, done) = (Arc::new(AtomicUsize::new(REPORTING)), Arc::new(AtomicUsize::new(0)));
        let liar = {
            let (device, phase, done) = (rig.device.clone(), Arc::clone(&phase), Arc::clone(&done));
            let in_order = features.contains(Features::IN_ORDER);
            std::thread::spawn(move || report_without_end(&device, in_order, &phase, &done))
        };
        // A frame of two packets is taken back by another way than others, so each batch has one.
        let (mut freed, mut calls) = (0, 0);
        let mut none = Batch::with_capacity(1);
        wait("buffers to come back", || {
            for n in 0..15 {
                rig.put(&[&frame(n, 60)]);
            }
            rig.put(&[&frame(1, 60), &frame(2, 60)]);
            rig.send();
            rig.cache.free_batch(&mut rig.batch);
            for _ in 0..20 {
                let before = rig.tx.in_flight();
                assert_eq!(rig.tx.send(&mut rig.cache, &mut none), 0);
                freed += before.checked_sub(rig.tx.in_flight()).expect("nothing is put in by a call with nothing");
                calls += 1;
                done.store(calls, Ordering::Relaxed);
            }
            freed > 10_000
        });
        // Sent are as many as came back and are in flight still: none came back twice.
        let sent = usize::try_from(rig.tx.counters().packets).unwrap();
        assert!(freed <= sent + sent / 8, "{features}: {freed} descriptors of {sent} frames");
        phase.store(LYING, Ordering::Relaxed);
        let resets = rig.device.resets();
        wait("the lie to be met", || {
            rig.put(&[&frame(0, 60)]);
            rig.send();
            rig.cache.free_batch(&mut rig.batch);
            assert_eq!(rig.tx.send(&mut rig.cache, &mut none), 0);
            calls += 1;
            done.store(calls, Ordering::Relaxed);
            rig.device.resets() > resets
        });
        phase.store(ENDED, Ordering::Relaxed);
        liar.join().unwrap();
        rig.close();
    }
}

/// What [`report_without_end`] is to do.
const REPORTING: usize = 0;
const LYING: usize = 1;
const ENDED: usize = 2;

/// Reports what is in the transmit ring, the last first where order was not agreed on, then the last of these again and again.
/// Ends when it is told to, or panics when no call ends any more: `calls` counts them.
fn report_without_end(device: &FakeDevice, in_order: bool, phase: &AtomicUsize, calls: &AtomicUsize) {
    let (mut last, mut seen, mut since) = (None, 0, Instant::now());
    loop {
        let now = calls.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < common::PATIENCE, "call {now} does not end while the device reports");
        match phase.load(Ordering::Relaxed) {
            REPORTING => {
                let mut chains: Vec<_> = std::iter::from_fn(|| device.next(1)).collect();
                if !in_order {
                    chains.reverse();
                }
                for chain in &chains {
                    device.report(1, chain, u32::MAX - 1);
                }
                last = chains.pop().or(last);
            }
            LYING => {
                if let Some(chain) = &last {
                    (0..100).for_each(|_| device.report(1, chain, 0));
                }
            }
            _ => return,
        }
    }
}

#[test]
fn without_any_layout_header_and_data_of_received_frames_are_apart() {
    // Virtio 1.2, section 5.1.6.3, legacy interface.
    for (features, parts) in
        [(Features::MAC, 2), (Features::MAC | Features::ANY_LAYOUT, 1), (Features::MAC | Features::MRG_RXBUF, 1)]
    {
        let fake = FakeConfig { interface: Interface::Legacy, queue_size: 64, ..with(features) };
        let mut rig = Rig::with(fake, &config());
        for n in 0..300 {
            let chain = rig.device.next(0).unwrap();
            assert_eq!(chain.slots(), parts, "{features}");
            if parts == 2 {
                assert_eq!(chain.parts[0].len, 10, "the header, and nothing else");
                // SAFETY: a chain that the device has taken and not reported.
                unsafe { rig.device.write(&chain.parts[0], 0, &[0; 10]) };
                // SAFETY: as above.
                unsafe { rig.device.write(&chain.parts[1], 0, &frame(n, 60 + n)) };
                rig.device.report(0, &chain, 70 + u32::try_from(n).unwrap());
            } else {
                // SAFETY: a chain that the device has taken and not reported.
                unsafe { rig.device.write(&chain.parts[0], 0, &[0; 12]) };
                rig.device.report(0, &chain, 0);
                assert!(rig.device.deliver(0, &frame(n, 60 + n)));
            }
            assert_eq!(rig.recv(), 1, "{features}: frame {n}");
            assert_eq!(rig.take(), [frame(n, 60 + n)]);
        }
        // All of the ring is used.
        let mut waiting = 0;
        while rig.device.next(0).is_some() {
            waiting += 1;
        }
        assert!(waiting >= if parts == 2 { 16 } else { 32 }, "{features}: {waiting}");
        rig.close();
    }
}

#[test]
fn frames_longer_than_the_devices_mtu_are_not_sent() {
    // Virtio 1.2, section 5.1.4.2.
    for features in [BASE, BASE | Features::RING_PACKED | Features::MRG_RXBUF] {
        let mut config = config();
        config.port.mtu = 1000;
        let mut rig = Rig::with(FakeConfig { mtu: 1000, ..with(features | Features::MTU) }, &config);
        let tagged = |len: usize| {
            let mut bytes = frame(2, len);
            bytes[12..18].copy_from_slice(&[0x81, 0, 0, 7, 8, 0]);
            bytes
        };
        let twice = |len: usize| {
            let mut bytes = tagged(len);
            bytes[12..18].copy_from_slice(&[0x88, 0xa8, 0, 7, 0x81, 0]);
            bytes[20..22].copy_from_slice(&[8, 0]);
            bytes
        };
        let long = frame(1, 1015);
        rig.put(&[&frame(1, 1014)]);
        rig.put(&[&long]);
        rig.put(&[&tagged(1018)]);
        rig.put(&[&tagged(1019)]);
        rig.put(&[&twice(1022)]);
        rig.put(&[&twice(1023)]);
        rig.put(&[&long[..500], &long[500..]]);
        rig.put(&[&long[..500], &long[500..1014]]);
        assert_eq!(rig.send(), 10);
        let sent: Vec<_> = std::iter::from_fn(|| rig.device.collect(0)).collect();
        assert_eq!(sent, [frame(1, 1014), tagged(1018), twice(1022), long[..1014].to_vec()]);
        assert_eq!((rig.tx.counters().too_long, rig.tx.counters().dropped()), (4, 4));
        rig.close();
        // A device that does not say takes all.
        let mut rig = Rig::with(with(features), &config);
        rig.put(&[&frame(1, 1400)]);
        assert_eq!(rig.send(), 1);
        assert_eq!(rig.device.collect(0), Some(frame(1, 1400)));
        rig.close();
    }
}

#[test]
fn buffers_are_large_enough_for_the_devices_mtu() {
    // Virtio 1.2, section 5.1.4.2.
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let open = |features| {
        let device = FakeDevice::new(FakeConfig { mtu: 9000, ..with(features | Features::MTU) });
        virtio::open(device.transport(), &config(), &pool).map(|opened| opened.port.close().unwrap())
    };
    let message = open(BASE).unwrap_err().to_string();
    assert!(message.contains("one buffer of 9034 bytes"), "{message}");
    open(BASE | Features::MRG_RXBUF).unwrap();
}

#[test]
fn a_device_that_restarts_all_the_time_is_restarted_ever_less_often() {
    let rig = Rig::new(BASE);
    let (device, begun) = (rig.device.clone(), Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        device.lose("again");
        std::thread::sleep(Duration::from_millis(1));
    }
    let resets = rig.device.resets();
    // 50, 100, 200, 400, 800 and 1600 ms apart, and one for the open.
    assert!((3..=10).contains(&resets), "{resets} resets in 3 s");
    rig.close();
}

#[test]
fn a_command_that_is_not_answered_ends_with_its_limit_and_at_once_when_cancelled() {
    let features = BASE | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_MAC_ADDR;
    let cancel = Arc::new(AtomicBool::new(false));
    let mut config = config();
    config.port.time_limit.total = Duration::from_secs(3600);
    config.port.time_limit.cancel = Some(Arc::clone(&cancel));
    let mut rig = Rig::with(with(features), &config);
    rig.device.answer_commands(None);
    let cancelling = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        cancel.store(true, Ordering::Relaxed);
    });
    let message = rig.port.set_mac(MacAddress([2, 0, 0, 0, 0, 9])).unwrap_err().to_string();
    assert_eq!(message, "fake: interrupted while waiting for an answer on the control queue");
    cancelling.join().unwrap();
    // The flag does not keep the port from being closed.
    rig.close();
}

#[test]
fn a_request_that_the_device_has_not_answered_is_not_written_over() {
    let features = BASE | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_MAC_ADDR;
    let mut config = config();
    config.port.time_limit.total = Duration::from_millis(400);
    let mut rig = Rig::with(with(features), &config);
    rig.device.answer_commands(None);
    rig.device.set_away(true);
    assert!(rig.port.set_mac(MacAddress([2, 1, 1, 1, 1, 1])).is_err());
    // Until the device has been reset there is no second command in the page.
    assert!(rig.port.set_mac(MacAddress([2, 2, 2, 2, 2, 2])).is_err());
    rig.device.set_away(false);
    rig.device.answer_commands(Some(0));
    wait("the reset", || rig.port.link().unwrap().up && rig.port.set_mac(MacAddress([2, 3, 3, 3, 3, 3])).is_ok());
    let macs: Vec<_> = rig.device.commands().into_iter().filter(|command| command[0] == 1).collect();
    assert_eq!(macs, [[1, 1, 2, 3, 3, 3, 3, 3]]);
    rig.close();
}

#[test]
fn looking_again_too_early_is_left_out_and_finds_the_frame_later() {
    let mut rig = Rig::new(BASE);
    for n in 0..1000 {
        assert_eq!(rig.recv(), 0);
        assert!(rig.device.deliver(0, &frame(n, 60)));
        wait("the frame", || rig.rx.recv(&mut rig.cache, &mut rig.batch).len() == 1);
        assert_eq!(rig.take(), [frame(n, 60)]);
    }
    let mut full = Batch::with_capacity(1);
    assert!(rig.device.deliver(0, &frame(1, 60)) && rig.device.deliver(0, &frame(2, 60)));
    wait("the first", || rig.rx.recv(&mut rig.cache, &mut full).len() == 1);
    full.clear();
    assert_eq!(rig.rx.recv(&mut rig.cache, &mut full).len(), 1, "the end was not seen");
    drop(full);
    rig.close();
}

#[test]
fn a_frame_of_the_mtu_fits_whatever_the_head_room() {
    for (features, headroom, data_room, mtu) in [
        (BASE, 0, 1534, 1500),
        (BASE | Features::MRG_RXBUF, 0, 1534, 1500),
        (BASE | Features::MRG_RXBUF, 12, 2048, 2026),
        (BASE | Features::MRG_RXBUF, 16, 2048, 2026),
        (BASE | Features::MRG_RXBUF, 0, 2048, 2026),
        (BASE | Features::MRG_RXBUF, 0, 256, 9216),
        (BASE | Features::MRG_RXBUF, 0, 1024, 9194),
    ] {
        let pool = Pool::new(&PoolConfig { slots: 1024, headroom, data_room, ..PoolConfig::default() }).unwrap();
        let device = FakeDevice::new(FakeConfig { features, mtu: 9216, ..FakeConfig::default() });
        let mut config = config();
        config.port.mtu = mtu;
        let Opened { port, mut rx, .. } = virtio::open(device.transport(), &config, &pool).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
        rx[0].recv(&mut cache, &mut batch);
        let longest = frame(1, usize::from(mtu) + 22);
        assert!(device.deliver(0, &longest), "{features}, head room {headroom}, {data_room} bytes, MTU {mtu}");
        wait("the frame", || !rx[0].recv(&mut cache, &mut batch).is_empty());
        assert_eq!(batch.iter().flat_map(|packet| packet.data()).copied().collect::<Vec<_>>(), longest);
        port.close().unwrap();
    }
}
