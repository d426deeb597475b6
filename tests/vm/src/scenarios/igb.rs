//! QEMU's 82576 (`-device igb`), a model that nobody here wrote, judges our driver for it, and Linux's igb is at both ends.
//!
//! The first two NICs are ours. Their wires end in this process, which sends numbered frames into each and compares what
//! comes out of the other. Then they are joined to the wires of two more, which Linux drives in the same guest, each alone in
//! a network namespace: `n0` with 10.9.0.1 and `n1` with 10.9.0.2.

use super::ours::{self, as_user, last_line};
use super::virtio::{READY, TAKE, interrupts, wakeups};
use crate::checks::{Checks, answered};
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use crate::wires::{self, Exchange};
use anyhow::Result;
use ethdev::{Rss, hash_frame};
use serde_json::Value;

/// Our NICs.
const PORTS: &str = "0000:00:05.0 0000:00:07.0";
/// Frames each way.
const FRAMES: u32 = 5000;
/// Ours, and Linux's.
const NICS: &[&str] =
    &["mac=02:00:00:00:00:01", "mac=02:00:00:00:00:00", "mac=02:00:00:00:00:03", "mac=02:00:00:00:00:04"];

/// Gives Linux's NICs their namespaces.
const UP: &str = r"
modprobe igb
for i in 0 1; do
    [ $i = 0 ] && nic=0000:00:09.0 || nic=0000:00:0b.0
    dev=$(ls /sys/bus/pci/devices/$nic/net)
    ip netns add n$i
    ip link set $dev netns n$i name e$i
    ip -n n$i addr add 10.9.0.$((i + 1))/24 dev e$i
    ip -n n$i link set e$i mtu 9000 up
done
";

/// A script for the soft NICs' places, for ours.
fn placed(script: &str) -> String {
    script.replace("00:06.0", "00:07.0")
}

/// `command`, which says when it has its ports.
fn telling(command: &str) -> String {
    format!("RUST_LOG=igb=info {command}")
}

pub(super) fn forward(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let setup = Setup { igb: NICS, iommu: Iommu::Full, huge_pages: 32, kernel: "ipv6.disable=1", ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(&placed(ours::GIVE))?;
    let listed = vm.sh("fwd devices")?;
    let ours = listed.lines().find(|line| line.contains("0000:00:05.0")).unwrap_or_default();
    checks.contains("fwd devices knows it", ours, "82576 1000BASE-T");
    checks.that(ours.trim_end().ends_with("yes"), "  and that it can be used");
    let said = vm.try_sh(&as_user(&format!("fwd doctor {PORTS}")))?;
    checks.equal("fwd doctor is content", said.status, 0);
    exchange(&mut vm, checks, &as_user(&format!("fwd l2 {PORTS}")))?;
    let report = exchange(&mut vm, checks, &as_user(&format!("fwd l2 {PORTS} --idle sleep")))?;
    let counts = interrupts(&report.1, "0000:00:0");
    // Each NIC has a vector for its queue, and one for its link.
    checks.that(counts.iter().filter(|count| **count > 0).count() >= 2, format!("  interrupts: {counts:?}"));
    checks.that(wakeups(&report.0) > 0, format!("  it slept: {} wake-ups", wakeups(&report.0)));
    vm.sh(UP)?;
    for nic in 0..2 {
        wires::join(vm.wire(nic), vm.wire(nic + 2))?;
    }
    pings(&mut vm, checks)?;
    back(&mut vm, checks)?;
    no_faults(&mut vm, checks)
}

/// As root, without an IOMMU: bus addresses are physical addresses, and each page of a pool has its own.
pub(super) fn sysfs(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = rig.boot(&Setup { igb: &NICS[..2], huge_pages: 32, ..Setup::default() })?;
    vm.sh(&format!("modprobe igb\n{}", placed(TAKE)))?;
    let refused = vm.try_sh(&format!("fwd l2 {PORTS} --duration 1"))?;
    checks.that(refused.status != 0, format!("refused without a word for it: {}", last_line(&refused.text)));
    exchange(&mut vm, checks, &format!("fwd l2 {PORTS} --unsafe-no-iommu")).map(drop)
}

/// What README has a user add to the words for QEMU: two NICs, back to back.
const PAIR: &str = "-device intel-iommu,intremap=on,caching-mode=on
-device pcie-root-port,id=p1,chassis=1 -device igb,bus=p1,netdev=n1 -netdev hubport,hubid=1,id=n1
-device pcie-root-port,id=p2,chassis=2 -device igb,bus=p2,netdev=n2 -netdev hubport,hubid=1,id=n2";

/// Two NICs back to back, as in README: a generator on one, a counter on the other.
pub(super) fn pair(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const COUNT: u64 = 2000;
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"))?;
    checks.that(PAIR.lines().all(|line| readme.contains(line)), "README has the same words for QEMU");
    let qemu: Vec<_> = PAIR.split_whitespace().collect();
    // The IOMMU is among the words already.
    let setup = Setup { qemu: &qemu, huge_pages: 32, kernel: "intel_iommu=on", ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh("modprobe -a vfio-pci vfio_iommu_type1; fwd bind 0000:01:00.0 0000:02:00.0")?;
    let said = vm.sh(&format!(
        "RUST_LOG=igb=info fwd rxonly 0000:02:00.0 --json --quiet >/tmp/report 2>/tmp/said & counter=$!
         for try in $(seq 300); do grep -q 'in use:' /tmp/said && break; sleep 0.1; done
         pktgen tx 0000:01:00.0 --count {COUNT} --ends 0 --rate 2000 --quiet
         kill -INT $counter; wait $counter; cat /tmp/said /tmp/report"
    ))?;
    let report = said.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    let report: Value = serde_json::from_str(report)?;
    checks.equal("frames that one NIC sent and the other received", report["received"].as_u64(), Some(COUNT));
    measured(&mut vm, checks)?;
    no_faults(&mut vm, checks)
}

/// RFC 2544 from one NIC to the other: percentages are of the line that the NICs have, 1 Gbit/s.
fn measured(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    let options = "--one-way --sizes 64 --tests loss --max 500 --trial-time 300ms --repetitions 1 --catch-up 300ms";
    vm.try_sh(&format!("pktgen rfc2544 --ports 0000:01:00.0,0000:02:00.0 {options} --out /tmp/results --quiet"))?;
    let said = vm.sh("cat /tmp/results/trials.jsonl; pktgen report /tmp/results; pktgen report /tmp/results --json")?;
    let line = 1e9 / ((64.0 + 20.0) * 8.0);
    checks.contains("RFC 2544 between them knows their line", &said, &format!("\"frmol\":{{\"rate\":{line:?}"));
    checks.contains("  and says so", &said, "of max: of the rate of the line");
    let report = said.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    let report: Value = serde_json::from_str(report)?;
    let rows = report["runs"][0]["rows"].as_array().into_iter().flatten();
    let highest = rows.filter(|row| row["test"] == "forwarded at maximum load");
    // On a machine that stands still no trial counts.
    for (value, percent) in highest.filter_map(|row| Some((row["value"].as_f64()?, row["percent"].as_f64()?))) {
        let is_share = value > 0.0 && (percent - value / line * 100.0).abs() < 1e-9;
        checks.that(is_share, format!("  {value} pps are {percent} % of it"));
    }
    Ok(())
}

/// Frames through `command` in both directions, from this process to this process. Returns its report, and
/// `/proc/interrupts` while it ran.
fn exchange(vm: &mut Machine, checks: &mut Checks, command: &str) -> Result<(Value, String)> {
    let command = telling(command);
    ours::start(vm, &command)?;
    vm.sh(READY)?;
    // QEMU forgets what came before a NIC's reset.
    let exchange = Exchange::start_paced([vm.wire(0), vm.wire(1)], FRAMES)?;
    vm.until("everything was forwarded", |_| exchange.is_over());
    let fired = vm.sh("cat /proc/interrupts")?;
    let report = ours::finish(vm, &command)?;
    println!("           {command}");
    for (side, difference) in exchange.differences()?.into_iter().enumerate() {
        let what = format!("{FRAMES} frames from wire {side}, byte for byte and in order: differences");
        checks.equal(what, difference, None);
    }
    counted(checks, &report, FRAMES);
    Ok((report, fired))
}

/// What `fwd` and the NICs have counted of `frames` each way.
fn counted(checks: &mut Checks, report: &Value, frames: u32) {
    let all = Some(2 * u64::from(frames));
    checks.equal("received and forwarded", ["received", "forwarded"].map(|name| report[name].as_u64()), [all; 2]);
    checks.equal("drops", report["drops"].to_string(), "{}".to_owned());
    for (port, side) in [(0, 0), (1, 1)] {
        let bytes = |side| (0..frames).map(|number| frames::frame(side, number).len() as u64).sum::<u64>();
        let counts =
            ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| report["ports"][port][name].as_u64());
        let wanted = [frames.into(), bytes(side), frames.into(), bytes(1 - side)].map(Some);
        checks.equal(format!("packets and bytes that NIC {port} counted, in and out"), counts, wanted);
    }
}

/// Linux pings itself through `fwd`; `fwd` is killed and started again.
fn pings(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    let start = telling(&as_user(&format!("fwd l2 {PORTS} --mtu 9000 --quiet --idle sleep")));
    let start = format!("{start} >/tmp/said 2>&1 & echo $! >/tmp/pid\n{READY}");
    let ping = "ip netns exec n0 ping -c 10 -i 0.1 -w 60 10.9.0.2
         ip netns exec n1 ping -c 10 -i 0.1 -w 60 -s 8972 -M do 10.9.0.1";
    let said = vm.sh(&format!("{start}\n {ping} || cat /tmp/said"))?;
    checks.equal("Linux's igb pings Linux's igb through fwd, 10 short and 10 of 9,000 bytes", answered(&said, 10), 2);
    let said = vm.sh(&format!(
        "ip netns exec n0 ping -i 0.01 -c 100000 10.9.0.2 >/dev/null 2>&1 & pinger=$!
         sleep 0.5; kill -9 $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do :; done
         {start}
         for try in $(seq 60); do ip netns exec n0 ping -c 1 -W 1 10.9.0.2 >/dev/null && break; done
         {ping} || cat /tmp/said
         head -c 3000000 /dev/urandom >/tmp/data; sum=$(sha256sum </tmp/data)
         for from in 0 1; do
             to=$((1 - from))
             ip netns exec n$to timeout 120 socat -u TCP-LISTEN:7000 CREATE:/tmp/copy >/dev/null 2>&1 & server=$!
             for try in $(seq 300); do ip netns exec n$to netstat -ltn 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
             ip netns exec n$from timeout 120 socat -u FILE:/tmp/data TCP:10.9.0.$((to + 1)):7000; wait $server
             [ \"$(sha256sum </tmp/copy)\" = \"$sum\" ] && echo same data from n$from
             rm /tmp/copy
         done
         kill $pinger; kill -INT $(cat /tmp/pid)
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done; cat /tmp/said"
    ))?;
    checks.equal("killed in mid-traffic and started at once, it does again", answered(&said, 10), 2);
    for from in ["n0", "n1"] {
        let same = format!("same data from {from}");
        checks.contains(format!("  3 MB over TCP from {from} arrive as they were sent"), &said, &same);
    }
    checks.contains("  and ends when it is told to", &said, "forwarded");
    Ok(())
}

/// The kernel's own driver takes our NICs, and pings over one of them.
fn back(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    let said = vm.sh(&format!(
        "fwd unbind {PORTS}
         for try in $(seq 300); do ls /sys/bus/pci/devices/0000:00:05.0/net >/dev/null 2>&1 && break; sleep 0.1; done
         dev=$(ls /sys/bus/pci/devices/0000:00:05.0/net)
         ip addr add 10.9.0.3/24 dev $dev; ip link set $dev up
         for try in $(seq 100); do [ \"$(cat /sys/class/net/$dev/carrier)\" = 1 ] && break; sleep 0.1; done
         ping -c 5 -i 0.1 -w 60 10.9.0.1"
    ))?;
    checks.equal("both are back with the kernel's driver", said.matches("back with igb").count(), 2);
    checks.equal("which pings over one of them", answered(&said, 5), 1);
    Ok(())
}

fn no_faults(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    Ok(())
}

/// Receive queues of each NIC.
const QUEUES: u16 = 4;

/// Each flow goes to the queue that its hash leads to, as computed in software; a queue has a vector and a worker of its own.
pub(super) fn queues(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let setup = Setup { igb: &NICS[..2], iommu: Iommu::Full, huge_pages: 64, cpus: 4, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(&placed(ours::GIVE))?;
    let refused = vm.try_sh(&as_user(&format!("fwd l2 {PORTS} --queues 17 --duration 1 --quiet")))?;
    checks.contains("more queues than it has", &refused.text, "17 queues: must be 1 to 16");
    let lcores: Vec<_> = (0..QUEUES).map(|queue| format!("(0,{queue},{queue}),(1,{queue},{queue})")).collect();
    let lcores = lcores.join(",");
    let command = as_user(&format!("fwd l2 {PORTS} --queues {QUEUES} --lcores '{lcores}' --idle sleep"));
    let command = telling(&command);
    ours::start(&mut vm, &command)?;
    vm.sh(READY)?;
    let exchange = Exchange::start_unordered([vm.wire(0), vm.wire(1)], FRAMES)?;
    vm.until("everything was forwarded", |_| exchange.is_over());
    let fired = interrupts(&vm.sh("cat /proc/interrupts")?, "0000:00:05.0");
    let report = ours::finish(&mut vm, &command)?;
    for (side, difference) in exchange.differences()?.into_iter().enumerate() {
        checks.equal(format!("{FRAMES} frames from wire {side}, byte for byte: differences"), difference, None);
    }
    counted(checks, &report, FRAMES);
    let used = fired.iter().take(QUEUES.into()).filter(|count| **count > 0).count();
    checks.equal(format!("vectors of queues that fired, of {fired:?}"), used, QUEUES.into());
    for side in [0, 1] {
        let mut wanted = vec![Some(0); QUEUES.into()];
        for number in 0..FRAMES {
            let rss = Rss::default();
            let queue = rss.queue(hash_frame(&rss, &frames::frame(side, number)), QUEUES);
            wanted[usize::from(queue)] = wanted[usize::from(queue)].map(|count: u64| count + 1);
        }
        let queues = report["ports"][usize::from(side)]["rx_queues"].as_array();
        let found: Vec<_> = queues.into_iter().flatten().map(|queue| queue["packets"].as_u64()).collect();
        checks.equal(format!("frames of NIC {side} by receive queue, as by the hash in software"), found, wanted);
    }
    no_faults(&mut vm, checks)
}
