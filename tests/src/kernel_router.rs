//! `fwd l3 --kernel` in a network namespace of its own, whose stations are Linux in others.

use crate::{Fwd, Namespace, Process, eventually, fwd};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A port of the router, and who is at the other end of its wire.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The interface of the station.
    pub wire: &'static str,
    /// The twin of the port.
    pub twin: &'static str,
    /// Addresses of the router, IPv4 and IPv6; the networks have 24 and 64 bits.
    pub router: [&'static str; 2],
    /// Addresses of the station.
    pub station: [&'static str; 2],
}

/// The router. Its twins are there before it starts, and stay with their addresses and routes when it ends.
#[derive(Debug)]
pub struct KernelRouter {
    // Dropped in this order: the program before its namespace.
    run: Option<Process>,
    /// Where it runs.
    pub namespace: Namespace,
    links: Vec<Link>,
    /// Names of further twins, and the ports that they stand for.
    others: Vec<[String; 2]>,
    /// Which lcore polls which queue, if that is said.
    lcores: Option<String>,
}

impl KernelRouter {
    /// One that does not run yet.
    ///
    /// # Panics
    ///
    /// When the namespace cannot be set up; see [`namespaces_possible`](crate::namespaces_possible).
    #[must_use]
    pub fn new(links: &[Link]) -> Self {
        let namespace = Namespace::new();
        let router = Self { run: None, namespace, links: links.to_vec(), others: Vec::new(), lcores: None };
        let settings = ["ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0"];
        settings.iter().for_each(|setting| set(&router.namespace, setting));
        // Errors without a pause.
        ["ipv4/icmp_ratemask=0", "ipv6/icmp/ratelimit=0"].iter().for_each(|setting| set(&router.namespace, setting));
        router.namespace.output(&["ip", "link", "set", "lo", "up"]);
        for Link { twin, router: own, .. } in links {
            router.add_twin(twin, own);
        }
        router
    }

    fn add_twin(&self, twin: &str, own: &[&str; 2]) {
        self.namespace.output(&["ip", "tuntap", "add", twin, "mode", "tap"]);
        self.namespace.output(&["ip", "link", "set", twin, "up"]);
        address(&self.namespace, twin, own);
    }

    /// Adds a port that is no wire, behind those of the links, with a twin of this name and these addresses; without any, the program makes
    /// the twin itself when it starts.
    ///
    /// # Panics
    ///
    /// When the twin cannot be made.
    pub fn add_port(&mut self, twin: &str, own: Option<&[&str; 2]>, port: &str) {
        if let Some(own) = own {
            self.add_twin(twin, own);
        }
        self.others.push([twin.to_owned(), port.to_owned()]);
    }

    /// Says which lcore polls which queue: triples of port, queue and lcore, as `fwd l3 --lcores` takes them.
    pub fn set_lcores(&mut self, triples: &str) {
        self.lcores = Some(triples.to_owned());
    }

    /// Starts it, and connects its wires to the stations, one for each link.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start(&mut self, stations: &[&Namespace]) {
        let program = fwd().to_str().expect("a path in UTF-8");
        let ports = self.links.iter().map(|link| format!("soft:{0}?wire=tap:{0}", link.wire));
        let twins = self.links.iter().map(|link| link.twin).chain(self.others.iter().map(|[twin, _]| twin.as_str()));
        let kernel = format!("--kernel={}", twins.collect::<Vec<_>>().join(","));
        let ports: Vec<String> = ports.chain(self.others.iter().map(|[_, port]| port.clone())).collect();
        let mut words = vec![program, "l3", &kernel, "--json", "--quiet", "--duration", "900"];
        words.extend(ports.iter().map(String::as_str));
        words.extend(self.lcores.iter().flat_map(|triples| ["--lcores", triples]));
        let mut command = self.namespace.command(&words);
        let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts");
        let mut run = Process(run);
        for (link, station) in self.links.iter().zip(stations) {
            let wire = link.wire;
            eventually("fwd makes its wires", || {
                run.still_runs();
                self.namespace.succeeds(&["ip", "link", "show", wire])
            });
            self.namespace.output(&["ip", "link", "set", wire, "netns", &station.holder().to_string()]);
            if !station.succeeds(&["ip", "link", "set", wire, "up"]) {
                run.still_runs();
                panic!("{wire} is not there, although fwd runs");
            }
            address(station, wire, &link.station);
        }
        self.run = Some(run);
    }

    /// Sends the program a signal.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        self.run.as_ref().expect("it runs").signal(signal);
    }

    /// Kills it as it is, and its wires with it.
    pub fn kill(&mut self) {
        self.run = None;
    }

    /// Packets that the router's Linux has forwarded, as its ports did not.
    ///
    /// # Panics
    ///
    /// When Linux does not count them.
    #[must_use]
    pub fn forwarded_by_the_host(&self) -> u64 {
        let text = self.namespace.output(&["cat", "/proc/net/snmp", "/proc/net/snmp6"]);
        // Two lines of IPv4: names, and numbers in their order.
        let mut v4 = text.lines().filter(|line| line.starts_with("Ip:")).map(str::split_whitespace);
        let (mut names, mut numbers) = (v4.next().expect("names"), v4.next().expect("numbers"));
        let v4 = names.position(|name| name == "ForwDatagrams").and_then(|at| numbers.nth(at));
        let v6 = text.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
        let count = |number: Option<&str>| number.and_then(|number| number.trim().parse::<u64>().ok());
        count(v4).expect("a count of IPv4") + count(v6).expect("a count of IPv6")
    }

    /// Ends it as a user would, and holds it to its account.
    ///
    /// # Panics
    ///
    /// When that does not add up, or it has ended before.
    pub fn stop(&mut self) -> Fwd {
        let run = self.run.as_mut().expect("it runs");
        run.still_runs();
        run.signal(Signal::INT);
        let run = self.ended();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run
    }

    /// Waits until it has ended, and holds it to its account.
    ///
    /// # Panics
    ///
    /// When that does not add up, or it goes on.
    pub fn ended(&mut self) -> Fwd {
        let mut run = self.run.take().expect("it was started");
        let status = run.wait(PATIENCE).expect("fwd ends");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        run.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        run.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        let json = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        let run = Fwd { code: status.code(), json, stderr };
        println!("{}\n{}", run.json, run.stderr);
        let account = run.count("/forwarded") + run.count("/to_host") + run.drops();
        assert_eq!(run.count("/received"), account, "{}", run.json);
        run
    }
}

impl Drop for KernelRouter {
    /// Says what Linux knew, if the test has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for words in [["-4", "route"], ["-6", "route"], ["-d", "nexthop"], ["-s", "neighbour"]] {
                let said = self.namespace.command(&[&["ip"], &words[..]].concat()).output();
                let said = said.map(|said| [said.stdout, said.stderr].concat()).unwrap_or_default();
                println!("{words:?}, when the test failed:\n{}", String::from_utf8_lossy(&said));
            }
        }
    }
}

/// Frames that Linux has received by an interface.
///
/// # Panics
///
/// When there is none of that name.
#[must_use]
pub fn received(namespace: &Namespace, interface: &str) -> u64 {
    let text = namespace.output(&["ip", "-json", "-statistics", "link", "show", "dev", interface]);
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).expect("ip counts frames")
}

/// Sets `PATH=VALUE` below `/proc/sys/net`.
///
/// # Panics
///
/// When there is no such setting.
pub fn set(namespace: &Namespace, setting: &str) {
    let (path, value) = setting.split_once('=').expect("PATH=VALUE");
    namespace.output(&["sh", "-c", &format!("echo {value} > /proc/sys/net/{path}")]);
}

fn address(namespace: &Namespace, interface: &str, addresses: &[&str; 2]) {
    for (address, bits) in addresses.iter().zip(["24", "64"]) {
        namespace.output(&["ip", "address", "replace", &format!("{address}/{bits}"), "dev", interface, "nodad"]);
    }
}
