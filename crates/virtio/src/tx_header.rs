//! The header in front of a frame that is sent (Virtio 1.2, section 5.1.6.2).

use crate::rx_header::{CSUM_START, LARGEST_HEADER, LONGEST_HEADER, NEEDS_CSUM};
use crate::session::Header;
use mempool::{Meta, Packet, Slot};

/// Shortest frame that is sent, in bytes: an Ethernet header.
pub(crate) const SHORTEST: u16 = 14;

/// What makes a packet a frame that goes out as it is, with the header in front.
#[derive(Clone, Copy, Default)]
pub(crate) struct UsualFrame {
    /// The word of a packet of the usual pool with the least offset and length.
    pub(crate) least: u64,
    /// A frame is shorter than the shortest and this, in bytes: 0 where the header wants a descriptor of its own, or the pool's
    /// translation is not linear.
    pub(crate) limit: u64,
    /// Bytes of the shortest frame and its header.
    pub(crate) shortest: u32,
    /// IOVA of the header = [`Self::head`] + this.
    pub(crate) delta: u64,
}

impl UsualFrame {
    /// The same with another limit.
    #[inline(always)]
    pub(crate) fn below(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// [`Self::limit`] where a device has no MTU.
    pub(crate) const NO_LIMIT: u64 = u64::MAX;

    /// Of a word less the least one: pool and flags, which have to be the same, and the highest bits of offset and length,
    /// which are set where there is no room for the header, or the frame is too short.
    pub(crate) const REFUSED: u64 = u64::MAX << 32 | 1 << 31 | 1 << 15;

    /// For packets of `pool`, of which none is such a frame yet.
    pub(crate) fn of_pool(pool: u16) -> Self {
        Self { least: Meta::new(LONGEST_HEADER, SHORTEST, pool).0, ..Self::default() }
    }

    /// [`Self::limit`] for a device that the header is for.
    pub(crate) fn limit_of(header: &Header) -> u64 {
        match header.longest {
            _ if !header.any_layout => 0,
            u32::MAX => Self::NO_LIMIT,
            longest => (u64::from(longest) + 1).saturating_sub(SHORTEST.into()),
        }
    }

    /// Where the longest header would begin in front of the data of a packet that is such a frame, and by how many bytes the frame is
    /// longer than the shortest; `None` for another packet. Unless `LIMITED`, there is no limit.
    #[inline(always)]
    pub(crate) fn head<const LIMITED: bool>(&self, slot: Slot, meta: Meta) -> Option<(*mut u8, u32)> {
        let beyond = Meta(meta.0.wrapping_sub(self.least));
        if beyond.0 & Self::REFUSED != 0 || LIMITED && u64::from(beyond.len()) >= self.limit {
            return None;
        }
        Some((slot.as_ptr().wrapping_add(beyond.offset().into()), beyond.len().into()))
    }
}

/// Writes a header that asks for nothing: zeros, as many as the longest has.
///
/// # Safety
///
/// At `head` are [`LARGEST_HEADER`] bytes that the caller owns.
#[inline(always)]
pub(crate) unsafe fn clear_header(head: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe { head.cast::<[u8; LARGEST_HEADER]>().write([0; LARGEST_HEADER]) };
}

/// [`clear_header`] where it is not yet: the device may have the header's line, and a write would take it away.
///
/// # Safety
///
/// As [`clear_header`].
#[inline(always)]
pub(crate) unsafe fn make_clear(head: *mut u8) {
    // SAFETY: promised by the caller.
    if !unsafe { is_cleared(head) } {
        // SAFETY: as above.
        unsafe { clear_header(head) };
    }
}

/// Whether the header at `head` asks for nothing.
///
/// # Safety
///
/// As [`clear_header`].
#[inline(always)]
pub(crate) unsafe fn is_cleared(head: *mut u8) -> bool {
    // SAFETY: promised by the caller.
    let low = unsafe { head.cast::<u64>().read_unaligned() };
    // SAFETY: as above.
    let rest = unsafe { head.add(8) };
    // SAFETY: as above.
    let high = unsafe { rest.cast::<u32>().read_unaligned() };
    low | u64::from(high) == 0
}

/// Has the header in front of the data ask for a checksum (section 5.1.6.2).
///
/// # Safety
///
/// In front of `data` are [`LARGEST_HEADER`] bytes that the caller owns.
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
