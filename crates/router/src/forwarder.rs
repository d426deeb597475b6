//! A burst through the router: check, look up, rewrite, regroup.

use crate::check::{self, Passed, Refusal};
use crate::egress::Egress;
use crate::ethernet::{HEADER, Interface, Station};
use crate::fib::{Adjacency, Follower, stations};
use crate::ipv4::SHORTEST;
use lpm::NextHop;
use mempool::{Batch, Packet};
use std::sync::Arc;

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
    scratch: Scratch,
}

/// What is known of each packet of a burst. No vector but those for IPv6 is ever shorter than a burst was.
#[derive(Debug, Default)]
struct Scratch {
    verdicts: Vec<Verdict>,
    /// IPv4 destinations; anything for other packets. They are looked up along, which costs less than sorting.
    v4: Vec<u32>,
    hops: Vec<Option<NextHop>>,
    /// IPv6 destinations, and whose they are.
    v6: Vec<u128>,
    v6_packets: Vec<usize>,
    v6_hops: Vec<Option<NextHop>>,
    /// Some frame is in several buffers.
    chained: bool,
    /// Some frame is longer than some port sends.
    long: bool,
    /// The smallest MTU of all ports, and how much it leaves behind an IPv4 header without options.
    least_mtu: usize,
    least_payload: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Passed; its next hop is to be looked up.
    Ipv4,
    /// As above.
    Ipv6,
    /// Leaves by this port.
    Out(u16),
    Refused(Refusal),
    /// Goes where the packet before goes: the same frame in a further buffer.
    Follows,
    /// Holds nothing but bytes behind the IP packet.
    Surplus,
    /// Part of a frame in several buffers, which is not looked at yet.
    Chained,
}

impl Forwarder {
    pub(crate) fn new(fib: Follower, interfaces: &Arc<[Interface]>, miss: Miss) -> Self {
        let stations = stations(interfaces);
        let least_mtu: usize = interfaces.iter().map(|interface| interface.mtu.into()).min().unwrap_or_default();
        let least_payload = least_mtu.saturating_sub(SHORTEST);
        let scratch = Scratch { least_mtu, least_payload, ..Scratch::default() };
        Self { fib, interfaces: Arc::clone(interfaces), stations, miss, scratch }
    }

    /// Routes all packets of `batch`, which were received on port `ingress`, into `egress`, and leaves `batch` empty.
    /// Returns the number of packets routed. Does nothing and returns 0 if `egress` does not have [room](Egress::room)
    /// for them or has fewer ports than the router, or if there is no port `ingress`.
    ///
    /// Frames with the same output keep their order. The headers of a frame must be in its first buffer. Bytes after
    /// the IP packet, such as the padding of short frames, are cut off. IPv4 options are passed on without being read.
    #[inline]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let count = batch.len();
        let Some(station) = self.stations.get(ingress).copied() else { return 0 };
        if egress.room() < count || egress.ports() < self.interfaces.len() {
            return 0;
        }
        self.scratch.prepare(count);
        self.scratch.judge(batch, station);
        self.look_up(count);
        if self.scratch.chained | self.scratch.long {
            self.rewrite_unusual(ingress, batch);
        }
        let Self { fib, scratch: Scratch { verdicts, hops, .. }, interfaces, miss, .. } = self;
        let table = Hops { adjacencies: &fib.current().adjacencies, interfaces, miss: *miss, ingress };
        let (mut at, mut left) = (0, 0);
        let outputs = egress.outputs();
        let ports = outputs.len();
        batch.distribute(outputs, |packet| {
            let verdict = table.rewrite(packet, None, verdicts[at], hops[at]);
            at += 1;
            if let Verdict::Out(port) = verdict
                && usize::from(port) < ports
            {
                return port.into();
            }
            verdicts[left] = verdict;
            left += 1;
            usize::MAX
        });
        for (packet, verdict) in batch.drain().zip(&self.scratch.verdicts) {
            set_aside(packet, *verdict, egress);
        }
        count
    }

    /// Gives every packet its last verdict, where frames are in several buffers or may be too long for their port.
    #[cold]
    #[inline(never)]
    fn rewrite_unusual(&mut self, ingress: usize, batch: &mut Batch) {
        let Self { fib, scratch: Scratch { verdicts, hops, .. }, interfaces, miss, .. } = self;
        let table = Hops { adjacencies: &fib.current().adjacencies, interfaces, miss: *miss, ingress };
        let mut at = 0;
        while at < batch.len() {
            let segments = segments(&batch[at..]);
            let len = batch[at..at + segments].iter().map(Packet::len).sum();
            for index in at..at + segments {
                verdicts[index] = table.rewrite(&mut batch[index], Some(len), verdicts[index], hops[index]);
            }
            at += segments;
        }
        keep_together(verdicts);
    }

    #[inline(always)]
    fn look_up(&mut self, count: usize) {
        let Scratch { v4, hops, v6, v6_packets, v6_hops, .. } = &mut self.scratch;
        let view = self.fib.newest();
        view.v4.lookup_batch(&v4[..count], &mut hops[..count]);
        if !v6.is_empty() {
            v6_hops.resize(v6.len(), None);
            view.v6.lookup_batch(v6, v6_hops);
            for (packet, hop) in v6_packets.iter().zip(&*v6_hops) {
                hops[*packet] = *hop;
            }
        }
    }
}

/// What next hops stand for.
struct Hops<'a> {
    adjacencies: &'a [Adjacency],
    interfaces: &'a [Interface],
    miss: Miss,
    ingress: usize,
}

impl Hops<'_> {
    /// Gives a frame that has a route its new header. Answers the packet's last verdict. `len` are the bytes of the frame, in one
    /// buffer or several, unless it is short enough for every port.
    #[inline(always)]
    fn rewrite(&self, packet: &mut Packet, len: Option<usize>, verdict: Verdict, hop: Option<NextHop>) -> Verdict {
        let adjacency = hop.and_then(|hop| self.adjacencies.get(hop.get() as usize));
        match (verdict, adjacency) {
            (Verdict::Ipv4, Some(adjacency)) => send_on::<false>(packet, len, adjacency),
            (Verdict::Ipv6, Some(adjacency)) => send_on::<true>(packet, len, adjacency),
            (Verdict::Ipv4 | Verdict::Ipv6, None) => {
                let back = (self.miss == Miss::Return).then(|| (self.ingress, &self.interfaces[self.ingress]));
                missed(packet, len, verdict, back)
            }
            _ => verdict,
        }
    }
}

impl Scratch {
    /// Room for `count` packets.
    #[inline(always)]
    fn prepare(&mut self, count: usize) {
        if self.verdicts.len() < count {
            self.grow(count);
        }
        self.v6.clear();
        self.v6_packets.clear();
        (self.chained, self.long) = (false, false);
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.verdicts.resize(count, Verdict::Chained);
        self.v4.resize(count, 0);
        self.hops.resize(count, None);
    }

    /// Checks all frames: a verdict for each, and the destination of those that pass.
    #[inline(always)]
    fn judge(&mut self, batch: &mut Batch, station: Station) {
        let Self { verdicts, v4, v6, v6_packets, chained, long, least_mtu, least_payload, .. } = self;
        let mut inside = false;
        for (at, ((packet, verdict), v4)) in batch.iter_mut().zip(verdicts).zip(v4).enumerate() {
            let tail = inside;
            inside = packet.continues();
            if tail | inside {
                *verdict = Verdict::Chained;
                *chained = true;
                continue;
            }
            let (data, len) = (packet.data(), packet.len());
            let plain = data.first_chunk().and_then(|start| crate::ipv4::plain(start, len, station, *least_payload));
            if let Some((destination, total)) = plain {
                (*v4, *verdict) = (destination, Verdict::Ipv4);
                if HEADER + total != len {
                    packet.truncate(HEADER + total);
                }
                continue;
            }
            match check::check(data, len, station) {
                Ok(Passed::Ipv4 { destination, end }) => {
                    (*v4, *verdict) = (destination, Verdict::Ipv4);
                    packet.truncate(end);
                    *long |= end > HEADER + *least_mtu;
                }
                Ok(Passed::Ipv6 { destination, end }) => {
                    v6.push(destination);
                    v6_packets.push(at);
                    *verdict = Verdict::Ipv6;
                    packet.truncate(end);
                    *long |= end > HEADER + *least_mtu;
                }
                Err(refusal) => *verdict = Verdict::Refused(refusal),
            }
        }
        if *chained {
            self.judge_chains(batch, station);
        }
    }

    /// Checks the frames that are in several buffers.
    #[cold]
    #[inline(never)]
    fn judge_chains(&mut self, batch: &mut Batch, station: Station) {
        let mut at = 0;
        while at < batch.len() {
            if self.verdicts[at] != Verdict::Chained {
                at += 1;
                continue;
            }
            let past = at + segments(&batch[at..]);
            let frame = &mut batch[at..past];
            let len = frame.iter().map(Packet::len).sum();
            let (verdict, end) = match check::check(frame[0].data(), len, station) {
                Ok(Passed::Ipv4 { destination, end }) => {
                    self.v4[at] = destination;
                    (Verdict::Ipv4, end)
                }
                Ok(Passed::Ipv6 { destination, end }) => {
                    self.v6.push(destination);
                    self.v6_packets.push(at);
                    (Verdict::Ipv6, end)
                }
                Err(refusal) => (Verdict::Refused(refusal), len),
            };
            self.verdicts[at] = verdict;
            let mut rest = end;
            for (index, packet) in frame.iter_mut().enumerate() {
                if index > 0 {
                    self.verdicts[at + index] = if rest == 0 { Verdict::Surplus } else { Verdict::Follows };
                }
                packet.truncate(rest);
                rest -= packet.len();
                if rest == 0 {
                    packet.set_continues(false);
                }
            }
            at = past;
        }
    }
}

/// How many packets the first frame of `packets` is in.
fn segments(packets: &[Packet]) -> usize {
    (packets.iter().take_while(|packet| packet.continues()).count() + 1).min(packets.len())
}

/// Gives a frame that passed its new header and one hop less to live, unless it is too long for the port.
#[inline(always)]
fn send_on<const V6: bool>(packet: &mut Packet, len: Option<usize>, adjacency: &Adjacency) -> Verdict {
    if len.is_some_and(|len| adjacency.refuses(len)) {
        return Verdict::Refused(Refusal::TooBig);
    }
    // Longer than this, or it would not have passed.
    let Some(start) = packet.data_mut().first_chunk_mut::<{ HEADER + SHORTEST }>() else {
        return Verdict::Refused(Refusal::HeaderLength);
    };
    let (addresses, _) = start.as_chunks_mut::<12>();
    addresses[0] = adjacency.addresses;
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, ip @ ..] = start;
    if V6 {
        ip[7] = ip[7].wrapping_sub(1);
    } else {
        wire::hop(ip);
    }
    Verdict::Out(adjacency.port)
}

/// What becomes of a frame without a route: refused, or `back` to the station it came from, if that is one.
#[cold]
fn missed(packet: &mut Packet, len: Option<usize>, verdict: Verdict, back: Option<(usize, &Interface)>) -> Verdict {
    let Some((port, interface)) = back else { return Verdict::Refused(Refusal::NoRoute) };
    match (packet.data(), u16::try_from(port)) {
        ([_, _, _, _, _, _, a, b, c, d, e, f, ..], Ok(port)) if a & 1 == 0 => {
            let adjacency = Adjacency::new([*a, *b, *c, *d, *e, *f], port, interface);
            let is_v6 = verdict == Verdict::Ipv6;
            if is_v6 { send_on::<true>(packet, len, &adjacency) } else { send_on::<false>(packet, len, &adjacency) }
        }
        _ => Verdict::Refused(Refusal::NoRoute),
    }
}

/// Gives the further buffers of a frame the verdict of the first.
#[cold]
fn keep_together(verdicts: &mut [Verdict]) {
    let mut last = Verdict::Surplus;
    for verdict in verdicts {
        match verdict {
            Verdict::Follows => *verdict = last,
            Verdict::Surplus => {}
            first => last = *first,
        }
    }
}

/// Takes a packet that does not leave out of the way. Those that hold nothing of their frame end here.
#[cold]
fn set_aside(packet: Packet, verdict: Verdict, egress: &mut Egress) {
    match verdict {
        Verdict::Surplus => drop(packet),
        Verdict::Refused(refusal) => egress.refuse(packet, refusal),
        _ => egress.refuse(packet, Refusal::NoRoute),
    }
}
