//! Packed virtqueues (Virtio 1.2, section 2.8).

use super::descriptor_state::{DescriptorState, Used};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::fours::{self, Four};
use super::{Area, Buffer, Fault, Layout, Reader, Virtqueue, Word, Writer, number, passes};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::x86_64::*;
use device::barrier::dma_wmb;
use device::prefetch;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The driver's side of a packed virtqueue. Of what lies in shared memory it reads used descriptors, and goes by one access to
/// each, and the device's wish for notifications.
///
/// # Invariants
///
/// `ring` points to `2 * size` words in `area`, the event structures to one word each; nothing but these atomics accesses
/// them on this side. `size`, that of `state`, is a power of two.
pub(crate) struct Packed {
    ring: NonNull<Word<AtomicU64>>,
    driver_event: NonNull<Word<AtomicU32>>,
    device_event: NonNull<Word<AtomicU32>>,
    size: u16,
    event_idx: bool,
    /// Interrupts are on.
    armed: bool,
    /// Place in the ring and wrap counter follow from its free-running positions.
    state: DescriptorState,
    /// Second word of the first descriptor that the device was not shown yet, which is written last.
    first: u64,
    _area: Area,
}

// SAFETY: the pointers lead into `area`, which is owned and accessed through atomics.
unsafe impl Send for Packed {}

/// What there is beside the length in a descriptor's second word: the id and the flags. Length in bits 31:0, this in 63:32.
const ID: u32 = 0xffff;
const NEXT: u64 = 1 << 16;
const WRITE: u64 = 2 << 16;
const AVAIL: u32 = 1 << 23;
const USED: u32 = 1 << 31;
/// Event suppression flags: notify; do not; notify when a descriptor is passed.
const ENABLE: u32 = 0;
const DISABLE: u32 = 1;
const AT_DESCRIPTOR: u32 = 2;

/// Descriptors of a cache line, and of the shortest burst after which those of the next are asked for.
const OF_A_LINE: usize = 4;
const LEAST_PREFETCHED: u16 = 8;

impl Packed {
    /// An empty ring in zeroed memory.
    pub(crate) fn new(area: Area, layout: Layout, event_idx: bool, in_order: bool) -> Self {
        let (size, driver, device) = (layout.size, layout.driver(), layout.device());
        assert!(size.is_power_of_two() && size <= 1 << 14, "twice the size fits the counters");
        let ring = Self {
            ring: area.at(0, 2 * usize::from(size)),
            driver_event: area.at(driver, 1),
            device_event: area.at(device, 1),
            size,
            event_idx,
            armed: false,
            state: DescriptorState::new(size, in_order),
            first: 0,
            _area: area,
        };
        ring.ask(DISABLE, 0);
        ring
    }

    /// Tells the device which interrupts are wanted; `place` is that of a descriptor, with its wrap counter in bit 15.
    fn ask(&self, flags: u32, place: u16) {
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { self.driver_event.as_ref() }.write(flags << 16 | u32::from(place), Ordering::Relaxed);
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.ask(DISABLE, 0);
    }

    /// The descriptors from a free-running position on.
    #[inline(always)]
    fn from(&self, position: u16) -> Descriptors {
        let place = self.state.place(position);
        // SAFETY: masked, so within the ring.
        let first = unsafe { self.ring.add(2 * place) };
        let first_lap = position & self.size == 0;
        Descriptors {
            first,
            count: usize::from(self.size) - place,
            rest: u64::from(if first_lap { AVAIL } else { USED }) << 32,
            kept: 0,
            used: if first_lap { AVAIL | USED } else { 0 },
        }
    }

    /// Keeps the second word of the first descriptor written back, if the device has been shown all before.
    #[inline(always)]
    fn keep_first(&mut self, to: Descriptors) {
        if self.state.unpublished() == 0 {
            self.first = to.kept;
        } else {
            to.store(0, to.kept, Ordering::Relaxed);
        }
    }

    /// Asks for the lines of the free descriptors behind the last of a burst, for as many again: the device has read what stands there.
    #[inline(always)]
    fn ask_for_next(&self, posted: u16) {
        if posted < LEAST_PREFETCHED {
            return;
        }
        let next = self.from(self.state.avail);
        let count = usize::from(posted).min(next.count).min(self.state.free());
        for n in (0..count).step_by(OF_A_LINE) {
            prefetch::to_write(next.word(2 * n));
        }
    }

    /// Whether the device wants to be notified of the last descriptors, as many as were posted.
    #[inline(always)]
    fn wants_notification(&self, posted: u16) -> bool {
        // SAFETY: valid and accessed as an atomic only (type invariant).
        let event = unsafe { self.device_event.as_ref() }.read_once(Ordering::Relaxed);
        match event >> 16 & 3 {
            DISABLE => false,
            AT_DESCRIPTOR if self.event_idx => self.passes(event, posted),
            _ => true,
        }
    }

    /// Whether the last descriptors passed the one that the event names.
    #[inline(always)]
    fn passes(&self, event: u32, posted: u16) -> bool {
        let new = number(self.state.place(self.state.avail));
        let mut place = (event & 0x7fff) as u16;
        let lap_of_event = event >> 15 & 1 == 1;
        if lap_of_event != (self.state.avail & self.size == 0) {
            place = place.wrapping_sub(self.size);
        }
        passes(place, new, new.wrapping_sub(posted))
    }
}

// SAFETY: the state is of this ring, and runs stay within `most` and the ring.
unsafe impl Virtqueue for Packed {
    type Writer = Descriptors;
    type Reader = Descriptors;

    #[inline(always)]
    fn state(&self) -> &DescriptorState {
        &self.state
    }

    #[inline(always)]
    fn state_mut(&mut self) -> &mut DescriptorState {
        &mut self.state
    }

    #[inline(always)]
    fn writer(&self, writable: bool, len: u32) -> Descriptors {
        let mut to = self.from(self.state.avail);
        to.rest |= u64::from(len) | if writable { WRITE << 32 } else { 0 };
        to
    }

    #[inline(always)]
    fn written(&mut self, to: Descriptors, count: usize) {
        if count > 0 {
            self.keep_first(to);
        }
        self.state.posted(count);
    }

    #[inline(always)]
    fn reader(&mut self, most: usize) -> Result<(Descriptors, usize), Fault> {
        let from = self.from(self.state.used);
        Ok((from, most.min(from.count)))
    }

    #[inline(always)]
    fn may_have_more(&self) -> bool {
        true
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let name = self.state.take_chain(chain.len(), |place, id, _| each(place, id));
        for (place, buffer) in chain.iter().enumerate() {
            let mut to = self.writer(buffer.writable, buffer.len);
            to.rest |= if place + 1 < chain.len() { NEXT << 32 } else { 0 };
            // SAFETY: the ring's next place, for which there is a free descriptor.
            unsafe { to.write(0, name.into(), buffer.address, 0) };
            self.keep_first(to);
            self.state.avail = self.state.avail.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let posted = self.state.unpublished();
        debug_assert!(posted > 0, "no first descriptor");
        // The rest is visible to a device before the first descriptor's flags are; Release alone orders it for processors
        // (section 2.8.21.2.1).
        dma_wmb();
        self.from(self.state.published).store(0, self.first, Ordering::Release);
        self.state.published = self.state.avail;
        self.ask_for_next(posted);
        if self.armed {
            self.disarm();
        }
        // The descriptors must be visible before the device's wish is read (section 2.8.21.3.1).
        fence(Ordering::SeqCst);
        self.wants_notification(posted)
    }

    #[inline(always)]
    fn has_several(&mut self) -> bool {
        self.from(self.state.used.wrapping_add(1)).done().is_some()
    }

    #[inline(always)]
    fn has_used(&mut self) -> bool {
        self.state.is_amid_batch() || self.from(self.state.used).done().is_some()
    }

    fn arm(&mut self) {
        self.armed = true;
        if self.event_idx {
            let wrap = if self.state.used & self.size == 0 { 1 << 15 } else { 0 };
            self.ask(AT_DESCRIPTOR, number(self.state.place(self.state.used)) | wrap);
        } else {
            self.ask(ENABLE, 0);
        }
        // The wish must be visible before the next used descriptor is looked for (section 2.8.21.3.1).
        fence(Ordering::SeqCst);
    }

    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault> {
        let (id, len) = match self.from(self.state.used).done() {
            Some(fields) => fields,
            // Inside a batch only its first descriptor was written; `DescriptorState` does not look at these.
            None if self.state.is_amid_batch() => (0, 0),
            None => return Ok(None),
        };
        let used = self.state.complete(id, len, known)?;
        self.state.used = self.state.used.wrapping_add(used.count);
        Ok(Some(used))
    }
}

/// Descriptors up to the end of a ring that outlives this value, and their flags on this lap (Virtio 1.2, section 2.8.1).
///
/// # Invariants
///
/// `first` points to `2 * count` words of the ring of a [`Packed`].
#[derive(Clone, Copy)]
pub(crate) struct Descriptors {
    first: NonNull<Word<AtomicU64>>,
    count: usize,
    /// Second word of descriptor 0 that makes the shortest buffer available.
    rest: u64,
    /// Flags of a used one.
    used: u32,
    /// Second word of the first, once it is written but for that.
    kept: u64,
}

impl Descriptors {
    #[inline(always)]
    fn place(&self, index: usize) -> NonNull<Word<AtomicU64>> {
        debug_assert!(index < 2 * self.count, "beyond the ring's end");
        // SAFETY: all callers stay within the count.
        unsafe { self.first.add(index) }
    }

    #[inline(always)]
    fn word(&self, index: usize) -> &Word<AtomicU64> {
        // SAFETY: valid and accessed as an atomic only (`Packed`'s invariant).
        unsafe { self.place(index).as_ref() }
    }

    /// Stores the second word of the `n`th descriptor.
    #[inline(always)]
    fn store(&self, n: usize, rest: u64, order: Ordering) {
        self.word(2 * n + 1).write(rest, order);
    }

    /// Id and length of the first, if the device has used it.
    #[inline(always)]
    fn done(&self) -> Option<(u32, u32)> {
        self.fields(self.word(1).read_once(Ordering::Acquire))
    }
}

impl Writer for Descriptors {
    /// All but the second word of the first, which is kept.
    #[inline(always)]
    unsafe fn write(&mut self, n: usize, id: usize, address: u64, more: u32) {
        self.word(2 * n).write(address, Ordering::Relaxed);
        let rest = self.rest.wrapping_add((id as u64) << 32).wrapping_add(more.into());
        if n == 0 {
            self.kept = rest;
        } else {
            self.store(n, rest, Ordering::Relaxed);
        }
    }

    /// The second word of the first is that of another lap, so that the device does not take it for available.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn write_four(&mut self, n: usize, id: usize, addresses: Four, more: Four) {
        let rest = _mm256_add_epi64(more, fours::all(self.rest));
        let mut rest = _mm256_add_epi64(rest, _mm256_slli_epi64::<32>(fours::from(id)));
        if n == 0 {
            self.kept = _mm256_extract_epi64::<0>(rest).cast_unsigned();
            rest = _mm256_xor_si256(rest, _mm256_set_epi64x(0, 0, 0, i64::from(AVAIL | USED) << 32));
        }
        // SAFETY: four descriptors, by the caller's word.
        unsafe { fours::write_pairs(self.place(2 * n).as_ptr(), addresses, rest) };
    }
}

impl Reader for Descriptors {
    /// The second word.
    type Report = u64;

    #[inline(always)]
    unsafe fn at<const LEN: bool>(&self, n: usize) -> u64 {
        self.word(2 * n + 1).read_once(Ordering::Acquire)
    }

    #[inline(always)]
    fn len_of(&self, report: u64, id: usize) -> Option<u32> {
        let expected = self.used.wrapping_add(low_half(id as u64));
        ((low_half(report >> 32) ^ expected) & (AVAIL | USED | ID) == 0).then_some(low_half(report))
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn lens_of_four(&self, n: usize, id: usize) -> Option<Four> {
        // SAFETY: two descriptors, by the caller's word.
        let front = unsafe { fours::read_once(self.place(2 * n)) };
        // SAFETY: the two behind.
        let back = unsafe { fours::read_once(self.place(2 * n + 4)) };
        let words = _mm256_unpackhi_epi64(front, back);
        let expected = _mm256_slli_epi64::<32>(_mm256_add_epi64(fours::from(id), fours::all(self.used.into())));
        let others = _mm256_xor_si256(words, expected);
        let lens = _mm256_and_si256(words, fours::all(u32::MAX.into()));
        fours::none_has(others, u64::from(AVAIL | USED | ID) << 32).then_some(lens)
    }

    #[inline(always)]
    fn fields(&self, report: u64) -> Option<(u32, u32)> {
        let state = low_half(report >> 32);
        (state & (AVAIL | USED) == self.used).then_some((state & ID, low_half(report)))
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn low_half(word: u64) -> u32 {
    word as u32
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("size", &self.size).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
