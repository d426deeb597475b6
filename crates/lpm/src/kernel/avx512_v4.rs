//! IPv4 lookups of 128, 64 or 32 addresses at once, where there is AVX-512, and bursts of these. Assembly for the reasons that
//! [`super::avx512`] gives, and in one piece for each number: a CPU has room for about 200 loads under way, of which 32 lookups
//! are 64. Each one beside, of a constant or of what was saved, is one of the next burst that has to wait: 16 more
//! take a burst of 32 a twelfth longer, 40 instructions that load nothing no time at all.

use core::arch::asm;
use core::arch::x86_64::{__m256i, _mm256_setr_epi32};
use core::sync::atomic::{AtomicU32, Ordering};

use super::avx512::Avx512;
use super::{Habit, NextHop, number_to_word, v4_burst_narrow, v4_escapes};
use crate::mem::{Bytes, Region, Roots, arrive};
use crate::tables::{ESCAPE_WORD, Tables, Width};
use crate::v4::V4;

/// The longest matches of IPv4 addresses.
#[inline(always)]
pub(super) fn burst<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    habit: &mut Habit,
) {
    // As many as drivers give, without detours.
    if addrs.len() == 32
        && let (Some(addrs), Some(out)) = (addrs.first_chunk(), out.first_chunk_mut())
    {
        return chunk_32(tables, avx512, addrs, out, habit);
    }
    chunks(tables, avx512, addrs, out, habit);
}

#[inline(never)]
fn chunks<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    habit: &mut Habit,
) {
    let count = addrs.len().min(out.len());
    let (addrs, out) = (&addrs[..count], &mut out[..count]);
    macro_rules! chunks {
        ($addrs:ident, $out:ident, $count:literal, $chunk:ident) => {{
            let (chunks, rest) = $addrs.as_chunks::<$count>();
            let (outs, rest_out) = $out.as_chunks_mut::<$count>();
            for (addrs, out) in chunks.iter().zip(outs) {
                $chunk(tables, avx512, addrs, out, habit);
            }
            (rest, rest_out)
        }};
    }
    let (addrs, out) = chunks!(addrs, out, 128, chunk_128);
    let (addrs, out) = chunks!(addrs, out, 64, chunk_64);
    let (addrs, out) = chunks!(addrs, out, 32, chunk_32);
    if !addrs.is_empty() {
        v4_burst_narrow(tables, addrs, out);
    }
}

/// Looks up so many addresses: by the byte per /24 if there is one, else by packed blocks. Each in a function of its own, so that
/// little is saved and restored around it. They have to be compiled for AVX: what lesser instructions write waits for all that
/// was written to the wide registers before.
macro_rules! chunk {
    ($count:literal, $chunk:ident, $by_byte:ident $coarse:ident $flat:ident, $packed:ident $bytes:ident $shorts:ident $words:ident) => {
        #[inline(always)]
        fn $chunk<A: Copy + Into<u32>>(
            tables: &Tables<V4>,
            avx512: Avx512,
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
            habit: &mut Habit,
        ) {
            // SAFETY: `Avx512` is only in use inside `Kernel::Avx2`, which is only made where the CPU has all that the functions
            // are compiled for.
            unsafe {
                match &tables.bytes {
                    None => $packed(tables, avx512, addrs, out),
                    Some(bytes) => $by_byte(tables, avx512, bytes, addrs, out, habit),
                }
            }
        }

        #[inline(never)]
        #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
        fn $by_byte<A: Copy + Into<u32>>(
            tables: &Tables<V4>,
            avx512: Avx512,
            bytes: &Bytes,
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
            habit: &mut Habit,
        ) {
            let deep = if habit.asks() {
                let (deep, asked) = avx512.$coarse(bytes, addrs, out);
                habit.learn(4 * asked <= 3 * $count);
                deep
            } else {
                avx512.$flat(bytes, addrs, out)
            };
            // Few are answered one by one, many together.
            let count = |out: &[_; 16]| avx512.equal(out, u8::MAX.into()).count_ones();
            if deep && out.as_chunks().0.iter().map(count).sum::<u32>() > $count / 8 {
                $packed(tables, avx512, addrs, out);
            } else {
                finish(tables, avx512, addrs, out, deep, true);
            }
        }

        #[inline(never)]
        #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
        fn $packed<A: Copy + Into<u32>>(
            tables: &Tables<V4>,
            avx512: Avx512,
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
        ) {
            let region = &tables.region;
            match (tables.width, &tables.wide_palette) {
                (Width::Byte, _) => {
                    let deep = avx512.$bytes(region, addrs, out);
                    finish(tables, avx512, addrs, out, deep, true);
                }
                (Width::Short, Some(palette)) => {
                    let deep = avx512.$shorts(region, addrs, out, palette);
                    finish(tables, avx512, addrs, out, deep, false);
                }
                (Width::Short, None) => {}
                (Width::Word, _) => {
                    let deep = avx512.$words(region, addrs, out);
                    finish(tables, avx512, addrs, out, deep, false);
                }
            }
        }
    };
}

chunk!(32, chunk_32, by_byte_32 coarse_32 flat_32, packed_32 v4_bytes_32 v4_shorts_32 v4_words_32);
chunk!(64, chunk_64, by_byte_64 coarse_64 flat_64, packed_64 v4_bytes_64 v4_shorts_64 v4_words_64);
chunk!(128, chunk_128, by_byte_128 coarse_128 flat_128, packed_128 v4_bytes_128 v4_shorts_128 v4_words_128);

/// Turns numbers into next hops if they are none yet, and answers what leads deeper if something does.
#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn finish<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    deep: bool,
    numbers: bool,
) {
    arrive();
    if deep || (numbers && !tables.direct.load(Ordering::Relaxed)) {
        finish_others(tables, avx512, addrs, out, numbers);
    }
}

#[cold]
#[inline(never)]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn finish_others<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    numbers: bool,
) {
    let deeper = if numbers { u8::MAX.into() } else { ESCAPE_WORD };
    for (addrs, out) in addrs.as_chunks::<16>().0.iter().zip(out.as_chunks_mut().0) {
        let lanes = avx512.equal(out, deeper);
        if numbers {
            number_to_word(tables, out);
        }
        if lanes != 0 {
            v4_escapes(tables, addrs, out, lanes.into());
        }
    }
}

/// Sixteen addresses in two registers. Not in memory: what was written there in parts cannot be read as a whole at once.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteen<A: Copy + Into<u32>>(addrs: &[A; 16]) -> [__m256i; 2] {
    macro_rules! eight {
        ($($lane:literal)*) => { _mm256_setr_epi32($(addrs[$lane].into().cast_signed()),*) }
    }
    [eight!(0 1 2 3 4 5 6 7), eight!(8 9 10 11 12 13 14 15)]
}

const _: () = assert!(V4::ROOT_BITS == 19 && ESCAPE_WORD == u32::MAX && size_of::<Option<NextHop>>() == 4);

/// The whole register that starts with an operand.
macro_rules! z {
    ($register:ident) => {
        concat!("{", stringify!($register), ":z}")
    };
}

/// What one asks of a byte table: `$count` addresses, sixteen in each pair of registers.
macro_rules! flat {
    ($flat:ident $coarse:ident, $count:literal, $($at:literal $a:ident $b:ident)*) => {
        /// Puts the bytes per /24 of addresses into `out`; answers whether one is 255.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $flat<A: Copy + Into<u32>>(self, bytes: &Bytes, addrs: &[A; $count], out: &mut [Option<NextHop>; $count]) -> bool {
            let (sixteens, _) = addrs.as_chunks();
            $(let [$a, $b] = sixteen(&sixteens[$at]);)*
            let deep: u32;
            // SAFETY: the CPU has the instructions. The gathers read four bytes from an offset of 24 bits on: `Bytes` has 2^24 bytes
            // there and more than three behind them. `$count` words are written to `out`, whose elements have that size and may
            // have any value.
            unsafe {
                asm!(
                    "vpternlogd zmm24, zmm24, zmm24, 255",
                    "vpsrld zmm24, zmm24, 24",
                    "vpxord zmm25, zmm25, zmm25",
                    $(
                        concat!("vinserti64x4 ", z!($a), ", ", z!($a), ", {", stringify!($b), "}, 1"),
                        concat!("vpsrld ", z!($a), ", ", z!($a), ", 8"),
                        concat!("vpxord ", z!($b), ", ", z!($b), ", ", z!($b)),
                        "kxnorw k1, k0, k0",
                        concat!("vpgatherdd ", z!($b), "{{k1}}, [{bytes} + ", z!($a), "]"),
                        concat!("vpandd ", z!($b), ", ", z!($b), ", zmm24"),
                        concat!("vmovdqu32 [{out} + 64*", $at, "], ", z!($b)),
                        concat!("vpmaxud zmm25, zmm25, ", z!($b)),
                    )*
                    "vpcmpeqd k1, zmm25, zmm24",
                    "kmovw {deep:e}, k1",
                    $($a = inout(ymm_reg) $a => _, $b = inout(ymm_reg) $b => _,)*
                    bytes = in(reg) bytes.base(),
                    out = in(reg) out.as_mut_ptr(),
                    deep = lateout(reg) deep,
                    out("zmm24") _, out("zmm25") _, out("k1") _,
                    options(nostack, preserves_flags),
                );
            }
            deep != 0
        }

        /// The same, by the bytes per /16 and, where these are 255, per /24. Answers also how many were.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $coarse<A: Copy + Into<u32>>(
            self,
            bytes: &Bytes,
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
        ) -> (bool, u32) {
            let (sixteens, _) = addrs.as_chunks();
            $(let [$a, $b] = sixteen(&sixteens[$at]);)*
            let (deep, asked): (u32, u32);
            // SAFETY: as above; the first gathers read four bytes from an offset of 16 bits on: from there `Bytes` has 2^16 bytes
            // and three behind them.
            unsafe {
                asm!(
                    "vpternlogd zmm24, zmm24, zmm24, 255",
                    "vpsrld zmm24, zmm24, 24",
                    "vpxord zmm25, zmm25, zmm25",
                    "xor {asked:e}, {asked:e}",
                    $(
                        concat!("vinserti64x4 ", z!($a), ", ", z!($a), ", {", stringify!($b), "}, 1"),
                        concat!("vpsrld zmm26, ", z!($a), ", 16"),
                        concat!("vpsrld ", z!($a), ", ", z!($a), ", 8"),
                        concat!("vpxord ", z!($b), ", ", z!($b), ", ", z!($b)),
                        "kxnorw k1, k0, k0",
                        concat!("vpgatherdd ", z!($b), "{{k1}}, [{coarse} + zmm26]"),
                        concat!("vpandd ", z!($b), ", ", z!($b), ", zmm24"),
                        concat!("vpcmpeqd k1, ", z!($b), ", zmm24"),
                        "kmovw {deep:e}, k1",
                        "popcnt {deep:e}, {deep:e}",
                        "add {asked:e}, {deep:e}",
                        concat!("vpgatherdd ", z!($b), "{{k1}}, [{bytes} + ", z!($a), "]"),
                        concat!("vpandd ", z!($b), ", ", z!($b), ", zmm24"),
                        concat!("vmovdqu32 [{out} + 64*", $at, "], ", z!($b)),
                        concat!("vpmaxud zmm25, zmm25, ", z!($b)),
                    )*
                    "vpcmpeqd k1, zmm25, zmm24",
                    "kmovw {deep:e}, k1",
                    $($a = inout(ymm_reg) $a => _, $b = inout(ymm_reg) $b => _,)*
                    coarse = in(reg) bytes.coarse_base(),
                    bytes = in(reg) bytes.base(),
                    out = in(reg) out.as_mut_ptr(),
                    asked = out(reg) asked,
                    deep = out(reg) deep,
                    out("zmm24") _, out("zmm25") _, out("zmm26") _, out("k1") _,
                    options(nostack),
                );
            }
            (deep != 0, asked)
        }
    };
}

/// A leaf that was read becomes an answer.
macro_rules! answer {
    (bytes $b:ident) => {
        concat!("vpandd ", z!($b), ", ", z!($b), ", zmm30\n")
    };
    (shorts $b:ident) => {
        concat!(
            "vpandd zmm26, ",
            z!($b),
            ", zmm30\n",
            "kxnorw k1, k0, k0\n",
            "vpgatherdd ",
            z!($b),
            "{{k1}}, [{palette} + 4*zmm26]\n",
        )
    };
    (words $b:ident) => {
        ""
    };
}

/// As many leaves become as many bytes.
macro_rules! times {
    (bytes $a:ident) => {
        ""
    };
    (shorts $a:ident) => {
        concat!("vpaddd ", z!($a), ", ", z!($a), ", ", z!($a))
    };
    (words $a:ident) => {
        concat!("vpslld ", z!($a), ", ", z!($a), ", 2")
    };
}

/// Lookups by root words and packed blocks, with leaves of `1 << $log` bytes, which leave `$left` bits of four. In register `$deeper`
/// is the answer that leads deeper.
macro_rules! packed {
    ($kind:ident $log:literal $left:literal $deeper:literal $($palette:ident)?;
        $name:ident, $count:literal, $($at:literal $a:ident $b:ident)*) => {
        /// Puts the answers of packed blocks into `out`; answers whether one leads deeper.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name<A: Copy + Into<u32>>(
            self,
            region: &Region<V4>,
            addrs: &[A; $count],
            out: &mut [Option<NextHop>; $count],
            $($palette: &[AtomicU32; 65536],)?
        ) -> bool {
            let (sixteens, _) = addrs.as_chunks();
            $(let [$a, $b] = sixteen(&sixteens[$at]);)*
            #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^19 root words")]
            let last = region.last_root() as u32;
            let deep: u32;
            // SAFETY: the CPU has the instructions. Root words are indexed by 19 bits and no further than the last one, and each
            // is read as one. Of the lanes whose root word says that there is a block, four bytes are read that start with the
            // leaf, so at most three past the last block, and the mapping goes on for three bytes behind the blocks. The gather
            // takes its 32-bit place, that of the byte after the leaf, for a number with a sign: it is below 2^31, as blocks end
            // a chunk before 2 GiB (`Slab::MOST_CHUNKS`). A leaf that a palette is asked for is cut to as many bits as number
            // its entries. `$count` words are written to `out`, whose elements have that size and may have any value.
            unsafe {
                asm!(
                    // All ones; of these the bits of a leaf, what is left of 32 slots, and the bit of root words that have a block.
                    "vpternlogd zmm31, zmm31, zmm31, 255",
                    concat!("vpsrld zmm30, zmm31, ", $left),
                    "vpsrld zmm29, zmm31, 27",
                    "vpsrld zmm23, zmm31, 31",
                    "vpbroadcastd ymm22, {last:e}",
                    // The first of each pair becomes the place after a leaf in a block, or 0, the second a leaf in the root word.
                    $(
                        concat!("vpsrld ymm25, {", stringify!($a), "}, 32 - 19"),
                        concat!("vpsrld ymm26, {", stringify!($b), "}, 32 - 19"),
                        "vpminud ymm25, ymm25, ymm22",
                        "vpminud ymm26, ymm26, ymm22",
                        // In an order that shuffles within quarters part bitmaps from the rest. The middle quarters change places.
                        "vpunpcklqdq ymm24, ymm25, ymm26",
                        "vpunpckhqdq ymm26, ymm25, ymm26",
                        "vpxord zmm27, zmm27, zmm27",
                        "vpxord zmm28, zmm28, zmm28",
                        "kxnorw k1, k0, k0",
                        "kxnorw k2, k0, k0",
                        "vpgatherdq zmm27{{k1}}, [{roots} + 8*ymm24]",
                        "vpgatherdq zmm28{{k2}}, [{roots} + 8*ymm26]",
                        concat!("vinserti64x4 zmm24, ", z!($a), ", {", stringify!($b), "}, 1"),
                        "vshufi64x2 zmm24, zmm24, zmm24, 0xd8",
                        // Shifted left to end with the slot: by 31 less bits 8 to 12 of the address.
                        "vpsrld zmm24, zmm24, 8",
                        "vpandnd zmm24, zmm24, zmm29",
                        concat!("vshufps ", z!($a), ", zmm27, zmm28, 0x88"),
                        "vshufps zmm27, zmm27, zmm28, 0xdd",
                        concat!("vptestmd k1, ", z!($a), ", zmm23"),
                        concat!("vpsllvd ", z!($a), ", ", z!($a), ", zmm24"),
                        concat!("vpopcntd ", z!($a), ", ", z!($a)),
                        concat!("vpslld zmm24, ", z!($a), ", 3 + ", $log),
                        concat!("vpsrlvd ", z!($b), ", zmm27, zmm24"),
                        times!($kind $a),
                        concat!("vpaddd ", z!($a), "{{k1}}{{z}}, ", z!($a), ", zmm27"),
                    )*
                    "vpxord zmm25, zmm25, zmm25",
                    $(
                        concat!("vptestmd k1, ", z!($a), ", ", z!($a)),
                        concat!("vpgatherdd ", z!($b), "{{k1}}, [{blocks} + ", z!($a), " - (1 << ", $log, ")]"),
                        answer!($kind $b),
                        concat!("vpmaxud zmm25, zmm25, ", z!($b)),
                        concat!("vshufi64x2 ", z!($b), ", ", z!($b), ", ", z!($b), ", 0xd8"),
                        concat!("vmovdqu32 [{out} + 64*", $at, "], ", z!($b)),
                    )*
                    concat!("vpcmpeqd k1, zmm25, zmm", $deeper),
                    "kmovw {deep:e}, k1",
                    $($a = inout(ymm_reg) $a => _, $b = inout(ymm_reg) $b => _,)*
                    last = in(reg) last,
                    roots = in(reg) region.roots_base(),
                    blocks = in(reg) region.blocks_base(),
                    $($palette = in(reg) $palette.as_ptr(),)?
                    out = in(reg) out.as_mut_ptr(),
                    deep = lateout(reg) deep,
                    out("zmm22") _, out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _, out("zmm28") _,
                    out("zmm29") _, out("zmm30") _, out("zmm31") _, out("k1") _, out("k2") _,
                    options(nostack, preserves_flags),
                );
            }
            deep != 0
        }
    };
}

impl Avx512 {
    /// Which words are so.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn equal(self, out: &[Option<NextHop>; 16], word: u32) -> u32 {
        let equal: u32;
        // SAFETY: the CPU has the instructions. Sixteen words are read, which `out` has.
        unsafe {
            asm!(
                "vpbroadcastd zmm24, {word:e}",
                "vpcmpeqd k1, zmm24, [{out}]",
                "kmovw {equal:e}, k1",
                word = in(reg) word,
                out = in(reg) out,
                equal = lateout(reg) equal,
                out("zmm24") _, out("k1") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        equal
    }
}

/// All lookups of some number of addresses.
macro_rules! lookups {
    ($count:literal, $flat:ident $coarse:ident $bytes:ident $shorts:ident $words:ident, $($pairs:tt)*) => {
        impl Avx512 {
            flat!($flat $coarse, $count, $($pairs)*);
            packed!(bytes 0 24 30; $bytes, $count, $($pairs)*);
            packed!(shorts 1 16 31 palette; $shorts, $count, $($pairs)*);
            packed!(words 2 0 31; $words, $count, $($pairs)*);
        }
    };
}

lookups!(32, flat_32 coarse_32 v4_bytes_32 v4_shorts_32 v4_words_32, 0 a0 b0 1 a1 b1);
lookups!(64, flat_64 coarse_64 v4_bytes_64 v4_shorts_64 v4_words_64, 0 a0 b0 1 a1 b1 2 a2 b2 3 a3 b3);
lookups!(
    128, flat_128 coarse_128 v4_bytes_128 v4_shorts_128 v4_words_128,
    0 a0 b0 1 a1 b1 2 a2 b2 3 a3 b3 4 a4 b4 5 a5 b5 6 a6 b6 7 a7 b7
);
