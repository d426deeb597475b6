//! Flow control by PAUSE frames (datasheet 3.7.7).

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
}
