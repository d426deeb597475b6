//! Split virtqueues (Virtio 1.2, section 2.7).

use super::descriptor_state::{DescriptorState, Id, Used};
use super::{Area, Buffer, Fault, Layout, Passed, Virtqueue, Word, number, passes};
use device::barrier::{dma_rmb, dma_wmb};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// The driver's side of a split virtqueue. Of what lies in shared memory it reads the used ring and its flags only, and
/// each entry once.
///
/// # Invariants
///
/// `table` points to `2 * size` words, `avail` to `size + 3` and `used` to `4 * size + 3` half words in `area`, which
/// nothing but these atomics accesses on this side. `size` is a power of two, and `mask` is `size - 1`.
pub(crate) struct Split {
    table: NonNull<Word<AtomicU64>>,
    avail: NonNull<Word<AtomicU16>>,
    used: NonNull<Word<AtomicU16>>,
    mask: u16,
    state: DescriptorState,
    /// Where the next entry of the available ring goes.
    next_avail: u16,
    /// The index that the device was shown last.
    published: u16,
    /// The next entry of the used ring to be read.
    next_used: u16,
    /// The device's used index, as last read and checked.
    device_used: u16,
    /// Where used_event was last set, if notifications go by ring position.
    used_event: Option<u16>,
    /// Interrupts are on, where they do not go by ring position.
    armed: bool,
    _area: Area,
}

// SAFETY: the pointers lead into `area`, which is owned and accessed through atomics.
unsafe impl Send for Split {}

const NEXT: u64 = 1;
const WRITE: u64 = 2;
/// Flag in the available ring: do not interrupt.
const NO_INTERRUPT: u16 = 1;
/// Flag in the used ring: do not notify.
const NO_NOTIFY: u16 = 1;

impl Split {
    /// An empty ring in zeroed memory.
    pub(crate) fn new(area: Area, layout: Layout, event_idx: bool, in_order: bool) -> Self {
        let size = usize::from(layout.size);
        assert!(layout.size.is_power_of_two(), "a split ring's size is a power of two");
        let ring = Self {
            table: area.at(0, 2 * size),
            avail: area.at(layout.driver(), size + 3),
            used: area.at(layout.device(), 4 * size + 3),
            mask: layout.size - 1,
            state: DescriptorState::new(layout.size, in_order),
            next_avail: 0,
            published: 0,
            next_used: 0,
            device_used: 0,
            used_event: event_idx.then_some(0),
            armed: false,
            _area: area,
        };
        if event_idx {
            ring.set_used_event(u16::MAX);
        } else {
            ring.avail(0).write(NO_INTERRUPT, Ordering::Relaxed);
        }
        ring
    }

    /// Half word `index` of the available ring: flags, idx, entries, `used_event`.
    #[inline(always)]
    fn avail(&self, index: usize) -> &Word<AtomicU16> {
        debug_assert!(index <= usize::from(self.mask) + 3, "within the available ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.avail.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Half word `index` of the used ring: flags, idx, entries of four, `avail_event`.
    #[inline(always)]
    fn used_half(&self, index: usize) -> &Word<AtomicU16> {
        debug_assert!(index <= 4 * usize::from(self.mask) + 7, "within the used ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.used.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Where entry `index` of the used ring begins: id and length.
    #[inline(always)]
    fn used_at(&self, index: u16) -> NonNull<Word<AtomicU32>> {
        // Aligned: the ring begins at a multiple of 4, and entries 4 bytes behind.
        // SAFETY: masked, so within the ring.
        unsafe { self.used.add(2 + 4 * usize::from(index & self.mask)) }.cast()
    }

    /// Where entry `index` of the available ring is.
    #[inline(always)]
    fn avail_at(&self, index: u16) -> NonNull<Word<AtomicU16>> {
        // SAFETY: masked, so within the ring.
        unsafe { self.avail.add(2 + usize::from(index & self.mask)) }
    }

    /// Entries from `index` to the end of a ring.
    #[inline(always)]
    fn until_wrap(&self, index: u16) -> usize {
        self.size() - usize::from(index & self.mask)
    }

    /// The descriptor table.
    #[inline(always)]
    fn table(&self) -> Descriptors {
        Descriptors(self.table)
    }

    /// How many entries of the used ring can be read in one run, up to `most`.
    #[inline(always)]
    fn waiting(&mut self, most: usize) -> Result<usize, Fault> {
        let most = most.min(self.until_wrap(self.next_used));
        if usize::from(self.device_used.wrapping_sub(self.next_used)) < most {
            self.read_index()?;
        }
        Ok(most.min(self.device_used.wrapping_sub(self.next_used).into()))
    }

    /// Reads the device's index if there is nothing left of what was read before.
    #[inline(always)]
    fn refresh_index(&mut self) -> Result<bool, Fault> {
        if self.next_used != self.device_used {
            return Ok(true);
        }
        self.read_index()?;
        Ok(self.next_used != self.device_used)
    }

    #[inline(always)]
    fn read_index(&mut self) -> Result<(), Fault> {
        let index = self.used_half(1).read_once(Ordering::Acquire);
        dma_rmb();
        // It cannot have used more than it was shown.
        if index.wrapping_sub(self.next_used) > self.published.wrapping_sub(self.next_used) {
            return Err(Fault::UsedIndex);
        }
        self.device_used = index;
        Ok(())
    }

    /// Keeps used_event far ahead, so that the device never comes to it: this driver polls.
    #[inline(always)]
    fn advance_used_event(&mut self) {
        if self.used_event.is_some_and(|event| self.next_used.wrapping_sub(event) > 1 << 14) {
            self.used_event = Some(self.next_used);
            self.set_used_event(self.next_used.wrapping_sub(1));
        }
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.avail(0).write(NO_INTERRUPT, Ordering::Relaxed);
    }

    fn set_used_event(&self, value: u16) {
        self.avail(usize::from(self.mask) + 3).write(value, Ordering::Relaxed);
    }
}

impl Split {
    /// [`Virtqueue::reclaim`] where the device does not name the oldest next.
    #[inline(never)]
    fn reclaim_other(&mut self, waiting: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Passed {
        let used = self.used_at(self.next_used);
        // In the middle of a batch the entry holds whatever it held; `DescriptorState` does not look at it.
        // SAFETY: the first of a run.
        let named = unsafe { used_entry(used, 0) };
        let mut done = self.state.reclaim_batch(Some(named), waiting, &mut each);
        if done == 0 && !self.state.is_ordered() {
            let count = waiting.min(self.state.most_reclaimed());
            let mut run = self.state.run();
            while done < count {
                // SAFETY: the run ends before the ring does.
                let (id, len) = unsafe { used_entry(used, done) };
                let Some(id) = run.in_range(id) else { break };
                if !each(done, id.into(), len) {
                    break;
                }
                // SAFETY: a run of at most `most_reclaimed`.
                unsafe { run.free(id, done) };
                done += 1;
            }
            self.state.reclaimed_out_of_order(done);
        }
        self.next_used = self.next_used.wrapping_add(number(done));
        Passed { count: done, more: self.next_used != self.device_used }
    }
}

// SAFETY: runs stay within `most`, and the ids of `DescriptorState` are below the size.
unsafe impl Virtqueue for Split {
    #[inline(always)]
    fn size(&self) -> usize {
        usize::from(self.mask) + 1
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
    fn post(&mut self, most: usize, writable: bool, each: impl FnMut(usize, u16) -> Option<(u64, u32)>) -> usize {
        let flags = if writable { WRITE << 32 } else { 0 };
        let count = most.min(self.state.most_posted()).min(self.until_wrap(self.next_avail));
        let (table, entries) = (self.table(), self.avail_at(self.next_avail));
        let sequential = self.state.is_sequential();
        let run = self.state.run();
        let done = if sequential {
            // SAFETY: a run of at most `most_posted`.
            let id = |n| unsafe { run.nth_next(n) };
            // SAFETY: the run ends before the ring does.
            unsafe { table.write_run(entries, count, flags, id, each) }
        } else {
            // SAFETY: as above.
            let id = |n| unsafe { run.nth_free(n) };
            // SAFETY: as above.
            unsafe { table.write_run(entries, count, flags, id, each) }
        };
        self.state.posted(done);
        self.next_avail = self.next_avail.wrapping_add(number(done));
        done
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let table = self.table();
        let first = self.state.take_chain(chain.len(), |place, id, next| {
            let buffer = &chain[place];
            let flags = if buffer.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let rest = u64::from(buffer.len) | flags << 32 | u64::from(next.unwrap_or(0)) << 48;
            table.write(id, buffer.address, rest);
            each(place, id.number());
        });
        // SAFETY: the first of a run.
        unsafe { entry(self.avail_at(self.next_avail), 0) }.write(first, Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        self.advance_used_event();
        // What was posted is visible to a device before the index is; Release alone orders it for processors (section
        // 2.7.13.3.1).
        dma_wmb();
        self.avail(1).write(new, Ordering::Release);
        self.published = new;
        // The index must be visible before the device's wish is read (section 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.used_event.is_some() {
            let event = self.used_half(2 + 4 * self.size()).read_once(Ordering::Relaxed);
            passes(event, new, old)
        } else {
            if self.armed {
                self.disarm();
            }
            self.used_half(0).read_once(Ordering::Relaxed) & NO_NOTIFY == 0
        }
    }

    #[inline(always)]
    fn unpublished(&self) -> usize {
        self.next_avail.wrapping_sub(self.published).into()
    }

    fn has_used(&mut self) -> bool {
        // A fault shows up when the entry is read.
        self.refresh_index().unwrap_or(true)
    }

    fn arm(&mut self) {
        if self.used_event.is_some() {
            // Passed once, it lies behind the device until `advance_used_event` moves it far ahead again.
            self.used_event = Some(self.next_used);
            self.set_used_event(self.next_used);
        } else {
            self.armed = true;
            self.avail(0).write(0, Ordering::Relaxed);
        }
        // The wish must be visible before the used index is read (section 2.7.14).
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn reclaim(&mut self, most: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault> {
        let waiting = self.waiting(most)?;
        if self.state.is_sequential() {
            let count = waiting.min(self.state.most_reclaimed());
            let (used, oldest) = (self.used_at(self.next_used), self.state.oldest());
            let mut done = 0;
            while done < count {
                // SAFETY: the run ends before the ring does.
                let (id, len) = unsafe { used_entry(used, done) };
                let expected = usize::from(oldest) + done;
                if id as usize != expected || !each(done, expected, len) {
                    break;
                }
                done += 1;
            }
            self.state.reclaimed(done);
            self.next_used = self.next_used.wrapping_add(number(done));
            if done > 0 || waiting == 0 {
                return Ok(Passed { count: done, more: self.next_used != self.device_used });
            }
        }
        Ok(self.reclaim_other(waiting, each))
    }

    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault> {
        if !self.refresh_index()? {
            return Ok(None);
        }
        // In the middle of a batch the entry holds whatever it held; `DescriptorState` does not look at it.
        // SAFETY: the first of a run.
        let (id, len) = unsafe { used_entry(self.used_at(self.next_used), 0) };
        self.next_used = self.next_used.wrapping_add(1);
        self.state.complete(id, len, known).map(Some)
    }

    fn next_in_chain(&self, id: u16) -> u16 {
        self.state.next_in_chain(id)
    }
}

/// The descriptor table of a ring that outlives this value.
#[derive(Clone, Copy)]
struct Descriptors(NonNull<Word<AtomicU64>>);

impl Descriptors {
    /// Writes descriptors of up to `count` buffers, of which `each` says address and length, until it has no more, and names
    /// them in the available ring's entries. Returns how many.
    ///
    /// # Safety
    ///
    /// `entries` is from [`Split::avail_at`], and the ring does not end before `count` entries.
    #[inline(always)]
    unsafe fn write_run(
        self,
        entries: NonNull<Word<AtomicU16>>,
        count: usize,
        flags: u64,
        id: impl Fn(usize) -> Id,
        mut each: impl FnMut(usize, u16) -> Option<(u64, u32)>,
    ) -> usize {
        let mut done = 0;
        while done < count {
            let id = id(done);
            let Some((address, len)) = each(done, id.number()) else { break };
            self.write(id, address, u64::from(len) | flags);
            // SAFETY: the ring does not end before, by the caller's word.
            unsafe { entry(entries, done) }.write(id.number(), Ordering::Relaxed);
            done += 1;
        }
        done
    }

    /// Writes a descriptor of this ring.
    #[inline(always)]
    fn write(self, id: Id, address: u64, rest: u64) {
        // SAFETY: below the size, so within the table.
        let low = unsafe { self.0.add(2 * usize::from(id.number())) };
        // SAFETY: as above.
        let high = unsafe { low.add(1) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        unsafe { low.as_ref() }.write(address, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { high.as_ref() }.write(rest, Ordering::Relaxed);
    }
}

/// The `n`th entry of the available ring from `first` on.
///
/// # Safety
///
/// `first` is from [`Split::avail_at`] of a ring that lives for `'r`, and the ring does not end before that entry.
#[inline(always)]
unsafe fn entry<'r>(first: NonNull<Word<AtomicU16>>, n: usize) -> &'r Word<AtomicU16> {
    // SAFETY: within the ring, by the caller's word.
    let place = unsafe { first.add(n) };
    // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
    unsafe { place.as_ref() }
}

/// Id and length in the `n`th entry of the used ring from `first` on.
///
/// # Safety
///
/// `first` is from [`Split::used_at`], and the ring does not end before that entry.
#[inline(always)]
unsafe fn used_entry(first: NonNull<Word<AtomicU32>>, n: usize) -> (u32, u32) {
    // SAFETY: within the ring, by the caller's word.
    let id = unsafe { first.add(2 * n) };
    // SAFETY: an entry is two words.
    let len = unsafe { id.add(1) };
    // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
    let id = unsafe { id.as_ref() }.read_once(Ordering::Relaxed);
    // SAFETY: as above.
    let len = unsafe { len.as_ref() }.read_once(Ordering::Relaxed);
    (id, len)
}

impl fmt::Debug for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("size", &self.size())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
