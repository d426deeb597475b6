//! A layer 4 load balancer: `balancer [CLIENTS [SERVERS [ADDRESS [SECONDS [MAC ...]]]]]`.
//!
//! Frames that come in by port CLIENTS for ADDRESS leave by port SERVERS to one of the servers' MAC addresses. All servers have ADDRESS
//! (on their loopback interface), and answer the clients themselves: direct server return. Flows are hashed consistently: without a
//! server only its own flows move; fragments, which have no ports, count as another flow of the same hosts. The balancer keeps no state,
//! answers ARP and ping for ADDRESS itself, and drops all else.

use ethdev::{MacAddress, Port as _, PortConfig};
use lcore::{Steer, Switch, Team};
use mempool::{Packet, Pool, PoolConfig};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::{EthernetMut, Flow, answer_arp, answer_ping, protocol};

const CLIENTS: usize = 0;
const SERVERS: usize = 1;
/// Flows are moved in as many parts.
const SLOTS: usize = 4096;

/// Where frames go.
#[derive(Debug)]
pub(crate) struct Balancer {
    address: Ipv4Addr,
    macs: [MacAddress; 2],
    /// The server of each slot.
    slots: Vec<MacAddress>,
}

impl Balancer {
    /// In each slot is the server with the highest random weight for it (rendezvous hashing).
    pub(crate) fn new(address: Ipv4Addr, macs: [MacAddress; 2], servers: &[MacAddress]) -> Self {
        let best = |slot| servers.iter().copied().max_by_key(|server| hash(&(slot, server.0)));
        Self { address, macs, slots: (0..SLOTS).filter_map(best).collect() }
    }
}

/// The same in each run, so that several balancers agree.
fn hash(what: &impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    usize::try_from(hasher.finish()).unwrap_or(usize::MAX)
}

impl Steer for Balancer {
    fn steer(&mut self, port: usize, packet: &mut Packet) -> Option<usize> {
        let (frame, mac) = (packet.data_mut(), self.macs[port]);
        if port != CLIENTS {
            return None;
        }
        if answer_arp(frame, self.address, mac.0) || answer_ping(frame, self.address) {
            return Some(CLIENTS);
        }
        let flow = Flow::of(frame).filter(|flow| flow.destination == self.address)?;
        if !matches!(flow.protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        let server = self.slots.get(hash(&flow) % SLOTS)?;
        EthernetMut::parse(frame)?.set_addresses(server.0, self.macs[SERVERS].0);
        Some(SERVERS)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |number, default: &str| std::env::args().nth(number).unwrap_or(default.to_owned());
    let config = PortConfig { promiscuous: false, ..PortConfig::default() };
    let pool = Pool::new(&PoolConfig::default())?;
    let open = |address: String| nic::open(&address.parse()?, &config, &pool);
    let mut ports = [open(argument(1, "soft:clients?wire=gen"))?, open(argument(2, "soft:servers"))?];
    let address = argument(3, "198.19.0.0").parse()?;
    let time = Duration::from_secs(argument(4, "10").parse()?);
    let mut servers = std::env::args().skip(5).map(|mac| mac.parse()).collect::<Result<Vec<MacAddress>, _>>()?;
    if servers.is_empty() {
        servers = (1..=4).map(|last| MacAddress([2, 0, 0, 0, 0, last])).collect();
    }
    let macs = [ports[0].port.mac(), ports[1].port.mac()];
    let balancers = Switch::of(&mut ports, &pool, |_| Balancer::new(address, macs, &servers));
    let balancers = Team::run_for(balancers, time)?;
    let dropped: u64 = balancers.iter().map(Switch::dropped).sum();
    let [clients, servers] = ports.map(|port| port.close());
    println!("{} frames came in, {} went to servers, {dropped} were dropped", clients?.rx_packets, servers?.tx_packets);
    Ok(())
}
