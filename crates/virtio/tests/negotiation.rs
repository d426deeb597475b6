//! Bringing a device up, and what becomes of devices that cannot be: one line each, and every buffer home.
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BASE, MERGING, Rig, config, frame, wait};
use ethdev::{HashTypes, MacAddress, Port as _, Reta, Rss, RxQueue as _, TxQueue as _};
use mempool::{Pool, PoolConfig};
use std::time::Duration;
use virtio::fake::{FakeConfig, FakeDevice};
use virtio::transport::Interface;
use virtio::{Config, Features, Opened};

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap()
}

/// The one line that opening such a device ends in.
fn refusal(fake: FakeConfig, config: &Config) -> String {
    let (device, pool) = (FakeDevice::new(fake), pool());
    let message = virtio::open(device.transport(), config, &pool).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    assert!(!device.is_ready(), "it was reset again: {message}");
    assert_eq!(pool.away(), 0, "every slot is home: {message}");
    message
}

fn with(features: Features) -> FakeConfig {
    FakeConfig { features, ..FakeConfig::default() }
}

#[test]
fn a_device_that_lacks_what_is_needed() {
    let message = refusal(with(Features::MAC), &config());
    assert!(message.contains("VIRTIO_F_VERSION_1"), "{message}");
    let message = refusal(FakeConfig { refuses_features: true, ..with(BASE) }, &config());
    assert!(message.contains("does not accept these features together"), "{message}");
    let mut two = config();
    (two.port.rx_queues, two.port.tx_queues) = (2, 2);
    let message = refusal(with(BASE | Features::CTRL_VQ), &two);
    assert!(message.contains("2 queue pairs are asked for, and the device has 1"), "{message}");
    let mq = BASE | Features::MQ | Features::CTRL_VQ;
    let message = refusal(FakeConfig { pairs: 3, ..with(mq) }, &{
        let mut four = config();
        four.port.rx_queues = 4;
        four
    });
    assert!(message.contains("4 queue pairs are asked for, and the device has 3"), "{message}");
    let mut jumbo = config();
    jumbo.port.mtu = 9000;
    let message = refusal(with(BASE), &jumbo);
    assert!(message.contains("VIRTIO_NET_F_MRG_RXBUF") && message.contains("9034 bytes"), "{message}");
    let message = refusal(FakeConfig { mtu: 1400, ..with(BASE | Features::MTU) }, &config());
    assert!(message.contains("an MTU of 1500 is asked for, and the device allows 1400"), "{message}");
}

/// A header that says in how many buffers a frame lies costs time, so it is agreed on only where it may say more than one.
#[test]
fn buffers_are_merged_only_where_one_may_be_too_small() {
    let with_hash = Features::CTRL_VQ | Features::HASH_REPORT;
    for (mtu, data_room, more, report_hash, merged) in [
        (None, 1534, Features::default(), false, false),
        (None, 1533, Features::default(), false, true),
        (Some(1500), 1534, Features::default(), false, false),
        (Some(1501), 1534, Features::default(), false, true),
        (Some(9000), 2048, Features::default(), false, true),
        (None, 2048, with_hash, false, false),
        (None, 2048, with_hash, true, true),
        // The device cannot report hashes, so nothing wants the longer header.
        (None, 2048, Features::default(), true, false),
    ] {
        let mut features = BASE | Features::MRG_RXBUF | more;
        if mtu.is_some() {
            features = features | Features::MTU;
        }
        let pool = Pool::new(&PoolConfig { slots: 1024, data_room, ..PoolConfig::default() }).unwrap();
        let device = FakeDevice::new(FakeConfig { features, mtu: mtu.unwrap_or(9000), ..FakeConfig::default() });
        let mut config = config();
        config.port.report_hash = report_hash;
        let opened = virtio::open(device.transport(), &config, &pool).unwrap();
        let case = (mtu, data_room, more, report_hash);
        assert_eq!(device.features().contains(Features::MRG_RXBUF), merged, "{case:?}");
        opened.port.close().unwrap();
    }
}

#[test]
fn sizes_and_numbers_that_no_device_may_have() {
    let message = refusal(FakeConfig { queue_size: 0, ..with(BASE) }, &config());
    assert!(message.contains("virtqueue 0: the device does not have it"), "{message}");
    let message = refusal(FakeConfig { queue_size: 100, ..with(BASE) }, &config());
    assert!(message.contains("its size is 100, which is no power of two"), "{message}");
    let message = refusal(FakeConfig { queue_size: 4, ..with(BASE) }, &config());
    assert!(message.contains("this driver wants 8 at least"), "{message}");
    let message = refusal(FakeConfig { queue_size: 0x8001, ..with(BASE | Features::RING_PACKED) }, &config());
    assert!(message.contains("it may be 32768 at most"), "{message}");
    let mut two = config();
    two.port.rx_queues = 2;
    for pairs in [0, 0x8001] {
        let message = refusal(FakeConfig { pairs, ..with(BASE | Features::MQ | Features::CTRL_VQ) }, &two);
        assert!(message.contains(&format!("{pairs} pairs of queues")), "{message}");
    }
    let message = refusal(FakeConfig { restless: true, ..with(BASE) }, &config());
    assert!(message.contains("changes with every read"), "{message}");
}

#[test]
fn a_pool_that_is_too_small() {
    let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
    let device = FakeDevice::new(FakeConfig::default());
    let message = virtio::open(device.transport(), &config(), &pool).unwrap_err().to_string();
    assert!(message.contains("64 slots") && message.contains("wants 64 free slots and 32 more"), "{message}");
    assert_eq!(pool.away(), 0);
}

#[test]
fn a_packed_ring_may_have_any_size_and_a_small_device_is_enough() {
    for (features, queue_size) in [(BASE | Features::RING_PACKED, 100), (BASE, 8), (BASE | Features::RING_PACKED, 9)] {
        let mut rig = Rig::with(FakeConfig { queue_size, ..with(features) }, &config());
        for n in 0..500 {
            assert!(rig.device.deliver(0, &frame(n, 60)), "{features}, {queue_size}");
            assert_eq!(rig.recv(), 1);
            assert_eq!(rig.send(), 1);
            assert_eq!(rig.device.collect(0), Some(frame(n, 60)));
        }
        rig.close();
    }
}

#[test]
fn a_legacy_device_with_and_without_mergeable_buffers() {
    for features in [Features::MAC, Features::MAC | Features::ANY_LAYOUT, Features::MAC | Features::MRG_RXBUF] {
        let fake = FakeConfig { interface: Interface::Legacy, queue_size: 128, ..with(features) };
        let mut rig = Rig::with(fake, &config());
        assert_eq!(rig.device.header_len(), if features.contains(Features::MRG_RXBUF) { 12 } else { 10 });
        for n in 0..500 {
            assert!(rig.device.deliver(0, &frame(n, 60 + n)), "{features}");
            assert_eq!(rig.recv(), 1);
            assert_eq!(rig.send(), 1);
            let chain = rig.device.next(1).unwrap();
            let together = features.contains(Features::ANY_LAYOUT);
            assert_eq!(chain.slots(), if together { 1 } else { 2 }, "{features}: the header's descriptor");
            // SAFETY: a chain that the device has taken and not reported.
            assert_eq!(unsafe { rig.device.frame_of(&chain) }, frame(n, 60 + n));
            rig.device.report(1, &chain, 0);
        }
        rig.close();
    }
}

const GROUPS: [MacAddress; 2] = [MacAddress([1, 0, 0x5E, 0, 0, 7]), MacAddress([0x33, 0x33, 0xFF, 1, 2, 3])];
/// `VIRTIO_NET_CTRL_MAC_TABLE_SET` without other stations and with these (section 5.1.6.5.2).
const GROUPS_COMMAND: [u8; 22] = [1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0x5E, 0, 0, 7, 0x33, 0x33, 0xFF, 1, 2, 3];

#[test]
fn commands_on_the_control_queue() {
    for packed in [Features::default(), Features::RING_PACKED] {
        let control = Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN | Features::CTRL_MAC_ADDR;
        let fake = FakeConfig { pairs: 4, ..with(BASE | control | Features::MQ | packed) };
        let mut config = config();
        (config.port.rx_queues, config.port.tx_queues) = (2, 2);
        let mut rig = Rig::with(fake, &config);
        rig.port.set_mac(MacAddress([2, 4, 6, 8, 10, 12])).unwrap();
        assert_eq!(rig.port.mac().0, [2, 4, 6, 8, 10, 12]);
        rig.port.set_vlan(0x123, true).unwrap();
        rig.port.set_vlan(0x123, false).unwrap();
        rig.port.set_promiscuous(false).unwrap();
        rig.port.set_all_multicast(false).unwrap();
        rig.port.set_groups(&GROUPS).unwrap();
        rig.port.set_groups(&[]).unwrap();
        assert!(rig.port.set_groups(&[MacAddress([2, 0, 0, 0, 0, 1])]).is_err());
        let expected: &[&[u8]] = &[
            &[4, 0, 2, 0],
            &[0, 0, 1],
            &[0, 1, 1],
            &[1, 1, 2, 4, 6, 8, 10, 12],
            &[2, 0, 0x23, 1],
            &[2, 1, 0x23, 1],
            &[0, 0, 0],
            &[0, 1, 0],
            &GROUPS_COMMAND,
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(rig.device.commands(), expected);
        // More than a command has room for.
        let many: Vec<_> = (0..100).map(|last| MacAddress([1, 0, 0x5E, 0, 0, last])).collect();
        let message = rig.port.set_groups(&many).unwrap_err().to_string();
        assert!(message.contains("groups: 100 of them") && message.contains("room for 83"), "{message}");
        let commands = rig.device.commands();
        let last = commands.last().unwrap();
        assert_eq!((&last[..10], &last[10 + 82 * 6..]), (&[1, 0, 0, 0, 0, 0, 83, 0, 0, 0][..], &many[82].0[..]));
        rig.close();
    }
}

/// What `VIRTIO_NET_CTRL_MQ_RSS_CONFIG` says with these types and this table over two queues (section 5.1.6.5.7).
fn rss_command(types: u16, key: &[u8; 40], table: [u8; 2]) -> Vec<u8> {
    let [low, high] = types.to_le_bytes();
    let mut command = vec![4, 1, low, high, 0, 0, 127, 0, table[0], 0];
    (0..64).for_each(|_| command.extend([table[0], 0, table[1], 0]));
    command.extend([2, 0, 40]);
    command.extend(key);
    command
}

#[test]
fn flows_are_spread_as_asked_and_again_when_the_device_comes_back() {
    let control = Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN | Features::CTRL_MAC_ADDR;
    let fake = FakeConfig { pairs: 4, rss: (40, 128, 0x3f), ..with(BASE | control | Features::MQ | Features::RSS) };
    let mut config = config();
    (config.port.rx_queues, config.port.tx_queues) = (2, 2);
    config.port.rss.key = Rss::SYMMETRIC_KEY;
    config.port.rss.hash = HashTypes::IPV4 | HashTypes::TCP_IPV4 | HashTypes::UDP_IPV6;
    let mut rig = Rig::with(fake, &config);
    let able = rig.port.capabilities().rss.unwrap();
    assert_eq!((able.queues, able.table, able.hash), (2, 128, HashTypes::default()));
    let even = rss_command(0b10_0011, &Rss::SYMMETRIC_KEY, [0, 1]);
    assert_eq!(rig.device.commands(), [even, vec![0, 0, 1], vec![0, 1, 1]]);

    rig.port.set_rss_table(&Reta::Table(vec![1, 0])).unwrap();
    let turned = rss_command(0b10_0011, &Rss::SYMMETRIC_KEY, [1, 0]);
    assert_eq!(rig.device.commands().last(), Some(&turned));
    for bad in [vec![], vec![2], vec![0; 129]] {
        let message = rig.port.set_rss_table(&Reta::Table(bad)).unwrap_err().to_string();
        assert!(message.contains("rss.reta: "), "{message}");
    }
    rig.port.set_promiscuous(false).unwrap();
    rig.port.set_all_multicast(false).unwrap();
    rig.port.set_mac(MacAddress([2, 4, 6, 8, 10, 12])).unwrap();
    rig.port.set_vlan(5, true).unwrap();
    rig.port.set_vlan(6, true).unwrap();
    rig.port.set_vlan(5, false).unwrap();
    rig.port.set_groups(&GROUPS).unwrap();

    let told = rig.device.commands().len();
    rig.device.lose("it asks for a reset");
    wait("another session", || rig.device.commands().len() == told + 6);
    let [promiscuous, all_multicast] = [vec![0, 0, 0], vec![0, 1, 0]];
    let [mac, vlan] = [vec![1, 1, 2, 4, 6, 8, 10, 12], vec![2, 0, 6, 0]];
    let expected = [turned, mac, vlan, promiscuous, all_multicast, GROUPS_COMMAND.to_vec()];
    assert_eq!(rig.device.commands()[told..], expected);
    wait("the link", || rig.port.link().unwrap().up);
    assert_eq!(rig.port.mac().0, [2, 4, 6, 8, 10, 12]);
    // One that takes no address any more has its own.
    let resets = rig.device.resets();
    rig.device.offer(BASE | Features::CTRL_VQ | Features::MQ | Features::RSS);
    rig.device.lose("it asks for a reset");
    wait("a session without", || rig.device.resets() > resets && rig.port.link().unwrap().up);
    assert_eq!(rig.port.mac().0, FakeConfig::default().mac);
    rig.close();
}

#[test]
fn a_device_that_cannot_spread_flows_as_asked_is_refused() {
    let mut config = config();
    (config.port.rx_queues, config.port.tx_queues) = (2, 2);
    let mq = BASE | Features::CTRL_VQ | Features::MQ;
    let device = |features, rss| FakeConfig { pairs: 2, rss, ..with(features) };
    // By default the device may do as it likes.
    for (features, rss) in [(mq, (0, 0, 0)), (mq | Features::RSS, (40, 128, 1))] {
        Rig::with(device(features, rss), &config).close();
    }
    let says = |features, rss, config: &Config, word: &str| {
        let message = refusal(device(features, rss), config);
        assert!(message.contains(word), "{message}");
    };
    says(mq | Features::RSS, (39, 128, 1), &config, "fewer than 40 bytes of RSS key");
    says(mq | Features::RSS, (40, 127, 1), &config, "128 entries of table");
    says(mq | Features::RSS, (40, 128, 0), &config, "can hash nothing");
    config.port.rss.hash = HashTypes::IPV4 | HashTypes::UDP_IPV4;
    says(mq, (40, 128, 0x1ff), &config, "rss: the device spreads flows over queues by rules of its own");
    says(mq | Features::RSS, (40, 128, 1), &config, "rss.hash: this device cannot hash UDP_IPV4;");
    config.port.rss = Rss { reta: Reta::Table(vec![2]), ..Rss::default() };
    says(mq | Features::RSS, (40, 128, 0x1ff), &config, "rss.reta: names queue 2");
    // Of one queue there is nothing to say.
    (config.port.rx_queues, config.port.tx_queues) = (1, 1);
    let rig = Rig::with(device(mq | Features::RSS, (0, 0, 0)), &config);
    assert_eq!((rig.port.capabilities().rss, rig.device.commands().len()), (None, 0));
    rig.close();
}

#[test]
fn a_control_queue_that_refuses_or_does_not_answer() {
    let features = BASE | Features::CTRL_VQ | Features::CTRL_RX;
    let message = refusal(FakeConfig { control_answer: Some(1), ..with(features) }, &config());
    assert!(message.contains("refused to change its receive mode"), "{message}");
    let mut hasty = config();
    hasty.port.time_limit.total = Duration::from_millis(300);
    let message = refusal(FakeConfig { control_answer: None, ..with(features) }, &hasty);
    assert!(message.contains("gave up waiting for an answer on the control queue after 300ms"), "{message}");
    // One that falls silent later is reset, and then asked again.
    let mut rig = Rig::with(with(features), &hasty);
    let resets = rig.device.resets();
    rig.device.answer_commands(None);
    assert!(rig.port.set_promiscuous(false).unwrap_err().to_string().contains("control queue"));
    rig.device.answer_commands(Some(0));
    wait("the reset", || rig.device.resets() > resets && rig.port.link().unwrap().up);
    wait("the next command", || rig.port.set_promiscuous(false).is_ok());
    rig.close();
    let mut rig = Rig::new(BASE);
    // Without a filter by VLAN frames with any tag are received.
    rig.port.set_vlan(1, true).unwrap();
    for id in [4095, u16::MAX] {
        assert!(rig.port.set_vlan(id, true).unwrap_err().to_string().starts_with("vlan: "));
    }
    rig.port.set_promiscuous(true).unwrap();
    rig.close();
}

#[test]
fn the_link_is_what_the_device_says() {
    let rig = Rig::new(BASE);
    assert!(rig.port.link().unwrap().up);
    rig.device.set_link(false);
    assert!(!rig.port.link().unwrap().up);
    rig.close();
}

#[test]
fn a_device_that_asks_for_a_reset_or_goes_away_comes_back() {
    for (round, features) in common::layouts().into_iter().enumerate() {
        let mut rig = Rig::new(features);
        for n in 0..32 {
            rig.put(&[&frame(n, 60)]);
        }
        assert_eq!(rig.send(), 32);
        rig.device.set_away(true);
        rig.device.lose("gone for a test");
        wait("the link to go down", || !rig.port.link().unwrap().up);
        wait("the queues to notice", || {
            rig.settle();
            rig.tx.in_flight() == 0
        });
        assert_eq!(rig.tx.counters().lost, 32, "{features}");
        rig.put(&[&frame(1, 60)]);
        assert_eq!((rig.send(), rig.recv()), (0, 0), "nothing passes, and nothing is lost");
        rig.device.set_away(false);
        wait("the link to come up", || rig.port.link().unwrap().up);
        assert_eq!(rig.send(), 1);
        assert_eq!(rig.device.collect(0), Some(frame(1, 60)), "the packet that had waited");
        rig.recv();
        assert!(rig.device.deliver(0, &frame(round, 99)));
        assert_eq!(rig.recv(), 1);
        assert_eq!(rig.take(), [frame(round, 99)]);
        rig.close();
    }
}

#[test]
fn queues_may_be_dropped_before_and_after_their_port() {
    let pool = pool();
    let device = FakeDevice::new(FakeConfig::default());
    let Opened { port, rx, tx } = virtio::open(device.transport(), &config(), &pool).unwrap();
    drop(rx);
    drop(port);
    drop(tx);
    assert_eq!(pool.away(), 0);
    let Opened { port, mut rx, tx } = virtio::open(device.transport(), &config(), &pool).unwrap();
    rx[0].recv(&mut pool.cache(), &mut mempool::Batch::with_capacity(1));
    drop((rx, tx));
    assert_eq!(pool.away(), 64, "the device may still write to what was in the ring");
    assert!(device.deliver(0, &frame(0, 60)));
    port.close().unwrap();
    assert_eq!(pool.away(), 0);
}

/// The queue has taken bursts several at a time, and then headers say in how many buffers a frame lies, in rings of the other layout and
/// of fewer descriptors; and back.
#[test]
fn a_device_that_comes_back_with_other_headers_and_rings_delivers_the_same() {
    for (first, second) in [(Features::default(), Features::RING_PACKED), (Features::RING_PACKED, Features::default())]
    {
        let device = FakeDevice::new(with(BASE | first));
        device.set_queue_size(64);
        let mut rig = Rig::over(device.transport(), device, &config());
        let (mut packets, mut bytes) = (0, 0);
        for round in 0..6 {
            let merging = round % 2 == 1;
            if round > 0 {
                let resets = rig.device.resets();
                rig.device.offer(if merging { BASE | MERGING | second } else { BASE | first });
                rig.device.set_queue_size(if merging { 16 } else { 64 });
                rig.device.lose("another one comes");
                wait("the next session", || rig.device.resets() > resets && rig.port.link().unwrap().up);
                // The queue moves over.
                assert_eq!(rig.recv(), 0);
            }
            let features = rig.port.features();
            assert_eq!(features.contains(Features::MRG_RXBUF), merging);
            assert_eq!(
                features.contains(Features::RING_PACKED),
                (if merging { second } else { first }) == Features::RING_PACKED
            );
            if merging {
                // Of two buffers; no frame of this port's MTU needs them.
                let before = rig.rx.counters().too_long;
                assert!(rig.device.deliver(0, &frame(round, 3000)));
                assert_eq!((rig.recv(), rig.rx.counters().too_long - before), (0, 1), "{features}");
            }
            for burst in 0..20 {
                let frames: Vec<_> = (0..8).map(|n| frame(100 * burst + n, 60 + 150 * n + burst)).collect();
                assert!(frames.iter().all(|frame| rig.device.deliver(0, frame)), "{features}, burst {burst}");
                assert_eq!(rig.recv(), 8, "{features}, burst {burst}");
                assert_eq!(rig.send(), 8, "{features}, burst {burst}");
                for frame in &frames {
                    assert_eq!(rig.device.collect(0).as_ref(), Some(frame), "{features}, burst {burst}");
                }
                packets += 8;
                bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
                let (rx, tx) = (rig.rx.counters(), rig.tx.counters());
                assert_eq!(
                    [rx.packets, rx.bytes, tx.packets, tx.bytes],
                    [packets, bytes, packets, bytes],
                    "{features}"
                );
            }
            // What was sent is taken back, so that the reset loses none.
            rig.tx.send(&mut rig.cache, &mut mempool::Batch::with_capacity(1));
        }
        let (rx, tx) = (rig.rx.counters(), rig.tx.counters());
        assert_eq!((rx.dropped(), rx.too_long, tx.dropped()), (3, 3, 0));
        rig.close();
    }
}
