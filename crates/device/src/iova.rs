//! Allocation of IOVAs: addresses in a device's address space, within the ranges that its IOMMU translates.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Allocates parts of a set of address ranges: first fit from the lowest address, so that addresses stay short.
///
/// ```
/// use device::IovaAllocator;
///
/// let mut iovas = IovaAllocator::new([0x1000..=0xFEDF_FFFF, 0xFEF0_0000..=0x7F_FFFF_FFFF]);
/// let region = iovas.allocate(0x20_0000, 0x20_0000).unwrap();
/// assert_eq!(region, 0x20_0000);
/// assert_eq!(iovas.free(region), Some(0x20_0000));
/// ```
///
/// # Invariants
///
/// `free` maps first to last address of each free range; ranges neither touch nor overlap. `taken` maps first address to
/// length. No address is in both, and their union is what `new` was given.
#[derive(Clone, Debug, Default)]
pub struct IovaAllocator {
    free: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl IovaAllocator {
    /// Creates an allocator over `ranges`, which may be in any order and overlap. Empty ranges are ignored.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u64>>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| *range.start());
        let mut allocator = Self::default();
        for range in ranges {
            let (start, end) = range.into_inner();
            match allocator.free.last_entry() {
                Some(mut last) if last.get().checked_add(1).is_none_or(|next| start <= next) => {
                    *last.get_mut() = end.max(*last.get());
                }
                _ => {
                    allocator.free.insert(start, end);
                }
            }
        }
        allocator
    }

    /// Allocates `len` bytes at a multiple of `align`, and returns the first address. Returns `None` if no free range
    /// holds them, if `len` is 0, or if `align` is not a power of two.
    #[must_use]
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<u64> {
        self.allocate_from(0, len, align)
    }

    /// Allocates like [`Self::allocate`], at address `floor` or above.
    #[must_use]
    pub fn allocate_from(&mut self, floor: u64, len: u64, align: u64) -> Option<u64> {
        let more = len.checked_sub(1)?;
        if !align.is_power_of_two() {
            return None;
        }
        let (start, end, first) = self.free.iter().find_map(|(&start, &end)| {
            let first = start.max(floor).checked_next_multiple_of(align)?;
            (first.checked_add(more)? <= end).then_some((start, end, first))
        })?;
        let last = first + more;
        self.free.remove(&start);
        if start < first {
            self.free.insert(start, first - 1);
        }
        if last < end {
            self.free.insert(last + 1, end);
        }
        self.taken.insert(first, len);
        Some(first)
    }

    /// Frees what `allocate` returned as `first`, and returns its length in bytes; `None` if `first` was never
    /// allocated or is free already.
    pub fn free(&mut self, first: u64) -> Option<u64> {
        let len = self.taken.remove(&first)?;
        let (mut start, mut end) = (first, first + (len - 1));
        if let Some((&before, &last)) = self.free.range(..start).next_back()
            && last + 1 == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(next) = end.checked_add(1)
            && let Some(last) = self.free.remove(&next)
        {
            end = last;
        }
        self.free.insert(start, end);
        Some(len)
    }

    /// Returns the free ranges, lowest first.
    pub fn free_ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        self.free.iter().map(|(&start, &end)| start..=end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The model: one flag per address of a small space.
    const SPACE: usize = 256;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate { len: u64, align_log2: u32 },
        Free { which: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let allocate = (0..40_u64, 0..6_u32).prop_map(|(len, align_log2)| Step::Allocate { len, align_log2 });
        let free = (0..16_usize).prop_map(|which| Step::Free { which });
        prop::collection::vec(prop_oneof![2 => allocate, 1 => free], 0..60)
    }

    fn usable(ranges: &[(u64, u64)]) -> [bool; SPACE] {
        std::array::from_fn(|at| ranges.iter().any(|&(start, end)| (start..=end).contains(&(at as u64))))
    }

    fn first_fit(free: &[bool; SPACE], len: usize, align: usize) -> Option<usize> {
        (0..SPACE)
            .step_by(align)
            .find(|&at| len > 0 && at + len <= SPACE && free[at..at + len].iter().all(|free| *free))
    }

    fn index(address: u64) -> usize {
        usize::try_from(address).unwrap()
    }

    fn free_addresses(iovas: &IovaAllocator) -> [bool; SPACE] {
        let ranges: Vec<_> = iovas.free_ranges().map(RangeInclusive::into_inner).collect();
        assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "sorted and merged: {ranges:?}");
        usable(&ranges)
    }

    proptest! {
        // Miri is some hundred times slower and has no files for failures.
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_map_of_every_address(
            ranges in prop::collection::vec((0..SPACE as u64, 0..80_u64), 0..5),
            steps in steps(),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|&(start, more)| (start, (start + more).min(SPACE as u64 - 1))).collect();
            let whole = usable(&ranges);
            let mut free = whole;
            let mut iovas = IovaAllocator::new(ranges.iter().map(|&(start, end)| start..=end));
            let mut held: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate { len, align_log2 } => {
                        let got = iovas.allocate(len, 1 << align_log2);
                        let expected = first_fit(&free, index(len), 1 << align_log2);
                        prop_assert_eq!(got, expected.map(|at| at as u64));
                        if let Some(at) = expected {
                            free[at..at + index(len)].fill(false);
                            held.push((at as u64, len));
                        }
                    }
                    Step::Free { which } if which < held.len() => {
                        let (at, len) = held.swap_remove(which);
                        prop_assert_eq!(iovas.free(at), Some(len));
                        prop_assert_eq!(iovas.free(at), None, "a second time");
                        free[index(at)..index(at + len)].fill(true);
                    }
                    Step::Free { .. } => {}
                }
                prop_assert_eq!(free_addresses(&iovas), free);
            }
            for (at, _) in held {
                prop_assert!(iovas.free(at).is_some());
            }
            prop_assert_eq!(free_addresses(&iovas), whole);
        }
    }

    #[test]
    fn the_last_address_of_all_can_be_used() {
        let mut iovas = IovaAllocator::new([u64::MAX - 0xFFF..=u64::MAX, 0..=0xFFF]);
        assert_eq!(iovas.allocate(0x1000, 0x1000), Some(0));
        assert_eq!(iovas.allocate(0x1000, 0x1000), Some(u64::MAX - 0xFFF));
        assert_eq!(iovas.allocate(1, 1), None);
        assert_eq!(iovas.free(u64::MAX - 0xFFF), Some(0x1000));
        assert_eq!(iovas.free_ranges().collect::<Vec<_>>(), [u64::MAX - 0xFFF..=u64::MAX]);
    }

    #[test]
    fn the_whole_space_as_one_range() {
        let mut iovas = IovaAllocator::new([0..=u64::MAX, 5..=10]);
        assert_eq!(iovas.allocate(u64::MAX, 1), Some(0));
        assert_eq!(iovas.allocate(2, 1), None);
        assert_eq!(iovas.allocate(1, 1), Some(u64::MAX));
        assert_eq!(iovas.allocate(1, 1), None);
    }

    #[test]
    fn bad_requests_are_refused() {
        let mut iovas = IovaAllocator::new([0x1000..=0x1FFF]);
        assert_eq!(iovas.allocate(0, 1), None);
        assert_eq!(iovas.allocate(1, 0), None);
        assert_eq!(iovas.allocate(1, 3), None);
        assert_eq!(iovas.allocate(u64::MAX, 1 << 63), None);
        assert_eq!(iovas.free(0x1000), None);
    }
}
