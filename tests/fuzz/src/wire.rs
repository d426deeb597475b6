//! Frames of any content through the views of `wire`: nothing panics, what is refused stays as it was, and what is changed keeps
//! its checksums as right or wrong as they were, by sums taken a byte at a time.

use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Ethernet, EthernetMut, Flow, Icmp, Ipv4, Ipv4Mut, Ipv6, Tcp, TransportMut, Udp, ether_type, protocol};

const ETHERNET: usize = 14;

/// Runs one input: a byte that chooses the shape, 6 bytes of an address and a port, and a frame.
pub fn run(input: &[u8]) {
    let Some(([shape, address @ .., p0, p1, _], rest)) = input.split_first_chunk::<8>() else { return };
    let address = Ipv4Addr::new(address[0], address[1], address[2], address[3]);
    let end = SocketAddrV4::new(address, u16::from_be_bytes([*p0, *p1]));
    let mut frame = rest.to_vec();
    if shape & 1 != 0 {
        make_likely(*shape, address, &mut frame);
    }
    look(&frame);
    answer(&frame, address);
    rewrite(&frame, end);
}

/// Makes of the frame one whose lengths and types fit.
fn make_likely(shape: u8, address: Ipv4Addr, frame: &mut Vec<u8>) {
    frame.resize(frame.len().max(64), 0);
    (frame[0], frame[6]) = (frame[0] & !1, frame[6] & !1);
    if shape & 2 != 0 {
        frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame[38..42].copy_from_slice(&address.octets());
        return;
    }
    let len = u16::try_from(frame.len() - ETHERNET).unwrap_or(u16::MAX).to_be_bytes();
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&len);
    frame[20..22].copy_from_slice(&[0, 0]);
    frame[23] = [protocol::ICMP, protocol::TCP, protocol::UDP, frame[23]][usize::from(shape >> 2 & 3)];
    if frame[23] == protocol::ICMP {
        frame[30..34].copy_from_slice(&address.octets());
        frame[34..36].copy_from_slice(&[8, 0]);
    }
}

/// Reads whatever can be read.
fn look(frame: &[u8]) {
    let flow = Flow::of(frame);
    let Some(ethernet) = Ethernet::parse(frame) else { return assert_eq!(flow, None) };
    let packet = ethernet.payload();
    assert!(frame.starts_with(&ethernet.destination()) && frame.ends_with(packet));
    if let Some(ip) = Ipv4::parse(packet) {
        let (header, payload) = (ip.header(), ip.payload());
        assert_eq!(header.total_len(), header.header_len() + payload.len());
        assert_eq!(ip.is_checksum_right(), (residue(&packet[..header.header_len()]) == 0));
        let message = Icmp::parse(payload);
        assert!(message.is_none_or(|message| message.is_checksum_right() == (residue(payload) == 0)));
        assert!(Tcp::parse(payload).is_none_or(|tcp| tcp.payload().len() + 20 <= payload.len()));
        assert!(Udp::parse(payload).is_none_or(|udp| udp.payload().len() + 8 <= payload.len()));
        let ends =
            flow.filter(|_| ethernet.ether_type() == ether_type::IPV4).map(|flow| (flow.source, flow.destination));
        assert!(ends.is_none_or(|ends| ends == (header.source().into(), header.destination().into())));
    }
    if let Some(ip) = Ipv6::parse(packet) {
        assert_eq!(ip.header().payload_len(), ip.payload().len());
    }
}

/// Answers what it asks, and nothing else.
fn answer(frame: &[u8], address: Ipv4Addr) {
    let mut answered = frame.to_vec();
    if !wire::answer_arp(&mut answered, address, [2, 0, 0, 0, 0, 1]) {
        assert_eq!(answered, frame);
    }
    let mut answered = frame.to_vec();
    if !wire::answer_ping(&mut answered, address) {
        return assert_eq!(answered, frame);
    }
    let ip = packet(frame);
    let (header, end) = (ip + header_len(frame, ip), ip + total_len(frame, ip));
    for part in [ip..header, header..end] {
        assert_eq!(residue(&answered[part.clone()]), residue(&frame[part]));
    }
    assert_eq!(
        (&answered[ip + 12..ip + 16], &answered[ip + 16..ip + 20]),
        (&frame[ip + 16..ip + 20], &frame[ip + 12..ip + 16])
    );
}

/// Changes ends and time to live.
fn rewrite(frame: &[u8], end: SocketAddrV4) {
    let (mut changed, mut header_only) = (frame.to_vec(), frame.to_vec());
    let Some(mut ethernet) = EthernetMut::parse(&mut changed) else { return };
    let Some(mut transport) = TransportMut::parse(ethernet.payload_mut()) else { return };
    let ip = packet(frame);
    let (source, lives) = (transport.source(), frame[ip + 8] > 1);
    transport.set_destination(source);
    transport.set_source(end);
    assert_eq!((transport.source(), transport.destination()), (end, source));
    assert_eq!(transport.hop(), lives);
    let header = ip + header_len(frame, ip);
    assert_eq!(residue(&changed[ip..header]), residue(&frame[ip..header]), "the header's checksum");
    let no_sum = frame[ip + 9] == protocol::UDP && frame[header + 6..header + 8] == [0, 0];
    // The addresses are part of the pseudo-header, whose other fields stay as they are.
    let parts = |frame: &[u8]| [&frame[ip + 12..ip + 20], &frame[header..ip + total_len(frame, ip)]].concat();
    assert!(no_sum || residue(&parts(&changed)) == residue(&parts(frame)), "the checksum of TCP or UDP");
    assert!(!no_sum || changed[header + 6..header + 8] == [0, 0], "there was none");
    if let Some(mut view) = Ipv4Mut::parse(&mut header_only[ip..]) {
        view.set_ttl(end.port().to_be_bytes()[0]);
        view.set_source(*end.ip());
        assert_eq!(residue(&header_only[ip..header]), residue(&frame[ip..header]));
    }
}

/// Where the packet begins: behind the Ethernet header and up to two tags.
fn packet(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    [12, 16].into_iter().find(|at| !is_tag(*at)).unwrap_or(20) + 2
}

fn header_len(frame: &[u8], ip: usize) -> usize {
    4 * usize::from(frame[ip] & 15)
}

fn total_len(frame: &[u8], ip: usize) -> usize {
    u16::from_be_bytes([frame[ip + 2], frame[ip + 3]]).into()
}

/// The sum of 16-bit words, modulo 65535: 0 where a checksum among them is right.
fn residue(bytes: &[u8]) -> u64 {
    let shifted = |(n, byte): (usize, &u8)| u64::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 };
    bytes.iter().enumerate().map(shifted).sum::<u64>() % 0xffff
}
