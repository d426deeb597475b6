//! Packed virtqueues (Virtio 1.2, section 2.8).

use super::descriptor_state::{DescriptorState, Used};
use super::{Area, Buffer, Fault, Layout, Passed, Virtqueue, Word, number, passes};
use device::barrier::dma_wmb;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The driver's side of a packed virtqueue. Of what lies in shared memory it reads used descriptors, each once and in one
/// access, and the device's wish for notifications.
///
/// # Invariants
///
/// `ring` points to `2 * size` words in `area`, the event structures to one word each; nothing but these atomics accesses
/// them on this side. `size` is a power of two.
pub(crate) struct Packed {
    ring: NonNull<Word<AtomicU64>>,
    driver_event: NonNull<Word<AtomicU32>>,
    device_event: NonNull<Word<AtomicU32>>,
    size: u16,
    /// `size - 1`.
    mask: u16,
    event_idx: bool,
    /// Interrupts are on.
    armed: bool,
    state: DescriptorState,
    /// Descriptors written so far, free-running; the place in the ring and the wrap counter follow from it.
    avail: u16,
    /// Descriptors seen used so far, likewise.
    used: u16,
    /// Descriptors not shown to the device yet.
    unpublished: u16,
    /// Second word of the first of them, which is written last.
    first: u64,
    _area: Area,
}

// SAFETY: the pointers lead into `area`, which is owned and accessed through atomics.
unsafe impl Send for Packed {}

/// What there is beside the length in a descriptor's second word: the id and the flags. Length in bits 31:0, this in 63:32.
const ID: u32 = 0xffff;
const NEXT: u32 = 1 << 16;
const WRITE: u32 = 2 << 16;
const AVAIL: u32 = 1 << 23;
const USED: u32 = 1 << 31;
/// Event suppression flags: notify; do not; notify when a descriptor is passed.
const ENABLE: u32 = 0;
const DISABLE: u32 = 1;
const AT_DESCRIPTOR: u32 = 2;

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
            mask: size - 1,
            event_idx,
            armed: false,
            state: DescriptorState::new(size, in_order),
            avail: 0,
            used: 0,
            unpublished: 0,
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

    /// The place of a free-running position, and the id that a descriptor there has while ids go round in order.
    #[inline(always)]
    fn place(&self, position: u16) -> usize {
        usize::from(position & self.mask)
    }

    /// The descriptors from a free-running position on.
    #[inline(always)]
    fn from(&self, position: u16) -> Descriptors {
        let place = usize::from(position & self.mask);
        // SAFETY: masked, so within the ring.
        let first = unsafe { self.ring.add(2 * place) };
        let first_lap = position & self.size == 0;
        Descriptors {
            first,
            count: usize::from(self.size) - place,
            available: if first_lap { AVAIL } else { USED },
            used: if first_lap { AVAIL | USED } else { 0 },
        }
    }

    /// As many descriptors were written, of which the first has this second word, which is kept back if the device has
    /// been shown all others.
    #[inline(always)]
    fn written(&mut self, to: Descriptors, count: usize, first: u64) {
        if self.unpublished == 0 {
            self.first = first;
        } else if count > 0 {
            to.store(0, first, Ordering::Relaxed);
        }
        self.avail = self.avail.wrapping_add(number(count));
        self.unpublished += number(count);
    }

    /// Passes over as many used descriptors.
    #[inline(always)]
    fn skip_used(&mut self, count: usize) {
        self.used = self.used.wrapping_add(number(count));
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
    #[inline(never)]
    fn passes(&self, event: u32, posted: u16) -> bool {
        let new = self.avail & self.mask;
        let mut place = (event & 0x7fff) as u16;
        let lap_of_event = event >> 15 & 1 == 1;
        if lap_of_event != (self.avail & self.size == 0) {
            place = place.wrapping_sub(self.size);
        }
        passes(place, new, new.wrapping_sub(posted))
    }
}

// SAFETY: runs stay within `most`, and the ids of `DescriptorState` are below the size.
unsafe impl Virtqueue for Packed {
    #[inline(always)]
    fn size(&self) -> usize {
        self.size.into()
    }

    #[inline(always)]
    fn free(&self) -> usize {
        self.state.free()
    }

    #[inline(always)]
    fn in_flight(&self) -> usize {
        self.state.in_flight()
    }

    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.state.is_simple()
    }

    #[inline(always)]
    fn next_free(&self) -> Option<usize> {
        (self.state.is_simple() && self.state.free() > 0).then_some(self.place(self.avail))
    }

    #[inline(always)]
    fn post_next(&mut self, address: u64, len: u32, writable: bool) {
        let to = self.from(self.avail);
        let state = to.available | if writable { WRITE } else { 0 } | u32::from(self.avail & self.mask);
        let mut first = 0;
        to.write(0, address, word(len, state), &mut first);
        self.state.posted(1);
        self.written(to, 1, first);
    }

    #[inline(always)]
    fn next_used(&mut self) -> Result<Option<(usize, u32)>, Fault> {
        let (used, oldest) = (self.from(self.used), self.place(self.used));
        let (state, len) = used.rest(0);
        let expected = used.used | u32::from(number(oldest));
        let is_next = (state ^ expected) & (AVAIL | USED | ID) == 0 && self.state.is_simple();
        Ok(is_next.then_some((oldest, len)))
    }

    #[inline(always)]
    fn take_next(&mut self) {
        self.state.reclaimed(1);
        self.skip_used(1);
    }

    #[inline(always)]
    fn has_several(&mut self) -> bool {
        self.from(self.used.wrapping_add(1)).done(0).is_some()
    }

    #[inline(always)]
    fn post(&mut self, most: usize, writable: bool, mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>) -> usize {
        let to = self.from(self.avail);
        let flags = to.available | if writable { WRITE } else { 0 };
        let id = self.place(self.avail);
        let most = if self.state.is_simple() { most.min(self.state.free()) } else { 0 };
        let count = most.min(to.count);
        let (mut done, mut first) = (0, 0);
        let mut state = word(0, flags | u32::from(number(id)));
        while done < count {
            let Some((address, len)) = each(done, id + done) else { break };
            to.write(done, address, state | u64::from(len), &mut first);
            state += word(0, 1);
            done += 1;
        }
        self.state.posted(done);
        self.written(to, done, first);
        done
    }

    #[inline(never)]
    fn post_any(
        &mut self,
        most: usize,
        writable: bool,
        mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>,
    ) -> usize {
        let to = self.from(self.avail);
        let flags = to.available | if writable { WRITE } else { 0 };
        let count = most.min(self.state.free()).min(to.count);
        let (mut done, mut first) = (0, 0);
        while done < count {
            let id = self.state.nth_free(done).number();
            let Some((address, len)) = each(done, id.into()) else { break };
            to.write(done, address, word(len, flags | u32::from(id)), &mut first);
            done += 1;
        }
        self.state.posted(done);
        self.written(to, done, first);
        done
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let name = self.state.take_chain(chain.len(), |place, id, _| each(place, id.number()));
        for (place, buffer) in chain.iter().enumerate() {
            let to = self.from(self.avail);
            let flags =
                to.available | if buffer.writable { WRITE } else { 0 } | if place + 1 < chain.len() { NEXT } else { 0 };
            let mut first = 0;
            to.write(0, buffer.address, word(buffer.len, flags | u32::from(name)), &mut first);
            self.written(to, 1, first);
        }
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let posted = std::mem::take(&mut self.unpublished);
        if posted == 0 {
            return false;
        }
        // The rest is visible to a device before the first descriptor's flags are; Release alone orders it for processors
        // (section 2.8.21.2.1).
        dma_wmb();
        self.from(self.avail.wrapping_sub(posted)).store(0, self.first, Ordering::Release);
        if self.armed {
            self.disarm();
        }
        // The descriptors must be visible before the device's wish is read (section 2.8.21.3.1).
        fence(Ordering::SeqCst);
        self.wants_notification(posted)
    }

    #[inline(always)]
    fn unpublished(&self) -> usize {
        self.unpublished.into()
    }

    fn has_used(&mut self) -> bool {
        self.state.is_amid_batch() || self.from(self.used).done(0).is_some()
    }

    fn arm(&mut self) {
        self.armed = true;
        if self.event_idx {
            let wrap = if self.used & self.size == 0 { 1 << 15 } else { 0 };
            self.ask(AT_DESCRIPTOR, self.used & self.mask | wrap);
        } else {
            self.ask(ENABLE, 0);
        }
        // The wish must be visible before the next used descriptor is looked for (section 2.8.21.3.1).
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn reclaim(&mut self, most: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault> {
        let used = self.from(self.used);
        let oldest = self.place(self.used);
        let count = if self.state.is_simple() { most.min(used.count) } else { 0 };
        let mut expected = used.used | u32::from(number(oldest));
        let (mut done, mut more) = (0, true);
        while done < count {
            let (state, len) = used.rest(done);
            if (state ^ expected) & (AVAIL | USED | ID) != 0 {
                more = used.is_used(state);
                break;
            }
            if !each(done, oldest + done, len) {
                break;
            }
            done += 1;
            expected += 1;
        }
        self.state.reclaimed(done);
        self.skip_used(done);
        Ok(Passed { count: done, more })
    }

    #[inline(never)]
    fn reclaim_any(&mut self, most: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault> {
        let used = self.from(self.used);
        let done = self.state.reclaim_batch(used.done(0), most, &mut each);
        if done > 0 || self.state.is_ordered() {
            self.skip_used(done);
            return Ok(Passed { count: done, more: true });
        }
        let count = most.min(used.count).min(self.state.most_reclaimed());
        let (mut done, mut more) = (0, true);
        while done < count {
            let Some((id, len)) = used.done(done) else {
                more = false;
                break;
            };
            let Some(id) = self.state.in_range(id) else { break };
            if !each(done, id.into(), len) {
                break;
            }
            self.state.free_nth(done, id);
            done += 1;
        }
        self.state.reclaimed_out_of_order(done);
        self.skip_used(done);
        Ok(Passed { count: done, more })
    }

    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault> {
        let (id, len) = match self.from(self.used).done(0) {
            Some(fields) => fields,
            // Inside a batch only its first descriptor was written; `DescriptorState` does not look at these.
            None if self.state.is_amid_batch() => (0, 0),
            None => return Ok(None),
        };
        let used = self.state.complete(id, len, known)?;
        self.used = self.used.wrapping_add(used.count);
        Ok(Some(used))
    }

    fn next_in_chain(&self, id: u16) -> u16 {
        self.state.next_in_chain(id)
    }
}

/// Descriptors up to the end of a ring that outlives this value, and their flags on this lap (Virtio 1.2, section 2.8.1).
///
/// # Invariants
///
/// `first` points to `2 * count` words of the ring of a [`Packed`].
#[derive(Clone, Copy)]
struct Descriptors {
    first: NonNull<Word<AtomicU64>>,
    count: usize,
    /// Flags that make a descriptor available.
    available: u32,
    /// Flags of a used one.
    used: u32,
}

impl Descriptors {
    #[inline(always)]
    fn word(&self, index: usize) -> &Word<AtomicU64> {
        debug_assert!(index < 2 * self.count, "beyond the ring's end");
        // SAFETY: all callers stay within the count.
        let place = unsafe { self.first.add(index) };
        // SAFETY: valid and accessed as an atomic only (`Packed`'s invariant).
        unsafe { place.as_ref() }
    }

    /// Writes the `n`th descriptor, but of the first one the second word goes to `first`.
    #[inline(always)]
    fn write(&self, n: usize, address: u64, rest: u64, first: &mut u64) {
        self.word(2 * n).write(address, Ordering::Relaxed);
        if n == 0 {
            *first = rest;
        } else {
            self.store(n, rest, Ordering::Relaxed);
        }
    }

    /// Stores the second word of the `n`th descriptor.
    #[inline(always)]
    fn store(&self, n: usize, rest: u64, order: Ordering) {
        self.word(2 * n + 1).write(rest, order);
    }

    /// The two halves of the second word of the `n`th: id and flags, and the length.
    #[inline(always)]
    fn rest(&self, n: usize) -> (u32, u32) {
        halves(self.word(2 * n + 1).read_once(Ordering::Acquire))
    }

    /// Whether these flags say that the device has used the descriptor.
    #[inline(always)]
    fn is_used(&self, state: u32) -> bool {
        state & (AVAIL | USED) == self.used
    }

    /// Id and length of the `n`th, if the device has used it.
    #[inline(always)]
    fn done(&self, n: usize) -> Option<(u32, u32)> {
        let (state, len) = self.rest(n);
        self.is_used(state).then_some((state & ID, len))
    }
}

/// A descriptor's second word.
#[inline(always)]
fn word(len: u32, state: u32) -> u64 {
    u64::from(len) | u64::from(state) << 32
}

/// Id and flags, and the length, of a descriptor's second word.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn halves(rest: u64) -> (u32, u32) {
    ((rest >> 32) as u32, rest as u32)
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("size", &self.size).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
