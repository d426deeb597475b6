//! Packets and their sums, worked out the slow way: byte by byte and bit by bit, as the RFCs write them down.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::cast_possible_truncation, reason = "lengths of test packets")]

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

/// A packet to be built: headers of the shortest kind, with right lengths and checksums.
#[derive(Clone, Debug)]
pub struct Packet {
    pub v6: bool,
    pub protocol: u8,
    /// Bytes of IPv4 options, or of one IPv6 destination options header; a multiple of 4 or 8.
    pub options: usize,
    pub payload: Vec<u8>,
    /// Flags of TCP.
    pub flags: u8,
}

impl Packet {
    pub fn new(v6: bool, protocol: u8, payload: usize) -> Self {
        let payload = (0..payload).map(|at| (at * 31 + at / 7 + 3) as u8).collect();
        Self { v6, protocol, options: 0, payload, flags: 0x18 }
    }

    /// Bytes of the network header.
    pub fn iplen(&self) -> usize {
        self.options + if self.v6 { 40 } else { 20 }
    }

    /// Bytes of the transport header.
    pub fn l4len(&self) -> usize {
        match self.protocol {
            TCP => 20,
            UDP => 8,
            SCTP => 12,
            _ => 0,
        }
    }

    /// The Ethernet frame, with all sums in place.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0xFF; 6];
        frame.extend([2, 0, 0, 0, 0, 9]);
        frame.extend(if self.v6 { [0x86, 0xDD] } else { [8, 0] });
        let below = self.l4len() + self.payload.len();
        if self.v6 {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(((self.options + below) as u16).to_be_bytes());
            frame.extend([if self.options > 0 { 60 } else { self.protocol }, 64]);
            frame.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            frame.extend([0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xAB, 2]);
            if self.options > 0 {
                frame.extend([self.protocol, (self.options / 8 - 1) as u8]);
                // PadN over all of it.
                frame.extend([1, (self.options - 4) as u8]);
                frame.resize(frame.len() + self.options - 4, 0);
            }
        } else {
            frame.extend([0x40 | (self.iplen() / 4) as u8, 0]);
            frame.extend(((self.iplen() + below) as u16).to_be_bytes());
            frame.extend([0xFF, 0xFE, 0x40, 0, 64, self.protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
            frame.resize(frame.len() + self.options, 1);
            let sum = !naive_sum(&frame[14..14 + self.iplen()]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let at = frame.len();
        match self.protocol {
            TCP => frame
                .extend([0x12, 0x34, 0, 80, 0xFF, 0xFF, 0xFF, 0x00, 0, 0, 0, 5, 0x50, self.flags, 1, 0, 0, 0, 0, 0]),
            UDP => {
                frame.extend([0x12, 0x34, 0, 53]);
                frame.extend((below as u16).to_be_bytes());
                frame.extend([0, 0]);
            }
            SCTP => frame.extend([0x12, 0x34, 0, 53, 9, 8, 7, 6, 0, 0, 0, 0]),
            _ => {}
        }
        frame.extend(&self.payload);
        let sum = !self.naive_transport_sum(&frame, at);
        match self.protocol {
            TCP => frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes()),
            UDP => frame[at + 6..at + 8].copy_from_slice(&if sum == 0 { 0xFFFF } else { sum }.to_be_bytes()),
            SCTP => {
                let crc = naive_crc32c(&frame[at..]);
                frame[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
            }
            _ => {}
        }
        frame
    }

    /// What software leaves in the transport checksum for the device: the sum of the pseudo-header.
    pub fn seed(&self, with_length: bool) -> u16 {
        let below = self.l4len() + self.payload.len();
        let frame = self.frame();
        naive_sum(&pseudo(self.v6, &frame, self.protocol, if with_length { below } else { 0 }))
    }

    fn naive_transport_sum(&self, frame: &[u8], at: usize) -> u16 {
        let mut all = pseudo(self.v6, frame, self.protocol, frame.len() - at);
        all.extend(&frame[at..]);
        naive_sum(&all)
    }
}

/// The pseudo-header of a frame (RFC 9293 3.1, RFC 8200 8.1).
fn pseudo(v6: bool, frame: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    let mut bytes = frame[if v6 { 22..54 } else { 26..34 }].to_vec();
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// RFC 1071: the one's complement sum of 16-bit words, carries added round after each word.
pub fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// RFC 9260, appendix A, bit by bit.
pub fn naive_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

/// Asserts that all sums of a frame that `packet` became are right, whatever its lengths.
pub fn assert_sums(packet: &Packet, frame: &[u8]) {
    let at = 14 + packet.iplen();
    if !packet.v6 {
        assert_eq!(naive_sum(&frame[14..at]), 0xFFFF, "IPv4 header");
    }
    let total = if packet.v6 {
        40 + usize::from(u16::from_be_bytes([frame[18], frame[19]]))
    } else {
        usize::from(u16::from_be_bytes([frame[16], frame[17]]))
    };
    let end = 14 + total;
    assert!(end == frame.len() || frame.len() == 60, "length field {total} in a frame of {}", frame.len());
    assert_eq!(packet.naive_transport_sum(&frame[..end], at), 0xFFFF, "transport");
}
