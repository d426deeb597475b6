//! Random numbers: many at a time where a burst wants them.

use crate::program::BURST;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::array;

/// A word of each generator.
type Lane = [u32; BURST];

/// A source of random numbers for a field of a stream.
pub(crate) fn source(seed: u64, field: usize) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ (field as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A number from 0 to `last`, uniform up to 2^-64 of the range.
#[inline(always)]
pub(crate) fn below(random: &mut Xoshiro256PlusPlus, last: u64) -> u64 {
    let product = u128::from(random.next_u64()) * (u128::from(last) + 1);
    u64::try_from(product >> 64).unwrap_or(u64::MAX)
}

/// Generators of xoshiro128++ (Blackman and Vigna) side by side, one for each frame of a burst, which compilers turn into vector
/// instructions; one at a time costs four times as much.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    state: [Lane; 4],
}

impl Lanes {
    pub(crate) fn new(seed: u64, field: usize) -> Self {
        let mut random = source(seed, field);
        Self { state: array::from_fn(|_| array::from_fn(|_| random.next_u32())) }
    }

    /// Writes what `value` makes of the next number of 32 bits of each, and of 32 bits more, which together have no bias. The latter are
    /// a word of the state: alone they are not as random.
    #[inline(always)]
    pub(crate) fn next<T>(&mut self, column: &mut [T; BURST], value: impl Fn(u32, u32) -> T) {
        let [first, second, third, fourth] = &mut self.state;
        let state = first.iter_mut().zip(second).zip(third.iter_mut().zip(fourth));
        for (place, ((a, b), (c, d))) in column.iter_mut().zip(state) {
            *place = value(a.wrapping_add(*d).rotate_left(7).wrapping_add(*a), *b);
            let shifted = *b << 9;
            *c ^= *a;
            *d ^= *b;
            *b ^= *c;
            *a ^= *d;
            *c ^= shifted;
            *d = d.rotate_left(11);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro128PlusPlus;

    #[test]
    fn each_lane_is_the_known_generator() {
        let mut lanes = Lanes::new(7, 3);
        let mut alone: Vec<Xoshiro128PlusPlus> = (0..BURST)
            .map(|lane| {
                let seed = lanes.state.iter().flat_map(|words| words[lane].to_le_bytes()).collect::<Vec<u8>>();
                Xoshiro128PlusPlus::from_seed(seed.try_into().unwrap())
            })
            .collect();
        for _ in 0..3 {
            let mut numbers = [0; BURST];
            lanes.next(&mut numbers, |number, _| number);
            assert_eq!(numbers.to_vec(), alone.iter_mut().map(|one| one.next_u32()).collect::<Vec<_>>());
        }
    }
}
