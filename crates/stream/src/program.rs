//! Headers of a burst, made field by field: a field's values for all frames, their places, their share of the checksums.

use crate::layout::Place;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng as _;

/// Headers made at a time.
pub(crate) const BURST: usize = 32;

/// Values of a field, one for each frame of a burst.
type Column = [u64; BURST];
/// Parts of a sum for each frame of a burst; carries are not added in yet.
type Sums = [u32; BURST];

/// Where the values of a field come from.
#[derive(Clone, Debug)]
pub(crate) enum Generator {
    Count { next: u64, from: u64, step: u64, last: u64 },
    List { list: Vec<u64>, next: usize },
    Random { random: Box<Xoshiro256PlusPlus>, from: u64, last: u64 },
}

impl Generator {
    /// Frames after which the values repeat, if they do.
    pub(crate) fn period(&self) -> Option<u64> {
        match self {
            Self::Count { from, step, last, .. } => ((last - from) / step).checked_add(1),
            Self::List { list, .. } => u64::try_from(list.len()).ok(),
            Self::Random { .. } => None,
        }
    }

    #[inline]
    fn fill(&mut self, column: &mut Column) {
        match self {
            Self::Count { next, from, step, last } => {
                let (mut value, from, step, last) = (*next, *from, *step, *last);
                for place in column {
                    *place = value;
                    value = if value == last { from } else { value.wrapping_add(step) };
                }
                *next = value;
            }
            Self::List { list, next } => {
                let mut at = *next;
                for place in column {
                    *place = list.get(at).copied().unwrap_or(0);
                    at = if at + 1 >= list.len() { 0 } else { at + 1 };
                }
                *next = at;
            }
            Self::Random { random, from, last } => {
                let (from, count) = (*from, u128::from(*last) + 1);
                // A local copy stays in registers.
                let mut source = (**random).clone();
                for place in column {
                    // The upper half of the product is uniform up to 2^-64 of the range.
                    *place = from.wrapping_add(upper_half(u128::from(source.next_u64()) * count));
                }
                **random = source;
            }
        }
    }
}

#[inline(always)]
pub(crate) fn upper_half(product: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the product of 64 bits and at most 2^64 is below 2^128")]
    let upper = (product >> 64) as u64;
    upper
}

/// A checksum that something is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The checksum's index.
    pub(crate) of: usize,
    /// It ends at an odd offset, so its bytes are exchanged in the sum.
    pub(crate) swap: bool,
}

/// A field that moves.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) generator: Generator,
    /// Without a place it is only a part of checksums.
    pub(crate) place: Option<Place>,
    pub(crate) parts: Vec<Part>,
}

/// A checksum.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(crate) at: usize,
    /// The sum of what does not move.
    pub(crate) base: u16,
    pub(crate) never_zero: bool,
    /// Checksums around it, all of a lower index.
    pub(crate) parts: Vec<Part>,
}

/// How headers are made.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    sums: Vec<Sum>,
    running: Vec<Sums>,
}

impl Program {
    pub(crate) fn new(steps: Vec<Step>, sums: Vec<Sum>) -> Self {
        let running = vec![[0; BURST]; sums.len()];
        Self { steps, sums, running }
    }

    /// Frames after which headers repeat, if they do within 2^64.
    pub(crate) fn period(&self) -> Option<u64> {
        self.steps.iter().try_fold(1_u64, |period, step| lcm(period, step.generator.period()?))
    }

    /// The first byte behind all that is written.
    pub(crate) fn end(&self) -> usize {
        let steps = self.steps.iter().filter_map(|step| Some(step.place?.end()));
        steps.chain(self.sums.iter().map(|sum| sum.at + 2)).max().unwrap_or(0)
    }

    /// Writes the next [`BURST`] headers, each over one of `stride` bytes from before.
    pub(crate) fn run(&mut self, rows: &mut [u8], stride: usize) {
        let Self { steps, sums, running } = self;
        for (running, sum) in running.iter_mut().zip(&*sums) {
            *running = [sum.base.into(); BURST];
        }
        let mut column = [0; BURST];
        for step in steps {
            step.generator.fill(&mut column);
            let width = step.place.map_or(8, |place| {
                write(place, rows, stride, &column);
                place.width
            });
            if !step.parts.is_empty() {
                let shift = step.place.map_or(0, |place| place.shift);
                add(running, &step.parts, &folded(&column, shift, width));
            }
        }
        // What is inside comes first, as its checksum is part of those around it.
        for (index, sum) in sums.iter().enumerate().rev() {
            let checksums = running[index].map(|sum| u32::from(checksum(sum)));
            let checksums = if sum.never_zero { checksums.map(|sum| if sum == 0 { 0xFFFF } else { sum }) } else { checksums };
            add(running, &sum.parts, &checksums);
            let place = Place { at: sum.at, width: 2, shift: 0, bits: 16 };
            write(place, rows, stride, &checksums.map(u64::from));
        }
    }
}

/// Adds parts to their sums.
#[inline]
fn add(running: &mut [Sums], parts: &[Part], values: &Sums) {
    for part in parts {
        let Some(sums) = running.get_mut(part.of) else { continue };
        if part.swap {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += u32::from(fold(*value).swap_bytes()));
        } else {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
        }
    }
}

/// The sum of a field's 16-bit words, below 2^18.
#[inline]
fn folded(column: &Column, shift: usize, width: usize) -> Sums {
    let word = |value: u64, at: usize| {
        #[expect(clippy::cast_possible_truncation, reason = "16 bits are meant")]
        let word = (value >> (16 * at)) as u16;
        u32::from(word)
    };
    match (width, shift) {
        (..=2, 0) => column.map(|value| word(value, 0)),
        (..=2, _) => column.map(|value| word(value << shift, 0)),
        (..=4, 0) => column.map(|value| word(value, 0) + word(value, 1)),
        (..=4, _) => column.map(|value| word(value << shift, 0) + word(value << shift, 1)),
        _ => column.map(|value| {
            let value = value << shift;
            word(value, 0) + word(value, 1) + word(value, 2) + word(value, 3)
        }),
    }
}

/// Adds carries in.
#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    #[expect(clippy::cast_possible_truncation, reason = "no carry is left")]
    let sum = sum as u16;
    sum
}

/// The Internet checksum of a sum (RFC 1071).
#[inline(always)]
fn checksum(sum: u32) -> u16 {
    !fold(sum)
}

/// Writes a field's values into all rows.
#[inline]
fn write(place: Place, rows: &mut [u8], stride: usize, column: &Column) {
    if place.bits == 8 * place.width {
        match place.width {
            1 => write_bytes::<1>(place.at, rows, stride, column),
            2 => write_bytes::<2>(place.at, rows, stride, column),
            3 => write_bytes::<3>(place.at, rows, stride, column),
            4 => write_bytes::<4>(place.at, rows, stride, column),
            5 => write_bytes::<5>(place.at, rows, stride, column),
            6 => write_bytes::<6>(place.at, rows, stride, column),
            7 => write_bytes::<7>(place.at, rows, stride, column),
            _ => write_bytes::<8>(place.at, rows, stride, column),
        }
    } else {
        match place.width {
            1 => write_bits::<1>(place, rows, stride, column),
            2 => write_bits::<2>(place, rows, stride, column),
            _ => rows.chunks_exact_mut(stride).zip(column).for_each(|(row, value)| place.write(row, *value)),
        }
    }
}

#[inline(always)]
fn write_bytes<const WIDTH: usize>(at: usize, rows: &mut [u8], stride: usize, column: &Column) {
    for (row, value) in rows.chunks_exact_mut(stride).zip(column) {
        if let (Some(bytes), Some(new)) = (row.get_mut(at..at + WIDTH), value.to_be_bytes().last_chunk::<WIDTH>()) {
            bytes.copy_from_slice(new);
        }
    }
}

#[inline(always)]
fn write_bits<const WIDTH: usize>(place: Place, rows: &mut [u8], stride: usize, column: &Column) {
    let mask = place.mask();
    for (row, value) in rows.chunks_exact_mut(stride).zip(column) {
        if let Some(bytes) = row.get_mut(place.at..place.at + WIDTH) {
            let old = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            let new = old & !mask | value << place.shift & mask;
            bytes.copy_from_slice(&new.to_be_bytes()[8 - WIDTH..]);
        }
    }
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).checked_mul(b)
}
