//! Which frames the MAC lets through: address, VLAN and size filters (datasheet 7.1.1, 8.2.3.7).

use super::flow_control::Pause;
use super::map::{self, RegisterFile};

const FCTRL_MPE: u32 = 1 << 8;
const FCTRL_UPE: u32 = 1 << 9;
const FCTRL_BAM: u32 = 1 << 10;
const MFE: u32 = 1 << 2;
const VFE: u32 = 1 << 30;
const CFIEN: u32 = 1 << 29;
const CFI: u32 = 1 << 28;
const JUMBOEN: u32 = 1 << 2;
const AV: u32 = 1 << 31;
const DPF: u32 = 1 << 1;
const RFCE: u32 = 1 << 3;
const BROADCAST: u64 = 0xFFFF_FFFF_FFFF;
/// Largest frame without JUMBOEN, CRC included.
const STANDARD_FRAME: usize = 1518;

/// The filters' settings, gathered from the registers.
#[derive(Debug, Default)]
pub(super) struct Filters {
    stations: Vec<u64>,
    fctrl: u32,
    mcstctrl: u32,
    vlnctrl: u32,
    max_frame: usize,
    mflcn: u32,
}

/// Kind of a destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    #[inline(always)]
    pub(super) fn of(destination: u64) -> Self {
        if destination & 1 == 0 {
            Self::Unicast
        } else if destination == BROADCAST {
            Self::Broadcast
        } else {
            Self::Multicast
        }
    }
}

/// The first six bytes of a frame as a number, first byte lowest.
#[inline(always)]
pub(super) fn destination(frame: &[u8]) -> u64 {
    match frame.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes) & BROADCAST,
        None => frame.iter().take(6).rev().fold(0, |address, byte| address << 8 | u64::from(*byte)),
    }
}

/// The addresses of RAL and RAH, as [`destination`] has them.
pub(super) fn stations(regs: &RegisterFile) -> Vec<u64> {
    let slots = (0..16).map(|n| map::RAL + 8 * n).chain((16..128).map(|n| map::RAL_HIGH + 8 * n));
    let valid = slots.filter(|at| regs.get(at + 4) & AV != 0);
    valid.map(|at| u64::from(regs.get(at)) | u64::from(regs.get(at + 4) & 0xFFFF) << 32).collect()
}

impl Filters {
    pub(super) fn gather(regs: &RegisterFile) -> Self {
        let jumbo = regs.get(map::HLREG0) & JUMBOEN != 0;
        let max_frame = if jumbo { (regs.get(map::MAXFRS) >> 16) as usize } else { STANDARD_FRAME };
        Self {
            stations: stations(regs),
            fctrl: regs.get(map::FCTRL),
            mcstctrl: regs.get(map::MCSTCTRL),
            vlnctrl: regs.get(map::VLNCTRL),
            max_frame,
            mflcn: regs.get(map::MFLCN),
        }
    }

    /// What a MAC control frame is, if it is a PAUSE frame.
    pub(super) fn pause(&self, frame: &[u8], destination: u64) -> Option<Pause> {
        Pause::parse(frame, destination, &self.stations)
    }

    /// Whether PAUSE frames end in the MAC (3.7.7.3.2, MFLCN in 8.2.3.22.34): DPF discards those that RFCE has recognised;
    /// without RFCE they are frames like any other.
    pub(super) fn discards_pause(&self) -> bool {
        self.mflcn & (DPF | RFCE) == DPF | RFCE
    }

    /// For how many times 512 bits sending is to stop, of a PAUSE frame that is obeyed (RFCE).
    pub(super) fn obeyed(&self, pause: Pause) -> Option<u16> {
        (self.mflcn & RFCE != 0).then_some(pause.quanta())
    }

    /// EtherType that marks a VLAN tag.
    #[inline(always)]
    pub(super) fn vlan_type(&self) -> u32 {
        self.vlnctrl & 0xFFFF
    }

    /// Largest frame accepted, in bytes with CRC; a VLAN tag comes on top.
    #[inline(always)]
    pub(super) fn max_frame(&self, tagged: bool) -> usize {
        self.max_frame + if tagged { 4 } else { 0 }
    }

    /// Whether the address filters pass a frame (7.1.1.1).
    #[inline]
    pub(super) fn address_passes(&self, regs: &RegisterFile, destination: u64) -> bool {
        if self.stations.contains(&destination) {
            return true;
        }
        match Cast::of(destination) {
            Cast::Unicast => self.fctrl & FCTRL_UPE != 0,
            Cast::Broadcast => self.fctrl & (FCTRL_BAM | FCTRL_MPE) != 0,
            Cast::Multicast => {
                self.fctrl & FCTRL_MPE != 0 || (self.mcstctrl & MFE != 0 && self.in_multicast_table(regs, destination))
            }
        }
    }

    /// Whether the VLAN filter passes a tag (7.4.3).
    #[inline]
    pub(super) fn vlan_passes(&self, regs: &RegisterFile, tag: Option<u16>) -> bool {
        let Some(tag) = tag else { return true };
        let tag = u32::from(tag);
        if self.vlnctrl & VFE == 0 {
            return true;
        }
        let cfi = u32::from(self.vlnctrl & CFI != 0);
        let cfi_wrong = self.vlnctrl & CFIEN != 0 && tag >> 12 & 1 != cfi;
        let id = tag & 0xFFF;
        !cfi_wrong && regs.get(map::VFTA + 4 * (id >> 5)) & 1 << (id & 31) != 0
    }

    /// MTA (8.2.3.7.7): 12 bits of the address, taken where MCSTCTRL.MO says.
    fn in_multicast_table(&self, regs: &RegisterFile, destination: u64) -> bool {
        // Bits 47:36, 46:35, 45:34 or 43:32.
        let shift = [36, 35, 34, 32][(self.mcstctrl & 3) as usize];
        let hash = u32::try_from(destination >> shift & 0xFFF).unwrap_or(0);
        regs.get(map::MTA + 4 * (hash >> 5)) & 1 << (hash & 31) != 0
    }
}
