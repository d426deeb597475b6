//! Loss that is known, as Linux drops frames by their count. Needs root; says why when it is skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
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

/// The figures of a run that listens at a path, as soon as they are as they should be; `None` if it is over before.
fn figures(path: &Path, is_so: impl Fn(&Value) -> bool, is_over: impl Fn() -> bool) -> Option<Value> {
    let stream = loop {
        match UnixStream::connect(path) {
            Ok(stream) => break stream,
            Err(_) if is_over() => return None,
            Err(_) => std::thread::yield_now(),
        }
    };
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        (&stream).write_all(b"{\"do\":\"get\"}\n").ok()?;
        let answer: Value = serde_json::from_str(&lines.next()?.ok()?).unwrap();
        if is_so(&answer["figures"]) {
            return Some(answer["figures"].clone());
        }
    }
}

/// The interface of the second port is taken down once frames have come, and stays so.
#[test]
fn a_link_that_stays_down_keeps_what_was_counted() {
    if let Some(why) = cannot() {
        return skip::test!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [socket, out, go] = ["a.sock", "out", "go"].map(|name| folder.path().join(name));
    let script = "
        pktgen=$1 socket=$2 out=$3 go=$4
        \"$pktgen\" run soft:a?wire=tap:rwa soft:b?wire=tap:rwb --one-way --rate 1k --duration 4s --catch-up 1s \\
            --warm-up 0s --json --quiet --control \"$socket\" > \"$out\" &
        until [ -e \"$go\" ]; do sleep 0.05; done
        ip link set rwb down
        wait $!
    ";
    let paths = [&socket, &out, &go].map(|path| path.to_str().unwrap());
    let program = [&["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_pktgen")][..], &paths].concat();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| on_linux(&program));
        let has_come = |figures: &Value| figures["directions"][0]["received"].as_u64() > Some(300);
        let figures = figures(&socket, has_come, || run.is_finished());
        std::fs::write(&go, "").unwrap();
        assert!(figures.is_some(), "it was over before");
        run.join().unwrap()
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(
        said.starts_with("pktgen: soft:b: its link went down; what did not arrive for that counts as lost"),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let direction = &report["directions"][0];
    let [sent, missed, received, lost] =
        ["sent", "missed", "received", "lost"].map(|field| direction[field].as_u64().unwrap());
    // A frame at the very end may fall on either side.
    assert!((sent + missed).abs_diff(4000) <= 1 && sent == received + lost, "{direction}");
    assert!(received > 300 && lost > 0, "{direction}");
    assert!(said.contains(report["error"].as_str().unwrap()), "{report}");
    assert!(report["warnings"].to_string().contains("soft:b: its link went down"), "{report}");
}

/// The interface of the second port is taken down, and up again.
#[test]
fn a_link_that_has_come_back_is_a_warning() {
    if let Some(why) = cannot() {
        return skip::test!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [socket, out, down, up] = ["a.sock", "out", "down", "up"].map(|name| folder.path().join(name));
    let script = "
        pktgen=$1 socket=$2 out=$3 down=$4 up=$5
        \"$pktgen\" run soft:a?wire=tap:rwa soft:b?wire=tap:rwb --one-way --rate 1k --duration 60s --catch-up 1s \\
            --warm-up 0s --json --quiet --control \"$socket\" > \"$out\" &
        until [ -e \"$down\" ]; do sleep 0.05; done
        ip link set rwb down
        until [ -e \"$up\" ]; do sleep 0.05; done
        ip link set rwb up
        wait $!
    ";
    let paths = [&socket, &out, &down, &up].map(|path| path.to_str().unwrap());
    let program = [&["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_pktgen")][..], &paths].concat();
    let received = |figures: &Value| figures["directions"][0]["received"].as_u64().unwrap();
    let is_down = |figures: &Value| figures["ports"][1]["link"] == "down";
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| on_linux(&program));
        let wait = |is_so: &dyn Fn(&Value) -> bool| figures(&socket, is_so, || run.is_finished());
        let steps = || {
            wait(&|figures| received(figures) > 300)?;
            std::fs::write(&down, "").unwrap();
            let before = received(&wait(&is_down)?);
            std::fs::write(&up, "").unwrap();
            wait(&|figures| received(figures) > before + 100 && !is_down(figures))?;
            UnixStream::connect(&socket).ok()?.write_all(b"{\"do\":\"quit\"}\n").ok()
        };
        let done = steps();
        // What is over waits for nothing.
        [&down, &up].iter().for_each(|path| std::fs::write(path, "").unwrap());
        assert!(done.is_some(), "it was over before");
        run.join().unwrap()
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*said), (Some(0), ""));
    let report: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let [sent, received, lost] = ["sent", "received", "lost"].map(|field| report["directions"][0][field].as_u64());
    assert!(lost > Some(0) && sent == received.zip(lost).map(|(received, lost)| received + lost), "{report}");
    assert_eq!((&report["ports"][1]["link_downs"], &report["error"]), (&Value::from(1), &Value::Null));
    assert!(report["warnings"].to_string().contains("soft:b: its link went down"), "{report}");
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
