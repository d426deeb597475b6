//! What the driver knows of a ring without asking the ring: which ids are free, which chains are in flight.

use super::{Fault, Table, number};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The private record of a virtqueue's descriptors. The device cannot reach it, so nothing it writes can make an id
/// complete twice, or complete one that it was not shown.
///
/// A chain of n descriptors takes n ids, of which the first names it. Most chains are single descriptors, which come and go
/// in runs: the ring asks for each of a run, then tells how many there were.
///
/// # Invariants
///
/// Every id is free, or in exactly one chain in flight. `free[head..tail]` (free-running, modulo the size) are the free
/// ones. `posted[id]` counts the chains that were posted before the single descriptor `id` in flight, and is `NOT_ALONE`
/// for all others; `chains[id]` is the length of the longer chain in flight that `id` names, and 0 for all others.
#[derive(Debug)]
pub(super) struct Ledger {
    posted: Table<u64>,
    chains: Table<u16>,
    /// The next descriptor of a chain.
    next: Table<u16>,
    free: Table<u16>,
    head: usize,
    tail: usize,
    /// Chains that were ever posted, and how many of them the device has been shown.
    posts: u64,
    published: u64,
    order: Option<Order>,
}

/// Later than every chain.
const NOT_ALONE: u64 = u64::MAX;

/// What a device that completes in order has to name next (`VIRTIO_F_IN_ORDER`).
#[derive(Debug, Default)]
struct Order {
    expected: u16,
    /// The last chain of a batch of which only the last was reported, and what was reported of it.
    batch: Option<(u16, u32)>,
}

/// A chain that the device has done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// The id that names it.
    pub(crate) id: u16,
    /// How many descriptors it had.
    pub(crate) count: u16,
    /// Bytes that the device says it wrote; `u32::MAX` for a buffer that it says it filled.
    pub(crate) len: u32,
}

impl Ledger {
    /// For a ring of `size` descriptors, a power of two.
    pub(super) fn new(size: u16, in_order: bool) -> Self {
        let size = usize::from(size);
        Self {
            posted: Table::new(size, |_| NOT_ALONE),
            chains: Table::new(size, |_| 0),
            next: Table::new(size, |_| 0),
            free: Table::new(size, number),
            head: 0,
            tail: size,
            posts: 0,
            published: 0,
            order: in_order.then(Order::default),
        }
    }

    /// Free ids.
    #[inline(always)]
    pub(super) fn free(&self) -> usize {
        self.tail - self.head
    }

    /// Ids in flight.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> usize {
        self.chains.len() - self.free()
    }

    /// For a run of single descriptors; [`Self::took`], [`Self::exchanged`] or [`Self::reclaimed`] follows.
    #[inline(always)]
    pub(super) fn run(&mut self) -> Run<'_> {
        let mask = self.free.mask();
        let free = self.free.first();
        // SAFETY: masked, so within the table.
        let head = unsafe { free.add(self.head & mask) };
        // SAFETY: as above.
        let tail = unsafe { free.add(self.tail & mask) };
        Run {
            posted: self.posted.first(),
            mask,
            head,
            tail,
            posts: self.posts,
            published: self.published,
            expected: self.order.as_ref().map(|order| order.expected.into()),
            _ledger: PhantomData,
        }
    }

    /// The longest run that can be posted: free ids, up to the end of their table.
    #[inline(always)]
    pub(super) fn most_posted(&self) -> usize {
        self.free().min(self.free.len() - (self.head & self.free.mask()))
    }

    /// The longest run that can be reclaimed: to the end of the table of free ids.
    #[inline(always)]
    pub(super) fn most_reclaimed(&self) -> usize {
        self.free.len() - (self.tail & self.free.mask())
    }

    /// A run of `count` posted descriptors took the first free ids.
    #[inline(always)]
    pub(super) fn took(&mut self, count: usize) {
        self.head += count;
        self.posts += count as u64;
    }

    /// The `n`th of the free ids, of which there are more.
    fn nth_free(&self, n: usize) -> u16 {
        *self.free.at(self.head + n)
    }

    /// Everything posted has been shown to the device.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.published = self.posts;
    }

    /// A run of `count` single descriptors has left the ring.
    #[inline(always)]
    pub(super) fn reclaimed(&mut self, count: usize) {
        self.tail += count;
        self.expect_later(count);
    }

    /// A run of `count` single descriptors was used, and posted again.
    #[inline(always)]
    pub(super) fn exchanged(&mut self, count: usize) {
        self.posts += count as u64;
        self.expect_later(count);
    }

    #[inline(always)]
    fn expect_later(&mut self, count: usize) {
        let size = self.free.len();
        if let Some(order) = &mut self.order {
            order.expected = number((usize::from(order.expected) + count) & (size - 1));
        }
    }

    /// Takes the ids of a chain of `count` descriptors, in order. As many must be free.
    pub(super) fn take_chain(&mut self, count: usize, mut each: impl FnMut(usize, Id, Option<u16>)) -> u16 {
        let first = self.nth_free(0);
        for place in 0..count {
            let id = self.nth_free(place);
            let next = (place + 1 < count).then(|| self.nth_free(place + 1));
            *self.next.at_mut(id.into()) = next.unwrap_or(0);
            each(place, Id(id), next);
        }
        if count == 1 {
            *self.posted.at_mut(first.into()) = self.posts;
        } else {
            *self.chains.at_mut(first.into()) = number(count);
        }
        self.head += count;
        self.posts += 1;
        first
    }

    /// The id behind `id` in a chain that was just completed.
    pub(super) fn after(&self, id: u16) -> u16 {
        *self.next.at(id.into())
    }

    /// Completes the chain that the device names.
    pub(super) fn complete(&mut self, id: u32, len: u32) -> Result<Used, Fault> {
        let (id, len) = match &self.order {
            None => (id, len),
            Some(order) if order.batch.is_none() && id == u32::from(order.expected) => (id, len),
            Some(_) => self.batched(id, len)?,
        };
        if id as usize >= self.chains.len() {
            return Err(Fault::IdOutOfRange);
        }
        let id = number(id as usize);
        // Cleared before anything is done with it: it completes once.
        let alone = *self.posted.at(id.into()) < self.published;
        let count = if alone { 1 } else { std::mem::take(self.chains.at_mut(id.into())) };
        *self.posted.at_mut(id.into()) = NOT_ALONE;
        if count == 0 {
            return Err(Fault::IdNotInFlight);
        }
        let mut part = id;
        for _ in 0..count {
            *self.free.at_mut(self.tail) = part;
            self.tail += 1;
            part = *self.next.at(part.into());
        }
        if let Some(order) = &mut self.order {
            order.expected = id;
        }
        self.expect_later(count.into());
        Ok(Used { id, count, len })
    }

    /// The device named a later chain than the oldest: all up to it are done, the earlier ones completely filled
    /// (Virtio 1.2, section 2.7.9). Names the oldest, until it is the one that was named.
    #[cold]
    fn batched(&mut self, id: u32, len: u32) -> Result<(u32, u32), Fault> {
        let Some(order) = &mut self.order else { return Ok((id, len)) };
        let (last, last_len) = match order.batch {
            Some(batch) => batch,
            None if id as usize >= self.chains.len() => return Err(Fault::IdOutOfRange),
            None if *self.chains.at(id as usize) == 0 && *self.posted.at(id as usize) >= self.published => {
                return Err(Fault::IdNotInFlight);
            }
            None => (number(id as usize), len),
        };
        if order.expected == last {
            order.batch = None;
            return Ok((last.into(), last_len));
        }
        order.batch = Some((last, last_len));
        Ok((order.expected.into(), u32::MAX))
    }

    /// Whether chains are waiting of a batch whose end the device has reported already.
    #[inline(always)]
    pub(super) fn mid_batch(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.batch.is_some())
    }
}

/// The part of a [`Ledger`] that a run of single descriptors needs, in one place for its loop.
///
/// # Invariants
///
/// `posted` points to `mask + 1` counts; `head` and `tail` point into the table of free ids. They are the ledger's.
pub(super) struct Run<'l> {
    posted: NonNull<u64>,
    mask: usize,
    head: NonNull<u16>,
    tail: NonNull<u16>,
    posts: u64,
    published: u64,
    expected: Option<usize>,
    _ledger: PhantomData<&'l mut Ledger>,
}

impl Run<'_> {
    /// The id that the `n`th of the run takes when posted.
    ///
    /// # Safety
    ///
    /// `n` is less than [`Ledger::most_posted`] was.
    #[inline(always)]
    pub(super) unsafe fn nth_free(&self, n: usize) -> Id {
        // SAFETY: before the table's end, by the caller's word.
        let place = unsafe { self.head.add(n) };
        // SAFETY: as above; all entries are initialised, and ids of the ring (invariant of the ledger).
        Id(unsafe { place.read() })
    }

    /// The `n`th of the run is posted under this id.
    #[inline(always)]
    pub(super) fn post(&mut self, id: Id, n: usize) {
        // SAFETY: an id of this ledger is below the size.
        let place = unsafe { self.posted.add(id.0.into()) };
        // SAFETY: as above.
        unsafe { place.write(self.posts + n as u64) }
    }

    /// The id, if it is one that the device may name `n`th, of a single descriptor.
    #[inline(always)]
    pub(super) fn single(&self, id: u32, n: usize) -> Option<Id> {
        let index = id as usize;
        if index > self.mask || self.expected.is_some_and(|expected| index != (expected + n) & self.mask) {
            return None;
        }
        // SAFETY: within the table, by the comparison.
        let place = unsafe { self.posted.add(index) };
        // SAFETY: as above.
        let posted = unsafe { place.read() };
        (posted < self.published).then_some(Id(number(index)))
    }

    /// The `n`th of the run leaves the ring, and had this id.
    ///
    /// # Safety
    ///
    /// `n` is less than [`Ledger::most_reclaimed`] was.
    #[inline(always)]
    pub(super) unsafe fn reclaim(&mut self, id: Id, n: usize) {
        // SAFETY: an id of this ledger is below the size.
        let place = unsafe { self.posted.add(id.0.into()) };
        // SAFETY: as above.
        unsafe { place.write(NOT_ALONE) };
        // SAFETY: before the table's end, by the caller's word.
        let place = unsafe { self.tail.add(n) };
        // SAFETY: as above.
        unsafe { place.write(id.0) };
    }
}

/// The id of a descriptor of the ring whose ledger named it, so below its size.
#[derive(Clone, Copy)]
pub(super) struct Id(u16);

impl Id {
    #[inline(always)]
    pub(super) fn number(self) -> u16 {
        self.0
    }
}
