//! Logical cores: listing those available, and pinning threads to them.

use device::Host;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// A logical core.
///
/// ```
/// for lcore in lcore::available()? {
///     let pinned = std::thread::spawn(move || lcore::pin(lcore.number));
///     assert!(pinned.join().is_ok_and(|result| result.is_ok()));
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// Its number.
    pub number: usize,
    /// Its NUMA node, if the host reports one.
    pub node: Option<u32>,
}

/// Returns the lcores to run workers on, in ascending order: those in the affinity mask of this process, and isolated
/// ones. The kernel parameter `isolcpus` removes cores from the default affinity mask, so that only threads that ask
/// for them run there. If the mask was narrowed further (`taskset`), only the lcores in it are returned.
///
/// # Errors
///
/// If the kernel does not report the affinity mask.
pub fn available() -> io::Result<Vec<Lcore>> {
    let host = Host::system();
    Ok(permitted()?.into_iter().map(|number| Lcore { number, node: host.cpu_node(number) }).collect())
}

fn permitted() -> io::Result<Vec<usize>> {
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
/// If this process may not run there.
pub fn pin(lcore: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if lcore >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(lcore);
    Ok(sched_setaffinity(None, &set)?)
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
    fn a_pinned_thread_runs_there() {
        let last = available().unwrap().last().unwrap().number;
        let seen = std::thread::spawn(move || {
            pin(last).unwrap();
            affinity().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert!(pin(usize::MAX).is_err());
    }
}
