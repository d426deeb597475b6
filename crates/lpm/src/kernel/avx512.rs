//! The steps of lookups for 16 addresses at once.
//!
//! Assembly, because all that is read is atomic: to the compiler each function is as many relaxed loads. x86 keeps
//! loads in order, so what a function reads is not older than what one before it has read. Registers are named
//! because their class is not open to functions that are compiled for lesser CPUs.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_setr_epi32};
use core::sync::atomic::AtomicU32;

use super::NextHop;
use crate::mem::{Bytes, PackedRef, Region, Roots};

/// Sixteen addresses in four registers. Not in memory: what was written there in parts cannot be read as a whole at once.
#[derive(Clone, Copy)]
pub(super) struct Sixteen([__m128i; 4]);

impl Sixteen {
    #[inline(always)]
    pub(super) fn new<A: Copy + Into<u32>>(addrs: &[A; 16]) -> Self {
        let word = |lane: usize| -> i32 { addrs[lane].into().cast_signed() };
        Self([0, 4, 8, 12].map(|at| {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { _mm_setr_epi32(word(at), word(at + 1), word(at + 2), word(at + 3)) }
        }))
    }
}

/// Proof that the CPU was asked for AVX-512 F and VPOPCNTDQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        (std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vpopcntdq"))
            .then_some(Self(()))
    }

    /// The bytes of sixteen addresses; answers which are 255.
    #[inline(always)]
    pub(super) fn bytes(self, bytes: &Bytes, Sixteen([a, b, c, d]): Sixteen, out: &mut [Option<NextHop>; 16]) -> u32 {
        let escapes: u32;
        // SAFETY: the CPU has the instructions. Sixteen words are written to `out`, whose elements have that size and any
        // value. The gather reads four bytes from a 24-bit offset, of which `Bytes` has that many plus three.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vinserti128 ymm1, {c:y}, {d}, 1",
                "vinserti64x4 zmm0, zmm0, ymm1, 1",
                "vpsrld zmm0, zmm0, 8",
                "kxnorw k1, k1, k1",
                "vpxord zmm1, zmm1, zmm1",
                "vpgatherdd zmm1{{k1}}, [{bytes} + zmm0]",
                "vpternlogd zmm0, zmm0, zmm0, 255",
                "vpsrld zmm0, zmm0, 24",
                "vpandd zmm1, zmm1, zmm0",
                "vmovdqu32 [{out}], zmm1",
                "vpcmpeqd k1, zmm1, zmm0",
                "kmovw {escapes:e}, k1",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                bytes = in(reg) bytes.base(),
                out = in(reg) out.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                out("zmm0") _, out("zmm1") _, out("k1") _,
                options(nostack, preserves_flags),
            );
        }
        escapes
    }

    /// The same, by the bytes per /16 and, where these are 255, per /24. Answers also which were.
    #[inline(always)]
    pub(super) fn coarse_bytes(
        self,
        bytes: &Bytes,
        Sixteen([a, b, c, d]): Sixteen,
        out: &mut [Option<NextHop>; 16],
    ) -> (u32, u32) {
        let (escapes, asked): (u32, u32);
        // SAFETY: as for `bytes`; the first gather reads four bytes from a 16-bit offset, of which there are that many plus
        // three.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vinserti128 ymm1, {c:y}, {d}, 1",
                "vinserti64x4 zmm0, zmm0, ymm1, 1",
                "vpsrld zmm2, zmm0, 16",
                "vpsrld zmm0, zmm0, 8",
                "kxnorw k1, k1, k1",
                "vpxord zmm1, zmm1, zmm1",
                "vpgatherdd zmm1{{k1}}, [{coarse} + zmm2]",
                "vpternlogd zmm2, zmm2, zmm2, 255",
                "vpsrld zmm2, zmm2, 24",
                "vpandd zmm1, zmm1, zmm2",
                "vpcmpeqd k1, zmm1, zmm2",
                "kmovw {asked:e}, k1",
                "vpgatherdd zmm1{{k1}}, [{bytes} + zmm0]",
                "vpandd zmm1, zmm1, zmm2",
                "vmovdqu32 [{out}], zmm1",
                "vpcmpeqd k1, zmm1, zmm2",
                "kmovw {escapes:e}, k1",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                coarse = in(reg) bytes.coarse_base(),
                bytes = in(reg) bytes.base(),
                out = in(reg) out.as_mut_ptr(),
                asked = out(reg) asked,
                escapes = lateout(reg) escapes,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("k1") _,
                options(nostack, preserves_flags),
            );
        }
        (escapes, asked)
    }

    /// The packed blocks of sixteen addresses.
    #[inline(always)]
    pub(super) fn packed_roots<R: Roots<Block = PackedRef>>(
        self,
        region: &Region<R>,
        Sixteen([a, b, c, d]): Sixteen,
        blocks: &mut [PackedRef; 16],
    ) {
        const { assert!(R::ROOT_BITS == 18) };
        // SAFETY: the CPU has the instructions. Sixteen words are written to `blocks`, which only gets what root words
        // hold; an index has the ROOT_BITS bits that there are words for.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vinserti128 ymm1, {c:y}, {d}, 1",
                "vinserti64x4 zmm0, zmm0, ymm1, 1",
                "vpsrld zmm0, zmm0, {shift}",
                "kxnorw k1, k1, k1",
                "vpxord zmm1, zmm1, zmm1",
                "vpgatherdd zmm1{{k1}}, [{roots} + 4*zmm0]",
                "vmovdqu32 [{blocks}], zmm1",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                shift = const 32 - 18,
                roots = in(reg) region.roots_base(),
                blocks = in(reg) blocks.as_mut_ptr(),
                out("zmm0") _, out("zmm1") _, out("k1") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// A function that answers sixteen addresses by the leaves, of `1 << $log` bytes, of their packed blocks.
///
/// A leaf is read as the upper part of the four bytes that end with it: in its own block, as a bitmap comes before it.
/// `$words` makes what is written of those four bytes in zmm4 in zmm0, and in zmm1 what leads deeper.
macro_rules! packed {
    ($(#[$doc:meta])* $name:ident, $log:literal, [$($words:literal),*] $(, $palette:ident: $entries:literal)?) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<R: Roots<Block = PackedRef>>(
            self,
            region: &Region<R>,
            $($palette: &[AtomicU32; $entries],)?
            Sixteen([a, b, c, d]): Sixteen,
            blocks: &[PackedRef; 16],
            out: &mut [Option<NextHop>; 16],
        ) -> u32 {
            let escapes: u32;
            // SAFETY: the CPU has the instructions. Sixteen words are read from `blocks` and written to `out`, whose
            // elements have that size and any value. Blocks start with 8 bytes of bitmap, and the rank
            // taken from it is that of a leaf of the block. A palette has an entry for each leaf of its width.
            unsafe {
                asm!(
                    // How far left bitmaps are shifted to end with the slot: 63 less bits 8 to 13 of the address.
                    "vinserti128 ymm0, {a:y}, {b}, 1",
                    "vinserti128 ymm1, {c:y}, {d}, 1",
                    "vinserti64x4 zmm0, zmm0, ymm1, 1",
                    "vpsrld zmm0, zmm0, 8",
                    "vpternlogd zmm1, zmm1, zmm1, 255",
                    "vpsrld zmm1, zmm1, 26",
                    "vpandnd zmm0, zmm0, zmm1",
                    "vextracti64x4 ymm1, zmm0, 1",
                    "vpmovzxdq zmm0, ymm0",
                    "vpmovzxdq zmm1, ymm1",
                    "vpmovzxdq zmm2, ymmword ptr [{blocks}]",
                    "vpmovzxdq zmm3, ymmword ptr [{blocks} + 32]",
                    "kxnorw k1, k1, k1",
                    "kxnorw k2, k2, k2",
                    "vpxord zmm4, zmm4, zmm4",
                    "vpxord zmm5, zmm5, zmm5",
                    "vpgatherqq zmm4{{k1}}, [{base} + 8*zmm2]",
                    "vpgatherqq zmm5{{k2}}, [{base} + 8*zmm3]",
                    "vpsllvq zmm4, zmm4, zmm0",
                    "vpsllvq zmm5, zmm5, zmm1",
                    "vpopcntq zmm4, zmm4",
                    "vpopcntq zmm5, zmm5",
                    concat!("vpsllq zmm4, zmm4, ", $log),
                    concat!("vpsllq zmm5, zmm5, ", $log),
                    "vpsllq zmm2, zmm2, 3",
                    "vpsllq zmm3, zmm3, 3",
                    "vpaddq zmm2, zmm2, zmm4",
                    "vpaddq zmm3, zmm3, zmm5",
                    "kxnorw k1, k1, k1",
                    "kxnorw k2, k2, k2",
                    "vpxord zmm4, zmm4, zmm4",
                    "vpxord zmm5, zmm5, zmm5",
                    "vpgatherqd ymm4{{k1}}, [{base} + zmm2 + 4]",
                    "vpgatherqd ymm5{{k2}}, [{base} + zmm3 + 4]",
                    "vinserti64x4 zmm4, zmm4, ymm5, 1",
                    "vpternlogd zmm1, zmm1, zmm1, 255",
                    $($words,)*
                    "vmovdqu32 [{out}], zmm0",
                    "vpcmpeqd k1, zmm0, zmm1",
                    "kmovw {escapes:e}, k1",
                    a = in(xmm_reg) a,
                    b = in(xmm_reg) b,
                    c = in(xmm_reg) c,
                    d = in(xmm_reg) d,
                    blocks = in(reg) blocks.as_ptr(),
                    base = in(reg) region.blocks_base(),
                    $($palette = in(reg) $palette.as_ptr(),)?
                    out = in(reg) out.as_mut_ptr(),
                    escapes = lateout(reg) escapes,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                    out("k1") _, out("k2") _,
                    options(nostack, preserves_flags),
                );
            }
            escapes
        }
    };
}

impl Avx512 {
    packed!(
        /// By leaves that index the palette, which are the answer.
        packed_bytes, 0, ["vpsrld zmm0, zmm4, 24", "vpsrld zmm1, zmm1, 24"]
    );
    packed!(
        /// By leaves that index the wide palette.
        packed_shorts, 1,
        ["vpsrld zmm4, zmm4, 16", "kxnorw k1, k1, k1", "vpxord zmm0, zmm0, zmm0",
            "vpgatherdd zmm0{{k1}}, [{palette} + 4*zmm4]"],
        palette: 65536
    );
    packed!(
        /// By leaves that are next hops.
        packed_words, 2, ["vmovdqa32 zmm0, zmm4"]
    );
}

const _: () = assert!(crate::tables::ESCAPE_WORD == u32::MAX && size_of::<Option<NextHop>>() == 4);
