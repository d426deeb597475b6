#![expect(clippy::unwrap_used, reason = "a test that cannot start fails")]
//! What the driver hands on of each frame's write-back: on the strict software 82599, against frames whose makers know what they are,
//! and on a device that writes back what a test tells it to, by each way through a queue.
#![cfg_attr(miri, expect(dead_code, reason = "some tests take Miri minutes"))]
#![expect(unsafe_code, reason = "plays the card")]

use ethdev::{
    Capabilities, ChecksumVerdict, PacketType, Port as _, Rss, RxInfo, RxInfos, RxQueue as _, hash_ipv4, hash_ipv6,
};
use ixgbe::fake::{Descriptors, Fake, Mapping, Queue};
use ixgbe::{Config, Opened};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
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

const DD: u64 = 1 << 0;
const EOP: u64 = 1 << 1;
/// What the 82599 sets for each error of a frame itself.
const RXE: u64 = 1 << 29;

/// What a scripted device writes back.
#[derive(Clone, Copy)]
enum Frame {
    /// A good frame in so many buffers.
    Good(usize),
    /// A frame of 60 bytes with these bits of its second word turned.
    Bad(u64),
}

use Frame::{Bad, Good};

/// A packet's bytes, whether its frame goes on in the next, and what is said of it.
type Told = (Vec<u8>, bool, RxInfo);

/// The words of write-back `n` of many, without status of the buffer and length, and what they say: not the same of any two in a row.
fn words(n: u16, strips: bool) -> ([u64; 2], RxInfo) {
    let hash = u32::from(n + 1).wrapping_mul(0x9e37_79b9);
    let [tcp, udp, sctp] = [0, 1, 2].map(|kind| n % 3 == kind);
    let kind = PacketType { ipv4: n.is_multiple_of(2), ipv6: n % 2 == 1, tcp, udp, sctp, ..PacketType::default() };
    let low = u64::from(kind.ipv4) << 4 | u64::from(kind.ipv6) << 6 | 1 << (8 + n % 3);
    let mut info = RxInfo::default().with_packet_type(kind);
    // VP, which where no tag is stripped is about one that is in the frame.
    let mut high = u64::from(n) << 48 | 1 << 3;
    if strips {
        info = info.with_vlan_tag(n);
    }
    use ChecksumVerdict::{Bad, Good, Unknown};
    let (ip, transport) = ([Good, Bad, Unknown][usize::from(n % 3)], [Bad, Good, Unknown][usize::from(n % 7 % 3)]);
    for (verdict, checked, wrong) in [(ip, 1 << 6, 1 << 31), (transport, 1 << 5, 1 << 30)] {
        high |= if verdict == Unknown { 0 } else { checked } | if verdict == Bad { wrong } else { 0 };
    }
    info = info.with_ip_checksum(ip).with_transport_checksum(transport);
    if n % 5 == 4 { ([low, high], info) } else { ([low | u64::from(hash) << 32 | 1, high], info.with_hash(hash)) }
}

/// A port on a device that writes back what it is told to.
struct Scripted {
    fake: Fake,
    ring: Descriptors,
    opened: Opened<Fake>,
    pool: Pool,
    /// Another, if packets are received with a cache of it.
    other: Option<Pool>,
    strips: bool,
    /// Frames, and buffers, so far.
    frames: u16,
    next: usize,
}

/// Goes through a queue by each way: with IOVAs that are addresses plus a constant, and page by page; with a cache of the queue's
/// pool, and of another.
fn by_each_way(run: impl Fn(&mut Scripted, &mut PoolCache)) {
    let ways = [
        (Mapping::Paged, true, true),
        (Mapping::Paged, false, false),
        (Mapping::Linear, true, false),
        (Mapping::Linear, false, true),
    ];
    // Opening a port takes Miri long.
    for (mapping, foreign, strips) in ways.into_iter().take(if cfg!(miri) { 1 } else { 4 }) {
        let pool = |slots| Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap();
        let (pool, other) = (pool(512), foreign.then(|| pool(64)));
        let fake = Fake::new(0x10FB);
        fake.set_mapping(mapping);
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (64, 64);
        (config.port.mtu, config.port.strip_vlan) = (9000, strips);
        let opened = ixgbe::open(fake.clone(), &config, &pool).unwrap();
        let ring = fake.descriptors(Queue::Rx(0)).unwrap();
        let mut card = Scripted { fake, ring, opened, pool, other, strips, frames: 0, next: 0 };
        let mut cache = card.other.as_ref().unwrap_or(&card.pool).cache();
        run(&mut card, &mut cache);
        assert!(card.other.is_none_or(|other| other.away() == 0), "no slot is from another pool");
        drop(cache);
        let Opened { port, rx, tx } = card.opened;
        port.close().unwrap();
        drop((rx, tx));
        assert_eq!(card.pool.away(), 0);
    }
}

impl Scripted {
    /// Writes one buffer and its descriptor.
    fn report(&mut self, bytes: &[u8], [low, high]: [u64; 2]) {
        // SAFETY: the buffer of a descriptor that is not done.
        assert!(unsafe { self.fake.write_memory(self.ring.get(self.next, 0), bytes) }, "a buffer is posted");
        self.ring.set(self.next, 0, low);
        self.ring.set(self.next, 1, high ^ (bytes.len() as u64) << 32 | DD);
        self.next += 1;
    }

    /// Writes these frames, and returns what is to be received.
    fn write(&mut self, frames: &[Frame]) -> Vec<Told> {
        let mut wanted = Vec::new();
        for frame in frames {
            let (n, strips) = (self.frames, self.strips);
            self.frames += 1;
            let ([low, high], info) = words(n, strips);
            match *frame {
                Bad(bits) => self.report(&[0xbd; 60], [low, (high | EOP) ^ bits]),
                Good(buffers) => {
                    for buffer in 1..=buffers {
                        let mut bytes = vec![u8::try_from(buffer).unwrap(); 60 + usize::from(n % 90)];
                        bytes[..2].copy_from_slice(&n.to_be_bytes());
                        // The last has the word for all.
                        let last = buffer == buffers;
                        let words = if last { [low, high | EOP] } else { words(n + 1, strips).0 };
                        self.report(&bytes, words);
                        wanted.push((bytes, !last, info));
                    }
                }
            }
        }
        wanted
    }

    /// Makes one call. There are as many infos as packets.
    fn receive(&mut self, cache: &mut PoolCache, batch: &mut Batch, infos: &mut RxInfos) -> Vec<Told> {
        let packets = self.opened.rx[0].recv_with(cache, batch, infos);
        assert_eq!(packets.len(), infos.len());
        let packets = packets.iter().zip(infos.iter());
        packets.map(|(packet, info)| (packet.data().to_vec(), packet.continues(), *info)).collect()
    }

    /// Has frames written at once and receives them, behind `kept` packets that stay in the batch, in as many calls as it takes.
    fn check(&mut self, frames: &[Frame], cache: &mut PoolCache, (room, kept): (usize, usize), infos: &mut RxInfos) {
        let mut batch = Batch::with_capacity(kept + room);
        (0..kept).for_each(|_| batch.push(self.pool.alloc().unwrap()).unwrap());
        let (wanted, mut seen) = (self.write(frames), Vec::new());
        loop {
            let told = self.receive(cache, &mut batch, infos);
            if told.is_empty() {
                break;
            }
            seen.extend(told);
            batch.drain_range(kept..).for_each(|packet| cache.free(packet));
        }
        agree(&seen, &wanted);
        // Behind a burst nothing is said of anything.
        assert!(self.receive(cache, &mut batch, infos).is_empty() && infos.is_empty());
    }
}

/// Both are the same packets, of which the same is said.
fn agree(seen: &[Told], wanted: &[Told]) {
    assert_eq!(seen.len(), wanted.len());
    for (at, (seen, wanted_here)) in seen.iter().zip(wanted).enumerate() {
        assert!((&seen.0, seen.1) == (&wanted_here.0, wanted_here.1), "packet {at} of {}", wanted.len());
        assert_eq!(said(&seen.2), said(&wanted_here.2), "packet {at} of {}", wanted.len());
    }
}

/// Sizes of bursts for each way through a queue, more than once round the ring.
const SIZES: &[usize] = if cfg!(miri) { &[1, 3, 7] } else { &[1, 2, 3, 4, 5, 7, 8, 1, 31, 32, 40, 13, 4, 9] };
/// Room in a batch, and packets that are in it.
const ROOMS: &[(usize, usize)] = if cfg!(miri) { &[(4, 1)] } else { &[(1, 0), (3, 2), (4, 0), (32, 5), (64, 0)] };

#[test]
fn packets_have_infos_of_their_own_whatever_the_pool_and_the_mapping() {
    by_each_way(|card, cache| {
        let mut infos = RxInfos::with_capacity(32);
        for room in ROOMS {
            SIZES.iter().for_each(|size| card.check(&vec![Good(1); *size], cache, *room, &mut infos));
            if room.0 >= 3 {
                card.check(&[Good(1), Good(3), Good(1), Good(2), Good(1), Good(1)], cache, *room, &mut infos);
            }
        }
    });
}

/// With errors of the frame alone, with checksum errors on top, with no length, and with more bytes than the buffer has.
#[test]
#[cfg(not(miri))] // Takes Miri minutes.
fn bad_frames_between_others_take_no_info_from_them() {
    let kinds = [RXE, RXE | 3 << 30, 1 << 24, 60 << 32, 1 << 47];
    by_each_way(|card, cache| {
        let mut infos = RxInfos::with_capacity(64);
        let mut bad = 0;
        for kind in kinds {
            for room in ROOMS {
                for count in 2..14 {
                    // Each place in turn, the third of four among them.
                    for at in 0..count {
                        let mut frames = vec![Good(1); count];
                        frames[at] = Bad(kind);
                        card.check(&frames, cache, *room, &mut infos);
                        bad += 1;
                    }
                }
            }
        }
        let mut frames = vec![Good(1); 40];
        (frames[2], frames[6], frames[7]) = (Bad(RXE), Bad(RXE), Bad(60 << 32));
        frames[8] = Good(2);
        card.check(&frames, cache, (64, 0), &mut infos);
        assert_eq!(card.opened.rx[0].counters().dropped(), bad + 3);
    });
}

#[test]
#[cfg(not(miri))] // Takes Miri minutes.
fn room_for_infos_grows_from_none() {
    let sizes = [1, 4, 40];
    by_each_way(|card, cache| {
        // A cache that has slots, so that nothing but the room is missing.
        card.check(&[Good(1)], cache, (64, 0), &mut RxInfos::with_capacity(64));
        let mut infos = RxInfos::with_capacity(0);
        sizes.iter().for_each(|size| card.check(&vec![Good(1); *size], cache, (64, 0), &mut infos));
        for size in sizes.iter().chain(&[2]) {
            card.check(&vec![Good(1); *size], cache, (64, 0), &mut RxInfos::with_capacity(0));
        }
        // Just as many as the lone frame needs, and then one more.
        let mut infos = RxInfos::with_capacity(1);
        card.check(&[Good(1)], cache, (1, 0), &mut infos);
        card.check(&[Good(1), Good(1)], cache, (2, 0), &mut infos);
        card.check(&[Good(3)], cache, (64, 3), &mut RxInfos::with_capacity(0));
    });
}

/// Whatever the reason: no buffers, no frame, no room, half a frame, none but bad ones.
#[test]
#[cfg(not(miri))] // Takes Miri minutes.
fn a_call_that_receives_nothing_leaves_no_infos() {
    by_each_way(|card, cache| {
        let mut batch = Batch::with_capacity(8);
        let nothing = |card: &mut Scripted, cache: &mut PoolCache, batch: &mut Batch, why: &str| {
            let mut infos = RxInfos::with_capacity(8);
            infos.filled(5);
            assert_eq!(infos.len(), 5);
            assert!(card.receive(cache, batch, &mut infos).is_empty() && infos.is_empty(), "{why}");
        };
        let held: Vec<_> = std::iter::from_fn(|| card.pool.alloc()).collect();
        let mut wanted = card.write(&[Good(1); 4]);
        nothing(card, cache, &mut batch, "no buffers");
        drop(held);
        nothing(card, cache, &mut Batch::with_capacity(0), "no room");
        agree(&card.receive(cache, &mut batch, &mut RxInfos::with_capacity(8)), &wanted);
        nothing(card, cache, &mut batch, "no frame");
        // A full batch, and one with too little room for the frame.
        wanted = card.write(&[Good(1), Good(1), Good(1), Good(1), Good(2)]);
        let told = card.receive(cache, &mut batch, &mut RxInfos::with_capacity(0));
        agree(&told, &wanted[..4]);
        nothing(card, cache, &mut batch, "a full batch");
        batch.drain_range(1..2).for_each(drop);
        nothing(card, cache, &mut batch, "one place for a frame in two buffers");
        cache.free_batch(&mut batch);
        agree(&card.receive(cache, &mut batch, &mut RxInfos::with_capacity(0)), &wanted[4..]);
        // Without an end.
        card.write(&[Bad(EOP)]);
        nothing(card, cache, &mut batch, "half a frame");
        card.write(&[Bad(RXE); 3]);
        nothing(card, cache, &mut batch, "bad frames");
        batch.clear();
    });
}
