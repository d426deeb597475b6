//! The same frames through `fwd l3 --kernel` and through Linux alone, with the same addresses and routes: all that leaves by each port is
//! equal byte for byte, what Linux says for itself among it. And every capture through `fwd l3 --kernel` alone, whole. Needs root; says why
//! when it is skipped.
//!
//! Frames that ports forward by themselves may overtake those that go by the host, so what leaves is compared without its order. What
//! may differ: the identification of IPv4 in what a router says for itself, which Linux takes from a counter, and `fwd` drops what
//! comes from or goes to addresses that no host has ([`is_dropped`]), and forwards what says to come from the router itself, which no frame
//! here does (`kernel.rs`). ARP, neighbour discovery and group membership of the routers'
//! own are left out, and errors for neighbours that were not found, as they come when it pleases.

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tests::{
    Capture, Fwd, HOPS, MACS, Namespace, Process, ROUTES, Random, Tcpdump, capture_files, eventually, fwd,
    namespaces_possible, routed, set, with_checksum, words,
};

const FRAMES: u32 = 3000;
const LONG_FRAMES: u16 = 600;
/// Of the router's own addresses.
const NETWORK: [u8; 3] = [192, 0, 2];

/// Sends frames of a capture by an interface, a few at a time: after each lot comes one whose TTL is used up, and the router's answer to
/// it says that it is done with the lot. So neither queues nor rates are exceeded.
const PLAYER: &str = r#"
import socket, struct, sys, time
interface, file, lot = sys.argv[1], sys.argv[2], 150
data = open(file, "rb").read()
frames, at = [], 24
while at < len(data):
    size = struct.unpack_from("<I", data, at + 8)[0]
    frames.append(data[at + 16:at + 16 + size])
    at += 16 + size
last = frames.pop()
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((interface, 0))
wire.settimeout(60)
for number, first in enumerate(range(0, len(frames), lot)):
    for frame in frames[first:first + lot]:
        wire.send(frame)
    mark = last[-8:-4] + struct.pack(">I", number)
    wire.send(last[:-8] + mark)
    while True:
        answer, origin = wire.recvfrom(65536)
        if origin[2] != socket.PACKET_OUTGOING and answer.endswith(mark):
            break
    time.sleep(0.03)
"#;

#[test]
fn all_that_leaves_is_what_linux_sends() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    compare(&(0..FRAMES).map(|number| random.frame(number)).collect::<Vec<_>>());
}

/// Longer than the MTU of the last port, in fragments or not; and pings of the router's own addresses, some with their TTL used up.
#[test]
fn what_is_long_or_for_the_router_is_treated_as_linux_does() {
    let mut random = Random(0x5851_F42D_4C95_7F2D);
    compare(&(0..LONG_FRAMES).map(|number| long_frame(&mut random, number)).collect::<Vec<_>>());
}

/// UDP to be forwarded by one port or the other, or an echo request to one of the router's addresses.
fn long_frame(random: &mut Random, number: u16) -> Vec<u8> {
    let mut one_of = |choices: &[u8]| choices[random.below(choices.len())];
    let (kind, ttl, fragment) = (one_of(&[0, 0, 1, 1, 2, 3]), one_of(&[64, 64, 64, 1]), one_of(&[0x40, 0, 0]));
    let size = 100 + 16 * usize::from(one_of(&[0, 60, 70, 71, 72, 73, 74, 80]));
    let [high, low] = number.to_be_bytes();
    let mut payload = vec![7; size];
    payload[..8].copy_from_slice(&[8, 0, 0, 0, high, low, 0, 1]);
    let is_ping = kind > 1;
    if kind % 2 == 0 {
        if is_ping {
            let sum = checksum(&payload);
            payload[2..4].copy_from_slice(&sum);
        }
        let to = if is_ping { [192, 0, 2, one_of(&[1, 65, 129])] } else { [10, one_of(&[0, 1]), 0, 1] };
        let total = u16::try_from(20 + size).expect("short").to_be_bytes();
        let protocol = if is_ping { 1 } else { 253 };
        let ip = [&[0x45, 0], &total[..], &[high, low, fragment, 0, ttl, protocol, 0, 0, 198, 18, 0, 1], &to].concat();
        return routed(&[8, 0], &with_checksum(ip), &payload);
    }
    let from: Ipv6Addr = "2001:db9::1".parse().expect("an address");
    let to = if is_ping {
        ["fd00:0::1", "fd00:2::1"][usize::from(one_of(&[0, 1]))]
    } else {
        ["2001:db8::1", "2001:db8:1::1"][usize::from(one_of(&[0, 1]))]
    };
    let to: Ipv6Addr = to.parse().expect("an address");
    let length = u16::try_from(size).expect("short").to_be_bytes();
    let protocol = if is_ping { 58 } else { 253 };
    if is_ping {
        payload[0] = 128;
        let pseudo = [&from.octets()[..], &to.octets(), &[0, 0], &length, &[0, 0, 0, 58], &payload].concat();
        let sum = checksum(&pseudo);
        payload[2..4].copy_from_slice(&sum);
    }
    let ip = [&[0x60, 0, 0, 0], &length[..], &[protocol, ttl], &from.octets(), &to.octets()].concat();
    routed(&[0x86, 0xDD], &ip, &payload)
}

/// That of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let [.., high, low] = (!(sum + (sum >> 16))).to_be_bytes();
    [high, low]
}

#[test]
fn captured_frames_are_treated_as_linux_does() {
    let mut frames = Vec::new();
    for file in capture_files() {
        let of_file = Capture::read(&file).frames.into_iter().filter(|frame| (17..=1514).contains(&frame.len()));
        frames.extend(of_file.map(to_the_router));
    }
    frames.retain(|frame| !has_timestamps(frame));
    println!("{} frames of captures", frames.len());
    assert!(frames.len() > 10, "there are captures");
    compare(&frames);
}

/// Also those that the test above leaves out: of no byte or 80,000, and with the option that Linux writes the time into. None ends the
/// program, and each is forwarded, given to the host, or dropped and counted.
#[test]
fn every_capture_is_accounted_for() {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return;
    }
    let frames: Vec<_> =
        capture_files().iter().flat_map(|file| Capture::read(file).frames).map(to_the_router).collect();
    // Those that come before the tables are read are all the host's.
    let times = 10;
    let router = Router::with_twins();
    // Where long ones pass, beside the twin of the smaller MTU.
    router.router.output(&["ip", "link", "set", "x1", "mtu", "9216"]);
    router.introduce();
    let folder = router.folder.path();
    Capture { frames: (0..times).flat_map(|_| frames.iter().cloned()).collect() }.write(&folder.join("in"));
    let outputs = ["a", "b", "c"].map(|name| folder.join(name));
    let input = path(&folder.join("in"));
    let ports = MACS.iter().zip(&outputs).zip([input.as_str(), "", ""]);
    let ports = ports.zip(["a", "b", "c"]).map(|(((mac, output), input), name)| {
        format!("soft:{name}?wire=pcap:{input},{}&mac={}", path(output), words(*mac))
    });
    let ports: Vec<String> = ports.collect();
    let program = path(fwd());
    let mut arguments = vec![program.as_str(), "l3", "--kernel=x0,x1,x2", "--json", "--quiet", "--exit-when-idle"];
    arguments.extend(["--duration", "120", "--mtu", "9216"].into_iter().chain(ports.iter().map(String::as_str)));
    eventually("the tables are read before the last frame comes", || {
        let run = Fwd::of(&router.router.command(&arguments).output().expect("fwd starts"));
        println!("{}\n{}", run.json, run.stderr);
        assert!(run.code == Some(0) && !run.stderr.contains("panicked"), "{}", run.stderr);
        assert_eq!(run.count("/received"), times * frames.len() as u64, "{}", run.json);
        assert_eq!(run.count("/received"), run.count("/forwarded") + run.count("/to_host") + run.drops());
        let sent: u64 = outputs.iter().map(|output| Capture::read(output).frames.len() as u64).sum();
        assert_eq!(run.count("/forwarded") + run.count("/from_host"), sent, "{}", run.json);
        run.count("/forwarded") > 0 && run.count("/to_host") > 0
    });
}

/// The frame, to the router if it was to one station.
fn to_the_router(mut frame: Vec<u8>) -> Vec<u8> {
    if let Some(to) = frame.first_chunk_mut::<6>().filter(|to| to[0] & 1 == 0) {
        *to = MACS[0];
    }
    frame
}

fn compare(frames: &[Vec<u8>]) {
    if let Err(reason) = namespaces_possible(&["tcpdump", "python3"]) {
        skip::test!("{reason}");
        return;
    }
    let frames: Vec<Vec<u8>> = frames.iter().filter(|frame| !is_dropped(frame)).cloned().collect();
    let (linux, ours) = std::thread::scope(|scope| {
        let linux = scope.spawn(|| Router::of_linux().route(&frames));
        let ours = scope.spawn(|| Router::of_fwd().route(&frames));
        (linux.join().expect("Linux routes"), ours.join().expect("fwd routes"))
    });
    for (port, (ours, linux)) in ours.iter().zip(&linux).enumerate() {
        let count = |frames: &Counted| frames.values().sum::<usize>();
        println!("port {port}: {} frames by fwd, {} by Linux", count(ours), count(linux));
        let more = |of: &Counted, than: &Counted| {
            let more = of.iter().filter(|(frame, count)| than.get(*frame).unwrap_or(&0) < count);
            let shown = more.map(|(frame, count)| format!("{count} x {frame:02x?}\n"));
            shown.take(5).collect::<String>()
        };
        let (ours_alone, linux_alone) = (more(ours, linux), more(linux, ours));
        assert!(
            ours_alone.is_empty() && linux_alone.is_empty(),
            "port {port}: by fwd more often:\n{ours_alone}by Linux more often:\n{linux_alone}"
        );
        assert!(count(ours) > 5, "port {port} has sent next to nothing");
    }
}

/// Frames, and how often each has left.
type Counted = BTreeMap<Vec<u8>, usize>;

/// A router in a namespace whose interfaces are `x0` to `x2`, and a namespace with the other ends, `w0` to `w2`.
struct Router {
    run: Option<Process>,
    router: Namespace,
    outside: Namespace,
    folder: tempfile::TempDir,
}

impl Router {
    fn new() -> Self {
        let (router, outside) = (Namespace::new(), Namespace::new());
        // Nobody is there but those who look.
        set(&outside, "ipv6/conf/default/disable_ipv6=1");
        Self { run: None, router, outside, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn of_linux() -> Self {
        let new = Self::new();
        let outside = new.outside.holder().to_string();
        for port in 0..3 {
            let (inner, outer) = (format!("x{port}"), format!("w{port}"));
            new.router
                .output(&["ip", "link", "add", &inner, "type", "veth", "peer", "name", &outer, "netns", &outside]);
            new.outside.output(&["ip", "link", "set", &outer, "up"]);
        }
        new.configure();
        new
    }

    /// One whose interfaces are twins of ports that are not there yet.
    fn with_twins() -> Self {
        let new = Self::new();
        for port in 0..3 {
            new.router.output(&["ip", "tuntap", "add", &format!("x{port}"), "mode", "tap"]);
        }
        new.configure();
        new
    }

    fn of_fwd() -> Self {
        let mut new = Self::with_twins();
        let port = |(port, mac): (usize, &[u8; 6])| format!("soft:p{port}?wire=tap:w{port}&mac={}", words(*mac));
        let ports: Vec<String> = MACS.iter().enumerate().map(port).collect();
        let mut arguments =
            vec![fwd().to_str().expect("a path in UTF-8"), "l3", "--kernel=x0,x1,x2", "--json", "--quiet"];
        arguments.extend(["--duration", "900"].into_iter().chain(ports.iter().map(String::as_str)));
        let mut command = new.router.command(&arguments);
        let mut run = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
        for port in 0..3 {
            let outer = format!("w{port}");
            eventually("fwd makes its wires", || {
                run.still_runs();
                new.router.succeeds(&["ip", "link", "show", &outer])
            });
            new.router.output(&["ip", "link", "set", &outer, "netns", &new.outside.holder().to_string()]);
            new.outside.output(&["ip", "link", "set", &outer, "up"]);
        }
        new.run = Some(run);
        for port in 0..3 {
            let twin = format!("x{port}");
            eventually("the twins have a link", || {
                new.router.output(&["ip", "link", "show", &twin]).contains("LOWER_UP")
            });
        }
        new
    }

    fn configure(&self) {
        for setting in [
            "ipv6/conf/all/accept_dad=0",
            "ipv6/conf/default/accept_dad=0",
            "ipv6/conf/default/dad_transmits=0",
            "ipv6/conf/default/router_solicitations=0",
            "ipv4/ip_forward=1",
            "ipv6/conf/all/forwarding=1",
            "ipv4/conf/all/rp_filter=0",
            "ipv4/conf/default/rp_filter=0",
            "ipv4/icmp_ratemask=0",
            "ipv6/icmp/ratelimit=0",
        ] {
            set(&self.router, setting);
        }
        let mut script = String::from("set -e\nip link set lo up\n");
        for (port, mac) in MACS.iter().enumerate() {
            let (mac, v4, v6) = (words(*mac), format!("192.0.2.{}", port * 64 + 1), format!("fd00:{port}::"));
            let lines = [
                format!("ip link set x{port} address {mac}"),
                format!("ip link set x{port} up"),
                format!("ip address add {v4}/26 dev x{port}"),
                format!("ip address add {v6}1/64 dev x{port} nodad"),
            ];
            lines.iter().for_each(|line| writeln!(script, "{line}").expect("a string takes all"));
        }
        // Where some frames are too long; of less, Linux takes the addresses of IPv6 away.
        writeln!(script, "ip link set x2 mtu 1280").expect("a string takes all");
        for (prefix, port) in ROUTES {
            let via =
                if prefix.contains(':') { format!("fd00:{port}::2") } else { format!("192.0.2.{}", port * 64 + 2) };
            writeln!(script, "ip route add {prefix} via {via} dev x{port} onlink").expect("a string takes all");
        }
        self.router.output(&["sh", "-c", &script]);
    }

    /// Tells the router of the next hops, which are nobody and do not answer. A new address of an interface would make it forget them.
    fn introduce(&self) {
        for (port, hop) in HOPS.iter().enumerate() {
            for address in [format!("192.0.2.{}", port * 64 + 2), format!("fd00:{port}::2")] {
                let (hop, interface) = (words(*hop), format!("x{port}"));
                let words =
                    ["ip", "neighbour", "replace", &address, "lladdr", &hop, "dev", &interface, "nud", "permanent"];
                self.router.output(&words);
            }
        }
    }

    /// Has frames come in by the first interface. Returns what left by each.
    fn route(mut self, frames: &[Vec<u8>]) -> [Counted; 3] {
        self.introduce();
        let file = |name: &str| self.folder.path().join(name);
        // Last come some that the host forwards, as they have an option, and answers.
        let slow = |to: [u8; 4]| {
            let ip = [&[0x46, 0, 0, 32, 0xFF, 0xFF, 0, 0, 64, 254, 0, 0, 198, 18, 0, 1][..], &to, &[1; 4]].concat();
            routed(&[8, 0], &with_checksum(ip), &END)
        };
        let mark = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 1, 254, 0, 0, 198, 18, 0, 1][..], &[10, 0, 0, 1]].concat();
        let last = [slow([10, 0, 0, 1]), slow([10, 1, 0, 1]), routed(&[8, 0], &with_checksum(mark), &[0xEC; 8])];
        Capture { frames: [frames, &last].concat() }.write(&file("in"));
        let outputs = ["w0", "w1", "w2"].map(|wire| Tcpdump::start(&self.outside, wire, "in", &file(wire)));
        self.outside.output(&["python3", "-c", PLAYER, "w0", &path(&file("in"))]);
        let [answers, one, two] = outputs;
        let lots = u32::try_from((frames.len() + 2).div_ceil(150)).expect("few");
        let end = |frame: &[u8]| frame.ends_with(&END);
        let frames = [answers.stop(1, |frame| frame.ends_with(&mark_of(lots - 1))), one.stop(1, end), two.stop(1, end)];
        self.stop();
        frames.map(|capture| {
            let mut counted = Counted::new();
            for frame in capture.frames.into_iter().filter(|frame| !is_own_business(frame)) {
                *counted.entry(without_identification(frame)).or_default() += 1;
            }
            counted
        })
    }

    fn stop(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        run.signal(Signal::INT);
        let status = run.wait(Duration::from_secs(120)).expect("fwd ends after SIGINT");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        run.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        run.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        let run = Fwd { code: status.code(), json: serde_json::from_str(&stdout).expect("an object"), stderr };
        println!("{}\n{}", run.json, run.stderr);
        assert_eq!(run.code, Some(0));
        assert!(run.count("/forwarded") > 0, "some were forwarded by the ports themselves");
        assert_eq!(run.count("/received"), run.count("/forwarded") + run.count("/to_host") + run.drops());
    }
}

/// How the last frames end.
const END: [u8; 8] = [0xED; 8];

/// How the answer ends that says that a lot is done.
fn mark_of(lot: u32) -> [u8; 8] {
    let [a, b, c, d] = lot.to_be_bytes();
    [0xEC, 0xEC, 0xEC, 0xEC, a, b, c, d]
}

/// IPv4 source and destination.
fn v4(frame: &[u8]) -> Option<[&[u8; 4]; 2]> {
    (frame[12..14] == [8, 0]).then_some(())?;
    Some([frame.get(26..)?.first_chunk()?, frame.get(30..)?.first_chunk()?])
}

fn v6(frame: &[u8]) -> Option<[Ipv6Addr; 2]> {
    (frame[12..14] == [0x86, 0xDD]).then_some(())?;
    let address = |at: usize| frame.get(at..)?.first_chunk().map(|bytes: &[u8; 16]| Ipv6Addr::from(*bytes));
    Some([address(22)?, address(38)?])
}

/// Whether `fwd` drops it, as its manual says, where Linux forwards: 0/8 and class E (RFC 1812, 5.3.7), `::` and mapped addresses (RFC 4291).
fn is_dropped(frame: &[u8]) -> bool {
    let v4_dropped = |address: &[u8; 4]| address[0] == 0 || address[0] >= 240;
    let v6_dropped = |address: Ipv6Addr| address.is_unspecified() || address.to_ipv4_mapped().is_some();
    frame[0] & 1 == 0
        && (v4(frame).is_some_and(|addresses| addresses.into_iter().any(v4_dropped))
            || v6(frame).is_some_and(|addresses| addresses.into_iter().any(v6_dropped)))
}

/// Whether it is ARP, group membership or neighbour discovery of the router itself, or an error that says that a neighbour was not found:
/// three seconds after it was looked for.
fn is_own_business(frame: &[u8]) -> bool {
    let error = |at: usize, kind: [u8; 2]| frame.get(at..).is_some_and(|icmp| icmp.starts_with(&kind));
    frame[12..14] == [8, 6]
        || v4(frame).is_some_and(|[from, to]| {
            to[0] & 0xF0 == 0xE0 || (from.starts_with(&NETWORK) && frame[23] == 1 && error(34, [3, 1]))
        })
        || v6(frame)
            .is_some_and(|[from, to]| to.is_multicast() || (is_own(from) && frame[20] == 58 && error(54, [1, 3])))
}

/// Whether an address of IPv6 is one of the router.
fn is_own(address: Ipv6Addr) -> bool {
    matches!(address.segments()[0], 0xFD00 | 0xFE80)
}

/// Takes identification and checksum out of what a router says for itself.
fn without_identification(mut frame: Vec<u8>) -> Vec<u8> {
    if v4(&frame).is_some_and(|[from, _]| from.starts_with(&NETWORK)) {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// Whether there are options of IPv4 among which may be the one that Linux writes the time into.
fn has_timestamps(frame: &[u8]) -> bool {
    let header = usize::from(frame[14] & 15) * 4;
    frame[12..14] == [8, 0] && frame.get(34..14 + header).is_some_and(|options| options.contains(&68))
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
