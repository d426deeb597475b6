//! A scripted device for the unit tests of the control side: registers that remember, closures for those that act,
//! a log of every write, and removal at any read.

use crate::regs::{
    AUTOC, CTRL, EEC, EERD, GCR_EXT, Ixgbe, RDRXCTL, Registers, SECRXSTAT, STATUS, SW_FW_SYNC, SWSM, autoc, ctrl, eec,
    eerd, rah, rah_fields, ral, rdrxctl, secrxstat, status, sw_fw_sync, swsm,
};
use device::{Bar, Device, DmaDomain, DmaMapper, DmaMemory, PciIds, Reg, Translation};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) type Storage = BTreeMap<u32, u32>;
type ReadHook = Box<dyn FnMut(&mut Storage) -> u32 + Send>;
type WriteHook = Box<dyn FnMut(&mut Storage, u32) + Send>;

#[derive(Default)]
pub(crate) struct State {
    storage: Storage,
    on_read: BTreeMap<u32, ReadHook>,
    on_write: BTreeMap<u32, WriteHook>,
    writes: Vec<(u32, u32)>,
    reads: Vec<u32>,
    gone_from: Option<usize>,
    gone_after_write: Option<(u32, usize)>,
}

pub(crate) struct FakeBar(Mutex<State>);

impl FakeBar {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Bar for FakeBar {
    fn size(&self) -> usize {
        0x20000
    }

    fn read32(&self, offset: u32) -> u32 {
        let state = &mut *self.state();
        let position = state.reads.len();
        state.reads.push(offset);
        if state.gone_from.is_some_and(|from| position >= from) {
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
        if let Some((_, reads)) = state.gone_after_write.take_if(|(register, _)| *register == offset) {
            state.gone_from = Some(state.reads.len() + reads);
        }
        match state.on_write.get_mut(&offset) {
            Some(hook) => hook(&mut state.storage, value),
            None => {
                state.storage.insert(offset, value);
            }
        }
    }
}

pub(crate) struct FakeDevice {
    ids: PciIds,
    bar: FakeBar,
    dma: DmaDomain,
}

/// The test's handle on a device that behaves like a healthy one until told otherwise.
#[derive(Clone)]
pub(crate) struct Fake(Arc<FakeDevice>);

pub(crate) const STATION: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

impl Fake {
    /// An Intel device with this id whose EEPROM is loaded and whose resets finish at once.
    pub(crate) fn new(device: u16) -> Self {
        let ids = PciIds { vendor: 0x8086, device, class: 0x02_0000, revision: 1 };
        let bar = FakeBar(Mutex::default());
        let fake = Self(Arc::new(FakeDevice { ids, bar, dma: DmaDomain::new(Box::new(NoMemory)) }));
        fake.set(EEC, eec::ARD.mask() | eec::PRES.mask());
        fake.set(STATUS, status::GIO.mask());
        fake.set(RDRXCTL, rdrxctl::DMAIDONE.mask());
        fake.set(SECRXSTAT, secrxstat::SECRX_RDY.mask());
        fake.set(GCR_EXT, 0);
        fake.set_station(STATION, true);
        fake.on_write(CTRL, |storage, value| {
            let resets = ctrl::RST.mask() | ctrl::LRST.mask();
            let value = if value & resets == 0 { value } else { 0 };
            storage.insert(CTRL.offset(), value);
            let gio = if value & ctrl::GIO_DIS.mask() == 0 { status::GIO.mask() } else { 0 };
            storage.insert(STATUS.offset(), gio);
        });
        fake.on_write(AUTOC, |storage, value| {
            storage.insert(AUTOC.offset(), value & !autoc::AN_RESTART.mask());
        });
        fake.on_read(SWSM, |storage| {
            let old = storage.get(&SWSM.offset()).copied().unwrap_or(0);
            storage.insert(SWSM.offset(), old | swsm::SMBI.mask());
            old
        });
        if device != 0x10FB && device != 0x10F9 {
            fake.on_read(SW_FW_SYNC, |storage| {
                let old = storage.get(&SW_FW_SYNC.offset()).copied().unwrap_or(0);
                storage.insert(SW_FW_SYNC.offset(), old | sw_fw_sync::REGSMP.mask());
                old
            });
        }
        fake
    }

    pub(crate) fn regs(&self) -> Registers<FakeDevice> {
        Registers::new(Arc::clone(&self.0)).unwrap()
    }

    pub(crate) fn ids(&self) -> PciIds {
        self.0.ids
    }

    /// Loads these EEPROM words, 0 beyond them.
    pub(crate) fn set_eeprom(&self, words: Vec<u16>) {
        self.on_write(EERD, move |storage, value| {
            let address = eerd::ADDR.get(value) as usize;
            let word = words.get(address).copied().unwrap_or(0);
            storage.insert(EERD.offset(), eerd::DATA.set(value | eerd::DONE.mask(), word.into()));
        });
    }

    pub(crate) fn set_station(&self, a: [u8; 6], valid: bool) {
        self.set(ral(0), u32::from_le_bytes([a[0], a[1], a[2], a[3]]));
        let high = u32::from_le_bytes([a[4], a[5], 0, 0]);
        self.set(rah(0), high | if valid { rah_fields::AV.mask() } else { 0 });
    }

    pub(crate) fn set<A>(&self, register: Reg<Ixgbe, A>, value: u32) {
        self.0.bar.state().storage.insert(register.offset(), value);
    }

    /// The stored value, without the effects of a read.
    pub(crate) fn get<A>(&self, register: Reg<Ixgbe, A>) -> u32 {
        self.0.bar.state().storage.get(&register.offset()).copied().unwrap_or(0)
    }

    pub(crate) fn on_read<A>(&self, register: Reg<Ixgbe, A>, hook: impl FnMut(&mut Storage) -> u32 + Send + 'static) {
        self.0.bar.state().on_read.insert(register.offset(), Box::new(hook));
    }

    pub(crate) fn on_write<A>(&self, register: Reg<Ixgbe, A>, hook: impl FnMut(&mut Storage, u32) + Send + 'static) {
        self.0.bar.state().on_write.insert(register.offset(), Box::new(hook));
    }

    /// All reads from the `position`th (from 0) return all ones.
    pub(crate) fn vanish_at_read(&self, position: usize) {
        let state = &mut *self.0.bar.state();
        state.gone_from = Some(state.reads.len() + position);
    }

    /// All reads but the first `reads` after the next write of `register` return all ones.
    pub(crate) fn vanish_after_write<A>(&self, register: Reg<Ixgbe, A>, reads: usize) {
        self.0.bar.state().gone_after_write = Some((register.offset(), reads));
    }

    /// Writes so far: offset and value.
    pub(crate) fn writes(&self) -> Vec<(u32, u32)> {
        self.0.bar.state().writes.clone()
    }

    /// Offsets read so far.
    pub(crate) fn reads(&self) -> Vec<u32> {
        self.0.bar.state().reads.clone()
    }
}

// SAFETY: a fake has no DMA engine.
unsafe impl Device for FakeDevice {
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
        &self.dma
    }

    fn set_bus_master(&self, _on: bool) -> device::Result<()> {
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        Ok(())
    }

    fn enable_msix(&self, _vectors: u16) -> device::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
}

struct NoMemory;

// SAFETY: nothing is ever mapped.
unsafe impl DmaMapper for NoMemory {
    fn map(&self, _memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        Err(device::Error::unusable("fake", "has no DMA", ""))
    }

    fn unmap(&self, _memory: &Arc<DmaMemory>, _translation: &Translation) -> device::Result<()> {
        Ok(())
    }
}
