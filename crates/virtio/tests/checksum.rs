//! Checksum offload: what a device says of received frames, what it is asked for, and the sums that software completes for
//! one that cannot.
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Rig, config, frame, layouts};
use ethdev::RxQueue as _;
use mempool::Checksum;
use virtio::Features;
use virtio::fake::FakeConfig;
use virtio::transport::Interface;

const OFFLOADS: Features = Features(Features::CSUM.0 | Features::GUEST_CSUM.0);
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

/// A driver that was told to use offloads, at a device that offers these.
fn rig(features: Features) -> Rig {
    let mut config = config();
    config.port.checksum_offload = true;
    Rig::with(FakeConfig { features, ..FakeConfig::default() }, &config)
}

/// A legacy device without mergeable buffers, whose header is the shortest.
fn legacy(features: Features) -> Rig {
    let mut config = config();
    config.port.checksum_offload = true;
    let features = features | Features::ANY_LAYOUT;
    Rig::with(FakeConfig { features, interface: Interface::Legacy, ..FakeConfig::default() }, &config)
}

/// The device delivers a frame with these flags, and these words of where its checksum is.
fn deliver(rig: &Rig, flags: [u8; 2], start: u16, offset: u16, frame: &[u8]) {
    let ([a, b], [c, d]) = (start.to_le_bytes(), offset.to_le_bytes());
    let header = &[flags[0], flags[1], 0, 0, 0, 0, a, b, c, d, 1, 0][..rig.device.header_len()];
    let chain = rig.device.next(0).unwrap();
    // SAFETY: a chain that the device has taken and not reported.
    unsafe { rig.device.write(&chain.parts[0], 0, &[header, frame].concat()) };
    rig.device.report(0, &chain, u32::try_from(header.len() + frame.len()).unwrap());
}

/// Header and frame that the driver has sent.
fn collect(rig: &Rig) -> (Vec<u8>, Vec<u8>) {
    let chain = rig.device.next(1).unwrap();
    // SAFETY: a chain that the device has taken and not reported.
    let mut header: Vec<u8> = chain.parts.iter().flat_map(|part| unsafe { rig.device.read(part) }).collect();
    let frame = header.split_off(rig.device.header_len());
    rig.device.report(1, &chain, 0);
    (header, frame)
}

/// One's complement sum of 16-bit words, a byte at a time (RFC 1071).
fn naive_sum(bytes: &[u8]) -> u32 {
    let add = |sum: u32, (n, byte): (usize, &u8)| {
        let sum = sum + (u32::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 });
        (sum & 0xffff) + (sum >> 16)
    };
    bytes.iter().enumerate().fold(0, add)
}

#[test]
fn nothing_is_agreed_on_unless_it_is_asked_for() {
    for features in layouts() {
        let rig = Rig::new(features | OFFLOADS);
        assert_eq!(rig.device.features().0 & OFFLOADS.0, 0);
        rig.close();
        let rig = self::rig(features | OFFLOADS);
        assert!(rig.port.features().contains(OFFLOADS));
        rig.close();
        let rig = self::rig(features);
        assert_eq!(rig.device.features().0 & OFFLOADS.0, 0, "which it does not offer");
        rig.close();
    }
}

#[test]
fn what_the_device_says_of_a_frame_stays_with_it() {
    for mut rig in layouts().into_iter().map(|features| rig(features | OFFLOADS)).chain([legacy(OFFLOADS)]) {
        deliver(&rig, [0, 0], 9999, 9999, &frame(1, 60));
        deliver(&rig, [DATA_VALID, 0], 9999, 9999, &frame(2, 60));
        deliver(&rig, [NEEDS_CSUM, 0], 34, 16, &frame(3, 60));
        deliver(&rig, [NEEDS_CSUM, 0], 42, 16, &frame(4, 60));
        deliver(&rig, [NEEDS_CSUM, 0], 0, 6, &frame(5, 60));
        while rig.recv() > 0 {}
        let found: Vec<_> = rig.batch.iter().map(mempool::Packet::checksum).collect();
        let partial = |start, offset| Checksum::Partial { start, offset };
        assert_eq!(
            found,
            [Checksum::Unknown, Checksum::Valid, partial(34, 16), partial(42, 16), partial(0, 6)],
            "{}",
            rig.port.features()
        );
        assert_eq!(rig.take(), [1, 2, 3, 4, 5].map(|n| frame(n, 60)));
        rig.close();
    }
}

#[test]
fn flags_that_mean_nothing_are_ignored() {
    // Virtio 1.2, section 5.1.6.4.2: unknown ones, RSC_INFO without its feature; and DATA_VALID without GUEST_CSUM.
    for features in layouts() {
        for offloads in [Features::default(), OFFLOADS] {
            let mut rig = rig(features | offloads);
            for flags in [4, 8, 0x80, 0xf8, DATA_VALID, 0xfe, DATA_VALID | NEEDS_CSUM] {
                if flags & NEEDS_CSUM != 0 && offloads == Features::default() {
                    continue;
                }
                deliver(&rig, [flags, 0], 34, 16, &frame(3, 60));
                assert_eq!(rig.recv(), 1, "{features}: {flags:#x}");
                let expected = match flags & (DATA_VALID | NEEDS_CSUM) {
                    DATA_VALID if offloads == OFFLOADS => Checksum::Valid,
                    flags if flags & NEEDS_CSUM != 0 => Checksum::Partial { start: 34, offset: 16 },
                    _ => Checksum::Unknown,
                };
                assert_eq!(rig.batch[0].checksum(), expected, "{features}: {flags:#x}");
                assert_eq!(rig.take(), [frame(3, 60)]);
            }
            assert_eq!(rig.rx.counters().dropped(), 0);
            rig.close();
        }
    }
}

#[test]
fn a_device_that_lies_about_checksums() {
    for features in layouts() {
        let mut rig = rig(features | OFFLOADS);
        let mut dropped = 0;
        let mut refused = |flags, start, offset| {
            deliver(&rig, flags, start, offset, &frame(1, 60));
            assert!(rig.device.deliver(0, &frame(2, 60)));
            while rig.recv() > 0 {}
            assert_eq!(rig.take(), [frame(2, 60)], "{features}: {flags:?} {start} {offset}");
            dropped += 1;
            assert_eq!((rig.rx.counters().frame_errors, rig.rx.counters().dropped()), (dropped, dropped));
        };
        // Beyond the frame by a byte, by much, and so far that 16 bits overflow.
        for (start, offset) in
            [(43, 16), (53, 6), (60, 16), (2000, 6), (0xffff, 6), (0xfff0, 16), (0xffff, 0xffff), (2, 0xffff)]
        {
            refused([NEEDS_CSUM, 0], start, offset);
        }
        // Neither TCP's field nor UDP's.
        refused([NEEDS_CSUM, 0], 34, 8);
        refused([NEEDS_CSUM, 0], 34, 0);
        // Flags and kinds that were not agreed on.
        for flags in [[5, 0], [0xff, 0], [0, 1], [NEEDS_CSUM, 1], [NEEDS_CSUM, 4], [DATA_VALID, 3], [0, 0x80]] {
            refused(flags, 34, 16);
        }
        rig.close();
        // With only the other half agreed on nothing may be said.
        let mut rig = self::rig(features | Features::CSUM);
        deliver(&rig, [NEEDS_CSUM, 0], 34, 16, &frame(1, 60));
        assert_eq!((rig.recv(), rig.rx.counters().frame_errors), (0, 1));
        deliver(&rig, [DATA_VALID, 0], 34, 16, &frame(1, 60));
        assert_eq!((rig.recv(), rig.batch[0].checksum()), (1, Checksum::Unknown));
        rig.take();
        rig.close();
    }
}

#[test]
fn a_device_is_asked_for_what_it_agreed_to_and_given_whole_sums_otherwise() {
    for (with, completes) in [(OFFLOADS, true), (Features::CSUM, true), (Features::GUEST_CSUM, false)] {
        for mut rig in layouts().into_iter().map(|features| rig(features | with)).chain([legacy(with)]) {
            for segments in [1, 2] {
                let bytes = frame(7, 99);
                let parts = if segments == 1 { vec![&bytes[..]] } else { vec![&bytes[..55], &bytes[55..]] };
                rig.put(&parts);
                assert!(rig.batch[0].set_checksum(Checksum::Partial { start: 34, offset: 16 }));
                assert_eq!(rig.send(), segments);
                let (header, sent) = collect(&rig);
                asked_or_whole(&bytes, &header, &sent, completes);
            }
            rig.put(&[&frame(8, 60)]);
            assert!(rig.batch[0].set_checksum(Checksum::Valid));
            rig.send();
            let (header, sent) = collect(&rig);
            assert!(header.iter().all(|byte| *byte == 0), "a driver does not vouch: {header:?}");
            assert_eq!(sent, frame(8, 60));
            rig.close();
        }
    }
}

#[test]
fn without_room_for_a_header_of_its_own_the_sum_is_completed() {
    for features in layouts() {
        let mut rig = rig(features | OFFLOADS);
        let bytes = frame(9, 99);
        rig.put(&[&bytes]);
        assert!(rig.batch[0].set_checksum(Checksum::Partial { start: 34, offset: 16 }));
        let headroom = rig.batch[0].headroom();
        let more = rig.batch[0].prepend(headroom - 4).unwrap();
        more.fill(0xaa);
        let longer = rig.batch[0].data().to_vec();
        assert_eq!(rig.send(), 1);
        let (header, sent) = collect(&rig);
        assert!(header.iter().all(|byte| *byte == 0));
        assert_eq!(sent.len(), longer.len());
        asked_or_whole(&bytes, &header, &sent[headroom - 4..], false);
        rig.close();
    }
}

/// The frame `bytes` was sent with a request for its TCP checksum at 34, or with it.
fn asked_or_whole(bytes: &[u8], header: &[u8], sent: &[u8], asked: bool) {
    if asked {
        assert_eq!(header[..10], [NEEDS_CSUM, 0, 0, 0, 0, 0, 34, 0, 16, 0]);
        assert!(header[10..].iter().all(|byte| *byte == 0));
        assert_eq!(sent, bytes);
    } else {
        assert!(header.iter().all(|byte| *byte == 0), "{header:?}");
        assert_eq!((&sent[..50], &sent[52..]), (&bytes[..50], &bytes[52..]));
        let sum = u32::from(u16::from_be_bytes([sent[50], sent[51]]));
        assert_eq!(sum ^ 0xffff, naive_sum(&bytes[34..]));
    }
}
