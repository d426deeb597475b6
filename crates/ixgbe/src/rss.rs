//! Receive side scaling: key, redirection table and packet types (82599 datasheet 7.1.2.8).

use crate::MacType;
use crate::regs::{ERETA, MRQC, RETA, RSSRK, Registers, mrqc};
use device::Device;
use ethdev::{Reta, Rss};

/// Programs key, table and types, and switches RSS on (4.6.10.1, 8.2.3.7).
pub(crate) fn program<D: Device>(regs: &Registers<D>, rss: &Rss, queues: u16, mac: MacType) {
    for (i, bytes) in (0..).zip(rss.key.as_chunks::<4>().0) {
        regs.write(RSSRK.at(i), u32::from_le_bytes(*bytes));
    }
    program_table(regs, &rss.reta, queues, mac);
    regs.write(MRQC, mrqc::MODE.set(u32::from(rss.hash.bits()) << HASH_TYPES, MODE_RSS));
}

/// Programs the table.
pub(crate) fn program_table<D: Device>(regs: &Registers<D>, reta: &Reta, queues: u16, mac: MacType) {
    for dword in 0..u32::from(mac.reta_entries()) / 4 {
        let entries = [0, 1, 2, 3].map(|i| reta.queue(dword * 4 + i, queues));
        let register = if dword < RETA.count() { RETA.at(dword) } else { ERETA.at(dword - RETA.count()) };
        regs.write(register, u32::from_le_bytes(entries));
    }
}

/// MRQC mode: RSS, no virtualisation, no traffic classes.
const MODE_RSS: u32 = 1;
/// The lowest bit of MRQC's packet types, which are in the order of [`ethdev::HashTypes`].
const HASH_TYPES: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use ethdev::HashTypes;

    #[test]
    fn key_byte_0_is_the_lowest_byte() {
        let fake = Fake::new(0x10FB);
        program(&fake.regs(), &Rss::default(), 1, MacType::Mac82599);
        assert_eq!((fake.get(RSSRK.at(0)), fake.get(RSSRK.at(9))), (0xda56_5a6d, 0xfa01_acbe));
    }

    #[test]
    fn types_and_mode_share_a_register() {
        let fake = Fake::new(0x10FB);
        let rss = Rss { hash: HashTypes::TCP_IPV4 | HashTypes::UDP_IPV6_EX, ..Rss::default() };
        program(&fake.regs(), &rss, 1, MacType::Mac82599);
        assert_eq!(fake.get(MRQC), 0x0101_0001);
    }

    #[test]
    fn even_spread_takes_queues_in_turn() {
        let fake = Fake::new(0x10FB);
        program(&fake.regs(), &Rss::default(), 3, MacType::Mac82599);
        assert_eq!([RETA.at(0), RETA.at(1), RETA.at(31)].map(|r| fake.get(r)), [0x0002_0100, 0x0100_0201, 0x0100_0201]);
        assert!(fake.writes().iter().all(|(offset, _)| !(0xEE80..0xF000).contains(offset)), "no ERETA on the 82599");
    }

    #[test]
    fn x550_has_512_entries() {
        let fake = Fake::new(0x1563);
        program(&fake.regs(), &Rss::default(), 64, MacType::X550);
        assert_eq!(
            (fake.get(RETA.at(15)), fake.get(ERETA.at(0)), fake.get(ERETA.at(95))),
            (0x3f3e_3d3c, 0x0302_0100, 0x3f3e_3d3c)
        );
    }

    #[test]
    fn a_table_is_repeated() {
        let fake = Fake::new(0x10FB);
        let rss = Rss { reta: Reta::Table(vec![3, 1]), ..Rss::default() };
        program(&fake.regs(), &rss, 4, MacType::Mac82599);
        assert!((0..32).all(|i| fake.get(RETA.at(i)) == 0x0103_0103));
    }
}
