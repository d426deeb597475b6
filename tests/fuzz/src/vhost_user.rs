//! A vhost-user back end that answers as the input says: each request well, with a refusal, with other bytes, in pieces, with
//! more than was asked for, or not at all; and that says things, or goes away, while a session is running. It may be connected
//! to again. The device opens or does not, goes on or does not, and every slot comes home, unless closing says that
//! the back end cannot be stopped.

use device::TrustedPeer;
use ethdev::{Port as _, RxQueue as _, TxQueue as _};
use mempool::{Batch, Pool, PoolConfig};
use std::cell::Cell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use virtio::{Config, Features, Opened, VhostUser};

/// Sessions that an input may have.
const SESSIONS: usize = 3;
/// The back end does the next thing of its own accord when it was asked nothing for so long.
const QUIET: Duration = Duration::from_micros(200);
/// The rest of a message comes within this, or not at all.
const REST: Duration = Duration::from_secs(5);

/// Runs one input: three bytes of choices (queues, features, protocol features), then a byte for each thing that the back end
/// does. Takes a few milliseconds.
pub fn run(input: &[u8]) {
    thread_local! {
        static PLACE: tempfile::TempDir = tempfile::tempdir().expect("a folder");
        static COUNT: Cell<u32> = const { Cell::new(0) };
    }
    let [queues, features, protocol, script @ ..] = input else { return };
    let script = &script[..script.len().min(256)];
    let number = COUNT.replace(COUNT.get() + 1);
    let path = PLACE.with(|folder| folder.path().join(number.to_string()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut config = Config::default();
    (config.port.rx_ring, config.port.tx_ring) = (64, 64);
    config.port.rx_queues = 1 + u16::from(queues & 1);
    config.port.tx_queues = config.port.rx_queues;
    // An answer that does not come is waited for.
    let silent = script.iter().any(|step| matches!(step & 7, 5 | 6));
    config.port.time_limit.total = Duration::from_millis(if silent { 3 } else { 1000 });
    // One for each input: a driver that cannot be sure keeps its memory.
    let pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).expect("memory");
    // SAFETY: this one writes to no memory.
    let peer = unsafe { TrustedPeer::vouched_for() };
    let device = VhostUser::connect(&path, peer).expect("a device");
    let over = AtomicBool::new(false);
    let sure = std::thread::scope(|scope| {
        let back_end = scope.spawn(|| play(&listener, &over, *features, *protocol, script));
        let end = End { over: &over, path: &path };
        let sure = match virtio::open(device, &config, &pool) {
            Ok(opened) => use_for_a_while(opened, &pool),
            // What was started in time may not have been stopped in time.
            Err(_) => !silent,
        };
        drop(end);
        back_end.join().expect("the back end has no mistakes of its own");
        sure
    });
    let _ = std::fs::remove_file(&path);
    assert!(pool.away() == 0 || !sure, "{} slots are not home", pool.away());
}

/// Ends the back end, also where the driver panics: it would wait for a connection for ever, and nobody would hear of that.
struct End<'a> {
    over: &'a AtomicBool,
    path: &'a Path,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Whoever waits to be connected to is.
        drop(UnixStream::connect(self.path));
    }
}

/// Whether the port could be closed: else the back end may still have the memory, which is kept.
fn use_for_a_while(opened: Opened<VhostUser>, pool: &Pool) -> bool {
    let Opened { port, mut rx, mut tx } = opened;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    for _ in 0..8 {
        for (rx, tx) in rx.iter_mut().zip(&mut tx) {
            rx.recv(&mut cache, &mut batch);
            cache.alloc_batch(&mut batch, 3, 60);
            tx.send(&mut cache, &mut batch);
            cache.free_batch(&mut batch);
        }
        let _ = port.link();
        std::thread::sleep(QUIET);
    }
    // A back end that does not stop its rings is cut off, which it notices.
    port.close().is_ok()
}

/// Plays back ends one after the other, by one script.
fn play(listener: &UnixListener, over: &AtomicBool, features: u8, protocol: u8, script: &[u8]) {
    let mut script = script.iter().copied();
    for session in 0..SESSIONS {
        let Ok((socket, _)) = listener.accept() else { return };
        if over.load(Ordering::SeqCst) {
            return;
        }
        // Of layouts another one in each session.
        let features = if session % 2 == 0 { features } else { features.rotate_left(4) };
        serve(&socket, features, protocol, &mut script);
        let _ = socket.shutdown(Shutdown::Both);
        if script.len() == 0 {
            return;
        }
    }
}

fn serve(mut socket: &UnixStream, features: u8, protocol: u8, script: &mut impl Iterator<Item = u8>) {
    let _ = socket.set_read_timeout(Some(QUIET));
    let _ = socket.set_write_timeout(Some(Duration::from_millis(1)));
    let mut quiet = 0;
    loop {
        let mut header = [0; 12];
        match socket.read(&mut header) {
            Ok(12) => quiet = 0,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                quiet += 1;
                // Nobody asks: whatever comes to its mind.
                match script.next() {
                    Some(step) if step & 7 == 7 => return,
                    Some(step) if step & 7 == 4 => drop(socket.write_all(&[step; 20])),
                    _ if quiet > 100 => return,
                    _ => {}
                }
                continue;
            }
            _ => return,
        }
        let word = |n: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| header[4 * n + byte]));
        let (request, flags, size) = (word(0), word(1), word(2));
        let mut body = vec![0; size as usize];
        let _ = socket.set_read_timeout(Some(REST));
        let whole = socket.read_exact(&mut body);
        let _ = socket.set_read_timeout(Some(QUIET));
        if whole.is_err() {
            return;
        }
        let step = script.next().unwrap_or(0);
        let answer = match request {
            1 => Some(offered(features)),
            15 => Some(u64::from(protocol)),
            17 => Some(u64::from(protocol >> 4)),
            11 => body.get(..8).map(|body| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| body[byte]))),
            _ => (flags & 8 != 0).then_some(0),
        };
        let Some(number) = answer else { continue };
        let reply = |request: u32, flags: u32, size: u32, number: u64| {
            let mut reply: Vec<u8> = [request, flags, size].iter().flat_map(|word| word.to_ne_bytes()).collect();
            reply.extend(number.to_ne_bytes());
            reply
        };
        let argument = u32::from(step >> 3);
        let good = reply(request, 5, 8, number);
        let bytes = match step & 7 {
            // A number that is wrong in one place.
            1 if argument > 24 => reply(request, 5, 8, number ^ 1 << (argument & 7)),
            // A header that is wrong in one place.
            2 if argument > 24 => reply(request ^ argument, 5, 8, number),
            3 if argument > 24 => reply(request, 5 ^ argument, 8 + argument, number),
            // More than was asked for.
            4 if argument > 24 => [good, vec![step; argument as usize]].concat(),
            // Not all of it, or nothing.
            5 if argument > 24 => good[..(argument as usize).min(good.len() - 1)].to_vec(),
            6 if argument > 24 => Vec::new(),
            7 if argument > 24 => return,
            // In two pieces.
            _ if argument & 1 == 1 => {
                let _ = socket.write_all(&good[..7]);
                good[7..].to_vec()
            }
            _ => good,
        };
        if socket.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Features of a back end by eight choices.
fn offered(choices: u8) -> u64 {
    let bits = [
        Features::MRG_RXBUF.0,
        Features::EVENT_IDX.0,
        Features::IN_ORDER.0,
        Features::RING_PACKED.0,
        Features::CSUM.0,
        Features::GUEST_CSUM.0,
        Features::MTU.0 | Features::CTRL_VQ.0 | 1 << 60,
        1 << 30,
    ];
    let chosen = bits.iter().enumerate().filter(|(n, _)| choices >> n & 1 == 1);
    chosen.fold(Features::VERSION_1.0 | 1 << 30, |all, (_, bit)| all ^ bit)
}
