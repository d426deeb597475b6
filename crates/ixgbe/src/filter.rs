//! Which frames the device takes: unicast, multicast, broadcast and VLAN filters (82599 datasheet 7.1.1, 8.2.3.7).

use crate::Result;
use crate::regs::{
    FCTRL, MCSTCTRL, MTA, RECEIVE_ADDRESSES, Registers, VFTA, VLNCTRL, fctrl, mcstctrl, rah, rah_fields, ral, vlnctrl,
};
use crate::wait::{Command, modify};
use device::{Device, TimeLimit};
use ethdev::{ConfigError, MacAddress, PortConfig};
use intel::{group_hash, multicast_table};
use std::collections::BTreeSet;

/// The receive filters of a port. Each call takes [`PortConfig::time_limit`] at most. Initially broadcast frames are
/// received, and VLAN tags are ignored.
pub struct Filters<D: Device> {
    regs: Registers<D>,
    time_limit: TimeLimit,
    unicast: Vec<Option<[u8; 6]>>,
    multicast: BTreeSet<MacAddress>,
    vlans: BTreeSet<u16>,
    promiscuous: bool,
    all_multicast: bool,
}

impl<D: Device> Filters<D> {
    /// Clears every filter of the device, and sets its own address and what `config` says.
    pub(crate) fn new(regs: &Registers<D>, station: [u8; 6], config: &PortConfig) -> Result<Self> {
        let mut unicast = vec![None; RECEIVE_ADDRESSES as usize];
        unicast[0] = Some(station);
        let filters = Self {
            regs: regs.clone(),
            time_limit: config.time_limit.clone(),
            unicast,
            multicast: BTreeSet::new(),
            vlans: BTreeSet::new(),
            promiscuous: config.promiscuous,
            all_multicast: config.all_multicast,
        };
        for index in 0..RECEIVE_ADDRESSES {
            filters.write_unicast(index);
        }
        (0..MTA.count()).for_each(|i| regs.write(MTA.at(i), 0));
        (0..VFTA.count()).for_each(|i| regs.write(VFTA.at(i), 0));
        modify(regs, MCSTCTRL, |value| mcstctrl::MO.set(value, MULTICAST_BITS_47_36) | mcstctrl::MFE.mask())?;
        filters.write_vlan_filter(false)?;
        filters.write_broadcast(true)?;
        filters.write_promiscuous()?;
        Ok(filters)
    }

    /// Turns promiscuous mode on or off. When on, frames for any address, unicast or multicast, are received; when off,
    /// those for the addresses that were added.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`].
    pub fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        let _command = self.command();
        self.promiscuous = on;
        self.write_promiscuous()
    }

    /// Turns the reception of all multicast frames on or off. When off, those for the addresses that were added are
    /// received. A promiscuous port receives all of them in either case.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`].
    pub fn set_all_multicast(&mut self, on: bool) -> Result<()> {
        let _command = self.command();
        self.all_multicast = on;
        self.write_promiscuous()
    }

    /// Sets the groups whose frames are received, instead of those that were set or added before.
    pub(crate) fn set_groups(&mut self, groups: &[MacAddress]) {
        let _command = self.command();
        self.multicast = groups.iter().copied().collect();
        let table = multicast_table(groups.iter().copied());
        (0..).zip(table).for_each(|(at, word)| self.regs.write(MTA.at(at), word));
    }

    /// Changes the station's own address.
    pub(crate) fn set_station(&mut self, station: [u8; 6]) {
        let _command = self.command();
        self.unicast[0] = Some(station);
        self.write_unicast(0);
    }

    /// Turns the reception of broadcast frames on or off.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`].
    pub fn set_broadcast(&self, on: bool) -> Result<()> {
        let _command = self.command();
        self.write_broadcast(on)
    }

    /// Starts receiving frames for `address`, unicast or multicast. Adding an address again changes nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] for the zero or broadcast address, or if all 128 unicast filters are in use.
    pub fn add_address(&mut self, address: [u8; 6]) -> Result<()> {
        let mac = MacAddress(address);
        if mac == MacAddress::ZERO || mac == MacAddress::BROADCAST {
            return Err(ConfigError::new("address", format!("{mac}: neither unicast nor multicast")).into());
        }
        let _command = self.command();
        if mac.is_multicast() {
            self.multicast.insert(mac);
            self.write_multicast(mac);
            return Ok(());
        }
        if self.unicast.contains(&Some(address)) {
            return Ok(());
        }
        match (0..).zip(&mut self.unicast).find(|(_, entry)| entry.is_none()) {
            Some((index, free)) => {
                *free = Some(address);
                self.write_unicast(index);
                Ok(())
            }
            None => {
                let problem =
                    format!("{mac}: all {RECEIVE_ADDRESSES} filters are in use, remove one or go promiscuous");
                Err(ConfigError::new("address", problem).into())
            }
        }
    }

    /// Stops receiving frames for `address`. Returns whether it had been added; the station's own address cannot be
    /// removed.
    pub fn remove_address(&mut self, address: [u8; 6]) -> bool {
        let _command = self.command();
        let mac = MacAddress(address);
        if mac.is_multicast() {
            let known = self.multicast.remove(&mac);
            self.write_multicast(mac);
            return known;
        }
        let known = (0..).zip(&mut self.unicast).skip(1).find(|(_, entry)| **entry == Some(address));
        let Some((index, entry)) = known else { return false };
        *entry = None;
        self.write_unicast(index);
        true
    }

    /// Turns the VLAN filter on or off. When on, tagged frames are received only if their VLAN was added; when off, the
    /// tag is ignored. Untagged frames are received in either case.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Gone`].
    pub fn set_vlan_filter(&self, on: bool) -> Result<()> {
        let _command = self.command();
        self.write_vlan_filter(on)
    }

    /// Adds VLAN `id`, 0 to 4095, to those that the VLAN filter lets through.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Config`] for an id above 4095.
    pub fn add_vlan(&mut self, id: u16) -> Result<()> {
        if id > 4095 {
            return Err(ConfigError::new("vlan", format!("{id}: must be 0 to 4095")).into());
        }
        let _command = self.command();
        self.vlans.insert(id);
        self.write_vlan(id);
        Ok(())
    }

    /// Removes VLAN `id` from those that the VLAN filter lets through. Returns whether it was one of them.
    pub fn remove_vlan(&mut self, id: u16) -> bool {
        let _command = self.command();
        let known = self.vlans.remove(&id);
        if known {
            self.write_vlan(id);
        }
        known
    }

    fn command(&self) -> Command<D> {
        Command::begin(&self.regs, &self.time_limit)
    }

    fn write_broadcast(&self, on: bool) -> Result<()> {
        modify(&self.regs, FCTRL, |value| fctrl::BAM.set(value, on.into()))
    }

    fn write_vlan_filter(&self, on: bool) -> Result<()> {
        modify(&self.regs, VLNCTRL, |value| vlnctrl::VFE.set(value, on.into()))
    }

    fn write_promiscuous(&self) -> Result<()> {
        modify(&self.regs, FCTRL, |value| {
            let value = fctrl::UPE.set(value, self.promiscuous.into());
            fctrl::MPE.set(value, (self.promiscuous || self.all_multicast).into())
        })
    }

    /// Writes a unicast filter. The valid bit is cleared first and set last, so that no half-written address matches.
    fn write_unicast(&self, index: u32) {
        self.regs.write(rah(index), 0);
        let a = self.unicast[index as usize].unwrap_or_default();
        self.regs.write(ral(index), u32::from_le_bytes([a[0], a[1], a[2], a[3]]));
        if self.unicast[index as usize].is_some() {
            self.regs.write(rah(index), u32::from_le_bytes([a[4], a[5], 0, 0]) | rah_fields::AV.mask());
        }
    }

    /// Writes the dword of the multicast table that holds the bit of a group: several groups share bits and dwords.
    fn write_multicast(&self, group: MacAddress) {
        let (hash, all) = (group_hash(group), self.multicast.iter().copied());
        self.regs.write(MTA.at(u32::from(hash >> 5)), dword_of(hash, all.map(group_hash)));
    }

    fn write_vlan(&self, id: u16) {
        self.regs.write(VFTA.at(u32::from(id >> 5)), dword_of(id, self.vlans.iter().copied()));
    }
}

impl<D: Device> std::fmt::Debug for Filters<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unicast = self.unicast.iter().flatten().count();
        f.debug_struct("Filters")
            .field("promiscuous", &self.promiscuous)
            .field("all_multicast", &self.all_multicast)
            .field("unicast", &unicast)
            .field("multicast", &self.multicast.len())
            .field("vlans", &self.vlans.len())
            .finish_non_exhaustive()
    }
}

/// MCSTCTRL.MO: bits 47:36 of a multicast address select its bit in the table.
const MULTICAST_BITS_47_36: u32 = 0;

/// Returns the dword of a 4096-bit table that holds the bit of `member`, with the bits of all `members` in that dword.
fn dword_of(member: u16, members: impl Iterator<Item = u16>) -> u32 {
    members.filter(|other| other >> 5 == member >> 5).fold(0, |dword, other| dword | 1 << (other & 31))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, STATION};

    fn filters(fake: &Fake, config: &PortConfig) -> Filters<Fake> {
        Filters::new(&fake.regs(), STATION, config).unwrap()
    }

    #[test]
    fn starts_clean() {
        let fake = Fake::new(0x10FB);
        (0..128).for_each(|i| fake.set(MTA.at(i), 7));
        (0..128).for_each(|i| fake.set(VFTA.at(i), 7));
        (1..128).for_each(|i| fake.set(rah(i), 0x8000_0000));
        fake.set(VLNCTRL, 0x4000_8100);
        let config = PortConfig { promiscuous: false, all_multicast: false, ..PortConfig::default() };
        filters(&fake, &config);
        assert!((0..128).all(|i| fake.get(MTA.at(i)) == 0 && fake.get(VFTA.at(i)) == 0));
        assert!((1..128).all(|i| fake.get(rah(i)) == 0));
        assert_eq!((fake.get(ral(0)), fake.get(rah(0))), (0x3322_1102, 0x8000_5544));
        assert_eq!((fake.get(FCTRL), fake.get(VLNCTRL), fake.get(MCSTCTRL)), (0x400, 0x8100, 4));
    }

    #[test]
    fn promiscuous_includes_multicast_and_gives_it_back() {
        let fake = Fake::new(0x10FB);
        let config = PortConfig { promiscuous: false, all_multicast: false, ..PortConfig::default() };
        let mut filters = filters(&fake, &config);
        filters.set_promiscuous(true).unwrap();
        assert_eq!(fake.get(FCTRL), 0x700);
        filters.set_promiscuous(false).unwrap();
        assert_eq!(fake.get(FCTRL), 0x400);
        filters.set_all_multicast(true).unwrap();
        filters.set_broadcast(false).unwrap();
        assert_eq!(fake.get(FCTRL), 0x100);
    }

    #[test]
    fn unicast_addresses_fill_and_leave_the_table() {
        let fake = Fake::new(0x10FB);
        let mut filters = filters(&fake, &PortConfig::default());
        let address = |i: u8| [0x02, 0, 0, 0, 1, i];
        for i in 1..128 {
            filters.add_address(address(i)).unwrap();
            filters.add_address(address(i)).unwrap();
        }
        assert_eq!((fake.get(ral(127)), fake.get(rah(127))), (0x0000_0002, 0x8000_7F01));
        assert!(filters.add_address(address(128)).unwrap_err().to_string().contains("all 128 filters"));
        assert!(filters.remove_address(address(16)));
        assert!(!filters.remove_address(address(16)));
        assert_eq!(fake.get(rah(16)), 0);
        filters.add_address(address(200)).unwrap();
        assert_eq!(fake.get(rah(16)), 0x8000_C801);
        assert!(!filters.remove_address(STATION), "the station's own address stays");
        assert_eq!(fake.get(rah(0)), 0x8000_5544);
    }

    #[test]
    fn an_address_is_never_valid_while_half_written() {
        let fake = Fake::new(0x10FB);
        let mut filters = filters(&fake, &PortConfig::default());
        let before = fake.writes().len();
        filters.add_address([0x02, 1, 2, 3, 4, 5]).unwrap();
        let writes = fake.writes().split_off(before);
        assert_eq!(writes, [(0x540C, 0), (0x5408, 0x0302_0102), (0x540C, 0x8000_0504)]);
    }

    #[test]
    fn multicast_addresses_that_share_a_bit_do_not_take_each_other_away() {
        let fake = Fake::new(0x10FB);
        let mut filters = filters(&fake, &PortConfig::default());
        // Bits 47:36 of 01:00:5e:00:00:fb are 0xfb0: dword 125, bit 16.
        let (mdns, twin, neighbour) = ([1, 0, 0x5E, 0, 0, 0xFB], [1, 0, 0x5E, 9, 9, 0xFB], [1, 0, 0x5E, 0, 0x10, 0xFB]);
        for address in [mdns, twin, neighbour] {
            filters.add_address(address).unwrap();
        }
        assert_eq!(fake.get(MTA.at(125)), 0x0003_0000);
        assert!(filters.remove_address(mdns));
        assert_eq!(fake.get(MTA.at(125)), 0x0003_0000, "its twin still wants the bit");
        assert!(filters.remove_address(twin));
        assert_eq!(fake.get(MTA.at(125)), 0x0002_0000);
        assert!(!filters.remove_address(twin));
    }

    #[test]
    fn a_set_of_groups_replaces_the_one_before() {
        let fake = Fake::new(0x10FB);
        let config = PortConfig { promiscuous: false, all_multicast: false, ..PortConfig::default() };
        let mut filters = filters(&fake, &config);
        let [mdns, ours, other] = [[1, 0, 0x5E, 0, 0, 0xFB], [0x33, 0x33, 0xFF, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 5]];
        filters.add_address(mdns).unwrap();
        filters.set_groups(&[MacAddress(ours), MacAddress(mdns)]);
        let bits = |fake: &Fake| (0..128).filter(|at| fake.get(MTA.at(*at)) != 0).collect::<Vec<_>>();
        // Hashes 0x010, 0x050 and 0xfb0.
        assert_eq!((bits(&fake), fake.get(MTA.at(0)), fake.get(MTA.at(125))), (vec![0, 125], 1 << 16, 1 << 16));
        let before = fake.writes().len();
        filters.set_groups(&[MacAddress(ours), MacAddress(other)]);
        assert_eq!((bits(&fake), fake.get(MTA.at(2))), (vec![0, 2], 1 << 16));
        assert!(!fake.writes()[before..].contains(&(MTA.at(0).offset(), 0)), "what stays is received all the time");
        filters.set_all_multicast(true).unwrap();
        filters.set_all_multicast(false).unwrap();
        assert_eq!((bits(&fake), fake.get(FCTRL) >> 8 & 7), (vec![0, 2], 4));
        filters.set_groups(&[]);
        assert!(bits(&fake).is_empty());
    }

    #[test]
    fn vlans() {
        let fake = Fake::new(0x10FB);
        let mut filters = filters(&fake, &PortConfig::default());
        filters.set_vlan_filter(true).unwrap();
        for id in [0, 100, 101, 4095] {
            filters.add_vlan(id).unwrap();
        }
        assert_eq!([0, 3, 127].map(|i| fake.get(VFTA.at(i))), [1, 0x30, 0x8000_0000]);
        assert!(filters.remove_vlan(100) && !filters.remove_vlan(100) && !filters.remove_vlan(9999));
        assert_eq!((fake.get(VFTA.at(3)), fake.get(VLNCTRL) >> 30), (0x20, 1));
        assert_eq!(filters.add_vlan(4096).unwrap_err().to_string(), "vlan: 4096: must be 0 to 4095");
    }

    #[test]
    fn some_addresses_are_no_filters() {
        let fake = Fake::new(0x10FB);
        let mut filters = filters(&fake, &PortConfig::default());
        assert!(filters.add_address([0; 6]).is_err());
        assert!(filters.add_address([0xFF; 6]).unwrap_err().to_string().contains("ff:ff:ff:ff:ff:ff"));
    }
}
