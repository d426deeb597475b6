//! Split virtqueues (Virtio 1.2, section 2.7).

use super::descriptor_state::{DescriptorState, Used};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::fours::{self, Four};
use super::{Area, Buffer, Fault, Layout, Reader, Virtqueue, Word, Writer, number, passes};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::x86_64::*;
use device::barrier::{dma_rmb, dma_wmb};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// The driver's side of a split virtqueue. Of what lies in shared memory it reads the used ring and its flags only, and
/// goes by one access to each entry.
///
/// # Invariants
///
/// `table` points to `2 * size` words, `avail` to `size + 3` and `used` to `4 * size + 3` half words in `area`, which
/// nothing but these atomics accesses on this side. `size`, that of `state`, is a power of two. While the state is simple, each
/// entry of the available ring names the descriptor of its own place, so none is written anew.
pub(crate) struct Split {
    table: NonNull<Word<AtomicU64>>,
    avail: NonNull<Word<AtomicU16>>,
    used: NonNull<Word<AtomicU16>>,
    state: DescriptorState,
    /// The device's used index, as last read and checked.
    device_used: u16,
    /// Where used_event was last set, if notifications go by ring position.
    used_event: Option<u16>,
    /// Notifications go by ring position, or interrupts are on.
    has_interrupts: bool,
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
            state: DescriptorState::new(layout.size, in_order),
            device_used: 0,
            used_event: event_idx.then_some(0),
            has_interrupts: event_idx,
            _area: area,
        };
        for place in 0..size {
            ring.avail(2 + place).write(number(place), Ordering::Relaxed);
        }
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
        debug_assert!(index < self.state.size() + 3, "within the available ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.avail.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Half word `index` of the used ring: flags, idx, entries of four, `avail_event`.
    #[inline(always)]
    fn used_half(&self, index: usize) -> &Word<AtomicU16> {
        debug_assert!(index < 4 * self.state.size() + 3, "within the used ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.used.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Shows the device that entries up to this index are available.
    #[inline(always)]
    fn show(&mut self, index: u16) {
        // What was posted is visible to a device before the index is; Release alone orders it for processors (section
        // 2.7.13.3.1).
        dma_wmb();
        self.avail(1).write(index, Ordering::Release);
        self.state.published = index;
        // The index must be visible before the device's wish is read (section 2.7.13.4.1).
        fence(Ordering::SeqCst);
    }

    /// The number of entries of the used ring that wait to be read, up to `most`.
    #[inline(always)]
    fn waiting(&mut self, most: usize) -> Result<usize, Fault> {
        let mut waiting = usize::from(self.device_used.wrapping_sub(self.state.used));
        if waiting < most {
            waiting = self.read_index()?;
        }
        Ok(most.min(waiting))
    }

    /// Reads the device's index if there is nothing left of what was read before.
    #[inline(always)]
    fn refresh_index(&mut self) -> Result<bool, Fault> {
        if self.may_have_more() {
            return Ok(true);
        }
        self.read_index()?;
        Ok(self.may_have_more())
    }

    /// Reads the device's index. Returns the number of entries that wait.
    #[inline(always)]
    fn read_index(&mut self) -> Result<usize, Fault> {
        let index = self.used_half(1).read_once(Ordering::Acquire);
        dma_rmb();
        let waiting = index.wrapping_sub(self.state.used);
        // It cannot have used more than it was shown.
        if waiting > self.state.published.wrapping_sub(self.state.used) {
            return Err(Fault::UsedIndex);
        }
        self.device_used = index;
        Ok(waiting.into())
    }

    /// Keeps used_event far ahead, so that the device never comes to it: this driver polls.
    #[inline(always)]
    fn advance_used_event(&mut self) {
        if self.used_event.is_some_and(|event| self.state.used.wrapping_sub(event) > 1 << 14) {
            self.used_event = Some(self.state.used);
            self.set_used_event(self.state.used.wrapping_sub(1));
        }
    }

    fn set_used_event(&self, value: u16) {
        self.avail(self.state.size() + 2).write(value, Ordering::Relaxed);
    }
}

// SAFETY: the state is of this ring, and runs stay within `most` and the ring.
unsafe impl Virtqueue for Split {
    type Writer = AvailableEntries;
    type Reader = UsedEntries;

    #[inline(always)]
    fn state(&self) -> &DescriptorState {
        &self.state
    }

    #[inline(always)]
    fn state_mut(&mut self) -> &mut DescriptorState {
        &mut self.state
    }

    #[inline(always)]
    fn writer(&self, writable: bool, len: u32) -> AvailableEntries {
        AvailableEntries {
            table: self.table,
            // SAFETY: the entries begin behind flags and index.
            entries: unsafe { self.avail.add(2) },
            next: self.state.place(self.state.avail),
            rest: u64::from(len) | if writable { WRITE << 32 } else { 0 },
        }
    }

    #[inline(always)]
    fn written(&mut self, _: AvailableEntries, count: usize) {
        self.state.posted(count);
    }

    #[inline(always)]
    fn reader(&mut self, most: usize) -> Result<(UsedEntries, usize), Fault> {
        let waiting = self.waiting(most)?;
        let place = self.state.place(self.state.used);
        // SAFETY: a place of this ring: entries of two words begin behind flags and index.
        let entries = unsafe { self.used.add(2 + 4 * place) };
        // Aligned: the ring begins at a multiple of 4, and entries 4 bytes behind.
        Ok((UsedEntries(entries.cast()), waiting.min(self.state.size() - place)))
    }

    #[inline(always)]
    fn may_have_more(&self) -> bool {
        self.state.used != self.device_used
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let to = self.writer(false, 0);
        let first = self.state.take_chain(chain.len(), |place, id, next| {
            let buffer = &chain[place];
            let flags = if buffer.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
            let rest = u64::from(buffer.len) | flags << 32 | u64::from(next.unwrap_or(0)) << 48;
            // SAFETY: an id of this ring.
            unsafe { to.describe(id.into(), buffer.address, rest) };
            each(place, id);
        });
        // SAFETY: a place of this ring.
        unsafe { to.set_entry(to.next, first) };
        if chain.len() > 1 {
            self.state.skew();
        }
        self.state.avail = self.state.avail.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let (old, new) = (self.state.published, self.state.avail);
        if self.has_interrupts && self.used_event.is_some() {
            self.advance_used_event();
            self.show(new);
            let event = self.used_half(2 + 4 * self.size()).read_once(Ordering::Relaxed);
            return passes(event, new, old);
        }
        if self.has_interrupts {
            self.has_interrupts = false;
            self.avail(0).write(NO_INTERRUPT, Ordering::Relaxed);
        }
        self.show(new);
        self.used_half(0).read_once(Ordering::Relaxed) & NO_NOTIFY == 0
    }

    #[inline(always)]
    fn has_several(&mut self) -> bool {
        // A fault shows up when the entry is read.
        self.waiting(2).map_or(true, |waiting| waiting > 1)
    }

    #[inline(always)]
    fn has_used(&mut self) -> bool {
        // A fault shows up when the entry is read.
        self.refresh_index().unwrap_or(true)
    }

    fn arm(&mut self) {
        if self.used_event.is_some() {
            // Passed once, it lies behind the device until `advance_used_event` moves it far ahead again.
            self.used_event = Some(self.state.used);
            self.set_used_event(self.state.used);
        } else {
            self.has_interrupts = true;
            self.avail(0).write(0, Ordering::Relaxed);
        }
        // The wish must be visible before the used index is read (section 2.7.14).
        fence(Ordering::SeqCst);
    }

    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault> {
        if !self.refresh_index()? {
            return Ok(None);
        }
        let (entries, _) = self.reader(1)?;
        // In the middle of a batch the entry holds whatever it held; `DescriptorState` does not look at it.
        // SAFETY: there is one.
        let (id, len) = unsafe { entries.at::<true>(0) };
        self.state.used = self.state.used.wrapping_add(1);
        self.state.complete(id, len, known).map(Some)
    }
}

/// The descriptor table, and the available ring's entries.
#[derive(Clone, Copy)]
pub(crate) struct AvailableEntries {
    table: NonNull<Word<AtomicU64>>,
    entries: NonNull<Word<AtomicU16>>,
    /// The place of the next entry.
    next: usize,
    /// Second word of the shortest buffer.
    rest: u64,
}

impl AvailableEntries {
    /// Writes a descriptor.
    ///
    /// # Safety
    ///
    /// The ring, which is still there, has it.
    #[inline(always)]
    unsafe fn describe(self, id: usize, address: u64, rest: u64) {
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
    /// The ring, which is still there, has that place.
    #[inline(always)]
    unsafe fn set_entry(self, place: usize, id: u16) {
        // SAFETY: within the ring, by the caller's word.
        let entry = unsafe { self.entries.add(place) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        unsafe { entry.as_ref() }.write(id, Ordering::Relaxed);
    }
}

impl Writer for AvailableEntries {
    #[inline(always)]
    unsafe fn write(&mut self, _: usize, id: usize, address: u64, more: u32) {
        // SAFETY: the caller's word.
        unsafe { self.describe(id, address, self.rest.wrapping_add(more.into())) };
    }

    #[inline(always)]
    unsafe fn name(&mut self, n: usize, id: usize) {
        // SAFETY: the caller's word.
        unsafe { self.set_entry(self.next + n, number(id)) };
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn write_four(&mut self, _: usize, id: usize, addresses: Four, more: Four) {
        // SAFETY: within the table, by the caller's word.
        let first = unsafe { self.table.add(2 * id) };
        let rest = _mm256_add_epi64(more, fours::all(self.rest));
        // SAFETY: four descriptors.
        unsafe { fours::write_pairs(first.as_ptr(), addresses, rest) };
    }
}

/// The used ring's entries from the next on.
#[derive(Clone, Copy)]
pub(crate) struct UsedEntries(NonNull<Word<AtomicU32>>);

impl Reader for UsedEntries {
    /// Id and length.
    type Report = (u32, u32);

    #[inline(always)]
    unsafe fn at<const LEN: bool>(&self, n: usize) -> (u32, u32) {
        // SAFETY: within the ring, by the caller's word.
        let id = unsafe { self.0.add(2 * n) };
        // SAFETY: an entry is two words.
        let len = unsafe { id.add(1) };
        // SAFETY: valid and accessed as an atomic only (`Split`'s invariant).
        let id = unsafe { id.as_ref() }.read_once(Ordering::Relaxed);
        // SAFETY: as above.
        let len = unsafe { len.as_ref() };
        (id, if LEN { len.read_once(Ordering::Relaxed) } else { 0 })
    }

    #[inline(always)]
    fn len_of(&self, (used, len): (u32, u32), id: usize) -> Option<u32> {
        (used as usize == id).then_some(len)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn lens_of_four(&self, n: usize, id: usize) -> Option<Four> {
        // SAFETY: within the ring, by the caller's word.
        let first = unsafe { self.0.add(2 * n) };
        // SAFETY: four entries, the length above the id.
        let entries = fours::swapped(unsafe { fours::read_once(first) });
        let others = _mm256_xor_si256(entries, fours::from(id));
        fours::none_has(others, u32::MAX.into()).then(|| _mm256_srli_epi64::<32>(entries))
    }

    #[inline(always)]
    fn fields(&self, report: (u32, u32)) -> Option<(u32, u32)> {
        Some(report)
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
