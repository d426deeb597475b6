//! Ports of a run that behave as hosts. Tagged frames do not come by here: what they ask is seen among the frames that have no tag, and what
//! they say is sent when counters are published.

use super::direction::Direction;
use super::pair::Pair;
use crate::host::{Host, Hosts};
use device::tsc;
use lcore::Clock;
use mempool::Packet;
use nic::{AnyRxQueue, AnyTxQueue, Opened, RxQueue, TxQueue};

/// The host that a receiving port is.
#[derive(Debug)]
pub(crate) struct Attached<T = AnyTxQueue> {
    host: Host,
    /// Its way out, if no direction sends by the port.
    tx: Option<T>,
}

/// The host that a port is by which a direction sends, and no other receives.
#[derive(Debug)]
pub(crate) struct Listener<R = AnyRxQueue> {
    host: Host,
    rx: R,
}

/// Gives directions the hosts of their ports.
pub(crate) fn attach(directions: &mut [Direction], hosts: &mut Hosts, opened: &mut [Opened]) {
    for direction in &mut *directions {
        let host = hosts.take(direction.to);
        direction.host = host.map(|host| Box::new(Attached::new(host, opened[direction.to].tx.pop())));
    }
    // What is left receives nothing that counts.
    for direction in directions {
        let from = direction.lane.port;
        let listener = hosts.take(from).zip(opened[from].rx.pop());
        direction.listener = listener.map(|(host, rx)| Box::new(Listener { host, rx }));
    }
}

impl<T> Attached<T> {
    pub(super) fn new(host: Host, tx: Option<T>) -> Self {
        Self { host, tx }
    }
}

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    /// Whether a frame is for the host that the port is. What that says is sent soon.
    pub(super) fn is_answered(&mut self, frame: &[Packet], clock: &mut Clock) -> bool {
        let Some(Attached { host, .. }) = self.host.as_deref_mut() else { return false };
        let is_answered = host.takes(clock.now(), frame);
        if host.has_answers() {
            clock.publish_soon();
        }
        is_answered
    }
}

impl<R: RxQueue, T: TxQueue> Pair<R, T> {
    /// Sends what hosts have to say.
    pub(super) fn speak(&mut self) {
        for Direction { lane, listener, .. } in &mut self.directions {
            if let Some(Listener { host, rx }) = listener.as_deref_mut() {
                host.listen(rx, &mut lane.tx);
            }
        }
        for index in 0..self.directions.len() {
            let Some(mut attached) = self.directions[index].host.take() else { continue };
            let Attached { host, tx } = &mut *attached;
            host.ask(tsc::now());
            let to = self.directions[index].to;
            match (self.directions.iter_mut().find(|other| other.lane.port == to), tx) {
                (Some(other), _) => host.send(&mut other.lane.tx),
                (None, Some(tx)) => host.send(tx),
                (None, None) => {}
            }
            self.directions[index].host = Some(attached);
        }
    }
}
