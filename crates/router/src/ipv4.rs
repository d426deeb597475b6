//! IPv4 (RFC 791, RFC 1812).

use crate::check::Refusal;
use crate::ethernet::{self, HEADER, Station};

/// Bytes of a header without options.
pub(crate) const SHORTEST: usize = 20;

/// The destination and the total length of a packet without options, with at most `most` bytes behind its header, that passes all
/// checks; `None` sends whoever asks to [`check`]. `start` are Ethernet and IP header of a frame of `len` bytes.
#[inline(always)]
pub(crate) fn plain(
    start: &[u8; HEADER + SHORTEST],
    len: usize,
    station: Station,
    most: usize,
) -> Option<(u32, usize)> {
    let [m0, m1, m2, m3, m4, m5, m6, m7, _, _, _, _, t0, t1, ip @ ..] = *start;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    // One comparison says that the packet is no shorter than its header and no longer than the frame.
    let fits = total.wrapping_sub(SHORTEST) <= len.wrapping_sub(HEADER + SHORTEST).min(most);
    let passes = [t0, t1] == ethernet::IPV4
        && ip[0] == 0x45
        && station.takes([m0, m1, m2, m3, m4, m5, m6, m7])
        && ip[8] > 1
        && fits
        && UNUSUAL[usize::from(ip[12])] | UNUSUAL[usize::from(ip[16])] == 0
        && is_right(sum(&ip));
    passes.then(|| (u32::from_be_bytes([ip[16], ip[17], ip[18], ip[19]]), total))
}

/// All checks of RFC 1812, 5.2.2 and 5.3. `start` begins with the header of a packet in `len` bytes of frame. Returns
/// destination and total length.
pub(crate) fn check(start: &[u8], len: usize) -> Result<(u32, usize), Refusal> {
    let first = *start.first().ok_or(Refusal::HeaderLength)?;
    if first >> 4 != 4 {
        return Err(Refusal::Version);
    }
    let header_length = usize::from(first & 0xF) * 4;
    let header = start.get(..header_length).ok_or(Refusal::HeaderLength)?;
    let fixed: &[u8; SHORTEST] = header.first_chunk().ok_or(Refusal::HeaderLength)?;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if total < header_length || total > len {
        return Err(Refusal::TotalLength);
    }
    if !is_right(sum(header)) {
        return Err(Refusal::Checksum);
    }
    let source = u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
    let destination = u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]);
    if is_martian(source) {
        return Err(Refusal::MartianSource);
    }
    if is_martian(destination) {
        return Err(Refusal::MartianDestination);
    }
    if fixed[8] <= 1 {
        return Err(Refusal::Ttl);
    }
    Ok((destination, total))
}

/// Counts the time to live of a packet that passed down by one, and the checksum with it (RFC 1624, equation 3: the
/// word of time to live and protocol falls by 0x100, so the checksum rises by as much).
#[inline(always)]
pub(crate) fn hop(ttl: &mut u8, checksum: &mut [u8; 2]) {
    *ttl = ttl.wrapping_sub(1);
    let risen = u32::from(u16::from_ne_bytes(*checksum)) + u32::from(u16::from_ne_bytes([1, 0]));
    // In ones' complement 0xFFFF is 0, and what is carried out at the top comes in at the bottom. That holds for words
    // read in either byte order (RFC 1071, section 2).
    let risen = if risen >= 0xFFFF { risen + 1 } else { risen };
    #[expect(clippy::cast_possible_truncation, reason = "the carry was added")]
    let risen = risen as u16;
    *checksum = risen.to_ne_bytes();
}

/// Not an address that a packet may come from or go to on a network: this network (0/8), loopback (127/8), link-local
/// (169.254/16), multicast, the reserved class E and the limited broadcast (RFC 1812, 4.2.2.11, 4.2.3.1 and 5.3.7;
/// RFC 3927, section 7). Multicast routing is not done here.
fn is_martian(address: u32) -> bool {
    let [a, b, ..] = address.to_be_bytes();
    a == 0 || a == 127 || a >= 224 || (a, b) == (169, 254)
}

/// 1 for the first byte of addresses that [`is_martian`] must look at.
static UNUSUAL: [u8; 256] = {
    let mut unusual = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte == 0 || byte == 127 || byte == 169 || byte >= 224 {
            unusual[byte] = 1;
        }
        byte += 1;
    }
    unusual
};

/// The sum of a header as words of 32 bits, in whatever byte order (RFC 1071, section 2).
#[inline(always)]
fn sum(header: &[u8]) -> u64 {
    header.as_chunks().0.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

/// Whether a sum over a header says that its checksum is right: the ones' complement sum of its 16-bit words is 0xFFFF
/// (RFC 1071, section 1). Adding carries back in keeps a number's rest modulo 0xFFFF, and no header is all zeros.
#[inline(always)]
fn is_right(sum: u64) -> bool {
    sum.is_multiple_of(0xFFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 by the book: big-endian words, carries added until none is left, complemented.
    fn checksum(bytes: &[u8]) -> u16 {
        let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn counting_down_agrees_with_summing_anew_for_every_checksum() {
        for ttl in [2, 64, 255] {
            for id in 0..=u16::MAX {
                let mut header = [0x45, 0, 0, 40, 0, 0, 0, 0, ttl, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
                header[4..6].copy_from_slice(&id.to_be_bytes());
                let right = checksum(&header).to_be_bytes();
                header[10..12].copy_from_slice(&right);
                assert!(is_right(sum(&header)));
                let mut sum_after = right;
                hop(&mut header[8], &mut sum_after);
                header[10..12].fill(0);
                assert_eq!(u16::from_be_bytes(sum_after), checksum(&header), "id {id}");
                header[10..12].copy_from_slice(&sum_after);
                assert!(is_right(sum(&header)));
            }
        }
    }

    #[test]
    fn every_martian_is_unusual() {
        for top in 0..=255_u8 {
            for next in [0, 1, 253, 254, 255] {
                let address = u32::from_be_bytes([top, next, 1, 1]);
                assert!(!is_martian(address) || UNUSUAL[usize::from(top)] == 1, "{top}.{next}");
            }
        }
    }
}
