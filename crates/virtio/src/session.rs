//! What a port and its queues share: the device, and the session that it is in.
//!
//! A session is the time between two resets of a device. Each has rings of its own, in memory of its own, so nothing that
//! is left of an earlier one can be mistaken for the present. Queues learn of a new session by a counter that they look at
//! once a burst, and move over: what was in flight in the old one is theirs again, since the device was reset in between.

use crate::Result;
use crate::config::VLAN_TAG;
use crate::pools::Pools;
use crate::ring::{Fault, Ring};
use crate::transport::Transport;
use device::{DmaMemory, EventFd};
use mempool::Packet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a queue needs to take part in a session.
#[derive(Debug)]
pub(crate) struct QueueSession<N> {
    pub(crate) ring: Ring,
    pub(crate) notifier: N,
    pub(crate) header: Header,
}

/// The header in front of every frame (Virtio 1.2, section 5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes.
    pub(crate) len: u16,
    /// A received frame may lie in as many buffers as it says.
    pub(crate) mergeable: bool,
    /// It may share a descriptor with the frame.
    pub(crate) any_layout: bool,
    /// It ends with a hash of the frame (`VIRTIO_NET_F_HASH_REPORT`).
    pub(crate) hash: bool,
    /// Longest frame without a VLAN tag that the device takes, in bytes; `u32::MAX` for one that does not say.
    pub(crate) longest: u32,
    /// The device completes checksums (`VIRTIO_NET_F_CSUM`).
    pub(crate) device_checksum: bool,
    /// The device may say something of checksums (`VIRTIO_NET_F_GUEST_CSUM`).
    pub(crate) guest_checksum: bool,
    /// Where it is when it has a descriptor of its own: zeros, at this address.
    pub(crate) zeros: u64,
}

impl Header {
    /// Returns whether the header of a received frame needs a descriptor of its own (section 5.1.6.3, legacy interface).
    pub(crate) fn is_apart(self) -> bool {
        !self.any_layout && !self.mergeable
    }

    /// Returns whether the device accepts a frame of `len` bytes that begins with this packet (section 5.1.4.2): of its MTU and an
    /// Ethernet header, to which up to two VLAN tags belong.
    pub(crate) fn allows(self, len: usize, first: &Packet) -> bool {
        let longest = self.longest as usize;
        let is_tag = |at: &usize| matches!(first.data().get(*at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
        let tags = || [12, 12 + VLAN_TAG].iter().take_while(|at| is_tag(at)).count();
        len <= longest || len <= longest.saturating_add(tags() * VLAN_TAG)
    }
}

/// The memory of rings whose queue is gone, with the packets that were in them.
type Parked = (Option<Arc<DmaMemory>>, Vec<Packet>);

struct State<N> {
    /// Places in the present session that no queue has taken yet, by virtqueue.
    sessions: Vec<Option<Box<QueueSession<N>>>>,
    memory: Option<Arc<DmaMemory>>,
    parked: Vec<Parked>,
    /// The device accesses no memory.
    quiet: bool,
}

/// Shared by a port and its queues.
///
/// When the last of them is dropped and the device was never seen to be quiet, the device, its mappings and the parked
/// packets stay for ever (rule leak-if-unsure).
pub(crate) struct Shared<T: Transport> {
    pub(crate) transport: Arc<T>,
    /// Odd while a session is on; changes when one begins and when it has ended. A hint that a queue looks at without the
    /// lock: sessions are handed over under the lock of `state`, together with the number that is valid there, so a look that
    /// comes too early or late costs a burst and nothing else. What a queue may touch is kept by its session, which holds the
    /// memory of its ring, and not by this number.
    epoch: AtomicU32,
    /// A fault (bits 31:0; 0 is none) and the session that it was in (bits 63:32), in one word, so that no order with other
    /// memory matters: a report of an earlier session is passed over, and of two at once one is enough.
    fault: AtomicU64,
    /// By receive queue; none without interrupts.
    vectors: Vec<Arc<EventFd>>,
    /// There will be no session any more.
    closed: AtomicBool,
    /// Pools that frames are sent from.
    pub(crate) pools: Pools,
    state: Mutex<State<T::Notifier>>,
}

impl<T: Transport> Shared<T> {
    /// Creates it for a device that has been reset. `vectors` has a vector for each receive queue, or none.
    pub(crate) fn new(transport: Arc<T>, vectors: Vec<Arc<EventFd>>) -> Self {
        let state = State { sessions: Vec::new(), memory: None, parked: Vec::new(), quiet: true };
        let (epoch, fault, closed) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { transport, epoch, fault, vectors, closed, pools: Pools::default(), state: Mutex::new(state) }
    }

    /// Returns the eventfd that wakes receive queue `queue`; `None` without interrupts.
    pub(crate) fn vector(&self, queue: u16) -> Option<&Arc<EventFd>> {
        self.vectors.get(usize::from(queue))
    }

    /// Wakes the queues that wait, when a session begins or the port is closed.
    fn wake(&self) {
        self.vectors.iter().for_each(|vector| vector.signal());
    }

    /// Marks the port as closed, after which no session begins, and wakes the queues that wait.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns whether the port is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State<T::Notifier>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session's number; odd while one is on.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns whether a session is on.
    pub(crate) fn is_on(&self) -> bool {
        self.epoch() % 2 == 1
    }

    /// Records that the device is about to be given `memory`.
    pub(crate) fn begin_dma(&self, memory: &Arc<DmaMemory>) {
        let mut state = self.state();
        state.quiet = false;
        state.memory = Some(Arc::clone(memory));
    }

    /// Lets the queues into a session.
    pub(crate) fn begin(&self, sessions: Vec<Option<Box<QueueSession<T::Notifier>>>>) {
        self.state().sessions = sessions;
        self.epoch.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Resets the device, which ends the session: packets that waited for it go home, and the memory of its rings leaves
    /// the device's address space.
    ///
    /// # Errors
    ///
    /// When the device is not known to be quiet. The session goes on then.
    pub(crate) fn end(&self) -> Result<()> {
        self.transport.reset()?;
        let mut state = self.state();
        state.quiet = true;
        if self.is_on() {
            self.epoch.fetch_add(1, Ordering::Release);
        }
        let (sessions, parked) = (std::mem::take(&mut state.sessions), std::mem::take(&mut state.parked));
        let memory = state.memory.take();
        drop(state);
        drop((sessions, parked));
        if let Some(memory) = memory {
            self.transport.dma().unmap(&memory)?;
        }
        Ok(())
    }

    /// Returns the number of the present session and the place of virtqueue `index` in it; `None` if there is none, or it is
    /// taken.
    pub(crate) fn take_session(&self, index: u16) -> (u32, Option<Box<QueueSession<T::Notifier>>>) {
        let mut state = self.state();
        // Read under the lock, so that the number belongs to the sessions.
        let epoch = self.epoch();
        (epoch, state.sessions.get_mut(usize::from(index)).and_then(Option::take))
    }

    /// Takes over the packets of a queue that is dropped, and frees them as soon as the device is quiet.
    pub(crate) fn park(&self, packets: Vec<Packet>) {
        let mut state = self.state();
        if !state.quiet {
            let memory = state.memory.clone();
            state.parked.push((memory, packets));
        }
    }

    /// Records that a queue has seen the device break a rule in session `epoch`.
    #[cold]
    pub(crate) fn report_fault(&self, epoch: u32, fault: Fault) {
        self.fault.store(u64::from(epoch) << 32 | fault as u64, Ordering::Relaxed);
    }

    /// Returns the fault for which the present session has to end.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let fault = self.fault.load(Ordering::Relaxed);
        Fault::of(fault & 0xffff_ffff).filter(|_| fault >> 32 == u64::from(self.epoch()))
    }
}

impl<T: Transport> Drop for Shared<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.quiet {
            // Before anything is said, which may panic.
            std::mem::forget(std::mem::take(&mut state.parked));
            std::mem::forget(Arc::clone(&self.transport));
            tracing::error!("{}: not known to be quiet; its memory is kept for ever", self.transport.name());
        }
    }
}

impl<T: Transport> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.transport.name())
    }
}

/// Frames and bytes of one queue, for whoever watches. Written by the queue's thread only; Relaxed, since each is a number for
/// itself: a reader may find the frames of one burst with the bytes of the next.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PublishedCounters {
    packets: AtomicU64,
    /// Bytes by which these are longer than the shortest.
    beyond: AtomicU64,
    busy: AtomicBool,
    /// Bytes of the shortest frame.
    shortest: u16,
}

impl PublishedCounters {
    /// For frames of at least `shortest` bytes.
    pub(crate) fn new(shortest: u16) -> Self {
        let (packets, beyond, busy) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { packets, beyond, busy, shortest }
    }

    /// Counts frames that are longer than as many of the shortest by `beyond` bytes.
    #[inline(always)]
    pub(crate) fn add(&self, packets: u64, beyond: u64) {
        // Only the one queue that counts here writes, so no count falls between a load and its store.
        self.packets.store(self.packets.load(Ordering::Relaxed).wrapping_add(packets), Ordering::Relaxed);
        self.beyond.store(self.beyond.load(Ordering::Relaxed).wrapping_add(beyond), Ordering::Relaxed);
    }

    /// Counts a frame of `len` bytes.
    pub(crate) fn add_frame(&self, len: usize) {
        self.add(1, (len as u64).wrapping_sub(self.shortest.into()));
    }

    /// Returns the numbers of frames and bytes.
    pub(crate) fn get(&self) -> [u64; 2] {
        let packets = self.packets.load(Ordering::Relaxed);
        let shortest = packets.wrapping_mul(self.shortest.into());
        [packets, self.beyond.load(Ordering::Relaxed).wrapping_add(shortest)]
    }

    #[inline(always)]
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// Returns whether something was still under way at the device at the end of the last burst.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }
}
