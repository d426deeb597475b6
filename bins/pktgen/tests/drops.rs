//! Loss that is known, as Linux drops frames by their count. Needs root; says why when it is skipped.

use serde_json::Value;
use std::process::Command;

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

#[test]
fn one_frame_in_a_hundred_that_linux_drops_is_one_percent() {
    if !rustix::process::geteuid().is_root() {
        return skip::test!("only root has namespaces and TAP interfaces");
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return skip::test!("nft is not installed; tests/setup does that");
    }
    let options = ["--one-way", "--rate", "5k", "--catch-up", "1s", "--count", "5000", "--json", "--quiet"];
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", LINUX, "sh", env!("CARGO_BIN_EXE_pktgen"), "run"])
        .args(["soft:a?wire=tap:rwa", "soft:b?wire=tap:rwb"])
        .args(options)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let direction = &report["directions"][0];
    for (field, count) in [("sent", 5000), ("received", 4950), ("lost", 50), ("duplicate", 0), ("reordered", 0)] {
        assert_eq!(direction[field], count, "{field}: {direction}");
    }
    assert_eq!(direction["loss_percent"], 1.0);
}
