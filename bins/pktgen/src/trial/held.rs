//! Ports that stay open from one run to the next.

use crate::args::RunArgs;
use crate::frames::Frames;
use crate::run::{buffers, open_with};
use crate::tail::Tail;
use cli::exit::Failure;
use cli::ports::Ports;
use cli::screen::Screen;
use cli::stop::Stop;
use measure::Tag;
use mempool::{Batch, Pool, frames as frames_of};
use nic::{Interrupts, Opened, Port as _, RxQueue as _};

/// Bursts in which what has come since the last run is taken out of a ring, and their packets: those of the largest ring.
const BURSTS: usize = 17;
const BURST: usize = 256;

/// Ports and the memory that they send from, for runs with the same frames and options.
#[derive(Debug, Default)]
pub(crate) struct Held {
    ports: Option<Ports>,
    /// What each queue of a port sends from.
    buffers: Vec<((usize, u16), Pool)>,
    earlier: Earlier,
    /// Frames of earlier runs that came between two.
    late: u64,
}

/// The numbers of the streams of earlier runs on the same ports, from the first of them to the next run's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Earlier {
    first: u16,
    next: u16,
}

/// Numbers of streams that are remembered: those of thousands of runs.
const REMEMBERED: u16 = 1 << 14;

impl Earlier {
    /// None, and a number at which others do not begin, so that no run counts another's frames.
    fn none() -> Self {
        let [.., high, low] = device::tsc::now().to_be_bytes();
        let next = u16::from_be_bytes([high, low]);
        Self { first: next, next }
    }

    pub(super) fn contains(self, stream: u16) -> bool {
        stream.wrapping_sub(self.first) < self.next.wrapping_sub(self.first)
    }

    pub(super) fn next(self) -> u16 {
        self.next
    }

    /// The same with the streams from the next to the one before this.
    fn up_to(self, next: u16) -> Self {
        let first = if next.wrapping_sub(self.first) > REMEMBERED { next.wrapping_sub(REMEMBERED) } else { self.first };
        Self { first, next }
    }
}

impl Held {
    /// Opens the ports, unless they are open; then what has come since is dropped, and counted if it is of an earlier run.
    pub(super) fn take(
        &mut self,
        args: &RunArgs,
        frames: &Frames,
        stop: &Stop,
        screen: &mut Screen,
    ) -> Result<Ports, Failure> {
        if let Some(mut ports) = self.ports.take() {
            let earlier = self.earlier;
            let late = ports.opened.iter_mut().zip(&ports.pools).map(|(opened, pool)| empty(opened, pool, earlier));
            self.late += late.sum::<u64>();
            return Ok(ports);
        }
        (self.earlier, self.late) = (Earlier::none(), 0);
        let port_options = frames.port_options(&args.port_options);
        let mut ports = open_with(&args.ports, args.queues, &port_options, Interrupts::Off, stop, screen)?;
        if frames.are_for_others() {
            // What cannot be told to receive everything does so.
            for opened in ports.opened.iter_mut().filter(|opened| opened.port.capabilities().set_promiscuous) {
                opened.port.set_promiscuous(true)?;
            }
        }
        Ok(ports)
    }

    /// Keeps ports for the next run.
    pub(super) fn put(&mut self, ports: Ports) {
        self.ports = Some(ports);
    }

    pub(super) fn earlier(&self) -> Earlier {
        self.earlier
    }

    /// A run has begun with the streams up to the one before this.
    pub(super) fn begun_to(&mut self, next: u16) {
        self.earlier = self.earlier.up_to(next);
    }

    /// Returns how many frames of earlier runs came between two, once.
    pub(super) fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
    }

    /// Returns the memory that a queue of a port sends from.
    pub(super) fn buffers(
        &mut self,
        queue: (usize, u16),
        args: &RunArgs,
        largest: usize,
        numa_node: Option<u32>,
    ) -> Result<Pool, Failure> {
        if let Some((_, pool)) = self.buffers.iter().find(|(of, _)| *of == queue) {
            return Ok(pool.clone());
        }
        let pool = buffers(&args.port_options, largest, numa_node)?;
        self.buffers.push((queue, pool.clone()));
        Ok(pool)
    }

    /// The lowest speed of the ports' links in bit/s, if all have one. Opens them.
    pub(crate) fn line(
        &mut self,
        args: &RunArgs,
        frames: &Frames,
        stop: &Stop,
        screen: &mut Screen,
    ) -> Result<Option<u64>, Failure> {
        let ports = self.take(args, frames, stop, screen)?;
        crate::run::wait_for_links(&ports.opened, stop)?;
        let lines = args.traffic.pace.lines(&args.ports, &ports.opened)?;
        self.put(ports);
        Ok(lines.into_iter().collect::<Option<Vec<_>>>().and_then(|lines| lines.into_iter().min()))
    }

    /// Closes the ports.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let mut result = Ok(());
        for opened in self.ports.into_iter().flat_map(|ports| ports.opened) {
            result = result.and(opened.close().map(drop).map_err(Failure::from));
        }
        result
    }
}

/// Drops what is in the receive rings of a port. Returns how many frames of it are of earlier runs.
fn empty(opened: &mut Opened, pool: &Pool, earlier: Earlier) -> u64 {
    let mut late = 0;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    for queue in &mut opened.rx {
        // A ring that is filled while it is emptied is left with what came meanwhile.
        for _ in 0..BURSTS {
            let received = queue.recv(&mut cache, &mut batch).len();
            let mut tail = Tail::default();
            let tags = frames_of(&batch).filter_map(|frame| Tag::find(tail.of(frame)));
            late += tags.filter(|tag| earlier.contains(tag.stream)).count() as u64;
            cache.free_batch(&mut batch);
            if received == 0 {
                break;
            }
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_earlier_runs_go_around() {
        let none = Earlier { first: 0xfffe, next: 0xfffe };
        assert!(!none.contains(0xfffe));
        let one = none.up_to(1);
        assert_eq!([0xfffd, 0xfffe, 0, 1].map(|stream| one.contains(stream)), [false, true, true, false]);
        let mut many = one;
        (0..30_000_u16).for_each(|_| many = many.up_to(many.next.wrapping_add(3)));
        assert!(many.contains(many.next.wrapping_sub(1)) && !many.contains(many.next.wrapping_add(20_000)));
    }
}
