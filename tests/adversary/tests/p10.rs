//! P10: rings that end on the boundary of a huge page, and every other size and number: an error or a device, no panic.

#![forbid(unsafe_code)]

use adversary::pool;
use virtio::fake::{FakeConfig, FakeDevice};
use virtio::Features;
use vouch::prelude::*;

#[test]
fn p10_rings_of_any_size_and_number_are_set_up_or_refused() {
    for packed in [false, true] {
        for pairs in [1, 2, 16, 32, 64] {
            for size in [64, 256, 512, 1024] {
                let pool = pool(usize::from(pairs) * usize::from(size) + 1024);
                let base = Features::VERSION_1 | Features::MAC | Features::STATUS | Features::MQ | Features::CTRL_VQ;
                let features = if packed { base | Features::RING_PACKED } else { base };
                let device = FakeDevice::new(FakeConfig { features, pairs, queue_size: size, ..FakeConfig::default() });
                let config = vouch::virtio_config(pairs, size);
                match virtio::open(device.transport(), &config, &pool) {
                    Ok(opened) => {
                        drop((opened.rx, opened.tx));
                        opened.port.close().expect("the device is made of memory");
                    }
                    Err(error) => println!("{pairs} pairs of {size}, packed {packed}: {error}"),
                }
            }
        }
    }
}
