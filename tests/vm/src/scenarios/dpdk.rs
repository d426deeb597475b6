//! DPDK's `net_ixgbe` judges the model: testpmd on vfio-pci, behind an IOMMU.

use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::Result;
use std::path::Path;

/// Frames each way.
const FRAMES: u32 = 60_000;

/// What a run of testpmd is told, and what it must say about the path it took.
struct Run {
    about: &'static str,
    options: &'static str,
    offloads: &'static str,
    mode: &'static str,
    path: [&'static str; 2],
}

/// Vector and scalar paths, one queue.
pub(super) fn forward(rig: &Rig, checks: &mut Checks) -> Result<()> {
    for run in [
        Run {
            about: "vector path, io",
            options: "",
            offloads: "",
            mode: "io",
            path: ["Vector rx enabled", "Using simple tx code path"],
        },
        Run {
            about: "scalar path, macswap",
            options: "--force-max-simd-bitwidth=64",
            offloads: "--tx-offloads=0x8000",
            mode: "macswap",
            path: ["Rx Burst Bulk Alloc Preconditions are satisfied", "Using full-featured tx code path"],
        },
    ] {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| folder.path().join(name);
        for side in [0, 1] {
            frames::write(&file(&format!("in{side}")), side, FRAMES)?;
        }
        let wire = |id, side| {
            format!(
                "{side}?id={id}&link=down&wire=pcap:{},{}",
                file(&format!("in{side}")).display(),
                file(&format!("out{side}")).display()
            )
        };
        let (a, b) = (wire("10f9", 0), wire("10fb", 1));
        let setup = Setup { nics: &[&a, &b], iommu: Iommu::Full, huge_pages: 128, ..Setup::default() };
        let mut vm = rig.boot(&setup)?;
        testpmd(&mut vm, checks, &run)?;
        for side in [0, 1] {
            let out = file(&format!("out{}", 1 - side));
            let swapped = run.mode == "macswap";
            let differs = if swapped { compare_swapped(&out, side)? } else { frames::difference(&out, side, FRAMES)? };
            checks.equal(
                format!("{}: {FRAMES} frames from port {side}, byte for byte and in order", run.about),
                differs,
                None,
            );
            let (count, first) = vm.nic(side.into()).violations();
            checks.that(count == 0, format!("nothing that the datasheet forbids was done to NIC {side}: {first:?}"));
        }
    }
    Ok(())
}

/// As [`frames::difference`], the addresses exchanged.
fn compare_swapped(path: &Path, side: u8) -> Result<Option<String>> {
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
    Ok(first.or((found != FRAMES).then(|| format!("{found} frames came out, {FRAMES} went in"))))
}

fn testpmd(vm: &mut Machine, checks: &mut Checks, run: &Run) -> Result<()> {
    let Run { about, options, offloads, mode, path } = run;
    vm.sh("modprobe vfio-pci
         for nic in 0000:00:05.0 0000:00:06.0; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done
         mkfifo /tmp/commands")?;
    // Its commands come through a pipe that stays open. Where the card does not keep up it tries again, for a second.
    vm.sh(&format!(
        "dpdk-testpmd -l 0,1 -n 1 --in-memory -a 0000:00:05.0 -a 0000:00:06.0 {options} --log-level=pmd.net.ixgbe.init:debug -- \
         -i --no-flush-rx --disable-link-check --nb-cores=1 --rxd=512 --txd=4096 --total-num-mbufs=16384 {offloads} <>/tmp/commands >/tmp/testpmd 2>&1 &
         echo $! >/tmp/pid
         printf 'set fwd {mode} retry\nset burst tx delay 100 retry 10000\nstart\n' >/tmp/commands
         for try in $(seq 90); do grep -q 'testpmd> start' /tmp/testpmd && exit; kill -0 $! || break; sleep 1; done
         cat /tmp/testpmd; exit 1"
    ))?;
    // Between its steps a driver takes addresses out of the filter: frames that come before all is set up are lost.
    for side in [0, 1] {
        vm.nic(side).set_link(true);
    }
    vm.until("all frames have been sent", |vm| {
        (0..2).all(|side| vm.nic(side).wire_counters().sent >= FRAMES.into() && vm.nic(side).transmit_idle())
    });
    let said = vm.sh("echo 'show port stats all' >/tmp/commands; echo stop >/tmp/commands; echo quit >/tmp/commands
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         cat /tmp/testpmd; dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.contains(format!("{about}: testpmd says how it forwards"), &said, "packet forwarding with retry");
    for part in path {
        checks.contains(format!("{about}: testpmd says \"{part}\""), &said, part);
    }
    for side in [0, 1] {
        let wire = vm.nic(side).wire_counters();
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
