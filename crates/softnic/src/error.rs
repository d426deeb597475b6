//! What can go wrong when opening a soft NIC.

use std::io;

/// An error of opening a soft NIC: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key that the specification does not have.
    #[error("soft NIC {spec:?}: unknown key {key:?}; allowed are {allowed}")]
    UnknownKey {
        /// The whole specification.
        spec: String,
        /// The key.
        key: String,
        /// What there is.
        allowed: String,
    },
    /// A value that its key does not take.
    #[error("soft NIC: bad value {value:?} for {key}; allowed: {allowed}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it takes.
        allowed: String,
    },
    /// A specification that has no name, or keys that do not go together.
    #[error("soft NIC {spec:?}: {cause}; the form is soft:NAME?key=value&key=value")]
    BadSpec {
        /// The whole specification.
        spec: String,
        /// What is wrong.
        cause: String,
    },
    /// The name is open already in this process.
    #[error("soft NIC {name}: device busy: it is open already in this process; choose another name or close it first")]
    Busy {
        /// The name.
        name: String,
    },
    /// The other end of a back-to-back wire has a wire of its own.
    #[error("soft NIC {name}: cannot connect to {peer}: {cause}; let each name the other, or one name the other")]
    Peer {
        /// The device being opened.
        name: String,
        /// The device it names.
        peer: String,
        /// Why not.
        cause: String,
    },
    /// An operation of the system on a named object failed.
    #[error("cannot {operation} {object}: {source}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What the system said.
        source: io::Error,
        /// What to do next; may be empty.
        hint: &'static str,
    },
    /// A capture file that cannot be read.
    #[error("cannot read capture {path}: {cause}; it must be pcap or pcapng with Ethernet frames")]
    Capture {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// A file that a capture would be written to is the input or the output of another, or its own input.
    #[error("cannot use {path} as a capture: {cause}; name a file of its own for each output")]
    SameFile {
        /// The file.
        path: String,
        /// What it is already.
        cause: String,
    },
}

/// What a wire has lost: the traffic of a device is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Frames that were sent are not in the capture they were meant for.
    #[error("cannot write {path}: {cause}; {frames} sent frames are not in it")]
    Lost {
        /// The file.
        path: String,
        /// What the system said.
        cause: String,
        /// How many frames are missing, all of them at the end.
        frames: u64,
    },
    /// A TAP interface did not take frames that were to be sent.
    #[error("{frames} frames to be sent were lost: the interface {interface} {cause}; {next}")]
    NotTaken {
        /// The interface.
        interface: String,
        /// Why not.
        cause: String,
        /// What to do.
        next: String,
        /// How many frames.
        frames: u64,
    },
    /// A TAP interface is no more, so that nothing can come or leave by it.
    #[error(
        "the interface {interface} was deleted, alone or with its network namespace, and {frames} frames to be sent were lost; leave \
         it there while it is used, and start again"
    )]
    Gone {
        /// The interface.
        interface: String,
        /// How many frames were to leave by it.
        frames: u64,
    },
    /// A capture is damaged: the frames before were replayed.
    #[error("cannot read the rest of capture {path}: {cause}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
}
