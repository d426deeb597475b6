//! The lookup loops, compiled twice on x86-64: for any CPU, and for those with POPCNT, BMI2 and AVX2.
//!
//! Unsafe here is the call of the second kind, allowed once the CPU was asked, and one gather of bytes.

use crate::NextHop;
use crate::mem::{Bytes, Leaf, LinkRef, PackedRef, arrive};
use crate::tables::{ESCAPE_WORD, Tables, Width};
use crate::v4::{self, V4, word_of};
use crate::v6::{self, V6};

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    /// POPCNT, BMI1, BMI2 and AVX2, all there.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    Avx2(Avx2),
}

/// Proof that the CPU was asked.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
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
        pub(crate) fn $name $(<$param: Copy + $bound>)? ($tables: $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
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
    #[inline]
    v4_one, v4_one_inner, (tables: &Tables<V4>, addr: u32) -> Option<NextHop>
);
dispatch!(
    /// The longest matches of IPv4 addresses.
    #[inline]
    v4_burst<A: Into<u32>>, v4_burst_inner, (tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>])
);
dispatch!(
    /// Answers the lanes of a chunk that lead beyond the /24.
    #[cold]
    v4_escapes<A: Into<u32>>, v4_escapes_inner,
    (tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>], lanes: u32)
);
dispatch!(
    /// Answers the lanes of a chunk that lead beyond the /48.
    #[cold]
    v6_walk_on<A: Into<u128>>, v6_walk_on_inner,
    (tables: &Tables<V6>, addrs: &[A], links: &[LinkRef], out: &mut [Option<NextHop>])
);
dispatch!(
    /// The longest match of one IPv6 address.
    #[inline]
    v6_one, v6_one_inner, (tables: &Tables<V6>, addr: u128) -> Option<NextHop>
);
dispatch!(
    /// The longest matches of IPv6 addresses.
    #[inline]
    v6_burst<A: Into<u128>>, v6_burst_inner, (tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>])
);

#[inline(always)]
fn v4_one_inner(tables: &Tables<V4>, addr: u32) -> Option<NextHop> {
    if let Some(bytes) = &tables.bytes {
        let byte = bytes.get(addr);
        arrive();
        if byte != u8::ESCAPE {
            return NextHop::from_raw(word_of(&tables.palette, byte));
        }
    }
    NextHop::from_raw(v4::walk(tables, addr))
}

/// Splits a burst into chunks of 32 and 8 and single addresses.
macro_rules! in_chunks {
    ($tables:expr, $addrs:expr, $out:expr, $chunk:ident, $one:ident) => {
        let count = $addrs.len().min($out.len());
        let (addrs, rest) = $addrs[..count].as_chunks::<32>();
        let (out, rest_out) = $out[..count].as_chunks_mut::<32>();
        for (addrs, out) in addrs.iter().zip(out) {
            $chunk($tables, addrs, out);
        }
        let (addrs, rest) = rest.as_chunks::<8>();
        let (out, rest_out) = rest_out.as_chunks_mut::<8>();
        for (addrs, out) in addrs.iter().zip(out) {
            $chunk($tables, addrs, out);
        }
        for (addr, out) in rest.iter().zip(rest_out) {
            *out = $one($tables, (*addr).into());
        }
    };
}

#[inline(always)]
fn v4_burst_inner<A: Copy + Into<u32>>(tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>]) {
    in_chunks!(tables, addrs, out, v4_chunk, v4_one_inner);
}

#[inline(always)]
fn v4_chunk<A: Copy + Into<u32>, const N: usize>(tables: &Tables<V4>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
    if let Some(bytes) = &tables.bytes {
        let escapes = bytes_chunk(tables, bytes, addrs, out);
        // Few lanes are answered one by one, many together.
        if escapes.count_ones() as usize * 8 <= N {
            if escapes != 0 {
                v4_escapes(tables, addrs, out, escapes);
            }
            return;
        }
    }
    let escapes = match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => packed_chunk(tables, addrs, out, |leaf: u8| word_of(&tables.palette, leaf)),
        (Width::Short, Some(palette)) => packed_chunk(tables, addrs, out, |leaf: u16| word_of(palette, leaf)),
        (Width::Short, None) => false,
        (Width::Word, _) => packed_chunk(tables, addrs, out, |leaf: u32| leaf),
    };
    if escapes {
        v4_escapes(tables, addrs, out, u32::MAX);
    }
}

/// Reads root words for all lanes, then blocks for all lanes; answers whether any holds [`ESCAPE_WORD`] now.
#[inline(always)]
fn packed_chunk<L: Leaf, A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
    word: impl Fn(L) -> u32,
) -> bool {
    let mut blocks = [PackedRef::default(); N];
    for (block, addr) in blocks.iter_mut().zip(addrs) {
        *block = tables.region.root((*addr).into());
    }
    arrive();
    let mut escapes = false;
    for ((addr, block), out) in addrs.iter().zip(&blocks).zip(out) {
        let word = word(tables.region.packed_leaf::<L>(*block, (*addr).into() >> 8));
        escapes |= word == ESCAPE_WORD;
        *out = NextHop::from_raw(word);
    }
    escapes
}

/// Answers those of the given lanes that lead deeper: they hold [`ESCAPE_WORD`].
#[inline(always)]
fn v4_escapes_inner<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    mut lanes: u32,
) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        if *out == NextHop::from_raw(ESCAPE_WORD) {
            *out = NextHop::from_raw(v4::walk(tables, (*addr).into()));
        }
    }
}

/// Reads the byte per /24 for all lanes; answers which of them hold [`ESCAPE_WORD`] now.
#[inline(always)]
fn bytes_chunk<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    bytes: &Bytes,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
) -> u32 {
    let mut escapes = 0;
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if let Kernel::Avx2(_) = tables.kernel {
        let eights = addrs.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0);
        for (index, (addrs, out)) in eights.enumerate() {
            // SAFETY: `Avx2` is only made where the CPU has the feature.
            let mask = unsafe { gather::eight(tables, bytes, addrs.map(Into::into), out) };
            escapes |= mask << (8 * index);
        }
        return escapes;
    }
    let bytes = addrs.map(|addr| bytes.get(addr.into()));
    arrive();
    for (lane, (byte, out)) in bytes.iter().zip(out).enumerate() {
        let word = word_of(&tables.palette, *byte);
        escapes |= u32::from(word == ESCAPE_WORD) << lane;
        *out = NextHop::from_raw(word);
    }
    escapes
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod gather {
    use core::arch::asm;
    use core::arch::x86_64::_mm256_setr_epi32;

    use super::{Bytes, ESCAPE_WORD, Tables, V4};
    use crate::NextHop;

    /// The next hops of eight addresses by their bytes; answers which are [`ESCAPE_WORD`].
    ///
    /// Assembly, because bytes and palette words are atomic: to the compiler this is sixteen relaxed loads.
    /// x86 keeps loads in order, so the words are not older than the bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn eight(tables: &Tables<V4>, bytes: &Bytes, addrs: [u32; 8], out: &mut [Option<NextHop>; 8]) -> u32 {
        let [a, b, c, d, e, f, g, h] = addrs.map(u32::cast_signed);
        let addrs = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
        let escapes: u32;
        // SAFETY: eight words are written to `out`, whose elements have that size and any value; the byte gather
        // reads four bytes from a 24-bit offset, of which `Bytes` has that many plus three; the palette gather
        // reads words 0 to 255 of 256.
        unsafe {
            asm!(
                "vpsrld {index}, {addrs}, 8",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpxor {byte}, {byte}, {byte}",
                "vpgatherdd {byte}, [{bytes} + {index}], {mask}",
                "vpslld {byte}, {byte}, 24",
                "vpsrld {byte}, {byte}, 24",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpxor {index}, {index}, {index}",
                "vpgatherdd {index}, [{palette} + 4*{byte}], {mask}",
                "vmovdqu [{out}], {index}",
                "vpcmpeqd {mask}, {mask}, {mask}",
                "vpcmpeqd {mask}, {mask}, {index}",
                "vmovmskps {escapes:e}, {mask}",
                addrs = in(ymm_reg) addrs,
                bytes = in(reg) bytes.base(),
                palette = in(reg) tables.palette.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                index = out(ymm_reg) _,
                byte = out(ymm_reg) _,
                mask = out(ymm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        const _: () = assert!(ESCAPE_WORD == u32::MAX && size_of::<Option<NextHop>>() == 4);
        escapes
    }
}

#[inline(always)]
fn v6_one_inner(tables: &Tables<V6>, addr: u128) -> Option<NextHop> {
    #[expect(clippy::cast_possible_truncation, reason = "the leading bits are wanted")]
    let (top, slot) = ((addr >> 96) as u32, (addr >> 104) as u8);
    let page = tables.region.root(top);
    arrive();
    let link = tables.region.page_entry(page, slot);
    NextHop::from_raw(v6::walk_from(tables, link, addr, 1))
}

/// Link blocks every lane passes without asking whether it has arrived: down to the /48.
const ROUNDS: u32 = 4;

#[inline(always)]
fn v6_burst_inner<A: Copy + Into<u128>>(tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>]) {
    in_chunks!(tables, addrs, out, v6_chunk, v6_one_inner);
}

#[inline(always)]
fn v6_chunk<A: Copy + Into<u128>, const N: usize>(tables: &Tables<V6>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
    let region = &tables.region;
    let highs = addrs.map(|addr| (addr.into() >> 64) as u64);
    let pages = highs.map(|high| region.root((high >> 32) as u32));
    arrive();
    let mut links = [LinkRef::default(); N];
    for ((high, page), link) in highs.iter().zip(pages).zip(&mut links) {
        #[expect(clippy::cast_possible_truncation, reason = "bits 16 to 23 are wanted")]
        let slot = (high >> 40) as u8;
        *link = region.page_entry(page, slot);
    }
    arrive();
    for round in 0..ROUNDS {
        for (high, link) in highs.iter().zip(&mut links) {
            #[expect(clippy::cast_possible_truncation, reason = "a rank takes the slot modulo 64")]
            let slot = (high >> (34 - 6 * round)) as u32;
            *link = region.step(*link, slot);
        }
        arrive();
    }
    let mut arrived = true;
    for (link, out) in links.iter().zip(out.iter_mut()) {
        arrived &= region.is_leaf(*link);
        *out = NextHop::from_raw(region.leaf_word(*link));
    }
    if !arrived {
        v6_walk_on(tables, addrs, &links, out);
    }
}

/// Answers the lanes that have not arrived at a leaf after [`ROUNDS`].
#[inline(always)]
fn v6_walk_on_inner<A: Copy + Into<u128>>(
    tables: &Tables<V6>,
    addrs: &[A],
    links: &[LinkRef],
    out: &mut [Option<NextHop>],
) {
    for ((addr, link), out) in addrs.iter().zip(links).zip(out) {
        if !tables.region.is_leaf(*link) {
            *out = NextHop::from_raw(v6::walk_from(tables, *link, (*addr).into(), 1 + ROUNDS as usize));
        }
    }
}
