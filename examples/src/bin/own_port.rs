//! A port of one's own: a cable whose ends are joined, so that what is sent is received. `own_port [ROUNDS]` runs a program on it.

use crossbeam::queue::ArrayQueue;
use ethdev::{LinkStatus, Opened, Port, RxCounters, RxQueue, Statistics, TxCounters, TxQueue, Unsupported};
use lcore::{Clock, Loop, Stop};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig, complete_checksum, frames};
use std::sync::Arc;

/// Frames on their way, which the three share.
type Cable = Arc<ArrayQueue<Packet>>;

/// The control side.
#[derive(Debug)]
pub(crate) struct Joined(Cable);

/// The queues, with what they count.
#[derive(Debug)]
pub(crate) struct Rx(Cable, RxCounters);
#[derive(Debug)]
pub(crate) struct Tx(Cable, TxCounters);

/// A port with one queue each way, and room for so many frames on the cable, at least one.
pub(crate) fn open(frames: usize) -> Opened<Joined> {
    let cable = Arc::new(ArrayQueue::new(frames.max(1)));
    let (rx, tx) = (Rx(Arc::clone(&cable), RxCounters::default()), Tx(Arc::clone(&cable), TxCounters::default()));
    Opened { port: Joined(cable), rx: vec![rx], tx: vec![tx] }
}

impl Port for Joined {
    type Rx = Rx;
    type Tx = Tx;
    type Error = Unsupported;

    fn name(&self) -> &str {
        "joined"
    }

    fn link(&self) -> Result<LinkStatus, Unsupported> {
        Ok(LinkStatus { up: true, speed_mbps: 0 })
    }

    fn totals(&self) -> Statistics {
        Statistics::default()
    }

    fn transmit_idle(&self) -> bool {
        self.0.is_empty()
    }

    fn close(self) -> Result<Statistics, Unsupported> {
        Ok(self.totals())
    }
}

impl RxQueue for Rx {
    fn recv<'b>(&mut self, _: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let before = batch.len();
        for packet in (0..batch.spare()).map_while(|_| self.0.pop()) {
            (self.1.packets, self.1.bytes) = (self.1.packets + 1, self.1.bytes + packet.len() as u64);
            // There is room for as many.
            let _ = batch.push(packet);
        }
        batch.get_mut(before..).unwrap_or_default()
    }

    fn counters(&self) -> RxCounters {
        self.1
    }

    fn is_ready(&mut self) -> bool {
        !self.0.is_empty()
    }
}

impl TxQueue for Tx {
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let before = batch.len();
        while !batch.is_empty() && !self.0.is_full() {
            let buffers = frames(batch).next().map_or(0, <[Packet]>::len);
            let mut frame = batch.drain_range(..buffers);
            if buffers > 1 {
                self.1.too_many_segments += 1;
                frame.for_each(|packet| cache.free(packet));
            } else if let Some(mut packet) = frame.next() {
                packet.set_continues(false);
                complete_checksum(std::slice::from_mut(&mut packet));
                (self.1.packets, self.1.bytes) = (self.1.packets + 1, self.1.bytes + packet.len() as u64);
                let _ = self.0.push(packet); // Nobody else sends, so there is still room.
            }
        }
        before - batch.len()
    }

    fn counters(&self) -> TxCounters {
        self.1
    }

    fn in_flight(&self) -> usize {
        self.0.len()
    }
}

/// Sends 32 frames round, in the loop that `fwd` has.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: u64 = std::env::args().nth(1).as_deref().unwrap_or("1000000").parse()?;
    let pool = Pool::new(&PoolConfig::default())?;
    let (Opened { port, mut rx, mut tx }, stop) = (open(256), Stop::new()?);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    cache.alloc_batch(&mut batch, 32, 60);
    let _ = Loop::new(&stop).run(|_: &mut Clock| {
        tx[0].send(&mut cache, &mut batch);
        rx[0].recv(&mut cache, &mut batch);
        if rx[0].counters().packets / 32 >= rounds {
            stop.request();
        }
        true
    });
    println!("{}: {} frames sent, {} received", port.name(), tx[0].counters().packets, rx[0].counters().packets);
    Ok(port.close().map(|_| ())?)
}
