//! Every kind of bad input: one line that names object, cause and next step, and the right exit code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::process::{Command, Output};

fn fwd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fwd")).args(arguments).output().unwrap()
}

/// Runs `fwd`, expects this exit code, nothing on standard output and one line on standard error with these words.
#[track_caller]
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = fwd(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?} prints {}", String::from_utf8_lossy(&output.stdout));
    assert!(message.starts_with("fwd: ") && message.ends_with('\n'), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: no \"{word}\" in: {message}");
    }
}

#[test]
fn wrong_command_lines_end_with_2() {
    for (arguments, words) in [
        (&["l4", "soft:a", "soft:b"][..], &["l4", "fwd --help"][..]),
        (&["l3", "soft:a", "soft:b"], &["--routes", "--kernel"]),
        (&["l3", "soft:a", "--routes", "x", "--miss", "lose"], &["--miss", "drop, return"]),
        (&["l3", "soft:a", "--routes", "x", "--kernel"], &["--routes", "--kernel", "cannot be used with"]),
        (&["l3", "soft:a", "--miss", "return", "--kernel"], &["--miss", "--kernel", "cannot be used with"]),
        (&["l3", "soft:a", "--promiscuous", "--kernel"], &["--promiscuous", "--kernel", "cannot be used with"]),
        (&["l3", "soft:a", "soft:b", "--kernel=a"], &["--kernel", "1 name for 2 ports"]),
        (&["l3", "soft:a", "soft:b", "--kernel=a,b,c"], &["--kernel", "3 names for 2 ports"]),
        (&["l3", "soft:a", "soft:b", "--kernel=a,a"], &["--kernel", "a is there twice"]),
        (&["l3", "soft:a", "--kernel=much-too-long-a-name"], &["--kernel", "much-too-long-a-name", "1 to 15 bytes"]),
        (&["l3", "soft:a", "--kernel="], &["--kernel", "\"\"", "1 to 15 bytes"]),
        (&["l3", "soft:a", "soft:b", "--kernel=a,rw%d"], &["--kernel", "rw%d", "1 to 15 bytes"]),
        (&["l2"], &["PORT", "see fwd l2 --help"]),
        (&["l22", "soft:a", "soft:b"], &["'l22'", "a similar subcommand exists: 'l2'", "see fwd --help"]),
        (&["soft:a", "soft:b"], &["soft:a", "see fwd --help"]),
        (&["--routes", "x"], &["--routes", "see fwd --help"]),
        (&["--duration", "1", "l2", "soft:a", "soft:b"], &["'l2'", "--duration"]),
        (&["help", "nope"], &["nope"]),
        (&["l2", "soft:a", "soft:b", "--duraton", "5"], &["'--duraton'", "exists: '--duration'", "see fwd l2 --help"]),
        (&["l2", "soft:a", "soft:b", "--idle", "slep"], &["'slep'", "'sleep'", "see fwd l2 --help"]),
        (&["l3", "soft:a", "--route", "x"], &["'--route'", "'--routes'", "see fwd l3 --help"]),
        (&["l2", "soft:a", "soft:b", "--duration"], &["--duration <TIME>", "see fwd l2 --help"]),
        (&["l2", "soft:a", "soft:b", "--json", "--json"], &["--json", "see fwd l2 --help"]),
        (&["l2", "/tmp/a.sock", "soft:b"], &["/tmp/a.sock", "vfio-user:PATH"]),
        (&["l2", "soft:a?wire=gen?flows=3", "soft:b"], &["gen?flows=3", "gen, sink"]),
        (&["l2", "soft:a?flows=3", "soft:b"], &["flows", "wire=gen"]),
        (&["l2", "soft:a?wire=gen&rate=0", "soft:b"], &["\"0\"", "rate", "from 1 to"]),
        (&["l2", "soft:a?wire=gen&rate=1000000000000&mode=drop", "soft:b"], &["rate", "from 1 to 1000000000"]),
        (&["l2", "soft:a?wire=gen&size=10", "soft:b"], &["\"10\"", "60 to"]),
        (&["l2", "soft:a?wire=gen&flows=+3", "soft:b"], &["\"+3\"", "from 1 to"]),
        (&["l2", "soft:a\n\u{1b}[31m", "soft:b"], &["control character"]),
        (&["l2", "soft:a?mac=xx", "soft:b"], &["\"xx\"", "02:00:00:00:00:01"]),
        (&["l2", "soft:a?fault=nope", "soft:b"], &["nope", "tx-frozen"]),
        (&["l2", "soft:a?link=sideways", "soft:b"], &["sideways", "up, down"]),
        (&["l2", "vhost-user:/tmp/a?serve", "soft:b"], &["?server"]),
        (&["rxonly", "soft:a", "--tx-wait=-1"], &["--tx-wait"]),
        (&["rxonly", "soft:a", "--tx-wait", "-1"], &["'-1'", "--tx-wait", "0..=10000000"]),
        (&["l2", "soft:a?wire=peer:c", "soft:b"], &["soft:a", "c is none of the ports", "soft:c"]),
        (&["rxonly", "soft:a", "--tx-wait", "99999999"], &["99999999", "10000000"]),
        (&["rxonly", "soft:a", "--queues", "64"], &["64", "queues"]),
        (&["rxonly", "soft:a", "--queues", "2", "--lcores", "(0,0,0)"], &["--queues", "leave --queues out"]),
        (&["unbind"], &["ADDRESS", "see fwd unbind --help"]),
        (&["devices", "extra"], &["extra", "see fwd devices --help"]),
        (&["selftest"], &["<ADDRESS>", "see fwd selftest --help"]),
        (&["selftest", "eth0"], &["eth0", "0000:03:00.0", "see fwd selftest --help"]),
        (&["selftest", "soft:a?fault=nope"], &["nope", "tx-frozen"]),
        (&["selftest", "soft:a", "soft:b"], &["soft:b", "see fwd selftest --help"]),
        (&["registers"], &["<ADDRESS>", "see fwd registers --help"]),
        (&["registers", "soft:a?colour=red"], &["colour", "wire"]),
        (&["doctor", "soft:a"], &["soft:a", "0000:03:00.0", "see fwd doctor --help"]),
        (&["l2", "soft:a", "soft:b", "--colour"], &["--colour"]),
        (&["l2", "soft:a"], &["1 port", "pairs", "even number"]),
        (&["l2", "soft:a", "soft:b", "soft:c"], &["3 ports", "even number"]),
        (&["l2", "eth0", "soft:b"], &["eth0", "0000:03:00.0", "soft:NAME"]),
        (&["l2", "", "soft:b"], &["soft:NAME"]),
        (&["l2", "soft:", "soft:b"], &["without a name"]),
        (&["rxonly", "vfio-user:"], &["no socket", "vfio-user:PATH"]),
        (&["rxonly", "vhost-user:"], &["no socket", "vhost-user:PATH"]),
        (&["rxonly", "soft:a?wire=string"], &["string", "gen", "pcap:IN,OUT"]),
        (&["rxonly", "soft:a?colour=red"], &["colour", "wire"]),
        (&["rxonly", "soft:a", "--ring-size", "1000"], &["1000", "--ring-size", "power of two from 64 to 4096"]),
        (&["rxonly", "soft:a", "--ring-size", "8192"], &["8192", "power of two from 64 to 4096"]),
        (&["rxonly", "soft:a", "--batch", "0"], &["--batch", "1..=1024"]),
        (&["rxonly", "soft:a", "--queues", "65"], &["--queues", "1..=64"]),
        (&["rxonly", "soft:a", "--queues", "17"], &["17", "RSS"]),
        (&["l2", "soft:a?id=x550", "soft:b?id=x540", "--queues", "17"], &["soft:b", "17", "RSS", "16"]),
        (&["rxonly", "soft:a", "--mtu", "9217"], &["--mtu", "68..=9216"]),
        (&["rxonly", "soft:a", "--duration", "0"], &["--duration", "more than 0"]),
        (&["rxonly", "soft:a", "--duration", "-1"], &["--duration", "seconds"]),
        (&["rxonly", "soft:a", "--duration", "soon"], &["--duration", "seconds"]),
        (&["rxonly", "soft:a", "--pages", "4M"], &["--pages", "2M"]),
        (&["rxonly", "soft:a", "--lcores", "0,0,0"], &["--lcores", "(port,queue,lcore)"]),
        (&["rxonly", "soft:a", "--lcores", "(0,0,99999)"], &["lcore 99999", "does not exist", "choose from"]),
        (&["rxonly", "soft:a", "--lcores", "(1,0,0)"], &["no port 1"]),
        (&["bind", "eth0"], &["eth0", "03:00.0"]),
        (&["bind"], &["ADDRESS"]),
        (&["doctor", "eth0"], &["eth0", "03:00.0"]),
        (&["l2", "soft:a", "soft:a"], &["soft:a", "named twice", "different ports"]),
    ] {
        refused(arguments, 2, words);
    }
}

#[test]
fn what_cannot_be_done_ends_with_1() {
    for (arguments, words) in [
        (&["rxonly", "fffe:ff:1f.7"][..], &["fffe:ff:1f.7", "no PCI device"][..]),
        (&["l3", "soft:a", "--routes", "/nonexistent/routes"], &["/nonexistent/routes", "No such file", "name a file"]),
        (&["l3", "soft:a", "--routes", "/"], &["routes /", "cannot read"]),
        (&["l3", "soft:a", "--routes", "/proc/self/comm"], &["/proc/self/comm", "line 1, column 4", "PREFIX via MAC"]),
        (&["l3", "soft:a", "--kernel=lo"], &["--kernel"]),
        (&["doctor", "fffe:ff:1f.7"], &["fffe:ff:1f.7", "no PCI device"]),
        (&["bind", "fffe:ff:1f.7"], &["fffe:ff:1f.7", "no PCI device"]),
        (&["unbind", "fffe:ff:1f.7"], &["fffe:ff:1f.7", "no PCI device"]),
        (&["rxonly", "soft:a?wire=pcap:/nonexistent/in.pcap,"], &["/nonexistent/in.pcap", "No such file"]),
        (&["rxonly", "soft:a?fault=stuck-reset"], &["soft:a", "gave up waiting"]),
        (
            &["rxonly", "vfio-user:/nonexistent/a.sock"],
            &["vfio-user:/nonexistent/a.sock", "No such file", "start the device"],
        ),
        (&["rxonly", "vhost-user:/nonexistent/a.sock"], &["vhost-user:/nonexistent/a.sock", "start the back end"]),
        (&["rxonly", "vhost-user:/nonexistent/a.sock?server"], &["/nonexistent/a.sock", "folder"]),
        // A folder that every user may write to: others are refused for that.
        (&["rxonly", "vfio-user:/tmp"], &["vfio-user:/tmp", "non-socket", "it must be the Unix socket"]),
        (&["rxonly", "vhost-user:/tmp"], &["vhost-user:/tmp", "non-socket", "it must be the Unix socket"]),
        (&["bind", "fffe:ff:1f.7", "--driver", "nope"], &["fffe:ff:1f.7", "no PCI device"]),
    ] {
        refused(arguments, 1, words);
    }
}

#[test]
fn a_device_that_no_driver_knows_is_refused_by_name() {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let foreign = devices
        .map(|entry| entry.path())
        .find(|path| std::fs::read_to_string(path.join("vendor")).is_ok_and(|vendor| vendor.trim() != "0x8086"));
    let Some(path) = foreign else {
        return skip::test!("this host has no PCI device of another maker than Intel");
    };
    let address = path.file_name().unwrap().to_str().unwrap();
    refused(&["rxonly", address], 1, &[address, "choose a device for which fwd devices names a driver"]);
    refused(
        &["rxonly", address, "--unsafe-no-iommu"],
        1,
        &[address, "choose a device for which fwd devices names a driver"],
    );
}

#[test]
fn too_few_huge_pages_are_refused_with_the_way_to_reserve_them() {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages");
    match free.as_deref().map(str::trim) {
        Ok("0") => refused(&["rxonly", "soft:a", "--pages", "1G"], 1, &["1 GiB", "0 of 1", "reserve with"]),
        Ok(free) => skip::test!("{free} huge pages of 1 GiB are free"),
        Err(_) => skip::test!("this processor has no pages of 1 GiB"),
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    for arguments in [&["--help"][..], &["l2", "--help"], &["--version"]] {
        let output = fwd(arguments);
        assert!(output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty(), "{arguments:?}");
    }
}

/// A software NIC is on no bus, but shows what it is when it is named.
#[test]
fn devices_that_are_named_are_shown() {
    let soft = "soft:shown?id=10fb&module=sr";
    let shown = fwd(&["devices", "--verbose", soft]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains(soft) && text.contains("10GBASE-SR"), "{text}");
    let report = fwd(&["devices", "--verbose", "--json", soft]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let devices = report["devices"].as_array().unwrap();
    assert_eq!((devices.len(), devices[0]["address"].as_str()), (1, Some(soft)));
    let refused = fwd(&["devices", soft]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && error.contains("add --verbose"), "{error}");
}

/// Of each card its parts, its queues and how far RSS reaches (82599 datasheet 7.1.2.8).
#[test]
fn devices_that_are_named_say_what_they_have() {
    for (id, lines) in [
        ("10f9", &["PAUSE obeyed, not sent", "RSS reaches 16 queues by a table of 128"][..]),
        ("10fb&module=none", &["module none", "RSS reaches 16 queues by a table of 128"]),
        ("x540", &["PHY 0x", "firmware not told", "RSS reaches 16 queues by a table of 128"]),
        ("x550", &["PHY 0x", "PAUSE obeyed, not sent", "RSS reaches 64 queues by a table of 512"]),
        (
            "1515",
            &["physical function API 1.3, 4 + 4 queues, lets in frames for others if asked to", "RSS no say in it"],
        ),
    ] {
        let shown = fwd(&["devices", "--verbose", &format!("soft:has?id={id}")]);
        let text = String::from_utf8(shown.stdout).unwrap();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.iter().for_each(|line| assert!(words.contains(line), "{id}: {line} in {text}"));
    }
}

/// Linux's default: frames from other addresses are dropped behind the function, which does not count them.
#[test]
fn a_function_that_is_not_trusted_says_what_it_may_lose() {
    for (trust, is_told) in [("off", true), ("on", false)] {
        let ports = ["a", "b"].map(|name| format!("soft:{name}?id=10ed&trust={trust}"));
        let run = fwd(&["l2", &ports[0], &ports[1], "--duration", "0.1", "--quiet"]);
        let said = String::from_utf8(run.stderr).unwrap();
        let words =
            "not trusted: the physical function lets in no more than groups asked for, and may drop, without a count";
        assert_eq!((run.status.code(), said.matches(words).count()), (Some(0), if is_told { 2 } else { 0 }), "{said}");
    }
}

#[test]
fn devices_as_json_are_those_of_the_table() {
    if !std::path::Path::new("/sys/bus/pci/devices").exists() {
        return skip::test!("this host has no PCI bus");
    }
    let output = fwd(&["devices", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = String::from_utf8(fwd(&["devices"]).stdout).unwrap();
    for device in report["devices"].as_array().unwrap() {
        assert!(table.contains(device["address"].as_str().unwrap()) && table.contains(device["ids"].as_str().unwrap()));
        assert_eq!(device["usable"] == true, device["reason"].is_null(), "{device}");
    }
}

#[test]
fn too_few_files_are_named_as_such() {
    // Every limit below what a run takes; the lowest do not let the program start at all.
    for limit in 6..14 {
        let script =
            format!("ulimit -n {limit} && exec '{}' rxonly soft:a --duration 0.1 --quiet", env!("CARGO_BIN_EXE_fwd"));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        let said = message.contains("ulimit -n") && message.lines().count() == 1;
        assert!(output.status.success() || said, "limit {limit}: {message}");
        assert!(!message.contains("free memory"), "limit {limit}: {message}");
    }
}

#[test]
fn routes_that_memory_does_not_suffice_for_are_refused_in_one_line() {
    let mut text = String::new();
    for nth in 0..1_000_000_u32 {
        let address = std::net::Ipv4Addr::from(0x1000_0000 + nth);
        writeln!(text, "{address}/32 via 02:00:00:00:00:02 port 1").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes");
    std::fs::write(&path, &text).unwrap();
    // Its text alone takes this much.
    let limit = text.len() / 1024;
    let script = format!("ulimit -v {limit} && exec \"$0\" l3 --routes \"$1\" soft:a soft:b --duration 0.1 --quiet");
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_fwd")]).arg(&path).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("out of memory; allow this process more"), "{message}");
}

#[test]
fn a_routes_file_is_not_written_over_however_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = "10.0.0.0/8 via 02:00:00:00:00:02 port 1\n";
    std::fs::write(path("routes"), text).unwrap();
    std::fs::hard_link(path("routes"), path("hard")).unwrap();
    std::os::unix::fs::symlink(path("routes"), path("soft")).unwrap();
    std::fs::write(path("other"), "").unwrap();
    for routes in ["routes", "hard", "soft"] {
        for output in ["routes", "hard", "soft", "./routes"] {
            let (routes, output) = (path(routes), path(output));
            let port = format!("soft:b?link=up&wire=pcap:,{output}&id=10fb");
            let arguments = ["l3", "--routes", &routes, "soft:a?wire=gen&count=9", &port, "--duration", "1"];
            refused(&arguments, 1, &["soft:b: ", &output, &routes, "routes file", "name a file of its own"]);
            assert_eq!(std::fs::read_to_string(path("routes")).unwrap(), text, "{output}");
        }
    }
    // Another file that exists, and one that comes to be, are written.
    for output in [path("other"), path("new"), "/dev/null".to_owned()] {
        let (routes, port) = (path("routes"), format!("soft:b?wire=pcap:,{output}"));
        let done = fwd(&["l3", "--routes", &routes, "soft:a?wire=gen&count=9", &port, "--exit-when-idle", "--quiet"]);
        assert!(done.status.success(), "{output}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert!(std::fs::metadata(path("new")).unwrap().len() >= 24);
}

#[test]
fn more_memory_than_a_file_may_hold_is_said_to_be_a_limit() {
    let script = format!("ulimit -f 100 && exec '{}' rxonly soft:a --duration 0.1", env!("CARGO_BIN_EXE_fwd"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("ulimit -f") && message.lines().count() == 1, "{message}");
    assert!(!message.contains("free memory"), "{message}");
}

#[test]
fn devices_lists_or_says_that_there_are_none() {
    let output = fwd(&["devices"]);
    let text = String::from_utf8(output.stdout).unwrap();
    if std::path::Path::new("/sys/bus/pci/devices").exists() {
        assert!(output.status.success());
        assert!(
            text.contains("address") && text.contains("usable") || text.contains("No network controllers"),
            "{text}"
        );
    } else {
        skip::test!("the table of devices (this host has no PCI bus)");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn doctor_answers_with_an_exit_code_that_fits() {
    let output = fwd(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let count = |verdict: &str| findings.iter().filter(|finding| finding["verdict"] == verdict).count();
    assert_eq!(report["breaks"], count("breaks"));
    assert_eq!(report["costs"], count("costs"));
    assert_eq!(report["unknown"], count("unknown"));
    assert_eq!(report["ready"], count("breaks") == 0);
    for finding in findings {
        let troubled = finding["verdict"] == "breaks" || finding["verdict"] == "costs";
        assert_eq!(troubled, !finding["effect"].as_str().unwrap().is_empty(), "{finding}");
        assert!(!finding["check"].as_str().unwrap().is_empty() && !finding["what"].as_str().unwrap().is_empty());
    }
    let message = String::from_utf8(output.stderr).unwrap();
    if report["ready"] == true {
        assert!(output.status.success() && message.is_empty(), "{message}");
    } else {
        assert_eq!(output.status.code(), Some(1));
        assert!(message.starts_with("fwd: this host: ") && message.lines().count() == 1, "{message}");
    }

    let plain = fwd(&["doctor"]);
    assert_eq!(plain.status.code(), output.status.code());
    let text = String::from_utf8(plain.stdout).unwrap();
    assert!(text.contains("iommu: ") && text.contains("huge pages: ") && !text.contains('\x1b'), "{text}");
}

#[test]
fn doctor_of_a_device_without_a_driver_says_so() {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let other = devices.map(|entry| entry.path()).find(|path| {
        let class = std::fs::read_to_string(path.join("class")).unwrap_or_default();
        !class.is_empty() && !class.starts_with("0x02")
    });
    let Some(path) = other else { return skip::test!("this host has no PCI device but network cards") };
    let address = path.file_name().unwrap().to_str().unwrap();
    let output = fwd(&["doctor", address]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(address) && text.contains("Ringway cannot drive it"), "{text}");
}
