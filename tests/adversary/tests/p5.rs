//! P5: a vfio-user server whose registers lie at an odd offset of a file. The driver must refuse it, not read them.

#![forbid(unsafe_code)]

use adversary::{Lie, Proxy, pool};
use nic::PortConfig;

#[test]
fn p5_registers_at_an_odd_offset_are_refused() {
    let (proxy, pool) = (Proxy::start("liar?wire=sink", Lie::Misaligned), pool(1024));
    let config = vouch::vouched(PortConfig::default());
    let error = nic::open(&proxy.address(), &config, &pool).expect_err("no aligned access is possible there");
    println!("{error}");
    let words = error.to_string();
    assert!(words.contains("vfio-user:"), "the message names the device: {words}");
}
