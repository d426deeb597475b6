//! An entry of the list of mappings, which a signal handler may read while another thread frees it and fills it in anew.

use super::sync::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

/// A place for a mapping.
///
/// # Invariants
///
/// What is in an entry changes only between two changes of `turn`, which never comes back to a value that it had: it counts up,
/// and its two lowest bits are the state. So what was read between two equal values of it belongs together (a sequence lock).
pub(super) struct Entry {
    pub(super) turn: AtomicUsize,
    pub(super) start: AtomicUsize,
    pub(super) len: AtomicUsize,
    pub(super) socket: AtomicI32,
    pub(super) hit: AtomicBool,
}

/// The low bits of `turn`: the entry is free, it is being filled in, it is listed.
const STATE: usize = 3;
const FREE: usize = 0;
const FILLING: usize = 1;
const LISTED: usize = 2;

/// A mapping as an entry had it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) socket: i32,
}

impl Entry {
    /// Lists a mapping here, if the entry is free.
    pub(super) fn list(&self, mapping: Listed) -> bool {
        let turn = self.turn.load(Ordering::Relaxed);
        let free = turn & STATE == FREE;
        if !free || self.turn.compare_exchange(turn, turn | FILLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        // Whoever reads one of what follows finds that the turn has changed.
        fence(Ordering::Release);
        self.start.store(mapping.start, Ordering::Relaxed);
        self.len.store(mapping.len, Ordering::Relaxed);
        self.socket.store(mapping.socket, Ordering::Relaxed);
        self.hit.store(false, Ordering::Relaxed);
        self.turn.store(turn | LISTED, Ordering::Release);
        true
    }

    /// Frees the entry. Only for whoever has listed something here.
    pub(super) fn free(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store((turn | STATE).wrapping_add(1), Ordering::Release);
    }

    /// What is listed, all of it as it was at one moment; `None` if nothing is, or if that changes just now. Waits for nothing.
    pub(super) fn read(&self) -> Option<Listed> {
        let turn = self.turn.load(Ordering::Acquire);
        if turn & STATE != LISTED {
            return None;
        }
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        let socket = self.socket.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (self.turn.load(Ordering::Relaxed) == turn).then_some(Listed { start, len, socket })
    }
}
