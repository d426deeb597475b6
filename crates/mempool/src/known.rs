//! The pools whose packets a transmit queue sends.

use crate::{Packet, Pool};
use device::Translation;
use std::sync::Arc;

/// The pools whose memory a queue's device can reach, and where it has them; the first is the usual one. Their handles keep
/// their ids from being given to other pools.
///
/// ```
/// use device::Translation;
/// use mempool::{KnownPools, Pool, PoolConfig};
///
/// let [usual, other] = [Pool::new(&PoolConfig::default())?, Pool::new(&PoolConfig::default())?];
/// let mut known = KnownPools::new(usual, Translation::Linear { delta: 0 }.into());
/// let packet = other.cache().alloc().ok_or("the pool is empty")?;
/// assert_eq!(known.iova(&packet), None);
///
/// known.add(other, Translation::Linear { delta: 0 }.into());
/// assert_eq!(known.iova(&packet), Some(packet.data().as_ptr() as u64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KnownPools(Vec<(Pool, Arc<Translation>)>);

impl KnownPools {
    /// Returns a list of one pool, the usual one.
    #[must_use]
    pub fn new(usual: Pool, translation: Arc<Translation>) -> Self {
        Self(vec![(usual, translation)])
    }

    /// Returns the usual pool, and where the device has it.
    #[inline]
    #[must_use]
    pub fn usual(&self) -> (&Pool, &Arc<Translation>) {
        let (pool, translation) = &self.0[0];
        (pool, translation)
    }

    /// Returns whether the packet's pool is among them.
    #[must_use]
    pub fn has(&self, packet: &Packet) -> bool {
        self.of(packet).is_some()
    }

    /// Returns the device's address of the packet's first byte, if its pool is known.
    #[must_use]
    pub fn iova(&self, packet: &Packet) -> Option<u64> {
        let start = self.of(packet)?.iova(packet.slot().as_ptr());
        Some(start.wrapping_add(packet.offset().into()))
    }

    /// Appends a pool that is not among them.
    pub fn add(&mut self, pool: Pool, translation: Arc<Translation>) {
        self.0.push((pool, translation));
    }

    /// Makes the pool that was added last the usual one.
    pub fn make_newest_usual(&mut self) {
        let newest = self.0.len() - 1;
        self.0.swap(0, newest);
    }

    fn of(&self, packet: &Packet) -> Option<&Translation> {
        let known = self.0.iter().find(|(pool, _)| pool.id() == packet.pool_id());
        known.map(|(_, translation)| &**translation)
    }
}
