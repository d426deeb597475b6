//! Logical cores: which there are, and threads pinned to them.

pub use device::cpulist::format as ranges;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::str::FromStr;

/// The lcores to run workers on, ascending: those this process was given, and isolated ones. `isolcpus` keeps a core out
/// of what every process is given, so that only those come to it who name it. A process that was given less
/// (`taskset`) keeps to that.
///
/// # Errors
///
/// When the kernel does not say.
pub fn available() -> io::Result<Vec<usize>> {
    let given = affinity()?;
    let isolated = std::fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = device::cpulist::parse(&isolated);
    if isolated.is_empty() {
        return Ok(given);
    }
    // A thread of its own asks for all there are; the kernel grants those of its cpuset.
    let permitted = std::thread::spawn(|| {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|lcore| all.set(lcore));
        sched_setaffinity(None, &all)?;
        affinity()
    });
    let permitted = permitted.join().unwrap_or_else(|_| affinity()).unwrap_or_default();
    Ok(with_isolated(given, permitted, &isolated))
}

fn affinity() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|lcore| set.is_set(*lcore)).collect())
}

/// All that is permitted, if isolated lcores are all that `given` lacks of it.
fn with_isolated(given: Vec<usize>, permitted: Vec<usize>, isolated: &[usize]) -> Vec<usize> {
    let lacks_others = permitted.iter().any(|lcore| !given.contains(lcore) && !isolated.contains(lcore));
    let narrowed =
        given.iter().any(|lcore| isolated.contains(lcore)) || !given.iter().all(|lcore| permitted.contains(lcore));
    if lacks_others || narrowed { given } else { permitted }
}

/// Pins the calling thread to one lcore.
///
/// # Errors
///
/// When this process may not run there.
pub fn pin(lcore: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if lcore >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(lcore);
    Ok(sched_setaffinity(None, &set)?)
}

/// An lcore for each of `groups` pieces of work, as far as there are lcores; fewer if not, one at least. One stays free
/// for the thread of software NICs if `soft`. `None` means not pinned: a single lcore serves all.
#[must_use]
pub fn spread(groups: usize, available: &[usize], soft: bool) -> Vec<Option<usize>> {
    let cores = available.len();
    if cores <= 1 {
        return vec![None];
    }
    let usable = if soft { cores - 1 } else { cores };
    // The last ones, since the first serves most interrupts.
    available.iter().rev().take(usable.min(groups).max(1)).copied().map(Some).collect()
}

/// One receive queue of one port, and the lcore that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The port: 0 is the first one named.
    pub port: usize,
    /// The queue of that port.
    pub queue: usize,
    /// The lcore.
    pub lcore: usize,
}

/// Triples `(port,queue,lcore)`, as in `(0,0,2),(1,0,3)`.
///
/// ```
/// use cli::lcore::{Binding, Bindings};
///
/// let bindings: Bindings = "(0,0,2),(1,0,3)".parse()?;
/// assert_eq!(bindings.0[1], Binding { port: 1, queue: 0, lcore: 3 });
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings(pub Vec<Binding>);

impl FromStr for Bindings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write triples (port,queue,lcore), such as \"(0,0,0),(1,0,1)\"".to_owned();
        let mut bindings = Vec::new();
        let mut rest = text.trim();
        loop {
            let (triple, after) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(wrong)?;
            let numbers: Option<Vec<usize>> = triple.split(',').map(|number| number.trim().parse().ok()).collect();
            let Some([port, queue, lcore]) = numbers.as_deref() else { return Err(wrong()) };
            bindings.push(Binding { port: *port, queue: *queue, lcore: *lcore });
            rest = after.trim_start();
            if rest.is_empty() {
                return Ok(Self(bindings));
            }
            rest = rest.strip_prefix(',').ok_or_else(wrong)?.trim_start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_lcores_are_for_workers() {
        for (given, permitted, isolated, expected) in [
            (&[0, 1][..], &[0, 1, 2, 3][..], &[2, 3][..], &[0, 1, 2, 3][..]),
            (&[0], &[0, 1, 2, 3], &[2, 3], &[0]),
            (&[3], &[0, 1, 2, 3], &[2, 3], &[3]),
            (&[0, 1], &[0, 1, 2], &[2, 3], &[0, 1, 2]),
            (&[0, 1], &[], &[1], &[0, 1]),
        ] {
            assert_eq!(with_isolated(given.to_vec(), permitted.to_vec(), isolated), expected);
        }
    }

    #[test]
    fn work_spreads_over_the_last_lcores() {
        assert_eq!(spread(5, &[0], true), [None]);
        assert_eq!(spread(5, &[0, 1], true), [Some(1)]);
        assert_eq!(spread(5, &[0, 1], false), [Some(1), Some(0)]);
        assert_eq!(spread(2, &[0, 1, 4, 6], true), [Some(6), Some(4)]);
        assert_eq!(spread(0, &[0, 1], false), [Some(1)]);
    }

    #[test]
    fn malformed_triples_are_refused() {
        for text in
            ["", "(", "(0,0)", "(0,0,0", "(0,0,0),", "(0,0,0)(1,0,1)", "0,0,0", "(a,0,0)", "(0,0,-1)", "(0,0,0,0)"]
        {
            assert!(text.parse::<Bindings>().is_err(), "{text}");
        }
        let spaced: Bindings = " ( 0, 1 ,2 ) , (3,4,5) ".parse().unwrap();
        assert_eq!(spaced, "(0,1,2),(3,4,5)".parse().unwrap());
    }

    #[test]
    fn a_pinned_thread_runs_there() {
        let lcores = available().unwrap();
        let last = *lcores.last().unwrap();
        let seen = std::thread::spawn(move || {
            pin(last).unwrap();
            affinity().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert!(pin(usize::MAX).is_err());
    }
}
