//! What is measured, each as one burst.

use crate::{Chip, Completer, MemoryNic, frames};
use ethdev::{Opened, Port, PortConfig, RxInfos, RxQueue as _, TxQueue as _};
use mempool::{Batch, Packet, Pool, PoolCache};
use std::fmt;
use std::str::FromStr;

/// Bytes in every frame, without frame check sequence.
pub const FRAME: u16 = 60;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Receive a burst and give its buffers back to the cache.
    Receive,
    /// The same, with what the device says of each packet.
    ReceiveWith,
    /// Take a burst of buffers from the cache and transmit it.
    Transmit,
    /// Take a burst of buffers from the cache and give it back.
    Pool,
    /// Receive a burst, change one byte of each packet, transmit the burst.
    Forward,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Receive, Self::ReceiveWith, Self::Transmit, Self::Pool, Self::Forward];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "receive",
            Self::ReceiveWith => "receive-with",
            Self::Transmit => "transmit",
            Self::Pool => "pool",
            Self::Forward => "forward",
        })
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|work| work.to_string() == name).ok_or_else(|| format!("{name}: no such work"))
    }
}

/// What [`Work::Forward`] does with a burst.
#[inline(always)]
pub(crate) fn change_a_byte(packets: &mut [Packet]) {
    for packet in packets {
        if let Some(first) = packet.data_mut().first_mut() {
            *first = first.wrapping_add(1);
        }
    }
}

/// A driver on a device made of memory: ixgbe, or another of Intel's.
#[derive(Debug)]
pub struct Rig<P: Port = ixgbe::Port<MemoryNic>> {
    _port: P,
    pub(crate) rx: P::Rx,
    pub(crate) tx: P::Tx,
    pub(crate) hardware: Completer,
    pub(crate) cache: PoolCache,
    pub(crate) batch: Batch,
    infos: RxInfos,
    burst: usize,
}

impl Rig {
    /// Opens ixgbe with rings of `ring` descriptors, for bursts of `burst` packets.
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    pub fn new(burst: usize, ring: u16) -> Self {
        Self::open(Chip::Mac82599, burst, ring, |nic, config, pool| ixgbe::open(nic, &config.into(), pool))
    }
}

impl Rig<ixgbevf::Port<MemoryNic>> {
    /// Opens ixgbevf, as [`Rig::new`].
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    pub fn ixgbevf(burst: usize, ring: u16) -> Self {
        Self::open(Chip::Vf82599, burst, ring, |nic, config, pool| ixgbevf::open(nic, &config.into(), pool))
    }
}

impl Rig<igb::Port<MemoryNic>> {
    /// Opens igb, as [`Rig::new`].
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    pub fn igb(burst: usize, ring: u16) -> Self {
        Self::open(Chip::Mac82576, burst, ring, |nic, config, pool| igb::open(nic, &config.into(), pool))
    }
}

impl<P: Port> Rig<P> {
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    fn open(
        chip: Chip,
        burst: usize,
        ring: u16,
        driver: impl FnOnce(MemoryNic, PortConfig, &Pool) -> Result<Opened<P>, P::Error>,
    ) -> Self {
        let (nic, mut hardware) = MemoryNic::new(chip);
        let slots = usize::from(ring) * 2 + burst + 1024;
        let pool = frames::pool(slots).expect("a packet pool");
        let config = PortConfig { rx_ring: ring, tx_ring: ring, ..PortConfig::default() };
        let Opened { port, mut rx, mut tx } = driver(nic, config, &pool).expect("the driver on memory");
        hardware.start();
        let (rx, tx) = (rx.pop().expect("a receive queue"), tx.pop().expect("a transmit queue"));
        let (batch, infos) = (Batch::with_capacity(burst), RxInfos::with_capacity(burst));
        Self { _port: port, rx, tx, hardware, cache: pool.cache(), batch, infos, burst }
    }

    /// Does one burst of `work`, the hardware's part included. Returns the packets it handled.
    #[inline(always)]
    pub fn burst(&mut self, work: Work) -> usize {
        self.part(work, self.burst)
    }

    /// Does `work` with `count` packets where a burst has room for more. Returns the packets it handled.
    #[inline(always)]
    pub fn part(&mut self, work: Work, count: usize) -> usize {
        let Self { rx, tx, hardware, cache, batch, infos, .. } = self;
        match work {
            Work::Receive => {
                hardware.receive(count, FRAME.into());
                let received = rx.recv(cache, batch).len();
                cache.free_batch(batch);
                received
            }
            Work::ReceiveWith => {
                hardware.receive(count, FRAME.into());
                let received = rx.recv_with(cache, batch, infos).len();
                cache.free_batch(batch);
                received
            }
            Work::Transmit => {
                cache.alloc_batch(batch, count, FRAME.into());
                let sent = tx.send(cache, batch);
                hardware.transmit(count);
                sent
            }
            Work::Pool => {
                let allocated = cache.alloc_batch(batch, count, FRAME.into());
                cache.free_batch(batch);
                allocated
            }
            Work::Forward => self.forward(count, change_a_byte),
        }
    }

    /// Receives a burst, calls `function` with it and transmits it, the hardware's part included. Returns the packets sent.
    ///
    /// Each frame is as the function has left it in that buffer before; at first it is UDP over IPv4, of [`FRAME`] bytes.
    #[inline(always)]
    pub fn forward_with(&mut self, function: impl FnOnce(&mut [Packet])) -> usize {
        self.forward(self.burst, function)
    }

    #[inline(always)]
    fn forward(&mut self, count: usize, function: impl FnOnce(&mut [Packet])) -> usize {
        let Self { rx, tx, hardware, cache, batch, .. } = self;
        hardware.receive(count, FRAME.into());
        rx.recv(cache, batch);
        function(batch);
        let sent = tx.send(cache, batch);
        hardware.transmit(count);
        sent
    }

    /// Does only the hardware's part of [`Self::part`]. Returns `count`.
    #[inline(always)]
    pub fn hardware_part(&mut self, work: Work, count: usize) -> usize {
        if matches!(work, Work::Receive | Work::ReceiveWith | Work::Forward) {
            self.hardware.receive(count, FRAME.into());
        }
        if matches!(work, Work::Transmit | Work::Forward) {
            self.hardware.transmit(count);
        }
        count
    }
}
