//! IPv6 (RFC 8200, RFC 4291).

use crate::check::Refusal;
use wire::Ipv6Header;

/// All checks. `start` begins with the header of a packet in `len` bytes of frame. Returns destination, and the
/// length with the header.
pub(crate) fn check(start: &[u8], len: usize) -> Result<(u128, usize), Refusal> {
    if *start.first().ok_or(Refusal::HeaderLength)? >> 4 != 6 {
        return Err(Refusal::Version);
    }
    let header = Ipv6Header::first(start).ok_or(Refusal::HeaderLength)?;
    let total = header.0.len() + header.payload_len();
    if total > len {
        return Err(Refusal::TotalLength);
    }
    let [source, destination] = [header.source(), header.destination()].map(u128::from);
    if is_martian(source) {
        return Err(Refusal::MartianSource);
    }
    if is_martian(destination) {
        return Err(Refusal::MartianDestination);
    }
    if header.hop_limit() <= 1 {
        return Err(Refusal::Ttl);
    }
    Ok((destination, total))
}

/// Not an address that a packet may come from or go to beyond its link: unspecified (RFC 4291, 2.5.2), loopback (2.5.3),
/// IPv4-mapped (RFC 6890, 2.2.3: not forwardable), link-local (RFC 4291, 2.5.6) and multicast (2.7). Multicast routing
/// is not done here.
fn is_martian(address: u128) -> bool {
    let top = address >> 112;
    address <= 1 || address >> 32 == 0xFFFF || top & 0xFFC0 == 0xFE80 || top >= 0xFF00
}
