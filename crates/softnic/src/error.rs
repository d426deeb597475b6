//! Errors of opening a soft NIC, and losses of its wire.

use std::io;

/// An error of opening a soft NIC: the operation, the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The specification has an unknown key.
    #[error("soft NIC {spec:?}: unknown key {key:?}; allowed are {allowed}")]
    UnknownKey {
        /// The whole specification.
        spec: String,
        /// The key.
        key: String,
        /// The keys that there are.
        allowed: String,
    },
    /// A key has an invalid value.
    #[error("soft NIC: bad value {value:?} for {key}; allowed: {allowed}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that the key accepts.
        allowed: String,
    },
    /// The specification has no name, or its keys contradict each other.
    #[error("soft NIC {spec:?}: {cause}; the form is soft:NAME?key=value&key=value")]
    BadSpec {
        /// The whole specification.
        spec: String,
        /// What is wrong.
        cause: String,
    },
    /// The name is already open in this process.
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
        /// The reason, in words.
        cause: String,
    },
    /// An operation of the system on a named object failed.
    #[error("cannot {operation} {object}: {source}{}{hint}", if hint.is_empty() { "" } else { "; " })]
    System {
        /// The operation.
        operation: &'static str,
        /// The object.
        object: String,
        /// The error that the system returned.
        source: io::Error,
        /// What to do next; may be empty.
        hint: &'static str,
    },
    /// A capture file cannot be read.
    #[error("cannot read capture {path}: {cause}; it must be pcap or pcapng with Ethernet frames")]
    Capture {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
    /// A file to which a capture or a trace would be written is the output of another, or the input of a capture.
    #[error("cannot use {path} as a capture or trace: {cause}; name a file of its own for each output")]
    SameFile {
        /// The file.
        path: String,
        /// What the file is used for already.
        cause: String,
    },
}

/// A loss on a wire: the traffic of a device is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Frames that were sent are missing from the capture they were meant for.
    #[error("cannot write {path}: {cause}; {frames} sent frames are not in it")]
    Lost {
        /// The file.
        path: String,
        /// The error that the system returned.
        cause: String,
        /// Number of frames that are missing, all of them at the end.
        frames: u64,
    },
    /// A TAP interface did not accept frames that were to be sent.
    #[error("{frames} frames to be sent were lost: the interface {interface} {cause}; {next}")]
    NotTaken {
        /// The interface.
        interface: String,
        /// The reason, in words.
        cause: String,
        /// What to do.
        next: String,
        /// Number of these frames.
        frames: u64,
    },
    /// A TAP interface was deleted, so that nothing can be received or sent by it any more.
    #[error(
        "the interface {interface} was deleted, alone or with its network namespace, and {frames} frames to be sent were lost; leave \
         it there while it is used, and start again"
    )]
    Gone {
        /// The interface.
        interface: String,
        /// Number of frames that were to be sent by it.
        frames: u64,
    },
    /// What a driver did to the registers is missing from the trace it was meant for.
    #[error("cannot write {path}: {cause}; the trace of registers ends there")]
    Untraced {
        /// The file.
        path: String,
        /// The error that the system returned.
        cause: String,
    },
    /// A capture is damaged: only the frames before the damage were replayed.
    #[error("cannot read the rest of capture {path}: {cause}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        cause: String,
    },
}
