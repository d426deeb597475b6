//! The driver of the physical function, as a virtual one meets it: what it answers in the mailbox, and how it sets the card's
//! filters (datasheet 7.10; the messages are those of Linux's `ixgbe`, from API 1.0 to 1.7).

use super::DeviceId;
use super::map::{self, RegisterFile};

/// Dwords of the mailbox.
pub(super) const WORDS: usize = 16;
/// A message, or the mailbox's memory.
pub(super) type Message = [u32; WORDS];

/// Success, failure, and that the function may send: bits of an answer's first word.
const ACK: u32 = 1 << 31;
const NACK: u32 = 1 << 30;
const CTS: u32 = 1 << 29;

/// What a function asks for, in the low half of the first word.
mod kind {
    pub(super) const RESET: u32 = 0x01;
    pub(super) const SET_MAC: u32 = 0x02;
    pub(super) const SET_MULTICAST: u32 = 0x03;
    pub(super) const SET_VLAN: u32 = 0x04;
    pub(super) const SET_LPE: u32 = 0x05;
    pub(super) const SET_MACVLAN: u32 = 0x06;
    pub(super) const API: u32 = 0x08;
    pub(super) const QUEUES: u32 = 0x09;
    pub(super) const RETA: u32 = 0x0A;
    pub(super) const RSS_KEY: u32 = 0x0B;
    pub(super) const XCAST: u32 = 0x0C;
    pub(super) const LINK_STATE: u32 = 0x10;
    /// Of 1.7, as 0x11 is of 1.6: the card's link, which it tells on later cards only.
    pub(super) const FEATURES: u32 = 0x12;
    /// What the physical function says of its own accord.
    pub(super) const CONTROL: u32 = 0x0100;
}

/// A version of what a virtual function and the physical one say to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MailboxApi {
    /// 1.0: one queue; long frames not on an 82599.
    V1_0,
    /// 1.1: queues can be asked for.
    V1_1,
    /// 1.2: and the hash table and key, and groups of others.
    V1_2,
    /// 1.3: and all frames.
    V1_3,
    /// 1.4: and IPsec, which the model refuses. The newest of Linux before 6.18.
    V1_4,
    /// 1.5: another way to hold the mailbox's memory, which VMware's physical function has and Linux's has not. It is granted where it is the
    /// newest only.
    V1_5,
    /// 1.6: and the state of the card's link, which cards from the E610 on tell.
    V1_6,
    /// 1.7: and which of these features there are.
    #[default]
    V1_7,
}

impl MailboxApi {
    /// All of them, the oldest first.
    pub const ALL: [Self; 8] =
        [Self::V1_0, Self::V1_1, Self::V1_2, Self::V1_3, Self::V1_4, Self::V1_5, Self::V1_6, Self::V1_7];

    /// The version of a number in a message: 1.0 is 0, 2.0 was never spoken, and 1.1 to 1.7 follow.
    fn of(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::V1_0),
            _ => Self::ALL.get(1..)?.get(number.checked_sub(2)? as usize).copied(),
        }
    }
}

/// Shortest MTU, and longest frame with CRC, that it takes for SET_LPE.
const LEAST_FRAME: u32 = 68;
const MOST_FRAME: u32 = 9728;
const STANDARD_FRAME: u32 = 1518;
/// What the answer to FEATURES is made of: IPsec; VMware's way to hold the memory is never there.
const FEATURE_IPSEC: u32 = 1;
/// Addresses of a function besides its own.
const MOST_ADDRESSES: usize = 15;
/// VLAN ids that the filter of pools has places for (VLVF).
const MOST_VLANS: u32 = 64;

const FCTRL_MPE: u32 = 1 << 8;
const FCTRL_UPE: u32 = 1 << 9;
const FCTRL_BAM: u32 = 1 << 10;
const MFE: u32 = 1 << 2;
const AV: u32 = 1 << 31;
const RXEN: u32 = 1;
/// MRQC: RSS over TCP and any IP, as Linux has it.
const MRQC: u32 = 1 | 1 << 16 | 1 << 17 | 1 << 20 | 1 << 21;

/// What a function is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Queue pairs: 1, 2 or 4.
    pub(crate) queues: u16,
    /// Whether it may have other addresses than the one it was given, send from others, see all frames, and read hash key and
    /// table.
    pub(crate) trusted: bool,
    /// The newest version that is spoken with it.
    pub(crate) newest: MailboxApi,
}

impl Default for Grant {
    fn default() -> Self {
        Self { queues: 4, trusted: true, newest: MailboxApi::default() }
    }
}

/// A request that is not granted.
#[derive(Debug)]
struct Refused;

type Answer = Result<(), Refused>;

/// The physical function's driver and what it knows of the virtual one.
#[derive(Debug)]
pub(super) struct Pf {
    id: DeviceId,
    pub(super) grant: Grant,
    /// The address that it gives to the function.
    given: [u8; 6],
    /// Whether the function has been reset, and may ask for more.
    clear_to_send: bool,
    api: MailboxApi,
    /// The function's own address, and others.
    address: Option<[u8; 6]>,
    others: Vec<[u8; 6]>,
    /// Who may send: the function, once it was reset (VFTE).
    pub(super) transmits: bool,
}

impl Pf {
    pub(super) fn new(id: DeviceId, grant: Grant, given: [u8; 6]) -> Self {
        let others = Vec::new();
        Self { id, grant, given, clear_to_send: false, api: MailboxApi::V1_0, address: None, others, transmits: false }
    }

    /// Sets the card up as it is before the function's first message, which it has to send anew after each reset.
    pub(super) fn start(&mut self, regs: &mut RegisterFile) {
        self.stop(regs);
        for (register, bits) in [
            // MSI-X, and automatic masks.
            (map::GPIE, 1 << 4 | 1 << 30),
            // No CRC in memory, long frames, padding.
            (map::HLREG0, 1 << 1 | 1 << 2 | 1 << 10),
            (map::RDRXCTL, 1 << 1 | 3 << 25),
            (map::RXCSUM, 1 << 13),
            (map::DMATXCTL, 1),
            // PAUSE frames end in the MAC.
            (map::MFLCN, 1 << 1 | 1 << 3),
        ] {
            regs.set(register, regs.get(register) | bits);
        }
        let longest = if self.has_long_frames() { MOST_FRAME } else { STANDARD_FRAME };
        regs.set(map::MAXFRS, longest << 16);
        for (at, word) in (map::RSSRK..).step_by(4).zip(self.key()) {
            regs.set(at, word);
        }
        regs.set(map::PFVFSPOOF, (!self.grant.trusted).into());
        self.filter(regs);
    }

    /// The function neither receives nor sends, and has to reset before it may ask for anything.
    pub(super) fn stop(&mut self, regs: &mut RegisterFile) {
        (self.clear_to_send, self.transmits) = (false, false);
        regs.set(map::RXCTRL, regs.get(map::RXCTRL) & !RXEN);
    }

    /// The filters of a function that has just been reset.
    fn filter(&mut self, regs: &mut RegisterFile) {
        self.others.clear();
        self.api = MailboxApi::V1_0;
        regs.set(map::FCTRL, FCTRL_BAM);
        regs.set(map::MCSTCTRL, 0);
        regs.set(map::VLNCTRL, 0x4000_8100);
        (0..128).for_each(|word| regs.set(map::VFTA + 4 * word, u32::from(word == 0)));
        // Set up anew, without the groups of this function.
        (0..128).for_each(|word| regs.set(map::MTA + 4 * word, 0));
        self.write_addresses(regs);
    }

    /// An 82599 has one limit for all functions, and Linux gives long frames to all or none: to none where 1.0 is all that is spoken.
    fn has_long_frames(&self) -> bool {
        self.id == DeviceId::Vf82599 && self.grant.newest > MailboxApi::V1_0
    }

    /// What it says of its own accord.
    pub(super) fn control(&self) -> u32 {
        kind::CONTROL | if self.clear_to_send { CTS } else { 0 }
    }

    /// What it says when a function that may not read has read.
    pub(super) fn complaint(&self) -> Option<u32> {
        (!self.clear_to_send).then_some(NACK)
    }

    /// Carries out a request. Returns the first words of the mailbox as they are afterwards, if it answers.
    pub(super) fn answer(&mut self, regs: &mut RegisterFile, mut message: Message, refuses: bool) -> Vec<u32> {
        let [first, ..] = message;
        if first & (ACK | NACK) != 0 {
            // An answer of its own, which it takes for one it has seen.
            return Vec::new();
        }
        if first == kind::RESET {
            return self.reset(regs, refuses).to_vec();
        }
        if !self.clear_to_send {
            return vec![first | NACK];
        }
        let outcome = if refuses { Err(Refused) } else { self.carry_out(regs, &mut message) };
        message[0] = first | CTS | if outcome.is_ok() { ACK } else { NACK };
        message.to_vec()
    }

    /// The function was reset: it may send, and is told its address and how it has to hash groups.
    fn reset(&mut self, regs: &mut RegisterFile, refuses: bool) -> [u32; 4] {
        self.address = Some(self.given);
        self.filter(regs);
        (self.clear_to_send, self.transmits) = (true, true);
        // Those of an 82599 receive nothing while frames may be long, until they say how long.
        if self.id != DeviceId::Vf82599 {
            regs.set(map::RXCTRL, RXEN);
        }
        let [low, high] = words(self.given);
        // Without an address to give, it leaves the choice to the function.
        if refuses || self.given == [0; 6] { [kind::RESET | NACK, 0, 0, 0] } else { [kind::RESET | ACK, low, high, 0] }
    }

    fn carry_out(&mut self, regs: &mut RegisterFile, message: &mut Message) -> Answer {
        let (count, argument) = (message[0] >> 16 & 0xFF, message[1]);
        let mac = address(message);
        match message[0] & 0xFFFF {
            kind::SET_MAC => {
                self.may_have(mac, self.given == mac || self.given == [0; 6])?;
                self.address = Some(mac);
                self.write_addresses(regs);
                Ok(())
            }
            kind::SET_MACVLAN => self.add_address(regs, count, mac),
            kind::SET_MULTICAST => {
                let hashes = message[1..].iter().flat_map(|word| [word & 0xFFF, word >> 16 & 0xFFF]);
                // The table is everybody's, so bits stay until the physical function sets it up anew.
                for hash in hashes.take(count as usize) {
                    let at = map::MTA + 4 * (hash >> 5);
                    regs.set(at, regs.get(at) | 1 << (hash & 31));
                }
                regs.set(map::MCSTCTRL, MFE);
                Ok(())
            }
            kind::SET_VLAN => set_vlan(regs, argument & 0xFFF, count != 0),
            kind::SET_LPE => self.set_longest(regs, argument),
            kind::API => self.agree(argument),
            kind::QUEUES => {
                self.speaks(MailboxApi::V1_1)?;
                let queues = u32::from(self.grant.queues);
                // No VLAN of the function's own that it knows nothing of; queue 0 by default.
                message[1..5].copy_from_slice(&[queues, queues, 0, 0]);
                Ok(())
            }
            kind::RETA => {
                self.may_ask_for_hashing()?;
                message[1..9].copy_from_slice(&self.packed_table());
                Ok(())
            }
            kind::RSS_KEY => {
                self.may_ask_for_hashing()?;
                message[1..11].copy_from_slice(&self.key());
                Ok(())
            }
            kind::XCAST => self.set_mode(regs, &mut message[1]),
            kind::LINK_STATE => {
                self.speaks(MailboxApi::V1_2)?;
                message[1] = 1;
                Ok(())
            }
            kind::FEATURES => {
                self.speaks(MailboxApi::V1_7)?;
                message[1] &= FEATURE_IPSEC;
                Ok(())
            }
            // IPsec among them, which Linux's has and does not allow as long as it is not told to.
            _ => Err(Refused),
        }
    }

    fn agree(&mut self, number: u32) -> Answer {
        let newest = self.grant.newest;
        let spoken = |api: &MailboxApi| *api <= newest && (*api != MailboxApi::V1_5 || newest == MailboxApi::V1_5);
        self.api = MailboxApi::of(number).filter(spoken).ok_or(Refused)?;
        Ok(())
    }

    fn speaks(&self, least: MailboxApi) -> Answer {
        if self.api >= least { Ok(()) } else { Err(Refused) }
    }

    fn may_have(&self, mac: [u8; 6], given: bool) -> Answer {
        let valid = mac[0] & 1 == 0 && mac != [0; 6];
        if valid && (self.grant.trusted || given) { Ok(()) } else { Err(Refused) }
    }

    fn may_ask_for_hashing(&self) -> Answer {
        self.speaks(MailboxApi::V1_2)?;
        if self.grant.trusted { Ok(()) } else { Err(Refused) }
    }

    /// SET_MACVLAN: index 0 removes all, 1 is the first of a new list.
    fn add_address(&mut self, regs: &mut RegisterFile, index: u32, mac: [u8; 6]) -> Answer {
        if index > 0 {
            self.may_have(mac, false)?;
        }
        if index <= 1 {
            self.others.clear();
        }
        let room = self.others.len() < MOST_ADDRESSES;
        if index > 0 && room {
            self.others.push(mac);
        }
        self.write_addresses(regs);
        if index == 0 || room { Ok(()) } else { Err(Refused) }
    }

    fn write_addresses(&self, regs: &mut RegisterFile) {
        let mut addresses = self.address.iter().chain(&self.others);
        for slot in 0..16 {
            let [low, high] = addresses.next().map_or([0, 0], |mac| words(*mac));
            regs.set(map::RAL + 8 * slot, low);
            regs.set(map::RAL + 8 * slot + 4, if low | high == 0 { 0 } else { high | AV });
        }
    }

    /// SET_LPE. On an 82599, functions that speak 1.0 cannot have long frames, and receive nothing while others can; one that asks for more
    /// than there is receives nothing either.
    fn set_longest(&self, regs: &mut RegisterFile, bytes: u32) -> Answer {
        if !(LEAST_FRAME..=MOST_FRAME).contains(&bytes) {
            return Err(Refused);
        }
        if self.id == DeviceId::Vf82599 {
            let fits = if self.has_long_frames() { self.api >= MailboxApi::V1_1 } else { bytes <= STANDARD_FRAME };
            regs.set(map::RXCTRL, if fits { RXEN } else { 0 });
            if !fits {
                return Err(Refused);
            }
        }
        // Never less: others may need more.
        let longest = bytes.max(regs.get(map::MAXFRS) >> 16);
        regs.set(map::MAXFRS, longest << 16);
        Ok(())
    }

    /// UPDATE_XCAST_MODE: broadcasts, groups asked for, all groups, everything. One who is not trusted gets the second at most.
    fn set_mode(&self, regs: &mut RegisterFile, mode: &mut u32) -> Answer {
        self.speaks(if *mode == 3 { MailboxApi::V1_3 } else { MailboxApi::V1_2 })?;
        if *mode > 1 && !self.grant.trusted {
            *mode = 1;
        }
        let (fctrl, groups) = match *mode {
            0 => (FCTRL_BAM, 0),
            1 => (FCTRL_BAM, MFE),
            2 => (FCTRL_BAM | FCTRL_MPE, MFE),
            // Which an 82599 cannot give to a function.
            3 if self.id != DeviceId::Vf82599 => (FCTRL_BAM | FCTRL_MPE | FCTRL_UPE, MFE),
            _ => return Err(Refused),
        };
        regs.set(map::FCTRL, fctrl);
        regs.set(map::MCSTCTRL, groups);
        Ok(())
    }

    /// The queue of an entry of its table.
    fn entry(&self, index: usize) -> u8 {
        // All functions share one table, made for those with the most queues.
        (index % usize::from(self.grant.queues.max(1))).to_le_bytes()[0]
    }

    /// Its table, two bits for each entry.
    fn packed_table(&self) -> [u32; 8] {
        std::array::from_fn(|word| {
            (0..16).fold(0, |bits, n| bits | u32::from(self.entry(16 * word + n) & 3) << (2 * n))
        })
    }

    /// Its hash key, which depends on the address it gives.
    fn key(&self) -> [u32; 10] {
        let seed = self.given.iter().fold(0x9E37_79B9u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
        std::array::from_fn(|word| seed.wrapping_mul(0x85EB_CA6B).rotate_left(3 * u32::try_from(word).unwrap_or(0) + 1))
    }

    /// Hashing as the card does it for this function: RQPL of its PSRTYPE says how many bits of the table count.
    pub(super) fn write_hashing(&self, regs: &mut RegisterFile) {
        let bits = regs.get(map::PSRTYPE) >> 29;
        let mask = (1u16 << bits).min(self.grant.queues) - 1;
        self.write_table(regs, |index| self.entry(index) & mask.to_le_bytes()[0]);
        regs.set(map::MRQC, MRQC);
    }

    /// An X550's function hashes by itself, once it has said so (VFMRQC, VFRSSRK, VFRETA).
    pub(super) fn write_own_hashing(&self, regs: &mut RegisterFile, rss: &OwnHashing) {
        if rss.types & 1 == 0 {
            regs.set(map::MRQC, 0);
            return;
        }
        for (at, word) in (map::RSSRK..).step_by(4).zip(rss.key) {
            regs.set(at, word);
        }
        let last = self.grant.queues.max(1) - 1;
        self.write_table(regs, |index| {
            let entry = rss.table[index / 4 % 16].to_le_bytes()[index % 4];
            entry & last.to_le_bytes()[0]
        });
        regs.set(map::MRQC, rss.types & !0xF | 1);
    }

    fn write_table(&self, regs: &mut RegisterFile, entry: impl Fn(usize) -> u8) {
        for word in 0..32 {
            let entries = std::array::from_fn(|n| entry(4 * word + n));
            regs.set(map::RETA + 4 * u32::try_from(word).unwrap_or(0), u32::from_le_bytes(entries));
        }
    }
}

/// VFMRQC, VFRSSRK and VFRETA of an X550.
#[derive(Debug, Default)]
pub(super) struct OwnHashing {
    pub(super) types: u32,
    pub(super) key: [u32; 10],
    pub(super) table: [u32; 16],
}

/// SET_VLAN. VLAN 0 stays.
fn set_vlan(regs: &mut RegisterFile, id: u32, add: bool) -> Answer {
    let (at, bit) = (map::VFTA + 4 * (id >> 5), 1 << (id & 31));
    let before = regs.get(at);
    let taken = || (0..128).map(|word| regs.get(map::VFTA + 4 * word).count_ones()).sum::<u32>();
    if add && before & bit == 0 && taken() >= MOST_VLANS {
        return Err(Refused);
    }
    regs.set(at, if add { before | bit } else { before & !bit | u32::from(id == 0) });
    Ok(())
}

/// The address behind a message's first word.
fn address(message: &Message) -> [u8; 6] {
    let ([a, b, c, d], [e, f, ..]) = (message[1].to_le_bytes(), message[2].to_le_bytes());
    [a, b, c, d, e, f]
}

/// An address as it lies in a message, and in RAL and RAH.
fn words([a, b, c, d, e, f]: [u8; 6]) -> [u32; 2] {
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0])]
}
