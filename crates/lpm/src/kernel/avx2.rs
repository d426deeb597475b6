//! IPv4 lookups of eight addresses with AVX2. Assembly for the reasons that [`super::avx512`] gives.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_setr_epi32};
use core::sync::atomic::AtomicU32;

use super::{Avx2, NextHop};
use crate::mem::{Bytes, Region};
use crate::v4::V4;

/// Numbers of bits, by the number whose bits they are; twice, as each half has its own.
pub(super) static BITS: [u8; 32] =
    [0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4];

/// Numbers that every lane needs.
static NUMBERS: [u32; 7] = [
    // What is left of 32 slots; of each byte half; ones to add bytes and pairs of them with.
    31,
    0x0f0f_0f0f,
    0x0101_0101,
    0x0001_0001,
    // The bits of leaves. All ones lead deeper, as numbers and as next hops.
    0xff,
    0xffff,
    0xffff_ffff,
];

/// Four addresses and four more.
#[inline(always)]
fn eight<A: Copy + Into<u32>>(addrs: &[A; 8]) -> [__m128i; 2] {
    let word = |lane: usize| -> i32 { addrs[lane].into().cast_signed() };
    [0, 4].map(|at| {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe { _mm_setr_epi32(word(at), word(at + 1), word(at + 2), word(at + 3)) }
    })
}

/// Lookups by root words and packed blocks, with leaves of `1 << $log` bytes. Where in [`NUMBERS`] their bits lie, and the answer
/// that leads deeper, is `$bits` and `$deeper`.
macro_rules! packed {
    ($name:ident $log:literal $bits:literal $deeper:literal [$($answer:literal),*] $($palette:ident)?) => {
        /// Puts the answers of packed blocks into `out`; answers which lead deeper.
        #[inline(always)]
        pub(super) fn $name<A: Copy + Into<u32>>(
            self,
            region: &Region<V4>,
            $($palette: &[AtomicU32; 65536],)?
            addrs: &[A; 8],
            out: &mut [Option<NextHop>; 8],
        ) -> u32 {
            let [a, b] = eight(addrs);
            #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^19 root words")]
            let last = region.last_root() as u32;
            let escapes: u32;
            // SAFETY: the CPU has the instructions. Root words are indexed by 19 bits and no further than the last one, and each
            // is read as one. Of the lanes whose root word says that there is a block, four bytes are read that start with the
            // leaf, so at most three past the last block, and the mapping goes on for three bytes behind the blocks. The gather
            // takes its 32-bit place, that of the byte after the leaf, for a number with a sign: it is below 2^31, as blocks end
            // a chunk before 2 GiB (`Slab::MOST_CHUNKS`). A leaf that a palette is asked for is cut to as many bits as number
            // its entries. Eight words are written to `out`, whose elements have that size and may have any value.
            unsafe {
                asm!(
                    // In an order that what is read comes out of the shuffles in the order of addresses.
                    "vpunpcklqdq xmm0, {a}, {b}",
                    "vpunpckhqdq xmm1, {a}, {b}",
                    "vpsrld xmm0, xmm0, 32 - 19",
                    "vpsrld xmm1, xmm1, 32 - 19",
                    "vmovd xmm2, {last:e}",
                    "vpbroadcastd xmm2, xmm2",
                    "vpminud xmm0, xmm0, xmm2",
                    "vpminud xmm1, xmm1, xmm2",
                    "vpcmpeqd ymm2, ymm2, ymm2",
                    "vpcmpeqd ymm3, ymm3, ymm3",
                    "vpxor ymm4, ymm4, ymm4",
                    "vpxor ymm5, ymm5, ymm5",
                    "vpgatherdq ymm4, [{roots} + 8*xmm0], ymm2",
                    "vpgatherdq ymm5, [{roots} + 8*xmm1], ymm3",
                    "vshufps ymm0, ymm4, ymm5, 0x88",
                    "vshufps ymm1, ymm4, ymm5, 0xdd",
                    // Bit 0 says that there is a block; it becomes the sign.
                    "vpslld ymm5, ymm0, 31",
                    // Shifted left to end with the slot: by 31 less bits 8 to 12 of the address.
                    "vinserti128 ymm2, {a:y}, {b}, 1",
                    "vpsrld ymm2, ymm2, 8",
                    "vpbroadcastd ymm3, [{numbers}]",
                    "vpandn ymm2, ymm2, ymm3",
                    "vpsllvd ymm0, ymm0, ymm2",
                    // The bits that are left are counted.
                    "vmovdqu ymm3, [{bits}]",
                    "vpbroadcastd ymm4, [{numbers} + 4]",
                    "vpsrlw ymm2, ymm0, 4",
                    "vpand ymm2, ymm2, ymm4",
                    "vpand ymm0, ymm0, ymm4",
                    "vpshufb ymm2, ymm3, ymm2",
                    "vpshufb ymm0, ymm3, ymm0",
                    "vpaddb ymm0, ymm0, ymm2",
                    "vpbroadcastd ymm3, [{numbers} + 8]",
                    "vpbroadcastd ymm4, [{numbers} + 12]",
                    "vpmaddubsw ymm0, ymm0, ymm3",
                    "vpmaddwd ymm0, ymm0, ymm4",
                    // A leaf in the root word, or one in a block.
                    concat!("vpslld ymm2, ymm0, 3 + ", $log),
                    "vpsrlvd ymm2, ymm1, ymm2",
                    concat!("vpslld ymm0, ymm0, ", $log),
                    "vpaddd ymm0, ymm0, ymm1",
                    concat!("vpgatherdd ymm2, [{blocks} + ymm0 - (1 << ", $log, ")], ymm5"),
                    concat!("vpbroadcastd ymm3, [{numbers} + ", $bits, "]"),
                    "vpand ymm2, ymm2, ymm3",
                    $($answer,)*
                    "vmovdqu [{out}], ymm2",
                    concat!("vpbroadcastd ymm3, [{numbers} + ", $deeper, "]"),
                    "vpcmpeqd ymm2, ymm2, ymm3",
                    "vmovmskps {escapes:e}, ymm2",
                    a = in(xmm_reg) a,
                    b = in(xmm_reg) b,
                    last = in(reg) last,
                    roots = in(reg) region.roots_base(),
                    blocks = in(reg) region.blocks_base(),
                    $($palette = in(reg) $palette.as_ptr(),)?
                    bits = in(reg) BITS.as_ptr(),
                    numbers = in(reg) NUMBERS.as_ptr(),
                    out = in(reg) out.as_mut_ptr(),
                    escapes = lateout(reg) escapes,
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                    options(nostack, preserves_flags),
                );
            }
            escapes
        }
    };
}

impl Avx2 {
    packed!(packed_bytes 0 16 16 []);
    packed!(
        packed_shorts 1 20 24
        ["vmovdqa ymm0, ymm2", "vpcmpeqd ymm5, ymm5, ymm5", "vpgatherdd ymm2, [{palette} + 4*ymm0], ymm5"]
        palette
    );
    packed!(packed_words 2 24 24 []);

    /// The bytes of eight addresses; answers which are 255.
    #[inline(always)]
    pub(super) fn bytes<A: Copy + Into<u32>>(
        self,
        bytes: &Bytes,
        addrs: &[A; 8],
        out: &mut [Option<NextHop>; 8],
    ) -> u32 {
        let [a, b] = eight(addrs);
        let escapes: u32;
        // SAFETY: the CPU has the instructions. The gather reads four bytes from an offset of 24 bits on: `Bytes` has 2^24 bytes
        // there and more than three behind them. Eight words are written to `out`, whose elements have that size and may have
        // any value.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vpsrld ymm0, ymm0, 8",
                "vpcmpeqd ymm2, ymm2, ymm2",
                "vpxor ymm1, ymm1, ymm1",
                "vpgatherdd ymm1, [{bytes} + ymm0], ymm2",
                "vpcmpeqd ymm2, ymm2, ymm2",
                "vpsrld ymm2, ymm2, 24",
                "vpand ymm1, ymm1, ymm2",
                "vmovdqu [{out}], ymm1",
                "vpcmpeqd ymm1, ymm1, ymm2",
                "vmovmskps {escapes:e}, ymm1",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                bytes = in(reg) bytes.base(),
                out = in(reg) out.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                out("ymm0") _, out("ymm1") _, out("ymm2") _,
                options(nostack, preserves_flags),
            );
        }
        escapes
    }
}
