//! The seam between the driver and the way to a device: PCI or vhost-user (Virtio 1.2, chapters 2 and 4).

use crate::{Error, Result};
use device::{Deadline, DmaDomain, EventFd, Interrupts};
use std::sync::Arc;
use std::time::Duration;

/// Bits of the device status field (Virtio 1.2, section 2.1).
pub mod status {
    /// The driver has noticed the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The driver knows how to drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready; queues are live.
    pub const DRIVER_OK: u8 = 4;
    /// Features are agreed on.
    pub const FEATURES_OK: u8 = 8;
    /// The device has met an error from which only a reset helps.
    pub const DEVICE_NEEDS_RESET: u8 = 0x40;
    /// The driver has given up on the device.
    pub const FAILED: u8 = 0x80;
}

/// What a transport says it could not do when nobody is there ([`device::Error::System`]).
pub(crate) const CONNECT: &str = "connect to";

/// Which of the interfaces of the specification the device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Before Virtio 1.0: 32 feature bits, no `FEATURES_OK`, queues of the device's size at an address below 2^44.
    Legacy,
    /// Virtio 1.0 and later.
    Modern,
}

/// Where a virtqueue lies, in the device's addresses (Virtio 1.2, sections 2.7 and 2.8).
///
/// The three areas follow each other as the legacy interface wants them: `descriptors` is a multiple of 4096,
/// `driver` follows the descriptors, and a split ring's `device` area is the next multiple of 4096. So a legacy transport
/// needs `descriptors >> 12` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSetup {
    /// Number of descriptors, at most what [`Transport::queue_size`] said.
    pub size: u16,
    /// Descriptor table or packed ring.
    pub descriptors: u64,
    /// Driver area: available ring, or driver event suppression structure.
    pub driver: u64,
    /// Device area: used ring, or device event suppression structure.
    pub device: u64,
    /// Bytes from `descriptors` to the end of the last area.
    pub bytes: usize,
    /// Packed layout.
    pub packed: bool,
    /// Which of [`Transport::vectors`] the queue's interrupts go to; `None` for a queue that is polled.
    pub vector: Option<u16>,
}

/// What a device wants of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Nothing.
    None,
    /// The device has to be reset and set up anew: it said so, or its peer has gone.
    Lost(&'static str),
}

/// Tells a device that a queue has something for it (Virtio 1.2, section 4.1.5.2, and the kick of vhost-user).
pub trait Notifier: Send + std::fmt::Debug + 'static {
    /// Notifies. Every earlier store of this thread is visible to the device before it.
    fn notify(&self);
}

/// One virtio-net device as its transport shows it. The driver is generic over this.
///
/// The driver calls, in this order: [`reset`](Self::reset), [`vectors`](Self::vectors) once, [`attach`](Self::attach), status `ACKNOWLEDGE` and `DRIVER`,
/// [`device_features`](Self::device_features), [`set_driver_features`](Self::set_driver_features), status `FEATURES_OK` (modern), the
/// configuration, [`set_up_queue`](Self::set_up_queue) for each queue, status `DRIVER_OK`; then
/// [`watch`](Self::watch) again and again from a thread of its own. A lost device is reset and goes through all of it again.
///
/// All methods but a notifier's are slow paths. Offsets and widths are in bytes; multi-byte values are in host order.
///
/// # Safety
///
/// The driver builds memory safety on an implementation's word:
/// * after a successful `reset`, and until the next `set_status` with `DRIVER_OK`, the device makes no memory access;
/// * `dma` is the address space of this device: what is not mapped there it cannot reach (with an IOMMU), or has not been
///   told of (without one);
/// * [`Interface::Legacy`] or [`Interface::Modern`] is what the device behind the transport speaks.
pub unsafe trait Transport: Send + Sync + 'static {
    /// What notifies one queue.
    type Notifier: Notifier;

    /// The address by which the user named the device, for messages.
    fn name(&self) -> &str;

    /// The device's DMA address space.
    fn dma(&self) -> &DmaDomain;

    /// The NUMA node it is attached to, if known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Sets the end of the operation that is under way: until it is set anew, everything that this device is asked to do
    /// ends by then, or with an error. With `None` each call has the transport's own limit. One operation at a time is under
    /// way. A transport that cannot stall has nothing to do here.
    fn set_deadline(&self, deadline: Option<Deadline>) {
        let _ = deadline;
    }

    /// The deadline that was set last. A transport that was made within one returns it, so that the driver goes on with it.
    fn deadline(&self) -> Option<Deadline> {
        None
    }

    /// Which interface the device speaks. Constant after [`Self::attach`].
    fn interface(&self) -> Interface {
        Interface::Modern
    }

    /// Whether the device's DMA goes through an IOMMU, so that it has to agree to `VIRTIO_F_ACCESS_PLATFORM`.
    fn wants_access_platform(&self) -> bool {
        false
    }

    /// Whether every queue that is set up works at once. Otherwise queue pairs beyond the first are turned on
    /// through the control queue.
    fn starts_all_pairs(&self) -> bool {
        false
    }

    /// Makes `count` interrupt vectors, as wished: all of them or none. What is returned is signalled when the device
    /// interrupts for a queue with that vector.
    ///
    /// # Errors
    ///
    /// With [`Interrupts::Required`], when there cannot be as many.
    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>>;

    /// Resets the device and waits until it has done so: it then accesses no memory (section 2.4).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] or [`Error::Gone`]: whether the device still accesses memory is not known.
    fn reset(&self) -> Result<()>;

    /// Finds the device after a reset, where it may be another one than before: vhost-user connects or accepts.
    ///
    /// # Errors
    ///
    /// [`Error::NoPeer`] when there is none yet; others when there is no hope without somebody's help.
    fn attach(&self) -> Result<()> {
        Ok(())
    }

    /// Reads the device status field.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn status(&self) -> Result<u8>;

    /// Writes the device status field.
    ///
    /// # Errors
    ///
    /// When the device is gone, or does not do what the step is about.
    fn set_status(&self, status: u8) -> Result<()>;

    /// The features that the device offers. A legacy device offers bits 0 to 31 only.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn device_features(&self) -> Result<u64>;

    /// Tells the device which features the driver will use.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn set_driver_features(&self, features: u64) -> Result<()>;

    /// Reads the device's configuration at `offset` (section 5.1.4), in accesses that its fields allow. Bytes may be of
    /// different generations.
    ///
    /// # Errors
    ///
    /// When the device is gone or has no such bytes.
    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()>;

    /// Changes whenever the configuration does (section 2.5); a legacy device has none.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn config_generation(&self) -> Result<Option<u8>> {
        Ok(None)
    }

    /// The largest size of a queue; 0 when there is no such queue. A legacy device's queue has this size exactly.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn queue_size(&self, queue: u16) -> Result<u16>;

    /// Gives a queue its memory and enables it; the device uses it once the driver is ready. Returns what notifies it.
    ///
    /// # Errors
    ///
    /// When the device is gone, does not take the vector, or its notification address is out of range.
    ///
    /// # Safety
    ///
    /// The areas lie in memory mapped in [`Self::dma`], have the sizes that `setup` implies, and belong to the device until
    /// it is known to be reset. So does every buffer that will be made available in the ring.
    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Self::Notifier>;

    /// Waits at most for `limit` until the device wants attention.
    fn watch(&self, limit: Duration) -> Attention {
        std::thread::sleep(limit);
        match self.status() {
            Ok(value) if value & status::DEVICE_NEEDS_RESET == 0 => Attention::None,
            Ok(_) => Attention::Lost("the device asks to be reset"),
            Err(_) => Attention::Lost("the device does not answer"),
        }
    }

    /// [`Error::Gone`] for this device.
    fn gone(&self, symptom: &'static str) -> Error {
        Error::Gone { device: self.name().to_owned(), symptom }
    }
}
