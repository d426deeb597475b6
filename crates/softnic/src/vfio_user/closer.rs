//! Closing what a client has a say in, without waiting for it.

use device::Aside;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Closings of a device's that may be under way at a time.
const MOST: usize = 16;

/// Closes descriptors that clients of a device have sent, and sockets on which they may have left some unread: those may take
/// as long to close as a client likes ([`Aside`]). When 16 such closings are under way, whoever closes more waits, so that no
/// device takes threads and descriptors from the others.
#[derive(Debug, Default)]
pub(super) struct Closer(Arc<AtomicUsize>);

impl Closer {
    pub(super) fn close<T: Send + 'static>(&self, value: T) {
        let under_way = self.0.fetch_add(1, Ordering::Relaxed);
        // In this order: what was closed gives its place free.
        let counted = (value, Place(Arc::clone(&self.0)));
        if under_way < MOST {
            drop(Aside::from(counted));
        }
    }
}

/// One of a device's closings.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
