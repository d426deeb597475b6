//! Moving frames between ports.

use crate::{Clock, Function, PacedRx};
use ethdev::{Opened, Port, RxQueue, TxQueue};
use mempool::{Batch, Packet, Pool, PoolCache};

/// Decides where frames go. A closure can be used.
pub trait Steer {
    /// Returns the number of the port that sends a frame received on port `port`; `None`, or a number that no port has,
    /// drops the frame. It may also change the frame. `packet` is the whole frame, or its first buffer if it is longer
    /// than one.
    fn steer(&mut self, port: usize, packet: &mut Packet) -> Option<usize>;

    /// As [`Function::publish`].
    fn publish(&mut self) {}
}

impl<F: FnMut(usize, &mut Packet) -> Option<usize>> Steer for F {
    #[inline(always)]
    fn steer(&mut self, port: usize, packet: &mut Packet) -> Option<usize> {
        self(port, packet)
    }
}

/// A [`Function`] that moves frames between ports: it receives a burst from each, asks a [`Steer`] where each frame
/// goes, and sends.
///
/// Packets that a port has no room for wait for the next round; if more than a burst (32) of them are left, all of
/// these are dropped, and so is what is left when the loop ends. A complete program, which sends everything to the other
/// of two ports:
///
/// ```
/// use ethdev::{PortConfig, in_process};
/// use lcore::{Stop, Switch, Team};
/// use mempool::{Packet, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let (left, mut left_wire) = in_process::open("left", &PortConfig::default(), &pool)?;
/// let (right, mut right_wire) = in_process::open("right", &PortConfig::default(), &pool)?;
/// let mut ports = [left, right];
/// let stop = Stop::new()?;
/// let team = Team::run(Switch::of(&mut ports, &pool, |_| |port, _: &mut Packet| Some(1 - port)), &stop)?;
/// assert!(left_wire.inject(&[7; 60]));
/// let sent = std::iter::from_fn(|| Some(right_wire.collect())).flatten().next();
/// assert_eq!(sent, Some(vec![7; 60]));
/// stop.request();
/// assert_eq!(team.join()?[0].dropped(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Switch<R, T, S> {
    ports: Vec<(PacedRx<R>, T)>,
    outputs: Vec<Batch>,
    received: Batch,
    cache: PoolCache,
    dropped: u64,
    /// Decides where frames go.
    pub steer: S,
}

/// Packets received at a time.
const BURST: usize = 32;

impl<R: RxQueue, T: TxQueue, S: Steer> Switch<R, T, S> {
    /// Creates a switch between these queues, a receive and a transmit queue of each port.
    #[must_use]
    pub fn new(ports: Vec<(R, T)>, pool: &Pool, steer: S) -> Self {
        // All that is received in a round may go to one port, where a burst is waiting.
        let output = || Batch::with_capacity((ports.len() + 1) * BURST);
        let outputs = ports.iter().map(|_| output()).collect();
        let ports = ports.into_iter().map(|(rx, tx)| (PacedRx::new(rx), tx)).collect();
        Self { outputs, ports, received: Batch::with_capacity(BURST), cache: pool.cache(), dropped: 0, steer }
    }

    /// Creates a switch for each pair of queues that all `ports` have, and takes these queues out of `ports`. `steer` is
    /// called with the number of the pair. Open ports with as many transmit as receive queues: what RSS gives to a
    /// receive queue that is left in `ports` is lost unless somebody else polls it.
    #[must_use]
    pub fn of<P: Port<Rx = R, Tx = T>>(
        ports: &mut [Opened<P>],
        pool: &Pool,
        mut steer: impl FnMut(usize) -> S,
    ) -> Vec<Self> {
        let pairs = ports.iter().map(|port| port.rx.len().min(port.tx.len())).min().unwrap_or(0);
        let mut queues: Vec<_> =
            ports.iter_mut().map(|port| port.rx.drain(..pairs).zip(port.tx.drain(..pairs))).collect();
        let pair = |_| queues.iter_mut().filter_map(Iterator::next).collect();
        let pairs: Vec<_> = (0..pairs).map(pair).collect();
        pairs.into_iter().enumerate().map(|(number, pair)| Self::new(pair, pool, steer(number))).collect()
    }

    /// Returns the number of packets dropped: those for which there was no port to send them to, and those that a port
    /// had no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<R: RxQueue, T: TxQueue, S: Steer> Function for Switch<R, T, S> {
    #[inline(always)]
    fn poll(&mut self, clock: &mut Clock) -> bool {
        let Self { ports, outputs, received, cache, dropped, steer } = self;
        let mut moved = false;
        for (number, (rx, _)) in ports.iter_mut().enumerate() {
            moved |= !rx.recv(clock, cache, received).is_empty();
            let (mut output, mut is_start) = (None, true);
            received.distribute(outputs, |packet| {
                if is_start {
                    output = steer.steer(number, packet);
                }
                is_start = !packet.continues();
                output.unwrap_or(usize::MAX)
            });
            *dropped += received.len() as u64;
            cache.free_batch(received);
        }
        for ((_, tx), output) in ports.iter_mut().zip(outputs) {
            moved |= tx.send(cache, output) > 0;
            if output.len() > BURST {
                *dropped += output.len() as u64;
                cache.free_batch(output);
            }
        }
        moved
    }

    fn publish(&mut self) {
        self.steer.publish();
    }

    /// Sends what waits, and drops what ports have no room for: then each packet received is sent or dropped.
    fn finish(&mut self) {
        let Self { ports, outputs, cache, dropped, .. } = self;
        for ((_, tx), output) in ports.iter_mut().zip(outputs) {
            tx.send(cache, output);
            *dropped += output.len() as u64;
            cache.free_batch(output);
        }
    }

    fn queues(&mut self) -> Vec<&mut dyn RxQueue> {
        self.ports.iter_mut().map(|(rx, _)| &mut rx.queue as _).collect()
    }
}
