//! The threaded face and each of its wires, driven by hand.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, Plan, frame, rx};
use device::{Bar as _, Device as _};
use softnic::{Ring, SoftDevice, Violation};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

fn start(spec: &str, plan: Plan) -> Driver<SoftDevice> {
    Driver::start(SoftDevice::open(spec).unwrap(), plan)
}

/// Waits for something the engine does; it must come, however slow the machine.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::yield_now();
    }
}

fn receive_all(driver: &mut Driver<SoftDevice>, frames: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    until("frames", || {
        while let Some(frame) = driver.receive(0) {
            received.push(frame.bytes);
        }
        received.len() >= frames
    });
    received
}

/// A capture file: byte order, magic, link type word, records.
fn write_capture(path: &Path, big: bool, magic: u32, link: u32, records: &[Vec<u8>]) {
    let word = |w: u32| if big { w.to_be_bytes() } else { w.to_le_bytes() };
    let half = |h: u16| if big { h.to_be_bytes() } else { h.to_le_bytes() };
    let mut bytes = [&word(magic)[..], &half(2), &half(4), &word(0), &word(0), &word(262_144), &word(link)].concat();
    for record in records {
        let len = word(record.len() as u32);
        bytes.extend([&word(1)[..], &word(2), &len, &len, record].concat());
    }
    std::fs::write(path, bytes).unwrap();
}

/// Reads what `wire=pcap` writes, and nothing else.
fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(16), word(20)), (0xA1B2_C3D4, 4 << 16 | 2, 262_144, 1));
    let (mut at, mut frames) = (24, Vec::new());
    while at < bytes.len() {
        let len = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, len);
        frames.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

#[test]
fn generator_and_sink() {
    let mut source = start("gen-a?wire=gen&size=60-100&flows=50&count=500", Plan::default());
    let mut sink = start("sink-a?wire=sink", Plan::default());
    let frames = receive_all(&mut source, 500);
    assert_eq!(frames.len(), 500);
    assert!(frames.iter().map(Vec::len).eq((60..=100).cycle().take(500)), "sizes in turn");
    let tuples: HashSet<_> = frames.iter().map(|frame| frame[26..38].to_vec()).collect();
    assert_eq!(tuples.len(), 50);
    assert!(source.device.source_finished());
    for frame in &frames[..15] {
        sink.send(0, frame);
    }
    until("the sink", || sink.device.transmit_idle());
    let (taken, gone) = (source.device.wire_counters(), sink.device.wire_counters());
    assert_eq!((taken.offered, taken.delivered, taken.dropped, taken.missed), (500, 500, 0, 0));
    assert_eq!((gone.sent, gone.sent_bytes), (15, frames[..15].iter().map(|frame| frame.len() as u64).sum()));
    assert_eq!(source.device.violations().0 + sink.device.violations().0, 0);
    assert_eq!(source.read(0x4074), 500, "GPRC");
}

#[test]
fn a_paced_generator_misses_what_nobody_takes() {
    let driver = start("gen-drop?wire=gen&rate=1000000&mode=drop&size=1500", Plan::default());
    until("missed frames", || driver.device.wire_counters().missed > 100);
    assert_eq!(driver.device.wire_counters().delivered, 15, "as many as there are descriptors");
    assert!(driver.read(0x3FA0) > 100, "MPC");
}

#[test]
fn loop_returns_everything_in_order() {
    let mut driver = start("loop-a?wire=loop", Plan { descriptors: 64, ..Plan::default() });
    for round in 0..50u8 {
        let frames: Vec<_> = (0..40).map(|n| frame(BROADCAST, 60 + n, round)).collect();
        frames.iter().for_each(|frame| {
            driver.send(0, frame);
        });
        assert_eq!(receive_all(&mut driver, 40), frames);
    }
}

#[test]
fn peers_back_to_back() {
    let mut a = SoftDevice::open("peer-a?wire=peer:peer-b").unwrap();
    assert_eq!(a.bar().read32(0x42A4) & 1 << 30, 0, "nobody at the other end");
    // One names the other, which names nobody; then each names the other.
    for b in ["peer-b", "peer-b?wire=peer:peer-a"] {
        let mut left = Driver::stopped(a, Plan { descriptors: 64, ..Plan::default() });
        let right = SoftDevice::open(b).unwrap();
        let mut right = Driver::start(right, left.plan);
        left = Driver::start(left.device, left.plan);
        // A receiver is ready once the engine has seen it: until then frames are lost, as on a real cable.
        const PROBE: usize = 100;
        until("the first frame", || {
            left.send(0, &frame(BROADCAST, PROBE, 0));
            until("room", || left.device.transmit_idle());
            right.receive(0).is_some()
        });
        let lost = left.device.wire_counters().lost;
        let frames: Vec<_> = (0..60u8).map(|n| frame(BROADCAST, 20 + usize::from(n), n)).collect();
        for frame in &frames {
            left.send(0, frame);
        }
        let mut received = Vec::new();
        until("all frames", || {
            // The last probes may still be under way.
            received.extend(right.receive(0).map(|frame| frame.bytes).filter(|frame| frame.len() != PROBE));
            received.len() == 60
        });
        assert!(received[..40].iter().all(|frame| frame.len() == 60), "padding is real");
        assert_eq!(received[50], frames[50]);
        assert_eq!(left.device.wire_counters().lost, lost);
        right.send(0, &frames[59]);
        assert_eq!(receive_all(&mut left, 1), [frames[59].clone()]);
        drop(right);
        until("carrier loss", || left.read(common::LINKS) & 1 << 30 == 0);
        a = left.device;
        a.reset().unwrap();
    }
}

#[test]
fn a_slow_peer_holds_the_sender_up_or_misses() {
    for (mode, waits) in [("wait", true), ("drop", false)] {
        let to = SoftDevice::open(&format!("slow-{mode}?wire=peer:fast-{mode}&mode={mode}")).unwrap();
        let from = SoftDevice::open(&format!("fast-{mode}")).unwrap();
        let to = Driver::start(to, Plan::default());
        let mut from = Driver::start(from, Plan { descriptors: 1024, ..Plan::default() });
        until("a ready receiver", || {
            from.send(0, &frame(BROADCAST, 60, 0));
            until("room", || from.device.transmit_idle());
            to.device.wire_counters().delivered != 0
        });
        let sent = |from: &Driver<SoftDevice>| from.device.wire_counters().sent;
        // More than the cable and the receiver hold, less than with the transmit ring.
        for _ in 0..2000 {
            let next = (from.tx_next[0] + 1) % 1024;
            until("room", || from.read(common::tx(0, 0x10)) != next);
            from.send(0, &frame(BROADCAST, 1400, 0));
        }
        if waits {
            until("the sender to be held up", || sent(&from) >= 1024 && !from.device.transmit_idle());
            assert_eq!((to.device.wire_counters().missed, from.device.wire_counters().lost), (0, 0));
        } else {
            until("the sender to be done", || from.device.transmit_idle());
            until("missed frames", || to.device.wire_counters().missed > 0);
        }
    }
}

#[test]
fn peers_that_do_not_fit() {
    let _a = SoftDevice::open("fit-a?wire=peer:fit-b").unwrap();
    let busy = SoftDevice::open("fit-a").unwrap_err().to_string();
    assert!(busy.contains("device busy") && busy.contains("fit-a"), "{busy}");
    let other = SoftDevice::open("fit-c?wire=peer:fit-b").unwrap_err().to_string();
    assert!(other.contains("another device"), "{other}");
    let _d = SoftDevice::open("fit-d?wire=loop").unwrap();
    let own = SoftDevice::open("fit-e?wire=peer:fit-d").unwrap_err().to_string();
    assert!(own.contains("wire of its own"), "{own}");
    SoftDevice::open("fit-e").unwrap();
    SoftDevice::open("fit-e").unwrap();
    // The same contradiction in the other order, and a peer that nobody opens.
    let f = SoftDevice::open("fit-f?wire=peer:fit-g").unwrap();
    assert_eq!(f.missing_peer().as_deref(), Some("fit-g"));
    for wire in ["gen", "sink", "loop", "pcap:,/dev/null"] {
        let own = SoftDevice::open(&format!("fit-g?wire={wire}")).unwrap_err().to_string();
        assert!(own.contains("fit-f") && own.contains("fit-g") && own.contains("wire of its own"), "{own}");
    }
    let g = SoftDevice::open("fit-g").unwrap();
    assert_eq!((f.missing_peer(), g.missing_peer()), (None, None));
    drop(f);
    assert_eq!(g.missing_peer().as_deref(), Some("fit-f"));
}

#[test]
fn captures_arrive_in_order_and_go_out() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    let mut frames: Vec<_> = (0..100u8).map(|n| frame(BROADCAST, 14 + 13 * usize::from(n), n)).collect();
    frames.push(vec![]);
    frames.push(frame(BROADCAST, 80_000, 1));
    frames.push(frame(BROADCAST, 42, 7));
    let good: Vec<_> = frames.iter().filter(|frame| (14..=1514).contains(&frame.len())).cloned().collect();
    for (big, magic, link) in [
        (false, 0xA1B2_C3D4, 1),
        (true, 0xA1B2_C3D4, 1),
        (false, 0xA1B2_3C4D, 0x3000_0001),
        (true, 0xA1B2_3C4D, 0x0400_0001),
    ] {
        write_capture(&input, big, magic, link, &frames);
        let spec = format!("pcap?wire=pcap:{},{}", input.display(), output.display());
        let mut driver = start(&spec, Plan::default());
        let received = receive_all(&mut driver, good.len());
        assert!(received == good, "big endian {big}, magic {magic:#x}, link type {link:#x}");
        assert!(driver.device.source_finished());
        let counters = driver.device.wire_counters();
        assert_eq!((counters.offered, counters.dropped), (frames.len() as u64, (frames.len() - good.len()) as u64));
        assert_eq!(driver.read(0x40A4), 1, "RUC: the empty record");
        for frame in &good[..10] {
            driver.send(0, frame);
        }
        until("transmission", || driver.device.transmit_idle());
        assert!(read_capture(&output) == good[..10], "short frames are not padded, and all is on disk");
        driver.send(0, &good[10]);
        until("transmission", || driver.device.wire_counters().sent == 11);
        drop(driver);
        assert_eq!(read_capture(&output).len(), 11);
    }
}

#[test]
fn frames_that_end_in_their_crc_lose_it() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("fcs.pcap");
    write_capture(&input, false, 0xA1B2_C3D4, 0x2400_0001, &[frame(BROADCAST, 64, 1)]);
    let mut driver = start(&format!("pcap-fcs?wire=pcap:{},", input.display()), Plan::default());
    assert_eq!(receive_all(&mut driver, 1), [frame(BROADCAST, 64, 1)[..60].to_vec()]);
}

/// A block of a pcapng file, little-endian.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = [body, &[0; 3][..(4 - body.len() % 4) % 4]].concat();
    let len = (padded.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, &padded, &len].concat()
}

/// The block that a pcapng file begins with.
fn section() -> Vec<u8> {
    block(0x0A0D_0D0A, &[&[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0][..], &[0xFF; 8]].concat())
}

#[test]
fn captures_of_the_new_format() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.pcapng");
    let frames: Vec<_> = (0..5u8).map(|n| frame(BROADCAST, 61 + usize::from(n), n)).collect();
    let mut bytes = [section(), block(1, &[1, 0, 0, 0, 0, 0, 4, 0])].concat();
    for frame in &frames {
        let len = (frame.len() as u32).to_le_bytes();
        bytes.extend(block(6, &[&[0; 12][..], &len, &len, frame].concat()));
    }
    std::fs::write(&input, bytes).unwrap();
    let mut driver = start(&format!("pcapng?wire=pcap:{},", input.display()), Plan::default());
    assert_eq!(receive_all(&mut driver, 5), frames);
}

#[test]
fn long_blocks_without_packets_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("long.pcapng");
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let packet = |number: u8| {
        let len = 64_u32.to_le_bytes();
        block(6, &[&[0; 12][..], &len, &len, &frame(BROADCAST, 64, number)].concat())
    };
    // Custom, decryption secrets, and one that no specification knows; from the window's length on they do not fit into it.
    let long = |kind: u32, len: usize| block(kind, &vec![0; len - 12]);
    for (case, len) in [(1 << 19) - 4, 1 << 19, (1 << 19) + 4, 1 << 20, (1 << 24) - 4].into_iter().enumerate() {
        let [first, second, last] = [0x0BAD, 10, 0x7777_7777].map(|kind| long(kind, len));
        let blocks = [section(), first, interface.clone(), packet(1), second, packet(2), last];
        std::fs::write(&input, blocks.concat()).unwrap();
        let mut driver = start(&format!("long-{case}?wire=pcap:{},", input.display()), Plan::default());
        let expected: Vec<_> = [1, 2].map(|number| frame(BROADCAST, 64, number)).into();
        assert_eq!(receive_all(&mut driver, 2), expected, "{len}");
        until("the end", || driver.device.source_finished());
        assert_eq!(driver.device.wire_error(), None, "{len}");
    }
    // Cut short, longer than what is skipped, and a packet.
    for (case, (rest, cause)) in [
        (long(0x0BAD, 1 << 20)[..1 << 19].to_vec(), "cut short"),
        (block(0x0BAD, &[0; 1 << 24]), "longer than"),
        (block(6, &[0; 1 << 20]), "longer than"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&input, [section(), interface.clone(), packet(1), rest].concat()).unwrap();
        let mut driver = start(&format!("too-long-{case}?wire=pcap:{},", input.display()), Plan::default());
        assert_eq!(receive_all(&mut driver, 1).len(), 1);
        until("the end", || driver.device.source_finished());
        let error = driver.device.wire_error().unwrap().to_string();
        assert!(error.contains(cause) && error.contains("name an undamaged copy"), "{error}");
    }
}

/// What belongs to a frame of a pcapng file: not the padding of a simple packet that was cut, and no FCS.
#[test]
fn frames_of_the_new_format_end_where_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("ends.pcapng");
    let whole = frame(BROADCAST, 64, 1);
    let without = |fcs: usize| whole[..64 - fcs].to_vec();
    let interface = |snap: u32, options: &[u8]| block(1, &[&[1, 0, 0, 0], &snap.to_le_bytes()[..], options].concat());
    let enhanced = |options: &[u8]| {
        let len = 64_u32.to_le_bytes();
        block(6, &[&[0; 12][..], &len, &len, &whole, options].concat())
    };
    let cut = block(3, &[&100_u32.to_le_bytes()[..], &whole[..61], &[0xEE; 3]].concat());
    let fcslen = [13, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    let flags = |bytes: u8| [2, 0, 4, 0, bytes << 5, 0, 0, 0, 0, 0, 0, 0];
    for (blocks, expected) in [
        ([interface(61, &[]), cut], without(3)),
        ([interface(0, &[]), block(3, &[&64_u32.to_le_bytes()[..], &whole].concat())], without(0)),
        ([interface(0, &fcslen), enhanced(&[])], without(4)),
        ([interface(0, &[]), enhanced(&flags(4))], without(4)),
        ([interface(0, &fcslen), enhanced(&flags(2))], without(2)),
        ([interface(0, &fcslen), enhanced(&flags(0))], without(4)),
    ] {
        std::fs::write(&input, [section(), blocks.concat()].concat()).unwrap();
        let mut driver = start(&format!("pcapng-ends?wire=pcap:{},", input.display()), Plan::default());
        assert_eq!(receive_all(&mut driver, 1), [expected]);
    }
}

#[test]
fn captures_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad");
    let open =
        |path: &Path| SoftDevice::open(&format!("pcap-bad?wire=pcap:{},", path.display())).unwrap_err().to_string();
    assert!(open(&path).contains("No such file"), "{}", open(&path));
    assert!(open(dir.path()).contains("it is a directory"), "{}", open(dir.path()));
    // Whose writer never comes: nobody waits for one.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(open(&pipe).contains("it is a pipe"), "{}", open(&pipe));
    std::fs::write(&path, b"no capture at all, but long enough to hold a header").unwrap();
    assert!(open(&path).contains("begins like no capture"), "{}", open(&path));
    std::fs::write(&path, b"").unwrap();
    assert!(open(&path).contains("pcap or pcapng"), "{}", open(&path));
    write_capture(&path, false, 0xA1B2_C3D4, 113, &[]);
    assert!(open(&path).contains("link type is 113"), "{}", open(&path));
    // Blocks of every defined kind that say they are shorter than their own frame, in both orders of bytes.
    for kind in (0..=12).chain([0x8000_0001, 0xBAD, 0x4000_0BAD]) {
        for length in 0..12_u32 {
            for swapped in [length, length.swap_bytes()] {
                let block = [kind, swapped, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
                std::fs::write(&path, [section(), block].concat()).unwrap();
                assert!(open(&path).contains("shorter than any"), "{kind:#x}, {length}: {}", open(&path));
            }
        }
    }
    // A packet before the interface that it is of; the second section has none.
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let interface_block = interface.clone();
    let packet =
        |interface: u8| block(6, &[&[interface][..], &[0; 11], &[4, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]].concat());
    for (number, blocks) in [(1, [section(), interface.clone(), packet(1)]), (0, [interface, section(), packet(0)])] {
        std::fs::write(&path, [section(), blocks.concat()].concat()).unwrap();
        assert!(open(&path).contains(&format!("a packet of interface {number}, which")), "{}", open(&path));
    }
    std::fs::write(&path, [section(), interface_block, block(2, &[0; 24])].concat()).unwrap();
    assert!(open(&path).contains("the obsolete kind"), "{}", open(&path));
    write_capture(&path, false, 0xA1B2_C3D4, 1, &[frame(BROADCAST, 100, 1), frame(BROADCAST, 100, 2)]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 10]).unwrap();
    let mut driver = start(&format!("pcap-cut?wire=pcap:{},", path.display()), Plan::default());
    assert_eq!(receive_all(&mut driver, 1).len(), 1);
    until("the end", || driver.device.source_finished());
    let error = driver.device.wire_error().unwrap().to_string();
    assert!(error.contains("bad") && error.contains("cut short") && error.contains("undamaged copy"), "{error}");
}

#[test]
fn tap_carries_frames_of_the_host() {
    let name = format!("rwt{}", std::process::id() % 100_000);
    let device = match SoftDevice::open(&format!("tap?wire=tap:{name}")) {
        Ok(device) => device,
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("tun") || message.contains("TAP"), "{message}");
            skip::test!("{message}");
            return;
        }
    };
    let up = std::process::Command::new("ip").args(["link", "set", &name, "up"]).status();
    if !up.is_ok_and(|status| status.success()) {
        skip::test!("ip link set {name} up does not work here");
        return;
    }
    let mut driver = Driver::start(device, Plan { descriptors: 64, ..Plan::default() });
    // The host announces itself on an interface that comes up (IPv6), unless told not to: then it is asked.
    let mut request = frame(BROADCAST, 42, 0);
    request[12..14].copy_from_slice(&[8, 6]);
    driver.send(0, &request);
    until("transmission", || driver.device.transmit_idle());
    let counters = driver.device.wire_counters();
    assert_eq!((counters.sent, counters.sent_bytes, counters.lost), (1, 42, 0), "not padded");
    let statistics = format!("/sys/class/net/{name}/statistics/rx_packets");
    assert_eq!(std::fs::read_to_string(statistics).unwrap().trim(), "1", "the host has counted it");
    // What the host sends arrives: one UDP datagram to a neighbour that is set by hand.
    let run = |args: &[&str]| std::process::Command::new("ip").args(args).status().unwrap().success();
    assert!(run(&["addr", "add", "198.18.77.1/24", "dev", &name]));
    assert!(run(&["neigh", "replace", "198.18.77.2", "lladdr", "02:00:00:00:77:02", "dev", &name]));
    let socket = std::net::UdpSocket::bind("198.18.77.1:0").unwrap();
    socket.send_to(b"x", "198.18.77.2:9").unwrap();
    until("the datagram", || {
        driver.receive(0).is_some_and(|frame| {
            let ours = frame.bytes[..6] == [2, 0, 0, 0, 0x77, 2];
            assert!(!ours || frame.bytes.len() == 14 + 20 + 8 + 1, "received as short as the host sends it");
            ours
        })
    });
}

#[test]
fn tails_beyond_the_ring_are_counted_not_followed() {
    let driver = start("tail?wire=gen", Plan::default());
    driver.write(rx(0, 0x18), 999);
    until("the violation", || driver.device.violations().0 != 0);
    let (ring, tail, descriptors) = (Ring::Rx(0), 999, 16);
    assert_eq!(driver.device.violations().1, [Violation::TailBeyondRing { ring, tail, descriptors }]);
}

#[test]
fn after_reset_and_unmapping_no_memory_is_touched() {
    let driver = start("quiet?wire=gen", Plan::default());
    until("frames", || driver.device.wire_counters().delivered == 15);
    driver.device.set_bus_master(false).unwrap();
    for index in 0..16 {
        driver.arm(0, index);
    }
    driver.write(rx(0, 0x18), 14);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5) {
        assert_eq!((0..16).filter(|index| driver.rx_descriptor(0, *index).1 != 0).count(), 0);
    }
    driver.device.reset().unwrap();
    let Driver { device, arena, .. } = driver;
    assert_eq!(device.dma().mappings(), 1);
    drop(device);
    drop(arena);
}

#[test]
fn many_devices_come_and_go() {
    for round in 0..20 {
        let devices: Vec<_> = (0..10).map(|n| SoftDevice::open(&format!("many-{n}?wire=gen")).unwrap()).collect();
        let mut driver = Driver::start(devices.into_iter().nth(round % 10).unwrap(), Plan::default());
        assert_eq!(receive_all(&mut driver, 20)[0].len(), 60);
    }
}
