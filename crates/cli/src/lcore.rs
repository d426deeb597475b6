//! Logical cores: which there are, and threads pinned to them.

use device::Host;
pub use device::cpulist::format as ranges;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::str::FromStr;

/// A logical core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// Its number.
    pub number: usize,
    /// Its NUMA node, if the host says.
    pub node: Option<u32>,
}

/// The lcores to run workers on, ascending: those this process was given, and isolated ones. `isolcpus` keeps a core out
/// of what every process is given, so that only those come to it who name it. A process that was given less
/// (`taskset`) keeps to that.
///
/// # Errors
///
/// When the kernel does not say.
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
/// When this process may not run there.
pub fn pin(lcore: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if lcore >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(lcore);
    Ok(sched_setaffinity(None, &set)?)
}

/// An lcore, and the numbers of the pieces of work that it has.
pub type Share = (Option<usize>, Vec<usize>);

/// Deals out pieces of work, of which each has the NUMA node of its NIC: an lcore of that node for each, as far as there
/// are any; then they are shared. Lcores of other nodes have work only where its own node has no lcore. One stays free for
/// the thread of software NICs if `soft`. `None` means not pinned: a single lcore serves all.
#[must_use]
pub fn spread(work: &[Option<u32>], available: &[Lcore], soft: bool) -> Vec<Share> {
    if available.len() <= 1 {
        return vec![(None, (0..work.len()).collect())];
    }
    let usable = available.len() - usize::from(soft);
    // The last ones, since the first serves most interrupts.
    let mut free: Vec<Lcore> = available.iter().rev().copied().collect();
    let mut shares: Vec<(Lcore, Vec<usize>)> = Vec::new();
    for (index, node) in work.iter().enumerate() {
        let near = |lcore: &Lcore| node.is_none() || lcore.node.is_none() || lcore.node == *node;
        let anywhere = !available.iter().any(near);
        let fits = |lcore: &Lcore| anywhere || near(lcore);
        match free.iter().position(fits).filter(|_| shares.len() < usable) {
            Some(at) => shares.push((free.remove(at), vec![index])),
            None => {
                // The one with the least to do, of this node if there is one.
                let least = shares.iter_mut().min_by_key(|(lcore, work)| (!fits(lcore), work.len()));
                least.into_iter().for_each(|(_, work)| work.push(index));
            }
        }
    }
    shares.into_iter().map(|(lcore, work)| (Some(lcore.number), work)).collect()
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
        let spread = |work: usize, lcores: &[usize], soft| {
            let lcores: Vec<Lcore> = lcores.iter().map(|number| Lcore { number: *number, node: Some(0) }).collect();
            spread(&vec![None; work], &lcores, soft)
        };
        assert_eq!(spread(5, &[0], true), [(None, vec![0, 1, 2, 3, 4])]);
        assert_eq!(spread(5, &[0, 1], true), [(Some(1), vec![0, 1, 2, 3, 4])]);
        assert_eq!(spread(5, &[0, 1], false), [(Some(1), vec![0, 2, 4]), (Some(0), vec![1, 3])]);
        assert_eq!(spread(2, &[0, 1, 4, 6], true), [(Some(6), vec![0]), (Some(4), vec![1])]);
    }

    #[test]
    fn work_goes_to_lcores_of_its_node() {
        let nodes = [Some(0), Some(1), Some(0), Some(1)];
        let lcores: Vec<Lcore> = nodes.into_iter().enumerate().map(|(number, node)| Lcore { number, node }).collect();
        let [zero, one, two] = [0, 1, 2].map(Some);
        assert_eq!(spread(&[zero], &lcores, false), [(Some(2), vec![0])]);
        assert_eq!(spread(&[one, zero], &lcores, true), [(Some(3), vec![0]), (Some(2), vec![1])]);
        assert_eq!(spread(&[one, one, one], &lcores, false), [(Some(3), vec![0, 2]), (Some(1), vec![1])]);
        // A node without lcores, and lcores whose node is not known.
        assert_eq!(spread(&[two, zero], &lcores, false), [(Some(3), vec![0]), (Some(2), vec![1])]);
        let unknown: Vec<Lcore> = (0..2).map(|number| Lcore { number, node: None }).collect();
        assert_eq!(spread(&[one], &unknown, false), [(Some(1), vec![0])]);
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
        let last = available().unwrap().last().unwrap().number;
        let seen = std::thread::spawn(move || {
            pin(last).unwrap();
            affinity().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert!(pin(usize::MAX).is_err());
    }
}
