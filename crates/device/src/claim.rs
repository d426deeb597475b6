//! One open handle per device in this process.

use crate::{Error, PciAddress, Result};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static CLAIMED: Mutex<BTreeSet<PciAddress>> = Mutex::new(BTreeSet::new());

/// The right to have a device open. Given back on drop.
#[derive(Debug)]
pub(crate) struct Claim(PciAddress);

impl Claim {
    /// # Errors
    ///
    /// When this process has the device open already.
    pub(crate) fn new(address: PciAddress) -> Result<Self> {
        if CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).insert(address) {
            return Ok(Self(address));
        }
        let hint = "drop the other handle first, or name each device once";
        Err(Error::unusable(address.to_string(), "this process has it open already", hint))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_claimed_once_at_a_time() {
        let address = "ffff:7f:1f.7".parse().unwrap();
        let claim = Claim::new(address).unwrap();
        assert!(Claim::new(address).unwrap_err().to_string().contains("open already"));
        drop(claim);
        Claim::new(address).unwrap();
    }
}
