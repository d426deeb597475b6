//! Reset, general control, DMA enables, MDIO (datasheet 4.2, 8.2.3.1, 8.2.3.12).

use super::map::{self, RegisterFile};
use super::vf::Turn;
use super::{DeviceId, Event, Model, SOFTWARE, link};
use crate::violation::{Violation, Violations};
use std::time::{Duration, Instant};

const GIO_DIS: u32 = 1 << 2;
const LRST: u32 = 1 << 3;
const RST: u32 = 1 << 26;
const STATUS_GIO: u32 = 1 << 19;
const DMAIDONE: u32 = 1 << 3;
const RXEN: u32 = 1;
const TE: u32 = 1;
const SEC_DIS: u32 = 1 << 1;
const SEC_OFF: u32 = 1 << 1;
/// AUTOC2 (8.2.3.22.22): the serial interface is SFI, as the EEPROM of a board with a cage says.
const SERIAL_SFI: u32 = 2 << 16;
/// ESDP (8.2.3.1.4): data and direction of SDP5, which selects the rate of a module that has two.
const SDP5: u32 = 1 << 5;
/// ESDP: data and direction of SDP3, which turns the laser of a module off; the EEPROM of a board with a cage makes it an output.
const SDP3: u32 = 1 << 3;
const SDP3_DIR: u32 = 1 << 11;
const SDP5_DIR: u32 = 1 << 13;

/// Ticks until CTRL.RST reads 0 again.
const RESET_TICKS: u64 = 3;
/// Ticks from reset until the EEPROM has been read (EEC.ARD).
const AUTO_READ_TICKS: u64 = 6;
/// Ticks from reset until RDRXCTL.DMAIDONE.
const DMA_INIT_TICKS: u64 = 8;

/// What reset and general control remember.
#[derive(Debug, Default)]
pub(super) struct General {
    resetting: u32,
    dma_ready: bool,
    /// When the last reset began, by the clock: for one fault only.
    reset_at: Option<Instant>,
}

impl General {
    pub(super) fn reset_done(&mut self) {
        self.resetting = 0;
    }

    /// Whether the last reset began less than `settle` ago.
    pub(super) fn settling(&self, settle: Duration) -> bool {
        self.reset_at.is_some_and(|at| at.elapsed() < settle)
    }

    pub(super) fn dma_ready(&mut self) {
        self.dma_ready = true;
    }

    /// Whether the device may access memory, bus mastering aside.
    pub(super) fn dma_allowed(&self, regs: &RegisterFile) -> bool {
        self.resetting == 0 && regs.get(map::CTRL) & GIO_DIS == 0
    }

    /// Whether frames from the wire reach the filters (RXCTRL.RXEN, SECRXCTRL.RX_DIS).
    pub(super) fn receiving(&self, regs: &RegisterFile) -> bool {
        self.resetting == 0 && regs.get(map::RXCTRL) & RXEN != 0 && regs.get(map::SECRXCTRL) & SEC_DIS == 0
    }
}

impl Model {
    /// CTRL.RST or CTRL.LRST (4.2.1): everything at its reset value; `link` restarts the link too.
    pub(super) fn software_reset(&mut self, link: bool) {
        let kept = [map::AUTOC, map::AUTOC2, map::ESDP].map(|register| (register, self.regs.get(register)));
        // Since the X540, what software holds is not lost by a reset of one function (Intel's drivers give it back when they begin).
        let held = if self.id.has_phy() { self.regs.get(map::SW_FW_SYNC) & SOFTWARE } else { 0 };
        self.regs.reset();
        self.regs.set(map::SW_FW_SYNC, held);
        self.regs.set(map::RXPBSIZE, self.id.receive_buffer() << 10);
        self.memory.forget_accesses();
        self.paused_until = 0;
        self.flow_control = super::flow_control::FlowControl::default();
        self.events.retain(|(_, event)| matches!(event, Event::LinkUp | Event::Firmware | Event::Pf(_)));
        self.general = super::general::General::default();
        self.doorbells.clear();
        self.rx.reset();
        self.tx.reset();
        self.posted.clear();
        self.irq.reset();
        self.stats = super::stats::Stats::default();
        self.eeprom.reset();
        let (low, high) = self.eeprom.station_address();
        self.regs.set(map::RAL, low);
        self.regs.set(map::RAL + 4, high);
        self.after(AUTO_READ_TICKS, Event::AutoReadDone);
        self.after(DMA_INIT_TICKS, Event::DmaInitDone);
        if link {
            let autoc = self.link.reset();
            self.regs.set(map::AUTOC, autoc);
            if self.module.is_some() {
                self.regs.set(map::AUTOC2, SERIAL_SFI);
                self.regs.set(map::ESDP, SDP3_DIR);
            }
            if let Some(module) = &mut self.module {
                module.reset_link();
            }
            self.restart_link();
        } else {
            kept.into_iter().for_each(|(register, value)| self.regs.set(register, value));
        }
    }

    /// Begins to bring the link up (AUTOC.AN_RESTART).
    pub(super) fn restart_link(&mut self) {
        self.link.restart();
        self.events.retain(|(_, event)| *event != Event::LinkUp);
        self.after(link::TRAINING_TICKS, Event::LinkUp);
    }

    /// Follows the link's state, raises LSC on a change, and tells whether it is up.
    pub(super) fn watch_link(&mut self) -> bool {
        let carrier = self.wire.carrier();
        let (sends, fits) = match &self.module {
            Some(module) => {
                let fits = module.fits(self.link.gigabit(), rate_select(&self.regs));
                (module.sends(self.regs.get(map::ESDP) & (SDP3 | SDP3_DIR) == SDP3 | SDP3_DIR), fits)
            }
            None => (true, self.phy.is_powered()),
        };
        if std::mem::replace(&mut self.sends, sends) != sends {
            self.wire.set_light(sends);
        }
        // The partner that sees no light says so (IEEE 802.3, 46.3.4), and then neither has a link.
        if self.link.update(&self.regs, carrier && sends, fits) {
            if self.id.is_virtual() {
                self.pf_turn_in(1, Turn::NOTIFY);
            } else {
                self.irq.raise(super::interrupts::LSC);
            }
        }
        self.link.is_up()
    }

    pub(super) fn read_general(&mut self, offset: u32) -> u32 {
        let stored = self.regs.get(offset);
        match offset {
            map::CTRL => stored | self.general.resetting,
            map::STATUS => {
                let stopped = self.regs.get(map::CTRL) & GIO_DIS != 0 && !self.faults.stuck_gio;
                if stopped { 0 } else { STATUS_GIO }
            }
            map::RDRXCTL => stored | if self.general.dma_ready { DMAIDONE } else { 0 },
            // The security buffers are empty as soon as they are disabled (RDY), and there is no IPsec (OFF_DIS).
            map::SECRXSTAT => SEC_OFF | u32::from(self.regs.get(map::SECRXCTRL) & SEC_DIS != 0),
            map::SECTXSTAT => SEC_OFF | u32::from(self.regs.get(map::SECTXCTRL) & SEC_DIS != 0),
            map::MSRWD => stored | self.phy.data(),
            _ => stored,
        }
    }

    pub(super) fn write_general(&mut self, offset: u32, value: u32) {
        match offset {
            map::CTRL => {
                let reset = value & (RST | LRST);
                if reset != 0 {
                    self.software_reset(reset & LRST != 0);
                    self.general.resetting = reset;
                    self.general.reset_at = self.faults.settle.map(|_| Instant::now());
                    if !self.faults.stuck_reset {
                        self.after(RESET_TICKS, Event::ResetDone);
                    }
                }
                if value & GIO_DIS != 0 {
                    self.memory.forget_accesses();
                }
                // A reset clears GIO_DIS even if the same write sets it (4.2.1).
                self.regs.set(map::CTRL, if reset == 0 { value } else { 0 });
            }
            map::RXCTRL => {
                if value & RXEN != 0 && self.regs.get(offset) & RXEN == 0 {
                    self.check_receive_order();
                }
                self.regs.set(offset, value);
            }
            map::DMATXCTL => {
                self.regs.set(offset, value);
                if value & TE == 0 && self.tx.any_enabled() {
                    self.checks.report(Violation::Order("DMATXCTL.TE cleared while a transmit queue is enabled"));
                }
            }
            map::MTQC => {
                if self.regs.get(map::RTTDCS) & (1 << 6) == 0 && value != self.regs.get(offset) {
                    self.checks.report(Violation::Order("MTQC changed without RTTDCS.ARBDIS set"));
                }
                self.regs.set(offset, value);
            }
            map::CORECTL => {
                self.regs.set(offset, value);
                if let Some(module) = &mut self.module {
                    module.set_analog(value);
                }
            }
            map::MSCA if !self.faults.phy_stuck => {
                let after = self.phy.command(value, self.regs.get(map::MSRWD), self.faults.phy_silent);
                self.regs.set(offset, after);
            }
            _ => self.regs.set(offset, value),
        }
    }

    /// What must be in order before RXCTRL.RXEN is set (4.6.7, 8.2.3.8.8).
    fn check_receive_order(&mut self) {
        let rdrxctl = self.regs.get(map::RDRXCTL);
        let hlreg0 = self.regs.get(map::HLREG0);
        if !self.general.dma_ready {
            self.checks.report(Violation::Order("RXCTRL.RXEN set before RDRXCTL.DMAIDONE"));
        }
        if self.regs.get(map::SECRXCTRL) & SEC_DIS == 0 {
            self.checks.report_lax(Violation::Order("RXCTRL.RXEN set without SECRXCTRL.RX_DIS around it"));
        }
        // DPDK leaves them alone on an X550.
        let report = |checks: &mut Violations, order| {
            let violation = Violation::Order(order);
            if self.id == DeviceId::X550 { checks.report_lax(violation) } else { checks.report(violation) }
        };
        if rdrxctl >> 1 & 1 != hlreg0 >> 1 & 1 {
            report(&mut self.checks, "HLREG0.RXCRCSTRP and RDRXCTL.CRCSTRIP disagree");
        }
        if rdrxctl & (0x1F << 17) != 0 {
            report(&mut self.checks, "RDRXCTL.RSCFRSTSIZE is not 0");
        }
        if rdrxctl & (3 << 25) != 3 << 25 {
            self.checks.report_lax(Violation::Order("RDRXCTL.RSCACKC and FCOE_WRFIX are not set"));
        }
    }
}

/// The level of SDP5, if it is driven.
fn rate_select(regs: &RegisterFile) -> Option<bool> {
    let esdp = regs.get(map::ESDP);
    (esdp & SDP5_DIR != 0).then_some(esdp & SDP5 != 0)
}

/// DMATXCTL.TE.
pub(super) fn transmit_enabled(regs: &RegisterFile) -> bool {
    regs.get(map::DMATXCTL) & TE != 0
}
