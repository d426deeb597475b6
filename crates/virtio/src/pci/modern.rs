//! The modern interface: common configuration and notifications (Virtio 1.2, sections 4.1.4.3 and 4.1.4.4).

use super::capability::Layout;
use super::window::Window;
use super::{Doorbell, NO_VECTOR, Problem, Registers, no_vector};
use crate::transport::{Interface, QueueSetup};
use device::Bar;

/// A modern device's registers.
pub(super) struct Modern<B>(pub(super) Layout<B>);

/// Offsets in the common configuration.
const DEVICE_FEATURE_SELECT: u32 = 0;
const DEVICE_FEATURE: u32 = 4;
const DRIVER_FEATURE_SELECT: u32 = 8;
const DRIVER_FEATURE: u32 = 12;
const NUM_QUEUES: u32 = 18;
const DEVICE_STATUS: u32 = 20;
const CONFIG_GENERATION: u32 = 21;
const QUEUE_SELECT: u32 = 22;
const QUEUE_SIZE: u32 = 24;
const QUEUE_MSIX_VECTOR: u32 = 26;
const QUEUE_ENABLE: u32 = 28;
const QUEUE_NOTIFY_OFF: u32 = 30;
const QUEUE_DESC: u32 = 32;
const QUEUE_DRIVER: u32 = 40;
const QUEUE_DEVICE: u32 = 48;

impl<B: Bar> Modern<B> {
    fn select(&self, queue: u16) {
        // SAFETY: says which queue the registers after it are about.
        unsafe { self.0.common.write16(QUEUE_SELECT, queue) }
    }
}

impl<B: Bar> Registers<B> for Modern<B> {
    fn interface(&self) -> Interface {
        Interface::Modern
    }

    fn status(&self) -> u8 {
        self.0.common.read8(DEVICE_STATUS)
    }

    fn set_status(&self, status: u8) {
        // SAFETY: a device that is started reaches what it was told of in `set_up_queue`, whose callers promised that it may.
        unsafe { self.0.common.write8(DEVICE_STATUS, status) }
    }

    fn device_features(&self) -> u64 {
        let half = |select| {
            // SAFETY: says which half is to be read.
            unsafe { self.0.common.write32(DEVICE_FEATURE_SELECT, select) };
            u64::from(self.0.common.read32(DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "halves of 64 bits")]
    fn set_driver_features(&self, features: u64) {
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            // SAFETY: says which half is written next.
            unsafe { self.0.common.write32(DRIVER_FEATURE_SELECT, select) };
            // SAFETY: features are no addresses, and no queue exists yet.
            unsafe { self.0.common.write32(DRIVER_FEATURE, half) };
        }
    }

    fn config(&self, _: bool) -> (&Window<B>, u32) {
        (&self.0.device, 0)
    }

    fn generation(&self) -> Option<u8> {
        Some(self.0.common.read8(CONFIG_GENERATION))
    }

    fn queue_size(&self, queue: u16) -> u16 {
        if queue >= self.0.common.read16(NUM_QUEUES) {
            return 0;
        }
        self.select(queue);
        self.0.common.read16(QUEUE_SIZE)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves of 64 bits; an offset that lies in a window of 2^32 bytes"
    )]
    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Doorbell<B>, Problem> {
        let common = &self.0.common;
        self.select(queue);
        let offset = u64::from(common.read16(QUEUE_NOTIFY_OFF)) * u64::from(self.0.multiplier);
        if !self.0.notify.has(offset, 2) || !offset.is_multiple_of(2) {
            return Err(format!(
                "its notifications go to {offset:#x}, which is no place for them; such a device cannot be used"
            ));
        }
        // SAFETY: a size that the device allows; the memory that follows has it.
        unsafe { common.write16(QUEUE_SIZE, setup.size) };
        if common.read16(QUEUE_SIZE) != setup.size {
            return Err(format!("the device does not take a size of {}; such a device cannot be used", setup.size));
        }
        let vector = setup.vector.unwrap_or(NO_VECTOR);
        // SAFETY: a vector is no address; the host programs the table.
        unsafe { common.write16(QUEUE_MSIX_VECTOR, vector) };
        if common.read16(QUEUE_MSIX_VECTOR) != vector {
            return Err(no_vector(vector));
        }
        for (register, address) in
            [(QUEUE_DESC, setup.descriptors), (QUEUE_DRIVER, setup.driver), (QUEUE_DEVICE, setup.device)]
        {
            // SAFETY: the caller promises that the area is the device's.
            unsafe { common.write32(register, address as u32) };
            // SAFETY: as above.
            unsafe { common.write32(register + 4, (address >> 32) as u32) };
        }
        // SAFETY: the caller promises that all of the queue is the device's.
        unsafe { common.write16(QUEUE_ENABLE, 1) };
        Ok(self.0.notify.doorbell(offset as u32, queue))
    }
}
