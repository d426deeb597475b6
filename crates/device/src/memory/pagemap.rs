//! Physical addresses (Linux `Documentation/admin-guide/mm/pagemap.rst`): one 64-bit entry per 4 KiB page, bits 0 to
//! 54 the page frame number, bit 63 whether the page is present.

use crate::{Error, Host, Result};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

const ENTRY: u64 = 8;
const FRAME_SHIFT: u32 = 12;
const FRAME_NUMBER: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// The physical address of each page of `page_size` bytes in `base..base + len`.
pub(super) fn physical_pages(host: &Host, base: u64, len: u64, page_size: u64) -> Result<Vec<u64>> {
    let path = host.proc("self/pagemap");
    let hint = "physical addresses need root; VFIO with an IOMMU does not need them";
    let failed = |operation, source| Error::system(operation, path.display().to_string(), source, hint);
    let file = File::open(&path).map_err(|source: std::io::Error| failed("open", source))?;
    (0..len / page_size)
        .map(|page| {
            let mut entry = [0_u8; 8];
            let address = base + page * page_size;
            file.read_exact_at(&mut entry, (address >> FRAME_SHIFT) * ENTRY)
                .map_err(|source| failed("read", source))?;
            physical(u64::from_le_bytes(entry))
                .map_err(|cause| Error::unusable(path.display().to_string(), cause, hint))
        })
        .collect()
}

/// The physical address in one pagemap entry.
fn physical(entry: u64) -> Result<u64, &'static str> {
    match (entry & PRESENT != 0, entry & FRAME_NUMBER) {
        (false, _) => Err("a page of DMA memory is not present"),
        (true, 0) => Err("the kernel hides physical addresses from a process without CAP_SYS_ADMIN"),
        (true, frame) => Ok(frame << FRAME_SHIFT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_decode() {
        assert_eq!(physical(PRESENT | 0x1234), Ok(0x0123_4000));
        assert_eq!(physical(PRESENT | (1 << 55) | 1), Ok(0x1000), "soft-dirty and other flags are not frame bits");
        assert!(physical(PRESENT).unwrap_err().contains("CAP_SYS_ADMIN"));
        assert!(physical(0x1234).unwrap_err().contains("not present"));
    }

    #[test]
    fn the_entry_of_each_page_is_looked_up() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let mut bytes = vec![0_u8; 0x600 * 8];
        for (index, frame) in [(0x200_usize, 0x88_u64), (0x400, 0x99)] {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&(PRESENT | frame).to_le_bytes());
        }
        std::fs::write(root.path().join("proc/self/pagemap"), bytes).unwrap();
        let host = Host::at(root.path());
        let pages = physical_pages(&host, 0x20_0000, 0x40_0000, 0x20_0000).unwrap();
        assert_eq!(pages, [0x8_8000, 0x9_9000]);
        assert!(physical_pages(&host, 0x60_0000, 0x20_0000, 0x20_0000).is_err(), "past the end of the file");
    }
}
