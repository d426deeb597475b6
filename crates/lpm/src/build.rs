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
    /// Their next hops; of those that lead deeper, what they pass on. To be worked on by who builds.
    pub(crate) hops: &'a mut [HopId],
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

#[cfg(test)]
#[cfg(not(loom))]
impl Slots<'_> {
    /// Lets `build` have these slots.
    pub(crate) fn with<T>(all: &[Built], build: impl FnOnce(Slots<'_>) -> T) -> T {
        let hop = |built: &Built| if let Built::Hop(hop) = built { *hop } else { 0 };
        let mut hops: Vec<HopId> = all.iter().map(hop).collect();
        let deeper = (0..=u8::MAX).zip(all).filter(|(_, built)| !matches!(built, Built::Hop(_)));
        let below: Vec<_> = deeper.map(|(slot, built)| (slot, *built)).collect();
        build(Slots { hops: &mut hops, below: &below })
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
    let mut count = 0;
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
                match built {
                    Built::Hop(hop) => hops[slot] = hop,
                    _ => count += 1,
                }
            }
        }
    }
    let built = if count == 0 && hops.iter().all(|hop| *hop == hops[0]) {
        if level == 0 {
            blocks.bytes = [u8::try_from(hops[0]).unwrap_or(u8::MAX); PACKED_SLOTS];
        }
        Built::Hop(hops[0])
    } else {
        build_slots::<F, SLOTS>(rib, blocks, (id, level), &mut hops, count)?
    };
    Some(note(rib, journal, id, built, inherited, force))
}

/// Builds the block of a node, of whose slots `count` lead deeper.
fn build_slots<F: Layout, const SLOTS: usize>(
    rib: &Rib,
    blocks: &mut Blocks<'_, F>,
    (id, level): (NodeId, usize),
    hops: &mut [HopId; SLOTS],
    count: usize,
) -> Option<Built> {
    let mut build = |slots| if level == 0 { F::build_top(blocks, slots) } else { F::build_inner(blocks, level, slots) };
    if count == 0 {
        return build(Slots { hops, below: &[] });
    }
    let deeper = rib.lists.of(rib.nodes[id as usize].list).iter().filter_map(|item| match item.kind() {
        Kind::Below(child) => Some((item.slot, rib.nodes[child as usize].built)),
        Kind::Route(_) => None,
    });
    let mut below = [(0, Built::Nothing); SLOTS];
    for (to, from) in below.iter_mut().zip(deeper.filter(|below| !matches!(below.1, Built::Hop(_)))) {
        *to = from;
    }
    build(Slots { hops, below: &below[..count] })
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
