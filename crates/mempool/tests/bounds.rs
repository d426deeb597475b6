//! A packet's data never leaves its slot, whatever it is asked to do.

mod common;

use common::{runs, small_pool};
use mempool::Packet;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Change {
    Prepend(usize),
    Append(usize),
    TrimFront(usize),
    Truncate(usize),
}

/// Counts around the room there is, and the extremes of every integer on the way.
fn count() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..100_usize, 1 => prop::sample::select(vec![65_535, 65_536, 65_540, usize::MAX - 1, usize::MAX])]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        count().prop_map(Change::Prepend),
        count().prop_map(Change::Append),
        count().prop_map(Change::TrimFront),
        count().prop_map(Change::Truncate),
    ]
}

/// Applies `change` to the packet and to a plain vector, which must agree afterwards.
fn apply(change: Change, packet: &mut Packet, model: &mut Vec<u8>, fill: u8) {
    let (headroom, tailroom, before) = (packet.headroom(), packet.tailroom(), model.clone());
    match change {
        Change::Prepend(count) => {
            let fits = count <= headroom;
            let got = packet.prepend(count).map(|bytes| bytes.fill(fill));
            assert_eq!(got.is_some(), fits);
            if fits {
                model.splice(0..0, std::iter::repeat_n(fill, count));
            }
        }
        Change::Append(count) => {
            let fits = count <= tailroom;
            let got = packet.append(count).map(|bytes| {
                assert_eq!(bytes.len(), count);
                bytes.fill(fill);
            });
            assert_eq!(got.is_some(), fits);
            if fits {
                model.resize(before.len() + count, fill);
            }
        }
        Change::TrimFront(count) => {
            assert_eq!(packet.trim_front(count), count <= before.len());
            if count <= before.len() {
                model.drain(..count);
            }
        }
        Change::Truncate(len) => {
            packet.truncate(len);
            model.truncate(len);
        }
    }
    assert_eq!(packet.data(), model.as_slice());
}

proptest! {
    #![proptest_config(runs(500, 6))]

    #[test]
    fn a_packet_behaves_like_a_vector_within_its_slot(
        changes in prop::collection::vec(change(), 0..if cfg!(miri) { 30 } else { 120 }),
    ) {
        let pool = small_pool(3);
        let mut packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
        packets.sort_by_key(|packet| packet.slot().as_ptr().addr());
        let [low, packet, high] = packets.as_mut_slice() else { panic!("three slots") };
        for neighbour in [&mut *low, &mut *high] {
            neighbour.prepend(32).expect("the whole head room").fill(0xee);
            neighbour.append(64).expect("the whole data room").fill(0xee);
        }
        let mut model = Vec::new();
        for (number, change) in changes.into_iter().enumerate() {
            apply(change, packet, &mut model, u8::try_from(number).expect("fewer than 256"));
            prop_assert_eq!(packet.headroom() + packet.len() + packet.tailroom(), 32 + 64);
            prop_assert_eq!(usize::from(packet.offset()), packet.headroom());
        }
        for neighbour in [low, high] {
            prop_assert!(neighbour.data().iter().all(|byte| *byte == 0xee), "a neighbour was overwritten");
        }
    }
}

#[test]
fn a_copy_carries_data_and_the_mark_of_a_longer_frame_and_fails_cleanly() {
    let pool = small_pool(2);
    let mut packet = pool.alloc().expect("a packet");
    packet.append(5).expect("room").copy_from_slice(b"hello");
    packet.set_continues(true);
    let mut cache = pool.cache();
    let copy = packet.try_copy(&mut cache).expect("the second slot");
    assert_eq!((copy.data(), copy.continues(), copy.headroom()), (&b"hello"[..], true, 32));
    assert!(packet.try_copy(&mut cache).is_none(), "the pool is empty");
    cache.free(copy);

    // More data than the other pool's slots have room for: 96 bytes, from the front of the slot.
    packet.prepend(32).expect("the whole head room").fill(1);
    packet.append(59).expect("the whole room").fill(2);
    assert!(packet.try_copy(&mut cache).is_none());
    drop((packet, cache));
    assert_eq!(pool.away(), 0, "the copy that failed is home");
}

#[test]
fn slots_lie_apart_aligned_and_within_the_memory() {
    for (slots, data_room, headroom) in [(1, 64, 0), (33, 2048, 128), (70, 65_000, 535), (5, 64, 65_471)] {
        let config = mempool::PoolConfig {
            slots,
            data_room,
            headroom,
            pages: device::PageSize::Ordinary,
            ..mempool::PoolConfig::default()
        };
        let pool = mempool::Pool::new(&config).expect("within the limits");
        let packets: Vec<Packet> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(packets.len(), slots);
        let mut starts: Vec<usize> = packets.iter().map(|packet| packet.slot().as_ptr().addr()).collect();
        starts.sort_unstable();
        let size = usize::from(data_room) + usize::from(headroom);
        let (base, end) = (pool.memory().base().addr().get(), pool.memory().base().addr().get() + pool.memory().len());
        assert!(starts.iter().all(|start| start % 64 == 0), "slots begin on cache lines");
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= size), "slots do not overlap");
        assert!(starts[0] >= base && starts[slots - 1] + size <= end, "slots lie in the pool's memory");
        let page = 2 << 20;
        assert!(starts.iter().all(|start| (start - base) / page == (start - base + size - 1) / page));
    }
}
