//! Ports and queues on software NICs, dropped, forgotten and mixed in every order that compiles.

#![forbid(unsafe_code)]

use adversary::{every_slot_once, panic_at, pool};
use device::{Device as _, Translation};
use mempool::Batch;
use nic::{Opened, PortConfig};
use softnic::{Fault, OnViolation, StrictNic};
use vouch::prelude::*;
use std::time::{Duration, Instant};

fn open(spec: &str, pool: &mempool::Pool) -> Opened {
    let config = PortConfig { rx_ring: 64, tx_ring: 64, ..PortConfig::default() };
    nic::open(&spec.parse().expect("an address"), &config, pool).expect("a software NIC")
}

/// Receives and sends until so many frames have come back, two minutes at most.
fn echo(nic: &mut Opened, pool: &mempool::Pool, frames: u64) {
    let (mut cache, mut batch, begun) = (pool.cache(), Batch::with_capacity(32), Instant::now());
    while nic.rx[0].counters().packets < frames {
        assert!(begun.elapsed() < Duration::from_secs(120), "no frames come");
        nic.rx[0].recv(&mut cache, &mut batch);
        nic.tx[0].send(&mut cache, &mut batch);
        batch.clear();
    }
}

#[test]
fn parts_of_a_port_are_dropped_in_any_order() {
    for order in 0..6 {
        let pool = pool(1024);
        let mut nic = open(&format!("soft:order{order}?wire=gen"), &pool);
        echo(&mut nic, &pool, 1000);
        let Opened { port, rx, tx } = nic;
        match order {
            0 => drop((port, rx, tx)),
            1 => drop((rx, tx, port)),
            2 => drop((tx, port, rx)),
            3 => {
                port.close().expect("closed");
                drop((tx, rx));
            }
            4 => {
                drop(rx);
                port.close().expect("closed");
                drop(tx);
            }
            _ => {
                let handle = std::thread::spawn(move || drop((tx, rx)));
                drop(port);
                handle.join().expect("nothing panics");
            }
        }
        every_slot_once(&pool);
    }
}

/// A capture of one whole frame and a piece of another.
fn cut_capture() -> Vec<u8> {
    let words = [0xA1B2_C3D4_u32, 4 << 16 | 2, 0, 0, 262_144, 1, 0, 0, 60, 60];
    let header = words.iter().flat_map(|word| word.to_le_bytes());
    header.chain([0; 60 + 16 + 30]).collect()
}

#[test]
fn a_log_that_panics_on_the_thread_of_all_software_nics_costs_one_of_them() {
    let pool = pool(1024);
    let path = std::env::temp_dir().join(format!("ringway-adversary-cut-{}", std::process::id()));
    std::fs::write(&path, cut_capture()).expect("a file");
    let mut other = open("soft:bystander?wire=gen", &pool);
    let mut victim = open(&format!("soft:victim?wire=pcap:{},", path.display()), &pool);
    let begun = Instant::now();
    let _ = panic_at("ends early", || {
        while victim.port.link().is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it is not gone");
            echo(&mut victim, &pool, 0);
        }
    });
    assert!(victim.close().is_err(), "it says so");
    let before = other.rx[0].counters().packets;
    echo(&mut other, &pool, before + 10_000);
    other.close().expect("closed");
    let mut later = open("soft:later?wire=gen", &pool);
    echo(&mut later, &pool, 10_000);
    later.close().expect("closed");
    std::fs::remove_file(path).expect("removed");
    every_slot_once(&pool);
}

#[test]
fn queues_of_a_closed_port_do_nothing() {
    let pool = pool(1024);
    let mut nic = open("soft:closed?wire=gen", &pool);
    echo(&mut nic, &pool, 100);
    let Opened { port, mut rx, mut tx } = nic;
    port.close().expect("closed");
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    // What had arrived still comes: a ring of it at most.
    let mut late = 0;
    for _ in 0..1000 {
        let before = batch.len();
        rx[0].recv(&mut cache, &mut batch);
        late += batch.len() - before;
        batch.clear();
        cache.alloc_batch(&mut batch, 4, 60);
        assert_eq!(tx[0].send(&mut cache, &mut batch), 0);
        batch.clear();
    }
    assert!(late < 64, "{late} frames after the end");
    drop((rx, tx, cache));
    every_slot_once(&pool);
}

#[test]
fn forgotten_ports_and_queues_keep_what_the_device_has() {
    let pool = pool(2048);
    let mut nic = open("soft:forgotten?wire=gen", &pool);
    echo(&mut nic, &pool, 1000);
    let Opened { port, rx, tx } = nic;
    std::mem::forget((port, rx, tx));
    // The device goes on receiving into its buffers, none of which may be given out.
    let mut cache = pool.cache();
    let mut packets: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    assert!(packets.len() <= 2048 - 63, "buffers of a running ring are not free");
    for packet in &mut packets {
        packet.append(1500).expect("room").fill(0x5a);
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        assert!(packets.iter().all(|packet| packet.data().iter().all(|byte| *byte == 0x5a)), "a device writes to it");
    }
}

#[test]
fn two_devices_exchange_packets_of_two_pools_by_the_wrong_caches() {
    let (left, right) = (pool(1024), pool(1024));
    let (mut a, mut b) = (open("soft:two-a?wire=gen", &left), open("soft:two-b?wire=gen", &right));
    let (mut cache_l, mut cache_r, mut batch) = (left.cache(), right.cache(), Batch::with_capacity(32));
    let begun = Instant::now();
    while a.tx[0].counters().packets < 5000 || b.tx[0].counters().packets < 5000 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no frames pass");
        // A ring takes buffers of its own pool only: the other cache is refused, or is used rightly.
        a.rx[0].recv(&mut cache_l, &mut batch);
        b.tx[0].send(&mut cache_r, &mut batch);
        batch.clear();
        b.rx[0].recv(&mut cache_r, &mut batch);
        a.tx[0].send(&mut cache_l, &mut batch);
        batch.clear();
    }
    a.close().expect("closed");
    drop(cache_l);
    b.close().expect("closed");
    drop((cache_r, batch));
    every_slot_once(&left);
    every_slot_once(&right);
}

#[test]
fn receiving_with_the_cache_of_another_pool_hands_out_no_wrong_packet() {
    let (ours, other) = (pool(1024), pool(1024));
    let mut nic = open("soft:wrong?wire=gen", &ours);
    let (mut cache, mut batch) = (other.cache(), Batch::with_capacity(32));
    for _ in 0..10_000 {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            nic.rx[0].recv(&mut cache, &mut batch);
        }));
        if unwound.is_err() {
            break;
        }
        for packet in batch.drain() {
            assert!([ours.id(), other.id()].contains(&packet.pool_id()));
        }
    }
    drop(nic);
    drop((cache, batch));
    every_slot_once(&other);
    every_slot_once(&ours);
}

#[test]
fn a_log_that_panics_anywhere_leaves_every_slot_in_one_place() {
    // An empty text is in every event: the first of each operation panics.
    let ours = pool(1024);
    let mut nic = None;
    for _ in 0..100 {
        if let Ok(opened) = panic_at("", || open("soft:log?wire=gen&fault=tx-frozen", &ours)) {
            nic = Some(opened);
            break;
        }
    }
    // Whether events come at each open is the library's choice; without the log it opens.
    let mut nic = nic.unwrap_or_else(|| open("soft:log2?wire=gen&fault=tx-frozen", &ours));
    let (mut cache, mut batch) = (ours.cache(), Batch::with_capacity(32));
    for _ in 0..100 {
        let _ = panic_at("", || nic.rx[0].recv(&mut cache, &mut batch));
        let _ = panic_at("", || nic.tx[0].send(&mut cache, &mut batch));
        batch.clear();
    }
    let Opened { port, rx, tx } = nic;
    let _ = panic_at("", || drop(tx));
    let _ = panic_at("", || drop(rx));
    let _ = panic_at("", || port.close());
    drop((cache, batch));
    let mut cache = ours.cache();
    let packets: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    let mut places: Vec<_> = packets.iter().map(|packet| packet.slot().as_ptr()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), packets.len(), "a slot was given out twice");
}

#[test]
fn a_device_that_breaks_every_rule_makes_no_packet_beyond_its_buffer() {
    let faults = [
        Fault::RxLengthZero { every: 2 },
        Fault::RxLengthOver { length: 65_535 },
        Fault::RxNoEop,
        Fault::RxOutOfOrder,
        Fault::RxErrorBits { every: 2 },
        Fault::TxOutOfOrder,
        Fault::TxNoDd,
        Fault::Removal { after_reads: 100 },
    ];
    for fault in faults {
        let pool = pool(1024);
        let device = StrictNic::builder().on_violation(OnViolation::Record).build();
        let control = device.control();
        let config = vouch::ixgbe_config(64);
        let opened = ixgbe::open(device, &config, &pool).expect("honest at first");
        let ixgbe::Opened { port, mut rx, mut tx } = opened;
        control.inject_fault(fault);
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        for round in 0..500_usize {
            control.inject(&vec![7; 60 + round % 4000]);
            control.step_until_idle(10);
            rx[0].recv(&mut cache, &mut batch);
            for packet in batch.iter_mut() {
                assert!(packet.len() <= 2048, "{fault}: {} bytes", packet.len());
                packet.data_mut().fill(1);
            }
            tx[0].send(&mut cache, &mut batch);
            batch.clear();
        }
        drop((rx, tx, batch));
        let _ = port.close();
        drop(cache);
        let mut cache = pool.cache();
        let packets: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
        assert!(packets.len() <= 1024);
    }
}

#[test]
fn addresses_of_pointers_outside_of_memory_are_nobodys() {
    let device = StrictNic::builder().build();
    let memory =
        device::DmaMemory::allocate(&device::MemoryRequest { bytes: 8192, ..Default::default() }).expect("memory");
    let translation = device.dma().map(&memory).expect("mapped");
    let wild = [std::ptr::null(), std::ptr::dangling::<u8>(), usize::MAX as *const u8];
    for pointer in wild {
        let _ = translation.iova(pointer);
    }
    for shift in [0, 12, 21, 63] {
        let paged = Translation::Paged { base: 4096, shift, pages: vec![u64::MAX - 10, 0].into() };
        for pointer in wild {
            let _ = std::panic::catch_unwind(|| paged.iova(pointer));
        }
    }
    device.dma().unmap(&memory).expect("unmapped");
    device.dma().unmap(&memory).expect("unmapped twice");
}
