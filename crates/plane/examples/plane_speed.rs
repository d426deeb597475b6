//! How fast the routes of this network namespace come into a forwarding table, and follow changes.
//!
//! `ip netns exec NAME plane_speed PORT [SECONDS]`: reads all tables, with the interface PORT as the only port, compares them by a second
//! dump, has the next hops of most routes change, then follows changes for SECONDS, and prints times and memory.

use kernel::{Event, Follower, NextHops, Ports, Progress, Target};
use plane::{Plane, Port};
use router::{Interface, LiveConfig, LiveFib};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("usage: plane_speed PORT [SECONDS]")?;
    let seconds: u64 = words.next().map_or(Ok(0), |word| word.parse())?;
    let interface = Interface { mac: [2, 0, 0, 0, 0, 1], promiscuous: false, mtu: 1500 };
    let config = LiveConfig { accelerator: true, ..LiveConfig::default() };
    let fib = LiveFib::new(&config, &[interface])?;
    let _forwarder = fib.forwarder();
    let mut plane = Plane::new(fib, &[Port { name, index: None, mtu: 1500 }])?;

    let (start, busy) = (Instant::now(), cpu());
    let mut follower = Follower::open(Ports::All)?;
    while follower.read(256, &mut |event| plane.apply(event))? != Progress::Loaded {}
    let (read, used) = (start.elapsed(), cpu());
    plane.load(follower.mirror());
    let loaded = start.elapsed();
    let [dumps, load] =
        [[busy, used], [used, cpu()]].map(|[from, to]| [0, 1].map(|at| to[at].saturating_sub(from[at])));
    println!(
        "read in {read:.2?}, ready to forward after {loaded:.2?}; user and system time {dumps:.2?}, then {load:.2?}"
    );
    println!("{:?}\nresident memory: {}", plane.report(), memory()?);

    let (start, mut events) = (Instant::now(), 0);
    let mut apply = |plane: &mut Plane, event: Event<'_>| {
        plane.apply(event);
        events += 1;
    };
    follower.resync()?;
    while follower.counts().dumps < 2 {
        if follower.read(256, &mut |event| apply(&mut plane, event))? == Progress::Idle {
            wait(&follower, 10)?;
        }
    }
    println!("compared by a dump in {:.2?}, {events} events", start.elapsed());
    change_most(&follower, &mut plane);

    let (end, before, busy) = (Instant::now() + Duration::from_secs(seconds), follower.counts().messages, cpu());
    while Instant::now() < end {
        let known = follower.counts().messages;
        let progress = follower.read(256, &mut |event| plane.apply(event))?;
        // As `plane::Runner` does.
        match progress {
            Progress::Idle if follower.counts().messages == known => wait(&follower, 100)?,
            Progress::Idle => std::thread::sleep(plane::BETWEEN_READS),
            _ => {}
        }
    }
    let messages = u32::try_from(follower.counts().messages - before)?;
    if messages > 0 {
        let [user, system] = [0, 1].map(|at| (cpu()[at] - busy[at]) / messages);
        println!("{messages} messages");
        println!("{user:.2?} user and {system:.2?} system time a message");
    }
    println!("{:?}; resident memory: {}", follower.counts(), memory()?);
    Ok(())
}

/// Changes the next hops that most routes lead to, to and fro.
fn change_most(follower: &Follower, plane: &mut Plane) {
    let mut routes: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, target) in follower.mirror().routes() {
        if let Target::NextHops(number) = target {
            *routes.entry(number).or_default() += 1;
        }
    }
    let Some((number, count)) = routes.into_iter().max_by_key(|(_, count)| *count) else { return };
    let Some((_, now)) = follower.mirror().next_hops().find(|(other, _)| *other == number) else { return };
    let start = Instant::now();
    plane.apply(Event::NextHops { number, now: NextHops::Blackhole });
    let there = start.elapsed();
    plane.apply(Event::NextHops { number, now });
    println!("next hops of {count} routes changed in {there:.2?}, and back in {:.2?}", start.elapsed() - there);
}

fn wait(follower: &Follower, milliseconds: i64) -> rustix::io::Result<()> {
    let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    poll(&mut [PollFd::new(follower, PollFlags::IN)], Some(&limit)).map(drop)
}

/// User and system time of this thread: what ran at all, shared out as /proc/thread-self/stat does, which counts ticks.
fn cpu() -> [Duration; 2] {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let ran = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat.split_whitespace().skip(13).take(2).filter_map(|word| word.parse().ok()).collect();
    match ticks[..] {
        [user, system] if user + system > 0.0 => [user, system].map(|part| ran.mul_f64(part / (user + system))),
        _ => [ran, Duration::ZERO],
    }
}

/// VmRSS and VmHWM of /proc/self/status.
fn memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", "))
}
