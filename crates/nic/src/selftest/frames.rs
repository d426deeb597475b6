//! The frames of a self-test: each says which it is, and all of its bytes follow from that.

use ethdev::MacAddress;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Sum;

/// A frame that is to go round: its length in bytes without check sequence, and its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) len: usize,
    pub(super) flow: u16,
}

/// Makes frames, and knows them again.
#[derive(Clone, Debug)]
pub(super) struct Maker {
    destination: MacAddress,
    /// Tells the frames of this test from others.
    token: u32,
}

impl Maker {
    pub(super) fn new(destination: MacAddress) -> Self {
        // Time is all that is needed to tell one run from another.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { destination, token: now.subsec_nanos() ^ std::process::id().rotate_left(16) }
    }

    /// Returns frame `number`: UDP over IPv4 between addresses for benchmarks (RFC 2544), the flow in the source port.
    pub(super) fn frame(&self, number: u32, shape: Shape) -> Vec<u8> {
        let len = shape.len.max(SHORTEST);
        let mut frame = Vec::with_capacity(len);
        frame.extend(self.destination.0);
        frame.extend([0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00]);
        let words = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
        let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 1];
        ip[2..4].copy_from_slice(&words(len - ETHERNET));
        let sum = Sum::of(&ip).checksum().to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        frame.extend(ip);
        // No UDP checksum.
        frame.extend(
            [words(FIRST_PORT + usize::from(shape.flow)), words(9), words(len - ETHERNET - 20), [0, 0]].as_flattened(),
        );
        frame.extend(self.token.to_be_bytes());
        frame.extend(number.to_be_bytes());
        let rest = len - frame.len();
        // Neighbours differ, in a frame and between frames.
        frame.extend((0..rest).map(|at| (at.wrapping_mul(31) ^ number as usize).to_le_bytes()[0]));
        frame
    }

    /// Returns the number of a frame of this test.
    pub(super) fn number(&self, frame: &[u8]) -> Option<u32> {
        let at = |offset: usize| frame.get(offset..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
        at(PAYLOAD).filter(|token| *token == self.token)?;
        at(PAYLOAD + 4)
    }
}

/// The shortest frame on Ethernet, without check sequence.
pub(super) const SHORTEST: usize = 60;
const ETHERNET: usize = 14;
/// Where the payload of UDP begins.
const PAYLOAD: usize = ETHERNET + 20 + 8;
const FIRST_PORT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_valid_and_is_known_again() {
        let maker = Maker::new(MacAddress([2, 0, 0, 0, 0, 9]));
        for (number, len) in [(0, 60), (7, 1518), (u32::MAX, 9018)] {
            let frame = maker.frame(number, Shape { len, flow: 3 });
            assert_eq!((frame.len(), maker.number(&frame)), (len, Some(number)));
            assert!(Sum::of(&frame[14..34]).is_right());
            let flow = wire::Flow::of(&frame).expect("UDP");
            assert_eq!(flow.ports, Some((1027, 9)));
        }
        assert_ne!(maker.frame(1, Shape { len: 60, flow: 0 }), maker.frame(2, Shape { len: 60, flow: 0 }));
        assert_eq!(maker.number(&[0; 60]), None);
        assert_eq!(maker.number(&[]), None);
    }
}
