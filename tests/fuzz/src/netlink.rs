//! Netlink messages of any content: each is an error or a message, whatever order they come in, and what the mirror tells is what it
//! holds.

use kernel::{Body, Dump, Event, Messages, Mirror, NextHops, Ports, Prefix, Target};
use std::collections::BTreeMap;

/// What a data path would hold.
#[derive(Default)]
struct Told {
    routes: BTreeMap<Prefix, Target>,
    numbers: BTreeMap<u32, String>,
}

impl Told {
    fn follow(&mut self, event: Event<'_>) {
        match event {
            Event::Route { prefix, to: Some(target) } => {
                if let Target::NextHops(number) = target {
                    assert!(self.numbers.contains_key(&number), "{prefix} to {number}, which nobody has told of");
                }
                assert_ne!(self.routes.insert(prefix, target), Some(target), "{prefix} as it was");
            }
            Event::Route { prefix, to: None } => assert!(self.routes.remove(&prefix).is_some(), "{prefix} goes twice"),
            Event::NextHops { number, now: NextHops::Free } => {
                assert!(self.numbers.remove(&number).is_some());
                assert!(!self.routes.values().any(|target| *target == Target::NextHops(number)));
            }
            Event::NextHops { number, now } => drop(self.numbers.insert(number, format!("{now:?}"))),
            _ => {}
        }
    }

    fn equals(&self, mirror: &Mirror) {
        let routes: BTreeMap<_, _> = mirror.routes().collect();
        assert_eq!(self.routes, routes);
        let numbers: BTreeMap<_, _> = mirror.next_hops().map(|(number, now)| (number, format!("{now:?}"))).collect();
        assert_eq!(self.numbers, numbers);
    }
}

/// Runs one input: datagrams, each with two bytes of length in front and one that says what is done before it: 0 to 9 begins a dump,
/// 16 ends the dump, and bit 7 makes it a part of the dump.
pub fn run(input: &[u8]) {
    let (mut mirror, mut told, mut dump) = (Mirror::new(Ports::All), Told::default(), None);
    mirror.load(&mut |event| told.follow(event));
    let mut rest = input;
    while let Some(([low, high, step], more)) = rest.split_first_chunk::<3>() {
        let (datagram, more) = more.split_at(more.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        rest = more;
        match step & 31 {
            at @ 0..=9 => {
                let next = Dump::ALL[usize::from(at)];
                mirror.begin(next);
                dump = Some(next);
            }
            16 => dump.take().into_iter().for_each(|dump| mirror.finish(dump, &mut |event| told.follow(event))),
            _ => {}
        }
        for message in Messages::new(datagram) {
            let Ok(message) = message else { continue };
            if let Body::NewRoute(route) | Body::DelRoute(route) = &message.body {
                assert!(route.len <= route.family.bits() && route.legs().count() <= datagram.len());
            }
            mirror.apply(&message, dump.is_some() && step & 0x80 != 0, &mut |event| told.follow(event));
        }
    }
    told.equals(&mirror);
}
