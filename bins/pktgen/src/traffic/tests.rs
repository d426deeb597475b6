//! Frames of several rounds through the same few buffers.

use super::*;
use measure::Tag;
use mempool::PoolConfig;
use stream::{Definition, Flows};

/// The sum of RFC 1071 over bytes, a last one at an odd place padded.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
}

fn folded(sum: u32) -> u32 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Checks all of a UDP frame's checksums in full, over IPv4 or IPv6.
fn check(frame: &[u8]) {
    let ether_type = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
    let (ip, is_v4) = (&frame[ether_type + 2..], frame[ether_type..ether_type + 2] == [8, 0]);
    let (addresses, udp) = if is_v4 { (&ip[12..20], &ip[20..]) } else { (&ip[8..40], &ip[40..]) };
    if is_v4 {
        assert_eq!(folded(sum(&ip[..20])), 0xffff, "{frame:02x?}");
    }
    let length = u32::try_from(udp.len()).unwrap();
    assert_eq!(u32::from(u16::from_be_bytes([udp[4], udp[5]])), length);
    assert_eq!(folded(sum(addresses) + 17 + length + sum(udp)), 0xffff, "{frame:02x?}");
    assert_ne!(udp[6..8], [0, 0], "there is a checksum");
}

fn definition(text: &str) -> Definition {
    Definition::parse("test", text).unwrap().remove(0)
}

/// An end is right in every checksum, whatever its buffer has kept.
fn check_end(traffic: &mut Traffic, cache: &mut PoolCache, batch: &mut Batch) {
    for index in 0..traffic.parts.len() {
        let (largest, number) = (traffic.largest, traffic.parts[index].number);
        assert!(traffic.parts[index].write_end(cache, batch, largest, number));
        let frame = batch.last().unwrap().data();
        check(frame);
        let sent = measure::End::parse(frame).map(|end| end.sent(number));
        assert_eq!(sent, Some(number));
    }
    cache.free_batch(batch);
}

/// Frames of several rounds: each stream numbered in order, right in every checksum. Returns index and size of each.
fn run(definitions: &[Definition], kind: Kind) -> Vec<(usize, usize)> {
    let pool = Pool::new(&PoolConfig { slots: 128, ..PoolConfig::default() }).unwrap();
    let part = |(index, one): (usize, &Definition)| {
        let frames = Stream::new(one, kind.bytes(), 1).unwrap();
        Part::new(index.try_into().unwrap(), frames, one.weight(), kind).unwrap()
    };
    let largest = definitions.iter().map(|one| one.sizes().largest()).max().unwrap();
    let mut traffic = Traffic::new(definitions.iter().enumerate().map(part).collect(), largest);
    traffic.prefill(&pool);
    traffic.begin(7, true);
    let mut numbers = vec![u64::from(u32::MAX) - 300; definitions.len()];
    traffic.parts.iter_mut().zip(&numbers).for_each(|(part, number)| part.number = *number);
    let (mut cache, mut batch, mut sizes) = (pool.cache(), Batch::with_capacity(64), Vec::new());
    let mut runs = Runs::default();
    for round in 0..20 {
        let due: Vec<u64> = (0..[1, 3, 40, 64][round % 4]).map(|n| round as u64 * 1_000_003 + n).collect();
        runs.clear();
        assert_eq!(traffic.write(&mut cache, &mut batch, &due, &mut runs), due.len());
        assert_eq!(batch.len(), due.len());
        for (packet, due) in batch.iter().zip(&due) {
            let (index, frames) = runs.take(1).unwrap();
            assert_eq!(frames, 1);
            check(packet.data());
            let due = (kind == Kind::Full).then_some(due & ((1 << 48) - 1));
            let number = u32::try_from(numbers[index] & 0xffff_ffff).unwrap();
            let stream = 7 + u16::try_from(index).unwrap();
            assert_eq!(Tag::parse(packet.data()), Some(Tag { stream, number, due }));
            sizes.push((index, packet.len()));
            numbers[index] += 1;
        }
        assert_eq!(runs.take(1), None);
        cache.free_batch(&mut batch);
    }
    check_end(&mut traffic, &mut cache, &mut batch);
    sizes
}

#[test]
fn every_tag_leaves_every_checksum_right() {
    for kind in [Kind::Short, Kind::Full] {
        for (flows, address) in
            [(1, "198.19.0.1"), (70_000, "198.19.0.1"), (300, "198.19.0.1"), (1, "2001:2::9"), (500, "2001:2::9")]
        {
            for size in ["77", "76", "76-90", "imix"] {
                let destination: std::net::IpAddr = address.parse().unwrap();
                let source = if destination.is_ipv4() { "198.18.0.1" } else { "2001:2::1" }.parse().unwrap();
                let size = if size == "imix" && destination.is_ipv6() { "76,1514" } else { size };
                let flows = Flows { flows, source, destination, sizes: size.parse().unwrap(), ..Flows::default() };
                let sizes = run(&[flows.definition().unwrap()], kind);
                let expected = flows.sizes.cycle().iter().copied().map(|size| (0, usize::from(size))).cycle();
                assert!(sizes.iter().copied().eq(expected.take(sizes.len())), "{flows:?}");
            }
        }
    }
}

/// What moves is no part of the checksum that covers the tag.
#[test]
fn what_moves_outside_a_checksum_leaves_it_right() {
    let ethernet = "'ethernet'";
    let (vlan, v4, v6) = ("", "'ipv4'", "'ipv6'");
    let moving = "{ from = 1, to = 3 }";
    let frames = [
        (ethernet, vlan, &*format!("{{ ipv4 = {{ ttl = {moving} }} }}")),
        (ethernet, vlan, &*format!("{{ ipv4 = {{ id = {moving} }} }}")),
        (ethernet, vlan, &*format!("{{ ipv4 = {{ dscp = {moving} }} }}")),
        (ethernet, vlan, &*format!("{{ ipv6 = {{ hop_limit = {moving} }} }}")),
        (ethernet, vlan, &*format!("{{ ipv6 = {{ flow_label = {moving} }} }}")),
        (ethernet, &*format!("{{ vlan = {{ id = {moving} }} }},"), v4),
        (ethernet, &*format!("{{ vlan = {{ priority = {moving} }} }},"), v6),
        ("{ ethernet = { source = { from = '02:00:00:00:00:01', to = '02:00:00:00:00:03' } } }", vlan, v4),
    ];
    for kind in [Kind::Short, Kind::Full] {
        for (ethernet, vlan, ip) in frames {
            for size in [80, 81, 200] {
                let text = format!("[[stream]]\nsize = {size}\nframe = [{ethernet}, {vlan} {ip}, 'udp']");
                let sizes = run(&[definition(&text)], kind);
                assert!(sizes.iter().all(|written| *written == (0, size)), "{text}");
            }
        }
    }
}

#[test]
fn streams_take_turns_by_weight() {
    let small = definition("[[stream]]\nweight = 3\nsize = 61\nframe = ['ethernet', 'ipv4', 'udp']");
    let large = definition("[[stream]]\nsize = [99, 101]\nframe = ['ethernet', 'ipv6', 'udp']");
    let sizes = run(&[small, large], Kind::Full);
    let (small, [second, third]) = ((0, 61), [(1, 99), (1, 101)]);
    let expected = [small, small, small, second, small, small, small, third].into_iter().cycle();
    assert!(sizes.iter().copied().eq(expected.take(sizes.len())), "{sizes:?}");
}
