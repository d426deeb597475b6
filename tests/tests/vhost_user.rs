//! virtio-user against DPDK's vhost library (`dpdk-testpmd` with `net_vhost`, on ordinary pages): frames there and back
//! through every layout, and back ends that are killed. Skipped where testpmd is not installed (`tests/setup`).
#![expect(clippy::unwrap_used, reason = "tests")]

use device::Interrupts;
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use virtio::{Config, Features, Opened, Port, RxQueue, TxQueue, VhostUser};

/// Long enough for a busy machine; testpmd alone takes seconds to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// One testpmd at a time: each polls, and wants a core.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> Option<MutexGuard<'static, ()>> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("dpdk-testpmd").is_file()));
    if found {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    println!("skipped: no dpdk-testpmd in PATH; tests/setup installs it");
    None
}

/// A testpmd that swaps the addresses of what it gets and sends it back.
struct Testpmd {
    child: Child,
    log: PathBuf,
}

impl Testpmd {
    fn start(folder: &Path, socket: &Path, pairs: u16, client: bool) -> Self {
        let log = folder.join("testpmd.log");
        let device = format!("net_vhost0,iface={},queues={pairs},client={}", socket.display(), u8::from(client));
        let prefix = format!("ringway{}", std::process::id());
        let cores = "0@0,1@0";
        let child = Command::new("dpdk-testpmd")
            .args(["--lcores", cores, "--no-pci", "--no-telemetry", "--no-huge", "-m", "256", "--no-shconf"])
            .args(["--file-prefix", &prefix, "--vdev", &device, "--", "--total-num-mbufs=8192", "--nb-cores=1"])
            .args([&format!("--rxq={pairs}"), &format!("--txq={pairs}"), "--forward-mode=macswap", "--no-flush-rx"])
            // It ends when there is nothing more to read.
            .stdin(Stdio::piped())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let mut testpmd = Self { child, log };
        if !client {
            wait("testpmd to listen", || testpmd.is_alive() && UnixStream::connect(socket).is_ok());
        }
        testpmd
    }

    fn is_alive(&mut self) -> bool {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "testpmd ended: {}", std::fs::read_to_string(&self.log).unwrap());
        true
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Rig {
    port: Port<VhostUser>,
    rx: Vec<RxQueue<VhostUser>>,
    tx: Vec<TxQueue<VhostUser>>,
    pool: Pool,
    cache: PoolCache,
    batch: Batch,
    next: u64,
}

impl Rig {
    fn new(device: VhostUser, pairs: u16, refuse: Features, mtu: u16) -> Self {
        let pool = Pool::new(&PoolConfig { slots: 4096, ..PoolConfig::default() }).unwrap();
        let mut config = Config::default();
        (config.rx_queues, config.tx_queues) = (pairs, pairs);
        (config.rx_ring, config.tx_ring) = (256, 256);
        config.refuse = refuse;
        config.interrupts = Interrupts::Required;
        config.mtu = mtu;
        let Opened { port, rx, tx } = virtio::open(device, &config, &pool).unwrap();
        let (cache, batch) = (pool.cache(), Batch::with_capacity(32));
        Self { port, rx, tx, pool, cache, batch, next: 0 }
    }

    /// Sends numbered frames through every queue and waits until as many have come back, with addresses swapped and all
    /// else as it was.
    fn there_and_back(&mut self, bursts: usize, len: usize) {
        let pairs = self.tx.len();
        // A queue that nobody has polled yet has no buffers for what comes back.
        for queue in &mut self.rx {
            queue.recv(&mut self.cache, &mut self.batch);
            self.cache.free_batch(&mut self.batch);
        }
        for burst in 0..bursts {
            let mut wanted: Vec<u64> = Vec::new();
            let queue = burst % pairs;
            for _ in 0..16 {
                self.next += 1;
                wanted.push(self.next);
                let frame = frame(self.next, len, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
                for (n, part) in frame.chunks(1500).enumerate() {
                    let mut packet = self.cache.alloc().expect("the pool has slots");
                    packet.append(part.len()).unwrap().copy_from_slice(part);
                    packet.set_continues((n + 1) * 1500 < len);
                    self.batch.push(packet).unwrap();
                    if self.batch.spare() == 0 || !self.batch.last().unwrap().continues() {
                        wait("room in the transmit ring", || {
                            self.tx[queue].send(&mut self.cache, &mut self.batch);
                            self.batch.is_empty()
                        });
                    }
                }
            }
            let mut got = Vec::new();
            // Frames of a single pair are slept for in every other burst.
            let sleeps = pairs == 1 && burst % 2 == 1;
            wait("frames to come back", || {
                assert!(!sleeps || self.rx[0].wait(PATIENCE).unwrap(), "frames end a wait");
                for queue in &mut self.rx {
                    queue.recv(&mut self.cache, &mut self.batch);
                    let mut bytes = Vec::new();
                    for packet in self.batch.drain() {
                        bytes.extend_from_slice(packet.data());
                        if !packet.continues() {
                            got.push(std::mem::take(&mut bytes));
                        }
                    }
                }
                got.len() >= wanted.len()
            });
            for (number, bytes) in wanted.into_iter().zip(&got) {
                assert!(
                    *bytes == frame(number, len, [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]),
                    "frame {number} is whole"
                );
            }
        }
    }

    fn close(self) {
        let Self { port, rx, tx, pool, cache, batch, .. } = self;
        let dropped: u64 = rx.iter().map(|queue| queue.counters().dropped()).sum();
        assert_eq!(dropped, 0);
        port.close().unwrap();
        drop((rx, tx, cache, batch));
        assert_eq!(pool.away(), 0, "every slot is home");
    }
}

fn frame(number: u64, len: usize, to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut bytes = [to.as_slice(), &from, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    bytes.extend((bytes.len()..len).map(|n| u8::try_from((n as u64 + number) % 251).unwrap()));
    bytes
}

#[test]
fn every_layout_with_one_and_two_pairs() {
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    for pairs in [1, 2] {
        let socket = folder.path().join(format!("{pairs}.sock"));
        let testpmd = Testpmd::start(folder.path(), &socket, pairs, false);
        for bits in 0..16 {
            let choices = [Features::RING_PACKED, Features::MRG_RXBUF, Features::IN_ORDER, Features::EVENT_IDX];
            let chosen = choices.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
            let refuse = chosen.fold(Features::default(), |all, (_, feature)| all | *feature);
            let device = VhostUser::connect(&socket).unwrap();
            let mtu = if refuse.contains(Features::MRG_RXBUF) { 1500 } else { 9000 };
            let mut rig = Rig::new(device, pairs, refuse, mtu);
            let features = rig.port.features();
            println!("{pairs} pairs, {features}");
            assert_eq!(features.contains(Features::RING_PACKED), !refuse.contains(Features::RING_PACKED));
            assert_eq!(features.contains(Features::MRG_RXBUF), !refuse.contains(Features::MRG_RXBUF));
            rig.there_and_back(40, 60);
            rig.there_and_back(10, 1514);
            if features.contains(Features::MRG_RXBUF) {
                rig.there_and_back(10, 5000);
            }
            rig.close();
        }
        drop(testpmd);
    }
}

#[test]
fn a_back_end_that_is_killed_is_found_again() {
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (n, server) in [false, true].into_iter().enumerate() {
        let socket = folder.path().join(format!("{n}.sock"));
        let (mut testpmd, device) = if server {
            let device = VhostUser::listen(&socket).unwrap();
            (Testpmd::start(folder.path(), &socket, 1, true), device)
        } else {
            let testpmd = Testpmd::start(folder.path(), &socket, 1, false);
            (testpmd, VhostUser::connect(&socket).unwrap())
        };
        let mut rig = Rig::new(device, 1, Features::default(), 1500);
        let mut longest = Duration::ZERO;
        for round in 0..3 {
            wait("the link to come up", || testpmd.is_alive() && rig.port.link().unwrap().up);
            rig.there_and_back(20, 60);
            // Killed with frames in both rings.
            rig.cache.alloc_batch(&mut rig.batch, 32, 60);
            rig.tx[0].send(&mut rig.cache, &mut rig.batch);
            rig.cache.free_batch(&mut rig.batch);
            let killed = Instant::now();
            drop(testpmd);
            wait("the link to go down", || !rig.port.link().unwrap().up);
            if !server {
                // testpmd does not remove the socket of one that was killed.
                let _ = std::fs::remove_file(&socket);
            }
            testpmd = Testpmd::start(folder.path(), &socket, 1, server);
            let begun = Instant::now();
            wait("the link to come up again", || testpmd.is_alive() && rig.port.link().unwrap().up);
            println!("server {server}, round {round}: up again {:?} after the back end was there", begun.elapsed());
            // What the first frames of the old session left behind is gone with it.
            wait("an empty receive ring", || rig.rx[0].recv(&mut rig.cache, &mut rig.batch) == 0);
            rig.cache.free_batch(&mut rig.batch);
            rig.there_and_back(1, 60);
            longest = longest.max(killed.elapsed());
        }
        println!("server {server}: traffic stood still for {longest:?} at most, the start of testpmd included");
        rig.there_and_back(20, 60);
        rig.close();
        drop(testpmd);
    }
}
