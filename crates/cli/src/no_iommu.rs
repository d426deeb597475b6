//! `--unsafe-no-iommu`: the one place of this crate with unsafe code.
#![allow(unsafe_code, reason = "the user's word is taken here")]

use nic::NoIommu;

/// What the option says.
pub(crate) fn from_option(given: bool) -> Option<NoIommu> {
    // SAFETY: whoever starts the program with this option vouches for the devices and the host, as its help and the
    // README say.
    given.then(|| unsafe { NoIommu::accepted() })
}
