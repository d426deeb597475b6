//! Pages of a client that are taken away while the device may reach them.
//!
//! A sealed file cannot be cut short, and a hole that is punched in ordinary memory is filled with a zero page when it is
//! touched. In huge pages it is filled only if one is free; if none is, the access raises SIGBUS, which would end this
//! process and with it the devices of all other clients. So mappings of huge pages are listed here, and the handler of SIGBUS
//! puts zeros in place of the mapping that was hit, ends the connection to its client, and lets the access go on.

mod entry;
#[cfg(all(test, loom))]
mod model;

use device::sigbus::Previous;
use entry::{Entry, Listed};
use rustix::io::Errno;
use std::ffi::c_int;
use std::sync::OnceLock;
use sync::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// What an entry is made of; loom has its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};
}

/// Most mappings of huge pages in a process.
pub(super) const MOST: usize = 1024;

static MAPPINGS: [Entry; MOST] = [const {
    Entry {
        turn: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        socket: AtomicI32::new(-1),
        hit: AtomicBool::new(false),
    }
}; MOST];

static BEFORE: Previous = Previous::none();

/// A listed mapping.
#[derive(Debug)]
pub(super) struct Watched(usize);

impl Watched {
    /// Lists `len` bytes from `start` on, to be replaced by zeros, and `socket` to be shut down, when an access to them fails.
    ///
    /// # Safety
    ///
    /// Until the value is dropped, `start` and `len` must be those of a whole mapping of this process that is only accessed
    /// through raw pointers, and `socket` the descriptor of a socket.
    pub(super) unsafe fn new(start: usize, len: usize, socket: c_int) -> Result<Self, Errno> {
        install()?;
        let mapping = Listed { start, len, socket };
        let index = MAPPINGS.iter().position(|entry| entry.list(mapping)).ok_or(Errno::NOSPC)?;
        Ok(Self(index))
    }

    /// Whether its pages were taken away.
    pub(super) fn is_hit(&self) -> bool {
        MAPPINGS[self.0].hit.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        MAPPINGS[self.0].free();
    }
}

/// Installs the handler, once in a process.
fn install() -> Result<(), Errno> {
    static DONE: OnceLock<Result<(), Errno>> = OnceLock::new();
    // SAFETY: the handler does only what one may; it is installed here only, once.
    *DONE.get_or_init(|| unsafe { BEFORE.replace_by(on_sigbus) })
}

/// The handler. It only loads and stores atomics and calls mmap, shutdown and sigaction, which is allowed in a handler.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo (SA_SIGINFO).
    let info_of_fault = unsafe { &*info };
    // SAFETY: a SIGBUS has an address.
    let at = unsafe { info_of_fault.si_addr() }.addr();
    // The mapping that was hit stays listed, as the thread that is here is about to access it. Entries of others come and go.
    let hit = |entry: &Entry| entry.read().filter(|mapping| at.wrapping_sub(mapping.start) < mapping.len);
    if let Some((entry, mapping)) = MAPPINGS.iter().find_map(|entry| Some((entry, hit(entry)?)))
        && replace(mapping.start, mapping.len)
    {
        entry.hit.store(true, Ordering::Release);
        // SAFETY: a socket for as long as the entry is listed; shutdown touches no memory.
        unsafe { libc::shutdown(mapping.socket, libc::SHUT_RDWR) };
        return;
    }
    // SAFETY: these are the handler's arguments.
    unsafe { BEFORE.pass_on(signal, info, context) };
}

/// Puts zeros in place of a mapping.
fn replace(start: usize, len: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the range is a whole mapping that is only accessed through raw pointers, by the promise of Watched::new; it
    // stays mapped, with other content, as a device's memory may have at any time.
    let mapped = unsafe { libc::mmap(at, len, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

// Not beside loom: its generators take SIGBUS and SIGSEGV of the whole process for themselves, and abort at one that is not
// theirs.
#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use memmap2::MmapOptions;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// A file that is cut short under its mapping raises the same signal as a huge page that cannot be had.
    #[test]
    fn memory_that_goes_away_ends_one_connection_and_not_the_process() {
        let file = memfd_create("cut", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8192).unwrap();
        let map = MmapOptions::new().len(8192).map_raw(&file).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        // SAFETY: a whole mapping that is accessed through raw pointers only, and a socket; both outlive the value.
        let watched = unsafe { Watched::new(map.as_ptr().addr(), 8192, ours.as_raw_fd()) }.unwrap();
        // SAFETY: inside the mapping.
        unsafe { map.as_mut_ptr().wrapping_add(4096).write_volatile(7) };
        assert!(!watched.is_hit());
        ftruncate(&file, 0).unwrap();
        // SAFETY: inside the mapping.
        let byte = unsafe { map.as_ptr().wrapping_add(4096).read_volatile() };
        assert_eq!((byte, watched.is_hit()), (0, true));
        // SAFETY: inside the mapping.
        unsafe { map.as_mut_ptr().wrapping_add(5000).write_volatile(1) };
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "its connection has ended");
    }
}
