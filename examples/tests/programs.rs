//! The programs as such: each is short, README says how short, and each runs.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../README.md");
const MOST_LINES: usize = 120;

#[test]
fn each_is_short_and_readme_says_how_short() {
    let mut programs = 0;
    for entry in Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin")).read_dir().unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(lines <= MOST_LINES, "{name}: {lines} lines");
        let row = README.lines().find(|line| line.starts_with('|') && line.contains(&format!("--bin {name}`")));
        assert!(
            row.is_some_and(|row| row.contains(&format!("| {lines} |"))),
            "{name}: {lines} lines; README has {row:?}"
        );
        programs += 1;
    }
    assert_eq!(programs, 6);
}

#[test]
fn each_runs_on_software_nics() {
    let runs: [(&str, &[&str], &str); 6] = [
        (
            env!("CARGO_BIN_EXE_nat44"),
            &["soft:i?wire=gen&flows=64", "soft:o", "10.0.0.1", "192.0.2.1", "02:00:00:00:00:01", "0"],
            "bindings",
        ),
        (
            env!("CARGO_BIN_EXE_balancer"),
            &["soft:c?wire=gen", "soft:s", "198.19.0.0", "0", "02:00:00:00:00:01"],
            "went to servers",
        ),
        (env!("CARGO_BIN_EXE_flows"), &["soft:a?wire=gen&flows=64", "0"], "packets"),
        (env!("CARGO_BIN_EXE_smoltcp_device"), &["soft:a?wire=gen", "192.0.2.1/24", "0"], ""),
        (env!("CARGO_BIN_EXE_own_port"), &["10"], "received"),
        (
            env!("CARGO_BIN_EXE_routes"),
            &[],
            "192.0.2.1: via 02:00:00:00:00:02 port 1; a packet leaves by port 1 to 02:00:00:00:00:02",
        ),
    ];
    for (program, arguments, says) in runs {
        let output = Command::new(program).args(arguments).output().unwrap();
        let (out, err) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
        assert!(output.status.success() && out.contains(says), "{program}: {out}{err}");
    }
}
