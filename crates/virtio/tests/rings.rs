//! Frames through rings of every layout, against a naive device written from the specification.
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Rig, config, frame, layouts};
use ethdev::{Opened, Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use proptest::prelude::*;
use std::collections::VecDeque;
use virtio::Features;
use virtio::fake::{Chain, FakeConfig, FakeDevice};

#[test]
fn frames_pass_in_both_directions_around_the_ring_many_times() {
    for features in layouts() {
        let mut rig = Rig::new(features);
        assert_eq!(rig.device.features(), features);
        for round in 0..200 {
            let frames: Vec<_> = (0..20).map(|n| frame(round * 20 + n, 14 + (round * 20 + n) % 1505)).collect();
            for frame in &frames {
                assert!(rig.device.deliver(0, frame), "{features}");
            }
            assert_eq!(rig.recv(), 20, "{features}, round {round}");
            // What came in goes out, from the same buffers.
            assert_eq!(rig.send(), 20);
            for frame in &frames {
                assert_eq!(rig.device.collect(0).as_ref(), Some(frame), "{features}");
            }
            assert_eq!(rig.device.collect(0), None);
        }
        assert_eq!((rig.rx.counters().packets, rig.tx.counters().packets), (4000, 4000));
        assert_eq!(rig.rx.counters().dropped() + rig.tx.counters().dropped(), 0);
        assert_eq!(rig.port.totals().rx_packets, 4000);
        rig.close();
    }
}

#[test]
fn the_odd_one_among_several_is_dealt_with_and_the_others_pass() {
    for features in layouts() {
        let mut rig = Rig::new(features);
        let mut dropped = 0;
        // Bursts of all lengths, with the odd one in every place, or nowhere; rings begin again in every place of a burst.
        for (count, odd) in (1..14).flat_map(|count| (0..=count).map(move |odd| (count, odd))) {
            let frames: Vec<_> = (0..count).map(|n| frame(count * 20 + n, 60 + 50 * n)).collect();
            for (n, frame) in frames.iter().enumerate() {
                if n == odd {
                    let chain = rig.device.next(0).unwrap();
                    // An offload that was not agreed on, or a frame of no byte.
                    let offload = u8::from(count % 2 == 0);
                    // SAFETY: a chain that the device has taken and not reported.
                    unsafe { rig.device.write(&chain.parts[0], 0, &[offload, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]) };
                    rig.device.report(0, &chain, if offload == 1 { 72 } else { 12 });
                    dropped += 1;
                } else {
                    assert!(rig.device.deliver(0, frame), "{features}");
                }
            }
            let good: Vec<_> = frames.iter().enumerate().filter(|(n, _)| *n != odd).map(|(_, frame)| frame).collect();
            assert_eq!(rig.recv(), good.len(), "{features}: {odd} of {count}");
            assert!(rig.take().iter().eq(good), "{features}: {odd} of {count}");
            for (n, frame) in frames.iter().enumerate() {
                if n == odd { rig.put(&[&frame[..20], &frame[20..]]) } else { rig.put(&[frame]) }
            }
            assert_eq!(rig.send(), count + usize::from(odd < count), "{features}: {odd} of {count}");
            for frame in &frames {
                assert_eq!(rig.device.collect(0).as_ref(), Some(frame), "{features}: {odd} of {count}");
            }
        }
        assert_eq!(rig.rx.counters().dropped(), dropped);
        rig.close();
    }
}

/// How a packet differs from those around it.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// It has so many bytes of head room.
    HeadRoom(usize),
    /// It has so many bytes.
    Bytes(usize),
    OtherPool,
}

#[test]
fn the_odd_one_among_several_that_were_received_is_forwarded_or_counted() {
    let odds = [
        Odd::HeadRoom(0),
        Odd::HeadRoom(11),
        Odd::HeadRoom(12),
        Odd::Bytes(0),
        Odd::Bytes(13),
        Odd::Bytes(14),
        Odd::OtherPool,
    ];
    for features in layouts() {
        let mut rig = Rig::new(features);
        let other = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        let alloc = |bytes: &[u8]| {
            let mut packet = other.alloc().unwrap();
            packet.append(bytes.len()).unwrap().copy_from_slice(bytes);
            packet
        };
        // While a packet of the first pool is in flight, that stays the one whose packets go out four at a time.
        rig.put(&[&frame(0, 60)]);
        assert_eq!(rig.send(), 1);
        rig.batch.push(alloc(&frame(1, 60))).unwrap();
        common::wait("the pool to be mapped", || rig.send() == 1);
        assert_eq!([rig.device.collect(0), rig.device.collect(0)], [Some(frame(0, 60)), Some(frame(1, 60))]);
        let (mut packets, mut bytes, mut bad_length) = (2, 120, 0);
        let places = [4, 5, 8].into_iter().flat_map(|count| (0..count).map(move |place| (count, place)));
        for (odd, (count, place)) in odds.into_iter().flat_map(|odd| places.clone().map(move |place| (odd, place))) {
            let what = format!("{features}: {odd:?} in place {place} of {count}");
            for n in 0..count {
                assert!(rig.device.deliver(0, &frame(count + n, 60 + 150 * n)), "{what}");
            }
            assert_eq!(rig.recv(), count, "{what}");
            let packet = &mut rig.batch[place];
            match odd {
                Odd::HeadRoom(room) => {
                    let more = packet.headroom() - room;
                    packet.prepend(more).unwrap().copy_from_slice(&frame(place, more));
                }
                Odd::Bytes(count) => packet.truncate(count),
                Odd::OtherPool => *packet = alloc(&frame(place, 99)),
            }
            let mut expected: Vec<Vec<u8>> = rig.batch.iter().map(|packet| packet.data().to_vec()).collect();
            if matches!(odd, Odd::Bytes(0..14)) {
                expected.remove(place);
                bad_length += 1;
            }
            assert_eq!(rig.send(), count, "{what}");
            let sent: Vec<_> = std::iter::from_fn(|| rig.device.collect(0)).collect();
            assert!(sent == expected, "{what}");
            packets += expected.len() as u64;
            bytes += expected.iter().map(|frame| frame.len() as u64).sum::<u64>();
            let counters = rig.tx.counters();
            assert_eq!((counters.packets, counters.bytes, counters.bad_length), (packets, bytes, bad_length), "{what}");
        }
        rig.close();
        assert_eq!(other.away(), 0, "{features}");
    }
}

#[test]
fn the_smallest_pool_that_a_port_takes_is_enough_to_forward() {
    for features in layouts() {
        let device = FakeDevice::new(FakeConfig { features, ..FakeConfig::default() });
        let mut rig = Rig::from_pool(device.transport(), device, &config(), 64 + 32);
        for n in 0..500 {
            assert!(rig.device.deliver(0, &frame(n, 60)), "{features}, frame {n}");
            assert_eq!((rig.recv(), rig.send()), (1, 1), "{features}, frame {n}");
            assert_eq!(rig.device.collect(0), Some(frame(n, 60)));
        }
        rig.close();
    }
}

#[test]
fn a_full_transmit_ring_leaves_the_rest_in_the_batch() {
    for features in layouts() {
        let mut rig = Rig::new(features);
        let mut sent = 0;
        for n in 0..4 {
            for m in 0..32 {
                rig.put(&[&frame(n * 32 + m, 60)]);
            }
            sent += rig.send();
            rig.batch.clear();
        }
        assert_eq!(sent, 64, "{features}");
        assert_eq!(rig.tx.in_flight(), 64);
        for _ in 0..64 {
            assert!(rig.device.collect(0).is_some());
        }
        assert_eq!(rig.send(), 0);
        assert_eq!(rig.tx.in_flight(), 0, "an empty batch takes back buffers");
        rig.close();
    }
}

#[test]
fn long_frames_use_several_buffers() {
    let mut config = config();
    config.port.mtu = 9000;
    for features in layouts().into_iter().filter(|features| features.contains(Features::MRG_RXBUF)) {
        let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &config);
        for round in 0..30 {
            let lengths = [60, 2048, 2049, 4108, 4109, 9018];
            for len in lengths {
                assert!(rig.device.deliver(0, &frame(round, len)), "{features}: {len} bytes");
            }
            rig.recv();
            let got = rig.take();
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{features}");
            assert!(got.iter().all(|bytes| *bytes == frame(round, bytes.len())));
        }
        rig.close();
    }
}

#[test]
fn frames_of_several_segments_and_without_head_room_are_sent_whole() {
    for features in layouts() {
        let mut rig = Rig::new(features);
        for round in 0..50 {
            rig.put(&[&frame(1, 100), &frame(2, 1), &frame(3, 700)]);
            rig.put(&[&frame(round, 60)]);
            // Head room used up: the header needs a descriptor of its own.
            let mut packet = rig.cache.alloc().unwrap();
            let headroom = packet.headroom();
            packet.prepend(headroom).unwrap().copy_from_slice(&frame(4, headroom));
            rig.batch.push(packet).unwrap();
            assert_eq!(rig.send(), 5, "{features}, round {round}");
            assert_eq!(rig.device.collect(0).unwrap(), [frame(1, 100), frame(2, 1), frame(3, 700)].concat());
            assert_eq!(rig.device.collect(0).unwrap(), frame(round, 60));
            assert_eq!(rig.device.collect(0).unwrap(), frame(4, headroom));
        }
        rig.close();
    }
}

#[test]
fn frames_that_cannot_be_sent_are_counted() {
    let mut rig = Rig::new(layouts()[0]);
    rig.put(&[&[0; 13]]);
    rig.put(&[&[0; 60], &[]]);
    let many: Vec<&[u8]> = vec![&[0; 20]; 31];
    assert_eq!(rig.send(), 3);
    rig.put(&many);
    assert_eq!(rig.send(), 31);
    assert_eq!((rig.tx.counters().bad_length, rig.tx.counters().packets), (2, 1));
    rig.close();
}

#[test]
fn packets_of_a_pool_that_the_device_has_not_seen_are_sent() {
    let mut rig = Rig::new(layouts()[0]);
    let other = mempool::Pool::new(&mempool::PoolConfig { slots: 64, ..Default::default() }).unwrap();
    for n in 0..200 {
        let mut packet = other.alloc().unwrap();
        packet.append(60).unwrap().copy_from_slice(&frame(n, 60));
        rig.batch.push(packet).unwrap();
        rig.put(&[&frame(n + 1, 60)]);
        if n == 0 {
            // Another thread maps the pool; until then nothing overtakes the packet.
            common::wait("the pool to be mapped", || rig.send() == 2);
        } else {
            assert_eq!(rig.send(), 2);
        }
        assert_eq!(rig.device.collect(0).unwrap(), frame(n, 60));
        assert_eq!(rig.device.collect(0).unwrap(), frame(n + 1, 60));
    }
    rig.close();
    assert_eq!(other.away(), 0);
}

#[test]
fn an_empty_pool_holds_frames_back_and_loses_none() {
    let mut rig = Rig::new(layouts()[0]);
    let mut kept = Vec::new();
    while let Some(packet) = rig.pool.alloc() {
        kept.push(packet);
    }
    while let Some(packet) = rig.cache.alloc() {
        kept.push(packet);
    }
    for n in 0..10 {
        assert!(rig.device.deliver(0, &frame(n, 60)));
    }
    assert_eq!(rig.recv(), 0);
    assert!(rig.rx.counters().no_buffers > 0, "as often as it was looked at");
    drop(kept);
    assert_eq!(rig.recv(), 10);
    assert_eq!(rig.take(), (0..10).map(|n| frame(n, 60)).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn the_device_is_notified_only_if_it_asks() {
    for features in layouts() {
        for wants_notifications in [false, true] {
            let fake = FakeConfig { features, wants_notifications, ..FakeConfig::default() };
            let mut rig = Rig::with(fake, &config());
            assert_eq!(rig.device.notifications(0) > 0, wants_notifications, "{features}: receive buffers");
            for n in 0..100 {
                rig.put(&[&frame(n, 60)]);
                rig.send();
                assert_eq!(rig.device.notifications(1), if wants_notifications { n + 1 } else { 0 }, "{features}");
                assert!(rig.device.collect(0).is_some());
            }
            rig.close();
        }
    }
}

#[test]
fn with_event_idx_a_busy_device_is_notified_once() {
    for packed in [Features::default(), Features::RING_PACKED] {
        let features = common::BASE | Features::EVENT_IDX | packed;
        let fake = FakeConfig { features, wants_notifications: true, ..FakeConfig::default() };
        let mut rig = Rig::with(fake, &config());
        for n in 0..10 {
            rig.put(&[&frame(n, 60)]);
            rig.send();
        }
        assert_eq!(rig.device.notifications(1), 1, "it has not looked since");
        rig.close();
    }
}

/// What a device does with the frames that it has taken.
#[derive(Clone, Debug)]
enum Step {
    Deliver(usize),
    Receive,
    Send(Vec<usize>),
    Take(usize),
    /// Reports the n-th of the chains taken, in any order unless order was agreed on.
    Report(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (14_usize..5000).prop_map(Step::Deliver),
        Just(Step::Receive),
        prop::collection::vec(14_usize..400, 1..5).prop_map(Step::Send),
        (1_usize..8).prop_map(Step::Take),
        (0_usize..64).prop_map(Step::Report),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever the order of things, frames arrive unchanged and in order, and no buffer is lost or in two places.
    #[test]
    fn any_order_of_completion(layout in 0..layouts().len(), steps in steps()) {
        let features = layouts()[layout];
        let mergeable = features.contains(Features::MRG_RXBUF);
        let in_order = features.contains(Features::IN_ORDER);
        let mut config = config();
        config.port.mtu = if mergeable { 6000 } else { 1500 };
        let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &config);
        let mut incoming = VecDeque::new();
        let mut outgoing = VecDeque::new();
        let mut taken: Vec<Chain> = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Deliver(len) => {
                    let frame = frame(n, if mergeable { len } else { len.min(1518) });
                    // What does not fit is not begun: the device looks before it takes.
                    if incoming.len() < 10 && rig.device.deliver(0, &frame) {
                        incoming.push_back(frame);
                    }
                }
                Step::Receive => {
                    rig.recv();
                    for frame in rig.take() {
                        prop_assert_eq!(Some(frame), incoming.pop_front());
                    }
                }
                Step::Send(segments) => {
                    let parts: Vec<_> = segments.iter().enumerate().map(|(m, len)| frame(n + m, *len)).collect();
                    rig.put(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    if rig.send() > 0 {
                        outgoing.push_back(parts.concat());
                    }
                    rig.batch.clear();
                }
                Step::Take(count) => {
                    for _ in 0..count {
                        let Some(chain) = rig.device.next(1) else { break };
                        // SAFETY: a chain that the device has taken and not reported.
                        prop_assert_eq!(Some(unsafe { rig.device.frame_of(&chain) }), outgoing.pop_front());
                        taken.push(chain);
                    }
                }
                Step::Report(which) if !taken.is_empty() => {
                    if in_order {
                        // Of all up to this one it is the only one that is named.
                        let batch: Vec<_> = taken.drain(..=which % taken.len()).collect();
                        report_batch(&rig, &batch);
                    } else {
                        rig.device.report(1, &taken.remove(which % taken.len()), 0);
                    }
                }
                Step::Report(_) => {}
            }
        }
        prop_assert_eq!(rig.rx.counters().dropped(), 0);
        rig.close();
    }
}

/// Reports chains of the transmit queue by naming the last only (Virtio 1.2, section 2.7.9).
fn report_batch(rig: &Rig, batch: &[Chain]) {
    let descriptors = batch.iter().map(Chain::slots).sum();
    rig.device.report_as(1, batch.last().unwrap().id.into(), 0, descriptors);
    rig.device.skip_used(1, u16::try_from(batch.len() - 1).unwrap());
}

#[test]
fn an_in_order_device_may_report_the_last_of_a_batch_only() {
    for packed in [Features::default(), Features::RING_PACKED] {
        let features = common::BASE | Features::IN_ORDER | packed;
        let mut rig = Rig::new(features);
        for round in 0..40 {
            for n in 0..32 {
                rig.put(&[&frame(n, 60)]);
            }
            assert_eq!(rig.send(), 32, "{features}, round {round}");
            let chains: Vec<Chain> = std::iter::from_fn(|| rig.device.next(1)).collect();
            assert_eq!(chains.len(), 32);
            // Batches of all sizes, some longer than what is left of the ring's lap.
            let (first, second) = chains.split_at(round % 32 + usize::from(round == 0));
            [first, second].into_iter().filter(|batch| !batch.is_empty()).for_each(|batch| report_batch(&rig, batch));
            rig.send();
            assert_eq!(rig.tx.in_flight(), 0, "{features}: all up to the last are done");
        }
        rig.close();
    }
}

/// A call with another pool's cache takes slots of the queue's own, and gives them back to a later call that misses them.
#[test]
fn a_call_with_the_cache_of_another_pool_starves_no_later_one() {
    for (features, slots) in
        layouts().into_iter().flat_map(|features| [(features, 97), (features, 150), (features, 512)])
    {
        let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
        let other = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        let device = FakeDevice::new(FakeConfig { features, ..FakeConfig::default() });
        let Opened { port, mut rx, tx } = virtio::open(device.transport(), &config(), &pool).unwrap();
        let mut batch = Batch::with_capacity(slots);
        rx[0].recv(&mut other.cache(), &mut batch);
        assert!(pool.away() <= 64 + 2 * 32, "{} of {slots} are away", pool.away());
        let mut cache = pool.cache();
        let mut received = 0;
        for n in 0..200 {
            assert!(device.deliver(0, &frame(n, 60)), "{features}");
            // A look is not taken for a while after one that found nothing.
            received += (0..100_000)
                .find_map(|_| match rx[0].recv(&mut cache, &mut batch).len() {
                    0 => None,
                    count => Some(count),
                })
                .unwrap_or(0);
            cache.free_batch(&mut batch);
        }
        assert_eq!(received, 200, "{features}, {slots} slots");
        drop((rx, tx));
        port.close().unwrap();
    }
}
