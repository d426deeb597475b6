#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]
//! The driver on the strict software 82599: forwarding, long frames, foreign pools, and every slot home at the end.

use ethdev::{MacAddress, Port as _, PortConfig, RxQueue as _, TxQueue as _};
use ixgbe::{Config, Opened, RxQueue, TxQueue};
use mempool::{Batch, Checksum, Pool, PoolCache, PoolConfig};
use softnic::{StrictControl, StrictNic};

/// Miri takes its time.
const RINGS: &[u16] = if cfg!(miri) { &[64] } else { &[64, 512] };

const ORDERS: std::ops::Range<u8> = if cfg!(miri) { 2..4 } else { 0..6 };

struct Bench {
    nic: StrictControl,
    pool: Pool,
    port: ixgbe::Port<StrictNic>,
    rx: RxQueue<StrictNic>,
    tx: TxQueue<StrictNic>,
    cache: PoolCache,
    batch: Batch,
}

fn bench(config: &Config, slots: usize) -> Bench {
    let device = StrictNic::builder().build();
    let nic = device.control();
    let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
    let Opened { port, mut rx, mut tx } = ixgbe::open(device, config, &pool).unwrap();
    let cache = pool.cache();
    Bench { nic, pool, port, rx: rx.remove(0), tx: tx.remove(0), cache, batch: Batch::with_capacity(32) }
}

/// A frame of `len` bytes that says which it is.
fn frame(number: usize, len: usize) -> Vec<u8> {
    let mut frame = vec![0xEE; len];
    frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame[14..].iter_mut().zip(number..).for_each(|(byte, value)| *byte = value.to_le_bytes()[0]);
    frame
}

impl Bench {
    /// Receives, sends on, and lets the device work, until nothing moves.
    fn forward(&mut self) {
        loop {
            self.nic.step();
            let received = self.rx.recv(&mut self.cache, &mut self.batch).len();
            let sent = self.tx.send(&mut self.cache, &mut self.batch);
            if received == 0 && sent == 0 && self.nic.step().is_idle() {
                break;
            }
        }
    }

    /// Closes everything and counts the slots that are not home.
    fn close(self) -> usize {
        let Self { port, rx, tx, cache, batch, pool, nic } = self;
        port.close().unwrap();
        assert!(nic.step().is_idle());
        drop((rx, tx, cache, batch));
        pool.away()
    }
}

#[test]
fn frames_come_out_as_they_went_in() {
    for ring in RINGS {
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (*ring, *ring);
        let mut bench = bench(&config, 2048);
        let count = if cfg!(miri) { 100 } else { 1000 };
        let frames: Vec<_> = (0..count).map(|number| frame(number, 60 + number % 1455)).collect();
        let mut out = Vec::new();
        for some in frames.chunks(37) {
            some.iter().for_each(|frame| bench.nic.inject(frame));
            bench.forward();
            out.extend(bench.nic.transmitted());
        }
        assert_eq!(out, frames);
        assert_eq!(bench.rx.counters().packets, count as u64);
        assert_eq!(bench.tx.counters().packets, count as u64);
        assert_eq!(bench.close(), 0);
    }
}

/// What is unusual in a burst: a frame of two buffers, or one that is sent from another pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Odd {
    Long,
    Foreign,
}

/// Bursts that the loops for many do not take whole, at every place of the rings, into batches with room for few, from caches with few
/// buffers, and with an unusual frame at any place or none.
#[test]
fn small_bursts_go_through_wherever_they_come() {
    const ROUNDS: usize = if cfg!(miri) { 1 } else { 32 };
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring, config.port.mtu) = (64, 64, 9000);
    let mut bench = bench(&config, 2048);
    let other = Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap();
    let mut other_cache = other.cache();
    let mut number = 0;
    for count in if cfg!(miri) { 2..4 } else { 1..8 } {
        let odd = (0..count).flat_map(|place| [Odd::Long, Odd::Foreign].map(|kind| Some((place, kind))));
        for (odd, room) in odd.chain([None]).flat_map(|odd| [2, 3, 32].map(|room| (odd, room))) {
            bench.batch = Batch::with_capacity(room);
            for round in 0..=ROUNDS {
                // A lone frame first, so that each kind of burst begins elsewhere than the last.
                let (count, odd) = if round == 0 { (1, None) } else { (count, odd) };
                let is_long = |at| odd == Some((at, Odd::Long));
                let frames: Vec<_> =
                    (0..count).map(|at| frame(number + at, if is_long(at) { 3000 } else { 60 + at })).collect();
                number += count;
                frames.iter().for_each(|frame| bench.nic.inject(frame));
                let mut received = 0;
                for call in 0.. {
                    bench.nic.step();
                    let mut away = Vec::new();
                    while bench.cache.len() > [0, 1, 2, 32][round / 5 % 4] {
                        away.extend(bench.cache.alloc());
                    }
                    let got = bench.rx.recv(&mut bench.cache, &mut bench.batch).len();
                    if call == 0 && odd.is_none_or(|(_, kind)| kind == Odd::Foreign) {
                        assert_eq!(got, count.min(room), "{count} for {room}");
                    }
                    received += mempool::frames(&bench.batch).count();
                    if let Some((place, Odd::Foreign)) = odd
                        && place < got
                    {
                        bench.batch[place] = other_cache.alloc_from(bench.batch[place].data()).unwrap();
                    }
                    bench.tx.send(&mut bench.cache, &mut bench.batch);
                    assert!(bench.batch.is_empty(), "there is room for all");
                    away.into_iter().for_each(|packet| bench.cache.free(packet));
                    if got == 0 {
                        break;
                    }
                }
                assert_eq!(received, count);
                bench.nic.step_until_idle(100);
                assert_eq!(bench.nic.transmitted(), frames, "{count} for {room}, of which {odd:?}");
            }
        }
    }
    assert_eq!((bench.rx.counters().packets, bench.tx.counters().packets), (number as u64, number as u64));
    assert_eq!((bench.rx.counters().dropped(), bench.tx.counters().dropped()), (0, 0));
    drop(other_cache);
    assert_eq!((bench.close(), other.away()), (0, 0));
}

/// The device does not know the lowest bit of a buffer's address.
#[test]
fn a_frame_lies_where_its_packet_says_whatever_the_head_room() {
    for headroom in [0, 1, 17, 128, 255] {
        let device = StrictNic::builder().build();
        let nic = device.control();
        let pool = Pool::new(&PoolConfig { slots: 1024, headroom, ..PoolConfig::default() }).unwrap();
        let Opened { port, mut rx, tx: _tx } = ixgbe::open(device, &Config::default(), &pool).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        (0..9).for_each(|number| nic.inject(&frame(number, 60 + number)));
        nic.step();
        assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 9);
        for (number, packet) in batch.iter().enumerate() {
            assert_eq!(packet.data(), frame(number, 60 + number), "head room {headroom}");
        }
        port.close().unwrap();
    }
}

#[test]
fn long_frames_are_chained() {
    let mut config = Config::default();
    config.port.mtu = 9000;
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    let mut bench = bench(&config, 2048);
    let frames: Vec<_> =
        (0..if cfg!(miri) { 20 } else { 200 }).map(|number| frame(number * 7 % 200, 60 + number * 40)).collect();
    for some in frames.chunks(11) {
        some.iter().for_each(|frame| bench.nic.inject(frame));
        bench.forward();
    }
    assert_eq!(bench.nic.transmitted(), frames);
    assert_eq!(bench.close(), 0);
}

#[test]
fn queues_may_outlive_their_port_and_be_dropped_in_any_order() {
    for order in ORDERS {
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (64, 64);
        let mut bench = bench(&config, 256);
        (0..40).for_each(|number| bench.nic.inject(&frame(number, 60)));
        bench.nic.step();
        bench.rx.recv(&mut bench.cache, &mut bench.batch);
        bench.tx.send(&mut bench.cache, &mut bench.batch);
        let Bench { port, rx, tx, cache, batch, pool, nic } = bench;
        match order {
            0 => drop((port, rx, tx)),
            1 => drop((port, tx, rx)),
            2 => drop((rx, port, tx)),
            3 => drop((rx, tx, port)),
            4 => drop((tx, port, rx)),
            _ => drop((tx, rx, port)),
        }
        drop((cache, batch));
        nic.step();
        assert_eq!(pool.away(), 0, "order {order}");
    }
}

#[test]
fn a_pool_without_slots_to_spare_is_refused() {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    for (slots, opens) in [(64, false), (95, false), (96, true)] {
        let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
        let opened = ixgbe::open(StrictNic::builder().build(), &config, &pool);
        assert_eq!(opened.is_ok(), opens, "{slots} slots");
        match opened {
            Ok(opened) => drop((opened.rx, opened.tx, opened.port)),
            Err(error) => assert!(error.to_string().contains("make the pool larger"), "{error}"),
        }
        assert_eq!(pool.away(), 0);
    }
}

#[test]
fn a_closed_port_sends_nothing() {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    let mut bench = bench(&config, 256);
    let Bench { nic, tx, cache, batch, .. } = &mut bench;
    let mut packet = cache.alloc().unwrap();
    packet.append(60).unwrap().fill(0xEE);
    batch.push(packet).unwrap();
    assert_eq!(tx.send(cache, batch), 1);
    nic.step();
    assert_eq!(nic.transmitted().len(), 1);
    let Bench { port, mut tx, mut cache, mut batch, nic, .. } = bench;
    port.close().unwrap();
    let mut packet = cache.alloc().unwrap();
    packet.append(60).unwrap().fill(0xEE);
    batch.push(packet).unwrap();
    assert_eq!(tx.send(&mut cache, &mut batch), 0, "it stays in the batch");
    assert_eq!(batch.len(), 1);
    assert!(nic.step().is_idle());
}

#[test]
fn a_partial_checksum_is_completed_before_it_leaves() {
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    let mut bench = bench(&config, 512);
    for segments in [1, 2] {
        let bytes = frame(3, 101);
        let parts = if segments == 1 { vec![&bytes[..]] } else { vec![&bytes[..55], &bytes[55..]] };
        for (n, part) in parts.iter().enumerate() {
            let mut packet = bench.cache.alloc().unwrap();
            packet.append(part.len()).unwrap().copy_from_slice(part);
            packet.set_continues(n + 1 < parts.len());
            bench.batch.push(packet).unwrap();
        }
        assert!(bench.batch[0].set_checksum(Checksum::Partial { start: 34, offset: 6 }));
        assert_eq!(bench.tx.send(&mut bench.cache, &mut bench.batch), segments);
        while !bench.nic.step().is_idle() {}
        let sent = bench.nic.transmitted().pop().unwrap();
        assert_eq!((&sent[..40], &sent[42..101]), (&bytes[..40], &bytes[42..]));
        // RFC 1071, a byte at a time: an odd one at the end is the upper half of a word.
        let sum = bytes[34..].iter().enumerate().fold(0, |sum: u32, (n, byte)| {
            let sum = sum + (u32::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 });
            (sum & 0xffff) + (sum >> 16)
        });
        assert_eq!(u32::from(u16::from_be_bytes([sent[40], sent[41]])) ^ 0xffff, sum);
    }
    assert_eq!(bench.close(), 0);
}

/// A pool that the queue has not met becomes its usual one when nothing is in flight: what follows in the same burst must go by
/// that pool's addresses, too.
#[test]
fn a_burst_of_another_pool_on_an_idle_queue_is_sent_whole() {
    for count in if cfg!(miri) { 2..4 } else { 1..40 } {
        let mut bench = bench(&Config::default(), 1024);
        let others: Vec<_> =
            (0..2).map(|_| Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap()).collect();
        // The first pool comes back at last, and all of them take turns.
        let pools = [&others[0], &others[1], &bench.pool.clone()];
        let mut expected = Vec::new();
        for (round, pool) in pools.into_iter().cycle().take(6).enumerate() {
            let mut batch = Batch::with_capacity(count);
            for number in 0..count {
                let frame = frame(round * 50 + number, 60 + number);
                let mut packet = pool.alloc().unwrap();
                packet.append(frame.len()).unwrap().copy_from_slice(&frame);
                batch.push(packet).unwrap();
                expected.push(frame);
            }
            while !batch.is_empty() {
                bench.tx.send(&mut bench.cache, &mut batch);
                bench.nic.step();
            }
        }
        bench.nic.step_until_idle(1000);
        assert_eq!(bench.nic.transmitted(), expected, "{count} a burst");
        assert_eq!(bench.close(), 0);
        assert!(others.iter().all(|pool| pool.away() == 0));
    }
}

#[test]
fn frames_of_groups_come_in_by_the_table() {
    let off = PortConfig { promiscuous: false, all_multicast: false, rx_ring: 64, ..PortConfig::default() };
    let mut bench = bench(&Config::from(off), 512);
    // The hash leaves out the first bytes: the last has the bit of the first.
    let [ours, other, same] = [[1, 0, 0x5E, 0, 0, 7], [1, 0, 0x5E, 0, 0, 8], [0x33, 0x33, 0, 0, 9, 7]];
    let arrives = |bench: &mut Bench| {
        [ours, other, same].map(|to| {
            let mut frame = frame(1, 60);
            frame[..6].copy_from_slice(&to);
            bench.nic.inject(&frame);
            bench.nic.step_until_idle(20);
            let received = bench.rx.recv(&mut bench.cache, &mut bench.batch).len();
            bench.cache.free_batch(&mut bench.batch);
            received == 1
        })
    };
    assert_eq!(arrives(&mut bench), [false; 3]);
    bench.port.set_groups(&[MacAddress(ours)]).unwrap();
    assert_eq!(arrives(&mut bench), [true, false, true]);
    for on in [true, false] {
        bench.port.set_all_multicast(on).unwrap();
        assert_eq!(arrives(&mut bench), [true, on, true]);
    }
    bench.port.set_groups(&[MacAddress(other)]).unwrap();
    assert_eq!(arrives(&mut bench), [false, true, false]);
    assert!(matches!(bench.port.set_groups(&[MacAddress([2, 0, 0, 0, 0, 1])]), Err(ixgbe::Error::Config(_))));
    assert_eq!(arrives(&mut bench), [false, true, false]);
    assert_eq!(bench.close(), 0);
}

/// XOFF holds up what is sent for as long as it says, or until XON comes; with PAUSE off neither does anything.
#[test]
fn pause_frames_hold_up_what_is_sent() {
    let pause = |quanta: u16| {
        let mut pause = frame(0, 60);
        pause[..6].copy_from_slice(&[0x01, 0x80, 0xC2, 0, 0, 1]);
        pause[12..16].copy_from_slice(&[0x88, 0x08, 0, 1]);
        pause[16..18].copy_from_slice(&quanta.to_be_bytes());
        pause
    };
    for receive_pause in [false, true] {
        let mut config = Config::default();
        config.receive_pause = receive_pause;
        let mut bench = bench(&config, 2048);
        let pass_on = |bench: &mut Bench| {
            for _ in 0..4 {
                bench.nic.step();
                bench.rx.recv(&mut bench.cache, &mut bench.batch);
                bench.tx.send(&mut bench.cache, &mut bench.batch);
            }
        };
        bench.nic.inject(&pause(0xFFFF));
        bench.nic.inject(&frame(1, 60));
        pass_on(&mut bench);
        (0..1000).for_each(|_| _ = bench.nic.step());
        assert_eq!(bench.nic.transmitted().len(), if receive_pause { 0 } else { 2 });
        bench.nic.inject(&pause(0));
        (0..2).for_each(|_| _ = bench.nic.step());
        assert_eq!(bench.nic.transmitted().len(), usize::from(receive_pause), "XON");
        bench.forward();
        let _ = bench.nic.transmitted();
        bench.nic.inject(&pause(2000));
        bench.nic.inject(&frame(2, 60));
        pass_on(&mut bench);
        let at_once = bench.nic.transmitted().len();
        (0..2000).for_each(|_| _ = bench.nic.step());
        let later = bench.nic.transmitted().len();
        assert_eq!((at_once, later), if receive_pause { (0, 1) } else { (2, 0) }, "its time is over");
        assert_eq!(bench.close(), 0);
    }
}

/// With PAUSE off such a frame is one like any other (82599 datasheet 3.7.7.3.2); with it on, the card keeps
/// it. It is counted either way.
#[test]
fn pause_frames_come_through_only_if_they_are_not_obeyed() {
    for receive_pause in [false, true] {
        let mut config = Config::default();
        config.receive_pause = receive_pause;
        let mut bench = bench(&config, 2048);
        for quanta in [0xFF, 0] {
            let mut pause = frame(0, 60);
            pause[..6].copy_from_slice(&[0x01, 0x80, 0xC2, 0, 0, 1]);
            pause[12..18].copy_from_slice(&[0x88, 0x08, 0, 1, quanta, quanta]);
            bench.nic.inject(&pause);
        }
        bench.nic.inject(&frame(1, 60));
        bench.forward();
        assert_eq!(bench.nic.transmitted().len(), if receive_pause { 1 } else { 3 });
        bench.port.statistics().unwrap();
        let pause = bench.port.hardware_statistics().pause;
        assert_eq!((pause.rx_on, pause.rx_off), (1, 1));
        assert_eq!(bench.close(), 0);
    }
}
