//! Register windows.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A window of 32-bit little-endian device registers (a PCI base address region).
///
/// Offsets are in bytes from the start of the region and multiples of 4. An access outside the region
/// behaves as on the bus: reads return all ones, writes are lost.
pub trait Bar: Send + Sync + 'static {
    /// Size of the region in bytes.
    fn size(&self) -> usize;

    /// Reads the register at `offset`. Reading may have side effects in the device (clear on read).
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`. Every earlier store of this thread is visible to the device before it.
    ///
    /// # Safety
    ///
    /// The write must not make the device access memory that it has not been given: no address, length, ring
    /// index or enable bit that lets it reach bytes which Rust references or other owners use.
    unsafe fn write32(&self, offset: u32, value: u32);
}

/// A [`Bar`] that is mapped memory: a BAR mapped through VFIO or sysfs, or ordinary memory in a bench.
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

    /// For a region of which only the first part can be mapped: accesses beyond it go to `whole`, which takes offsets
    /// from the start of the region and knows its size.
    #[must_use]
    pub fn with_rest(self, whole: Box<dyn Bar>) -> Self {
        Self { rest: Some(whole), ..self }
    }

    #[cold]
    fn read_rest(&self, offset: u32) -> u32 {
        self.rest.as_ref().map_or(u32::MAX, |rest| rest.read32(offset))
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
            // SAFETY: in bounds, aligned, mapped (type invariant).
            Some(register) => u32::from_le(unsafe { register.read_volatile() }),
            None => self.read_rest(offset),
        }
    }

    #[inline(always)]
    unsafe fn write32(&self, offset: u32, value: u32) {
        if let Some(register) = self.at(offset) {
            // x86 keeps stores to write-back memory ahead of a later uncached store; the fence stops the compiler.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            // SAFETY: in bounds, aligned, mapped (type invariant).
            unsafe { register.write_volatile(value.to_le()) }
        } else {
            // SAFETY: promised by the caller.
            unsafe { self.write_rest(offset, value) }
        }
    }
}

impl fmt::Debug for MappedBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedBar").field("len", &self.len).finish_non_exhaustive()
    }
}
