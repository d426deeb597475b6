//! The mirror of the kernel's tables against the kernel: random `ip` commands in a network namespace, and after each burst of them what
//! a data path that follows the mirror does with a packet is what the kernel says of it.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../crates/kernel/tests/common/mod.rs"]
mod common;

use common::{Answer, Path};
use kernel::{Body, Event, Follower, Messages, Mirror, Ports, Progress, RouteKind};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use tests::{Namespace, eventually, namespaces_possible};

/// A follower, and the data path that follows it.
struct Followed {
    follower: Follower,
    path: Path,
}

impl Followed {
    /// Reads the tables of this thread's namespace.
    fn open(buffer: usize) -> Self {
        let mut follower = Follower::with_buffer(Ports::All, buffer).unwrap();
        eventually("all tables are read", || {
            let loaded = follower.read(1000, &mut |_| {}).unwrap() == Progress::Loaded;
            if follower.is_in_doubt() && !loaded {
                follower.resync().unwrap();
            }
            loaded
        });
        let path = Path::load(follower.mirror());
        Self { follower, path }
    }

    /// What a mirror holds that has just read the tables of this thread's namespace.
    fn fresh() -> String {
        let mut fresh =
            Self { follower: Follower::open(Ports::All).unwrap(), path: Path::list(&Mirror::new(Ports::All)) };
        eventually("all tables are read", || fresh.follower.read(1000, &mut |_| {}).unwrap() == Progress::Loaded);
        fresh.path = Path::list(fresh.follower.mirror());
        fresh.all()
    }

    /// Reads what there is to read.
    fn read(&mut self) {
        let path = &mut self.path;
        while self.follower.read(1000, &mut |event: Event<'_>| path.follow(event)).unwrap() != Progress::Idle {}
    }

    /// Reads, and has the tables compared while there is a doubt. A kernel that is left alone is in no doubt after a few dumps.
    fn settle(&mut self) {
        let mut tries = 0;
        while self.follower.is_in_doubt() || tries == 0 {
            self.read();
            if self.follower.is_in_doubt() {
                self.follower.resync().unwrap();
            }
            let dumps = self.follower.counts().dumps + self.follower.counts().interrupted;
            eventually("a dump ends", || {
                self.read();
                !self.follower.is_dumping() || self.follower.counts().dumps + self.follower.counts().interrupted > dumps
            });
            tries += 1;
            assert!(tries < 50, "in doubt for ever: {:?} {}", self.follower.counts(), self.all());
        }
    }

    /// All that it holds, as text that does not depend on numbers.
    fn all(&self) -> String {
        let mirror = self.follower.mirror();
        let mut text = String::new();
        for (prefix, mut answer) in self.path.all() {
            // The order of legs is nobody's affair.
            if let Answer::Forward(legs) = &mut answer {
                legs.sort();
            }
            writeln!(text, "{prefix} {answer:?}").unwrap();
        }
        let mut lines: Vec<_> =
            mirror.neighbours().map(|(index, address, now)| format!("{index} {address} {:?}", now.mac)).collect();
        lines.extend(mirror.interfaces().map(|(index, interface)| format!("{index} {interface:?}")));
        lines.sort();
        text + &lines.join("\n")
    }
}

/// Asks the kernel for routes.
struct Oracle(OwnedFd);

/// What the kernel says: a route's kind and its legs that can be used, or an error.
type Said = Result<(RouteKind, Vec<(u32, Option<IpAddr>, u32)>), i32>;

impl Oracle {
    fn new() -> Self {
        Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap())
    }

    /// The route by which a packet to an address leaves (RTM_GETROUTE with RTM_F_FIB_MATCH).
    fn route(&self, address: IpAddr) -> Said {
        let (family, octets) = match address {
            IpAddr::V4(address) => (2, address.octets().to_vec()),
            IpAddr::V6(address) => (10, address.octets().to_vec()),
        };
        let bits = u8::try_from(octets.len() * 8).unwrap();
        let mut request = [&[0; 4][..], &26_u16.to_ne_bytes(), &1_u16.to_ne_bytes(), &[0; 8]].concat();
        request.extend([family, bits, 0, 0, 0, 0, 0, 0]);
        request.extend(0x2000_u32.to_ne_bytes());
        request.extend(u16::try_from(4 + octets.len()).unwrap().to_ne_bytes());
        request.extend(1_u16.to_ne_bytes());
        request.extend(octets);
        let len = u32::try_from(request.len()).unwrap();
        request[..4].copy_from_slice(&len.to_ne_bytes());
        sendto(&self.0, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
        let mut buffer = [0; 32 << 10];
        let (_, len) = recv(&self.0, &mut buffer[..], RecvFlags::empty()).unwrap();
        match Messages::new(&buffer[..len]).next().unwrap().unwrap().body {
            Body::Error(code) => Err(-code),
            Body::NewRoute(route) => {
                let alive = route.legs().filter(|(_, flags)| !flags.dead);
                Ok((route.kind, alive.map(|(leg, _)| (leg.interface, leg.gateway, leg.weight)).collect()))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Whether the data path does with a packet what the kernel would, or leaves it to the kernel for a reason that holds.
fn agrees(ours: &Answer, kernel: &Said) -> bool {
    match (ours, kernel) {
        (Answer::Kernel("not understood"), _) => true,
        (Answer::Kernel("no route"), Err(ENETUNREACH)) => true,
        (Answer::Kernel("unreachable"), Err(EHOSTUNREACH)) => true,
        (Answer::Kernel("prohibited"), Err(EACCES)) => true,
        (Answer::Kernel("local"), Ok((RouteKind::Local, _))) => true,
        (Answer::Blackhole, Err(EINVAL) | Ok((RouteKind::Blackhole, _))) => true,
        (Answer::Forward(legs), Ok((RouteKind::Unicast, theirs))) => {
            let mut ours: Vec<_> = legs.iter().map(|leg| (leg.interface, leg.gateway, leg.weight)).collect();
            let mut theirs = theirs.clone();
            if let ([one], [other]) = (&mut ours[..], &mut theirs[..]) {
                // Who is alone has no share.
                (one.2, other.2) = (1, 1);
            }
            ours.sort();
            theirs.sort();
            ours == theirs
        }
        _ => false,
    }
}

const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENETUNREACH: i32 = 101;
const EHOSTUNREACH: i32 = 113;

/// Random numbers from a seed that a failure names (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        u32::try_from((mixed ^ mixed >> 31) >> 32).unwrap() % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(u32::try_from(of.len()).unwrap()) as usize]
    }
}

/// The commands that make an interface and its peer, in one namespace.
fn made(link: u32) -> String {
    format!(
        "link add a{link} type veth peer name b{link}\nlink set b{link} up\nlink set a{link} up\naddr add 10.0.{link}.1/24 dev a{link}\n\
         addr add fd00:{link}::1/64 dev a{link} nodad\n"
    )
}

const V4: &[&str] =
    &["default", "20.0.0.0/8", "20.1.0.0/16", "20.1.1.0/24", "20.1.1.1/32", "20.1.128.0/17", "127.5.0.0/16"];
const V6: &[&str] = &["::/0", "fd20::/16", "fd20:1::/32", "fd20:1:1::/48", "fd20:1:1::1/128", "fd20:1:8000::/33"];
/// Among them no broadcast address: whether those by links without carrier count is the kernel's affair, as their packets are.
const ADDRESSES: &[&str] = &[
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
    "fd99::1",
    "fd20:2::1",
    "fd20:1:2::1",
    "fd20:1:1::1",
    "fd20:1:1::2",
    "fd20:1:9000::1",
    "fd00:0::1",
    "fd00:1::2",
    "fd00:2::",
    "::1",
];

/// A random `ip` command.
fn command(random: &mut Random) -> String {
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
            if v6 {
                format!("addr {verb} fd00:{link}::1/64 dev a{link} nodad")
            } else {
                format!("addr {verb} 10.0.{link}.1/24 dev a{link}")
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
            random.one(&["replace", "del", "del"]),
            gateway(link, last)
        ),
        _ => format!("route {} {prefix} dev a{link}{metric}", random.one(&["add", "replace", "del"])),
    }
}

/// Runs lines of `ip -batch`, where some may fail.
fn batch(namespace: &Namespace, lines: &str) {
    let mut command = namespace.command(&["ip", "-force", "-batch", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait().unwrap();
}

/// Runs a closure in a thread within a new network namespace; `None` says why not.
fn within<T: Send>(run: impl FnOnce(&Namespace) -> T + Send) -> Option<T> {
    if let Err(why) = namespaces_possible(&[]) {
        skip::test!("{why}");
        return None;
    }
    let namespace = Namespace::new();
    let id = File::open(format!("/proc/{}/ns/net", namespace.holder())).unwrap();
    let thread = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(id.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run(&namespace)
        });
        thread.join()
    });
    Some(thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn set(namespace: &Namespace, settings: &str) {
    let script = settings.split(' ').map(|setting| {
        let (name, value) = setting.split_once('=').unwrap();
        format!("echo {value} >/proc/sys/net/{name}; ")
    });
    namespace.output(&["sh", "-c", &script.collect::<String>()]);
}

#[test]
fn random_commands_leave_the_data_path_doing_what_the_kernel_does() {
    within(|namespace| {
        let seed = std::env::var("RINGWAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let mut random = Random(seed);
        println!("RINGWAY_SEED={seed}");
        set(namespace, "ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        batch(namespace, &format!("link set lo up\n{}{}{}", made(0), made(1), made(2)));
        let (mut followed, oracle) = (Followed::open(8 << 20), Oracle::new());
        let (mut bare, mut asked, mut told) = (0, 0, BTreeMap::new());
        for burst in 0..BURSTS {
            if random.below(4) == 0 {
                let (link, value) = (random.below(3), random.below(2));
                let path = random.one(&["ipv4", "ipv6"]);
                set(namespace, &format!("{path}/conf/a{link}/ignore_routes_with_linkdown={value}"));
            }
            let lines: String = (0..COMMANDS).map(|_| command(&mut random) + "\n").collect();
            batch(namespace, &lines);
            // What the events alone leave, before tables are compared.
            followed.read();
            bare += ADDRESSES
                .iter()
                .filter(|address| {
                    let address = address.parse().unwrap();
                    !agrees(&followed.path.lookup(address), &oracle.route(address))
                })
                .count();
            let mut wrong = String::new();
            let mut tries = 0;
            // A carrier comes and goes a while after the command.
            while tries < 50 {
                followed.settle();
                wrong.clear();
                for address in ADDRESSES {
                    let address = address.parse().unwrap();
                    let (ours, theirs) = (followed.path.lookup(address), oracle.route(address));
                    if !agrees(&ours, &theirs) {
                        writeln!(wrong, "{address}: {ours:?}, kernel {theirs:?}").unwrap();
                    }
                }
                if wrong.is_empty() {
                    break;
                }
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            if !wrong.is_empty() {
                let show = namespace.output(&[
                    "sh",
                    "-c",
                    "ip link; ip addr; ip nexthop; ip route show table all; ip -6 route show table all",
                ]);
                panic!("seed {seed}, burst {burst}:\n{wrong}{lines}\n{show}\n{}", followed.all());
            }
            for address in ADDRESSES {
                *told
                    .entry(
                        format!("{:?}", followed.path.lookup(address.parse().unwrap()))
                            .split('[')
                            .next()
                            .unwrap()
                            .to_owned(),
                    )
                    .or_insert(0) += 1;
                asked += 1;
            }
            let (mut ours, mut fresh) = (String::new(), String::new());
            for _ in 0..50 {
                followed.settle();
                (ours, fresh) = (followed.all(), Followed::fresh());
                if ours == fresh {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let lack = |one: &str, other: &str| -> Vec<String> {
                one.lines().filter(|line| !other.lines().any(|other| other == *line)).map(str::to_owned).collect()
            };
            let (lost, found) = (lack(&ours, &fresh), lack(&fresh, &ours));
            assert!(
                ours == fresh,
                "seed {seed}, burst {burst}, a fresh mirror has {found:?} and not {lost:?}\n{lines}"
            );
        }
        let counts = followed.follower.counts();
        println!(
            "{asked} answers, {bare} late without a comparing dump, {told:?}, {} events, {counts:?}",
            followed.path.events
        );
        assert_eq!(counts.malformed, 0);
        let vague = told.get("Kernel(\"not understood\")").copied().unwrap_or(0);
        assert!(vague * 2 < asked, "{vague} of {asked} answers are left to the kernel");
    });
}

#[test]
fn a_receive_buffer_that_overflows_ends_with_equal_tables() {
    within(|namespace| {
        batch(namespace, &made(0));
        let mut followed = Followed::open(208 << 10);
        let routes = |verb: &str, from: u32| {
            (0..ROUTES)
                .map(|net| format!("route {verb} 30.{}.{}.0/24 via 10.0.0.{}\n", net >> 8, net & 255, from + net % 7))
                .collect::<String>()
        };
        // Nobody reads meanwhile, so that messages are lost whatever the machine's speed is.
        batch(namespace, &(routes("add", 2) + &routes("del", 2) + &routes("add", 3)));
        followed.settle();
        let counts = followed.follower.counts();
        assert!(counts.overflows > 0, "{counts:?}");
        assert_eq!(followed.follower.mirror().prefix_counts().0, usize::try_from(ROUTES).unwrap() + 1);
        assert_eq!(followed.all(), Followed::fresh());
        println!("{ROUTES} routes added, deleted and added: {counts:?}");
    });
}

const ROUTES: u32 = 5000;
const BURSTS: usize = 16;
const COMMANDS: usize = 25;
