//! Which frames the physical function has the card give to this one.

use crate::{Api, Error, Mailbox, Mode, Result};
use device::{Deadline, Device};
use ethdev::PortConfig;

/// The receive modes of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub(crate) promiscuous: bool,
    pub(crate) all_multicast: bool,
}

impl From<&PortConfig> for Modes {
    fn from(config: &PortConfig) -> Self {
        Self { promiscuous: config.promiscuous, all_multicast: config.all_multicast }
    }
}

impl Modes {
    /// What they are called in the mailbox.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self { promiscuous: true, .. } => Mode::Everything,
            Self { all_multicast: true, .. } => Mode::AllGroups,
            _ => Mode::Groups,
        }
    }

    /// Asks for them; what was there before is there again if less is granted.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], and those of any exchange.
    pub(crate) fn change<D: Device>(
        self,
        mailbox: &mut Mailbox<D>,
        api: Api,
        before: Self,
        deadline: &Deadline,
    ) -> Result<()> {
        if self.mode() == before.mode() {
            return Ok(());
        }
        if api < Api::V1_2 {
            return if self.mode() < before.mode() { Ok(()) } else { Err(mailbox.refused(WHAT)) };
        }
        if mailbox.set_mode(deadline, self.mode())? == self.mode() {
            return Ok(());
        }
        mailbox.set_mode(deadline, before.mode())?;
        Err(mailbox.refused(WHAT))
    }
}

/// Asks for the modes of a port that is being opened, or as much of them as there is to be had. Returns the most that would be granted.
///
/// # Errors
///
/// Those of any exchange but a refusal.
pub(crate) fn begin<D: Device>(mailbox: &mut Mailbox<D>, api: Api, wanted: Mode, deadline: &Deadline) -> Result<Mode> {
    if api < Api::V1_2 {
        return Ok(Mode::Groups);
    }
    let mut most = Mode::Broadcast;
    for mode in [Mode::Everything, Mode::AllGroups, Mode::Groups] {
        match mailbox.set_mode(deadline, mode) {
            Ok(granted) => {
                most = granted;
                break;
            }
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if wanted < most {
        mailbox.set_mode(deadline, wanted)?;
    }
    Ok(most)
}

const WHAT: &str = "receive frames of others";
