//! The MAC addresses of next hops: asked for, kept, asked for again (RFC 4861, 7.3; RFC 1122, 2.3.2.1).

use crate::Error;
use std::net::IpAddr;
use std::time::Duration;

/// Next hops that a station keeps.
pub const MAX_NEIGHBOURS: usize = 256;

/// Questions before it gives up, and the time between two (`MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT` and `RETRANS_TIMER` of
/// RFC 4861, section 10).
const TRIES: u8 = 3;
const RETRY: Duration = Duration::from_secs(1);
/// How long an answer holds (`REACHABLE_TIME`).
const REACHABLE: Duration = Duration::from_secs(30);
/// How long it does not ask again for a next hop that has not answered.
const HOLD: Duration = Duration::from_secs(1);

/// All next hops that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Vec<Neighbour>);

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    mac: Option<[u8; 6]>,
    /// When it last said so.
    confirmed: Duration,
    used: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Known,
    /// So many questions, and when the next is due.
    Asking(u8, Duration),
    /// Since then.
    Silent(Duration),
}

impl Neighbours {
    /// The MAC address of a next hop; `None` while it is asked for.
    pub(crate) fn find(&mut self, now: Duration, address: IpAddr) -> Result<Option<[u8; 6]>, Error> {
        let asked = State::Asking(0, now);
        let Some(known) = self.0.iter_mut().find(|known| known.address == address) else {
            self.make_room(address)?;
            self.0.push(Neighbour { address, mac: None, confirmed: now, used: now, state: asked });
            return Ok(None);
        };
        known.used = now;
        match known.state {
            State::Silent(since) if now.saturating_sub(since) < HOLD => {
                return Err(Error::NoAnswer { next_hop: address, asked: TRIES });
            }
            State::Silent(_) => known.state = asked,
            State::Known if now.saturating_sub(known.confirmed) >= REACHABLE => known.state = asked,
            State::Known | State::Asking(..) => {}
        }
        Ok(known.mac)
    }

    /// The one that was not used for the longest time goes, if there are too many.
    fn make_room(&mut self, address: IpAddr) -> Result<(), Error> {
        if self.0.len() < MAX_NEIGHBOURS {
            return Ok(());
        }
        let idle = self.0.iter().enumerate().filter(|(_, known)| !matches!(known.state, State::Asking(..)));
        let (oldest, _) = idle.min_by_key(|(_, known)| known.used).ok_or(Error::Busy(address))?;
        self.0.swap_remove(oldest);
        Ok(())
    }

    /// Those to be asked now, each with the MAC address that it had, to be asked there.
    pub(crate) fn due(&mut self, now: Duration) -> impl Iterator<Item = (IpAddr, Option<[u8; 6]>)> {
        self.0.iter_mut().filter_map(move |known| {
            let State::Asking(asked, next) = known.state else { return None };
            if now < next {
                return None;
            }
            let asked = match (asked, known.mac) {
                (TRIES, None) => {
                    known.state = State::Silent(now);
                    return None;
                }
                // It may have another MAC address by now: all are asked.
                (TRIES, Some(_)) => {
                    known.mac = None;
                    0
                }
                (asked, _) => asked,
            };
            known.state = State::Asking(asked + 1, now.saturating_add(RETRY));
            Some((known.address, known.mac))
        })
    }

    /// A next hop has said where it is; `mac` is `None` if it said only that it is there. Without `overrides` a MAC address that is
    /// known stays. Returns whether it has moved.
    pub(crate) fn learn(&mut self, now: Duration, address: IpAddr, mac: Option<[u8; 6]>, overrides: bool) -> bool {
        let Some(known) = self.0.iter_mut().find(|known| known.address == address) else { return false };
        let moved = match (known.mac, mac) {
            (None, None) => return false,
            (Some(old), Some(new)) if old != new && !overrides => return false,
            (Some(old), Some(new)) => old != new,
            _ => false,
        };
        (known.mac, known.confirmed, known.state) = (mac.or(known.mac), now, State::Known);
        moved
    }
}
