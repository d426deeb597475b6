//! The steps of IPv4 lookups for 16 addresses at once.
//!
//! Assembly, because all that is read is atomic: to the compiler each function is as many relaxed loads. x86 keeps
//! loads in order, so what a function reads is not older than what one before it has read. Registers are named
//! because their class is not open to functions that are compiled for lesser CPUs.

use core::arch::asm;
use core::arch::x86_64::{__m256i, _mm256_setr_epi32};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use super::NextHop;
use crate::mem::{Bytes, PackedRef, Region, Roots};

/// Sixteen addresses in two registers. Not in memory: what was written there in parts cannot be read as a whole at once.
#[derive(Clone, Copy)]
pub(super) struct Sixteen([__m256i; 2]);

impl Sixteen {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn new<A: Copy + Into<u32>>(addrs: &[A; 16]) -> Self {
        macro_rules! eight {
            ($($lane:literal)*) => { _mm256_setr_epi32($(addrs[$lane].into().cast_signed()),*) }
        }
        Self([eight!(0 1 2 3 4 5 6 7), eight!(8 9 10 11 12 13 14 15)])
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
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn bytes(self, bytes: &Bytes, Sixteen([a, b]): Sixteen, out: &mut [Option<NextHop>; 16]) -> u32 {
        let escapes: u32;
        // SAFETY: the CPU has the instructions. Sixteen words are written to `out`, whose elements have that size and any
        // value. The gather reads four bytes from a 24-bit offset, of which `Bytes` has that many plus three.
        unsafe {
            asm!(
                "vinserti64x4 zmm0, {a:z}, {b}, 1",
                "vpsrld zmm0, zmm0, 8",
                "kxnorw k2, k2, k2",
                "kmovw k1, k2",
                "vpxord zmm1, zmm1, zmm1",
                "vpgatherdd zmm1{{k1}}, [{bytes} + zmm0]",
                "vpternlogd zmm0, zmm0, zmm0, 255",
                "vpsrld zmm0, zmm0, 24",
                "vpandd zmm1, zmm1, zmm0",
                "vmovdqu32 [{out}], zmm1",
                "vpcmpeqd k1, zmm1, zmm0",
                "kmovw {escapes:e}, k1",
                a = in(ymm_reg) a,
                b = in(ymm_reg) b,
                bytes = in(reg) bytes.base(),
                out = in(reg) out.as_mut_ptr(),
                escapes = lateout(reg) escapes,
                out("zmm0") _, out("zmm1") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
        escapes
    }

    /// The same, by the bytes per /16 and, where these are 255, per /24. Answers also which were.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn coarse_bytes(
        self,
        bytes: &Bytes,
        Sixteen([a, b]): Sixteen,
        out: &mut [Option<NextHop>; 16],
    ) -> (u32, u32) {
        let (escapes, asked): (u32, u32);
        // SAFETY: as for `bytes`; the first gather reads four bytes from a 16-bit offset, of which there are that many plus
        // three.
        unsafe {
            asm!(
                "vinserti64x4 zmm0, {a:z}, {b}, 1",
                "vpsrld zmm2, zmm0, 16",
                "vpsrld zmm0, zmm0, 8",
                "kxnorw k2, k2, k2",
                "kmovw k1, k2",
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
                a = in(ymm_reg) a,
                b = in(ymm_reg) b,
                coarse = in(reg) bytes.coarse_base(),
                bytes = in(reg) bytes.base(),
                out = in(reg) out.as_mut_ptr(),
                asked = out(reg) asked,
                escapes = lateout(reg) escapes,
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
        (escapes, asked)
    }
}

/// Starts with a cache line. What is written as a whole register and read back takes twice as long if it lies across two, as it
/// would on some stacks.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Where the leaves of sixteen addresses lie.
pub(super) type Places = MaybeUninit<Aligned<[u32; 16]>>;

/// Numbers that every lane needs, read from memory to save registers: what is left of 32 slots, and what leaves that lead
/// deeper say.
static LANES: [u32; 3] = [31, u8::MAX as u32, u32::MAX];
/// The lower halves of eight and eight words, and the upper ones.
static HALVES: [Aligned<[u32; 16]>; 2] = [
    Aligned([0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]),
    Aligned([1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31]),
];

/// A function that reads the leaves at some places and makes answers of them. It tells which lead deeper. `$displacement` is how
/// much smaller than four bytes a leaf is, `$escape` where in [`LANES`] the answer lies that leads deeper.
macro_rules! leaves {
    ($(#[$doc:meta])* $name:ident, $displacement:literal $escape:literal, [$($answer:literal),*] $(, $palette:ident)?) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn $name<R: Roots<Block = PackedRef>>(
            self,
            region: &Region<R>,
            $($palette: &[AtomicU32; 65536],)?
            places: &Places,
            out: &mut [Option<NextHop>; 16],
        ) -> u32 {
            let escapes: u32;
            // SAFETY: the CPU has the instructions, and `places` has been written. Sixteen words are written to `out`, whose
            // elements have that size and any value. The four bytes that end with a leaf are in the mapping, as root words come
            // before the first block; only the leaf is used. The palette has an entry for each leaf.
            unsafe {
                asm!(
                    "vmovdqa32 zmm0, [{places}]",
                    "kxnorw k1, k1, k1",
                    "vpxord zmm1, zmm1, zmm1",
                    concat!("vpgatherdd zmm1{{k1}}, [{blocks} + zmm0 - ", $displacement, "]"),
                    $($answer,)*
                    "vmovdqu32 [{out}], zmm1",
                    concat!("vpcmpeqd k1, zmm1, dword ptr [{lanes} + ", $escape, "]{{1to16}}"),
                    "kmovw {escapes:e}, k1",
                    blocks = in(reg) region.blocks_base(),
                    $($palette = in(reg) $palette.as_ptr(),)?
                    lanes = in(reg) &raw const LANES,
                    places = in(reg) places.as_ptr(),
                    out = in(reg) out.as_mut_ptr(),
                    escapes = lateout(reg) escapes,
                    out("zmm0") _, out("zmm1") _, out("k1") _,
                    options(nostack, preserves_flags),
                );
            }
            escapes
        }
    };
}

impl Avx512 {
    /// Reads root words, and tells where the leaves, of `1 << LOG` bytes, lie.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn places<const LOG: u32, R: Roots<Block = PackedRef>>(
        self,
        region: &Region<R>,
        Sixteen([a, b]): Sixteen,
        places: &mut Places,
    ) {
        const { assert!(R::ROOT_BITS == 19) };
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^19 root words")]
        let last = region.last_root() as u32;
        // SAFETY: the CPU has the instructions. An index is that of a root word, of 8 bytes that are read as one. Sixteen words
        // are written to `places`; they fit, as references to packed blocks count bytes in 31 bits.
        unsafe {
            asm!(
                "vinserti64x4 zmm0, {a:z}, {b}, 1",
                "vpbroadcastd zmm2, {last:e}",
                "vpsrld zmm1, zmm0, 32 - 19",
                "vpminud zmm1, zmm1, zmm2",
                "vextracti64x4 ymm2, zmm1, 1",
                "kxnorw k1, k1, k1",
                "kxnorw k2, k2, k2",
                "vpxord zmm3, zmm3, zmm3",
                "vpxord zmm4, zmm4, zmm4",
                "vpgatherdq zmm3{{k1}}, [{roots} + 8*ymm1]",
                "vpgatherdq zmm4{{k2}}, [{roots} + 8*ymm2]",
                // Shifted left to end with the slot: by 31 less bits 8 to 12 of the address.
                "vpsrld zmm0, zmm0, 8",
                "vpandnd zmm0, zmm0, dword ptr [{lanes}]{{1to16}}",
                "vmovdqa32 zmm1, [{halves}]",
                "vmovdqa32 zmm2, [{halves} + 64]",
                "vpermi2d zmm1, zmm3, zmm4",
                "vpermi2d zmm2, zmm3, zmm4",
                "vpsllvd zmm1, zmm1, zmm0",
                "vpopcntd zmm1, zmm1",
                "vpslld zmm1, zmm1, {log}",
                "vpaddd zmm1, zmm1, zmm2",
                "vmovdqa32 [{places}], zmm1",
                a = in(ymm_reg) a,
                b = in(ymm_reg) b,
                last = in(reg) last,
                log = const LOG,
                roots = in(reg) region.roots_base(),
                lanes = in(reg) &raw const LANES,
                halves = in(reg) &raw const HALVES,
                places = in(reg) places.as_mut_ptr(),
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("k1") _, out("k2") _,
                options(nostack, preserves_flags),
            );
        }
    }

    leaves!(
        /// Leaves that are numbers of next hops.
        leaf_bytes, 3 4, ["vpsrld zmm1, zmm1, 24"]
    );
    leaves!(
        /// Leaves that index the wide palette.
        leaf_shorts, 2 8,
        ["vpsrld zmm0, zmm1, 16", "kxnorw k1, k1, k1", "vpgatherdd zmm1{{k1}}, [{palette} + 4*zmm0]"],
        palette
    );
    leaves!(
        /// Leaves that are next hops.
        leaf_words, 0 8, []
    );
}

const _: () = assert!(crate::tables::ESCAPE_WORD == u32::MAX && size_of::<Option<NextHop>>() == 4);
