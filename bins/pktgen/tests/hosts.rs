//! Ports that are hosts, on software NICs, and what `pktgen ping` refuses. `tests/tests/ping.rs` has Linux at the other end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::process::{Command, Output};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

const ANSWER: [&str; 2] = ["--answer", "192.0.2.1/24+2001:db8::1/64,192.0.2.2/24+2001:db8::2/64"];

#[test]
fn ports_find_each_other() {
    for (gateways, size, one_way, queues) in [
        ("192.0.2.2,192.0.2.1", "60", false, "1"),
        ("2001:db8::2,2001:db8::1", "2040-2070,9216", false, "1"),
        ("192.0.2.2", "60", true, "1"),
        ("192.0.2.2,192.0.2.1", "60", false, "3"),
        ("2001:db8::2", "76", true, "2"),
    ] {
        // Frames for another station than the router are not received.
        let ports = ["run", "soft:a?wire=peer:b", "soft:b", "--gateway", gateways, "--size", size];
        let options = ["--count", "500", "--rate", "5k", "--catch-up", "1s", "--warm-up", "0s", "--json", "--quiet"];
        let one_way: &[&str] = if one_way { &["--one-way"] } else { &[] };
        let queues = ["--flows", "20", "--queues", queues];
        let output = pktgen(&[&ports[..], &ANSWER, &options, &queues, one_way].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{gateways}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        for direction in report["directions"].as_array().unwrap() {
            for (field, count) in [("sent", 500), ("received", 500), ("foreign", 0), ("damaged", 0)] {
                assert_eq!(direction[field], count, "{field}: {direction}");
            }
        }
    }
}

/// A virtual function that is not trusted hears the groups of its addresses, to which neighbours are asked for.
#[test]
fn functions_that_are_not_trusted_find_each_other() {
    let ports = ["run", "soft:a?id=1515&trust=off&wire=peer:b", "soft:b?id=1565&trust=off", "--size", "76"];
    let options = ["--gateway", "2001:db8::2,2001:db8::1", "--count", "100", "--rate", "5k", "--json", "--quiet"];
    let output = pktgen(&[&ports[..], &ANSWER, &options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for direction in report["directions"].as_array().unwrap() {
        assert_eq!([&direction["received"], &direction["foreign"]], [100, 0], "{direction}");
    }
}

#[test]
fn what_a_host_says_is_not_what_was_asked_to_be_sent() {
    let arguments = ["tx", "soft:a?wire=pcap:,/dev/null", "--answer", "192.0.2.1/24", "--count", "200", "--json"];
    let output = pktgen(&[&arguments[..], &["--quiet"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!([&report["sent"], &report["ends"]], [200, 10], "{report}");
    // It makes sure of its address.
    assert!(report["ports"][0]["tx_packets"].as_u64() > Some(210) && report["error"].is_null(), "{report}");
}

#[test]
fn bad_input_is_one_line() {
    let own = ["--source", "192.0.2.1/24"];
    let run = ["run", "soft:a?wire=peer:b", "soft:b"];
    for (arguments, code, words) in [
        (["ping", "soft:a", "192.0.2.9"].to_vec(), 2, "--source: missing"),
        (
            ["ping", "soft:a", "192.0.2.9", "--source", "192.0.2.1"].to_vec(),
            2,
            "192.0.2.1: write an address and the length",
        ),
        ([&["ping", "soft:a", "192.0.2.1"][..], &own].concat(), 2, "the port's own address"),
        ([&["ping", "soft:a", "192.0.2.255"][..], &own].concat(), 2, "not the address of one host"),
        ([&["ping", "soft:a", "224.0.0.1"][..], &own].concat(), 2, "not the address of one host"),
        ([&["ping", "soft:a", "198.51.100.1"][..], &own].concat(), 2, "there is no gateway"),
        ([&["ping", "soft:a", "2001:db8::9"][..], &own].concat(), 2, "no gateway"),
        ([&["ping", "soft:a?wire=loop", "192.0.2.9"][..], &own].concat(), 1, "no answer to 3 ARP requests"),
        ([&["ping", "soft:a", "192.0.2.9", "--size", "1473"][..], &own].concat(), 2, "at most 1472 bytes"),
        ([&["ping", "soft:a", "192.0.2.9", "--count", "0"][..], &own].concat(), 2, "--count"),
        ([&["ping", "soft:a", "192.0.2.9", "--interval", "0"][..], &own].concat(), 2, "from 10us to 3600s"),
        ([&["ping", "soft:a", "192.0.2.9", "--timeout", "2m"][..], &own].concat(), 2, "from 1ms to 60s"),
        (
            [&["ping", "soft:a", "192.0.2.9", "--interval", "10us", "--timeout", "1s"][..], &own].concat(),
            2,
            "--timeout: more",
        ),
        ([&["ping", "soft:a", "192.0.2.9", "--gateway", "192.0.2.1"][..], &own].concat(), 2, "the port's own address"),
        ([&["ping", "fffe:ff:1f.7", "192.0.2.9"][..], &own].concat(), 1, "no PCI device"),
        ([&run[..], &["--answer", "192.0.2.1"]].concat(), 2, "the length of its prefix"),
        ([&run[..], &["--answer", "192.0.2.1/24,-,-"]].concat(), 2, "2 ports; leave some out"),
        ([&run[..], &["--gateway", "192.0.2.9"]].concat(), 2, "--answer"),
        ([&run[..], &["--gateway", "224.0.0.1", "--answer", "192.0.2.1/24"]].concat(), 2, "the address of a router"),
        (
            [&run[..], &["--gateway", "192.0.2.9", "--answer", "-,192.0.2.1/24"]].concat(),
            2,
            "port 1 has no IPv4 address",
        ),
        (
            [&run[..], &["--gateway", "192.0.2.9", "--answer", "192.0.2.1/24"]].concat(),
            1,
            "192.0.2.9: no answer to 3 ARP",
        ),
        (["rx", "soft:a", "--answer", "192.0.2.1/24,192.0.2.2/24"].to_vec(), 2, "1 port; leave some out"),
    ] {
        let arguments = [&arguments[..], &["--quiet"]].concat();
        let output = pktgen(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("pktgen: ") && message.lines().count() == 1, "{message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}
