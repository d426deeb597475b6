//! Numbers that were left out so far, for the extent of reordering (RFC 4737, 4.2.2).

use crate::WINDOW;
use std::collections::VecDeque;

/// Gaps between the numbers that have arrived: the first number of each, and how many frames had arrived by then, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Gaps {
    gaps: VecDeque<(u64, u64)>,
    most: usize,
}

impl Gaps {
    /// Bytes that so many take on the heap at most: room for them grows by doubling.
    pub(crate) const fn bytes(most: usize) -> usize {
        most.next_power_of_two() * size_of::<(u64, u64)>()
    }

    /// Remembers so many gaps.
    pub(crate) fn of(most: usize) -> Self {
        Self { gaps: VecDeque::new(), most }
    }

    /// The numbers from `next` to the one before `number` are missing so far, when `arrived` frames have arrived.
    pub(crate) fn leave_out(&mut self, next: u64, arrived: u64, number: u64) {
        if self.gaps.len() == self.most {
            // The two oldest become one.
            let oldest = self.gaps.pop_front();
            if let (Some(oldest), Some(first)) = (oldest, self.gaps.front_mut()) {
                *first = oldest;
            }
        }
        self.gaps.push_back((next, arrived));
        while self.gaps.len() > 1 && self.gaps[1].0 + WINDOW <= number {
            self.gaps.pop_front();
        }
    }

    /// Returns how many frames had arrived when `number` was left out.
    pub(crate) fn arrived_before(&self, number: u64) -> u64 {
        let after = self.gaps.partition_point(|(first, _)| *first <= number);
        self.gaps.get(after.saturating_sub(1)).map_or(0, |(_, arrived)| *arrived)
    }
}
