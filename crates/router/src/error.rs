//! Errors of routes files and tables, with what to do about them.

use std::fmt;

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// A position in a routes file. Both numbers count from 1; columns are in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The line number.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// An error of this crate. Routes in force before the error stay in force.
///
/// ```
/// let error = router::Routes::parse(b"10.1.2.3/16 via 02:00:00:00:00:02 port 0", 1).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 1, column 1: prefix 10.1.2.3/16 has host bits set; did you mean 10.1.0.0/16?"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not exist, cannot be read to its end, or is too long.
    #[error("{cause}; {next}")]
    File {
        /// What is wrong.
        cause: String,
        /// What to do about it.
        next: &'static str,
    },
    /// The text is not UTF-8.
    #[error("{at}: a byte that is no text; write the file in UTF-8")]
    NotText {
        /// Position of the first such byte.
        at: At,
    },
    /// A line does not have the form of a route.
    #[error("{at}: {found} where {expected} should stand; write PREFIX via MAC port NUMBER")]
    Form {
        /// Position of what was found.
        at: At,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A prefix is not valid.
    #[error("{at}: {source}")]
    Prefix {
        /// Position of the prefix.
        at: At,
        /// What is wrong with it.
        source: lpm::Error,
    },
    /// A next hop is not the address of one station.
    #[error("{at}: next hop {mac} is {what}; use the MAC address of one station")]
    NextHop {
        /// Position of the address.
        at: At,
        /// The address as written.
        mac: String,
        /// What the address stands for.
        what: &'static str,
    },
    /// There is no port of this number.
    #[error("{at}: there is no port {port}; {}", ports_in_words(*.ports))]
    Port {
        /// Position of the number.
        at: At,
        /// The number as written.
        port: String,
        /// The number of ports.
        ports: usize,
    },
    /// A prefix has a route already.
    #[error("{at}: {prefix} has a route in line {first} already; leave one of them out")]
    Duplicate {
        /// Position of the second route.
        at: At,
        /// The prefix.
        prefix: String,
        /// The line of the first one.
        first: usize,
    },
    /// The routes were parsed for more ports than the table has.
    #[error("the routes are for {routes} ports and the table has {interfaces}; parse them for as many")]
    PortCount {
        /// Number of ports that the routes were parsed for.
        routes: usize,
        /// Number of ports of the table.
        interfaces: usize,
    },
    /// There is not enough memory for the routes in the form of the file, or for as many next hops and groups.
    #[error("out of memory; allow this process more (`ulimit -v`), or leave routes out")]
    OutOfMemory,
    /// There are as many of something as may be.
    #[error(
        "there are {limit} {what}, of which {waiting} are given up but may still be in use; make the table larger, or see that \
         forwarders catch up"
    )]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
        /// How many of them were removed, and wait for forwarders.
        waiting: usize,
    },
    /// A port cannot have a sub-interface of this VLAN.
    #[error("port {port} cannot have a sub-interface of VLAN {vlan}: {problem}")]
    Vlan {
        /// The port.
        port: u16,
        /// The VLAN.
        vlan: u16,
        /// What is wrong, and what to do about it.
        problem: &'static str,
    },
    /// A number stands for nothing.
    #[error("there is no number {number} among the {what}; add it first")]
    Unknown {
        /// Among what.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// Something is to be removed to which something leads.
    #[error("number {number} of the {what} is in use; remove what leads to it first")]
    InUse {
        /// Of what.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// A group cannot have these members.
    #[error("a group cannot have {problem}")]
    Members {
        /// What is wrong.
        problem: &'static str,
    },
    /// A member of a group would lead to a group.
    #[error("next hop {hop} is a member of a group, and cannot lead to a group itself")]
    Nested {
        /// The number of the next hop.
        hop: u32,
    },
    /// The lookup tables cannot be built.
    #[error("cannot build the route table: {0}")]
    Table(#[from] lpm::Error),
}

impl From<std::collections::TryReserveError> for Error {
    fn from(_: std::collections::TryReserveError) -> Self {
        Self::OutOfMemory
    }
}

fn ports_in_words(ports: usize) -> String {
    match ports {
        0 => "there are none at all".to_owned(),
        1 => "the only one is 0".to_owned(),
        _ => format!("ports are 0 to {}", ports - 1),
    }
}
