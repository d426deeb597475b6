//! The example `engine_speed` moves frames in each of its three parts.

use std::process::Command;

#[test]
fn the_speed_example_receives_and_sends() {
    // Beside this test's own folder, where cargo puts examples.
    let deps = std::env::current_exe().unwrap();
    let example = deps.parent().unwrap().parent().unwrap().join("examples/engine_speed");
    assert!(example.exists(), "the example is not built; cargo test -p softnic builds it");
    let output = Command::new(&example).arg("1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let count = |line: &str, word: &str| -> u64 {
        let number = line.split_once(&format!("{word} ")).unwrap().1;
        number.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    for (line, (name, received, sent)) in
        text.lines().zip([("gen: ", true, false), ("sink: ", false, true), ("gen + sink: ", true, true)])
    {
        assert!(line.starts_with(name), "{text}");
        assert_eq!((count(line, "received") > 0, count(line, "sent") > 0), (received, sent), "{text}");
    }
    assert_eq!(text.lines().count(), 3, "{text}");
}
