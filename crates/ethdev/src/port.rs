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
    /// Appends received frames to `batch`, as many as fit, and gives the device fresh buffers from `cache` in exchange. Returns
    /// the packets received: the last ones of `batch`, without those that were in it before.
    ///
    /// Frames are received whole: one longer than a buffer is a run of packets with [`Packet::continues`] set on all but the
    /// last. After the port is closed, only frames that had arrived before are received. A `cache` of another pool than the
    /// queue's is accepted but not used.
    ///
    /// The work of a call is bounded, whatever the device does: it receives no more packets than the batch has room for, and
    /// drops bad frames of no more descriptors than the ring has. It never waits, with one exception: where a doorbell is a
    /// message to another process (a vfio-user server that shares no doorbells), it waits up to 5 s for the answer, and then
    /// treats the device as gone.
    fn recv<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet];

    /// Receives like [`Self::recv`], and writes what the device reports about each packet (RSS hash, packet type, VLAN tag,
    /// checksum verdicts) to `infos`, which then has one element for each packet received. [`Self::recv`] does not pay for this.
    fn recv_with<'b>(&mut self, cache: &mut PoolCache, batch: &'b mut Batch, infos: &mut RxInfos) -> &'b mut [Packet] {
        let packets = self.recv(cache, batch);
        infos.describe(packets);
        packets
    }

    /// Returns how long a loop should leave the queue alone after a call that found nothing, in cycles of the time-stamp
    /// counter; by default 0. It is advice: [`Self::recv`] looks at the queue whenever it is called. A driver gives it where a look
    /// at an empty ring slows down the device. `lcore::PacedRx` follows it, and a loop of one's own may do other work meanwhile.
    fn rest_cycles(&self) -> u64 {
        0
    }

    /// Returns the queue's counters.
    fn counters(&self) -> RxCounters;

    /// Returns whether a frame is waiting, or a part of one that is still arriving.
    fn is_ready(&mut self) -> bool;

    /// Requests an interrupt for the next frame. If it returns true, wait until [`Self::eventfd`] is readable; that may also
    /// happen without a frame, so call this again before each wait. If it returns false, do not wait: a frame is there, the port
    /// is closed, or it has no interrupts.
    #[must_use]
    fn arm(&mut self) -> bool {
        false
    }

    /// Returns the descriptor that becomes readable when an interrupt requested by [`Self::arm`] arrives; `None` without
    /// interrupts ([`crate::PortConfig::interrupts`]).
    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until a frame can be received or the port is closed, for `limit` at most. Returns whether a frame is there. For
    /// several queues, see [`crate::wait_any`].
    ///
    /// # Errors
    ///
    /// If the port was opened without interrupts.
    fn wait(&mut self, limit: Duration) -> Result<bool, crate::NoInterrupts>
    where
        Self: Sized,
    {
        crate::wait_any(std::slice::from_mut(self), limit)
    }
}

/// A transmit queue: belongs to one thread at a time, and may be sent to another.
pub trait TxQueue: fmt::Debug + Send {
    /// Hands packets from the front of `batch` to the device, as many as its ring takes; the rest stay in the batch. Also returns
    /// buffers of transmitted frames to `cache`; with an empty batch it does only that. Returns the number of packets that left
    /// the batch. Frames are sent whole; a run of packets whose last one [continues](Packet::continues) counts as whole.
    ///
    /// A frame that the device cannot send is dropped and counted. It waits no longer than [`RxQueue::recv`].
    fn send(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> usize;

    /// Returns the queue's counters.
    fn counters(&self) -> TxCounters;

    /// Returns the number of packets handed to the device and not yet seen to be sent. Buffers come back in chunks, so a few
    /// dozen may remain after the last frame.
    fn in_flight(&self) -> usize;
}

/// Control of an open device: link, filters, statistics, and the end of it. Dropping it closes it; errors are logged then.
///
/// Each call takes [`crate::PortConfig::time_limit`] at most.
pub trait Port: fmt::Debug {
    /// The type of its receive queues.
    type Rx: RxQueue;
    /// The type of its transmit queues.
    type Tx: TxQueue;
    /// The error of its operations.
    type Error: PortError + From<Unsupported>;

    /// Returns the address by which the device was opened, without settings.
    fn name(&self) -> &str;

    /// Returns the station address; all zeros, the default, for a device that has none.
    fn mac(&self) -> MacAddress {
        MacAddress::ZERO
    }

    /// Returns the NUMA node the device is attached to, if known.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// Returns what the device can do; by default one queue in each direction and nothing else.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }

    /// Returns the state of the link.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn link(&self) -> Result<LinkStatus, Self::Error>;

    /// Waits until the link is up, for `limit` at most or until the cancel flag of the time limit is set. Returns the state of
    /// the link at that time. By default it calls [`Self::link`] every millisecond, and there is no such flag.
    ///
    /// # Errors
    ///
    /// If the device is gone.
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

    /// Turns promiscuous mode on or off. When on, frames for any address are received; when off, those for the station and for
    /// groups (see [`Self::set_all_multicast`]).
    ///
    /// # Errors
    ///
    /// If the device does not support it, or is gone.
    fn set_promiscuous(&mut self, on: bool) -> Result<(), Self::Error> {
        let _ = on;
        Err(self.unsupported("change its receive mode"))
    }

    /// Turns the reception of all multicast frames on or off. When off, broadcast frames are received, and those for the groups of
    /// [`Self::set_groups`]. A promiscuous port receives all of them in either case.
    ///
    /// # Errors
    ///
    /// If the device does not support it, or is gone.
    fn set_all_multicast(&mut self, on: bool) -> Result<(), Self::Error> {
        let _ = on;
        Err(self.unsupported("change its receive mode"))
    }

    /// Sets the groups whose frames are received while not all multicast frames are, instead of those set before; a port that
    /// was just opened has none. They stay set, whatever modes are changed meanwhile, until the device is opened again. Their order
    /// tells which matter most where not all fit.
    ///
    /// Frames for other groups may be received too: devices tell groups apart by a hash, and some go on with those set before for a
    /// while. So who must not see them looks at the destination.
    ///
    /// # Errors
    ///
    /// If one is not a multicast address, and nothing has changed then; if the device has no room for all of them, and it then
    /// receives the first that fit; if it does not support it, or is gone.
    fn set_groups(&mut self, groups: &[MacAddress]) -> Result<(), Self::Error> {
        let _ = groups;
        Err(self.unsupported("change its groups"))
    }

    /// Has the device receive frames with a VLAN tag of this id, from 0 (a priority and no VLAN) to 4094, or no more. By default nothing
    /// happens: a device that does not filter by VLAN receives them anyway, as does a promiscuous one.
    ///
    /// # Errors
    ///
    /// Where there is a filter: if the id is out of range, the device refuses, as the physical function of a virtual one may, or is gone.
    fn set_vlan(&mut self, id: u16, on: bool) -> Result<(), Self::Error> {
        let _ = (id, on);
        Ok(())
    }

    /// Changes the station address until the device is opened again.
    ///
    /// # Errors
    ///
    /// If it is not a unicast address, or if the device does not support it or is gone.
    fn set_mac(&mut self, mac: MacAddress) -> Result<(), Self::Error> {
        let _ = mac;
        Err(self.unsupported("change its MAC address"))
    }

    /// Changes the MTU, the largest IP packet received, in bytes: from 68 to what the port was opened with, for which its rings
    /// were made.
    ///
    /// # Errors
    ///
    /// If it is out of range, or if the device does not support it or is gone.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Self::Error> {
        let _ = mtu;
        Err(self.unsupported("change its MTU"))
    }

    /// Changes the RSS redirection table, which maps hashes to receive queues. Frames of a flow that moves may be reordered.
    ///
    /// # Errors
    ///
    /// If the table is empty, too long, or names a queue that the port was not opened with; or if the device does not support it
    /// or is gone.
    fn set_rss_table(&mut self, table: &Reta) -> Result<(), Self::Error> {
        let _ = table;
        Err(self.unsupported("change its RSS table"))
    }

    /// Turns a loop inside the device on or off, for tests. While it is on, the port receives what it sends, and no frame comes
    /// from the wire or leaves by it. Turning it off may take the link down for a while.
    ///
    /// # Errors
    ///
    /// If the device does not support it ([`Capabilities::loopback`]), or is gone.
    fn set_loopback(&mut self, on: bool) -> Result<(), Self::Error> {
        let _ = on;
        Err(self.unsupported("loop frames back inside itself"))
    }

    /// Returns what a person may want to know about the parts of the device, each with a name: the module in its cage, its PHY,
    /// the version of its firmware. What cannot be read is described by its error. By default there are none.
    fn parts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Stops taking frames from the wire until the device is opened again; frames that have arrived can still be received, to the
    /// last one. A device that does not support it ([`Capabilities::stop_receiving`]) goes on receiving.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    fn stop_receiving(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Reads the device's counters and returns the totals since it was opened. Hardware registers are narrow, so call this at
    /// least once a second. The default, for a port without such registers, returns [`Self::totals`].
    ///
    /// # Errors
    ///
    /// If the device is gone; [`Self::totals`] returns what was read before.
    fn statistics(&mut self) -> Result<Statistics, Self::Error> {
        Ok(self.totals())
    }

    /// Returns the totals as last read.
    fn totals(&self) -> Statistics;

    /// Returns whether everything handed to the transmit queues is known to be sent and written out; true for a device that is
    /// gone.
    fn transmit_idle(&self) -> bool;

    /// Returns the descriptor that becomes readable when [`Self::events`] has something to report; none without interrupts.
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Returns what has happened since the last call. It also works without interrupts, but then nothing wakes the caller.
    ///
    /// # Errors
    ///
    /// If the device must not be used any more: close it.
    fn events(&mut self) -> Result<Events, Self::Error> {
        Ok(Events::default())
    }

    /// Stops the device after it has sent what it was given (for which it waits a short time), and returns the final totals.
    /// Buffers in the rings return to their pools once the queues are dropped and the device is known to be quiet.
    ///
    /// # Errors
    ///
    /// The first step that failed; all others were still done. Memory that the device may still reach is kept.
    fn close(self) -> Result<Statistics, Self::Error>
    where
        Self: Sized;

    /// The error of an operation that a device does not support.
    fn unsupported(&self, operation: &'static str) -> Self::Error {
        Unsupported::new(self.name(), operation).into()
    }
}

/// An open device: the port, which controls it, and its queues, which can be moved to threads.
#[derive(Debug)]
pub struct Opened<P: Port> {
    /// The port. Dropping it stops the device, after which the queues receive and send nothing.
    pub port: P,
    /// Receive queues, by number.
    pub rx: Vec<P::Rx>,
    /// Transmit queues, by number.
    pub tx: Vec<P::Tx>,
}

impl<P: Port> Opened<P> {
    /// Drops the queues and stops the device. Returns the final totals.
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
