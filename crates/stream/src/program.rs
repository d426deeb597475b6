//! Headers of a burst, made field by field: a field's values for all frames, their places, their share of the checksums.

use crate::layout::Place;
use crate::random::{Lanes, below};
use crate::rows::{Rows, Strided, Word};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use wire::checksum::fold_u32;

/// Headers made at a time.
pub(crate) const BURST: usize = 32;
/// Ranges up to so many values take one random number of 32 bits, which favours none by more than 2^-16 of its share; and so do those of
/// a power of two, where it favours none.
const SHORT_RANGE: u32 = 1 << 16;

/// Parts of a sum for each frame of a burst; carries are not added in yet.
type Sums = [u32; BURST];

/// Where the values of a field come from.
#[derive(Clone, Debug)]
pub(crate) enum Generator {
    Count {
        next: u64,
        from: u64,
        step: u64,
        last: u64,
    },
    List {
        list: Vec<u64>,
        next: usize,
    },
    /// From `from` to `from + last`.
    Random {
        random: Box<Xoshiro256PlusPlus>,
        from: u64,
        last: u64,
    },
    /// The same for values of 32 bits.
    Lanes {
        lanes: Box<Lanes>,
        from: u32,
        last: u32,
    },
}

impl Generator {
    /// Frames after which the values repeat, if they do.
    fn period(&self) -> Option<u64> {
        match self {
            Self::Count { from, step, last, .. } => ((last - from) / step).checked_add(1),
            Self::List { list, .. } => u64::try_from(list.len()).ok(),
            Self::Random { .. } | Self::Lanes { .. } => None,
        }
    }

    /// Whether all values have 32 bits at most.
    fn is_narrow(&self) -> bool {
        let narrow = |value: &u64| *value <= u32::MAX.into();
        match self {
            Self::Count { last, .. } => narrow(last),
            Self::List { list, .. } => list.iter().all(narrow),
            Self::Random { .. } => false,
            Self::Lanes { .. } => true,
        }
    }

    #[inline]
    fn fill<T: Word>(&mut self, column: &mut [T; BURST]) {
        match self {
            Self::Count { next, from, step, last } => *next = count(column, *next, *from, *step, *last),
            Self::List { list, next } => {
                let mut at = *next;
                for place in column {
                    *place = T::of(list.get(at).copied().unwrap_or(0));
                    at = if at + 1 >= list.len() { 0 } else { at + 1 };
                }
                *next = at;
            }
            Self::Random { random, from, last } => {
                // A local copy stays in registers.
                let mut source = (**random).clone();
                for place in column {
                    *place = T::of(from.wrapping_add(below(&mut source, *last)));
                }
                **random = source;
            }
            Self::Lanes { lanes, from, last } => draw(column, lanes, *from, *last),
        }
    }
}

/// Counts on from `next`. Returns what comes then.
#[inline(always)]
fn count<T: Word>(column: &mut [T; BURST], next: u64, from: u64, step: u64, last: u64) -> u64 {
    let mut value = next;
    let within = step.checked_mul(BURST as u64).is_some_and(|way| way <= last - next);
    if within {
        for place in column {
            *place = T::of(value);
            value += step;
        }
    } else {
        for place in column {
            *place = T::of(value);
            value = if value >= last { from } else { value + step };
        }
    }
    value
}

/// Random numbers from `from` to `from + last`.
#[inline(always)]
fn draw<T: Word>(column: &mut [T; BURST], lanes: &mut Lanes, from: u32, last: u32) {
    // A range of 32 bits has one value more than such a number can say.
    let Some(values) = last.checked_add(1) else {
        lanes.next(column, |number, _| T::of(number.into()));
        return;
    };
    if values.is_power_of_two() && last > 0 {
        // The upper bits, as below, without a product of 64 bits.
        let less = last.leading_zeros();
        lanes.next(column, |number, _| T::of(u64::from(from) + u64::from(number >> less)));
        return;
    }
    let times = |number: u32| u64::from(number) * u64::from(values);
    let upper = |product: u64| product >> 32;
    if last < SHORT_RANGE {
        lanes.next(column, |number, _| T::of(u64::from(from) + upper(times(number))));
    } else {
        // A number of 64 bits, in halves.
        lanes.next(column, |number, more| T::of(u64::from(from) + upper(times(number) + upper(times(more)))));
    }
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
    /// With whether the values have 32 bits at most.
    steps: Vec<(Step, bool)>,
    sums: Vec<Sum>,
    running: Vec<Sums>,
}

impl Program {
    pub(crate) fn new(steps: Vec<Step>, sums: Vec<Sum>) -> Self {
        let narrow = |step: &Step| step.generator.is_narrow() && step.place.is_none_or(|place| place.width <= 4);
        let steps = steps.into_iter().map(|step| (narrow(&step), step)).map(|(narrow, step)| (step, narrow)).collect();
        let running = vec![[0; BURST]; sums.len()];
        Self { steps, sums, running }
    }

    /// Frames after which headers repeat, if they do within 2^64.
    pub(crate) fn period(&self) -> Option<u64> {
        self.steps.iter().try_fold(1_u64, |period, (step, _)| lcm(period, step.generator.period()?))
    }

    /// From the first byte that is written to the one behind the last; empty if none is.
    pub(crate) fn span(&self) -> Range<usize> {
        let steps = self.steps.iter().filter_map(|(step, _)| step.place.map(|place| place.at..place.end()));
        let all = steps.chain(self.sums.iter().map(|sum| sum.at..sum.at + 2));
        all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// Writes to rows from here on that begin so many bytes into a header, at its span or before.
    pub(crate) fn shift(&mut self, by: usize) {
        self.steps.iter_mut().filter_map(|(step, _)| step.place.as_mut()).for_each(|place| place.at -= by);
        self.sums.iter_mut().for_each(|sum| sum.at -= by);
    }

    /// Writes the next [`BURST`] headers, each over one of `stride` bytes from before.
    pub(crate) fn run(&mut self, rows: &mut [u8], stride: usize) {
        match stride {
            8 => self.write(rows.as_chunks_mut::<8>().0),
            16 => self.write(rows.as_chunks_mut::<16>().0),
            24 => self.write(rows.as_chunks_mut::<24>().0),
            32 => self.write(rows.as_chunks_mut::<32>().0),
            48 => self.write(rows.as_chunks_mut::<48>().0),
            60 => self.write(rows.as_chunks_mut::<60>().0),
            64 => self.write(rows.as_chunks_mut::<64>().0),
            74 => self.write(rows.as_chunks_mut::<74>().0),
            76 => self.write(rows.as_chunks_mut::<76>().0),
            96 => self.write(rows.as_chunks_mut::<96>().0),
            128 => self.write(rows.as_chunks_mut::<128>().0),
            _ => self.write(&mut Strided { bytes: rows, stride }),
        }
    }

    fn write(&mut self, rows: &mut (impl Rows + ?Sized)) {
        let Self { steps, sums, running } = self;
        for (running, sum) in running.iter_mut().zip(&*sums) {
            *running = [sum.base.into(); BURST];
        }
        for (step, narrow) in steps {
            if *narrow { take::<u32>(step, rows, running) } else { take::<u64>(step, rows, running) }
        }
        // What is inside comes first, as its checksum is part of those around it.
        for (index, sum) in sums.iter().enumerate().rev() {
            let mut checksums = running[index];
            checksums.iter_mut().for_each(|sum| *sum = fold_u32(*sum) ^ 0xFFFF);
            if sum.never_zero {
                checksums.iter_mut().for_each(|sum| *sum |= if *sum == 0 { 0xFFFF } else { 0 });
            }
            add(running, &sum.parts, &checksums);
            rows.put::<2, u32>(sum.at, &checksums);
        }
    }
}

/// Takes a step for all frames.
#[inline]
fn take<T: Word>(step: &mut Step, rows: &mut (impl Rows + ?Sized), running: &mut [Sums]) {
    let mut column = [T::default(); BURST];
    step.generator.fill(&mut column);
    if let Some(place) = step.place {
        if place.shift > 0 {
            column.iter_mut().for_each(|value| *value = *value << place.shift);
        }
        rows.write(place, &column);
    }
    match step.parts[..] {
        [] => return,
        // An address of IPv4, in its header's checksum and that of UDP or TCP.
        [Part { of: first, swap: false }, Part { of: second, swap: false }] => {
            if let Ok([first, second]) = running.get_disjoint_mut([first, second]) {
                for ((first, second), value) in first.iter_mut().zip(second).zip(&column) {
                    let words = value.words();
                    *first += words;
                    *second += words;
                }
            }
            return;
        }
        _ => {}
    }
    let mut words = [0; BURST];
    words.iter_mut().zip(&column).for_each(|(words, value)| *words = value.words());
    add(running, &step.parts, &words);
}

/// Adds parts to their sums.
#[inline]
fn add(running: &mut [Sums], parts: &[Part], values: &Sums) {
    for part in parts {
        let Some(sums) = running.get_mut(part.of) else { continue };
        if part.swap {
            add_swapped(sums, values);
        } else {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
        }
    }
}

/// Adds values whose bytes are exchanged: once their carries are in.
#[inline(never)]
fn add_swapped(sums: &mut Sums, values: &Sums) {
    let swapped = |value: u32| (fold_u32(value) << 8 | fold_u32(value) >> 8) & 0xFFFF;
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += swapped(*value));
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).checked_mul(b)
}
