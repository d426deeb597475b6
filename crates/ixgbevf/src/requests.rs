//! What a virtual function can ask the physical one for, once it has been reset.

use crate::mailbox::{Mailbox, WORDS};
use crate::{Error, Result};
use device::{Deadline, Device};
use std::fmt;

/// Hashes of groups in one message.
pub(crate) const MOST_GROUPS: usize = 30;
/// Queue pairs that the window of a function has room for.
const MOST_QUEUES: u32 = 8;

const SET_MAC: u32 = 0x02;
const SET_MULTICAST: u32 = 0x03;
const SET_VLAN: u32 = 0x04;
const SET_LONGEST: u32 = 0x05;
const SET_MACVLAN: u32 = 0x06;
const NEGOTIATE: u32 = 0x08;
const QUEUES: u32 = 0x09;
const TABLE: u32 = 0x0A;
const KEY: u32 = 0x0B;
const SET_MODE: u32 = 0x0C;

/// A version of what both sides say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// 1.0: no long frames on an 82599, one queue.
    V1_0,
    /// 1.1: queues can be asked for.
    V1_1,
    /// 1.2: hash key and table can be asked for, and groups that were not asked for can be received.
    V1_2,
    /// 1.3: all frames can be received, though not on an 82599.
    V1_3,
}

impl Api {
    /// The newest first, with their numbers in a message.
    const OFFERED: [(Self, u32); 4] = [(Self::V1_3, 4), (Self::V1_2, 3), (Self::V1_1, 2), (Self::V1_0, 0)];
}

impl Api {
    /// Returns its number, as people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// Which frames to other addresses than the function's own are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Broadcasts.
    Broadcast,
    /// And groups that were asked for.
    Groups,
    /// And all groups.
    AllGroups,
    /// All.
    Everything,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broadcast => "broadcasts",
            Self::Groups => "groups asked for",
            Self::AllGroups => "all groups",
            Self::Everything => "frames for others",
        })
    }
}

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::Broadcast, Self::Groups, Self::AllGroups, Self::Everything];
}

/// What the physical function has given to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Transmit queues, 1 to 8.
    pub transmit: u16,
    /// Receive queues, 1 to 8.
    pub receive: u16,
}

/// How the physical function spreads flows over the queues of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// The hash key.
    pub key: [u8; 40],
    /// The queue of each hash, modulo 128: of it, the low bits that the function's number of queues leaves.
    pub table: [u8; 128],
}

impl<D: Device> Mailbox<D> {
    /// Agrees on the newest version that both sides speak.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is none, and those of any exchange.
    pub fn negotiate(&mut self, deadline: &Deadline) -> Result<Api> {
        for (api, number) in Api::OFFERED {
            match self.ask(deadline, "speak the same API", &[NEGOTIATE, number]) {
                Ok(_) => return Ok(api),
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.refused("speak the same API"))
    }

    /// Asks how many queues there are (from 1.1 on).
    ///
    /// # Errors
    ///
    /// [`Error::Nonsense`] if none or more than 8, and those of any exchange.
    pub fn queues(&mut self, deadline: &Deadline) -> Result<Queues> {
        const WHAT: &str = "say how many queues there are";
        let [_, transmit, receive, ..] = self.ask(deadline, WHAT, &[QUEUES])?;
        let narrow = |count: u32| u16::try_from(count).ok().filter(|_| (1..=MOST_QUEUES).contains(&count));
        match (narrow(transmit), narrow(receive)) {
            (Some(transmit), Some(receive)) => Ok(Queues { transmit, receive }),
            (None, _) => Err(self.nonsense(WHAT, transmit)),
            (_, None) => Err(self.nonsense(WHAT, receive)),
        }
    }

    /// Asks for hash key and table (from 1.2 on), which an 82599's and an X540's function shares with others.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if this function is not trusted, and those of any exchange.
    pub fn hashing(&mut self, deadline: &Deadline) -> Result<Hashing> {
        let table = self.ask(deadline, "tell its hash table", &[TABLE])?;
        let key = self.ask(deadline, "tell its hash key", &[KEY])?;
        // Two bits for each entry, 16 in a word.
        let entry = |index: usize| (table[1 + index / 16] >> (2 * (index % 16)) & 3).to_le_bytes()[0];
        let byte = |index: usize| key[1 + index / 4].to_le_bytes()[index % 4];
        Ok(Hashing { key: std::array::from_fn(byte), table: std::array::from_fn(entry) })
    }

    /// Sets the station address.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`].
    pub fn set_address(&mut self, deadline: &Deadline, address: [u8; 6]) -> Result<()> {
        let [low, high] = words(address);
        self.ask(deadline, "set the address", &[SET_MAC, low, high]).map(drop)
    }

    /// Sets the addresses besides the station's own whose frames are received.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`]. Some of the addresses may be set then.
    pub fn set_more_addresses(&mut self, deadline: &Deadline, addresses: &[[u8; 6]]) -> Result<()> {
        const WHAT: &str = "set more addresses";
        if addresses.is_empty() {
            return self.ask(deadline, WHAT, &[SET_MACVLAN, 0, 0]).map(drop);
        }
        for (index, address) in (1..=u32::from(u8::MAX)).zip(addresses) {
            let [low, high] = words(*address);
            self.ask(deadline, WHAT, &[index << 16 | SET_MACVLAN, low, high])?;
        }
        if addresses.len() > usize::from(u8::MAX) { Err(self.refused(WHAT)) } else { Ok(()) }
    }

    /// Adds a VLAN to the filter, or removes it.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`].
    pub fn set_vlan(&mut self, deadline: &Deadline, id: u16, on: bool) -> Result<()> {
        let (first, id) = (u32::from(on) << 16 | SET_VLAN, u32::from(id) & 0xFFF);
        self.ask(deadline, "filter a VLAN", &[first, id]).map(drop)
    }

    /// Sets the groups whose frames are received, by the hash of each address: bits 47:36 of it, in the card's order of bytes. Of more than
    /// 30, the rest is ignored.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`].
    pub fn set_groups(&mut self, deadline: &Deadline, hashes: &[u16]) -> Result<()> {
        let hashes = &hashes[..hashes.len().min(MOST_GROUPS)];
        let mut message = [0; WORDS];
        message[0] = u32::try_from(hashes.len()).unwrap_or(0) << 16 | SET_MULTICAST;
        for (word, pair) in message[1..].iter_mut().zip(hashes.chunks(2)) {
            *word = pair.iter().rev().fold(0, |word, hash| word << 16 | u32::from(*hash));
        }
        self.ask(deadline, "receive groups", &message).map(drop)
    }

    /// Sets the longest frame that may be received, in bytes with CRC. On an 82599 nothing is received before that.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`].
    pub fn set_longest(&mut self, deadline: &Deadline, bytes: u32) -> Result<()> {
        self.ask(deadline, "receive frames so long", &[SET_LONGEST, bytes]).map(drop)
    }

    /// Sets which frames are received besides those to the function's addresses (from 1.2 on). Returns what was granted, which may be
    /// less.
    ///
    /// # Errors
    ///
    /// Those of any exchange: see [`Error`].
    pub fn set_mode(&mut self, deadline: &Deadline, mode: Mode) -> Result<Mode> {
        const WHAT: &str = "receive frames of others";
        let number = Mode::ALL.iter().zip(0..).find(|(other, _)| **other == mode).map_or(0, |(_, number)| number);
        let [_, granted, ..] = self.ask(deadline, WHAT, &[SET_MODE, number])?;
        match Mode::ALL.get(granted as usize).filter(|_| granted <= number) {
            Some(granted) => Ok(*granted),
            None => Err(self.nonsense(WHAT, granted)),
        }
    }
}

/// An address as it lies in a message.
fn words([a, b, c, d, e, f]: [u8; 6]) -> [u32; 2] {
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0])]
}
