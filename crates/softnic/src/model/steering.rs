//! Filters that choose a queue before RSS does: by EtherType and by five-tuple (datasheet 7.1.2.3, 7.1.2.5).

use super::map::{self, RegisterFile};
use super::rss::{Flow, packet_type};

/// ETQF.Filter_Enable, ETQS.Queue_Enable and FTQF.Queue_Enable.
const ENABLE: u32 = 1 << 31;
/// FTQF.Mask, from bit 25 on: what is not compared.
const NO_SOURCE: u32 = 1 << 25;
const NO_DESTINATION: u32 = 1 << 26;
const NO_SOURCE_PORT: u32 = 1 << 27;
const NO_DESTINATION_PORT: u32 = 1 << 28;
const NO_PROTOCOL: u32 = 1 << 29;

/// The filters that are on.
#[derive(Debug, Default)]
pub(super) struct Steering {
    /// EtherType and queue.
    ethertypes: Vec<(u16, u16)>,
    /// Those of the highest priority first.
    tuples: Vec<Tuple>,
}

/// A filter of FTQF, with addresses and ports as they lie in a frame.
#[derive(Debug)]
struct Tuple {
    ftqf: u32,
    source: [u8; 4],
    destination: [u8; 4],
    /// Source port, destination port.
    ports: [u8; 4],
    queue: u16,
}

impl Steering {
    /// Whether a register has to do with these filters.
    pub(super) fn owns(offset: u32) -> bool {
        (map::ETQF..map::ETQF + 32).contains(&offset) || (map::SAQF..map::ETQS + 32).contains(&offset)
    }

    pub(super) fn gather(regs: &RegisterFile) -> Self {
        let words = |base| (0..).step_by(4).map(move |at| regs.get(base + at));
        let ethertypes = words(map::ETQF)
            .zip(words(map::ETQS))
            .take(8)
            .filter(|(filter, select)| filter & select & ENABLE != 0)
            .map(|(filter, select)| (narrow(filter & 0xFFFF), narrow(select >> 16 & 0x7F)))
            .collect();
        let tuple = |at: u32| {
            let bytes = |base| regs.get(base + at).to_le_bytes();
            Tuple {
                ftqf: regs.get(map::FTQF + at),
                source: bytes(map::SAQF),
                destination: bytes(map::DAQF),
                ports: bytes(map::SDPQF),
                queue: narrow(regs.get(map::L34T_IMIR + at) >> 21 & 0x7F),
            }
        };
        let mut tuples: Vec<_> =
            (0..512).step_by(4).filter(|at| regs.get(map::FTQF + at) & ENABLE != 0).map(tuple).collect();
        tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.ftqf >> 2 & 7));
        Self { ethertypes, tuples }
    }

    /// The queue that a filter leads a frame to, if one matches.
    #[inline]
    pub(super) fn queue(&self, frame: &[u8], ethertype: u16, flow: &Flow) -> Option<u16> {
        if self.ethertypes.is_empty() && self.tuples.is_empty() { None } else { self.find(frame, ethertype, flow) }
    }

    #[cold]
    fn find(&self, frame: &[u8], ethertype: u16, flow: &Flow) -> Option<u16> {
        let by_type = self.ethertypes.iter().find(|(of, _)| *of == ethertype).map(|(_, queue)| *queue);
        by_type.or_else(|| self.tuples.iter().find(|tuple| tuple.matches(frame, flow)).map(|tuple| tuple.queue))
    }
}

impl Tuple {
    /// Whether it matches a frame: none but whole packets of IPv4 do.
    fn matches(&self, frame: &[u8], flow: &Flow) -> bool {
        if flow.packet_type & packet_type::IPV4 == 0 || flow.fragment {
            return false;
        }
        let compared = |not: u32| self.ftqf & not == 0;
        let protocol = match flow.packet_type & (packet_type::TCP | packet_type::UDP | packet_type::SCTP) {
            packet_type::TCP => 0,
            packet_type::UDP => 1,
            packet_type::SCTP => 2,
            _ => 3,
        };
        let (source, destination) = flow.addresses(frame).split_at_checked(4).unwrap_or_default();
        let ports = (protocol != 3).then(|| frame.get(flow.transport()..)?.first_chunk::<4>()).flatten();
        let same_ports =
            |range: std::ops::Range<usize>| ports.is_some_and(|ports| ports[range.clone()] == self.ports[range]);
        (!compared(NO_PROTOCOL) || self.ftqf & 3 == protocol)
            && (!compared(NO_SOURCE) || self.source == *source)
            && (!compared(NO_DESTINATION) || self.destination == *destination)
            && (!compared(NO_SOURCE_PORT) || same_ports(0..2))
            && (!compared(NO_DESTINATION_PORT) || same_ports(2..4))
    }
}

/// A field of at most 16 bits.
fn narrow(field: u32) -> u16 {
    u16::try_from(field).unwrap_or(u16::MAX)
}
