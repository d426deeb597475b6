//! Whether Linux has filters that packets of a data path do not meet: nftables and tc, in a network namespace (root).

use tests::{Namespace, namespaces_possible};

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
