//! DPDK's `net_ixgbe` judges the model: testpmd on vfio-pci, behind an IOMMU.

use super::dpdk_ports::Session;
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::Result;
use std::path::Path;

/// What a run of testpmd is told, and what it must say about the path it took.
struct Run {
    about: &'static str,
    program: &'static str,
    ids: [&'static str; 2],
    /// Frames each way.
    frames: u32,
    options: &'static str,
    offloads: &'static str,
    mode: &'static str,
    path: [&'static str; 2],
}

/// DPDK 24.11, and 22.11 of Debian 12.
pub(super) const NEW: &str = "dpdk-testpmd";
pub(super) const OLD: &str = "dpdk-testpmd-old";

const VECTOR: Run = Run {
    about: "vector path, io",
    program: NEW,
    ids: ["10f9", "10fb"],
    frames: 60_000,
    options: "",
    offloads: "",
    mode: "io",
    path: ["Vector rx enabled", "Using simple tx code path"],
};
const SCALAR: Run = Run {
    about: "scalar path, macswap",
    options: "--force-max-simd-bitwidth=64",
    offloads: "--tx-offloads=0x8000",
    mode: "macswap",
    path: ["Rx Burst Bulk Alloc Preconditions are satisfied", "Using full-featured tx code path"],
    ..VECTOR
};

/// Vector and scalar paths, one queue.
pub(super) fn forward(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let old = Run { about: "scalar path of DPDK 22.11, macswap", program: OLD, frames: 20_000, ..SCALAR };
    let port = Session { about: "a port of an 82599 with a module", program: NEW, ids: ["10fb", "10f9"] };
    runs(rig, checks, &[VECTOR, SCALAR, old], &[port])
}

/// An X550 and an X540.
pub(super) fn copper(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let new = Run { about: "X550 and X540, vector path, io", ids: ["x550", "x540"], frames: 20_000, ..VECTOR };
    let old = Run { about: "X550 and X540 with DPDK 22.11, vector path, io", program: OLD, ..new };
    let port = Session { about: "a port of an X550", program: NEW, ids: ["x550", "x540"] };
    let of_old = Session { about: "a port of an X540 with DPDK 22.11", program: OLD, ids: ["x540", "x550"] };
    runs(rig, checks, &[new, old], &[port, of_old])
}

/// A machine with two cards for each run and each session.
fn runs(rig: &Rig, checks: &mut Checks, runs: &[Run], sessions: &[Session]) -> Result<()> {
    let has_old = rig.has_old_dpdk();
    if !has_old {
        checks.skip("DPDK of Debian 12 was not to be had when the rig's machine was built (tests/vm/build)");
    }
    let runs: Vec<_> = runs.iter().filter(|run| has_old || run.program == NEW).collect();
    let sessions: Vec<_> = sessions.iter().filter(|session| has_old || session.program == NEW).collect();
    let folder = tempfile::tempdir()?;
    let file = |name: &str, nic: usize| folder.path().join(format!("{name}{nic}"));
    let mut nics = Vec::new();
    for run in &runs {
        for (side, id) in [0, 1].into_iter().zip(run.ids) {
            let nic = nics.len();
            frames::write(&file("in", nic), side, run.frames)?;
            let (input, output) = (file("in", nic), file("out", nic));
            nics.push(format!("{nic}?id={id}&link=down&wire=pcap:{},{}", input.display(), output.display()));
        }
    }
    let of_sessions = nics.len();
    for session in &sessions {
        nics.extend(session.nics(nics.len(), folder.path())?);
    }
    let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
    let setup = Setup { nics: &nics, iommu: Iommu::Full, huge_pages: 128, old_dpdk: has_old, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    for (run, first) in runs.into_iter().zip((0..).step_by(2)) {
        testpmd(&mut vm, checks, run, first)?;
        for side in [0, 1_u8] {
            let (nic, about, frames) = (first + usize::from(side), run.about, run.frames);
            let out = file("out", first + usize::from(1 - side));
            let swapped = run.mode == "macswap";
            let differs =
                if swapped { compare_swapped(&out, side, frames)? } else { frames::difference(&out, side, frames)? };
            checks.equal(
                format!("{about}: {frames} frames from port {side}, byte for byte and in order"),
                differs,
                None,
            );
            let (count, last) = vm.nic(nic).violations();
            checks.that(count == 0, format!("nothing that the datasheet forbids was done to NIC {nic}: {last:?}"));
        }
    }
    for (session, first) in sessions.into_iter().zip((of_sessions..).step_by(2)) {
        session.run(&mut vm, checks, first, folder.path())?;
    }
    Ok(())
}

/// As [`frames::difference`], the addresses exchanged.
fn compare_swapped(path: &Path, side: u8, count: u32) -> Result<Option<String>> {
    let (mut number, mut first) = (0, None);
    let found = frames::read(path, |bytes| {
        let mut wanted = frames::frame(side, number);
        let (to, from) = wanted[..12].split_at_mut(6);
        to.swap_with_slice(from);
        if first.is_none() && bytes != wanted {
            first = Some(format!("the first that differs is {number}: {bytes:02x?}"));
        }
        number += 1;
    })?;
    Ok(first.or((found != count).then(|| format!("{found} frames came out, {count} went in"))))
}

/// A run with NICs `first` and the one behind it.
fn testpmd(vm: &mut Machine, checks: &mut Checks, run: &Run, first: usize) -> Result<()> {
    let Run { about, program, frames, options, offloads, mode, path, .. } = run;
    let cards = [first, first + 1].map(|nic| format!("0000:00:{:02x}.0", nic + 5));
    let [a, b] = &cards;
    vm.sh(&format!(
        "modprobe vfio-pci
         for nic in {a} {b}; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done
         rm -f /tmp/commands; mkfifo /tmp/commands"
    ))?;
    // Its commands come through a pipe that stays open. Where the card does not keep up it tries again, for a second.
    vm.sh(&format!(
        "{program} -l 0,1 -n 1 --in-memory -a {a} -a {b} {options} --log-level=pmd.net.ixgbe.init:debug -- \
         -i --no-flush-rx --disable-link-check --nb-cores=1 --rxd=512 --txd=4096 --total-num-mbufs=16384 {offloads} <>/tmp/commands >/tmp/testpmd 2>&1 &
         echo $! >/tmp/pid
         printf 'set fwd {mode} retry\nset burst tx delay 100 retry 10000\nstart\n' >/tmp/commands
         for try in $(seq 90); do grep -q 'testpmd> start' /tmp/testpmd && exit; kill -0 $! || break; sleep 1; done
         cat /tmp/testpmd; exit 1"
    ))?;
    // Between its steps a driver takes addresses out of the filter: frames that come before all is set up are lost.
    for side in [0, 1] {
        vm.nic(first + side).set_link(true);
    }
    vm.until("all frames have been sent", |vm| {
        (first..first + 2)
            .all(|nic| vm.nic(nic).wire_counters().sent >= (*frames).into() && vm.nic(nic).transmit_idle())
    });
    let said = vm.sh("echo 'show port stats all' >/tmp/commands; echo stop >/tmp/commands; echo quit >/tmp/commands
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         cat /tmp/testpmd; dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.contains(format!("{about}: testpmd says how it forwards"), &said, "packet forwarding with retry");
    for part in path {
        checks.contains(format!("{about}: testpmd says \"{part}\""), &said, part);
    }
    for side in [0, 1] {
        let wire = vm.nic(first + side).wire_counters();
        let block = said.split(&format!("NIC statistics for port {side}")).nth(1).unwrap_or("");
        let field = |name: &str| {
            let rest = block.split(name).nth(1)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let found = ["RX-packets:", "TX-packets:", "RX-bytes:", "TX-bytes:", "RX-missed:", "RX-errors:"]
            .map(|name| field(name).unwrap_or(u64::MAX));
        let wanted = [wire.delivered, wire.sent, wire.delivered_bytes, wire.sent_bytes, 0, 0];
        checks.equal(format!("{about}: statistics of port {side}, as the wire"), found, wanted);
    }
    checks.that(said.ends_with("\n0"), "no faults of the IOMMU");
    checks.contains(format!("{about}: testpmd ends"), &said, "Bye...");
    Ok(())
}
