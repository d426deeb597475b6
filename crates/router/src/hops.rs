//! Next hops that change in place: words shared by the thread that changes them and the forwarders that read them.

use crate::Neighbour;
use crate::check::Refusal;
use crate::ethernet::{self, HEADER, Interface, MacAddress, Station};
use crate::fib::{Adjacency, low48};
use crate::hash::{self, Policy};
use crate::rewrite::NextHops;
use mempool::Packet;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
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

/// A [`Target`] in 64 bits: in the lower 16 the port, or one of the marks below; in the others what it says. A neighbour to be probed has
/// [`Self::PROBE`] set in its port, which is no port then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const GROUP: u16 = 0xFFFF;
    const REFUSED: u16 = 0xFFFE;
    /// Ports are below.
    pub(crate) const PORTS: u16 = 0x7E00;
    const PROBE: u16 = 0x8000;

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

    /// The word of a neighbour to be probed without that mark; `None` of all other words.
    fn without_probe(self) -> Option<Self> {
        let port = self.mark() & !Self::PROBE;
        (self.mark() & Self::PROBE != 0 && port < Self::PORTS).then_some(Self(self.0 & !u64::from(Self::PROBE)))
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
    /// For each port [`PROMISCUOUS`], [`NO_IPV4`] and [`NO_IPV6`].
    flags: Box<[AtomicU8]>,
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
            flags: ports.iter().map(|port| AtomicU8::new(u8::from(port.promiscuous) * PROMISCUOUS)).collect(),
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
        let (Some(link), Some(flags)) = (self.links.get(port), self.flags.get(port)) else { return };
        let promiscuous = u8::from(interface.is_some_and(|interface| interface.promiscuous)) * PROMISCUOUS;
        flags.store(flags.load(Ordering::Relaxed) & !PROMISCUOUS | promiscuous, Ordering::Relaxed);
        link.store(interface.map_or(0, |interface| Link::new(interface).0), Ordering::Release);
    }

    /// Whether packets of IPv4 and IPv6 that come in by a port are looked up.
    pub(crate) fn set_families(&self, port: usize, [v4, v6]: [bool; 2]) {
        let Some(flags) = self.flags.get(port) else { return };
        let off = (u8::from(!v4) * NO_IPV4) | (u8::from(!v6) * NO_IPV6);
        flags.store(flags.load(Ordering::Relaxed) & PROMISCUOUS | off, Ordering::Release);
    }

    /// Has the next packet to a neighbour refused as [`Refusal::Probe`]. `target` is what the next hop leads to.
    pub(crate) fn probe(&self, number: u32, target: Target) {
        if let (Some(word), Target::Neighbour(_)) = (self.hops.get(number as usize), target) {
            word.store(Word::new(target).0 | u64::from(Word::PROBE), Ordering::Release);
        }
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
        let (Some(link), Some(flags)) = (self.links.get(port), self.flags.get(port)) else {
            return Station::NOBODY;
        };
        let link = Link(link.load(Ordering::Acquire));
        if link.longest() == 0 {
            return Station::NOBODY;
        }
        Station::of(link.mac(), flags.load(Ordering::Relaxed) & PROMISCUOUS != 0)
    }

    /// What is not looked up of what comes in by a port: [`NO_IPV4`], [`NO_IPV6`].
    #[inline(always)]
    pub(crate) fn off(&self, port: usize) -> u8 {
        self.flags.get(port).map_or(0, |flags| flags.load(Ordering::Acquire) & !PROMISCUOUS)
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
        let Some(member) = self.member_number(word, frame) else { return word };
        member.ok().and_then(|member| self.word(member)).unwrap_or(Word::new(Target::Refused(Refusal::Unresolved)))
    }

    /// The number of that member; `None` unless the word is a group's.
    fn member_number(&self, word: Word, frame: &[u8]) -> Option<Result<u32, Refusal>> {
        if word.mark() != Word::GROUP {
            return None;
        }
        let policy = Policy::from_number(self.policy.load(Ordering::Relaxed));
        let bucket = hash::flow(frame, policy, self.seed) >> 56;
        let place = usize::try_from(word.rest() * BUCKETS as u64 + bucket).ok();
        let member = place.and_then(|place| self.buckets.get(place)).map(|place| place.load(Ordering::Acquire));
        Some(member.ok_or(Refusal::Unresolved))
    }

    /// The word of a next hop that a packet is about to leave by, which may be marked to be probed: then the first packet takes the mark
    /// off, and is refused. Other words stay as they are.
    ///
    /// The word marked and the word without the mark say the same, so the exchange is right whatever was written meanwhile: it
    /// succeeds only if the writer's last word is that of this neighbour, at this address, and leaves just that.
    #[cold]
    fn take_probe(&self, number: u32, word: Word) -> Result<Word, Refusal> {
        let (Some(plain), Some(place)) = (word.without_probe(), self.hops.get(number as usize)) else {
            return Ok(word);
        };
        match place.compare_exchange(word.0, plain.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Err(Refusal::Probe),
            // Another one was first, or the word is a new one, whose mark, if any, is for the next packet.
            Err(now) => Ok(Word(now).without_probe().unwrap_or(Word(now))),
        }
    }
}

/// A port takes frames for any station.
const PROMISCUOUS: u8 = 1;
/// IPv4 packets that come in by a port are refused as [`Refusal::LeftToHost`].
const NO_IPV4: u8 = 2;
/// And those of IPv6.
const NO_IPV6: u8 = 4;

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
        let mut number = number;
        let mut word = self.word(number).ok_or(Refusal::NoRoute)?;
        if let Some(member) = self.member_number(word, frame) {
            number = member?;
            word = self.word(number).ok_or(Refusal::Unresolved)?;
        }
        let mut link = self.link(word);
        if link.is_none() {
            word = self.take_probe(number, word)?;
            link = self.link(word);
        }
        let adjacency = word.behind(link.ok_or_else(|| word.refusal())?);
        if adjacency.is_down() { Err(Refusal::Unresolved) } else { Ok(adjacency) }
    }
}

/// Next hops for what came in by a port that leaves a family to the host.
#[derive(Clone, Copy)]
pub(crate) struct Switched<'a> {
    pub(crate) shared: &'a Shared,
    /// [`NO_IPV4`], [`NO_IPV6`].
    pub(crate) off: u8,
}

impl NextHops for Switched<'_> {
    const CHANGE: bool = true;

    /// None: the slow way is asked for each packet.
    #[inline(always)]
    fn plain(self, _: u32, _: &Packet) -> Option<Adjacency> {
        None
    }

    fn any(self, number: u32, frame: &[u8]) -> Result<Adjacency, Refusal> {
        let family = if frame.get(12..14).is_some_and(|found| found == ethernet::IPV6) { NO_IPV6 } else { NO_IPV4 };
        if self.off & family != 0 { Err(Refusal::LeftToHost) } else { self.shared.any(number, frame) }
    }
}
