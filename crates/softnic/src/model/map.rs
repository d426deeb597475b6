//! The register file: every register the model knows, with its name, masks and reset value (datasheet section 8.2).
//!
//! A dword that is not listed here is unknown: it reads 0, and touching it is a violation in strict mode.

mod newer;

use super::DeviceId;
use std::sync::OnceLock;

/// Size in bytes of the decoded register file.
pub(crate) const SIZE: u32 = 0x2_0000;

/// What an access to a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads back what was written, within its masks.
    Storage,
    /// Writing it is a violation.
    ReadOnly,
    /// A statistics counter: clears on read, not writable (section 8).
    Counter,
}

/// One line of the map: a register or an array of registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) base: u32,
    stride: u32,
    count: u32,
    pub(crate) kind: Kind,
    /// Bits that keep what is written.
    pub(crate) write: u32,
    /// Bits that must be written as 0.
    pub(crate) reserved: u32,
    reset: u32,
    /// Where the first `aliased` registers really are.
    alias: Option<(u32, u32)>,
}

const fn rw(name: &'static str, base: u32) -> Line {
    Line { name, base, stride: 4, count: 1, kind: Kind::Storage, write: !0, reserved: 0, reset: 0, alias: None }
}
const fn ro(name: &'static str, base: u32) -> Line {
    Line { kind: Kind::ReadOnly, write: 0, ..rw(name, base) }
}
const fn rc(name: &'static str, base: u32) -> Line {
    Line { kind: Kind::Counter, write: 0, ..rw(name, base) }
}

impl Line {
    const fn of(self, count: u32, stride: u32) -> Self {
        Self { count, stride, ..self }
    }
    const fn reset(self, reset: u32) -> Self {
        Self { reset, ..self }
    }
    const fn keeps(self, write: u32) -> Self {
        Self { write, ..self }
    }
    const fn reserved(self, reserved: u32) -> Self {
        Self { reserved, ..self }
    }
    /// The first `count` registers are another name of those at `base`, `stride` apart.
    const fn same_as(self, base: u32, stride: u32) -> Self {
        Self { alias: Some((base, stride)), ..self }
    }
}

pub(crate) const CTRL: u32 = 0x0000;
pub(crate) const STATUS: u32 = 0x0008;
pub(crate) const CTRL_EXT: u32 = 0x0018;
pub(crate) const ESDP: u32 = 0x0020;
pub(crate) const I2CCTL: u32 = 0x0028;
pub(crate) const EICR: u32 = 0x0800;
pub(crate) const EICS: u32 = 0x0808;
pub(crate) const EIAC: u32 = 0x0810;
/// Vectors 0..=23; those from 24 on follow at [`EITR_HIGH`].
pub(crate) const EITR: u32 = 0x0820;
pub(crate) const EITR_HIGH: u32 = 0x1_2300;
pub(crate) const EIMS: u32 = 0x0880;
pub(crate) const EIMC: u32 = 0x0888;
pub(crate) const EIAM: u32 = 0x0890;
pub(crate) const GPIE: u32 = 0x0898;
pub(crate) const IVAR: u32 = 0x0900;
pub(crate) const IVAR_MISC: u32 = 0x0A00;
pub(crate) const EICS_EX: u32 = 0x0A90;
pub(crate) const EIMS_EX: u32 = 0x0AA0;
pub(crate) const EIMC_EX: u32 = 0x0AB0;
pub(crate) const EIAM_EX: u32 = 0x0AD0;
pub(crate) const RQSMR: u32 = 0x2300;
pub(crate) const RDRXCTL: u32 = 0x2F00;
pub(crate) const RXCTRL: u32 = 0x3000;
pub(crate) const FCTTV: u32 = 0x3200;
pub(crate) const FCRTL: u32 = 0x3220;
pub(crate) const FCRTH: u32 = 0x3260;
pub(crate) const FCRTV: u32 = 0x32A0;
pub(crate) const RXPBSIZE: u32 = 0x3C00;
pub(crate) const FCCFG: u32 = 0x3D00;
pub(crate) const PSRTYPE: u32 = 0x5480;
pub(crate) const RSCINT: u32 = 0x1_2000;
pub(crate) const PFMBMEM: u32 = 0x1_3000;
pub(crate) const HLREG0: u32 = 0x4240;
pub(crate) const MSCA: u32 = 0x425C;
pub(crate) const MSRWD: u32 = 0x4260;
pub(crate) const MAXFRS: u32 = 0x4268;
pub(crate) const MFLCN: u32 = 0x4294;
pub(crate) const MACC: u32 = 0x4330;
pub(crate) const AUTOC: u32 = 0x42A0;
pub(crate) const LINKS: u32 = 0x42A4;
pub(crate) const AUTOC2: u32 = 0x42A8;
pub(crate) const ANLP1: u32 = 0x42B0;
pub(crate) const LINKS2: u32 = 0x4324;
pub(crate) const RTTDCS: u32 = 0x4900;
pub(crate) const DMATXCTL: u32 = 0x4A80;
pub(crate) const DTXTCPFLGL: u32 = 0x4A88;
pub(crate) const DTXTCPFLGH: u32 = 0x4A8C;
pub(crate) const RXCSUM: u32 = 0x5000;
pub(crate) const FCTRL: u32 = 0x5080;
pub(crate) const VLNCTRL: u32 = 0x5088;
pub(crate) const MCSTCTRL: u32 = 0x5090;
pub(crate) const MTA: u32 = 0x5200;
pub(crate) const RAL: u32 = 0x5400;
pub(crate) const MRQC: u32 = 0x5818;
pub(crate) const RETA: u32 = 0x5C00;
pub(crate) const RSSRK: u32 = 0x5C80;
pub(crate) const RAL_HIGH: u32 = 0xA200;
pub(crate) const PFVFSPOOF: u32 = 0x8200;
pub(crate) const MTQC: u32 = 0x8120;
pub(crate) const TQSM: u32 = 0x8600;
pub(crate) const SECTXCTRL: u32 = 0x8800;
pub(crate) const SECTXSTAT: u32 = 0x8804;
pub(crate) const SECRXCTRL: u32 = 0x8D00;
pub(crate) const SECRXSTAT: u32 = 0x8D04;
pub(crate) const VFTA: u32 = 0xA000;
pub(crate) const ETQF: u32 = 0x5128;
pub(crate) const SAQF: u32 = 0xE000;
pub(crate) const DAQF: u32 = 0xE200;
pub(crate) const SDPQF: u32 = 0xE400;
pub(crate) const FTQF: u32 = 0xE600;
pub(crate) const L34T_IMIR: u32 = 0xE800;
pub(crate) const ETQS: u32 = 0xEC00;
pub(crate) const FDIRCTRL: u32 = 0xEE00;
pub(crate) const ERETA: u32 = 0xEE80;
pub(crate) const FDIRCMD: u32 = 0xEE2C;
pub(crate) const EEC: u32 = 0x1_0010;
pub(crate) const EERD: u32 = 0x1_0014;
pub(crate) const SWSM: u32 = 0x1_0140;
pub(crate) const FWSM: u32 = 0x1_0148;
pub(crate) const MMNGC: u32 = 0x42D0;
pub(crate) const SW_FW_SYNC: u32 = 0x1_0160;
pub(crate) const CORECTL: u32 = 0x1_4F00;
pub(crate) const FACTPS: u32 = 0x1_0150;
pub(crate) const FLEX_MNG: u32 = 0x1_5800;
pub(crate) const HICR: u32 = 0x1_5F00;

/// First receive ring, queues 0..=63; 64..=127 follow at [`RX_HIGH`]. One ring each 0x40 bytes.
pub(crate) const RX_LOW: u32 = 0x1000;
pub(crate) const RX_HIGH: u32 = 0xD000;
/// Transmit rings, queues 0..=127.
pub(crate) const TX: u32 = 0x6000;

/// RAH keeps address, pool bits and AV; bits 18 and 19 read 0.
const RAH_KEEPS: u32 = 0x8001_FFFF;
/// RAL and RAH alternate, so each is an array of stride 8.
const MAP: &[Line] = &[
    // General control (8.2.3.1)
    rw("CTRL", CTRL).reserved(0xFBFF_FFF3),
    ro("STATUS", STATUS),
    rw("CTRL_EXT", CTRL_EXT),
    rw("ESDP", ESDP),
    rw("I2CCTL", I2CCTL),
    rw("FRTIMER", 0x48),
    rw("TCPTIMER", 0x4C),
    rw("LEDCTL", 0x200),
    // Interrupts (8.2.3.5)
    rw("EICR", EICR),
    rw("EICS", EICS),
    rw("EIAC", EIAC),
    rw("EITR", EITR).of(24, 4).keeps(0xFF8),
    rw("EITR", EITR_HIGH).of(105, 4).keeps(0xFF8),
    rw("EIMS", EIMS),
    rw("EIMC", EIMC),
    rw("EIAM", EIAM),
    rw("EITRSEL", 0x894),
    rw("GPIE", GPIE),
    rw("IVAR", IVAR).of(64, 4).keeps(0xBFBF_BFBF),
    rw("IVAR_MISC", IVAR_MISC).keeps(0xBFBF),
    rw("EICS_EX", EICS_EX).of(2, 4),
    rw("EIMS_EX", EIMS_EX).of(2, 4),
    rw("EIMC_EX", EIMC_EX).of(2, 4),
    rw("EIAM_EX", EIAM_EX).of(2, 4),
    rw("PBACL", 0x1_1068),
    rw("PBACL", 0x1_10C0).of(8, 4),
    rw("RSCINT", RSCINT).of(128, 4),
    // Receive DMA (8.2.3.8)
    rw("RDBAL", 0x1000).of(64, 0x40).keeps(!0x7F).reserved(0x7F),
    rw("RDBAH", 0x1004).of(64, 0x40),
    rw("RDLEN", 0x1008).of(64, 0x40).keeps(0x000F_FF80).reserved(0xFFF0_007F),
    rw("DCA_RXCTRL", 0x100C).of(64, 0x40).reset(0x1000),
    rw("RDH", 0x1010).of(64, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("SRRCTL", 0x1014).of(64, 0x40).reset(0x402).reserved(0xE03F_C080),
    rw("RDT", 0x1018).of(64, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("RXDCTL", 0x1028).of(64, 0x40),
    rw("RSCCTL", 0x102C).of(64, 0x40),
    rw("RDBAL", 0xD000).of(64, 0x40).keeps(!0x7F).reserved(0x7F),
    rw("RDBAH", 0xD004).of(64, 0x40),
    rw("RDLEN", 0xD008).of(64, 0x40).keeps(0x000F_FF80).reserved(0xFFF0_007F),
    rw("DCA_RXCTRL", 0xD00C).of(64, 0x40).reset(0x1000),
    rw("RDH", 0xD010).of(64, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("SRRCTL", 0xD014).of(64, 0x40).reset(0x402).reserved(0xE03F_C080),
    rw("RDT", 0xD018).of(64, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("RXDCTL", 0xD028).of(64, 0x40),
    rw("RSCCTL", 0xD02C).of(64, 0x40),
    rw("SRRCTL", 0x2100).of(16, 4).reserved(0xE03F_C080).same_as(0x1014, 0x40),
    rw("DCA_RXCTRL", 0x2200).of(16, 4).same_as(0x100C, 0x40),
    rw("RTRPT4C", 0x2140).of(8, 4),
    rw("RTRPT4S", 0x2160).of(8, 4),
    rw("RQSMR", RQSMR).of(32, 4).keeps(0x0F0F_0F0F),
    rw("RTRPCS", 0x2430),
    rw("RDRXCTL", RDRXCTL).keeps(0xFFFF_FFF7).reset(0x0010_0000),
    rw("QDE", 0x2F04),
    // Bit 1 is the 82598's; a test of Linux's driver sets it.
    rw("RXCTRL", RXCTRL).keeps(1).reserved(!3),
    rw("PFCTOP", 0x3008),
    rw("RTRUP2TC", 0x3020),
    rw("RSCDBU", 0x3028),
    rw("FCTTV", FCTTV).of(4, 4),
    rw("FCRTL", FCRTL).of(8, 4).keeps(0x8007_FFF0),
    rw("FCRTH", FCRTH).of(8, 4).keeps(0x8007_FFF0),
    rw("FCRTV", FCRTV),
    rw("RXPBSIZE", RXPBSIZE).of(1, 4).reset(0x8_0000),
    rw("RXPBSIZE", RXPBSIZE + 4).of(7, 4),
    rw("FCCFG", FCCFG),
    // MAC (8.2.3.22)
    rw("PCS1GCFIG", 0x4200),
    rw("PCS1GLCTL", 0x4208),
    ro("PCS1GLSTA", 0x420C),
    rw("PCS1GANA", 0x4218),
    ro("PCS1GANLP", 0x421C),
    rw("HLREG0", HLREG0).reset(0x1_0403),
    ro("HLREG1", 0x4244),
    rw("PAP", 0x4248),
    rw("MACA", 0x424C),
    rw("MSCA", MSCA),
    rw("MSRWD", MSRWD).keeps(0xFFFF),
    rw("MLADD", 0x4264),
    rw("MAXFRS", MAXFRS).reset(0x05EE_0000).keeps(0xFFFF_0000),
    ro("PCSS1", 0x4288),
    ro("PCSS2", 0x428C),
    ro("XPCSS", 0x4290),
    rw("MFLCN", MFLCN),
    rw("SERDESC", 0x4298),
    rw("MACS", 0x429C),
    rw("AUTOC", AUTOC),
    ro("LINKS", LINKS),
    rw("AUTOC2", AUTOC2),
    rw("AUTOC3", 0x42AC),
    ro("ANLP1", ANLP1),
    ro("ANLP2", 0x42B4),
    rw("MMNGC", MMNGC),
    ro("LINKS2", LINKS2),
    rw("MACC", MACC),
    rw("PFMAILBOX", 0x4B00).of(64, 4),
    rw("PFMBMEM", PFMBMEM).of(1024, 4),
    rw("MBVFICR", 0x710).of(4, 4),
    ro("VFLRE", 0x600).of(2, 4),
    rw("VFLREC", 0x700).of(2, 4),
    // Transmit DMA (8.2.3.9)
    rw("RTTDCS", RTTDCS),
    rw("RTTDQSEL", 0x4904),
    rw("RTTDT1C", 0x4908),
    rw("RTTDT2C", 0x4910).of(8, 4),
    rw("TXPBTHRESH", 0x4950).of(1, 4).reset(0x96),
    rw("TXPBTHRESH", 0x4954).of(7, 4),
    rw("RTTBCNRM", 0x4980),
    rw("RTTBCNRC", 0x4984),
    rw("DMATXCTL", DMATXCTL).reset(0x8100_0000),
    rw("DTXTCPFLGL", DTXTCPFLGL).reset(0x0F76_0FF6).keeps(0x0FFF_0FFF),
    rw("DTXTCPFLGH", DTXTCPFLGH).reset(0x0F7F).keeps(0x0FFF),
    rw("TDBAL", 0x6000).of(128, 0x40).keeps(!0x7F).reserved(0x7F),
    rw("TDBAH", 0x6004).of(128, 0x40),
    rw("TDLEN", 0x6008).of(128, 0x40).keeps(0x000F_FF80).reserved(0xFFF0_007F),
    rw("DCA_TXCTRL", 0x600C).of(128, 0x40),
    rw("TDH", 0x6010).of(128, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("TDT", 0x6018).of(128, 0x40).keeps(0xFFFF).reserved(0xFFFF_0000),
    rw("TXDCTL", 0x6028).of(128, 0x40).reserved(0xF980_8080),
    rw("TDWBAL", 0x6038).of(128, 0x40).keeps(!2),
    rw("TDWBAH", 0x603C).of(128, 0x40),
    rw("VMVIR", 0x8000).of(64, 4),
    rw("DTXMXSZRQ", 0x8100),
    rw("VFTE", 0x8110).of(2, 4),
    rw("MTQC", MTQC).reserved(!0xF),
    rw("PFVFSPOOF", PFVFSPOOF).of(8, 4),
    rw("VMECM", 0x8790).of(2, 4),
    rw("TQSM", TQSM).of(32, 4).keeps(0x0F0F_0F0F),
    rw("RTTUP2TC", 0xC800),
    rw("TXPBSIZE", 0xCC00).of(1, 4).reset(0x2_8000),
    rw("TXPBSIZE", 0xCC04).of(7, 4),
    rw("RTTPCS", 0xCD00),
    rw("RTTPT2C", 0xCD20).of(8, 4),
    // Security (8.2.3.12, 8.2.3.13)
    rw("SECTXCTRL", SECTXCTRL).keeps(7),
    ro("SECTXSTAT", SECTXSTAT),
    rw("SECTXBUFFAF", 0x8808).reset(0x250),
    rw("SECTXMINIFG", 0x8810).reset(0x1001),
    rw("SECRXCTRL", SECRXCTRL).keeps(3),
    ro("SECRXSTAT", SECRXSTAT),
    // Receive filters and steering (8.2.3.7)
    rw("RXCSUM", RXCSUM),
    rw("RFCTL", 0x5008),
    rw("FCTRL", FCTRL),
    rw("EXVET", 0x5078).reset(0x8100_0000),
    rw("VLNCTRL", VLNCTRL).reset(0x8100),
    rw("MCSTCTRL", MCSTCTRL).keeps(7).reserved(!7),
    rw("FCRXCTRL", 0x5100),
    rw("ETQF", ETQF).of(8, 4),
    rw("VT_CTL", 0x51B0),
    rw("VFRE", 0x51E0).of(2, 4),
    rw("MTA", MTA).of(128, 4),
    rw("RAL", RAL).of(16, 8),
    rw("RAH", RAL + 4).of(16, 8).keeps(RAH_KEEPS),
    rw("PSRTYPE", PSRTYPE).of(16, 4),
    rw("WUC", 0x5800),
    rw("WUFC", 0x5808),
    rw("WUS", 0x5810),
    rw("WUPL", 0x5900),
    rw("IPAV", 0x5838),
    rw("IP4AT", 0x5840).of(4, 8),
    rw("IP6AT", 0x5880).of(4, 4),
    rw("FHFT", 0x9000).of(512, 4),
    rw("MRQC", MRQC),
    rw("MANC", 0x5820),
    rw("RETA", RETA).of(32, 4),
    rw("RSSRK", RSSRK).of(10, 4),
    rw("VFTA", VFTA).of(128, 4),
    rw("RAL", RAL_HIGH).of(16, 8).same_as(RAL, 8),
    rw("RAH", RAL_HIGH + 4).of(16, 8).keeps(RAH_KEEPS).same_as(RAL + 4, 8),
    rw("RAL", RAL_HIGH + 0x80).of(112, 8),
    rw("RAH", RAL_HIGH + 0x84).of(112, 8).keeps(RAH_KEEPS),
    rw("MPSAR", 0xA600).of(256, 4),
    rw("SAQF", SAQF).of(128, 4),
    rw("DAQF", DAQF).of(128, 4),
    rw("SDPQF", SDPQF).of(128, 4),
    rw("FTQF", FTQF).of(128, 4),
    rw("L34T_IMIR", L34T_IMIR).of(128, 4),
    rw("PSRTYPE", 0xEA00).of(16, 4).same_as(PSRTYPE, 4),
    rw("PSRTYPE", 0xEA40).of(48, 4),
    rw("ETQS", ETQS).of(8, 4),
    rw("SYNQF", 0xEC30),
    rw("FDIRCTRL", FDIRCTRL),
    rw("FDIRSIPv6", 0xEE0C).of(3, 4),
    rw("FDIRIPSA", 0xEE18),
    rw("FDIRIPDA", 0xEE1C),
    rw("FDIRPORT", 0xEE20),
    rw("FDIRVLAN", 0xEE24),
    rw("FDIRHASH", 0xEE28),
    rw("FDIRCMD", FDIRCMD),
    rw("FDIRFREE", 0xEE38),
    rw("FDIRM masks", 0xEE3C).of(4, 4),
    ro("FDIRLEN", 0xEE4C),
    rc("FDIR statistics", 0xEE50).of(4, 4),
    rw("FDIRHKEY", 0xEE68),
    rw("FDIRSKEY", 0xEE6C),
    rw("FDIRM", 0xEE70).of(3, 4),
    rw("VMOLR", 0xF000).of(64, 4),
    rw("VLVF", 0xF100).of(64, 4),
    rw("VLVFB", 0xF200).of(128, 4),
    rw("UTA", 0xF400).of(128, 4),
    rw("PFMRCTL", 0xF600).of(4, 4),
    rw("PFMRVLAN", 0xF610).of(8, 4),
    rw("PFMRVM", 0xF630).of(8, 4),
    rw("PFDTXGSWC", 0x8220),
    rw("LVMMC", 0x8108),
    // Time synchronisation (8.2.3.26)
    rw("RXMTRL", 0x5120),
    rw("TSYNCRXCTL", 0x5188),
    rw("RXSATRL", 0x51A0),
    ro("RXSTMPH", 0x51A4),
    rw("RXSATRH", 0x51A8),
    ro("RXSTMPL", 0x51E8),
    rw("TSYNCTXCTL", 0x8C00),
    ro("TXSTMP", 0x8C04).of(2, 4),
    rw("SYSTIM", 0x8C0C).of(2, 4),
    rw("TIMINCA", 0x8C14),
    rw("TIMADJ", 0x8C18).of(2, 4),
    rw("TSAUXC", 0x8C20),
    rw("target times, FREQOUT, AUXSTMP", 0x8C24).of(8, 4),
    // Statistics (8.2.3.23)
    rc("QPRC", 0x1030).of(16, 0x40),
    rc("QBRC_L", 0x1034).of(16, 0x40),
    rc("QBRC_H", 0x1038).of(16, 0x40),
    rc("QPRDC", 0x1430).of(16, 0x40),
    rc("PXON2OFFCNT", 0x3240).of(8, 4),
    rc("PXONTXC", 0x3F00).of(8, 4),
    rc("PXOFFTXC", 0x3F20).of(8, 4),
    rc("LXONTXC", 0x3F60),
    rc("LXOFFTXC", 0x3F68),
    rc("MPC", 0x3FA0).of(8, 4),
    rc("CRCERRS", 0x4000),
    rc("ILLERRC", 0x4004),
    rc("ERRBC", 0x4008),
    rc("MSPDC", 0x4010),
    rc("MLFC", 0x4034),
    rc("MRFC", 0x4038),
    rc("RLEC", 0x4040),
    rc("PRC", 0x405C).of(6, 4),
    rc("GPRC", 0x4074),
    rc("BPRC", 0x4078),
    rc("MPRC", 0x407C),
    rc("GPTC", 0x4080),
    rc("GORCL", 0x4088),
    rc("GORCH", 0x408C),
    rc("GOTCL", 0x4090),
    rc("GOTCH", 0x4094),
    rc("RUC", 0x40A4),
    rc("RFC", 0x40A8),
    rc("ROC", 0x40AC),
    rc("RJC", 0x40B0),
    rc("MNGPRC", 0x40B4),
    rc("MNGPDC", 0x40B8),
    rc("TORL", 0x40C0),
    rc("TORH", 0x40C4),
    rc("TPR", 0x40D0),
    rc("TPT", 0x40D4),
    rc("PTC", 0x40D8).of(6, 4),
    rc("MPTC", 0x40F0),
    rc("BPTC", 0x40F4),
    rc("XEC", 0x4120),
    rc("PXONRXCNT", 0x4140).of(8, 4),
    rc("PXOFFRXCNT", 0x4160).of(8, 4),
    rc("LXONRXCNT", 0x41A4),
    rc("LXOFFRXCNT", 0x41A8),
    rc("RXDGPC and the counts behind it", 0x2F50).of(16, 4),
    rc("TXDGPC, TXDGBC", 0x87A0).of(3, 4),
    rc("FCCRC", 0x5118),
    rc("FCoE statistics", 0x241C).of(5, 4),
    rc("QPTC", 0x6030).of(16, 0x40),
    rc("QBTC", 0x8700).of(32, 4),
    rc("SSVPC", 0x8780),
    rc("MNGPTC", 0xCF90),
    // Firmware, EEPROM, PCIe (8.2.3.2, 8.2.3.4)
    rw("EEC", EEC),
    rw("EERD", EERD),
    rw("EEMNGCTL", 0x1_0110),
    rw("SWSM", SWSM),
    ro("FWSM", FWSM),
    ro("FACTPS", FACTPS),
    rw("SW_FW_SYNC", SW_FW_SYNC),
    rw("GCR", 0x1_1000),
    rw("GCR_EXT", 0x1_1050),
    rw("DCA_ID", 0x1_1070),
    rw("DCA_CTRL", 0x1_1074),
    rw("CORECTL", CORECTL),
    rw("HICR", HICR).keeps(0),
    // FWRI clears by writing 1; it is never set.
    rw("FWSTS", 0x1_5F0C).keeps(0),
];

/// The registers that only store, and the index of all.
#[derive(Debug)]
pub(crate) struct RegisterFile {
    words: Box<[u32]>,
    index: &'static [Entry],
}

/// Where a dword's line is, and which dword it really names.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Index of its line plus one; 0 is unknown.
    line: u16,
    /// Offset of the dword that holds the value.
    real: u32,
}

impl RegisterFile {
    pub(crate) fn new(id: DeviceId) -> Self {
        let mut file = Self { words: vec![0; (SIZE / 4) as usize].into_boxed_slice(), index: index(id) };
        file.reset();
        file
    }

    /// Every register at its reset value.
    pub(crate) fn reset(&mut self) {
        self.words.fill(0);
        for line in MAP {
            if line.reset != 0 {
                for i in 0..line.count {
                    self.words[((line.base + i * line.stride) / 4) as usize] = line.reset;
                }
            }
        }
    }

    /// The line of a dword, and the offset that it is an alias of.
    pub(crate) fn lookup(&self, offset: u32) -> Option<(&'static Line, u32)> {
        if offset & 3 != 0 {
            return None;
        }
        let entry = self.index.get((offset / 4) as usize)?;
        let line = usize::from(entry.line).checked_sub(1)?;
        let line = MAP.get(line).or_else(|| newer::LINES.get(line.checked_sub(MAP.len())?))?;
        Some((line, entry.real))
    }

    /// The name of a dword, with its number if it is one of several, which may be lines of their own; `?` if it is none of the map.
    pub(crate) fn name(&self, offset: u32) -> String {
        let Some((line, real)) = self.lookup(offset) else { return "?".to_owned() };
        let same = || MAP.iter().chain(newer::LINES).filter(|other| other.name == line.name && other.alias.is_none());
        if same().map(|other| other.count).sum::<u32>() == 1 {
            return line.name.to_owned();
        }
        let before = |other: &Line| {
            if real < other.base { 0 } else { ((real - other.base) / other.stride + 1).min(other.count) }
        };
        let number = same().map(before).sum::<u32>().saturating_sub(1);
        format!("{}[{number}]", line.name)
    }

    /// The stored value of a dword of the map.
    #[inline]
    pub(crate) fn get(&self, offset: u32) -> u32 {
        self.words.get((offset / 4) as usize).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn set(&mut self, offset: u32, value: u32) {
        if let Some(word) = self.words.get_mut((offset / 4) as usize) {
            *word = value;
        }
    }
}

fn index(id: DeviceId) -> &'static [Entry] {
    static INDEX: [OnceLock<Box<[Entry]>>; 2] = [const { OnceLock::new() }; 2];
    let newer: &[Line] = if id == DeviceId::X550 { newer::LINES } else { &[] };
    INDEX[usize::from(!newer.is_empty())].get_or_init(|| {
        let mut index = vec![Entry::default(); (SIZE / 4) as usize];
        for (number, line) in (1u16..).zip(MAP.iter().chain(newer)) {
            for i in 0..line.count {
                let offset = line.base + i * line.stride;
                let real = line.alias.map_or(offset, |(base, stride)| base + i * stride);
                index[(offset / 4) as usize] = Entry { line: number, real };
            }
        }
        index.into_boxed_slice()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn no_two_lines_claim_the_same_dword() {
        let mut seen = HashMap::new();
        for line in MAP.iter().chain(newer::LINES) {
            for i in 0..line.count {
                let offset = line.base + i * line.stride;
                assert!(offset < SIZE && offset % 4 == 0, "{} at {offset:#x}", line.name);
                let earlier = seen.insert(offset, line.name);
                assert!(earlier.is_none(), "{} and {earlier:?} both at {offset:#x}", line.name);
            }
        }
        assert!(seen.len() > 2500);
    }

    #[test]
    fn a_name_counts_through_all_lines_and_aliases() {
        let file = RegisterFile::new(DeviceId::Cx4);
        let names = [0x0, 0x3C0C, 0x1054, 0x2104, 0xD054, 0xA208, 0xA280, 0x1_2300, 0xEA44, 0x1_FFFC]
            .map(|offset| file.name(offset));
        let wanted = [
            "CTRL",
            "RXPBSIZE[3]",
            "SRRCTL[1]",
            "SRRCTL[1]",
            "SRRCTL[65]",
            "RAL[1]",
            "RAL[16]",
            "EITR[24]",
            "PSRTYPE[17]",
            "?",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn aliases_share_one_value() {
        let file = RegisterFile::new(DeviceId::Cx4);
        assert_eq!(file.lookup(0x2104).map(|(line, real)| (line.name, real)), Some(("SRRCTL", 0x1054)));
        assert_eq!(file.lookup(0xA208).map(|(line, real)| (line.name, real)), Some(("RAL", 0x5408)));
        assert_eq!(file.lookup(0xA280).map(|(line, real)| (line.name, real)), Some(("RAL", 0xA280)));
        assert!(file.lookup(0x1FFFC).is_none());
        assert!(file.lookup(0x1001).is_none());
        assert!(file.lookup(0x7FFFC).is_none());
        assert!(file.lookup(ERETA).is_none(), "an X550's");
        assert_eq!(RegisterFile::new(DeviceId::X550).name(ERETA + 8), "ERETA[2]");
    }
}
