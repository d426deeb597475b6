//! A direction with several queue pairs, each on an lcore: every one sends streams that it numbers on its own, and what any has sent may
//! arrive at any.

use super::direction::Direction;
use super::pair::{COUNTED, ECHO, LEARNING, PROBE, WARM_UP};
use crate::lane::{Lane, Sent};
use crate::tail::Tail;
use lcore::Clock;
use measure::{Share, Shared, Tag, Verdict};
use mempool::{Batch, frames};
use nic::{RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the queue pairs of a direction share.
#[derive(Debug)]
pub(crate) struct Group {
    /// Number of the first stream of the first, and how many numbers each has.
    base: u16,
    width: u16,
    members: Box<[Member]>,
}

/// A queue pair, as the others see it. In the unit of sharing of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Member {
    /// A probe of it came back.
    answered: AtomicBool,
    /// All of it has come, or nothing more is waited for.
    drained: AtomicBool,
    /// When a frame was last counted that it received.
    last_arrival: AtomicU64,
    /// The streams that it sends.
    streams: Vec<Shared>,
}

/// What a queue pair has of its direction.
#[derive(Debug)]
pub(crate) struct Spread {
    group: Arc<Group>,
    me: usize,
    /// What it has received of each stream.
    pub(super) shares: Vec<Share>,
    /// Numbers of each stream, while frames are noted.
    next: Vec<u64>,
}

impl Group {
    /// Creates it for so many queue pairs that send so many streams, numbered from `base` on.
    pub(crate) fn new(base: u16, queues: u16, streams: usize) -> Arc<Self> {
        let member = |_| Member {
            answered: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            last_arrival: AtomicU64::new(0),
            streams: (0..streams).map(|_| Shared::new(queues.into())).collect(),
        };
        let width = COUNTED + u16::try_from(streams).unwrap_or(u16::MAX - COUNTED);
        Arc::new(Self { base, width, members: (0..queues).map(member).collect() })
    }

    /// Who has sent frames with this number of a stream, and which of that one's streams it is.
    fn place(&self, stream: u16) -> Option<(usize, u16)> {
        let number = stream.wrapping_sub(self.base);
        let member = usize::from(number / self.width);
        (member < self.members.len()).then_some((member, number % self.width))
    }
}

impl Spread {
    /// Creates that of queue pair `me`.
    pub(crate) fn new(group: &Arc<Group>, me: usize) -> Box<Self> {
        let share = || Share::new(me, group.members.len());
        let streams = group.members.get(me).map_or(0, |member| member.streams.len());
        let shares = std::iter::repeat_with(share).take(streams).collect();
        Box::new(Self { group: Arc::clone(group), me, shares, next: vec![0; streams] })
    }

    /// Which queue pair it is, and of how many.
    pub(crate) fn place(&self) -> [usize; 2] {
        [self.me, self.group.members.len()]
    }

    fn member(&self) -> &Member {
        &self.group.members[self.me]
    }

    /// Whether a probe of each, or of this one, came back.
    pub(super) fn all_answered(&self) -> bool {
        self.group.members.iter().all(|member| member.answered.load(Ordering::Acquire))
    }

    pub(super) fn is_answered(&self) -> bool {
        self.member().answered.load(Ordering::Acquire)
    }

    /// Nothing more is waited for of this one.
    pub(super) fn note_drained(&self) {
        self.member().drained.store(true, Ordering::Release);
    }

    pub(super) fn all_drained(&self) -> bool {
        self.group.members.iter().all(|member| member.drained.load(Ordering::Acquire))
    }

    /// When a frame was last counted, wherever it arrived.
    pub(super) fn last_arrival(&self) -> u64 {
        self.group.members.iter().map(|member| member.last_arrival.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Its first frame that counts is due now.
    pub(super) fn begin_counting(&self, now: u64) {
        self.member().streams.iter().for_each(|stream| stream.begin(now));
    }

    /// Begins counters anew, when so many frames of each stream were handed over.
    pub(super) fn clear(&mut self, handed: impl Fn(usize) -> u64, clears: u64) {
        self.member().streams.iter().enumerate().for_each(|(index, stream)| stream.clear(handed(index), clears));
        self.look();
    }

    /// Forgets what others have cleared.
    pub(super) fn look(&mut self) {
        for (index, share) in self.shares.iter_mut().enumerate() {
            for (sender, member) in self.group.members.iter().enumerate() {
                share.look(sender, &member.streams[index]);
            }
        }
    }

    /// What became of a stream of which it has sent so many frames, and what was unusual of those that it has received. The sum over all queue
    /// pairs is what became of the stream.
    pub(super) fn verdict(&self, stream: usize, sent: u64) -> Verdict {
        let mut verdict = self.member().streams.get(stream).map_or(Verdict::default(), |shared| shared.verdict(sent));
        if let Some(share) = self.shares.get(stream) {
            verdict += share.unusual();
        }
        verdict
    }

    /// The same while frames are under way: what was handed over less than 10 ms ago may still be in another queue.
    pub(super) fn verdict_so_far(&self, stream: usize) -> Verdict {
        let (now, patience) = (device::tsc::now(), device::tsc::frequency_hz() / 100);
        let shared = self.member().streams.get(stream);
        let mut verdict = shared.map_or(Verdict::default(), |shared| shared.verdict_so_far(now, patience));
        if let Some(share) = self.shares.get(stream) {
            verdict += share.unusual();
        }
        verdict
    }

    /// Whether all that it has sent has arrived somewhere.
    pub(super) fn is_complete(&self, sent: &[Sent]) -> bool {
        let mut all = self.member().streams.iter().zip(sent);
        all.all(|(stream, sent)| stream.verdict(sent.handed).lost == 0)
    }

    /// Different frames that it has received.
    pub(super) fn received(&self) -> u64 {
        self.shares.iter().map(Share::received).sum()
    }

    /// Tells the others of frames that are about to be handed over.
    fn note<T: TxQueue>(&mut self, lane: &Lane<T>, now: u64) {
        let Self { group, me, next, .. } = self;
        for (stream, _) in lane.pending() {
            next[stream] = lane.handed_of(stream);
        }
        for (stream, frames) in lane.pending() {
            group.members[*me].streams[stream].note(next[stream], frames, now);
            next[stream] += frames as u64;
        }
    }
}

/// Whose lcore ended by a panic sends and waits for nothing more: others do not wait for it.
impl Drop for Spread {
    fn drop(&mut self) {
        self.note_drained();
    }
}

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    /// Sends what is due of what counts. Returns how many frames that were.
    #[inline(never)]
    pub(super) fn send_spread(&mut self, now: u64) -> usize {
        let Self { lane, spread: Some(spread), .. } = self else { return 0 };
        lane.poll_after(now, &mut [], |lane| spread.note(lane, now))
    }

    /// Looks at frames one by one. Returns how many of streams that count were among them.
    #[inline(never)]
    pub(super) fn look_spread(&mut self, batch: &Batch, clock: &mut Clock) -> usize {
        let mut counted = 0;
        for frame in frames(batch) {
            let mut tail = Tail::default();
            let tag = Tag::find(tail.of(frame));
            let group = self.spread.as_deref().map(|spread| &spread.group);
            let number = group.zip(tag).and_then(|(group, tag)| group.place(tag.stream));
            if self.is_damaged(frame, number.map(|(_, stream)| stream)) {
                self.damaged += 1;
                continue;
            }
            let Some(spread) = self.spread.as_deref_mut() else { break };
            let place = tag.and_then(|tag| spread.group.place(tag.stream));
            let Some((tag, (sender, stream))) = tag.zip(place) else {
                self.saw_other(tag, frame, clock);
                continue;
            };
            let member = &spread.group.members[sender];
            match stream {
                PROBE => member.answered.store(true, Ordering::Release),
                // None of several queue pairs asks for an echo.
                ECHO | WARM_UP | LEARNING => {}
                _ => {
                    let index = usize::from(stream - COUNTED);
                    if let Some((share, shared)) = spread.shares.get_mut(index).zip(member.streams.get(index)) {
                        share.saw(sender, shared, tag, clock.now());
                    }
                    counted += 1;
                }
            }
        }
        if let Some(spread) = self.spread.as_deref().filter(|_| counted > 0) {
            spread.member().last_arrival.store(clock.now(), Ordering::Relaxed);
        }
        counted
    }
}

#[cfg(test)]
mod tests;
