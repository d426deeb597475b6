//! The same frames through `fwd l3` and through Linux, which routes in a network namespace with the same routes: what
//! leaves by each port is equal byte for byte. Needs root; says why when it is skipped.
//!
//! What Linux does otherwise, and why, is in [`EXCEPTIONS`]. Besides, Linux answers with ICMP errors and speaks ARP,
//! neighbour discovery and MLD for itself; those frames are told by its own addresses and left out.

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;
use tests::{
    Capture, Fwd, HOPS, MACS, Namespace, ROUTES, Random, Tcpdump, fwd, namespaces_possible, routed, with_checksum,
    words,
};

const FRAMES: u32 = 3000;

/// What Linux forwards and a router must not, and the other way round.
const EXCEPTIONS: [(&str, Frame); 9] = [
    // RFC 1812, 5.3.7: network 0 is no source and no destination. Linux has taken 0/8, but for 0.0.0.0, as unicast since 5.3.
    ("network 0 source", Frame { from: Some([0, 1, 2, 3]), ..Frame::GOOD }),
    ("network 0 destination", Frame { to: Some([0, 1, 2, 3]), ..Frame::GOOD }),
    // RFC 1812, 5.3.7 and 4.2.3.1: class E is no source and no destination. Linux treats it as unicast.
    ("class E source", Frame { from: Some([240, 0, 0, 1]), ..Frame::GOOD }),
    ("class E destination", Frame { to: Some([240, 0, 0, 1]), ..Frame::GOOD }),
    // RFC 3927, section 7: link-local addresses stay on their link. Linux leaves that to its administrator.
    ("link-local source", Frame { from: Some([169, 254, 0, 1]), ..Frame::GOOD }),
    ("link-local destination", Frame { to: Some([169, 254, 0, 1]), ..Frame::GOOD }),
    // RFC 4291, 2.5.2, and RFC 6890, 2.2.3: not destinations of a packet on a network. Linux looks them up as any other.
    ("unspecified destination", Frame { to_ipv6: Some("::"), ..Frame::GOOD }),
    ("IPv4-mapped destination", Frame { to_ipv6: Some("::ffff:10.0.0.1"), ..Frame::GOOD }),
    // RFC 791, 3.1: each router puts its address into the option. `fwd l3` has none, and passes options unread.
    ("record route", Frame { options: &[7, 7, 4, 0, 0, 0, 0, 0], ..Frame::GOOD }),
];

/// A frame of the exceptions: IPv4, unless it goes to an IPv6 address.
struct Frame {
    from: Option<[u8; 4]>,
    to: Option<[u8; 4]>,
    to_ipv6: Option<&'static str>,
    options: &'static [u8],
}

impl Frame {
    const GOOD: Self = Self { from: None, to: None, to_ipv6: None, options: &[] };

    fn bytes(&self) -> Vec<u8> {
        if let Some(to) = self.to_ipv6 {
            let [from, to] = ["2001:db9::1", to].map(|text| text.parse::<Ipv6Addr>().expect("an address").octets());
            return routed(&[0x86, 0xDD], &[&[0x60, 0, 0, 0, 0, 8, 253, 64], &from[..], &to].concat(), &[0; 8]);
        }
        let (from, to) = (self.from.unwrap_or([198, 18, 0, 1]), self.to.unwrap_or([10, 0, 0, 1]));
        let header = 20 + u8::try_from(self.options.len()).expect("at most 40");
        let ip = [&[0x40 + header / 4, 0, 0, header + 8, 0, 0, 0, 0, 64, 253, 0, 0], &from[..], &to, self.options];
        routed(&[8, 0], &with_checksum(ip.concat()), &[0; 8])
    }
}

#[test]
fn what_leaves_is_what_linux_sends() {
    let Some(linux) = Linux::start() else { return };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|number| random.frame(number)).collect();
    let theirs = linux.route(&frames);
    let ours = ours(&frames);
    for (port, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        println!("port {port}: {} frames by fwd, {} by Linux", ours.len(), theirs.len());
        for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert!(ours == theirs, "port {port}, frame {number}:\nfwd   {ours:02x?}\nLinux {theirs:02x?}");
        }
        assert_eq!(ours.len(), theirs.len(), "port {port}");
        assert_eq!(port == 0, ours.len() < 100, "port {port} had {} frames to send", ours.len());
    }
}

#[test]
fn where_linux_does_otherwise() {
    let Some(linux) = Linux::start() else { return };
    let frames: Vec<Vec<u8>> = EXCEPTIONS.iter().map(|(_, frame)| frame.bytes()).collect();
    let theirs = linux.route(&frames);
    let ours = ours(&frames);
    // Linux has forwarded all of them, fwd the last, with its option as it was.
    let count = |outputs: &[Vec<Vec<u8>>]| outputs.iter().map(Vec::len).sum::<usize>();
    let names: Vec<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!((count(&theirs), count(&ours)), (EXCEPTIONS.len(), 1), "{names:?}");
    let (ours, theirs) = (&ours[1][0], theirs[1].last().expect("counted above"));
    assert_eq!(ours[34..42], frames[EXCEPTIONS.len() - 1][34..42]);
    assert_ne!(ours[34..42], theirs[34..42], "Linux fills the option in");
}

/// Routes `frames` with `fwd l3`. Returns what left by each port.
fn ours(frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    Capture { frames: frames.to_vec() }.write(&file("in"));
    let routes = ROUTES.iter().fold(String::new(), |mut text, (prefix, port)| {
        writeln!(text, "{prefix} via {} port {port}", words(HOPS[*port])).expect("a string takes all");
        text
    });
    std::fs::write(file("routes"), routes).expect("a temporary file");
    let port = |port: usize, input: &str| {
        let (input, output) =
            (if input.is_empty() { String::new() } else { path(&file(input)) }, file(&port.to_string()));
        format!("soft:p{port}?wire=pcap:{input},{}&mac={}", output.display(), words(MACS[port]))
    };
    let routes = path(&file("routes"));
    let arguments = ["l3", "--routes", &routes, "--exit-when-idle", "--duration", "120", "--json", "--quiet"];
    let run = Fwd::run(arguments.iter().map(ToString::to_string).chain([port(0, "in"), port(1, ""), port(2, "")]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops(), "{}", run.json);
    println!("fwd: {}", run.json);
    (0..3).map(|port| Capture::read(&file(&port.to_string())).frames).collect()
}

/// A namespace in which Linux routes between three interfaces.
struct Linux {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Linux {
    /// Sets it up, unless this host cannot; then says why.
    fn start() -> Option<Self> {
        if let Err(reason) = namespaces_possible(&["tcpdump"]) {
            skip::test!("{reason}");
            return None;
        }
        let namespace = Namespace::new();
        let mut script = String::from(
            "set -e
            cd /proc/sys/net
            for setting in accept_dad dad_transmits router_solicitations; do
                echo 0 > ipv6/conf/all/$setting
                echo 0 > ipv6/conf/default/$setting
            done
            echo 1 > ipv4/ip_forward
            echo 1 > ipv6/conf/all/forwarding
            echo 0 > ipv4/conf/all/rp_filter
            echo 0 > ipv4/conf/default/rp_filter
            ip link set lo up\n",
        );
        for (port, (mac, hop)) in MACS.iter().zip(HOPS).enumerate() {
            let (mac, hop) = (words(*mac), words(hop));
            let v6 = format!("fd00:{port}::");
            let (ours, theirs) = (format!("192.0.2.{}", port * 64 + 1), format!("192.0.2.{}", port * 64 + 2));
            // Frames are put in through a TAP interface, and looked at where they leave; nobody is at the far ends.
            let add = match port {
                0 => "ip tuntap add lx0 mode tap".to_owned(),
                _ => format!("ip link add lx{port} type veth peer name far{port}; ip link set far{port} up"),
            };
            let lines = [
                add,
                format!("ip link set lx{port} address {mac}"),
                format!("ip link set lx{port} up"),
                format!("ip address add {ours}/26 dev lx{port}"),
                format!("ip address add {v6}1/64 dev lx{port} nodad"),
                format!("ip neighbour add {theirs} lladdr {hop} dev lx{port} nud permanent"),
                format!("ip neighbour add {v6}2 lladdr {hop} dev lx{port} nud permanent"),
                format!("echo 0 > ipv4/conf/lx{port}/rp_filter"),
            ];
            lines.iter().for_each(|line| writeln!(script, "{line}").expect("a string takes all"));
        }
        for (prefix, port) in ROUTES {
            let via =
                if prefix.contains(':') { format!("fd00:{port}::2") } else { format!("192.0.2.{}", port * 64 + 2) };
            writeln!(script, "ip route add {prefix} via {via} dev lx{port} onlink").expect("a string takes all");
        }
        namespace.output(&["sh", "-c", &script]);
        Some(Self { namespace, folder: tempfile::tempdir().expect("a temporary folder") })
    }

    /// Has Linux route `frames`, which come in by the first interface. Returns what left by each.
    fn route(&self, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        let file = |name: &str| self.folder.path().join(name);
        // After the last frame one for each of the other ports, to know when all is done.
        let ends = [[10, 0, 0, 1], [10, 1, 0, 1]].map(|to| {
            let ip = [&[0x45, 0, 0, 28, 0xFF, 0xFF, 0, 0, 64, 254, 0, 0, 198, 18, 0, 1][..], &to].concat();
            routed(&[8, 0], &with_checksum(ip), &END)
        });
        Capture { frames: [frames, &ends].concat() }.write(&file("in"));
        let outputs =
            ["lx1", "lx2"].map(|interface| Tcpdump::start(&self.namespace, interface, "out", &file(interface)));
        let (program, input) = (path(fwd()), format!("soft:in?wire=pcap:{},", path(&file("in"))));
        let player = [&program, "l2", &input, "soft:x0?wire=tap:lx0", "--exit-when-idle", "--duration", "120"];
        self.namespace.output(&player);
        let outputs = outputs.map(|output| output.stop(1, |frame| frame.ends_with(&END)));
        std::iter::once(Vec::new()).chain(outputs.map(|output| forwarded(output.frames))).collect()
    }
}

/// How the last frames end.
const END: [u8; 8] = [0xED; 8];

/// The frames that are not Linux's own, nor the last ones.
fn forwarded(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let own = |frame: &Vec<u8>| match frame[12..14] {
        [8, 0] => frame[26..29] == [192, 0, 2],
        [0x86, 0xDD] => matches!(frame[22..24], [0xFD, 0] | [0xFE, 0x80] | [0, 0]),
        _ => true,
    };
    frames.into_iter().filter(|frame| !own(frame) && !frame.ends_with(&END)).collect()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
