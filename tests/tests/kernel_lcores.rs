//! `fwd l3 --kernel` with two lcores between two hosts, all three Linux in namespaces: a port for each lcore, and then a queue of each
//! port. What one lcore cannot forward yet may wait for what comes to the other. Needs root; says why when it is skipped.

use serde_json::Value;
use tests::{Fwd, KernelRouter, Link, Namespace, cores, eventually, namespaces_possible, set};

const LINKS: [Link; 2] = [
    Link {
        wire: "rwleft",
        twin: "rwt0",
        router: ["10.87.0.1", "2001:db8:70::1"],
        station: ["10.87.0.2", "2001:db8:70::2"],
    },
    Link {
        wire: "rwright",
        twin: "rwt1",
        router: ["10.87.1.1", "2001:db8:71::1"],
        station: ["10.87.1.2", "2001:db8:71::2"],
    },
];
/// Further addresses of each host, of which nobody has heard yet: the last number of each, IPv4 and IPv6.
const STRANGERS: [&[u64]; 2] = [&[10, 11, 12, 13, 14, 15, 16, 17], &[20, 21, 22, 23]];
const PINGS: u64 = 50;

#[test]
fn two_lcores_with_a_port_each_ask_for_each_other() {
    let Some([first, last]) = two_cores() else { return };
    let run = routes(&format!("(0,0,{first}),(1,0,{last})"));
    for port in 0..2 {
        assert_eq!(queues(&run, port).len(), 1, "{}", run.json);
    }
}

/// Which queue a flow comes to is a hash over its addresses, and each of the two gets some of twelve.
#[test]
fn two_lcores_with_a_queue_of_each_port_share_its_host() {
    let Some([first, last]) = two_cores() else { return };
    let run = routes(&format!("(0,0,{first}),(0,1,{last}),(1,0,{last}),(1,1,{first})"));
    for port in 0..2 {
        let queues = queues(&run, port);
        assert!(queues.len() == 2 && queues.iter().all(|packets| *packets >= PINGS), "{queues:?}: {}", run.json);
    }
}

/// Two cores that this process may use, unless this host cannot do the rest either; then says why.
fn two_cores() -> Option<[usize; 2]> {
    if let Err(reason) = namespaces_possible(&["ping"]) {
        skip::test!("{reason}");
        return None;
    }
    match cores()[..] {
        [first, .., last] => Some([first, last]),
        _ => {
            skip::test!("two lcores: this process may use one core only");
            None
        }
    }
}

/// Runs a router whose queues are polled so, and has it do all that it can. Returns what it says at its end.
fn routes(lcores: &str) -> Fwd {
    let (left, right, mut router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
    router.set_lcores(lcores);
    router.start(&[&left, &right]);
    let hosts = [&left, &right];
    for (host, Link { router: gateways, wire, station, twin, .. }) in hosts.iter().zip(LINKS) {
        for ((gateway, prefix), numbers) in gateways.iter().zip(prefixes(station)).zip(STRANGERS) {
            let family = if gateway.contains(':') { "-6" } else { "-4" };
            host.output(&["ip", family, "route", "add", "default", "via", gateway]);
            for number in numbers {
                let bits = if family == "-6" { "64" } else { "24" };
                let address = format!("{prefix}{number}/{bits}");
                host.output(&["ip", "address", "add", &address, "dev", wire, "nodad"]);
            }
        }
        // A packet that waits for an answer gives up with the one who asks, and a busy machine may keep the answer for seconds.
        for family in ["ipv4", "ipv6"] {
            set(&router.namespace, &format!("{family}/neigh/{twin}/mcast_solicit=100"));
        }
    }
    let by_themselves = |from: &Namespace, to: &str| {
        eventually(&format!("the ports forward by themselves to {to}"), || {
            let before = router.forwarded_by_the_host();
            let answered = from.pings(to, &["-c", &PINGS.to_string()]);
            answered && router.forwarded_by_the_host() - before < PINGS / 5
        });
    };
    for (from, to) in [(&left, &LINKS[1]), (&right, &LINKS[0])] {
        to.station.iter().for_each(|to| by_themselves(from, to));
    }
    for (from, far, near) in [(&left, &LINKS[1], &LINKS[0]), (&right, &LINKS[0], &LINKS[1])] {
        let strangers = prefixes(far.station).into_iter().zip(STRANGERS);
        let strangers =
            strangers.flat_map(|(prefix, numbers)| numbers.iter().map(move |last| format!("{prefix}{last}")));
        for to in strangers {
            assert!(from.pings(&to, &["-W", "90"]), "the packet that waits for {to} is sent once it is known");
            by_themselves(from, &to);
        }
        for to in near.router.iter().chain(&far.router) {
            // Once there were answers, ping does not wait long for the last.
            eventually(&format!("the host answers for {to}"), || from.pings(to, &["-c", &PINGS.to_string()]));
        }
    }
    let run = router.stop();
    let workers = run.json.pointer("/workers").and_then(Value::as_array).expect("workers");
    assert_eq!(workers.len(), 2, "{}", run.json);
    for port in 0..2 {
        let passed = |class: &str| run.count(&format!("/kernel/twins/{port}/classes/{class}/passed"));
        let strangers = STRANGERS.iter().map(|numbers| numbers.len() as u64).sum();
        assert!(passed("unresolved") >= strangers, "each was asked for: {}", run.json);
        // Two addresses of each family are pinged, the near one's and the far one's.
        assert!(passed("own") >= 4 * PINGS, "{}", run.json);
        assert!(run.count(&format!("/kernel/twins/{port}/from_host")) >= 4 * PINGS, "{}", run.json);
    }
    run
}

/// What the addresses of a network begin with: those of a station end in 2.
fn prefixes(station: [&str; 2]) -> [String; 2] {
    station.map(|address| address.strip_suffix('2').expect("as above").to_owned())
}

/// The packets of each receive queue of a port.
fn queues(run: &Fwd, port: usize) -> Vec<u64> {
    let queues = run.json.pointer(&format!("/ports/{port}/rx_queues")).and_then(Value::as_array).expect("queues");
    queues.iter().map(|queue| queue["packets"].as_u64().expect("a count")).collect()
}
