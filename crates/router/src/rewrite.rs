//! The second half of a burst: new headers for the frames that have a route.

use crate::Miss;
use crate::check::Refusal;
use crate::ethernet::{HEADER, Interface};
use crate::fib::Adjacency;
use crate::ipv4::SHORTEST;
use crate::judge::{Judged, Verdict, segments};
use lpm::NextHop;
use mempool::{Batch, Packet};

/// Where the numbers of next hops lead.
pub(crate) trait NextHops: Copy {
    /// Whether that changes, and may be a reason to refuse. Lengths are looked at here then, not before.
    const CHANGE: bool;

    /// Returns the adjacency for a packet that is a whole frame, if it is to leave by it.
    fn plain(self, number: u32, packet: &Packet) -> Option<Adjacency>;

    /// Returns the adjacency for a frame whose headers `frame` begins with, however long it is, or why it is refused. No number is
    /// `u32::MAX`.
    fn any(self, number: u32, frame: &[u8]) -> Result<Adjacency, Refusal>;
}

impl NextHops for &[Adjacency] {
    const CHANGE: bool = false;

    #[inline(always)]
    fn plain(self, number: u32, _: &Packet) -> Option<Adjacency> {
        self.get(number as usize).copied()
    }

    #[inline(always)]
    fn any(self, number: u32, _: &[u8]) -> Result<Adjacency, Refusal> {
        self.get(number as usize).copied().ok_or(Refusal::NoRoute)
    }
}

/// What next hops stand for.
pub(crate) struct Hops<'a, N> {
    pub(crate) next_hops: N,
    pub(crate) interfaces: &'a [Interface],
    pub(crate) miss: Miss,
    pub(crate) ingress: usize,
}

impl<N: NextHops> Hops<'_, N> {
    /// Gives an IPv4 frame that passed and is short enough for every port its new header, if it has a route. Returns its
    /// port.
    #[inline(always)]
    pub(crate) fn send_plain(&self, packet: &mut Packet, hop: Option<NextHop>) -> Option<u16> {
        let adjacency = self.next_hops.plain(number(hop), packet)?;
        new_header::<false>(packet.data_mut().first_chunk_mut()?, &adjacency);
        Some(adjacency.port)
    }

    /// Returns the last verdict on a packet that [`Self::send_plain`] did not take. `v4` is its destination, or 0.
    #[inline(never)]
    pub(crate) fn settle(&self, packet: &mut Packet, v4: u32, verdict: Verdict, hop: Option<NextHop>) -> Verdict {
        if v4 == 0 { verdict } else { self.rewrite(packet, None, Verdict::Ipv4, hop) }
    }

    /// Gives the packets that have no IPv4 destination their last verdict, and no next hop.
    #[inline(never)]
    pub(crate) fn rewrite_others(&self, batch: &mut Batch, judged: &mut Judged) {
        let mut v6_hops = judged.v6_hops.iter().copied();
        for at in judged.others.iter().copied().take(judged.other_count) {
            judged.hops[at] = None;
            if judged.verdicts[at] == Verdict::Ipv6 {
                let hop = v6_hops.next().flatten();
                judged.verdicts[at] = self.rewrite(&mut batch[at], None, Verdict::Ipv6, hop);
            }
        }
    }

    /// Gives every packet its last verdict, where frames are in several buffers or may be too long for their port.
    #[cold]
    #[inline(never)]
    pub(crate) fn rewrite_frames(&self, batch: &mut Batch, judged: &mut Judged) {
        let Judged { v4, verdicts, hops, v6_hops, .. } = judged;
        let mut v6_hops = v6_hops.iter().copied();
        let mut at = 0;
        while at < batch.len() {
            let segments = segments(&batch[at..]);
            let len = batch[at..at + segments].iter().map(Packet::len).sum();
            for index in at..at + segments {
                let verdict = if v4[index] == 0 { verdicts[index] } else { Verdict::Ipv4 };
                let hop = if verdict == Verdict::Ipv6 { v6_hops.next().flatten() } else { hops[index] };
                verdicts[index] = self.rewrite(&mut batch[index], Some(len), verdict, hop);
                (v4[index], hops[index]) = (0, None);
            }
            at += segments;
        }
        keep_together(&mut verdicts[..batch.len()]);
    }

    /// Gives a frame that has a route its new header. Returns the packet's last verdict. `len` are the bytes of the frame, in
    /// one buffer or several, unless it is in one buffer and short enough for every port.
    #[inline]
    fn rewrite(&self, packet: &mut Packet, len: Option<usize>, verdict: Verdict, hop: Option<NextHop>) -> Verdict {
        if !matches!(verdict, Verdict::Ipv4 | Verdict::Ipv6) {
            return verdict;
        }
        let len = if N::CHANGE { len.or(Some(packet.len())) } else { len };
        match self.next_hops.any(number(hop), packet.data()) {
            Ok(adjacency) => send_on(packet, len, verdict, &adjacency),
            Err(Refusal::NoRoute) => {
                let back = (self.miss == Miss::Return).then(|| (self.ingress, &self.interfaces[self.ingress]));
                missed(packet, len, verdict, back)
            }
            Err(refusal) => Verdict::Refused(refusal),
        }
    }
}

/// The number of a next hop; one that no next hop has for none.
#[inline(always)]
fn number(hop: Option<NextHop>) -> u32 {
    hop.map_or(u32::MAX, NextHop::get)
}

/// Gives a frame that passed its new header, unless it is too long for the port.
#[inline]
fn send_on(packet: &mut Packet, len: Option<usize>, verdict: Verdict, adjacency: &Adjacency) -> Verdict {
    if len.is_some_and(|len| adjacency.refuses(len)) {
        return Verdict::Refused(Refusal::TooBig);
    }
    // Longer than this, or it would not have passed.
    let Some(start) = packet.data_mut().first_chunk_mut() else { return Verdict::Refused(Refusal::HeaderLength) };
    if verdict == Verdict::Ipv6 {
        new_header::<true>(start, adjacency)
    } else {
        new_header::<false>(start, adjacency)
    }
    Verdict::Out(adjacency.port)
}

/// Writes the new Ethernet header, and one hop less to live.
#[inline(always)]
fn new_header<const V6: bool>(start: &mut [u8; HEADER + SHORTEST], adjacency: &Adjacency) {
    let (addresses, _) = start.as_chunks_mut::<12>();
    adjacency.write(&mut addresses[0]);
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, ip @ ..] = start;
    if V6 {
        ip[7] = ip[7].wrapping_sub(1);
    } else {
        wire::hop(ip);
    }
}

/// What becomes of a frame without a route: refused, or `back` to the station it came from, if that is one.
#[cold]
fn missed(packet: &mut Packet, len: Option<usize>, verdict: Verdict, back: Option<(usize, &Interface)>) -> Verdict {
    let Some((port, interface)) = back else { return Verdict::Refused(Refusal::NoRoute) };
    match (packet.data(), u16::try_from(port)) {
        ([_, _, _, _, _, _, a, b, c, d, e, f, ..], Ok(port)) if a & 1 == 0 => {
            let adjacency = Adjacency::new([*a, *b, *c, *d, *e, *f], port, interface);
            send_on(packet, len, verdict, &adjacency)
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
