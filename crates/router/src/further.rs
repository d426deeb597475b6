//! Further addresses by which frames come in, such as those of macvlans on an interface.

use crate::ethernet::{MacAddress, Station};
use crate::fib::low48;
use crate::interfaces::{Entrance, filled};
use crate::{Error, LiveFib, Result};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A further address of an interface of a [`LiveFib`]: frames to it come in, those that leave do not have it.
///
/// ```
/// # use router::{FurtherMac, Interface, LiveConfig, LiveFib, MacAddress};
/// let port = Interface { mac: [2, 0, 0, 0, 1, 0], promiscuous: false, mtu: 1500 };
/// let mut fib = LiveFib::new(&LiveConfig::default(), &[port])?;
/// // The first virtual router of VRRP.
/// let mac = MacAddress([0, 0, 0x5E, 0, 1, 1]);
/// fib.set_further_macs(&[FurtherMac { interface: 0, mac, looked_up: [true; 2] }])?;
/// # Ok::<(), router::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FurtherMac {
    /// The interface.
    pub interface: u16,
    /// The address.
    pub mac: MacAddress,
    /// Whether IPv4 and IPv6 packets that come in by it are looked up; those that are not are refused as
    /// [`Refusal::LeftToHost`](crate::Refusal::LeftToHost), after all checks of their headers.
    pub looked_up: [bool; 2],
}

impl LiveFib {
    /// Puts these in the place of all further addresses, 256 at most. Frames to one cost more than those to the interface's own.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if there is no such interface, [`Error::Full`] if they are more; then nothing has changed.
    pub fn set_further_macs(&mut self, macs: &[FurtherMac]) -> Result<()> {
        if macs.len() > MOST {
            return Err(Error::Full { what: "further addresses", limit: MOST, waiting: 0 });
        }
        macs.iter().try_for_each(|further| self.sub_interface(further.interface).map(drop))?;
        self.shared.interfaces().further.set(macs);
        Ok(())
    }
}

/// The most further addresses of all interfaces.
const MOST: usize = 256;

/// All further addresses, as forwarders see them.
#[derive(Debug)]
pub(crate) struct Further {
    /// [`key`] of each, [`NONE`] where there is none.
    keys: Box<[AtomicU64]>,
    /// Of each, bit 0 if IPv4 is looked up, bit 1 if IPv6 is.
    families: Box<[AtomicU8]>,
    /// Beyond this many there are none.
    used: AtomicUsize,
}

/// The key of no address: that of zeros, which no interface has.
const NONE: u64 = 0;

/// An address in the lower 48 bits, first byte lowest, and the number of its interface.
fn key(interface: usize, mac: u64) -> u64 {
    mac | (interface as u64) << 48
}

impl Further {
    pub(crate) fn new() -> Result<Self> {
        let families = filled(MOST, || AtomicU8::new(0))?;
        Ok(Self { keys: filled(MOST, || AtomicU64::new(NONE))?, families, used: AtomicUsize::new(0) })
    }

    /// Those that stay keep their places, so that no forwarder misses them meanwhile.
    fn set(&self, macs: &[FurtherMac]) {
        let wanted = |further: &FurtherMac| key(further.interface.into(), low48(further.mac.0));
        for place in
            self.keys.iter().filter(|place| !macs.iter().any(|mac| wanted(mac) == place.load(Ordering::Relaxed)))
        {
            place.store(NONE, Ordering::Release);
        }
        for further in macs.iter().filter(|further| wanted(further) != NONE) {
            let is_at = |key| self.keys.iter().position(|place| place.load(Ordering::Relaxed) == key);
            let Some(at) = is_at(wanted(further)).or_else(|| is_at(NONE)) else { continue };
            let [v4, v6] = further.looked_up.map(u8::from);
            self.families[at].store(v4 | v6 << 1, Ordering::Relaxed);
            self.keys[at].store(wanted(further), Ordering::Release);
        }
        let last = self.keys.iter().rposition(|place| place.load(Ordering::Relaxed) != NONE);
        self.used.store(last.map_or(0, |last| last + 1), Ordering::Release);
    }

    /// How frames that begin with such bytes come in by an interface, if that has their address.
    pub(crate) fn find(&self, interface: usize, start: [u8; 8]) -> Option<Entrance> {
        let [a, b, c, d, e, f, ..] = start;
        let (mac, used) = (low48([a, b, c, d, e, f]), self.used.load(Ordering::Acquire));
        let wanted = key(interface, mac);
        let at = self.keys.iter().take(used).position(|place| place.load(Ordering::Acquire) == wanted)?;
        let families = self.families.get(at)?.load(Ordering::Relaxed);
        // A key of zeros is that of no address.
        let station = Station::of(mac, false);
        (wanted != NONE).then_some(Entrance { station, families: [families & 1 != 0, families & 2 != 0] })
    }
}
