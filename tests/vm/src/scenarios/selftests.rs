//! Linux's own tests of forwarding (tools/testing/selftests/net/forwarding) with `fwd l3 --kernel` as the router: its twins are the router's
//! interfaces, and the other ends of its wires the hosts'.

use crate::checks::Checks;
use crate::machine::{Machine, Rig, Setup};
use anyhow::Result;

/// Tests, the knobs of their ports, and the lines of them that may fail.
const TESTS: [(&str, &str, &[&str]); 4] = [
    // The fast path drops class E, as its manual says.
    ("router", "", &["Source IP in class E"]),
    ("router_vid_1", "", &[]),
    // A virtual function receives the VLANs that it asks its physical function for.
    ("router_vid_1", "id=1515&trust=off&", &[]),
    ("router_broadcast", "", &[]),
];

pub(crate) fn forwarding(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut machine = rig.boot(&Setup::default())?;
    if machine.try_sh("test -e /selftests/net/forwarding/router.sh")?.status != 0 {
        checks.skip("Debian's linux-source was not to be had when the rig's machine was built (tests/vm/build)");
        return Ok(());
    }
    machine
        .sh("for module in tun vrf 8021q cls_flower cls_matchall sch_ingress act_gact; do modprobe $module; done")?;
    // What ports forward by themselves does not pass the twins, so it is counted where it arrives.
    machine.sh(
        "cd /selftests/net/forwarding && sed -i -e 's/dev \\$rp2 egress/dev $h2 ingress/; s/dev \\$rp2 clsact/dev $h2 clsact/' router.sh",
    )?;
    for (name, knobs, may_fail) in TESTS {
        one(&mut machine, checks, (name, knobs), may_fail)?;
    }
    Ok(())
}

fn one(machine: &mut Machine, checks: &mut Checks, (name, knobs): (&str, &str), may_fail: &[&str]) -> Result<()> {
    // The state of a TAP interface is not known until its carrier has changed, and the tests wait for one that is up.
    let ports =
        [("a", 0), ("b", 1), ("c", 2)].map(|(port, wire)| format!("'soft:{port}?{knobs}wire=tap:w{wire}'")).join(" ");
    machine.sh(&format!(
        "fwd l3 {ports} --kernel --quiet --json >/tmp/said 2>/tmp/errors &
        echo $! >/tmp/pid
        for try in $(seq 300); do ip link show w2 >/dev/null 2>&1 && break; sleep 0.1; done
        for wire in w0 w1 w2; do ip link set $wire up; ip link set $wire carrier off; ip link set $wire carrier on; done"
    ))?;
    // A function is told within two seconds of VLANs that the test has made.
    let wait = if knobs.is_empty() { 1 } else { 4 };
    let said = machine.try_sh(&format!(
        "cd /selftests/net/forwarding && NETIF_CREATE=no WAIT_TIME={wait} INTERFACE_TIMEOUT=60 PING_TIMEOUT=8 bash ./{name}.sh w0 rw0 rw1 w1 rw2 w2"
    ))?;
    println!("{}", said.text);
    let failed = said.text.lines().filter(|line| line.contains("[FAIL]"));
    let failed: Vec<&str> = failed.filter(|line| !may_fail.iter().any(|may| line.contains(may))).collect();
    checks.equal(format_args!("what {name}.sh finds wrong ({knobs})"), failed.join("\n"), String::new());
    let passed = said.text.lines().filter(|line| line.contains("[ OK ]")).count();
    checks.that(passed > 0, format_args!("{name}.sh finds {passed} things right ({knobs})"));
    machine.sh(
        "kill -INT $(cat /tmp/pid); for try in $(seq 100); do [ -e /proc/$(cat /tmp/pid) ] || break; sleep 0.1; done",
    )?;
    let forwarded = machine.sh("sed -n 's/.*\"forwarded\":\\([0-9]*\\).*/\\1/p' /tmp/said")?;
    let forwarded: u64 = forwarded.trim().parse().unwrap_or(0);
    checks.that(forwarded > 0, format_args!("the ports forwarded {forwarded} frames by themselves"));
    Ok(())
}
