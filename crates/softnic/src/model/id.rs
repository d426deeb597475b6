//! Which card, or which function of one, the model is, and what PCI shows of it (datasheet 9.3, 9.4, 9.5).

/// The card or function that the model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceId {
    /// 10F9, CX4: without PHY or module, the simplest variant for other drivers.
    #[default]
    Cx4,
    /// 10FB, SFP+ (X520): with a module in its cage, which answers on the two-wire bus (SFF-8472).
    SfpPlus,
    /// 1528, X540: with a PHY for twisted pair behind MDIO. Of what else differs from the 82599, it has the size of the receive
    /// buffer and the register semaphore.
    X540,
    /// 1563, X550: as [`Self::X540`], with an EEPROM behind its firmware, and hashes to 64 queues by a table of 512 entries. A queue that
    /// is enabled before its RDLEN has arrived for sure is taken for malicious, which is a violation.
    X550,
    /// 10ED, a virtual function of an 82599, with the driver of the physical one inside: it answers the mailbox as Linux does.
    Vf82599,
    /// 1515, a virtual function of an X540.
    VfX540,
    /// 1565, a virtual function of an X550, which has hash key, types and table of its own.
    VfX550,
}

/// The names of the variants in specifications.
pub(crate) const IDS: &[(&str, DeviceId)] = &[
    ("10f9", DeviceId::Cx4),
    ("10fb", DeviceId::SfpPlus),
    ("x540", DeviceId::X540),
    ("1528", DeviceId::X540),
    ("x550", DeviceId::X550),
    ("1563", DeviceId::X550),
    ("10ed", DeviceId::Vf82599),
    ("1515", DeviceId::VfX540),
    ("1565", DeviceId::VfX550),
];

impl DeviceId {
    /// Returns the PCI device id.
    #[must_use]
    pub fn pci(self) -> u16 {
        match self {
            Self::Cx4 => 0x10F9,
            Self::SfpPlus => 0x10FB,
            Self::X540 => 0x1528,
            Self::X550 => 0x1563,
            Self::Vf82599 => 0x10ED,
            Self::VfX540 => 0x1515,
            Self::VfX550 => 0x1565,
        }
    }

    /// Returns whether it is a virtual function.
    #[must_use]
    pub fn is_virtual(self) -> bool {
        matches!(self, Self::Vf82599 | Self::VfX540 | Self::VfX550)
    }

    /// Whether a PHY for twisted pair is on the chip, and SW_FW_SYNC has a semaphore of its own.
    pub(crate) fn has_phy(self) -> bool {
        matches!(self, Self::X540 | Self::X550)
    }

    /// Whether a queue is stopped that looks malicious. Linux's driver of the virtual function reads nothing behind RDLEN.
    pub(super) fn detects_malice(self) -> bool {
        self == Self::X550
    }

    /// Entries of the table that hashes lead into, and bits of each.
    pub(super) fn table(self) -> (usize, u32) {
        if self == Self::X550 { (512, 6) } else { (128, 4) }
    }

    /// Bytes of region 0: as a real X520 has it, whose registers end at 128 KiB; 16 KiB of a virtual function.
    pub(crate) fn bar_size(self) -> usize {
        if self.is_virtual() { 16 << 10 } else { 512 << 10 }
    }

    /// The region that has the MSI-X table.
    pub(crate) fn msix_region(self) -> u32 {
        if self.is_virtual() { 3 } else { 4 }
    }

    /// MSI-X vectors.
    pub(crate) fn vectors(self) -> u16 {
        if self.is_virtual() { 3 } else { 64 }
    }

    /// KiB of the receive buffer.
    pub(super) fn receive_buffer(self) -> u32 {
        if matches!(self, Self::Cx4 | Self::SfpPlus | Self::Vf82599) { 512 } else { 384 }
    }
}
