//! What routes a worker's bursts, and what becomes of the frames that it refuses.

use super::worker::Senders;
use device::tsc;
use mempool::{Batch, Packet, PoolCache};
use nic::RxQueue;
use router::{Egress, Forwarder, LiveForwarder, Refusal};
use twin::{HandedOver, Lane};

/// What routes the bursts of a worker. All but [`Self::route`] is for a host that gets what is refused; there is none by default.
pub(crate) trait Routes: Send + 'static {
    /// As [`Forwarder::route`].
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize;

    /// As [`Lane::offer`].
    #[inline(always)]
    fn offer(&mut self, _: usize, packet: Packet, _: Refusal, _now: u64) -> Option<Packet> {
        Some(packet)
    }

    /// As [`Lane::hand_over`].
    #[inline(always)]
    fn hand_over(&mut self, _: usize, _: &mut PoolCache) -> HandedOver {
        HandedOver::default()
    }

    /// Sends what the host has sent. Returns whether there was anything.
    #[inline(always)]
    fn send_of_host(&mut self, _: &mut Senders, _: &mut PoolCache) -> bool {
        false
    }

    /// Called now and then between two bursts.
    fn rest(&mut self) {}

    /// The queues from the host, which wake the worker.
    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        Vec::new()
    }
}

impl Routes for Forwarder {
    #[inline(always)]
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        self.route(ingress, batch, egress)
    }
}

/// Routes by the kernel's tables, with the kernel behind it.
#[derive(Debug)]
pub(super) struct ByKernel {
    forwarder: LiveForwarder,
    lane: Lane,
    of_host: Batch,
    next_seek: u64,
}

/// How often bursts of each port are looked through for a packet whose sender Linux is to send a redirect.
const SEEKS_A_SECOND: u64 = 10;

/// Packets of the host that are sent at a time.
const HOST_BURST: usize = 64;

impl ByKernel {
    pub(super) fn new(forwarder: LiveForwarder, lane: Lane) -> Self {
        Self { forwarder, lane, of_host: Batch::with_capacity(HOST_BURST), next_seek: tsc::now() }
    }
}

impl Routes for ByKernel {
    #[inline(always)]
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        self.forwarder.route(ingress, batch, egress)
    }

    #[inline(always)]
    fn offer(&mut self, port: usize, packet: Packet, refusal: Refusal, now: u64) -> Option<Packet> {
        let destination = self.forwarder.destination(port, refusal, packet.data());
        self.lane.offer(port, packet, (refusal, destination), now)
    }

    #[inline(always)]
    fn hand_over(&mut self, port: usize, cache: &mut PoolCache) -> HandedOver {
        self.lane.hand_over(port, cache)
    }

    #[inline(always)]
    fn send_of_host(&mut self, senders: &mut Senders, cache: &mut PoolCache) -> bool {
        self.lane.has_frames() && self.send_now(senders, cache)
    }

    fn rest(&mut self) {
        self.forwarder.catch_up();
        let now = tsc::now();
        if now >= self.next_seek {
            self.forwarder.seek_turned_back();
            self.next_seek = now + tsc::frequency_hz() / SEEKS_A_SECOND;
        }
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        self.lane.queues().collect()
    }
}

impl ByKernel {
    #[cold]
    #[inline(never)]
    fn send_now(&mut self, senders: &mut Senders, cache: &mut PoolCache) -> bool {
        let Self { lane, of_host, .. } = self;
        let mut moved = false;
        for port in 0..senders.ports() {
            if lane.receive(port, of_host) > 0 {
                moved = true;
                let unsent = senders.send_of_host(port, cache, of_host);
                lane.count_unsent(port, unsent);
            }
        }
        moved
    }
}
