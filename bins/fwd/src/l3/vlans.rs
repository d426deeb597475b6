//! VLANs that Linux has on a twin, for a port that receives only those that it was told.

use cli::exit::Failure;
use nic::{AnyPort, Cause, Port as _};
use std::collections::BTreeSet;

/// The VLANs of a port, and which of them it was told.
#[derive(Debug, Default)]
pub(super) struct Vlans {
    told: BTreeSet<u16>,
    refused: BTreeSet<u16>,
}

impl Vlans {
    /// Tells the port the VLANs on its twin that are new or gone. One that is refused is a warning, and asked for again once it was gone.
    ///
    /// # Errors
    ///
    /// If the port does not answer, or is gone: nothing can be asked of it any more.
    pub(super) fn follow(&mut self, port: &mut AnyPort, vlans: &BTreeSet<u16>) -> Result<(), Failure> {
        self.refused.retain(|id| vlans.contains(id));
        let changed = vlans.symmetric_difference(&self.told).filter(|id| !self.refused.contains(id));
        for id in changed.copied().collect::<Vec<u16>>() {
            let on = vlans.contains(&id);
            match port.set_vlan(id, on) {
                Err(error) if error.known_cause() == Some(Cause::PfRefused) && on => {
                    let name = port.name();
                    tracing::warn!("{name}: frames of VLAN {id} are not received: {error}");
                    self.refused.insert(id);
                }
                Err(error) if error.known_cause() != Some(Cause::PfRefused) => return Err(error.into()),
                // Frames of a VLAN that it does not give up the router drops.
                _ if on => drop(self.told.insert(id)),
                _ => drop(self.told.remove(&id)),
            }
        }
        Ok(())
    }
}
