//! Rings between lcores: order, whole frames, and that no buffer is lost.
#![expect(clippy::unwrap_used, reason = "tests")]

use device::PageSize;
use ethdev::{Opened, PortConfig, RxQueue as _, TxQueue as _, in_process};
use lcore::{Clock, Loop, PacketReceiver, PacketSender, Stop, Team};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A pool of small slots.
fn pool(slots: usize) -> Pool {
    let config = PoolConfig { slots, data_room: 64, headroom: 0, pages: PageSize::Ordinary, numa_node: None };
    Pool::new(&config).unwrap()
}

/// A packet with a number in it.
fn numbered(cache: &mut PoolCache, number: u32, continues: bool) -> Packet {
    let mut packet = cache.alloc_from(&number.to_be_bytes()).unwrap();
    packet.set_continues(continues);
    packet
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.data().try_into().unwrap())
}

/// Number, and whether the frame goes on, of each packet.
fn seen(packets: &[Packet]) -> Vec<(u32, bool)> {
    packets.iter().map(|packet| (number(packet), packet.continues())).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// Adds frames of so many packets to the batch that is sent from; the last one may lack its end. Then sends.
    Send(Vec<u32>, bool),
    /// Receives into a batch of such a capacity, that holds so many packets already.
    Receive(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (prop::collection::vec(1..=6_u32, 0..6), prop::bool::weighted(0.1)).prop_map(|(f, open)| Step::Send(f, open)),
        (0..=12_usize, 0..=3_usize).prop_map(|(capacity, held)| Step::Receive(capacity, held.min(capacity))),
    ]
}

/// What the ring is held against: frames in queues, one by one.
#[derive(Default)]
struct Oracle {
    capacity: usize,
    /// What is still to be sent.
    batch: VecDeque<Vec<u32>>,
    ring: VecDeque<Vec<u32>>,
    too_long: u64,
    batch_too_small: u64,
}

fn packets(frames: &VecDeque<Vec<u32>>) -> usize {
    frames.iter().map(Vec::len).sum()
}

impl Oracle {
    /// Returns the number of packets that left the batch.
    fn send(&mut self) -> usize {
        let before = packets(&self.batch);
        let mut went = false;
        while let Some(frame) = self.batch.pop_front() {
            if packets(&self.ring) + frame.len() <= self.capacity {
                self.ring.push_back(frame);
                went = true;
            } else if frame.len() > self.capacity && !went {
                self.too_long += 1;
            } else {
                self.batch.push_front(frame);
                break;
            }
        }
        before - packets(&self.batch)
    }

    /// Returns the packets that arrive.
    fn receive(&mut self, capacity: usize, held: usize) -> Vec<(u32, bool)> {
        let mut all = Vec::new();
        while let Some(frame) = self.ring.pop_front() {
            if held + all.len() + frame.len() <= capacity {
                let last = frame.len() - 1;
                all.extend(frame.into_iter().enumerate().map(|(at, number)| (number, at < last)));
            } else if held + all.len() == 0 && capacity > 0 {
                self.batch_too_small += 1;
            } else {
                self.ring.push_front(frame);
                break;
            }
        }
        all
    }
}

proptest! {
    #[test]
    fn it_is_a_queue_of_frames(capacity in 0..=20_usize, steps in prop::collection::vec(step(), 1..40)) {
        let pool = pool(1024);
        let mut cache = pool.cache();
        let (mut sender, mut receiver) = lcore::ring(capacity);
        let mut oracle = Oracle { capacity: capacity.max(1), ..Oracle::default() };
        let mut batch = Batch::with_capacity(64);
        let mut next = 0;
        for step in steps {
            match step {
                Step::Send(frames, open) => {
                    let many = frames.len();
                    for (at, len) in frames.into_iter().enumerate() {
                        if batch.spare() < len as usize {
                            break;
                        }
                        let open = open && at + 1 == many;
                        for part in 0..len {
                            let packet = numbered(&mut cache, next + part, part + 1 < len || open);
                            prop_assert!(batch.push(packet).is_ok());
                        }
                        oracle.batch.push_back((next..next + len).collect());
                        next += len;
                    }
                    prop_assert_eq!(sender.send(&mut batch), oracle.send());
                    if let Some(last) = batch.last_mut() {
                        last.set_continues(false);
                    }
                }
                Step::Receive(capacity, held) => {
                    let mut into = Batch::with_capacity(capacity);
                    cache.alloc_batch(&mut into, held, 1);
                    prop_assert_eq!(seen(receiver.recv(&mut into)), oracle.receive(capacity, held));
                    cache.free_batch(&mut into);
                }
            }
            prop_assert_eq!((receiver.len(), batch.len()), (packets(&oracle.ring), packets(&oracle.batch)));
            prop_assert_eq!(sender.spare(), oracle.capacity - receiver.len());
            prop_assert_eq!((sender.too_long(), receiver.batch_too_small()), (oracle.too_long, oracle.batch_too_small));
        }
        drop((batch, cache, sender, receiver));
        prop_assert_eq!(pool.away(), 0);
    }
}

/// Fills `batch` with the next frames of `total` packets in all; a frame has one to four.
fn fill(batch: &mut Batch, cache: &mut PoolCache, next: &mut u32, total: u32) {
    while batch.spare() >= 4 && *next < total {
        let len = (1 + *next % 4).min(total - *next);
        for part in 0..len {
            let Some(mut packet) = cache.alloc_from(&(*next + part).to_be_bytes()) else {
                // The pool is empty: this frame is tried again.
                batch.drain_range(batch.len() - part as usize..).for_each(drop);
                return;
            };
            packet.set_continues(part + 1 < len);
            assert!(batch.push(packet).is_ok());
        }
        *next += len;
    }
}

#[test]
fn a_million_packets_pass_between_two_threads() {
    const TOTAL: u32 = 1_000_000;
    let pool = pool(1000);
    let (mut sender, mut receiver) = lcore::ring(100);
    let source = pool.clone();
    let sending = std::thread::spawn(move || {
        let (mut cache, mut batch, mut next) = (source.cache(), Batch::with_capacity(32), 0);
        while next < TOTAL || !batch.is_empty() {
            fill(&mut batch, &mut cache, &mut next, TOTAL);
            if sender.send(&mut batch) == 0 {
                std::thread::yield_now();
            }
        }
    });
    let (mut cache, mut batch, mut expected) = (pool.cache(), Batch::with_capacity(24), 0);
    loop {
        let last = receiver.is_disconnected();
        let packets = receiver.recv(&mut batch);
        assert!(packets.last().is_none_or(|packet| !packet.continues()), "half a frame");
        for packet in packets.iter() {
            assert_eq!(number(packet), expected);
            expected += 1;
        }
        if packets.is_empty() {
            if last {
                break;
            }
            std::thread::yield_now();
        }
        cache.free_batch(&mut batch);
    }
    sending.join().unwrap();
    assert_eq!(expected, TOTAL);
    drop(cache);
    assert_eq!(pool.away(), 0);
}

/// A ring with 20 of 30 packets in it, and the batch with the others.
fn half_sent(pool: &Pool) -> (PacketSender, PacketReceiver, Batch) {
    let (mut sender, receiver) = lcore::ring(20);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(30));
    for number in 0..30 {
        assert!(batch.push(numbered(&mut cache, number, false)).is_ok());
    }
    assert_eq!(sender.send(&mut batch), 20);
    (sender, receiver, batch)
}

#[test]
fn when_an_end_goes_away_the_other_knows_and_no_buffer_is_lost() {
    let pool = pool(64);
    let (mut sender, receiver, mut batch) = half_sent(&pool);
    drop(receiver);
    assert!(sender.is_disconnected());
    assert_eq!((sender.send(&mut batch), batch.len()), (0, 10), "nothing goes nowhere");
    drop(batch);
    assert_eq!(pool.away(), 0, "what was in the ring came home with the receiver");
    drop(sender);

    let (sender, mut receiver, mut batch) = half_sent(&pool);
    drop(sender);
    batch.clear();
    assert!(receiver.is_disconnected());
    assert_eq!(receiver.recv(&mut batch).len(), 20, "what was sent can still be received");
    drop((receiver, batch));
    assert_eq!(pool.away(), 0);

    // A sender that is forgotten takes nothing with it.
    let (sender, receiver, batch) = half_sent(&pool);
    std::mem::forget(sender);
    assert!(!receiver.is_disconnected());
    drop((receiver, batch));
    assert_eq!(pool.away(), 0);

    // Nor does a thread that panics.
    let (sender, receiver, batch) = half_sent(&pool);
    let unwound = std::thread::spawn(move || {
        let _held = (sender, batch);
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(unwound.join().is_err());
    assert!(receiver.is_disconnected());
    drop(receiver);
    assert_eq!(pool.away(), 0);
}

#[test]
fn a_pipeline_of_two_lcores_forwards_all_frames_in_order() {
    const FRAMES: u32 = 5000;
    let pool = Pool::new(&PoolConfig { slots: 1024, pages: PageSize::Ordinary, ..PoolConfig::default() }).unwrap();
    let (opened, mut wire) = in_process::open("a", &PortConfig::default(), &pool).unwrap();
    let Opened { port, mut rx, mut tx } = opened;
    let (mut rx, mut tx) = (rx.remove(0), tx.remove(0));
    let (mut sender, mut receiver) = lcore::ring(50);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let receive = move |_: &mut Clock| {
        rx.recv(&mut cache, &mut batch);
        sender.send(&mut batch) > 0
    };
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let transmit = move |_: &mut Clock| {
        receiver.recv(&mut batch);
        tx.send(&mut cache, &mut batch) > 0
    };
    let stop = Stop::new().unwrap();
    // The test's threads share what cores there are.
    let (first, second) = (Loop::new(&stop).yield_after(Some(1)), Loop::new(&stop).yield_after(Some(1)));
    let stages: Vec<(_, Box<dyn FnOnce() + Send>)> =
        vec![(None, Box::new(move || drop(first.run(receive)))), (None, Box::new(move || drop(second.run(transmit))))];
    let team = Team::start(stages, &stop).unwrap();
    let (mut injected, mut collected) = (0, 0);
    while collected < FRAMES {
        if injected < FRAMES && wire.inject(&injected.to_be_bytes().repeat(15)) {
            injected += 1;
        }
        match wire.collect() {
            Some(frame) => {
                assert_eq!(frame, collected.to_be_bytes().repeat(15));
                collected += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    stop.request();
    team.join().unwrap();
    drop((port, wire));
    assert_eq!(pool.away(), 0);
}
