//! Flow control by PAUSE frames: what they are, and when this end sends some (datasheet 3.7.7, 8.2.3.3).

use super::map::{self, RegisterFile};
use super::tx::count;
use super::{Io, Wire};
use crate::wire::Sent;

/// FCCFG.TFCE, and its value for PAUSE frames. Those of single priorities, which 2 asks for, are not sent.
const TFCE: u32 = 3 << 3;
const TFCE_LINK: u32 = 1 << 3;
/// FCRTH.FCEN and FCRTL.XONE.
const ENABLED: u32 = 1 << 31;
/// FCRTH.RTH and FCRTL.RTL, in bytes.
const LEVEL: u32 = 0x7_FFE0;

/// A PAUSE frame (IEEE 802.3, annex 31B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Go on sending: a pause of no time.
    Xon,
    /// Send nothing for so many times 512 bits.
    Xoff(u16),
}

impl Pause {
    /// The EtherType of MAC control frames.
    pub(super) const ETHERTYPE: u16 = 0x8808;
    /// 01:80:C2:00:00:01, as [`destination`](super::filters::destination) has it.
    const ADDRESS: u64 = 0x0100_00C2_8001;

    /// What a MAC control frame to this address is, if it is a PAUSE frame.
    #[cold]
    pub(super) fn parse(frame: &[u8], destination: u64, stations: &[u64]) -> Option<Self> {
        let [0, 1, high, low] = *frame.get(14..18)? else { return None };
        let addressed = destination == Self::ADDRESS || stations.contains(&destination);
        addressed.then_some(match u16::from_be_bytes([high, low]) {
            0 => Self::Xon,
            quanta => Self::Xoff(quanta),
        })
    }

    /// For how many times 512 bits nothing is to be sent.
    pub(super) fn quanta(self) -> u16 {
        if let Self::Xoff(quanta) = self { quanta } else { 0 }
    }

    /// The frame, from the station of receive address 0.
    fn frame(self, regs: &RegisterFile) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&Self::ADDRESS.to_le_bytes()[..6]);
        frame[6..10].copy_from_slice(&regs.get(map::RAL).to_le_bytes());
        frame[10..12].copy_from_slice(&regs.get(map::RAL + 4).to_le_bytes()[..2]);
        frame[12..14].copy_from_slice(&Self::ETHERTYPE.to_be_bytes());
        frame[15] = 1;
        frame[16..18].copy_from_slice(&self.quanta().to_be_bytes());
        frame
    }
}

/// The PAUSE frames that this end sends.
#[derive(Debug, Default)]
pub(super) struct FlowControl {
    /// The tick of the last XOFF, until the packet buffer is below the low threshold.
    stopped_at: Option<u64>,
}

impl FlowControl {
    /// Once a step: sends XOFF or XON if the packet buffer asks for it.
    #[inline]
    pub(super) fn step(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, now: u64) {
        if io.regs.get(map::FCCFG) & TFCE == TFCE_LINK {
            self.look(io, wire, now);
        }
    }

    #[cold]
    fn look(&mut self, io: &mut Io<'_>, wire: &mut dyn Wire, now: u64) {
        let (high, low) = (io.regs.get(map::FCRTH), io.regs.get(map::FCRTL));
        let time = u16::try_from(io.regs.get(map::FCTTV) & 0xFFFF).unwrap_or(u16::MAX);
        let refresh = u64::from(time).saturating_sub(u64::from(io.regs.get(map::FCRTV) & 0xFFFF));
        let held = wire.held();
        let (pause, stopped_at) = match self.stopped_at {
            None if high & ENABLED != 0 && held >= (high & LEVEL) as usize => (Some(Pause::Xoff(time)), Some(now)),
            Some(_) if held <= (low & LEVEL) as usize => ((low & ENABLED != 0).then_some(Pause::Xon), None),
            // Before the other end goes on: as long as FCTTV says, less FCRTV.
            Some(at) if refresh != 0 && now >= at + refresh => (Some(Pause::Xoff(time)), Some(now)),
            _ => return,
        };
        if let Some(pause) = pause {
            let frame = pause.frame(io.regs);
            let sent = wire.transmit(&frame);
            if matches!(sent, Sent::Full) {
                return;
            }
            count(io, &frame, sent, None, true);
            io.stats.pause_sent(pause);
        }
        self.stopped_at = stopped_at;
    }
}
