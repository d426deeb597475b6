//! What is known of a stream where it arrives.

use crate::marks::Marks;
use crate::{Kind, Latency, Seen, Summary, Tag, Verdict, WINDOW, Window};

/// Entries of [`HandOvers`].
const FRAMES: usize = 1 << WINDOW.trailing_zeros();

/// A stream where it arrives: the numbers that came, and how long their frames took. At most 496 KiB with its [`HandOvers`].
///
/// ```
/// use measure::{HandOvers, Kind, Stream, TagWriter};
///
/// let (mut sent, mut stream) = (HandOvers::new(), Stream::new(7, 0));
/// let mut frame = [0; 60];
/// // Due at 1,000, handed over at 1,200, received at 1,500.
/// TagWriter::new(Kind::Full, 7, 60, 42, None)?.write(&mut frame, 0, 1_000);
/// sent.note(0, 1, 1_200);
/// assert_eq!(stream.saw([&frame[..]].into_iter(), 1_500, 1, Some(&sent)), 0);
/// assert_eq!(stream.from_due().map(|latency| latency.max), Some(500.0));
/// assert_eq!(stream.from_hand_over().map(|latency| latency.max), Some(300.0));
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    number: u16,
    window: Window,
    due: Latency,
    hand_over: Latency,
    /// The last tag that was looked at by itself was short.
    is_short: bool,
    /// Frames whose tag names a time that cannot be.
    impossible_times: u64,
    /// Times before this are none of this stream's.
    begun: u64,
}

impl Stream {
    /// Creates stream `number`, of which nothing has arrived. Its first frame is due at `begun`: an earlier time is damage.
    #[must_use]
    pub fn new(number: u16, begun: u64) -> Self {
        let (due, hand_over) = (Latency::new(), Latency::new());
        Self { number, window: Window::new(), due, hand_over, is_short: false, impossible_times: 0, begun }
    }

    /// Begins with number 0, which is due at `begun`. Takes no time to speak of if nothing has come before.
    pub fn begin(&mut self, begun: u64) {
        if self.window.is_new() && self.impossible_times == 0 {
            self.begun = begun;
        } else {
            *self = Self::new(self.number, begun);
        }
    }

    /// Forgets all that came, when `sent` frames have been sent: these count for nothing any more ([`Window::clear`]).
    pub fn clear(&mut self, sent: u64) {
        self.window.clear(sent);
        self.due.clear();
        self.hand_over.clear();
        self.impossible_times = 0;
    }

    /// Returns how many different numbers have arrived.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.window.received()
    }

    /// Notes frames (without check sequence) that arrived by `now`, 65,536 at most, when `sent` frames of the stream had been
    /// sent. What was sent on this lcore is in `hand_overs`. Returns how many of them are of something else.
    #[inline(always)]
    pub fn saw<'f>(
        &mut self,
        frames: impl Iterator<Item = &'f [u8]>,
        now: u64,
        sent: u64,
        hand_overs: Option<&HandOvers>,
    ) -> usize {
        self.window.set_sent(sent);
        // Frames in order with no unusual time and a known hand-over go the short way; all others the long.
        let first = self.window.next();
        let (mut expected, mut others) = (lower(first), 0);
        let Some(hand_overs) = hand_overs.filter(|sent| sent.time(expected).is_some()) else {
            return frames.filter(|frame| !self.saw_unusual(frame, now, hand_overs)).count();
        };
        if self.is_short {
            return self.saw_short(frames, now, hand_overs);
        }
        let (end_of_tag, times) = (Kind::Full.last(self.number), &*hand_overs.times);
        // What has been sent ends there; of more than a burst can hold, some.
        let mut end = lower(first + self.window.in_order_at_most().min(1 << 30));
        // Those that were handed over at one time took equally long: that time, and the first of them.
        let (mut burst, mut since_number) = (0, expected);
        let mut due = self.due.recorder();
        for frame in frames {
            match Tag::number_and_age(frame, end_of_tag, now) {
                Some((number, age)) if number == expected && number != end && due.is_within(age) => {
                    expected = number.wrapping_add(1);
                    due.record(age);
                    let time = times[number as usize % FRAMES];
                    if time != burst {
                        self.hand_over.record_times(since(now, burst), number.wrapping_sub(since_number).into());
                        (burst, since_number) = (time, number);
                    }
                }
                _ => {
                    due.save();
                    self.window.saw_in_order(expected.wrapping_sub(lower(self.window.next())).into());
                    self.hand_over.record_times(since(now, burst), expected.wrapping_sub(since_number).into());
                    others += usize::from(!self.saw_unusual(frame, now, Some(hand_overs)));
                    due = self.due.recorder();
                    expected = lower(self.window.next());
                    end = lower(self.window.next() + self.window.in_order_at_most().min(1 << 30));
                    since_number = expected;
                }
            }
        }
        due.save();
        self.window.saw_in_order(expected.wrapping_sub(lower(self.window.next())).into());
        self.hand_over.record_times(since(now, burst), expected.wrapping_sub(since_number).into());
        others
    }

    /// The same of a stream with short tags.
    #[inline(never)]
    fn saw_short<'f>(&mut self, frames: impl Iterator<Item = &'f [u8]>, now: u64, hand_overs: &HandOvers) -> usize {
        let end_of_tag = Kind::Short.last(self.number);
        let (mut in_order, mut burst, mut others) = (0, 0, 0);
        let mut expected = lower(self.window.next());
        // Only 32 bits of a time are at hand.
        let is_recent = hand_overs.whole_time(expected).is_some_and(|time| now.saturating_sub(time) <= u32::MAX.into());
        let mut most = if is_recent { self.window.in_order_at_most() } else { 0 };
        for frame in frames {
            if Tag::number_before(frame, end_of_tag) == Some(expected) && in_order < most {
                let time = hand_overs.times[expected as usize % FRAMES];
                if time != burst {
                    self.saw_in_order_at(in_order, since(now, burst));
                    (most, in_order, burst) = (most - in_order, 0, time);
                }
                expected = expected.wrapping_add(1);
                in_order += 1;
            } else {
                self.saw_in_order_at(in_order, since(now, burst));
                others += usize::from(!self.saw_unusual(frame, now, Some(hand_overs)));
                expected = lower(self.window.next());
                in_order = 0;
                most = if is_recent { self.window.in_order_at_most() } else { 0 };
            }
        }
        self.saw_in_order_at(in_order, since(now, burst));
        others
    }

    /// So many frames in order, so many ticks after their hand-over.
    fn saw_in_order_at(&mut self, frames: u64, ticks: u64) {
        self.window.saw_in_order(frames);
        self.hand_over.record_times(ticks, frames);
    }

    /// As [`Self::saw`] for a frame alone. Returns whether it is of the stream.
    #[inline(always)]
    pub fn saw_one(&mut self, frame: &[u8], now: u64, sent: u64, hand_overs: Option<&HandOvers>) -> bool {
        self.window.set_sent(sent);
        self.saw_unusual(frame, now, hand_overs)
    }

    /// Any frame. Returns whether it is of the stream.
    #[inline(never)]
    fn saw_unusual(&mut self, frame: &[u8], now: u64, hand_overs: Option<&HandOvers>) -> bool {
        let Some(tag) = Tag::find(frame).filter(|tag| tag.stream == self.number) else { return false };
        let age = tag.age(now);
        self.is_short = age.is_none();
        if age.is_some_and(|age| age > now.wrapping_sub(self.begun)) {
            self.impossible_times += 1;
            return true;
        }
        if self.window.saw(tag.number) != Seen::New {
            return true;
        }
        if let Some(age) = age {
            self.due.record(age);
            if let Some(time) = hand_overs.and_then(|sent| sent.time(tag.number)) {
                // Of the time from the due time to the hand-over 32 bits are known.
                let lateness = time.wrapping_sub(lower(now.wrapping_sub(age)));
                self.hand_over.record(age.saturating_sub(lateness.into()));
                return true;
            }
        }
        if let Some(time) = hand_overs.and_then(|sent| sent.whole_time(tag.number)) {
            let wait = now.saturating_sub(time);
            // A time between two marks may be before the frame was due.
            self.hand_over.record(age.map_or(wait, |age| age.min(wait)));
        }
        true
    }

    /// Returns what became of the stream, of which `sent` frames were sent.
    #[must_use]
    pub fn verdict(&self, sent: u64) -> Verdict {
        self.window.verdict(sent)
    }

    /// Returns the highest number that is lost of the stream, of which `sent` frames were sent ([`Window::last_lost`]).
    #[must_use]
    pub fn last_lost(&self, sent: u64) -> Option<u64> {
        self.window.last_lost(sent)
    }

    /// Returns how many frames had numbers or times that cannot be.
    #[must_use]
    pub fn impossible(&self) -> u64 {
        self.window.verdict(0).impossible + self.impossible_times
    }

    /// Returns the times from the due time and from the hand-over to the ring, in ticks.
    #[must_use]
    pub fn latencies(&self) -> [&Latency; 2] {
        [&self.due, &self.hand_over]
    }

    /// Returns the latency from the due times, in ticks.
    #[must_use]
    pub fn from_due(&self) -> Option<Summary> {
        self.due.summary()
    }

    /// Returns the latency from the hand-over to the ring, in ticks.
    #[must_use]
    pub fn from_hand_over(&self) -> Option<Summary> {
        self.hand_over.summary()
    }
}

/// What a stream takes in memory, where it is sent and where it arrives.
const _: () = assert!(
    size_of::<Stream>()
        + Window::BYTES
        + 2 * Latency::BYTES
        + size_of::<HandOvers>()
        + FRAMES * size_of::<u32>()
        + Marks::BYTES
        <= 496 << 10
);

/// Ticks from a time, of which the lower half is known, to `now`: less than 2^32.
fn since(now: u64, time: u32) -> u64 {
    lower(now).wrapping_sub(time).into()
}

#[inline(always)]
pub(crate) fn lower(number: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let lower = number as u32;
    lower
}

/// When each of the last [`WINDOW`] frames of a stream was handed over, and roughly so those before, for the receiver on the same lcore.
#[derive(Debug)]
pub struct HandOvers {
    /// The lower halves of the times, by number modulo [`WINDOW`].
    times: Box<[u32; FRAMES]>,
    marks: Marks,
    /// Frames handed over.
    next: u64,
}

impl HandOvers {
    /// Creates one for a stream of which nothing has been sent.
    #[must_use]
    pub fn new() -> Self {
        Self { times: Box::new([0; FRAMES]), marks: Marks::new(), next: 0 }
    }

    /// Notes that the next frames, from number `first` on, are handed over now: at most [`WINDOW`] of them.
    #[inline(always)]
    pub fn note(&mut self, first: u32, frames: usize, now: u64) {
        let number = self.next + u64::from(first.wrapping_sub(lower(self.next)));
        self.marks.note(number, now);
        let now = lower(now);
        let begin = first as usize % FRAMES;
        match self.times.get_mut(begin..begin.wrapping_add(frames)) {
            Some(times) => times.fill(now),
            None => self.note_around(begin, frames, now),
        }
        self.next = number + frames as u64;
    }

    /// What goes beyond the end is at the begin.
    #[inline(never)]
    fn note_around(&mut self, begin: usize, frames: usize, now: u32) {
        (begin..).take(frames.min(FRAMES)).for_each(|at| self.times[at % FRAMES] = now);
    }

    /// Returns when a frame was handed over, in ticks modulo 2^32; `None` if it was not yet, or [`WINDOW`] frames ago.
    #[inline(always)]
    #[must_use]
    pub fn time(&self, number: u32) -> Option<u32> {
        let age = lower(self.next).wrapping_sub(1).wrapping_sub(number);
        (u64::from(age) < WINDOW).then(|| self.times[number as usize % FRAMES])
    }

    /// Returns when a frame was handed over, in ticks; of one before the last [`WINDOW`] to within 1,024 frames, as if these had come at one
    /// rate but for pauses of 2^20 ticks or more. `None` if it was not yet, or two million frames ago.
    #[must_use]
    pub fn whole_time(&self, number: u32) -> Option<u64> {
        let back = u64::from(lower(self.next).wrapping_sub(1).wrapping_sub(number));
        let whole = self.next.checked_sub(1 + back)?;
        self.marks.time(whole, self.time(number))
    }
}

impl Default for HandOvers {
    fn default() -> Self {
        Self::new()
    }
}
