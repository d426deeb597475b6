//! What a driver does to the registers can be read in a file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Driver, FCTRL, Plan, STATUS, rx};
use device::Device as _;
use softnic::{Error, SoftDevice, WireError};
use std::fs;
use std::path::Path;

/// The lines of a trace that are accesses, without their times, which do not go back.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.starts_with("# register trace 1: "), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let timed = lines.map(|line| line.trim_start().split_once(' ').unwrap());
    let (times, lines): (Vec<u64>, Vec<String>) =
        timed.map(|(time, line)| (time.parse::<u64>().unwrap(), line.to_owned())).unzip();
    assert!(times.is_sorted(), "{times:?}");
    lines
}

#[test]
fn a_trace_has_each_access_in_order_and_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for (reads, wanted) in [("off", vec![]), ("on", vec!["read  0x00008 0x00080000 STATUS".to_owned()])] {
        let path = folder.path().join(reads);
        let spec = format!("traced-{reads}?trace={}&trace-reads={reads}", path.display());
        let driver = Driver::start(SoftDevice::open(&spec).unwrap(), Plan::default());
        let before = lines(&path);
        let first: Vec<_> =
            before.iter().filter(|line| line.starts_with("write")).take(3).map(|line| &**line).collect();
        let reset = ["write 0x00888 0x7fffffff EIMC", "write 0x00000 0x00000004 CTRL", "write 0x00000 0x04000008 CTRL"];
        assert_eq!(first, reset, "what a driver begins with");
        assert!(before.iter().any(|line| line == "bus-master-on"));
        driver.read(STATUS);
        driver.write(FCTRL, 0x402);
        driver.write(0x3C0C, 0);
        driver.write(rx(1, 0x18), 5);
        driver.write(0x1_F000, 1);
        driver.device.reset().unwrap();
        driver.device.set_bus_master(false).unwrap();
        let made = [
            "write 0x05080 0x00000402 FCTRL",
            "write 0x03c0c 0x00000000 RXPBSIZE[3]",
            "write 0x01058 0x00000005 RDT[1]",
            "write 0x1f000 0x00000001 ?",
            "function-reset",
        ];
        let wanted: Vec<_> = wanted.into_iter().chain(made.map(str::to_owned)).collect();
        assert_eq!(lines(&path)[before.len()..], wanted, "while the device is open");
    }
}

#[test]
fn a_virtual_function_has_names_of_its_own_and_of_the_card() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vf");
    let device = SoftDevice::open(&format!("traced-vf?id=10ed&trace={}", path.display())).unwrap();
    let driver = Driver::stopped(device, Plan::default());
    for (register, value) in [(0x000, 1 << 26), (0x2FC, 0), (0x10C, 7)] {
        driver.write(register, value);
    }
    let wanted = ["0x00000 0x04000000 VFCTRL", "0x002fc 0x00000000 VFMAILBOX", "0x0010c 0x00000007 EIMC"];
    let written: Vec<_> = lines(&path).into_iter().filter(|line| line.starts_with("write")).collect();
    assert_eq!(written, wanted.map(|line| format!("write {line}")));
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken").display().to_string();
    let open = SoftDevice::open(&format!("traced-first?trace={taken}")).unwrap();
    let error = SoftDevice::open(&format!("traced-second?trace={taken}")).unwrap_err();
    assert!(matches!(error, Error::SameFile { .. }), "{error}");
    let both = [&*format!("a?trace={taken}"), &*format!("b?wire=pcap:,{taken}")];
    assert!(matches!(softnic::check(&both), Err(Error::SameFile { .. })));
    drop(open);
    let error = SoftDevice::open(&format!("traced-third?trace={}", folder.path().display())).unwrap_err();
    assert!(error.to_string().contains("name a file"), "{error}");
    // Nothing fits there; the header does not either.
    let error = SoftDevice::open("traced-full?trace=/dev/full").unwrap_err();
    assert!(matches!(error, Error::System { operation: "write", .. }), "{error}");
}

/// Whatever holds the device that was closed.
#[test]
fn a_file_is_free_once_its_device_is_closed_and_then_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice");
    let spec = format!("traced-twice?trace={}", path.display());
    let first = SoftDevice::open(&spec).unwrap();
    let control = first.control();
    first.set_bus_master(true).unwrap();
    drop(first);
    assert_eq!(lines(&path), ["bus-master-on", "bus-master-off"]);
    let second = SoftDevice::open(&spec).unwrap();
    assert_eq!(lines(&path), [""; 0], "only of the device that is open");
    second.reset().unwrap();
    assert_eq!(lines(&path), ["function-reset"]);
    assert!(control.wire_error().is_none());
}

/// A pipe whose reader has gone: the device goes on, and says at its end what is missing.
#[test]
fn a_trace_that_ends_early_does_not_end_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let spec = format!("traced-pipe?trace={}", path.display());
    assert!(SoftDevice::open(&spec).unwrap_err().to_string().contains("reader of the pipe"));
    let reader = fs::File::options().read(true).write(true).open(&path).unwrap();
    let device = SoftDevice::open(&spec).unwrap();
    drop(reader);
    let control = device.control();
    device.set_bus_master(true).unwrap();
    device.set_bus_master(false).unwrap();
    assert!(matches!(control.wire_error(), Some(WireError::Untraced { .. })));
    drop(device);
    assert!(matches!(control.wire_error(), Some(WireError::Untraced { .. })));
}
