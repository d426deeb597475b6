//! Linux's `ixgbe` judges the model.
//!
//! Two cards are wired back to back. Each is alone in a network namespace, so what one end sends reaches the other through
//! both cards or not at all. Interfaces are `e0` in `n0` with 10.9.0.1, and `e1` in `n1` with 10.9.0.2.

use crate::checks::Checks;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use softnic::{Fault, ModuleKind, Ring, Violation};
use std::collections::HashMap;

/// An 82599 with a CX4 port and one with an SFP+ module.
const PAIR: &[&str] = &["a?id=10f9", "b?id=10fb&wire=peer:a"];
/// Without IPv6 nothing is on the wire that nobody asked for, except ARP.
pub(super) const QUIET: &str = "ipv6.disable=1";

/// Loads the driver and gives each card its namespace.
pub(super) const UP: &str = r"
modprobe ixgbe
for i in 0 1; do
    dev=$(ls /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net)
    ip netns add n$i 2>/dev/null
    ip link set $dev netns n$i name e$i
    ip -n n$i addr add 10.9.0.$((i + 1))/24 dev e$i
    ip -n n$i link set lo up
    ip -n n$i link set e$i up
done
";

/// Waits until both links are up.
pub(super) const LINKED: &str = r"
for i in 0 1; do
    for try in $(seq 300); do
        ip -n n$i link show e$i | grep -q LOWER_UP && break
        sleep 0.1
    done
    ip -n n$i link show e$i | grep LOWER_UP
done
";

fn pair(rig: &Rig, kernel: &str) -> Result<Machine> {
    let kernel = format!("{QUIET} {kernel}");
    let mut vm = rig.boot(&Setup { nics: PAIR, kernel: &kernel, cpus: 4, ..Setup::default() })?;
    vm.sh(UP)?;
    vm.sh(LINKED)?;
    Ok(vm)
}

/// What the driver says when it finds the cards, and what ethtool shows of them.
pub(super) fn probe(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = pair(rig, "")?;
    let log = vm.sh("dmesg -r | grep ixgbe")?;
    // Level 4 is a warning; what is lower is worse.
    let complaints: Vec<_> = log
        .lines()
        .filter(|line| line.starts_with(['<']) && line[1..].starts_with(['0', '1', '2', '3', '4']))
        .collect();
    checks.equal("warnings of the driver", complaints.join("\n"), String::new());
    // Before ethtool's test of the registers, which writes what no driver would.
    violations(checks, &vm);
    for (index, device) in ["0000:00:05.0", "0000:00:06.0"].into_iter().enumerate() {
        let about = format!("e{index} ({})", PAIR[index]);
        checks.that(
            log.contains(&format!("{device}: Intel(R) 10 Gigabit Network Connection")),
            format!("{about} is taken"),
        );
        checks.that(
            log.contains(&format!("{device} e{index}: NIC Link is Up 10 Gbps")),
            format!("{about} has a link of 10 Gbit/s"),
        );
        let n = format!("ip netns exec n{index} ethtool");
        let test = vm.try_sh(&format!("{n} -t e{index} offline"))?;
        checks.contains(format!("{about} passes ethtool -t offline"), &test.text, "The test result is PASS");
        for line in test.text.lines().filter(|line| line.contains('\t')) {
            checks.that(line.trim_end().ends_with('0'), format!("{about} {}", line.trim().replace('\t', " ")));
        }
        let shown = vm.sh(&format!("{n} e{index}; {n} -i e{index}; {n} -d e{index} | grep LINKS; {n} -e e{index} | head -5; {n} -g e{index}; {n} -l e{index}; {n} -c e{index}; {n} -k e{index}"))?;
        checks.contains(format!("{about} registers can be dumped"), &shown, "0x042A4: LINKS");
        checks.contains(format!("{about} EEPROM can be read"), &shown, "0x0000:");
    }
    let module = vm.try_sh("ip netns exec n1 ethtool -m e1")?;
    checks.contains("the SFP+ module can be read", &module.text, "SFP");
    Ok(())
}

/// What Linux makes of other modules than a short cable: each has its link, and so has one that comes later.
pub(super) fn modules(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let memory = tempfile::NamedTempFile::new()?;
    std::fs::write(memory.path(), optics())?;
    let nics: &[&str] = &[
        "a?id=10fb&module=1g-sx",
        "b?id=10fb&module=dual-sr",
        "c?id=10fb&module=long-dac",
        "d?id=10fb&module=dual-sr-1g",
        &format!("e?id=10fb&module={}", memory.path().display()),
    ];
    let mut vm = rig.boot(&Setup { nics, kernel: QUIET, cpus: 4, ..Setup::default() })?;
    let said = vm.sh(r"
modprobe ixgbe
for i in 0 1 2 3 4; do ip link set $(ls /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net) up; done
for i in 0 1 2 3 4; do
    dev=$(ls /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net)
    for try in $(seq 300); do ip link show $dev | grep -q LOWER_UP && break; sleep 0.1; done
    echo nic $i $(cat /sys/class/net/$dev/speed)
done
dmesg | grep ixgbe")?;
    for (index, (nic, speed)) in nics.iter().zip([1_000, 10_000, 10_000, 1_000, 10_000]).enumerate() {
        checks.contains(format!("{nic} has a link of {speed} Mbit/s"), &said, &format!("nic {index} {speed}"));
    }
    let read = vm.sh("ethtool -m $(ls /sys/bus/pci/devices/0000:00:09.0/net) raw on | od -An -v -tx1")?;
    let read: Vec<_> = read.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap_or(0)).collect();
    checks.that(read == optics(), format!("ethtool -m raw on returns all {} bytes of the file", read.len()));
    // Linux notices by the pin, and reads what has come.
    for (kind, carrier) in [(ModuleKind::Empty, "0"), (ModuleKind::ShortRange, "1 10000")] {
        vm.nic(2).set_module(kind);
        let said = vm.sh("cd /sys/class/net/$(ls /sys/bus/pci/devices/0000:00:07.0/net)
            state() { echo $(cat carrier) $([ $(cat carrier) = 0 ] || cat speed); }
            for try in $(seq 100); do [ \"$(state)\" = \"WANTED\" ] && break; sleep 0.1; done; state"
            .replace("WANTED", carrier)
            .as_str())?;
        checks.equal(format!("{} with {kind:?} in its cage instead: carrier and speed", nics[2]), said.trim(), carrier);
    }
    none_forbidden(checks, &vm, nics);
    Ok(())
}

/// Pages A0h and A2h of 10GBASE-SR with diagnostics (SFF-8472).
fn optics() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255_u8).map(|at| at.wrapping_mul(37)).collect();
    bytes.splice(0..0, [0; 256]);
    for (at, byte) in [(0, 3), (1, 4), (2, 7), (3, 0x10), (12, 103), (92, 0x68), (94, 5)] {
        bytes[at] = byte;
    }
    bytes[20..36].copy_from_slice(b"FROM A FILE     ");
    for (first, last) in [(0, 63), (64, 95)] {
        bytes[last] = bytes[first..last].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    }
    bytes
}

/// No mistakes that the model noticed, on any of these.
pub(super) fn none_forbidden(checks: &mut Checks, vm: &Machine, nics: &[&str]) {
    for (index, nic) in nics.iter().enumerate() {
        let (count, last) = vm.nic(index).violations();
        checks.that(count == 0, format!("nothing that the datasheet forbids was done to {nic}: {last:?}"));
    }
}

/// Traffic of many kinds between the two, and the counters of both sides.
pub(super) fn traffic(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = pair(rig, "")?;
    for (mtu, bytes) in [(1500, 22), (1500, 1472), (9000, 8972), (9000, 22)] {
        vm.sh(&format!("for i in 0 1; do ip -n n$i link set e$i mtu {mtu}; done"))?;
        vm.sh(LINKED)?;
        for (from, to) in [(0, 2), (1, 1)] {
            let said =
                vm.try_sh(&format!("ip netns exec n{from} ping -M do -c 20 -i 0.05 -w 60 -s {bytes} 10.9.0.{to}"))?;
            checks.answers(format!("ping from n{from}, {bytes} bytes at an MTU of {mtu}"), &said.text, 20);
        }
    }
    vm.sh("for i in 0 1; do ip -n n$i link set e$i mtu 1500; done")?;
    vm.sh(LINKED)?;
    offloads(&mut vm, checks)?;
    segmentation(&mut vm, checks)?;
    vlan(&mut vm, checks)?;
    let before = count(&mut vm)?;
    streams(&mut vm, checks)?;
    counters(&mut vm, checks, before)?;
    violations(checks, &vm);
    Ok(())
}

/// TCP in both directions with the offloads of either side in turn, so that the card is always checked by Linux.
fn offloads(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    vm.sh("mkfifo /tmp/hold; head -c 12000000 /dev/urandom >/tmp/data; sha256sum </tmp/data >/tmp/sum")?;
    for (about, sender, receiver) in [
        ("the card computes checksums and segments, Linux verifies", "tx on tso on", "rx off gro off"),
        ("Linux computes checksums, the card verifies", "tx off tso off", "rx on"),
        ("the card computes and verifies", "tx on tso off", "rx on"),
    ] {
        for from in [0, 1] {
            let to = 1 - from;
            let script = format!(
                "ip netns exec n{from} ethtool -K e{from} {sender}; ip netns exec n{to} ethtool -K e{to} {receiver}
                 ip netns exec n{to} nstat -n >/dev/null 2>&1
                 ip netns exec n{to} sh -c 'nc -l -p 7000 <>/tmp/hold >/tmp/copy' & server=$!
                 for try in $(seq 100); do ip netns exec n{to} netstat -ltn 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
                 ip netns exec n{from} nc 10.9.0.{} 7000 </tmp/data
                 wait $server
                 sha256sum </tmp/copy | cmp - /tmp/sum && echo same
                 ip netns exec n{to} cat /proc/net/snmp | grep -E '^(Tcp|Udp|Ip):'
                 ip netns exec n{to} ethtool -S e{to} | grep rx_csum_offload_errors",
                to + 1
            );
            let said = vm.sh(&script)?;
            checks.contains(format!("12 MB over TCP from n{from}: {about}"), &said, "same");
            checks.equal("  bad TCP checksums", snmp(&said, "Tcp", "InCsumErrors"), Some(0));
            checks.contains("  errors reported by the card", &said, "rx_csum_offload_errors: 0");
        }
    }
    vm.sh("for i in 0 1; do ip netns exec n$i ethtool -K e$i tx on tso on rx on gro on; done").map(drop)
}

/// What Linux hands over in large pieces arrives in frames of at most the MTU.
fn segmentation(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    // tcpdump writes what it has seen some time later.
    let said = vm.sh("ip netns exec n1 ethtool -K e1 gro off
         ip netns exec n0 tcpdump -i e0 -U --immediate-mode -w /tmp/out.pcap -s 100 -Q out -Z root tcp port 7000 2>/tmp/out & a=$!
         ip netns exec n1 tcpdump -i e1 -U --immediate-mode -w /tmp/in.pcap -s 100 -Q in -Z root tcp port 7000 2>/tmp/in & b=$!
         for try in $(seq 300); do [ -s /tmp/out.pcap ] && [ -s /tmp/in.pcap ] && break; sleep 0.1; done
         ip netns exec n1 sh -c 'nc -l -p 7000 <>/tmp/hold >/tmp/copy' & server=$!
         for try in $(seq 100); do ip netns exec n1 netstat -ltn 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
         head -c 2000000 /tmp/data | ip netns exec n0 nc 10.9.0.2 7000
         wait $server
         above() { tcpdump -Z root -nr /tmp/$1.pcap greater $2 2>/dev/null | wc -l; }
         for try in $(seq 100); do [ $(above out 1515) -gt 0 ] && [ $(above in 1514) -gt 900 ] && break; sleep 0.1; done
         kill $a $b; wait $a $b
         cat /tmp/out /tmp/in; echo large $(above out 1515); echo long $(above in 1515); echo full $(above in 1514)
         ip netns exec n1 ethtool -K e1 gro on")?;
    let number = |name| said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    checks.that(number("large ") > Some(0), format!("segmentation offload was used: {said:?}"));
    checks.equal("  received frames above the MTU", number("long "), Some(0));
    checks.that(number("full ") > Some(900), "  and most of them are full");
    Ok(())
}

/// Tagged traffic, with the tag inserted and taken off by the card, and by Linux.
fn vlan(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    vm.sh("for i in 0 1; do
             ip -n n$i link add link e$i name v$i type vlan id 42
             ip -n n$i addr add 10.42.0.$((i + 1))/24 dev v$i
             ip -n n$i link set v$i up
         done")?;
    for (tx, rx) in [("on", "on"), ("on", "off"), ("off", "on"), ("off", "off")] {
        vm.sh(&format!("for i in 0 1; do ip netns exec n$i ethtool -K e$i txvlan {tx} rxvlan {rx}; done"))?;
        vm.sh(LINKED)?;
        let said = vm.try_sh("ip netns exec n0 ping -c 10 -i 0.05 -w 60 -s 1472 10.42.0.2")?;
        checks.answers(format!("VLAN 42, insertion {tx}, removal {rx}"), &said.text, 10);
    }
    // Only what was asked for comes through. Without neighbours that it could ask again, Linux itself says nothing.
    let said = vm.sh(
        "ip netns exec n1 ethtool -K e1 rx-vlan-filter on 2>/dev/null
         for i in 0 1; do ip -n n$i neigh flush all; done
         ip -n n0 link add link e0 name w0 type vlan id 43; ip -n n0 addr add 10.43.0.1/24 dev w0; ip -n n0 link set w0 up
         before=$(ip netns exec n1 cat /sys/class/net/e1/statistics/rx_packets)
         ip netns exec n0 ping -c 3 -i 0.2 -W 1 10.43.0.2
         ip netns exec n1 ethtool -S e1 | grep -E ' rx_packets'
         echo before $before; ip -n n0 link del w0",
    )?;
    let after = ethtool(&said).get("rx_packets").copied();
    let before = said.lines().find_map(|line| line.strip_prefix("before ")?.parse::<u64>().ok());
    checks.equal("frames of VLAN 43 that came through the filter", after.zip(before).map(|(a, b)| a - b), Some(0));
    Ok(())
}

/// iperf3 by its own report: all bytes, none lost, hardly one sent again. How fast says nothing here.
fn streams(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    const BYTES: u64 = 4 << 20;
    // A receiver that does not get to run for a second loses nothing.
    vm.sh("for limit in rmem_max wmem_max; do echo 16777216 >/proc/sys/net/core/$limit; done")?;
    let report = iperf(vm, &format!("-u -b 20M -l 1400 -w 8M -n {BYTES}"))?;
    let udp = &report["end"]["sum"];
    let [packets, lost] = ["packets", "lost_packets"].map(|name| udp[name].as_u64().unwrap_or(0));
    checks.that(packets >= BYTES / 1400, format!("iperf3 over UDP: {packets} datagrams"));
    checks.equal("  lost", lost, 0);
    let said = vm.sh(
        "ip netns exec n1 cat /proc/net/snmp | grep ^Udp:; ip netns exec n1 ethtool -S e1 | grep rx_csum_offload_errors",
    )?;
    checks.equal("  bad UDP checksums", snmp(&said, "Udp", "InCsumErrors"), Some(0));
    for (options, about) in [("", "to n1"), ("-R", "from n1")] {
        let report = iperf(vm, &format!("-n {BYTES} {options}"))?;
        let of = |side: &str, name: &str| report["end"][side][name].as_u64();
        let [sent, received] = ["sum_sent", "sum_received"].map(|side| of(side, "bytes").unwrap_or(0));
        // What is on its way when the sender ends is not in the receiver's count.
        checks.that(
            sent >= BYTES && received <= sent && received >= BYTES / 4 * 3,
            format!("iperf3 over TCP {about}: {sent} bytes sent, {received} received before its end"),
        );
        // The wire loses none; a busy host can let a timer of TCP fire early.
        let again = of("sum_sent", "retransmits").unwrap_or(u64::MAX);
        checks.that(again <= sent / 1448 / 50 + 5, format!("  segments sent again: {again} of {}", sent / 1448));
    }
    Ok(())
}

/// The report of iperf3 from `n0` to `n1`.
fn iperf(vm: &mut Machine, options: &str) -> Result<Value> {
    let said = vm.sh(&format!(
        "ip netns exec n1 iperf3 -s -1 -B 10.9.0.2 >/dev/null & server=$!
         for try in $(seq 300); do ip netns exec n1 netstat -ltn 2>/dev/null | grep -q :5201 && break; sleep 0.1; done
         ip netns exec n0 iperf3 -J -c 10.9.0.2 {options}
         wait $server"
    ))?;
    let report: Value = serde_json::from_str(&said).with_context(|| format!("iperf3 printed no report: {said}"))?;
    ensure!(report["error"].is_null(), "iperf3 {options}: {}", report["error"]);
    Ok(report)
}

/// Packets and bytes in and out by NIC, as the wire counts them and as `ethtool -S` does.
type Count = [[u64; 4]; 2];

/// What `ethtool -S` and the wire have counted until now.
///
/// A reset of the card, which Linux uses freely, loses what was not read yet; so only differences can be compared.
fn count(vm: &mut Machine) -> Result<[Count; 2]> {
    let mut counts = [Count::default(); 2];
    for index in [0, 1] {
        let said = vm.sh(&format!("ip netns exec n{index} ethtool -S e{index}"))?;
        let wire = vm.nic(index).wire_counters();
        let of = ethtool(&said);
        // The card's own counters; octets have the CRC in them.
        let names = ["rx_pkts_nic", "tx_pkts_nic", "rx_bytes_nic", "tx_bytes_nic"];
        counts[0][index] = names.map(|name| of.get(name).copied().unwrap_or(0));
        let octets = |frames, bytes| bytes + 4 * frames;
        let (received, sent) = (octets(wire.delivered, wire.delivered_bytes), octets(wire.sent, wire.sent_bytes));
        counts[1][index] = [wire.delivered, wire.sent, received, sent];
    }
    Ok(counts)
}

/// `ethtool -S` says what the wire counted, since `before`.
fn counters(vm: &mut Machine, checks: &mut Checks, before: [Count; 2]) -> Result<()> {
    // A frame may pass between the two readings.
    let mut found = (Count::default(), [[1; 4]; 2]);
    for _ in 0..10 {
        let now = count(vm)?;
        let since = |side: usize| -> Count {
            std::array::from_fn(|nic| std::array::from_fn(|i| now[side][nic][i] - before[side][nic][i]))
        };
        found = (since(0), since(1));
        if found.0 == found.1 {
            break;
        }
    }
    checks.equal("ethtool -S of both: packets and octets in and out, as the wire", found.0, found.1);
    Ok(())
}

/// Several queues, each with an interrupt of its own, and interrupts at a bounded rate.
pub(super) fn queues(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = pair(rig, "")?;
    let said = vm.sh(
        "ip netns exec n1 ethtool -l e1; ip netns exec n1 ethtool -x e1 | head -3; grep -c e1-TxRx /proc/interrupts",
    )?;
    checks.contains("four queue pairs, each with an MSI-X vector", &said, "\n4");
    // Which flow goes where is checked frame by frame in linux-wire. Here Linux chooses ports and key by chance: 24 flows may
    // leave a queue out, but not ten times.
    let mut said = String::new();
    let mut packets = [0; 4];
    let mut runs = 0_u64;
    // At first all have none, so there is one run at least.
    while packets.iter().any(|packets| *packets <= 100 * runs) && runs < 10 {
        iperf(&mut vm, "-n 12M -P 24")?;
        runs += 1;
        said =
            vm.sh("ip netns exec n1 ethtool -S e1 | grep -E 'rx_queue_[0-9]+_packets'; grep e1-TxRx /proc/interrupts")?;
        let of = ethtool(&said);
        packets = std::array::from_fn(|queue| of.get(&*format!("rx_queue_{queue}_packets")).copied().unwrap_or(0));
    }
    for (queue, packets) in packets.into_iter().enumerate() {
        checks.that(packets > 100 * runs, format!("queue {queue} received {packets} packets of {runs} x 24 flows"));
    }
    for line in said.lines().filter(|line| line.contains("e1-TxRx")) {
        let fired: u64 = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum();
        checks.that(fired > 0, format!("{}: {fired} interrupts", line.split_whitespace().last().unwrap_or("")));
    }
    // One queue, so that there is one rate to look at.
    let said = vm.sh("ip netns exec n1 ethtool -L e1 combined 1; ip netns exec n1 ethtool -C e1 rx-usecs 900
         for try in $(seq 300); do ip -n n1 link show e1 | grep -q LOWER_UP && break; sleep 0.1; done
         count() { awk '/e1-TxRx/ { for (i = 2; i <= 5; i++) n += $i } END { print n }' /proc/interrupts; }
         ip netns exec n0 ping -c 1 -W 60 10.9.0.2 >/dev/null
         a=$(count); t=$(cut -d ' ' -f 1 /proc/uptime | tr -d .)
         r=$(ip netns exec n1 cat /sys/class/net/e1/statistics/rx_packets)
         ip netns exec n0 ping -f -c 20000 -w 6 10.9.0.2 | tail -2
         echo interrupts $(($(count) - a)) centiseconds $(($(cut -d ' ' -f 1 /proc/uptime | tr -d .) - t)) \
             packets $(($(ip netns exec n1 cat /sys/class/net/e1/statistics/rx_packets) - r))")?;
    let words: Vec<_> = said.lines().last().unwrap_or("").split(' ').collect();
    if let [_, interrupts, _, centiseconds, _, packets] = words[..] {
        let (fired, time): (u64, u64) = (interrupts.parse()?, centiseconds.parse()?);
        // 900 us is at most 11.1 in a centisecond; the clocks of guest and host differ a little.
        checks.that(
            fired > 0 && fired <= time * 12 + 10,
            format!("at 900 us: {fired} interrupts in {time} centiseconds, for {packets} packets"),
        );
    } else {
        checks.that(false, format!("interrupts could be counted: {said}"));
    }
    violations(checks, &vm);
    Ok(())
}

/// Cards to which more comes than Linux takes, when they are to say stop and when they are not.
pub(super) fn pause(rig: &Rig, checks: &mut Checks) -> Result<()> {
    const MISSED: u64 = 300_000;
    let nics = ["a?id=10fb", "b?id=x540", "c?id=x550"]
        .map(|nic| format!("{nic}&wire=gen&size=1500&rate=1000000&mode=drop&link=down"));
    let nics = nics.each_ref().map(String::as_str);
    let mut vm = rig.boot(&Setup { nics: &nics, kernel: QUIET, ..Setup::default() })?;
    vm.sh("modprobe ixgbe
         for i in 0 1 2; do ip link set $(ls /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net) name e$i up; done")?;
    let counted = |vm: &Machine| [0, 1, 2].map(|nic| vm.nic(nic).wire_counters());
    let mut before = counted(&vm);
    for tx in ["on", "off"] {
        // Nothing is asked of the guest while frames come.
        vm.sh(&format!("for i in 0 1 2; do ethtool -A e$i autoneg off rx on tx {tx}; done"))?;
        let link = |vm: &Machine, up| (0..nics.len()).for_each(|nic| vm.nic(nic).set_link(up));
        // A guest that is late may not have seen the link before it was gone again, and so not have set the card up for it.
        for _ in 0..5 {
            let begun = counted(&vm);
            link(&vm, true);
            vm.until("frames that are too many", |vm| {
                let late = |(now, before): (softnic::WireCounters, softnic::WireCounters)| {
                    now.missed > before.missed + MISSED && (tx == "off" || now.sent > 0)
                };
                counted(vm).into_iter().zip(begun).all(late)
            });
            link(&vm, false);
            let said = vm.sh("for i in 0 1 2; do ethtool -a e$i | tr -d ' \\t\\n'; done")?;
            if said.matches(&format!("TX:{tx}")).count() == nics.len() {
                break;
            }
        }
        for (nic, counters) in counted(&vm).into_iter().enumerate() {
            let said = vm.sh(&format!("ethtool -S e{nic}; ethtool -a e{nic} | tr -d ' \\t\\n'"))?;
            checks.contains(format!("{}: ethtool -a says tx {tx}", nics[nic]), &said, &format!("RX:onTX:{tx}"));
            let of = |name| ethtool(&said).get(name).copied();
            let [stop, go] = ["tx_flow_control_xoff", "tx_flow_control_xon"].map(|name| of(name).unwrap_or(0));
            let sent_before = before[nic].sent;
            checks.that(
                (counters.sent > sent_before) == (tx == "on"),
                format!("  {sent_before} frames sent before, {} after", counters.sent),
            );
            checks.equal(format!("  ethtool -S: {stop} XOFF and {go} XON, all in all"), stop + go, counters.sent);
            checks.that(stop > 0 && stop >= go, "  XOFF before XON");
            checks.equal("  ethtool -S: frames of its own", of("tx_packets"), Some(0));
            checks.equal("  ethtool -S: missed", of("rx_missed_errors"), Some(counters.missed));
            before[nic] = counters;
        }
    }
    none_forbidden(checks, &vm, &nics);
    Ok(())
}

/// What an administrator does to a card in use.
pub(super) fn admin(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = pair(rig, "")?;
    let alive = |vm: &mut Machine, checks: &mut Checks, after: &str| -> Result<()> {
        vm.sh(LINKED)?;
        // A kernel gives up a neighbour that does not answer while its card is being reset, and ping with it.
        let said = vm.try_sh(
            "all() { for try in $(seq 10); do
                 ip netns exec n$1 ping -c 20 -i 0.02 -w 60 -s $2 10.9.0.$((2 - $1)) >/tmp/said 2>&1
                 if grep ' 20 received' /tmp/said; then return; fi
                 echo tried $try times
             done; cat /tmp/said; }
             for size in 22 1472; do all 0 $size; all 1 $size; done",
        )?;
        let received = said.text.matches(" 20 received").count();
        // Ping sends on until it has its 20 answers. A few are lost while the card settles; a card that lost every second would
        // lose 80.
        let sent = |line: &str| line.split_once(" packets transmitted, 20 received")?.0.parse::<u32>().ok();
        let lost = said.text.lines().filter_map(sent).map(|sent| sent.saturating_sub(20)).sum::<u32>();
        let retries = said.text.matches("tried ").count();
        checks.that(
            received == 4 && lost <= 40,
            format!(
                "4 x 20 pings, short and long, after {after}: {received} x 20 answered, {lost} lost, {retries} retries"
            ),
        );
        if received < 4 {
            println!("{}", said.text);
        }
        Ok(())
    };
    // All of it happens in the middle of traffic. Frames may be queued when the link goes, by a new setting or as the cable comes
    // out: the driver resets the card then, and says so.
    vm.expect(&["initiating reset to clear Tx work after link loss", "Reset adapter"]);
    vm.sh("ip netns exec n0 ping -i 0.01 -s 600 -c 1000000 10.9.0.2 >/tmp/background 2>&1 & echo $! >/tmp/pinger")?;
    for (rx, tx) in [(64, 64), (4096, 4096), (512, 512)] {
        vm.sh(&format!("ip netns exec n0 ethtool -G e0 rx {rx} tx {tx}"))?;
        alive(&mut vm, checks, &format!("ethtool -G rx {rx} tx {tx}"))?;
    }
    for queues in [1, 3, 4] {
        vm.sh(&format!("ip netns exec n1 ethtool -L e1 combined {queues}"))?;
        alive(&mut vm, checks, &format!("ethtool -L combined {queues}"))?;
    }
    for mtu in [68, 1500, 9000, 1500] {
        vm.sh(&format!("for i in 0 1; do ip -n n$i link set e$i mtu {mtu}; done"))?;
        if mtu >= 1500 {
            alive(&mut vm, checks, &format!("an MTU of {mtu}"))?;
        }
    }
    vm.sh("ip -n n0 link set e0 promisc on; ip -n n0 link set e0 promisc off; ip -n n0 link set e0 allmulticast on; ip -n n0 link set e0 address 02:00:00:00:00:77")?;
    alive(&mut vm, checks, "promiscuous mode, all multicast and another address")?;
    for round in 1..=3 {
        vm.nic(0).set_link(false);
        let said = vm.sh("for try in $(seq 300); do ip -n n0 link show e0 | grep -q NO-CARRIER && break; sleep 0.1; done; ip -n n0 link show e0")?;
        checks.contains(format!("the cable is out ({round})"), &said, "NO-CARRIER");
        vm.nic(0).set_link(true);
        alive(&mut vm, checks, "the cable is back in")?;
    }
    let said = vm.sh("kill -INT $(cat /tmp/pinger); sleep 1; tail -n 3 /tmp/background")?;
    let received =
        said.split(" packets transmitted, ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    checks.that(received > Some(100), format!("  and traffic went on meanwhile: {}", said.trim().replace('\n', " ")));
    for round in 1..=4 {
        vm.sh(
            "for i in 0 1; do ip netns exec n$i ping -f -s 600 -w 600 10.9.0.$((2 - i)) >/dev/null 2>&1 & echo $! >/tmp/flood$i; done",
        )?;
        let before = vm.nic(0).wire_counters().sent;
        vm.until("traffic flows", |vm| vm.nic(0).wire_counters().sent > before + 200);
        let said = vm.try_sh("timeout 120 rmmod ixgbe && echo unloaded; kill $(cat /tmp/flood0) $(cat /tmp/flood1)")?;
        checks.contains(format!("the driver is unloaded in the middle of traffic ({round})"), &said.text, "unloaded");
        for _ in 0..4 {
            vm.sh("modprobe ixgbe && rmmod ixgbe")?;
        }
        vm.sh(UP)?;
        vm.sh(LINKED)?;
    }
    alive(&mut vm, checks, "the driver was loaded 20 times more")?;
    // ixgbe_down disables receive queues before it ends their polling, so a poll that is under way may still hand over buffers.
    let refill = |violation: &Violation| matches!(violation, Violation::TailWhileDisabled { ring: Ring::Rx(_), .. });
    violations_but(checks, &vm, refill);
    vm.expect(&["ixgbe"]);
    // Pulled out in the middle of traffic; the driver notices and gives up, and the other card does not care.
    vm.sh("ip netns exec n0 ping -f -w 60 10.9.0.2 >/dev/null 2>&1 & true")?;
    vm.nic(0).inject_fault(Fault::Removal { after_reads: 0 });
    let said = vm.sh(
        "for try in $(seq 300); do dmesg | grep -qi 'adapter removed' && break; sleep 0.1; done; dmesg | tail -5",
    )?;
    checks.contains("the driver finds that a card was pulled out", &said, "Adapter removed");
    let said = vm.sh("killall ping; ip -n n1 link show e1; timeout 60 rmmod ixgbe && echo unloaded")?;
    checks.contains("and can be unloaded", &said, "unloaded");
    Ok(())
}

/// The same behind an IOMMU in the guest: the card reaches only what the driver mapped.
pub(super) fn iommu(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let setup =
        Setup { nics: PAIR, kernel: "ipv6.disable=1 iommu.strict=1", cpus: 2, iommu: Iommu::Full, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(UP)?;
    vm.sh(LINKED)?;
    let said = vm.sh("ls -d /sys/kernel/iommu_groups/*/devices/0000:00:05.0; ip netns exec n0 ping -c 20 -i 0.05 -w 60 -s 1472 10.9.0.2")?;
    checks.answers("ping through an IOMMU", &said, 20);
    let faults = vm.sh("dmesg | grep -c DMAR:.*fault; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    violations(checks, &vm);
    Ok(())
}

/// No mistakes that the model noticed. Given a moment, as the model works on another thread.
fn violations(checks: &mut Checks, vm: &Machine) {
    violations_but(checks, vm, |_| false);
}

/// As [`violations`], but for those that the driver is known for.
fn violations_but(checks: &mut Checks, vm: &Machine, known: impl Fn(&Violation) -> bool) {
    for (index, spec) in PAIR.iter().enumerate() {
        let (count, last) = vm.nic(index).violations();
        let known = last.iter().filter(|violation| known(violation)).count();
        let what = format!("nothing that the datasheet forbids was done to {spec}, {known} known: {last:?}");
        checks.that(count == known as u64, what);
    }
}

/// `name: value` lines.
pub(super) fn ethtool(text: &str) -> HashMap<&str, u64> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(": "));
    pairs.filter_map(|(name, value)| Some((name, value.trim().parse().ok()?))).collect()
}

/// A field of `/proc/net/snmp`, which has a line of names and a line of values.
pub(super) fn snmp(text: &str, protocol: &str, field: &str) -> Option<u64> {
    let prefix = format!("{protocol}: ");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&*prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split(' ').position(|name| name == field)?;
    values.split(' ').nth(index)?.parse().ok()
}
