//! The two-wire bus to the module in the cage: I2CCTL moves its wires one at a time (82599 datasheet 8.2.3.1.5), at up to
//! 100 kHz (standard mode of the I2C specification).

use crate::Error;
use crate::regs::{I2CCTL, i2cctl};
use crate::wait::{Timed, read};
use device::Device;
use std::time::{Duration, Instant};

/// Why nothing came over the bus.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody has the address, or takes the byte.
    NoAnswer,
    /// This wire is held down.
    Stuck(&'static str),
    Device(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// Reads bytes from `offset` on of the device at `address` (its least significant bit, which says the direction, clear). Ends before the next
/// byte once the operation has to end: a device may hold the clock at each bit.
pub(crate) fn read_bytes<D: Device>(regs: &Timed<D>, address: u8, offset: u8, bytes: &mut [u8]) -> Result<()> {
    let mut bus = Bus { regs, clock: true, data: true };
    let outcome = bus.transfer(address, offset, bytes);
    match outcome {
        Ok(()) => bus.stop(),
        // Whatever the device was in the middle of, it lets go of the wires after a byte and a stop.
        Err(Failure::NoAnswer | Failure::Stuck(_)) => bus.clear().and(outcome),
        Err(Failure::Device(Error::Expired { .. })) => {
            // A wire that is held is not why it ended.
            let _ = bus.clear();
            outcome
        }
        Err(Failure::Device(_)) => outcome,
    }
}

struct Bus<'r, D: Device> {
    regs: &'r Timed<D>,
    /// What this end does with the wires: lets go of them, or pulls them down.
    clock: bool,
    data: bool,
}

impl<D: Device> Bus<'_, D> {
    fn transfer(&mut self, address: u8, offset: u8, bytes: &mut [u8]) -> Result<()> {
        self.start()?;
        self.send(address)?;
        self.send(offset)?;
        self.start()?;
        self.send(address | 1)?;
        let last = bytes.len().saturating_sub(1);
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.receive(index < last)?;
        }
        Ok(())
    }

    /// Sets both wires, and gives them half a bit's time.
    fn set(&mut self, clock: bool, data: bool) -> Result<()> {
        (self.clock, self.data) = (clock, data);
        let value = i2cctl::CLK_OUT.set(0, clock.into());
        self.regs.write(I2CCTL, i2cctl::DATA_OUT.set(value, data.into()));
        // A write is on its way until something is read.
        read(self.regs, I2CCTL)?;
        let start = Instant::now();
        while start.elapsed() < HALF_BIT {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Lets go of the clock, and waits until the device does, too; returns whether the data wire is high then.
    fn raise(&mut self) -> Result<bool> {
        self.set(true, self.data)?;
        let start = Instant::now();
        for reads in 0.. {
            let value = read(self.regs, I2CCTL)?;
            if i2cctl::CLK_IN.is_set(value) {
                return Ok(i2cctl::DATA_IN.is_set(value));
            }
            if reads >= FEWEST_READS && start.elapsed() >= STRETCH_LIMIT {
                break;
            }
        }
        Err(Failure::Stuck("clock"))
    }

    /// A start condition, repeated or not.
    fn start(&mut self) -> Result<()> {
        self.set(self.clock, true)?;
        if !self.raise()? {
            return Err(Failure::Stuck("data"));
        }
        self.set(true, false)?;
        self.set(false, false)
    }

    fn stop(&mut self) -> Result<()> {
        self.set(false, false)?;
        self.raise()?;
        self.set(true, true)
    }

    /// Clocks one bit; returns what the wire was at.
    fn bit(&mut self, high: bool) -> Result<bool> {
        self.set(false, high)?;
        let seen = self.raise()?;
        self.set(false, high)?;
        Ok(seen)
    }

    fn send(&mut self, byte: u8) -> Result<()> {
        self.regs.check(READING)?;
        for at in (0..8).rev() {
            self.bit(byte >> at & 1 != 0)?;
        }
        if self.bit(true)? { Err(Failure::NoAnswer) } else { Ok(()) }
    }

    fn receive(&mut self, more: bool) -> Result<u8> {
        self.regs.check(READING)?;
        let mut byte = 0;
        for _ in 0..8 {
            byte = byte << 1 | u8::from(self.bit(true)?);
        }
        self.bit(!more)?;
        Ok(byte)
    }

    /// Clocks out what a device may still have to say, and ends it.
    fn clear(&mut self) -> Result<()> {
        for _ in 0..9 {
            self.bit(true)?;
        }
        self.stop()
    }
}

/// What the operation was at when its time was up.
const READING: &str = "the SFP+ module to be read";
/// Half of 10 us.
const HALF_BIT: Duration = Duration::from_micros(5);
/// How long a device may hold the clock down: what Intel's drivers wait. The bus itself (I2C, SFF-8419) sets no limit.
const STRETCH_LIMIT: Duration = Duration::from_micros(500);
const FEWEST_READS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use device::TimeLimit;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A device at any address that takes each byte, and whose bytes are FFh.
    fn answering() -> Fake {
        let fake = Fake::new(0x10FB);
        let (mut clock, mut data, mut bits) = (true, true, 0);
        fake.on_write(I2CCTL, move |storage, value| {
            let (before, now) = ((clock, data), (i2cctl::CLK_OUT.is_set(value), i2cctl::DATA_OUT.is_set(value)));
            (clock, data) = now;
            if before == (true, true) && now == (true, false) {
                bits = 0;
            } else if !before.0 && clock {
                bits += 1;
            }
            let high = data && (bits == 0 || bits % 9 != 0);
            storage.insert(I2CCTL.offset(), i2cctl::DATA_IN.set(i2cctl::CLK_IN.set(0, clock.into()), high.into()));
        });
        fake
    }

    #[test]
    fn a_transfer_ends_with_the_operation_and_lets_go_of_the_wires() {
        let fake = answering();
        let cancel = Arc::new(AtomicBool::new(false));
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: Some(Arc::clone(&cancel)) };
        let regs = Timed::new(&fake.regs(), limit.begin());
        let mut bytes = [0; 64];
        read_bytes(&regs, 0xA0, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xFF; 64]);
        let whole = fake.writes().len();

        // In the middle of the first byte.
        let mut reads = 0;
        fake.on_read(I2CCTL, move |storage| {
            reads += 1;
            cancel.store(reads >= 10, Ordering::Relaxed);
            storage[&I2CCTL.offset()]
        });
        let outcome = read_bytes(&regs, 0xA0, 0, &mut bytes);
        assert!(matches!(outcome, Err(Failure::Device(Error::Expired { .. }))), "{outcome:?}");
        let writes = &fake.writes()[whole..];
        // A byte, and another and a stop so that the device lets go.
        assert!(writes.len() < whole / 10, "{} of {whole} writes", writes.len());
        let (_, last) = writes[writes.len() - 1];
        assert!(i2cctl::CLK_OUT.is_set(last) && i2cctl::DATA_OUT.is_set(last));
    }
}
