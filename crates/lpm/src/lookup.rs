//! The lookup loops. What a lookup does is written once, in [`v4`] and [`v6`], over [`lanes`]: one address at a time, or
//! as many as registers have room for. It is compiled for any CPU, for those with POPCNT, for AVX2 and for AVX-512.
//!
//! Unsafe here are the calls of code for a CPU that was asked whether it can run it, and loads of several places at once.

#[macro_use]
mod lanes;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512;
mod v4;
mod v6;

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[expect(clippy::cast_possible_truncation, reason = "slots and lanes are few")]
mod tests;

use crate::NextHop;
use crate::mem::Leaf;
use crate::tables::{Tables, Width};
use crate::v4::V4;
use crate::v6::V6;
use lanes::Plain;

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    /// POPCNT, BMI1 and BMI2.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    Popcnt(Popcnt),
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    Avx2(avx2::Avx2),
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    Avx512(avx512::Avx512),
}

/// Proof that the CPU was asked for POPCNT, BMI1 and BMI2.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Popcnt(());

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
        Self::all().find(|kernel| kernel.choice() == choice).ok_or_else(|| {
            let needs = |choice| match choice {
                crate::kernels::Choice::Portable => "",
                crate::kernels::Choice::Popcnt => "popcnt, bmi1 or bmi2",
                crate::kernels::Choice::Avx2 => "avx2",
                crate::kernels::Choice::Avx512 => "avx512f, avx512vl or avx512vpopcntdq",
            };
            needs(choice).into()
        })
    }

    /// The name of a build.
    #[cfg(feature = "kernels")]
    pub(crate) fn choice(self) -> crate::kernels::Choice {
        match self {
            Self::Portable => crate::kernels::Choice::Portable,
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Self::Popcnt(_) => crate::kernels::Choice::Popcnt,
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Self::Avx2(_) => crate::kernels::Choice::Avx2,
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Self::Avx512(_) => crate::kernels::Choice::Avx512,
        }
    }

    /// The builds this CPU can run, the best last.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let has_popcnt = std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2");
        let popcnt = has_popcnt.then_some(Self::Popcnt(Popcnt(())));
        let wide = [avx2::Avx2::detect().map(Self::Avx2), avx512::Avx512::detect().map(Self::Avx512)];
        core::iter::once(Self::Portable).chain(popcnt).chain(wide.into_iter().flatten())
    }

    /// The builds this CPU can run.
    #[cfg(not(all(target_arch = "x86_64", feature = "std", not(miri))))]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Portable)
    }
}

/// Runs code that is compiled for POPCNT where the tables say the CPU has it, else for any CPU.
macro_rules! with_popcnt {
    ($(#[$doc:meta])* $name:ident, $inner:path, ($tables:ident: $ty:ty, $arg:ident: $arg_ty:ty) -> $ret:ty) => {
        $(#[$doc])*
        pub(crate) fn $name($tables: $ty, $arg: $arg_ty) -> $ret {
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            if $tables.kernel != Kernel::Portable {
                #[target_feature(enable = "popcnt,bmi1,bmi2")]
                fn fast($tables: $ty, $arg: $arg_ty) -> $ret {
                    $inner($tables, $arg)
                }
                // SAFETY: the other kernels are only made where the CPU has the features.
                return unsafe { fast($tables, $arg) };
            }
            $inner($tables, $arg)
        }
    };
}

/// The lookups of chunks, compiled for what a kernel may use. Each answers which addresses lead deeper, by a bit for each.
macro_rules! compiled {
    ($module:ident, $lanes:ty $(, #[$features:meta])?) => {
        mod $module {
            use super::{A4, A6, Leaf, NextHop, Tables, V4, V6, v4, v6};

            #[inline(never)]
            $(#[$features])?
            pub(super) fn bytes<A: A4, const N: usize>(
                k: $lanes, tables: &Tables<V4>, addrs: &[A; N], out: &mut [Option<NextHop>; N],
            ) -> u64 {
                v4::by_byte(k, tables, addrs, out)
            }

            #[inline(never)]
            $(#[$features])?
            pub(super) fn packed<A: A4, L: Leaf, const N: usize>(
                k: $lanes, tables: &Tables<V4>, addrs: &[A; N], out: &mut [Option<NextHop>; N],
            ) -> u64 {
                v4::packed::<_, A, L, N>(k, tables, addrs, out)
            }

            #[inline(never)]
            $(#[$features])?
            pub(super) fn nodes<A: A6, const N: usize>(
                k: $lanes, tables: &Tables<V6>, addrs: &[A; N], out: &mut [Option<NextHop>; N],
            ) -> u64 {
                v6::nodes(k, tables, addrs, out)
            }
        }
    };
}

compiled!(portable, super::Plain);
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
compiled!(popcnt, super::Plain, #[target_feature(enable = "popcnt,bmi1,bmi2")]);
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
compiled!(narrow, super::avx2::Avx2, #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]);
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
compiled!(
    wide,
    super::avx512::Avx512,
    #[target_feature(enable = "popcnt,bmi1,bmi2,avx2,avx512f,avx512vl,avx512vpopcntdq")]
);

/// Calls a function for the kernel of tables, with registers for several addresses, or for eight addresses after eight.
macro_rules! many {
    ($tables:ident, $name:ident::<$($generic:ty),*>($addrs:ident, $out:ident)) => {
        match $tables.kernel {
            // SAFETY: each kernel is only made where the CPU has what its functions are compiled for.
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Kernel::Avx2(k) => unsafe { narrow::$name::<$($generic,)* N>(k, $tables, $addrs, $out) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Kernel::Avx512(k) => unsafe { wide::$name::<$($generic,)* N>(k, $tables, $addrs, $out) },
            _ => eights::$name::<$($generic,)* N>($tables, $addrs, $out),
        }
    };
}

/// The same without registers for several.
macro_rules! eights {
    ($tables:ident, $name:ident::<$($generic:ty),*>($addrs:ident, $out:ident)) => {
        eights::$name::<$($generic,)* N>($tables, $addrs, $out)
    };
}

/// The same with the widest registers only.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
macro_rules! most {
    ($tables:ident, $name:ident::<$($generic:ty),*>($addrs:ident, $out:ident)) => {
        match $tables.kernel {
            // SAFETY: as above.
            Kernel::Avx512(k) => unsafe { wide::$name::<$($generic,)* N>(k, $tables, $addrs, $out) },
            _ => 0,
        }
    };
}

/// The same with registers that eight addresses fill.
macro_rules! few {
    ($tables:ident, $name:ident::<$($generic:ty),*>($addrs:ident, $out:ident)) => {
        match $tables.kernel {
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Kernel::Avx2(k) => unsafe { narrow::$name::<$($generic,)* N>(k, $tables, $addrs, $out) },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            Kernel::Avx512(k) => unsafe { narrow::$name::<$($generic,)* N>(k.avx2(), $tables, $addrs, $out) },
            _ => eights::$name::<$($generic,)* N>($tables, $addrs, $out),
        }
    };
}

/// The lookups of eight addresses after eight, without registers for several.
mod eights {
    use super::{A4, A6, Kernel, Leaf, NextHop, Plain, Tables, V4, V6, portable};

    macro_rules! eights {
        ($name:ident<$addr:ident $(, $leaf:ident)?>, $family:ident) => {
            #[inline(never)]
            pub(super) fn $name<A: $addr, $($leaf: Leaf,)? const N: usize>(
                tables: &Tables<$family>,
                addrs: &[A; N],
                out: &mut [Option<NextHop>; N],
            ) -> u64 {
                let mut deep = 0;
                for (at, (addrs, out)) in addrs.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0).enumerate() {
                    let eight = match tables.kernel {
                        Kernel::Portable => portable::$name::<A, $($leaf,)? 8>(Plain, tables, addrs, out),
                        // SAFETY: the other kernels are only made where the CPU has what the function is compiled for.
                        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
                        _ => unsafe { super::popcnt::$name::<A, $($leaf,)? 8>(Plain, tables, addrs, out) },
                    };
                    deep |= eight << (8 * at);
                }
                deep
            }
        };
    }

    eights!(bytes<A4>, V4);
    eights!(packed<A4, L>, V4);
    eights!(nodes<A6>, V6);
}

/// What an IPv4 address is given as.
pub(crate) trait A4: Copy + Into<u32> {}
impl<A: Copy + Into<u32>> A4 for A {}

/// What an IPv6 address is given as.
pub(crate) trait A6: Copy + Into<u128> {}
impl<A: Copy + Into<u128>> A6 for A {}

with_popcnt!(
    /// The longest match of one IPv4 address.
    #[inline]
    v4_one, v4::one, (tables: &Tables<V4>, addr: u32) -> Option<NextHop>
);
with_popcnt!(
    /// The longest match of one IPv6 address.
    #[inline(never)]
    v6_one, v6::one, (tables: &Tables<V6>, addr: u128) -> Option<NextHop>
);
/// Looks up chunks, by one of the macros above.
macro_rules! chunks {
    ($v4:ident, $v6:ident, $by:ident $by_nodes:ident) => {
        #[inline(always)]
        fn $v4<A: A4, const N: usize>(tables: &Tables<V4>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
            if tables.bytes.is_some() {
                let deep = $by!(tables, bytes::<A>(addrs, out));
                if deep == 0 || v4::are_few(deep, N) {
                    return v4::turn(tables, addrs, out, deep, true);
                }
            }
            let deep = match tables.width {
                Width::Byte => $by!(tables, packed::<A, u8>(addrs, out)),
                Width::Short => $by!(tables, packed::<A, u16>(addrs, out)),
                Width::Word => $by!(tables, packed::<A, u32>(addrs, out)),
            };
            v4::turn(tables, addrs, out, deep, tables.width == Width::Byte);
        }

        #[inline(always)]
        fn $v6<A: A6, const N: usize>(tables: &Tables<V6>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
            let deep = $by_nodes!(tables, nodes::<A>(addrs, out));
            v6::turn(tables, addrs, out, deep);
        }
    };
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
chunks!(v4_64, v6_64, most most);
chunks!(v4_32, v6_32, many many);
// Eight addresses wait for less one beside the other than in a register.
chunks!(v4_8, v6_8, few eights);

/// Splits a burst into chunks of 64, 32 and 8 and single addresses; one of 32 is what drivers give, and goes without detours.
macro_rules! bursts {
    ($(#[$doc:meta])* $name:ident, $rest:ident, $family:ident, $bits:ty, $n64:ident $n32:ident $n8:ident $one:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<A: Copy + Into<$bits>>(tables: &Tables<$family>, addrs: &[A], out: &mut [Option<NextHop>]) {
            match (<&[A; 32]>::try_from(addrs).ok(), out.first_chunk_mut::<32>()) {
                (Some(addrs), Some(out)) => $n32(tables, addrs, out),
                _ => $rest(tables, addrs, out),
            }
        }

        #[inline(never)]
        fn $rest<A: Copy + Into<$bits>>(tables: &Tables<$family>, addrs: &[A], out: &mut [Option<NextHop>]) {
            let count = addrs.len().min(out.len());
            let (addrs, out) = (&addrs[..count], &mut out[..count]);
            macro_rules! each {
                ($count:literal, $addrs:ident, $out:ident, $chunk:ident) => {{
                    let (chunks, rest) = $addrs.as_chunks::<$count>();
                    let (outs, rest_out) = $out.as_chunks_mut::<$count>();
                    for (addrs, out) in chunks.iter().zip(outs) {
                        $chunk(tables, addrs, out);
                    }
                    (rest, rest_out)
                }};
            }
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            let (addrs, out) = if let Kernel::Avx512(_) = tables.kernel {
                each!(64, addrs, out, $n64)
            } else {
                (addrs, out)
            };
            let (addrs, out) = each!(32, addrs, out, $n32);
            let (addrs, out) = each!(8, addrs, out, $n8);
            for (addr, out) in addrs.iter().zip(out) {
                *out = $one(tables, (*addr).into());
            }
        }
    };
}

bursts!(
    /// The longest matches of IPv4 addresses.
    v4_burst, v4_rest, V4, u32, v4_64 v4_32 v4_8 v4_one
);
bursts!(
    /// The longest matches of IPv6 addresses.
    v6_burst, v6_rest, V6, u128, v6_64 v6_32 v6_8 v6_one
);
