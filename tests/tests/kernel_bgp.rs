//! A table that comes by BGP over a twin of `fwd l3 --kernel`, which it steers, while pings pass by the ports. Needs root; says why when it is
//! skipped.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use tests::{KernelRouter, Link, Namespace, Process, Suite, eventually, namespaces_possible};

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
const ROUTES: u32 = 20_000;
/// Of one of them, and of the right host.
const FAR: &str = "20.78.31.1";
/// Of the right host, by a route that comes last.
const LAST: &str = "198.51.100.1";

#[test]
fn a_table_comes_by_a_twin_and_no_packet_is_lost() {
    let possible = namespaces_possible(&["ping"]).and_then(|()| Suite::Bird.possible());
    if let Err(reason) = possible {
        skip::test!("{reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (left, right, mut router) = (Namespace::new(), Namespace::new(), KernelRouter::new(&LINKS));
    router.start(&[&left, &right]);
    let [to_left, to_right] = LINKS;
    right.output(&["ip", "link", "set", "lo", "up"]);
    for address in [FAR, LAST] {
        right.output(&["ip", "address", "add", address, "dev", "lo"]);
    }
    left.output(&["ip", "route", "add", "default", "via", to_left.router[0]]);
    right.output(&["ip", "route", "add", "10.87.0.0/24", "via", to_right.router[0]]);
    let forwards_alone = |to: &str| {
        let before = router.forwarded_by_the_host();
        left.pings(to, &["-c", "50"]) && router.forwarded_by_the_host() - before < 10
    };
    eventually("the ports forward by themselves", || forwards_alone(to_right.station[0]));

    let mut pings = Pings::start(&left, to_right.station[0]);
    let (ours, theirs) = (own(to_right), peer(to_right));
    let birds = [(&router.namespace, "own", ours), (&right, "peer", theirs)];
    // Without them their routes go.
    let _birds = birds.map(|(namespace, name, config)| bird(namespace, folder.path(), name, &config));
    eventually("the kernel has the table", || {
        router.namespace.output(&["ip", "route"]).lines().count() > ROUTES.try_into().expect("few")
    });
    // Events come in order: who knows of this one has been told of all before.
    router.namespace.output(&["ip", "route", "add", LAST, "via", to_right.station[0]]);
    eventually("the table is obeyed", || forwards_alone(LAST) && forwards_alone(FAR));
    println!("{} pings while the table came", pings.all_answered());
    let run = router.stop();
    let met = ["overflows", "interrupted", "malformed"].map(|what| run.count(&format!("/kernel/{what}")));
    println!("{met:?} overflows, interrupted reads and malformed messages");
    assert_eq!((met[0], met[2]), (0, 0), "overflows and malformed messages");
    assert_eq!(met[2], 0, "malformed: {}", run.json);
    assert!(run.count("/kernel/ipv4") > ROUTES.into(), "{}", run.json);
    let bgp = |what: &str| run.count(&format!("/kernel/twins/1/classes/bgp/{what}"));
    assert!(bgp("passed") > 10, "{}", run.json);
    println!("BGP: {} frames passed, {} were beyond their rate", bgp("passed"), bgp("dropped"));
}

/// Pings, of which there are a hundred a second.
const SINCE: u16 = 100;

/// A ping that goes on, and the numbers of what was answered.
struct Pings {
    process: Process,
    answered: Receiver<u16>,
}

impl Pings {
    fn start(from: &Namespace, to: &str) -> Self {
        let mut command = from.command(&["ping", "-n", "-i", "0.01", to]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("nsenter starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (tell, answered) = channel();
        std::thread::spawn(move || {
            // What is no answer, such as an error of a router, has no such beginning.
            let answers = lines.map_while(Result::ok).filter(|line| line.contains("bytes from"));
            let numbers = answers.filter_map(|line| line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse().ok());
            numbers.take_while(|number| tell.send(*number).is_ok()).for_each(drop);
        });
        Self { process: Process(child), answered }
    }

    /// Waits until each has been answered up to the last that has been so far, and some that were sent since. Returns how many these are.
    fn all_answered(&mut self) -> usize {
        let mut seen: BTreeSet<u16> = self.answered.try_iter().collect();
        let most = seen.last().copied().expect("some were answered") + SINCE;
        // An answer may be late on a busy machine.
        eventually("a ping is lost", || {
            seen.extend(self.answered.try_iter());
            (1..=most).all(|number| seen.contains(&number))
        });
        self.process.still_runs();
        most.into()
    }
}

/// Starts a BIRD.
fn bird(namespace: &Namespace, folder: &Path, name: &str, config: &str) -> Process {
    let path = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    fs::write(path("conf"), config).expect("a temporary file");
    let words = ["bird", "-f", "-c", &path("conf"), "-s", &path("control"), "-P", &path("pid")];
    Process(namespace.command(&words).spawn().expect("nsenter starts"))
}

/// What it learns by BGP it tells the kernel.
fn own(Link { router: [own, _], station: [peer, _], .. }: Link) -> String {
    format!(
        "router id {own};\nprotocol device {{ scan time 1; }}\nprotocol kernel {{ ipv4 {{ export all; }}; }}\n\
         protocol bgp {{ local {own} as 64501; neighbor {peer} as 64502; connect retry time 1; error wait time 1, 1;\n\
         ipv4 {{ import all; export none; }}; }}\n"
    )
}

/// All routes.
fn peer(Link { router: [router, _], station: [own, _], .. }: Link) -> String {
    let mut text = format!("router id {own};\nprotocol device {{ scan time 1; }}\nprotocol static {{ ipv4;\n");
    for number in 0..ROUTES {
        writeln!(text, "route 20.{}.{}.0/24 blackhole;", number >> 8, number & 255).expect("a string takes all");
    }
    text + &format!(
        "}}\nprotocol bgp {{ local {own} as 64502; neighbor {router} as 64501; connect retry time 1; error wait time 1, 1;\n\
         ipv4 {{ import none; export all; next hop self; }}; }}\n"
    )
}
