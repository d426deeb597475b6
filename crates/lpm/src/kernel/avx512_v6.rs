//! The steps of IPv6 lookups for eight addresses at once, for bursts that hide what a gather takes. Assembly for the reasons
//! that [`super::avx512`] gives.
//!
//! What lies between two steps is written and read as a whole, aligned: by the time it is read, other eights have been through
//! the step.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_set_epi64x};

use super::NextHop;
use super::avx512::{Aligned, Avx512};
use crate::mem::{LinkRef, PageRef, Region, Roots};

/// The upper halves of eight addresses.
pub(super) type Highs = Aligned<[u64; 8]>;
/// What they have come to.
pub(super) type Links = Aligned<[LinkRef; 8]>;

impl Avx512 {
    /// Sets `highs`, and `links` to the entries of the pages.
    #[inline(always)]
    pub(super) fn page_entries<R: Roots<Block = PageRef>, A: Copy + Into<u128>>(
        self,
        region: &Region<R>,
        addrs: &[A; 8],
        highs: &mut Highs,
        links: &mut Links,
    ) {
        const { assert!(R::ROOT_BITS == 16) };
        let high = |lane: usize| ((addrs[lane].into() >> 64) as u64).cast_signed();
        // In registers: what was written to memory in parts cannot be read as a whole at once.
        let [a, b, c, d]: [__m128i; 4] = [0, 2, 4, 6].map(|at| {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { _mm_set_epi64x(high(at + 1), high(at)) }
        });
        // SAFETY: the CPU has the instructions. Eight words of their sizes are written to `highs` and, from what entries of
        // pages hold, to `links`, both aligned to 64. Root words are indexed by 16 bits, entries by 8.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vinserti128 ymm1, {c:y}, {d}, 1",
                "vinserti64x4 zmm0, zmm0, ymm1, 1",
                "vmovdqa64 [{highs}], zmm0",
                "vpsrlq zmm1, zmm0, 48",
                "vpsllq zmm0, zmm0, 16",
                "vpsrlq zmm0, zmm0, 56",
                "kxnorw k1, k1, k1",
                "kxnorw k2, k2, k2",
                "vpxor ymm2, ymm2, ymm2",
                "vpgatherqd ymm2{{k1}}, [{roots} + 4*zmm1]",
                "vpmovzxdq zmm1, ymm2",
                "vpaddq zmm1, zmm1, zmm1",
                "vpaddq zmm0, zmm0, zmm1",
                "vpxor ymm2, ymm2, ymm2",
                "vpgatherqd ymm2{{k2}}, [{base} + 4*zmm0]",
                "vmovdqa [{links}], ymm2",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                highs = in(reg) highs.0.as_mut_ptr(),
                links = in(reg) links.0.as_mut_ptr(),
                roots = in(reg) region.roots_base(),
                base = in(reg) region.blocks_base(),
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Follows the entries for the 6 bits that `shift` leaves lowest.
    #[inline(always)]
    pub(super) fn steps<R: Roots>(self, region: &Region<R>, highs: &Highs, shift: u32, links: &mut Links) {
        // SAFETY: the CPU has the instructions. `highs` is read, and `links` is read and written, from what entries of link
        // blocks hold. Those start with 8 bytes of bitmap, and what is counted in it is an entry of the block.
        unsafe {
            asm!(
                "vmovd xmm1, {shift:e}",
                "vmovdqa64 zmm0, [{highs}]",
                "vpsrlq zmm0, zmm0, xmm1",
                "vpternlogd zmm1, zmm1, zmm1, 255",
                "vpsrlq zmm1, zmm1, 58",
                "vpandq zmm0, zmm0, zmm1",
                "vpmovzxdq zmm1, [{links}]",
                "kxnorw k1, k1, k1",
                "kxnorw k2, k2, k2",
                "vpxor ymm2, ymm2, ymm2",
                "vpgatherqq zmm2{{k1}}, [{base} + 8*zmm1]",
                "vpaddq zmm1, zmm1, zmm1",
                "vpsrlvq zmm2, zmm2, zmm0",
                "vpopcntq zmm2, zmm2",
                "vpaddq zmm1, zmm1, zmm2",
                "vpxor ymm0, ymm0, ymm0",
                "vpgatherqd ymm0{{k2}}, [{base} + 4*zmm1 + 8]",
                "vmovdqa [{links}], ymm0",
                shift = in(reg) shift,
                highs = in(reg) highs.0.as_ptr(),
                links = in(reg) links.0.as_mut_ptr(),
                base = in(reg) region.blocks_base(),
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// The leaves, of a byte, of tail blocks, for the 6 bits that `shift` leaves lowest; answers which are 255.
    #[inline(always)]
    pub(super) fn tail_bytes<R: Roots>(
        self,
        region: &Region<R>,
        highs: &Highs,
        shift: u32,
        links: &Links,
        out: &mut [Option<NextHop>; 8],
    ) -> u64 {
        let escapes: u32;
        // SAFETY: the CPU has the instructions. `highs` and `links` are read, and eight words written to `out`, whose elements
        // have that size and any value. Tail blocks start with 8 bytes of bitmap and 4 of escape, and what is counted in the
        // bitmap is a leaf of the block; it is read as the upper part of the four bytes that end with it.
        unsafe {
            asm!(
                "vmovd xmm1, {shift:e}",
                "vmovdqa64 zmm0, [{highs}]",
                "vpsrlq zmm0, zmm0, xmm1",
                "vpternlogd zmm1, zmm1, zmm1, 255",
                "vpsrlq zmm1, zmm1, 58",
                "vpandq zmm0, zmm0, zmm1",
                "vpmovzxdq zmm1, [{links}]",
                "kxnorw k1, k1, k1",
                "kxnorw k2, k2, k2",
                "vpxor ymm2, ymm2, ymm2",
                "vpgatherqq zmm2{{k1}}, [{base} + 8*zmm1]",
                "vpsllq zmm1, zmm1, 3",
                "vpsrlvq zmm2, zmm2, zmm0",
                "vpopcntq zmm2, zmm2",
                "vpaddq zmm1, zmm1, zmm2",
                "vpxor ymm0, ymm0, ymm0",
                "vpgatherqd ymm0{{k2}}, [{base} + zmm1 + 9]",
                "vpsrld ymm0, ymm0, 24",
                "vmovdqu [{out}], ymm0",
                "vpternlogd zmm1, zmm1, zmm1, 255",
                "vpsrld zmm1, zmm1, 24",
                "vpcmpeqd k1, zmm0, zmm1",
                "kmovw {escapes:e}, k1",
                shift = in(reg) shift,
                highs = in(reg) highs.0.as_ptr(),
                links = in(reg) links.0.as_ptr(),
                base = in(reg) region.blocks_base(),
                out = in(reg) out.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
        u64::from(escapes)
    }
}
