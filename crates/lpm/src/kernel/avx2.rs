//! The byte per /24 for eight addresses at once. Assembly for the reasons that [`super::avx512`] gives.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_setr_epi32};

use super::{Avx2, NextHop};
use crate::mem::Bytes;

impl Avx2 {
    /// The bytes of eight addresses; answers which are 255.
    #[inline(always)]
    pub(super) fn bytes<A: Copy + Into<u32>>(
        self,
        bytes: &Bytes,
        addrs: &[A; 8],
        out: &mut [Option<NextHop>; 8],
    ) -> u32 {
        let word = |lane: usize| -> i32 { addrs[lane].into().cast_signed() };
        let [a, b]: [__m128i; 2] = [0, 4].map(|at| {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { _mm_setr_epi32(word(at), word(at + 1), word(at + 2), word(at + 3)) }
        });
        let escapes: u32;
        // SAFETY: the CPU has the instructions. Eight words are written to `out`, whose elements have that size and any
        // value. The gather reads four bytes from a 24-bit offset, of which `Bytes` has that many plus three.
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
