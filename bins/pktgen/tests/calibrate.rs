//! What `pktgen calibrate` leaves in its file, on software NICs.

use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of it takes on any machine.
const LIMIT: Duration = Duration::from_secs(60);

fn calibrate(file: &Path, ports: [&str; 2], duration: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.args(["calibrate", ports[0], ports[1], "--one-way", "--rates", "1k", "--sizes", "60"]);
    command.args(["--warm-up", "0s", "--duration", duration, "--output"]).arg(file);
    command
}

#[track_caller]
fn refused(output: &Output, words: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(words) && message.lines().count() == 1, "{message}");
}

const PAIR: [&str; 2] = ["soft:a?wire=peer:b", "soft:b"];

#[test]
fn a_file_is_replaced_by_what_is_whole_or_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link] = ["floors.json", "link"].map(|name| folder.path().join(name));
    std::fs::write(&file, "of before").unwrap();
    symlink(&file, &link).unwrap();
    let is_untouched = || {
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        (std::fs::read_to_string(&file).unwrap(), files) == ("of before".to_owned(), 2)
    };
    // A port that is not there.
    refused(&calibrate(&file, ["soft:a", "fffe:ff:1f.7"], "50ms").output().unwrap(), "floors.json is as it was");
    assert!(is_untouched());

    // A signal, once it is caught.
    let mut child = calibrate(&file, PAIR, "600s").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (begun, status) = (Instant::now(), format!("/proc/{}/status", child.id()));
    let catches = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // SIGTERM, which comes after all that catches SIGINT.
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 14 != 0
    };
    while !catches() {
        assert!(begun.elapsed() < LIMIT, "it catches no signals");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    refused(&child.wait_with_output().unwrap(), "floors.json is as it was");
    assert!(is_untouched());

    // By its link, which stays.
    let output = calibrate(&link, PAIR, "50ms").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap().contains("offered_pps"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn what_cannot_be_written_is_printed_all_the_same() {
    for (option, words) in [(&[][..], "due p50 us"), (&["--json"], "latency_from_due_ns")] {
        let output = calibrate(Path::new("/dev/full"), PAIR, "50ms").args(option).output().unwrap();
        refused(&output, "--output /dev/full: cannot be written");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(words) && !said.contains("subtracts nothing"), "{said}");
    }
}
