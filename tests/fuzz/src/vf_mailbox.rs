//! A physical function that says whatever the input says in the mailbox of a virtual one.

use device::{Bar, Device, DmaDomain, PciIds, Regs, TimeLimit};
use ixgbevf::{Error, Ixgbevf, Mailbox, Mode, Result};
use softnic::{DeviceId, StrictNic};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Runs one input: a number of requests, each a byte, then what the registers of the mailbox read. Each request ends after a bounded
/// number of reads. What it returns is of use, and after one that broke off nothing is granted until a reset.
pub fn run(input: &[u8]) {
    let _ = granted(input);
}

/// Does so, and returns the number of requests that were granted.
fn granted(input: &[u8]) -> usize {
    let Some((count, rest)) = input.split_first() else { return 0 };
    let (requests, said) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let played = Played::new(said);
    let reads = Arc::clone(&played.bar.reads);
    let regs: Regs<Ixgbevf, Played> = Regs::new(Arc::new(played)).expect("ids of a function");
    let mut mailbox = Mailbox::new(regs).patience(Duration::ZERO);
    let (mut open, mut granted) = (false, 0);
    for request in requests {
        let before = reads.load(Ordering::Relaxed);
        let outcome = ask(&mut mailbox, *request);
        let taken = reads.load(Ordering::Relaxed) - before;
        assert!(taken < MOST_READS, "{taken} reads for request {request}");
        granted += usize::from(outcome.is_ok());
        match outcome {
            Ok(()) if *request & 15 == RESET => open = true,
            Ok(()) => assert!(open, "request {request} was granted after an exchange that broke off"),
            Err(Error::Refused { .. }) => {
                assert!(open, "request {request} was refused after an exchange that broke off")
            }
            Err(_) => open = false,
        }
    }
    granted
}

fn ask(mailbox: &mut Mailbox<Played>, request: u8) -> Result<()> {
    let deadline = TimeLimit::default().begin();
    match request & 15 {
        RESET => {
            let address = mailbox.reset(&deadline)?;
            assert!(address.is_none_or(|address| address[0] & 1 == 0 && address != [0; 6]), "{address:?}");
            Ok(())
        }
        1 => mailbox.negotiate(&deadline).map(drop),
        2 => {
            let queues = mailbox.queues(&deadline)?;
            assert!((1..=8).contains(&queues.transmit) && (1..=8).contains(&queues.receive), "{queues:?}");
            Ok(())
        }
        3 => {
            let hashing = mailbox.hashing(&deadline)?;
            assert!(hashing.table.iter().all(|queue| *queue < 4), "{hashing:?}");
            Ok(())
        }
        4 => mailbox.set_address(&deadline, [2, 0, 0, 0, 0, 1]),
        5 => mailbox.set_more_addresses(&deadline, &[[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]]),
        6 => mailbox.set_vlan(&deadline, u16::from(request), true),
        7 => mailbox.set_groups(&deadline, &[1, 2, 3]),
        8 => mailbox.set_longest(&deadline, 9018),
        9 => {
            let granted = mailbox.set_mode(&deadline, Mode::AllGroups)?;
            assert!(granted <= Mode::AllGroups, "{granted:?}");
            Ok(())
        }
        _ => {
            // It may say something of its own accord at any time.
            mailbox.news()?;
            mailbox.set_longest(&deadline, 1518)
        }
    }
}

const RESET: u8 = 0;
/// More than the most exchanges of a request, each sent as often as it may be, each with the most messages, each with the most reads of a
/// wait that has no time.
const MOST_READS: u32 = 8 * 8 * 16 * 200;
/// The kind of message that no byte has room for: what is said of its own accord.
const NOTICE: u8 = 0x1F;
/// Where the mailbox and its memory are (82599 datasheet 8.3).
const MAILBOX: u32 = 0x2FC;
const MEMORY: std::ops::Range<u32> = 0x200..0x240;

/// A function whose mailbox reads what it is told, and then nothing.
struct Played {
    bar: Said,
    /// Whose address space it has. It is told of no memory.
    other: StrictNic,
}

struct Said {
    reads: Arc<AtomicU32>,
    words: Mutex<VecDeque<u8>>,
}

impl Played {
    fn new(said: &[u8]) -> Self {
        let bar = Said { reads: Arc::default(), words: Mutex::new(said.iter().copied().collect()) };
        Self { bar, other: StrictNic::builder().id(DeviceId::Vf82599).build() }
    }
}

impl Bar for Said {
    fn size(&self) -> usize {
        0x4000
    }

    fn read32(&self, offset: u32) -> u32 {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        match offset {
            MAILBOX => words.pop_front().unwrap_or(0).into(),
            // A byte is a kind of message or a small number, and the bits of its outcome.
            _ if MEMORY.contains(&offset) => words.pop_front().map_or(0, |byte| {
                let kind = if byte & 0x1F == NOTICE { 0x100 } else { (byte & 0x1F).into() };
                kind | u32::from(byte & 0xE0) << 24
            }),
            _ => 0,
        }
    }

    unsafe fn write32(&self, _: u32, _: u32) {}
}

// SAFETY: it accesses no memory at all.
unsafe impl Device for Played {
    type Bar = Said;

    fn name(&self) -> &'static str {
        "played"
    }

    fn ids(&self) -> PciIds {
        self.other.ids()
    }

    fn bar(&self) -> &Said {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        self.other.dma()
    }

    fn set_bus_master(&self, _: bool) -> device::Result<()> {
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        Ok(())
    }

    fn enable_msix(&self, _: u16) -> device::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    /// The input that a fuzzer begins with has an answer to everything, so that what follows an answer is looked at.
    #[test]
    fn a_good_physical_function_grants_everything() {
        assert_eq!(super::granted(include_bytes!("../../../fuzz/corpus/vf_mailbox/granted")), 10);
    }

    /// Notices took the place of the answer, and more of them came than are read: the request is sent again, and answered.
    #[test]
    fn an_answer_that_notices_replaced_is_asked_for_again() {
        const OVER: u8 = 0x80;
        // Its own, acknowledged, and something was said.
        const SAID: u8 = 0x34;
        const CLEAR_TO_SEND: u8 = 0x20;
        const GRANTED: u8 = 0x80;
        let message = |first: u8, second: u8| [&[SAID, SAID, first, second][..], &[0; 14]].concat();
        let mut input = vec![1, super::RESET, OVER, OVER, SAID, SAID];
        (0..16).for_each(|_| input.extend(message(super::NOTICE | CLEAR_TO_SEND, 0)));
        input.extend([SAID, SAID]);
        input.extend(message(1 | GRANTED, 2));
        assert_eq!(super::granted(&input), 1);
    }
}
