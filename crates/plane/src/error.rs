//! Errors of following a kernel.

/// What failed.
///
/// ```
/// let error = plane::Error::from(kernel::Error::Malformed { kind: 24, fault: kernel::Fault::Cut });
/// assert_eq!(error.to_string(), "a netlink message of type 24 is malformed: it is cut off");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's tables cannot be read.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The forwarding table does not take what every plane puts there.
    #[error(transparent)]
    Router(#[from] router::Error),
    /// A thread cannot be woken.
    #[error("cannot {operation} an eventfd: {source}")]
    Wake {
        /// What was tried: make, wait for.
        operation: &'static str,
        /// The kernel's reason.
        source: rustix::io::Errno,
    },
}
