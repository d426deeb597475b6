//! A device on a packed ring that does whatever the input says.
#![no_main]

mod rings;

use libfuzzer_sys::fuzz_target;
use virtio::Features;

fuzz_target!(|input: &[u8]| rings::run(Features::RING_PACKED, input));
