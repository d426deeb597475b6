//! Packets that leave by the port they came by, of which their senders should hear (RFC 1812, 5.2.7.2; RFC 4861, 8.2).

use crate::check::Refusal;
use crate::egress::Egress;
use crate::ethernet::Stations;
use crate::forwarder::LiveForwarder;
use crate::{ipv4, ipv6};
use mempool::{Batch, Packet};

/// Bursts of a port that are looked through at most.
const BURSTS: u8 = 64;

impl LiveForwarder {
    /// Has the next bursts of each port looked through for a packet that would leave by the port it came by, both without a tag. The first
    /// such of each port is refused as [`Refusal::Probe`], so that who gets it forwards it and sends a redirect; if there is none in 64 bursts,
    /// no more are looked through. Call it now and then: a burst that is looked through costs several times as much.
    pub fn seek_turned_back(&mut self) {
        self.seeks.fill(BURSTS);
    }

    /// Refuses the first packet that would leave by the port it came by. Returns how many there were.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_turned_back(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        let Some(bursts) = self.seeks.get_mut(ingress) else { return 0 };
        *bursts = bursts.saturating_sub(1);
        let stations = self.shared.interfaces().stations(ingress);
        let whole = |at: usize| !batch[at].continues() && (at == 0 || !batch[at - 1].continues());
        let found = (0..batch.len()).filter(|at| whole(*at)).find(|at| self.turns_back(ingress, &batch[*at], stations));
        let Some(at) = found else { return 0 };
        self.seeks[ingress] = 0;
        batch.drain_range(at..=at).for_each(|packet| egress.refuse(packet, Refusal::Probe));
        1
    }

    fn turns_back(&mut self, ingress: usize, packet: &Packet, stations: Stations) -> bool {
        let (data, len) = (packet.data(), packet.meta().len());
        let v4 =
            data.first_chunk().filter(|start| ipv4::is_plain(start, stations.v4) && ipv4::end(start, len).is_some());
        let hop = if let Some(start) = v4 {
            self.v4.lookup(ipv4::destination(start).into())
        } else {
            let v6 = data.first_chunk();
            let v6 = v6.and_then(|start| ipv6::plain(start, len.into(), stations.v6, usize::MAX, true));
            v6.and_then(|(destination, _)| self.v6.lookup(destination.into()))
        };
        hop.and_then(|hop| self.shared.port_of(hop.get(), data)).is_some_and(|port| usize::from(port) == ingress)
    }
}
