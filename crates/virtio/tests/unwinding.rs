//! A notification that panics unwinds out of `send`: each packet is then in one place.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unsafe_code, reason = "plays the transport")]

mod common;

use common::{BASE, MERGING, Rig, config, frame};
use device::{DmaDomain, EventFd, Interrupts};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use virtio::fake::{FakeConfig, FakeDevice, FakeNotifier, FakeTransport};
use virtio::transport::{Interface, Notifier, QueueSetup};
use virtio::{Features, Result, Transport};

/// A transport whose notifications panic while they are told to.
struct Cracked(FakeTransport, Arc<AtomicBool>);

#[derive(Debug)]
struct Bell(FakeNotifier, Arc<AtomicBool>);

impl Notifier for Bell {
    fn notify(&self) {
        assert!(!self.1.load(Ordering::Relaxed), "the bell is cracked");
        self.0.notify();
    }
}

// SAFETY: all but the notification is the other one's.
unsafe impl Transport for Cracked {
    type Notifier = Bell;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn dma(&self) -> &DmaDomain {
        self.0.dma()
    }

    fn interface(&self) -> Interface {
        self.0.interface()
    }

    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>> {
        self.0.vectors(wish, count)
    }

    fn reset(&self) -> Result<()> {
        self.0.reset()
    }

    fn status(&self) -> Result<u8> {
        self.0.status()
    }

    fn set_status(&self, status: u8) -> Result<()> {
        self.0.set_status(status)
    }

    fn device_features(&self) -> Result<u64> {
        self.0.device_features()
    }

    fn set_driver_features(&self, features: u64) -> Result<()> {
        self.0.set_driver_features(features)
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        self.0.read_config(offset, bytes)
    }

    fn config_generation(&self) -> Result<Option<u8>> {
        self.0.config_generation()
    }

    fn queue_size(&self, queue: u16) -> Result<u16> {
        self.0.queue_size(queue)
    }

    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<Bell> {
        // SAFETY: promised by the caller.
        let bell = unsafe { self.0.set_up_queue(queue, setup) }?;
        Ok(Bell(bell, Arc::clone(&self.1)))
    }

    fn watch(&self, limit: Duration) -> Option<&'static str> {
        self.0.watch(limit)
    }
}

#[test]
fn p3_a_send_that_unwinds_leaves_each_packet_in_one_place() {
    for layout in [Features::default(), Features::RING_PACKED] {
        let device = FakeDevice::new(FakeConfig {
            features: BASE | MERGING | layout,
            wants_notifications: true,
            ..FakeConfig::default()
        });
        let cracked = Arc::<AtomicBool>::default();
        let transport = Cracked(device.transport(), Arc::clone(&cracked));
        let mut rig = Rig::over(transport, device, &config());
        for n in 0..8 {
            rig.put(&[&frame(n, 60)]);
        }
        cracked.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| rig.send())).is_err());
        cracked.store(false, Ordering::Relaxed);
        assert!(rig.batch.is_empty(), "the ring has taken over all of them");
        for n in 0..8 {
            assert_eq!(rig.device.collect(0), Some(frame(n, 60)));
        }
        // The queue goes on.
        rig.put(&[&frame(9, 60)]);
        assert_eq!(rig.send(), 1);
        assert_eq!(rig.device.collect(0), Some(frame(9, 60)));
        rig.close();
    }
}
