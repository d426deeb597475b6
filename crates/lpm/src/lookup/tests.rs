//! All kernels the CPU has, compared with each other; those it has not are named in a line that begins with `skipped:`. Not
//! under Miri, which has one.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::tables::{Layout, Width};

use crate::build::{Blocks, Slots};
use crate::hops::Hops;
use crate::kernels::Choice;
use crate::mem::PACKED_SLOTS;
use crate::rib::{Built, HopId};
use crate::{Config, Error, Family, Ipv4Prefix, Ipv6Prefix, Table, V4, V6};

fn kernels() -> Vec<Kernel> {
    let named = |choice: Choice| {
        let skipped = |missing| skip::test!("kernel {} (this CPU has no {missing})", choice.name());
        Kernel::named(choice).map_err(skipped).ok()
    };
    Choice::ALL.into_iter().filter_map(named).collect()
}

/// The answers of every kernel are those of `expected`.
fn all_answer<F: Family>(tables: &mut Tables<F>, addrs: &[F::Bits], expected: &[Option<NextHop>]) {
    for kernel in kernels() {
        tables.kernel = kernel;
        for burst in [1, 8, 16, 32, 64, 128, 253] {
            let mut answers = vec![None; addrs.len()];
            for (addrs, answers) in addrs.chunks(burst).zip(answers.chunks_mut(burst)) {
                super::burst(tables, addrs, answers);
            }
            assert_eq!(answers, expected, "{kernel:?} in bursts of {burst}");
        }
    }
}

fn number(hops: &mut Hops<impl Copy>, tables: &Tables<impl Layout>, word: u32) -> HopId {
    let id = hops.acquire(word);
    tables.set_palette(id, word);
    id
}

/// The audit's entry P9: gathers take the place of an IPv4 leaf for a number with a sign, so blocks end before 2 GiB. Of the
/// address space that this takes, pages are backed only where blocks are written.
#[test]
fn p9_the_last_blocks_of_the_largest_ipv4_table_are_found_by_every_kernel() {
    for width in [Width::Byte, Width::Short, Width::Word] {
        let made = Tables::<V4>::new(usize::MAX, true, width, false, Kernel::Portable);
        let (mut tables, mut store) = match made {
            Err(Error::OutOfMemory { bytes }) => {
                skip::test!("p9 IPv4 (the system refuses {bytes} bytes of address space)");
                return;
            }
            made => made.unwrap(),
        };
        store.skip_to_last(2);
        let mut hops = Hops::new();
        let ids: Vec<HopId> = (1..=200).map(|word| number(&mut hops, &tables, word)).collect();
        let mut blocks = Blocks {
            tables: &tables,
            store: &mut store,
            hops: &mut hops,
            keeps_bytes: false,
            bytes: [0; PACKED_SLOTS],
            below: &mut Vec::new(),
        };
        let mut built = Vec::new();
        let slots_of = |block: usize| -> [Built; PACKED_SLOTS] {
            core::array::from_fn(|slot| Built::Hop(ids[(7 * block + slot) % ids.len()]))
        };
        let mut top = |slots: &[Built; PACKED_SLOTS]| Slots::with(slots, |slots| V4::build_top(&mut blocks, slots));
        while let Some(block) = top(&slots_of(built.len())) {
            built.push(block);
        }
        let block_bytes = PACKED_SLOTS * width.leaf_bytes();
        assert_eq!(built.len(), 2 * 4096 / block_bytes, "two chunks and no more");
        let (mut addrs, mut expected) = (Vec::new(), Vec::new());
        for (index, block) in built.iter().enumerate() {
            let top = 0x0a00_0000 + ((index as u32) << 13);
            tables.region.set_root(top, V4::root_block(*block).unwrap());
            for (slot, built) in (0..).zip(slots_of(index)) {
                let Built::Hop(id) = built else { unreachable!() };
                addrs.push(top | slot << 8 | 5);
                expected.push(NextHop::from_raw(hops.get(id).word));
            }
        }
        all_answer(&mut tables, &addrs, &expected);
    }
}

/// The same for IPv6, whose gathers have places of 64 bits.
#[test]
fn p9_the_last_blocks_of_the_largest_ipv6_table_are_found_by_every_kernel() {
    for width in [Width::Byte, Width::Short, Width::Word] {
        let made = Tables::<V6>::new(usize::MAX, true, width, false, Kernel::Portable);
        let (mut tables, mut store) = match made {
            Err(Error::OutOfMemory { bytes }) => {
                skip::test!("p9 IPv6 (the system refuses {bytes} bytes of address space)");
                return;
            }
            made => made.unwrap(),
        };
        store.skip_to_last(4096);
        let mut hops = Hops::new();
        let ids: Vec<HopId> = (1..=200).map(|word| number(&mut hops, &tables, word)).collect();
        let mut blocks = Blocks {
            tables: &tables,
            store: &mut store,
            hops: &mut hops,
            keeps_bytes: false,
            bytes: [0; PACKED_SLOTS],
            below: &mut Vec::new(),
        };
        let (mut addrs, mut expected, mut tops) = (Vec::new(), Vec::new(), Vec::new());
        // Pages whose nodes have nodes below them, until nothing fits.
        let mut page = |blocks: &mut Blocks<'_, V6>, top: u32| -> Option<Built> {
            let leaves = |from: usize| -> [Built; 16] {
                core::array::from_fn(|slot| Built::Hop(ids[(from + slot) % ids.len()]))
            };
            let below = Slots::with(&leaves(top as usize + 30), |slots| V6::build_inner(blocks, 2, slots))?;
            let mut slots = leaves(top as usize);
            slots[15] = below;
            let node = Slots::with(&slots, |slots| V6::build_inner(blocks, 1, slots))?;
            let built = Slots::with(&[node; 256], |slots| V6::build_top(blocks, slots))?;
            let want = |built: Built| match built {
                Built::Hop(id) => NextHop::from_raw(id),
                _ => None,
            };
            for slot in 0..15_u128 {
                addrs.push(u128::from(top) << 112 | 0x7f << 104 | slot << 100);
                expected.push(want(slots[slot as usize]));
            }
            for slot in 0..16_u128 {
                addrs.push(u128::from(top) << 112 | 0xff << 104 | 15 << 100 | slot << 96);
                expected.push(want(leaves(top as usize + 30)[slot as usize]));
            }
            Some(built)
        };
        while let Some(built) = page(&mut blocks, tops.len() as u32) {
            tops.push(V6::root_block(built).unwrap());
        }
        assert!(tops.len() >= 12, "{}", tops.len());
        for (top, block) in (0..).zip(tops) {
            tables.region.set_root(top << 16, block);
        }
        // The numbers of these next hops are their words.
        assert!(ids.iter().all(|id| hops.get(*id).word == *id));
        all_answer(&mut tables, &addrs, &expected);
    }
}

/// Bursts of 253, so that every size of chunk occurs: 128, 64, 32, 16, 8 and 1.
fn agree<F: Family>(routes: &[(F::Prefix, NextHop)], addrs: &[F::Bits], accelerator: bool) {
    let answers = Choice::ALL.into_iter().filter(|choice| crate::kernels::choose(*choice).is_ok()).map(|choice| {
        crate::kernels::choose(choice).unwrap();
        let config = Config { accelerator, ..Config::default() };
        let mut table = Table::<F>::from_routes(config, routes.iter().copied()).unwrap();
        // Tables that were changed, not only built.
        for (prefix, _) in routes.iter().step_by(3) {
            let _ = table.remove(*prefix);
        }
        for (prefix, hop) in routes.iter().step_by(6) {
            table.insert(*prefix, *hop).unwrap();
        }
        assert_eq!(table.writer.tables.kernel, Kernel::named(choice).unwrap());
        let mut answers = vec![None; addrs.len()];
        for (addrs, answers) in addrs.chunks(253).zip(answers.chunks_mut(253)) {
            super::burst(&table.writer.tables, addrs, answers);
        }
        // Another way to the same.
        let alone: Vec<_> = addrs.iter().map(|addr| super::one(&table.writer.tables, *addr)).collect();
        assert!(answers == alone, "{choice:?}");
        answers
    });
    let answers: Vec<_> = answers.collect();
    assert!(answers.iter().all(|other| *other == answers[0]));
    assert!(answers[0].iter().any(Option::is_some) && answers[0].iter().any(Option::is_none));
}

/// Up to 254, up to 65,534 and more next hops; routes on both sides of the /24 and the /48.
#[test]
fn kernels_agree() {
    let mut rng = fastrand::Rng::with_seed(12);
    for hops in [200, 20_000, 100_000] {
        let hop = |rng: &mut fastrand::Rng| NextHop::new(rng.u32(..hops)).unwrap();
        let v4: Vec<_> = (0..hops.max(20_000) + 20_000)
            .map(|_| (Ipv4Prefix::truncate(rng.u32(..1 << 28).into(), rng.u8(8..=32)).unwrap(), hop(&mut rng)))
            .collect();
        let v6: Vec<_> = (0..40_000)
            .map(|_| (Ipv6Prefix::truncate(rng.u128(..1 << 120).into(), rng.u8(12..=128)).unwrap(), hop(&mut rng)))
            .collect();
        let inside4 = |rng: &mut fastrand::Rng| u32::from(rng.choice(&v4).unwrap().0.address()) | rng.u32(..0x1000);
        let addrs4: Vec<_> = (0..10_000).map(|at| if at % 4 == 0 { rng.u32(..) } else { inside4(&mut rng) }).collect();
        let inside6 = |rng: &mut fastrand::Rng| u128::from(rng.choice(&v6).unwrap().0.address()) | rng.u128(..1 << 60);
        let addrs6: Vec<_> = (0..10_000).map(|at| if at % 4 == 0 { rng.u128(..) } else { inside6(&mut rng) }).collect();
        agree::<V4>(&v4, &addrs4, false);
        agree::<V4>(&v4, &addrs4, true);
        agree::<V6>(&v6, &addrs6, false);
    }
}

#[test]
fn tables_keep_their_kernel_when_they_move() {
    for kernel in Choice::ALL.into_iter().filter(|choice| crate::kernels::choose(*choice).is_ok()) {
        crate::kernels::choose(kernel).unwrap();
        let mut table = Table::<V4>::new().unwrap();
        crate::kernels::choose_best();
        let before = table.memory_use().held;
        for hop in 0..300 {
            let prefix = Ipv4Prefix::truncate((hop << 8).into(), 24).unwrap();
            table.insert(prefix, NextHop::new(hop).unwrap()).unwrap();
        }
        assert_ne!(table.memory_use().held, before, "leaves took more room");
        assert_eq!(table.writer.tables.kernel.choice(), kernel);
    }
}
