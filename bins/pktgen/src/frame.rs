//! The frames: Ethernet, IPv4 (RFC 791), UDP (RFC 768) from and to the addresses of RFC 2544 appendix C, then a mark, the
//! stream's id and the frame's number.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 14 | Ethernet: destination 02:00:00:00:00:02 unless told otherwise, source as the port's, type 0x0800 |
//! | 14 | 20 | IPv4: 198.18.0.1 + flow to 198.19.0.1 unless told otherwise, do not fragment, TTL 64 |
//! | 34 | 8 | UDP: port 49152 + stream modulo 16384 to 9 (discard), checksum 0: none |
//! | 42 | 4 | mark |
//! | 46 | 4 | stream |
//! | 50 | 8 | number, from 0 |

use std::net::Ipv4Addr;
use wire::Sum;
use wire::checksum::update_u16;

/// Bytes of the shortest frame, without check sequence.
pub(crate) const SHORTEST: u16 = 60;
/// Bytes of the longest frame, without check sequence.
pub(crate) const LONGEST: u16 = 1514;

const MARK: u32 = u32::from_be_bytes(*b"rwpg");
const ETHERNET: usize = 14;
const CHECKSUM_AT: usize = ETHERNET + 10;
const SOURCE_END: usize = ETHERNET + 16;
const MARK_AT: usize = 42;
const STREAM_AT: usize = 46;
const NUMBER_AT: usize = 50;
const DATA_END: usize = 58;

/// Where frames go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: Ipv4Addr,
}

/// Returns a frame of `size` bytes, number 0 of its stream and flow 0; `None` if `size` is not from [`SHORTEST`] to [`LONGEST`].
pub(crate) fn template(source: [u8; 6], to: Destination, stream: u32, size: u16) -> Option<Vec<u8>> {
    let ip_length = (SHORTEST..=LONGEST).contains(&size).then(|| size - 14)?;
    let [.., high, low] = stream.to_be_bytes();
    let port = 49152 + u16::from_be_bytes([high, low]) % 16384;
    let mut frame = Vec::with_capacity(size.into());
    frame.extend(to.mac);
    frame.extend(source);
    frame.extend([0x08, 0x00]);
    frame.extend([0x45, 0]);
    frame.extend(ip_length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([198, 18, 0, 1]);
    frame.extend(to.ip.octets());
    let checksum = Sum::of(&frame[ETHERNET..]).checksum();
    frame[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(9_u16.to_be_bytes());
    frame.extend((ip_length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(MARK.to_be_bytes());
    frame.extend(stream.to_be_bytes());
    frame.resize(size.into(), 0);
    Some(frame)
}

/// Writes a frame's number.
#[inline(always)]
pub(crate) fn set_number(frame: &mut [u8], number: u64) {
    if let Some(place) = frame.get_mut(NUMBER_AT..DATA_END) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// Makes the frame of a [`template`] one of flow `flow`: changes the source address, and the header checksum from that of
/// flow 0, `checksum`, by RFC 1624, equation 3.
#[inline(always)]
pub(crate) fn set_flow(frame: &mut [u8], checksum: u16, flow: u16) {
    let Some(head) = frame.first_chunk_mut::<MARK_AT>() else { return };
    let new = 1_u16.wrapping_add(flow);
    [head[CHECKSUM_AT], head[CHECKSUM_AT + 1]] = update_u16(checksum, 1, new).to_be_bytes();
    [head[SOURCE_END - 2], head[SOURCE_END - 1]] = new.to_be_bytes();
}

/// Returns the IPv4 header checksum of a [`template`].
pub(crate) fn checksum(frame: &[u8]) -> u16 {
    frame.get(CHECKSUM_AT..CHECKSUM_AT + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Stream and number of a frame that a [`template`] was the model of; `None` for any other frame.
#[inline(always)]
pub(crate) fn parse(frame: &[u8]) -> Option<(u32, u64)> {
    let head = frame.first_chunk::<DATA_END>()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let ours = word(MARK_AT) == MARK && head[12..15] == [0x08, 0x00, 0x45] && head[23] == 17;
    ours.then(|| (word(STREAM_AT), u64::from(word(NUMBER_AT)) << 32 | u64::from(word(NUMBER_AT + 4))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Destination = Destination { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(198, 19, 0, 1) };

    /// RFC 1071.
    fn internet_checksum(bytes: &[u8]) -> u16 {
        let sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        !u16::try_from(folded).unwrap_or(u16::MAX)
    }

    #[test]
    fn every_flow_has_its_address_and_a_right_checksum() {
        let mut frame = template([2, 0, 0, 0, 0, 1], TO, 7, 60).unwrap();
        let checksum = checksum(&frame);
        for flow in (0..65_534).rev() {
            set_flow(&mut frame, checksum, flow);
            assert_eq!(u16::from_be_bytes([frame[28], frame[29]]), flow + 1);
            assert_eq!(internet_checksum(&frame[14..34]), 0, "flow {flow}");
        }
        assert_eq!(frame, template([2, 0, 0, 0, 0, 1], TO, 7, 60).unwrap());
    }

    #[test]
    fn a_frame_is_valid_ipv4_and_udp_of_every_size() {
        for size in SHORTEST..=LONGEST {
            let frame = template([2, 0, 0, 0, 0, 1], TO, 7, size).unwrap();
            assert_eq!(frame.len(), usize::from(size));
            assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), size - 14, "total length");
            assert_eq!(u16::from_be_bytes([frame[38], frame[39]]), size - 34, "UDP length");
        }
        assert_eq!(template([0; 6], TO, 0, SHORTEST - 1), None);
        assert_eq!(template([0; 6], TO, 0, LONGEST + 1), None);
    }

    #[test]
    fn the_header_checksum_is_the_one_of_hand_calculation() {
        // 4500 + 002e + 0000 + 4000 + 4011 + c612 + 0001 + c613 + 0001 = 2_5166 -> 5168, complement ae97.
        let frame = template([2, 0, 0, 0, 0, 1], TO, 7, 60).unwrap();
        assert_eq!(frame[24..26], [0xae, 0x97]);
    }

    #[test]
    fn stream_and_number_come_back() {
        let mut frame = template([2, 0, 0, 0, 0, 1], TO, 0xdead_beef, 60).unwrap();
        set_number(&mut frame, 0x0123_4567_89ab_cdef);
        assert_eq!(parse(&frame), Some((0xdead_beef, 0x0123_4567_89ab_cdef)));
        assert_eq!(parse(&frame[..57]), None);
        for at in [12, 14, 23, 42] {
            let mut other = frame.clone();
            other[at] ^= 0xff;
            assert_eq!(parse(&other), None, "byte {at}");
        }
    }
}
