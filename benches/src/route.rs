//! A router on devices made of memory: what `fwd l3` does with a burst, from receive to transmit.

use crate::{Chip, Completer, FRAME, MemoryNic};
use ethdev::{RxQueue as _, TxQueue as _};
use ixgbe::{Config, Opened, Port, RxQueue, TxQueue};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use router::{Egress, Fib, Forwarder, Interface, LiveConfig, LiveFib, LiveForwarder, Miss, Neighbour, Routes, Target};
use std::any::Any;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;

/// Frames prepared, each to a random address inside a random route.
const FRAMES: usize = 1 << 16;
/// Next hops, behind the second and third port in turn.
const NEXT_HOPS: u64 = 64;
const PORTS: usize = 3;
/// The VLAN of [`RouteRig::vlan`].
const VLAN: u16 = 7;

/// Which routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A full IPv4 table of the Internet: a real one beside the workspace, or else one invented of that size.
    Full,
    /// A thousand routes.
    Small,
}

/// A forwarder between three drivers on devices made of memory; frames come in by the first.
#[derive(Debug)]
pub struct RouteRig<F = Forwarder> {
    ports: Vec<MemoryPort>,
    forwarder: F,
    egress: Egress,
    cache: PoolCache,
    batch: Batch,
    burst: usize,
    frames: Vec<[u8; FRAME as usize]>,
    next: usize,
    _table: Box<dyn Any>,
}

/// A forwarder of either kind.
pub trait Routing {
    /// Routes a burst that came in by a port.
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize;
}

impl Routing for Forwarder {
    #[inline(always)]
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        self.route(ingress, batch, egress)
    }
}

impl Routing for LiveForwarder {
    #[inline(always)]
    fn route(&mut self, ingress: usize, batch: &mut Batch, egress: &mut Egress) -> usize {
        self.route(ingress, batch, egress)
    }
}

#[derive(Debug)]
struct MemoryPort {
    _port: Port<MemoryNic>,
    rx: RxQueue<MemoryNic>,
    tx: TxQueue<MemoryNic>,
    hardware: Completer,
}

impl RouteRig {
    /// Opens the drivers with rings of `ring` descriptors, for bursts of `burst` packets.
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn new(burst: usize, ring: u16, table: Table) -> Self {
        Self::with(burst, ring, table, None, |routes, interfaces| {
            let fib = Fib::new(routes, interfaces).expect("memory for the table");
            (fib.forwarder(Miss::Refuse), Box::new(fib))
        })
    }
}

impl RouteRig<LiveForwarder> {
    /// As [`RouteRig::new`], by a table that changes in place.
    ///
    /// # Panics
    ///
    /// As [`RouteRig::new`].
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn live(burst: usize, ring: u16, table: Table) -> Self {
        Self::with(burst, ring, table, None, |routes, interfaces| {
            let fib = live_table(routes, interfaces, None).expect("memory for the table");
            (fib.forwarder(), Box::new(fib))
        })
    }

    /// As [`RouteRig::live`], with frames that come in by a VLAN and leave by VLANs.
    ///
    /// # Panics
    ///
    /// As [`RouteRig::new`].
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn vlan(burst: usize, ring: u16, table: Table) -> Self {
        Self::with(burst, ring, table, Some(VLAN), |routes, interfaces| {
            let fib = live_table(routes, interfaces, Some(VLAN)).expect("memory for the table");
            (fib.forwarder(), Box::new(fib))
        })
    }
}

impl<F: Routing> RouteRig<F> {
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    fn with(
        burst: usize,
        ring: u16,
        table: Table,
        vlan: Option<u16>,
        forwarder: impl FnOnce(&Routes, &[Interface]) -> (F, Box<dyn Any>),
    ) -> Self {
        let slots = usize::from(ring) * 2 * PORTS + 3 * burst + 1024;
        let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).expect("a packet pool");
        let mut config = Config::default();
        (config.port.rx_ring, config.port.tx_ring) = (ring, ring);
        let ports = (0..PORTS).map(|_| {
            let (nic, mut hardware) = MemoryNic::new(Chip::Mac82599);
            let Opened { port, mut rx, mut tx } = ixgbe::open(nic, &config, &pool).expect("the driver on memory");
            hardware.start();
            let (rx, tx) = (rx.pop().expect("a receive queue"), tx.pop().expect("a transmit queue"));
            MemoryPort { _port: port, rx, tx, hardware }
        });
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        let prefixes = match table {
            Table::Full => real_table().unwrap_or_else(|| invented(900_000, &mut random)),
            Table::Small => invented(1000, &mut random),
        };
        let interfaces = [0, 1, 2].map(|last| Interface { mac: [2, 0, 0, 0, 0, last], promiscuous: false, mtu: 1500 });
        let routes = Routes::parse(routes(&prefixes, &mut random).as_bytes(), PORTS).expect("routes by the form");
        let (forwarder, table) = forwarder(&routes, &interfaces);
        let frames = (0..FRAMES).map(|_| frame(&prefixes, vlan, &mut random)).collect();
        Self {
            ports: ports.collect(),
            forwarder,
            egress: Egress::new(PORTS, 2 * burst),
            cache: pool.cache(),
            batch: Batch::with_capacity(burst),
            burst,
            frames,
            next: 0,
            _table: table,
        }
    }

    /// Receives a burst, routes it, and sends the bursts that are full; the hardware's part included. Returns the
    /// packets that were routed.
    #[inline(always)]
    pub fn burst(&mut self) -> usize {
        self.part(self.burst)
    }

    /// Does so with `count` packets where a burst has room for more. If they do not fill it, a poll that finds nothing follows, and
    /// what waits for company is sent, as `fwd l3` does when no more comes.
    #[inline(always)]
    pub fn part(&mut self, count: usize) -> usize {
        let routed = self.round(count, self.burst);
        if (1..self.burst).contains(&count) {
            self.round(0, 1);
        }
        routed
    }

    /// Receives `count` packets, routes them, and sends where at least `least` wait.
    #[inline(always)]
    fn round(&mut self, count: usize, least: usize) -> usize {
        let Self { ports, forwarder, egress, cache, batch, frames, next, .. } = self;
        ports[0].hardware.receive(count, FRAME.into());
        ports[0].rx.recv(cache, batch);
        fill(batch, frames, next);
        let mut routed = 0;
        if !batch.is_empty() {
            routed = forwarder.route(0, batch, egress);
            for (packet, _) in egress.drain_refused() {
                cache.free(packet);
            }
        }
        for (port, output) in ports.iter_mut().zip(egress.outputs()) {
            if output.len() >= least {
                let sent = port.tx.send(cache, output);
                port.hardware.transmit(sent);
            }
        }
        routed
    }

    /// Does only the hardware's part of [`Self::part`]. Returns `count`.
    #[inline(always)]
    pub fn hardware_part(&mut self, count: usize) -> usize {
        let Self { ports, cache, batch, burst, frames, next, .. } = self;
        if batch.is_empty() {
            cache.alloc_batch(batch, *burst, FRAME.into());
        }
        ports[0].hardware.receive(count, FRAME.into());
        fill(batch.get_mut(..count).unwrap_or_default(), frames, next);
        ports[1].hardware.transmit(count);
        count
    }

    /// Packets sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.ports.iter().map(|port| port.tx.counters().packets).sum()
    }

    /// Packets waiting for a burst to be full.
    #[must_use]
    pub fn waiting(&mut self) -> usize {
        self.egress.outputs().iter().map(|output| output.len()).sum()
    }
}

/// The same routes, by the ports or by a VLAN on each.
fn live_table(routes: &Routes, interfaces: &[Interface], vlan: Option<u16>) -> router::Result<LiveFib> {
    let mut fib = LiveFib::new(&LiveConfig::default(), interfaces)?;
    let mut behind = Vec::new();
    for (port, interface) in (0..).zip(interfaces) {
        behind.push(match vlan {
            Some(vlan) => fib.add_interface(port, vlan, interface)?,
            None => port,
        });
    }
    for neighbour in routes.neighbours() {
        let port = behind.get(usize::from(neighbour.port)).copied().unwrap_or(neighbour.port);
        fib.add_next_hop(Target::Neighbour(Neighbour { port, ..*neighbour }))?;
    }
    fib.replace_routes(routes.ipv4().iter().copied(), [])?;
    Ok(fib)
}

/// The hardware's part that descriptors leave out: the bytes of the frames.
#[inline(never)]
fn fill(batch: &mut [Packet], frames: &[[u8; FRAME as usize]], next: &mut usize) {
    for packet in batch.iter_mut() {
        *next = (*next + 1) % FRAMES;
        if let Some(bytes) = packet.data_mut().first_chunk_mut() {
            *bytes = frames[*next];
        }
    }
}

/// Xorshift (Marsaglia 2003): the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

type Prefix = (u32, u8);

/// UDP to a random address inside a random route, as the first port receives it.
fn frame(prefixes: &[Prefix], vlan: Option<u16>, random: &mut Random) -> [u8; FRAME as usize] {
    let (address, len) = prefixes[usize::try_from(random.below(prefixes.len() as u64)).unwrap_or(0)];
    let noise = u32::try_from(random.below(1 << 32)).unwrap_or(0);
    let to = (address | noise.checked_shr(len.into()).unwrap_or(0)).to_be_bytes();
    let mut frame = [0; FRAME as usize];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9, 8, 0]);
    let mut ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, to[0], to[1], to[2], to[3]];
    let mut at = 14;
    if let Some(vlan) = vlan {
        frame[12..14].copy_from_slice(&[0x81, 0]);
        frame[14..16].copy_from_slice(&vlan.to_be_bytes());
        frame[16..18].copy_from_slice(&[8, 0]);
        (at, ip[3]) = (18, 42);
    }
    let mut sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    [ip[10], ip[11]] = [!sum.to_be_bytes()[2], !sum.to_be_bytes()[3]];
    frame[at..at + 20].copy_from_slice(&ip);
    frame
}

fn routes(prefixes: &[Prefix], random: &mut Random) -> String {
    let mut text = String::new();
    for (address, len) in prefixes {
        let (address, hop) = (Ipv4Addr::from(*address), random.below(NEXT_HOPS));
        // A string takes all.
        let _ = writeln!(text, "{address}/{len} via 02:00:00:00:01:{hop:02x} port {}", hop % 2 + 1);
    }
    text
}

/// The full table beside the workspace, without what no router forwards.
fn real_table() -> Option<Vec<Prefix>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/bgp/v4.txt.xz");
    let file = std::io::BufReader::new(std::fs::File::open(path).ok()?);
    let mut text = String::new();
    lzma_rust2::XzReader::new(file, true).read_to_string(&mut text).ok()?;
    let prefix = |line: &str| {
        let (address, len) = line.split_once(' ')?.0.split_once('/')?;
        Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), len.parse().ok()?))
    };
    let forwardable = |(address, _): &Prefix| !matches!(address >> 24, 0 | 127 | 169 | 224..);
    Some(text.lines().filter_map(prefix).filter(forwardable).collect())
}

/// Prefixes of real lengths at random places.
fn invented(count: usize, random: &mut Random) -> Vec<Prefix> {
    let mut prefixes: Vec<Prefix> = (0..count)
        .map(|_| {
            let len = [24, 24, 24, 24, 24, 24, 22, 23, 21, 20, 19, 16][usize::try_from(random.below(12)).unwrap_or(0)];
            let block = 1 + u32::try_from(random.below(126)).unwrap_or(0);
            let address = block << 24 | u32::try_from(random.below(1 << 24)).unwrap_or(0);
            (address >> (32 - u32::from(len)) << (32 - u32::from(len)), len)
        })
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}
