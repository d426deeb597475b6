//! A router with three ports, its routes, and frames for it, good and bad in many ways: the same for `fwd` and for Linux.

use std::net::Ipv6Addr;

/// Addresses of the router's ports.
pub const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA0], [2, 0, 0, 0, 0, 0xB0], [2, 0, 0, 0, 0, 0xC0]];
/// Those of the next hops behind them; the first sends all frames.
pub const HOPS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA1], [2, 0, 0, 0, 0, 0xB1], [2, 0, 0, 0, 0, 0xC1]];
/// It.
const SENDER: [u8; 6] = HOPS[0];
/// Routes: (prefix, port). Nothing but errors for the senders leaves by the first port, where frames come in, so that it does
/// not matter when that is ready to send.
pub const ROUTES: [(&str, usize); 16] = [
    ("0.0.0.0/0", 2),
    ("10.0.0.0/8", 1),
    ("10.1.0.0/16", 2),
    ("10.1.2.0/24", 1),
    ("10.1.2.128/25", 2),
    ("10.1.2.3/32", 2),
    ("198.18.0.0/15", 0),
    ("0.0.0.0/8", 1),
    ("240.0.0.0/4", 1),
    ("169.254.0.0/16", 1),
    ("::/0", 2),
    ("2001:db9::/32", 0),
    ("2001:db8::/32", 1),
    ("2001:db8:1::/48", 2),
    ("2001:db8:1:2::/64", 1),
    ("2001:db8:1:2::3/128", 2),
];

/// Xorshift (Marsaglia 2003): the same frames in each run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    ///
    /// # Panics
    ///
    /// When that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("48 bits") % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A frame that says its number, good or bad in one of many ways.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn frame(&mut self, number: u32) -> Vec<u8> {
        let payload = self.below(80) + 8;
        let mut payload: Vec<u8> = (0..payload).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect();
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let mut frame = if self.below(3) == 0 { self.ipv6(&payload) } else { self.ipv4(&payload) };
        match self.below(30) {
            0 => frame[..6].fill(0xFF),
            1 => frame[..6].copy_from_slice(&[1, 0, 0x5E, 1, 2, 3]),
            2 => frame[5] ^= 4,
            3 => frame[12..14].copy_from_slice(&self.one_of(&[[0x81, 0], [8, 6], [0, 40], [0x88, 0x47]])),
            4..12 => frame.resize(frame.len() + self.below(30), 0xEE),
            12 => frame.truncate(17 + self.below(frame.len() - 17)),
            _ => {}
        }
        frame
    }

    fn ipv4(&mut self, payload: &[u8]) -> Vec<u8> {
        let from = match self.below(16) {
            0 => self.one_of(&[[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]]),
            _ => [198, 18, 0, 1],
        };
        let destinations = [[10, 0, 0, 1], [10, 1, 0, 1], [10, 1, 2, 1], [10, 1, 2, 3], [10, 1, 2, 200], [11, 0, 0, 1]];
        let to = match self.below(12) {
            0 => self.one_of(&[[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [239, 1, 2, 3], [255; 4]]),
            _ => self.one_of(&destinations),
        };
        let options = self.one_of(&[0_u8, 0, 0, 0, 0, 1, 2, 10]);
        let header = 20 + usize::from(options) * 4;
        let total = u16::try_from(header + payload.len()).expect("short");
        let total = match self.below(30) {
            0 => total + 1,
            1 => u16::try_from(header - 1).expect("short"),
            _ => total,
        };
        let (id, ttl) = (self.below(65536), self.one_of(&[64, 64, 64, 64, 255, 2, 1, 0]));
        let mut ip =
            [&[0x45 + options, 0], &total.to_be_bytes()[..], &id.to_be_bytes()[6..], &[0x40, 0, ttl, 253]].concat();
        ip.extend([&[0, 0], &from[..], &to].concat());
        ip.resize(header, 1);
        match self.below(30) {
            0 => ip[0] = 0x65,
            1 => ip[0] = 0x44,
            _ => {}
        }
        let mut ip = with_checksum(ip);
        if self.below(20) == 0 {
            ip[10] ^= 0x80;
        }
        routed(&[8, 0], &ip, payload)
    }

    fn ipv6(&mut self, payload: &[u8]) -> Vec<u8> {
        let from = match self.below(12) {
            0 => self.one_of(&["::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.0.1"]),
            _ => "2001:db9::1",
        };
        let destinations = ["2001:db8::1", "2001:db8:1::1", "2001:db8:1:2::1", "2001:db8:1:2::3", "2001:dba::1"];
        let to = match self.below(12) {
            0 => self.one_of(&["::1", "ff02::1", "ff0e::1", "fe80::1"]),
            _ => self.one_of(&destinations),
        };
        let length = payload.len() + usize::from(self.below(20) == 0);
        let hop_limit = self.one_of(&[64, 64, 64, 255, 2, 1, 0]);
        let mut ip = vec![self.one_of(&[0x60, 0x60, 0x6A, 0x60, 0x60, 0x60, 0x50, 0x60]), 0, 1, 2];
        ip.extend(u16::try_from(length).expect("short").to_be_bytes());
        ip.extend([253, hop_limit]);
        for address in [from, to] {
            ip.extend(address.parse::<Ipv6Addr>().expect("an address").octets());
        }
        routed(&[0x86, 0xDD], &ip, payload)
    }
}

/// A frame to the first port.
#[must_use]
pub fn routed(ether_type: &[u8; 2], header: &[u8], payload: &[u8]) -> Vec<u8> {
    [&MACS[0], &SENDER, &ether_type[..], header, payload].concat()
}

/// Puts the checksum of RFC 1071 into a header that has zeros there.
///
/// # Panics
///
/// When the header is shorter than 12 bytes, or of an odd number.
#[must_use]
pub fn with_checksum(mut header: Vec<u8>) -> Vec<u8> {
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!sum).to_be_bytes()[2..]);
    header
}

/// An address of Ethernet in words.
#[must_use]
pub fn words([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}
