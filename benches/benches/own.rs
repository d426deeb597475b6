//! What does my function cost? Put yours in place of `function`, here or in a copy of this file (which wants a `[[bench]]` of its own
//! in `benches/Cargo.toml`), and run `cargo bench -p benches --bench own`.

mod cycles;

use benches::{Rig, VirtioRig};
use criterion::{Criterion, criterion_group, criterion_main};
use cycles::{Cycles, measure};
use mempool::{Packet, frames_mut};

/// YOUR FUNCTION: what happens to a burst between receive and transmit. This one swaps the MAC addresses.
#[inline(always)]
fn function(packets: &mut [Packet]) {
    for frame in frames_mut(packets) {
        if let Some(addresses) = frame[0].data_mut().first_chunk_mut::<12>() {
            addresses.rotate_left(6);
        }
    }
}

fn own(criterion: &mut Criterion<Cycles>) {
    for burst in [1, 4, 32, 128] {
        // The function alone: a burst that it works on, less one that is only received and transmitted.
        let (with, without) = (|rig: &mut Rig| rig.forward_with(function), |rig: &mut Rig| rig.forward_with(|_| ()));
        measure(criterion, ("own", "alone", burst), burst, Rig::new(burst, 512), with, without);
        let with = |rig: &mut VirtioRig| rig.forward_with(function);
        let without = |rig: &mut VirtioRig| rig.forward_with(|_| ());
        measure(criterion, ("own", "alone-virtio", burst), burst, VirtioRig::new(false, burst, 512), with, without);
    }
}

criterion_group! { name = benches; config = cycles::criterion(); targets = own }
criterion_main!(benches);
