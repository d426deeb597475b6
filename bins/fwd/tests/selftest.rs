//! `fwd selftest` and `fwd registers` as a person runs them: what is printed, what a report has, and how they end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn fwd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fwd")).args(arguments).env_remove("RUST_LOG").output().unwrap()
}

/// Standard output and standard error, of a run that ends with this code.
#[track_caller]
fn ends(arguments: &[&str], code: i32) -> (String, String) {
    let output = fwd(arguments);
    let [out, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{error}");
    (out, error)
}

#[test]
fn a_nic_in_order_is_a_page_and_nothing_else() {
    let (page, error) = ends(&["selftest", "soft:a?id=10fb&module=sr"], 0);
    assert!(page.starts_with("soft:a (8086:10fb), MAC 02:"), "{page}");
    for line in
        ["ok              module              10GBASE-SR", "ok              frame sizes         60 to 1518 bytes"]
    {
        assert!(page.lines().any(|printed| printed.starts_with(line)), "{page}");
    }
    assert!(page.lines().last().unwrap().contains(" ok, 0 failed, "), "{page}");
    assert!(error.is_empty(), "{error}");
}

#[test]
fn a_fault_is_one_line_exit_code_1_and_a_report_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.txt");
    let (page, error) = ends(&["selftest", "soft:broken?fault=tx-frozen", "--report", file.to_str().unwrap()], 1);
    assert!(page.contains("FAILED          loop inside"), "{page}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.starts_with("fwd: soft:broken: 1 of ") && error.contains("checks failed: loop inside; attach"),
        "{error}"
    );
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains("\nFAILED: loop inside: 0 of 1 frames came back"), "{report}");
    assert!(
        report.contains("\ndevice: 8086:10f9, 82599 CX4, software NIC\nMAC: 02:") && report.contains(":xx:xx:xx\n")
    );
    assert!(!report.contains("broken") && !report.contains(folder.path().to_str().unwrap()), "{report}");
}

#[test]
fn a_nic_that_is_pulled_out_is_one_line() {
    let (page, error) = ends(&["selftest", "soft:loose?fault=removal:300"], 1);
    assert!(page.contains("gone: ") && error.lines().count() == 1, "{page}{error}");
    let (page, error) = ends(&["registers", "soft:loose?fault=removal:300"], 1);
    assert!(page.is_empty() && error.lines().count() == 1 && error.contains("gone: "), "{page}{error}");
}

#[test]
fn a_nic_that_is_not_there_and_a_report_that_cannot_be_written() {
    for command in ["selftest", "registers"] {
        let (page, error) = ends(&[command, "0000:ff:1f.7"], 1);
        assert!(page.is_empty() && error.lines().count() == 1 && error.contains("0000:ff:1f.7"), "{error}");
        let (page, error) = ends(&[command, "vfio-user:/nowhere/at/all"], 1);
        assert!(page.is_empty() && error.lines().count() == 1 && error.contains("/nowhere/at/all"), "{error}");
    }
    let (page, error) = ends(&["selftest", "soft:a", "--report", "/nowhere/at/all"], 1);
    assert!(page.is_empty() && error.contains("/nowhere/at/all: cannot write the report"), "{error}");
}

#[test]
fn registers_are_printed_by_name_and_none_is_changed() {
    let (text, _) = ends(&["registers", "soft:a"], 0);
    let words = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} in {text}")).split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words("STATUS"), "0x00008 0x00080000");
    assert_eq!(words("RXPBSIZE[0]"), "0x03c00 0x00080000", "its reset value");
    assert_eq!([words("GPRC"), words("SWSM")], ["0x04074 reading changes it", "0x10140 reading changes it"]);
}

/// The NIC is opened three times.
#[test]
fn a_traced_nic_passes_and_the_trace_is_of_its_last_start() {
    let folder = tempfile::tempdir().unwrap();
    for id in ["10fb", "x550", "10ed"] {
        let trace = folder.path().join(id);
        let (page, error) = ends(&["selftest", &format!("soft:a?id={id}&trace={}", trace.display())], 0);
        assert!(page.contains(" ok, 0 failed, ") && error.is_empty(), "{page}{error}");
        let trace = std::fs::read_to_string(&trace).unwrap();
        assert_eq!(trace.matches("# register trace 1: a 8086:").count(), 1);
        assert!(trace.contains(" RDT[0]") && trace.trim_end().ends_with("bus-master-off"), "{trace}");
    }
}

#[test]
fn a_trace_that_is_not_whole_and_a_device_that_cannot_be_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (nth, command) in [&["registers"][..], &["devices", "-v"]].into_iter().enumerate() {
        // A pipe that holds 64 KiB, which nobody reads: a page is left.
        let pipe = folder.path().join(nth.to_string());
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
        std::io::Write::write_all(&mut reader, &[0; 60 << 10]).unwrap();
        let address = format!("soft:a?trace={}&trace-reads=on", pipe.display());
        let (_, error) = ends(&[command, &[address.as_str()]].concat(), 1);
        let last = error.lines().last().unwrap();
        assert!(last.starts_with("fwd: soft:a: cannot write ") && last.contains("trace of registers ends"), "{error}");
    }
    for address in ["soft:a?wire=pcap:/nowhere/at/all", "soft:a?wire=peer:a"] {
        let [alone, run] = [&["devices", "-v", address][..], &["l2", address, "soft:b"]].map(fwd);
        let [error, expected] = [alone.stderr, run.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(alone.status.code() == run.status.code() && !alone.status.success(), "{address}: {error}{expected}");
        assert_eq!(error.lines().last(), expected.lines().last());
    }
}
