//! A follower and Linux's dumps, in a network namespace (root): what they pass over stays, and what is gone goes.

#![expect(clippy::unwrap_used, reason = "tests")]

use kernel::{Error, Event, Follower, Ports, Progress};
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

fn batch(commands: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    ip.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(ip.wait().unwrap().success());
}

/// Commands for so many routes within a prefix of 16 bits.
fn routes(verb: &str, within: &str, count: u32) -> String {
    (0..count).map(|net| format!("route {verb} blackhole {within}:0:{net:x}::/48\n")).collect()
}

/// Reads what there is, to the end of the dump that goes on.
fn read(follower: &mut Follower, sink: &mut dyn FnMut(Event<'_>)) {
    for _ in 0..1000 {
        if follower.read(1000, sink).unwrap() == Progress::Idle && !follower.is_dumping() {
            return;
        }
    }
    panic!("it has no end: {:?}", follower.counts());
}

fn held(follower: &Follower) -> Vec<String> {
    let mut prefixes: Vec<String> = follower.mirror().routes().map(|(prefix, _)| prefix.to_string()).collect();
    prefixes.sort();
    prefixes
}

/// Deletions of IPv6 routes are lost, and during each dump that compares routes in front go away and as many come behind: Linux then passes
/// over as many in between, others each time.
#[test]
fn dumps_that_pass_over_ipv6_routes_take_away_what_is_gone_and_end() {
    if !skip::has_namespace("dumps_that_pass_over_ipv6_routes_take_away_what_is_gone_and_end", &["ip", "link"]) {
        return;
    }
    let v4: String = (0..V4).map(|net| format!("route add blackhole 30.{}.{}.0/24\n", net >> 8, net & 255)).collect();
    batch(&(v4 + &routes("add", "fd20", LOST) + &routes("add", "fd30", STABLE) + &routes("add", "fd10", MOVED)));
    let mut follower = Follower::with_buffer(Ports::All, 208 << 10).unwrap();
    while follower.read(1000, &mut |_| {}).unwrap() != Progress::Loaded {}
    read(&mut follower, &mut |_| {});
    assert!(!follower.is_in_doubt());
    let before_v6 = follower.counts().messages - u64::from(LOST + STABLE + MOVED);

    batch(&routes("del", "fd20", LOST));
    let stays = |address: IpAddr| matches!(address, IpAddr::V6(address) if address.segments()[0] == 0xFD30);
    let mut wrongly_gone = Vec::new();
    let mut sink = |event: Event<'_>| {
        if let Event::Route { prefix, to: None } = event
            && stays(prefix.address)
        {
            wrongly_gone.push(prefix.to_string());
        }
    };
    read(&mut follower, &mut sink);
    assert!(follower.counts().overflows > 0 && follower.is_in_doubt());
    let (messages, mut dumps) = (follower.counts().messages, 0);
    while follower.is_in_doubt() {
        assert!(dumps < 40, "dumped without end: {:?}", follower.counts());
        // Elsewhere among the IPv6 routes each time. All tables are dumped if the mirror is in doubt.
        let before = if follower.mirror().is_in_doubt() { before_v6 } else { 0 };
        let midway = follower.counts().messages + before + 500 + dumps % 9 * 400;
        follower.resync().unwrap();
        while follower.counts().messages < midway {
            assert_eq!(follower.read(1, &mut sink), Ok(Progress::More));
        }
        batch(&(routes("del", "fd10", MOVED) + &routes("add", "fdf0", MOVED)));
        read(&mut follower, &mut sink);
        batch(&(routes("add", "fd10", MOVED) + &routes("del", "fdf0", MOVED)));
        read(&mut follower, &mut sink);
        dumps += 1;
    }
    println!("{dumps} dumps: {:?}", follower.counts());
    assert!(wrongly_gone.is_empty(), "{} in {dumps} dumps: {:?}", wrongly_gone.len(), follower.counts());
    assert!(dumps > 9, "no dump has passed over routes");
    // IPv4 routes are in no doubt, but for the overflow, and the routes that were lost.
    let messages = follower.counts().messages - messages;
    let most = dumps * u64::from(STABLE + 5 * MOVED + 100) + u64::from(3 * V4);
    assert!(messages < most, "{messages} messages in {dumps} dumps");

    let mut fresh = Follower::open(Ports::All).unwrap();
    while fresh.read(1000, &mut |_| {}).unwrap() != Progress::Loaded {}
    assert_eq!(held(&follower), held(&fresh));
}

/// Tables are asked for while the receive buffer is full of changes: Linux says that there is no room, and goes on once there is.
#[test]
fn a_dump_that_finds_the_buffer_full_goes_on_as_it_is_read() {
    if !skip::has_namespace("a_dump_that_finds_the_buffer_full_goes_on_as_it_is_read", &["ip", "link"]) {
        return;
    }
    // One of these numbers of changes fills it to the last byte, where Linux has room for its answer; of more it loses some.
    let mut follower = Follower::with_buffer(Ports::All, EVEN).unwrap();
    while follower.read(1000, &mut |_| {}).unwrap() != Progress::Loaded {}
    for changes in 1..40 {
        read(&mut follower, &mut |_| {});
        let kept = if changes % 2 == 1 {
            batch(&routes("add", "fd20", changes));
            changes
        } else {
            batch(&routes("del", "fd20", changes - 1));
            0
        };
        follower.resync().unwrap();
        read(&mut follower, &mut |_| {});
        while follower.is_in_doubt() {
            follower.resync().unwrap();
            read(&mut follower, &mut |_| {});
        }
        assert_eq!(held(&follower).len(), kept as usize, "{changes} changes: {:?}", follower.counts());
    }
    assert!(follower.counts().overflows > 0, "{:?}", follower.counts());
}

/// What still comes of it is passed over, and the tables stay as they are until another one has shown them.
#[test]
fn a_dump_that_is_given_up_is_made_anew() {
    if !skip::has_namespace("a_dump_that_is_given_up_is_made_anew", &["ip", "link"]) {
        return;
    }
    batch(&routes("add", "fd20", STABLE));
    let mut follower = Follower::open(Ports::All).unwrap();
    assert_eq!(follower.progress().map(|(_, messages)| messages), Some(0));
    assert!(matches!(follower.give_up(), Err(Error::Refused { .. })));
    assert!(follower.is_in_doubt() && !follower.is_dumping() && follower.progress().is_none());
    assert_eq!(follower.give_up(), Ok(()), "there is none");
    // While Linux still has something of the old one to say it refuses another.
    let until_certain = |follower: &mut Follower| {
        for _ in 0..1000 {
            let _ = follower.resync();
            while follower
                .read(1000, &mut |_| {})
                .is_ok_and(|progress| progress != Progress::Idle || follower.is_dumping())
            {}
            if !follower.is_in_doubt() {
                return;
            }
        }
        panic!("in doubt for ever: {:?}", follower.counts());
    };
    until_certain(&mut follower);
    assert_eq!(held(&follower).len(), STABLE as usize);

    let before = follower.counts().messages;
    follower.resync().unwrap();
    while follower.counts().messages < before + 1000 {
        assert_eq!(follower.read(1, &mut |_| {}), Ok(Progress::More));
    }
    assert!(follower.progress().is_some_and(|(_, messages)| messages > 0));
    assert!(follower.give_up().is_err());
    assert_eq!(held(&follower).len(), STABLE as usize);
    batch(&routes("add", "fd30", 1));
    until_certain(&mut follower);
    assert_eq!(held(&follower).len(), STABLE as usize + 1);
}

/// Bytes of a receive buffer of which Linux makes twice as many: a multiple of what a message of any usual size takes.
const EVEN: usize = 7680;
const V4: u32 = 3000;
const STABLE: u32 = 5000;
/// Enough that a receive buffer of 208 KiB has no room for their deletions.
const LOST: u32 = 2000;
const MOVED: u32 = 20;
