//! What a lane sends: the one seam between frames and the rest of the generator.

use measure::{Coverage, Kind, TagWriter, is_intact};
use mempool::{Batch, Packet, Pool, PoolCache};
use std::sync::Arc;
use stream::{Replay, Stream};

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
    frames: Content,
    /// Frames of a turn.
    weight: u64,
    /// The size of all frames; `None` if they differ, or others of the lane are larger.
    size: Option<usize>,
    /// `None` if frames are not tagged.
    kind: Option<Kind>,
    writer: Option<TagWriter>,
    /// Number of the next frame.
    number: u64,
    kept: Kept,
    /// Whether its checksum tells that a frame is not as it was sent: that of the first is right, and of all others, and a receiver reads it.
    is_verifiable: bool,
}

/// What all buffers hold of a frame.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Nothing,
    /// All that does not move.
    Rest,
    /// All of it; with the checksum that it has with zeros in place of the tag, if it has one.
    All(Option<u16>),
}

/// Where frames come from.
#[derive(Debug)]
enum Content {
    Stream(Box<Stream>),
    /// A capture, and which of its frames is next.
    Capture(Arc<Replay>, usize),
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
        let writer = Some(TagWriter::new(kind, 0, kind.bytes(), 0, coverage(&frames))?);
        let is_verifiable = is_verifiable(&frames);
        let (frames, kind, kept) = (Content::Stream(Box::new(frames)), Some(kind), Kept::Nothing);
        Ok(Self { index, frames, weight: weight.max(1), size: None, kind, writer, number: 0, kept, is_verifiable })
    }

    /// Creates it for the frames of a capture, over and over; behind each is a tag, if they are to have one.
    pub(crate) fn capture(replay: Arc<Replay>, kind: Option<Kind>) -> Self {
        let (frames, kept) = (Content::Capture(replay, 0), Kept::Nothing);
        Self { index: 0, frames, weight: 1, size: None, kind, writer: None, number: 0, kept, is_verifiable: false }
    }

    /// Begins again with number 0, and another number of the stream in the tags.
    fn begin(&mut self, stream: u16) {
        self.number = 0;
        let coverage = match &mut self.frames {
            Content::Stream(stream) => coverage(stream),
            Content::Capture(_, next) => {
                *next = 0;
                None
            }
        };
        self.writer = self.kind.and_then(|kind| TagWriter::new(kind, stream, kind.bytes(), 0, coverage).ok());
    }

    /// Writes frames into at most [`BURST`] buffers, which are as long as the largest.
    #[inline(always)]
    fn write(&mut self, packets: &mut [Packet], due: &[u64]) {
        self.write_content(packets);
        if let Some(writer) = &self.writer {
            let checksum = if let Kept::All(checksum) = self.kept { checksum } else { None };
            let frames = packets.iter_mut().map(Packet::data_mut);
            #[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
            writer.write_all_over_zeros(frames, self.number as u32, due, checksum);
        }
        self.number += packets.len() as u64;
    }

    /// Appends a frame that says that `sent` were sent of the stream. Returns false if there is no room, or if frames are not tagged.
    fn write_end(&mut self, cache: &mut PoolCache, batch: &mut Batch, largest: usize, sent: u64) -> bool {
        let Some(writer) = self.writer.filter(|_| cache.alloc_batch(batch, 1, largest) == 1) else { return false };
        let Some(packet) = batch.last_mut() else { return false };
        self.write_content(std::slice::from_mut(packet));
        if let Kept::Rest = self.kept {
            // Its checksum is right for zeros, and there is a tag.
            let data = packet.data_mut();
            let at = data.len().saturating_sub(self.kind.map_or(0, Kind::bytes));
            data[at..].fill(0);
        }
        writer.write_end(packet.data_mut(), sent);
        true
    }

    /// Writes all but the tags.
    #[inline(always)]
    fn write_content(&mut self, packets: &mut [Packet]) {
        if !matches!(self.kept, Kept::All(_)) {
            match &mut self.frames {
                Content::Stream(stream) => {
                    if self.size.is_none() {
                        shorten(stream, packets);
                    }
                    stream.fill(packets.iter_mut().map(Packet::data_mut));
                }
                Content::Capture(replay, next) => {
                    let tag = self.kind.map_or(0, Kind::bytes);
                    packets.iter_mut().for_each(|packet| *next = play(replay, *next, packet, tag));
                }
            }
        }
    }
}

/// Gives buffers the sizes of the next frames.
#[inline(never)]
fn shorten(stream: &Stream, packets: &mut [Packet]) {
    let mut sizes = [0; BURST];
    stream.next_sizes(&mut sizes);
    packets.iter_mut().zip(sizes).for_each(|(packet, size)| packet.truncate(size.into()));
}

/// Writes a frame of a capture, and zeros for a tag behind it. Returns which frame is next.
#[inline(never)]
fn play(replay: &Replay, index: usize, packet: &mut Packet, tag: usize) -> usize {
    let bytes = replay.frame(index).map(|frame| frame.bytes).unwrap_or_default();
    packet.truncate(bytes.len() + tag);
    let length = packet.len();
    let (frame, end) = packet.data_mut().split_at_mut(bytes.len().min(length));
    frame.copy_from_slice(&bytes[..frame.len()]);
    end.fill(0);
    if index + 1 >= replay.len() { 0 } else { index + 1 }
}

impl Traffic {
    /// Creates it. `largest` is the size of the largest frame of the lane.
    pub(crate) fn new(mut parts: Vec<Part>, largest: usize) -> Self {
        for part in &mut parts {
            if let Content::Stream(stream) = &part.frames {
                part.size = stream.size().map(usize::from).filter(|size| *size == largest);
            }
        }
        // The turn of one that is alone never ends: its frames are written a burst at a time.
        let left = if parts.len() > 1 { parts[0].weight } else { u64::MAX };
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

    /// Appends a frame for each stream from the one of index `from` on that says how many were sent of it, which `sent` has by the stream's
    /// index; as many as there is room for. Returns how many.
    pub(crate) fn write_ends(
        &mut self,
        cache: &mut PoolCache,
        batch: &mut Batch,
        from: usize,
        sent: impl Fn(usize) -> u64,
    ) -> usize {
        let largest = self.largest;
        let mut write = |part: &mut Part| part.write_end(cache, batch, largest, sent(part.index.into())).then_some(());
        self.parts.iter_mut().skip(from).map_while(&mut write).count()
    }

    /// Index of each stream, and whether a frame of it that is not as it was sent can be told by its checksum.
    pub(crate) fn verifiable(&self) -> impl Iterator<Item = (usize, bool)> {
        self.parts.iter().map(|part| (part.index.into(), part.is_verifiable))
    }

    /// Goes to a frame of the capture, if it is one.
    pub(crate) fn go_to(&mut self, frame: usize) {
        for part in &mut self.parts {
            if let Content::Capture(_, next) = &mut part.frames {
                *next = frame;
            }
        }
    }

    /// Writes a frame into every free buffer of a pool that nothing else uses, if all frames are the same, or differ in little. They
    /// keep what does not move: sending only reads them.
    pub(crate) fn prefill(&mut self, pool: &Pool) {
        let [part] = &mut self.parts[..] else { return };
        let Content::Stream(frames) = &mut part.frames else { return };
        if part.size.is_none() {
            return;
        }
        let mut whole = frames.clone();
        if frames.period() != Some(1) {
            if !frames.write_what_moves() {
                return;
            }
            part.kept = Kept::Rest;
        }
        let mut cache = pool.cache();
        let mut filled = Vec::new();
        while let Some(mut packet) = cache.alloc() {
            if let Some(data) = packet.append(self.largest) {
                whole.fill([&mut *data].into_iter());
                if whole.period() == Some(1) {
                    part.kept = Kept::All(checksum_of(&whole, data));
                }
            }
            filled.push(packet);
        }
        filled.into_iter().for_each(|packet| cache.free(packet));
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

    /// What is not taken yet.
    pub(crate) fn left(&self) -> &[(u16, usize)] {
        self.runs.get(self.at..).unwrap_or_default()
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

/// Whether the first frame is right by its checksum, if one covers its last bytes, and would not be with another bit there, and the others
/// are like it.
fn is_verifiable(frames: &Stream) -> bool {
    let mut frame = vec![0; frames.sizes().next().unwrap_or_default().into()];
    let _ = frames.clone().fill([&mut frame[..]].into_iter());
    if frames.checksum_at().is_none() || !frames.has_one_form() || !is_intact(&frame, []) {
        return false;
    }
    // A receiver takes what it cannot read for right.
    let Some(last) = frame.last_mut() else { return false };
    *last ^= 1;
    !is_intact(&frame, [])
}

/// The checksum of a frame that covers its last bytes, if any does.
fn checksum_of(frames: &Stream, frame: &[u8]) -> Option<u16> {
    let bytes = frame.get(frames.checksum_at()?..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// The checksum that covers the last bytes of a stream's frames, if any does. What it covers begins at an even offset, as it does itself,
/// and one that is computed always says something.
fn coverage(stream: &Stream) -> Option<Coverage> {
    let zero_as_ones = stream.writes_zero_as_ones();
    stream.checksum_at().map(|at| Coverage { checksum_at: at, from: at, zero_is_none: false, zero_as_ones })
}

#[cfg(test)]
mod tests;
