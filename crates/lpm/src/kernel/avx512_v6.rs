//! IPv6 lookups of 32 or 64 addresses, from the root to the leaves of the /48. Assembly for the reasons that
//! [`super::avx512`] gives, and in one piece for each number: what lies between two steps stays in registers. Through memory
//! 32 addresses take a fifth longer.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_set_epi64x};
use core::mem::MaybeUninit;

use super::NextHop;
use super::avx512::{Aligned, Avx512};
use crate::mem::Region;
use crate::v6::V6;

/// The upper halves of eight addresses.
pub(super) type Highs = MaybeUninit<Aligned<[u64; 8]>>;

/// Numbers that every lane needs.
static NUMBERS: [u64; 9] = [
    // The bits of a slot, and those of 63 that they leave.
    15,
    63 - 15,
    // From the bit of a slot to that of a run that starts there, as a shift to the left.
    (-16_i64).cast_unsigned(),
    // Bits of children, of leaves in the word, of neither.
    0xffff,
    1 << 16,
    !0x1ffff,
    // What a byte, two and four leave of the bits of four bytes.
    24,
    16,
    0,
];

/// What takes a node to its child: the bits of children are shifted so that the slot's is the sign. Lanes without a child keep node
/// and slot, others read the child and take the slot that `$shift` leaves lowest.
macro_rules! level {
    ($shift:literal, $([$high:literal, $node:literal, $slot:literal])*) => {
        concat!($(
            "vpsllvq zmm24, zmm", $node, ", zmm", $slot, "\n",
            "vpcmpgtq k1, zmm29, zmm24\n",
            "vpopcntq zmm24, zmm24\n",
            "vpsrlq zmm25, zmm", $node, ", 32\n",
            "vpaddq zmm24, zmm24, zmm25\n",
            "vpandq zmm24, zmm24, zmm28\n",
            "kmovw k2, k1\n",
            "vpgatherqq zmm", $node, "{{k1}}, [{base} + 8*zmm24]\n",
            "vpsrlq zmm", $slot, "{{k2}}, zmm", $high, ", ", $shift, "\n",
            "vpternlogq zmm", $slot, "{{k2}}, zmm26, zmm27, 0xae\n",
        )*)
    };
}

/// Leaves of `1 << $log` bytes: `$log_bits` is that in bits, `$ahead` where four bytes that end with a leaf start, from a word
/// before the leaves. Those in the word are shifted to the highest of four bytes, from what `$left` says is left of four
/// bytes, and so are others read; then they are shifted back.
macro_rules! leaves {
    ([$log:literal, $log_bits:literal, $ahead:literal, $left:literal, $back:literal]
        $([$at:literal, $node:literal, $slot:literal])*) => {
        concat!(
            "vpbroadcastq zmm26, [{numbers} + 16]\n",
            "vpsllq zmm27, zmm28, 3\n",
            "vpbroadcastq zmm28, [{numbers} + ", $left, "]\n",
            "kxorw k3, k3, k3\n",
            $(
                "vpsllvq zmm24, zmm", $node, ", zmm", $slot, "\n",
                "vpcmpgtq k2, zmm29, zmm24\n",
                "korw k3, k3, k2\n",
                "vpaddq zmm", $slot, ", zmm", $slot, ", zmm26\n",
                "vpandq zmm24, zmm", $node, ", qword ptr [{numbers} + 40]{{1to8}}\n",
                "vpsllvq zmm24, zmm24, zmm", $slot, "\n",
                "vpopcntq zmm24, zmm24\n",
                "vpandq zmm25, zmm", $node, ", qword ptr [{numbers} + 24]{{1to8}}\n",
                "vpopcntq zmm25, zmm25\n",
                "vpsllq zmm25, zmm25, 3\n",
                "vptestnmq k1, zmm", $node, ", qword ptr [{numbers} + 32]{{1to8}}\n",
                "vpsrlq zmm", $slot, ", zmm", $node, ", 29\n",
                "vpandq zmm", $slot, ", zmm", $slot, ", zmm27\n",
                "vpaddq zmm", $slot, ", zmm", $slot, ", zmm25\n",
                "vpsllq zmm25, zmm24, ", $log, "\n",
                "vpaddq zmm", $slot, ", zmm", $slot, ", zmm25\n",
                "vpsllq zmm24, zmm24, ", $log_bits, "\n",
                "vpsubq zmm24, zmm28, zmm24\n",
                "vpsrlq zmm", $node, ", zmm", $node, ", 32\n",
                "vpsllvq zmm", $node, ", zmm", $node, ", zmm24\n",
                "vpmovqd ymm", $node, ", zmm", $node, "\n",
                "vpgatherqd ymm", $node, "{{k1}}, [{base} + zmm", $slot, " + ", $ahead, "]\n",
                "vpternlogd zmm", $node, "{{k2}}, zmm", $node, ", zmm", $node, ", 255\n",
                "vpsrld zmm", $node, ", zmm", $node, ", ", $back, "\n",
                "vmovdqu [{out} + 32*", $at, "], ymm", $node, "\n",
            )*
        )
    };
}

/// A walk to leaves of some width, of eight addresses in each of some registers: their number, that of the register, and two
/// more, for nodes and slots.
macro_rules! walk {
    ($name:ident, $count:literal, $width:tt, $([$at:literal, $high:literal, $node:literal, $slot:literal])*) => {
        /// Puts the leaves that addresses come to into `out`, of those that lead deeper all ones. Answers whether one does.
        #[inline(always)]
        pub(super) fn $name(
            self,
            region: &Region<V6>,
            highs: &[Highs; $count],
            out: &mut [Option<NextHop>; 8 * $count],
        ) -> bool {
            let deep: u32;
            // SAFETY: the CPU has the instructions, and the caller has written `highs`, aligned to 64. Root words are indexed by 16
            // bits, as many as there are, and only ever hold places of 256 words of the region. Other places, which a late reader
            // may take from any word, are cut to the words of the region, and 8 bytes are read there as one. A leaf is among four
            // bytes that end at most 200 bytes behind such a word (16 children, 16 leaves of four bytes, and the word itself):
            // the region has a chunk more than its power of two of words. All offsets have 64 bits. What is written to `out` has
            // its size, and its elements may have any value.
            unsafe {
                asm!(
                    "vpbroadcastq zmm26, [{numbers}]",
                    "vpbroadcastq zmm27, [{numbers} + 8]",
                    "vpbroadcastq zmm28, {mask}",
                    "vpxorq zmm29, zmm29, zmm29",
                    // Root words, and the entries of their pages.
                    concat!($(
                        "vmovdqa64 zmm", $high, ", [{highs} + 64*", $at, "]\n",
                        "vpsrlq zmm24, zmm", $high, ", 48\n",
                        "kxnorw k1, k0, k0\n",
                        "vpxorq zmm25, zmm25, zmm25\n",
                        "vpgatherqd ymm25{{k1}}, [{roots} + 4*zmm24]\n",
                        "vpmovzxdq zmm", $slot, ", ymm25\n",
                        "vpsllq zmm24, zmm", $high, ", 16\n",
                        "vpsrlq zmm24, zmm24, 56\n",
                        "vpaddq zmm", $slot, ", zmm", $slot, ", zmm24\n",
                    )*),
                    concat!($(
                        "kxnorw k1, k0, k0\n",
                        "vpxorq zmm", $node, ", zmm", $node, ", zmm", $node, "\n",
                        "vpgatherqq zmm", $node, "{{k1}}, [{base} + 8*zmm", $slot, "]\n",
                        "vpsrlq zmm", $slot, ", zmm", $high, ", 36\n",
                        "vpternlogq zmm", $slot, ", zmm26, zmm27, 0xae\n",
                    )*),
                    level!("32", $([$high, $node, $slot])*),
                    level!("28", $([$high, $node, $slot])*),
                    level!("24", $([$high, $node, $slot])*),
                    level!("20", $([$high, $node, $slot])*),
                    level!("16", $([$high, $node, $slot])*),
                    leaves!($width $([$at, $node, $slot])*),
                    "kmovw {deep:e}, k3",
                    numbers = in(reg) &raw const NUMBERS,
                    mask = in(reg) region.mask(),
                    roots = in(reg) region.roots_base(),
                    base = in(reg) region.blocks_base(),
                    highs = in(reg) highs.as_ptr(),
                    out = in(reg) out,
                    deep = lateout(reg) deep,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                    out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                    out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _,
                    out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                    out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _, out("zmm28") _, out("zmm29") _,
                    out("k1") _, out("k2") _, out("k3") _,
                    options(nostack, preserves_flags),
                );
            }
            deep != 0
        }
    };
}

impl Avx512 {
    /// The upper halves of addresses.
    #[inline(always)]
    pub(super) fn highs<A: Copy + Into<u128>, const N: usize, const M: usize>(
        self,
        addrs: &[A; N],
        highs: &mut [Highs; M],
    ) {
        for (addrs, highs) in addrs.as_chunks().0.iter().zip(highs) {
            self.eight_highs(addrs, highs);
        }
    }

    /// The upper halves of eight addresses, written as a whole.
    #[inline(always)]
    fn eight_highs<A: Copy + Into<u128>>(self, addrs: &[A; 8], highs: &mut Highs) {
        let high = |lane: usize| ((addrs[lane].into() >> 64) as u64).cast_signed();
        // In registers: what was written to memory in parts cannot be read as a whole at once.
        let [a, b, c, d]: [__m128i; 4] = [0, 2, 4, 6].map(|at| {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { _mm_set_epi64x(high(at + 1), high(at)) }
        });
        // SAFETY: the CPU has the instructions. Eight words are written to `highs`, aligned to 64.
        unsafe {
            asm!(
                "vinserti128 ymm0, {a:y}, {b}, 1",
                "vinserti128 ymm1, {c:y}, {d}, 1",
                "vinserti64x4 zmm0, zmm0, ymm1, 1",
                "vmovdqa64 [{highs}], zmm0",
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                d = in(xmm_reg) d,
                highs = in(reg) highs.as_mut_ptr(),
                out("zmm0") _, out("zmm1") _,
                options(nostack, preserves_flags),
            );
        }
    }

    walk!(
        bytes_64, 8, [0, 3, 5, 48, 24],
        [0, 0, 8, 16] [1, 1, 9, 17] [2, 2, 10, 18] [3, 3, 11, 19]
        [4, 4, 12, 20] [5, 5, 13, 21] [6, 6, 14, 22] [7, 7, 15, 23]
    );
    walk!(bytes_32, 4, [0, 3, 5, 48, 24], [0, 0, 8, 16] [1, 1, 9, 17] [2, 2, 10, 18] [3, 3, 11, 19]);
    walk!(shorts_32, 4, [1, 4, 6, 56, 16], [0, 0, 8, 16] [1, 1, 9, 17] [2, 2, 10, 18] [3, 3, 11, 19]);
    walk!(words_32, 4, [2, 5, 8, 64, 0], [0, 0, 8, 16] [1, 1, 9, 17] [2, 2, 10, 18] [3, 3, 11, 19]);
}
