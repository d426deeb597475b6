//! Closing what a client has a say in, without waiting for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Closings of a device's that may be under way at a time, and bytes of the stack of each.
const MOST: usize = 16;
const STACK: usize = 64 << 10;

/// Closes descriptors that clients of a device have sent, and sockets on which they may have left some unread: those may take
/// as long to close as a client likes (sockets that linger, files of a file system of its own). Each is closed by a thread of
/// its own. When 16 are being closed, whoever closes more waits, so that no device takes threads and descriptors from the others.
#[derive(Debug, Default)]
pub(super) struct Closer(Arc<AtomicUsize>);

impl Closer {
    pub(super) fn close<T: Send + 'static>(&self, descriptor: T) {
        let place = Place(Arc::clone(&self.0));
        let under_way = place.0.fetch_add(1, Ordering::Relaxed);
        let close = move || {
            drop(descriptor);
            drop(place);
        };
        // Where there is no thread to be had, it is closed here. Miri, which has no such clients, wants all threads to end.
        if under_way < MOST && !cfg!(miri) {
            let _ = thread::Builder::new().name("softnic-closer".to_owned()).stack_size(STACK).spawn(close);
        } else {
            close();
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
