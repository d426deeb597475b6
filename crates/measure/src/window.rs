//! Which numbers of a stream have arrived (in the terms of RFC 4737 and RFC 5560).

use crate::gaps::Gaps;

/// Numbers below the highest one seen that are remembered one by one.
pub const WINDOW: u64 = 1 << 16;

const WORDS: usize = (WINDOW / 64) as usize;
/// Gaps that are remembered, for the extent of reordering.
const GAPS: usize = 4096;

/// What a number is to a [`Window`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first frame of this number, in order or not.
    New,
    /// The number has come before.
    Duplicate,
    /// The number is [`WINDOW`] or more below the highest: nobody knows any more whether it has come before.
    Late,
    /// The number has not been sent.
    Impossible,
    /// The number was sent before the window was cleared: it counts for nothing.
    Before,
}

/// The numbers that have arrived of a stream that counts from 0, with 32 bits.
///
/// ```
/// use measure::Window;
///
/// let mut window = Window::new();
/// for number in [0, 1, 4, 3, 3] {
///     window.saw(number);
/// }
/// let verdict = window.verdict(6);
/// assert_eq!((verdict.received, verdict.lost), (4, 2));
/// assert_eq!((verdict.reordered, verdict.greatest_extent, verdict.duplicate), (1, 1, 1));
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    /// Which of the [`WINDOW`] numbers below `next` were seen, by number modulo that.
    seen: Box<[u64; WORDS]>,
    /// One more than the highest number seen, unwrapped.
    next: u64,
    /// Numbers from here on have not been sent.
    sent: u64,
    /// While `next` is below this, no missing number leaves the window when one comes in order.
    leaves_at: u64,
    /// The lower of the two.
    in_order_to: u64,
    /// Numbers below this count for nothing.
    first: u64,
    received: u64,
    unusual: Unusual,
}

impl Window {
    /// Bytes that one takes at most.
    pub(crate) const BYTES: usize = size_of::<Self>() + WORDS * size_of::<u64>() + Gaps::bytes(GAPS);
}

/// What is not counted on a good line.
#[derive(Clone, Debug)]
struct Unusual {
    duplicate: u64,
    late: u64,
    impossible: u64,
    reordered: u64,
    extents: u64,
    greatest_extent: u64,
    /// Runs of numbers below `next` that are missing.
    runs: u64,
    /// One more than the highest missing number that has left the window; 0 if none has.
    lost_to: u64,
    gaps: Gaps,
}

/// What became of a stream, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Frames sent: always `received + lost`.
    pub sent: u64,
    /// Different numbers that arrived in time.
    pub received: u64,
    /// Numbers that did not.
    pub lost: u64,
    /// Further frames of a number that had arrived.
    pub duplicate: u64,
    /// Frames that arrived [`WINDOW`] or more numbers late: they count as lost too.
    pub late: u64,
    /// Frames of `received` that arrived after one with a higher number.
    pub reordered: u64,
    /// Greatest extent of a reordered frame: how many frames had arrived since the first with a higher number, that one
    /// included (RFC 4737, 4.2.2). Of more than 4,096 gaps at a time those between numbers further back are taken for one.
    pub greatest_extent: u64,
    /// Sum of the extents of all reordered frames.
    pub extents: u64,
    /// Frames with a number that was not sent.
    pub impossible: u64,
    /// In how many runs, one or several numbers in a row, the lost ones lie; 0 of a [`Shared`](crate::Shared) window, which does not know.
    ///
    /// ```
    /// let mut window = measure::Window::new();
    /// // Lost are 1, 2 and 5; 7 comes late.
    /// [0, 3, 4, 6, 8, 7].map(|number| window.saw(number));
    /// assert_eq!(window.verdict(9).runs_lost, 2);
    /// ```
    pub runs_lost: u64,
}

impl Window {
    /// Creates one that has seen nothing, and takes every number for one that may have been sent.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seen: Box::new([0; WORDS]),
            next: 0,
            sent: u64::MAX,
            leaves_at: u64::MAX,
            in_order_to: u64::MAX,
            first: 0,
            received: 0,
            unusual: Unusual::default(),
        }
    }

    /// Forgets all that came, when `sent` frames have been sent: these count for nothing any more, also those of them that are still under
    /// way.
    ///
    /// ```
    /// use measure::{Seen, Window};
    ///
    /// let mut window = Window::new();
    /// window.saw(0);
    /// window.clear(3);
    /// assert_eq!((window.saw(2), window.saw(3)), (Seen::Before, Seen::New));
    /// let verdict = window.verdict(5);
    /// assert_eq!((verdict.sent, verdict.received, verdict.lost), (2, 1, 1));
    /// ```
    pub fn clear(&mut self, sent: u64) {
        // A damaged number is no reason to go back.
        let first = sent.max(self.first);
        self.seen.fill(0);
        (self.next, self.first, self.received, self.unusual) = (first, first, 0, Unusual::default());
        (self.leaves_at, self.in_order_to) = (u64::MAX, self.sent);
    }

    /// Whether no frame has come, and none is to count for nothing.
    pub(crate) fn is_new(&self) -> bool {
        // Nothing else is counted before the first that is possible.
        (self.next, self.first, self.unusual.impossible) == (0, 0, 0)
    }

    /// Sets how many frames have been sent so far: higher numbers are impossible, and do not count.
    #[inline(always)]
    pub fn set_sent(&mut self, sent: u64) {
        self.sent = sent;
        self.in_order_to = sent.min(self.leaves_at);
    }

    /// Returns one more than the highest number seen.
    #[inline(always)]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns how many different numbers have arrived.
    #[inline(always)]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Notes that a frame with this number, modulo 2^32, has arrived. The number is taken for that of these which is
    /// closest to the highest so far.
    #[inline(always)]
    pub fn saw(&mut self, number: u32) -> Seen {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let expected = self.next as u32;
        if number == expected && self.next < self.in_order_to {
            // In order: all that happens on a good line.
            let (word, bit) = place(self.next);
            self.seen[word] |= bit;
            self.next += 1;
            self.received += 1;
            return Seen::New;
        }
        self.saw_unusual(number, expected)
    }

    #[cold]
    #[inline(never)]
    fn saw_unusual(&mut self, number: u32, expected: u32) -> Seen {
        let ahead = number.wrapping_sub(expected);
        // There is nothing before the first.
        if ahead < 1 << 31 || self.next == 0 {
            let number = self.next + u64::from(ahead);
            if number >= self.sent {
                self.unusual.impossible += 1;
                return Seen::Impossible;
            }
            self.leave_behind(number + 1);
            if number > self.next {
                self.leave_out(number);
            }
            let (word, bit) = place(number);
            self.seen[word] |= bit;
            self.next = number + 1;
            self.received += 1;
            return Seen::New;
        }
        let back = u64::from(expected.wrapping_sub(number));
        let Some(number) = self.next.checked_sub(back) else {
            // Before the first.
            self.unusual.impossible += 1;
            return Seen::Impossible;
        };
        if number < self.first {
            return Seen::Before;
        }
        if back > WINDOW {
            self.unusual.late += 1;
            return Seen::Late;
        }
        let (word, bit) = place(number);
        if self.seen[word] & bit != 0 {
            self.unusual.duplicate += 1;
            return Seen::Duplicate;
        }
        self.fill(number);
        self.seen[word] |= bit;
        let extent = self.received - self.unusual.gaps.arrived_before(number);
        self.received += 1;
        self.unusual.reordered += 1;
        self.unusual.extents += extent;
        self.unusual.greatest_extent = self.unusual.greatest_extent.max(extent);
        Seen::New
    }

    /// Notes that a missing number is not: its run becomes shorter, two runs, or none.
    fn fill(&mut self, number: u64) {
        let is_seen = |number: u64| self.seen[place(number).0] & place(number).1 != 0;
        let is_after_missing = if number == self.oldest() {
            number > self.first && self.unusual.lost_to == number
        } else {
            !is_seen(number - 1)
        };
        // The highest number has come, so there is one behind.
        let runs = match (is_after_missing, !is_seen(number + 1)) {
            (true, true) => self.unusual.runs + 1,
            (false, false) => self.unusual.runs.saturating_sub(1),
            _ => self.unusual.runs,
        };
        self.unusual.runs = runs;
    }

    /// Notes what is missing of the numbers that leave the window when `next` is to be the next, and when more of them may.
    fn leave_behind(&mut self, next: u64) {
        let (from, to) = (self.oldest(), next.saturating_sub(WINDOW).max(self.first));
        if next > self.leaves_at {
            let seen = &self.seen;
            let is_missing = |number: &u64| seen[place(*number).0] & place(*number).1 == 0;
            if let Some(number) = (from..to.min(self.next)).rev().find(is_missing) {
                self.unusual.lost_to = number + 1;
            }
            // Of those that stay: whole words at a time.
            let mut at = to;
            while at < self.next && self.seen[place(at).0] >> (at % 64) == u64::MAX >> (at % 64) {
                at = (at / 64 + 1) * 64;
            }
            let missing = (at..self.next.min(at + 64)).find(is_missing);
            self.leaves_at = missing.map_or(u64::MAX, |number| number + WINDOW);
        }
        if next > self.next + 1 {
            // Those that were left out just now.
            self.leaves_at = self.leaves_at.min(self.next.max(to) + WINDOW);
            if to > self.next {
                self.unusual.lost_to = to;
            }
        }
        self.in_order_to = self.sent.min(self.leaves_at);
    }

    /// The lowest number that the window knows.
    fn oldest(&self) -> u64 {
        self.next.saturating_sub(WINDOW).max(self.first)
    }

    /// The numbers from the next to the one before `number` are missing so far.
    fn leave_out(&mut self, number: u64) {
        self.unusual.runs += 1;
        self.unusual.gaps.leave_out(self.next, self.received, number);
        if number - self.next >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for_words(self.next, number, |word, bits| self.seen[word] &= !bits);
    }

    /// Returns how many frames may still come in order with nothing else to note: at most what has been sent, and is above all that came.
    #[inline(always)]
    pub(crate) fn in_order_at_most(&self) -> u64 {
        self.in_order_to.saturating_sub(self.next)
    }

    /// Notes that the next `frames` numbers have arrived in order; no more than [`Self::in_order_at_most`].
    #[inline(always)]
    pub(crate) fn saw_in_order(&mut self, frames: u64) {
        let end = self.next + frames;
        for_words(self.next, end, |word, bits| self.seen[word] |= bits);
        self.next = end;
        self.received += frames;
    }

    /// Returns the highest number that is lost of a stream of which `sent` frames were sent; one that came late is.
    ///
    /// ```
    /// let mut window = measure::Window::new();
    /// [0, 2, 5, 4].map(|number| window.saw(number));
    /// assert_eq!((window.last_lost(6), window.last_lost(8)), (Some(3), Some(7)));
    /// ```
    #[must_use]
    pub fn last_lost(&self, sent: u64) -> Option<u64> {
        if self.verdict(sent).lost == 0 {
            return None;
        }
        if sent > self.next {
            return Some(sent - 1);
        }
        let is_missing = |number: &u64| {
            let (word, bit) = place(*number);
            self.seen[word] & bit == 0
        };
        (self.oldest()..self.next).rev().find(is_missing).or(self.unusual.lost_to.checked_sub(1))
    }

    /// Returns what became of a stream of which `sent` frames were sent; if a higher number has arrived, that many. Those from before it was
    /// cleared are not counted.
    #[must_use]
    pub fn verdict(&self, sent: u64) -> Verdict {
        let runs_lost = self.unusual.runs + u64::from(sent > self.next);
        let sent = sent.max(self.next) - self.first;
        let Unusual { duplicate, late, impossible, reordered, extents, greatest_extent, .. } = self.unusual;
        let received = self.received;
        Verdict {
            sent,
            received,
            lost: sent - received,
            duplicate,
            late,
            reordered,
            greatest_extent,
            extents,
            impossible,
            runs_lost,
        }
    }
}

impl Default for Unusual {
    fn default() -> Self {
        Self {
            duplicate: 0,
            late: 0,
            impossible: 0,
            reordered: 0,
            extents: 0,
            greatest_extent: 0,
            runs: 0,
            lost_to: 0,
            gaps: Gaps::of(GAPS),
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls `each` with every word that holds numbers from `from` to the one before `to`, and their bits.
#[inline(always)]
fn for_words(mut from: u64, to: u64, mut each: impl FnMut(usize, u64)) {
    while from < to {
        let end = to.min((from / 64 + 1) * 64);
        let bits = if end - from == 64 { u64::MAX } else { ((1 << (end - from)) - 1) << (from % 64) };
        each(place(from).0, bits);
        from = end;
    }
}

#[inline(always)]
fn place(number: u64) -> (usize, u64) {
    ((number / 64 % WORDS as u64) as usize, 1 << (number % 64))
}

impl std::ops::AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.received = self.received.saturating_add(other.received);
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicate = self.duplicate.saturating_add(other.duplicate);
        self.late = self.late.saturating_add(other.late);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.greatest_extent = self.greatest_extent.max(other.greatest_extent);
        self.extents = self.extents.saturating_add(other.extents);
        self.impossible = self.impossible.saturating_add(other.impossible);
        self.runs_lost = self.runs_lost.saturating_add(other.runs_lost);
    }
}
