//! What a virtual function sees of the card (datasheet 7.10, 8.3): its registers, which are some of the card's under
//! other addresses, its end of the mailbox, and counters that never clear.

use super::map;
use super::pf::{Message, OwnHashing, Pf};
use super::queue::{self, field};
use super::{DeviceId, Event, Model, Setup};
use crate::fault::MailboxPhase;
use crate::violation::{Ring, Violation};

const VFCTRL_RST: u32 = 1 << 26;
/// VFMAILBOX (8.3).
const REQ: u32 = 1;
const ACK: u32 = 1 << 1;
const VFU: u32 = 1 << 2;
const PFSTS: u32 = 1 << 4;
const PFACK: u32 = 1 << 5;
const RSTI: u32 = 1 << 6;
const RSTD: u32 = 1 << 7;
/// Reading clears these.
const CLEAR_ON_READ: u32 = PFSTS | PFACK | RSTD;

/// RXDCTL.EN and TXDCTL.EN.
const ENABLE: u32 = 1 << 25;
/// Rings that the window has room for.
pub(super) const RINGS: u32 = 8;
/// Where the first receive ring and the first transmit ring are.
pub(super) const RINGS_AT: [u32; 2] = [0x1000, 0x2000];
/// The vectors of a function: bits of VTEICR and its like.
const VECTORS: u32 = 7;
/// INT_ALLOC and its valid bit, of up to four queues.
const ALLOCATIONS: u32 = 0x8383_8383;

/// Ticks until the physical function has read a request, until it answers, and until a reset is over.
const READ_TICKS: u64 = 2;
const ANSWER_TICKS: u64 = 2;
const RESET_TICKS: u64 = 3;
/// Ticks for which a reset of the physical function lasts.
const PF_RESET_TICKS: u64 = 40;

/// What the physical function does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It reads the request in the mailbox.
    Read,
    /// It writes its answer there.
    Answer,
    /// A reset is over: the function's own, or the physical one's.
    ResetDone,
    /// It says that something has changed, and is busy with the function so many times at most.
    Notify(u8),
}

impl Turn {
    pub(super) const NOTIFY: Self = Self::Notify(u8::MAX);
}

/// The function, and the physical one behind it.
#[derive(Debug)]
pub(super) struct Vf {
    /// VFMAILBOX.
    mailbox: u32,
    answer: Vec<u32>,
    /// Whether the function has not acknowledged an answer yet.
    unread: bool,
    pub(super) pf: Pf,
    hashing: Option<OwnHashing>,
    /// Messages since the faults were set.
    messages: u32,
}

/// What a register of the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Control,
    Links,
    Mailbox,
    /// A register of the card, and those of its bits that the function sees.
    Card(u32, u32),
    /// A counter of the function.
    Counter,
    /// A dword of VFMRQC, VFRSSRK and VFRETA.
    Hashing(u32),
    /// Reads 0 and cannot be written: VFSTATUS, VFFRTIMER, VFRXMEMWRAP.
    Constant,
}

impl Vf {
    pub(super) fn new(setup: &Setup) -> Option<Self> {
        let id = setup.id;
        let hashing = (id == DeviceId::VfX550).then(OwnHashing::default);
        let pf = || Pf::new(id, setup.grant, setup.mac);
        id.is_virtual().then(|| Self { mailbox: 0, answer: Vec::new(), unread: false, pf: pf(), hashing, messages: 0 })
    }

    fn place(&self, offset: u32) -> Option<Place> {
        let card = |base, from, bits| Some(Place::Card(base + (offset - from), bits));
        match offset {
            _ if offset & 3 != 0 => None,
            0x000 => Some(Place::Control),
            0x008 | 0x048 | 0x3190 => Some(Place::Constant),
            0x010 => Some(Place::Links),
            0x100 => Some(Place::Card(map::EICR, VECTORS)),
            0x104 => Some(Place::Card(map::EICS, VECTORS)),
            0x108 => Some(Place::Card(map::EIMS, VECTORS)),
            0x10C => Some(Place::Card(map::EIMC, VECTORS)),
            0x110 => Some(Place::Card(map::EIAC, VECTORS)),
            0x114 => Some(Place::Card(map::EIAM, VECTORS)),
            0x120..=0x12C => card(map::IVAR, 0x120, ALLOCATIONS),
            0x140 => Some(Place::Card(map::IVAR_MISC, 0x83)),
            0x180..=0x188 => card(map::RSCINT, 0x180, !0),
            0x200..=0x23C => card(map::PFMBMEM, 0x200, !0),
            0x2FC => Some(Place::Mailbox),
            0x300 => Some(Place::Card(map::PSRTYPE, !0)),
            0x820..=0x828 => card(map::EITR, 0x820, !0),
            0x101C | 0x1020 | 0x1024 | 0x1034 | 0x201C | 0x2020 | 0x2024 => Some(Place::Counter),
            0x1000..=0x11FF if queue::is_receive_field(offset & 0x3F) => card(map::RX_LOW, 0x1000, !0),
            0x2000..=0x21FF if queue::is_transmit_field(offset & 0x3F) => card(map::TX, 0x2000, !0),
            0x3000 | 0x3100..=0x3124 | 0x3200..=0x323C if self.hashing.is_some() => Some(Place::Hashing(offset)),
            _ => None,
        }
    }
}

impl Vf {
    /// What a register of the window is called: those that are the card's, as there.
    pub(super) fn name(&self, card: &map::RegisterFile, offset: u32) -> String {
        let own = match self.place(offset) {
            Some(Place::Card(real, _)) => return card.name(real),
            Some(Place::Control) => "VFCTRL",
            Some(Place::Links) => "VFLINKS",
            Some(Place::Mailbox) => "VFMAILBOX",
            Some(Place::Counter) => "a counter",
            Some(Place::Hashing(_)) => "VFMRQC, VFRSSRK, VFRETA",
            Some(Place::Constant) => "VFSTATUS, VFFRTIMER, VFRXMEMWRAP",
            None => "?",
        };
        own.to_owned()
    }
}

impl OwnHashing {
    fn word(&mut self, offset: u32) -> Option<&mut u32> {
        let at = (offset & 0xFF) as usize / 4;
        match offset >> 8 {
            0x30 => Some(&mut self.types),
            0x31 => self.key.get_mut(at),
            _ => self.table.get_mut(at),
        }
    }
}

impl Model {
    /// Reads a register of the function's window.
    pub(super) fn read_function(&mut self, vf: &mut Vf, offset: u32) -> u32 {
        match vf.place(offset) {
            Some(Place::Card(real, bits)) => self.read_card(real) & bits,
            Some(Place::Links) if vf.mailbox & RSTI != 0 => 0,
            Some(Place::Links) => self.read_card(map::LINKS),
            Some(Place::Mailbox) => {
                let value = vf.mailbox;
                vf.mailbox &= !CLEAR_ON_READ;
                value
            }
            Some(Place::Counter) => self.stats.of_function(offset),
            Some(Place::Hashing(offset)) => {
                vf.hashing.as_mut().and_then(|hashing| hashing.word(offset)).map_or(0, |word| *word)
            }
            Some(Place::Control | Place::Constant) => 0,
            None => {
                self.checks.report_lax(Violation::UnknownRegister { offset, write: false });
                0
            }
        }
    }

    /// Writes one.
    pub(super) fn write_function(&mut self, vf: &mut Vf, offset: u32, value: u32) {
        match vf.place(offset) {
            Some(Place::Control) if value & VFCTRL_RST != 0 => self.reset_function(vf),
            Some(Place::Control) => {}
            Some(Place::Mailbox) => self.write_mailbox(vf, value),
            Some(Place::Card(real, bits)) => self.write_shared(vf, real, value & bits),
            Some(Place::Hashing(offset)) => {
                if let Some(word) = vf.hashing.as_mut().and_then(|hashing| hashing.word(offset)) {
                    *word = value;
                }
                self.write_hashing(vf);
            }
            Some(Place::Links | Place::Counter | Place::Constant) => {
                let name = "a register of the function";
                self.checks.report(Violation::ReadOnlyRegister { name, offset, value });
            }
            None => self.checks.report(Violation::UnknownRegister { offset, write: true }),
        }
    }

    /// A register of the card that is the function's too.
    fn write_shared(&mut self, vf: &mut Vf, real: u32, mut value: u32) {
        if (map::PFMBMEM..map::PFMBMEM + 64).contains(&real) && vf.mailbox & VFU == 0 {
            self.checks.report(Violation::Order("VFMBMEM was written without VFMAILBOX.VFU"));
        }
        if let Some((Ring::Rx(number) | Ring::Tx(number), field::CONTROL)) = queue::decode(real)
            && number >= vf.pf.grant.queues
            && value & ENABLE != 0
        {
            self.checks.report(Violation::Order("a queue was enabled beyond those that were granted"));
            value &= !ENABLE;
        }
        self.write_card(real, value);
        if real == map::PSRTYPE {
            self.write_hashing(vf);
        }
    }

    fn write_hashing(&mut self, vf: &Vf) {
        match &vf.hashing {
            Some(own) => vf.pf.write_own_hashing(&mut self.regs, own),
            None => vf.pf.write_hashing(&mut self.regs),
        }
        self.rx.reconfigure(map::RSSRK);
    }

    /// VFCTRL.RST, or a function level reset: the function's registers are at their reset values. Frames already counted stay
    /// counted, and so does what is in the mailbox's memory.
    pub(super) fn reset_function(&mut self, vf: &mut Vf) {
        let memory = self.mailbox();
        let stats = std::mem::take(&mut self.stats);
        self.software_reset(false);
        self.stats = stats;
        memory.into_iter().zip((map::PFMBMEM..).step_by(4)).for_each(|(word, at)| self.regs.set(at, word));
        if let Some(hashing) = &mut vf.hashing {
            *hashing = OwnHashing::default();
        }
        (vf.mailbox, vf.unread) = (vf.mailbox & RSTI, false);
        vf.pf.start(&mut self.regs);
        self.write_hashing(vf);
        if vf.mailbox & RSTI != 0 {
            return;
        }
        // Of one that is not over nothing more is heard.
        self.events.retain(|(_, event)| *event != Event::Pf(Turn::ResetDone));
        if !self.faults.stuck_reset {
            self.pf_turn_in(RESET_TICKS, Turn::ResetDone);
        }
    }

    fn write_mailbox(&mut self, vf: &mut Vf, value: u32) {
        let owned = vf.mailbox & VFU != 0;
        vf.mailbox = vf.mailbox & !VFU | value & VFU;
        vf.unread &= value & (REQ | ACK) == 0;
        if value & REQ != 0 {
            if !owned {
                self.checks.report(Violation::Order("VFMAILBOX.REQ was set without VFU"));
            }
            // An answer to an earlier one is lost with the memory it would have been in.
            vf.answer.clear();
            self.pf_turn_in(READ_TICKS, Turn::Read);
        }
        if value & ACK != 0
            && let Some(word) = vf.pf.complaint().filter(|_| !self.faults.pf.is_silent(vf.messages))
            && vf.answer.is_empty()
        {
            vf.answer = vec![word];
            self.pf_turn_in(ANSWER_TICKS, Turn::Answer);
        }
    }

    /// Lets the physical function have a turn, once, in so many ticks: instead of an earlier one of the same kind.
    pub(super) fn pf_turn_in(&mut self, ticks: u64, turn: Turn) {
        let kind = std::mem::discriminant(&turn);
        let is_same = |event: &Event| matches!(event, Event::Pf(other) if std::mem::discriminant(other) == kind);
        self.events.retain(|(_, event)| !is_same(event));
        self.after(ticks, Event::Pf(turn));
    }

    /// The physical function's turn.
    pub(super) fn pf_turn(&mut self, vf: &mut Vf, turn: Turn) {
        match turn {
            Turn::Read => self.pf_reads(vf),
            // The function has the mailbox.
            Turn::Answer if vf.mailbox & VFU != 0 && !vf.answer.is_empty() => {
                self.pf_turn_in(ANSWER_TICKS, Turn::Answer);
            }
            Turn::Answer => {
                let answer = std::mem::take(&mut vf.answer);
                self.pf_says(vf, &answer);
                vf.unread = true;
                if self.faults.pf.resets_at(vf.messages, MailboxPhase::Answered) {
                    self.pf_goes_down(vf);
                }
            }
            Turn::ResetDone => vf.mailbox = vf.mailbox & !RSTI | RSTD,
            Turn::Notify(more) if more != 0 && (self.pf_is_asked(vf) || vf.unread || vf.mailbox & VFU != 0) => {
                self.pf_turn_in(ANSWER_TICKS, Turn::Notify(more - 1));
            }
            Turn::Notify(_) => self.pf_notifies(vf),
        }
    }

    fn pf_reads(&mut self, vf: &mut Vf) {
        if vf.mailbox & RSTI != 0 || self.faults.pf.is_silent(vf.messages) {
            return;
        }
        vf.messages = vf.messages.saturating_add(1);
        if self.faults.pf.resets_at(vf.messages, MailboxPhase::Sent) {
            self.pf_resets(vf);
            return;
        }
        vf.mailbox |= PFACK;
        self.announce();
        if self.faults.pf.resets_at(vf.messages, MailboxPhase::Taken) {
            self.pf_resets(vf);
            return;
        }
        let message = self.mailbox();
        vf.answer = vf.pf.answer(&mut self.regs, message, self.faults.pf.refuses);
        if self.faults.pf.garbage {
            vf.answer = garbage(self.ticks).to_vec();
        }
        self.rx.reconfigure(0);
        self.tx.reconfigure();
        self.pf_turn_in(ANSWER_TICKS, Turn::Answer);
    }

    /// The physical function writes words into the mailbox and says so.
    fn pf_says(&mut self, vf: &mut Vf, words: &[u32]) {
        if words.is_empty() {
            return;
        }
        for (word, at) in words.iter().zip((map::PFMBMEM..).step_by(4)) {
            self.regs.set(at, *word);
        }
        vf.mailbox |= PFSTS;
        self.announce();
    }

    /// Something has happened in the mailbox (VTIVAR_MISC).
    fn announce(&mut self) {
        let vector = super::interrupts::vector_bit(self.regs.get(map::IVAR_MISC));
        self.irq.queue_event(vector);
        self.irq.deliver(&self.regs, self.ticks);
    }

    /// The physical function resets, having said so.
    fn pf_resets(&mut self, vf: &mut Vf) {
        self.pf_goes_down(vf);
        let said = vf.pf.control();
        self.pf_says(vf, &[said]);
    }

    /// It resets: nothing is received or sent until the function has reset too.
    fn pf_goes_down(&mut self, vf: &mut Vf) {
        self.events.retain(|(_, event)| !matches!(event, Event::Pf(_)));
        vf.pf.stop(&mut self.regs);
        vf.answer.clear();
        self.rx.reconfigure(0);
        vf.mailbox |= RSTI;
        self.pf_turn_in(PF_RESET_TICKS, Turn::ResetDone);
    }

    /// Faults of the physical function that show at once.
    pub(super) fn set_pf_faults(&mut self, vf: &mut Vf) {
        vf.messages = 0;
        if self.faults.pf.resets_at(0, MailboxPhase::default()) || self.faults.pf.gone {
            self.pf_resets(vf);
        }
        if self.faults.pf.gone {
            self.events.retain(|(_, event)| !matches!(event, Event::Pf(_)));
        }
    }

    /// Whether there is a request that it has not answered.
    fn pf_is_asked(&self, vf: &Vf) -> bool {
        !vf.answer.is_empty() || self.events.iter().any(|(_, event)| *event == Event::Pf(Turn::Read))
    }

    /// Says that something has changed, the link for one, if the mailbox can be had: over what was there.
    pub(super) fn pf_notifies(&mut self, vf: &mut Vf) {
        let silent = self.pf_is_asked(vf) || self.faults.pf.is_silent(vf.messages);
        if vf.mailbox & (RSTI | VFU) == 0 && !silent {
            let said = vf.pf.control();
            self.pf_says(vf, &[said]);
        }
    }

    /// The faults are gone: a physical function that went away comes back.
    pub(super) fn pf_returns(&mut self, vf: &mut Vf) {
        let returning = self.events.iter().any(|(_, event)| *event == Event::Pf(Turn::ResetDone));
        if vf.mailbox & RSTI != 0 && !returning {
            self.pf_turn_in(PF_RESET_TICKS, Turn::ResetDone);
        }
    }

    fn mailbox(&self) -> Message {
        let mut at = (map::PFMBMEM..).step_by(4);
        std::array::from_fn(|_| at.next().map_or(0, |at| self.regs.get(at)))
    }
}

/// Words that mean nothing.
fn garbage(seed: u64) -> Message {
    // A small seed would not reach the upper half of the first words.
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 32).unwrap_or(0)
    })
}
