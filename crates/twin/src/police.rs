//! How many frames of each class a port hands over to the host.

use crate::Class;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames in a second, and how many may come at once.
///
/// ```
/// let rate = twin::Rate { per_second: 1000, burst: 100 };
/// # let _ = rate;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Frames in a second; 0 lets none pass.
    pub per_second: u32,
    /// Frames at once, after a pause; 0 lets none pass.
    pub burst: u32,
}

/// The rate of each class of a port.
///
/// ```
/// use twin::{Class, Rate, Rates};
/// let rates = Rates { own: Rate { per_second: 500, burst: 50 }, ..Rates::default() };
/// assert_eq!(rates.of(Class::Own).burst, 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of [`Class::Link`].
    pub link: Rate,
    /// Of [`Class::Ospf`].
    pub ospf: Rate,
    /// Of [`Class::IsIs`].
    pub isis: Rate,
    /// Of [`Class::Vrrp`].
    pub vrrp: Rate,
    /// Of [`Class::Bgp`].
    pub bgp: Rate,
    /// Of [`Class::Bfd`].
    pub bfd: Rate,
    /// Of [`Class::BfdMultihop`].
    pub bfd_multihop: Rate,
    /// Of [`Class::Own`].
    pub own: Rate,
    /// Of [`Class::Groups`].
    pub groups: Rate,
    /// Of [`Class::Other`].
    pub other: Rate,
    /// Of [`Class::Error`].
    pub error: Rate,
    /// Of [`Class::Unresolved`].
    pub unresolved: Rate,
    /// Of [`Class::Probe`].
    pub probe: Rate,
    /// Of [`Class::Left`].
    pub left: Rate,
}

impl Rates {
    /// Returns the rate of a class.
    #[must_use]
    pub fn of(&self, class: Class) -> Rate {
        match class {
            Class::Link => self.link,
            Class::Ospf => self.ospf,
            Class::IsIs => self.isis,
            Class::Vrrp => self.vrrp,
            Class::Bgp => self.bgp,
            Class::Bfd => self.bfd,
            Class::BfdMultihop => self.bfd_multihop,
            Class::Own => self.own,
            Class::Groups => self.groups,
            Class::Other => self.other,
            Class::Error => self.error,
            Class::Unresolved => self.unresolved,
            Class::Probe => self.probe,
            Class::Left => self.left,
        }
    }
}

impl Default for Rates {
    /// 5,000 frames a second of link control, of whatever else is not IP, of unresolved ones and of probes; 10,000 of errors, OSPF, IS-IS, VRRP
    /// and both of BFD; 50,000 of BGP, which carries whole tables, of the host's own, of groups and of what is left to it; bursts of 256, and
    /// 512 of BGP.
    fn default() -> Self {
        let rate = |per_second| Rate { per_second, burst: 256 };
        Self {
            link: rate(5000),
            ospf: rate(10_000),
            isis: rate(10_000),
            vrrp: rate(10_000),
            bgp: Rate { per_second: 50_000, burst: 512 },
            bfd: rate(10_000),
            bfd_multihop: rate(10_000),
            own: rate(50_000),
            groups: rate(50_000),
            other: rate(5000),
            error: rate(10_000),
            unresolved: rate(5000),
            probe: rate(5000),
            left: rate(50_000),
        }
    }
}

/// A token bucket over a clock that its caller reads; several threads may use one.
///
/// ```
/// use twin::{Bucket, Rate};
///
/// // A clock of a thousand ticks a second.
/// let bucket = Bucket::new(Rate { per_second: 10, burst: 2 }, 1000);
/// assert_eq!([5, 5, 5, 105].map(|now| bucket.take(now)), [true, true, false, true]);
/// ```
#[derive(Debug)]
pub struct Bucket {
    /// When the bucket would be full again, if no more is taken.
    full_at: AtomicU64,
    /// Ticks for which a frame empties it, and for which all do.
    frame: u64,
    whole: u64,
}

impl Bucket {
    /// Creates a full one, for a clock of `ticks_per_second`. Rates are rounded down to whole ticks between two frames.
    #[must_use]
    pub fn new(rate: Rate, ticks_per_second: u64) -> Self {
        let frame = ticks_per_second.div_ceil(rate.per_second.max(1).into()).max(1);
        let burst = if rate.per_second == 0 { 0 } else { rate.burst };
        Self { full_at: AtomicU64::new(0), frame, whole: frame.saturating_mul(burst.into()) }
    }

    /// Takes a frame's share, if it is there at `now`. A clock that goes back gives nothing twice.
    #[must_use]
    pub fn take(&self, now: u64) -> bool {
        let limit = now.saturating_add(self.whole);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        // Another thread takes its share at the same moment; if that happens again and again, there is a flood.
        for _ in 0..TRIES {
            let next = full_at.max(now).saturating_add(self.frame);
            if next > limit {
                return false;
            }
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => full_at = seen,
            }
        }
        false
    }
}

/// Attempts to take a share beside other threads.
const TRIES: u32 = 64;

/// A bucket for each class of a port, and how many frames it has let pass and not.
///
/// ```
/// use twin::{Class, Police, Rates};
///
/// let police = Police::new(&Rates::default(), 1_000_000);
/// assert!(police.passes(Class::Link, 0));
/// assert_eq!(police.count(Class::Link), (1, 0));
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct Police([Beat; Class::ALL.len()]);

#[derive(Debug)]
struct Beat {
    bucket: Bucket,
    passed: AtomicU64,
    dropped: AtomicU64,
}

impl Police {
    /// Creates the buckets, all full, for a clock of `ticks_per_second`.
    #[must_use]
    pub fn new(rates: &Rates, ticks_per_second: u64) -> Self {
        Self(Class::ALL.map(|class| Beat {
            bucket: Bucket::new(rates.of(class), ticks_per_second),
            passed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }))
    }

    /// Returns whether a frame of this class passes at `now`, and counts it.
    #[must_use]
    pub fn passes(&self, class: Class, now: u64) -> bool {
        let passes = self.lets_pass(class, now);
        if !passes {
            self.count_dropped(class, 1);
        }
        passes
    }

    /// As [`Self::passes`], but counts only a frame that does.
    pub(crate) fn lets_pass(&self, class: Class, now: u64) -> bool {
        let beat = &self.0[class as usize];
        let passes = beat.bucket.take(now);
        if passes {
            beat.passed.fetch_add(1, Ordering::Relaxed);
        }
        passes
    }

    /// Counts frames that have not passed.
    pub(crate) fn count_dropped(&self, class: Class, frames: u64) {
        self.0[class as usize].dropped.fetch_add(frames, Ordering::Relaxed);
    }

    /// Returns the numbers of frames of a class that have passed and that have not.
    #[must_use]
    pub fn count(&self, class: Class) -> (u64, u64) {
        let beat = &self.0[class as usize];
        (beat.passed.load(Ordering::Relaxed), beat.dropped.load(Ordering::Relaxed))
    }
}
