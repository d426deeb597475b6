//! Loops that take four descriptors at a time, for processors with AVX2. They go in front of those one by one, which deal with what is
//! left over or unusual. What they are given are descriptors of a ring from `first` on, which is also the id of that, and `slots`, the
//! entries of all its ids; they return for how many of them they did it.

use super::{Reader, Word, Writer};
use crate::rx_header::GoodFrame;
use crate::tx_header::{UsualFrame, clear_header};
use core::arch::x86_64::*;
use mempool::{Packet, Slot};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

/// Four words, in the order 0, 2, 1, 3: that in which pairs are put together and taken apart.
pub(crate) type Four = __m256i;

pub(crate) const STEP: usize = 4;

/// Whether this processor has what the other functions need.
pub(crate) fn are_here() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn all(word: u64) -> Four {
    _mm256_set1_epi64x(word.cast_signed())
}

/// Four numbers from `first` on.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn from(first: usize) -> Four {
    _mm256_add_epi64(all(first as u64), _mm256_set_epi64x(3, 1, 2, 0))
}

/// In the order 0, 1, 2, 3, or from it.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn swapped(words: __m256i) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(words)
}

/// Whether none of the words has any of these bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn none_has(words: __m256i, bits: u64) -> bool {
    _mm256_testz_si256(words, all(bits)) == 1
}

fn words(four: __m256i) -> [usize; STEP] {
    // SAFETY: as many words.
    unsafe { std::mem::transmute(four) }
}

/// The 32 bytes from `at` on, as the device may be writing them.
///
/// # Safety
///
/// They are of a ring, and the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn read_once<A>(at: NonNull<Word<A>>) -> __m256i {
    let words;
    // SAFETY: reads 32 bytes of a ring. It is in assembly because the device writes concurrently: each aligned word is read at once,
    // and the compiler neither moves nor repeats it, as with atomics.
    unsafe {
        core::arch::asm!(
            "vmovdqu {}, ymmword ptr [{}]", out(ymm_reg) words, in(reg) at.as_ptr(), options(nostack, preserves_flags, readonly)
        );
    }
    // x86 keeps loads in order; this keeps the compiler to it.
    compiler_fence(Ordering::Acquire);
    words
}

/// Writes four pairs of words in a row.
///
/// # Safety
///
/// From `at` on there are 64 bytes to write, which may be a ring's, and the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write_pairs<A>(at: *mut A, low: Four, high: Four) {
    let (front, back) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
    // SAFETY: by the caller's word. It is in assembly as the device may read concurrently: each aligned word is written at once.
    unsafe {
        core::arch::asm!(
            "vmovdqu ymmword ptr [{at}], {}", "vmovdqu ymmword ptr [{at} + 32], {}",
            in(ymm_reg) front, in(ymm_reg) back, at = in(reg) at, options(nostack, preserves_flags)
        );
    }
}

/// Takes the slots out of used descriptors, four at a time, for as long as `each` wants them: it is told how many came before, the lengths,
/// the slots, and where these lie.
///
/// # Safety
///
/// The processor has AVX2, and `count` descriptors and as many entries are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn take<R: Reader>(
    used: &R,
    (first, count): (usize, usize),
    slots: *mut Option<Slot>,
    mut each: impl FnMut(usize, Four, __m256i, *const Slot) -> bool,
) -> usize {
    let (mut done, none) = (0, _mm256_setzero_si256());
    while done + STEP <= count {
        // SAFETY: the caller's word.
        let Some(lens) = (unsafe { used.lens_of_four(done, first + done) }) else { break };
        let entries = slots.wrapping_add(first + done);
        // SAFETY: four entries, by the caller's word; a slot is represented as its address, none as 0.
        let four = unsafe { _mm256_loadu_si256(entries.cast()) };
        if !none_has(_mm256_cmpeq_epi64(four, none), u64::MAX) || !each(done, lens, four, entries.cast()) {
            break;
        }
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(entries.cast(), none) };
        done += STEP;
    }
    done
}

/// Makes good frames of a buffer each packets, as [`GoodFrame::packet`] does where headers say nothing of buffers.
///
/// # Safety
///
/// The processor has AVX2, and `count` descriptors, as many slots of the queue's and places for packets are there.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn recv<R: Reader>(
    used: &R,
    run: (usize, usize),
    slots: *mut Option<Slot>,
    packets: *mut Packet,
    good: &GoodFrame,
    beyond: &mut u64,
) -> usize {
    let (least, room, meta) = (all(good.least), all(good.data_room), all(good.meta));
    let mut sum = _mm256_setzero_si256();
    let each = |n, lens, four, from: *const Slot| {
        let more = _mm256_sub_epi64(lens, least);
        // A length below the least makes a negative number.
        let good_lens = _mm256_andnot_si256(more, _mm256_cmpgt_epi64(room, more));
        let kinds = (0..STEP).fold(0, |kinds, n| {
            // SAFETY: there are four.
            let slot = unsafe { *from.wrapping_add(n) };
            // SAFETY: a slot of the queue's, by the caller's word.
            kinds | unsafe { good.kinds(slot) }
        });
        if _mm256_movemask_pd(_mm256_castsi256_pd(good_lens)) != 0b1111 || kinds != 0 {
            return false;
        }
        sum = _mm256_add_epi64(sum, more);
        let (four, metas) = (swapped(four), _mm256_add_epi64(meta, _mm256_slli_epi64::<16>(more)));
        // SAFETY: a packet is its slot and its word; the queue gives the slots up, and the lengths were checked.
        unsafe { write_pairs(packets.wrapping_add(n), four, metas) };
        true
    };
    // SAFETY: the caller's word.
    let done = unsafe { take(used, run, slots, each) };
    *beyond += words(sum).iter().sum::<usize>() as u64;
    done
}

/// Takes slots back, as far as there are any: these are moved out of the entries to the places.
///
/// # Safety
///
/// The processor has AVX2, and `count` descriptors, as many entries and places for slots are there.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn reclaim<R: Reader>(
    used: &R,
    run: (usize, usize),
    slots: *mut Option<Slot>,
    to: *mut Slot,
) -> usize {
    let each = |n, _, four, _: *const Slot| {
        // SAFETY: as many places as descriptors.
        unsafe { _mm256_storeu_si256(to.wrapping_add(n).cast(), four) };
        true
    };
    // SAFETY: the caller's word.
    unsafe { take(used, run, slots, each) }
}

/// Makes descriptors available for the slots before `top`, from there down, whose address for the device is their own and `delta`.
///
/// # Safety
///
/// The processor has AVX2, and `count` free descriptors, as many entries and slots are there. The caller gives up the slots that were taken.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn post<W: Writer>(
    to: &mut W,
    (first, count): (usize, usize),
    slots: *mut Option<Slot>,
    top: *const Slot,
    delta: u64,
) -> usize {
    let (mut done, none) = (0, _mm256_setzero_si256());
    while done + STEP <= count {
        // SAFETY: by the caller's word, so many are before the top.
        let fresh = unsafe { _mm256_loadu_si256(top.wrapping_sub(done + STEP).cast()) };
        let fresh = _mm256_permute4x64_epi64::<0b00_01_10_11>(fresh);
        // SAFETY: four entries, by the caller's word; a slot is represented as its address.
        unsafe { _mm256_storeu_si256(slots.wrapping_add(first + done).cast(), fresh) };
        let addresses = _mm256_add_epi64(swapped(fresh), all(delta));
        // SAFETY: the caller's word.
        unsafe { to.write_four(done, first + done, addresses, none) };
        done += STEP;
    }
    done
}

/// Makes descriptors available for packets that are usual frames, and clears their headers.
///
/// # Safety
///
/// The processor has AVX2, and `count` free descriptors, as many entries and packets are there. `usual` is of the queue's session, and has no
/// limit. The caller forgets the packets that were sent.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn send<W: Writer>(
    to: &mut W,
    (first, count): (usize, usize),
    slots: *mut Option<Slot>,
    packets: *const Packet,
    usual: &UsualFrame,
    beyond: &mut u64,
) -> usize {
    debug_assert_eq!(usual.limit, UsualFrame::NO_LIMIT, "lengths are not looked at");
    let (mut done, mut sum) = (0, _mm256_setzero_si256());
    while done + STEP <= count {
        let from = packets.wrapping_add(done);
        // SAFETY: four packets, of two words each, by the caller's word.
        let [front, back] = unsafe { from.cast::<[__m256i; 2]>().read_unaligned() };
        let (four, metas) = (_mm256_unpacklo_epi64(front, back), _mm256_unpackhi_epi64(front, back));
        let more = _mm256_sub_epi64(metas, all(usual.least));
        if !none_has(more, UsualFrame::REFUSED) {
            break;
        }
        let (heads, in_order) = (_mm256_add_epi64(four, _mm256_and_si256(more, all(0xffff))), swapped(four));
        for (n, head) in [0, 2, 1, 3].into_iter().zip(words(heads)) {
            // SAFETY: there are four.
            let slot = unsafe { (*from.wrapping_add(n)).slot() };
            // SAFETY: the room for a header of a usual frame, which belongs to the packet.
            unsafe { clear_header(slot.as_ptr().with_addr(head)) };
        }
        // SAFETY: four entries, by the caller's word; a slot is represented as its address.
        unsafe { _mm256_storeu_si256(slots.wrapping_add(first + done).cast(), in_order) };
        let (addresses, more) = (_mm256_add_epi64(heads, all(usual.delta)), _mm256_srli_epi64::<16>(more));
        sum = _mm256_add_epi64(sum, more);
        // SAFETY: the caller's word.
        unsafe { to.write_four(done, first + done, addresses, more) };
        done += STEP;
    }
    *beyond += words(sum).iter().sum::<usize>() as u64;
    done
}
