//! Views against fields read by their offsets, on sound bytes and on any bytes.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{
    Arp, ArpMut, Ethernet, EthernetMut, Flow, Icmp, IcmpMut, Ipv4, Ipv4Mut, Ipv6, Sum, Tcp, TransportMut, Udp,
    answer_arp, answer_ping, ether_type, protocol, tcp_flags,
};

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}

/// The sum of a packet's pseudo-header and payload is all ones (RFC 9293, 3.1).
fn transport_is_right(packet: &[u8]) -> bool {
    let header = usize::from(packet[0] & 15) * 4;
    let len = u16::try_from(packet.len() - header).unwrap();
    let bytes = [&packet[12..20], &[0, packet[9]], &len.to_be_bytes(), &packet[header..], &[0][..packet.len() % 2]];
    let sum: u64 = bytes.concat().chunks(2).map(|pair| u64::from(word(pair, 0))).sum();
    sum.is_multiple_of(0xffff)
}

/// An IPv4 packet with right checksums.
fn packet(protocol: u8, options: &[u8], transport: &[u8], addresses: [[u8; 4]; 2]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = u16::try_from(header + transport.len()).unwrap();
    let mut packet = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(addresses.concat());
    packet.extend(options);
    let header_sum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&header_sum.to_be_bytes());
    packet.extend(transport);
    let at = header + if protocol == protocol::TCP { 16 } else { 6 };
    packet[at..at + 2].fill(0);
    let sum =
        Sum::pseudo_ipv4(addresses[0].into(), addresses[1].into(), protocol, total - u16::try_from(header).unwrap())
            .and(&packet[header..])
            .checksum();
    let sum = if protocol == protocol::UDP && sum == 0 { 0xffff } else { sum };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn ethernet_looks_behind_two_tags() {
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (tags, ether_type, payload) in [
        (&[][..], ether_type::IPV4, 2),
        (&[0x81, 0, 0, 7], ether_type::IPV4, 2),
        (&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 7], ether_type::IPV4, 2),
        (&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 7, 0x81, 0, 0, 8], ether_type::VLAN, 6),
    ] {
        let mut frame = [&addresses[..], tags, &[8, 0, 0x45, 9]].concat();
        let view = Ethernet::parse(&frame).unwrap();
        assert_eq!((view.destination(), view.source()), ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]));
        assert_eq!((view.ether_type(), view.payload().len()), (ether_type, payload));
        let mut view = EthernetMut::parse(&mut frame).unwrap();
        view.set_addresses([1; 6], [3; 6]);
        view.payload_mut().fill(5);
        assert_eq!(frame[..14], [&[1; 6][..], &[3; 6], &frame[12..14]].concat());
        assert_eq!(frame[frame.len() - 2..], [5, 5]);
        let headers = 14 + tags.len().min(8);
        assert!((0..headers).all(|len| Ethernet::parse(&frame[..len]).is_none()), "cut off");
    }
}

#[test]
fn an_arp_request_becomes_its_reply() {
    // RFC 826: hardware, protocol, lengths, operation, sender, target.
    let (asks, asked) = ([2, 0, 0, 0, 0, 1, 192, 0, 2, 1], [0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    let mut packet = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &asks, &asked, &[0; 18]].concat();
    let arp = Arp::parse(&packet).unwrap();
    assert!(arp.is_request() && arp.target() == Ipv4Addr::new(192, 0, 2, 9));
    assert_eq!(arp.sender(), ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(192, 0, 2, 1)));
    ArpMut::parse(&mut packet).unwrap().answer([2, 0, 0, 0, 0, 9]);
    let reply = [&[0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9, 192, 0, 2, 9][..], &asks].concat();
    assert_eq!(packet[..28], reply);
    assert!(!Arp::parse(&packet).unwrap().is_request());
    assert!(Arp::parse(&packet[..27]).is_none(), "cut off");
    packet[4] = 8;
    assert!(Arp::parse(&packet).is_none(), "other addresses");
}

#[test]
fn an_echo_request_becomes_its_reply() {
    for (identifier, data) in [(0, &b""[..]), (0xf7ff, b"odd"), (7, b"even")] {
        let mut message = [&[8, 0, 0, 0][..], &u16::to_be_bytes(identifier), &[0, 1], data].concat();
        let sum = Sum::of(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        assert!(IcmpMut::parse(&mut message).unwrap().answer_echo());
        let reply = Icmp::parse(&message).unwrap();
        assert!(reply.kind() == (0, 0) && reply.is_checksum_right());
        assert_eq!(&message[8..], data);
        assert!(!IcmpMut::parse(&mut message).unwrap().answer_echo(), "a reply is not answered");
        message[8 - 1] ^= 1;
        assert!(!IcmpMut::parse(&mut message).unwrap().view().is_checksum_right());
    }
}

#[test]
fn whole_frames_are_answered_if_they_are_for_the_address() {
    let (host, here, address) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9], [192, 0, 2, 9]);
    let request =
        [&[0xff; 6][..], &host, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &host, &[192, 0, 2, 1], &[0; 6], &address].concat();
    let mut from_group = request.clone();
    from_group[22] |= 1;
    assert!(!answer_arp(&mut from_group, address.into(), here));
    let mut frame = request.clone();
    assert!(!answer_arp(&mut frame, [192, 0, 2, 8].into(), here) && frame == request);
    assert!(answer_arp(&mut frame, address.into(), here));
    let reply = [&host[..], &here, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &here, &address, &host, &[192, 0, 2, 1]].concat();
    assert_eq!(frame, reply);
    assert!(!answer_arp(&mut frame, [192, 0, 2, 1].into(), here) && frame == reply, "a reply is not answered");

    let mut echo = vec![8, 0, 0, 0, 1, 2, 0, 3, 9];
    let sum = Sum::of(&echo).checksum();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut ip = [&[0x45, 0, 0, 29, 0, 0, 0, 0, 7, 1, 0, 0, 192, 0, 2, 1][..], &address, &echo].concat();
    Ipv4Mut::parse(&mut ip).unwrap().fill_checksum();
    let mut ping = [&here[..], &host, &[8, 0], &ip].concat();
    let before = ping.clone();
    assert!(!answer_ping(&mut ping, [192, 0, 2, 8].into()) && ping == before);
    let mut broadcast = [&[0xff; 6][..], &ping[6..]].concat();
    assert!(!answer_ping(&mut broadcast, address.into()), "nobody's address would be its source");
    let mut from_group = ping.clone();
    from_group[6] |= 1;
    assert!(!answer_ping(&mut from_group, address.into()));
    for source in [[255; 4], [224, 0, 0, 1], [0; 4], address] {
        let mut odd = ping.clone();
        Ipv4Mut::parse(&mut odd[14..]).unwrap().set_source(source.into());
        assert!(!answer_ping(&mut odd, address.into()), "from {source:?}");
    }
    assert!(answer_ping(&mut ping, address.into()));
    assert_eq!((&ping[..6], &ping[6..12]), (&host[..], &here[..]));
    let reply = Ipv4::parse(&ping[14..]).unwrap();
    assert_eq!((&ping[26..30], &ping[30..34]), (&address[..], &[192, 0, 2, 1][..]));
    let message = Icmp::parse(reply.payload()).unwrap();
    assert_eq!(reply.header().ttl(), 64);
    assert!(reply.is_checksum_right() && message.is_checksum_right() && message.kind() == (0, 0));
    assert_eq!(&ping[38..], &before[38..]);
}

#[test]
fn tcp_has_its_flags_and_its_options() {
    let mut segment = vec![0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x60, 0x12, 1, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4, 9];
    let tcp = Tcp::parse(&segment).unwrap();
    assert_eq!((tcp.ports(), tcp.flags(), tcp.payload()), ((0x1234, 80), tcp_flags::SYN | tcp_flags::ACK, &[9][..]));
    for data_offset in [0x00, 0x40, 0x70] {
        segment[12] = data_offset;
        assert!(Tcp::parse(&segment).is_none(), "{data_offset:#x}");
    }
}

#[test]
fn no_udp_checksum_stays_none_and_a_sum_of_zero_is_not_written_as_none() {
    let addresses = [[192, 0, 2, 1], [198, 51, 100, 1]];
    let mut bytes = packet(protocol::UDP, &[], &[0xc0, 0, 0, 53, 0, 8, 0, 0], addresses);
    bytes[26..28].fill(0);
    TransportMut::parse(&mut bytes).unwrap().set_source("10.0.0.1:1".parse().unwrap());
    assert_eq!(bytes[26..28], [0, 0]);
    // Of all ports one makes the sum all ones, so that its complement is 0.
    let sums: Vec<u16> = (0..=u16::MAX)
        .map(|port| {
            let mut bytes = packet(protocol::UDP, &[], &[0xc0, 0, 0, 53, 0, 8, 0, 0], addresses);
            TransportMut::parse(&mut bytes).unwrap().set_source(SocketAddrV4::new(addresses[0].into(), port));
            assert!(transport_is_right(&bytes), "port {port}");
            word(&bytes, 26)
        })
        .collect();
    assert!(sums.contains(&0xffff) && !sums.contains(&0));
}

#[test]
fn counting_down_agrees_with_summing_anew_for_every_checksum() {
    for ttl in [2, 64, 255] {
        for id in 0..=u16::MAX {
            let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, ttl, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
            header[4..6].copy_from_slice(&id.to_be_bytes());
            Ipv4Mut::parse(&mut header).unwrap().fill_checksum();
            assert!(Ipv4Mut::parse(&mut header).unwrap().hop());
            let after = header;
            Ipv4Mut::parse(&mut header).unwrap().fill_checksum();
            assert_eq!(after, header, "id {id}");
            assert_eq!(header[8], ttl - 1);
        }
    }
    let mut last = [0x45, 0, 0, 20, 0, 0, 0, 0, 1, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
    let before = last;
    assert!(!Ipv4Mut::parse(&mut last).unwrap().hop() && last == before);
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), words * 4))
}

proptest! {
    #[test]
    fn ipv4_parses_what_is_whole(bytes in vec(any::<u8>(), 0..100), sound in any::<bool>(), ihl in 4..=15_u8, total in 0..110_u16) {
        let mut bytes = bytes;
        if sound && bytes.len() >= 4 {
            bytes[0] = 0x40 | ihl;
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
        }
        let header = bytes.first().map_or(0, |first| usize::from(first & 15) * 4);
        let whole = bytes.len() >= 20 && bytes[0] >> 4 == 4 && header >= 20 && header <= usize::from(word(&bytes, 2))
            && usize::from(word(&bytes, 2)) <= bytes.len();
        let view = Ipv4::parse(&bytes);
        prop_assert_eq!(view.is_some(), whole);
        if let Some(view) = view {
            let total = usize::from(word(&bytes, 2));
            let fields = view.header();
            prop_assert_eq!(view.payload(), &bytes[header..total]);
            prop_assert_eq!((fields.ttl(), fields.protocol(), fields.total_len()), (bytes[8], bytes[9], total));
            prop_assert_eq!(fields.source().octets(), &bytes[12..16]);
            prop_assert_eq!(fields.destination().octets(), &bytes[16..20]);
            prop_assert_eq!(fields.is_fragment(), bytes[6] & 0x3f != 0 || bytes[7] != 0);
            let sum: u64 = bytes[..header].chunks(2).map(|pair| u64::from(word(pair, 0))).sum();
            prop_assert_eq!(view.is_checksum_right(), sum.is_multiple_of(0xffff));
        }
    }

    #[test]
    fn ipv6_and_udp_parse_what_is_whole(bytes in vec(any::<u8>(), 0..100), len in 0..70_u16) {
        let mut bytes = bytes;
        if bytes.len() >= 6 {
            bytes[0] = 0x60 | bytes[0] & 0x1f;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
        }
        let len = usize::from(len);
        let view = Ipv6::parse(&bytes);
        prop_assert_eq!(view.is_some(), bytes.len() >= 40 + len && bytes.len() >= 40 && bytes[0] >> 4 == 6);
        if let Some(view) = view {
            prop_assert_eq!(view.payload(), &bytes[40..40 + len]);
            prop_assert_eq!((view.header().next_header(), view.header().hop_limit()), (bytes[6], bytes[7]));
            prop_assert_eq!(view.header().source().octets(), &bytes[8..24]);
            prop_assert_eq!(view.header().destination().octets(), &bytes[24..40]);
        }
        let udp = Udp::parse(&bytes);
        prop_assert_eq!(udp.is_some(), bytes.len() >= 8 && (8..=bytes.len()).contains(&len));
        if let Some(udp) = udp {
            prop_assert_eq!((udp.ports(), udp.payload()), ((word(&bytes, 0), word(&bytes, 2)), &bytes[8..len]));
        }
    }

    /// Whatever is readdressed stands as if it had been written so: all checksums are right, nothing else changes.
    #[test]
    fn checksums_follow_addresses_and_ports(
        options in options(), data in vec(any::<u8>(), 0..40), tcp in any::<bool>(),
        addresses in any::<[[u8; 4]; 2]>(), new in any::<[[u8; 4]; 2]>(), ports in any::<[u16; 4]>(),
    ) {
        let (number, len) = if tcp { (protocol::TCP, 20) } else { (protocol::UDP, 8) };
        let transport = |from: u16, to: u16| {
            let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
            bytes.resize(len, 0);
            if tcp { bytes[12] = 0x50 } else { bytes[4..6].copy_from_slice(&u16::try_from(8 + data.len()).unwrap().to_be_bytes()) }
            [&bytes[..], &data].concat()
        };
        let mut bytes = packet(number, &options, &transport(ports[0], ports[1]), addresses);
        let mut view = TransportMut::parse(&mut bytes).unwrap();
        prop_assert_eq!(view.source(), SocketAddrV4::new(addresses[0].into(), ports[0]));
        prop_assert_eq!(view.destination(), SocketAddrV4::new(addresses[1].into(), ports[1]));
        view.set_source(SocketAddrV4::new(new[0].into(), ports[2]));
        view.set_destination(SocketAddrV4::new(new[1].into(), ports[3]));
        let anew = packet(number, &options, &transport(ports[2], ports[3]), new);
        prop_assert!(Ipv4::parse(&bytes).unwrap().is_checksum_right() && transport_is_right(&bytes));
        prop_assert_eq!(bytes, anew);
    }

    /// No bytes make a view panic, and a frame has a flow if it has an IP header.
    #[test]
    fn any_bytes_are_looked_at(mut bytes in vec(any::<u8>(), 0..90), kind in 0..4_usize, cut in 0..90_usize) {
        if bytes.len() > 14 {
            let (kind, version) = [(0x0800, 0x45), (0x86dd, 0x60), (0x0806, 0), (0x8100, 0)][kind];
            bytes[12..14].copy_from_slice(&u16::to_be_bytes(kind));
            bytes[14] = version;
        }
        bytes.truncate(cut);
        let ip = bytes.len() >= 34 && bytes[12..15] == [8, 0, 0x45] || bytes.len() >= 54 && bytes[12..15] == [0x86, 0xdd, 0x60];
        if bytes.get(12..14) != Some(&[0x81, 0]) {
            prop_assert_eq!(Flow::of(&bytes).is_some(), ip);
        }
        let _ = Flow::of(&bytes).map(|flow| flow.to_string());
        for parse in [|bytes: &mut [u8]| TransportMut::parse(bytes).is_some(), |bytes: &mut [u8]| {
            ArpMut::parse(bytes).map(|mut arp| arp.answer([0; 6])).is_some()
        }, |bytes: &mut [u8]| IcmpMut::parse(bytes).map(|mut icmp| icmp.answer_echo()).is_some()] {
            parse(&mut bytes);
            if let Some(mut view) = EthernetMut::parse(&mut bytes) {
                parse(view.payload_mut());
            }
        }
        let _ = (Tcp::parse(&bytes), Udp::parse(&bytes), Icmp::parse(&bytes), Arp::parse(&bytes));
    }
}

#[test]
fn padding_is_no_part_of_a_flow() {
    let mut frame = vec![0xab; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(Flow::of(&frame).unwrap().ports, None);
    frame[17] = 24;
    assert_eq!(Flow::of(&frame).unwrap().ports, Some((0xabab, 0xabab)));
    // One that says it is longer than what is there.
    frame[17] = 200;
    assert_eq!(Flow::of(&frame).unwrap().ports, Some((0xabab, 0xabab)));
    let mut frame = vec![0xab; 60];
    frame[12..21].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17]);
    assert_eq!(Flow::of(&frame).unwrap().ports, None);
    frame[19] = 6;
    assert_eq!(Flow::of(&frame).unwrap().ports, Some((0xabab, 0xabab)));
}
