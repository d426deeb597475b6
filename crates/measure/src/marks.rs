//! When frames were handed over long ago: the time of one in many, and the pauses between.

use crate::stream::lower;
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks that are kept.
const MARKS: usize = 2048;
/// Frames from one to the next at most.
const FRAMES: u64 = 1024;
/// Ticks from one to the next at most, while frames are handed over: 2^32 tell apart what lies between them.
const TICKS: u64 = 1 << 31;
/// Pauses that are kept, and ticks of the shortest: a third of a millisecond or so.
const PAUSES: usize = 256;
const PAUSE: u64 = 1 << 20;

/// Numbers and times of hand-overs, one for each 1,024 frames, or for 2^31 ticks if these are fewer. One thread notes, others may look.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Number and time of each.
    marks: Log<MARKS>,
    /// Pauses: the number of the first frame after each, and the ticks of all up to it.
    pauses: Log<PAUSES>,
    /// The next mark is due at this number, or [`TICKS`] after `marked`.
    next: AtomicU64,
    marked: AtomicU64,
    /// When frames were handed over last.
    last: AtomicU64,
}

impl Marks {
    /// Bytes that they take.
    pub(crate) const BYTES: usize = size_of::<Self>() + (MARKS + PAUSES) * size_of::<[AtomicU64; 2]>();

    pub(crate) fn new() -> Self {
        let [next, marked, last] = [0; 3].map(AtomicU64::new);
        Self { marks: Log::new(), pauses: Log::new(), next, marked, last }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let counts = [&self.marks.count, &self.pauses.count, &self.next, &self.marked, &self.last];
        counts.into_iter().for_each(|one| one.store(0, Ordering::Release));
    }

    /// The next frames, from `number` on, are handed over at `now`.
    #[inline(always)]
    pub(crate) fn note(&self, number: u64, now: u64) {
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        let is_mark = number >= self.next.load(Ordering::Relaxed)
            || now.wrapping_sub(self.marked.load(Ordering::Relaxed)) >= TICKS;
        let pause = now.wrapping_sub(last);
        if is_mark || pause >= PAUSE {
            self.add(number, now, is_mark, pause);
        }
    }

    #[inline(never)]
    fn add(&self, number: u64, now: u64, is_mark: bool, pause: u64) {
        // There is none before the first.
        if pause >= PAUSE && self.marks.count.load(Ordering::Relaxed) > 0 {
            let count = self.pauses.count.load(Ordering::Relaxed);
            let before = count.checked_sub(1).map_or(0, |last| self.pauses.read(last)[1]);
            self.pauses.push([number, before.saturating_add(pause)]);
        }
        if is_mark {
            self.marks.push([number, now]);
            self.next.store(number + FRAMES, Ordering::Relaxed);
            self.marked.store(now, Ordering::Relaxed);
        }
    }

    /// Returns when the frame of this number was handed over, of which the lower half may be known. If not, it lies between two marks, and
    /// so does its time, as if the frames between them came at one rate but for pauses. `None` if it was before all marks, or not yet.
    #[inline(never)]
    pub(crate) fn time(&self, number: u64, lower_half: Option<u32>) -> Option<u64> {
        let before = self.marks.last_to(number)?;
        let [first, begin] = self.marks.read(before);
        let time = match lower_half {
            Some(half) => begin + u64::from(half.wrapping_sub(lower(begin))),
            None if before + 1 >= self.marks.count.load(Ordering::Acquire) => return None,
            None => {
                let [next, end] = self.marks.read(before + 1);
                let all = end.saturating_sub(begin);
                let paused = [first, number, next].map(|number| self.paused_before(number));
                let (paused, all_paused) = match paused {
                    [Some(begun), Some(now), Some(ended)] => (now.saturating_sub(begun), ended.saturating_sub(begun)),
                    _ => (0, 0),
                };
                let moving = u128::from(all.saturating_sub(all_paused)) * u128::from(number - first);
                let moved = moving / u128::from((next - first).max(1));
                begin + paused + u64::try_from(moved).unwrap_or(0)
            }
        };
        self.marks.keeps(before).then_some(time)
    }

    /// Ticks of all pauses up to a frame; `None` if they are not kept any more.
    fn paused_before(&self, number: u64) -> Option<u64> {
        let Some(last) = self.pauses.last_to(number) else {
            let has_all = self.pauses.count.load(Ordering::Acquire) < PAUSES as u64;
            return has_all.then_some(0);
        };
        let [_, ticks] = self.pauses.read(last);
        self.pauses.keeps(last).then_some(ticks)
    }
}

/// The last `ENTRIES` pairs of a number, which never decreases, and something else.
#[derive(Debug)]
struct Log<const ENTRIES: usize> {
    /// By their places modulo `ENTRIES`.
    entries: Box<[[AtomicU64; 2]]>,
    /// How many there were.
    count: AtomicU64,
}

impl<const ENTRIES: usize> Log<ENTRIES> {
    fn new() -> Self {
        Self { entries: (0..ENTRIES).map(|_| <[AtomicU64; 2]>::default()).collect(), count: AtomicU64::new(0) }
    }

    fn push(&self, pair: [u64; 2]) {
        let count = self.count.load(Ordering::Relaxed);
        for (place, value) in self.entry(count).iter().zip(pair) {
            place.store(value, Ordering::Release);
        }
        self.count.store(count + 1, Ordering::Release);
    }

    /// Place of the last whose number is no greater than this one, of those that are kept.
    fn last_to(&self, number: u64) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        // One less than there are, as the oldest may be overwritten.
        let oldest = count.saturating_sub(ENTRIES as u64 - 1);
        let (mut from, mut end) = (oldest, count);
        // Most are wanted of not long ago.
        if from < end && self.read(end - 1)[0] <= number {
            from = end;
        }
        while from < end {
            let middle = from.midpoint(end);
            if self.read(middle)[0] <= number { from = middle + 1 } else { end = middle }
        }
        from.checked_sub(1).filter(|last| *last >= oldest)
    }

    fn read(&self, at: u64) -> [u64; 2] {
        self.entry(at).each_ref().map(|half| half.load(Ordering::Acquire))
    }

    /// Whether what was read there is what had been there: what overwrites it raises the count first.
    fn keeps(&self, at: u64) -> bool {
        self.count.load(Ordering::Relaxed) < at + ENTRIES as u64
    }

    fn entry(&self, at: u64) -> &[AtomicU64; 2] {
        #[expect(clippy::cast_possible_truncation, reason = "less than there are")]
        let place = at as usize % ENTRIES;
        &self.entries[place]
    }
}
