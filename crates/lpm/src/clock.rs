//! How readers stay wait-free while the writer uses memory again.
//!
//! Time is cut into eras, which the writer ends every few hundred or thousand updates. A block unlinked in era `e`
//! may be written again from era `e + 2` on. A reader notes the era, looks up a burst, and looks at the era
//! again: if it moved by at most one, no block it can have seen was written again, and the answers stand.
//! That costs two loads of a line nobody writes for milliseconds. A reader that was held up for longer
//! tries once more and then pins the clock, which keeps the writer from using anything again until it is
//! done: at most three tries, whatever the writer does. Readers that are idle between two lookups take no part and hold nothing
//! up; one that is stopped while it has the clock pinned holds back what is unlinked until the writer moves to other tables.

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
        now == start.0 || (now & !MOVED) - (start.0 & !MOVED) <= 1
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

    /// Writer: says that the tables are frozen. Before the new ones are published: a reader that comes between the two finds
    /// these once more, whose answers still hold, but no reader that has seen the new ones is followed by one that starts here.
    pub(crate) fn set_moved(&self) {
        let era = self.era.load(Ordering::Relaxed);
        self.era.store(era | MOVED, Ordering::Release);
    }
}

/// Counts readers that are about to take what a pointer leads to.
pub(crate) struct Gate(AtomicUsize);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Before the pointer is read. What it leads to stays until the guard is dropped.
    pub(crate) fn enter(&self) -> Visit<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `is_empty`: either that sees the visit, or the visitor sees the pointer set before it.
        fence(Ordering::SeqCst);
        Visit(self)
    }

    /// Writer, after the pointer was replaced: true if no reader is about to take what it led to before.
    pub(crate) fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A reader in a [`Gate`].
pub(crate) struct Visit<'a>(&'a Gate);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A pinned clock.
pub(crate) struct Pin<'a>(&'a Clock);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::Release);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ringway-lpm --release --lib clock`.
#[cfg(all(test, loom))]
mod tests {
    use std::vec;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use loom::thread;

    use super::{Clock, Gate};

    /// Two blocks and the word that links one of them. A block that may be written again becomes `JUNK`.
    struct Table {
        clock: Clock,
        link: AtomicU64,
        blocks: [AtomicU64; 3],
    }

    const JUNK: u64 = u64::MAX;

    impl Table {
        fn new() -> Arc<Self> {
            let blocks = [AtomicU64::new(100), AtomicU64::new(0), AtomicU64::new(0)];
            Arc::new(Self { clock: Clock::new(), link: AtomicU64::new(0), blocks })
        }

        fn read(&self) -> u64 {
            let block = self.link.load(Ordering::Relaxed) as usize;
            super::fence(Ordering::Acquire);
            self.blocks[block].load(Ordering::Relaxed)
        }

        /// Links block 1, then block 2, with an era's end after each, and spoils what the clock lets go.
        fn write(&self) {
            let (mut now, mut before) = (vec![], vec![]);
            for block in 1..3 {
                self.blocks[block].store(100 + block as u64, Ordering::Relaxed);
                self.link.store(block as u64, Ordering::Release);
                now.push(block - 1);
                if self.clock.advance() {
                    for free in core::mem::replace(&mut before, core::mem::take(&mut now)) {
                        self.blocks[free].store(JUNK, Ordering::Relaxed);
                    }
                } else {
                    before.append(&mut now);
                }
            }
        }
    }

    #[test]
    fn an_answer_that_stands_is_no_junk() {
        loom::model(|| {
            let table = Table::new();
            let writer = {
                let table = Arc::clone(&table);
                thread::spawn(move || table.write())
            };
            let start = table.clock.start();
            let answer = table.read();
            if table.clock.stands(start) {
                assert_ne!(answer, JUNK);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_pinned_answer_is_no_junk() {
        loom::model(|| {
            let table = Table::new();
            let writer = {
                let table = Arc::clone(&table);
                thread::spawn(move || table.write())
            };
            let pin = table.clock.pin();
            assert_ne!(table.read(), JUNK);
            drop(pin);
            writer.join().unwrap();
        });
    }

    /// What the pointer leads to is freed twice, and never what a visitor has read from it.
    #[test]
    fn a_visitor_takes_nothing_that_was_freed() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let visitor = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (gate, pointer, blocks) = &*shared;
                    let visit = gate.enter();
                    let at = pointer.load(Ordering::Acquire) as usize;
                    if let Some(block) = blocks.get(at) {
                        assert_ne!(block.load(Ordering::Relaxed), JUNK);
                    }
                    drop(visit);
                })
            };
            let (gate, pointer, blocks) = &*shared;
            let mut left = vec![];
            for next in 1..3 {
                left.push(pointer.swap(next, Ordering::AcqRel) as usize);
                if gate.is_empty() {
                    for at in left.drain(..) {
                        blocks[at].store(JUNK, Ordering::Relaxed);
                    }
                }
            }
            visitor.join().unwrap();
        });
    }
}
