//! How fast this namespace's routes are read, followed and compared, with `lpm` as the data path.
//!
//! `ip netns exec NAME follow_speed [SECONDS]`: reads all tables, builds `lpm` from them, compares them by a second dump, then
//! follows changes for SECONDS, and prints times and memory.

#[path = "../tests/common/mod.rs"]
mod common;

use common::Path;
use kernel::{Event, Follower, Ports, Progress};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(0), |word| word.parse())?;
    let start = Instant::now();
    let mut follower = Follower::open(Ports::All)?;
    while follower.read(256, &mut |_| {})? != Progress::Loaded {}
    let read = start.elapsed();
    let mut path = Path::load(follower.mirror());
    let (v4, v6) = follower.mirror().prefix_counts();
    println!("read {v4} + {v6} prefixes in {read:.2?}, ready to forward after {:.2?}", start.elapsed());
    println!("resident memory: {}", memory()?);

    let start = Instant::now();
    follower.resync()?;
    while follower.counts().dumps < 2 {
        if follower.read(256, &mut |event| path.follow(event))? == Progress::Idle {
            wait(&follower, 10)?;
        }
    }
    println!("compared by a dump in {:.2?}, {} events", start.elapsed(), path.events);

    let (end, busy) = (Instant::now() + Duration::from_secs(seconds), cpu());
    let before = (follower.counts().messages, path.events);
    while Instant::now() < end {
        if follower.read(256, &mut |event: Event<'_>| path.follow(event))? == Progress::Idle {
            wait(&follower, 100)?;
        }
    }
    let (messages, events) = (follower.counts().messages - before.0, path.events - before.1);
    if messages > 0 {
        #[expect(clippy::cast_precision_loss, reason = "printed with two digits")]
        let each = (cpu() - busy).as_secs_f64() * 1e6 / messages as f64;
        println!("{messages} messages, {events} events: {each:.2} us of this thread each, system calls included");
    }
    println!("{:?}; resident memory: {}", follower.counts(), memory()?);
    Ok(())
}

fn wait(follower: &Follower, milliseconds: i64) -> rustix::io::Result<()> {
    let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    poll(&mut [PollFd::new(follower, PollFlags::IN)], Some(&limit)).map(drop)
}

/// Time that this thread has run.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// VmRSS and VmHWM of /proc/self/status.
fn memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", "))
}
