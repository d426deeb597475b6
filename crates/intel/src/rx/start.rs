//! How receive queues begin and end.

use super::{MOST_SEGMENTS, RxQueue};
use crate::desc;
use crate::family::{QueueRegisters, Step};
use crate::loops::Way;
use crate::ring::{RingMemory, START_LIMIT, Side, disable, low_half};
use crate::wait::{Timed, read, wait};
use crate::{Error, Family, Result};
use device::{Deadline, Device};
use ethdev::{RxCounters, Statistics};
use mempool::{CHUNK, Meta, Pool};
use std::sync::Arc;

impl<F: Family, D: Device> RxQueue<F, D> {
    /// Makes a ring of buffers, programs it and enables the queue (82599 datasheet 4.6.7.1, 82576 datasheet 4.5). The device has no
    /// descriptor of it until a [`crate::Port`] hands them over.
    ///
    /// # Errors
    ///
    /// If a queue of this number was started before; [`Error::Pool`] if the pool does not suit the ring; [`Error::Expired`],
    /// [`Error::Gone`].
    ///
    /// # Panics
    ///
    /// When the memory was made for other rings, or the family has no such queue: a mistake of the driver.
    pub fn start(
        memory: &mut RingMemory<F, D>,
        index: u32,
        config: &F::Config,
        pool: &Pool,
        deadline: &Deadline,
    ) -> Result<Self> {
        let port = F::port(config);
        memory.shared.claim(Side::Receive, index)?;
        let ring = memory.cut(port.rx_ring.into());
        let shared = &memory.shared;
        let translation = shared.regs.device().dma().map(pool.memory())?;
        // SRRCTL counts in KiB, and a buffer must hold all that the device is told it may write.
        let kib = (pool.data_room() / 1024).min(16);
        let mut cache = pool.cache();
        // Without slots to spare no frame could ever be taken out of the ring.
        let wanted = ring.size() + CHUNK;
        if kib == 0 || cache.reserve(wanted) < wanted {
            let name = shared.regs.device().name().to_owned();
            return Err(Error::Pool {
                device: name,
                slots: pool.slots(),
                ring: ring.size(),
                data_room: pool.data_room(),
            });
        }
        let mut slots = Vec::with_capacity(ring.size());
        let fresh = cache.lend(ring.size());
        slots.extend_from_slice(&fresh);
        // SAFETY: they are kept in the ring.
        unsafe { fresh.used(slots.len()) };
        let buffer = kib * 1024;
        let (way, delta) = Way::of(&translation);
        // The lowest bit of a buffer's address is no part of it (82599 datasheet 7.1.6.1).
        let headroom = pool.headroom() & !1;
        let mut queue = Self {
            ring,
            slots: slots.into_boxed_slice(),
            next: 0,
            announced: 0,
            translation,
            way,
            delta: delta.wrapping_add(headroom.into()),
            meant: desc::rx::meant(port.strip_vlan),
            meta: Meta::new(headroom, 0, pool.id()),
            buffer,
            most_segments: (port.max_frame() + CRC).div_ceil(buffer.into()).min(MOST_SEGMENTS - 1),
            skipping: false,
            usual_limit: buffer,
            index,
            counters: RxCounters::default(),
            no_packets: 0,
            pool: pool.clone(),
            own_cache: None,
            shared: Arc::clone(shared),
        };
        for index in 0..queue.ring.size() {
            queue.post(index);
        }
        queue.program(config, &Timed::new(&shared.regs, deadline.clone()))?;
        Ok(queue)
    }

    fn program(&self, config: &F::Config, regs: &Timed<F, D>) -> Result<()> {
        let steps = self.ring.place(regs, &F::RX, self.index);
        let enabling = F::enable_rx(regs, self.index, u32::from(self.buffer / 1024), config);
        let write = |steps: Vec<Step<F>>| {
            for (register, value) in steps {
                // SAFETY: the ring and the buffers in it belong to the device from here until it is known to be quiet;
                // buffers hold as many KiB each.
                unsafe { regs.write_dma(register, value) }
            }
        };
        write(steps);
        // Malicious-driver detection of an X550 looks at the ring's length when the queue is enabled: what is read comes after what was
        // written.
        read(regs, F::STATUS)?;
        write(enabling);
        Ok(())
    }

    /// Waits until the queue is enabled, and hands its buffers to the device: once, before anything is received.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the queue does not start, [`Error::Expired`], [`Error::Gone`].
    pub(crate) fn fill(&self, deadline: &Deadline) -> Result<()> {
        let regs = &Timed::new(&self.shared.regs, deadline.clone());
        let QueueRegisters { tail, control, enable, .. } = F::RX;
        let started = |value| enable.is_set(value);
        wait(regs, control.at(self.index), started, START_LIMIT, "the receive queue to start")?;
        // The device owns [head, tail): all but the last.
        let last = low_half(self.ring.mask() as u64);
        // SAFETY: every descriptor has a buffer.
        unsafe { regs.write_dma(tail.at(self.index), last) };
        Ok(())
    }

    /// Disables receive queue `index` and waits until the device has left it (82599 datasheet 4.6.7.1.2, 82576 datasheet 4.5).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when it does not leave it, [`Error::Expired`], [`Error::Gone`].
    pub fn disable(regs: &Timed<F, D>, index: u32) -> Result<()> {
        disable(regs, &F::RX, index, "the receive queue to stop")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4 bytes")]
const CRC: usize = Statistics::CRC as usize;
