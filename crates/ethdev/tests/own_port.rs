//! A port of somebody's own, in safe code, that lies: it hands out other packets than came, counts what never was, panics, and
//! knows no commands. Whoever uses it gets wrong figures, and loses no buffer.

use ethdev::{
    ChecksumVerdict, LinkStatus, MacAddress, Opened, Port, Reta, RxCounters, RxInfos, RxQueue, Statistics, TxCounters,
    TxQueue, Unsupported,
};
use mempool::{Batch, Checksum, Packet, Pool, PoolCache, PoolConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Debug)]
struct Liar;

#[derive(Debug)]
struct LyingRx {
    calls: usize,
}

#[derive(Debug)]
struct LyingTx;

impl RxQueue for LyingRx {
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        self.calls += 1;
        cache.alloc_batch(batch, 3, 60);
        match self.calls % 4 {
            // What was there before, too.
            0 => batch,
            // Nothing, though there is something.
            1 => &mut [],
            2 => {
                cache.free_batch(batch);
                batch
            }
            _ => panic!("in the middle of a burst"),
        }
    }

    fn counters(&self) -> RxCounters {
        RxCounters { packets: u64::MAX, ..RxCounters::default() }
    }

    fn is_ready(&mut self) -> bool {
        true
    }
}

impl TxQueue for LyingTx {
    fn send(&mut self, _: &mut PoolCache, batch: &mut Batch) -> usize {
        batch.pop();
        1_000_000
    }

    fn counters(&self) -> TxCounters {
        TxCounters::default()
    }

    fn in_flight(&self) -> usize {
        usize::MAX
    }
}

impl Port for Liar {
    type Rx = LyingRx;
    type Tx = LyingTx;
    type Error = Unsupported;

    fn name(&self) -> &str {
        "liar"
    }

    fn link(&self) -> Result<LinkStatus, Unsupported> {
        Ok(LinkStatus { up: true, speed_mbps: 0 })
    }

    fn totals(&self) -> Statistics {
        Statistics::default()
    }

    fn transmit_idle(&self) -> bool {
        false
    }

    fn close(self) -> Result<Statistics, Unsupported> {
        Ok(self.totals())
    }
}

/// What any program does with a port.
fn forward<P: Port>(opened: &mut Opened<P>, cache: &mut PoolCache, batch: &mut Batch) {
    for packet in opened.rx[0].recv(cache, batch) {
        packet.data_mut().fill(1);
    }
    opened.tx[0].send(cache, batch);
}

#[test]
fn a_port_that_lies_loses_no_buffer() {
    let pool = Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let mut opened = Opened { port: Liar, rx: vec![LyingRx { calls: 0 }], tx: vec![LyingTx] };
    let mut panics = 0;
    for _ in 0..1000 {
        panics += usize::from(catch_unwind(AssertUnwindSafe(|| forward(&mut opened, &mut cache, &mut batch))).is_err());
    }
    assert_eq!(panics, 250);
    opened.close().unwrap();
    drop((cache, batch));
    assert_eq!(pool.away(), 0);
    let mut cache = pool.cache();
    let all: Vec<Packet> = std::iter::from_fn(|| cache.alloc()).collect();
    assert_eq!(all.len(), pool.slots(), "each slot once");
}

#[test]
fn commands_that_a_port_does_not_know_say_so() {
    let mut port = Liar;
    let errors = [
        port.set_promiscuous(true),
        port.set_all_multicast(true),
        port.set_groups(&[MacAddress([1, 0, 0x5E, 0, 0, 1])]),
        port.set_mac(MacAddress([2, 0, 0, 0, 0, 1])),
        port.set_mtu(1000),
        port.set_rss_table(&Reta::Even),
    ];
    for error in errors {
        let message = error.unwrap_err().to_string();
        assert!(message.starts_with("liar: cannot change its ") && message.contains("do without"), "{message}");
    }
    assert!(port.stop_receiving().is_ok() && port.events().is_ok() && port.event_fds().is_empty());
}

/// Receives a long frame whose checksum is valid, a short one, and one that is cut off.
#[derive(Debug)]
struct Marked;

impl RxQueue for Marked {
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        cache.alloc_batch(batch, 5, 60);
        for (at, packet) in batch.iter_mut().enumerate() {
            packet.set_continues(matches!(at, 0 | 1 | 4));
            let checksum = if at == 0 { Checksum::Valid } else { Checksum::Unknown };
            assert!(packet.set_checksum(checksum));
        }
        batch
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }

    fn is_ready(&mut self) -> bool {
        true
    }
}

/// A port that says nothing of its frames: `recv_with` says what they do.
#[test]
fn all_packets_of_a_frame_say_the_same() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut batch, mut infos) = (Batch::with_capacity(8), RxInfos::with_capacity(0));
    Marked.recv_with(&mut pool.cache(), &mut batch, &mut infos);
    let verdicts: Vec<_> = infos.iter().map(|info| info.transport_checksum()).collect();
    let (good, unknown) = (ChecksumVerdict::Good, ChecksumVerdict::Unknown);
    assert_eq!(verdicts, [good, good, good, unknown, unknown]);
    batch.clear();
    LyingRx { calls: 1 }.recv_with(&mut pool.cache(), &mut batch, &mut infos);
    assert!(infos.is_empty());
}
