//! Headers one behind the other, into which a field is written for all of them.

use crate::layout::Place;
use crate::program::BURST;
use std::ops::Shl;

/// Rows changed in a turn.
const UNROLLED: usize = 8;

/// Values of 32 or 64 bits.
pub(crate) trait Word: Copy + Default + Shl<usize, Output = Self> {
    /// The lower bits of a number.
    fn of(value: u64) -> Self;

    /// The sum of its 16-bit words, below 2^18.
    fn words(self) -> u32;

    /// Its last bytes in network order.
    fn bytes<const WIDTH: usize>(self) -> [u8; WIDTH];

    /// Its lower 32 bits.
    fn lower(self) -> u32;
}

impl Word for u32 {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are asked for")]
    fn of(value: u64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn words(self) -> u32 {
        (self >> 16) + (self & 0xFFFF)
    }

    #[inline(always)]
    fn bytes<const WIDTH: usize>(self) -> [u8; WIDTH] {
        // A half is turned round in one instruction less.
        let [.., third, fourth] = self.to_be_bytes();
        let half = [third, fourth];
        half.last_chunk().or(self.to_be_bytes().last_chunk()).copied().unwrap_or([0; WIDTH])
    }

    #[inline(always)]
    fn lower(self) -> u32 {
        self
    }
}

impl Word for u64 {
    #[inline(always)]
    fn of(value: u64) -> Self {
        value
    }

    #[inline(always)]
    fn words(self) -> u32 {
        let [upper, lower] = [<u32 as Word>::of(self >> 32), <u32 as Word>::of(self)];
        upper.words() + lower.words()
    }

    #[inline(always)]
    fn bytes<const WIDTH: usize>(self) -> [u8; WIDTH] {
        self.to_be_bytes().last_chunk().copied().unwrap_or([0; WIDTH])
    }

    #[inline(always)]
    fn lower(self) -> u32 {
        <u32 as Word>::of(self)
    }
}

/// Headers of a burst.
pub(crate) trait Rows {
    /// Changes `WIDTH` bytes at `at` of every row, each by its value.
    fn each<const WIDTH: usize, T: Word>(
        &mut self,
        at: usize,
        values: &[T; BURST],
        change: impl Fn(&mut [u8; WIDTH], T),
    );

    /// Writes values of `WIDTH` bytes.
    #[inline(always)]
    fn put<const WIDTH: usize, T: Word>(&mut self, at: usize, values: &[T; BURST]) {
        self.each(at, values, |bytes: &mut [u8; WIDTH], value| *bytes = value.bytes());
    }

    /// Writes values that leave other bits of their `WIDTH` bytes alone.
    #[inline(always)]
    fn put_bits<const WIDTH: usize, T: Word>(&mut self, at: usize, mask: u32, values: &[T; BURST]) {
        self.each(at, values, |bytes: &mut [u8; WIDTH], value| {
            let mut word = [0; 4];
            word[4 - WIDTH..].copy_from_slice(bytes);
            *bytes = Word::bytes(u32::from_be_bytes(word) & !mask | value.lower() & mask);
        });
    }

    /// Writes the values of a field, shifted to where they stand.
    #[inline(always)]
    fn write<T: Word>(&mut self, place: Place, values: &[T; BURST]) {
        let (at, mask) = (place.at, u32::of(place.mask()));
        match (place.width, place.bits == 8 * place.width) {
            (1, true) => self.put::<1, T>(at, values),
            (2, true) => self.put::<2, T>(at, values),
            (3, true) => self.put::<3, T>(at, values),
            (4, true) => self.put::<4, T>(at, values),
            (5, true) => self.put::<5, T>(at, values),
            (6, true) => self.put::<6, T>(at, values),
            (7, true) => self.put::<7, T>(at, values),
            (8, true) => self.put::<8, T>(at, values),
            // No header has a field of more than 32 bits that shares a byte.
            (1, false) => self.put_bits::<1, T>(at, mask, values),
            (2, false) => self.put_bits::<2, T>(at, mask, values),
            (3, false) => self.put_bits::<3, T>(at, mask, values),
            _ => self.put_bits::<4, T>(at, mask, values),
        }
    }
}

impl<const HEAD: usize> Rows for [[u8; HEAD]] {
    #[inline(always)]
    fn each<const WIDTH: usize, T: Word>(
        &mut self,
        at: usize,
        values: &[T; BURST],
        change: impl Fn(&mut [u8; WIDTH], T),
    ) {
        if WIDTH > HEAD || at > HEAD - WIDTH {
            return;
        }
        // Several in a turn, as a turn costs about as much as a value.
        let rows = self.as_chunks_mut::<UNROLLED>().0.iter_mut();
        for (rows, values) in rows.zip(values.as_chunks::<UNROLLED>().0) {
            for (row, value) in rows.iter_mut().zip(values) {
                if let Some(bytes) = row.get_mut(at..at + WIDTH).and_then(<[u8]>::first_chunk_mut) {
                    change(bytes, *value);
                }
            }
        }
    }
}

/// Rows of a length that is known late.
#[derive(Debug)]
pub(crate) struct Strided<'r> {
    pub(crate) bytes: &'r mut [u8],
    pub(crate) stride: usize,
}

impl Rows for Strided<'_> {
    #[inline(always)]
    fn each<const WIDTH: usize, T: Word>(
        &mut self,
        at: usize,
        values: &[T; BURST],
        change: impl Fn(&mut [u8; WIDTH], T),
    ) {
        for (row, value) in self.bytes.chunks_exact_mut(self.stride.max(1)).zip(values) {
            if let Some(bytes) = row.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                change(bytes, *value);
            }
        }
    }
}
