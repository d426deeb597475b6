//! Linux's `ixgbe` on each card that the model can be, with what an administrator does to one: the same with kernels older and newer than that of the rig's other scenarios.

use super::linux::{QUIET, ethtool, none_forbidden};
use crate::checks::Checks;
use crate::machine::{Machine, Rig, Setup};
use anyhow::Result;
use softnic::ModuleKind;

/// An X550 and an X540, and an 82599 with a module that can be taken out and one that has none, back to back.
const NICS: &[&str] = &["a?id=x550", "b?id=x540&wire=peer:a", "c?id=10fb&module=sr", "d?id=10f9&wire=peer:c"];
/// Rows of the table for hashes, which have eight entries, and what `ethtool -m` says.
const TABLES: [&str; 4] = ["  504:", "  120:", "  120:", "  120:"];
/// The one with the module.
const OPTICAL: usize = 2;

/// Loads the driver; `up I` gives card I its namespace and address, and brings it up; `linked I` waits for its link.
const FUNCTIONS: &str = r"
up() {
    local dev=$(ls /sys/bus/pci/devices/0000:00:0$((5 + $1)).0/net)
    ip netns add n$1 2>/dev/null
    ip link set $dev netns n$1 name e$1
    ip -n n$1 addr add 10.9.$(($1 / 2)).$(($1 % 2 + 1))/24 dev e$1
    ip -n n$1 link set e$1 up
}
carrier() { for try in $(seq 300); do [ $(ip netns exec n$1 cat /sys/class/net/e$1/carrier) = $2 ] && return; sleep 0.1; done; echo no carrier $2 of e$1; return 1; }
linked() { for i in $@; do carrier $i 1 || return; done; }
modprobe ixgbe
";

/// Brings all up.
const UP: &str = "for i in 0 1 2 3; do up $i; done; linked 0 1 2 3";

/// A guest whose shell has the functions.
struct Guest(Machine);

impl Guest {
    fn sh(&mut self, script: &str) -> Result<String> {
        self.0.sh(&format!("{FUNCTIONS}{script}"))
    }

    /// Pings from each of these cards to its peer, in turn.
    fn pings(&mut self, checks: &mut Checks, cards: &[usize], after: &str) -> Result<()> {
        for card in cards {
            let (net, peer) = (card / 2, 2 - card % 2);
            let said = self
                .0
                .try_sh(&format!("ip netns exec n{card} ping -M do -c 10 -i 0.02 -w 60 -s 1472 10.9.{net}.{peer}"))?;
            checks.answers(format!("ping from {} {after}", NICS[*card]), &said.text, 10);
        }
        Ok(())
    }
}

/// All that both kernels judge.
pub(super) fn linux(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut guest = Guest(rig.boot(&Setup { nics: NICS, kernel: QUIET, cpus: 2, ..Setup::default() })?);
    println!("           Linux {}", guest.sh("uname -r")?.trim());
    guest.sh(UP)?;
    let log = guest.sh("dmesg -r | grep ixgbe")?;
    let complaints =
        log.lines().filter(|line| line.as_bytes().get(1).is_some_and(|level| (b'0'..=b'4').contains(level)));
    checks.equal("warnings of the driver", complaints.collect::<Vec<_>>().join("\n"), String::new());
    shown(&mut guest, checks)?;
    traffic(&mut guest, checks)?;
    pause(&mut guest, checks)?;
    cables(&mut guest, checks)?;
    resets(&mut guest, checks)?;
    rules(&mut guest, checks)?;
    none_forbidden(checks, &guest.0, NICS);
    tests(&mut guest, checks)
}

/// What ethtool shows of each.
fn shown(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    for (index, nic) in NICS.iter().enumerate() {
        let e = format!("e{index}");
        let said = guest.sh(&format!(
            "ethtool() {{ ip netns exec n{index} ethtool $@; }}
             ethtool {e}; ethtool -e {e} offset 0 length 64; ethtool -x {e}; ethtool -a {e}; ethtool -d {e} | grep -E 'LINKS|CTRL  '
             ethtool -m {e} && echo a module || echo no module"
        ))?;
        checks.contains(format!("{nic} has a link of 10 Gbit/s"), &said, "Speed: 10000Mb/s");
        checks.contains("  its EEPROM can be read", &said, "0x0000:");
        checks.contains("  its table for hashes has its size", &said, TABLES[index]);
        checks.contains("  PAUSE is shown", &said, "Pause parameters");
        checks.contains("  registers can be dumped", &said, "0x042A4: LINKS");
        let module = if index == OPTICAL { "a module" } else { "no module" };
        checks.contains(format!("  ethtool -m has {module}"), &said, &format!("\n{module}"));
    }
    Ok(())
}

/// Both ways, short and by TCP, byte for byte; and what `ethtool -S` counts of it, as the wire.
fn traffic(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    // Large receive offload is taken and does nothing; virtual functions are not offered. Before any traffic, as the card is reset, and
    // loses what nobody has read of its counters.
    let said = guest.sh("for i in 0 1 2 3; do
             ip netns exec n$i ethtool -K e$i lro on
             ip netns exec n$i ethtool -k e$i | grep 'large-receive-offload: on'
             [ -e /sys/bus/pci/devices/0000:00:0$((5 + i)).0/sriov_totalvfs ] && echo functions
         done; linked 0 1 2 3")?;
    checks.equal("ethtool -K lro on is taken", said.matches("offload: on").count(), NICS.len());
    checks.that(!said.contains("functions"), "no card offers virtual functions");
    guest.pings(checks, &[0, 1, 2, 3], "at first")?;
    guest.sh("mkfifo /tmp/hold; head -c 2000000 /dev/urandom >/tmp/data")?;
    for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        let said = guest.sh(&format!(
            "ip netns exec n{to} sh -c 'nc -l -p 7000 <>/tmp/hold >/tmp/copy' & server=$!
             for try in $(seq 100); do ip netns exec n{to} netstat -ltn 2>/dev/null | grep -q :7000 && break; sleep 0.1; done
             ip netns exec n{from} nc 10.9.{}.{} 7000 </tmp/data
             wait $server; cmp /tmp/data /tmp/copy && echo same",
            to / 2,
            to % 2 + 1
        ))?;
        checks.contains(format!("2 MB over TCP from {}", NICS[from]), &said, "same");
    }
    for (index, nic) in NICS.iter().enumerate() {
        // A frame may pass between the two readings.
        let mut counted = ([0; 2], [1; 2]);
        for _ in 0..10 {
            let said = guest.sh(&format!("ip netns exec n{index} ethtool -S e{index}"))?;
            let wire = guest.0.nic(index).wire_counters();
            let of = ethtool(&said);
            counted.0 = ["rx_pkts_nic", "tx_pkts_nic"].map(|name| of.get(name).copied().unwrap_or(0));
            counted.1 = [wire.delivered, wire.sent];
            if counted.0 == counted.1 {
                break;
            }
        }
        checks.equal(format!("ethtool -S of {nic}: packets in and out, as the wire"), counted.0, counted.1);
    }
    Ok(())
}

/// PAUSE frames that the other end sends, with `ethtool -A` rx on and off.
fn pause(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    for rx in ["on", "off"] {
        let shown = guest.sh(&format!(
            "for i in 0 1 2 3; do ip netns exec n$i ethtool -A e$i autoneg off rx {rx} tx off; done; linked 0 1 2 3
             for i in 0 1 2 3; do ip netns exec n$i ethtool -a e$i | tr -d ' \\t\\n'; done"
        ))?;
        checks.equal(format!("ethtool -a says rx {rx}"), shown.matches(&format!("RX:{rx}TX:off")).count(), NICS.len());
        for cards in [[0, 2], [1, 3]] {
            let seen = stopped(guest, cards, rx == "on")?;
            for (card, seen) in cards.into_iter().zip(seen) {
                let what = if rx == "on" { "holds frames back" } else { "goes on sending" };
                checks.that(seen, format!("{}, rx {rx}: {what} while its peer says stop", NICS[card]));
                let said = guest.sh(&format!("ip netns exec n{card} ethtool -S e{card}"))?;
                let counted = ethtool(&said).get("rx_flow_control_xoff").copied();
                checks.that(rx == "off" || counted > Some(0), format!("  ethtool -S: {counted:?} XOFF received"));
            }
        }
    }
    guest.pings(checks, &[0, 1, 2, 3], "after PAUSE frames")
}

/// Whether each of two cards, while its peer sent XOFF, held back something of what it was to send (`wanted`), or sent it and held nothing
/// back. It is asked some times, as on a busy host the peer may be late, and a pause over when something is to be sent.
fn stopped(guest: &mut Guest, cards: [usize; 2], wanted: bool) -> Result<[bool; 2]> {
    let peers = cards.map(|card| card ^ 1);
    let pings = cards.map(|card| {
        let (net, peer) = (card / 2, 2 - card % 2);
        format!("ip netns exec n{card} ping -c 3 -i 0.1 -W 1 10.9.{net}.{peer} &\n")
    });
    let counters = |guest: &Guest, cards: [usize; 2]| cards.map(|card| guest.0.nic(card).wire_counters());
    let mut seen = [false; 2];
    for _ in 0..5 {
        let before = counters(guest, peers);
        // A pause of 65,535 times 512 bits, 3.4 ms, and 64 of these at a time.
        guest.sh(&format!(
            r"{{ printf '\001\200\302\0\0\001\002\0\0\0\0\377\210\010\0\001\377\377'; head -c 42 /dev/zero; }} >/tmp/xoff
             for twice in 1 2 3 4 5 6; do cat /tmp/xoff /tmp/xoff >/tmp/more; mv /tmp/more /tmp/xoff; done
             for i in {} {}; do
                 {{
                     while [ -e /tmp/xoff ]; do cat /tmp/xoff; sleep 0.005; done |
                         ip netns exec n$i socat -u -b 60 STDIN INTERFACE:e$i
                 }} >/dev/null 2>&1 &
             done",
            peers[0], peers[1]
        ))?;
        guest.0.until("PAUSE frames are sent", |vm| {
            (0..2).all(|at| vm.nic(peers[at]).wire_counters().sent > before[at].sent + 200)
        });
        let before = counters(guest, cards);
        let said = guest.sh(&format!("{} wait", pings.concat()))?;
        let asked = said.matches("3 packets transmitted").count() == cards.len();
        let after = counters(guest, cards);
        guest.sh("rm /tmp/xoff; sleep 0.3")?;
        for (seen, (before, after)) in seen.iter_mut().zip(before.into_iter().zip(after)) {
            let is_held = after.held_back > before.held_back;
            *seen |= asked && if wanted { is_held } else { after.sent > before.sent && !is_held };
        }
        if seen == [true; 2] {
            break;
        }
    }
    Ok(seen)
}

/// The module is taken out and another comes, and cables of twisted pair.
fn cables(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    // A card may have something to send when its link goes.
    guest.0.expect(&["initiating reset to clear Tx work after link loss"]);
    guest.0.nic(OPTICAL).set_module(ModuleKind::Empty);
    guest.0.nic(0).set_link(false);
    let said =
        guest.sh("carrier 0 0; carrier 2 0; ip netns exec n2 ethtool -m e2 >/dev/null 2>&1 || echo nothing to read")?;
    checks.contains("cable and module are out: no carrier, and no module to read", &said, "nothing to read");
    checks.that(!said.contains("no carrier"), "  and the links went");
    guest.0.nic(OPTICAL).set_module(ModuleKind::LongRange);
    guest.0.nic(0).set_link(true);
    let said = guest.sh("linked 0 1 2 3; ip netns exec n2 ethtool -m e2")?;
    checks.contains("cable and another module are in", &said, "SOFT-10G-LR");
    let said =
        guest.sh("ip -n n2 link set e2 down; carrier 3 0; ip -n n2 link set e2 up; linked 2 3 && echo both again")?;
    checks.equal("the laser goes off with its interface, and its partner's link", said.trim(), "both again");
    guest.pings(checks, &[0, 2], "after that")
}

/// Function level reset, removal and rescan, and the driver unloaded.
fn resets(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    // The kernel tells the driver of neither, so the interface is down meanwhile. Newer ones say so with the level of a warning.
    guest.0.expect(&["resetting", "reset done"]);
    let said = guest.sh("for i in 0 1 2 3; do
             ip -n n$i link set e$i down
             cd /sys/bus/pci/devices/0000:00:0$((5 + i)).0
             echo flr >reset_method && [ $(cat reset_method) = flr ] || exit
             echo 1 >reset && echo was reset
             ip -n n$i link set e$i up
         done; linked 0 1 2 3")?;
    checks.equal("function level resets", said.matches("was reset").count(), NICS.len());
    guest.pings(checks, &[0, 1, 2, 3], "after a function level reset")?;
    guest.sh("for i in 0 1 2 3; do echo 1 >/sys/bus/pci/devices/0000:00:0$((5 + i)).0/remove; done
         echo 1 >/sys/bus/pci/rescan
         for i in 0 1 2 3; do
             for try in $(seq 100); do [ -e /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net ] && break; sleep 0.1; done
             up $i
         done; linked 0 1 2 3")?;
    guest.pings(checks, &[0, 1, 2, 3], "after removal and rescan")?;
    guest.sh(&format!("rmmod ixgbe && modprobe ixgbe && {UP}"))?;
    guest.pings(checks, &[0, 1, 2, 3], "after the driver was loaded again")
}

/// Rules for single flows, which the model does not have, are refused and not taken without effect.
fn rules(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    let said = guest.sh("for i in 0 1 2 3; do
             (ethtool() { ip netns exec n$i ethtool $@; }
              ethtool -K e$i ntuple on && linked $i || exit
              ethtool -N e$i flow-type udp4 dst-port 5000 action 1 2>&1 || echo e$i has refused) &
         done; wait")?;
    for (index, nic) in NICS.iter().enumerate() {
        checks.contains(format!("ethtool -N of {nic} is refused"), &said, &format!("e{index} has refused"));
    }
    Ok(())
}

/// `ethtool -t` of all at once. Last, as it writes what no driver would. Its frames have 200 ms for their way through the loop, which they do
/// not make in time on a busy host, so it has three tries.
fn tests(guest: &mut Guest, checks: &mut Checks) -> Result<()> {
    let said = guest.sh("for i in 0 1 2 3; do
             for try in 1 2 3; do
                 ip netns exec n$i ethtool -t e$i offline >/tmp/test$i 2>&1 && break
                 grep -v '\t 0' /tmp/test$i >/tmp/failed$i.$try
             done &
         done; wait
         for i in 0 1 2 3; do echo card $i; cat /tmp/test$i /tmp/failed$i.* 2>/dev/null; done; true")?;
    for (index, nic) in NICS.iter().enumerate() {
        let of = said.split("card ").nth(index + 1).unwrap_or("");
        let failed: Vec<_> =
            of.lines().filter(|line| line.contains('\t') && !line.ends_with('0')).map(str::trim).collect();
        checks.contains(
            format!("{nic} passes ethtool -t offline, after failures {failed:?}"),
            of,
            "The test result is PASS",
        );
        checks.that(failed.iter().all(|line| line.starts_with("Loopback test")), "  of the loop, if any");
    }
    Ok(())
}
