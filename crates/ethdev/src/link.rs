//! The link, and what else a port has to tell.

use std::fmt;

/// Whether the link is up, and how fast.
///
/// ```
/// let status = ethdev::LinkStatus { up: true, speed_mbps: 10_000 };
/// assert_eq!(status.to_string(), "up, 10000 Mbit/s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Frames can pass.
    pub up: bool,
    /// Mbit/s; 0 while down. A virtio device has no speed of its own and says 10,000, as with Linux and DPDK.
    pub speed_mbps: u32,
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.up { write!(f, "up, {} Mbit/s", self.speed_mbps) } else { f.write_str("down") }
    }
}

/// What has happened to a port since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The link came up or went down; [`crate::Port::link`] says which.
    pub link_changed: bool,
    /// A memory of the device is damaged beyond correction: what it moves from here on is not to be trusted. Close the
    /// port and open it again.
    pub memory_error: bool,
}
