//! The mapping itself: a sealed memfd mapped shared, or the heap under Miri, which cannot map files.

#[cfg(miri)]
pub(super) use heap::Backing;
#[cfg(not(miri))]
pub(super) use mapped::Backing;

#[cfg(not(miri))]
mod mapped {
    use crate::memory::HugePages;
    use memmap2::{Advice, MmapOptions, MmapRaw};
    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use std::io;
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
    use std::ptr::NonNull;

    /// # Invariants
    ///
    /// `map` covers the whole of `fd`, is not empty, and `fd` can neither shrink nor grow.
    pub(in crate::memory) struct Backing {
        base: NonNull<u8>,
        map: MmapRaw,
        fd: OwnedFd,
    }

    // SAFETY: `base` is the address of `map`, which is `Send`; access goes through raw pointers whose users uphold ownership.
    unsafe impl Send for Backing {}
    // SAFETY: as above.
    unsafe impl Sync for Backing {}

    impl Backing {
        /// `len` zeroed bytes (a multiple of the page size), all present, on `huge` or ordinary pages.
        pub(in crate::memory) fn allocate(len: usize, huge: Option<HugePages>, node: Option<u32>) -> io::Result<Self> {
            let size = huge.map_or(MemfdFlags::empty(), |pages| MemfdFlags::HUGETLB | pages.memfd_flag());
            let fd = rustix::fs::memfd_create("ringway", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | size)?;
            rustix::fs::ftruncate(&fd, len as u64)?;
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            let map = MmapOptions::new().len(len).map_raw(&fd)?;
            let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
            if let Some(node) = node {
                bind_to_node(base, len, node)?;
            }
            if huge.is_none() {
                // Transparent huge pages where the host has them for shared memory; nothing is lost where it has not.
                let _ = map.advise(Advice::HugePage);
            }
            populate(&map, fd.as_fd())?;
            Ok(Self { base, map, fd })
        }

        pub(in crate::memory) fn base(&self) -> NonNull<u8> {
            self.base
        }

        pub(in crate::memory) fn len(&self) -> usize {
            self.map.len()
        }

        #[expect(clippy::unnecessary_wraps, reason = "the Miri variant has none")]
        pub(in crate::memory) fn fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.fd.as_fd())
        }
    }

    /// Brings every page in, so that a shortage is an error here and not a SIGBUS at the first packet.
    fn populate(map: &MmapRaw, fd: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            match map.advise(Advice::PopulateWrite) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Kernels before 5.14 do not know the advice; allocating through the file reports a shortage as well.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Ok(rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, map.len() as u64)?);
                }
                other => return other,
            }
        }
    }

    /// mbind(2) with `MPOL_BIND`: pages come from this node or not at all. Must run before the first touch.
    fn bind_to_node(base: NonNull<u8>, len: usize, node: u32) -> io::Result<()> {
        const WORD: usize = u64::BITS as usize;
        let node = usize::try_from(node).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut mask = vec![0_u64; node / WORD + 1];
        mask[node / WORD] = 1 << (node % WORD);
        let bits = mask.len() * WORD + 1;
        // SAFETY: the range is a mapping that the caller owns, the mask outlives the call and holds `bits - 1` bits;
        // the call sets a placement policy and touches no memory contents.
        let answer = unsafe {
            libc::syscall(libc::SYS_mbind, base.as_ptr(), len, libc::MPOL_BIND, mask.as_ptr(), bits, 0_usize)
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(miri)]
mod heap {
    use crate::memory::HugePages;
    use std::alloc::Layout;
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::ptr::NonNull;

    /// # Invariants
    ///
    /// `base` was allocated with `layout`.
    pub(in crate::memory) struct Backing {
        base: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: plain memory; access goes through raw pointers whose users uphold ownership.
    unsafe impl Send for Backing {}
    // SAFETY: as above.
    unsafe impl Sync for Backing {}

    impl Backing {
        pub(in crate::memory) fn allocate(len: usize, huge: Option<HugePages>, _node: Option<u32>) -> io::Result<Self> {
            if huge.is_some() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let layout = Layout::from_size_align(len, 4096).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: the layout has a non-zero size: requests are rounded up to at least a page.
            let base = unsafe { std::alloc::alloc_zeroed(layout) };
            Ok(Self { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, layout })
        }

        pub(in crate::memory) fn base(&self) -> NonNull<u8> {
            self.base
        }

        pub(in crate::memory) fn len(&self) -> usize {
            self.layout.size()
        }

        pub(in crate::memory) fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    impl Drop for Backing {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout in `allocate`, and nobody has a handle any more.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
        }
    }
}
