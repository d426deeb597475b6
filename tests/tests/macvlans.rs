//! `fwd l3 --kernel` beside what Linux has on a twin and does with it: a macvlan as gateway, an MTU for IPv6 alone, filters of which `fwd`
//! warns, another name, another namespace. Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;
use tests::{Namespace, Process, eventually, fwd, namespaces_possible};

const TWINS: [&str; 2] = ["rwm0", "rwm1"];
const WIRES: [&str; 2] = ["rwma", "rwmb"];
/// The address of the macvlan, which is the left host's gateway.
const GATEWAY: &str = "02:00:00:00:82:09";

#[test]
fn what_linux_has_on_a_twin_is_obeyed_or_named() {
    if let Err(reason) = namespaces_possible(&["ping", "nft", "tc"]) {
        skip::test!("{reason}");
        return;
    }
    let (hosts, router) = ([Namespace::new(), Namespace::new()], Namespace::new());
    set_up(&router);
    let macvlan = ["ip", "link", "add", "link", TWINS[0], "name", "rwmv", "address", GATEWAY, "type", "macvlan"];
    if !router.succeeds(&macvlan) {
        skip::test!("this kernel has no macvlan");
        return;
    }
    router.output(&["ip", "link", "set", "rwmv", "up"]);
    router.output(&["ip", "address", "add", "10.82.1.9/32", "dev", "rwmv"]);
    if !filter(&router) {
        skip::test!("this kernel has no nf_tables, clsact or u32");
        return;
    }

    let mut run = start(&router, &hosts);
    let [left, _] = &hosts;
    let answers = |words: &[&str]| left.succeeds(&[&["ping", "-q", "-i", "0.005", "-W", "2"][..], words].concat());
    // Frames to the macvlan's address, of both families, once its neighbour is told so by hand.
    left.output(&["ip", "neigh", "replace", "10.82.1.1", "lladdr", GATEWAY, "dev", WIRES[0]]);
    left.output(&["ip", "neigh", "replace", "2001:db8:821::1", "lladdr", GATEWAY, "dev", WIRES[0]]);
    for to in ["10.82.2.2", "2001:db8:822::2"] {
        eventually("the ports forward what is sent to the macvlan", || {
            let before = seen(&router);
            answers(&["-c", "50", to]) && seen(&router) - before < 25
        });
    }
    eventually("and Linux answers for its address", || answers(&["-c", "1", "10.82.1.9"]));

    // Of mode `source` it takes frames of no station, as none is named.
    for (mode, takes) in [("source", false), ("bridge", true)] {
        router.output(&["ip", "link", "set", "rwmv", "type", "macvlan", "mode", mode]);
        for to in ["10.82.2.2", "2001:db8:822::2"] {
            eventually("a macvlan takes what its mode says", || answers(&["-c", "1", "-W", "0.2", to]) == takes);
        }
    }

    // 1,400 bytes of IPv6 no longer pass, of IPv4 they do.
    router.output(&["sh", "-c", "echo 1300 > /proc/sys/net/ipv6/conf/rwm1/mtu"]);
    eventually("a packet of IPv6 that is too long is answered", || {
        let ping = ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1352", "2001:db8:822::2"];
        let said = left.command(&ping).output().expect("nsenter starts");
        String::from_utf8_lossy(&said.stdout).contains("mtu") || String::from_utf8_lossy(&said.stderr).contains("mtu")
    });
    eventually("one of IPv4 is not", || answers(&["-c", "5", "-M", "do", "-s", "1400", "10.82.2.2"]));

    // Under another name it is the same twin; in another namespace it is gone, and its port is closed.
    for words in [["set", "rwm1", "down"].as_slice(), &["set", "rwm1", "name", "rwmx"], &["set", "rwmx", "up"]] {
        router.output(&[&["ip", "link"], words].concat());
    }
    eventually("a twin with another name stands for its port", || answers(&["-c", "1", "10.82.2.2"]));
    let elsewhere = Namespace::new();
    router.output(&["ip", "link", "set", "rwmx", "netns", &elsewhere.holder().to_string()]);
    eventually("a twin in another namespace does not", || !answers(&["-c", "1", "10.82.2.2"]));
    eventually("the other port goes on", || answers(&["-c", "1", "10.82.1.1"]));

    let said = stop(&mut run);
    for word in ["nftables has rules", "tc has filters on rwm1 "] {
        assert_eq!(said.matches(word).count(), 1, "{said}");
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

fn start(router: &Namespace, hosts: &[Namespace; 2]) -> Process {
    let program = fwd().to_str().expect("a path in UTF-8");
    let kernel = format!("--kernel={}", TWINS.join(","));
    let ports = WIRES.map(|wire| format!("soft:{wire}?wire=tap:{wire}"));
    let words = [program, "l3", &ports[0], &ports[1], &kernel, "--quiet", "--json", "--duration", "600"];
    let mut command = router.command(&words);
    let run = Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
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
    let seen = TWINS.map(|twin| {
        let text = router.output(&["ip", "-json", "-statistics", "link", "show", "dev", twin]);
        let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
        links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).expect("ip counts frames")
    });
    seen.iter().sum()
}

/// Ends it as a user would. Returns what it has said.
fn stop(run: &mut Process) -> String {
    run.signal(Signal::INT);
    let status = run.wait(Duration::from_secs(120)).expect("fwd ends after SIGINT");
    let mut said = String::new();
    run.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(0), "{said}");
    said
}
