//! One port sends, another receives: what is counted on the way.

use super::held::Earlier;
use super::hosts::{Attached, Listener};
use super::pair::{COUNTED, ECHO, LEARNING, PROBE, Phase, WARM_UP};
use super::spread::Spread;
use super::teach::Teacher;
use crate::control::{DirectionState, StreamState};
use crate::lane::{Lane, Sent};
use crate::tail::{Tail, checked};
use cli::counters::Counters;
use cli::lane::{Ended, Tally};
use lcore::{Clock, PacedRx};
use measure::{Checked, HandOvers, Stream, Tag, Verdict, Window, check};
use mempool::{Batch, Packet, Pool, PoolCache, frames};
use nic::{AnyRxQueue, AnyTxQueue, RxCounters, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A direction at work.
#[derive(Debug)]
pub(crate) struct Direction<R = AnyRxQueue, T = AnyTxQueue> {
    pub(crate) lane: Lane<T>,
    pub(crate) to: usize,
    pub(crate) rx: PacedRx<R>,
    /// Buffers go home to the pool of the port that receives.
    cache: PoolCache,
    /// Number of the first of its streams.
    pub(super) base: u16,
    hand_overs: Vec<HandOvers>,
    pub(crate) streams: Vec<Stream>,
    how: How,
    /// What it has to do with the other queue pairs of the two ports, if there are any: then that is in place of `streams` and `hand_overs`.
    pub(super) spread: Option<Box<Spread>>,
    /// Frames that arrived, whatever they are, where those that count have no tag.
    arrived: u64,
    pub(crate) answered: bool,
    pub(super) echoes: Echoes,
    /// Streams of runs before on the same ports, and frames of them that come now.
    earlier: Earlier,
    pub(crate) late: u64,
    /// The longest time, in ticks, for which it was neither sent nor received, from the first frame after the probes to the last.
    pub(crate) away: u64,
    /// Frames that are none of this direction's.
    pub(crate) foreign: u64,
    /// Checksums of what arrives are verified, and of which streams: those of what is sent are right.
    verifies: bool,
    pub(crate) verified: Vec<bool>,
    /// Frames whose checksum is wrong, and those that the queue refused before any counted.
    pub(super) damaged: u64,
    /// Frames of streams that count whose checksums are not read any more.
    pub(super) unread: u64,
    refused_before: u64,
    /// What was sent in the warm-up, once it is over, and what arrived of that at the only queue pair.
    pub(crate) opening: Option<Sent>,
    pub(crate) opening_arrived: Window,
    /// How much of each stream was sent; `None` if no frame was to count.
    pub(crate) sent: Option<Vec<Sent>>,
    /// It ended while something was still waited for.
    pub(super) is_broken_off: bool,
    pub(crate) tally: Tally,
    pub(crate) progress: Arc<Progress>,
    /// What its queues had counted before.
    before: Counters,
    /// The host that the receiving port is, and the one that the sending port is if nothing else receives there.
    pub(super) host: Option<Box<Attached<T>>>,
    pub(super) listener: Option<Box<Listener<R>>>,
    /// What the receiving port sends if no direction sends by it.
    pub(super) teacher: Option<Box<Teacher<T>>>,
}

/// Frames that are sent behind those that count: once one has come, none of these is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echoes {
    pub(super) sent: u64,
    pub(super) came: u64,
}

/// How frames that count are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By the tag in their last bytes, in one buffer.
    Tags,
    /// By the tag in their last bytes, which may lie in several buffers.
    SplitTags,
    /// They are all that is no probe.
    Number,
    /// By the tag in their last bytes, and they are of any queue pair.
    Spread,
}

/// How far a direction is, for the live view.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress([AtomicU64; 4]);

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    pub(crate) fn new(lane: Lane<T>, to: usize, rx: R, pool: &Pool, base: u16, how: How) -> Self {
        let mut before = Counters::default();
        before.set_rx(rx.counters());
        before.set_tx(lane.tx.counters());
        Self {
            to,
            before,
            rx: PacedRx::new(rx),
            cache: pool.cache(),
            base,
            hand_overs: (0..lane.streams()).map(|_| HandOvers::new()).collect(),
            streams: (0..lane.streams()).map(|index| stream(base, index)).collect(),
            how,
            spread: None,
            arrived: 0,
            answered: false,
            echoes: Echoes::default(),
            earlier: Earlier::default(),
            late: 0,
            away: 0,
            foreign: 0,
            verifies: false,
            verified: vec![false; lane.streams()],
            damaged: 0,
            unread: 0,
            refused_before: 0,
            opening: None,
            opening_arrived: Window::new(),
            sent: None,
            is_broken_off: false,
            tally: Tally::new(Some((to, 0)), Some((lane.port, 0))),
            progress: Arc::default(),
            host: None,
            listener: None,
            teacher: None,
            lane,
        }
    }

    /// Verifies the checksum of each frame that arrives, of streams whose own are right.
    pub(crate) fn verify(mut self, wanted: bool) -> Self {
        if wanted {
            self.verified = self.lane.verifiable();
            self.verifies = self.verified.contains(&true);
        }
        self
    }

    /// Whether a frame that arrived is not as it was sent, by a checksum that was right then. `number` is that of a stream in its tag, from
    /// the first of its sender on. One that had such a checksum, and has none that is read, is counted.
    #[inline(always)]
    pub(super) fn is_damaged(&mut self, frame: &[Packet], number: Option<u16>) -> bool {
        let checked = if self.verifies { checked(frame) } else { Checked::Right };
        if checked == Checked::Right || number.is_some_and(|number| self.may_be_wrong(number)) {
            return false;
        }
        self.unread += u64::from(checked == Checked::Unread && number.is_some_and(|number| number >= COUNTED));
        checked == Checked::Wrong
    }

    /// Whether the checksums of a stream may be wrong as they are sent. Those of probes and the like are as those of any stream that counts.
    #[cold]
    #[inline(never)]
    fn may_be_wrong(&self, number: u16) -> bool {
        match number.checked_sub(COUNTED) {
            Some(index) => self.verified.get(usize::from(index)).is_some_and(|verified| !verified),
            None => self.verified.contains(&false),
        }
    }

    /// Tells frames of runs before on the same ports from those of others.
    pub(crate) fn after(mut self, earlier: Earlier) -> Self {
        self.earlier = earlier;
        self
    }

    /// Makes it one of several queue pairs.
    pub(crate) fn spread(mut self, spread: Box<Spread>) -> Self {
        (self.how, self.spread) = (How::Spread, Some(spread));
        let [queue, _] = self.queue();
        self.tally = Tally::new(Some((self.to, queue)), Some((self.lane.port, queue)));
        (self.streams, self.hand_overs) = (Vec::new(), Vec::new());
        self
    }

    /// Which of the queue pairs of its ports it is, and how many there are.
    pub(crate) fn queue(&self) -> [usize; 2] {
        self.spread.as_ref().map_or([0, 1], |spread| spread.place())
    }

    /// Whether probes have come back: of all queue pairs, as what one sends may arrive at any.
    pub(super) fn hears(&self) -> bool {
        self.spread.as_ref().map_or(self.answered, |spread| spread.all_answered())
    }

    /// A warm-up has the other paces of the lane, if there are any, as an overload.
    pub(super) fn change_pace(&mut self, now: u64, phase: Phase) {
        if phase == Phase::WarmUp {
            self.lane.exchange_paces();
            self.opening = Some(Sent::default());
        } else if let Some(opening) = &mut self.opening {
            // What became due since the last look at it was not sent either.
            self.lane.give_up(now);
            *opening = Sent { handed: self.lane.handed(), missed: self.lane.missed() };
            self.lane.exchange_paces();
        }
    }

    /// Forgets what came until now, at the begin of the part that counts. Its first frames are due already, so memory is had before.
    pub(super) fn begin_counting(&mut self, now: u64) {
        match &self.spread {
            // What others count may have begun.
            Some(spread) => spread.begin_counting(now),
            None => self.streams.iter_mut().for_each(|stream| stream.begin(now)),
        }
        (self.foreign, self.arrived, self.damaged, self.unread) = (0, 0, 0, 0);
        self.refused_before = self.refused();
    }

    /// Begins counters anew while frames count: what was sent until now, also what of it is still under way, counts for nothing.
    /// Frames without tags cannot be told apart, so they go on being counted.
    /// `clears` is how often that was asked for, and `has_begun` says whether what was sent until now is of what counts.
    pub(super) fn clear(&mut self, now: u64, clears: u64, has_begun: bool) {
        if self.how == How::Number {
            return;
        }
        if let Some(spread) = &mut self.spread {
            spread.clear(|index| if has_begun { self.lane.handed_of(index) } else { 0 }, clears);
        }
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.clear(self.lane.handed_of(index));
        }
        self.lane.clear(now);
        // At the end it is noted already.
        self.sent.iter_mut().flatten().for_each(|sent| sent.missed = 0);
        (self.foreign, self.damaged, self.unread) = (0, 0, 0);
        self.refused_before = self.refused();
    }

    /// Forgets what other queue pairs have cleared since.
    pub(super) fn look_at_clears(&mut self) {
        if let Some(spread) = &mut self.spread {
            spread.look();
        }
    }

    /// How it is, but for its streams.
    pub(super) fn state(&self) -> DirectionState {
        let (from, to, foreign, damaged, unread) = (self.lane.port, self.to, self.foreign, self.damaged(), self.unread);
        let foreign = self.untagged().map_or(foreign, |arrived| arrived.saturating_sub(self.lane.counted()));
        DirectionState { from, to, foreign, damaged, unread, streams: Vec::new() }
    }

    /// How a stream is.
    pub(super) fn state_of(&self, index: usize) -> Option<StreamState> {
        let sent = self.lane.sent().get(index).copied()?;
        let asked = self.lane.asked().get(index).copied().flatten();
        if let Some(spread) = &self.spread {
            let share = spread.shares.get(index)?;
            let ([from_due, from_ring], impossible) = (share.latencies().map(Clone::clone), share.impossible());
            let (counted, verdict) = (spread.verdict(index, sent.handed).sent, spread.verdict_so_far(index));
            let (sent, missed) = (counted, sent.missed);
            return Some(StreamState { asked, sent, missed, verdict, impossible, from_due, from_ring });
        }
        let stream = self.streams.get(index)?;
        let counted = stream.verdict(sent.handed).sent;
        let verdict = match self.untagged() {
            Some(arrived) => {
                let received = arrived.min(counted);
                Verdict { sent: received, received, ..Verdict::default() }
            }
            None => stream.verdict(0),
        };
        let ([from_due, from_ring], impossible) = (stream.latencies().map(Clone::clone), stream.impossible());
        Some(StreamState { asked, sent: counted, missed: sent.missed, verdict, impossible, from_due, from_ring })
    }

    /// Receives a burst. Returns how many frames of the counted streams were in it.
    #[inline(always)]
    pub(super) fn receive(&mut self, clock: &mut Clock, batch: &mut Batch) -> usize {
        let received = self.rx.recv(clock, &mut self.cache, batch).len();
        if received == 0 {
            return 0;
        }
        let cycles = clock.lap();
        let counted = self.look(batch, clock);
        self.cache.free_batch(batch);
        self.tally.counters.cycles += cycles + clock.lap();
        counted
    }

    /// Sends what is due. Returns how many frames that were.
    #[inline(always)]
    pub(super) fn send(&mut self, now: u64, phase: Phase) -> usize {
        let counts = phase == Phase::Counted || phase == Phase::Flush;
        if counts && self.spread.is_some() {
            return self.send_spread(now);
        }
        self.lane.poll(now, if counts { &mut self.hand_overs } else { &mut [] })
    }

    #[inline(always)]
    fn look(&mut self, batch: &Batch, clock: &mut Clock) -> usize {
        let ([stream], How::Tags) = (&mut self.streams[..], self.how) else { return self.look_apart(batch, clock) };
        if self.verifies && !batch.iter().all(|packet| check(packet.data(), []) == Checked::Right) {
            return self.look_apart(batch, clock);
        }
        let frames = batch.iter().map(Packet::data);
        let others = stream.saw(frames, clock.now(), self.lane.handed(), self.hand_overs.first());
        if others > 0 {
            self.look_at_others(batch, clock);
        }
        batch.len() - others
    }

    /// A frame's tag is in its last packet; so those before are of no frame that counts.
    #[cold]
    #[inline(never)]
    fn look_at_others(&mut self, batch: &Batch, clock: &mut Clock) {
        let counted = self.base.wrapping_add(COUNTED);
        for frame in frames(batch) {
            let Some(last) = frame.last().filter(|last| !last.continues()) else { continue };
            match if frame.len() == 1 { Tag::find(last.data()) } else { Tag::parse(last.data()) } {
                Some(tag) if tag.stream == counted => {}
                other => self.saw_other(other, frame, clock),
            }
        }
    }

    /// Looks at frames of several streams, of several buffers, damaged or without tags, one by one.
    #[inline(never)]
    fn look_apart(&mut self, batch: &Batch, clock: &mut Clock) -> usize {
        if self.how == How::Spread {
            return self.look_spread(batch, clock);
        }
        let mut counted = 0;
        for frame in frames(batch) {
            let mut tail = Tail::default();
            let end = tail.of(frame);
            let number = if self.verifies { Tag::find(end) } else { None };
            if self.is_damaged(frame, number.map(|tag| tag.stream.wrapping_sub(self.base))) {
                self.damaged += 1;
                continue;
            }
            if self.how == How::Number {
                match Tag::find(end) {
                    Some(tag) if tag.stream == self.base.wrapping_add(PROBE) => self.answered = true,
                    Some(tag) if tag.stream == self.base.wrapping_add(ECHO) => self.echoes.came += 1,
                    Some(tag) if tag.stream == self.base.wrapping_add(LEARNING) => {}
                    None if self.is_answered(frame, clock) => {}
                    _ => (self.arrived, counted) = (self.arrived + 1, counted + 1),
                }
                continue;
            }
            let tag = Tag::find(end);
            let index = tag.map(|tag| usize::from(tag.stream.wrapping_sub(self.base).wrapping_sub(COUNTED)));
            match index.and_then(|index| Some((index, self.streams.get_mut(index)?))) {
                Some((index, stream)) => {
                    let (sent, hand_overs) = (self.lane.handed_of(index), self.hand_overs.get(index));
                    stream.saw_one(end, clock.now(), sent, hand_overs);
                    counted += 1;
                }
                None => self.saw_other(tag, frame, clock),
            }
        }
        counted
    }

    pub(super) fn saw_other(&mut self, tag: Option<Tag>, frame: &[Packet], clock: &mut Clock) {
        match tag.map(|tag| (tag.stream.wrapping_sub(self.base), tag.number)) {
            Some((PROBE, _)) => self.answered = true,
            Some((ECHO, _)) => self.echoes.came += 1,
            Some((WARM_UP, number)) => {
                let sent = self.opening.filter(|sent| sent.handed > 0).map_or(self.lane.handed(), |sent| sent.handed);
                self.opening_arrived.set_sent(sent);
                self.opening_arrived.saw(number);
            }
            Some((LEARNING, _)) => {}
            None if self.is_answered(frame, clock) => {}
            _ if tag.is_some_and(|tag| self.earlier.contains(tag.stream)) => self.late += 1,
            _ => self.foreign += 1,
        }
    }

    /// Whether all that was sent has arrived.
    pub(super) fn is_complete(&self) -> bool {
        if let Some(spread) = &self.spread {
            return self.sent.as_ref().is_none_or(|sent| spread.is_complete(sent));
        }
        let mut sent = self.sent.iter().flatten();
        if self.how == How::Number {
            return sent.next().is_some_and(|sent| sent.handed <= self.arrived);
        }
        self.streams.iter().all(|stream| sent.next().is_some_and(|sent| stream.verdict(sent.handed).lost == 0))
    }

    /// Sends one more echo.
    pub(super) fn ask(&mut self) {
        self.lane.ask(self.base.wrapping_add(ECHO));
        self.echoes.sent += 1;
    }

    /// Nothing more is sent of what counts.
    pub(super) fn note_sent(&mut self, now: u64) {
        self.lane.give_up(now);
        self.sent = Some(self.lane.sent());
    }

    /// Frames that the queue has refused since it was opened.
    fn refused(&self) -> u64 {
        let RxCounters { frame_errors, bad_length, too_long, batch_too_small, .. } = self.rx.queue.counters();
        frame_errors + bad_length + too_long + batch_too_small
    }

    /// Frames that arrived while some counted and are not as they were sent: refused by the queue, or with a wrong checksum.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged + self.refused().saturating_sub(self.refused_before)
    }

    /// Frames that arrived, where those that count have no tag.
    pub(super) fn untagged(&self) -> Option<u64> {
        (self.how == How::Number).then_some(self.arrived)
    }

    pub(super) fn publish(&mut self, phase: Phase) {
        self.look_at_clears();
        let counters = &mut self.tally.counters;
        counters.set_rx(self.rx.queue.counters());
        counters.set_tx(self.lane.tx.counters());
        self.tally.publish();
        let received = match &self.spread {
            Some(spread) => spread.received(),
            None => self.untagged().unwrap_or(self.streams.iter().map(Stream::received).sum()),
        };
        let values = [phase as u64, self.lane.counted(), received, self.lane.missed()];
        self.progress.0.iter().zip(values).for_each(|(shared, value)| shared.store(value, Ordering::Relaxed));
    }

    /// What it has counted, for the totals of the ports; without its queues.
    pub(crate) fn end(&self) -> Ended {
        Ended { counters: self.tally.counters - self.before, ..self.tally.end(None, None) }
    }
}

impl Progress {
    /// Phase, frames sent and received in it, and frames missed.
    pub(crate) fn read(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.0[index].load(Ordering::Relaxed))
    }
}

/// The counted stream of an index.
fn stream(base: u16, index: usize) -> Stream {
    let number = base.wrapping_add(COUNTED).wrapping_add(u16::try_from(index).unwrap_or(0));
    Stream::new(number, 0)
}
