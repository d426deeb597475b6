//! `pktgen` against itself over capture files, and against a reader of our own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = pktgen(&[arguments, &["--json", "--quiet"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Header and records (with their headers) of a capture.
fn records(path: &Path) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = std::fs::read(path).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while !rest.is_empty() {
        let len = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        records.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    (header.to_vec(), records)
}

fn ones_complement_sum(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn frames_are_numbered_and_valid_and_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    let name = capture.to_str().unwrap();
    let sent =
        report(&["tx", &format!("soft:a?wire=pcap:,{name}&mac=02:00:00:00:00:aa"), "--count", "5000", "--size", "128"]);
    assert_eq!((&sent["mode"], &sent["sent"]), (&Value::from("tx"), &Value::from(5000)));
    assert_eq!(sent["ports"][0]["tx_bytes"], 5000 * 128);
    assert_eq!(sent["drops"], serde_json::json!({}));

    let (header, records) = records(&capture);
    assert_eq!(records.len(), 5000);
    for (number, record) in records.iter().enumerate() {
        let frame = &record[16..];
        assert_eq!(frame.len(), 128);
        assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 0xaa]);
        assert_eq!(frame[12..14], [0x08, 0x00]);
        assert_eq!(ones_complement_sum(&frame[14..34]), 0xffff, "IPv4 header checksum");
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), 114, "total length");
        assert_eq!(frame[23], 17, "UDP");
        assert_eq!(u16::from_be_bytes([frame[38], frame[39]]), 94, "UDP length");
        assert_eq!(frame[40..42], [0, 0], "no UDP checksum");
        assert_eq!(u64::from_be_bytes(frame[50..58].try_into().unwrap()), number as u64);
    }

    let verdict = |changed: &[Vec<u8>]| {
        let path = folder.path().join("changed.pcap");
        std::fs::write(&path, [&header[..], &changed.concat()].concat()).unwrap();
        let received = report(&["rx", &format!("soft:b?wire=pcap:{},", path.display()), "--exit-when-idle"]);
        assert_eq!(received["received"], changed.len());
        assert_eq!(received["streams"].as_array().unwrap().len(), 1);
        let numbers = &received["numbered"];
        ["received", "lost", "reordered", "duplicates"].map(|field| numbers[field].as_u64().unwrap())
    };
    assert_eq!(verdict(&records), [5000, 0, 0, 0]);
    let mut changed = records.clone();
    changed.swap(100, 103);
    changed.remove(1000);
    changed.insert(2000, records[1999].clone());
    // After the exchange 101, 102 and 100 come after a higher number.
    assert_eq!(verdict(&changed), [4999, 1, 3, 1]);
}

#[test]
fn frames_of_others_are_foreign() {
    let received = report(&["rx", "soft:a?wire=gen&count=3000&size=60-1514", "--exit-when-idle"]);
    assert_eq!((&received["foreign"], &received["consumed"]), (&Value::from(3000), &Value::from(3000)));
    assert_eq!(received["numbered"]["received"], 0);
}

#[test]
fn the_rate_is_kept_over_the_whole_run() {
    // Never ahead of the clock: the last of 2000 frames is due after a second. How far behind depends on the machine.
    let begun = Instant::now();
    let sent = report(&["tx", "soft:a", "soft:b", "--rate", "2000", "--count", "2000"]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs_f64(1999.0 / 2000.0), "{took:?}");
    for port in sent["ports"].as_array().unwrap() {
        assert_eq!(port["tx_packets"], 2000);
        assert_eq!(
            port["tx_queues"],
            serde_json::json!([{"queue": 0, "packets": 2000, "bytes": 120_000, "dropped": 0}])
        );
        assert_eq!(port["rx_queues"], serde_json::json!([]));
    }
}

#[test]
fn flows_take_turns_on_their_way_to_the_next_hop() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    let port = format!("soft:a?wire=pcap:,{}", capture.display());
    let options = ["--dst-mac", "02:00:5e:10:00:fe", "--dst-ip", "192.0.2.7", "--flows", "300", "--count", "1000"];
    report(&[&["tx", &port], &options[..]].concat());
    let (_, records) = records(&capture);
    assert_eq!(records.len(), 1000);
    for (number, record) in records.iter().enumerate() {
        let frame = &record[16..];
        assert_eq!(frame[..6], [2, 0, 0x5e, 0x10, 0, 0xfe]);
        assert_eq!(frame[30..34], [192, 0, 2, 7]);
        let source = u16::try_from(number % 300 + 1).unwrap().to_be_bytes();
        assert_eq!(frame[26..30], [198, 18, source[0], source[1]]);
        assert_eq!(ones_complement_sum(&frame[14..34]), 0xffff, "IPv4 header checksum");
        assert_eq!(u64::from_be_bytes(frame[50..58].try_into().unwrap()), number as u64);
    }
}

/// Runs `pktgen`, expects code 1, and returns the last line on standard error.
#[track_caller]
fn failure(arguments: &[&str]) -> String {
    let output = pktgen(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
    message.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_link_that_stays_down_is_an_error() {
    let message = failure(&["tx", "soft:a?link=down", "--count", "5"]);
    assert!(message.starts_with("pktgen: soft:a: the link is down") && message.contains("plug in"), "{message}");
}

#[test]
fn frames_that_were_not_sent_are_an_error() {
    let message = failure(&["tx", "soft:a?fault=tx-frozen", "--count", "100"]);
    assert!(message.starts_with("pktgen: 100 frames of --count not sent"), "{message}");
}

#[test]
fn bad_input_is_one_line() {
    for (arguments, code, words) in [
        (&[][..], 2, "pktgen --help"),
        (&["tx"], 2, "PORT"),
        (&["tx"], 2, "see pktgen tx --help"),
        (&["rxx", "soft:a"], 2, "'rx'"),
        (&["tx", "soft:a", "--lcores", "(0,0,0)"], 2, "--lcores"),
        (&["tx", "soft:a", "--dst-mac", "2:0:0:0:0:1"], 2, "six hexadecimal bytes"),
        (&["tx", "soft:a", "--dst-ip", "::1"], 2, "--dst-ip"),
        (&["tx", "soft:a", "--flows", "0"], 2, "1..=65534"),
        (&["tx", "soft:a", "--ratee", "5"], 2, "'--rate'"),
        (&["rx", "soft:a", "--count", "5"], 2, "see pktgen rx --help"),
        (&["tx", "eth0"], 2, "soft:NAME"),
        (&["tx", "soft:a", "--size", "59"], 2, "60..=1514"),
        (&["tx", "soft:a", "--rate", "0"], 2, "--rate"),
        (&["tx", "soft:a", "--count", "0"], 2, "--count"),
        (&["tx", "soft:a", "--ring-size", "100"], 2, "power of two"),
        (&["rx", "soft:a", "soft:a"], 1, "busy"),
        (&["rx", "fffe:ff:1f.7"], 1, "no PCI device"),
    ] {
        let output = pktgen(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("pktgen: ") && message.lines().count() == 1, "{message}");
        assert!(message.contains(words), "{message}");
    }
}
