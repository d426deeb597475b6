//! Queues: one `match` a burst.

use crate::{Error, Result};
use mempool::{Batch, PoolCache};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Every driver's queue of one kind.
macro_rules! queue {
    ($(#[$docs:meta])* $name:ident, $kind:ident) => {
        $(#[$docs])*
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum $name {
            /// 82599 family, through VFIO.
            Vfio(ixgbe::$kind<device::VfioDevice>),
            /// 82599 family, through sysfs without an IOMMU.
            Sysfs(ixgbe::$kind<device::SysfsDevice>),
            /// 82599 family, played by another process.
            VfioUser(ixgbe::$kind<device::VfioUserDevice>),
            /// virtio-net on PCI, through VFIO.
            VirtioVfio(virtio::$kind<virtio::Pci<device::VfioDevice>>),
            /// virtio-net on PCI, through sysfs without an IOMMU.
            VirtioSysfs(virtio::$kind<virtio::Pci<device::SysfsDevice>>),
            /// virtio-net, played by another process.
            VhostUser(virtio::$kind<virtio::VhostUser>),
            /// A software 82599.
            #[cfg(feature = "soft")]
            Soft(ixgbe::$kind<softnic::SoftDevice>),
        }
    };
}

/// Runs the same expression on whichever driver's value it is.
macro_rules! each {
    ($kind:ident, $value:expr, $inner:ident => $result:expr) => {
        match $value {
            $kind::Vfio($inner, ..) => $result,
            $kind::Sysfs($inner) => $result,
            $kind::VfioUser($inner) => $result,
            $kind::VirtioVfio($inner, ..) => $result,
            $kind::VirtioSysfs($inner) => $result,
            $kind::VhostUser($inner) => $result,
            #[cfg(feature = "soft")]
            $kind::Soft($inner, ..) => $result,
        }
    };
}
pub(crate) use each;

queue! {
    /// A receive queue. It belongs to one thread at a time, and may be sent to another.
    RxQueue, RxQueue
}

queue! {
    /// A transmit queue. It belongs to one thread at a time, and may be sent to another.
    TxQueue, TxQueue
}

impl RxQueue {
    /// Puts waiting frames at the end of `batch`, as many as fit, and gives the device fresh buffers from `cache` for
    /// theirs. Returns the number of packets; a frame longer than a buffer is a run of packets with
    /// [`mempool::Packet::continues`] set on all but the last. Whole frames only.
    ///
    /// Waits for nothing but, behind a vfio-user server that shares no doorbells, the answer to one message, 5 s at most; then
    /// the device counts as gone.
    #[inline]
    pub fn recv(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        each!(Self, self, queue => queue.recv(cache, batch))
    }

    /// Waits until a frame is there to receive, `limit` at most, or until the port is closed. Returns whether one is (or a
    /// part of one that is still arriving).
    ///
    /// # Errors
    ///
    /// When the port was opened without interrupts ([`crate::PortConfig::interrupts`]).
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        each!(Self, self, queue => Wait::wait(queue, limit))
    }

    /// Asks for an interrupt when the next frame comes, for an event loop of the caller's own: if this returns true, wait
    /// until [`Self::eventfd`] is readable. It may become readable without a frame; ask again before each wait. False says
    /// not to wait: a frame is there, the port is closed, or it has no interrupts.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        each!(Self, self, queue => Wait::arm(queue))
    }

    /// What becomes readable when an interrupt comes that [`Self::arm`] asked for; `None` without interrupts.
    #[must_use]
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        each!(Self, self, queue => Wait::eventfd(queue))
    }

    /// What it has counted since it was opened.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> RxCounters {
        each!(Self, self, queue => queue.counters().into())
    }
}

impl TxQueue {
    /// Hands packets from the front of `batch` to the device, as many as its ring takes; the rest stay in the batch.
    /// Takes buffers that the device has done with into `cache`. Returns how many packets left the batch. Whole frames only.
    /// With an empty batch it only takes back buffers. Waits as [`RxQueue::recv`] does.
    ///
    /// A frame that the device cannot send is dropped and counted.
    #[inline]
    pub fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize {
        each!(Self, self, queue => queue.send(cache, batch))
    }

    /// What it has counted since it was opened.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> TxCounters {
        each!(Self, self, queue => queue.counters().into())
    }

    /// Packets sent and not yet seen to be done. Buffers come back in chunks, so a few dozen may stay after the last.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        each!(Self, self, queue => queue.in_flight())
    }
}

/// A receive queue that may have an interrupt.
trait Wait {
    fn wait(&mut self, limit: Duration) -> Result<bool>;
    fn arm(&mut self) -> bool;
    fn eventfd(&self) -> Option<BorrowedFd<'_>>;
}

impl<D: device::Device> Wait for ixgbe::RxQueue<D> {
    fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.wait(limit).map_err(|source| Error::Driver(source.into()))
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd()
    }
}

impl<T: virtio::Transport> Wait for virtio::RxQueue<T> {
    fn wait(&mut self, limit: Duration) -> Result<bool> {
        self.wait(limit).map_err(|source| Error::Driver(source.into()))
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd()
    }
}

/// What a receive queue has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxCounters {
    /// Frames handed to the application.
    pub packets: u64,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
    /// Frames dropped because the device marked them bad.
    pub frame_errors: u64,
    /// Frames dropped because the device reported a length of 0, or more than the buffer holds.
    pub bad_length: u64,
    /// Frames dropped because they came in more buffers than the largest frame needs.
    pub too_long: u64,
    /// Frames dropped because a batch is too small for their segments.
    pub batch_too_small: u64,
    /// Times that frames were waiting and the pool had no buffer to replace theirs. No frame is lost by it here.
    pub no_buffers: u64,
}

/// What a transmit queue has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxCounters {
    /// Frames handed to the device.
    pub packets: u64,
    /// Their bytes, without padding and frame check sequence.
    pub bytes: u64,
    /// Frames dropped because the device cannot send that length, or a segment is empty.
    pub bad_length: u64,
    /// Frames dropped because they have more segments than the ring has descriptors.
    pub too_many_segments: u64,
    /// Frames dropped because their pool could not be mapped for the device.
    pub unmapped_pool: u64,
    /// Of the frames handed to the device, those that it had not reported sent when it went away: a vhost-user back end that
    /// ended or was reset, or a virtio device that asked for its reset. Whether they were sent, nobody knows.
    pub lost: u64,
}

/// A driver's counters in the words of this crate; `$too_long` and `$lost` are of what only some have.
macro_rules! counters {
    ($driver:ident, $tx:ident, $too_long:expr, $lost:expr) => {
        impl From<$driver::RxCounters> for RxCounters {
            fn from(counters: $driver::RxCounters) -> Self {
                Self {
                    packets: counters.packets,
                    bytes: counters.bytes,
                    frame_errors: counters.frame_errors,
                    bad_length: counters.bad_length,
                    too_long: counters.too_long,
                    batch_too_small: counters.batch_too_small,
                    no_buffers: counters.no_buffers,
                }
            }
        }

        impl From<$driver::TxCounters> for TxCounters {
            fn from($tx: $driver::TxCounters) -> Self {
                Self {
                    packets: $tx.packets,
                    bytes: $tx.bytes,
                    bad_length: $tx.bad_length + $too_long,
                    too_many_segments: $tx.too_many_segments,
                    unmapped_pool: $tx.unmapped_pool,
                    lost: $lost,
                }
            }
        }
    };
}

counters!(ixgbe, tx, 0, 0);
counters!(virtio, tx, tx.too_long, tx.lost);
