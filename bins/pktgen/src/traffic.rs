//! What a lane sends: the one seam between frames and the rest of the generator.

use measure::{Coverage, Kind, TagWriter};
use mempool::{Batch, Packet, Pool, PoolCache};
use stream::Stream;

/// Streams that take turns, and their tags.
#[derive(Debug)]
pub(crate) struct Traffic {
    parts: Vec<Part>,
    /// Whose turn it is, and how many frames are left of it.
    turn: usize,
    left: u64,
    /// Bytes of the largest frame of the lane, without check sequence.
    largest: usize,
}

/// The frames of a stream, numbered and tagged.
#[derive(Debug)]
pub(crate) struct Part {
    /// Which of the lane's streams it is.
    index: u16,
    frames: Stream,
    /// Frames of a turn.
    weight: u64,
    /// The size of all frames; `None` if they differ, or others of the lane are larger.
    size: Option<usize>,
    kind: Kind,
    writer: TagWriter,
    /// Number of the next frame.
    number: u64,
    /// All buffers hold the frame.
    kept: bool,
}

/// Of which streams the frames of a batch are, in their order.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<(u16, usize)>,
    /// The first that is not taken yet.
    at: usize,
}

/// Frames that are written at a time.
const BURST: usize = 32;

impl Part {
    /// Creates it for stream `index` of a lane, whose frames have left room for a tag; `weight` is its share.
    pub(crate) fn new(index: u16, frames: Stream, weight: u64, kind: Kind) -> Result<Self, measure::Error> {
        let writer = TagWriter::new(kind, 0, kind.bytes(), 0, coverage(&frames))?;
        Ok(Self { index, frames, weight: weight.max(1), size: None, kind, writer, number: 0, kept: false })
    }

    /// Begins again with number 0, and another number of the stream in the tags.
    fn begin(&mut self, stream: u16) {
        self.number = 0;
        if let Ok(writer) = TagWriter::new(self.kind, stream, self.kind.bytes(), 0, coverage(&self.frames)) {
            self.writer = writer;
        }
    }

    /// Writes frames into at most [`BURST`] buffers, which are as long as the largest.
    #[inline(always)]
    fn write(&mut self, packets: &mut [Packet], due: &[u64]) {
        if !self.kept {
            if self.size.is_none() {
                self.shorten(packets);
            }
            self.frames.fill(packets.iter_mut().map(Packet::data_mut));
        }
        #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
        self.writer.write_all(packets.iter_mut().map(Packet::data_mut), self.number as u32, due);
        self.number += packets.len() as u64;
    }

    /// Gives buffers the sizes of the next frames.
    #[inline(never)]
    fn shorten(&mut self, packets: &mut [Packet]) {
        let mut sizes = [0; BURST];
        self.frames.next_sizes(&mut sizes);
        packets.iter_mut().zip(sizes).for_each(|(packet, size)| packet.truncate(size.into()));
    }
}

impl Traffic {
    /// Creates it. `largest` is the size of the largest frame of the lane.
    pub(crate) fn new(mut parts: Vec<Part>, largest: usize) -> Self {
        for part in &mut parts {
            part.size = part.frames.size().map(usize::from).filter(|size| *size == largest);
        }
        let left = parts.first().map_or(0, |part| part.weight);
        Self { parts, turn: 0, left, largest }
    }

    /// Begins again with number 0 of each stream. Tags have stream `first` from here on, or if the streams are `apart` each that
    /// one and its index.
    pub(crate) fn begin(&mut self, first: u16, apart: bool) {
        for part in &mut self.parts {
            part.begin(if apart { first.wrapping_add(part.index) } else { first });
        }
    }

    /// Index and weight of each stream.
    pub(crate) fn weights(&self) -> impl Iterator<Item = (usize, u64)> {
        self.parts.iter().map(|part| (part.index.into(), part.weight))
    }

    /// Writes the frame into every free buffer of a pool that nothing else uses, if all frames are the same. They keep it: sending only
    /// reads them.
    pub(crate) fn prefill(&mut self, pool: &Pool) {
        let [part] = &mut self.parts[..] else { return };
        if part.frames.period() != Some(1) || part.size.is_none() {
            return;
        }
        let mut cache = pool.cache();
        let mut filled = Vec::new();
        while let Some(mut packet) = cache.alloc() {
            if let Some(data) = packet.append(self.largest) {
                part.frames.fill([data].into_iter());
            }
            filled.push(packet);
        }
        filled.into_iter().for_each(|packet| cache.free(packet));
        part.kept = true;
    }

    /// Appends the next frames to a batch, tagged with their numbers and due times, and notes their streams. Returns how many: no
    /// more than there are buffers for.
    #[inline(always)]
    pub(crate) fn write(&mut self, cache: &mut PoolCache, batch: &mut Batch, due: &[u64], runs: &mut Runs) -> usize {
        let begin = batch.len();
        let written = cache.alloc_batch(batch, due.len(), self.largest);
        let mut done = 0;
        while done < written {
            if self.left == 0 {
                self.turn = if self.turn + 1 == self.parts.len() { 0 } else { self.turn + 1 };
                self.left = self.parts.get(self.turn).map_or(1, |part| part.weight);
            }
            let Some(part) = self.parts.get_mut(self.turn) else { break };
            let turn = usize::try_from(self.left).unwrap_or(usize::MAX);
            let count = (written - done).min(turn).min(BURST);
            let from = begin + done;
            part.write(batch.get_mut(from..from + count).unwrap_or_default(), due.get(done..).unwrap_or_default());
            runs.push(part.index, count);
            self.left -= count as u64;
            done += count;
        }
        written
    }
}

impl Runs {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.at = 0;
    }

    #[inline(always)]
    fn push(&mut self, stream: u16, frames: usize) {
        match self.runs.last_mut().filter(|(last, _)| *last == stream) {
            Some((_, count)) => *count += frames,
            None => self.runs.push((stream, frames)),
        }
    }

    /// Takes the next frames of one stream, up to `most`: its index, and how many.
    #[inline(always)]
    pub(crate) fn take(&mut self, most: usize) -> Option<(usize, usize)> {
        let (stream, left) = self.runs.get_mut(self.at)?;
        let frames = most.min(*left);
        *left -= frames;
        if *left == 0 {
            self.at += 1;
        }
        Some((usize::from(*stream), frames))
    }
}

/// The checksum that covers the last bytes of a stream's frames, if any does. What it covers begins at an even offset, as it does itself,
/// and one of 0 was written as ones.
fn coverage(stream: &Stream) -> Option<Coverage> {
    stream.checksum_at().map(|checksum_at| Coverage { checksum_at, from: checksum_at, zero_is_none: false })
}

#[cfg(test)]
mod tests;
