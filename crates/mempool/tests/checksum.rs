//! What a packet keeps of its checksum, and sums completed in software, which a receiver has to find right.

mod common;

use common::runs;
use device::PageSize;
use mempool::{Checksum, Meta, Packet, Pool, PoolConfig, complete_checksum};
use proptest::prelude::*;

const TCP: (u8, u16) = (6, 16);
const UDP: (u8, u16) = (17, 6);
/// Where the transport header begins behind Ethernet and IPv4.
const START: u16 = 34;

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 64, pages: PageSize::Ordinary, ..PoolConfig::default() }).expect("a pool")
}

fn packet(pool: &Pool, bytes: &[u8]) -> Packet {
    let mut packet = pool.alloc().expect("a slot");
    packet.append(bytes.len()).expect("fits").copy_from_slice(bytes);
    packet
}

/// The sum of RFC 1071 as its first page says it: a byte in turn is the upper and the lower half of a word.
fn naive_sum(bytes: impl IntoIterator<Item = u8>) -> u16 {
    let mut sum: u32 = 0;
    for (n, byte) in bytes.into_iter().enumerate() {
        sum += u32::from(byte) << if n % 2 == 0 { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// Addresses, protocol and length of a packet with this payload behind the IPv4 header.
fn pseudo_header(protocol: u8, behind: usize) -> [u8; 12] {
    let [high, low] = u16::try_from(behind).expect("short").to_be_bytes();
    [192, 0, 2, 1, 198, 51, 100, 7, 0, protocol, high, low]
}

/// A frame whose checksum field has the sum of the pseudo-header, as a kernel leaves it to its NIC.
fn partial(protocol: u8, offset: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x5a; START.into()];
    frame.extend_from_slice(behind);
    let field = usize::from(START + offset);
    let sum = naive_sum(pseudo_header(protocol, behind.len()));
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

proptest! {
    #![proptest_config(runs(300, 3))]

    #[test]
    fn a_receiver_finds_a_completed_sum_right(
        (protocol, offset) in prop::sample::select(vec![TCP, UDP]),
        behind in prop::collection::vec(any::<u8>(), 20..200),
        cuts in prop::collection::vec(54..200_usize, 0..4),
    ) {
        let pool = pool();
        let frame = partial(protocol, offset, &behind);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < frame.len()).collect();
        cuts.extend([0, frame.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut run: Vec<Packet> = cuts.windows(2).map(|ends| packet(&pool, &frame[ends[0]..ends[1]])).collect();
        let mark = Checksum::Partial { start: START, offset };
        prop_assert!(run[0].set_checksum(mark));
        complete_checksum(&mut run);
        prop_assert_eq!(run[0].checksum(), Checksum::Unknown);
        let sent: Vec<u8> = run.iter().flat_map(|packet| packet.data().to_vec()).collect();
        let checked = pseudo_header(protocol, behind.len()).into_iter().chain(sent[START.into()..].iter().copied());
        prop_assert_eq!(naive_sum(checked), 0xffff);
        let field = usize::from(START + offset);
        prop_assert_ne!(&sent[field..field + 2], &[0, 0], "which would say that there is no sum");
        let others = |bytes: &[u8]| [&bytes[..field], &bytes[field + 2..]].concat();
        prop_assert_eq!(others(&sent), others(&frame), "nothing else has changed");
    }

    #[test]
    fn what_is_kept_never_reaches_beyond_the_data(word in any::<u64>(), start in any::<u16>(), offset in any::<u16>()) {
        // Any flags, and a length and an offset of all sizes.
        let meta = Meta(word);
        if let Some(kept) = meta.with_checksum(Checksum::Partial { start, offset }) {
            prop_assert_eq!((kept.offset(), kept.len(), kept.pool()), (meta.offset(), meta.len(), meta.pool()));
            prop_assert_eq!(kept.0 & Meta::CONTINUES, meta.0 & Meta::CONTINUES);
            prop_assert!(u32::from(start) + u32::from(offset) + 2 <= meta.len().into());
        }
    }
}

#[test]
fn a_sum_of_nothing_is_not_written_as_none() {
    let pool = pool();
    // All words add up to 0xffff, whose complement is zero.
    let mut behind = [0; 20];
    behind[0] = 0xff;
    behind[1] = 0xff;
    let mut packet = packet(&pool, &behind);
    assert!(packet.set_checksum(Checksum::Partial { start: 0, offset: 6 }));
    complete_checksum(std::slice::from_mut(&mut packet));
    assert_eq!(packet.data()[6..8], [0xff, 0xff]);
}

#[test]
fn the_mark_stays_with_the_header_while_head_room_comes_and_goes() {
    let pool = pool();
    let mut packet = packet(&pool, &[0; 100]);
    let partial = |start| Checksum::Partial { start, offset: 16 };
    assert_eq!(packet.checksum(), Checksum::Unknown);
    assert!(packet.set_checksum(partial(34)));
    packet.set_continues(true);
    assert_eq!((packet.checksum(), packet.continues(), packet.len()), (partial(34), true, 100));
    packet.prepend(4).expect("head room");
    assert_eq!(packet.checksum(), partial(38));
    assert!(packet.trim_front(18));
    assert_eq!(packet.checksum(), partial(20));
    let mut cache = pool.cache();
    let copy = packet.try_copy(&mut cache).expect("a copy");
    assert_eq!((copy.checksum(), copy.continues()), (partial(20), true));
    packet.truncate(38);
    assert_eq!(packet.checksum(), partial(20), "the field just fits");
    packet.truncate(37);
    assert_eq!(packet.checksum(), Checksum::Unknown, "the field is gone");
    assert!(packet.set_checksum(Checksum::Valid));
    assert_eq!(packet.checksum(), Checksum::Valid);
    packet.set_continues(false);
    assert!(packet.set_checksum(Checksum::Unknown));
    assert_eq!(packet.meta().0 >> 48, 0, "no flag is left");
}

#[test]
fn what_cannot_be_kept_is_refused_and_changes_nothing() {
    let pool = pool();
    let mut packet = packet(&pool, &[7; 100]);
    let before = packet.meta();
    for (start, offset) in
        [(34, 8), (34, 0), (83, 16), (93, 6), (100, 6), (u16::MAX, 16), (u16::MAX, u16::MAX), (34, u16::MAX)]
    {
        assert!(!packet.set_checksum(Checksum::Partial { start, offset }), "{start}, {offset}");
        assert_eq!(packet.meta(), before);
    }
    assert!(packet.set_checksum(Checksum::Partial { start: 82, offset: 16 }), "the last place");
    assert!(packet.trim_front(90));
    assert_eq!(packet.checksum(), Checksum::Unknown, "the header is gone");
    complete_checksum(std::slice::from_mut(&mut packet));
    assert_eq!(packet.data(), [7; 10]);
    complete_checksum(&mut []);
}
