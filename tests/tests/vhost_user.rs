//! virtio-user against DPDK's vhost library (`dpdk-testpmd` with `net_vhost`, on ordinary pages): frames there and back
//! through every layout, back ends and front ends that are killed, and `fwd` between virtio and a software 82599. Skipped where testpmd is not installed (`tests/setup`).
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unsafe_code, reason = "the word for a back end of its own")]

use device::{Interrupts, TrustedPeer};
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tests::{Fwd, Process, command, first_core, fwd};
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
    skip::test!("no dpdk-testpmd in PATH; tests/setup installs it");
    None
}

/// The word for testpmd.
fn trusted() -> TrustedPeer {
    // SAFETY: DPDK's vhost library writes to a buffer while its descriptor is available.
    unsafe { TrustedPeer::vouched_for() }
}

/// A testpmd with a back end or two.
struct Testpmd {
    child: Child,
    log: PathBuf,
}

impl Testpmd {
    /// One that swaps the addresses of what it gets and sends it back.
    fn start(folder: &Path, socket: &Path, pairs: u16, client: bool) -> Self {
        Self::between(folder, &[(socket, client)], pairs, "macswap")
    }

    /// Back ends for these sockets, as clients or not, and what it does between them.
    fn between(folder: &Path, sockets: &[(&Path, bool)], pairs: u16, mode: &str) -> Self {
        let log = folder.join("testpmd.log");
        let devices = sockets.iter().enumerate().flat_map(|(n, (socket, client))| {
            let client = u8::from(*client);
            ["--vdev".to_owned(), format!("net_vhost{n},iface={},queues={pairs},client={client}", socket.display())]
        });
        let cores = format!("0@{0},1@{0}", first_core());
        let child = Command::new("dpdk-testpmd")
            // Where it has its run-time files.
            .env("RUNTIME_DIRECTORY", folder)
            .args(["--lcores", &cores, "--no-pci", "--no-telemetry", "--no-huge", "-m", "256", "--no-shconf"])
            .args(devices)
            .args(["--", "--total-num-mbufs=8192", "--nb-cores=1", &format!("--forward-mode={mode}"), "--no-flush-rx"])
            .args([&format!("--rxq={pairs}"), &format!("--txq={pairs}")])
            // It ends when there is nothing more to read.
            .stdin(Stdio::piped())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let mut testpmd = Self { child, log };
        for (socket, _) in sockets.iter().filter(|(_, client)| !client) {
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
        (config.port.rx_queues, config.port.tx_queues) = (pairs, pairs);
        (config.port.rx_ring, config.port.tx_ring) = (256, 256);
        config.refuse = refuse;
        config.port.interrupts = Interrupts::Required;
        config.port.mtu = mtu;
        // The back end stops a ring when its polling core has let go of it, which may have to wait for a processor.
        config.port.time_limit.total = Duration::from_secs(60);
        let Opened { port, rx, tx } = virtio::open(device, &config, &pool).unwrap();
        let (cache, batch) = (pool.cache(), Batch::with_capacity(32));
        Self { port, rx, tx, pool, cache, batch, next: 0 }
    }

    /// Sends numbered frames through every queue and waits until as many have come back, with addresses swapped and all
    /// else as it was.
    fn there_and_back(&mut self, bursts: usize, len: usize) {
        self.exchange(bursts, len, [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    }

    /// The same; they come back with these addresses.
    fn exchange(&mut self, bursts: usize, len: usize, to: [u8; 6], from: [u8; 6]) {
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
                assert!(*bytes == frame(number, len, to, from), "frame {number} is whole");
            }
        }
    }

    /// Sends frames until they come back, and waits until no more do.
    fn until_one_is_back(&mut self) {
        wait("a frame to come back", || {
            let mut packet = self.cache.alloc().expect("the pool has slots");
            let frame = frame(0, 60, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            packet.append(frame.len()).unwrap().copy_from_slice(&frame);
            self.batch.push(packet).unwrap();
            self.tx[0].send(&mut self.cache, &mut self.batch);
            self.cache.free_batch(&mut self.batch);
            let received = self.rx[0].recv(&mut self.cache, &mut self.batch).len();
            self.cache.free_batch(&mut self.batch);
            received > 0
        });
        // Frames overtake none: behind this one nothing of before comes.
        let mark = frame(0, 64, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut packet = self.cache.alloc().expect("the pool has slots");
        packet.append(mark.len()).unwrap().copy_from_slice(&mark);
        self.batch.push(packet).unwrap();
        wait("the last to be sent", || {
            self.tx[0].send(&mut self.cache, &mut self.batch);
            self.batch.is_empty()
        });
        wait("the last to come back", || {
            self.rx[0].recv(&mut self.cache, &mut self.batch);
            let found = self.batch.iter().any(|packet| packet.len() == mark.len());
            self.cache.free_batch(&mut self.batch);
            found
        });
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
            let device = VhostUser::connect(&socket, trusted()).unwrap();
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
            let device = VhostUser::listen(&socket, trusted()).unwrap();
            (Testpmd::start(folder.path(), &socket, 1, true), device)
        } else {
            let testpmd = Testpmd::start(folder.path(), &socket, 1, false);
            (testpmd, VhostUser::connect(&socket, trusted()).unwrap())
        };
        let mut rig = Rig::new(device, 1, Features::default(), 1500);
        for round in 0..3 {
            wait("the link to come up", || testpmd.is_alive() && rig.port.link().unwrap().up);
            rig.there_and_back(20, 60);
            // Killed with frames in both rings.
            rig.cache.alloc_batch(&mut rig.batch, 32, 60);
            rig.tx[0].send(&mut rig.cache, &mut rig.batch);
            rig.cache.free_batch(&mut rig.batch);
            drop(testpmd);
            wait("the link to go down", || !rig.port.link().unwrap().up);
            if !server {
                // testpmd does not remove the socket of one that was killed.
                let _ = std::fs::remove_file(&socket);
            }
            let started = Instant::now();
            testpmd = Testpmd::start(folder.path(), &socket, 1, server);
            let there = started.elapsed();
            if !server {
                // Its library looks at a new socket within a second.
                answers(&socket);
            }
            let answering = started.elapsed();
            wait("the link to come up again", || testpmd.is_alive() && rig.port.link().unwrap().up);
            let up = started.elapsed();
            // What the first frames of the old session left behind is gone with it.
            wait("an empty receive ring", || rig.rx[0].recv(&mut rig.cache, &mut rig.batch).is_empty());
            rig.cache.free_batch(&mut rig.batch);
            rig.there_and_back(1, 60);
            println!(
                "server {server}, round {round}: the back end was there {there:?} after its start, answered after \
                 {answering:?}; the link was up after {up:?}, and frames were back after {:?}",
                started.elapsed()
            );
        }
        rig.there_and_back(20, 60);
        rig.close();
        drop(testpmd);
    }
}

/// Waits until a back end that listens at `socket` answers.
fn answers(socket: &Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // GET_FEATURES, version 1, no body.
    let request: Vec<u8> = [1_u32, 1, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    stream.write_all(&request).unwrap();
    stream.read_exact(&mut [0; 20]).unwrap();
}

#[test]
fn a_front_end_that_is_killed_is_taken_back() {
    let Some(_turn) = turn() else { return };
    let fwd = fwd();
    let folder = tempfile::tempdir().unwrap();
    // This process sends to testpmd, which passes it on to fwd, which sends it back.
    let (near, far) = (folder.path().join("near.sock"), folder.path().join("far.sock"));
    for server in [false, true] {
        let start = || {
            let address = format!("vhost-user:{}{}", far.display(), if server { "?server" } else { "" });
            let arguments = ["macswap", &address, "--idle", "poll", "--quiet"];
            Process(
                command(&[&["setpriv", "--pdeathsig", "KILL", fwd.to_str().unwrap()], &arguments[..]].concat())
                    .spawn()
                    .unwrap(),
            )
        };
        let mut front_end = server.then(start);
        let testpmd = Testpmd::between(folder.path(), &[(&near, false), (&far, server)], 1, "io");
        let mut rig = Rig::new(VhostUser::connect(&near, trusted()).unwrap(), 1, Features::default(), 1500);
        for round in 0..4 {
            let started = Instant::now();
            let fwd = front_end.take().unwrap_or_else(start);
            rig.until_one_is_back();
            if round > 0 {
                println!(
                    "server {server}: killed and started again, fwd had frames back after {:?}",
                    started.elapsed()
                );
            }
            rig.there_and_back(20, 60);
            // Killed with frames in its rings.
            rig.cache.alloc_batch(&mut rig.batch, 32, 60);
            rig.tx[0].send(&mut rig.cache, &mut rig.batch);
            rig.cache.free_batch(&mut rig.batch);
            drop(fwd);
        }
        rig.close();
        drop(testpmd);
        let _ = std::fs::remove_file(&near);
        let _ = std::fs::remove_file(&far);
    }
}

#[test]
fn frames_pass_between_virtio_and_a_software_82599_both_ways() {
    let Some(_turn) = turn() else { return };
    let fwd = fwd();
    let folder = tempfile::tempdir().unwrap();
    // This process to testpmd to fwd, from there to an 82599 that gets back what it sends, and the same way home.
    let (near, far) = (folder.path().join("near.sock"), folder.path().join("far.sock"));
    let testpmd = Testpmd::between(folder.path(), &[(&near, false), (&far, false)], 1, "io");
    for ports in [
        [format!("vhost-user:{}", far.display()), "soft:a?wire=loop".to_owned()],
        ["soft:a?wire=loop".to_owned(), format!("vhost-user:{}", far.display())],
    ] {
        let words = ["setpriv", "--pdeathsig", "KILL", fwd.to_str().unwrap(), "l2", &ports[0], &ports[1]];
        let mut fwd = command(&[&words[..], &["--mtu", "3000", "--tx-wait", "5000000", "--json", "--quiet"]].concat());
        let mut fwd = Process(fwd.stdout(Stdio::piped()).spawn().unwrap());
        let mut rig = Rig::new(VhostUser::connect(&near, trusted()).unwrap(), 1, Features::default(), 3000);
        rig.until_one_is_back();
        for len in [60, 61, 1514, 2900] {
            rig.exchange(10, len, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        }
        rig.close();
        fwd.signal(Signal::INT);
        let ended = fwd.wait(PATIENCE).expect("fwd ends");
        let mut stdout = Vec::new();
        fwd.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let report = Fwd::of(&Output { status: ended, stdout, stderr: Vec::new() });
        assert_eq!(report.code, Some(0));
        assert_eq!(report.drops(), 0, "{}", report.json);
        assert!(report.count("/forwarded") >= 2 * 4 * 10 * 16, "{}", report.json);
        assert_eq!(report.count("/forwarded"), report.count("/received"));
    }
    drop(testpmd);
}
