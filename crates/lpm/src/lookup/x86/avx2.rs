//! Lanes of registers of 256 bits, for CPUs with AVX2.
//!
//! Arithmetic is by intrinsics. Loads are one instruction of assembly each, because all that is read is atomic: to the compiler
//! it is as many relaxed loads. x86 keeps loads in order, so what is read is not older than what was read before.

use core::arch::asm;
use core::arch::x86_64::*;
use core::sync::atomic::AtomicU32;

use super::Popcnt;
use crate::NextHop;
use crate::lookup::lanes::{Lanes, Mask, Vector};
use crate::mem::{Bytes, Leaf, Region, Roots};
use crate::v4::V4;
use crate::v6::V6;

/// Proof that the CPU was asked for POPCNT, BMI1, BMI2 and AVX2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect(_: Popcnt) -> Option<Self> {
        std::is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

/// Eight numbers of 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Words(__m256i);

/// Four numbers of 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Longs(__m256i);

vector! {
    Words, __m256i, asked;
    not(a) Self(_mm256_xor_si256(a.0, _mm256_set1_epi32(-1)));
    impl Shl<u32> shl(a, n) Self(_mm256_sll_epi32(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Shr<u32> shr(a, n) Self(_mm256_srl_epi32(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Add<Self> add(a, b) Self(_mm256_add_epi32(a.0, b.0));
    impl BitAnd<Self> bitand(a, b) Self(_mm256_and_si256(a.0, b.0));
    impl BitOr<Self> bitor(a, b) Self(_mm256_or_si256(a.0, b.0));
    impl Shl<Self> shl(a, b) Self(_mm256_sllv_epi32(a.0, b.0));
    impl Shr<Self> shr(a, b) Self(_mm256_srlv_epi32(a.0, b.0));
    fn asked::count_ones(a: Self) -> Self = Self(count_words(a.0));
    fn anyway::signs(a: Self) -> __m256i = a.0;
    fn asked::equal(a: Self, b: Self) -> __m256i = _mm256_cmpeq_epi32(a.0, b.0);
    fn asked::bits(mask: __m256i) -> u64 = _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u64;
    fn asked::select(mask: __m256i, yes: Self, no: Self) -> Self = Self(blend_words(mask, yes.0, no.0));
}

vector! {
    Longs, __m256i, asked;
    not(a) Self(_mm256_xor_si256(a.0, _mm256_set1_epi32(-1)));
    impl Shl<u32> shl(a, n) Self(_mm256_sll_epi64(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Shr<u32> shr(a, n) Self(_mm256_srl_epi64(a.0, _mm_cvtsi32_si128(n.cast_signed())));
    impl Add<Self> add(a, b) Self(_mm256_add_epi64(a.0, b.0));
    impl BitAnd<Self> bitand(a, b) Self(_mm256_and_si256(a.0, b.0));
    impl BitOr<Self> bitor(a, b) Self(_mm256_or_si256(a.0, b.0));
    impl Shl<Self> shl(a, b) Self(_mm256_sllv_epi64(a.0, b.0));
    impl Shr<Self> shr(a, b) Self(_mm256_srlv_epi64(a.0, b.0));
    fn asked::count_ones(a: Self) -> Self = Self(_mm256_sad_epu8(count_bytes(a.0), _mm256_setzero_si256()));
    fn anyway::signs(a: Self) -> __m256i = a.0;
    fn asked::equal(a: Self, b: Self) -> __m256i = _mm256_cmpeq_epi64(a.0, b.0);
    fn asked::bits(mask: __m256i) -> u64 = _mm256_movemask_pd(_mm256_castsi256_pd(mask)) as u64;
    fn asked::select(mask: __m256i, yes: Self, no: Self) -> Self = Self(blend_longs(mask, yes.0, no.0));
}

#[inline]
#[target_feature(enable = "avx2")]
fn blend_words(mask: __m256i, yes: __m256i, no: __m256i) -> __m256i {
    let float = _mm256_castsi256_ps;
    _mm256_castps_si256(_mm256_blendv_ps(float(no), float(yes), float(mask)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn blend_longs(mask: __m256i, yes: __m256i, no: __m256i) -> __m256i {
    let float = _mm256_castsi256_pd;
    _mm256_castpd_si256(_mm256_blendv_pd(float(no), float(yes), float(mask)))
}

/// How many bits of each byte are set.
#[inline]
#[target_feature(enable = "avx2")]
fn count_bytes(a: __m256i) -> __m256i {
    let bits = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let half = _mm256_set1_epi8(15);
    let upper = _mm256_and_si256(_mm256_srli_epi16(a, 4), half);
    let lower = _mm256_and_si256(a, half);
    _mm256_add_epi8(_mm256_shuffle_epi8(bits, upper), _mm256_shuffle_epi8(bits, lower))
}

/// How many bits of each word are set.
#[inline]
#[target_feature(enable = "avx2")]
fn count_words(a: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(count_bytes(a), _mm256_set1_epi8(1));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn repeat_word(word: u32) -> __m256i {
    _mm256_set1_epi32(word.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
fn repeat_long(long: u64) -> __m256i {
    _mm256_set1_epi64x(long.cast_signed())
}

#[inline]
#[target_feature(enable = "avx2")]
fn put_words(words: __m256i, out: &mut [Option<NextHop>; 8]) {
    // SAFETY: there is room for eight words, and next hops may have any value.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), words) };
}

/// Writes the lower halves.
#[inline]
#[target_feature(enable = "avx2")]
fn put_longs(longs: __m256i, out: &mut [Option<NextHop>; 4]) {
    let float = _mm_castsi128_ps;
    let (a, b) = (_mm256_castsi256_si128(longs), _mm256_extracti128_si256(longs, 1));
    let lowers = _mm_castps_si128(_mm_shuffle_ps(float(a), float(b), 0x88));
    // SAFETY: there is room for four words, and next hops may have any value.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), lowers) };
}

/// Loads numbers, `$scale` times an index behind a base, where the mask has its sign; else they are those of `others`.
macro_rules! gather {
    ($name:ident, $instruction:literal, $scale:literal, $index:ident $in:ident, $out:ident $class:ident) => {
        /// # Safety
        /// What is to be read lies there, and is only ever written as atomics.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(base: *const u8, index: $index, mask: $out, others: $out) -> $out {
            let mut out = others;
            // SAFETY: the caller has it that the places may be read.
            unsafe {
                asm!(
                    concat!($instruction, " {out}, [{base} + ", $scale, "*{index}], {mask}"),
                    out = inout($class) out,
                    base = in(reg) base,
                    index = in($in) index,
                    mask = inout($class) mask => _,
                    options(nostack, preserves_flags, readonly),
                );
            }
            out
        }
    };
}

gather!(words_by_bytes, "vpgatherdd", 1, __m256i ymm_reg, __m256i ymm_reg);
gather!(half_by_words, "vpgatherqd", 4, __m256i ymm_reg, __m128i xmm_reg);
gather!(longs_by_half, "vpgatherdq", 8, __m128i xmm_reg, __m256i ymm_reg);
gather!(longs_by_longs, "vpgatherqq", 8, __m256i ymm_reg, __m256i ymm_reg);

/// The root words of eight addresses, their lower and upper halves, and the addresses.
#[inline]
#[target_feature(enable = "avx2")]
fn roots(region: &Region<V4>, addrs: __m256i) -> [__m256i; 3] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "there are at most 2^19 root words"
    )]
    let last = region.last_root() as i32;
    let index = _mm256_srli_epi32::<{ 32 - V4::ROOT_BITS as i32 }>(addrs);
    // So that the halves come out in the order of addresses: those of 0, 1, 4, 5 and of 2, 3, 6, 7.
    let index = _mm256_permute4x64_epi64(_mm256_min_epu32(index, _mm256_set1_epi32(last)), 0xd8);
    let (base, all, zero) = (region.roots_base(), _mm256_set1_epi32(-1), _mm256_setzero_si256());
    let (firsts, seconds) = (_mm256_castsi256_si128(index), _mm256_extracti128_si256(index, 1));
    // SAFETY: indices have 19 bits and are not above the last one; each root word is read as one.
    let a = _mm256_castsi256_ps(unsafe { longs_by_half(base, firsts, all, zero) });
    // SAFETY: as above.
    let b = _mm256_castsi256_ps(unsafe { longs_by_half(base, seconds, all, zero) });
    let (lower, upper) = (_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
    [_mm256_castps_si256(lower), _mm256_castps_si256(upper), addrs]
}

#[inline]
#[target_feature(enable = "avx2")]
fn in_order(words: __m256i) -> __m256i {
    words
}

/// The root words of addresses with these upper halves.
#[inline]
#[target_feature(enable = "avx2")]
fn pages(region: &Region<V6>, highs: __m256i) -> __m256i {
    let index = _mm256_srli_epi64::<{ 64 - V6::ROOT_BITS as i32 }>(highs);
    let (base, all, zero) = (region.roots_base(), _mm_set1_epi32(-1), _mm_setzero_si128());
    // SAFETY: indices have 16 bits, and there are as many root words.
    _mm256_cvtepu32_epi64(unsafe { half_by_words(base, index, all, zero) })
}

lanes!(Avx2; 8 _mm256_setr_epi32 0 1 2 3 4 5 6 7; 4 _mm256_setr_epi64x 0 1 2 3);
