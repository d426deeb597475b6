//! A device whose registers hold what was written to them, and whose rings a test can play with, for unit tests.

use crate::regs::{
    CTRL, EEC, EEMNGCTL, EERD, Igb, MDIC, RAH, RAL, RDBAH, RDBAL, RDLEN, Registers, TDBAH, TDBAL, TDLEN, eerd,
};
use crate::wait::Timed;
use device::{Bar, Device, DmaDomain, DmaMapper, DmaMemory, PciIds, Reg, TimeLimit, Translation};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Values of registers by offset.
pub(crate) type Storage = HashMap<u32, u32>;
type OnRead = Box<dyn FnMut(&mut Storage) -> u32 + Send>;
type OnMdic = Box<dyn FnMut(&mut Storage, u32) -> u32 + Send>;

#[derive(Default)]
struct State {
    storage: Storage,
    writes: Vec<(u32, u32)>,
    /// Whether bus mastering is on, how many writes there were when it was last set, and whether it obeys.
    bus_master: (bool, usize),
    stuck: bool,
    eeprom: Vec<u16>,
    /// Looks for which transactions are still pending.
    pending: u32,
    on_read: HashMap<u32, OnRead>,
    on_mdic: Option<OnMdic>,
    gone: bool,
}

/// The EEPROM of four ports: 0x40 words are common, then comes an empty part, and for each port but the first a part, all with right checksums.
pub(crate) fn eeprom() -> Vec<u16> {
    let part = |fill: u16| {
        let words: u16 = (0..0x3F).fold(0, |sum: u16, word| sum.wrapping_add(fill + word));
        (0..0x3F).map(move |word| fill + word).chain([0xBABA_u16.wrapping_sub(words)])
    };
    part(0x1100).chain([0xFFFF; 0x40]).chain(part(0x2200)).chain(part(0x3300)).chain(part(0x4400)).collect()
}

/// The registers of a [`Fake`].
pub(crate) struct FakeBar(Mutex<State>);

impl FakeBar {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bar for FakeBar {
    fn size(&self) -> usize {
        0x20000
    }

    fn read32(&self, offset: u32) -> u32 {
        let state = &mut *self.state();
        if state.gone {
            return u32::MAX;
        }
        match state.on_read.get_mut(&offset) {
            Some(hook) => hook(&mut state.storage),
            None => state.storage.get(&offset).copied().unwrap_or(0),
        }
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        let state = &mut *self.state();
        state.writes.push((offset, value));
        let value = match &mut state.on_mdic {
            Some(hook) if offset == MDIC.offset() => hook(&mut state.storage, value),
            None if offset == MDIC.offset() => value | 1 << 28,
            _ if offset == EERD.offset() => {
                let word = state.eeprom.get(eerd::ADDR.get(value) as usize).copied().unwrap_or(0xFFFF);
                eerd::DATA.set(value | eerd::DONE.mask(), word.into())
            }
            // Resets end at once.
            _ if offset == CTRL.offset() => value & !(1 << 26),
            _ => value,
        };
        state.storage.insert(offset, value);
    }
}

struct Parts {
    ids: PciIds,
    bar: FakeBar,
    dma: DmaDomain,
    space: Space,
}

/// The descriptors of a ring. This value keeps their memory.
///
/// # Invariants
///
/// There are `size` of 16 bytes, 1 at least, at `offset` of `memory`, 16-aligned.
pub(crate) struct Descriptors {
    memory: Arc<DmaMemory>,
    offset: usize,
    pub(crate) size: usize,
}

impl Descriptors {
    /// Word `word` (0 low, 1 high) of descriptor `index` modulo the ring's size.
    pub(crate) fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        let at = self.offset + index % self.size * 16 + word % 2 * 8;
        let place = self.memory.base().as_ptr().wrapping_add(at).cast::<AtomicU64>();
        // SAFETY: within the memory and aligned (type invariant); both sides access rings by atomics only.
        unsafe { &*place }
    }

    /// Writes the second word of a descriptor.
    pub(crate) fn report(&self, index: usize, high: u64) {
        self.word(index, 1).store(high.to_le(), Ordering::Release);
    }
}

/// The device. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Parts>);

impl Fake {
    pub(crate) fn new(device: u16) -> Self {
        let ids = PciIds { vendor: 0x8086, device, class: 0x02_0000, revision: 1 };
        let space = Space::default();
        let dma = DmaDomain::new(Box::new(space.clone()));
        let fake = Self(Arc::new(Parts { ids, bar: FakeBar(Mutex::default()), dma, space }));
        fake.set(EEC, 1 << 9 | 1 << 8);
        fake.set_eeprom(eeprom());
        fake.set(EEMNGCTL, 0xF << 18);
        fake.set(RAL.at(0), 0x3322_1102);
        fake.set(RAH.at(0), 0x8000_5544);
        fake
    }

    /// The descriptors of receive queue 0, as the driver programmed it.
    pub(crate) fn rx(&self) -> Descriptors {
        self.ring(self.get(RDBAL.at(0)), self.get(RDBAH.at(0)), self.get(RDLEN.at(0)))
    }

    /// The descriptors of transmit queue 0, as the driver programmed it.
    pub(crate) fn tx(&self) -> Descriptors {
        self.ring(self.get(TDBAL.at(0)), self.get(TDBAH.at(0)), self.get(TDLEN.at(0)))
    }

    fn ring(&self, low: u32, high: u32, len: u32) -> Descriptors {
        let (iova, len) = (u64::from(low) | u64::from(high) << 32, len as usize);
        let found = self.0.space.memory().iter().find_map(|region| {
            let offset = usize::try_from(iova.checked_sub(region.base().as_ptr() as u64)?).ok()?;
            (offset.checked_add(len)? <= region.len()).then(|| (Arc::clone(region), offset))
        });
        let (memory, offset) = found.expect("a ring in mapped memory");
        assert!(len >= 16 && offset.is_multiple_of(16), "a ring of descriptors");
        Descriptors { memory, offset, size: len / 16 }
    }

    /// Makes bus mastering impossible to change.
    pub(crate) fn stick(&self) {
        self.0.bar.state().stuck = true;
    }

    /// Whether bus mastering is on, and all writes since it was set.
    pub(crate) fn since_bus_master(&self) -> (bool, Vec<(u32, u32)>) {
        let state = self.0.bar.state();
        (state.bus_master.0, state.writes[state.bus_master.1..].to_vec())
    }

    /// Its registers, for operations that may take an hour.
    pub(crate) fn regs(&self) -> Timed<Self> {
        let regs = Registers::new(Arc::new(self.clone())).expect("a device of this family");
        let limit = TimeLimit { total: Duration::from_secs(3600), cancel: None };
        Timed::new(&regs, limit.begin())
    }

    /// Sets the words of the EEPROM.
    pub(crate) fn set_eeprom(&self, words: Vec<u16>) {
        self.0.bar.state().eeprom = words;
    }

    pub(crate) fn set<A>(&self, register: Reg<Igb, A>, value: u32) {
        self.0.bar.state().storage.insert(register.offset(), value);
    }

    pub(crate) fn get<A>(&self, register: Reg<Igb, A>) -> u32 {
        self.0.bar.state().storage.get(&register.offset()).copied().unwrap_or(0)
    }

    /// All values written to a register.
    pub(crate) fn written<A>(&self, register: Reg<Igb, A>) -> Vec<u32> {
        let state = self.0.bar.state();
        state.writes.iter().filter(|write| write.0 == register.offset()).map(|write| write.1).collect()
    }

    /// Makes reads of `register` return what `hook` returns.
    pub(crate) fn on_read<A>(&self, register: Reg<Igb, A>, hook: impl FnMut(&mut Storage) -> u32 + Send + 'static) {
        self.0.bar.state().on_read.insert(register.offset(), Box::new(hook));
    }

    /// Makes MDIC hold what `hook` makes of what is written to it.
    pub(crate) fn on_mdic(&self, hook: impl FnMut(&mut Storage, u32) -> u32 + Send + 'static) {
        self.0.bar.state().on_mdic = Some(Box::new(hook));
    }

    /// Has transactions on PCI Express be pending for so many looks.
    pub(crate) fn set_pending(&self, looks: u32) {
        self.0.bar.state().pending = looks;
    }

    /// How many of these looks have not been made.
    pub(crate) fn pending(&self) -> u32 {
        self.0.bar.state().pending
    }

    /// Makes all reads return all ones.
    pub(crate) fn vanish(&self) {
        self.0.bar.state().gone = true;
    }
}

// SAFETY: it accesses memory only when a test tells it to, and only what is mapped.
unsafe impl Device for Fake {
    type Bar = FakeBar;

    fn name(&self) -> &str {
        "fake"
    }

    fn ids(&self) -> PciIds {
        self.0.ids
    }

    fn bar(&self) -> &FakeBar {
        &self.0.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.0.dma
    }

    fn set_bus_master(&self, on: bool) -> device::Result<()> {
        let state = &mut *self.0.bar.state();
        if state.stuck {
            return Err(device::Error::unusable("fake", "does not obey", "replace it"));
        }
        state.bus_master = (on, state.writes.len());
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        self.set_bus_master(false)
    }

    fn transactions_pending(&self) -> Option<bool> {
        let pending = &mut self.0.bar.state().pending;
        let is_pending = *pending > 0;
        *pending = pending.saturating_sub(1);
        Some(is_pending)
    }

    fn enable_msix(&self, _vectors: u16) -> device::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

/// The regions that are mapped, at their own addresses.
#[derive(Clone, Default)]
struct Space(Arc<Mutex<Vec<Arc<DmaMemory>>>>);

impl Space {
    fn memory(&self) -> MutexGuard<'_, Vec<Arc<DmaMemory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a region is reached as long as it is in the list.
unsafe impl DmaMapper for Space {
    fn map(&self, memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        self.memory().push(Arc::clone(memory));
        Ok(Translation::Linear { delta: 0 })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, _translation: &Translation) -> device::Result<()> {
        self.memory().retain(|region| !Arc::ptr_eq(region, memory));
        Ok(())
    }
}
