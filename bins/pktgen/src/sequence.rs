//! Loss, reordering and duplicates, from the numbers of the frames that arrive (in the terms of RFC 4737 and RFC 5560).

use serde::Serialize;

/// How far back a frame's number is remembered. A frame that comes later than that counts as reordered even if it is a
/// duplicate.
const WINDOW: u64 = 1024;
const WORDS: usize = 16;

/// One stream of numbered frames.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    id: u32,
    /// Lowest number seen.
    first: u64,
    /// One more than the highest number seen.
    next: u64,
    received: u64,
    reordered: u64,
    duplicates: u64,
    /// Which of the [`WINDOW`] numbers below `next` were seen, by number modulo that.
    seen: [u64; WORDS],
}

/// What became of a stream, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Frames that arrived, duplicates not counted.
    pub(crate) received: u64,
    /// Numbers missing between the lowest and the highest that arrived.
    pub(crate) lost: u64,
    /// Frames that arrived after one with a higher number.
    pub(crate) reordered: u64,
    /// Frames whose number had arrived before.
    pub(crate) duplicates: u64,
}

impl Stream {
    /// Creates a stream whose first frame seen has this number.
    pub(crate) fn new(id: u32, number: u64) -> Self {
        let mut stream =
            Self { id, first: number, next: number, received: 0, reordered: 0, duplicates: 0, seen: [0; WORDS] };
        stream.saw(number);
        stream
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Notes that the frame with this number arrived.
    #[inline(always)]
    pub(crate) fn saw(&mut self, number: u64) {
        if number == self.next && number < u64::MAX {
            // In order: all that happens on a good line.
            self.next = number + 1;
            self.received += 1;
            self.mark(number, true);
        } else {
            self.saw_unusual(number);
        }
    }

    #[cold]
    fn saw_unusual(&mut self, number: u64) {
        if number == u64::MAX {
            // No counter comes this far; it would leave no room for `next`.
            return;
        }
        if number > self.next {
            // Those in between are missing so far.
            if number - self.next >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                (self.next..number).for_each(|missing| self.mark(missing, false));
            }
            self.next = number + 1;
        } else if self.next - number <= WINDOW && self.is_marked(number) {
            self.duplicates += 1;
            return;
        } else {
            self.reordered += 1;
            self.first = self.first.min(number);
        }
        self.received += 1;
        if self.next - number <= WINDOW {
            self.mark(number, true);
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict {
            received: self.received,
            lost: (self.next - self.first).saturating_sub(self.received),
            reordered: self.reordered,
            duplicates: self.duplicates,
        }
    }

    #[inline(always)]
    fn mark(&mut self, number: u64, seen: bool) {
        let (word, bit) = place(number);
        self.seen[word] = self.seen[word] & !bit | if seen { bit } else { 0 };
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit != 0
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize % WORDS, 1 << (number % 64))
}

impl std::ops::AddAssign for Verdict {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.lost = self.lost.saturating_add(other.lost);
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn verdict(numbers: &[u64]) -> Verdict {
        let mut stream = Stream::new(0, numbers[0]);
        numbers[1..].iter().for_each(|number| stream.saw(*number));
        stream.verdict()
    }

    #[test]
    fn losses_exchanges_and_doubles_are_told_apart() {
        let v = |received, lost, reordered, duplicates| Verdict { received, lost, reordered, duplicates };
        assert_eq!(verdict(&[0, 1, 2, 3]), v(4, 0, 0, 0));
        assert_eq!(verdict(&[5, 6, 8]), v(3, 1, 0, 0));
        assert_eq!(verdict(&[0, 2, 1, 3]), v(4, 0, 1, 0));
        assert_eq!(verdict(&[0, 1, 1, 2]), v(3, 0, 0, 1));
        assert_eq!(verdict(&[3, 0, 1, 2, 2]), v(4, 0, 3, 1));
        assert_eq!(verdict(&[0, 5000, 1]), v(3, 4998, 1, 0));
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        let all = verdict(&[0, u64::MAX - 1, u64::MAX, 1, u64::MAX - 1]);
        assert_eq!((all.received, all.duplicates), (3, 1));
        verdict(&[u64::MAX, 0]);
    }

    proptest! {
        /// Against sets, for streams that are late by less than the window.
        #[test]
        fn agrees_with_a_set(numbers in prop::collection::vec(0..1000_u64, 1..300)) {
            let (mut set, mut highest) = (HashSet::new(), 0);
            let (mut reordered, mut duplicates) = (0, 0);
            for (index, number) in numbers.iter().enumerate() {
                if !set.insert(*number) {
                    duplicates += 1;
                } else if index > 0 && *number < highest {
                    reordered += 1;
                }
                highest = highest.max(*number);
            }
            let lowest = *set.iter().min().unwrap();
            let received = set.len() as u64;
            let lost = highest + 1 - lowest - received;
            prop_assert_eq!(verdict(&numbers), Verdict { received, lost, reordered, duplicates });
        }
    }
}
