//! IPv6 (RFC 8200, RFC 4291).

use crate::check::Refusal;
use crate::ethernet::{self, HEADER, Station};
use wire::Ipv6Header;

/// Bytes of a header.
pub(crate) const FIXED: usize = 40;
/// Where the type of what follows it stands, and the type of options that every router on the way is to read (RFC 8200, 4.3).
pub(crate) const NEXT_HEADER: usize = 6;
pub(crate) const HOP_BY_HOP: u8 = 0;

/// Returns the destination of a packet that passes all checks and ends within the first `longest` bytes of its frame of
/// `len` bytes, and where it ends; `None` sends whoever asks to [`check`], with `reads_options` also for hop-by-hop options. `start`
/// are Ethernet and IP header.
#[inline(always)]
pub(crate) fn plain(
    start: &[u8; HEADER + FIXED],
    len: usize,
    station: Station,
    longest: usize,
    reads_options: bool,
) -> Option<(u128, usize)> {
    let [m0, m1, m2, m3, m4, m5, m6, m7, _, _, _, _, t0, t1, ip @ ..] = start;
    let header = Ipv6Header(ip);
    let end = HEADER + FIXED + header.payload_len();
    // Whatever `is_martian` looks at begins with 0, or with 0xFE or more.
    let is_usual = |first: u8| (1..0xFE).contains(&first);
    let passes = [*t0, *t1] == ethernet::IPV6
        && header.version() == 6
        && station.takes([*m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7])
        && header.hop_limit() > 1
        && !(reads_options && ip[NEXT_HEADER] == HOP_BY_HOP)
        && end <= len
        && end <= longest
        && is_usual(ip[8])
        && is_usual(ip[24]);
    passes.then(|| (header.destination().to_bits(), end))
}

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
pub(crate) fn is_martian(address: u128) -> bool {
    let top = address >> 112;
    address <= 1 || address >> 32 == 0xFFFF || top & 0xFFC0 == 0xFE80 || top >= 0xFF00
}
