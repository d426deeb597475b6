//! Further addresses of interfaces, and an MTU for IPv6 alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mempool::{Batch, Pool, PoolCache, PoolConfig};
use router::{
    Egress, Error, FurtherMac, Interface, LiveConfig, LiveFib, LiveForwarder, MacAddress, Neighbour, Refusal, Target,
};
use std::net::Ipv6Addr;

const OWN: [u8; 6] = [2, 0, 0, 0, 1, 0];
const VRRP: [u8; 6] = [0, 0, 0x5E, 0, 1, 7];
const OTHER: [u8; 6] = [2, 0, 0, 0, 1, 9];
const NEXT: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn interface(mac: [u8; 6], mtu: u16) -> Interface {
    Interface { mac, promiscuous: false, mtu }
}

fn further(interface: u16, mac: [u8; 6], looked_up: [bool; 2]) -> FurtherMac {
    FurtherMac { interface, mac: MacAddress(mac), looked_up }
}

/// A table of two ports with a VLAN on the first, and default routes by the second.
fn table() -> LiveFib {
    let ports = [interface(OWN, 1500), interface([2, 0, 0, 0, 1, 1], 1500)];
    let mut fib = LiveFib::new(&LiveConfig { next_hops: 8, groups: 1, ..LiveConfig::default() }, &ports).unwrap();
    assert_eq!(fib.add_interface(0, 5, &interface(OWN, 1500)), Ok(2));
    let hop = fib.add_next_hop(Target::Neighbour(Neighbour { port: 1, mac: MacAddress(NEXT) })).unwrap();
    fib.insert_ipv4("0.0.0.0/0".parse().unwrap(), hop).unwrap();
    fib.insert_ipv6("::/0".parse().unwrap(), hop).unwrap();
    fib
}

struct Asked {
    forwarder: LiveForwarder,
    cache: PoolCache,
    batch: Batch,
    egress: Egress,
}

impl Asked {
    fn new(fib: &LiveFib) -> Self {
        let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        let (cache, batch, egress) = (pool.cache(), Batch::with_capacity(4), Egress::new(2, 4));
        Self { forwarder: fib.forwarder(), cache, batch, egress }
    }

    /// Where a UDP packet of so many bytes leaves by that comes in by port 0: port and source address.
    fn fate(&mut self, to: [u8; 6], vlan: Option<u16>, v6: bool, total: u16) -> Result<(usize, [u8; 6]), Refusal> {
        let frame = frame(to, vlan, v6, total);
        let mut packet = self.cache.alloc().unwrap();
        packet.append(frame.len()).unwrap().copy_from_slice(&frame);
        self.batch.push(packet).unwrap();
        assert_eq!(self.forwarder.route(0, &mut self.batch, &mut self.egress), 1);
        if let Some((packet, refusal)) = self.egress.drain_refused().next() {
            assert_eq!(packet.data(), frame, "a refused frame has changed");
            return Err(refusal);
        }
        let outputs = self.egress.outputs().iter_mut().enumerate();
        outputs
            .filter_map(|(port, output)| Some((port, output.pop()?.data()[6..12].try_into().unwrap())))
            .next()
            .ok_or(Refusal::NoRoute)
    }
}

fn frame(to: [u8; 6], vlan: Option<u16>, v6: bool, total: u16) -> Vec<u8> {
    let tag = vlan.map_or(vec![], |vlan| [[0x81, 0], vlan.to_be_bytes()].concat());
    let payload = vec![0x55; usize::from(total) - if v6 { 48 } else { 28 }];
    let builder = etherparse::PacketBuilder::ethernet2([2, 7, 7, 7, 7, 7], to);
    let mut frame = Vec::new();
    if v6 {
        let [from, to] = [1, 2].map(|last| Ipv6Addr::from((0x2001_0db8 << 96) + last).octets());
        builder.ipv6(from, to, 9).udp(7, 9).write(&mut frame, &payload).unwrap();
    } else {
        builder.ipv4([10, 9, 9, 9], [10, 1, 1, 1], 9).udp(7, 9).write(&mut frame, &payload).unwrap();
    }
    frame.splice(12..12, tag);
    frame
}

#[test]
fn frames_to_a_further_address_come_in_where_it_is() {
    let mut fib = table();
    let mut asked = Asked::new(&fib);
    let out = Ok((1, [2, 0, 0, 0, 1, 1]));
    fib.set_further_macs(&[further(0, VRRP, [true; 2]), further(2, OTHER, [true, false])]).unwrap();
    for v6 in [false, true] {
        assert_eq!(asked.fate(OWN, None, v6, 100), out, "its own goes on");
        assert_eq!(asked.fate(VRRP, None, v6, 100), out);
        assert_eq!(asked.fate(OTHER, None, v6, 100), Err(Refusal::OtherStation), "that is another interface's");
        assert_eq!(asked.fate(VRRP, Some(5), v6, 100), Err(Refusal::OtherStation));
        assert_eq!(asked.fate([1, 0, 0x5E, 0, 1, 7], None, v6, 100), Err(Refusal::LinkMulticast));
        let of_vlan = if v6 { Err(Refusal::LeftToHost) } else { out };
        assert_eq!(asked.fate(OTHER, Some(5), v6, 100), of_vlan);
    }
    // Another setting of the same address, one address less.
    fib.set_further_macs(&[further(0, VRRP, [false, true])]).unwrap();
    assert_eq!(asked.fate(VRRP, None, false, 100), Err(Refusal::LeftToHost));
    assert_eq!(asked.fate(VRRP, None, true, 100), out);
    assert_eq!(asked.fate(OTHER, Some(5), false, 100), Err(Refusal::OtherStation));
    // A port that is down has none.
    fib.set_interface(0, None).unwrap();
    assert_eq!(asked.fate(VRRP, None, true, 100), Err(Refusal::OtherStation));
    fib.set_interface(0, Some(&interface(OWN, 1500))).unwrap();
    fib.set_further_macs(&[]).unwrap();
    assert_eq!(asked.fate(VRRP, None, true, 100), Err(Refusal::OtherStation));
}

#[test]
fn there_are_256_further_addresses_and_no_address_of_zeros() {
    let mut fib = table();
    let mut asked = Asked::new(&fib);
    let many = |count: u16| -> Vec<FurtherMac> {
        let macs = (0..count).map(u16::to_be_bytes).map(|[high, low]| [4, 0, 0, 0, high, low]);
        macs.map(|mac| further(0, mac, [true; 2])).collect()
    };
    fib.set_further_macs(&many(256)).unwrap();
    assert!((0..256_u16).all(|at| {
        let [high, low] = at.to_be_bytes();
        asked.fate([4, 0, 0, 0, high, low], None, false, 60).is_ok()
    }));
    assert!(matches!(fib.set_further_macs(&many(257)), Err(Error::Full { .. })));
    assert!(matches!(fib.set_further_macs(&[further(3, OTHER, [true; 2])]), Err(Error::Unknown { .. })));
    assert!(asked.fate([4, 0, 0, 0, 0, 255], None, false, 60).is_ok(), "nothing has changed");
    fib.set_further_macs(&[further(0, [0; 6], [true; 2])]).unwrap();
    assert_eq!(asked.fate([0; 6], None, false, 60), Err(Refusal::OtherStation));
}

#[test]
fn an_mtu_for_ipv6_is_obeyed_to_the_byte_and_by_ipv6_alone() {
    let mut fib = table();
    let mut asked = Asked::new(&fib);
    let vlan = fib.add_next_hop(Target::Neighbour(Neighbour { port: 2, mac: MacAddress(NEXT) })).unwrap();
    fib.set_ipv6_mtu(1, Some(1300)).unwrap();
    assert!(asked.fate(OWN, None, true, 1300).is_ok());
    assert_eq!(asked.fate(OWN, None, true, 1301), Err(Refusal::TooBig));
    assert!(asked.fate(OWN, None, false, 1500).is_ok());
    assert!(asked.fate(OWN, Some(5), true, 1300).is_ok());
    assert_eq!(asked.fate(OWN, Some(5), true, 1301), Err(Refusal::TooBig), "whatever it came in by");
    // The smaller one counts.
    fib.set_ipv6_mtu(1, Some(9000)).unwrap();
    assert!(asked.fate(OWN, None, true, 1500).is_ok());
    assert_eq!(asked.fate(OWN, None, true, 1501), Err(Refusal::TooBig));
    fib.set_ipv6_mtu(1, None).unwrap();
    assert!(asked.fate(OWN, None, true, 1500).is_ok());
    // By a VLAN, of which the tag does not count.
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), vlan).unwrap();
    fib.set_ipv6_mtu(2, Some(1400)).unwrap();
    assert!(asked.fate(OWN, Some(5), true, 1400).is_ok());
    assert_eq!(asked.fate(OWN, Some(5), true, 1401), Err(Refusal::TooBig));
    assert!(matches!(fib.set_ipv6_mtu(3, Some(1400)), Err(Error::Unknown { .. })));
    // Whoever gets the number next begins without.
    fib.remove_ipv6("2001:db8::/32".parse().unwrap()).unwrap();
    fib.remove_next_hop(vlan).unwrap();
    fib.remove_interface(2).unwrap();
    asked.forwarder.catch_up();
    assert_eq!(fib.add_interface(0, 6, &interface(OWN, 1500)), Ok(2));
    let vlan = fib.add_next_hop(Target::Neighbour(Neighbour { port: 2, mac: MacAddress(NEXT) })).unwrap();
    fib.insert_ipv6("2001:db8::/32".parse().unwrap(), vlan).unwrap();
    assert!(asked.fate(OWN, Some(6), true, 1500).is_ok());
}
