//! How often a queue looks at an empty ring.

use device::tsc;

/// Cycles from a look that came to the end of a ring to the next: about 0.4 us, in which a device in software gets a good part
/// of a burst done.
const GAP: u64 = 1000;

/// Keeps looks at the end of a ring apart. A look takes the cache line of the next descriptor away from the processor that
/// is about to write it. So a driver that looks all the time halves the rate of a device in software, and sees few frames
/// each time.
#[derive(Debug, Default)]
pub(crate) struct PollGap {
    /// When the last look came to the end of what the device had done; 0 if it did not.
    end_seen: u64,
}

impl PollGap {
    /// Whether the look before came to the end.
    #[inline(always)]
    pub(crate) fn has_end(&self) -> bool {
        self.end_seen != 0
    }

    /// Whether the look before came to the end, and was not long ago: then there is nothing to look for yet.
    #[inline(always)]
    pub(crate) fn is_early(&mut self) -> bool {
        self.end_seen != 0 && self.is_soon()
    }

    #[cold]
    #[inline(never)]
    fn is_soon(&mut self) -> bool {
        let soon = tsc::now().wrapping_sub(self.end_seen) < GAP;
        if !soon {
            self.end_seen = 0;
        }
        soon
    }

    /// There is something, as is known from elsewhere.
    pub(crate) fn reset(&mut self) {
        self.end_seen = 0;
    }

    /// After a look that came to the end.
    #[inline(always)]
    pub(crate) fn found_the_end(&mut self) {
        self.end_seen = tsc::now();
    }
}
