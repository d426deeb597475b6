//! Hashes of received frames, which a device writes behind the header (Virtio 1.2, section 5.1.6.4.3).
#![expect(unsafe_code, reason = "plays the device")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Rig, config, frame, layouts, wait};
use device::tsc;
use ethdev::{HashTypes, PacketType, Port as _, Rss, RxInfo, RxInfos, RxQueue as _};
use virtio::Features;
use virtio::fake::{Chain, FakeConfig};

const OFFERED: Features = Features(Features::MRG_RXBUF.0 | Features::CTRL_VQ.0 | Features::HASH_REPORT.0);

/// A driver that wants hashes, at a device that offers these features.
fn rig(features: Features) -> Rig {
    let mut config = config();
    config.port.report_hash = true;
    config.port.mtu = 9000;
    config.port.rss.hash = HashTypes::IPV4 | HashTypes::TCP_IPV6;
    Rig::with(FakeConfig { features, ..FakeConfig::default() }, &config)
}

/// The device fills buffers: 20 bytes of header, of which the last 8 say hash and type, and the frame.
fn deliver(rig: &Rig, hash: u32, report: u16, frame: &[u8], buffers: &[Chain]) {
    let mut bytes = vec![0; 10];
    bytes.extend(u16::try_from(buffers.len()).unwrap().to_le_bytes());
    bytes.extend(hash.to_le_bytes());
    bytes.extend(report.to_le_bytes());
    bytes.extend([0xee, 0xee]);
    bytes.extend(frame);
    let mut rest = bytes.as_slice();
    for chain in buffers {
        let (now, later) = rest.split_at(rest.len().min(chain.parts[0].len as usize));
        // SAFETY: a chain that the device has taken and not reported.
        unsafe { rig.device.write(&chain.parts[0], 0, now) };
        rig.device.report(0, chain, u32::try_from(now.len()).unwrap());
        rest = later;
    }
    assert!(rest.is_empty(), "the buffers have room");
}

/// What the driver says of the next packets.
fn recv(rig: &mut Rig, count: usize) -> Vec<RxInfo> {
    let (mut infos, mut all) = (RxInfos::with_capacity(32), Vec::new());
    let begun = tsc::now();
    while all.len() < count && tsc::now().wrapping_sub(begun) < 1 << 34 {
        let came = rig.rx.recv_with(&mut rig.cache, &mut rig.batch, &mut infos).len();
        assert_eq!(infos.len(), came);
        all.extend_from_slice(&infos);
    }
    all
}

#[test]
fn a_header_says_hash_and_type() {
    let ipv4 = PacketType { ipv4: true, ..PacketType::default() };
    let ipv6 = PacketType { ipv6: true, ..PacketType::default() };
    let with = |kind: PacketType, tcp, udp| Some(PacketType { tcp, udp, ..kind });
    let ex = PacketType { options: true, ..ipv6 };
    let kinds = [
        None,
        with(ipv4, false, false),
        with(ipv4, true, false),
        with(ipv4, false, true),
        with(ipv6, false, false),
        with(ipv6, true, false),
        with(ipv6, false, true),
        with(ex, false, false),
        with(ex, true, false),
        with(ex, false, true),
        None,
    ];
    for features in layouts() {
        let mut rig = rig(features | OFFERED);
        assert!(rig.port.capabilities().report_hash);
        let command = [&[4, 2, 0b1_0001][..], &[0; 11], &[40], &Rss::DEFAULT_KEY].concat();
        assert_eq!(rig.device.commands(), [command]);
        let reports = (0..).zip(&kinds).chain([(u16::MAX, &None)]);
        for (report, kind) in reports {
            let (hash, n) = (0x8123_4567 + u32::from(report), usize::from(report % 64));
            let buffer = rig.device.next(0).unwrap();
            deliver(&rig, hash, report, &frame(n, 60 + n), &[buffer]);
            let info = recv(&mut rig, 1)[0];
            assert_eq!(info.hash(), kind.map(|_| hash), "{features}, type {report}");
            assert_eq!(info.packet_type(), kind.unwrap_or_default(), "{features}, type {report}");
            assert_eq!(rig.batch[0].data(), frame(n, 60 + n), "{features}: the frame is as it came");
            // Back out, with a header as long, which asks for nothing.
            assert_eq!(rig.send(), 1);
            assert_eq!(rig.device.collect(0).unwrap(), frame(n, 60 + n), "{features}");
        }
        rig.close();
    }
}

#[test]
fn all_packets_of_a_frame_have_its_hash() {
    let mut rig = rig(layouts()[0] | OFFERED);
    let long = frame(1, 4000);
    let buffers: Vec<_> = (0..2).map(|_| rig.device.next(0).unwrap()).collect();
    deliver(&rig, 7, 2, &long, &buffers);
    let buffer = rig.device.next(0).unwrap();
    deliver(&rig, 8, 3, &frame(2, 60), &[buffer]);
    let hashes: Vec<_> = recv(&mut rig, 3).iter().map(|info| info.hash()).collect();
    assert_eq!(hashes, [Some(7), Some(7), Some(8)]);
    assert_eq!(rig.take(), [long, frame(2, 60)]);
    rig.close();
}

#[test]
fn headers_are_short_where_nobody_asks_or_the_device_cannot() {
    let rig = Rig::new(layouts()[0] | OFFERED);
    assert_eq!((rig.device.header_len(), rig.port.capabilities().report_hash), (12, false));
    assert!(rig.device.commands().is_empty());
    rig.close();
    // One that comes back without it: hashes of old must not be taken for new ones.
    let mut rig = self::rig(layouts()[0] | OFFERED);
    let buffer = rig.device.next(0).unwrap();
    deliver(&rig, 7, 2, &frame(1, 60), &[buffer]);
    assert_eq!(recv(&mut rig, 1)[0].hash(), Some(7));
    rig.batch.drain().for_each(drop);
    let resets = rig.device.resets();
    rig.device.offer(layouts()[0] | Features::MRG_RXBUF);
    rig.device.lose("it asks for a reset");
    wait("another session", || rig.device.resets() > resets && rig.port.link().unwrap().up);
    rig.settle();
    assert_eq!(rig.device.header_len(), 12);
    assert!(rig.device.deliver(0, &frame(2, 60)));
    assert_eq!(recv(&mut rig, 1), [RxInfo::default()]);
    rig.close();
}
