//! Counts instructions per packet with callgrind: `instr` prints a line for each driver, work and burst, and one for `fwd l3`
//! with a full IPv4 table; `instr DRIVER WORK BURST RING BURSTS [hardware]` is what it runs under valgrind to get there.
//!
//! Each figure is the difference between two runs of different length, so that what happens once cancels out, less
//! the same difference for the hardware's part alone.

use benches::{Rig, RouteRig, Table, VirtioRig, Work};
use std::process::{Command, ExitCode};

const RING: u16 = 512;
const BURSTS: [usize; 5] = [1, 4, 8, 32, 128];
const DRIVERS: [&str; 3] = ["ixgbe", "virtio-split", "virtio-packed"];
const PACKETS: [usize; 2] = [12_800, 64_000];
/// `fwd l3` on ixgbe: receive a burst, route it by a full table to two ports, transmit.
const ROUTE: &str = "l3";
const ROUTE_BURST: usize = 32;

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

fn table() -> Result<(), String> {
    for driver in DRIVERS {
        for work in [Work::Forward, Work::Receive, Work::ReceiveWith, Work::Transmit, Work::Pool] {
            // The pool is the same for all of them.
            if work == Work::Pool && driver != DRIVERS[0] {
                continue;
            }
            for burst in BURSTS {
                let count = per_packet(driver, work, burst)?;
                println!("{driver} {work} burst={burst} ring={RING} instructions_per_packet={count:.1}");
            }
        }
    }
    let routed = per_packet(ROUTE, Work::Forward, ROUTE_BURST)?;
    println!("{ROUTE} burst={ROUTE_BURST} ring={RING} instructions_per_packet={routed:.1}");
    Ok(())
}

/// Instructions per packet, from four runs at once.
fn per_packet(driver: &str, work: Work, burst: usize) -> Result<f64, String> {
    let run = |packets: usize, hardware: bool| {
        // The pool has no hardware's part.
        let none = hardware && work == Work::Pool;
        if none { Ok(0) } else { instructions(driver, work, burst, packets / burst, hardware) }
    };
    let counts = std::thread::scope(|scope| {
        [(0, false), (1, false), (0, true), (1, true)]
            .map(|(length, hardware)| scope.spawn(move || run(PACKETS[length], hardware)))
            .map(|counted| counted.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    });
    let [few, many, few_hardware, many_hardware] = counts;
    let count = (many? - few?) as f64 - (many_hardware? - few_hardware?) as f64;
    let [few, many] = PACKETS.map(|packets| packets / burst * burst);
    Ok(count / (many - few) as f64)
}

/// Instructions of a run of `bursts` bursts in a process of its own.
fn instructions(driver: &str, work: Work, burst: usize, bursts: usize, hardware: bool) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    if driver == ROUTE {
        // Loading a table takes a thousand times as many, and never the same, as hash maps are seeded by chance.
        command.args(["--collect-atstart=no", "--toggle-collect=*route_bursts*"]);
    }
    command.arg(program);
    command.args([driver, &work.to_string(), &burst.to_string(), &RING.to_string(), &bursts.to_string()]);
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
    let [driver, work, burst, ring, bursts, rest @ ..] = arguments else {
        return Err("usage: instr [DRIVER WORK BURST RING BURSTS [hardware]]".into());
    };
    let work: Work = work.parse()?;
    let number = |text: &String| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
    let (burst, bursts) = (number(burst)?, number(bursts)?);
    let ring = ring.parse().map_err(|error| format!("{ring}: {error}"))?;
    let hardware = !rest.is_empty();
    let packets = match driver.as_str() {
        "ixgbe" => {
            let mut rig = Rig::new(burst, ring);
            repeat(bursts, || {
                if hardware {
                    rig.hardware_burst(work);
                    burst
                } else {
                    rig.burst(work)
                }
            })
        }
        "virtio-split" | "virtio-packed" => {
            let mut rig = VirtioRig::new(driver == "virtio-packed", burst, ring);
            repeat(bursts, || {
                if hardware {
                    rig.hardware_burst(work);
                    burst
                } else {
                    rig.burst(work)
                }
            })
        }
        ROUTE => route(burst, ring, bursts, hardware),
        _ => return Err(format!("{driver}: no such driver; there are {}", DRIVERS.join(", "))),
    };
    if packets == bursts * burst { Ok(()) } else { Err(format!("{packets} packets of {}", bursts * burst)) }
}

fn route(burst: usize, ring: u16, bursts: usize, hardware: bool) -> usize {
    let mut rig = RouteRig::new(burst, ring, if hardware { Table::Small } else { Table::Full });
    route_bursts(&mut rig, bursts, hardware);
    // Less than a burst waits at each of two ports; all else was sent.
    let waiting = rig.waiting();
    if hardware { bursts * burst } else { usize::try_from(rig.sent()).unwrap_or(0) + waiting }
}

/// What is counted. By its name, valgrind finds it.
#[inline(never)]
fn route_bursts(rig: &mut RouteRig, bursts: usize, hardware: bool) {
    for _ in 0..bursts {
        if hardware {
            rig.hardware_burst();
        } else {
            rig.burst();
        }
    }
}

#[inline(always)]
fn repeat(bursts: usize, mut burst: impl FnMut() -> usize) -> usize {
    (0..bursts).map(|_| burst()).sum()
}
