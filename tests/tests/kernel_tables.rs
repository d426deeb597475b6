//! The mirror of the kernel's tables against the kernel: random `ip` commands in a network namespace, and after each burst of them what
//! a data path that follows the mirror does with a packet is what the kernel says of it.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "kernel_tables/asked.rs"]
mod asked;
#[path = "kernel_tables/commands.rs"]
mod commands;
#[path = "../../crates/kernel/tests/common/mod.rs"]
mod common;

use asked::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, Oracle, Said, batch, set, within};
use commands::{ADDRESSES, Random, address, command, made};
use common::{Answer, Path};
use kernel::{Event, Follower, Mirror, Ports, Progress, RouteKind};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tests::eventually;

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

#[test]
fn random_commands_leave_the_data_path_doing_what_the_kernel_does() {
    within(|namespace| {
        let seed = std::env::var("RINGWAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let (mut random, mut places) = (Random(seed), Random(!seed));
        println!("RINGWAY_SEED={seed}");
        set(namespace, "ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        batch(namespace, &format!("link set lo up\n{}{}{}", made(0), made(1), made(2)));
        let (mut followed, oracle) = (Followed::open(8 << 20), Oracle::new());
        let (mut bare, mut asked, mut told) = (0, 0, BTreeMap::new());
        let mut vague_others = 0;
        for burst in 0..BURSTS {
            if random.below(4) == 0 {
                let (of, value) = (random.one(&["a0", "a1", "a2", "all", "default"]), random.below(2));
                let path = random.one(&["ipv4", "ipv6"]);
                set(namespace, &format!("{path}/conf/{of}/ignore_routes_with_linkdown={value}"));
            }
            if random.below(8) == 0 {
                let (link, value) = (random.below(3), random.below(2));
                set(namespace, &format!("ipv6/conf/a{link}/disable_ipv6={value}"));
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
            let others: Vec<IpAddr> = (0..OTHERS).map(|_| address(&mut places)).collect();
            let mut wrong = String::new();
            // A carrier comes and goes a while after the command.
            let begun = Instant::now();
            loop {
                followed.settle();
                wrong.clear();
                let listed = ADDRESSES.iter().map(|address| address.parse().unwrap());
                for address in listed.chain(others.iter().copied()) {
                    let (ours, theirs) = (followed.path.lookup(address), oracle.route(address));
                    if !agrees(&ours, &theirs) && wrong.len() < 4096 {
                        writeln!(wrong, "{address}: {ours:?}, kernel {theirs:?}").unwrap();
                    }
                }
                if wrong.is_empty() || begun.elapsed() > PATIENCE {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            if !wrong.is_empty() {
                let show = namespace.output(&[
                    "sh",
                    "-c",
                    "ip link; ip addr; ip nexthop; ip route show table all; ip -6 route show table all",
                ]);
                panic!("seed {seed}, burst {burst}:\n{wrong}{lines}\n{show}\n{}", followed.all());
            }
            let is_vague = |address: &&IpAddr| followed.path.lookup(**address) == Answer::Kernel("not understood");
            vague_others += others.iter().filter(is_vague).count();
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
            let begun = Instant::now();
            let (ours, fresh) = loop {
                followed.settle();
                let tables = (followed.all(), Followed::fresh());
                if tables.0 == tables.1 || begun.elapsed() > PATIENCE {
                    break tables;
                }
                std::thread::sleep(Duration::from_millis(10));
            };
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
        // By the commands of some seeds it is up to a sixth and a tenth.
        println!("{vague} of {asked} answers are left to the kernel, and {vague_others} of {}", OTHERS * BURSTS);
        assert!(vague * 5 < asked, "{vague} of {asked} answers are left to the kernel");
        assert!(vague_others * 8 < OTHERS * BURSTS, "{vague_others} of {} others", OTHERS * BURSTS);
    });
}

/// Commands for a shell, and addresses of which mirror and kernel are asked after them, in one namespace after each other.
const SCRIPTS: &[(&str, &[&str])] = &[
    ("ip addr add 192.0.2.1/32 dev a0; ip addr add 192.0.2.1/32 dev a1", &["192.0.2.1"]),
    ("ip addr del 192.0.2.1/32 dev a0", &["192.0.2.1"]),
    ("ip addr add 172.16.0.1/24 dev a0; ip addr add 172.16.0.1/24 dev a1", &["172.16.0.1", "172.16.0.2"]),
    ("ip addr del 172.16.0.1/24 dev a1", &["172.16.0.1", "172.16.0.2"]),
    ("ip addr add fd22::1/128 dev a0 nodad; ip addr add fd22::1/128 dev a1 nodad", &["fd22::1"]),
    ("ip addr del fd22::1/128 dev a0", &["fd22::1"]),
    (
        "for at in 0 1; do ip route append local 23.0.0.0/8 dev a$at table local; done
         ip route del local 23.0.0.0/8 dev a1 table local",
        &["23.1.1.1"],
    ),
    (
        "ip route add default via 10.0.2.2; ip -6 route add default via fd00:2::2
         for at in 0 1; do ip route append 24.0.0.0/8 via 10.0.$at.2 mtu 1300; done
         ip route del 24.0.0.0/8 via 10.0.0.2",
        &["24.1.1.1"],
    ),
    (
        "for at in 0 1; do ip -6 route append fd24::/16 via fd00:$at::2 mtu 1300; done
         ip -6 route del fd24::/16 via fd00:0::2",
        &["fd24::1"],
    ),
    ("ip -6 route del fd24::/16 via fd00:1::2", &["fd24::1"]),
    (
        "for id in 1 2; do ip route append 25.0.0.0/8 encap ip id $id dst 9.9.9.9 via 10.0.0.2 dev a0; done
         ip route del 25.0.0.0/8 encap ip id 1 dst 9.9.9.9 via 10.0.0.2 dev a0",
        &["25.1.1.1"],
    ),
    (
        "for of in 6 7; do ip -6 route append fd25::/16 from fd7$of::/16 via fd00:0::2; done
         ip -6 route del fd25::/16 from fd76::/16",
        &["fd25::1"],
    ),
    (
        "ip route add 26.0.0.0/8 via 10.0.0.2 dev a0; ip route append 26.0.0.0/8 via 10.0.0.2 dev a0 onlink
         ip route del 26.0.0.0/8 via 10.0.0.2 dev a0",
        &["26.1.1.1"],
    ),
    ("ip -6 route add fd27::/16 nexthop via fd00:0::2 nexthop via fd00:1::2", &["fd27::1"]),
    ("echo 1 >/proc/sys/net/ipv6/conf/a1/disable_ipv6", &["fd27::1"]),
    ("echo 0 >/proc/sys/net/ipv6/conf/a1/disable_ipv6", &["fd27::1"]),
    ("ip route add 27.0.0.0/8 nexthop via 10.0.0.2 nexthop via 10.0.1.2; ip link set b1 down", &["27.1.1.1"]),
    ("echo 1 >/proc/sys/net/ipv4/conf/all/ignore_routes_with_linkdown", &["27.1.1.1", "24.1.1.1"]),
    ("cd /proc/sys/net/ipv4/conf; echo 1 >default/ignore_routes_with_linkdown", &["27.1.1.1"]),
    ("cd /proc/sys/net/ipv4/conf; echo 0 >all/ignore_routes_with_linkdown", &["27.1.1.1"]),
    ("cd /proc/sys/net/ipv4/conf; echo 0 >default/ignore_routes_with_linkdown; ip link set b1 up", &["27.1.1.1"]),
    (
        "for peer in 8 9; do ip addr add 10.7.0.1/32 peer 10.7.0.$peer dev a2; done
         ip route add 28.0.0.0/8 via 10.7.0.9; ip addr del 10.0.2.1/24 dev a2
         ip addr del 10.7.0.1/32 peer 10.7.0.8 dev a2",
        &["28.1.1.1", "9.9.9.9"],
    ),
    ("ip addr del 10.7.0.1/32 peer 10.7.0.9 dev a2", &["28.1.1.1"]),
];

#[test]
fn routes_and_addresses_that_are_alike_go_one_by_one() {
    within(|namespace| {
        set(namespace, "ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        batch(namespace, &format!("link set lo up\n{}{}{}", made(0), made(1), made(2)));
        let (mut followed, oracle) = (Followed::open(8 << 20), Oracle::new());
        let mut failures = String::new();
        let begun = Instant::now();
        for (script, addresses) in SCRIPTS {
            namespace.output(&["sh", "-ec", script]);
            let mut wrong = String::new();
            // A carrier comes and goes a while after the command.
            loop {
                followed.settle();
                wrong.clear();
                for address in *addresses {
                    let address = address.parse().unwrap();
                    let (ours, theirs) = (followed.path.lookup(address), oracle.route(address));
                    if !agrees(&ours, &theirs) {
                        writeln!(wrong, "{address}: {ours:?}, kernel {theirs:?}").unwrap();
                    }
                }
                let (ours, fresh) = (followed.all(), Followed::fresh());
                for (one, other, what) in [(&ours, &fresh, "has no"), (&fresh, &ours, "has")] {
                    let lack = one.lines().filter(|line| !other.lines().any(|other| other == *line));
                    lack.for_each(|line| writeln!(wrong, "a fresh mirror {what} {line}").unwrap());
                }
                if wrong.is_empty() || begun.elapsed() > 2 * PATIENCE {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            if !wrong.is_empty() {
                writeln!(failures, "{script}\n{wrong}").unwrap();
            }
        }
        assert!(failures.is_empty(), "{failures}");
    });
}

#[test]
fn a_receive_buffer_that_overflows_ends_with_equal_tables() {
    within(|namespace| {
        set(namespace, "ipv6/conf/default/accept_dad=0");
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

#[test]
fn a_dump_of_ipv6_routes_passes_over_none_when_others_go_away() {
    within(|namespace| {
        let routes = |verb: &str, count: u32| -> String {
            (0..count).map(|net| format!("route {verb} blackhole fd30:0:{net:x}::/48\n")).collect()
        };
        batch(namespace, &routes("add", ROUTES));
        let mut followed = Followed::open(8 << 20);
        let messages = followed.follower.counts().messages;
        // As far as the first parts of the last dump. The kernel makes the next part when one is read.
        let midway = |follower: &mut Follower| {
            let last = follower.counts().messages + messages - u64::from(ROUTES) / 2;
            while follower.counts().messages < last {
                assert_eq!(follower.read(1, &mut |_| {}), Ok(Progress::More));
            }
        };
        followed.follower.resync().unwrap();
        midway(&mut followed.follower);
        batch(namespace, &(routes("del", 100) + "route add blackhole fd3f::/48\n"));
        followed.settle();
        assert_eq!(followed.all(), Followed::fresh());

        // The same while they are read for the first time.
        let mut follower = Follower::open(Ports::All).unwrap();
        midway(&mut follower);
        batch(namespace, &(routes("add", 100) + &routes("del", 200) + "route del blackhole fd3f::/48\n"));
        batch(namespace, "route add blackhole fd3e::/48\n");
        eventually("all tables are read", || follower.read(1000, &mut |_| {}).unwrap() == Progress::Loaded);
        let path = Path::load(follower.mirror());
        let mut followed = Followed { follower, path };
        followed.settle();
        assert_eq!(followed.all(), Followed::fresh());
    });
}

#[test]
fn ipv6_is_forwarded_from_interfaces_only_that_have_it() {
    within(|namespace| {
        set(namespace, "ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0");
        batch(namespace, &made(0));
        let mut followed = Followed::open(8 << 20);
        let mut forwards = |expected: bool| {
            eventually("the setting is followed", || {
                followed.read();
                let mut interfaces = followed.follower.mirror().interfaces();
                interfaces.any(|(_, interface)| interface.name == "a0" && interface.forwarding[1] == expected)
            });
        };
        forwards(true);
        set(namespace, "ipv6/conf/a0/disable_ipv6=1");
        forwards(false);
        set(namespace, "ipv6/conf/a0/disable_ipv6=0");
        forwards(true);
        batch(namespace, "link set a0 mtu 1000\n");
        forwards(false);
        batch(namespace, "link set a0 mtu 1500\n");
        forwards(true);
    });
}

const ROUTES: u32 = 5000;
/// For what the kernel does by itself, behind what others have it do.
const PATIENCE: Duration = Duration::from_secs(60);
const BURSTS: usize = 40;
const COMMANDS: usize = 25;
/// Random addresses that the kernel is asked for after each burst, beside those of [`ADDRESSES`].
const OTHERS: usize = 10_000;
