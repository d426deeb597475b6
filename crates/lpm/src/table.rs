//! The public face: a table, which one thread changes, and its readers.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;

use crate::clock::Era;
use crate::lookup;
use crate::mem::Newest;
use crate::prefix::Key;
use crate::rib::RibIter;
use crate::tables::{Family, Tables};
use crate::writer::Writer;
use crate::{Error, NextHop, Result, V4, V6};

/// An IPv4 routing table.
pub type Ipv4Table = Table<V4>;
/// An IPv6 routing table.
pub type Ipv6Table = Table<V6>;
/// A reader of an [`Ipv4Table`].
pub type Ipv4Reader = Reader<V4>;
/// A reader of an [`Ipv6Table`].
pub type Ipv6Reader = Reader<V6>;

/// How a table is laid out.
///
/// ```
/// use lpm::{Config, Ipv4Table};
/// let config = Config { accelerator: true, ..Config::default() };
/// let table = Ipv4Table::with_config(config)?;
/// # Ok::<(), lpm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// IPv4 only: keep a byte for each /24 (16 MiB) that answers before the table proper. Faster on real
    /// traffic, meant for the one main table of a machine. Only 254 next hops fit; it is left out while the most used 254
    /// have less than 95 % of the routes. That is looked at when tables are built or have twice as many routes. Off by default.
    pub accelerator: bool,
    /// Routes from which on there is an accelerator, if it is on: with few, it costs more than it gives. Of a table that shrinks it stays until
    /// tables are built anew. 0 by default.
    pub accelerated_from: usize,
    /// Bytes the blocks of one generation of tables may take; root arrays and accelerator are not counted.
    /// A table starts with what its routes need and doubles when that is used up. Up to 1 MiB more is kept
    /// for removals. 1 GiB by default; more than about 2 GiB (IPv4) or 16 GiB (IPv6) is taken for that.
    pub memory_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { accelerator: false, accelerated_from: 0, memory_limit: 1 << 30 }
    }
}

/// Memory of a table, in bytes.
///
/// ```
/// let table = lpm::Ipv4Table::new()?;
/// let memory = table.memory_use();
/// assert!(memory.read <= memory.held);
/// # Ok::<(), lpm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// What lookups may touch: root array, blocks in use, palettes, accelerator.
    pub read: usize,
    /// What is reserved for that, space for changes included. The system backs it when it is first touched.
    pub held: usize,
    /// The routes themselves, which only the writer needs; an estimate.
    pub routes: usize,
}

/// A table of routes: prefixes, each with a next hop. This is the writer; [`Table::reader`] gives handles for lookups.
///
/// ```
/// use lpm::{Ipv4Table, NextHop};
/// let mut table = Ipv4Table::new()?;
/// table.insert("10.0.0.0/8".parse()?, NextHop::new(1)?)?;
/// table.insert("10.1.0.0/16".parse()?, NextHop::new(2)?)?;
/// let mut reader = table.reader();
/// assert_eq!(reader.lookup("10.1.2.3".parse().unwrap()), Some(NextHop::new(2)?));
/// assert_eq!(reader.lookup("10.2.2.3".parse().unwrap()), Some(NextHop::new(1)?));
/// assert_eq!(reader.lookup("11.0.0.1".parse().unwrap()), None);
/// # Ok::<(), lpm::Error>(())
/// ```
pub struct Table<F: Family> {
    pub(crate) writer: Writer<F>,
}

impl<F: Family> Table<F> {
    /// An empty table.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; an empty table takes about 3 MB.
    pub fn new() -> Result<Self> {
        Self::with_config(Config::default())
    }

    /// An empty table laid out as `config` says.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::TableFull`] if the memory limit is below 1 MiB.
    pub fn with_config(config: Config) -> Result<Self> {
        Writer::new(config).map(|writer| Self { writer })
    }

    /// A table with these routes. The later of two routes for one prefix stands. Much faster than inserting
    /// them one by one, and fastest if they come in prefix order.
    ///
    /// # Errors
    /// As for [`Table::insert`].
    pub fn from_routes(config: Config, routes: impl IntoIterator<Item = (F::Prefix, NextHop)>) -> Result<Self> {
        let routes = routes.into_iter().map(|(prefix, hop)| (F::key(prefix), hop.raw()));
        Writer::from_routes(config, routes).map(|writer| Self { writer })
    }

    /// Puts these routes in the place of all others, as fast as [`Self::from_routes`]: readers see either the ones or the others.
    /// The later of two routes for one prefix stands. Until it is done, there is memory for both.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::TableFull`](crate::Error::TableFull); then all is as it was.
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (F::Prefix, NextHop)>) -> Result<()> {
        self.writer.replace(routes.into_iter().map(|(prefix, hop)| (F::key(prefix), hop.raw())))
    }

    /// Adds a route, or replaces the next hop of one. Answers the next hop it had.
    ///
    /// # Errors
    /// [`Error::TableFull`] at the memory limit, [`Error::OutOfMemory`]; the table is then unchanged.
    pub fn insert(&mut self, prefix: F::Prefix, hop: NextHop) -> Result<Option<NextHop>> {
        Ok(self.writer.insert(F::key(prefix), hop.raw())?.and_then(NextHop::from_raw))
    }

    /// Removes a route. Answers its next hop.
    ///
    /// # Errors
    /// [`Error::NoSuchRoute`]; [`Error::TableFull`] and [`Error::OutOfMemory`], since even fewer routes may need
    /// new blocks. The table is then unchanged.
    pub fn remove(&mut self, prefix: F::Prefix) -> Result<NextHop> {
        let hop = self.writer.remove(F::key(prefix))?.and_then(NextHop::from_raw);
        hop.ok_or_else(|| Error::NoSuchRoute { prefix: prefix.to_string() })
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: F::Prefix) -> Option<NextHop> {
        self.writer.rib.get(F::key(prefix)).and_then(|id| self.hop(id))
    }

    /// The next hop of the longest prefix that contains `addr`.
    #[must_use]
    pub fn lookup(&self, addr: F::Addr) -> Option<NextHop> {
        lookup::one(&self.writer.tables, addr.into())
    }

    /// The routes whose prefixes cover `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: F::Prefix) -> impl DoubleEndedIterator<Item = (F::Prefix, NextHop)> + '_ {
        let routes = self.writer.rib.covering(F::key(prefix));
        routes.into_iter().filter_map(|(key, id)| Some((F::prefix(key), self.hop(id)?)))
    }

    /// The routes whose prefixes `prefix` covers, itself included, in prefix order.
    pub fn covered(&self, prefix: F::Prefix) -> impl Iterator<Item = (F::Prefix, NextHop)> + '_ {
        let key = F::key(prefix);
        let iter = Iter { routes: self.writer.rib.iter_from(key), table: self };
        iter.take_while(move |(prefix, _)| key.covers(F::key(*prefix)))
    }

    /// All routes in prefix order: by address, then by length.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, F> {
        Iter { routes: self.writer.rib.iter_from(Key { bits: 0, len: 0 }), table: self }
    }

    /// The number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writer.rib.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the table takes.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        let Writer { tables, store, rib, .. } = &self.writer;
        MemoryUse { read: tables.bytes_read(store), held: tables.bytes_held(), routes: rib.bytes() }
    }

    /// A handle for lookups, to be moved to another thread or cloned for several.
    #[must_use]
    pub fn reader(&self) -> Reader<F> {
        Reader { tables: Arc::clone(&self.writer.tables), newest: Arc::clone(self.writer.publisher.shared()) }
    }

    fn hop(&self, id: u32) -> Option<NextHop> {
        NextHop::from_raw(self.writer.hops.get(id).word)
    }
}

impl<F: Family> fmt::Debug for Table<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).field("tables", &self.writer.tables).finish()
    }
}

impl<'a, F: Family> IntoIterator for &'a Table<F> {
    type Item = (F::Prefix, NextHop);
    type IntoIter = Iter<'a, F>;

    fn into_iter(self) -> Iter<'a, F> {
        self.iter()
    }
}

/// The routes of a table in prefix order; see [`Table::iter`].
///
/// ```
/// let table = lpm::Ipv4Table::new()?;
/// assert_eq!(table.iter().next(), None);
/// # Ok::<(), lpm::Error>(())
/// ```
#[derive(Debug)]
pub struct Iter<'a, F: Family> {
    routes: RibIter<'a>,
    table: &'a Table<F>,
}

impl<F: Family> Iterator for Iter<'_, F> {
    type Item = (F::Prefix, NextHop);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, id) = self.routes.next()?;
        Some((F::prefix(key), self.table.hop(id)?))
    }
}

/// Looks addresses up while another thread changes the table.
///
/// Lookups are wait-free: whatever the writer does, a burst of up to 256 addresses is looked up three times at most, and the
/// newest tables are found in a fixed number of steps, without a lock. The one system call a lookup can make is to give back the
/// tables that the writer has left, if this was their last reader: once for each time the writer moved to other memory.
///
/// A reader that is idle keeps the tables it last used from being freed, one generation: at most [`MemoryUse::held`] as it was
/// then. However often the writer has moved since, its next lookup goes to the newest tables at once. A thread that is stopped
/// in the middle of a lookup may hold back what the writer unlinks meanwhile.
///
/// Each address is answered as of some moment between call and return, and no answer is older than one that another reader
/// had before the call. A clone is a second handle to the same table, for another thread.
///
/// ```
/// use std::thread;
/// use lpm::{Ipv6Table, NextHop};
/// let mut table = Ipv6Table::new()?;
/// let mut reader = table.reader();
/// table.insert("2001:db8::/32".parse()?, NextHop::new(9)?)?;
/// let answers = thread::spawn(move || {
///     let addrs: [std::net::Ipv6Addr; 2] = ["2001:db8::1".parse().unwrap(), "::1".parse().unwrap()];
///     let mut answers = [None; 2];
///     reader.lookup_batch(&addrs, &mut answers);
///     answers
/// });
/// assert_eq!(answers.join().unwrap(), [Some(NextHop::new(9)?), None]);
/// # Ok::<(), lpm::Error>(())
/// ```
pub struct Reader<F: Family> {
    tables: Arc<Tables<F>>,
    /// Where they are found that replace these.
    newest: Arc<Newest<Tables<F>>>,
}

impl<F: Family> Reader<F> {
    /// Addresses looked up between two checks that the answers stand.
    const BURST: usize = 256;

    /// The next hop of the longest prefix that contains `addr`.
    #[must_use]
    #[inline]
    pub fn lookup(&mut self, addr: F::Addr) -> Option<NextHop> {
        let addr = addr.into();
        self.read(|tables| lookup::one(tables, addr))
    }

    /// Looks up `addrs` and writes their next hops to `out`, as many as both have; answers how many.
    ///
    /// Addresses are those of the standard library, or integers of the same width in the CPU's byte order.
    /// Bursts of 32 and more overlap their memory accesses best, a multiple of 64 where there is AVX-512; what is left of 32 is
    /// looked up by eights, and what is left of these one by one.
    #[inline(always)]
    pub fn lookup_batch<A: Copy + Into<F::Bits>>(&mut self, addrs: &[A], out: &mut [Option<NextHop>]) -> usize {
        let count = addrs.len().min(out.len());
        let (addrs, out) = (&addrs[..count], &mut out[..count]);
        let tables = &*self.tables;
        let start = tables.clock.start();
        if count > Self::BURST || start.has_moved() {
            self.bursts(addrs, out);
            return count;
        }
        lookup::burst(tables, addrs, out);
        if !tables.clock.stands(start) {
            self.burst_again(addrs, out);
        }
        count
    }

    #[inline(never)]
    fn bursts<A: Copy + Into<F::Bits>>(&mut self, addrs: &[A], out: &mut [Option<NextHop>]) {
        for (addrs, out) in addrs.chunks(Self::BURST).zip(out.chunks_mut(Self::BURST)) {
            let start = self.start();
            lookup::burst(&self.tables, addrs, out);
            if !self.tables.clock.stands(start) {
                self.burst_again(addrs, out);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn burst_again<A: Copy + Into<F::Bits>>(&mut self, addrs: &[A], out: &mut [Option<NextHop>]) {
        self.read_again(|tables| lookup::burst(tables, addrs, out));
    }

    /// Runs `look` on the current tables until its result stands: three times at most, see [`crate::clock`].
    #[inline(always)]
    fn read<T>(&mut self, mut look: impl FnMut(&Tables<F>) -> T) -> T {
        let start = self.start();
        let answer = look(&self.tables);
        if self.tables.clock.stands(start) {
            return answer;
        }
        self.read_again(look)
    }

    /// Starts on the newest tables.
    #[inline(always)]
    fn start(&mut self) -> Era {
        let start = self.tables.clock.start();
        if !start.has_moved() {
            return start;
        }
        self.follow();
        self.tables.clock.start()
    }

    #[cold]
    #[inline(never)]
    fn read_again<T>(&mut self, mut look: impl FnMut(&Tables<F>) -> T) -> T {
        self.follow();
        let start = self.tables.clock.start();
        let answer = look(&self.tables);
        if self.tables.clock.stands(start) {
            return answer;
        }
        let _pin = self.tables.clock.pin();
        look(&self.tables)
    }

    /// Goes to the newest tables.
    #[cold]
    #[inline(never)]
    fn follow(&mut self) {
        self.tables = self.newest.get();
    }
}

impl<F: Family> Clone for Reader<F> {
    fn clone(&self) -> Self {
        Self { tables: Arc::clone(&self.tables), newest: Arc::clone(&self.newest) }
    }
}

impl<F: Family> fmt::Debug for Reader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("tables", &self.tables).finish()
    }
}
