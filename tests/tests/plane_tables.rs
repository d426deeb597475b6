//! A forwarding table that follows the kernel's tables, against the kernel: random `ip` commands in a network namespace, and after each
//! burst of them what a forwarder does with a packet is what the kernel says of its route and its neighbours.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "kernel_tables/asked.rs"]
mod asked;
#[path = "kernel_tables/commands.rs"]
mod commands;
#[path = "../../crates/plane/tests/common/mod.rs"]
mod common;

use asked::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, Oracle, Said, batch, set, within};
use commands::{ADDRESSES, Random, address, command, made};
use common::{Asked, Fate, packet};
use kernel::{Follower, RouteKind};
use plane::{Plane, Port, Runner};
use router::{Interface, LiveConfig, LiveFib, Refusal};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tests::{Namespace, eventually};

const PORTS: [&str; 3] = ["a0", "a1", "a2"];

/// What the kernel knows besides routes.
#[derive(Debug, Default)]
struct Links {
    /// Interfaces: index, address, whether they are up.
    ports: BTreeMap<String, (u32, [u8; 6], bool)>,
    /// Neighbours that can be sent to, by index of the interface.
    neighbours: BTreeMap<(u32, IpAddr), [u8; 6]>,
}

fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn behind<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    words.iter().position(|other| *other == word).and_then(|at| words.get(at + 1)).copied()
}

impl Links {
    fn read(namespace: &Namespace) -> Self {
        let mut links = Self::default();
        for line in namespace.output(&["ip", "-o", "link"]).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words[1].trim_end_matches(':').split('@').next().unwrap();
            let up = words[2].trim_matches(['<', '>']).split(',').any(|flag| flag == "UP");
            if let Some(address) = behind(&words, "link/ether") {
                let index = words[0].trim_end_matches(':').parse().unwrap();
                links.ports.insert(name.to_owned(), (index, mac(address), up));
            }
        }
        for line in namespace.output(&["ip", "neigh", "show", "nud", "all"]).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let state = *words.last().unwrap();
            let usable = ["PERMANENT", "NOARP", "REACHABLE", "PROBE", "STALE", "DELAY"].contains(&state);
            let (device, address) = (behind(&words, "dev"), behind(&words, "lladdr"));
            if let (Some(device), Some(address), true) =
                (device.and_then(|name| links.ports.get(name)), address, usable)
            {
                links.neighbours.insert((device.0, words[0].parse().unwrap()), mac(address));
            }
        }
        links
    }

    /// What may become of a packet that the kernel forwards by this leg.
    fn by(&self, interface: u32, neighbour: IpAddr) -> Fate {
        let port = PORTS.iter().position(|name| self.ports.get(*name).is_some_and(|(index, ..)| *index == interface));
        let port = port.ok_or(Refusal::LeftToHost)?;
        let (_, own, up) = self.ports[PORTS[port]];
        let mac = self.neighbours.get(&(interface, neighbour)).filter(|_| up).ok_or(Refusal::Unresolved)?;
        Ok(((port, None), *mac, own))
    }
}

/// Whether that is what the kernel would do, or leaves it to the kernel.
fn agrees(fate: &Fate, to: IpAddr, said: &Said, links: &Links) -> bool {
    match (fate, said) {
        // What is not understood, and addresses that no router sends to.
        (Err(Refusal::LeftToHost | Refusal::MartianDestination), _)
        | (Err(Refusal::ForHost), Ok((RouteKind::Local, _)))
        | (Err(Refusal::NoRoute), &Err(ENETUNREACH))
        | (Err(Refusal::Unreachable), &Err(EHOSTUNREACH))
        | (Err(Refusal::Prohibited), &Err(EACCES))
        | (Err(Refusal::Blackhole), &Err(EINVAL) | Ok((RouteKind::Blackhole, _))) => true,
        (fate, Ok((RouteKind::Unicast, legs))) => {
            // Of several on-link legs the table takes none.
            let on_link = legs.len() > 1 && legs.iter().any(|(_, gateway, _)| gateway.is_none());
            let mut fates = legs.iter().map(|(interface, gateway, _)| links.by(*interface, gateway.unwrap_or(to)));
            fates.any(|other| other == *fate) || (on_link && *fate == Err(Refusal::Unresolved))
        }
        _ => false,
    }
}

/// Addresses that routes of the commands hold, or not.
fn addresses() -> Vec<IpAddr> {
    let near = (0..4).flat_map(|net| (0..8).map(move |last| Ipv4Addr::new(10, 0, net, last).into()));
    let far = (0..3).flat_map(|second| {
        (0..3).flat_map(move |third| [0, 1, 2, 127, 128, 255].map(|last| Ipv4Addr::new(20, second, third, last).into()))
    });
    let near_v6 = (0..4).flat_map(|net| (1..6).map(move |last| Ipv6Addr::new(0xFD00, net, 0, 0, 0, 0, 0, last).into()));
    let far_v6 = (0..3).flat_map(|second| {
        (0..3).flat_map(move |third| {
            [0, 1, 2, 0xFFFF].map(|last| Ipv6Addr::new(0xFD20, second, third, 0, 0, 0, 0, last).into())
        })
    });
    let given = ADDRESSES.iter().map(|address| address.parse().unwrap());
    near.chain(far).chain(near_v6).chain(far_v6).chain(given).collect()
}

/// Neighbours of every link, which `link del` takes away again.
fn neighbours() -> String {
    let mut lines = String::new();
    for link in 0..3 {
        for last in 2..5 {
            for address in [format!("10.0.{link}.{last}"), format!("fd00:{link}::{last}")] {
                writeln!(lines, "neigh replace {address} lladdr 02:00:00:00:{link}1:0{last} dev a{link}").unwrap();
            }
        }
    }
    lines
}

/// What is wrong with the listed addresses, and with others.
fn judge(
    namespace: &Namespace,
    oracle: &Oracle,
    asked: &mut Asked,
    others: &[IpAddr],
    told: &mut BTreeMap<String, u32>,
) -> String {
    let links = Links::read(namespace);
    let (mut wrong, mut fates) = (String::new(), BTreeMap::new());
    let (_, station, up) = links.ports[PORTS[0]];
    if !up {
        return wrong;
    }
    for to in addresses().into_iter().chain(others.iter().copied()) {
        let mut fate = asked.fate(station, None, &packet(to, 1, 80));
        if fate == Err(Refusal::Probe) {
            fate = asked.fate(station, None, &packet(to, 1, 80));
        }
        let said = oracle.route(to);
        if !agrees(&fate, to, &said, &links) && wrong.len() < 4096 {
            writeln!(wrong, "{to}: {fate:?}, kernel {said:?}").unwrap();
        }
        *fates.entry(fate.map_or_else(|refusal| format!("{refusal:?}"), |_| "sent".to_owned())).or_insert(0) += 1;
    }
    if wrong.is_empty() {
        fates.into_iter().for_each(|(fate, count)| *told.entry(fate).or_insert(0) += count);
    }
    wrong
}

#[test]
fn random_commands_leave_forwarders_doing_what_the_kernel_does() {
    within(|namespace| {
        let seed = std::env::var("RINGWAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let (mut random, mut places) = (Random(seed), Random(!seed));
        println!("RINGWAY_SEED={seed}");
        set(namespace, "ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        batch(namespace, &format!("link set lo up\n{}{}{}{}", made(0), made(1), made(2), neighbours()));
        let interface = |last| Interface { mac: [2, 0, 0, 0, 0, last], promiscuous: false, mtu: 1500 };
        let fib = LiveFib::new(&LiveConfig::default(), &[0, 1, 2].map(interface)).unwrap();
        let (mut asked, oracle) = (Asked::new(&fib, PORTS.len()), Oracle::new());
        let ports = PORTS.map(|name| Port { name: name.to_owned(), index: None, mtu: 1500 });
        let runner = Runner::open(fib, &ports).unwrap();
        let handle = runner.handle();
        let thread = std::thread::spawn(|| runner.run());
        assert!(handle.wait_ready(Duration::from_secs(60)));
        let mut told = BTreeMap::new();
        for burst in 0..BURSTS {
            let mut lines: String = (0..COMMANDS).map(|_| command(&mut random) + "\n").collect();
            if burst % 2 == 0 {
                lines += &neighbours();
            }
            batch(namespace, &lines);
            let others: Vec<IpAddr> = (0..OTHERS).map(|_| address(&mut places)).collect();
            let mut wrong = String::new();
            // Changes take a while, and what the kernel does in silence is found by a dump.
            for _ in 0..TRIES {
                wrong = judge(namespace, &oracle, &mut asked, &others, &mut told);
                if wrong.is_empty() {
                    break;
                }
                asked.forwarder.catch_up();
                std::thread::sleep(Duration::from_millis(20));
            }
            let report = handle.report();
            assert!(wrong.is_empty(), "seed {seed}, burst {burst}:\n{wrong}{lines}\n{report:?}");
        }
        println!("{told:?}, {:?}", handle.report());
        let of = |fate: &str| told.get(fate).copied().unwrap_or(0);
        assert!(of("sent") > 0 && of("LeftToHost") < told.values().sum::<u32>() / 4, "{told:?}");
        handle.stop();
        thread.join().unwrap().unwrap();
    });
}

/// Routes go and come faster than a buffer for a dozen messages is read, and those that stay are in force while tables are read anew.
#[test]
fn what_does_not_change_is_forwarded_while_messages_are_lost() {
    within(|namespace| {
        set(namespace, "ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        let stays = "route add 20.9.0.0/16 via 10.0.1.2\nroute add fd20:9::/32 via fd00:1::2\n";
        batch(namespace, &format!("link set lo up\n{}{}{}{stays}", made(0), made(1), neighbours()));
        let interface = |last| Interface { mac: [2, 0, 0, 0, 0, last], promiscuous: false, mtu: 1500 };
        let fib = LiveFib::new(&LiveConfig::default(), &[0, 1].map(interface)).unwrap();
        let mut asked = Asked::new(&fib, 2);
        let ports = ["a0", "a1"].map(|name| Port { name: name.to_owned(), index: None, mtu: 1500 });
        let follower = Follower::with_buffer(kernel::Ports::All, SMALL).unwrap();
        let runner = Runner::new(follower, Plane::new(fib, &ports).unwrap()).unwrap();
        let handle = runner.handle();
        let thread = std::thread::spawn(|| runner.run());
        assert!(handle.wait_ready(Duration::from_secs(60)));
        let links = Links::read(namespace);
        let station = links.ports["a0"].1;
        let to = ["20.9.1.1", "fd20:9::1"].map(|to| to.parse::<IpAddr>().unwrap());
        let expected = Ok(((1, None), [2, 0, 0, 0, 0x11, 2], links.ports["a1"].1));
        let goes_and_comes: String = ["add", "del"]
            .iter()
            .flat_map(|verb| {
                (0..CHANGING).map(move |net| format!("route {verb} 30.{}.{}.0/24 via 10.0.1.3\n", net >> 8, net & 255))
            })
            .collect();
        let first = handle.report().follower;
        let (done, begun, mut sent) = (AtomicBool::new(false), Instant::now(), 0_u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    batch(namespace, &goes_and_comes);
                }
            });
            let is_over = || {
                let counts = handle.report().follower;
                counts.overflows >= first.overflows + 3 && counts.dumps >= first.dumps + 2
            };
            let mut fates = [expected; 2];
            while fates == [expected; 2] && !is_over() && begun.elapsed() < PATIENCE {
                fates = to.map(|to| asked.fate(station, None, &packet(to, 1, 80)));
                sent += 2;
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(fates, [expected; 2], "packets {sent} and the one before, {:?}", handle.report());
            assert!(is_over(), "{:?}", handle.report());
        });
        // And then the tables are the kernel's.
        batch(namespace, "route add 30.0.0.0/8 via 10.0.1.4\nroute del 20.9.0.0/16\n");
        let fates = [Ok(((1, None), [2, 0, 0, 0, 0x11, 4], links.ports["a1"].1)), Err(Refusal::NoRoute)];
        eventually("what has changed in the end is obeyed", || {
            let to = ["30.0.7.1", "20.9.1.1"].map(|to| to.parse::<IpAddr>().unwrap());
            to.map(|to| asked.fate(station, None, &packet(to, 1, 80))) == fates
        });
        println!("{sent} packets in {:?}, {:?}", begun.elapsed(), handle.report().follower);
        handle.stop();
        thread.join().unwrap().unwrap();
    });
}

/// Bytes of a receive buffer; the kernel doubles it, and takes some 800 for a message.
const SMALL: usize = 4 << 10;
const CHANGING: u32 = 1000;
/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const BURSTS: usize = 40;
const COMMANDS: usize = 25;
const TRIES: usize = 500;
/// Addresses drawn at random after each burst, beside those that are listed.
const OTHERS: usize = 10_000;
