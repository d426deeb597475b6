//! What is known of the checksum of a frame's transport protocol, and the software that completes one.

use crate::{Meta, Packet};
use wire::Sum;

/// What is known about the checksum in the transport header (TCP, UDP) of a frame.
///
/// ```
/// use mempool::{Checksum, Pool, PoolConfig, complete_checksum};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let mut packet = pool.alloc().unwrap();
/// packet.append(60).unwrap().fill(0);
/// packet.data_mut()[34] = 1; // in front of the field; the field itself is at 34 + 16
/// assert!(packet.set_checksum(Checksum::Partial { start: 34, offset: 16 }));
/// complete_checksum(std::slice::from_mut(&mut packet));
/// assert_eq!(packet.data()[50..52], [0xfe, 0xff]);
/// assert_eq!(packet.checksum(), Checksum::Unknown);
/// # Ok::<(), mempool::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is known: the checksum is as it was received or written.
    #[default]
    Unknown,
    /// A device has verified it, or vouches for it.
    Valid,
    /// It is not complete: the field holds the sum of the pseudo-header. Before the frame is sent on a wire, the field
    /// must be set to the complement of the sum of all bytes from `start` to the end of the frame (Virtio 1.2, section
    /// 5.1.6.2).
    Partial {
        /// Offset of the transport header from the start of the frame, in bytes.
        start: u16,
        /// Offset of the field in that header, in bytes: 16 (TCP) or 6 (UDP).
        offset: u16,
    },
}

impl Meta {
    /// Returns the word with `checksum` recorded in it; `None` if it cannot be: see [`Packet::set_checksum`].
    #[must_use]
    pub fn with_checksum(self, checksum: Checksum) -> Option<Self> {
        let others = self.0 & !(u64::MAX << KIND_SHIFT);
        let (kind, place) = match checksum {
            Checksum::Unknown => (0, 0),
            Checksum::Valid => (VALID, 0),
            Checksum::Partial { start, offset } => {
                let (kind, _) = [TCP, UDP].into_iter().find(|(_, field)| *field == offset)?;
                let place = self.offset().checked_add(start).filter(|place| *place <= LAST_PLACE)?;
                let end = usize::from(start) + usize::from(offset) + FIELD;
                (end <= usize::from(self.len())).then_some((kind, place))?
            }
        };
        Some(Self(others | kind << KIND_SHIFT | u64::from(place) << PLACE_SHIFT))
    }

    fn checksum(self) -> Checksum {
        let offset = match (self.0 & KIND) >> KIND_SHIFT {
            0 => return Checksum::Unknown,
            VALID => return Checksum::Valid,
            kind if kind == TCP.0 => TCP.1,
            _ => UDP.1,
        };
        let place = u16::try_from(self.0 >> PLACE_SHIFT).unwrap_or(0);
        match place.checked_sub(self.offset()) {
            Some(start) if usize::from(start) + usize::from(offset) + FIELD <= usize::from(self.len()) => {
                Checksum::Partial { start, offset }
            }
            // The header has been cut off.
            _ => Checksum::Unknown,
        }
    }
}

impl Packet {
    /// Returns what is known about the checksum. For a frame of several packets, the first packet holds this.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        self.meta().checksum()
    }

    /// Records what is known about the checksum. Returns false, and changes nothing, for a partial checksum whose field
    /// is not within this packet's data or is that of neither TCP nor UDP, or whose transport header begins beyond byte
    /// 8191 of the slot.
    ///
    /// Head room may be used and given back afterwards. If the data in front of the field is cut off, the record is
    /// lost with it.
    pub fn set_checksum(&mut self, checksum: Checksum) -> bool {
        let changed = self.meta().with_checksum(checksum);
        if let Some(meta) = changed {
            self.set_meta(meta);
        }
        changed.is_some()
    }
}

/// Completes the checksum of a frame (one packet, or a run of them) if it is partial; for devices that do not do so
/// themselves.
pub fn complete_checksum(frame: &mut [Packet]) {
    let Some(first) = frame.first_mut() else { return };
    let Checksum::Partial { start, offset } = first.checksum() else { return };
    first.set_checksum(Checksum::Unknown);
    let mut sum = Sum::default();
    for (n, packet) in frame.iter().enumerate() {
        sum = sum.and(if n == 0 { &packet.data()[start.into()..] } else { packet.data() });
    }
    // No sum, says a zero (RFC 768); the other way to write it means the same to TCP.
    let sum = match sum.checksum() {
        0 => u16::MAX,
        sum => sum,
    };
    let field = usize::from(start) + usize::from(offset);
    frame[0].data_mut()[field..field + FIELD].copy_from_slice(&sum.to_be_bytes());
}

/// Bits 49 and 50 of the word: the kind.
const KIND: u64 = 3 << KIND_SHIFT;
const KIND_SHIFT: u32 = 49;
const VALID: u64 = 1;
/// Partial sums of TCP and of UDP, and where these have their fields.
const TCP: (u64, u16) = (2, 16);
const UDP: (u64, u16) = (3, 6);
/// Bits 51 to 63: where the transport header begins, from the start of the slot, so that head room may come and go.
const PLACE_SHIFT: u32 = 51;
const LAST_PLACE: u16 = (1 << (u64::BITS - PLACE_SHIFT)) - 1;
/// Bytes of the field.
const FIELD: usize = 2;
