//! The links of a run's ports, and how often they went down.

use crate::exit::Failure;
use crate::report::link_words;
use nic::{LinkStatus, Opened, Port as _};

/// Watches links. It knows of one that went down and came back between two looks, if the device tells of that.
#[derive(Debug)]
pub(crate) struct Links(Vec<Link>);

#[derive(Debug)]
struct Link {
    last: LinkStatus,
    downs: u64,
}

impl Links {
    /// Begins with the present state of each port: what happened before is forgotten, but that one which was up is down.
    pub(crate) fn of(opened: &mut [Opened], were_up: bool) -> Result<Self, Failure> {
        let link = |Opened { port, .. }: &mut Opened| {
            port.events()?;
            let last = port.link()?;
            Ok(Link { last, downs: u64::from(were_up && !last.up) })
        };
        Ok(Self(opened.iter_mut().map(link).collect::<Result<_, Failure>>()?))
    }

    /// Asks each port for its events, and logs changes of its link. Returns an error if a device must not be used any more: the
    /// kernel wants it back, it is broken, or it is gone.
    pub(crate) fn look(&mut self, opened: &mut [Opened]) -> Result<(), Failure> {
        for (Link { last, downs }, Opened { port, .. }) in self.0.iter_mut().zip(opened) {
            let changed = port.events()?.link_changed;
            let before = std::mem::replace(last, port.link()?);
            if before.up != last.up {
                // It may have changed in between the two; that is not to be told of once more.
                port.events()?;
            }
            *downs += u64::from(before.up && (changed || !last.up));
            if changed || before != *last {
                tracing::info!("{}: link {}", port.name(), link_words(*last));
            }
        }
        Ok(())
    }

    /// Returns the state of each port's link at the last look.
    pub(crate) fn states(&self) -> impl Iterator<Item = LinkStatus> {
        self.0.iter().map(|link| link.last)
    }

    /// Returns for each port how often its link went down, as far as that was seen.
    pub(crate) fn downs(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|link| link.downs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mempool::{Pool, PoolConfig};
    use std::time::Duration;

    #[test]
    fn a_link_that_is_back_at_the_next_look_was_down() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let open = |address: &str| nic::open(&address.parse().unwrap(), &nic::PortConfig::default(), &pool).unwrap();
        let mut opened = [open("soft:a"), open("soft:b")];
        let limit = Duration::from_secs(60);
        opened.iter().for_each(|opened| assert!(opened.port.wait_link(limit).unwrap().up));
        let mut links = Links::of(&mut opened, true).unwrap();
        let mut after = |opened: &mut [Opened], states: &[bool]| {
            for up in states {
                opened[1].port.soft().unwrap().set_link(*up);
                if *up {
                    assert!(opened[1].port.wait_link(limit).unwrap().up);
                }
            }
            links.look(opened).unwrap();
            links.downs().collect::<Vec<_>>()
        };
        for (states, downs) in [
            (&[][..], 0),
            (&[false, true], 1),
            (&[], 1),
            (&[false], 2),
            (&[], 2),
            (&[true], 2),
            (&[], 2),
            (&[false, true, false], 3),
            (&[true], 3),
        ] {
            assert_eq!(after(&mut opened, states), [0, downs], "{states:?}");
        }
        opened[1].port.soft().unwrap().set_link(false);
        for (were_up, downs) in [(true, 1), (false, 0)] {
            let links = Links::of(&mut opened, were_up).unwrap();
            assert_eq!(links.downs().collect::<Vec<_>>(), [0, downs]);
        }
    }
}
