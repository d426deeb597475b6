//! A base address region behind system calls: I/O ports, and what cannot be mapped.

use crate::Bar;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A region reached by reading and writing a file: a device's at VFIO, or `resourceN` of sysfs. Each access is one system
/// call of the register's width.
pub(crate) struct RegionFile {
    pub(crate) file: Arc<File>,
    /// Where the region begins in the file.
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

impl RegionFile {
    fn at(&self, offset: u32, width: usize) -> Option<u64> {
        let start = usize::try_from(offset).ok()?;
        let inside = start.checked_add(width)? <= self.size;
        (start.is_multiple_of(width) && inside).then(|| self.offset + u64::from(offset))
    }

    /// All ones, which the bus answers for a device that is gone, where there is nothing to read.
    fn read<const N: usize>(&self, offset: u32) -> [u8; N] {
        let mut bytes = [0xFF; N];
        match self.at(offset, N).map(|at| self.file.read_exact_at(&mut bytes, at)) {
            Some(Ok(())) => bytes,
            _ => [0xFF; N],
        }
    }

    fn write(&self, offset: u32, bytes: &[u8]) {
        if let Some(at) = self.at(offset, bytes.len())
            && let Err(error) = self.file.write_all_at(bytes, at)
        {
            tracing::warn!("a register write at {offset:#x} was lost: {error}");
        }
    }
}

impl Bar for RegionFile {
    fn size(&self) -> usize {
        self.size
    }

    fn read32(&self, offset: u32) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read16(&self, offset: u32) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    unsafe fn write16(&self, offset: u32, value: u16) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read8(&self, offset: u32) -> u8 {
        u8::from_le_bytes(self.read(offset))
    }

    unsafe fn write8(&self, offset: u32, value: u8) {
        self.write(offset, &[value]);
    }
}

impl fmt::Debug for RegionFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionFile").field("size", &self.size).finish_non_exhaustive()
    }
}
