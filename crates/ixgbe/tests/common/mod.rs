//! What tests with hostile partners share.

use mempool::{Batch, Pool};
use tracing::span;

/// A log that panics whenever something is written to it.
pub(crate) struct PanickingLog;

impl tracing::Subscriber for PanickingLog {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {
        // Without the message that a panic prints.
        std::panic::resume_unwind(Box::new("the log"));
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// Adds `count` packets of 60 bytes from `pool`.
pub(crate) fn fill(batch: &mut Batch, pool: &Pool, count: usize) {
    for _ in 0..count {
        let mut packet = pool.alloc().expect("a slot");
        packet.append(60).expect("room").fill(0xEE);
        batch.push(packet).expect("room in the batch");
    }
}

/// No two packets share a byte.
pub(crate) fn check_disjoint(batch: &[mempool::Packet]) {
    let mut ranges: Vec<_> = batch.iter().map(|packet| packet.data().as_ptr_range()).collect();
    ranges.sort_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "two packets overlap: {pair:?}");
    }
}
