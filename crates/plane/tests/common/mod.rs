//! A forwarder that is asked for one frame at a time.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use mempool::{Batch, Pool, PoolCache, PoolConfig};
use router::{Egress, LiveFib, LiveForwarder, Refusal};
use std::net::IpAddr;

/// Where the next frame leaves: port and VLAN, destination and source address; or why it does not.
pub(crate) type Fate = Result<((usize, Option<u16>), [u8; 6], [u8; 6]), Refusal>;

pub(crate) struct Asked {
    pub(crate) forwarder: LiveForwarder,
    cache: PoolCache,
    batch: Batch,
    egress: Egress,
}

impl Asked {
    pub(crate) fn new(fib: &LiveFib, ports: usize) -> Self {
        let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        let (cache, batch, egress) = (pool.cache(), Batch::with_capacity(4), Egress::new(ports, 4));
        Self { forwarder: fib.forwarder(), cache, batch, egress }
    }

    /// What becomes of a frame that comes in by port 0 and this VLAN, to this station.
    pub(crate) fn fate(&mut self, station: [u8; 6], vlan: Option<u16>, packet: &[u8]) -> Fate {
        let ether_type = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xDD] };
        let tag = vlan.map_or(vec![], |vlan| [[0x81, 0], vlan.to_be_bytes()].concat());
        let frame = [&station[..], &[2, 7, 7, 7, 7, 7], &tag, &ether_type, packet].concat();
        let mut buffer = self.cache.alloc().unwrap();
        buffer.append(frame.len()).unwrap().copy_from_slice(&frame);
        self.batch.push(buffer).unwrap();
        assert_eq!(self.forwarder.route(0, &mut self.batch, &mut self.egress), 1);
        let refused = self.egress.drain_refused().next().map(|(_, refusal)| refusal);
        let mut sent = None;
        for (port, output) in self.egress.outputs().iter_mut().enumerate() {
            for packet in output.drain() {
                let (data, (to, from)) = (packet.data(), packet.data()[..12].split_at(6));
                let vlan = (data[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([data[14], data[15]]));
                sent = Some(((port, vlan), to.try_into().unwrap(), from.try_into().unwrap()));
            }
        }
        refused.map_or_else(|| Ok(sent.unwrap()), Err)
    }
}

/// A UDP packet of so many bytes, from an address that is nobody's.
pub(crate) fn packet(to: IpAddr, source: u8, len: u16) -> Vec<u8> {
    let mut packet = match to {
        IpAddr::V4(to) => {
            let [high, low] = len.to_be_bytes();
            let mut header =
                [&[0x45, 0, high, low, 0, 7, 0, 0, 64, 17, 0, 0, 99, 9, 9, source][..], &to.octets()].concat();
            let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            let sum = (sum & 0xFFFF) + (sum >> 16);
            let sum = !u16::try_from((sum & 0xFFFF) + (sum >> 16)).unwrap();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        IpAddr::V6(to) => {
            let [high, low] = (len - 40).to_be_bytes();
            let from = [0x20, 1, 0xD, 0xB8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, source];
            [&[0x60, 0, 0, 0, high, low, 17, 64][..], &from, &to.octets()].concat()
        }
    };
    packet.resize(len.into(), 0);
    packet
}
