//! IPv6 lookups of 16 addresses with AVX2, from the root to the leaves of the /48. Assembly for the reasons that
//! [`super::avx512`] gives.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_set_epi64x};

use super::avx2::BITS;
use super::{Avx2, NextHop};
use crate::mem::Region;
use crate::v6::{self, V6};

/// What a byte, two and four leave of the bits of four bytes.
static LEFT: [u32; 3] = [24, 16, 0];

/// The numbers of bits, of the nibbles in two registers: the upper ones not cut out yet, the lower ones. The sum is in the first.
#[rustfmt::skip]
macro_rules! count {
    ($upper:literal, $lower:literal) => {
        concat!(
            "vpand ymm", $upper, ", ymm", $upper, ", ymm12\n",
            "vpshufb ymm", $upper, ", ymm11, ymm", $upper, "\n",
            "vpshufb ymm", $lower, ", ymm11, ymm", $lower, "\n",
            "vpaddb ymm", $upper, ", ymm", $upper, ", ymm", $lower, "\n",
            "vpsadbw ymm", $upper, ", ymm", $upper, ", ymm13\n",
        )
    };
}

/// What takes nodes to their children. Upper halves of addresses are inverted, and start with the slot: its bit, of those of
/// children, becomes the sign, and those of later slots go. Lanes without a child keep both.
macro_rules! level {
    ($([$high:literal, $node:literal])*) => {
        concat!($(
            "vpsrlq ymm8, ymm", $high, ", 60\n",
            "vpsllq ymm9, ymm", $node, ", 48\n",
            "vpsllvq ymm8, ymm9, ymm8\n",
            "vpsllq ymm9, ymm", $high, ", 4\n",
            "vblendvpd ymm", $high, ", ymm", $high, ", ymm9, ymm8\n",
            "vpsrlw ymm9, ymm8, 4\n",
            "vpand ymm10, ymm8, ymm12\n",
            count!("9", "10"),
            "vpsrlq ymm10, ymm", $node, ", 32\n",
            "vpaddq ymm9, ymm9, ymm10\n",
            "vpand ymm9, ymm9, ymm14\n",
            "vpgatherqq ymm", $node, ", [{base} + 8*ymm9], ymm8\n",
        )*)
    };
}

/// The upper halves of four words into one half of another register. `$spare` is lost.
#[rustfmt::skip]
macro_rules! uppers {
    ($from:literal, $to:literal, $spare:literal) => {
        concat!(
            "vextracti128 xmm", $spare, ", ymm", $from, ", 1\n",
            "vshufps xmm", $to, ", xmm", $from, ", xmm", $spare, ", 0xdd\n",
        )
    };
}

/// From the root to leaves of `1 << $log` bytes: `$log_bits` is that in bits, `$ahead` where four bytes that end with a leaf start,
/// from a word before the leaves. Those in the word are shifted to the highest of four bytes, from what `$left` says
/// is left of four bytes, and so are others read; then they are shifted back.
macro_rules! walk {
    ([$log:literal, $log_bits:literal, $ahead:literal, $left:literal, $back:literal]
        $([$at:literal, $high:literal, $node:literal])*) => {
        concat!(
            // Root words, and the entries of their pages.
            $(
                "vpsrlq ymm8, ymm", $high, ", 48\n",
                "vpcmpeqd xmm9, xmm9, xmm9\n",
                "vpxor xmm10, xmm10, xmm10\n",
                "vpgatherqd xmm10, [{roots} + 4*ymm8], xmm9\n",
                "vpmovzxdq ymm", $node, ", xmm10\n",
                "vpsllq ymm8, ymm", $high, ", 16\n",
                "vpsrlq ymm8, ymm8, 56\n",
                "vpaddq ymm8, ymm8, ymm", $node, "\n",
                "vpcmpeqd ymm9, ymm9, ymm9\n",
                "vpxor ymm", $node, ", ymm", $node, ", ymm", $node, "\n",
                "vpgatherqq ymm", $node, ", [{base} + 8*ymm8], ymm9\n",
                "vpcmpeqd ymm9, ymm9, ymm9\n",
                "vpxor ymm", $high, ", ymm", $high, ", ymm9\n",
                "vpsllq ymm", $high, ", ymm", $high, ", 24\n",
            )*
            level!($([$high, $node])*),
            level!($([$high, $node])*),
            level!($([$high, $node])*),
            level!($([$high, $node])*),
            level!($([$high, $node])*),
            $(
                // All ones for those that lead deeper; the number of children.
                "vpsrlq ymm9, ymm", $high, ", 60\n",
                "vpsllq ymm8, ymm", $node, ", 48\n",
                "vpsllvq ymm10, ymm8, ymm9\n",
                uppers!("10", $high, "15"),
                "vpsrad xmm", $high, ", xmm", $high, ", 31\n",
                "vpand ymm10, ymm8, ymm12\n",
                "vpsrlw ymm8, ymm8, 4\n",
                count!("8", "10"),
                // Leaves before that of the slot, and where it lies if it is not in the word.
                "vpsrlq ymm10, ymm", $node, ", 17\n",
                "vpsllq ymm10, ymm10, 49\n",
                "vpsllvq ymm10, ymm10, ymm9\n",
                "vpand ymm15, ymm10, ymm12\n",
                "vpsrlw ymm10, ymm10, 4\n",
                count!("10", "15"),
                "vpsrlq ymm9, ymm", $node, ", 32\n",
                "vpand ymm9, ymm9, ymm14\n",
                "vpaddq ymm9, ymm9, ymm8\n",
                "vpsllq ymm9, ymm9, 3\n",
                "vpsllq ymm8, ymm10, ", $log, "\n",
                "vpaddq ymm9, ymm9, ymm8\n",
                // The leaf in the word.
                "vpsllq ymm8, ymm", $node, ", 47\n",
                uppers!("8", "8", "15"),
                uppers!($node, $node, "15"),
                "vextracti128 xmm15, ymm10, 1\n",
                "vshufps xmm10, xmm10, xmm15, 0x88\n",
                "vpslld xmm10, xmm10, ", $log_bits, "\n",
                "vpbroadcastd xmm15, [{numbers} + ", $left, "]\n",
                "vpsubd xmm10, xmm15, xmm10\n",
                "vpsllvd xmm", $node, ", xmm", $node, ", xmm10\n",
                // Or not.
                "vpcmpeqd xmm15, xmm15, xmm15\n",
                "vpxor xmm8, xmm8, xmm15\n",
                "vpgatherqd xmm", $node, ", [{base} + ymm9 + ", $ahead, "], xmm8\n",
                "vpor xmm", $node, ", xmm", $node, ", xmm", $high, "\n",
                "vpsrld xmm", $node, ", xmm", $node, ", ", $back, "\n",
                "vmovdqu [{out} + 16*", $at, "], xmm", $node, "\n",
            )*
        )
    };
}

/// A walk of sixteen addresses to leaves of some width.
macro_rules! leaves {
    ($name:ident, $width:tt) => {
        /// Puts the leaves that addresses come to into `out`, of those that lead deeper all ones.
        #[inline(always)]
        pub(super) fn $name<A: Copy + Into<u128>>(
            self,
            region: &Region<V6>,
            addrs: &[A; 16],
            out: &mut [Option<NextHop>; 16],
        ) {
            let high = |lane: usize| v6::high(addrs[lane].into()).cast_signed();
            let [a, b, c, d, e, f, g, h]: [__m128i; 8] = [0, 2, 4, 6, 8, 10, 12, 14].map(|at| {
                // SAFETY: every x86-64 CPU has SSE2.
                unsafe { _mm_set_epi64x(high(at + 1), high(at)) }
            });
            // SAFETY: the CPU has the instructions. Root words are indexed by 16 bits, as many as there are, and only ever hold
            // places of 256 words of the region. Other places, which a late reader may take from any word, are cut to the words
            // of the region, and 8 bytes are read there as one. A leaf is among four bytes that end at most 200 bytes behind
            // such a word (16 children, 16 leaves of four bytes, and the word itself): the region has a chunk more than its power
            // of two of words. All offsets have 64 bits. What is written to `out` has its size, and its elements may have any
            // value.
            unsafe {
                asm!(
                    "vinserti128 ymm0, ymm0, xmm1, 1",
                    "vinserti128 ymm1, ymm2, xmm3, 1",
                    "vinserti128 ymm2, ymm4, xmm5, 1",
                    "vinserti128 ymm3, ymm6, xmm7, 1",
                    "vmovdqu ymm11, [{bits}]",
                    "vpcmpeqd ymm12, ymm12, ymm12",
                    "vpsrlw ymm12, ymm12, 12",
                    "vpackuswb ymm12, ymm12, ymm12",
                    "vpxor ymm13, ymm13, ymm13",
                    "vmovq xmm14, {mask}",
                    "vpbroadcastq ymm14, xmm14",
                    walk!($width [0, 0, 4] [1, 1, 5] [2, 2, 6] [3, 3, 7]),
                    bits = in(reg) &raw const BITS,
                    numbers = in(reg) &raw const LEFT,
                    mask = in(reg) region.mask(),
                    roots = in(reg) region.roots_base(),
                    base = in(reg) region.blocks_base(),
                    out = in(reg) out,
                    inout("xmm0") a => _, inout("xmm1") b => _, inout("xmm2") c => _, inout("xmm3") d => _,
                    inout("xmm4") e => _, inout("xmm5") f => _, inout("xmm6") g => _, inout("xmm7") h => _,
                    out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _, out("ymm12") _, out("ymm13") _,
                    out("ymm14") _, out("ymm15") _,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

impl Avx2 {
    leaves!(bytes_16, [0, 3, 5, 0, 24]);
    leaves!(shorts_16, [1, 4, 6, 4, 16]);
    leaves!(words_16, [2, 5, 8, 8, 0]);
}
