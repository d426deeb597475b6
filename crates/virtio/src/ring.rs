//! Virtqueues: where they lie, and what the split and the packed layout have in common.

mod descriptor_state;
mod memory;
mod packed;
mod split;
mod table;
mod word;

pub(crate) use descriptor_state::Used;
pub(crate) use memory::{Area, Layout, RingMemory};
pub(crate) use packed::Packed;
pub(crate) use split::Split;
pub(crate) use table::Table;
pub(crate) use word::Word;

use std::fmt;

/// How a device has violated the rules of a ring. The queue is then not used until the device is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Fault {
    /// The used index is beyond what was made available.
    UsedIndex = 1,
    /// A used id is beyond the ring.
    IdOutOfRange = 2,
    /// A used id is not in flight, or has completed before.
    IdNotInFlight = 3,
    /// The control queue did not answer.
    ControlQueue = 4,
}

impl Fault {
    /// The fault with this number.
    pub(crate) fn of(number: u64) -> Option<Self> {
        [Self::UsedIndex, Self::IdOutOfRange, Self::IdNotInFlight, Self::ControlQueue]
            .into_iter()
            .find(|fault| *fault as u64 == number)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UsedIndex => "the device's used index ran ahead of what was made available",
            Self::IdOutOfRange => "the device used an id beyond the ring",
            Self::IdNotInFlight => "the device used an id that was not in flight",
            Self::ControlQueue => "the device does not answer on the control queue",
        })
    }
}

/// One part of a chain: where it lies for the device, and whether the device may write to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) writable: bool,
}

/// How far a run came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) count: usize,
    /// It was not the end of what the device has done with: there may be more.
    pub(crate) more: bool,
}

/// The driver's side of a virtqueue (Virtio 1.2, section 2.6).
///
/// # Safety
///
/// Queues rely on this: ids are less than [`Self::size`], and places in a run less than what was asked for at most.
pub(crate) unsafe trait Virtqueue {
    /// Descriptors.
    fn size(&self) -> usize;
    /// Free descriptors.
    fn free(&self) -> usize;
    /// Descriptors in flight.
    fn in_flight(&self) -> usize;
    /// Whether ids go round in order, as far as is known now: then runs are for [`Self::post`] and [`Self::reclaim`].
    fn is_simple(&self) -> bool;
    /// The id of the next descriptor to be made available, if one is free; `None` also where ids do not go round in order.
    /// [`Self::post_next`] follows.
    fn next_free(&self) -> Option<usize>;
    /// Makes a buffer available, once published, under the id of [`Self::next_free`].
    fn post_next(&mut self, address: u64, len: u32, writable: bool);
    /// Id and length of the next descriptor that the device has done with, a single one; `None` where there is none, or ids do not
    /// go round in order. [`Self::take_next`] follows, if the queue knows the id.
    fn next_used(&mut self) -> Result<Option<(usize, u32)>, Fault>;
    /// Takes the descriptor of [`Self::next_used`] out of the ring.
    fn take_next(&mut self);
    /// Whether there is more to look at than a lone descriptor that the device has done with, which is for [`Self::next_used`]. A
    /// hint; it may say so of none, too.
    fn has_several(&mut self) -> bool;
    /// Makes a run of up to `most` buffers available, once published, as many as there are free descriptors, until `each` has
    /// no more or a ring begins again. `each` is told the place in the run and the id, and says address and length. Returns how
    /// many: none where ids are not handed out in order, which is for [`Self::post_any`].
    fn post(&mut self, most: usize, writable: bool, each: impl FnMut(usize, usize) -> Option<(u64, u32)>) -> usize;
    /// [`Self::post`], with whatever ids are free.
    fn post_any(&mut self, most: usize, writable: bool, each: impl FnMut(usize, usize) -> Option<(u64, u32)>) -> usize;
    /// Makes a chain available, once published. As many descriptors must be free. `each` hears of the id of every part.
    /// Device-writable parts come last.
    fn post_chain(&mut self, chain: &[Buffer], each: impl FnMut(usize, u16));
    /// Shows the device what was posted. Returns whether it wants to be notified of it.
    fn publish(&mut self) -> bool;
    /// Buffers posted since the last [`Self::publish`].
    fn unpublished(&self) -> usize;
    /// Whether the device has done with something, as far as can be told without a check.
    fn has_used(&mut self) -> bool;
    /// Asks for one interrupt when the device has done with the next chain. What it had done with before shows in
    /// [`Self::has_used`] afterwards. Interrupts are off again when more is published.
    fn arm(&mut self);
    /// Goes through a run of up to `most` single descriptors that the device has done with, in the order in which they were
    /// posted, and takes them out of the ring. `each` is told the place in the run, id and length, and whether it knows the id is
    /// what makes it one in flight. Stops at the first that it refuses, where a ring begins again, and at anything unusual. A
    /// run of none, with more to come, is one for [`Self::reclaim_any`].
    fn reclaim(&mut self, most: usize, each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault>;
    /// [`Self::reclaim`] in whatever order the device reports them. A run of none, with more to come, is one for [`Self::used`].
    fn reclaim_any(&mut self, most: usize, each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault>;
    /// The next chain that the device has done with; `None` when there is none. Whether a single descriptor is in flight,
    /// `known` says.
    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault>;
    /// The id behind `id` in a chain just returned by [`Self::used`].
    fn next_in_chain(&self, id: u16) -> u16;
}

/// A virtqueue of the layout that was negotiated.
#[derive(Debug)]
pub(crate) enum Ring {
    Split(Split),
    Packed(Packed),
}

/// Runs the same expression on whichever layout it is.
macro_rules! each_layout {
    ($ring:expr, $inner:ident => $result:expr) => {
        match $ring {
            $crate::ring::Ring::Split($inner) => $result,
            $crate::ring::Ring::Packed($inner) => $result,
        }
    };
}
pub(crate) use each_layout;

/// Whether moving an index from `old` to `new` passes `event` (Virtio 1.2, section 2.7.7.1).
#[inline(always)]
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// A number of descriptors of one ring.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rings have 2^15 descriptors at most")]
fn number(of: usize) -> u16 {
    debug_assert!(of <= 1 << 15, "more than any ring has");
    of as u16
}
