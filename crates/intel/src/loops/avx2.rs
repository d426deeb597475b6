//! The loops for processors with AVX2: four descriptors at a time, in multiples of four. What they do for each is what
//! the trait `Loops` says; the loops one by one finish what is left over or unusual.

use crate::Family;
use crate::desc::{Descriptor, rx, tx};
use crate::loops::{Done, Loops, OneByOne, STEP};
use crate::rx::{Exchange, Infos};
use crate::tx::{Post, usual_words};
use core::arch::x86_64::*;
use mempool::{Packet, Slot};

/// Four descriptors at a time, then one by one; IOVA = address + `delta`.
///
/// # Invariants
///
/// The processor has AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(OneByOne);

impl Avx2 {
    /// The loops for IOVA = address + `delta`.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    pub(crate) unsafe fn new(delta: u64) -> Self {
        Self(OneByOne { delta })
    }

    /// Only the part that goes four at a time.
    #[inline(always)]
    pub(crate) fn fours(self) -> Fours {
        Fours(self)
    }
}

/// [`Avx2`] without what is left over behind whole fours.
#[derive(Clone, Copy)]
pub(crate) struct Fours(Avx2);

impl Loops for Fours {
    #[inline(always)]
    unsafe fn exchange<F: Family, I: Infos>(self, exchange: Exchange<F, I>, top: *const Slot) -> Done {
        // SAFETY: the processor has AVX2 (type invariant); the caller's word for the rest.
        unsafe { exchange.avx2(top, self.0.0.delta) }
    }

    #[inline(always)]
    unsafe fn post<F: Family>(self, post: Post<F>, packets: &[Packet]) -> Done {
        // SAFETY: the processor has AVX2 (type invariant); the caller's word for the rest.
        unsafe { post.avx2(packets, self.0.0.delta) }
    }
}

impl Loops for Avx2 {
    #[inline(always)]
    unsafe fn exchange<F: Family, I: Infos>(self, exchange: Exchange<F, I>, top: *const Slot) -> Done {
        // SAFETY: the caller's word.
        let done = unsafe { self.fours().exchange(exchange, top) };
        // SAFETY: the caller's word.
        unsafe { exchange.one_by_one(top, done, |slot| self.0.iova(slot)) }
    }

    #[inline(always)]
    unsafe fn post<F: Family>(self, post: Post<F>, packets: &[Packet]) -> Done {
        // SAFETY: the caller's word.
        let done = unsafe { self.fours().post(post, packets) };
        // SAFETY: the caller's word.
        unsafe { post.one_by_one(packets, done, |slot| self.0.iova(slot)) }
    }
}

/// Words with this bit inverted compare as signed ones as they do as unsigned ones without.
const SIGN: u64 = 1 << 63;

#[inline(always)]
fn lanes(value: u64) -> i64 {
    value.cast_signed()
}

/// Four descriptors, two in each half, read as the device may be writing them.
///
/// # Safety
///
/// `descriptors` points to four of them, and the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn read_four(descriptors: *const Descriptor) -> (__m256i, __m256i) {
    let (first, second): (__m256i, __m256i);
    // SAFETY: reads 64 bytes of descriptors. It is in assembly because the device writes concurrently: each aligned
    // 8-byte word is read at once, and no load is moved or repeated by the compiler, as with relaxed atomics.
    unsafe {
        core::arch::asm!(
            "vmovdqu {first}, ymmword ptr [{at}]",
            "vmovdqu {second}, ymmword ptr [{at} + 32]",
            at = in(reg) descriptors,
            first = out(ymm_reg) first,
            second = out(ymm_reg) second,
            options(nostack, preserves_flags, readonly),
        );
    }
    // Loads are not reordered on x86; this keeps the compiler from it (acquire).
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Acquire);
    (first, second)
}

/// Stores four pairs of words (low, high), given in the order 0, 2, 1, 3, as four consecutive 16-byte elements.
///
/// # Safety
///
/// `to` points to 64 writable bytes that nobody else accesses, and the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_pairs(to: *mut __m256i, low: __m256i, high: __m256i) {
    let (front, back) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
    // SAFETY: the first 32 of 64 bytes.
    unsafe { _mm256_storeu_si256(to, front) }
    // SAFETY: 32 bytes further.
    let second = unsafe { to.add(1) };
    // SAFETY: the last 32 of 64 bytes.
    unsafe { _mm256_storeu_si256(second, back) }
}

/// Both halves of each word in the other's place.
const HALVES_SWAPPED: i32 = 0b10_11_00_01;
/// 0, 1, 2, 3 from or to 0, 2, 1, 3.
const MIDDLE_SWAPPED: i32 = 0b11_01_10_00;
/// 0, 2, 1, 3 from 3, 2, 1, 0.
const REVERSED_AND_SWAPPED: i32 = 0b00_10_01_11;
/// 0, 1, 2, 3 from 3, 2, 1, 0.
const REVERSED: i32 = 0b00_01_10_11;

/// Two descriptors as two infos, as `Received::info` makes them.
#[inline]
#[target_feature(enable = "avx2")]
fn info_words<F: Family>(descriptors: __m256i, meant: __m256i) -> __m256i {
    let kept = _mm256_and_si256(descriptors, meant);
    let low_errors = lanes(rx::low_errors::<F>());
    if low_errors == 0 {
        return kept;
    }
    _mm256_add_epi64(kept, _mm256_and_si256(kept, _mm256_set_epi64x(low_errors, 0, low_errors, 0)))
}

impl<F: Family, I: Infos> Exchange<F, I> {
    /// See [`Loops::exchange`]; multiples of four.
    ///
    /// # Safety
    ///
    /// As [`Loops::exchange`], and the processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(self, top: *const Slot, delta: u64) -> Done {
        let count = self.count;
        if count < STEP {
            return Done::default();
        }
        let delta = _mm256_set1_epi64x(lanes(delta));
        let mask = _mm256_set1_epi64x(lanes(rx::single_mask::<F>() << 32 | 0xffff));
        let least = _mm256_set1_epi64x(lanes((rx::SINGLE << 32 | 1) ^ SIGN));
        let meta = _mm256_set1_epi64x(lanes(self.meta.0));
        let half_word = _mm256_set1_epi64x(0xffff);
        let limit = _mm256_set1_epi64x(lanes(u64::from(self.limit) ^ SIGN));
        let zero = _mm256_setzero_si256();
        let [low, high] = self.meant.map(lanes);
        let meant = _mm256_broadcastsi128_si256(_mm_set_epi64x(high, low));
        let mut bytes = zero;
        let (mut done, end) = (0, count & !(STEP - 1));
        while done < end {
            // SAFETY: `done + 4 <= count` descriptors.
            let at = unsafe { self.descriptors.add(done) };
            // SAFETY: four descriptors.
            let (front, back) = unsafe { read_four(at) };
            // In the order 0, 2, 1, 3, as all below.
            let high = _mm256_unpackhi_epi64(front, back);
            // Status and errors above, the length in the lowest half word: of a good frame the word less that of one of a byte is
            // below the limit.
            let high = _mm256_shuffle_epi32::<HALVES_SWAPPED>(high);
            let len = _mm256_and_si256(high, half_word);
            let good = _mm256_cmpgt_epi64(limit, _mm256_sub_epi64(_mm256_and_si256(high, mask), least));
            if _mm256_movemask_epi8(good) != -1 {
                break;
            }
            bytes = _mm256_add_epi64(bytes, len);
            if I::WANTED {
                // SAFETY: `done + 4 <= count` infos.
                let info = unsafe { self.infos.add(done) }.cast::<__m256i>();
                let (front, back) = (info_words::<F>(front, meant), info_words::<F>(back, meant));
                // SAFETY: an info is two words, as a descriptor.
                unsafe { _mm256_storeu_si256(info, front) }
                // SAFETY: two infos further.
                let info = unsafe { info.add(1) };
                // SAFETY: the other two.
                unsafe { _mm256_storeu_si256(info, back) }
            }
            // SAFETY: `done + 4 <= count` slots before the top.
            let fresh = unsafe { top.sub(done + STEP) };
            // SAFETY: four slots.
            let new = unsafe { _mm256_loadu_si256(fresh.cast()) };
            // SAFETY: `done + 4 <= count` slots.
            let posted = unsafe { self.posted.add(done) }.cast::<__m256i>();
            // SAFETY: four slots.
            let old = unsafe { _mm256_loadu_si256(posted) };
            let in_order = _mm256_permute4x64_epi64::<REVERSED>(new);
            // SAFETY: four slots; the ring owns the new ones from here.
            unsafe { _mm256_storeu_si256(posted, in_order) }
            let address = _mm256_add_epi64(_mm256_permute4x64_epi64::<REVERSED_AND_SWAPPED>(new), delta);
            // SAFETY: four descriptors, done, so the driver's until the doorbell.
            unsafe { store_pairs(at.cast::<__m256i>().cast_mut(), address, zero) }
            // SAFETY: `done + 4 <= count` places.
            let packets = unsafe { self.packets.add(done) };
            let slots = _mm256_permute4x64_epi64::<MIDDLE_SWAPPED>(old);
            let words = _mm256_or_si256(meta, _mm256_slli_epi64::<16>(len));
            // SAFETY: a packet is its slot and its word, 16 bytes; the ring gave the slots up; the lengths fit.
            unsafe { store_pairs(packets.cast(), slots, words) }
            done += STEP;
        }
        Done { count: done, bytes: sum(bytes) }
    }
}

impl<F: Family> Post<F> {
    /// See [`Loops::post`]; multiples of four.
    ///
    /// # Safety
    ///
    /// As [`Loops::post`], and the processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(self, packets: &[Packet], delta: u64) -> Done {
        let count = packets.len();
        if count < STEP {
            return Done::default();
        }
        let delta = _mm256_set1_epi64x(lanes(delta));
        let command = _mm256_set1_epi64x(lanes(self.command));
        let least = _mm256_set1_epi64x(lanes(self.least ^ SIGN));
        let usual = _mm256_set1_epi64x(lanes(usual_words::<F>() ^ SIGN));
        let half_word = _mm256_set1_epi64x(0xffff);
        let mut bytes = _mm256_setzero_si256();
        let (mut done, end) = (0, count & !(STEP - 1));
        while done < end {
            // SAFETY: `done + 4 <= count` packets.
            let from = unsafe { packets.as_ptr().add(done) }.cast::<__m256i>();
            // SAFETY: two packets of 16 bytes.
            let first = unsafe { _mm256_loadu_si256(from) };
            // SAFETY: `done + 4 <= count` packets.
            let from = unsafe { from.add(1) };
            // SAFETY: two packets.
            let second = unsafe { _mm256_loadu_si256(from) };
            let slots = _mm256_unpacklo_epi64(first, second);
            let words = _mm256_unpackhi_epi64(first, second);
            let len = _mm256_and_si256(_mm256_srli_epi64::<16>(words), half_word);
            let good = _mm256_cmpgt_epi64(usual, _mm256_sub_epi64(words, least));
            if _mm256_movemask_epi8(good) != -1 {
                break;
            }
            bytes = _mm256_add_epi64(bytes, len);
            // SAFETY: `done + 4 <= count` slots.
            let kept = unsafe { self.slots.add(done) }.cast();
            let in_order = _mm256_permute4x64_epi64::<MIDDLE_SWAPPED>(slots);
            // SAFETY: four slots; `Some` of a slot is represented as the slot. The ring owns them from here.
            unsafe { _mm256_storeu_si256(kept, in_order) }
            let address = _mm256_add_epi64(_mm256_add_epi64(slots, delta), _mm256_and_si256(words, half_word));
            let high = _mm256_or_si256(
                _mm256_or_si256(len, command),
                _mm256_slli_epi64::<{ tx::PAYLEN_SHIFT.cast_signed() }>(len),
            );
            // SAFETY: `done + 4 <= count` descriptors.
            let at = unsafe { self.descriptors.add(done) };
            // SAFETY: four free descriptors, the driver's until the doorbell.
            unsafe { store_pairs(at.cast::<__m256i>().cast_mut(), address, high) }
            done += STEP;
        }
        Done { count: done, bytes: sum(bytes) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum(lanes: __m256i) -> u64 {
    let halves = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let sum = _mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves));
    _mm_cvtsi128_si64(sum).cast_unsigned()
}
