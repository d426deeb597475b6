//! Lines of the log that clients can cause: one a second of each kind. A program of its own, as the log is of the process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod log;
mod wire_client;

use log::{Log, lines};
use softnic::VfioUserServer;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::time::Instant;
use wire_client::{WireClient, dwords, qwords, sealed_memfd};

#[test]
fn s2_a_client_writes_a_line_a_second_at_most() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = VfioUserServer::start("log?wire=sink", &folder.path().join("nic.sock")).unwrap();
    let begun = Instant::now();
    let most = || usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;

    let ended = || lines("the connection to the client has ended");
    let mut clients = 0;
    while ended().len() < 2 {
        let client = WireClient::silent(server.socket());
        client.send(&[0xFF; 16], &[]).unwrap();
        // It is thrown out, and the line is written before the next one is.
        let _ = (&client.0).read(&mut [0]);
        clients += 1;
    }
    let ended = ended();
    assert!(ended.len() <= most(), "{} lines of {clients} clients", ended.len());
    let omitted = |line: &String| -> usize {
        line.split_once("(and ").map_or(0, |(_, more)| more.split_once(" times before)").unwrap().0.parse().unwrap())
    };
    let told: usize = ended.iter().map(|line| 1 + omitted(line)).sum();
    assert!(told == clients || told + 1 == clients, "{told} of {clients} are told, without the last at most");

    let client = WireClient::connect(server.socket());
    let file = tempfile::tempfile().unwrap();
    let body = [dwords(&[32, 3]), qwords(&[0, 0, 0x1000])].concat();
    for _ in 0..300 {
        assert_ne!(client.errno(2, &body, &[file.as_fd()]), 0, "a file that can shrink");
    }
    let refused = lines("memory of a client is refused").len();
    assert!((1..=most()).contains(&refused), "{refused} lines");

    // Which limit was met, and what was asked for.
    let large = sealed_memfd("large", 128 << 30);
    let body = [dwords(&[32, 3]), qwords(&[0, 0, 128 << 30])].concat();
    let asked = || lines("asks for 137438953472 bytes, has 0, and may have 64 GiB together");
    while asked().is_empty() {
        assert_eq!(client.errno(2, &body, &[large.as_fd()]), 28, "ENOSPC");
    }
    assert_eq!(lines("mappings already").len(), 0);
}
