//! Random numbers: many at a time where a burst wants them.

use crate::program::BURST;
use crate::rows::Word;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::array;

/// What MWC64X multiplies by; with it, [`Lanes::MODULUS`] is prime.
const MULTIPLIER: u64 = 4_294_883_355;

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

/// Generators of MWC64X (multiply with carry, Thomas) side by side, one for each frame of a burst, which compilers turn into vector
/// instructions: SSE2 has the product of 32 bits by 32 that they need. One at a time costs several times as much.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// Carry and number, 32 bits each; neither all 0 nor `MODULUS`, from which they would not move.
    state: [u64; BURST],
}

impl Lanes {
    /// Each step divides the state by 2^32 in the field of this many elements, whose order is near 2^63.
    const MODULUS: u64 = (MULTIPLIER << 32) - 1;

    pub(crate) fn new(seed: u64, field: usize) -> Self {
        let mut random = source(seed, field);
        Self { state: array::from_fn(|_| 1 + below(&mut random, Self::MODULUS - 2)) }
    }

    /// Writes what `value` makes of the next number of 32 bits of each, and of 32 bits more, which together have no bias. The latter are
    /// a part of the state: alone they are not as random.
    #[inline(always)]
    pub(crate) fn next<T>(&mut self, column: &mut [T; BURST], value: impl Fn(u32, u32) -> T) {
        let lower = |word: u64| <u32 as Word>::of(word);
        for (place, state) in column.iter_mut().zip(&mut self.state) {
            let carry = *state >> 32;
            *place = value(lower(*state ^ carry), lower(*state));
            *state = (*state & u64::from(u32::MAX)) * MULTIPLIER + carry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next numbers of all lanes.
    fn numbers(lanes: &mut Lanes) -> [u32; BURST] {
        let mut numbers = [0; BURST];
        lanes.next(&mut numbers, |number, _| number);
        numbers
    }

    /// Numbers and carries from 0 and 2 on, as OpenCL's version of the author gives them.
    #[test]
    fn each_lane_is_the_known_generator() {
        let mut lanes = Lanes { state: [2 << 32; BURST] };
        for [number, carry] in [[0, 2], [2, 0], [4_294_799_414, 1], [1_207_281_075, 4_294_715_476]] {
            assert_eq!(numbers(&mut lanes), [number ^ carry; BURST]);
        }
    }

    #[test]
    fn each_step_divides_by_a_power_of_two() {
        let mut lanes = Lanes::new(7, 3);
        let modulus = u128::from(Lanes::MODULUS);
        for _ in 0..1000 {
            let before = lanes.state;
            numbers(&mut lanes);
            for (before, after) in before.into_iter().zip(lanes.state) {
                assert_eq!((u128::from(after) << 32) % modulus, u128::from(before));
                assert!((1..Lanes::MODULUS).contains(&after));
            }
        }
    }
}
