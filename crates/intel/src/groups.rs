//! How cards tell multicast groups apart: by 12 bits of their address, each of which is a bit of a table (82599 datasheet 7.1.1.2,
//! 8.2.3.7; 82576 datasheet 7.1.1, 8.10).

use ethdev::MacAddress;

/// Returns the hash of a group: bits 47:36 of its address in the card's order of bytes, as MO is 0 in MCSTCTRL (82599) and RCTL (82576).
#[must_use]
pub fn group_hash(group: MacAddress) -> u16 {
    let MacAddress([.., fifth, sixth]) = group;
    u16::from_le_bytes([fifth, sixth]) >> 4
}

/// Returns the words of the table (MTA) that lets these groups in.
#[must_use]
pub fn multicast_table(groups: impl IntoIterator<Item = MacAddress>) -> [u32; 128] {
    let mut table = [0; 128];
    for hash in groups.into_iter().map(group_hash) {
        table[usize::from(hash >> 5)] |= 1 << (hash & 31);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_12_bits_select_the_bit_of_the_table() {
        // Bits 47:32 are the sixth and fifth byte: 0xabcd.
        let group = MacAddress([1, 0, 0, 0, 0xCD, 0xAB]);
        assert_eq!(group_hash(group), 0xABC);
        // Bits 11:5 are the word, bits 4:0 the bit of it.
        let mut words = [0; 128];
        (words[0x55], words[0x7F]) = (1 << 0x1C, 1 << 31 | 1);
        let others = [[0x33, 0x33, 0, 0, 0xFF, 0xFF], [1, 0, 0, 0, 0, 0xFE]].map(MacAddress);
        assert_eq!(multicast_table([group, group].into_iter().chain(others)), words);
    }
}
