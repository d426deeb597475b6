//! Statistics (datasheet 8.2.3.23): they clear on read and saturate; byte counters have 36 bits, and reading their high half
//! clears both.

use super::filters::Cast;
use super::flow_control::Pause;

/// Per-queue counter slots.
pub(super) const SLOTS: usize = 16;
const LIMIT_36: u64 = (1 << 36) - 1;

/// All counters that traffic can move.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) missed: u64,
    undersize: u64,
    oversize: u64,
    good_rx: u64,
    good_rx_bytes: Octets,
    rx_sizes: [u64; 6],
    rx_multicast: u64,
    rx_broadcast: u64,
    rx_xon: u64,
    rx_xoff: u64,
    tx_xon: u64,
    tx_xoff: u64,
    total_rx: u64,
    total_rx_bytes: Octets,
    good_tx: u64,
    total_tx: u64,
    good_tx_bytes: Octets,
    tx_sizes: [u64; 6],
    tx_multicast: u64,
    tx_broadcast: u64,
    queues: [QueueStats; SLOTS],
}

/// A byte counter. Reading its low half holds the value that the high half then tells and clears, so that frames which
/// pass between the two readings are in the next value.
#[derive(Clone, Copy, Debug, Default)]
struct Octets {
    count: u64,
    held: Option<u64>,
}

impl Octets {
    fn low(&mut self) -> u32 {
        self.held = Some(self.count);
        u32::try_from(self.count.min(LIMIT_36) & 0xFFFF_FFFF).unwrap_or(0)
    }

    fn take_high(&mut self) -> u32 {
        let told = self.held.take().unwrap_or(self.count);
        self.count -= told;
        u32::try_from(told.min(LIMIT_36) >> 32).unwrap_or(0)
    }
}

/// Counters of one slot.
#[derive(Clone, Copy, Debug, Default)]
struct QueueStats {
    rx: u64,
    rx_bytes: Octets,
    rx_dropped: u64,
    tx: u64,
    tx_bytes: Octets,
}

/// Frame size class: 64, up to 127, 255, 511, 1023, more; `bytes` with CRC.
#[inline(always)]
fn size_class(bytes: u64) -> usize {
    match bytes {
        ..=64 => 0,
        65..=127 => 1,
        128..=255 => 2,
        256..=511 => 3,
        512..=1023 => 4,
        _ => 5,
    }
}

impl Stats {
    /// A frame arrived, good or not; `bytes` with CRC.
    #[inline(always)]
    pub(super) fn arrived(&mut self, bytes: u64) {
        self.total_rx += 1;
        self.total_rx_bytes.count += bytes;
    }

    pub(super) fn undersize(&mut self, bytes: u64) {
        self.arrived(bytes);
        self.undersize += 1;
    }

    pub(super) fn oversize(&mut self, bytes: u64) {
        self.arrived(bytes);
        self.oversize += 1;
    }

    /// A PAUSE frame arrived.
    pub(super) fn paused(&mut self, pause: Pause) {
        match pause {
            Pause::Xon => self.rx_xon += 1,
            Pause::Xoff(_) => self.rx_xoff += 1,
        }
    }

    /// A PAUSE frame was sent, and is counted as a frame already.
    pub(super) fn pause_sent(&mut self, pause: Pause) {
        match pause {
            Pause::Xon => self.tx_xon += 1,
            Pause::Xoff(_) => self.tx_xoff += 1,
        }
    }

    /// Frames lost because the packet buffer was full: GPRC and TPR count them too.
    pub(super) fn missed(&mut self, frames: u64) {
        self.missed += frames;
        self.good_rx += frames;
        self.total_rx += frames;
    }

    /// A good frame passed the filters; `bytes` with CRC.
    #[inline(always)]
    pub(super) fn received(&mut self, cast: Cast, bytes: u64) {
        self.arrived(bytes);
        self.good_rx += 1;
        self.good_rx_bytes.count += bytes;
        self.rx_sizes[size_class(bytes)] += 1;
        match cast {
            Cast::Unicast => {}
            Cast::Multicast => self.rx_multicast += 1,
            Cast::Broadcast => self.rx_broadcast += 1,
        }
    }

    /// A frame is in a queue's buffers; `bytes` as stored there.
    #[inline(always)]
    pub(super) fn queue_received(&mut self, slot: usize, bytes: u64) {
        let queue = &mut self.queues[slot % SLOTS];
        queue.rx += 1;
        queue.rx_bytes.count += bytes;
    }

    /// A frame found no descriptor in a queue that may drop.
    pub(super) fn queue_dropped(&mut self, slot: usize) {
        self.queues[slot % SLOTS].rx_dropped += 1;
    }

    /// A frame was sent, by the MAC itself if not from a queue; `bytes` with CRC.
    #[inline(always)]
    pub(super) fn transmitted(&mut self, slot: Option<usize>, cast: Cast, bytes: u64) {
        self.good_tx += 1;
        self.total_tx += 1;
        self.good_tx_bytes.count += bytes;
        self.tx_sizes[size_class(bytes)] += 1;
        match cast {
            Cast::Unicast => {}
            Cast::Multicast => self.tx_multicast += 1,
            Cast::Broadcast => self.tx_broadcast += 1,
        }
        if let Some(slot) = slot {
            let queue = &mut self.queues[slot % SLOTS];
            queue.tx += 1;
            queue.tx_bytes.count += bytes - 4;
        }
    }

    /// Reads a counter of a virtual function, which wraps at 32 bits, or 36 of bytes (8.3).
    pub(super) fn of_function(&self, offset: u32) -> u32 {
        let bytes = if offset & 0x2000 == 0 { self.good_rx_bytes.count } else { self.good_tx_bytes.count };
        let counter = match offset {
            // Frames that were missed were none of the function's.
            0x101C => self.good_rx - self.missed,
            0x1034 => self.rx_multicast,
            0x201C => self.good_tx,
            0x1024 | 0x2024 => bytes >> 32 & 0xF,
            _ => bytes,
        };
        u32::try_from(counter & 0xFFFF_FFFF).unwrap_or(0)
    }

    /// Reads and clears the counter at `offset`.
    pub(super) fn read(&mut self, offset: u32) -> u32 {
        let slot = |from: u32, stride: u32| ((offset - from) / stride) as usize % SLOTS;
        match offset {
            0x3F60 => take32(&mut self.tx_xon),
            0x3F68 => take32(&mut self.tx_xoff),
            0x3FA0 => take32(&mut self.missed),
            0x405C..=0x4070 => take32(&mut self.rx_sizes[((offset - 0x405C) / 4) as usize]),
            0x41A4 => take32(&mut self.rx_xon),
            0x41A8 => take32(&mut self.rx_xoff),
            0x4074 => take32(&mut self.good_rx),
            0x4078 => take32(&mut self.rx_broadcast),
            0x407C => take32(&mut self.rx_multicast),
            0x4080 => take32(&mut self.good_tx),
            0x40D4 => take32(&mut self.total_tx),
            0x4088 => self.good_rx_bytes.low(),
            0x408C => self.good_rx_bytes.take_high(),
            0x4090 => self.good_tx_bytes.low(),
            0x4094 => self.good_tx_bytes.take_high(),
            0x40A4 => take32(&mut self.undersize),
            0x40AC => take32(&mut self.oversize),
            0x40C0 => self.total_rx_bytes.low(),
            0x40C4 => self.total_rx_bytes.take_high(),
            0x40D0 => take32(&mut self.total_rx),
            0x40D8..=0x40EC => take32(&mut self.tx_sizes[((offset - 0x40D8) / 4) as usize]),
            0x40F0 => take32(&mut self.tx_multicast),
            0x40F4 => take32(&mut self.tx_broadcast),
            0x1030..=0x13F8 => {
                let queue = &mut self.queues[slot(0x1000, 0x40)];
                match offset & 0x3F {
                    0x30 => take32(&mut queue.rx),
                    0x34 => queue.rx_bytes.low(),
                    _ => queue.rx_bytes.take_high(),
                }
            }
            0x1430..=0x17F0 => take32(&mut self.queues[slot(0x1400, 0x40)].rx_dropped),
            0x6030..=0x63F0 => take32(&mut self.queues[slot(0x6000, 0x40)].tx),
            0x8700..=0x877C => {
                let queue = &mut self.queues[slot(0x8700, 8)];
                if offset & 4 == 0 { queue.tx_bytes.low() } else { queue.tx_bytes.take_high() }
            }
            // Counters of errors that the model's wires cannot make.
            _ => 0,
        }
    }
}

fn take32(counter: &mut u64) -> u32 {
    u32::try_from(std::mem::take(counter)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_saturate_and_clear() {
        let mut stats = Stats { missed: u64::from(u32::MAX) + 5, ..Stats::default() };
        assert_eq!(stats.read(0x3FA0), u32::MAX);
        assert_eq!(stats.read(0x3FA0), 0);
        stats.good_rx_bytes.count = LIMIT_36 + 1000;
        assert_eq!((stats.read(0x4088), stats.read(0x408C)), (u32::MAX, 0xF));
        assert_eq!((stats.read(0x4088), stats.read(0x408C)), (0, 0));
        stats.received(Cast::Unicast, 64);
        assert_eq!(stats.read(0x4088), 64);
        stats.received(Cast::Unicast, 100);
        assert_eq!((stats.read(0x408C), stats.read(0x4088), stats.read(0x408C)), (0, 100, 0));
    }
}
