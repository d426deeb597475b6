//! Which frames the device takes (82576 datasheet 7.1.1, 8.10).

use crate::MacType;
use crate::Result;
use crate::regs::{MTA, RAH, RAHX, RAL, RCTL, Registers, VFTA, rah, rctl};
use crate::wait::modify;
use device::Device;
use ethdev::{MacAddress, PortConfig};

/// The receive modes of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub(crate) promiscuous: bool,
    pub(crate) all_multicast: bool,
}

impl From<&PortConfig> for Modes {
    fn from(config: &PortConfig) -> Self {
        Self { promiscuous: config.promiscuous, all_multicast: config.all_multicast }
    }
}

impl Modes {
    /// Has the device keep to them.
    pub(crate) fn write<D: Device>(self, regs: &Registers<D>) -> Result<()> {
        modify(regs, RCTL, |value| {
            let value = rctl::UPE.set(value, self.promiscuous.into());
            rctl::MPE.set(value, (self.promiscuous || self.all_multicast).into())
        })
    }
}

/// Clears every filter but the station's.
pub(crate) fn clear<D: Device>(regs: &Registers<D>, mac: MacType) {
    (1..RAH.count()).for_each(|n| regs.write(RAH.at(n), 0));
    (0..mac.receive_addresses() - RAH.count()).for_each(|n| regs.write(RAHX.at(n), 0));
    (0..MTA.count()).for_each(|n| regs.write(MTA.at(n), 0));
    (0..VFTA.count()).for_each(|n| regs.write(VFTA.at(n), 0));
}

/// Sets the groups whose frames are received: those of the 4096-bit table, by the bits that RCTL.MO says.
pub(crate) fn set_groups<D: Device>(regs: &Registers<D>, groups: &[MacAddress]) {
    let table = intel::multicast_table(groups.iter().copied());
    (0..).zip(table).for_each(|(at, word)| regs.write(MTA.at(at), word));
}

/// Returns the station address, which the EEPROM has loaded into receive address 0 (8.10).
///
/// # Errors
///
/// [`crate::Error::Eeprom`] when there is none, or it is no station's; [`crate::Error::Gone`].
pub(crate) fn station<D: Device>(regs: &Registers<D>) -> Result<[u8; 6]> {
    intel::station_address(regs, RAL.at(0), RAH.at(0))
}

/// Changes the station address. The valid bit is cleared first and set last, so that no half-written address matches.
pub(crate) fn set_station<D: Device>(regs: &Registers<D>, [a, b, c, d, e, f]: [u8; 6]) {
    regs.write(RAH.at(0), 0);
    regs.write(RAL.at(0), u32::from_le_bytes([a, b, c, d]));
    regs.write(RAH.at(0), u32::from_le_bytes([e, f, 0, 0]) | rah::AV.mask());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn promiscuous_includes_multicast_and_gives_it_back() {
        let fake = Fake::new(0x10C9);
        fake.set(RCTL, 1 << 15 | 1 << 1);
        let modes = [(true, false), (false, false), (false, true)].map(|(promiscuous, all_multicast)| {
            Modes { promiscuous, all_multicast }.write(&fake.regs()).unwrap();
            fake.get(RCTL)
        });
        assert_eq!(modes, [0x801A, 0x8002, 0x8012]);
    }

    #[test]
    fn an_address_is_never_valid_while_half_written() {
        let fake = Fake::new(0x10C9);
        set_station(&fake.regs(), [2, 1, 2, 3, 4, 5]);
        assert_eq!((fake.written(RAH.at(0)), fake.get(RAL.at(0))), (vec![0, 0x8000_0504], 0x0302_0102));
        assert_eq!(station(&fake.regs()).unwrap(), [2, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_set_of_groups_replaces_the_one_before() {
        let fake = Fake::new(0x10C9);
        let [mdns, ours] = [[1, 0, 0x5E, 0, 0, 0xFB], [0x33, 0x33, 0xFF, 0, 0, 1]].map(MacAddress);
        let bits = || (0..128).filter(|at| fake.get(MTA.at(*at)) != 0).collect::<Vec<_>>();
        set_groups(&fake.regs(), &[mdns, ours]);
        // Bits 47:36, which are 0xfb0 and 0x010.
        assert_eq!((bits(), fake.get(MTA.at(125)), fake.get(MTA.at(0))), (vec![0, 125], 1 << 16, 1 << 16));
        set_groups(&fake.regs(), &[ours]);
        assert_eq!(
            (bits(), fake.written(MTA.at(0))),
            (vec![0], vec![1 << 16; 2]),
            "what stays is received all the time"
        );
        set_groups(&fake.regs(), &[]);
        assert!(bits().is_empty());
    }

    #[test]
    fn an_address_of_nobody_is_refused() {
        for (low, high) in [(0, 0x8000_0000), (0x3322_1102, 0x5544), (0x3322_1103, 0x8000_5544)] {
            let fake = Fake::new(0x10C9);
            fake.set(RAL.at(0), low);
            fake.set(RAH.at(0), high);
            assert!(matches!(station(&fake.regs()), Err(crate::Error::Eeprom { .. })), "{low:#x} {high:#x}");
        }
    }

    #[test]
    fn all_filters_but_the_stations_are_cleared() {
        for (mac, last) in [(MacType::Mac82576, 7), (MacType::I350, 15)] {
            let fake = Fake::new(0x10C9);
            (0..16).for_each(|n| fake.set(RAHX.at(n), 1 << 31));
            fake.set(MTA.at(127), 7);
            clear(&fake.regs(), mac);
            assert_eq!((fake.get(RAH.at(0)), fake.get(RAH.at(15)), fake.get(MTA.at(127))), (0x8000_5544, 0, 0));
            assert_eq!(fake.written(RAHX.at(last)).len(), 1);
            assert!(last == 15 || fake.written(RAHX.at(last + 1)).is_empty());
        }
    }
}
