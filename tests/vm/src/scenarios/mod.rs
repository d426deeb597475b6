//! What the rig can check. Each scenario boots its own machine.

mod dpdk;
mod linux;
mod ours;

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
    Scenario {
        name: "ours-forward",
        about: "fwd l2 as an unprivileged user behind an IOMMU: a million frames",
        run: ours::forward,
    },
    Scenario { name: "ours-sysfs", about: "fwd l2 as root without an IOMMU, through sysfs", run: ours::sysfs },
    Scenario { name: "ours-queues", about: "fwd l2 with RSS and a worker for each queue", run: ours::queues },
    Scenario {
        name: "ours-restart",
        about: "SIGKILL in mid-traffic, a second run at once, back to the kernel's driver",
        run: ours::restart,
    },
];
