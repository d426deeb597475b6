//! Opening a device, and its control side.

use crate::control::Control;
use crate::events::{Events, VfioEvents};
use crate::queue::each;
use crate::{Address, DriverError, Error, NoIommu, Result, RxQueue, TxQueue, identify, trust};
use device::{Deadline, Device, Host, Interrupts, PciAddress, PciDevice, TimeLimit, TrustedPeer};
use mempool::Pool;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// What a user chooses about a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues, from 1; flows are spread over them by RSS: up to 16 on the 82599 family, on a virtio device as many as
    /// it offers (64 at most).
    pub rx_queues: u16,
    /// Transmit queues, 1 to 64; on a virtio device no more than receive queues, as it has them in pairs.
    pub tx_queues: u16,
    /// Descriptors of a receive ring: a power of two from 64 to 4096.
    pub rx_ring: u16,
    /// Descriptors of a transmit ring: a power of two from 64 to 4096.
    pub tx_ring: u16,
    /// Largest IP packet in bytes, 68 to 9216.
    pub mtu: u16,
    /// Receive frames for any address, as forwarders need.
    pub promiscuous: bool,
    /// Use checksum offload where a virtio device has it: see [`virtio::Config::checksum_offload`]. Of no effect on others,
    /// which complete partial checksums in software, as every device without the offload does.
    pub checksum_offload: bool,
    /// Whether receive queues and the port can be waited for. There are no interrupts through sysfs.
    pub interrupts: Interrupts,
    /// Open PCI devices that no IOMMU guards, through sysfs (needs root and huge pages). Such a device can overwrite any
    /// memory of the host, so somebody has to vouch for it. Devices with an IOMMU group are opened through VFIO all the
    /// same.
    pub no_iommu: Option<NoIommu>,
    /// Open devices that another process plays (`vfio-user:`, `vhost-user:`). It shares packet memory, so somebody has to
    /// vouch for it; without this such an address is refused.
    pub trusted_peer: Option<TrustedPeer>,
    /// Time for opening the device as a whole, for closing it, and for each command to it; and a flag that ends them. 5 s
    /// unless set.
    pub time_limit: TimeLimit,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            mtu: 1500,
            promiscuous: true,
            checksum_offload: false,
            interrupts: Interrupts::Off,
            no_iommu: None,
            trusted_peer: None,
            time_limit: TimeLimit::default(),
        }
    }
}

/// An opened device: the control side, and queues to give to threads.
#[derive(Debug)]
pub struct Opened {
    /// Statistics, link, MAC.
    pub port: Port,
    /// Receive queues, by number.
    pub rx: Vec<RxQueue>,
    /// Transmit queues, by number.
    pub tx: Vec<TxQueue>,
}

impl Opened {
    /// Gives up the queues and stops the device.
    ///
    /// # Errors
    ///
    /// As [`Port::close`].
    pub fn close(self) -> Result<()> {
        let Self { port, rx, tx } = self;
        drop((rx, tx));
        port.close()
    }
}

/// Checks the addresses of devices that are to be opened together, before the first is: the settings of software NICs, and that
/// no capture is to be written that is to be read too, as opening one empties the file. Changes nothing.
///
/// # Errors
///
/// What is wrong with the first that is.
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

/// Opens the device at `address` with its driver and starts it. The receive rings take their buffers from `pool`. Does
/// not wait for the link. [`PortConfig::time_limit`] holds for the whole of it.
///
/// # Errors
///
/// One line that names the device, the cause and the next step: the address names nothing, nothing that there is a
/// driver for, or something that this process may not use; a setting is out of range; the device does not start.
pub fn open(address: &Address, config: &PortConfig, pool: &Pool) -> Result<Opened> {
    let deadline = config.time_limit.begin();
    deadline.check().map_err(|expired| Error::Expired { address: address.to_string(), expired })?;
    match address {
        Address::Pci(pci) => open_pci(address, *pci, config, pool, &deadline),
        Address::Soft(spec) => open_soft(address, spec, config, pool, &deadline),
        Address::VfioUser(path) => open_vfio_user(address, path, config, pool, &deadline),
        Address::VhostUser { path, server } => open_vhost_user(address, path, *server, config, pool),
    }
}

/// A device whose driver opens it within `deadline`.
fn within<D: Device>(deadline: &Deadline, device: D) -> D {
    device.set_deadline(Some(deadline.clone()));
    device
}

fn open_pci(
    address: &Address,
    pci: PciAddress,
    config: &PortConfig,
    pool: &Pool,
    deadline: &Deadline,
) -> Result<Opened> {
    let host = Host::system();
    let found = host.pci_device(pci)?;
    // Before anything is done to a device that there is no driver for.
    identify(found.ids).map_err(|what| Error::NoDriver { address: address.to_string(), what })?;
    if virtio::identify(found.ids).is_some() {
        return open_virtio(address, &host, &found, config, pool, deadline);
    }
    if let (Some(accepted), None) = (config.no_iommu, found.iommu_group) {
        let device = within(deadline, accepted.open(&host, pci)?);
        let result = ixgbe::open(device, &driver_config(config), pool);
        return started(address, result, Port::Sysfs, RxQueue::Sysfs, TxQueue::Sysfs);
    }
    let device = within(deadline, device::VfioDevice::open(&host, pci)?);
    let events = VfioEvents::watch(&device);
    let port = |port| Port::Vfio(port, events);
    started(address, ixgbe::open(device, &driver_config(config), pool), port, RxQueue::Vfio, TxQueue::Vfio)
}

fn open_virtio(
    address: &Address,
    host: &Host,
    found: &PciDevice,
    config: &PortConfig,
    pool: &Pool,
    deadline: &Deadline,
) -> Result<Opened> {
    let driver = virtio_config(config);
    if let (Some(accepted), None) = (config.no_iommu, found.iommu_group) {
        let device = within(deadline, accepted.open(host, found.address)?);
        let result = virtio::Pci::new(device).and_then(|pci| virtio::open(pci, &driver, pool));
        return virtio_started(address, result, Port::VirtioSysfs, RxQueue::VirtioSysfs, TxQueue::VirtioSysfs);
    }
    let device = within(deadline, device::VfioDevice::open(host, found.address)?);
    let events = VfioEvents::watch(&device);
    let port = |port| Port::VirtioVfio(port, events);
    let result = virtio::Pci::new(device).and_then(|pci| virtio::open(pci, &driver, pool));
    virtio_started(address, result, port, RxQueue::VirtioVfio, TxQueue::VirtioVfio)
}

fn open_vfio_user(
    address: &Address,
    path: &Path,
    config: &PortConfig,
    pool: &Pool,
    deadline: &Deadline,
) -> Result<Opened> {
    let peer = trust::required(config.trusted_peer, address)?;
    let device = device::VfioUserDevice::open(path, peer, deadline)?;
    let known = ixgbe::Model::identify(device.ids());
    known.map_err(|error| Error::NoDriver { address: address.to_string(), what: error.to_string() })?;
    let result = ixgbe::open(device, &driver_config(config), pool);
    started(address, result, Port::VfioUser, RxQueue::VfioUser, TxQueue::VfioUser)
}

fn open_vhost_user(address: &Address, path: &Path, server: bool, config: &PortConfig, pool: &Pool) -> Result<Opened> {
    let peer = trust::required(config.trusted_peer, address)?;
    let device = if server { virtio::VhostUser::listen(path, peer) } else { virtio::VhostUser::connect(path, peer) };
    let result = device.and_then(|device| virtio::open(device, &virtio_config(config), pool));
    virtio_started(address, result, Port::VhostUser, RxQueue::VhostUser, TxQueue::VhostUser)
}

#[cfg(feature = "soft")]
fn open_soft(address: &Address, spec: &str, config: &PortConfig, pool: &Pool, deadline: &Deadline) -> Result<Opened> {
    let device = within(deadline, softnic::SoftDevice::open(spec)?);
    let control = device.control();
    let port = |port| Port::Soft(port, control);
    started(address, ixgbe::open(device, &driver_config(config), pool), port, RxQueue::Soft, TxQueue::Soft)
}

#[cfg(not(feature = "soft"))]
fn open_soft(address: &Address, _: &str, _: &PortConfig, _: &Pool, _: &Deadline) -> Result<Opened> {
    Err(Error::NoSoft { address: address.to_string() })
}

fn driver_config(config: &PortConfig) -> ixgbe::Config {
    let mut driver = ixgbe::Config::default();
    (driver.rx_queues, driver.tx_queues) = (config.rx_queues, config.tx_queues);
    (driver.rx_ring, driver.tx_ring) = (config.rx_ring, config.tx_ring);
    (driver.mtu, driver.interrupts) = (config.mtu, config.interrupts);
    (driver.promiscuous, driver.all_multicast) = (config.promiscuous, config.promiscuous);
    driver.time_limit = config.time_limit.clone();
    driver
}

fn virtio_config(config: &PortConfig) -> virtio::Config {
    let mut driver = virtio::Config::default();
    (driver.rx_queues, driver.tx_queues) = (config.rx_queues, config.tx_queues);
    (driver.rx_ring, driver.tx_ring) = (config.rx_ring, config.tx_ring);
    (driver.mtu, driver.promiscuous, driver.interrupts) = (config.mtu, config.promiscuous, config.interrupts);
    (driver.checksum_offload, driver.time_limit) = (config.checksum_offload, config.time_limit.clone());
    driver
}

fn virtio_started<T: virtio::Transport>(
    address: &Address,
    result: virtio::Result<virtio::Opened<T>>,
    port: impl FnOnce(virtio::Port<T>) -> Port,
    rx: impl Fn(virtio::RxQueue<T>) -> RxQueue,
    tx: impl Fn(virtio::TxQueue<T>) -> TxQueue,
) -> Result<Opened> {
    let opened = result.map_err(|source| driver_error(&address.name(), source.into()))?;
    Ok(Opened {
        port: port(opened.port),
        rx: opened.rx.into_iter().map(rx).collect(),
        tx: opened.tx.into_iter().map(tx).collect(),
    })
}

fn started<D: device::Device>(
    address: &Address,
    result: ixgbe::Result<ixgbe::Opened<D>>,
    port: impl FnOnce(ixgbe::Port<D>) -> Port,
    rx: impl Fn(ixgbe::RxQueue<D>) -> RxQueue,
    tx: impl Fn(ixgbe::TxQueue<D>) -> TxQueue,
) -> Result<Opened> {
    let opened = result.map_err(|source| driver_error(&address.name(), source.into()))?;
    Ok(Opened {
        port: port(opened.port),
        rx: opened.rx.into_iter().map(rx).collect(),
        tx: opened.tx.into_iter().map(tx).collect(),
    })
}

/// The control side of an opened device. Dropping it stops the device, as [`Self::close`] does.
#[derive(Debug)]
#[non_exhaustive]
pub enum Port {
    /// 82599 family, through VFIO, and what the kernel has to say about it.
    Vfio(ixgbe::Port<device::VfioDevice>, VfioEvents),
    /// 82599 family, through sysfs without an IOMMU.
    Sysfs(ixgbe::Port<device::SysfsDevice>),
    /// 82599 family, played by another process.
    VfioUser(ixgbe::Port<device::VfioUserDevice>),
    /// virtio-net on PCI, through VFIO, and what the kernel says of it.
    VirtioVfio(virtio::Port<virtio::Pci<device::VfioDevice>>, VfioEvents),
    /// virtio-net on PCI, through sysfs without an IOMMU.
    VirtioSysfs(virtio::Port<virtio::Pci<device::SysfsDevice>>),
    /// virtio-net, played by another process.
    VhostUser(virtio::Port<virtio::VhostUser>),
    /// A software 82599, and a second handle of it.
    #[cfg(feature = "soft")]
    Soft(ixgbe::Port<softnic::SoftDevice>, softnic::SoftControl),
}

impl Port {
    /// The name of the device: its address without settings.
    #[must_use]
    pub fn name(&self) -> &str {
        each!(Self, self, port => Control::name(port))
    }

    /// The device's own MAC address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        each!(Self, self, port => Control::mac(port))
    }

    /// The NUMA node it is attached to, if known.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        each!(Self, self, port => Control::numa_node(port))
    }

    /// The link as it is now.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn link(&self) -> Result<LinkStatus> {
        each!(Self, self, port => Control::link(port)).map_err(|source| self.error(source))
    }

    /// Waits until the link is up, `limit` at most; returns what it then is.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn wait_link(&self, limit: Duration) -> Result<LinkStatus> {
        each!(Self, self, port => Control::wait_link(port, limit)).map_err(|source| self.error(source))
    }

    /// What becomes readable when [`Self::events`] has something to tell. Without interrupts that is what the kernel says
    /// of a device, if anything.
    pub fn event_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kernel =
            if let Self::Vfio(_, events) | Self::VirtioVfio(_, events) = self { Some(events.fds()) } else { None };
        each!(Self, self, port => Control::eventfd(port)).into_iter().chain(kernel.into_iter().flatten())
    }

    /// What has happened since the last call.
    ///
    /// # Errors
    ///
    /// When the device must not be used any more: [`Error::Released`], [`Error::Broken`], or it is gone. Close it.
    pub fn events(&mut self) -> Result<Events> {
        if let Self::Vfio(_, events) | Self::VirtioVfio(_, events) = &*self {
            events.check(self.name())?;
        }
        let events = each!(Self, self, port => Control::events(port)).map_err(|source| self.error(source))?;
        if events.memory_error {
            let what = "one of its memories is damaged (EICR.ECC)";
            return Err(Error::Broken { device: self.name().to_owned(), what });
        }
        Ok(Events { link_changed: events.link_changed })
    }

    /// Whether to receive frames for any address.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        each!(Self, self, port => Control::set_promiscuous(port, on)).map_err(|source| self.error(source))
    }

    /// Takes no more frames from the wire, before [`Self::close`]: what has arrived can still be received, to the last frame. A
    /// virtio device cannot be told so, and goes on.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn stop_receiving(&mut self) -> Result<()> {
        each!(Self, self, port => Control::stop_receiving(port)).map_err(|source| self.error(source))
    }

    /// Totals as the device counts them. Its registers are narrow: call this once a second at least.
    ///
    /// # Errors
    ///
    /// When the device is gone; [`Self::totals`] has what was read before.
    pub fn statistics(&mut self) -> Result<Statistics> {
        each!(Self, self, port => Control::poll(port)).map_err(|source| self.error(source))?;
        Ok(self.totals())
    }

    /// The totals as last read.
    #[must_use]
    pub fn totals(&self) -> Statistics {
        each!(Self, self, port => Control::totals(port))
    }

    fn error(&self, source: DriverError) -> Error {
        driver_error(self.name(), source)
    }

    /// Whether a source of finite length behind the device (a capture, a count of frames) has handed over all it
    /// has. Always true of devices that do not say: real NICs, and those
    /// of other processes.
    #[must_use]
    pub fn source_finished(&self) -> bool {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(_, device) => device.source_finished(),
            _ => true,
        }
    }

    /// The other end of a soft NIC's cable (`wire=peer:NAME`) if no device of that name is open in this process: no frame
    /// comes or leaves until one is.
    #[must_use]
    pub fn missing_peer(&self) -> Option<String> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(_, device) => device.missing_peer(),
            _ => None,
        }
    }

    /// Why the link of a soft NIC is down, and what to do, if its wire can say (`wire=tap:IFNAME`: the interface is down).
    #[must_use]
    pub fn no_carrier(&self) -> Option<String> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(_, device) => device.no_carrier(),
            _ => None,
        }
    }

    /// Whether what a soft NIC is plugged into is gone for good (a TAP interface was deleted), so that no frame will leave any more.
    #[must_use]
    pub fn wire_gone(&self) -> bool {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(_, device) => device.wire_gone(),
            _ => false,
        }
    }

    /// Whether everything handed to transmit queues is sent and written out. True of a device that is gone.
    #[must_use]
    pub fn transmit_idle(&self) -> bool {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(_, device) => device.transmit_idle(),
            port => each!(Self, port, port => Control::transmit_idle(port)),
        }
    }

    /// Stops the device, once it has sent what it was given (it is not waited for long). Drop the queues first: their buffers go home when the device is known to be quiet.
    ///
    /// # Errors
    ///
    /// When it cannot be stopped; its memory is then kept. When the wire of a software NIC has lost frames.
    pub fn close(self) -> Result<()> {
        let name = self.name().to_owned();
        #[cfg(feature = "soft")]
        if let Self::Soft(port, device) = self {
            Control::close(port).map_err(|source| driver_error(&name, source))?;
            // Known in full only now: closing writes out what was buffered.
            return device.wire_error().map_or(Ok(()), |source| Err(Error::Lost { device: name, source }));
        }
        each!(Self, self, port => Control::close(port)).map_err(|source| driver_error(&name, source))
    }
}

/// The driver's words, and in front of them the device, unless they name it. A process that has gone is no card that fell
/// out.
fn driver_error(name: &str, source: DriverError) -> Error {
    if name.starts_with("vfio-user:") && matches!(source, DriverError::Ixgbe(ixgbe::Error::Gone { .. })) {
        return Error::PeerGone { device: name.to_owned() };
    }
    if source.to_string().contains(name) {
        Error::Driver(source)
    } else {
        Error::Open { address: name.to_owned(), source }
    }
}

/// Whether the link is up, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Frames can pass.
    pub up: bool,
    /// Mbit/s; 0 while down.
    pub speed: u32,
}

/// 64-bit totals of a port as its device counts them, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Good frames received.
    pub rx_packets: u64,
    /// Their bytes, with frame check sequence.
    pub rx_bytes: u64,
    /// Good frames sent.
    pub tx_packets: u64,
    /// Their bytes, with frame check sequence.
    pub tx_bytes: u64,
    /// Frames lost because no descriptor or no buffer of the device was free for them.
    pub rx_missed: u64,
    /// Frames that the device dropped because of what they are.
    pub rx_errors: RxErrors,
    /// Counters that there was no time for when the device was last asked: what they count is older.
    pub unread: usize,
}

/// Frames dropped by a device before they came to a receive ring, by what was wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxErrors {
    /// Wrong check sequence.
    pub crc: u64,
    /// The length field does not fit.
    pub length: u64,
    /// Shorter than a frame may be.
    pub undersize: u64,
    /// Longer than a frame may be.
    pub oversize: u64,
}

impl RxErrors {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.crc + self.length + self.undersize + self.oversize
    }
}
