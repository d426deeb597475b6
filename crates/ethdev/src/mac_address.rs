//! MAC addresses (IEEE 802, EUI-48).

use std::fmt;
use std::str::FromStr;

/// The MAC address of a station or a group of stations.
///
/// ```
/// use ethdev::MacAddress;
///
/// let address: MacAddress = "02:00:00:00:00:2a".parse()?;
/// assert_eq!(address, MacAddress([2, 0, 0, 0, 0, 42]));
/// assert_eq!(address.to_string(), "02:00:00:00:00:2a");
/// assert!(address.is_unicast() && MacAddress::BROADCAST.is_multicast());
/// # Ok::<(), ethdev::ParseMacAddressError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address, which stands for all stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// The all-zeros address, which no station has.
    pub const ZERO: Self = Self([0; 6]);

    /// Returns a locally administered address made from a name, the same for the same name: for a port whose device has none.
    ///
    /// ```
    /// use ethdev::MacAddress;
    ///
    /// let [a, b] = ["a", "b"].map(MacAddress::of_name);
    /// assert!(a.is_unicast() && a.0[0] & 2 == 2 && a != b && a == MacAddress::of_name("a"));
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        // FNV-1a.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let [a, b, c, d, e, ..] = hash.to_be_bytes();
        Self([2, a, b, c, d, e])
    }

    /// Returns whether this is the address of one station: neither that of a group nor zero.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// Returns whether this is the address of a group of stations; broadcast is one.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl From<MacAddress> for [u8; 6] {
    fn from(address: MacAddress) -> Self {
        address.0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: write six bytes of two hexadecimal digits, such as 02:00:00:00:00:2a")]
pub struct ParseMacAddressError(());

impl FromStr for MacAddress {
    type Err = ParseMacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let value = part.and_then(|part| u8::from_str_radix(part, 16).ok());
            *octet = value.ok_or(ParseMacAddressError(()))?;
        }
        if parts.next().is_some() { Err(ParseMacAddressError(())) } else { Ok(Self(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:2a:01",
            "+2:00:00:00:00:2a",
            "2:0:0:0:0:2a",
            "02-00-00-00-00-2a",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(ParseMacAddressError(())), "{text}");
        }
        assert_eq!("FF:ff:Ff:fF:ff:ff".parse(), Ok(MacAddress::BROADCAST));
    }

    #[test]
    fn groups_have_the_lowest_bit_of_the_first_byte() {
        assert!(!MacAddress::ZERO.is_unicast() && !MacAddress::ZERO.is_multicast());
        assert!(MacAddress([1, 0, 0x5e, 0, 0, 1]).is_multicast());
        assert!(MacAddress([2, 0, 0, 0, 0, 1]).is_unicast());
    }
}
