//! What Linux's, DPDK's and our driver write to the registers of an 82599 until its link is up, side by side.

use crate::checks::Checks;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What others write and ours does not, each with the reason.
const REVIEWED: &str = include_str!("../../../../crates/ixgbe/REGISTERS.md");
const DRIVERS: [&str; 3] = ["Linux", "DPDK", "Ringway"];
/// Values of a register, or runs of registers with the same values, that are shown.
const MOST_SHOWN: usize = 5;

/// The registers that a driver writes: by name, in the order of the first write, and for each number what is written one after the other.
#[derive(Default)]
struct Start {
    order: Vec<String>,
    values: BTreeMap<String, BTreeMap<u32, Vec<u32>>>,
    /// Microseconds at the first write, and when frames were first let in.
    first: Option<u64>,
    ready: Option<u64>,
}

/// Three cards of a machine, each for one of the drivers, and without a link when it finds them.
pub(super) fn starts(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = |driver: usize| folder.path().join(DRIVERS[driver]);
    let nics =
        [0, 1, 2].map(|driver| format!("{}?id=10fb&link=down&trace={}", DRIVERS[driver], trace(driver).display()));
    let nics = [&*nics[0], &*nics[1], &*nics[2]];
    let setup = Setup { nics: &nics, iommu: Iommu::Full, huge_pages: 128, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh("modprobe vfio-pci
         for nic in 0000:00:06.0 0000:00:07.0; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done")?;
    linux(&mut vm, checks)?;
    let linux = Start::read(&trace(0))?;
    let dpdk = dpdk(&mut vm, checks, &trace(1))?;
    super::ours::start(&mut vm, "fwd rxonly 0000:00:07.0")?;
    vm.until("the receiver is on", |_| Start::read(&trace(2)).is_ok_and(|start| start.receives()));
    let ours = Start::read(&trace(2))?;
    super::ours::finish(&mut vm, "fwd rxonly 0000:00:07.0")?;
    let starts = [linux, dpdk, ours];
    for (index, start) in starts.iter().enumerate() {
        let count: usize = start.values.values().map(BTreeMap::len).sum();
        let lost = vm.nic(index).wire_error();
        let what = format!("{} turns the receiver on, after writing {count} registers", DRIVERS[index]);
        checks.that(start.receives() && lost.is_none(), what);
    }
    // From there on the link is between the card and its partner. Most of the time is settling after resets.
    let [linux, _, ours] =
        starts.each_ref().map(|start| start.ready.zip(start.first).map(|(ready, first)| ready - first));
    let milliseconds = [linux, ours].map(|time| time.unwrap_or_default() / 1000);
    checks.that(
        linux.is_some() && ours.is_some() && ours <= linux,
        format!("from the first write until frames are let in: Linux and Ringway {milliseconds:?} ms"),
    );
    table(&starts);
    judge(checks, &starts);
    Ok(())
}

fn linux(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    vm.sh("modprobe ixgbe; ip link set $(ls /sys/bus/pci/devices/0000:00:05.0/net) up")?;
    vm.nic(0).set_link(true);
    let said = vm.sh("dev=$(ls /sys/bus/pci/devices/0000:00:05.0/net)
         for try in $(seq 300); do ip link show $dev | grep -q LOWER_UP && break; sleep 0.1; done
         ip link show $dev")?;
    checks.contains("Linux has a link", &said, "LOWER_UP");
    Ok(())
}

fn dpdk(vm: &mut Machine, checks: &mut Checks, trace: &Path) -> Result<Start> {
    vm.sh("mkfifo /tmp/commands
         dpdk-testpmd -l 0,1 -n 1 --in-memory -a 0000:00:06.0 -- -i --nb-cores=1 --total-num-mbufs=16384 <>/tmp/commands >/tmp/testpmd 2>&1 &
         echo $! >/tmp/testpmd.pid
         printf 'start\n' >/tmp/commands
         for try in $(seq 90); do grep -q 'testpmd> start' /tmp/testpmd && exit; kill -0 $! || break; sleep 1; done
         cat /tmp/testpmd; exit 1")
        .map(drop)?;
    vm.nic(1).set_link(true);
    let said = vm.try_sh(
        "for try in $(seq 100); do
             echo 'show port info 0' >/tmp/commands
             sleep 0.1
             grep -q 'Link status: up' /tmp/testpmd && exit
         done; cat /tmp/testpmd; exit 1",
    )?;
    checks.that(said.status == 0, "DPDK has a link");
    let start = Start::read(trace)?;
    vm.sh("echo quit >/tmp/commands
         for try in $(seq 100); do kill -0 $(cat /tmp/testpmd.pid) 2>/dev/null || break; sleep 0.1; done")?;
    Ok(start)
}

impl Start {
    fn read(path: &Path) -> Result<Self> {
        let mut start = Self::default();
        for line in fs::read_to_string(path)?.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [time, "write", _, value, ..] = words[..] else { continue };
            let time: u64 = time.parse().with_context(|| line.to_owned())?;
            start.first = start.first.or(Some(time));
            let value = u32::from_str_radix(value.trim_start_matches("0x"), 16).with_context(|| line.to_owned())?;
            let name = words[4..].join(" ");
            let (name, number) = match name.split_once('[') {
                Some((name, number)) => (name.to_owned(), number.trim_end_matches(']').parse()?),
                None => (name, 0),
            };
            if !start.values.contains_key(&name) {
                start.order.push(name.clone());
            }
            start.values.entry(name).or_default().entry(number).or_default().push(value);
            start.ready = start.ready.or_else(|| start.receives().then_some(time));
        }
        Ok(start)
    }

    /// Whether frames are let in: RXCTRL.RXEN, and the security block is open again after it.
    fn receives(&self) -> bool {
        let last = |name| self.values.get(name).and_then(|of| of.get(&0)?.last().copied());
        last("RXCTRL").is_some_and(|value| value & 1 != 0) && last("SECRXCTRL").is_none_or(|value| value & 2 == 0)
    }

    /// What is written to the registers of a name.
    fn shown(&self, name: &str) -> String {
        let Some(registers) = self.values.get(name) else { return "-".to_owned() };
        let mut runs: Vec<(u32, u32, String)> = Vec::new();
        for (&number, values) in registers {
            let text = sequence(values);
            match runs.last_mut() {
                Some((_, last, before)) if *last + 1 == number && *before == text => *last = number,
                _ => runs.push((number, number, text)),
            }
        }
        if let [(0, 0, text)] = &runs[..] {
            return text.clone();
        }
        let run = |(first, last, text): &(u32, u32, String)| {
            if first == last { format!("[{first}] {text}") } else { format!("[{first}-{last}] {text}") }
        };
        let shown: Vec<_> = runs.iter().take(MOST_SHOWN).map(run).collect();
        let more = if runs.len() > MOST_SHOWN { format!("; of {} registers", registers.len()) } else { String::new() };
        shown.join("; ") + &more
    }
}

/// Values one after the other, without those that repeat the one before.
fn sequence(values: &[u32]) -> String {
    let mut values = values.to_vec();
    values.dedup();
    let shown: Vec<_> = values.iter().take(MOST_SHOWN).map(|value| format!("{value:x}")).collect();
    let more = if values.len() > MOST_SHOWN { format!(" … {} in all", values.len()) } else { String::new() };
    shown.join(" ") + &more
}

/// Prints a row for each name, in the order of the first write: Linux's, then what only DPDK writes, then what only ours does.
fn table(starts: &[Start; 3]) {
    println!("| register | {} |", DRIVERS.join(" | "));
    println!("|---|---|---|---|");
    let mut seen = BTreeSet::new();
    for name in starts.iter().flat_map(|start| &start.order).filter(|name| seen.insert(*name)) {
        println!("| {name} | {} |", starts.each_ref().map(|start| start.shown(name)).join(" | "));
    }
}

/// What others write and ours does not is known, and nothing else is.
fn judge(checks: &mut Checks, [linux, dpdk, ours]: &[Start; 3]) {
    let rows = REVIEWED.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let reviewed: BTreeSet<&str> = rows.flat_map(|names| names.split(", ")).collect();
    let others: BTreeSet<&str> = linux.values.keys().chain(dpdk.values.keys()).map(String::as_str).collect();
    let own = |name: &&&str| ours.values.contains_key(**name);
    let unknown: Vec<_> = others.iter().filter(|name| !own(name) && !reviewed.contains(**name)).collect();
    checks.that(
        unknown.is_empty(),
        format!("all that others write and ours does not is in crates/ixgbe/REGISTERS.md, but {unknown:?}"),
    );
    let stale: Vec<_> = reviewed.iter().filter(own).collect();
    checks.that(stale.is_empty(), format!("and nothing that ours does write, but {stale:?}"));
}
