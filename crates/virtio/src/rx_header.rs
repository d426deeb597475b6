//! Headers of received frames (Virtio 1.2, section 5.1.6).

use crate::ring::Word;
use crate::session::Header;
use mempool::{Checksum, Meta, Packet, Slot};
use std::sync::atomic::{AtomicU16, Ordering};

/// What makes a buffer a good frame of its own in the present session, and into what packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GoodFrame {
    /// The word of a packet of one byte.
    pub(crate) meta: u64,
    /// Header and data of that.
    pub(crate) least: u64,
    /// Bytes of data that a buffer takes; 0 where no frame is good.
    pub(crate) data_room: u64,
    /// Where the header begins in the slot.
    start: usize,
    /// The header says in how many buffers the frame lies.
    pub(crate) mergeable: bool,
}

impl GoodFrame {
    /// For slots of `pool` whose data begins at `data_at`, and has `data_room` bytes.
    pub(crate) fn new(header: &Header, pool: u16, data_at: u16, data_room: u16) -> Self {
        Self {
            meta: Meta::new(data_at, 1, pool).0,
            least: u64::from(header.len) + 1,
            data_room: data_room.into(),
            start: usize::from(data_at - header.len),
            mergeable: header.mergeable,
        }
    }

    /// Sets the bytes of data that a buffer takes.
    pub(crate) fn set_room(&mut self, data_room: u16) {
        self.data_room = data_room.into();
    }

    /// The same where it is known that headers do not say it.
    #[inline(always)]
    pub(crate) fn of_one_buffer(self) -> Self {
        Self { mergeable: false, ..self }
    }

    /// The packet in a buffer that the device has done with, and into which it says that it wrote `len` bytes with the header; the
    /// number of data bytes in it beyond the first is added to `beyond`. Of the header of another one nothing is carried on: the queue
    /// reads it anew, once, and goes by that alone.
    ///
    /// # Safety
    ///
    /// A slot of the queue's, with room for header and data. A caller that is given the packet has to give the slot up, and may
    /// not panic before.
    #[inline(always)]
    pub(crate) unsafe fn packet(self, slot: Slot, len: u32, beyond: &mut u64) -> Option<Packet> {
        let more = u64::from(len).wrapping_sub(self.least);
        // SAFETY: by the caller's word.
        if more >= self.data_room || !unsafe { self.has_plain_header(slot) } {
            return None;
        }
        *beyond += more;
        // SAFETY: by the caller's word; the length was checked.
        Some(unsafe { Packet::from_slot(slot, Meta(self.meta.wrapping_add(more << 16))) })
    }

    /// Whether the header says what nearly all say: no offload, one buffer.
    ///
    /// # Safety
    ///
    /// A slot of the queue's, with room for the header.
    #[inline(always)]
    unsafe fn has_plain_header(self, slot: Slot) -> bool {
        // SAFETY: the caller's word.
        if unsafe { self.kinds(slot) } != 0 {
            return false;
        }
        // SAFETY: the header lies in the slot, in front of the data; one that is mergeable has 12 bytes.
        !self.mergeable || unsafe { read_word_once(slot, self.start + BUFFERS) } == 1
    }

    /// The offloads that the header speaks of: 0 where there is none.
    ///
    /// # Safety
    ///
    /// As [`Self::has_plain_header`].
    #[inline(always)]
    pub(crate) unsafe fn kinds(&self, slot: Slot) -> u16 {
        // SAFETY: the header lies in the slot, in front of the data.
        unsafe { read_word_once(slot, self.start + KINDS) }
    }
}

/// What the device wrote into a header: each word read once, and carried by value from then on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxHeader {
    /// Flags in the lower byte, kind of segmentation in the upper.
    kinds: u16,
    /// Buffers of the frame.
    pub(crate) buffers: u16,
}

impl RxHeader {
    /// Reads it.
    ///
    /// # Safety
    ///
    /// A slot of the queue's, with room for the header at `start`, which is even.
    pub(crate) unsafe fn read_once(slot: Slot, start: usize, mergeable: bool) -> Self {
        // SAFETY: the header lies in the slot, in front of the data.
        let kinds = unsafe { read_word_once(slot, start + KINDS) };
        // SAFETY: as above; one that is mergeable has 12 bytes.
        let buffers = if mergeable { unsafe { read_word_once(slot, start + BUFFERS) } } else { 1 };
        Self { kinds, buffers }
    }

    /// What it says of the checksum; `None` for what was not agreed on: a part of a checksum, or segmentation. Flags that
    /// mean nothing here are ignored (section 5.1.6.4.2).
    ///
    /// # Safety
    ///
    /// As [`Self::read_once`], with the same slot.
    #[cold]
    pub(crate) unsafe fn checksum(self, slot: Slot, start: usize, header: &Header) -> Option<Checksum> {
        let [flags, segmentation] = self.kinds.to_le_bytes();
        let says = |flag| flags & flag != 0;
        if segmentation != 0 || says(NEEDS_CSUM) && (!header.guest_checksum || says(RSC_INFO)) {
            None
        } else if says(NEEDS_CSUM) {
            let fields = start + CSUM_START;
            // SAFETY: the header lies in the slot, in front of the data.
            let start = unsafe { read_word_once(slot, fields) };
            // SAFETY: as above.
            let offset = unsafe { read_word_once(slot, fields + 2) };
            Some(Checksum::Partial { start, offset })
        } else if says(DATA_VALID) && header.guest_checksum {
            Some(Checksum::Valid)
        } else {
            Some(Checksum::Unknown)
        }
    }
}

/// Reads 16 bits of a header, which the device may be writing, in one access.
///
/// # Safety
///
/// They are initialised bytes of a slot that a queue owns, at an even `offset`.
#[inline(always)]
unsafe fn read_word_once(slot: Slot, offset: usize) -> u16 {
    // SAFETY: within the slot, by the caller's word.
    let place = unsafe { slot.as_ptr().add(offset) };
    // SAFETY: initialised, and aligned, as slots are; nothing on this side writes to it while the queue owns the slot.
    unsafe { &*place.cast::<Word<AtomicU16>>() }.read_once(Ordering::Relaxed)
}

/// Flags in the header (section 5.1.6), and where it says what part of the frame is summed, and where the sum goes.
pub(crate) const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// With it `csum_start` and `csum_offset` mean something else.
const RSC_INFO: u8 = 4;
pub(crate) const CSUM_START: usize = 6;
/// Where flags and kind of segmentation are, and the number of buffers.
const KINDS: usize = 0;
const BUFFERS: usize = 10;
/// The header of a device that reports hashes; the hash and its type are in its last 8 bytes.
pub(crate) const WITH_HASH: u16 = 20;
pub(crate) const HASH: usize = 8;
/// The longest other header, with the number of buffers.
pub(crate) const LARGEST_HEADER: usize = LONGEST_HEADER as usize;
pub(crate) const LONGEST_HEADER: u16 = 12;
