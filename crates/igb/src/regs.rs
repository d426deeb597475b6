//! The register map of the 82576 and I350 (82576 datasheet, chapter 8), grouped by its sections: as far as queues of the
//! physical function need it.
//!
//! Registers that tell the device of memory (descriptor rings, buffer sizes, queue enables, head write-back) are of class
//! `dma`, so that safe code can only read them. The global enables RCTL.RXEN and TCTL.EN are not: after a reset the only
//! queue that is enabled has a ring of no descriptors.

use device::{MapPromise, Regs, registers};

/// The registers of an open device of this family.
pub(crate) type Registers<D> = Regs<Igb, D>;

registers! {
    /// Registers of the 82576 and I350.
    pub map Igb for |ids: PciIds| crate::ids::Model::of(ids).is_some();
    // SAFETY: every register below that has an address, a length, a ring index or an enable bit of a queue in it is of
    // class `dma`. RCTL.BSIZE counts only where SRRCTL.BSIZEPACKET is 0, which no queue here has.
    promise unsafe { MapPromise::given() };

    // 8.2 General control.

    /// Device control. 8.2.
    CTRL @ 0x00000, rw, ctrl { FD: 0, GIO_DIS: 2, SLU: 6, SPEED: 8..=9, FRCSPD: 11, FRCDPLX: 12, RST: 26, RFCE: 27, TFCE: 28, VME: 30 };
    /// Device status. 8.2.
    STATUS @ 0x00008, ro, status { FD: 0, LU: 1, LAN_ID: 2..=3, SPEED: 6..=7, GIO: 19 };
    /// Extended device control; LINK_MODE 0 is the internal PHY. 8.2.
    CTRL_EXT @ 0x00018, rw, ctrl_ext { LINK_MODE: 22..=23, DRV_LOAD: 28 };
    /// A register of the PHY: OP 1 writes, 2 reads. The I350 takes the PHY's address from elsewhere. 8.2.
    MDIC @ 0x00020, rw, mdic { DATA: 0..=15, REGADD: 16..=20, PHYADD: 21..=25, OP: 26..=27, READY: 28, ERROR: 30 };

    // 8.4 EEPROM.

    /// EEPROM control. 8.4.
    EEC @ 0x00010, ro, eec { PRES: 8, ARD: 9 };
    /// A word of the EEPROM. 8.4.
    EERD @ 0x00014, rw, eerd { START: 0, DONE: 1, ADDR: 2..=15, DATA: 16..=31 };
    /// Management's EEPROM control: the PHY of each port has been configured from the EEPROM. 8.4.
    EEMNGCTL @ 0x01010, ro, eemngctl { CFG_DONE: 18..=21 };

    // Management.

    /// Management control; with KEEP_PHY_LINK_UP manageability firmware has a session on the link, which is to be left as it is. 82576
    /// datasheet, host interface of manageability.
    MANC @ 0x05820, ro, manc { KEEP_PHY_LINK_UP: 18 };

    // 8.7 Semaphores shared with firmware and the other ports.

    /// Software semaphore; reading SMBI sets it. 8.7.
    SWSM @ 0x05B50, rw, swsm { SMBI: 0, SWESMBI: 1 };
    /// Software and firmware synchronisation: software's bits, firmware's 16 higher. 8.7; PHY2 and PHY3 on I350.
    SW_FW_SYNC @ 0x05B5C, rw, sw_fw_sync { EEP: 0, PHY0: 1, PHY1: 2, PHY2: 5, PHY3: 6 };

    // 8.8 Interrupts.

    /// Causes of the vectors in MSI-X mode. 8.8.
    EICR @ 0x01580, rc, eicr {};
    /// Vectors' mask, set. 8.8.
    EIMS @ 0x01524, rw, eims { VECTORS: 0..=24 };
    /// Vectors' mask, clear. 8.8.
    EIMC @ 0x01528, wo, eimc {};
    /// Causes cleared when their MSI-X message is sent. 8.8.
    EIAC @ 0x0152C, rw, eiac {};
    /// Vectors that are masked when their message is sent. 8.8.
    EIAM @ 0x01530, rw, eiam {};
    /// Other causes; with GPIE.NSICR reading clears all. 8.8.
    ICR @ 0x01500, rc, icr { LSC: 2, FER: 22 };
    /// Other causes' mask, set. 8.8.
    IMS @ 0x01508, rw, ims { LSC: 2, FER: 22 };
    /// Other causes' mask, clear. 8.8.
    IMC @ 0x0150C, wo, imc {};
    /// Throttling of each vector, in microseconds. 8.8.
    EITR[25; 4] @ 0x01680, rw, eitr { INTERVAL: 2..=14, CNT_INGR: 31 };
    /// Vectors of queues, a byte each: see `interrupts.rs`. 8.8.
    IVAR[8; 4] @ 0x01700, rw, ivar {};
    /// Vectors of the TCP timer and of all other causes. 8.8.
    IVAR_MISC @ 0x01740, rw, ivar_misc { OTHER: 8..=15 };
    /// General purpose interrupt enables. 8.8.
    GPIE @ 0x01514, rw, gpie { NSICR: 0, MSIX: 4, EIAME: 30, PBA: 31 };

    // 8.10 Receive.

    /// Receive control: long frames, multicast hash of bits 47:36 (MO 0), CRC stripping. 8.10.
    RCTL @ 0x00100, rw, rctl { RXEN: 1, SBP: 2, UPE: 3, MPE: 4, LPE: 5, MO: 12..=13, BAM: 15, BSIZE: 16..=17, VFE: 18, DPF: 22, SECRC: 26 };
    /// Buffer sizes (packet in KiB, header in 64 bytes) and descriptor type. 8.10.
    SRRCTL[16; 0x40] @ 0x0C00C, dma, srrctl { BSIZEPACKET: 0..=6, BSIZEHEADER: 8..=13, RDMTS: 20..=24, DESCTYPE: 25..=27, DROP_EN: 31 };
    /// Ring base address, low half; 128-byte aligned. 8.10.
    RDBAL[16; 0x40] @ 0x0C000, dma, rdbal {};
    /// Ring base address, high half. 8.10.
    RDBAH[16; 0x40] @ 0x0C004, dma, rdbah {};
    /// Ring length in bytes, a multiple of 128. 8.10.
    RDLEN[16; 0x40] @ 0x0C008, dma, rdlen {};
    /// Ring head. 8.10.
    RDH[16; 0x40] @ 0x0C010, dma, rdh {};
    /// Ring tail, the doorbell. 8.10.
    RDT[16; 0x40] @ 0x0C018, dma, rdt {};
    /// Queue enable and thresholds in descriptors. 8.10.
    RXDCTL[16; 0x40] @ 0x0C028, dma, rxdctl { PTHRESH: 0..=4, HTHRESH: 8..=12, WTHRESH: 16..=20, EN: 25, SWFLSH: 26 };
    /// Packets dropped for want of descriptors: 12 bits on an 82576. 8.10.
    RQDPC[16; 0x40] @ 0x0C030, rc, rqdpc {};
    /// Direct cache access of a receive queue; write-backs are in order while bit 11 is clear. 8.13.
    RXCTL[16; 0x40] @ 0x0C014, dma, rxctl { WB_RO: 11 };
    /// Receive checksum control. 8.10.
    RXCSUM @ 0x05000, rw, rxcsum { IPOFLD: 8, TUOFLD: 9, PCSD: 13 };
    /// Longest frame in bytes, CRC included; counts with RCTL.LPE. 8.10.
    RLPML @ 0x05004, rw, rlpml { BYTES: 0..=13 };
    /// Multicast table: 4096 bits. 8.10.
    MTA[128; 4] @ 0x05200, rw, mta {};
    /// Receive address 0 to 15, low half. 8.10.
    RAL[16; 8] @ 0x05400, rw, ral {};
    /// Receive address 0 to 15, high half. 8.10.
    RAH[16; 8] @ 0x05404, rw, rah { ADDRESS: 0..=15, AV: 31 };
    /// Receive address 16 to 23, on I350 to 31, high half. 8.10.
    RAHX[16; 8] @ 0x054E4, rw, rahx {};
    /// VLAN table: 4096 bits. 8.10.
    VFTA[128; 4] @ 0x05600, rw, vfta {};
    /// Multiple receive queues: mode and RSS hash types. 8.10.
    MRQC @ 0x05818, rw, mrqc { MODE: 0..=2, TYPES: 16..=24 };
    /// RSS key, byte 0 in bits 7:0 of dword 0. 8.10.
    RSSRK[10; 4] @ 0x05C80, rw, rssrk {};
    /// Redirection table, four entries a dword. 8.10.
    RETA[32; 4] @ 0x05C00, rw, reta {};

    // 8.12 Transmit.

    /// Transmit control: padding, collision threshold and distance. 8.12.
    TCTL @ 0x00400, rw, tctl { EN: 1, PSP: 3, CT: 4..=11, BST: 12..=21, RTLC: 24 };
    /// Ring base address, low half; 128-byte aligned. 8.12.
    TDBAL[16; 0x40] @ 0x0E000, dma, tdbal {};
    /// Ring base address, high half. 8.12.
    TDBAH[16; 0x40] @ 0x0E004, dma, tdbah {};
    /// Ring length in bytes, a multiple of 128. 8.12.
    TDLEN[16; 0x40] @ 0x0E008, dma, tdlen {};
    /// Ring head. 8.12.
    TDH[16; 0x40] @ 0x0E010, dma, tdh {};
    /// Ring tail, the doorbell. 8.12.
    TDT[16; 0x40] @ 0x0E018, dma, tdt {};
    /// Queue enable and thresholds in descriptors. 8.12.
    TXDCTL[16; 0x40] @ 0x0E028, dma, txdctl { PTHRESH: 0..=4, HTHRESH: 8..=12, WTHRESH: 16..=20, EN: 25, SWFLSH: 26 };
    /// Head write-back address, low half, and its enable. 8.12.
    TDWBAL[16; 0x40] @ 0x0E038, dma, tdwbal { EN: 0 };
    /// Head write-back address, high half. 8.12.
    TDWBAH[16; 0x40] @ 0x0E03C, dma, tdwbah {};
    /// Direct cache access of a transmit queue; write-backs are in order while bit 11 is clear. 8.13.
    TXCTL[16; 0x40] @ 0x0E014, dma, txctl { WB_RO: 11 };

    // 8.19 Statistics: 32 bits, clear on read, saturating. Byte counters are 64 bits in two registers.

    /// CRC errors. 8.19.
    CRCERRS @ 0x04000, rc, crcerrs {};
    /// Packets missed for want of packet buffer. 8.19.
    MPC @ 0x04010, rc, mpc {};
    /// Receive length errors. 8.19.
    RLEC @ 0x04040, rc, rlec {};
    /// Good packets received. 8.19.
    GPRC @ 0x04074, rc, gprc {};
    /// Broadcast packets received. 8.19.
    BPRC @ 0x04078, rc, bprc {};
    /// Multicast packets received. 8.19.
    MPRC @ 0x0407C, rc, mprc {};
    /// Good packets sent. 8.19.
    GPTC @ 0x04080, rc, gptc {};
    /// Good bytes received, low half. 8.19.
    GORCL @ 0x04088, rc, gorcl {};
    /// Good bytes received, high half; reading it clears the pair. 8.19.
    GORCH @ 0x0408C, rc, gorch {};
    /// Good bytes sent, low half. 8.19.
    GOTCL @ 0x04090, rc, gotcl {};
    /// Good bytes sent, high half; reading it clears the pair. 8.19.
    GOTCH @ 0x04094, rc, gotch {};
    /// Undersized packets. 8.19.
    RUC @ 0x040A4, rc, ruc {};
    /// Fragments. 8.19.
    RFC @ 0x040A8, rc, rfc {};
    /// Oversized packets. 8.19.
    ROC @ 0x040AC, rc, roc {};
    /// Jabber. 8.19.
    RJC @ 0x040B0, rc, rjc {};
    /// Multicast packets sent. 8.19.
    MPTC @ 0x040F0, rc, mptc {};
    /// Broadcast packets sent. 8.19.
    BPTC @ 0x040F4, rc, bptc {};
}
