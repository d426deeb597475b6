//! The lookup loops, compiled twice on x86-64: for any CPU, and for those with POPCNT, BMI2 and AVX2.
//!
//! Unsafe here is the call of the second kind, allowed once the CPU was asked, and one gather of bytes.

use crate::NextHop;
use crate::mem::{Leaf, LinkRef, PackedRef, Roots};
use crate::tables::{ESCAPE_WORD, Tables, Width};
use crate::v4::{self, V4};
use crate::v6::{self, V6};

/// Addresses in flight at once.
const LANES: usize = 64;

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    /// POPCNT, BMI1, BMI2 and AVX2, all there.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// Proof that the CPU was asked.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Kernel {
    /// The best build this CPU can run.
    pub(crate) fn detect() -> Self {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        if std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("avx2")
        {
            return Self::Avx2(Avx2(()));
        }
        Self::Portable
    }
}

/// Runs `$body` in a function compiled for AVX2 where the tables say the CPU has it.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident $(<$param:ident: $bound:path>)?, $inner:ident,
     ($tables:ident: $ty:ty $(, $arg:ident: $arg_ty:ty)*) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name $(<$param: Copy + $bound>)? ($tables: $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            if let Kernel::Avx2(_) = $tables.kernel {
                #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
                fn fast $(<$param: Copy + $bound>)? ($tables: $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
                    $inner($tables $(, $arg)*)
                }
                // SAFETY: `Avx2` is only made where the CPU has the features.
                return unsafe { fast($tables $(, $arg)*) };
            }
            $inner($tables $(, $arg)*)
        }
    };
}

dispatch!(
    /// The longest match of one IPv4 address.
    v4_one, v4_one_inner, (tables: &Tables<V4>, addr: u32) -> Option<NextHop>
);
dispatch!(
    /// The longest matches of IPv4 addresses.
    v4_burst<A: Into<u32>>, v4_burst_inner, (tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>])
);
dispatch!(
    /// The longest match of one IPv6 address.
    v6_one, v6_one_inner, (tables: &Tables<V6>, addr: u128) -> Option<NextHop>
);
dispatch!(
    /// The longest matches of IPv6 addresses.
    v6_burst<A: Into<u128>>, v6_burst_inner, (tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>])
);

#[inline(always)]
fn v4_one_inner(tables: &Tables<V4>, addr: u32) -> Option<NextHop> {
    if let Some(bytes) = &tables.bytes {
        let byte = bytes.get(addr);
        if byte != u8::ESCAPE {
            return NextHop::from_raw(v4::resolve(tables, byte));
        }
    }
    NextHop::from_raw(walk(tables, addr))
}

#[inline(always)]
fn walk(tables: &Tables<V4>, addr: u32) -> u32 {
    match tables.width {
        Width::Byte => v4::walk::<u8>(tables, addr),
        Width::Short => v4::walk::<u16>(tables, addr),
        Width::Word => v4::walk::<u32>(tables, addr),
    }
}

#[inline(always)]
fn v4_burst_inner<A: Copy + Into<u32>>(tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>]) {
    for (addrs, out) in addrs.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut lanes = [0; LANES];
        for (lane, addr) in lanes.iter_mut().zip(addrs) {
            *lane = (*addr).into();
        }
        let lanes = &lanes[..addrs.len().min(out.len())];
        let out = &mut out[..lanes.len()];
        if tables.bytes.is_some() {
            let escapes = bytes_burst(tables, lanes, out);
            if escapes == 0 {
                continue;
            }
            if escapes <= 4 {
                walk_escapes(tables, lanes, out);
                continue;
            }
        }
        let escapes = match tables.width {
            Width::Byte => packed_burst::<u8>(tables, lanes, out),
            Width::Short => packed_burst::<u16>(tables, lanes, out),
            Width::Word => packed_burst::<u32>(tables, lanes, out),
        };
        if escapes {
            walk_escapes(tables, lanes, out);
        }
    }
}

/// Reads root words for all lanes, then blocks for all lanes. True if any lane leads deeper.
#[inline(always)]
fn packed_burst<L: Leaf>(tables: &Tables<V4>, lanes: &[u32], out: &mut [Option<NextHop>]) -> bool {
    let mut blocks = [PackedRef::default(); LANES];
    for (block, addr) in blocks.iter_mut().zip(lanes) {
        *block = tables.region.root(*addr);
    }
    let mut escapes = false;
    for ((addr, block), out) in lanes.iter().zip(&blocks).zip(out) {
        let word = v4::resolve(tables, tables.region.packed_leaf::<L>(*block, addr >> 8));
        escapes |= word == ESCAPE_WORD;
        *out = NextHop::from_raw(word);
    }
    escapes
}

/// Answers the lanes that lead deeper: those that hold [`ESCAPE_WORD`].
#[inline(always)]
fn walk_escapes(tables: &Tables<V4>, lanes: &[u32], out: &mut [Option<NextHop>]) {
    for (addr, out) in lanes.iter().zip(out) {
        if *out == NextHop::from_raw(ESCAPE_WORD) {
            *out = NextHop::from_raw(walk(tables, *addr));
        }
    }
}

/// Reads the byte per /24 for all lanes; answers how many of them hold [`ESCAPE_WORD`] now.
#[inline(always)]
fn bytes_burst(tables: &Tables<V4>, lanes: &[u32], out: &mut [Option<NextHop>]) -> usize {
    let Some(bytes) = &tables.bytes else { return lanes.len() };
    let (mut done, mut escapes) = (0, 0);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Kernel::Avx2(_) = tables.kernel {
        let eights = lanes.chunks_exact(8).zip(out.chunks_exact_mut(8));
        for (lanes, out) in eights {
            let mut words = [0; 8];
            // SAFETY: `Avx2` is only made where the CPU has the feature.
            escapes += unsafe { gather::eight(tables, bytes, lanes, &mut words) };
            for (out, word) in out.iter_mut().zip(words) {
                *out = NextHop::from_raw(word);
            }
            done += 8;
        }
    }
    for (addr, out) in lanes[done..].iter().zip(&mut out[done..]) {
        let word = v4::resolve(tables, bytes.get(*addr));
        escapes += usize::from(word == ESCAPE_WORD);
        *out = NextHop::from_raw(word);
    }
    escapes
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod gather {
    use core::arch::asm;

    use super::{ESCAPE_WORD, Tables, V4};
    use crate::mem::Bytes;

    /// The next hop words of eight addresses by their bytes; answers how many are [`ESCAPE_WORD`].
    ///
    /// Assembly, because the bytes and palette words are atomic: to the compiler this is sixteen relaxed loads.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn eight(tables: &Tables<V4>, bytes: &Bytes, lanes: &[u32], words: &mut [u32; 8]) -> usize {
        let Ok(lanes) = <&[u32; 8]>::try_from(lanes) else { return 0 };
        let escapes: u32;
        // SAFETY: run under Kernel::Avx2 only; eight addresses are read and eight words written; the byte
        // gather reads four bytes from a 24-bit offset, of which `Bytes` has that many plus three; the palette
        // gather reads words 0 to 255 of 256.
        unsafe {
            asm!(
                "vmovdqu {index}, [{lanes}]",
                "vpsrld {index}, {index}, 8",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpxor {byte}, {byte}, {byte}",
                "vpgatherdd {byte}, [{bytes} + {index}], {mask}",
                "vpslld {byte}, {byte}, 24",
                "vpsrld {byte}, {byte}, 24",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpxor {index}, {index}, {index}",
                "vpgatherdd {index}, [{palette} + 4*{byte}], {mask}",
                "vmovdqu [{words}], {index}",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpcmpeqd {mask}, {mask}, {index}",
                "vmovmskps {escapes:e}, {mask}",
                lanes = in(reg) lanes.as_ptr(),
                bytes = in(reg) bytes.base(),
                palette = in(reg) tables.palette.as_ptr(),
                words = in(reg) words.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                index = out(ymm_reg) _,
                byte = out(ymm_reg) _,
                mask = out(ymm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        const _: () = assert!(ESCAPE_WORD == u32::MAX);
        escapes.count_ones() as usize
    }
}

#[inline(always)]
fn v6_one_inner(tables: &Tables<V6>, addr: u128) -> Option<NextHop> {
    #[expect(clippy::cast_possible_truncation, reason = "the leading bits are wanted")]
    let (top, slot) = ((addr >> 96) as u32, (addr >> 104) as u8);
    let link = tables.region.page_entry(tables.region.root(top), slot);
    NextHop::from_raw(v6::walk_from(tables, link, addr, 1))
}

/// Link blocks every lane passes without asking whether it has arrived: down to the /48.
const ROUNDS: u32 = 4;

#[inline(always)]
fn v6_burst_inner<A: Copy + Into<u128>>(tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>]) {
    let region = &tables.region;
    for (addrs, out) in addrs.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut highs = [0_u64; LANES];
        let mut pages = [<V6 as Roots>::Block::default(); LANES];
        for ((addr, high), page) in addrs.iter().zip(&mut highs).zip(&mut pages) {
            #[expect(clippy::cast_possible_truncation, reason = "the leading bits are wanted")]
            let (leading, top) = (((*addr).into() >> 64) as u64, ((*addr).into() >> 96) as u32);
            *high = leading;
            *page = region.root(top);
        }
        let count = addrs.len().min(out.len());
        let (highs, pages, out) = (&highs[..count], &pages[..count], &mut out[..count]);
        let mut links = [LinkRef::default(); LANES];
        for ((high, page), link) in highs.iter().zip(pages).zip(&mut links) {
            #[expect(clippy::cast_possible_truncation, reason = "bits 16 to 23 are wanted")]
            let slot = (high >> 40) as u8;
            *link = region.page_entry(*page, slot);
        }
        for round in 0..ROUNDS {
            for (high, link) in highs.iter().zip(&mut links) {
                #[expect(clippy::cast_possible_truncation, reason = "a rank takes the slot modulo 64")]
                let slot = (high >> (34 - 6 * round)) as u32;
                *link = region.step(*link, slot);
            }
        }
        let mut arrived = true;
        for (link, out) in links.iter().zip(out.iter_mut()) {
            arrived &= region.is_leaf(*link);
            *out = NextHop::from_raw(region.leaf_word(*link));
        }
        if !arrived {
            for ((addr, link), out) in addrs.iter().zip(&links).zip(out) {
                if !region.is_leaf(*link) {
                    *out = NextHop::from_raw(v6::walk_from(tables, *link, (*addr).into(), 1 + ROUNDS as usize));
                }
            }
        }
    }
}
