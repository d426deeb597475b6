//! Advanced descriptors: 16 bytes that the driver and the device write in turn (82599 datasheet 7.1.6, 7.2.3; 82576 datasheet 7.1.5,
//! 7.2.2).

use crate::Family;
use ethdev::RxInfo;
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
    /// Reads what the device has written into a receive descriptor. What it wrote before that is visible afterwards.
    ///
    /// The device may write again at any time, so a second call is another answer: what is checked in one must not be used
    /// from another. The loop for AVX2 has a read of its own, and keeps to the same.
    #[inline(always)]
    pub(crate) fn received(&self) -> Received {
        Received(self.high())
    }

    /// The first word of a descriptor that was found done: what the device says of the frame, of which nothing is checked.
    #[inline(always)]
    pub(crate) fn first_word(&self) -> u64 {
        u64::from_le(self.low.load(Ordering::Relaxed))
    }

    /// Whether the device reports a transmit descriptor done. What it read before that it does not read again.
    #[inline(always)]
    pub(crate) fn is_sent(&self) -> bool {
        self.high() & tx::DD != 0
    }

    #[inline(always)]
    fn high(&self) -> u64 {
        u64::from_le(self.high.load(Ordering::Acquire))
    }

    /// Writes both words; the doorbell publishes them.
    #[inline(always)]
    pub(crate) fn write(&self, low: u64, high: u64) {
        self.low.store(low.to_le(), Ordering::Relaxed);
        self.high.store(high.to_le(), Ordering::Relaxed);
    }

    /// Asks for a report of a transmit descriptor that was written and not announced yet. Should the device have written to
    /// it meanwhile, it gets its own word back.
    #[inline(always)]
    pub(crate) fn ask_for_report(&self) {
        self.high.store((self.high() | tx::RS).to_le(), Ordering::Relaxed);
    }
}

/// What the device had written into a receive descriptor when it was read: status, errors and length. A value, which the
/// device cannot change any more.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Received(u64);

impl Received {
    /// What the device says of a good frame, with the descriptor's first word; of the second, the bits of [`rx::meant`], and checksum
    /// errors where [`RxInfo`] has them.
    #[inline(always)]
    pub(crate) fn info<F: Family>(self, first_word: u64, [_, meant]: [u64; 2]) -> RxInfo {
        let kept = self.0 & meant;
        RxInfo::from_write_back(first_word, kept.wrapping_add(kept & rx::low_errors::<F>()))
    }

    /// Whether the descriptor is the driver's again.
    #[inline(always)]
    pub(crate) fn is_done(self) -> bool {
        self.0 & rx::DD != 0
    }

    /// Whether the frame ends in its buffer.
    #[inline(always)]
    pub(crate) fn is_last(self) -> bool {
        self.0 & rx::EOP != 0
    }

    /// Whether the device marked the frame bad; in the last descriptor of a frame.
    pub(crate) fn is_bad<F: Family>(self) -> bool {
        self.0 & F::FRAME_ERRORS != 0
    }

    /// Bytes in the buffer, if that is one at least, and `limit` at most.
    #[inline(always)]
    pub(crate) fn len(self, limit: u16) -> Option<u16> {
        let len = rx::len(self.0);
        (len.wrapping_sub(1) < limit).then_some(len)
    }

    /// The length of a good frame that is wholly in one buffer of `limit` bytes.
    #[inline(always)]
    pub(crate) fn single<F: Family>(self, limit: u16) -> Option<u16> {
        if self.0 & rx::single_mask::<F>() == rx::SINGLE { self.len(limit) } else { None }
    }
}

/// Receive write-back, high word: status in bits 19:0, errors in 31:20, length in 47:32 (82599 datasheet 7.1.6.2,
/// 82576 datasheet 7.1.5). What of the errors is where is the family's.
pub(crate) mod rx {
    use crate::Family;

    /// Descriptor done.
    pub(crate) const DD: u64 = 1 << 0;
    /// Last buffer of the frame.
    pub(crate) const EOP: u64 = 1 << 1;
    /// The frame has a VLAN tag; if the queue strips tags, it has had one.
    pub(crate) const VP: u64 = 1 << 3;
    /// Checksum errors, L4 and IP, where [`ethdev::RxInfo`] has them.
    const CHECKSUM_ERRORS: u64 = 1 << 30 | 1 << 31;

    /// What [`single_mask`] leaves of a good frame in one buffer.
    pub(crate) const SINGLE: u64 = DD | EOP;

    /// See [`SINGLE`].
    #[inline(always)]
    pub(crate) const fn single_mask<F: Family>() -> u64 {
        DD | EOP | F::FRAME_ERRORS
    }

    /// Checksum errors that are a bit lower than in an [`ethdev::RxInfo`]: added to themselves they are in place, as the bit above
    /// them is clear in good frames.
    #[inline(always)]
    pub(crate) const fn low_errors<F: Family>() -> u64 {
        if F::CHECKSUM_ERRORS == CHECKSUM_ERRORS { 0 } else { F::CHECKSUM_ERRORS }
    }

    /// The bits of both words that mean something in an [`ethdev::RxInfo`]. VP does not where no tags are stripped.
    pub(crate) const fn meant(strip_vlan: bool) -> [u64; 2] {
        [!0, if strip_vlan { !0 } else { !VP }]
    }

    /// Bytes written to the buffer, as the device says.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is a half word")]
    pub(super) const fn len(high: u64) -> u16 {
        (high >> 32) as u16
    }
}

/// Transmit data descriptor, high word: length in bits 15:0, command in 31:20, status in 35:32, frame length in 63:46
/// (82599 datasheet 7.2.3.2.4, 82576 datasheet 7.2.2.3).
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
