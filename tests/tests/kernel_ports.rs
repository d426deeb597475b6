//! Ports of `fwd l3 --kernel` that go away and come back: the switch behind a vhost-user port is killed and started again (DPDK's
//! `dpdk-testpmd`, which answers ARP and pings to any address). Needs root; says why when it is skipped.

use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::{KernelRouter, Link, Namespace, Process, eventually, first_core, namespaces_possible, received, set};

const LINKS: [Link; 2] = [
    Link {
        wire: "rwleft",
        twin: "rwt0",
        router: ["10.86.0.1", "2001:db8:60::1"],
        station: ["10.86.0.2", "2001:db8:60::2"],
    },
    Link {
        wire: "rwright",
        twin: "rwt1",
        router: ["10.86.1.1", "2001:db8:61::1"],
        station: ["10.86.1.2", "2001:db8:61::2"],
    },
];
/// Of the port with a switch behind it.
const TWIN: &str = "rwt2";
const OWN: [&str; 2] = ["10.86.2.1", "2001:db8:62::1"];
/// On the right, and to be reached by the switch first.
const FAR: &str = "203.0.113.1";
const PINGS: u64 = 50;

#[test]
fn a_port_whose_peer_goes_takes_its_routes_away_until_it_is_back() {
    if let Err(reason) = namespaces_possible(&["ping", "dpdk-testpmd"]) {
        skip::test!("{reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let (left, right, mut router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
    right.output(&["ip", "link", "set", "lo", "up"]);
    right.output(&["ip", "address", "add", FAR, "dev", "lo"]);
    router.add_port(TWIN, Some(&OWN), &format!("vhost-user:{}", socket.display()));
    set(&router.namespace, "ipv4/conf/all/ignore_routes_with_linkdown=1");
    let mut switch = start_switch(folder.path(), &socket);
    router.start(&[&left, &right]);
    for (host, link) in [(&left, &LINKS[0]), (&right, &LINKS[1])] {
        host.output(&["ip", "route", "add", "default", "via", link.router[0]]);
    }
    for (gateway, metric) in [("10.86.2.2", "10"), (LINKS[1].station[0], "20")] {
        router.namespace.output(&["ip", "route", "add", "203.0.113.0/24", "via", gateway, "metric", metric]);
    }

    let ping = |to: &str| left.pings(to, &["-c", &PINGS.to_string()]);
    // By the ports themselves, and to the right or not.
    let goes = |router: &KernelRouter, to_the_right: bool| {
        let what = if to_the_right { "the other port takes over" } else { "the port with the switch is taken" };
        eventually(what, || {
            let (linux, before) = (router.forwarded_by_the_host(), received(&right, LINKS[1].wire));
            let answered = ping(FAR);
            let arrived = received(&right, LINKS[1].wire) - before >= PINGS;
            answered && arrived == to_the_right && router.forwarded_by_the_host() - linux < PINGS / 5
        });
    };
    for _ in 0..2 {
        eventually("the twin has a carrier", || has_carrier(&router.namespace));
        goes(&router, false);
        drop(switch);
        eventually("the twin has lost its carrier", || !has_carrier(&router.namespace));
        eventually("the others go on", || ping(LINKS[1].station[0]));
        goes(&router, true);
        switch = start_switch(folder.path(), &socket);
    }
    goes(&router, false);
    router.kill();
}

/// A switch that answers by itself, with its socket at this path.
fn start_switch(folder: &Path, socket: &Path) -> Process {
    let log = File::create(folder.join("testpmd.log")).expect("a temporary file");
    let core = first_core();
    let mut command = Command::new("dpdk-testpmd");
    // Where it has its run-time files.
    command.env("RUNTIME_DIRECTORY", folder);
    command.args(["--lcores", &format!("0@{core},1@{core}"), "--no-pci", "--no-telemetry", "--no-huge", "-m", "256"]);
    command.args(["--no-shconf", "--vdev", &format!("net_vhost0,iface={}", socket.display())]);
    command.args(["--", "--total-num-mbufs=8192", "--nb-cores=1", "--forward-mode=icmpecho", "--no-flush-rx"]);
    // It ends when there is nothing more to read.
    command.stdin(Stdio::piped()).stdout(log.try_clone().expect("another descriptor")).stderr(log);
    // One that was killed has left its socket.
    let _ = std::fs::remove_file(socket);
    let mut switch = Process(command.spawn().expect("testpmd starts"));
    eventually("testpmd listens", || {
        switch.still_runs();
        socket.exists()
    });
    switch
}

fn has_carrier(router: &Namespace) -> bool {
    let text = router.output(&["ip", "-json", "link", "show", "dev", TWIN]);
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    links[0]["flags"].as_array().expect("flags").iter().any(|flag| flag == "LOWER_UP")
}
