//! smoltcp's stack at the other end of the link: it resolves and pings the station, and is resolved and pinged by it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::icmp;
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet, Icmpv6Repr, IpAddress, IpCidr, Ipv4Address,
};
use station::{Echo, Event, Station};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Frames on their way to smoltcp, and from it.
#[derive(Default)]
struct Link {
    to: VecDeque<Vec<u8>>,
    from: VecDeque<Vec<u8>>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Link {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        Some((Rx(self.to.pop_front()?), Tx(&mut self.from)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.from))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ethernet, 1514);
        capabilities
    }
}

/// Both ends of the link.
struct Network {
    station: Station,
    link: Link,
    theirs: Interface,
    sockets: SocketSet<'static>,
    pinger: SocketHandle,
    now: Duration,
    /// Replies that the station took: where they came from, and their payloads.
    replies: Vec<(IpAddr, u16, Vec<u8>)>,
}

impl Network {
    fn new() -> Self {
        let addresses = ["192.0.2.1/24", "2001:db8::1/64"].map(|address| address.parse().unwrap());
        let gateways = ["192.0.2.2", "2001:db8::2"].map(|address| address.parse().unwrap());
        let mut link = Link::default();
        let mut theirs =
            Interface::new(Config::new(EthernetAddress(THEIRS).into()), &mut link, Instant::from_micros(0));
        theirs.update_ip_addrs(|addresses| {
            for (address, len) in [("192.0.2.2", 24), ("2001:db8::2", 64)] {
                addresses.push(IpCidr::new(address.parse::<IpAddr>().unwrap().into(), len)).unwrap();
            }
        });
        theirs.routes_mut().add_default_ipv4_route(Ipv4Address::new(192, 0, 2, 1)).unwrap();
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 8192]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(77)).unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let pinger = sockets.add(socket);
        let station = Station::new(OURS, &addresses, &gateways).unwrap();
        Self { station, link, theirs, sockets, pinger, now: Duration::ZERO, replies: Vec::new() }
    }

    /// 10 ms at both ends.
    fn step(&mut self) {
        let now = Instant::from_micros(i64::try_from(self.now.as_micros()).unwrap());
        self.theirs.poll(now, &mut self.link, &mut self.sockets);
        let (to, from) = (&mut self.link.to, &mut self.link.from);
        self.station.poll(self.now, &mut |frame| to.push_back(frame.to_vec()));
        while let Some(frame) = from.pop_front() {
            match self.station.receive(self.now, &frame, &mut |answer| to.push_back(answer.to_vec())) {
                Event::Reply(echo) => self.replies.push((echo.from, echo.sequence, echo.payload.to_vec())),
                Event::Dropped => panic!("{:?} for {frame:02x?}", self.station.counters()),
                _ => {}
            }
        }
        self.now += Duration::from_millis(10);
    }

    fn resolve(&mut self, destination: IpAddr) -> [u8; 6] {
        for _ in 0..500 {
            if let Some(mac) = self.station.resolve(self.now, destination).unwrap() {
                return mac;
            }
            self.step();
        }
        panic!("{destination} is not found");
    }

    /// smoltcp pings an address of the station; whether the reply came.
    fn ping(&mut self, to: IpAddr, payload: &[u8]) -> bool {
        let checksums = ChecksumCapabilities::default();
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.pinger);
        match to {
            IpAddr::V4(_) => {
                let request = Icmpv4Repr::EchoRequest { ident: 77, seq_no: 5, data: payload };
                let bytes = socket.send(request.buffer_len(), to.into()).unwrap();
                request.emit(&mut Icmpv4Packet::new_unchecked(bytes), &checksums);
            }
            IpAddr::V6(v6) => {
                let request = Icmpv6Repr::EchoRequest { ident: 77, seq_no: 5, data: payload };
                let from = "2001:db8::2".parse().unwrap();
                let bytes = socket.send(request.buffer_len(), to.into()).unwrap();
                request.emit(&from, &v6, &mut Icmpv6Packet::new_unchecked(bytes), &checksums);
            }
        }
        for _ in 0..300 {
            self.step();
            let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.pinger);
            if let Ok((reply, from)) = socket.recv() {
                assert_eq!(from, IpAddress::from(to));
                return reply.ends_with(payload) && reply.len() == payload.len() + 8;
            }
        }
        false
    }
}

#[test]
fn it_is_found_and_answers_pings() {
    for to in ["192.0.2.1", "2001:db8::1"] {
        let mut network = Network::new();
        for size in [0, 1, 17, 1400] {
            let payload: Vec<u8> = (0..size).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
            assert!(network.ping(to.parse().unwrap(), &payload), "{size} bytes to {to}");
        }
        let counters = *network.station.counters();
        assert_eq!((counters.echo_answered, counters.conflicts), (4, 0));
        assert!(counters.arp_answered + counters.nd_answered >= 1, "{counters:?}");
    }
}

#[test]
fn it_finds_hosts_and_pings_them() {
    let mut network = Network::new();
    for (number, to) in (0..).zip(["192.0.2.2", "2001:db8::2"]) {
        let to: IpAddr = to.parse().unwrap();
        let mac = network.resolve(to);
        assert_eq!(mac, THEIRS);
        let from = network.station.source(to).unwrap();
        for size in [0, 3, 56, 1400] {
            let payload = vec![7; size];
            let echo = Echo { from, to, identifier: 9, sequence: number, payload: &payload };
            let mut frame = Vec::new();
            echo.write(&mut frame, OURS, mac).unwrap();
            network.link.to.push_back(frame);
            for _ in 0..300 {
                network.step();
                if !network.replies.is_empty() {
                    break;
                }
            }
            assert_eq!(std::mem::take(&mut network.replies), [(to, number, payload)]);
        }
    }
    // Beyond the gateways.
    for to in ["203.0.113.7", "2001:db8:5::7"] {
        assert_eq!(network.resolve(to.parse().unwrap()), THEIRS);
    }
    assert_eq!(network.station.check(), Ok(()));
}

#[test]
fn what_it_keeps_is_asked_for_again() {
    let mut network = Network::new();
    let to: IpAddr = "192.0.2.2".parse().unwrap();
    network.resolve(to);
    network.now += Duration::from_secs(31);
    // Known still, and asked for meanwhile, by a frame for one station.
    assert_eq!(network.station.resolve(network.now, to), Ok(Some(THEIRS)));
    let mut asked = Vec::new();
    network.station.poll(network.now, &mut |frame| asked.push(frame.to_vec()));
    assert!(asked.iter().any(|frame| frame[..6] == THEIRS && frame[12..14] == [8, 6]), "{asked:02x?}");
}
