//! Lanes of registers of 512 bits, for CPUs with AVX-512; see [`super::avx2`] for what is written how.
//!
//! A mask of ones comes from a general register: the compiler's `kxnor` of a mask register with itself waits for what was in it,
//! which may be the mask of a load under way.

use core::arch::asm;
use core::arch::x86_64::*;
use core::sync::atomic::AtomicU32;

use super::avx2::Avx2;
use crate::NextHop;
use crate::lookup::lanes::{Lanes, Mask, Vector};
use crate::mem::{Bytes, Leaf, Region, Roots};
use crate::v4::V4;
use crate::v6::V6;

/// Proof that the CPU was asked for AVX-512 F, VL and VPOPCNTDQ, and for what [`Avx2`] needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(Avx2);

impl Avx512 {
    pub(super) fn detect(avx2: Avx2) -> Option<Self> {
        let all = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vpopcntdq");
        all.then_some(Self(avx2))
    }
}

/// The CPU has that too.
impl From<Avx512> for Avx2 {
    fn from(Avx512(avx2): Avx512) -> Self {
        avx2
    }
}

/// Sixteen numbers of 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Words(__m512i);

/// Eight numbers of 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Longs(__m512i);

vector! {
    Words, u16, asked;
    not(a) Self(_mm512_xor_si512(a.0, _mm512_set1_epi32(-1)));
    impl Shl<u32> shl(a, n) Self(_mm512_sll_epi32(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Shr<u32> shr(a, n) Self(_mm512_srl_epi32(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Add<Self> add(a, b) Self(_mm512_add_epi32(a.0, b.0));
    impl BitAnd<Self> bitand(a, b) Self(_mm512_and_si512(a.0, b.0));
    impl BitOr<Self> bitor(a, b) Self(_mm512_or_si512(a.0, b.0));
    impl Shl<Self> shl(a, b) Self(shl_words(a.0, b.0));
    impl Shr<Self> shr(a, b) Self(shr_words(a.0, b.0));
    fn asked::count_ones(a: Self) -> Self = Self(_mm512_popcnt_epi32(a.0));
    fn asked::signs(a: Self) -> u16 = _mm512_cmplt_epi32_mask(a.0, _mm512_setzero_si512());
    fn asked::equal(a: Self, b: Self) -> u16 = _mm512_cmpeq_epi32_mask(a.0, b.0);
    fn anyway::bits(mask: u16) -> u64 = mask.into();
    fn asked::select(mask: u16, yes: Self, no: Self) -> Self = Self(_mm512_mask_blend_epi32(mask, no.0, yes.0));
}

vector! {
    Longs, u8, asked;
    not(a) Self(_mm512_xor_si512(a.0, _mm512_set1_epi32(-1)));
    impl Shl<u32> shl(a, n) Self(_mm512_sll_epi64(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Shr<u32> shr(a, n) Self(_mm512_srl_epi64(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Add<Self> add(a, b) Self(_mm512_add_epi64(a.0, b.0));
    impl BitAnd<Self> bitand(a, b) Self(_mm512_and_si512(a.0, b.0));
    impl BitOr<Self> bitor(a, b) Self(_mm512_or_si512(a.0, b.0));
    impl Shl<Self> shl(a, b) Self(shl_longs(a.0, b.0));
    impl Shr<Self> shr(a, b) Self(shr_longs(a.0, b.0));
    fn asked::count_ones(a: Self) -> Self = Self(_mm512_popcnt_epi64(a.0));
    fn asked::signs(a: Self) -> u8 = _mm512_cmplt_epi64_mask(a.0, _mm512_setzero_si512());
    fn asked::equal(a: Self, b: Self) -> u8 = _mm512_cmpeq_epi64_mask(a.0, b.0);
    fn anyway::bits(mask: u8) -> u64 = mask.into();
    fn asked::select(mask: u8, yes: Self, no: Self) -> Self = Self(_mm512_mask_blend_epi64(mask, no.0, yes.0));
}

/// Shifts each number by another. To the intrinsics the compiler adds a comparison of what they are shifted by.
macro_rules! shift {
    ($name:ident, $instruction:literal) => {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $name(a: __m512i, by: __m512i) -> __m512i {
            let out;
            // SAFETY: the CPU has the instruction.
            unsafe {
                asm!(
                    concat!($instruction, " {out}, {a}, {by}"),
                    out = lateout(zmm_reg) out,
                    a = in(zmm_reg) a,
                    by = in(zmm_reg) by,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            out
        }
    };
}

shift!(shl_words, "vpsllvd");
shift!(shr_words, "vpsrlvd");
shift!(shl_longs, "vpsllvq");
shift!(shr_longs, "vpsrlvq");

/// The same number everywhere: not from memory, where the compiler would put it. A load more is one of the next burst that
/// has to wait.
macro_rules! repeat {
    ($name:ident, $int:ty, $instruction:literal) => {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $name(number: $int) -> __m512i {
            if number == 0 {
                return _mm512_setzero_si512();
            }
            let out;
            // SAFETY: the CPU has the instruction.
            unsafe {
                asm!($instruction, out = lateout(zmm_reg) out, number = in(reg) number,
                    options(pure, nomem, nostack, preserves_flags));
            }
            out
        }
    };
}

repeat!(repeat_word, u32, "vpbroadcastd {out}, {number:e}");
repeat!(repeat_long, u64, "vpbroadcastq {out}, {number}");

#[inline]
#[target_feature(enable = "avx512f")]
fn put_words(words: __m512i, out: &mut [Option<NextHop>; 16]) {
    // SAFETY: there is room for sixteen words, and next hops may have any value.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) };
}

/// Writes the lower halves.
#[inline]
#[target_feature(enable = "avx512f")]
fn put_longs(longs: __m512i, out: &mut [Option<NextHop>; 8]) {
    let lowers = _mm512_cvtepi64_epi32(longs);
    // SAFETY: there is room for eight words, and next hops may have any value.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), lowers) };
}

/// Loads numbers, `$scale` times an index behind a base, where the mask says so; else they are those of `others`.
macro_rules! gather {
    ($name:ident, $instruction:literal, $scale:literal, $index:ident $in:ident, $out:ident $class:ident, $mask:ident) => {
        /// # Safety
        /// What is to be read lies there, and is only ever written as atomics.
        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        unsafe fn $name(base: *const u8, index: $index, mask: $mask, others: $out) -> $out {
            let mut out = others;
            // SAFETY: the caller has it that the places may be read.
            unsafe {
                asm!(
                    concat!($instruction, " {out}{{{mask}}}, [{base} + ", $scale, "*{index}]"),
                    out = inout($class) out,
                    base = in(reg) base,
                    index = in($in) index,
                    mask = inout(kreg) mask => _,
                    options(nostack, preserves_flags, readonly),
                );
            }
            out
        }
    };
}

gather!(words_by_bytes, "vpgatherdd", 1, __m512i zmm_reg, __m512i zmm_reg, u16);
gather!(half_by_words, "vpgatherqd", 4, __m512i zmm_reg, __m256i ymm_reg, u8);
gather!(longs_by_half, "vpgatherdq", 8, __m256i ymm_reg, __m512i zmm_reg, u8);
gather!(longs_by_longs, "vpgatherqq", 8, __m512i zmm_reg, __m512i zmm_reg, u8);

/// A mask of ones, of which the compiler does not know that it is one.
#[inline(always)]
fn all() -> u8 {
    let all: u32;
    // SAFETY: any CPU has the instruction.
    unsafe { asm!("mov {all:e}, -1", all = lateout(reg) all, options(pure, nomem, nostack, preserves_flags)) };
    all.to_le_bytes()[0]
}

/// Lets the middle quarters change places, as [`roots`] does.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_order(words: __m512i) -> __m512i {
    _mm512_shuffle_i64x2(words, words, 0xd8)
}

/// The root words of sixteen addresses, their lower and upper halves, and the addresses in that order.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn roots(region: &Region<V4>, addrs: __m512i) -> [__m512i; 3] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "there are at most 2^19 root words"
    )]
    let last = region.last_root() as i32;
    let index = _mm512_srli_epi32::<{ 32 - V4::ROOT_BITS }>(addrs);
    let index = _mm512_min_epu32(index, _mm512_set1_epi32(last));
    let (a, b) = (_mm512_castsi512_si256(index), _mm512_extracti64x4_epi64(index, 1));
    // In an order that shuffles within quarters part the halves. The middle quarters change places.
    let (firsts, seconds) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (base, zero) = (region.roots_base(), _mm512_setzero_si512());
    // SAFETY: indices have 19 bits and are not above the last one; each root word is read as one.
    let a = _mm512_castsi512_ps(unsafe { longs_by_half(base, firsts, all(), zero) });
    // SAFETY: as above.
    let b = _mm512_castsi512_ps(unsafe { longs_by_half(base, seconds, all(), zero) });
    let (lower, upper) = (_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    [_mm512_castps_si512(lower), _mm512_castps_si512(upper), in_order(addrs)]
}

/// The root words of addresses with these upper halves.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn pages(region: &Region<V6>, highs: __m512i) -> __m512i {
    let index = _mm512_srli_epi64::<{ 64 - V6::ROOT_BITS }>(highs);
    let (base, zero) = (region.roots_base(), _mm256_setzero_si256());
    // SAFETY: indices have 16 bits, and there are as many root words.
    _mm512_cvtepu32_epi64(unsafe { half_by_words(base, index, all(), zero) })
}

lanes!(
    Avx512;
    16 _mm512_setr_epi32 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;
    8 _mm512_setr_epi64 0 1 2 3 4 5 6 7
);
