//! Runs of frames of one segment each.

use super::SHORTEST;
use crate::Family;
use crate::desc::{Descriptor, tx};
use crate::loops::Done;
#[cfg(doc)]
use crate::loops::Loops;
use mempool::{Meta, Packet, Slot};
use std::marker::PhantomData;

/// The high word of the descriptor of a frame that is one packet of the usual pool without flags, and neither too short nor too
/// long; `None` for others.
#[inline(always)]
pub(super) fn usual_word<F: Family>(meta: Meta, least: u64, command: u64) -> Option<u64> {
    if meta.0.wrapping_sub(least) >= usual_words::<F>() {
        return None;
    }
    let len = u64::from(meta.len());
    Some(command | len | len << tx::PAYLEN_SHIFT)
}

/// The least word of a packet of this pool that has no flags and is not too short.
pub(super) fn least_word(pool: u16) -> u64 {
    Meta::new(0, SHORTEST, pool).0
}

/// So many words from that on are those of such packets that are not too long either, whatever their offset: it is the lowest half
/// word, and the length the next.
#[inline(always)]
pub(crate) const fn usual_words<F: Family>() -> u64 {
    ((F::LONGEST - SHORTEST + 1) as u64) << 16
}

/// A run of free descriptors that are given packets.
///
/// # Invariants
///
/// `descriptors` and `slots` (where the ring keeps the packets' slots) point to as many elements as packets are posted.
pub(crate) struct Post<F: Family> {
    pub(crate) descriptors: *const Descriptor,
    pub(crate) slots: *mut Option<Slot>,
    /// The least word of a packet that goes this way.
    pub(crate) least: u64,
    /// Command bits.
    pub(crate) command: u64,
    pub(super) family: PhantomData<F>,
}

impl<F: Family> Clone for Post<F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Family> Copy for Post<F> {}

impl<F: Family> Post<F> {
    /// [`Loops::post`], one by one after those of `from`.
    ///
    /// # Safety
    ///
    /// As [`Loops::post`].
    #[inline(always)]
    pub(crate) unsafe fn one_by_one(self, packets: &[Packet], from: Done, iova: impl Fn(Slot) -> u64) -> Done {
        let Done { count: mut done, mut bytes } = from;
        while done < packets.len() {
            let packet = &packets[done];
            let Some(high) = usual_word::<F>(packet.meta(), self.least, self.command) else { break };
            let slot = packet.slot();
            // SAFETY: there are as many as packets.
            let kept = unsafe { self.slots.add(done) };
            // SAFETY: as above; the ring owns the slot from here.
            unsafe { kept.write(Some(slot)) };
            // SAFETY: there are as many as packets.
            let descriptor = unsafe { self.descriptors.add(done) };
            // SAFETY: as above; both sides use atomics.
            let descriptor = unsafe { &*descriptor };
            descriptor.write(iova(slot).wrapping_add(packet.offset().into()), high);
            bytes += packet.len() as u64;
            done += 1;
        }
        Done { count: done, bytes }
    }
}
