//! Frames that are on transmit rings when the link is lost. The device keeps them, and would send them when the link is back, however
//! old they are by then; vendor drivers reset it. Here they leave into a loop inside the MAC, with the receiver off, as the
//! 82599's specification update has it (specification clarification 9, master disable flow), and queues go on as they are.

use crate::init;
use crate::regs::{HLREG0, RXCTRL, TDH, TDLEN, TDT, hlreg0, rxctrl};
use crate::wait::{Timed, read, wait};
use crate::{Error, Result};
use device::Device;
use std::time::Duration;

/// Discards what is on the transmit queues below `queues` now, in at most [`LIMIT`] for each. What the device does not let go of
/// stays for the next time.
///
/// # Errors
///
/// [`Error::Gone`], [`Error::Expired`].
pub(crate) fn discard_unsent<D: Device>(regs: &Timed<D>, queues: u32) -> Result<()> {
    let mut descriptors = 0;
    for index in 0..queues {
        descriptors += waiting(regs, index)?;
    }
    if descriptors == 0 {
        return Ok(());
    }
    let receiving = rxctrl::RXEN.is_set(read(regs, RXCTRL)?);
    init::stop_receiving(regs)?;
    let hlreg0 = read(regs, HLREG0)?;
    regs.write(HLREG0, hlreg0 | hlreg0::LPBK.mask());
    let emptied = (0..queues).try_for_each(|index| empty(regs, index));
    if matches!(emptied, Err(Error::Gone { .. })) {
        return emptied;
    }
    std::thread::sleep(BUFFER_TIME);
    regs.write(HLREG0, hlreg0);
    if receiving {
        init::start_receiving(regs)?;
    }
    let name = regs.device().name();
    match emptied {
        Ok(()) => tracing::info!("{name}: the link is down, discarded {descriptors} transmit descriptors"),
        Err(Error::Timeout { .. }) => tracing::info!("{name}: the link is down, and the transmit queues stand still"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Descriptors that wait on a queue.
fn waiting<D: Device>(regs: &Timed<D>, index: u32) -> Result<u32> {
    let (head, tail) = (read(regs, TDH.at(index))?, read(regs, TDT.at(index))?);
    if head == tail {
        return Ok(0);
    }
    let descriptors = (read(regs, TDLEN.at(index))? / 16).max(1);
    Ok(tail.wrapping_add(descriptors).wrapping_sub(head) % descriptors)
}

/// Waits until a queue is empty. More may be put on it meanwhile.
fn empty<D: Device>(regs: &Timed<D>, index: u32) -> Result<()> {
    let tail = read(regs, TDT.at(index))?;
    let before = read(regs, TDH.at(index))?;
    let sent =
        |head| head == tail || (before > tail && head < tail) || (before <= tail && (head < before || head > tail));
    wait(regs, TDH.at(index), sent, LIMIT, "the transmit queue to empty (TDH)").map(drop)
}

/// A ring of 4096 frames takes 5 ms at 10 Gbit/s if they are of full length.
const LIMIT: Duration = Duration::from_millis(5);
/// What has left the rings is still in the packet buffer: 160 KiB.
const BUFFER_TIME: Duration = Duration::from_micros(150);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn an_empty_queue_is_not_disturbed() {
        let fake = Fake::new(0x10FB);
        fake.set(TDH.at(1), 7);
        fake.set(TDT.at(1), 7);
        discard_unsent(&fake.regs(), 2).unwrap();
        assert!(fake.writes().is_empty());
    }

    #[test]
    fn frames_leave_into_a_loop_with_the_receiver_off() {
        for (receiving, head, tail) in [(1, 3, 9), (0, 500, 2)] {
            let fake = Fake::new(0x10FB);
            fake.set(HLREG0, 0xC03);
            fake.set(RXCTRL, receiving);
            fake.set(TDLEN.at(0), 512 * 16);
            fake.set(TDH.at(0), head);
            fake.set(TDT.at(0), tail);
            let before = fake.clone();
            fake.on_write(HLREG0, move |storage, value| {
                storage.insert(HLREG0.offset(), value);
                let off = storage.get(&RXCTRL.offset()) == Some(&0);
                if hlreg0::LPBK.is_set(value) && off {
                    storage.insert(TDH.at(0).offset(), tail);
                }
            });
            discard_unsent(&fake.regs(), 1).unwrap();
            assert_eq!((before.get(HLREG0), before.get(RXCTRL), before.get(TDH.at(0))), (0xC03, receiving, tail));
        }
    }

    #[test]
    fn a_queue_that_stands_still_is_left() {
        let fake = Fake::new(0x10FB);
        fake.set(RXCTRL, 1);
        fake.set(TDLEN.at(0), 512 * 16);
        fake.set(TDT.at(0), 9);
        discard_unsent(&fake.regs(), 1).unwrap();
        assert_eq!((fake.get(HLREG0), fake.get(RXCTRL)), (0, 1));
    }
}
