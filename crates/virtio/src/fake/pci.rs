//! The fake device behind PCI registers, written from sections 4.1.4.3 and 4.1.4.10: one width for each, and a complaint about
//! every access that a device need not understand.

use super::{FakeDevice, FakeNotifier, FakeTransport};
use crate::transport::{Notifier as _, QueueSetup, Transport as _, status};
use device::{Bar, ConfigSpace, Device, DmaDomain, Error, EventFd, PciFunction, PciIds, Result};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which interfaces a function offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offers {
    /// I/O ports in region 0.
    Legacy,
    /// Capabilities that point into region 4.
    Modern,
    /// Both.
    Both,
}

/// Abnormal behaviour of a function, for tests to turn on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oddities {
    /// The function was pulled out: all registers read all ones.
    pub gone: bool,
    /// The function accepts no interrupt vectors.
    pub no_vectors: bool,
    /// The notification offset of every queue, in place of the queue's number.
    pub notify_off: Option<u16>,
    /// The status field does not change when it is written.
    pub stuck: bool,
}

/// A PCI function with a [`FakeDevice`] behind it.
#[derive(Debug)]
pub struct FakeFunction {
    ids: PciIds,
    config: ConfigSpace,
    offers: Offers,
    iommu: bool,
    most_vectors: u16,
    front: Arc<Front>,
    bar: FakeBar,
}

/// A region of a [`FakeFunction`].
#[derive(Clone, Debug)]
pub struct FakeBar {
    index: u8,
    front: Arc<Front>,
}

#[derive(Debug)]
struct Front {
    transport: FakeTransport,
    state: Mutex<Registers>,
}

#[derive(Debug, Default)]
struct Registers {
    oddities: Oddities,
    bus_master: bool,
    msix: bool,
    device_half: u32,
    driver_half: u32,
    driver_features: u64,
    selected: u16,
    queues: Vec<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    size: u16,
    vector: Option<u16>,
    addresses: [u64; 3],
    notifier: Option<FakeNotifier>,
}

/// Where structures lie in region 4, as QEMU has them, and bytes between notification offsets.
const COMMON: u32 = 0;
const DEVICE: u32 = 0x2000;
const NOTIFY: u32 = 0x3000;
const MULTIPLIER: u32 = 4;
const PART: u32 = 0x1000;
const REGION: usize = 0x4000;
const PORTS: usize = 0x40;
const NO_VECTOR: u16 = 0xFFFF;

impl FakeFunction {
    /// Creates a function with `device` behind it, whose configuration space is written to `config`, an empty file.
    /// `iommu` sets whether it reports an IOMMU in front of it.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    #[must_use]
    pub fn new(device: &FakeDevice, offers: Offers, iommu: bool, config: File) -> Self {
        let front = Front { transport: device.transport(), state: Mutex::default() };
        let front = Arc::new(front);
        config.write_all_at(&config_space(offers), 0).expect("the file can be written");
        let device = if offers == Offers::Modern { 0x1041 } else { 0x1000 };
        let ids = PciIds { vendor: 0x1af4, device, class: 0x02_0000, revision: 0 };
        let config = ConfigSpace::new(Arc::new(config), 0, 256, "fake");
        let bar = FakeBar { index: 0, front: Arc::clone(&front) };
        Self { ids, config, offers, iommu, most_vectors: 8, front, bar }
    }

    /// Returns the function with these ids instead.
    #[must_use]
    pub fn with_ids(self, ids: PciIds) -> Self {
        Self { ids, ..self }
    }

    /// Returns a region of the function, through which its [`Oddities`] can be changed while a driver has the function.
    #[must_use]
    pub fn handle(&self) -> FakeBar {
        self.bar.clone()
    }
}

impl FakeBar {
    /// Changes the [`Oddities`] of the function.
    pub fn change(&self, change: impl FnOnce(&mut Oddities)) {
        change(&mut self.front.state().oddities);
    }

    /// Returns whether bus mastering is on.
    #[must_use]
    pub fn is_bus_master(&self) -> bool {
        self.front.state().bus_master
    }
}

impl Registers {
    fn queue(&mut self) -> &mut Queue {
        let index = usize::from(self.selected);
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        &mut self.queues[index]
    }
}

impl Front {
    fn state(&self) -> MutexGuard<'_, Registers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, what: String) {
        self.transport.device.state().complain(what);
    }

    fn read(&self, index: u8, offset: u32, width: u32) -> u32 {
        let mut state = self.state();
        if state.oddities.gone {
            return u32::MAX;
        }
        let value = match index {
            0 => self.read_port(&mut state, offset, width),
            _ if offset >= NOTIFY => None,
            _ if offset >= DEVICE => self.config(offset - DEVICE, width),
            _ => self.read_common(&mut state, offset - COMMON, width),
        };
        value.unwrap_or_else(|| {
            self.complain(format!("a read of {width} bytes at {offset:#x} of region {index}"));
            u32::MAX
        })
    }

    fn config(&self, offset: u32, width: u32) -> Option<u32> {
        let mut bytes = [0; 4];
        let field = bytes.get_mut(..width as usize)?;
        self.transport.read_config(u16::try_from(offset).ok()?, field).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn offered(&self) -> u64 {
        self.transport.device_features().unwrap_or(0)
    }

    fn status(&self) -> u32 {
        self.transport.status().unwrap_or(0).into()
    }

    fn size_of(&self, queue: u16) -> u16 {
        self.transport.queue_size(queue).unwrap_or(0)
    }

    fn read_common(&self, state: &mut Registers, offset: u32, width: u32) -> Option<u32> {
        let low = |value: u64, half: u32| u32::try_from(value >> (32 * half.min(1)) & 0xffff_ffff).unwrap_or(0);
        Some(match (offset, width) {
            (4, 4) => low(self.offered(), state.device_half),
            (18, 2) => (0..).take_while(|queue| self.size_of(*queue) > 0).count().try_into().unwrap_or(0),
            (20, 1) => self.status(),
            (21, 1) => self.transport.config_generation().ok().flatten().unwrap_or(0).into(),
            (24, 2) => {
                let largest = self.size_of(state.selected);
                let queue = state.queue();
                if queue.size == 0 { largest } else { queue.size }.into()
            }
            (26, 2) => state.queue().vector.unwrap_or(NO_VECTOR).into(),
            (30, 2) => state.oddities.notify_off.unwrap_or(state.selected).into(),
            _ => return None,
        })
    }

    fn read_port(&self, state: &mut Registers, offset: u32, width: u32) -> Option<u32> {
        let start = if state.msix { 24 } else { 20 };
        Some(match (offset, width) {
            (0, 4) => u32::try_from(self.offered() & 0xffff_ffff).unwrap_or(0),
            (12, 2) => self.size_of(state.selected).into(),
            (18, 1) => self.status(),
            (22, 2) if state.msix => state.queue().vector.unwrap_or(NO_VECTOR).into(),
            (offset, width) => return self.config(offset.checked_sub(start)?, width),
        })
    }

    fn write(&self, index: u8, offset: u32, width: u32, value: u32) {
        let mut state = self.state();
        if state.oddities.gone {
            return;
        }
        let done = match index {
            0 => self.write_port(&mut state, offset, width, value),
            _ if offset >= NOTIFY => self.notify(&state, (offset - NOTIFY) / MULTIPLIER, value),
            _ => self.write_common(&mut state, offset - COMMON, width, value),
        };
        if done.is_none() {
            self.complain(format!("a write of {width} bytes at {offset:#x} of region {index}"));
        }
    }

    fn notify(&self, state: &Registers, place: u32, value: u32) -> Option<()> {
        if state.oddities.notify_off.is_none() && place != value {
            return None;
        }
        if let Some(notifier) = state.queues.get(value as usize).and_then(|queue| queue.notifier.as_ref()) {
            notifier.notify();
        }
        Some(())
    }

    fn set_status(&self, state: &mut Registers, value: u32) -> Option<()> {
        let value = u8::try_from(value).ok()?;
        if state.oddities.stuck {
            return Some(());
        }
        if value == 0 {
            state.queues.clear();
            // One that refuses keeps its status.
            let _ = self.transport.reset();
            return Some(());
        }
        if value & status::DRIVER_OK != 0 && !state.bus_master {
            self.complain("ready without bus mastering".to_owned());
        }
        self.transport.set_status(value).ok()
    }

    fn set_vector(state: &mut Registers, value: u16) {
        let takes = state.msix && !state.oddities.no_vectors;
        state.queue().vector = Some(value).filter(|vector| takes && *vector != NO_VECTOR);
    }

    #[expect(clippy::cast_possible_truncation, reason = "registers of 16 bits")]
    fn write_common(&self, state: &mut Registers, offset: u32, width: u32, value: u32) -> Option<()> {
        match (offset, width) {
            (0, 4) => state.device_half = value,
            (8, 4) => state.driver_half = value,
            (12, 4) => {
                let shift = 32 * state.driver_half.min(1);
                state.driver_features = state.driver_features & !(0xffff_ffff << shift) | u64::from(value) << shift;
                self.transport.set_driver_features(state.driver_features).ok()?;
            }
            (20, 1) => return self.set_status(state, value),
            (22, 2) => state.selected = value as u16,
            (24, 2) => state.queue().size = value as u16,
            (26, 2) => Self::set_vector(state, value as u16),
            (28, 2) if value == 1 => {
                let queue = state.queue();
                let [descriptors, driver, device] = queue.addresses;
                let (size, vector, packed) = (queue.size, queue.vector, false);
                let setup = QueueSetup { size, descriptors, driver, device, bytes: 0, packed, vector };
                self.enable(state, setup)?;
            }
            (32..=52, 4) => {
                let (area, half) = ((offset - 32) / 8, (offset - 32) % 8 * 8);
                let address = &mut state.queue().addresses[area as usize];
                *address = *address & !(0xffff_ffff << half) | u64::from(value) << half;
            }
            _ => return None,
        }
        Some(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "registers of 16 bits")]
    fn write_port(&self, state: &mut Registers, offset: u32, width: u32, value: u32) -> Option<()> {
        match (offset, width) {
            (4, 4) => self.transport.set_driver_features(value.into()).ok()?,
            (8, 4) => {
                let (size, vector, packed) = (self.size_of(state.selected), state.queue().vector, false);
                let descriptors = u64::from(value) << 12;
                let driver = descriptors + 16 * u64::from(size);
                let device = (driver + 6 + 2 * u64::from(size)).next_multiple_of(4096);
                let setup = QueueSetup { size, descriptors, driver, device, bytes: 0, packed, vector };
                self.enable(state, setup)?;
            }
            (14, 2) => state.selected = value as u16,
            (16, 2) => return self.notify(state, value, value),
            (18, 1) => return self.set_status(state, value),
            (22, 2) if state.msix => Self::set_vector(state, value as u16),
            _ => return None,
        }
        Some(())
    }

    fn enable(&self, state: &mut Registers, setup: QueueSetup) -> Option<()> {
        let packed = self.transport.device.features().contains(crate::Features::RING_PACKED);
        let setup = QueueSetup { packed, ..setup };
        // SAFETY: the driver told the registers of it, which only unsafe code can do.
        let notifier = unsafe { self.transport.set_up_queue(state.selected, &setup) };
        state.queue().notifier = Some(notifier.ok()?);
        Some(())
    }
}

impl Bar for FakeBar {
    fn size(&self) -> usize {
        if self.index == 0 { PORTS } else { REGION }
    }

    fn read32(&self, offset: u32) -> u32 {
        self.front.read(self.index, offset, 4)
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.front.write(self.index, offset, 4, value);
    }

    #[expect(clippy::cast_possible_truncation, reason = "a register of 16 bits")]
    fn read16(&self, offset: u32) -> u16 {
        self.front.read(self.index, offset, 2) as u16
    }

    unsafe fn write16(&self, offset: u32, value: u16) {
        self.front.write(self.index, offset, 2, value.into());
    }

    #[expect(clippy::cast_possible_truncation, reason = "a register of 8 bits")]
    fn read8(&self, offset: u32) -> u8 {
        self.front.read(self.index, offset, 1) as u8
    }

    unsafe fn write8(&self, offset: u32, value: u8) {
        self.front.write(self.index, offset, 1, value.into());
    }
}

// SAFETY: the device acts only when it is told to, and refuses to without DRIVER_OK; it reaches what is mapped in its domain.
unsafe impl Device for FakeFunction {
    type Bar = FakeBar;

    fn name(&self) -> &str {
        "fake"
    }

    fn ids(&self) -> PciIds {
        self.ids
    }

    fn bar(&self) -> &FakeBar {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        self.front.transport.dma()
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        self.front.state().bus_master = on;
        Ok(())
    }

    fn reset(&self) -> Result<()> {
        Err(Error::unusable("fake", "it is reset by its status field", ""))
    }

    fn enable_msix(&self, vectors: u16) -> Result<Vec<OwnedFd>> {
        if vectors > self.most_vectors {
            let cause = format!("{vectors} interrupts are wanted, and it has {}", self.most_vectors);
            return Err(Error::unusable("fake", cause, "use fewer queues or poll"));
        }
        self.front.state().msix = vectors > 0;
        let mut drivers = Vec::new();
        for _ in 0..vectors {
            let event = EventFd::new()?;
            let clone = event.as_fd().try_clone_to_owned();
            drivers.push(clone.map_err(|source| Error::system("make", "an eventfd", source, ""))?);
            self.front.transport.device.state().vectors.push(Arc::new(event));
        }
        Ok(drivers)
    }
}

// SAFETY: as above.
unsafe impl PciFunction for FakeFunction {
    fn config(&self) -> &ConfigSpace {
        &self.config
    }

    fn region(&self, index: u8) -> Result<FakeBar> {
        let there = match index {
            0 => self.offers != Offers::Modern,
            4 => self.offers != Offers::Legacy,
            _ => false,
        };
        if there {
            return Ok(FakeBar { index, front: Arc::clone(&self.front) });
        }
        Err(Error::unusable("fake", format!("it has no base address region {index}"), ""))
    }

    fn has_iommu(&self) -> bool {
        self.iommu
    }
}

/// 256 bytes: a list of capabilities, an MSI-X capability first, and for modern devices one for each structure.
fn config_space(offers: Offers) -> [u8; 256] {
    let mut space = [0; 256];
    space[0x06] = 0x10;
    space[0x34] = 0x40;
    space[0x40..0x42].copy_from_slice(&[0x11, 0]);
    if offers == Offers::Legacy {
        return space;
    }
    space[0x41] = 0x50;
    for (place, (kind, offset)) in [(1, COMMON), (3, PART), (4, DEVICE), (2, NOTIFY)].into_iter().enumerate() {
        let at = 0x50 + 0x14 * place;
        let next = if place == 3 { 0 } else { u8::try_from(at + 0x14).unwrap_or(0) };
        let len = if kind == 2 { 20 } else { 16 };
        space[at..at + 5].copy_from_slice(&[0x09, next, len, kind, 4]);
        space[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
        space[at + 12..at + 16].copy_from_slice(&PART.to_le_bytes());
        if kind == 2 {
            space[at + 16..at + 20].copy_from_slice(&MULTIPLIER.to_le_bytes());
        }
    }
    space
}
