//! Packed virtqueues (Virtio 1.2, section 2.8).

use super::ledger::{Ledger, Used};
use super::{Area, Buffer, Fault, Layout, Virtqueue, passes};
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
    ring: NonNull<AtomicU64>,
    driver_event: NonNull<AtomicU32>,
    device_event: NonNull<AtomicU32>,
    size: u16,
    event_idx: bool,
    /// Interrupts are on.
    armed: bool,
    ledger: Ledger,
    /// Descriptors written so far, free-running; the place in the ring and the wrap counter follow from it.
    avail: u16,
    /// Descriptors seen used so far, likewise.
    used: u16,
    /// Descriptors not shown to the device yet.
    unpublished: u16,
    /// Place and second word of the first of them, which is written last.
    first: Option<(u16, u64)>,
    _area: Area,
}

// SAFETY: the pointers lead into `area`, which is owned and accessed through atomics.
unsafe impl Send for Packed {}

/// Flags, in the place that they have in a descriptor's second word: length in bits 31:0, id in 47:32, flags in 63:48.
const NEXT: u64 = 1 << 48;
const WRITE: u64 = 2 << 48;
const AVAIL: u64 = 1 << 55;
const USED: u64 = 1 << 63;
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
            event_idx,
            armed: false,
            ledger: Ledger::new(size, in_order),
            avail: 0,
            used: 0,
            unpublished: 0,
            first: None,
            _area: area,
        };
        ring.ask(DISABLE, 0);
        ring
    }

    /// Tells the device which interrupts are wanted; `place` is that of a descriptor, with its wrap counter in bit 15.
    fn ask(&self, flags: u32, place: u16) {
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { self.driver_event.as_ref() }.store((flags << 16 | u32::from(place)).to_le(), Ordering::Relaxed);
    }

    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        self.ask(DISABLE, 0);
    }

    #[inline(always)]
    fn word(&self, position: u16, word: usize) -> &AtomicU64 {
        let index = 2 * usize::from(position & (self.size - 1)) + word;
        // SAFETY: masked, so within the ring.
        let place = unsafe { self.ring.add(index) };
        // SAFETY: valid and accessed as an atomic only (type invariant).
        unsafe { place.as_ref() }
    }

    /// Flags that make a descriptor available on the lap that the counter is on.
    #[inline(always)]
    fn available(&self, counter: u16) -> u64 {
        if counter & self.size == 0 { AVAIL } else { USED }
    }

    /// Flags of a used descriptor on that lap.
    #[inline(always)]
    fn done(&self, counter: u16) -> u64 {
        if counter & self.size == 0 { AVAIL | USED } else { 0 }
    }

    #[inline(always)]
    fn write(&mut self, buffer: Buffer, id: u16, next: u64) {
        let position = self.avail;
        let flags = self.available(position) | next | if buffer.writable { WRITE } else { 0 };
        let rest = u64::from(buffer.len) | u64::from(id) << 32 | flags;
        self.word(position, 0).store(buffer.address.to_le(), Ordering::Relaxed);
        if self.first.is_none() {
            self.first = Some((position, rest));
        } else {
            self.word(position, 1).store(rest.to_le(), Ordering::Relaxed);
        }
        self.avail = position.wrapping_add(1);
        self.unpublished += 1;
    }

    /// The second word of the next descriptor to be used, if the device has written it.
    #[inline(always)]
    fn next_done(&self) -> Option<u64> {
        let rest = u64::from_le(self.word(self.used, 1).load(Ordering::Acquire));
        (rest & (AVAIL | USED) == self.done(self.used)).then_some(rest)
    }

    fn wants_notification(&self, posted: u16) -> bool {
        // SAFETY: valid and accessed as an atomic only (type invariant).
        let event = u32::from_le(unsafe { self.device_event.as_ref() }.load(Ordering::Relaxed));
        match event >> 16 & 3 {
            DISABLE => false,
            AT_DESCRIPTOR if self.event_idx => {
                let new = self.avail & (self.size - 1);
                let mut place = (event & 0x7fff) as u16;
                let lap_of_event = event >> 15 & 1 == 1;
                if lap_of_event != (self.avail & self.size == 0) {
                    place = place.wrapping_sub(self.size);
                }
                passes(place, new, new.wrapping_sub(posted))
            }
            _ => true,
        }
    }
}

impl Virtqueue for Packed {
    #[inline(always)]
    fn size(&self) -> usize {
        self.size.into()
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
        self.write(buffer, id, 0);
        id
    }

    fn post_chain(&mut self, chain: &[Buffer], mut each: impl FnMut(usize, u16)) {
        let first = self.ledger.take_chain(chain.len(), |place, id, _| each(place, id));
        for (place, buffer) in chain.iter().enumerate() {
            self.write(*buffer, first, if place + 1 < chain.len() { NEXT } else { 0 });
        }
    }

    #[inline(always)]
    fn publish(&mut self) -> bool {
        let Some((position, rest)) = self.first.take() else { return false };
        self.word(position, 1).store(rest.to_le(), Ordering::Release);
        let posted = std::mem::take(&mut self.unpublished);
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
        self.ledger.mid_batch() || self.next_done().is_some()
    }

    fn arm(&mut self) {
        self.armed = true;
        if self.event_idx {
            let wrap = if self.used & self.size == 0 { 1 << 15 } else { 0 };
            self.ask(AT_DESCRIPTOR, self.used & (self.size - 1) | wrap);
        } else {
            self.ask(ENABLE, 0);
        }
        // The wish must be visible before the next used descriptor is looked for (section 2.8.21.3.1).
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn used(&mut self) -> Result<Option<Used>, Fault> {
        let (id, len) = match self.next_done() {
            #[expect(clippy::cast_possible_truncation, reason = "fields of 16 and 32 bits")]
            Some(rest) => ((rest >> 32) as u32 & 0xffff, rest as u32),
            // Inside a batch only its first descriptor was written; the ledger does not look at these.
            None if self.ledger.mid_batch() => (0, 0),
            None => return Ok(None),
        };
        let used = self.ledger.complete(id, len)?;
        self.used = self.used.wrapping_add(used.count);
        Ok(Some(used))
    }

    fn after(&self, id: u16) -> u16 {
        self.ledger.after(id)
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("size", &self.size).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
