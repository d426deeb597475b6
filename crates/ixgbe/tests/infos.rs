#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]
//! What the driver hands on of each frame's write-back, on the strict software 82599, against frames whose makers know what they are.

use ethdev::{
    Capabilities, ChecksumVerdict, PacketType, Port as _, Rss, RxInfo, RxInfos, RxQueue as _, hash_ipv4, hash_ipv6,
};
use ixgbe::{Config, Opened};
use mempool::{Batch, Pool, PoolConfig};
use softnic::StrictNic;
use std::net::{Ipv4Addr, Ipv6Addr};

const UDP: u8 = 17;
const TCP: u8 = 6;

/// A frame, and what a device that looks at all of it has to say.
struct Case {
    frame: Vec<u8>,
    info: RxInfo,
}

/// One's complement sum of 16-bit words.
fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum = bytes
        .chunks(2)
        .fold(0_u64, |sum, word| sum + (u64::from(word[0]) << 8) + word.get(1).map_or(0, |low| u64::from(*low)));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// A UDP datagram or TCP segment with `len` bytes of payload.
fn transport(protocol: u8, pseudo_header: &[u8], ports: (u16, u16), len: usize, wrong: bool) -> Vec<u8> {
    let header = if protocol == UDP { 8 } else { 20 };
    let mut bytes = vec![0x5a; header + len];
    bytes[..header].fill(0);
    bytes[..2].copy_from_slice(&ports.0.to_be_bytes());
    bytes[2..4].copy_from_slice(&ports.1.to_be_bytes());
    let field = if protocol == UDP { 6 } else { 16 };
    let total = u16::try_from(bytes.len()).unwrap();
    if protocol == UDP {
        bytes[4..6].copy_from_slice(&total.to_be_bytes());
    } else {
        bytes[12] = 5 << 4;
    }
    let checksum = match !sum(&[pseudo_header, &[0, protocol], &total.to_be_bytes(), &bytes]) {
        0 => 0xffff,
        checksum => checksum,
    };
    let checksum = if wrong { checksum ^ 0x0101 } else { checksum };
    bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Number `n` of many: both versions of IP, both transports, all lengths, some with wrong checksums, some tagged, some no IP at all.
fn case(n: u16, len: usize, strips: bool) -> Case {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    let mut info = RxInfo::default();
    let tag = n.is_multiple_of(5).then_some(n & 0xefff);
    if let Some(tag) = tag {
        if strips {
            info = info.with_vlan_tag(tag);
        } else {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag.to_be_bytes());
        }
    }
    let (protocol, ports) = (if n & 1 == 0 { UDP } else { TCP }, (1000 + n, 53));
    let (wrong, wrong_header) = (n.is_multiple_of(7), n.is_multiple_of(11));
    let verdict = |wrong| if wrong { ChecksumVerdict::Bad } else { ChecksumVerdict::Good };
    let kind = PacketType { tcp: protocol == TCP, udp: protocol == UDP, ..PacketType::default() };
    match n % 3 {
        0 => {
            frame.extend_from_slice(&[0x88, 0xb5]);
            frame.resize(frame.len() + len, 0xee);
        }
        1 => {
            let (source, destination) = (Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)), Ipv4Addr::new(10, 9, 8, 7));
            let addresses = [source.octets(), destination.octets()].concat();
            let payload = transport(protocol, &addresses, ports, len, wrong);
            let mut header = [0; 20];
            (header[0], header[8], header[9]) = (0x45, 64, protocol);
            header[2..4].copy_from_slice(&u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
            header[12..].copy_from_slice(&addresses);
            let checksum = !sum(&[&header]) ^ if wrong_header { 0x1010 } else { 0 };
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            frame.extend_from_slice(&[8, 0]);
            frame.extend_from_slice(&header);
            frame.extend_from_slice(&payload);
            info = info
                .with_hash(hash_ipv4(&Rss::DEFAULT_KEY, source, destination, Some(ports)))
                .with_packet_type(PacketType { ipv4: true, ..kind })
                .with_ip_checksum(verdict(wrong_header))
                .with_transport_checksum(verdict(wrong));
        }
        _ => {
            let (source, destination) = (Ipv6Addr::from_bits(0x2001 << 112 | u128::from(n)), Ipv6Addr::LOCALHOST);
            let addresses = [source.octets(), destination.octets()].concat();
            let payload = transport(protocol, &addresses, ports, len, wrong);
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
            frame.extend_from_slice(&[protocol, 64]);
            frame.extend_from_slice(&addresses);
            frame.extend_from_slice(&payload);
            info = info
                .with_hash(hash_ipv6(&Rss::DEFAULT_KEY, source, destination, Some(ports)))
                .with_packet_type(PacketType { ipv6: true, ..kind })
                .with_transport_checksum(verdict(wrong));
        }
    }
    Case { frame, info }
}

/// What a wire that strips nothing carries.
fn on_the_wire(case: &Case) -> Vec<u8> {
    let mut frame = case.frame.clone();
    if let Some(tag) = case.info.vlan_tag() {
        frame.splice(12..12, [[0x81, 0], tag.to_be_bytes()].concat());
    }
    frame
}

fn said(info: &RxInfo) -> impl PartialEq + std::fmt::Debug + use<> {
    (info.hash(), info.vlan_tag(), info.packet_type(), info.ip_checksum(), info.transport_checksum())
}

/// Receives `count` frames of up to `longest` bytes of payload in bursts of `burst`, and looks at what is said of each.
fn check(burst: usize, count: u16, longest: usize, strips: bool) {
    let device = StrictNic::builder().build();
    let nic = device.control();
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let mut config = Config::default();
    (config.port.mtu, config.port.rx_ring, config.port.strip_vlan) = (9000, 64, strips);
    let Opened { port, mut rx, tx } = ixgbe::open(device, &config, &pool).unwrap();
    let Capabilities { strip_vlan, .. } = port.capabilities();
    assert!(strip_vlan);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(burst));
    // Too small at first: it grows.
    let mut infos = RxInfos::with_capacity(1);
    let cases: Vec<_> = (0..count).map(|n| case(n, 46 + usize::from(n) * 131 % longest, strips)).collect();
    let mut received = Vec::new();
    let mut next = cases.iter();
    let mut earliest = device::tsc::now();
    for _ in 0..=cases.len() / 9 {
        next.by_ref().take(9).for_each(|case| nic.inject(&on_the_wire(case)));
        nic.step();
        loop {
            let packets = rx[0].recv_with(&mut cache, &mut batch, &mut infos);
            if packets.is_empty() {
                assert!(infos.is_empty());
                break;
            }
            assert_eq!(packets.len(), infos.len());
            assert!(infos.received_at() >= earliest);
            earliest = infos.received_at();
            let mut infos = infos.iter();
            for frame in mempool::frames(packets) {
                let bytes: Vec<u8> = frame.iter().flat_map(|packet| packet.data()).copied().collect();
                let own: Vec<_> = infos.by_ref().take(frame.len()).collect();
                assert!(own.iter().all(|info| said(info) == said(own[0])), "all packets of a frame say the same");
                received.push((bytes, *own[0]));
            }
            cache.free_batch(&mut batch);
        }
    }
    for (n, (case, (bytes, info))) in cases.iter().zip(&received).enumerate() {
        assert!(case.frame == *bytes, "frame {n}");
        assert_eq!(said(info), said(&case.info), "frame {n}");
    }
    assert_eq!(received.len(), cases.len());
    drop((rx, tx));
    port.close().unwrap();
}

#[test]
fn each_frame_comes_with_what_the_device_said_of_it() {
    let count = if cfg!(miri) { 12 } else { 300 };
    // Opening a port takes Miri long.
    let bursts: &[_] = if cfg!(miri) { &[3] } else { &[1, 3, 4, 7, 32] };
    bursts.iter().for_each(|burst| check(*burst, count, 900, false));
}

#[test]
fn frames_of_several_buffers_say_the_same_of_each() {
    check(8, if cfg!(miri) { 9 } else { 120 }, 7000, false);
}

#[test]
fn tags_that_are_taken_out_are_told() {
    let bursts: &[_] = if cfg!(miri) { &[8] } else { &[1, 4, 32] };
    bursts.iter().for_each(|burst| check(*burst, if cfg!(miri) { 12 } else { 100 }, 900, true));
}

/// An entry of an X550's table has six bits, and there are 512: every queue gets the frames whose hash says so, and is not left out.
#[cfg(not(miri))]
#[test]
fn an_x550_hashes_to_64_queues() {
    const QUEUES: u32 = 64;
    let device = StrictNic::builder().id(softnic::DeviceId::X550).build();
    let nic = device.control();
    let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() }).unwrap();
    let mut config = Config::default();
    (config.port.rx_queues, config.port.rx_ring) = (64, 64);
    let Opened { port, mut rx, tx } = ixgbe::open(device, &config, &pool).unwrap();
    let mut wanted = vec![0; 64];
    for n in 0..1500 {
        let case = case(n, 60, false);
        wanted[case.info.hash().map_or(0, |hash| hash % 512 % QUEUES) as usize] += 1;
        nic.inject(&on_the_wire(&case));
        if n % 16 == 15 {
            nic.step();
        }
    }
    nic.step_until_idle(100);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    let mut received = Vec::new();
    for queue in &mut rx {
        let mut count = 0;
        while !queue.recv(&mut cache, &mut batch).is_empty() {
            count += batch.len();
            cache.free_batch(&mut batch);
        }
        received.push(count);
    }
    // Frames without a hash fill the ring of queue 0, and what does not fit is dropped.
    (wanted[0], received[0]) = (0, 0);
    assert_eq!(received, wanted);
    assert!(received[1..].iter().all(|count| *count > 0), "{received:?}");
    drop((rx, tx));
    port.close().unwrap();
}
