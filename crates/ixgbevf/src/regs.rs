//! The register map of a virtual function (82599 datasheet, chapter 8.3; X550 datasheet 8.3.2).

use device::{MapPromise, Regs, registers};

/// The registers of an open virtual function.
pub type Registers<D> = Regs<Ixgbevf, D>;

registers! {
    /// Registers of a virtual function of an 82599, X540 or X550.
    pub map Ixgbevf for |ids: PciIds| crate::ids::Model::of(ids).is_some();
    // SAFETY: every register below that has an address, a length, a ring index, a buffer size or an enable bit of a queue in it is of
    // class `dma`.
    promise unsafe { MapPromise::given() };

    /// Control; the reset is over when the mailbox says so.
    VFCTRL @ 0x00000, wo, vfctrl { RST: 26 };
    /// Status.
    VFSTATUS @ 0x00008, ro, vfstatus {};
    /// Link; SPEED as in LINKS of the card, with NON_STD for 2.5 and 5 Gbit/s of an X550.
    VFLINKS @ 0x00010, ro, vflinks { NON_STD: 27, SPEED: 28..=29, UP: 30 };
    /// The mailbox: a request and an acknowledgement of ours; who has the memory; a message and an acknowledgement of theirs; a
    /// reset of theirs that is under way, and one that is over. PFSTS, PFACK and RSTD clear when read.
    VFMAILBOX @ 0x002FC, rw, vfmailbox { REQ: 0, ACK: 1, VFU: 2, PFU: 3, PFSTS: 4, PFACK: 5, RSTI: 6, RSTD: 7 };
    /// The mailbox's memory.
    VFMBMEM[16; 4] @ 0x00200, rw, vfmbmem {};

    /// Vectors' mask, set.
    VTEIMS @ 0x00108, rw, vteims {};
    /// Vectors' mask, clear.
    VTEIMC @ 0x0010C, wo, vteimc {};
    /// Causes cleared when their message is sent.
    VTEIAC @ 0x00110, rw, vteiac {};
    /// Vectors that are masked when their message is sent.
    VTEIAM @ 0x00114, rw, vteiam {};
    /// Vectors of queues, two queues in each.
    VTIVAR[4; 4] @ 0x00120, rw, vtivar { RX_EVEN: 0..=7, RX_ODD: 16..=23 };
    /// The vector of the mailbox.
    VTIVAR_MISC @ 0x00140, rw, vtivar_misc { MAILBOX: 0..=7 };
    /// Interval of each vector.
    VTEITR[3; 4] @ 0x00820, rw, vteitr { INTERVAL: 3..=11, CNT_WDIS: 31 };

    /// Packet types, and how many bits of a hash table's entry choose a queue.
    VFPSRTYPE @ 0x00300, rw, vfpsrtype { RQPL: 29..=31 };
    /// RSS of an X550's function: on, and packet types.
    VFMRQC @ 0x03000, rw, vfmrqc { RSSEN: 0, TYPES: 16..=24 };
    /// Its key, byte 0 in bits 7:0 of dword 0.
    VFRSSRK[10; 4] @ 0x03100, rw, vfrssrk {};
    /// Its redirection table, a byte for each of 64 entries.
    VFRETA[16; 4] @ 0x03200, rw, vfreta {};

    /// Ring base address, low half; 128-byte aligned.
    VFRDBAL[8; 0x40] @ 0x01000, dma, vfrdbal {};
    /// Ring base address, high half.
    VFRDBAH[8; 0x40] @ 0x01004, dma, vfrdbah {};
    /// Ring length in bytes, a multiple of 128.
    VFRDLEN[8; 0x40] @ 0x01008, dma, vfrdlen {};
    /// Direct cache access of a receive queue; bit 12 must be clear.
    VFDCA_RXCTRL[8; 0x40] @ 0x0100C, dma, vfdca_rxctrl { RESERVED_12: 12 };
    /// Ring head.
    VFRDH[8; 0x40] @ 0x01010, dma, vfrdh {};
    /// Buffer sizes (packet in KiB, header in 64 bytes) and descriptor type.
    VFSRRCTL[8; 0x40] @ 0x01014, dma, vfsrrctl { BSIZEPACKET: 0..=4, BSIZEHEADER: 8..=13, DESCTYPE: 25..=27, DROP_EN: 28 };
    /// Ring tail, the doorbell.
    VFRDT[8; 0x40] @ 0x01018, dma, vfrdt {};
    /// Queue enable; VME strips VLAN tags.
    VFRXDCTL[8; 0x40] @ 0x01028, dma, vfrxdctl { EN: 25, SWFLSH: 26, VME: 30 };
    /// Receive side coalescing.
    VFRSCCTL[8; 0x40] @ 0x0102C, dma, vfrscctl {};

    /// Ring base address, low half; 128-byte aligned.
    VFTDBAL[8; 0x40] @ 0x02000, dma, vftdbal {};
    /// Ring base address, high half.
    VFTDBAH[8; 0x40] @ 0x02004, dma, vftdbah {};
    /// Ring length in bytes, a multiple of 128.
    VFTDLEN[8; 0x40] @ 0x02008, dma, vftdlen {};
    /// Direct cache access of a transmit queue; write-backs are in order while bit 11 is clear.
    VFDCA_TXCTRL[8; 0x40] @ 0x0200C, dma, vfdca_txctrl { WRO_EN: 11 };
    /// Ring head.
    VFTDH[8; 0x40] @ 0x02010, dma, vftdh {};
    /// Ring tail, the doorbell.
    VFTDT[8; 0x40] @ 0x02018, dma, vftdt {};
    /// Queue enable and thresholds in descriptors.
    VFTXDCTL[8; 0x40] @ 0x02028, dma, vftxdctl { PTHRESH: 0..=6, HTHRESH: 8..=14, WTHRESH: 16..=22, EN: 25 };
    /// Head write-back address, low half, with its enable bit.
    VFTDWBAL[8; 0x40] @ 0x02038, dma, vftdwbal {};
    /// Head write-back address, high half.
    VFTDWBAH[8; 0x40] @ 0x0203C, dma, vftdwbah {};

    /// Good packets received. All these counters wrap.
    VFGPRC @ 0x0101C, ro, vfgprc {};
    /// Bytes of good packets received, low half.
    VFGORC_LSB @ 0x01020, ro, vfgorc_lsb {};
    /// Bytes of good packets received, bits 35:32.
    VFGORC_MSB @ 0x01024, ro, vfgorc_msb {};
    /// Multicast packets received.
    VFMPRC @ 0x01034, ro, vfmprc {};
    /// Good packets sent.
    VFGPTC @ 0x0201C, ro, vfgptc {};
    /// Bytes of good packets sent, low half.
    VFGOTC_LSB @ 0x02020, ro, vfgotc_lsb {};
    /// Bytes of good packets sent, bits 35:32.
    VFGOTC_MSB @ 0x02024, ro, vfgotc_msb {};
}
