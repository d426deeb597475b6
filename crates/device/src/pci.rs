//! PCI discovery through sysfs (Linux `Documentation/PCI/sysfs-pci.rst`).

use crate::{Error, Host, PciIds, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a PCI function: domain, bus, device and function.
///
/// ```
/// use device::PciAddress;
///
/// let address: PciAddress = "03:00.1".parse()?;
/// assert_eq!(address.to_string(), "0000:03:00.1");
/// assert_eq!(address, "0000:03:00.1".parse()?);
/// assert!("3".parse::<PciAddress>().is_err());
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A base address region of a device, from its `resource` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciRegion {
    /// Number of the base address register, 0 to 5.
    pub index: u8,
    /// Bus address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether it is I/O ports rather than memory.
    pub io: bool,
    /// Whether its address takes two registers.
    pub is_64bit: bool,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

/// A PCI function, as sysfs describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// Vendor, device, class and revision.
    pub ids: PciIds,
    /// Subsystem vendor and subsystem device.
    pub subsystem: (u16, u16),
    /// Name of the driver it is bound to; `None` if it has no driver.
    pub driver: Option<String>,
    /// NUMA node it is attached to; `None` if the host does not report one.
    pub numa_node: Option<u32>,
    /// Number of its IOMMU group; `None` if no IOMMU translates for it.
    pub iommu_group: Option<u32>,
    /// Those of its base address regions that have an address.
    pub regions: Vec<PciRegion>,
    /// Names of the kernel's network interfaces on it.
    pub interfaces: Vec<String>,
    path: PathBuf,
}

impl Host {
    /// Returns all PCI functions, ordered by address. A function that vanishes meanwhile is left out.
    ///
    /// # Errors
    ///
    /// If sysfs cannot be read.
    pub fn pci_devices(&self) -> Result<Vec<PciDevice>> {
        let folder = self.sys("bus/pci/devices");
        if let Err(source) = std::fs::read_dir(&folder) {
            let hint = "PCI devices are listed there; in a container, mount /sys";
            return Err(Error::system("list", folder.display().to_string(), source, hint));
        }
        let addresses = self.names(&folder).into_iter().filter_map(|name| name.parse().ok());
        let mut devices: Vec<_> = addresses.filter_map(|address| self.pci_device(address).ok()).collect();
        devices.sort_by_key(|device| device.address);
        Ok(devices)
    }

    /// Returns all network controllers (class 0x02xxxx), ordered by address.
    ///
    /// # Errors
    ///
    /// Those of [`Self::pci_devices`].
    pub fn network_controllers(&self) -> Result<Vec<PciDevice>> {
        let mut devices = self.pci_devices()?;
        devices.retain(PciDevice::is_network_controller);
        Ok(devices)
    }

    /// Returns the function at `address`.
    ///
    /// # Errors
    ///
    /// If there is none, or its attributes do not have the form that sysfs gives them.
    pub fn pci_device(&self, address: PciAddress) -> Result<PciDevice> {
        let path = self.sys("bus/pci/devices").join(address.to_string());
        if !path.exists() {
            let hint = "list the addresses there are with: ls /sys/bus/pci/devices";
            return Err(Error::unusable(address.to_string(), "this host has no PCI device at that address", hint));
        }
        let group = self.link_name(&path.join("iommu_group")).and_then(|name| name.parse().ok());
        Ok(PciDevice {
            address,
            ids: PciIds {
                vendor: self.hex(&path.join("vendor"))?,
                device: self.hex(&path.join("device"))?,
                class: self.hex(&path.join("class"))?,
                // Kernels before 4.10 have no such file.
                revision: self.hex(&path.join("revision")).unwrap_or(0),
            },
            subsystem: (
                self.hex(&path.join("subsystem_vendor")).unwrap_or(0),
                self.hex(&path.join("subsystem_device")).unwrap_or(0),
            ),
            driver: self.link_name(&path.join("driver")),
            // -1 where the firmware does not say.
            numa_node: self.read(&path.join("numa_node")).ok().and_then(|node| node.parse().ok()),
            iommu_group: group,
            regions: regions(&self.read(&path.join("resource")).unwrap_or_default()),
            interfaces: self.interfaces(&path),
            path,
        })
    }

    /// Interfaces directly on the function (`net/*`) or on its virtio child (`virtioN/net/*`).
    fn interfaces(&self, path: &Path) -> Vec<String> {
        let children = self.names(path).into_iter().filter(|name| name.starts_with("virtio"));
        let folders = std::iter::once(path.join("net")).chain(children.map(|child| path.join(child).join("net")));
        folders.flat_map(|folder| self.names(&folder)).collect()
    }

    fn hex<T: TryFrom<u64>>(&self, path: &Path) -> Result<T> {
        let text = self.read(path)?;
        let number = hex(&text).and_then(|number| T::try_from(number).ok());
        number
            .ok_or_else(|| Error::unusable(path.display().to_string(), format!("\"{text}\" is not such a number"), ""))
    }
}

impl PciDevice {
    /// Returns whether its class is 0x02xxxx.
    #[must_use]
    pub fn is_network_controller(&self) -> bool {
        self.ids.class >> 16 == 0x02
    }

    /// Returns the base address region with this number; `None` if it has no address.
    #[must_use]
    pub fn region(&self, index: u8) -> Option<&PciRegion> {
        self.regions.iter().find(|region| region.index == index)
    }

    /// Returns its folder in sysfs.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Reads `0000:03:00.0` or `03:00.0`, hexadecimal.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            let hint = "write it like 0000:03:00.0 or 03:00.0, as lspci does";
            Error::unusable(format!("\"{text}\""), "not a PCI address", hint)
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.split_once(':').unwrap_or(("0000", rest));
    // Domains of Intel VMD have five or more digits.
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    Some(PciAddress {
        domain: number(domain, 4..=8)?,
        bus: u8::try_from(number(bus, 2..=2)?).ok()?,
        device: u8::try_from(number(device, 2..=2)?).ok().filter(|device| *device < 32)?,
        function: u8::try_from(number(function, 1..=1)?).ok().filter(|function| *function < 8)?,
    })
}

/// The first six lines of a `resource` file: start, end and flags (Linux `include/linux/ioport.h`) of each region.
fn regions(text: &str) -> Vec<PciRegion> {
    const IO: u64 = 0x100;
    const MEMORY: u64 = 0x200;
    const PREFETCH: u64 = 0x2000;
    const MEMORY_64: u64 = 0x0010_0000;
    let region = |(index, line): (u8, &str)| {
        let mut numbers = line.split_whitespace().map(hex);
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let len = end.checked_sub(start)?.checked_add(1)?;
        (flags & (IO | MEMORY) != 0).then_some(PciRegion {
            index,
            address: start,
            len,
            io: flags & IO != 0,
            is_64bit: flags & MEMORY_64 != 0,
            prefetchable: flags & PREFETCH != 0,
        })
    };
    (0..6).zip(text.lines()).filter_map(region).collect()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_addresses_are_errors() {
        for text in [
            "",
            ".",
            "::.",
            "03:00",
            "3:00.0",
            "0000:03:20.0",
            "0000:03:00.8",
            "000:03:00.0",
            "0:0:0:0.0",
            "+0:00.0",
            "0000:03:00.0 ",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err().to_string();
            assert!(error.contains("03:00.0, as lspci does"), "{text}: {error}");
        }
        assert_eq!("10000:e1:00.0".parse::<PciAddress>().unwrap().to_string(), "10000:e1:00.0");
    }

    #[test]
    fn regions_of_a_two_port_82599() {
        let text = "\
0x00000000fb580000 0x00000000fb5fffff 0x0000000000140204
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e020 0x000000000000e03f 0x0000000000040101
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000fb604000 0x00000000fb607fff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000fb100000 0x00000000fb17ffff 0x0000000000046200";
        let found = regions(text);
        let shapes: Vec<_> = found.iter().map(|r| (r.index, r.len, r.io, r.is_64bit, r.prefetchable)).collect();
        let expected =
            [(0, 0x8_0000, false, true, false), (2, 0x20, true, false, false), (4, 0x4000, false, true, true)];
        assert_eq!(shapes, expected, "and the ROM of line 7 is not a region");
    }

    proptest! {
        // Miri is some hundred times slower and has no files for failures.
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn addresses_round_trip(domain in 0..=u32::MAX, bus: u8, device in 0..32_u8, function in 0..8_u8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", resource in "[0-9a-fx \n]{0,200}") {
            let _ = text.parse::<PciAddress>();
            let _ = regions(&resource);
        }
    }
}
