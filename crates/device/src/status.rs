//! Whether a device can be opened, and if not, why and what to do about it.

use crate::{Host, PciDevice};
use rustix::fs::Access;
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

/// Whether a device can be opened through VFIO.
///
/// ```no_run
/// use device::Host;
///
/// let host = Host::system();
/// for device in host.network_controllers()? {
///     println!("{}: {}", device.address, host.status(&device));
/// }
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The case, for programs.
    pub kind: StatusKind,
    /// The case in words, one line.
    pub reason: String,
    /// What to do, one line; empty when there is nothing to do.
    pub next_step: String,
}

/// The cases of [`Status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusKind {
    /// It can be opened.
    Ready,
    /// A kernel driver has it, and nothing uses it.
    KernelDriver,
    /// A kernel driver has it, and its network interface is in use.
    InUse,
    /// It has no driver.
    NoDriver,
    /// No IOMMU translates for it.
    NoIommuGroup,
    /// VFIO offers it without an IOMMU, which Ringway refuses.
    NoIommuMode,
    /// Another device of its IOMMU group is with a kernel driver.
    GroupNotViable,
    /// A node in `/dev/vfio` is missing.
    NodeMissing,
    /// This user may not open a node in `/dev/vfio`.
    NodeDenied,
}

impl Status {
    /// Whether the device can be opened as things are.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.kind == StatusKind::Ready
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.next_step.is_empty() { Ok(()) } else { write!(f, "; {}", self.next_step) }
    }
}

impl Host {
    /// Whether `device` can be opened through VFIO.
    #[must_use]
    pub fn status(&self, device: &PciDevice) -> Status {
        let address = device.address;
        let Some(group) = device.iommu_group else { return self.without_group(device) };
        let bind = format!("bind it to VFIO: fwd bind {address}");
        match device.driver.as_deref() {
            None => status(StatusKind::NoDriver, "no driver has it", bind),
            Some(driver) if !is_vfio(driver) => match self.use_of(device) {
                Some(used) => {
                    let reason = format!("kernel driver {driver} has it, and {used}");
                    status(StatusKind::InUse, reason, format!("take the interface down, then: fwd bind {address}"))
                }
                None => status(StatusKind::KernelDriver, format!("kernel driver {driver} has it"), bind),
            },
            Some(_) => self.group_status(device, group),
        }
    }

    /// A device that VFIO has: its group must be real, viable and open to this user.
    fn group_status(&self, device: &PciDevice, group: u32) -> Status {
        let folder = self.sys(format!("kernel/iommu_groups/{group}"));
        let nameless = self.read(&folder.join("name")).is_ok_and(|name| name == "vfio-noiommu");
        if nameless || self.dev(format!("vfio/noiommu-{group}")).exists() {
            let reason = "VFIO runs without an IOMMU: the device could overwrite any memory of this host";
            return status(StatusKind::NoIommuMode, reason, self.iommu_hint());
        }
        for name in self.names(&folder.join("devices")) {
            let driver = self.link_name(&self.sys("bus/pci/devices").join(&name).join("driver"));
            if let Some(driver) = driver.filter(|driver| !is_vfio(driver) && !HARMLESS.contains(&driver.as_str())) {
                let reason = format!("{name} shares IOMMU group {group} and is with kernel driver {driver}");
                let next = format!("give up both or neither: fwd bind {name}");
                return status(StatusKind::GroupNotViable, reason, next);
            }
        }
        let next = "load VFIO: sudo modprobe vfio-pci vfio_iommu_type1";
        for (node, next) in [
            ("vfio/vfio".to_owned(), next.to_owned()),
            (
                format!("vfio/{group}"),
                format!("bind it again: fwd bind {}; in a container, pass the node in", device.address),
            ),
        ] {
            let path = self.dev(&node);
            match rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK) {
                Ok(()) => {}
                Err(errno) => return node_status(&path, errno, next),
            }
        }
        status(StatusKind::Ready, format!("ready, in IOMMU group {group}"), "")
    }

    fn without_group(&self, device: &PciDevice) -> Status {
        let driver =
            device.driver.as_deref().map_or("no driver has it".into(), |driver| format!("driver {driver} has it"));
        let groups = !self.names(&self.sys("kernel/iommu_groups")).is_empty();
        let (reason, next) = if groups {
            let next =
                "move the card to another slot, or look for IOMMU tables (DMAR, IVRS) in the firmware".to_owned();
            (format!("this host has an IOMMU, but not for this device ({driver})"), next)
        } else {
            (format!("no IOMMU is on ({driver})"), self.iommu_hint())
        };
        status(StatusKind::NoIommuGroup, reason, next)
    }

    /// How to switch the IOMMU on, on this processor.
    fn iommu_hint(&self) -> String {
        let cpu = self.read(&self.proc("cpuinfo")).unwrap_or_default();
        let step = if cpu.contains("AuthenticAMD") {
            "enable AMD-Vi (IOMMU) in the firmware, and take amd_iommu=off and iommu=off from the kernel command line"
        } else {
            "enable VT-d in the firmware, and add intel_iommu=on to the kernel command line"
        };
        if cpu.contains(" hypervisor") {
            format!("give this virtual machine a virtual IOMMU, or: {step}")
        } else {
            step.to_owned()
        }
    }
}

/// Drivers that leave a group viable: port drivers and stubs do no DMA of their own.
const HARMLESS: [&str; 2] = ["pcieport", "pci-stub"];

fn is_vfio(driver: &str) -> bool {
    driver.contains("vfio")
}

fn node_status(path: &Path, errno: Errno, if_missing: String) -> Status {
    let path = path.display();
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            let next = format!("give it to this user: sudo chown $USER {path}");
            status(StatusKind::NodeDenied, format!("this user may not open {path}"), next)
        }
        _ => status(StatusKind::NodeMissing, format!("there is no {path}"), if_missing),
    }
}

fn status(kind: StatusKind, reason: impl Into<String>, next_step: impl Into<String>) -> Status {
    Status { kind, reason: reason.into(), next_step: next_step.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_someone_else_is_told_from_a_missing_one() {
        let denied = node_status(Path::new("/dev/vfio/7"), Errno::ACCESS, "bind".into());
        assert_eq!(denied.kind, StatusKind::NodeDenied);
        assert_eq!(denied.next_step, "give it to this user: sudo chown $USER /dev/vfio/7");
        let missing = node_status(Path::new("/dev/vfio/7"), Errno::NOENT, "bind".into());
        assert_eq!((missing.kind, missing.next_step.as_str()), (StatusKind::NodeMissing, "bind"));
    }
}
