//! Back ends of vhost-user, in processes of their own, that are killed again and again under load: the port is in use again
//! each time, and no buffer is lost. The process is this test's binary, started once more.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unsafe_code, reason = "plays the back end")]

mod common;

use common::{PATIENCE, config, trusted};
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use virtio::{Opened, VhostUser};

const SOCKET: &str = "RINGWAY_TEST_BACK_END";
/// Ten ports at a time, each with longer and longer pauses before a back end that is killed again: 16 s for all of them.
const PORTS: usize = 10;
const KILLS: usize = 10;
/// How long frames pass before the kill.
const LOAD: Duration = Duration::from_millis(250);

/// Not a test: what the process does that is started by [`start`].
#[test]
fn back_end_process() {
    if let Some(path) = std::env::var_os(SOCKET) {
        back_end::run(Path::new(&path));
    }
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "back_end_process"]).env(SOCKET, path);
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_back_end_that_is_killed_a_hundred_times_under_load_costs_no_buffer() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for port in 0..PORTS {
            let path = folder.path().join(format!("{port}.sock"));
            scope.spawn(move || kill_again_and_again(&path));
        }
    });
}

fn kill_again_and_again(path: &Path) {
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let device = VhostUser::listen(path, trusted()).unwrap();
    let Opened { port, mut rx, mut tx } = virtio::open(device, &config(), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let (mut sent, mut received) = (0_u64, 0_u64);
    for kill in 0..KILLS {
        let mut process = start(path);
        let (begun, oldest, mut back) = (Instant::now(), sent, 0);
        let mut first = None;
        while first.is_none_or(|first: Instant| first.elapsed() < LOAD) || back < 100 {
            assert!(begun.elapsed() < PATIENCE, "no frame came back after {kill} kills");
            assert_eq!(process.try_wait().unwrap(), None, "the back end goes on until it is killed");
            cache.alloc_batch(&mut batch, 8, 60);
            for packet in batch.iter_mut() {
                packet.data_mut()[..8].copy_from_slice(&sent.to_le_bytes());
                packet.data_mut()[8..].fill(u8::try_from(sent % 251).unwrap());
                sent += 1;
            }
            tx[0].send(&mut cache, &mut batch);
            cache.free_batch(&mut batch);
            if rx[0].recv(&mut cache, &mut batch).is_empty() {
                // The back ends and the other ports want the processor.
                std::thread::sleep(Duration::from_millis(1));
            }
            for packet in batch.iter() {
                let number = u64::from_le_bytes(packet.data()[..8].try_into().unwrap());
                assert!(number < sent && packet.len() == 60);
                assert!(packet.data()[8..].iter().all(|byte| u64::from(*byte) == number % 251));
                received += 1;
                // Others were on their way when the last one was killed.
                if number >= oldest {
                    back += 1;
                    first.get_or_insert_with(Instant::now);
                }
            }
            cache.free_batch(&mut batch);
        }
        process.kill().unwrap();
        process.wait().unwrap();
        // Packets in rings and in the cache are all that is away.
        let most = 64 + 64 + 64 + 2 * 32 + 512;
        assert!(pool.away() <= most, "{} slots away after {} kills", pool.away(), kill + 1);
    }
    println!("{sent} frames sent, {received} came back, over {KILLS} kills");
    port.close().unwrap();
    drop((rx, tx, cache, batch));
    assert_eq!(pool.away(), 0, "every slot is home");
}

/// A small back end, from the protocol's text: split rings, one pair, and every frame goes back where it came from.
mod back_end {
    use rustix::mm::{MapFlags, ProtFlags};
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    use std::io::{IoSliceMut, Read as _, Write as _};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::atomic::{AtomicU16, Ordering, fence};
    use std::time::Duration;

    /// A part of the front end's memory: its address there, and here.
    struct Region {
        first: u64,
        size: u64,
        base: *mut u8,
    }

    #[derive(Default)]
    struct Ring {
        size: u16,
        descriptors: u64,
        used: u64,
        available: u64,
        next: u16,
        done: u16,
        started: bool,
    }

    #[derive(Default)]
    struct BackEnd {
        regions: Vec<Region>,
        rings: [Ring; 2],
    }

    pub(super) fn run(path: &Path) {
        let socket = UnixStream::connect(path).unwrap();
        let mut back_end = BackEnd::default();
        loop {
            socket.set_nonblocking(true).unwrap();
            let mut header = [0; 12];
            match receive(&socket, &mut header) {
                None => {
                    if !back_end.echo() {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
                Some((0, _)) => return,
                Some((count, fds)) => {
                    socket.set_nonblocking(false).unwrap();
                    (&socket).read_exact(&mut header[count..]).unwrap();
                    back_end.serve(&socket, header, fds);
                }
            }
        }
    }

    fn receive(socket: &UnixStream, bytes: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let got = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                fds.extend(rights);
            }
        }
        Some((got.bytes, fds))
    }

    impl BackEnd {
        fn serve(&mut self, mut socket: &UnixStream, header: [u8; 12], fds: Vec<OwnedFd>) {
            let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let long = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let (request, flags, size) = (word(&header, 0), word(&header, 4), word(&header, 8));
            let mut body = vec![0; size as usize];
            socket.read_exact(&mut body).unwrap();
            let half = |at| u16::try_from(word(&body, at)).unwrap();
            let mut answer = (flags & 8 != 0).then_some(0);
            match request {
                // VERSION_1, and protocol features; of those REPLY_ACK.
                1 => answer = Some(1 << 32 | 1 << 30),
                15 => answer = Some(8),
                5 => {
                    let region = |(n, fd): (usize, OwnedFd)| {
                        let at = 8 + 32 * n;
                        let (size, first) = (long(&body, at + 8), long(&body, at + 16));
                        let (len, protection) = (size.try_into().unwrap(), ProtFlags::READ | ProtFlags::WRITE);
                        // SAFETY: a mapping of its own, which is never unmapped.
                        let base = unsafe {
                            rustix::mm::mmap(
                                std::ptr::null_mut(),
                                len,
                                protection,
                                MapFlags::SHARED,
                                fd,
                                long(&body, at + 24),
                            )
                        };
                        Region { first, size, base: base.unwrap().cast() }
                    };
                    self.regions = fds.into_iter().enumerate().map(region).collect();
                }
                8 => self.rings[usize::from(half(0))].size = half(4),
                9 => {
                    let ring = &mut self.rings[usize::from(half(0))];
                    (ring.descriptors, ring.used, ring.available) = (long(&body, 8), long(&body, 16), long(&body, 24));
                }
                11 => {
                    let ring = &mut self.rings[usize::from(half(0))];
                    ring.started = false;
                    answer = Some(u64::from(half(0)) | u64::from(ring.next) << 32);
                }
                18 => self.rings[usize::from(half(0))].started = half(4) == 1,
                _ => {}
            }
            if let Some(number) = answer {
                let mut reply: Vec<u8> = [request, 5, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
                reply.extend(number.to_ne_bytes());
                // The front end may have gone.
                let _ = socket.write_all(&reply);
            }
        }

        fn at(&self, address: u64, len: u64) -> *mut u8 {
            let region = |region: &&Region| address >= region.first && address + len <= region.first + region.size;
            let region = self.regions.iter().find(region).expect("within the table of memory");
            // SAFETY: within the mapping, as was just checked.
            unsafe { region.base.add(usize::try_from(address - region.first).unwrap()) }
        }

        fn half(&self, address: u64) -> &AtomicU16 {
            // SAFETY: mapped for ever, and aligned, as rings are.
            unsafe { &*self.at(address, 2).cast() }
        }

        fn bytes(&self, address: u64, len: u64) -> Vec<u8> {
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            // SAFETY: mapped; the front end has lent it.
            unsafe { std::ptr::copy_nonoverlapping(self.at(address, len), bytes.as_mut_ptr(), bytes.len()) };
            bytes
        }

        /// Address, length and flags of a descriptor, and the next one.
        fn descriptor(&self, ring: usize, id: u16) -> (u64, u32, u16, u16) {
            let bytes = self.bytes(self.rings[ring].descriptors + 16 * u64::from(id), 16);
            let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
            let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            (u64::from_le_bytes(bytes[..8].try_into().unwrap()), len, half(12), half(14))
        }

        fn available(&self, ring: usize) -> Option<u16> {
            let Ring { size, available, next, .. } = self.rings[ring];
            let index = self.half(available + 2).load(Ordering::Acquire);
            (index != next).then(|| self.half(available + 4 + 2 * u64::from(next % size)).load(Ordering::Relaxed))
        }

        fn report(&mut self, ring: usize, id: u16, len: u32) {
            let Ring { size, used, done, .. } = self.rings[ring];
            let entry = self.at(used + 4 + 8 * u64::from(done % size), 8);
            // SAFETY: an entry of the used ring.
            unsafe { entry.cast::<[u32; 2]>().write_volatile([u32::from(id).to_le(), len.to_le()]) };
            fence(Ordering::Release);
            self.half(used + 2).store(done.wrapping_add(1), Ordering::Release);
            let ring = &mut self.rings[ring];
            (ring.done, ring.next) = (done.wrapping_add(1), ring.next.wrapping_add(1));
        }

        /// Sends a frame back; whether there was one, and room for it.
        fn echo(&mut self) -> bool {
            if !self.rings.iter().all(|ring| ring.started) {
                return false;
            }
            let (Some(from), Some(to)) = (self.available(1), self.available(0)) else { return false };
            let (mut frame, mut id) = (Vec::new(), from);
            loop {
                let (address, len, flags, next) = self.descriptor(1, id);
                frame.extend(self.bytes(address, len.into()));
                if flags & 1 == 0 {
                    break;
                }
                id = next;
            }
            let (address, len, flags, _) = self.descriptor(0, to);
            assert!(flags & 2 != 0 && frame.len() <= len as usize);
            let place = self.at(address, len.into());
            // SAFETY: the front end has lent it, and it is long enough.
            unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), place, frame.len()) };
            self.report(0, to, frame.len().try_into().unwrap());
            self.report(1, from, 0);
            true
        }
    }
}
