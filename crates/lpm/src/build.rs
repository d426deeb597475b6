//! From routes to blocks: nodes are built bottom up and shown to readers by storing one word.

use alloc::vec::Vec;

use crate::hops::Hops;
use crate::mem::{Leaf, PACKED_SLOTS, Store};
use crate::rib::{Built, HopId, Kind, NodeId, Rib};
use crate::tables::{BlockOf, Layout, Tables, Width};

/// Where blocks come from while nodes are built. Methods answer `None` when the region is full.
pub(crate) struct Blocks<'a, F: Layout> {
    pub(crate) tables: &'a Tables<F>,
    pub(crate) store: &'a mut F::Store,
    pub(crate) hops: &'a mut Hops<F::Block>,
    /// Whether the tables keep a byte per top-level slot.
    pub(crate) keeps_bytes: bool,
    /// The bytes of the top-level block built last, if they do.
    pub(crate) bytes: [u8; PACKED_SLOTS],
    /// Of the nodes that are being built, one in the other: their slots that lead deeper, as far as those are built.
    pub(crate) below: &'a mut Vec<(u8, Built)>,
}

impl<F: Layout> Blocks<'_, F> {
    /// The root block for a built top-level node, or a slot without one.
    pub(crate) fn root_block(&mut self, built: Built) -> Option<F::Block> {
        let Built::Hop(hop) = built else { return F::root_block(built) };
        if self.hops.get(hop).uniform.is_none() {
            let block = F::build_uniform(self, hop);
            self.hops.get_mut(hop).uniform = block;
        }
        self.hops.get(hop).uniform
    }

    /// What a leaf says for a built slot.
    pub(crate) fn leaf_to<L: Leaf>(&self, built: Built) -> L {
        match built {
            Built::Hop(hop) if self.tables.width == Width::Word => L::from_word(self.hops.get(hop).word),
            Built::Hop(hop) => L::from_word(hop),
            _ => L::ESCAPE,
        }
    }
}

/// The slots of a node.
pub(crate) struct Slots<'a> {
    /// Their next hops; those that lead deeper have that of the slot before, so that its run goes on behind them.
    pub(crate) hops: &'a [HopId],
    /// Which of the first 32 have another next hop than the slot before.
    pub(crate) starts: u32,
    /// What they lead to that lead deeper, in order.
    pub(crate) below: &'a [(u8, Built)],
}

impl Slots<'_> {
    /// What each of the first `N` slots is.
    pub(crate) fn all<const N: usize>(&self) -> [Built; N] {
        let mut all = core::array::from_fn(|slot| Built::Hop(self.hops[slot]));
        for (slot, built) in self.below {
            all[usize::from(*slot)] = *built;
        }
        all
    }
}

/// Which of the first 32 slots have another next hop than the one before.
#[inline]
fn starts<const SLOTS: usize>(hops: &[HopId; SLOTS]) -> u32 {
    let mut starts = 0;
    for slot in 1..SLOTS.min(32) {
        starts |= u32::from(hops[slot] != hops[slot - 1]) << slot;
    }
    starts
}

#[cfg(test)]
#[cfg(not(loom))]
impl Slots<'_> {
    /// Lets `build` have these slots.
    pub(crate) fn with<T, const SLOTS: usize>(all: &[Built; SLOTS], build: impl FnOnce(Slots<'_>) -> T) -> T {
        let mut hops = [0; SLOTS];
        for slot in 0..SLOTS {
            hops[slot] = if let Built::Hop(hop) = all[slot] { hop } else { hops[slot.saturating_sub(1)] };
        }
        let deeper = (0..=u8::MAX).zip(all).filter(|(_, built)| !matches!(built, Built::Hop(_)));
        let below: Vec<_> = deeper.map(|(slot, built)| (slot, *built)).collect();
        build(Slots { hops: &hops, starts: starts(&hops), below: &below })
    }
}

/// How a node was before it was built anew.
#[derive(Debug)]
pub(crate) struct Undo {
    id: NodeId,
    built: Built,
    inherited: HopId,
}

/// Builds a node, and those below it that need it: all with `force`, else those that are new or inherit another
/// next hop. `None` if the region is full; `journal` says what was done so far.
pub(crate) fn build_node<F: Layout>(
    rib: &mut Rib,
    blocks: &mut Blocks<'_, F>,
    journal: &mut Vec<Undo>,
    (id, level): (NodeId, usize),
    inherited: HopId,
    force: bool,
) -> Option<Built> {
    match rib.shape.strides[level] {
        8 => build_sized::<F, 256>(rib, blocks, journal, (id, level), inherited, force),
        4 => build_sized::<F, 16>(rib, blocks, journal, (id, level), inherited, force),
        5 => build_sized::<F, 32>(rib, blocks, journal, (id, level), inherited, force),
        _ => build_sized::<F, 8>(rib, blocks, journal, (id, level), inherited, force),
    }
}

fn build_sized<F: Layout, const SLOTS: usize>(
    rib: &mut Rib,
    blocks: &mut Blocks<'_, F>,
    journal: &mut Vec<Undo>,
    (id, level): (NodeId, usize),
    inherited: HopId,
    force: bool,
) -> Option<Built> {
    let mut hops = [inherited; SLOTS];
    let list = rib.nodes[id as usize].list;
    let first = blocks.below.len();
    for index in 0..list.len() {
        let item = rib.lists.of(list)[index];
        let slot = usize::from(item.slot);
        match item.kind() {
            Kind::Route(hop) => match SLOTS >> item.len {
                // As of most.
                1 => hops[slot] = hop,
                slots => hops[slot..slot + slots].fill(hop),
            },
            Kind::Below(child) => {
                let node = &rib.nodes[child as usize];
                let keeps = !force && node.built != Built::Nothing && node.inherited == hops[slot];
                let built = match keeps {
                    true => node.built,
                    false => build_node(rib, blocks, journal, (child, level + 1), hops[slot], force)?,
                };
                if let Built::Hop(hop) = built {
                    hops[slot] = hop;
                } else {
                    blocks.below.push((item.slot, built));
                    hops[slot] = hops[slot.saturating_sub(1)];
                }
            }
        }
    }
    let starts = starts(&hops);
    let alike = starts == 0 && (SLOTS <= 32 || hops.iter().all(|hop| *hop == hops[0]));
    let built = if alike && blocks.below.len() == first {
        if level == 0 {
            blocks.bytes = [u8::try_from(hops[0]).unwrap_or(u8::MAX); PACKED_SLOTS];
        }
        Built::Hop(hops[0])
    } else {
        let mut below = core::mem::take(blocks.below);
        let slots = Slots { hops: &hops, starts, below: &below[first..] };
        let built = if level == 0 { F::build_top(blocks, slots) } else { F::build_inner(blocks, level, slots) };
        below.truncate(first);
        *blocks.below = below;
        built?
    };
    Some(note(rib, journal, id, built, inherited, force))
}

/// Notes what a node looks like now.
fn note(rib: &mut Rib, journal: &mut Vec<Undo>, id: NodeId, built: Built, inherited: HopId, force: bool) -> Built {
    let node = &mut rib.nodes[id as usize];
    // Of a node that no tables show, nobody asks what it was before all is built anew.
    if !force || node.built != Built::Nothing {
        journal.push(Undo { id, built: node.built, inherited: node.inherited });
    }
    node.built = built;
    node.inherited = inherited;
    built
}

/// Takes back everything `journal` tells of: frees the new blocks and restores the nodes.
pub(crate) fn undo<F: Layout>(rib: &mut Rib, store: &mut F::Store, journal: &mut Vec<Undo>) {
    for entry in journal.drain(..).rev() {
        let node = &mut rib.nodes[entry.id as usize];
        if let Some(block) = F::block_of(store, node.built) {
            store.free(block);
        }
        node.built = entry.built;
        node.inherited = entry.inherited;
    }
}

/// Puts the nodes back as they were, for blocks that lie in a region that is given up.
pub(crate) fn restore(rib: &mut Rib, journal: Vec<Undo>) {
    for entry in journal.into_iter().rev() {
        let node = &mut rib.nodes[entry.id as usize];
        node.built = entry.built;
        node.inherited = entry.inherited;
    }
}

/// The blocks that nodes had before they were built anew: no reader finds them any more.
pub(crate) fn replaced<F: Layout>(store: &F::Store, journal: &[Undo]) -> impl Iterator<Item = BlockOf<F>> {
    journal.iter().filter_map(|entry| F::block_of(store, entry.built))
}
