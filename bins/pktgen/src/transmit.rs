//! `pktgen tx`: sends from each port until the end, and says at the end how much that was.

use crate::host::Host;
use crate::lane::{Lane, Part, Sent};
use cli::lane::Tally;
use lcore::{Clock, Function, Loop};
use nic::{AnyRxQueue, AnyTxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is common to the ports, with times in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) duration: Option<u64>,
    pub(crate) count: Option<u64>,
    /// What the ring has not taken by then is not sent.
    pub(crate) flush: u64,
    /// How often the end is sent, and the time from one to the next. One that is lost does no harm.
    pub(crate) ends: u32,
    pub(crate) gap: u64,
    /// A user wants the end.
    pub(crate) cut: Arc<AtomicBool>,
}

/// A port that sends.
#[derive(Debug)]
pub(crate) struct Port<T = AnyTxQueue> {
    pub(crate) lane: Lane<T>,
    /// Number of the first of its streams.
    pub(crate) base: u16,
    phase: Phase,
    since: u64,
    /// Ends that were sent, and where the present one is.
    ends: u32,
    at: Option<[usize; 2]>,
    /// Frames of all streams when the last had been handed over; of ends there were so many.
    pub(crate) sent: Option<Vec<Sent>>,
    pub(crate) end_frames: u64,
    pub(crate) tally: Tally,
    /// What answers for the port's addresses, and by which queue it is asked; it listens when counters are published, not between
    /// bursts.
    pub(crate) host: Option<Box<(Host, AnyRxQueue)>>,
    /// Frames handed over and missed, for the live view.
    pub(crate) progress: Arc<[AtomicU64; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Send,
    /// Nothing more is due; the ring may still hold frames back.
    Flush,
    End,
    Done,
}

/// One lcore's work.
#[derive(Debug)]
pub(crate) struct Sender<T = AnyTxQueue> {
    pub(crate) ports: Vec<Port<T>>,
    pub(crate) plan: Plan,
}

impl<T: TxQueue> Sender<T> {
    /// Sends until counts or time are reached, and the end is sent. Returns the ports.
    pub(crate) fn run(self, poll_loop: Loop) -> Vec<Port<T>> {
        poll_loop.run(self).ports
    }
}

impl<T: TxQueue> Function for Sender<T> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let mut moved = false;
        for port in &mut self.ports {
            let sent = port.poll(clock.now(), &self.plan);
            let cycles = clock.lap();
            if sent > 0 {
                port.tally.counters.cycles += cycles;
                moved = true;
            }
        }
        moved
    }

    fn publish(&mut self) {
        let is_cut = self.plan.cut.load(Ordering::Relaxed);
        self.ports.iter_mut().for_each(|port| port.publish(is_cut));
    }

    fn is_done(&self) -> bool {
        self.ports.iter().all(|port| port.phase == Phase::Done)
    }

    /// At an end that nobody planned, as when a device is gone, what was counted so far is kept.
    fn finish(&mut self) {
        let now = device::tsc::now();
        for port in self.ports.iter_mut().filter(|port| port.sent.is_none()) {
            if port.phase == Phase::Send {
                port.lane.note_over(now, true);
            }
            port.note_sent(now);
        }
    }
}

impl<T: TxQueue> Port<T> {
    pub(crate) fn new(lane: Lane<T>, base: u16) -> Self {
        Self {
            tally: Tally::new(None, Some((lane.port, 0))),
            lane,
            base,
            phase: Phase::Begin,
            since: 0,
            ends: 0,
            at: None,
            sent: None,
            end_frames: 0,
            host: None,
            progress: Arc::default(),
        }
    }

    /// Sends what is due now. Returns how many frames left.
    #[inline(always)]
    fn poll(&mut self, now: u64, plan: &Plan) -> usize {
        match self.phase {
            Phase::Send => {
                let sent = self.lane.poll(now, &mut []);
                if self.lane.is_past_end(now, plan.flush) || self.lane.is_done(now) {
                    (self.phase, self.since) = (Phase::Flush, now);
                }
                sent
            }
            _ => self.poll_slowly(now, plan),
        }
    }

    #[inline(never)]
    fn poll_slowly(&mut self, now: u64, plan: &Plan) -> usize {
        match self.phase {
            Phase::Begin => {
                let Plan { duration, count, .. } = *plan;
                let part = Part { stream: self.base, apart: true, paced: true, limit: count, ticks: duration };
                self.lane.begin(now, part);
                self.phase = Phase::Send;
            }
            Phase::Flush => {
                let sent = self.lane.poll(now, &mut []);
                if self.lane.is_done(now) || now.saturating_sub(self.since) >= plan.flush {
                    self.note_sent(now);
                    (self.phase, self.since) = (Phase::End, now);
                }
                return sent;
            }
            Phase::End => self.end(now, plan),
            Phase::Send | Phase::Done => {}
        }
        0
    }

    /// Sends ends, each stream's in its turn, until there were enough.
    fn end(&mut self, now: u64, plan: &Plan) {
        let elapsed = now.saturating_sub(self.since);
        if self.ends >= plan.ends || elapsed >= plan.gap.saturating_mul(plan.ends.into()).saturating_add(plan.flush) {
            self.phase = Phase::Done;
        } else if self.lane.flush() && elapsed >= plan.gap.saturating_mul(self.ends.into()) {
            self.at = self.lane.end(self.at.unwrap_or_default());
            self.ends += u32::from(self.at.is_none());
        }
    }

    /// Nothing more is sent of what counts.
    fn note_sent(&mut self, now: u64) {
        self.lane.give_up(now);
        self.sent = Some(self.lane.sent());
    }

    /// Frames that a host sent by the port.
    pub(crate) fn host_frames(&self) -> u64 {
        self.host.as_deref().map_or(0, |(host, _)| host.sent)
    }

    fn publish(&mut self, is_cut: bool) {
        if is_cut && self.phase == Phase::Send {
            self.lane.cut();
        }
        if let Some((host, rx)) = self.host.as_deref_mut() {
            host.listen(rx, &mut self.lane.tx);
        }
        let not_ends = self.lane.handed() + self.host_frames();
        let counters = &mut self.tally.counters;
        counters.set_tx(self.lane.tx.counters());
        self.end_frames = if self.sent.is_some() { counters.tx_packets.saturating_sub(not_ends) } else { 0 };
        self.tally.publish();
        let values = [self.lane.handed(), self.lane.missed()];
        self.progress.iter().zip(values).for_each(|(shared, value)| shared.store(value, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Source;
    use crate::traffic::{Part as Frames, Traffic};
    use ethdev::PortConfig;
    use ethdev::in_process;
    use measure::{End, Kind, Tag};
    use mempool::{Pool, PoolConfig};
    use stream::{Flows, Stream};

    /// A ring that takes nothing for so long that what is tagged is given up, and then takes the ends.
    #[test]
    fn ends_count_what_was_handed_over() {
        let pool = || Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() }).unwrap();
        let (received, sent) = (pool(), pool());
        let config = PortConfig { tx_ring: 64, ..PortConfig::default() };
        let (mut opened, mut wire) = in_process::open("a", &config, &received).unwrap();
        let stream = Stream::flows(&Flows { flows: 3, ..Flows::default() }, Kind::Full.bytes(), 1).unwrap();
        let traffic = Traffic::new(vec![Frames::new(0, stream, 1, Kind::Full).unwrap()], 60);
        let lane = Lane::new(0, opened.tx.remove(0), &sent, 32, vec![Source::new(traffic, None)]);
        let mut port = Port::new(lane, 7);
        let plan = Plan { duration: None, count: Some(1000), flush: 100, ends: 3, gap: 1, cut: Arc::default() };
        let mut now = 0;
        while port.phase != Phase::End {
            assert!(now < 1000, "{:?}", port.phase);
            port.poll(now, &plan);
            now += 1;
        }
        let mut frames = Vec::new();
        while port.phase != Phase::Done {
            frames.extend(std::iter::from_fn(|| wire.collect()));
            port.poll(now, &plan);
            now += 1;
        }
        frames.extend(std::iter::from_fn(|| wire.collect()));
        let tags = frames.iter().filter(|frame| Tag::parse(frame).is_some()).count() as u64;
        let ends: Vec<_> = frames.iter().filter_map(|frame| End::parse(frame)).collect();
        assert_eq!(ends, [End { stream: 7, sent: tags, bits: 48 }; 3]);
        let counted = port.sent.unwrap();
        assert!(counted[0].handed == tags && counted[0].missed > 0, "{counted:?}");
    }
}
