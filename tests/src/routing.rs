//! BIRD and FRR as daemons of a namespace: OSPF, OSPFv3, BGP and BFD, with configuration and sockets in a temporary folder, and no
//! service of the machine.

use crate::{Namespace, Process, command};
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Whose daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// One program for all protocols.
    Bird,
    /// A program for each protocol, and one that speaks to the kernel.
    Frr,
}

/// What a router speaks. OSPF is on all links, with BFD.
#[derive(Clone, Copy, Debug)]
pub struct Speaker<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// Interfaces, and what OSPF takes each to cost.
    pub links: &'a [(&'a str, u32)],
    /// Tenths of a second without a word after which a link is broken for BFD: with few, a busy machine looks like that.
    pub bfd: u8,
    /// Addresses of `lo` that OSPF announces, IPv4 or IPv6.
    pub ospf: &'a [&'a str],
    /// The own autonomous system, and that of the peers.
    pub systems: [u32; 2],
    /// Addresses of the peers by BGP, of which each learns of addresses of its family.
    pub peers: &'a [&'a str],
    /// Addresses of `lo` that BGP announces.
    pub bgp: &'a [&'a str],
}

/// Daemons that run.
#[derive(Debug)]
pub struct Daemons {
    suite: Suite,
    /// The one that speaks to the kernel is the first to come, and the last to go.
    processes: Vec<Process>,
    folder: tempfile::TempDir,
}

/// A line more. Strings take all.
macro_rules! line {
    ($text:expr, $($words:tt)*) => { writeln!($text, $($words)*).expect("a string takes all") };
}

/// Where Debian has FRR's daemons.
const FRR: &str = "/usr/lib/frr";
/// Where each of them has a folder DAEMON.PID while it runs, which no option moves.
const SCRATCH: &str = "/var/tmp/frr";

impl Suite {
    /// Whether it is installed.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn possible(self) -> Result<(), String> {
        let there = match self {
            Self::Bird => command(&["bird", "--version"]).output().is_ok_and(|said| {
                [said.stdout, said.stderr].concat().windows(14).any(|words| words == b"BIRD version 2")
            }),
            Self::Frr => {
                Path::new(FRR).join("bfdd").exists()
                    && command(&["getent", "passwd", "frr"]).output().is_ok_and(|found| found.status.success())
            }
        };
        let (name, package) = match self {
            Self::Bird => ("BIRD 2", "bird2"),
            Self::Frr => ("FRR", "frr"),
        };
        if there {
            Ok(())
        } else {
            Err(format!("{name} is not installed (Debian's {package}); tests/setup installs it"))
        }
    }

    /// Starts its daemons in a namespace.
    ///
    /// # Panics
    ///
    /// When they cannot be started: see [`Self::possible`].
    #[must_use]
    pub fn start(self, namespace: &Namespace, speaker: &Speaker<'_>) -> Daemons {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut daemons = Daemons { suite: self, processes: Vec::new(), folder };
        match self {
            Self::Bird => daemons.bird(namespace, &bird(speaker)),
            Self::Frr => daemons.frr(namespace, speaker),
        }
        daemons
    }
}

impl Daemons {
    /// Returns what the daemons have written down, for a person who looks for the cause of a failure.
    #[must_use]
    pub fn logs(&self) -> String {
        let files = fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = files.filter(|file| file.extension().is_some_and(|extension| extension == "log"));
        let text = |file: PathBuf| format!("{}:\n{}", file.display(), fs::read_to_string(&file).unwrap_or_default());
        logs.map(text).collect()
    }

    /// Returns how many sessions of BFD are up, if it is BIRD; else none.
    ///
    /// # Panics
    ///
    /// If `birdc` cannot be started.
    #[must_use]
    pub fn bfd_sessions(&self) -> usize {
        let said = self.bird_says("show bfd sessions");
        said.lines().filter(|line| line.split_whitespace().nth(2) == Some("Up")).count()
    }

    /// Returns how many links between routers of a cost OSPF and OSPFv3 know, each from both its ends, if it is BIRD; else none.
    ///
    /// # Panics
    ///
    /// If `birdc` cannot be started.
    #[must_use]
    pub fn ospf_links(&self, cost: u32) -> usize {
        let said = ["ospf1", "ospf2"].map(|name| self.bird_says(&format!("show ospf topology {name}"))).concat();
        let cost = format!(" metric {cost}");
        said.lines().filter(|line| line.trim_start().starts_with("router ") && line.ends_with(&cost)).count()
    }

    /// Returns whether zebra has a route to an address, if it is FRR; else false.
    ///
    /// # Panics
    ///
    /// If `vtysh` cannot be started.
    #[must_use]
    pub fn has_route(&self, to: &str) -> bool {
        let words = format!("show {} route {to}", ["ip", "ipv6"][family(to)]);
        let said = command(&["vtysh", "--vty_socket", &self.path(""), "-c", &words]).output();
        String::from_utf8_lossy(&said.expect("vtysh starts").stdout).contains("Known via")
    }

    fn bird_says(&self, words: &str) -> String {
        let said = command(&["birdc", "-s", &self.path("control"), words]).output();
        String::from_utf8_lossy(&said.expect("birdc starts").stdout).into_owned()
    }

    /// Returns what they say of their sessions and routes now, for a person too.
    fn state(&self) -> String {
        let (program, at, ask): (_, _, &[&str]) = match self.suite {
            Suite::Bird => (
                ["birdc", "-s"],
                self.path("control"),
                &[
                    "show bfd sessions",
                    "show protocols",
                    "show ospf neighbors ospf1",
                    "show ospf neighbors ospf2",
                    "show ospf topology ospf1",
                    "show ospf topology ospf2",
                    "show route all",
                ],
            ),
            Suite::Frr => (
                ["vtysh", "--vty_socket"],
                self.path(""),
                &[
                    "show bfd peers",
                    "show bfd peers counters",
                    "show ip ospf neighbor",
                    "show ipv6 ospf6 neighbor",
                    "show bgp summary",
                    "show ip route",
                    "show ipv6 route",
                ],
            ),
        };
        let mut text = String::new();
        for words in ask {
            let command_option: &[&str] = if self.suite == Suite::Frr { &["-c"] } else { &[] };
            let said = command(&[&program, &[at.as_str()][..], command_option, &[*words]].concat()).output();
            let said = said.map(|said| [said.stdout, said.stderr].concat()).unwrap_or_default();
            line!(text, "{words}:\n{}", String::from_utf8_lossy(&said));
        }
        text
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn spawn(&mut self, namespace: &Namespace, words: &[&str], log: &str) {
        let log = fs::File::create(self.folder.path().join(log)).expect("a temporary file");
        let mut command = namespace.command(words);
        command.stdout(log.try_clone().expect("another descriptor")).stderr(log);
        self.processes.insert(0, Process(command.spawn().expect("nsenter starts")));
    }

    fn bird(&mut self, namespace: &Namespace, text: &str) {
        let (config, socket, pid) = (self.path("bird.conf"), self.path("control"), self.path("pid"));
        fs::write(&config, text).expect("a temporary file");
        self.spawn(namespace, &["bird", "-f", "-c", &config, "-s", &socket, "-P", &pid], "bird.log");
    }

    fn frr(&mut self, namespace: &Namespace, speaker: &Speaker<'_>) {
        // They give up being root, and make their sockets afterwards.
        let folder = self.folder.path().display().to_string();
        let owned = command(&["chown", "frr:frr", &folder]).status().expect("chown starts");
        assert!(owned.success(), "{folder} is given to frr");
        let (socket, server) = (self.path("bfdd.sock"), self.path("zserv.api"));
        let daemons = [
            ("zebra", String::new(), vec!["-s", "90000000"]),
            ("bfdd", frr_bfd(speaker), vec!["--bfdctl", &socket]),
            ("ospfd", frr_ospf(speaker, false), vec![]),
            ("ospf6d", frr_ospf(speaker, true), vec![]),
            ("bgpd", frr_bgp(speaker), vec![]),
        ];
        for (name, config, more) in &daemons {
            let (program, file) = (format!("{FRR}/{name}"), self.path(&format!("{name}.conf")));
            let pid = self.path(&format!("{name}.pid"));
            fs::write(&file, config).expect("a temporary file");
            let words = [&program, "-u", "frr", "-g", "frr", "-f", &file, "-i", &pid, "-z", &server];
            let words = [&words[..], &["--vty_socket", &folder, "--log", "stdout"], more].concat();
            self.spawn(namespace, &words, &format!("{name}.log"));
            if *name == "zebra" {
                crate::eventually("zebra listens", || Path::new(&server).exists());
            }
        }
    }
}

impl Drop for Daemons {
    /// Says what they know if the test has failed. Kills them, and removes what a daemon of FRR leaves that has been killed: the folder for its last words, by its process.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}, when the test failed:\n{}{}", self.suite, self.state(), self.logs());
        }
        let ids: Vec<String> = self.processes.iter().map(|process| process.0.id().to_string()).collect();
        self.processes.clear();
        for folder in fs::read_dir(SCRATCH).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if folder.extension().is_some_and(|id| ids.iter().any(|own| id == own.as_str())) {
                // Somebody else may have tidied up.
                let _ = fs::remove_dir_all(folder);
            }
        }
    }
}

fn family(address: &str) -> usize {
    match address.parse().expect("an address") {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

/// Those of `addresses` that are of a family.
fn of_family<'a>(addresses: &'a [&str], which: usize) -> impl Iterator<Item = &'a str> {
    addresses.iter().copied().filter(move |address| family(address) == which)
}

fn bird(speaker: &Speaker<'_>) -> String {
    let mut text = format!("router id {};\nlog stderr all;\n", speaker.id);
    line!(text, "protocol device {{ scan time 1; }}\nprotocol direct {{ ipv4; ipv6; interface \"lo\"; }}");
    let multiplier = speaker.bfd;
    line!(
        text,
        "protocol bfd {{ debug {{ events }}; interface \"*\" {{ interval 100 ms; multiplier {multiplier}; }}; }}"
    );
    for (which, (channel, version, bits)) in [("ipv4", "v2", 32), ("ipv6", "v3", 128)].into_iter().enumerate() {
        let set = |addresses: &[&str]| {
            let nets: Vec<String> =
                of_family(addresses, which).map(|address| format!("net = {address}/{bits}")).collect();
            if nets.is_empty() { "none".to_owned() } else { format!("where {}", nets.join(" || ")) }
        };
        line!(text, "protocol kernel {{ {channel} {{ export where source != RTS_DEVICE; }}; merge paths yes; }}");
        line!(
            text,
            "protocol ospf {version} {{ debug {{ events }}; ecmp yes; {channel} {{ import all; export {}; }}; area 0 {{",
            set(speaker.ospf)
        );
        for (interface, cost) in speaker.links {
            line!(text, "interface \"{interface}\" {{ cost {cost}; hello 1; dead count 10; type ptp; bfd yes; }};");
        }
        line!(text, "}}; }}");
        for peer in of_family(speaker.peers, which) {
            let [own, other] = speaker.systems;
            line!(text, "protocol bgp {{ local as {own}; neighbor {peer} as {other}; hold time 30; bfd yes;");
            line!(text, "connect delay time 1; connect retry time 2; error wait time 1, 2;");
            line!(text, "{channel} {{ import all; export {}; }}; }}", set(speaker.bgp));
        }
    }
    text
}

fn frr_bfd(speaker: &Speaker<'_>) -> String {
    let multiplier = speaker.bfd;
    format!("bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n  detect-multiplier {multiplier}\n")
}

fn frr_ospf(speaker: &Speaker<'_>, v6: bool) -> String {
    let (prefix, protocol, bits) = if v6 { ("ipv6 ospf6", "ospf6", 128) } else { ("ip ospf", "ospf", 32) };
    let list = if v6 { "ipv6" } else { "ip" };
    let mut text = String::new();
    for (interface, cost) in speaker.links {
        line!(
            text,
            "interface {interface}\n {prefix} area 0\n {prefix} network point-to-point\n {prefix} hello-interval 1"
        );
        line!(text, " {prefix} dead-interval 10\n {prefix} cost {cost}\n {prefix} bfd\n {prefix} bfd profile fast");
    }
    for (number, address) in of_family(speaker.ospf, v6.into()).enumerate() {
        line!(text, "{list} prefix-list own seq {} permit {address}/{bits}", number + 1);
    }
    line!(text, "route-map announced permit 10\n match {list} address prefix-list own");
    line!(text, "router {protocol}\n {protocol} router-id {}\n timers throttle spf 50 100 500", speaker.id);
    line!(text, " redistribute connected route-map announced");
    text
}

fn frr_bgp(speaker: &Speaker<'_>) -> String {
    let [own, other] = speaker.systems;
    let mut text = format!("router bgp {own}\n bgp router-id {}\n no bgp ebgp-requires-policy\n", speaker.id);
    line!(text, " no bgp default ipv4-unicast\n no bgp network import-check");
    for peer in speaker.peers {
        line!(
            text,
            " neighbor {peer} remote-as {other}\n neighbor {peer} timers 3 30\n neighbor {peer} timers connect 2"
        );
        line!(text, " neighbor {peer} bfd profile fast");
    }
    for (which, (name, bits)) in [("ipv4", 32), ("ipv6", 128)].into_iter().enumerate() {
        line!(text, " address-family {name} unicast");
        of_family(speaker.bgp, which).for_each(|address| line!(text, "  network {address}/{bits}"));
        of_family(speaker.peers, which).for_each(|peer| line!(text, "  neighbor {peer} activate"));
    }
    text
}
