//! The register map of a virtual function (82599 datasheet, chapter 8.3), as far as the mailbox needs it.

use device::{MapPromise, Regs, registers};

/// The registers of an open virtual function.
pub type Registers<D> = Regs<Ixgbevf, D>;

registers! {
    /// Registers of a virtual function of an 82599, X540 or X550.
    pub map Ixgbevf for |ids: PciIds| ids.vendor == 0x8086 && matches!(ids.device, 0x10ED | 0x1515 | 0x1565);
    // SAFETY: a reset stops all memory accesses, and the others below have nothing to do with memory.
    promise unsafe { MapPromise::given() };

    /// Control; the reset is over when the mailbox says so.
    VFCTRL @ 0x00000, wo, vfctrl { RST: 26 };
    /// Status.
    VFSTATUS @ 0x00008, ro, vfstatus {};
    /// The mailbox: a request and an acknowledgement of ours; who has the memory; a message and an acknowledgement of theirs; a
    /// reset of theirs that is under way, and one that is over. PFSTS, PFACK and RSTD clear when read.
    VFMAILBOX @ 0x002FC, rw, vfmailbox { REQ: 0, ACK: 1, VFU: 2, PFU: 3, PFSTS: 4, PFACK: 5, RSTI: 6, RSTD: 7 };
    /// The mailbox's memory.
    VFMBMEM[16; 4] @ 0x00200, rw, vfmbmem {};
}
