//! Lcores that are threads of one core, and those that are not.

use cli::lcore::ranges;
use device::cpulist;

/// Points of the experiment `lcores`.
pub(super) const ONE_FOR_ALL: u32 = 1;
pub(super) const ANOTHER_CORE: u32 = 2;
pub(super) const SIBLING: u32 = 3;

/// The lcores that may be used, each with those that are threads of the same core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads(Vec<(usize, Vec<usize>)>);

impl Threads {
    /// Asks Linux for those of lcores. Where it does not say, each is a core.
    pub(super) fn of(lcores: &[usize]) -> Self {
        let list = |lcore| format!("/sys/devices/system/cpu/cpu{lcore}/topology/thread_siblings_list");
        Self::read(lcores, |lcore| std::fs::read_to_string(list(lcore)).unwrap_or_default())
    }

    /// The same with the lists that Linux has for lcores (`0,64` or `0-1`).
    fn read(lcores: &[usize], list: impl Fn(usize) -> String) -> Self {
        let siblings = |lcore: usize| {
            let all = cpulist::parse(&list(lcore));
            all.into_iter().filter(|one| *one != lcore && lcores.contains(one)).collect()
        };
        Self(lcores.iter().map(|lcore| (*lcore, siblings(*lcore))).collect())
    }

    /// The lcores that a point uses, or why there are none.
    pub(super) fn of_point(&self, point: u32) -> Result<Vec<usize>, String> {
        let Self(all) = self;
        let pair = match point {
            SIBLING => all.iter().find_map(|(lcore, siblings)| Some(vec![*lcore, *siblings.first()?])),
            ANOTHER_CORE => all.iter().find_map(|(lcore, siblings)| {
                let is_other = |other: &&(usize, Vec<usize>)| other.0 != *lcore && !siblings.contains(&other.0);
                Some(vec![*lcore, all.iter().find(is_other)?.0])
            }),
            _ => return Ok(all.iter().take(1).map(|(lcore, _)| *lcore).collect()),
        };
        let is_one = if point == SIBLING { "no two" } else { "all" };
        let names = ranges(&all.iter().map(|(lcore, _)| *lcore).collect::<Vec<_>>());
        pair.ok_or_else(|| format!("as Linux says, {is_one} of the lcores {names} are threads of one core"))
    }

    /// Which of them are threads of one core, in words.
    pub(super) fn words(&self) -> String {
        let cores = self.0.iter().filter(|(lcore, siblings)| siblings.iter().all(|other| other > lcore));
        let cores = cores.filter(|(_, siblings)| !siblings.is_empty());
        let cores: Vec<String> = cores.map(|(lcore, siblings)| ranges(&[&[*lcore][..], siblings].concat())).collect();
        if cores.is_empty() { "none known".to_owned() } else { cores.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of lcores in their order, as Linux writes them.
    fn threads(lcores: &[usize], lists: &[&str]) -> Threads {
        Threads::read(lcores, |lcore| lists.get(lcore).map(|list| format!("{list}\n")).unwrap_or_default())
    }

    #[test]
    fn siblings_and_other_cores_are_told_apart() {
        let near = ["0-1", "0-1", "2-3", "2-3"];
        let far = ["0,2", "1,3", "0,2", "1,3"];
        for (lcores, lists, sibling, other, words) in [
            (&[0, 1, 2, 3][..], &near[..], Some([0, 1]), Some([0, 2]), "0-1; 2-3"),
            (&[0, 1, 2, 3], &far, Some([0, 2]), Some([0, 1]), "0,2; 1,3"),
            // Those that may not be used are left out.
            (&[1, 2, 3], &near, Some([2, 3]), Some([1, 2]), "2-3"),
            (&[2, 3], &near, Some([2, 3]), None, "2-3"),
            (&[0, 1], &far, None, Some([0, 1]), "none known"),
            (&[0, 1], &["0", "1"], None, Some([0, 1]), "none known"),
            (&[5, 6], &[], None, Some([5, 6]), "none known"),
        ] {
            let threads = threads(lcores, lists);
            assert_eq!(threads.of_point(ONE_FOR_ALL), Ok(vec![lcores[0]]));
            for (point, pair) in [(SIBLING, sibling), (ANOTHER_CORE, other)] {
                assert_eq!(threads.of_point(point).ok(), pair.map(Vec::from), "{lcores:?} {lists:?}");
            }
            assert_eq!(threads.words(), words);
        }
        let why = threads(&[0, 1], &["0", "1"]).of_point(SIBLING).unwrap_err();
        assert_eq!(why, "as Linux says, no two of the lcores 0-1 are threads of one core");
        let why = threads(&[0, 1], &["0-1", "0-1"]).of_point(ANOTHER_CORE).unwrap_err();
        assert_eq!(why, "as Linux says, all of the lcores 0-1 are threads of one core");
    }
}
