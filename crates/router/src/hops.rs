//! Next hops that change in place: words shared by the thread that changes them and the forwarders that read them.

use crate::Neighbour;
use crate::check::Refusal;
use crate::ethernet::{HEADER, Interface, MacAddress, Station};
use crate::fib::{Adjacency, low48};
use crate::hash::{self, Policy};
use crate::rewrite::NextHops;
use mempool::Packet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Buckets of a group: a flow belongs to one of them, and each belongs to a member.
pub(crate) const BUCKETS: usize = 256;

/// What becomes of the packets to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// They go to a station.
    Neighbour(Neighbour),
    /// They go to one of several next hops, which their flow decides.
    Group(Group),
    /// They are refused, for this reason.
    Refused(Refusal),
}

/// A group of next hops, made by [`LiveFib::add_group`](crate::LiveFib::add_group).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) u32);

/// A [`Target`] in 64 bits: in the lower 16 the port, or one of the marks below; in the others what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const GROUP: u16 = 0xFFFF;
    const REFUSED: u16 = 0xFFFE;
    /// Ports are below.
    pub(crate) const PORTS: u16 = 0xFE00;
    /// `target`, whose port is below [`Self::PORTS`].
    pub(crate) fn new(target: Target) -> Self {
        let (mark, rest) = match target {
            Target::Neighbour(Neighbour { port, mac: MacAddress(mac) }) => (port, low48(mac)),
            Target::Group(Group(number)) => (Self::GROUP, number.into()),
            Target::Refused(refusal) => (Self::REFUSED, refusal as u64),
        };
        Self(rest << 16 | u64::from(mark))
    }

    /// The mark or the port.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower 16 bits are it")]
    fn mark(self) -> u16 {
        self.0 as u16
    }

    /// What it says besides.
    #[inline(always)]
    fn rest(self) -> u64 {
        self.0 >> 16
    }

    /// The adjacency of a neighbour behind a port.
    #[inline(always)]
    fn behind(self, link: Link) -> Adjacency {
        Adjacency::of_words(self.rest(), link.0, self.mark(), link.longest())
    }

    /// Why packets to it are refused, unless it is a neighbour's. Groups are not members.
    #[cold]
    fn refusal(self) -> Refusal {
        let index = usize::try_from(self.rest()).unwrap_or(usize::MAX);
        let refusal = Refusal::ALL.get(index).copied().filter(|_| self.mark() == Self::REFUSED);
        refusal.unwrap_or(Refusal::Unresolved)
    }
}

/// A port in a word: its MAC address in the lower 48 bits, the first byte lowest, and the bytes of the longest frame above, 0 while the
/// port is down.
#[derive(Clone, Copy, Debug)]
struct Link(u64);

impl Link {
    fn new(interface: &Interface) -> Self {
        let longest = u16::try_from(usize::from(interface.mtu) + HEADER).unwrap_or(u16::MAX);
        Self(low48(interface.mac) | u64::from(longest) << 48)
    }

    fn mac(self) -> u64 {
        self.0 & 0xFFFF_FFFF_FFFF
    }

    /// Bytes of the longest frame.
    #[inline(always)]
    fn longest(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// What the writer of a [`LiveFib`](crate::LiveFib) and its forwarders share.
pub(crate) struct Shared {
    hops: Box<[AtomicU64]>,
    /// A [`Link`] for each port.
    links: Box<[AtomicU64]>,
    /// Whether each port takes frames for any station.
    promiscuous: Box<[AtomicBool]>,
    /// [`BUCKETS`] for each group: numbers of next hops.
    buckets: Box<[AtomicU32]>,
    policy: AtomicU32,
    seed: u64,
    /// How often something was given up that a forwarder may still hold in the middle of a burst.
    generation: AtomicU64,
    /// Of each forwarder, the generation in which its newest burst began.
    seen: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Shared {
    /// For so many next hops and groups at most.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`].
    pub(crate) fn new(next_hops: usize, groups: usize, ports: &[Interface], seed: u64) -> crate::Result<Self> {
        let unused = Word::new(Target::Refused(Refusal::Unresolved)).0;
        let buckets = groups.checked_mul(BUCKETS).ok_or(crate::Error::OutOfMemory)?;
        Ok(Self {
            hops: filled(next_hops, || AtomicU64::new(unused))?,
            links: ports.iter().map(|port| AtomicU64::new(Link::new(port).0)).collect(),
            promiscuous: ports.iter().map(|port| AtomicBool::new(port.promiscuous)).collect(),
            buckets: filled(buckets, || AtomicU32::new(u32::MAX))?,
            policy: AtomicU32::new(Policy::Addresses as u32),
            seed,
            generation: AtomicU64::new(0),
            seen: Mutex::default(),
        })
    }

    pub(crate) fn next_hops(&self) -> usize {
        self.hops.len()
    }

    pub(crate) fn groups(&self) -> usize {
        self.buckets.len() / BUCKETS
    }

    pub(crate) fn ports(&self) -> usize {
        self.links.len()
    }

    /// Writes the word of a next hop: one store, whoever reads it.
    pub(crate) fn set_hop(&self, number: u32, target: Target) {
        if let Some(word) = self.hops.get(number as usize) {
            word.store(Word::new(target).0, Ordering::Release);
        }
    }

    /// The settings of a port; `None` while it is down.
    pub(crate) fn set_port(&self, port: usize, interface: Option<&Interface>) {
        let (Some(link), Some(promiscuous)) = (self.links.get(port), self.promiscuous.get(port)) else { return };
        promiscuous.store(interface.is_some_and(|interface| interface.promiscuous), Ordering::Relaxed);
        link.store(interface.map_or(0, |interface| Link::new(interface).0), Ordering::Release);
    }

    /// The buckets of a group.
    pub(crate) fn buckets(&self, group: Group) -> &[AtomicU32] {
        let first = group.0 as usize * BUCKETS;
        self.buckets.get(first..first + BUCKETS).unwrap_or_default()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u32, Ordering::Relaxed);
    }

    /// Begins a new generation. Returns its number: a forwarder that has seen it holds nothing that was given up before.
    pub(crate) fn begin_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The newest generation that all forwarders have seen.
    pub(crate) fn seen_by_all(&self) -> u64 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A forwarder that is gone has left its count.
        seen.retain(|seen| Arc::strong_count(seen) > 1);
        fence(Ordering::Acquire);
        let newest = self.generation.load(Ordering::Acquire);
        seen.iter().map(|seen| seen.load(Ordering::Acquire)).fold(newest, u64::min)
    }

    /// What a new forwarder writes the generation to that it has seen.
    pub(crate) fn join(&self) -> Arc<AtomicU64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = Arc::new(AtomicU64::new(self.generation.load(Ordering::Acquire)));
        seen.push(Arc::clone(&mine));
        mine
    }

    /// Between two bursts of the forwarder that `seen` belongs to.
    #[inline(always)]
    pub(crate) fn catch_up(&self, seen: &AtomicU64) {
        let generation = self.generation.load(Ordering::Acquire);
        if generation != seen.load(Ordering::Relaxed) {
            seen.store(generation, Ordering::Release);
        }
    }

    /// Which frames a port takes: none while it is down, or if there is no such port.
    #[inline(always)]
    pub(crate) fn station(&self, port: usize) -> Station {
        let (Some(link), Some(promiscuous)) = (self.links.get(port), self.promiscuous.get(port)) else {
            return Station::NOBODY;
        };
        let link = Link(link.load(Ordering::Acquire));
        if link.longest() == 0 {
            return Station::NOBODY;
        }
        Station::of(link.mac(), promiscuous.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn word(&self, number: u32) -> Option<Word> {
        self.hops.get(number as usize).map(|word| Word(word.load(Ordering::Acquire)))
    }

    /// The port of a neighbour's word; `None` of all other words.
    #[inline(always)]
    fn link(&self, word: Word) -> Option<Link> {
        self.links.get(usize::from(word.mark())).map(|link| Link(link.load(Ordering::Acquire)))
    }

    /// The word of the member of a group that the flow of a frame belongs to; other words as they are.
    #[inline(never)]
    fn member(&self, word: Word, frame: &[u8]) -> Word {
        if word.mark() != Word::GROUP {
            return word;
        }
        let policy = Policy::from_number(self.policy.load(Ordering::Relaxed));
        let bucket = hash::flow(frame, policy, self.seed) >> 56;
        let place = usize::try_from(word.rest() * BUCKETS as u64 + bucket).ok();
        let member = place.and_then(|place| self.buckets.get(place)).map(|place| place.load(Ordering::Acquire));
        member.and_then(|member| self.word(member)).unwrap_or(Word::new(Target::Refused(Refusal::Unresolved)))
    }
}

/// So many of something, if there is memory for them.
fn filled<T>(count: usize, value: impl FnMut() -> T) -> crate::Result<Box<[T]>> {
    let mut places = Vec::new();
    places.try_reserve_exact(count)?;
    places.resize_with(count, value);
    Ok(places.into_boxed_slice())
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("next_hops", &self.hops.len()).finish_non_exhaustive()
    }
}

impl NextHops for &Shared {
    const CHANGE: bool = true;

    #[inline(always)]
    fn plain(self, number: u32, packet: &Packet) -> Option<Adjacency> {
        let mut word = self.word(number)?;
        let mut link = self.link(word);
        if link.is_none() {
            word = self.member(word, packet.data());
            link = self.link(word);
        }
        let adjacency = word.behind(link?);
        (!adjacency.refuses(packet.len())).then_some(adjacency)
    }

    #[inline(never)]
    fn any(self, number: u32, frame: &[u8]) -> Result<Adjacency, Refusal> {
        let word = self.member(self.word(number).ok_or(Refusal::NoRoute)?, frame);
        let adjacency = word.behind(self.link(word).ok_or_else(|| word.refusal())?);
        if adjacency.is_down() { Err(Refusal::Unresolved) } else { Ok(adjacency) }
    }
}
