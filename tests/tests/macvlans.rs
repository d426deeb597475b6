//! `fwd l3 --kernel` beside what Linux has on a twin and does with it: a macvlan as gateway, an MTU for IPv6 alone, filters of which `fwd`
//! warns, another name, another namespace. Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;
use tests::{Namespace, Process, eventually, fwd, namespaces_possible, received};

const TWINS: [&str; 2] = ["rwm0", "rwm1"];
const WIRES: [&str; 2] = ["rwma", "rwmb"];
/// Addresses of the right host.
const RIGHT: [&str; 2] = ["10.82.2.2", "2001:db8:822::2"];
/// The address of the macvlan, which is the left host's gateway.
const GATEWAY: &str = "02:00:00:00:82:09";

#[test]
fn what_linux_has_on_a_twin_is_obeyed() {
    let Some(network) = Network::new() else { return };
    let Network { router, hosts: [left, right] } = &network;
    let mut run = network.start();
    eventually("the ports forward", || left.pings(RIGHT[0], &["-c", "5"]) && left.pings(RIGHT[1], &["-c", "5"]));

    // 1,400 bytes of IPv6 no longer pass, of IPv4 they do.
    router.output(&["sh", "-c", "echo 1300 > /proc/sys/net/ipv6/conf/rwm1/mtu"]);
    eventually("a packet of IPv6 that is too long is answered", || {
        let ping = ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1352", RIGHT[1]];
        let said = left.command(&ping).output().expect("nsenter starts");
        String::from_utf8_lossy(&said.stdout).contains("mtu") || String::from_utf8_lossy(&said.stderr).contains("mtu")
    });
    eventually("one of IPv4 is not", || left.pings(RIGHT[0], &["-c", "5", "-M", "do", "-s", "1400"]));

    // Under another name it is the same twin; in another namespace it is gone, and its port is closed both ways.
    for words in [["set", "rwm1", "down"].as_slice(), &["set", "rwm1", "name", "rwmx"], &["set", "rwmx", "up"]] {
        router.output(&[&["ip", "link"], words].concat());
    }
    eventually("a twin with another name stands for its port", || left.pings(RIGHT[0], &[]));
    let elsewhere = Namespace::new();
    router.output(&["ip", "link", "set", "rwmx", "netns", &elsewhere.holder().to_string()]);
    elsewhere.output(&["ip", "address", "add", "10.82.2.1/24", "dev", "rwmx"]);
    elsewhere.output(&["ip", "link", "set", "rwmx", "up"]);
    eventually("a twin in another namespace does not", || !left.pings(RIGHT[0], &[]));
    eventually("and has no carrier", || elsewhere.output(&["ip", "link", "show", "rwmx"]).contains("NO-CARRIER"));
    let (at_the_twin, at_the_host) = (received(&elsewhere, "rwmx"), received(right, WIRES[1]));
    for (from, to) in [(right, "10.82.2.1"), (&elsewhere, "10.82.2.2")] {
        from.output(&["ip", "neigh", "flush", "dev", if from.holder() == right.holder() { WIRES[1] } else { "rwmx" }]);
        assert!(!from.pings(to, &["-c", "20"]), "nothing crosses to {to}");
    }
    assert_eq!(received(&elsewhere, "rwmx"), at_the_twin, "nothing comes in");
    assert_eq!(received(right, WIRES[1]), at_the_host, "nothing leaves");
    eventually("the other port goes on", || left.pings("10.82.1.1", &[]));

    let (json, _) = stop(&mut run);
    let of_twins = |what: &str| [0, 1].map(|twin| json.pointer(&format!("/kernel/twins/{twin}/{what}")).cloned());
    assert_eq!(of_twins("present"), [Some(true.into()), Some(false.into())], "{json}");
    assert!(of_twins("to_host_lost")[1].as_ref().and_then(Value::as_u64) > Some(0), "{json}");
    assert!(json["kernel"]["remarks"].to_string().contains("no interface rwmx"), "{json}");
}

#[test]
fn frames_to_a_macvlan_are_forwarded() {
    let Some(network) = Network::new() else { return };
    let Network { router, hosts: [left, _] } = &network;
    let macvlan = ["ip", "link", "add", "link", TWINS[0], "name", "rwmv", "address", GATEWAY, "type", "macvlan"];
    if !router.succeeds(&macvlan) {
        skip::test!("this kernel has no macvlan");
        return;
    }
    router.output(&["ip", "link", "set", "rwmv", "up"]);
    router.output(&["ip", "address", "add", "10.82.1.9/32", "dev", "rwmv"]);
    let mut run = network.start();
    // Frames to the macvlan's address, of both families, once its neighbour is told so by hand.
    left.output(&["ip", "neigh", "replace", "10.82.1.1", "lladdr", GATEWAY, "dev", WIRES[0]]);
    left.output(&["ip", "neigh", "replace", "2001:db8:821::1", "lladdr", GATEWAY, "dev", WIRES[0]]);
    for to in RIGHT {
        eventually("the ports forward what is sent to the macvlan", || {
            let before = seen(router);
            left.pings(to, &["-c", "50"]) && seen(router) - before < 25
        });
    }
    eventually("and Linux answers for its address", || left.pings("10.82.1.9", &[]));

    // Of mode `source` it takes frames of no station, as none is named.
    for (mode, takes) in [("source", false), ("bridge", true)] {
        router.output(&["ip", "link", "set", "rwmv", "type", "macvlan", "mode", mode]);
        for to in RIGHT {
            eventually("a macvlan takes what its mode says", || left.pings(to, &["-W", "0.2"]) == takes);
        }
    }
    stop(&mut run);
}

#[test]
fn what_packets_do_not_meet_is_named() {
    let Some(network) = Network::new() else { return };
    let router = &network.router;
    let bridge = ["ip", "link", "add", "name", "rwbr", "type", "bridge"];
    let has_bridge = router.succeeds(&bridge);
    if has_bridge {
        router.output(&["ip", "link", "set", TWINS[0], "master", "rwbr"]);
    } else {
        skip::test!("this kernel has no bridges, for a twin in one");
    }
    router.output(&["sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/rwm1/forwarding"]);
    for (twin, value) in [("rwm0", 1), ("rwm1", 0)] {
        router.output(&["sh", "-c", &format!("echo {value} > /proc/sys/net/ipv4/conf/{twin}/rp_filter")]);
    }
    let rule = ["ip", "-6", "rule", "add", "priority", "100", "from", "2001:db8:822::/64", "lookup", "100"];
    let has_rules = router.succeeds(&rule);
    if !has_rules {
        skip::test!("this kernel has no rules beyond those of every system");
    }
    let has_filters = filter(router);
    if !has_filters {
        skip::test!("this kernel has no nf_tables, clsact or u32, for filters");
    }
    let has_tables = router.succeeds(&["python3", "-c", TABLE]);
    if !has_tables {
        skip::test!("this kernel has no iptables without nf_tables");
    }
    let program = Program::load(router, "rwm1");
    if program.is_none() {
        skip::test!("this kernel has no XDP programs, or not for this user");
    }
    let shaper = "tc qdisc replace dev rwm0 root tbf rate 100mbit burst 10k latency 50ms";
    let has_shaper = router.succeeds(&shaper.split(' ').collect::<Vec<_>>());
    if !has_shaper {
        skip::test!("this kernel has no tbf, for a shaper");
    }
    let (json, said) = network.look(["soft:a", "soft:b"]);
    let is_told = |words: &str| json["kernel"]["remarks"].to_string().matches(words).count();
    assert_eq!(is_told("rwm0 is part of a bridge"), usize::from(has_bridge), "{json}");
    assert_eq!(is_told("IPv4 that comes in by rwm1 is the kernel's"), 1, "{json}");
    assert_eq!(is_told("all of IPv6 is the kernel's: rules"), usize::from(has_rules), "{json}");
    assert_eq!(is_told("all of IPv4 is the kernel's: rules"), 0, "{json}");
    for (words, has) in [
        ("rp_filter is set for rwm0: ", true),
        ("nftables has rules", has_filters),
        ("tc has filters on rwm1 ", has_filters),
        ("tc shapes or queues what leaves by rwm0 (tbf) ", has_shaper),
        ("iptables has tables ", has_tables),
        ("there are XDP programs on rwm1 ", program.is_some()),
    ] {
        assert_eq!(said.matches(words).count(), usize::from(has), "{words}: {said}");
    }
}

/// What a virtual function is not trusted with shows in what a router needs.
#[test]
fn functions_that_are_not_trusted_are_named() {
    let Some(network) = Network::new() else { return };
    let (json, said) = network.look(["soft:a?id=10ed&trust=off", "soft:b?id=10ed&trust=on"]);
    let remarks = json["kernel"]["remarks"].as_array().expect("a list");
    let of = |port: &str| remarks.iter().filter_map(Value::as_str).find(|remark| remark.starts_with(port));
    let untrusted = of("soft:a").expect("a remark");
    assert!(
        untrusted.contains("30 of the groups") && untrusted.contains("ip link set PF vf N trust on"),
        "{remarks:?}"
    );
    assert!(of("soft:b").is_none_or(|remark| !remark.contains("30 of the groups")), "{remarks:?}");
    assert!(said.contains(untrusted), "{said}");
}

/// Neighbours ask for the router by groups, which such a function hears only if it asks for them.
#[test]
fn functions_that_are_not_trusted_hear_what_linux_has_joined() {
    let Some(network) = Network::new() else { return };
    let Network { router, hosts: [left, right] } = &network;
    // More than the physical function takes, behind those of the addresses, which Linux joins a moment later.
    eventually("groups are joined", || router.succeeds(&["grep", "-q", "rwm0 .*3333ff000001", "/proc/net/dev_mcast"]));
    router.output(&["sh", "-c", "for n in $(seq 10 49); do ip maddr add 33:33:00:00:00:$n dev rwm0; done"]);
    let mut run = start(router, &network.hosts, "id=1515&trust=off&");
    eventually("the router is found", || left.pings("2001:db8:821::1", &[]) && left.pings(RIGHT[1], &[]));

    for address in ["2001:db8:822::a:b:c", "2001:db8:822::d:e:f"] {
        router.output(&["ip", "address", "add", &format!("{address}/64"), "dev", TWINS[1], "nodad"]);
        eventually("a new address is found", || right.pings(address, &[]));
    }
    left.output(&["ip", "-6", "neigh", "flush", "dev", WIRES[0]]);
    eventually("what was joined first is heard", || left.pings("2001:db8:821::1", &[]));
    let (_, said) = stop(&mut run);
    assert_eq!(said.matches("soft:rwma: not all groups that Linux has joined are received").count(), 1, "{said}");
    assert!(said.contains("the physical function takes 30"), "{said}");
}

/// Has the kernel make the table `filter` of iptables, as a look at it does (`IPT_SO_GET_INFO`).
const TABLE: &str = r#"
import ctypes, socket, sys
libc = ctypes.CDLL(None)
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
info, size = ctypes.create_string_buffer(b"filter", 84), ctypes.c_uint(84)
sys.exit(libc.getsockopt(wire.fileno(), 0, 64, info, ctypes.byref(size)) != 0)
"#;

/// Has packets of an interface go by a program that passes all of them (bpf(2): `BPF_PROG_LOAD`, `BPF_LINK_CREATE`), until its input ends.
const PASS: &str = r#"
import ctypes, os, platform, socket, struct, sys
libc = ctypes.CDLL(None)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
def bpf(command, attributes):
    done = libc.syscall(number, command, attributes.ljust(128, bytes(1)), 128)
    return done if done >= 0 else sys.exit(1)
code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xb7, 0, 0, 2, 0x95, 0, 0, 0))
licence = ctypes.create_string_buffer(b"GPL")
program = bpf(5, struct.pack("=IIQQ", 6, 2, ctypes.addressof(code), ctypes.addressof(licence)))
bpf(28, struct.pack("=IIII", program, socket.if_nametoindex(sys.argv[1]), 37, 0))
print("attached", flush=True)
sys.stdin.read()
"#;

/// An XDP program, until this is dropped.
struct Program {
    _holder: Process,
}

impl Program {
    /// Returns `None` where there can be none.
    fn load(namespace: &Namespace, interface: &str) -> Option<Self> {
        let mut command = namespace.command(&["python3", "-c", PASS, interface]);
        let mut holder = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("nsenter starts"));
        let mut said = String::new();
        BufReader::new(holder.0.stdout.take().expect("piped")).read_line(&mut said).expect("text");
        (said == "attached\n").then_some(Self { _holder: holder })
    }
}

/// Two hosts, and a router that has twins.
struct Network {
    router: Namespace,
    hosts: [Namespace; 2],
}

impl Network {
    /// Makes it, unless this host cannot; then says why.
    fn new() -> Option<Self> {
        if let Err(reason) = namespaces_possible(&["ping", "nft", "tc", "python3"]) {
            skip::test!("{reason}");
            return None;
        }
        let network = Self { router: Namespace::new(), hosts: [Namespace::new(), Namespace::new()] };
        set_up(&network.router);
        Some(network)
    }

    fn start(&self) -> Process {
        start(&self.router, &self.hosts, "")
    }

    /// Runs with these ports for a second, once it has read the tables in that. Returns its object, and what it has said.
    fn look(&self, ports: [&str; 2]) -> (Value, String) {
        let program = fwd().to_str().expect("a path in UTF-8");
        let kernel = format!("--kernel={}", TWINS.join(","));
        let words = [program, "l3", ports[0], ports[1], &kernel, "--quiet", "--json", "--duration", "1"];
        let (mut json, mut said) = (Value::Null, String::new());
        eventually("the tables are read", || {
            let output = self.router.command(&words).output().expect("nsenter starts");
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{said}");
            json = serde_json::from_slice(&output.stdout).expect("an object");
            json["kernel"]["ready"] == true
        });
        (json, said)
    }
}

/// Twins with their addresses.
fn set_up(router: &Namespace) {
    let settings = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(|path| format!("echo 1 > /proc/sys/net/{path}"));
    let settings = format!("{}; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter", settings.join("; "));
    router.output(&["sh", "-c", &settings]);
    for (at, twin) in (1..).zip(TWINS) {
        router.output(&["ip", "tuntap", "add", twin, "mode", "tap"]);
        router.output(&["ip", "link", "set", twin, "up"]);
        router.output(&["ip", "address", "add", &format!("10.82.{at}.1/24"), "dev", twin]);
        router.output(&["ip", "address", "add", &format!("2001:db8:82{at}::1/64"), "dev", twin, "nodad"]);
    }
}

/// Makes rules that change nothing. Returns whether this kernel has what they need.
fn filter(router: &Namespace) -> bool {
    let rules =
        "add table inet t; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c counter";
    let filter = "tc filter add dev rwm1 ingress protocol ip prio 1 u32 match u32 0 0 flowid 1:1";
    router.succeeds(&["nft", rules])
        && router.succeeds(&["tc", "qdisc", "add", "dev", "rwm1", "clsact"])
        && router.succeeds(&filter.split(' ').collect::<Vec<_>>())
}

/// Starts it on software NICs that are so.
fn start(router: &Namespace, hosts: &[Namespace; 2], kind: &str) -> Process {
    let program = fwd().to_str().expect("a path in UTF-8");
    let kernel = format!("--kernel={}", TWINS.join(","));
    let ports = WIRES.map(|wire| format!("soft:{wire}?{kind}wire=tap:{wire}"));
    let words = [program, "l3", &ports[0], &ports[1], &kernel, "--quiet", "--json", "--duration", "600"];
    let mut command = router.command(&words);
    let run = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
    for ((at, host), wire) in (1..).zip(hosts).zip(WIRES) {
        eventually("fwd makes its wires", || router.succeeds(&["ip", "link", "show", wire]));
        router.output(&["ip", "link", "set", wire, "netns", &host.holder().to_string()]);
        host.output(&["ip", "link", "set", wire, "up"]);
        host.output(&["ip", "address", "add", &format!("10.82.{at}.2/24"), "dev", wire]);
        host.output(&["ip", "address", "add", &format!("2001:db8:82{at}::2/64"), "dev", wire, "nodad"]);
        host.output(&["ip", "route", "add", "default", "via", &format!("10.82.{at}.1")]);
        host.output(&["ip", "-6", "route", "add", "default", "via", &format!("2001:db8:82{at}::1")]);
    }
    run
}

/// Frames that the router's Linux has received by its twins.
fn seen(router: &Namespace) -> u64 {
    TWINS.iter().map(|twin| received(router, twin)).sum()
}

/// Ends it as a user would. Returns its object, and what it has said.
fn stop(run: &mut Process) -> (Value, String) {
    run.signal(Signal::INT);
    let status = run.wait(Duration::from_secs(120)).expect("fwd ends after SIGINT");
    let (mut object, mut said) = (String::new(), String::new());
    run.0.stdout.take().expect("piped").read_to_string(&mut object).expect("text");
    run.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(0), "{said}");
    (serde_json::from_str(&object).expect("an object"), said)
}
