//! The vfio-user face, byte by byte against the specification, and with our own client.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "plays the driver")]

mod wire_client;

use device::{Bar as _, Device as _, DmaMemory, MemoryRequest, PageSize, TimeLimit, TrustedPeer, VfioUserDevice};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::MemfdFlags;
use softnic::{Ring, VfioUserServer, Violation};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire_client::{WireClient, dwords, message, qwords, sealed_memfd};

/// A server of a soft NIC with a sink, in a folder of its own.
fn serve(name: &str) -> (TempDir, VfioUserServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = VfioUserServer::start(&format!("{name}?wire=sink"), &folder.path().join("nic.sock")).unwrap();
    (folder, server)
}

/// Opens with our own client; what it is asked afterwards has no deadline.
fn open(path: &Path) -> device::Result<VfioUserDevice> {
    // SAFETY: the servers of these tests are software NICs.
    let peer = unsafe { TrustedPeer::vouched_for() };
    let nic = VfioUserDevice::open(path, peer, &TimeLimit::default().begin())?;
    nic.set_deadline(None);
    Ok(nic)
}

/// argsz, flags, offset, address, size.
fn map_body(flags: u32, offset: u64, iova: u64, size: u64) -> Vec<u8> {
    [dwords(&[32, flags]), qwords(&[offset, iova, size])].concat()
}

fn unmap_body(flags: u32, iova: u64, size: u64) -> Vec<u8> {
    [dwords(&[24, flags]), qwords(&[iova, size])].concat()
}

const MAP: u8 = 2;
const UNMAP: u8 = 3;
const SET_IRQS: u8 = 8;
const READ: u8 = 9;
const WRITE: u8 = 10;
const RESET: u8 = 13;
const EPERM: u8 = 1;

#[test]
fn replies_are_the_bytes_of_the_specification() {
    let (_folder, server) = serve("bytes");
    let client = WireClient::connect(server.socket());
    let table: &[(&str, &[u8], &[u8])] = &[
        (
            "DEVICE_GET_INFO: resettable PCI device, 9 regions, 5 kinds of interrupt",
            b"\x01\x02\x04\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x01\x02\x04\x00\x20\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x10\0\0\0\x03\0\0\0\x09\0\0\0\x05\0\0\0",
        ),
        (
            "GET_REGION_INFO of BAR0: 512 KiB, read and write",
            b"\x02\x00\x05\x00\x30\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x00\x05\x00\x30\0\0\0\x01\0\0\0\0\0\0\0\x20\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            "GET_REGION_INFO of BAR1, which is the upper half of BAR0: none",
            b"\x02\x00\x05\x00\x30\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x00\x05\x00\x30\0\0\0\x01\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            "GET_REGION_INFO of BAR4: 16 KiB",
            b"\x02\x00\x05\x00\x30\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x00\x05\x00\x30\0\0\0\x01\0\0\0\0\0\0\0\x20\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            "GET_REGION_INFO of configuration space: 4096 bytes",
            b"\x02\x00\x05\x00\x30\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x00\x05\x00\x30\0\0\0\x01\0\0\0\0\0\0\0\x20\0\0\0\x03\0\0\0\x07\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            "GET_REGION_INFO of region 9, which is for those who asked for doorbells: EINVAL",
            b"\x02\x00\x05\x00\x30\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x02\x00\x05\x00\x10\0\0\0\x21\0\0\0\x16\0\0\0",
        ),
        (
            "GET_IRQ_INFO of MSI-X: 64 eventfds",
            b"\x03\x00\x07\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
            b"\x03\x00\x07\x00\x20\0\0\0\x01\0\0\0\0\0\0\0\x10\0\0\0\x01\0\0\0\x02\0\0\0\x40\0\0\0",
        ),
        (
            "GET_IRQ_INFO of INTx: one, which masks itself",
            b"\x03\x00\x07\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x03\x00\x07\x00\x20\0\0\0\x01\0\0\0\0\0\0\0\x10\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0",
        ),
        (
            "REGION_READ of MSI-X message control at 0x72: 64 entries",
            b"\x04\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x72\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0",
            b"\x04\x00\x09\x00\x22\0\0\0\x01\0\0\0\0\0\0\0\x72\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0\x3F\0",
        ),
        (
            "REGION_READ of STATUS without memory decoding: all ones",
            b"\x04\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0",
            b"\x04\x00\x09\x00\x24\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\xFF\xFF\xFF\xFF",
        ),
        (
            "REGION_WRITE of the command register: memory",
            b"\x05\x00\x0A\x00\x22\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0\x02\0",
            b"\x05\x00\x0A\x00\x20\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0",
        ),
        (
            "REGION_READ of STATUS: GIO",
            b"\x04\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0",
            b"\x04\x00\x09\x00\x24\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\x08\0",
        ),
        (
            "REGION_WRITE of 8 bytes at 0xEE18, two registers in one",
            b"\x05\x00\x0A\x00\x28\0\0\0\0\0\0\0\0\0\0\0\x18\xEE\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08",
            b"\x05\x00\x0A\x00\x20\0\0\0\x01\0\0\0\0\0\0\0\x18\xEE\0\0\0\0\0\0\0\0\0\0\x08\0\0\0",
        ),
        (
            "REGION_READ of 3 bytes across both",
            b"\x04\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x1B\xEE\0\0\0\0\0\0\0\0\0\0\x03\0\0\0",
            b"\x04\x00\x09\x00\x23\0\0\0\x01\0\0\0\0\0\0\0\x1B\xEE\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x04\x05\x06",
        ),
        (
            "GET_REGION_IO_FDS: EOPNOTSUPP",
            b"\x06\x00\x06\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x06\x00\x06\x00\x10\0\0\0\x21\0\0\0\x5F\0\0\0",
        ),
        (
            "REGION_READ that runs out of the region: EINVAL",
            b"\x07\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\xFE\x0F\0\0\0\0\0\0\x07\0\0\0\x04\0\0\0",
            b"\x07\x00\x09\x00\x10\0\0\0\x21\0\0\0\x16\0\0\0",
        ),
        (
            "DEVICE_RESET",
            b"\x08\x00\x0D\x00\x10\0\0\0\0\0\0\0\0\0\0\0",
            b"\x08\x00\x0D\x00\x10\0\0\0\x01\0\0\0\0\0\0\0",
        ),
        (
            "REGION_READ of the command register after it: clear",
            b"\x04\x00\x09\x00\x20\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0",
            b"\x04\x00\x09\x00\x22\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0\0\0",
        ),
    ];
    for (what, command, reply) in table {
        assert_eq!(client.exchange(command, &[]), *reply, "{what}");
    }
}

#[test]
fn posted_commands_have_no_reply_whether_they_work_or_not() {
    let (_folder, server) = serve("posted");
    let client = WireClient::connect(server.socket());
    let write = |region: u32, data: &[u8]| {
        let body = [qwords(&[4]), dwords(&[region, u32::try_from(data.len()).unwrap()]), data.to_vec()].concat();
        message(WRITE, 0x10, &body)
    };
    client.send(&write(7, &[2, 0]), &[]).unwrap();
    client.send(&write(1, &[2, 0]), &[]).unwrap();
    let read = [qwords(&[4]), dwords(&[7, 2])].concat();
    let reply = client.exchange(&message(READ, 0, &read), &[]);
    assert_eq!((reply[2], &reply[32..]), (READ, &[2, 0][..]));
}

#[test]
fn capabilities_are_where_drivers_look_without_looking() {
    let (_folder, server) = serve("capabilities");
    let nic = open(server.socket()).unwrap();
    let mut chain = Vec::new();
    let [mut at] = nic.config(0x34).unwrap();
    while at != 0 {
        let [id, next] = nic.config(at.into()).unwrap();
        chain.push((id, at));
        at = next;
    }
    assert_eq!(chain, [(0x01, 0x40), (0x05, 0x50), (0x11, 0x70), (0x10, 0xA0)]);
    assert_eq!(nic.config(0xAA).unwrap().map(|byte: u8| byte & 0x20), [0, 0], "no transaction pending");
    assert_eq!(nic.config(0xB2).unwrap(), [0x82, 0x00], "8 lanes at 5 GT/s");
    assert_eq!(nic.config(0x100).unwrap(), [0x01, 0x00, 0x01, 0x14], "AER, then 0x140");
    assert_eq!(nic.config(0x140).unwrap(), [0x03, 0x00, 0x01, 0x00], "serial number, the last");
    assert_eq!((nic.ids().class, nic.ids().revision), (0x02_0000, 1));
    assert!(nic.config::<4>(4093).is_err() && nic.config::<4>(4092).is_ok());
}

#[test]
fn memory_is_mapped_by_the_rules() {
    let (_folder, server) = serve("memory");
    let client = WireClient::connect(server.socket());
    let memory = sealed_memfd("memory", 0x4000);
    let fd = [memory.as_fd()];
    let map = |flags, offset, iova, size| client.errno(MAP, &map_body(flags, offset, iova, size), &fd);
    assert_eq!(map(3, 0, 0x10000, 0x3000), 0);
    assert_eq!(map(3, 0, 0x12000, 0x1000), 17, "overlaps at its end: EEXIST");
    assert_eq!(map(3, 0, 0xF000, 0x2000), 17, "overlaps at its beginning");
    assert_eq!(map(3, 0x3000, 0x13000, 0x1000), 0, "adjoins");
    assert_eq!(map(1, 0, 0xF000, 0x1000), 0, "adjoins below, read only");
    for (flags, offset, iova, size) in [
        (3, 0x1000, 0x20000, 0x4000),
        (3, 0, 0x20000, 0),
        (3, 0, 0x20800, 0x1000),
        (3, 0x10, 0x20000, 0x1000),
        (3, 0, 0x20000, 0x1010),
        (0, 0, 0x20000, 0x1000),
        (7, 0, 0x20000, 0x1000),
        (3, 0, u64::MAX - 0xFFF, 0x2000),
        (3, u64::MAX - 0xFFF, 0x20000, 0x1000),
        (3, 0, 0x20000, u64::MAX - 0xFFF),
    ] {
        assert_eq!(map(flags, offset, iova, size), 22, "{flags} {offset:#x} {iova:#x} {size:#x}: EINVAL");
    }
    assert_eq!(client.errno(MAP, &map_body(3, 0, 0x20000, 0x1000), &[memory.as_fd(); 2]), 22, "two descriptors");
    assert_eq!(client.errno(MAP, &map_body(3, 0, 0x20000, 0x1000)[..31], &fd), 22, "cut short");
    assert_eq!(client.errno(MAP, &map_body(3, 0, 0x20000, 0x1000), &[]), 0, "without one: out of the device's reach");

    let unmap = |flags, iova, size| client.errno(UNMAP, &unmap_body(flags, iova, size), &[]);
    assert_eq!(unmap(0, 0x10000, 0x2000), 22, "not the whole of it");
    assert_eq!(unmap(0, 0x11000, 0x2000), 22, "only the end of one");
    assert_eq!(unmap(0, 0x40000, 0x2000), 2, "nothing is there: ENOENT");
    assert_eq!(unmap(0, 0x10000, 0), 22, "no bytes");
    assert_eq!(unmap(0, u64::MAX - 0xFFF, 0x2000), 22, "beyond the last address");
    let reply = client.exchange(&message(UNMAP, 0, &unmap_body(0, 0x10000, 0x3000)), &[]);
    assert_eq!(reply[16..], unmap_body(0, 0x10000, 0x3000), "the reply repeats the command");
    assert_eq!(unmap(0, 0x10000, 0x3000), 2, "a second time");
    assert_eq!(map(3, 0, 0x10000, 0x3000), 0);
    assert_eq!(unmap(0, 0xE000, 0x4000), 22, "one whole, and one in part");
    assert_eq!(unmap(0, 0xE000, 0x6000), 0, "three at once, and what lies around them");
    assert_eq!(unmap(0, 0x13000, 0x1000), 2, "none of them is left");
    assert_eq!(map(3, 0, 0x10000, 0x3000), 0);
    assert_eq!(unmap(2, 0x10000, 0x3000), 22, "all means all");
    assert_eq!(unmap(2, 0, 0), 0);
    assert_eq!(map(3, 0, 0x20000, 0x1000), 0);
}

/// Looked at from outside: what this process, in which the device is, has mapped. A card that is pulled out makes no step in
/// which it would see by itself that its memory has changed.
#[test]
fn memory_that_was_taken_away_is_let_go_of_before_the_reply() {
    let (_folder, server) = serve("let-go");
    let client = WireClient::connect(server.socket());
    let memory = sealed_memfd("taken-away", 0x2000);
    let held = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:taken-away").count();
    for (flags, iova, size) in [(0, 0x1000, 0x1000), (2, 0, 0)] {
        assert_eq!(client.errno(MAP, &map_body(3, 0, 0x1000, 0x1000), &[memory.as_fd()]), 0);
        server.control().inject_fault(softnic::Fault::Removal { after_reads: 0 });
        assert_eq!((server.control().mappings(), held()), (1, 1), "the device has it");
        assert_eq!(client.errno(UNMAP, &unmap_body(flags, iova, size), &[]), 0);
        assert_eq!(held(), 0, "flags {flags}");
    }
}

#[test]
fn a_device_reads_nothing_that_it_may_only_write() {
    const RING: u64 = 0x1_0000;
    const READ_ONLY: u64 = 0x2_0000;
    const WRITE_ONLY: u64 = 0x3_0000;
    let (_folder, server) = serve("write-only");
    let client = WireClient::connect(server.socket());
    let memory = File::from(sealed_memfd("memory", 0x3000));
    for (flags, offset, iova) in [(3, 0, RING), (1, 0x1000, READ_ONLY), (2, 0x2000, WRITE_ONLY)] {
        assert_eq!(client.errno(MAP, &map_body(flags, offset, iova, 0x1000), &[memory.as_fd()]), 0);
    }
    // Frames of 60 bytes in legacy descriptors (7.2.3.2.2), with EOP, IFCS and RS.
    for (index, buffer) in [(0, READ_ONLY), (1, WRITE_ONLY)] {
        memory.write_all_at(&qwords(&[buffer, 60 | 0xB << 24]), index * 16).unwrap();
    }
    let access = |kind, body: Vec<u8>| {
        let reply = client.exchange(&message(kind, 0, &body), &[]);
        assert_eq!(reply[8], 1, "it succeeds");
        reply
    };
    let write = |offset: u64, value: u32| drop(access(WRITE, [qwords(&[offset]), dwords(&[0, 4, value])].concat()));
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
            std::thread::yield_now();
        }
    };
    let bits = |offset: u64, mask: u32| {
        until("a register", &|| {
            let reply = access(READ, [qwords(&[offset]), dwords(&[0, 4])].concat());
            u32::from_le_bytes(reply[32..36].try_into().unwrap()) & mask != 0
        });
    };
    // The command register: memory and bus mastering. Then LINKS, DMATXCTL, and transmit queue 0 (4.6.8).
    access(WRITE, [qwords(&[4]), dwords(&[7, 2]), vec![6, 0]].concat());
    bits(0x42A4, 1 << 30);
    write(0x4A80, 1);
    for (offset, value) in [(0x6000, 0x1_0000), (0x6004, 0), (0x6008, 128), (0x6028, 32), (0x6028, 1 << 25 | 32)] {
        write(offset, value);
    }
    bits(0x6028, 1 << 25);
    let sent = || server.control().wire_counters().sent;
    write(0x6018, 1);
    until("the frame that may be read", &|| sent() == 1);
    write(0x6018, 2);
    until("the other frame", &|| sent() == 2 || server.control().violations().0 > 0);
    let refused = Violation::UnmappedDma { ring: Ring::Tx(0), what: "transmit buffer", iova: WRITE_ONLY };
    assert_eq!((sent(), server.control().violations()), (1, (1, vec![refused])));
}

#[test]
fn memory_that_could_be_cut_off_is_refused() {
    let (_folder, server) = serve("seals");
    let client = WireClient::connect(server.socket());
    let map = |fd: BorrowedFd<'_>| client.errno(MAP, &map_body(3, 0, 0x1000, 0x1000), &[fd]);
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x1000).unwrap();
    assert_ne!(map(file.as_fd()), 0, "an ordinary file");
    assert_ne!(map(eventfd(0, EventfdFlags::CLOEXEC).unwrap().as_fd()), 0, "no file at all");
    let memory = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, 0x1000).unwrap();
    assert_eq!(map(memory.as_fd()), EPERM, "a file that may be sealed later");
    assert_eq!(map(sealed_memfd("sealed", 0x1000).as_fd()), 0);
}

#[test]
fn interrupts_reach_the_eventfds_that_are_connected() {
    let (_folder, server) = serve("interrupts");
    let client = WireClient::connect(server.socket());
    let fds: Vec<OwnedFd> = (0..3).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
    let borrowed: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
    let count = |fd: &OwnedFd| {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).map_or(0, |_| u64::from_le_bytes(bytes))
    };
    let counts = || fds.iter().map(count).collect::<Vec<_>>();
    // argsz, flags, index, start, count
    let set = |words: [u32; 5], tail: &[u8], fds: &[BorrowedFd<'_>]| {
        client.errno(SET_IRQS, &[dwords(&words), tail.to_vec()].concat(), fds)
    };
    let (none, bools, eventfds) = (32 | 1, 32 | 2, 32 | 4);
    assert_eq!(set([20, eventfds, 2, 61, 3], &[], &borrowed), 0);
    assert_eq!(set([20, none, 2, 62, 2], &[], &[]), 0);
    assert_eq!(counts(), [0, 1, 1]);
    assert_eq!(set([23, bools, 2, 61, 3], &[1, 0, 1], &[]), 0);
    assert_eq!(counts(), [1, 0, 1]);
    assert_eq!(set([20, eventfds, 2, 62, 1], &[], &[]), 0, "disconnects one");
    assert_eq!(set([20, none, 2, 0, 64], &[], &[]), 0);
    assert_eq!(counts(), [1, 0, 1]);
    assert_eq!(client.errno(RESET, &[], &[]), 0);
    assert_eq!(set([20, none, 2, 61, 1], &[], &[]), 0, "a reset leaves the host's side connected");
    assert_eq!(counts(), [1, 0, 0]);
    assert_eq!(set([20, none, 2, 0, 0], &[], &[]), 0, "disconnects all");
    assert_eq!(set([20, none, 2, 0, 64], &[], &[]), 0);
    assert_eq!(counts(), [0, 0, 0]);

    assert_eq!(set([20, eventfds, 2, 62, 3], &[], &borrowed), 22, "vector 64");
    assert_eq!(set([20, eventfds, 2, u32::MAX, 2], &[], &borrowed[..2]), 22, "wraps");
    assert_eq!(set([20, eventfds, 2, 0, 2], &[], &borrowed), 22, "three for two");
    assert_eq!(set([20, eventfds, 3, 0, 1], &[], &borrowed[..1]), 22, "there is no ERR");
    assert_eq!(set([20, 32 | 1 | 4, 2, 0, 1], &[], &borrowed[..1]), 22, "two kinds of data");
    assert_eq!(set([22, bools, 2, 0, 3], &[1, 1], &[]), 22, "cut short");
    assert_eq!(set([20, 8 | 1, 2, 0, 1], &[], &[]), 25, "masking is in the table: ENOTTY");
    let file = tempfile::tempfile().unwrap();
    assert_eq!(set([20, eventfds, 2, 0, 1], &[], &[file.as_fd()]), 22, "no eventfd");
    assert_eq!(set([20, eventfds, 1, 0, 1], &[], &borrowed[..1]), 0, "MSI");
}

#[test]
fn our_client_gets_interrupts_by_msix() {
    let (_folder, server) = serve("msix");
    let nic = open(server.socket()).unwrap();
    let fds = nic.enable_msix(40).unwrap();
    assert_eq!(fds.len(), 40);
    let write = |offset, value| {
        // SAFETY: none of these registers leads to memory.
        unsafe { nic.bar().write32(offset, value) }
    };
    // GPIE: MSI-X, EIAME; unmask vectors 3 and 39; EICS_EX raises them.
    write(0x898, 1 << 4 | 1 << 30);
    write(0xAA0, 1 << 3);
    write(0xAA4, 1 << 7);
    write(0xA90, 1 << 3 | 1 << 2);
    write(0xA94, 1 << 7);
    let fired: Vec<usize> = (0..40)
        .filter(|vector| {
            let mut bytes = [0; 8];
            rustix::io::read(&fds[*vector], &mut bytes).is_ok() && u64::from_ne_bytes(bytes) == 1
        })
        .collect();
    assert_eq!(fired, [3, 39]);
    assert!(nic.enable_msix(65).unwrap_err().to_string().contains("it has 64"));
    assert!(nic.enable_msix(0).unwrap().is_empty());
}

/// INTx as a level: it fires once, is masked by that, and fires again on unmasking while a cause is there (7.3.1, and
/// VFIO's automasked interrupts).
#[test]
fn intx_is_a_level() {
    let (_folder, server) = serve("intx");
    let client = WireClient::connect(server.socket());
    let write = |offset: u64, value: u32| {
        let body = [qwords(&[offset]), dwords(&[0, 4, value])].concat();
        assert_eq!(client.errno(WRITE, &body, &[]), 0);
    };
    let read = |offset: u64| {
        let reply = client.exchange(&message(READ, 0, &[qwords(&[offset]), dwords(&[0, 4])].concat()), &[]);
        u32::from_le_bytes(reply[32..36].try_into().unwrap())
    };
    let config = |offset: u64, value: u16| {
        let body = [qwords(&[offset]), dwords(&[7, 2]), value.to_le_bytes().to_vec()].concat();
        assert_eq!(client.errno(WRITE, &body, &[]), 0);
    };
    let pin = client.exchange(&message(READ, 0, &[qwords(&[0x3D]), dwords(&[7, 1])].concat()), &[]);
    assert_eq!(pin[32], 1, "INTA");
    config(4, 2);
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let fired = || {
        let mut bytes = [0; 8];
        if rustix::io::read(&fd, &mut bytes).is_ok() { u64::from_ne_bytes(bytes) } else { 0 }
    };
    // A thread of its own signals: perhaps after the reply.
    let fires = |fd: &OwnedFd| {
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit)), Ok(1), "no interrupt in a minute");
    };
    let set =
        |flags: u32, many: u32, fds: &[BorrowedFd<'_>]| client.errno(SET_IRQS, &dwords(&[20, flags, 0, 0, many]), fds);
    assert_eq!(set(32 | 4, 1, &[fd.as_fd()]), 0);
    // EICS sets causes: nothing while EIMS masks them, as the interrupt test of Linux's driver has it.
    write(0x808, 0x7FFE);
    assert_eq!(fired(), 0, "masked");
    write(0x880, 1);
    assert_eq!(fired(), 0, "the only cause that is not masked is not there");
    write(0x808, 1);
    fires(&fd);
    assert_eq!(fired(), 1);
    write(0x808, 1);
    assert_eq!(fired(), 0, "masked by having fired");
    assert_eq!(set(16 | 1, 1, &[]), 0, "unmask");
    fires(&fd);
    assert_eq!(fired(), 1, "EICR has not been read");
    assert_eq!(read(0x800) & 0xFFFF, 0x7FFF);
    assert_eq!(set(16 | 1, 1, &[]), 0, "unmask");
    assert_eq!(fired(), 0, "EICR clears on read, and with it the level");
    // Interrupt Disable in the command register.
    config(4, 2 | 1 << 10);
    write(0x808, 1);
    assert_eq!(fired(), 0);
    config(4, 2);
    fires(&fd);
    assert_eq!(fired(), 1);
    assert_eq!(set(8 | 1, 1, &[]), 0, "mask");
    assert_eq!(set(16 | 2, 1, &[]), 22, "cut short");
    assert_eq!(set(16 | 4, 1, &[fd.as_fd()]), 22, "no eventfd that unmasks");
    assert_eq!(set(32 | 1, 0, &[]), 0, "disconnect");
    write(0x808, 1);
    assert_eq!(fired(), 0);
    // MSI takes over when it is connected.
    assert_eq!(set(32 | 4, 1, &[fd.as_fd()]), 0);
    fires(&fd);
    assert_eq!(fired(), 1, "the cause is still there");
    let msi = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    assert_eq!(client.errno(SET_IRQS, &dwords(&[20, 32 | 4, 1, 0, 1]), &[msi.as_fd()]), 0);
    write(0x808, 1);
    fires(&msi);
    assert_eq!(fired(), 0);
}

/// As a virtual machine's IOMMU has it: a mapping for each page, thousands of them, in no order.
#[test]
fn thousands_of_pages_are_mapped_one_by_one() {
    const PAGES: u64 = 4096;
    let (_folder, server) = serve("pages");
    let client = WireClient::connect(server.socket());
    let memory = sealed_memfd("memory", PAGES * 0x1000);
    // 1234567 is odd, so every page comes once.
    let page = |n: u64| n * 1_234_567 % PAGES * 0x1000;
    for n in 0..PAGES {
        let body = map_body(3, page(n), 0x4000_0000 + page(n + 1), 0x1000);
        assert_eq!(client.errno(MAP, &body, &[memory.as_fd()]), 0);
    }
    assert_eq!(server.control().mappings(), 4096);
    for n in (0..PAGES).step_by(2) {
        assert_eq!(client.errno(UNMAP, &unmap_body(0, 0x4000_0000 + page(n), 0x1000), &[]), 0);
    }
    assert_eq!(server.control().mappings(), 2048);
    assert_eq!(client.errno(UNMAP, &unmap_body(2, 0, 0), &[]), 0);
    assert_eq!(server.control().mappings(), 0);
}

#[test]
fn a_card_that_is_pulled_out_is_all_ones() {
    let (_folder, server) = serve("pulled");
    let client = WireClient::connect(server.socket());
    let read = |offset: u64, region: u32| {
        let reply = client.exchange(&message(READ, 0, &[qwords(&[offset]), dwords(&[region, 4])].concat()), &[]);
        u32::from_le_bytes(reply[32..36].try_into().unwrap())
    };
    assert_eq!(read(0, 7), 0x10F9_8086);
    let memory = sealed_memfd("memory", 0x1000);
    assert_eq!(client.errno(MAP, &map_body(3, 0, 0x1000, 0x1000), &[memory.as_fd()]), 0);
    assert_eq!(client.errno(MAP, &map_body(1, 0, 0x10_0000, 0x1000), &[]), 0, "without a descriptor");
    assert_eq!((server.control().mappings(), server.control().dma_accesses()), (1, 0));
    server.control().inject_fault(softnic::Fault::Removal { after_reads: 0 });
    for region in [0, 4, 7] {
        assert_eq!(read(8, region), u32::MAX, "region {region}");
    }
}

#[test]
fn a_client_that_dies_leaves_a_device_in_reset_with_nothing_mapped() {
    let (_folder, server) = serve("reconnect");
    let memory = sealed_memfd("memory", 0x1000);
    for round in 0..3 {
        let client = WireClient::connect(server.socket());
        assert_eq!(client.errno(MAP, &map_body(3, 0, 0x1000, 0x1000), &[memory.as_fd()]), 0, "round {round}");
        let command = [qwords(&[4]), dwords(&[7, 2])].concat();
        let reply = client.exchange(&message(READ, 0, &command), &[]);
        assert_eq!(reply[32..], [0, 0], "round {round}: bus mastering is off");
        assert_eq!(client.errno(WRITE, &[&command[..], &[6, 0]].concat(), &[]), 0);
        // In the middle of a message.
        client.send(&[1, 2, 3], &[]).unwrap();
    }
}

#[test]
fn doorbells_are_stores_that_the_device_sees() {
    let (_folder, server) = serve("doorbells");
    let nic = open(server.socket()).unwrap();
    assert!(nic.has_doorbell_memory());
    // RDT of queues 0, 63, 64, 127; TDT of 0 and 127. The device's own view comes by message.
    for (value, offset) in [(1, 0x1018), (2, 0x1FD8), (3, 0xD018), (4, 0xDFD8), (5, 0x6018), (6, 0x7FD8)] {
        // SAFETY: no queue is enabled, and no memory is mapped.
        unsafe { nic.bar().write32(offset, value) };
        assert_eq!(nic.bar().read32(offset), value, "{offset:#x}");
    }
    nic.reset().unwrap();
    assert_eq!(nic.bar().read32(0x7FD8), 0);
    assert_eq!(nic.bar().read32(0x8_0000), u32::MAX, "outside");
}

#[test]
fn mappings_come_and_go_with_the_domain() {
    let (_folder, server) = serve("domain");
    let nic = open(server.socket()).unwrap();
    let request = MemoryRequest { bytes: 1 << 20, pages: PageSize::Ordinary, numa_node: None };
    let memory = DmaMemory::allocate(&request).unwrap();
    let registers = nic.registers();
    assert_eq!(registers.read32(8), 1 << 19);
    let translation = nic.dma().map(&memory).unwrap();
    assert_ne!(translation.iova(memory.base().as_ptr()), memory.base().as_ptr() as u64);
    assert_eq!(nic.dma().mappings(), 1);
    drop(nic);
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "unmapped, so nobody else holds it");
    assert_eq!(registers.read32(8), u32::MAX, "the device is closed");
    open(server.socket()).unwrap();
}

#[test]
fn a_server_that_ends_is_a_device_that_is_gone() {
    let (folder, server) = serve("ends");
    let path = server.socket().to_owned();
    let nic = open(&path).unwrap();
    assert_eq!(nic.bar().read32(8), 1 << 19);
    drop(server);
    assert_eq!(nic.bar().read32(8), u32::MAX);
    let error = nic.set_bus_master(true).unwrap_err().to_string();
    assert!(error.contains("vfio-user:/"), "{error}");
    assert!(nic.reset().is_err(), "the process lives on, so nobody knows that the device is quiet");
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("start the device first"), "{error}");
    assert!(!path.exists() && folder.path().exists());
}

#[test]
fn a_socket_in_use_is_refused_and_one_left_behind_is_replaced() {
    let (folder, server) = serve("first");
    let error = VfioUserServer::start("second?wire=sink", server.socket()).unwrap_err().to_string();
    assert!(error.contains("nic.sock") && error.contains("another path"), "{error}");
    let left = folder.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    VfioUserServer::start("second?wire=sink", &left).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(VfioUserServer::start("second?wire=sink", &file).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}
