//! What the rig can check. Each scenario boots its own machine.

mod dpdk;
mod linux;

use crate::checks::Checks;
use crate::machine::Rig;
use anyhow::Result;

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Rig, &mut Checks) -> Result<()>,
}

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "linux-probe",
        about: "Linux's ixgbe takes an 82599 of either kind and tests it",
        run: linux::probe,
    },
    Scenario {
        name: "linux-traffic",
        about: "Linux on both ends: ping, TCP, UDP, VLAN, offloads, counters",
        run: linux::traffic,
    },
    Scenario {
        name: "linux-queues",
        about: "RSS over four queues, an MSI-X vector each, moderated",
        run: linux::queues,
    },
    Scenario {
        name: "linux-admin",
        about: "rings, queues, MTU, link, reload and removal under Linux",
        run: linux::admin,
    },
    Scenario { name: "linux-iommu", about: "Linux's ixgbe behind an IOMMU", run: linux::iommu },
    Scenario { name: "dpdk-forward", about: "DPDK's net_ixgbe on vfio-pci, vector and scalar", run: dpdk::forward },
];
