//! Whatever a client sends: the server answers or ends that connection, takes no more memory than a message may have, and
//! serves the next client.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "an allocator that watches")]

mod wire_client;

use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use softnic::VfioUserServer;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read as _;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use wire_client::{VERSION, WireClient, message, sealed_memfd};

/// The system's allocator, which remembers the largest request.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// A client's whole speech.
#[derive(Clone, Debug)]
struct Speech {
    greets: bool,
    messages: Vec<Vec<u8>>,
    /// Before which message descriptors go, and how many.
    descriptors: (usize, usize),
}

/// Numbers at which checks go wrong.
fn word() -> impl Strategy<Value = u32> {
    let edges =
        vec![0, 1, 2, 3, 4, 7, 9, 16, 20, 24, 32, 33, 36, 64, 0x1000, 0x1_0000, 0x8_0000, 0x7FFF_FFFF, u32::MAX];
    prop_oneof![3 => proptest::sample::select(edges), 1 => any::<u32>()]
}

/// A message whose size is right.
fn sound() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(word(), 0..12);
    (0_u8..20, prop_oneof![4 => Just(0_u8), 1 => any::<u8>()], body, 0_usize..4).prop_map(
        |(command, flags, words, cut)| {
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            body.truncate(body.len().saturating_sub(cut));
            message(command, flags, &body)
        },
    )
}

/// A region access whose form is right: all registers of all regions, and what lies beyond their ends.
fn access() -> impl Strategy<Value = Vec<u8>> {
    let place = prop_oneof![
        4 => (Just(0_u32), (0..0x8000_u64).prop_map(|dword| dword * 4)),
        1 => (Just(0_u32), 0x7_FFF0..0x8_0010_u64),
        2 => (Just(4_u32), 0x3FF0..0x4010_u64),
        2 => (Just(7_u32), prop_oneof![0..0x150_u64, 0xFF0..0x1010_u64]),
        1 => (0..12_u32, u64::MAX - 8..=u64::MAX),
    ];
    (9_u8..=10, place, prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(command, (region, offset), data)| {
        let count = u32::try_from(data.len()).unwrap();
        let mut body = [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes()].concat();
        if command == 10 {
            body.extend_from_slice(&data);
        }
        message(command, 0, &body)
    })
}

/// A header that lies, or no header at all.
fn unsound() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        (sound(), word()).prop_map(|(mut message, size)| {
            message[4..8].copy_from_slice(&size.to_le_bytes());
            message
        }),
    ]
}

fn speech() -> impl Strategy<Value = Speech> {
    let message = prop_oneof![10 => sound(), 20 => access(), 1 => unsound()];
    (prop::bool::weighted(0.9), prop::collection::vec(message, 0..30), (0_usize..30, 0_usize..17))
        .prop_map(|(greets, messages, descriptors)| Speech { greets, messages, descriptors })
}

/// Says it, hangs up, and reads until the server has too.
fn listen_to(server: &VfioUserServer, speech: &Speech, gifts: &[OwnedFd]) {
    let client = WireClient::silent(server.socket());
    // A server that has heard enough closes, and then sending fails.
    if speech.greets {
        client.send(VERSION, &[]).unwrap();
        // The command register: memory and bus mastering on, so that registers can be reached.
        let command = [&4_u64.to_le_bytes()[..], &7_u32.to_le_bytes(), &2_u32.to_le_bytes(), &[6, 0]].concat();
        client.send(&message(10, 0, &command), &[]).unwrap();
    }
    let (at, count) = speech.descriptors;
    for (index, message) in speech.messages.iter().filter(|message| !message.is_empty()).enumerate() {
        let count = if index == at { count.min(16) } else { 0 };
        let fds: Vec<_> = gifts.iter().cycle().take(count).map(|fd| fd.as_fd()).collect();
        if client.send(message, &fds).is_err() {
            break;
        }
    }
    let _ = client.0.shutdown(Shutdown::Write);
    // A connection that is reset has ended as well; a server that hangs would run into the timeout.
    if let Err(error) = (&client.0).read_to_end(&mut Vec::new()) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server hangs: {error}");
    }
}

#[test]
fn garbage_costs_a_client_its_own_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = VfioUserServer::start("garbage?wire=loop", &folder.path().join("nic.sock")).unwrap();
    let neighbour = VfioUserServer::start("neighbour?wire=sink", &folder.path().join("other.sock")).unwrap();
    let held = WireClient::connect(neighbour.socket());
    let gifts =
        [eventfd(0, EventfdFlags::empty()).unwrap(), tempfile::tempfile().unwrap().into(), sealed_memfd("gift", 0)];
    LARGEST.store(0, Ordering::Relaxed);
    // A server that has failed once has failed for every smaller case too.
    let config =
        ProptestConfig { cases: 512, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() };
    proptest!(config, |(speech in speech())| listen_to(&server, &speech, &gifts));

    // One message of the largest size that there can be, and one byte more.
    let most = device::vfio_user::message::MAX_BODY;
    for (size, answered) in [(most, true), (most + 1, false)] {
        let client = WireClient::connect(server.socket());
        let _ = client.send(&message(10, 0, &vec![0xFF; size]), &[]);
        let mut reply = [0; 16];
        assert_eq!((&client.0).read_exact(&mut reply).is_ok(), answered, "{size}");
        assert_eq!(reply[8], if answered { 0x21 } else { 0 });
    }
    // The test's own message has the header too, and what is refused by its size has been built here all the same.
    assert!(LARGEST.load(Ordering::Relaxed) <= most + 1 + 16, "{}", LARGEST.load(Ordering::Relaxed));

    WireClient::connect(server.socket());
    assert_eq!(held.errno(13, &[], &[]), 0, "the neighbour's client was not disturbed");
}
