//! The builds for x86-64, and which of them the CPU can run.

mod avx2;
mod avx512;

use super::lanes::Plain;
use super::{Lookup, compiled, portable};
use crate::NextHop;
use crate::tables::Tables;
use avx2::Avx2;
use avx512::Avx512;

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    /// POPCNT, BMI1 and BMI2.
    Popcnt(Popcnt),
    Avx2(Avx2),
    Avx512(Avx512),
}

/// Proof that the CPU was asked for POPCNT, BMI1 and BMI2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Popcnt(());

impl Kernel {
    /// The name of a build.
    #[cfg(feature = "kernels")]
    pub(crate) fn choice(self) -> crate::kernels::Choice {
        match self {
            Self::Portable => crate::kernels::Choice::Portable,
            Self::Popcnt(_) => crate::kernels::Choice::Popcnt,
            Self::Avx2(_) => crate::kernels::Choice::Avx2,
            Self::Avx512(_) => crate::kernels::Choice::Avx512,
        }
    }

    /// The builds this CPU can run, the best last.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let has_popcnt = std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2");
        let popcnt = has_popcnt.then_some(Popcnt(()));
        let avx2 = popcnt.and_then(Avx2::detect);
        let avx512 = avx2.and_then(Avx512::detect);
        let better = [popcnt.map(Self::Popcnt), avx2.map(Self::Avx2), avx512.map(Self::Avx512)];
        core::iter::once(Self::Portable).chain(better.into_iter().flatten())
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
fn eight<F: Lookup, A: Copy + Into<F::Bits>>(
    k: impl Into<Avx2>,
    tables: &Tables<F>,
    addrs: &[A; 8],
    out: &mut [Option<NextHop>; 8],
) {
    if size_of::<F::Bits>() == 4 {
        narrow::chunk(k.into(), tables, addrs, out);
    } else {
        popcnt::chunk(Plain, tables, addrs, out);
    }
}

/// The longest matches of as many addresses as there is room for.
#[inline(always)]
pub(crate) fn burst<F: Lookup, A: Copy + Into<F::Bits>>(tables: &Tables<F>, addrs: &[A], out: &mut [Option<NextHop>]) {
    match tables.kernel {
        Kernel::Portable => portable::burst(Plain, tables, addrs, out),
        // SAFETY: each of the other kernels is only made where the CPU has what its functions are compiled for.
        Kernel::Popcnt(_) => unsafe { popcnt::burst(Plain, tables, addrs, out) },
        // SAFETY: as above.
        Kernel::Avx2(k) => unsafe { narrow::burst(k, tables, addrs, out) },
        // SAFETY: as above.
        Kernel::Avx512(k) => unsafe { wide::burst(k, tables, addrs, out) },
    }
}

/// The longest match of one address.
#[inline(never)]
pub(crate) fn one<F: Lookup>(tables: &Tables<F>, addr: F::Bits) -> Option<NextHop> {
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn fast<F: Lookup>(tables: &Tables<F>, addr: F::Bits) -> Option<NextHop> {
        F::one(tables, addr)
    }
    if tables.kernel == Kernel::Portable {
        return F::one(tables, addr);
    }
    // SAFETY: the other kernels are only made where the CPU has the features.
    unsafe { fast(tables, addr) }
}
