//! Exchanges with the driver of the physical function (datasheet 7.10; the messages are those that Linux's `ixgbe` answers).

use crate::regs::{Registers, VFCTRL, VFMAILBOX, VFMBMEM, vfctrl, vfmailbox as bits};
use crate::{Error, Result};
use device::{Deadline, Device};
use intel::{Timed, read, wait_retrying};
use std::cell::Cell;
use std::time::Duration;

/// Words of a message at most.
pub(crate) const WORDS: usize = 16;
/// Messages that are read while an answer is waited for: what is said of its own accord may come before it. Linux's driver takes the first
/// for the answer, and nobody sets a limit, so it is our own.
const MOST_MESSAGES: u32 = 16;
/// How often a request is sent, if what was said of its own accord may have taken the place of its answer: nobody else sends one again, so
/// this is our own choice.
const MOST_ATTEMPTS: u32 = 8;
/// How long the other side may take over each of its parts: it is a driver (82599 7.10), so this comes from drivers. Linux's `ixgbevf`
/// and DPDK's `net_ixgbe_vf` look 2,000 times, 500 us apart, for an acknowledgement and for a message. For the end of a reset,
/// they look 200 times, 5 us apart; here that has as long, as a physical function that resets just then takes longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bits of VFMAILBOX that clear when read.
const CLEAR_ON_READ: u32 = bits::PFSTS.mask() | bits::PFACK.mask() | bits::RSTD.mask();
/// The physical function resets, or has.
const ITS_RESET: u32 = bits::RSTI.mask() | bits::RSTD.mask();

/// Bits of the first word of what the other side says.
const GRANTED: u32 = 1 << 31;
const REFUSED: u32 = 1 << 30;
const CLEAR_TO_SEND: u32 = 1 << 29;
const OUTCOME: u32 = GRANTED | REFUSED | CLEAR_TO_SEND;

const RESET: u32 = 0x01;
/// What the physical function says of its own accord.
const CONTROL: u32 = 0x0100;

/// What the physical function has said of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    None,
    /// Something has changed: the link, for one.
    Changed,
    /// It was reset. Nothing is received or sent until this function is reset too.
    Lost,
}

/// The mailbox between a virtual function and the physical one.
///
/// After [`Error::Silent`], [`Error::Away`], [`Error::Nonsense`], [`Error::Expired`] or [`Error::Lost`] nobody knows what the other side
/// has understood: all exchanges fail until [`Self::reset`].
pub struct Mailbox<D: Device> {
    regs: Registers<D>,
    /// Bits of VFMAILBOX that clear when read, and that nobody has made use of.
    seen: u32,
    state: State,
    /// Something was said beside an answer.
    changed: bool,
    /// While an answer was waited for.
    changed_meanwhile: bool,
    patience: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not reset yet.
    New,
    Resetting,
    Open,
    Lost,
}

impl<D: Device> std::fmt::Debug for Mailbox<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("state", &self.state).field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<D: Device> Mailbox<D> {
    /// Creates the mailbox of a function, which has to be reset first.
    #[must_use]
    pub fn new(regs: Registers<D>) -> Self {
        Self { regs, seen: 0, state: State::New, changed: false, changed_meanwhile: false, patience: PATIENCE }
    }

    /// Sets how long the physical function may take over each part of an exchange; default 1 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Resets the function and tells the physical one. Returns the address that it gives to this one; `None` if it leaves the choice
    /// to its driver.
    ///
    /// # Errors
    ///
    /// [`Error::Away`] if the physical function resets and does not come back, [`Error::Silent`] if it does not answer, [`Error::Nonsense`]
    /// if the address is none of a station, and [`Error::Expired`] and [`Error::Gone`].
    pub fn reset(&mut self, deadline: &Deadline) -> Result<Option<[u8; 6]>> {
        // What was said before, and that an earlier reset is over, is no news any more.
        self.look()?;
        (self.state, self.changed, self.seen) = (State::Resetting, false, 0);
        self.regs.write(VFCTRL, vfctrl::RST.mask());
        // While the physical function resets, this is not over.
        let over = self.wait(deadline, "the end of the reset", |value| value & bits::RSTD.mask() != 0);
        (self.state, self.seen) = (State::Lost, 0);
        match over {
            // It is not this function's reset that takes so long.
            Err(Error::Silent { device, waited, .. }) if self.look()? & bits::RSTI.mask() != 0 => {
                return Err(Error::Away { device, waited });
            }
            over => over?,
        }
        let [first, low, high, ..] = self.exchange(deadline, "reset", &[RESET])?;
        let address = address(low, high);
        match first & (GRANTED | REFUSED) {
            GRANTED if address[0] & 1 == 0 && address != [0; 6] => {
                self.state = State::Open;
                Ok(Some(address))
            }
            REFUSED => {
                self.state = State::Open;
                Ok(None)
            }
            _ => Err(self.nonsense("reset", first)),
        }
    }

    /// Looks whether the physical function has said something, without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`].
    pub fn news(&mut self) -> Result<News> {
        self.listen()?;
        Ok(match self.state {
            State::Lost => News::Lost,
            _ if std::mem::take(&mut self.changed) => News::Changed,
            _ => News::None,
        })
    }

    /// Looks as [`Self::news`] does, and leaves what has changed for that to tell.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the physical function was reset, or an exchange has failed; [`Error::Gone`].
    pub(crate) fn check(&mut self) -> Result<()> {
        self.listen()?;
        if self.is_lost() { Err(self.lost()) } else { Ok(()) }
    }

    /// Whether nothing can be said any more, as far as is known without looking.
    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Reads what there is to read.
    fn listen(&mut self) -> Result<()> {
        self.look()?;
        if self.state == State::Open && self.take(bits::PFSTS.mask()) {
            // The next one to look reads it if the other side is writing just now.
            match self.read_message()? {
                Some([first, ..]) if first & CLEAR_TO_SEND == 0 => self.state = State::Lost,
                Some(_) => self.changed = true,
                None => self.seen |= bits::PFSTS.mask(),
            }
        }
        Ok(())
    }

    /// An exchange after which all is as it was if what was asked for is refused.
    pub(crate) fn ask(&mut self, deadline: &Deadline, what: &'static str, message: &[u32]) -> Result<[u32; WORDS]> {
        if self.state != State::Open {
            return Err(self.lost());
        }
        // Until it is known how it ends.
        self.state = State::Lost;
        let answer = self.exchange(deadline, what, message)?;
        match answer[0] & OUTCOME {
            outcome if outcome & CLEAR_TO_SEND == 0 => Err(self.lost()),
            outcome if outcome & REFUSED != 0 => {
                self.state = State::Open;
                Err(self.refused(what))
            }
            outcome if outcome & GRANTED != 0 => {
                self.state = State::Open;
                Ok(answer)
            }
            _ => Err(self.nonsense(what, answer[0])),
        }
    }

    /// Sends a message and waits for what answers it: again if something else may have taken the place of the answer.
    fn exchange(&mut self, deadline: &Deadline, what: &'static str, message: &[u32]) -> Result<[u32; WORDS]> {
        let mut attempts = 1;
        loop {
            self.changed_meanwhile = false;
            let outcome = self.exchange_once(deadline, what, message);
            let replaced =
                matches!(outcome, Err(Error::Silent { .. } | Error::Nonsense { .. })) && self.changed_meanwhile;
            if !replaced || attempts == MOST_ATTEMPTS {
                return outcome;
            }
            attempts += 1;
        }
    }

    fn exchange_once(&mut self, deadline: &Deadline, what: &'static str, message: &[u32]) -> Result<[u32; WORDS]> {
        self.own(deadline)?;
        // What was said before is overwritten.
        self.changed |= self.take(bits::PFSTS.mask());
        self.take(bits::PFACK.mask());
        for (word, at) in message.iter().zip(0..) {
            self.regs.write(VFMBMEM.at(at), *word);
        }
        self.regs.write(VFMAILBOX, bits::REQ.mask());
        self.wait(deadline, "its acknowledgement", |value| value & bits::PFACK.mask() != 0)?;
        self.take(bits::PFACK.mask());
        // Something that is no answer.
        let (mut last, mut strange) = (0, false);
        for _ in 0..MOST_MESSAGES {
            match self.wait(deadline, "its answer", |value| value & bits::PFSTS.mask() != 0) {
                Err(Error::Silent { .. }) if strange && !self.changed_meanwhile => {
                    return Err(self.nonsense(what, last));
                }
                outcome => outcome?,
            }
            self.take(bits::PFSTS.mask());
            self.own(deadline)?;
            let answer = self.take_message();
            last = answer[0];
            if last & !OUTCOME == message[0] && last & (GRANTED | REFUSED) != 0 {
                return Ok(answer);
            }
            // Said of its own accord, or in answer to one who is no more.
            let control = last & !OUTCOME == CONTROL;
            strange |= !control;
            self.changed_meanwhile |= control;
            self.changed |= self.changed_meanwhile;
        }
        Err(self.nonsense(what, last))
    }

    /// Takes hold of the memory.
    fn own(&mut self, deadline: &Deadline) -> Result<()> {
        let owned = bits::VFU.mask();
        let regs = self.regs.clone();
        self.wait_retrying(deadline, "the mailbox", || regs.write(VFMAILBOX, owned), |value| value & owned != 0)
    }

    /// Reads a message if the memory can be had at once.
    fn read_message(&mut self) -> Result<Option<[u32; WORDS]>> {
        self.regs.write(VFMAILBOX, bits::VFU.mask());
        Ok(if self.look()? & bits::VFU.mask() == 0 { None } else { Some(self.take_message()) })
    }

    /// Reads the message in the memory, which is held, and lets go of it.
    fn take_message(&self) -> [u32; WORDS] {
        let mut at = 0..;
        let message = std::array::from_fn(|_| at.next().map_or(0, |at| self.regs.read(VFMBMEM.at(at))));
        self.regs.write(VFMAILBOX, bits::ACK.mask());
        message
    }

    fn wait(&mut self, deadline: &Deadline, waiting_for: &'static str, done: impl Fn(u32) -> bool) -> Result<()> {
        self.wait_retrying(deadline, waiting_for, || {}, done)
    }

    /// Reads VFMAILBOX until `done`, doing `attempt` before each read; fails if the physical function resets, but for one's own reset.
    fn wait_retrying(
        &mut self,
        deadline: &Deadline,
        waiting_for: &'static str,
        attempt: impl Fn(),
        done: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let (seen, resetting) = (Cell::new(self.seen), self.state == State::Resetting);
        let all = |value: u32| {
            seen.set(seen.get() | value & CLEAR_ON_READ);
            value | seen.get()
        };
        let is_end = |value| done(all(value)) || (!resetting && all(value) & ITS_RESET != 0);
        let regs = Timed::new(&self.regs, deadline.clone());
        let outcome = wait_retrying(&regs, VFMAILBOX, attempt, is_end, self.patience, waiting_for);
        self.seen = seen.get();
        match outcome {
            Ok(value) if done(value | self.seen) => return Ok(()),
            Ok(_) => self.state = State::Lost,
            Err(Error::Timeout { device, waited, .. }) => return Err(Error::Silent { device, waiting_for, waited }),
            Err(error) => {
                self.state = State::Lost;
                return Err(error);
            }
        }
        Err(self.lost())
    }

    /// Reads VFMAILBOX without losing what clears when read. Notes that the physical function resets, or has.
    fn look(&mut self) -> Result<u32> {
        let value = read(&self.regs, VFMAILBOX).inspect_err(|_| self.state = State::Lost)?;
        self.seen |= value & CLEAR_ON_READ;
        let value = value | self.seen;
        if self.state == State::Open && value & ITS_RESET != 0 {
            self.state = State::Lost;
        }
        Ok(value)
    }

    /// Makes use of a bit that was seen; whether it was.
    fn take(&mut self, bit: u32) -> bool {
        let was = self.seen & bit != 0;
        self.seen &= !bit;
        was
    }

    pub(crate) fn name(&self) -> String {
        self.regs.device().name().to_owned()
    }

    pub(crate) fn lost(&self) -> Error {
        Error::Lost { device: self.name() }
    }

    pub(crate) fn refused(&self, what: &'static str) -> Error {
        Error::Refused { device: self.name(), what }
    }

    pub(crate) fn nonsense(&mut self, what: &'static str, word: u32) -> Error {
        self.state = State::Lost;
        Error::Nonsense { device: self.name(), what, word }
    }
}

/// An address as it lies in a message.
fn address(low: u32, high: u32) -> [u8; 6] {
    let ([a, b, c, d], [e, f, _, _]) = (low.to_le_bytes(), high.to_le_bytes());
    [a, b, c, d, e, f]
}
