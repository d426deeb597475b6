//! The sending side of a direction: takes what is due of each stream, tags it, hands it to the ring.

mod steer;

use crate::pacing::Pacing;
use crate::traffic::{Runs, Traffic};
use measure::HandOvers;
use mempool::{Batch, Pool, PoolCache};
use nic::{AnyTxQueue, TxQueue};
use steer::Asked;

/// A transmit queue and the streams that it sends.
#[derive(Debug)]
pub(crate) struct Lane<T = AnyTxQueue> {
    pub(crate) port: usize,
    pub(crate) tx: T,
    /// Those with a pace come first.
    sources: Vec<Source>,
    /// What probes are, unless they are like what counts.
    probe: Option<Source>,
    /// Other paces of the sources, for a time.
    others: Vec<Option<Pacing>>,
    /// Of so many sources each comes first in its turn; the others take what room is left.
    fair: usize,
    first: usize,
    cache: PoolCache,
    /// Frames that are tagged, and that the ring had no room for; and their streams.
    batch: Batch,
    runs: Runs,
    /// Room for when each of a burst is due.
    due: Box<[u64]>,
    /// Sources follow their pacers.
    paced: bool,
    /// Since when nothing is due, if it was told to stop.
    stopped: Option<u64>,
    /// It was told something while it ran.
    steered: bool,
    /// Frames handed over, and missed of each stream, before counters began anew.
    handed_before: u64,
    missed_before: Vec<u64>,
    /// When the part was over.
    over: Option<u64>,
    /// It was over before its time, as it was told to end or a device was gone.
    is_cut: bool,
    /// Frames that were tagged, and that were handed over; of all streams, and of each.
    tagged: u64,
    handed: u64,
    streams: Vec<Sent>,
    /// Frames that may be sent.
    limit: u64,
    /// As many were asked for, and nobody has ended the part before; and those of them that were not handed over, though no time was to end it.
    count: Option<u64>,
    unsent: u64,
    /// When it began, and when sources without pacer send no more.
    begun: u64,
    end: u64,
    /// When the last frame was handed over, and when the last that was taken was due.
    last: u64,
    /// When it last looked what is due, as nothing waited for the ring.
    looked: u64,
    last_due: u64,
    /// Frames that were taken with the one before them, as that was late by more than so many ticks.
    late: u64,
    late_after: u64,
}

/// Streams that take turns, and when their frames are due.
#[derive(Debug)]
pub(crate) struct Source {
    traffic: Traffic,
    /// `None` for as many as the port takes.
    pacing: Option<Pacing>,
    /// Frames that were due, and had no buffer.
    starved: u64,
    /// Which it is of its port.
    number: usize,
    asked: Asked,
}

/// What a lane sends from some time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Number of the stream in tags: of all streams, or if they are `apart` of the first of them.
    pub(crate) stream: u16,
    pub(crate) apart: bool,
    /// As the pacers say; else as fast as the ring takes them.
    pub(crate) paced: bool,
    /// Frames that are sent in all.
    pub(crate) limit: Option<u64>,
    /// Ticks after which nothing is due.
    pub(crate) ticks: Option<u64>,
}

/// How much of a stream was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Frames that were handed over.
    pub(crate) handed: u64,
    /// Frames that were due and not handed over.
    pub(crate) missed: u64,
}

impl Source {
    pub(crate) fn new(traffic: Traffic, pacing: Option<Pacing>) -> Self {
        Self { traffic, pacing, starved: 0, number: 0, asked: Asked::default() }
    }

    /// Starts the pace, and counts from 0.
    fn begin(&mut self, now: u64, part: Part) {
        self.traffic.begin(part.stream, part.apart);
        self.starved = 0;
        self.asked = Asked::since(now);
        if let Some(pacing) = &mut self.pacing {
            // A part without pace is as if it had ended for it.
            pacing.start(now, if part.paced { part.ticks } else { Some(0) });
        }
    }

    /// Sets when what is to be sent now was due. Returns how many frames that are.
    #[inline(always)]
    fn take(&mut self, now: u64, paced: bool, end: u64, due: &mut [u64]) -> usize {
        match &mut self.pacing {
            Some(pacing) if paced => {
                let count = pacing.take(now, due);
                if let Pacing::Capture(times) = pacing {
                    self.traffic.go_to(times.position(count));
                }
                count
            }
            _ if now < end => {
                due.fill(now);
                due.len()
            }
            _ => 0,
        }
    }

    /// Whether nothing more becomes due.
    fn is_over(&self, now: u64, paced: bool, end: u64) -> bool {
        match &self.pacing {
            Some(pacing) if paced => pacing.is_over(),
            _ => now >= end,
        }
    }

    /// Frames that were due and are not in a batch.
    fn missed(&self) -> u64 {
        self.pacing.as_ref().map_or(0, Pacing::missed) + self.starved
    }

    /// Index of each stream, and how many frames it has missed: of those that take turns, by their weights.
    fn missed_of_streams(&self) -> Vec<(usize, u64)> {
        let (missed, all) = (u128::from(self.missed()), self.traffic.weights().map(|(_, weight)| weight).sum::<u64>());
        let (mut before, mut share_before) = (0, 0);
        let share = |(index, weight): (usize, u64)| {
            before += weight;
            let share = u64::try_from(missed * u128::from(before) / u128::from(all.max(1))).unwrap_or(u64::MAX);
            (index, share - std::mem::replace(&mut share_before, share))
        };
        self.traffic.weights().map(share).collect()
    }
}

impl<T: TxQueue> Lane<T> {
    /// Creates one that sends nothing yet. `pool` is this lane's own.
    pub(crate) fn new(port: usize, tx: T, pool: &Pool, batch: usize, mut sources: Vec<Source>) -> Self {
        if let [source] = &mut sources[..] {
            source.traffic.prefill(pool);
        }
        sources.iter_mut().enumerate().for_each(|(number, source)| source.number = number);
        sources.sort_by_key(|source| source.pacing.is_none());
        let streams: usize = sources.iter().map(|source| source.traffic.weights().count()).sum();
        Self {
            port,
            tx,
            sources,
            probe: None,
            others: Vec::new(),
            fair: 0,
            first: 0,
            cache: pool.cache(),
            batch: Batch::with_capacity(batch),
            runs: Runs::default(),
            due: vec![0; batch].into(),
            paced: false,
            stopped: None,
            steered: false,
            handed_before: 0,
            missed_before: vec![0; streams],
            over: None,
            is_cut: false,
            tagged: 0,
            handed: 0,
            streams: vec![Sent::default(); streams],
            limit: 0,
            count: None,
            unsent: 0,
            begun: 0,
            end: 0,
            last: 0,
            looked: 0,
            last_due: 0,
            late: 0,
            late_after: u64::MAX,
        }
    }

    /// Counts frames that are late by more than so many ticks.
    pub(crate) fn late_after(mut self, ticks: u64) -> Self {
        self.late_after = ticks;
        self
    }

    /// Sends frames of another kind as probes: what counts is not known when it arrives.
    pub(crate) fn probe_with(mut self, probe: Option<Traffic>) -> Self {
        self.probe = probe.map(|probe| Source::new(probe, None));
        self
    }

    /// Takes the paces of these sources, which are like its own, for [`Self::exchange_paces`].
    pub(crate) fn set_other_paces(&mut self, mut sources: Vec<Source>) {
        sources.sort_by_key(|source| source.pacing.is_none());
        self.others = sources.into_iter().map(|source| source.pacing).collect();
    }

    pub(crate) fn has_other_paces(&self) -> bool {
        !self.others.is_empty()
    }

    /// From the next part on it has the other paces, if there are any; and then its own again.
    pub(crate) fn exchange_paces(&mut self) {
        self.sources
            .iter_mut()
            .zip(&mut self.others)
            .for_each(|(source, other)| std::mem::swap(&mut source.pacing, other));
    }

    /// Of which streams a receiver can tell by their checksums which frames are damaged.
    pub(crate) fn verifiable(&self) -> Vec<bool> {
        let mut all = vec![false; self.streams.len()];
        let each = self.sources.iter().flat_map(|source| source.traffic.verifiable());
        each.for_each(|(index, verifiable)| all[index] = verifiable);
        all
    }

    /// Streams that it has.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Begins with a part, from number 0 on. What the ring had no room for until now is dropped.
    pub(crate) fn begin(&mut self, now: u64, part: Part) {
        self.cache.free_batch(&mut self.batch);
        self.runs.clear();
        (self.tagged, self.handed, self.last, self.last_due, self.late) = (0, 0, now, now, 0);
        self.streams.fill(Sent::default());
        (self.handed_before, self.over, self.is_cut) = (0, None, false);
        self.missed_before.fill(0);
        self.stopped = self.stopped.map(|_| now);
        self.paced = part.paced;
        self.sort();
        self.limit = part.limit.unwrap_or(u64::MAX);
        (self.count, self.unsent) = (part.limit, 0);
        (self.begun, self.end) = (now, part.ticks.map_or(u64::MAX, |ticks| now.saturating_add(ticks)));
        self.sources.iter_mut().chain(&mut self.probe).for_each(|source| source.begin(now, part));
    }

    /// Those that take turns come first.
    fn sort(&mut self) {
        self.sources.sort_by_key(|source| (source.pacing.is_none(), source.number));
        self.fair = self.sources.iter().filter(|source| !self.paced || source.pacing.is_some()).count();
        self.first = 0;
    }

    /// Lets one more frame be sent of a part without pace.
    pub(crate) fn one_more(&mut self) {
        self.limit = self.tagged + 1;
    }

    /// Ends the part, as somebody wants it: what was not due yet is not sent.
    pub(crate) fn cut(&mut self) {
        (self.limit, self.count) = (self.tagged, None);
    }

    /// Ends the part at `now`, and drops what the ring has no room for. What was due by then is missed.
    pub(crate) fn give_up(&mut self, now: u64) {
        // Frames of a capture that were missed at their times are not sent later.
        let is_over = self.batch.is_empty() && self.sources.iter().all(|one| one.is_over(now, self.paced, self.end));
        let count = self.count.filter(|_| self.end == u64::MAX && !is_over);
        self.unsent = count.map_or(0, |count| count.saturating_sub(self.handed));
        if self.paced && self.tagged < self.limit && self.stopped.is_none() {
            self.sources.iter_mut().filter_map(|source| source.pacing.as_mut()).for_each(|pacing| pacing.miss(now));
        }
        self.cut();
        while let Some((stream, frames)) = self.runs.take(usize::MAX) {
            self.streams[stream].missed += frames as u64;
        }
        self.cache.free_batch(&mut self.batch);
    }

    /// Sends what is due. Returns how many frames were handed to the ring; when, goes to what the streams have in `hand_overs`.
    #[inline(always)]
    pub(crate) fn poll(&mut self, now: u64, hand_overs: &mut [HandOvers]) -> usize {
        self.poll_after(now, hand_overs, |_| ())
    }

    /// The same, and before frames are handed over `before` is told, which has [`Self::pending`].
    #[inline(always)]
    pub(crate) fn poll_after(&mut self, now: u64, hand_overs: &mut [HandOvers], before: impl FnOnce(&Self)) -> usize {
        if self.batch.is_empty() {
            self.looked = now;
            self.fill(now);
        }
        before(self);
        // With an empty batch too: buffers come back by it.
        let sent = self.tx.send(&mut self.cache, &mut self.batch);
        if sent > 0 {
            self.handed += sent as u64;
            self.last = now;
            let mut left = sent;
            while let Some((stream, frames)) = self.runs.take(left) {
                let handed = &mut self.streams[stream].handed;
                if let Some(hand_overs) = hand_overs.get_mut(stream) {
                    #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
                    hand_overs.note(*handed as u32, frames, now);
                }
                *handed += frames as u64;
                left -= frames;
                if left == 0 {
                    break;
                }
            }
        }
        sent
    }

    #[inline(always)]
    fn fill(&mut self, now: u64) {
        let Self { sources, probe, batch, runs, due, cache, .. } = self;
        let sources = match probe {
            Some(probe) if !self.paced => std::slice::from_mut(probe),
            _ => &mut sources[..],
        };
        let mut room = usize::try_from(self.limit - self.tagged).unwrap_or(usize::MAX).min(due.len());
        if room == 0 || (self.paced && self.stopped.is_some()) {
            return;
        }
        runs.clear();
        for nth in 0..sources.len() {
            let turn = self.first + nth;
            let turn = if turn >= self.fair { turn - self.fair } else { turn };
            let Some(source) = sources.get_mut(if nth < self.fair { turn } else { nth }) else { break };
            let count = source.take(now, self.paced, self.end, &mut due[..room]);
            let written = source.traffic.write(cache, batch, due.get(..count).unwrap_or_default(), runs);
            source.starved += (count - written) as u64;
            if let Some([first, ..]) = due.get(..count)
                && let Some(last) = due.get(count - 1)
            {
                self.last_due = *last;
                if now.saturating_sub(*first) > self.late_after {
                    self.late += count as u64;
                }
            }
            self.tagged += written as u64;
            room -= count;
            if room == 0 {
                break;
            }
        }
        self.first = if self.first + 1 >= self.fair { 0 } else { self.first + 1 };
    }

    /// What is tagged and not handed over yet: stream, and how many frames of it follow each other, from [`Self::handed_of`] it on.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (usize, usize)> {
        self.runs.left().iter().map(|(stream, frames)| (usize::from(*stream), *frames))
    }

    /// Sends frames that say how many were handed over of each stream, from the source and the stream of it in `from` on. Returns where to
    /// go on, or `None` after the last.
    pub(crate) fn end(&mut self, [source, stream]: [usize; 2]) -> Option<[usize; 2]> {
        let Self { sources, cache, batch, streams, .. } = self;
        let handed = |stream: usize| streams.get(stream).map_or(0, |sent| sent.handed);
        let mut next = [source, stream];
        while let Some(source) = sources.get_mut(next[0]).filter(|_| batch.len() < batch.capacity()) {
            next[1] += source.traffic.write_ends(cache, batch, next[1], handed);
            if next[1] < source.traffic.weights().count() {
                break;
            }
            next = [next[0] + 1, 0];
        }
        self.tx.send(&mut self.cache, &mut self.batch);
        (next[0] < self.sources.len()).then_some(next)
    }

    /// Sends a frame that counts for nothing, after all others, with this number of a stream in its tag.
    pub(crate) fn ask(&mut self, stream: u16) {
        let Self { sources, probe, cache, batch, .. } = self;
        let Some(source) = probe.as_mut().or(sources.first_mut()) else { return };
        source.traffic.begin(stream, false);
        source.traffic.write(cache, batch, &[self.last], &mut Runs::default());
        self.tx.send(&mut self.cache, &mut self.batch);
        self.cache.free_batch(&mut self.batch);
    }

    /// Sends on what the ring had no room for. Returns whether nothing is left.
    pub(crate) fn flush(&mut self) -> bool {
        self.tx.send(&mut self.cache, &mut self.batch);
        self.batch.is_empty()
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_done(&self, now: u64) -> bool {
        let is_over = || self.sources.iter().all(|source| source.is_over(now, self.paced, self.end));
        self.batch.is_empty() && (self.tagged >= self.limit || is_over())
    }

    /// Whether nothing more becomes due, though the ring may have no room for what is tagged. Without a time at which it ends, a ring
    /// that has taken nothing for `patience` ticks ends it.
    pub(crate) fn is_past_end(&self, now: u64, patience: u64) -> bool {
        let stands_still = !self.batch.is_empty() && now.saturating_sub(self.last.max(self.looked)) >= patience;
        now >= self.end || self.tagged >= self.limit || (self.end == u64::MAX && stands_still)
    }

    /// Frames handed over so far.
    #[inline(always)]
    pub(crate) fn handed(&self) -> u64 {
        self.handed
    }

    /// Those of them that count, as counters may have begun anew.
    pub(crate) fn counted(&self) -> u64 {
        self.handed - self.handed_before
    }

    /// Frames of the count that alone was to end the part that were not handed over: the ring stood still.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Frames of a stream that were handed over so far.
    #[inline(always)]
    pub(crate) fn handed_of(&self, stream: usize) -> u64 {
        self.streams.get(stream).map_or(0, |sent| sent.handed)
    }

    /// Ticks from the begin, of the part or of counters, to the last hand-over.
    pub(crate) fn ticks(&self) -> u64 {
        self.last.saturating_sub(self.begun)
    }

    /// Ticks by which the last frame was late.
    pub(crate) fn lateness(&self) -> u64 {
        self.last.saturating_sub(self.last_due)
    }

    /// Frames that came too soon after the one before them, as that was late: those of a burst but its first, and the one behind it.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// How much of each stream was handed over so far, and missed since counters began.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let mut all = self.sent_ever();
        all.iter_mut()
            .zip(&self.missed_before)
            .for_each(|(sent, before)| sent.missed = sent.missed.saturating_sub(*before));
        all
    }

    fn sent_ever(&self) -> Vec<Sent> {
        let mut all = self.streams.clone();
        for (stream, missed) in self.sources.iter().flat_map(Source::missed_of_streams) {
            all[stream].missed += missed;
        }
        all
    }

    /// Frames that were due and not handed over since counters began.
    pub(crate) fn missed(&self) -> u64 {
        let given_up: u64 = self.streams.iter().map(|sent| sent.missed).sum();
        let ever = self.sources.iter().map(Source::missed).sum::<u64>() + given_up + self.batch.len() as u64;
        ever.saturating_sub(self.missed_before.iter().sum())
    }
}
