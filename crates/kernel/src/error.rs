//! Errors of netlink.

use rustix::io::Errno;

/// What failed, or what is wrong with a message.
///
/// ```
/// use kernel::{Error, Fault, Messages};
///
/// let cut = Messages::new(&[0; 7]).next().unwrap().unwrap_err();
/// assert_eq!(cut, Error::Malformed { kind: 0, fault: Fault::Cut });
/// let full = Error::Socket { operation: "open", source: rustix::io::Errno::MFILE };
/// assert!(full.to_string().ends_with("; raise the limit of open files (`ulimit -n`)"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the kernel failed.
    #[error("cannot {operation} a netlink socket: {source}{}", next_step(*source))]
    Socket {
        /// What was tried: open, bind, read, ask.
        operation: &'static str,
        /// The kernel's reason.
        source: Errno,
    },
    /// The kernel refuses to list one of its tables.
    #[error("the kernel does not list its {table}: {source}; read them again")]
    Refused {
        /// Which table.
        table: &'static str,
        /// The kernel's reason.
        source: Errno,
    },
    /// A message is not what its type demands.
    #[error("a netlink message of type {kind} is malformed: {fault}")]
    Malformed {
        /// The message's type, 0 where there is none.
        kind: u16,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It ends before its fixed part does.
    #[error("it is cut off")]
    Cut,
    /// Its length is less than its header, or more than what there is.
    #[error("its length is wrong")]
    Length,
    /// An attribute's length is less than its header, or reaches beyond the message.
    #[error("the length of an attribute is wrong")]
    Attribute,
    /// A value is shorter than its type, or out of its range.
    #[error("a value is too short or out of range")]
    Value,
}

/// What to do about what the kernel says, where a person can do something.
fn next_step(source: Errno) -> &'static str {
    match source {
        Errno::MFILE | Errno::NFILE => "; raise the limit of open files (`ulimit -n`)",
        _ => "",
    }
}
