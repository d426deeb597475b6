//! The thread between the queues and the interfaces.

use crate::bell::Bell;
use crate::counts::{Shared, count};
use lcore::{PacketReceiver, PacketSender};
use mempool::{Batch, Checksum, Packet, PoolCache, complete_checksum, frames_mut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IoSlice;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tap::{Tap, Written};
use wire::Ethernet;

/// All that moves.
pub(crate) struct Mover {
    pub(crate) twins: Vec<Twin>,
    pub(crate) lanes: Vec<Ends>,
    /// One for each pool.
    pub(crate) caches: Vec<PoolCache>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// An interface, and where its frames go.
pub(crate) struct Twin {
    pub(crate) tap: Arc<Tap>,
    pub(crate) shared: Arc<Shared>,
    /// The lane that sends what the host sends by it.
    pub(crate) lane: usize,
    /// Where buffers for that come from.
    pub(crate) cache: usize,
    /// Bytes of the longest IP packet that the port sends.
    pub(crate) mtu: usize,
    pub(crate) gone: bool,
}

/// This thread's ends of a worker's queues, one each way for each port.
pub(crate) struct Ends {
    pub(crate) to_host: Vec<PacketReceiver>,
    pub(crate) from_host: Vec<PacketSender>,
    pub(crate) bell: Arc<Bell>,
}

/// Packets that are taken from a queue, and frames from an interface, before it is another one's turn. No frame has more packets: the
/// longest has 9,238 bytes.
const TURN: usize = 64;
/// Bytes of an Ethernet header without tags.
const HEADER: usize = 14;
/// Parts of a frame that one system call takes.
const PARTS: usize = 16;
/// The longest sleep.
const SLEEP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long frames for the host gather after some to which it has not answered at once.
const GATHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

impl Mover {
    /// Moves frames until told to stop.
    pub(crate) fn run(mut self) {
        // A frame of the host in buffers of 64 bytes would fit.
        let mut batch = Batch::with_capacity(1024);
        let mut to_host = Batch::with_capacity(TURN);
        let mut frame = vec![0; tap::LONGEST_FRAME];
        let mut gathers = false;
        while !self.stop.load(Ordering::Acquire) {
            self.bell.answer();
            let (mut given, mut taken) = (false, false);
            for lane in &mut self.lanes {
                for (twin, queue) in self.twins.iter().zip(&mut lane.to_host) {
                    given |= twin.give(queue, &mut to_host);
                }
            }
            for (at, twin) in self.twins.iter().enumerate().filter(|(_, twin)| !twin.gone) {
                let (Some(lane), Some(cache)) = (self.lanes.get_mut(twin.lane), self.caches.get_mut(twin.cache)) else {
                    continue;
                };
                let Some(queue) = lane.from_host.get_mut(at) else { continue };
                if twin.take(queue, cache, &mut batch, &mut frame) {
                    lane.bell.ring();
                    taken = true;
                }
            }
            if given || taken {
                gathers = given && !taken;
            } else if std::mem::take(&mut gathers) {
                self.gather();
            } else {
                self.sleep();
            }
        }
    }

    /// Sleeps for a moment, unless the host sends something. In a flood each frame would else wake this thread, for which the worker makes a
    /// system call. A frame for the host that comes meanwhile waits so long, at most.
    fn gather(&mut self) {
        let mut fds: Vec<_> = self.here().map(|(_, twin)| twin.readable()).collect();
        let failed = wait(&mut fds, &GATHER);
        self.lose(&failed);
    }

    /// Sleeps until there is something to move.
    fn sleep(&mut self) {
        if !self.bell.arm() || self.stop.load(Ordering::Acquire) {
            return;
        }
        let mut fds: Vec<_> = self.here().map(|(_, twin)| twin.readable()).collect();
        fds.push(PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN));
        let failed = wait(&mut fds, &SLEEP);
        self.lose(&failed);
    }

    /// The interfaces that are there.
    fn here(&self) -> impl Iterator<Item = (usize, &Twin)> {
        self.twins.iter().enumerate().filter(|(_, twin)| !twin.gone)
    }

    /// Gives up those at these places of [`Self::here`]: each sleep would else end at once, for ever.
    fn lose(&mut self, failed: &[usize]) {
        let here = self.twins.iter_mut().filter(|twin| !twin.gone).enumerate();
        for (_, twin) in here.filter(|(at, _)| failed.contains(at)) {
            twin.gone = true;
            tracing::error!("the interface {} was deleted; its port has no host any more", twin.tap.name());
        }
    }
}

/// Waits until one of these is ready, so long at most; a failure is a short wait. Returns the places of those that are in error, which
/// poll(2) reports unasked and at once.
fn wait(fds: &mut [PollFd<'_>], time: &Timespec) -> Vec<usize> {
    if poll(fds, Some(time)).is_err() {
        return Vec::new();
    }
    let error = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    let failed = fds.iter().enumerate().filter(|(_, fd)| fd.revents().intersects(error));
    failed.map(|(at, _)| at).collect()
}

impl Twin {
    /// What says whether the host has sent something.
    fn readable(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.tap.as_fd(), PollFlags::IN)
    }

    /// Has the host receive some frames of a queue: what it answers at once must find room in the interface's own queue, of 1,000 frames
    /// by default. Returns whether there were any.
    fn give(&self, queue: &mut PacketReceiver, batch: &mut Batch) -> bool {
        let moved = !queue.recv(batch).is_empty();
        for frame in frames_mut(batch) {
            let taken = !self.gone && !self.shared.is_closed() && matches!(self.write(frame), Written::Yes);
            let counts = &self.shared.mover;
            count(if taken { &counts.to_host } else { &counts.to_host_lost });
        }
        batch.clear();
        moved
    }

    fn write(&self, frame: &mut [Packet]) -> Written {
        if frame.first().is_some_and(|first| matches!(first.checksum(), Checksum::Partial { .. })) {
            complete_checksum(frame);
        }
        match frame {
            [packet] => self.tap.write(packet.data()),
            parts if parts.len() <= PARTS => {
                let empty: [IoSlice<'_>; PARTS] = std::array::from_fn(|_| IoSlice::new(&[]));
                let mut slices = empty;
                slices.iter_mut().zip(parts.iter()).for_each(|(slice, part)| *slice = IoSlice::new(part.data()));
                self.tap.write_parts(&slices[..parts.len()])
            }
            parts => self.tap.write(&parts.iter().flat_map(Packet::data).copied().collect::<Vec<u8>>()),
        }
    }

    /// Takes what the host sends to a worker. Returns whether there was anything.
    fn take(&self, queue: &mut PacketSender, cache: &mut PoolCache, batch: &mut Batch, frame: &mut [u8]) -> bool {
        let counts = &self.shared.mover;
        for turn in 0..TURN {
            let Some(len) = self.tap.read(frame) else { return turn > 0 };
            if self.shared.is_closed() {
                count(&counts.closed);
                continue;
            }
            if len > self.mtu + header_len(&frame[..len]) {
                count(&counts.too_long);
                continue;
            }
            if !copy(&frame[..len], cache, batch) {
                count(&counts.no_buffer);
                cache.free_batch(batch);
                continue;
            }
            queue.send(batch);
            if batch.is_empty() {
                count(&counts.from_host);
            } else {
                // A worker that has ended takes no more.
                count(&counts.queue_full);
                cache.free_batch(batch);
            }
        }
        true
    }
}

/// Bytes of the header of a frame, with up to two VLAN tags.
fn header_len(frame: &[u8]) -> usize {
    Ethernet::parse(frame).map_or(HEADER, |view| frame.len() - view.payload().len())
}

/// Copies a frame into as many packets as it takes. Returns false, and leaves some, if there are not so many.
fn copy(frame: &[u8], cache: &mut PoolCache, batch: &mut Batch) -> bool {
    let room = usize::from(cache.pool().data_room()).max(1);
    for part in frame.chunks(room) {
        let Some(packet) = cache.alloc_from(part) else { return false };
        if let Some(last) = batch.last_mut() {
            last.set_continues(true);
        }
        if batch.push(packet).is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_in_error_is_told_from_what_can_be_read() {
        let (_quiet, quiet) = UnixStream::pair().unwrap();
        let (mut speaks, heard) = UnixStream::pair().unwrap();
        speaks.write_all(b"x").unwrap();
        // Nobody reads at the other end: an error. Nobody is there: a hang-up.
        let (read, error) = std::io::pipe().unwrap();
        drop(read);
        let hung_up = UnixStream::pair().unwrap().0;
        let asks = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let [quiet, heard, error, hung_up] = [quiet.as_fd(), heard.as_fd(), error.as_fd(), hung_up.as_fd()].map(asks);
        let long = Timespec { tv_sec: 3600, tv_nsec: 0 };
        assert_eq!(wait(&mut [quiet.clone(), error.clone(), heard.clone(), hung_up], &long), [1, 3]);
        assert_eq!(wait(&mut [quiet.clone(), heard], &long), [0; 0]);
        assert_eq!(wait(&mut [error], &long), [0]);
        let (begun, short) = (Instant::now(), Duration::from_millis(2));
        assert!(wait(&mut [quiet], &Timespec { tv_sec: 0, tv_nsec: 2_000_000 }).is_empty());
        assert!(begun.elapsed() >= short, "a wait for nothing lasts");
    }
}
