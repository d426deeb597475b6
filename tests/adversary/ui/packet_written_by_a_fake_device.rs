//! E0133: FakeDevice::write
//! Memory that a played device has is written by whoever vouches that the driver has not got it back.
use virtio::fake::{FakeConfig, FakeDevice, Part};

fn main() {
    let device = FakeDevice::new(FakeConfig::default());
    device.write(&Part { address: 0x40_0000_0000, len: 1, writable: true }, 0, &[1]);
}
