//! A burst through the router: check, look up, rewrite, regroup.

use crate::check::{self, Passed, Refusal};
use crate::egress::Egress;
use crate::ethernet::{HEADER, Interface, Station};
use crate::fib::{Adjacency, Follower, stations};
use crate::ipv4;
use lpm::NextHop;
use mempool::{Batch, Packet};
use std::sync::Arc;

/// What becomes of frames that there is no route for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// They are refused, as routers do.
    #[default]
    Refuse,
    /// They go back to the station they came from, one hop older.
    Return,
}

/// One thread's handle of a router. It allocates nothing once it has seen its longest burst, takes no lock unless
/// the routes were replaced, and never panics, whatever is in a frame.
///
/// The crate's documentation has an example.
#[derive(Debug)]
pub struct Forwarder {
    fib: Follower,
    interfaces: Arc<[Interface]>,
    stations: Box<[Station]>,
    miss: Miss,
    scratch: Scratch,
}

/// What is known of each packet of a burst.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ipv4,
    Ipv6,
    /// Goes where the packet before goes: the same frame in a further buffer.
    Follows,
    /// Holds nothing but bytes behind the IP packet.
    Surplus,
    /// Part of a frame in several buffers, which is not looked at yet.
    Chained,
    Refused(Refusal),
}

/// Where a frame goes.
#[derive(Clone, Copy)]
enum Way {
    Out(u16),
    Refused(Refusal),
}

impl Forwarder {
    pub(crate) fn new(fib: Follower, interfaces: &Arc<[Interface]>, miss: Miss) -> Self {
        let stations = stations(interfaces);
        Self { fib, interfaces: Arc::clone(interfaces), stations, miss, scratch: Scratch::default() }
    }

    /// Routes all packets of `batch`, which came in by port `ingress`, into `egress`, and leaves it empty. Returns how
    /// many they were. Does nothing and returns 0 when `egress` has not that much [room](Egress::room), or there is
    /// no such port.
    ///
    /// Frames with the same output keep their order. The headers of a frame must be in its first buffer. Bytes behind
    /// the IP packet, such as the padding of short frames, are cut off. IPv4 options pass unread.
    #[inline]
    pub fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let count = batch.len();
        let Some(station) = self.stations.get(ingress).copied() else { return 0 };
        if egress.room() < count {
            return 0;
        }
        self.scratch.prepare(count);
        self.scratch.judge(batch, station);
        self.look_up(count);
        self.dispatch(ingress, batch, egress);
        count
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

    /// Moves each packet to where it goes.
    #[inline(always)]
    fn dispatch(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) {
        let Self { fib, scratch, interfaces, miss, .. } = self;
        let adjacencies = &*fib.current().adjacencies;
        let mut last = Way::Refused(Refusal::NotIp);
        for ((mut packet, verdict), hop) in batch.drain().zip(&scratch.verdicts).zip(&scratch.hops) {
            let is_ip = matches!(verdict, Verdict::Ipv4 | Verdict::Ipv6);
            let adjacency = hop.and_then(|hop| adjacencies.get(hop.get() as usize));
            last = match adjacency {
                Some(adjacency) if is_ip => send_on(&mut packet, *verdict, adjacency),
                _ => {
                    let back = (*miss == Miss::Return).then(|| (ingress, &interfaces[ingress]));
                    match unusual(&mut packet, *verdict, last, back) {
                        Some(way) => way,
                        None => continue,
                    }
                }
            };
            match last {
                Way::Out(port) => egress.send(port, packet),
                Way::Refused(refusal) => egress.refuse(packet, refusal),
            }
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
        let Self { verdicts, v4, v6, v6_packets, .. } = self;
        let (mut chained, mut inside) = (false, false);
        for (at, ((packet, verdict), v4)) in batch.iter_mut().zip(verdicts).zip(v4).enumerate() {
            let tail = inside;
            inside = packet.continues();
            if tail | inside {
                *verdict = Verdict::Chained;
                chained = true;
                continue;
            }
            let data = packet.data();
            let plain = data.first_chunk().and_then(|start| ipv4::plain(start, data.len(), station));
            let passed = match plain {
                Some((destination, total)) => Ok(Passed::Ipv4 { destination, end: HEADER + total }),
                None => check::check(data, data.len(), station),
            };
            let end;
            (*verdict, end) = match passed {
                Ok(Passed::Ipv4 { destination, end }) => {
                    *v4 = destination;
                    (Verdict::Ipv4, end)
                }
                Ok(Passed::Ipv6 { destination, end }) => {
                    v6.push(destination);
                    v6_packets.push(at);
                    (Verdict::Ipv6, end)
                }
                Err(refusal) => (Verdict::Refused(refusal), usize::MAX),
            };
            if end < packet.len() {
                packet.truncate(end);
            }
        }
        if chained {
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
            let segments = batch[at..].iter().take_while(|packet| packet.continues()).count() + 1;
            let past = (at + segments).min(batch.len());
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

/// Gives a frame that passed its new header and one hop less to live.
#[inline(always)]
fn send_on(packet: &mut Packet, verdict: Verdict, adjacency: &Adjacency) -> Way {
    // Longer than this, or it would not have passed.
    let Some(start) = packet.data_mut().first_chunk_mut::<SHORTEST>() else {
        return Way::Refused(Refusal::HeaderLength);
    };
    let [addresses @ .., _, _, _, _, _, _, _, _, _, hop_limit, ttl, _, sum_high, sum_low] = start;
    *addresses = adjacency.addresses;
    if verdict == Verdict::Ipv4 {
        let mut checksum = [*sum_high, *sum_low];
        ipv4::hop(ttl, &mut checksum);
        [*sum_high, *sum_low] = checksum;
    } else {
        *hop_limit = hop_limit.wrapping_sub(1);
    }
    Way::Out(adjacency.port)
}

/// Where a packet goes that does not simply leave by its route; `None` if it ends here. `back` is the port it came from,
/// if misses go back.
#[cold]
fn unusual(packet: &mut Packet, verdict: Verdict, last: Way, back: Option<(usize, &Interface)>) -> Option<Way> {
    match (verdict, back) {
        (Verdict::Follows, _) => Some(last),
        (Verdict::Surplus, _) => None,
        (Verdict::Refused(refusal), _) => Some(Way::Refused(refusal)),
        (Verdict::Ipv4 | Verdict::Ipv6, Some((port, interface))) => {
            Some(return_to_sender(packet, verdict, port, interface))
        }
        (Verdict::Ipv4 | Verdict::Ipv6 | Verdict::Chained, _) => Some(Way::Refused(Refusal::NoRoute)),
    }
}

/// Sends a frame back to the station it came from; not if that calls itself a group.
fn return_to_sender(packet: &mut Packet, verdict: Verdict, port: usize, interface: &Interface) -> Way {
    match (packet.data(), u16::try_from(port)) {
        ([_, _, _, _, _, _, a, b, c, d, e, f, ..], Ok(port)) if a & 1 == 0 => {
            let adjacency = Adjacency::new([*a, *b, *c, *d, *e, *f], port, interface);
            send_on(packet, verdict, &adjacency)
        }
        _ => Way::Refused(Refusal::NoRoute),
    }
}

/// Bytes that every frame that passes has: Ethernet header, and IPv4 header up to its checksum.
const SHORTEST: usize = HEADER + 12;
