//! The register map of the 82599, X540 and X550 (82599 datasheet, chapter 8.2.3), grouped by its sections.
//!
//! Only the registers that the driver uses are listed. Registers that tell the device of memory (descriptor rings,
//! buffer sizes, queue enables, head write-back) are of class `dma`, so that safe code can only read them. The global
//! enables `RXCTRL.RXEN` and `DMATXCTL.TE` are not: without an enabled queue they cause no memory access.

use device::{MapPromise, ReadWrite, Reg, Regs, registers};

/// The registers of an open device of this family.
pub type Registers<D> = Regs<Ixgbe, D>;

/// Number of receive address filters (`RAL`, `RAH`): entry 0 holds the station address.
pub const RECEIVE_ADDRESSES: u32 = 128;

/// Returns the low half of receive address `n`: bytes 0 to 3 of the address, byte 0 in bits 7:0. `n` must be below
/// [`RECEIVE_ADDRESSES`].
#[must_use]
pub const fn ral(n: u32) -> Reg<Ixgbe, ReadWrite> {
    if n < 16 { RAL.at(n) } else { RALX.at(n - 16) }
}

/// Returns the high half of receive address `n`: bytes 4 and 5 of the address and the valid bit. `n` must be below
/// [`RECEIVE_ADDRESSES`].
#[must_use]
pub const fn rah(n: u32) -> Reg<Ixgbe, ReadWrite> {
    if n < 16 { RAH.at(n) } else { RAHX.at(n - 16) }
}

/// Returns the throttling register of MSI-X vector `n`, which must be below 64.
#[must_use]
pub const fn eitr(n: u32) -> Reg<Ixgbe, ReadWrite> {
    if n < 24 { EITR.at(n) } else { EITRX.at(n - 24) }
}

registers! {
    /// Registers of the 82599 family, as far as queues 0 to 63 of the physical function need them.
    pub map Ixgbe for |ids: PciIds| crate::ids::Model::of(ids).is_some();
    // SAFETY: every register below that has an address, a length, a ring index or an enable bit of a queue in it is of
    // class `dma`.
    promise unsafe { MapPromise::given() };

    // 8.2.3.1 General control.

    /// Device control. 8.2.3.1.
    CTRL @ 0x00000, rw, ctrl { GIO_DIS: 2, LRST: 3, RST: 26 };
    /// Device status. 8.2.3.1.
    STATUS @ 0x00008, ro, status { LAN_ID: 2..=3, GIO: 19 };
    /// Extended device control. 8.2.3.1.
    CTRL_EXT @ 0x00018, rw, ctrl_ext { PFRSTD: 14, NS_DIS: 16, RO_DIS: 17, DRV_LOAD: 28 };
    /// Software-definable pins; on SFP+ boards SDP2 is low without a module, SDP3 high turns the laser off, SDP5 high selects the
    /// higher rate of a module that has two. 8.2.3.1.
    ESDP @ 0x00020, rw, esdp { SDP2: 2, SDP3: 3, SDP5: 5, SDP5_DIR: 13 };
    /// The two wires of the bus to an SFP+ module: what they are at, and what this end does. 8.2.3.1.5.
    I2CCTL @ 0x00028, rw, i2cctl { CLK_IN: 0, CLK_OUT: 1, DATA_IN: 2, DATA_OUT: 3 };

    // 8.2.3.2 EEPROM and flash.

    /// EEPROM control. 8.2.3.2.
    EEC @ 0x10010, ro, eec { PRES: 8, ARD: 9, SIZE: 11..=14 };
    /// EEPROM read, a word at a time. 8.2.3.2.
    EERD @ 0x10014, rw, eerd { START: 0, DONE: 1, ADDR: 2..=15, DATA: 16..=31 };

    // 8.2.3.4 PCIe and the semaphores shared with firmware and the other port.

    /// Extended PCIe control. 8.2.3.4.
    GCR_EXT @ 0x11050, rw, gcr_ext { VT_MODE: 0..=1, BUFFERS_CLEAR: 30, MSIX_EN: 31 };
    /// Software semaphore; reading SMBI sets it. 8.2.3.4.
    SWSM @ 0x10140, rw, swsm { SMBI: 0, SWESMBI: 1 };
    /// Firmware's mode: bit 1 of MODE is that of pass-through. 8.2.3.4.
    FWSM @ 0x10148, ro, fwsm { MODE: 1..=3, VALID: 15 };
    /// Software and firmware synchronisation: software's bits, firmware's 5 higher; REGSMP on X540 and later. 8.2.3.4, X550 datasheet 8.2.2.20.3.
    SW_FW_SYNC @ 0x10160, rw, sw_fw_sync { EEP: 0, PHY0: 1, PHY1: 2, MAC_CSR: 3, FLASH: 4, SW_MNG: 10, I2C: 11..=12, REGSMP: 31 };
    /// Commands to the firmware of an X550, and its answers. X550 datasheet 8.2.2.20.4 (ARCRAM).
    FLEX_MNG[448; 4] @ 0x15800, rw, flex_mng {};
    /// Hands a command to the firmware of an X550; its answer is there, and valid. X550 datasheet 8.2.2.20.5.
    HICR @ 0x15F00, rw, hicr { EN: 0, C: 1, SV: 2 };
    /// Firmware status of an X550: it was reset. X550 datasheet 11.8.2.1, which has no layout of it.
    FWSTS @ 0x15F0C, rw, fwsts { FWRI: 9 };

    // 8.2.3.5 Interrupts.

    /// Interrupt causes. 8.2.3.5.
    EICR @ 0x00800, rc, eicr { QUEUES: 0..=15, LSC: 20, ECC: 28, OTHER: 31 };
    /// Causes cleared when their MSI-X message is sent. 8.2.3.5.
    EIAC @ 0x00810, rw, eiac { QUEUES: 0..=15 };
    /// Interrupt mask, set. 8.2.3.5.
    EIMS @ 0x00880, rw, eims { QUEUES: 0..=15, LSC: 20, ECC: 28, OTHER: 31 };
    /// Interrupt mask, clear. 8.2.3.5.
    EIMC @ 0x00888, wo, eimc { ALL: 0..=30 };
    /// Interrupt mask, set, a bit for each of 64 vectors. 8.2.3.5.
    EIMS_EX[2; 4] @ 0x00AA0, rw, eims_ex {};
    /// Interrupt mask, clear, a bit for each of 64 vectors. 8.2.3.5.
    EIMC_EX[2; 4] @ 0x00AB0, wo, eimc_ex {};
    /// Vectors that are masked when their message is sent, a bit for each of 64. 8.2.3.5.
    EIAM_EX[2; 4] @ 0x00AD0, rw, eiam_ex {};
    /// Throttling of vectors 0 to 23, in steps of 2.048 us at 10 Gbit/s. 8.2.3.5.
    EITR[24; 4] @ 0x00820, rw, eitr_fields { INTERVAL: 3..=11, CNT_WDIS: 31 };
    /// Throttling of vectors 24 to 63. 8.2.3.5.
    EITRX[40; 4] @ 0x12300, rw, eitrx {};
    /// General purpose interrupt enables. 8.2.3.5.
    GPIE @ 0x00898, rw, gpie { MSIX: 4, OCD: 5, EIMEN: 6, EIAME: 30, PBA: 31 };
    /// Vectors of queues 2n and 2n + 1: a byte each for receive and transmit. 8.2.3.5.
    IVAR[64; 4] @ 0x00900, rw, ivar { RX_EVEN: 0..=7, TX_EVEN: 8..=15, RX_ODD: 16..=23, TX_ODD: 24..=31 };
    /// Vectors of the TCP timer and of all other causes. 8.2.3.5.
    IVAR_MISC @ 0x00A00, rw, ivar_misc { TCP_TIMER: 0..=7, OTHER: 8..=15 };

    // 8.2.3.7 Receive filters.

    /// Filter control. 8.2.3.7.
    FCTRL @ 0x05080, rw, fctrl { SBP: 1, MPE: 8, UPE: 9, BAM: 10 };
    /// VLAN control. 8.2.3.7.
    VLNCTRL @ 0x05088, rw, vlnctrl { VET: 0..=15, CFI: 28, CFIEN: 29, VFE: 30 };
    /// Multicast control. 8.2.3.7.
    MCSTCTRL @ 0x05090, rw, mcstctrl { MO: 0..=1, MFE: 2 };
    /// Packet types for header split, and RSS queues of a pool. 8.2.3.7.
    PSRTYPE[64; 4] @ 0x0EA00, dma, psrtype { TCP: 4, UDP: 5, IPV4: 8, IPV6: 9, L2: 12, RQPL: 29..=31 };
    /// Receive checksum control. 8.2.3.7.
    RXCSUM @ 0x05000, rw, rxcsum { IPPCSE: 12, PCSD: 13 };
    /// Receive filter control. 8.2.3.7.
    RFCTL @ 0x05008, rw, rfctl { ISCSI_DIS: 0, RSC_DIS: 5, NFSW_DIS: 6, NFSR_DIS: 7 };
    /// Multicast table: 4096 bits. 8.2.3.7.
    MTA[128; 4] @ 0x05200, rw, mta {};
    /// Receive address 0 to 15, low half. 8.2.3.7.
    RAL[16; 8] @ 0x05400, rw, ral_low {};
    /// Receive address 0 to 15, high half. 8.2.3.7.
    RAH[16; 8] @ 0x05404, rw, rah_fields { ADDRESS: 0..=15, AV: 31 };
    /// Receive address 16 to 127, low half. 8.2.3.7.
    RALX[112; 8] @ 0x0A280, rw, ralx {};
    /// Receive address 16 to 127, high half. 8.2.3.7.
    RAHX[112; 8] @ 0x0A284, rw, rahx {};
    /// VLAN table: 4096 bits. 8.2.3.7.
    VFTA[128; 4] @ 0x0A000, rw, vfta {};
    /// Multiple receive queues: mode and RSS hash types. 8.2.3.7.
    MRQC @ 0x05818, rw, mrqc { MODE: 0..=3, TYPES: 16..=24 };
    /// RSS key, byte 0 in bits 7:0 of dword 0. 8.2.3.7.
    RSSRK[10; 4] @ 0x05C80, rw, rssrk {};
    /// Redirection table, entries 0 to 127, four a dword. 8.2.3.7.
    RETA[32; 4] @ 0x05C00, rw, reta {};
    /// Redirection table of the X550, entries 128 to 511. X550 datasheet 8.2.2.8.24.
    ERETA[96; 4] @ 0x0EE80, rw, ereta {};

    // 8.2.3.8 Receive DMA.

    /// Ring base address, low half; 128-byte aligned. 8.2.3.8.
    RDBAL[64; 0x40] @ 0x01000, dma, rdbal {};
    /// Ring base address, high half. 8.2.3.8.
    RDBAH[64; 0x40] @ 0x01004, dma, rdbah {};
    /// Ring length in bytes, a multiple of 128. 8.2.3.8.
    RDLEN[64; 0x40] @ 0x01008, dma, rdlen {};
    /// Direct cache access of a receive queue; bit 12 must be clear. 8.2.3.11.
    DCA_RXCTRL[64; 0x40] @ 0x0100C, dma, dca_rxctrl { RESERVED_12: 12 };
    /// Ring head. 8.2.3.8.
    RDH[64; 0x40] @ 0x01010, dma, rdh {};
    /// Buffer sizes (packet in KiB, header in 64 bytes) and descriptor type. 8.2.3.8.
    SRRCTL[64; 0x40] @ 0x01014, dma, srrctl { BSIZEPACKET: 0..=4, BSIZEHEADER: 8..=13, RDMTS: 22..=24, DESCTYPE: 25..=27, DROP_EN: 28 };
    /// Ring tail, the doorbell. 8.2.3.8.
    RDT[64; 0x40] @ 0x01018, dma, rdt {};
    /// Queue enable; RLPML works on X540 and later only. 8.2.3.8.
    RXDCTL[64; 0x40] @ 0x01028, dma, rxdctl { RLPML: 0..=13, RLPML_EN: 15, EN: 25, SWFLSH: 26, VME: 30 };
    /// Receive side coalescing of a queue. 8.2.3.8.
    RSCCTL[64; 0x40] @ 0x0102C, dma, rscctl { RSCEN: 0, MAXDESC: 2..=3 };
    /// Receive DMA control. 8.2.3.8.
    RDRXCTL @ 0x02F00, rw, rdrxctl { CRCSTRIP: 1, DMAIDONE: 3, RSCFRSTSIZE: 17..=21, RSCACKC: 25, FCOE_WRFIX: 26 };
    /// Time that a PAUSE frame asks for, two traffic classes a register. 8.2.3.3.
    FCTTV[4; 4] @ 0x03200, rw, fcttv {};
    /// Level of a receive buffer at which PAUSE ends, for each traffic class. 8.2.3.3.
    FCRTL[8; 4] @ 0x03220, rw, fcrtl { RTL: 5..=18, XONE: 31 };
    /// Level of a receive buffer at which PAUSE is asked for, for each traffic class. 8.2.3.3.
    FCRTH[8; 4] @ 0x03260, rw, fcrth { RTH: 5..=18, FCEN: 31 };
    /// When PAUSE is asked for again. 8.2.3.3.
    FCRTV @ 0x032A0, rw, fcrtv {};
    /// Receive packet buffer size in KiB, for each traffic class. 8.2.3.8.
    RXPBSIZE[8; 4] @ 0x03C00, rw, rxpbsize { SIZE: 10..=19 };
    /// Whether PAUSE frames are sent: 0 for none. 8.2.3.3.7.
    FCCFG @ 0x03D00, rw, fccfg { TFCE: 3..=4 };
    /// Receive enable. 8.2.3.8.
    RXCTRL @ 0x03000, rw, rxctrl { RXEN: 0 };

    // 8.2.3.9 Transmit.

    /// Most bytes in flight, in 256-byte units. 8.2.3.9.
    DTXMXSZRQ @ 0x08100, rw, dtxmxszrq { MAX: 0..=11 };
    /// Transmit DMA control. 8.2.3.9.
    DMATXCTL @ 0x04A80, rw, dmatxctl { TE: 0, NS: 1, GDV: 3, VT: 16..=31 };
    /// Ring base address, low half; 128-byte aligned. 8.2.3.9.
    TDBAL[64; 0x40] @ 0x06000, dma, tdbal {};
    /// Ring base address, high half. 8.2.3.9.
    TDBAH[64; 0x40] @ 0x06004, dma, tdbah {};
    /// Ring length in bytes, a multiple of 128. 8.2.3.9.
    TDLEN[64; 0x40] @ 0x06008, dma, tdlen {};
    /// Direct cache access of a transmit queue; bit 11 is relaxed ordering of write-backs. 8.2.3.11.
    DCA_TXCTRL[64; 0x40] @ 0x0600C, dma, dca_txctrl { WRO_EN: 11 };
    /// Ring head. 8.2.3.9.
    TDH[64; 0x40] @ 0x06010, dma, tdh {};
    /// Ring tail, the doorbell. 8.2.3.9.
    TDT[64; 0x40] @ 0x06018, dma, tdt {};
    /// Queue enable and thresholds in descriptors; PTHRESH + WTHRESH must not exceed 40. 8.2.3.9.
    TXDCTL[64; 0x40] @ 0x06028, dma, txdctl { PTHRESH: 0..=6, HTHRESH: 8..=14, WTHRESH: 16..=22, EN: 25, SWFLSH: 26 };
    /// Head write-back address, low half, and its enable. 8.2.3.9.
    TDWBAL[64; 0x40] @ 0x06038, dma, tdwbal { EN: 0 };
    /// Head write-back address, high half. 8.2.3.9.
    TDWBAH[64; 0x40] @ 0x0603C, dma, tdwbah {};
    /// Transmit packet buffer size in KiB, for each traffic class. 8.2.3.9.
    TXPBSIZE[8; 4] @ 0x0CC00, rw, txpbsize { SIZE: 10..=19 };
    /// Transmit packet buffer threshold in KiB, for each traffic class. 8.2.3.9.
    TXPBTHRESH[8; 4] @ 0x04950, rw, txpbthresh { THRESH: 0..=9 };
    /// Multiple transmit queues; written while RTTDCS.ARBDIS is set. 8.2.3.9.
    MTQC @ 0x08120, rw, mtqc { RT: 0, VT: 1, LAYOUT: 2..=3 };

    // 8.2.3.10 Arbiters and rate limiters.

    /// Transmit descriptor plane arbiter. 8.2.3.10.
    RTTDCS @ 0x04900, rw, rttdcs { ARBDIS: 6 };
    /// Transmit queue that RTTBCNRC names, 0 to 127. 8.2.3.10.
    RTTDQSEL @ 0x04904, rw, rttdqsel {};
    /// Rate limiter of the selected transmit queue; 0 is off. 8.2.3.10.
    RTTBCNRC @ 0x04984, rw, rttbcnrc {};

    // 8.2.3.12 Security blocks, through which all received frames pass.

    /// Receive security control. 8.2.3.12.
    SECRXCTRL @ 0x08D00, rw, secrxctrl { SECRX_DIS: 0, RX_DIS: 1 };
    /// Receive security status. 8.2.3.12.
    SECRXSTAT @ 0x08D04, ro, secrxstat { SECRX_RDY: 0 };

    // 8.2.3.22 MAC.

    /// MAC core control. 8.2.3.22.
    HLREG0 @ 0x04240, rw, hlreg0 { TXCRCEN: 0, RXCRCSTRP: 1, JUMBOEN: 2, TXPADEN: 10, LPBK: 15, MDCSPD: 16, RXLNGTHERREN: 27, RXPADSTRIPEN: 28 };
    /// What becomes of PAUSE and other MAC control frames that are received. 8.2.3.22.
    MFLCN @ 0x04294, rw, mflcn { PMCF: 0, DPF: 1, RPFCE: 2, RFCE: 3 };
    /// Largest frame in bytes, CRC included. 8.2.3.22.13.
    MAXFRS @ 0x04268, rw, maxfrs { MFS: 16..=31 };
    /// Link mode and auto-negotiation. 8.2.3.22.
    AUTOC @ 0x042A0, rw, autoc { FLU: 0, PMA_10G: 7..=8, PMA_1G: 9, AN_RESTART: 12, LMS: 13..=15, KR: 16, KX: 30, KX4: 31 };
    /// Auto-negotiation: its state, and what the other end offers. 8.2.3.22.
    ANLP1 @ 0x042B0, ro, anlp1 { STATE: 16..=19 };
    /// Whether manageability firmware forbids changes of the link. 8.2.3.22.
    MMNGC @ 0x042D0, ro, mmngc { VETO: 0 };
    /// A command to a PHY. 8.2.3.22.
    MSCA @ 0x0425C, rw, msca { ADDRESS: 0..=15, DEVICE: 16..=20, PHY: 21..=25, OP: 26..=27, MDI_CMD: 30 };
    /// Data to and from a PHY. 8.2.3.22.
    MSRWD @ 0x04260, rw, msrwd { WRITE: 0..=15, READ: 16..=31 };
    /// Words for the analog part, as the EEPROM has them. 8.2.3.22.
    CORECTL @ 0x14F00, rw, corectl {};
    /// Link mode, serial interface and link disable. 8.2.3.22.
    AUTOC2 @ 0x042A8, rw, autoc2 { PMA_SERIAL: 16..=17, LINK_DISABLE: 28..=30 };
    /// MAC control of X540 and X550: the link is forced up. X550 datasheet 8.2.2.16.9.
    MACC @ 0x04330, rw, macc { FLU: 0 };
    /// Link status; link-down is sticky until read. 8.2.3.22.
    LINKS @ 0x042A4, ro, links { SPEED_NON_STD: 27, SPEED: 28..=29, UP: 30 };

    // 8.2.3.23 Statistics: 32 bits, clear on read, saturating. Byte counters are 36 bits in two registers.

    /// CRC errors. 8.2.3.23.
    CRCERRS @ 0x04000, rc, crcerrs {};
    /// Illegal byte errors. 8.2.3.23.
    ILLERRC @ 0x04004, rc, illerrc {};
    /// Error bytes. 8.2.3.23.
    ERRBC @ 0x04008, rc, errbc {};
    /// MAC short packets discarded. 8.2.3.23.
    MSPDC @ 0x04010, rc, mspdc {};
    /// Packets missed for want of packet buffer, for each traffic class. 8.2.3.23.
    MPC[8; 4] @ 0x03FA0, rc, mpc {};
    /// MAC local faults. 8.2.3.23.
    MLFC @ 0x04034, rc, mlfc {};
    /// MAC remote faults. 8.2.3.23.
    MRFC @ 0x04038, rc, mrfc {};
    /// Receive length errors. 8.2.3.23.
    RLEC @ 0x04040, rc, rlec {};
    /// Pause frames sent, XON. 8.2.3.23.
    LXONTXC @ 0x03F60, rc, lxontxc {};
    /// Pause frames sent, XOFF. 8.2.3.23.
    LXOFFTXC @ 0x03F68, rc, lxofftxc {};
    /// Pause frames received, XON. 8.2.3.23.
    LXONRXCNT @ 0x041A4, rc, lxonrxcnt {};
    /// Pause frames received, XOFF. 8.2.3.23.
    LXOFFRXCNT @ 0x041A8, rc, lxoffrxcnt {};
    /// Packets received by size: 64, to 127, 255, 511, 1023 and above (bytes). 8.2.3.23.
    PRC[6; 4] @ 0x0405C, rc, prc {};
    /// Good packets received, missed ones included. 8.2.3.23.
    GPRC @ 0x04074, rc, gprc {};
    /// Broadcast packets received. 8.2.3.23.
    BPRC @ 0x04078, rc, bprc {};
    /// Multicast packets received. 8.2.3.23.
    MPRC @ 0x0407C, rc, mprc {};
    /// Good packets sent, pause frames included. 8.2.3.23.
    GPTC @ 0x04080, rc, gptc {};
    /// Good bytes received, low 32 bits. 8.2.3.23.
    GORCL @ 0x04088, rc, gorcl {};
    /// Good bytes received, high 4 bits; reading it clears the pair. 8.2.3.23.
    GORCH @ 0x0408C, rc, gorch {};
    /// Good bytes sent, low 32 bits. 8.2.3.23.
    GOTCL @ 0x04090, rc, gotcl {};
    /// Good bytes sent, high 4 bits; reading it clears the pair. 8.2.3.23.
    GOTCH @ 0x04094, rc, gotch {};
    /// Undersized packets. 8.2.3.23.
    RUC @ 0x040A4, rc, ruc {};
    /// Fragments. 8.2.3.23.
    RFC @ 0x040A8, rc, rfc {};
    /// Oversized packets. 8.2.3.23.
    ROC @ 0x040AC, rc, roc {};
    /// Jabber. 8.2.3.23.
    RJC @ 0x040B0, rc, rjc {};
    /// Bytes received, good or bad, low 32 bits. 8.2.3.23.
    TORL @ 0x040C0, rc, torl {};
    /// Bytes received, good or bad, high 4 bits; reading it clears the pair. 8.2.3.23.
    TORH @ 0x040C4, rc, torh {};
    /// Packets received, good or bad. 8.2.3.23.
    TPR @ 0x040D0, rc, tpr {};
    /// Packets sent. 8.2.3.23.
    TPT @ 0x040D4, rc, tpt {};
    /// Packets sent by size: 64, to 127, 255, 511, 1023 and above (bytes). 8.2.3.23.
    PTC[6; 4] @ 0x040D8, rc, ptc {};
    /// Multicast packets sent, pause frames included. 8.2.3.23.
    MPTC @ 0x040F0, rc, mptc {};
    /// Broadcast packets sent. 8.2.3.23.
    BPTC @ 0x040F4, rc, bptc {};
    /// Checksum errors (IP, TCP, UDP, SCTP). 8.2.3.23.
    XEC @ 0x04120, rc, xec {};
    /// Packets received, for each of 16 slots. 8.2.3.23.
    QPRC[16; 0x40] @ 0x01030, rc, qprc {};
    /// Bytes received in a slot, low 32 bits. 8.2.3.23.
    QBRC_L[16; 0x40] @ 0x01034, rc, qbrc_l {};
    /// Bytes received in a slot, high 4 bits; reading it clears the pair. 8.2.3.23.
    QBRC_H[16; 0x40] @ 0x01038, rc, qbrc_h {};
    /// Packets dropped for want of descriptors, for each of 16 slots. 8.2.3.23.
    QPRDC[16; 0x40] @ 0x01430, rc, qprdc {};
    /// Packets sent, for each of 16 slots. 8.2.3.23.
    QPTC[16; 0x40] @ 0x06030, rc, qptc {};
    /// Bytes sent in a slot, low 32 bits. 8.2.3.23.
    QBTC_L[16; 8] @ 0x08700, rc, qbtc_l {};
    /// Bytes sent in a slot, high 4 bits; reading it clears the pair. 8.2.3.23.
    QBTC_H[16; 8] @ 0x08704, rc, qbtc_h {};
    /// Statistics slot of receive queues 4n to 4n + 3, a byte each. 8.2.3.23.
    RQSMR[32; 4] @ 0x02300, rw, rqsmr {};
    /// Statistics slot of transmit queues 4n to 4n + 3, a byte each. 8.2.3.23.
    TQSM[32; 4] @ 0x08600, rw, tqsm {};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_arrays_continue_where_the_datasheet_says() {
        assert_eq!((ral(15).offset(), ral(16).offset(), ral(127).offset()), (0x5478, 0xA280, 0xA5F8));
        assert_eq!((rah(0).offset(), rah(16).offset(), rah(127).offset()), (0x5404, 0xA284, 0xA5FC));
        assert_eq!((eitr(23).offset(), eitr(24).offset(), eitr(63).offset()), (0x87C, 0x12300, 0x1239C));
    }

    #[test]
    fn per_queue_registers_of_the_last_queue() {
        assert_eq!(RXDCTL.at(63).offset(), 0x1FE8);
        assert_eq!(TDT.at(63).offset(), 0x6FD8);
        assert_eq!(QPRDC.at(15).offset(), 0x17F0);
        assert_eq!(QBTC_H.at(15).offset(), 0x877C);
    }
}
