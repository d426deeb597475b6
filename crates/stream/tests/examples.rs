//! The files in `examples` are definitions that give frames.

use std::fs;
use std::path::Path;
use stream::{Definition, Stream};

#[test]
fn every_example_gives_frames() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for definition in Definition::parse(&path.to_string_lossy(), &text).unwrap_or_else(|error| panic!("{error}")) {
            let mut stream = Stream::new(&definition, 0, 1).unwrap();
            let mut frames: Vec<Vec<u8>> = stream.sizes().take(100).map(|size| vec![0xAA; size.into()]).collect();
            assert_eq!(stream.fill(frames.iter_mut().map(|frame| &mut frame[..])), 100);
            names.push(format!("{} {}", definition.name(), stream.period().unwrap_or(0)));
        }
    }
    names.sort();
    assert_eq!(names, ["dns 0", "flows 20000", "gre 22512", "labels 4", "own 0", "vxlan 0", "web 0"]);
}
