//! When frames were handed over long ago: the time of one in many.

use crate::stream::lower;
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks that are kept.
const MARKS: usize = 2048;
/// Frames from one to the next at most.
const FRAMES: u64 = 1024;
/// Ticks from one to the next at most, while frames are handed over: 2^32 tell apart what lies between them.
const TICKS: u64 = 1 << 31;

/// Numbers and times of hand-overs, one for each 1,024 frames, or for 2^31 ticks if these are fewer. One thread notes, others may look.
#[derive(Debug)]
pub(crate) struct Marks {
    /// Number and time of each, by its place modulo [`MARKS`].
    entries: Box<[[AtomicU64; 2]]>,
    /// How many there were.
    count: AtomicU64,
    /// The next is due at this number, or [`TICKS`] after `last`.
    next: AtomicU64,
    last: AtomicU64,
}

impl Marks {
    /// Bytes that they take.
    pub(crate) const BYTES: usize = size_of::<Self>() + MARKS * size_of::<[AtomicU64; 2]>();

    pub(crate) fn new() -> Self {
        let entries = (0..MARKS).map(|_| <[AtomicU64; 2]>::default()).collect();
        Self { entries, count: AtomicU64::new(0), next: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        [&self.count, &self.next, &self.last].into_iter().for_each(|one| one.store(0, Ordering::Release));
    }

    /// The next frames, from `number` on, are handed over at `now`.
    #[inline(always)]
    pub(crate) fn note(&self, number: u64, now: u64) {
        let is_due = number >= self.next.load(Ordering::Relaxed);
        if is_due || now.wrapping_sub(self.last.load(Ordering::Relaxed)) >= TICKS {
            self.add(number, now);
        }
    }

    #[inline(never)]
    fn add(&self, number: u64, now: u64) {
        let count = self.count.load(Ordering::Relaxed);
        let entry = self.entry(count);
        entry[0].store(number, Ordering::Release);
        entry[1].store(now, Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
        self.next.store(number + FRAMES, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns when the frame of this number was handed over, of which the lower half may be known. If not, it lies between two marks, and
    /// so does its time, as if the frames between them came at one rate. `None` if it was before all marks, or not yet.
    #[inline(never)]
    pub(crate) fn time(&self, number: u64, lower_half: Option<u32>) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        // One less than there are, as the oldest may be overwritten.
        let oldest = count.saturating_sub(MARKS as u64 - 1);
        let (mut from, mut end) = (oldest, count);
        // Most have been handed over not long ago.
        if from < end && self.read(end - 1)[0] <= number {
            from = end;
        }
        while from < end {
            let middle = from.midpoint(end);
            if self.read(middle)[0] <= number { from = middle + 1 } else { end = middle }
        }
        let before = from.checked_sub(1).filter(|before| *before >= oldest)?;
        let [first, begin] = self.read(before);
        let time = match lower_half {
            Some(half) => begin + u64::from(half.wrapping_sub(lower(begin))),
            None if from == count => return None,
            None => {
                let [next, end] = self.read(from);
                let part = |all: u64| u128::from(all) * u128::from(number - first) / u128::from((next - first).max(1));
                begin + u64::try_from(part(end.saturating_sub(begin))).unwrap_or(0)
            }
        };
        // What overwrote it would have raised this first.
        (self.count.load(Ordering::Relaxed) < before + MARKS as u64).then_some(time)
    }

    fn read(&self, at: u64) -> [u64; 2] {
        self.entry(at).each_ref().map(|half| half.load(Ordering::Acquire))
    }

    fn entry(&self, at: u64) -> &[AtomicU64; 2] {
        #[expect(clippy::cast_possible_truncation, reason = "less than there are")]
        let place = at as usize % MARKS;
        &self.entries[place]
    }
}
