//! Register windows.

use crate::barrier;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A window of little-endian device registers (a PCI base address region).
///
/// Offsets are in bytes from the start of the region, and multiples of the access's width. An access outside the region
/// behaves as on the bus: reads return all ones, writes are lost. Accesses of 8 and 16 bits to a window that has
/// registers of 32 bits only, such as an 82599's, do the same.
pub trait Bar: Send + Sync + 'static {
    /// Returns the size of the region in bytes.
    fn size(&self) -> usize;

    /// Reads the register at `offset`. Reading may have side effects in the device (clear on read). Later loads of this
    /// thread see what the device wrote to memory before it answered.
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`. Every earlier store of this thread is visible to the device before it.
    ///
    /// # Safety
    ///
    /// The write must not make the device access memory that it has not been given: no address, length, ring
    /// index or enable bit that lets it reach bytes which Rust references or other owners use.
    unsafe fn write32(&self, offset: u32, value: u32);

    /// Reads the 16-bit register at `offset`.
    fn read16(&self, _offset: u32) -> u16 {
        u16::MAX
    }

    /// Writes the 16-bit register at `offset`, with the ordering of [`Self::write32`].
    ///
    /// # Safety
    ///
    /// That of [`Self::write32`].
    unsafe fn write16(&self, _offset: u32, _value: u16) {}

    /// Reads the 8-bit register at `offset`.
    fn read8(&self, _offset: u32) -> u8 {
        u8::MAX
    }

    /// Writes the 8-bit register at `offset`, with the ordering of [`Self::write32`].
    ///
    /// # Safety
    ///
    /// That of [`Self::write32`].
    unsafe fn write8(&self, _offset: u32, _value: u8) {}
}

/// A [`Bar`] in mapped memory: a BAR mapped through VFIO or sysfs, or ordinary memory in a benchmark.
///
/// # Invariants
///
/// `base` points to `len` bytes, 4-aligned, readable and writable for as long as `owner` lives.
pub struct MappedBar {
    base: NonNull<u32>,
    len: usize,
    /// Where accesses beyond the mapped part go; slow.
    rest: Option<Box<dyn Bar>>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is only used for volatile register accesses, which any thread may make.
unsafe impl Send for MappedBar {}
// SAFETY: as above; concurrent register accesses are the device's to order.
unsafe impl Sync for MappedBar {}

impl MappedBar {
    /// Wraps `len` bytes of mapped registers at `base`, kept alive by `owner`.
    ///
    /// # Safety
    ///
    /// `base` must be 4-aligned and point to `len` bytes that stay mapped, readable and writable while `owner`
    /// lives, and that nothing accesses through Rust references meanwhile.
    pub unsafe fn new(base: NonNull<u32>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, len: len & !3, rest: None, _owner: owner }
    }

    /// Creates a window without registers, for a device that lacks the region.
    #[must_use]
    pub fn empty() -> Self {
        // SAFETY: no bytes at all.
        unsafe { Self::new(NonNull::dangling(), 0, Arc::new(())) }
    }

    /// Adds access to the part of a region that cannot be mapped: accesses beyond the mapped first part go to `whole`,
    /// which takes offsets from the start of the region and knows its size.
    #[must_use]
    pub fn with_rest(self, whole: Box<dyn Bar>) -> Self {
        Self { rest: Some(whole), ..self }
    }

    #[cold]
    fn read_rest(&self, offset: u32) -> u32 {
        self.rest.as_ref().map_or(u32::MAX, |rest| rest.read32(offset))
    }

    /// The mapped register of `T`'s width at `offset`.
    #[inline(always)]
    fn narrow<T>(&self, offset: u32) -> Option<NonNull<T>> {
        let offset = offset as usize;
        if offset < self.len && offset.is_multiple_of(size_of::<T>()) {
            // SAFETY: offset is inside the region (type invariant), so the sum stays inside it. The length is a multiple of
            // 4, so that an aligned register of 1 or 2 bytes lies inside with its end too.
            Some(unsafe { self.base.cast::<u8>().add(offset) }.cast())
        } else {
            None
        }
    }

    /// # Safety
    ///
    /// As [`Bar::write32`].
    #[cold]
    unsafe fn write_rest(&self, offset: u32, value: u32) {
        if let Some(rest) = &self.rest {
            // SAFETY: promised by the caller.
            unsafe { rest.write32(offset, value) }
        }
    }

    #[inline(always)]
    fn at(&self, offset: u32) -> Option<NonNull<u32>> {
        let offset = offset as usize;
        if offset < self.len && offset & 3 == 0 {
            // SAFETY: offset is inside the region (type invariant), so the sum stays inside it.
            Some(unsafe { self.base.byte_add(offset) })
        } else {
            None
        }
    }
}

impl Bar for MappedBar {
    fn size(&self) -> usize {
        self.rest.as_ref().map_or(self.len, |rest| rest.size())
    }

    #[inline(always)]
    fn read32(&self, offset: u32) -> u32 {
        match self.at(offset) {
            Some(register) => {
                // SAFETY: in bounds, aligned, mapped (type invariant).
                let value = unsafe { register.read_volatile() };
                barrier::dma_rmb();
                u32::from_le(value)
            }
            None => self.read_rest(offset),
        }
    }

    #[inline(always)]
    unsafe fn write32(&self, offset: u32, value: u32) {
        if let Some(register) = self.at(offset) {
            barrier::dma_wmb();
            // SAFETY: in bounds, aligned, mapped (type invariant).
            unsafe { register.write_volatile(value.to_le()) }
        } else {
            // SAFETY: promised by the caller.
            unsafe { self.write_rest(offset, value) }
        }
    }

    #[inline]
    fn read16(&self, offset: u32) -> u16 {
        match (self.narrow::<u16>(offset), &self.rest) {
            (Some(register), _) => {
                // SAFETY: in bounds, aligned, mapped (type invariant).
                let value = unsafe { register.read_volatile() };
                barrier::dma_rmb();
                u16::from_le(value)
            }
            (None, Some(rest)) => rest.read16(offset),
            (None, None) => u16::MAX,
        }
    }

    #[inline]
    unsafe fn write16(&self, offset: u32, value: u16) {
        if let Some(register) = self.narrow::<u16>(offset) {
            barrier::dma_wmb();
            // SAFETY: in bounds, aligned, mapped (type invariant).
            unsafe { register.write_volatile(value.to_le()) }
        } else if let Some(rest) = &self.rest {
            // SAFETY: promised by the caller.
            unsafe { rest.write16(offset, value) }
        }
    }

    fn read8(&self, offset: u32) -> u8 {
        match (self.narrow::<u8>(offset), &self.rest) {
            (Some(register), _) => {
                // SAFETY: in bounds, mapped (type invariant).
                let value = unsafe { register.read_volatile() };
                barrier::dma_rmb();
                value
            }
            (None, Some(rest)) => rest.read8(offset),
            (None, None) => u8::MAX,
        }
    }

    unsafe fn write8(&self, offset: u32, value: u8) {
        if let Some(register) = self.narrow::<u8>(offset) {
            barrier::dma_wmb();
            // SAFETY: in bounds, mapped (type invariant).
            unsafe { register.write_volatile(value) }
        } else if let Some(rest) = &self.rest {
            // SAFETY: promised by the caller.
            unsafe { rest.write8(offset, value) }
        }
    }
}

impl fmt::Debug for MappedBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedBar").field("len", &self.len).finish_non_exhaustive()
    }
}
