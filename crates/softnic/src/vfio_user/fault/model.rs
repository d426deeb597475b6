//! The entry as loom runs it: `RUSTFLAGS="--cfg loom" cargo test -p ringway-softnic --release --lib fault`.

#[path = "entry.rs"]
mod entry;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};
}

use entry::{Entry, Listed};
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicBool, AtomicI32, AtomicUsize};

/// The first and the third are at one address, so that not even that tells them apart.
const MAPPINGS: [Listed; 3] = [
    Listed { start: 8, len: 100, socket: 3 },
    Listed { start: 50, len: 4, socket: 4 },
    Listed { start: 8, len: 1, socket: 5 },
];

/// The handler runs on one thread while another frees the entry and lists others in it.
#[test]
fn a_mapping_is_read_whole_or_not_at_all() {
    loom::model(|| {
        let entry = Arc::new(Entry {
            turn: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            socket: AtomicI32::new(-1),
            hit: AtomicBool::new(false),
        });
        assert!(entry.list(MAPPINGS[0]));
        let others = Arc::clone(&entry);
        let other = thread::spawn(move || {
            for mapping in &MAPPINGS[1..] {
                others.free();
                assert!(others.list(*mapping));
            }
        });
        let read = entry.read();
        assert!(read.is_none_or(|read| MAPPINGS.contains(&read)), "{read:?}");
        other.join().unwrap();
        assert_eq!(entry.read(), Some(MAPPINGS[2]));
    });
}
