//! Whether a device can be opened, and if not, why, and what to do about it.

use crate::remedy::{self, Remedy};
use crate::{Host, PciDevice};
use rustix::fs::Access;
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

/// Whether a device can be opened through VFIO, with reason and next step.
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
    /// The state, for programs.
    pub kind: StatusKind,
    /// The state in words, in one line.
    pub reason: String,
    /// What to do; empty if there is nothing to do.
    pub next_step: Remedy,
}

/// The states of a device in a [`Status`].
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
    /// VFIO offers it only without an IOMMU, which Ringway refuses.
    NoIommuMode,
    /// Another device of its IOMMU group is bound to a kernel driver.
    GroupNotViable,
    /// A node in `/dev/vfio` is missing.
    NodeMissing,
    /// This user may not open a node in `/dev/vfio`.
    NodeDenied,
}

impl Status {
    /// Returns whether the device can be opened as it is.
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
    /// Returns whether `device` can be opened through VFIO, with reason and next step.
    #[must_use]
    pub fn status(&self, device: &PciDevice) -> Status {
        let status = self.group_status(device);
        match self.container_status() {
            Some(container) if status.is_usable() || status.kind == StatusKind::NodeMissing => container,
            _ => status,
        }
    }

    /// As [`Self::status`], of all but the node `/dev/vfio/vfio`.
    pub(crate) fn group_status(&self, device: &PciDevice) -> Status {
        let address = device.address;
        let Some(group) = device.iommu_group else { return self.without_group(device) };
        match device.driver.as_deref() {
            None => status(StatusKind::NoDriver, "no driver has it", remedy::bind(address)),
            Some(driver) if !is_vfio(driver) => match self.use_of(device) {
                Some(used) => {
                    let reason = format!("kernel driver {driver} has it, and {used}");
                    status(StatusKind::InUse, reason, self.take_from_kernel(device))
                }
                None => {
                    status(StatusKind::KernelDriver, format!("kernel driver {driver} has it"), remedy::bind(address))
                }
            },
            Some(_) => self.bound_status(device, group),
        }
    }

    /// A device that VFIO has: its group must be real, viable and open to this user.
    fn bound_status(&self, device: &PciDevice, group: u32) -> Status {
        if self.is_noiommu(group) {
            let reason = "VFIO runs without an IOMMU: the device could overwrite any memory of this host";
            return status(StatusKind::NoIommuMode, reason, self.iommu_on().in_words());
        }
        for name in self.names(&self.sys(format!("kernel/iommu_groups/{group}/devices"))) {
            let driver = self.link_name(&self.sys("bus/pci/devices").join(&name).join("driver"));
            if let Some(driver) = driver.filter(|driver| !is_vfio(driver) && !HARMLESS.contains(&driver.as_str())) {
                let reason = format!("{name} shares IOMMU group {group} and is with kernel driver {driver}");
                let next = Remedy { how: "give up both or neither".to_owned(), ..remedy::bind(name) };
                return status(StatusKind::GroupNotViable, reason, next);
            }
        }
        let address = device.address;
        let missing = Remedy::command(
            "in a container, pass the node in; a kernel without CONFIG_VFIO_GROUP makes none; else bind the device again",
            format!("sudo fwd unbind {address}"),
        )
        .then(format!("sudo fwd bind {address}"));
        self.node_status(&self.dev(format!("vfio/{group}")), missing)
            .unwrap_or_else(|| status(StatusKind::Ready, format!("ready, in IOMMU group {group}"), Remedy::default()))
    }

    /// What is wrong with the node through which every device is opened; `None` if nothing is.
    pub(crate) fn container_status(&self) -> Option<Status> {
        self.node_status(&self.dev("vfio/vfio"), remedy::load_vfio())
    }

    /// Whether VFIO offers the group without an IOMMU.
    pub(crate) fn is_noiommu(&self, group: u32) -> bool {
        let name = self.sys(format!("kernel/iommu_groups/{group}/name"));
        self.read(&name).is_ok_and(|name| name == "vfio-noiommu") || self.dev(format!("vfio/noiommu-{group}")).exists()
    }

    fn without_group(&self, device: &PciDevice) -> Status {
        let driver =
            device.driver.as_deref().map_or("no driver has it".into(), |driver| format!("driver {driver} has it"));
        let groups = !self.names(&self.sys("kernel/iommu_groups")).is_empty();
        let (reason, next) = if groups {
            let next = "move the card to another slot, or look for IOMMU tables (DMAR, IVRS) in the firmware";
            (format!("this host has an IOMMU, but not for this device ({driver})"), Remedy::words(next))
        } else {
            (format!("no IOMMU is on ({driver})"), self.iommu_on().in_words())
        };
        status(StatusKind::NoIommuGroup, reason, next)
    }

    fn take_from_kernel(&self, device: &PciDevice) -> Remedy {
        let remedy = Remedy::words("take the interface down, then bind the card (a login over it ends)");
        let up = device.interfaces.iter().filter(|interface| self.is_up(interface));
        let down = up.fold(remedy, |remedy, interface| remedy.then(format!("sudo ip link set {interface} down")));
        down.then(format!("sudo fwd bind {}", device.address))
    }

    fn node_status(&self, path: &Path, if_missing: Remedy) -> Option<Status> {
        let errno = rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).err()?;
        Some(self.node_error(path, errno, if_missing))
    }

    fn node_error(&self, path: &Path, errno: Errno, if_missing: Remedy) -> Status {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => {
                let reason = format!("this user may not open {}", path.display());
                status(StatusKind::NodeDenied, reason, self.open_node(path))
            }
            _ => status(StatusKind::NodeMissing, format!("there is no {}", path.display()), if_missing),
        }
    }
}

/// Drivers that leave a group viable: port drivers and stubs do no DMA of their own.
const HARMLESS: [&str; 2] = ["pcieport", "pci-stub"];

fn is_vfio(driver: &str) -> bool {
    driver.contains("vfio")
}

fn status(kind: StatusKind, reason: impl Into<String>, next_step: Remedy) -> Status {
    Status { kind, reason: reason.into(), next_step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_someone_else_is_told_from_a_missing_one() {
        let host = Host::at("/nowhere");
        let denied = host.node_error(Path::new("/dev/vfio/7"), Errno::ACCESS, remedy::load_vfio());
        assert_eq!(denied.kind, StatusKind::NodeDenied);
        assert_eq!(denied.next_step.to_string(), "give it to this user: sudo chown $USER /dev/vfio/7");
        let missing = host.node_error(Path::new("/dev/vfio/7"), Errno::NOENT, remedy::load_vfio());
        assert_eq!((missing.kind, missing.next_step), (StatusKind::NodeMissing, remedy::load_vfio()));
    }
}
