//! The register-level model of the 82599, split as the datasheet is. Plain and single-threaded: it changes only in
//! [`Model::read`], [`Model::write`] and [`Model::step`], and reaches memory only through a [`Dma`].

mod cage;
mod checksum;
mod eeprom;
mod filters;
mod firmware;
mod flow_control;
mod general;
mod id;
mod interrupts;
mod link;
mod map;
mod module;
mod offload;
mod pages;
mod pf;
mod phy;
mod posted;
mod queue;
mod rss;
mod rx;
mod rx_sums;
mod rx_write;
mod stats;
mod steering;
mod tx;
mod tx_frame;
mod vf;

pub(crate) use cage::KINDS;
pub use cage::ModuleKind;
pub use id::DeviceId;
pub(crate) use id::IDS;
pub(crate) use interrupts::InterruptSink;
pub(crate) use pages::Pages;
pub(crate) use pf::Grant;
pub use pf::MailboxApi;
pub(crate) use queue::Doorbells;

use crate::WireError;
use crate::dma::{Dma, Memory};
use crate::fault::{Counter, Fault, Faults};
use crate::trace::{Entry, Trace};
use crate::violation::{OnViolation, Ring, Violation, Violations};
use crate::wire::{LoopWire, Wire, WireCounters};
use map::{Kind, RegisterFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// The result of one step of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Number of frames taken from the wire, whether delivered or dropped.
    pub received: u32,
    /// Number of frames sent or dropped from transmit rings.
    pub transmitted: u32,
    /// Whether transmit descriptors were done, of whatever kind: a context descriptor sends nothing. Or whether some wait for the end of a pause.
    moved: bool,
}

impl Step {
    /// Returns whether nothing moved.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.received == 0 && self.transmitted == 0 && !self.moved
    }
}

/// What a model is made from.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) id: DeviceId,
    /// On SFP+ boards.
    pub(crate) module: ModuleKind,
    /// What the module says, if not what one of its kind does.
    pub(crate) pages: Option<Pages>,
    pub(crate) mac: [u8; 6],
    pub(crate) link: bool,
    pub(crate) faults: Vec<Fault>,
    /// To a virtual function.
    pub(crate) grant: Grant,
    pub(crate) on_violation: OnViolation,
}

/// Something that happens a number of register accesses or steps after its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    ResetDone,
    AutoReadDone,
    DmaInitDone,
    LinkUp,
    Latch(Ring),
    Quiesce(Ring),
    Firmware,
    Pf(vf::Turn),
}

/// A software 82599.
///
/// Time is counted in ticks: one for each register access and each step. Nothing in it depends on a clock, except the
/// wires that pace themselves, and the fault of a slow reset.
pub(crate) struct Model {
    regs: RegisterFile,
    ticks: u64,
    reads: u64,
    events: VecDeque<(u64, Event)>,
    gone: bool,
    bus_master: bool,
    faults: Faults,
    /// The tick at which a PAUSE frame lets it send again. One tick is taken for one quantum of 512 bits.
    paused_until: u64,
    flow_control: flow_control::FlowControl,
    /// Receive queues whose RDLEN may still be on its way, a bit each: nothing has been read since.
    unsettled: u128,
    checks: Violations,
    doorbells: Arc<Doorbells>,
    memory: Memory,
    /// Where accesses to registers are written down, if they are.
    trace: Option<Box<Trace>>,
    general: general::General,
    eeprom: eeprom::Eeprom,
    id: DeviceId,
    /// The window of a virtual function, and what is behind it.
    vf: Option<Box<vf::Vf>>,
    /// What is in the cage, if there is one.
    module: Option<module::Module>,
    phy: phy::Phy,
    link: link::Link,
    irq: interrupts::Interrupts,
    stats: stats::Stats,
    posted: posted::Posted,
    rx: rx::Receive,
    tx: tx::Transmit,
    wire: Box<dyn Wire>,
    /// Whether it sends light to the wire.
    sends: bool,
    /// What an earlier wire lost.
    lost: Option<WireError>,
    mac_loop: LoopWire,
    counters: WireCounters,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("ticks", &self.ticks).field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// Work that one step does at most in each direction, for all queues together; the frame that reaches it is finished. A
/// descriptor that is looked at is 1, of whatever kind, and so are 512 bytes that are copied. All devices of a process take their
/// steps in turn: this is what keeps a driver's rings from holding up the others.
const WORK: u32 = 1024;

/// The work of copying so many bytes.
#[inline(always)]
fn copying(bytes: usize) -> u32 {
    u32::try_from(bytes / 512).unwrap_or(u32::MAX)
}

/// HLREG0.LPBK (8.2.3.22.8): what is sent is received inside the MAC.
const HLREG0_LPBK: u32 = 1 << 15;

/// ESDP.SDP2_DATA (8.2.3.1.4): an input on SFP+ boards, high while there is a module in the cage.
const SDP2: u32 = 1 << 2;
/// Pins that work on the module: data and direction of SDP3, which turns a laser off, and SDP5, which selects a rate.
const MODULE_PINS: u32 = 1 << 3 | 1 << 5 | 1 << 11 | 1 << 13;
/// GPIE.SDP2_GPIEN and EICR.GPI_SDP2.
const GPIE_SDP2: u32 = 1 << 2;
const SDP2_CHANGED: u32 = 1 << 26;

/// SW_FW_SYNC.REGSMP of the X540 and X550: reading takes the semaphore.
const REGSMP: u32 = 1 << 31;
/// Software's bits of SW_FW_SYNC.
const SOFTWARE: u32 = 0x1C0F;
/// MMNGC.MNG_VETO: firmware forbids changes of the link.
const VETO: u32 = 1;

impl Model {
    /// A device as it is after power-on, with bus mastering off.
    pub(crate) fn new(setup: &Setup, dma: Box<dyn Dma>, wire: Box<dyn Wire>) -> Self {
        let mut faults = Faults::default();
        setup.faults.iter().for_each(|fault| faults.set(*fault));
        let mut model = Self {
            regs: RegisterFile::new(setup.id),
            ticks: 0,
            reads: 0,
            events: VecDeque::new(),
            gone: false,
            bus_master: false,
            faults,
            paused_until: 0,
            flow_control: flow_control::FlowControl::default(),
            unsettled: 0,
            checks: Violations::new(setup.on_violation),
            doorbells: Arc::default(),
            memory: Memory::new(dma),
            trace: None,
            general: general::General::default(),
            eeprom: eeprom::Eeprom::new(setup.id, setup.mac),
            id: setup.id,
            vf: vf::Vf::new(setup).map(Box::new),
            module: (setup.id == DeviceId::SfpPlus)
                .then(|| module::Module::new(setup.module, setup.pages.clone(), setup.mac)),
            phy: phy::Phy::new(setup.id),
            link: link::Link::new(setup.id, setup.link),
            irq: interrupts::Interrupts::new(setup.on_violation),
            stats: stats::Stats::default(),
            posted: posted::Posted::default(),
            rx: rx::Receive::new(setup.id),
            tx: tx::Transmit::default(),
            wire,
            sends: true,
            lost: None,
            mac_loop: LoopWire::default(),
            counters: WireCounters::default(),
        };
        if model.faults.phy_asleep {
            model.phy.sleep();
        }
        model.software_reset(true);
        setup.faults.iter().for_each(|fault| model.happen(*fault));
        model.with_function(|model, vf| {
            model.reset_function(vf);
            model.set_pf_faults(vf);
        });
        model
    }

    /// Reads a register.
    pub(crate) fn read(&mut self, offset: u32) -> u32 {
        self.reads += 1;
        if self.is_gone() {
            return u32::MAX;
        }
        self.unsettled = 0;
        self.tick();
        let value =
            self.with_function(|model, vf| model.read_function(vf, offset)).unwrap_or_else(|| self.read_card(offset));
        if self.trace.as_ref().is_some_and(|trace| trace.wants_reads()) {
            self.note(&Entry::Read(offset, value, &self.name(offset)));
        }
        value
    }

    /// What a register is called, with its number if it is one of several.
    fn name(&self, offset: u32) -> String {
        match &self.vf {
            Some(vf) => vf.name(&self.regs, offset),
            None => self.regs.name(offset),
        }
    }

    /// Writes a line of the trace.
    #[cold]
    fn note(&mut self, entry: &Entry<'_>) {
        self.trace.iter_mut().for_each(|trace| trace.add(entry));
    }

    /// Writes down accesses to registers from now on.
    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.trace = Some(Box::new(trace));
    }

    /// Writes down no more, and gives the file back. What the trace lacks is remembered.
    pub(crate) fn end_trace(&mut self) {
        let error = self.trace.take().and_then(|trace| trace.error());
        self.lost = self.lost.take().or(error);
    }

    /// Whether accesses to registers are written down.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// What the function's window, or what is behind it, has to do; nothing on a card.
    fn with_function<R>(&mut self, work: impl FnOnce(&mut Self, &mut vf::Vf) -> R) -> Option<R> {
        let mut vf = self.vf.take()?;
        let result = work(self, &mut vf);
        self.vf = Some(vf);
        Some(result)
    }

    fn read_card(&mut self, offset: u32) -> u32 {
        let Some((line, real)) = self.regs.lookup(offset) else {
            self.checks.report_lax(Violation::UnknownRegister { offset, write: false });
            return 0;
        };
        if line.kind == Kind::Counter {
            let value = self.stats.read(real);
            let is = |counter: Counter| (counter.offset()..counter.offset() + counter.len()).contains(&real);
            return if self.faults.counter_stuck.is_some_and(is) { 0 } else { value };
        }
        if let Some((ring, field)) = queue::decode(real) {
            return self.read_ring(ring, field, real);
        }
        match real {
            map::CTRL | map::STATUS | map::RDRXCTL | map::SECRXSTAT | map::SECTXSTAT | map::MSCA | map::MSRWD => {
                self.read_general(real)
            }
            map::FDIRCTRL => self.regs.get(real) | 1 << 3,
            // The command of a rule (FDIRCTRL.PERFECT_MATCH) never completes, as none would match.
            map::FDIRCMD if self.regs.get(map::FDIRCTRL) & 1 << 4 != 0 => self.regs.get(real),
            map::FDIRCMD => self.regs.get(real) & !3,
            map::EEC | map::EERD | map::SWSM => self.eeprom.read(real),
            map::FWSM => 0x8000,
            map::LINKS | map::LINKS2 | map::ANLP1 => {
                self.watch_link();
                self.link.read(&self.regs, real, if self.faults.an_stuck { 0 } else { self.ticks })
            }
            map::EICR..=map::EIAC | map::EIMS..=map::EIAM | map::EICS_EX..=0xAD7 => self.irq.read(&self.regs, real),
            map::I2CCTL => self.module.as_ref().map_or(module::RELEASED, module::Module::read),
            map::ESDP => {
                let present = self.module.as_ref().is_some_and(module::Module::is_there);
                self.regs.get(real) | if present { SDP2 } else { 0 }
            }
            // Reading the semaphore takes it.
            map::SW_FW_SYNC => {
                let before = self.regs.get(real);
                if self.id.has_phy() {
                    self.regs.set(real, before | REGSMP);
                }
                before | self.faults.firmware_holds
            }
            map::MMNGC => self.regs.get(real) | if self.faults.firmware_veto { VETO } else { 0 },
            map::HICR => self.read_hicr(),
            _ => self.regs.get(real),
        }
    }

    /// Writes a register.
    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        if self.is_gone() {
            return;
        }
        if self.is_traced() {
            self.note(&Entry::Write(offset, value, &self.name(offset)));
        }
        self.tick();
        if self.faults.settle.is_some_and(|settle| self.general.settling(settle)) {
            self.checks.report(Violation::Order("a register was written before the last reset had settled"));
            return;
        }
        self.memory.refresh();
        if self.with_function(|model, vf| model.write_function(vf, offset, value)).is_none() {
            self.write_card(offset, value);
        }
    }

    fn write_card(&mut self, offset: u32, value: u32) {
        let Some((line, real)) = self.regs.lookup(offset) else {
            self.checks.report(Violation::UnknownRegister { offset, write: true });
            return;
        };
        if line.kind != Kind::Storage {
            self.checks.report(Violation::ReadOnlyRegister { name: line.name, offset, value });
            return;
        }
        let bits = value & line.reserved;
        if bits != 0 {
            self.checks.report(Violation::ReservedBits { name: line.name, offset, value, bits });
        }
        if let Some((ring, field)) = queue::decode(real) {
            self.write_ring(ring, field, real, value & line.write, line.name);
            return;
        }
        match real {
            // The X550's EEPROM is read by its firmware alone.
            map::EERD if self.id == DeviceId::X550 => {}
            map::EEC | map::EERD | map::SWSM => self.eeprom.write(real, value),
            map::HICR => self.write_hicr(value),
            map::I2CCTL => {
                if let Some(module) = &mut self.module {
                    module.write(value);
                }
            }
            map::EICR..=map::EIAC | map::EIMS..=map::EIAM | map::EICS_EX..=0xAD7 => {
                self.irq.write(real, value);
                self.irq.deliver(&self.regs, self.ticks);
            }
            map::EITR..=0x87F | map::EITR_HIGH..=0x1_239F => {
                self.regs.set(real, value & line.write);
                self.irq.write_interval(real, value, self.ticks);
            }
            map::AUTOC => {
                self.check_veto(value & link::AN_RESTART != 0 || value != self.regs.get(real));
                self.regs.set(real, value & !link::AN_RESTART);
                if value & link::AN_RESTART != 0 {
                    self.link.take_mode(value, self.ticks);
                    self.restart_link();
                }
            }
            map::MACC => {
                self.check_veto((value ^ self.regs.get(real)) & link::FLU != 0);
                self.regs.set(real, value & line.write);
            }
            map::ESDP => {
                self.check_veto((value ^ self.regs.get(real)) & MODULE_PINS != 0);
                self.regs.set(real, value & line.write);
            }
            map::CTRL | map::RXCTRL | map::DMATXCTL | map::MSCA | map::MTQC | map::CORECTL => {
                self.write_general(real, value & line.write);
            }
            _ => self.regs.set(real, value & line.write),
        }
        self.rx.reconfigure(real);
        self.tx.reconfigure();
    }

    /// The link, or a pin of the module, is touched: firmware may have forbidden that. Linux's driver keeps to it at most places only.
    fn check_veto(&mut self, touched: bool) {
        if touched && self.faults.firmware_veto {
            self.checks
                .report_lax(Violation::Order("the link was touched although firmware forbids it (MMNGC.MNG_VETO)"));
        }
    }

    /// Does a bounded amount of work ([`WORK`] in each direction): receives and transmits some frames, lets time pass.
    pub(crate) fn step(&mut self) -> Step {
        let mut step = Step::default();
        if self.gone {
            return step;
        }
        self.tick();
        if !self.memory.is_ready() {
            return step;
        }
        if let Some(period) = self.faults.link_flap
            && self.ticks.is_multiple_of(period.into())
        {
            self.set_link(!self.link.plugged());
        }
        if let Some(period) = self.faults.pf.flood
            && self.ticks.is_multiple_of(period.into())
        {
            self.with_function(|model, vf| model.pf_notifies(vf));
        }
        let loopback = self.regs.get(map::HLREG0) & HLREG0_LPBK != 0;
        let on_wire = self.counters;
        let link = self.watch_link() || loopback;
        let receiving = link && self.general.receiving(&self.regs);
        self.look_ahead();
        let wire: &mut dyn Wire = if loopback { &mut self.mac_loop } else { &mut *self.wire };
        wire.poll(receiving, self.regs.get(map::RXPBSIZE) as usize & 0xF_FC00);
        let mut io = Io {
            regs: &self.regs,
            memory: &self.memory,
            doorbells: &self.doorbells,
            stats: &mut self.stats,
            irq: &mut self.irq,
            checks: &mut self.checks,
            posted: &mut self.posted,
            counters: &mut self.counters,
        };
        if !self.bus_master {
            self.rx.complain_without_bus_master(&mut io);
            self.tx.complain_without_bus_master(&mut io);
        } else if self.general.dma_allowed(&self.regs) {
            if receiving {
                step.received = self.rx.burst(&mut io, wire, &mut self.faults.rx);
            }
            if !self.faults.tx.frozen {
                if let Some(quanta) = self.rx.take_pause() {
                    self.paused_until = self.ticks + u64::from(quanta);
                }
                let paused = self.ticks < self.paused_until;
                let may_send = link && !paused && self.vf.as_ref().is_none_or(|vf| vf.pf.transmits);
                (step.transmitted, step.moved) = self.tx.burst(&mut io, wire, &self.faults.tx, may_send);
                // Time has to pass for what waits.
                let waits = paused && !self.tx.idle(&self.doorbells);
                step.moved |= waits;
                io.counters.held_back += u64::from(waits);
            }
        }
        if receiving {
            self.flow_control.step(&mut io, wire, self.ticks);
        }
        if loopback {
            // What goes round inside the MAC is on no wire.
            self.counters = on_wire;
        }
        self.irq.deliver(&self.regs, self.ticks);
        step
    }

    /// Sets or clears bus mastering (PCI command register).
    pub(crate) fn set_bus_master(&mut self, on: bool) {
        if self.bus_master != on {
            self.note(&Entry::BusMaster(on));
        }
        self.bus_master = on;
        if !on {
            self.memory.forget_accesses();
        }
    }

    /// Accesses to memory since the device was last stopped.
    pub(crate) fn dma_accesses(&self) -> u64 {
        self.memory.accesses()
    }

    /// Regions that the device can reach.
    pub(crate) fn mappings(&mut self) -> usize {
        self.memory.refresh();
        self.memory.regions()
    }

    /// Function level reset: everything at its reset value, bus mastering off.
    pub(crate) fn function_reset(&mut self) {
        self.note(&Entry::FunctionReset);
        self.bus_master = false;
        self.irq.disconnect();
        if self.with_function(Self::reset_function).is_none() {
            self.software_reset(true);
        }
    }

    /// Takes the DMA regions anew, so that one which was removed is let go of.
    pub(crate) fn refresh_memory(&mut self) {
        self.memory.refresh();
    }

    /// Plugs the cable in or out.
    pub(crate) fn set_link(&mut self, plugged: bool) {
        self.link.plug(plugged);
        if plugged {
            self.restart_link();
        } else {
            self.watch_link();
        }
    }

    /// Puts a module into the cage of an SFP+ port, in the place of what is there; nothing on others.
    pub(crate) fn set_module(&mut self, kind: ModuleKind) {
        let mac = self.eeprom.mac();
        if let Some(module) = &mut self.module {
            module.replace(kind, mac);
            // The pin is an input that interrupts, if the driver wants it to (8.2.3.5, GPIE).
            if self.regs.get(map::GPIE) & GPIE_SDP2 != 0 {
                self.irq.raise(SDP2_CHANGED);
            }
            self.watch_link();
        }
    }

    /// A fault that is an event, or of a part that keeps it.
    fn happen(&mut self, fault: Fault) {
        match fault {
            Fault::SemaphoreLeft => self.regs.set(map::SW_FW_SYNC, self.regs.get(map::SW_FW_SYNC) | SOFTWARE),
            Fault::EepromFlip { word } => self.eeprom.flip(word),
            Fault::AnalogEndless => self.eeprom.lose_ends(),
            Fault::InterruptLost { vector } => self.irq.lose(vector),
            Fault::InterruptStorm { vector } => self.irq.storm(vector),
            _ => {}
        }
    }

    pub(crate) fn inject_fault(&mut self, fault: Fault) {
        self.reads = 0;
        self.faults.set(fault);
        self.happen(fault);
        self.gone |= self.faults.removal == Some(0);
        self.with_function(Self::set_pf_faults);
    }

    /// Whether it has been pulled out.
    pub(crate) fn removed(&self) -> bool {
        self.gone
    }

    pub(crate) fn clear_faults(&mut self) {
        self.faults = Faults::default();
        self.irq.clear_faults();
        self.with_function(Self::pf_returns);
    }

    /// Without MSI-X: fires again if a cause that is not masked is still there, as a level does.
    pub(crate) fn reassert_interrupt(&mut self) {
        self.irq.reassert(&self.regs);
    }

    pub(crate) fn set_interrupts(&mut self, sink: Box<dyn InterruptSink>) {
        self.irq.connect(sink);
    }

    /// Plugs it into another wire. What the old one lost is remembered.
    pub(crate) fn set_wire(&mut self, wire: Box<dyn Wire>) {
        let mut old = std::mem::replace(&mut self.wire, wire);
        self.wire.set_light(self.sends);
        old.finish();
        self.lost = self.lost.take().or_else(|| old.error());
    }

    /// What this wire or one before it has lost, if anything.
    pub(crate) fn wire_error(&mut self) -> Option<WireError> {
        let trace = self.trace.as_ref().and_then(|trace| trace.error());
        self.lost.clone().or_else(|| self.wire.error()).or(trace)
    }

    pub(crate) fn wire(&mut self) -> &mut dyn Wire {
        &mut *self.wire
    }

    pub(crate) fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.doorbells)
    }

    /// Rings other doorbells from now on. The device must have been reset since the last doorbell.
    pub(crate) fn set_doorbells(&mut self, doorbells: Arc<Doorbells>) {
        self.doorbells = doorbells;
    }

    pub(crate) fn counters(&self) -> WireCounters {
        self.counters
    }

    pub(crate) fn violations(&mut self) -> &mut Violations {
        &mut self.checks
    }

    /// Whether every frame on every transmit ring has been sent.
    pub(crate) fn transmit_idle(&self) -> bool {
        self.tx.idle(&self.doorbells)
    }

    fn is_gone(&mut self) -> bool {
        self.gone |= self.faults.removal.is_some_and(|after| self.reads > after);
        self.gone
    }

    fn tick(&mut self) {
        self.ticks += 1;
        while let Some((due, event)) = self.events.front().copied()
            && due <= self.ticks
        {
            self.events.pop_front();
            match event {
                Event::ResetDone => self.general.reset_done(),
                Event::DmaInitDone => self.general.dma_ready(),
                Event::AutoReadDone => self.eeprom.auto_read_done(),
                Event::LinkUp => {
                    self.link.trained();
                    self.watch_link();
                }
                Event::Latch(ring) => self.latch(ring),
                Event::Quiesce(ring) => self.quiesce(ring),
                Event::Firmware => self.firmware_answers(),
                Event::Pf(turn) => {
                    self.with_function(|model, vf| model.pf_turn(vf, turn));
                }
            }
        }
    }

    fn after(&mut self, ticks: u64, event: Event) {
        let due = self.ticks + ticks;
        let at = self.events.partition_point(|(other, _)| *other <= due);
        self.events.insert(at, (due, event));
    }
}

/// What the receive and transmit paths work with.
struct Io<'m> {
    regs: &'m RegisterFile,
    memory: &'m Memory,
    doorbells: &'m Doorbells,
    stats: &'m mut stats::Stats,
    irq: &'m mut interrupts::Interrupts,
    checks: &'m mut Violations,
    posted: &'m mut posted::Posted,
    counters: &'m mut WireCounters,
}

/// Bytes of a frame on the wire, CRC included; padded to the minimum if `pad`.
#[inline(always)]
fn packet_bytes(len: usize, pad: bool) -> u64 {
    (if pad { len.max(60) } else { len } + 4) as u64
}
