//! What the driver knows of a ring without asking the ring: which ids are free, which chains are in flight.

use super::{Fault, Table, number};

/// The private record of a virtqueue's descriptors. The device cannot reach it, so nothing it writes can make an id
/// complete twice, or complete one that was never made available.
///
/// A chain of n descriptors takes n ids, of which the first names it. Ids are handed out in the order in which they came
/// back, so as long as the device completes in order they go round and round. Most chains are single descriptors, which come
/// and go in runs. Which of those are in flight, the queue knows that has a buffer under the id.
///
/// # Invariants
///
/// Every id is free, or in exactly one chain in flight. `free[head..tail]` (free-running, modulo the size) are the free
/// ones. While `sequential`, `free[n]` is n, and the oldest id in flight is `tail` (modulo the size). Of a longer chain in
/// flight, `chains[id]` is the length for the id that names it, and `PART` for the others; it is 0 for all other ids. `long`
/// is the number of such chains. `simple` is what [`Self::check_simple`] makes of the others.
#[derive(Debug)]
pub(crate) struct DescriptorState {
    /// Entries of the ring filled so far, free-running: where the next goes.
    pub(super) avail: u16,
    /// Those of them that the device was shown.
    pub(super) published: u16,
    /// Entries seen used so far, likewise.
    pub(super) used: u16,
    /// The size, less one.
    mask: u16,
    chains: Table<u16>,
    /// The next descriptor of a chain.
    next: Table<u16>,
    free: Table<u16>,
    head: usize,
    tail: usize,
    long: usize,
    /// All chains so far were completed in the order in which they were posted.
    sequential: bool,
    order: Option<Order>,
    skewed: bool,
    simple: bool,
}

const PART: u16 = u16::MAX;

/// For a device that has to complete in order (`VIRTIO_F_IN_ORDER`).
#[derive(Debug, Default)]
struct Order {
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

impl DescriptorState {
    /// For a ring of `size` descriptors, a power of two.
    pub(super) fn new(size: u16, in_order: bool) -> Self {
        let (mask, size) = (size - 1, usize::from(size));
        Self {
            avail: 0,
            published: 0,
            used: 0,
            mask,
            chains: Table::new(size, |_| 0),
            next: Table::new(size, |_| 0),
            free: Table::new(size, number),
            head: 0,
            tail: size,
            long: 0,
            sequential: true,
            order: in_order.then(Order::default),
            skewed: false,
            simple: true,
        }
    }

    /// Descriptors of the ring.
    #[inline(always)]
    pub(super) fn size(&self) -> usize {
        usize::from(self.mask) + 1
    }

    /// The place of a free-running position, and the id that a descriptor there has while ids go round in order.
    #[inline(always)]
    pub(super) fn place(&self, position: u16) -> usize {
        usize::from(position & self.mask)
    }

    /// Entries filled since the device was shown some.
    #[inline(always)]
    pub(super) fn unpublished(&self) -> u16 {
        self.avail.wrapping_sub(self.published)
    }

    /// Free ids.
    #[inline(always)]
    pub(super) fn free(&self) -> usize {
        self.tail - self.head
    }

    /// Ids in flight.
    #[inline(always)]
    pub(super) fn in_flight(&self) -> usize {
        self.size() - self.free()
    }

    /// Whether the device has always completed in order, all in flight are single descriptors, and none of them is in a batch of
    /// which only the last was reported. Then an id is a place in the ring: free ids begin where the next descriptor is made
    /// available, and those in flight where the next is reported used.
    #[inline(always)]
    pub(super) fn is_simple(&self) -> bool {
        self.simple
    }

    fn check_simple(&mut self) {
        self.simple = self.sequential && !self.skewed && self.long == 0 && !self.is_amid_batch();
    }

    /// The ring was given fewer entries than ids: ids are no places from here on.
    pub(super) fn skew(&mut self) {
        self.skewed = true;
        self.check_simple();
    }

    /// Whether the device has to complete in order.
    pub(super) fn is_ordered(&self) -> bool {
        self.order.is_some()
    }

    /// The id that a device names next that completes in order, while sequential.
    #[inline(always)]
    pub(super) fn oldest(&self) -> u16 {
        number(self.tail & self.free.mask())
    }

    /// The id that the `n`th to be posted takes, of as many as are free; [`Self::posted`] follows.
    pub(super) fn nth_free(&self, n: usize) -> u16 {
        *self.free.at(self.head + n)
    }

    /// The longest run that can be reclaimed out of order: to the end of the table of free ids. None while the device may name a
    /// longer chain, or is in the middle of a batch.
    pub(super) fn most_reclaimed(&self) -> usize {
        if self.long > 0 || self.is_amid_batch() { 0 } else { self.free.len() - (self.tail & self.free.mask()) }
    }

    /// The `n`th of a run of up to [`Self::most_reclaimed`] leaves the ring, and had this id; [`Self::reclaimed_out_of_order`]
    /// follows.
    pub(super) fn free_nth(&mut self, n: usize, id: u16) {
        *self.free.at_mut(self.tail + n) = id;
    }

    /// The id, if the ring has it.
    pub(super) fn in_range(&self, id: u32) -> Option<u16> {
        let index = id as usize;
        (index <= self.free.mask()).then(|| number(index))
    }

    /// A run of `count` posted descriptors took the first free ids, and an entry each.
    #[inline(always)]
    pub(super) fn posted(&mut self, count: usize) {
        self.head += count;
        self.avail = self.avail.wrapping_add(number(count));
    }

    /// A run of `count` single descriptors has left the ring, in whatever order.
    pub(super) fn reclaimed_out_of_order(&mut self, count: usize) {
        self.sequential &= count == 0;
        self.reclaimed(count);
        self.check_simple();
    }

    /// A run of `count` single descriptors has left the ring; while sequential, the oldest.
    #[inline(always)]
    pub(super) fn reclaimed(&mut self, count: usize) {
        self.tail += count;
        self.used = self.used.wrapping_add(number(count));
    }

    /// Takes a run of up to `most` single descriptors, the oldest, out of the ring, of which the device has `named` only the
    /// last (Virtio 1.2, section 2.7.9). `each` is told what it would be told of a run; of all but the last the length is
    /// `u32::MAX`. Returns how many; none if the device does not have to complete in order, or means something else.
    pub(super) fn reclaim_batch(
        &mut self,
        named: Option<(u32, u32)>,
        most: usize,
        mut each: impl FnMut(usize, usize, u32) -> bool,
    ) -> usize {
        let (mask, in_flight, oldest) = (self.free.mask(), self.in_flight(), self.oldest());
        let Some(order) = &mut self.order else { return 0 };
        let named = named.filter(|(id, _)| *id as usize <= mask).map(|(id, len)| (number(id as usize), len));
        let Some((last, last_len)) = order.batch.or(named) else { return 0 };
        let ahead = usize::from(last.wrapping_sub(oldest)) & mask;
        if self.long > 0 || ahead >= in_flight {
            return 0;
        }
        let mut done = 0;
        while done <= ahead && done < most {
            let id = number((usize::from(oldest) + done) & mask);
            if !each(done, id.into(), if done == ahead { last_len } else { u32::MAX }) {
                break;
            }
            done += 1;
        }
        if done > 0 {
            order.batch = (done <= ahead).then_some((last, last_len));
        }
        self.reclaimed(done);
        self.check_simple();
        done
    }

    /// Takes the ids of a chain of `count` descriptors, in order. As many must be free.
    pub(super) fn take_chain(&mut self, count: usize, mut each: impl FnMut(usize, u16, Option<u16>)) -> u16 {
        let nth = |n: usize| *self.free.at(self.head + n);
        let first = nth(0);
        for place in 0..count {
            let id = nth(place);
            let next = (place + 1 < count).then(|| nth(place + 1));
            *self.next.at_mut(id.into()) = next.unwrap_or(0);
            if count > 1 {
                *self.chains.at_mut(id.into()) = PART;
            }
            each(place, id, next);
        }
        if count > 1 {
            *self.chains.at_mut(first.into()) = number(count);
            self.long += 1;
            self.check_simple();
        }
        self.head += count;
        first
    }

    /// The id behind `id` in a chain that was just completed.
    pub(super) fn next_in_chain(&self, id: u16) -> u16 {
        *self.next.at(id.into())
    }

    /// Completes the chain that the device names. Whether a single descriptor is in flight, `known` says.
    pub(super) fn complete(&mut self, id: u32, len: u32, known: impl Fn(u16) -> bool) -> Result<Used, Fault> {
        let (id, len) = match &self.order {
            None => (id, len),
            Some(order) if order.batch.is_none() && id == u32::from(self.oldest()) => (id, len),
            Some(_) => self.batched(id, len, &known)?,
        };
        let (id, count) = self.chain_named(id, known)?;
        self.sequential &= id == self.oldest();
        let mut part = id;
        for _ in 0..count {
            // Cleared before anything is done with it: it completes once.
            *self.chains.at_mut(part.into()) = 0;
            *self.free.at_mut(self.tail) = part;
            self.tail += 1;
            part = *self.next.at(part.into());
        }
        self.long -= usize::from(count > 1);
        self.check_simple();
        Ok(Used { id, count, len })
    }

    /// The length of the chain in flight that `id` names.
    fn chain_named(&self, id: u32, known: impl Fn(u16) -> bool) -> Result<(u16, u16), Fault> {
        let index = id as usize;
        if index >= self.chains.len() {
            return Err(Fault::IdOutOfRange);
        }
        let id = number(index);
        match *self.chains.at(index) {
            0 if known(id) => Ok((id, 1)),
            0 | PART => Err(Fault::IdNotInFlight),
            count => Ok((id, count)),
        }
    }

    /// The device named a later chain than the oldest: all up to it are done, the earlier ones completely filled
    /// (Virtio 1.2, section 2.7.9). Names the oldest, until it is the one that was named.
    #[cold]
    fn batched(&mut self, id: u32, len: u32, known: impl Fn(u16) -> bool) -> Result<(u32, u32), Fault> {
        let batch = self.order.as_ref().and_then(|order| order.batch);
        let (last, last_len) = match batch {
            Some(batch) => batch,
            None => (self.chain_named(id, known)?.0, len),
        };
        let oldest = self.oldest();
        let Some(order) = &mut self.order else { return Ok((id, len)) };
        if oldest == last {
            order.batch = None;
            return Ok((last.into(), last_len));
        }
        order.batch = Some((last, last_len));
        Ok((oldest.into(), u32::MAX))
    }

    /// Whether chains are waiting of a batch whose end the device has reported already.
    #[inline(always)]
    pub(super) fn is_amid_batch(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.batch.is_some())
    }
}
