//! Frames a second between a worker and the kernel by a twin. Needs root, and makes an interface, so give it a namespace of its own:
//!
//! `cargo build --release -p ringway-twin --example twin_speed && unshare --net target/release/examples/twin_speed`

use mempool::{Batch, Pool, PoolCache, PoolConfig};
use router::{Destination, Refusal};
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};
use twin::{Lane, Port, Rate, Rates, Running, Settings, Twins};
use wire::Sum;

const NAME: &str = "rwspeed";
const MAC: [u8; 6] = [2, 0, 0, 0, 0xAA, 1];
const STATION: [u8; 6] = [2, 0, 0, 0, 0xBB, 2];
/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::new(&PoolConfig::default())?;
    let all = Rate { per_second: u32::MAX, burst: u32::MAX };
    let settings = Settings { rates: Rates { own: all, ..Rates::default() }, ..Settings::default() };
    let port = Port { mac: MAC, mtu: 1500, pool: pool.clone(), lane: 0 };
    let (twins, mut lanes) = Twins::open(&[NAME.to_owned()])?.start(&[port], 1, &settings)?;
    twins.set_carrier(0, true)?;
    for words in [
        &["link", "set", "lo", "up"][..],
        &["link", "set", NAME, "up"],
        &["address", "add", "10.0.0.1/24", "dev", NAME],
        &["neighbour", "add", "10.0.0.2", "lladdr", "02:00:00:00:bb:02", "dev", NAME],
    ] {
        if !Command::new("ip").args(words).status()?.success() {
            return Err(format!("ip {}", words.join(" ")).into());
        }
    }
    let (lane, cache) = (&mut lanes[0], &mut pool.cache());
    for (what, to, answers) in
        [("dropped by the kernel", [10, 0, 0, 9], false), ("echo, answered", [10, 0, 0, 1], true)]
    {
        let (to_host, from_host, seconds) = measure(&twins, lane, cache, &echo(to));
        println!("{what}: {:.0} frames/s to the host, {:.0} from it", to_host / seconds, from_host / seconds);
        if answers != (from_host > to_host / 2.0) {
            return Err("the kernel did otherwise".into());
        }
    }
    Ok(())
}

/// Hands over as many frames as there is room for. Returns the frames that crossed each way, and the seconds.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn measure(twins: &Running, lane: &mut Lane, cache: &mut PoolCache, frame: &[u8]) -> (f64, f64, f64) {
    let mut batch = Batch::with_capacity(64);
    let (before, begun) = (twins.counts(0), Instant::now());
    while begun.elapsed() < TIME {
        for _ in 0..32 {
            let Some(packet) = cache.alloc_from(frame) else { break };
            if let Some(packet) = lane.offer(0, packet, (Refusal::ForHost, Destination::Host), 1) {
                cache.free(packet);
                std::thread::yield_now();
            }
        }
        let _ = lane.hand_over(0, cache);
        if lane.has_frames() {
            lane.receive(0, &mut batch);
            cache.free_batch(&mut batch);
        }
    }
    let (after, seconds) = (twins.counts(0), begun.elapsed().as_secs_f64());
    ((after.to_host - before.to_host) as f64, (after.from_host - before.from_host) as f64, seconds)
}

/// An echo request of 60 bytes.
fn echo(to: [u8; 4]) -> Vec<u8> {
    let mut ip = [&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 2][..], &to].concat();
    let mut icmp = [&[8, 0, 0, 0, 0, 1, 0, 1][..], &[0; 18]].concat();
    for (bytes, at) in [(&mut ip, 10), (&mut icmp, 2)] {
        let sum = Sum::of(bytes).checksum();
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [&MAC[..], &STATION, &[8, 0], &ip, &icmp].concat()
}
