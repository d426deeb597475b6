//! Exchanges with the driver of the physical function (datasheet 7.10; the messages are those that Linux's `ixgbe` answers).

use crate::regs::{Registers, VFCTRL, VFMAILBOX, VFMBMEM, VFSTATUS, vfctrl, vfmailbox as bits};
use crate::{Error, Result};
use device::{Deadline, Device};
use std::time::{Duration, Instant};

/// Words of a message at most.
pub(crate) const WORDS: usize = 16;
/// Messages that are read while an answer is waited for: what is said of its own accord may come before it.
const MOST_MESSAGES: u32 = 16;
/// How often a request is sent, if what was said of its own accord may have taken the place of its answer.
const MOST_ATTEMPTS: u32 = 3;
/// How long the other side may take over each of its parts: Linux's driver waits for as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Reads before the first sleep, and the longest sleep between two.
const SPINS: u32 = 64;
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

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
/// After [`Error::Silent`], [`Error::Nonsense`], [`Error::Expired`] or [`Error::Lost`] nobody knows what the other side has
/// understood: all exchanges fail until [`Self::reset`].
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
    /// [`Error::Silent`] if the physical function's driver is not there, [`Error::Nonsense`] if the address is none of a station, and
    /// [`Error::Expired`] and [`Error::Gone`].
    pub fn reset(&mut self, deadline: &Deadline) -> Result<Option<[u8; 6]>> {
        // What was said before, and that an earlier reset is over, is no news any more.
        self.look()?;
        (self.state, self.changed, self.seen) = (State::Resetting, false, 0);
        self.regs.write(VFCTRL, vfctrl::RST.mask());
        // While the physical function resets, this is not over.
        let over = self.wait(deadline, "the end of the reset", |value| value & bits::RSTD.mask() != 0);
        (self.state, self.seen) = (State::Lost, 0);
        over?;
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
            _ => Err(self.nonsense("reset", low)),
        }
    }

    /// Looks whether the physical function has said something, without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`].
    pub fn news(&mut self) -> Result<News> {
        self.look()?;
        if self.state == State::Open && self.take(bits::PFSTS.mask()) {
            // The next one to look reads it if the other side is writing just now.
            match self.read_message()? {
                Some([first, ..]) if first & CLEAR_TO_SEND == 0 => self.state = State::Lost,
                Some(_) => self.changed = true,
                None => self.seen |= bits::PFSTS.mask(),
            }
        }
        Ok(match self.state {
            State::Lost => News::Lost,
            _ if std::mem::take(&mut self.changed) => News::Changed,
            _ => News::None,
        })
    }

    /// An exchange after which all is as it was if what was asked for is refused.
    pub(crate) fn ask(&mut self, deadline: &Deadline, what: &'static str, message: &[u32]) -> Result<[u32; WORDS]> {
        if self.state != State::Open {
            return Err(Error::Lost { device: self.name() });
        }
        // Until it is known how it ends.
        self.state = State::Lost;
        let answer = self.exchange(deadline, what, message)?;
        match answer[0] & OUTCOME {
            outcome if outcome & CLEAR_TO_SEND == 0 => Err(Error::Lost { device: self.name() }),
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

    /// Sends a message and waits for what answers it: again if something else has taken the place of the answer.
    fn exchange(&mut self, deadline: &Deadline, what: &'static str, message: &[u32]) -> Result<[u32; WORDS]> {
        let mut attempts = 1;
        loop {
            self.changed_meanwhile = false;
            match self.exchange_once(deadline, what, message) {
                Err(Error::Silent { .. }) if self.changed_meanwhile && attempts < MOST_ATTEMPTS => attempts += 1,
                outcome => return outcome,
            }
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
        let mut last = 0;
        for _ in 0..MOST_MESSAGES {
            self.wait(deadline, "its answer", |value| value & bits::PFSTS.mask() != 0)?;
            self.take(bits::PFSTS.mask());
            self.own(deadline)?;
            let answer = self.take_message();
            last = answer[0];
            if last & !OUTCOME == message[0] && last & (GRANTED | REFUSED) != 0 {
                return Ok(answer);
            }
            // Said of its own accord, or in answer to one who is no more.
            self.changed_meanwhile |= last & !OUTCOME == CONTROL;
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
        let (start, mut reads, mut sleep) = (Instant::now(), 0, Duration::from_micros(10));
        loop {
            attempt();
            let value = self.look()?;
            if done(value) {
                return Ok(());
            }
            if self.state != State::Resetting && value & (bits::RSTI.mask() | bits::RSTD.mask()) != 0 {
                self.state = State::Lost;
                return Err(Error::Lost { device: self.name() });
            }
            let waited = start.elapsed();
            if waited >= self.patience && reads >= SPINS {
                return Err(Error::Silent { device: self.name(), waiting_for, waited });
            }
            reads += 1;
            if reads < SPINS {
                std::hint::spin_loop();
                continue;
            }
            deadline.sleep(sleep).map_err(|expired| Error::Expired { device: self.name(), waiting_for, expired })?;
            sleep = (2 * sleep).min(LONGEST_SLEEP);
        }
    }

    /// Reads VFMAILBOX without losing what clears when read. Notes that the physical function resets, or has.
    fn look(&mut self) -> Result<u32> {
        let value = self.regs.read(VFMAILBOX);
        if value == u32::MAX && self.regs.read(VFSTATUS) == u32::MAX {
            self.state = State::Lost;
            return Err(Error::Gone { device: self.name() });
        }
        self.seen |= value & (bits::PFSTS.mask() | bits::PFACK.mask() | bits::RSTD.mask());
        if self.state == State::Open && value & (bits::RSTI.mask() | bits::RSTD.mask()) != 0 {
            self.state = State::Lost;
        }
        Ok(value | self.seen)
    }

    /// Makes use of a bit that was seen; whether it was.
    fn take(&mut self, bit: u32) -> bool {
        let was = self.seen & bit != 0;
        self.seen &= !bit;
        was
    }

    fn name(&self) -> String {
        self.regs.device().name().to_owned()
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
