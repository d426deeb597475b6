//! A router without any driver: `routes [FILE [ADDRESS ...]]` says where the routes of a file lead, by the lookup table alone and by
//! the whole data path, which is given a packet for each address.

use lpm::{Config, Ipv4Table, Ipv6Table};
use mempool::{Batch, Pool, PoolConfig};
use router::{Egress, Fib, Interface, MacAddress, Miss, Neighbour, Refusal, Routes};
use std::net::IpAddr;
use wire::{Ethernet, Ipv4Mut, ether_type};

/// As many ports as routes may name here, and the routes unless a file is given.
const PORTS: u8 = 16;
const ROUTES: &str = "\
192.0.2.0/24    via 02:00:00:00:00:02  port 1
0.0.0.0/0       via 02:00:00:00:00:03  port 2
2001:db8::/32   via 02:00:00:00:00:02  port 1
";

/// What the lookup table says: station and port of the next hop.
pub(crate) fn look_up(routes: &Routes, addresses: &[IpAddr]) -> Result<Vec<Option<Neighbour>>, lpm::Error> {
    let v4 = Ipv4Table::from_routes(Config::default(), routes.ipv4().iter().copied())?;
    let v6 = Ipv6Table::from_routes(Config::default(), routes.ipv6().iter().copied())?;
    let (mut v4, mut v6) = (v4.reader(), v6.reader());
    let hops = addresses.iter().map(|address| match address {
        IpAddr::V4(address) => v4.lookup(*address),
        IpAddr::V6(address) => v6.lookup(*address),
    });
    Ok(hops.map(|hop| routes.neighbours().get(hop?.get() as usize).copied()).collect())
}

/// A packet from a documentation address to `destination`, for the first port.
pub(crate) fn frame(destination: IpAddr) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 0, 1]].concat();
    match destination {
        IpAddr::V4(destination) => {
            frame.extend(ether_type::IPV4.to_be_bytes());
            frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1]);
            frame.extend(destination.octets());
            if let Some(mut packet) = Ipv4Mut::parse(&mut frame[14..]) {
                packet.fill_checksum();
            }
        }
        IpAddr::V6(destination) => {
            frame.extend(ether_type::IPV6.to_be_bytes());
            frame.extend([0x60, 0, 0, 0, 0, 0, 59, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            frame.extend(destination.octets());
        }
    }
    frame
}

/// The port that a frame leaves by, and the frame as it leaves; or why it does not.
pub(crate) type Fate = Result<(usize, Vec<u8>), Refusal>;

/// Where the data path sends each frame.
pub(crate) fn route(routes: &Routes, frames: &[Vec<u8>]) -> Result<Vec<Fate>, Box<dyn std::error::Error>> {
    let interface = |port| Interface { mac: [2, 0, 0, 0, 1, port], promiscuous: false, mtu: 1500 };
    let interfaces: Vec<Interface> = (0..PORTS).map(interface).collect();
    let fib = Fib::new(routes, &interfaces)?;
    let (mut forwarder, mut egress) = (fib.forwarder(Miss::Refuse), Egress::new(PORTS.into(), 1));
    let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() })?;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(1));
    let fate = |frame: &Vec<u8>| {
        batch.push(cache.alloc_from(frame)?).ok()?;
        forwarder.route(0, &mut batch, &mut egress);
        let leaves = |(port, output): (usize, &mut Batch)| Some((port, output.pop()?.data().to_vec()));
        let sent = egress.outputs().iter_mut().enumerate().find_map(leaves);
        sent.map(Ok).or_else(|| egress.drain_refused().next().map(|(_, refusal)| Err(refusal)))
    };
    Ok(frames.iter().filter_map(fate).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().map_or(Ok(ROUTES.into()), std::fs::read)?;
    let routes = Routes::parse(&text, PORTS.into())?;
    let mut addresses = arguments.map(|address| address.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
    if addresses.is_empty() {
        addresses = ["192.0.2.1", "203.0.113.1", "2001:db8::1", "2001:db9::1", "127.0.0.1"]
            .map(str::parse)
            .into_iter()
            .collect::<Result<_, _>>()?;
    }
    let frames: Vec<Vec<u8>> = addresses.iter().copied().map(frame).collect();
    let (hops, fates) = (look_up(&routes, &addresses)?, route(&routes, &frames)?);
    for ((address, hop), fate) in addresses.iter().zip(hops).zip(fates) {
        let hop = hop.map_or("nowhere".to_owned(), |hop| format!("via {} port {}", hop.mac, hop.port));
        let fate = match fate {
            Ok((port, frame)) => {
                let mac = Ethernet::parse(&frame).map_or([0; 6], |frame| frame.destination());
                format!("leaves by port {port} to {}", MacAddress(mac))
            }
            Err(refusal) => format!("refused: {refusal:?}"),
        };
        println!("{address}: {hop}; a packet {fate}");
    }
    Ok(())
}
