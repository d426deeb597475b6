//! Next hop identifiers.

use core::fmt;
use core::num::NonZeroU32;

/// The next hop of a route: a small integer that names an adjacency of the application.
///
/// Values run from 0 to [`NextHop::MAX`] (2^31 - 1). They need not be dense, but tables with at most 254
/// distinct next hops are the smallest and fastest, the more so if all are below 254; those with at most 65,534 come next.
/// `Option<NextHop>` takes four bytes.
///
/// ```
/// use lpm::NextHop;
/// let hop = NextHop::new(7)?;
/// assert_eq!(hop.get(), 7);
/// assert!(NextHop::new(NextHop::MAX + 1).is_err());
/// # Ok::<(), lpm::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NextHop(NonZeroU32);

impl NextHop {
    /// The largest identifier, 2^31 - 1.
    pub const MAX: u32 = (1 << 31) - 1;

    /// The next hop with this identifier.
    ///
    /// # Errors
    /// [`Error::NextHopRange`](crate::Error::NextHopRange) above [`NextHop::MAX`].
    pub const fn new(id: u32) -> crate::Result<Self> {
        match NonZeroU32::new(id.wrapping_add(1)) {
            Some(raw) if id <= Self::MAX => Ok(Self(raw)),
            _ => Err(crate::Error::NextHopRange { id }),
        }
    }

    /// The identifier.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get() - 1
    }

    /// The word a table stores: the identifier plus one, so that zero is left for "no route".
    pub(crate) const fn raw(self) -> u32 {
        self.0.get()
    }

    /// Reads a word a table stores.
    #[inline(always)]
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        NonZeroU32::new(raw).map(Self)
    }
}

impl fmt::Debug for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NextHop({})", self.get())
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}
