//! SET_IRQS: the eventfds behind INTx, MSI and MSI-X vectors, and the thread that signals them.
//!
//! To signal an eventfd takes as long as its client likes, since the kernel wakes all who wait for it; to close one too. So the
//! engine, which all devices share, only notes what is due ([`Sink`]), and nothing is signalled or closed under a lock.

use super::trigger::Trigger;
use crate::DeviceId;
use crate::model::InterruptSink;
use crate::soft::VECTORS;
use device::Signaller;
use device::vfio_user::message::{Fields, irq};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

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
pub(super) struct Vectors {
    table: Mutex<Table>,
    /// Vectors that have fired and were not signalled yet, a bit for each.
    due: AtomicU64,
    signaller: OnceLock<Thread>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    intx: Line,
    msi: Vec<Option<Arc<Trigger>>>,
    msix: Vec<Option<Arc<Trigger>>>,
    /// Made when the first eventfd comes.
    signaller: Option<Arc<Signaller>>,
}

/// What is left to do when the table is free again.
#[derive(Debug, Default)]
struct After {
    fire: Vec<Arc<Trigger>>,
    /// Closed with this.
    gone: Vec<Arc<Trigger>>,
}

/// INTx: a level. When it has fired it is masked, until the client has seen to it and takes the mask off again.
#[derive(Debug, Default)]
struct Line {
    fd: Option<Arc<Trigger>>,
    masked: bool,
    /// Interrupt Disable in the command register.
    disabled: bool,
}

/// How many interrupts an index has: one by INTx and by MSI, which virtual functions lack; MSI-X; none by ERR and REQ.
pub(super) fn count(id: DeviceId, index: u32) -> u32 {
    match index {
        INTX | irq::MSI => u32::from(!id.is_virtual()),
        irq::MSIX => id.vectors().into(),
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
    /// Takes `fds` if all are eventfds.
    pub(super) fn set(&self, id: DeviceId, body: &[u8], fds: &mut Vec<OwnedFd>) -> Result<(), Errno> {
        if !fds.iter().all(is_eventfd) {
            return Err(Errno::INVAL);
        }
        let mut after = After::default();
        let outcome = self.table().set(id, body, fds, &mut after);
        after.fire.iter().for_each(|trigger| trigger.fire());
        outcome
    }

    /// The command register's Interrupt Disable was written.
    pub(super) fn disable_line(&self, disabled: bool) {
        self.table().intx.disabled = disabled;
    }

    /// Whether INTx is what fires, and is not held back.
    pub(super) fn line_is_open(&self) -> bool {
        let table = self.table();
        let line = &table.intx;
        table.msix.is_empty() && table.msi.is_empty() && line.fd.is_some() && !line.masked && !line.disabled
    }

    /// Disconnects everything.
    pub(super) fn clear(&self) {
        let mut table = self.table();
        self.due.store(0, Ordering::Relaxed);
        let signaller = table.signaller.take();
        let gone = std::mem::replace(&mut *table, Table { signaller, ..Table::default() });
        drop(table);
        drop(gone);
    }

    /// Signals what has fired.
    pub(super) fn deliver(&self) {
        if self.due.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut table = self.table();
        // With the table, so that nothing of an earlier client comes to a later one.
        let due = self.due.swap(0, Ordering::Acquire);
        let fire = table.due(due);
        drop(table);
        fire.iter().for_each(|trigger| trigger.fire());
    }

    /// Signals what fires until the end, which [`Self::close`] brings.
    pub(super) fn attend(&self) {
        let _ = self.signaller.set(thread::current());
        while !self.closed.load(Ordering::Acquire) {
            self.deliver();
            thread::park();
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.signaller.get() {
            thread.unpark();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// What is to be signalled when it fires.
    fn fire(&mut self) -> Option<Arc<Trigger>> {
        let fd = self.fd.clone().filter(|_| !self.masked && !self.disabled);
        self.masked |= fd.is_some();
        fd
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
    fn connect(
        &mut self,
        (data, many): (u32, usize),
        fds: Vec<Arc<Trigger>>,
        chosen: &[u8],
        after: &mut After,
    ) -> Result<(), Errno> {
        match (data, many) {
            (irq::DATA_NONE, 0) => {
                after.gone.extend(self.fd.take());
                self.masked = false;
            }
            (irq::DATA_NONE, _) => after.fire.extend(self.fire()),
            (irq::DATA_BOOL, 1) => {
                if *chosen.first().ok_or(Errno::INVAL)? != 0 {
                    after.fire.extend(self.fire());
                }
            }
            (irq::DATA_EVENTFD, 1) if fds.len() <= 1 => {
                after.gone.extend(std::mem::replace(&mut self.fd, fds.into_iter().next()));
                self.masked = false;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}

impl Table {
    /// As [`Vectors::set`].
    fn set(&mut self, id: DeviceId, body: &[u8], fds: &mut Vec<OwnedFd>, after: &mut After) -> Result<(), Errno> {
        let mut fields = Fields::new(body);
        let mut next = || fields.u32().ok_or(Errno::INVAL);
        let (_argsz, flags, index, start, many) = (next()?, next()?, next()?, next()?, next()?);
        let end = start.checked_add(many).filter(|end| *end <= count(id, index)).ok_or(Errno::INVAL)?;
        let range = start as usize..end as usize;
        if index == INTX && flags & irq::ACTION_TRIGGER == 0 {
            return self.intx.mask(flags, range.is_empty(), fields.rest());
        }
        let action = flags & !(irq::DATA_NONE | irq::DATA_BOOL | irq::DATA_EVENTFD);
        if action != irq::ACTION_TRIGGER {
            // Masking is the table's business, which no client needs to know of.
            return Err(if action.count_ones() == 1 { Errno::NOTTY } else { Errno::INVAL });
        }
        let triggers = self.triggers(std::mem::take(fds))?;
        // Those that find no place here go with `after`.
        after.gone.extend(triggers.iter().cloned());
        let data = flags & !action;
        if index == INTX {
            return self.intx.connect((data, range.len()), triggers, fields.rest(), after);
        }
        let slots = self.slots(index).ok_or(Errno::INVAL)?;
        match data {
            irq::DATA_NONE if (start, many) == (0, 0) => after.gone.extend(slots.drain(..).flatten()),
            irq::DATA_NONE => {
                after.fire.extend(slots.iter().take(range.end).skip(range.start).flatten().cloned());
            }
            irq::DATA_BOOL => {
                let chosen = fields.rest().get(..range.len()).ok_or(Errno::INVAL)?;
                let slots = slots.iter().skip(range.start).zip(chosen).filter(|(_, chosen)| **chosen != 0);
                after.fire.extend(slots.flat_map(|(slot, _)| slot).cloned());
            }
            irq::DATA_EVENTFD => {
                let many = triggers.len();
                if many != 0 && many != range.len() || range.is_empty() {
                    return Err(Errno::INVAL);
                }
                slots.resize_with(slots.len().max(range.end), || None);
                let mut triggers = triggers.into_iter();
                let gone = slots[range].iter_mut().filter_map(|slot| std::mem::replace(slot, triggers.next()));
                after.gone.extend(gone);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// What is to be signalled when these vectors fire.
    fn due(&mut self, vectors: u64) -> Vec<Arc<Trigger>> {
        if vectors == 0 {
            return Vec::new();
        }
        if self.msix.is_empty() && self.msi.is_empty() {
            return self.intx.fire().into_iter().collect();
        }
        let slots = if self.msix.is_empty() { &self.msi } else { &self.msix };
        let fired = slots.iter().enumerate().filter(|(vector, _)| vectors >> vector & 1 != 0);
        fired.filter_map(|(_, slot)| slot.clone()).collect()
    }

    /// What fires a client's descriptors, which are eventfds.
    fn triggers(&mut self, fds: Vec<OwnedFd>) -> Result<Vec<Arc<Trigger>>, Errno> {
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
        Ok(fds.into_iter().map(|fd| Arc::new(Trigger::new(fd, &signaller))).collect())
    }

    fn slots(&mut self, index: u32) -> Option<&mut Vec<Option<Arc<Trigger>>>> {
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
        self.0.due.fetch_or(1 << (vector % VECTORS), Ordering::Release);
        self.0.wake();
    }
}

/// As many bits as there are vectors.
const _: () = assert!(VECTORS as u32 == u64::BITS);

/// Whether it is an eventfd: the kernel would signal no other file.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link == Path::new("anon_inode:[eventfd]"))
}
