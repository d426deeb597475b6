//! An 82599, a virtual function of one, or an 82576 whose registers and rings are plain memory, completed by a function in the same thread: what remains is
//! the software cost of a packet. The completion function's own cost is measured apart and subtracted.
#![expect(unsafe_code, reason = "a device made of memory")]

mod frames;
mod measured;
mod rig;
mod route;
mod virtio;

pub use self::virtio::{BackEnd, MemoryVirtio, VirtioPort, VirtioRig};
pub use measured::{Arrival, ArrivalRig, MeasureRig};
pub use rig::{FRAME, Rig, Work};
pub use route::{RouteRig, Routing, Table};

use device::{Bar, Device, DmaDomain, DmaMapper, DmaMemory, PciIds, Translation};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BAR_BYTES: usize = 0x20000;

/// What is made of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// 82599.
    Mac82599,
    /// A virtual function of an 82599.
    Vf82599,
    /// 82576.
    Mac82576,
}

impl Chip {
    fn device(self) -> u16 {
        match self {
            Self::Mac82599 => 0x10F9,
            Self::Vf82599 => 0x10ED,
            Self::Mac82576 => 0x10C9,
        }
    }

    /// Where RDBAL0 and TDBAL0 are.
    fn rings(self) -> [usize; 2] {
        match self {
            Self::Mac82599 => [0x1000, 0x6000],
            Self::Vf82599 => [0x1000, 0x2000],
            Self::Mac82576 => [0xC000, 0xE000],
        }
    }
}

/// The device side of the fake: it owns the register memory.
#[derive(Debug)]
pub struct MemoryNic {
    chip: Chip,
    bar: Registers,
    dma: DmaDomain,
}

/// Registers as words of memory, of which the driver's bring-up sees a few behave.
#[derive(Clone)]
pub struct Registers(Arc<[AtomicU32]>);

impl Registers {
    fn new() -> Self {
        let registers = Self((0..BAR_BYTES / 4).map(|_| AtomicU32::new(0)).collect());
        // EEC.ARD, RDRXCTL.DMAIDONE, SECRXSTAT.SECRX_RDY, LINKS up at 10 Gbit/s, ANLP1 not idle, RAL0 and RAH0.AV.
        let mut reset = vec![
            (0x10010, 1 << 9),
            (0x2F00, 1 << 3),
            (0x42B0, 1 << 16),
            (0x8D04, 1),
            (0x42A4, 0x7000_0080),
            (0x5400, 2),
            (0x5404, 1 << 31),
        ];
        // The 82576's EEC.ARD and EEMNGCTL.CFG_DONE; where the former is, a virtual function has VFLINKS.
        reset.extend([(0x10, 0x7000_0000 | 1 << 9), (0x1010, 1 << 18)]);
        for (offset, value) in reset {
            registers.0[offset / 4].store(value, Ordering::Relaxed);
        }
        registers
    }
}

/// Registers of a virtual function: mailbox, and its memory.
const VFMAILBOX: u32 = 0x2FC;
const VFMBMEM: usize = 0x200;

impl Registers {
    /// The mailbox of a virtual function as it reads: the physical function grants one queue pair and whatever else it is asked for.
    fn mailbox(&self) -> u32 {
        let word = |at: usize| &self.0[VFMBMEM / 4 + at];
        let request = self.0[VFMAILBOX as usize / 4].swap(0, Ordering::Relaxed);
        let first = word(0).load(Ordering::Relaxed);
        if request & 1 == 0 {
            // VFU is given, and before the first message a reset is over (RSTD).
            return if request == 0 && first == 0 { 0x80 } else { request & 4 };
        }
        // Reset: the address. Queues: how many.
        match first {
            1 => [(1, 2), (2, 0x0100)].into_iter().for_each(|(at, value)| word(at).store(value, Ordering::Relaxed)),
            9 => [1, 2].into_iter().for_each(|at| word(at).store(1, Ordering::Relaxed)),
            _ => {}
        }
        // ACK and CTS; PFSTS and PFACK.
        word(0).store(first | 1 << 31 | 1 << 29, Ordering::Relaxed);
        0x30
    }
}

impl Bar for Registers {
    fn size(&self) -> usize {
        BAR_BYTES
    }

    fn read32(&self, offset: u32) -> u32 {
        match offset {
            VFMAILBOX => self.mailbox(),
            // STATUS.GIO mirrors CTRL.GIO_DIS.
            0x8 => (!self.0[0].load(Ordering::Relaxed) & 1 << 2) << 17,
            _ => self.0.get(offset as usize / 4).map_or(u32::MAX, |register| register.load(Ordering::Relaxed)),
        }
    }

    #[inline(always)]
    unsafe fn write32(&self, offset: u32, value: u32) {
        // CTRL.RST and LRST, and AUTOC.AN_RESTART, clear themselves; EERD is done at once.
        let value = match offset {
            0 => value & !(1 << 26 | 1 << 3),
            0x10014 => value & 0xfffc | 2,
            // MDIC.READY.
            0x20 => value | 1 << 28,
            0x42A0 => value & !(1 << 12),
            _ => value,
        };
        if let Some(register) = self.0.get(offset as usize / 4) {
            register.store(value, Ordering::Release);
        }
    }
}

/// IOVA = virtual address.
struct Identity;

// SAFETY: nothing but the completion functions below "accesses" memory, at the addresses in the rings.
unsafe impl DmaMapper for Identity {
    fn map(&self, _: &Arc<DmaMemory>) -> device::Result<Translation> {
        Ok(Translation::Linear { delta: 0 })
    }

    fn unmap(&self, _: &Arc<DmaMemory>, _: &Translation) -> device::Result<()> {
        Ok(())
    }
}

// SAFETY: the "device" acts only inside `Completer`'s functions, which the caller stops calling.
unsafe impl Device for MemoryNic {
    type Bar = Registers;

    fn name(&self) -> &str {
        "memory"
    }

    fn ids(&self) -> PciIds {
        PciIds { vendor: 0x8086, device: self.chip.device(), class: 0x02_0000, revision: 1 }
    }

    fn bar(&self) -> &Registers {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, _: bool) -> device::Result<()> {
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        Ok(())
    }

    fn enable_msix(&self, _: u16) -> device::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

/// Plays the hardware: fills receive descriptors and reports transmit descriptors done.
#[derive(Debug)]
pub struct Completer {
    chip: Chip,
    registers: Registers,
    rx: usize,
    tx: usize,
    rx_size: usize,
    tx_size: usize,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registers")
    }
}

impl MemoryNic {
    /// A device and its hardware.
    #[must_use]
    pub fn new(chip: Chip) -> (Self, Completer) {
        let registers = Registers::new();
        let nic = Self { chip, bar: registers.clone(), dma: DmaDomain::new(Box::new(Identity)) };
        (nic, Completer { chip, registers, rx: 0, tx: 0, rx_size: 0, tx_size: 0 })
    }
}

impl Completer {
    fn register(&self, offset: usize) -> u32 {
        self.registers.0[offset / 4].load(Ordering::Relaxed)
    }

    fn ring(&self, base: usize) -> *const AtomicU64 {
        let address = u64::from(self.register(base)) | u64::from(self.register(base + 4)) << 32;
        address as *const AtomicU64
    }

    /// Learns the ring sizes; call once the queues are started.
    pub fn start(&mut self) {
        let [rx, tx] = self.chip.rings();
        self.rx_size = self.register(rx + 8) as usize / 16;
        self.tx_size = self.register(tx + 8) as usize / 16;
    }

    /// Completes the next `count` receive descriptors with frames of `len` bytes.
    #[inline(never)]
    pub fn receive(&mut self, count: usize, len: u64) {
        let ring = self.ring(self.chip.rings()[0]);
        for _ in 0..count {
            // SAFETY: the driver programmed this ring with this size.
            let high = unsafe { ring.add(self.rx * 2 + 1) };
            // SAFETY: within the ring; both sides use atomics.
            unsafe { &*high }.store(3 | len << 32, Ordering::Release);
            self.rx = (self.rx + 1) & (self.rx_size - 1);
        }
    }

    /// Reports the next `count` transmit descriptors done, where asked to.
    #[inline(never)]
    pub fn transmit(&mut self, count: usize) {
        let ring = self.ring(self.chip.rings()[1]);
        for _ in 0..count {
            // SAFETY: the driver programmed this ring with this size.
            let high = unsafe { ring.add(self.tx * 2 + 1) };
            // SAFETY: within the ring; both sides use atomics.
            let high = unsafe { &*high };
            let value = high.load(Ordering::Relaxed);
            if value & 1 << 27 != 0 {
                high.store(value | 1 << 32, Ordering::Release);
            }
            self.tx = (self.tx + 1) & (self.tx_size - 1);
        }
    }
}
