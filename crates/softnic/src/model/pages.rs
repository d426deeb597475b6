//! The memory of a module: that of a kind (`cage.rs`), or a file that was read from a module.

use super::cage::ModuleKind;
use crate::Error;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

const PAGE: usize = 256;
/// A passive cable that is longer has a link only with the analog settings for cables.
const SHORT_CABLE_METRES: u8 = 5;

/// Pages A0h and A2h (SFF-8472).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(super) identity: [u8; PAGE],
    pub(super) diagnostics: Option<[u8; PAGE]>,
}

impl Pages {
    /// Reads a file as `ethtool -m DEV raw on` writes it: 256 bytes of A0h, or 128, and then 256 of A2h if there are any.
    pub(crate) fn read(path: &str) -> Result<Self, Error> {
        let bytes = open(path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(2 * PAGE as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
        });
        let bytes = bytes.map_err(|source| Error::System {
            operation: "read",
            object: format!("the memory of a module {path:?}"),
            source,
            hint: "name a file that ethtool -m DEV raw on has written",
        })?;
        Self::parse(&bytes).ok_or_else(|| Error::BadValue {
            key: "module",
            value: path.to_owned(),
            allowed: match bytes.len() {
                found if found <= 2 * PAGE => format!("a file of 128, 256 or 512 bytes; this one has {found}"),
                _ => "a file of 128, 256 or 512 bytes; this one has more".to_owned(),
            },
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (identity, diagnostics) = match bytes.len() {
            128 | PAGE => (bytes, None),
            512 => (&bytes[..PAGE], bytes[PAGE..].try_into().ok()),
            _ => return None,
        };
        let mut pages = Self { identity: [0; PAGE], diagnostics };
        pages.identity[..identity.len()].copy_from_slice(identity);
        Some(pages)
    }

    /// The kind that has a link when a module has that says this of itself (SFF-8472, table 5-3).
    pub(crate) fn kind(&self) -> ModuleKind {
        let (ten, one, cable, metres) = (self.identity[3], self.identity[6], self.identity[8], self.identity[18]);
        // Optics: LRM and ER are long ones, too.
        let (short, long) = (ten & 0x10 != 0, ten & 0xE0 != 0);
        match () {
            () if cable & 0x04 != 0 && metres > SHORT_CABLE_METRES => ModuleKind::LongCable,
            () if cable & 0x04 != 0 => ModuleKind::Cable,
            () if cable & 0x08 != 0 => ModuleKind::ActiveCable,
            () if (short || long) && one & 0x03 != 0 => ModuleKind::DualRate,
            () if long && !short => ModuleKind::LongRange,
            () if short => ModuleKind::ShortRange,
            () if one & 0x08 != 0 => ModuleKind::Copper1G,
            () if one & 0x01 != 0 => ModuleKind::ShortRange1G,
            () if one & 0x02 != 0 => ModuleKind::LongRange1G,
            // One that says nothing is set up as optics of 10 Gbit/s.
            () => ModuleKind::ShortRange,
        }
    }
}

/// Opens a regular file; anything else might have no end, or be waited for.
fn open(path: &str) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}
