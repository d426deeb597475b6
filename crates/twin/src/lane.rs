//! A worker's end of the queues to and from the host.

use crate::Class;
use crate::bell::Bell;
use crate::counts::{Shared, count};
use ethdev::{RxCounters, RxQueue};
use lcore::{PacketReceiver, PacketSender};
use mempool::{Batch, Packet, PoolCache, frames};
use router::{Destination, Refusal};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of the frames that a worker had for the host.
///
/// ```
/// let handed = twin::HandedOver { frames: 3, dropped: 1 };
/// # let _ = handed;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct HandedOver {
    /// Frames that are on their way to the host.
    pub frames: u64,
    /// Frames for which the queue had no room.
    pub dropped: u64,
}

/// A worker's queues to and from the host: one each way for each port. It makes no system call, but to wake the thread at the other
/// end if that sleeps, and allocates nothing.
///
/// See the crate's documentation for an example.
#[derive(Debug)]
pub struct Lane {
    ports: Vec<Queues>,
    /// Rung when frames have come from the host.
    bell: Arc<Bell>,
    /// Rung when frames wait for the thread that moves them.
    mover: Arc<Bell>,
    /// The frame whose packets come goes on, and whether it is taken.
    goes_on: bool,
    takes: bool,
}

#[derive(Debug)]
struct Queues {
    to_host: PacketSender,
    /// Frames of one burst.
    waiting: Batch,
    from_host: HostRx,
    shared: Arc<Shared>,
    beyond: Beyond,
}

/// Frames beyond the rate of a class that came one after the other, until they are counted, together: workers share the counters.
#[derive(Debug)]
struct Beyond {
    class: Class,
    frames: u64,
}

/// Places of a queue that frames of a class leave free: half are for routing protocols and link control, and of those half for protocols
/// of few frames, from the link, so that tables of BGP keep no BFD out. A burst of one such class fits into these, while others have filled the rest;
/// bursts of several at once fit as far as the host has taken frames meanwhile.
fn reserved(class: Class, capacity: usize) -> usize {
    match class {
        Class::Link | Class::Ospf | Class::IsIs | Class::Vrrp | Class::Bfd => 0,
        Class::Bgp | Class::BfdMultihop => capacity / 4,
        Class::Own | Class::Groups | Class::Other | Class::Error | Class::Unresolved | Class::Probe | Class::Left => {
            capacity / 2
        }
    }
}

impl Lane {
    pub(crate) fn new(bell: &Arc<Bell>, mover: &Arc<Bell>) -> Self {
        let (bell, mover) = (Arc::clone(bell), Arc::clone(mover));
        Self { ports: Vec::new(), bell, mover, goes_on: false, takes: false }
    }

    pub(crate) fn add(&mut self, to_host: PacketSender, from_host: PacketReceiver, shared: &Arc<Shared>) {
        let waiting = Batch::with_capacity(to_host.capacity());
        let from_host = HostRx { ring: from_host, bell: Arc::clone(&self.bell), counters: RxCounters::default() };
        let beyond = Beyond { class: Class::Error, frames: 0 };
        self.ports.push(Queues { to_host, waiting, from_host, shared: Arc::clone(shared), beyond });
    }

    /// Takes a packet that a router has refused of those received by `port` and says that it is for `destination`, at the time `now` (the time-stamp counter), if its frame
    /// is something to the host and within the rate of its class; else gives it back. The packets of a frame follow each other. What was
    /// taken goes to the host, and what was not is counted, with [`Self::hand_over`].
    #[inline(never)]
    pub fn offer(
        &mut self,
        port: usize,
        packet: Packet,
        (refusal, destination): (Refusal, Destination),
        now: u64,
    ) -> Option<Packet> {
        let Some(queues) = self.ports.get_mut(port) else { return Some(packet) };
        let begins = !self.goes_on;
        self.goes_on = packet.continues();
        if begins {
            self.takes = queues.admits(refusal, destination, packet.data(), now);
        }
        if !self.takes {
            return Some(packet);
        }
        let returned = queues.waiting.push(packet).err();
        if returned.is_some() {
            queues.forget_torn();
            self.takes = false;
        }
        returned
    }

    /// Hands over what [`Self::offer`] has taken of the frames of a port. What the queue has no room for goes back to `cache`.
    pub fn hand_over(&mut self, port: usize, cache: &mut PoolCache) -> HandedOver {
        let Some(queues) = self.ports.get_mut(port) else { return HandedOver::default() };
        queues.count_beyond();
        if queues.waiting.is_empty() {
            return HandedOver::default();
        }
        let Queues { to_host, waiting, shared, .. } = queues;
        let (before, too_long) = (frames(waiting).count() as u64, to_host.too_long());
        to_host.send(waiting);
        let dropped = frames(waiting).count() as u64 + to_host.too_long() - too_long;
        if dropped > 0 {
            shared.queue_full.fetch_add(dropped, Ordering::Relaxed);
            cache.free_batch(waiting);
        }
        self.mover.ring();
        HandedOver { frames: before - dropped, dropped }
    }

    /// Returns whether frames have come from the host since the last call, or were left by [`Self::receive`]: one load if not.
    #[inline(always)]
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.bell.is_rung() && self.bell.answer()
    }

    /// Appends frames that the host has sent by the twin of `port` to `batch`, as many as fit. Returns the number of packets.
    pub fn receive(&mut self, port: usize, batch: &mut Batch) -> usize {
        let Some(queues) = self.ports.get_mut(port) else { return 0 };
        let received = queues.from_host.ring.recv(batch).len();
        queues.from_host.counters.packets += received as u64;
        if !queues.from_host.ring.is_empty() {
            self.bell.ring();
        }
        received
    }

    /// Counts frames of [`Self::receive`] that the port has not sent.
    pub fn count_unsent(&self, port: usize, frames: u64) {
        if let Some(queues) = self.ports.get(port) {
            queues.shared.unsent.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// The queues from the host, one for each port, which wake a loop that sleeps.
    pub fn queues(&mut self) -> impl Iterator<Item = &mut dyn RxQueue> {
        self.ports.iter_mut().map(|queues| &mut queues.from_host as &mut dyn RxQueue)
    }
}

impl Queues {
    /// Whether a frame goes to the host.
    fn admits(&mut self, refusal: Refusal, destination: Destination, start: &[u8], now: u64) -> bool {
        let Some(class) = Class::of(refusal, destination, start) else { return false };
        if !self.shared.police.lets_pass(class, now) {
            if self.beyond.class != class {
                self.count_beyond();
                self.beyond.class = class;
            }
            self.beyond.frames += 1;
            return false;
        }
        let admits = self.to_host.spare() > self.waiting.len() + reserved(class, self.to_host.capacity());
        if !admits {
            count(&self.shared.queue_full);
        }
        admits
    }

    fn count_beyond(&mut self) {
        let Beyond { class, frames } = &mut self.beyond;
        if *frames > 0 {
            self.shared.police.count_dropped(*class, std::mem::take(frames));
        }
    }

    /// Drops the first packets of a frame that does not fit whole.
    fn forget_torn(&mut self) {
        while self.waiting.last().is_some_and(Packet::continues) {
            drop(self.waiting.pop());
        }
        count(&self.shared.queue_full);
    }
}

/// Frames that the host has sent by a twin.
#[derive(Debug)]
struct HostRx {
    ring: PacketReceiver,
    bell: Arc<Bell>,
    counters: RxCounters,
}

impl RxQueue for HostRx {
    fn recv<'b>(&mut self, _: &mut PoolCache, batch: &'b mut Batch) -> &'b mut [Packet] {
        let packets = self.ring.recv(batch);
        self.counters.packets += packets.len() as u64;
        packets
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn is_ready(&mut self) -> bool {
        !self.ring.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.bell.arm()
    }

    fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Police, Rates};
    use mempool::{Pool, PoolConfig};

    const FOR_HOST: (Refusal, Destination) = (Refusal::ForHost, Destination::Host);

    /// An IPv4 packet of a protocol, to a port, from a station of the link.
    fn frame(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45][..], &[0; 49]].concat();
        frame[22] = 255;
        frame[23] = protocol;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn a_flood_of_one_class_leaves_room_for_those_that_matter_more() {
        let (to_host, mut taken) = lcore::ring(64);
        let (_unused, from_host) = lcore::ring(64);
        let bell = Arc::new(Bell::new().unwrap());
        let mut lane = Lane::new(&bell, &bell);
        lane.add(to_host, from_host, &Arc::new(Shared::new(Police::new(&Rates::default(), 1))));
        let pool = Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() }).unwrap();
        let (mut cache, mut now) = (pool.cache(), 0);
        let mut flood = |lane: &mut Lane, frame: &[u8]| {
            // A second apart, so that no rate keeps any out.
            let fits = |_: &usize| {
                now += 1;
                lane.offer(0, cache.alloc_from(frame).unwrap(), FOR_HOST, now).is_none()
            };
            (0..100).take_while(fits).count()
        };
        let (ping, bgp) = (frame(1, 0), frame(6, 179));
        assert_eq!([&ping, &bgp, &ping].map(|frame| flood(&mut lane, frame)), [32, 16, 0]);
        let arp = [&[0xFF; 12][..], &[8, 6], &[0; 28]].concat();
        let few = [frame(17, 3784), frame(89, 0), frame(112, 0), arp];
        let taken_of = |lane: &mut Lane, frame: &[u8]| {
            let packets = (0..4).map(|_| pool.cache().alloc_from(frame).unwrap());
            packets.filter_map(|packet| lane.offer(0, packet, FOR_HOST, u64::MAX / 2)).count()
        };
        assert_eq!(few.map(|frame| taken_of(&mut lane, &frame)), [0; 4], "none is left out");
        assert_eq!(lane.hand_over(0, &mut pool.cache()), HandedOver { frames: 64, dropped: 0 });
        assert_eq!(taken.recv(&mut Batch::with_capacity(64)).len(), 64);
    }
}
