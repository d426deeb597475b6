//! Receive side scaling, and hashes of received frames (Virtio 1.2, sections 5.1.6.4.3, 5.1.6.5.6.4 and 5.1.6.5.7).

use ethdev::{ConfigError, HashTypes, PacketType, Rss, RssCapabilities, RxInfo};

/// Entries of the redirection table: as many as every device has room for (section 5.1.4.1).
const TABLE: u16 = 128;
/// The longest key that every device takes, in bytes, and the only one that [`Rss`] has.
const KEY: u8 = 40;

/// Types in the order of their bits in the device's fields, and their names.
const TYPES: [(HashTypes, &str); 9] = [
    (HashTypes::IPV4, "IPV4"),
    (HashTypes::TCP_IPV4, "TCP_IPV4"),
    (HashTypes::UDP_IPV4, "UDP_IPV4"),
    (HashTypes::IPV6, "IPV6"),
    (HashTypes::TCP_IPV6, "TCP_IPV6"),
    (HashTypes::UDP_IPV6, "UDP_IPV6"),
    (HashTypes::IPV6_EX, "IPV6_EX"),
    (HashTypes::TCP_IPV6_EX, "TCP_IPV6_EX"),
    (HashTypes::UDP_IPV6_EX, "UDP_IPV6_EX"),
];

/// The packet types that a device can hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashable(HashTypes);

impl Hashable {
    /// From the fields `rss_max_key_size`, `rss_max_indirection_table_length` and `supported_hash_types`. `None` for sizes below
    /// those that the specification demands, and for a device that can hash nothing.
    pub(crate) fn new(key: u8, table: u16, types: u32) -> Option<Self> {
        let known = TYPES.iter().enumerate().filter(|(bit, _)| types >> bit & 1 == 1);
        let types = known.fold(HashTypes::NONE, |set, (_, (each, _))| set | *each);
        (key >= KEY && table >= TABLE && types != HashTypes::NONE).then_some(Self(types))
    }

    pub(crate) fn capabilities(self, queues: u16) -> RssCapabilities {
        RssCapabilities::new(queues, TABLE, self.0)
    }

    /// Checks that the device can do what is asked of it. Types of the default set that it cannot hash are left out.
    pub(crate) fn check(self, rss: &Rss, queues: u16) -> Result<(), ConfigError> {
        rss.validate(queues, queues, TABLE)?;
        let cannot = |(each, _): &&(HashTypes, &str)| rss.hash.contains(*each) && !self.0.contains(*each);
        let missing: Vec<_> = TYPES.iter().filter(cannot).map(|(_, name)| *name).collect();
        if rss.hash == HashTypes::default() || missing.is_empty() {
            return Ok(());
        }
        let problem = format!("this device cannot hash {}; leave that out", missing.join(", "));
        Err(ConfigError::new("rss.hash", problem))
    }

    /// The data of the command `VIRTIO_NET_CTRL_MQ_RSS_CONFIG`. What is not hashed goes where the hash 0 goes.
    pub(crate) fn rss_command(self, rss: &Rss, queues: u16) -> Vec<u8> {
        let entry = |hash| u16::from(rss.queue(hash, queues));
        let halves = [TABLE - 1, entry(0)].into_iter().chain((0..u32::from(TABLE)).map(entry)).chain([queues]);
        let mut data = self.types(rss).to_vec();
        data.extend(halves.flat_map(u16::to_le_bytes));
        data.push(KEY);
        data.extend(rss.key);
        data
    }

    /// The data of the command `VIRTIO_NET_CTRL_MQ_HASH_CONFIG`, for a device that hashes and spreads nothing.
    pub(crate) fn hash_command(self, rss: &Rss) -> Vec<u8> {
        let reserved = [0; 8];
        [&self.types(rss)[..], &reserved, &[KEY], &rss.key].concat()
    }

    /// The types to be hashed, as bits of the device's.
    fn types(self, rss: &Rss) -> [u8; 4] {
        let both = |each| rss.hash.contains(each) && self.0.contains(each);
        let bits = TYPES.iter().enumerate().fold(0_u32, |bits, (bit, (each, _))| bits | u32::from(both(*each)) << bit);
        bits.to_le_bytes()
    }
}

/// What is known of a frame by its header's fields `hash_value` and `hash_report`, added to what `info` says. A type that the
/// specification does not have says nothing.
pub(crate) fn with_report(info: RxInfo, hash: u32, report: u16) -> RxInfo {
    let (family, protocol) = match report {
        1..=6 => ((report - 1) / 3, (report - 1) % 3),
        7..=9 => (2, report - 7),
        _ => return info,
    };
    let kind = PacketType {
        ipv4: family == 0,
        ipv6: family > 0,
        options: family == 2,
        tcp: protocol == 1,
        udp: protocol == 2,
        sctp: false,
    };
    info.with_hash(hash).with_packet_type(kind)
}
