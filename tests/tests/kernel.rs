//! `fwd l3 --kernel` between two hosts, all three Linux in namespaces: what `ip` says in the middle the ports do, what they do not
//! forward Linux answers, and nothing of what goes wrong ends it. Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::io::Read as _;
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tests::{Fwd, Namespace, Process, Tcpdump, eventually, fwd, namespaces_possible, received};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Addresses of the hosts, and of the router towards them.
const LEFT: Host =
    Host { wire: "rwka", twin: "rwt0", v4: "10.81.1.2", v6: "2001:db8:1::2", router: ["10.81.1.1", "2001:db8:1::1"] };
const RIGHT: Host =
    Host { wire: "rwkb", twin: "rwt1", v4: "10.81.2.2", v6: "2001:db8:2::2", router: ["10.81.2.1", "2001:db8:2::1"] };
/// Addresses of the right host that are on no link.
const BEYOND: &str = "203.0.113.1";
const BEYOND_V6: &str = "2001:db8:f::1";
/// Pings of which the host in the middle should see next to nothing.
const PINGS: u64 = 100;

struct Host {
    /// Its interface, at the other end of which is a port.
    wire: &'static str,
    /// The twin of that port.
    twin: &'static str,
    v4: &'static str,
    v6: &'static str,
    router: [&'static str; 2],
}

#[test]
fn linux_steers_the_ports_and_answers_for_them() {
    let Some(network) = Network::new() else { return };
    let mut run = network.start();
    forwards_without_the_host(&network);
    leaves_packets_to_ipsec_policies(&network);
    forwards_no_ipv6_from_where_it_is_off(&network);
    sends_the_errors_of_linux(&network);
    follows_routes(&network);
    follows_neighbours_that_change_their_address(&network);
    follows_addresses_set_by_hand(&network);
    leaves_packets_to_rules(&network);
    passes_on_stacks_of_tags(&network);
    forwards_what_says_to_come_from_itself(&network);
    stops_with_its_twin(&network);
    keeps_forwarding_under_a_flood(&network);
    survives_the_loss_of_a_twin(&network);
    let report = run.stop();
    assert!(report.count("/drops/blackhole") >= 1, "{}", report.json);
    assert!(report.count("/forwarded") > 4 * PINGS, "{}", report.json);
    let twins = report.json.pointer("/kernel/twins").and_then(Value::as_array).expect("two twins");
    let present: Vec<_> = twins.iter().filter_map(|twin| twin.get("present").and_then(Value::as_bool)).collect();
    assert_eq!(present, [true, false]);
}

#[test]
fn a_router_that_is_killed_comes_back() {
    let Some(network) = Network::new() else { return };
    let run = network.start();
    for (beyond, prefix, gateway) in [(BEYOND, "203.0.113.0/24", RIGHT.v4), (BEYOND_V6, "2001:db8:f::/48", RIGHT.v6)] {
        network.right.output(&["ip", "address", "add", beyond, "dev", "lo"]);
        network.router.output(&["ip", "route", "add", prefix, "via", gateway]);
        network.passes_by_the_host(beyond);
    }
    let has_routes = || {
        let routes = |family| network.router.output(&["ip", family, "route", "show"]);
        let (v4, v6) = (routes("-4"), routes("-6"));
        assert!(v4.contains(&format!("203.0.113.0/24 via {} dev {}", RIGHT.v4, RIGHT.twin)), "{v4}");
        assert!(v6.contains(&format!("2001:db8:f::/48 via {} dev {}", RIGHT.v6, RIGHT.twin)), "{v6}");
    };
    has_routes();
    run.0.signal(Signal::KILL);
    drop(run);
    // The twins were there before, and so are their addresses and routes.
    let addresses = network.router.output(&["ip", "address", "show", LEFT.twin]);
    assert!(addresses.contains(LEFT.router[0]) && addresses.contains("NO-CARRIER"), "{addresses}");
    has_routes();
    let mut run = network.start();
    network.ping(RIGHT.v4, 3, &[]);
    for beyond in [BEYOND, BEYOND_V6] {
        network.passes_by_the_host(beyond);
    }
    has_routes();
    run.stop();
}

#[test]
fn without_the_capability_one_line_says_what_to_do() {
    let Some(network) = Network::new() else { return };
    let program = fwd().to_str().expect("a path in UTF-8");
    let without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let run = [&without[..], &[program, "l3", "soft:a", "--kernel=rwnone", "--duration", "1"]].concat();
    let output = network.router.command(&run).output().expect("nsenter starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("--kernel") && said.contains("rwnone") && said.contains("--cap-add NET_ADMIN"), "{said}");
}

/// Frames of a burst of pings pass by the ports alone, both families and both ways.
fn forwards_without_the_host(network: &Network) {
    for to in [RIGHT.v4, RIGHT.v6] {
        // Once the tables are read and the neighbours known.
        eventually("the ports forward by themselves", || {
            let before = network.seen_by_the_host();
            network.ping(to, 20, &[]);
            network.seen_by_the_host() - before < 20
        });
        network.passes_by_the_host(to);
    }
    for host in [&LEFT, &RIGHT] {
        host.router.iter().for_each(|to| network.ping(to, 1, &[]));
    }
}

/// Whoever knows the MAC address of the router, from IPv4, may still send it IPv6.
fn forwards_no_ipv6_from_where_it_is_off(network: &Network) {
    let mac = network.address_of(LEFT.twin);
    let neighbour = [LEFT.router[1], "lladdr", &mac, "dev", LEFT.wire];
    network.left.output(&[&["ip", "neigh", "replace"][..], &neighbour, &["nud", "permanent"]].concat());
    let set = |value: &str| {
        let script = format!("echo {value} >/proc/sys/net/ipv6/conf/{}/disable_ipv6", LEFT.twin);
        network.router.output(&["sh", "-c", &script]);
    };
    network.ping(RIGHT.v6, 1, &[]);
    set("1");
    eventually("IPv6 is not forwarded", || !network.reaches(RIGHT.v6, &[]));
    network.ping(RIGHT.v4, 1, &[]);
    set("0");
    let address = format!("{}/64", LEFT.router[1]);
    network.router.output(&["ip", "address", "add", &address, "dev", LEFT.twin, "nodad"]);
    eventually("IPv6 is forwarded again", || network.reaches(RIGHT.v6, &[]));
    network.left.output(&[&["ip", "neigh", "del"][..], &neighbour].concat());
}

/// Time exceeded, too big, and fragments.
fn sends_the_errors_of_linux(network: &Network) {
    for (to, from, word) in
        [(RIGHT.v4, LEFT.router[0], "Time to live exceeded"), (RIGHT.v6, LEFT.router[1], "Hop limit")]
    {
        eventually("a used-up TTL is answered", || {
            let said = network.ping_said(to, &["-c", "1", "-t", "1"]);
            said.contains(&format!("From {from}")) && said.contains(word)
        });
    }

    network.router.output(&["ip", "link", "set", RIGHT.twin, "mtu", "1280"]);
    eventually("a packet too long for the twin is refused", || {
        network.ping_said(RIGHT.v4, &["-c", "1", "-M", "do", "-s", "1400"]).contains("mtu = 1280")
    });
    network.left.output(&["ip", "route", "flush", "cache"]);
    network.ping(RIGHT.v4, 3, &["-M", "dont", "-s", "1400"]);
    eventually("a packet is too long, and fragments of its sender pass then", || {
        network.left.output(&["ip", "-6", "route", "flush", "cache"]);
        let said = network.ping_said(RIGHT.v6, &["-c", "4", "-s", "1400"]);
        let is_refused = ["mtu=1280", "mtu 1280", "Packet too big"].iter().any(|word| said.contains(word));
        is_refused && said.contains("bytes from")
    });
    network.router.output(&["ip", "link", "set", RIGHT.twin, "mtu", "1500"]);
    for family in ["-4", "-6"] {
        network.left.output(&["ip", family, "route", "flush", "cache"]);
    }
    eventually("the longest packet passes", || network.reaches(RIGHT.v4, &["-M", "do", "-s", "1472"]));
}

/// What `ip route` says takes effect.
fn follows_routes(network: &Network) {
    let route = |words: &[&str]| {
        network.router.output(&[&["ip", "route"][..], words].concat());
    };
    network.right.output(&["ip", "address", "add", &format!("{BEYOND}/32"), "dev", "lo"]);
    eventually("no route is answered", || network.ping_said(BEYOND, &["-c", "1"]).contains("Net Unreachable"));
    route(&["add", "203.0.113.0/24", "via", RIGHT.v4]);
    eventually("a new route is obeyed", || network.reaches(BEYOND, &[]));
    network.passes_by_the_host(BEYOND);
    route(&["add", "blackhole", "203.0.113.1/32"]);
    eventually("a blackhole is obeyed", || !network.reaches(BEYOND, &[]));
    route(&["del", "blackhole", "203.0.113.1/32"]);
    eventually("and its end", || network.reaches(BEYOND, &[]));
    route(&["replace", "unreachable", "203.0.113.0/24"]);
    eventually("an unreachable route is answered", || {
        network.ping_said(BEYOND, &["-c", "1"]).contains("Destination Host Unreachable")
    });
    route(&["del", "203.0.113.0/24"]);
}

/// Without a word of it: the kernel has to ask.
fn follows_neighbours_that_change_their_address(network: &Network) {
    for (to, mac) in [(RIGHT.v4, "02:00:00:00:77:77"), (RIGHT.v6, "02:00:00:00:77:78")] {
        network.passes_by_the_host(to);
        network.right.output(&["ip", "link", "set", RIGHT.wire, "address", mac]);
        eventually("the neighbour's new address is found", || network.reaches(to, &[]));
        network.ping(to, 5, &[]);
    }
}

/// Each twin gets another address: the ports send from it, and take frames for it and for no other.
fn follows_addresses_set_by_hand(network: &Network) {
    let before = network.address_of(LEFT.twin);
    for (namespace, host, mac) in
        [(&network.left, &LEFT, "02:00:00:00:66:01"), (&network.right, &RIGHT, "02:00:00:00:66:02")]
    {
        network.router.output(&["ip", "link", "set", host.twin, "address", mac]);
        // As if the new one had been announced.
        for router in host.router {
            namespace.output(&["ip", "neigh", "replace", router, "lladdr", mac, "dev", host.wire, "nud", "reachable"]);
        }
    }
    for to in [RIGHT.v4, RIGHT.v6] {
        network.passes_by_the_host(to);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tcpdump = Tcpdump::start(&network.right, RIGHT.wire, "in", &folder.path().join("right.pcap"));
    // Of no other length here.
    network.ping(RIGHT.v4, 20, &["-s", "333"]);
    let pings = |frame: &[u8]| frame.len() == 14 + 20 + 8 + 333;
    let sent = tcpdump.stop_at_least(20, pings);
    for frame in sent.frames.iter().filter(|frame| pings(frame)) {
        assert_eq!(frame[6..12], [2, 0, 0, 0, 0x66, 2], "from the address that was set");
    }
    let neighbour = |mac: &str, state: &str| {
        network.left.output(&["ip", "neigh", "replace", LEFT.router[0], "lladdr", mac, "dev", LEFT.wire, "nud", state]);
    };
    neighbour(&before, "permanent");
    assert!(!network.reaches(RIGHT.v4, &["-W", "0.2"]), "frames for the address of before are another station's");
    neighbour("02:00:00:00:66:01", "reachable");
    network.ping(RIGHT.v4, 1, &[]);
}

/// Rules beside those that each system has: all packets of the family go by Linux while there is one.
fn leaves_packets_to_rules(network: &Network) {
    for (family, from, to) in [("-4", "10.81.1.0/24", RIGHT.v4), ("-6", "2001:db8:1::/64", RIGHT.v6)] {
        let rule = ["priority", "100", "from", from, "lookup", "100"];
        let ip = |verb: &str| network.router.succeeds(&[&["ip", family, "rule", verb][..], &rule].concat());
        if !ip("add") {
            skip::test!("rules: this kernel has none");
            return;
        }
        eventually("packets go by the host while there is a rule", || {
            let before = network.seen_by_the_host();
            network.reaches(to, &["-c", "10"]) && network.seen_by_the_host() - before >= 20
        });
        assert!(ip("delete"), "it was there");
        network.passes_by_the_host(to);
    }
}

/// Frames with two tags and as long a packet as others may have are Linux's, and leave if it sends them.
fn passes_on_stacks_of_tags(network: &Network) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (router, station) = ([2, 0, 0, 0, 0x66, 1], [2, 0, 0, 0, 0x55, 1]);
    let frame = |tag: [u8; 2], [to, from]: [[u8; 6]; 2]| {
        let head = [&to[..], &from, &tag, &[0, 7, 0x81, 0, 0, 8, 0x12, 0x34]].concat();
        head.into_iter().chain(std::iter::repeat(9)).take(14 + 8 + 1500).collect::<Vec<u8>>()
    };
    for tag in [[0x88, 0xA8], [0x81, 0]] {
        let to_the_host = frame(tag, [router, station]);
        let of_the_host = frame(tag, [station, router]);
        for (from, by, to, at, frame) in [
            (&network.left, LEFT.wire, &network.router, LEFT.twin, to_the_host),
            (&network.router, LEFT.twin, &network.left, LEFT.wire, of_the_host),
        ] {
            let tcpdump = Tcpdump::start(to, at, "in", &folder.path().join("stacks.pcap"));
            // Linux has no VLANs here, of which it would send such frames without a larger MTU.
            from.output(&["ip", "link", "set", by, "mtu", "1600"]);
            from.send(by, &frame);
            drop(tcpdump.stop(1, |seen| seen == frame));
            from.output(&["ip", "link", "set", by, "mtu", "1500"]);
        }
    }
}

/// What Linux drops without `accept_local`, as the manual of fwd says.
fn forwards_what_says_to_come_from_itself(network: &Network) {
    let own = RIGHT.router[0];
    network.left.output(&["ip", "address", "add", &format!("{own}/32"), "dev", "lo"]);
    eventually("packets from an address of the router arrive", || {
        let before = received(&network.right, RIGHT.wire);
        // Answers are for the router.
        assert!(!network.reaches(RIGHT.v4, &["-I", own, "-c", "20", "-W", "0.1"]));
        received(&network.right, RIGHT.wire) - before >= 20
    });
    network.left.output(&["ip", "address", "del", &format!("{own}/32"), "dev", "lo"]);
}

fn stops_with_its_twin(network: &Network) {
    network.router.output(&["ip", "link", "set", RIGHT.twin, "down"]);
    eventually("a port whose twin is down does not send", || !network.reaches(RIGHT.v4, &[]));
    network.router.output(&["ip", "link", "set", RIGHT.twin, "up"]);
    eventually("and sends when it is up", || network.reaches(RIGHT.v4, &[]));
}

/// All go by Linux while there is a policy, and are held to it.
fn leaves_packets_to_ipsec_policies(network: &Network) {
    let policy = |what, action: &[&str]| {
        let net = |host: &Host| format!("{}/32", host.v4);
        let (from, to) = (net(&LEFT), net(&RIGHT));
        let words = ["ip", "xfrm", "policy", what, "dir", "fwd", "src", &from, "dst", &to];
        network.router.succeeds(&[&words[..], action].concat())
    };
    if !policy("add", &["action", "block"]) {
        skip::test!("IPsec policies: this kernel has none");
        return;
    }
    eventually("what a policy blocks does not pass", || !network.reaches(RIGHT.v4, &[]));
    eventually("all others go by the host", || {
        let before = network.seen_by_the_host();
        network.reaches(RIGHT.v6, &["-c", "10"]) && network.seen_by_the_host() - before >= 20
    });
    assert!(policy("delete", &[]), "it was there");
    eventually("the ports forward by themselves again", || {
        let before = network.seen_by_the_host();
        network.reaches(RIGHT.v4, &["-c", "20"]) && network.seen_by_the_host() - before < 20
    });
}

/// Packets with a TTL of 1 from the left, as fast as it goes, while others pass.
fn keeps_forwarding_under_a_flood(network: &Network) {
    eventually("the ports forward by themselves", || {
        let before = network.seen_by_the_host();
        network.reaches(RIGHT.v4, &["-c", "20"]) && network.seen_by_the_host() - before < 20
    });
    let flood = network.left.spawn(|| {
        let socket = UdpSocket::bind((LEFT.v4, 0)).expect("an address of the left");
        socket.set_ttl(1).expect("a TTL");
        let begun = Instant::now();
        // What finds no room in a queue of the left is lost there, and errors come back on the socket.
        let sent = (0..60_000).filter(|_| socket.send_to(&[0; 30], (RIGHT.v4, 9)).is_ok()).count();
        (sent, begun.elapsed())
    });
    let before = network.seen_by_the_host();
    let begun = Instant::now();
    let said = network.ping_said(RIGHT.v4, &["-c", "50"]);
    let (sent, took) = flood.join().expect("the flood has not panicked");
    network.ping(RIGHT.v4, 5, &[]);
    let (seen, took) = (network.seen_by_the_host() - before, took.max(begun.elapsed()));
    println!("flood of {sent} in {took:?}: the host saw {seen}; {said}");
    // 10,000 a second and 256 at once, the manual of fwd says; and the pings' neighbours.
    let most = 10_000.0 * took.as_secs_f64() + 256.0 + 200.0;
    #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
    let seen = seen as f64;
    assert!(seen < most, "the host saw {seen} frames in {took:?}");
    assert!(said.contains("bytes from"), "{said}");
}

/// The other port goes on.
fn survives_the_loss_of_a_twin(network: &Network) {
    let mut pings = network.left.command(&["ping", "-q", "-i", "0.01", RIGHT.v4]);
    let pings = Process(pings.stdout(Stdio::null()).spawn().expect("ping starts"));
    network.router.output(&["ip", "link", "delete", RIGHT.twin]);
    eventually("what leads to a twin that is gone does not pass", || !network.reaches(RIGHT.v4, &[]));
    network.ping(LEFT.router[0], 3, &[]);
    drop(pings);
}

/// Two hosts, and a router between them that has twins beforehand.
struct Network {
    left: Namespace,
    right: Namespace,
    router: Namespace,
}

impl Network {
    /// Makes it, unless this host cannot; then says why.
    fn new() -> Option<Self> {
        if let Err(reason) = namespaces_possible(&["ping", "tcpdump", "python3"]) {
            skip::test!("{reason}");
            return None;
        }
        let network = Self { left: Namespace::new(), right: Namespace::new(), router: Namespace::new() };
        let set = |path: &str, value: &str| {
            network.router.output(&["sh", "-c", &format!("echo {value} > /proc/sys/net/{path}")]);
        };
        for (path, value) in
            [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv4/conf/all/rp_filter", "0")]
        {
            set(path, value);
        }
        for host in [&LEFT, &RIGHT] {
            let twin = host.twin;
            network.router.output(&["ip", "tuntap", "add", twin, "mode", "tap"]);
            // Neighbours are asked soon, and errors sent without a pause.
            for setting in ["delay_first_probe_time=1", "base_reachable_time_ms=500", "retrans_time_ms=100"] {
                let (name, value) = setting.split_once('=').expect("as above");
                ["ipv4", "ipv6"].iter().for_each(|family| set(&format!("{family}/neigh/{twin}/{name}"), value));
            }
            network.router.output(&["ip", "link", "set", twin, "up"]);
            for (address, bits) in host.router.iter().zip(["24", "64"]) {
                network.router.output(&["ip", "address", "add", &format!("{address}/{bits}"), "dev", twin, "nodad"]);
            }
        }
        set("ipv4/icmp_ratemask", "0");
        set("ipv6/icmp/ratelimit", "0");
        Some(network)
    }

    /// Starts `fwd` and connects the hosts to it; returns when a ping has passed.
    fn start(&self) -> Run {
        let program = fwd().to_str().expect("a path in UTF-8");
        let kernel = format!("--kernel={},{}", LEFT.twin, RIGHT.twin);
        let ports = [&LEFT, &RIGHT].map(|host| format!("soft:{0}?wire=tap:{0}", host.wire));
        let mut command = self.router.command(&[
            program,
            "l3",
            &ports[0],
            &ports[1],
            &kernel,
            "--json",
            "--quiet",
            "--duration",
            "900",
        ]);
        let run = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
        for (namespace, host) in [(&self.left, &LEFT), (&self.right, &RIGHT)] {
            let wire = host.wire;
            eventually("fwd makes its wires", || self.router.succeeds(&["ip", "link", "show", wire]));
            self.router.output(&["ip", "link", "set", wire, "netns", &namespace.holder().to_string()]);
            namespace.output(&["ip", "link", "set", "lo", "up"]);
            namespace.output(&["ip", "link", "set", wire, "up"]);
            for (address, bits) in [(host.v4, "24"), (host.v6, "64")] {
                namespace.output(&["ip", "address", "add", &format!("{address}/{bits}"), "dev", wire, "nodad"]);
            }
            for (family, gateway) in ["-4", "-6"].iter().zip(host.router) {
                namespace.output(&["ip", family, "route", "add", "default", "via", gateway]);
            }
        }
        eventually("a ping passes", || self.reaches(RIGHT.v4, &[]) && self.reaches(RIGHT.v6, &[]));
        Run(run)
    }

    /// Pings from the left until so many in a row are answered, without a loss.
    fn ping(&self, to: &str, count: u64, options: &[&str]) {
        let count = count.to_string();
        let options = [options, &["-c", &count]].concat();
        eventually(&format!("{count} pings to {to} are answered"), || self.reaches(to, &options));
    }

    /// A burst of pings is answered of which the router's Linux sees few.
    fn passes_by_the_host(&self, to: &str) {
        eventually(&format!("{PINGS} pings to {to} pass by the host"), || {
            let before = self.seen_by_the_host();
            self.reaches(to, &["-c", &PINGS.to_string()]) && self.seen_by_the_host() - before < PINGS / 4
        });
    }

    /// Pings from the left, once unless the options say otherwise. Returns whether all were answered.
    fn reaches(&self, to: &str, options: &[&str]) -> bool {
        self.left.pings(to, options)
    }

    /// Pings from the left, and returns what it says.
    fn ping_said(&self, to: &str, options: &[&str]) -> String {
        let output = self.left.command(&[&["ping", "-i", "0.02", "-W", "1", to][..], options].concat()).output();
        let output = output.expect("nsenter starts");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// The MAC address of a twin.
    fn address_of(&self, twin: &str) -> String {
        let shown = self.router.output(&["ip", "-json", "link", "show", "dev", twin]);
        let links: Value = serde_json::from_str(&shown).expect("ip prints JSON");
        links.pointer("/0/address").and_then(Value::as_str).expect("a MAC address").to_owned()
    }

    /// Frames that the router's Linux has received by its twins.
    fn seen_by_the_host(&self) -> u64 {
        let seen = [&LEFT, &RIGHT].map(|host| {
            let text = self.router.output(&["ip", "-json", "-statistics", "link", "show", "dev", host.twin]);
            let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
            links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).expect("ip counts frames")
        });
        seen.iter().sum()
    }
}

/// A router at work.
struct Run(Process);

impl Run {
    /// Ends it as a user would, and holds it to its account.
    fn stop(&mut self) -> Fwd {
        let Process(child) = &mut self.0;
        assert!(matches!(child.try_wait(), Ok(None)), "fwd has ended before");
        self.0.signal(Signal::INT);
        let status = self.0.wait(PATIENCE).expect("fwd ends after SIGINT");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        self.0.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        assert_eq!(status.code(), Some(0), "{stderr}");
        let run = Fwd { code: status.code(), json: serde_json::from_str(&stdout).expect("an object"), stderr };
        println!("{}\n{}", run.json, run.stderr);
        assert_eq!(
            run.count("/received"),
            run.count("/forwarded") + run.count("/to_host") + run.drops(),
            "{}",
            run.json
        );
        run
    }
}
