//! What twins of `fwd l3 --kernel` carry, where this host's kernel may lack it: VLANs with an MTU of their own and several ways through them,
//! and a VRF.

use crate::checks::Checks;
use crate::machine::{Machine, Rig, Setup};
use anyhow::Result;

/// Stations behind the first port; each has a flow of its own.
const STATIONS: u32 = 48;

/// What the addresses of stations begin with, and the one that both VLANs lead to, of each family.
const FAMILIES: [(&str, &str, &str); 2] =
    [("IPv4", "10.60.0.", "10.62.0.1"), ("IPv6", "2001:db8:60::", "2001:db8:62::1")];

/// Two ports with their twins. Behind the first are stations, behind the second a host with two VLANs and an address that both lead to.
const NETWORK: &str = "
    for module in tun vrf 8021q; do modprobe $module; done
    fwd l3 'soft:a?wire=tap:w0' 'soft:b?wire=tap:w1' --kernel --quiet --json >/tmp/said 2>/tmp/errors &
    echo $! >/tmp/pid
    for try in $(seq 300); do ip link show w1 >/dev/null 2>&1 && break; sleep 0.1; done
    sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip netns add near; ip netns add far
    ip link set w0 netns near; ip link set w1 netns far
    ip -n near link set lo up; ip -n far link set lo up; ip -n near link set w0 up; ip -n far link set w1 up
    ip address add 10.60.0.1/24 dev rw0; ip address add 2001:db8:60::1/64 dev rw0 nodad; ip link set rw0 up; ip link set rw1 up
    for vlan in 10 20; do
        ip link add link rw1 name rw1.$vlan type vlan id $vlan; ip address add 10.61.$vlan.1/24 dev rw1.$vlan; ip link set rw1.$vlan up
        ip -n far link add link w1 name w1.$vlan type vlan id $vlan; ip -n far address add 10.61.$vlan.2/24 dev w1.$vlan
        ip -n far link set w1.$vlan up
        ip address add 2001:db8:61:$vlan::1/64 dev rw1.$vlan nodad
        ip -n far address add 2001:db8:61:$vlan::2/64 dev w1.$vlan nodad
    done
    ip link set rw1.10 mtu 1400
    ip -n far address add 10.62.0.1/32 dev lo; ip -n far address add 2001:db8:62::1/128 dev lo
    for vlan in 10 20; do
        ip -n far route add 10.60.0.0/24 via 10.61.$vlan.1 metric $vlan
        ip -n far route add 2001:db8:60::/64 via 2001:db8:61:$vlan::1 metric $vlan
    done
    ip route add 10.62.0.1/32 nexthop via 10.61.10.2 nexthop via 10.61.20.2
    ip route add 2001:db8:62::1/128 nexthop via 2001:db8:61:10::2 dev rw1.10 nexthop via 2001:db8:61:20::2 dev rw1.20
    for station in $(seq 2 STATIONS); do
        ip -n near address add 10.60.0.$station/24 dev w0; ip -n near address add 2001:db8:60::$station/64 dev w0 nodad
    done
    ip -n near route add default via 10.60.0.1; ip -n near route add default via 2001:db8:60::1
    sleep 2
    ip netns exec near ping -q -c 2 -W 5 10.61.10.2; ip netns exec near ping -q -c 2 -W 5 10.61.20.2
    ip netns exec near ping -q -c 2 -W 5 10.60.0.1
    ip netns exec near ping -q -c 2 -W 5 2001:db8:61:10::2; ip netns exec near ping -q -c 2 -W 5 2001:db8:61:20::2";

pub(crate) fn carried(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut machine = rig.boot(&Setup::default())?;
    println!("{}", machine.sh(&NETWORK.replace("STATIONS", &(STATIONS + 1).to_string()))?);

    // Found once, stations are asked of the ports alone.
    for (family, [narrow, wide], header, told) in [
        ("IPv4", ["10.61.10.2", "10.61.20.2"], 28, "mtu = 1400"),
        ("IPv6", ["2001:db8:61:10::2", "2001:db8:61:20::2"], 48, "mtu=1400"),
    ] {
        let ping = |machine: &mut Machine, words: String| -> Result<String> {
            Ok(machine.try_sh(&format!("ip netns exec near ping {words}"))?.text)
        };
        let before = forwarded_by_linux(&mut machine)?;
        let text = ping(&mut machine, format!("-c 100 -i 0.01 -w 20 {narrow}"))?;
        checks.answers(format!("100 pings of {family} to a host of VLAN 10 are answered"), &text, 100);
        let text = ping(&mut machine, format!("-c 5 -i 0.2 -w 20 -M do -s {} {narrow}", 1400 - header))?;
        checks.answers("so are such of the VLAN's MTU of 1,400 bytes", &text, 5);
        let text = ping(&mut machine, format!("-c 5 -i 0.2 -w 20 -M do -s {} {wide}", 1500 - header))?;
        checks.answers("and of 1,500 bytes where the VLAN takes them", &text, 5);
        let by_linux = forwarded_by_linux(&mut machine)? - before;
        checks
            .that(by_linux <= 20, format_args!("of these 220 frames Linux forwarded {by_linux}, the ports all others"));
        let text = ping(&mut machine, format!("-c 1 -W 5 -M do -s {} {narrow}", 1401 - header))?;
        checks.contains("one that is longer than VLAN 10 takes is told its MTU", &text, told);
    }

    for (family, station, to) in FAMILIES {
        ways(&mut machine, checks, family, &each(station, to))?;
    }
    machine.sh(
        "ip link set rw1.20 down; ip -n far route delete 10.60.0.0/24 metric 20; ip -n far route delete 2001:db8:60::/64 metric 20; sleep 1",
    )?;
    for (family, station, to) in FAMILIES {
        let text = machine.try_sh(&each(station, to))?.text;
        answered(checks, &format!("answers of {family} by the way that is left"), &text);
    }
    vrf(&mut machine, checks)?;

    machine.sh(
        "kill -INT $(cat /tmp/pid); for try in $(seq 100); do [ -e /proc/$(cat /tmp/pid) ] || break; sleep 0.1; done",
    )?;
    let said = machine.sh("cat /tmp/said")?;
    checks.contains(
        "fwd says that a VRF leaves its packets to Linux",
        &said,
        "rw0 is part of a bridge, a bond or a VRF",
    );
    Ok(())
}

/// A ping by each station. Of one alone the answer is waited for; of more, twice the time of those before.
fn each(station: &str, to: &str) -> String {
    format!(
        "for station in $(seq 2 {}); do ip netns exec near ping -c 1 -W 5 -I {station}$station {to}; done",
        STATIONS + 1
    )
}

/// One address that two VLANs lead to: flows are spread, and the ports forward them.
fn ways(machine: &mut Machine, checks: &mut Checks, family: &str, each: &str) -> Result<()> {
    let count = |machine: &mut Machine| -> Result<[u64; 2]> {
        let count = |machine: &mut Machine, vlan| -> Result<u64> {
            let path = format!("/sys/class/net/w1.{vlan}/statistics/rx_packets");
            Ok(machine.sh(&format!("ip netns exec far cat {path}"))?.trim().parse()?)
        };
        Ok([count(machine, 10)?, count(machine, 20)?])
    };
    // Of all stations Linux has found the way back once.
    machine.try_sh(each)?;
    let (linux, from) = (forwarded_by_linux(machine)?, count(machine)?);
    let text = machine.try_sh(each)?.text;
    answered(checks, &format!("answers to a ping of {family} of each station"), &text);
    let to = count(machine)?;
    let [one, other] = [0, 1].map(|way| to[way] - from[way]);
    let all = u64::from(STATIONS);
    checks.that(
        one + other >= all && one.min(other) >= all / 6,
        format_args!("frames by each of two ways: {one} and {other}"),
    );
    // One for each station that Linux is to look for again, and some more on a slow machine.
    let by_linux = forwarded_by_linux(machine)? - linux;
    checks.that(by_linux <= all * 3 / 2, format_args!("of these {} frames Linux forwarded {by_linux}", 2 * all));
    Ok(())
}

/// Twins in a VRF: Linux forwards between them, and the ports again once they are out of it.
fn vrf(machine: &mut Machine, checks: &mut Checks) -> Result<()> {
    let ping = "ip netns exec near ping -c 50 -i 0.01 -w 20 10.61.10.2";
    let into = |to: &str| {
        // A change of the VRF takes IPv4 routes along, but not those by a gateway.
        format!(
            "ip link set rw0 {to}; ip link set rw1.10 {to}; sleep 1; ip netns exec near ping -q -c 2 -W 5 10.61.10.2 || true"
        )
    };
    machine.sh(&format!("ip link add blue type vrf table 10; ip link set blue up; {}", into("master blue")))?;
    let before = forwarded_by_linux(machine)?;
    let text = machine.try_sh(ping)?.text;
    checks.answers("50 pings between twins in a VRF are answered", &text, 50);
    let by_linux = forwarded_by_linux(machine)? - before;
    checks.that(by_linux >= 100, format_args!("of these 100 frames Linux forwarded {by_linux}"));

    machine.sh(&into("nomaster"))?;
    let before = forwarded_by_linux(machine)?;
    let text = machine.try_sh(ping)?.text;
    checks.answers("50 pings are answered once they are out of it", &text, 50);
    let by_linux = forwarded_by_linux(machine)? - before;
    checks.that(by_linux <= 20, format_args!("of these 100 frames Linux forwarded {by_linux}"));
    machine.sh(&into("master blue"))?;
    Ok(())
}

/// Packets of both families that the guest's Linux has forwarded since it began.
fn forwarded_by_linux(machine: &mut Machine) -> Result<u64> {
    let counts = "awk '/^Ip: [0-9]/ { n += $7 } /^Ip6OutForwDatagrams/ { n += $2 } END { print n }' /proc/net/snmp /proc/net/snmp6";
    Ok(machine.sh(counts)?.trim().parse()?)
}

/// Whether a ping of each station was answered; prints what they said if not.
fn answered(checks: &mut Checks, what: &str, text: &str) {
    let answers = text.lines().filter(|line| line.contains(" bytes from ")).count();
    checks.equal(what, answers, STATIONS as usize);
    if answers != STATIONS as usize {
        text.lines().for_each(|line| println!("           {line}"));
    }
}
