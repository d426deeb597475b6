//! Sums that offloads insert and verify: the Internet checksum (RFC 1071), and the CRC32c of SCTP (RFC 9260, appendix A).

/// Where a checksum belongs in the header of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
    Sctp,
}

impl Transport {
    /// Offset of the checksum in the header.
    pub(super) fn checksum_at(self) -> usize {
        match self {
            Self::Udp => 6,
            Self::Tcp => 16,
            Self::Sctp => 8,
        }
    }

    /// Bytes of the shortest header.
    pub(super) fn header(self) -> usize {
        match self {
            Self::Udp => 8,
            Self::Tcp => 20,
            Self::Sctp => 12,
        }
    }
}

/// One's complement sum of big-endian 16-bit words, folded; an odd last byte counts as the upper half of a word.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    // Byte order does not matter to the sum until the end (RFC 1071, section 2): whole words are added as they lie in
    // memory. A frame has at most 64 KiB, so 32-bit words cannot overflow 64 bits.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    u16::from_be(fold(total))
}

/// Folds a sum of words to 16 bits.
pub(super) fn fold(mut total: u64) -> u16 {
    while total > 0xFFFF {
        total = (total >> 16) + (total & 0xFFFF);
    }
    u16::try_from(total).unwrap_or(0)
}

/// Adds two folded sums.
pub(super) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// The sum of a pseudo-header: addresses, protocol and length of the transport packet (RFC 9293 3.1, RFC 8200 8.1).
pub(super) fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    fold(u64::from(sum(addresses)) + u64::from(protocol) + length as u64)
}

/// The CRC32c of a packet whose checksum field counts as zero; SCTP stores it little endian.
pub(super) fn crc32c(packet: &[u8]) -> [u8; 4] {
    let at = Transport::Sctp.checksum_at();
    let mut crc = u32::MAX;
    for (position, byte) in packet.iter().enumerate() {
        let byte = if (at..at + 4).contains(&position) { 0 } else { *byte };
        crc = TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    }
    (!crc).to_le_bytes()
}

/// What each byte adds to a CRC of the polynomial 0x1EDC6F41, reflected.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0u32;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        // RFC 1071, section 3: the numerical example.
        assert_eq!(sum(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), 0xDDF2);
        assert_eq!(sum(&[0x00, 0x01, 0xF2]), 0xF201);
        assert_eq!(sum(&[]), 0);
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), [0xAA, 0x36, 0x91, 0x8A]);
    }
}
