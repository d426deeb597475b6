//! The Internet checksum (RFC 1071), and its update when a field changes (RFC 1624).
//!
//! ```
//! use wire::{Sum, checksum};
//!
//! let header = [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0, 0xac, 0x10, 0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c];
//! let sum = Sum::of(&header).checksum();
//! assert_eq!(sum, 0xb1e6);
//! assert_eq!(checksum::update_u16(sum, 0x4006, 0x3f06), 0xb2e6); // one hop further
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

/// The ones' complement sum of 16-bit big-endian words, over consecutive pieces. A piece may have an odd length; the
/// next one then begins in the middle of a word. An odd byte at the very end is the upper half of a word.
///
/// The sum is correct for up to 2^32 bytes in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Words as the host reads them: the sum of words in the other byte order is the sum in the other byte order (RFC 1071, section
    /// 2 (B)). Carries are not added in yet.
    words: u64,
    /// The pieces so far end in the middle of a word.
    odd: bool,
}

impl Sum {
    /// Returns the sum of one piece.
    #[inline(always)]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { words: words(bytes), odd: bytes.len() % 2 == 1 }
    }

    /// Returns the sum of an IPv4 header without options, in fewer instructions than [`Self::of`] takes.
    #[inline(always)]
    #[must_use]
    pub fn of_header(header: &[u8; 20]) -> Self {
        let (words, last) = header.as_chunks::<8>();
        let last = last.first_chunk().map_or(0, |last| u64::from(u32::from_ne_bytes(*last)));
        let [first, second] = [words[0], words[1]].map(u64::from_ne_bytes);
        // What is carried out at the top comes in at the bottom, which keeps the remainder.
        let (sum, carry) = first.overflowing_add(second);
        let (sum, more) = sum.overflowing_add(last + u64::from(carry));
        Self { words: sum + u64::from(more), odd: false }
    }

    /// Returns the sum with another piece added.
    #[inline]
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Self {
        let words = words(bytes);
        let more = if self.odd { u64::from(fold(words).swap_bytes()) } else { words };
        // What is carried out at the top comes in at the bottom, as above.
        let (words, carry) = self.words.overflowing_add(more);
        Self { words: words + u64::from(carry), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Returns the sum of the IPv4 pseudo-header of a TCP segment or UDP datagram of `len` bytes (RFC 9293, 3.1; RFC
    /// 768).
    #[must_use]
    pub fn pseudo_ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Self {
        let [high, low] = len.to_be_bytes();
        Self::of(&source.octets()).and(&destination.octets()).and(&[0, protocol, high, low])
    }

    /// Returns the sum of the IPv6 pseudo-header of a TCP segment, UDP datagram or ICMPv6 message of `len` bytes (RFC
    /// 8200, 8.1).
    #[must_use]
    pub fn pseudo_ipv6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, len: u32) -> Self {
        Self::of(&source.octets()).and(&destination.octets()).and(&len.to_be_bytes()).and(&[0, 0, 0, next_header])
    }

    /// Returns the sum with all carries added in.
    #[inline]
    #[must_use]
    pub fn folded(self) -> u16 {
        u16::from_be_bytes(fold(self.words).to_ne_bytes())
    }

    /// Returns the checksum: the complement of the sum. For UDP, write 0xffff where it is 0 (RFC 768).
    #[inline]
    #[must_use]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns whether the bytes, which include their checksum, are as they were sent: whether the sum is 0xffff (RFC
    /// 1071, section 1). Also true for all zeros.
    #[inline(always)]
    #[must_use]
    pub fn is_right(self) -> bool {
        // Adding carries in keeps the remainder.
        self.words.is_multiple_of(0xffff)
    }
}

/// Returns the checksum after a 16-bit field has changed from `old` to `new` (RFC 1624, equation 3).
#[inline(always)]
#[must_use]
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// Returns the checksum after a 32-bit field, on a 16-bit boundary, has changed from `old` to `new`.
#[inline(always)]
#[must_use]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// The sum of a piece, as words of 32 bits in the host's byte order.
#[inline(always)]
fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>() + u64::from(u32::from_ne_bytes(last))
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "no carry is left")]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    fold_u32(sum as u32) as u16
}

/// Returns a sum of 16-bit words with its carries added in: 16 bits, whose complement is the checksum. For sums of many headers side
/// by side; of one there is [`Sum`].
///
/// ```
/// assert_eq!(wire::checksum::fold_u32(0xffff + 0x8000 + 0x8001), 0x0002);
/// ```
#[inline(always)]
#[must_use]
pub const fn fold_u32(sum: u32) -> u32 {
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}
