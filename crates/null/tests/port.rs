//! The port keeps to the contract of ports: whole counts, bounds, and an end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ethdev::{Interrupts, Port as _, PortConfig, Reta, Rss, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use null::Null;

fn pool(slots: usize) -> Pool {
    Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap()
}

fn open(config: &PortConfig) -> Result<ethdev::Opened<null::Port>, null::Error> {
    null::open(Null("null:a".to_owned()), config)
}

#[test]
fn what_is_received_and_sent_is_counted_and_freed() {
    let (pool, config) = (pool(256), PortConfig { rx_queues: 2, tx_queues: 3, ..PortConfig::default() });
    let mut opened = open(&config).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    for queue in &mut opened.rx {
        cache.alloc_batch(&mut batch, 10, 100);
        let received = queue.recv(&mut cache, &mut batch);
        assert_eq!(received.len(), 22, "what was there stays");
        assert!(received.iter().all(|packet| packet.data().len() == 60 && packet.data()[12..14] == [0x88, 0xB5]));
        assert_eq!(opened.tx[2].send(&mut cache, &mut batch), 32);
        assert!(batch.is_empty());
    }
    let sent = opened.tx[2].counters();
    assert_eq!((sent.packets, sent.bytes, opened.tx[0].counters().packets), (64, 20 * 100 + 44 * 60, 0));
    let totals = opened.port.totals();
    assert_eq!((totals.rx_packets, totals.rx_bytes), (44, 44 * 64));
    assert_eq!((totals.tx_packets, totals.tx_bytes), (64, sent.bytes + 64 * 4));
    drop(cache);
    assert_eq!(pool.away(), 0);
}

#[test]
fn frames_that_no_device_would_send_are_counted_drops() {
    let pool = pool(256);
    let mut opened = open(&PortConfig { mtu: 100, ..PortConfig::default() }).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    for bytes in [0, 122, 123] {
        cache.alloc_batch(&mut batch, 1, bytes);
    }
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 3);
    let counted = opened.tx[0].counters();
    assert_eq!((counted.packets, counted.bytes, counted.bad_length, counted.too_long), (1, 122, 1, 1));
}

#[test]
fn an_empty_pool_and_a_port_that_ends_give_nothing() {
    let pool = pool(64);
    let mut opened = open(&PortConfig::default()).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(128));
    assert_eq!(opened.rx[0].recv(&mut cache, &mut batch).len(), 64);
    assert!(opened.rx[0].recv(&mut cache, &mut batch).is_empty());
    assert_eq!(opened.rx[0].counters().no_buffers, 2);
    opened.port.stop_receiving().unwrap();
    assert_eq!(opened.tx[0].send(&mut cache, &mut batch), 64, "it still sends");
    assert!(!opened.rx[0].is_ready() && opened.rx[0].recv(&mut cache, &mut batch).is_empty());
    cache.alloc_batch(&mut batch, 1, 60);
    drop(opened.port);
    assert_eq!((opened.tx[0].send(&mut cache, &mut batch), batch.len()), (0, 1), "and then no more");
}

#[test]
fn what_only_a_device_has_is_refused() {
    for (config, word) in [
        (PortConfig { strip_vlan: true, ..PortConfig::default() }, "strip_vlan"),
        (PortConfig { interrupts: Interrupts::Required, ..PortConfig::default() }, "interrupts"),
        (PortConfig { rx_queues: 65, ..PortConfig::default() }, "rx_queues"),
        (PortConfig { rss: Rss { reta: Reta::Table(vec![0]), ..Rss::default() }, ..PortConfig::default() }, "rss.reta"),
    ] {
        let error = open(&config).map(drop).unwrap_err().to_string();
        assert!(error.starts_with(word), "{error}");
    }
    let mut port = open(&PortConfig::default()).unwrap().port;
    assert!(port.set_mtu(100).unwrap_err().to_string().contains("null:a: cannot change its MTU"));
}
