//! What Linux's, DPDK's and our driver write to the registers of 82599s, an X540, an X550 and their virtual functions until their link is up,
//! side by side, and how long Linux's and ours take until they see it up where somebody is at the other end.

use crate::checks::Checks;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What others write and ours does not, each with the reason.
const REVIEWED: &str = include_str!("../../../../crates/ixgbe/REGISTERS.md");
const DRIVERS: [&str; 3] = ["Linux", "DPDK", "Ringway"];
/// Of cards of a kind, those that Linux has: one that each driver starts, and one that has a link.
const OF_LINUX: [usize; 2] = [0, DRIVERS.len()];
/// Ours is opened so often at most; the shortest time counts, as a machine that does other things too only adds to it.
const OPENINGS: usize = 3;
/// What ours may take longer than Linux's in spite of that: parts in a hundred, and microseconds.
const TOLERANCE: (u64, u64) = (10, 10_000);
/// Values of a register, or runs of registers with the same values, that are shown.
const MOST_SHOWN: usize = 5;

/// The registers that a driver writes: by name, in the order of the first write, and for each number what is written one after the other.
#[derive(Default)]
struct Start {
    order: Vec<String>,
    values: BTreeMap<String, BTreeMap<u32, Vec<u32>>>,
    /// Microseconds at the first write, at the last access, and when the driver was first told that the link is up with both ways on.
    first: Option<u64>,
    last: Option<u64>,
    linked: Option<u64>,
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

impl Card {
    /// Whether it is a virtual function.
    fn is_function(&self) -> bool {
        self.module == "ixgbevf"
    }

    /// How many there are of it: one for each driver, and two that have a link, for Linux's and ours. That of a function is its card's, and
    /// up before.
    fn count(&self) -> usize {
        DRIVERS.len() + if self.is_function() { 0 } else { 2 }
    }
}

const CARDS: &[Card] = &[
    Card { id: "10fb", module: "ixgbe", heading: "# ", inherits: false },
    Card { id: "10f9", module: "ixgbe", heading: "\n## CX4", inherits: true },
    Card { id: "x540", module: "ixgbe", heading: "\n## X540", inherits: true },
    Card { id: "x550", module: "ixgbe", heading: "\n## X550", inherits: true },
];
const FUNCTIONS: &[Card] = &[
    Card { id: "10ed", module: "ixgbevf", heading: "\n## Virtual function", inherits: false },
    Card { id: "1515", module: "ixgbevf", heading: "\n## Virtual function", inherits: false },
    Card { id: "1565", module: "ixgbevf", heading: "\n## Virtual function", inherits: false },
];

/// For each card some of a machine: one for each of the drivers, without a link when it finds them, and one for each of those whose time is
/// taken, with a link.
pub(super) fn starts(rig: &Rig, checks: &mut Checks) -> Result<()> {
    starts_of(rig, checks, CARDS)
}

/// The same of virtual functions: a machine has no slots for all.
pub(super) fn starts_of_functions(rig: &Rig, checks: &mut Checks) -> Result<()> {
    starts_of(rig, checks, FUNCTIONS)
}

fn starts_of(rig: &Rig, checks: &mut Checks, cards: &[Card]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = |nic: usize| folder.path().join(nic.to_string());
    let (mut nics, mut firsts, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for card in cards {
        firsts.push(nics.len());
        for number in 0..card.count() {
            let (nic, id) = (nics.len(), card.id);
            let how = if number < DRIVERS.len() { "link=down" } else { "trace-reads=on" };
            nics.push(format!("nic-{nic}?id={id}&{how}&trace={}", trace(nic).display()));
            if !OF_LINUX.contains(&number) {
                ours.push(place(nic));
            }
        }
    }
    let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
    let setup = Setup { nics: &nics, iommu: Iommu::Full, huge_pages: 128, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(&format!(
        "modprobe vfio-pci
         for nic in {}; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done",
        ours.join(" ")
    ))?;
    for (card, first) in cards.iter().zip(firsts) {
        println!("           {}", card.id);
        vm.sh(&format!("modprobe {}", card.module))?;
        linux(&mut vm, checks, first)?;
        let linux = Start::read(&trace(first))?;
        let dpdk = dpdk(&mut vm, checks, first + 1, &trace(first + 1))?;
        let command = format!("fwd rxonly {}", place(first + 2));
        super::ours::start(&mut vm, &command)?;
        // Interrupts are let through last.
        vm.until("the receiver and interrupts are on", |_| {
            Start::read(&trace(first + 2)).is_ok_and(|start| start.receives() && start.values.contains_key("EIMS"))
        });
        let ours = Start::read(&trace(first + 2))?;
        super::ours::finish(&mut vm, &command)?;
        if !card.is_function() {
            let times = [first + DRIVERS.len(), first + DRIVERS.len() + 1].map(|nic| (nic, trace(nic)));
            let [(nic, trace), (our_nic, our_trace)] = &times;
            let linux_time = linux_time(&mut vm, checks, *nic, trace)?;
            compete(checks, linux_time, our_time(&mut vm, *our_nic, our_trace)?);
        }
        let lost = (first..first + card.count()).any(|nic| vm.nic(nic).wire_error().is_some());
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
    table(starts);
    judge(checks, card, starts);
}

/// Linux's time and ours, in microseconds, from the first write until the driver is told that the link is up, with both ways on.
fn compete(checks: &mut Checks, linux: Option<u64>, ours: Option<u64>) {
    let most = linux.map(|time| time + time * TOLERANCE.0 / 100 + TOLERANCE.1);
    let milliseconds = [linux, ours].map(|time| time.unwrap_or_default() / 1000);
    checks.that(
        ours.is_some() && ours <= most,
        format!(
            "from the first write until the link is seen up: Linux and Ringway {milliseconds:?} ms ({} % and {} ms are tolerated)",
            TOLERANCE.0,
            TOLERANCE.1 / 1000
        ),
    );
}

/// Linux has the card since its module was loaded, and opens it. What lies between the two is not the driver's.
fn linux_time(vm: &mut Machine, checks: &mut Checks, nic: usize, trace: &Path) -> Result<Option<u64>> {
    let found = Start::read(trace)?;
    let before = len(trace)?;
    linux(vm, checks, nic)?;
    let opened = Start::of(trace, before)?;
    let took = |begin: Option<u64>, end: Option<u64>| Some(end? - begin?);
    Ok(took(found.first, found.last).zip(took(opened.first, opened.linked)).map(|(found, opened)| found + opened))
}

/// The shortest of some openings by `fwd`.
fn our_time(vm: &mut Machine, nic: usize, trace: &Path) -> Result<Option<u64>> {
    let command = format!("fwd rxonly {}", place(nic));
    let mut shortest = None;
    for _ in 0..OPENINGS {
        let before = len(trace)?;
        super::ours::start(vm, &command)?;
        vm.until("the link is seen", |_| Start::of(trace, before).is_ok_and(|start| start.linked.is_some()));
        let start = Start::of(trace, before)?;
        super::ours::finish(vm, &command)?;
        let time = start.linked.zip(start.first).map(|(linked, first)| linked - first);
        shortest = [shortest, time].into_iter().flatten().min();
    }
    Ok(shortest)
}

/// Bytes of a trace so far.
fn len(trace: &Path) -> Result<usize> {
    Ok(fs::read(trace)?.len())
}

fn linux(vm: &mut Machine, checks: &mut Checks, nic: usize) -> Result<()> {
    let dev = format!("dev=$(ls /sys/bus/pci/devices/{}/net)", place(nic));
    vm.sh(&format!("{dev}; ip link set $dev up"))?;
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
        Self::of(path, 0)
    }

    /// From byte `begin` of the trace on.
    fn of(path: &Path, begin: usize) -> Result<Self> {
        let mut start = Self::default();
        for line in fs::read_to_string(path)?.get(begin..).unwrap_or_default().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [time, access @ ("read" | "write"), _, value, ..] = words[..] else { continue };
            let time: u64 = time.parse().with_context(|| line.to_owned())?;
            start.last = Some(time);
            let value = u32::from_str_radix(value.trim_start_matches("0x"), 16).with_context(|| line.to_owned())?;
            let name = words[4..].join(" ");
            if access == "read" {
                let is_up = name == "LINKS" && value & 1 << 30 != 0;
                if is_up && start.linked.is_none() && start.receives() && start.sends() {
                    start.linked = Some(time);
                }
                continue;
            }
            start.first = start.first.or(Some(time));
            let (name, number) = match name.split_once('[') {
                Some((name, number)) => (name.to_owned(), number.trim_end_matches(']').parse()?),
                None => (name, 0),
            };
            if !start.values.contains_key(&name) {
                start.order.push(name.clone());
            }
            start.values.entry(name).or_default().entry(number).or_default().push(value);
        }
        Ok(start)
    }

    /// Whether frames are let in: RXCTRL.RXEN, and the security block is open again after it; of a virtual function, RXDCTL.EN and a buffer.
    fn receives(&self) -> bool {
        if self.is_function() {
            return self.last("RXDCTL").is_some_and(|value| value & ENABLE != 0)
                && self.last("RDT").is_some_and(|value| value > 0);
        }
        self.last("RXCTRL").is_some_and(|value| value & 1 != 0)
            && self.last("SECRXCTRL").is_none_or(|value| value & 2 == 0)
    }

    /// Whether frames can be sent: DMATXCTL.TE, which is the card's, and TXDCTL.EN.
    fn sends(&self) -> bool {
        (self.is_function() || self.last("DMATXCTL").is_some_and(|value| value & 1 != 0))
            && self.last("TXDCTL").is_some_and(|value| value & ENABLE != 0)
    }

    /// Whether it is a virtual function's.
    fn is_function(&self) -> bool {
        self.values.contains_key("VFCTRL")
    }

    /// What was last written to the first register of a name.
    fn last(&self, name: &str) -> Option<u32> {
        self.values.get(name)?.get(&0)?.last().copied()
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

/// RXDCTL.EN and TXDCTL.EN.
const ENABLE: u32 = 1 << 25;

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
    let stale: Vec<_> = known.iter().filter(|name| own(name) || !others.contains(**name)).collect();
    checks.that(stale.is_empty(), format!("and nothing that ours does write or no other, but {stale:?}"));
    let writes = |names: &str, start: &Start| names.split(", ").any(|name| start.values.contains_key(name));
    let names_wrongly = |(names, by): &(&str, &str)| {
        [("Linux", linux), ("DPDK", dpdk)].iter().any(|(name, start)| by.contains(name) != writes(names, start))
    };
    let wrong: Vec<_> = rows(own_table).filter(names_wrongly).collect();
    checks.that(wrong.is_empty(), format!("by whom is right, but {wrong:?}"));
}

/// The registers of a table.
fn reviewed(table: &str) -> BTreeSet<&str> {
    rows(table).flat_map(|(names, _)| names.split(", ")).collect()
}

/// Registers and drivers of each row of a table.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    cells
        .map(|(names, rest)| (names, rest.split(" | ").next().unwrap_or(rest)))
        .filter(|(names, _)| *names != "register")
}
