//! The loops over runs of usual frames, which queues choose by processor and by how IOVAs are made of addresses.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;

use crate::Family;
use crate::rx::{Exchange, Infos};
use crate::tx::Post;
use device::Translation;
use mempool::{Packet, Slot};

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use avx2::Avx2;

/// Which loops a queue uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// [`Avx2`].
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    /// [`OneByOne`].
    OneByOne,
    /// [`Paged`].
    Paged,
}

impl Way {
    /// For buffers of a pool with this translation, on this processor; and what is added to their addresses, if that is all.
    pub(crate) fn of(translation: &Translation) -> (Self, u64) {
        match *translation {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Translation::Linear { delta } if std::arch::is_x86_feature_detected!("avx2") => (Self::Avx2, delta),
            Translation::Linear { delta } => (Self::OneByOne, delta),
            Translation::Paged { .. } => (Self::Paged, 0),
        }
    }
}

/// Descriptors, slots or packets that the loops for AVX2 take at a time.
pub(crate) const STEP: usize = 4;

/// How far a loop has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// Descriptors.
    pub(crate) count: usize,
    /// Bytes in their buffers.
    pub(crate) bytes: u64,
}

/// A loop each way.
pub(crate) trait Loops: Copy {
    /// Exchanges as many buffers as there are good frames of one buffer at the front, for those before `top` (the top of a
    /// cache's stack), from there down.
    ///
    /// # Safety
    ///
    /// There are as many slots before `top` as the exchange counts; those used are given up by the cache.
    unsafe fn exchange<F: Family, I: Infos>(self, exchange: Exchange<F, I>, top: *const Slot) -> Done;

    /// Posts packets up to the first that is unusual.
    ///
    /// # Safety
    ///
    /// There are as many descriptors and slots as packets. The caller forgets the packets posted.
    unsafe fn post<F: Family>(self, post: Post<F>, packets: &[Packet]) -> Done;
}

/// One descriptor after the other; IOVA = address + `delta`.
#[derive(Clone, Copy)]
pub(crate) struct OneByOne {
    pub(crate) delta: u64,
}

impl OneByOne {
    #[inline(always)]
    fn iova(self, slot: Slot) -> u64 {
        (slot.as_ptr() as u64).wrapping_add(self.delta)
    }
}

impl Loops for OneByOne {
    #[inline(always)]
    unsafe fn exchange<F: Family, I: Infos>(self, exchange: Exchange<F, I>, top: *const Slot) -> Done {
        // SAFETY: the caller's word.
        unsafe { exchange.one_by_one(top, Done::default(), |slot| self.iova(slot)) }
    }

    #[inline(always)]
    unsafe fn post<F: Family>(self, post: Post<F>, packets: &[Packet]) -> Done {
        // SAFETY: the caller's word.
        unsafe { post.one_by_one(packets, Done::default(), |slot| self.iova(slot)) }
    }
}

/// One descriptor after the other, where each page of a pool has an address of its own.
#[derive(Clone, Copy)]
pub(crate) struct Paged<'t> {
    pub(crate) translation: &'t Translation,
    /// Added to the IOVA of a slot.
    pub(crate) offset: u16,
}

impl Paged<'_> {
    fn iova(self, slot: Slot) -> u64 {
        self.translation.iova(slot.as_ptr()).wrapping_add(self.offset.into())
    }
}

impl Loops for Paged<'_> {
    unsafe fn exchange<F: Family, I: Infos>(self, exchange: Exchange<F, I>, top: *const Slot) -> Done {
        // SAFETY: the caller's word.
        unsafe { exchange.one_by_one(top, Done::default(), |slot| self.iova(slot)) }
    }

    unsafe fn post<F: Family>(self, post: Post<F>, packets: &[Packet]) -> Done {
        // SAFETY: the caller's word.
        unsafe { post.one_by_one(packets, Done::default(), |slot| self.iova(slot)) }
    }
}
