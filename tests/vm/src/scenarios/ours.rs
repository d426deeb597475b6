//! The model judges our driver, behind the kernel's VFIO and an IOMMU, as a user who owns a group file and no more.

use super::linux;
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result};
use serde_json::Value;
use softnic::{Fault, Violation};
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
    const FRAMES: [u32; 2] = [200_000; 2];
    const KILLS: u32 = 3;
    let folder = tempfile::tempdir()?;
    let played = players(folder.path(), FRAMES)?;
    // Two that are wired back to back, for Linux afterwards; and two with captures.
    let nics = &["a?id=10f9", "b?id=10fb&wire=peer:a", &played[0], &played[1]];
    let setup = Setup { nics, iommu: Iommu::Full, huge_pages: 64, kernel: "ipv6.disable=1", ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(GIVE)?;
    vm.sh(&GIVE.replace("00:05", "00:07").replace("00:06", "00:08"))?;
    for round in 1..=3 {
        let gone = |vm: &Machine| vm.nic(0).wire_counters().sent + vm.nic(0).wire_counters().lost;
        let before = gone(&vm);
        vm.sh(&format!("{} >/tmp/killed 2>&1 & echo $! >/tmp/pid", as_user("pktgen tx 0000:00:05.0 --quiet")))?;
        vm.until("traffic flows", |vm| gone(vm) > before + 1000);
        // The next program starts before anybody could have cleaned up; only the kernel can.
        let again = as_user("pktgen tx 0000:00:05.0 --count 5000 --json --quiet");
        let said = vm.try_sh(&format!("{KILL}; {again}"))?;
        checks.that(
            said.status == 0,
            format!("killed in mid-traffic, and started again ({round}): {}", last_line(&said.text)),
        );
    }
    let command = as_user("fwd l2 0000:00:07.0 0000:00:08.0");
    for round in 1..=KILLS {
        let before = [2, 3].map(|nic| vm.nic(nic).wire_counters().sent);
        start(&mut vm, &command)?;
        vm.until("frames pass both ways", |vm| {
            [2, 3].into_iter().zip(before).all(|(nic, before)| vm.nic(nic).wire_counters().sent > before + 5000)
        });
        let left = !(2..4).all(|nic| vm.nic(nic).source_finished());
        checks.that(left, format!("fwd l2 is killed while frames pass ({round})"));
        vm.sh(KILL)?;
    }
    let report = run_until(&mut vm, &command, |vm| {
        (2..4).all(|nic| vm.nic(nic).source_finished() && vm.nic(nic).transmit_idle())
            && (2..4).all(|nic| vm.nic(nic).wire_counters().sent == recorded(folder.path(), nic - 2))
    })?;
    checks.equal("drops of the last run", report["drops"].to_string(), "{}".to_owned());
    for side in [0, 1] {
        let out = folder.path().join(format!("out{}", 1 - side));
        let frames::Missing { frames, stretches, wrong } = frames::missing(&out, side, FRAMES[usize::from(side)])?;
        checks.equal(format!("frames of port {side} that differ, or came late or twice"), wrong, None);
        // What a killed program held: its rings and what was between them.
        checks.that(
            stretches <= KILLS && frames <= KILLS * 8192,
            format!(
                "  missing: {frames} of {}, in {stretches} stretches, for {KILLS} kills",
                FRAMES[usize::from(side)]
            ),
        );
    }
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    // A killed driver leaves its rings as they were; the kernel takes bus mastering away, and that is all the model may see.
    for nic in 0..4 {
        let (_, seen) = vm.nic(nic).violations();
        let wrong: Vec<_> = seen.iter().filter(|seen| !matches!(seen, Violation::NotBusMaster { .. })).collect();
        checks.that(wrong.is_empty(), format!("nothing that the datasheet forbids was done to NIC {nic}: {wrong:?}"));
    }
    vm.sh(&format!("fwd unbind {PORTS}"))?;
    vm.sh(linux::UP)?;
    vm.sh(linux::LINKED)?;
    let said = vm.try_sh(
        "ls -l /sys/bus/pci/devices/0000:00:0[56].0/driver; ip netns exec n0 ping -c 20 -i 0.1 -w 60 10.9.0.2",
    )?;
    checks.equal("both are back with the kernel's driver", said.text.matches("drivers/ixgbe").count(), 2);
    checks.answers("which pings from one to the other", &said.text, 20);
    Ok(())
}

/// Kills what [`start`] has started, and waits until it is gone.
const KILL: &str = "kill -9 $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do :; done";

/// Frames in the capture that NIC `nic` records, as far as it is written out.
fn recorded(folder: &Path, nic: usize) -> u64 {
    frames::read(&folder.join(format!("out{nic}")), |_| ()).map_or(0, u64::from)
}

/// Cards that get as many frames of as many flows each, by twos.
const SPREAD: [&str; 4] = [
    "a?wire=gen&flows=1024&count=100000",
    "b?id=x550&wire=gen&flows=1024&count=100000",
    "c?id=x540&wire=gen&flows=1024&count=100000",
    "d?id=10fb&wire=gen&flows=1024&count=100000",
];

/// Several queues, a worker for each.
pub(super) fn queues(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const FRAMES: u64 = 100_000;
    let setup = Setup { nics: &SPREAD, iommu: Iommu::Full, huge_pages: 64, cpus: 4, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    let lcores = "'(0,0,0),(0,1,1),(1,0,2),(1,1,3)'";
    for (first, others) in [(0, PORTS), (2, "0000:00:07.0 0000:00:08.0")] {
        let pair = [first, first + 1];
        vm.sh(&PORTS.split(' ').zip(others.split(' ')).fold(GIVE.to_owned(), |give, (a, b)| give.replace(a, b)))?;
        let run = as_user(&format!("fwd l2 {others} --queues 2 --lcores {lcores}"));
        let report = run_until(&mut vm, &run, |vm| pair.iter().all(|nic| vm.nic(*nic).wire_counters().sent >= FRAMES))?;
        checks.equal("two queues a port, a worker each: forwarded", report["forwarded"].as_u64(), Some(2 * FRAMES));
        checks.equal("  drops", report["drops"].to_string(), "{}".to_owned());
        for (port, nic) in pair.into_iter().enumerate() {
            checks.equal(format!("  frames that {} sent", SPREAD[nic]), vm.nic(nic).wire_counters().sent, FRAMES);
            // Flows are even, so queues are nearly so; and a worker sends by its own queue.
            for (way, name) in [("received", "rx_queues"), ("sent", "tx_queues")] {
                let queues = report["ports"][port][name].as_array().into_iter().flatten();
                let packets: Vec<_> = queues.map(|queue| queue["packets"].as_u64().unwrap_or(0)).collect();
                let fair = packets.len() == 2
                    && packets.iter().all(|packets| (FRAMES * 2 / 5..FRAMES * 3 / 5).contains(packets));
                checks.that(fair && packets.iter().sum::<u64>() == FRAMES, format!("  {way} by queue: {packets:?}"));
            }
        }
        are_quiet(checks, &vm, pair);
    }
    Ok(())
}

/// A waiting receive that the card wakes by MSI-X and eventfd; and one that polls as long as there is work.
pub(super) fn interrupts(rig: &Rig, checks: &mut Checks) -> Result<()> {
    // So slow that a hybrid, which polls for a millisecond, sleeps too.
    const SLOW: u64 = 500;
    const FAST: u64 = 300_000;
    for (idle, rate, count) in [("sleep", "&rate=100", SLOW), ("hybrid", "&rate=100", SLOW), ("hybrid", "", FAST)] {
        let source = format!("a?wire=gen&count={count}{rate}");
        let setup =
            Setup { nics: &[&source, "b?id=10fb&wire=sink"], iommu: Iommu::Full, huge_pages: 32, ..Setup::default() };
        let mut vm = rig.boot(&setup)?;
        vm.sh(GIVE)?;
        let run = as_user(&format!("fwd l2 {PORTS} --idle {idle}"));
        let report = run_until(&mut vm, &run, |vm| vm.nic(1).wire_counters().sent >= count)?;
        let about =
            format!("--idle {idle}, {}", if rate.is_empty() { "as fast as it can" } else { "100 frames a second" });
        checks.equal(format!("{about}: forwarded"), report["forwarded"].as_u64(), Some(count));
        let workers = report["workers"].as_array().context("workers in the report")?;
        let wakeups: u64 = workers.iter().filter_map(|worker| worker["wakeups"].as_u64()).sum();
        let asleep: f64 = workers.iter().filter_map(|worker| worker["asleep_s"].as_f64()).sum();
        if rate.is_empty() {
            checks.that(wakeups < count / 100, format!("  it polled under load: {wakeups} wake-ups"));
        } else {
            checks.that(wakeups > 100, format!("  it slept between frames, {asleep} s in all: {wakeups} wake-ups"));
        }
        quiet(checks, &vm);
    }
    Ok(())
}

/// Cards on the second of two nodes: workers run there, and packet memory lies there.
pub(super) fn numa(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let nics = &["a?wire=gen&count=20000", "b?wire=sink"];
    let setup = Setup { nics, iommu: Iommu::Full, huge_pages: 64, numa: true, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh("modprobe vfio-pci")?;
    let ports = "0000:41:00.0 0000:42:00.0";
    vm.sh(&format!("fwd bind {ports}"))?;
    let report = run_until(&mut vm, &format!("fwd l2 {ports}"), |vm| vm.nic(1).wire_counters().sent >= 20_000)?;
    checks.equal("forwarded", report["forwarded"].as_u64(), Some(20_000));
    let nodes = |list: &str| -> Vec<Value> {
        report[list].as_array().into_iter().flatten().map(|each| each["numa_node"].clone()).collect()
    };
    checks.equal("the cards' node", nodes("ports"), vec![Value::from(1); 2]);
    checks.that(
        !nodes("workers").is_empty() && nodes("workers").iter().all(|node| *node == 1),
        format!("the workers' node: {:?}", nodes("workers")),
    );
    let memory = &report["packet_memory"]["numa_nodes"];
    checks.that(memory["1"].as_u64() > Some(0) && memory["0"].is_null(), format!("packet memory by node: {memory}"));
    let said = vm.try_sh(&format!("fwd l2 {ports} --lcores '(0,0,0),(1,0,0)' --duration 0.2 --quiet"))?;
    checks.contains("a choice of lcores that crosses nodes is warned of", &said.text, "node");
    let said = vm.try_sh(&format!("fwd doctor {ports}"))?;
    checks.contains("the doctor knows the node", &said.text, "node 1");
    vm.sh("echo 0 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")?;
    let said = vm.try_sh(&format!("fwd doctor {ports}"))?;
    checks.contains("and that it has no huge pages any more", &said.text, "NUMA node 1: no pages of 2 MiB");
    Ok(())
}

/// The kernel takes a card back, and a card stops answering, in the middle of traffic.
pub(super) fn release(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let nics = &["a?wire=gen&rate=20000", "b?id=10fb&wire=sink"];
    let mut vm = rig.boot(&Setup { nics, iommu: Iommu::Full, huge_pages: 32, ..Setup::default() })?;
    vm.sh(GIVE)?;
    let start = format!("{} >/tmp/said 2>&1 & echo $! >/tmp/pid", as_user(&format!("fwd l2 {PORTS} --quiet")));
    vm.sh(&start)?;
    vm.until("traffic flows", |vm| vm.nic(1).wire_counters().sent > 1000);
    let said = vm.sh("timeout 60 sh -c 'echo 0000:00:05.0 >/sys/bus/pci/drivers/vfio-pci/unbind' && echo unbound
         for try in $(seq 100); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         kill -0 $(cat /tmp/pid) 2>/dev/null || echo ended; cat /tmp/said")?;
    checks.contains("the kernel gets its card back", &said, "unbound");
    checks.contains("fwd has ended", &said, "ended");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("fwd: ")).collect();
    checks.that(errors.len() == 1, format!("  with one line: {}", errors.join(" / ")));
    vm.sh("fwd bind 0000:00:05.0")?;
    vm.sh(GIVE)?;
    let sent = vm.nic(1).wire_counters().sent;
    vm.sh(&start)?;
    vm.until("traffic flows again", |vm| vm.nic(1).wire_counters().sent > sent + 1000);
    vm.nic(0).inject_fault(Fault::Removal { after_reads: 0 });
    // The kernel itself waits a minute for a card that it cannot reset, so what counts is what fwd said.
    let said =
        vm.sh("for try in $(seq 300); do grep -q '^fwd: ' /tmp/said && break; sleep 0.1; done; cat /tmp/said")?;
    checks.contains("a card was pulled out: fwd ends with its summary", &said, "forwarded");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("fwd: ")).collect();
    checks.that(errors.len() == 1, format!("  with one line: {}", errors.join(" / ")));
    Ok(())
}

/// A machine whose NICs play captures of so many frames, and record what they send.
fn captures(rig: &Rig, setup: &Setup<'_>, folder: &Path, frames: [u32; 2]) -> Result<Machine> {
    let nics = players(folder, frames)?;
    rig.boot(&Setup { nics: &[&nics[0], &nics[1]], ..*setup })
}

/// Two NICs that play captures of so many frames, and record what they send.
fn players(folder: &Path, frames: [u32; 2]) -> Result<[String; 2]> {
    let mut nics = [const { String::new() }; 2];
    for (side, (count, id)) in [0, 1].into_iter().zip(frames.into_iter().zip(["10f9", "10fb"])) {
        let [input, output] = ["in", "out"].map(|name| folder.join(format!("{name}{side}")));
        frames::write(&input, side, count)?;
        nics[usize::from(side)] = format!("{side}?id={id}&wire=pcap:{},{}", input.display(), output.display());
    }
    Ok(nics)
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
    start(vm, command)?;
    vm.until("everything was forwarded", done);
    finish(vm, command)
}

/// Starts `command` in the background.
pub(super) fn start(vm: &mut Machine, command: &str) -> Result<()> {
    // A guest may wait long for its card: nothing is to be lost.
    vm.sh(&format!("{command} --tx-wait 5000000 --json --quiet >/tmp/report 2>/tmp/said & echo $! >/tmp/pid")).map(drop)
}

/// Interrupts what [`start`] has started, and returns its report.
pub(super) fn finish(vm: &mut Machine, command: &str) -> Result<Value> {
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
    are_quiet(checks, vm, [0, 1]);
}

/// As [`quiet`], of these NICs.
fn are_quiet(checks: &mut Checks, vm: &Machine, nics: [usize; 2]) {
    for nic in nics {
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
