//! The control queue (Virtio 1.2, section 5.1.6.5).

use crate::net::NetConfig;
use crate::ring::{Area, Buffer, Ring, Virtqueue as _, Word, each_layout};
use crate::transport::{Notifier as _, Transport};
use crate::{Config, Error, Features, Result};
use device::{Deadline, Expired};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The control queue of a session: one command at a time, each answered in bounded time.
pub(crate) struct Control<T: Transport> {
    transport: Arc<T>,
    ring: Ring,
    notifier: T::Notifier,
    page: Area,
}

/// Classes and commands.
const RX: u8 = 0;
const RX_PROMISCUOUS: u8 = 0;
const RX_ALL_MULTICAST: u8 = 1;
const MAC: u8 = 1;
const MAC_TABLE: u8 = 0;
const MAC_ADDRESS: u8 = 1;
const VLAN: u8 = 2;
const VLAN_ADD: u8 = 0;
const VLAN_REMOVE: u8 = 1;
const MQ: u8 = 4;
const MQ_PAIRS: u8 = 0;
const MQ_RSS: u8 = 1;
const MQ_HASH: u8 = 2;
/// Virtio 1.2 lets no command of the class of addresses be issued without `CTRL_RX` (section 5.1.6.5.2.2).
pub(crate) const SET_MAC: Features = Features(Features::CTRL_MAC_ADDR.0 | Features::CTRL_RX.0);
/// The answer to a command that was carried out.
const OK: u8 = 0;

/// A device answers in microseconds.
const PAUSE: Duration = Duration::from_micros(50);
/// Where the answer lies in the page.
const ANSWER: usize = 512;
/// Groups that fit in a command with the lengths of two lists.
pub(crate) const MOST_GROUPS: usize = (ANSWER - 2 - 8) / 6;

impl<T: Transport> Control<T> {
    pub(crate) fn new(transport: Arc<T>, ring: Ring, notifier: T::Notifier, page: Area) -> Self {
        Self { transport, ring, notifier, page }
    }

    /// Sends the commands that the configuration needs to a device that has just started.
    pub(crate) fn prepare(
        &mut self,
        config: &Config,
        features: Features,
        net: &NetConfig,
        deadline: &Deadline,
    ) -> Result<()> {
        let rss = &config.port.rss;
        match net.hashable {
            Some(hashable) if features.contains(Features::RSS) => {
                self.set_rss(&hashable.rss_command(rss, config.pairs()), deadline)?;
            }
            Some(hashable) => self.command("hash frames", MQ, MQ_HASH, &hashable.hash_command(rss), deadline)?,
            None => {}
        }
        if features.contains(Features::MQ) && !features.contains(Features::RSS) {
            self.command("use as many queue pairs", MQ, MQ_PAIRS, &config.pairs().to_le_bytes(), deadline)?;
        }
        if let Some(mac) = config.mac.filter(|_| features.contains(SET_MAC)) {
            self.set_mac(mac, deadline)?;
        }
        if features.contains(Features::CTRL_VLAN) {
            for vlan in &config.vlans {
                match self.set_vlan(*vlan, true, deadline) {
                    // All others are received.
                    Err(error @ Error::Refused { .. }) => {
                        tracing::warn!("frames of VLAN {vlan} are not received: {error}")
                    }
                    told => told?,
                }
            }
        }
        if features.contains(Features::CTRL_RX) {
            self.set_promiscuous(config.port.promiscuous, deadline)?;
            self.set_all_multicast(config.port.all_multicast, deadline)?;
            if !config.groups.is_empty() {
                self.set_groups(&config.groups, deadline)?;
            }
        }
        Ok(())
    }

    /// Sets whether frames for any address are received.
    pub(crate) fn set_promiscuous(&mut self, on: bool, deadline: &Deadline) -> Result<()> {
        self.command("change its receive mode", RX, RX_PROMISCUOUS, &[on.into()], deadline)
    }

    /// Sets whether frames for any multicast address are received.
    pub(crate) fn set_all_multicast(&mut self, on: bool, deadline: &Deadline) -> Result<()> {
        self.command("change its receive mode", RX, RX_ALL_MULTICAST, &[on.into()], deadline)
    }

    /// Sets the groups whose frames are received: of more than [`MOST_GROUPS`] the first.
    pub(crate) fn set_groups(&mut self, groups: &[[u8; 6]], deadline: &Deadline) -> Result<()> {
        let groups = &groups[..groups.len().min(MOST_GROUPS)];
        // No other stations, and these groups.
        let lengths = [0, u32::try_from(groups.len()).unwrap_or_default()].map(u32::to_le_bytes);
        let data = [lengths.as_flattened(), groups.as_flattened()].concat();
        self.command("change its groups", MAC, MAC_TABLE, &data, deadline)
    }

    /// Sets the station address.
    pub(crate) fn set_mac(&mut self, mac: [u8; 6], deadline: &Deadline) -> Result<()> {
        self.command("change its MAC address", MAC, MAC_ADDRESS, &mac, deadline)
    }

    /// Sets how flows are spread over queues; `data` is of [`crate::rss::Hashable::rss_command`].
    pub(crate) fn set_rss(&mut self, data: &[u8], deadline: &Deadline) -> Result<()> {
        self.command("spread flows over queues", MQ, MQ_RSS, data, deadline)
    }

    /// Sets whether frames with this VLAN tag are received.
    pub(crate) fn set_vlan(&mut self, vlan: u16, receive: bool, deadline: &Deadline) -> Result<()> {
        let command = if receive { VLAN_ADD } else { VLAN_REMOVE };
        self.command("change its VLAN filter", VLAN, command, &vlan.to_le_bytes(), deadline)
    }

    fn command(&mut self, what: &'static str, class: u8, command: u8, data: &[u8], deadline: &Deadline) -> Result<()> {
        if each_layout!(&self.ring, ring => ring.in_flight()) > 0 {
            // The device may still read the page, and write to it.
            return Err(self.expired(Expired::TimedOut { total: Duration::ZERO }));
        }
        let request = [class, command].into_iter().chain(data.iter().copied());
        for (offset, value) in request.enumerate() {
            self.byte(offset).write(value, Ordering::Relaxed);
        }
        self.byte(ANSWER).write(!OK, Ordering::Relaxed);
        let at = |offset: usize, len, writable| Buffer { address: self.page.iova() + offset as u64, len, writable };
        // Apart, as a device before Virtio 1.0 wants them (section 5.1.6.5, legacy interface).
        let chain = [at(0, 2, false), at(2, len(data), false), at(ANSWER, 1, true)];
        each_layout!(&mut self.ring, ring => {
            ring.post_chain(&chain, |_, _| ());
            if ring.publish() {
                self.notifier.notify();
            }
        });
        self.wait(deadline)?;
        if self.byte(ANSWER).read_once(Ordering::Relaxed) == OK {
            Ok(())
        } else {
            Err(Error::Refused { device: self.transport.name().to_owned(), command: what })
        }
    }

    fn wait(&mut self, deadline: &Deadline) -> Result<()> {
        loop {
            match each_layout!(&mut self.ring, ring => ring.used(|_| false)) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => deadline.sleep(PAUSE).map_err(|expired| self.expired(expired))?,
                Err(fault) => {
                    let problem = format!("on the control queue {fault}; the device is broken");
                    return Err(Error::negotiation(self.transport.name(), problem));
                }
            }
        }
    }

    fn expired(&self, expired: Expired) -> Error {
        Error::expired(self.transport.name(), "an answer on the control queue", expired)
    }

    #[expect(unsafe_code, reason = "a page shared with the device")]
    fn byte(&self, offset: usize) -> &Word<AtomicU8> {
        let place: NonNull<Word<AtomicU8>> = self.page.at(offset, 1);
        // SAFETY: within the page, which this value owns and accesses through atomics only.
        unsafe { place.as_ref() }
    }
}

fn len(data: &[u8]) -> u32 {
    debug_assert!(data.len() < ANSWER - 2, "commands are short");
    u32::try_from(data.len()).unwrap_or(0)
}
