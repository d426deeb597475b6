//! The words that doorbells are: in this process, or in memory that another process maps too.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// How many words there are.
pub(crate) const DOORBELLS: usize = 256;
/// Bytes from one to the next: a cache line each.
pub(crate) const STRIDE: usize = 64;

/// The words of all doorbells of a device.
#[derive(Debug)]
pub(crate) enum DoorbellWords {
    /// In this process only.
    Own(Box<[DoorbellWord]>),
    /// Shared.
    Shared(SharedWords),
}

/// A word in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct DoorbellWord(AtomicU32);

/// Words in a memfd.
///
/// # Invariants
///
/// `first` is the 64-aligned start of `_map`, a shared mapping of `DOORBELLS * STRIDE` bytes of `fd`, which can neither grow nor
/// shrink. It is only accessed by atomics, here; what another process does to it is like a device's work.
#[derive(Debug)]
pub(crate) struct SharedWords {
    first: NonNull<AtomicU32>,
    _map: MmapRaw,
    fd: OwnedFd,
}

// SAFETY: a pointer to a mapping that lives as long as the value, only used for atomic accesses.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl DoorbellWords {
    /// All 0, in this process.
    pub(crate) fn own() -> Self {
        Self::Own((0..DOORBELLS).map(|_| DoorbellWord::default()).collect())
    }

    /// All 0, to be shared.
    pub(crate) fn shared() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("doorbells", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, (DOORBELLS * STRIDE) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(DOORBELLS * STRIDE).map_raw(&fd)?;
        let first = NonNull::new(map.as_mut_ptr().cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self::Shared(SharedWords { first, _map: map, fd }))
    }

    /// The memory to share.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(shared) => Some(shared.fd.as_fd()),
        }
    }

    /// One word; `index` counts round.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &AtomicU32 {
        match self {
            Self::Own(doorbells) => &doorbells[index % DOORBELLS].0,
            Self::Shared(shared) => shared.at(index),
        }
    }
}

impl SharedWords {
    #[inline(always)]
    fn at(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the remainder is below DOORBELLS, so the word lies in the mapping (type invariant).
        let word = unsafe { self.first.byte_add(index % DOORBELLS * STRIDE) };
        // SAFETY: aligned, mapped while `self` lives, and only accessed by atomics (type invariant).
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_shared_word_is_seen_through_the_descriptor_and_cannot_be_cut_off() {
        let doorbells = DoorbellWords::shared().unwrap();
        doorbells.at(255).store(0x0102_0304, Ordering::Release);
        let file = File::from(doorbells.fd().unwrap().try_clone_to_owned().unwrap());
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 255 * 64).unwrap();
        assert_eq!(bytes, 0x0102_0304_u32.to_ne_bytes());
        assert!(file.set_len(0).is_err());
        file.write_all_at(&7_u32.to_ne_bytes(), 64).unwrap();
        assert_eq!(doorbells.at(257).load(Ordering::Acquire), 7);
    }
}
