//! The first half of a burst: what each packet is, and where it wants to go.

use crate::check::{self, Passed, Refusal};
use crate::ethernet::{self, HEADER, Interface, Station, Stations, TAG};
use crate::interfaces::Entrance;
use crate::ipv4::SHORTEST;
use crate::ipv6::{HOP_BY_HOP, NEXT_HEADER};
use crate::rewrite::{Hops, NextHops};
use crate::{ipv4, ipv6};
use lpm::NextHop;
use mempool::{Batch, Meta, Packet};

/// What is known of the packets of a burst. No vector is ever shorter than a burst was.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// IPv4 destinations; 0, to which no packet may go, for all packets that have a verdict instead. Those are looked up
    /// along, which costs less than sorting.
    pub(crate) v4: Vec<u32>,
    /// What is to be done with the packets that have no IPv4 destination, or a tag; of all packets, if there are such.
    pub(crate) verdicts: Vec<Verdict>,
    /// Those packets, in order, and how many they are; none of an unusual burst.
    pub(crate) others: Vec<usize>,
    pub(crate) other_count: usize,
    /// How many packets are refused, where next hops change: none of a burst with frames in several buffers.
    pub(crate) refused_count: usize,
    /// Destinations and next hops of the packets of IPv6 that passed, in order, and how many they are.
    pub(crate) v6: Vec<u128>,
    pub(crate) v6_hops: Vec<Option<NextHop>>,
    pub(crate) v6_count: usize,
    /// Bytes behind the IP packet that were cut off of each packet, and whether there are any.
    pub(crate) cuts: Vec<u16>,
    has_cuts: bool,
    pub(crate) mode: Mode,
    /// Bytes of the longest frame that all ports send.
    pub(crate) longest: u16,
}

/// What a burst has that is dealt with apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Usual,
    /// Some packets are [`Verdict::Tagged`]; all have verdicts.
    Tagged,
    /// Some frame is in several buffers, or longer than some port sends.
    Frames,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its next hop is to be looked up.
    Passed(Kind),
    /// As [`Kind::PLAIN`] that passed, but for its tag, with which it has an IPv4 destination all the same.
    Tagged,
    /// Has its new header and leaves by this port.
    Out(u16),
    Refused(Refusal),
    /// Goes where the packet before goes: the same frame in a further buffer.
    Follows,
    /// Holds nothing but bytes behind the IP packet.
    Surplus,
}

/// What a frame that passed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) v6: bool,
    /// Has a VLAN tag.
    pub(crate) tagged: bool,
}

impl Kind {
    /// IPv4 without a tag.
    pub(crate) const PLAIN: Self = Self { v6: false, tagged: false };

    /// Bytes of tags.
    #[inline(always)]
    pub(crate) fn tag_len(self) -> usize {
        if self.tagged { TAG } else { 0 }
    }
}

impl Judged {
    pub(crate) fn new(interfaces: &[Interface]) -> Self {
        let mtu = interfaces.iter().map(|interface| usize::from(interface.mtu)).min().unwrap_or_default();
        Self { longest: u16::try_from(HEADER + mtu).unwrap_or(u16::MAX), ..Self::default() }
    }

    /// Leaves the lengths of frames, which change, to the look at the next hop.
    pub(crate) fn new_live() -> Self {
        Self { longest: u16::MAX, ..Self::default() }
    }

    /// Checks all frames of a burst.
    #[inline(always)]
    pub(crate) fn judge<N: NextHops>(&mut self, batch: &mut Batch, stations: Stations, table: &Hops<N>) {
        if self.has_cuts {
            self.cuts.fill(0);
        }
        (self.other_count, self.v6_count, self.mode, self.has_cuts) = (0, 0, Mode::Usual, false);
        if N::CHANGE {
            self.refused_count = 0;
        }
        if N::CHANGE && batch.first().is_some_and(has_tag) {
            return self.judge_from_tags(batch, stations, table);
        }
        let (longest, mut all_plain, mut flags) = (if N::CHANGE { u16::MAX } else { self.longest }, true, 0);
        for ((packet, v4), cuts) in batch.iter_mut().zip(&mut self.v4).zip(&mut self.cuts) {
            flags |= packet.meta().0;
            let cut_off = |packet: &mut Packet, end| {
                self.has_cuts = true;
                cut(packet, end, cuts);
            };
            let Some(destination) = plain(packet, stations.v4, longest, cut_off) else {
                (*v4, all_plain) = (0, false);
                continue;
            };
            *v4 = destination;
        }
        if flags & Meta::CONTINUES != 0 {
            return self.judge_chains(batch, stations, table);
        }
        if !all_plain {
            self.judge_others(batch, stations, table);
        }
    }

    /// Checks all frames of a burst whose first has a tag, as mostly all have then.
    #[inline(never)]
    fn judge_from_tags<N: NextHops>(&mut self, batch: &mut Batch, stations: Stations, table: &Hops<N>) {
        if batch.iter().any(Packet::continues) {
            return self.judge_chains(batch, stations, table);
        }
        self.v4[..batch.len()].fill(0);
        self.judge_others(batch, stations, table);
    }

    /// For bursts of up to `count` packets.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self, count: usize) {
        self.v4.resize(count, 0);
        self.verdicts.resize(count, Verdict::Surplus);
        self.others.resize(count, 0);
        self.v6.resize(count, 0);
        self.v6_hops.resize(count, None);
        self.cuts.resize(count, 0);
    }

    /// Checks the packets that the short cut for IPv4 did not take.
    #[inline(never)]
    fn judge_others<N: NextHops>(&mut self, batch: &mut Batch, stations: Stations, table: &Hops<N>) {
        let mut within = Within::NOWHERE;
        if N::CHANGE && is_tagged(batch, &self.v4) && self.judge_tagged(batch, stations.v4, table, &mut within) {
            return;
        }
        for (at, packet) in batch.iter_mut().enumerate() {
            if self.v4[at] != 0 {
                if self.mode == Mode::Usual || self.verdicts[at] != Verdict::Tagged {
                    self.verdicts[at] = Verdict::Passed(Kind::PLAIN);
                }
                continue;
            }
            if N::CHANGE && is_used_up(packet, stations.v4) {
                self.verdicts[at] = Verdict::Refused(Refusal::Ttl);
                self.others[self.other_count] = at;
                self.other_count += 1;
                self.refused_count += 1;
                continue;
            }
            let len = packet.len();
            let start = packet.data().first_chunk();
            let plain = start.and_then(|start| ipv6::plain(start, len, stations.v6, self.longest.into(), N::CHANGE));
            let mut tagged = || if N::CHANGE { tagged_v6(packet.data(), len, table, &mut within) } else { None };
            let checked = match plain.map(|found| (found, false)).or_else(|| Some((tagged()?, true))) {
                Some(((destination, end), tagged)) => Ok((Passed::Ipv6 { destination, end }, tagged)),
                None => check(packet.data(), len, stations.v4, table),
            };
            if N::CHANGE {
                self.refused_count += usize::from(checked.is_err());
            }
            let (verdict, end) = self.note(at, checked, len);
            if verdict != Verdict::Passed(Kind::PLAIN) {
                self.others[self.other_count] = at;
                self.other_count += 1;
            }
            if end != len {
                self.has_cuts = true;
                cut(packet, end, &mut self.cuts[at]);
            }
        }
    }

    /// Notes the packets that pass by [`tagged_v4`] or [`plain`]. Returns whether all of the burst have passed now.
    #[inline(always)]
    fn judge_tagged<N: NextHops>(
        &mut self,
        batch: &mut Batch,
        station: Station,
        table: &Hops<N>,
        within: &mut Within,
    ) -> bool {
        let mut all = true;
        let Self { v4, verdicts, cuts, has_cuts, mode, .. } = self;
        for (((packet, v4), verdict), cuts) in batch.iter_mut().zip(v4).zip(verdicts).zip(cuts) {
            *verdict = Verdict::Passed(Kind::PLAIN);
            if *v4 != 0 {
                continue;
            }
            let mut cut_off = |packet: &mut Packet, end| {
                *has_cuts = true;
                cut(packet, end, cuts);
            };
            if let Some(destination) = tagged_v4(packet, table, within, &mut cut_off) {
                (*v4, *verdict, *mode) = (destination, Verdict::Tagged, Mode::Tagged);
            } else if let Some(destination) = plain(packet, station, u16::MAX, &mut cut_off) {
                *v4 = destination;
            } else {
                all = false;
            }
        }
        all
    }

    /// Notes verdict and destination of a frame of `len` bytes whose first packet is `at`. Returns the verdict, and where
    /// the frame ends.
    #[inline(always)]
    fn note(&mut self, at: usize, checked: Result<(Passed, bool), Refusal>, len: usize) -> (Verdict, usize) {
        let (verdict, v4, end) = match checked {
            Ok((Passed::Ipv4 { destination, end }, tagged)) => {
                (Verdict::Passed(Kind { v6: false, tagged }), destination, end)
            }
            Ok((Passed::Ipv6 { destination, end }, tagged)) => {
                self.v6[self.v6_count] = destination;
                self.v6_count += 1;
                (Verdict::Passed(Kind { v6: true, tagged }), 0, end)
            }
            Err(refusal) => (Verdict::Refused(refusal), 0, len),
        };
        (self.verdicts[at], self.v4[at]) = (verdict, v4);
        if checked.is_ok() && end > self.longest.into() {
            self.mode = Mode::Frames;
        }
        (verdict, end)
    }

    /// Checks all frames of a burst of which some are in several buffers. Packets that have passed before are as they came again.
    #[cold]
    #[inline(never)]
    fn judge_chains<N: NextHops>(&mut self, batch: &mut Batch, stations: Stations, table: &Hops<N>) {
        batch.iter_mut().zip(&mut self.cuts).for_each(|(packet, cut)| restore(packet, cut));
        (self.mode, self.has_cuts) = (Mode::Frames, true);
        let mut at = 0;
        while at < batch.len() {
            let past = at + segments(&batch[at..]);
            let frame = &mut batch[at..past];
            let len = frame.iter().map(Packet::len).sum();
            let checked = check(frame[0].data(), len, stations.v4, table);
            let (_, mut rest) = self.note(at, checked, len);
            for (index, packet) in frame.iter_mut().enumerate() {
                if index > 0 {
                    self.v4[at + index] = 0;
                    self.verdicts[at + index] = if rest == 0 { Verdict::Surplus } else { Verdict::Follows };
                }
                cut(packet, rest, &mut self.cuts[at + index]);
                rest -= packet.len();
                if rest == 0 {
                    packet.set_continues(false);
                }
            }
            at = past;
        }
    }
}

/// The checks in full, of a frame that `station` takes, or, where next hops change, an interface of the table. Also returns whether it has a tag.
fn check<N: NextHops>(data: &[u8], len: usize, station: Station, table: &Hops<N>) -> Result<(Passed, bool), Refusal> {
    if !N::CHANGE {
        return check::check(data, HEADER, len, station).map(|passed| (passed, false));
    }
    let (vlan, start) = (ethernet::vlan(data), data.first_chunk().copied());
    let entrance = table.next_hops.entrance(table.ingress, vlan, start);
    // Whatever is in it: it is nothing to the host either. Of a tag that nothing takes, the host may, by the port's address.
    if let Some(start) = start.filter(|start| start[0] & 1 == 0) {
        let by = entrance.or_else(|| table.next_hops.entrance(table.ingress, None, Some(start)));
        if !by.is_some_and(|by| by.station.takes(start)) {
            return Err(Refusal::OtherStation);
        }
    }
    let (header, entrance) = match vlan {
        Some(_) => (HEADER + TAG, entrance.ok_or(Refusal::Vlan)?),
        None => (HEADER, entrance.unwrap_or(Entrance::CLOSED)),
    };
    let passed = check::check(data, header, len, entrance.station)?;
    let (is_plain, looked_up) = match passed {
        Passed::Ipv4 { .. } => (data.get(header) == Some(&0x45), entrance.families[0]),
        Passed::Ipv6 { .. } => (data.get(header + NEXT_HEADER) != Some(&HOP_BY_HOP), entrance.families[1]),
    };
    if !is_plain {
        return Err(Refusal::Options);
    }
    if looked_up { Ok((passed, vlan.is_some())) } else { Err(Refusal::LeftToHost) }
}

/// The short cut for most packets: returns the destination of one of IPv4 without options that passes all checks and
/// ends within the first `longest` bytes of the frame. Has cut off what is behind its end.
#[inline(always)]
pub(crate) fn plain(
    packet: &mut Packet,
    station: Station,
    longest: u16,
    cut_off: impl FnOnce(&mut Packet, usize),
) -> Option<u32> {
    let len = packet.meta().len();
    let start = packet.data().first_chunk()?;
    if !ipv4::is_plain(start, station) {
        return None;
    }
    let destination = ipv4::destination(start);
    if !ipv4::fills(start, len) {
        let end = ipv4::end(start, len)?;
        if end > longest.into() {
            return None;
        }
        cut_off(packet, end);
    } else if len > longest {
        return None;
    }
    Some(destination)
}

/// The short cut for a flood of packets whose time to live is used up: whether that is all that is wrong with one of IPv4 without options.
#[inline(always)]
fn is_used_up(packet: &Packet, station: Station) -> bool {
    let len = packet.meta().len();
    packet.data().first_chunk().is_some_and(|start| ipv4::is_used_up(start, station) && ipv4::end(start, len).is_some())
}

/// The VLAN whose frames came last, in the byte order of a tag, and which of them its interface takes, of IPv4 and of IPv6: mostly they
/// follow each other.
struct Within {
    vlan: u16,
    stations: [Station; 2],
}

impl Within {
    /// VLAN 0 has no interface.
    const NOWHERE: Self = Self { vlan: 0, stations: [Station::NOBODY; 2] };

    /// Goes to the VLAN of this tag.
    #[inline(always)]
    fn turn_to<N: NextHops>(&mut self, tag: [u8; 2], table: &Hops<N>) {
        let vlan = u16::from_ne_bytes(tag) & ethernet::VLAN_MASK;
        if vlan != self.vlan {
            let entrance = table.next_hops.entrance(table.ingress, Some(u16::from_be(vlan)), None);
            let Entrance { station, families } = entrance.unwrap_or(Entrance::CLOSED);
            let stations = families.map(|looked_up| if looked_up { station } else { Station::NOBODY });
            *self = Self { vlan, stations };
        }
    }
}

/// Whether the first packet without a destination has a tag.
fn is_tagged(batch: &Batch, v4: &[u32]) -> bool {
    let first = batch.iter().zip(v4).find(|(_, v4)| **v4 == 0);
    first.is_some_and(|(packet, _)| has_tag(packet))
}

#[inline(always)]
fn has_tag(packet: &Packet) -> bool {
    packet.data().get(HEADER - 2..HEADER) == Some(&ethernet::VLAN)
}

/// The short cut for frames of IPv4 with a tag, as [`plain`]. The tag stays.
#[inline(always)]
fn tagged_v4<N: NextHops>(
    packet: &mut Packet,
    table: &Hops<N>,
    within: &mut Within,
    cut_off: impl FnOnce(&mut Packet, usize),
) -> Option<u32> {
    let len = packet.meta().len();
    let start: &[u8; TAG + HEADER + SHORTEST] = packet.data().first_chunk()?;
    if start[HEADER - 2..HEADER] != ethernet::VLAN {
        return None;
    }
    within.turn_to([start[HEADER], start[HEADER + 1]], table);
    let (addresses, untagged) = (start.first_chunk()?, start.last_chunk()?);
    if !within.stations[0].takes(*addresses) || !ipv4::is_plain(untagged, Station::ANYBODY) {
        return None;
    }
    let destination = ipv4::destination(untagged);
    if !ipv4::fills(untagged, len.wrapping_sub(TAG_LEN)) {
        let end = ipv4::end(untagged, len.wrapping_sub(TAG_LEN))?;
        cut_off(packet, TAG + end);
    }
    Some(destination)
}

/// The short cut for frames of IPv6 with a tag, which stays: returns the destination of one that passes all checks, and where the packet
/// ends.
#[inline]
fn tagged_v6<N: NextHops>(data: &[u8], len: usize, table: &Hops<N>, within: &mut Within) -> Option<(u128, usize)> {
    let start: &[u8; TAG + HEADER + ipv6::FIXED] = data.first_chunk()?;
    if start[HEADER - 2..HEADER] != ethernet::VLAN {
        return None;
    }
    within.turn_to([start[HEADER], start[HEADER + 1]], table);
    if !within.stations[1].takes(*start.first_chunk()?) {
        return None;
    }
    let longest = usize::from(u16::MAX) - TAG;
    let (destination, end) = ipv6::plain(start.last_chunk()?, len - TAG, Station::ANYBODY, longest, true)?;
    Some((destination, TAG + end))
}

const TAG_LEN: u16 = 4;
const _: () = assert!(TAG_LEN as usize == TAG);

/// Shortens a packet to `end` bytes if it is longer, and notes by how much.
#[inline]
pub(crate) fn cut(packet: &mut Packet, end: usize, cut: &mut u16) {
    let len = packet.meta().len();
    packet.truncate(end);
    *cut = len - packet.meta().len();
}

/// Gives a packet back what was cut off behind its end.
#[inline]
pub(crate) fn restore(packet: &mut Packet, cut: &mut u16) {
    if *cut > 0 {
        // It was there, so there is room.
        let _ = packet.append(std::mem::take(cut).into());
    }
}

/// Returns the number of packets that the first frame of `packets` is in.
pub(crate) fn segments(packets: &[Packet]) -> usize {
    (packets.iter().take_while(|packet| packet.continues()).count() + 1).min(packets.len())
}
