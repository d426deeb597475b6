//! Routes against the longest prefix found by looking at all of them, and the data path against frames written anew.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "../src/bin/routes.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod routes;

use common::checksum;
use router::{Refusal, Routes};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Address, length of the prefix, and which next hop.
type Route = (IpAddr, u32, u8);

fn contains((prefix, len, _): &Route, address: &IpAddr) -> bool {
    match (prefix, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= *len,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= *len,
        _ => false,
    }
}

#[test]
fn each_address_goes_where_its_longest_prefix_says() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut table, mut addresses) = (Vec::<Route>::new(), Vec::new());
    for n in 0..600_u16 {
        let bits = random.next();
        let hop = u8::try_from(bits % 15).unwrap();
        let (route, near): (Route, IpAddr) = if n % 3 > 0 {
            let len = 8 + u32::try_from(bits >> 8 & 15).unwrap() + 8 * u32::from(n.is_multiple_of(2));
            let prefix = (0x1400_0000 | u32::try_from(bits >> 40).unwrap()) & (u32::MAX << (32 - len));
            let near = prefix | u32::try_from(random.next() >> 32).unwrap() >> len;
            ((Ipv4Addr::from(prefix).into(), len, hop), Ipv4Addr::from(near).into())
        } else {
            let len = 16 + u32::try_from(bits >> 8 & 63).unwrap();
            let prefix = (0x2001_u128 << 112 | u128::from(bits) << 48) & (u128::MAX << (128 - len));
            let near = prefix | u128::from(random.next()) << 64 >> len;
            ((Ipv6Addr::from(prefix).into(), len, hop), Ipv6Addr::from(near).into())
        };
        if !table.iter().any(|other| (other.0, other.1) == (route.0, route.1)) {
            table.push(route);
        }
        addresses.push(near);
    }
    addresses.extend(["172.16.0.1", "2002::1"].map(|address| address.parse::<IpAddr>().unwrap()));
    let mut text = String::new();
    for (prefix, len, hop) in &table {
        writeln!(text, "{prefix}/{len} via 02:00:00:00:00:{hop:02x} port {hop}").unwrap();
    }
    let routes = Routes::parse(text.as_bytes(), 16).unwrap();
    let frames: Vec<Vec<u8>> = addresses.iter().copied().map(routes::frame).collect();
    let looked_up = routes::look_up(&routes, &addresses).unwrap();
    let fates = routes::route(&routes, &frames).unwrap();
    assert!(fates.len() == addresses.len() && looked_up.len() == addresses.len());
    for (((address, frame), hop), fate) in addresses.iter().zip(&frames).zip(looked_up).zip(fates) {
        let longest = table.iter().filter(|route| contains(route, address)).max_by_key(|route| route.1);
        let Some((_, _, expected)) = longest else {
            assert!(hop.is_none() && fate == Err(Refusal::NoRoute), "{address}");
            continue;
        };
        assert_eq!(hop.map(|hop| (hop.mac.0, hop.port)), Some(([2, 0, 0, 0, 0, *expected], (*expected).into())));
        let mut sent = [&[2, 0, 0, 0, 0, *expected][..], &[2, 0, 0, 0, 1, *expected], &frame[12..]].concat();
        if address.is_ipv4() {
            sent[22] -= 1;
            sent[24..26].fill(0);
            let sum = checksum(&sent[14..34]);
            sent[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            sent[21] -= 1;
        }
        assert_eq!(fate, Ok((usize::from(*expected), sent)), "{address}");
    }
}
