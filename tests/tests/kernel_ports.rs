//! Ports of `fwd l3 --kernel` that go away and come back: the switch behind a vhost-user port is killed and started again (DPDK's
//! `dpdk-testpmd`, which answers ARP and pings to any address). And one that goes for good: the `softnic` that serves a device is killed.
//! Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::{
    KernelRouter, Link, Namespace, Process, eventually, first_core, namespaces_possible, received, set, softnic,
};

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
/// Of the port with another process behind it.
const TWIN: &str = "rwt2";
const OWN: [&str; 2] = ["10.86.2.1", "2001:db8:62::1"];
/// On the right, and to be reached by the switch first.
const FAR: &str = "203.0.113.1";
const PINGS: u64 = 50;
/// At the other end of a device that another process serves, and its address.
const WIRE: &str = "rwbehind";
const STATION: &str = "10.86.2.2";

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

/// The twins that were there before stay, with their addresses; the one that `fwd` has made goes.
#[test]
fn a_device_that_is_gone_ends_the_router_with_all_its_twins() {
    if let Err(reason) = namespaces_possible(&["ping"]) {
        skip::test!("{reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let (left, right, behind) = (Namespace::new(), Namespace::new(), Namespace::new());
    let mut router = KernelRouter::new(&LINKS);
    let device = format!("vfio-user:{}", socket.display());
    router.add_port(TWIN, None, &device);
    let server = start_softnic(&behind, &socket);
    router.start(&[&left, &right]);
    let address = |namespace: &Namespace, interface: &str, address: &str| {
        namespace.output(&["ip", "link", "set", interface, "up"]);
        namespace.output(&["ip", "address", "add", &format!("{address}/24"), "dev", interface]);
    };
    eventually("fwd makes the twin", || router.namespace.succeeds(&["ip", "link", "show", TWIN]));
    address(&router.namespace, TWIN, OWN[0]);
    address(&behind, WIRE, STATION);
    for (namespace, gateway) in [(&left, LINKS[0].router[0]), (&behind, OWN[0])] {
        namespace.output(&["ip", "route", "add", "default", "via", gateway]);
    }
    eventually("packets pass by the device, and not by the host", || {
        let before = router.forwarded_by_the_host();
        let answered = left.pings(STATION, &["-c", &PINGS.to_string()]);
        answered && router.forwarded_by_the_host() - before < PINGS / 5
    });

    server.signal(Signal::KILL);
    let run = router.ended();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    // Beside what the log says.
    let said: Vec<&str> = run.stderr.lines().filter(|line| !line.trim_start().starts_with("WARN")).collect();
    let [line] = said[..] else { panic!("not one line: {}", run.stderr) };
    assert!(line.starts_with(&format!("fwd: {device}: gone")) && line.contains("start it again"), "{line}");
    assert!(run.count("/forwarded") >= PINGS, "what it did before is told: {}", run.json);
    assert!(!router.namespace.succeeds(&["ip", "link", "show", TWIN]), "the twin is gone");
    for Link { wire, twin, router: own, .. } in LINKS {
        let shown = || router.namespace.output(&["ip", "address", "show", twin]);
        assert!(own.iter().all(|address| shown().contains(address)), "{}", shown());
        eventually("a twin that was there before has no carrier", || shown().contains("NO-CARRIER"));
        let is_there = |end: &Namespace| end.succeeds(&["ip", "link", "show", wire]);
        assert!(![&left, &right].into_iter().any(is_there), "nothing holds {wire} any more");
    }
}

/// A `softnic` that serves a device at this socket, with the interface [`WIRE`] of a namespace at its other end.
fn start_softnic(namespace: &Namespace, socket: &Path) -> Process {
    let socket = socket.to_str().expect("a path in UTF-8");
    let program = softnic().to_str().expect("a path in UTF-8");
    let words = [program, "--quiet", socket, &format!("behind?wire=tap:{WIRE}")];
    let mut server = Process(namespace.command(&words).spawn().expect("nsenter starts"));
    eventually("softnic serves its device", || {
        server.still_runs();
        Path::new(socket).exists()
    });
    server
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
