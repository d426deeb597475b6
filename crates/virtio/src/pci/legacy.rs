//! The legacy interface: I/O ports of region 0 (Virtio 1.2, section 4.1.4.10).

use super::window::Window;
use super::{Doorbell, Problem, Registers, no_vector};
use crate::transport::{Interface, QueueSetup};
use device::Bar;

/// A legacy device's registers.
pub(super) struct Legacy<B>(pub(super) Window<B>);

const DEVICE_FEATURES: u32 = 0;
const DRIVER_FEATURES: u32 = 4;
/// Address of the selected queue in pages of 4096 bytes.
const QUEUE_ADDRESS: u32 = 8;
const QUEUE_SIZE: u32 = 12;
const QUEUE_SELECT: u32 = 14;
const QUEUE_NOTIFY: u32 = 16;
const DEVICE_STATUS: u32 = 18;
/// There only while MSI-X is on, in front of the device's configuration.
const QUEUE_VECTOR: u32 = 22;
/// Where the device's configuration begins, without MSI-X and with it.
const CONFIG: u32 = 20;
const CONFIG_WITH_MSIX: u32 = 24;

impl<B: Bar> Legacy<B> {
    fn select(&self, queue: u16) {
        // SAFETY: says which queue the other registers are about.
        unsafe { self.0.write16(QUEUE_SELECT, queue) }
    }
}

impl<B: Bar> Registers<B> for Legacy<B> {
    fn interface(&self) -> Interface {
        Interface::Legacy
    }

    fn status(&self) -> u8 {
        self.0.read8(DEVICE_STATUS)
    }

    fn set_status(&self, status: u8) {
        // SAFETY: a device that is started reaches what it was told of in `set_up_queue`, whose callers promised that it may.
        unsafe { self.0.write8(DEVICE_STATUS, status) }
    }

    fn device_features(&self) -> u64 {
        self.0.read32(DEVICE_FEATURES).into()
    }

    #[expect(clippy::cast_possible_truncation, reason = "the interface has 32 features")]
    fn set_driver_features(&self, features: u64) {
        // SAFETY: features are no addresses, and no queue exists yet.
        unsafe { self.0.write32(DRIVER_FEATURES, features as u32) }
    }

    fn config(&self, msix: bool) -> (&Window<B>, u32) {
        (&self.0, if msix { CONFIG_WITH_MSIX } else { CONFIG })
    }

    fn generation(&self) -> Option<u8> {
        None
    }

    fn queue_size(&self, queue: u16) -> u16 {
        self.select(queue);
        self.0.read16(QUEUE_SIZE)
    }

    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Doorbell<B>, Problem> {
        self.select(queue);
        let size = self.0.read16(QUEUE_SIZE);
        if size != setup.size {
            return Err(format!("its size changed to {size}; such a device cannot be used"));
        }
        let Ok(page) = u32::try_from(setup.descriptors >> 12) else {
            let problem = "a legacy device reaches rings below 2^44 only, and this host has put it higher";
            return Err(format!("{problem} ({:#x}); use a modern device", setup.descriptors));
        };
        if let Some(vector) = setup.vector {
            // SAFETY: a vector is no address; the host programs the table.
            unsafe { self.0.write16(QUEUE_VECTOR, vector) };
            if self.0.read16(QUEUE_VECTOR) != vector {
                return Err(no_vector(vector));
            }
        }
        // SAFETY: the caller promises that the queue, of the device's own size, is the device's.
        unsafe { self.0.write32(QUEUE_ADDRESS, page) };
        Ok(self.0.doorbell(QUEUE_NOTIFY, queue))
    }
}
