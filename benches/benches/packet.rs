//! Cycles per packet of the drivers, of the pool, of the ring between lcores and of the router, over burst and ring sizes. The hardware's part is measured in the
//! same sample and subtracted.

mod cycles;

use benches::{FRAME, Rig, RouteRig, Table, VirtioRig, Work};
use criterion::{Criterion, criterion_group, criterion_main};
use cycles::{Cycles, measure};
use lcore::{PacketReceiver, PacketSender};
use mempool::{Batch, Pool, PoolConfig};

const RING: u16 = 512;
/// Of rigs that are measured beside the 82599's.
const BURSTS: [usize; 4] = [1, 4, 32, 128];
const DRIVER: [Work; 3] = [Work::Receive, Work::Transmit, Work::Forward];

/// Two rigs: one at work, and one of which only the hardware is.
fn driver(criterion: &mut Criterion<Cycles>, group: &str, work: Work, burst: usize, ring: u16, parameter: usize) {
    let rigs = (Rig::new(burst, ring), Rig::new(burst, ring));
    let part = |rigs: &mut (Rig, Rig)| rigs.1.hardware_part(work, burst);
    measure(criterion, (group, &work.to_string(), parameter), burst, rigs, |rigs| rigs.0.burst(work), part);
}

fn bursts(criterion: &mut Criterion<Cycles>) {
    for work in DRIVER {
        for burst in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            driver(criterion, "burst", work, burst, RING, burst);
        }
    }
}

fn rings(criterion: &mut Criterion<Cycles>) {
    for work in DRIVER {
        for ring in [64, 128, 256, 512, 1024, 2048, 4096] {
            driver(criterion, "ring", work, 32, ring, ring.into());
        }
    }
}

fn virtio(criterion: &mut Criterion<Cycles>) {
    for (group, packed) in [("virtio-split", false), ("virtio-packed", true)] {
        for (work, burst) in DRIVER.into_iter().flat_map(|work| BURSTS.map(|burst| (work, burst))) {
            let rigs = (VirtioRig::new(packed, burst, RING), VirtioRig::new(packed, burst, RING));
            let part = |rigs: &mut (VirtioRig, VirtioRig)| rigs.1.hardware_part(work, burst);
            measure(criterion, (group, &work.to_string(), burst), burst, rigs, |rigs| rigs.0.burst(work), part);
        }
    }
}

/// Takes a burst of buffers from a cache and gives it back.
fn pool(criterion: &mut Criterion<Cycles>) {
    for burst in BURSTS {
        let rig = Rig::new(burst, RING);
        measure(criterion, ("pool", "cache", burst), burst, rig, |rig| rig.burst(Work::Pool), |_| burst);
    }
}

/// Sends a burst into a ring between lcores and receives it from there, both on this one.
fn between_lcores(criterion: &mut Criterion<Cycles>) {
    for burst in BURSTS {
        let pool = Pool::new(&PoolConfig::default()).expect("a packet pool");
        let mut batch = Batch::with_capacity(burst);
        pool.cache().alloc_batch(&mut batch, burst, FRAME.into());
        let (sender, receiver) = lcore::ring(1024);
        let pass = |(sender, receiver, batch): &mut (PacketSender, PacketReceiver, Batch)| {
            sender.send(batch);
            receiver.recv(batch).len()
        };
        measure(criterion, ("lcore", "ring", burst), burst, (sender, receiver, batch), pass, |_| burst);
    }
}

/// `fwd l3` on the 82599: receives a burst, routes it to two ports, and transmits.
fn route(criterion: &mut Criterion<Cycles>) {
    for (name, table) in [("full-table", Table::Full), ("1000-routes", Table::Small)] {
        for burst in BURSTS {
            let rigs = (RouteRig::new(burst, RING, table), RouteRig::new(burst, RING, Table::Small));
            let part = |rigs: &mut (RouteRig, RouteRig)| rigs.1.hardware_part(burst);
            measure(criterion, ("route", name, burst), burst, rigs, |rigs| rigs.0.burst(), part);
        }
    }
}

criterion_group! { name = packet; config = cycles::criterion(); targets = bursts, rings, virtio, pool, between_lcores, route }
criterion_main!(packet);
