//! What a flood of packets whose TTL is used up costs those that are forwarded, while routing protocols run beside it. A third of it looks
//! like BFD, and a third like OSPF, to addresses that are not the router's. Needs root:
//!
//! `ip netns exec NAME flood TWIN WIRE SECONDS`: makes the TAP interfaces TWIN, unless it is there, and WIRE, which is the other end of the
//! twin's port. One thread routes as fast as it can, from memory; frames of WIRE and of the host go on beside that. A line on standard input
//! begins the measurement: SECONDS alone, SECONDS beside a thread that does nothing but count, and SECONDS beside the flood, in turn, three
//! times. What the counting takes is the machine's: cores that share a physical one, or its power. Afterwards all goes on without the flood until
//! standard input ends, so that whoever looks at the protocols sees what the last of it has done to them.
//!
//! `flood TWIN count TTL`: routes some packets of this TTL, of which the twin gets none, and says how many;
//! `valgrind --tool=callgrind --toggle-collect='*counted*'` counts the instructions of just these.

use mempool::{Batch, Pool, PoolCache, PoolConfig};
use router::{Egress, Interface, LiveConfig, LiveFib, LiveForwarder, MacAddress, Neighbour, Refusal, Target};
use std::error::Error;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tap::Tap;
use twin::{Class, Lane, Port, Rate, Rates, Running, Settings, Twins};
use wire::Sum;

const MAC: [u8; 6] = [2, 0, 0, 0, 0xAA, 1];
const STATION: [u8; 6] = [2, 0, 0, 0, 0xBB, 2];
/// The address of the twin.
const OWN: &str = "10.97.0.1/32";
/// The network that packets are forwarded to.
const BEYOND: &str = "198.18.0.0/15";
/// Packets of the flood in a second.
const FLOOD: u64 = 1_000_000;
const BURST: usize = 32;
/// Different packets.
const FRAMES: usize = 256;
const ROUNDS: usize = 3;
/// Between two looks at the wire.
const LOOK: Duration = Duration::from_micros(50);

/// Bursts that are counted, after as many that are not.
const COUNTED: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [twin, "count", ttl] => count(twin, ttl.parse()?),
        [twin, wire, seconds] => measure(twin, Tap::open(wire)?, Duration::from_secs(seconds.parse()?)),
        _ => Err("usage: flood TWIN WIRE SECONDS, or flood TWIN count TTL".into()),
    }
}

/// Routes packets of this TTL while nothing passes to the host.
fn count(twin: &str, ttl: u8) -> Result<(), Box<dyn Error>> {
    let none = Rate { per_second: 0, burst: 0 };
    let settings = Settings { rates: Rates { error: none, ..Rates::default() }, ..Settings::default() };
    let (_twins, mut work) = start(twin, None, &settings)?;
    let frames = frames(ttl);
    // What is called once only is none of a packet's.
    warm(&mut work, &frames);
    println!("{} packets, {} forwarded", COUNTED * BURST, counted(&mut work, &frames));
    Ok(())
}

#[inline(never)]
fn warm(work: &mut Work, frames: &[[u8; 60]]) -> u64 {
    frames.chunks(BURST).cycle().take(COUNTED).map(|burst| work.burst(burst)).sum()
}

/// What is counted. By its name, valgrind finds it.
#[inline(never)]
fn counted(work: &mut Work, frames: &[[u8; 60]]) -> u64 {
    frames.chunks(BURST).cycle().take(COUNTED).map(|burst| work.burst(burst)).sum()
}

/// A worker, and the twin of its port, up.
fn start(twin: &str, wire: Option<Tap>, settings: &Settings) -> Result<(Running, Work), Box<dyn Error>> {
    let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() })?;
    let port = Port { mac: MAC, mtu: 1500, pool: pool.clone(), lane: 0 };
    let (twins, mut lanes) = Twins::open(&[twin.to_owned()])?.start(&[port], 1, settings)?;
    twins.set_carrier(0, true)?;
    let work = Work {
        forwarder: table()?.forwarder(),
        lane: lanes.pop().ok_or("no lane")?,
        cache: pool.cache(),
        batch: Batch::with_capacity(BURST),
        egress: Egress::new(1, BURST),
        wire,
        frame: vec![0; tap::LONGEST_FRAME],
        next_look: Instant::now(),
    };
    Ok((twins, work))
}

fn measure(twin: &str, wire: Tap, time: Duration) -> Result<(), Box<dyn Error>> {
    let (twins, mut work) = start(twin, Some(wire), &Settings::default())?;
    let told = told();
    work.until(&told.begins);
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    let mut flooded = 0;
    for _ in 0..ROUNDS {
        rates[0].push(work.phase(time, 0).0);
        let counter = Counter::start();
        rates[1].push(work.phase(time, 0).0);
        drop(counter);
        let (forwarded, flood) = work.phase(time, FLOOD);
        rates[2].push(forwarded);
        flooded += flood;
    }
    let [alone, counting, flood] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    let counts = twins.counts(0);
    let of = |class: Class| counts.classes.get(class as usize).map_or((0, 0), |count| (count.passed, count.dropped));
    let less = |rate: f64, than: f64| (1.0 - rate / than) * 100.0;
    println!(
        "forwarded {:.2} M/s, beside a thread that counts {:.2} M/s: {:.1} % less",
        alone / 1e6,
        counting / 1e6,
        less(counting, alone)
    );
    println!(
        "beside the flood {:.2} M/s: {:.1} % less, than beside that thread {:.1} % less; {flooded} packets of the flood, passed and dropped: errors {:?}, OSPF {:?}, BFD {:?}",
        flood / 1e6,
        less(flood, alone),
        less(flood, counting),
        of(Class::Error),
        of(Class::Ospf),
        of(Class::Bfd)
    );
    work.until(&told.ends);
    Ok(())
}

/// A route to the host, and one to a station.
fn table() -> Result<LiveFib, router::Error> {
    let mut fib = LiveFib::new(&LiveConfig::default(), &[Interface { mac: MAC, promiscuous: false, mtu: 1500 }])?;
    let host = fib.add_next_hop(Target::Refused(Refusal::ForHost))?;
    let station = fib.add_next_hop(Target::Neighbour(Neighbour { port: 0, mac: MacAddress(STATION) }))?;
    fib.insert_ipv4(OWN.parse()?, host)?;
    fib.insert_ipv4(BEYOND.parse()?, station)?;
    Ok(fib)
}

/// What standard input says.
#[derive(Default)]
struct Told {
    /// A byte has come, or the end.
    begins: AtomicBool,
    /// The end has come.
    ends: AtomicBool,
}

fn told() -> Arc<Told> {
    let told = Arc::new(Told::default());
    let shared = Arc::clone(&told);
    std::thread::spawn(move || {
        let mut input = std::io::stdin();
        // Whatever comes of it, it is time.
        let _ = input.read(&mut [0]);
        shared.begins.store(true, Ordering::Release);
        while input.read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
        shared.ends.store(true, Ordering::Release);
    });
    told
}

/// A thread that keeps another core busy, and shares nothing with the one that routes. Dropping it ends the thread.
struct Counter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counter {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let count = move || {
            while !stopped.load(Ordering::Relaxed) {
                black_box((0..1_000_000_u32).fold(0_u32, |sum, number| black_box(sum).wrapping_add(number)));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(count)) }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of it was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What a worker of `fwd l3 --kernel` has.
struct Work {
    forwarder: LiveForwarder,
    lane: Lane,
    cache: PoolCache,
    batch: Batch,
    egress: Egress,
    /// The other end of the port.
    wire: Option<Tap>,
    frame: Vec<u8>,
    next_look: Instant,
}

impl Work {
    /// Routes without the flood until something is so.
    fn until(&mut self, is_so: &AtomicBool) {
        while !is_so.load(Ordering::Acquire) {
            self.phase(Duration::from_millis(10), 0);
        }
    }

    /// Routes for so long. Returns how many packets were forwarded in a second, and how many there were of the flood.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn phase(&mut self, time: Duration, flood: u64) -> (f64, u64) {
        let (forwarded, used_up) = (frames(64), frames(1));
        let (begun, mut sent, mut flooded) = (Instant::now(), 0, 0);
        loop {
            let elapsed = begun.elapsed();
            if elapsed >= time {
                return (sent as f64 / elapsed.as_secs_f64(), flooded);
            }
            for burst in forwarded.chunks(BURST) {
                sent += self.burst(burst);
            }
            let due = u64::try_from(elapsed.as_micros()).unwrap_or(0).saturating_mul(flood) / 1_000_000;
            while flooded + (BURST as u64) <= due {
                self.burst(&used_up[usize::try_from(flooded).unwrap_or(0) % FRAMES..][..BURST]);
                flooded += BURST as u64;
            }
            self.exchange(begun + elapsed);
            self.forwarder.catch_up();
        }
    }

    /// Routes frames that come in by the port. Returns how many were forwarded.
    fn burst(&mut self, frames: &[[u8; 60]]) -> u64 {
        for frame in frames {
            let Some(packet) = self.cache.alloc_from(frame) else { break };
            if self.batch.push(packet).is_err() {
                break;
            }
        }
        self.route()
    }

    fn route(&mut self) -> u64 {
        let Self { forwarder, lane, cache, batch, egress, .. } = self;
        forwarder.route(0, batch, egress);
        let now = device::tsc::now();
        for (packet, refusal) in egress.drain_refused() {
            let destination = forwarder.destination(0, refusal, packet.data());
            if let Some(packet) = lane.offer(0, packet, (refusal, destination), now) {
                cache.free(packet);
            }
        }
        let _ = lane.hand_over(0, cache);
        let output = &mut egress.outputs()[0];
        let sent = output.len() as u64;
        cache.free_batch(output);
        sent
    }

    /// Takes what has come by the wire, now and then, and sends there what the host sends.
    fn exchange(&mut self, now: Instant) {
        if self.lane.has_frames() && self.lane.receive(0, &mut self.batch) > 0 {
            for packet in self.batch.iter() {
                // What finds no room is lost, as on any wire.
                let _ = self.wire.as_ref().map(|wire| wire.write(packet.data()));
            }
            self.cache.free_batch(&mut self.batch);
        }
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        while self.batch.len() < BURST
            && let Some(len) = self.wire.as_ref().and_then(|wire| wire.read(&mut self.frame))
        {
            let packet = self.frame.get(..len).and_then(|frame| self.cache.alloc_from(frame));
            let Some(packet) = packet else { continue };
            let _ = self.batch.push(packet);
        }
        self.route();
    }
}

/// UDP from many addresses to many, by the port: a third to no port, a third to that of BFD; and OSPF.
fn frames(ttl: u8) -> Vec<[u8; 60]> {
    let frame = |number: u8| {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&MAC);
        frame[6..12].copy_from_slice(&STATION);
        frame[12..34].copy_from_slice(&[
            8,
            0,
            0x45,
            0,
            0,
            46,
            0,
            0,
            0x40,
            0,
            ttl,
            if number % 3 == 2 { 89 } else { 17 },
            0,
            0,
            198,
            18,
            number,
            9,
            198,
            19,
            number,
            1,
        ]);
        if number % 3 == 1 {
            frame[36..38].copy_from_slice(&3784_u16.to_be_bytes());
        }
        let sum = Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    (0..=u8::MAX).map(frame).collect()
}
