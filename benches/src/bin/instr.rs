//! Counts instructions with callgrind: `instr` prints a line for each driver, work and size of bursts, and some for `fwd l3`;
//! `instr DRIVER WORK SIZES RING ROUNDS [hardware]` is what it runs under valgrind to get there.
//!
//! It fails if igb takes over 1.15 times what ixgbe takes for anything, or a virtual function not the same, and where a figure is above its
//! limit.
//!
//! SIZES is a burst, `32`, or how many packets are found where a burst has room for more, `3/32`; several, in turn, are `1,32,3/32`.
//! 0 is a poll that finds nothing. Rounds are counted once the rings have gone round some times, less the hardware's part alone.

use benches::{Arrival, ArrivalRig, MeasureRig, Rig, RouteRig, Routing, Table, VirtioRig, Work};
use ethdev::Port;
use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, ExitCode};
use std::str::FromStr;

const RING: u16 = 512;
const BURSTS: [usize; 5] = [1, 4, 8, 32, 128];
/// The room of a burst that is not filled.
const ROOM: usize = 32;
/// Packets found where there is room for [`ROOM`].
const PARTS: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 16];
/// Packets found in turn: 180 in 16 bursts.
const MIXED: [usize; 16] = [1, 32, 3, 17, 8, 2, 25, 1, 5, 12, 32, 4, 1, 7, 29, 1];
const DRIVERS: [&str; 4] = ["ixgbe", "igb", "virtio-split", "virtio-packed"];
/// A virtual function of the 82599, whose queues are those of `ixgbe`: full bursts only.
const FUNCTION: &str = "ixgbevf";
/// What others may take of the instructions of `ixgbe`, by work and burst, at least and at most: a function the same but for a hundredth.
const COMPARED: [(&str, [f64; 2]); 2] = [("igb", [0.0, 1.15]), (FUNCTION, [0.99, 1.01])];
/// What a driver or work may take for a burst, or more than another takes for it.
const LIMITS: [(&str, &str, Option<&str>, f64); 35] = [
    ("ixgbe", "forward burst=1", None, 200.0),
    ("ixgbe", "forward burst=4", None, 80.0),
    // A hundredth more than with Rust 1.95: 53.8, 34.3 and 29.3.
    ("ixgbe", "forward burst=8", None, 54.4),
    ("ixgbe", "forward burst=32", None, 34.7),
    ("ixgbe", "forward burst=128", None, 29.6),
    // What a lone packet pays, a burst of 4 shares.
    ("ixgbe", "metadata burst=1", None, 16.2),
    ("ixgbe", "metadata burst=4", None, 4.8),
    ("ixgbe", "metadata burst=8", None, 3.0),
    ("ixgbe", "metadata burst=32", None, 1.6),
    ("ixgbe", "metadata burst=128", None, 1.2),
    ("igb", "metadata burst=1", None, 19.2),
    ("igb", "metadata burst=4", None, 6.1),
    ("igb", "metadata burst=8", None, 4.1),
    ("igb", "metadata burst=32", None, 2.6),
    ("igb", "metadata burst=128", None, 2.2),
    // A hundredth more than with Rust 1.95: 236.5, 117.0, 81.6, 55.0 and 45.8, and 257.4, 128.9, 94.2, 64.2 and 53.3.
    ("virtio-split", "forward burst=1", None, 238.9),
    ("virtio-split", "forward burst=4", None, 118.2),
    ("virtio-split", "forward burst=8", None, 82.4),
    ("virtio-split", "forward burst=32", None, 55.5),
    ("virtio-split", "forward burst=128", None, 46.3),
    ("virtio-packed", "forward burst=1", None, 259.9),
    ("virtio-packed", "forward burst=4", None, 130.0),
    ("virtio-packed", "forward burst=8", None, 95.1),
    ("virtio-packed", "forward burst=32", None, 64.8),
    ("virtio-packed", "forward burst=128", None, 53.8),
    (MEASURE, "receive burst=32", None, 60.0),
    ("measure-short", "receive burst=32", None, 60.0),
    // A hundredth more than with Rust 1.95: 213.8, 267.7 and 464.3.
    ("measure-streams", "receive burst=32", None, 215.9),
    ("measure-queues", "receive burst=32", None, 270.3),
    ("measure-reordered", "receive burst=32", None, 468.9),
    // Not one more for a table that changes: 141.4 and 137.4 with Rust 1.95.
    (ROUTE_SMALL, "forward burst=32", None, 142.0),
    (ROUTE, "forward burst=32", None, 138.0),
    (ROUTE_SMALL, "forward burst=32", Some("ixgbe"), 110.0),
    (ROUTE_LIVE, "forward burst=32", Some(ROUTE_SMALL), 12.0),
    (ROUTE_LIVE_FULL, "forward burst=32", Some(ROUTE), 12.0),
];
/// Drivers and work of [`LIMITS`] whose own limits are for processors with AVX2.
const WITH_AVX2: [(&str, &str); 16] = [
    ("virtio-split", "forward burst=1"),
    ("virtio-split", "forward burst=4"),
    ("virtio-split", "forward burst=8"),
    ("virtio-split", "forward burst=32"),
    ("virtio-split", "forward burst=128"),
    ("virtio-packed", "forward burst=1"),
    ("virtio-packed", "forward burst=4"),
    ("virtio-packed", "forward burst=8"),
    ("virtio-packed", "forward burst=32"),
    ("virtio-packed", "forward burst=128"),
    ("ixgbe", "forward burst=4"),
    ("ixgbe", "forward burst=8"),
    ("ixgbe", "forward burst=32"),
    ("ixgbe", "forward burst=128"),
    (ROUTE_SMALL, "forward burst=32"),
    (ROUTE, "forward burst=32"),
];
/// Stands in [`LIMITS`] for what is known of each packet: what [`Work::ReceiveWith`] takes beyond [`Work::Receive`]. But for lone packets
/// its limits are for processors with AVX2, too.
const METADATA: &str = "metadata";
/// Instructions that are no difference: a share of so few is the counting's own.
const NO_DIFFERENCE: f64 = 0.3;
/// Packets, or polls that find nothing: about a hundred times around the ring.
const COUNTED: usize = 51_200;
/// Before that, so that the rings and the cache are as they stay.
const WARM_UP: usize = 12_800;
/// `pktgen run` on ixgbe: what it takes to count and time the frames of a burst, beyond receiving them; and to pace and tag
/// them, beyond sending numbered ones.
const MEASURE: &str = "measure";
/// What it takes to verify the checksum of UDP of each frame of a burst, beyond receiving them.
const MEASURE_VERIFIED: &str = "measure-verified";
/// As [`MEASURE`] to receive, where frames are not in order, with full tags, of one stream, by one queue.
const APART: [(&str, Arrival); 4] = [
    ("measure-short", Arrival::Short),
    ("measure-streams", Arrival::Streams),
    ("measure-queues", Arrival::Queues),
    ("measure-reordered", Arrival::Reordered),
];
/// `fwd l3` on ixgbe: receive a burst, route it by a full table to two ports, transmit.
const ROUTE: &str = "l3";
/// The same by a table of a thousand routes, which loads in no time.
const ROUTE_SMALL: &str = "l3-small";
/// As [`ROUTE_SMALL`], by a table that changes in place.
const ROUTE_LIVE: &str = "l3-live";
/// As [`ROUTE`], by a table that changes in place.
const ROUTE_LIVE_FULL: &str = "l3-live-full";
/// As [`ROUTE_LIVE`], from one VLAN to others.
const ROUTE_VLAN: &str = "l3-vlan";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = if arguments.is_empty() { table() } else { run(&arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instr: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Packets found by each of some polls in turn, where there is room for so many.
#[derive(Clone, Debug)]
struct Sizes {
    found: Vec<usize>,
    room: usize,
}

impl Sizes {
    /// Packets found in one turn.
    fn packets(&self) -> usize {
        self.found.iter().sum()
    }

    /// Turns before those that are counted, and what is found in them: full bursts where nothing is found later.
    fn warm_up(&self) -> (usize, Vec<usize>) {
        let found = if self.packets() == 0 { vec![self.room] } else { self.found.clone() };
        (WARM_UP / found.iter().sum::<usize>(), found)
    }

    /// Turns that find so many packets; of those that find nothing, so many.
    fn turns(&self, packets: usize) -> usize {
        packets / self.packets().max(1)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found: Vec<String> = self.found.iter().map(ToString::to_string).collect();
        write!(f, "{}/{}", found.join(","), self.room)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
        let (found, room) = text.split_once('/').unwrap_or((text, ""));
        let found = found.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        let most = found.iter().copied().max().unwrap_or(0);
        let room = if room.is_empty() { most } else { number(room)? };
        if room == 0 || room < most { Err(format!("{text}: no room for {most}")) } else { Ok(Self { found, room }) }
    }
}

fn table() -> Result<(), String> {
    let mut counted = Counted::default();
    let full = |burst| Sizes { found: vec![burst], room: burst };
    let part = |found| Sizes { found: vec![found], room: ROOM };
    for driver in DRIVERS {
        for work in [Work::Forward, Work::Receive, Work::ReceiveWith, Work::Transmit, Work::Pool] {
            // The pool is the same for all of them.
            if work == Work::Pool && driver != DRIVERS[0] {
                continue;
            }
            for burst in BURSTS {
                counted.print(driver, work, &burst.to_string(), &full(burst))?;
            }
        }
        for found in PARTS {
            counted.print(driver, Work::Forward, &format!("{found}/{ROOM}"), &part(found))?;
        }
        counted.print(driver, Work::Forward, &format!("mixed/{ROOM}"), &Sizes { found: MIXED.to_vec(), room: ROOM })?;
        for work in [Work::Receive, Work::Transmit] {
            counted.print(driver, work, &format!("0/{ROOM}"), &part(0))?;
        }
    }
    for burst in BURSTS {
        counted.print(FUNCTION, Work::Forward, &burst.to_string(), &full(burst))?;
    }
    for work in [Work::Receive, Work::Transmit] {
        counted.print(FUNCTION, work, &ROOM.to_string(), &full(ROOM))?;
    }
    for work in [Work::Receive, Work::Transmit] {
        counted.print(MEASURE, work, &ROOM.to_string(), &full(ROOM))?;
    }
    counted.print(MEASURE_VERIFIED, Work::Receive, &ROOM.to_string(), &full(ROOM))?;
    for (name, _) in APART {
        counted.print(name, Work::Receive, &ROOM.to_string(), &full(ROOM))?;
    }
    counted.print(ROUTE, Work::Forward, &ROOM.to_string(), &full(ROOM))?;
    counted.print(ROUTE_LIVE_FULL, Work::Forward, &ROOM.to_string(), &full(ROOM))?;
    counted.print(ROUTE_LIVE, Work::Forward, &ROOM.to_string(), &full(ROOM))?;
    counted.print(ROUTE_VLAN, Work::Forward, &ROOM.to_string(), &full(ROOM))?;
    for burst in BURSTS {
        counted.print(ROUTE_SMALL, Work::Forward, &burst.to_string(), &full(burst))?;
    }
    for found in PARTS {
        counted.print(ROUTE_SMALL, Work::Forward, &format!("{found}/{ROOM}"), &part(found))?;
    }
    counted.print(
        ROUTE_SMALL,
        Work::Forward,
        &format!("mixed/{ROOM}"),
        &Sizes { found: MIXED.to_vec(), room: ROOM },
    )?;
    counted.print(ROUTE_SMALL, Work::Forward, &format!("0/{ROOM}"), &part(0))?;
    let complaints = [counted.compared(), counted.limited()].concat();
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
}

/// What was counted.
#[derive(Default)]
struct Counted {
    /// Instructions by driver, and work and burst.
    figures: BTreeMap<(String, String), f64>,
}

impl Counted {
    /// Counts and prints a line.
    fn print(&mut self, driver: &str, work: Work, name: &str, sizes: &Sizes) -> Result<(), String> {
        // The pool has no hardware's part.
        let none = work == Work::Pool;
        let turns = sizes.turns(COUNTED);
        let (all, hardware) = std::thread::scope(|scope| {
            let count = |hardware| scope.spawn(move || instructions(driver, work, sizes, turns, hardware));
            let (all, hardware) = (count(false), (!none).then(|| count(true)));
            (all.join(), hardware.map(|counted| counted.join()))
        });
        let panicked = |_| Err("a thread panicked".into());
        let count =
            all.unwrap_or_else(panicked)? - hardware.map_or(Ok(0), |counted| counted.unwrap_or_else(panicked))?;
        let (of, unit) = match sizes.packets() {
            0 => (1, "poll"),
            packets => (packets, "packet"),
        };
        let figure = count as f64 / (turns * of) as f64;
        println!("{driver} {work} burst={name} ring={RING} instructions_per_{unit}={figure:.1}");
        self.figures.insert((driver.to_owned(), format!("{work} burst={name}")), figure);
        Ok(())
    }

    /// What is above its limit.
    fn limited(&self) -> Vec<String> {
        let counted = |driver: &str, what: &str| self.figures.get(&(driver.to_owned(), what.to_owned())).copied();
        let figure = |driver: &str, what: &str| match what.strip_prefix(METADATA) {
            Some(burst) => {
                let [with, without] =
                    [Work::ReceiveWith, Work::Receive].map(|work| counted(driver, &format!("{work}{burst}")));
                Some(with? - without?)
            }
            None => counted(driver, what),
        };
        let is_meant = |&&(driver, what, beyond, _): &&(&str, &str, Option<&str>, f64)| {
            let is_by_fours = what.starts_with(METADATA) && what != "metadata burst=1";
            beyond.is_some()
                || !(is_by_fours || WITH_AVX2.contains(&(driver, what)))
                || std::arch::is_x86_feature_detected!("avx2")
        };
        let complaint = |&(driver, what, beyond, most): &(&str, &str, Option<&str>, f64)| {
            let base = beyond.map_or(Some(0.0), |other| figure(other, what));
            let over = figure(driver, what).zip(base).map(|(figure, base)| figure - base);
            let words = beyond.map_or(String::new(), |other| format!(" over {other}"));
            match over {
                Some(over) if over <= most => None,
                Some(over) => {
                    Some(format!("{driver} {what} takes {over:.1} instructions{words}, and {most} is the limit"))
                }
                None => Some(format!("{driver} {what}{words} was not counted")),
            }
        };
        LIMITS.iter().filter(is_meant).filter_map(complaint).collect()
    }

    /// What does the work of `ixgbe` and does not take about what it takes.
    fn compared(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for ((driver, what), figure) in &self.figures {
            let Some((_, [least, most])) = COMPARED.iter().find(|(name, _)| name == driver) else { continue };
            let Some(of) = self.figures.get(&(DRIVERS[0].to_owned(), what.clone())) else { continue };
            let is_near = (figure - of).abs() <= NO_DIFFERENCE;
            if !is_near && !(of * least..=of * most).contains(figure) {
                complaints.push(format!("{driver} {what} takes {figure:.1} instructions, and {} {of:.1}", DRIVERS[0]));
            }
        }
        complaints
    }
}

/// Instructions of so many turns in a process of its own.
fn instructions(driver: &str, work: Work, sizes: &Sizes, turns: usize, hardware: bool) -> Result<i64, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args(["--collect-atstart=no", "--toggle-collect=*counted*"]);
    command.arg(program);
    command.args([driver, &work.to_string(), &sizes.to_string(), &RING.to_string(), &turns.to_string()]);
    if hardware {
        command.arg("hardware");
    }
    let output = command
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; install the Debian package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    count
        .filter(|_| output.status.success())
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| format!("valgrind failed: {said}"))
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [driver, work, sizes, ring, turns, rest @ ..] = arguments else {
        return Err("usage: instr [DRIVER WORK SIZES RING TURNS [hardware]]".into());
    };
    let (work, sizes) = (work.parse::<Work>()?, sizes.parse::<Sizes>()?);
    let turns = turns.parse().map_err(|error| format!("{turns}: {error}"))?;
    let ring = ring.parse().map_err(|error| format!("{ring}: {error}"))?;
    let what = What { work, sizes, turns, hardware: !rest.is_empty() };
    let packets = match driver.as_str() {
        "ixgbe" => what.count(&mut Rig::new(what.sizes.room, ring)),
        FUNCTION => what.count(&mut Rig::ixgbevf(what.sizes.room, ring)),
        "igb" => what.count(&mut Rig::igb(what.sizes.room, ring)),
        "virtio-split" | "virtio-packed" => {
            what.count(&mut VirtioRig::new(driver == "virtio-packed", what.sizes.room, ring))
        }
        MEASURE => what.count(&mut MeasureRig::new(what.sizes.room, ring)),
        MEASURE_VERIFIED => what.count(&mut Verified(MeasureRig::new(what.sizes.room, ring))),
        ROUTE => what.routed(&mut RouteRig::new(what.sizes.room, ring, what.table(Table::Full))),
        ROUTE_SMALL => what.routed(&mut RouteRig::new(what.sizes.room, ring, Table::Small)),
        ROUTE_LIVE => what.routed(&mut RouteRig::live(what.sizes.room, ring, Table::Small)),
        ROUTE_LIVE_FULL => what.routed(&mut RouteRig::live(what.sizes.room, ring, what.table(Table::Full))),
        ROUTE_VLAN => what.routed(&mut RouteRig::vlan(what.sizes.room, ring, Table::Small)),
        other => match APART.iter().find(|(name, _)| *name == other) {
            Some((_, arrival)) => what.count(&mut ArrivalRig::new(*arrival, what.sizes.room, ring)),
            None => return Err(format!("{driver}: no such driver; there are {}", DRIVERS.join(", "))),
        },
    };
    let expected = turns * what.sizes.packets();
    if packets == expected { Ok(()) } else { Err(format!("{packets} packets of {expected}")) }
}

/// What is counted in a process.
struct What {
    work: Work,
    sizes: Sizes,
    turns: usize,
    hardware: bool,
}

impl What {
    /// Some turns that are not counted, and then those that are. Returns the packets of these.
    fn count(&self, rig: &mut impl Subject) -> usize {
        let (turns, found) = self.sizes.warm_up();
        for _ in 0..turns {
            for count in &found {
                if self.hardware {
                    rig.hardware_part(self.work, *count)
                } else {
                    rig.part(self.work, *count)
                };
            }
        }
        if self.hardware { self.counted_hardware(rig) } else { self.counted(rig) }
    }

    /// As [`Self::count`]. Less than a burst waits at each of two ports; all else was sent.
    fn routed<F: Routing>(&self, rig: &mut RouteRig<F>) -> usize {
        let packets = self.count(rig);
        let left = usize::try_from(rig.sent()).unwrap_or(0) + rig.waiting();
        let (turns, found) = self.sizes.warm_up();
        if self.hardware { packets } else { left - turns * found.iter().sum::<usize>() }
    }

    /// The table: the hardware's part alone needs no large one.
    fn table(&self, table: Table) -> Table {
        if self.hardware { Table::Small } else { table }
    }

    /// What is counted. By its name, valgrind finds it.
    #[inline(never)]
    fn counted(&self, rig: &mut impl Subject) -> usize {
        let mut packets = 0;
        for _ in 0..self.turns {
            for count in &self.sizes.found {
                packets += rig.part(self.work, *count);
            }
        }
        packets
    }

    #[inline(never)]
    fn counted_hardware(&self, rig: &mut impl Subject) -> usize {
        let mut packets = 0;
        for _ in 0..self.turns {
            for count in &self.sizes.found {
                packets += rig.hardware_part(self.work, *count);
            }
        }
        packets
    }
}

/// A rig, and its hardware alone.
trait Subject {
    fn part(&mut self, work: Work, count: usize) -> usize;
    fn hardware_part(&mut self, work: Work, count: usize) -> usize;
}

impl<P: Port> Subject for Rig<P> {
    #[inline(always)]
    fn part(&mut self, work: Work, count: usize) -> usize {
        self.part(work, count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        self.hardware_part(work, count)
    }
}

impl Subject for VirtioRig {
    #[inline(always)]
    fn part(&mut self, work: Work, count: usize) -> usize {
        self.part(work, count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        self.hardware_part(work, count)
    }
}

impl Subject for MeasureRig {
    #[inline(always)]
    fn part(&mut self, work: Work, count: usize) -> usize {
        self.part(work, count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        self.driver_part(work, count)
    }
}

/// A rig that only verifies what it receives.
struct Verified(MeasureRig);

impl Subject for Verified {
    #[inline(always)]
    fn part(&mut self, _: Work, count: usize) -> usize {
        self.0.receive::<false, true>(count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        self.0.driver_part(work, count)
    }
}

impl Subject for ArrivalRig {
    #[inline(always)]
    fn part(&mut self, _: Work, count: usize) -> usize {
        self.receive::<true>(count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, _: Work, count: usize) -> usize {
        self.receive::<false>(count)
    }
}

impl<F: Routing> Subject for RouteRig<F> {
    #[inline(always)]
    fn part(&mut self, _: Work, count: usize) -> usize {
        self.part(count)
    }

    #[inline(always)]
    fn hardware_part(&mut self, _: Work, count: usize) -> usize {
        self.hardware_part(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_more_is_told() {
        let outcome = |igb: f64, function: f64| {
            let figures = [("ixgbe", 100.0), ("igb", igb), (FUNCTION, function), ("virtio-split", 500.0)];
            let named = figures.map(|(driver, figure)| ((driver.to_owned(), "forward burst=32".to_owned()), figure));
            Counted { figures: named.into() }.compared().join("; ")
        };
        assert_eq!([outcome(114.0, 100.9), outcome(20.0, 99.1)], ["", ""]);
        assert!(outcome(116.0, 100.0).starts_with("igb forward burst=32 takes 116.0"));
        for function in [98.0, 102.0] {
            assert!(outcome(100.0, function).starts_with("ixgbevf forward burst=32"), "{function}");
        }
    }

    #[test]
    fn who_is_above_a_limit_is_told() {
        let figures = |more: f64| {
            let base = |driver: &str, beyond: Option<&str>| {
                if beyond.is_some() {
                    5.0
                } else if driver == MEASURE {
                    60.0
                } else {
                    1.0
                }
            };
            let named =
                LIMITS.map(|(driver, what, beyond, _)| ((driver.to_owned(), what.to_owned()), base(driver, beyond)));
            let [with, without] = [("receive-with", 7.0), ("receive", 6.0)];
            let received = ["ixgbe", "igb"].into_iter().flat_map(|driver| {
                BURSTS.into_iter().flat_map(move |burst| {
                    [with, without].map(|(work, figure)| ((driver.to_owned(), format!("{work} burst={burst}")), figure))
                })
            });
            let route = ((ROUTE.to_owned(), "forward burst=32".to_owned()), 5.0);
            let mut figures: BTreeMap<_, _> = named.into_iter().chain(received).chain([route]).collect();
            figures.insert(("ixgbe".to_owned(), "forward burst=32".to_owned()), 1.0);
            *figures.entry((ROUTE_LIVE.to_owned(), "forward burst=32".to_owned())).or_default() += more;
            Counted { figures }.limited()
        };
        assert_eq!(figures(12.0), Vec::<String>::new());
        assert_eq!(
            figures(12.5),
            ["l3-live forward burst=32 takes 12.5 instructions over l3-small, and 12 is the limit"]
        );
    }
}
