//! Memory that devices can reach.

use crate::{Error, Host, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

mod backing;
mod control_group;
mod hugepages;
mod pagemap;
mod placement;

use backing::Backing;
pub(crate) use hugepages::HugePages;

/// The pages that DMA memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MiB huge pages if the host has enough free, else ordinary pages ([`DmaMemory::page_size`] says which).
    #[default]
    Auto,
    /// Ordinary pages. They suffice for software devices and behind an IOMMU; a real device without one refuses them.
    Ordinary,
    /// 2 MiB huge pages; an error if there are too few.
    Huge2M,
    /// 1 GiB huge pages; an error if there are too few.
    Huge1G,
}

/// A request for DMA memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRequest {
    /// Size in bytes; rounded up to whole pages.
    pub bytes: usize,
    /// Page size.
    pub pages: PageSize,
    /// NUMA node that the pages must lie on; `None` leaves it to the kernel.
    pub numa_node: Option<u32>,
}

/// A zeroed, page-aligned memory region for packets or descriptor rings, backed by a memfd so that other processes can
/// map it. All its pages are present from the start. It is unmapped when the last handle is dropped; a
/// [`crate::DmaDomain`] that has mapped it holds a handle.
///
/// ```
/// use device::{DmaMemory, MemoryRequest};
///
/// let memory = DmaMemory::allocate(&MemoryRequest { bytes: 64 << 10, ..MemoryRequest::default() })?;
/// assert!(memory.len() >= 64 << 10);
/// assert_eq!(memory.base().as_ptr() as usize % memory.page_size(), 0);
/// println!("{}", memory.describe());
/// # Ok::<(), device::Error>(())
/// ```
///
/// Safe code cannot change it while others own parts of it (apart from what the operating system lets every program do
/// to itself, such as writing to `/proc/self/mem`):
///
/// ```compile_fail,E0133
/// fn file(memory: &device::DmaMemory) -> Option<std::os::fd::BorrowedFd<'_>> { memory.fd() }
/// ```
///
/// # Invariants
///
/// `base()` points to `len()` bytes, initialised, mapped readable and writable until drop. The memfd is sealed against a
/// change of its size, so a process that holds it cannot cut pages off (it can punch holes, which read as zeros).
pub struct DmaMemory {
    backing: Backing,
    page_size: usize,
    description: String,
}

impl DmaMemory {
    /// Allocates zeroed memory. This takes about a third of a second per GiB, as every page is touched.
    ///
    /// # Errors
    ///
    /// If the requested pages are not available; the message says how many are free and how to reserve more.
    pub fn allocate(request: &MemoryRequest) -> Result<Arc<Self>> {
        let host = Host::system();
        if let Some(node) = request.numa_node {
            hugepages::check_node(&host, node)?;
        }
        let memory = match request.pages {
            PageSize::Ordinary => Self::ordinary(&host, request, "")?,
            PageSize::Huge2M => Self::huge(&host, request, HugePages::TWO_MIB)?,
            PageSize::Huge1G => Self::huge(&host, request, HugePages::ONE_GIB)?,
            PageSize::Auto => match Self::huge(&host, request, HugePages::TWO_MIB) {
                Ok(memory) => memory,
                Err(Error::Unusable { cause, hint, .. }) => {
                    Self::ordinary(&host, request, &format!(": {cause}; {hint}"))?
                }
                Err(_) => Self::ordinary(&host, request, "")?,
            },
        };
        tracing::info!("DMA memory: {}", memory.description);
        Ok(Arc::new(memory))
    }

    /// Returns a pointer to the first byte, aligned to [`Self::page_size`].
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.backing.base()
    }

    /// Returns the length in bytes, a multiple of [`Self::page_size`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.backing.len()
    }

    /// Returns the size in bytes of the pages that the memory lies on: 4096, 2 MiB or 1 GiB.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Returns size and pages in words, for a user: "64 MiB on 2 MiB pages", or why the memory is on ordinary pages and
    /// what would change that.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// Returns the number of bytes on each NUMA node, as the kernel reports it now.
    ///
    /// # Errors
    ///
    /// If the kernel does not report it.
    pub fn numa_nodes(&self) -> Result<BTreeMap<u32, usize>> {
        placement::nodes(self.base(), self.len(), self.page_size)
    }

    /// Returns the memfd behind it, for another process to map; `None` under Miri.
    ///
    /// # Safety
    ///
    /// Writing to the descriptor, punching a hole in it or writing through a mapping of it changes bytes of this
    /// process. Code that has it does so only with bytes that are lent to it, as a [`crate::TrustedPeer`] does.
    #[must_use]
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.backing.fd()
    }

    /// Returns the physical address of each page, in order, for a device without an IOMMU in front of it.
    ///
    /// # Errors
    ///
    /// If the memory is on ordinary pages, which the kernel may move at any time; or without `CAP_SYS_ADMIN`, which the
    /// kernel requires to show physical addresses.
    pub fn physical_pages(&self) -> Result<Vec<u64>> {
        if self.page_size <= ORDINARY {
            let hint = "reserve huge pages, for example: sudo sysctl vm.nr_hugepages=64";
            return Err(Error::unusable("DMA memory", "ordinary pages move, so no device may be told of them", hint));
        }
        pagemap::physical_pages(&Host::system(), self.base().as_ptr() as u64, self.len() as u64, self.page_size as u64)
    }

    fn huge(host: &Host, request: &MemoryRequest, pages: HugePages) -> Result<Self> {
        let len = rounded(request.bytes, pages.bytes)?;
        let backing = Backing::allocate(len, Some(pages), request.numa_node)
            .map_err(|source| pages.shortage(host, len / pages.bytes, request.numa_node, &source))?;
        let description = format!("{} on {} pages", human(len), human(pages.bytes));
        Ok(Self { backing, page_size: pages.bytes, description })
    }

    fn ordinary(host: &Host, request: &MemoryRequest, why: &str) -> Result<Self> {
        let len = rounded(request.bytes, ORDINARY)?;
        // Taking more than there is would not fail: the kernel would end some process for it.
        let host_has = available(host).map(|bytes| (bytes, "on this host"));
        let group_has = control_group::left(host).map(|bytes| (bytes, "to this control group"));
        let least = host_has.into_iter().chain(group_has).min();
        if let Some((available, whom)) = least.filter(|(available, _)| len > *available) {
            let cause = format!("{} MiB are available {whom}", available >> 20);
            return Err(Error::unusable(format!("{} of DMA memory", human(len)), cause, "ask for less"));
        }
        let backing = Backing::allocate(len, None, request.numa_node).map_err(|source| {
            let hint = match source.raw_os_error() {
                Some(libc::EMFILE) => "this process may open no more files; raise the limit: ulimit -n 1024",
                Some(libc::EFBIG) => "this process may make no file so large; raise the limit: ulimit -f unlimited",
                _ => "ask for less, or free memory on that host or NUMA node",
            };
            Error::system("allocate", format!("{} of DMA memory", human(len)), source, hint)
        })?;
        let description = format!("{} on ordinary pages{why}", human(len));
        Ok(Self { backing, page_size: ORDINARY, description })
    }
}

impl fmt::Debug for DmaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaMemory")
            .field("len", &self.len())
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}

const ORDINARY: usize = 4096;

fn rounded(bytes: usize, page: usize) -> Result<usize> {
    let len = bytes.max(1).checked_next_multiple_of(page).filter(|len| isize::try_from(*len).is_ok());
    len.ok_or_else(|| Error::unusable(format!("{bytes} bytes"), "too large for an allocation", ""))
}

/// Bytes that can be allocated without swapping, if the kernel says (Linux `Documentation/filesystems/proc.rst`, meminfo).
fn available(host: &Host) -> Option<usize> {
    if cfg!(miri) {
        // The memory is Miri's, not the host's.
        return None;
    }
    let text = host.read(&host.proc("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// "64 MiB": the largest unit that divides.
pub(crate) fn human(bytes: usize) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{} {unit}", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_largest_that_divide() {
        assert_eq!(human(64 << 20), "64 MiB");
        assert_eq!(human(3 << 30), "3 GiB");
        assert_eq!(human(4096 + 2048), "6 KiB");
        assert_eq!(human(5), "5 bytes");
    }

    #[test]
    fn memory_is_zeroed_and_writable_to_its_last_byte() {
        let request = MemoryRequest { bytes: 4097, pages: PageSize::Ordinary, numa_node: None };
        let memory = DmaMemory::allocate(&request).unwrap();
        for offset in [0, memory.len() - 1] {
            // SAFETY: the offset is inside the region.
            let byte = unsafe { memory.base().add(offset) };
            // SAFETY: a byte of memory that only this test has.
            assert_eq!(unsafe { byte.read() }, 0);
            // SAFETY: as above.
            unsafe { byte.write(1) };
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_the_host_has_is_an_error() {
        let request = MemoryRequest { bytes: 1 << 50, pages: PageSize::Ordinary, numa_node: None };
        let text = DmaMemory::allocate(&request).unwrap_err().to_string();
        assert!(text.contains("1048576 GiB of DMA memory") && text.contains("are available on this host"), "{text}");
    }

    #[test]
    fn sizes_are_rounded_up_and_overflow_is_an_error() {
        assert_eq!(rounded(0, 4096).unwrap(), 4096);
        assert_eq!(rounded(4097, 4096).unwrap(), 8192);
        assert!(rounded(usize::MAX, 4096).is_err());
        assert!(rounded(usize::MAX / 2 + 2, 4096).is_err());
    }
}
