//! The steps of IPv4 lookups for 16 addresses at once, or for as many sixteens as go side by side.
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

/// Numbers that every lane needs, read from memory to save registers: the bits of a reference that count runs, those of a
/// slot in a bitmap, and what leaves that lead deeper say.
static LANES: [u32; 4] = [127, 63, u8::MAX as u32, u32::MAX];

/// Puts the sixteen addresses `$a` and `$b` into `zmm$p`.
#[rustfmt::skip]
macro_rules! join {
    ($a:ident $b:ident $p:literal) => {
        concat!(
            "vinserti64x4 zmm", $p, ", {", stringify!($a), ":z}, {", stringify!($b), "}, 1",
        )
    };
}

/// Reads the root words of the addresses in `zmm$p` into `zmm$q`.
#[rustfmt::skip]
macro_rules! roots {
    ($p:literal $q:literal $r:literal) => {
        concat!(
            "vpsrld zmm", $r, ", zmm", $p, ", 32 - 17\n",
            "kmovw k1, k3\n",
            // Any value will do: all of it is replaced.
            "vmovdqa32 zmm", $q, ", zmm", $p, "\n",
            "vpgatherdd zmm", $q, "{{k1}}, [{roots} + 4*zmm", $r, "]",
        )
    };
}

/// Reads the bitmaps for the addresses in `zmm$p` and root words in `zmm$q` into `zmm$q` and `zmm$s`. What is to be added to
/// ranks waits in `$waits`.
#[rustfmt::skip]
macro_rules! bitmaps {
    ($p:literal $q:literal $r:literal $s:literal $waits:literal $log:tt) => {
        concat!(
            // Bit 14 of the address in all bits of s: it lies in the upper half, whose runs come after those of the lower.
            "vpslld zmm", $s, ", zmm", $p, ", 31 - 14\n",
            "vpsrad zmm", $s, ", zmm", $s, ", 31\n",
            "vpsrld zmm", $r, ", zmm", $q, ", 7\n",
            "vpternlogd zmm", $q, ", zmm", $s, ", dword ptr [{lanes}]{{1to16}}, 0x80\n",
            scale!($log, $q),
            // The bitmap of the half, eight at a time.
            "vpsubd zmm", $s, ", zmm", $r, ", zmm", $s, "\n",
            "vpslld zmm", $r, ", zmm", $r, ", 3\n",
            "vpaddd zmm", $q, ", zmm", $q, ", zmm", $r, "\n",
            "vmovdqa32 ", $waits, ", zmm", $q, "\n",
            "vextracti64x4 ymm", $r, ", zmm", $s, ", 1\n",
            "kmovw k1, k3\n",
            "kmovw k2, k3\n",
            "vpgatherdq zmm", $q, "{{k1}}, [{blocks} + 8*ymm", $s, "]\n",
            "vpgatherdq zmm", $s, "{{k2}}, [{blocks} + 8*ymm", $r, "]",
        )
    };
}

/// Makes the places of leaves in `zmm$q`, of these bitmaps.
#[rustfmt::skip]
macro_rules! ranks {
    ($p:literal $q:literal $r:literal $s:literal $waits:literal $log:tt) => {
        concat!(
            // Shifted left to end with the slot: by 63 less bits 8 to 13 of the address.
            "vpsrld zmm", $p, ", zmm", $p, ", 8\n",
            "vpandnd zmm", $p, ", zmm", $p, ", dword ptr [{lanes} + 4]{{1to16}}\n",
            "vpmovzxdq zmm", $r, ", ymm", $p, "\n",
            "vextracti64x4 ymm", $p, ", zmm", $p, ", 1\n",
            "vpmovzxdq zmm", $p, ", ymm", $p, "\n",
            "vpsllvq zmm", $q, ", zmm", $q, ", zmm", $r, "\n",
            "vpsllvq zmm", $s, ", zmm", $s, ", zmm", $p, "\n",
            "vpopcntq zmm", $q, ", zmm", $q, "\n",
            "vpopcntq zmm", $s, ", zmm", $s, "\n",
            "vpmovqd ymm", $q, ", zmm", $q, "\n",
            "vpmovqd ymm", $s, ", zmm", $s, "\n",
            "vinserti64x4 zmm", $q, ", zmm", $q, ", ymm", $s, ", 1\n",
            scale!($log, $q),
            "vpaddd zmm", $q, ", zmm", $q, ", ", $waits,
        )
    };
}

/// Counts `zmm$q` in bytes instead of leaves of `1 << $log`.
#[rustfmt::skip]
macro_rules! scale {
    ("0", $q:literal) => { "" };
    ($log:tt, $q:literal) => { concat!("vpslld zmm", $q, ", zmm", $q, ", ", $log, "\n") };
}

/// Reads the four bytes that end with each leaf, at the places in `zmm$q`, into `zmm$p`: a leaf's upper part. They lie in its own
/// block, as bitmaps come before leaves.
#[rustfmt::skip]
macro_rules! leaves {
    ($p:literal $q:literal) => {
        concat!(
            "kmovw k1, k3\n",
            "vpgatherdd zmm", $p, "{{k1}}, [{blocks} + zmm", $q, " + 12]",
        )
    };
}

/// Makes answers of those in `zmm$p`.
#[rustfmt::skip]
macro_rules! answers {
    (bytes, $p:literal $q:literal) => {
        concat!("vpsrld zmm", $p, ", zmm", $p, ", 24")
    };
    (shorts, $p:literal $q:literal) => {
        concat!(
            "vpsrld zmm", $q, ", zmm", $p, ", 16\n",
            "kmovw k1, k3\n",
            "vpgatherdd zmm", $p, "{{k1}}, [{palette} + 4*zmm", $q, "]",
        )
    };
    (words, $p:literal $q:literal) => { "" };
}

/// Writes answers, and says in bits `16 * $at` on of `escapes` which of them lead deeper.
#[rustfmt::skip]
macro_rules! store {
    ($at:tt $p:literal $escape:literal) => {
        concat!(
            "vmovdqu32 [{out} + 64 * ", $at, "], zmm", $p, "\n",
            "vpcmpeqd k1, zmm", $p, ", dword ptr [{lanes} + ", $escape, "]{{1to16}}\n",
            collect!($at),
        )
    };
}

#[rustfmt::skip]
macro_rules! collect {
    (0) => { "kmovw {escapes:e}, k1" };
    ($at:tt) => { concat!("kmovw {more:e}, k1\n", "shl {more}, 16 * ", $at, "\n", "or {escapes}, {more}") };
}

/// A function that answers addresses, sixteen for each group of names and registers, by the leaves, of `1 << $log` bytes, of
/// their packed blocks. It tells which lead deeper.
///
/// All groups go through one step before the next, as a CPU does not look far beyond gathers that wait for others.
macro_rules! packed {
    ($(#[$doc:meta])* $name:ident, $count:literal, $answers:ident $log:tt $escape:literal $(, $palette:ident)? $([$waits_in:ident])?;
     $($at:tt: $a:ident $b:ident $p:literal $q:literal $r:literal $s:literal $waits:literal),*) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = "avx2")]
        pub(super) fn $name<R: Roots<Block = PackedRef>, A: Copy + Into<u32>>(
            self,
            region: &Region<R>,
            $($palette: &[AtomicU32; 65536],)?
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
        ) -> u64 {
            const { assert!(R::ROOT_BITS == 17) };
            $(let Sixteen([$a, $b]) = Sixteen::new(&addrs.as_chunks().0[$at]);)*
            $(let mut $waits_in = MaybeUninit::<Aligned<[u32; $count]>>::uninit();)?
            let escapes: u64;
            // SAFETY: the CPU has the instructions. As many words are written to `out`, and to `waits`, as they have elements;
            // those of `out` have that size and any value. An index has the ROOT_BITS bits that there are root words for.
            // A block starts with two bitmaps of 8 bytes. A leaf is one of a block or, for a reader that is late, lies
            // within the bytes that the mapping has beyond its blocks; the palette has an entry for each. References have
            // 25 bits of units of 8 bytes, so places fit 32 bits.
            unsafe {
                asm!(
                    "kxnorw k3, k3, k3",
                    $(join!($a $b $p),)*
                    $(roots!($p $q $r),)*
                    $(bitmaps!($p $q $r $s $waits $log),)*
                    $(ranks!($p $q $r $s $waits $log),)*
                    $(leaves!($p $q),)*
                    $(answers!($answers, $p $q),)*
                    $(store!($at $p $escape),)*
                    $($a = in(ymm_reg) $a, $b = in(ymm_reg) $b,)*
                    roots = in(reg) region.roots_base(),
                    blocks = in(reg) region.blocks_base(),
                    $($palette = in(reg) $palette.as_ptr(),)?
                    lanes = in(reg) &raw const LANES,
                    $($waits_in = in(reg) $waits_in.as_mut_ptr(),)?
                    out = in(reg) out.as_mut_ptr(),
                    escapes = out(reg) escapes,
                    more = out(reg) _,
                    out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _,
                    out("zmm22") _, out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
                    out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _, out("k1") _, out("k2") _, out("k3") _,
                    options(nostack),
                );
            }
            escapes
        }
    };
}

/// The two functions that differ in how many addresses they answer.
macro_rules! packed_widths {
    ($(#[$doc:meta])* $name32:ident $name64:ident, $answers:ident $log:tt $escape:literal $(, $palette:ident)?) => {
        packed!(
            $(#[$doc])*
            $name32, 32, $answers $log $escape $(, $palette)?;
            0: a0 b0 "16" "17" "18" "19" "zmm24",
            1: a1 b1 "20" "21" "22" "23" "zmm25"
        );
        packed!(
            $(#[$doc])*
            $name64, 64, $answers $log $escape $(, $palette)? [waits];
            0: a0 b0 "16" "17" "18" "19" "[{waits}]",
            1: a1 b1 "20" "21" "22" "23" "[{waits} + 64]",
            2: a2 b2 "24" "25" "26" "27" "[{waits} + 128]",
            3: a3 b3 "28" "29" "30" "31" "[{waits} + 192]"
        );
    };
}

impl Avx512 {
    packed_widths!(
        /// By leaves that index the palette, which are the answer.
        packed_bytes_32 packed_bytes_64, bytes "0" "8"
    );
    packed_widths!(
        /// By leaves that index the wide palette.
        packed_shorts_32 packed_shorts_64, shorts "1" "12", palette
    );
    packed_widths!(
        /// By leaves that are next hops.
        packed_words_32 packed_words_64, words "2" "12"
    );
}

const _: () = assert!(crate::tables::ESCAPE_WORD == u32::MAX && size_of::<Option<NextHop>>() == 4);
