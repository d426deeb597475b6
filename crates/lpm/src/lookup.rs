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
#[cfg(not(all(target_arch = "x86_64", feature = "std", not(miri))))]
pub(crate) use plain::Kernel;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
pub(crate) use x86::Kernel;

/// The lookups of a family.
pub(crate) trait Lookup: Addresses + Roots {
    /// The longest match of one address.
    fn one(tables: &Tables<Self>, addr: Self::Bits) -> Option<NextHop>;
    /// Whether the accelerator gave the longest matches of several.
    #[inline(always)]
    fn accelerated<K: Lanes, A: Copy + Into<Self::Bits>, const N: usize>(
        _: K,
        _: &Tables<Self>,
        _: &[A; N],
        _: &mut [Option<NextHop>; N],
    ) -> bool {
        false
    }
    /// The longest matches of several, each step for all before the next.
    fn chunk<K: Lanes, A: Copy + Into<Self::Bits>, const N: usize>(
        k: K,
        tables: &Tables<Self>,
        addrs: &[A; N],
        out: &mut [Option<NextHop>; N],
    );
}

impl Kernel {
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
        Self::all().find(|kernel| kernel.choice() == choice).ok_or_else(|| choice.needs().into())
    }
}

/// Compiles bursts for what a kernel may use, in chunks of these sizes. A whole burst of one is what drivers give, and goes without
/// detours.
macro_rules! compiled {
    ($module:ident $(#[$features:meta])?, $lanes:ty; $($count:literal $chunk:path),*) => {
        pub(super) mod $module {
            use super::*;

            $(#[$features])?
            pub(in crate::lookup) fn burst<F: Lookup, A: Copy + Into<F::Bits>>(
                k: $lanes, tables: &Tables<F>, addrs: &[A], out: &mut [Option<NextHop>],
            ) {
                $(if let Ok(addrs) = <&[A; $count]>::try_from(addrs) && let Some(out) = out.first_chunk_mut() {
                    return $chunk(k, tables, addrs, out);
                })*
                mixed(k, tables, addrs, out);
            }

            $(#[$features])?
            #[inline(never)]
            fn mixed<F: Lookup, A: Copy + Into<F::Bits>>(
                k: $lanes, tables: &Tables<F>, addrs: &[A], out: &mut [Option<NextHop>],
            ) {
                let count = addrs.len().min(out.len());
                let (addrs, out) = (&addrs[..count], &mut out[..count]);
                $(let (chunks, addrs) = addrs.as_chunks::<$count>();
                let (outs, out) = out.as_chunks_mut::<$count>();
                for (addrs, out) in chunks.iter().zip(outs) {
                    $chunk(k, tables, addrs, out);
                })*
                for (addr, out) in addrs.iter().zip(out) {
                    *out = one(tables, (*addr).into());
                }
            }

            $(#[$features])?
            #[inline(never)]
            pub(in crate::lookup) fn chunk<F: Lookup, A: Copy + Into<F::Bits>, const N: usize>(
                k: $lanes, tables: &Tables<F>, addrs: &[A; N], out: &mut [Option<NextHop>; N],
            ) {
                if !F::accelerated(k, tables, addrs, out) {
                    proper(k, tables, addrs, out);
                }
            }

            $(#[$features])?
            #[inline(never)]
            fn proper<F: Lookup, A: Copy + Into<F::Bits>, const N: usize>(
                k: $lanes, tables: &Tables<F>, addrs: &[A; N], out: &mut [Option<NextHop>; N],
            ) {
                F::chunk(k, tables, addrs, out);
            }
        }
    };
}
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
use compiled;

compiled!(portable, Plain; 8 chunk);

/// Where there is nothing but the code for any CPU.
#[cfg(not(all(target_arch = "x86_64", feature = "std", not(miri))))]
mod plain {
    use super::{Lookup, NextHop, Plain, Tables, portable};

    /// Which build of the loops this CPU can run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Kernel {
        Portable,
    }

    impl Kernel {
        pub(crate) fn all() -> impl Iterator<Item = Self> {
            core::iter::once(Self::Portable)
        }

        #[cfg(feature = "kernels")]
        pub(crate) fn choice(self) -> crate::kernels::Choice {
            crate::kernels::Choice::Portable
        }
    }

    #[inline]
    pub(crate) fn one<F: Lookup>(tables: &Tables<F>, addr: F::Bits) -> Option<NextHop> {
        F::one(tables, addr)
    }

    #[inline(always)]
    pub(crate) fn burst<F: Lookup, A: Copy + Into<F::Bits>>(
        tables: &Tables<F>,
        addrs: &[A],
        out: &mut [Option<NextHop>],
    ) {
        portable::burst(Plain, tables, addrs, out);
    }
}
#[cfg(not(all(target_arch = "x86_64", feature = "std", not(miri))))]
pub(crate) use plain::{burst, one};
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
pub(crate) use x86::{burst, one};

/// Sees to what leads deeper, by a bit for each lane, and, if there are `numbers`, to those that are no next hops.
#[inline(always)]
fn turn<F: Lookup, A: Copy + Into<F::Bits>>(
    tables: &Tables<F>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    deep: u64,
    numbers: bool,
) {
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
fn number_to_word<F: Lookup, A: Copy + Into<F::Bits>>(
    tables: &Tables<F>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    deep: u64,
) {
    for out in &mut *out {
        *out = NextHop::from_raw(tables.word(out.map_or(0, NextHop::raw)));
    }
    finish(tables, addrs, out, deep);
}

/// Answers the given lanes one by one.
#[cold]
#[inline(never)]
fn finish<F: Lookup, A: Copy + Into<F::Bits>>(
    tables: &Tables<F>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    mut deep: u64,
) {
    while deep != 0 {
        let lane = deep.trailing_zeros() as usize;
        deep &= deep - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        *out = one(tables, (*addr).into());
    }
}
