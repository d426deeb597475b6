//! Bursts of IPv4 addresses where there is AVX-512: 128, 64 or 32 at once, and what is left as on lesser CPUs.

use core::sync::atomic::Ordering;

use super::avx512::{Avx512, Places, Sixteen};
use super::{Habit, NextHop, number_to_word, v4_burst_narrow, v4_escapes};
use crate::mem::{Bytes, arrive};
use crate::tables::{Tables, Width};
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
    let count = addrs.len().min(out.len());
    let (addrs, rest) = addrs[..count].as_chunks::<16>();
    let (out, rest_out) = out[..count].as_chunks_mut::<16>();
    macro_rules! chunks {
        ($addrs:ident, $out:ident, $count:literal) => {{
            let (addrs, rest) = $addrs.as_chunks::<$count>();
            let (out, rest_out) = $out.as_chunks_mut::<$count>();
            for (addrs, out) in addrs.iter().zip(out) {
                // SAFETY: where there is AVX-512 there is all that the functions are compiled for.
                unsafe {
                    match &tables.bytes {
                        Some(bytes) => bytes_chunk(tables, avx512, bytes, addrs, out, habit),
                        None => packed_chunk(tables, avx512, addrs, out),
                    }
                }
            }
            (rest, rest_out)
        }};
    }
    let (addrs, out) = chunks!(addrs, out, 8);
    let (addrs, out) = chunks!(addrs, out, 4);
    let (addrs, out) = chunks!(addrs, out, 2);
    for (addrs, out) in addrs.iter().zip(out) {
        v4_burst_narrow(tables, addrs, out);
    }
    if !rest.is_empty() {
        v4_burst_narrow(tables, rest, rest_out);
    }
}

/// By the byte per /24, and what it cannot answer by packed blocks. In a function of its own, so that little is saved and
/// restored around it. It has to be compiled for AVX: what lesser instructions write waits for all that was written
/// to the wide registers before.
#[inline(never)]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn bytes_chunk<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    avx512: Avx512,
    bytes: &Bytes,
    addrs: &[[A; 16]; N],
    out: &mut [[Option<NextHop>; 16]; N],
    habit: &mut Habit,
) {
    let mut escapes = [0; N];
    if habit.asks() {
        let mut asked = 0;
        for ((addrs, out), escapes) in addrs.iter().zip(&mut *out).zip(&mut escapes) {
            let (lanes, fine) = avx512.coarse_bytes(bytes, Sixteen::new(addrs), out);
            *escapes = lanes;
            asked += fine.count_ones();
        }
        habit.learn(asked as usize <= 12 * N);
    } else {
        for ((addrs, out), escapes) in addrs.iter().zip(&mut *out).zip(&mut escapes) {
            *escapes = avx512.bytes(bytes, Sixteen::new(addrs), out);
        }
    }
    // Few lanes are answered one by one, many together.
    if escapes.iter().map(|escapes| escapes.count_ones()).sum::<u32>() as usize <= 2 * N {
        finish(tables, addrs, out, &escapes, true);
    } else {
        packed_chunk(tables, avx512, addrs, out);
    }
}

/// By packed blocks, in a function of its own for the same reasons.
#[inline(never)]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn packed_chunk<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[[A; 16]; N],
    out: &mut [[Option<NextHop>; 16]; N],
) {
    let mut escapes = [0; N];
    let region = &tables.region;
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => packed::<0, _, N>(tables, avx512, addrs, |at, places| {
            escapes[at] = avx512.leaf_bytes(region, places, &mut out[at]);
        }),
        (Width::Short, Some(palette)) => packed::<1, _, N>(tables, avx512, addrs, |at, places| {
            escapes[at] = avx512.leaf_shorts(region, palette, places, &mut out[at]);
        }),
        (Width::Short, None) => {}
        (Width::Word, _) => packed::<2, _, N>(tables, avx512, addrs, |at, places| {
            escapes[at] = avx512.leaf_words(region, places, &mut out[at]);
        }),
    }
    finish(tables, addrs, out, &escapes, tables.width == Width::Byte);
}

/// All addresses go through one step before the next, as a CPU does not look far beyond gathers that wait
/// for others.
#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn packed<const LOG: u32, A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[[A; 16]; N],
    mut leaves: impl FnMut(usize, &Places),
) {
    let mut places = [const { Places::uninit() }; N];
    for (addrs, places) in addrs.iter().zip(&mut places) {
        avx512.places::<LOG, _>(&tables.region, Sixteen::new(addrs), places);
    }
    arrive();
    for (at, places) in places.iter().enumerate() {
        leaves(at, places);
    }
}

/// Turns numbers into next hops if they are none yet, and answers what led deeper.
#[inline(always)]
fn finish<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    addrs: &[[A; 16]; N],
    out: &mut [[Option<NextHop>; 16]; N],
    escapes: &[u32; N],
    numbers: bool,
) {
    arrive();
    let any = escapes.iter().fold(0, |any, escapes| any | escapes);
    if any != 0 || (numbers && !tables.direct.load(Ordering::Relaxed)) {
        finish_others(tables, addrs, out, escapes, numbers);
    }
}

#[inline(never)]
fn finish_others<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    addrs: &[[A; 16]; N],
    out: &mut [[Option<NextHop>; 16]; N],
    escapes: &[u32; N],
    numbers: bool,
) {
    if numbers {
        number_to_word(tables, out.as_flattened_mut());
    }
    for ((addrs, out), escapes) in addrs.iter().zip(out).zip(escapes) {
        if *escapes != 0 {
            v4_escapes(tables, addrs, out, u64::from(*escapes));
        }
    }
}
