//! PCI configuration space (PCI Local Bus Specification 3.0, section 6.1), in a file or part of a file.

use crate::{Error, PciIds, Result};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

/// A device's configuration space. It can be read by anyone, and is written only by methods of the device.
#[derive(Debug)]
pub struct ConfigSpace {
    file: Arc<File>,
    start: u64,
    len: u64,
    name: String,
    /// Held over a read-change-write of the command register.
    command: Mutex<()>,
}

/// A capability in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Capability id: 0x05 MSI, 0x09 vendor specific, 0x10 PCI Express, 0x11 MSI-X.
    pub id: u8,
    /// Offset in configuration space, in bytes.
    pub offset: u8,
}

impl ConfigSpace {
    /// Creates it from the `len` bytes of `file` from `start` on; `name` is the device's name, for messages.
    pub fn new(file: Arc<File>, start: u64, len: u64, name: impl Into<String>) -> Self {
        Self { file, start, len, name: name.into(), command: Mutex::default() }
    }

    /// Reads `N` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// If they do not all lie in configuration space, or the device is gone.
    pub fn read<const N: usize>(&self, offset: u16) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let at = self.at(offset, N)?;
        self.file.read_exact_at(&mut bytes, at).map_err(|source| self.failed("read", offset, source))?;
        Ok(bytes)
    }

    /// Reads a 16-bit register.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`].
    pub fn read16(&self, offset: u16) -> Result<u16> {
        Ok(u16::from_le_bytes(self.read(offset)?))
    }

    /// Reads a 32-bit register.
    ///
    /// # Errors
    ///
    /// Those of [`Self::read`].
    pub fn read32(&self, offset: u16) -> Result<u32> {
        Ok(u32::from_le_bytes(self.read(offset)?))
    }

    /// Who the device is (section 6.2.1).
    pub(crate) fn ids(&self) -> Result<PciIds> {
        let [vendor_low, vendor_high, device_low, device_high] = self.read(0)?;
        let [revision, interface, subclass, class] = self.read(8)?;
        Ok(PciIds {
            vendor: u16::from_le_bytes([vendor_low, vendor_high]),
            device: u16::from_le_bytes([device_low, device_high]),
            class: u32::from_be_bytes([0, class, subclass, interface]),
            revision,
        })
    }

    /// Returns the capability list, in its own order (section 6.7). If the list loops or leaves its area, it ends
    /// there.
    ///
    /// # Errors
    ///
    /// If configuration space cannot be read.
    pub fn capabilities(&self) -> Result<Vec<Capability>> {
        const HAS_LIST: u16 = 1 << 4;
        const FIRST: u8 = 0x40;
        // Between 0x40 and 0xFF there is room for this many.
        const MOST: usize = (256 - FIRST as usize) / 4;
        let mut found = Vec::new();
        if self.read16(STATUS)? & HAS_LIST == 0 {
            return Ok(found);
        }
        let [mut offset] = self.read::<1>(CAPABILITIES)?;
        while offset & !3 >= FIRST && found.len() < MOST {
            offset &= !3;
            let [id, next] = self.read::<2>(u16::from(offset))?;
            if id == 0xFF || found.iter().any(|known: &Capability| known.offset == offset) {
                break;
            }
            found.push(Capability { id, offset });
            offset = next;
        }
        Ok(found)
    }

    /// Returns whether requests of the device are under way without an answer; `None` if that cannot be read, or the device is not on
    /// PCI Express (PCI Express base specification 7.5.3.5).
    pub(crate) fn transactions_pending(&self) -> Option<bool> {
        let express = self.capabilities().ok()?.into_iter().find(|capability| capability.id == EXPRESS)?;
        let status = self.read16(u16::from(express.offset) + DEVICE_STATUS).ok()?;
        // All ones is the bus answering for a device that is not there.
        (status != u16::MAX).then_some(status & TRANSACTIONS_PENDING != 0)
    }

    /// Switches decoding of memory regions on or off.
    pub(crate) fn set_memory(&self, on: bool) -> Result<()> {
        self.set_command(COMMAND_MEMORY, on)
    }

    /// Switches decoding of I/O ports on or off.
    pub(crate) fn set_io(&self, on: bool) -> Result<()> {
        self.set_command(COMMAND_IO, on)
    }

    /// Switches interrupts by line (`INTx`) off.
    pub(crate) fn disable_intx(&self) -> Result<()> {
        self.set_command(COMMAND_INTX_DISABLE, true)
    }

    /// Switches bus mastering on or off.
    pub(crate) fn set_bus_master(&self, on: bool) -> Result<()> {
        self.set_command(COMMAND_BUS_MASTER, on)
    }

    /// Sets or clears command register bits and reads them back; the read also pushes out what the device had
    /// written before.
    fn set_command(&self, bits: u16, on: bool) -> Result<()> {
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.command()?;
        let wanted = if on { before | bits } else { before & !bits };
        let at = self.at(COMMAND, 2)?;
        self.file.write_all_at(&wanted.to_le_bytes(), at).map_err(|source| self.failed("write", COMMAND, source))?;
        let now = self.command()?;
        if now & bits == wanted & bits {
            return Ok(());
        }
        let cause = format!("the PCI command register is {now:#06x} after {wanted:#06x} was written");
        Err(Error::unusable(&self.name, cause, "another program may hold the device; reset it"))
    }

    fn command(&self) -> Result<u16> {
        match self.read16(COMMAND)? {
            // Reserved bits are never set: all ones is the bus answering for a device that is not there.
            u16::MAX => {
                let hint = "it was removed or lost power; see: sudo dmesg | tail";
                Err(Error::unusable(
                    &self.name,
                    "the device does not answer (configuration space reads all ones)",
                    hint,
                ))
            }
            command => Ok(command),
        }
    }

    fn at(&self, offset: u16, len: usize) -> Result<u64> {
        let end = u64::from(offset) + len as u64;
        if end <= self.len {
            return Ok(self.start + u64::from(offset));
        }
        let cause = format!("configuration space ends at {:#x}, before {end:#x}", self.len);
        Err(Error::unusable(&self.name, cause, "without root, sysfs shows the first 64 bytes only"))
    }

    fn failed(&self, operation: &'static str, offset: u16, source: std::io::Error) -> Error {
        let object = format!("configuration space of {} at {offset:#x}", self.name);
        Error::system(operation, object, source, "the device may be gone; see: sudo dmesg | tail")
    }
}

/// The capability of PCI Express, and in it the status of the device.
const EXPRESS: u8 = 0x10;
const DEVICE_STATUS: u16 = 0x0A;
const TRANSACTIONS_PENDING: u16 = 1 << 5;
const COMMAND: u16 = 0x04;
const STATUS: u16 = 0x06;
const CAPABILITIES: u16 = 0x34;
const COMMAND_IO: u16 = 1 << 0;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space(bytes: &[u8], start: u64) -> (ConfigSpace, Arc<File>) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(bytes, start).unwrap();
        (ConfigSpace::new(Arc::clone(&file), start, bytes.len() as u64, "0000:03:00.0"), file)
    }

    #[test]
    fn command_bits_change_alone() {
        let mut bytes = [0; 256];
        bytes[4..6].copy_from_slice(&0x0406_u16.to_le_bytes());
        let (config, file) = space(&bytes, 0x700);
        config.set_bus_master(false).unwrap();
        assert_eq!(config.read16(COMMAND).unwrap(), 0x0402);
        config.set_memory(false).unwrap();
        config.set_bus_master(true).unwrap();
        let mut raw = [0; 2];
        file.read_exact_at(&mut raw, 0x704).unwrap();
        assert_eq!(u16::from_le_bytes(raw), 0x0404);
    }

    #[test]
    fn pending_transactions_are_in_the_capability_of_pci_express() {
        let pending = |change: fn(&mut [u8; 256])| {
            let mut bytes = [0; 256];
            // Power management at 0x40, PCI Express at 0xA0.
            (bytes[6], bytes[0x34], bytes[0x40], bytes[0x41], bytes[0xA0]) = (1 << 4, 0x40, 1, 0xA0, 0x10);
            change(&mut bytes);
            space(&bytes, 0).0.transactions_pending()
        };
        assert_eq!(pending(|_| {}), Some(false));
        assert_eq!(pending(|bytes| bytes[0xAA] = 0x2F), Some(true));
        assert_eq!(pending(|bytes| bytes[0xAA] = 0x0F), Some(false), "errors that were detected");
        assert_eq!(pending(|bytes| bytes[0xA0] = 9), None, "no PCI Express");
        assert_eq!(pending(|bytes| *bytes = [0xFF; 256]), None, "gone");
    }

    #[test]
    fn a_device_that_is_gone_is_an_error() {
        let (config, _) = space(&[0xFF; 256], 0);
        assert!(config.set_bus_master(false).unwrap_err().to_string().contains("does not answer"));
        assert!(config.capabilities().unwrap().is_empty(), "all ones is no list");
    }

    #[test]
    fn a_register_that_does_not_keep_its_bits_is_an_error() {
        // Reads and writes of /dev/zero succeed and nothing stays.
        let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let config = ConfigSpace::new(Arc::new(zero), 0, 256, "0000:03:00.0");
        config.set_bus_master(false).unwrap();
        let text = config.set_bus_master(true).unwrap_err().to_string();
        assert!(text.contains("0x0000 after 0x0004 was written"), "{text}");
    }

    #[test]
    fn reads_outside_are_errors() {
        let (config, _) = space(&[0; 64], 0);
        assert!(config.read32(60).is_ok());
        assert!(config.read32(61).unwrap_err().to_string().contains("ends at 0x40"));
        assert!(config.read32(u16::MAX).is_err());
    }

    #[test]
    fn capabilities_in_order_and_a_circle_ends() {
        let mut bytes = [0; 256];
        bytes[6] = 0x10;
        bytes[0x34] = 0x50;
        bytes[0x50..0x52].copy_from_slice(&[0x11, 0xA1]);
        bytes[0xA0..0xA2].copy_from_slice(&[0x10, 0x50]);
        let expected = [Capability { id: 0x11, offset: 0x50 }, Capability { id: 0x10, offset: 0xA0 }];
        assert_eq!(space(&bytes, 0).0.capabilities().unwrap(), expected);
    }

    proptest! {
        // Miri is some hundred times slower and has no files for failures.
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_capability_list_panics_or_runs_forever(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(found) = space(&bytes, 0).0.capabilities() {
                prop_assert!(found.len() <= 48);
            }
        }
    }
}
