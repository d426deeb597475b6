//! A virtio-net device in memory, for tests, fuzz targets and benches: written from the specification (Virtio 1.2),
//! simple on purpose, and strict. An access to an address that is not mapped, a malformed chain or memory of another
//! queue causes a panic in the thread that runs the device. It does nothing by itself: a test tells it what to do, and
//! may tell it to break every rule of a ring.
//!
//! ```
//! use ethdev::{Opened, Port as _, RxQueue as _};
//! use mempool::{Batch, Pool, PoolConfig};
//! use virtio::fake::{FakeConfig, FakeDevice};
//! use virtio::Config;
//!
//! let pool = Pool::new(&PoolConfig { slots: 2048, ..PoolConfig::default() })?;
//! let device = FakeDevice::new(FakeConfig::default());
//! let Opened { port, mut rx, tx: _ } = virtio::open(device.transport(), &Config::default(), &pool)?;
//! let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
//! rx[0].recv(&mut cache, &mut batch); // takes its place and makes buffers available
//! assert!(device.deliver(0, &[7; 60]));
//! assert_eq!(rx[0].recv(&mut cache, &mut batch).len(), 1);
//! assert_eq!(batch[0].data(), [7; 60]);
//! port.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod memory;
mod pci;
mod queue;

pub use pci::{FakeBar, FakeFunction, Oddities, Offers};
pub use queue::{Chain, Part};

use crate::transport::{Interface, Notifier, QueueSetup, Transport, status};
use crate::{Error, Features, Result};
use device::{DmaDomain, EventFd, Interrupts};
use memory::{Mapper, Memory};
use queue::Queue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Properties of a [`FakeDevice`].
#[derive(Clone, Debug)]
pub struct FakeConfig {
    /// Features that the device offers.
    pub features: Features,
    /// Number of queue pairs.
    pub pairs: u16,
    /// Largest size of each queue, in descriptors.
    pub queue_size: u16,
    /// Station address.
    pub mac: [u8; 6],
    /// MTU, if `Features::MTU` is offered.
    pub mtu: u16,
    /// Largest RSS key in bytes, largest redirection table in entries, and supported hash types, if `Features::RSS` is
    /// offered.
    pub rss: (u8, u16, u32),
    /// The interface that the device supports.
    pub interface: Interface,
    /// Whether the device requests notifications.
    pub wants_notifications: bool,
    /// Whether the device clears FEATURES_OK when the driver sets it.
    pub refuses_features: bool,
    /// Whether the configuration changes with every read.
    pub restless: bool,
    /// The answer to each command on the control queue: 0 accepts it, 255 refuses it; with `None` there is no answer.
    pub control_answer: Option<u8>,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self {
            features: Features::VERSION_1 | Features::MAC | Features::STATUS,
            pairs: 1,
            queue_size: 256,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 9216,
            rss: (40, 128, 0x1ff),
            interface: Interface::Modern,
            wants_notifications: false,
            refuses_features: false,
            restless: false,
            control_answer: Some(0),
        }
    }
}

/// A fake device. Clones are handles of the same device.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    memory: Arc<Memory>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    config: FakeConfig,
    link_up: bool,
    status: u8,
    features: u64,
    queues: Vec<Option<Queue>>,
    generation: u8,
    resets: usize,
    attention: Option<&'static str>,
    away: bool,
    refuses_reset: bool,
    commands: Vec<Vec<u8>>,
    faults: Vec<String>,
    vectors: Vec<Arc<EventFd>>,
}

impl FakeDevice {
    /// Creates a device that was just powered on.
    #[must_use]
    pub fn new(config: FakeConfig) -> Self {
        let state = State { config, link_up: true, ..State::default() };
        Self { memory: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the transport by which a driver reaches the device.
    #[must_use]
    pub fn transport(&self) -> FakeTransport {
        FakeTransport { dma: DmaDomain::new(Box::new(Mapper(Arc::clone(&self.memory)))), device: self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, queue: u16, act: impl FnOnce(&mut Queue, &Memory) -> R) -> Option<R> {
        let mut state = self.state();
        if state.status & status::DRIVER_OK == 0 {
            return None;
        }
        let queue = state.queues.get_mut(usize::from(queue))?.as_mut()?;
        Some(act(queue, &self.memory))
    }

    /// Returns whether the driver has reported that it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state().status & status::DRIVER_OK != 0
    }

    /// Returns the features that the driver chose.
    #[must_use]
    pub fn features(&self) -> Features {
        Features(self.state().features)
    }

    /// Returns how many times the device was reset.
    #[must_use]
    pub fn resets(&self) -> usize {
        self.state().resets
    }

    /// Returns the commands received on the control queue, each beginning with class and command.
    #[must_use]
    pub fn commands(&self) -> Vec<Vec<u8>> {
        self.state().commands.clone()
    }

    /// Returns descriptions of what the driver did in the wrong order.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    /// Changes the link state in the configuration.
    pub fn set_link(&self, up: bool) {
        let mut state = self.state();
        state.link_up = up;
        state.generation = state.generation.wrapping_add(1);
    }

    /// Makes [`Transport::watch`] report the device as lost for `reason`, as if it had requested a reset or was gone.
    pub fn lose(&self, reason: &'static str) {
        self.state().attention = Some(reason);
    }

    /// Sets DEVICE_NEEDS_RESET in the device's status.
    pub fn ask_for_reset(&self) {
        self.state().status |= status::DEVICE_NEEDS_RESET;
    }

    /// Changes the answer to commands on the control queue: see [`FakeConfig::control_answer`].
    pub fn answer_commands(&self, answer: Option<u8>) {
        self.state().config.control_answer = answer;
    }

    /// Changes the features that the device offers, from its next reset on.
    pub fn offer(&self, features: Features) {
        self.state().config.features = features;
    }

    /// Changes the number of descriptors that its queues may have, from its next reset on.
    pub fn set_queue_size(&self, size: u16) {
        self.state().config.queue_size = size;
    }

    /// Sets whether the device is away: then a driver that looks for it does not find it.
    pub fn set_away(&self, away: bool) {
        self.state().away = away;
    }

    /// Sets whether a reset fails.
    pub fn refuse_reset(&self, refuse: bool) {
        self.state().refuses_reset = refuse;
    }

    /// Takes the next chain that the driver made available in `queue`; `None` if there is none.
    #[must_use]
    pub fn next(&self, queue: u16) -> Option<Chain> {
        self.with(queue, Queue::next)?
    }

    /// Reports a chain as used, with the number of bytes that were written to it.
    pub fn report(&self, queue: u16, chain: &Chain, len: u32) {
        self.report_as(queue, chain.id.into(), len, chain.slots());
    }

    /// Reports any id, length, and number of descriptors to skip in a packed ring, correct or not. Then interrupts, if
    /// the driver requests it.
    pub fn report_as(&self, queue: u16, id: u32, len: u32, slots: u16) {
        let vector = self.with(queue, |queue, memory| queue.report(memory, id, len, slots)).flatten();
        self.interrupt(vector);
    }

    fn interrupt(&self, vectors: impl IntoIterator<Item = u16>) {
        for vector in vectors {
            let vector = self.state().vectors.get(usize::from(vector)).cloned();
            vector.iter().for_each(|vector| vector.signal());
        }
    }

    /// Advances the used index of a split ring without writing an entry.
    pub fn skip_used(&self, queue: u16, by: u16) {
        self.with(queue, |queue, memory| queue.skip_used(memory, by));
    }

    /// Overwrites with nonsense the descriptors of `queue` that the device has taken; in a packed ring, their addresses
    /// and lengths.
    pub fn scribble(&self, queue: u16) {
        self.with(queue, Queue::scribble);
    }

    /// Returns how many times the driver notified `queue`.
    #[must_use]
    pub fn notifications(&self, queue: u16) -> usize {
        self.with(queue, |queue, _| queue.notifications).unwrap_or(0)
    }

    /// Writes to a part of a chain.
    ///
    /// # Safety
    ///
    /// The part is of a chain that [`Self::next`] returned and that is the device's still: neither reported since, itself or by a report of
    /// anything else in its place, nor from before a reset, nor taken after the device had reported what it had not taken.
    ///
    /// # Panics
    ///
    /// If the part is too short, or its memory is not mapped.
    pub unsafe fn write(&self, part: &Part, offset: u32, bytes: &[u8]) {
        assert!(offset as usize + bytes.len() <= part.len as usize, "beyond the part");
        // SAFETY: by the caller's word.
        unsafe { self.memory.write(part.address + u64::from(offset), bytes) };
    }

    /// Returns all bytes of a part of a chain.
    ///
    /// # Safety
    ///
    /// As [`Self::write`].
    ///
    /// # Panics
    ///
    /// If its memory is not mapped.
    #[must_use]
    pub unsafe fn read(&self, part: &Part) -> Vec<u8> {
        // SAFETY: by the caller's word.
        unsafe { self.memory.read(part.address, part.len as usize) }
    }

    /// Delivers a frame to the driver through receive queue `pair`, in as many buffers as it needs. Returns whether
    /// there were enough buffers; if not, the frame is lost. There are none once the device has reported, in that queue, what it had not
    /// taken.
    #[must_use]
    pub fn deliver(&self, pair: u16, frame: &[u8]) -> bool {
        let header_len = self.header_len();
        let mergeable = self.features().contains(Features::MRG_RXBUF);
        // All of it while the state is locked, so that no reset comes between.
        let vectors = self.with(2 * pair, |queue, memory| {
            let mut chains = Vec::new();
            let mut room = 0;
            while room < header_len + frame.len() {
                if !mergeable && !chains.is_empty() {
                    return None;
                }
                let chain = queue.next_owned(memory)?;
                assert!(chain.parts.iter().all(|part| part.writable), "a receive buffer is for the device to write");
                room += chain.parts.iter().map(|part| part.len as usize).sum::<usize>();
                chains.push(chain);
            }
            let mut header = vec![0; header_len];
            if let Some(buffers) = header.get_mut(10..12) {
                buffers.copy_from_slice(&u16::try_from(chains.len()).unwrap_or(u16::MAX).to_le_bytes());
            }
            let message = [header.as_slice(), frame].concat();
            let mut rest = message.as_slice();
            let fill = |chain: &Chain| {
                let mut written = 0;
                for part in &chain.parts {
                    let (now, later) = rest.split_at(rest.len().min(part.len as usize));
                    // SAFETY: a chain of the queue's as it is set up now, which has it until it is reported below.
                    unsafe { memory.write(part.address, now) };
                    written += u32::try_from(now.len()).unwrap_or(u32::MAX);
                    rest = later;
                }
                written
            };
            let lens: Vec<u32> = chains.iter().map(fill).collect();
            let report = |(chain, len): (&Chain, u32)| queue.report(memory, chain.id.into(), len, chain.slots());
            Some(chains.iter().zip(lens).filter_map(report).collect::<Vec<_>>())
        });
        let Some(vectors) = vectors.flatten() else { return false };
        self.interrupt(vectors);
        true
    }

    /// Takes a frame that the driver sent through transmit queue `pair`; `None` if there is none, or the device has reported, in that queue,
    /// what it had not taken.
    ///
    /// # Panics
    ///
    /// If it is malformed: its header requests an offload, or a part of it is writable for the device.
    #[must_use]
    pub fn collect(&self, pair: u16) -> Option<Vec<u8>> {
        let header_len = self.header_len();
        let (frame, vector) = self.with(2 * pair + 1, |queue, memory| {
            let chain = queue.next_owned(memory)?;
            // SAFETY: a chain of the queue's as it is set up now, which has it until it is reported below.
            let frame = frame_in(&chain, header_len, |part| unsafe { memory.read(part.address, part.len as usize) });
            Some((frame, queue.report(memory, chain.id.into(), 0, chain.slots())))
        })??;
        self.interrupt(vector);
        Some(frame)
    }

    /// Returns the frame in a chain of a transmit queue.
    ///
    /// # Safety
    ///
    /// As [`Self::write`], of the whole chain.
    ///
    /// # Panics
    ///
    /// As [`Self::collect`].
    #[must_use]
    pub unsafe fn frame_of(&self, chain: &Chain) -> Vec<u8> {
        // SAFETY: by the caller's word.
        frame_in(chain, self.header_len(), |part| unsafe { self.read(part) })
    }

    /// Returns the number of bytes in front of each frame.
    #[must_use]
    pub fn header_len(&self) -> usize {
        let features = self.features();
        if features.contains(Features::HASH_REPORT) {
            return 20;
        }
        if features.contains(Features::VERSION_1) || features.contains(Features::MRG_RXBUF) { 12 } else { 10 }
    }
}

fn frame_in(chain: &Chain, header_len: usize, read: impl Fn(&Part) -> Vec<u8>) -> Vec<u8> {
    assert!(chain.parts.iter().all(|part| !part.writable), "a frame is for the device to read");
    let mut bytes: Vec<u8> = chain.parts.iter().flat_map(read).collect();
    let frame = bytes.split_off(header_len);
    assert!(bytes.iter().all(|byte| *byte == 0), "no offload was agreed on, and the header asks for one: {bytes:?}");
    frame
}

impl State {
    /// The index of the control queue.
    fn control(&self) -> u16 {
        2 * if Features(self.features).contains(Features::MQ) { self.config.pairs } else { 1 }
    }

    fn complain(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    /// Carries out a command: header and data, then a byte for the answer.
    fn serve_control(&mut self, memory: &Memory) {
        let Some(answer) = self.config.control_answer else { return };
        let index = usize::from(self.control());
        let Some(queue) = self.queues.get_mut(index).and_then(Option::as_mut) else { return };
        while let Some(chain) = queue.next_owned(memory) {
            let [command, data, reply] = chain.parts.as_slice() else {
                panic!("class and command, data, answer: a device before Virtio 1.0 wants them apart: {chain:?}")
            };
            assert!(!command.writable && !data.writable && reply.writable, "request, then answer: {chain:?}");
            assert_eq!((command.len, reply.len), (2, 1), "class and command, and an answer: {chain:?}");
            // SAFETY: a chain of the queue's, which has it until it is reported below.
            let read = |part: &Part| unsafe { memory.read(part.address, part.len as usize) };
            self.commands.push([command, data].into_iter().flat_map(read).collect());
            // SAFETY: as above.
            unsafe { memory.write(reply.address, &[answer]) };
            queue.report(memory, chain.id.into(), 1, chain.slots());
        }
    }
}

/// The transport by which a driver reaches a [`FakeDevice`].
#[derive(Debug)]
pub struct FakeTransport {
    dma: DmaDomain,
    device: FakeDevice,
}

/// Notifies a queue of a [`FakeDevice`].
#[derive(Debug)]
pub struct FakeNotifier {
    queue: u16,
    device: FakeDevice,
}

impl Notifier for FakeNotifier {
    fn notify(&self) {
        let mut state = self.device.state();
        if state.status & status::DRIVER_OK == 0 {
            state.complain("a notification before the driver was ready");
        }
        if let Some(queue) = state.queues.get_mut(usize::from(self.queue)).and_then(Option::as_mut) {
            queue.notifications += 1;
        }
        if self.queue == state.control() {
            state.serve_control(&self.device.memory);
        }
    }
}

// SAFETY: the device acts only when it is told to, and refuses to without DRIVER_OK, which a reset clears; beyond the rings it reaches what
// the driver has made available and has not back, or what a caller vouches for ([`FakeDevice::write`]).
unsafe impl Transport for FakeTransport {
    type Notifier = FakeNotifier;

    fn name(&self) -> &str {
        "fake"
    }

    fn dma(&self) -> &DmaDomain {
        &self.dma
    }

    fn interface(&self) -> Interface {
        self.device.state().config.interface
    }

    fn vectors(&self, wish: Interrupts, count: u16) -> Result<Vec<Arc<EventFd>>> {
        let count = if wish == Interrupts::Off { 0 } else { count };
        let made = (0..count).map(|_| EventFd::new().map(Arc::new)).collect::<device::Result<Vec<_>>>()?;
        self.device.state().vectors.clone_from(&made);
        Ok(made)
    }

    fn reset(&self) -> Result<()> {
        let mut state = self.device.state();
        if state.refuses_reset {
            let (device, waited) = ("fake".to_owned(), Duration::ZERO);
            return Err(Error::Timeout { device, waiting_for: "the reset to be done", waited });
        }
        state.status = 0;
        state.features = 0;
        state.queues.clear();
        state.attention = None;
        state.resets += 1;
        Ok(())
    }

    fn attach(&self) -> Result<()> {
        if self.device.state().away { Err(Error::NoPeer { device: "fake".to_owned() }) } else { Ok(()) }
    }

    fn status(&self) -> Result<u8> {
        Ok(self.device.state().status)
    }

    fn set_status(&self, value: u8) -> Result<()> {
        let mut state = self.device.state();
        let refuses = state.config.refuses_features;
        if value & !state.status == status::FEATURES_OK && refuses {
            return Ok(());
        }
        let modern = state.config.interface == Interface::Modern;
        if value & status::DRIVER_OK != 0 && modern && state.status & status::FEATURES_OK == 0 {
            state.complain("ready before features were agreed on");
        }
        state.status = value;
        Ok(())
    }

    fn device_features(&self) -> Result<u64> {
        let mut state = self.device.state();
        if state.status & status::DRIVER == 0 {
            state.complain("features read before DRIVER");
        }
        Ok(state.config.features.0)
    }

    fn set_driver_features(&self, features: u64) -> Result<()> {
        let mut state = self.device.state();
        let more = Features(features & !state.config.features.0);
        if more != Features::default() {
            state.complain(format!("features that were not offered: {more}"));
        }
        state.features = features;
        Ok(())
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        let mut state = self.device.state();
        if state.config.restless {
            state.generation = state.generation.wrapping_add(1);
        }
        let mut all = state.config.mac.to_vec();
        all.extend(u16::from(state.link_up).to_le_bytes());
        all.extend(state.config.pairs.to_le_bytes());
        all.extend(state.config.mtu.to_le_bytes());
        // Speed and duplex, which the driver does not ask for.
        all.extend([0; 5]);
        let (key, table, types) = state.config.rss;
        all.push(key);
        all.extend(table.to_le_bytes());
        all.extend(types.to_le_bytes());
        let start = usize::from(offset);
        bytes.copy_from_slice(all.get(start..start + bytes.len()).ok_or_else(|| self.gone("no such field"))?);
        Ok(())
    }

    fn config_generation(&self) -> Result<Option<u8>> {
        let state = self.device.state();
        Ok((state.config.interface == Interface::Modern).then_some(state.generation))
    }

    fn queue_size(&self, queue: u16) -> Result<u16> {
        let state = self.device.state();
        let last = state.control() + u16::from(Features(state.features).contains(Features::CTRL_VQ));
        Ok(if queue < last { state.config.queue_size } else { 0 })
    }

    unsafe fn set_up_queue(&self, queue: u16, setup: &QueueSetup) -> Result<FakeNotifier> {
        let mut state = self.device.state();
        if state.config.interface == Interface::Modern && state.status & status::FEATURES_OK == 0 {
            state.complain("a queue before features were agreed on");
        }
        let index = usize::from(queue);
        if state.queues.len() <= index {
            state.queues.resize_with(index + 1, || None);
        }
        // Commands want an answer, so the control queue is always notified.
        let wants_notifications = state.config.wants_notifications || queue == state.control();
        let features = Features(state.features);
        state.queues[index] = Some(Queue::new(setup, features, wants_notifications, &self.device.memory));
        Ok(FakeNotifier { queue, device: self.device.clone() })
    }

    fn watch(&self, limit: Duration) -> Option<&'static str> {
        std::thread::sleep(limit.min(Duration::from_millis(2)));
        self.device.state().attention
    }
}
