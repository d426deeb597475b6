//! Transmit offloads: context descriptors, checksum insertion, VLAN tags, segmentation (datasheet 7.2.3.2.3, 7.2.4, 7.2.5).

use super::checksum::{self, Transport};
use super::map::{self, RegisterFile};
use crate::violation::TransmitFault;

/// Bits of quadword 1 of data descriptors.
pub(super) const LEGACY_IC: u64 = 1 << 26;
pub(super) const VLE: u64 = 1 << 30;
pub(super) const TSE: u64 = 1 << 31;
const IXSM: u64 = 1 << 40;
const TXSM: u64 = 1 << 41;
const IPSEC: u64 = 1 << 42;

/// Bytes of a VLAN tag.
const TAG: usize = 4;
/// Offset of the checksum in an IPv4 header.
const IP_CHECKSUM: usize = 10;
/// Bytes of an IPv6 header, which its length field does not count.
const IPV6_HEADER: usize = 40;

/// What a context descriptor says (7.2.3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    vlan: u16,
    /// MACLEN, and the ends of the network and transport headers, from the start of the frame.
    network: usize,
    transport: usize,
    payload: usize,
    mss: usize,
    ipv4: bool,
    /// `None` if L4T is the reserved value 3.
    kind: Option<Transport>,
}

impl Context {
    pub(super) fn parse(low: u64, high: u64) -> Self {
        let bits = |word: u64, at: u32, mask: u64| usize::try_from(word >> at & mask).unwrap_or(0);
        let network = bits(low, 9, 0x7F);
        let transport = network + bits(low, 0, 0x1FF);
        Self {
            vlan: u16::try_from(low >> 16 & 0xFFFF).unwrap_or(0),
            network,
            transport,
            payload: transport + bits(high, 40, 0xFF),
            mss: bits(high, 48, 0xFFFF),
            ipv4: high & 1 << 10 != 0,
            kind: [Some(Transport::Udp), Some(Transport::Tcp), Some(Transport::Sctp), None][bits(high, 11, 3)],
        }
    }

    /// Bytes of all headers of a frame to be segmented.
    pub(super) fn headers(&self) -> usize {
        self.payload
    }
}

/// Settings of the device that offloads follow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// EtherType of inserted tags (DMATXCTL.VT).
    tag_type: u16,
    /// TCP flags kept in the first, middle and last segment (DTXTCPFLGL, DTXTCPFLGH).
    flags: [u16; 3],
}

impl Settings {
    pub(super) fn gather(regs: &RegisterFile) -> Self {
        let half = |word: u32| u16::try_from(word & 0xFFFF).unwrap_or(0);
        let (low, high) = (regs.get(map::DTXTCPFLGL), regs.get(map::DTXTCPFLGH));
        Self { tag_type: half(regs.get(map::DMATXCTL) >> 16), flags: [half(low), half(low >> 16), half(high)] }
    }

    /// TCP flags kept in one segment; a segment that is both first and last keeps what either keeps.
    fn kept_flags(&self, first: bool, last: bool) -> u16 {
        let [of_first, of_middle, of_last] = self.flags;
        match (first, last) {
            (true, true) => of_first | of_last,
            (true, false) => of_first,
            (false, true) => of_last,
            (false, false) => of_middle,
        }
    }
}

/// What the first data descriptor of a frame asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// Legacy: a checksum from byte `start` to the end, stored at `at`; a tag.
    Legacy {
        checksum: Option<(usize, usize)>,
        tag: Option<u16>,
    },
    Advanced {
        context: Context,
        bits: u64,
    },
}

impl Request {
    /// The request of a legacy descriptor.
    pub(super) fn legacy(high: u64) -> Self {
        let byte = |at: u32| usize::try_from(high >> at & 0xFF).unwrap_or(0);
        Self::Legacy {
            checksum: (high & LEGACY_IC != 0).then(|| (byte(40), byte(16))),
            tag: (high & VLE != 0).then(|| u16::try_from(high >> 48).unwrap_or(0)),
        }
    }

    /// Whether the frame is to be cut into segments.
    pub(super) fn segments(&self) -> Option<&Context> {
        match self {
            Self::Advanced { context, bits } if bits & TSE != 0 => Some(context),
            _ => None,
        }
    }

    fn tag(&self) -> Option<u16> {
        match self {
            Self::Legacy { tag, .. } => *tag,
            Self::Advanced { context, bits } => (bits & VLE != 0).then_some(context.vlan),
        }
    }

    /// Checks that what is asked for can be done to a frame of `bytes` bytes.
    pub(super) fn check(&self, bytes: usize) -> Result<(), TransmitFault> {
        let Self::Advanced { context, bits } = self else { return Ok(()) };
        let fail = |cause| Err(TransmitFault::Context(cause));
        if bits & IPSEC != 0 {
            return Err(TransmitFault::Ipsec);
        }
        if bits & (IXSM | TXSM | TSE) != 0 && context.network < 14 {
            return fail("MACLEN is below 14");
        }
        if bits & (IXSM | TSE) != 0 && context.transport > bytes {
            return fail("MACLEN and IPLEN reach beyond the frame");
        }
        if bits & IXSM != 0 && (!context.ipv4 || context.transport < context.network + 20) {
            return fail("IXSM without an IPv4 header (IPV4, IPLEN)");
        }
        if bits & (TXSM | TSE) != 0 {
            let Some(kind) = context.kind else { return fail("L4T is 3") };
            if context.transport + kind.header() > bytes {
                return fail("the transport header reaches beyond the frame");
            }
            if bits & TSE == 0 {
                return Ok(());
            }
            if kind == Transport::Sctp {
                return fail("SCTP cannot be segmented");
            }
            if context.payload < context.transport + kind.header() || context.payload > bytes {
                return fail("L4LEN does not fit the transport header and the frame");
            }
            if context.transport < context.network + if context.ipv4 { 20 } else { IPV6_HEADER } {
                return fail("IPLEN is shorter than an IP header");
            }
            if context.mss == 0 {
                return fail("MSS is 0");
            }
        }
        Ok(())
    }

    /// How many frames `whole` becomes.
    pub(super) fn frames(&self, whole: &[u8]) -> usize {
        self.segments().map_or(1, |context| (whole.len() - context.payload).div_ceil(context.mss).max(1))
    }

    /// Makes frame `number` of those that `whole` becomes, without padding and CRC. `check` must have passed.
    pub(super) fn make(&self, whole: &[u8], number: usize, settings: &Settings, frame: &mut Vec<u8>) {
        frame.clear();
        if let Some(context) = self.segments() {
            let from = context.payload + number * context.mss;
            let last = whole.len() - from <= context.mss;
            frame.extend_from_slice(&whole[..context.payload]);
            frame.extend_from_slice(if last { &whole[from..] } else { &whole[from..from + context.mss] });
            context.renumber(frame, number, settings.kept_flags(number == 0, last));
        } else {
            frame.extend_from_slice(whole);
        }
        match self {
            Self::Legacy { checksum: Some((start, at)), .. } => insert_sum(frame, *start, *at),
            Self::Advanced { context, bits } => context.insert_checksums(frame, *bits),
            Self::Legacy { .. } => {}
        }
        if let Some(tag) = self.tag()
            && frame.len() >= 12
        {
            let [a, b] = settings.tag_type.to_be_bytes();
            let [c, d] = tag.to_be_bytes();
            frame.splice(12..12, [a, b, c, d]);
        }
    }

    /// Bytes of the longest frame that `whole` bytes become, without CRC.
    pub(super) fn longest(&self, whole: usize) -> usize {
        let tag = if self.tag().is_some() { TAG } else { 0 };
        tag + self.segments().map_or(whole, |context| whole.min(context.payload + context.mss))
    }
}

impl Context {
    /// The headers of segment `number` (7.2.4.7): lengths, IP identification, sequence number, flags.
    fn renumber(&self, frame: &mut [u8], number: usize, kept_flags: u16) {
        let wrapping = |n: usize| u16::try_from(n & 0xFFFF).unwrap_or(0);
        let (network, transport, len) = (self.network, self.transport, frame.len());
        if self.ipv4 {
            put16(frame, network + 2, wrapping(len - network));
            let identification = get16(frame, network + 4).wrapping_add(wrapping(number));
            put16(frame, network + 4, identification);
        } else {
            put16(frame, network + 4, wrapping(len - network - IPV6_HEADER));
        }
        if self.kind == Some(Transport::Tcp) {
            let sequence = &mut frame[transport + 4..transport + 8];
            let first = sequence.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
            let sent = u32::try_from(number * self.mss).unwrap_or(u32::MAX);
            sequence.copy_from_slice(&first.wrapping_add(sent).to_be_bytes());
            let flags = get16(frame, transport + 12);
            put16(frame, transport + 12, flags & (0xF000 | kept_flags));
        } else {
            put16(frame, transport + 4, wrapping(len - transport));
        }
    }

    /// IXSM and TXSM. Fields count with what they hold: the transport's holds the sum of the pseudo-header, for segments
    /// without the length, which is added here (7.2.5.1).
    fn insert_checksums(&self, frame: &mut [u8], bits: u64) {
        if bits & IXSM != 0 {
            let sum = checksum::sum(&frame[self.network..self.transport]);
            put16(frame, self.network + IP_CHECKSUM, !sum);
        }
        let Some(kind) = self.kind.filter(|_| bits & TXSM != 0) else { return };
        let at = self.transport + kind.checksum_at();
        let segment = &frame[self.transport..];
        if kind == Transport::Sctp {
            let crc = checksum::crc32c(segment);
            frame[at..at + 4].copy_from_slice(&crc);
            return;
        }
        let mut sum = checksum::sum(segment);
        if bits & TSE != 0 {
            sum = checksum::add(sum, checksum::fold(segment.len() as u64));
        }
        // A UDP checksum of 0 would mean that there is none (RFC 768).
        let value = if kind == Transport::Udp && sum == 0xFFFF { 0xFFFF } else { !sum };
        put16(frame, at, value);
    }
}

/// Legacy IC: nothing if the offsets do not lie in the frame (7.2.3.2.2).
fn insert_sum(frame: &mut [u8], start: usize, at: usize) {
    if start < frame.len() && at + 2 <= frame.len() {
        let sum = checksum::sum(&frame[start..]);
        put16(frame, at, !sum);
    }
}

fn get16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

fn put16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
