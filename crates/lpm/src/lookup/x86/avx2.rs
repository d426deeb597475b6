//! Lanes of registers of 256 bits, for CPUs with AVX2.
//!
//! Arithmetic is by intrinsics. Loads are one instruction of assembly each, because all that is read is atomic: to the compiler
//! it is as many relaxed loads. x86 keeps loads in order, so what is read is not older than what was read before.

use core::arch::asm;
use core::arch::x86_64::*;
use core::sync::atomic::AtomicU32;

use super::{Avx2, put};
use crate::lookup::lanes::{Lanes, Mask, Vector};
use crate::lookup::{Addr, Hop};
use crate::mem::{Bytes, Leaf, Region, Roots, View};
use crate::v4::V4;
use crate::v6::V6;

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
    fn asked::select(mask: __m256i, yes: Self, no: Self) -> Self = Self(_mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(no.0), _mm256_castsi256_ps(yes.0), _mm256_castsi256_ps(mask))));
    fn anyway::put(a: Self, out: &mut [Hop]) -> () = put::<_, 8>(a.0, out);
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
    fn asked::select(mask: __m256i, yes: Self, no: Self) -> Self = Self(_mm256_castpd_si256(
        _mm256_blendv_pd(_mm256_castsi256_pd(no.0), _mm256_castsi256_pd(yes.0), _mm256_castsi256_pd(mask))));
    fn asked::put(a: Self, out: &mut [Hop]) -> () = put::<_, 4>(lowers(a.0), out);
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

/// The lower halves.
#[inline]
#[target_feature(enable = "avx2")]
fn lowers(longs: __m256i) -> __m128i {
    let float = _mm_castsi128_ps;
    let (a, b) = (_mm256_castsi256_si128(longs), _mm256_extracti128_si256(longs, 1));
    _mm_castps_si128(_mm_shuffle_ps(float(a), float(b), 0x88))
}

gathers! {
    "avx2";
    words_by_bytes "vpgatherdd {out}, [{base} + {index}], {mask}", __m256i ymm_reg, __m256i ymm_reg, __m256i ymm_reg;
    half_by_words "vpgatherqd {out}, [{base} + 4*{index}], {mask}", __m256i ymm_reg, __m128i xmm_reg, __m128i xmm_reg;
    longs_by_half "vpgatherdq {out}, [{base} + 8*{index}], {mask}", __m128i xmm_reg, __m256i ymm_reg, __m256i ymm_reg;
    longs_by_longs "vpgatherqq {out}, [{base} + 8*{index}], {mask}", __m256i ymm_reg, __m256i ymm_reg, __m256i ymm_reg;
}

/// The root words of eight addresses, their lower and upper halves, and the addresses.
#[inline]
#[target_feature(enable = "avx2")]
fn roots(region: &Region<V4>, addrs: __m256i) -> [__m256i; 3] {
    let index = _mm256_srli_epi32::<{ 32 - V4::ROOT_BITS as i32 }>(addrs);
    // So that the halves come out in the order of addresses: those of 0, 1, 4, 5 and of 2, 3, 6, 7.
    let index =
        _mm256_permute4x64_epi64(_mm256_min_epu32(index, _mm256_set1_epi32(region.last_root().cast_signed())), 0xd8);
    let (base, all, zero) = (region.roots_base(), _mm256_set1_epi32(-1), _mm256_setzero_si256());
    let (firsts, seconds) = (_mm256_castsi256_si128(index), _mm256_extracti128_si256(index, 1));
    // SAFETY: indices have 19 bits and are not above the last one; each root word is read as one.
    let a = _mm256_castsi256_ps(unsafe { longs_by_half(base, firsts, all, zero) });
    // SAFETY: as above.
    let b = _mm256_castsi256_ps(unsafe { longs_by_half(base, seconds, all, zero) });
    let (lower, upper) = (_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
    [_mm256_castps_si256(lower), _mm256_castps_si256(upper), addrs]
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

lanes! {
    Avx2; 8 _mm256_setr_epi32 0 1 2 3 4 5 6 7; 4 _mm256_setr_epi64x 0 1 2 3;
    word(word) _mm256_set1_epi32(word.cast_signed());
    long(long) _mm256_set1_epi64x(long.cast_signed());
    in_order(words) words;
}
