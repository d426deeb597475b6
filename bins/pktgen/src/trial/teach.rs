//! Learning frames of a port that only receives: of its own address, so that bridges do not flood what is for it (RFC 2544, 23 b).

use super::direction::Direction;
use super::pair::{LEARNING, Pair};
use crate::traffic::{Runs, Traffic};
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyTxQueue, RxQueue, TxQueue};

/// What a port that only receives sends.
#[derive(Debug)]
pub(crate) struct Teacher<T = AnyTxQueue> {
    traffic: Traffic,
    cache: PoolCache,
    batch: Batch,
    /// Its way out, unless the host that the port is has it.
    pub(super) tx: Option<T>,
}

impl<T: TxQueue> Teacher<T> {
    /// Creates it with the frames of its address; `pool` is that of the port.
    pub(crate) fn new(mut traffic: Traffic, stream: u16, pool: &Pool, tx: Option<T>) -> Self {
        traffic.begin(stream, false);
        Self { traffic, cache: pool.cache(), batch: Batch::with_capacity(1), tx }
    }

    /// Sends one, if there is room for it.
    fn teach(&mut self, now: u64, host: Option<&mut T>) {
        let Some(tx) = self.tx.as_mut().or(host) else { return };
        self.traffic.write(&mut self.cache, &mut self.batch, &[now], &mut Runs::default());
        tx.send(&mut self.cache, &mut self.batch);
        self.cache.free_batch(&mut self.batch);
    }
}

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    /// Sends a learning frame from the port that receives, if it sends nothing else.
    fn teach(&mut self, now: u64) {
        if let Some(teacher) = &mut self.teacher {
            teacher.teach(now, self.host.as_deref_mut().and_then(|host| host.tx.as_mut()));
        }
    }
}

impl<R: RxQueue, T: TxQueue> Pair<R, T> {
    /// Sends a learning frame from each port that sends nothing else.
    pub(super) fn teach(&mut self, now: u64) {
        self.next_lesson = now.saturating_add(self.plan.forgets);
        self.directions.iter_mut().for_each(|direction| direction.teach(now));
    }

    /// Sends all learning frames from all ports, those of ports that send in the direction of what counts.
    pub(super) fn teach_all(&mut self, now: u64) {
        for _ in 0..self.plan.learning_frames {
            self.teach(now);
            self.directions.iter_mut().for_each(|one| one.lane.ask(one.base.wrapping_add(LEARNING)));
        }
    }
}
