//! Somebody's word for the hostile server of the adversary. That server lies and fails in every way but one: it does not
//! change packets that were handed back, which is all that the word says.

/// Settings that let a port be opened whose device is another process.
#[must_use]
pub fn vouched(config: nic::PortConfig) -> nic::PortConfig {
    #[cfg(trusted_peer)]
    // SAFETY: the adversary's server writes to descriptors only, and to packets only as a device that was lent them.
    let config = nic::PortConfig { trusted_peer: Some(unsafe { nic::TrustedPeer::vouched_for() }), ..config };
    config
}
