//! A lane: a receive queue, a transmit queue or both, with what is counted of them.

use crate::counters::{Counters, Published};
use nic::{AnyRxQueue, AnyTxQueue};
use std::sync::Arc;

/// Port and number of a queue.
pub type Place = (usize, usize);

/// A lane as the main thread sees it while a worker has the queues.
#[derive(Clone, Debug)]
pub struct PublishedLane {
    /// Port and number of the receive queue.
    pub input: Option<Place>,
    /// Port and number of the transmit queue.
    pub output: Option<Place>,
    /// What the worker counts.
    pub counters: Arc<Published>,
}

/// A lane as its worker returns it.
#[derive(Debug)]
pub struct Ended {
    /// The receive queue.
    pub rx: Option<AnyRxQueue>,
    /// The transmit queue.
    pub tx: Option<AnyTxQueue>,
    /// Port and number of `rx`.
    pub input: Option<Place>,
    /// Port and number of `tx`.
    pub output: Option<Place>,
    /// What the worker has counted.
    pub counters: Counters,
}

/// What a worker counts of a lane, and where the queues of the lane are.
///
/// ```
/// let mut tally = cli::lane::Tally::new(Some((0, 0)), None);
/// let lane = tally.lane();
/// tally.counters.rx_packets += 32;
/// tally.publish();
/// assert_eq!(lane.counters.read().rx_packets, 32);
/// assert_eq!(tally.end(None, None).counters.rx_packets, 32);
/// ```
#[derive(Debug)]
pub struct Tally {
    /// What has been counted.
    pub counters: Counters,
    input: Option<Place>,
    output: Option<Place>,
    published: Arc<Published>,
    /// Frames that had moved at the last publication.
    seen: u64,
}

impl Tally {
    /// Creates a tally of queues at these places.
    #[must_use]
    pub fn new(input: Option<Place>, output: Option<Place>) -> Self {
        Self { counters: Counters::default(), input, output, published: Arc::default(), seen: 0 }
    }

    /// Returns what the main thread reads of it.
    #[must_use]
    pub fn lane(&self) -> PublishedLane {
        PublishedLane { input: self.input, output: self.output, counters: Arc::clone(&self.published) }
    }

    /// Makes the counters visible to the main thread.
    pub fn publish(&mut self) {
        let Counters { rx_packets, tx_packets, .. } = self.counters;
        let seen = rx_packets + self.counters.dropped_in() + tx_packets + self.counters.dropped_out();
        self.published.publish(self.counters, seen == self.seen);
        self.seen = seen;
    }

    /// Returns the lane at its end, with the queues that were at these places.
    #[must_use]
    pub fn end(&self, rx: Option<AnyRxQueue>, tx: Option<AnyTxQueue>) -> Ended {
        Ended { rx, tx, input: self.input, output: self.output, counters: self.counters }
    }
}
