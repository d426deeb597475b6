//! Checkouts from before `nic::PortConfig::trusted_peer` are tried too.

fn main() {
    let source = "../../../crates/nic/src/port.rs";
    println!("cargo::rerun-if-changed={source}");
    if std::fs::read_to_string(source).is_ok_and(|text| text.contains("pub trusted_peer:")) {
        println!("cargo::rustc-cfg=trusted_peer");
    }
}
