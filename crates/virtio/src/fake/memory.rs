//! The device's view of memory: what is mapped, at addresses that are nobody's pointers.

use device::{DmaMapper, DmaMemory, Translation};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Mapped regions by their first address.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Mutex<Vec<(u64, Arc<DmaMemory>)>>,
}

/// The first region lies here; each lies beyond the one before, with a gap.
const FIRST: u64 = 0x40_0000_0000;
const GAP: u64 = 0x10_0000;

impl Memory {
    /// Where `len` bytes at `address` are.
    ///
    /// # Panics
    ///
    /// When they are not mapped.
    fn at(&self, address: u64, len: usize) -> *mut u8 {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        for (first, region) in regions.iter() {
            let Some(offset) = address.checked_sub(*first).and_then(|offset| usize::try_from(offset).ok()) else {
                continue;
            };
            if offset.checked_add(len).is_some_and(|end| end <= region.len()) {
                // SAFETY: within the region, as was just checked.
                return unsafe { region.base().as_ptr().add(offset) };
            }
        }
        panic!("the device was given {len} bytes at {address:#x}, which are not mapped");
    }

    /// Returns `len` bytes at `address`.
    ///
    /// # Safety
    ///
    /// The driver has given them to the device, and does not have them back before this returns.
    pub(super) unsafe fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let from = self.at(address, len);
        let mut bytes = vec![0; len];
        // SAFETY: mapped memory of that length; nobody writes to it, by the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Writes `bytes` at `address`.
    ///
    /// # Safety
    ///
    /// As [`Self::read`], and the device may write them.
    pub(super) unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let to = self.at(address, bytes.len());
        // SAFETY: mapped memory of that length; nobody else looks at it, by the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(super) fn half(&self, address: u64) -> &AtomicU16 {
        assert!(address.is_multiple_of(2), "not aligned");
        // SAFETY: mapped and aligned; regions stay mapped while a queue is set up, and the driver uses atomics too.
        unsafe { &*self.at(address, 2).cast() }
    }

    pub(super) fn word(&self, address: u64) -> &AtomicU32 {
        assert!(address.is_multiple_of(4), "not aligned");
        // SAFETY: as above.
        unsafe { &*self.at(address, 4).cast() }
    }

    pub(super) fn long(&self, address: u64) -> &AtomicU64 {
        assert!(address.is_multiple_of(8), "not aligned");
        // SAFETY: as above.
        unsafe { &*self.at(address, 8).cast() }
    }

    pub(super) fn load_half(&self, address: u64) -> u16 {
        u16::from_le(self.half(address).load(Ordering::Acquire))
    }
}

/// Maps memory for the device.
pub(super) struct Mapper(pub(super) Arc<Memory>);

// SAFETY: the device resolves addresses by the list of regions only.
unsafe impl DmaMapper for Mapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        let mut regions = self.0.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let end = regions.iter().map(|(first, region)| first + region.len() as u64).max();
        let first = end.map_or(FIRST, |end| (end + GAP).next_multiple_of(GAP));
        regions.push((first, Arc::clone(memory)));
        Ok(Translation::Linear { delta: first.wrapping_sub(memory.base().as_ptr() as u64) })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, _: &Translation) -> device::Result<()> {
        let mut regions = self.0.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|(_, region)| !Arc::ptr_eq(region, memory));
        Ok(())
    }
}
