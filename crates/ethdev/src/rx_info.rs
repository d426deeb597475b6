//! What a device reports about received frames besides their bytes.

use mempool::{Checksum, Meta, Packet};
use std::fmt;
use std::ops::Deref;

/// What a device reports about a received frame: RSS hash, packet type, VLAN tag and checksum verdicts, each as far as
/// the device knows it.
///
/// It consists of two words in the layout of the 82599's receive write-back (datasheet 7.1.6.2), so that a driver for
/// that family stores what the device wrote, and nothing is decoded until it is asked for. Other drivers build it from
/// [`Self::default`], which reports nothing.
///
/// ```
/// use ethdev::{ChecksumVerdict, PacketType, RxInfo};
///
/// let info = RxInfo::default().with_hash(7).with_transport_checksum(ChecksumVerdict::Bad);
/// assert_eq!((info.hash(), info.vlan_tag()), (Some(7), None));
/// assert_eq!(info.ip_checksum(), ChecksumVerdict::Unknown);
/// assert_eq!(info.packet_type(), PacketType::default());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RxInfo {
    low: u64,
    high: u64,
}

impl RxInfo {
    /// Creates it from the two words of an 82599's write-back.
    #[inline(always)]
    #[must_use]
    pub const fn from_write_back(low: u64, high: u64) -> Self {
        Self { low, high }
    }

    /// Returns the RSS hash; `None` if the device computed none, as for frames of types that are not hashed.
    #[inline(always)]
    #[must_use]
    pub const fn hash(self) -> Option<u32> {
        if self.low & RSS_TYPE != 0 { Some((self.low >> 32) as u32) } else { None }
    }

    /// Returns the tag control information of a VLAN tag that the device has taken out of the frame
    /// ([`crate::PortConfig::strip_vlan`]): priority in bits 15:13, VLAN identifier in 11:0. `None` if it has taken
    /// none out.
    #[inline(always)]
    #[must_use]
    pub const fn vlan_tag(self) -> Option<u16> {
        if self.high & STRIPPED != 0 { Some((self.high >> 48) as u16) } else { None }
    }

    /// Returns the type of the packet in the frame.
    #[inline(always)]
    #[must_use]
    pub fn packet_type(self) -> PacketType {
        let bit = |at: u32| self.low >> at & 1 != 0;
        PacketType { ipv4: bit(4), ipv6: bit(6), options: bit(5) | bit(7), tcp: bit(8), udp: bit(9), sctp: bit(10) }
    }

    /// Returns the device's verdict on the checksum of the IPv4 header.
    #[inline(always)]
    #[must_use]
    pub const fn ip_checksum(self) -> ChecksumVerdict {
        verdict(self.high, IP_CHECKED, IP_WRONG)
    }

    /// Returns the device's verdict on the checksum of TCP, UDP or SCTP.
    ///
    /// An 82599 may report a wrong checksum for a UDP datagram that has none, with 0 in the field (Linux's `ixgbe`
    /// ignores this verdict for all UDP datagrams): look at the field before you drop one.
    #[inline(always)]
    #[must_use]
    pub const fn transport_checksum(self) -> ChecksumVerdict {
        verdict(self.high, TRANSPORT_CHECKED, TRANSPORT_WRONG)
    }

    /// Adds an RSS hash.
    #[must_use]
    pub const fn with_hash(self, hash: u32) -> Self {
        // The type says which fields were hashed; nothing here asks.
        Self { low: self.low & 0xffff_ffff | (hash as u64) << 32 | 1, ..self }
    }

    /// Adds the tag control information of a VLAN tag that was taken out of the frame.
    #[must_use]
    pub const fn with_vlan_tag(self, tag: u16) -> Self {
        Self { high: self.high & !(0xffff << 48) | (tag as u64) << 48 | STRIPPED, ..self }
    }

    /// Sets the packet type.
    #[must_use]
    pub const fn with_packet_type(self, kind: PacketType) -> Self {
        let PacketType { ipv4, ipv6, options, tcp, udp, sctp } = kind;
        let bits = (ipv4 as u64) << 4
            | ((options && !ipv6) as u64) << 5
            | (ipv6 as u64) << 6
            | ((options && ipv6) as u64) << 7
            | (tcp as u64) << 8
            | (udp as u64) << 9
            | (sctp as u64) << 10;
        Self { low: self.low & !PACKET_TYPE | bits, ..self }
    }

    /// Sets the verdict on the checksum of the IPv4 header.
    #[must_use]
    pub const fn with_ip_checksum(self, said: ChecksumVerdict) -> Self {
        Self { high: with_verdict(self.high, said, IP_CHECKED, IP_WRONG), ..self }
    }

    /// Sets the verdict on the checksum of TCP, UDP or SCTP.
    #[must_use]
    pub const fn with_transport_checksum(self, said: ChecksumVerdict) -> Self {
        Self { high: with_verdict(self.high, said, TRANSPORT_CHECKED, TRANSPORT_WRONG), ..self }
    }

    /// Creates it from the checksum state of a frame's first packet ([`Packet::checksum`]), for devices that report
    /// nothing else. A checksum that is valid, or that the sender left to be completed, has the verdict good.
    #[must_use]
    pub fn of(first: &Packet) -> Self {
        match first.checksum() {
            Checksum::Unknown => Self::default(),
            Checksum::Valid | Checksum::Partial { .. } => {
                Self::default().with_transport_checksum(ChecksumVerdict::Good)
            }
        }
    }
}

impl fmt::Debug for RxInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxInfo")
            .field("hash", &self.hash())
            .field("vlan_tag", &self.vlan_tag())
            .field("packet_type", &self.packet_type())
            .field("ip_checksum", &self.ip_checksum())
            .field("transport_checksum", &self.transport_checksum())
            .finish()
    }
}

/// The type of the packet in a frame, as far as the device has determined it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are bits, and any may be set")]
pub struct PacketType {
    /// Whether there is an IPv4 header.
    pub ipv4: bool,
    /// Whether there is an IPv6 header.
    pub ipv6: bool,
    /// Whether the IP header has options or extensions.
    pub options: bool,
    /// Whether there is a TCP header.
    pub tcp: bool,
    /// Whether there is a UDP header.
    pub udp: bool,
    /// Whether there is an SCTP header.
    pub sctp: bool,
}

impl PacketType {
    /// Returns the type as far as a flow tells it: options and SCTP are not known.
    pub(crate) fn of(flow: wire::Flow) -> Self {
        let has_ports_of = |protocol| flow.protocol == protocol && flow.ports.is_some();
        Self {
            ipv4: flow.source.is_ipv4(),
            ipv6: flow.source.is_ipv6(),
            tcp: has_ports_of(wire::protocol::TCP),
            udp: has_ports_of(wire::protocol::UDP),
            ..Self::default()
        }
    }
}

/// What a device reports about a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumVerdict {
    /// Unknown: there is no checksum, or the device has not checked it.
    #[default]
    Unknown,
    /// The checksum is right.
    Good,
    /// The checksum is wrong.
    Bad,
}

/// An [`RxInfo`] for each packet of a burst, and the time at which the burst was received.
/// [`RxQueue::recv_with`](crate::RxQueue::recv_with) fills it.
///
/// It is a slice with an element for each packet that the last call returned, in order. If a frame consists of several
/// packets, their elements are equal.
#[derive(Clone, Debug)]
pub struct RxInfos {
    infos: Vec<RxInfo>,
    len: usize,
    /// So many at the front report nothing, and need not be written anew.
    empty: usize,
    received_at: u64,
}

impl RxInfos {
    /// Creates room for the infos of `capacity` packets: as many as the batches that are received into hold. A larger
    /// batch makes it grow.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { infos: vec![RxInfo::default(); capacity], len: 0, empty: capacity, received_at: 0 }
    }

    /// Returns the time when the burst was received, in counts of [`device::tsc::now`]; not when its frames were on the
    /// wire. After a call that received nothing it says nothing.
    #[must_use]
    pub fn received_at(&self) -> u64 {
        self.received_at
    }

    /// Forgets the infos; the time stays that of the last burst.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns room for the infos of a burst of up to `count` packets, for a driver to write from the front on and then
    /// call [`Self::filled`]. Until then there are no infos.
    #[inline]
    pub fn room(&mut self, count: usize) -> &mut [RxInfo] {
        self.len = 0;
        if self.infos.len() < count {
            self.infos.resize(count, RxInfo::default());
        }
        &mut self.places()[..count]
    }

    /// Returns the number of packets that there is room for.
    #[inline(always)]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.infos.len()
    }

    /// Returns as much room as there is, as [`Self::room`] does, for a driver that asks for more only where that is too little. The
    /// infos of the burst before remain until they are overwritten.
    #[inline(always)]
    pub fn places(&mut self) -> &mut [RxInfo] {
        self.empty = 0;
        &mut self.infos
    }

    /// Records that these packets have been received now, and that what they tell themselves is all that is known of them
    /// ([`RxInfo::of`]).
    #[inline]
    pub fn describe(&mut self, packets: &[Packet]) {
        let words = packets.iter().fold(0, |words, packet| words | packet.meta().0);
        if words & Meta::FLAGS == 0 {
            return self.filled_empty(packets.len());
        }
        describe_frames(self.room(packets.len()), packets);
        self.filled(packets.len());
    }

    /// Records that `count` packets have been received now, of which nothing is reported.
    #[inline]
    pub fn filled_empty(&mut self, count: usize) {
        if self.empty < count {
            self.empty_first(count);
        }
        self.len = count;
        self.received_at = device::tsc::now();
    }

    #[cold]
    fn empty_first(&mut self, count: usize) {
        self.room(count).fill(RxInfo::default());
        self.empty = count;
    }

    /// Records that `count` packets have been received now, and that the room for them is filled. If there was not as much, there are
    /// no infos.
    #[inline]
    pub fn filled(&mut self, count: usize) {
        self.len = count;
        self.received_at = device::tsc::now();
    }
}

impl Deref for RxInfos {
    type Target = [RxInfo];

    #[inline]
    fn deref(&self) -> &[RxInfo] {
        // None of a driver that says it filled more than there are.
        self.infos.get(..self.len).unwrap_or_default()
    }
}

/// What the first packet of each frame says, for all of the frame's.
#[inline(never)]
fn describe_frames(infos: &mut [RxInfo], packets: &[Packet]) {
    let mut infos = infos.iter_mut();
    for frame in mempool::frames(packets) {
        let info = frame.first().map(RxInfo::of).unwrap_or_default();
        infos.by_ref().take(frame.len()).for_each(|place| *place = info);
    }
}

const fn verdict(high: u64, checked: u64, wrong: u64) -> ChecksumVerdict {
    match (high & checked != 0, high & wrong != 0) {
        (false, _) => ChecksumVerdict::Unknown,
        (true, false) => ChecksumVerdict::Good,
        (true, true) => ChecksumVerdict::Bad,
    }
}

const fn with_verdict(high: u64, said: ChecksumVerdict, checked: u64, wrong: u64) -> u64 {
    let others = high & !(checked | wrong);
    match said {
        ChecksumVerdict::Unknown => others,
        ChecksumVerdict::Good => others | checked,
        ChecksumVerdict::Bad => others | checked | wrong,
    }
}

/// Low word: RSS type (0 is none), packet type in bits 16:4, hash in 63:32.
const RSS_TYPE: u64 = 0xf;
const PACKET_TYPE: u64 = 0x1fff << 4;
/// High word: VP, L4CS and IPCS of the status, L4E and IPE of the errors, VLAN tag in bits 63:48.
const STRIPPED: u64 = 1 << 3;
const TRANSPORT_CHECKED: u64 = 1 << 5;
const IP_CHECKED: u64 = 1 << 6;
const TRANSPORT_WRONG: u64 = 1 << 30;
const IP_WRONG: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdicts() -> impl Strategy<Value = ChecksumVerdict> {
        prop_oneof![Just(ChecksumVerdict::Unknown), Just(ChecksumVerdict::Good), Just(ChecksumVerdict::Bad)]
    }

    proptest! {
        #[test]
        fn each_part_is_read_as_it_was_written(
            start in any::<(u64, u64)>(), hash: u32, tag: u16, ip in verdicts(), transport in verdicts(), bits in 0..32u8,
        ) {
            let bit = |at: u8| bits >> at & 1 != 0;
            let (ipv4, ipv6) = (!bit(0), bit(0));
            let kind = PacketType { ipv4, ipv6, options: bit(1), tcp: bit(2), udp: bit(3), sctp: bit(4) };
            // Whatever was there before, and in whatever order.
            let info = RxInfo::from_write_back(start.0, start.1)
                .with_ip_checksum(ip)
                .with_packet_type(kind)
                .with_vlan_tag(tag)
                .with_hash(hash)
                .with_transport_checksum(transport);
            prop_assert_eq!((info.hash(), info.vlan_tag()), (Some(hash), Some(tag)));
            prop_assert_eq!((info.ip_checksum(), info.transport_checksum()), (ip, transport));
            prop_assert_eq!(info.packet_type(), kind);
        }
    }

    #[test]
    fn infos_of_which_nothing_is_reported_forget_those_before() {
        let known = RxInfo::default().with_hash(7);
        let mut infos = RxInfos::with_capacity(2);
        for count in [2, 1, 3, 0, 3] {
            infos.filled_empty(count);
            assert_eq!(*infos, vec![RxInfo::default(); count]);
            infos.room(count).fill(known);
            assert!(infos.is_empty(), "none is received yet");
            infos.filled(count);
            assert_eq!(*infos, vec![known; count]);
            infos.filled_empty(count.min(2));
            assert_eq!(*infos, vec![RxInfo::default(); count.min(2)]);
            infos.places()[..count.min(2)].fill(known);
            infos.filled(count.min(2));
            assert_eq!(*infos, vec![known; count.min(2)]);
            infos.filled(100);
            assert!(infos.is_empty(), "there is no room for so many");
        }
    }

    /// A write-back as table 7-13 ff. of the datasheet have it: TCP over IPv4 with options, hash of type 1, tag 0x2064 stripped,
    /// both checksums checked, that of TCP wrong.
    #[test]
    fn a_write_back_of_the_datasheet() {
        let info = RxInfo::from_write_back(0xdead_beef_0000_0131, 0x2064_0040_4000_006b);
        assert_eq!((info.hash(), info.vlan_tag()), (Some(0xdead_beef), Some(0x2064)));
        let kind = PacketType { ipv4: true, options: true, tcp: true, ..PacketType::default() };
        assert_eq!(info.packet_type(), kind);
        assert_eq!((info.ip_checksum(), info.transport_checksum()), (ChecksumVerdict::Good, ChecksumVerdict::Bad));
    }
}
