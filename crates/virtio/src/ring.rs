//! Virtqueues: where they lie, and what the split and the packed layout have in common.

mod descriptor_state;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod fours;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "ring/no_fours.rs"]
pub(crate) mod fours;
mod memory;
mod packed;
mod split;
mod table;
mod word;

pub(crate) use descriptor_state::{DescriptorState, Used};
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
    /// It did not come to a place in which the device reports nothing. Whether there is more, [`Virtqueue::has_more`] says.
    pub(crate) more: bool,
}

/// The driver's side of a virtqueue (Virtio 1.2, section 2.6): what the layouts have of their own, and on top of that the loops over
/// runs of single descriptors.
///
/// # Safety
///
/// Queues rely on this: ids are less than [`Self::size`], and places in a run less than what was asked for at most. So
/// [`Self::state`] is of this ring, and [`Self::reader`] counts no more than it was asked for, nor beyond the ring's end.
pub(crate) unsafe trait Virtqueue: Sized {
    type Writer: Writer;
    type Reader: Reader;

    /// What the driver knows of the ring without asking it.
    fn state(&self) -> &DescriptorState;
    fn state_mut(&mut self) -> &mut DescriptorState;
    /// For descriptors from the next on, of buffers of `len` bytes or more.
    fn writer(&self, writable: bool, len: u32) -> Self::Writer;
    /// So many were written there, and make a run.
    fn written(&mut self, writer: Self::Writer, count: usize);
    /// For used descriptors from the next on, and how many of them to look at: `most` at most.
    fn reader(&mut self, most: usize) -> Result<(Self::Reader, usize), Fault>;
    /// Whether the device may have done with more than was passed over, as far as is known.
    fn may_have_more(&self) -> bool;
    /// Makes a chain available, once published. As many descriptors must be free. `each` hears of the id of every part.
    /// Device-writable parts come last.
    fn post_chain(&mut self, chain: &[Buffer], each: impl FnMut(usize, u16));
    /// Shows the device what was posted, one descriptor at least. Returns whether it wants to be notified of it.
    fn publish(&mut self) -> bool;
    /// Whether there is more to look at than a lone descriptor that the device has done with. A hint; it may say so of none, too.
    fn has_several(&mut self) -> bool;
    /// Whether the device has done with something, as far as can be told without a check.
    fn has_used(&mut self) -> bool;
    /// Asks for one interrupt when the device has done with the next chain. What it had done with before shows in
    /// [`Self::has_used`] afterwards. Interrupts are off again when more is published.
    fn arm(&mut self);
    /// The next chain that the device has done with; `None` when there is none. Whether a single descriptor is in flight,
    /// `known` says.
    fn used(&mut self, known: impl Fn(u16) -> bool) -> Result<Option<Used>, Fault>;

    /// Descriptors.
    #[inline(always)]
    fn size(&self) -> usize {
        self.state().size()
    }

    /// Free descriptors.
    #[inline(always)]
    fn free(&self) -> usize {
        self.state().free()
    }

    /// Descriptors in flight.
    #[inline(always)]
    fn in_flight(&self) -> usize {
        self.state().in_flight()
    }

    /// Whether ids go round in order, as far as is known now: then runs are for [`Self::post`] and [`Self::reclaim`].
    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.state().is_simple()
    }

    /// Buffers posted since the last [`Self::publish`].
    #[inline(always)]
    fn unpublished(&self) -> usize {
        self.state().unpublished().into()
    }

    /// The id behind `id` in a chain just returned by [`Self::used`].
    fn next_in_chain(&self, id: u16) -> u16 {
        self.state().next_in_chain(id)
    }

    /// The id of the next descriptor to be made available, if one is free; `None` also where ids do not go round in order.
    /// [`Self::post_next`] follows.
    #[inline(always)]
    fn next_free(&self) -> Option<usize> {
        let state = self.state();
        (state.is_simple() && state.free() > 0).then_some(state.place(state.avail))
    }

    /// Makes a buffer available, once published, under the id of [`Self::next_free`].
    #[inline(always)]
    fn post_next(&mut self, id: usize, address: u64, len: u32) {
        let mut to = self.writer(false, 0);
        // SAFETY: the ring's next place, of a descriptor that is free.
        unsafe { to.write(0, id, address, len) };
        self.written(to, 1);
    }

    /// Id and length of the next descriptor that the device has done with, a single one; `None` where there is none, or ids do not
    /// go round in order. [`Self::take_next`] follows, if the queue knows the id.
    #[inline(always)]
    fn next_used(&mut self) -> Result<Option<(usize, u32)>, Fault> {
        let (used, count) = self.reader(1)?;
        let state = self.state();
        if count == 0 || !state.is_simple() {
            return Ok(None);
        }
        let oldest = state.place(state.used);
        // SAFETY: one to look at.
        let report = unsafe { used.at::<true>(0) };
        Ok(used.len_of(report, oldest).map(|len| (oldest, len)))
    }

    /// Takes the descriptor of [`Self::next_used`] out of the ring.
    #[inline(always)]
    fn take_next(&mut self) {
        self.state_mut().reclaimed(1);
    }

    /// Makes a run of up to `most` buffers available, once published, as many as there are free descriptors, until `each` has
    /// no more or a ring begins again. `each` is told the place in the run and the id, and says the address, and how much longer than
    /// `len` the buffer is. Returns how many: none where ids are not handed out in order, which is for [`Self::post_any`]. `ahead` may
    /// do as much for the first of up to so many, from an id on; it returns for how many it did.
    #[inline(always)]
    fn post(
        &mut self,
        most: usize,
        writable: bool,
        len: u32,
        ahead: impl FnOnce(&mut Self::Writer, (usize, usize)) -> usize,
        mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>,
    ) -> usize {
        let state = self.state();
        let first = state.place(state.avail);
        let most = if state.is_simple() { most.min(state.free()) } else { 0 };
        let most = most.min(state.size() - first);
        let mut to = self.writer(writable, len);
        let mut done = ahead(&mut to, (first, most));
        while done < most {
            let id = first + done;
            let Some((address, more)) = each(done, id) else { break };
            // SAFETY: the run ends before the ring does, and the id is a place of it.
            unsafe { to.write(done, id, address, more) };
            done += 1;
        }
        self.written(to, done);
        done
    }

    /// [`Self::post`], with whatever ids are free.
    #[inline(never)]
    fn post_any(
        &mut self,
        most: usize,
        writable: bool,
        len: u32,
        mut each: impl FnMut(usize, usize) -> Option<(u64, u32)>,
    ) -> usize {
        let state = self.state();
        let count = most.min(state.free()).min(state.size() - state.place(state.avail));
        let mut to = self.writer(writable, len);
        let mut done = 0;
        while done < count {
            let id = state.nth_free(done).into();
            let Some((address, more)) = each(done, id) else { break };
            // SAFETY: the run ends before the ring does, and the ring has that id.
            unsafe { to.write(done, id, address, more) };
            // SAFETY: as above.
            unsafe { to.name(done, id) };
            done += 1;
        }
        self.written(to, done);
        done
    }

    /// Goes through a run of up to `most` single descriptors that the device has done with, in the order in which they were
    /// posted, and takes them out of the ring. `each` is told the place in the run, id and, if `LEN` is wanted, length; whether it
    /// knows the id is what makes it one in flight. Stops at the first that it refuses, where a ring begins again, and at anything
    /// unusual. A run of none, with more to come, is one for [`Self::reclaim_any`]. `ahead` is as with [`Self::post`].
    #[inline(always)]
    fn reclaim<const LEN: bool>(
        &mut self,
        most: usize,
        ahead: impl FnOnce(&Self::Reader, (usize, usize)) -> usize,
        mut each: impl FnMut(usize, usize, u32) -> bool,
    ) -> Result<Passed, Fault> {
        let (used, count) = self.reader(most)?;
        let state = self.state_mut();
        let first = state.place(state.used);
        let count = if state.is_simple() { count } else { 0 };
        let (mut done, mut more) = (ahead(&used, (first, count)), true);
        while done < count {
            let id = first + done;
            // SAFETY: one to look at.
            let report = unsafe { used.at::<LEN>(done) };
            if !used.len_of(report, id).is_some_and(|len| each(done, id, len)) {
                more = used.fields(report).is_some();
                break;
            }
            done += 1;
        }
        state.reclaimed(done);
        Ok(Passed { count: done, more })
    }

    /// Whether there may be more behind a run.
    #[inline(always)]
    fn has_more(&self, run: Passed) -> bool {
        run.more && self.may_have_more()
    }

    /// [`Self::reclaim`] in whatever order the device reports them. A run of none, with more to come, is one for [`Self::used`].
    #[inline(never)]
    fn reclaim_any(&mut self, most: usize, mut each: impl FnMut(usize, usize, u32) -> bool) -> Result<Passed, Fault> {
        let (used, count) = self.reader(most)?;
        let state = self.state_mut();
        let (mut done, mut more) = (0, true);
        if count > 0 {
            // In the middle of a batch it holds whatever it held; `DescriptorState` does not look at it.
            // SAFETY: one to look at.
            let last = unsafe { used.at::<true>(0) };
            done = state.reclaim_batch(used.fields(last), count, &mut each);
        }
        if done == 0 && !state.is_ordered() {
            let count = count.min(state.most_reclaimed());
            while done < count {
                // SAFETY: one to look at.
                let report = unsafe { used.at::<true>(done) };
                let Some((id, len)) = used.fields(report) else {
                    more = false;
                    break;
                };
                let Some(id) = state.in_range(id) else { break };
                if !each(done, id.into(), len) {
                    break;
                }
                state.free_nth(done, id);
                done += 1;
            }
            state.reclaimed_out_of_order(done);
        }
        Ok(Passed { count: done, more })
    }
}

/// Where descriptors are made available, from the next place of a ring on.
pub(crate) trait Writer {
    /// Makes descriptor `id` available at the `n`th place, for a buffer that is so much longer than the shortest.
    ///
    /// # Safety
    ///
    /// The ring, which is still there, has that id, and that place before its end.
    unsafe fn write(&mut self, n: usize, id: usize, address: u64, more: u32);

    /// Names descriptor `id` at the `n`th place, where ids do not go round in order and a ring keeps them apart.
    ///
    /// # Safety
    ///
    /// As [`Self::write`].
    #[inline(always)]
    unsafe fn name(&mut self, _n: usize, _id: usize) {}

    /// [`Self::write`] for four places and ids.
    ///
    /// # Safety
    ///
    /// As [`Self::write`], for each of them, and the processor has AVX2.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn write_four(&mut self, n: usize, id: usize, addresses: fours::Four, more: fours::Four);
}

/// Where the device says what it has done with, from the next place of a ring on.
pub(crate) trait Reader {
    /// What it says at a place.
    type Report: Copy;

    /// What it says at the `n`th place, maybe without the length if no `LEN` is wanted.
    ///
    /// # Safety
    ///
    /// The ring is still there, and the place one that [`Virtqueue::reader`] counted.
    unsafe fn at<const LEN: bool>(&self, n: usize) -> Self::Report;

    /// The length in a report of descriptor `id`; `None` if it is of another, or none.
    fn len_of(&self, report: Self::Report, id: usize) -> Option<u32>;

    /// The lengths in the reports at four places, if they are of four descriptors from `id` on.
    ///
    /// # Safety
    ///
    /// As [`Self::at`], for each of them, and the processor has AVX2.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn lens_of_four(&self, n: usize, id: usize) -> Option<fours::Four>;

    /// Id and length, if it is done with anything by this report.
    fn fields(&self, report: Self::Report) -> Option<(u32, u32)>;
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

#[cfg(test)]
mod tests;
