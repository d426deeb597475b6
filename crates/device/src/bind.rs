//! Binding a PCI function to a driver and back (Linux `Documentation/ABI/testing/sysfs-bus-pci`): `driver_override`,
//! then `drivers_probe`. (`new_id` would take every device with the same ids.)

use crate::{Error, Host, PciAddress, PciDevice, Result};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to do if the kernel's network interface on a device is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfInUse {
    /// Refuse, with an error that says what the interface is used for.
    #[default]
    Refuse,
    /// Take the device from the kernel nevertheless. A remote login over the interface ends.
    TakeAnyway,
}

impl Host {
    /// Binds a function to a driver, usually `vfio-pci`, and checks that it was bound. Does nothing if it is bound to
    /// that driver already. If the driver does not take the function, the function goes back to the driver that the
    /// kernel chooses for it.
    ///
    /// ```no_run
    /// use device::{Host, IfInUse};
    ///
    /// let host = Host::system();
    /// let address = "03:00.0".parse()?;
    /// host.bind(address, "vfio-pci", IfInUse::Refuse)?;
    /// host.restore(address)?;
    /// # Ok::<(), device::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the function's network interface is in use, the driver is not loaded or does not take the function, or this
    /// process may not write to sysfs.
    pub fn bind(&self, address: PciAddress, driver: &str, if_in_use: IfInUse) -> Result<()> {
        let device = self.pci_device(address)?;
        if device.driver.as_deref() == Some(driver) {
            return Ok(());
        }
        if driver.is_empty() || driver.contains('/') || !self.driver_folder(driver).exists() {
            let hint = format!("load it with: sudo modprobe {driver}");
            return Err(Error::unusable(format!("driver {driver}"), "the kernel has not loaded it", hint));
        }
        self.refuse_if_in_use(&device, if_in_use)?;
        self.write(&device.path().join("driver_override"), driver)?;
        let bound = self.release(&device).and_then(|()| self.probe(&device, Some(driver)));
        bound.inspect_err(|_| {
            if let Err(error) = self.restore(address) {
                tracing::warn!("{address} has no driver now: {error}");
            }
        })?;
        tracing::info!("{address} is bound to {driver}");
        Ok(())
    }

    /// Takes a function from its driver and leaves it without one.
    ///
    /// # Errors
    ///
    /// Those of [`Self::bind`] that do not concern the new driver.
    pub fn unbind(&self, address: PciAddress, if_in_use: IfInUse) -> Result<()> {
        let device = self.pci_device(address)?;
        self.refuse_if_in_use(&device, if_in_use)?;
        self.release(&device)
    }

    /// Undoes [`Self::bind`]: the function goes to the driver that the kernel chooses for it. Returns that driver's
    /// name; `None` if the kernel has no driver for it.
    ///
    /// # Errors
    ///
    /// If this process may not write to sysfs.
    pub fn restore(&self, address: PciAddress) -> Result<Option<String>> {
        let device = self.pci_device(address)?;
        self.write(&device.path().join("driver_override"), "\n")?;
        self.release(&device)?;
        self.probe(&device, None)?;
        Ok(self.pci_device(address)?.driver)
    }

    fn refuse_if_in_use(&self, device: &PciDevice, if_in_use: IfInUse) -> Result<()> {
        match (self.use_of(device), if_in_use) {
            (Some(used), IfInUse::Refuse) => {
                let hint = "take the interface down, or force it if you are sure";
                Err(Error::unusable(device.address.to_string(), used, hint))
            }
            _ => Ok(()),
        }
    }

    fn release(&self, device: &PciDevice) -> Result<()> {
        let Some(driver) = self.link_name(&device.path().join("driver")) else { return Ok(()) };
        self.write(&self.driver_folder(&driver).join("unbind"), &device.address.to_string())?;
        self.settled(device, |now| now.is_none()).map_err(|_| {
            let hint = "end the programs that have it open, then try again";
            Error::unusable(device.address.to_string(), format!("driver {driver} does not let go of it"), hint)
        })
    }

    fn probe(&self, device: &PciDevice, wanted: Option<&str>) -> Result<()> {
        self.write(&self.sys("bus/pci/drivers_probe"), &device.address.to_string())?;
        let Some(wanted) = wanted else { return Ok(()) };
        self.settled(device, |now| now == Some(wanted)).map_err(|now| {
            let now = now.map_or("no driver took it".to_owned(), |now| format!("driver {now} took it"));
            let hint = if wanted == "vfio-pci" && device.iommu_group.is_none() {
                NO_GROUP_HINT
            } else {
                "the kernel log says why: sudo dmesg | tail"
            };
            Error::unusable(device.address.to_string(), format!("{wanted} did not take it ({now})"), hint)
        })
    }

    /// Waits until the `driver` link is as wanted: some drivers probe in the background. The error is what it is after 3 s.
    fn settled(&self, device: &PciDevice, wanted: impl Fn(Option<&str>) -> bool) -> Result<(), Option<String>> {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let now = self.link_name(&device.path().join("driver"));
            if wanted(now.as_deref()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(now);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn driver_folder(&self, driver: &str) -> PathBuf {
        self.sys("bus/pci/drivers").join(driver)
    }
}

const NO_GROUP_HINT: &str = "it is not in an IOMMU group, and vfio-pci takes no other devices: switch the IOMMU on";

/// Use of a device's network interfaces by the kernel.
impl Host {
    /// Returns in words what the kernel uses the device's network interfaces for; `None` if it does not use them.
    /// Interfaces that are down count as unused, and so do those that have at most a link-local address. Only
    /// interfaces in this process's network namespace are seen.
    #[must_use]
    pub fn use_of(&self, device: &PciDevice) -> Option<String> {
        let up = device.interfaces.iter().filter(|interface| self.is_up(interface));
        let mut uses: Vec<_> = up.filter_map(|interface| self.use_of_interface(interface)).collect();
        uses.sort();
        uses.into_iter().next().map(|(_, words)| words)
    }

    fn use_of_interface(&self, interface: &str) -> Option<(u8, String)> {
        if self.has_default_route(interface) {
            return Some((0, format!("its interface {interface} carries the default route")));
        }
        if self.has_address(interface) {
            return Some((1, format!("its interface {interface} is up with an address")));
        }
        let links = self.names(&self.sys("class/net").join(interface));
        let upper = links.iter().find_map(|name| name.strip_prefix("upper_"))?;
        Some((2, format!("its interface {interface} is up and carries {upper}")))
    }

    pub(crate) fn is_up(&self, interface: &str) -> bool {
        const IFF_UP: u32 = 1;
        let flags = self.read(&self.sys("class/net").join(interface).join("flags")).unwrap_or_default();
        u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|flags| flags & IFF_UP != 0)
    }

    /// `/proc/net/route`: interface, destination, gateway, flags, 3 counters, mask. `/proc/net/ipv6_route`: destination, its
    /// prefix length, source, its prefix length, next hop, metric, 2 counters, flags, interface.
    fn has_default_route(&self, interface: &str) -> bool {
        const REJECT: u32 = 0x200;
        let v4 = self.table("net/route").iter().any(|row| match row.as_slice() {
            [name, destination, _, _, _, _, _, mask, ..] => {
                name == interface && destination == "00000000" && mask == "00000000"
            }
            _ => false,
        });
        v4 || self.table("net/ipv6_route").iter().any(|row| match row.as_slice() {
            [destination, prefix, _, _, _, _, _, _, flags, name, ..] => {
                let reject = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT != 0);
                name == interface && prefix == "00" && destination.bytes().all(|byte| byte == b'0') && !reject
            }
            _ => false,
        })
    }

    /// An IPv4 address shows as its connected route; `/proc/net/if_inet6` has address, index, prefix length, scope, flags and
    /// interface.
    fn has_address(&self, interface: &str) -> bool {
        const LINK_LOCAL: &str = "20";
        let v4 = self.table("net/route").iter().any(|row| row.first().is_some_and(|name| name == interface));
        v4 || self.table("net/if_inet6").iter().any(|row| match row.as_slice() {
            [_, _, _, scope, _, name, ..] => name == interface && scope != LINK_LOCAL,
            _ => false,
        })
    }

    fn table(&self, path: &str) -> Vec<Vec<String>> {
        let text = self.read(&self.proc(path)).unwrap_or_default();
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }
}
