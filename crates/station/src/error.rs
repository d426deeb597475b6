//! Why a station cannot do what it was asked for.

use std::net::IpAddr;

/// Why a station cannot be created, or cannot reach an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be that of an interface.
    #[error("{address}: {problem}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it, or what is expected.
        problem: &'static str,
    },
    /// A station's MAC address is that of a group, or zero.
    #[error("the MAC address of a station is that of one card; this one is of a group, or zero")]
    Mac,
    /// There is no address to ask or send from.
    #[error("{0}: the port has no {family} address to send from; give it one", family = family(*.0))]
    NoAddress(IpAddr),
    /// Something that is sent to several hosts, or to none.
    #[error("{0}: not the address of one host; give one that is")]
    NotUnicast(IpAddr),
    /// An address of the station itself.
    #[error("{0}: this is the port's own address; give that of another host")]
    Own(IpAddr),
    /// Neither on the link, nor is there a gateway.
    #[error("{0}: not on the link of the port, and there is no gateway; give one, or a shorter prefix")]
    NoRoute(IpAddr),
    /// Nobody has answered.
    #[error(
        "{next_hop}: no answer to {asked} {questions} in {asked} s; see that it is on this link, is up, and has this address",
        questions = questions(*.next_hop)
    )]
    NoAnswer {
        /// Who was asked for.
        next_hop: IpAddr,
        /// How often.
        asked: u8,
    },
    /// Another station uses an address of this one.
    #[error("{address}: in use on this link already, by {}; take another", mac_words(*.mac))]
    Duplicate {
        /// The address.
        address: IpAddr,
        /// Whose it is.
        mac: [u8; 6],
    },
    /// More next hops are being asked for than there is room for.
    #[error("{0}: {max} other next hops are being asked for; ask again in a second", max = crate::MAX_NEIGHBOURS)]
    Busy(IpAddr),
    /// An echo request that cannot be: too long for an IP packet, or between addresses of two families.
    #[error("no echo request of {payload} bytes from {from} to {to} can be written")]
    Echo {
        /// From where.
        from: IpAddr,
        /// To where.
        to: IpAddr,
        /// Bytes behind its header.
        payload: usize,
    },
}

impl From<std::net::AddrParseError> for Error {
    fn from(_: std::net::AddrParseError) -> Self {
        Self::Address { address: "address".to_owned(), problem: "write an IPv4 or IPv6 address, such as 192.0.2.1" }
    }
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn questions(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "ARP requests" } else { "neighbour solicitations" }
}

fn mac_words(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
