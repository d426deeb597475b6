//! Signals eventfds that other processes share, without ever waiting.
//!
//! Writing to an eventfd whose counter is full waits for its reader, unless it is `O_NONBLOCK`. That is a flag of the
//! file, which any process that shares the file can clear at any time, also between `poll` and `write`. So nothing is
//! written here: the kernel itself adds to the counter when an asynchronous read of no bytes has ended (`io_submit(2)`,
//! `IOCB_FLAG_RESFD`), and stops at the counter's maximum.

use libc::{c_long, c_ulong, syscall};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Requests that may be in flight. Each ends while it is submitted; the kernel keeps its result until [`Signaller::reap`].
const REQUESTS: usize = 64;
const PREAD: u16 = 0;
const RESFD: u32 = 1;

/// Makes the kernel signal eventfds, by a context of asynchronous I/O and an empty file to read. Any number of threads
/// may use it at once.
///
/// # Invariants
///
/// `context` came from `io_setup` and is destroyed once, on drop.
#[derive(Debug)]
pub struct Signaller {
    context: c_ulong,
    empty: OwnedFd,
}

/// `struct iocb` (linux/aio_abi.h) of little-endian machines.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event`: data, object, two results.
type Event = [u64; 4];

impl Signaller {
    /// Creates a signaller.
    ///
    /// # Errors
    ///
    /// If the kernel has no asynchronous I/O for this process: it was built without, a filter of system calls forbids
    /// it, or `fs.aio-max-nr` is reached.
    pub fn new() -> io::Result<Self> {
        let empty = memfd_create("no-bytes", MemfdFlags::CLOEXEC)?;
        let mut context: c_ulong = 0;
        // SAFETY: io_setup writes one word through the pointer, which is to a live one.
        let made = unsafe { syscall(libc::SYS_io_setup, REQUESTS, &raw mut context) };
        if made == 0 { Ok(Self { context, empty }) } else { Err(io::Error::last_os_error()) }
    }

    /// Adds one to the counter of an eventfd; a counter that is full stays as it is, as its reader has been woken
    /// already. Returns whether the kernel did it.
    pub fn signal(&self, eventfd: impl AsFd) -> bool {
        let fd = |fd: &dyn AsFd| fd.as_fd().as_raw_fd().cast_unsigned();
        let mut request =
            Request { opcode: PREAD, fd: fd(&self.empty), flags: RESFD, eventfd: fd(&eventfd), ..Request::default() };
        // The second attempt has room, which the first one lacks when results have gathered.
        for _ in 0..2 {
            let requests: [*mut Request; 1] = [&raw mut request];
            // SAFETY: io_submit reads one pointer from a live array and the request it leads to, which is live too, and
            // whose read of no bytes writes to no memory; the context is valid (type invariant).
            let submitted = unsafe { syscall(libc::SYS_io_submit, self.context, 1 as c_long, requests.as_ptr()) };
            if submitted == 1 {
                return true;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                return false;
            }
            self.reap();
        }
        false
    }

    /// Takes the results that are there, which nobody needs.
    fn reap(&self) {
        let mut events: [Event; REQUESTS] = [[0; 4]; REQUESTS];
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let (least, most) = (0 as c_long, REQUESTS as c_long);
            // SAFETY: io_getevents writes REQUESTS events at most, for which there is room, and reads one live timespec; the
            // context is valid (type invariant).
            let taken = unsafe {
                syscall(libc::SYS_io_getevents, self.context, least, most, events.as_mut_ptr(), &raw const none)
            };
            if taken < most {
                return;
            }
        }
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: the context is valid and not used after this (type invariant).
        unsafe { syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_full_blocking_eventfd_holds_nobody_up_and_an_empty_one_counts() {
        let signaller = Signaller::new().unwrap();
        let ours = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let theirs = ours.try_clone().unwrap();
        let signal = || assert!(signaller.signal(&theirs));
        let count = || {
            let mut bytes = [0; 8];
            rustix::io::read(&ours, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        // More often than the context has room for results.
        (0..1000).for_each(|_| signal());
        assert_eq!(count(), 1000);
        rustix::io::write(&ours, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..1000).for_each(|_| signal());
        assert_eq!(count(), u64::MAX);
        signal();
        assert_eq!(count(), 1);
    }
}
