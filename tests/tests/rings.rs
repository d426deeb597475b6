//! The driver's rings on the strict soft NIC, under programs that do everything in any order: every frame is where it
//! should be, in order and unchanged, every slot comes home, the memory is given back, and the strict model, which
//! panics at the first mistake of the driver, has nothing to say.

use device::DmaMemory;
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use ixgbe::{Config, RxQueue, TxQueue};
use mempool::{Batch, Packet, Pool, PoolCache};
use proptest::prelude::*;
use proptest::test_runner::Config as Runs;
use softnic::{OnViolation, StrictControl, StrictNic};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use tests::{Rig, frame, number, padded, pool};

/// Queues in each direction.
const QUEUES: usize = 2;

/// One thing that a program, its peer on the wire, or the device does.
#[derive(Clone, Debug)]
enum Step {
    /// Frames of this length arrive.
    Arrive {
        count: usize,
        len: usize,
    },
    /// The device works.
    Device,
    /// A queue receives into a batch of this capacity, on this thread or another.
    Receive {
        queue: usize,
        capacity: usize,
        elsewhere: bool,
    },
    /// A queue sends up to so many of the packets received.
    Send {
        queue: usize,
        count: usize,
    },
    /// A queue sends new frames, of the rings' pool or another.
    Make {
        queue: usize,
        count: usize,
        len: usize,
        foreign: bool,
    },
    /// Packets received go home.
    Free {
        count: usize,
        lone: bool,
    },
    Statistics,
    DropReceive {
        queue: usize,
    },
    DropTransmit {
        queue: usize,
    },
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let queue = || 0..QUEUES;
    let len = || prop_oneof![3 => Just(60), 2 => 14..200_usize, 1 => 200..1518_usize, 1 => 1519..9000_usize];
    let burst = || 0..if cfg!(miri) { 12 } else { 80_usize };
    prop_oneof![
        8 => (burst(), len()).prop_map(|(count, len)| Step::Arrive { count, len }),
        12 => Just(Step::Device),
        8 => (queue(), 1..64_usize, prop::bool::weighted(0.1))
            .prop_map(|(queue, capacity, elsewhere)| Step::Receive { queue, capacity, elsewhere }),
        6 => (queue(), burst()).prop_map(|(queue, count)| Step::Send { queue, count }),
        3 => (queue(), burst(), len(), any::<bool>())
            .prop_map(|(queue, count, len, foreign)| Step::Make { queue, count, len, foreign }),
        3 => (burst(), any::<bool>()).prop_map(|(count, lone)| Step::Free { count, lone }),
        1 => Just(Step::Statistics),
        1 => prop_oneof![
            queue().prop_map(|queue| Step::DropReceive { queue }),
            queue().prop_map(|queue| Step::DropTransmit { queue }),
            Just(Step::Close),
        ],
    ]
}

/// Everything a program holds, and the record that it is held against.
struct World {
    nic: StrictControl,
    port: Option<ixgbe::Port<StrictNic>>,
    rx: Vec<Option<RxQueue<StrictNic>>>,
    tx: Vec<Option<TxQueue<StrictNic>>>,
    /// Of the rings' pool, and of another.
    caches: [PoolCache; 2],
    /// Frames received and not sent on: runs of packets.
    held: VecDeque<Vec<Packet>>,
    /// Frames that were put on the wire, by number, until they are received.
    on_wire: HashMap<u32, Vec<u8>>,
    next_number: u32,
    /// The last number that each queue received.
    last: [Option<u32>; QUEUES],
    received: u64,
    /// Frames handed to each transmit queue and not yet seen on the wire.
    sending: [VecDeque<Vec<u8>>; QUEUES],
    /// Whether a queue that frames may be in is gone.
    lossy: bool,
}

impl World {
    fn new(rings: &Pool, other: &Pool, config: &Config) -> Self {
        let Rig { nic, port, rx, tx } =
            Rig::open(StrictNic::builder().on_violation(OnViolation::Record), config, rings)
                .expect("a healthy device opens");
        Self {
            nic,
            port: Some(port),
            rx: rx.into_iter().map(Some).collect(),
            tx: tx.into_iter().map(Some).collect(),
            caches: [rings.cache(), other.cache()],
            held: VecDeque::new(),
            on_wire: HashMap::new(),
            next_number: 0,
            last: [None; QUEUES],
            received: 0,
            sending: Default::default(),
            lossy: false,
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Arrive { count, len } => {
                for _ in 0..count {
                    let new = self.new_frame(len);
                    self.nic.inject(&new);
                    self.on_wire.insert(number(&new), new);
                }
            }
            Step::Device => {
                self.nic.step();
                self.check_wire();
            }
            Step::Receive { queue, capacity, elsewhere } => self.receive(queue, capacity, elsewhere),
            Step::Send { queue, count } => {
                let count = count.min(self.held.len());
                let frames: Vec<_> = self.held.drain(..count).collect();
                for kept in self.send(queue, frames).into_iter().rev() {
                    self.held.push_front(kept);
                }
            }
            Step::Make { queue, count, len, foreign } => self.make(queue, count, len, foreign),
            Step::Free { count, lone } => {
                for packet in self.held.drain(..count.min(self.held.len())).flatten() {
                    if lone { drop(packet) } else { self.caches[0].free(packet) }
                }
            }
            Step::Statistics => {
                if let Some(port) = &mut self.port {
                    let before = port.totals().rx_packets;
                    assert!(port.statistics().expect("a healthy device").rx_packets >= before);
                }
            }
            Step::DropReceive { queue } => {
                self.lossy |= self.rx[queue].take().is_some();
            }
            Step::DropTransmit { queue } => {
                self.tx[queue] = None;
            }
            Step::Close => {
                if let Some(port) = self.port.take() {
                    port.close().expect("a healthy device closes");
                    self.lossy = true;
                }
            }
        }
        self.check_violations();
    }

    fn new_frame(&mut self, len: usize) -> Vec<u8> {
        self.next_number += 1;
        frame(self.next_number, len)
    }

    /// Receives, and checks what came: whole frames, each once, unchanged, in order.
    fn receive(&mut self, queue: usize, capacity: usize, elsewhere: bool) {
        let Some(rx) = &mut self.rx[queue] else { return };
        let mut batch = Batch::with_capacity(capacity);
        let before = rx.counters();
        let got = if elsewhere {
            let (rx, pool, batch) = (&mut *rx, self.caches[0].pool().clone(), &mut batch);
            std::thread::scope(|scope| scope.spawn(move || rx.recv(&mut pool.cache(), batch).len()).join())
                .expect("receiving does not fail on another thread")
        } else {
            rx.recv(&mut self.caches[0], &mut batch).len()
        };
        assert_eq!(got, batch.len());
        let after = rx.counters();
        let mut run = Vec::new();
        let (mut frames, mut bytes) = (0, 0);
        for packet in batch.drain() {
            let last = !packet.continues();
            run.push(packet);
            if last {
                let run = std::mem::take(&mut run);
                let data: Vec<u8> = run.iter().flat_map(|packet| packet.data()).copied().collect();
                let number = number(&data);
                let sent = self.on_wire.remove(&number).expect("a frame is received once");
                assert!(data == sent, "frame {number} was changed on its way");
                assert!(self.last[queue] < Some(number), "frames of a queue are in order");
                self.last[queue] = Some(number);
                frames += 1;
                bytes += data.len() as u64;
                self.held.push_back(run);
            }
        }
        assert!(run.is_empty(), "only whole frames are received");
        assert_eq!((after.packets - before.packets, after.bytes - before.bytes), (frames, bytes));
        self.received += frames;
    }

    fn make(&mut self, queue: usize, count: usize, len: usize, foreign: bool) {
        let room = usize::from(self.caches[usize::from(foreign)].pool().data_room());
        let mut frames = Vec::new();
        for _ in 0..count {
            let bytes = self.new_frame(len);
            let mut run: Vec<Packet> = Vec::new();
            for part in bytes.chunks(room) {
                let Some(mut packet) = self.caches[usize::from(foreign)].alloc() else { return };
                packet.append(part.len()).expect("as much as fits").copy_from_slice(part);
                if let Some(before) = run.last_mut() {
                    before.set_continues(true);
                }
                run.push(packet);
            }
            frames.push(run);
        }
        drop(self.send(queue, frames));
    }

    /// Sends frames and records what was taken; returns the rest.
    fn send(&mut self, queue: usize, frames: Vec<Vec<Packet>>) -> Vec<Vec<Packet>> {
        let Some(tx) = &mut self.tx[queue] else { return frames };
        let mut batch = Batch::with_capacity(frames.iter().map(Vec::len).sum());
        let (mut contents, mut ends) = (VecDeque::new(), VecDeque::new());
        for run in frames {
            contents.push_back(run.iter().flat_map(|packet| packet.data()).copied().collect::<Vec<u8>>());
            for packet in run {
                batch.push(packet).expect("the batch has room for all");
            }
            ends.push_back(batch.len());
        }
        let (len, before) = (batch.len(), tx.counters());
        let sent = tx.send(&mut self.caches[0], &mut batch);
        let after = tx.counters();
        assert_eq!(len - sent, batch.len(), "what was not accepted stays");
        assert!(sent == 0 || ends.contains(&sent), "whole frames are accepted");
        let (mut taken, mut dropped) = (0, 0);
        while ends.front().is_some_and(|end| *end <= sent) {
            ends.pop_front();
            let bytes = contents.pop_front().expect("as many as ends");
            // The datasheet's smallest frame to be transmitted has 17 bytes.
            if bytes.len() < 17 {
                dropped += 1;
            } else {
                taken += 1;
                self.sending[queue].push_back(padded(bytes));
            }
        }
        assert_eq!((after.packets - before.packets, after.dropped() - before.dropped()), (taken, dropped));
        let mut rest = Vec::new();
        let mut run = Vec::new();
        for packet in batch.drain() {
            let last = !packet.continues();
            run.push(packet);
            if last {
                rest.push(std::mem::take(&mut run));
            }
        }
        rest
    }

    /// The driver has made no mistake.
    fn check_violations(&self) {
        let mistakes = self.nic.violations();
        assert!(mistakes.is_empty(), "{mistakes:?}");
    }

    /// What the device sent is what was handed over, in each queue's order.
    fn check_wire(&mut self) {
        for sent in self.nic.transmitted() {
            let queue = self.sending.iter().position(|frames| frames.front() == Some(&sent));
            let queue = queue.unwrap_or_else(|| panic!("frame {} was not next on any queue", number(&sent)));
            self.sending[queue].pop_front();
        }
    }

    /// Lets everything that is on its way arrive, and accounts for it.
    fn settle(&mut self) {
        loop {
            self.held.drain(..).flatten().for_each(|packet| self.caches[0].free(packet));
            let step = self.nic.step();
            self.check_wire();
            let before = self.received;
            for queue in 0..QUEUES {
                self.receive(queue, 64, false);
                self.send(queue, Vec::new());
            }
            if step.is_idle() && self.received == before {
                break;
            }
        }
        self.check_violations();
        let Some(port) = self.port.as_mut().filter(|_| !self.lossy) else { return };
        let statistics = port.statistics().expect("a healthy device");
        let lost = statistics.rx_missed;
        let short = statistics.rx_errors.undersize;
        let runts = self.on_wire.values().filter(|frame| frame.len() < 60).count() as u64;
        assert!(short <= runts, "only frames below the minimum are counted as such");
        let counters: Vec<_> = self.rx.iter().flatten().map(RxQueue::counters).collect();
        let refused: u64 = counters.iter().map(|counters| counters.batch_too_small).sum();
        let unseen = self.on_wire.len() as u64;
        // A transmit queue that is gone keeps the buffers in its ring until the port is closed: there may be too few left.
        let starved = self.tx.iter().any(Option::is_none) && counters.iter().any(|counters| counters.no_buffers > 0);
        if !starved {
            assert_eq!(unseen, lost + short + refused, "frames not received are counted as missed, short or refused");
        }
        let dropped: u64 = counters.iter().map(|counters| counters.dropped()).sum();
        assert_eq!(dropped, refused, "a healthy device damages nothing");
        assert!(self.tx.iter().any(Option::is_none) || self.sending.iter().all(VecDeque::is_empty), "all is sent");
    }

    /// Gives everything up in an order of choice; the pools' memory is free afterwards.
    fn end(self, order: usize, pools: [Pool; 2]) {
        let Self { nic, port, rx, tx, caches, held, .. } = self;
        let memories: [Weak<DmaMemory>; 2] = pools.each_ref().map(|pool| Arc::downgrade(pool.memory()));
        let slots_home = |pools: &[Pool; 2]| assert_eq!(pools.each_ref().map(Pool::away), [0; 2], "every slot is home");
        match order % 5 {
            0 => {
                drop((rx, tx));
                drop(port);
                drop((held, caches));
            }
            1 => {
                drop(port);
                drop((tx, caches, held, rx));
            }
            2 => {
                drop((caches, tx));
                drop((port, held, rx));
            }
            3 => {
                drop(rx);
                if let Some(port) = port {
                    port.close().expect("a healthy device closes");
                }
                drop((held, caches, tx));
            }
            _ => drop((held, caches, rx, tx, port)),
        }
        slots_home(&pools);
        assert_eq!(nic.violations(), [], "closing is done by the book");
        drop(pools);
        drop(nic);
        assert!(memories.iter().all(|memory| memory.strong_count() == 0), "the memory is given back");
    }
}

fn config(ring: u16, drop_en: bool, mtu: u16) -> Config {
    let mut config = Config::default();
    (config.port.rx_queues, config.port.tx_queues) = (2, 2);
    (config.port.rx_ring, config.port.tx_ring) = (ring, ring);
    (config.drop_en, config.port.mtu) = (drop_en, mtu);
    config
}

proptest! {
    #![proptest_config(Runs { cases: if cfg!(miri) { 2 } else { 150 }, failure_persistence: None, ..Runs::default() })]

    #[test]
    fn any_program_keeps_every_frame_and_brings_every_slot_home(
        steps in prop::collection::vec(step(), if cfg!(miri) { 0..25 } else { 0..200 }),
        spare in 32..400_usize,
        ring in prop::sample::select(if cfg!(miri) { vec![64] } else { vec![64, 128, 512] }),
        drop_en in any::<bool>(),
        data_room in prop::sample::select(vec![2048, 3000, 1024]),
        order in any::<usize>(),
    ) {
        let pools = [pool(usize::from(ring) * QUEUES + spare, data_room), pool(100, 2048)];
        let mut world = World::new(&pools[0], &pools[1], &config(ring, drop_en, 9000));
        for step in &steps {
            world.play(step);
        }
        // A packet received needs another in its place, and up to 40 stay in each transmit ring until more is sent.
        if order % 2 == 0 && spare >= 100 {
            world.settle();
        }
        world.end(order / 2, pools);
    }
}

/// Queues on threads of their own, the device on another, buffers freed far from where they were received.
#[test]
fn queues_work_on_threads_of_their_own() {
    const FRAMES: u32 = if cfg!(miri) { 60 } else { 20_000 };
    let pool = pool(600, 2048);
    let memory = Arc::downgrade(pool.memory());
    let Rig { nic, port, rx, tx } =
        Rig::open(StrictNic::builder(), &config(64, false, 1500), &pool).expect("a healthy device opens");
    let done = AtomicBool::new(false);
    let (to_senders, from_receivers): (Vec<_>, Vec<_>) = (0..QUEUES).map(|_| mpsc::channel::<Batch>()).unzip();
    let mut numbers: Vec<u32> = std::thread::scope(|scope| {
        for (mut rx, to_sender) in rx.into_iter().zip(to_senders) {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let mut cache = pool.cache();
                while !done.load(Ordering::Acquire) {
                    let mut batch = Batch::with_capacity(32);
                    if !rx.recv(&mut cache, &mut batch).is_empty() {
                        to_sender.send(batch).expect("the sender outlives the receiver");
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for (mut tx, from_receiver) in tx.into_iter().zip(from_receivers) {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let mut cache = pool.cache();
                for mut batch in from_receiver {
                    while !batch.is_empty() && !done.load(Ordering::Acquire) {
                        tx.send(&mut cache, &mut batch);
                        std::thread::yield_now();
                    }
                }
            });
        }
        // The wire and the device: few frames at a time, so that none is missed.
        let mut seen = Vec::new();
        let (mut next, mut idle) = (0, 0);
        while seen.len() < usize::try_from(FRAMES).expect("few") && idle < 10_000_000 {
            idle += 1;
            if next < FRAMES && usize::try_from(next).expect("few") < seen.len() + 100 {
                nic.inject(&frame(next, 60));
                next += 1;
            }
            nic.step();
            let sent = nic.transmitted();
            if !sent.is_empty() {
                idle = 0;
            }
            seen.extend(sent.iter().map(|frame| number(frame)));
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        seen
    });
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..FRAMES), "every frame came back once");
    port.close().expect("a healthy device closes");
    assert_eq!(pool.away(), 0);
    drop((pool, nic));
    assert_eq!(memory.strong_count(), 0);
}
