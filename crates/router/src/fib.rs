//! The forwarding table: routes and adjacencies, changed by one thread and read by the forwarders of others.

use crate::ethernet::{HEADER, Interface, Station};
use crate::{Error, Forwarder, Miss, Neighbour, Result, Routes};
use lpm::{Config, Ipv4Reader, Ipv4Table, Ipv6Reader, Ipv6Table};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The forwarding table of a router. It belongs to one thread; [`Fib::forwarder`] returns handles for other threads.
///
/// ```
/// use router::{Fib, Interface, Miss, Routes};
/// let interfaces = [Interface { mac: [2, 0, 0, 0, 0, 1], promiscuous: false, mtu: 1500 }];
/// let mut fib = Fib::new(&Routes::default(), &interfaces)?;
/// let forwarder = fib.forwarder(Miss::Refuse);
/// // The forwarder follows with its next burst.
/// fib.replace(&Routes::parse(b"2001:db8::/32 via 02:00:00:00:00:02 port 0", 1)?)?;
/// # drop(forwarder);
/// # Ok::<(), router::Error>(())
/// ```
#[derive(Debug)]
pub struct Fib {
    tables: Tables,
    /// What forwarders may still be reading.
    retired: Vec<Tables>,
    interfaces: Arc<[Interface]>,
    shared: Arc<Shared>,
}

impl Fib {
    /// Creates a table of these routes, for a router with these interfaces, in the order of their ports.
    ///
    /// # Errors
    ///
    /// [`Error::PortCount`] if the routes were parsed for more ports than there are interfaces, [`Error::Table`] if
    /// memory is short.
    pub fn new(routes: &Routes, interfaces: &[Interface]) -> Result<Self> {
        let tables = Tables::build(routes, interfaces)?;
        let shared = Shared { generation: AtomicU64::new(0), view: Mutex::new(tables.view()) };
        Ok(Self { tables, retired: Vec::new(), interfaces: interfaces.into(), shared: Arc::new(shared) })
    }

    /// Replaces all routes by those of `routes`. Each forwarder changes over to them between two bursts, so that no
    /// burst is routed by a mixture of old and new routes.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`]; then the previous routes stay in force.
    pub fn replace(&mut self, routes: &Routes) -> Result<()> {
        let tables = Tables::build(routes, &self.interfaces)?;
        *self.shared.view() = tables.view();
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.retired.push(std::mem::replace(&mut self.tables, tables));
        self.reclaim();
        Ok(())
    }

    /// Frees the tables that no forwarder reads any more. In this way the memory of a large table is freed here, and
    /// not by a forwarder in the middle of its work. [`Self::replace`] also does this.
    pub fn reclaim(&mut self) {
        self.retired.retain(|tables| Arc::strong_count(&tables.adjacencies) > 1);
    }

    /// Returns the number of replaced tables that forwarders may still be reading.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Creates a handle for one thread.
    #[must_use]
    pub fn forwarder(&self, miss: Miss) -> Forwarder {
        Forwarder::new(Follower::new(&self.shared), &self.interfaces, miss)
    }

    /// Returns the numbers of IPv4 and IPv6 routes in force.
    #[must_use]
    pub fn route_counts(&self) -> (usize, usize) {
        (self.tables.v4.len(), self.tables.v6.len())
    }
}

/// Everything a frame needs to leave: the addresses of its new Ethernet header, the port, and how long it may be.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(crate) struct Adjacency {
    /// The first eight bytes of destination, the next hop's address, and source, the port's: lowest first.
    first: u64,
    /// The last four.
    last: u32,
    pub(crate) port: u16,
    /// Bytes of the longest frame.
    longest: u16,
}

impl Adjacency {
    pub(crate) fn new(next_hop: [u8; 6], port: u16, interface: &Interface) -> Self {
        let longest = u16::try_from(usize::from(interface.mtu) + HEADER).unwrap_or(u16::MAX);
        Self::of_words(low48(next_hop), low48(interface.mac), port, longest)
    }

    /// That of two addresses in the lower 48 bits of a word each, first byte lowest.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "four bytes are left")]
    pub(crate) fn of_words(next_hop: u64, source: u64, port: u16, longest: u16) -> Self {
        Self { first: next_hop | source << 48, last: (source >> 16) as u32, port, longest }
    }

    /// Writes both addresses.
    #[inline(always)]
    pub(crate) fn write(&self, start: &mut [u8; 12]) {
        let (first, last) = start.split_at_mut(8);
        first.copy_from_slice(&self.first.to_le_bytes());
        last.copy_from_slice(&self.last.to_le_bytes());
    }

    /// Whether a frame of `len` bytes, without any tag, is too long for the port.
    #[inline(always)]
    pub(crate) fn refuses(&self, len: usize) -> bool {
        len > usize::from(self.longest)
    }
}

/// An Ethernet address in the lower 48 bits, first byte lowest.
pub(crate) fn low48([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// One generation of routes.
#[derive(Debug)]
struct Tables {
    v4: Ipv4Table,
    v6: Ipv6Table,
    /// By the number of the next hop. Views hold it too, so its count tells whether any is left.
    adjacencies: Arc<[Adjacency]>,
}

impl Tables {
    fn build(routes: &Routes, interfaces: &[Interface]) -> Result<Self> {
        if routes.ports() > interfaces.len() {
            return Err(Error::PortCount { routes: routes.ports(), interfaces: interfaces.len() });
        }
        let v4 = Ipv4Table::from_routes(ACCELERATED, routes.ipv4().iter().copied())?;
        let v6 = Ipv6Table::from_routes(Config::default(), routes.ipv6().iter().copied())?;
        let adjacency = |neighbour: &Neighbour| {
            let interface = &interfaces[usize::from(neighbour.port)];
            Adjacency::new(neighbour.mac.0, neighbour.port, interface)
        };
        Ok(Self { v4, v6, adjacencies: routes.neighbours().iter().map(adjacency).collect() })
    }

    fn view(&self) -> View {
        View { v4: self.v4.reader(), v6: self.v6.reader(), adjacencies: Arc::clone(&self.adjacencies) }
    }
}

/// What a forwarder reads. The adjacencies are dropped last: while their count is up, so is that of the tables.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) v4: Ipv4Reader,
    pub(crate) v6: Ipv6Reader,
    pub(crate) adjacencies: Arc<[Adjacency]>,
}

/// Where the newest view is found.
#[derive(Debug)]
struct Shared {
    /// Raised after each change of `view`. Nobody writes to it for seconds at least.
    generation: AtomicU64,
    view: Mutex<View>,
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A forwarder's view, and how it learns of a newer one.
#[derive(Debug)]
pub(crate) struct Follower {
    view: View,
    generation: u64,
    shared: Arc<Shared>,
}

impl Follower {
    fn new(shared: &Arc<Shared>) -> Self {
        let generation = shared.generation.load(Ordering::Acquire);
        Self { view: shared.view().clone(), generation, shared: Arc::clone(shared) }
    }

    /// The newest view: a load, unless it has changed.
    #[inline(always)]
    pub(crate) fn newest(&mut self) -> &mut View {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.renew(generation);
        }
        &mut self.view
    }

    /// The view may be newer than `generation` says; then it is fetched once more, which does no harm.
    #[cold]
    fn renew(&mut self, generation: u64) {
        let view = self.shared.view().clone();
        self.view = view;
        self.generation = generation;
    }
}

/// What forwarders need of the interfaces.
pub(crate) fn stations(interfaces: &[Interface]) -> Box<[Station]> {
    interfaces.iter().map(Station::new).collect()
}

/// The byte for each /24 pays in the table of a router in the Internet.
pub(crate) const ACCELERATED: Config = Config { accelerator: true, accelerated_from: 100_000, memory_limit: 1 << 30 };
