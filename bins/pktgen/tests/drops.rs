//! Loss that is known, as Linux drops frames by their count. Needs root; says why when it is skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::process::{Command, Output};

/// Two TAP interfaces and a bridge between them, which gets 99 of 100 frames from the first. The namespace goes with the process.
const LINUX: &str = "
    set -e
    for port in rwa rwb; do ip tuntap add $port mode tap; done
    ip link add name rwbridge type bridge
    for port in rwa rwb; do ip link set $port txqueuelen 10000 master rwbridge up; done
    ip link set rwbridge up
    nft add table netdev drops
    nft add chain netdev drops ingress '{ type filter hook ingress device rwa priority 0; }'
    nft add rule netdev drops ingress numgen inc mod 100 0 drop
    exec \"$@\"
";

/// Runs a program in such a namespace.
fn on_linux(program: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("unshare");
    // nft and ip are there, which not every user's PATH has.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(["--net", "sh", "-c", LINUX, "sh"]).args(program).output().unwrap()
}

/// Why it cannot be done here.
fn cannot() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root has namespaces and TAP interfaces".to_owned());
    }
    let probe = on_linux(&["true"]);
    let why = String::from_utf8_lossy(&probe.stderr).lines().next().unwrap_or("no reason given").to_owned();
    let why = format!("no namespace here has TAP, a bridge and a rule that drops frames ({why})");
    (!probe.status.success()).then_some(why)
}

#[test]
fn an_interface_that_is_too_narrow_is_named() {
    if let Some(why) = cannot() {
        return skip::test!("{why}");
    }
    let run = [env!("CARGO_BIN_EXE_pktgen"), "run", "soft:a?wire=tap:rwa", "soft:b?wire=tap:rwb"];
    let output = on_linux(&[&run[..], &["--one-way", "--size", "3000", "--quiet"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words =
        "rwa, at which soft:a is, has an MTU of 1500, and frames of 3000 bytes need 2986: ip link set rwa mtu 2986";
    assert!(said.contains(words) && said.lines().count() == 1, "{said}");
}

#[test]
fn one_frame_in_a_hundred_that_linux_drops_is_one_percent() {
    if let Some(why) = cannot() {
        return skip::test!("{why}");
    }
    let options = ["--one-way", "--rate", "5k", "--catch-up", "1s", "--count", "5000", "--json", "--quiet"];
    let run = [env!("CARGO_BIN_EXE_pktgen"), "run", "soft:a?wire=tap:rwa", "soft:b?wire=tap:rwb"];
    let output = on_linux(&[&run[..], &options].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let direction = &report["directions"][0];
    for (field, count) in [("sent", 5000), ("received", 4950), ("lost", 50), ("duplicate", 0), ("reordered", 0)] {
        assert_eq!(direction[field], count, "{field}: {direction}");
    }
    assert_eq!(direction["loss_percent"], 1.0);
}
