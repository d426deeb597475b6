//! The example `lpm_lookup`, against the longest prefixes found by hand.

use std::process::Command;

#[test]
fn the_lookup_example_finds_the_longest_prefixes() {
    // Beside this test's own folder, where cargo puts examples.
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().parent().unwrap().join("examples/lpm_lookup");
    assert!(example.exists(), "the example is not built; cargo test -p ringway-lpm builds it");
    let folder = tempfile::tempdir().unwrap();
    let (table, addresses) = (folder.path().join("table"), folder.path().join("addresses"));
    let routes =
        "# a comment\n0.0.0.0/0 1\n10.0.0.0/8 2\n10.1.0.0/16 3\n10.1.2.3/32 4\n\n2001:db8::/32 5\n2001:db8:1::/48 6\n";
    std::fs::write(&table, routes).unwrap();
    let expected = [
        ("192.0.2.1", "1"),
        ("10.2.0.0", "2"),
        ("2001:db8:1::7", "6"),
        ("10.1.255.255", "3"),
        ("10.1.2.3", "4"),
        ("10.1.2.2", "3"),
        ("2001:db8:2::7", "5"),
        ("2001:db9::", "-"),
    ];
    std::fs::write(&addresses, expected.map(|(address, _)| format!("{address}\n")).concat()).unwrap();
    for options in [&[][..], &["--accelerate", "--stats"]] {
        let output = Command::new(&example).args(options).args([&table, &addresses]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text, expected.map(|(address, hop)| format!("{address} {hop}\n")).concat());
    }
}
