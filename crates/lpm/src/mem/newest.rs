//! Where readers whose tables were left find the newest.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use once_cell::race::OnceBox;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, Ordering};

use crate::clock::Gate;

/// The newest of several values, of which there is one at a time. Getting it takes as many steps whatever else happens. A reader
/// that is stopped in the middle of them (not one that is idle) holds back what is replaced meanwhile.
///
/// # Invariants
/// * `current` is from `Arc::into_raw`, and holds one count of that value.
/// * A value that was `current` keeps the count it had until the gate was seen empty after it was replaced, or until the last
///   handle is dropped.
pub(crate) struct Newest<T> {
    current: AtomicPtr<T>,
    gate: Gate,
    /// What the writer could not drop any more.
    rest: OnceBox<Vec<Arc<T>>>,
}

// SAFETY: it holds `Arc`s of T, and gives them to all threads that have it.
unsafe impl<T: Send + Sync> Send for Newest<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send + Sync> Sync for Newest<T> {}

impl<T> Newest<T> {
    /// The newest value: a fixed number of steps, no loop, no lock.
    pub(crate) fn get(&self) -> Arc<T> {
        let visit = self.gate.enter();
        let current = self.current.load(Ordering::Acquire).cast_const();
        // SAFETY: it is from `into_raw`, and was `current` when it was read, after the visit began: the publisher keeps its count
        // until it has seen the gate empty after it replaced it, so until this visit ends.
        unsafe { Arc::increment_strong_count(current) };
        drop(visit);
        // SAFETY: the count that was just added becomes this handle's.
        unsafe { Arc::from_raw(current) }
    }
}

impl<T> Drop for Newest<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Acquire).cast_const();
        // SAFETY: it is from `into_raw`, and the count that `current` holds ends here.
        drop(unsafe { Arc::from_raw(current) });
    }
}

impl<T> fmt::Debug for Newest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newest").finish_non_exhaustive()
    }
}

/// The one who says what is newest.
pub(crate) struct Publisher<T> {
    shared: Arc<Newest<T>>,
    /// Replaced; a reader may be about to count itself in.
    left: Vec<Arc<T>>,
}

impl<T> Publisher<T> {
    pub(crate) fn new(first: Arc<T>) -> Self {
        let current = AtomicPtr::new(Arc::into_raw(first).cast_mut());
        Self { shared: Arc::new(Newest { current, gate: Gate::new(), rest: OnceBox::new() }), left: Vec::new() }
    }

    /// For a reader.
    pub(crate) fn shared(&self) -> &Arc<Newest<T>> {
        &self.shared
    }

    /// Puts another in the place of the newest, and drops those before if no reader is about to take one.
    pub(crate) fn set(&mut self, newest: Arc<T>) {
        self.left.reserve(1);
        let before = self.shared.current.swap(Arc::into_raw(newest).cast_mut(), Ordering::AcqRel).cast_const();
        // SAFETY: it is from `into_raw`, and the count that `current` held is the list's from here on.
        self.left.push(unsafe { Arc::from_raw(before) });
        self.tidy();
    }

    /// Drops what was replaced, unless a reader may be about to take one: it is asked again with the next change of the table
    /// that ends an era.
    pub(crate) fn tidy(&mut self) {
        if !self.left.is_empty() && self.shared.gate.is_empty() {
            self.left.clear();
        }
    }
}

impl<T> Drop for Publisher<T> {
    fn drop(&mut self) {
        self.tidy();
        if !self.left.is_empty() {
            let _ = self.shared.rest.set(alloc::boxed::Box::new(core::mem::take(&mut self.left)));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::thread;

    use super::*;

    /// Under Miri this shows that no value is read after it was freed, and none is lost.
    #[test]
    fn values_are_counted_while_readers_follow() {
        let rounds: u32 = if cfg!(miri) { 30 } else { 100_000 };
        let mut publisher = Publisher::new(Arc::new(0));
        let last = thread::scope(|scope| {
            for _ in 0..2 {
                let newest = Arc::clone(publisher.shared());
                scope.spawn(move || {
                    let mut seen = 0;
                    while seen < rounds {
                        let next = *newest.get();
                        assert!(next >= seen, "{next} after {seen}");
                        seen = next;
                    }
                });
            }
            for round in 1..=rounds {
                publisher.set(Arc::new(round));
            }
            publisher.shared().get()
        });
        assert_eq!(*last, rounds);
        publisher.tidy();
        let newest = Arc::clone(publisher.shared());
        drop(publisher);
        assert_eq!(Arc::strong_count(&last), 2, "this one and the newest");
        drop(newest);
        assert_eq!(Arc::strong_count(&last), 1);
    }

    /// A reader that stands at the gate keeps what was replaced meanwhile, and the gate's owner the rest.
    #[test]
    fn what_a_visitor_may_take_outlives_the_publisher() {
        let first = Arc::new(1);
        let mut publisher = Publisher::new(Arc::clone(&first));
        let newest = Arc::clone(publisher.shared());
        let visit = newest.gate.enter();
        publisher.set(Arc::new(2));
        assert_eq!(Arc::strong_count(&first), 2);
        drop(publisher);
        assert_eq!(Arc::strong_count(&first), 2);
        drop(visit);
        drop(newest);
        assert_eq!(Arc::strong_count(&first), 1);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ringway-lpm --release --lib newest`.
#[cfg(all(test, loom))]
mod tests {
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;
    use crate::clock::Clock;

    /// A generation of tables.
    struct Tables {
        number: usize,
        clock: Clock,
    }

    fn tables(number: usize) -> Arc<Tables> {
        Arc::new(Tables { number, clock: Clock::new() })
    }

    /// Of two readers, one two generations behind and one that is up to date: once the first has seen the newest tables, the
    /// second does not start on those before.
    #[test]
    fn no_reader_stays_behind_one_that_has_moved() {
        loom::model(|| {
            let second = tables(1);
            let mut publisher = Publisher::new(Arc::clone(&second));
            let seen = loom::sync::Arc::new(AtomicBool::new(false));
            let late = {
                let (newest, seen) = (Arc::clone(publisher.shared()), loom::sync::Arc::clone(&seen));
                thread::spawn(move || {
                    if newest.get().number == 2 {
                        seen.store(true, Ordering::Release);
                    }
                })
            };
            let prompt = {
                let (newest, second) = (Arc::clone(publisher.shared()), Arc::clone(&second));
                thread::spawn(move || {
                    if seen.load(Ordering::Acquire) {
                        assert!(second.clock.start().has_moved());
                        assert_eq!(newest.get().number, 2);
                    }
                })
            };
            second.clock.set_moved();
            publisher.set(tables(2));
            late.join().unwrap();
            prompt.join().unwrap();
        });
    }
}
