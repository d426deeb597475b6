//! The lookup loops. What a lookup does is written once, in [`v4`] and [`v6`], over [`lanes`]: one address at a time, or
//! as many as registers have room for. It is compiled for any CPU, for those with POPCNT, for AVX2 and for AVX-512.
//!
//! Unsafe here are the calls of code for a CPU that was asked whether it can run it, and loads of several places at once.

#[macro_use]
mod lanes;
mod v4;
mod v6;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod x86;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[expect(clippy::cast_possible_truncation, reason = "slots and lanes are few")]
mod tests;

use core::sync::atomic::Ordering;

use crate::NextHop;
use crate::mem::{Roots, arrive};
use crate::tables::{Addresses, Tables};
pub(crate) use lanes::Lanes;
use lanes::Plain;

/// The longest match of an address.
type Hop = Option<NextHop>;

/// An address of a family, or what stands for one.
pub(crate) trait Addr<F: Addresses>: Copy + Into<F::Bits> {}
impl<F: Addresses, A: Copy + Into<F::Bits>> Addr<F> for A {}

/// Addresses that are looked up together, and room for their longest matches.
pub(crate) struct Chunk<'a, A, const N: usize> {
    addrs: &'a [A; N],
    out: &'a mut [Hop; N],
}

/// The lookups of a family.
pub(crate) trait Lookup: Addresses + Roots {
    /// The longest match of one address.
    fn one(tables: &Tables<Self>, addr: Self::Bits) -> Hop;
    /// Has the accelerator put numbers of next hops into a chunk; returns a bit for each address that leads deeper. None if those are
    /// many, or there is no accelerator.
    #[inline(always)]
    fn accelerated<K: Lanes, A: Addr<Self>, const N: usize>(
        _: K,
        _: &Tables<Self>,
        _: &mut Chunk<'_, A, N>,
    ) -> Option<u64> {
        None
    }
    /// Puts leaves into a chunk, each step for all addresses before the next; returns a bit for each that leads deeper, whose leaf
    /// means nothing.
    fn chunk<K: Lanes, A: Addr<Self>, const N: usize>(k: K, tables: &Tables<Self>, chunk: &mut Chunk<'_, A, N>) -> u64;
    /// Whether [`Self::chunk`] gives numbers of next hops, and not the next hops themselves.
    fn gives_numbers(tables: &Tables<Self>) -> bool;
}

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    X86(x86::Kernel),
}

impl Kernel {
    /// The builds this CPU can run, the best last, as they are named.
    fn all() -> impl Iterator<Item = Self> {
        let all = core::iter::once(Self::Portable);
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        let all = all.chain(x86::Kernel::all().map(Self::X86));
        all
    }

    /// The build that new tables use: the best this CPU can run, unless a test has chosen another.
    pub(crate) fn detect() -> Self {
        #[cfg(feature = "kernels")]
        if let Some(chosen) = crate::kernels::chosen() {
            return chosen;
        }
        Self::all().last().unwrap_or(Self::Portable)
    }

    /// The build of that name; if this CPU cannot run it, the instruction sets it lacks.
    #[cfg(feature = "kernels")]
    pub(crate) fn named(choice: crate::kernels::Choice) -> Result<Self, std::string::String> {
        let mut all = Self::all().zip(crate::kernels::Choice::ALL);
        all.find(|(_, name)| *name == choice).map(|(kernel, _)| kernel).ok_or_else(|| choice.needs().into())
    }

    /// The name of a build.
    #[cfg(feature = "kernels")]
    pub(crate) fn choice(self) -> crate::kernels::Choice {
        let mut all = Self::all().zip(crate::kernels::Choice::ALL);
        all.find(|(kernel, _)| *kernel == self).map_or(crate::kernels::Choice::Portable, |(_, name)| name)
    }
}

/// Compiles bursts for what a kernel may use, in chunks of these sizes. A whole burst of one is what drivers give, and goes without
/// detours.
macro_rules! compiled {
    ($module:ident $(#[$features:meta])?, $lanes:ty; $($count:literal $chunk:path),*) => {
        pub(super) mod $module {
            use super::*;

            $(#[$features])?
            pub(in crate::lookup) fn burst<F: Lookup, A: Addr<F>>(k: $lanes, tables: &Tables<F>, addrs: &[A], out: &mut [Hop]) {
                $(if let Ok(addrs) = <&[A; $count]>::try_from(addrs) && let Some(out) = out.first_chunk_mut() {
                    return $chunk(k, tables, Chunk { addrs, out });
                })*
                mixed(k, tables, addrs, out);
            }

            $(#[$features])?
            #[inline(never)]
            fn mixed<F: Lookup, A: Addr<F>>(k: $lanes, tables: &Tables<F>, addrs: &[A], out: &mut [Hop]) {
                let count = addrs.len().min(out.len());
                let (addrs, out) = (&addrs[..count], &mut out[..count]);
                $(let (chunks, addrs) = addrs.as_chunks::<$count>();
                let (outs, out) = out.as_chunks_mut::<$count>();
                for (addrs, out) in chunks.iter().zip(outs) {
                    $chunk(k, tables, Chunk { addrs, out });
                })*
                for (addr, out) in addrs.iter().zip(out) {
                    *out = one(tables, (*addr).into());
                }
            }

            $(#[$features])?
            #[inline(never)]
            pub(in crate::lookup) fn chunk<F: Lookup, A: Addr<F>, const N: usize>(
                k: $lanes, tables: &Tables<F>, mut chunk: Chunk<'_, A, N>,
            ) {
                match F::accelerated(k, tables, &mut chunk) {
                    Some(deep) => turn(tables, chunk.addrs, chunk.out, deep, true),
                    None => proper(k, tables, chunk),
                }
            }

            $(#[$features])?
            #[inline(never)]
            fn proper<F: Lookup, A: Addr<F>, const N: usize>(k: $lanes, tables: &Tables<F>, mut chunk: Chunk<'_, A, N>) {
                let deep = F::chunk(k, tables, &mut chunk);
                turn(tables, chunk.addrs, chunk.out, deep, F::gives_numbers(tables));
            }
        }
    };
}
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
use compiled;

compiled!(portable, Plain; 8 chunk);

/// The longest matches of as many addresses as there is room for.
#[inline(always)]
pub(crate) fn burst<F: Lookup, A: Addr<F>>(tables: &Tables<F>, addrs: &[A], out: &mut [Hop]) {
    match tables.kernel {
        Kernel::Portable => portable::burst(Plain, tables, addrs, out),
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        Kernel::X86(kernel) => kernel.burst(tables, addrs, out),
    }
}

/// The longest match of one address.
#[inline(never)]
pub(crate) fn one<F: Lookup>(tables: &Tables<F>, addr: F::Bits) -> Hop {
    match tables.kernel {
        Kernel::Portable => F::one(tables, addr),
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        Kernel::X86(kernel) => kernel.one(tables, addr),
    }
}

/// Sees to what leads deeper, by a bit for each lane, and, if there are `numbers`, to those that are no next hops.
#[inline(always)]
fn turn<F: Lookup, A: Addr<F>>(tables: &Tables<F>, addrs: &[A], out: &mut [Hop], deep: u64, numbers: bool) {
    arrive();
    // Nothing comes after the calls, so no registers are saved for them.
    if numbers && !tables.direct.load(Ordering::Relaxed) {
        number_to_word(tables, addrs, out, deep);
    } else if deep != 0 {
        finish(tables, addrs, out, deep);
    }
}

/// Puts next hops in the place of their numbers, and finishes.
#[cold]
#[inline(never)]
fn number_to_word<F: Lookup, A: Addr<F>>(tables: &Tables<F>, addrs: &[A], out: &mut [Hop], deep: u64) {
    for out in &mut *out {
        *out = NextHop::from_raw(tables.word(out.map_or(0, NextHop::raw)));
    }
    finish(tables, addrs, out, deep);
}

/// Answers the given lanes one by one.
#[cold]
#[inline(never)]
fn finish<F: Lookup, A: Addr<F>>(tables: &Tables<F>, addrs: &[A], out: &mut [Hop], mut deep: u64) {
    while deep != 0 {
        let lane = deep.trailing_zeros() as usize;
        deep &= deep - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        *out = one(tables, (*addr).into());
    }
}
