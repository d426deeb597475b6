//! In place of `fours` where no processor has AVX2, and under Miri. The functions do nothing.

use mempool::{Packet, Slot};

pub(crate) const STEP: usize = 4;

pub(crate) fn are_here() -> bool {
    false
}

pub(crate) unsafe fn recv<R, S, G>(_: &R, _: (usize, usize), _: S, _: *mut Packet, _: G, _: &mut u64) -> usize {
    0
}

pub(crate) unsafe fn reclaim<R, S>(_: &R, _: (usize, usize), _: S, _: *mut Slot) -> usize {
    0
}

pub(crate) unsafe fn post<W, S, T>(_: &mut W, _: (usize, usize), _: S, _: T, _: u64) -> usize {
    0
}

pub(crate) unsafe fn send<W, S, P, U>(_: &mut W, _: (usize, usize), _: S, _: P, _: U, _: &mut u64) -> usize {
    0
}
