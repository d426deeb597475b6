//! Receives UDP datagrams, and compares what the device says of them with the RSS hash in software:
//! `hashes ADDRESS QUEUES DATAGRAMS`.

use anyhow::{Context as _, Result};
use ethdev::{PortConfig, Rss, RxInfo, RxInfos, RxQueue as _, hash_frame};
use mempool::{Batch, Packet, Pool, PoolConfig};
use std::time::{Duration, Instant};
use wire::{Flow, protocol};

/// How many datagrams there were, and of how many the device was wrong.
#[derive(Default)]
struct Counts {
    datagrams: usize,
    no_hash: usize,
    hash: usize,
    queue: usize,
    kind: usize,
}

impl Counts {
    fn look(&mut self, rss: &Rss, queue: usize, queues: u16, packet: &Packet, info: RxInfo) {
        if Flow::of(packet.data()).is_none_or(|flow| flow.protocol != protocol::UDP) {
            return;
        }
        let hash = hash_frame(rss, packet.data());
        self.datagrams += 1;
        self.no_hash += usize::from(info.hash().is_none());
        self.hash += usize::from(info.hash().is_some_and(|said| said != hash));
        self.queue += usize::from(usize::from(rss.queue(hash, queues)) != queue);
        let kind = info.packet_type();
        self.kind += usize::from((kind.ipv4, kind.udp, kind.tcp, kind.ipv6) != (true, true, false, false));
    }
}

fn main() -> Result<()> {
    let argument = |number| std::env::args().nth(number).context("hashes ADDRESS QUEUES DATAGRAMS");
    let (queues, wanted): (u16, usize) = (argument(2)?.parse()?, argument(3)?.parse()?);
    let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() })?;
    let mut config = PortConfig { rx_queues: queues, tx_queues: queues, report_hash: true, ..PortConfig::default() };
    config.rss.key.reverse();
    let mut port = nic::open(&argument(1)?.parse()?, &config, &pool)?;
    let (mut cache, mut batch, mut infos) = (pool.cache(), Batch::with_capacity(32), RxInfos::with_capacity(32));
    let (begun, mut counts) = (Instant::now(), Counts::default());
    println!("listening");
    while counts.datagrams < wanted && begun.elapsed() < Duration::from_secs(60) {
        for (queue, rx) in port.rx.iter_mut().enumerate() {
            let packets = rx.recv_with(&mut cache, &mut batch, &mut infos);
            for (packet, info) in packets.iter().zip(infos.iter()) {
                counts.look(&config.rss, queue, queues, packet, *info);
            }
            cache.free_batch(&mut batch);
        }
    }
    port.close()?;
    let Counts { datagrams, no_hash, hash, queue, kind } = counts;
    println!(
        "{datagrams} datagrams: {no_hash} without a hash, {hash} with a wrong one, {queue} in a wrong queue, {kind} of a \
         wrong type"
    );
    Ok(())
}
