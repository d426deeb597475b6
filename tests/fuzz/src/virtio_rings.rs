//! A virtio driver, and a device that does whatever the input says to its rings.

use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Checksum, Pool, PoolConfig, complete_checksum};
use virtio::fake::{Chain, FakeConfig, FakeDevice, FakeTransport};
use virtio::transport::Interface;
use virtio::{Config, Features, Opened, RxQueue, TxQueue};

/// Runs one input on split rings.
pub fn split(input: &[u8]) {
    run(Features::default(), input);
}

/// Runs one input on packed rings.
pub fn packed(input: &[u8]) {
    run(Features::RING_PACKED, input);
}

/// Runs one input: a byte of features, then steps of four bytes each. Afterwards every slot must be home.
fn run(layout: Features, input: &[u8]) {
    thread_local! {
        static POOL: Pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).expect("memory");
    }
    let Some((first, steps)) = input.split_first() else { return };
    let mut features = layout | Features::VERSION_1;
    let choices = [
        (0, Features::MRG_RXBUF),
        (1, Features::EVENT_IDX),
        (2, Features::IN_ORDER),
        (4, Features::CSUM),
        (5, Features::GUEST_CSUM),
        (6, Features::MTU),
    ];
    // A device before Virtio 1.0, whose headers lie apart unless their buffers are mergeable.
    let legacy = first >> 7 == 1 && layout == Features::default();
    if legacy {
        features = Features(features.0 & 0xffff_ffff & !Features::VERSION_1.0);
    }
    for (bit, feature) in choices {
        if first >> bit & 1 == 1 {
            features = features | feature;
        }
    }
    POOL.with(|pool| {
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (64, 64);
        config.port.checksum_offload = true;
        config.port.mtu = if features.contains(Features::MRG_RXBUF) { 9000 } else { 1500 };
        let interface = if legacy { Interface::Legacy } else { Interface::Modern };
        let fake = FakeConfig {
            features,
            queue_size: 64,
            wants_notifications: first & 8 != 0,
            interface,
            mtu: config.port.mtu,
            ..FakeConfig::default()
        };
        let device = FakeDevice::new(fake);
        let opened = virtio::open(device.transport(), &config, pool).expect("the device starts");
        let strict = features.contains(Features::RING_PACKED) && features.contains(Features::IN_ORDER);
        drive(&device, opened, pool, strict, steps);
        assert_eq!(pool.away(), 0, "every slot is home");
    });
}

/// `strict`: a used descriptor hands over the places of all chains up to it.
fn drive(device: &FakeDevice, opened: Opened<FakeTransport>, pool: &Pool, strict: bool, steps: &[u8]) {
    let Opened { port, mut rx, mut tx } = opened;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let mut taken: [Vec<Chain>; 2] = Default::default();
    // A device that wrote over descriptors does not read them again.
    let mut scribbled = [false; 2];
    // The first restart is after 50 ms; the next would wait longer.
    let first_session = device.resets();
    for step in steps.chunks_exact(4) {
        let queue = u16::from(step[0] >> 7);
        let held = &mut taken[usize::from(queue)];
        let argument = u16::from_le_bytes([step[1], step[2]]);
        match step[0] & 7 {
            0 => receive(&mut rx[0], &mut cache, &mut batch),
            1 => send(&mut tx[0], &mut cache, &mut batch, step),
            2 if !scribbled[usize::from(queue)] => held.extend(device.next(queue)),
            // An honest report of a chain, with any length.
            3 if !held.is_empty() => {
                let place = usize::from(step[3]) % held.len();
                let chain = held.remove(place);
                // What it reports of the chains before, it writes over descriptors that are the driver's again.
                scribbled[usize::from(queue)] |= strict && place > 0;
                device.report(queue, &chain, argument.into());
            }
            // A lie: any id, any length, any number of descriptors.
            4 => device.report_as(queue, argument.into(), u32::from(step[3]) << 4, u16::from(step[3] & 3)),
            5 => device.skip_used(queue, argument),
            // A header of any content.
            6 => {
                let chain = held.last();
                let part = chain.and_then(|chain| chain.parts.first());
                if let Some(part) = part.filter(|part| part.writable) {
                    let (start, offset) = ([step[2], step[3] & 0xf0], [step[1] >> 2, step[3] & 0x08]);
                    let checksum = [start[0], start[1], offset[0], offset[1]];
                    let header = [&[step[1] & 3, 0, 0, 0, 0, 0], &checksum[..], &[step[2], step[3] & 1]].concat();
                    // SAFETY: of a chain that was taken. After lies the driver may have it back; but it runs between steps only, and then
                    // has given all memory that it looks at to its pool, where nobody looks.
                    unsafe { device.write(part, 0, &header[..header.len().min(part.len as usize)]) };
                }
            }
            7 => {
                scribbled[usize::from(queue)] = true;
                device.scribble(queue);
                // The device is reset by the keeper, and the queues move over when they are next used.
                if step[3] == 0xff && device.resets() == first_session {
                    device.lose("the input says so");
                    while device.resets() == first_session || !device.is_ready() {
                        std::thread::yield_now();
                    }
                    (taken, scribbled) = Default::default();
                }
            }
            _ => {}
        }
    }
    receive(&mut rx[0], &mut cache, &mut batch);
    port.close().expect("a reset");
}

/// Receives and touches every byte.
fn receive(rx: &mut RxQueue<FakeTransport>, cache: &mut mempool::PoolCache, batch: &mut Batch) {
    rx.recv(cache, batch);
    let sum: u64 = batch.iter().flat_map(|packet| packet.data()).map(|byte| u64::from(*byte)).sum();
    std::hint::black_box(sum);
    for packet in batch.iter_mut() {
        if let Checksum::Partial { start, offset } = packet.checksum() {
            assert!(usize::from(start) + usize::from(offset) + 2 <= packet.len(), "a checksum beyond the frame");
        }
        packet.data_mut().fill(0xee);
    }
    complete_checksum(batch);
    cache.free_batch(batch);
}

fn send(tx: &mut TxQueue<FakeTransport>, cache: &mut mempool::PoolCache, batch: &mut Batch, step: &[u8]) {
    cache.alloc_batch(batch, usize::from(step[1] % 33), usize::from(step[2]) + 14);
    if step[3] & 1 == 1 {
        let last = batch.len().saturating_sub(1);
        batch.iter_mut().take(last).for_each(|packet| packet.set_continues(true));
    }
    if let (2, Some(packet)) = (step[3] & 2, batch.first_mut()) {
        packet.set_checksum(Checksum::Partial { start: step[2].into(), offset: 16 });
    }
    tx.send(cache, batch);
    cache.free_batch(batch);
}
