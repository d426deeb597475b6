//! How readers stay wait-free while the writer uses memory again.
//!
//! Time is cut into eras, which the writer ends every few hundred or thousand updates. A block unlinked in era `e`
//! may be written again from era `e + 2` on. A reader notes the era, looks up a burst, and looks at the era
//! again: if it moved by at most one, no block it can have seen was written again, and the answers stand.
//! That costs two loads of a line nobody writes for milliseconds. A reader that was held up for longer
//! tries once more and then pins the clock, which keeps the writer from using anything again until it is
//! done: at most three tries, whatever the writer does. Idle readers take no part and hold nothing up.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The era of one set of tables, shared by its writer and readers.
pub(crate) struct Clock {
    /// The era, and [`MOVED`].
    era: AtomicU64,
    /// Readers that cannot afford another try.
    pins: AtomicUsize,
}

/// Set once the tables are frozen because the writer has moved to larger ones.
const MOVED: u64 = 1 << 63;

/// An era a reader started in.
#[derive(Clone, Copy)]
pub(crate) struct Era(u64);

impl Era {
    /// Whether the tables had been left for others when the reader started.
    #[inline(always)]
    pub(crate) fn has_moved(self) -> bool {
        self.0 & MOVED != 0
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { era: AtomicU64::new(0), pins: AtomicUsize::new(0) }
    }

    /// Starts a burst of lookups.
    #[inline(always)]
    pub(crate) fn start(&self) -> Era {
        Era(self.era.load(Ordering::Acquire))
    }

    /// Whether everything read since `start` stands.
    #[inline(always)]
    pub(crate) fn stands(&self, start: Era) -> bool {
        // Pairs with the fence in `advance`: having read a reused word, this sees the era that allowed it.
        fence(Ordering::Acquire);
        let now = self.era.load(Ordering::Relaxed);
        (now & !MOVED) - (start.0 & !MOVED) <= 1
    }

    /// Keeps the writer from using memory again until the guard is dropped. Nothing needs checking meanwhile.
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.pins.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `advance`: either it sees the pin, or the reads that follow see its era
        // and therefore none of the blocks it is about to free.
        fence(Ordering::SeqCst);
        let _ = self.era.load(Ordering::Acquire);
        Pin(self)
    }

    /// Writer: ends an era. True if blocks unlinked before the era that just ended may be written again.
    pub(crate) fn advance(&self) -> bool {
        let era = self.era.load(Ordering::Relaxed);
        self.era.store(era + 1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.pins.load(Ordering::Acquire) == 0
    }

    /// Writer: says that the tables are frozen and where the new ones are has been published.
    pub(crate) fn set_moved(&self) {
        let era = self.era.load(Ordering::Relaxed);
        self.era.store(era | MOVED, Ordering::Release);
    }
}

/// A pinned clock.
pub(crate) struct Pin<'a>(&'a Clock);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::Release);
    }
}
