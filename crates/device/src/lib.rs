//! Access to PCI devices from user space: discovery and binding, VFIO and sysfs, registers, DMA memory.
//!
//! ```no_run
//! use device::{Bar as _, Device as _, Host, VfioDevice};
//!
//! /// Reads register 0 of each network controller that VFIO has.
//! fn main() -> device::Result<()> {
//!     let host = Host::system();
//!     for controller in host.network_controllers()? {
//!         let status = host.status(&controller);
//!         if status.is_usable() {
//!             let device = VfioDevice::open(&host, controller.address)?;
//!             println!("{}: {:#x}", controller.address, device.bar().read32(0));
//!         } else {
//!             println!("{}: {status}", controller.address);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! A driver is written against three parts of this crate and nothing else:
//!
//! * [`Device`]: one opened device, with its [`Bar`], its [`DmaDomain`], reset and bus mastering;
//! * [`registers!`] and [`Regs`]: typed registers, where a register through which the device learns an
//!   address has only an unsafe setter;
//! * [`DmaMemory`]: memory the device can reach, never unmapped before the IOMMU has forgotten it.
//!
//! A program gets to a device in three steps: [`Host`] lists the devices, reports whether they can be used
//! ([`Host::status`]; for the whole host, [`Host::examine`]) and binds them to `vfio-pci` ([`Host::bind`]);
//! [`VfioDevice::open`] opens one.
//!
//! Feature `vfio-user` (off by default): `VfioUserDevice`, a device that another process emulates, and the messages for
//! both sides.
#![expect(unsafe_code, reason = "registers, DMA memory and the promises that drivers are built on")]

mod background_close;
mod bar;
pub mod barrier;
mod bind;
mod claim;
mod config;
pub mod cpulist;
mod deadline;
mod dma;
mod doctor;
mod error;
mod host;
mod interrupts;
mod iova;
mod listen;
mod memory;
mod no_iommu;
mod numa;
mod pci;
pub mod prefetch;
mod region_file;
mod regs;
mod remedy;
pub mod sigbus;
mod signaller;
mod status;
mod sysfs;
mod traits;
mod trusted_peer;
pub mod tsc;
mod vfio;
#[cfg(feature = "vfio-user")]
pub mod vfio_user;

pub use background_close::BackgroundClose;
pub use bar::{Bar, MappedBar};
pub use bind::IfInUse;
pub use config::{Capability, ConfigSpace};
pub use deadline::{Deadline, Expired, TimeLimit};
pub use dma::{DmaDomain, DmaMapper, Translation};
pub use doctor::{Finding, Needs, Verdict};
pub use error::{Error, Result};
pub use host::Host;
pub use interrupts::{EventFd, Interrupts};
pub use iova::IovaAllocator;
pub use listen::SocketFile;
pub use memory::{DmaMemory, MemoryRequest, PageSize};
pub use no_iommu::NoIommu;
pub use pci::{PciAddress, PciDevice, PciRegion};
pub use regs::{
    Access, Bits, Dma, Listing, MapPromise, ReadClears, ReadOnly, ReadWrite, Readable, Reg, RegArray, RegisterLine,
    RegisterMap, RegisterValue, Regs, Writable, WriteOnly,
};
pub use remedy::Remedy;
pub use signaller::Signaller;
pub use status::{Status, StatusKind};
pub use sysfs::SysfsDevice;
pub use traits::{Device, PciFunction, PciIds};
pub use trusted_peer::TrustedPeer;
pub use vfio::{VfioDevice, VfioEvent};
#[cfg(feature = "vfio-user")]
pub use vfio_user::{VfioUserDevice, VfioUserRegisters};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
