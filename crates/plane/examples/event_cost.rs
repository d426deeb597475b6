//! What a change of a route costs without the kernel: messages as Linux sends them, decoded, followed and written into a forwarding table.
//!
//! `event_cost [CHANGES] <PREFIXES`: IPv4 prefixes, one a line, are the table; the first CHANGES of them (200,000) go and come back. Prints
//! the time of an event; `valgrind --tool=callgrind --toggle-collect='*counted*'` counts the instructions of just these.

use kernel::{Dump, Messages, Mirror, Ports};
use plane::{Plane, Port};
use router::{Interface, LiveConfig, LiveFib};
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::time::Instant;

/// The index of the only port, and the gateway there.
const PORT: u32 = 2;
const GATEWAY: [u8; 4] = [10, 99, 0, 2];
/// `linux/rtnetlink.h`.
const NEWLINK: u16 = 16;
const NEWNEIGH: u16 = 28;
const NEWROUTE: u16 = 24;
const DELROUTE: u16 = 25;
const MAIN: u8 = 254;
const LOCAL: u8 = 255;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let changes: usize = std::env::args().nth(1).map_or(Ok(200_000), |word| word.parse())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let prefix = |line: &str| {
        let (address, len) = line.trim().split_once('/')?;
        Some((address.parse::<Ipv4Addr>().ok()?, len.parse::<u8>().ok().filter(|len| *len <= 32)?))
    };
    let prefixes: Vec<(Ipv4Addr, u8)> =
        text.lines().map(|line| prefix(line).ok_or(format!("{line}: no prefix"))).collect::<Result<_, _>>()?;

    let interface = Interface { mac: [2, 0, 0, 0, 0, 1], promiscuous: false, mtu: 1500 };
    let config = LiveConfig { accelerator: true, ..LiveConfig::default() };
    let fib = LiveFib::new(&config, &[interface])?;
    let _forwarder = fib.forwarder();
    let mut plane = Plane::new(fib, &[Port { name: "rw0".to_owned(), index: None, mtu: 1500 }])?;
    let mut mirror = load(&prefixes)?;
    plane.load(&mirror);

    let changed = || prefixes.iter().take(changes);
    let gone = changed().map(|(address, len)| route(DELROUTE, 0, *address, *len, true));
    let back = changed().map(|(address, len)| route(NEWROUTE, 0x600, *address, *len, true));
    let messages: Vec<Vec<u8>> = gone.chain(back).collect();
    let start = Instant::now();
    let events = counted(&mut mirror, &mut plane, &messages)?;
    let each = start.elapsed().checked_div(events).unwrap_or_default();
    println!("{} messages, {events} events: {each:.2?} an event", messages.len());
    println!("{:?}", plane.report().routes);
    Ok(())
}

/// What is counted. By its name, valgrind finds it.
#[inline(never)]
fn counted(mirror: &mut Mirror, plane: &mut Plane, messages: &[Vec<u8>]) -> Result<u32, kernel::Error> {
    let mut events = 0;
    for message in messages.iter().flat_map(|bytes| Messages::new(bytes)) {
        mirror.apply(&message?, false, &mut |event| {
            events += 1;
            plane.apply(event);
        });
    }
    Ok(events)
}

/// A mirror of a system with one port, a gateway there and these routes.
fn load(prefixes: &[(Ipv4Addr, u8)]) -> Result<Mirror, kernel::Error> {
    let (mut mirror, mut sink) = (Mirror::new(Ports::All), |_: kernel::Event<'_>| {});
    let mut follow = |dump, messages: &mut dyn Iterator<Item = Vec<u8>>| {
        mirror.begin(dump);
        for bytes in messages {
            Messages::new(&bytes).try_for_each(|message| {
                mirror.apply(&message?, true, &mut sink);
                Ok::<(), kernel::Error>(())
            })?;
        }
        mirror.finish(dump, &mut sink);
        Ok::<(), kernel::Error>(())
    };
    for dump in Dump::ALL {
        match dump {
            Dump::Links => follow(dump, &mut [link()].into_iter())?,
            Dump::Neighbours => follow(dump, &mut [neighbour()].into_iter())?,
            Dump::Routes(kernel::Family::V4) => {
                let connected = route(NEWROUTE, 0, Ipv4Addr::new(10, 99, 0, 0), 24, false);
                let own = [([127, 0, 0, 0], 8), ([127, 0, 0, 1], 32), ([10, 99, 0, 1], 32), ([10, 99, 0, 255], 32)];
                let own = own.map(|(address, len)| local(address.into(), len));
                let others = prefixes.iter().map(|(address, len)| route(NEWROUTE, 0, *address, *len, true));
                follow(dump, &mut [connected].into_iter().chain(own).chain(others))?;
            }
            dump => follow(dump, &mut std::iter::empty())?,
        }
    }
    mirror.load(&mut sink);
    Ok(mirror)
}

fn message(kind: u16, flags: u16, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed, &attributes.concat()].concat();
    let len = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A route by the port, `via` the gateway or on-link.
fn route(kind: u16, flags: u16, address: Ipv4Addr, len: u8, via: bool) -> Vec<u8> {
    let scope = if via { 0 } else { 253 };
    let fixed = [2, len, 0, 0, MAIN, 3, scope, 1, 0, 0, 0, 0];
    let mut attributes = vec![attribute(15, &u32::from(MAIN).to_ne_bytes()), attribute(1, &address.octets())];
    attributes.extend(via.then(|| attribute(5, &GATEWAY)));
    attributes.push(attribute(4, &PORT.to_ne_bytes()));
    message(kind, flags, &fixed, &attributes)
}

/// A route of table `local`.
fn local(address: Ipv4Addr, len: u8) -> Vec<u8> {
    let attributes = [
        attribute(15, &u32::from(LOCAL).to_ne_bytes()),
        attribute(1, &address.octets()),
        attribute(4, &PORT.to_ne_bytes()),
    ];
    message(NEWROUTE, 0, &[2, len, 0, 0, LOCAL, 2, 254, 2, 0, 0, 0, 0], &attributes)
}

/// The port's interface, up and with a carrier.
fn link() -> Vec<u8> {
    let fixed = [&[0, 0, 1, 0][..], &PORT.to_ne_bytes(), &0x1_0043_u32.to_ne_bytes(), &[0; 4]].concat();
    let attributes = [
        attribute(3, b"rw0\0"),
        attribute(4, &1500_u32.to_ne_bytes()),
        attribute(1, &[2, 0, 0, 0, 0, 1]),
        attribute(33, &[1]),
    ];
    message(NEWLINK, 0, &fixed, &attributes)
}

/// The gateway, found for good.
fn neighbour() -> Vec<u8> {
    let fixed = [&[2, 0, 0, 0][..], &PORT.to_ne_bytes(), &0x80_u16.to_ne_bytes(), &[0, 1]].concat();
    message(NEWNEIGH, 0, &fixed, &[attribute(1, &GATEWAY), attribute(2, &[2, 0, 0, 0, 0, 2])])
}
