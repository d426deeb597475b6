//! What a lane sends: the one seam between frames and the rest of the generator.

use crate::frame::{self, Destination, HEADERS};
use measure::Coverage;
use mempool::{Batch, Pool};

/// The frames of a stream, before they are tagged: their last bytes are free.
#[derive(Debug)]
pub(crate) struct Traffic {
    template: Vec<u8>,
    /// IPv4 header checksum of flow 0.
    checksum: u16,
    /// Flows in turn, 1 at least.
    flows: u16,
    /// Of the next frame.
    flow: u16,
}

impl Traffic {
    /// `None` if `size` is out of range.
    pub(crate) fn new(source: [u8; 6], to: Destination, stream: u16, size: u16, flows: u16) -> Option<Self> {
        let template = frame::template(source, to, stream.into(), size)?;
        Some(Self { checksum: frame::checksum(&template), template, flows, flow: 0 })
    }

    /// Bytes of each frame, without check sequence.
    pub(crate) fn size(&self) -> usize {
        self.template.len()
    }

    /// Bytes at the begin of each frame that are not free.
    pub(crate) fn headers(&self) -> usize {
        HEADERS
    }

    /// The checksum that covers the last bytes.
    pub(crate) fn coverage(&self) -> Option<Coverage> {
        None
    }

    /// Writes the frame into every free buffer of a pool that nothing else uses. They keep it: sending only reads them.
    pub(crate) fn prefill(&self, pool: &Pool) {
        let mut cache = pool.cache();
        let mut filled = Vec::new();
        while let Some(mut packet) = cache.alloc() {
            if let Some(data) = packet.append(self.template.len()) {
                data.copy_from_slice(&self.template);
            }
            filled.push(packet);
        }
        filled.into_iter().for_each(|packet| cache.free(packet));
    }

    /// Makes frames of a burst of prefilled buffers.
    #[inline(always)]
    pub(crate) fn write(&mut self, batch: &mut Batch) {
        if self.flows > 1 {
            for packet in batch.iter_mut() {
                frame::set_flow(packet.data_mut(), self.checksum, self.flow);
                self.flow = if self.flow + 1 == self.flows { 0 } else { self.flow + 1 };
            }
        }
    }
}
