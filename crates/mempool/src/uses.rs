//! How a pool knows that its last user is gone, and how its packets find it: all atomics of this crate's own. The queues
//! through which threads exchange slots are crossbeam's.

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What keeps a pool alive: handles (low half) and slots that are not at home (high half). An overflow of the low half is no
/// harm but to [`Self::slots`], as only the sum decides.
pub(crate) struct Uses(AtomicU64);

/// A handle.
pub(crate) const ONE_HANDLE: u64 = 1;
/// A slot.
pub(crate) const ONE_SLOT: u64 = 1 << 32;

impl Uses {
    /// Of a new pool with one handle.
    pub(crate) fn one_handle() -> Self {
        Self(AtomicU64::new(ONE_HANDLE))
    }

    /// Adds uses; the caller has one.
    #[inline]
    pub(crate) fn add(&self, uses: u64) {
        // Nothing depends on when others see it: the caller's use keeps the sum above zero.
        self.0.fetch_add(uses, Ordering::Relaxed);
    }

    /// Slots that are not at home.
    pub(crate) fn slots(&self) -> u64 {
        self.0.load(Ordering::Acquire) >> 32
    }

    /// Gives up uses of the caller's. Returns whether they were the last: then all that other users have done is visible,
    /// and nobody else refers to the pool.
    #[inline]
    pub(crate) fn give_up(&self, uses: u64) -> bool {
        let last = self.0.fetch_sub(uses, Ordering::Release) == uses;
        if last {
            // Reads what the last of them left, and so comes after all of them. ThreadSanitizer knows no fences.
            self.0.load(Ordering::Acquire);
        }
        last
    }
}

/// Where a packet finds its pool: an id is a place here, taken when a pool is made and free again when it is freed.
pub(crate) struct Registry<T, const N: usize> {
    places: [AtomicPtr<T>; N],
}

impl<T, const N: usize> Registry<T, N> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(std::ptr::null_mut()) }; N] }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { places: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())) }
    }

    /// Puts `entry` into a free place; `number` is told of each place that is tried before it is taken. False if none is
    /// free.
    pub(crate) fn claim(&self, entry: *mut T, mut number: impl FnMut(u16)) -> bool {
        for (id, place) in (0..=u16::MAX).zip(&self.places) {
            if !place.load(Ordering::Relaxed).is_null() {
                continue;
            }
            number(id);
            if place.compare_exchange(std::ptr::null_mut(), entry, Ordering::Release, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
        false
    }

    /// The entry with this id; null if there is none.
    #[inline]
    pub(crate) fn get(&self, id: u16) -> *mut T {
        self.places[usize::from(id)].load(Ordering::Acquire)
    }

    /// Frees a place.
    pub(crate) fn clear(&self, id: u16) {
        self.places[usize::from(id)].store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ringway-mempool --release --lib`.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// What a pool is to its users: bytes that they access as long as they have a use.
    struct Toy {
        id: u16,
        uses: Uses,
        mark: UnsafeCell<u32>,
    }

    type Toys = Registry<Toy, 2>;

    struct Shared(*mut Toy);

    // SAFETY: users are counted.
    unsafe impl Send for Shared {}

    fn make(toys: &Toys, mark: u32) -> *mut Toy {
        let toy = Box::into_raw(Box::new(Toy { id: 0, uses: Uses::one_handle(), mark: UnsafeCell::new(mark) }));
        // SAFETY: nobody else knows it yet.
        assert!(toys.claim(toy, |id| unsafe { (*toy).id = id }));
        toy
    }

    fn mark(toy: *mut Toy) -> u32 {
        // SAFETY: the caller has a use.
        let toy = unsafe { &*toy };
        // SAFETY: nobody writes while there are uses; loom looks whether that is so.
        toy.mark.with(|mark| unsafe { *mark })
    }

    /// As `Inner::release`.
    fn release(toys: &Toys, toy: *mut Toy, uses: u64) {
        // SAFETY: the caller's uses keep it.
        if unsafe { &(*toy).uses }.give_up(uses) {
            // SAFETY: that was the last use, and the pointer came from `Box::into_raw`.
            let toy = unsafe { Box::from_raw(toy) };
            // SAFETY: nobody else has a use; loom looks whether that is so.
            toy.mark.with_mut(|mark| unsafe { *mark = 0 });
            toys.clear(toy.id);
        }
    }

    #[test]
    fn whoever_is_last_frees_and_sees_what_the_others_did() {
        loom::model(|| {
            let toys = Arc::new(Toys::new());
            let toy = make(&toys, 1);
            // SAFETY: the handle is a use.
            unsafe { &(*toy).uses }.add(2 * ONE_SLOT);
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (toys, toy) = (Arc::clone(&toys), Shared(toy));
                    thread::spawn(move || {
                        let toy = toy;
                        assert_eq!(mark(toy.0), 1);
                        release(&toys, toy.0, ONE_SLOT);
                    })
                })
                .collect();
            assert_eq!(mark(toy), 1);
            release(&toys, toy, ONE_HANDLE);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(toys.get(0).is_null(), "its id is free");
        });
    }

    #[test]
    fn an_id_leads_to_its_own_pool_as_long_as_a_slot_is_out() {
        loom::model(|| {
            let toys = Arc::new(Toys::new());
            let old = make(&toys, 1);
            // SAFETY: the handle is a use.
            unsafe { &(*old).uses }.add(ONE_SLOT);
            let packet = {
                let toys = Arc::clone(&toys);
                // The packet knows its pool by id only.
                thread::spawn(move || {
                    let found = toys.get(0);
                    assert_eq!(mark(found), 1, "its own pool");
                    release(&toys, found, ONE_SLOT);
                })
            };
            let other = {
                let toys = Arc::clone(&toys);
                thread::spawn(move || {
                    let new = make(&toys, 2);
                    // SAFETY: the handle is a use.
                    let id = unsafe { (*new).id };
                    assert_eq!(mark(toys.get(id)), 2);
                    release(&toys, new, ONE_HANDLE);
                })
            };
            release(&toys, old, ONE_HANDLE);
            packet.join().unwrap();
            other.join().unwrap();
            assert!(toys.get(0).is_null() && toys.get(1).is_null());
        });
    }
}
