//! One card: driver and group, PCIe link, NUMA node.

use super::{Finding, breaks, costs, cpu, fine, memory, unknown};
use crate::remedy::Remedy;
use crate::{Host, PciDevice, cpulist};

pub(super) fn examine(host: &Host, device: &PciDevice) -> [Finding; 3] {
    let findings = [driver(host, device), link(host, device), numa(host, device)];
    findings.map(|finding| Finding { device: Some(device.address), ..finding })
}

/// Whether it can be opened, but for what is wrong with the host.
fn driver(host: &Host, device: &PciDevice) -> Finding {
    const CHECK: &str = "driver";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let status = host.group_status(device);
    if !status.is_usable() {
        return breaks(CHECK, status.reason, "it cannot be opened", status.next_step);
    }
    let Some(group) = device.iommu_group else { return unknown(CHECK, status.reason) };
    let node = host.dev(format!("vfio/{group}"));
    match host.holders(&node.display().to_string()).first() {
        Some((pid, name)) => {
            let what = format!("{name} (process {pid}) has {} open", node.display());
            breaks(CHECK, what, "a group is opened once at a time (EBUSY)", host.end_holders(&node))
        }
        None if host.unseen_proc().is_some() => {
            let driver = device.driver.as_deref().unwrap_or_default();
            let what = "whether a program has it open is in /proc, which cannot be read";
            unknown(CHECK, format!("{driver}; {}; {what}", status.reason))
        }
        None => {
            let root = host.self_status("Uid:").is_some_and(|ids| ids.starts_with("0\t"));
            let unseen = if root { "" } else { " (whether another user has it open, only root sees)" };
            let driver = device.driver.as_deref().unwrap_or_default();
            fine(CHECK, format!("{driver}; {}{unseen}", status.reason))
        }
    }
}

/// Width and speed of its PCI Express link, against what it is made for.
fn link(host: &Host, device: &PciDevice) -> Finding {
    const CHECK: &str = "PCIe link";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let read = |name: &str| host.read(&device.path().join(name)).ok();
    let width = |name| read(name)?.parse::<u32>().ok().filter(|lanes| *lanes > 0);
    let speed = |name| tenths_of_gigatransfers(&read(name)?);
    let now = speed("current_link_speed").zip(width("current_link_width"));
    let most = speed("max_link_speed").zip(width("max_link_width"));
    let (Some(now), Some(most)) = (now, most) else {
        return unknown(CHECK, "sysfs does not tell its width and speed (a virtual device?)");
    };
    let words =
        |(speed, lanes): (u32, u32)| format!("x{lanes} at {} GT/s ({} Gbit/s)", decimal(speed), gigabits(speed, lanes));
    if now.0 >= most.0 && now.1 >= most.1 {
        return fine(CHECK, words(now));
    }
    let effect = format!("its ports share {} Gbit/s of {}", gigabits(now.0, now.1), gigabits(most.0, most.1));
    let how = format!("put it into a slot with {} lanes of that speed; what the slot can do is in", most.1);
    let remedy = Remedy::command(how, format!("sudo lspci -vv -s {} | grep -E 'LnkCap|LnkSta'", device.address));
    costs(CHECK, format!("{}, and it can do {}", words(now), words(most)), effect, remedy)
}

/// "5.0 GT/s PCIe" in tenths of GT/s: 50.
fn tenths_of_gigatransfers(text: &str) -> Option<u32> {
    let number = text.split_whitespace().next()?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth.get(..1)?.parse().ok()?)?;
    (tenths > 0).then_some(tenths)
}

fn decimal(tenths: u32) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Data rate of one direction after line coding: 8 bits in 10 up to 5 GT/s, else 128 in 130 (PCI Express 3.0, 4.2).
fn gigabits(tenths: u32, lanes: u32) -> u32 {
    let (data, line) = if tenths <= 50 { (8, 10) } else { (128, 130) };
    let bits = u64::from(tenths) * u64::from(lanes) * data / line / 10;
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// Whether this process may run on cores near the card.
fn numa(host: &Host, device: &PciDevice) -> Finding {
    const CHECK: &str = "NUMA node";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let nodes = memory::nodes(host);
    if nodes.len() <= 1 {
        return fine(CHECK, "this host has one");
    }
    let Some(node) = device.numa_node else {
        return unknown(CHECK, "the firmware does not say to which node it belongs");
    };
    let cores = cpu::node_cores(host, node);
    let Some(allowed) = host.self_status("Cpus_allowed_list:") else {
        return unknown(CHECK, format!("{node}; on which cores this process may run, /proc/self/status does not tell"));
    };
    let allowed = cpulist::parse(&allowed);
    let isolated = cpu::cpu_list(host, "isolated");
    let usable: Vec<usize> =
        cores.iter().copied().filter(|core| allowed.contains(core) || isolated.contains(core)).collect();
    let effect = "each packet crosses between the processors: fewer packets a second";
    if usable.is_empty() {
        let what = format!("{node}, and this process may run on none of its cores ({})", cpulist::format(&cores));
        let remedy = Remedy::command("allow it those cores", format!("taskset -cp {} $$", cpulist::format(&cores)));
        return costs(CHECK, what, effect, remedy);
    }
    let near: Vec<usize> = usable.iter().copied().filter(|core| isolated.contains(core)).collect();
    if !isolated.is_empty() && near.is_empty() {
        let what = format!("{node}, and none of the isolated cores ({}) is there", cpulist::format(&isolated));
        let words = format!("isolate cores of node {node} ({}) in place of those", cpulist::format(&usable));
        return costs(CHECK, what, effect, Remedy::words(words));
    }
    let near = if near.is_empty() { usable } else { near };
    fine(CHECK, format!("{node}; its cores for --lcores are {}", cpulist::format(&near)))
}
