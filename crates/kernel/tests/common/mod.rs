//! A data path that follows a mirror: `lpm` gives a number, and the number leads to a word that is replaced in place.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails where a step does")]

use kernel::{Event, Leg, Mirror, NextHops, Prefix, Target};
use lpm::{Config, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHop};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It leaves by one of these legs.
    Forward(Vec<Leg>),
    /// No prefix, the host's own, unreachable, prohibited, or not understood.
    Kernel(&'static str),
    /// It is dropped.
    Blackhole,
}

/// Tables of routes.
#[derive(Debug)]
enum Tables {
    Lpm(Box<(Ipv4Table, Ipv6Table)>),
    /// The same as a list, where what is judged are the events, for lpm writes much for a short prefix.
    List(BTreeMap<(IpAddr, u8), NextHop>),
}

/// Tables of routes, and what their numbers stand for.
#[derive(Debug)]
pub(crate) struct Path {
    tables: Tables,
    /// By number of next hops.
    words: Vec<Answer>,
    pub(crate) events: u64,
}

impl Path {
    /// Everything that a mirror holds, in a list.
    pub(crate) fn list(mirror: &Mirror) -> Self {
        let routes = mirror.routes().map(|(prefix, target)| ((prefix.address, prefix.len), hop(target)));
        Self::with(Tables::List(routes.collect()), mirror)
    }

    /// Everything that a mirror holds, in tables that are built at once.
    pub(crate) fn load(mirror: &Mirror) -> Self {
        let (mut v4, mut v6) = (Vec::with_capacity(mirror.prefix_counts().0), Vec::new());
        for (Prefix { address, len }, target) in mirror.routes() {
            match address {
                IpAddr::V4(address) => v4.push((Ipv4Prefix::new(address, len).unwrap(), hop(target))),
                IpAddr::V6(address) => v6.push((Ipv6Prefix::new(address, len).unwrap(), hop(target))),
            }
        }
        let v4 = Ipv4Table::from_routes(Config::default(), v4).unwrap();
        let v6 = Ipv6Table::from_routes(Config::default(), v6).unwrap();
        Self::with(Tables::Lpm(Box::new((v4, v6))), mirror)
    }

    fn with(tables: Tables, mirror: &Mirror) -> Self {
        let mut path = Self { tables, words: Vec::new(), events: 0 };
        for (number, now) in mirror.next_hops() {
            path.write(number, now);
        }
        path
    }

    pub(crate) fn follow(&mut self, event: Event<'_>) {
        self.events += 1;
        match event {
            Event::NextHops { number, now } => self.write(number, now),
            Event::Route { prefix: Prefix { address, len }, to } => {
                if let Some(Target::NextHops(number)) = to {
                    let word = self.words.get(number as usize);
                    assert!(word.is_some_and(|word| *word != Answer::Kernel("free")), "{address}/{len} to {number}");
                }
                match (&mut self.tables, address) {
                    (Tables::Lpm(tables), IpAddr::V4(address)) => {
                        change(&mut tables.0, Ipv4Prefix::new(address, len).unwrap(), to);
                    }
                    (Tables::Lpm(tables), IpAddr::V6(address)) => {
                        change(&mut tables.1, Ipv6Prefix::new(address, len).unwrap(), to);
                    }
                    (Tables::List(list), address) => {
                        let old = match to {
                            Some(target) => list.insert((address, len), hop(target)),
                            None => Some(list.remove(&(address, len)).expect("a prefix goes only once")),
                        };
                        assert_ne!(old, to.map(hop), "{address}/{len}: no change");
                    }
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, number: u32, now: NextHops<'_>) {
        let number = number as usize;
        if self.words.len() <= number {
            self.words.resize(number + 1, Answer::Kernel("free"));
        }
        self.words[number] = match now {
            NextHops::Forward(legs) => Answer::Forward(legs.to_vec()),
            NextHops::Blackhole => Answer::Blackhole,
            NextHops::Kernel(_) => Answer::Kernel("not understood"),
            NextHops::Dead => Answer::Kernel("dead"),
            NextHops::Free => Answer::Kernel("free"),
        };
    }

    pub(crate) fn lookup(&self, address: IpAddr) -> Answer {
        self.answer(match (&self.tables, address) {
            (Tables::Lpm(tables), IpAddr::V4(address)) => tables.0.lookup(address),
            (Tables::Lpm(tables), IpAddr::V6(address)) => tables.1.lookup(address),
            (Tables::List(list), address) => {
                let holds = |(prefix, len): &(IpAddr, u8)| match (address, *prefix) {
                    (IpAddr::V4(one), IpAddr::V4(other)) => {
                        (one.to_bits() ^ other.to_bits()).leading_zeros() >= (*len).into()
                    }
                    (IpAddr::V6(one), IpAddr::V6(other)) => {
                        (one.to_bits() ^ other.to_bits()).leading_zeros() >= (*len).into()
                    }
                    _ => false,
                };
                list.iter().filter(|(prefix, _)| holds(prefix)).max_by_key(|((_, len), _)| *len).map(|(_, hop)| *hop)
            }
        })
    }

    /// Every prefix and what happens there.
    pub(crate) fn all(&self) -> Vec<(String, Answer)> {
        let mut all: Vec<_> = match &self.tables {
            Tables::Lpm(tables) => {
                let v4 = tables.0.iter().map(|(prefix, hop)| (prefix.to_string(), self.answer(Some(hop))));
                v4.chain(tables.1.iter().map(|(prefix, hop)| (prefix.to_string(), self.answer(Some(hop))))).collect()
            }
            Tables::List(list) => {
                list.iter().map(|((prefix, len), hop)| (format!("{prefix}/{len}"), self.answer(Some(*hop)))).collect()
            }
        };
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    fn answer(&self, hop: Option<NextHop>) -> Answer {
        match hop.map(NextHop::get) {
            None => Answer::Kernel("no route"),
            Some(0) => Answer::Kernel("local"),
            Some(1) => Answer::Blackhole,
            Some(2) => Answer::Kernel("unreachable"),
            Some(3) => Answer::Kernel("prohibited"),
            Some(4) => Answer::Kernel("not understood"),
            Some(hop) => self.words[(hop - FIRST) as usize].clone(),
        }
    }
}

/// Numbers of next hops begin here; those below are fixed.
const FIRST: u32 = 5;

fn hop(target: Target) -> NextHop {
    let number = match target {
        Target::Local => 0,
        Target::Blackhole => 1,
        Target::Unreachable => 2,
        Target::Prohibit => 3,
        Target::Kernel(_) => 4,
        Target::NextHops(number) => FIRST + number,
    };
    NextHop::new(number).unwrap()
}

fn change<F: lpm::Family>(table: &mut lpm::Table<F>, prefix: F::Prefix, to: Option<Target>) {
    match to {
        Some(target) => drop(table.insert(prefix, hop(target)).unwrap()),
        None => drop::<NextHop>(table.remove(prefix).expect("a prefix goes only once")),
    }
}
