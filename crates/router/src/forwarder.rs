//! A burst through the router: check, look up, rewrite, regroup.

use crate::check::Refusal;
use crate::egress::Egress;
use crate::ethernet::{self, HEADER, Interface, Station, Stations, TAG};
use crate::fib::{Follower, View, stations};
use crate::hops::Shared;
use crate::judge::{self, Judged, Mode, Verdict};
use crate::rewrite::{FileHops, Hops, NextHops, SendPlain as _, number};
use crate::{ipv4, ipv6};
use lpm::{Ipv4Reader, Ipv6Reader, NextHop};
use mempool::{Batch, Packet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::{Ipv4Header, Ipv6Header};

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
    hops: Vec<Option<NextHop>>,
}

impl Forwarder {
    pub(crate) fn new(fib: Follower, interfaces: &Arc<[Interface]>, miss: Miss) -> Self {
        let (interfaces, stations) = (Arc::clone(interfaces), stations(interfaces));
        Self { fib, judged: Judged::new(&interfaces), hops: Vec::new(), interfaces, stations, miss }
    }

    /// Routes all packets of `batch`, which were received on port `ingress`, into `egress`, and leaves `batch` empty.
    /// Returns the number of packets routed. Does nothing and returns 0 if `egress` does not have [room](Egress::room)
    /// for them or has fewer ports than the router, or if there is no port `ingress`.
    ///
    /// Frames with the same output keep their order. The headers of a frame must be in its first buffer. Bytes after
    /// the IP packet, such as the padding of short frames, are cut off of what leaves. IPv4 options are passed on without being
    /// read.
    #[inline(never)]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let Self { fib, interfaces, stations, miss, judged, hops } = self;
        let Some(station) = stations.get(ingress).copied() else { return 0 };
        if egress.room() < batch.len() || egress.ports() < interfaces.len() {
            return 0;
        }
        let View { v4, v6, adjacencies } = fib.newest();
        let table = Hops { next_hops: FileHops { adjacencies, interfaces, miss: *miss }, ingress };
        route(&table, Stations::both(station), (judged, hops), (v4, v6), batch, egress)
    }
}

/// Whom a frame is for that a [`LiveForwarder`] has refused: [`LiveForwarder::destination`].
///
/// ```
/// assert_ne!(router::Destination::Host, router::Destination::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The host, or whoever is on its links: an address of its own, a link-local one, a group.
    Host,
    /// Somebody else: it passes by.
    Elsewhere,
    /// The table does not say: nothing was looked up, or the interface leaves the family to the host, see
    /// [`LiveFib::set_families`](crate::LiveFib::set_families), which may have more addresses than the table knows.
    Unknown,
}

/// One thread's handle of a [`LiveFib`](crate::LiveFib). It allocates nothing once it has seen its longest burst, and takes no lock. What
/// it refuses is for somebody else to answer, a host's own stack for example: IPv4 packets with options are among it, which
/// a [`Forwarder`] passes on.
///
/// See [`LiveFib`](crate::LiveFib) for an example.
#[derive(Debug)]
pub struct LiveForwarder {
    pub(crate) shared: Arc<Shared>,
    seen: Arc<AtomicU64>,
    pub(crate) v4: Ipv4Reader,
    pub(crate) v6: Ipv6Reader,
    /// For each port how many of its next bursts are looked through for packets that leave by the port they came by.
    pub(crate) seeks: Box<[u8]>,
    judged: Judged,
    hops: Vec<Option<NextHop>>,
}

impl LiveForwarder {
    pub(crate) fn new(shared: &Arc<Shared>, v4: Ipv4Reader, v6: Ipv6Reader) -> Self {
        let (seen, shared) = (shared.join(), Arc::clone(shared));
        let seeks = vec![0; shared.interfaces().ports()].into_boxed_slice();
        Self { seen, shared, v4, v6, seeks, judged: Judged::new_live(), hops: Vec::new() }
    }

    /// As [`Forwarder::route`], but for options and VLANs: a frame with the tag of a sub-interface of the port comes in by that, and one
    /// that leaves by a sub-interface gets its tag, with priority 0. `egress` is by ports.
    #[inline(never)]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let ports = self.shared.interfaces().ports();
        if ingress >= ports || egress.room() < batch.len() || egress.ports() < ports {
            return 0;
        }
        self.shared.catch_up(&self.seen);
        let seeks = self.seeks.get(ingress).is_some_and(|bursts| *bursts > 0);
        let refused = if seeks { self.refuse_turned_back(ingress, batch, egress) } else { 0 };
        let Self { shared, v4, v6, judged, hops, .. } = self;
        let table = Hops { next_hops: &**shared, ingress };
        refused + route(&table, shared.interfaces().stations(ingress), (judged, hops), (v4, v6), batch, egress)
    }

    /// Returns whom a frame is for that came in by port `ingress` and was refused for `refusal`, where that says nothing of it; `frame` begins
    /// with its headers. Of other refusals it is [`Destination::Unknown`].
    #[inline(always)]
    pub fn destination(&mut self, ingress: usize, refusal: Refusal, frame: &[u8]) -> Destination {
        match refusal {
            Refusal::Ttl | Refusal::LeftToHost | Refusal::MartianSource => self.find_destination(ingress, frame),
            Refusal::MartianDestination => Destination::Host,
            _ => Destination::Unknown,
        }
    }

    /// [`Self::destination`] of a frame that has passed all checks before those of its addresses.
    #[inline(always)]
    fn find_destination(&mut self, ingress: usize, frame: &[u8]) -> Destination {
        match frame.first_chunk() {
            // The short cut for IPv4 without a tag.
            Some(start) if ipv4::is_untagged(start) => {
                let to = ipv4::destination(start);
                let entrance =
                    || self.shared.interfaces().untagged_entrance(ingress, *start.first_chunk().unwrap_or(&[0; 8]));
                let hop = self.v4.lookup(to.into());
                self.shared.whose(ipv4::is_martian(to), hop, || entrance().is_some_and(|by| by.families[0]))
            }
            _ => self.find_any_destination(ingress, frame),
        }
    }

    #[inline(never)]
    fn find_any_destination(&mut self, ingress: usize, frame: &[u8]) -> Destination {
        let vlan = ethernet::vlan(frame);
        let header = if vlan.is_some() { HEADER + TAG } else { HEADER };
        let packet = frame.get(header..).unwrap_or_default();
        let is_v6 = frame.get(header - 2..header) == Some(&ethernet::IPV6);
        let (is_of_the_link, hop) = if is_v6 {
            let Some(header) = Ipv6Header::first(packet) else { return Destination::Unknown };
            let to = header.destination();
            (ipv6::is_martian(to.to_bits()), self.v6.lookup(to))
        } else {
            let Some(header) = Ipv4Header::first(packet) else { return Destination::Unknown };
            let to = header.destination();
            (ipv4::is_martian(to.to_bits()), self.v4.lookup(to))
        };
        let entrance = || self.shared.interfaces().entrance(ingress, vlan, frame.first_chunk().copied());
        self.shared.whose(is_of_the_link, hop, || entrance().is_some_and(|by| by.families[usize::from(is_v6)]))
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
    table: &Hops<N>,
    stations: Stations,
    (judged, hops): (&mut Judged, &mut Vec<Option<NextHop>>),
    (v4, v6): (&mut Ipv4Reader, &mut Ipv6Reader),
    batch: &mut Batch,
    egress: &mut Egress,
) -> usize {
    let count = batch.len();
    if let [packet] = &mut batch[..]
        && let Some(port) = send_lone(packet, stations.v4, judged.longest, v4, table)
    {
        batch.distribute(egress.outputs(), |_| port.into());
        return count;
    }
    if hops.len() < count {
        hops.resize(count, None);
        judged.grow(count);
    }
    judged.judge(batch, stations, table);
    if N::CHANGE && judged.refused_count == count {
        set_aside(batch, &judged.verdicts, egress);
        return count;
    }
    look_up(v4, v6, judged, &mut hops[..count]);
    if judged.mode != Mode::Usual {
        if judged.mode == Mode::Tagged {
            return route_tagged(table, judged, hops, batch, egress);
        }
        table.rewrite_frames(batch, judged, hops);
    } else if judged.other_count > 0 {
        table.rewrite_others(batch, judged, hops);
    }
    let near = table.next_hops.near();
    let (hops, mut next, mut left) = (&hops[..count], 0, 0);
    batch.distribute(egress.outputs(), |packet| {
        let at = next;
        next += 1;
        let hop = hops.get(at).copied().flatten();
        match near.send(number(hop), packet) {
            Some(port) => port.into(),
            None => table.settle(packet, at, hop, judged, &mut left),
        }
    });
    if !batch.is_empty() {
        set_aside(batch, &judged.verdicts, egress);
    }
    count
}

/// The end of [`route`], of a burst in which there are tags: packets mostly leave by VLANs too.
#[inline(never)]
fn route_tagged<N: NextHops>(
    table: &Hops<N>,
    judged: &mut Judged,
    hops: &mut [Option<NextHop>],
    batch: &mut Batch,
    egress: &mut Egress,
) -> usize {
    let count = batch.len();
    if judged.other_count > 0 {
        table.rewrite_others(batch, judged, hops);
    }
    let near = table.next_hops.near();
    let (hops, mut next, mut left) = (&hops[..count], 0, 0);
    batch.distribute(egress.outputs(), |packet| {
        let at = next;
        next += 1;
        let hop = hops.get(at).copied().flatten();
        // Of packets that were judged otherwise there is no next hop.
        let sent = if judged.verdicts.get(at) == Some(&Verdict::Tagged) {
            table.next_hops.send_retagged(number(hop), packet)
        } else {
            table.next_hops.send_tagged(number(hop), packet).or_else(|| near.send(number(hop), packet))
        };
        sent.map_or_else(|| table.settle_rest(packet, at, hop, judged, &mut left), usize::from)
    });
    if !batch.is_empty() {
        set_aside(batch, &judged.verdicts, egress);
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
fn send_lone<N: NextHops>(
    packet: &mut Packet,
    station: Station,
    longest: u16,
    routes: &mut Ipv4Reader,
    table: &Hops<N>,
) -> Option<u16> {
    if packet.continues() {
        return None;
    }
    let mut cut = 0;
    let longest = if N::CHANGE { u16::MAX } else { longest };
    let destination = judge::plain(packet, station, longest, |packet, end| judge::cut(packet, end, &mut cut))?;
    let sent = table.next_hops.near().send(number(routes.lookup(destination.into())), packet);
    if sent.is_none() {
        judge::restore(packet, &mut cut);
    }
    sent
}

/// Looks up the next hops of both families.
#[inline(always)]
fn look_up(routes: &mut Ipv4Reader, v6_routes: &mut Ipv6Reader, judged: &mut Judged, hops: &mut [Option<NextHop>]) {
    let Judged { v4, v6, v6_hops, v6_count, .. } = judged;
    if *v6_count < hops.len() {
        routes.lookup_batch(&v4[..hops.len()], hops);
    }
    if *v6_count > 0 {
        v6_routes.lookup_batch(&v6[..*v6_count], &mut v6_hops[..*v6_count]);
    }
}
