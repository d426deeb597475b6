//! Multicast groups that Linux has joined on a twin, for a port that does not receive the frames of all groups.

use cli::exit::Failure;
use nic::{AnyPort, Cause, MacAddress, Port as _};
use std::time::{Duration, Instant};

/// From one look at Linux's list to the next: somewhat less than a second, as it is called about once in that.
const BETWEEN_LOOKS: Duration = Duration::from_millis(900);

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
    /// about once a second. What the port refuses is a warning, and tried again once the groups change.
    ///
    /// # Errors
    ///
    /// If the port does not answer, or is gone: nothing can be asked of it any more.
    pub(super) fn follow(&mut self, port: &mut AnyPort) -> Result<(), Failure> {
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let Some(groups) = plane::groups_of(self.twin).filter(|groups| *groups != self.told) else { return Ok(()) };
        let addresses: Vec<_> = groups.iter().copied().map(MacAddress).collect();
        let outcome = port.set_groups(&addresses);
        let is_refused = outcome.is_err();
        match outcome {
            Err(error) if !matches!(error.known_cause(), None | Some(Cause::PfRefused)) => return Err(error.into()),
            Err(error) if !self.refused => {
                tracing::warn!("{}: not all groups that Linux has joined are received: {error}", port.name());
            }
            _ => {}
        }
        (self.told, self.refused) = (groups, is_refused);
        Ok(())
    }
}
