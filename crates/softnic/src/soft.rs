//! The threaded face: a device that works by itself.

use crate::dma::{AddressSpace, Dma, SoftMapper};
use crate::engine::{self, Plug, Station};
use crate::model::{Doorbells, InterruptSink, Model, Pages, Setup};
use crate::spec::{Spec, WireSpec};
use crate::trace::Trace;
use crate::wire::{Generator, LoopWire, PcapWire, SinkWire, TapWire, Wire};
use crate::{DeviceId, Error, Fault, Impairments, OnViolation, Violation, WireCounters, WireError};
use device::{Bar, Device, DmaDomain, PciIds};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most MSI-X vectors that a device has.
pub(crate) const VECTORS: u16 = 64;

/// A software 82599 in this process, which works on the engine thread.
///
/// It is opened from `NAME?key=value&key=value` (also with `soft:` in front):
///
/// | key | value | default |
/// |---|---|---|
/// | `wire` | `gen`, `sink`, `loop`, `peer:NAME`, `tap:IFNAME`, `pcap:IN,OUT` (see below) | `sink`, or the cable that a peer has laid |
/// | `size` | of `gen`: `N` or `N-M` bytes without CRC, 60 to 9000 | `60` |
/// | `flows` | of `gen`: distinct UDP/IPv4 5-tuples | `1` |
/// | `count` | of `gen`: frames until it ends | endless |
/// | `rate` | of `gen`: frames a second; of `peer`: see below | as fast as descriptors appear |
/// | `loss`, `loss-burst`, `duplicate`, `reorder`, `delay`, `jitter`, `buffer`, `recovery`, `seed`, `after` | of `peer`: see below | none |
/// | `mode` | of `gen` with a rate, and `peer`: `wait` for the receiver, or `drop` and count | `wait` |
/// | `id` | `10f9` (CX4), `10fb` (SFP+), `x540`, `x550` (twisted pair); virtual functions of an 82599 (`10ed`), X540 (`1515`) and X550 (`1565`) | `10f9` |
/// | `module` | of `10fb`: the [`ModuleKind`](crate::ModuleKind) in its cage, or a file with the memory of one (see below) | `dac` |
/// | `queues` | of virtual functions: pairs that they are given, `1`, `2` or `4` | `4` |
/// | `trust` | of virtual functions: `on` if they may have other addresses than their own, send from others, and have all frames and the hash key, or `off` | `on` |
/// | `api` | of virtual functions: the newest version of the mailbox's messages, `1.0` to `1.7` ([`MailboxApi`](crate::MailboxApi)) | `1.7` |
/// | `mac` | station address | derived from the name |
/// | `link` | `up` or `down` | `up` |
/// | `fault` | names of [`Fault`], comma separated | none |
/// | `trace` | a file to which each write of a register goes, see below | none |
/// | `trace-reads` | `on` if reads go there too, or `off` | `off` |
///
/// `peer:NAME` connects a cable to another device of the process, which is opened before or after; that device names no
/// wire, or names this device in turn. Its knobs are what the cable does to the frames that this device sends; those that the
/// other one sends meet the knobs of its own specification. [`SoftControl::impairments`] returns what it did.
///
/// | knob | what it does |
/// |---|---|
/// | `loss=1%` | loses frames, each with this chance (also `0.01`) |
/// | `loss-burst=0.1%:20` | with this chance, loses a frame and those that follow, 20 together |
/// | `duplicate=1%` | sends frames twice |
/// | `reorder=1%` | sends frames after their successor; a frame that has none for 10 ms goes by itself |
/// | `rate=10k` | lets so many frames a second pass; `100M:L1` or `1G:L2`: so many bit/s with or without preamble and gap |
/// | `buffer=512` | frames that wait for the rate, the one on its way among them, before others are dropped (1,024) |
/// | `recovery=50ms` | loses all for so long after each frame that the buffer had no room for, as a device does that an overload upsets; what is lost has its place in the buffer all the same |
/// | `delay=1ms` | holds each frame for so long |
/// | `jitter=20us` | and for a time more, uniformly random; the order stays |
/// | `seed=7` | of all that is random (0): with the same seed, the same frames are lost, doubled and reordered |
/// | `after=1000` | leaves the first frames alone, as the probes of a measurement |
///
/// At most 131,072 frames, or 64 MiB, are under way; then the sender waits, as with a cable that is full.
///
/// `pcap:IN,OUT` replays IN (pcap or pcapng, Ethernet) as fast as the driver provides descriptors: time stamps are
/// ignored, and frames that a snap length has cut are sent as they are in the file. Frames that the device sends are
/// written to OUT (pcap, microseconds). Either may be left out. OUT may be a pipe with a reader; a file that is an
/// output may not be used for anything else at the same time, in any process, and standard output or error may not go
/// to it. Check devices that are to be opened together with [`crate::check`] first, as opening one empties its OUT.
/// [`SoftControl::wire_error`] returns what could not be written or read.
///
/// `tap:IFNAME` is created if it does not exist. The link is up while the interface is up, as if a cable were plugged
/// in: until then, frames to be sent wait on their ring. If the interface is deleted, the link is down for good.
///
/// `module=FILE`, with a name that has a `/` or ends in `.bin`, is a module that says what the file does, which is as `ethtool -m DEV raw on`
/// writes it: 256 bytes of A0h (or its first 128), or 512, A0h and A2h, which does not answer otherwise. It has a link when a module has
/// that says so of itself, whether or not its checksums are right.
///
/// `trace=FILE` has a line of text for each access: microseconds since the device was opened, `read` or `write`, offset and value in
/// hexadecimal, and the register's name, with its number if it is one of several, as `RXPBSIZE[3]` (`?` for one that the model does not
/// know). It is in the file at once, a write's before it takes effect. `function-reset`, `bus-master-on` and `bus-master-off` have lines too, and those
/// that begin with `#` are no accesses. The file is free once the device is closed; opening one that is traced to it begins it anew. Tail registers are slower to write on a device that is traced.
///
/// The value is the device: it is moved into a driver. What a test or a program asks of it besides goes through the
/// [`SoftControl`], to which it dereferences, and which can be kept.
#[derive(Debug)]
pub struct SoftDevice {
    name: String,
    ids: PciIds,
    bar: SoftBar,
    control: SoftControl,
    dma: DmaDomain,
}

/// Watches a [`SoftDevice`] and its wire, and injects faults, while a driver has the device. It may be kept longer than
/// the device.
#[derive(Clone, Debug)]
pub struct SoftControl {
    station: Arc<Station>,
}

/// The register window of a [`SoftDevice`]: the tail registers are plain stores, all other accesses go to the model.
#[derive(Debug)]
pub struct SoftBar {
    id: DeviceId,
    /// Tails are registers like others, so that they are in the trace.
    traced: bool,
    doorbells: Arc<Doorbells>,
    station: Arc<Station>,
}

impl SoftDevice {
    /// Opens a soft NIC and starts it.
    ///
    /// # Errors
    ///
    /// If the specification has mistakes, its name is already open, or its wire cannot be opened.
    pub fn open(spec: &str) -> Result<Self, Error> {
        let spec: Spec = spec.parse()?;
        let space = Arc::new(AddressSpace::default());
        let (station, doorbells) = start(&spec, Box::new(Arc::clone(&space)))?;
        let settle = Arc::clone(&station);
        let mapper = SoftMapper::new(space, move || settle.with(Model::refresh_memory));
        Ok(Self {
            name: format!("soft:{}", spec.name),
            ids: PciIds { vendor: 0x8086, device: spec.id.pci(), class: 0x02_0000, revision: 1 },
            bar: SoftBar { id: spec.id, traced: spec.trace.is_some(), doorbells, station: Arc::clone(&station) },
            control: SoftControl { station },
            dma: DmaDomain::new(Box::new(mapper)),
        })
    }

    /// Returns a handle that can be kept when the device is given to a driver.
    #[must_use]
    pub fn control(&self) -> SoftControl {
        self.control.clone()
    }
}

impl std::ops::Deref for SoftDevice {
    type Target = SoftControl;

    fn deref(&self) -> &SoftControl {
        &self.control
    }
}

impl SoftControl {
    pub(crate) fn new(station: Arc<Station>) -> Self {
        Self { station }
    }

    /// Returns the counters of frames that crossed the wire.
    #[must_use]
    pub fn wire_counters(&self) -> WireCounters {
        self.station().with(|model| model.counters())
    }

    /// Returns what the cable has done to the frames that this device has sent so far; `None` unless its specification has
    /// knobs for `wire=peer:NAME`, and once the device is closed.
    #[must_use]
    pub fn impairments(&self) -> Option<Impairments> {
        self.station().with(|model| model.wire().impairments())
    }

    /// Returns whether a finite source (`gen` with a count, `pcap` with an IN) has nothing left: every frame is in a
    /// descriptor or was dropped. Also true for wires without a source of their own.
    #[must_use]
    pub fn source_finished(&self) -> bool {
        self.station().with(|model| model.wire().finished())
    }

    /// Returns whether every frame on every transmit ring has been sent, and what was sent is written out (`pcap`) or
    /// lost: see [`Self::wire_error`].
    #[must_use]
    pub fn transmit_idle(&self) -> bool {
        self.station().with(|model| model.transmit_idle() && model.wire().flush())
    }

    /// Returns what the wire has lost; `None` if nothing. That is: frames that could not be written to a `pcap` output
    /// ([`WireError::Lost`]: a full disk, a pipe that was closed, a file that was deleted or whose length was changed
    /// meanwhile); the rest of a `pcap` input that is damaged after some good frames ([`WireError::Damaged`]);
    /// frames that waited for a `tap` interface which was down when their queue was stopped ([`WireError::NotTaken`]),
    /// or for one that was deleted ([`WireError::Gone`]); and the rest of a trace ([`WireError::Untraced`]). The result is complete
    /// only after the device was closed or dropped.
    #[must_use]
    pub fn wire_error(&self) -> Option<WireError> {
        self.station().with(|model| model.wire_error())
    }

    /// Returns why the wire has no carrier, and what to do; `None` if it has one, or cannot tell. An example:
    /// `the interface tap0 is down; bring it up: ip link set tap0 up`.
    #[must_use]
    pub fn no_carrier(&self) -> Option<String> {
        self.station().with(|model| model.wire().no_carrier())
    }

    /// Returns whether the wire is gone for good (`tap`: the interface was deleted): frames that are still to be sent
    /// never will be.
    #[must_use]
    pub fn wire_gone(&self) -> bool {
        self.station().with(|model| model.wire().is_gone())
    }

    /// Returns the name of the device at the other end of a cable (`peer:NAME`) if it is not open now: frames sent
    /// there are lost.
    #[must_use]
    pub fn missing_peer(&self) -> Option<String> {
        self.station().with(|model| model.wire().missing_peer())
    }

    /// Returns the number of mistakes that the driver has made, and the last 64 of them. Only mistakes that cost
    /// nothing to find are looked for: see [`OnViolation::Count`].
    #[must_use]
    pub fn violations(&self) -> (u64, Vec<Violation>) {
        self.station().with(|model| (model.violations().count(), model.violations().kept()))
    }

    /// Returns the number of memory accesses since the device was last stopped: by a reset, by CTRL.GIO_DIS, or by
    /// clearing bus mastering.
    #[must_use]
    pub fn dma_accesses(&self) -> u64 {
        self.station().with(|model| model.dma_accesses())
    }

    /// Returns the number of memory regions that the device can reach at present: those that are mapped and (vfio-user)
    /// came with a descriptor.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.station().with(Model::mappings)
    }

    /// Sets a fault. Its counting starts now.
    pub fn inject_fault(&self, fault: Fault) {
        self.station().with(|model| model.inject_fault(fault));
    }

    /// Removes all faults. A device that was removed by a fault stays removed.
    pub fn clear_faults(&self) {
        self.station().with(Model::clear_faults);
    }

    /// Plugs the cable in or out.
    pub fn set_link(&self, up: bool) {
        self.station().with(|model| model.set_link(up));
    }

    /// Puts a module into the cage of an SFP+ port, in the place of what is there; on other cards it does nothing.
    pub fn set_module(&self, kind: crate::ModuleKind) {
        self.station().with(|model| model.set_module(kind));
    }

    fn station(&self) -> &Station {
        &self.station
    }
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        engine::close(&self.station);
    }
}

impl Bar for SoftBar {
    fn size(&self) -> usize {
        self.id.bar_size()
    }

    fn read32(&self, offset: u32) -> u32 {
        self.station.with(|model| model.read(offset))
    }

    #[inline]
    unsafe fn write32(&self, offset: u32, value: u32) {
        match Doorbells::at(offset) {
            Some(doorbell) if !self.traced => {
                self.doorbells.ring(doorbell, value);
                engine::wake();
            }
            doorbell => {
                self.station.with(|model| model.write(offset, value));
                if doorbell.is_some() {
                    engine::wake();
                }
            }
        }
    }
}

// SAFETY: `bar` is the register window of the model of an 82599, whose id `ids` returns; the model makes no memory
// access while bus mastering is off (set under the lock that every step takes), which `reset` leaves it; it reaches
// only what `dma` has mapped.
unsafe impl Device for SoftDevice {
    type Bar = SoftBar;

    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self) -> PciIds {
        self.ids
    }

    fn bar(&self) -> &SoftBar {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, on: bool) -> device::Result<()> {
        self.station().with(|model| model.set_bus_master(on));
        Ok(())
    }

    fn reset(&self) -> device::Result<()> {
        self.station().with(Model::function_reset);
        Ok(())
    }

    fn enable_msix(&self, vectors: u16) -> device::Result<Vec<OwnedFd>> {
        self.station().with(|model| connect_msix(&self.name, self.bar.id, model, vectors))
    }
}

/// Makes the device of a specification, connects its wire, and puts it to work.
pub(crate) fn start(spec: &Spec, dma: Box<dyn Dma>) -> Result<(Arc<Station>, Arc<Doorbells>), Error> {
    let place = engine::reserve(&spec.name)?;
    let wire = open_wire(spec)?;
    let setup = Setup {
        id: spec.id,
        module: spec.pages.as_ref().map_or(spec.module, Pages::kind),
        pages: spec.pages.clone(),
        mac: spec.mac,
        link: spec.link,
        faults: spec.faults.clone(),
        grant: spec.grant,
        on_violation: OnViolation::Count,
    };
    let mut model = Model::new(&setup, dma, wire.unwrap_or_else(|| Box::new(SinkWire)));
    if let Some(trace) = &spec.trace {
        model.set_trace(Trace::create(trace, &spec.name, spec.id)?);
    }
    let doorbells = model.doorbells();
    let plug = match &spec.wire {
        None => Plug::Open,
        Some(WireSpec::Peer { .. }) => Plug::Cable,
        Some(_) => Plug::Own,
    };
    let station = place.start(model, plug)?;
    if let Some(WireSpec::Peer { name, drop, knobs }) = &spec.wire {
        engine::connect(&station, name, *drop, *knobs)?;
    }
    Ok((station, doorbells))
}

/// The wire of a specification; `None` if it is a sink by default or a cable.
fn open_wire(spec: &Spec) -> Result<Option<Box<dyn Wire>>, Error> {
    Ok(match &spec.wire {
        None | Some(WireSpec::Peer { .. }) => None,
        Some(WireSpec::Sink) => Some(Box::new(SinkWire)),
        Some(WireSpec::Loop) => Some(Box::new(LoopWire::default())),
        Some(WireSpec::Generator(setup)) => Some(Box::new(Generator::new(setup.clone()))),
        Some(WireSpec::Tap(interface)) => Some(Box::new(TapWire::open(interface)?)),
        Some(WireSpec::Pcap { input, output }) => Some(Box::new(PcapWire::open(input, output)?)),
    })
}

/// Eventfds as MSI-X vectors.
struct EventFds(Vec<OwnedFd>);

impl InterruptSink for EventFds {
    fn fire(&mut self, vector: u16) {
        if let Some(fd) = self.0.get(usize::from(vector)) {
            // It fails only when the counter is full, and then the reader has been told already.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }
}

/// Makes an eventfd for each vector, and has the model fire them.
pub(crate) fn connect_msix(name: &str, id: DeviceId, model: &mut Model, vectors: u16) -> device::Result<Vec<OwnedFd>> {
    if vectors > id.vectors() {
        let cause = format!("{vectors} MSI-X vectors wanted, the device has {}", id.vectors());
        return Err(device::Error::unusable(name, cause, "ask for fewer"));
    }
    let fail =
        |error: std::io::Error| device::Error::system("create", "eventfd", error, "raise the limit of open files");
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..vectors {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| fail(errno.into()))?;
        theirs.push(fd.try_clone().map_err(fail)?);
        ours.push(fd);
    }
    model.set_interrupts(Box::new(EventFds(ours)));
    Ok(theirs)
}
