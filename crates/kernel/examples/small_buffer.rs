//! Whether a follower whose receive buffer overflows again and again ends with the kernel's tables.
//!
//! `ip netns exec NAME small_buffer`: follows the tables of this network namespace by a buffer of 208 KiB, and pauses whenever there is nothing
//! to read, so that messages are lost while routes come and go. When standard input ends it follows until it is in no doubt, and compares
//! what it holds with tables that are read anew.

use kernel::{Counts, Follower, Mirror, Ports, Prefix, Progress, Target};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes: `net.core.rmem_default` of most systems.
const BUFFER: usize = 208 << 10;
const PAUSE: Duration = Duration::from_secs(1);
/// Between two dumps.
const DUMPS: Duration = Duration::from_secs(1);
/// For the end.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<(), Box<dyn Error>> {
    let mut follower = Follower::with_buffer(Ports::All, BUFFER)?;
    while !follower.mirror().is_loaded() {
        step(&mut follower, &mut Instant::now())?;
    }
    println!("ready");
    let is_over = end_of_input();
    let (mut next_dump, mut over) = (Instant::now(), None);
    loop {
        // Whatever came before its end is there to be read now.
        let ends = is_over.load(Ordering::Acquire);
        let idle = step(&mut follower, &mut next_dump)?;
        if ends {
            let since = *over.get_or_insert_with(Instant::now);
            if idle && !follower.is_in_doubt() && !follower.is_dumping() {
                break;
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("in doubt for ever: {:?}", follower.counts()).into());
            }
        }
    }
    let mut fresh = Follower::open(Ports::All)?;
    while fresh.read(256, &mut |_| {})? != Progress::Loaded {}
    let (ours, theirs) = (held(follower.mirror()), held(fresh.mirror()));
    let Counts { overflows, dumps, interrupted, malformed, .. } = follower.counts();
    let differ = ours.iter().filter(|(prefix, to)| theirs.get(prefix) != Some(to)).count();
    let lacking = theirs.keys().filter(|prefix| !ours.contains_key(prefix)).count();
    println!(
        "{} routes, {differ} otherwise, {lacking} lacking; overflows: {overflows}, dumps: {dumps} and {interrupted} interrupted",
        ours.len()
    );
    if differ + lacking > 0 || malformed > 0 || overflows == 0 {
        return Err("the tables differ, a message was malformed, or nothing has overflowed".into());
    }
    Ok(())
}

/// Reads, and pauses if there is nothing to read and no dump goes on. Has the tables compared while there is a doubt. Returns whether there was nothing.
fn step(follower: &mut Follower, next_dump: &mut Instant) -> Result<bool, kernel::Error> {
    let idle = follower.read(256, &mut |_| {})? == Progress::Idle;
    if follower.is_in_doubt() && Instant::now() >= *next_dump {
        follower.resync()?;
        *next_dump = Instant::now() + DUMPS;
    } else if idle && !follower.is_dumping() {
        std::thread::sleep(PAUSE);
    }
    Ok(idle)
}

/// True once standard input has ended.
fn end_of_input() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&over);
    std::thread::spawn(move || {
        // Whatever comes of it, it is over.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        shared.store(true, Ordering::Release);
    });
    over
}

/// What each prefix leads to, in words that do not depend on numbers.
fn held(mirror: &Mirror) -> BTreeMap<Prefix, Arc<str>> {
    let hops: BTreeMap<u32, Arc<str>> =
        mirror.next_hops().map(|(number, now)| (number, format!("{now:?}").into())).collect();
    let to = |target| match target {
        Target::NextHops(number) => hops.get(&number).cloned().unwrap_or_else(|| "nowhere".into()),
        other => format!("{other:?}").into(),
    };
    mirror.routes().map(|(prefix, target)| (prefix, to(target))).collect()
}
