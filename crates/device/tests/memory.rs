//! DMA memory as its users meet it, with and without huge pages.
#![expect(unsafe_code, reason = "reads and writes memory as a device does")]

use device::{DmaMemory, Error, MemoryRequest, PageSize};
use rustix::fs::{FallocateFlags, SealFlags};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

const HUGE: usize = 2 << 20;

fn free_huge_pages() -> usize {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
        text.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0)
    };
    read("free_hugepages").saturating_sub(read("resv_hugepages"))
}

fn request(bytes: usize, pages: PageSize) -> MemoryRequest {
    MemoryRequest { bytes, pages, numa_node: None }
}

/// What another process sees that has received the memfd.
fn peer(memory: &DmaMemory) -> File {
    // SAFETY: no Rust reference leads to the memory of these tests.
    let fd = unsafe { memory.fd() };
    File::from(fd.expect("backed by a memfd").try_clone_to_owned().expect("a duplicate"))
}

#[test]
fn ordinary_pages_are_zeroed_shared_and_present() {
    let memory = DmaMemory::allocate(&request(100_000, PageSize::Ordinary)).unwrap();
    assert_eq!((memory.len(), memory.page_size()), (102_400, 4096));
    assert_eq!(memory.base().as_ptr() as usize % 4096, 0);
    assert_eq!(memory.describe(), "100 KiB on ordinary pages");

    let peer = peer(&memory);
    let mut seen = vec![1; memory.len()];
    peer.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
    // SAFETY: the offset is inside the region.
    let last = unsafe { memory.base().add(memory.len() - 1) };
    // SAFETY: a byte of memory that only this test has.
    unsafe { last.write(0xA5) };
    peer.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen.last(), Some(&0xA5));
    let blocks = rustix::fs::fstat(&peer).unwrap().st_blocks;
    assert!(blocks * 512 >= 102_400, "all pages are allocated, {blocks} blocks");
}

#[test]
fn no_holder_of_the_memfd_can_take_pages_away() {
    let memory = DmaMemory::allocate(&request(1 << 20, PageSize::Auto)).unwrap();
    let peer = peer(&memory);
    assert!(peer.set_len(0).is_err());
    assert!(peer.set_len(1 << 30).is_err());
    let seals = rustix::fs::fcntl_get_seals(peer.as_fd()).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    // A hole in the file gives back a page of zeros at the next touch, never a fault.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if memory.page_size() == 4096 {
        rustix::fs::fallocate(&peer, punch, 0, 4096).unwrap();
        // SAFETY: the first byte of memory that only this test has.
        assert_eq!(unsafe { memory.base().read() }, 0);
    }
}

#[test]
fn auto_says_what_it_took_and_why() {
    let memory = DmaMemory::allocate(&request(HUGE, PageSize::Auto)).unwrap();
    let text = memory.describe();
    if memory.page_size() == HUGE {
        assert_eq!(text, "2 MiB on 2 MiB pages");
    } else {
        assert!(text.starts_with("2 MiB on ordinary pages: "), "{text}");
    }
}

#[test]
fn more_huge_pages_than_there_are_is_an_error_that_says_how_to_get_them() {
    for pages in [PageSize::Huge2M, PageSize::Huge1G] {
        // No host has a thousand TiB.
        let error = DmaMemory::allocate(&request(1 << 50, pages)).unwrap_err();
        assert!(matches!(error, Error::Unusable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("huge pages of"), "{text}");
        assert!(text.contains("reserve with") || text.contains("this kernel has no"), "{text}");
    }
}

#[test]
fn sizes_beyond_the_address_space_are_errors() {
    for bytes in [usize::MAX, isize::MAX as usize, isize::MAX as usize + 2] {
        for pages in [PageSize::Auto, PageSize::Ordinary, PageSize::Huge2M] {
            assert!(DmaMemory::allocate(&request(bytes, pages)).is_err());
        }
    }
}

#[test]
fn a_numa_node_is_obeyed_or_named() {
    let on =
        |node| DmaMemory::allocate(&MemoryRequest { numa_node: Some(node), ..request(1 << 20, PageSize::Ordinary) });
    if let Err(error) = on(0) {
        // Containers may forbid mbind.
        skip::test!("{error}");
    }
    let text = on(4000).unwrap_err().to_string();
    assert!(text.contains("NUMA node 4000: this host has no such node"), "{text}");
}

#[test]
fn huge_pages_hold_memory_and_have_physical_addresses() {
    if free_huge_pages() < 4 {
        skip::test!("{} huge pages of 2 MiB are free, 4 wanted", free_huge_pages());
        return;
    }
    let memory = match DmaMemory::allocate(&request(3 * HUGE - 5, PageSize::Huge2M)) {
        Ok(memory) => memory,
        Err(error) if error.to_string().contains("reserve with") => {
            return skip::test!("someone was faster: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!((memory.len(), memory.page_size()), (3 * HUGE, HUGE));
    assert_eq!(memory.base().as_ptr() as usize % HUGE, 0);
    assert_eq!(memory.describe(), "6 MiB on 2 MiB pages");
    assert!(peer(&memory).set_len(0).is_err());
    match memory.physical_pages() {
        Ok(pages) => {
            assert_eq!(pages.len(), 3);
            assert!(pages.iter().all(|page| page % HUGE as u64 == 0 && *page != 0), "{pages:x?}");
            assert!(pages[0] != pages[1] && pages[1] != pages[2] && pages[0] != pages[2]);
        }
        Err(error) => {
            assert!(error.to_string().contains("CAP_SYS_ADMIN") || error.to_string().contains("root"), "{error}")
        }
    }
}

#[test]
fn ordinary_pages_have_no_stable_physical_address() {
    let memory = DmaMemory::allocate(&request(4096, PageSize::Ordinary)).unwrap();
    let text = memory.physical_pages().unwrap_err().to_string();
    assert!(text.contains("ordinary pages move"), "{text}");
}

#[test]
fn the_kernel_says_where_memory_lies() {
    let Some(node) = device::Host::system().cpu_node(0) else { return skip::test!("no NUMA nodes here") };
    let request = MemoryRequest { numa_node: Some(node), ..request(1 << 20, PageSize::Ordinary) };
    let placed = DmaMemory::allocate(&request).and_then(|memory| Ok((memory.numa_nodes()?, memory.len())));
    match placed {
        Ok((nodes, len)) => assert_eq!(nodes.into_iter().collect::<Vec<_>>(), [(node, len)]),
        Err(error) => skip::test!("{error}"),
    }
}
