//! Where the kernel has put pages: move_pages(2), which without nodes to move to only asks.

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;

/// Bytes on each NUMA node of the `len` bytes from `base` on, which lie on pages of `page` bytes that are all present.
pub(super) fn nodes(base: NonNull<u8>, len: usize, page: usize) -> Result<BTreeMap<u32, usize>> {
    let failed = |source| Error::system("ask for the NUMA nodes of", "DMA memory", source, "");
    if cfg!(miri) {
        return Err(failed(io::ErrorKind::Unsupported.into()));
    }
    let pages: Vec<usize> = (0..len).step_by(page).map(|offset| base.as_ptr() as usize + offset).collect();
    let mut found = vec![-libc::ENOENT; pages.len()];
    let (this_process, no_nodes, flags) = (0_usize, std::ptr::null::<libc::c_int>(), 0_usize);
    // SAFETY: both arrays have as many elements as the call is told. Without nodes it moves nothing, and it writes to the
    // second array alone.
    let answer = unsafe {
        let (pages, count, found) = (pages.as_ptr(), pages.len(), found.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, this_process, count, pages, no_nodes, found, flags)
    };
    if answer < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    let mut nodes = BTreeMap::new();
    for node in found {
        // A negative number is the reason why there is none.
        let node = u32::try_from(node).map_err(|_| failed(io::Error::from_raw_os_error(-node)))?;
        *nodes.entry(node).or_default() += page;
    }
    Ok(nodes)
}
