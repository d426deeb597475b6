//! PCI configuration space of an 82599 (datasheet 9.3, 9.4): the capabilities are where drivers expect them without
//! looking for them: power management 0x40, MSI 0x50, MSI-X 0x70, PCI Express 0xA0.

use crate::DeviceId;

/// Bytes of extended configuration space.
pub(super) const SIZE: usize = 4096;
/// Bytes of the region that has the MSI-X table, and pending bits at [`PENDING_BITS`].
pub(super) const MSIX_BAR: usize = 16 << 10;
const PENDING_BITS: u32 = 0x2000;

const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const POWER: usize = 0x40;
const MSI: usize = 0x50;
const MSIX: usize = 0x70;
const EXPRESS: usize = 0xA0;
const ERRORS: usize = 0x100;
const SERIAL: usize = 0x140;

const MEMORY: u8 = 1 << 1;
const BUS_MASTER: u8 = 1 << 2;
/// In the upper byte.
const INTERRUPT_DISABLE: u8 = 1 << 2;
/// Upper byte of Device Control: Initiate Function Level Reset.
const DEVICE_CONTROL_HIGH: usize = EXPRESS + 0x09;
const INITIATE_RESET: u8 = 1 << 7;

/// Configuration space: what it holds, which bits keep what is written, and which clear when 1 is written.
pub(super) struct ConfigSpace {
    bytes: Box<[u8]>,
    initial: Box<[u8]>,
    writable: Box<[u8]>,
    clears: Box<[u8]>,
}

impl ConfigSpace {
    /// As after power-on.
    pub(super) fn new(id: DeviceId, mac: [u8; 6]) -> Self {
        let zeros = || vec![0; SIZE].into_boxed_slice();
        let mut space = Self { bytes: zeros(), initial: zeros(), writable: zeros(), clears: zeros() };
        space.header(id);
        space.capabilities(id);
        space.extended(mac);
        space.bytes.clone_from(&space.initial);
        space
    }

    /// Everything at its initial value.
    pub(super) fn reset(&mut self) {
        self.bytes.clone_from(&self.initial);
    }

    /// Reads bytes that lie inside.
    pub(super) fn read(&self, offset: usize, data: &mut [u8]) {
        if let Some(from) = self.bytes.get(offset..).and_then(|bytes| bytes.get(..data.len())) {
            data.copy_from_slice(from);
        }
    }

    /// Writes bytes that lie inside; whether a function level reset was asked for.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> bool {
        let mut reset = false;
        for (at, value) in (offset..SIZE).zip(data) {
            reset |= at == DEVICE_CONTROL_HIGH && value & INITIATE_RESET != 0;
            let kept = self.bytes[at] & !self.writable[at];
            self.bytes[at] = (kept | value & self.writable[at]) & !(value & self.clears[at]);
        }
        reset
    }

    /// Whether regions answer: memory decoding is on, and the function is in D0.
    pub(super) fn memory(&self) -> bool {
        self.bytes[COMMAND] & MEMORY != 0 && self.powered()
    }

    /// Whether the device may access memory.
    pub(super) fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & BUS_MASTER != 0 && self.powered()
    }

    /// Whether INTx is switched off.
    pub(super) fn line_disabled(&self) -> bool {
        self.bytes[COMMAND + 1] & INTERRUPT_DISABLE != 0
    }

    fn powered(&self) -> bool {
        self.bytes[POWER + 4] & 3 == 0
    }

    fn header(&mut self, id: DeviceId) {
        self.fixed16(0x00, 0x8086);
        self.fixed16(0x02, id.pci());
        // Memory, bus master, parity response, SERR, INTx disable; capability list; error bits clear when written.
        self.field16(COMMAND, 0, 0x0546);
        self.fixed16(0x06, 0x0010);
        self.clearing16(0x06, 0xF900);
        // Revision 1, class 0x020000.
        self.fixed32(0x08, 0x0200_0001);
        self.field16(0x0C, 0, 0xFFFF);
        // 64-bit prefetchable memory: a region of 2^n bytes keeps the address bits above n.
        self.field32(BAR0, 0xC, address_bits(id.bar_size()));
        self.field32(BAR0 + 4, 0, u32::MAX);
        let table = BAR0 + 4 * id.msix_region() as usize;
        self.field32(table, 0xC, address_bits(MSIX_BAR));
        self.field32(table + 4, 0, u32::MAX);
        self.fixed16(0x2C, 0x8086);
        self.fixed16(0x2E, 0x0003);
        // A virtual function has neither power states of its own nor INTx nor MSI.
        self.fixed16(0x34, if id.is_virtual() { 0x70 } else { 0x40 });
        // Interrupt line; pin INTA.
        self.field16(0x3C, if id.is_virtual() { 0 } else { 0x0100 }, 0x00FF);
    }

    fn capabilities(&mut self, id: DeviceId) {
        if !id.is_virtual() {
            self.power_and_msi();
        }
        // MSI-X: table at the start of its region.
        self.fixed16(MSIX, 0xA011);
        self.field16(MSIX + 2, id.vectors() - 1, 0xC000);
        self.fixed32(MSIX + 4, id.msix_region());
        self.fixed32(MSIX + 8, PENDING_BITS | id.msix_region());
        self.express();
    }

    fn power_and_msi(&mut self) {
        // Power management 1.2: D0 and D3hot, registers survive D3hot.
        self.fixed16(POWER, 0x5001);
        self.fixed16(POWER + 2, 0x0003);
        self.field16(POWER + 4, 0x0008, 0x0003);
        // MSI: one vector, 64-bit address, mask.
        self.fixed16(MSI, 0x7005);
        self.field16(MSI + 2, 0x0180, 0x0001);
        self.field32(MSI + 4, 0, !3);
        self.field32(MSI + 8, 0, !0);
        self.field16(MSI + 12, 0, 0xFFFF);
        self.field32(MSI + 16, 0, 1);
    }

    fn express(&mut self) {
        // PCI Express 2 endpoint: 512-byte payloads, function level reset, 8 lanes at 5 GT/s. No transaction is ever
        // pending (Device Status bit 5).
        self.fixed16(EXPRESS, 0x0010);
        self.fixed16(EXPRESS + 0x02, 0x0002);
        self.fixed32(EXPRESS + 0x04, 0x1000_8002);
        self.field16(EXPRESS + 0x08, 0x2810, 0x7FFF);
        self.clearing16(EXPRESS + 0x0A, 0x000F);
        self.fixed32(EXPRESS + 0x0C, 0x0000_0082);
        self.field16(EXPRESS + 0x10, 0, 0x01C3);
        self.fixed16(EXPRESS + 0x12, 0x0082);
        self.fixed32(EXPRESS + 0x24, 0x0000_001F);
        self.field16(EXPRESS + 0x28, 0, 0x001F);
        self.fixed32(EXPRESS + 0x2C, 0x0000_0006);
        self.field16(EXPRESS + 0x30, 0x0002, 0x000F);
    }

    fn extended(&mut self, mac: [u8; 6]) {
        // Advanced error reporting.
        self.fixed32(ERRORS, 0x1401_0001);
        self.clearing32(ERRORS + 0x04, 0x003F_F030);
        self.field32(ERRORS + 0x08, 0, 0x003F_F030);
        self.field32(ERRORS + 0x0C, 0x0006_2030, 0x003F_F030);
        self.clearing32(ERRORS + 0x10, 0x0000_31C1);
        self.field32(ERRORS + 0x14, 0x0000_2000, 0x0000_31C1);
        // Serial number: the MAC address as EUI-64.
        self.fixed32(SERIAL, 0x0001_0003);
        self.fixed32(SERIAL + 4, u32::from_be_bytes([0xFF, mac[3], mac[4], mac[5]]));
        self.fixed32(SERIAL + 8, u32::from_be_bytes([mac[0], mac[1], mac[2], 0xFF]));
    }

    fn fixed16(&mut self, at: usize, value: u16) {
        self.initial[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn fixed32(&mut self, at: usize, value: u32) {
        self.initial[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn field16(&mut self, at: usize, value: u16, writable: u16) {
        self.fixed16(at, value);
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn field32(&mut self, at: usize, value: u32, writable: u32) {
        self.fixed32(at, value);
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    fn clearing16(&mut self, at: usize, bits: u16) {
        self.clears[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }

    fn clearing32(&mut self, at: usize, bits: u32) {
        self.clears[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    }
}

/// The address bits of a base address register that can be written, for a region of `size` bytes, a power of two.
fn address_bits(size: usize) -> u32 {
    u32::try_from(size).map_or(0, u32::wrapping_neg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(DeviceId::Cx4, [2, 3, 4, 5, 6, 7])
    }

    fn word(space: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn sizing_a_region_reads_back_its_size() {
        let mut space = space();
        space.write(BAR0, &[0xFF; 8]);
        assert_eq!((word(&space, BAR0), word(&space, BAR0 + 4)), (0xFFF8_000C, u32::MAX));
        space.write(0x20, &[0xFF; 8]);
        assert_eq!(word(&space, 0x20), 0xFFFF_C00C);
        space.write(0x18, &[0xFF; 8]);
        assert_eq!((word(&space, 0x18), word(&space, 0x1C)), (0, 0), "there is no region 2");
    }

    #[test]
    fn a_virtual_function_has_its_table_in_region_3_and_no_line() {
        let mut space = ConfigSpace::new(DeviceId::VfX540, [2, 3, 4, 5, 6, 7]);
        space.write(BAR0, &[0xFF; 8]);
        space.write(0x1C, &[0xFF; 8]);
        assert_eq!((word(&space, BAR0), word(&space, 0x1C), word(&space, 0x20)), (0xFFFF_C00C, 0xFFFF_C00C, u32::MAX));
        assert_eq!((word(&space, 0x34), word(&space, MSIX), word(&space, 0x3C)), (0x70, 0x0002_A011, 0));
        assert_eq!((word(&space, MSIX + 4), word(&space, POWER), word(&space, MSI)), (3, 0, 0));
    }

    #[test]
    fn a_power_state_stops_memory_and_bus_mastering() {
        let mut space = space();
        assert!(!space.memory() && !space.bus_master());
        space.write(COMMAND, &[6, 0]);
        assert!(space.memory() && space.bus_master());
        space.write(POWER + 4, &[3]);
        assert!(!space.memory() && !space.bus_master());
        space.write(POWER + 4, &[0]);
        assert!(space.memory());
        assert!(space.write(EXPRESS + 8, &0x8000_u16.to_le_bytes()));
        space.reset();
        assert!(!space.memory());
    }
}
