//! The other ends of QEMU's own NICs: Unix sockets that carry frames, each behind its length (`-netdev stream`). They lose
//! nothing: who sends waits until the guest has taken it.

use crate::frames;
use anyhow::{Context as _, Result, ensure};
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// How long nothing may come before traffic counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Frames on their way through the guest, from each of two wires to the other.
#[derive(Debug)]
pub(crate) struct Exchange {
    senders: [JoinHandle<Result<()>>; 2],
    receivers: [JoinHandle<Result<Option<String>>>; 2],
}

impl Exchange {
    /// Starts to send frames 0 to `count` of side 0 into the first wire, and of side 1 into the second.
    pub(crate) fn start(wires: [&UnixStream; 2], count: u32) -> Result<Self> {
        let [a, b] = wires;
        let sender = |wire: &UnixStream, side| -> Result<_> {
            let wire = wire.try_clone()?;
            Ok(spawn(move || send(&wire, side, count)))
        };
        let receiver = |wire: &UnixStream, side| -> Result<_> {
            let wire = wire.try_clone()?;
            Ok(spawn(move || receive(wire, side, count)))
        };
        Ok(Self { receivers: [receiver(b, 0)?, receiver(a, 1)?], senders: [sender(a, 0)?, sender(b, 1)?] })
    }

    /// Whether everything has come through, or is stuck.
    pub(crate) fn is_over(&self) -> bool {
        self.receivers.iter().all(JoinHandle::is_finished)
    }

    /// How what came out differs from what went in, for each side; `None` if it does not.
    pub(crate) fn differences(self) -> Result<[Option<String>; 2]> {
        let [a, b] = self.receivers.map(|thread| thread.join().unwrap_or(Ok(Some("the receiver panicked".to_owned()))));
        if self.senders.iter().all(JoinHandle::is_finished) {
            for thread in self.senders {
                thread.join().unwrap_or(Ok(()))?;
            }
        }
        Ok([a?, b?])
    }
}

fn send(wire: &UnixStream, side: u8, count: u32) -> Result<()> {
    let mut out = BufWriter::new(wire);
    for number in 0..count {
        let frame = frames::frame(side, number);
        out.write_all(&u32::try_from(frame.len())?.to_be_bytes())?;
        out.write_all(&frame)?;
    }
    Ok(out.flush()?)
}

fn receive(wire: UnixStream, side: u8, count: u32) -> Result<Option<String>> {
    wire.set_read_timeout(Some(STUCK))?;
    // Nothing else comes on this wire meanwhile, so what is read ahead belongs to these frames.
    let mut input = BufReader::new(wire);
    let (mut len, mut frame) = ([0; 4], Vec::new());
    for number in 0..count {
        if let Err(error) = input.read_exact(&mut len) {
            return Ok(Some(format!("after {number} of {count} frames: {error}")));
        }
        let len = u32::from_be_bytes(len);
        ensure!(len <= 65_536, "QEMU speaks of a frame of {len} bytes");
        frame.resize(len as usize, 0);
        input.read_exact(&mut frame).context("a frame is cut off")?;
        if frame != frames::frame(side, number) {
            return Ok(Some(format!("the first that differs is {number}: {frame:02x?}")));
        }
    }
    ensure!(input.buffer().is_empty(), "more frames came than were sent");
    Ok(None)
}

/// Joins two wires, until QEMU ends.
pub(crate) fn join(a: &UnixStream, b: &UnixStream) -> Result<()> {
    for (from, to) in [(a, b), (b, a)] {
        from.set_read_timeout(None)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        // The end of either is the end of the guest.
        spawn(move || std::io::copy(&mut from, &mut to));
    }
    Ok(())
}
