//! QEMU's virtio-net judges our driver.
//!
//! The first two NICs are ours. Their wires end in this process, which sends numbered frames into each and compares what
//! comes out of the other. Then they are joined to the wires of two more, which Linux's virtio_net drives in the same guest,
//! each alone in a network namespace: `n0` with 10.9.0.1 and `n1` with 10.9.0.2.

use super::ours::{self, GIVE, PORTS, as_user, last_line};
use crate::checks::{Checks, answered};
use crate::machine::{Iommu, Machine, Rig, Setup};
use crate::wires::{self, Exchange};
use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{Namespace, command, namespaces_possible};

/// Frames each way.
const FRAMES: u32 = 5000;

/// Takes our NICs from the kernel, for a program that reaches them through sysfs.
pub(super) const TAKE: &str = r"
for nic in 0000:00:05.0 0000:00:06.0; do
    echo $nic >/sys/bus/pci/devices/$nic/driver/unbind
done
";

/// Waits until both ports are in use.
pub(super) const READY: &str = r"
for try in $(seq 300); do
    [ $(grep -c 'in use:' /tmp/said) = 2 ] && break
    sleep 0.1
done
";

/// Gives Linux's NICs their namespaces.
const UP: &str = r"
modprobe virtio_net
for i in 0 1; do
    dev=$(ls /sys/bus/pci/devices/0000:00:0$((7 + i)).0/virtio*/net)
    ip netns add n$i
    ip link set $dev netns n$i name e$i
    ip -n n$i addr add 10.9.0.$((i + 1))/24 dev e$i
    ip -n n$i link set e$i mtu 9000 up
done
";

/// What differs between the scenarios.
struct Case {
    /// Properties of our NICs.
    properties: &'static str,
    name: &'static str,
    iommu: bool,
}

impl Case {
    /// `command` on our ports, as whom it takes.
    fn run(&self, command: &str) -> String {
        if self.iommu { as_user(command) } else { format!("{command} --unsafe-no-iommu") }
    }
}

pub(super) fn legacy(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let case =
        Case { properties: "disable-modern=on,disable-legacy=off", name: "transitional virtio-net", iommu: false };
    drive(rig, checks, &case, "Legacy")
}

pub(super) fn transitional(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let properties = "disable-modern=off,disable-legacy=off";
    drive(rig, checks, &Case { properties, name: "transitional virtio-net", iommu: false }, "Modern")
}

pub(super) fn modern(rig: &Rig, checks: &mut Checks) -> Result<()> {
    // Without mergeable buffers, and with notifications by flag.
    let properties = "disable-legacy=on,event_idx=off,mrg_rxbuf=off";
    drive(rig, checks, &Case { properties, name: "modern virtio-net", iommu: false }, "Modern")
}

pub(super) fn packed(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let properties = "disable-legacy=on,packed=on";
    drive(rig, checks, &Case { properties, name: "modern virtio-net", iommu: false }, "Modern")
}

pub(super) fn iommu(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let properties = "disable-legacy=on,iommu_platform=on";
    drive(rig, checks, &Case { properties, name: "modern virtio-net", iommu: true }, "Modern")
}

fn drive(rig: &Rig, checks: &mut Checks, case: &Case, interface: &str) -> Result<()> {
    // A device filters until it has been told not to, so frames of this process are for it.
    let ours = ["01", "00"].map(|last| format!("mac=02:00:00:00:00:{last},{}", case.properties));
    let virtio = &[&*ours[0], &*ours[1], "", ""];
    let iommu = if case.iommu { Iommu::Full } else { Iommu::None };
    let setup = Setup { virtio, iommu, huge_pages: 32, kernel: "ipv6.disable=1", ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(if case.iommu { GIVE } else { TAKE })?;
    let listed = vm.sh("fwd devices")?;
    let ours = listed.lines().find(|line| line.contains("0000:00:05.0")).unwrap_or_default();
    checks.contains("fwd devices knows it", ours, case.name);
    checks.equal("  and whether it can be used through VFIO", ours.trim_end().ends_with("yes"), case.iommu);
    if case.iommu {
        let said = vm.try_sh(&as_user(&format!("fwd doctor {PORTS}")))?;
        checks.equal("fwd doctor is content", said.status, 0);
    } else {
        let said = vm.try_sh(&format!("fwd l2 {PORTS} --duration 1"))?;
        checks.that(said.status != 0, format!("refused without a word for it: {}", last_line(&said.text)));
    }
    exchange(&mut vm, checks, case, "", interface)?;
    if case.iommu {
        let report = exchange(&mut vm, checks, case, " --idle sleep", interface)?;
        checks.that(wakeups(&report) > 0, format!("  it slept: {} wake-ups", wakeups(&report)));
        // One of Linux's, which QEMU lets past the IOMMU.
        vm.sh("fwd bind 0000:00:07.0")?;
        let said = vm.try_sh("fwd rxonly 0000:00:07.0 --duration 1 --quiet")?;
        checks.contains("a device that bypasses the IOMMU is refused", &said.text, "VIRTIO_F_ACCESS_PLATFORM");
        vm.sh("fwd unbind 0000:00:07.0")?;
    }
    vm.sh(UP)?;
    for nic in 0..2 {
        wires::join(vm.wire(nic), vm.wire(nic + 2))?;
    }
    pings(&mut vm, checks, case)?;
    if case.iommu {
        release(&mut vm, checks, case)?;
    }
    back(&mut vm, checks)?;
    if case.iommu {
        let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
        checks.equal("faults of the IOMMU", faults.trim(), "0");
    }
    Ok(())
}

/// Frames through `fwd` in both directions, from this process to this process.
fn exchange(vm: &mut Machine, checks: &mut Checks, case: &Case, options: &str, interface: &str) -> Result<Value> {
    let command = format!("RUST_LOG=virtio=debug {}", case.run(&format!("fwd l2 {PORTS}{options}")));
    ours::start(vm, &command)?;
    let said = vm.sh(&format!("{READY} cat /tmp/said"))?;
    // QEMU forgets what came before a NIC's reset.
    let exchange = Exchange::start([vm.wire(0), vm.wire(1)], FRAMES)?;
    vm.until("everything was forwarded", |_| exchange.is_over());
    if options.contains("sleep") {
        let counts = interrupts(&vm.sh("cat /proc/interrupts")?, "0000:00:0");
        checks.that(counts.len() == 2 && counts.iter().all(|count| *count > 0), format!("interrupts: {counts:?}"));
    }
    let report = ours::finish(vm, &command)?;
    checks.contains(format!("driven by its {interface} interface{options}"), &said, &format!("by its {interface}"));
    let differences = exchange.differences()?;
    for (side, difference) in differences.into_iter().enumerate() {
        checks.equal(
            format!("{FRAMES} frames from wire {side}, byte for byte and in order: differences"),
            difference,
            None,
        );
    }
    let all = Some(2 * u64::from(FRAMES));
    checks.equal("received and forwarded", ["received", "forwarded"].map(|name| report[name].as_u64()), [all; 2]);
    checks.equal("drops", report["drops"].to_string(), "{}".to_owned());
    Ok(report)
}

/// Linux pings itself through `fwd`; `fwd` is killed and started again.
fn pings(vm: &mut Machine, checks: &mut Checks, case: &Case) -> Result<()> {
    let idle = if case.iommu { " --idle sleep" } else { "" };
    // Frames of several buffers, where the device can have them.
    let (mtu, size) = if case.properties.contains("mrg_rxbuf=off") { (1500, 1472) } else { (9000, 8972) };
    let start = case.run(&format!("fwd l2 {PORTS} --mtu {mtu} --quiet{idle}"));
    let start = format!("RUST_LOG=virtio=info {start} >/tmp/said 2>&1 & echo $! >/tmp/pid\n{READY}");
    let ping = format!(
        "ip netns exec n0 ping -c 10 -i 0.1 -w 60 10.9.0.2
         ip netns exec n1 ping -c 10 -i 0.1 -w 60 -s {size} -M do 10.9.0.1"
    );
    // TCP would send frames that fit no buffer else.
    vm.sh(&format!("for i in 0 1; do ip -n n$i link set e$i mtu {mtu}; done"))?;
    let said = vm.sh(&format!("{start}\n {ping} || cat /tmp/said"))?;
    checks.equal("Linux pings Linux through fwd, 10 short and 10 long", answered(&said, 10), 2);
    let said = vm.sh(&format!(
        "ip netns exec n0 ping -i 0.01 -c 100000 10.9.0.2 >/dev/null 2>&1 & pinger=$!
         sleep 0.5; kill -9 $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do :; done
         {start}
         for try in $(seq 60); do ip netns exec n0 ping -c 1 -W 1 10.9.0.2 >/dev/null && break; done
         {ping} || cat /tmp/said
         head -c 3000000 /dev/urandom >/tmp/data; sum=$(sha256sum </tmp/data)
         ip netns exec n1 timeout 120 socat -u TCP-LISTEN:7000 CREATE:/tmp/copy >/dev/null 2>&1 & server=$!
         for try in $(seq 300); do ip netns exec n1 netstat -ltn 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
         ip netns exec n0 timeout 120 socat -u FILE:/tmp/data TCP:10.9.0.2:7000; wait $server
         [ \"$(sha256sum </tmp/copy)\" = \"$sum\" ] && echo same data
         kill $pinger; kill -INT $(cat /tmp/pid)
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done; cat /tmp/said"
    ))?;
    checks.equal("killed in mid-traffic and started at once, it does again", answered(&said, 10), 2);
    checks.contains("  3 MB over TCP arrive as they were sent", &said, "same data");
    checks.contains("  and ends when it is told to", &said, "forwarded");
    Ok(())
}

/// The kernel wants a NIC back in mid-traffic.
fn release(vm: &mut Machine, checks: &mut Checks, case: &Case) -> Result<()> {
    let said = vm.sh(&format!(
        "{} >/tmp/said 2>&1 & echo $! >/tmp/pid
         {READY}
         ip netns exec n0 ping -i 0.01 -c 100000 10.9.0.2 >/dev/null 2>&1 & pinger=$!
         timeout 60 sh -c 'echo 0000:00:05.0 >/sys/bus/pci/drivers/vfio-pci/unbind' && echo unbound
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         kill $pinger; kill -0 $(cat /tmp/pid) 2>/dev/null || echo ended; cat /tmp/said",
        case.run(&format!("env RUST_LOG=virtio=info fwd l2 {PORTS} --quiet --idle sleep"))
    ))?;
    checks.contains("the kernel gets a NIC back", &said, "unbound");
    checks.contains("fwd has ended", &said, "ended");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("fwd: ")).collect();
    checks.that(errors.len() == 1, format!("  with one line: {}", errors.join(" / ")));
    Ok(())
}

/// The kernel's own driver takes our NICs, and pings over one of them.
fn back(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    let said = vm.sh(&format!(
        "fwd unbind {PORTS}
         for try in $(seq 300); do ls /sys/bus/pci/devices/0000:00:05.0/virtio*/net >/dev/null 2>&1 && break; sleep 0.1; done
         dev=$(ls /sys/bus/pci/devices/0000:00:05.0/virtio*/net)
         ip addr add 10.9.0.3/24 dev $dev; ip link set $dev up
         ping -c 5 -i 0.1 -w 60 10.9.0.1"
    ))?;
    checks.equal("both are back with the kernel's driver", said.matches("back with virtio-pci").count(), 2);
    checks.answers("which pings over one of them", &said, 5);
    Ok(())
}

pub(super) fn wakeups(report: &Value) -> u64 {
    let workers = report["workers"].as_array();
    workers.into_iter().flatten().filter_map(|worker| worker["wakeups"].as_u64()).sum()
}

/// Queue pairs of each NIC.
const PAIRS: usize = 4;

/// Linux at both ends again, this time this host's: QEMU has several queues on TAP interfaces only. Each is alone in a
/// namespace, and datagrams to many ports are spread over the queues by the kernel.
pub(super) fn mq(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const DATAGRAMS: usize = 256;
    if let Err(reason) = namespaces_possible(&["bash", "ping"]) {
        checks.skip(reason);
        return Ok(());
    }
    let (mut vm, hosts, taps) = between_taps(rig, "")?;
    let refused = vm.try_sh(&as_user(&format!("fwd l2 {PORTS} --queues 5 --duration 1 --quiet")))?;
    checks.contains("more queues than it has", &refused.text, "5 queue pairs are asked for, and the device has 4");
    let lcores: Vec<_> = (0..PAIRS).map(|queue| format!("(0,{queue},{queue}),(1,{queue},{queue})")).collect();
    let command = as_user(&format!("fwd l2 {PORTS} --queues {PAIRS} --lcores '{}' --idle sleep", lcores.join(",")));
    let command = format!("RUST_LOG=virtio=info {command}");
    ours::start(&mut vm, &command)?;
    vm.sh(READY)?;
    let ping = hosts[0].command(&["ping", "-c", "10", "-i", "0.1", "-w", "60", "10.9.0.2"]).output()?;
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    checks.answers("this host pings itself through fwd", &said, 10);
    let script = format!("for port in $(seq {DATAGRAMS}); do echo x >/dev/udp/10.9.0.2/$port; done; true");
    ensure!(hosts[0].succeeds(&["bash", "-c", &script]), "datagrams cannot be sent");
    vm.until("datagrams have come through", |_| received(&hosts[1], &taps[1]) >= DATAGRAMS + 10);
    let counts = interrupts(&vm.sh("cat /proc/interrupts")?, "0000:00:05.0");
    checks.that(
        counts.len() == PAIRS && counts.iter().all(|count| *count > 0),
        format!("interrupts of the first NIC's vectors, by receive queue: {counts:?}"),
    );
    let report = ours::finish(&mut vm, &command)?;
    let sum = |name: &str| report[name].as_u64().unwrap_or(0);
    checks.that(sum("forwarded") >= DATAGRAMS as u64 + 20, format!("forwarded: {}", sum("forwarded")));
    checks.equal("drops", report["drops"].to_string(), "{}".to_owned());
    Ok(())
}

/// NAT on two workers that share nothing: an answer has to come to the worker that knows the flow, so the device must hash as
/// it was told to, with a key of ours. RSS is QEMU's own, in software.
pub(super) fn rss(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const FLOWS: usize = 64;
    const GATEWAY: &str = "02:00:00:00:00:09";
    if let Err(reason) = namespaces_possible(&["bash"]) {
        checks.skip(reason);
        return Ok(());
    }
    let (mut vm, hosts, taps) = between_taps(rig, "rss=on,hash=on,")?;
    hashes(&mut vm, checks, &hosts[0])?;
    hosts[0].output(&["ip", "route", "add", "default", "via", "10.9.0.254"]);
    hosts[1].output(&["ip", "address", "add", "10.8.0.2/24", "dev", &taps[1]]);
    hosts[1].output(&["ip", "link", "set", &taps[1], "address", GATEWAY]);
    vm.sh(&format!("nat44 {PORTS} 10.9.0.254 10.8.0.254 {GATEWAY} 20 >/tmp/said 2>&1 & echo $! >/tmp/pid"))?;
    // Nobody listens, so each attempt at a connection is answered by a reset, if both came through.
    let attempt = |port| format!("timeout 2 bash -c '</dev/tcp/10.8.0.2/{port}' 2>&1");
    vm.until("nat44 translates", |_| {
        hosts[0].output(&["sh", "-c", &format!("{}; true", attempt(7))]).contains("refused")
    });
    let all = (8..FLOWS + 7).map(attempt).collect::<Vec<_>>().join("; ");
    let said = hosts[0].output(&["sh", "-c", &format!("{all}; true")]);
    checks.equal(
        "flows that came through, and their answers",
        said.matches("connect: Connection refused").count(),
        FLOWS - 1,
    );
    let said = vm.sh("while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done; cat /tmp/said")?;
    let bindings: Vec<usize> = said.lines().filter_map(|line| line.split_once(" bindings")?.0.parse().ok()).collect();
    let both = bindings.len() == 2 && bindings.iter().all(|count| *count > 0);
    checks.that(both && bindings.iter().sum::<usize>() >= FLOWS, format!("bindings of the two workers: {bindings:?}"));
    Ok(())
}

/// What QEMU says of datagrams to many ports: their hashes, and the queues that follow.
fn hashes(vm: &mut Machine, checks: &mut Checks, host: &Namespace) -> Result<()> {
    const DATAGRAMS: usize = 64;
    let program = format!("hashes 0000:00:05.0 {PAIRS} {DATAGRAMS}");
    let listens = "for try in $(seq 300); do grep -q listening /tmp/said && break; sleep 0.1; done";
    vm.sh(&format!("{program} >/tmp/said 2>&1 & echo $! >/tmp/pid\n{listens}"))?;
    let script = format!("for port in $(seq {DATAGRAMS}); do echo x >/dev/udp/10.9.0.2/$port; done; true");
    host.output(&["ip", "neighbour", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", &tap(0)]);
    ensure!(host.succeeds(&["bash", "-c", &script]), "datagrams cannot be sent");
    let said = vm.sh("while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done; cat /tmp/said")?;
    let wanted =
        format!("{DATAGRAMS} datagrams: 0 without a hash, 0 with a wrong one, 0 in a wrong queue, 0 of a wrong type");
    checks.contains("QEMU's hashes are ours", &said, &wanted);
    host.output(&["ip", "neighbour", "del", "10.9.0.2", "dev", &tap(0)]);
    Ok(())
}

/// The name of the TAP interface at the other end of a NIC.
fn tap(nic: usize) -> String {
    format!("rwvm{}n{nic}", std::process::id())
}

/// A machine with two NICs of [`PAIRS`] queue pairs whose wires are TAP interfaces of this host, each alone in a namespace with
/// the address 10.9.0.1 or 10.9.0.2; and the names of the interfaces.
fn between_taps(rig: &Rig, more: &str) -> Result<(Machine, [Namespace; 2], [String; 2])> {
    rig.give_tun()?;
    let taps = [0, 1].map(tap);
    let mut words = Vec::new();
    for (nic, tap) in taps.iter().enumerate() {
        let backend = format!("tap,id=tap{nic},ifname={tap},script=no,downscript=no,queues={PAIRS}");
        let properties = format!("{more}mq=on,vectors={},disable-legacy=on,iommu_platform=on", 2 * PAIRS + 2);
        let device = format!("virtio-net-pci,netdev=tap{nic},addr={:#x},{properties}", 5 + nic);
        words.extend(["-netdev".to_owned(), backend, "-device".to_owned(), device]);
    }
    let qemu: Vec<&str> = words.iter().map(String::as_str).collect();
    let setup = Setup { qemu: &qemu, iommu: Iommu::Full, huge_pages: 64, cpus: 4, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    let hosts = [Namespace::new(), Namespace::new()];
    for (nic, (host, tap)) in hosts.iter().zip(&taps).enumerate() {
        host_up(host, tap, nic + 1)?;
    }
    vm.sh(GIVE)?;
    Ok((vm, hosts, taps))
}

/// Moves a TAP interface into a namespace and gives it 10.9.0.LAST.
pub(super) fn host_up(host: &Namespace, tap: &str, last: usize) -> Result<()> {
    let holder = host.holder().to_string();
    let moved = command(&["ip", "link", "set", tap, "netns", &holder]).status()?;
    ensure!(moved.success(), "{tap} cannot be moved into a namespace");
    let address = format!("10.9.0.{last}/24");
    let quiet = format!("echo 1 >/proc/sys/net/ipv6/conf/{tap}/disable_ipv6");
    for words in
        [&["sh", "-c", &quiet][..], &["ip", "address", "add", &address, "dev", tap], &["ip", "link", "set", tap, "up"]]
    {
        host.output(words);
    }
    Ok(())
}

/// Frames that came out of a TAP interface.
fn received(host: &Namespace, tap: &str) -> usize {
    let said = host.output(&["grep", &format!("{tap}:"), "/proc/net/dev"]);
    said.split_whitespace().nth(2).and_then(|packets| packets.parse().ok()).unwrap_or(0)
}

/// How often each vector of a function has fired, from `/proc/interrupts`.
pub(super) fn interrupts(text: &str, address: &str) -> Vec<u64> {
    let of_device = |line: &&str| line.contains("vfio-msix[") && line.contains(address);
    let count = |line: &str| line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum();
    text.lines().filter(of_device).map(count).collect()
}
