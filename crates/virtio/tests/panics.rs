//! A panic on the thread that watches a device: it is said by the port, and costs no buffer.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BASE, Rig, frame, wait};
use ethdev::Port as _;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A log that panics on the watcher's thread, when it is told to.
struct Broken;

static PANIC: AtomicBool = AtomicBool::new(false);

impl Subscriber for Broken {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let watcher = std::thread::current().name() == Some("virtio-watcher");
        assert!(!(watcher && PANIC.load(Ordering::Relaxed)), "the log is broken");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn p10_a_panic_of_the_thread_that_watches_is_reported() {
    tracing::subscriber::set_global_default(Broken).unwrap();
    let mut rig = Rig::new(BASE);
    for n in 0..8 {
        rig.put(&[&frame(n, 60)]);
    }
    assert_eq!(rig.send(), 8);
    PANIC.store(true, Ordering::Relaxed);
    rig.device.lose("it breaks");
    wait("the report", || rig.port.link().is_err());
    let message = rig.port.link().unwrap_err().to_string();
    assert!(message.starts_with("fake: the thread that watches it has panicked"), "{message}");
    let Rig { port, rx, tx, pool, cache, batch, .. } = rig;
    assert!(port.close().unwrap_err().to_string().contains("panicked"));
    drop((rx, tx, cache, batch));
    assert_eq!(pool.away(), 0, "the device was stopped all the same");
}
