//! What people look at a network with, across a `fwd l3 --kernel`: traceroute, mtr, tracepath and iperf3, both families, to a smaller MTU
//! and back. Needs root; says why when it is skipped.

use serde_json::Value;
use std::process::Stdio;
use tests::{KernelRouter, Link, Namespace, Process, eventually, namespaces_possible, set};

const LINKS: [Link; 2] = [
    Link {
        wire: "rwleft",
        twin: "rwt0",
        router: ["10.85.0.1", "2001:db8:30::1"],
        station: ["10.85.0.2", "2001:db8:30::2"],
    },
    Link {
        wire: "rwright",
        twin: "rwt1",
        router: ["10.85.1.1", "2001:db8:31::1"],
        station: ["10.85.1.2", "2001:db8:31::2"],
    },
];
const FAMILIES: [&str; 2] = ["-4", "-6"];
/// IPv4 and IPv6.
const LEFT: [&str; 2] = LINKS[0].station;
const ROUTER: [&str; 2] = LINKS[0].router;
const RIGHT: [&str; 2] = LINKS[1].station;
/// Longer than one packet, and than one of the smaller MTU.
const SIZES: [&str; 2] = ["1400", "4000"];

#[test]
fn tools_find_the_router_and_the_smaller_mtu() {
    let tools = ["ping", "traceroute", "mtr", "tracepath", "iperf3", "timeout"];
    if let Err(reason) = namespaces_possible(&tools) {
        skip::test!("{reason}");
        return;
    }
    let mut network = Network::new();
    network.is_traced();
    network.carries_tcp();
    for (mtu, is_smaller) in [("1280", true), ("1500", false)] {
        network.router.namespace.output(&["ip", "link", "set", LINKS[1].twin, "mtu", mtu]);
        network.forgets();
        network.tells_the_mtu(mtu);
        network.forgets();
        network.fragments(is_smaller);
        network.forgets();
        network.carries_tcp();
    }
    network.router.stop();
}

struct Network {
    left: Namespace,
    right: Namespace,
    router: KernelRouter,
}

impl Network {
    fn new() -> Self {
        let (left, right, mut router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
        router.start(&[&left, &right]);
        for (end, Link { router: gateways, .. }) in [(&left, LINKS[0]), (&right, LINKS[1])] {
            end.output(&["ip", "link", "set", "lo", "up"]);
            for (family, gateway) in FAMILIES.iter().zip(gateways) {
                end.output(&["ip", family, "route", "add", "default", "via", gateway]);
            }
            // All answers, however fast they are asked for.
            ["ipv4/icmp_ratemask=0", "ipv6/icmp/ratelimit=0"].iter().for_each(|setting| set(end, setting));
        }
        let network = Self { left, right, router };
        for to in RIGHT {
            eventually("a ping passes", || network.left.pings(to, &[]));
        }
        network
    }

    /// The left forgets what it has learnt of MTUs.
    fn forgets(&self) {
        for end in [&self.left, &self.right] {
            FAMILIES.iter().for_each(|family| drop(end.output(&["ip", family, "route", "flush", "cache"])));
        }
    }

    fn is_traced(&self) {
        for ((family, router), right) in FAMILIES.iter().zip(ROUTER).zip(RIGHT) {
            for method in [&[][..], &["-I"], &["-T", "-p", "9"]] {
                let words =
                    [&["traceroute", family, "-n", "-q", "1", "-w", "5", "-m", "4", right][..], method].concat();
                // It asks each hop once, and an answer may be late.
                eventually(&format!("{words:?} names both hops"), || {
                    let said = self.left.output(&words);
                    let hops = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
                    println!("{said}");
                    hops.eq([router, right])
                });
            }
            // What it has sent last, it waits for.
            let words = ["mtr", family, "-n", "--json", "-c", "3", "-i", "0.2", "-G", "5", right];
            eventually(&format!("{words:?} names both hops"), || {
                let said = self.left.output(&words);
                println!("{said}");
                let report: Value = serde_json::from_str(&said).expect("mtr prints JSON");
                let hubs = report.pointer("/report/hubs").and_then(Value::as_array).expect("hubs");
                hubs.iter().filter_map(|hub| hub.get("host").and_then(Value::as_str)).eq([router, right])
            });
        }
    }

    /// The router says what is too long, and tracepath believes it.
    fn tells_the_mtu(&self, mtu: &str) {
        for (family, right) in FAMILIES.iter().zip(RIGHT) {
            // The MTU of a twin takes a moment to reach the data path.
            eventually(&format!("tracepath finds an MTU of {mtu}"), || {
                self.forgets();
                let said = self.left.output(&["tracepath", family, "-n", "-m", "4", right]);
                said.contains(&format!("Resume: pmtu {mtu} hops 2"))
            });
        }
    }

    fn fragments(&self, mtu_is_smaller: bool) {
        // Those of the router (IPv4), then those of the sender; of IPv6 the first is lost while the sender learns the MTU.
        for (to, how) in RIGHT.iter().zip(["dont", "want"]) {
            for size in SIZES {
                self.forgets();
                eventually("fragments pass both ways", || self.left.pings(to, &["-c", "3", "-s", size, "-M", how]));
            }
        }
        self.forgets();
        let what = if mtu_is_smaller { "Frag needed and DF set (mtu = 1280)" } else { "bytes from" };
        eventually("what may not be fragmented is answered as it should be", || {
            self.forgets();
            let ping = ["ping", "-c", "1", "-W", "1", "-s", SIZES[0], "-M", "do", RIGHT[0]];
            let output = self.left.command(&ping).output().expect("nsenter starts");
            String::from_utf8_lossy(&output.stdout).contains(what)
        });
    }

    /// A stream each way.
    fn carries_tcp(&self) {
        for (family, [left, right]) in FAMILIES.iter().zip([[LEFT[0], RIGHT[0]], [LEFT[1], RIGHT[1]]]) {
            for way in [&[][..], &["-R"]] {
                let server = self.right.command(&["iperf3", "--server", "--bind", right]).stdout(Stdio::null()).spawn();
                let server = Process(server.expect("nsenter starts"));
                let client =
                    ["timeout", "60", "iperf3", family, "--client", right, "--bind", left, "--json", "-n", "4M"];
                let client = [&client[..], way].concat();
                let mut bytes = 0;
                // With --json it also succeeds where nobody listens yet.
                eventually("iperf3 reaches its server, and all arrives", || {
                    let output = self.left.command(&client).output().expect("nsenter starts");
                    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
                    bytes = report.pointer("/end/sum_sent/bytes").and_then(Value::as_u64).unwrap_or(0);
                    output.status.success() && bytes >= 4 << 20
                });
                drop(server);
                println!("iperf3 {family} {way:?}: {bytes} bytes");
            }
        }
    }
}
