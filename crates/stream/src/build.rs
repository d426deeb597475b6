//! From a definition to a program: what is constant is written, what moves becomes a step, and each checksum gets the sum of the rest.

use crate::definition::{Definition, Payload};
use crate::error::{Error, Result};
use crate::layout::{Checksum, Field, Place};
use crate::program::{Generator, Part, Program, Step, Sum};
use crate::random::{Lanes, below, source};
use crate::sizes::SMALLEST;
use crate::values::Values;
use rand_xoshiro::rand_core::Rng as _;
use wire::Sum as InternetSum;

/// A stream being made of its definition.
pub(crate) struct Builder<'d> {
    definition: &'d Definition,
    tail: usize,
    seed: u64,
    /// The largest frame: constant bytes and payload.
    frame: Vec<u8>,
    steps: Vec<Step>,
}

impl<'d> Builder<'d> {
    pub(crate) fn new(definition: &'d Definition, tail: usize, seed: u64) -> Result<Self> {
        let layout = &definition.layout;
        let end = layout.fields.iter().map(|field| field.place.end()).chain([layout.bytes.len()]).max().unwrap_or(0);
        let (size, least) = (definition.sizes.smallest(), end.saturating_add(tail).max(SMALLEST.into()));
        if size < least {
            return Err(Error::TooSmall { stream: definition.name.clone(), size, tail, least });
        }
        let mut frame = layout.bytes.clone();
        let rest = definition.sizes.largest() - frame.len();
        match &definition.payload {
            Payload::Increment => frame.extend((0..=u8::MAX).cycle().take(rest)),
            Payload::Random => {
                let (from, mut random) = (frame.len(), source(seed, usize::MAX));
                frame.resize(from + rest, 0);
                random.fill_bytes(&mut frame[from..]);
            }
            Payload::Bytes(bytes) => frame.extend(bytes.iter().cycle().take(rest)),
        }
        Ok(Self { definition, tail, seed, frame, steps: Vec::new() })
    }

    pub(crate) fn build(mut self) -> (Vec<u8>, Program) {
        let definition = self.definition;
        for (number, field) in definition.layout.fields.iter().enumerate() {
            self.add_field(number, field);
        }
        let checksums = &definition.layout.checksums;
        let mut sums = Vec::new();
        for (index, checksum) in checksums.iter().enumerate() {
            let base = self.base(index, checksum);
            let parts = parts(&checksums[..index], checksum.at, checksum.at + 2);
            sums.push(Sum { at: checksum.at, base, never_zero: checksum.never_zero, parts });
        }
        (self.frame, Program::new(self.steps, sums))
    }

    /// Writes a field that is constant; others become a step.
    fn add_field(&mut self, number: usize, field: &Field) {
        let Self { definition, seed, .. } = *self;
        let values = match definition.flows.filter(|_| field.flow) {
            Some(flows) => in_flows(&field.values, flows, seed, number),
            None => field.values.clone(),
        };
        let mut place = field.place;
        let values = if let Some((constant, values)) = narrowed(&values, place) {
            place.write(&mut self.frame, constant);
            place = Place { at: place.end() - 4, width: 4, shift: 0, bits: 32 };
            values
        } else {
            values
        };
        let generator = match values {
            Values::Constant(value) => return place.write(&mut self.frame, value),
            Values::Size { minus } => {
                let length = |size: u16| u64::from(size) - minus as u64;
                if let Some(size) = definition.sizes.only() {
                    return place.write(&mut self.frame, length(size));
                }
                let list = definition.sizes.cycle().iter().copied().map(length).collect();
                Generator::List { list, next: 0 }
            }
            Values::Count { from, step, count } => {
                Generator::Count { next: from, from, step, last: from + step * (count - 1) }
            }
            Values::List(list) => Generator::List { list, next: 0 },
            Values::Random { from, last } => match (u32::try_from(from), u32::try_from(last), from.checked_add(last)) {
                (Ok(from), Ok(last), Some(end)) if u32::try_from(end).is_ok() => {
                    Generator::Lanes { lanes: Box::new(Lanes::new(seed, number)), from, last }
                }
                _ => Generator::Random { random: Box::new(source(seed, number)), from, last },
            },
        };
        place.write(&mut self.frame, 0);
        let parts = parts(&definition.layout.checksums, place.at, place.end());
        self.steps.push(Step { generator, place: Some(place), parts });
    }

    /// The sum of what does not move in a checksum. What follows from the size becomes a step.
    fn base(&mut self, index: usize, checksum: &Checksum) -> u16 {
        let Checksum { from, to, ref pseudo, .. } = *checksum;
        let mut base = InternetSum::default();
        if let Some((addresses, protocol)) = pseudo {
            base = base.and(&self.frame[addresses.clone()]).and(&[0, *protocol]);
        }
        if let Some(to) = to {
            return base.and(&self.frame[from..to]).folded();
        }
        let length =
            |size: usize| u32::try_from(if pseudo.is_some() { size - from } else { 0 }).unwrap_or(0).to_be_bytes();
        let sizes = &self.definition.sizes;
        if let Some(size) = sizes.only().map(usize::from) {
            return base.and(&length(size)).and(&self.frame[from..size - self.tail]).folded();
        }
        // The sum of everything up to each offset.
        let mut prefix = vec![InternetSum::default(); self.frame.len() + 1];
        for at in from..self.frame.len() {
            prefix[at + 1] = prefix[at].and(&self.frame[at..=at]);
        }
        let of = |size: u16| {
            let size = usize::from(size);
            InternetSum::of(&length(size)).and(&prefix[size - self.tail].folded().to_be_bytes()).folded().into()
        };
        let list = sizes.cycle().iter().copied().map(of).collect();
        let generator = Generator::List { list, next: 0 };
        self.steps.push(Step { generator, place: None, parts: vec![Part { of: index, swap: false }] });
        base.folded()
    }
}

/// The checksums that bytes are part of.
fn parts(checksums: &[Checksum], from: usize, to: usize) -> Vec<Part> {
    let covers = |checksum: &Checksum| {
        let covered = checksum.from <= from && checksum.to.is_none_or(|end| to <= end);
        covered || checksum.pseudo.as_ref().is_some_and(|(addresses, _)| addresses.start <= from && to <= addresses.end)
    };
    let covering = checksums.iter().enumerate().filter(|(_, checksum)| covers(checksum));
    covering.map(|(of, _)| Part { of, swap: to % 2 == 1 }).collect()
}

/// The constant upper part of values of more than 32 bits that differ in their lower 32 bits only, and these.
fn narrowed(values: &Values, place: Place) -> Option<(u64, Values)> {
    let same = |from: u64, to: u64| place.bits > 32 && place.shift == 0 && from >> 32 == to >> 32;
    let lower = |value: u64| value & u64::from(u32::MAX);
    let upper = |value: u64| value - lower(value);
    match *values {
        Values::Count { from, step, count } => {
            let narrow = Values::Count { from: lower(from), step, count };
            same(from, from + step * (count - 1)).then_some((upper(from), narrow))
        }
        Values::Random { from, last } => {
            same(from, from.checked_add(last)?).then_some((upper(from), Values::Random { from: lower(from), last }))
        }
        _ => None,
    }
}

/// The values of a field that moves with the flow: as many as there are flows.
fn in_flows(values: &Values, flows: u64, seed: u64, number: usize) -> Values {
    match values {
        Values::Count { from, step, count } if *count >= flows => {
            Values::Count { from: *from, step: *step, count: flows }
        }
        Values::Count { from, step, count } => {
            Values::List((0..flows).map(|flow| from + step * (flow % count)).collect())
        }
        Values::List(list) => {
            Values::List(list.iter().copied().cycle().zip(0..flows).map(|(value, _)| value).collect())
        }
        Values::Random { from, last } => {
            let mut random = source(seed, number);
            Values::List((0..flows).map(|_| from.wrapping_add(below(&mut random, *last))).collect())
        }
        Values::Constant(_) | Values::Size { .. } => values.clone(),
    }
}
