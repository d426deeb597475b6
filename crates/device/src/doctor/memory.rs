//! Locked memory and huge pages.

use super::{Finding, Needs, breaks, costs, fine, unknown};
use crate::memory::{HugePages, human};
use crate::remedy::{self, Remedy};
use crate::{Host, Verdict, cpulist};

/// `RLIMIT_MEMLOCK` (`/proc/self/limits`) against what VFIO locks for the cards.
pub(super) fn locked(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "locked memory";
    const CAP_IPC_LOCK: u32 = 14;
    let wanted = needs.locked();
    let takes = match needs.devices.len() {
        0 | 1 => format!("one card takes {}", human(wanted)),
        count => format!("{count} cards take {}", human(wanted)),
    };
    let capabilities = host.self_status("CapEff:").and_then(|text| u64::from_str_radix(&text, 16).ok());
    if capabilities.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0) {
        return fine(CHECK, format!("this process may lock any amount (CAP_IPC_LOCK), and {takes}"));
    }
    let limits = host.read(&host.proc("self/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap_or_default();
    let mut numbers = line.split_whitespace().map(|word| if word == "unlimited" { Ok(u64::MAX) } else { word.parse() });
    let (Some(Ok(soft)), Some(Ok(hard))) = (numbers.next(), numbers.next()) else {
        return unknown(CHECK, "/proc/self/limits cannot be read, which would tell");
    };
    let amount = |bytes: u64| match bytes {
        u64::MAX => "any amount".to_owned(),
        bytes => format!("{} KiB", bytes >> 10),
    };
    let what = format!("this user may lock {}, and {takes}", amount(soft));
    if soft >= wanted as u64 {
        return fine(CHECK, what);
    }
    let effect = "packet memory cannot be mapped for a card (VFIO_IOMMU_MAP_DMA: ENOMEM)";
    let remedy = if hard >= wanted as u64 {
        let most = if hard == u64::MAX { "unlimited".to_owned() } else { (hard >> 10).to_string() };
        Remedy::command("raise the limit of this shell", format!("ulimit -S -l {most}"))
    } else {
        remedy::raise_memlock(host)
    };
    breaks(CHECK, what, effect, remedy)
}

/// Huge pages of each NUMA node, against what the cards there need.
pub(super) fn huge_pages(host: &Host, needs: &Needs) -> Vec<Finding> {
    if let Some(why) = host.unseen_sys() {
        return vec![unknown(HUGE_PAGES, why)];
    }
    let nodes = nodes(host);
    if nodes.is_empty() {
        return vec![on_node(host, None, needs.huge_pages())];
    }
    // There is a pool on each node with a card; without, the kernel chooses, and any node will do.
    let with_card = |node: &&u32| needs.devices.iter().any(|device| device.numa_node == Some(**node));
    let mut homes: Vec<u32> = nodes.iter().filter(with_card).copied().collect();
    if homes.is_empty() {
        let free = |node: u32| HugePages::TWO_MIB.counts(host, Some(node)).map_or(0, |counts| counts.free);
        homes.extend(nodes.iter().copied().max_by_key(|node| (free(*node), std::cmp::Reverse(*node))));
    }
    let pages = needs.huge_pages().div_ceil(homes.len());
    nodes.iter().map(|node| on_node(host, Some(*node), if homes.contains(node) { pages } else { 0 })).collect()
}

/// Huge pages of one node, of which `pages` are needed.
fn on_node(host: &Host, node: Option<u32>, pages: usize) -> Finding {
    const CHECK: &str = HUGE_PAGES;
    let place = node.map_or(String::new(), |node| format!("NUMA node {node}: "));
    let counts = [HugePages::TWO_MIB, HugePages::ONE_GIB].map(|pages| (pages, pages.counts(host, node)));
    let words: Vec<String> = counts
        .iter()
        .filter_map(|(pages, counts)| Some((pages, (*counts)?)))
        .map(|(pages, counts)| match counts.total {
            0 => format!("no pages of {}", human(pages.bytes)),
            total => format!("{} of {total} pages of {} free", counts.free, human(pages.bytes)),
        })
        .collect();
    let Some(two_mib) = counts[0].1 else {
        return costs(
            CHECK,
            format!("{place}this kernel has none of 2 MiB"),
            ORDINARY_PAGES,
            Remedy::words("run a kernel with CONFIG_HUGETLBFS"),
        );
    };
    let what = format!("{place}{}", words.join(", "));
    if pages == 0 {
        return fine(CHECK, format!("{what} (none is needed here)"));
    }
    if two_mib.free >= pages {
        return fine(CHECK, format!("{what}; {pages} are needed"));
    }
    // 64 at least, so that a larger run does not come back here at once.
    let total = (two_mib.total + pages - two_mib.free).max(64);
    costs(CHECK, format!("{what}; {pages} are needed"), ORDINARY_PAGES, HugePages::TWO_MIB.reserve(node, total))
}

/// Whether huge pages can be had through a memfd, as packet memory takes them.
pub(super) fn memfd(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "huge pages by memfd";
    let enough = huge_pages(host, needs).iter().all(|finding| finding.verdict == Verdict::Fine);
    match needs.tried_page {
        None => unknown(CHECK, "not tried"),
        Some(page) if page >= HugePages::TWO_MIB.bytes => {
            fine(CHECK, format!("{} of packet memory were had on pages of {}", human(needs.pool), human(page)))
        }
        Some(_) if host.unseen_sys().is_some() => {
            unknown(CHECK, "there were none for a try; whether any are free is in /sys, which cannot be read")
        }
        Some(_) if !enough => unknown(CHECK, "not tried, as too few are free"),
        Some(_) => {
            let how = "raise the hugetlb limit of this control group, and see whether the kernel has memfds (CONFIG_MEMFD_CREATE)";
            let remedy = Remedy::command(
                how,
                "grep -H . /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup | tail -1)/hugetlb.2MB.max",
            );
            costs(CHECK, "enough are free, and the kernel refused them", ORDINARY_PAGES, remedy)
        }
    }
}

/// The NUMA nodes that are online.
pub(super) fn nodes(host: &Host) -> Vec<u32> {
    let online = host.read(&host.sys("devices/system/node/online")).unwrap_or_default();
    cpulist::parse(&online).into_iter().filter_map(|node| u32::try_from(node).ok()).collect()
}

const HUGE_PAGES: &str = "huge pages";
const ORDINARY_PAGES: &str = "packet memory lies on ordinary pages: more TLB misses for each packet";
