//! The contract of ports and queues.

use crate::{
    Capabilities, Events, LinkStatus, MacAddress, PortError, Reta, RxCounters, RxInfos, Statistics, TxCounters,
    Unsupported,
};
use mempool::{Batch, Packet, PoolCache};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A receive queue: belongs to one thread at a time, and may be sent to another.
///
/// Nobody who uses one relies on more than its types say: an implementation that is wrong about what it counts or hands out loses
/// frames, but neither buffers nor memory safety.
pub trait RxQueue: fmt::Debug + Send {
    /// Puts waiting frames at the end of `batch`, as many as fit, and gives the device fresh buffers from `cache` for theirs.
    /// Returns the packets that came in, which are the last of `batch`; what was in it before is not among them.
    ///
    /// Whole frames only: one longer than a buffer is a run of packets with [`Packet::continues`] set on all but the last. Once
    /// the port is closed no more come than had arrived. A `cache` of another pool than the queue's works but is not used.
    ///
    /// Bounded work, whatever the device does: it takes as many packets as the batch has room for, and drops bad frames of no
    /// more descriptors than the ring has. It waits for nothing but, where a doorbell is a message to another process (a
    /// vfio-user server that shares no doorbells), the answer to one, 5 s at most; then the device counts as gone.
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet];

    /// The same, and what the device says of each packet, in `infos`; its length is then the number of packets that came in.
    /// Whoever does not ask for it pays nothing.
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        let packets = self.recv(cache, batch);
        infos.describe(packets);
        packets
    }

    /// What it has counted.
    fn counters(&self) -> RxCounters;

    /// Whether a frame is there to receive, or a part of one that is still arriving.
    fn is_ready(&mut self) -> bool;

    /// Asks for an interrupt when the next frame comes. If this returns true, wait until [`Self::eventfd`] is readable; it may
    /// become readable without a frame, so ask again before each wait. False says not to wait: a frame is there, the port is
    /// closed, or it has no interrupts.
    #[must_use]
    fn arm(&mut self) -> bool {
        false
    }

    /// What becomes readable when an interrupt comes that [`Self::arm`] asked for; `None` without interrupts
    /// ([`crate::PortConfig::interrupts`]).
    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until a frame is there to receive, `limit` at most, or until the port is closed. Returns whether one is. See
    /// [`crate::wait_any`] for several queues.
    ///
    /// # Errors
    ///
    /// When the port was opened without interrupts.
    fn wait(&mut self, limit: Duration) -> Result<bool, crate::NoInterrupts>
    where
        Self: Sized,
    {
        crate::wait_any(std::slice::from_mut(self), limit)
    }
}

/// A transmit queue: belongs to one thread at a time, and may be sent to another.
pub trait TxQueue: fmt::Debug + Send {
    /// Hands packets from the front of `batch` to the device, as many as its ring takes; the rest stay in the batch. Takes buffers
    /// that the device has done with into `cache`; with an empty batch it does only that. Returns the number of packets that left
    /// the batch. Whole frames only; a run of packets whose last one [continues](Packet::continues) counts as whole.
    ///
    /// A frame that the device cannot send is dropped and counted. Waits as [`RxQueue::recv`] does.
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize;

    /// What it has counted.
    fn counters(&self) -> TxCounters;

    /// Packets handed over and not yet seen to be sent. Their buffers come back in chunks, so a few dozen may stay after the last.
    fn in_flight(&self) -> usize;
}

/// Control of an open device: link, filters, statistics, and the end of it. Dropping it closes it; errors are logged then.
///
/// Each call takes [`crate::PortConfig::time_limit`] at most.
pub trait Port: fmt::Debug {
    /// Its receive queues.
    type Rx: RxQueue;
    /// Its transmit queues.
    type Tx: TxQueue;
    /// What can go wrong.
    type Error: PortError + From<Unsupported>;

    /// The address by which the device was opened, without settings.
    fn name(&self) -> &str;

    /// The station address; zeros, as it is unless implemented, for a device that has none.
    fn mac(&self) -> MacAddress {
        MacAddress::ZERO
    }

    /// The NUMA node it is attached to, if known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// What it can do: nothing but one queue each way, unless implemented.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    /// The link as it is now.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn link(&self) -> Result<LinkStatus, Self::Error>;

    /// Waits until the link is up, for `limit` at most or until the cancel flag of the time limit is set, and returns its state
    /// then. Unless implemented, it asks [`Self::link`] every millisecond, and there is no such flag.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn wait_link(&self, limit: Duration) -> Result<LinkStatus, Self::Error> {
        let begun = Instant::now();
        loop {
            let link = self.link()?;
            if link.up || begun.elapsed() >= limit {
                return Ok(link);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives frames for any address, unicast or multicast, or only those for the station and for groups (see
    /// [`Self::set_all_multicast`]).
    ///
    /// # Errors
    ///
    /// When the device cannot be told so, or is gone.
    fn set_promiscuous(&mut self, on: bool) -> Result<(), Self::Error> {
        let _ = on;
        Err(self.unsupported("change its receive mode"))
    }

    /// Receives frames for any multicast address, or only broadcast frames and those for groups that were added. A promiscuous port
    /// receives them all the same.
    ///
    /// # Errors
    ///
    /// When the device cannot be told so, or is gone.
    fn set_all_multicast(&mut self, on: bool) -> Result<(), Self::Error> {
        let _ = on;
        Err(self.unsupported("change its receive mode"))
    }

    /// Changes the station address, until the device is opened anew.
    ///
    /// # Errors
    ///
    /// When it is not a unicast address, the device cannot be told so, or is gone.
    fn set_mac(&mut self, mac: MacAddress) -> Result<(), Self::Error> {
        let _ = mac;
        Err(self.unsupported("change its MAC address"))
    }

    /// Changes the largest IP packet that is received, in bytes: 68 to what the port was opened with, as its rings are made for
    /// no more.
    ///
    /// # Errors
    ///
    /// When it is more or less, the device cannot be told so, or is gone.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Self::Error> {
        let _ = mtu;
        Err(self.unsupported("change its MTU"))
    }

    /// Changes which receive queue a hash leads to. Frames of a flow may overtake each other as it moves.
    ///
    /// # Errors
    ///
    /// When the table is empty, too long, or names a queue that the port was not opened with; when the device cannot be told so,
    /// or is gone.
    fn set_rss_table(&mut self, table: &Reta) -> Result<(), Self::Error> {
        let _ = table;
        Err(self.unsupported("change its RSS table"))
    }

    /// Takes no more frames from the wire until the device is opened anew: what has arrived can still be received, to the last
    /// frame. A device that cannot be told so ([`Capabilities::stop_receiving`]) goes on.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    fn stop_receiving(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Reads the device's counters and returns the totals since it was opened. Registers are narrow: call this once a second at
    /// least. A port without registers has its [`Self::totals`] at hand, and need not implement this.
    ///
    /// # Errors
    ///
    /// When the device is gone; [`Self::totals`] has what was read before.
    fn statistics(&mut self) -> Result<Statistics, Self::Error> {
        Ok(self.totals())
    }

    /// The totals as last read.
    fn totals(&self) -> Statistics;

    /// Whether all that transmit queues were given is known to be sent and written out. True of a device that is gone.
    fn transmit_idle(&self) -> bool;

    /// What becomes readable when [`Self::events`] has something to tell; none without interrupts.
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// What has happened since the last call. Without interrupts it tells all the same, but nothing wakes anybody.
    ///
    /// # Errors
    ///
    /// When the device must not be used any more. Close it.
    fn events(&mut self) -> Result<Events, Self::Error> {
        Ok(Events::default())
    }

    /// Stops the device, once it has sent what it was given (it is not waited for long), and returns the final totals. Buffers in
    /// the rings go back to their pools as the queues are dropped and the device is known to be quiet.
    ///
    /// # Errors
    ///
    /// The first step that failed; all others were done all the same. Memory that the device may still reach is kept.
    fn close(self) -> Result<Statistics, Self::Error>
    where
        Self: Sized;

    /// The error of an operation that this device does not know.
    fn unsupported(&self, operation: &'static str) -> Self::Error {
        Unsupported::new(self.name(), operation).into()
    }
}

/// An open device: the port to control it, and its queues to be sent to threads.
#[derive(Debug)]
pub struct Opened<P: Port> {
    /// Control of the port. Dropping it stops the device, after which the queues receive and send nothing.
    pub port: P,
    /// Receive queues, by number.
    pub rx: Vec<P::Rx>,
    /// Transmit queues, by number.
    pub tx: Vec<P::Tx>,
}

impl<P: Port> Opened<P> {
    /// Gives up the queues and stops the device. Returns the final totals.
    ///
    /// # Errors
    ///
    /// As [`Port::close`].
    pub fn close(self) -> Result<Statistics, P::Error> {
        let Self { port, rx, tx } = self;
        drop((rx, tx));
        port.close()
    }
}
