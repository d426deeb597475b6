//! The header in front of a frame that is sent (Virtio 1.2, section 5.1.6.2).

use crate::rx_header::{CSUM_START, LARGEST_HEADER, LONGEST_HEADER, NEEDS_CSUM};
use crate::session::Header;
use mempool::{Meta, Packet, Slot};

/// What makes a packet a frame that goes out as it is, with the header in front.
#[derive(Clone, Copy, Default)]
pub(crate) struct UsualFrame {
    /// The word of a packet of the usual pool with the least offset and length.
    pub(crate) least: u64,
    /// Longest frame, in bytes: 0 where the header wants a descriptor of its own, or the pool's translation is not linear.
    pub(crate) longest: u32,
    pub(crate) header_len: u32,
    /// IOVA of the header = address of the data + this.
    pub(crate) delta: u64,
}

impl UsualFrame {
    /// The data of a packet that is such a frame, in front of which is room for the header, and their length; `None` for another
    /// packet.
    #[inline(always)]
    pub(crate) fn data(&self, slot: Slot, meta: Meta) -> Option<(*mut u8, u32)> {
        // Of a word less the least one: pool and flags, which have to be the same, and the highest bits of offset and length,
        // which are set where there is no room for the header, or the frame is too short.
        const REFUSED: u64 = u64::MAX << 32 | 1 << 31 | 1 << 15;
        let len = u32::from(meta.len());
        if meta.0.wrapping_sub(self.least) & REFUSED != 0 || len > self.longest {
            return None;
        }
        Some((slot.as_ptr().wrapping_add(meta.offset().into()), len))
    }
}

/// Writes a header that asks for nothing in front of the data: zeros, as many as the longest has.
///
/// # Safety
///
/// In front of `data` are [`LARGEST_HEADER`] bytes that the caller owns.
#[inline(always)]
pub(crate) unsafe fn clear_header(data: *mut u8) {
    // SAFETY: promised by the caller.
    let start = unsafe { data.sub(LARGEST_HEADER) };
    // SAFETY: promised by the caller.
    unsafe { start.cast::<[u8; LARGEST_HEADER]>().write([0; LARGEST_HEADER]) };
}

/// [`clear_header`] where it is not yet: the device may have the header's line, and a write would take it away.
///
/// # Safety
///
/// As [`clear_header`].
#[inline(always)]
pub(crate) unsafe fn make_clear(data: *mut u8) {
    // SAFETY: promised by the caller.
    if !unsafe { is_cleared(data) } {
        // SAFETY: as above.
        unsafe { clear_header(data) };
    }
}

/// Whether the header in front of the data asks for nothing.
///
/// # Safety
///
/// As [`clear_header`].
#[inline(always)]
pub(crate) unsafe fn is_cleared(data: *mut u8) -> bool {
    // SAFETY: promised by the caller.
    let start = unsafe { data.sub(LARGEST_HEADER) };
    // SAFETY: as above.
    let low = unsafe { start.cast::<u64>().read_unaligned() };
    // SAFETY: as above.
    let rest = unsafe { start.add(8) };
    // SAFETY: as above.
    let high = unsafe { rest.cast::<u32>().read_unaligned() };
    low | u64::from(high) == 0
}

/// Has the header in front of the data ask for a checksum (section 5.1.6.2).
///
/// # Safety
///
/// As [`clear_header`].
pub(crate) unsafe fn ask_for_checksum(data: *mut u8, header: &Header, start: u16, offset: u16) {
    let ([a, b], [c, d]) = (start.to_le_bytes(), offset.to_le_bytes());
    // SAFETY: promised by the caller; a header is not longer.
    let flags = unsafe { data.sub(header.len.into()) };
    // SAFETY: as above.
    unsafe { flags.write(NEEDS_CSUM) };
    // SAFETY: as above.
    let fields = unsafe { flags.add(CSUM_START) };
    // SAFETY: as above: the fields end where the shortest header does.
    unsafe { fields.cast::<[u8; 4]>().write([a, b, c, d]) };
}

/// Whether the header goes in front of the data of a frame's first packet, in the same buffer.
pub(crate) fn has_room(header: &Header, first: &Packet) -> bool {
    header.any_layout && first.meta().offset() >= LONGEST_HEADER
}
