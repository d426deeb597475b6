//! Zeroed memory: from Linux, on huge pages where it gives them, or from the allocator.

use core::ptr::NonNull;

use crate::{Error, Result};

#[cfg(not(all(feature = "huge-pages", target_os = "linux", not(miri))))]
use heap as source;
#[cfg(all(feature = "huge-pages", target_os = "linux", not(miri)))]
use linux as source;

/// Zeroed memory, aligned to a cache line at least.
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    held: source::Held,
}

// SAFETY: a mapping is plain memory without ties to a thread; its users access it atomically, or have it alone.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let (base, held) = source::take(bytes.max(1)).ok_or(Error::OutOfMemory { bytes })?;
        Ok(Self { base, bytes, held })
    }

    #[inline(always)]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `held` came with this memory from `take`, and the users of the memory are gone.
        unsafe { source::give_back(self.held) };
    }
}

#[cfg(all(feature = "huge-pages", target_os = "linux", not(miri)))]
mod linux {
    use core::ffi::c_void;
    use core::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    const HUGE: usize = 2 << 20;

    /// The whole of an anonymous mapping.
    pub(super) type Held = (*mut c_void, usize);

    /// Address space for `bytes`, aligned to huge pages if that is worth while; pages come when first touched.
    pub(super) fn take(bytes: usize) -> Option<(NonNull<u8>, Held)> {
        let align = if bytes >= HUGE / 2 { HUGE } else { 1 };
        let len = bytes.checked_next_multiple_of(align)?.checked_add(align - 1)?;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let start = start.ok()?;
        let skip = (start as usize).next_multiple_of(align) - start as usize;
        // SAFETY: the mapping is longer than `bytes` by what aligning can skip.
        let base = unsafe { start.add(skip) };
        if align == HUGE {
            // SAFETY: the range is ours; the advice changes no contents. Where it is refused, pages are small.
            let _ = unsafe { madvise(base, len - skip, Advice::LinuxHugepage) };
        }
        NonNull::new(base.cast()).map(|base| (base, (start, len)))
    }

    /// # Safety
    /// `held` is from `take`, given back once, and nothing refers to the memory.
    pub(super) unsafe fn give_back((start, len): Held) {
        // SAFETY: this is the whole of one mapping of ours, which nothing refers to. If the call fails the memory stays mapped.
        let _ = unsafe { munmap(start, len) };
    }
}

#[cfg(not(all(feature = "huge-pages", target_os = "linux", not(miri))))]
mod heap {
    use alloc::alloc::{Layout, alloc_zeroed, dealloc};
    use core::ptr::NonNull;

    /// An allocation.
    pub(super) type Held = (NonNull<u8>, Layout);

    pub(super) fn take(bytes: usize) -> Option<(NonNull<u8>, Held)> {
        let layout = Layout::from_size_align(bytes, 64).ok()?;
        // SAFETY: the layout is not empty: `bytes` is at least one.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some((base, (base, layout)))
    }

    /// # Safety
    /// `held` is from `take`, given back once, and nothing refers to the memory.
    pub(super) unsafe fn give_back((base, layout): Held) {
        // SAFETY: `take` allocated this with this layout.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}
