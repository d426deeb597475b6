//! Captures that cannot be written, or that are two things at once.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, Plan, frame};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softnic::{SoftDevice, WireError};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::yield_now();
    }
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Opens the reading end as soon as there is a writer, as `tcpdump -r FIFO` does.
fn reader(path: &Path) -> std::thread::JoinHandle<File> {
    let path = path.to_owned();
    std::thread::spawn(move || File::open(path).unwrap())
}

fn open_eventually(spec: &str) -> SoftDevice {
    let mut device = None;
    until("the reader", || {
        device = SoftDevice::open(spec).ok();
        device.is_some()
    });
    device.unwrap()
}

#[test]
fn a_pipe_that_is_closed_is_lost_output_with_a_cause_and_a_count() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("out.fifo");
    fifo(&pipe);
    let spec = format!("closed?wire=pcap:,{}", pipe.display());
    let error = SoftDevice::open(&spec).unwrap_err().to_string();
    assert!(error.contains("out.fifo") && error.contains("start the reader"), "{error}");
    let reading = reader(&pipe);
    let mut driver = Driver::start(open_eventually(&spec), Plan { descriptors: 64, ..Plan::default() });
    let mut read_end = reading.join().unwrap();
    driver.send(0, &frame(BROADCAST, 60, 0));
    until("transmission", || driver.device.transmit_idle());
    assert_eq!(driver.device.wire_error(), None);
    let mut bytes = [0; 24 + 16 + 60];
    read_end.read_exact(&mut bytes).unwrap();
    drop(read_end);
    for number in 0..10 {
        driver.send(0, &frame(BROADCAST, 60, number));
    }
    // Nobody looks at the wire before the end: the loss is known all the same.
    until("the ring", || driver.device.wire_counters().sent == 11);
    let control = driver.device.control();
    drop(driver);
    let error = control.wire_error().unwrap();
    assert!(matches!(error, WireError::Lost { frames: 10, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("out.fifo") && text.contains("Broken pipe") && text.contains("10 sent frames"), "{text}");
}

/// The lengths of a capture's records, all of which are whole.
fn records(path: &Path) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut found) = (&bytes[24..], Vec::new());
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap());
        found.push(length);
        rest = &rest[16 + length as usize..];
    }
    found
}

#[test]
fn frames_in_a_full_file_and_frames_lost_are_those_that_were_sent() {
    // The limit of a process goes for all its tests, and a disk that is full takes root: this program once more, alone.
    if std::env::var_os(CHILD).is_some() {
        return fill_a_file();
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "frames_in_a_full_file_and_frames_lost_are_those_that_were_sent";
    let script = "trap '' XFSZ; exec \"$0\" --exact --nocapture \"$1\"";
    let mut child = std::process::Command::new("sh");
    child.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(test).env(CHILD, dir.path());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(FILLED), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

const CHILD: &str = "RINGWAY_TEST_FULL_FILE";
const FILLED: &str = "the file was filled";

/// Sends more than a file may hold.
fn fill_a_file() {
    let path = Path::new(&std::env::var_os(CHILD).unwrap()).join("full.pcap");
    let spec = format!("full?wire=pcap:,{}", path.display());
    let mut driver = Driver::start(SoftDevice::open(&spec).unwrap(), Plan { descriptors: 64, ..Plan::default() });
    // Only now, as the driver's memory is a file too.
    let limit = Rlimit { current: Some(1 << 16), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).unwrap();
    let sent = 1000_u16;
    for number in 0..sent {
        driver.send(0, &frame(BROADCAST, 60 + usize::from(number % 200), 1));
        until("transmission", || driver.device.wire_counters().sent == u64::from(number) + 1);
    }
    until("the end", || driver.device.transmit_idle());
    let control = driver.device.control();
    drop(driver);
    let counters = control.wire_counters();
    let Some(WireError::Lost { frames, .. }) = control.wire_error() else { panic!("nothing is lost") };
    let found = records(&path);
    assert!(!found.is_empty() && frames != 0);
    assert_eq!((found.len() as u64 + frames, counters.lost), (counters.sent, 0));
    assert_eq!(counters.sent, u64::from(sent));
    let expected: Vec<_> = (0..sent).map(|number| 60 + u32::from(number % 200)).take(found.len()).collect();
    assert_eq!(found, expected, "the first ones, whole");
    println!("{FILLED}");
}

#[test]
fn only_of_a_pipe_is_it_said_that_it_lacks_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = SoftDevice::open(&format!("socket?wire=pcap:,{}", socket.display())).unwrap_err().to_string();
    assert!(error.contains("a.sock") && error.contains("name a file or a pipe"), "{error}");
    assert!(!error.contains("reader"), "{error}");
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_its_own_device_only() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("out.fifo");
    fifo(&pipe);
    let reading = reader(&pipe);
    let spec = format!("stalled?wire=pcap:,{}", pipe.display());
    let mut driver = Driver::start(open_eventually(&spec), Plan { descriptors: 1024, ..Plan::default() });
    let read_end = reading.join().unwrap();
    // More than a pipe and the buffer hold.
    for number in 0..250 {
        driver.send(0, &frame(BROADCAST, 1500, number));
    }
    let taken = || driver.device.wire_counters().sent;
    until("a full pipe", || taken() > 40);
    // Another device of the same engine goes on.
    let mut other = Driver::start(SoftDevice::open("lively?wire=loop").unwrap(), Plan::default());
    for number in 0..5 {
        other.send(0, &frame(BROADCAST, 60, number));
        until("the frame", || other.receive(0).is_some());
    }
    assert!(!driver.device.transmit_idle());
    assert!(taken() < 250);
    let control = driver.device.control();
    drop(driver);
    let text = control.wire_error().unwrap().to_string();
    assert!(text.contains("takes nothing"), "{text}");
    drop(read_end);
}

#[test]
fn a_file_is_not_input_and_output_at_once_however_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let precious = [&0xA1B2_C3D4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 4, 0, 1, 0, 0, 0]].concat();
    std::fs::write(path("in"), &precious).unwrap();
    symlink(path("in"), path("soft-link")).unwrap();
    std::fs::hard_link(path("in"), path("hard-link")).unwrap();
    let (input, name) = (path("in").display().to_string(), "same");
    let refused = |spec: &str, words: [&str; 2]| {
        let error = SoftDevice::open(spec).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)) && error.lines().count() == 1, "{spec}: {error}");
    };
    for output in ["in", "soft-link", "hard-link"] {
        let output = path(output).display().to_string();
        refused(&format!("{name}?wire=pcap:{input},{output}"), [&input, &output]);
        assert_eq!(std::fs::read(path("in")).unwrap(), precious, "not emptied");
    }
    // Between two devices: one output twice, and an output that another reads.
    let output = path("out").display().to_string();
    let reading = SoftDevice::open(&format!("reads?wire=pcap:{input},{output}")).unwrap();
    refused(&format!("{name}?wire=pcap:,{output}"), ["out", "written already"]);
    refused(&format!("{name}?wire=pcap:,{input}"), ["in", "read already"]);
    refused(&format!("{name}?wire=pcap:{output},"), ["out", "written already"]);
    let again = SoftDevice::open(&format!("{name}?wire=pcap:{input},/dev/null")).unwrap();
    let null = SoftDevice::open("null?wire=pcap:,/dev/null").unwrap();
    drop((reading, again, null));
    SoftDevice::open(&format!("{name}?wire=pcap:,{output}")).unwrap();
    refused(&format!("{name}?wire=pcap:,"), ["pcap:", "pcap:IN,OUT"]);
    refused(&format!("{name}?wire=pcap:,/dev/full"), ["/dev/full", "No space"]);
}

#[test]
fn captures_that_clash_are_found_before_a_file_is_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("in"), "precious").unwrap();
    symlink(path("in"), path("link")).unwrap();
    let refused = |specs: &[&str], words: &str| {
        let error = softnic::check(specs).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{specs:?}: {error}");
        assert_eq!(std::fs::read(path("in")).unwrap(), b"precious");
    };
    let [reads, writes, linked] = [
        format!("a?wire=pcap:{},", path("in")),
        format!("b?wire=pcap:,{}", path("in")),
        format!("c?wire=pcap:,{}", path("link")),
    ];
    refused(&[&writes, &reads], "to be read too");
    refused(&[&reads, &writes], "to be read too");
    refused(&[&linked, &reads], "to be read too");
    refused(&[&writes, &linked], "to be written elsewhere too");
    refused(&[&writes, "d?wire=gen&size=1"], "size");
    softnic::check(&[&reads, &reads, "e?wire=pcap:,/dev/null", "f?wire=pcap:,/dev/null"]).unwrap();
    softnic::check(&[&format!("a?wire=pcap:{},{}", path("none"), path("neither"))]).unwrap();
}

#[test]
fn a_capture_that_another_program_has_locked_is_left_alone() {
    use rustix::fs::{FlockOperation, flock};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture");
    std::fs::write(&path, "precious").unwrap();
    let spec = format!("locked?wire=pcap:,{}", path.display());
    // A lock is of an open file, not of a process, so this is like another's.
    let others = File::open(&path).unwrap();
    for lock in [FlockOperation::LockShared, FlockOperation::LockExclusive] {
        flock(&others, lock).unwrap();
        let error = SoftDevice::open(&spec).unwrap_err().to_string();
        assert!(error.contains("another process has it open"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
    drop(others);
    SoftDevice::open(&spec).unwrap();
}

#[test]
fn a_capture_that_is_deleted_meanwhile_is_lost_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture");
    let device = SoftDevice::open(&format!("deleted?wire=pcap:,{}", path.display())).unwrap();
    let mut driver = Driver::start(device, Plan::default());
    driver.send(0, &frame(BROADCAST, 60, 0));
    until("transmission", || driver.device.transmit_idle());
    std::fs::remove_file(&path).unwrap();
    let control = driver.device.control();
    drop(driver);
    let error = control.wire_error().unwrap();
    assert!(matches!(error, WireError::Lost { frames: 1, .. }) && error.to_string().contains("deleted"), "{error}");
}

#[test]
fn a_capture_whose_length_somebody_changes_is_lost_output() {
    let dir = tempfile::tempdir().unwrap();
    // Cut; cut and made longer again; made longer. At the end, or before more is written, which makes it longer too.
    for lengths in [&[0][..], &[0, 1 << 20], &[1 << 20]] {
        for more in [0, 100] {
            let path = dir.path().join("capture");
            let device = SoftDevice::open(&format!("cut?wire=pcap:,{}", path.display())).unwrap();
            let mut driver = Driver::start(device, Plan { descriptors: 1024, ..Plan::default() });
            driver.send(0, &frame(BROADCAST, 60, 0));
            until("transmission", || driver.device.transmit_idle());
            let others = File::options().write(true).open(&path).unwrap();
            lengths.iter().for_each(|length| others.set_len(*length).unwrap());
            for number in 0..more {
                driver.send(0, &frame(BROADCAST, 1500, number));
            }
            until("transmission", || driver.device.transmit_idle());
            let control = driver.device.control();
            drop(driver);
            let Some(error) = control.wire_error() else { panic!("{lengths:?}, {more} more: nothing is lost") };
            let WireError::Lost { frames, .. } = error else { panic!("{error}") };
            assert_eq!(frames, u64::from(more) + 1, "{error}");
            assert!(error.to_string().contains("somebody changed it meanwhile"), "{error}");
        }
    }
}

#[test]
fn pipes_that_nobody_reads_end_within_one_second_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut stuck: Vec<_> = (0..8)
        .map(|number| {
            let pipe = dir.path().join(number.to_string());
            fifo(&pipe);
            let reading = reader(&pipe);
            let device = open_eventually(&format!("stuck{number}?wire=pcap:,{}", pipe.display()));
            let mut driver = Driver::start(device, Plan { descriptors: 1024, ..Plan::default() });
            for number in 0..250 {
                driver.send(0, &frame(BROADCAST, 1500, number));
            }
            until("a full pipe", || driver.device.wire_counters().sent > 40);
            (driver, reading.join().unwrap())
        })
        .collect();
    let begun = Instant::now();
    let controls: Vec<_> = stuck.drain(..).map(|(driver, _)| driver.device.control()).collect();
    // Eight seconds one by one.
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(controls.iter().all(|control| control.wire_error().is_some()));
}

/// A pcapng file of a section, an interface, and blocks of 16 MiB that hold nothing; hardly any of it is on the disk.
fn barren(path: &Path, blocks: u64) {
    use std::os::unix::fs::FileExt as _;
    const LENGTH: u32 = (1 << 24) - 4;
    const BLOCK: u64 = LENGTH as u64;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let start = words(&[0x0A0D_0D0A, 28, 0x1A2B_3C4D, 1, u32::MAX, u32::MAX, 28, 1, 20, 1, 0, 20]);
    let file = File::create(path).unwrap();
    file.write_all_at(&start, 0).unwrap();
    let first = start.len() as u64;
    for block in 0..blocks {
        let at = first + block * BLOCK;
        file.write_all_at(&words(&[0xBAD, LENGTH]), at).unwrap();
        file.write_all_at(&words(&[LENGTH]), at + BLOCK - 4).unwrap();
    }
    let packet = [&words(&[6, 92, 0, 0, 0, 60, 60])[..], &[0; 60], &words(&[92])].concat();
    file.write_all_at(&packet, first + blocks * BLOCK).unwrap();
}

#[test]
fn a_capture_with_much_between_its_frames_is_read_and_with_too_much_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    let spec = format!("barren?wire=pcap:{},", path.display());
    barren(&path, 3);
    let mut driver = Driver::start(SoftDevice::open(&spec).unwrap(), Plan::default());
    until("the frame", || driver.receive(0).is_some());
    until("the end", || driver.device.source_finished());
    assert_eq!(driver.device.wire_error(), None);
    drop(driver);
    barren(&path, 2000);
    let error = SoftDevice::open(&spec).unwrap_err().to_string();
    assert!(error.contains("64 MiB without a frame"), "{error}");
}
