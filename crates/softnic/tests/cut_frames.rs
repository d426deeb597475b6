//! Frames of which less was captured than there was. A program of its own, as the log is of the process.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod common;
mod log;

use common::{BROADCAST, Driver, Plan, frame};
use log::{Log, lines};
use softnic::SoftDevice;
use std::path::Path;
use std::time::{Duration, Instant};

/// A classic capture: link type, then records with the length that each had before it was captured.
fn write_capture(path: &Path, link: u32, records: &[(&[u8], usize)]) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut bytes = words(&[0xA1B2_C3D4, 4 << 16 | 2, 0, 0, 262_144, link]);
    for (captured, original) in records {
        bytes.extend(words(&[1, 2, captured.len() as u32, *original as u32]));
        bytes.extend_from_slice(captured);
    }
    std::fs::write(path, bytes).unwrap();
}

fn receive_all(path: &Path, count: usize) -> Vec<Vec<u8>> {
    let device = SoftDevice::open(&format!("cut?wire=pcap:{},", path.display())).unwrap();
    let mut driver = Driver::start(device, Plan::default());
    let (begun, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} of {count} frames", frames.len());
        frames.extend(driver.receive(0).map(|received| received.bytes));
    }
    frames
}

#[test]
fn frames_that_were_cut_are_sent_as_they_are_and_told_of_once_for_each_file() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let told = |name: &str| lines(&path(name).display().to_string());
    let whole = frame(BROADCAST, 96, 1);

    write_capture(&path("whole"), 1, &[(&whole, 96), (&whole, 96)]);
    assert_eq!(receive_all(&path("whole"), 2), [&whole[..], &whole]);
    assert_eq!(told("whole"), [""; 0]);

    write_capture(&path("snapped"), 1, &[(&whole, 96), (&whole[..64], 96), (&whole[..68], 1514)]);
    assert_eq!(receive_all(&path("snapped"), 3), [&whole, &whole[..64], &whole[..68]]);
    let said = told("snapped");
    assert!(said.len() == 1 && said[0].contains("the first to 64 of 96 bytes"), "{said:?}");

    // With an FCS of 4 bytes: there, cut in half, cut off, and cut off with a byte of the frame.
    write_capture(&path("fcs"), 0x2400_0001, &[(&whole, 96), (&whole[..94], 96), (&whole[..92], 96)]);
    assert_eq!(receive_all(&path("fcs"), 3), [&whole[..92]; 3]);
    assert_eq!(told("fcs"), [""; 0]);
    write_capture(&path("more"), 0x2400_0001, &[(&whole[..91], 96)]);
    assert_eq!(receive_all(&path("more"), 1), [&whole[..91]]);
    let said = told("more");
    assert!(said.len() == 1 && said[0].contains("the first to 91 of 92 bytes"), "{said:?}");
}
