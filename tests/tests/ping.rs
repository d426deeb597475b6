//! `pktgen` at one end of a TAP interface and Linux at the other: pings by the port and by the kernel, and ports that are hosts while
//! they send, receive and measure. Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;
use tests::{Namespace, Process, eventually, namespaces_possible, pktgen};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn namespace() -> Option<Namespace> {
    if let Err(reason) = namespaces_possible(&["ping"]) {
        skip::test!("{reason}");
        return None;
    }
    let namespace = Namespace::new();
    namespace.output(&["ip", "link", "set", "lo", "up"]);
    Some(namespace)
}

/// `pktgen` in a namespace.
struct Pktgen(Process);

impl Pktgen {
    fn start(namespace: &Namespace, words: &[&str]) -> Self {
        let program = pktgen().to_str().expect("a path in UTF-8");
        let mut command = namespace.command(&[&[program], words, &["--json", "--quiet"]].concat());
        Self(Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pktgen starts")))
    }

    /// Gives interfaces that it makes addresses, without waiting for others to object, and sets them up.
    fn connect(self, namespace: &Namespace, interface: &str, addresses: &[&str]) -> Self {
        eventually("pktgen makes the interface", || namespace.succeeds(&["ip", "link", "show", interface]));
        for address in addresses {
            let words = ["ip", "address", "add", address, "dev", interface];
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            namespace.output(&[&words[..], nodad].concat());
        }
        namespace.output(&["ip", "link", "set", interface, "up"]);
        self
    }

    /// Its exit code, its object and its errors.
    fn end(mut self) -> (Option<i32>, Value, String) {
        let status = self.0.wait(PATIENCE).expect("pktgen ends");
        let (mut object, mut errors) = (String::new(), String::new());
        self.0.0.stdout.take().expect("piped").read_to_string(&mut object).expect("text");
        self.0.0.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
        (status.code(), serde_json::from_str(&object).unwrap_or(Value::Null), errors)
    }
}

/// Linux pings addresses until each has answered once.
fn pinged(namespace: &Namespace, addresses: &[&str]) {
    for address in addresses {
        eventually("a ping is answered", || namespace.pings(address, &[]));
        let said = namespace.output(&["ping", "-c", "20", "-i", "0.02", "-w", "60", "-s", "1000", address]);
        // With a deadline ping goes on while answers are late, and ends without those to its last requests.
        let is_answer =
            |line: &str, request| line.contains(" bytes from ") && line.contains(&format!(" icmp_seq={request} "));
        let is_answered = |request| said.lines().any(|line| is_answer(line, request));
        assert!((1..=20).all(is_answered) && !said.contains("DUP!"), "{said}");
    }
}

/// Frames that Linux has received by an interface.
fn received(namespace: &Namespace, interface: &str) -> u64 {
    let text = namespace.output(&["ip", "-json", "-statistics", "link", "show", "dev", interface]);
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).expect("a count")
}

#[test]
fn linux_answers_pings_by_a_port_and_by_its_own_path() {
    for (own, theirs, kernel) in [("10.81.0.2/24", "10.81.0.1", "127.0.0.1"), ("fd00:81::2/64", "fd00:81::1", "::1")] {
        let Some(namespace) = namespace() else { return };
        let kernel = format!("--kernel={kernel}");
        let words = ["ping", "soft:a?wire=tap:rwping", theirs, "--source", own, "--count", "50", "--interval", "2ms"];
        let run = Pktgen::start(&namespace, &[&words[..], &[&kernel, "--timeout", "30s"]].concat());
        let run = run.connect(&namespace, "rwping", &["10.81.0.1/24", "fd00:81::1/64"]);
        let (code, object, errors) = run.end();
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{object}");
        let paths = object["paths"].as_array().expect("both paths");
        assert_eq!(paths.iter().map(|path| &path["path"]).collect::<Vec<_>>(), ["bypass", "kernel"]);
        for path in paths {
            for (field, count) in [("sent", 50), ("received", 50), ("lost", 0), ("duplicate", 0), ("damaged", 0)] {
                assert_eq!(path[field], count, "{field}: {path}");
            }
            let figure = |name: &str| path["latency_ns"][name].as_f64().expect("a figure");
            let rising = ["min", "p50", "p90", "p99", "max"].map(figure);
            assert!(rising.is_sorted() && rising[0] > 0.0 && figure("mean") > 0.0, "{path}");
        }
    }
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let Some(namespace) = namespace() else { return };
    let words = ["ping", "soft:a?wire=tap:rwnone", "10.81.0.9", "--source", "10.81.0.2/24"];
    let run = Pktgen::start(&namespace, &words).connect(&namespace, "rwnone", &["10.81.0.1/24"]);
    let (code, object, errors) = run.end();
    assert_eq!((code, errors.lines().count()), (Some(1), 1), "{object} {errors}");
    assert!(errors.contains("10.81.0.9: no answer to 3 ARP requests"), "{errors}");
}

#[test]
fn a_signal_ends_pings_with_the_table() {
    let Some(namespace) = namespace() else { return };
    let words = ["ping", "soft:a?wire=tap:rwint", "10.81.0.1", "--source", "10.81.0.2/24", "--timeout", "30s"];
    let run = Pktgen::start(&namespace, &[&words[..], &["--count", "1000000"]].concat());
    let run = run.connect(&namespace, "rwint", &["10.81.0.1/24"]);
    eventually("pings arrive", || received(&namespace, "rwint") > 20);
    run.0.signal(Signal::INT);
    let (code, object, errors) = run.end();
    assert_eq!((code, &object["paths"][0]["lost"]), (Some(0), &Value::from(0)), "{object} {errors}");
    assert!(object["warnings"][0].as_str().expect("a warning").contains("a signal"), "{object}");
}

#[test]
fn a_port_that_receives_or_sends_is_a_host() {
    let Some(namespace) = namespace() else { return };
    let own = ["--answer", "10.82.0.2/24+fd00:82::2/64"];
    let run = Pktgen::start(&namespace, &[&["rx", "soft:a?wire=tap:rwrx"][..], &own].concat());
    let run = run.connect(&namespace, "rwrx", &["10.82.0.1/24", "fd00:82::1/64"]);
    pinged(&namespace, &["10.82.0.2", "fd00:82::2"]);
    run.0.signal(Signal::INT);
    let (code, object, errors) = run.end();
    assert_eq!((code, &object["numbered"]["received"]), (Some(0), &Value::from(0)), "{errors}");

    // Linux takes frames for its own MAC address only, so that of the router was found.
    let to = ["--gateway", "10.83.0.1", "--dst-ip", "10.83.0.1", "--rate", "500"];
    let own = ["--answer", "10.83.0.2/24+fd00:83::2/64"];
    let run = Pktgen::start(&namespace, &[&["tx", "soft:a?wire=tap:rwtx"][..], &own, &to].concat());
    let run = run.connect(&namespace, "rwtx", &["10.83.0.1/24", "fd00:83::1/64"]);
    pinged(&namespace, &["10.83.0.2", "fd00:83::2"]);
    let no_port = || {
        let text = namespace.output(&["cat", "/proc/net/snmp"]);
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
        let (names, mut values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.clone().position(|name| name == "NoPorts").expect("a count of them");
        values.nth(at).and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    eventually("frames for Linux arrive", || no_port() > 100);
    run.0.signal(Signal::INT);
    let (code, object, errors) = run.end();
    assert!(code == Some(0) && object["sent"].as_u64() > Some(100), "{object} {errors}");
}

#[test]
fn both_ports_of_a_run_are_hosts() {
    let Some(namespace) = namespace() else { return };
    // A bridge between them, which is the host that pings both.
    namespace.output(&["ip", "link", "add", "rwbridge", "type", "bridge"]);
    for address in ["10.84.0.1/24", "fd00:84::1/64"] {
        let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        namespace.output(&[&["ip", "address", "add", address, "dev", "rwbridge"], nodad].concat());
    }
    namespace.output(&["ip", "link", "set", "rwbridge", "up"]);
    for (way, addresses) in [(None, ["10.84.0.2", "10.84.0.3"]), (Some("--one-way"), ["10.84.0.4", "fd00:84::3"])] {
        let own = format!(
            "{}/24+fd00:84::9/64,{}",
            addresses[0],
            if way.is_some() { "fd00:84::3/64" } else { "10.84.0.3/24" }
        );
        let words = ["run", "soft:a?wire=tap:rwa", "soft:b?wire=tap:rwb", "--rate", "500", "--warm-up", "0s"];
        let mut run = Pktgen::start(
            &namespace,
            &[&words[..], &["--duration", "1000s", "--answer", &own], way.as_slice()].concat(),
        );
        for tap in ["rwa", "rwb"] {
            run = run.connect(&namespace, tap, &[]);
            namespace.output(&["ip", "link", "set", tap, "master", "rwbridge"]);
        }
        pinged(&namespace, &addresses);
        // What passes is probes first, and counts as soon as one has come.
        let probes = received(&namespace, "rwa");
        eventually("frames pass the bridge", || received(&namespace, "rwa") > probes + 200);
        run.0.signal(Signal::INT);
        let (_, object, errors) = run.end();
        let direction = &object["directions"][0];
        assert!(direction["received"].as_u64() > Some(0), "{object} {errors}");
    }
}

/// Linux as the router between both ports, as the manual's example has it; it drops what does not come from where it would answer.
#[test]
fn a_router_with_strict_reverse_paths_passes_what_ports_send() {
    let Some(namespace) = namespace() else { return };
    namespace.output(&["sh", "-c", "cd /proc/sys/net/ipv4; echo 1 >ip_forward; echo 1 >conf/all/rp_filter"]);
    let addresses = ["--answer", "198.18.0.2/24,198.19.0.2/24", "--gateway", "198.18.0.1,198.19.0.1"];
    let to = ["--dst-ip", "198.19.0.2,198.18.0.2", "--rate", "500", "--count", "200", "--flows", "50"];
    let run = Pktgen::start(
        &namespace,
        &[&["run", "soft:a?wire=tap:rwa", "soft:b?wire=tap:rwb"][..], &addresses, &to].concat(),
    );
    let run = run.connect(&namespace, "rwa", &["198.18.0.1/24"]).connect(&namespace, "rwb", &["198.19.0.1/24"]);
    let (code, object, errors) = run.end();
    assert_eq!(code, Some(0), "{object} {errors}");
    for direction in object["directions"].as_array().expect("two of them") {
        assert!(direction["received"] == 200 && direction["lost"] == 0, "{object} {errors}");
    }
}
