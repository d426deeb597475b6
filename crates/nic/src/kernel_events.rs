//! What the kernel has to say of a device.

use crate::{Error, Result};
use device::{EventFd, VfioDevice, VfioEvent};
use std::os::fd::{AsFd as _, BorrowedFd};

/// What the kernel says about a device opened through VFIO: that it wants it back, that it reported an error.
#[derive(Debug, Default)]
pub(crate) struct KernelEvents {
    release: Option<EventFd>,
    error: Option<EventFd>,
}

impl KernelEvents {
    /// Asks the kernel to report what it can about this device.
    pub(crate) fn watch(device: &VfioDevice) -> Self {
        let watch = |event| match device.watch(event) {
            Ok(fd) => Some(EventFd::from(fd)),
            Err(error) => {
                tracing::debug!("the kernel does not tell of {event:?}: {error}");
                None
            }
        };
        Self { release: watch(VfioEvent::Release), error: watch(VfioEvent::Error) }
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.release, &self.error].into_iter().flatten().map(|event| event.as_fd())
    }

    /// Returns an error if the kernel wants `device` back, or has reported an error of it.
    pub(crate) fn check(&self, device: &str) -> Result<()> {
        let device = device.to_owned();
        if self.release.as_ref().is_some_and(EventFd::clear) {
            return Err(Error::Released { device });
        }
        if self.error.as_ref().is_some_and(EventFd::clear) {
            return Err(Error::Broken { device, what: "it reported an uncorrectable PCI Express error" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_signals_is_an_error_that_names_the_device() {
        let event = || Some(EventFd::new().unwrap());
        let events = KernelEvents { release: event(), error: event() };
        assert_eq!(events.fds().count(), 2);
        events.check("0000:03:00.0").unwrap();
        events.error.as_ref().unwrap().signal();
        let error = events.check("0000:03:00.0").unwrap_err().to_string();
        assert!(error.starts_with("0000:03:00.0: it reported an uncorrectable PCI Express error"), "{error}");
        events.release.as_ref().unwrap().signal();
        let error = events.check("0000:03:00.0").unwrap_err();
        assert!(matches!(&error, Error::Released { device } if device == "0000:03:00.0"), "{error}");
        events.check("0000:03:00.0").unwrap();
        KernelEvents::default().check("0000:03:00.0").unwrap();
    }
}
