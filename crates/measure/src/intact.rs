//! Whether a frame is as it was sent, by the checksums of IPv4 and of UDP, TCP or ICMP.

use wire::Sum;

/// Bytes of the shortest frame, of which most come at high rates.
const SHORTEST: usize = 60;
const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP_HEADER: usize = 8;
/// Protocol numbers.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Bytes of the shortest header of TCP, and of most messages of ICMP.
const TCP_HEADER: usize = 20;
const ICMP_HEADER: usize = 8;

/// Returns false for a frame (without check sequence) whose IPv4 header has a wrong checksum (RFC 791, 3.1), or whose UDP, TCP or ICMP over
/// IPv4 or IPv6 has (RFC 768; RFC 9293, 3.1; RFC 792; RFC 4443, 2.3; RFC 8200, 8.1). True for one that is right, and for all that has none:
/// other protocols, fragments, IPv4 with options, IPv6 with extension headers, a checksum of 0 in UDP, and what is cut off. Up to two VLAN
/// tags are passed over. A frame may lie in several pieces, of which the first has all headers.
///
/// ```
/// let mut frame = [0; 60];
/// frame[12..26].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x7a, 0xc0]);
/// frame[38..42].copy_from_slice(&[0, 26, 0xff, 0xba]); // UDP: 26 bytes and the checksum, over zeros
/// assert!(measure::is_intact(&frame, []));
/// frame[59] ^= 1;
/// assert!(!measure::is_intact(&frame, []));
/// ```
#[inline(always)]
#[must_use]
pub fn is_intact<'f>(first: &'f [u8], more: impl IntoIterator<Item = &'f [u8]>) -> bool {
    check(first, more) != Checked::Wrong
}

/// What the checksums of a frame say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// They are right.
    Right,
    /// One is wrong.
    Wrong,
    /// That of IPv4 is not wrong, and there is none of UDP, TCP or ICMP that is read, or it does not cover what is there.
    Unread,
}

/// The same as [`is_intact`], with what has no checksum told apart.
#[inline(always)]
#[must_use]
pub fn check<'f>(first: &'f [u8], more: impl IntoIterator<Item = &'f [u8]>) -> Checked {
    // What most frames are: UDP over IPv4 in one piece, whole, neither tagged nor padded.
    if let Some(head) = first.first_chunk::<42>()
        && head[12..15] == [0x08, 0, 0x45]
        && head[23] == UDP
        && usize::from(u16::from_be_bytes([head[38], head[39]])) == first.len() - ETHERNET - IPV4
        && head[20] & 0x3f == 0
        && head[21] == 0
        && head[40..42] != [0, 0]
        && let Some(header) = head[ETHERNET..].first_chunk::<IPV4>()
        && is_right(0, header)
    {
        let pseudo = u64::from(u16::from_le_bytes([0, UDP])) + u64::from(u16::from_le_bytes([head[38], head[39]]));
        // Addresses and datagram are one piece.
        let is_right = match <&[u8; SHORTEST]>::try_from(first) {
            // Of a length that is known there is no loop.
            Ok(shortest) => is_right(pseudo, &shortest[26..]),
            Err(_) => is_right(pseudo, &first[26..]),
        };
        return if is_right { Checked::Right } else { Checked::Wrong };
    }
    check_other(first, &mut more.into_iter())
}

/// Whether the sum of words of 16 bits is 0xffff (RFC 1071) of bytes, 8 at least, and of what is in `sum`. Words are added four at a time and in
/// the order of x86, as a remainder by 0xffff is the same in both (section 2 (B)).
#[inline(always)]
fn is_right(mut sum: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut add = |word: u64| {
        let (more, carry) = sum.overflowing_add(word);
        sum = more + u64::from(carry);
    };
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    // The rest is the end of the last 8 bytes.
    let last = bytes.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
    add(last >> 1 >> (63 - 8 * rest.len()));
    sum.is_multiple_of(0xffff)
}

#[inline(never)]
fn check_other<'f>(first: &'f [u8], more: &mut dyn Iterator<Item = &'f [u8]>) -> Checked {
    match checked(first, more) {
        Some(true) => Checked::Right,
        Some(false) => Checked::Wrong,
        None => Checked::Unread,
    }
}

/// Where what is not Ethernet begins in a frame, behind up to two VLAN tags.
fn behind_ethernet(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET;
    while frame.get(at - 2..at)? == [0x81, 0] || frame[at - 2..at] == [0x88, 0xa8] {
        at += VLAN_TAG;
        if at > ETHERNET + 2 * VLAN_TAG {
            return None;
        }
    }
    Some(at)
}

/// Returns a frame (without check sequence) up to the end of its IP packet; `None` if nothing follows that, or there is none behind up to
/// two VLAN tags.
pub(crate) fn unpadded(frame: &[u8]) -> Option<&[u8]> {
    let at = behind_ethernet(frame)?;
    let word = |at: usize| frame.get(at..)?.first_chunk().map(|bytes| usize::from(u16::from_be_bytes(*bytes)));
    let (header, length) = match frame.get(at - 2..=at)? {
        [0x08, 0, 0x45..=0x4f] => (IPV4, word(at + 2)?),
        [0x86, 0xdd, 0x60..=0x6f] => (IPV6, IPV6 + word(at + 4)?),
        _ => return None,
    };
    let (packet, padding) = frame.split_at_checked(at + length)?;
    (length > header && !padding.is_empty()).then_some(packet)
}

/// `None` if there is nothing that could be checked.
fn checked<'f>(first: &'f [u8], more: &mut dyn Iterator<Item = &'f [u8]>) -> Option<bool> {
    let at = behind_ethernet(first)?;
    let ip = first.get(at..)?;
    // What follows the header of IP, and how much of it there is.
    let (protocol, addresses, datagram, length) = match first.get(at - 2..at)? {
        [0x08, 0] => {
            let header = ip.first_chunk::<IPV4>()?;
            // With options (RFC 791, 3.1).
            let with_options = ip.get(..4 * usize::from(header[0] & 15))?;
            if header[0] >= 0x45 && header[0] < 0x50 && !Sum::of(with_options).is_right() {
                return Some(false);
            }
            let is_whole = header[6] & 0x3f == 0 && header[7] == 0;
            let length = u16::from_be_bytes([header[2], header[3]]).checked_sub(20);
            (header[0] == 0x45 && is_whole).then_some((header[9], &ip[12..20], &ip[IPV4..], length?))?
        }
        [0x86, 0xdd] => {
            let header = ip.first_chunk::<IPV6>()?;
            (header[6], &ip[8..IPV6], &ip[IPV6..], u16::from_be_bytes([header[4], header[5]]))
        }
        _ => return None,
    };
    let is_v4 = addresses.len() == 8;
    let (shortest, length) = match protocol {
        UDP => {
            let header = datagram.first_chunk::<UDP_HEADER>()?;
            let has_sum = header[6..8] != [0, 0];
            (UDP_HEADER, has_sum.then_some(u16::from_be_bytes([header[4], header[5]]))?)
        }
        TCP => (TCP_HEADER, length),
        ICMP if is_v4 => (ICMP_HEADER, length),
        ICMPV6 if !is_v4 => (ICMP_HEADER, length),
        _ => return None,
    };
    if usize::from(length) < shortest || datagram.len() < shortest {
        return None;
    }
    let [high, low] = length.to_be_bytes();
    let pseudo_header = Sum::of(addresses).and(&[0, protocol, high, low]);
    let mut sum = if protocol == ICMP { Sum::of(&[]) } else { pseudo_header };
    let mut left = usize::from(length);
    for piece in std::iter::once(datagram).chain(more) {
        let piece = &piece[..piece.len().min(left)];
        sum = sum.and(piece);
        left -= piece.len();
    }
    // What is cut off cannot be told from what is damaged.
    (left == 0).then(|| sum.is_right())
}
