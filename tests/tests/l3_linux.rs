//! The same frames through `fwd l3` and through Linux, which routes in a network namespace with the same routes: what
//! leaves by each port is equal byte for byte. Needs root; says why when it is skipped.
//!
//! What Linux does otherwise, and why, is in [`EXCEPTIONS`]. Besides, Linux answers with ICMP errors and speaks ARP,
//! neighbour discovery and MLD for itself; those frames are told by its own addresses and left out.

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;
use tests::{Capture, Fwd, Namespace, Tcpdump, fwd, namespaces_possible};

const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA0], [2, 0, 0, 0, 0, 0xB0], [2, 0, 0, 0, 0, 0xC0]];
const HOPS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA1], [2, 0, 0, 0, 0, 0xB1], [2, 0, 0, 0, 0, 0xC1]];
const SENDER: [u8; 6] = HOPS[0];
/// (prefix, port). Nothing but errors for the senders leaves by the first port, where frames come in, so that it does
/// not matter when that is ready to send.
const ROUTES: [(&str, usize); 16] = [
    ("0.0.0.0/0", 2),
    ("10.0.0.0/8", 1),
    ("10.1.0.0/16", 2),
    ("10.1.2.0/24", 1),
    ("10.1.2.128/25", 2),
    ("10.1.2.3/32", 2),
    ("198.18.0.0/15", 0),
    ("0.0.0.0/8", 1),
    ("240.0.0.0/4", 1),
    ("169.254.0.0/16", 1),
    ("::/0", 2),
    ("2001:db9::/32", 0),
    ("2001:db8::/32", 1),
    ("2001:db8:1::/48", 2),
    ("2001:db8:1:2::/64", 1),
    ("2001:db8:1:2::3/128", 2),
];
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
            return frame(&[0x86, 0xDD], &[&[0x60, 0, 0, 0, 0, 8, 253, 64], &from[..], &to].concat(), &[0; 8]);
        }
        let (from, to) = (self.from.unwrap_or([198, 18, 0, 1]), self.to.unwrap_or([10, 0, 0, 1]));
        let header = 20 + u8::try_from(self.options.len()).expect("at most 40");
        let ip = [&[0x40 + header / 4, 0, 0, header + 8, 0, 0, 0, 0, 64, 253, 0, 0], &from[..], &to, self.options];
        frame(&[8, 0], &with_checksum(ip.concat()), &[0; 8])
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
            frame(&[8, 0], &with_checksum(ip), &END)
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

/// Xorshift (Marsaglia 2003): the same frames in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("48 bits") % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A frame that says its number, good or bad in one of many ways.
    fn frame(&mut self, number: u32) -> Vec<u8> {
        let payload = self.below(80) + 8;
        let mut payload: Vec<u8> = (0..payload).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect();
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let mut frame = if self.below(3) == 0 { self.ipv6(&payload) } else { self.ipv4(&payload) };
        match self.below(30) {
            0 => frame[..6].fill(0xFF),
            1 => frame[..6].copy_from_slice(&[1, 0, 0x5E, 1, 2, 3]),
            2 => frame[5] ^= 4,
            3 => frame[12..14].copy_from_slice(&self.one_of(&[[0x81, 0], [8, 6], [0, 40], [0x88, 0x47]])),
            4..12 => frame.resize(frame.len() + self.below(30), 0xEE),
            12 => frame.truncate(17 + self.below(frame.len() - 17)),
            _ => {}
        }
        frame
    }

    fn ipv4(&mut self, payload: &[u8]) -> Vec<u8> {
        let from = match self.below(16) {
            0 => self.one_of(&[[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]]),
            _ => [198, 18, 0, 1],
        };
        let destinations = [[10, 0, 0, 1], [10, 1, 0, 1], [10, 1, 2, 1], [10, 1, 2, 3], [10, 1, 2, 200], [11, 0, 0, 1]];
        let to = match self.below(12) {
            0 => self.one_of(&[[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [239, 1, 2, 3], [255; 4]]),
            _ => self.one_of(&destinations),
        };
        let options = self.one_of(&[0_u8, 0, 0, 0, 0, 1, 2, 10]);
        let header = 20 + usize::from(options) * 4;
        let total = u16::try_from(header + payload.len()).expect("short");
        let total = match self.below(30) {
            0 => total + 1,
            1 => u16::try_from(header - 1).expect("short"),
            _ => total,
        };
        let (id, ttl) = (self.below(65536), self.one_of(&[64, 64, 64, 64, 255, 2, 1, 0]));
        let mut ip =
            [&[0x45 + options, 0], &total.to_be_bytes()[..], &id.to_be_bytes()[6..], &[0x40, 0, ttl, 253]].concat();
        ip.extend([&[0, 0], &from[..], &to].concat());
        ip.resize(header, 1);
        match self.below(30) {
            0 => ip[0] = 0x65,
            1 => ip[0] = 0x44,
            _ => {}
        }
        let mut ip = with_checksum(ip);
        if self.below(20) == 0 {
            ip[10] ^= 0x80;
        }
        frame(&[8, 0], &ip, payload)
    }

    fn ipv6(&mut self, payload: &[u8]) -> Vec<u8> {
        let from = match self.below(12) {
            0 => self.one_of(&["::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.0.1"]),
            _ => "2001:db9::1",
        };
        let destinations = ["2001:db8::1", "2001:db8:1::1", "2001:db8:1:2::1", "2001:db8:1:2::3", "2001:dba::1"];
        let to = match self.below(12) {
            0 => self.one_of(&["::1", "ff02::1", "ff0e::1", "fe80::1"]),
            _ => self.one_of(&destinations),
        };
        let length = payload.len() + usize::from(self.below(20) == 0);
        let hop_limit = self.one_of(&[64, 64, 64, 255, 2, 1, 0]);
        let mut ip = vec![self.one_of(&[0x60, 0x60, 0x6A, 0x60, 0x60, 0x60, 0x50, 0x60]), 0, 1, 2];
        ip.extend(u16::try_from(length).expect("short").to_be_bytes());
        ip.extend([253, hop_limit]);
        for address in [from, to] {
            ip.extend(address.parse::<Ipv6Addr>().expect("an address").octets());
        }
        frame(&[0x86, 0xDD], &ip, payload)
    }
}

/// A frame to the first port.
fn frame(ether_type: &[u8; 2], header: &[u8], payload: &[u8]) -> Vec<u8> {
    [&MACS[0], &SENDER, &ether_type[..], header, payload].concat()
}

/// Puts the checksum of RFC 1071 into a header that has zeros there.
fn with_checksum(mut header: Vec<u8>) -> Vec<u8> {
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!sum).to_be_bytes()[2..]);
    header
}

fn words([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
