//! A subscriber of `tracing` that panics: what a program's log does is not the library's to choose.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The next event with this text panics; only one of this thread if the text is empty, which every event has.
static WANTED: Mutex<Option<(String, ThreadId)>> = Mutex::new(None);
static PANICS: AtomicUsize = AtomicUsize::new(0);

struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{value:?}"));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        let here = thread::current().id();
        let is_wanted = |(wanted, by): &(String, ThreadId)| {
            if wanted.is_empty() { *by == here } else { text.0.contains(wanted) }
        };
        if wanted.as_ref().is_some_and(is_wanted) && !thread::panicking() {
            *wanted = None;
            PANICS.fetch_add(1, Ordering::Relaxed);
            drop(wanted);
            panic!("the log breaks at: {}", text.0);
        }
    }
}

/// Calls `act` while the next event that contains `text` panics; whether it unwound.
pub fn panic_at<R>(text: &str, act: impl FnOnce() -> R) -> Result<R, ()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Panicking).expect("no other"));
    *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = Some((text.to_owned(), thread::current().id()));
    let result = catch_unwind(AssertUnwindSafe(act)).map_err(drop);
    *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    result
}

/// How often an event has panicked.
pub fn panics() -> usize {
    PANICS.load(Ordering::Relaxed)
}
