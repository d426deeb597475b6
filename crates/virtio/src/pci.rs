//! virtio-net over PCI (Virtio 1.2, section 4.1): modern devices through memory regions that capabilities point at, legacy
//! ones through I/O ports.
//!
//! A transitional device offers both, and is driven as a modern one. Bus mastering is on from when the driver is ready to
//! when the device has confirmed its reset. Behind an IOMMU a device has to agree to `VIRTIO_F_ACCESS_PLATFORM`: without it
//! the device bypasses the IOMMU, and would take the driver's addresses for physical ones. Legacy devices cannot agree to
//! it, so they are driven without an IOMMU only.

mod capability;
mod legacy;
mod modern;
mod window;

use crate::transport::{Interface, Notifier, QueueSetup, Transport, status};
use crate::{Error, Features, Kind, Result, identify};
use device::{Bar, Deadline, DmaDomain, EventFd, Interrupts, PciFunction, TimeLimit};
use legacy::Legacy;
use modern::Modern;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use window::Window;

/// A virtio-net device on PCI.
///
/// ```no_run
/// use device::{Host, VfioDevice};
/// use ethdev::Port as _;
/// use mempool::{Pool, PoolConfig};
/// use virtio::{Config, Pci};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let function = VfioDevice::open(&Host::system(), "00:03.0".parse()?)?;
/// let opened = virtio::open(Pci::new(function)?, &Config::default(), &pool)?;
/// println!("{}", opened.port.mac());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pci<F: PciFunction> {
    function: F,
    registers: Box<dyn Registers<F::Bar>>,
    /// Held from the selection of a queue or half to the end of what is done with it.
    selection: Mutex<()>,
    msix: AtomicBool,
    deadline: Mutex<Option<Deadline>>,
}

/// The registers of an interface. Nothing is checked here but what memory safety stands on.
trait Registers<B>: Send + Sync {
    fn interface(&self) -> Interface;
    fn status(&self) -> u8;
    fn set_status(&self, status: u8);
    fn device_features(&self) -> u64;
    fn set_driver_features(&self, features: u64);
    /// Returns the window of the device's configuration, and its offset in that window.
    fn config(&self, msix: bool) -> (&Window<B>, u32);
    fn generation(&self) -> Option<u8>;
    fn queue_size(&self, queue: u16) -> u16;
    /// # Safety
    ///
    /// As [`Transport::set_up_queue`].
    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Doorbell<B>, Problem>;
}

/// What is wrong with a queue, and the next step.
type Problem = String;

impl<F: PciFunction> Pci<F> {
    /// Finds the registers of an opened function. It does not change the device.
    ///
    /// # Errors
    ///
    /// If its ids are not those of a virtio-net device, or it has no interface that this driver supports because its
    /// capabilities are inconsistent.
    pub fn new(function: F) -> Result<Self> {
        let Some(kind) = identify(function.ids()) else {
            let problem = format!("{} is not a virtio-net device", function.ids());
            return Err(Error::negotiation(function.name(), problem));
        };
        let registers: Box<dyn Registers<F::Bar>> = match capability::find(&function)? {
            Some(layout) => Box::new(Modern(layout)),
            None if kind == Kind::Transitional => {
                let region = function.region(0)?;
                let len = u32::try_from(region.size()).unwrap_or(u32::MAX);
                Box::new(Legacy(Window::new(Arc::new(region), 0, len)))
            }
            None => {
                let problem = "a modern device without virtio capabilities; such a device cannot be used";
                return Err(Error::negotiation(function.name(), problem));
            }
        };
        let (name, kind, interface) = (function.name(), kind.name(), registers.interface());
        tracing::debug!("{name}: {kind}, driven by its {interface:?} interface");
        Ok(Self {
            function,
            registers,
            selection: Mutex::default(),
            msix: AtomicBool::new(false),
            deadline: Mutex::default(),
        })
    }

    fn selection(&self) -> MutexGuard<'_, ()> {
        self.selection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error if the device is gone, `result` otherwise.
    fn alive<R>(&self, result: R) -> Result<R> {
        self.status().map(|_| result)
    }

    fn wait_for_reset(&self) -> Result<()> {
        let deadline = self.deadline().unwrap_or_else(|| TimeLimit::default().begin());
        while self.status()? != 0 {
            let waited = deadline.sleep(Duration::from_millis(1));
            waited.map_err(|expired| Error::expired(self.name(), "the reset to be done", expired))?;
        }
        Ok(())
    }
}

/// Notifies a queue by writing its number to the queue's notification address.
pub struct Doorbell<B> {
    region: Arc<B>,
    at: u32,
    queue: u16,
}

impl<B: Bar> Notifier for Doorbell<B> {
    fn notify(&self) {
        // SAFETY: the number of a queue: the device looks at the ring that it was given for it, or, if it was reset
        // meanwhile, at nothing.
        unsafe { self.region.write16(self.at, self.queue) }
    }
}

// SAFETY: a reset succeeds when the device has said that it is done, and bus mastering, without which a function reaches no
// memory, is off from then on until DRIVER_OK. `dma` is the function's. The registers of each interface are used in its own
// way only, as found in configuration space.
unsafe impl<F: PciFunction> Transport for Pci<F> {
    type Notifier = Doorbell<F::Bar>;

    fn name(&self) -> &str {
        self.function.name()
    }

    fn dma(&self) -> &DmaDomain {
        self.function.dma()
    }

    fn numa_node(&self) -> Option<u32> {
        self.function.numa_node()
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.function.set_deadline(deadline.clone());
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn deadline(&self) -> Option<Deadline> {
        let own = self.deadline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.or_else(|| self.function.deadline())
    }

    fn interface(&self) -> Interface {
        self.registers.interface()
    }

    fn wants_access_platform(&self) -> bool {
        self.function.has_iommu()
    }

    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>> {
        let vectors = wish.enable(&self.function, count)?;
        self.msix.store(!vectors.is_empty(), Ordering::Relaxed);
        Ok(vectors.into_iter().map(Arc::new).collect())
    }

    fn reset(&self) -> Result<()> {
        self.registers.set_status(0);
        let done = self.wait_for_reset();
        // Also of a device that does not answer: it may hear this.
        let quiet = self.function.set_bus_master(false);
        done?;
        Ok(quiet?)
    }

    fn status(&self) -> Result<u8> {
        // All ones is no status: it is the bus's answer for a device that is gone.
        match self.registers.status() {
            u8::MAX => Err(self.gone("its registers read all ones")),
            status => Ok(status),
        }
    }

    fn set_status(&self, value: u8) -> Result<()> {
        if value & status::DRIVER_OK != 0 {
            self.function.set_bus_master(true)?;
        }
        self.registers.set_status(value);
        self.alive(())
    }

    fn device_features(&self) -> Result<u64> {
        let _selection = self.selection();
        let mut features = Features(self.alive(self.registers.device_features())?);
        // QEMU (11.1) moves the place at which it wants to be notified when it takes a chain off a split ring, but not off a
        // packed one: after it had to wait for its own peer it sleeps through what comes next.
        if features.contains(Features::RING_PACKED) {
            features = features.without(Features::EVENT_IDX);
        }
        Ok(features.0)
    }

    fn set_driver_features(&self, features: u64) -> Result<()> {
        let _selection = self.selection();
        self.registers.set_driver_features(features);
        self.alive(())
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        let (window, start) = self.registers.config(self.msix.load(Ordering::Relaxed));
        let at = start + u32::from(offset);
        if !window.has(at.into(), bytes.len() as u64) {
            let problem = format!("its configuration ends before byte {offset}; such a device cannot be used");
            return Err(Error::negotiation(self.name(), problem));
        }
        // Fields of 16 bits in one access, addresses byte by byte.
        if let Ok(bytes) = <&mut [u8; 2]>::try_from(&mut *bytes) {
            *bytes = window.read16(at).to_le_bytes();
        } else {
            (at..).zip(bytes).for_each(|(at, byte)| *byte = window.read8(at));
        }
        self.alive(())
    }

    fn config_generation(&self) -> Result<Option<u8>> {
        Ok(self.registers.generation())
    }

    fn queue_size(&self, queue: u16) -> Result<u16> {
        let _selection = self.selection();
        self.alive(self.registers.queue_size(queue))
    }

    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Doorbell<F::Bar>> {
        let _selection = self.selection();
        // SAFETY: promised by the caller.
        let doorbell = unsafe { self.registers.set_up_queue(queue, setup) };
        self.alive(())?;
        doorbell.map_err(|problem| Error::Queue { device: self.name().to_owned(), queue, problem })
    }
}

impl<F: PciFunction> fmt::Debug for Pci<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, interface) = (self.function.name(), self.registers.interface());
        f.debug_struct("Pci").field("name", &name).field("interface", &interface).finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Doorbell<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("at", &self.at).field("queue", &self.queue).finish_non_exhaustive()
    }
}

fn no_vector(vector: u16) -> Problem {
    format!("the device does not take interrupt vector {vector}; poll (--idle poll), or give it more vectors")
}

/// The device is not to interrupt.
const NO_VECTOR: u16 = 0xFFFF;
