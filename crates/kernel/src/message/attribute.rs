//! Attributes (`struct rtattr`), and values in them.

use crate::Fault;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Walks attributes; one whose length is wrong is an error, and the last.
#[derive(Clone, Debug)]
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        // Less than a header is padding to the kernel, too (`nla_ok`).
        let (header, _) = bytes.split_first_chunk::<4>()?;
        let len = usize::from(u16_at(header, 0));
        let Some(value) = bytes.get(4..len) else { return Some(Err(Fault::Attribute)) };
        self.rest = bytes.get(aligned(len)..).unwrap_or_default();
        // The upper two bits say "nested" and "network byte order".
        Some(Ok((u16_at(header, 2) & 0x3FFF, value)))
    }
}

/// Where what follows begins, behind `len` bytes that there are.
#[inline]
pub(crate) fn aligned(len: usize) -> usize {
    (len + 3) & !3
}

/// Splits a message into its fixed part and its attributes.
#[inline]
pub(crate) fn fixed<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], Attributes<'_>), Fault> {
    let (fixed, rest) = payload.split_first_chunk::<N>().ok_or(Fault::Cut)?;
    Ok((fixed, Attributes::new(rest)))
}

/// Two bytes of a fixed part. `at` is a constant within it.
#[inline]
pub(crate) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes of a fixed part. `at` is a constant within it.
#[inline]
pub(crate) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn u32_of(value: &[u8]) -> Result<u32, Fault> {
    value.first_chunk().map(|word| u32::from_ne_bytes(*word)).ok_or(Fault::Value)
}

#[inline]
pub(crate) fn u16_of(value: &[u8]) -> Result<u16, Fault> {
    value.first_chunk().map(|half| u16::from_ne_bytes(*half)).ok_or(Fault::Value)
}

/// An address of 4 or 16 bytes.
#[inline]
pub(crate) fn address(value: &[u8]) -> Result<IpAddr, Fault> {
    if let Ok(bytes) = <[u8; 4]>::try_from(value) {
        return Ok(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).into()).map_err(|_| Fault::Value)
}

/// RTA_VIA (`struct rtvia`): a family and an address of it.
pub(crate) fn via(value: &[u8]) -> Result<IpAddr, Fault> {
    let (family, bytes) = value.split_first_chunk::<2>().ok_or(Fault::Value)?;
    let found = address(bytes)?;
    match (u16::from_ne_bytes(*family), found) {
        (2, IpAddr::V4(_)) | (10, IpAddr::V6(_)) => Ok(found),
        _ => Err(Fault::Value),
    }
}

/// Text up to its zero byte; what is no UTF-8 is no name.
pub(crate) fn text(value: &[u8]) -> &str {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).unwrap_or_default()
}

/// FNV-1a, to tell values apart that are only compared.
pub(crate) fn digest(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}
/// Where [`digest`] begins.
pub(crate) const DIGEST: u64 = 0xCBF2_9CE4_8422_2325;
