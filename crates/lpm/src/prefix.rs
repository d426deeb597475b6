//! IPv4 and IPv6 prefixes: parsing, printing, containment.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crate::{Error, Result};

/// A prefix as both families store it: the address bits left-aligned in 128 bits, host bits clear.
///
/// Ordered by address, then by length, so that a covering prefix comes before those it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) bits: u128,
    pub(crate) len: u8,
}

impl Key {
    /// The `count` bits that start `pos` bits from the left; `count` is 1 to 19.
    #[inline]
    pub(crate) fn slice(self, pos: u8, count: u8) -> usize {
        let end = u32::from(pos) + u32::from(count);
        let mask = (1 << count) - 1;
        // All of IPv4's, and most of IPv6's, lie in the upper half.
        match 64_u32.checked_sub(end) {
            Some(behind) => ((self.bits >> 64) as u64 >> behind) as usize & mask,
            None => (self.bits >> (128 - end)) as usize & mask,
        }
    }

    /// Whether every address of `other` is one of `self`.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.len <= other.len && (self.bits ^ other.bits) & mask(self.len) == 0
    }

    /// The prefix of `len` bits (at most `self.len`) around this one.
    pub(crate) fn shortened(self, len: u8) -> Self {
        Self { bits: self.bits & mask(len), len }
    }
}

/// The `len` leftmost of 128 bits.
fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - u32::from(len)) }
}

macro_rules! prefix {
    ($name:ident, $addr:ty, $int:ty, $bits:literal, $example:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// Host bits are clear by construction. Ordered by address, then by length: a covering prefix
        /// comes before the prefixes it covers.
        ///
        /// ```
        #[doc = concat!("let prefix: lpm::", stringify!($name), " = \"", $example, "\".parse()?;")]
        #[doc = concat!("assert_eq!(prefix.to_string(), \"", $example, "\");")]
        /// assert!(prefix.contains(prefix.address()));
        /// # Ok::<(), lpm::Error>(())
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            addr: $addr,
            len: u8,
        }

        impl $name {
            /// The prefix of length 0: the default route.
            pub const DEFAULT: Self = Self { addr: <$addr>::UNSPECIFIED, len: 0 };

            /// The prefix `addr/len`.
            ///
            /// # Errors
            #[doc = concat!("[`Error::PrefixLength`] if `len` is above ", stringify!($bits), ", ")]
            /// [`Error::HostBits`] if `addr` has bits set to the right of `len`.
            pub fn new(addr: $addr, len: u8) -> Result<Self> {
                let corrected = Self::truncate(addr, len)?;
                if corrected.addr == addr {
                    return Ok(corrected);
                }
                Err(Error::HostBits { given: alloc::format!("{addr}/{len}"), corrected: corrected.to_string() })
            }

            /// The prefix of length `len` that contains `addr`.
            ///
            /// # Errors
            #[doc = concat!("[`Error::PrefixLength`] if `len` is above ", stringify!($bits), ".")]
            pub fn truncate(addr: $addr, len: u8) -> Result<Self> {
                if len > $bits {
                    return Err(Error::PrefixLength { len: u32::from(len), max: $bits });
                }
                let mask = <$int>::MAX.checked_shl($bits - u32::from(len)).unwrap_or(0);
                Ok(Self { addr: <$addr>::from(<$int>::from(addr) & mask), len })
            }

            /// The lowest address of the prefix.
            #[must_use]
            pub fn address(self) -> $addr {
                self.addr
            }

            /// The prefix length, in bits.
            #[must_use]
            #[expect(clippy::len_without_is_empty, reason = "a prefix has a length but is never empty")]
            pub fn len(self) -> u8 {
                self.len
            }

            /// Whether `addr` lies in the prefix.
            #[must_use]
            pub fn contains(self, addr: $addr) -> bool {
                Self::truncate(addr, self.len).is_ok_and(|prefix| prefix == self)
            }

            /// Whether every address of `other` lies in the prefix.
            #[must_use]
            pub fn covers(self, other: Self) -> bool {
                self.key().covers(other.key())
            }

            pub(crate) fn key(self) -> Key {
                Key { bits: u128::from(<$int>::from(self.addr)) << (128 - $bits), len: self.len }
            }

            pub(crate) fn from_key(key: Key) -> Self {
                let int = (key.bits >> (128 - $bits)) as $int;
                Self { addr: <$addr>::from(int), len: key.len }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.addr, self.len)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let (addr, len) = text.split_once('/').ok_or_else(|| syntax(text, "no slash", $example))?;
                let addr: $addr = addr.parse().map_err(|_| syntax(text, "bad address", $example))?;
                if len.is_empty() || len.len() > 3 || !len.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(syntax(text, "bad length", $example));
                }
                let len: u32 = len.parse().map_err(|_| syntax(text, "bad length", $example))?;
                let len = u8::try_from(len).map_err(|_| Error::PrefixLength { len, max: $bits })?;
                Self::new(addr, len)
            }
        }
    };
}

prefix!(Ipv4Prefix, Ipv4Addr, u32, 32, "192.0.2.0/24", "An IPv4 prefix, `ADDRESS/LENGTH` (RFC 4632, section 3.1).");
prefix!(Ipv6Prefix, Ipv6Addr, u128, 128, "2001:db8::/32", "An IPv6 prefix, `ADDRESS/LENGTH` (RFC 4291, section 2.3).");

fn syntax(text: &str, cause: &'static str, example: &'static str) -> Error {
    let text: String = text.chars().take(64).collect();
    Error::PrefixSyntax { text, cause, example }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_name_the_corrected_prefix() {
        let error = "2001:db8::1/32".parse::<Ipv6Prefix>().unwrap_err();
        assert_eq!(
            error,
            Error::HostBits { given: "2001:db8::1/32".to_string(), corrected: "2001:db8::/32".to_string() }
        );
        assert_eq!(Ipv4Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 33), Err(Error::PrefixLength { len: 33, max: 32 }));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "10.0.0.0/8/8",
            "::/0",
            "10.0.0.0/0008",
        ] {
            assert!(matches!(text.parse::<Ipv4Prefix>(), Err(Error::PrefixSyntax { .. })), "{text:?}");
        }
        assert_eq!("10.0.0.0/33".parse::<Ipv4Prefix>(), Err(Error::PrefixLength { len: 33, max: 32 }));
        assert_eq!("10.0.0.0/999".parse::<Ipv4Prefix>(), Err(Error::PrefixLength { len: 999, max: 32 }));
        assert_eq!("::/129".parse::<Ipv6Prefix>(), Err(Error::PrefixLength { len: 129, max: 128 }));
    }

    #[test]
    fn a_prefix_covers_what_lies_in_it() {
        let covers =
            |outer: &str, inner: &str| -> bool { outer.parse::<Ipv4Prefix>().unwrap().covers(inner.parse().unwrap()) };
        for (outer, inner) in
            [("0.0.0.0/0", "0.0.0.0/0"), ("10.0.0.0/8", "10.0.0.0/8"), ("10.0.0.0/8", "10.255.0.0/16")]
        {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in
            [("10.0.0.0/16", "10.0.0.0/8"), ("10.0.0.0/8", "11.0.0.0/16"), ("10.0.0.0/8", "0.0.0.0/0")]
        {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
        assert!("2001:db8::/32".parse::<Ipv6Prefix>().unwrap().covers("2001:db8:ffff::/48".parse().unwrap()));
        assert!(!"2001:db8::/48".parse::<Ipv6Prefix>().unwrap().covers("2001:db8::/32".parse().unwrap()));
    }

    #[test]
    fn keys_come_back() {
        for text in ["0.0.0.0/0", "128.0.0.0/1", "10.20.0.0/14", "255.255.255.255/32"] {
            let prefix: Ipv4Prefix = text.parse().unwrap();
            assert_eq!(Ipv4Prefix::from_key(prefix.key()), prefix);
            assert_eq!(prefix.to_string(), text);
        }
        for text in ["::/0", "8000::/1", "2001:db8::/126", "::1/128"] {
            let prefix: Ipv6Prefix = text.parse().unwrap();
            assert_eq!(Ipv6Prefix::from_key(prefix.key()), prefix);
            assert_eq!(prefix.to_string(), text);
        }
    }
}
