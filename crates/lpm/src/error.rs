//! What can go wrong, and what to do about it.

use alloc::string::String;

/// The result of an operation of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of this crate. A table is unchanged by an operation that returned one.
///
/// ```
/// let error = "10.1.2.3/16".parse::<lpm::Ipv4Prefix>().unwrap_err();
/// assert_eq!(error.to_string(), "prefix 10.1.2.3/16 has host bits set; did you mean 10.1.0.0/16?");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that is not `ADDRESS/LENGTH`.
    #[error("cannot parse prefix {text:?}: {cause}; write ADDRESS/LENGTH, as in {example}")]
    PrefixSyntax {
        /// The text, cut after 64 characters.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
        /// A prefix of the wanted family.
        example: &'static str,
    },
    /// A prefix length beyond the width of the address.
    #[error("prefix length {len} is out of range; use 0 to {max}")]
    PrefixLength {
        /// The length given, in bits.
        len: u32,
        /// The width of an address, in bits.
        max: u8,
    },
    /// Bits to the right of the prefix length are set.
    #[error("prefix {given} has host bits set; did you mean {corrected}?")]
    HostBits {
        /// The prefix as given.
        given: String,
        /// The same with its host bits cleared.
        corrected: String,
    },
    /// A next hop identifier above [`NextHop::MAX`](crate::NextHop::MAX).
    #[error("next hop {id} is out of range; use 0 to {}", crate::NextHop::MAX)]
    NextHopRange {
        /// The identifier given.
        id: u32,
    },
    /// The route to remove is not in the table.
    #[error("cannot remove {prefix}: no such route in the table; look it up with get() first")]
    NoSuchRoute {
        /// The prefix given.
        prefix: String,
    },
    /// The table would need more memory than its limit allows, or than lookups can address: just under 2 GiB of blocks for
    /// IPv4, 16 GiB for IPv6.
    #[error(
        "cannot change the table: it needs more than its limit of {limit} bytes; raise Config::memory_limit \
         (IPv4 takes up to 2 GiB, IPv6 16 GiB) or use fewer routes"
    )]
    TableFull {
        /// The limit, in bytes: that of the configuration, or the most the family takes if that is less.
        limit: usize,
    },
    /// The allocator has no memory left.
    #[error("cannot change the table: allocating {bytes} bytes failed; free memory and try again")]
    OutOfMemory {
        /// The size asked for, in bytes.
        bytes: usize,
    },
}
