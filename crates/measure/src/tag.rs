//! The tag at the end of a frame.
//!
//! | bytes | what | short | full |
//! |---|---|---|---|
//! | 6 | due time in ticks, modulo 2^48 | | yes |
//! | 4 | number, from 0; after 2^32 - 1 comes 0 | yes | yes |
//! | 2 | mark: `RS` or `RF` | yes | yes |
//! | 2 | stream | yes | yes |
//!
//! Frames that end a stream say how many there were before them: in front of the stream, `RE` has 48 bits of that number and the word
//! `rend`, `Re` (8 bytes) only its lower 32 bits.
//!
//! All are big-endian. Marks are at the same place, so that what a frame has in front of its tag is never taken for a part of one. At the end
//! it survives what a device does to headers: tags of VLANs that come and go, and tunnels. A device that
//! takes off so much that it has to pad what is left leaves the tag at the end of the IP packet, where it is [found](Tag::find) behind up to
//! two VLAN tags.

use crate::Error;
use crate::intact::unpadded;
use wire::{Sum, checksum::update_u16};

/// What a tag holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stream and number: 8 bytes.
    Short,
    /// And the due time: 14 bytes.
    Full,
}

impl Kind {
    /// Returns the length of the tag in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Short => SHORT,
            Self::Full => FULL,
        }
    }

    const fn mark(self) -> u16 {
        u16::from_be_bytes(match self {
            Self::Short => *b"RS",
            Self::Full => *b"RF",
        })
    }

    /// Mark and stream.
    const fn head(self, stream: u16) -> u32 {
        (self.mark() as u32) << 16 | stream as u32
    }

    /// How a tag ends.
    pub(crate) const fn last(self, stream: u16) -> [u8; 4] {
        self.head(stream).to_be_bytes()
    }
}

/// What a frame says of itself.
///
/// ```
/// use measure::{Kind, Tag, TagWriter};
///
/// let mut frame = [0; 60];
/// TagWriter::new(Kind::Short, 7, 60, 42, None)?.write(&mut frame, 5, 0);
/// assert_eq!(Tag::parse(&frame), Some(Tag { stream: 7, number: 5, due: None }));
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Number of the stream.
    pub stream: u16,
    /// Number of the frame in its stream.
    pub number: u32,
    /// When the frame was due, in ticks of its sender modulo 2^48; only full tags have it.
    pub due: Option<u64>,
}

impl Tag {
    /// Returns the tag at the end of a frame (without check sequence); `None` if there is none.
    #[inline(always)]
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let last = u64::from_be_bytes(*frame.last_chunk::<SHORT>()?);
        let mark = (last >> 16) & 0xffff;
        if mark == u64::from(Kind::Full.mark()) {
            let due = frame.last_chunk::<FULL>()?.first_chunk::<8>()?;
            return Some(Self { due: Some(u64::from_be_bytes(*due) >> 16), ..Self::of(last) });
        }
        (mark == u64::from(Kind::Short.mark())).then(|| Self::of(last))
    }

    /// The same of a frame that may have been padded: whoever takes a tag of a VLAN off a short one fills it up to 60 or 64 bytes again, and then the tag
    /// is at the end of its IP packet. What looks like a tag at the end of such a frame is one only if all of it is behind the packet, or if
    /// there is none.
    ///
    /// ```
    /// use measure::{Kind, Tag, TagWriter};
    ///
    /// let mut frame = vec![0; 56];
    /// frame[12..18].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 42]); // IPv4, 42 bytes
    /// TagWriter::new(Kind::Full, 7, 56, 42, None)?.write(&mut frame, 5, 99);
    /// frame.resize(60, 0);
    /// assert_eq!(Tag::parse(&frame), None);
    /// assert_eq!(Tag::find(&frame), Some(Tag { stream: 7, number: 5, due: Some(99) }));
    /// # Ok::<(), measure::Error>(())
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        // Most small ones are a whole packet of IPv4.
        let is_whole = |head: &[u8; 18]| {
            head[12..14] == [0x08, 0] && usize::from(u16::from_be_bytes([head[16], head[17]])) + 14 == frame.len()
        };
        if frame.len() > PADDED || frame.first_chunk().is_some_and(is_whole) {
            Self::parse(frame)
        } else {
            Self::find_in_short(frame)
        }
    }

    #[inline(never)]
    fn find_in_short(frame: &[u8]) -> Option<Self> {
        let last = Self::parse(frame);
        let Some(packet) = unpadded(frame) else { return last };
        let is_behind = |tag: &Self| frame.len() - packet.len() >= if tag.due.is_some() { FULL } else { SHORT };
        // A packet whose length is not that of the frame may be meant.
        last.filter(is_behind).or_else(|| Self::parse(packet)).or_else(|| last.filter(|_| End::parse(packet).is_none()))
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the words apart")]
    fn of(last: u64) -> Self {
        Self { stream: last as u16, number: (last >> 32) as u32, due: None }
    }

    /// Returns the ticks from the due time until `now`, if the tag has one. More than half of 2^48 stands for a due time
    /// that is still to come, which is no time at all.
    #[inline(always)]
    #[must_use]
    pub fn age(&self, now: u64) -> Option<u64> {
        self.due.map(|due| now.wrapping_sub(due) & DUE)
    }

    /// Number and age of a frame with a full tag that ends like this; `None` for all others.
    #[inline(always)]
    pub(crate) fn number_and_age(frame: &[u8], end: [u8; 4], now: u64) -> Option<(u32, u64)> {
        let tag = frame.last_chunk::<FULL>()?;
        let (due, number, last) = (tag.first_chunk::<8>()?, tag[6..].first_chunk::<4>()?, tag.last_chunk::<4>()?);
        // The upper 16 bits of the number are in the lower ones of the due time, and no more than those of the time.
        let age = (now << 16 | 0xffff).wrapping_sub(u64::from_be_bytes(*due)) >> 16;
        (*last == end).then(|| (u32::from_be_bytes(*number), age))
    }

    /// Number of a frame with a tag that ends like this; `None` for all others.
    #[inline(always)]
    pub(crate) fn number_before(frame: &[u8], end: [u8; 4]) -> Option<u32> {
        let [a, b, c, d, last @ ..] = frame.last_chunk::<SHORT>()?;
        (*last == end).then(|| u32::from_be_bytes([*a, *b, *c, *d]))
    }
}

/// The end of a stream: says how many frames were sent before, so that a receiver elsewhere knows of those that did not come.
///
/// ```
/// use measure::{End, Kind, TagWriter};
///
/// let mut frame = [0; 60];
/// TagWriter::new(Kind::Full, 7, 60, 42, None)?.write_end(&mut frame, 5_000_000_000);
/// assert_eq!(End::parse(&frame), Some(End { stream: 7, sent: 5_000_000_000, bits: 48 }));
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of the stream.
    pub stream: u16,
    /// Frames that were sent of it; the lower bits.
    pub sent: u64,
    /// How many bits that are: 48, or 32 where tags are short.
    pub bits: u32,
}

impl End {
    /// Returns what the end of a frame (without check sequence) says; `None` if it does not end a stream.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (sent, bits, stream) = match frame.last_chunk::<SHORT>()? {
            [b'r', b'e', b'n', b'd', b'R', b'E', stream @ ..] => {
                (u64::from_be_bytes(*frame.last_chunk::<FULL>()?.first_chunk::<8>()?) >> 16, 48, stream)
            }
            [a, b, c, d, b'R', b'e', stream @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]).into(), 32, stream),
            _ => return None,
        };
        Some(Self { stream: u16::from_be_bytes(*stream), sent, bits })
    }

    /// The same of a frame that may have been padded ([`Tag::find`]).
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let last = Self::parse(frame);
        let Some(packet) = unpadded(frame).filter(|_| frame.len() <= PADDED) else { return last };
        let is_behind = |end: &Self| frame.len() - packet.len() >= if end.bits > 32 { FULL } else { SHORT };
        last.filter(is_behind).or_else(|| Self::parse(packet)).or(last)
    }

    /// Returns how many frames were sent, where some are known to have been: the number with these bits that is closest to
    /// `at_least`, of those that are not below it.
    #[must_use]
    pub fn sent(&self, at_least: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        at_least.saturating_add(self.sent.wrapping_sub(at_least) & mask)
    }
}

/// The checksum of TCP, UDP or ICMP that covers a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Offset of the checksum in the frame.
    pub checksum_at: usize,
    /// Offset of the first byte that it covers, pseudo-header apart.
    pub from: usize,
    /// A checksum of 0 says that there is none (UDP over IPv4, RFC 768), and stays.
    pub zero_is_none: bool,
    /// A sum that gives 0 is written as 0xffff (UDP, RFC 768), and not as 0 (all others, RFC 1624).
    pub zero_as_ones: bool,
}

/// Writes the tags of a stream.
#[derive(Clone, Copy, Debug)]
pub struct TagWriter {
    kind: Kind,
    /// Mark and stream, in the lower half.
    head: u64,
    coverage: Option<Coverage>,
}

impl TagWriter {
    /// Creates one for frames of `size` bytes (without check sequence), of which `headers` are not free, and of whose tag
    /// a checksum is to be kept right. A checksum whose place is not in the frame is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] with the least size.
    pub fn new(
        kind: Kind,
        stream: u16,
        size: usize,
        headers: usize,
        coverage: Option<Coverage>,
    ) -> Result<Self, Error> {
        let tag = kind.bytes();
        if size < headers.saturating_add(tag) {
            return Err(Error::TooSmall { size, headers, tag });
        }
        Ok(Self { kind, head: kind.head(stream).into(), coverage })
    }

    /// Writes a tag over the last bytes of a frame; a checksum that was right for what stood there is right for the tag
    /// (RFC 1624). A frame that is shorter than a tag is left alone.
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8], number: u32, due: u64) {
        if self.coverage.is_some() {
            return self.write_covered(frame, number, due);
        }
        self.write_tag(frame, number, due);
    }

    /// Writes that the stream ends, and that `sent` frames were sent of it, where [`Self::write`] writes a tag.
    pub fn write_end(&self, frame: &mut [u8], sent: u64) {
        let mark = u16::from_be_bytes(if self.kind == Kind::Short { *b"Re" } else { *b"RE" });
        let number = if self.kind == Kind::Short { sent } else { END };
        let head = number << NUMBER | u64::from(mark) << 16 | self.head & 0xffff;
        Self { head, ..*self }.write(frame, 0, sent);
    }

    #[inline(always)]
    fn write_tag(&self, frame: &mut [u8], number: u32, due: u64) {
        let head = self.head | u64::from(number) << NUMBER;
        match self.kind {
            Kind::Short => {
                if let Some(tag) = frame.last_chunk_mut::<SHORT>() {
                    *tag = head.to_be_bytes();
                }
            }
            Kind::Full => write_full(frame, head, due),
        }
    }

    /// Writes the tags of consecutive frames, from number `first` on, each with its due time, like [`Self::write`]; of as many
    /// frames as have one.
    #[inline(always)]
    pub fn write_all<'f>(&self, frames: impl Iterator<Item = &'f mut [u8]>, first: u32, due: &[u64]) {
        if self.kind == Kind::Full && self.coverage.is_none() {
            let mut head = self.head | u64::from(first) << NUMBER;
            for (frame, due) in frames.zip(due) {
                write_full(frame, head, *due);
                head = head.wrapping_add(1 << NUMBER);
            }
        } else {
            let mut number = first;
            for (frame, due) in frames.zip(due) {
                self.write(frame, number, *due);
                number = number.wrapping_add(1);
            }
        }
    }

    /// The same for frames whose checksums are right for zeros where their tags are to be, whatever stands there; or that all have
    /// `checksum` with zeros there, if that is given. Costs less than [`Self::write_all`], as nothing has to be read of what stood there.
    ///
    /// ```
    /// use measure::{Coverage, Kind, TagWriter};
    ///
    /// // A checksum of nothing but zeros.
    /// let coverage = Coverage { checksum_at: 40, from: 34, zero_is_none: false, zero_as_ones: true };
    /// let writer = TagWriter::new(Kind::Full, 7, 60, 42, Some(coverage))?;
    /// let (mut frame, mut other) = ([0; 60], [0; 60]);
    /// frame[40..42].fill(0xff);
    /// writer.write_all_over_zeros([&mut frame[..]].into_iter(), 5, &[99], None);
    /// writer.write_all_over_zeros([&mut other[..]].into_iter(), 4, &[98], Some(0xffff));
    /// writer.write_all_over_zeros([&mut other[..]].into_iter(), 5, &[99], Some(0xffff));
    /// assert_eq!(frame, other);
    /// # Ok::<(), measure::Error>(())
    /// ```
    #[inline(always)]
    pub fn write_all_over_zeros<'f>(
        &self,
        frames: impl Iterator<Item = &'f mut [u8]>,
        first: u32,
        due: &[u64],
        checksum: Option<u16>,
    ) {
        match (self.coverage, self.kind) {
            (Some(coverage @ Coverage { zero_is_none: false, .. }), Kind::Full) => {
                self.write_over_zeros::<FULL>(frames, first, due, coverage, checksum);
            }
            (Some(coverage @ Coverage { zero_is_none: false, .. }), Kind::Short) => {
                self.write_over_zeros::<SHORT>(frames, first, due, coverage, checksum);
            }
            _ => self.write_all(frames, first, due),
        }
    }

    #[inline(always)]
    fn write_over_zeros<'f, const BYTES: usize>(
        &self,
        frames: impl Iterator<Item = &'f mut [u8]>,
        first: u32,
        due: &[u64],
        Coverage { checksum_at, from, zero_as_ones, .. }: Coverage,
        checksum: Option<u16>,
    ) {
        let zero = if zero_as_ones { 0xffff } else { 0 };
        let checksum = checksum.map(|checksum| u16::from_le_bytes(checksum.to_be_bytes()));
        let mut next = self.head | u64::from(first) << NUMBER;
        for (frame, due) in frames.zip(due) {
            let head = next;
            next = next.wrapping_add(1 << NUMBER);
            // As words of the host's order where the tag begins in the middle of a word, and otherwise of the network's.
            let turn = if (frame.len() ^ from) & 1 == 0 { 8 } else { 0 };
            let tag = match BYTES {
                FULL => {
                    write_full(frame, head, *due);
                    (due & DUE) + head.rotate_left(NUMBER)
                }
                _ => {
                    if let Some(tag) = frame.last_chunk_mut::<SHORT>() {
                        *tag = head.to_be_bytes();
                    }
                    head.rotate_left(NUMBER)
                }
            };
            if frame.len() < BYTES {
                continue;
            }
            let Some(place) = frame.get_mut(checksum_at..).and_then(|place| place.first_chunk_mut::<2>()) else {
                continue;
            };
            let old = checksum.unwrap_or(u16::from_le_bytes(*place)).rotate_left(turn);
            // The mark is in front by then, and leaves room for all carries.
            let new = !residue(tag + u64::from(!old));
            *place = if new == 0 { zero } else { new }.rotate_left(turn).to_le_bytes();
        }
    }

    #[inline(never)]
    fn write_covered(&self, frame: &mut [u8], number: u32, due: u64) {
        let Some(at) = frame.len().checked_sub(self.kind.bytes()) else { return };
        let before = Sum::of(&frame[at..]).folded();
        self.write_tag(frame, number, due);
        let after = Sum::of(&frame[at..]).folded();
        let Some(Coverage { checksum_at, from, zero_is_none, zero_as_ones }) = self.coverage else { return };
        // What begins in the middle of a word of the sum counts with its bytes swapped (RFC 1071, section 2 (B)).
        let swap = |sum: u16| if at.abs_diff(from) % 2 == 1 { sum.swap_bytes() } else { sum };
        let Some(place) =
            frame.get_mut(checksum_at..checksum_at.saturating_add(2)).and_then(|place| place.first_chunk_mut::<2>())
        else {
            return;
        };
        let old = u16::from_be_bytes(*place);
        if old == 0 && zero_is_none {
            return;
        }
        let new = match update_u16(old, swap(before), swap(after)) {
            0 | 0xffff => {
                if zero_as_ones {
                    0xffff
                } else {
                    0
                }
            }
            new => new,
        };
        *place = new.to_be_bytes();
    }
}

#[inline(always)]
fn write_full(frame: &mut [u8], head: u64, due: u64) {
    if let Some(tag) = frame.last_chunk_mut::<FULL>() {
        // Two bytes more than there are, which are then written over.
        tag[..8].copy_from_slice(&(due << 16).to_be_bytes());
        tag[6..].copy_from_slice(&head.to_be_bytes());
    }
}

/// The ones' complement sum of the four words of a number, which is not 0.
#[inline(always)]
fn residue(words: u64) -> u16 {
    let pairs = (words.wrapping_add(words.rotate_left(32)) >> 32) as u32;
    (pairs.wrapping_add(pairs.rotate_left(16)) >> 16) as u16
}

/// Bytes that a padded frame has at most, without check sequence: 60 (IEEE 802.3, 4A.4.2), or 64 where a tag of a VLAN is left and a bridge
/// keeps to 68 with the check sequence (IEEE 802.1Q, annex G.2.3).
const PADDED: usize = 64;
const SHORT: usize = 8;
const FULL: usize = 14;
/// The bits of a due time.
const DUE: u64 = (1 << 48) - 1;
/// What stands in a full tag that is an end in place of a number.
const END: u64 = u32::from_be_bytes(*b"rend") as u64;
/// The lowest bit of the number in a word that has mark and stream in its lower half.
const NUMBER: u32 = 32;
