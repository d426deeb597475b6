//! `fwd devices`, `fwd bind`, `fwd unbind`.

use cli::exit::Failure;
use cli::{output, screen};
use device::{Error, Host, IfInUse, PciAddress, PciDevice, PciIds};
use serde::Serialize;

/// A network controller in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    address: String,
    /// Vendor and device, such as `8086:10fb`.
    ids: String,
    /// `null` if there is no driver for it.
    name: Option<&'static str>,
    /// Interfaces that the kernel has for it.
    interfaces: Vec<String>,
    /// The kernel driver it is bound to.
    driver: Option<String>,
    numa_node: Option<u32>,
    iommu_group: Option<u32>,
    usable: bool,
    /// Why it is not; `null` if it is.
    reason: Option<String>,
    /// What to do about it; `null` if there is nothing.
    next_step: Option<String>,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<Row>,
}

impl Row {
    fn new(host: &Host, device: &PciDevice) -> Self {
        let (name, verdict) = verdict(host, device);
        let (reason, next_step) = verdict.err().unzip();
        Self {
            address: device.address.to_string(),
            ids: device.ids.to_string(),
            name,
            interfaces: device.interfaces.clone(),
            driver: device.driver.clone(),
            numa_node: device.numa_node,
            iommu_group: device.iommu_group,
            usable: reason.is_none(),
            reason,
            next_step: next_step.filter(|step| !step.is_empty()),
        }
    }
}

/// Prints a table of the network controllers, and under it what to do about those that cannot be used as they are; or one
/// object.
pub(crate) fn list(json: bool) -> Result<(), Failure> {
    let host = Host::system();
    let devices: Vec<Row> = host.network_controllers()?.iter().map(|device| Row::new(&host, device)).collect();
    if json {
        return output::print_json(&Report { devices });
    }
    if devices.is_empty() {
        return output::print(
            "No network controllers on this host. Software NICs need none: fwd l2 'soft:a?wire=gen' soft:b",
        );
    }
    let mut table = screen::plain_table(&["address", "ids", "name", "interface", "driver", "NUMA", "group", "usable"]);
    for row in &devices {
        let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
        table.add_row([
            row.address.clone(),
            row.ids.clone(),
            row.name.unwrap_or("-").to_owned(),
            or_dash(Some(row.interfaces.join(","))),
            or_dash(row.driver.clone()),
            or_dash(row.numa_node.map(|node| node.to_string())),
            or_dash(row.iommu_group.map(|group| group.to_string())),
            row.reason.as_ref().map_or("yes".to_owned(), |reason| format!("no: {reason}")),
        ]);
    }
    let steps = devices.iter().filter_map(|row| Some(format!("{}: {}", row.address, row.next_step.as_ref()?)));
    let steps: Vec<String> = steps.collect();
    let steps = if steps.is_empty() { String::new() } else { format!("\n\n{}", steps.join("\n")) };
    output::print(&format!("{}{steps}", screen::trimmed(&table)))
}

/// Returns what a device is, and whether it can be used; if not, why, and the next step.
fn verdict(host: &Host, device: &PciDevice) -> (Option<&'static str>, Result<(), (String, String)>) {
    match nic::identify(device.ids) {
        Err(what) => (None, Err((what, String::new()))),
        Ok(name) => {
            let status = host.status(device);
            (Some(name), if status.is_usable() { Ok(()) } else { Err((status.reason, status.next_step.into())) })
        }
    }
}

/// Binds each device to `driver`.
pub(crate) fn bind(addresses: &[PciAddress], driver: &str, force: bool) -> Result<(), Failure> {
    let host = Host::system();
    refuse_others(&host, addresses)?;
    for address in addresses {
        host.bind(*address, driver, in_use(force))?;
        let status = host.status(&host.pci_device(*address)?);
        let usable = if driver == "vfio-pci" { format!(": {status}") } else { String::new() };
        output::print(&format!("{address}: bound to {driver}{usable}"))?;
    }
    Ok(())
}

/// Gives each device back to the driver that the kernel chooses for it.
pub(crate) fn unbind(addresses: &[PciAddress], force: bool) -> Result<(), Failure> {
    let host = Host::system();
    refuse_others(&host, addresses)?;
    for address in addresses {
        host.unbind(*address, in_use(force))?;
        let driver = host.restore(*address)?;
        let driver =
            driver.map_or("the kernel has no driver for it".to_owned(), |driver| format!("back with {driver}"));
        output::print(&format!("{address}: {driver}"))?;
    }
    Ok(())
}

fn in_use(force: bool) -> IfInUse {
    if force { IfInUse::TakeAnyway } else { IfInUse::Refuse }
}

/// An error if one of the devices is none that there is a driver for, such as the disk of this host: nothing has been done to
/// any of them then.
fn refuse_others(host: &Host, addresses: &[PciAddress]) -> Result<(), Failure> {
    for address in addresses {
        refuse_other(*address, host.pci_device(*address)?.ids)?;
    }
    Ok(())
}

fn refuse_other(address: PciAddress, ids: PciIds) -> Result<(), Error> {
    let hint = "name an 82599, X520, X540, X550 or virtio-net device (fwd devices lists what there is)";
    nic::identify(ids).map(drop).map_err(|what| Error::unusable(address.to_string(), what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_nic_is_left_alone() {
        let refused = |vendor, device| {
            let ids = PciIds { vendor, device, ..PciIds::default() };
            refuse_other("0000:00:02.0".parse().unwrap(), ids).map_err(|error| error.to_string())
        };
        // A virtio disk, a virtio balloon, an NVMe disk, an unknown NIC.
        for (vendor, device) in [(0x1af4, 0x1042), (0x1af4, 0x1045), (0x144d, 0xa808), (0x15b3, 0x1017)] {
            let message = refused(vendor, device).unwrap_err();
            assert!(message.starts_with("0000:00:02.0: ") && message.contains("; name an 82599"), "{message}");
        }
        assert_eq!(refused(0x8086, 0x10fb), Ok(()));
        assert_eq!(refused(0x1af4, 0x1041), Ok(()));
    }
}
