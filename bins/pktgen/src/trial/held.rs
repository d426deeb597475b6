//! Ports that stay open from one run to the next.

use crate::args::RunArgs;
use crate::frames::Frames;
use crate::run::{buffers, open};
use cli::exit::Failure;
use cli::ports::Ports;
use cli::screen::Screen;
use cli::stop::Stop;
use mempool::{Batch, Pool};
use nic::{Interrupts, Opened, Port as _, RxQueue as _};

/// Bursts in which what has come since the last run is taken out of a ring, and their packets: those of the largest ring.
const BURSTS: usize = 17;
const BURST: usize = 256;

/// Ports and the memory that they send from, for runs with the same frames and options.
#[derive(Debug, Default)]
pub(crate) struct Held {
    ports: Option<Ports>,
    /// What each port sends from.
    buffers: Vec<(usize, Pool)>,
}

impl Held {
    /// Opens the ports, unless they are open; then what has come since is dropped.
    pub(super) fn take(
        &mut self,
        args: &RunArgs,
        frames: &Frames,
        stop: &Stop,
        screen: &mut Screen,
    ) -> Result<Ports, Failure> {
        if let Some(mut ports) = self.ports.take() {
            ports.opened.iter_mut().zip(&ports.pools).for_each(|(opened, pool)| empty(opened, pool));
            return Ok(ports);
        }
        let port_options = frames.port_options(&args.port_options);
        let mut ports = open(&args.ports, &port_options, Interrupts::Off, stop, screen)?;
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

    /// Returns the memory that a port sends from.
    pub(super) fn buffers(
        &mut self,
        port: usize,
        args: &RunArgs,
        largest: usize,
        numa_node: Option<u32>,
    ) -> Result<Pool, Failure> {
        if let Some((_, pool)) = self.buffers.iter().find(|(of, _)| *of == port) {
            return Ok(pool.clone());
        }
        let pool = buffers(&args.port_options, largest, numa_node)?;
        self.buffers.push((port, pool.clone()));
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

/// Drops what is in the receive rings of a port.
fn empty(opened: &mut Opened, pool: &Pool) {
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(BURST));
    for queue in &mut opened.rx {
        // A ring that is filled while it is emptied is left with what came meanwhile.
        for _ in 0..BURSTS {
            let received = queue.recv(&mut cache, &mut batch).len();
            cache.free_batch(&mut batch);
            if received == 0 {
                break;
            }
        }
    }
}
