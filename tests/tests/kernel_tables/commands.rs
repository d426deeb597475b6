//! Random `ip` commands.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Random numbers from a seed that a failure names (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        u32::try_from((mixed ^ mixed >> 31) >> 32).unwrap() % end
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(u32::try_from(of.len()).unwrap()) as usize]
    }
}

/// The commands that make an interface and its peer, in one namespace.
pub(crate) fn made(link: u32) -> String {
    format!(
        "link add a{link} type veth peer name b{link}\nlink set b{link} up\nlink set a{link} up\naddr add 10.0.{link}.1/24 dev a{link}\n\
         addr add fd00:{link}::1/64 dev a{link} nodad\n"
    )
}

const V4: &[&str] =
    &["default", "20.0.0.0/8", "20.1.0.0/16", "20.1.1.0/24", "20.1.1.1/32", "20.1.128.0/17", "127.5.0.0/16"];
const V6: &[&str] = &["::/0", "fd20::/16", "fd20:1::/32", "fd20:1:1::/48", "fd20:1:1::1/128", "fd20:1:8000::/33"];
/// Among them no broadcast address: whether those by links without carrier count is the kernel's affair, as their packets are.
pub(crate) const ADDRESSES: &[&str] = &[
    "9.9.9.9",
    "20.2.3.4",
    "20.1.2.3",
    "20.1.1.1",
    "20.1.1.2",
    "20.1.200.1",
    "127.5.0.1",
    "127.0.0.1",
    "10.0.0.1",
    "10.0.1.2",
    "10.7.0.1",
    "10.7.0.3",
    "fd99::1",
    "fd20:2::1",
    "fd20:1:2::1",
    "fd20:1:1::1",
    "fd20:1:1::2",
    "fd20:1:9000::1",
    "fd00:0::1",
    "fd00:1::2",
    "fd07::1",
    "fd00:2::",
    "::1",
];

/// A random address in or beside the networks of the commands; none that a command makes a broadcast or anycast address.
pub(crate) fn address(random: &mut Random) -> IpAddr {
    let [some, more] = [random.below(u32::MAX), random.below(u32::MAX)];
    let last = 1 + more % 250;
    match random.below(8) {
        0 => Ipv4Addr::from_bits((1 << 24) + some % (126 << 24)).into(),
        1 => Ipv4Addr::from_bits(10 << 24 | (some & 3) << 8 | last).into(),
        2 | 3 => Ipv4Addr::from_bits(20 << 24 | some >> 8).into(),
        4 => Ipv4Addr::from_bits(20 << 24 | 1 << 16 | some >> 16).into(),
        5 => Ipv6Addr::new(0xFD00, low16(some & 3), 0, 0, 0, 0, 0, low16(last)).into(),
        part => {
            let [net, sub, host] = [some & 3, some >> 2 & 3, more >> 16 & 3].map(low16);
            Ipv6Addr::new(0xFD20, net, if part == 6 { sub } else { low16(some) }, 0, 0, 0, 0, host).into()
        }
    }
}

fn low16(bits: u32) -> u16 {
    u16::try_from(bits & 0xFFFF).unwrap()
}

/// A random `ip` command.
pub(crate) fn command(random: &mut Random) -> String {
    let v6 = random.below(3) == 0;
    let prefix = if v6 { random.one(V6) } else { random.one(V4) };
    let metric = random.one(&["", "", " metric 5", " metric 9"]);
    let link = random.below(3);
    let gateway =
        |link: u32, last: u32| if v6 { format!("fd00:{link}::{last}") } else { format!("10.0.{link}.{last}") };
    let last = 2 + random.below(3);
    match random.below(30) {
        0..=5 => {
            let verb = random.one(&["add", "append", "replace", "prepend", "replace", "del"]);
            format!("route {verb} {prefix} via {} dev a{link}{metric}", gateway(link, last))
        }
        6..=9 => {
            let verb = random.one(&["add", "append", "replace", "del"]);
            let mut text = format!("route {verb} {prefix}{metric}");
            for link in 0..2 + random.below(2) {
                let weight = 1 + random.below(3);
                write!(text, " nexthop via {} dev a{link} weight {weight}", gateway(link, last)).unwrap();
            }
            text
        }
        10 | 11 => {
            let kind = random.one(&["blackhole", "unreachable", "prohibit", "blackhole"]);
            format!("route {} {kind} {prefix}{metric}", random.one(&["add", "replace", "del"]))
        }
        12 => format!("route del {prefix}{metric}"),
        13 | 14 => {
            let base = if v6 { 20 } else { 10 };
            format!("nexthop replace id {} via {} dev a{link}", base + random.below(4), gateway(link, last))
        }
        15 => {
            let base = if v6 { 20 } else { 10 };
            let members = format!("{}/{},{}", base, 1 + random.below(300), base + 1 + random.below(3));
            format!("nexthop replace id {} group {members}", base + 5 + random.below(2))
        }
        16 => format!("nexthop del id {}", 10 + random.below(17)),
        17 => format!("nexthop replace id {} blackhole", if v6 { 24 } else { 14 }),
        18..=20 => {
            let id = if v6 { 20 } else { 10 } + random.below(7);
            format!("route {} {prefix} nhid {id}{metric}", random.one(&["add", "replace", "append", "del"]))
        }
        21 => format!("link set a{link} {}", random.one(&["down", "up"])),
        22 => format!("link set b{link} {}", random.one(&["down", "up"])),
        23 if random.below(3) == 0 => format!("link del a{link}\n{}", made(link)),
        23 => format!("link set a{link} up\nlink set b{link} up"),
        24 => {
            let verb = random.one(&["add", "del", "add"]);
            // Beside an interface's own one that several may have.
            match random.below(3) {
                0 if v6 => format!("addr {verb} fd07::1/128 dev a{link} nodad"),
                0 => format!("addr {verb} 10.7.0.1/32 peer 10.7.0.{last} dev a{link}"),
                _ if v6 => format!("addr {verb} fd00:{link}::1/64 dev a{link} nodad"),
                _ => format!("addr {verb} 10.0.{link}.1/24 dev a{link}"),
            }
        }
        25 => format!(
            "neigh {} {} lladdr 02:00:00:00:00:0{last} dev a{link}",
            random.one(&["replace", "replace", "del"]),
            gateway(link, last)
        ),
        26 if !v6 => format!("route {} local 20.1.0.0/16 dev lo table local", random.one(&["add", "del", "del"])),
        27 if !v6 => format!(
            "route {} {prefix} tos 16 via {} dev a{link}",
            random.one(&["add", "del", "del"]),
            gateway(link, last)
        ),
        28 => format!(
            "route {} {prefix} via {} dev a{link} mtu 1300",
            // A dump tells the MTU of the first IPv6 leg only.
            random.one(&["replace", if v6 { "replace" } else { "append" }, "del", "del"]),
            gateway(link, last)
        ),
        _ => format!("route {} {prefix} dev a{link}{metric}", random.one(&["add", "replace", "del"])),
    }
}
