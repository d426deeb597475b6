//! Where a burst goes: one burst for each output port, and what is refused.

use crate::check::Refusal;
use mempool::{Batch, Packet};

/// Frames grouped by output port, and frames refused. Send what [`Self::outputs`] hold, and empty
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
    /// For `ports` output ports, with room for `capacity` packets at each and as many refused.
    #[must_use]
    pub fn new(ports: usize, capacity: usize) -> Self {
        Self {
            outputs: (0..ports).map(|_| Batch::with_capacity(capacity)).collect(),
            refused: Batch::with_capacity(capacity),
            refusals: Vec::with_capacity(capacity),
        }
    }

    /// How many packets it takes, wherever they may go.
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

    /// The burst of each port, to be sent.
    #[inline]
    #[must_use]
    pub fn outputs(&mut self) -> &mut [Batch] {
        &mut self.outputs
    }

    /// Takes the refused packets out, in order, each with the reason for its frame; those not taken when the iterator is
    /// dropped go home. The packets of a frame in several buffers follow each other, all but the last with
    /// [`Packet::continues`] set.
    #[inline]
    pub fn drain_refused(&mut self) -> impl Iterator<Item = (Packet, Refusal)> + '_ {
        self.refused.drain().zip(self.refusals.drain(..))
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
