//! A scripted device, for unit tests, tests of other crates and fuzz targets. It has registers that keep what is
//! written, hooks (closures) for registers with effects, a log of every write, removal at any read, and rings to which
//! a test can write anything, at any time, from any thread. It moves no frames by itself.
//!
//! ```
//! use ethdev::{Opened, Port as _, RxQueue as _};
//! use ixgbe::fake::{Fake, Queue};
//! use mempool::{Batch, Pool, PoolConfig};
//!
//! let pool = Pool::new(&PoolConfig::default())?;
//! let fake = Fake::new(0x10FB);
//! let Opened { port, mut rx, .. } = ixgbe::open(fake.clone(), &ixgbe::Config::default(), &pool)?;
//! // Descriptor 0: done, end of packet, 60 bytes.
//! fake.set_descriptor(Queue::Rx(0), 0, 1, 60 << 32 | 0b11);
//! let mut batch = Batch::with_capacity(32);
//! assert_eq!(rx[0].recv(&mut pool.cache(), &mut batch).len(), 1);
//! assert_eq!(batch[0].len(), 60);
//! port.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::regs::{
    ANLP1, AUTOC, CTRL, EEC, EERD, FLEX_MNG, GCR_EXT, HICR, I2CCTL, Ixgbe, MSCA, MSRWD, RDBAH, RDBAL, RDLEN, RDRXCTL,
    RDT, RXCTRL, SECRXSTAT, STATUS, SW_FW_SYNC, SWSM, TDBAH, TDBAL, TDLEN, TDT, anlp1, autoc, ctrl, eec, eerd, hicr,
    i2cctl, msca, msrwd, rah, rah_fields, ral, rdrxctl, secrxstat, status, sw_fw_sync, swsm,
};
use device::{Bar, Deadline, Device, DmaDomain, DmaMapper, DmaMemory, PciIds, Reg, Translation};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values of registers, by offset.
pub type Storage = BTreeMap<u32, u32>;
type ReadHook = Box<dyn FnMut(&mut Storage) -> u32 + Send>;
type WriteHook = Box<dyn FnMut(&mut Storage, u32) + Send>;

#[derive(Default)]
struct State {
    storage: Storage,
    /// What the driver has written, whatever a hook did with it: of addresses it alone has the word.
    driver: Storage,
    on_read: BTreeMap<u32, ReadHook>,
    on_write: BTreeMap<u32, WriteHook>,
    writes: Vec<(u32, u32)>,
    reads: Vec<u32>,
    gone_from: Option<usize>,
    gone_after_write: Option<(u32, usize)>,
    flagged: Option<(usize, Arc<AtomicBool>)>,
}

/// The register window of a [`Fake`].
pub struct FakeBar(Mutex<State>);

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
        let position = state.reads.len();
        state.reads.push(offset);
        if let Some((_, flag)) = state.flagged.take_if(|(from, _)| position >= *from) {
            flag.store(true, Ordering::Relaxed);
        }
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
        state.driver.insert(offset, value);
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

impl fmt::Debug for FakeBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeBar").finish_non_exhaustive()
    }
}

/// How a [`Fake`] maps memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// At the addresses at which the program sees it.
    #[default]
    Linear,
    /// At the addresses at which the program sees it, in pages of 4 KiB, as on a host without IOMMU.
    Paged,
    /// Mapping fails with an error.
    Fails,
    /// Mapping panics.
    Panics,
}

struct Memory {
    mapping: Mapping,
    regions: Vec<Arc<DmaMemory>>,
    /// Tries to map something.
    tries: usize,
}

/// What the device and its mapper share.
#[derive(Clone)]
struct Space(Arc<Mutex<Memory>>);

impl Space {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region that `len` bytes at `iova` are in, and where they begin in it; `None` if they are not mapped.
    fn find(&self, iova: u64, len: usize) -> Option<(Arc<DmaMemory>, usize)> {
        self.memory().regions.iter().find_map(|region| {
            let offset = usize::try_from(iova.checked_sub(region.base().as_ptr() as u64)?).ok()?;
            (offset.checked_add(len)? <= region.len()).then(|| (Arc::clone(region), offset))
        })
    }
}

/// The descriptors of a ring. This value keeps their memory.
///
/// # Invariants
///
/// There are `size` of 16 bytes, 1 at least, at `offset` of `memory`, 16-aligned.
#[derive(Debug)]
pub struct Descriptors {
    memory: Arc<DmaMemory>,
    offset: usize,
    size: usize,
}

impl Descriptors {
    /// Returns the number of descriptors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.size
    }

    /// Returns word `word` (0 low, 1 high) of descriptor `index` modulo the ring's size.
    #[must_use]
    pub fn get(&self, index: usize, word: usize) -> u64 {
        u64::from_le(self.word(index, word).load(Ordering::Acquire))
    }

    /// Writes word `word` (0 low, 1 high) of descriptor `index` modulo the ring's size.
    pub fn set(&self, index: usize, word: usize, value: u64) {
        self.word(index, word).store(value.to_le(), Ordering::Release);
    }

    fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        let at = self.offset + index % self.size * 16 + word % 2 * 8;
        let place = self.memory.base().as_ptr().wrapping_add(at).cast::<AtomicU64>();
        // SAFETY: within the memory and aligned (type invariant); both sides access rings by atomics only.
        unsafe { &*place }
    }
}

struct Parts {
    ids: PciIds,
    bar: FakeBar,
    dma: DmaDomain,
    space: Space,
    stuck: Mutex<bool>,
    /// Looks for which transactions are still pending.
    pending: AtomicU32,
    deadline: Mutex<Option<Deadline>>,
}

/// A queue of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Receive queue of this number.
    Rx(u32),
    /// Transmit queue of this number.
    Tx(u32),
}

/// A fake device, which behaves like a healthy one until a test changes that. Clones are handles of the same device:
/// one goes to the driver, and the test keeps another.
#[derive(Clone)]
pub struct Fake(Arc<Parts>);

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("ids", &self.0.ids).finish_non_exhaustive()
    }
}

/// The default station address of a [`Fake`].
pub const STATION: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// Register of a [`Fake`]'s PHY: the upper half of its identity.
pub const PHY_IDENTITY: u32 = 1 << 16 | 2;
/// Register of a [`Fake`]'s PHY: control, with the bit for low power.
pub const PHY_CONTROL: u32 = 0x1E << 16;

/// Where the storage keeps a register of the PHY: beyond all registers of the device.
fn phy_key(register: u32) -> u32 {
    register | 1 << 31
}

/// A command in MSCA, which completes at once.
fn mdio(storage: &mut Storage, command: u32) {
    let get = |register: u32| storage.get(&register).copied().unwrap_or(0);
    let (key, written) = (phy_key(msca::DEVICE.get(command) << 16 | msca::ADDRESS.get(command)), get(MSRWD.offset()));
    let read = msrwd::READ.set(written, get(key));
    match msca::OP.get(command) {
        1 => storage.insert(key, msrwd::WRITE.get(written)),
        3 => storage.insert(MSRWD.offset(), read),
        _ => None,
    };
    storage.insert(MSCA.offset(), msca::MDI_CMD.set(command, 0));
}

/// A command to the firmware of an X550, which completes at once.
fn firmware(storage: &mut Storage, words: &[u16], hicr: u32) {
    let get = |at: u32| storage.get(&FLEX_MNG.at(at).offset()).copied().unwrap_or(0);
    let ([command, ..], [high, low, ..]) = (get(0).to_le_bytes(), get(2).to_le_bytes());
    let (first, count) = (get(1).swap_bytes() / 2, u32::from(u16::from_be_bytes([high, low])) / 2);
    let word = |at: u32| u32::from(words.get((first + at) as usize).copied().unwrap_or(0));
    match command {
        0x31 => {
            for at in (0..count).step_by(2) {
                storage.insert(FLEX_MNG.at(3 + at / 2).offset(), word(at) | word(at + 1) << 16);
            }
        }
        _ => drop(storage.insert(RXCTRL.offset(), 0)),
    }
    storage.insert(FLEX_MNG.at(0).offset(), u32::from_le_bytes([command, 0, 1, 0xFF]));
    storage.insert(HICR.offset(), hicr::SV.set(hicr::C.set(hicr, 0), 1));
}

impl Fake {
    /// Creates an Intel device with this id whose EEPROM is loaded and whose resets finish at once.
    #[must_use]
    pub fn new(device: u16) -> Self {
        let ids = PciIds { vendor: 0x8086, device, class: 0x02_0000, revision: 1 };
        let bar = FakeBar(Mutex::default());
        let memory = Memory { mapping: Mapping::default(), regions: Vec::new(), tries: 0 };
        let space = Space(Arc::new(Mutex::new(memory)));
        let dma = DmaDomain::new(Box::new(space.clone()));
        let fake = Self(Arc::new(Parts {
            ids,
            bar,
            dma,
            space,
            stuck: Mutex::default(),
            pending: AtomicU32::default(),
            deadline: Mutex::default(),
        }));
        fake.set(EEC, eec::ARD.mask() | eec::PRES.mask());
        fake.set(STATUS, status::GIO.mask());
        fake.set(RDRXCTL, rdrxctl::DMAIDONE.mask());
        fake.set(SECRXSTAT, secrxstat::SECRX_RDY.mask());
        fake.set(GCR_EXT, 0);
        fake.set(ANLP1, anlp1::STATE.set(0, 1));
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
        // Nothing is in the cage: wires are where the driver puts them.
        fake.on_write(I2CCTL, |storage, value| {
            let value = i2cctl::CLK_IN.set(value, i2cctl::CLK_OUT.get(value));
            storage.insert(I2CCTL.offset(), i2cctl::DATA_IN.set(value, i2cctl::DATA_OUT.get(value)));
        });
        fake.set_phy_register(PHY_IDENTITY, 0x0154);
        fake.on_write(MSCA, mdio);
        fake.set(HICR, hicr::EN.mask());
        fake.on_write(HICR, |storage, value| firmware(storage, &[], value));
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

    /// Its registers, for operations that may take an hour.
    #[cfg(test)]
    pub(crate) fn regs(&self) -> crate::wait::Timed<Self> {
        let regs = crate::regs::Registers::new(Arc::new(self.clone())).expect("a device of this family");
        let limit = device::TimeLimit { total: std::time::Duration::from_secs(3600), cancel: None };
        crate::wait::Timed::new(&regs, limit.begin())
    }

    /// Sets a register of the PHY, which answers at every address: device in bits 31:16, number in bits 15:0.
    pub fn set_phy_register(&self, register: u32, value: u16) {
        self.0.bar.state().storage.insert(phy_key(register), value.into());
    }

    /// Returns a register of the PHY, by device and number as in [`Self::set_phy_register`].
    #[must_use]
    pub fn phy_register(&self, register: u32) -> u32 {
        self.0.bar.state().storage.get(&phy_key(register)).copied().unwrap_or(0)
    }

    /// Has transactions on PCI Express be pending for so many looks.
    pub fn set_pending(&self, looks: u32) {
        self.0.pending.store(looks, Ordering::SeqCst);
    }

    /// Returns how many of these looks have not been made.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.0.pending.load(Ordering::SeqCst)
    }

    /// Sets how memory is mapped from now on.
    pub fn set_mapping(&self, mapping: Mapping) {
        self.0.space.memory().mapping = mapping;
    }

    /// Returns how many times the driver has asked to map memory.
    #[must_use]
    pub fn map_tries(&self) -> usize {
        self.0.space.memory().tries
    }

    /// Sets whether the device is stuck: then bus mastering can neither be set nor cleared, and the function cannot be
    /// reset.
    pub fn set_stuck(&self, stuck: bool) {
        *self.0.stuck.lock().unwrap_or_else(PoisonError::into_inner) = stuck;
    }

    fn obeys(&self) -> device::Result<()> {
        match *self.0.stuck.lock().unwrap_or_else(PoisonError::into_inner) {
            true => Err(device::Error::unusable("fake", "does not obey", "replace it")),
            false => Ok(()),
        }
    }

    /// Returns the descriptors of a ring, as the driver programmed it; `None` if they are not in mapped memory, or not
    /// aligned.
    #[must_use]
    pub fn descriptors(&self, queue: Queue) -> Option<Descriptors> {
        let state = self.0.bar.state();
        // Not what a test has set: a ring lies in memory that nobody else refers to, by the driver's word.
        let written = |register: Reg<Ixgbe, device::Dma>| state.driver.get(&register.offset()).copied().unwrap_or(0);
        let (low, high, len) = match queue {
            Queue::Rx(n) => (written(RDBAL.at(n)), written(RDBAH.at(n)), written(RDLEN.at(n))),
            Queue::Tx(n) => (written(TDBAL.at(n)), written(TDBAH.at(n)), written(TDLEN.at(n))),
        };
        drop(state);
        let (memory, offset) = self.0.space.find(u64::from(low) | u64::from(high) << 32, len as usize)?;
        (len >= 16 && offset.is_multiple_of(16)).then_some(Descriptors { memory, offset, size: len as usize / 16 })
    }

    /// Returns the tail as last written by the driver.
    #[must_use]
    pub fn tail(&self, queue: Queue) -> u32 {
        match queue {
            Queue::Rx(n) => self.get(RDT.at(n)),
            Queue::Tx(n) => self.get(TDT.at(n)),
        }
    }

    /// Returns a word of a descriptor, as [`Descriptors::get`]; `None` if the ring is not mapped.
    #[must_use]
    pub fn descriptor(&self, queue: Queue, index: usize, word: usize) -> Option<u64> {
        self.descriptors(queue).map(|ring| ring.get(index, word))
    }

    /// Writes a word of a descriptor, as [`Descriptors::set`]. Returns false if the ring is not mapped.
    pub fn set_descriptor(&self, queue: Queue, index: usize, word: usize, value: u64) -> bool {
        self.descriptors(queue).map(|ring| ring.set(index, word, value)).is_some()
    }

    /// Writes to memory that the driver has mapped. Returns false if it is not mapped.
    ///
    /// # Safety
    ///
    /// During the call nothing has a reference to these bytes, as is the case for buffers of descriptors that are not
    /// done.
    pub unsafe fn write_memory(&self, iova: u64, bytes: &[u8]) -> bool {
        let Some((memory, offset)) = self.0.space.find(iova, bytes.len()) else { return false };
        let place = memory.base().as_ptr().wrapping_add(offset);
        // SAFETY: memory of this length, which `memory` keeps, and which nobody refers to, by the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
        true
    }

    /// Sets the words of the EEPROM; those beyond are 0.
    pub fn set_eeprom(&self, words: Vec<u16>) {
        let for_firmware = words.clone();
        self.on_write(HICR, move |storage, value| firmware(storage, &for_firmware, value));
        self.on_write(EERD, move |storage, value| {
            let address = eerd::ADDR.get(value) as usize;
            let word = words.get(address).copied().unwrap_or(0);
            storage.insert(EERD.offset(), eerd::DATA.set(value | eerd::DONE.mask(), word.into()));
        });
    }

    /// Sets the station address, and whether it is valid.
    pub fn set_station(&self, a: [u8; 6], valid: bool) {
        self.set(ral(0), u32::from_le_bytes([a[0], a[1], a[2], a[3]]));
        let high = u32::from_le_bytes([a[4], a[5], 0, 0]);
        self.set(rah(0), high | if valid { rah_fields::AV.mask() } else { 0 });
    }

    /// Sets the stored value of a register.
    pub fn set<A>(&self, register: Reg<Ixgbe, A>, value: u32) {
        self.0.bar.state().storage.insert(register.offset(), value);
    }

    /// Returns the stored value of a register, without the effects of a read.
    #[must_use]
    pub fn get<A>(&self, register: Reg<Ixgbe, A>) -> u32 {
        self.0.bar.state().storage.get(&register.offset()).copied().unwrap_or(0)
    }

    /// Makes reads of `register` return what `hook` returns from now on.
    pub fn on_read<A>(&self, register: Reg<Ixgbe, A>, hook: impl FnMut(&mut Storage) -> u32 + Send + 'static) {
        self.on_read_at(register.offset(), hook);
    }

    /// Like [`Self::on_read`], for a register by its offset.
    pub fn on_read_at(&self, offset: u32, hook: impl FnMut(&mut Storage) -> u32 + Send + 'static) {
        self.0.bar.state().on_read.insert(offset, Box::new(hook));
    }

    /// Makes writes of `register` call `hook` from now on, with no other effect.
    pub fn on_write<A>(&self, register: Reg<Ixgbe, A>, hook: impl FnMut(&mut Storage, u32) + Send + 'static) {
        self.0.bar.state().on_write.insert(register.offset(), Box::new(hook));
    }

    /// Makes all reads from now on, except the next `position`, return all ones.
    pub fn vanish_at_read(&self, position: usize) {
        let state = &mut *self.0.bar.state();
        state.gone_from = Some(state.reads.len() + position);
    }

    /// Sets `flag` at the read after the next `position`.
    pub fn flag_at_read(&self, position: usize, flag: &Arc<AtomicBool>) {
        let state = &mut *self.0.bar.state();
        state.flagged = Some((state.reads.len() + position, Arc::clone(flag)));
    }

    /// Makes all reads after the next write of `register`, except the first `reads`, return all ones.
    pub fn vanish_after_write<A>(&self, register: Reg<Ixgbe, A>, reads: usize) {
        self.0.bar.state().gone_after_write = Some((register.offset(), reads));
    }

    /// Returns all writes so far: offset and value.
    #[must_use]
    pub fn writes(&self) -> Vec<(u32, u32)> {
        self.0.bar.state().writes.clone()
    }

    /// Returns the offsets of all reads so far.
    #[must_use]
    pub fn reads(&self) -> Vec<u32> {
        self.0.bar.state().reads.clone()
    }
}

// SAFETY: a fake accesses memory only when a test tells it to, and only what is mapped.
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

    fn set_bus_master(&self, _on: bool) -> device::Result<()> {
        self.obeys()
    }

    fn reset(&self) -> device::Result<()> {
        self.obeys()
    }

    fn enable_msix(&self, _vectors: u16) -> device::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn transactions_pending(&self) -> Option<bool> {
        let less = |left: u32| left.checked_sub(1);
        Some(self.0.pending.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok())
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn deadline(&self) -> Option<Deadline> {
        self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// SAFETY: a region is reached as long as it is in the list.
unsafe impl DmaMapper for Space {
    fn map(&self, memory: &Arc<DmaMemory>) -> device::Result<Translation> {
        let mut space = self.memory();
        space.tries += 1;
        let base = memory.base().as_ptr() as u64;
        let translation = match space.mapping {
            Mapping::Linear => Translation::Linear { delta: 0 },
            Mapping::Paged => {
                let pages = (0..memory.len().div_ceil(4096)).map(|page| base + page as u64 * 4096).collect();
                Translation::Paged { base, shift: 12, pages }
            }
            Mapping::Fails => return Err(device::Error::unusable("fake", "maps no more memory", "")),
            Mapping::Panics => panic!("a mapper that panics"),
        };
        space.regions.push(Arc::clone(memory));
        Ok(translation)
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, _translation: &Translation) -> device::Result<()> {
        self.memory().regions.retain(|region| !Arc::ptr_eq(region, memory));
        Ok(())
    }
}
