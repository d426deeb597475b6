//! A frame that arrived: its end, where its tag is, and what its checksum says of it.

use measure::{Checked, Kind, check};
use mempool::Packet;

/// Room for the longest tag, should it lie in several buffers.
#[derive(Debug, Default)]
pub(crate) struct Tail([u8; BYTES]);

const BYTES: usize = Kind::Full.bytes();

impl Tail {
    /// Returns a frame in one packet, or the last bytes of another, as many as the longest tag has.
    #[inline(always)]
    pub(crate) fn of<'p>(&'p mut self, frame: &'p [Packet]) -> &'p [u8] {
        match frame {
            [packet] => packet.data(),
            [.., last] if last.len() >= BYTES => &last.data()[last.len() - BYTES..],
            _ => self.of_several(frame),
        }
    }

    #[inline(never)]
    fn of_several(&mut self, frame: &[Packet]) -> &[u8] {
        let mut room = BYTES;
        for packet in frame.iter().rev() {
            let data = packet.data();
            let (part, place) = (&data[data.len() - data.len().min(room)..], room);
            room -= part.len();
            self.0[room..place].copy_from_slice(part);
        }
        &self.0[room..]
    }
}

/// What its checksum says of a frame.
#[inline(always)]
pub(crate) fn checked(frame: &[Packet]) -> Checked {
    match frame {
        [packet] => check(packet.data(), []),
        _ => check_several(frame),
    }
}

#[inline(never)]
fn check_several(frame: &[Packet]) -> Checked {
    let pieces = frame.split_first();
    pieces.map_or(Checked::Unread, |(first, more)| check(first.data(), more.iter().map(Packet::data)))
}
