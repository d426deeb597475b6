//! IPv4 (RFC 791, RFC 1812).

use crate::check::Refusal;
use crate::ethernet::{self, HEADER, Station};
use std::net::Ipv4Addr;
use wire::{Ipv4Header, Sum};

/// Bytes of a header without options.
pub(crate) const SHORTEST: usize = 20;

/// Returns whether a packet without options passes all checks but those of its length; if not, [`check`] says why.
/// `start` are Ethernet and IP header.
#[inline(always)]
pub(crate) fn is_plain(start: &[u8; HEADER + SHORTEST], station: Station) -> bool {
    is_plain_of(start, station, |ttl| ttl > 1)
}

/// Returns whether the time to live is all that keeps a packet from being [plain](is_plain).
#[inline(always)]
pub(crate) fn is_used_up(start: &[u8; HEADER + SHORTEST], station: Station) -> bool {
    is_plain_of(start, station, |ttl| ttl <= 1)
}

#[inline(always)]
fn is_plain_of(start: &[u8; HEADER + SHORTEST], station: Station, lives: impl FnOnce(u8) -> bool) -> bool {
    let Some(ip) = start.last_chunk::<SHORTEST>() else { return false };
    // In this order: tests of single fields side by side become fewer branches, and more instructions.
    ip[0] == 0x45
        && station.takes(*start.first_chunk().unwrap_or(&[0; 8]))
        && start[HEADER - 2..HEADER] == ethernet::IPV4
        && UNUSUAL[usize::from(ip[12])] | UNUSUAL[usize::from(ip[16])] == 0
        && lives(ip[8])
        && Sum::of_header(ip).is_right()
}

/// Returns whether the frame is of IPv4, without a tag.
#[inline(always)]
pub(crate) fn is_untagged(start: &[u8; HEADER + SHORTEST]) -> bool {
    start[HEADER - 2..HEADER] == ethernet::IPV4
}

/// The destination.
#[inline(always)]
pub(crate) fn destination(start: &[u8; HEADER + SHORTEST]) -> u32 {
    start.last_chunk().map_or(0, |address| u32::from_be_bytes(*address))
}

/// Returns whether a packet without options ends where its frame of `len` bytes does.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "it is 14")]
pub(crate) fn fills(start: &[u8; HEADER + SHORTEST], len: u16) -> bool {
    [start[HEADER + 2], start[HEADER + 3]] == len.wrapping_sub(HEADER as u16).to_be_bytes()
}

/// Returns where a packet without options ends, if that is between its header and the end of its frame of `len` bytes.
#[inline(always)]
pub(crate) fn end(start: &[u8; HEADER + SHORTEST], len: u16) -> Option<usize> {
    let end = HEADER + usize::from(u16::from_be_bytes([start[HEADER + 2], start[HEADER + 3]]));
    (HEADER + SHORTEST..=len.into()).contains(&end).then_some(end)
}

/// All checks of RFC 1812, 5.2.2 and 5.3. `start` begins with the header of a packet in `len` bytes of frame. Returns
/// destination and total length.
pub(crate) fn check(start: &[u8], len: usize) -> Result<(u32, usize), Refusal> {
    let first = *start.first().ok_or(Refusal::HeaderLength)?;
    if first >> 4 != 4 {
        return Err(Refusal::Version);
    }
    let header = Ipv4Header::first(start).ok_or(Refusal::HeaderLength)?;
    let whole = start.get(..header.header_len()).filter(|whole| whole.len() >= SHORTEST);
    let whole = whole.ok_or(Refusal::HeaderLength)?;
    let total = header.total_len();
    if total < whole.len() || total > len {
        return Err(Refusal::TotalLength);
    }
    if !Sum::of(whole).is_right() {
        return Err(Refusal::Checksum);
    }
    let [source, destination] = [header.source(), header.destination()].map(Ipv4Addr::to_bits);
    if is_martian(source) {
        return Err(Refusal::MartianSource);
    }
    if is_martian(destination) {
        return Err(Refusal::MartianDestination);
    }
    if header.ttl() <= 1 {
        return Err(Refusal::Ttl);
    }
    Ok((destination, total))
}

/// Not an address that a packet may come from or go to on a network: this network (0/8), loopback (127/8), link-local
/// (169.254/16), multicast, the reserved class E and the limited broadcast (RFC 1812, 4.2.2.11, 4.2.3.1 and 5.3.7;
/// RFC 3927, section 7). Multicast routing is not done here.
pub(crate) fn is_martian(address: u32) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
