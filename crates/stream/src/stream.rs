//! A stream at work: frames, one after the other.

use crate::build::Builder;
use crate::definition::Definition;
use crate::error::Result;
use crate::program::{BURST, Program};

/// Frames within which headers have to repeat to be kept in a table, and bytes of the largest table.
const LONGEST_TABLE: u64 = 65_536;
const LARGEST_TABLE: u64 = 8 << 20;
/// Lengths of headers that are copied in a few instructions.
const HEADS: [usize; 7] = [48, 60, 64, 74, 76, 96, 128];

/// Lengths of what moves of a header.
const PARTS: [usize; 4] = [8, 16, 24, 32];

/// The frames of a [`Definition`].
///
/// Headers that repeat within 65,536 frames are kept in a table, if it takes no more than 8 MiB; others are made for 32 frames at a time, field
/// by field. Either way a frame is copied whole, so that it does not matter what its buffer held before, unless there is [`Stream::write_what_moves`].
///
/// ```
/// use stream::{Definition, Stream};
///
/// let text = "[[stream]]\nframe = ['ethernet', { ipv4 = { ttl = { from = 1, to = 3 } } }, 'udp']";
/// let mut stream = Stream::new(&Definition::parse("ttl.toml", text)?[0], 14, 1)?;
/// let mut buffers = [[0xFF; 60]; 4];
/// assert_eq!(stream.sizes().take(2).collect::<Vec<_>>(), [60, 60]);
/// assert_eq!(stream.fill(buffers.iter_mut().map(|buffer| &mut buffer[..])), 4);
/// assert_eq!(buffers.map(|frame| frame[22]), [1, 2, 3, 1]); // time to live
/// assert_eq!(stream.checksum_at(), Some(40));
/// # Ok::<(), stream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    name: String,
    flows: u64,
    period: Option<u64>,
    /// Bytes at the end of each frame that are left zero.
    tail: usize,
    /// Where it lies, and whether it is never 0.
    checksum: Option<(usize, bool)>,
    has_one_form: bool,
    /// Sizes in their order, and which is next.
    cycle: Vec<u16>,
    turn: usize,
    /// Headers of `head` bytes each: all that there are, or a burst of them.
    rows: Vec<u8>,
    head: usize,
    /// Where they begin in a frame, if they are only what moves of them.
    moving_at: Option<usize>,
    /// Which header is next.
    next: usize,
    /// Makes the next burst of headers, if they are not all there.
    program: Option<Program>,
    /// The largest frame; what lies behind the header is the same in all.
    frame: Vec<u8>,
}

impl Stream {
    /// Prepares a stream. The last `reserve_tail` bytes of each frame are zero, for the caller to write to. What is random follows
    /// from `seed`.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`](crate::Error::TooSmall) when the smallest frame has no room for its headers, its fields and `reserve_tail` bytes.
    pub fn new(definition: &Definition, reserve_tail: usize, seed: u64) -> Result<Self> {
        let builder = Builder::new(definition, reserve_tail, seed)?;
        let checksums = &definition.layout.checksums;
        let checksum = checksums.iter().rev().find(|sum| sum.to.is_none()).map(|sum| (sum.at, sum.never_zero));
        let only = definition.sizes.only().map(usize::from);
        let (mut frame, mut program) = builder.build();
        let (end, period) = (program.span().end, program.period().filter(|period| *period <= LONGEST_TABLE));
        let head = head(end, only, definition.sizes.smallest() - reserve_tail);
        if let Some(size) = only {
            frame[size - reserve_tail..].fill(0);
        }
        let fits = |period: &u64| period * head as u64 <= LARGEST_TABLE;
        let table = period.filter(fits).and_then(|period| usize::try_from(period).ok());
        // A short table is repeated, as its end costs too.
        let table = table.map(|period| period * BURST.div_ceil(period));
        let bursts = table.unwrap_or(BURST).div_ceil(BURST);
        let mut rows = frame[..head].repeat(bursts * BURST);
        rows.chunks_exact_mut((BURST * head).max(1)).for_each(|burst| program.run(burst, head));
        rows.truncate(table.unwrap_or(BURST) * head);
        Ok(Self {
            name: definition.name.clone(),
            flows: definition.flows(),
            period,
            tail: reserve_tail,
            checksum,
            has_one_form: definition.has_one_form(),
            cycle: definition.sizes.cycle().to_vec(),
            turn: 0,
            rows,
            head,
            moving_at: None,
            next: 0,
            program: table.is_none().then_some(program),
            frame,
        })
    }

    /// Makes it write only those bytes of a frame that differ from one to another, and the checksum at [`Self::checksum_at`], for buffers
    /// that hold all else: each has had a whole frame of the stream before. Returns whether it does so from here on: where all frames
    /// have one size, and all this lies within 32 bytes.
    ///
    /// ```
    /// use stream::{Definition, Stream};
    ///
    /// let text = "[[stream]]\nflows = 100\nframe = ['ethernet', 'ipv4', 'udp']";
    /// let mut stream = Stream::new(&Definition::parse("flows.toml", text)?[0], 14, 1)?;
    /// let (mut whole, mut buffer) = ([[0; 60]; 50], [0; 60]);
    /// stream.fill([&mut buffer[..]].into_iter());
    /// let mut moving = stream.clone();
    /// assert!(moving.write_what_moves());
    /// stream.fill(whole.iter_mut().map(|frame| &mut frame[..]));
    /// for frame in whole {
    ///     moving.fill([&mut buffer[..]].into_iter());
    ///     assert_eq!(buffer, frame);
    /// }
    /// # Ok::<(), stream::Error>(())
    /// ```
    pub fn write_what_moves(&mut self) -> bool {
        let Self { head, rows, .. } = self;
        let can = self.moving_at.is_none() && self.cycle.iter().all(|size| *size == self.cycle[0]);
        let Some(first) = rows.get(..*head).filter(|_| can) else { return false };
        let moves = |at: &usize| match &self.program {
            Some(program) => program.span().contains(at),
            None => rows.chunks_exact(*head).any(|row| row[*at] != first[*at]),
        };
        let (Some(mut from), Some(mut last)) = ((0..*head).find(moves), (0..*head).rev().find(moves)) else {
            return false;
        };
        // Whoever writes to the reserved bytes updates this one, so it is written anew though it may be the same in all.
        if let Some((at, _)) = self.checksum {
            (from, last) = (from.min(at), last.max(at + 1));
        }
        let holds_all = |len: &usize| *len <= *head && last < from.min(*head - len) + len;
        let Some(len) = PARTS.into_iter().find(holds_all) else { return false };
        let from = from.min(*head - len);
        self.rows = rows.chunks_exact(*head).flat_map(|row| &row[from..from + len]).copied().collect();
        (self.head, self.moving_at) = (len, Some(from));
        if let Some(program) = &mut self.program {
            program.shift(from);
        }
        true
    }

    /// The stream's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Flows that it has.
    #[must_use]
    pub fn flow_count(&self) -> u64 {
        self.flows
    }

    /// Whether all frames read like the first ([`Definition::has_one_form`]).
    #[must_use]
    pub fn has_one_form(&self) -> bool {
        self.has_one_form
    }

    /// Frames after which headers repeat, if they do within 65,536.
    #[must_use]
    pub fn period(&self) -> Option<u64> {
        self.period
    }

    /// Sizes of the frames that come next, in bytes without FCS; they never end.
    pub fn sizes(&self) -> impl Iterator<Item = u16> + '_ {
        self.cycle.iter().copied().cycle().skip(self.turn)
    }

    /// Writes the sizes of the frames that come next, in bytes without FCS: a burst at a time, for less than [`Self::sizes`] costs.
    #[inline]
    pub fn next_sizes(&self, mut sizes: &mut [u16]) {
        let mut from = self.turn;
        while !sizes.is_empty() {
            let next = self.cycle.get(from..).unwrap_or(&[]);
            let (now, later) = sizes.split_at_mut(next.len().min(sizes.len()));
            now.copy_from_slice(&next[..now.len()]);
            (sizes, from) = (later, 0);
        }
    }

    /// The size, if all frames have the same.
    #[must_use]
    pub fn size(&self) -> Option<u16> {
        let first = *self.cycle.first()?;
        self.cycle.iter().all(|size| *size == first).then_some(first)
    }

    /// Where the checksum lies that covers the reserved bytes, if any does: who writes to these updates it by RFC 1624. Of several, one in
    /// the other, it is the innermost; the others stay right.
    #[must_use]
    pub fn checksum_at(&self) -> Option<usize> {
        self.checksum.map(|(at, _)| at)
    }

    /// Whether a sum of 0 is written as 0xffff there: in UDP, where 0 says that there is none (RFC 768).
    #[must_use]
    pub fn writes_zero_as_ones(&self) -> bool {
        self.checksum.is_some_and(|(_, never_zero)| never_zero)
    }

    /// Writes the next frames, each into a slice as long as [`Self::sizes`] says: headers and payload in whole, and zeros in the
    /// reserved bytes. Returns how many. (Of a frame whose slice has another length, as much is written as fits.) After
    /// [`Self::write_what_moves`], only that.
    #[inline]
    pub fn fill<'f>(&mut self, frames: impl Iterator<Item = &'f mut [u8]>) -> usize {
        if let Some(at) = self.moving_at {
            return match self.head {
                8 => self.fill_moving::<8>(at, frames),
                16 => self.fill_moving::<16>(at, frames),
                24 => self.fill_moving::<24>(at, frames),
                _ => self.fill_moving::<32>(at, frames),
            };
        }
        match self.head {
            48 => self.fill_heads::<48>(frames),
            60 => self.fill_heads::<60>(frames),
            64 => self.fill_heads::<64>(frames),
            74 => self.fill_heads::<74>(frames),
            76 => self.fill_heads::<76>(frames),
            96 => self.fill_heads::<96>(frames),
            128 => self.fill_heads::<128>(frames),
            _ => self.fill_any(frames),
        }
    }

    #[inline]
    fn fill_heads<'f, const HEAD: usize>(&mut self, frames: impl Iterator<Item = &'f mut [u8]>) -> usize {
        let count = self.copy_rows::<HEAD>(frames, |stream, frame, row| {
            if let Some((head, rest)) = frame.split_first_chunk_mut::<HEAD>() {
                *head = *row;
                if !rest.is_empty() {
                    fill_rest(rest, HEAD, &stream.frame, stream.tail);
                }
            } else {
                frame.copy_from_slice(&row[..frame.len()]);
            }
        });
        self.advance(count);
        count
    }

    #[inline]
    fn fill_moving<'f, const LEN: usize>(&mut self, at: usize, frames: impl Iterator<Item = &'f mut [u8]>) -> usize {
        // The end is known before, so that a frame's length is compared once.
        let place = at..at.saturating_add(LEN);
        self.copy_rows::<LEN>(frames, |_, frame, row| {
            if let Some(Ok(place)) = frame.get_mut(place.clone()).map(<&mut [u8; LEN]>::try_from) {
                *place = *row;
            }
        })
    }

    /// Copies the next row to each frame. Returns how many frames there were.
    #[inline]
    fn copy_rows<'f, const LEN: usize>(
        &mut self,
        mut frames: impl Iterator<Item = &'f mut [u8]>,
        copy: impl Fn(&Self, &mut [u8], &[u8; LEN]),
    ) -> usize {
        let mut count = 0;
        loop {
            let all = self.rows.as_chunks::<LEN>().0.get(self.next..).unwrap_or(&[]);
            let mut rows = all.iter();
            let is_done = loop {
                let Some(row) = rows.as_slice().first() else { break false };
                let Some(frame) = frames.next() else { break true };
                copy(self, frame, row);
                rows.next();
            };
            let copied = all.len() - rows.len();
            count += copied;
            if is_done {
                self.next += copied;
                return count;
            }
            self.turn_over();
        }
    }

    /// Headers of a length that has no copy of its own.
    #[inline(never)]
    fn fill_any<'f>(&mut self, frames: impl Iterator<Item = &'f mut [u8]>) -> usize {
        let (head, mut count) = (self.head, 0);
        for frame in frames {
            if self.next * head >= self.rows.len() {
                self.turn_over();
            }
            let row = self.rows.get(self.next * head..).unwrap_or(&[]);
            let (first, rest) = frame.split_at_mut(head.min(frame.len()));
            first.copy_from_slice(&row[..first.len().min(row.len())]);
            fill_rest(rest, head, &self.frame, self.tail);
            self.next += 1;
            count += 1;
        }
        self.advance(count);
        count
    }

    /// Begins again with the first header, made anew unless all are there.
    #[inline]
    fn turn_over(&mut self) {
        self.next = 0;
        if let Some(program) = &mut self.program {
            program.run(&mut self.rows, self.head);
        }
    }

    /// So many sizes are done.
    #[inline]
    fn advance(&mut self, count: usize) {
        if self.cycle.len() > 1 {
            self.turn = (self.turn + count) % self.cycle.len();
        }
    }
}

/// Writes what lies behind a frame's head, which is the same in all frames, and zeros at the end.
#[inline]
fn fill_rest(rest: &mut [u8], head: usize, model: &[u8], tail: usize) {
    let (payload, end) = rest.split_at_mut(rest.len().saturating_sub(tail));
    if let Some(model) = model.get(head..head + payload.len()) {
        payload.copy_from_slice(model);
    }
    end.fill(0);
}

/// Bytes of each frame that are copied from its header's row: all that moves, at least.
fn head(end: usize, only: Option<usize>, room: usize) -> usize {
    if let Some(size) = only.filter(|size| HEADS.contains(size)) {
        return size;
    }
    let most = only.unwrap_or(room);
    HEADS.into_iter().find(|head| (end..=most).contains(head)).unwrap_or(end)
}
