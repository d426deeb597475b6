//! Runs of frames of one buffer each.

use crate::Family;
use crate::desc::Descriptor;
use crate::loops::Done;
#[cfg(doc)]
use crate::loops::Loops;
use ethdev::{RxInfo, RxInfos};
use mempool::{Meta, Packet, Slot};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Who wants to know what the device says of each frame.
pub(crate) trait Infos {
    /// Whether anybody does.
    const WANTED: bool;

    /// Whether there are places for `count` packets of this call.
    fn have_room(&self, count: usize) -> bool;

    /// Makes as many places.
    fn make_room(&mut self, count: usize);

    /// Where the infos of `count` packets go from number `at` of this call on, if there are as many places and somebody wants to know.
    fn places(&mut self, at: usize, count: usize) -> &mut [RxInfo];

    /// So many packets were received, and their infos written.
    fn filled(self, count: usize);

    /// Nothing was received.
    fn clear(self);
}

/// Nobody.
pub(super) struct NoInfos;

impl Infos for NoInfos {
    const WANTED: bool = false;

    #[inline(always)]
    fn have_room(&self, _: usize) -> bool {
        true
    }

    #[inline(always)]
    fn make_room(&mut self, _: usize) {}

    #[inline(always)]
    fn places(&mut self, _: usize, _: usize) -> &mut [RxInfo] {
        &mut []
    }

    #[inline(always)]
    fn filled(self, _: usize) {}

    #[inline(always)]
    fn clear(self) {}
}

impl Infos for &mut RxInfos {
    const WANTED: bool = true;

    #[inline(always)]
    fn have_room(&self, count: usize) -> bool {
        self.capacity() >= count
    }

    fn make_room(&mut self, count: usize) {
        self.room(count);
    }

    #[inline(always)]
    fn places(&mut self, at: usize, count: usize) -> &mut [RxInfo] {
        RxInfos::places(self).get_mut(..at + count).and_then(|places| places.get_mut(at..)).unwrap_or_default()
    }

    #[inline(always)]
    fn filled(self, count: usize) {
        RxInfos::filled(self, count);
    }

    #[inline(always)]
    fn clear(self) {
        RxInfos::clear(self);
    }
}

/// A run of `count` descriptors whose buffers are exchanged for fresh ones.
///
/// # Invariants
///
/// `descriptors`, `posted` (the buffers they have) and `packets` (where the packets go) point to `count` elements each, and so does
/// `infos` if they are wanted.
/// As long as DD is set, a descriptor belongs to the driver.
pub(crate) struct Exchange<F: Family, I: Infos> {
    pub(crate) descriptors: *const Descriptor,
    pub(crate) posted: *mut Slot,
    pub(crate) packets: *mut MaybeUninit<Packet>,
    /// Where infos go, if they are wanted.
    pub(crate) infos: *mut RxInfo,
    pub(super) kind: PhantomData<(F, I)>,
    /// Of a write-back's words, the bits that infos keep.
    pub(crate) meant: [u64; 2],
    pub(crate) count: usize,
    /// Bytes that fit into a buffer.
    pub(crate) limit: u16,
    /// A received packet's word, but for the length.
    pub(crate) meta: Meta,
}

impl<F: Family, I: Infos> Clone for Exchange<F, I> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Family, I: Infos> Copy for Exchange<F, I> {}

impl<F: Family, I: Infos> Exchange<F, I> {
    /// [`Loops::exchange`], one by one after those of `from`.
    ///
    /// # Safety
    ///
    /// As [`Loops::exchange`].
    #[inline(always)]
    pub(crate) unsafe fn one_by_one(self, top: *const Slot, from: Done, iova: impl Fn(Slot) -> u64) -> Done {
        let Done { count: mut done, mut bytes } = from;
        while done < self.count {
            // SAFETY: `done < count` elements (type invariant).
            let descriptor = unsafe { self.descriptors.add(done) };
            // SAFETY: as above; both sides use atomics.
            let descriptor = unsafe { &*descriptor };
            let received = descriptor.received();
            let Some(len) = received.single::<F>(self.limit) else { break };
            if I::WANTED {
                // SAFETY: `done < count` elements (type invariant).
                let info = unsafe { self.infos.add(done) };
                // SAFETY: as above.
                unsafe { info.write(received.info::<F>(descriptor.first_word(), self.meant)) };
            }
            // SAFETY: `done < count` slots before the top.
            let fresh = unsafe { top.sub(done + 1) };
            // SAFETY: as above.
            let fresh = unsafe { fresh.read() };
            // SAFETY: `done < count` elements (type invariant).
            let posted = unsafe { self.posted.add(done) };
            // SAFETY: as above; the ring owns the fresh slot from here.
            let slot = unsafe { posted.replace(fresh) };
            descriptor.write(iova(fresh), 0);
            // SAFETY: the device has done with the slot, which the ring gives up; `len` is within the buffer.
            let packet = unsafe { Packet::from_slot(slot, Meta(self.meta.0 | u64::from(len) << 16)) };
            // SAFETY: `done < count` elements (type invariant).
            let place = unsafe { self.packets.add(done) };
            // SAFETY: as above.
            unsafe { place.write(MaybeUninit::new(packet)) };
            bytes += u64::from(len);
            done += 1;
        }
        Done { count: done, bytes }
    }
}
