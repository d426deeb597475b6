//! Advanced descriptors: 16 bytes that the driver and the device write in turn (82599 datasheet 7.1.6, 7.2.3).

use std::sync::atomic::{AtomicU64, Ordering};

/// One descriptor, as two little-endian words.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Descriptor {
    low: AtomicU64,
    high: AtomicU64,
}

/// Bytes in a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

impl Descriptor {
    /// The high word: status, errors and length of a receive write-back; command and status of a transmit descriptor.
    /// What the device wrote before it is visible afterwards.
    #[inline(always)]
    pub(crate) fn high(&self) -> u64 {
        u64::from_le(self.high.load(Ordering::Acquire))
    }

    /// Writes both words; the doorbell publishes them.
    #[inline(always)]
    pub(crate) fn write(&self, low: u64, high: u64) {
        self.low.store(low.to_le(), Ordering::Relaxed);
        self.high.store(high.to_le(), Ordering::Relaxed);
    }

    /// Writes the high word again, before the doorbell.
    #[inline(always)]
    pub(crate) fn set_high(&self, high: u64) {
        self.high.store(high.to_le(), Ordering::Relaxed);
    }
}

/// Receive write-back, high word: status in bits 19:0, errors in 31:20, length in 47:32 (7.1.6.2).
pub(crate) mod rx {
    /// Descriptor done.
    pub(crate) const DD: u64 = 1 << 0;
    /// Last buffer of the frame.
    pub(crate) const EOP: u64 = 1 << 1;
    /// Errors of the frame itself: CE, LE, PE, OSE, USE (the 82599 reports them all as RXE, bit 29). Checksum errors
    /// (bits 30 and 31) are the end hosts' concern, not a forwarder's.
    pub(crate) const FRAME_ERRORS: u64 = 1 << 24 | 1 << 25 | 1 << 27 | 1 << 28 | 1 << 29;

    /// What [`SINGLE_MASK`] leaves of a good frame in one buffer.
    pub(crate) const SINGLE: u64 = DD | EOP;
    /// See [`SINGLE`].
    pub(crate) const SINGLE_MASK: u64 = DD | EOP | FRAME_ERRORS;

    /// Bytes written to the buffer.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is a half word")]
    pub(crate) const fn len(high: u64) -> u16 {
        (high >> 32) as u16
    }
}

/// Transmit data descriptor, high word: length in bits 15:0, command in 31:20, status in 35:32, frame length in 63:46
/// (7.2.3.2.4).
pub(crate) mod tx {
    /// Advanced data descriptor with frame check sequence to be inserted: DTYP 3, IFCS, DEXT.
    pub(crate) const DATA: u64 = 3 << 20 | 1 << 25 | 1 << 29;
    /// Last buffer of the frame.
    pub(crate) const EOP: u64 = 1 << 24;
    /// Report status: write DD back.
    pub(crate) const RS: u64 = 1 << 27;
    /// Descriptor done.
    pub(crate) const DD: u64 = 1 << 32;
    /// Where the length of the whole frame begins.
    pub(crate) const PAYLEN_SHIFT: u32 = 46;
}
