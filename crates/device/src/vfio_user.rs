//! Devices in another process, over a Unix socket (QEMU `docs/interop/vfio-user.rst`). The server acts as the device:
//! it is given descriptors of the memory that it may reach, and answers accesses to registers.

use crate::{
    BackgroundClose, Deadline, Device, DmaDomain, DmaMapper, DmaMemory, Error, IovaAllocator, MappedBar, PciIds,
    Result, TimeLimit, Translation, TrustedPeer, vfio,
};
use memmap2::{Advice, MmapOptions};
use rustix::event::EventfdFlags;
use rustix::fs::SealFlags;
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

mod bar;
mod connection;
pub mod message;
mod peer_process;

pub use bar::VfioUserBar;

use bar::Doorbells;
use connection::{Connection, cut_short};
use message::{Fields, MAX_FDS, command, irq, region, words};
use vfio::RegionInfo;

/// A PCI function that another process emulates.
///
/// ```no_run
/// use device::{Bar as _, Device as _, TimeLimit, TrustedPeer, VfioUserDevice};
/// use std::path::Path;
///
/// // SAFETY: /tmp/a.sock is a softnic that this user started.
/// let peer = unsafe { TrustedPeer::vouched_for() };
/// let nic = VfioUserDevice::open(Path::new("/tmp/a.sock"), peer, &TimeLimit::default().begin())?;
/// nic.set_deadline(None);
/// println!("{}: {}, STATUS {:#x}", nic.name(), nic.ids(), nic.bar().read32(0x8));
/// # Ok::<(), device::Error>(())
/// ```
///
/// If the server dies, registers read all ones, and every method that needs the server returns an error: at once, or at
/// the deadline that was set ([`Device::set_deadline`]), and in any case after five seconds without an answer. Dropping
/// the device takes at most the time that this deadline leaves, or five seconds if there is none.
#[derive(Debug)]
pub struct VfioUserDevice {
    name: String,
    ids: PciIds,
    resettable: bool,
    /// Held over a read-change-write of the command register.
    command: Mutex<()>,
    bar: VfioUserBar,
    dma: DmaDomain,
    connection: Arc<Connection>,
}

/// Reads registers of a [`VfioUserDevice`] while a driver has the device. It may be kept longer than the device.
///
/// ```no_run
/// # use device::{TimeLimit, TrustedPeer, VfioUserDevice};
/// # // SAFETY: as of `VfioUserDevice`.
/// # let peer = unsafe { TrustedPeer::vouched_for() };
/// let nic = VfioUserDevice::open(std::path::Path::new("/tmp/a.sock"), peer, &TimeLimit::default().begin())?;
/// let registers = nic.registers();
/// drop(nic);
/// assert_eq!(registers.read32(0x8), u32::MAX, "STATUS of a device that is gone");
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VfioUserRegisters {
    connection: Weak<Connection>,
}

impl VfioUserRegisters {
    /// Reads the register of region 0 at `offset`, always by message; all ones if the device is closed or its server is
    /// gone.
    #[must_use]
    pub fn read32(&self, offset: u32) -> u32 {
        let Some(connection) = self.connection.upgrade() else { return u32::MAX };
        connection.read(region::BAR0, offset.into()).map_or(u32::MAX, u32::from_le_bytes)
    }
}

const COMMAND: u64 = 0x04;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;

impl VfioUserDevice {
    /// Connects to the server at `path` and resets the device, if it can be reset. Bus mastering is off. The `deadline`
    /// is for all of this, and stays set: the next user of the device continues with it, or sets another or none.
    ///
    /// # Errors
    ///
    /// If nobody serves there, another client has the device, the server's device is not a PCI device, or it took too
    /// long.
    pub fn open(path: &Path, peer: TrustedPeer, deadline: &Deadline) -> Result<Self> {
        let name = format!("vfio-user:{}", path.display());
        let connected = Connection::open(path, &name, deadline)?;
        Self::on(name, connected, peer)
    }

    /// Like [`Self::open`], but with the server at the other end of `socket`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`].
    pub fn over(socket: UnixStream, peer: TrustedPeer, deadline: &Deadline) -> Result<Self> {
        let name = "vfio-user:given".to_owned();
        let connected = Connection::over(socket, &name, deadline)?;
        Self::on(name, connected, peer)
    }

    fn on(name: String, (connection, capabilities): (Connection, Value), _: TrustedPeer) -> Result<Self> {
        let connection = Arc::new(connection);
        let failed = |source| {
            Error::system("ask for the properties of", &name, source, "restart its server, or name another socket")
        };
        let info = connection.call(command::DEVICE_GET_INFO, &[&words([16, 0, 0, 0])], &[]).map_err(failed)?;
        let mut fields = Fields::new(&info.body);
        let (Some(_), Some(flags), Some(regions)) = (fields.u32(), fields.u32(), fields.u32()) else {
            return Err(failed(cut_short()));
        };
        if flags & DEVICE_PCI == 0 || regions <= region::CONFIG {
            return Err(Error::unusable(name, "what is served there is no PCI device", "name another socket"));
        }
        let [vendor_low, vendor_high, device_low, device_high] = connection.read(region::CONFIG, 0).map_err(failed)?;
        let [revision, interface, subclass, class] = connection.read(region::CONFIG, 8).map_err(failed)?;
        let ids = PciIds {
            vendor: u16::from_le_bytes([vendor_low, vendor_high]),
            device: u16::from_le_bytes([device_low, device_high]),
            class: u32::from_be_bytes([0, class, subclass, interface]),
            revision,
        };
        let bar = open_bar(&connection, &name, capabilities.get("doorbells"))?;
        let mapper = UserMapper { connection: Arc::clone(&connection), iovas: Mutex::new(iovas()) };
        let device = Self {
            ids,
            resettable: flags & DEVICE_RESET != 0,
            command: Mutex::default(),
            bar,
            dma: DmaDomain::new(Box::new(mapper)),
            connection,
            name,
        };
        device.set_command(COMMAND_BUS_MASTER, false)?;
        if device.resettable {
            device.reset()?;
        } else {
            device.set_command(COMMAND_MEMORY, true)?;
        }
        tracing::info!("{}: {} opened", device.name, device.ids);
        Ok(device)
    }

    /// Reads `N` bytes of configuration space.
    ///
    /// # Errors
    ///
    /// If they do not all lie in configuration space, or the server is gone.
    pub fn config<const N: usize>(&self, offset: u16) -> Result<[u8; N]> {
        self.connection.read(region::CONFIG, offset.into()).map_err(|source| self.config_failed("read", source))
    }

    /// Returns a view of the registers that remains usable when the device is given to a driver.
    #[must_use]
    pub fn registers(&self) -> VfioUserRegisters {
        VfioUserRegisters { connection: Arc::downgrade(&self.connection) }
    }

    /// Returns whether doorbells (the tail registers of rings) are stores to memory that the device polls, and not
    /// messages.
    #[must_use]
    pub fn has_doorbell_memory(&self) -> bool {
        self.bar.doorbells.is_some()
    }

    /// Sets or clears command register bits, and reads them back.
    fn set_command(&self, bits: u16, on: bool) -> Result<()> {
        let _guard = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |source| self.config_failed("change the command register of", source);
        let read = || self.connection.read(region::CONFIG, COMMAND).map(u16::from_le_bytes).map_err(failed);
        let before = read()?;
        let wanted = if on { before | bits } else { before & !bits };
        self.connection.write(region::CONFIG, COMMAND, &wanted.to_le_bytes()).map_err(failed)?;
        let now = read()?;
        if now & bits == wanted & bits {
            return Ok(());
        }
        let cause = format!("the PCI command register is {now:#06x} after {wanted:#06x} was written");
        Err(Error::unusable(&self.name, cause, "restart the server"))
    }

    fn config_failed(&self, operation: &'static str, source: io::Error) -> Error {
        Error::system(operation, format!("configuration space of {}", self.name), source, "restart the server")
    }

    /// Connects eventfds to MSI-X vectors, in as many messages as it takes.
    fn connect_vectors(&self, eventfds: &[OwnedFd]) -> io::Result<()> {
        let mut start = 0;
        for chunk in eventfds.chunks(MAX_FDS) {
            let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let body = words([20, irq::DATA_EVENTFD | irq::ACTION_TRIGGER, irq::MSIX, start, count]);
            let fds: Vec<BorrowedFd<'_>> = chunk.iter().map(OwnedFd::as_fd).collect();
            self.connection.call(command::DEVICE_SET_IRQS, &[&body], &fds)?;
            start += count;
        }
        Ok(())
    }
}

// SAFETY: `bar` is region 0 of the device whose configuration space `ids` was read from. That the server makes no memory
// access while bus mastering is off (the command register is read back after every change, on the connection that orders the
// two), after it has replied to a reset, and after its process has ended with nobody else at the connection, is the word that
// `open` is given (`TrustedPeer`). `dma` hands out descriptors of what is mapped and nothing else, so whatever the server
// does, it cannot reach any other memory of this process.
unsafe impl Device for VfioUserDevice {
    type Bar = VfioUserBar;

    fn name(&self) -> &str {
        &self.name
    }

    fn ids(&self) -> PciIds {
        self.ids
    }

    fn bar(&self) -> &VfioUserBar {
        &self.bar
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        self.set_command(COMMAND_BUS_MASTER, on)
    }

    fn reset(&self) -> Result<()> {
        let failed = |source| Error::system("reset", &self.name, source, "restart the server");
        if self.connection.is_broken() && self.connection.server_ended() {
            // It accesses no memory any more, which is what a reset promises.
            return Ok(());
        }
        if !self.resettable {
            return Err(failed(io::ErrorKind::Unsupported.into()));
        }
        self.connection.call(command::DEVICE_RESET, &[], &[]).map_err(failed)?;
        self.set_command(COMMAND_BUS_MASTER, false)?;
        self.set_command(COMMAND_MEMORY, true)
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.connection.set_deadline(deadline);
    }

    fn deadline(&self) -> Option<Deadline> {
        self.connection.deadline()
    }

    fn enable_msix(&self, vectors: u16) -> Result<Vec<OwnedFd>> {
        let failed = |source| Error::system("set up the interrupts of", &self.name, source, "poll instead");
        let info = self.connection.call(command::DEVICE_GET_IRQ_INFO, &[&words([16, 0, irq::MSIX, 0])], &[]);
        let info = info.map_err(failed)?;
        let available = info.body.get(12..).and_then(|count| Fields::new(count).u32()).unwrap_or(0);
        if u32::from(vectors) > available {
            let cause = format!("{vectors} interrupts are wanted, and it has {available}");
            return Err(Error::unusable(&self.name, cause, "use fewer queues or poll"));
        }
        let off = words([20, irq::DATA_NONE | irq::ACTION_TRIGGER, irq::MSIX, 0, 0]);
        self.connection.call(command::DEVICE_SET_IRQS, &[&off], &[]).map_err(failed)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfds: Vec<OwnedFd> =
            (0..vectors).map(|_| rustix::event::eventfd(0, flags)).collect::<Result<_, _>>().map_err(|errno| {
                Error::system("make an eventfd for", &self.name, errno, "raise the limit of open files: ulimit -n")
            })?;
        self.connect_vectors(&eventfds).map_err(failed)?;
        Ok(eventfds)
    }
}

impl Drop for VfioUserDevice {
    fn drop(&mut self) {
        // For this and for the unmapping that follows.
        if self.connection.deadline().is_none() {
            self.connection.set_deadline(Some(TimeLimit::default().begin()));
        }
        if !self.connection.is_broken()
            && let Err(error) = self.set_bus_master(false)
        {
            // The end of the connection resets the device.
            tracing::warn!("{} was not left quiet: {error}", self.name);
        }
    }
}

const DEVICE_RESET: u32 = 1;
const DEVICE_PCI: u32 = 2;

/// `GET_REGION_INFO`: the reply, with room for a list of mappable areas, and the descriptor that came along.
fn region_info(connection: &Connection, index: u32) -> io::Result<(RegionInfo, Option<BackgroundClose<OwnedFd>>)> {
    const ROOM: u32 = 4096;
    let body = words([ROOM, 0, index, 0, 0, 0, 0, 0]);
    let mut reply = connection.call(command::DEVICE_GET_REGION_INFO, &[&body], &[])?;
    if reply.body.len() > ROOM as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is longer than was asked for"));
    }
    let info = RegionInfo::parse(&reply.body).ok_or_else(cut_short)?;
    Ok((info, reply.fds.pop().map(BackgroundClose::from)))
}

/// Region 0, with what can be mapped of it, and the doorbells that `offer` describes.
fn open_bar(connection: &Arc<Connection>, name: &str, offer: Option<&Value>) -> Result<VfioUserBar> {
    let failed =
        |source| Error::system("ask for the registers of", name, source, "restart its server, or name another socket");
    let (info, fd) = region_info(connection, region::BAR0).map_err(failed)?;
    let unfit = |cause: &str| Error::unusable(name, cause, "is this the right device?");
    if info.size == 0 {
        return Err(unfit("it has no base address region 0"));
    }
    let size = usize::try_from(info.size).ok().filter(|size| u32::try_from(*size).is_ok());
    let size = size.ok_or_else(|| unfit("base address region 0 is too large"))?;
    let mut mapped = Vec::new();
    if let Some(fd) = fd {
        for &(start, len) in &info.mappable {
            let start32 = u32::try_from(start).map_err(|_| unfit("a mappable area is out of range"))?;
            let offset = info.offset.checked_add(start).filter(|_| start.is_multiple_of(page()));
            let offset = offset.ok_or_else(|| unfit("a mappable area does not begin at a page"))?;
            if let Some(bar) = map(&fd, offset, len).map_err(failed)? {
                mapped.push((start32, bar));
            }
        }
    }
    let doorbells = open_doorbells(connection, offer, size).map_err(failed)?;
    Ok(VfioUserBar { connection: Arc::clone(connection), size, mapped, doorbells })
}

/// The memory that doorbells are rung in: `{"region": N, "areas": […]}`, an offer of our own software NIC.
fn open_doorbells(
    connection: &Connection,
    offer: Option<&Value>,
    size: usize,
) -> io::Result<Option<(Vec<Doorbells>, MappedBar)>> {
    let Some(offer) = offer else { return Ok(None) };
    let index = offer.get("region").and_then(Value::as_u64).and_then(|index| u32::try_from(index).ok());
    let areas = offer.get("areas").and_then(Value::as_array);
    let (Some(index), Some(areas)) = (index, areas) else { return Ok(None) };
    let (info, fd) = region_info(connection, index)?;
    let (Some(fd), Ok(len)) = (fd, usize::try_from(info.mappable_from_start())) else { return Ok(None) };
    let areas: Option<Vec<_>> = areas.iter().map(|area| Doorbells::parse(area, size, len)).collect();
    let areas = areas.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "doorbells outside of their memory"))?;
    Ok(map(&fd, info.offset, len as u64)?.map(|memory| (areas, memory)))
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Maps part of a server's file; `None` for a file whose pages the server could take away, so that a register access would
/// end this process by SIGBUS: such registers are reached by messages. Pages stay in a memfd that is sealed against
/// shrinking; where a hole is punched into it, registers read as zeros. They do not stay so in huge pages, where the page
/// after a hole may not be to be had.
fn map(fd: &OwnedFd, offset: u64, len: u64) -> io::Result<Option<MappedBar>> {
    /// Linux `include/uapi/linux/magic.h`.
    const HUGETLBFS: u64 = 0x9584_58F6;
    let is_hugetlbfs = |kind: u64| kind & 0xFFFF_FFFF == HUGETLBFS;
    let unfit = || io::Error::new(io::ErrorKind::InvalidData, "an area that cannot be mapped");
    let end = offset.checked_add(len).filter(|_| len > 0 && offset.is_multiple_of(page())).ok_or_else(unfit)?;
    let len = usize::try_from(len).map_err(|_| unfit())?;
    let sealed = rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    // Only of what has seals, a memfd: another file system may be the server's own, and never answer.
    let in_huge_pages =
        || rustix::fs::fstatfs(fd).map_or(true, |found| u64::try_from(found.f_type).map_or(true, is_hugetlbfs));
    if !sealed || in_huge_pages() {
        tracing::debug!(
            "an area of {len} bytes is not mapped: its memory is not sealed against shrinking, or of huge pages"
        );
        return Ok(None);
    }
    if u64::try_from(rustix::fs::fstat(fd)?.st_size).map_or(true, |size| size < end) {
        return Err(unfit());
    }
    let map = MmapOptions::new().offset(offset).len(len).map_raw(fd)?;
    map.advise(Advice::DontFork)?;
    let base = NonNull::new(map.as_mut_ptr().cast::<u32>()).ok_or_else(unfit)?;
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(map);
    // SAFETY: `base` is the start of a shared mapping of `len` bytes, which lives in `owner`: page-aligned, as the offset is
    // (memmap2 returns an address inside a page for one that is not). The file has these bytes and cannot lose them.
    Ok(Some(unsafe { MappedBar::new(base, len, owner) }))
}

/// Device addresses: above 32 bits where they are plentiful, below 39 bits as the least IOMMUs have.
fn iovas() -> IovaAllocator {
    IovaAllocator::new([0x1_0000_0000..=0x7F_FFFF_FFFF])
}

/// Alignment of each region: a huge page, as descriptors of huge pages are mapped.
const ALIGN: u64 = 2 << 20;

/// Maps memory by sending its memfd to the server.
struct UserMapper {
    connection: Arc<Connection>,
    iovas: Mutex<IovaAllocator>,
}

impl UserMapper {
    fn iovas(&self) -> std::sync::MutexGuard<'_, IovaAllocator> {
        self.iovas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the server gets the descriptor of this memory only, for exactly this range. That it replies to an unmapping when
// its accesses have ended, and that there are none when its process has, is the word that `VfioUserDevice::open` is given.
unsafe impl DmaMapper for UserMapper {
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation> {
        const READ_WRITE: u32 = 3;
        let object = || format!("{} bytes of DMA memory", memory.len());
        // SAFETY: it goes to the server alone, which somebody has vouched for.
        let Some(fd) = (unsafe { memory.fd() }) else {
            return Err(Error::unusable(object(), "no descriptor to share it by", ""));
        };
        let len = memory.len() as u64;
        let iova = self.iovas().allocate(len, ALIGN.max(memory.page_size() as u64));
        let iova = iova.ok_or_else(|| Error::unusable(object(), "the device's addresses are used up", "map less"))?;
        let mut body = words([32, READ_WRITE]);
        [0, iova, len].iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
        if let Err(source) = self.connection.call(command::DMA_MAP, &[&body], &[fd]) {
            if self.connection.is_broken() {
                // Nobody knows whether the server has it: the address is never used again.
                tracing::debug!("mapping at {iova:#x} is in doubt");
            } else {
                self.iovas().free(iova);
            }
            return Err(Error::system("map", object(), source, "look at what the server says"));
        }
        Ok(Translation::Linear { delta: iova.wrapping_sub(memory.base().as_ptr() as u64) })
    }

    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> Result<()> {
        let iova = translation.iova(memory.base().as_ptr());
        let mut body = words([24, 0]);
        [iova, memory.len() as u64].iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
        match self.connection.call(command::DMA_UNMAP, &[&body], &[]) {
            Ok(_) => {
                self.iovas().free(iova);
                Ok(())
            }
            Err(_) if self.connection.is_broken() && self.connection.server_ended() => Ok(()),
            Err(source) => {
                let object = format!("{} bytes of DMA memory at {iova:#x}", memory.len());
                Err(Error::system("unmap", object, source, "end the server"))
            }
        }
    }
}

impl fmt::Debug for UserMapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserMapper").finish_non_exhaustive()
    }
}
