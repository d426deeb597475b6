//! What a lane sends: the one seam between frames and the rest of the generator.

use measure::{Coverage, Kind, TagWriter};
use mempool::{Batch, Packet, Pool, PoolCache};
use stream::Stream;

/// The streams of a direction, each in its turn, and their tags.
#[derive(Debug)]
pub(crate) struct Traffic {
    parts: Vec<Part>,
    /// Whose turn it is, and how many frames are left of it.
    turn: usize,
    left: u64,
    /// Bytes of the largest frame, without check sequence.
    largest: usize,
    kind: Kind,
}

/// A stream, and the tags of its frames.
#[derive(Debug)]
struct Part {
    stream: Stream,
    /// Frames of a turn.
    weight: u64,
    /// The size of all frames; `None` if they differ, or others are larger.
    size: Option<usize>,
    writer: TagWriter,
    /// All buffers hold the frame.
    kept: bool,
}

/// Frames that are written at a time.
const BURST: usize = 32;

impl Traffic {
    /// Creates it from streams, which have left room for a tag, and their shares. `largest` is the size of the largest frame of all.
    pub(crate) fn new(streams: Vec<(Stream, u64)>, largest: usize, kind: Kind) -> Result<Self, measure::Error> {
        let part = |(stream, weight): (Stream, u64)| {
            let size = stream.size().map(usize::from).filter(|size| *size == largest);
            let writer = TagWriter::new(kind, 0, kind.bytes(), 0, coverage(&stream))?;
            Ok(Part { stream, weight: weight.max(1), size, writer, kept: false })
        };
        let parts = streams.into_iter().map(part).collect::<Result<Vec<_>, measure::Error>>()?;
        let left = parts.first().map_or(0, |part| part.weight);
        Ok(Self { parts, turn: 0, left, largest, kind })
    }

    /// Sets the number of the stream in all tags from here on.
    pub(crate) fn set_stream(&mut self, stream: u16) {
        for part in &mut self.parts {
            if let Ok(writer) = TagWriter::new(self.kind, stream, self.kind.bytes(), 0, coverage(&part.stream)) {
                part.writer = writer;
            }
        }
    }

    /// Writes the frame into every free buffer of a pool that nothing else uses, if all frames are the same. They keep it: sending only
    /// reads them.
    pub(crate) fn prefill(&mut self, pool: &Pool) {
        let [part] = &mut self.parts[..] else { return };
        if part.stream.period() != Some(1) || part.size.is_none() {
            return;
        }
        let mut cache = pool.cache();
        let mut filled = Vec::new();
        while let Some(mut packet) = cache.alloc() {
            if let Some(data) = packet.append(self.largest) {
                part.stream.fill([data].into_iter());
            }
            filled.push(packet);
        }
        filled.into_iter().for_each(|packet| cache.free(packet));
        part.kept = true;
    }

    /// Appends the next frames to an empty batch, tagged with numbers from `number` on and with their due times; no more than there are
    /// buffers for.
    #[inline(always)]
    pub(crate) fn write(&mut self, cache: &mut PoolCache, batch: &mut Batch, number: u64, due: &[u64]) {
        cache.alloc_batch(batch, due.len(), self.largest);
        let mut done = 0;
        while done < batch.len() {
            if self.left == 0 {
                self.turn = if self.turn + 1 == self.parts.len() { 0 } else { self.turn + 1 };
                self.left = self.parts.get(self.turn).map_or(1, |part| part.weight);
            }
            let Some(part) = self.parts.get_mut(self.turn) else { return };
            let turn = usize::try_from(self.left).unwrap_or(usize::MAX);
            let count = (batch.len() - done).min(turn).min(BURST);
            let packets = batch.get_mut(done..done + count).unwrap_or_default();
            part.write(packets, number + done as u64, due.get(done..).unwrap_or_default());
            self.left -= count as u64;
            done += count;
        }
    }
}

impl Part {
    /// Writes frames into at most [`BURST`] buffers, which are as long as the largest.
    #[inline(always)]
    fn write(&mut self, packets: &mut [Packet], number: u64, due: &[u64]) {
        if !self.kept {
            if self.size.is_none() {
                self.shorten(packets);
            }
            self.stream.fill(packets.iter_mut().map(Packet::data_mut));
        }
        #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
        self.writer.write_all(packets.iter_mut().map(Packet::data_mut), number as u32, due);
    }

    /// Gives buffers the sizes of the next frames.
    #[inline(never)]
    fn shorten(&mut self, packets: &mut [Packet]) {
        let mut sizes = [0; BURST];
        self.stream.next_sizes(&mut sizes);
        packets.iter_mut().zip(sizes).for_each(|(packet, size)| packet.truncate(size.into()));
    }
}

/// The checksum that covers the last bytes of a stream's frames, if any does. What it covers begins at an even offset, as it does itself,
/// and one of 0 was written as ones.
fn coverage(stream: &Stream) -> Option<Coverage> {
    stream.checksum_at().map(|checksum_at| Coverage { checksum_at, from: checksum_at, zero_is_none: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Tag;
    use mempool::PoolConfig;
    use stream::{Definition, Flows};

    /// The sum of RFC 1071 over bytes, a last one at an odd place padded.
    fn sum(bytes: &[u8]) -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
    }

    fn folded(sum: u32) -> u32 {
        let sum = (sum & 0xffff) + (sum >> 16);
        (sum & 0xffff) + (sum >> 16)
    }

    /// Checks all of a UDP frame's checksums in full, over IPv4 or IPv6.
    fn check(frame: &[u8]) {
        let (ip, is_v4) = (&frame[14..], frame[12..14] == [8, 0]);
        let (addresses, udp) = if is_v4 { (&ip[12..20], &ip[20..]) } else { (&ip[8..40], &ip[40..]) };
        if is_v4 {
            assert_eq!(folded(sum(&ip[..20])), 0xffff, "{frame:02x?}");
        }
        let length = u32::try_from(udp.len()).unwrap();
        assert_eq!(u32::from(u16::from_be_bytes([udp[4], udp[5]])), length);
        assert_eq!(folded(sum(addresses) + 17 + length + sum(udp)), 0xffff, "{frame:02x?}");
        assert_ne!(udp[6..8], [0, 0], "there is a checksum");
    }

    fn definition(text: &str) -> Definition {
        Definition::parse("test", text).unwrap().remove(0)
    }

    /// Frames of several rounds through the same few buffers: numbered in order, right in every checksum.
    fn run(definitions: &[Definition], kind: Kind) -> Vec<usize> {
        let pool = Pool::new(&PoolConfig { slots: 128, ..PoolConfig::default() }).unwrap();
        let streams = definitions.iter().map(|one| (Stream::new(one, kind.bytes(), 1).unwrap(), one.weight()));
        let largest = definitions.iter().map(|one| one.sizes().largest()).max().unwrap();
        let mut traffic = Traffic::new(streams.collect(), largest, kind).unwrap();
        traffic.prefill(&pool);
        traffic.set_stream(7);
        let (mut cache, mut batch, mut sizes) = (pool.cache(), Batch::with_capacity(64), Vec::new());
        let mut number = u64::from(u32::MAX) - 300;
        for round in 0..20 {
            let due: Vec<u64> = (0..[1, 3, 40, 64][round % 4]).map(|n| number * 1_000_003 + n).collect();
            traffic.write(&mut cache, &mut batch, number, &due);
            assert_eq!(batch.len(), due.len());
            for (packet, due) in batch.iter().zip(&due) {
                check(packet.data());
                let due = (kind == Kind::Full).then_some(due & ((1 << 48) - 1));
                let wrapped = u32::try_from(number & 0xffff_ffff).unwrap();
                assert_eq!(Tag::parse(packet.data()), Some(Tag { stream: 7, number: wrapped, due }));
                sizes.push(packet.len());
                number += 1;
            }
            cache.free_batch(&mut batch);
        }
        sizes
    }

    #[test]
    fn every_tag_leaves_every_checksum_right() {
        for kind in [Kind::Short, Kind::Full] {
            for (flows, address) in [(1, "198.19.0.1"), (70_000, "198.19.0.1"), (1, "2001:2::9"), (500, "2001:2::9")] {
                for size in ["77", "76", "76-90", "imix"] {
                    let destination: std::net::IpAddr = address.parse().unwrap();
                    let source = if destination.is_ipv4() { "198.18.0.1" } else { "2001:2::1" }.parse().unwrap();
                    let size = if size == "imix" && destination.is_ipv6() { "76,1514" } else { size };
                    let flows = Flows { flows, source, destination, sizes: size.parse().unwrap(), ..Flows::default() };
                    let sizes = run(&[flows.definition().unwrap()], kind);
                    let expected = flows.sizes.cycle().iter().copied().map(usize::from).cycle();
                    assert!(sizes.iter().copied().eq(expected.take(sizes.len())), "{flows:?}");
                }
            }
        }
    }

    #[test]
    fn streams_take_turns_by_weight() {
        let small = definition("[[stream]]\nweight = 3\nsize = 61\nframe = ['ethernet', 'ipv4', 'udp']");
        let large = definition("[[stream]]\nsize = [99, 101]\nframe = ['ethernet', 'ipv6', 'udp']");
        let sizes = run(&[small, large], Kind::Full);
        let expected = [61, 61, 61, 99, 61, 61, 61, 101].into_iter().cycle();
        assert!(sizes.iter().copied().eq(expected.take(sizes.len())), "{sizes:?}");
    }
}
