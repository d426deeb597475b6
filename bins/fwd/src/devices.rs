//! `fwd devices`, `fwd bind`, `fwd unbind`.

use crate::args::DevicesArgs;
use anyhow::anyhow;
use cli::exit::Failure;
use cli::human::counted;
use cli::stop::Stop;
use cli::{output, ports, screen};
use device::{Error, Host, IfInUse, PciAddress, PciDevice, PciIds};
use mempool::{Pool, PoolConfig};
use nic::{Address, Interrupts, Port as _, PortConfig, TimeLimit};
use serde::Serialize;

/// A network controller in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    address: String,
    /// Vendor and device, such as `8086:10fb`; empty for a device that is not on PCI.
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
    /// With `--verbose`, what it said when it was opened: names and values; `null` for one that cannot be used.
    details: Option<Vec<(&'static str, String)>>,
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
            details: None,
        }
    }

    /// What makes the command fail: that it could not be closed in order, as when its trace is not whole; and that one which is not on PCI
    /// could not be opened, as nothing else is known of it.
    fn trouble(&self) -> Option<&str> {
        let is_trouble = |name: &str| name == CLOSING || name == NOT_OPENED && self.ids.is_empty();
        self.details.iter().flatten().find_map(|(name, value)| is_trouble(name).then_some(value.as_str()))
    }
}

/// The row of a device that was named.
fn named(host: &Host, address: &Address, verbose: bool) -> Result<Row, Failure> {
    match address {
        Address::Pci(pci) => Ok(Row::new(host, &host.pci_device(*pci)?)),
        other if !verbose => Err(Failure::usage(format!("{other}: not on PCI, so it has to be opened: add --verbose"))),
        other => Ok(Row {
            address: other.to_string(),
            ids: String::new(),
            name: None,
            interfaces: Vec::new(),
            driver: None,
            numa_node: None,
            iommu_group: None,
            usable: true,
            reason: None,
            next_step: None,
            details: None,
        }),
    }
}

/// Prints a table of the network controllers, or of those that were named, and under it what to do about those that cannot be used as they are; or one
/// object.
pub(crate) fn list(args: &DevicesArgs) -> Result<(), Failure> {
    let host = Host::system();
    // What is opened is what somebody has written, as a port of a run.
    let not_pci = args.addresses.iter().filter(|address| args.verbose && !matches!(address, Address::Pci(_)));
    ports::check(&not_pci.cloned().collect::<Vec<_>>())?;
    let mut devices: Vec<Row> = if args.addresses.is_empty() {
        host.network_controllers()?.iter().map(|device| Row::new(&host, device)).collect()
    } else {
        args.addresses.iter().map(|address| named(&host, address, args.verbose)).collect::<Result<_, _>>()?
    };
    let mut is_interrupted = false;
    if args.verbose {
        // What is open is closed before the program ends: a device may receive.
        let stop = Stop::on_signals()?;
        let limit = TimeLimit { cancel: Some(stop.cancel()), ..TimeLimit::default() };
        let access = ports::access(args.access.unsafe_no_iommu, limit);
        for row in devices.iter_mut().filter(|row| row.usable) {
            is_interrupted = stop.is_signalled();
            if is_interrupted {
                break;
            }
            row.details = Some(row.address.parse().map_or_else(
                |error: nic::Error| vec![(NOT_OPENED, error.to_string())],
                |address| details(&address, &access),
            ));
        }
        is_interrupted |= stop.is_signalled();
    }
    if is_interrupted {
        return Err(anyhow!("interrupted by a signal while devices were looked at").into());
    }
    let result = devices.iter().find_map(Row::trouble).map_or(Ok(()), |error| Err(anyhow!("{error}").into()));
    if args.json {
        return output::print_json(&Report { devices }).and(result);
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
            or_dash(Some(row.ids.clone())),
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
    let mut parts = String::new();
    for row in devices.iter().filter(|_| args.verbose) {
        parts += &format!("\n\n{}", row.address);
        match &row.details {
            Some(details) => details.iter().for_each(|(name, value)| parts += &format!("\n  {name:<16} {value}")),
            None => parts += "\n  not opened: it is not free to be used",
        }
    }
    output::print(&format!("{}{steps}{parts}", screen::trimmed(&table))).and(result)
}

/// Opens a device that is free, and returns what there is to know about it, with names. One that cannot be opened says why: it may be
/// with another program.
fn details(address: &Address, access: &PortConfig) -> Vec<(&'static str, String)> {
    let config = PortConfig { interrupts: Interrupts::IfAvailable, ..access.clone() };
    let opened = Pool::new(&PoolConfig { slots: 1200, ..PoolConfig::default() })
        .map_err(|error| error.to_string())
        .and_then(|pool| nic::open(address, &config, &pool).map_err(|error| error.to_string()));
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => return vec![(NOT_OPENED, error)],
    };
    let port = &opened.port;
    let can = port.capabilities();
    let link = port.wait_link(LINK_LIMIT).map_or_else(
        |error| error.to_string(),
        |link| match link.up {
            true => link.to_string(),
            false => format!("{link}, for {} s; to negotiate one may take 9", LINK_LIMIT.as_secs()),
        },
    );
    let mut details = vec![("MAC address", port.mac().to_string()), ("link", link)];
    details.extend(port.parts());
    let (rx, tx) = (counted(can.rx_queues.into(), "receive queue"), counted(can.tx_queues.into(), "transmit queue"));
    details.push(("queues", format!("up to {rx} and {tx}")));
    let rss = can.rss.map(|rss| format!("reaches {} queues by a table of {}", rss.queues, rss.table));
    details.push(("RSS", rss.unwrap_or_else(|| "no say in it".to_owned())));
    let (rx, tx) = (config.rx_ring, config.tx_ring);
    details.push(("rings", format!("64 to 4096 descriptors; by default {rx} to receive, {tx} to send")));
    details.push(("MTU", format!("up to {} bytes", can.mtu)));
    details.push(("interrupts", if can.interrupts { "yes" } else { "no" }.to_owned()));
    if let Err(error) = opened.close() {
        details.push((CLOSING, error.to_string()));
    }
    details
}

/// What the errors of opening and closing a device are called.
const NOT_OPENED: &str = "not opened";
const CLOSING: &str = "closing";
/// How long the link of a device that has none is waited for, as it was reset when it was opened: longer than a module or a gigabit PHY takes,
/// and shorter than one of 10 Gbit/s may, as there may be many devices.
const LINK_LIMIT: std::time::Duration = std::time::Duration::from_secs(4);

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
    let hint = "name an 82599, X520, X540 or X550, a virtual function of these, an 82576, an I350 or a virtio-net device (fwd devices lists what there is)";
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

    #[test]
    fn a_device_that_is_free_says_what_it_is() {
        let details = |address: &str| details(&address.parse().unwrap(), &ports::access(false, TimeLimit::default()));
        let fibre = details("soft:details-of-a-test?id=10fb&module=lr");
        let value = |name: &str| fibre.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("module"), Some("10GBASE-LR, RINGWAY SOFT-10G-LR"), "{fibre:?}");
        assert_eq!((value("link"), value("PAUSE")), (Some("up, 10000 Mbit/s"), Some("obeyed, not sent")));
        assert_eq!(value("queues"), Some("up to 64 receive queues and 64 transmit queues"));
        assert_eq!(value("RSS"), Some("reaches 16 queues by a table of 128"));
        assert!(
            details("soft:details-of-another?id=x540").iter().any(|(name, id)| *name == "PHY" && id.starts_with("0x"))
        );
        let broken = details("soft:details-of-a-third?fault=stuck-reset");
        assert!(broken.len() == 1 && broken[0].0 == "not opened" && broken[0].1.contains("CTRL"), "{broken:?}");
    }
}
