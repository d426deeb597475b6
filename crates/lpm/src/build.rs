//! From routes to blocks: nodes are built bottom up and shown to readers by storing one word.

use alloc::vec::Vec;

use crate::hops::Hops;
use crate::mem::{Leaf, PACKED_SLOTS, Store};
use crate::rib::{Built, HopId, NodeId, Rib};
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
    if level == 0 && rib.nodes[id as usize].children.is_empty() {
        return build_leaves::<F, SLOTS>(rib, blocks, journal, id, inherited);
    }
    let stride = rib.shape.strides[level];
    let mut slots = [Built::Hop(inherited); SLOTS];
    let slots = &mut slots[..1 << stride];
    for route in &rib.nodes[id as usize].routes {
        let start = usize::from(route.start);
        slots[start..start + (1 << (stride - route.len))].fill(Built::Hop(route.hop));
    }
    for index in 0..rib.nodes[id as usize].children.len() {
        let (slot, child) = rib.nodes[id as usize].children[index];
        let Built::Hop(passed_on) = slots[usize::from(slot)] else { continue };
        let node = &rib.nodes[child as usize];
        let keeps = !force && node.built != Built::Nothing && node.inherited == passed_on;
        slots[usize::from(slot)] =
            if keeps { node.built } else { build_node(rib, blocks, journal, (child, level + 1), passed_on, force)? };
    }
    let uniform = matches!(slots[0], Built::Hop(_)) && slots.iter().all(|slot| *slot == slots[0]);
    let built = if uniform {
        slots[0]
    } else if level == 0 {
        F::build_top(blocks, slots)?
    } else {
        F::build_inner(blocks, level, slots)?
    };
    if uniform
        && level == 0
        && let Built::Hop(hop) = built
    {
        blocks.bytes = [u8::try_from(hop).unwrap_or(u8::MAX); PACKED_SLOTS];
    }
    Some(note(rib, journal, id, built, inherited))
}

/// As [`build_sized`], of a top-level node without others below it, as most are.
fn build_leaves<F: Layout, const SLOTS: usize>(
    rib: &mut Rib,
    blocks: &mut Blocks<'_, F>,
    journal: &mut Vec<Undo>,
    id: NodeId,
    inherited: HopId,
) -> Option<Built> {
    let stride = rib.shape.strides[0];
    let mut hops = [inherited; SLOTS];
    let hops = &mut hops[..1 << stride];
    for route in &rib.nodes[id as usize].routes {
        let start = usize::from(route.start);
        match stride - route.len {
            // As most do.
            0 => hops[start] = route.hop,
            free => hops[start..start + (1 << free)].fill(route.hop),
        }
    }
    let built = if hops.iter().all(|hop| *hop == hops[0]) {
        blocks.bytes = [u8::try_from(hops[0]).unwrap_or(u8::MAX); PACKED_SLOTS];
        Built::Hop(hops[0])
    } else {
        F::build_leaves(blocks, hops)?
    };
    Some(note(rib, journal, id, built, inherited))
}

/// Notes what a node looks like now.
fn note(rib: &mut Rib, journal: &mut Vec<Undo>, id: NodeId, built: Built, inherited: HopId) -> Built {
    let node = &mut rib.nodes[id as usize];
    journal.push(Undo { id, built: node.built, inherited: node.inherited });
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
