//! Every test that the table of requirements names is there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_table_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("src/requirements.md")).unwrap();
    let sources: String = ["tests", "src", "src/ring"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    // Names of tests are the words in quotes that have several parts.
    let names: Vec<&str> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.matches('_').count() >= 3 && !name.contains('.'))
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(sources.contains(&format!("fn {name}()")), "{name} is not there");
    }
}
