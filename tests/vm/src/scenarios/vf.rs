//! Linux's `ixgbevf` and DPDK's `net_ixgbe_vf` judge the model's virtual functions, and the physical one that answers them; and these
//! judge our driver.

use super::dpdk;
use super::linux::{LINKED, UP, ethtool, none_forbidden};
use super::ours::{self, GIVE, PORTS, as_user, last_line};
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Result, bail};
use softnic::{Fault, MailboxPhase};
use std::fmt::Display;
use std::path::Path;

/// A function of an 82599 and one of an X550, back to back, and two of X540s. Linux speaks with each what is the newest for both: 1.7 with
/// two, and with the others 1.5, VMware's mailbox, and 1.4.
const NICS: &[&str] = &[
    "a?id=10ed&mac=02:00:00:00:00:0a",
    "b?id=1565&api=1.5&mac=02:00:00:00:00:0b&wire=peer:a",
    "c?id=1515&mac=02:00:00:00:00:0c",
    "d?id=1515&api=1.4&mac=02:00:00:00:00:0d&wire=peer:c",
];

/// Two NICs back to back, in namespaces n0 and n1, or n2 and n3.
#[derive(Clone, Copy)]
struct Pair {
    first: usize,
    about: &'static str,
}

impl Pair {
    /// A script about n0, n1 and their addresses, for this pair.
    fn script(self, text: &str) -> String {
        if self.first == 0 {
            return text.to_owned();
        }
        let (mut text, names) = (text.replace("for i in 0 1", "for i in 2 3"), ["n", "e", "v", "w"]);
        for (from, to) in [(0, 2), (1, 3)] {
            for name in names {
                text = text.replace(&format!("{name}{from}"), &format!("{name}{to}"));
            }
        }
        for net in ["10.9.0.", "10.42.0.", "fd00::"] {
            text = text.replace(&format!("{net}2"), &format!("{net}4")).replace(&format!("{net}1"), &format!("{net}3"));
        }
        text.replace("00:00:0b", "00:00:0d")
    }
}

/// Frames each way through DPDK; one in 50 is long.
const FRAMES: u32 = 20_000;
const LONG: usize = 9000;

const PAIRS: [Pair; 2] =
    [Pair { first: 0, about: "functions of an 82599 and an X550" }, Pair { first: 2, about: "functions of X540s" }];

/// All that Linux asks of a function, and what it makes of a physical one that resets.
pub(super) fn linux(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = rig.boot(&Setup { nics: NICS, cpus: 2, ..Setup::default() })?;
    let up = UP.replace("modprobe ixgbe", "modprobe ixgbevf");
    for pair in PAIRS {
        let addresses = "for i in 0 1; do ip -n n$i addr add fd00::$((i + 1))/64 dev e$i nodad; done";
        vm.sh(&pair.script(&format!("{up}\n{addresses}\n{LINKED}")))?;
    }
    for (index, mac) in ["0a", "0b", "0c", "0d"].into_iter().enumerate() {
        let said = vm.sh(&format!(
            "n='ip netns exec n{index} ethtool'; $n -i e{index}; $n -P e{index}; $n -l e{index}; $n e{index}; $n -x e{index}; $n -d e{index} | wc -l"
        ))?;
        checks.contains(format!("e{index} is ixgbevf's"), &said, "driver: ixgbevf");
        checks.contains("  with the address it was given", &said, &format!("02:00:00:00:00:{mac}"));
        checks.contains("  at 10 Gbit/s", &said, "Speed: 10000Mb/s");
        checks.contains("  with its hash table", &said, "RSS hash key");
    }
    for pair in PAIRS {
        println!("           {}", pair.about);
        traffic(&mut vm, checks, pair)?;
        requests(&mut vm, checks, pair)?;
        counters(&mut vm, checks, pair)?;
    }
    pf_resets(&mut vm, checks)?;
    for (index, spec) in NICS.iter().enumerate() {
        let (count, last) = vm.nic(index).violations();
        checks.that(count == 0, format!("nothing that the datasheet forbids was done to {spec}: {last:?}"));
    }
    let said = vm.sh(&format!(
        "echo 1 >/sys/bus/pci/devices/0000:00:05.0/remove; echo 1 >/sys/bus/pci/rescan; sleep 0.2; {up} {LINKED}
         ip netns exec n0 ping -c 3 -i 0.05 -w 20 10.9.0.2"
    ))?;
    checks.answers("ping after removal and rescan", &said, 3);
    Ok(())
}

/// Both families, TCP and UDP, at two MTUs.
fn traffic(vm: &mut Machine, checks: &mut Checks, pair: Pair) -> Result<()> {
    for (mtu, bytes) in [(9000, 8952), (1500, 1452)] {
        vm.sh(&pair.script(&format!("for i in 0 1; do ip -n n$i link set e$i mtu {mtu}; done\n{LINKED}")))?;
        for to in ["10.9.0.2", "fd00::2"] {
            let said =
                vm.try_sh(&pair.script(&format!("ip netns exec n0 ping -c 10 -i 0.05 -w 20 -s {bytes} {to}")))?;
            checks.answers(format!("ping {to}, {bytes} bytes at an MTU of {mtu}"), &said.text, 10);
        }
    }
    vm.sh("head -c 600000 /dev/urandom >/tmp/TCP; head -c 30000 /tmp/TCP >/tmp/UDP")?;
    for (protocol, options) in [("TCP", "-b 60000"), ("UDP", "-b 1000")] {
        for (family, to) in [("4", "10.9.0.2"), ("6", "[fd00::2]")] {
            // Thirty datagrams fit the receiver's buffer, and nothing sends them again.
            let said = vm.try_sh(&pair.script(&format!(
                "ip netns exec n1 socat -u -T 1 {protocol}{family}-LISTEN:7000 CREATE:/tmp/copy & server=$!
                 for try in $(seq 100); do ip netns exec n1 netstat -ltun 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
                 ip netns exec n0 socat -u {options} OPEN:/tmp/{protocol} {protocol}{family}:{to}:7000
                 wait $server; cmp /tmp/{protocol} /tmp/copy && echo same"
            )))?;
            checks.contains(format!("{protocol} over IPv{family} from n0 to n1, byte for byte"), &said.text, "same");
        }
    }
    Ok(())
}

/// Addresses, VLANs, groups, queues: what takes a message to the physical function.
fn requests(vm: &mut Machine, checks: &mut Checks, pair: Pair) -> Result<()> {
    let ping = "ping -c 5 -i 0.05 -w 20 -s 1400";
    let sh = |vm: &mut Machine, text: &str| vm.sh(&pair.script(text));
    let peer = pair.first + 1;
    let said = sh(
        vm,
        &format!(
            "ip -n n0 link set e0 address 02:00:00:00:00:77; ip -n n1 neigh flush all; ip netns exec n0 {ping} 10.9.0.2; ip -n n1 neigh"
        ),
    )?;
    checks.answers("ping from another address", &said, 5);
    checks.contains("  which the peer has seen", &said, "02:00:00:00:00:77");
    sh(
        vm,
        "for i in 0 1; do
             ip -n n$i link add link e$i name v$i type vlan id 42
             ip -n n$i addr add 10.42.0.$((i + 1))/24 dev v$i
             ip -n n$i link set v$i up
         done",
    )?;
    let said = sh(vm, &format!("ip netns exec n0 {ping} 10.42.0.2"))?;
    checks.answers("ping in VLAN 42", &said, 5);
    // Of frames to other addresses, and in other VLANs, nothing comes through.
    let before = vm.nic(peer).wire_counters();
    sh(
        vm,
        "ip -n n0 link add link e0 name w0 type vlan id 43; ip -n n0 link set w0 up; ip -n n0 addr add 10.43.0.1/24 dev w0
         ip -n n0 neigh add 10.43.0.2 lladdr 02:00:00:00:00:0b dev w0 nud permanent
         ip netns exec n0 ping -c 20 -i 0.02 -w 1 10.43.0.2 >/dev/null; ip -n n0 link del w0",
    )?;
    let dropped = vm.nic(peer).wire_counters().dropped - before.dropped;
    checks.that(dropped >= 20, format!("{dropped} frames of VLAN 43 were dropped by the filter"));
    // A VLAN device with an address of its own takes one more from the card.
    let said = sh(
        vm,
        &format!(
            "ip -n n1 link set v1 address 02:00:00:00:00:99; ip -n n0 neigh flush all; ip netns exec n0 {ping} 10.42.0.2; ip -n n0 neigh"
        ),
    )?;
    checks.answers("ping of a second address in VLAN 42", &said, 5);
    checks.contains("  which the peer has seen", &said, "02:00:00:00:00:99");
    Ok(())
}

/// What `ethtool -S` of the driver says, as the wire.
fn counters(vm: &mut Machine, checks: &mut Checks, pair: Pair) -> Result<()> {
    let peer = pair.first + 1;
    // IPv6 sends reports and solicitations when it likes: a reading counts if the wire was silent around it.
    let count = |vm: &mut Machine| -> Result<[u64; 4]> {
        for _ in 0..50 {
            let before = vm.nic(peer).wire_counters();
            let said = vm.sh(&pair.script("sleep 0.3; ip netns exec n1 ethtool -S e1"))?;
            let wire = vm.nic(peer).wire_counters();
            if [wire.delivered, wire.sent] == [before.delivered, before.sent] {
                let of = ethtool(&said);
                let field = |name| of.get(name).copied().unwrap_or(0);
                return Ok([field("rx_packets"), field("tx_packets"), wire.delivered, wire.sent]);
            }
        }
        bail!("the wire was never silent for 0.3 s")
    };
    let before = count(vm)?;
    vm.sh(&pair.script("ip netns exec n0 ping -c 50 -i 0.02 -w 20 10.9.0.2"))?;
    let after = count(vm)?;
    let since: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    checks.equal("packets received and sent, by ethtool -S and by the wire", since[..2].to_vec(), since[2..].to_vec());
    checks.that(since[0] >= 50, format!("  of {} pings", since[0]));
    Ok(())
}

/// The physical function resets in the middle of traffic, and its driver sees to it.
fn pf_resets(vm: &mut Machine, checks: &mut Checks) -> Result<()> {
    vm.sh("ip netns exec n0 ping -i 0.01 -c 100000 10.9.0.2 >/tmp/background 2>&1 & echo $! >/tmp/pinger")?;
    let cases = [
        ("at once", 0, MailboxPhase::Taken),
        ("at a message", 2, MailboxPhase::Sent),
        ("when it has taken one", 2, MailboxPhase::Taken),
        ("when it has answered one", 2, MailboxPhase::Answered),
    ];
    for (about, at, phase) in cases {
        vm.nic(0).inject_fault(Fault::PfReset { at, phase });
        if at != 0 {
            vm.sh("ip -n n0 link set e0 down; ip -n n0 link set e0 up")?;
        }
        let said = vm.try_sh(
            "for try in $(seq 60); do
                 ip netns exec n0 ping -c 3 -i 0.05 -w 1 10.9.0.2 >/tmp/said; grep '^3 packets transmitted, 3 received' /tmp/said && break
             done; cat /tmp/said; dmesg | tail -3",
        )?;
        checks.answers(format!("ping after the physical function has reset {about}"), &said.text, 3);
        vm.nic(0).clear_faults();
    }
    vm.sh("kill $(cat /tmp/pinger)").map(drop)
}

/// DPDK's driver forwards what comes, long frames among it, from two queues: between each function and one of an X540; then an older
/// one does.
pub(super) fn dpdk(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let old_dpdk = rig.has_old_dpdk();
    if !old_dpdk {
        checks.skip("DPDK of Debian 12 was not to be had when the rig's machine was built (tests/vm/build)");
    }
    let programs = [dpdk::NEW, dpdk::NEW, dpdk::OLD, dpdk::OLD];
    let mut nics = Vec::new();
    let mut runs = Vec::new();
    for (program, run) in programs.into_iter().take(if old_dpdk { 4 } else { 2 }).zip(0..) {
        let folder = tempfile::tempdir()?;
        let ids = if run % 2 == 0 { ["10ed", "1515"] } else { ["1565", "1515"] };
        nics.extend(players(folder.path(), [0, 1].map(|side| format!("{run}{side}?id={}", ids[side])))?);
        runs.push((program, folder));
    }
    let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
    let setup = Setup { nics: &nics, iommu: Iommu::Full, huge_pages: 128, old_dpdk, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    for ((program, folder), first) in runs.iter().zip((0..).step_by(2)) {
        let said = testpmd(&mut vm, program, first)?;
        for side in [0, 1_u8] {
            let nic = first + usize::from(side);
            let found = unordered(&folder.path().join(format!("out{}", 1 - side)), side)?;
            checks.equal(format!("{program}: {FRAMES} frames from {}, byte for byte", id(nics[nic])), found, None);
            for queue in [0, 1] {
                let stream = format!("RX Port= {side}/Queue= {queue}");
                let block = said.split(&stream).nth(1).and_then(|rest| rest.split("RX-packets:").nth(1)).unwrap_or("");
                let packets = block.split_whitespace().next().and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
                checks.that(packets > FRAMES / 4, format!("  its queue {queue} received {packets}"));
            }
            let (count, first) = vm.nic(nic).violations();
            checks.that(count == 0, format!("nothing that the datasheet forbids was done to it: {first:?}"));
        }
        checks.contains("testpmd ends", &said, "Bye...");
        checks.that(said.ends_with("\n0"), "no faults of the IOMMU");
    }
    Ok(())
}

/// The id in the specification of a NIC.
fn id(spec: &str) -> &str {
    spec.split(['=', '&']).nth(1).unwrap_or(spec)
}

/// Two functions whose link is down, that play captures when it is up, and record what they send.
fn players(folder: &Path, specs: [impl Display; 2]) -> Result<[String; 2]> {
    let mut nics = [const { String::new() }; 2];
    for (side, spec) in [0, 1].into_iter().zip(specs) {
        let [input, output] = ["in", "out"].map(|name| folder.join(format!("{name}{side}")));
        frames::write_all(&input, (0..FRAMES).map(|number| long(side, number)))?;
        nics[usize::from(side)] = format!(
            "{spec}&mac=02:00:00:00:00:0{}&link=down&wire=pcap:{},{}",
            1 - side,
            input.display(),
            output.display()
        );
    }
    Ok(nics)
}

/// Our driver forwards what comes, long frames among it, from two queues each that sleep by interrupts: between functions of an 82599
/// and an X550, and between two of X540s. Then a physical function resets.
pub(super) fn ours(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let [a, b] = players(folders[0].path(), ["a?id=10ed", "b?id=1565"])?;
    let [c, d] = players(folders[1].path(), ["c?id=1515", "d?id=1515"])?;
    let nics: &[&str] = &[&a, &b, &c, &d];
    let mut vm = rig.boot(&Setup { nics, iommu: Iommu::Full, huge_pages: 64, cpus: 2, ..Setup::default() })?;
    let behind = |text: &str| text.replace("00:05", "00:07").replace("00:06", "00:08");
    vm.sh(GIVE)?;
    vm.sh(&behind(GIVE))?;
    let listed = vm.sh("fwd devices")?;
    for name in ["82599 virtual function", "X540 virtual function", "X550 virtual function"] {
        checks.contains("fwd devices knows it", &listed, name);
    }
    let fwd = format!(
        "env RUST_LOG=ixgbevf=info fwd l2 {PORTS} --mtu 9000 --queues 2 --lcores '(0,0,0),(0,1,1),(1,0,0),(1,1,1)'"
    );
    forwarded(&mut vm, checks, folders[0].path(), &as_user(&fwd), 0)?;
    forwarded(&mut vm, checks, folders[1].path(), &as_user(&behind(&fwd)), 2)?;
    start_ours(&mut vm, &as_user(&fwd))?;
    vm.nic(1).inject_fault(Fault::PfReset { at: 0, phase: MailboxPhase::Taken });
    let said = vm.sh("for try in $(seq 100); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         kill -0 $(cat /tmp/pid) 2>/dev/null || echo ended; grep '^fwd: ' /tmp/said")?;
    checks.contains("a physical function resets: fwd has ended", &said, "ended");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("fwd: ")).collect();
    checks.that(errors.len() == 1, format!("  with one line: {}", errors.join(" / ")));
    checks.contains("  that says so", last_line(&said), "the physical function was reset");
    none_forbidden(checks, &vm, nics);
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    Ok(())
}

/// Runs `fwd` on the [`players`] in a folder, functions `first` and the one behind it, until they have sent all.
fn forwarded(vm: &mut Machine, checks: &mut Checks, folder: &Path, fwd: &str, first: usize) -> Result<()> {
    start_ours(vm, fwd)?;
    for nic in first..first + 2 {
        vm.nic(nic).set_link(true);
    }
    vm.until("all frames have been sent", |vm| {
        (first..first + 2).all(|nic| vm.nic(nic).wire_counters().sent >= FRAMES.into() && vm.nic(nic).transmit_idle())
    });
    let report = ours::finish(vm, fwd)?;
    for side in [0, 1_u8] {
        let nic = first + usize::from(side);
        let found = unordered(&folder.join(format!("out{}", 1 - side)), side)?;
        checks.equal(format!("{FRAMES} frames from function {nic}, byte for byte"), found, None);
        let port = &report["ports"][usize::from(side)];
        let queues: Vec<_> =
            port["rx_queues"].as_array().into_iter().flatten().map(|queue| queue["packets"].as_u64()).collect();
        let fair = queues.len() == 2 && queues.iter().all(|packets| *packets > Some(u64::from(FRAMES) / 4));
        checks.that(fair, format!("  received by queue: {queues:?}"));
        let wire = vm.nic(nic).wire_counters();
        let counted = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| port[name].as_u64());
        let wanted = [wire.delivered, wire.delivered_bytes, wire.sent, wire.sent_bytes].map(Some);
        checks.equal("  what fwd counted, as the wire", counted, wanted);
    }
    Ok(())
}

/// Starts `command`, and waits until both functions are in use.
fn start_ours(vm: &mut Machine, command: &str) -> Result<()> {
    ours::start(vm, command)?;
    vm.sh("for try in $(seq 300); do [ $(grep -c 'in use:' /tmp/said) = 2 ] && exit 0; sleep 0.1; done; cat /tmp/said; exit 1").map(drop)
}

/// [`frames::frame`], and a long one now and then.
fn long(side: u8, number: u32) -> Vec<u8> {
    let mut frame = frames::frame(side, number);
    if number % 50 == 49 {
        frame.resize(LONG, frame[frame.len() - 1]);
    }
    frame
}

/// What is wrong with the frames of `side` that came out, in whatever order.
fn unordered(path: &Path, side: u8) -> Result<Option<String>> {
    let mut found = Vec::new();
    frames::read(path, |frame| found.push(frame.to_vec()))?;
    let mut wanted: Vec<_> = (0..FRAMES).map(|number| long(side, number)).collect();
    found.sort();
    wanted.sort();
    let same = found.iter().zip(&wanted).take_while(|(found, wanted)| found == wanted).count();
    Ok((found != wanted).then(|| format!("{} frames, of which the first {same} in order are right", found.len())))
}

/// What testpmd says of a run with function `first` and the one behind it.
fn testpmd(vm: &mut Machine, program: &str, first: usize) -> Result<String> {
    let [a, b] = [first, first + 1].map(|nic| format!("0000:00:{:02x}.0", nic + 5));
    vm.sh(&format!(
        "modprobe vfio-pci
         for nic in {a} {b}; do
             echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
             echo $nic >/sys/bus/pci/drivers_probe
         done
         rm -f /tmp/commands; mkfifo /tmp/commands
         {program} -l 0,1 -n 1 --in-memory -a {a} -a {b} -- \
         -i --no-flush-rx --disable-link-check --nb-cores=1 --rxq=2 --txq=2 --rss-udp --rxd=512 --txd=512 \
         --total-num-mbufs=16384 --max-pkt-len=9018 --tx-offloads=0x8000 <>/tmp/commands >/tmp/testpmd 2>&1 &
         echo $! >/tmp/pid
         printf 'set fwd io retry\nset burst tx delay 100 retry 10000\nstart\n' >/tmp/commands
         for try in $(seq 90); do grep -q 'testpmd> start' /tmp/testpmd && exit; kill -0 $! || break; sleep 1; done
         cat /tmp/testpmd; exit 1"
    ))?;
    for side in [0, 1] {
        vm.nic(first + side).set_link(true);
    }
    vm.until("all frames have been sent", |vm| {
        (first..first + 2).all(|nic| vm.nic(nic).wire_counters().sent >= FRAMES.into() && vm.nic(nic).transmit_idle())
    });
    vm.sh("echo 'show port stats all' >/tmp/commands; echo stop >/tmp/commands; echo quit >/tmp/commands
         for try in $(seq 300); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
         cat /tmp/testpmd; dmesg | grep -c 'DMAR:.*fault'; true")
}
