//! `fwd devices`, `fwd bind`, `fwd unbind`.

use cli::exit::Failure;
use cli::screen;
use device::{Host, IfInUse, PciAddress, PciDevice};
use std::io::{self, Write as _};

/// Prints a table of the network controllers, and under it what to do about those that cannot be used as they are.
pub(crate) fn list() -> Result<(), Failure> {
    let host = Host::system();
    let devices = host.network_controllers()?;
    let mut out = io::stdout().lock();
    if devices.is_empty() {
        writeln!(out, "No network controllers on this host. Software NICs need none: fwd l2 'soft:a?wire=gen' soft:b")?;
        return Ok(());
    }
    let mut table = screen::plain_table(&["address", "ids", "name", "interface", "driver", "NUMA", "group", "usable"]);
    let mut next_steps = Vec::new();
    for device in &devices {
        let (name, verdict) = verdict(&host, device);
        let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
        let (usable, next_step) = match verdict {
            Ok(()) => ("yes".to_owned(), String::new()),
            Err((reason, next_step)) => (format!("no: {reason}"), next_step),
        };
        table.add_row([
            device.address.to_string(),
            device.ids.to_string(),
            name.to_owned(),
            or_dash(Some(device.interfaces.join(","))),
            or_dash(device.driver.clone()),
            or_dash(device.numa_node.map(|node| node.to_string())),
            or_dash(device.iommu_group.map(|group| group.to_string())),
            usable,
        ]);
        if !next_step.is_empty() {
            next_steps.push(format!("{}: {next_step}", device.address));
        }
    }
    writeln!(out, "{}", screen::trimmed(&table))?;
    if !next_steps.is_empty() {
        writeln!(out, "\n{}", next_steps.join("\n"))?;
    }
    Ok(())
}

/// What a device is, and whether it can be used; if not, why and the next step.
fn verdict(host: &Host, device: &PciDevice) -> (&'static str, Result<(), (String, String)>) {
    match nic::identify(device.ids) {
        Err(what) => ("-", Err((what, String::new()))),
        Ok(name) => {
            let status = host.status(device);
            (name, if status.is_usable() { Ok(()) } else { Err((status.reason, status.next_step.into())) })
        }
    }
}

/// Binds each device to `driver`.
pub(crate) fn bind(addresses: &[PciAddress], driver: &str, force: bool) -> Result<(), Failure> {
    let host = Host::system();
    for address in addresses {
        host.bind(*address, driver, in_use(force))?;
        let status = host.status(&host.pci_device(*address)?);
        let usable = if driver == "vfio-pci" { format!(": {status}") } else { String::new() };
        writeln!(io::stdout(), "{address}: bound to {driver}{usable}")?;
    }
    Ok(())
}

/// Gives each device back to the driver that the kernel chooses for it.
pub(crate) fn unbind(addresses: &[PciAddress], force: bool) -> Result<(), Failure> {
    let host = Host::system();
    for address in addresses {
        host.unbind(*address, in_use(force))?;
        let driver = host.restore(*address)?;
        let driver =
            driver.map_or("the kernel has no driver for it".to_owned(), |driver| format!("back with {driver}"));
        writeln!(io::stdout(), "{address}: {driver}")?;
    }
    Ok(())
}

fn in_use(force: bool) -> IfInUse {
    if force { IfInUse::TakeAnyway } else { IfInUse::Refuse }
}
