//! The list of drivers: one enum of ports, one of each kind of queue, and which driver a PCI function gets.

use crate::Opened;
use device::{Device, PciFunction, PciIds, RegisterValue};
use ethdev::{Cause, Check, Port, PortConfig, PortError, RxCounters, RxInfos, RxQueue, TimeLimit, TxCounters, TxQueue};
use mempool::{Batch, Packet, Pool, PoolCache};
use std::fmt;
use std::os::fd::BorrowedFd;

/// From a list of drivers and what they drive: the enums, the contract for each, and `each!`, which runs the same expression on
/// whichever driver's value it is. (`$d` is a dollar sign, for the macro in the macro.)
macro_rules! drivers {
    ($d:tt $($(#[doc = $doc:literal])* $name:ident $(if $feature:literal)?: $driver:ident $(over $device:ty)?;)*) => {
        macro_rules! each {
            ($d kind:ident, $d value:expr, $d inner:ident => $d result:expr) => {
                match $d value {
                    $($(#[cfg(feature = $feature)])? $d kind::$name($d inner) => $d result,)*
                }
            };
        }

        /// A receive queue of any driver.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyRxQueue {
            $($(#[doc = $doc])* $(#[cfg(feature = $feature)])? $name($driver::RxQueue$(<$device>)?),)*
        }

        /// A transmit queue of any driver.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyTxQueue {
            $($(#[doc = $doc])* $(#[cfg(feature = $feature)])? $name($driver::TxQueue$(<$device>)?),)*
        }

        /// Any driver's port.
        #[derive(Debug)]
        pub(crate) enum DriverPort {
            $($(#[cfg(feature = $feature)])? $name($driver::Port$(<$device>)?),)*
        }

        $(
            $(#[cfg(feature = $feature)])?
            impl Listed for $driver::Port$(<$device>)? {
                fn listed(opened: ethdev::Opened<Self>) -> Opened {
                    Opened {
                        port: DriverPort::$name(opened.port).into(),
                        rx: opened.rx.into_iter().map(AnyRxQueue::$name).collect(),
                        tx: opened.tx.into_iter().map(AnyTxQueue::$name).collect(),
                    }
                }
            }
        )*
    };
}

drivers! {$
    /// 82599 family, through VFIO.
    Vfio: ixgbe over device::VfioDevice;
    /// 82599 family, through sysfs without an IOMMU.
    Sysfs: ixgbe over device::SysfsDevice;
    /// 82576 and I350, through VFIO.
    IgbVfio: igb over device::VfioDevice;
    /// 82576 and I350, through sysfs without an IOMMU.
    IgbSysfs: igb over device::SysfsDevice;
    /// 82576 and I350, implemented by another process.
    IgbVfioUser: igb over device::VfioUserDevice;
    /// 82599 family, implemented by another process.
    VfioUser: ixgbe over device::VfioUserDevice;
    /// A software 82599.
    Soft if "soft": ixgbe over softnic::SoftDevice;
    /// Virtual functions of the 82599 family, through VFIO.
    VfVfio: ixgbevf over device::VfioDevice;
    /// Virtual functions of the 82599 family, through sysfs without an IOMMU.
    VfSysfs: ixgbevf over device::SysfsDevice;
    /// Virtual functions of the 82599 family, implemented by another process.
    VfVfioUser: ixgbevf over device::VfioUserDevice;
    /// A virtual function of a software 82599.
    VfSoft if "soft": ixgbevf over softnic::SoftDevice;
    /// virtio-net on PCI, through VFIO.
    VirtioVfio: virtio over virtio::Pci<device::VfioDevice>;
    /// virtio-net on PCI, through sysfs without an IOMMU.
    VirtioSysfs: virtio over virtio::Pci<device::SysfsDevice>;
    /// virtio-net, implemented by another process.
    VhostUser: virtio over virtio::VhostUser;
    /// No device.
    Null: null;
}
#[expect(clippy::single_component_path_imports, reason = "makes the macro one of the crate")]
pub(crate) use each;

/// A driver for PCI functions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Driver {
    Ixgbe,
    Ixgbevf,
    Igb,
    Virtio,
}

impl Driver {
    /// Returns the driver of a function and the function's name, or a short description of a function without a driver.
    pub(crate) fn of(ids: PciIds) -> Result<(Self, &'static str), String> {
        if let Some(kind) = virtio::identify(ids) {
            return Ok((Self::Virtio, kind.name()));
        }
        if ids.vendor == VIRTIO {
            return Err(format!("{ids} is a virtio device, but not a network device"));
        }
        Self::of_intel(ids)
    }

    /// The same of a function that is one of Intel's, or none that there is a driver for.
    pub(crate) fn of_intel(ids: PciIds) -> Result<(Self, &'static str), String> {
        if let Ok(model) = igb::Model::identify(ids) {
            return Ok((Self::Igb, model.name));
        }
        Self::of_family(ids)
    }

    /// The same of a function that is none of another family than the 82599's.
    pub(crate) fn of_family(ids: PciIds) -> Result<(Self, &'static str), String> {
        if let Ok(model) = ixgbevf::Model::identify(ids) {
            return Ok((Self::Ixgbevf, model.name));
        }
        let model = ixgbe::Model::identify(ids).map_err(|error| error.to_string())?;
        Ok((Self::Ixgbe, model.name))
    }

    /// Does a job with a PCI function.
    pub(crate) fn run<J: Job, D>(self, job: J, device: D) -> Result<J::Output, DriverError>
    where
        D: Device + PciFunction,
        Ixgbe<D>: Driven,
        Ixgbevf<D>: Driven,
        Igb<D>: Driven,
        Virtio<virtio::Pci<D>>: Driven,
    {
        if let Self::Virtio = self { job.run(Virtio(virtio::Pci::new(device))) } else { self.run_intel(job, device) }
    }

    /// Does a job with one of Intel's functions.
    pub(crate) fn run_intel<J: Job, D>(self, job: J, device: D) -> Result<J::Output, DriverError>
    where
        Ixgbe<D>: Driven,
        Ixgbevf<D>: Driven,
        Igb<D>: Driven,
    {
        if let Self::Igb = self { job.run(Igb(device)) } else { self.run_family(job, device) }
    }

    /// Does a job with a function of the 82599's family, which may be virtual.
    pub(crate) fn run_family<J: Job, D>(self, job: J, device: D) -> Result<J::Output, DriverError>
    where
        Ixgbe<D>: Driven,
        Ixgbevf<D>: Driven,
    {
        if let Self::Ixgbevf = self { job.run(Ixgbevf(device)) } else { job.run(Ixgbe(device)) }
    }
}

/// What is done with a device once it is found.
pub(crate) trait Job {
    /// What comes of it.
    type Output;

    fn run(self, device: impl Driven) -> Result<Self::Output, DriverError>;
}

/// Starts the device.
pub(crate) struct Start<'a> {
    pub(crate) config: &'a PortConfig,
    pub(crate) pool: &'a Pool,
}

impl Job for Start<'_> {
    type Output = (Opened, ());

    fn run(self, device: impl Driven) -> Result<Self::Output, DriverError> {
        Ok((device.start(self.config, self.pool)?, ()))
    }
}

/// A device and the driver for it.
pub(crate) trait Driven: Sized {
    /// Starts the device as a port.
    fn start(self, config: &PortConfig, pool: &Pool) -> Result<Opened, DriverError>;

    /// Tests the device's parts; `None` if the driver has no tests for them.
    fn parts(self, _: &TimeLimit) -> Result<Option<Vec<Check>>, DriverError> {
        Ok(None)
    }

    /// Reads the device's registers; `None` if it has none of its own.
    fn registers(self) -> Result<Option<Vec<RegisterValue>>, DriverError> {
        Ok(None)
    }

    /// Makes the device quiet, and has it reach the pool; from [`HIGH`](crate::selftest::HIGH) on, if `high` and there is a choice. Returns
    /// the address at which it does, if that is one number.
    fn place(&self, _: &Pool, _high: bool) -> Result<Option<u64>, DriverError> {
        Ok(None)
    }
}

/// Drivers of [`Device`]s: the types of what each drives, and how it tests the parts of one.
macro_rules! driven {
    ($($name:ident: $driver:ident, $parts:expr;)*) => {$(
        pub(crate) struct $name<D>(D);

        impl<D: Device> Driven for $name<D>
        where
            $driver::Port<D>: Listed<Error = $driver::Error>,
        {
            fn start(self, config: &PortConfig, pool: &Pool) -> Result<Opened, DriverError> {
                Ok(Listed::listed($driver::open(self.0, &config.clone().into(), pool)?))
            }

            fn parts(self, limit: &TimeLimit) -> Result<Option<Vec<Check>>, DriverError> {
                let parts: fn(D, &TimeLimit) -> $driver::Result<Option<Vec<Check>>> = $parts;
                Ok(parts(self.0, limit)?)
            }

            fn registers(self) -> Result<Option<Vec<RegisterValue>>, DriverError> {
                Ok(Some($driver::registers(self.0)?))
            }

            fn place(&self, pool: &Pool, high: bool) -> Result<Option<u64>, DriverError> {
                Ok(Some(crate::selftest::place(&self.0, pool, high).map_err($driver::Error::from)?))
            }
        }
    )*};
}

driven! {
    Ixgbe: ixgbe, |device, limit| ixgbe::selftest(device, limit).map(Some);
    // Of its parts nothing is its own.
    Ixgbevf: ixgbevf, |device, _| ixgbevf::Model::identify(device.ids()).map(|_| None);
    Igb: igb, |device, limit| igb::selftest(device, limit).map(Some);
}

/// What `virtio` drives, or why there is none.
pub(crate) struct Virtio<T>(pub(crate) Result<T, virtio::Error>);

impl<T: virtio::Transport> Driven for Virtio<T>
where
    virtio::Port<T>: Listed<Error = virtio::Error>,
{
    fn start(self, config: &PortConfig, pool: &Pool) -> Result<Opened, DriverError> {
        Ok(Listed::listed(virtio::open(self.0?, &config.clone().into(), pool)?))
    }

    fn parts(self, _: &TimeLimit) -> Result<Option<Vec<Check>>, DriverError> {
        Ok(self.0.map(|_| None)?)
    }
}

impl Driven for null::Null {
    fn start(self, config: &PortConfig, _: &Pool) -> Result<Opened, DriverError> {
        Ok(Listed::listed(null::open(self, config)?))
    }
}

/// Vendor id of all virtio devices.
const VIRTIO: u16 = 0x1af4;

/// A port of the list.
pub(crate) trait Listed: Port + Sized {
    /// Returns an opened device of this driver as one of any driver.
    fn listed(opened: ethdev::Opened<Self>) -> Opened;
}

/// An error of any driver.
#[derive(Debug)]
pub struct DriverError(Box<dyn PortError>);

impl DriverError {
    /// Returns whether the error is in what was requested, not in this host or the device.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        self.0.is_usage()
    }

    /// Returns why the operation has failed, if a program can make something of it.
    #[must_use]
    pub fn known_cause(&self) -> Option<Cause> {
        self.0.known_cause()
    }
}

impl<E: PortError> From<E> for DriverError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for DriverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl RxQueue for AnyRxQueue {
    // However many functions of a program receive: each has a loop of its own.
    #[inline(always)]
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        each!(Self, self, queue => queue.recv(cache, batch))
    }

    #[inline]
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        each!(Self, self, queue => queue.recv_with(cache, batch, infos))
    }

    fn rest_cycles(&self) -> u64 {
        each!(Self, self, queue => queue.rest_cycles())
    }

    #[inline]
    fn counters(&self) -> RxCounters {
        each!(Self, self, queue => queue.counters())
    }

    fn is_ready(&mut self) -> bool {
        each!(Self, self, queue => queue.is_ready())
    }

    fn arm(&mut self) -> bool {
        each!(Self, self, queue => queue.arm())
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        each!(Self, self, queue => queue.eventfd())
    }
}

impl TxQueue for AnyTxQueue {
    #[inline]
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        each!(Self, self, queue => queue.send(cache, batch))
    }

    #[inline]
    fn counters(&self) -> TxCounters {
        each!(Self, self, queue => queue.counters())
    }

    fn in_flight(&self) -> usize {
        each!(Self, self, queue => queue.in_flight())
    }
}
