//! Multicast groups that Linux has joined on a twin, for a port that does not receive the frames of all groups.

use nic::{AnyPort, MacAddress, Port as _};
use std::time::{Duration, Instant};

/// From one look at Linux's list to the next.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The groups of a port, and which of them it was told.
#[derive(Debug)]
pub(super) struct Groups {
    /// The index of its twin.
    twin: u32,
    told: Vec<[u8; 6]>,
    refused: bool,
    looked: Option<Instant>,
}

impl Groups {
    /// None at first, as of a port that was just opened.
    pub(super) fn new(twin: u32) -> Self {
        Self { twin, told: Vec::new(), refused: false, looked: None }
    }

    /// Tells the port the groups of its twin if they have changed. Linux tells of no change by itself, so it is called often, and looks
    /// once a second. What the port refuses is a warning, and tried again once the groups change.
    pub(super) fn follow(&mut self, port: &mut AnyPort) {
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return;
        }
        self.looked = Some(Instant::now());
        let Some(groups) = plane::groups_of(self.twin).filter(|groups| *groups != self.told) else { return };
        let addresses: Vec<_> = groups.iter().copied().map(MacAddress).collect();
        let outcome = port.set_groups(&addresses);
        if let (Err(error), false) = (&outcome, self.refused) {
            tracing::warn!("not all groups that Linux has joined are received: {error}");
        }
        (self.told, self.refused) = (groups, outcome.is_err());
    }
}
