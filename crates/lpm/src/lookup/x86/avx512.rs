//! Lanes of registers of 512 bits, for CPUs with AVX-512; see [`super::avx2`] for what is written how.
//!
//! A mask of ones comes from a general register: the compiler's `kxnor` of a mask register with itself waits for what was in it,
//! which may be the mask of a load under way.

use core::arch::asm;
use core::arch::x86_64::*;
use core::sync::atomic::AtomicU32;

use super::{Avx512, put};
use crate::lookup::lanes::{Lanes, Mask, Vector};
use crate::lookup::{Addr, Hop};
use crate::mem::{Bytes, Leaf, Region, Roots, View};
use crate::v4::V4;
use crate::v6::V6;

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
    fn anyway::put(a: Self, out: &mut [Hop]) -> () = put::<_, 16>(a.0, out);
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
    fn asked::put(a: Self, out: &mut [Hop]) -> () = put::<_, 8>(_mm512_cvtepi64_epi32(a.0), out);
}

/// What is one instruction, where the compiler would take others. Shifts of each number by another: to the intrinsics it adds a
/// comparison of what they are shifted by. The same number everywhere: it would take that from memory, and a load more is one of the
/// next burst that has to wait. A mask: it would know that it is one of ones.
macro_rules! instructions {
    ($(fn $name:ident($($arg:ident: $class:ident $ty:ty),*) -> $result:ident $ret:ty = $template:literal;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $name($($arg: $ty),*) -> $ret {
            let out;
            // SAFETY: the CPU has the instruction, which does nothing but set the register.
            unsafe {
                asm!(
                    $template,
                    out = lateout($result) out,
                    $($arg = in($class) $arg,)*
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            out
        }
    )*};
}

instructions! {
    fn shl_words(a: zmm_reg __m512i, by: zmm_reg __m512i) -> zmm_reg __m512i = "vpsllvd {out}, {a}, {by}";
    fn shr_words(a: zmm_reg __m512i, by: zmm_reg __m512i) -> zmm_reg __m512i = "vpsrlvd {out}, {a}, {by}";
    fn shl_longs(a: zmm_reg __m512i, by: zmm_reg __m512i) -> zmm_reg __m512i = "vpsllvq {out}, {a}, {by}";
    fn shr_longs(a: zmm_reg __m512i, by: zmm_reg __m512i) -> zmm_reg __m512i = "vpsrlvq {out}, {a}, {by}";
    fn repeat_word(number: reg u32) -> zmm_reg __m512i = "vpbroadcastd {out}, {number:e}";
    fn repeat_long(number: reg u64) -> zmm_reg __m512i = "vpbroadcastq {out}, {number}";
    fn ones() -> reg u32 = "mov {out:e}, -1";
}

/// A mask of ones.
#[inline]
#[target_feature(enable = "avx512f")]
fn all() -> u8 {
    ones().to_le_bytes()[0]
}

gathers! {
    "avx512f,avx512vl";
    words_by_bytes "vpgatherdd {out}{{{mask}}}, [{base} + {index}]", __m512i zmm_reg, __m512i zmm_reg, u16 kreg;
    half_by_words "vpgatherqd {out}{{{mask}}}, [{base} + 4*{index}]", __m512i zmm_reg, __m256i ymm_reg, u8 kreg;
    longs_by_half "vpgatherdq {out}{{{mask}}}, [{base} + 8*{index}]", __m256i ymm_reg, __m512i zmm_reg, u8 kreg;
    longs_by_longs "vpgatherqq {out}{{{mask}}}, [{base} + 8*{index}]", __m512i zmm_reg, __m512i zmm_reg, u8 kreg;
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
    let index = _mm512_srli_epi32::<{ 32 - V4::ROOT_BITS }>(addrs);
    let index = _mm512_min_epu32(index, _mm512_set1_epi32(region.last_root().cast_signed()));
    let (a, b) = (_mm512_castsi512_si256(index), _mm512_extracti64x4_epi64(index, 1));
    // In an order that shuffles within quarters part the halves. The middle quarters change places.
    let (firsts, seconds) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (base, all, zero) = (region.roots_base(), all(), _mm512_setzero_si512());
    // SAFETY: indices have 19 bits and are not above the last one; each root word is read as one.
    let a = _mm512_castsi512_ps(unsafe { longs_by_half(base, firsts, all, zero) });
    // SAFETY: as above.
    let b = _mm512_castsi512_ps(unsafe { longs_by_half(base, seconds, all, zero) });
    let (lower, upper) = (_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    [_mm512_castps_si512(lower), _mm512_castps_si512(upper), in_order(addrs)]
}

/// The root words of addresses with these upper halves.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn pages(region: &Region<V6>, highs: __m512i) -> __m512i {
    let index = _mm512_srli_epi64::<{ 64 - V6::ROOT_BITS }>(highs);
    let (base, all, zero) = (region.roots_base(), all(), _mm256_setzero_si256());
    // SAFETY: indices have 16 bits, and there are as many root words.
    _mm512_cvtepu32_epi64(unsafe { half_by_words(base, index, all, zero) })
}

lanes! {
    Avx512; 16 _mm512_setr_epi32 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; 8 _mm512_setr_epi64 0 1 2 3 4 5 6 7;
    word(word) if word == 0 { _mm512_setzero_si512() } else { repeat_word(word) };
    long(long) if long == 0 { _mm512_setzero_si512() } else { repeat_long(long) };
    in_order(words) asked!(in_order(words));
}
