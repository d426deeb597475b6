//! What the receive path knows about a frame: packet type, and the Toeplitz hash (datasheet 7.1.2.8, 5.3 of the write-back).

use super::map::{self, RegisterFile};

/// Input bytes of the longest hash: two IPv6 addresses and two ports.
const INPUT: usize = 36;

/// Packet type bits of an advanced write-back, in place (7.1.6.2).
pub(super) mod packet_type {
    pub(crate) const IPV4: u32 = 0x10;
    /// With [`IPV4`].
    pub(crate) const IPV4_OPTIONS: u32 = 0x20;
    pub(crate) const IPV6: u32 = 0x40;
    /// With [`IPV6`].
    pub(crate) const IPV6_EXTENSIONS: u32 = 0x80;
    pub(crate) const TCP: u32 = 0x100;
    pub(crate) const UDP: u32 = 0x200;
    pub(crate) const SCTP: u32 = 0x400;
}

/// The Toeplitz function of one key, one table per input byte.
pub(super) struct Toeplitz {
    tables: Box<[[u32; 256]; INPUT]>,
}

impl Toeplitz {
    pub(super) fn new(key: &[u8; 40]) -> Self {
        let mut tables = Box::new([[0; 256]; INPUT]);
        for (at, table) in tables.iter_mut().enumerate() {
            let mut window = [0; 8];
            window[..5].copy_from_slice(&key[at..at + 5]);
            let window = u64::from_be_bytes(window);
            // Each byte's entry is that of the byte without its lowest set bit, and the key window of that bit.
            for byte in 1..256usize {
                let bit = 7 - byte.trailing_zeros();
                let key = u32::try_from(window << bit >> 32).unwrap_or(0);
                table[byte] = table[byte & (byte - 1)] ^ key;
            }
        }
        Self { tables }
    }

    pub(super) fn from_registers(regs: &RegisterFile) -> Self {
        let mut key = [0; 40];
        for (bytes, offset) in key.chunks_exact_mut(4).zip((map::RSSRK..).step_by(4)) {
            bytes.copy_from_slice(&regs.get(offset).to_le_bytes());
        }
        Self::new(&key)
    }

    #[inline]
    pub(super) fn hash(&self, addresses: &[u8], ports: &[u8]) -> u32 {
        let input = addresses.iter().chain(ports);
        self.tables.iter().zip(input).fold(0, |hash, (table, byte)| hash ^ table[usize::from(*byte)])
    }
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toeplitz")
    }
}

/// What a frame is, as far as receive steering and checksums look; small, as every frame has one made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) packet_type: u32,
    /// Where the network header begins, and where it ends with its options and extensions.
    network: u32,
    transport: u32,
    pub(super) fragment: bool,
    /// An IPv6 routing header has places left to visit: the address in the header is not the one summed (RFC 8200, 8.1).
    pub(super) routed: bool,
}

impl Flow {
    /// Looks at the network header at `at`, behind EtherType `ethertype`.
    #[inline]
    pub(super) fn parse(frame: &[u8], ethertype: u16, at: usize) -> Self {
        let none = Self { packet_type: 0, network: 0, transport: 0, fragment: false, routed: false };
        match ethertype {
            0x0800 => Self::ipv4(frame, at),
            0x86DD => Self::ipv6(frame, at),
            _ => None,
        }
        .unwrap_or(none)
    }

    #[inline]
    fn ipv4(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 20)?;
        let length = usize::from(header[0] & 0xF) * 4;
        if header[0] >> 4 != 4 || length < 20 || frame.len() < at + length {
            return None;
        }
        let fragment = (header[6] & 0x3F) | header[7] != 0;
        let options = if length > 20 { packet_type::IPV4_OPTIONS } else { 0 };
        let transport = if fragment { 0 } else { transport_type(frame, header[9], at + length) };
        let packet_type = packet_type::IPV4 | options | transport;
        Some(Self { packet_type, network: narrow(at), transport: narrow(at + length), fragment, routed: false })
    }

    fn ipv6(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let (mut next, mut next_at, mut fragment, mut routed) = (header[6], at + 40, false, false);
        let mut packet_type = packet_type::IPV6;
        // Hop-by-hop, routing and destination options have a length; a fragment header ends the search.
        while matches!(next, 0 | 43 | 44 | 60) {
            packet_type |= packet_type::IPV6_EXTENSIONS;
            let Some(extension) = frame.get(next_at..next_at + 8) else { break };
            if next == 44 {
                fragment = true;
                break;
            }
            routed |= next == 43 && extension[3] != 0;
            next = extension[0];
            next_at += 8 + 8 * usize::from(extension[1]);
        }
        if !fragment {
            packet_type |= transport_type(frame, next, next_at);
        }
        Some(Self { packet_type, network: narrow(at), transport: narrow(next_at), fragment, routed })
    }

    /// Where the network header begins; meaningless without one.
    pub(super) fn network(&self) -> usize {
        self.network as usize
    }

    /// Where the network header ends.
    pub(super) fn transport(&self) -> usize {
        self.transport as usize
    }

    /// Both addresses, as they lie in the frame.
    pub(super) fn addresses<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let at = self.network();
        let range = if self.packet_type & packet_type::IPV4 != 0 { at + 12..at + 20 } else { at + 8..at + 40 };
        frame.get(range).unwrap_or_default()
    }

    /// RSS type and hash under the hash types that MRQC selects; type 0 if none applies.
    #[inline]
    pub(super) fn hash(&self, frame: &[u8], mrqc: u32, toeplitz: &Toeplitz) -> (u32, u32) {
        let on = |bit: u32| mrqc & 1 << bit != 0;
        let is = |kind: u32| self.packet_type & kind != 0;
        let (v4, v6) = (is(packet_type::IPV4), is(packet_type::IPV6));
        let (tcp, udp) = (is(packet_type::TCP), is(packet_type::UDP));
        let (kind, with_ports) = match () {
            () if v4 && tcp && on(16) => (1, true),
            () if v4 && udp && on(22) => (7, true),
            () if v4 && on(17) => (2, false),
            () if v6 && tcp && on(21) => (3, true),
            () if v6 && tcp && on(18) => (6, true),
            () if v6 && udp && on(23) => (8, true),
            () if v6 && udp && on(24) => (9, true),
            () if v6 && on(20) => (5, false),
            () if v6 && on(19) => (4, false),
            () => return (0, 0),
        };
        let at = self.transport();
        let ports = if with_ports { frame.get(at..at + 4).unwrap_or_default() } else { &[] };
        (kind, toeplitz.hash(self.addresses(frame), ports))
    }
}

/// The packet type of a transport protocol whose first bytes, ports, are in the frame.
#[inline]
fn transport_type(frame: &[u8], protocol: u8, at: usize) -> u32 {
    match protocol {
        _ if frame.len() < at + 4 => 0,
        6 => packet_type::TCP,
        17 => packet_type::UDP,
        132 => packet_type::SCTP,
        _ => 0,
    }
}

/// An offset in a frame.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verification suite published for receive side scaling.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn strict_published_vectors() {
        let toeplitz = Toeplitz::new(&KEY);
        for (source, sport, destination, dport, ip_only, with_ports) in [
            ([66, 9, 149, 187], 2794u16, [161, 142, 100, 80], 1766u16, 0x323e_8fc2, 0x51cc_c178),
            ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
            ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
        ] {
            let addresses = [source, destination].concat();
            let ports = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
            assert_eq!(toeplitz.hash(&addresses, &[]), ip_only);
            assert_eq!(toeplitz.hash(&addresses, &ports), with_ports);
        }
        let source: std::net::Ipv6Addr = "3ffe:2501:200:1fff::7".parse().unwrap();
        let destination: std::net::Ipv6Addr = "3ffe:2501:200:3::1".parse().unwrap();
        let addresses = [source.octets(), destination.octets()].concat();
        let ports = [2794u16.to_be_bytes(), 1766u16.to_be_bytes()].concat();
        assert_eq!(toeplitz.hash(&addresses, &[]), 0x2cc1_8cd5);
        assert_eq!(toeplitz.hash(&addresses, &ports), 0x4020_7d3d);
    }

    #[test]
    fn truncated_headers_are_no_ip() {
        let mut frame = [0u8; 60];
        frame[14] = 0x45;
        for end in 14..34 {
            assert_eq!(Flow::parse(&frame[..end], 0x0800, 14).packet_type, 0);
        }
        assert_eq!(Flow::parse(&frame[..34], 0x0800, 14).packet_type, packet_type::IPV4);
        frame[14] = 0x4F;
        assert_eq!(Flow::parse(&frame, 0x0800, 14).packet_type, 0);
        frame[14] = 0x44;
        assert_eq!(Flow::parse(&frame, 0x0800, 14).packet_type, 0);
    }
}
