//! The first half of a burst: what each packet is, and where it wants to go.

use crate::check::{self, Passed, Refusal};
use crate::ethernet::{HEADER, Interface, Station};
use crate::{ipv4, ipv6};
use lpm::NextHop;
use mempool::{Batch, Packet};

/// What is known of the packets of a burst. No vector is ever shorter than a burst was.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// IPv4 destinations; 0, to which no packet may go, for all packets that have a verdict instead. Those are looked up
    /// along, which costs less than sorting.
    pub(crate) v4: Vec<u32>,
    pub(crate) hops: Vec<Option<NextHop>>,
    /// What is to be done with the packets that have no IPv4 destination.
    pub(crate) verdicts: Vec<Verdict>,
    /// Those packets, in order, and how many they are; none of an unusual burst.
    pub(crate) others: Vec<usize>,
    pub(crate) other_count: usize,
    /// Destinations and next hops of the packets whose verdict is `Ipv6`, in order, and how many they are.
    pub(crate) v6: Vec<u128>,
    pub(crate) v6_hops: Vec<Option<NextHop>>,
    pub(crate) v6_count: usize,
    /// Some frame is in several buffers, or longer than some port sends.
    pub(crate) unusual: bool,
    /// Bytes of the longest frame that all ports send.
    pub(crate) longest: usize,
    /// Whether IPv4 packets with options are refused.
    refuse_options: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Passed; its next hop is to be looked up.
    Ipv4,
    /// As above.
    Ipv6,
    /// Has its new header and leaves by this port.
    Out(u16),
    Refused(Refusal),
    /// Goes where the packet before goes: the same frame in a further buffer.
    Follows,
    /// Holds nothing but bytes behind the IP packet.
    Surplus,
}

impl Judged {
    pub(crate) fn new(interfaces: &[Interface]) -> Self {
        let mtu = interfaces.iter().map(|interface| usize::from(interface.mtu)).min().unwrap_or_default();
        Self { longest: HEADER + mtu, ..Self::default() }
    }

    /// Leaves the lengths of frames, which change, to the look at the next hop, and options to others.
    pub(crate) fn new_live() -> Self {
        Self { longest: usize::MAX, refuse_options: true, ..Self::default() }
    }

    /// Checks all frames of a burst.
    #[inline(always)]
    pub(crate) fn judge(&mut self, batch: &mut Batch, station: Station) {
        if self.v4.len() < batch.len() {
            self.grow(batch.len());
        }
        (self.other_count, self.v6_count, self.unusual) = (0, 0, false);
        let (longest, mut all_plain) = (self.longest, true);
        for (packet, v4) in batch.iter_mut().zip(&mut self.v4) {
            if packet.continues() {
                return self.judge_chains(batch, station);
            }
            let Some(destination) = plain(packet, station, longest) else {
                (*v4, all_plain) = (0, false);
                continue;
            };
            *v4 = destination;
        }
        if !all_plain {
            self.judge_others(batch, station);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, count: usize) {
        self.v4.resize(count, 0);
        self.hops.resize(count, None);
        self.verdicts.resize(count, Verdict::Surplus);
        self.others.resize(count, 0);
        self.v6.resize(count, 0);
        self.v6_hops.resize(count, None);
    }

    /// Checks the packets that the short cut for IPv4 did not take.
    #[inline(never)]
    fn judge_others(&mut self, batch: &mut Batch, station: Station) {
        for (at, packet) in batch.iter_mut().enumerate() {
            if self.v4[at] != 0 {
                continue;
            }
            let (data, len) = (packet.data(), packet.len());
            let plain = data.first_chunk().and_then(|start| ipv6::plain(start, len, station, self.longest));
            let checked = match plain {
                Some((destination, end)) => Ok(Passed::Ipv6 { destination, end }),
                None => self.check(data, len, station),
            };
            let (verdict, end) = self.note(at, checked, len);
            if verdict != Verdict::Ipv4 {
                self.others[self.other_count] = at;
                self.other_count += 1;
            }
            if end != len {
                packet.truncate(end);
            }
        }
    }

    /// The checks in full.
    fn check(&self, data: &[u8], len: usize, station: Station) -> Result<Passed, Refusal> {
        let passed = check::check(data, len, station)?;
        match passed {
            Passed::Ipv4 { .. } if self.refuse_options && data.get(HEADER) != Some(&0x45) => Err(Refusal::Options),
            _ => Ok(passed),
        }
    }

    /// Notes verdict and destination of a frame of `len` bytes whose first packet is `at`. Returns the verdict, and where
    /// the frame ends.
    #[inline(always)]
    fn note(&mut self, at: usize, checked: Result<Passed, Refusal>, len: usize) -> (Verdict, usize) {
        let (verdict, v4, end) = match checked {
            Ok(Passed::Ipv4 { destination, end }) => (Verdict::Ipv4, destination, end),
            Ok(Passed::Ipv6 { destination, end }) => {
                self.v6[self.v6_count] = destination;
                self.v6_count += 1;
                (Verdict::Ipv6, 0, end)
            }
            Err(refusal) => (Verdict::Refused(refusal), 0, len),
        };
        (self.verdicts[at], self.v4[at]) = (verdict, v4);
        self.unusual |= checked.is_ok() && end > self.longest;
        (verdict, end)
    }

    /// Checks all frames of a burst of which some are in several buffers. Packets that have passed before pass again.
    #[cold]
    #[inline(never)]
    fn judge_chains(&mut self, batch: &mut Batch, station: Station) {
        self.unusual = true;
        let mut at = 0;
        while at < batch.len() {
            let past = at + segments(&batch[at..]);
            let frame = &mut batch[at..past];
            let len = frame.iter().map(Packet::len).sum();
            let checked = self.check(frame[0].data(), len, station);
            let (_, mut rest) = self.note(at, checked, len);
            for (index, packet) in frame.iter_mut().enumerate() {
                if index > 0 {
                    self.v4[at + index] = 0;
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

/// The short cut for most packets: returns the destination of one of IPv4 without options that passes all checks and
/// ends within the first `longest` bytes of the frame. Cuts off what is behind it.
#[inline(always)]
pub(crate) fn plain(packet: &mut Packet, station: Station, longest: usize) -> Option<u32> {
    let len = packet.meta().len();
    let start = packet.data().first_chunk()?;
    if !ipv4::is_plain(start, station) {
        return None;
    }
    let destination = ipv4::destination(start);
    if !ipv4::fills(start, len) {
        let end = ipv4::end(start, len)?;
        if end > longest {
            return None;
        }
        packet.truncate(end);
    } else if usize::from(len) > longest {
        return None;
    }
    Some(destination)
}

/// Returns the number of packets that the first frame of `packets` is in.
pub(crate) fn segments(packets: &[Packet]) -> usize {
    (packets.iter().take_while(|packet| packet.continues()).count() + 1).min(packets.len())
}
