//! What Linux's, DPDK's and our driver write to the registers of an 82599, an X540, an X550 and a virtual function until its link is up, side by side.

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

/// A card that each driver starts.
struct Card {
    id: &'static str,
    module: &'static str,
    /// Before its own table in [`REVIEWED`].
    heading: &'static str,
    /// Whether the table before counts for it too.
    inherits: bool,
}

const CARDS: [Card; 4] = [
    Card { id: "10fb", module: "ixgbe", heading: "# ", inherits: false },
    Card { id: "x540", module: "ixgbe", heading: "\n## X540", inherits: true },
    Card { id: "x550", module: "ixgbe", heading: "\n## X550", inherits: true },
    Card { id: "10ed", module: "ixgbevf", heading: "\n## Virtual function", inherits: false },
];

/// For each card three of a machine, one for each of the drivers, and without a link when it finds them.
pub(super) fn starts(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = |nic: usize| folder.path().join(nic.to_string());
    let count = CARDS.len() * DRIVERS.len();
    let spec = |nic: usize| {
        let (card, driver) = (&CARDS[nic / DRIVERS.len()], DRIVERS[nic % DRIVERS.len()]);
        format!("{driver}-{nic}?id={}&link=down&trace={}", card.id, trace(nic).display())
    };
    let nics: Vec<_> = (0..count).map(spec).collect();
    let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
    let setup = Setup { nics: &nics, iommu: Iommu::Full, huge_pages: 128, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    let ours: Vec<_> = (0..count).filter(|nic| nic % DRIVERS.len() != 0).map(place).collect();
    vm.sh(&format!(
        "modprobe vfio-pci
         for nic in {}; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done",
        ours.join(" ")
    ))?;
    for (card, first) in CARDS.iter().zip((0..).step_by(DRIVERS.len())) {
        println!("           {}", card.id);
        linux(&mut vm, checks, card, first)?;
        let linux = Start::read(&trace(first))?;
        let dpdk = dpdk(&mut vm, checks, first + 1, &trace(first + 1))?;
        let command = format!("fwd rxonly {}", place(first + 2));
        super::ours::start(&mut vm, &command)?;
        vm.until("the receiver is on", |_| Start::read(&trace(first + 2)).is_ok_and(|start| start.receives()));
        let ours = Start::read(&trace(first + 2))?;
        super::ours::finish(&mut vm, &command)?;
        let lost = (first..first + DRIVERS.len()).any(|nic| vm.nic(nic).wire_error().is_some());
        checks.that(!lost, "the traces are whole");
        compare(checks, card, &[linux, dpdk, ours]);
    }
    Ok(())
}

/// Where NIC `nic` is.
fn place(nic: usize) -> String {
    format!("0000:00:{:02x}.0", nic + 5)
}

/// What the three have written to such a card.
fn compare(checks: &mut Checks, card: &Card, starts: &[Start; 3]) {
    for (start, driver) in starts.iter().zip(DRIVERS) {
        let count: usize = start.values.values().map(BTreeMap::len).sum();
        checks.that(start.receives(), format!("{driver} turns the receiver on, after writing {count} registers"));
    }
    // From there on the link is between the card and its partner. Most of the time is settling after resets.
    let [linux, _, ours] =
        starts.each_ref().map(|start| start.ready.zip(start.first).map(|(ready, first)| ready - first));
    let milliseconds = [linux, ours].map(|time| time.unwrap_or_default() / 1000);
    checks.that(
        linux.is_some() && ours.is_some() && ours <= linux,
        format!("from the first write until frames are let in: Linux and Ringway {milliseconds:?} ms"),
    );
    table(starts);
    judge(checks, card, starts);
}

fn linux(vm: &mut Machine, checks: &mut Checks, card: &Card, nic: usize) -> Result<()> {
    let dev = format!("dev=$(ls /sys/bus/pci/devices/{}/net)", place(nic));
    vm.sh(&format!("modprobe {}; {dev}; ip link set $dev up", card.module))?;
    vm.nic(nic).set_link(true);
    let said = vm.sh(&format!(
        "{dev}
         for try in $(seq 300); do ip link show $dev | grep -q LOWER_UP && break; sleep 0.1; done
         ip link show $dev"
    ))?;
    checks.contains("Linux has a link", &said, "LOWER_UP");
    Ok(())
}

fn dpdk(vm: &mut Machine, checks: &mut Checks, nic: usize, trace: &Path) -> Result<Start> {
    vm.sh(&format!(
        "rm -f /tmp/commands; mkfifo /tmp/commands
         dpdk-testpmd -l 0,1 -n 1 --in-memory -a {} -- -i --nb-cores=1 --total-num-mbufs=16384 <>/tmp/commands >/tmp/testpmd 2>&1 &
         echo $! >/tmp/testpmd.pid
         printf 'start\n' >/tmp/commands
         for try in $(seq 90); do grep -q 'testpmd> start' /tmp/testpmd && exit; kill -0 $! || break; sleep 1; done
         cat /tmp/testpmd; exit 1",
        place(nic)
    ))
    .map(drop)?;
    vm.nic(nic).set_link(true);
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

    /// Whether frames are let in: RXCTRL.RXEN, and the security block is open again after it; of a virtual function, RXDCTL.EN and a buffer.
    fn receives(&self) -> bool {
        let last = |name| self.values.get(name).and_then(|of| of.get(&0)?.last().copied());
        if self.values.contains_key("VFCTRL") {
            return last("RXDCTL").is_some_and(|value| value & 1 << 25 != 0)
                && last("RDT").is_some_and(|value| value > 0);
        }
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
fn judge(checks: &mut Checks, card: &Card, [linux, dpdk, ours]: &[Start; 3]) {
    let own_table = REVIEWED.split_once(card.heading).map_or("", |(_, rest)| rest);
    let own_table = own_table.split("\n## ").next().unwrap_or("");
    let known = reviewed(own_table);
    let all =
        if card.inherits { &known | &reviewed(REVIEWED.split("\n## ").next().unwrap_or("")) } else { known.clone() };
    let others: BTreeSet<&str> = linux.values.keys().chain(dpdk.values.keys()).map(String::as_str).collect();
    let own = |name: &&&str| ours.values.contains_key(**name);
    let unknown: Vec<_> = others.iter().filter(|name| !own(name) && !all.contains(**name)).collect();
    checks.that(
        unknown.is_empty(),
        format!("all that others write and ours does not is in crates/ixgbe/REGISTERS.md, but {unknown:?}"),
    );
    let stale: Vec<_> = known.iter().filter(own).collect();
    checks.that(stale.is_empty(), format!("and nothing that ours does write, but {stale:?}"));
}

/// The registers of a table.
fn reviewed(table: &str) -> BTreeSet<&str> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    rows.flat_map(|names| names.split(", ")).collect()
}
