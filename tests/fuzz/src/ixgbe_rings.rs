//! An 82599 that does whatever the input says to its descriptor rings.

use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use ixgbe::fake::{Descriptors, Fake, Mapping, Queue};
use ixgbe::regs::{LINKS, RDH, TDH};
use ixgbe::{Config, Opened, RxQueue, TxQueue};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};

/// Runs one input: a byte that says what kind of port it is, then steps of four bytes each. Afterwards every slot must be
/// home, and the counters must say what happened.
pub fn run(input: &[u8]) {
    thread_local! {
        /// Of the rings, and another, with room for more descriptors' worth of data.
        static POOLS: [Pool; 2] = [1024, 4096].map(|data_room| {
            Pool::new(&PoolConfig { slots: 512, data_room, ..PoolConfig::default() }).expect("memory")
        });
    }
    let Some((shape, steps)) = input.split_first() else { return };
    POOLS.with(|pools| {
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (64, 64);
        (config.port.rx_queues, config.port.tx_queues) = (u16::from(shape & 1) + 1, u16::from(shape >> 1 & 1) + 1);
        config.port.mtu = if shape & 4 == 0 { 1500 } else { 9000 };
        config.thresholds.write_back = if shape & 8 == 0 { 0 } else { 4 };
        let fake = Fake::new(0x1563);
        fake.set_mapping(if shape & 16 == 0 { Mapping::Linear } else { Mapping::Paged });
        let opened =
            ixgbe::open(fake.clone(), &config, &pools[usize::from(shape >> 5 & 1)]).expect("the device starts");
        // What the device does not allow is known only when it is asked for.
        fake.set_mapping(if shape & 64 == 0 { Mapping::Linear } else { Mapping::Fails });
        World::new(fake, opened, pools).play(steps);
        for pool in pools {
            assert_eq!(pool.away(), 0, "every slot is home");
        }
    });
}

/// A program, and the device that it believes to be one.
struct World {
    fake: Fake,
    port: ixgbe::Port<Fake>,
    rx: Vec<RxQueue<Fake>>,
    tx: Vec<TxQueue<Fake>>,
    /// Of both pools.
    caches: [PoolCache; 2],
    /// Packets in hand.
    held: Batch,
    /// Where the device goes on in each receive ring.
    next: [usize; 2],
    /// Frames and bytes that each receive queue has given, and frames that each transmit queue has taken.
    received: [(u64, u64); 2],
    taken: [u64; 2],
}

/// Packets in hand at most.
const HELD: usize = 64;

impl World {
    fn new(fake: Fake, opened: Opened<Fake>, pools: &[Pool; 2]) -> Self {
        let Opened { port, rx, tx } = opened;
        let caches = [pools[0].cache(), pools[1].cache()];
        let held = Batch::with_capacity(HELD);
        Self { fake, port, rx, tx, caches, held, next: [0; 2], received: [(0, 0); 2], taken: [0; 2] }
    }

    fn play(mut self, steps: &[u8]) {
        for step in steps.chunks_exact(4) {
            self.step([step[0], step[1], step[2], step[3]]);
        }
        (0..self.rx.len()).for_each(|queue| self.receive(queue, 0));
        for (queue, rx) in self.rx.iter().enumerate() {
            assert_eq!((rx.counters().packets, rx.counters().bytes), self.received[queue]);
        }
        for (queue, tx) in self.tx.iter().enumerate() {
            assert_eq!(tx.counters().packets + tx.counters().dropped(), self.taken[queue]);
        }
        self.port.close().expect("it stops when it is told to");
    }

    fn step(&mut self, [what, a, b, c]: [u8; 4]) {
        let rx = usize::from(what >> 7) % self.rx.len();
        let tx = usize::from(what >> 7) % self.tx.len();
        let (index, number) = (usize::from(a), u64::from(u16::from_le_bytes([b, c])));
        match what & 15 {
            0 => self.receive(rx, c),
            1 => self.make(usize::from(a & 1), usize::from(b % 33), usize::from(c) * 8, a & 2 != 0),
            2 => self.send(tx, usize::from(a & 1)),
            // A frame, or a part of one, as a device would report it: any length, and errors now and then.
            3 => {
                let status = 1 | if a & 1 == 0 { 2 } else { 0 } | if a & 0xF0 == 0xF0 { 1 << 29 } else { 0 };
                for _ in 0..=(a >> 1 & 7) {
                    self.report(rx, number << 32 | status);
                }
            }
            // A lie: any word of any descriptor, now.
            4 => self.write(Queue::Rx(number_of(rx)), index, b & 1, u64::from(c) << (b >> 1 & 63)),
            5 => self.write(Queue::Tx(number_of(tx)), index, b & 1, u64::from(c) << (b >> 1 & 63)),
            6 => self.write(Queue::Rx(number_of(rx)), index, 1, number << 32 | u64::from(a >> 6)),
            // An honest device has sent everything; a hasty one says so of anything.
            7 => self.report_sent(tx, |word| word & 1 << 27 != 0),
            8 => self.report_sent(tx, |_| true),
            9 => self.everywhere(Queue::Rx(number_of(rx)), number << 32 | u64::from(a & 3)),
            10 => self.everywhere(Queue::Tx(number_of(tx)), 1 << 32 | number),
            11 => {
                self.fake.set(TDH.at(number_of(tx)), u32::from(a));
                self.fake.set(RDH.at(number_of(rx)), u32::from(b));
            }
            // Data of any content, where a buffer is said to be.
            12 => {
                let buffer = self.ring(Queue::Rx(number_of(rx))).get(index, 0);
                // SAFETY: nobody looks at a packet during a step.
                unsafe { self.fake.write_memory(buffer, &[b; 64]) };
            }
            13 => self.free(usize::from(a)),
            14 => {
                let mappings = [Mapping::Linear, Mapping::Paged, Mapping::Fails];
                self.fake.set_mapping(mappings[index % mappings.len()]);
            }
            _ => {
                let _ = (self.port.statistics().is_ok(), self.port.transmit_idle(), self.fake.get(LINKS));
            }
        }
    }

    fn ring(&self, queue: Queue) -> Descriptors {
        self.fake.descriptors(queue).expect("a ring stays mapped while its port is open")
    }

    fn write(&self, queue: Queue, index: usize, word: u8, value: u64) {
        self.ring(queue).set(index, word.into(), value);
    }

    fn everywhere(&self, queue: Queue, high: u64) {
        let ring = self.ring(queue);
        (0..ring.count()).for_each(|index| ring.set(index, 1, high));
    }

    /// The device hands over its next receive descriptor.
    fn report(&mut self, queue: usize, high: u64) {
        self.write(Queue::Rx(number_of(queue)), self.next[queue], 1, high);
        self.next[queue] = (self.next[queue] + 1) % 64;
    }

    fn report_sent(&self, queue: usize, which: impl Fn(u64) -> bool) {
        let ring = self.ring(Queue::Tx(number_of(queue)));
        for index in 0..ring.count() {
            let word = ring.get(index, 1);
            if which(word) {
                ring.set(index, 1, word | 1 << 32);
            }
        }
    }

    /// Receives, touches every byte, and looks whether packets share any.
    fn receive(&mut self, queue: usize, how: u8) {
        let before = self.held.len();
        let count = self.rx[queue].recv(&mut self.caches[usize::from(how & 1)], &mut self.held).len();
        assert_eq!(count, self.held.len() - before);
        for packet in &self.held[before..] {
            self.received[queue].0 += u64::from(!packet.continues());
            self.received[queue].1 += packet.len() as u64;
            assert!(!packet.is_empty() && packet.headroom() + packet.len() + packet.tailroom() <= 128 + 4096);
        }
        self.touch();
    }

    fn touch(&mut self) {
        let mut ranges: Vec<_> = self.held.iter().map(|packet| packet.data().as_ptr_range()).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "two packets share bytes");
        for packet in self.held.iter_mut() {
            std::hint::black_box(packet.data().iter().map(|byte| u64::from(*byte)).sum::<u64>());
            packet.data_mut().fill(0xEE);
        }
    }

    /// Frames of a pool, as packets of their own or all one frame.
    fn make(&mut self, pool: usize, count: usize, len: usize, chained: bool) {
        let before = self.held.len();
        let count = self.caches[pool].alloc_batch(&mut self.held, count, len);
        if chained {
            let last = before + count;
            self.held[before..last.max(before + 1) - 1].iter_mut().for_each(|packet| packet.set_continues(true));
        }
        self.touch();
    }

    fn send(&mut self, queue: usize, cache: usize) {
        let continues: Vec<bool> = self.held.iter().map(Packet::continues).collect();
        let before = self.tx[queue].in_flight();
        let sent = self.tx[queue].send(&mut self.caches[cache], &mut self.held);
        assert_eq!(self.held.len(), continues.len() - sent);
        assert!(self.tx[queue].in_flight() <= 63 && self.tx[queue].in_flight() <= before + sent);
        let gone = &continues[..sent];
        let frames = gone.iter().filter(|continues| !**continues).count() + usize::from(gone.last() == Some(&true));
        self.taken[queue] += frames as u64;
        self.touch();
    }

    fn free(&mut self, how: usize) {
        match how % 4 {
            0 => self.held.clear(),
            1 => self.caches[0].free_batch(&mut self.held),
            2 => self.caches[1].free_batch(&mut self.held),
            _ => drop(self.held.pop()),
        }
    }
}

fn number_of(queue: usize) -> u32 {
    u32::try_from(queue).unwrap_or(0)
}
