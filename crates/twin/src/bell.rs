//! Wakes a thread that sleeps when it has found nothing, and says whether to look.

use device::EventFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Rung when something was put into a queue; one thread listens.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// The listener sleeps, or is about to.
    armed: AtomicBool,
    event: EventFd,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, device::Error> {
        Ok(Self { rung: AtomicBool::new(false), armed: AtomicBool::new(false), event: EventFd::new()? })
    }

    /// Says that there is something. What the caller did before the listener sees behind [`Self::answer`]. It makes a system call
    /// only if the listener sleeps.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        // Either the listener sees that it was rung before it sleeps, or this thread sees that it is armed.
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            self.event.signal();
        }
    }

    /// Whether it was rung: one load.
    #[inline(always)]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Whether it was rung since the last time.
    pub(crate) fn answer(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::Acquire)
    }

    /// Before a sleep: whether the listener may wait until its descriptor is readable.
    pub(crate) fn arm(&self) -> bool {
        self.event.clear();
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.is_rung()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_sleeper_is_woken_once_and_a_busy_one_never() {
        let bell = Bell::new().expect("descriptors are left");
        let is_signalled = || bell.event.wait(Duration::ZERO).expect("it can be asked");
        bell.ring();
        assert!(!is_signalled() && !bell.arm(), "rung before it slept");
        assert!(bell.answer() && !bell.answer());
        assert!(bell.arm());
        bell.ring();
        assert!(is_signalled() && bell.is_rung());
        assert!(bell.answer() && bell.arm() && !is_signalled());
    }

    #[test]
    fn no_ring_is_missed_by_a_sleeper() {
        let bell = Bell::new().expect("descriptors are left");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    bell.ring();
                    while bell.is_rung() {
                        std::thread::yield_now();
                    }
                }
                done.store(true, Ordering::Release);
                bell.ring();
            });
            while !done.load(Ordering::Acquire) {
                if bell.arm() {
                    assert!(bell.event.wait(Duration::from_secs(60)).expect("it can wait"), "a ring was missed");
                }
                bell.answer();
            }
        });
    }
}
