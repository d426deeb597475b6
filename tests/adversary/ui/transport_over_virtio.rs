//! E0133: set_up_queue
//! Where a virtqueue lies is not for safe code to say.
use virtio::fake::{FakeConfig, FakeDevice};
use virtio::transport::{QueueSetup, Transport as _};

fn main() {
    let transport = FakeDevice::new(FakeConfig::default()).transport();
    let setup =
        QueueSetup { size: 256, descriptors: 1, driver: 2, device: 3, bytes: 4096, packed: false, vector: None };
    println!("{}", transport.set_up_queue(0, &setup).is_ok());
}
