//! Receive side scaling: key, redirection table and packet types (82576 datasheet 7.1.1.7).

use crate::regs::{MRQC, RETA, RSSRK, Registers, mrqc};
use device::Device;
use ethdev::{Reta, Rss};

/// Programs key, table and types, and switches RSS on (8.10).
pub(crate) fn program<D: Device>(regs: &Registers<D>, rss: &Rss, queues: u16) {
    for (i, bytes) in (0..).zip(rss.key.as_chunks::<4>().0) {
        regs.write(RSSRK.at(i), u32::from_le_bytes(*bytes));
    }
    program_table(regs, &rss.reta, queues);
    // The types are in the order of `HashTypes`.
    regs.write(MRQC, mrqc::TYPES.set(MODE_RSS, rss.hash.bits().into()));
}

/// Programs the table.
pub(crate) fn program_table<D: Device>(regs: &Registers<D>, reta: &Reta, queues: u16) {
    for dword in 0..RETA.count() {
        let entries = [0, 1, 2, 3].map(|i| reta.queue(dword * 4 + i, queues));
        regs.write(RETA.at(dword), u32::from_le_bytes(entries));
    }
}

/// MRQC mode: RSS over all queues, no virtualisation.
const MODE_RSS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use ethdev::HashTypes;

    #[test]
    fn key_table_and_types() {
        let fake = Fake::new(0x10C9);
        let rss = Rss { hash: HashTypes::TCP_IPV4 | HashTypes::UDP_IPV6_EX, ..Rss::default() };
        program(&fake.regs(), &rss, 3);
        assert_eq!((fake.get(RSSRK.at(0)), fake.get(RSSRK.at(9))), (0xda56_5a6d, 0xfa01_acbe));
        assert_eq!([0, 1, 31].map(|n| fake.get(RETA.at(n))), [0x0002_0100, 0x0100_0201, 0x0100_0201]);
        assert_eq!(fake.get(MRQC), 0x0101_0002);
    }
}
