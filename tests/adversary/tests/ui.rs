//! The programs of `ui/`, none of which may compile. The first line of each says with which errors, and a word of theirs, so
//! that a program that fails for another reason is found out.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn no_program_of_ui_compiles() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    let programs = package.join("src/bin");
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(&programs).expect("a folder");
    let manifest = fs::read_to_string(here.join("Cargo.toml")).expect("our own manifest");
    let dependencies = manifest.split_once("[dependencies]").expect("dependencies").1;
    let dependencies = dependencies.split("\n[").next().expect("the section's end");
    let dependencies: String =
        dependencies.lines().filter(|line| line.contains("../../crates/")).fold(String::new(), |all, line| {
            all + &line.replace("../../crates", &here.join("../../crates").display().to_string()) + "\n"
        });
    let head = "[package]\nname = \"ui\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[lints.rust]\nunsafe_code = \"forbid\"\n";
    fs::write(package.join("Cargo.toml"), format!("{head}[dependencies]\n{dependencies}")).expect("a file");
    let _ = fs::copy(here.join("Cargo.lock"), package.join("Cargo.lock"));

    let mut wanted = BTreeMap::new();
    for entry in fs::read_dir(here.join("ui")).expect("ui") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = fs::read_to_string(&path).expect("a program");
        let line = text.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a first line");
        let (codes, words) = line.split_once(": ").expect("codes, a colon, words");
        let split = |list: &str| list.split('|').map(str::to_owned).collect::<Vec<_>>();
        wanted.insert(name, (split(codes), split(words)));
        fs::copy(&path, programs.join(path.file_name().expect("a name"))).expect("a copy");
    }

    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui-target");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["check", "--keep-going", "--message-format=json", "--bins", "--manifest-path"]);
    cargo.arg(package.join("Cargo.toml")).arg("--target-dir").arg(target);
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::piped()).output().expect("cargo starts");
    let mut errors: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for message in
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok())
    {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        if text("/reason") == "compiler-message" && text("/message/level") == "error" {
            let code = text("/message/code/code");
            if !code.is_empty() || !text("/message/message").starts_with("aborting") {
                errors.entry(text("/target/name")).or_default().push((code, text("/message/rendered")));
            }
        }
    }
    let mut broken = 0;
    for (name, (codes, words)) in &wanted {
        let found = errors.get(name).map_or(&[][..], Vec::as_slice);
        let meant =
            |(code, text): &(String, String)| codes.contains(code) && words.iter().any(|word| text.contains(word));
        let codes_found: Vec<_> = found.iter().map(|(code, _)| code.as_str()).collect();
        if found.is_empty() {
            println!("ui {name}: BROKEN: it compiles");
        } else if found.iter().any(meant) && found.iter().all(|(code, _)| codes.contains(code)) {
            println!("ui {name}: held: {}", codes_found.join(", "));
            continue;
        } else {
            println!("ui {name}: BROKEN: not refused for what it tries, but for {}", codes_found.join(", "));
            found.iter().for_each(|(_, text)| println!("{text}"));
        }
        broken += 1;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("could not compile `ui`"), "the crates themselves must compile: {said}");
    assert_eq!(broken, 0, "of {} programs", wanted.len());
}
