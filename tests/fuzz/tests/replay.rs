//! Every input of every corpus, on stable Rust: what a fuzzer has found once stays found.

use fuzz_cases::TARGETS;
use std::fs;
use std::path::Path;

#[test]
fn every_corpus_is_replayed() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in TARGETS {
        let folder = corpora.join(name);
        let mut inputs: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        inputs.sort();
        for path in &inputs {
            let input = fs::read(path).unwrap();
            if std::panic::catch_unwind(|| run(&input)).is_err() {
                panic!("{name} fails on {}", path.display());
            }
        }
        println!("{name}: {} inputs", inputs.len());
    }
}
