//! The MTU of an interface that was there before, in a network namespace (root).

#![expect(clippy::unwrap_used, reason = "tests")]

use mempool::{Pool, PoolConfig};
use std::fmt::Debug;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, span};
use twin::{Port, Settings, Twins};

/// Warnings.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0 += &format!("{value:?}");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn an_mtu_below_that_of_the_port_stays_and_is_told() {
    if !skip::has_namespace(
        "an_mtu_below_that_of_the_port_stays_and_is_told",
        &["ip", "tuntap", "add", "t0", "mode", "tap"],
    ) {
        return;
    }
    let ip = |words: &str| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "{words}");
    ip("tuntap add rw0 mode tap");
    let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
    // As it was, that of the port, as it is then, and whether that is told.
    for (before, mtu, after, is_told) in
        [(1500, 9000, 1500, true), (1500, 1500, 1500, false), (9000, 1500, 1500, false)]
    {
        ip(&format!("link set rw0 mtu {before}"));
        let log = Arc::new(Log::default());
        tracing::subscriber::with_default(Arc::clone(&log), || {
            let port = Port { mac: [2, 0, 0, 0, 0, 1], mtu, pool: pool.clone(), lane: 0 };
            drop(Twins::open(&["rw0".to_owned()]).unwrap().start(&[port], 1, &Settings::default()).unwrap());
        });
        assert_eq!(tap::mtu("rw0").unwrap(), after, "{before} and {mtu}");
        let log = log.0.lock().unwrap();
        let tells =
            |line: &String| line.contains("rw0 keeps its MTU of 1500") && line.contains("ip link set rw0 mtu 9000");
        assert_eq!((log.len(), log.iter().any(tells)), (usize::from(is_told), is_told), "{log:?}");
    }
}
