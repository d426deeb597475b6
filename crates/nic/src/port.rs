//! Opening a device, and controlling it.

use crate::drivers::{Driver, DriverError, DriverPort, Job, Start, Virtio, each};
use crate::kernel_events::KernelEvents;
use crate::{Address, AnyRxQueue, AnyTxQueue, Error, Result};
use device::{Deadline, Device, Host, PciAddress, PciIds, TrustedPeer};
use ethdev::{Capabilities, Cause, Events, LinkStatus, MacAddress, Port, PortConfig, Reta, Statistics};
use mempool::Pool;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// An opened device: its port, which controls it, and its queues, which can be moved to threads.
pub type Opened = ethdev::Opened<AnyPort>;

/// Checks the addresses of devices that are to be opened together, before the first one is opened: that the settings of
/// software NICs are valid, and that no capture is to be both read and written, as opening it for writing empties the
/// file. Changes nothing.
///
/// # Errors
///
/// The first problem found.
#[cfg_attr(not(feature = "soft"), expect(unused_variables, reason = "others are checked as they are opened"))]
pub fn check(addresses: &[Address]) -> Result<()> {
    #[cfg(feature = "soft")]
    {
        let soft = |address: &'_ Address| if let Address::Soft(spec) = address { Some(spec.clone()) } else { None };
        let specs: Vec<String> = addresses.iter().filter_map(soft).collect();
        softnic::check(&specs.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Opens the device at `address` with its driver and starts it. The receive rings take their buffers from `pool`. It
/// does not wait for the link. [`PortConfig::time_limit`] applies to the whole call.
///
/// # Errors
///
/// One line that names the device, the cause and the next step. The causes: the address names no device, one without a
/// driver, or one that this process may not use; a setting is out of range; the device does not start.
pub fn open(address: &Address, config: &PortConfig, pool: &Pool) -> Result<Opened> {
    Ok(find(address, config, Start { config, pool })?.started().0)
}

/// Finds the device at `address` and does a job with it, which ends the device or becomes its driver's port. Of the settings, only
/// those that say how to get at a device are used.
pub(crate) fn find<J: Job>(address: &Address, config: &PortConfig, job: J) -> Result<Found<J::Output>> {
    let deadline = config.time_limit.begin();
    deadline.check().map_err(|expired| Error::Expired { address: address.to_string(), expired })?;
    let finding = Finding { address, config, deadline };
    match address {
        Address::Pci(pci) => finding.pci(*pci, job),
        Address::Soft(spec) => finding.soft(spec, job),
        Address::VfioUser(path) => finding.vfio_user(path, job),
        Address::VhostUser { path, server } => finding.vhost_user(path, *server, job),
        Address::Null(_) => {
            finding.done(job.run(null::Null(address.to_string()))).map(|output| Found::new(output, None))
        }
    }
}

/// What came of a job, and what is known of its device besides.
pub(crate) struct Found<T> {
    pub(crate) output: T,
    pub(crate) ids: Option<PciIds>,
    kernel: KernelEvents,
    #[cfg(feature = "soft")]
    soft: Option<softnic::SoftControl>,
}

impl<T> Found<T> {
    fn new(output: T, ids: Option<PciIds>) -> Self {
        Self {
            output,
            ids,
            kernel: KernelEvents::default(),
            #[cfg(feature = "soft")]
            soft: None,
        }
    }
}

#[cfg(feature = "soft")]
impl<T> Found<T> {
    /// What the wire or the trace of a software NIC has lost, once the job is done with it.
    pub(crate) fn wire_error(&self) -> Option<softnic::WireError> {
        self.soft.as_ref()?.wire_error()
    }
}

impl<T> Found<(Opened, T)> {
    /// Returns the opened device, which then knows the rest, and what else came of it.
    pub(crate) fn started(self) -> (Opened, T) {
        let (mut opened, other) = self.output;
        opened.port.kernel = self.kernel;
        #[cfg(feature = "soft")]
        {
            opened.port.soft = self.soft;
        }
        (opened, other)
    }
}

/// Several threads may look at a port.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<AnyPort>();
};

/// A device that is being opened.
struct Finding<'a> {
    address: &'a Address,
    config: &'a PortConfig,
    deadline: Deadline,
}

impl Finding<'_> {
    fn pci<J: Job>(&self, pci: PciAddress, job: J) -> Result<Found<J::Output>> {
        let host = Host::system();
        let found = host.pci_device(pci)?;
        // Before anything is done to a device that there is no driver for.
        let (driver, _) = Driver::of(found.ids).map_err(|what| self.no_driver(what))?;
        if let (Some(accepted), None) = (self.config.no_iommu, found.iommu_group) {
            let device = self.in_time(accepted.open(&host, pci)?);
            return self.done(driver.run(job, device)).map(|output| Found::new(output, Some(found.ids)));
        }
        let device = self.in_time(device::VfioDevice::open(&host, pci)?);
        let kernel = KernelEvents::watch(&device);
        let output = self.done(driver.run(job, device))?;
        Ok(Found { kernel, ..Found::new(output, Some(found.ids)) })
    }

    fn vfio_user<J: Job>(&self, path: &Path, job: J) -> Result<Found<J::Output>> {
        let device = device::VfioUserDevice::open(path, self.trusted_peer()?, &self.deadline)?;
        let ids = device.ids();
        let (driver, _) = Driver::of_intel(ids).map_err(|what| self.no_driver(what))?;
        self.done(driver.run_intel(job, device)).map(|output| Found::new(output, Some(ids)))
    }

    fn vhost_user<J: Job>(&self, path: &Path, server: bool, job: J) -> Result<Found<J::Output>> {
        let peer = self.trusted_peer()?;
        let device =
            if server { virtio::VhostUser::listen(path, peer) } else { virtio::VhostUser::connect(path, peer) };
        self.done(job.run(Virtio(device))).map(|output| Found::new(output, None))
    }

    #[cfg(feature = "soft")]
    fn soft<J: Job>(&self, spec: &str, job: J) -> Result<Found<J::Output>> {
        let device = self.in_time(softnic::SoftDevice::open(spec)?);
        let (control, ids) = (device.control(), device.ids());
        let (driver, _) = Driver::of_family(ids).map_err(|what| self.no_driver(what))?;
        let output = self.done(driver.run_family(job, device))?;
        Ok(Found { soft: Some(control), ..Found::new(output, Some(ids)) })
    }

    #[cfg(not(feature = "soft"))]
    fn soft<J: Job>(&self, _: &str, _: J) -> Result<Found<J::Output>> {
        Err(Error::NoSoft { address: self.address.to_string() })
    }

    /// Returns the device with the deadline set, within which its driver opens it.
    fn in_time<D: Device>(&self, device: D) -> D {
        device.set_deadline(Some(self.deadline.clone()));
        device
    }

    /// Returns the vouching for the process behind the address, or an error that says how to give it.
    fn trusted_peer(&self) -> Result<TrustedPeer> {
        self.config.trusted_peer.ok_or_else(|| Error::UntrustedPeer { address: self.address.to_string() })
    }

    fn no_driver(&self, what: String) -> Error {
        Error::NoDriver { address: self.address.to_string(), what }
    }

    fn done<T>(&self, output: Result<T, DriverError>) -> Result<T> {
        output.map_err(|source| driver_error(&self.address.name(), source))
    }
}

/// A port of any driver. Dropping it stops the device, as [`Port::close`] does.
#[derive(Debug)]
pub struct AnyPort {
    driver: DriverPort,
    /// What the kernel says of a device that was opened through VFIO.
    kernel: KernelEvents,
    /// A second handle of a software NIC.
    #[cfg(feature = "soft")]
    soft: Option<softnic::SoftControl>,
}

impl From<DriverPort> for AnyPort {
    fn from(driver: DriverPort) -> Self {
        Self {
            driver,
            kernel: KernelEvents::default(),
            #[cfg(feature = "soft")]
            soft: None,
        }
    }
}

/// Calls a method of the driver's port; its error names the device.
macro_rules! ask {
    ($self:ident, $port:ident => $result:expr) => {
        each!(DriverPort, &$self.driver, $port => $result.map_err(|source| driver_error($self.name(), source.into())))
    };
    ($self:ident, mut $port:ident => $result:expr) => {{
        let result = each!(DriverPort, &mut $self.driver, $port => $result.map_err(DriverError::from));
        result.map_err(|source| driver_error($self.name(), source))
    }};
}

/// What a software NIC answers; `$otherwise` for any other device.
macro_rules! ask_soft {
    ($self:ident, $method:ident, $otherwise:expr) => {{
        #[cfg(feature = "soft")]
        if let Some(device) = &$self.soft {
            return device.$method();
        }
        $otherwise
    }};
}

impl Port for AnyPort {
    type Rx = AnyRxQueue;
    type Tx = AnyTxQueue;
    type Error = Error;

    fn name(&self) -> &str {
        each!(DriverPort, &self.driver, port => port.name())
    }

    fn mac(&self) -> MacAddress {
        each!(DriverPort, &self.driver, port => port.mac())
    }

    fn numa_node(&self) -> Option<u32> {
        each!(DriverPort, &self.driver, port => port.numa_node())
    }

    fn capabilities(&self) -> Capabilities {
        each!(DriverPort, &self.driver, port => port.capabilities())
    }

    fn link(&self) -> Result<LinkStatus> {
        ask!(self, port => port.link())
    }

    fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        ask!(self, port => port.wait_link(limit))
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        ask!(self, mut port => port.set_promiscuous(on))
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        ask!(self, mut port => port.set_all_multicast(on))
    }

    fn set_groups(&mut self, groups: &[MacAddress]) -> Result<()> {
        ask!(self, mut port => port.set_groups(groups))
    }

    fn set_vlan(&mut self, id: u16, on: bool) -> Result<()> {
        ask!(self, mut port => port.set_vlan(id, on))
    }

    fn set_mac(&mut self, mac: MacAddress) -> Result<()> {
        ask!(self, mut port => port.set_mac(mac))
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        ask!(self, mut port => port.set_mtu(mtu))
    }

    fn set_rss_table(&mut self, table: &Reta) -> Result<()> {
        ask!(self, mut port => port.set_rss_table(table))
    }

    fn set_loopback(&mut self, on: bool) -> Result<()> {
        ask!(self, mut port => port.set_loopback(on))
    }

    fn parts(&self) -> Vec<(&'static str, String)> {
        each!(DriverPort, &self.driver, port => port.parts())
    }

    fn stop_receiving(&mut self) -> Result<()> {
        ask!(self, mut port => port.stop_receiving())
    }

    fn statistics(&mut self) -> Result<Statistics> {
        ask!(self, mut port => port.statistics())
    }

    fn totals(&self) -> Statistics {
        each!(DriverPort, &self.driver, port => port.totals())
    }

    fn transmit_idle(&self) -> bool {
        ask_soft!(self, transmit_idle, each!(DriverPort, &self.driver, port => port.transmit_idle()))
    }

    /// For a device opened through VFIO, there are also descriptors for what the kernel reports about it; those do not
    /// need interrupts.
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = each!(DriverPort, &self.driver, port => port.event_fds());
        fds.extend(self.kernel.fds());
        fds
    }

    /// Returns an error if the device must not be used any more: [`Error::Released`], [`Error::Broken`], or that it is
    /// gone.
    fn events(&mut self) -> Result<Events> {
        self.kernel.check(self.name())?;
        let events = ask!(self, mut port => port.events())?;
        if events.memory_error {
            let what = "one of its memories is damaged (EICR.ECC)";
            return Err(Error::Broken { device: self.name().to_owned(), what });
        }
        Ok(events)
    }

    /// Also returns an error if the wire of a software NIC has lost frames.
    fn close(self) -> Result<Statistics> {
        let name = self.name().to_owned();
        let statistics = each!(DriverPort, self.driver, port => port.close().map_err(DriverError::from))
            .map_err(|source| driver_error(&name, source))?;
        // Known in full only now: closing writes out what was buffered.
        #[cfg(feature = "soft")]
        if let Some(source) = self.soft.and_then(|device| device.wire_error()) {
            return Err(Error::Lost { device: name, source });
        }
        Ok(statistics)
    }
}

impl AnyPort {
    /// Returns a handle of the device, if it is a software NIC of this process.
    #[cfg(feature = "soft")]
    #[must_use]
    pub fn soft(&self) -> Option<&softnic::SoftControl> {
        self.soft.as_ref()
    }

    /// Returns whether a source of finite length behind the device (a capture, a number of frames) has delivered
    /// everything it has. Always true for devices that cannot tell: real NICs, and those of other processes.
    #[must_use]
    pub fn source_finished(&self) -> bool {
        ask_soft!(self, source_finished, true)
    }

    /// Returns the name of the software NIC at the other end of the cable (`wire=peer:NAME`) if no device of that name
    /// is open in this process; until one is, no frame arrives or leaves.
    #[must_use]
    pub fn missing_peer(&self) -> Option<String> {
        ask_soft!(self, missing_peer, None)
    }

    /// Returns why the link of a software NIC is down and what to do, if its wire can tell (`wire=tap:IFNAME`: the
    /// interface is down).
    #[must_use]
    pub fn no_carrier(&self) -> Option<String> {
        ask_soft!(self, no_carrier, None)
    }

    /// Returns whether what a software NIC is plugged into is gone for good (a TAP interface was deleted), so that no
    /// more frames will leave.
    #[must_use]
    pub fn wire_gone(&self) -> bool {
        ask_soft!(self, wire_gone, false)
    }
}

/// Returns an error with the words of the driver, and the device in front of them unless they name it. Says of a process
/// that has gone that it has gone, and not that a card fell out.
fn driver_error(name: &str, source: DriverError) -> Error {
    if name.starts_with("vfio-user:") && source.known_cause() == Some(Cause::Gone) {
        return Error::PeerGone { device: name.to_owned() };
    }
    if source.to_string().contains(name) {
        Error::Driver(source)
    } else {
        Error::Open { address: name.to_owned(), source }
    }
}
