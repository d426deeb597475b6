//! Split virtqueues (Virtio 1.2, section 2.7).

use super::ledger::{Ledger, Used};
use super::{Area, Buffer, Fault, Layout, Virtqueue, passes};
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
    table: NonNull<AtomicU64>,
    avail: NonNull<AtomicU16>,
    used: NonNull<AtomicU16>,
    mask: u16,
    ledger: Ledger,
    /// Where the next entry of the available ring goes.
    next_avail: u16,
    /// The index that the device was shown last.
    published: u16,
    /// The next entry of the used ring to be read.
    next_used: u16,
    /// The device's used index, as last read and checked.
    device_used: u16,
    /// Entries of the used ring that may still come: available ones that were not seen used.
    outstanding: u16,
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
            ledger: Ledger::new(layout.size, in_order),
            next_avail: 0,
            published: 0,
            next_used: 0,
            device_used: 0,
            outstanding: 0,
            used_event: event_idx.then_some(0),
            armed: false,
            _area: area,
        };
        if event_idx {
            ring.set_used_event(u16::MAX);
        } else {
            ring.avail(0).store(NO_INTERRUPT.to_le(), Ordering::Relaxed);
        }
        ring
    }

    /// Half word `index` of the available ring: flags, idx, entries, `used_event`.
    #[inline(always)]
    fn avail(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index <= usize::from(self.mask) + 3, "within the available ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.avail.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Half word `index` of the used ring: flags, idx, entries of four, `avail_event`.
    #[inline(always)]
    fn used_half(&self, index: usize) -> &AtomicU16 {
        debug_assert!(index <= 4 * usize::from(self.mask) + 7, "within the used ring");
        // SAFETY: all callers stay within the area's half words.
        let place = unsafe { self.used.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Word `word` (0 the id, 1 the length) of entry `index` of the used ring.
    #[inline(always)]
    fn used_word(&self, index: u16, word: usize) -> u32 {
        let place: NonNull<AtomicU32> = NonNull::from(self.used_half(2 + 4 * usize::from(index & self.mask))).cast();
        // SAFETY: an entry is two words, and the index is masked.
        let place = unsafe { place.add(word) };
        // SAFETY: the ring begins at a multiple of 4, and entries 4 bytes behind, so words are aligned.
        u32::from_le(unsafe { place.as_ref() }.load(Ordering::Relaxed))
    }

    /// Writes descriptor `id`.
    #[inline(always)]
    fn write(&self, id: u16, address: u64, rest: u64) {
        let index = 2 * usize::from(id & self.mask);
        // SAFETY: masked, so within the table.
        let low = unsafe { self.table.add(index) };
        // SAFETY: as above.
        let high = unsafe { self.table.add(index + 1) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { low.as_ref() }.store(address.to_le(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { high.as_ref() }.store(rest.to_le(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn offer(&mut self, id: u16) {
        let entry = 2 + usize::from(self.next_avail & self.mask);
        self.avail(entry).store(id.to_le(), Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
        self.outstanding += 1;
    }

    /// Reads the device's index if there is nothing left of what was read before.
    #[inline(always)]
    fn look(&mut self) -> Result<bool, Fault> {
        if self.next_used != self.device_used {
            return Ok(true);
        }
        self.device_used = u16::from_le(self.used_half(1).load(Ordering::Acquire));
        let new = self.device_used.wrapping_sub(self.next_used);
        if new > self.outstanding {
            self.device_used = self.next_used;
            return Err(Fault::UsedIndex);
        }
        Ok(new != 0)
    }

    /// Keeps used_event far ahead, so that the device never comes to it: this driver polls.
    #[inline(always)]
    fn push_used_event(&mut self) {
        if self.used_event.is_some_and(|event| self.next_used.wrapping_sub(event) > 1 << 14) {
            self.used_event = Some(self.next_used);
            self.set_used_event(self.next_used.wrapping_sub(1));
        }
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.avail(0).store(NO_INTERRUPT.to_le(), Ordering::Relaxed);
    }

    fn set_used_event(&self, value: u16) {
        self.avail(usize::from(self.mask) + 3).store(value.to_le(), Ordering::Relaxed);
    }
}

impl Virtqueue for Split {
    #[inline(always)]
    fn size(&self) -> usize {
        usize::from(self.mask) + 1
    }

    #[inline(always)]
    fn free(&self) -> usize {
        self.ledger.free()
    }

    #[inline(always)]
    fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    #[inline(always)]
    fn post(&mut self, buffer: Buffer) -> u16 {
        let id = self.ledger.take();
        let flags = if buffer.writable { WRITE } else { 0 };
        self.write(id, buffer.address, u64::from(buffer.len) | flags << 32);
        self.offer(id);
        id
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let mut links = [(0, None); MOST_LINKS];
        debug_assert!(chain.len() <= MOST_LINKS, "longer than any chain of this driver");
        let first = self.ledger.take_chain(chain.len(), |place, id, next| {
            links[place] = (id, next);
            each(place, id);
        });
        for (buffer, (id, next)) in chain.iter().zip(links) {
            let mut flags = if buffer.writable { WRITE } else { 0 };
            flags |= if next.is_some() { NEXT } else { 0 };
            self.write(id, buffer.address, u64::from(buffer.len) | flags << 32 | u64::from(next.unwrap_or(0)) << 48);
        }
        self.offer(first);
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        self.push_used_event();
        self.avail(1).store(new.to_le(), Ordering::Release);
        self.published = new;
        // The index must be visible before the device's wish is read (section 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.used_event.is_some() {
            let event = u16::from_le(self.used_half(2 + 4 * self.size()).load(Ordering::Relaxed));
            passes(event, new, old)
        } else {
            if self.armed {
                self.disarm();
            }
            u16::from_le(self.used_half(0).load(Ordering::Relaxed)) & NO_NOTIFY == 0
        }
    }

    #[inline(always)]
    fn unpublished(&self) -> usize {
        self.next_avail.wrapping_sub(self.published).into()
    }

    fn has_used(&mut self) -> bool {
        // A fault shows up when the entry is read.
        self.look().unwrap_or(true)
    }

    fn arm(&mut self) {
        if self.used_event.is_some() {
            // Passed once, it lies behind the device until `push_used_event` moves it far ahead again.
            self.used_event = Some(self.next_used);
            self.set_used_event(self.next_used);
        } else {
            self.armed = true;
            self.avail(0).store(0, Ordering::Relaxed);
        }
        // The wish must be visible before the used index is read (section 2.7.14).
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn used(&mut self) -> Result<Option<Used>, Fault> {
        if !self.look()? {
            return Ok(None);
        }
        // In the middle of a batch the entry holds whatever it held; the ledger does not look at it.
        let (id, len) = (self.used_word(self.next_used, 0), self.used_word(self.next_used, 1));
        self.next_used = self.next_used.wrapping_add(1);
        self.outstanding -= 1;
        self.ledger.complete(id, len).map(Some)
    }

    fn after(&self, id: u16) -> u16 {
        self.ledger.after(id)
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

/// The longest chain that this driver makes: see `tx::MOST_SEGMENTS`.
const MOST_LINKS: usize = 64;
