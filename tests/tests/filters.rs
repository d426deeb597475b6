//! Whether Linux has filters and shapers that packets of a data path do not meet: nftables and tc, in a network namespace (root); and which
//! groups it wants the frames of.

use kernel::{Follower, Ipsec, Ports, RECEIVE_BUFFER};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tests::{Namespace, eventually, namespaces_possible};

#[test]
fn rules_of_nftables_are_found_and_tables_without_rules_are_not() {
    if let Err(reason) = namespaces_possible(&["nft"]) {
        skip::test!("{reason}");
        return;
    }
    let chain = "add chain inet t c { type filter hook forward priority 0; }";
    if !Namespace::new().succeeds(&["nft", &format!("add table inet t; {chain}; add rule inet t c counter")]) {
        skip::test!("this kernel has no nf_tables");
        return;
    }
    let namespace = Namespace::new();
    let has = || namespace.within(plane::has_nft_rules);
    assert_eq!(has(), Some(false));
    namespace.output(&["nft", "add", "table", "inet", "t"]);
    namespace.output(&["nft", chain]);
    assert_eq!(has(), Some(false));
    namespace.output(&["nft", "add", "rule", "inet", "t", "c", "counter"]);
    assert_eq!(has(), Some(true));
    namespace.output(&["nft", "flush", "ruleset"]);
    assert_eq!(has(), Some(false));
}

/// A chain drops by its policy, without a rule; one that no packet comes to has none.
#[test]
fn chains_that_drop_are_found() {
    if let Err(reason) = namespaces_possible(&["nft"]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    let has = || namespace.within(plane::has_nft_rules);
    namespace.output(&["nft", "add", "table", "ip6", "t"]);
    namespace.output(&["nft", "add", "chain", "ip6", "t", "none"]);
    for (policy, expected) in [("accept", false), ("drop", true), ("accept", false)] {
        let chain = format!("{{ type filter hook forward priority 0; policy {policy}; }}");
        namespace.output(&["nft", "add", "chain", "ip6", "t", "c", &chain]);
        assert_eq!(has(), Some(expected), "{policy}");
    }
}

#[test]
fn tc_filters_are_found_wherever_they_are() {
    if let Err(reason) = namespaces_possible(&["tc"]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    namespace.output(&["ip", "tuntap", "add", "t0", "mode", "tap"]);
    // What /sys shows is of the namespace in which it was mounted.
    let shown = namespace.output(&["ip", "-oneline", "link", "show", "t0"]);
    let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
    let has = || namespace.within(|| plane::has_tc_filters(index));
    let tc = |words: &str| {
        let words: Vec<&str> = ["tc"].into_iter().chain(words.split(' ')).collect();
        namespace.output(&words);
    };
    assert_eq!(has(), Some(false));
    let filter = "protocol ip prio 1 u32 match u32 0 0 flowid 1:1";
    let probe =
        format!("tc qdisc add dev t0 clsact && tc filter add dev t0 ingress {filter} && tc qdisc del dev t0 clsact");
    if !namespace.succeeds(&["sh", "-c", &probe]) {
        skip::test!("this kernel has no clsact or u32");
        return;
    }
    tc("qdisc add dev t0 clsact");
    assert_eq!(has(), Some(false));
    for side in ["ingress", "egress"] {
        tc(&format!("filter add dev t0 {side} {filter}"));
        assert_eq!(has(), Some(true), "{side}");
        tc(&format!("filter del dev t0 {side}"));
        assert_eq!(has(), Some(false), "{side}");
    }
}

#[test]
fn queues_that_were_set_are_found_and_those_of_the_kernel_are_not() {
    if let Err(reason) = namespaces_possible(&["tc"]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    for name in ["t0", "t1"] {
        namespace.output(&["ip", "tuntap", "add", name, "mode", "tap"]);
        namespace.output(&["ip", "link", "set", name, "up"]);
    }
    let shown = namespace.output(&["ip", "-oneline", "link", "show", "t1"]);
    let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
    let has = || namespace.within(plane::queues);
    assert_eq!(has(), Some(Vec::new()));
    for (kind, settings) in [
        ("tbf", "rate 10mbit burst 10k latency 50ms"),
        ("htb", "default 1"),
        ("prio", ""),
        ("netem", "delay 1ms"),
        ("cake", "bandwidth 10mbit"),
        ("sfq", ""),
    ] {
        let words: Vec<&str> = ["tc", "qdisc", "replace", "dev", "t1", "root", kind]
            .into_iter()
            .chain(settings.split(' ').filter(|word| !word.is_empty()))
            .collect();
        if !namespace.succeeds(&words) {
            skip::test!("this kernel has no queue {kind}");
            continue;
        }
        assert_eq!(has(), Some(vec![(index, kind.to_owned())]));
    }
    for kind in ["fq", "fq_codel", "pfifo_fast"] {
        if namespace.succeeds(&["tc", "qdisc", "replace", "dev", "t1", "root", kind]) {
            assert_eq!(has(), Some(Vec::new()), "{kind}");
        }
    }
    // What comes in has no queue.
    if namespace.succeeds(&["tc", "qdisc", "add", "dev", "t1", "clsact"]) {
        assert_eq!(has(), Some(Vec::new()));
    }
}

/// Each is told of before the command that makes it has ended.
#[test]
fn changes_of_ipsec_policies_are_told() {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    let policy = |what: &str, action: &[&str]| {
        let words = ["ip", "xfrm", "policy", what, "dir", "fwd", "src", "10.0.0.0/8", "dst", "192.0.2.0/24"];
        namespace.succeeds(&[&words[..], action].concat())
    };
    let ipsec = namespace.within(Ipsec::open).expect("a socket");
    let Some(mut ipsec) = ipsec.filter(|_| policy("add", &["action", "block"]) && policy("delete", &[])) else {
        skip::test!("this kernel has no IPsec policies");
        return;
    };
    assert!(ipsec.changes().is_some() && ipsec.has_changed(), "both of before");
    for (what, action, policies) in [("add", &["action", "block"][..], 1), ("delete", &[], 0)] {
        assert!(!ipsec.has_changed(), "nothing new");
        assert!(policy(what, action), "{what}");
        assert!(ipsec.has_changed(), "{what}");
        assert_eq!(ipsec.policies(), Some(policies), "{what}");
    }
    assert!(!ipsec.has_changed());
    // What meets no policy may be blocked too.
    for (way, policies) in [("fwd", 1), ("out", 1), ("in", 0)] {
        let set = |action: &str| namespace.succeeds(&["ip", "xfrm", "policy", "setdefault", way, action]);
        if !set("block") {
            skip::test!("this kernel has no default of IPsec policies");
            break;
        }
        assert!(ipsec.has_changed(), "{way}");
        assert_eq!(ipsec.policies(), Some(policies), "{way}");
        assert!(set("accept"), "{way}");
        assert_eq!((ipsec.has_changed(), ipsec.policies()), (true, Some(0)), "{way}");
    }
    // A thread without the capability is told nothing, and knows that.
    let (changes, policies) = namespace.within(|| {
        without_capabilities();
        let mut ipsec = Ipsec::open().expect("a socket").expect("as before");
        (ipsec.changes().is_some(), ipsec.policies())
    });
    assert_eq!((changes, policies), (false, None));
}

/// Without the capability there is as much as the system's limit lets anybody have.
#[test]
fn a_receive_buffer_that_was_cut_is_told() {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    let cut = || Follower::open(Ports::All).expect("a socket").cut_buffer();
    assert_eq!(namespace.within(cut), None);
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("a limit");
    let limit: usize = limit.trim().parse().expect("a number");
    let expected = Some(limit).filter(|limit| *limit < RECEIVE_BUFFER);
    let cut = namespace.within(|| {
        without_capabilities();
        cut()
    });
    assert_eq!(cut, expected);
}

/// Of this thread.
fn without_capabilities() {
    let mut sets = capabilities(None).expect("this thread's");
    sets.effective = CapabilitySet::empty();
    set_capabilities(None, sets).expect("fewer are allowed");
}

#[test]
fn groups_are_those_of_an_interface_and_of_what_is_on_it() {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    for words in ["tuntap add t0 mode tap", "tuntap add t1 mode tap", "link set t0 up"] {
        namespace.output(&["ip"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    }
    let shown = namespace.output(&["ip", "-oneline", "link", "show", "t0"]);
    let index: u32 = shown.split(':').next().unwrap().parse().unwrap();
    let has = |group: [u8; 6]| namespace.within(|| plane::groups_of(index)).unwrap().contains(&group);
    let (by_hand, of_all) = ([0x33, 0x33, 0, 0, 0x12, 0x34], [0x33, 0x33, 0, 0, 0, 1]);
    assert!(has(of_all) && !has(by_hand));
    namespace.output(&["ip", "maddr", "add", "33:33:00:00:12:34", "dev", "t0"]);
    namespace.output(&["ip", "maddr", "add", "33:33:00:00:56:78", "dev", "t1"]);
    assert!(has(by_hand) && !has([0x33, 0x33, 0, 0, 0x56, 0x78]));
    for (name, kind, address) in [("v0", "type vlan id 7", "::a:b:c"), ("m0", "type macvlan", "::d:e:f")] {
        let add = format!("ip link add link t0 name {name} {kind} && ip link set {name} up");
        if !namespace.succeeds(&["sh", "-c", &add]) {
            skip::test!("this kernel has no {kind}");
            continue;
        }
        namespace.output(&["ip", "address", "add", &format!("2001:db8{address}/64"), "dev", name, "nodad"]);
        let [.., a, b, c] = format!("2001:db8{address}").parse::<std::net::Ipv6Addr>().unwrap().octets();
        // Linux joins it a moment later.
        eventually(&format!("{name}: the group of its address"), || has([0x33, 0x33, 0xFF, a, b, c]));
        namespace.output(&["ip", "link", "del", name]);
        assert!(!has([0x33, 0x33, 0xFF, a, b, c]), "{name} is gone");
    }
    namespace.output(&["ip", "maddr", "del", "33:33:00:00:12:34", "dev", "t0"]);
    assert!(!has(by_hand));
}
