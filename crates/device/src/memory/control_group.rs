//! What a control group lets its processes have (Linux `Documentation/admin-guide/cgroup-v2.rst`, and `cgroup-v1/memory.rst`):
//! whoever takes more is killed.

use crate::Host;
use std::path::Path;

/// Bytes that this process may still take, of the group that leaves least of those it is in. `None` without a limit, or if it
/// cannot be seen.
pub(super) fn left(host: &Host) -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    let groups = host.read(&host.proc("self/cgroup")).ok()?;
    groups.lines().filter_map(|line| of_hierarchy(host, line)).min()
}

/// The same of one line of `/proc/self/cgroup`, which is `number:controllers:path`.
fn of_hierarchy(host: &Host, line: &str) -> Option<usize> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (root, limit, usage, cached) = match controllers {
        "" => ("fs/cgroup", "memory.max", "memory.current", ["inactive_file ", "active_file "]),
        "memory" => (
            "fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ["total_inactive_file ", "total_active_file "],
        ),
        _ => return None,
    };
    let root = host.sys(root);
    let number = |folder: &Path, name: &str| host.read(&folder.join(name)).ok()?.trim().parse::<usize>().ok();
    // In a container the path may be that of the host, where only the root can be seen.
    let groups = Path::new(path.trim_start_matches('/')).ancestors().map(|group| root.join(group));
    let left = groups.filter_map(|group| {
        let (limit, usage) = (number(&group, limit)?, number(&group, usage)?);
        let stat = host.read(&group.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().filter_map(|line| {
            let value = cached.iter().find_map(|name| line.strip_prefix(name))?;
            value.trim().parse::<usize>().ok()
        });
        // The kernel takes from the page cache before it kills.
        Some(limit.saturating_sub(usage.saturating_sub(cached.sum())))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts_and_the_page_cache_does_not() {
        let (_root, host) = Host::made(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "900\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300\nactive_file 50\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "10\n"),
        ]);
        assert_eq!(left(&host), Some(450));
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let (_root, host) = Host::made(&[
            ("proc/self/cgroup", "4:memory:/not/to/be/seen\n1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "96\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 0\n"),
        ]);
        assert_eq!(left(&host), Some(4000));
    }

    #[test]
    fn without_a_limit_there_is_none() {
        let (_root, host) = Host::made(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!(left(&host), None);
        assert_eq!(left(&Host::at("/nowhere")), None);
    }
}
