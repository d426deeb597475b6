//! The in-process port keeps the contract: frames, counters, filters, RSS, interrupts, link, closing, and every buffer.
#![expect(clippy::unwrap_used, reason = "tests")]

use ethdev::in_process::{self, InProcess, Wire};
use ethdev::{
    Events, HashTypes, Interrupts, MacAddress, NoInterrupts, Opened, PacketType, Port as _, PortConfig, PortError as _,
    Reta, Rss, RxInfos, RxQueue as _, TxQueue as _, wait_any,
};
use mempool::{Batch, Checksum, Pool, PoolConfig};
use std::time::Duration;

const BROADCAST: [u8; 6] = [0xff; 6];

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap()
}

fn open(config: &PortConfig, pool: &Pool) -> (Opened<InProcess>, Wire) {
    in_process::open("test", config, pool).unwrap()
}

/// A frame to `to` with the number `n` behind the Ethernet header.
fn frame(to: [u8; 6], n: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..=255).cycle().take(len.max(18)).collect();
    frame[..6].copy_from_slice(&to);
    frame[12..18].copy_from_slice(&[&[0x88, 0xb5][..], &n.to_be_bytes()].concat());
    frame
}

#[test]
fn frames_pass_in_order_in_one_buffer_or_several_and_only_whole() {
    let pool = pool();
    let config = PortConfig { mtu: 9000, ..PortConfig::default() };
    let (mut opened, mut wire) = open(&config, &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(8));
    // 9014 bytes take five buffers of 2 KiB: two such frames do not fit into a batch of eight.
    let frames: Vec<Vec<u8>> =
        [60, 9014, 9014, 1514, 61].into_iter().zip(0..).map(|(len, n)| frame(BROADCAST, n, len)).collect();
    assert!(frames.iter().all(|frame| wire.inject(frame)));
    let mut back = Vec::new();
    for counts in [6, 7] {
        let received = opened.rx[0].recv(&mut cache, &mut batch);
        assert_eq!((received.len(), mempool::frames(received).count() > 0), (counts, true));
        assert_eq!(opened.tx[0].send(&mut cache, &mut batch), counts);
        while let Some(frame) = wire.collect() {
            back.push(frame);
        }
    }
    assert!(back == frames, "what comes back is what went in");
    let counters = opened.rx[0].counters();
    assert_eq!((counters.packets, counters.bytes), (5, frames.iter().map(|frame| frame.len() as u64).sum()));
    let totals = opened.port.statistics().unwrap();
    assert_eq!((totals.rx_packets, totals.tx_packets, totals.rx_bytes), (5, 5, counters.bytes + 5 * 4));
    assert!(opened.port.transmit_idle() && opened.tx[0].in_flight() == 0);
    opened.close().unwrap();
    drop((cache, batch, wire));
    assert_eq!(pool.away(), 0, "every buffer is home");
}

#[test]
fn what_came_before_is_not_handed_out_again() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig::default(), &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    for n in 0..2_u8 {
        wire.inject(&frame(BROADCAST, n.into(), 60));
        let received = opened.rx[0].recv(&mut cache, &mut batch);
        assert_eq!(received.iter().map(|packet| packet.data()[17]).collect::<Vec<_>>(), [n]);
    }
    assert_eq!(batch.len(), 2);
    assert!(opened.rx[0].recv(&mut cache, &mut batch).is_empty());
}

#[test]
fn a_frame_beyond_every_batch_is_dropped_and_counted() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig { mtu: 9000, ..PortConfig::default() }, &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(2));
    assert!(wire.inject(&frame(BROADCAST, 0, 9000)) && wire.inject(&frame(BROADCAST, 1, 60)));
    assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 1);
    assert_eq!((batch[0].data()[17], opened.rx[0].counters().batch_too_small), (1, 1));
}

#[test]
fn full_rings_and_an_empty_pool_are_counted_and_lose_no_buffer() {
    let pool = Pool::new(&PoolConfig { slots: 128, ..PoolConfig::default() }).unwrap();
    let config = PortConfig { rx_ring: 64, tx_ring: 64, ..PortConfig::default() };
    let (mut opened, mut wire) = open(&config, &pool);
    assert_eq!((0..100).filter(|n| wire.inject(&frame(BROADCAST, *n, 60))).count(), 64, "what the ring holds");
    assert_eq!(opened.port.totals().rx_missed, 36);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(100));
    assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 64);
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 64);
    // All but the 64 in the transmit ring are in the receive ring or nowhere.
    let more = (0..100).filter(|n| wire.inject(&frame(BROADCAST, *n, 60))).count();
    assert!(more <= 64, "{more}");
    opened.rx[0].recv(&mut cache, &mut batch);
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 0, "the ring is full");
    assert_eq!((opened.tx[0].in_flight(), batch.len()), (64, more));
    assert_eq!(std::iter::from_fn(|| wire.collect()).count(), 64);
    drop((opened, wire, cache, batch));
    assert_eq!(pool.away(), 0);
}

#[test]
fn frames_that_cannot_be_sent_are_dropped_and_counted() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig::default(), &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(8));
    for len in [0, 1523, 1522] {
        cache.alloc_batch(&mut batch, 1, len);
    }
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 3);
    let counters = opened.tx[0].counters();
    assert_eq!((counters.bad_length, counters.too_long, counters.packets, counters.dropped()), (1, 1, 1, 2));
    assert_eq!(wire.collect().unwrap().len(), 1522);
}

#[test]
fn partial_checksums_are_completed() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig::default(), &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(1));
    let mut packet = cache.alloc_from(&[0; 60]).unwrap();
    packet.data_mut()[34] = 1;
    assert!(packet.set_checksum(Checksum::Partial { start: 34, offset: 16 }));
    batch.push(packet).unwrap();
    opened.tx[0].send(&mut cache, &mut batch);
    assert_eq!(wire.collect().unwrap()[50..52], [0xfe, 0xff]);
}

#[test]
fn filters_follow_what_the_port_is_told() {
    let pool = pool();
    let config = PortConfig { promiscuous: false, all_multicast: false, ..PortConfig::default() };
    let (mut opened, mut wire) = open(&config, &pool);
    let (own, other, group) = (opened.port.mac().0, [2, 0, 0, 0, 0, 99], [1, 0, 0x5e, 0, 0, 9]);
    let mut let_in = |to: [u8; 6]| wire.inject(&frame(to, 0, 60));
    assert!(let_in(own) && let_in(BROADCAST) && !let_in(other) && !let_in(group));
    let next = [1, 0, 0x5e, 0, 0, 10];
    opened.port.set_groups(&[MacAddress(group)]).unwrap();
    assert!(let_in(group) && let_in(BROADCAST) && !let_in(next) && !let_in(other));
    assert!(opened.port.set_groups(&[MacAddress(next), MacAddress(other)]).unwrap_err().is_usage());
    assert!(let_in(group) && !let_in(next), "nothing has changed");
    opened.port.set_groups(&[MacAddress(next)]).unwrap();
    assert!(let_in(next) && !let_in(group));
    opened.port.set_all_multicast(true).unwrap();
    assert!(let_in(group) && !let_in(other));
    opened.port.set_all_multicast(false).unwrap();
    assert!(let_in(next) && !let_in(group), "they stay set");
    opened.port.set_all_multicast(true).unwrap();
    opened.port.set_mac(MacAddress(other)).unwrap();
    assert!(let_in(other) && !let_in(own));
    opened.port.set_promiscuous(true).unwrap();
    assert!(let_in(own));
    assert!(opened.port.set_mac(MacAddress::BROADCAST).unwrap_err().is_usage());
    opened.port.set_mtu(1000).unwrap();
    assert!(wire.inject(&frame(own, 0, 1022)) && !wire.inject(&frame(own, 0, 1023)));
    assert_eq!(opened.port.totals().rx_errors.oversize, 1);
    assert!(opened.port.set_mtu(1501).unwrap_err().is_usage(), "its buffers were made for 1500");
}

/// A UDP frame of the flow `n`.
fn flow(n: u8) -> Vec<u8> {
    let mut frame = frame(BROADCAST, 0, 60);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, n, 192, 0, 2, 1]);
    frame[34..38].copy_from_slice(&[0x10, n, 0, 53]);
    frame
}

#[test]
fn flows_go_where_hash_and_table_say() {
    let pool = pool();
    let config = PortConfig { rx_queues: 4, ..PortConfig::default() };
    let (mut opened, mut wire) = open(&config, &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(256));
    let mut received = |opened: &mut Opened<InProcess>, wire: &mut Wire| {
        assert!((0..=255).all(|n| wire.inject(&flow(n))));
        let counts: Vec<usize> = opened
            .rx
            .iter_mut()
            .map(|rx| {
                let count = rx.recv(&mut cache, &mut batch).len();
                cache.free_batch(&mut batch);
                count
            })
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), 256);
        counts
    };
    assert!(received(&mut opened, &mut wire).iter().all(|count| *count > 32), "even enough");
    opened.port.set_rss_table(&Reta::Table(vec![2, 3])).unwrap();
    let counts = received(&mut opened, &mut wire);
    assert!(counts[0] == 0 && counts[1] == 0 && counts[2] > 64 && counts[3] > 64, "{counts:?}");
    let error = opened.port.set_rss_table(&Reta::Table(vec![4])).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("queue 4"), "{error}");
    assert_eq!(received(&mut opened, &mut wire)[..2], [0, 0], "a table that is refused changes nothing");
    let rss = Rss { hash: HashTypes::NONE, ..Rss::default() };
    let (mut opened, mut wire) = open(&PortConfig { rss, ..config }, &pool);
    assert_eq!(received(&mut opened, &mut wire), [256, 0, 0, 0]);
}

#[test]
fn what_is_known_of_a_frame_comes_with_it() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig::default(), &pool);
    let (udp, mut tcp, mut fragment, mut ipv6) = (flow(7), flow(7), flow(7), frame(BROADCAST, 0, 60));
    tcp[23] = 6;
    fragment[20] = 0x20;
    ipv6[12..14].copy_from_slice(&[0x86, 0xdd]);
    // 6 bytes of ICMPv6.
    ipv6[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 6, 58, 64]);
    let frames = [frame(BROADCAST, 0, 60), udp, tcp, fragment, ipv6];
    assert!(frames.iter().all(|frame| wire.inject(frame)));
    let (mut cache, mut batch, mut infos) = (pool.cache(), Batch::with_capacity(8), RxInfos::with_capacity(8));
    assert_eq!(opened.rx[0].recv_with(&mut cache, &mut batch, &mut infos).len(), 5);
    let none = PacketType::default();
    let types = infos.iter().map(|info| info.packet_type());
    let ipv4 = PacketType { ipv4: true, ..none };
    assert_eq!(
        types.collect::<Vec<_>>(),
        [
            none,
            PacketType { udp: true, ..ipv4 },
            PacketType { tcp: true, ..ipv4 },
            ipv4,
            PacketType { ipv6: true, ..none }
        ]
    );
    let hashes: Vec<Option<u32>> = infos.iter().map(|info| info.hash()).collect();
    assert!(hashes[0].is_none() && hashes[1..].iter().all(Option::is_some), "{hashes:?}");
}

#[test]
fn a_queue_is_waited_for_and_closing_ends_the_wait() {
    let pool = pool();
    let config = PortConfig { rx_queues: 2, interrupts: Interrupts::Required, ..PortConfig::default() };
    let (Opened { port, mut rx, tx }, mut wire) = open(&config, &pool);
    assert!(port.capabilities().interrupts);
    assert_eq!(rx[0].wait(Duration::ZERO), Ok(false));
    let injected = std::thread::spawn(move || {
        assert!(wire.inject_into(1, &frame(BROADCAST, 7, 60)));
        wire
    });
    assert_eq!(wait_any(&mut rx, Duration::from_secs(600)), Ok(true));
    let wire = injected.join().unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    assert_eq!(rx[1].recv(&mut cache, &mut batch).len(), 1);
    let waiting = std::thread::spawn(move || wait_any(&mut rx, Duration::from_secs(600)));
    port.close().unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(false));
    drop((tx, wire));

    let (mut opened, _wire) = open(&PortConfig::default(), &pool);
    assert_eq!(opened.rx[0].wait(Duration::ZERO), Err(NoInterrupts));
    assert!(!opened.rx[0].arm() && opened.rx[0].eventfd().is_none());
}

#[test]
fn the_link_is_the_wire() {
    let pool = pool();
    let (mut opened, mut wire) = open(&PortConfig::default(), &pool);
    assert_eq!(opened.port.events().unwrap(), Events::default());
    wire.set_link(false);
    assert!(!wire.inject(&frame(BROADCAST, 0, 60)));
    let link = opened.port.wait_link(Duration::ZERO).unwrap();
    assert!(!link.up && link.speed_mbps == 0);
    assert!(opened.port.events().unwrap().link_changed && !opened.port.events().unwrap().link_changed);
    wire.set_link(true);
    assert_eq!(opened.port.link().unwrap().to_string(), "up, 10000 Mbit/s");
    drop(wire);
    assert!(!opened.port.link().unwrap().up, "the other end is gone");
}

#[test]
fn after_stop_and_close_what_had_arrived_still_comes() {
    let pool = pool();
    let (Opened { mut port, mut rx, mut tx }, mut wire) = open(&PortConfig::default(), &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
    assert!(wire.inject(&frame(BROADCAST, 1, 60)));
    port.stop_receiving().unwrap();
    assert!(!wire.inject(&frame(BROADCAST, 2, 60)));
    port.close().unwrap();
    assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 1);
    assert_eq!((tx[0].send(&mut cache, &mut batch), batch.len()), (0, 1), "nothing leaves by a closed port");
}

#[test]
fn settings_out_of_range_are_refused() {
    let pool = pool();
    for config in [
        PortConfig { rx_queues: 65, ..PortConfig::default() },
        PortConfig { tx_ring: 100, ..PortConfig::default() },
        PortConfig { strip_vlan: true, ..PortConfig::default() },
        PortConfig { rss: Rss { reta: Reta::Table(vec![1]), ..Rss::default() }, ..PortConfig::default() },
    ] {
        assert!(in_process::open("refused", &config, &pool).unwrap_err().is_usage());
    }
}
