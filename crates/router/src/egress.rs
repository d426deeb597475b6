//! The result of routing a burst: one burst for each output port, and the refused frames.

use crate::check::Refusal;
use mempool::{Batch, Packet};

/// Frames grouped by output port, and refused frames. Send the bursts of [`Self::outputs`], and empty
/// [`Self::drain_refused`], before the next burst or every few bursts.
///
/// ```
/// let mut egress = router::Egress::new(3, 64);
/// assert_eq!((egress.outputs().len(), egress.room()), (3, 64));
/// ```
#[derive(Debug)]
pub struct Egress {
    outputs: Box<[Batch]>,
    refused: Batch,
    /// One for each packet of `refused`.
    refusals: Vec<Refusal>,
}

impl Egress {
    /// Creates one for `ports` output ports, with room for `capacity` packets at each of them and for as many refused
    /// ones.
    #[must_use]
    pub fn new(ports: usize, capacity: usize) -> Self {
        Self {
            outputs: (0..ports).map(|_| Batch::with_capacity(capacity)).collect(),
            refused: Batch::with_capacity(capacity),
            refusals: Vec::with_capacity(capacity),
        }
    }

    /// Returns the number of packets there is room for, whichever ports they go to.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.outputs.iter().map(Batch::spare).fold(self.refused.spare(), usize::min)
    }

    /// The number of output ports.
    #[inline]
    pub(crate) fn ports(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the burst of each port, to be sent.
    #[inline]
    #[must_use]
    pub fn outputs(&mut self) -> &mut [Batch] {
        &mut self.outputs
    }

    /// Removes the refused packets, in order, each with the reason for its frame. Packets that are left when the
    /// iterator is dropped return to their pools; an iterator that is forgotten leaves them in another order. The packets of a frame in several buffers follow each other, all but
    /// the last with [`Packet::continues`] set.
    #[inline]
    pub fn drain_refused(&mut self) -> impl Iterator<Item = (Packet, Refusal)> + '_ {
        // They are taken from the end, as a batch lets go of its last packet in the fewest instructions.
        self.refused.reverse();
        self.refusals.reverse();
        DrainRefused(self)
    }

    #[inline]
    pub(crate) fn refuse(&mut self, packet: Packet, refusal: Refusal) {
        let pushed = self.refused.push(packet);
        debug_assert!(pushed.is_ok(), "room was asked for");
        if pushed.is_ok() {
            self.refusals.push(refusal);
        }
    }
}

/// The refused packets in reverse order, and those of them that are left.
struct DrainRefused<'a>(&'a mut Egress);

impl Iterator for DrainRefused<'_> {
    type Item = (Packet, Refusal);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.refused.pop()?, self.0.refusals.pop()?))
    }
}

impl Drop for DrainRefused<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.0.refused.is_empty() {
            self.0.refused.clear();
            self.0.refusals.clear();
        }
    }
}
