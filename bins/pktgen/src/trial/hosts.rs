//! Ports of a run that behave as hosts. Tagged frames do not come by here: what they ask is seen among the frames that have no tag, and what
//! they say is sent when counters are published.

use super::direction::Direction;
use super::pair::Pair;
use crate::control::lock;
use crate::host::{Host, Hosts};
use device::tsc;
use lcore::Clock;
use mempool::Packet;
use nic::{AnyRxQueue, AnyTxQueue, Opened, RxQueue, TxQueue};
use std::sync::{Arc, Mutex};

/// A port's host, which its queue pairs share: questions come by any of them. Whoever has one holds the lock for as long as it takes to answer.
pub(super) type Shared = Arc<Mutex<Host>>;

/// A queue, if there is one, and the number of its port.
type OfPort<Q> = Option<(usize, Q)>;

/// The host that a receiving port is.
#[derive(Debug)]
pub(crate) struct Attached<T = AnyTxQueue> {
    host: Shared,
    /// Its way out, if no direction sends by the port.
    pub(super) tx: Option<T>,
}

/// The host that a port is by which a direction sends, and no other receives.
#[derive(Debug)]
pub(crate) struct Listener<R = AnyRxQueue> {
    host: Shared,
    rx: R,
}

/// Gives directions the hosts of their ports.
pub(crate) fn attach(directions: &mut [Direction], hosts: &mut Hosts, opened: &mut [Opened]) {
    let hosts: Vec<_> = (0..opened.len()).map(|port| Some(Arc::new(Mutex::new(hosts.take(port)?)))).collect();
    let receive: Vec<_> = (0..opened.len()).map(|port| directions.iter().any(|one| one.to == port)).collect();
    for direction in directions {
        let (from, to) = (direction.lane.port, direction.to);
        let host = hosts[to].clone();
        direction.host = host.map(|host| Box::new(Attached::new(host, opened[to].tx.pop())));
        if !receive[from] {
            let listener = hosts[from].clone().zip(opened[from].rx.pop());
            direction.listener = listener.map(|(host, rx)| Box::new(Listener { host, rx }));
        }
    }
}

impl<T> Attached<T> {
    pub(super) fn new(host: Shared, tx: Option<T>) -> Self {
        Self { host, tx }
    }
}

impl<R: RxQueue, T: TxQueue> Direction<R, T> {
    /// Takes the queues of its ports that are not its own, for another run on them: that of its sending port which receives for a host, and that
    /// of its receiving port by which hosts or learning frames go out.
    pub(super) fn take_others(&mut self) -> (OfPort<R>, OfPort<T>) {
        let rx = self.listener.take().map(|listener| (self.lane.port, listener.rx));
        let of_host = self.host.as_deref_mut().and_then(|host| host.tx.take());
        let tx = of_host.or_else(|| self.teacher.as_deref_mut().and_then(|teacher| teacher.tx.take()));
        (rx, tx.map(|tx| (self.to, tx)))
    }

    /// Whether a frame is for the host that the port is. What that says is sent soon.
    pub(super) fn is_answered(&mut self, frame: &[Packet], clock: &mut Clock) -> bool {
        let Some(Attached { host, .. }) = self.host.as_deref_mut() else { return false };
        let mut host = lock(host);
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
                lock(host).listen(rx, &mut lane.tx);
            }
        }
        for index in 0..self.directions.len() {
            let Some(mut attached) = self.directions[index].host.take() else { continue };
            let Attached { host, tx } = &mut *attached;
            let mut host = lock(host);
            host.ask(tsc::now());
            let to = self.directions[index].to;
            match (self.directions.iter_mut().find(|other| other.lane.port == to), tx) {
                (Some(other), _) => host.send(&mut other.lane.tx),
                (None, Some(tx)) => host.send(tx),
                (None, None) => {}
            }
            drop(host);
            self.directions[index].host = Some(attached);
        }
    }
}
