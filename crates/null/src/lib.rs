//! A port without a device: as many frames as are asked for, and a drain for what is sent. What a program costs on it is the program's
//! own, and that of writing and freeing the frames. It is a short driver to begin another one from. See the README for a program that uses it.

#![forbid(unsafe_code)]

pub use ethdev::in_process::Error;
use ethdev::{Capabilities, LinkStatus, MacAddress, PortConfig, QueueTotals, RxCounters, Statistics, TxCounters};
use mempool::{Batch, Packet, PoolCache, frame_len, frames};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program of the README is tested with the crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What takes the place of a device: the name of its port.
#[derive(Clone, Debug)]
pub struct Null(pub String);

/// What a port and its queues share: whether it receives and sends, and what each queue has counted.
#[derive(Debug)]
struct Shared {
    receives: AtomicBool,
    sends: AtomicBool,
    rx: Vec<QueueTotals>,
    tx: Vec<QueueTotals>,
}

/// The control side of a port.
#[derive(Debug)]
pub struct Port {
    device: Null,
    shared: Arc<Shared>,
}

/// A receive queue that always has frames.
#[derive(Debug)]
pub struct RxQueue {
    shared: Arc<Shared>,
    index: usize,
    counters: RxCounters,
}

/// A transmit queue that takes everything.
#[derive(Debug)]
pub struct TxQueue {
    shared: Arc<Shared>,
    index: usize,
    counters: TxCounters,
    longest: usize,
}

/// Bytes of a frame. All behind the header are 0.
const FRAME: usize = 60;
/// To all, from a station that is administered locally, of an EtherType for experiments (IEEE 802, 9.2).
const HEADER: [u8; 14] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 0, 0x88, 0xB5];

/// As many queues and as large an MTU as can be asked for.
fn capabilities() -> Capabilities {
    let mut can = Capabilities::new();
    (can.rx_queues, can.tx_queues, can.mtu, can.stop_receiving) = (64, 64, 9216, true);
    can
}

/// Opens a port.
///
/// # Errors
///
/// If a setting is out of range, or asks for what only a device has.
pub fn open(device: Null, config: &PortConfig) -> Result<ethdev::Opened<Port>, Error> {
    config.validate_for(&capabilities())?;
    let counts = |queues| (0..queues).map(|_| QueueTotals::default()).collect();
    let (rx, tx) = (counts(config.rx_queues), counts(config.tx_queues));
    let shared = Arc::new(Shared { receives: true.into(), sends: true.into(), rx, tx });
    let (of, longest) = (|| Arc::clone(&shared), config.max_frame());
    let rx = |index| RxQueue { shared: of(), index, counters: RxCounters::default() };
    let tx = |index| TxQueue { shared: of(), index, counters: TxCounters::default(), longest };
    Ok(ethdev::Opened {
        port: Port { device, shared: of() },
        rx: (0..config.rx_queues.into()).map(rx).collect(),
        tx: (0..config.tx_queues.into()).map(tx).collect(),
    })
}

impl ethdev::Port for Port {
    type Rx = RxQueue;
    type Tx = TxQueue;
    type Error = Error;

    fn name(&self) -> &str {
        &self.device.0
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    /// Made from the name.
    fn mac(&self) -> MacAddress {
        MacAddress::of_name(&self.device.0)
    }

    /// Always up, with the speed that devices without one report.
    fn link(&self) -> Result<LinkStatus, Error> {
        Ok(LinkStatus { up: true, speed_mbps: 10_000 })
    }

    fn stop_receiving(&mut self) -> Result<(), Error> {
        self.shared.receives.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn totals(&self) -> Statistics {
        let [rx, tx] = [&self.shared.rx, &self.shared.tx].map(|queues| queues.iter().map(QueueTotals::get));
        Statistics::of_queues(rx, tx)
    }

    fn transmit_idle(&self) -> bool {
        true
    }

    fn close(self) -> Result<Statistics, Error> {
        self.stop();
        Ok(self.totals())
    }
}

impl Port {
    fn stop(&self) {
        self.shared.receives.store(false, Ordering::Relaxed);
        self.shared.sends.store(false, Ordering::Relaxed);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ethdev::RxQueue for RxQueue {
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let (before, wanted) = (batch.len(), if self.is_ready() { batch.spare() } else { 0 });
        let packets = cache.alloc_batch(batch, wanted, FRAME);
        self.counters.no_buffers += u64::from(packets < wanted);
        self.counters.packets += packets as u64;
        self.counters.bytes += (packets * FRAME) as u64;
        self.shared.rx[self.index].set(self.counters.packets, self.counters.bytes);
        let received = batch.get_mut(before..).unwrap_or_default();
        for (header, payload) in received.iter_mut().filter_map(|packet| packet.data_mut().split_first_chunk_mut()) {
            *header = HEADER;
            payload.fill(0);
        }
        received
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn is_ready(&mut self) -> bool {
        self.shared.receives.load(Ordering::Relaxed)
    }
}

impl ethdev::TxQueue for TxQueue {
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        let packets = if self.shared.sends.load(Ordering::Relaxed) { batch.len() } else { 0 };
        for frame in frames(batch).take(packets) {
            let bytes = frame_len(frame);
            if frame.iter().any(Packet::is_empty) {
                self.counters.bad_length += 1;
            } else if bytes > self.longest {
                self.counters.too_long += 1;
            } else {
                self.counters.packets += 1;
                self.counters.bytes += bytes as u64;
            }
        }
        self.shared.tx[self.index].set(self.counters.packets, self.counters.bytes);
        if packets > 0 {
            cache.free_batch(batch);
        }
        packets
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }

    fn in_flight(&self) -> usize {
        0
    }
}
