//! Clients' eventfds, signalled without ever waiting.

use device::Signaller;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A client's eventfd.
#[derive(Debug)]
pub(super) struct Trigger {
    fd: OwnedFd,
    signaller: Arc<Signaller>,
}

impl Trigger {
    pub(super) fn new(fd: OwnedFd, signaller: &Arc<Signaller>) -> Self {
        Self { fd, signaller: Arc::clone(signaller) }
    }

    /// Adds one to the counter; one that is full stays so, as its reader has been told already.
    pub(super) fn fire(&self) {
        self.signaller.signal(&self.fd);
    }
}
