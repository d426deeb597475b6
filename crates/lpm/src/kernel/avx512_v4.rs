//! Bursts of IPv4 addresses where there is AVX-512: 64 or 32 at once, and what is left as on lesser CPUs.

use core::sync::atomic::Ordering;

use super::avx512::{Avx512, Sixteen};
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
    let (addrs, rest) = addrs[..count].as_chunks::<64>();
    let (out, rest_out) = out[..count].as_chunks_mut::<64>();
    for (addrs, out) in addrs.iter().zip(out) {
        // SAFETY: where there is AVX-512 there is all that the function is compiled for.
        unsafe { chunk_64(tables, avx512, addrs, out, habit) };
    }
    let (addrs, rest) = rest.as_chunks::<32>();
    let (out, rest_out) = rest_out.as_chunks_mut::<32>();
    for (addrs, out) in addrs.iter().zip(out) {
        // SAFETY: as before.
        unsafe { chunk_32(tables, avx512, addrs, out, habit) };
    }
    if !rest.is_empty() {
        v4_burst_narrow(tables, rest, rest_out);
    }
}

/// In a function of its own, so that little is saved and restored around it. It has to be compiled for AVX: what lesser
/// instructions write waits for all that was written to the wide registers before.
#[inline(never)]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn chunk_32<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A; 32],
    out: &mut [Option<NextHop>; 32],
    habit: &mut Habit,
) {
    if let Some(bytes) = &tables.bytes {
        let escapes = bytes_chunk(avx512, bytes, addrs, out, habit);
        // Few lanes are answered one by one, many together.
        if escapes.count_ones() <= 4 {
            return finish(tables, addrs, out, escapes.into(), true);
        }
    }
    let escapes = packed_32(tables, avx512, addrs, out);
    finish(tables, addrs, out, escapes, tables.width == Width::Byte);
}

#[inline(never)]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn chunk_64<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A; 64],
    out: &mut [Option<NextHop>; 64],
    habit: &mut Habit,
) {
    if tables.bytes.is_none() {
        let escapes = packed_64(tables, avx512, addrs, out);
        return finish(tables, addrs, out, escapes, tables.width == Width::Byte);
    }
    for (addrs, out) in addrs.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        chunk_32(tables, avx512, addrs, out, habit);
    }
}

/// Turns numbers into next hops if they are none yet, and answers what led deeper.
#[inline(always)]
fn finish<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    escapes: u64,
    numbers: bool,
) {
    arrive();
    if escapes != 0 || (numbers && !tables.direct.load(Ordering::Relaxed)) {
        finish_others(tables, addrs, out, escapes, numbers);
    }
}

#[inline(never)]
fn finish_others<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    escapes: u64,
    numbers: bool,
) {
    if numbers {
        number_to_word(tables, out);
    }
    if escapes != 0 {
        v4_escapes(tables, addrs, out, escapes);
    }
}

#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn packed_64<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A; 64],
    out: &mut [Option<NextHop>; 64],
) -> u64 {
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => avx512.packed_bytes_64(&tables.region, addrs, out),
        (Width::Short, Some(palette)) => avx512.packed_shorts_64(&tables.region, palette, addrs, out),
        (Width::Short, None) => 0,
        (Width::Word, _) => avx512.packed_words_64(&tables.region, addrs, out),
    }
}

#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn packed_32<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    avx512: Avx512,
    addrs: &[A; 32],
    out: &mut [Option<NextHop>; 32],
) -> u64 {
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => avx512.packed_bytes_32(&tables.region, addrs, out),
        (Width::Short, Some(palette)) => avx512.packed_shorts_32(&tables.region, palette, addrs, out),
        (Width::Short, None) => 0,
        (Width::Word, _) => avx512.packed_words_32(&tables.region, addrs, out),
    }
}

/// Reads the byte per /24 for all lanes, the numbers of next hops; answers which of them are to be looked up.
#[inline]
#[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
fn bytes_chunk<A: Copy + Into<u32>>(
    avx512: Avx512,
    bytes: &Bytes,
    addrs: &[A; 32],
    out: &mut [Option<NextHop>; 32],
    habit: &mut Habit,
) -> u32 {
    let ([low, high], [low_out, high_out]) = (addrs.as_chunks().0, out.as_chunks_mut().0) else { return u32::MAX };
    let (low, high) = (Sixteen::new(low), Sixteen::new(high));
    if habit.asks() {
        let (low_lanes, low_asked) = avx512.coarse_bytes(bytes, low, low_out);
        let (high_lanes, high_asked) = avx512.coarse_bytes(bytes, high, high_out);
        habit.learn(low_asked.count_ones() + high_asked.count_ones() <= 24);
        return low_lanes | high_lanes << 16;
    }
    avx512.bytes(bytes, low, low_out) | avx512.bytes(bytes, high, high_out) << 16
}
