//! The second half of a burst: new headers for the frames that have a route.

use crate::Miss;
use crate::check::Refusal;
use crate::ethernet::{HEADER, Interface, TAG};
use crate::fib::Adjacency;
use crate::interfaces::Entrance;
use crate::ipv4::SHORTEST;
use crate::judge::{Judged, Kind, Mode, Verdict, restore, segments};
use lpm::NextHop;
use mempool::{Batch, Packet};

/// Where the numbers of next hops lead.
pub(crate) trait NextHops: Copy {
    /// Whether that changes, and may be a reason to refuse. Lengths are looked at here then, not before.
    const CHANGE: bool;

    /// Returns what most packets need of them.
    fn near(self) -> impl SendPlain;

    /// As [`SendPlain::send`], if it is to leave by a VLAN. If not, nothing has changed.
    fn send_tagged(self, number: u32, packet: &mut Packet) -> Option<u16>;

    /// As [`Self::send_tagged`], of a frame that came in with a tag. It may leave without one.
    fn send_retagged(self, number: u32, packet: &mut Packet) -> Option<u16>;

    /// Returns the way of a frame whose headers `frame` begins with, without any tag, however long it is, or why it is refused.
    fn any(self, number: u32, frame: &[u8]) -> Result<Way, Refusal>;

    /// Returns the interface `ingress`, by which frames without a route go back, if they do.
    fn back(self, ingress: usize) -> Option<Interface>;

    /// Returns how frames of a VLAN, or without a tag, come in by a port, if that changes; `None` if they come by nothing that is up. With
    /// their first bytes, further addresses count too.
    fn entrance(self, port: usize, vlan: Option<u16>, start: Option<[u8; 8]>) -> Option<Entrance>;
}

/// Next hops, for most packets.
pub(crate) trait SendPlain: Copy {
    /// Gives an IPv4 frame in one buffer, that passed and has no tag, or none any more, its new header, if it is to leave by a port
    /// without a tag. Returns the port. No number is `u32::MAX`.
    fn send(self, number: u32, packet: &mut Packet) -> Option<u16>;
}

/// How a frame leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) adjacency: Adjacency,
    /// The VLAN tag that it leaves with.
    pub(crate) tag: Option<[u8; TAG]>,
}

impl SendPlain for &[Adjacency] {
    #[inline(always)]
    fn send(self, number: u32, packet: &mut Packet) -> Option<u16> {
        let adjacency = *self.get(number as usize)?;
        let start: &mut [u8; HEADER + SHORTEST] = packet.data_mut().first_chunk_mut()?;
        adjacency.write(start.first_chunk_mut()?);
        wire::hop(start.last_chunk_mut()?);
        Some(adjacency.port)
    }
}

/// Next hops of a file's routes, and what becomes of frames without one.
#[derive(Clone, Copy)]
pub(crate) struct FileHops<'a> {
    pub(crate) adjacencies: &'a [Adjacency],
    pub(crate) interfaces: &'a [Interface],
    pub(crate) miss: Miss,
}

impl NextHops for FileHops<'_> {
    const CHANGE: bool = false;

    #[inline(always)]
    fn near(self) -> impl SendPlain {
        self.adjacencies
    }

    #[inline(always)]
    fn any(self, number: u32, _: &[u8]) -> Result<Way, Refusal> {
        let adjacency = self.adjacencies.get(number as usize).copied().ok_or(Refusal::NoRoute)?;
        Ok(Way { adjacency, tag: None })
    }

    #[inline(always)]
    fn send_tagged(self, _: u32, _: &mut Packet) -> Option<u16> {
        None
    }

    #[inline(always)]
    fn send_retagged(self, _: u32, _: &mut Packet) -> Option<u16> {
        None
    }

    fn back(self, ingress: usize) -> Option<Interface> {
        self.interfaces.get(ingress).copied().filter(|_| self.miss == Miss::Return)
    }

    fn entrance(self, _: usize, _: Option<u16>, _: Option<[u8; 8]>) -> Option<Entrance> {
        None
    }
}

/// What next hops stand for, for frames that came in by a port.
pub(crate) struct Hops<N> {
    pub(crate) next_hops: N,
    pub(crate) ingress: usize,
}

impl<N: NextHops> Hops<N> {
    /// Returns where the packet `at` goes that [`SendPlain::send`] did not take: its port, or nowhere, and then it is the packet
    /// `left` of those that stay.
    #[inline(never)]
    pub(crate) fn settle(
        &self,
        packet: &mut Packet,
        at: usize,
        hop: Option<NextHop>,
        judged: &mut Judged,
        left: &mut usize,
    ) -> usize {
        if judged.v4.get(at).is_some_and(|v4| *v4 != 0)
            && let Some(port) = self.next_hops.send_tagged(number(hop), packet)
        {
            return port.into();
        }
        self.settle_rest(packet, at, hop, judged, left)
    }

    /// As [`Self::settle`], of a packet that does not leave in haste either.
    #[inline(never)]
    pub(crate) fn settle_rest(
        &self,
        packet: &mut Packet,
        at: usize,
        hop: Option<NextHop>,
        judged: &mut Judged,
        left: &mut usize,
    ) -> usize {
        let mut verdict = judged.verdicts[at];
        if judged.v4[at] != 0 {
            let tagged = judged.mode == Mode::Tagged && verdict == Verdict::Tagged;
            verdict = self.rewrite(packet, None, Verdict::Passed(Kind { v6: false, tagged }), hop);
            if matches!(verdict, Verdict::Refused(_)) {
                restore(packet, &mut judged.cuts[at]);
            }
        }
        if let Verdict::Out(port) = verdict {
            return port.into();
        }
        judged.verdicts[*left] = verdict;
        *left += 1;
        usize::MAX
    }

    /// Gives the packets that have no IPv4 destination, or a tag, their last verdict, and neither destination nor next hop.
    #[inline(never)]
    pub(crate) fn rewrite_others(&self, batch: &mut Batch, judged: &mut Judged, hops: &mut [Option<NextHop>]) {
        let Judged { v4, verdicts, v6_hops, others, other_count, cuts, .. } = judged;
        let mut v6_hops = v6_hops.iter().copied();
        for at in others.iter().copied().take(*other_count) {
            if let Verdict::Passed(kind) = verdicts[at] {
                let hop = if kind.v6 { v6_hops.next().flatten() } else { hops[at] };
                verdicts[at] = self.rewrite(&mut batch[at], None, verdicts[at], hop);
                if matches!(verdicts[at], Verdict::Refused(_)) {
                    restore(&mut batch[at], &mut cuts[at]);
                }
            }
            (v4[at], hops[at]) = (0, None);
        }
    }

    /// Gives every packet its last verdict, where frames are in several buffers or may be too long for their port.
    #[cold]
    #[inline(never)]
    pub(crate) fn rewrite_frames(&self, batch: &mut Batch, judged: &mut Judged, hops: &mut [Option<NextHop>]) {
        let Judged { v4, verdicts, v6_hops, cuts, .. } = judged;
        let mut v6_hops = v6_hops.iter().copied();
        let mut at = 0;
        while at < batch.len() {
            let len = batch[at..at + segments(&batch[at..])].iter().map(Packet::len).sum();
            let verdict = verdicts[at];
            let hop = match verdict {
                Verdict::Passed(Kind { v6: true, .. }) => v6_hops.next().flatten(),
                _ => hops[at],
            };
            let verdict = self.rewrite(&mut batch[at], Some(len), verdict, hop);
            let rest = &verdicts[at + 1..batch.len()];
            let past =
                at + 1 + rest.iter().take_while(|rest| matches!(rest, Verdict::Follows | Verdict::Surplus)).count();
            let frame = &mut batch[at..past];
            if matches!(verdict, Verdict::Refused(_)) {
                restore_frame(frame, &mut cuts[at..past]);
                verdicts[at..past].fill(verdict);
            } else {
                verdicts[at..past]
                    .iter_mut()
                    .filter(|verdict| **verdict != Verdict::Surplus)
                    .for_each(|each| *each = verdict);
            }
            v4[at..past].fill(0);
            hops[at..past].fill(None);
            at = past;
        }
    }

    /// Gives a frame that has a route its new header. Returns the packet's last verdict. `len` are the bytes of the frame, in
    /// one buffer or several, unless it is in one buffer and short enough for every port.
    #[inline]
    fn rewrite(&self, packet: &mut Packet, len: Option<usize>, verdict: Verdict, hop: Option<NextHop>) -> Verdict {
        let Verdict::Passed(kind) = verdict else { return verdict };
        let len = if N::CHANGE { len.or(Some(packet.len())) } else { len };
        let frame = packet.data().get(kind.tag_len()..).unwrap_or_default();
        match self.next_hops.any(number(hop), frame) {
            Ok(way) => send_on(packet, len, kind, &way),
            Err(Refusal::NoRoute) => {
                missed(packet, len, kind, self.next_hops.back(self.ingress).map(|back| (self.ingress, back)))
            }
            Err(refusal) => Verdict::Refused(refusal),
        }
    }
}

/// The number of a next hop; one that no next hop has for none.
#[inline(always)]
pub(crate) fn number(hop: Option<NextHop>) -> u32 {
    hop.map_or(u32::MAX, NextHop::get)
}

/// Gives a frame that passed its new header, unless it is too long for the port.
#[inline]
fn send_on(packet: &mut Packet, len: Option<usize>, kind: Kind, way: &Way) -> Verdict {
    if len.is_some_and(|len| way.adjacency.refuses(len - kind.tag_len())) {
        return Verdict::Refused(Refusal::TooBig);
    }
    if packet.len() < kind.tag_len() + HEADER + SHORTEST {
        // It would not have passed.
        return Verdict::Refused(Refusal::HeaderLength);
    }
    if (kind.tagged || way.tag.is_some()) && !retag(packet, kind.tagged, way.tag) {
        return Verdict::Refused(Refusal::Vlan);
    }
    let tag = if way.tag.is_some() { TAG } else { 0 };
    let (addresses, rest) = packet.data_mut().split_at_mut(12);
    if let Ok(addresses) = addresses.try_into() {
        way.adjacency.write(addresses);
    }
    if let Some(ip) = rest.get_mut(2 + tag..).and_then(<[u8]>::first_chunk_mut) {
        hop_on(ip, kind.v6);
    }
    Verdict::Out(way.adjacency.port)
}

/// Takes the tag of a frame away, or gives it another or one, in front of its EtherType; the addresses are to be written anew. Returns
/// false, and changes nothing, if there is no room.
#[inline(never)]
fn retag(packet: &mut Packet, tagged: bool, tag: Option<[u8; TAG]>) -> bool {
    let Some(tag) = tag else { return packet.trim_front(TAG) };
    if !tagged && packet.prepend(TAG).is_none() {
        return false;
    }
    let place = packet.data_mut().get_mut(HEADER - 2..HEADER - 2 + TAG);
    place.is_some_and(|place| {
        place.copy_from_slice(&tag);
        true
    })
}

/// One hop less to live.
#[inline(always)]
fn hop_on(ip: &mut [u8; SHORTEST], v6: bool) {
    if v6 {
        ip[7] = ip[7].wrapping_sub(1);
    } else {
        wire::hop(ip);
    }
}

/// What becomes of a frame without a route: refused, or `back` to the station it came from, if that is one.
#[cold]
fn missed(packet: &mut Packet, len: Option<usize>, kind: Kind, back: Option<(usize, Interface)>) -> Verdict {
    let Some((port, interface)) = back else { return Verdict::Refused(Refusal::NoRoute) };
    match (packet.data(), u16::try_from(port)) {
        ([_, _, _, _, _, _, a, b, c, d, e, f, ..], Ok(port)) if a & 1 == 0 => {
            let adjacency = Adjacency::new([*a, *b, *c, *d, *e, *f], port, &interface);
            send_on(packet, len, kind, &Way { adjacency, tag: None })
        }
        _ => Verdict::Refused(Refusal::NoRoute),
    }
}

/// Gives the packets of a refused frame back what was cut off behind the IP packet.
#[cold]
fn restore_frame(frame: &mut [Packet], cuts: &mut [u16]) {
    let last = frame.len() - 1;
    for (index, (packet, cut)) in frame.iter_mut().zip(cuts).enumerate() {
        restore(packet, cut);
        packet.set_continues(index < last);
    }
}
