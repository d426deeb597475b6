//! A stream by a few options, for command lines.

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::sizes::Sizes;
use crate::stream::Stream;
use std::net::{IpAddr, Ipv4Addr};

/// UDP frames of a number of flows, which differ by source address, and above 65,534 flows by source port too.
///
/// ```
/// use stream::{Flows, Stream};
///
/// let flows = Flows { flows: 20_000, ..Flows::default() };
/// let stream = Stream::flows(&flows, 14, 1)?;
/// assert_eq!((stream.size(), stream.period()), (Some(60), Some(20_000)));
/// # Ok::<(), stream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// The stream's name.
    pub name: String,
    /// Sizes of frames.
    pub sizes: Sizes,
    /// How many, from 1 to 1,048,576.
    pub flows: u64,
    /// MAC address of the sender.
    pub source_mac: [u8; 6],
    /// MAC address of the receiver.
    pub destination_mac: [u8; 6],
    /// IP address of the first flow's sender, of the same version as the receiver's.
    pub source: IpAddr,
    /// IP address of the receiver.
    pub destination: IpAddr,
    /// UDP port of the sender.
    pub source_port: u16,
    /// UDP port of the receiver.
    pub destination_port: u16,
}

impl Default for Flows {
    /// One flow of 60-byte frames between the addresses of RFC 2544, appendix C, to the port of discard.
    fn default() -> Self {
        Self {
            name: "1".to_owned(),
            sizes: Sizes::of_smallest(),
            flows: 1,
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: Ipv4Addr::new(198, 18, 0, 1).into(),
            destination: Ipv4Addr::new(198, 19, 0, 1).into(),
            source_port: 49_152,
            destination_port: 9,
        }
    }
}

impl Flows {
    /// The definition of such a stream.
    ///
    /// # Errors
    ///
    /// [`Error::Flows`] for addresses of two versions of IP, or flows that the addresses have no room for.
    pub fn definition(&self) -> Result<Definition> {
        let version = match (self.source, self.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) => 4,
            (IpAddr::V6(_), IpAddr::V6(_)) => 6,
            (source, destination) => {
                let cause = format!("{source} and {destination} are of two versions of IP; give two of one");
                return Err(Error::Flows { cause });
            }
        };
        let Self { source, destination, source_port, destination_port, flows, .. } = self;
        let (from, to) = (mac(self.source_mac), mac(self.destination_mac));
        let text = format!(
            "[[stream]]\nflows = {flows}\nsize = 9216\nframe = [{{ ethernet = {{ source = '{from}', destination = '{to}' }} }},\n\
             {{ ipv{version} = {{ source = '{source}', destination = '{destination}' }} }},\n\
             {{ udp = {{ source = {source_port}, destination = {destination_port} }} }}]\n"
        );
        let mut definitions = Definition::parse("flows", &text).map_err(|error| match error {
            Error::Definition { message, expected, .. } => {
                Error::Flows { cause: format!("{flows} flows from {source}: {message}; {expected}") }
            }
            other => other,
        })?;
        let mut definition = definitions.swap_remove(0);
        definition.name.clone_from(&self.name);
        definition.sizes = self.sizes.clone();
        Ok(definition)
    }
}

impl Stream {
    /// Prepares a stream of UDP frames, as [`Self::new`] does.
    ///
    /// # Errors
    ///
    /// As for [`Flows::definition`] and [`Self::new`].
    pub fn flows(flows: &Flows, reserve_tail: usize, seed: u64) -> Result<Self> {
        Self::new(&flows.definition()?, reserve_tail, seed)
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
