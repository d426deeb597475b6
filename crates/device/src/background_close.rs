//! Closing what a peer can delay, in the background.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Closings that may be under way in a process at a time, and bytes of the stack of each.
const MOST: usize = 256;
const STACK: usize = 64 << 10;
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A value that may take as long to close as a peer likes, and so is closed by a thread of its own: a descriptor that a
/// peer has sent, or a socket on which it may have sent descriptors that were never read, which the kernel closes with
/// it.
///
/// close(2) waits for a socket that lingers (socket(7), `SO_LINGER`), and for the file system of a file, which may be
/// the peer's own (FUSE). While 256 of these values are being closed in this process, further ones stay open instead. A
/// process that ends does not wait for sockets; it does wait for file systems.
///
/// ```
/// use device::BackgroundClose;
///
/// let fds = BackgroundClose::from(vec![std::fs::File::open("/dev/null")?]);
/// assert_eq!(fds.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct BackgroundClose<T: Send + 'static>(ManuallyDrop<T>);

impl<T: Send + 'static> From<T> for BackgroundClose<T> {
    fn from(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Send + 'static> BackgroundClose<T> {
    /// Returns the value, for a caller that closes it itself.
    #[must_use]
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: this is the last use of the value in `this`, which is never dropped.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Send + 'static> Deref for BackgroundClose<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + 'static> DerefMut for BackgroundClose<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: AsFd + Send + 'static> AsFd for BackgroundClose<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: Send + 'static> Drop for BackgroundClose<T> {
    fn drop(&mut self) {
        // SAFETY: the value is not used after this.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        // Miri wants all threads to have ended with the program, and has no peers.
        if cfg!(miri) {
            return;
        }
        let turn = Turn::begin();
        if !turn.has_place {
            return std::mem::forget(value);
        }
        let close = move || {
            drop(value);
            drop(turn);
        };
        // Where there is no thread to be had, it is closed here.
        let _ = thread::Builder::new().name("close".to_owned()).stack_size(STACK).spawn(close);
    }
}

/// A closing's place among those that are under way, if there was one.
struct Turn {
    has_place: bool,
}

impl Turn {
    fn begin() -> Self {
        Self { has_place: UNDER_WAY.fetch_add(1, Ordering::Relaxed) < MOST }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}
