//! Who drives a soft NIC, and who only watches it.

use device::{Bar, Device, DmaDomain, PciIds};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The driver's end of a soft NIC, a [`Device`]. There is one, and it is moved into the driver; everybody else has
/// [`Exclusive::handle`], which drives nothing.
#[derive(Debug)]
pub struct Exclusive<N: Face> {
    nic: Arc<N>,
}

impl<N: Face> Exclusive<N> {
    pub(crate) fn new(nic: N) -> Self {
        Self { nic: Arc::new(nic) }
    }

    /// The controls of the soft NIC: its wire, its counters, its faults.
    #[must_use]
    pub fn handle(&self) -> Arc<N> {
        Arc::clone(&self.nic)
    }
}

impl<N: Face> Deref for Exclusive<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.nic
    }
}

impl<N: Face> Drop for Exclusive<N> {
    fn drop(&mut self) {
        self.nic.close();
    }
}

/// What makes a soft NIC a [`Device`], without being one. Sealed.
///
/// # Safety
///
/// As [`Device`].
pub unsafe trait Face: sealed::Sealed + Send + Sync + 'static {
    #[doc(hidden)]
    type Bar: Bar;
    #[doc(hidden)]
    fn name(&self) -> &str;
    #[doc(hidden)]
    fn ids(&self) -> PciIds;
    #[doc(hidden)]
    fn bar(&self, key: sealed::Key) -> &Self::Bar;
    #[doc(hidden)]
    fn dma(&self, key: sealed::Key) -> &DmaDomain;
    #[doc(hidden)]
    fn set_bus_master(&self, on: bool, key: sealed::Key);
    #[doc(hidden)]
    fn function_reset(&self, key: sealed::Key);
    #[doc(hidden)]
    fn enable_msix(&self, vectors: u16, key: sealed::Key) -> device::Result<Vec<OwnedFd>>;
    /// The driver has let go.
    #[doc(hidden)]
    fn close(&self) {}
}

pub(crate) mod sealed {
    /// Outsiders cannot implement a [`super::Face`].
    pub trait Sealed {}

    /// Outsiders cannot drive one.
    #[derive(Debug)]
    pub struct Key(pub(super) ());
}

const KEY: fn() -> sealed::Key = || sealed::Key(());

// SAFETY: the face's own promise; nobody else can call what drives it.
unsafe impl<N: Face> Device for Exclusive<N> {
    type Bar = N::Bar;

    fn name(&self) -> &str {
        self.nic.name()
    }

    fn ids(&self) -> PciIds {
        self.nic.ids()
    }

    #[inline]
    fn bar(&self) -> &N::Bar {
        self.nic.bar(KEY())
    }

    fn dma(&self) -> &DmaDomain {
        self.nic.dma(KEY())
    }

    fn set_bus_master(&self, on: bool) -> device::Result<()> {
        self.nic.set_bus_master(on, KEY());
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        self.nic.function_reset(KEY());
        Ok(())
    }

    fn enable_msix(&self, vectors: u16) -> device::Result<Vec<OwnedFd>> {
        self.nic.enable_msix(vectors, KEY())
    }
}
