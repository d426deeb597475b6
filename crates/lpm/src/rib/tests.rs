//! What lists of the trie leave behind.

use super::*;
use crate::tables::Layout;
use crate::v6::V6;

/// Route `index` of the page below a root slot, the longest first.
fn key(root: u128, index: usize) -> Key {
    let (len, slot) = if index < 256 { (24, index) } else { (23, index - 256) };
    Key { bits: root << 112 | (slot as u128) << (128 - u32::from(len)), len }
}

/// Room is never more than eight items a route or node below, and one a node, whatever came before.
#[test]
fn room_follows_what_there_is() {
    let (mut rib, mut rng) = (Rib::new(V6::SHAPE), fastrand::Rng::with_seed(6));
    let mut held = [0; 24];
    let mut packed = 0;
    let sizes =
        if cfg!(miri) { vec![1, 9, 1] } else { vec![1, 2, 4, 9, 16, 33, 65, 130, 257, 384, 16, 3, 1, 257, 0, 384, 0] };
    for (round, most) in sizes.into_iter().enumerate() {
        for root in (0..).take(held.len()) {
            let count = &mut held[root as usize];
            // All alike, which is the worst for those that come after, or not.
            let want = if round % 3 == 2 { rng.usize(..=most) } else { most };
            while *count != want {
                let before = rib.lists.spare();
                if *count < want {
                    rib.insert_near(&mut Finger::new(), key(root, *count), 1);
                    *count += 1;
                } else {
                    *count -= 1;
                    let (_, path) = rib.remove(key(root, *count)).unwrap();
                    path.pruned().iter().for_each(|id| rib.forget(*id));
                }
                packed += usize::from(before > 0 && rib.lists.spare() == 0);
                let (room, nodes) = (rib.lists.room(), rib.nodes.len());
                assert!(room <= 8 * rib.len() + nodes, "{room} for {} routes, {nodes} nodes", rib.len());
            }
        }
        for (root, count) in (0..).zip(held) {
            assert!((0..384).all(|index| rib.get(key(root, index)).is_some() == (index < count)));
        }
    }
    assert!(packed > 0 || cfg!(miri));
}

/// What a removal takes out comes back as it was.
#[test]
fn a_removal_is_undone() {
    let mut rib = Rib::new(V6::SHAPE);
    let keys = [(0x2001 << 112, 32), (0x2001 << 112, 64), (0x2001 << 112 | 1 << 70, 60), (0x2002 << 112, 128), (0, 8)];
    let keys = keys.map(|(bits, len)| Key { bits, len });
    keys.iter().for_each(|key| assert_eq!(rib.insert_near(&mut Finger::new(), *key, 7), None));
    for key in keys {
        let (hop, path) = rib.remove(key).unwrap();
        assert_eq!((hop, rib.get(key), rib.len()), (7, None, 4));
        rib.restore(key, hop, path);
        assert_eq!((rib.get(key), rib.len()), (Some(7), 5));
        let mut all: Vec<_> = rib.iter_from(Key { bits: 0, len: 0 }).map(|route| route.0).collect();
        all.sort_by_key(|key| keys.iter().position(|other| other == key));
        assert_eq!(all, keys);
    }
}
