//! Every row of the table of requirements names a test that is there, or says why there is none.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How a reason begins.
const REASONS: [&str; 5] =
    ["does not apply: ", "do not apply: ", "does not come up: ", "do not come up: ", "no test can see it: "];

/// The names of all tests, by the name of their file.
fn tests() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests", "src", "src/ring", "src/pci", "src/vhost_user"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut tests = BTreeMap::<_, Vec<_>>::new();
    for path in files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(&path).unwrap();
        // A test's name follows its attributes and comments.
        let names = text.split("#[test]").skip(1).filter_map(|rest| {
            let (_, name) = rest.split_once("fn ")?;
            Some(name.split_once('(')?.0.to_owned())
        });
        tests.entry(path.file_name().unwrap().to_str().unwrap().to_owned()).or_default().extend(names);
    }
    tests
}

/// What is wrong with the cell of a row that says by what it is shown.
fn fault(cell: &str, tests: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let mut named = 0;
    let mut file: Option<&Vec<String>> = None;
    for word in cell.split('`').skip(1).step_by(2) {
        if word.ends_with(".rs") {
            let Some(found) = tests.get(word) else { return Some(format!("there is no {word}")) };
            file = Some(found);
        } else if let Some(tests) = file {
            // Behind the name of a file are tests of it.
            if tests.iter().any(|test| test == word) {
                named += 1;
            } else if word.matches('_').count() >= 2 {
                return Some(format!("{word} is no test of that file"));
            }
        }
    }
    let reason = REASONS.iter().any(|reason| cell.starts_with(reason));
    (named == 0 && !reason).then(|| "it names no test, and no reason why there is none".to_owned())
}

#[test]
fn every_row_of_the_table_names_a_test_or_a_reason() {
    let table = include_str!("../src/requirements.md");
    let tests = tests();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 40, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{row}");
        assert_eq!(fault(cells[2], &tests), None, "{row}");
    }
}

#[test]
fn a_row_without_either_is_found() {
    let tests = tests();
    for good in [
        "`config.rs` `queues_come_in_pairs_that_the_device_spreads_flows_over`",
        "does not apply: nobody asks",
        "`rings.rs` `any_order_of_completion`",
    ] {
        assert_eq!(fault(good, &tests), None);
    }
    for bad in [
        "",
        "`pci.rs`",
        "`fake` complains",
        "`limits_are_inclusive`",
        "`config.rs` `limits_are_exclusive`",
        "`pci.rs` `limits_are_inclusive`",
        "`no.rs` `limits_are_inclusive`",
        "it does not apply: ",
    ] {
        assert!(fault(bad, &tests).is_some(), "{bad}");
    }
}
