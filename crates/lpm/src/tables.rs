//! What a writer and its readers share, and how each family lays it out.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::Result;
use crate::build::{Blocks, Slots};
use crate::clock::Clock;
use crate::lookup::{Kernel, Lookup};
use crate::mem::{Bytes, Region, Roots, Store};
use crate::prefix::Key;
use crate::rib::{Built, HopId, Shape};

/// The types of an address family.
pub trait Addresses: Sized + Send + Sync + fmt::Debug + 'static {
    /// The address as an integer, most significant bit first: `u32` or `u128`.
    type Bits: Copy + fmt::Debug;
    /// The address type of the standard library.
    type Addr: Copy + Into<Self::Bits> + fmt::Display + core::str::FromStr;
    /// The prefix type.
    type Prefix: Copy + fmt::Display + fmt::Debug + core::str::FromStr<Err = crate::Error> + Ord;
}

/// An address family: [`V4`](crate::V4) or [`V6`](crate::V6). Sealed.
#[expect(private_bounds, reason = "how tables lie in memory is nobody else's business")]
pub trait Family: Addresses + Layout {}

/// How the tables of a family lie in memory.
pub(crate) trait Layout: Lookup {
    const SHAPE: &'static Shape;
    /// Whether a byte per top-level slot may stand before the tables.
    const HAS_BYTES: bool;
    /// Where blocks come from.
    type Store: Store;
    /// What an entry of a block says: where another lies, or which leaves there are.
    type Entry: Copy + fmt::Debug + Send + Sync;

    fn key(prefix: Self::Prefix) -> Key;
    fn prefix(key: Key) -> Self::Prefix;
    /// Whether a route tells addresses apart for which tables that are not whole have one root word.
    fn lies_beyond(key: Key) -> bool;
    /// Builds the block of a top-level node from its slots.
    fn build_top(blocks: &mut Blocks<'_, Self>, slots: Slots<'_>) -> Option<Built>;
    /// Builds the block of a node of another level.
    fn build_inner(blocks: &mut Blocks<'_, Self>, level: usize, slots: Slots<'_>) -> Option<Built>;
    /// Builds the root block all of whose slots have one next hop.
    fn build_uniform(blocks: &mut Blocks<'_, Self>, hop: HopId) -> Option<Self::Block>;
    /// The root block of a top-level node that has one of its own.
    fn root_block(built: Built) -> Option<Self::Block>;
    /// What an entry says for a built slot.
    fn entry(blocks: &Blocks<'_, Self>, built: Built) -> Option<Self::Entry>;
    /// The block a built node has for itself. Only good for giving it back.
    fn block_of(store: &Self::Store, built: Built) -> Option<BlockOf<Self>>;
    /// The block that `build_uniform` made, if it made one.
    fn block_of_uniform(root: Self::Block) -> Option<BlockOf<Self>>;
    /// Whether `patch` can replace the entry of `slot`, of a node's block, by one for `new` in place.
    fn can_patch(tables: &Tables<Self>, parent: Built, slot: u8, new: Built) -> bool;
    fn patch(tables: &Tables<Self>, parent: Built, slot: u8, new: Self::Entry);
    /// Whether `store_leaf` can give these slots, which have one next hop, another in place.
    fn can_store_leaf(tables: &Tables<Self>, top: Built, slots: &Range<usize>) -> bool;
    /// `word` is that of `hop`.
    fn store_leaf(tables: &Tables<Self>, top: Built, slots: &Range<usize>, hop: HopId, word: u32);
}

/// What is given back to the store of a family.
pub(crate) type BlockOf<F> = <<F as Layout>::Store as Store>::Block;

/// How wide leaves are. Grows, never shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    /// An index into 256 palette entries.
    Byte,
    /// An index into 65,536 palette entries.
    Short,
    /// The next hop itself.
    Word,
}

impl Width {
    /// The narrowest width for next hops numbered up to `id`.
    pub(crate) fn for_id(id: HopId) -> Self {
        match id {
            0..=0xfe => Self::Byte,
            0xff..=0xfffe => Self::Short,
            _ => Self::Word,
        }
    }

    /// [`Leaf::ESCAPE`](crate::mem::Leaf::ESCAPE).
    pub(crate) fn ones(self) -> u32 {
        match self {
            Self::Byte => u8::MAX.into(),
            Self::Short => u16::MAX.into(),
            Self::Word => u32::MAX,
        }
    }

    /// Bytes of a leaf.
    pub(crate) fn leaf_bytes(self) -> usize {
        1 << self.log()
    }

    /// The logarithm of the bytes of a leaf.
    #[inline]
    pub(crate) fn log(self) -> u32 {
        match self {
            Self::Byte => 0,
            Self::Short => 1,
            Self::Word => 2,
        }
    }
}

/// What a palette says for the escape index: not a next hop, look deeper.
pub(crate) const ESCAPE_WORD: u32 = u32::MAX;

/// One generation of tables. Its writer changes it in place until it must move to a larger one.
pub(crate) struct Tables<F: Roots> {
    pub(crate) clock: Clock,
    pub(crate) region: Region<F>,
    pub(crate) width: Width,
    /// Next hop words by number, the first 255.
    pub(crate) palette: Box<[AtomicU32; 256]>,
    /// Whether each of those words is its own number, and leaves have no other numbers; once false it stays so. Asked after numbers were read and
    /// [`arrive`](crate::mem::arrive), it holds for these.
    pub(crate) direct: AtomicBool,
    /// Next hop words by number, the first 65,535; with leaves of that width.
    pub(crate) wide_palette: Option<Box<[AtomicU32; 65536]>>,
    /// The number of the next hop of each /24, or 255: look in the region.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) kernel: Kernel,
}

impl<F: Roots> fmt::Debug for Tables<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("width", &self.width).field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl<F: Roots> Tables<F> {
    /// The next hop word of a number.
    #[inline(always)]
    pub(crate) fn word(&self, number: u32) -> u32 {
        let word = match &self.wide_palette {
            Some(words) => &words[number as usize & 0xffff],
            None => &self.palette[number as usize & 0xff],
        };
        word.load(Ordering::Relaxed)
    }
}

impl<F: Layout> Tables<F> {
    /// Empty tables with room for `bytes` of blocks, and with `whole` for routes that [`Layout::lies_beyond`]. Root words are
    /// not set yet.
    pub(crate) fn new(
        bytes: usize,
        whole: bool,
        width: Width,
        accelerate: bool,
        kernel: Kernel,
    ) -> Result<(Self, F::Store)> {
        let (region, store) = F::Store::with_region(bytes, whole, width.leaf_bytes())?;
        let palette = palette();
        palette[255].store(ESCAPE_WORD, Ordering::Relaxed);
        let wide_palette = (width == Width::Short).then(palette_of);
        if let Some(wide) = &wide_palette {
            wide[65535].store(ESCAPE_WORD, Ordering::Relaxed);
        }
        let bytes = if accelerate { Some(Bytes::new()?) } else { None };
        let tables = Self {
            clock: Clock::new(),
            region,
            width,
            palette,
            direct: AtomicBool::new(F::HAS_BYTES || width != Width::Short),
            wide_palette,
            bytes,
            kernel,
        };
        Ok((tables, store))
    }

    /// Sets the word of a next hop number, before any block or byte names the number.
    pub(crate) fn set_palette(&self, id: HopId, word: u32) {
        if id < 255 {
            if word != id && word != 0 {
                self.direct.store(false, Ordering::Release);
            }
            self.palette[id as usize].store(word, Ordering::Release);
        }
        if let Some(wide) = &self.wide_palette
            && id < 65535
        {
            wide[id as usize].store(word, Ordering::Release);
        }
    }

    /// Bytes that lookups may touch, free blocks not counted.
    pub(crate) fn bytes_read(&self, store: &F::Store) -> usize {
        let wide = self.wide_palette.as_ref().map_or(0, |wide| size_of_val(&**wide));
        self.region.root_bytes() + store.live() + size_of_val(&*self.palette) + wide + self.bytes_of_bytes()
    }

    /// Bytes allocated.
    pub(crate) fn bytes_held(&self) -> usize {
        let wide = self.wide_palette.as_ref().map_or(0, |wide| size_of_val(&**wide));
        self.region.bytes() + size_of_val(&*self.palette) + wide + self.bytes_of_bytes()
    }

    fn bytes_of_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, Bytes::bytes)
    }
}

fn palette() -> Box<[AtomicU32; 256]> {
    palette_of()
}

/// A palette of zeroes, made on the heap.
fn palette_of<const N: usize>() -> Box<[AtomicU32; N]> {
    let words: Box<[AtomicU32]> = (0..N).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().into();
    match words.try_into() {
        Ok(palette) => palette,
        Err(_) => unreachable!("N words were made"),
    }
}
