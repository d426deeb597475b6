//! The byte per /24 for eight addresses at once.

use core::arch::asm;
use core::arch::x86_64::_mm256_setr_epi32;

use super::{Bytes, ESCAPE_WORD, NextHop, Tables, V4};

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
