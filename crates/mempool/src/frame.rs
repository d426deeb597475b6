//! Frames of several packets.

use crate::{Packet, PoolCache};

/// Returns the frames of `packets`, in order. Each is one packet, or a run of packets of which all but the last
/// [continue](Packet::continues).
///
/// ```
/// # use mempool::{Batch, Pool, PoolConfig, frame_len, frames};
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
/// cache.alloc_batch(&mut batch, 3, 100);
/// batch[0].set_continues(true);
/// assert_eq!(frames(&batch).map(frame_len).collect::<Vec<_>>(), [200, 100]);
/// # Ok::<(), mempool::Error>(())
/// ```
pub fn frames(packets: &[Packet]) -> impl Iterator<Item = &[Packet]> {
    packets.chunk_by(|packet, _| packet.continues())
}

/// Like [`frames`], with mutable access; no frame is empty. Where a frame ends is read from its packets when the
/// iterator reaches it.
pub fn frames_mut(packets: &mut [Packet]) -> impl Iterator<Item = &mut [Packet]> {
    packets.chunk_by_mut(|packet, _| packet.continues())
}

/// Returns the length of a frame in bytes.
#[must_use]
pub fn frame_len(frame: &[Packet]) -> usize {
    frame.iter().map(Packet::len).sum()
}

impl PoolCache {
    /// Copies a frame into one packet, with what is known about its checksum; `None` if the pool is empty or its slots
    /// are too small. See also [`Packet::try_copy`].
    ///
    /// ```
    /// # use mempool::{Pool, PoolConfig};
    /// let pool = Pool::new(&PoolConfig::default())?;
    /// let mut cache = pool.cache();
    /// let mut frame = [cache.alloc_from(b"head, ").unwrap(), cache.alloc_from(b"tail").unwrap()];
    /// frame[0].set_continues(true);
    /// assert_eq!(cache.linearise(&frame).unwrap().data(), b"head, tail");
    /// # Ok::<(), mempool::Error>(())
    /// ```
    pub fn linearise(&mut self, frame: &[Packet]) -> Option<Packet> {
        let first = frame.first()?;
        let mut whole = self.alloc()?;
        for packet in frame {
            whole.append(packet.len())?.copy_from_slice(packet.data());
        }
        whole.set_checksum(first.checksum()).then_some(whole)
    }
}
