//! Pings by a port: its lcore sends them, polls for replies, and answers what a host answers.

use super::account::Account;
use crate::host::{Host, whole};
use cli::lane::Tally;
use device::tsc;
use lcore::{Clock, Function, Loop, PacedRx};
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyRxQueue, AnyTxQueue, RxQueue, TxQueue};
use station::{Echo, Error, Event};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is pinged, with times in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// Of the port, and of the next hop.
    pub(crate) macs: [[u8; 6]; 2],
    pub(crate) count: u64,
    pub(crate) interval: u64,
    /// How long doubles are waited for when all have come back.
    pub(crate) settle: u64,
    /// A user wants the end.
    pub(crate) cut: Arc<AtomicBool>,
}

/// A port at work.
#[derive(Debug)]
pub(crate) struct Pinger<R = AnyRxQueue, T = AnyTxQueue> {
    rx: PacedRx<R>,
    tx: T,
    host: Host,
    plan: Plan,
    pub(crate) account: Account,
    cache: PoolCache,
    batch: Batch,
    outgoing: Batch,
    frame: Vec<u8>,
    next: u64,
    is_over: bool,
    pub(crate) tally: Tally,
    /// Why it ended early.
    pub(crate) trouble: Option<Error>,
}

impl<R: RxQueue, T: TxQueue> Pinger<R, T> {
    pub(crate) fn new(queues: (R, T), pool: &Pool, host: Host, plan: Plan, account: Account) -> Self {
        Self {
            rx: PacedRx::new(queues.0),
            tx: queues.1,
            host,
            plan,
            account,
            cache: pool.cache(),
            batch: Batch::with_capacity(32),
            outgoing: Batch::with_capacity(1),
            frame: Vec::new(),
            next: 0,
            is_over: false,
            tally: Tally::new(Some((0, 0)), Some((0, 0))),
            trouble: None,
        }
    }

    /// Runs until all have come back, or will not any more.
    pub(crate) fn run(self, poll_loop: Loop) -> Self {
        poll_loop.run(self)
    }

    /// Returns how it went, and the queues.
    pub(crate) fn end(self) -> (super::Bypass, (R, T)) {
        let Self { account, plan, trouble, rx, tx, .. } = self;
        (super::Bypass { account, from: plan.from, trouble }, (rx.queue, tx))
    }

    fn receive(&mut self, clock: &mut Clock) -> bool {
        if self.rx.recv(clock, &mut self.cache, &mut self.batch).is_empty() {
            return false;
        }
        let now = tsc::now();
        let Self { host, account, plan, .. } = self;
        for frame in whole(&self.batch) {
            match host.saw(now, frame) {
                Event::Reply(echo) if echo.from == plan.to && echo.identifier == account.identifier() => {
                    account.replied(echo.sequence, echo.payload, now);
                }
                Event::Trouble(trouble) if trouble.to == plan.to && trouble.identifier == account.identifier() => {
                    account.refused(&trouble);
                }
                _ => {}
            }
        }
        self.cache.free_batch(&mut self.batch);
        self.host.send(&mut self.tx);
        true
    }

    /// Sends a ping if one is due.
    fn send(&mut self) -> bool {
        let now = tsc::now();
        if self.is_over || now < self.next {
            return false;
        }
        let Plan { from, to, macs, .. } = self.plan;
        let (identifier, sequence, payload) = self.account.next();
        let echo = Echo { from, to, identifier, sequence, payload };
        let is_written = echo.write(&mut self.frame, macs[0], macs[1]).is_ok();
        let packet = is_written.then(|| self.cache.alloc_from(&self.frame)).flatten();
        let Some(Ok(())) = packet.map(|packet| self.outgoing.push(packet)) else { return false };
        let sent = tsc::now();
        if self.tx.send(&mut self.cache, &mut self.outgoing) == 0 {
            // The ring is full: it is tried again in the next round, and was not sent.
            self.cache.free_batch(&mut self.outgoing);
            return false;
        }
        self.account.sent(sent);
        self.next = super::following(self.next, self.plan.interval, sent);
        self.is_over = self.account.sent >= self.plan.count;
        true
    }
}

impl<R: RxQueue, T: TxQueue> Function for Pinger<R, T> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let received = self.receive(clock);
        self.send() || received
    }

    fn publish(&mut self) {
        let now = tsc::now();
        self.host.ask(now);
        self.host.send(&mut self.tx);
        self.trouble = self.host.station.check().err();
        self.is_over |= self.plan.cut.load(Ordering::Relaxed) || self.trouble.is_some();
        // Buffers of frames that have left come back.
        self.tx.send(&mut self.cache, &mut self.outgoing);
        self.tally.counters.set_rx(self.rx.queue.counters());
        self.tally.counters.set_tx(self.tx.counters());
        self.tally.publish();
    }

    fn is_done(&self) -> bool {
        let is_stuck = self.account.sent == 0;
        self.trouble.is_some() || (self.is_over && (is_stuck || self.account.is_settled(tsc::now(), self.plan.settle)))
    }
}

#[cfg(test)]
mod tests;
