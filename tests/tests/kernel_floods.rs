//! `fwd l3 --kernel` between two hosts, all three Linux in namespaces: groups of next hops that are deleted while packets go by them,
//! redirects, and floods: of ARP and neighbour discovery, of what is not IP, of groups. Needs root; says why when it is skipped.

use std::process::Stdio;
use std::time::{Duration, Instant};
use tests::{KernelRouter, Link, Namespace, Process, eventually, namespaces_possible, received};

const LINKS: [Link; 2] = [
    Link {
        wire: "rwfa",
        twin: "rwt0",
        router: ["10.85.1.1", "2001:db8:31::1"],
        station: ["10.85.1.2", "2001:db8:31::2"],
    },
    Link {
        wire: "rwfb",
        twin: "rwt1",
        router: ["10.85.2.1", "2001:db8:32::1"],
        station: ["10.85.2.2", "2001:db8:32::2"],
    },
];
const LEFT: Link = LINKS[0];
const RIGHT: Link = LINKS[1];
/// An address of the right host that is on no link.
const BEYOND: &str = "203.0.113.1";

/// Asks for the address of a router, by ARP and by neighbour discovery, 20,000 times, as a station that is another one each time.
const ASKER: &str = r#"
import ipaddress, socket, struct, sys
interface, v4, v6 = sys.argv[1:]
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((interface, 0))
v4, v6 = ipaddress.ip_address(v4).packed, ipaddress.ip_address(v6).packed
group = bytes.fromhex("ff0200000000000000000001ff") + v6[13:]
def checksum(data):
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff
def arp(number):
    mac, own = b"\2\7" + struct.pack(">I", number), v4[:3] + bytes([number % 250 + 3])
    return b"\xff" * 6 + mac + b"\x08\x06" + bytes.fromhex("0001080006040001") + mac + own + bytes(6) + v4
def nd(number):
    mac, own = b"\2\7" + struct.pack(">I", number), v6[:12] + struct.pack(">I", number + 4096)
    asks = b"\0\0\0\0" + v6 + b"\1\1" + mac
    ends = own + group + struct.pack(">II", 4 + len(asks), 58)
    asks = b"\x87\0" + struct.pack(">H", checksum(ends + b"\x87\0\0\0" + asks)) + asks
    ip = struct.pack(">IHBB", 0x60000000, len(asks), 58, 255) + own + group
    return b"\x33\x33\xff" + v6[13:] + mac + b"\x86\xdd" + ip + asks
for number in range(10000):
    for frame in arp(number), nd(number):
        try:
            wire.send(frame)
        except OSError:
            pass
"#;

/// Sends 10,000 frames of MPLS to a station, and as many datagrams to a group beyond the link.
const JUNK: &str = r#"
import socket, sys
interface, own, station = sys.argv[1:]
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((interface, 0))
frame = bytes.fromhex(station.replace(":", "")) + b"\2\7\0\0\0\1\x88\x47" + bytes(46)
groups = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
groups.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
groups.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
for number in range(10000):
    try:
        wire.send(frame)
        groups.sendto(bytes(26), ("239.1.2.3", 5000))
    except OSError:
        pass
"#;

/// The kernel removes the routes of a group that is deleted without a word; what is below them leads the same way.
#[test]
fn groups_that_go_under_traffic_are_followed() {
    let Some(mut network) = Network::new(&["ping"]) else { return };
    network.right.output(&["ip", "address", "add", BEYOND, "dev", "lo"]);
    // Without a carrier there can be none.
    eventually("the ports forward by themselves", || network.forwards_without_the_host(RIGHT.station[0]));
    let ip = |words: &[&str]| network.router.namespace.succeeds(&[&["ip"][..], words].concat());
    let hop = |id: &str| ip(&["nexthop", "add", "id", id, "via", RIGHT.station[0], "dev", RIGHT.twin]);
    if !hop("11") {
        skip::test!("next hop objects: this kernel has none");
        return;
    }
    assert!(hop("12") && ip(&["nexthop", "add", "id", "13", "group", "11/12,3"]), "a group is made");
    assert!(ip(&["route", "add", "203.0.0.0/16", "via", RIGHT.station[0]]), "a way without it");
    assert!(ip(&["route", "add", "203.0.113.0/24", "nhid", "13"]), "a route by it");
    eventually("the ports forward by a group", || network.forwards_without_the_host(BEYOND));
    let pings = network.left.command(&["ping", "-q", "-i", "0.005", BEYOND]).stdout(Stdio::null()).spawn();
    let mut pings = Process(pings.expect("ping starts"));
    for gone in ["12", "13"] {
        assert!(ip(&["nexthop", "delete", "id", gone]), "{gone} is there");
        eventually("and by what is left of it", || network.forwards_without_the_host(BEYOND));
    }
    assert!(
        !network.router.namespace.output(&["ip", "route"]).contains("203.0.113.0/24"),
        "the kernel has no such route"
    );
    pings.still_runs();
    drop(pings);
    network.router.stop();
}

/// The left is many stations that want the router's address.
#[test]
fn floods_of_requests_are_policed_and_neighbours_found_again() {
    let Some(mut network) = Network::new(&["ping", "python3"]) else { return };
    eventually("the ports forward by themselves", || network.forwards_without_the_host(RIGHT.station[0]));
    let (before, begun) = (network.seen_by_the_host(), Instant::now());
    let words = ["python3", "-c", ASKER, LEFT.wire, LEFT.router[0], LEFT.router[1]];
    let mut asker = Process(network.left.command(&words).spawn().expect("python3 starts"));
    let status = asker.wait(Duration::from_secs(120)).expect("it ends");
    assert!(status.success(), "{status}");
    let asked = begun.elapsed();
    for to in RIGHT.station {
        eventually("the ports forward by themselves again", || network.forwards_without_the_host(to));
    }
    let seen = network.seen_by_the_host() - before;
    println!("20,000 requests in {asked:?}: the host saw {seen} frames");
    let run = network.router.stop();
    let links = |what: &str| run.count(&format!("/kernel/twins/0/classes/link/{what}"));
    let (passed, dropped) = (links("passed"), links("dropped"));
    println!("link control: {passed} passed, {dropped} dropped");
    assert!(passed > 256, "{passed}");
    // 5,000 a second and 256 at once, the manual of fwd says; what there was before and after, and what the wire still held.
    #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
    let (passed, most) = (passed as f64, 5000.0 * asked.as_secs_f64() + 256.0 + 500.0 + 1000.0);
    assert!(passed < most, "{passed} of at most {most}");
}

/// Each has a rate of its own, and so have ARP and what is for the router itself.
#[test]
fn floods_of_junk_and_groups_take_no_share_of_others() {
    let Some(mut network) = Network::new(&["ping", "python3"]) else { return };
    // A twin has its port's MAC address before it has a carrier; until then one of its own.
    eventually("the router is found and answers", || network.left.pings(LEFT.router[0], &["-c", "1"]));
    let shown = network.router.namespace.output(&["ip", "-brief", "link", "show", "dev", LEFT.twin]);
    let mac = shown.split_whitespace().nth(2).expect("a MAC address").to_owned();
    for _ in 0..2 {
        let words = ["python3", "-c", JUNK, LEFT.wire, LEFT.station[0], &mac];
        let mut junk = Process(network.left.command(&words).spawn().expect("python3 starts"));
        network.left.output(&["ip", "neigh", "flush", "dev", LEFT.wire]);
        eventually("the router is found and answers", || network.left.pings(LEFT.router[0], &["-c", "3"]));
        let status = junk.wait(Duration::from_secs(120)).expect("it ends");
        assert!(status.success(), "{status}");
    }
    let run = network.router.stop();
    let of =
        |class: &str| ["passed", "dropped"].map(|what| run.count(&format!("/kernel/twins/0/classes/{class}/{what}")));
    for class in ["other", "groups"] {
        // What the wire had no room for is lost before.
        assert!(of(class).iter().sum::<u64>() > 1000, "{class}: {:?}", of(class));
    }
    for class in ["link", "own"] {
        let [passed, dropped] = of(class);
        assert!(passed > 0 && passed < 1000 && dropped == 0, "{class}: {:?}", of(class));
    }
}

/// A packet comes from the left and goes back there, by another gateway that is known.
#[test]
fn who_could_go_by_another_gateway_is_told_so() {
    let Some(mut network) = Network::new(&["ping"]) else { return };
    let gateway = "10.85.1.77";
    let router = &network.router.namespace;
    router.output(&["ip", "route", "add", "203.0.113.0/24", "via", gateway]);
    // Of which ten a second go by Linux; all of the first do, until the port has the route. Linux soon says no more to a station
    // that does not obey, so each time it is another one.
    let (mut is_forwarded, mut last) = (false, 100);
    eventually("Linux sends a redirect for what the port mostly forwards by itself", || {
        last += 1;
        // Linux forgets it when the twin is given its MAC address.
        router.output(&["ip", "neighbour", "replace", gateway, "lladdr", "02:00:00:00:77:77", "dev", LEFT.twin]);
        let source = format!("10.85.1.{last}");
        network.left.output(&["ip", "address", "add", &source, "dev", LEFT.wire]);
        let before = network.seen_by_the_host();
        let words = ["ping", "-I", &source, "-i", "0.002", "-W", "1", "-c", "200", BEYOND];
        let ping = network.left.command(&words).output().expect("nsenter starts");
        let said = String::from_utf8_lossy(&ping.stdout);
        let was_forwarded = std::mem::replace(&mut is_forwarded, network.seen_by_the_host() - before < 150);
        was_forwarded && is_forwarded && said.contains("Redirect") && said.contains(gateway)
    });
    network.router.stop();
}

/// Two hosts and the router, which runs.
struct Network {
    left: Namespace,
    right: Namespace,
    router: KernelRouter,
}

impl Network {
    /// Makes it, unless this host cannot; then says why.
    fn new(tools: &[&str]) -> Option<Self> {
        if let Err(reason) = namespaces_possible(tools) {
            skip::test!("{reason}");
            return None;
        }
        let (left, right, mut router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
        router.start(&[&left, &right]);
        for (host, link) in [(&left, &LEFT), (&right, &RIGHT)] {
            host.output(&["ip", "link", "set", "lo", "up"]);
            for (family, gateway) in ["-4", "-6"].iter().zip(link.router) {
                host.output(&["ip", family, "route", "add", "default", "via", gateway]);
            }
        }
        Some(Self { left, right, router })
    }

    /// Frames that the router's Linux has received by its twins.
    fn seen_by_the_host(&self) -> u64 {
        LINKS.iter().map(|link| received(&self.router.namespace, link.twin)).sum()
    }

    /// Pings from the left. Returns whether all were answered and hardly any went by the router's Linux.
    fn forwards_without_the_host(&self, to: &str) -> bool {
        let before = self.seen_by_the_host();
        self.left.pings(to, &["-c", "20"]) && self.seen_by_the_host() - before < 20
    }
}
