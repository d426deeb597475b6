//! A stream that is sent by one lcore and received by several: what they share of it, and what each of them knows.

use crate::gaps::Gaps;
use crate::marks::Marks;
use crate::stream::lower;
use crate::{Latency, Seen, Tag, Verdict, WINDOW};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Numbers of a word of [`Shared::arrived`], whose upper half says which of them these are.
const NUMBERS: u64 = 32;
/// One more than a window has: a word is given up as a whole, when the first of its numbers is to be that of a later one.
const WORDS: u64 = WINDOW / NUMBERS + 1;
/// Gaps that a receiver remembers, of all senders.
const GAPS: usize = 2048;
/// Bits of a count beside that of clears.
const COUNT: u32 = 48;

/// What the sender of a stream and those who receive its frames share: the numbers that have arrived at any of them, when frames were handed
/// over, and counts. Frames are numbered from 0. At most 312 KiB, and 128 bytes for each receiver.
///
/// Who receives touches no word that another wrote unless frames of the stream arrive at both.
///
/// ```
/// use measure::{Kind, Share, Shared, Tag, TagWriter};
///
/// let shared = Shared::new(2);
/// let mut receivers = [Share::new(0, 1), Share::new(1, 1)];
/// shared.begin(1_000);
/// // Three frames, due at 1,000, are handed over at 1,200; two arrive, one of them at both.
/// shared.note(0, 3, 1_200);
/// let mut frame = [0; 60];
/// for (receiver, number) in [(0, 0), (1, 2), (0, 2)] {
///     TagWriter::new(Kind::Full, 7, 60, 42, None)?.write(&mut frame, number, 1_000);
///     let tag = Tag::parse(&frame).ok_or("there is a tag")?;
///     receivers[receiver].saw(0, &shared, tag, 1_500);
/// }
/// let mut verdict = shared.verdict(3);
/// receivers.iter().for_each(|receiver| verdict += receiver.unusual());
/// assert_eq!((verdict.sent, verdict.received, verdict.lost, verdict.duplicate), (3, 2, 1, 1));
/// assert_eq!(receivers[1].latencies().map(|latency| latency.summary().map(|all| all.max)), [Some(500.0), Some(300.0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Shared {
    /// Frames that may have been handed over, in a cache line that is written with every burst.
    offered: Alone,
    /// How often it was cleared, and the first number that counts since then, in [`COUNT`] bits.
    since: AtomicU64,
    /// Times before this are none of this stream's.
    begun: AtomicU64,
    /// Which numbers have arrived: for each [`NUMBERS`], modulo [`WORDS`] of these, how often it has gone round, plus 1, and a bit of each.
    arrived: Box<[AtomicU64]>,
    /// The lower halves of the times of hand-overs, by number modulo [`WINDOW`].
    hand_overs: Box<[AtomicU32]>,
    /// Times of older ones.
    marks: Marks,
    receivers: Box<[Receiver]>,
}

/// A count that shares its cache lines with nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// What a receiver tells of the stream.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Receiver {
    /// How often it was cleared, as far as the receiver has seen, and the different numbers that arrived since then, in [`COUNT`] bits.
    received: AtomicU64,
    /// One more than the highest number.
    next: AtomicU64,
}

impl Shared {
    /// Creates it for so many receivers, of which none has received anything.
    #[must_use]
    pub fn new(receivers: usize) -> Self {
        Self {
            offered: Alone::default(),
            since: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            arrived: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            hand_overs: (0..WINDOW).map(|_| AtomicU32::new(0)).collect(),
            marks: Marks::new(),
            receivers: (0..receivers).map(|_| Receiver::default()).collect(),
        }
    }

    /// The sender begins: its first frame, of number 0, is due at `now`.
    pub fn begin(&self, now: u64) {
        self.begun.store(now, Ordering::Relaxed);
        self.marks.clear();
        self.offered.0.store(0, Ordering::Release);
    }

    /// The sender is about to hand over `frames` frames from number `first` on, at `now`: others may see them from then on.
    #[inline]
    pub fn note(&self, first: u64, frames: usize, now: u64) {
        let end = first + frames as u64;
        self.marks.note(first, now);
        // Before times are overwritten, so that who reads one of those knows that they were.
        self.offered.0.store(end, Ordering::Relaxed);
        for number in first..end {
            self.hand_overs[index(number, WINDOW)].store(lower(now), Ordering::Release);
        }
    }

    /// The sender forgets all that came, when it has handed over `sent` frames: these count for nothing any more. `clears` is how often
    /// all senders of a stream were told so.
    pub fn clear(&self, sent: u64, clears: u64) {
        self.since.store(packed(clears, sent), Ordering::Release);
    }

    /// Returns what became of the stream, of which the sender has handed over `sent` frames; if a higher number has arrived, that many.
    /// What else there is to tell of it, receivers have in [`Share::unusual`].
    #[must_use]
    pub fn verdict(&self, sent: u64) -> Verdict {
        let (clears, first) = unpacked(self.since.load(Ordering::Acquire));
        let next = self.receivers.iter().map(|one| one.next.load(Ordering::Acquire)).max().unwrap_or(0);
        let of_now =
            |one: &Receiver| Some(unpacked(one.received.load(Ordering::Acquire))).filter(|(of, _)| *of == clears);
        let received = self.receivers.iter().filter_map(of_now).map(|(_, received)| received).sum::<u64>();
        let sent = sent.max(next).saturating_sub(first).max(received);
        Verdict { sent, received, lost: sent - received, ..Verdict::default() }
    }

    /// Returns what became so far of those frames of the stream that are no longer under way at `now`: received, or lost as a higher number
    /// has arrived. What was handed over less than `patience` ticks before may still be in another queue than that, and is under way.
    #[must_use]
    pub fn verdict_so_far(&self, now: u64, patience: u64) -> Verdict {
        let Verdict { received, lost, .. } = self.verdict(0);
        let first = unpacked(self.since.load(Ordering::Acquire)).1;
        let next = self.receivers.iter().map(|one| one.next.load(Ordering::Acquire)).max().unwrap_or(0);
        let is_recent = |number: &u64| {
            let time = self.hand_overs[index(*number, WINDOW)].load(Ordering::Relaxed);
            u64::from(lower(now).wrapping_sub(time)) < patience
        };
        let (oldest, mut end, mut under_way) = (first.max(next.saturating_sub(WINDOW)), next, 0);
        // From the highest down, a word at a time: where its first number is recent, all are.
        while end > oldest {
            let word = (end - 1) / NUMBERS;
            let begin = (word * NUMBERS).max(oldest);
            let recent = match is_recent(&begin) {
                true => begin,
                false => (begin..end).rev().take_while(is_recent).last().unwrap_or(end),
            };
            let bits = (recent..end).fold(0, |bits, number| bits | 1 << (number % NUMBERS));
            under_way += u64::from((self.missing(word) & bits).count_ones());
            end = if recent > begin { oldest } else { begin };
        }
        let lost = lost.saturating_sub(under_way);
        Verdict { sent: received + lost, received, lost, ..Verdict::default() }
    }

    /// Which numbers of a word have not arrived, a bit of each; none of one that later numbers have.
    fn missing(&self, word: u64) -> u32 {
        let held = self.arrived[index(word, WORDS)].load(Ordering::Relaxed);
        match (word / WORDS + 1).cmp(&(held >> NUMBERS)) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => !lower(held),
            std::cmp::Ordering::Greater => u32::MAX,
        }
    }

    /// Notes that a number has arrived. Each is new once, whoever receives it.
    #[inline]
    fn claim(&self, number: u64) -> Seen {
        let place = number / NUMBERS;
        let word = &self.arrived[index(place, WORDS)];
        let (turn, bit) = (place / WORDS + 1, 1 << (number % NUMBERS));
        let mut old = word.load(Ordering::Relaxed);
        // Another try means that another has set a bit or begun a turn, of which there are 32 and ever later ones.
        loop {
            let new = match turn.cmp(&(old >> NUMBERS)) {
                std::cmp::Ordering::Less => return Seen::Late,
                std::cmp::Ordering::Equal if old & bit != 0 => return Seen::Duplicate,
                std::cmp::Ordering::Equal => old | bit,
                std::cmp::Ordering::Greater => turn << NUMBERS | bit,
            };
            match word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Seen::New,
                Err(now) => old = now,
            }
        }
    }

    /// When a frame was handed over, in ticks modulo 2^32; `None` if [`WINDOW`] frames have been since.
    #[inline]
    fn hand_over(&self, number: u64) -> Option<u32> {
        let time = self.hand_overs[index(number, WINDOW)].load(Ordering::Acquire);
        (self.offered.0.load(Ordering::Relaxed).wrapping_sub(number) <= WINDOW).then_some(time)
    }
}

/// What one of several receivers knows of a stream, which each of several senders numbers on its own. Frames are reordered if one of a higher
/// number of their sender has arrived before at the same receiver: between receivers there is no order. At most 192 KiB, and 160 bytes for
/// each sender.
#[derive(Clone, Debug)]
pub struct Share {
    /// Which of the receivers it is.
    me: usize,
    senders: Vec<Arrivals>,
    due: Latency,
    hand_over: Latency,
    /// Of the sender that has been told it most often.
    clears: u64,
    impossible_times: u64,
}

/// What has arrived of a sender.
#[derive(Clone, Debug)]
struct Arrivals {
    /// As [`Shared::since`] was.
    since: u64,
    /// One more than the highest number.
    next: u64,
    received: u64,
    unusual: Verdict,
    gaps: Gaps,
}

impl Arrivals {
    /// With so many gaps that are remembered.
    fn new(since: u64, gaps: usize) -> Self {
        let next = unpacked(since).1;
        Self { since, next, received: 0, unusual: Verdict::default(), gaps: Gaps::of(gaps) }
    }

    /// A number that no receiver has seen before.
    fn add(&mut self, number: u64) {
        if number >= self.next {
            if number > self.next {
                self.gaps.leave_out(self.next, self.received, number);
            }
            self.next = number + 1;
        } else {
            let extent = self.received - self.gaps.arrived_before(number);
            self.unusual.reordered += 1;
            self.unusual.extents += extent;
            self.unusual.greatest_extent = self.unusual.greatest_extent.max(extent);
        }
        self.received += 1;
    }
}

impl Share {
    /// Creates that of receiver `me`, to which nothing of so many senders has come.
    #[must_use]
    pub fn new(me: usize, senders: usize) -> Self {
        let (due, hand_over) = (Latency::new(), Latency::new());
        Self {
            me,
            senders: vec![Arrivals::new(0, gaps(senders)); senders],
            due,
            hand_over,
            clears: 0,
            impossible_times: 0,
        }
    }

    /// Notes a frame of a sender that has arrived by `now`. `shared` is that of the sender; it is to be the same each time.
    pub fn saw(&mut self, sender: usize, shared: &Shared, tag: Tag, now: u64) {
        // What is handed over after a clear arrives after it.
        self.look(sender, shared);
        let Some(arrivals) = self.senders.get_mut(sender) else { return };
        let (clears, first) = unpacked(arrivals.since);
        if clears != self.clears {
            // This sender is about to forget it too.
            return;
        }
        let age = tag.age(now);
        if age.is_some_and(|age| age > now.wrapping_sub(shared.begun.load(Ordering::Relaxed))) {
            self.impossible_times += 1;
            return;
        }
        let offered = shared.offered.0.load(Ordering::Relaxed);
        let back = lower(offered).wrapping_sub(tag.number);
        let Some(number) = offered.checked_sub(back.into()).filter(|_| (1..=1 << 31).contains(&back)) else {
            arrivals.unusual.impossible += 1;
            return;
        };
        if number < first {
            return;
        }
        match shared.claim(number) {
            Seen::New => arrivals.add(number),
            Seen::Late => return arrivals.unusual.late += 1,
            _ => return arrivals.unusual.duplicate += 1,
        }
        if let Some(told) = shared.receivers.get(self.me) {
            told.next.store(arrivals.next, Ordering::Release);
            told.received.store(packed(clears, arrivals.received), Ordering::Release);
        }
        let lower_half = shared.hand_over(number);
        if let Some(age) = age {
            self.due.record(age);
            if let Some(time) = lower_half {
                // Of the time from the due time to the hand-over 32 bits are known.
                let lateness = time.wrapping_sub(lower(now.wrapping_sub(age)));
                return self.hand_over.record(age.saturating_sub(lateness.into()));
            }
        }
        if let Some(time) = shared.marks.time(number, lower_half) {
            let wait = now.saturating_sub(time);
            // A time between two marks may be before the frame was due.
            self.hand_over.record(age.map_or(wait, |age| age.min(wait)));
        }
    }

    /// Forgets all that came of a sender if that has been cleared, and all times if it is the first.
    #[inline]
    pub fn look(&mut self, sender: usize, shared: &Shared) {
        let since = shared.since.load(Ordering::Acquire);
        if self.senders.get(sender).is_some_and(|arrivals| arrivals.since != since) {
            self.forget(sender, shared, since);
        }
    }

    #[cold]
    fn forget(&mut self, sender: usize, shared: &Shared, since: u64) {
        let (clears, first) = unpacked(since);
        self.senders[sender] = Arrivals::new(since, gaps(self.senders.len()));
        if let Some(told) = shared.receivers.get(self.me) {
            told.next.store(first, Ordering::Release);
            told.received.store(packed(clears, 0), Ordering::Release);
        }
        if clears != self.clears && clears.wrapping_sub(self.clears) & CLEARS <= CLEARS / 2 {
            self.clears = clears;
            self.due.clear();
            self.hand_over.clear();
            self.impossible_times = 0;
        }
    }

    /// Returns how many different numbers have arrived here.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.senders.iter().map(|arrivals| arrivals.received).sum()
    }

    /// Returns how many frames were duplicate, late, reordered or impossible. What was sent, received and lost is in [`Shared::verdict`].
    /// What senders have cleared is in it until [`Self::look`] or a frame that they have sent since.
    #[must_use]
    pub fn unusual(&self) -> Verdict {
        let mut all = Verdict::default();
        self.senders.iter().for_each(|arrivals| all += arrivals.unusual);
        all
    }

    /// Returns how many frames had numbers or times that cannot be.
    #[must_use]
    pub fn impossible(&self) -> u64 {
        self.unusual().impossible + self.impossible_times
    }

    /// Returns the times from the due time and from the hand-over to the ring, in ticks.
    #[must_use]
    pub fn latencies(&self) -> [&Latency; 2] {
        [&self.due, &self.hand_over]
    }
}

/// What the sender and a receiver of a stream take in memory together.
const _: () = assert!(
    WORDS * size_of::<AtomicU64>() as u64
        + WINDOW * size_of::<AtomicU32>() as u64
        + (Marks::BYTES + 2 * Latency::BYTES + Gaps::bytes(GAPS)) as u64
        <= 508 << 10
);

/// Gaps that are remembered of each of so many senders.
fn gaps(senders: usize) -> usize {
    (GAPS / senders.max(1)).max(1)
}

/// The highest number of clears; the next is 0.
const CLEARS: u64 = (1 << (64 - COUNT)) - 1;

fn packed(clears: u64, count: u64) -> u64 {
    clears << COUNT | count & ((1 << COUNT) - 1)
}

fn unpacked(both: u64) -> (u64, u64) {
    (both >> COUNT, both & ((1 << COUNT) - 1))
}

#[inline(always)]
fn index(number: u64, of: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "less than a window")]
    let index = (number % of) as usize;
    index
}
