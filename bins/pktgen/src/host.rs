//! A port that behaves as a host: what it answers and asks goes out by its transmit queue.

use crate::args::{Answering, Hosting};
use anyhow::anyhow;
use cli::exit::Failure;
use cli::ports;
use cli::stop::Stop;
use device::tsc;
use mempool::{Batch, Packet, Pool, PoolCache, frames};
use nic::{AnyPort, MacAddress, Opened, Port as _, RxQueue, TxQueue};
use station::{Error, Event, Station};
use std::net::IpAddr;
use std::time::Duration;

/// Answers that wait for room in the ring; more are not sent.
const WAITING: usize = 256;
/// Frames that are looked at in one go where somebody only listens.
const BURST: usize = 32;
const BURSTS: usize = 16;
/// Between two looks for the answer of a next hop.
const NAP: Duration = Duration::from_micros(100);

/// A station, and the frames that it wants to send.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) station: Station,
    outbox: Batch,
    /// Frames handed over.
    pub(crate) sent: u64,
    cache: PoolCache,
    /// For what is received where nothing else receives.
    inbox: Batch,
    hz: u64,
    /// It was said that another station has one of the addresses.
    has_warned: bool,
}

/// The hosts that ports are, where `--answer` gives them addresses.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Option<Host>>,
    /// MAC addresses of routers.
    gateways: Vec<Option<[u8; 6]>>,
}

impl Hosts {
    /// Creates them.
    pub(crate) fn new(args: &Answering, opened: &mut [Opened], pools: &[Pool]) -> Result<Self, Failure> {
        Self::with_gateways(args, |_| None, opened, pools)
    }

    /// Creates them, and asks for the MAC addresses of their routers.
    pub(crate) fn ready(args: &Hosting, opened: &mut [Opened], pools: &[Pool], stop: &Stop) -> Result<Self, Failure> {
        let mut all = Self::with_gateways(&args.answering, |port| args.gateway(port), opened, pools)?;
        // All of them listen meanwhile: the router of one may be another.
        loop {
            let mut waits_for = None;
            for (port, opened) in opened.iter_mut().enumerate() {
                let Some(host) = &mut all.hosts[port] else { continue };
                if let (Some(gateway), None) = (args.gateway(port), all.gateways[port]) {
                    all.gateways[port] = host.next_hop(opened.port.name(), gateway)?;
                    waits_for = waits_for.or(all.gateways[port].is_none().then_some(gateway));
                }
                // What answers may come by any queue.
                if let Some(tx) = opened.tx.first_mut() {
                    opened.rx.iter_mut().for_each(|rx| host.listen(rx, tx));
                }
            }
            match waits_for {
                None => return Ok(all),
                Some(gateway) if stop.is_requested() => return Err(interrupted(gateway)),
                Some(_) => std::thread::sleep(NAP),
            }
        }
    }

    fn with_gateways(
        args: &Answering,
        gateway: impl Fn(usize) -> Option<IpAddr>,
        opened: &mut [Opened],
        pools: &[Pool],
    ) -> Result<Self, Failure> {
        let gateways = vec![None; opened.len()];
        let host = |(port, (opened, pool)): (usize, (&mut Opened, &Pool))| {
            let addresses = args.addresses(port);
            if addresses.is_empty() {
                return Ok(None);
            }
            let station = Station::new(opened.port.mac().0, addresses, gateway(port).as_slice());
            let station = station.map_err(|error| failure(opened.port.name(), &error))?;
            join(&mut opened.port, &station);
            Ok(Some(Host::new(station, pool)))
        };
        let hosts = opened.iter_mut().zip(pools).enumerate().map(host).collect::<Result<_, Failure>>()?;
        Ok(Self { hosts, gateways })
    }

    /// Takes the host of a port.
    pub(crate) fn take(&mut self, port: usize) -> Option<Host> {
        self.hosts.get_mut(port)?.take()
    }

    /// Returns the MAC address of a port's router.
    pub(crate) fn gateway(&self, port: usize) -> Option<[u8; 6]> {
        *self.gateways.get(port)?
    }
}

impl Host {
    /// `pool` is that of the port.
    pub(crate) fn new(station: Station, pool: &Pool) -> Self {
        let [outbox, inbox] = [WAITING, BURST].map(Batch::with_capacity);
        Self { station, outbox, sent: 0, cache: pool.cache(), inbox, hz: tsc::frequency_hz(), has_warned: false }
    }

    /// Takes a frame that was received at some time, in ticks; answers wait for [`Self::send`].
    pub(crate) fn saw<'f>(&mut self, ticks: u64, frame: &'f [u8]) -> Event<'f> {
        let now = self.time(ticks);
        let Self { station, outbox, cache, .. } = self;
        station.receive(now, frame, &mut |frame| post(outbox, cache, frame))
    }

    /// The same, where replies are nobody's: returns whether the frame was for the host. One of several buffers is not.
    pub(crate) fn takes(&mut self, ticks: u64, frame: &[Packet]) -> bool {
        let [packet] = frame else { return false };
        !matches!(self.saw(ticks, packet.data()), Event::Other)
    }

    /// Asks what is due by now. To be called often.
    pub(crate) fn ask(&mut self, ticks: u64) {
        let now = self.time(ticks);
        let Self { station, outbox, cache, .. } = self;
        station.poll(now, &mut |frame| post(outbox, cache, frame));
        if let (Err(error), false) = (self.station.check(), self.has_warned) {
            self.has_warned = true;
            tracing::warn!("{error}; nothing is answered for it");
        }
    }

    /// Returns whether there is something to be sent.
    pub(crate) fn has_answers(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Hands over what waits to be sent, as far as the ring has room.
    pub(crate) fn send(&mut self, tx: &mut dyn TxQueue) {
        if !self.outbox.is_empty() {
            self.sent += tx.send(&mut self.cache, &mut self.outbox) as u64;
        }
    }

    /// Looks at what has come by a queue that nothing else polls, answers, and asks what is due.
    pub(crate) fn listen(&mut self, rx: &mut dyn RxQueue, tx: &mut dyn TxQueue) {
        for _ in 0..BURSTS {
            let received = rx.recv(&mut self.cache, &mut self.inbox).len();
            let now = self.time(tsc::now());
            let Self { station, outbox, cache, inbox, .. } = &mut *self;
            for frame in whole(inbox) {
                station.receive(now, frame, &mut |answer| post(outbox, cache, answer));
            }
            cache.free_batch(inbox);
            self.send(tx);
            if received < BURST {
                break;
            }
        }
        self.ask(tsc::now());
        self.send(tx);
    }

    /// Finds the MAC address to send to, within a few seconds. `name` is that of the port.
    pub(crate) fn resolve(
        &mut self,
        name: &str,
        queues: (&mut dyn RxQueue, &mut dyn TxQueue),
        destination: IpAddr,
        stop: &Stop,
    ) -> Result<[u8; 6], Failure> {
        loop {
            if let Some(mac) = self.next_hop(name, destination)? {
                return Ok(mac);
            }
            if stop.is_requested() {
                return Err(interrupted(destination));
            }
            self.listen(queues.0, queues.1);
            std::thread::sleep(NAP);
        }
    }

    /// The MAC address to send to; `None` while it is asked for.
    fn next_hop(&mut self, name: &str, destination: IpAddr) -> Result<Option<[u8; 6]>, Failure> {
        let now = self.time(tsc::now());
        self.station.resolve(now, destination).map_err(|error| failure(name, &error))
    }

    fn time(&self, ticks: u64) -> Duration {
        let rest = u128::from(ticks % self.hz) * 1_000_000_000 / u128::from(self.hz);
        Duration::from_secs(ticks / self.hz) + Duration::from_nanos(u64::try_from(rest).unwrap_or_default())
    }
}

/// Has a port receive the frames to its station's groups, if it does not receive those of all groups.
pub(crate) fn join(port: &mut AnyPort, station: &Station) {
    let groups: Vec<_> = station.groups().into_iter().map(MacAddress).collect();
    if groups.is_empty() || ports::hears_all_groups(port) {
        return;
    }
    if let Err(error) = port.set_groups(&groups) {
        tracing::warn!("{}: IPv6 neighbours may not find this port: {error}", port.name());
    }
}

/// The frames of a burst that lie in one buffer each: no question of a host is longer.
pub(crate) fn whole(batch: &Batch) -> impl Iterator<Item = &[u8]> {
    frames(batch).filter_map(|frame| if let [packet] = frame { Some(packet.data()) } else { None })
}

/// Puts a frame where it waits; without a buffer or room it is not sent, as on any host.
fn post(outbox: &mut Batch, cache: &mut PoolCache, frame: &[u8]) {
    let Some(packet) = cache.alloc_from(frame) else { return };
    if let Err(packet) = outbox.push(packet) {
        cache.free(packet);
    }
}

fn interrupted(destination: IpAddr) -> Failure {
    anyhow!("interrupted by a signal while {destination} was asked for").into()
}

/// An error of a port's station, for the exit code that it has.
pub(crate) fn failure(name: &str, error: &Error) -> Failure {
    match error {
        Error::NoAnswer { .. } | Error::Duplicate { .. } | Error::Busy(_) | Error::Mac => {
            anyhow!("{name}: {error}").into()
        }
        _ => Failure::usage(format!("{name}: {error}")),
    }
}
