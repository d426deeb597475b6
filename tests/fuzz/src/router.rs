//! Frames of any content, in one buffer or several, routed beside the router of the RFCs that the router's own tests have: by a file's
//! table, and then, some of them with VLAN tags, by one that changes in place.

#![allow(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use router::{Egress, Fib, Interface, LiveConfig, LiveFib, Miss, Neighbour, Refusal, Routes, Target};
use std::fmt::Write as _;

#[path = "../../../crates/router/tests/common/mod.rs"]
mod naive;
use naive::{Naive, Route, Tagged, checksum};

const PORTS: usize = 3;
const BURST: usize = 64;
/// Every header that a router reads ends before this.
const HEADERS: usize = 14 + 60;

const PREFIXES: [(&str, u32); 9] = [
    ("10.0.0.0", 8),
    ("10.1.0.0", 16),
    ("10.1.2.128", 25),
    ("10.1.2.3", 32),
    ("224.0.0.0", 3),
    ("0.0.0.0", 0),
    ("2001:db8::", 32),
    ("2001:db8:1::1", 128),
    ("::", 0),
];

fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, u8::try_from(port).unwrap()]
}

/// Bytes of the input, zeroes behind its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        let mut taken = taken.to_vec();
        taken.resize(count, 0);
        taken
    }
}

/// Runs one input: two bytes of choices (routes, modes), then frames. Each has a byte for its kind, one for its length, and bytes
/// that change it.
pub fn run(input: &[u8]) {
    let mut bytes = Bytes(input);
    let (modes, chosen) = (bytes.next(), bytes.next());
    let (promiscuous, returns) = (modes & 1 != 0, modes & 2 != 0);
    // Between the shortest and the longest packets below, and another one at each port.
    let mtu = if modes & 4 == 0 { 2500 } else { 68 + u16::from(modes >> 3) * 64 };
    let mtus: Vec<u16> = [mtu, mtu + 32, u16::MAX].into();
    let routes = PREFIXES.iter().enumerate().filter(|(index, _)| chosen >> (index % 8) & 1 == 1);
    let routes = routes.map(|(index, (address, len))| Route {
        address: address.parse().unwrap(),
        len: *len,
        mac: [2, 0, 0, 0, 2, u8::try_from(index).unwrap()],
        port: index % PORTS,
    });
    let naive = Naive { routes: routes.collect(), macs: (0..PORTS).map(mac).collect(), promiscuous, returns, mtus };
    let interface = |port: usize| Interface { mac: mac(port), promiscuous, mtu: naive.mtus[port] };
    let interfaces: Vec<Interface> = (0..PORTS).map(interface).collect();
    let fib = Fib::new(&Routes::parse(text(&naive.routes).as_bytes(), PORTS).unwrap(), &interfaces).unwrap();
    let mut forwarder = fib.forwarder(if returns { Miss::Return } else { Miss::Refuse });
    let pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    let mut egress = Egress::new(PORTS, BURST);

    let mut frames = Vec::new();
    while !bytes.0.is_empty() && frames.len() < BURST / 4 {
        let kind = bytes.next();
        let frame = frame(kind, &mut bytes);
        let cuts = cuts(kind, frame.len(), &mut bytes);
        push(&frame, &cuts, &mut cache, &mut batch);
        frames.push((frame, cuts));
    }
    let packets = batch.len();
    // An egress that is too small takes nothing.
    assert_eq!(forwarder.route(0, &mut batch, &mut Egress::new(PORTS - 1, BURST)), 0);
    assert_eq!(forwarder.route(PORTS, &mut batch, &mut egress), 0);
    assert_eq!(batch.len(), packets);
    assert_eq!(forwarder.route(0, &mut batch, &mut egress), packets);
    assert!(batch.is_empty());

    compare(&mut egress, frames.iter().map(|(frame, _)| (frame, naive.route(0, frame))));
    run_live(naive, chosen, &frames, &pool);
    drop((egress, cache, batch));
    assert_eq!(pool.away(), 0, "a packet is lost");
}

/// The same frames, some with tags, by a table that changes in place, with a VLAN on each of two ports.
fn run_live(mut naive: Naive, chosen: u8, frames: &[(Vec<u8>, Vec<usize>)], pool: &Pool) {
    const SUBS: [(usize, u16); 2] = [(0, 5), (1, 6)];
    naive.returns = false;
    naive.macs.extend([mac(0), mac(7)]);
    naive.mtus.extend([naive.mtus[1], naive.mtus[0]]);
    for (index, route) in naive.routes.iter_mut().enumerate() {
        route.port = index % (PORTS + SUBS.len());
    }
    let interface =
        |number: usize| Interface { mac: naive.macs[number], promiscuous: naive.promiscuous, mtu: naive.mtus[number] };
    let ports: Vec<Interface> = (0..PORTS).map(interface).collect();
    let config = LiveConfig { next_hops: 16, groups: 0, sub_interfaces: 2, ..LiveConfig::default() };
    let mut fib = LiveFib::new(&config, &ports).unwrap();
    for (at, (port, vlan)) in SUBS.into_iter().enumerate() {
        fib.add_interface(u16::try_from(port).unwrap(), vlan, &interface(PORTS + at)).unwrap();
    }
    for Route { address, len, mac, port } in &naive.routes {
        let neighbour = Neighbour { port: u16::try_from(*port).unwrap(), mac: router::MacAddress(*mac) };
        let hop = fib.add_next_hop(Target::Neighbour(neighbour)).unwrap();
        let prefix = format!("{address}/{len}");
        if address.is_ipv6() {
            fib.insert_ipv6(prefix.parse().unwrap(), hop).unwrap();
        } else {
            fib.insert_ipv4(prefix.parse().unwrap(), hop).unwrap();
        }
    }
    let (interfaces, promiscuous) = (PORTS + SUBS.len(), vec![naive.promiscuous; PORTS + SUBS.len()]);
    let subs = SUBS.map(|(port, vlan)| (port, Some(vlan)));
    let places = (0..PORTS).map(|port| (port, None)).chain(subs).collect();
    let model = Tagged { naive, places, up: vec![true; interfaces], promiscuous };

    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    let (mut forwarder, mut egress) = (fib.forwarder(), Egress::new(PORTS, BURST));
    let mut sent = Vec::new();
    for (index, (frame, cuts)) in frames.iter().enumerate() {
        let tag: &[u8] = match (index + usize::from(chosen)) % 6 {
            0 | 1 => &[],
            2 | 3 => &[0x81, 0, chosen, 5],
            4 => &[0x81, 0, 0, chosen],
            _ => &[0x81, 0, 0, 5, 0x88, 0xA8, 0, 7],
        };
        let at = frame.len().min(12);
        let tagged = [&frame[..at], tag, &frame[at..]].concat();
        let cuts: Vec<usize> = cuts.iter().map(|cut| cut + tag.len()).collect();
        push(&tagged, &cuts, &mut cache, &mut batch);
        sent.push(tagged);
    }
    let packets = batch.len();
    assert_eq!(forwarder.route(0, &mut batch, &mut egress), packets);
    compare(&mut egress, sent.iter().map(|frame| (frame, model.route(0, frame))));
}

/// Puts a frame into a batch, cut as it wants.
fn push(frame: &[u8], cuts: &[usize], cache: &mut PoolCache, batch: &mut Batch) {
    let mut from = 0;
    for to in cuts.iter().copied().chain([frame.len()]) {
        let mut packet = cache.alloc().unwrap();
        packet.append(to - from).unwrap().copy_from_slice(&frame[from..to]);
        packet.set_continues(to < frame.len());
        batch.push(packet).unwrap();
        from = to;
    }
}

/// Holds what was routed against what becomes of each frame; refused ones are as they came.
fn compare<'a>(egress: &mut Egress, expected: impl Iterator<Item = (&'a Vec<u8>, Result<(usize, Vec<u8>), Refusal>)>) {
    let mut outputs = vec![Vec::new(); PORTS];
    let mut refused = Vec::new();
    for (frame, routed) in expected {
        match routed {
            Ok((port, bytes)) => outputs[port].push(bytes),
            Err(refusal) => refused.push((refusal, frame.clone())),
        }
    }
    for (port, (batch, expected)) in egress.outputs().iter().zip(outputs).enumerate() {
        assert_eq!(whole(batch.iter()), expected, "port {port}");
    }
    let (mut held, mut refusals) = (Vec::new(), Vec::new());
    for (packet, refusal) in egress.drain_refused() {
        if !packet.continues() {
            refusals.push(refusal);
        }
        held.push(packet);
    }
    let left: Vec<(Refusal, Vec<u8>)> = refusals.into_iter().zip(whole(held.iter())).collect();
    assert_eq!(left, refused);
}

fn text(routes: &[Route]) -> String {
    let mut text = String::new();
    for Route { address, len, mac: [a, b, c, d, e, f], port } in routes {
        writeln!(text, "{address}/{len} via {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} port {port}").unwrap();
    }
    text
}

/// Noise, or an IPv4 or IPv6 packet with up to three bytes changed, before or after its checksum is made.
fn frame(kind: u8, bytes: &mut Bytes<'_>) -> Vec<u8> {
    let len = usize::from(bytes.next());
    if kind & 3 == 0 {
        return bytes.take(len + 1);
    }
    let v6 = kind & 3 == 3;
    let header = if v6 { 40 } else { 20 + 4 * usize::from(kind >> 2 & 1) };
    let total = u16::try_from(header + len * 8).unwrap();
    let mut ip = vec![0; usize::from(total)];
    if v6 {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(total - 40).to_be_bytes());
        (ip[6], ip[7]) = (17, 64);
        ip[8..12].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        ip[24..28].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        ip[39] = bytes.next();
    } else {
        ip[0] = 0x40 | u8::try_from(header / 4).unwrap();
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        (ip[8], ip[9]) = (64, 17);
        ip[12..16].copy_from_slice(&[192, 0, 2, 1]);
        ip[16..20].copy_from_slice(&[10, 1, 2, bytes.next()]);
    }
    let changes = |ip: &mut [u8], bytes: &mut Bytes<'_>| {
        for _ in 0..kind >> 6 {
            let (at, value) = (usize::from(bytes.next()) % header, bytes.next());
            ip[at] = value;
        }
    };
    let before = kind & 8 == 0;
    if before {
        changes(&mut ip, bytes);
    }
    if !v6 {
        ip[10..12].fill(0);
        let sum = checksum(&ip[..header]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if !before {
        changes(&mut ip, bytes);
    }
    let ether_type = if v6 { [0x86, 0xdd] } else { [8, 0] };
    let to = if kind & 16 == 0 { mac(0) } else { bytes.take(6).try_into().unwrap() };
    let padding = usize::from(kind >> 5 & 1) * 23;
    let mut frame = [&to[..], &[2, 9, 9, 9, 9, 9], &ether_type, &ip].concat();
    frame.resize(frame.len() + padding, 0xee);
    frame
}

/// Where a frame is cut into buffers: behind the headers, and short enough for a slot.
fn cuts(kind: u8, len: usize, bytes: &mut Bytes<'_>) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut at = HEADERS + 1;
    let several = kind & 4 != 0 || len > 2000;
    while several && at < len && cuts.len() < 3 {
        cuts.push(at);
        at += 1 + usize::from(bytes.next()) * 8;
    }
    let last = cuts.last().copied().unwrap_or(0);
    if len - last > 2000 {
        cuts.push(last + 1000);
    }
    cuts
}

/// The frames of a run of packets, none of which is empty.
fn whole<'a>(packets: impl Iterator<Item = &'a Packet>) -> Vec<Vec<u8>> {
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    for packet in packets {
        assert!(!packet.is_empty());
        frame.extend_from_slice(packet.data());
        if !packet.continues() {
            frames.push(std::mem::take(&mut frame));
        }
    }
    assert!(frame.is_empty(), "a frame without an end");
    frames
}
