//! P6: a log that panics where memory is kept because the device may still reach it. It must be kept all the same.

#![forbid(unsafe_code)]

use adversary::{Lie, Proxy, dma_memory, panic_at, pool};
use nic::PortConfig;
use std::collections::HashSet;

/// Closes a port whose server tells this lie, while the log breaks; what memory was there before, and what is left.
fn closed(lie: Lie) -> (HashSet<String>, HashSet<String>) {
    let (proxy, pool) = (Proxy::start("liar?wire=sink", Lie::None), pool(1024));
    let config = vouch::vouched(PortConfig::default());
    let before = dma_memory().len();
    let nic = nic::open(&proxy.address(), &config, &pool).expect("an honest start");
    let open = dma_memory();
    assert!(open.len() > before, "rings are in memory of their own");
    proxy.lie(lie);
    let unwound = panic_at("kept for ever", || {
        // An error is well.
        let _ = nic.close();
        drop(pool);
    });
    println!("{lie:?}: closing {}", if unwound.is_err() { "unwound" } else { "returned" });
    // With the server's own mappings of it.
    drop(proxy);
    (open, dma_memory())
}

#[test]
fn p6_memory_that_a_device_may_reach_is_kept_though_the_log_panics() {
    for lie in [Lie::RefusesUnmap, Lie::RefusesReset] {
        let (open, left) = closed(lie);
        assert_eq!(left, open, "{lie:?}: the server still has that memory, and it was freed");
    }
}
