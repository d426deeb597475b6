//! A burst through the router: check, look up, rewrite, regroup.

use crate::check::Refusal;
use crate::egress::Egress;
use crate::ethernet::{Interface, Station};
use crate::fib::{Follower, View, stations};
use crate::hops::{Shared, Switched};
use crate::judge::{self, Judged, Verdict};
use crate::rewrite::{Hops, NextHops};
use lpm::{Ipv4Reader, Ipv6Reader};
use mempool::{Batch, Packet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What happens to frames for which there is no route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// They are refused, as by any router.
    #[default]
    Refuse,
    /// They are sent back to the station they came from, with time to live or hop limit reduced by one.
    Return,
}

/// One thread's handle of a router. It allocates nothing once it has seen its longest burst. It takes a lock only in
/// its first burst after [`Fib::replace`](crate::Fib::replace), for the time it takes to change a handful of reference
/// counters. No content of a frame makes it panic: tests and the fuzz target `router` compare it with a router written
/// from the RFCs.
///
/// See the crate's documentation for an example.
#[derive(Debug)]
pub struct Forwarder {
    fib: Follower,
    interfaces: Arc<[Interface]>,
    stations: Box<[Station]>,
    miss: Miss,
    judged: Judged,
}

impl Forwarder {
    pub(crate) fn new(fib: Follower, interfaces: &Arc<[Interface]>, miss: Miss) -> Self {
        let (interfaces, stations) = (Arc::clone(interfaces), stations(interfaces));
        Self { fib, judged: Judged::new(&interfaces), interfaces, stations, miss }
    }

    /// Routes all packets of `batch`, which were received on port `ingress`, into `egress`, and leaves `batch` empty.
    /// Returns the number of packets routed. Does nothing and returns 0 if `egress` does not have [room](Egress::room)
    /// for them or has fewer ports than the router, or if there is no port `ingress`.
    ///
    /// Frames with the same output keep their order. The headers of a frame must be in its first buffer. Bytes after
    /// the IP packet, such as the padding of short frames, are cut off. IPv4 options are passed on without being read.
    #[inline(never)]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let Self { fib, interfaces, stations, miss, judged } = self;
        let Some(station) = stations.get(ingress).copied() else { return 0 };
        if egress.room() < batch.len() || egress.ports() < interfaces.len() {
            return 0;
        }
        let View { v4, v6, adjacencies } = fib.newest();
        let table = Hops { next_hops: &**adjacencies, interfaces, miss: *miss, ingress };
        route(&table, station, judged, (v4, v6), batch, egress)
    }
}

/// One thread's handle of a [`LiveFib`](crate::LiveFib). It allocates nothing once it has seen its longest burst, and takes no lock. What
/// it refuses is for somebody else to answer, a host's own stack for example: IPv4 packets with options are among it, which
/// a [`Forwarder`] passes on.
///
/// See [`LiveFib`](crate::LiveFib) for an example.
#[derive(Debug)]
pub struct LiveForwarder {
    shared: Arc<Shared>,
    seen: Arc<AtomicU64>,
    v4: Ipv4Reader,
    v6: Ipv6Reader,
    judged: Judged,
}

impl LiveForwarder {
    pub(crate) fn new(shared: &Arc<Shared>, v4: Ipv4Reader, v6: Ipv6Reader) -> Self {
        Self { seen: shared.join(), shared: Arc::clone(shared), v4, v6, judged: Judged::new_live() }
    }

    /// As [`Forwarder::route`], but for options.
    #[inline(never)]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let Self { shared, seen, v4, v6, judged } = self;
        if ingress >= shared.ports() || egress.room() < batch.len() || egress.ports() < shared.ports() {
            return 0;
        }
        shared.catch_up(seen);
        let off = shared.off(ingress);
        if off != 0 {
            return self.route_switched(off, ingress, batch, egress);
        }
        let table = Hops { next_hops: &**shared, interfaces: &[], miss: Miss::Refuse, ingress };
        route(&table, shared.station(ingress), judged, (v4, v6), batch, egress)
    }

    /// As [`Self::route`], where a family is left to the host.
    #[cold]
    #[inline(never)]
    fn route_switched(&mut self, off: u8, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let Self { shared, v4, v6, judged, .. } = self;
        let next_hops = Switched { shared, off };
        let table = Hops { next_hops, interfaces: &[], miss: Miss::Refuse, ingress };
        route(&table, shared.station(ingress), judged, (v4, v6), batch, egress)
    }

    /// Tells the table that nothing is under way here. [`Self::route`] does so too, so call it when no packets come, now and then: numbers
    /// of next hops that were removed wait for it.
    pub fn catch_up(&mut self) {
        self.shared.catch_up(&self.seen);
    }
}

/// Routes a burst for which there is room. Returns how many packets it had.
#[inline(always)]
fn route<N: NextHops>(
    table: &Hops<'_, N>,
    station: Station,
    judged: &mut Judged,
    (v4, v6): (&mut Ipv4Reader, &mut Ipv6Reader),
    batch: &mut Batch,
    egress: &mut Egress,
) -> usize {
    let count = batch.len();
    if let [packet] = &mut batch[..]
        && let Some(port) = send_lone(packet, station, judged.longest, v4, table)
    {
        batch.distribute(egress.outputs(), |_| port.into());
        return count;
    }
    judged.judge(batch, station);
    look_up(v4, v6, judged, count);
    if judged.unusual {
        table.rewrite_frames(batch, judged);
    } else if judged.other_count > 0 {
        table.rewrite_others(batch, judged);
    }
    let Judged { v4, verdicts, hops, .. } = judged;
    let (mut hops, mut left) = (hops[..count].iter(), 0);
    batch.distribute(egress.outputs(), |packet| {
        let hop = hops.next().copied().flatten();
        if let Some(port) = table.send_plain(packet, hop) {
            return port.into();
        }
        let at = count - 1 - hops.len();
        let verdict = table.settle(packet, v4[at], verdicts[at], if N::CHANGE { hop } else { None });
        if let Verdict::Out(port) = verdict {
            return port.into();
        }
        verdicts[left] = verdict;
        left += 1;
        usize::MAX
    });
    if !batch.is_empty() {
        set_aside(batch, verdicts, egress);
    }
    count
}

/// Takes the packets that do not leave out of the way. Those that hold nothing of their frame end here.
#[inline(never)]
fn set_aside(batch: &mut Batch, verdicts: &[Verdict], egress: &mut Egress) {
    for (packet, verdict) in batch.drain().zip(verdicts) {
        match verdict {
            Verdict::Surplus => drop(packet),
            Verdict::Refused(refusal) => egress.refuse(packet, *refusal),
            _ => egress.refuse(packet, Refusal::NoRoute),
        }
    }
}

/// The straight path of a packet that is alone in its burst: if it is IPv4 without options and has a route, gives it its
/// new header and returns its port.
#[inline(always)]
fn send_lone(
    packet: &mut Packet,
    station: Station,
    longest: usize,
    routes: &mut Ipv4Reader,
    table: &Hops<'_, impl NextHops>,
) -> Option<u16> {
    if packet.continues() {
        return None;
    }
    let destination = judge::plain(packet, station, longest)?;
    table.send_plain(packet, routes.lookup(destination.into()))
}

/// Looks up the next hops of both families.
#[inline(always)]
fn look_up(routes: &mut Ipv4Reader, v6_routes: &mut Ipv6Reader, judged: &mut Judged, count: usize) {
    let Judged { v4, hops, v6, v6_hops, v6_count, .. } = judged;
    if *v6_count < count {
        routes.lookup_batch(&v4[..count], &mut hops[..count]);
    }
    if *v6_count > 0 {
        v6_routes.lookup_batch(&v6[..*v6_count], &mut v6_hops[..*v6_count]);
    }
}
