//! The other ends of QEMU's own NICs: Unix sockets that carry frames, each behind its length (`-netdev stream`). They lose
//! nothing: who sends waits until the guest has taken it.

use crate::frames;
use anyhow::{Context as _, Result, ensure};
use std::collections::HashSet;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// How long nothing may come before traffic counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Frames of a paced exchange each way at a time: half a ring.
const ON_THE_WAY: usize = 256;

/// Frames on their way through the guest, from each of two wires to the other.
#[derive(Debug)]
pub(crate) struct Exchange {
    senders: [JoinHandle<Result<()>>; 2],
    receivers: [JoinHandle<Result<Option<String>>>; 2],
}

impl Exchange {
    /// Starts to send frames 0 to `count` of side 0 into the first wire, and of side 1 into the second. They are to come in
    /// the same order.
    pub(crate) fn start(wires: [&UnixStream; 2], count: u32) -> Result<Self> {
        Self::start_with(wires, count, usize::try_from(count)?, receive)
    }

    /// [`Self::start`] with at most [`ON_THE_WAY`] frames each way at a time: QEMU reads far ahead, and its igb drops what it
    /// has no descriptor for.
    pub(crate) fn start_paced(wires: [&UnixStream; 2], count: u32) -> Result<Self> {
        Self::start_with(wires, count, ON_THE_WAY, receive)
    }

    /// [`Self::start_paced`], where frames may overtake one another: several queues move them.
    pub(crate) fn start_unordered(wires: [&UnixStream; 2], count: u32) -> Result<Self> {
        Self::start_with(wires, count, ON_THE_WAY, receive_unordered)
    }

    fn start_with(wires: [&UnixStream; 2], count: u32, most: usize, receive: Receive) -> Result<Self> {
        let [a, b] = wires;
        let way = |from: &UnixStream, to: &UnixStream, side| -> Result<_> {
            let (from, to, (sent, came)) = (from.try_clone()?, to.try_clone()?, sync_channel(most));
            let receiver = spawn(move || receive(to, side, count, &came));
            Ok((spawn(move || send(&from, side, count, &sent)), receiver))
        };
        let (there, back) = (way(a, b, 0)?, way(b, a, 1)?);
        Ok(Self { senders: [there.0, back.0], receivers: [there.1, back.1] })
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

/// Receives so many frames of a side, and takes one from the channel for each.
type Receive = fn(UnixStream, u8, u32, &Receiver<()>) -> Result<Option<String>>;

/// Sends frames, for each of which the channel has to have room; ends with the receiver.
fn send(wire: &UnixStream, side: u8, count: u32, sent: &SyncSender<()>) -> Result<()> {
    let mut out = BufWriter::new(wire);
    for number in 0..count {
        if sent.try_send(()).is_err() {
            out.flush()?;
            if sent.send(()).is_err() {
                return Ok(());
            }
        }
        let frame = frames::frame(side, number);
        out.write_all(&u32::try_from(frame.len())?.to_be_bytes())?;
        out.write_all(&frame)?;
    }
    Ok(out.flush()?)
}

fn receive(wire: UnixStream, side: u8, count: u32, came: &Receiver<()>) -> Result<Option<String>> {
    receive_each(wire, count, came, |number, frame| frame == frames::frame(side, number))
}

fn receive_unordered(wire: UnixStream, side: u8, count: u32, came: &Receiver<()>) -> Result<Option<String>> {
    let mut missing: HashSet<_> = (0..count).map(|number| frames::frame(side, number)).collect();
    receive_each(wire, count, came, |_, frame| missing.remove(frame))
}

/// Receives frames as long as `right` says, with their number on this wire, that they are.
fn receive_each(
    wire: UnixStream,
    count: u32,
    came: &Receiver<()>,
    mut right: impl FnMut(u32, &[u8]) -> bool,
) -> Result<Option<String>> {
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
        if !right(number, &frame) {
            return Ok(Some(format!("the first that differs is {number}: {frame:02x?}")));
        }
        let _ = came.try_recv();
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
