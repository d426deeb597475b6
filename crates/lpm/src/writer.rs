//! One change of the table: routes, then blocks, then the word that shows them to readers.
//!
//! A change is prepared in full before readers see any of it. If memory runs out half way it is taken back and the
//! table moved to a larger region; if there is none, the routes are taken back too.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::build::{self, Blocks, Undo, build_node};
use crate::hops::Hops;
use crate::lookup::Kernel;
use crate::mem::{Bytes, PACKED_SLOTS, Publisher, Root, Roots, Store};
use crate::prefix::Key;
use crate::rib::{Base, Built, Finger, HopId, NodeId, Path, Rib};
use crate::tables::{BlockOf, Layout, Tables, Width};
use crate::{Config, Error, Result};

/// The writing half of a table.
pub(crate) struct Writer<F: Layout> {
    pub(crate) rib: Rib,
    pub(crate) hops: Hops<F::Block>,
    pub(crate) tables: Arc<Tables<F>>,
    /// By which readers of the tables before these find them.
    pub(crate) publisher: Publisher<Tables<F>>,
    pub(crate) store: F::Store,
    config: Config,
    /// Whether there has been a route that lies beyond the least root words.
    whole: bool,
    /// Routes at which tables are built anew for the sake of an accelerator, if they have none: with each doubling, as it may have been left
    /// out.
    accelerates_at: usize,
    limbo: Limbo<BlockOf<F>>,
    /// Bytes of blocks unlinked since the table was made.
    discarded: u64,
    /// How many these were when everything was last packed anew for want of room at the limit, or that was tried.
    packed_at: Option<u64>,
    /// How many these were when tables with wider leaves had no room at the limit.
    refused_at: Option<u64>,
    /// Times that everything was built anew, or that was tried.
    #[cfg(test)]
    pub(crate) rebuilds: usize,
    /// An empty change, whose memory the next one uses.
    spare: Option<Prepared<F>>,
}

/// What readers may still be looking at.
struct Limbo<B> {
    /// Unlinked in this era.
    now: Garbage<B>,
    /// Unlinked before.
    before: Garbage<B>,
}

struct Garbage<B> {
    blocks: Vec<B>,
    bytes: usize,
    hops: Vec<HopId>,
}

/// Of a family.
type Prepared<F> = Box<Change<<F as Roots>::Block, <F as Layout>::Entry>>;

/// A prepared change.
struct Change<B, E> {
    journal: Vec<Undo>,
    /// For building.
    below: Vec<(u8, Built)>,
    bases: Vec<(usize, Base)>,
    roots: Vec<(usize, B)>,
    /// The bytes of root slots, in the order of `roots`.
    bytes: Vec<[u8; PACKED_SLOTS]>,
    /// Which of them may be other than they were.
    changed: Range<usize>,
    /// An entry to store in place: the node it lies in, the slot and what it says.
    patch: Option<(Built, u8, E)>,
    /// A next hop to store in place for the `changed` slots of a root slot's block.
    leaf: Option<(usize, Built, HopId)>,
}

impl<B, E> Change<B, E> {
    fn new() -> Self {
        Self {
            journal: Vec::new(),
            below: Vec::new(),
            bases: Vec::new(),
            roots: Vec::new(),
            bytes: Vec::new(),
            changed: 0..PACKED_SLOTS,
            patch: None,
            leaf: None,
        }
    }

    fn clear(&mut self) {
        self.journal.clear();
        self.below.clear();
        self.bases.clear();
        self.roots.clear();
        self.bytes.clear();
        self.changed = 0..PACKED_SLOTS;
        self.patch = None;
        self.leaf = None;
    }
}

impl<F: Layout> Writer<F> {
    pub(crate) fn new(config: Config) -> Result<Self> {
        Self::with_routes(config, Rib::new(F::SHAPE), Hops::new(), false)
    }

    /// A writer for routes that no tables show yet. Bases are painted, nothing is built.
    fn with_routes(config: Config, mut rib: Rib, mut hops: Hops<F::Block>, whole: bool) -> Result<Self> {
        let width = Width::for_id(hops.max_id());
        let (tables, store) = generate::<F>(&config, &mut rib, &mut hops, width, whole, 0, false)?;
        let tables = Arc::new(tables);
        let publisher = Publisher::new(Arc::clone(&tables));
        let accelerates_at = accelerates_behind(&config, rib.len());
        Ok(Self {
            rib,
            hops,
            tables,
            publisher,
            store,
            accelerates_at,
            config,
            whole,
            limbo: Limbo::default(),
            discarded: 0,
            packed_at: None,
            refused_at: None,
            #[cfg(test)]
            rebuilds: 0,
            spare: None,
        })
    }

    /// A writer with these routes; the later of two routes for one prefix stands.
    pub(crate) fn from_routes(config: Config, routes: impl IntoIterator<Item = (Key, u32)>) -> Result<Self> {
        let (rib, hops, whole) = gather::<F>(routes);
        Self::with_routes(config, rib, hops, whole)
    }

    /// Puts these routes in the place of all there are; on an error these stay.
    pub(crate) fn replace(&mut self, routes: impl IntoIterator<Item = (Key, u32)>) -> Result<()> {
        let (mut rib, mut hops, whole) = gather::<F>(routes);
        let width = Width::for_id(hops.max_id());
        let (mut tables, store) = generate::<F>(&self.config, &mut rib, &mut hops, width, whole, 0, false)?;
        tables.kernel = self.tables.kernel;
        self.move_to(tables, store);
        self.accelerates_at = accelerates_behind(&self.config, rib.len());
        (self.rib, self.hops, self.whole) = (rib, hops, whole);
        // What readers of the tables before may look at belongs to those.
        (self.limbo, self.packed_at, self.refused_at) = (Limbo::default(), None, None);
        Ok(())
    }

    pub(crate) fn insert(&mut self, key: Key, word: u32) -> Result<Option<u32>> {
        if F::lies_beyond(key) && !self.whole {
            self.whole = true;
            if let Err(error) = self.relocate(self.tables.width, self.store.capacity()) {
                self.whole = false;
                return Err(error);
            }
        }
        let hop = self.acquire(word)?;
        let mut finger = Finger::new();
        let old = self.rib.insert_near(&mut finger, key, hop);
        if old == Some(hop) {
            self.release(hop);
            return Ok(Some(word));
        }
        if let Err(error) = self.change(key, Some(hop), &finger.path) {
            if let Some(old) = old {
                self.rib.insert_near(&mut finger, key, old);
            } else if let Some((_, path)) = self.rib.remove(key) {
                path.pruned().iter().for_each(|id| self.rib.forget(*id));
            }
            self.release(hop);
            return Err(error);
        }
        let old = old.map(|old| {
            let word = self.hops.get(old).word;
            self.release(old);
            word
        });
        self.collect();
        if self.rib.len() >= self.accelerates_at {
            self.accelerate();
        }
        Ok(old)
    }

    /// Builds everything anew with an accelerator, if the most used next hops make it pay. Without memory for the tables, it goes on as
    /// before.
    #[cold]
    fn accelerate(&mut self) {
        self.accelerates_at = accelerates_behind(&self.config, self.rib.len());
        if !F::HAS_BYTES || self.tables.bytes.is_some() || self.hops.share_of_most_used(BYTE_HOPS) < ACCELERATED_SHARE {
            return;
        }
        let _ = if self.hops.share_below(1 + BYTE_HOPS) >= ACCELERATED_SHARE {
            self.relocate(self.tables.width, self.store.capacity())
        } else {
            // Those that are used most came after others. That numbers them anew.
            let routes = self.rib.iter_from(Key { bits: 0, len: 0 });
            let routes: Vec<_> = routes.map(|(key, hop)| (key, self.hops.get(hop).word)).collect();
            self.replace(routes)
        };
    }

    /// Removes a route; `None` if there is none.
    pub(crate) fn remove(&mut self, key: Key) -> Result<Option<u32>> {
        let Some((hop, path)) = self.rib.remove(key) else { return Ok(None) };
        if let Err(error) = self.change(key, None, &path) {
            self.rib.restore(key, hop, path);
            return Err(error);
        }
        let word = self.hops.get(hop).word;
        self.release(hop);
        self.collect();
        Ok(Some(word))
    }

    /// Shows readers the route for `key` that was just set to `hop` or removed, and forgets the nodes of its path that are pruned.
    /// These stay if there is an error.
    fn change(&mut self, key: Key, hop: Option<HopId>, path: &Path) -> Result<()> {
        let mut prepared = self.try_prepare(key, hop, path);
        if prepared.is_none() && self.limbo.holds_blocks() {
            self.end_era();
            self.end_era();
            prepared = self.try_prepare(key, hop, path);
        }
        if let Some(change) = prepared {
            self.commit(change);
            for id in path.pruned() {
                if let Some(block) = F::block_of(&self.store, self.rib.nodes[*id as usize].built) {
                    self.discard(block);
                }
                self.rib.forget(*id);
            }
            return Ok(());
        }
        // The region is full: paint the bases of this change and build everything anew in a larger one.
        let bases = self.new_bases(key, hop);
        let undo: Vec<_> = bases.iter().map(|(slot, _)| (*slot, self.rib.base(*slot))).collect();
        for (slot, base) in bases {
            self.rib.set_base(slot, base);
        }
        let capacity = self.store.capacity();
        let width = self.tables.width;
        let most = most_bytes::<F>(&self.config);
        let worth = self.may_rebuild(self.packed_at);
        let moved = if capacity < most && worth {
            self.relocate(width, capacity.saturating_mul(2).min(most))
        } else {
            Err(Error::TableFull { limit: limit_of::<F>(&self.config) })
        };
        if let Err(Error::TableFull { .. }) = moved
            && worth
        {
            self.packed_at = Some(self.discarded);
        }
        let moved = match moved {
            // There may be room once blocks are packed anew.
            Err(Error::TableFull { .. }) if hop.is_none() => self.relocate_for(true, width, 0),
            Err(Error::TableFull { .. }) if worth && 4 * self.store.live() < 3 * capacity => self.relocate(width, 0),
            moved => moved,
        };
        if let Err(error) = moved {
            for (slot, base) in undo {
                self.rib.set_base(slot, base);
            }
            return Err(error);
        }
        path.pruned().iter().for_each(|id| self.rib.forget(*id));
        Ok(())
    }

    /// Says yes if so much has changed `since` everything was built anew at the limit that doing it again is worth while:
    /// many changes have to share the cost, so that each pays for a few bytes of it.
    fn may_rebuild(&self, since: Option<u64>) -> bool {
        since.is_none_or(|before| self.discarded - before >= (self.store.capacity() / REBUILD_SHARE) as u64)
    }

    /// Prepares a change; `None`, and nothing done, if the region is full.
    fn try_prepare(&mut self, key: Key, hop: Option<HopId>, path: &Path) -> Option<Prepared<F>> {
        let mut change = self.spare.take().unwrap_or_else(|| Box::new(Change::new()));
        self.store.keep_reserve(hop.is_some());
        let prepared = if self.rib.root_range(key).is_some() {
            self.prepare_roots(key, hop, &mut change)
        } else {
            self.prepare_path(key, path, &mut change)
        };
        if prepared.is_some() {
            return Some(change);
        }
        build::undo::<F>(&mut self.rib, &mut self.store, &mut change.journal);
        change.clear();
        self.spare = Some(change);
        None
    }

    /// The bases a change of a root-array route brings.
    fn new_bases(&self, key: Key, hop: Option<HopId>) -> Vec<(usize, Base)> {
        let Some(range) = self.rib.root_range(key) else { return Vec::new() };
        let slots = range.filter(|slot| match hop {
            Some(_) => self.rib.base(*slot).len <= key.len,
            None => self.rib.base(*slot).len == key.len,
        });
        let base = match (hop, key.len.checked_sub(1)) {
            (Some(hop), _) => Base { len: key.len, hop },
            (None, Some(len)) => self.rib.base_of(key, len),
            (None, None) => Base { len: 0, hop: 0 },
        };
        slots.map(|slot| (slot, base)).collect()
    }

    /// Builds what a change of a root-array route needs. `None` if the region is full.
    fn prepare_roots(&mut self, key: Key, hop: Option<HopId>, change: &mut Change<F::Block, F::Entry>) -> Option<()> {
        change.bases = self.new_bases(key, hop);
        let keeps_bytes = self.tables.bytes.is_some();
        let mut blocks = Blocks {
            tables: &self.tables,
            store: &mut self.store,
            hops: &mut self.hops,
            keeps_bytes,
            bytes: [0; PACKED_SLOTS],
            below: &mut change.below,
        };
        for (slot, base) in &change.bases {
            if self.rib.base(*slot).hop == base.hop {
                continue;
            }
            let built = match self.rib.root_node(*slot) {
                Some(id) => build_node(&mut self.rib, &mut blocks, &mut change.journal, (id, 0), base.hop, false)?,
                None => {
                    blocks.bytes = [byte_of(base.hop); PACKED_SLOTS];
                    Built::Hop(base.hop)
                }
            };
            change.roots.push((*slot, blocks.root_block(built)?));
            if keeps_bytes {
                change.bytes.push(blocks.bytes);
            }
        }
        Some(())
    }

    /// The same for longer ones.
    fn prepare_path(&mut self, key: Key, path: &[NodeId], change: &mut Change<F::Block, F::Entry>) -> Option<()> {
        let root = self.rib.root_slot(key);
        let base = self.rib.base(root).hop;
        change.changed = self.rib.top_slots(key);
        if let Some(top) = self.rib.root_node(root)
            && let built = self.rib.nodes[top as usize].built
            && F::can_store_leaf(&self.tables, built, &change.changed)
            && let Some(hop) = self.rib.sole_hop(key)
        {
            change.leaf = Some((root, built, hop));
            return Some(());
        }
        let keeps_bytes = self.tables.bytes.is_some();
        let mut blocks = Blocks {
            tables: &self.tables,
            store: &mut self.store,
            hops: &mut self.hops,
            keeps_bytes,
            bytes: [0; PACKED_SLOTS],
            below: &mut change.below,
        };
        let mut push_root = |blocks: &mut Blocks<'_, F>, built| {
            change.roots.push((root, blocks.root_block(built)?));
            if keeps_bytes {
                change.bytes.push(blocks.bytes);
            }
            Some(())
        };
        // The deepest node readers know is where to start; those below it are new.
        let known = |id: &NodeId| self.rib.nodes[*id as usize].built != Built::Nothing;
        let Some(mut level) = path.iter().rposition(known) else {
            let built = match path.first() {
                Some(id) => build_node(&mut self.rib, &mut blocks, &mut change.journal, (*id, 0), base, false)?,
                None => {
                    blocks.bytes = [byte_of(base); PACKED_SLOTS];
                    Built::Hop(base)
                }
            };
            return push_root(&mut blocks, built);
        };
        loop {
            let id = path[level];
            let (before, inherited) = (self.rib.nodes[id as usize].built, self.rib.nodes[id as usize].inherited);
            let built = build_node(&mut self.rib, &mut blocks, &mut change.journal, (id, level), inherited, false)?;
            if built == before && matches!(built, Built::Hop(_)) {
                return Some(());
            }
            let Some(above) = level.checked_sub(1) else { return push_root(&mut blocks, built) };
            let (parent, slot) = (self.rib.nodes[path[above] as usize].built, self.rib.slot(key, above));
            if F::can_patch(&self.tables, parent, slot, built) {
                change.patch = Some((parent, slot, F::entry(&blocks, built)?));
                return Some(());
            }
            level = above;
        }
    }

    /// Shows a prepared change to readers.
    fn commit(&mut self, mut change: Prepared<F>) {
        let top = |slot: usize| {
            #[expect(clippy::cast_possible_truncation, reason = "root slots have at most 19 bits")]
            let slot = slot as u32;
            slot << (32 - F::ROOT_BITS)
        };
        for (slot, base) in change.bases.drain(..) {
            self.rib.set_base(slot, base);
        }
        // Bytes about to change say nothing until they have: none is older than an answer of the table proper, which any burst may have had.
        for ((slot, _), bytes) in change.roots.iter().zip(&change.bytes) {
            each_byte(&self.tables, top(*slot), change.changed.clone(), bytes, Bytes::hide);
        }
        if let Some((slot, _, hop)) = change.leaf {
            let bytes = &[byte_of(hop); PACKED_SLOTS];
            each_byte(&self.tables, top(slot), change.changed.clone(), bytes, Bytes::hide);
        }
        for (slot, block) in &change.roots {
            self.tables.region.set_root(top(*slot), *block);
        }
        for ((slot, _), bytes) in change.roots.iter().zip(&change.bytes) {
            each_byte(&self.tables, top(*slot), change.changed.clone(), bytes, Bytes::set);
        }
        if let Some((slot, block, hop)) = change.leaf {
            F::store_leaf(&self.tables, block, &change.changed, hop, self.hops.get(hop).word);
            let bytes = &[byte_of(hop); PACKED_SLOTS];
            each_byte(&self.tables, top(slot), change.changed.clone(), bytes, Bytes::set);
        }
        if let Some((parent, slot, entry)) = change.patch {
            F::patch(&self.tables, parent, slot, entry);
        }
        let (store, now, discarded) = (&self.store, &mut self.limbo.now, &mut self.discarded);
        build::replaced::<F>(store, &change.journal).for_each(|block| {
            *discarded += store.bytes(block) as u64;
            now.push(block, store.bytes(block));
        });
        change.clear();
        self.spare = Some(change);
    }

    /// Numbers a next hop, in wider tables if need be.
    fn acquire(&mut self, word: u32) -> Result<HopId> {
        if let Some(id) = self.hops.hold(word) {
            return Ok(id);
        }
        if Width::for_id(self.hops.next_id(word)) > self.tables.width {
            // Numbers may be waiting for readers that are long gone.
            self.end_era();
            self.end_era();
            let width = Width::for_id(self.hops.next_id(word));
            if width > self.tables.width {
                self.widen(width)?;
            }
        }
        let id = self.hops.acquire(word);
        self.tables.set_palette(id, word);
        Ok(id)
    }

    /// Moves to tables with wider leaves. If they have no room at the limit, that is not tried again before much has changed.
    fn widen(&mut self, width: Width) -> Result<()> {
        if !self.may_rebuild(self.refused_at) {
            return Err(Error::TableFull { limit: limit_of::<F>(&self.config) });
        }
        let moved = self.relocate(width, self.store.capacity());
        if let Err(Error::TableFull { .. }) = moved {
            self.refused_at = Some(self.discarded);
        }
        moved
    }

    fn release(&mut self, hop: HopId) {
        if let Some(gone) = self.hops.release(hop) {
            if let Some(uniform) = gone.uniform.and_then(F::block_of_uniform) {
                self.discard(uniform);
            }
            self.limbo.now.hops.push(hop);
        }
    }

    fn discard(&mut self, block: BlockOf<F>) {
        self.discarded += self.store.bytes(block) as u64;
        self.limbo.now.push(block, self.store.bytes(block));
    }

    /// Ends the era once enough waits for its end.
    fn collect(&mut self) {
        let enough = (self.store.live() / 32).max(1 << 15);
        if self.limbo.now.bytes > enough || self.limbo.now.hops.len() > 64 {
            self.end_era();
        }
    }

    fn end_era(&mut self) {
        self.publisher.tidy();
        let now = core::mem::take(&mut self.limbo.now);
        if self.tables.clock.advance() {
            let free = core::mem::replace(&mut self.limbo.before, now);
            free.blocks.into_iter().for_each(|block| self.store.free(block));
            free.hops.into_iter().for_each(|hop| self.hops.vacate(hop));
        } else {
            let before = &mut self.limbo.before;
            before.bytes += now.bytes;
            before.blocks.extend(now.blocks);
            before.hops.extend(now.hops);
        }
    }

    /// Sends readers to other tables, which show the same routes or those after the change that is under way.
    fn move_to(&mut self, tables: Tables<F>, store: F::Store) {
        let tables = Arc::new(tables);
        self.tables.clock.set_moved();
        self.publisher.set(Arc::clone(&tables));
        self.tables = tables;
        self.store = store;
    }

    /// Builds everything anew, with room for `least` bytes of blocks, and sends readers there.
    fn relocate(&mut self, width: Width, least: usize) -> Result<()> {
        self.relocate_for(false, width, least)
    }

    /// The same, for a removal or not.
    fn relocate_for(&mut self, removal: bool, width: Width, least: usize) -> Result<()> {
        #[cfg(test)]
        {
            self.rebuilds += 1;
        }
        let (rib, hops) = (&mut self.rib, &mut self.hops);
        let (mut tables, store) = generate::<F>(&self.config, rib, hops, width, self.whole, least, removal)?;
        tables.kernel = self.tables.kernel;
        self.move_to(tables, store);
        if self.tables.bytes.is_none() {
            // Not later than was meant: tables that grow are not looked at.
            let behind = accelerates_behind(&self.config, self.rib.len());
            self.accelerates_at = self.accelerates_at.min(behind);
        }
        let limbo = core::mem::take(&mut self.limbo);
        for hop in limbo.now.hops.into_iter().chain(limbo.before.hops) {
            self.hops.vacate(hop);
        }
        Ok(())
    }
}

/// Routes and their next hops, bases painted; the later of two routes for one prefix stands. And whether one lies beyond the least root
/// words.
fn gather<F: Layout>(routes: impl IntoIterator<Item = (Key, u32)>) -> (Rib, Hops<F::Block>, bool) {
    let (mut rib, mut finger) = (Rib::new(F::SHAPE), Finger::new());
    let mut hops = Hops::new();
    // Next hops met lately, by the lowest bits of their words, which are never 0.
    let mut lately = [(0, 0); 256];
    let mut whole = false;
    for (key, word) in routes {
        whole |= F::lies_beyond(key);
        let last = &mut lately[word as usize % 256];
        if last.0 == word {
            hops.get_mut(last.1).refs += 1;
        } else {
            *last = (word, hops.acquire(word));
        }
        let hop = last.1;
        if let Some(old) = rib.insert_near(&mut finger, key, hop)
            && let Some(gone) = hops.release(old)
        {
            lately[gone.word as usize % 256] = (0, 0);
            hops.vacate(old);
        }
        if let Some(range) = rib.root_range(key) {
            for slot in range {
                if rib.base(slot).len <= key.len {
                    rib.set_base(slot, Base { len: key.len, hop });
                }
            }
        }
    }
    if Width::for_id(hops.max_id()) != Width::Byte {
        let numbers = hops.sort_by_use();
        rib.renumber(&numbers);
    }
    (rib, hops, whole)
}

impl<B> Default for Limbo<B> {
    fn default() -> Self {
        Self { now: Garbage::default(), before: Garbage::default() }
    }
}

impl<B> Default for Garbage<B> {
    fn default() -> Self {
        Self { blocks: Vec::new(), bytes: 0, hops: Vec::new() }
    }
}

impl<B> Limbo<B> {
    fn holds_blocks(&self) -> bool {
        self.now.bytes + self.before.bytes > 0
    }
}

impl<B> Garbage<B> {
    fn push(&mut self, block: B, bytes: usize) {
        self.blocks.push(block);
        self.bytes += bytes;
    }
}

/// Next hops that have a byte of the accelerator.
const BYTE_HOPS: usize = 254;
/// The least share of routes, in percent, whose next hops must have a byte for the accelerator to pay.
const ACCELERATED_SHARE: usize = 95;

/// More routes than these, at which to look whether there can be an accelerator.
fn accelerates_behind(config: &Config, routes: usize) -> usize {
    match config.accelerator {
        true if routes >= config.accelerated_from => routes.saturating_mul(2).max(1),
        true => config.accelerated_from,
        false => usize::MAX,
    }
}

/// Of the bytes of a table at its limit, the share that has to be unlinked between two times that all is built anew there.
const REBUILD_SHARE: usize = 8;

/// The bytes that errors name: the limit of the configuration, or that of the family if it is lower.
fn limit_of<F: Layout>(config: &Config) -> usize {
    config.memory_limit.min(F::Store::MOST)
}

/// The bytes of blocks a table may have: what it grows to and not beyond. No region of that limit has room for more.
fn most_bytes<F: Layout>(config: &Config) -> usize {
    limit_of::<F>(config) / F::Store::GRAIN * F::Store::GRAIN
}

/// Tables of at least `least` bytes of blocks that show all routes. On an error nothing has changed.
fn generate<F: Layout>(
    config: &Config,
    rib: &mut Rib,
    hops: &mut Hops<F::Block>,
    width: Width,
    whole: bool,
    least: usize,
    removal: bool,
) -> Result<(Tables<F>, F::Store)> {
    // A route takes about one leaf of IPv4's blocks and 11 to 18 bytes of IPv6's; as much again is for changes.
    let per_route = if F::HAS_BYTES { 1 + 2 * width.leaf_bytes() } else { 36 };
    let most = most_bytes::<F>(config);
    let least = least.max(1 << 20);
    let mut size = (rib.len() * per_route).max(least).min(most.max(least));
    let before = hops.take_blocks();
    loop {
        let result = if size > most {
            Err(Error::TableFull { limit: limit_of::<F>(config) })
        } else {
            let wanted = config.accelerator && F::HAS_BYTES && rib.len() >= config.accelerated_from;
            let accelerator = wanted && hops.share_below(1 + BYTE_HOPS) >= ACCELERATED_SHARE;
            Tables::<F>::new(size, whole, width, accelerator, Kernel::detect())
        };
        let (mut tables, mut store) = match result {
            Ok(made) => made,
            Err(error) => {
                hops.put_blocks(before);
                return Err(error);
            }
        };
        store.keep_reserve(!removal);
        for (id, word) in hops.words() {
            tables.set_palette(id, word);
        }
        let mut journal = Vec::new();
        let mut bytes = tables.bytes.take();
        let mut below = Vec::new();
        let mut blocks = Blocks {
            tables: &tables,
            store: &mut store,
            hops,
            keeps_bytes: bytes.is_some(),
            bytes: [0; PACKED_SLOTS],
            below: &mut below,
        };
        if fill(rib, &mut blocks, &mut journal, bytes.as_mut()).is_some() {
            tables.bytes = bytes;
            return Ok((tables, store));
        }
        build::restore(rib, journal);
        hops.take_blocks();
        size = if size < most { size.saturating_mul(2).min(most) } else { usize::MAX };
    }
}

/// Builds every node and sets every root word. `None` if the region is full.
fn fill<F: Layout>(
    rib: &mut Rib,
    blocks: &mut Blocks<'_, F>,
    journal: &mut Vec<Undo>,
    mut bytes: Option<&mut Bytes>,
) -> Option<()> {
    for slot in 0..rib.root_slots() {
        let base = rib.base(slot).hop;
        let built = match rib.root_node(slot) {
            Some(id) => build_node(rib, blocks, journal, (id, 0), base, true)?,
            None => {
                blocks.bytes = [byte_of(base); PACKED_SLOTS];
                Built::Hop(base)
            }
        };
        let block = blocks.root_block(built)?;
        #[expect(clippy::cast_possible_truncation, reason = "root slots have at most 19 bits")]
        let top = (slot as u32) << (32 - F::ROOT_BITS);
        // Memory that was never written is zero.
        if !block.is_zero() {
            blocks.tables.region.set_root(top, block);
        }
        if let Some(table) = &mut bytes {
            table.fill(top, &blocks.bytes);
        }
    }
    Some(())
}

/// Hides or publishes the bytes of the `changed` ones of the slots from the address with leading bits `top` on.
fn each_byte<F: Layout>(
    tables: &Tables<F>,
    top: u32,
    changed: Range<usize>,
    bytes: &[u8; PACKED_SLOTS],
    act: fn(&Bytes, u32, &[u8]),
) {
    if let Some(table) = &tables.bytes {
        #[expect(clippy::cast_possible_truncation, reason = "there are 32 slots")]
        let start = changed.start as u32;
        act(table, top | (start << 8), &bytes[changed]);
    }
}

/// What the byte table says for a next hop: its number if it fits.
fn byte_of(hop: HopId) -> u8 {
    u8::try_from(hop).unwrap_or(u8::MAX)
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests;
