//! What the physical function agrees to when a port is opened.

use crate::modes::{self, Modes};
use crate::{Api, Config, MacType, Mailbox, Mode, Queues, Result};
use device::{Deadline, Device};
use ethdev::PortConfig;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

/// What the physical function has agreed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) api: Api,
    pub(crate) queues: Queues,
    /// The function's address.
    pub(crate) address: [u8; 6],
    /// The most of receive modes.
    pub(crate) mode: Mode,
}

impl Grant {
    /// Resets the function, and asks for what it may do and what the configuration wants.
    pub(crate) fn ask<D: Device>(
        mailbox: &mut Mailbox<D>,
        config: &Config,
        mac: MacType,
        deadline: &Deadline,
    ) -> Result<Self> {
        let given = mailbox.reset(deadline)?;
        let api = mailbox.negotiate(deadline)?;
        let queues = if api < Api::V1_1 { Queues { transmit: 1, receive: 1 } } else { mailbox.queues(deadline)? };
        config.validate(mac, queues)?;
        let address = match given {
            Some(address) => address,
            None => {
                let address = random_address();
                mailbox.set_address(deadline, address)?;
                address
            }
        };
        mailbox.set_longest(deadline, longest(config.port.mtu))?;
        let wanted = Modes::from(&config.port).mode();
        let mode = modes::begin(mailbox, api, wanted, deadline)?;
        if mode < wanted {
            tracing::warn!(
                "{}: not trusted: the physical function lets in no more than {mode}, and may drop, without a count, frames that \
                 are sent from other addresses (trust on, spoofchk off)",
                mailbox.name()
            );
        }
        Ok(Self { api, queues, address, mode })
    }

    /// The receive modes that there are instead of those that were wanted, so that changes go from there.
    pub(crate) fn modes(&self, wanted: &PortConfig) -> Modes {
        Modes {
            promiscuous: wanted.promiscuous && self.mode == Mode::Everything,
            all_multicast: wanted.all_multicast && self.mode >= Mode::AllGroups,
        }
    }
}

/// A locally administered address of one station.
fn random_address() -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    [a & !1 | 2, b, c, d, e, f]
}

/// What the mailbox calls the longest frame, in bytes, with CRC and without a VLAN tag, for which the card makes room by itself.
pub(crate) fn longest(mtu: u16) -> u32 {
    u32::from(mtu) + 14 + 4
}
