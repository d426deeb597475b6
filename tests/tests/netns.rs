//! Linux at both ends: two network namespaces whose only way to each other is `fwd l2` between two soft NICs on TAP
//! wires. Needs root; says why when it is skipped.
//!
//! Namespaces live as long as the process that holds them. Processes are killed when this one ends, however it ends, so
//! nothing is left behind.

use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tests::{Capture, Fwd, Namespace, Process, Tcpdump, eventually, fwd, namespaces_possible};

/// Addresses of the two ends.
const LEFT: &str = "10.77.0.1";
const RIGHT: &str = "10.77.0.2";
/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes in the pings at either end of a comparison.
const MARKER: usize = 777;

#[test]
fn ping_and_tcp_cross_frame_by_frame() {
    let Some(network) = Network::start() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    let captures = [
        network.left.capture("out", &file("left-out")),
        network.right.capture("in", &file("right-in")),
        network.right.capture("out", &file("right-out")),
        network.left.capture("in", &file("left-in")),
    ];
    // What is compared lies between two pings of this size, so that it does not matter when the captures began and ended.
    network.ping("1", MARKER);
    for size in [0, 56, 1000, 1472] {
        network.ping("25", size);
    }
    // Slow enough, and few enough on their way, that neither the TAP interfaces nor tcpdump must drop anything.
    let slowly = ["-n", "8M", "-b", "50M", "-w", "128K"];
    network.iperf(&slowly);
    network.iperf(&[&slowly[..], &["-R"]].concat());
    network.ping("1", MARKER);
    let [left_out, right_in, right_out, left_in] = captures.map(|capture| capture.stop(2, is_marker));
    compare("from left to right", &left_out, &right_in);
    compare("from right to left", &right_out, &left_in);
    network.stop();
}

#[test]
fn tcp_at_full_speed_loses_nothing_that_is_not_counted() {
    let Some(network) = Network::start() else { return };
    for (way, extra) in [("from left to right", None), ("from right to left", Some("-R"))] {
        let mut arguments = vec!["-n", "256M"];
        arguments.extend(extra);
        let report = network.iperf(&arguments);
        let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).expect("iperf3 reports it");
        let again = number("/end/sum_sent/retransmits");
        let speed = number("/end/sum_received/bits_per_second") / 1e9;
        println!("{way}: {speed:.2} Gbit/s, {again} segments sent again");
        // iperf3 counts what its server has read when the client has sent all; the rest is in the sockets' buffers.
        let bytes = number("/end/sum_received/bytes");
        assert!(bytes >= f64::from(192 << 20), "{way}: {bytes} bytes arrived");
    }
    // Whatever was on its way in either direction is behind us once a ping and its answer have passed.
    network.ping("1", 56);
    let [left, right] = [&network.left, &network.right].map(Side::counters);
    let (sent, received) = (left.0 + right.0, left.1 + right.1);
    let run = network.stop();
    let missed: u64 = (0..2).map(|port| run.count(&format!("/ports/{port}/rx_missed"))).sum();
    assert!(sent > 100_000, "there was traffic");
    assert!(run.count("/received") + missed >= sent, "{sent} frames were handed to fwd");
    assert!(sent <= received + run.drops() + missed, "of {sent} frames {received} arrived: {}", run.json);
}

/// Two namespaces, and `fwd` in a third between them.
struct Network {
    // Fields are dropped in this order: the forwarder before the namespaces.
    forwarder: Process,
    left: Side,
    right: Side,
    _middle: Namespace,
    /// One network at a time: speed is shared.
    _alone: MutexGuard<'static, ()>,
}

impl Network {
    /// Starts it, unless this host cannot; then says why.
    fn start() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if let Err(reason) = namespaces_possible(&["ping", "tcpdump", "iperf3", "timeout"]) {
            skip::test!("{reason}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let [left, right] = [(LEFT, "rwleft"), (RIGHT, "rwright")].map(|(address, interface)| Side {
            namespace: Namespace::new(),
            address,
            interface,
        });
        let middle = Namespace::new();
        let program = fwd().to_str().expect("a path in UTF-8");
        let mut forwarder = middle.command(&[
            program,
            "l2",
            "soft:a?wire=tap:rwleft",
            "soft:b?wire=tap:rwright",
            "--json",
            "--quiet",
            "--duration",
            "900",
        ]);
        let forwarder = Process(forwarder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
        for side in [&left, &right] {
            side.connect(&middle);
        }
        Some(Self { forwarder, left, right, _middle: middle, _alone: alone })
    }

    /// Pings the right from the left, with so many bytes; every one is answered.
    fn ping(&self, count: &str, size: usize) {
        let size = size.to_string();
        // With a deadline ping waits for late answers, but sends more than it was told to until they are all there. Without
        // one it waits for the first answer only, which is all of one.
        let patience = if count == "1" { "-W" } else { "-w" };
        let said = self.left.namespace.output(&["ping", "-c", count, "-i", "0.02", patience, "60", "-s", &size, RIGHT]);
        let received = said.split(" received,").next().and_then(|before| before.rsplit(' ').next());
        let received: u32 = received.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        // Answers that were late come all at once, and it sent more while it waited.
        assert!(received >= count.parse().expect("a number"), "{said}");
    }

    /// Runs iperf3 from left to right (with `-R` the data flows the other way) and returns its report.
    fn iperf(&self, arguments: &[&str]) -> Value {
        let mut server =
            self.right.namespace.command(&["iperf3", "--server", "--one-off", "--bind", RIGHT, "--forceflush"]);
        let mut server = Process(server.stdout(Stdio::piped()).spawn().expect("iperf3 starts"));
        let mut lines = BufReader::new(server.0.stdout.take().expect("piped")).lines();
        let listens = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening"));
        assert!(listens, "the iperf3 server did not come up");
        let reader = std::thread::spawn(move || lines.for_each(drop));
        let mut client = vec!["timeout", "300", "iperf3", "--client", RIGHT, "--json"];
        client.extend(arguments);
        let text = self.left.namespace.output(&client);
        server.wait(PATIENCE).expect("the iperf3 server ends after one client");
        reader.join().expect("nothing can fail there");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("iperf3 printed no report: {error}: {text}"))
    }

    /// Ends the forwarder as a user would, holds it to its account, and returns that.
    fn stop(mut self) -> Fwd {
        self.forwarder.signal(Signal::INT);
        let status = self.forwarder.wait(PATIENCE).expect("fwd ends after SIGINT");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.forwarder.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        self.forwarder.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        assert_eq!(status.code(), Some(0), "{stderr}");
        let run = Fwd { code: status.code(), json: serde_json::from_str(&stdout).expect("an object"), stderr };
        println!("{}", run.json);
        assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops(), "nothing is unaccounted for");
        run
    }
}

/// A namespace, and the end of the wire in it.
struct Side {
    namespace: Namespace,
    address: &'static str,
    interface: &'static str,
}

impl Side {
    fn capture(&self, direction: &str, file: &Path) -> Tcpdump {
        Tcpdump::start(&self.namespace, self.interface, direction, file)
    }

    /// Frames that Linux has sent by the interface, and received.
    fn counters(&self) -> (u64, u64) {
        let text = self.namespace.output(&["ip", "-json", "-statistics", "link", "show", "dev", self.interface]);
        let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
        let count = |way: &str| {
            let count = links.pointer(&format!("/0/stats64/{way}/packets")).and_then(Value::as_u64);
            count.unwrap_or_else(|| panic!("no count of frames in {text}"))
        };
        (count("tx"), count("rx"))
    }

    /// Fetches the interface from where `fwd` has made it, and sets it up.
    fn connect(&self, middle: &Namespace) {
        let (namespace, interface) = (&self.namespace, self.interface);
        eventually(&format!("fwd makes interface {interface}"), || middle.succeeds(&["ip", "link", "show", interface]));
        let here = namespace.holder().to_string();
        middle.output(&["ip", "link", "set", interface, "netns", &here]);
        // No neighbour discovery of its own accord, so that captures begin and end in silence.
        namespace.output(&["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true"]);
        namespace.output(&["ip", "link", "set", "lo", "up"]);
        namespace.output(&["ip", "address", "add", &format!("{}/24", self.address), "dev", interface]);
        namespace.output(&["ip", "link", "set", interface, "up"]);
    }
}

/// The frames sent between the markers are the frames received there.
fn compare(way: &str, sent: &Capture, received: &Capture) {
    let [sent, received] = [sent, received].map(|capture| between_markers(&capture.frames));
    println!("{way}: {} frames sent, {} received", sent.len(), received.len());
    assert!(sent.len() > 1000, "{way}: there was traffic");
    for (number, (sent, received)) in sent.iter().zip(received).enumerate() {
        assert!(sent == received, "{way}: frame {number} is another: sent {sent:02x?}, received {received:02x?}");
    }
    assert_eq!(sent.len(), received.len(), "{way}");
}

/// From the first marker to the second.
fn between_markers(frames: &[Vec<u8>]) -> &[Vec<u8>] {
    let first = frames.iter().position(|frame| is_marker(frame)).expect("the first marker was captured");
    let last = frames.iter().rposition(|frame| is_marker(frame)).expect("and the second");
    &frames[first..=last]
}

/// Whether it is a ping of the marker's size, or the answer to one.
fn is_marker(frame: &[u8]) -> bool {
    // Ethernet and IPv4 header before the ICMP header of 8 bytes; EtherType IPv4, protocol ICMP.
    frame.len() == 14 + 20 + 8 + MARKER && frame[12..14] == [8, 0] && frame[23] == 1
}
