//! Processor: cores to poll on, shares of them, frequency and clock.

use super::{Finding, Needs, costs, counted, fine, unknown};
use crate::remedy::Remedy;
use crate::{Host, cpulist};

/// Cores that are kept from other work for polling threads (`isolcpus`, `nohz_full`).
pub(super) fn cores(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "isolated cores";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let online = cpu_list(host, "online");
    let Some(last) = online.last() else { return unknown(CHECK, "sysfs does not list the cores") };
    if online.len() == 1 {
        let effect = "workers, interrupts and all other programs take turns: packets are missed meanwhile";
        return costs(CHECK, "this host has one core", effect, Remedy::words("use a host with two or more"));
    }
    let isolated = cpu_list(host, "isolated");
    if isolated.is_empty() {
        let what = format!("none of {}", counted(online.len(), "core"));
        let effect =
            "the scheduler and interrupts take time from workers: packets come late or are missed at high rates";
        let cores = worth_isolating(host, needs, &online);
        let cores = if cores.is_empty() { vec![*last] } else { cores };
        return costs(CHECK, what, effect, isolate(host, &cores));
    }
    let ticking: Vec<usize> = {
        let tickless = cpu_list(host, "nohz_full");
        isolated.iter().copied().filter(|core| !tickless.contains(core)).collect()
    };
    if ticking.is_empty() {
        return fine(CHECK, format!("{}, without timer tick; name them with --lcores", cpulist::format(&isolated)));
    }
    let what = format!("{}; the timer tick runs on {}", cpulist::format(&isolated), cpulist::format(&ticking));
    let words = tickless(&isolated);
    let remedy = host.boot_line(
        &format!("add {} to", words.join(" ")),
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
        &[],
    );
    costs(CHECK, what, "each worker is interrupted 100 to 1000 times a second", remedy)
}

fn isolate(host: &Host, cores: &[usize]) -> Remedy {
    let mut words = vec![format!("isolcpus={}", cpulist::format(cores))];
    words.extend(tickless(cores));
    host.boot_line(
        &format!("for steady rates, isolate {}: add {} to", counted(cores.len(), "core"), words.join(" ")),
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
        &[],
    )
}

fn tickless(cores: &[usize]) -> Vec<String> {
    vec![format!("nohz_full={}", cpulist::format(cores)), format!("rcu_nocbs={}", cpulist::format(cores))]
}

/// One core for each card, on the card's NUMA node, from the last ones; all threads of each; never core 0, which has
/// most interrupts, and never more than half.
fn worth_isolating(host: &Host, needs: &Needs, online: &[usize]) -> Vec<usize> {
    let home = needs.devices.iter().find_map(|device| device.numa_node);
    let near = home.map(|node| node_cores(host, node)).filter(|cores| !cores.is_empty());
    let mut chosen: Vec<usize> = Vec::new();
    let mut wanted = needs.devices.len().max(1);
    for core in near.as_deref().unwrap_or(online).iter().rev().filter(|core| online.contains(core)) {
        let threads = siblings(host, *core);
        if threads.contains(&0) || chosen.contains(core) || (chosen.len() + threads.len()) * 2 > online.len() {
            continue;
        }
        chosen.extend(threads);
        wanted -= 1;
        if wanted == 0 {
            break;
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Two threads of one core share its units: two workers there get in each other's way.
pub(super) fn hyper_threads(host: &Host) -> Finding {
    const CHECK: &str = "hyper-threads";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    if host.read(&host.sys("devices/system/cpu/smt/active")).is_ok_and(|active| active != "1") {
        return fine(CHECK, "none: each lcore is a core of its own");
    }
    let online = cpu_list(host, "online");
    if online.is_empty() {
        return unknown(CHECK, "sysfs does not list the cores");
    }
    let pairs: Vec<Vec<usize>> = online
        .iter()
        .map(|core| siblings(host, *core))
        .filter(|threads| threads.len() > 1)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    if pairs.is_empty() {
        return fine(CHECK, "none: each lcore is a core of its own");
    }
    let isolated = cpu_list(host, "isolated");
    let first: Vec<usize> = pairs.iter().filter_map(|threads| threads.first().copied()).collect();
    match pairs.iter().find(|threads| threads.iter().filter(|core| isolated.contains(core)).count() == 1) {
        Some(threads) => {
            let what = format!("of lcores {}, which are one core, only one is isolated", cpulist::format(threads));
            let effect = "whatever runs on the other slows a worker down";
            costs(CHECK, what, effect, Remedy::words("isolate both, or switch hyper-threading off in the firmware"))
        }
        None => {
            let first =
                if first.len() > 8 { format!("{},...", cpulist::format(&first[..8])) } else { cpulist::format(&first) };
            fine(CHECK, format!("two lcores are one core; give workers one of each: {first}"))
        }
    }
}

/// A control group's quota of processor time (`cpu.max`, or `cpu.cfs_quota_us` of version 1).
pub(super) fn quota(host: &Host) -> Finding {
    const CHECK: &str = "processor quota";
    let Ok(groups) = host.read(&host.proc("self/cgroup")) else {
        return unknown(CHECK, "/proc/self/cgroup cannot be read, which would tell");
    };
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let limit = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let version_1 = controllers.split(',').any(|controller| controller == "cpu");
        if !controllers.is_empty() && !version_1 {
            return None;
        }
        let root = host.sys(if version_1 { "fs/cgroup/cpu" } else { "fs/cgroup" });
        root.join(path).ancestors().take_while(|folder| folder.starts_with(&root)).find_map(|folder| {
            let (file, none, quota) = if version_1 {
                let file = folder.join("cpu.cfs_quota_us");
                let period = host.read(&folder.join("cpu.cfs_period_us")).ok()?;
                let text = host.read(&file).ok()?;
                (file, "-1", format!("{text} {period}"))
            } else {
                let file = folder.join("cpu.max");
                let text = host.read(&file).ok()?;
                (file, "max", text)
            };
            let mut numbers = quota.split_whitespace().map(str::parse::<u64>);
            let (quota, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            (period > 0).then(|| (file, none, quota * 100 / period))
        })
    });
    match limit {
        None if host.names(&host.sys("fs/cgroup")).is_empty() => {
            unknown(CHECK, "/sys/fs/cgroup is not mounted here, which would tell")
        }
        None => fine(CHECK, "none"),
        Some((file, none, percent)) => {
            let what = format!("this control group may use {percent} % of a core ({})", file.display());
            let effect = "polling threads never sleep: beyond the quota the kernel stops them, and packets are missed";
            let command = format!("echo {none} | sudo tee {}", file.display());
            costs(CHECK, what, effect, Remedy::command("lift the quota", command))
        }
    }
}

/// Frequency governor and turbo (Linux `Documentation/admin-guide/pm/cpufreq.rst`).
pub(super) fn frequency(host: &Host) -> Finding {
    const CHECK: &str = "core frequency";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let cpu = host.sys("devices/system/cpu");
    let governor = |core: &usize| host.read(&cpu.join(format!("cpu{core}/cpufreq/scaling_governor"))).ok();
    let online = cpu_list(host, "online");
    if online.is_empty() {
        return unknown(CHECK, "sysfs does not list the cores");
    }
    let governors: std::collections::BTreeSet<String> = online.iter().filter_map(governor).collect();
    if governors.is_empty() {
        return fine(CHECK, "not chosen by this kernel (a virtual machine, or the firmware chooses)");
    }
    let slow: Vec<&str> = governors.iter().map(String::as_str).filter(|name| *name != "performance").collect();
    if !slow.is_empty() {
        let effect = "a core slows down where it seems idle, and wakes up late: fewer packets a second";
        let command = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        let remedy = Remedy::command("until the next boot", command);
        return costs(CHECK, format!("governor {}", slow.join(" and ")), effect, remedy);
    }
    for (file, off, on) in [("intel_pstate/no_turbo", "1", "0"), ("cpufreq/boost", "0", "1")] {
        if host.read(&cpu.join(file)).is_ok_and(|value| value == off) {
            let remedy =
                Remedy::command("switch it on", format!("echo {on} | sudo tee /sys/devices/system/cpu/{file}"));
            return costs(CHECK, "governor performance, turbo off", "cores stay at their base frequency", remedy);
        }
    }
    fine(CHECK, "governor performance")
}

/// The time-stamp counter, the clock of every figure, and the clock behind the system's time.
pub(super) fn clock(host: &Host) -> Finding {
    const CHECK: &str = "clock";
    let Some(flags) = cpu_flags(host) else {
        return unknown(CHECK, "/proc/cpuinfo does not tell about the time-stamp counter");
    };
    if !["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split_whitespace().any(|word| word == *flag)) {
        let effect = "cycles per packet, and rates that a generator keeps to, are off";
        return costs(
            CHECK,
            "the time-stamp counter does not run evenly",
            effect,
            Remedy::words("use another host (or pass invariant TSC to this virtual machine) to measure"),
        );
    }
    let folder = host.sys("devices/system/clocksource/clocksource0");
    let Ok(current) = host.read(&folder.join("current_clocksource")) else {
        let why = host.unseen_sys().unwrap_or("sysfs does not tell");
        return unknown(CHECK, format!("the time-stamp counter runs evenly; where the system's time is from: {why}"));
    };
    if current == "tsc" {
        return fine(CHECK, "the time-stamp counter runs evenly");
    }
    let offered = host.read(&folder.join("available_clocksource")).unwrap_or_default();
    let remedy = if offered.split_whitespace().any(|name| name == "tsc") {
        let command = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
        Remedy::command("until the next boot", command)
    } else {
        Remedy::words("the kernel log says why it distrusts the time-stamp counter: sudo dmesg | grep -i tsc")
    };
    // Two of the virtual ones are read from the counter too, and without a system call.
    if matches!(current.as_str(), "kvm-clock" | "hyperv_clocksource_tsc_page") {
        return fine(CHECK, format!("the time-stamp counter runs evenly; the system's time is from {current}"));
    }
    costs(CHECK, format!("the system's time is from {current}"), "asking for the time takes a system call", remedy)
}

/// What the first processor can do, as `/proc/cpuinfo` lists it.
fn cpu_flags(host: &Host) -> Option<String> {
    host.cpuinfo().lines().find(|line| line.starts_with("flags")).map(str::to_owned)
}

/// Whether others take time from this virtual machine (`/proc/stat`, steal).
pub(super) fn virtual_machine(host: &Host) -> Finding {
    const CHECK: &str = "virtual machine";
    if cpu_flags(host).is_none() {
        return unknown(CHECK, "/proc/cpuinfo does not tell");
    }
    if !host.is_virtual() {
        return fine(CHECK, "no: the cores are real");
    }
    let stat = host.read(&host.proc("stat")).unwrap_or_default();
    let times: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|n| n.parse().ok())
        .collect();
    let (Some(stolen), total @ 1..) = (times.get(7), times.iter().sum::<u64>()) else {
        return unknown(CHECK, "yes; /proc/stat does not tell whether others take its time");
    };
    let per_mille = stolen * 1000 / total;
    if per_mille < 1 {
        return fine(CHECK, "yes, and nobody takes its time");
    }
    let what = format!("yes; others took {}.{} % of its time since it booted", per_mille / 10, per_mille % 10);
    let effect = "workers stop while the host runs others: packets are missed, figures vary";
    costs(CHECK, what, effect, Remedy::words("pin its cores on the host, one to one"))
}

/// The cores of a NUMA node.
pub(super) fn node_cores(host: &Host, node: u32) -> Vec<usize> {
    cpulist::parse(&host.read(&host.sys(format!("devices/system/node/node{node}/cpulist"))).unwrap_or_default())
}

pub(super) fn cpu_list(host: &Host, name: &str) -> Vec<usize> {
    cpulist::parse(&host.read(&host.sys("devices/system/cpu").join(name)).unwrap_or_default())
}

/// The lcores that are one core with this one, itself too.
fn siblings(host: &Host, core: usize) -> Vec<usize> {
    let file = host.sys(format!("devices/system/cpu/cpu{core}/topology/thread_siblings_list"));
    let threads = cpulist::parse(&host.read(&file).unwrap_or_default());
    if threads.is_empty() { vec![core] } else { threads }
}
