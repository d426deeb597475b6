//! What the fuzz targets do with one input, as functions: cargo-fuzz finds inputs (`fuzz/fuzz_targets`), and `cargo test`
//! replays those that it found (`tests/replay.rs`).

pub mod captures;
pub mod control;
pub mod definitions;
#[expect(unsafe_code, reason = "plays the peer, and gives the word for it")]
pub mod ixgbe_rings;
pub mod lpm;
pub mod netlink;
pub mod replay;
pub mod router;
pub mod routes;
pub mod station;
pub mod tags;
#[expect(unsafe_code, reason = "plays the peer")]
pub mod vf_mailbox;
#[expect(unsafe_code, reason = "plays the peer, and gives the word for it")]
pub mod vfio_user_client;
pub mod vfio_user_server;
#[expect(unsafe_code, reason = "plays the peer, and gives the word for it")]
pub mod vhost_user;
#[expect(unsafe_code, reason = "plays the device")]
pub mod virtio_rings;
pub mod wire;

/// A fuzz target: its name, which is that of its corpus, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: &[Target] = &[
    ("captures", captures::run),
    ("control", control::run),
    ("definitions", definitions::run),
    ("ixgbe_rings", ixgbe_rings::run),
    ("lpm", lpm::run),
    ("netlink", netlink::run),
    ("replay", replay::run),
    ("router", router::run),
    ("routes", routes::run),
    ("station", station::run),
    ("tags", tags::run),
    ("vf_mailbox", vf_mailbox::run),
    ("vfio_user_client", vfio_user_client::run),
    ("vfio_user_server", vfio_user_server::run),
    ("vhost_user", vhost_user::run),
    ("virtio_packed", virtio_rings::packed),
    ("virtio_split", virtio_rings::split),
    ("wire", wire::run),
];
