//! NAT44 (RFC 3022) of TCP and UDP between two ports, on two workers that share nothing:
//! `nat44 [INSIDE [OUTSIDE [INSIDE-IP [OUTSIDE-IP [GATEWAY-MAC [SECONDS]]]]]]`.
//!
//! The RSS key is symmetric: a flow and its return come to the same worker. Outside, the flow has another source, and each worker takes
//! only ports whose return flow leads to it. A virtio device must offer RSS (QEMU: `rss=on`).

use ethdev::{HashTypes, MacAddress, Port as _, PortConfig, Rss, hash_ipv4};
use lcore::{Steer, Switch, Team};
use mempool::{Packet, Pool, PoolConfig};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use wire::{EthernetMut, TransportMut, answer_arp, ether_type, protocol, tcp_flags};

pub(crate) const WORKERS: u16 = 2;
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;
/// Bindings of a worker at most, and minutes that an idle one lives (RFC 4787, REQ-5).
const MOST: usize = 1 << 16;
const IDLE_MINUTES: u64 = 5;

pub(crate) fn config() -> PortConfig {
    let rss = Rss { key: Rss::SYMMETRIC_KEY, hash: HashTypes::TCP_IPV4 | HashTypes::UDP_IPV4, ..Rss::default() };
    PortConfig { rx_queues: WORKERS, tx_queues: WORKERS, promiscuous: false, rss, ..PortConfig::default() }
}

/// Protocol, inside or outside end, and remote end.
type Ends = (u8, SocketAddrV4, SocketAddrV4);
/// An inside end, its station, and the minute in which it was last used.
type Host = (SocketAddrV4, [u8; 6], u64);

/// One worker's part of the NAT. The arrays are for inside and outside.
pub(crate) struct Nat {
    worker: usize,
    macs: [MacAddress; 2],
    addresses: [Ipv4Addr; 2],
    gateway: MacAddress,
    outside: HashMap<Ends, SocketAddrV4>,
    hosts: HashMap<Ends, Host>,
    next_port: u16,
    pub(crate) begun: Instant,
    minute: u64,
}

impl Nat {
    pub(crate) fn new(worker: usize, macs: [MacAddress; 2], addresses: [Ipv4Addr; 2], gateway: MacAddress) -> Self {
        let (outside, hosts, begun) = (HashMap::new(), HashMap::new(), Instant::now());
        Self { worker, macs, addresses, gateway, outside, hosts, next_port: 1024, begun, minute: 0 }
    }

    fn leave(&mut self, packet: &mut TransportMut<'_>, station: [u8; 6]) -> Option<[u8; 6]> {
        let (protocol, inside, remote) = (packet.protocol(), packet.source(), packet.destination());
        let opens = protocol == protocol::UDP || packet.flags() & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
        let known = self.outside.get(&(protocol, inside, remote)).copied();
        let is_new = known.is_none() && opens && self.outside.len() < MOST;
        let outside = if is_new { self.free_port(protocol, remote) } else { known }?;
        self.outside.insert((protocol, inside, remote), outside);
        self.hosts.insert((protocol, outside, remote), (inside, station, self.minute));
        packet.set_source(outside);
        Some(self.gateway.0)
    }

    fn enter(&mut self, packet: &mut TransportMut<'_>) -> Option<[u8; 6]> {
        let (protocol, own, remote) = (packet.protocol(), packet.destination(), packet.source());
        let (inside, station, used) = self.hosts.get_mut(&(protocol, own, remote))?;
        *used = self.minute;
        packet.set_destination(*inside);
        Some(*station)
    }

    /// A port that is not bound to `remote` yet, and whose return flow comes to this worker, if there is one among 256.
    fn free_port(&mut self, protocol: u8, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        let rss = config().rss;
        (0..256).find_map(|_| {
            let outside = SocketAddrV4::new(self.addresses[OUTSIDE], self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(1024);
            let hash = hash_ipv4(&rss.key, *remote.ip(), *outside.ip(), Some((remote.port(), outside.port())));
            let is_ours = usize::from(rss.queue(hash, WORKERS)) == self.worker;
            (is_ours && !self.hosts.contains_key(&(protocol, outside, remote))).then_some(outside)
        })
    }
}

impl Steer for Nat {
    fn steer(&mut self, side: usize, packet: &mut Packet) -> Option<usize> {
        if answer_arp(packet.data_mut(), self.addresses[side], self.macs[side].0) {
            return Some(side);
        }
        let ours = (ether_type::IPV4, self.macs[side].0); // not to all of a link: RFC 1812, 5.3.4
        let mut ethernet = EthernetMut::parse(packet.data_mut())
            .filter(|frame| (frame.ether_type(), frame.view().destination()) == ours)?;
        let station = ethernet.view().source();
        let mut packet = TransportMut::parse(ethernet.payload_mut())?;
        let next_hop = if side == INSIDE { self.leave(&mut packet, station) } else { self.enter(&mut packet) };
        let next_hop = next_hop.filter(|_| packet.hop())?;
        ethernet.set_addresses(next_hop, self.macs[1 - side].0);
        Some(1 - side)
    }

    fn publish(&mut self) {
        let minute = self.begun.elapsed().as_secs() / 60;
        if std::mem::replace(&mut self.minute, minute) < minute {
            self.hosts.retain(|_, (_, _, used)| minute - *used < IDLE_MINUTES);
            self.outside.retain(|(protocol, _, remote), own| self.hosts.contains_key(&(*protocol, *own, *remote)));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |number, default: &str| std::env::args().nth(number).unwrap_or(default.to_owned());
    let pool = Pool::new(&PoolConfig { slots: 1 << 14, ..PoolConfig::default() })?;
    let open = |address: String| nic::open(&address.parse()?, &config(), &pool);
    let mut ports = [open(argument(1, "soft:inside?wire=gen&flows=64"))?, open(argument(2, "soft:outside"))?];
    let addresses = [argument(3, "10.0.0.1").parse()?, argument(4, "192.0.2.1").parse()?];
    let (macs, gateway) = (ports.each_ref().map(|port| port.port.mac()), argument(5, "02:00:00:00:00:01").parse()?);
    let nats = Switch::of(&mut ports, &pool, |worker| Nat::new(worker, macs, addresses, gateway));
    let nats = Team::run_for(nats, Duration::from_secs(argument(6, "10").parse()?))?;
    nats.iter().for_each(|nat| println!("{} bindings, {} frames dropped", nat.steer.outside.len(), nat.dropped()));
    Ok(ports.into_iter().try_for_each(|port| port.close().map(drop))?)
}
