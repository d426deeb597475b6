//! What the driver knows of a ring without asking the ring: which ids are free, which chains are in flight.

use super::Fault;

/// The private record of a virtqueue's descriptors. The device cannot reach it, so nothing it writes can make an id
/// complete twice, or complete one that was never made available.
///
/// A chain of n descriptors takes n ids, of which the first names it. Ids are handed out in the order in which they came
/// back, so that a device that completes in order sees them in ring order.
///
/// # Invariants
///
/// Every id is free, or in exactly one chain in flight. `free[head..tail]` (free-running, modulo the size) are the free
/// ones; `chains[id]` is the length of the chain in flight that `id` names, and 0 for all others.
#[derive(Debug)]
pub(super) struct Ledger {
    chains: Box<[u16]>,
    /// The next descriptor of a chain.
    next: Box<[u16]>,
    free: Box<[u16]>,
    mask: usize,
    head: usize,
    tail: usize,
    order: Option<Order>,
}

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
        Self {
            chains: vec![0; size.into()].into_boxed_slice(),
            next: vec![0; size.into()].into_boxed_slice(),
            free: (0..size).collect(),
            mask: usize::from(size) - 1,
            head: 0,
            tail: size.into(),
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
        self.mask + 1 - self.free()
    }

    /// Takes an id that is a chain of its own. One must be free.
    #[inline(always)]
    pub(super) fn take(&mut self) -> u16 {
        let id = self.free[self.head & self.mask];
        self.head += 1;
        self.chains[usize::from(id)] = 1;
        id
    }

    /// Takes the ids of a chain of `count` descriptors, in order. As many must be free.
    pub(super) fn take_chain(&mut self, count: usize, mut each: impl FnMut(usize, u16, Option<u16>)) -> u16 {
        let at = |place: usize| place & self.mask;
        let first = self.free[at(self.head)];
        for place in 0..count {
            let id = self.free[at(self.head + place)];
            let next = (place + 1 < count).then(|| self.free[at(self.head + place + 1)]);
            self.next[usize::from(id)] = next.unwrap_or(0);
            each(place, id, next);
        }
        self.head += count;
        self.chains[usize::from(first)] = u16::try_from(count).unwrap_or(u16::MAX);
        first
    }

    /// The id behind `id` in a chain that was just completed.
    pub(super) fn after(&self, id: u16) -> u16 {
        self.next[usize::from(id)]
    }

    /// Completes the chain that the device names.
    #[inline(always)]
    pub(super) fn complete(&mut self, id: u32, len: u32) -> Result<Used, Fault> {
        let (id, len) = match &mut self.order {
            None => (id, len),
            Some(order) if order.batch.is_none() && id == u32::from(order.expected) => (id, len),
            Some(order) => order.batched(&self.chains, id, len)?,
        };
        let Some(chain) = self.chains.get_mut(id as usize) else { return Err(Fault::IdOutOfRange) };
        // Cleared before anything is done with it: it completes once.
        let count = std::mem::take(chain);
        #[expect(clippy::cast_possible_truncation, reason = "ids of the ring are below its size")]
        let id = id as u16;
        match count {
            0 => return Err(Fault::IdNotInFlight),
            1 => {
                self.free[self.tail & self.mask] = id;
                self.tail += 1;
            }
            _ => self.free_chain(id, count),
        }
        if self.order.is_some() {
            let after = self.place_after(id, count);
            self.order.iter_mut().for_each(|order| order.expected = after);
        }
        Ok(Used { id, count, len })
    }

    /// Whether chains are waiting of a batch whose end the device has reported already.
    #[inline(always)]
    pub(super) fn mid_batch(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.batch.is_some())
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "masked by the size, which is at most 2^15")]
    fn place_after(&self, id: u16, count: u16) -> u16 {
        ((usize::from(id) + usize::from(count)) & self.mask) as u16
    }

    #[cold]
    fn free_chain(&mut self, first: u16, count: u16) {
        let mut id = first;
        for _ in 0..count {
            self.free[self.tail & self.mask] = id;
            self.tail += 1;
            id = self.next[usize::from(id)];
        }
    }
}

impl Order {
    /// The device named a later chain than the oldest: all up to it are done, the earlier ones completely filled
    /// (Virtio 1.2, section 2.7.9). Names the oldest, until it is the one that was named.
    #[cold]
    fn batched(&mut self, chains: &[u16], id: u32, len: u32) -> Result<(u32, u32), Fault> {
        let (last, last_len) = match self.batch {
            Some(batch) => batch,
            None => match chains.get(id as usize) {
                None => return Err(Fault::IdOutOfRange),
                Some(0) => return Err(Fault::IdNotInFlight),
                #[expect(clippy::cast_possible_truncation, reason = "ids of the ring are below its size")]
                Some(_) => (id as u16, len),
            },
        };
        if self.expected == last {
            self.batch = None;
            return Ok((last.into(), last_len));
        }
        self.batch = Some((last, last_len));
        Ok((self.expected.into(), u32::MAX))
    }
}
