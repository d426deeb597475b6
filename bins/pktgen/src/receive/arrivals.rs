//! A stream whose sender is elsewhere: what arrives of it, and what it is said to have been.

use measure::{End, Verdict, WINDOW, Window};

/// Different words on how much was sent of a stream that are kept; of more, those that came later count for nothing.
const MOST_ENDS: usize = 16;

/// A stream that arrives.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) stream: u16,
    window: Window,
    /// A number far ahead of all others, and how often it came again: a damaged one, or the first after a long gap.
    far: Option<(u32, u64)>,
    /// Once the next in order is this, the others have reached the number far ahead; `u64::MAX` if there is none.
    reached_at: u64,
    /// Frames that were far ahead, and that nothing has confirmed; and those that came again of confirmed ones.
    unconfirmed: u64,
    duplicate: u64,
    /// What frames say that end the stream, and how many of them.
    ends: Vec<(End, u64)>,
}

impl Arrivals {
    pub(super) fn new(stream: u16) -> Self {
        Self {
            stream,
            window: Window::new(),
            far: None,
            reached_at: u64::MAX,
            unconfirmed: 0,
            duplicate: 0,
            ends: Vec::new(),
        }
    }

    /// Notes that a frame with this number has arrived.
    #[inline(always)]
    pub(super) fn saw(&mut self, number: u32) {
        if self.ahead(number).is_some() {
            self.saw_far(number);
        } else {
            self.window.saw(number);
            if self.window.next() >= self.reached_at {
                self.settle();
            }
        }
    }

    /// The frame that was far ahead came early: those near it have come.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        self.reached_at = u64::MAX;
        if let Some((far, again)) = self.far.take() {
            self.window.saw(far);
            self.duplicate += again;
        }
    }

    /// By how much a number is ahead of the next in order, if that is more than a window. Before the first one all are.
    #[inline(always)]
    fn ahead(&self, number: u32) -> Option<u64> {
        let most = if self.window.next() == 0 { 1 << 32 } else { 1 << 31 };
        Some(self.distance(number)).filter(|ahead| (WINDOW..most).contains(ahead))
    }

    /// From the next in order up to a number.
    #[inline(always)]
    fn distance(&self, number: u32) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let next = self.window.next() as u32;
        number.wrapping_sub(next).into()
    }

    /// Takes no number for sent that one frame alone says: another nearby has to confirm it (as for RTP, RFC 3550, A.1).
    #[cold]
    #[inline(never)]
    fn saw_far(&mut self, number: u32) {
        let is_near = |far: u32| u64::from(number.wrapping_sub(far).min(far.wrapping_sub(number))) < WINDOW;
        match self.far.take() {
            Some((far, again)) if number == far => self.far = Some((far, again + 1)),
            Some((far, again)) if is_near(far) => {
                self.window.saw(far);
                self.duplicate += again;
                self.window.saw(number);
            }
            other => {
                self.unconfirmed += other.map_or(0, |(_, again)| 1 + again);
                self.far = Some((number, 0));
            }
        }
        self.reached_at = self.far.map_or(u64::MAX, |(far, _)| self.window.next() + self.distance(far) + 1);
    }

    /// Notes the sender's word, of which there are several copies.
    pub(super) fn end(&mut self, end: End) {
        if let Some((_, copies)) = self.ends.iter_mut().find(|(known, _)| *known == end) {
            *copies += 1;
        } else if self.ends.len() < MOST_ENDS {
            self.ends.push((end, 1));
        }
        if let Some(sent) = self.sent() {
            self.window.set_sent(sent);
        }
    }

    /// How many frames were sent, by the word of most copies, or of the first of those that are as many; `None` if none has come.
    pub(crate) fn sent(&self) -> Option<u64> {
        let (end, _) = self.ends.iter().rev().max_by_key(|(_, copies)| *copies)?;
        // A damaged number may have moved the window, though not far.
        let at_least = self.window.next().saturating_sub(WINDOW);
        Some(if end.bits > 32 { end.sent } else { end.sent(at_least) })
    }

    /// What became of it: until the sender's word has come, of as many frames as the highest number that came.
    pub(crate) fn verdict(&self) -> Verdict {
        let sent = self.sent().unwrap_or(0);
        let mut verdict = self.window.verdict(sent);
        verdict.duplicate += self.duplicate;
        verdict.impossible += self.unconfirmed;
        if let Some((far, again)) = self.far {
            // The sender's word confirms it too.
            if self.window.next() + self.distance(far) < sent {
                verdict.received += 1;
                verdict.lost -= 1;
                verdict.duplicate += again;
            } else {
                verdict.impossible += 1 + again;
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Received, lost, duplicate, reordered and damaged.
    fn counts(arrivals: &Arrivals) -> [u64; 5] {
        let Verdict { received, lost, duplicate, reordered, impossible, .. } = arrivals.verdict();
        [received, lost, duplicate, reordered, impossible]
    }

    fn arrivals(numbers: impl IntoIterator<Item = u32>) -> Arrivals {
        let mut arrivals = Arrivals::new(7);
        numbers.into_iter().for_each(|number| arrivals.saw(number));
        arrivals
    }

    const FAR: u32 = 1 << 24;

    #[test]
    fn one_number_far_ahead_moves_nothing_until_another_says_so() {
        let damaged = (0..100).map(|number| if number == 50 { FAR + 50 } else { number });
        assert_eq!(counts(&arrivals(damaged)), [99, 1, 0, 0, 1]);
        // As far in all directions.
        assert_eq!(counts(&arrivals([0, FAR, FAR, 1, 3 * FAR, 9 * FAR, 2])), [3, 0, 0, 0, 4]);
        // A long gap, and frames doubled or exchanged behind it.
        assert_eq!(counts(&arrivals([0, FAR, FAR + 1, FAR + 2])), [4, u64::from(FAR) - 1, 0, 0, 0]);
        assert_eq!(counts(&arrivals([0, FAR + 1, FAR + 1, FAR, FAR + 2])), [4, u64::from(FAR) - 1, 1, 1, 0]);
        // The sender began long before.
        let late = arrivals(0x9000_0000..0x9000_0100);
        assert_eq!(counts(&late), [0x100, 0x9000_0000, 0, 0, 0]);
        // What comes before a number is confirmed came in order.
        assert_eq!(counts(&arrivals([FAR, 0, FAR + 1])), [3, u64::from(FAR) - 1, 0, 0, 0]);
    }

    #[test]
    fn a_number_far_ahead_that_the_others_reach_came_early() {
        // Doubled, and exchanged with one that is late by then.
        assert_eq!(counts(&arrivals((0..100).chain([70_000]).chain(100..80_000))), [80_000, 0, 1, 0, 0]);
        assert_eq!(counts(&arrivals((0..100).chain([70_000; 3]).chain(100..80_000))), [80_000, 0, 3, 0, 0]);
        let exchanged = |far: u32, all: u32| {
            let numbers = [far].into_iter().chain(1..far).chain([0]).chain(far + 1..all);
            let mut arrivals = arrivals(numbers);
            assert_eq!(arrivals.verdict().late, u64::from(far > 70_000), "{far}");
            arrivals.end(End { stream: 7, sent: all.into(), bits: 48 });
            counts(&arrivals)
        };
        assert_eq!(exchanged(99_999, 200_000), [199_999, 1, 0, 1, 0]);
        assert_eq!(exchanged(99_999, 100_000), [99_999, 1, 0, 0, 0]);
        // Early, and all behind it are lost.
        let mut early = arrivals((0..100).chain([80_000]).chain(101..70_000));
        early.end(End { stream: 7, sent: 100_000, bits: 48 });
        assert_eq!(counts(&early), [70_000, 30_000, 0, 0, 0]);
        // Over the end of 32 bits.
        let over = arrivals((0xffff_fff0..=u32::MAX).chain([80_000]).chain(0..90_000));
        assert_eq!(counts(&over)[2..], [1, 0, 0]);
    }

    #[test]
    fn the_word_of_most_copies_counts() {
        let full = |sent| End { stream: 7, sent, bits: 48 };
        let of = |ends: &[End]| {
            let mut arrivals = arrivals((0..100).chain([FAR]));
            ends.iter().for_each(|end| arrivals.end(*end));
            (arrivals.sent(), counts(&arrivals))
        };
        let high = 100 | 1 << 35;
        assert_eq!(of(&[full(high), full(100), full(100)]), (Some(100), [100, 0, 0, 0, 1]));
        assert_eq!(of(&[full(100), full(high)]), (Some(100), [100, 0, 0, 0, 1]));
        assert_eq!(of(&[full(4)]).1, [100, 0, 0, 0, 1]);
        let many: Vec<_> = (0..100).map(|bit| full(200 + bit)).chain([full(150); 20]).chain([full(200); 2]).collect();
        assert_eq!(of(&many).0, Some(200));
        // So the far one was sent.
        assert_eq!(of(&[full(1 << 25)]), (Some(1 << 25), [101, (1 << 25) - 101, 0, 0, 0]));
        let short = |sent| End { stream: 7, sent, bits: 32 };
        assert_eq!(of(&[short(100)]).0, Some(100));
        assert_eq!(of(&[short(99)]), (Some(99), [100, 0, 0, 0, 1]));
    }
}
