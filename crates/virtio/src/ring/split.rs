//! Split virtqueues (Virtio 1.2, section 2.7).

use super::descriptor_state::{DescriptorState, Used};
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
    used_next: u16,
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
            used_next: 0,
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

    /// Where the used ring's entries are.
    #[inline(always)]
    fn used_entries(&self) -> UsedEntries {
        // Aligned: the ring begins at a multiple of 4, and entries 4 bytes behind.
        // SAFETY: the entries begin behind flags and index.
        UsedEntries(unsafe { self.used.add(2) }.cast())
    }

    /// Where descriptors and the available ring's entries are.
    #[inline(always)]
    fn descriptors(&self) -> Descriptors {
        // SAFETY: the entries begin behind flags and index.
        Descriptors { table: self.table, entries: unsafe { self.avail.add(2) } }
    }

    /// Place of a free-running index.
    #[inline(always)]
    fn place(&self, index: u16) -> usize {
        usize::from(index & self.mask)
    }

    /// Id and length in the `n`th entry of the used ring from the next on.
    #[inline(always)]
    fn nth_used(&self, n: usize) -> (u32, u32) {
        // SAFETY: a place of this ring.
        unsafe { self.used_entries().at(self.place(self.used_next.wrapping_add(number(n)))) }
    }

    /// Shows the device that entries up to this index are available.
    #[inline(always)]
    fn show(&mut self, index: u16) {
        // What was posted is visible to a device before the index is; Release alone orders it for processors (section
        // 2.7.13.3.1).
        dma_wmb();
        self.avail(1).write(index, Ordering::Release);
        self.published = index;
        // The index must be visible before the device's wish is read (section 2.7.13.4.1).
        fence(Ordering::SeqCst);
    }

    /// As many were written.
    #[inline(always)]
    fn posted(&mut self, count: usize) -> usize {
        self.state.posted(count);
        self.next_avail = self.next_avail.wrapping_add(number(count));
        count
    }

    /// The number of entries of the used ring that wait to be read, up to `most`.
    #[inline(always)]
    fn waiting(&mut self, most: usize) -> Result<usize, Fault> {
        let mut waiting = usize::from(self.device_used.wrapping_sub(self.used_next));
        if waiting < most {
            waiting = self.read_index()?;
        }
        Ok(most.min(waiting))
    }

    /// Reads the device's index if there is nothing left of what was read before.
    #[inline(always)]
    fn refresh_index(&mut self) -> Result<bool, Fault> {
        if self.used_next != self.device_used {
            return Ok(true);
        }
        self.read_index()?;
        Ok(self.used_next != self.device_used)
    }

    /// Reads the device's index. Returns the number of entries that wait.
    #[inline(always)]
    fn read_index(&mut self) -> Result<usize, Fault> {
        let index = self.used_half(1).read_once(Ordering::Acquire);
        dma_rmb();
        let waiting = index.wrapping_sub(self.used_next);
        // It cannot have used more than it was shown.
        if waiting > self.published.wrapping_sub(self.used_next) {
            return Err(Fault::UsedIndex);
        }
        self.device_used = index;
        Ok(waiting.into())
    }

    /// Keeps used_event far ahead, so that the device never comes to it: this driver polls.
    #[inline(always)]
    fn advance_used_event(&mut self) {
        if self.used_event.is_some_and(|event| self.used_next.wrapping_sub(event) > 1 << 14) {
            self.used_event = Some(self.used_next);
            self.set_used_event(self.used_next.wrapping_sub(1));
        }
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.avail(0).write(NO_INTERRUPT, Ordering::Relaxed);
    }

    fn set_used_event(&self, value: u16) {
        self.avail(usize::from(self.mask) + 3).write(value, Ordering::Relaxed);
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
    fn is_simple(&self) -> bool {
        self.state.is_simple()
    }

    #[inline(always)]
    fn next_free(&self) -> Option<usize> {
        (self.state.is_simple() && self.state.free() > 0).then_some(self.place(self.next_avail))
    }

    #[inline(always)]
    fn post_next(&mut self, address: u64, len: u32, writable: bool) {
        let (to, place) = (self.descriptors(), self.place(self.next_avail));
        let flags = if writable { WRITE << 32 } else { 0 };
        // SAFETY: masked, so a place of this ring.
        unsafe { to.write(place, address, u64::from(len) | flags) };
        // SAFETY: as above.
        unsafe { to.make_available(place, number(place)) };
        self.posted(1);
    }

    #[inline(always)]
    fn next_used(&mut self) -> Result<Option<(usize, u32)>, Fault> {
        if !self.refresh_index()? || !self.state.is_simple() {
            return Ok(None);
        }
        let (place, (id, len)) = (self.place(self.used_next), self.nth_used(0));
        Ok((id as usize == place).then_some((place, len)))
    }

    #[inline(always)]
    fn take_next(&mut self) {
        self.state.reclaimed(1);
        self.used_next = self.used_next.wrapping_add(1);
    }

    #[inline(always)]
    fn has_several(&mut self) -> bool {
        // A fault shows up when the entry is read.
        self.waiting(2) != Ok(1)
    }

    #[inline(always)]
    fn post(&mut self, most: usize, writable: bool, mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>) -> usize {
        let flags = if writable { WRITE << 32 } else { 0 };
        let (to, first) = (self.descriptors(), self.place(self.next_avail));
        let most = if self.state.is_simple() { most.min(self.state.free()) } else { 0 };
        let end = first + most.min(self.size() - first);
        let mut place = first;
        while place < end {
            let Some((address, len)) = each(place - first, place) else { break };
            // SAFETY: the run ends before the ring does.
            unsafe { to.write(place, address, u64::from(len) | flags) };
            // SAFETY: as above.
            unsafe { to.make_available(place, number(place)) };
            place += 1;
        }
        self.posted(place - first)
    }

    #[inline(never)]
    fn post_any(
        &mut self,
        most: usize,
        writable: bool,
        mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>,
    ) -> usize {
        let flags = if writable { WRITE << 32 } else { 0 };
        let to = self.descriptors();
        let mut done = 0;
        while done < most.min(self.state.free()) {
            let id = self.state.nth_free(done);
            let Some((address, len)) = each(done, id.number().into()) else { break };
            // SAFETY: an id of this ring.
            unsafe { to.write(id.number().into(), address, u64::from(len) | flags) };
            // SAFETY: a place of this ring.
            unsafe { to.make_available(self.place(self.next_avail.wrapping_add(number(done))), id.number()) };
            done += 1;
        }
        self.posted(done)
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let to = self.descriptors();
        let first = self.state.take_chain(chain.len(), |place, id, next| {
            let buffer = &chain[place];
            let flags = if buffer.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let rest = u64::from(buffer.len) | flags << 32 | u64::from(next.unwrap_or(0)) << 48;
            // SAFETY: an id of this ring.
            unsafe { to.write(id.number().into(), buffer.address, rest) };
            each(place, id.number());
        });
        // SAFETY: a place of this ring.
        unsafe { to.make_available(self.place(self.next_avail), first) };
        if chain.len() > 1 {
            self.state.skew();
        }
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        if self.used_event.is_some() {
            self.advance_used_event();
            self.show(new);
            let event = self.used_half(2 + 4 * self.size()).read_once(Ordering::Relaxed);
            passes(event, new, old)
        } else {
            self.show(new);
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
            self.used_event = Some(self.used_next);
            self.set_used_event(self.used_next);
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
        let waiting = if self.state.is_simple() { waiting } else { 0 };
        let (used, first) = (self.used_entries(), self.place(self.used_next));
        let end = first + waiting.min(self.size() - first);
        let mut place = first;
        while place < end {
            // SAFETY: the run ends before the ring does.
            let (id, len) = unsafe { used.at(place) };
            if id as usize != place || !each(place - first, place, len) {
                break;
            }
            place += 1;
        }
        let done = place - first;
        self.state.reclaimed(done);
        self.used_next = self.used_next.wrapping_add(number(done));
        Ok(Passed { count: done, more: self.used_next != self.device_used })
    }

    #[inline(never)]
    fn reclaim_any(&mut self, most: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault> {
        let waiting = self.waiting(most)?;
        let mut done = 0;
        if waiting > 0 {
            // In the middle of a batch the entry holds whatever it held; `DescriptorState` does not look at it.
            done = self.state.reclaim_batch(Some(self.nth_used(0)), waiting, &mut each);
        }
        if done == 0 && !self.state.is_ordered() {
            let count = waiting.min(self.state.most_reclaimed());
            while done < count {
                let (id, len) = self.nth_used(done);
                let Some(id) = self.state.in_range(id) else { break };
                if !each(done, id.into(), len) {
                    break;
                }
                self.state.free_nth(done, id);
                done += 1;
            }
            self.state.reclaimed_out_of_order(done);
        }
        self.used_next = self.used_next.wrapping_add(number(done));
        Ok(Passed { count: done, more: self.used_next != self.device_used })
    }

    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault> {
        if !self.refresh_index()? {
            return Ok(None);
        }
        // In the middle of a batch the entry holds whatever it held; `DescriptorState` does not look at it.
        let (id, len) = self.nth_used(0);
        self.used_next = self.used_next.wrapping_add(1);
        self.state.complete(id, len, known).map(Some)
    }

    fn next_in_chain(&self, id: u16) -> u16 {
        self.state.next_in_chain(id)
    }
}

/// Where descriptors and the available ring's entries are, of a ring that outlives this value.
#[derive(Clone, Copy)]
struct Descriptors {
    table: NonNull<Word<AtomicU64>>,
    entries: NonNull<Word<AtomicU16>>,
}

impl Descriptors {
    /// Writes a descriptor.
    ///
    /// # Safety
    ///
    /// The ring has it.
    #[inline(always)]
    unsafe fn write(self, id: usize, address: u64, rest: u64) {
        // SAFETY: within the table, by the caller's word.
        let low = unsafe { self.table.add(2 * id) };
        // SAFETY: as above.
        let high = unsafe { low.add(1) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        unsafe { low.as_ref() }.write(address, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { high.as_ref() }.write(rest, Ordering::Relaxed);
    }

    /// Names a descriptor in the entry at `place`.
    ///
    /// # Safety
    ///
    /// The ring has that place.
    #[inline(always)]
    unsafe fn make_available(self, place: usize, id: u16) {
        // SAFETY: within the ring, by the caller's word.
        let entry = unsafe { self.entries.add(place) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        unsafe { entry.as_ref() }.write(id, Ordering::Relaxed);
    }
}

/// Where the used ring's entries are, of a ring that outlives this value.
#[derive(Clone, Copy)]
struct UsedEntries(NonNull<Word<AtomicU32>>);

impl UsedEntries {
    /// Id and length in the entry at `place`.
    ///
    /// # Safety
    ///
    /// The ring has that place.
    #[inline(always)]
    unsafe fn at(self, place: usize) -> (u32, u32) {
        // SAFETY: within the ring, by the caller's word.
        let id = unsafe { self.0.add(2 * place) };
        // SAFETY: an entry is two words.
        let len = unsafe { id.add(1) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        let id = unsafe { id.as_ref() }.read_once(Ordering::Relaxed);
        // SAFETY: as above.
        let len = unsafe { len.as_ref() }.read_once(Ordering::Relaxed);
        (id, len)
    }
}

impl fmt::Debug for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("size", &self.size())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
