//! A table that comes by BGP over a twin of `fwd l3 --kernel`, which it steers, while pings pass by the ports. Needs root; says why when it is
//! skipped.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
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
/// Of the last of them, and of the right host.
const FAR: &str = "20.78.31.1";

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
    right.output(&["ip", "address", "add", FAR, "dev", "lo"]);
    left.output(&["ip", "route", "add", "default", "via", to_left.router[0]]);
    right.output(&["ip", "route", "add", "10.87.0.0/24", "via", to_right.router[0]]);
    let forwards_alone = |to: &str| {
        let before = router.forwarded_by_the_host();
        left.pings(to, &["-c", "50"]) && router.forwarded_by_the_host() - before < 10
    };
    eventually("the ports forward by themselves", || forwards_alone(to_right.station[0]));

    let done = AtomicBool::new(false);
    let lots = std::thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            let mut lots = 0;
            while !done.load(Ordering::Acquire) {
                // An answer may be late on a busy machine.
                assert!(left.pings(to_right.station[0], &["-c", "100", "-W", "20"]), "a ping is lost");
                lots += 1;
            }
            lots
        });
        let (ours, theirs) = (own(to_right), peer(to_right));
        let birds = [(&router.namespace, "own", ours), (&right, "peer", theirs)];
        let birds = birds.map(|(namespace, name, config)| bird(namespace, folder.path(), name, &config));
        eventually("the table has come, or a ping is lost", || pinging.is_finished() || forwards_alone(FAR));
        done.store(true, Ordering::Release);
        let lots = pinging.join().expect("no ping is lost");
        // Without it their routes go.
        (lots, birds)
    });
    let run = router.stop();
    println!("{} lots of 100 pings while the table came", lots.0);
    let met = ["overflows", "interrupted", "malformed"].map(|what| run.count(&format!("/kernel/{what}")));
    println!("{met:?} overflows, interrupted reads and malformed messages");
    assert_eq!(met[2], 0, "malformed: {}", run.json);
    assert!(run.count("/kernel/ipv4") > ROUTES.into(), "{}", run.json);
    let bgp = |what: &str| run.count(&format!("/kernel/twins/1/classes/bgp/{what}"));
    assert!(bgp("passed") > 10, "{}", run.json);
    println!("BGP: {} frames passed, {} were beyond their rate", bgp("passed"), bgp("dropped"));
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
