//! SET_IRQS: the eventfds behind INTx, MSI and MSI-X vectors.

use super::trigger::{Signaller, Trigger};
use crate::model::InterruptSink;
use crate::soft::VECTORS;
use device::vfio_user::message::{Fields, irq};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The index of INTx; ERR (3) and REQ (4) have no interrupts.
const INTX: u32 = 0;
/// Actions on INTx besides the trigger.
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;

/// Flags of GET_IRQ_INFO.
const EVENTFD: u32 = 1;
const MASKABLE: u32 = 1 << 1;
const AUTOMASKED: u32 = 1 << 2;

/// Where interrupts go.
#[derive(Debug, Default)]
pub(super) struct Vectors(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    intx: Line,
    msi: Vec<Option<Trigger>>,
    msix: Vec<Option<Trigger>>,
    /// Made when the first eventfd comes.
    signaller: Option<Arc<Signaller>>,
}

/// INTx: a level. When it has fired it is masked, until the client has seen to it and takes the mask off again.
#[derive(Debug, Default)]
struct Line {
    fd: Option<Trigger>,
    masked: bool,
    /// Interrupt Disable in the command register.
    disabled: bool,
}

/// How many interrupts an index has: one by INTx and by MSI, 64 by MSI-X, none by ERR and REQ.
pub(super) fn count(index: u32) -> u32 {
    match index {
        INTX | irq::MSI => 1,
        irq::MSIX => VECTORS.into(),
        _ => 0,
    }
}

/// What can be done with them, as flags of GET_IRQ_INFO.
pub(super) fn flags(index: u32) -> u32 {
    match index {
        INTX => EVENTFD | MASKABLE | AUTOMASKED,
        irq::MSI | irq::MSIX => EVENTFD,
        _ => 0,
    }
}

impl Vectors {
    /// Carries out a SET_IRQS: argsz, flags, index, start, count (32 bits each), and a byte for each with `DATA_BOOL`.
    /// Takes `fds` if all are eventfds, which are closed at once.
    pub(super) fn set(&self, body: &[u8], fds: &mut Vec<OwnedFd>) -> Result<(), Errno> {
        let mut fields = Fields::new(body);
        let mut next = || fields.u32().ok_or(Errno::INVAL);
        let (_argsz, flags, index, start, many) = (next()?, next()?, next()?, next()?, next()?);
        let end = start.checked_add(many).filter(|end| *end <= count(index)).ok_or(Errno::INVAL)?;
        let range = start as usize..end as usize;
        if !fds.iter().all(is_eventfd) {
            return Err(Errno::INVAL);
        }
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if index == INTX && flags & irq::ACTION_TRIGGER == 0 {
            return table.intx.mask(flags, range.is_empty(), fields.rest());
        }
        let action = flags & !(irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD);
        if action != irq::ACTION_TRIGGER {
            // Masking is the table's business, which no client needs to know of.
            return Err(if action.count_ones() == 1 { Errno::NOTTY } else { Errno::INVAL });
        }
        let fds = table.triggers(std::mem::take(fds))?;
        if index == INTX {
            return table.intx.connect(flags & !action, range.len(), fds, fields.rest());
        }
        let slots = table.slots(index).ok_or(Errno::INVAL)?;
        match flags & !action {
            irq::DATA_NONE if (start, many) == (0, 0) => slots.clear(),
            irq::DATA_NONE => slots.iter().take(range.end).skip(range.start).flatten().for_each(Trigger::fire),
            irq::DATA_BOOL => {
                let chosen = fields.rest().get(..range.len()).ok_or(Errno::INVAL)?;
                let slots = slots.iter().skip(range.start);
                slots
                    .zip(chosen)
                    .filter(|(_, chosen)| **chosen != 0)
                    .flat_map(|(slot, _)| slot)
                    .for_each(Trigger::fire);
            }
            irq::DATA_EVENTFD => {
                let many = fds.len();
                if many != 0 && many != range.len() || range.is_empty() {
                    return Err(Errno::INVAL);
                }
                slots.resize_with(slots.len().max(range.end), || None);
                let mut fds = fds.into_iter();
                slots[range].iter_mut().for_each(|slot| *slot = fds.next());
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// The command register's Interrupt Disable was written.
    pub(super) fn disable_line(&self, disabled: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).intx.disabled = disabled;
    }

    /// Whether INTx is what fires, and is not held back.
    pub(super) fn line_is_open(&self) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &table.intx;
        table.msix.is_empty() && table.msi.is_empty() && line.fd.is_some() && !line.masked && !line.disabled
    }

    /// Disconnects everything.
    pub(super) fn clear(&self) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Table { signaller: table.signaller.take(), ..Table::default() };
    }
}

impl Line {
    fn fire(&mut self) {
        if let Some(fd) = &self.fd
            && !self.masked
            && !self.disabled
        {
            self.masked = true;
            fd.fire();
        }
    }

    /// MASK and UNMASK.
    fn mask(&mut self, flags: u32, none: bool, chosen: &[u8]) -> Result<(), Errno> {
        let chosen = match flags & !(ACTION_MASK | ACTION_UNMASK) {
            irq::DATA_NONE => !none,
            irq::DATA_BOOL => !none && *chosen.first().ok_or(Errno::INVAL)? != 0,
            // An eventfd that takes the mask off is for kernels that share one with the device.
            _ => return Err(Errno::INVAL),
        };
        match flags & (ACTION_MASK | ACTION_UNMASK) {
            ACTION_MASK => self.masked |= chosen,
            ACTION_UNMASK => self.masked &= !chosen,
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// TRIGGER: connects, disconnects or fires.
    fn connect(&mut self, data: u32, many: usize, fds: Vec<Trigger>, chosen: &[u8]) -> Result<(), Errno> {
        match (data, many) {
            (irq::DATA_NONE, 0) => *self = Self { disabled: self.disabled, ..Self::default() },
            (irq::DATA_NONE, _) => self.fire(),
            (irq::DATA_BOOL, 1) => {
                if *chosen.first().ok_or(Errno::INVAL)? != 0 {
                    self.fire();
                }
            }
            (irq::DATA_EVENTFD, 1) if fds.len() <= 1 => {
                self.fd = fds.into_iter().next();
                self.masked = false;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}

impl Table {
    /// What fires a client's descriptors, which are eventfds.
    fn triggers(&mut self, fds: Vec<OwnedFd>) -> Result<Vec<Trigger>, Errno> {
        if fds.is_empty() {
            return Ok(Vec::new());
        }
        let signaller = match &self.signaller {
            Some(signaller) => Arc::clone(signaller),
            None => {
                let made = Signaller::new().map_err(|error| {
                    tracing::warn!("no interrupts for a client: io_setup: {error}; look at /proc/sys/fs/aio-max-nr");
                    Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)
                })?;
                Arc::clone(self.signaller.insert(Arc::new(made)))
            }
        };
        Ok(fds.into_iter().map(|fd| Trigger::new(fd, &signaller)).collect())
    }

    fn slots(&mut self, index: u32) -> Option<&mut Vec<Option<Trigger>>> {
        match index {
            irq::MSI => Some(&mut self.msi),
            irq::MSIX => Some(&mut self.msix),
            _ => None,
        }
    }
}

/// The model's end.
pub(super) struct Sink(pub(super) Arc<Vectors>);

impl InterruptSink for Sink {
    fn fire(&mut self, vector: u16) {
        let mut table = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.msix.is_empty() && table.msi.is_empty() {
            table.intx.fire();
            return;
        }
        let slots = if table.msix.is_empty() { &table.msi } else { &table.msix };
        slots.get(usize::from(vector)).into_iter().flatten().for_each(Trigger::fire);
    }
}

/// Whether it is an eventfd: the kernel would signal no other file.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link == Path::new("anon_inode:[eventfd]"))
}
