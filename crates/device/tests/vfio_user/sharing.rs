//! What a server shares to have it mapped: only what can neither fault nor be misaligned.

use crate::server::{BY_MESSAGE, HOUR, SIZE, Server, limit, open};
use device::{Bar as _, Device as _};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

fn memfd(flags: MemfdFlags, len: u64, seals: SealFlags) -> File {
    let fd = rustix::fs::memfd_create("registers", MemfdFlags::ALLOW_SEALING | flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    File::from(fd)
}

/// Opens a device that shares `file`; returns what opening says, or `look`'s findings.
fn with<T>(server: Server, look: impl FnOnce(&device::vfio_user::VfioUserBar) -> T) -> Result<T, String> {
    let (opened, serving) = open(&limit(HOUR), move |socket| server.serve_all(&socket));
    let found = opened.map(|nic| look(nic.bar())).map_err(|error| error.to_string());
    serving.join().unwrap();
    found
}

#[test]
fn sealed_memory_is_mapped() {
    let file = memfd(MemfdFlags::empty(), SIZE, SealFlags::SHRINK);
    file.write_all_at(&[0x11; 4], 0x1008).unwrap();
    let server = Server { file: Some(file.try_clone().unwrap().into()), ..Server::default() };
    let found = with(server, |bar| {
        assert!(file.set_len(0).is_err(), "the seal");
        bar.read32(0x1008)
    });
    assert_eq!(found, Ok(0x1111_1111));
}

/// A process that touches a page of a file that was cut short is ended by SIGBUS.
#[test]
fn p5_memory_that_a_server_can_take_away_is_not_mapped() {
    let unsealed = memfd(MemfdFlags::empty(), SIZE, SealFlags::empty());
    let plain = tempfile::tempfile().unwrap();
    plain.set_len(SIZE).unwrap();
    for file in [unsealed, plain] {
        let server = Server { file: Some(file.try_clone().unwrap().into()), ..Server::default() };
        let found = with(server, |bar| {
            file.set_len(0).unwrap();
            bar.read32(0x1008)
        });
        assert_eq!(found, Ok(BY_MESSAGE));
    }
}

/// A hole in huge pages is filled at the next touch, or not, if none are left. (There need not be any for this test.)
#[test]
fn p5_huge_pages_are_not_mapped() {
    let file = memfd(MemfdFlags::HUGETLB, 2 << 20, SealFlags::SHRINK);
    let server = Server { file: Some(file.into()), ..Server::default() };
    assert_eq!(with(server, |bar| bar.read32(0x1008)), Ok(BY_MESSAGE));
}

#[test]
fn p5_areas_that_do_not_begin_at_a_page_are_refused() {
    for (offset, area) in [
        (1, None),
        (0x800, None),
        (0, Some((2, 0x1000))),
        (2, Some((0x1000, 0x1000))),
        // They end at a page's begin together.
        (0xFFE, Some((2, 0x1000))),
    ] {
        let file = memfd(MemfdFlags::empty(), 4 * SIZE, SealFlags::SHRINK);
        let server = Server { file: Some(file.into()), region: (SIZE, offset, area), ..Server::default() };
        let text = with(server, |bar| bar.read32(4)).unwrap_err();
        assert!(text.contains("cannot be mapped") || text.contains("does not begin at a page"), "{text}");
    }
}

#[test]
fn p5_areas_beyond_the_file_and_sealed_against_writing_are_refused() {
    let short = memfd(MemfdFlags::empty(), SIZE - 1, SealFlags::SHRINK);
    let read_only = memfd(MemfdFlags::empty(), SIZE, SealFlags::SHRINK | SealFlags::WRITE);
    for file in [short, read_only] {
        let server = Server { file: Some(file.into()), ..Server::default() };
        with(server, |bar| bar.read32(4)).unwrap_err();
    }
}

/// `Value[...]` panics for these.
#[test]
fn p5_capabilities_that_are_no_object_are_none() {
    for version in
        [&b"[5]"[..], b"5", b"\"capabilities\"", b"{\"capabilities\":[5]}", b"{\"capabilities\":{\"doorbells\":5}}"]
    {
        let server = Server { version, ..Server::default() };
        assert_eq!(with(server, |bar| bar.read32(4)), Ok(BY_MESSAGE));
    }
}
