//! FRR and BIRD steer `fwd l3 --kernel`: OSPF, OSPFv3, BGP and BFD over its twins, with the other program at the end of two links.
//! What they learn the ports do, and a link that goes moves it. Needs root; says why when it is skipped.

use std::sync::{Mutex, PoisonError};
use tests::{Daemons, KernelRouter, Link, Namespace, Speaker, Suite, eventually, namespaces_possible, received};

const LINKS: [Link; 3] = [
    Link {
        wire: "rwleft",
        twin: "rwt0",
        router: ["10.83.0.1", "2001:db8:10::1"],
        station: ["10.83.0.2", "2001:db8:10::2"],
    },
    Link {
        wire: "rwone",
        twin: "rwt1",
        router: ["10.83.1.1", "2001:db8:11::1"],
        station: ["10.83.1.2", "2001:db8:11::2"],
    },
    Link {
        wire: "rwtwo",
        twin: "rwt2",
        router: ["10.83.2.1", "2001:db8:12::1"],
        station: ["10.83.2.2", "2001:db8:12::2"],
    },
];
/// The network of the first link.
const LEFT: [&str; 2] = ["10.83.0.0/24", "2001:db8:10::/64"];
/// The two links to the other router.
const DOUBLE: [&Link; 2] = [&LINKS[1], &LINKS[2]];
/// What OSPF takes each of them to cost.
const COSTS: [u32; 2] = [10, 20];
/// Addresses of the other router that are on no link: OSPF announces two, and BGP two.
const BY_OSPF: [&str; 2] = ["203.0.113.1", "2001:db8:f0::1"];
const BY_BGP: [&str; 2] = ["198.51.100.1", "2001:db8:f1::1"];
/// Pings of which the host in the middle should forward next to nothing.
const PINGS: u64 = 50;
/// What a way back costs that no daemon announced. FRR takes the highest byte for a distance: all that it learns is nearer.
const LAST_RESORT: usize = 254 << 24;

#[test]
fn frr_steers_the_ports() {
    steered_by(Suite::Frr, Suite::Bird);
}

#[test]
fn bird_steers_the_ports() {
    steered_by(Suite::Bird, Suite::Frr);
}

/// Two stations, of which the right one is a router too, with two links.
struct Network {
    left: Namespace,
    right: Namespace,
    router: KernelRouter,
}

/// One at a time: what polls for two would have their daemons wait for a core, and BFD takes that for a broken link.
static TURN: Mutex<()> = Mutex::new(());

fn steered_by(suite: Suite, other: Suite) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let possible = namespaces_possible(&["ping"]).and_then(|()| suite.possible()).and_then(|()| other.possible());
    if let Err(reason) = possible {
        skip::test!("{reason}");
        return;
    }
    let mut network = Network::new();
    let [one, two] = DOUBLE;
    // To the left nobody answers, but the network is announced, and so is the way back.
    let ours = Speaker {
        id: "10.83.0.1",
        links: &[(LINKS[0].twin, 10), (one.twin, COSTS[0]), (two.twin, COSTS[1])],
        // BIRD 2.0 makes no route again by a link that comes back within five seconds.
        bfd: 30,
        ospf: &[],
        systems: [64501, 64502],
        peers: &[one.station, two.station].concat(),
        bgp: &[],
    };
    let theirs = Speaker {
        id: "10.83.0.9",
        links: &[(one.wire, COSTS[0]), (two.wire, COSTS[1])],
        bfd: 30,
        ospf: &BY_OSPF,
        systems: [64502, 64501],
        peers: &[one.router, two.router].concat(),
        bgp: &BY_BGP,
    };
    let daemons = [suite.start(&network.router.namespace, &ours), other.start(&network.right, &theirs)];
    network.learns();
    // Without it all the rest would work as well, but later. On each link one for IPv4, one for OSPFv3 and one for BGP by IPv6.
    let bird = &daemons[usize::from(suite == Suite::Frr)];
    eventually("BFD is up for all", || bird.bfd_sessions() == 3 * DOUBLE.len());
    // Both ends tell of each, to OSPF and OSPFv3.
    eventually("OSPF knows of both links", || COSTS.iter().all(|cost| bird.ospf_links(*cost) == 4));
    network.forwards_without_the_host();
    network.moves_with_the_links(bird);
    if suite == Suite::Frr {
        network.comes_back(&daemons[0]);
    }
    network.router.stop();
    drop(daemons);
}

impl Network {
    fn new() -> Self {
        let (left, right, router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
        for end in [&left, &right] {
            end.output(&["ip", "link", "set", "lo", "up"]);
        }
        for address in BY_OSPF.iter().chain(&BY_BGP) {
            right.output(&["ip", "address", "add", address, "dev", "lo"]);
        }
        let mut network = Self { left, right, router };
        network.start();
        network
    }

    /// Starts the router, and connects the others to it.
    fn start(&mut self) {
        let Self { left, right, router } = self;
        router.start(&[left, right, right]);
        for (family, gateway) in ["-4", "-6"].iter().zip(LINKS[0].router) {
            left.output(&["ip", family, "route", "add", "default", "via", gateway]);
        }
    }

    /// Killed and started again, under FRR, which goes on: the twins were there before, and so they stay. FRR 8.4 has to have seen that
    /// the links went: with one that is back before, it takes next hops for installed which the kernel has thrown away.
    fn comes_back(&mut self, frr: &Daemons) {
        // Else it would have nothing to withdraw.
        eventually("FRR knows all again", || BY_OSPF.iter().chain(&BY_BGP).all(|to| frr.has_route(to)));
        self.router.kill();
        let addresses = self.router.namespace.output(&["ip", "address", "show", LINKS[0].twin]);
        assert!(LINKS[0].router.iter().all(|own| addresses.contains(own)), "{addresses}");
        eventually("FRR has withdrawn what it learnt", || !BY_OSPF.iter().chain(&BY_BGP).any(|to| frr.has_route(to)));
        self.start();
        self.learns();
        self.forwards_without_the_host();
    }

    /// Routes of all protocols, which nobody has set.
    fn learns(&self) {
        for (protocol, addresses) in [("ospf", BY_OSPF), ("bgp", BY_BGP)] {
            for to in addresses {
                eventually(&format!("{protocol} tells of {to}, and a ping passes"), || self.reaches(to, &[]));
            }
        }
        for family in ["-4", "-6"] {
            println!("{}", self.router.namespace.output(&["ip", family, "route"]));
        }
    }

    fn forwards_without_the_host(&self) {
        for to in BY_OSPF.iter().chain(&BY_BGP) {
            eventually("the ports forward by themselves", || {
                let before = self.router.forwarded_by_the_host();
                let answered = self.reaches(to, &["-c", &PINGS.to_string()]);
                answered && self.router.forwarded_by_the_host() - before < PINGS / 5
            });
        }
    }

    /// One link goes, and what was learnt is reached by the other one; and back, once both routers have told OSPF that it went: they tell
    /// nothing anew for five seconds (`MinLSInterval`, RFC 2328 appendix B), and of a link that is back before then BIRD 2.0 makes no route.
    fn moves_with_the_links(&self, bird: &Daemons) {
        (0..DOUBLE.len()).for_each(|which| self.has_a_way_back(which));
        for (which, (down, other)) in [(DOUBLE[0], DOUBLE[1]), (DOUBLE[1], DOUBLE[0])].into_iter().enumerate() {
            self.right.output(&["ip", "link", "set", down.wire, "down"]);
            for to in BY_OSPF.iter().chain(&BY_BGP) {
                eventually(&format!("without {} {to} is reached by {}", down.wire, other.wire), || {
                    let before = received(&self.right, other.wire);
                    let answered = self.reaches(to, &["-c", &PINGS.to_string()]);
                    answered && received(&self.right, other.wire) - before >= PINGS
                });
            }
            eventually(&format!("OSPF knows no more of {}", down.wire), || bird.ospf_links(COSTS[which]) == 0);
            self.right.output(&["ip", "link", "set", down.wire, "up"]);
            // Linux takes the addresses of IPv6 away with the link.
            self.right.output(&[
                "ip",
                "address",
                "replace",
                &format!("{}/64", down.station[1]),
                "dev",
                down.wire,
                "nodad",
            ]);
            self.has_a_way_back(which);
            for to in BY_OSPF {
                eventually(&format!("{to} is reached by the cheaper link"), || {
                    let before = received(&self.right, DOUBLE[0].wire);
                    self.reaches(to, &["-c", &PINGS.to_string()])
                        && received(&self.right, DOUBLE[0].wire) - before >= PINGS
                });
            }
        }
    }

    /// Has answers find back by one of the two links for want of a better way. FRR 8.4 may keep a route by a link inactive for ever that came
    /// back just now, and it is not the router on the right which is tested.
    fn has_a_way_back(&self, which: usize) {
        let metric = (LAST_RESORT + which).to_string();
        for (network, gateway) in LEFT.iter().zip(DOUBLE[which].router) {
            let words = ["ip", "route", "replace", network, "via", gateway, "dev", DOUBLE[which].wire];
            self.right.output(&[&words[..], &["metric", &metric]].concat());
        }
    }

    /// Pings from the left, once unless the options say otherwise. Returns whether all were answered.
    fn reaches(&self, to: &str, options: &[&str]) -> bool {
        self.left.pings(to, options)
    }
}
