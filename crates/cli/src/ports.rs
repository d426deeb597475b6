//! Opening the ports of a run.

use crate::args::PortOptions;
use crate::counters::{Counters, Reason};
use crate::exit::Failure;
use crate::lcore::{self, Lcore};
use crate::pools::{self, Demand};
use crate::report::link_words;
use crate::stop::Stop;
use crate::trust;
use anyhow::anyhow;
use mempool::{Batch, CHUNK, Pool};
use nic::{
    Address, AnyPort, AnyRxQueue, AnyTxQueue, Cause, Interrupts, Opened, Port as _, PortConfig, RxQueue as _,
    TimeLimit, TxQueue as _,
};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Number of queues of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Receive queues, at least 1.
    pub rx: u16,
    /// Transmit queues, at least 1.
    pub tx: u16,
}

/// The ports of a run, and the pools of their packets.
#[derive(Debug)]
pub struct Ports {
    /// The pool that each port receives into. Ports of one NUMA node share a pool.
    pub pools: Vec<Pool>,
    /// The opened devices, in the order of their addresses.
    pub opened: Vec<Opened>,
}

/// Checks all addresses of a run before the first is opened.
///
/// # Errors
///
/// Those of [`nic::check`], and if a device is named twice.
pub fn check(addresses: &[Address]) -> Result<(), Failure> {
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].iter().any(|other| other.name() == address.name()) {
            return Err(Failure::usage(format!("{}: named twice; name different ports", address.name())));
        }
    }
    nic::check(addresses).map_err(|error| if error.is_usage() { Failure::usage(error) } else { error.into() })
}

/// Returns the settings with which a single device is opened that was named at the command line, where `unsafe_no_iommu` is whether
/// the option of that name was given.
#[must_use]
pub fn access(unsafe_no_iommu: bool, time_limit: TimeLimit) -> PortConfig {
    PortConfig {
        no_iommu: trust::no_iommu(unsafe_no_iommu),
        trusted_peer: Some(trust::named_peer()),
        time_limit,
        ..PortConfig::default()
    }
}

/// Opens a port for each address, with a packet pool for each NUMA node ([`pools::plan`]). `workers` lists for each
/// worker the ports that it receives from; each worker needs `spare` slots beyond its cache and a burst. A signal that
/// `stop` catches ends the opening at once.
///
/// # Errors
///
/// If memory is short or a device cannot be opened; the ports opened so far are closed again.
pub fn open(
    addresses: &[Address],
    queues: &[Queues],
    options: &PortOptions,
    interrupts: Interrupts,
    workers: &[Vec<usize>],
    spare: usize,
    stop: &Stop,
) -> Result<Ports, Failure> {
    let nodes: Vec<_> = addresses.iter().map(Address::numa_node).collect();
    let pools = pools::allocate(&Demand { nodes: &nodes, queues, workers, options, spare })?;
    let mut opened = Vec::with_capacity(addresses.len());
    for ((address, queues), pool) in addresses.iter().zip(queues).zip(&pools) {
        let config = PortConfig {
            rx_queues: queues.rx,
            tx_queues: queues.tx,
            rx_ring: options.ring_size,
            tx_ring: options.ring_size,
            mtu: options.mtu(),
            checksum_offload: options.checksum_offload,
            interrupts,
            ..access(options.unsafe_no_iommu, TimeLimit { cancel: Some(stop.cancel()), ..TimeLimit::default() })
        };
        let result = audibly(address, || nic::open(address, &config, pool));
        opened.push(result.map_err(|error| match error {
            error if error.is_usage() => Failure::usage(error),
            // However far it had come, and whatever may be done about what it then waited for.
            _ if stop.is_signalled() => {
                anyhow!("{}: interrupted by a signal while it was opened", address.name()).into()
            }
            error => error.into(),
        })?);
    }
    Ok(Ports { pools, opened })
}

/// Returns whether a port that was opened to receive the frames of all groups does: a virtual function may be refused that.
#[must_use]
pub fn hears_all_groups(port: &mut AnyPort) -> bool {
    !matches!(port.set_all_multicast(true), Err(error) if error.known_cause() == Some(Cause::PfRefused))
}

/// Opens a device, and says so when another process has to answer first and takes its time.
fn audibly<T>(address: &Address, open: impl FnOnce() -> T) -> T {
    if !matches!(address, Address::VfioUser(_) | Address::VhostUser { .. }) {
        return open();
    }
    let (opening, opened) = mpsc::channel::<()>();
    let name = address.name();
    let watch = std::thread::Builder::new().name("opening".to_owned()).spawn(move || {
        if opened.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("{name}: no answer yet, it may be serving another client; waiting on, Ctrl-C ends it");
        }
    });
    let result = open();
    drop(opening);
    // It only talks.
    let _ = watch.map(std::thread::JoinHandle::join);
    result
}

/// How long opening a device says nothing.
const SILENCE: Duration = Duration::from_secs(1);

/// Returns a few lines on packet memory and each port, for the start of a run. `all` has to contain all its ports.
///
/// # Errors
///
/// If the cable of a soft NIC leads to a soft NIC that is not among them, so that nothing can be received or sent by
/// it.
pub fn describe(all: &[Ports]) -> Result<String, Failure> {
    let pools = pools::distinct(all.iter().flat_map(|ports| &ports.pools));
    let mut memory: Vec<&str> = pools.into_iter().map(|pool| pool.memory().describe()).collect();
    memory.dedup();
    let mut text: String = memory.iter().map(|memory| format!("packet memory: {memory}\n")).collect();
    for opened in all.iter().flat_map(|ports| &ports.opened) {
        if let Some(peer) = opened.port.missing_peer() {
            let name = opened.port.name();
            return Err(Failure::usage(format!("{name}: {peer} is none of the ports; name soft:{peer} too")));
        }
        let mut link = link_words(opened.port.link().unwrap_or_default());
        if let Some(cause) = opened.port.no_carrier() {
            link += &format!(" ({cause})");
        }
        let queues = crate::human::counted(opened.rx.len() as u64, "receive queue");
        let (name, mac) = (opened.port.name(), opened.port.mac());
        text += &format!("{name}: MAC {mac}, {queues}, link {link}\n");
    }
    Ok(text)
}

/// Returns descriptors that become readable when one of the ports has an event.
pub(crate) fn event_fds<'p>(opened: impl Iterator<Item = &'p Opened>) -> Result<Vec<OwnedFd>, Failure> {
    let fds = opened.flat_map(|opened| opened.port.event_fds()).map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned());
    Ok(fds.collect::<Result<_, _>>()?)
}

/// Logs a warning of one line if lcores poll ports of another NUMA node. `polled` yields an lcore with the name and
/// node of a port that it polls.
pub fn warn_if_crossing(polled: impl Iterator<Item = (usize, String, Option<u32>)>, available: &[Lcore]) {
    if let Some(crossing) = crossing(polled, available) {
        tracing::warn!("{crossing}");
    }
}

fn crossing(polled: impl Iterator<Item = (usize, String, Option<u32>)>, available: &[Lcore]) -> Option<String> {
    let mut crossings = polled.filter_map(|(lcore, port, node)| {
        let near = node?;
        let far = available.iter().find(|known| known.number == lcore)?.node.filter(|far| *far != near)?;
        let better: Vec<usize> =
            available.iter().filter(|lcore| lcore.node == Some(near)).map(|lcore| lcore.number).collect();
        let better = if better.is_empty() { "none".to_owned() } else { lcore::ranges(&better) };
        Some(format!(
            "lcore {lcore} is on NUMA node {far} and {port} on node {near}, so each packet crosses between them; \
             lcores of node {near}: {better}"
        ))
    });
    let first = crossings.next()?;
    let more = crossings.count();
    Some(if more == 0 { first } else { format!("{first} (and {more} more)") })
}

/// Waits until the devices have sent all frames of their transmit queues, for at most a second, or 50 ms once a signal
/// has arrived. Returns for each port whether it has sent them. `pools` has the pool of each port.
pub(crate) fn drain(opened: &mut [Opened], pools: &[Pool], stop: &Stop) -> Vec<bool> {
    let (mut caches, mut none) = (pools.iter().map(Pool::cache).collect::<Vec<_>>(), Batch::with_capacity(1));
    let begun = Instant::now();
    let mut limit = Duration::from_secs(1);
    loop {
        let idle: Vec<bool> = opened
            .iter_mut()
            .zip(&mut caches)
            .map(|(opened, cache)| {
                for queue in &mut opened.tx {
                    // A call takes back a part of a full ring: what is sent already needs no further round, which might be late.
                    let mut before = usize::MAX;
                    while queue.in_flight() < before {
                        before = queue.in_flight();
                        queue.send(cache, &mut none);
                    }
                }
                opened.port.transmit_idle() && opened.tx.iter().all(|queue| queue.in_flight() < CHUNK)
            })
            .collect();
        if stop.is_signalled() {
            limit = limit.min(Duration::from_millis(50));
        }
        if idle.iter().all(|idle| *idle) || begun.elapsed() >= limit {
            return idle;
        }
        std::thread::yield_now();
    }
}

/// Makes the ports receive no more frames, at the end of a run, so that workers can finish those that have arrived;
/// then requests the workers to stop.
pub(crate) fn stop_receiving<'a>(ports: impl Iterator<Item = &'a mut Opened>, stop: &Stop) {
    for opened in ports {
        // Of a device that is gone nothing comes; who closes it says so.
        let _ = opened.port.stop_receiving();
    }
    stop.request();
}

/// Sets the final counts of a receive queue in `counters`, after the workers have returned. Frames that are still in
/// its ring, where a device could not be told to receive no more, are dropped and counted.
pub(crate) fn count_unread(queue: &mut AnyRxQueue, pool: &Pool, counters: &mut Counters) {
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(usize::from(MOST_BATCH)));
    let looked_at = (counters.rx_packets, counters.rx_bytes);
    // A ring that is filled while it is emptied is left with what came meanwhile.
    for _ in 0..=MOST_DESCRIPTORS / MOST_BATCH {
        let received = queue.recv(&mut cache, &mut batch).len();
        cache.free_batch(&mut batch);
        if received < batch.spare() {
            break;
        }
    }
    counters.set_rx(queue.counters());
    counters.drops[Reason::RxUnread as usize] = counters.rx_packets - looked_at.0;
    (counters.rx_packets, counters.rx_bytes) = looked_at;
}

/// Packets of the longest burst that is taken here, and the descriptors of the largest ring.
const MOST_BATCH: u16 = 1024;
const MOST_DESCRIPTORS: u16 = 4096;

/// Sets the final counts of a transmit queue in `counters`. Frames that its device has not sent, because the device
/// went away or because [`drain`] gave up on it (`idle` is what `drain` returned for its port), count as dropped and
/// not as sent.
pub(crate) fn count_unsent(queue: &AnyTxQueue, idle: bool, counters: &mut Counters) {
    counters.set_tx(queue.counters());
    if !idle {
        counters.unsend(queue.in_flight() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lcore_far_from_its_port_is_named() {
        let lcores: Vec<Lcore> = (0..4).map(|number| Lcore { number, node: Some(u32::from(number > 1)) }).collect();
        let polled = |lcore: usize, node| (lcore, "0000:03:00.0".to_owned(), node);
        let near = [polled(0, Some(0)), polled(3, Some(1)), polled(2, None)];
        assert_eq!(crossing(near.into_iter(), &lcores), None);
        let text = crossing([polled(2, Some(0))].into_iter(), &lcores).unwrap();
        assert!(text.starts_with("lcore 2 is on NUMA node 1 and 0000:03:00.0 on node 0"), "{text}");
        assert!(text.ends_with("lcores of node 0: 0-1"), "{text}");
        let text = crossing([polled(2, Some(0)), polled(0, Some(7))].into_iter(), &lcores).unwrap();
        assert!(text.ends_with("(and 1 more)"), "{text}");
        assert!(crossing([polled(0, Some(7))].into_iter(), &lcores).unwrap().ends_with("lcores of node 7: none"));
    }
}
