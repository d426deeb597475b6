//! What the rig can check. Each scenario boots machines of its own.

mod cards;
mod dpdk;
mod dpdk_ports;
mod host;
mod igb;
mod linux;
mod offload;
mod ours;
mod registers;
mod selftest;
mod selftests;
mod vf;
mod vhost;
mod virtio;
mod vlans;
mod wire;

use crate::checks::Checks;
use crate::machine::{Kernel, Rig};
use anyhow::Result;

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Rig, &mut Checks) -> Result<()>,
    pub(crate) kernel: Kernel,
}

const fn of(name: &'static str, about: &'static str, run: fn(&Rig, &mut Checks) -> Result<()>) -> Scenario {
    Scenario { name, about, run, kernel: Kernel::Stable }
}

impl Scenario {
    /// With another kernel.
    const fn on(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }
}

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Scenario] = &[
    of("linux-probe", "Linux's ixgbe takes an 82599 of either kind and tests it", linux::probe),
    of("linux-modules", "Linux's ixgbe with SFP+ modules of other kinds, that come and go", linux::modules),
    of(
        "linux-cards-old",
        "ixgbe of Debian 12's kernel on an X550, an X540 and 82599s: ethtool, traffic, PAUSE, modules, cables, resets, removal",
        cards::linux,
    )
    .on(Kernel::Old),
    of(
        "linux-cards-new",
        "the same with the newest kernel of Debian's backports",
        cards::linux,
    )
    .on(Kernel::New),
    of("linux-traffic", "Linux at both ends: ping, TCP, UDP, VLAN, offloads, counters", linux::traffic),
    of("linux-wire", "what Linux makes of bad sums, tags, groups and flows, and what it sends", wire::judged),
    of("linux-queues", "RSS over four queues, an MSI-X vector each, moderated", linux::queues),
    of("linux-pause", "PAUSE frames that Linux's ixgbe has a card send when it is late", linux::pause),
    of("linux-admin", "rings, queues, MTU, link, reload and removal under Linux", linux::admin),
    of("linux-iommu", "Linux's ixgbe behind an IOMMU", linux::iommu),
    of(
        "linux-vf",
        "Linux's ixgbevf on functions of an 82599, an X540 and an X550, and a physical function that resets",
        vf::linux,
    ),
    of("linux-vf-old", "the same with Debian 12's kernel", vf::linux).on(Kernel::Old),
    of("linux-vf-new", "the same with the newest kernel of Debian's backports", vf::linux).on(Kernel::New),
    of("dpdk-forward", "DPDK's net_ixgbe, and an older one, on vfio-pci: vector and scalar, and testpmd's ports", dpdk::forward),
    of("dpdk-x550", "the same on an X550 and an X540", dpdk::copper),
    of(
        "dpdk-vf",
        "DPDK's net_ixgbe_vf, and an older one, on functions of an 82599, an X540 and an X550: two queues, long frames",
        vf::dpdk,
    ),
    of(
        "registers",
        "what Linux's, DPDK's and our driver write to 82599s, an X540 and an X550 until they are up, side by side",
        registers::starts,
    ),
    of("registers-vf", "the same of their virtual functions", registers::starts_of_functions),
    of(
        "ours-vf",
        "fwd l2 on functions of an 82599, an X540 and an X550: two queues each, and a physical function that resets",
        vf::ours,
    ),
    of("ours-forward", "fwd l2 as an unprivileged user behind an IOMMU: a million frames", ours::forward),
    of("ours-sysfs", "fwd l2 as root without an IOMMU, through sysfs", ours::sysfs),
    of("ours-queues", "fwd l2 with RSS and a worker for each queue, on 82599s, an X550 and an X540", ours::queues),
    of("ours-interrupts", "fwd l2 that sleeps until the card wakes it, and polls under load", ours::interrupts),
    of("ours-numa", "fwd l2 between two NUMA nodes: workers and memory are on the cards'", ours::numa),
    of("ours-restart", "SIGKILL in mid-traffic, a second run at once, back to the kernel's driver", ours::restart),
    of("ours-release", "the kernel wants a card back in mid-traffic, and a card is pulled out", ours::release),
    of(
        "ours-selftest",
        "fwd selftest on an 82599, an X540, an X550, a VF, one that is broken, QEMU's 82576 and virtio",
        selftest::cards,
    ),
    of("ours-igb", "fwd l2 on QEMU's 82576 behind an IOMMU, with Linux's igb at both ends", igb::forward),
    of("ours-igb-queues", "RSS of QEMU's 82576 over four queues, a worker and a vector each", igb::queues),
    of("ours-igb-sysfs", "fwd l2 on QEMU's 82576 as root without an IOMMU, through sysfs", igb::sysfs),
    of(
        "ours-igb-pair",
        "two of QEMU's 82576s back to back, as README says: pktgen on one, fwd on the other",
        igb::pair,
    ),
    of("virtio-legacy", "QEMU's virtio-net through I/O ports, without an IOMMU", virtio::legacy),
    of("virtio-transitional", "QEMU's virtio-net as it is by default, without an IOMMU", virtio::transitional),
    of("virtio-modern", "QEMU's modern virtio-net without an IOMMU", virtio::modern),
    of("virtio-packed", "QEMU's virtio-net with packed rings", virtio::packed),
    of("virtio-iommu", "QEMU's virtio-net behind an IOMMU, through VFIO, with interrupts", virtio::iommu),
    of("virtio-mq", "four queue pairs of QEMU's virtio-net, a vector each", virtio::mq),
    of(
        "virtio-rss",
        "RSS of QEMU's virtio-net leads each flow's answers to the worker that translates it",
        virtio::rss,
    ),
    of("virtio-checksum", "Linux leaves checksums to virtio NICs, which leave them to fwd", offload::checksum),
    of("virtio-vhost-legacy", "QEMU's legacy virtio-net with DPDK's vhost library at the other side", vhost::legacy),
    of("virtio-vhost-transitional", "the same as it is by default", vhost::transitional),
    of("virtio-vhost", "the same, modern", vhost::modern),
    of("virtio-vhost-packed", "the same with packed rings", vhost::packed),
    of("virtio-vhost-iommu", "the same behind an IOMMU, through VFIO", vhost::iommu),
    of("virtio-vhost-mq", "the same with four queue pairs", vhost::mq),
    of("kernel-selftests", "Linux's own tests of forwarding with fwd l3 --kernel as the router", selftests::forwarding),
    of("kernel-vlans", "VLANs with an MTU of their own, two ways by them, of both families, and a VRF on twins of fwd l3 --kernel", vlans::carried),
    of("host-refused", "every way in which VFIO refuses, and what the doctor says", host::refused),
    of("host-shared", "two cards in one IOMMU group, one of them with the kernel's driver", host::shared),
    of("host-lacking", "machines without an IOMMU, and without interrupt remapping", host::lacking),
];
