//! Records by descriptor.

use std::fmt;

/// One entry for each descriptor of a ring. Indices wrap round at the size, so none is out of range.
///
/// # Invariants
///
/// There are `mask + 1` entries.
pub(crate) struct Table<T> {
    entries: Box<[T]>,
    mask: usize,
}

impl<T> Table<T> {
    /// `size` entries, a power of two.
    pub(crate) fn new(size: usize, entry: impl FnMut(usize) -> T) -> Self {
        assert!(size.is_power_of_two(), "rings have a power of two of descriptors");
        Self { entries: (0..size).map(entry).collect(), mask: size - 1 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.mask + 1
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &T {
        // SAFETY: masked, so below the number of entries (type invariant).
        unsafe { self.entries.get_unchecked(index & self.mask) }
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as above.
        unsafe { self.entries.get_unchecked_mut(index & self.mask) }
    }

    #[inline(always)]
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    /// Where the entries begin, as many as there are descriptors: a loop can keep this in a register.
    #[inline(always)]
    pub(crate) fn start(&mut self) -> *mut T {
        self.entries.as_mut_ptr()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.entries.iter_mut()
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).finish_non_exhaustive()
    }
}
