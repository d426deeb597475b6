//! The sending side of a stream: takes what is due, tags it, hands it to the ring.

use crate::traffic::Traffic;
use cli::counters::Counters;
use measure::{HandOvers, Pacer};
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyTxQueue, TxQueue};

/// A transmit queue and the stream that it sends.
#[derive(Debug)]
pub(crate) struct Lane<T = AnyTxQueue> {
    pub(crate) port: usize,
    pub(crate) tx: T,
    pub(crate) counters: Counters,
    traffic: Traffic,
    cache: PoolCache,
    /// Frames that are tagged, and that the ring had no room for.
    batch: Batch,
    /// Room for when each of a burst is due.
    due: Box<[u64]>,
    pacer: Option<Pacer>,
    /// Numbers of the next frame that is tagged, and of the next that is handed over.
    tagged: u64,
    handed: u64,
    /// Frames that may be sent.
    limit: u64,
    /// When it began, and when it sends no more; for a stream without pacer.
    begun: u64,
    end: u64,
    /// When the last frame was handed over.
    last: u64,
    /// Frames that were due, and had no buffer or no room in the ring.
    starved: u64,
}

/// What a lane sends from some time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) stream: u16,
    /// As the pacer says; else as fast as the ring takes them.
    pub(crate) paced: bool,
    /// Frames that are sent.
    pub(crate) limit: Option<u64>,
    /// Ticks after which nothing is due.
    pub(crate) ticks: Option<u64>,
}

/// How a part of a stream went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Frames that were handed over.
    pub(crate) handed: u64,
    /// Ticks from the begin to the last hand-over.
    pub(crate) ticks: u64,
}

impl<T: TxQueue> Lane<T> {
    /// Creates one that sends nothing yet. `pool` is this lane's own.
    pub(crate) fn new(
        port: usize,
        tx: T,
        pool: &Pool,
        batch: usize,
        mut traffic: Traffic,
        pacer: Option<Pacer>,
    ) -> Self {
        traffic.prefill(pool);
        Self {
            port,
            tx,
            counters: Counters::default(),
            traffic,
            cache: pool.cache(),
            batch: Batch::with_capacity(batch),
            due: vec![0; batch].into(),
            pacer,
            tagged: 0,
            handed: 0,
            limit: 0,
            begun: 0,
            end: 0,
            last: 0,
            starved: 0,
        }
    }

    /// Begins with a part, from number 0 on. What the ring had no room for until now is dropped.
    pub(crate) fn begin(&mut self, now: u64, part: Part) {
        self.cache.free_batch(&mut self.batch);
        let Part { stream, paced, limit, ticks } = part;
        self.traffic.set_stream(stream);
        (self.tagged, self.handed, self.starved, self.last) = (0, 0, 0, now);
        self.limit = limit.unwrap_or(u64::MAX);
        (self.begun, self.end) = (now, ticks.map_or(u64::MAX, |ticks| now.saturating_add(ticks)));
        if let Some(pacer) = &mut self.pacer {
            // A part without pace is as if it had ended for the pacer.
            pacer.start(now, if paced { ticks } else { Some(0) });
        }
    }

    /// Lets one more frame be sent of a part without pace.
    pub(crate) fn one_more(&mut self) {
        self.limit = self.tagged + 1;
    }

    /// Ends the part: what was not due yet is not sent.
    pub(crate) fn cut(&mut self) {
        self.limit = self.tagged;
    }

    /// Ends the part at `now`, and drops what the ring has no room for. What was due by then is missed.
    pub(crate) fn give_up(&mut self, now: u64) {
        if let Some(pacer) = self.pacer.as_mut().filter(|pacer| self.tagged < self.limit && !pacer.is_off()) {
            pacer.miss(now);
        }
        self.cut();
        self.starved += self.batch.len() as u64;
        self.cache.free_batch(&mut self.batch);
    }

    /// Sends what is due. Returns how many frames were handed to the ring.
    #[inline(always)]
    pub(crate) fn poll(&mut self, now: u64, hand_overs: Option<&mut HandOvers>) -> usize {
        if self.batch.is_empty() {
            self.fill(now);
        }
        // With an empty batch too: buffers come back by it.
        let sent = self.tx.send(&mut self.cache, &mut self.batch);
        if sent > 0 {
            if let Some(hand_overs) = hand_overs {
                #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
                hand_overs.note(self.handed as u32, sent, now);
            }
            self.handed += sent as u64;
            self.last = now;
        }
        sent
    }

    #[inline(always)]
    fn fill(&mut self, now: u64) {
        let Self { batch, due, cache, tagged, .. } = self;
        let room = usize::try_from(self.limit - *tagged).unwrap_or(usize::MAX).min(due.len());
        let count = match &mut self.pacer {
            _ if room == 0 => 0,
            Some(pacer) if !pacer.is_off() => pacer.take(now, &mut due[..room]),
            _ if now < self.end => {
                due[..room].fill(now);
                room
            }
            _ => 0,
        };
        self.traffic.write(cache, batch, *tagged, due.get(..count).unwrap_or_default());
        self.starved += (count - batch.len()) as u64;
        *tagged += batch.len() as u64;
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_done(&self, now: u64) -> bool {
        let is_over = match &self.pacer {
            Some(pacer) if !pacer.is_off() => pacer.is_over(),
            _ => now >= self.end,
        };
        self.batch.is_empty() && (is_over || self.tagged >= self.limit)
    }

    /// Whether nothing more becomes due, though the ring may have no room for what is tagged. Without a time at which it ends, a ring
    /// that has taken nothing for `patience` ticks ends it.
    pub(crate) fn is_past_end(&self, now: u64, patience: u64) -> bool {
        let stands_still = !self.batch.is_empty() && now.saturating_sub(self.last) >= patience;
        now >= self.end || self.tagged >= self.limit || (self.end == u64::MAX && stands_still)
    }

    /// Frames handed over so far.
    #[inline(always)]
    pub(crate) fn handed(&self) -> u64 {
        self.handed
    }

    /// How this part went so far.
    pub(crate) fn sent(&self) -> Sent {
        Sent { handed: self.handed, ticks: self.last.saturating_sub(self.begun) }
    }

    /// Frames that were due and not handed over.
    pub(crate) fn missed(&self) -> u64 {
        self.pacer.as_ref().map_or(0, Pacer::missed) + self.starved + self.batch.len() as u64
    }
}
