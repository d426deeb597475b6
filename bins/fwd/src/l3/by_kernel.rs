//! Routes of Linux: each port has a twin, a TAP interface, and what Linux routes between the twins is routed between the ports.

use super::Opening;
use super::groups::Groups;
use super::host::ByKernel;
use super::kernel_report::{KernelReport, Told};
use super::vlans::Vlans;
use crate::args::L3Args;
use crate::summary::{self, Tables};
use anyhow::anyhow;
use cli::exit::Failure;
use cli::ports;
use cli::run::OnLink;
use cli::stop::Stop;
use nic::{AnyPort, LinkStatus, Opened, Port as _};
use plane::{Handle, Runner};
use router::{LiveConfig, LiveFib};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fmt::Display;
use std::fs;
use std::hash::BuildHasher as _;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use twin::{Port, Running, Settings, Twins};

/// Routes by the tables of this network namespace's Linux.
pub(super) fn run(args: &L3Args, names: &[String]) -> Result<(), Failure> {
    let forward = &args.forward;
    let names = names_of(names, forward.ports.len())?;
    ports::check(&forward.ports)?;
    let stop = Stop::on_signals()?;
    let twins = Twins::open(&names).map_err(|error| anyhow!("--kernel: {error}"))?;
    let (indices, settings) = (twins.indices().to_vec(), Settings::default());
    // Queues each way, and the cache of the thread between.
    let mut opening = Opening::open(forward, stop, 2 * settings.queue + CACHE)?;
    let interfaces = opening.interfaces(false);
    let fib = LiveFib::new(&LiveConfig { seed: RandomState::new().hash_one(0), ..LiveConfig::default() }, &interfaces)?;
    let (twins, lanes) = start(twins, &opening, &settings)?;
    let routes = lanes.into_iter().map(|lane| ByKernel::new(fib.forwarder(), lane)).collect();
    let following = Following::start(fib, names.iter().zip(indices.iter().copied()), forward.port_options.mtu())?;
    opening.screen.say(&describe(&names, forward));
    warn(&names, &indices);
    let (mut unheard, mut groups) = (Vec::new(), Vec::new());
    for (Opened { port, .. }, twin) in opening.ports.opened.iter_mut().zip(&indices) {
        let hears_all = !is_function(port) || ports::hears_all_groups(port);
        unheard.extend(self::unheard(port, hears_all));
        groups.push((!hears_all).then(|| Groups::new(*twin)));
    }
    unheard.iter().for_each(|line| tracing::warn!("{line}"));

    let count = names.len();
    let handle = following.handle.clone();
    let report = || KernelReport::of(&handle, &twins, count, &unheard);
    let (mut carriers, mut vlans) = (vec![Carrier::default(); count], Vec::new());
    vlans.resize_with(count, Vlans::default);
    // On a screen they stand anyway.
    let (is_quiet, mut told) = (forward.run.quiet, Told::default());
    let follow = |port: usize, link: LinkStatus, opened: &mut AnyPort| {
        following.check()?;
        let report = following.handle.report();
        if is_quiet && following.handle.is_ready() {
            told.news(&report.lines).into_iter().for_each(|remark| tracing::warn!("{remark}"));
        }
        if let Some(Some(groups)) = groups.get_mut(port) {
            groups.follow(opened)?;
        }
        if let Some(vlans) = vlans.get_mut(port) {
            vlans.follow(opened, &Following::vlans(port, &report))?;
        }
        if twins.has_ended() {
            return Err(ended("moves frames between ports and twins"));
        }
        let is_closed = following.is_closed(port, &report);
        twins.set_closed(port, is_closed);
        if let Some(carrier) = carriers.get_mut(port) {
            carrier.follow(link.up && !is_closed, |up| twins.set_carrier(port, up));
        }
        Ok(())
    };
    following.read_first(&opening.stop);
    let (mut run, workers) = opening.workers(routes);
    run.on_link = Some(OnLink(Box::new(follow)));
    let members = workers.into_iter().map(|(lcore, worker)| (lcore, move || worker.run())).collect();
    let outcome = run.supervise(members, || report().lines())?;
    // What a run reports while it goes on may be a second old, its last report is not.
    following.end();
    let report = report();
    summary::print("l3", &outcome, &forward.run, &Tables { routes: None, kernel: Some(report) })?;
    outcome.result
}

/// The thread that follows the kernel's tables.
struct Following {
    handle: Handle,
    thread: JoinHandle<Result<(), plane::Error>>,
}

impl Following {
    fn start<'a>(fib: LiveFib, twins: impl Iterator<Item = (&'a String, u32)>, mtu: u16) -> Result<Self, Failure> {
        let port = |(name, index): (&String, _)| plane::Port { name: name.clone(), index: Some(index), mtu };
        let ports: Vec<_> = twins.map(port).collect();
        let runner = Runner::open(fib, &ports).map_err(|error| anyhow!("--kernel: {error}"))?;
        let handle = runner.handle();
        let thread = std::thread::Builder::new().name("kernel".to_owned()).spawn(move || runner.run());
        let thread = thread.map_err(|error| {
            anyhow!("cannot start the thread that follows the kernel: {error}; allow more threads (`ulimit -u`) or memory (`ulimit -v`)")
        })?;
        Ok(Self { handle, thread })
    }

    /// Waits until the tables have been read, [`READ_FIRST`] at most: until then every packet would go to Linux, and workers that poll would
    /// take processor time from who reads them. A thread that has ended is told of in a moment.
    fn read_first(&self, stop: &Stop) {
        let begun = Instant::now();
        while begun.elapsed() < READ_FIRST && !stop.is_requested() && !self.thread.is_finished() {
            if self.handle.wait_ready(Duration::from_millis(50)) {
                return;
            }
        }
    }

    /// Checks that the tables are still followed: what forwards by old ones for ever looks well and is not.
    fn check(&self) -> Result<(), Failure> {
        if self.thread.is_finished() { Err(ended("follows the kernel's tables")) } else { Ok(()) }
    }

    /// Whether the twin of a port is not there, or was moved to another network namespace.
    fn is_closed(&self, port: usize, report: &plane::Report) -> bool {
        self.handle.is_ready() && report.closed.contains(&port)
    }

    /// The VLANs that Linux has on the twin of a port.
    fn vlans(port: usize, report: &plane::Report) -> BTreeSet<u16> {
        report.vlans.iter().filter(|(of, _)| *of == port).map(|(_, id)| *id).collect()
    }

    /// Ends it. What it has to say of its end is a warning.
    fn end(self) {
        self.handle.stop();
        if let Ok(Err(error)) = self.thread.join() {
            tracing::warn!("the kernel's tables were not followed to the end: {error}");
        }
    }
}

fn ended(what_it_does: &str) -> Failure {
    anyhow!("--kernel: the thread that {what_it_does} has ended, and with it this run; start again").into()
}

/// How long ports wait for the kernel's tables at the start.
const READ_FIRST: Duration = Duration::from_secs(3);

/// Slots that the cache of the thread between keeps at most.
const CACHE: usize = 512;

/// The names of the twins: those of the command line, or `rw0`, `rw1`, ...
fn names_of(names: &[String], ports: usize) -> Result<Vec<String>, Failure> {
    if names.is_empty() {
        return Ok((0..ports).map(|port| format!("rw{port}")).collect());
    }
    if names.len() != ports {
        let (names, ports) = (names.len() as u64, ports as u64);
        let [names, ports] = [(names, "name"), (ports, "port")].map(|(count, what)| cli::human::counted(count, what));
        return crate::usage(format!("--kernel: {names} for {ports}; name an interface for each port, or none"));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return crate::usage(format!("--kernel: {name} is there twice; each port has an interface of its own"));
        }
        if let Err(error) = twin::check_name(name) {
            return crate::usage(format!("--kernel: {error}"));
        }
    }
    Ok(names.to_vec())
}

/// Starts the twins. What the host sends by a port leaves by the worker that receives from it.
fn start(twins: Twins, opening: &Opening<'_>, settings: &Settings) -> Result<(Running, Vec<twin::Lane>), Failure> {
    let workers = &opening.plan.workers;
    let lane = |port| workers.iter().position(|worker| worker.lanes.iter().any(|lane| lane.port == port));
    let interfaces = opening.interfaces(false).into_iter().zip(&opening.ports.pools);
    let ports = interfaces.enumerate().map(|(at, (interface, pool))| Port {
        mac: interface.mac,
        mtu: interface.mtu,
        pool: pool.clone(),
        lane: lane(at).unwrap_or_default(),
    });
    let ports: Vec<Port> = ports.collect();
    Ok(twins.start(&ports, workers.len(), settings).map_err(|error| anyhow!("--kernel: {error}"))?)
}

fn describe(names: &[String], forward: &crate::args::ForwardArgs) -> String {
    let pairs = forward.ports.iter().zip(names);
    pairs.map(|(port, name)| format!("{}: its twin is {}\n", port.name(), name.escape_debug())).collect()
}

/// Whether a port is a virtual function that may not receive all that it wants.
fn is_function(port: &AnyPort) -> bool {
    let is_virtual = port.parts().iter().any(|(part, _)| *part == "physical function");
    is_virtual && !port.capabilities().set_promiscuous
}

/// What a virtual function does not hear that a router needs, as its physical function does not trust it, and what to do about it.
fn unheard(port: &AnyPort, hears_all_groups: bool) -> Option<String> {
    let groups = if hears_all_groups {
        ""
    } else {
        "frames to at most 30 of the groups that Linux has joined on the twin, and "
    };
    is_function(port).then(|| {
        format!(
            "{}: its physical function passes on {groups}no frames to a MAC address other than its own, such as one set by hand or that \
             of a macvlan; have it trust this one (`ip link set PF vf N trust on`) and, for such addresses, hear all itself (`ip link set \
             PF promisc on`; an 82599 does not pass them on in any case), and start again",
            port.name()
        )
    })
}

/// The carrier of a twin, which has none at first.
#[derive(Clone, Debug, Default)]
struct Carrier {
    /// Setting it has failed lately, and that was told.
    failed: bool,
}

impl Carrier {
    /// Has it follow the link of the port, also where somebody else has set it meanwhile; what fails is tried again with the next call.
    fn follow<E: Display>(&mut self, up: bool, set: impl FnOnce(bool) -> Result<(), E>) {
        match set(up) {
            Ok(()) => self.failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!("{error}");
                }
            }
        }
    }
}

/// Says what Linux is set to that the data path does not do, or that keeps Linux from doing its part.
fn warn(names: &[String], indices: &[u32]) {
    let is_set = |family: &str, interface: &str, setting: &str| {
        let path = format!("/proc/sys/net/{family}/conf/{interface}/{setting}");
        fs::read_to_string(path).ok().map(|text| !matches!(text.trim(), "0"))
    };
    if is_set("ipv4", "all", "forwarding") == Some(false) && is_set("ipv6", "all", "forwarding") != Some(true) {
        tracing::warn!("Linux routes nothing here: sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    }
    let vlans = vlans_on(names, &fs::read_to_string("/proc/net/vlan/config").unwrap_or_default());
    let strict = |name: &&String| [name.as_str(), "all"].iter().any(|at| is_set("ipv4", at, "rp_filter") == Some(true));
    let strict: Vec<&str> = names.iter().chain(&vlans).filter(strict).map(String::as_str).collect();
    if !strict.is_empty() {
        tracing::warn!(
            "rp_filter is set for {}: packets that ports forward by themselves are not held to it, those that go by Linux are",
            strict.join(", ")
        );
    }
    warn_of_filters(&with_index(names, indices, &vlans));
}

/// Twins and VLANs on them by name and index. A VLAN that goes meanwhile has none.
fn with_index<'a>(names: &'a [String], indices: &[u32], vlans: &'a [String]) -> Vec<(&'a str, u32)> {
    let twins = names.iter().map(String::as_str).zip(indices.iter().copied());
    let vlans = vlans.iter().filter_map(|vlan| Some((vlan.as_str(), plane::index_of(vlan)?)));
    twins.chain(vlans).collect()
}

/// The VLANs on these interfaces, by what Linux says of all VLANs: a line each with its name, its number, and the interface that it is on.
fn vlans_on(names: &[String], config: &str) -> Vec<String> {
    let vlan = |line: &str| {
        let mut words = line.split('|').map(str::trim);
        let (vlan, _, below) = (words.next()?, words.next()?, words.next()?);
        names.iter().any(|name| name == below).then(|| vlan.to_owned())
    };
    config.lines().filter_map(vlan).collect()
}

/// Says which filters and shapers of Linux packets do not meet that ports forward by themselves.
fn warn_of_filters(interfaces: &[(&str, u32)]) {
    if plane::has_nft_rules() == Some(true) {
        tracing::warn!(
            "nftables has rules, or chains that drop (`nft list ruleset`): packets that ports forward by themselves do not meet them"
        );
    }
    let tables = ["ip_tables_names", "ip6_tables_names"];
    let tables = tables.map(|file| fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default());
    if tables.iter().any(|names| !names.trim().is_empty()) {
        tracing::warn!(
            "iptables has tables (`iptables-legacy-save`, `ip6tables-legacy-save`): packets that ports forward by themselves do not meet their rules"
        );
    }
    let having = |has: fn(u32) -> Option<bool>| -> Vec<&str> {
        interfaces.iter().filter(|(_, index)| has(*index) == Some(true)).map(|(name, _)| *name).collect()
    };
    let programs = having(plane::has_xdp);
    if !programs.is_empty() {
        tracing::warn!(
            "there are XDP programs on {} (`ip link show`): packets that ports forward by themselves do not meet them",
            programs.join(", ")
        );
    }
    let filtered = having(plane::has_tc_filters);
    if !filtered.is_empty() {
        tracing::warn!(
            "tc has filters on {} (`tc filter show`): packets that ports forward by themselves do not meet them",
            filtered.join(", ")
        );
    }
    let queues = plane::queues().unwrap_or_default();
    let queue = |(name, index): &(&str, u32)| {
        let (_, kind) = queues.iter().find(|(of, _)| of == index)?;
        Some(format!("{name} ({kind})"))
    };
    let queued: Vec<String> = interfaces.iter().filter_map(queue).collect();
    if !queued.is_empty() {
        tracing::warn!(
            "tc shapes or queues what leaves by {} (`tc qdisc show`): packets that ports forward by themselves do not wait there",
            queued.join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_those_on_twins() {
        let config = "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
            rw0.7          | 7  | rw0\nother          | 9  | rw1\neth0.7         | 7  | eth0\n";
        let names = ["rw0", "rw1"].map(str::to_owned);
        assert_eq!(vlans_on(&names, config), ["rw0.7", "other"]);
        assert!(vlans_on(&names, "").is_empty());
    }

    #[test]
    fn a_carrier_is_set_again_and_again() {
        let (mut carrier, mut set) = (Carrier::default(), Vec::new());
        for (up, works) in [(false, true), (true, false), (true, false), (true, true), (true, true), (false, true)] {
            carrier.follow(up, |up| {
                set.push((up, works));
                if works { Ok(()) } else { Err("not now") }
            });
        }
        assert_eq!(set.len(), 6);
        assert!(!carrier.failed);
    }

    #[test]
    fn a_run_does_not_outlive_the_thread_that_follows_the_kernel() {
        let fib = LiveFib::new(&LiveConfig::default(), &[]).unwrap();
        let mut following = Following::start(fib, std::iter::empty(), 1500).unwrap();
        following.check().unwrap();
        following.handle.stop();
        while !following.thread.is_finished() {
            std::thread::yield_now();
        }
        assert!(following.check().is_err());
        following.thread = std::thread::spawn(|| panic!("as by a mistake"));
        while !following.thread.is_finished() {
            std::thread::yield_now();
        }
        assert!(following.check().is_err());
    }
}
