//! Registers that an X550 has, and an 82599 has not (X550 datasheet 8.2.2).

use super::{ERETA, FLEX_MNG, Line, rc, ro, rw};

pub(super) const LINES: &[Line] = &[
    rw("ERETA", ERETA).of(96, 4),
    rw("FLEX_MNG", FLEX_MNG).of(448, 4),
    rw("I2CCTL_X550", 0x1_5F5C),
    // Tunnels, E-tags, and the pruning of frames that come back.
    rw("VXLANCTRL", 0x507C),
    rw("ETAG_ETYPE", 0x5084),
    rw("PFFLPL", 0x50B0),
    rw("PFFLPH", 0x50B4),
    // Malicious-driver detection: what has been stopped, and by which queues.
    rw("LVMMC_RX", 0x2FA8),
    rw("WQBR_RX", 0x2FB0).of(4, 4),
    rw("WQBR_TX", 0x8130).of(4, 4),
    // Time synchronisation.
    rw("SYSTIMR", 0x8C58),
    rw("TSICR", 0x8C60),
    rw("TSIM", 0x8C68),
    // Energy Efficient Ethernet.
    rw("EEE_SU", 0x4380),
    ro("EEE_STAT", 0x4398),
    rw("EEER", 0x43A0),
    // Frames between host and management firmware.
    rc("B2OGPRC", 0x2F90),
    rc("B2OSPC", 0x41C0),
    rc("O2BGPTC", 0x41C4),
    rc("O2BSPC", 0x87B0),
];
