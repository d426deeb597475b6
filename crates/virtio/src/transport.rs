//! The interface between the driver and the way to a device, PCI or vhost-user (Virtio 1.2, chapters 2 and 4).

use crate::{Error, Result};
use device::{Deadline, DmaDomain, EventFd, Interrupts};
use std::sync::Arc;
use std::time::Duration;

/// Bits of the device status field (Virtio 1.2, section 2.1).
pub mod status {
    /// The driver has noticed the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The driver knows how to drive the device.
    pub const DRIVER: u8 = 2;
    /// The driver is ready; queues are live.
    pub const DRIVER_OK: u8 = 4;
    /// Features are negotiated.
    pub const FEATURES_OK: u8 = 8;
    /// The device has met an error from which only a reset recovers.
    pub const DEVICE_NEEDS_RESET: u8 = 0x40;
    /// The driver has given up on the device.
    pub const FAILED: u8 = 0x80;
}

/// What a transport says it could not do when nobody is there ([`device::Error::System`]).
pub(crate) const CONNECT: &str = "connect to";

/// The interface of the specification that a device supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Before Virtio 1.0: 32 feature bits, no `FEATURES_OK`, queues of the device's size at an address below 2^44.
    Legacy,
    /// Virtio 1.0 and later.
    Modern,
}

/// The addresses of a virtqueue, as the device sees them (Virtio 1.2, sections 2.7 and 2.8).
///
/// The three areas follow each other as the legacy interface requires: `descriptors` is a multiple of 4096, `driver`
/// follows the descriptors, and a split ring's `device` area is at the next multiple of 4096. So a legacy transport
/// needs only `descriptors >> 12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSetup {
    /// Number of descriptors, at most what [`Transport::queue_size`] returned.
    pub size: u16,
    /// Address of the descriptor table or packed ring.
    pub descriptors: u64,
    /// Address of the driver area: available ring, or driver event suppression structure.
    pub driver: u64,
    /// Address of the device area: used ring, or device event suppression structure.
    pub device: u64,
    /// Number of bytes from `descriptors` to the end of the last area.
    pub bytes: usize,
    /// Whether the queue has the packed layout.
    pub packed: bool,
    /// The one of [`Transport::vectors`] that the queue's interrupts use; `None` for a queue that is polled.
    pub vector: Option<u16>,
}

/// Tells a device that a queue has something for it (Virtio 1.2, section 4.1.5.2, and the kick of vhost-user).
pub trait Notifier: Send + std::fmt::Debug + 'static {
    /// Notifies the device. All earlier stores of this thread are visible to the device before that.
    fn notify(&self);
}

/// A virtio-net device as seen through its transport. The driver is generic over this trait.
///
/// The driver calls, in this order: [`reset`](Self::reset), [`vectors`](Self::vectors) once, [`attach`](Self::attach), status `ACKNOWLEDGE` and `DRIVER`,
/// [`device_features`](Self::device_features), [`set_driver_features`](Self::set_driver_features), status `FEATURES_OK` (modern), the
/// configuration, [`set_up_queue`](Self::set_up_queue) for each queue, status `DRIVER_OK`; then
/// [`watch`](Self::watch) repeatedly from a thread of its own. A lost device is reset and goes through all of these
/// steps again.
///
/// All methods except those of a notifier are slow paths. Offsets and widths are in bytes; multi-byte values are in
/// host order.
///
/// # Safety
///
/// The memory safety of the driver depends on these promises of an implementation:
/// * after a successful `reset`, and until the next `set_status` with `DRIVER_OK`, the device makes no memory access;
/// * `dma` is the address space of this device: what is not mapped there it cannot reach (with an IOMMU), or has not been
///   told of (without one);
/// * [`Interface::Legacy`] or [`Interface::Modern`] is what the device behind the transport speaks.
pub unsafe trait Transport: Send + Sync + 'static {
    /// The type that notifies a queue.
    type Notifier: Notifier;

    /// Returns the address by which the user named the device, for messages.
    fn name(&self) -> &str;

    /// Returns the device's DMA address space.
    fn dma(&self) -> &DmaDomain;

    /// Returns the NUMA node the device is attached to, if known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Sets the deadline of the current operation. Until another one is set, everything requested of the device ends by
    /// then, with an error if necessary. With `None` each call has the transport's own limit. There is one operation at
    /// a time. A transport that cannot stall need not implement this.
    fn set_deadline(&self, deadline: Option<Deadline>) {
        let _ = deadline;
    }

    /// Returns the deadline that was set last. A transport that was made within a deadline returns that, so that the
    /// driver continues with it.
    fn deadline(&self) -> Option<Deadline> {
        None
    }

    /// Returns the interface that the device supports. It is constant after [`Self::attach`].
    fn interface(&self) -> Interface {
        Interface::Modern
    }

    /// Returns whether the device's DMA goes through an IOMMU, so that the device must accept
    /// `VIRTIO_F_ACCESS_PLATFORM`.
    fn wants_access_platform(&self) -> bool {
        false
    }

    /// Returns whether every queue that is set up works at once. Otherwise queue pairs beyond the first are turned on
    /// through the control queue.
    fn starts_all_pairs(&self) -> bool {
        false
    }

    /// Creates `count` interrupt vectors, as requested by `wish`: all of them or none. Returns the eventfds, each of
    /// which is signalled when the device interrupts for a queue with that vector.
    ///
    /// # Errors
    ///
    /// With [`Interrupts::Required`], if that many are not available.
    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>>;

    /// Resets the device and waits until it has done so: it then accesses no memory (section 2.4).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] or [`Error::Gone`]; then it is not known whether the device still accesses memory.
    fn reset(&self) -> Result<()>;

    /// Finds the device after a reset; it may be another one than before. With vhost-user this connects or accepts a
    /// connection.
    ///
    /// # Errors
    ///
    /// [`Error::NoPeer`] if there is none yet; other errors if it cannot be expected to appear without intervention.
    fn attach(&self) -> Result<()> {
        Ok(())
    }

    /// Reads the device status field.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn status(&self) -> Result<u8>;

    /// Writes the device status field.
    ///
    /// # Errors
    ///
    /// If the device is gone, or does not do what that status demands of it.
    fn set_status(&self, status: u8) -> Result<()>;

    /// Returns the features that the device offers. A legacy device offers bits 0 to 31 only.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn device_features(&self) -> Result<u64>;

    /// Tells the device which features the driver will use.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn set_driver_features(&self, features: u64) -> Result<()>;

    /// Reads the device's configuration at `offset` (section 5.1.4), in accesses that its fields allow. The bytes may
    /// be from different generations.
    ///
    /// # Errors
    ///
    /// If the device is gone or has no such bytes.
    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()>;

    /// Returns the generation, which changes whenever the configuration does (section 2.5); `None` for a legacy device.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn config_generation(&self) -> Result<Option<u8>> {
        Ok(None)
    }

    /// Returns the largest size of a queue; 0 if there is no such queue. A legacy device's queue has exactly this size.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn queue_size(&self, queue: u16) -> Result<u16>;

    /// Gives a queue its memory and enables it; the device uses it once the driver is ready. Returns the queue's
    /// notifier.
    ///
    /// # Errors
    ///
    /// If the device is gone, does not accept the vector, or its notification address is out of range.
    ///
    /// # Safety
    ///
    /// The areas lie in memory mapped in [`Self::dma`], have the sizes that `setup` implies, and belong to the device until
    /// it is known to be reset. So does every buffer that will be made available in the ring.
    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Self::Notifier>;

    /// Waits, for `limit` at most, until the device must be reset and set up again: it asked for that, or its peer is gone.
    /// Returns the reason; `None` if it need not be.
    fn watch(&self, limit: Duration) -> Option<&'static str> {
        std::thread::sleep(limit);
        match self.status() {
            Ok(value) if value & status::DEVICE_NEEDS_RESET == 0 => None,
            Ok(_) => Some("the device asks to be reset"),
            Err(_) => Some("the device does not answer"),
        }
    }

    /// Returns [`Error::Gone`] for this device.
    fn gone(&self, symptom: &'static str) -> Error {
        Error::Gone { device: self.name().to_owned(), symptom }
    }
}
