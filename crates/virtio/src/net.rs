//! The configuration of a network device (Virtio 1.2, section 5.1.4).

use crate::rss::Hashable;
use crate::transport::Transport;
use crate::{Error, Features, Result};

/// What the device reports about itself. Fields of features that were not agreed on have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetConfig {
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) link_up: bool,
    /// Pairs of queues.
    pub(crate) pairs: u16,
    pub(crate) mtu: Option<u16>,
    /// What it can hash, for RSS or for reports.
    pub(crate) hashable: Option<Hashable>,
}

const MAC: u16 = 0;
const STATUS: u16 = 6;
const MAX_PAIRS: u16 = 8;
const MTU: u16 = 10;
const RSS: u16 = 17;
/// Bit of the status field.
const LINK_UP: u16 = 1;
/// The field must be 1 to this.
const MOST_PAIRS: u16 = 0x8000;

/// Reads the configuration. All of it is of one generation.
pub(crate) fn read<T: Transport>(transport: &T, features: Features) -> Result<NetConfig> {
    steady(transport, || read_once(transport, features))
}

/// Returns whether the device says that its link is up; true if it does not say.
pub(crate) fn link_up<T: Transport>(transport: &T, features: Features) -> Result<bool> {
    if features.contains(Features::STATUS) { Ok(read_u16(transport, STATUS)? & LINK_UP != 0) } else { Ok(true) }
}

/// Returns the device's address, if it is one that an interface may have.
pub(crate) fn mac<T: Transport>(transport: &T) -> Result<Option<[u8; 6]>> {
    let mut mac = [0; 6];
    transport.read_config(MAC, &mut mac)?;
    Ok(Some(mac).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]))
}

/// Returns the device's MTU in bytes, if it says one.
pub(crate) fn mtu<T: Transport>(transport: &T, features: Features) -> Result<Option<u16>> {
    if !features.contains(Features::MTU) {
        return Ok(None);
    }
    // Smaller than an IPv4 packet must be (RFC 791) is nonsense, and taken for nothing.
    Ok(Some(read_u16(transport, MTU)?).filter(|mtu| *mtu >= 68))
}

fn read_once<T: Transport>(transport: &T, features: Features) -> Result<NetConfig> {
    let mut config = NetConfig { mac: None, link_up: true, pairs: 1, mtu: None, hashable: None };
    if features.contains(Features::MAC) {
        config.mac = mac(transport)?;
    }
    config.link_up = link_up(transport, features)?;
    if features.contains(Features::MQ) {
        config.pairs = read_u16(transport, MAX_PAIRS)?;
        if !(1..=MOST_PAIRS).contains(&config.pairs) {
            let problem = format!("says it has {} pairs of queues; such a device cannot be used", config.pairs);
            return Err(Error::negotiation(transport.name(), problem));
        }
    }
    config.mtu = mtu(transport, features)?;
    let rss = features.contains(Features::RSS);
    if rss || features.contains(Features::HASH_REPORT) {
        let mut bytes = [0; 7];
        transport.read_config(RSS, &mut bytes)?;
        let [key, t0, t1, types @ ..] = bytes;
        // Without RSS there is no table.
        let table = if rss { u16::from_le_bytes([t0, t1]) } else { u16::MAX };
        config.hashable = Hashable::new(key, table, u32::from_le_bytes(types));
        if config.hashable.is_none() {
            let problem = "has room for fewer than 40 bytes of RSS key or 128 entries of table, or can hash nothing; turn its RSS off";
            return Err(Error::negotiation(transport.name(), problem));
        }
    }
    Ok(config)
}

fn read_u16<T: Transport>(transport: &T, offset: u16) -> Result<u16> {
    let mut bytes = [0; 2];
    transport.read_config(offset, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Reads until nothing changed meanwhile (section 2.5.3): the generation stayed, or, where a device has none, two reads
/// agree.
fn steady<T: Transport>(transport: &T, read: impl Fn() -> Result<NetConfig>) -> Result<NetConfig> {
    const ATTEMPTS: usize = 64;
    for _ in 0..ATTEMPTS {
        let before = transport.config_generation()?;
        let config = read()?;
        let same = match before {
            Some(generation) => transport.config_generation()? == Some(generation),
            None => read()? == config,
        };
        if same {
            return Ok(config);
        }
    }
    Err(Error::negotiation(transport.name(), "its configuration changes with every read; such a device cannot be used"))
}
