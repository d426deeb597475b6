//! The strict face of the model: single-threaded, for tests.

use crate::dma::{AddressSpace, SoftMapper};
use crate::model::{Grant, Model, Setup};
use crate::spec::derived_mac;
use crate::wire::{MemoryPort, MemoryWire};
use crate::{DeviceId, Fault, MailboxApi, ModuleKind, OnViolation, Step, Violation, WireCounters};
use device::{Bar, Device, DmaDomain, PciIds};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A software 82599 that works only when the test says so, and by default panics at mistakes of the driver.
///
/// ```
/// use softnic::{OnViolation, StrictNic};
/// use device::{Bar as _, Device as _};
///
/// let nic = StrictNic::builder().on_violation(OnViolation::Record).build();
/// nic.set_bus_master(true)?;
/// let mut polls = 0;
/// while nic.bar().read32(0x10010) & 1 << 9 == 0 {
///     polls += 1; // EEC.ARD: each access lets a little time pass
/// }
/// assert!(polls < 100);
/// nic.inject(&[0xFF; 60]);
/// assert!(nic.step().is_idle(), "the receiver is not enabled");
/// assert!(nic.violations().is_empty());
/// # Ok::<(), device::Error>(())
/// ```
///
/// The value is the device: it is moved into a driver. The test controls it through the [`StrictControl`], to which it
/// dereferences, and which can be kept.
#[derive(Debug)]
pub struct StrictNic {
    name: String,
    ids: PciIds,
    control: StrictControl,
    dma: DmaDomain,
}

/// The test's control of a [`StrictNic`]: time, the wire, violations and faults.
#[derive(Clone, Debug)]
pub struct StrictControl {
    bar: StrictBar,
    port: MemoryPort,
}

/// The register window of a [`StrictNic`].
#[derive(Clone, Debug)]
pub struct StrictBar {
    id: DeviceId,
    model: Arc<Mutex<Model>>,
}

/// The settings of a [`StrictNic`].
#[derive(Debug)]
pub struct StrictBuilder {
    name: String,
    setup: Setup,
}

impl StrictNic {
    /// Creates a builder with the defaults: 10F9, link up, no faults, violations panic.
    #[must_use]
    pub fn builder() -> StrictBuilder {
        let setup = Setup {
            id: DeviceId::default(),
            module: ModuleKind::default(),
            pages: None,
            mac: derived_mac("strict"),
            link: true,
            faults: Vec::new(),
            grant: Grant::default(),
            on_violation: OnViolation::Panic,
        };
        StrictBuilder { name: "soft:strict".to_owned(), setup }
    }

    /// Returns a handle that can be kept when the device is given to a driver.
    #[must_use]
    pub fn control(&self) -> StrictControl {
        self.control.clone()
    }
}

impl std::ops::Deref for StrictNic {
    type Target = StrictControl;

    fn deref(&self) -> &StrictControl {
        &self.control
    }
}

impl StrictControl {
    /// Lets the device work on a bounded number of frames in each direction. Returns what it did.
    ///
    /// # Panics
    ///
    /// On a violation, with [`OnViolation::Panic`].
    pub fn step(&self) -> Step {
        self.model().step()
    }

    /// Steps until nothing moves any more, at most `limit` times. Returns the sum of all steps.
    ///
    /// # Panics
    ///
    /// That of [`Self::step`].
    pub fn step_until_idle(&self, limit: u32) -> Step {
        let mut sum = Step::default();
        for _ in 0..limit {
            let step = self.step();
            sum.received += step.received;
            sum.transmitted += step.transmitted;
            if step.is_idle() {
                break;
            }
        }
        sum
    }

    /// Puts a frame (without CRC) on the wire. It arrives at the next step: if the receiver is off then, it is lost; if
    /// there is no descriptor, it waits in the packet buffer (512 KiB); if that is full, it is missed (MPC).
    pub fn inject(&self, frame: &[u8]) {
        self.port.inject(frame);
    }

    /// Returns the frames (without CRC, padded) that were sent since the last call.
    #[must_use]
    pub fn transmitted(&self) -> Vec<Vec<u8>> {
        self.port.transmitted()
    }

    /// Returns the violations since the last call.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.model().violations().take()
    }

    /// Sets a fault. Its counting starts now.
    pub fn inject_fault(&self, fault: Fault) {
        self.model().inject_fault(fault);
    }

    /// Removes all faults. A device that was removed by a fault stays removed.
    pub fn clear_faults(&self) {
        self.model().clear_faults();
    }

    /// Plugs the cable in or out.
    pub fn set_link(&self, up: bool) {
        self.model().set_link(up);
    }

    /// Puts a module into the cage of an SFP+ port, in the place of what is there; on other cards it does nothing.
    pub fn set_module(&self, kind: ModuleKind) {
        self.model().set_module(kind);
    }

    /// Returns the counters of frames that crossed the wire.
    #[must_use]
    pub fn wire_counters(&self) -> WireCounters {
        self.model().counters()
    }

    /// Returns whether every frame on every transmit ring has been sent.
    #[must_use]
    pub fn transmit_idle(&self) -> bool {
        self.model().transmit_idle()
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.bar.model()
    }
}

impl StrictBuilder {
    /// Sets the name for messages.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = format!("soft:{name}");
        self
    }

    /// Sets the card or virtual function that it is; default 10F9.
    #[must_use]
    pub fn id(mut self, id: DeviceId) -> Self {
        self.setup.id = id;
        self
    }

    /// Sets what is in the cage of an SFP+ port; default a passive cable.
    #[must_use]
    pub fn module(mut self, kind: ModuleKind) -> Self {
        self.setup.module = kind;
        self
    }

    /// Sets how many queue pairs a virtual function is given (1, 2 or 4; default 4), and whether it is trusted with other
    /// addresses than its own, frames from others, all frames, and the hash key (default true).
    #[must_use]
    pub fn grant(mut self, queues: u16, trusted: bool) -> Self {
        self.setup.grant = Grant { queues: queues.clamp(1, 4), trusted, ..self.setup.grant };
        self
    }

    /// Sets the newest version that the physical function speaks; default 1.7.
    #[must_use]
    pub fn api(mut self, newest: MailboxApi) -> Self {
        self.setup.grant.newest = newest;
        self
    }

    /// Sets the station address in the EEPROM.
    #[must_use]
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.setup.mac = mac;
        self
    }

    /// Sets whether the cable is plugged in; default true.
    #[must_use]
    pub fn link(mut self, up: bool) -> Self {
        self.setup.link = up;
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.setup.faults.push(fault);
        self
    }

    /// Sets what happens on violations; by default they panic.
    #[must_use]
    pub fn on_violation(mut self, mode: OnViolation) -> Self {
        self.setup.on_violation = mode;
        self
    }

    /// Creates the device, in its state after power-on.
    #[must_use]
    pub fn build(self) -> StrictNic {
        let space = Arc::new(AddressSpace::default());
        let port = MemoryPort::default();
        let wire = Box::new(MemoryWire::new(port.clone()));
        let model = Model::new(&self.setup, Box::new(Arc::clone(&space)), wire);
        let bar = StrictBar { id: self.setup.id, model: Arc::new(Mutex::new(model)) };
        let settle = bar.clone();
        let dma = DmaDomain::new(Box::new(SoftMapper::new(space, move || settle.model().refresh_memory())));
        let ids = PciIds { vendor: 0x8086, device: self.setup.id.pci(), class: 0x02_0000, revision: 1 };
        StrictNic { name: self.name, ids, control: StrictControl { bar, port }, dma }
    }
}

impl StrictBar {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bar for StrictBar {
    fn size(&self) -> usize {
        self.id.bar_size()
    }

    fn read32(&self, offset: u32) -> u32 {
        self.model().read(offset)
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.model().write(offset, value);
    }
}

// SAFETY: `bar` is the register window of the model of an 82599, whose id `ids` returns; the model makes no memory
// access while bus mastering is off, which `reset` leaves it; it reaches only what `dma` has mapped.
unsafe impl Device for StrictNic {
    type Bar = StrictBar;

    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self) -> PciIds {
        self.ids
    }

    fn bar(&self) -> &StrictBar {
        &self.control.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, on: bool) -> device::Result<()> {
        self.model().set_bus_master(on);
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        self.model().function_reset();
        Ok(())
    }

    fn enable_msix(&self, vectors: u16) -> device::Result<Vec<OwnedFd>> {
        crate::soft::connect_msix(&self.name, self.control.bar.id, &mut self.model(), vectors)
    }
}
