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
                Err(error) if !matches!(error.known_cause(), None | Some(Cause::PfRefused)) => return Err(error.into()),
                Err(error) if on => {
                    tracing::warn!("{}: frames of VLAN {id} are not received: {error}", port.name());
                    self.refused.insert(id);
                }
                // Frames of a VLAN that it does not give up the router drops.
                _ if on => drop(self.told.insert(id)),
                _ => drop(self.told.remove(&id)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mempool::{Pool, PoolConfig};
    use nic::PortConfig;

    /// A physical function has room for so many, VLAN 0 among them; of others it says so, and they are asked for again once they were gone.
    #[test]
    fn what_is_refused_ends_nothing() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut nic = nic::open(&"soft:vlans?id=1515".parse().unwrap(), &PortConfig::default(), &pool).unwrap();
        let (mut vlans, all) = (Vlans::default(), (1..=200).collect());
        vlans.follow(&mut nic.port, &all).unwrap();
        assert!(!vlans.refused.is_empty() && !vlans.told.is_empty());
        assert_eq!(&vlans.refused | &vlans.told, all);
        // Without the first ones there is room for the last, which were refused.
        let (rest, last) = ((100..=199).collect(), (150..=200).collect());
        vlans.follow(&mut nic.port, &rest).unwrap();
        vlans.follow(&mut nic.port, &BTreeSet::new()).unwrap();
        assert_eq!(vlans.told, BTreeSet::new());
        vlans.follow(&mut nic.port, &last).unwrap();
        assert_eq!((&vlans.told, vlans.refused.len()), (&last, 0));
        nic.close().unwrap();
    }
}
