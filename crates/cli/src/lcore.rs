//! Assignment of work to lcores.

pub use ::lcore::{Lcore, available};
pub use device::cpulist::format as ranges;
use std::str::FromStr;

/// An lcore (`None`: not pinned), and the numbers of its pieces of work.
pub type Share = (Option<usize>, Vec<usize>);

/// Distributes pieces of work over lcores. `work` has the NUMA node of each piece's NIC. Each piece gets an lcore of
/// that node, as long as there are any; further pieces share them. A piece is given to an lcore of another node only if
/// its own node has no lcore. If `soft`, one lcore is left for the thread of software NICs. If there is only one lcore,
/// it does everything, and is `None`: not pinned.
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
    /// Number of the port; 0 is the first one named.
    pub port: usize,
    /// Number of the queue of that port.
    pub queue: usize,
    /// Number of the lcore.
    pub lcore: usize,
}

/// A list of triples `(port,queue,lcore)`, such as `(0,0,2),(1,0,3)`.
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
}
