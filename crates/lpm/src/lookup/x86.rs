//! The builds for x86-64, and which of them the CPU can run.

use std::is_x86_feature_detected as has;

use super::lanes::Plain;
use super::{Addr, Chunk, Hop, Lookup, compiled, one, turn};
use crate::tables::Tables;

/// Loads numbers by an instruction each, where the mask says so; else they are those of `others`.
macro_rules! gathers {
    ($features:literal; $($name:ident $template:literal, $index:ident $in:ident, $out:ident $class:ident, $mask:ident $masks:ident;)*) => {$(
        /// # Safety
        /// What is to be read lies there, and is only ever written as atomics.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name(base: *const u8, index: $index, mask: $mask, others: $out) -> $out {
            let mut out = others;
            // SAFETY: the caller has it that the places may be read.
            unsafe {
                asm!(
                    $template,
                    out = inout($class) out,
                    base = in(reg) base,
                    index = in($in) index,
                    mask = inout($masks) mask => _,
                    options(nostack, preserves_flags, readonly),
                );
            }
            out
        }
    )*};
}

mod avx2;
mod avx512;

/// A build of the loops that this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    Popcnt(Popcnt),
    Avx2(Avx2),
    Avx512(Avx512),
}

/// Proof that the CPU was asked for POPCNT, BMI1 and BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Popcnt(());

/// Proof that it was asked for AVX2, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(Popcnt);

/// Proof that it was asked for AVX-512 F, VL and VPOPCNTDQ, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(Avx2);

impl Kernel {
    /// The builds this CPU can run, the best last.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let popcnt = (has!("popcnt") && has!("bmi1") && has!("bmi2")).then_some(Popcnt(()));
        let avx2 = popcnt.filter(|_| has!("avx2")).map(Avx2);
        let has_avx512 = || has!("avx512f") && has!("avx512vl") && has!("avx512vpopcntdq");
        let avx512 = avx2.filter(|_| has_avx512()).map(Avx512);
        [popcnt.map(Self::Popcnt), avx2.map(Self::Avx2), avx512.map(Self::Avx512)].into_iter().flatten()
    }

    /// See [`super::burst`].
    #[inline(always)]
    pub(super) fn burst<F: Lookup, A: Addr<F>>(self, tables: &Tables<F>, addrs: &[A], out: &mut [Hop]) {
        match self {
            // SAFETY: each kernel is only made where the CPU has what its functions are compiled for.
            Self::Popcnt(_) => unsafe { popcnt::burst(Plain, tables, addrs, out) },
            // SAFETY: as above.
            Self::Avx2(k) => unsafe { narrow::burst(k, tables, addrs, out) },
            // SAFETY: as above.
            Self::Avx512(k) => unsafe { wide::burst(k, tables, addrs, out) },
        }
    }

    /// See [`super::one`].
    #[inline(always)]
    pub(super) fn one<F: Lookup>(self, tables: &Tables<F>, addr: F::Bits) -> Hop {
        #[target_feature(enable = "popcnt,bmi1,bmi2")]
        fn fast<F: Lookup>(tables: &Tables<F>, addr: F::Bits) -> Hop {
            F::one(tables, addr)
        }
        // SAFETY: kernels are only made where the CPU has the features.
        unsafe { fast(tables, addr) }
    }
}

compiled!(popcnt #[target_feature(enable = "popcnt,bmi1,bmi2")], Plain; 8 chunk);
compiled!(narrow #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")], Avx2; 32 chunk, 8 eight);
compiled!(
    wide #[target_feature(enable = "popcnt,bmi1,bmi2,avx2,avx512f,avx512vl,avx512vpopcntdq")], Avx512;
    64 chunk, 32 chunk, 8 eight
);

/// The longest matches of eight addresses. Those of IPv4 fill a register; one of IPv6's would wait for the slowest at every step, and
/// they wait for less one beside the other.
#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn eight<F: Lookup, A: Addr<F>, K>(_: K, tables: &Tables<F>, chunk: Chunk<'_, A, 8>) {
    if size_of::<F::Bits>() == 4 {
        // Who may call this has the proof.
        narrow::chunk(Avx2(Popcnt(())), tables, chunk);
    } else {
        popcnt::chunk(Plain, tables, chunk);
    }
}

/// Writes a register, and nothing else, as so many next hops.
#[inline(always)]
fn put<V: Copy, const N: usize>(register: V, out: &mut [Hop]) {
    const { assert!(size_of::<V>() == size_of::<[Hop; N]>()) };
    let out: &mut [Hop; N] = out.first_chunk_mut().expect("there is room");
    // SAFETY: the room is as large, and next hops may have any value.
    unsafe { out.as_mut_ptr().cast::<V>().write_unaligned(register) };
}
