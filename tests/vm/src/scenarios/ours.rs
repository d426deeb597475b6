//! The model judges our driver, behind the kernel's VFIO and an IOMMU, as a user who owns a group file and no more.

use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::Path;

/// The cards as `fwd` is told of them.
pub(super) const PORTS: &str = "0000:00:05.0 0000:00:06.0";
/// Bytes that the user may lock: what two ports of packet memory need, and not much more.
const MEMLOCK: u32 = 64 << 20;
/// Frames from the first port, and from the second.
const FRAMES: [u32; 2] = [1_000_000, 100_000];

/// Gives the cards to VFIO, and their groups to the user.
pub(super) const GIVE: &str = r"
modprobe vfio-pci
fwd bind 0000:00:05.0 0000:00:06.0
for nic in 0000:00:05.0 0000:00:06.0; do
    chown user /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$nic/iommu_group))
done
";

/// `command` as the user.
pub(super) fn as_user(command: &str) -> String {
    format!("prlimit --memlock={MEMLOCK} setpriv --reuid 1000 --regid 1000 --clear-groups {command}")
}

/// A million frames, byte for byte and in order.
pub(super) fn forward(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let setup = Setup { iommu: Iommu::Full, huge_pages: 32, ..Setup::default() };
    let mut vm = captures(rig, &setup, folder.path(), FRAMES)?;
    vm.sh(GIVE)?;
    let run = as_user(&format!("fwd l2 {PORTS}"));
    captured(&mut vm, checks, &run, folder.path(), FRAMES)?;
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    quiet(checks, &vm);
    // Whatever the kernel maps of its own is the same for a program that never ran.
    checks.equal("DMA mappings left after exit", [vm.nic(0).mappings(), vm.nic(1).mappings()], [0, 0]);
    Ok(())
}

/// As root, through sysfs, on a machine without an IOMMU: bus addresses are physical addresses.
pub(super) fn sysfs(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const FRAMES: [u32; 2] = [50_000, 50_000];
    let folder = tempfile::tempdir()?;
    let mut vm = captures(rig, &Setup { huge_pages: 32, ..Setup::default() }, folder.path(), FRAMES)?;
    let refused = vm.try_sh(&format!("fwd l2 {PORTS} --duration 1"))?;
    checks.contains("without --unsafe-no-iommu it is refused", &refused.text, "IOMMU");
    checks.that(refused.status != 0, format!("  with status {}", refused.status));
    captured(&mut vm, checks, &format!("fwd l2 {PORTS} --unsafe-no-iommu"), folder.path(), FRAMES)?;
    quiet(checks, &vm);
    Ok(())
}

/// Killed in the middle of traffic, run again at once, and then given back to the kernel.
pub(super) fn restart(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let nics = &["a?wire=loop", "b?id=10fb&wire=loop"];
    let setup = Setup { nics, iommu: Iommu::Full, huge_pages: 64, kernel: "ipv6.disable=1", ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(GIVE)?;
    for round in 1..=3 {
        let sent = vm.nic(0).wire_counters().sent;
        vm.sh(&format!("{} >/tmp/killed 2>&1 & echo $! >/tmp/pid", as_user("pktgen tx 0000:00:05.0 --quiet")))?;
        vm.until("traffic flows", |vm| vm.nic(0).wire_counters().sent > sent + 1000);
        // The next program starts before anybody could have cleaned up; only the kernel can.
        let again = as_user("pktgen tx 0000:00:05.0 --count 5000 --json --quiet");
        let said = vm.try_sh(&format!(
            "kill -9 $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do :; done; {again}"
        ))?;
        checks.that(
            said.status == 0,
            format!("killed in mid-traffic, and started again ({round}): {}", last_line(&said.text)),
        );
    }
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    quiet(checks, &vm);
    let said = vm.sh("fwd unbind 0000:00:05.0 0000:00:06.0; modprobe ixgbe
         for try in $(seq 100); do ls /sys/bus/pci/devices/0000:00:05.0/net >/dev/null 2>&1 && break; sleep 0.1; done
         dev=$(ls /sys/bus/pci/devices/0000:00:05.0/net); ip addr add 10.9.0.1/24 dev $dev; ip link set $dev up
         for try in $(seq 300); do ip link show $dev | grep -q LOWER_UP && break; sleep 0.1; done
         readlink /sys/bus/pci/devices/0000:00:0[56].0/driver; ip link show $dev
         rx=$(cat /sys/class/net/$dev/statistics/rx_packets); arping -c 3 -w 5 -I $dev 10.9.0.9 | tail -1
         echo received $(($(cat /sys/class/net/$dev/statistics/rx_packets) - rx))")?;
    checks.equal("both are back with the kernel's driver", said.matches("drivers/ixgbe").count(), 2);
    checks.contains("which has a link", &said, "LOWER_UP");
    let received = said.lines().find_map(|line| line.strip_prefix("received ")?.parse::<u32>().ok());
    // Through the loop every request comes back.
    checks.that(received >= Some(3), format!("and receives what it sends: {received:?}"));
    Ok(())
}

/// Several queues, a worker for each.
pub(super) fn queues(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let nics = &["a?wire=gen&flows=256&count=100000", "b?wire=gen&flows=256&count=100000"];
    let setup = Setup { nics, iommu: Iommu::Full, huge_pages: 64, cpus: 4, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(GIVE)?;
    let lcores = "'(0,0,0),(0,1,1),(1,0,2),(1,1,3)'";
    let run = as_user(&format!("fwd l2 {PORTS} --queues 2 --lcores {lcores}"));
    let report = run_until(&mut vm, &run, |vm| (0..2).all(|nic| vm.nic(nic).wire_counters().sent >= 100_000))?;
    checks.equal("two queues a port, a worker each: forwarded", report["forwarded"].as_u64(), Some(200_000));
    checks.equal("  drops", report["drops"].to_string(), "{}".to_owned());
    for nic in [0, 1] {
        checks.equal(format!("  frames that NIC {nic} sent"), vm.nic(nic).wire_counters().sent, 100_000);
    }
    quiet(checks, &vm);
    Ok(())
}

/// A machine whose NICs play captures of so many frames, and record what they send.
fn captures(rig: &Rig, setup: &Setup<'_>, folder: &Path, frames: [u32; 2]) -> Result<Machine> {
    let mut nics = Vec::new();
    for (side, (count, id)) in [0, 1].into_iter().zip(frames.into_iter().zip(["10f9", "10fb"])) {
        let [input, output] = ["in", "out"].map(|name| folder.join(format!("{name}{side}")));
        frames::write(&input, side, count)?;
        nics.push(format!("{side}?id={id}&wire=pcap:{},{}", input.display(), output.display()));
    }
    rig.boot(&Setup { nics: &[&nics[0], &nics[1]], ..*setup })
}

/// Runs `command` until everything has come through, and compares.
fn captured(vm: &mut Machine, checks: &mut Checks, command: &str, folder: &Path, frames: [u32; 2]) -> Result<()> {
    let report = run_until(vm, command, |vm| {
        (0..2).all(|nic| vm.nic(nic).wire_counters().sent >= frames[1 - nic].into() && vm.nic(nic).transmit_idle())
    })?;
    for side in [0, 1] {
        let differs = frames::difference(&folder.join(format!("out{}", 1 - side)), side, frames[usize::from(side)])?;
        let count = frames[usize::from(side)];
        checks.equal(
            format!("{count} frames from port {side}, byte for byte and in order: differences"),
            differs,
            None,
        );
        let (nic, port) = (usize::from(side), &report["ports"][usize::from(side)]);
        let wire = vm.nic(nic).wire_counters();
        let found =
            ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| port[name].as_u64().unwrap_or(u64::MAX));
        let wanted = [wire.delivered, wire.delivered_bytes, wire.sent, wire.sent_bytes];
        checks.equal(format!("what fwd counted on port {side}, as the wire"), found, wanted);
    }
    let all = u64::from(frames[0]) + u64::from(frames[1]);
    checks.equal(
        "received and forwarded",
        [&report["received"], &report["forwarded"]].map(Value::as_u64),
        [Some(all); 2],
    );
    checks.equal("drops", report["drops"].to_string(), "{}".to_owned());
    Ok(())
}

/// Starts `command`, interrupts it when `done`, and returns its report.
pub(super) fn run_until(vm: &mut Machine, command: &str, done: impl Fn(&Machine) -> bool) -> Result<Value> {
    // A guest may wait long for its card: nothing is to be lost.
    vm.sh(&format!("{command} --tx-wait 5000000 --json --quiet >/tmp/report 2>/tmp/said & echo $! >/tmp/pid"))?;
    vm.until("everything was forwarded", done);
    let said = vm.sh(
        "kill -INT $(cat /tmp/pid); for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         cat /tmp/said; cat /tmp/report",
    )?;
    for line in said.lines().filter(|line| !line.starts_with('{')) {
        println!("           {line}");
    }
    let json = said.lines().rfind(|line| line.starts_with('{'));
    let json = json.with_context(|| format!("{command} printed no report: {said}"))?;
    Ok(serde_json::from_str(json)?)
}

/// The model saw nothing that the datasheet forbids, and nothing is going on any more.
pub(super) fn quiet(checks: &mut Checks, vm: &Machine) {
    for nic in [0, 1] {
        let (count, first) = vm.nic(nic).violations();
        checks.that(count == 0, format!("nothing that the datasheet forbids was done to NIC {nic}: {first:?}"));
        let before = vm.nic(nic).dma_accesses();
        std::thread::sleep(std::time::Duration::from_millis(300));
        checks.equal(format!("DMA of NIC {nic} after the end"), vm.nic(nic).dma_accesses() - before, 0);
    }
}

pub(super) fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or("")
}
