//! The state of the link, and other events of a port.

use std::fmt;

/// The state of a link: whether it is up, and its speed.
///
/// ```
/// let status = ethdev::LinkStatus { up: true, speed_mbps: 10_000 };
/// assert_eq!(status.to_string(), "up, 10000 Mbit/s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether frames can pass.
    pub up: bool,
    /// Speed in Mbit/s; 0 while the link is down. A virtio device has no speed of its own and reports 10,000, as with
    /// Linux and DPDK.
    pub speed_mbps: u32,
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.up { write!(f, "up, {} Mbit/s", self.speed_mbps) } else { f.write_str("down") }
    }
}

/// Events of a port since it was last asked for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Whether the link came up or went down; [`crate::Port::link`] returns its present state.
    pub link_changed: bool,
    /// Whether a memory of the device is damaged beyond correction. If so, do not trust what the device moves from here
    /// on: close the port and open it again.
    pub memory_error: bool,
}
