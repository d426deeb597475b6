//! A part of a region.

use device::Bar;
use std::sync::Arc;

/// Registers at a place of a region. Offsets count from there; what lies beyond the end is not there.
pub(super) struct Window<B> {
    region: Arc<B>,
    at: u32,
    len: u32,
}

impl<B: Bar> Window<B> {
    /// Creates a window of `len` bytes from `at`, which the region must have.
    pub(super) fn new(region: Arc<B>, at: u32, len: u32) -> Self {
        Self { region, at, len }
    }

    /// Returns where in the region the `width` bytes at `offset` are; a place in no region if they are not in the window.
    fn place(&self, offset: u32, width: u32) -> u32 {
        let inside = offset.checked_add(width).is_some_and(|end| end <= self.len);
        inside.then(|| self.at.checked_add(offset)).flatten().unwrap_or(u32::MAX)
    }

    /// Returns whether the window has `width` bytes at `offset`.
    pub(super) fn has(&self, offset: u64, width: u64) -> bool {
        offset.checked_add(width).is_some_and(|end| end <= u64::from(self.len))
    }

    pub(super) fn read8(&self, offset: u32) -> u8 {
        self.region.read8(self.place(offset, 1))
    }

    pub(super) fn read16(&self, offset: u32) -> u16 {
        self.region.read16(self.place(offset, 2))
    }

    pub(super) fn read32(&self, offset: u32) -> u32 {
        self.region.read32(self.place(offset, 4))
    }

    /// # Safety
    ///
    /// As [`Bar::write32`].
    pub(super) unsafe fn write8(&self, offset: u32, value: u8) {
        // SAFETY: promised by the caller.
        unsafe { self.region.write8(self.place(offset, 1), value) }
    }

    /// # Safety
    ///
    /// As [`Bar::write32`].
    pub(super) unsafe fn write16(&self, offset: u32, value: u16) {
        // SAFETY: promised by the caller.
        unsafe { self.region.write16(self.place(offset, 2), value) }
    }

    /// # Safety
    ///
    /// As [`Bar::write32`].
    pub(super) unsafe fn write32(&self, offset: u32, value: u32) {
        // SAFETY: promised by the caller.
        unsafe { self.region.write32(self.place(offset, 4), value) }
    }

    /// Returns the doorbell that notifies `queue` by the 16 bits at `offset`, which the window must have.
    pub(super) fn doorbell(&self, offset: u32, queue: u16) -> super::Doorbell<B> {
        super::Doorbell { region: Arc::clone(&self.region), at: self.place(offset, 2), queue }
    }
}
