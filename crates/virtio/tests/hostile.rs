//! A device that lies: each lie ends in a count or in a fresh start, and no buffer is lost or handed out twice.
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BASE, Rig, config, frame, layouts, wait};
use ethdev::{Port as _, RxCounters, RxQueue as _, TxQueue as _};
use mempool::Batch;
use virtio::Features;
use virtio::fake::{Chain, FakeConfig};

/// The device breaks a rule of a ring; the driver resets it, and traffic goes on.
fn breaks(features: Features, what: &str, lie: impl Fn(&mut Rig)) {
    let mut rig = Rig::new(features);
    for n in 0..8 {
        rig.put(&[&frame(n, 60)]);
    }
    rig.send();
    let before = rig.device.resets();
    lie(&mut rig);
    // The lie is met when the queue is next looked at.
    rig.recv();
    rig.take();
    rig.send();
    wait(what, || rig.device.resets() > before && rig.device.is_ready());
    wait("the queues to move over", || {
        rig.settle();
        rig.device.deliver(0, &frame(1, 99))
    });
    wait("a frame after the fresh start", || rig.recv() == 1);
    assert_eq!(rig.take(), [frame(1, 99)], "{what}, {features}");
    rig.put(&[&frame(2, 77)]);
    assert_eq!(rig.send(), 1);
    assert_eq!(rig.device.collect(0), Some(frame(2, 77)), "{what}, {features}");
    rig.close();
}

#[test]
fn a_used_index_that_runs_ahead() {
    for features in layouts().into_iter().filter(|features| !features.contains(Features::RING_PACKED)) {
        breaks(features, "used index ahead of transmit", |rig| rig.device.skip_used(1, 9));
        breaks(features, "used index ahead of receive", |rig| rig.device.skip_used(0, 65));
        breaks(features, "used index behind", |rig| rig.device.skip_used(0, u16::MAX));
    }
}

#[test]
fn a_used_index_over_entries_of_an_earlier_lap_brings_no_frame() {
    for features in layouts().into_iter().filter(|features| !features.contains(Features::RING_PACKED)) {
        let mut rig = Rig::new(features);
        for n in 0..70 {
            assert!(rig.device.deliver(0, &frame(n, 60)));
            assert_eq!((rig.recv(), rig.take()), (1, vec![frame(n, 60)]));
        }
        // Each entry of the ring names a buffer that the device has now.
        rig.device.skip_used(0, 65);
        assert_eq!(rig.recv(), 0, "{features}");
        rig.close();
    }
}

#[test]
fn an_id_beyond_the_ring() {
    for features in layouts() {
        for id in [64, 65, 255, 0x7fff, 0xffff] {
            for queue in [0, 1] {
                breaks(features, "id beyond the ring", |rig| {
                    let _ = rig.device.next(queue);
                    rig.device.report_as(queue, id, 60, 1);
                });
            }
        }
        if !features.contains(Features::RING_PACKED) {
            // Cut to 16 bits it would be an id of the ring.
            breaks(features, "id beyond 16 bits", |rig| rig.device.report_as(0, 0x1_0000, 60, 1));
        }
    }
}

#[test]
fn an_id_that_is_not_in_flight() {
    for features in layouts() {
        breaks(features, "id not in flight", |rig| rig.device.report_as(1, 20, 0, 1));
        breaks(features, "twice the same", |rig| {
            let chain = rig.device.next(1).unwrap();
            rig.device.report(1, &chain, 0);
            rig.device.report(1, &chain, 0);
            rig.batch.clear();
            rig.send();
        });
        breaks(features, "twice the same received", |rig| {
            let chain = rig.device.next(0).unwrap();
            // SAFETY: a chain that the device has taken and not reported.
            unsafe { rig.device.write(&chain.parts[0], 0, &[0; 100]) };
            rig.device.report(0, &chain, 72);
            rig.device.report(0, &chain, 72);
        });
        breaks(features, "ids that follow those in flight", |rig| {
            while rig.device.collect(0).is_some() {}
            for id in 8..24 {
                rig.device.report_as(1, id, 0, 1);
            }
            // More than the ring holds, so that room is looked for behind what is in flight.
            let mut batch = Batch::with_capacity(96);
            rig.cache.alloc_batch(&mut batch, 96, 60);
            rig.tx.send(&mut rig.cache, &mut batch);
            rig.cache.free_batch(&mut batch);
        });
        breaks(features, "the middle of a chain", |rig| {
            while rig.device.collect(0).is_some() {}
            rig.send();
            rig.put(&[&frame(0, 60), &frame(1, 60), &frame(2, 60)]);
            rig.send();
            let chain = rig.device.next(1).unwrap();
            assert_eq!(chain.slots(), 3);
            rig.device.report_as(1, u32::from(chain.id) + 1, 0, 1);
            rig.send();
        });
    }
}

/// The device reports one receive buffer with this header and length.
fn received(features: Features, header: [u8; 12], len: u32) -> (RxCounters, usize) {
    let mut rig = Rig::new(features);
    let chain = rig.device.next(0).unwrap();
    // SAFETY: a chain that the device has taken and not reported.
    unsafe { rig.device.write(&chain.parts[0], 0, &header) };
    rig.device.report(0, &chain, len);
    let got = rig.recv();
    rig.take();
    let counters = rig.rx.counters();
    // Whatever that was, good frames come through afterwards.
    let skipped = usize::from(u16::from_le_bytes([header[10], header[11]])).saturating_sub(1);
    for _ in 0..if features.contains(Features::MRG_RXBUF) { skipped } else { 0 } {
        let _ = rig.device.deliver(0, &frame(0, 60));
        assert_eq!(rig.recv(), 0, "the rest of a frame that was dropped: {features}, {header:?}, {len}");
    }
    assert!(rig.device.deliver(0, &frame(5, 60)));
    assert_eq!(rig.recv(), 1, "{features}, {header:?}, {len}");
    assert_eq!(rig.take(), [frame(5, 60)]);
    rig.close();
    (counters, got)
}

const ONE: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

#[test]
fn lengths_are_checked() {
    for features in layouts() {
        assert_eq!(received(features, ONE, 12 + 60).1, 1);
        assert_eq!(received(features, ONE, 12 + 2048).1, 1);
        for len in [0, 1, 11, 12, 2061, 65_535, 65_536 + 72, u32::MAX - 1] {
            let (counters, got) = received(features, ONE, len);
            assert_eq!((counters.bad_length, got), (1, 0), "{features}: {len} bytes");
        }
    }
}

#[test]
fn headers_that_ask_for_what_was_not_agreed_on() {
    for features in layouts() {
        for (place, value) in [(0, 1), (0, 0xff), (1, 1), (1, 0x83)] {
            let mut header = ONE;
            header[place] = value;
            let (counters, got) = received(features, header, 72);
            assert_eq!((counters.frame_errors, got), (1, 0), "{features}: {header:?}");
        }
        // Fields that mean something with an offload only mean nothing.
        assert_eq!(received(features, [0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0], 72).1, 1);
    }
}

/// What the device reports of one of several buffers that it has filled with a header and as many bytes as there is room for: header,
/// id, and length.
type Report = ([u8; 12], u32, u32);

/// A rig in whose receive queue a lie meets the loop that takes several buffers at a time.
struct Burst {
    rig: Rig,
    features: Features,
    /// Buffers that the device has used.
    used: usize,
    /// Frames that have arrived, and their bytes.
    arrived: (u64, u64),
}

const RING: usize = 64;

impl Burst {
    fn new(features: Features) -> Self {
        Self { rig: Rig::new(features), features, used: 0, arrived: (0, 0) }
    }

    /// Good frames, until the last burst has not met the ring's end, and `count` more will not.
    fn prime(&mut self, count: usize) {
        loop {
            let frames: Vec<_> = (0..8).map(|n| frame(self.used + n, 60 + 100 * n)).collect();
            assert!(frames.iter().all(|frame| self.rig.device.deliver(0, frame)), "{}", self.features);
            self.receive(&frames, "good frames");
            self.used += 8;
            let place = self.used % RING;
            if place >= 8 && place + count <= RING {
                return;
            }
        }
    }

    /// The device uses so many buffers and reports them as `lie` makes it. Returns the ids, and of each buffer the bytes behind the header.
    fn fill(&mut self, count: usize, lie: impl FnOnce(&mut [Report])) -> (Vec<u32>, Vec<Report>, Vec<Vec<u8>>) {
        let device = &self.rig.device;
        let chains: Vec<Chain> = (0..count).map(|_| device.next(0).unwrap()).collect();
        let ids: Vec<u32> = chains.iter().map(|chain| chain.id.into()).collect();
        let mut reports: Vec<Report> = (0..).zip(&ids).map(|(n, id)| (ONE, *id, 12 + 60 + 100 * n)).collect();
        lie(&mut reports);
        let bytes: Vec<_> = (0..count).map(|n| frame(self.used + n + 7, 2048)).collect();
        for (chain, ((header, ..), bytes)) in chains.iter().zip(reports.iter().zip(&bytes)) {
            // SAFETY: a chain that the device has taken and not reported.
            unsafe { device.write(&chain.parts[0], 0, &[header.as_slice(), bytes].concat()) };
        }
        for (_, id, len) in &reports {
            device.report_as(0, *id, *len, 1);
        }
        self.used += count;
        (ids, reports, bytes)
    }

    /// These frames, and no others, arrive in a call, in order.
    fn receive(&mut self, frames: &[impl AsRef<[u8]>], what: &str) {
        let features = self.features;
        assert_eq!(self.rig.recv(), frames.len(), "{what}, {features}");
        let got = self.rig.take();
        assert!(got.iter().map(Vec::as_slice).eq(frames.iter().map(AsRef::as_ref)), "{what}, {features}");
        self.arrived.0 += frames.len() as u64;
        self.arrived.1 += got.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let counters = self.rig.rx.counters();
        assert_eq!((counters.packets, counters.bytes), self.arrived, "{what}, {features}");
    }
}

/// The layouts in which headers do not say in how many buffers a frame lies, each in a thread of its own: a fresh start takes a while.
fn each_without_merging(test: impl Fn(Features) + Sync) {
    std::thread::scope(|scope| {
        for features in layouts().into_iter().filter(|features| !features.contains(Features::MRG_RXBUF)) {
            let test = &test;
            scope.spawn(move || test(features));
        }
    });
}

/// Lengths of bursts, and each place in them.
fn lanes() -> impl Iterator<Item = (usize, usize)> {
    let counts: &[usize] = if cfg!(miri) { &[5] } else { &[4, 5, 8] };
    counts.iter().flat_map(|&count| (0..count).map(move |lane| (count, lane)))
}

#[test]
fn a_buffer_that_is_wrong_in_a_burst_is_counted_and_the_others_arrive() {
    const OFFLOAD: [u8; 12] = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    each_without_merging(|features| {
        let mut burst = Burst::new(features);
        let (mut bad_length, mut frame_errors) = (0, 0);
        let lengths = [0, 11, 12, 2060, 2061, 65_536 + 72, u32::MAX - 1].map(|len| (ONE, len));
        for (header, len) in lengths.into_iter().chain([(OFFLOAD, 72)]) {
            for (count, lane) in lanes() {
                let what = format!("{header:?} and {len} bytes in place {lane} of {count}");
                burst.prime(count);
                let (_, reports, mut bytes) = burst.fill(count, |reports| {
                    (reports[lane].0, reports[lane].2) = (header, len);
                });
                for (bytes, (_, _, len)) in bytes.iter_mut().zip(&reports) {
                    bytes.truncate(len.saturating_sub(12) as usize);
                }
                if header == OFFLOAD {
                    frame_errors += 1;
                    bytes.remove(lane);
                } else if len != 2060 {
                    bad_length += 1;
                    bytes.remove(lane);
                }
                burst.receive(&bytes, &what);
                let counters = burst.rig.rx.counters();
                assert_eq!(
                    (counters.bad_length, counters.frame_errors),
                    (bad_length, frame_errors),
                    "{what}, {features}"
                );
                assert_eq!(counters.dropped(), bad_length + frame_errors, "{what}, {features}");
            }
        }
        burst.rig.close();
    });
}

/// What arrives of such reports, and whether the session ends at one: each names a buffer that the device has; where order was agreed on,
/// and it is not the oldest, it is the last of several, of which those before are full, and so many reports stand for nothing (Virtio 1.2,
/// section 2.7.9).
fn arriving(in_order: bool, ids: &[u32], reports: &[Report], bytes: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
    let mut held: Vec<usize> = (0..ids.len()).collect();
    let (mut frames, mut skipped) = (Vec::new(), 0);
    for (_, id, len) in reports {
        if skipped > 0 {
            skipped -= 1;
            continue;
        }
        let Some(place) = held.iter().position(|lane| ids[*lane] == *id) else { return (frames, true) };
        let first = if in_order { 0 } else { place };
        skipped = place - first;
        for (lane, is_last) in held.drain(first..=place).zip((first..=place).map(|n| n == place)) {
            frames.push(bytes[lane][..if is_last { *len as usize - 12 } else { 2048 }].to_vec());
        }
    }
    (frames, false)
}

#[test]
fn an_id_that_is_wrong_in_a_burst_lets_no_buffer_arrive_twice() {
    type Lie = (&'static str, fn(&mut [Report], usize));
    let lies: [Lie; 5] = [
        ("an id doubled", |reports, lane| reports[lane].1 = reports[neighbour(lane)].1),
        ("ids swapped", |reports, lane| {
            let other = neighbour(lane);
            (reports[lane].1, reports[other].1) = (reports[other].1, reports[lane].1);
        }),
        ("the id of the ring's size", |reports, lane| reports[lane].1 = 64),
        ("an id of the next lap", |reports, lane| reports[lane].1 += 64),
        ("an id of the highest bit", |reports, lane| reports[lane].1 += 0x8000),
    ];
    each_without_merging(|features| {
        for ((what, lie), (count, lane)) in lies.iter().flat_map(|lie| lanes().map(move |lane| (lie, lane))) {
            let what = format!("{what} in place {lane} of {count}");
            let mut burst = Burst::new(features);
            burst.prime(count);
            let resets = burst.rig.device.resets();
            let (ids, reports, bytes) = burst.fill(count, |reports| lie(reports, lane));
            let (frames, ends) = arriving(features.contains(Features::IN_ORDER), &ids, &reports, &bytes);
            burst.receive(&frames, &what);
            if ends {
                wait(&what, || burst.rig.device.resets() > resets && burst.rig.device.is_ready());
                let good = frame(count, 99);
                wait("the queues to move over", || {
                    burst.rig.settle();
                    burst.rig.device.deliver(0, &good)
                });
                burst.receive(&[good], &what);
                burst.used = 1;
            }
            // The fake device gives nothing to a queue in which it has named a buffer twice.
            if ends || ids.iter().all(|id| reports.iter().any(|(_, named, _)| named == id)) {
                burst.prime(count);
            }
            assert_eq!(
                (burst.rig.rx.counters().dropped(), burst.rig.device.resets() - resets),
                (0, usize::from(ends)),
                "{what}"
            );
            burst.rig.close();
        }
    });
}

/// The place in front of one in a burst; behind it for the first.
fn neighbour(lane: usize) -> usize {
    lane.checked_sub(1).unwrap_or(1)
}

#[test]
fn numbers_of_buffers_are_checked() {
    for features in layouts() {
        let mergeable = features.contains(Features::MRG_RXBUF);
        for buffers in [0_u16, 2, 3, 100] {
            let mut header = ONE;
            header[10..].copy_from_slice(&buffers.to_le_bytes());
            let (counters, got) = received(features, header, 72);
            if !mergeable {
                assert_eq!((counters.dropped(), got), (0, 1), "the field means nothing then");
            } else if buffers == 0 {
                assert_eq!((counters.frame_errors, got), (1, 0));
            } else {
                assert_eq!((counters.too_long, got), (1, 0), "1522 bytes fit into one buffer");
            }
        }
    }
}

#[test]
fn a_frame_whose_rest_is_nonsense_is_dropped_whole() {
    let mut config = config();
    config.port.mtu = 9000;
    for features in layouts().into_iter().filter(|features| features.contains(Features::MRG_RXBUF)) {
        for len in [0, 2061, u32::MAX - 1] {
            let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &config);
            let chains: Vec<Chain> = (0..3).map(|_| rig.device.next(0).unwrap()).collect();
            let mut header = ONE;
            header[10] = 3;
            // SAFETY: a chain that the device has taken and not reported.
            unsafe { rig.device.write(&chains[0].parts[0], 0, &header) };
            rig.device.report(0, &chains[0], 2060);
            assert_eq!(rig.recv(), 0, "the rest is on its way");
            rig.device.report(0, &chains[1], len);
            rig.device.report(0, &chains[2], 100);
            assert_eq!(rig.recv(), 0);
            assert_eq!(rig.rx.counters().bad_length, 1);
            assert!(rig.device.deliver(0, &frame(5, 4000)));
            assert_eq!(rig.recv(), 2);
            assert_eq!(rig.take(), [frame(5, 4000)]);
            rig.close();
        }
    }
}

#[test]
fn descriptors_rewritten_by_the_device_change_nothing() {
    // The driver keeps addresses, lengths and chains to itself; what a device writes over a descriptor that it was given is
    // its own loss.
    for features in [BASE, BASE | Features::RING_PACKED] {
        let mut rig = Rig::new(features);
        for round in 0..300 {
            rig.put(&[&frame(round, 60), &frame(round, 61)]);
            assert_eq!(rig.send(), 2);
            let chain = rig.device.next(1).unwrap();
            rig.device.scribble(1);
            rig.device.report(1, &chain, 0);
            rig.send();
        }
        assert_eq!(rig.tx.counters().packets, 300);
        rig.close();
    }
}

#[test]
fn a_device_that_cannot_be_reset_keeps_its_buffers() {
    let mut rig = Rig::new(BASE);
    rig.put(&[&frame(0, 60)]);
    rig.send();
    let Rig { device, port, rx, tx, pool, cache, batch } = rig;
    device.refuse_reset(true);
    let message = port.close().unwrap_err().to_string();
    assert!(message.contains("gave up waiting for the reset"), "{message}");
    drop((rx, tx, cache, batch));
    assert_eq!(pool.away(), 65, "64 in the receive ring and 1 in the transmit ring");
    // It can still reach them.
    assert!(device.deliver(0, &frame(0, 60)));
}

/// The process stands still in the pause before a fresh start, as on a host that is paused: the start comes all the same.
#[test]
fn a_pause_that_lasts_too_long_ends_too() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead as _, BufReader};
    const CHILD: &str = "RINGWAY_TEST_STANDS_STILL";
    if std::env::var_os(CHILD).is_some() {
        let split = layouts().into_iter().find(|features| !features.contains(Features::RING_PACKED)).unwrap();
        return breaks(split, "used index behind", |rig| {
            let before = rig.device.resets();
            rig.device.skip_used(0, u16::MAX);
            rig.recv();
            wait("the reset", || rig.device.resets() > before);
            println!("\nthe pause begins");
        });
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", "a_pause_that_lasts_too_long_ends_too"]).env(CHILD, "1");
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "the pause begins"));
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}
