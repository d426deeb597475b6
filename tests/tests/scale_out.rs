//! Two `fwd l3 --kernel` side by side between two hosts, with BIRD on all four: flows are spread over both by ECMP, and BFD notices when
//! one is frozen. It is killed, and comes back. How long flows were interrupted is printed; what is asserted is that they go on. Needs root;
//! says why when it is skipped.

use rustix::process::Signal;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tests::{Daemons, KernelRouter, Link, Namespace, Speaker, Suite, eventually, namespaces_possible, received, set};

/// To the left and to the right, of each router.
const LINKS: [[Link; 2]; 2] = [
    [
        Link {
            wire: "rwla",
            twin: "rwt0",
            router: ["10.84.0.1", "2001:db8:20::1"],
            station: ["10.84.0.2", "2001:db8:20::2"],
        },
        Link {
            wire: "rwra",
            twin: "rwt1",
            router: ["10.84.1.1", "2001:db8:21::1"],
            station: ["10.84.1.2", "2001:db8:21::2"],
        },
    ],
    [
        Link {
            wire: "rwlb",
            twin: "rwt0",
            router: ["10.84.2.1", "2001:db8:22::1"],
            station: ["10.84.2.2", "2001:db8:22::2"],
        },
        Link {
            wire: "rwrb",
            twin: "rwt1",
            router: ["10.84.3.1", "2001:db8:23::1"],
            station: ["10.84.3.2", "2001:db8:23::2"],
        },
    ],
];
/// Addresses of the hosts that are on no link, which BIRD announces.
const HOSTS: [&str; 2] = ["198.51.100.1", "203.0.113.1"];
const PORT: u16 = 9000;
/// Enough that none of two routers is left without.
const FLOWS: usize = 32;
/// Between two datagrams of a flow.
const PACE: Duration = Duration::from_millis(5);
/// Without datagrams for so long, a flow counts as interrupted: less may be the machine's doing.
const INTERRUPTED: Duration = Duration::from_millis(500);
/// Datagrams of each flow by which it is seen to go on.
const MORE: u64 = 20;

#[test]
fn flows_go_on_when_a_router_is_frozen_killed_and_back() {
    let possible = namespaces_possible(&[]).and_then(|()| Suite::Bird.possible());
    if let Err(reason) = possible {
        skip::test!("{reason}");
        return;
    }
    let hosts = [Namespace::new(), Namespace::new()];
    for (host, address) in hosts.iter().zip(HOSTS) {
        host.output(&["ip", "link", "set", "lo", "up"]);
        host.output(&["ip", "address", "add", address, "dev", "lo"]);
        set(host, "ipv4/fib_multipath_hash_policy=1");
        set(host, "ipv4/conf/all/rp_filter=0");
    }
    let mut routers = LINKS.map(|links| KernelRouter::new(&links));
    let ends = [&hosts[0], &hosts[1]];
    routers.iter_mut().for_each(|router| router.start(&ends));
    let daemons = daemons(&hosts, &routers);
    let flows = Flows::start(&hosts);

    spread(&hosts, &routers, &flows);
    let of_hosts = &daemons[..hosts.len()];
    // With each router one for IPv4 and one for IPv6.
    eventually("BFD is up", || of_hosts.iter().all(|bird| bird.bfd_sessions() == 2 * routers.len()));
    let first = &mut routers[0];
    let (before, logs) = (flows.look(), of_hosts.iter().map(|bird| bird.logs().len()));
    let logs: Vec<usize> = logs.collect();
    first.signal(Signal::STOP);
    flows.go_on("while a router is frozen");
    println!("frozen: {}", flows.interrupted(&before));
    of_hosts.iter().zip(logs).for_each(|(bird, before)| noticed_by_bfd(bird, before));

    let before = flows.look();
    first.kill();
    flows.go_on("after it is killed");
    println!("killed: {}", flows.interrupted(&before));

    let before = flows.look();
    first.start(&ends);
    spread(&hosts, &routers, &flows);
    println!("back: {}", flows.interrupted(&before));
    println!("{}", flows.stop());

    for run in routers.each_mut().map(KernelRouter::stop) {
        let (forwarded, to_host) = (run.count("/forwarded"), run.count("/to_host"));
        assert!(forwarded > MORE, "{forwarded} frames forwarded, {to_host} left to Linux");
    }
}

/// BIRD on the hosts and on the routers.
fn daemons(hosts: &[Namespace; 2], routers: &[KernelRouter; 2]) -> Vec<Daemons> {
    let start = |namespace: &Namespace, id: &str, links: [&str; 2], ospf: &[&str]| {
        let links = links.map(|link| (link, 10));
        Suite::Bird
            .start(namespace, &Speaker { id, links: &links, bfd: 10, ospf, systems: [1, 1], peers: &[], bgp: &[] })
    };
    let mut daemons = Vec::new();
    for (end, (host, address)) in hosts.iter().zip(HOSTS).enumerate() {
        daemons.push(start(host, address, LINKS.map(|links| links[end].wire), &[address]));
    }
    for (router, links) in routers.iter().zip(LINKS) {
        daemons.push(start(&router.namespace, links[0].router[0], links.map(|link| link.twin), &[]));
    }
    daemons
}

/// Waits until all flows arrive, and by both routers: more than what BIRDs say to each other, and most not by the routers' Linux.
fn spread(hosts: &[Namespace; 2], routers: &[KernelRouter; 2], flows: &Flows) {
    eventually("flows arrive by both routers", || {
        let wires = || LINKS.map(|links| received(&hosts[1], links[1].wire));
        let by_linux = || [&routers[0], &routers[1]].map(KernelRouter::forwarded_by_the_host);
        let (before, linux, arrived) = (wires(), by_linux(), flows.arrived());
        flows.go_on("while both routers are up");
        let (after, linux_after, arrived) = (wires(), by_linux(), flows.arrived() - arrived);
        (0..2).all(|router| {
            let by_router = after[router] - before[router];
            by_router > arrived / 8 && linux_after[router] - linux[router] < by_router / 2
        })
    });
}

/// Waits until a host's OSPF gives up a neighbour by BFD, which is before it has missed its hellos for ten seconds; `before` is the length
/// of the log before the router was frozen.
fn noticed_by_bfd(bird: &Daemons, before: usize) {
    let since = || bird.logs().split_off(before);
    let by_bfd = |log: &str| log.find("BFD session down for nbr");
    eventually("BFD notices", || by_bfd(&since()).is_some());
    let log = since();
    let until = &log[..by_bfd(&log).unwrap_or(log.len())];
    assert!(!until.contains("Inactivity timer expired"), "{log}");
}

/// Datagrams from left to right all the time.
struct Flows {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    arrived: Mutex<Vec<Arrived>>,
    sent: AtomicU64,
    stop: AtomicBool,
}

/// Of a flow.
#[derive(Clone, Copy)]
struct Arrived {
    datagrams: u64,
    last: Instant,
    /// The longest time between two, since when it was looked at last.
    gap: Duration,
}

impl Flows {
    fn start(hosts: &[Namespace; 2]) -> Self {
        let shared = Arc::new(Shared::default());
        let nothing = Arrived { datagrams: 0, last: Instant::now(), gap: Duration::ZERO };
        lock(&shared.arrived).extend([nothing; FLOWS]);
        let (of_sender, of_receiver) = (Arc::clone(&shared), Arc::clone(&shared));
        let [left, right] = hosts;
        let threads = vec![left.spawn(move || send(&of_sender)), right.spawn(move || receive(&of_receiver))];
        Self { shared, threads }
    }

    /// What has arrived; from now on gaps are counted anew.
    fn look(&self) -> Vec<Arrived> {
        let mut arrived = lock(&self.shared.arrived);
        let now = arrived.clone();
        arrived.iter_mut().for_each(|flow| flow.gap = Duration::ZERO);
        now
    }

    /// The number of datagrams that have arrived.
    fn arrived(&self) -> u64 {
        lock(&self.shared.arrived).iter().map(|flow| flow.datagrams).sum()
    }

    /// Waits until more of all flows arrives.
    fn go_on(&self, when: &str) {
        let before: Vec<u64> = lock(&self.shared.arrived).iter().map(|flow| flow.datagrams).collect();
        eventually(&format!("all flows go on {when}"), || {
            lock(&self.shared.arrived).iter().zip(&before).all(|(flow, before)| flow.datagrams >= before + MORE)
        });
    }

    /// Says how long flows have been interrupted since then.
    fn interrupted(&self, before: &[Arrived]) -> String {
        let now = self.look();
        let mut gaps: Vec<Duration> = now.iter().map(|flow| flow.gap).collect();
        gaps.sort();
        let datagrams: u64 = now.iter().zip(before).map(|(now, before)| now.datagrams - before.datagrams).sum();
        let moved = gaps.iter().filter(|gap| **gap > INTERRUPTED).count();
        let longest = gaps.last().copied().unwrap_or_default();
        format!("{datagrams} datagrams arrived; {moved} of {FLOWS} flows interrupted, at most for {longest:.0?}")
    }

    /// Ends them. Says what has been lost.
    fn stop(mut self) -> String {
        self.shared.stop.store(true, Ordering::Release);
        self.threads.drain(..).for_each(|thread| thread.join().expect("it has not panicked"));
        let sent = self.shared.sent.load(Ordering::Relaxed);
        let arrived = self.arrived();
        assert!(arrived <= sent, "{arrived} of {sent} datagrams arrived");
        format!("{} of {sent} datagrams were lost", sent - arrived)
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A datagram of each flow in turn. What there is no route for is not sent.
fn send(shared: &Shared) {
    let socket = |_| UdpSocket::bind((HOSTS[0], 0)).expect("an address of the left");
    let sockets: Vec<UdpSocket> = (0..FLOWS).map(socket).collect();
    while !shared.stop.load(Ordering::Acquire) {
        for (flow, socket) in sockets.iter().enumerate() {
            let number = u8::try_from(flow).expect("few flows");
            if socket.send_to(&[number; 20], (HOSTS[1], PORT)).is_ok() {
                shared.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(PACE);
    }
}

fn receive(shared: &Shared) {
    let socket = UdpSocket::bind((HOSTS[1], PORT)).expect("an address of the right");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
    let mut datagram = [0; 64];
    while !shared.stop.load(Ordering::Acquire) {
        let Ok(20) = socket.recv(&mut datagram) else { continue };
        let (mut arrived, now) = (lock(&shared.arrived), Instant::now());
        let flow = &mut arrived[usize::from(datagram[0])];
        if flow.datagrams > 0 {
            flow.gap = flow.gap.max(now - flow.last);
        }
        (flow.datagrams, flow.last) = (flow.datagrams + 1, now);
    }
}
