//! The PHY of an X540 or X550 behind MSCA and MSRWD (clause 45 of IEEE 802.3; X550 datasheet 8.2.2.16.4, 8.2.2.16.5): who it is, and whether it is powered.

use super::DeviceId;
use std::collections::BTreeMap;

const MDI_CMD: u32 = 1 << 30;
const WRITE: u32 = 1;

/// The only MDIO address that answers.
const ADDRESS: u32 = 0;
/// Vendor-specific device 1: register 0 has the power bit.
const VENDOR: u32 = 0x1E;
const LOW_POWER: u16 = 1 << 11;
/// PMA, PCS, PHY XS and auto-negotiation.
const DEVICES: [u32; 4] = [1, 3, 4, 7];

/// The bus, and the PHY if there is one.
#[derive(Debug)]
pub(super) struct Phy {
    /// Registers of the PHY by device and number; `None` if no PHY is on the bus.
    registers: Option<BTreeMap<(u32, u32), u16>>,
    /// The register that the next command is about.
    register: u32,
    data: u16,
}

impl Phy {
    pub(super) fn new(id: DeviceId) -> Self {
        let registers = id.has_phy().then(|| {
            let model = if id == DeviceId::X550 { 0x0221 } else { 0x0200 };
            // It runs at 10 Gbit/s, 1 Gbit/s and 100 Mbit/s, by 10GBASE-T and 1000BASE-T.
            let abilities = [((1, 4), 0x0031), ((1, 11), 0x0024)];
            let mut registers = BTreeMap::from([((1, 2), 0x0154), ((1, 3), model)]);
            registers.extend(abilities);
            // Status 2: a device is here.
            registers.extend(DEVICES.map(|device| ((device, 8), 0x8000)));
            registers
        });
        Self { registers, register: 0, data: u16::MAX }
    }

    /// MSRWD.MDIRDATA: what the last command has read.
    pub(super) fn data(&self) -> u32 {
        u32::from(self.data) << 16
    }

    /// A command in MSCA, with MSRWD.MDIWRDATA. Returns MSCA after it.
    pub(super) fn command(&mut self, msca: u32, write_data: u32, silent: bool) -> u32 {
        if msca & MDI_CMD == 0 {
            return msca;
        }
        let (device, phy) = (msca >> 16 & 0x1F, msca >> 21 & 0x1F);
        let here = self.registers.as_mut().filter(|_| phy == ADDRESS && !silent);
        match (msca >> 26 & 3, here) {
            (0, _) => self.register = msca & 0xFFFF,
            (WRITE, Some(registers)) => {
                registers.insert((device, self.register), u16::try_from(write_data & 0xFFFF).unwrap_or(0));
            }
            (WRITE, None) => {}
            (_, Some(registers)) => self.data = registers.get(&(device, self.register)).copied().unwrap_or(0),
            (_, None) => self.data = u16::MAX,
        }
        msca & !MDI_CMD
    }

    /// Puts the PHY to sleep, as an earlier driver may have left it.
    pub(super) fn sleep(&mut self) {
        if let Some(registers) = &mut self.registers {
            registers.insert((VENDOR, 0), LOW_POWER);
        }
    }

    /// Whether a link can be had through it.
    pub(super) fn is_powered(&self) -> bool {
        self.registers
            .as_ref()
            .is_none_or(|registers| registers.get(&(VENDOR, 0)).is_none_or(|word| word & LOW_POWER == 0))
    }
}
