//! The PCI function that a client sees: its regions, and what configuration space does to the device.

use super::config_space::{self, ConfigSpace, MSIX_BAR};
use super::memory::ClientMemory;
use super::vectors::{Sink, Vectors};
use crate::DeviceId;
use crate::engine::{self, Station};
use crate::model::{Doorbells, Model};
use device::vfio_user::message::region;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The region in which doorbells are rung, beyond those of VFIO: offered to clients that ask for it.
pub(super) const DOORBELL_REGION: u32 = 9;
/// Registers read or written before the engine gets its turn again.
const TURN: usize = 256;

/// A PCI function in the hands of one client.
pub(super) struct Function {
    pub(super) station: Arc<Station>,
    pub(super) memory: Arc<ClientMemory>,
    pub(super) vectors: Arc<Vectors>,
    /// Shared with the client, if it asked for them.
    pub(super) doorbells: Option<Arc<Doorbells>>,
    pub(super) id: DeviceId,
    config: ConfigSpace,
    /// The region of MSI-X. The client's side masks vectors; here the table is storage.
    msix_table: Box<[u8]>,
}

impl Function {
    /// A function as after power-on.
    pub(super) fn new(
        station: Arc<Station>,
        (memory, vectors): (Arc<ClientMemory>, Arc<Vectors>),
        id: DeviceId,
        mac: [u8; 6],
    ) -> Self {
        let function = Self {
            station,
            memory,
            vectors,
            doorbells: None,
            id,
            config: ConfigSpace::new(id, mac),
            msix_table: vec![0; MSIX_BAR].into_boxed_slice(),
        };
        function.reset_device();
        function
    }

    /// Function level reset. Mappings and eventfds stay, as they are the host's.
    pub(super) fn reset(&mut self) {
        self.config.reset();
        self.msix_table.fill(0);
        self.reset_device();
    }

    /// Puts doorbells into memory that the client can map; false if there is no such memory, or each is to be in a trace.
    pub(super) fn share_doorbells(&mut self) -> bool {
        if self.station.with(|model| model.is_traced()) {
            return false;
        }
        let Ok(shared) = Doorbells::shared() else { return false };
        let shared = Arc::new(shared);
        self.station.with(|model| model.set_doorbells(Arc::clone(&shared)));
        self.doorbells = Some(shared);
        true
    }

    /// The client has gone: the device is reset, and lets go of its memory, eventfds and doorbells.
    pub(super) fn leave(&mut self) {
        self.reset();
        self.vectors.clear();
        let unmapped = self.memory.clear();
        self.station.with(|model| {
            model.set_doorbells(Arc::default());
            model.refresh_memory();
        });
        drop(unmapped);
        self.doorbells = None;
    }

    /// Bytes of a region; 0 for those that it does not have.
    pub(super) fn region_size(&self, index: u32) -> usize {
        match index {
            region::BAR0 => self.id.bar_size(),
            region::CONFIG => config_space::SIZE,
            index if index == self.id.msix_region() => MSIX_BAR,
            _ => 0,
        }
    }

    /// SET_IRQS. Takes eventfds out of `fds`.
    pub(super) fn set_irqs(&self, body: &[u8], fds: &mut Vec<OwnedFd>) -> Result<(), Errno> {
        self.vectors.set(self.id, body, fds)?;
        self.reassert();
        Ok(())
    }

    /// INTx is a level: what is pending when it is connected, enabled, or its mask comes off, fires.
    fn reassert(&self) {
        if self.vectors.line_is_open() {
            self.station.with(Model::reassert_interrupt);
        }
    }

    /// Reads a region.
    pub(super) fn read(&mut self, index: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = self.inside(index, offset, data.len())?;
        match index {
            region::BAR0 if self.config.memory() => self.read_registers(offset, data),
            _ if self.station.with(|model| model.removed()) => data.fill(0xFF),
            region::CONFIG => self.config.read(offset, data),
            _ if self.config.memory() => data.copy_from_slice(&self.msix_table[offset..][..data.len()]),
            _ => data.fill(0xFF),
        }
        Ok(())
    }

    /// Writes a region.
    pub(super) fn write(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let offset = self.inside(index, offset, data.len())?;
        match index {
            region::CONFIG => self.write_config(offset, data),
            _ if !self.config.memory() => {}
            region::BAR0 => return self.write_registers(offset, data),
            _ => self.msix_table[offset..][..data.len()].copy_from_slice(data),
        }
        Ok(())
    }

    /// The offset, if all of an access lies in the region.
    fn inside(&self, index: u32, offset: u64, len: usize) -> Result<usize, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
        if len > 0 && end <= self.region_size(index) { Ok(offset) } else { Err(Errno::INVAL) }
    }

    fn write_config(&mut self, offset: usize, data: &[u8]) {
        if self.config.write(offset, data) {
            self.reset();
        }
        let bus_master = self.config.bus_master();
        self.vectors.disable_line(self.config.line_disabled());
        self.station.with(|model| model.set_bus_master(bus_master));
        self.reassert();
    }

    /// Registers are dwords; of one that is read in part, all is read.
    fn read_registers(&self, offset: usize, data: &mut [u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            self.station.with(|model| {
                for _ in 0..TURN {
                    let value = model.read(u32::try_from(at & !3).unwrap_or(u32::MAX)).to_le_bytes();
                    let part = &value[at & 3..];
                    let n = part.len().min(rest.len());
                    let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
                    now.copy_from_slice(&part[..n]);
                    (rest, at) = (later, at + n);
                    if rest.is_empty() {
                        break;
                    }
                }
            });
        }
    }

    /// Registers are written as dwords; eight bytes are two of them, the lower first.
    fn write_registers(&self, offset: usize, data: &[u8]) -> Result<(), Errno> {
        if !offset.is_multiple_of(4) || !data.len().is_multiple_of(4) {
            return Err(Errno::INVAL);
        }
        let mut at = u32::try_from(offset).map_err(|_| Errno::INVAL)?;
        for turn in data.chunks(4 * TURN) {
            self.station.with(|model| {
                for value in turn.as_chunks().0 {
                    model.write(at, u32::from_le_bytes(*value));
                    at += 4;
                }
            });
        }
        engine::wake();
        Ok(())
    }

    fn reset_device(&self) {
        self.station.with(|model| {
            Model::function_reset(model);
            model.set_interrupts(Box::new(Sink(Arc::clone(&self.vectors))));
        });
    }
}
