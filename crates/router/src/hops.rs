//! Next hops that change in place: words shared by the thread that changes them and the forwarders that read them.

use crate::check::Refusal;
use crate::ethernet::{self, HEADER, Interface, MacAddress, TAG};
use crate::fib::{Adjacency, low48};
use crate::hash::{self, Policies, Policy};
use crate::interfaces::{Entrance, Exit, Interfaces, Link, filled};
use crate::ipv4::SHORTEST;
use crate::rewrite::{NextHops, SendPlain, Way};
use crate::{Destination, Neighbour};
use lpm::NextHop;
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

/// A [`Target`] in 64 bits: in the upper 16 the interface, or one of the marks below; in the others what it says. A
/// neighbour to be probed has [`Self::PROBE`] set in its interface, which is none then; one to be found is a refusal with
/// [`Self::WANTED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const GROUP: u16 = 0xFFFF;
    const REFUSED: u16 = 0xFFFE;
    /// Numbers of interfaces are below.
    pub(crate) const INTERFACES: u16 = 0x7E00;
    const PROBE: u16 = 0x8000;
    /// Refusals are below.
    const WANTED: u64 = 1 << 32;

    /// `target`, whose interface is below [`Self::INTERFACES`].
    pub(crate) fn new(target: Target) -> Self {
        let (mark, rest) = match target {
            Target::Neighbour(Neighbour { port, mac: MacAddress(mac) }) => (port, low48(mac)),
            Target::Group(Group(number)) => (Self::GROUP, number.into()),
            Target::Refused(refusal) => (Self::REFUSED, refusal as u64),
        };
        Self(rest | u64::from(mark) << 48)
    }

    /// The mark or the interface.
    #[inline(always)]
    fn mark(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// What it says besides.
    #[inline(always)]
    fn rest(self) -> u64 {
        self.0 & 0xFFFF_FFFF_FFFF
    }

    /// Writes the header of an untagged frame of IPv4 from an interface to a neighbour. What is too much of a word, the next store
    /// mends.
    #[inline(always)]
    fn write(self, link: Link, start: &mut [u8; HEADER + SHORTEST]) {
        start[..8].copy_from_slice(&self.0.to_le_bytes());
        start[6..14].copy_from_slice(&link.0.to_le_bytes());
        start[12..14].copy_from_slice(&ethernet::IPV4);
    }

    /// The same with a tag, in front of an EtherType that is there.
    #[inline(always)]
    fn write_tagged(self, link: Link, tag: [u8; TAG], start: &mut [u8; TAG + HEADER + SHORTEST]) {
        start[..8].copy_from_slice(&self.0.to_le_bytes());
        start[6..14].copy_from_slice(&link.0.to_le_bytes());
        start[12..16].copy_from_slice(&tag);
    }

    /// The word of a neighbour with the mark that it is to be probed, and that of one to be found; `None` if there is no such.
    fn marked(target: Target) -> Option<Self> {
        let Self(plain) = Self::new(target);
        match target {
            Target::Neighbour(_) => Some(Self(plain | u64::from(Self::PROBE) << 48)),
            Target::Refused(Refusal::Unresolved) => Some(Self(plain | Self::WANTED)),
            _ => None,
        }
    }

    /// A word marked so without its mark; `None` of all other words.
    #[inline]
    fn without_mark(self) -> Option<Self> {
        if self.mark() & Self::PROBE == 0 {
            return None;
        }
        if self.mark() == Self::REFUSED {
            return (self.0 & Self::WANTED != 0).then_some(Self(self.0 & !Self::WANTED));
        }
        let interface = self.mark() & !Self::PROBE;
        (interface < Self::INTERFACES).then_some(Self(self.rest() | u64::from(interface) << 48))
    }

    /// Why packets to it are refused, unless it is a neighbour's. Groups are not members.
    #[cold]
    fn refusal(self) -> Refusal {
        let index = usize::try_from(self.rest()).unwrap_or(usize::MAX);
        let refusal = Refusal::ALL.get(index).copied().filter(|_| self.mark() == Self::REFUSED);
        refusal.unwrap_or(Refusal::Unresolved)
    }
}

/// What the writer of a [`LiveFib`](crate::LiveFib) and its forwarders share.
pub(crate) struct Shared {
    hops: Box<[AtomicU64]>,
    interfaces: Interfaces,
    /// [`BUCKETS`] for each group: numbers of next hops.
    buckets: Box<[AtomicU32]>,
    /// [`Policies`].
    policies: AtomicU32,
    seed: u64,
    /// Whether packets by a group that take a mark off leave.
    members_pass: AtomicBool,
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
    pub(crate) fn new(next_hops: usize, groups: usize, interfaces: Interfaces, seed: u64) -> crate::Result<Self> {
        let unused = Word::new(Target::Refused(Refusal::Unresolved)).0;
        let buckets = groups.checked_mul(BUCKETS).ok_or(crate::Error::OutOfMemory)?;
        Ok(Self {
            hops: filled(next_hops, || AtomicU64::new(unused))?,
            interfaces,
            buckets: filled(buckets, || AtomicU32::new(u32::MAX))?,
            policies: AtomicU32::new(Policies::new([Policy::Addresses; 2]).0),
            seed,
            members_pass: AtomicBool::new(false),
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

    #[inline(always)]
    pub(crate) fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Writes the word of a next hop: one store, whoever reads it.
    pub(crate) fn set_hop(&self, number: u32, target: Target) {
        if let Some(word) = self.hops.get(number as usize) {
            word.store(Word::new(target).0, Ordering::Release);
        }
    }

    /// Marks the word of a neighbour, or of one that is not resolved. `target` is what the next hop leads to.
    pub(crate) fn probe(&self, number: u32, target: Target) {
        if let (Some(word), Some(marked)) = (self.hops.get(number as usize), Word::marked(target)) {
            word.store(marked.0, Ordering::Release);
        }
    }

    /// Whether a word has a mark that no packet has taken off.
    pub(crate) fn is_marked(&self, number: u32) -> bool {
        self.word(number).is_some_and(|word| word.without_mark().is_some())
    }

    pub(crate) fn set_members_pass(&self, pass: bool) {
        self.members_pass.store(pass, Ordering::Relaxed);
    }

    /// The buckets of a group.
    pub(crate) fn buckets(&self, group: Group) -> &[AtomicU32] {
        let first = group.0 as usize * BUCKETS;
        self.buckets.get(first..first + BUCKETS).unwrap_or_default()
    }

    pub(crate) fn set_policies(&self, policies: [Policy; 2]) {
        self.policies.store(Policies::new(policies).0, Ordering::Relaxed);
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

    #[inline(always)]
    fn word(&self, number: u32) -> Option<Word> {
        self.hops.get(number as usize).map(|word| Word(word.load(Ordering::Acquire)))
    }

    /// The word of the member of a group that the flow of a frame belongs to; other words as they are.
    #[inline(never)]
    fn member(&self, word: Word, frame: &[u8]) -> Word {
        let Some(member) = self.member_number(word, frame) else { return word };
        member.ok().and_then(|member| self.word(member)).unwrap_or(Word::new(Target::Refused(Refusal::Unresolved)))
    }

    /// The port by which a frame leaves without a tag, if its way is a neighbour that need not be probed.
    pub(crate) fn port_of(&self, number: u32, frame: &[u8]) -> Option<u16> {
        let word = self.member(self.word(number)?, frame);
        Some(word.mark()).filter(|mark| usize::from(*mark) < self.interfaces.ports())
    }

    /// Whom a packet is for that is refused: by its destination's next hop, whether only a host of the link can have that, and whether the
    /// interface that it came in by looks it up.
    #[inline(always)]
    pub(crate) fn whose(
        &self,
        is_of_the_link: bool,
        hop: Option<NextHop>,
        is_looked_up: impl FnOnce() -> bool,
    ) -> Destination {
        let for_host = Word::new(Target::Refused(Refusal::ForHost));
        if is_of_the_link || hop.is_some_and(|hop| self.word(hop.get()) == Some(for_host)) {
            Destination::Host
        } else if is_looked_up() {
            Destination::Elsewhere
        } else {
            Destination::Unknown
        }
    }

    /// The number of that member; `None` unless the word is a group's.
    fn member_number(&self, word: Word, frame: &[u8]) -> Option<Result<u32, Refusal>> {
        if word.mark() != Word::GROUP {
            return None;
        }
        let policies = Policies(self.policies.load(Ordering::Relaxed));
        let bucket = hash::flow(frame, policies, self.seed) >> 56;
        let place = usize::try_from(word.rest() * BUCKETS as u64 + bucket).ok();
        let member = place.and_then(|place| self.buckets.get(place)).map(|place| place.load(Ordering::Acquire));
        Some(member.ok_or(Refusal::Unresolved))
    }

    /// The word of a next hop that a packet is about to leave by, which may be marked: then the first packet takes the mark off, and is
    /// refused if it is to probe a neighbour, unless it came by a group and those are to pass. Other words stay as they are.
    ///
    /// The word marked and the word without the mark say the same, so the exchange is right whatever was written meanwhile: it
    /// succeeds only if the writer's last word is that of this neighbour, at this address, and leaves just that.
    #[inline]
    fn take_mark(&self, number: u32, word: Word, by_group: bool) -> Result<Word, Refusal> {
        let (Some(plain), Some(place)) = (word.without_mark(), self.hops.get(number as usize)) else {
            return Ok(word);
        };
        match place.compare_exchange(word.0, plain.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if by_group && self.members_pass.load(Ordering::Relaxed) => Ok(plain),
            Ok(_) if plain.mark() < Word::INTERFACES => Err(Refusal::Probe),
            Ok(_) => Ok(plain),
            // Another one was first, or the word is a new one, whose mark, if any, is for the next packet.
            Err(now) => Ok(Word(now).without_mark().unwrap_or(Word(now))),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("next_hops", &self.hops.len()).finish_non_exhaustive()
    }
}

/// What most packets need of [`Shared`], at hand.
#[derive(Clone, Copy)]
struct Near<'a> {
    hops: &'a [AtomicU64],
    /// A [`Link`] for each port, and for no sub-interface: what leaves by those gets a tag.
    ports: &'a [AtomicU64],
    shared: &'a Shared,
}

impl Near<'_> {
    /// The port of a neighbour's word; `None` of all other words, and of sub-interfaces.
    #[inline(always)]
    fn link(self, word: Word) -> Option<Link> {
        self.ports.get(usize::from(word.mark())).map(|link| Link(link.load(Ordering::Acquire)))
    }
}

impl SendPlain for Near<'_> {
    #[inline(always)]
    fn send(self, number: u32, packet: &mut Packet) -> Option<u16> {
        let mut word = Word(self.hops.get(number as usize)?.load(Ordering::Acquire));
        let mut link = self.link(word);
        if link.is_none() {
            if word.mark() != Word::GROUP {
                return None;
            }
            word = self.shared.member(word, packet.data());
            link = self.link(word);
        }
        let link = link.filter(|link| packet.len() <= link.longest().into())?;
        let start: &mut [u8; HEADER + SHORTEST] = packet.data_mut().first_chunk_mut()?;
        word.write(link, start);
        wire::hop(start.last_chunk_mut()?);
        Some(word.mark())
    }
}

impl NextHops for &Shared {
    const CHANGE: bool = true;

    #[inline(always)]
    fn near(self) -> impl SendPlain {
        Near { hops: &self.hops, ports: self.interfaces.links(), shared: self }
    }

    #[inline(never)]
    fn any(self, number: u32, frame: &[u8]) -> Result<Way, Refusal> {
        let (route, mut number) = (number, number);
        let mut word = self.word(number).ok_or(Refusal::NoRoute)?;
        if let Some(member) = self.member_number(word, frame) {
            number = member?;
            word = self.word(number).ok_or(Refusal::Unresolved)?;
        }
        let word = self.take_mark(number, word, number != route)?;
        let exit = self.interfaces.exit(word.mark()).ok_or_else(|| word.refusal())?;
        let Exit { link, port, tag } = exit.ok_or(Refusal::Unresolved)?;
        let is_v6 = frame.get(HEADER - 2..HEADER) == Some(&ethernet::IPV6);
        let longest = if is_v6 { self.interfaces.longest_v6(word.mark(), link) } else { link.longest() };
        Ok(Way { adjacency: Adjacency::of_words(word.rest(), link.mac(), port, longest), tag })
    }

    #[inline(always)]
    fn send_tagged(self, number: u32, packet: &mut Packet) -> Option<u16> {
        let mut word = self.word(number)?;
        if word.mark() == Word::GROUP {
            word = self.member(word, packet.data());
        }
        let Exit { link, port, tag } = self.interfaces.exit(word.mark())??;
        let tag = tag?;
        let is_whole = (HEADER + SHORTEST..=link.longest().into()).contains(&packet.len());
        if !is_whole || packet.prepend(TAG).is_none() {
            return None;
        }
        let start = packet.data_mut().first_chunk_mut()?;
        word.write_tagged(link, tag, start);
        wire::hop(start.last_chunk_mut()?);
        Some(port)
    }

    #[inline(always)]
    fn send_retagged(self, number: u32, packet: &mut Packet) -> Option<u16> {
        let mut word = self.word(number)?;
        if word.mark() == Word::GROUP {
            word = self.member(word, packet.data().get(TAG..)?);
        }
        let Exit { link, port, tag } = self.interfaces.exit(word.mark())??;
        if packet.len() > usize::from(link.longest()) + TAG {
            return None;
        }
        let Some(tag) = tag else {
            packet.trim_front(TAG);
            let start: &mut [u8; HEADER + SHORTEST] = packet.data_mut().first_chunk_mut()?;
            word.write(link, start);
            wire::hop(start.last_chunk_mut()?);
            return Some(port);
        };
        let start = packet.data_mut().first_chunk_mut()?;
        word.write_tagged(link, tag, start);
        wire::hop(start.last_chunk_mut()?);
        Some(port)
    }

    fn back(self, _: usize) -> Option<Interface> {
        None
    }

    fn entrance(self, port: usize, vlan: Option<u16>, start: Option<[u8; 8]>) -> Option<Entrance> {
        self.interfaces.entrance(port, vlan, start)
    }
}
