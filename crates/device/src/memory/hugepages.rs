//! Counts of huge pages, and what to tell a user when they are too few
//! (Linux `Documentation/admin-guide/mm/hugetlbpage.rst`).

use super::human;
use crate::remedy::Remedy;
use crate::{Error, Host, Result};
use std::io;
use std::path::PathBuf;

/// One size of huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugePages {
    /// Bytes of one page.
    pub(crate) bytes: usize,
}

impl HugePages {
    pub(crate) const TWO_MIB: Self = Self { bytes: 2 << 20 };
    pub(crate) const ONE_GIB: Self = Self { bytes: 1 << 30 };

    #[cfg(not(miri))]
    pub(crate) fn memfd_flag(self) -> rustix::fs::MemfdFlags {
        if self == Self::ONE_GIB { rustix::fs::MemfdFlags::HUGE_1GB } else { rustix::fs::MemfdFlags::HUGE_2MB }
    }

    /// How many pages exist and how many of them nobody has taken or reserved; `None` where the kernel has no such pages.
    pub(crate) fn counts(self, host: &Host, node: Option<u32>) -> Option<Counts> {
        let folder = self.folder(host, node);
        let read = |name: &str| host.read(&folder.join(name)).ok()?.parse::<usize>().ok();
        let reserved = read("resv_hugepages").unwrap_or(0);
        Some(Counts { total: read("nr_hugepages")?, free: read("free_hugepages")?.saturating_sub(reserved) })
    }

    /// The error for `wanted` pages that were not to be had.
    pub(crate) fn shortage(self, host: &Host, wanted: usize, node: Option<u32>, source: &io::Error) -> Error {
        let size = human(self.bytes);
        let place = node.map_or(String::new(), |node| format!(" on NUMA node {node}"));
        let object = format!("{wanted} huge pages of {size}{place}");
        let Some(counts) = self.counts(host, node) else {
            let sys = host.sys("kernel");
            if !sys.exists() {
                let cause =
                    format!("the kernel refused them ({source}), and without /sys nobody knows how many are free");
                return Error::unusable(object, cause, "mount /sys, or use ordinary pages");
            }
            return Error::unusable(object, format!("this kernel has no {size} pages"), "use another page size");
        };
        if counts.free >= wanted {
            let cause = format!("{} are free, yet the kernel refused them ({source})", counts.free);
            let hint = "look at the hugetlb limit of this control group, and at the free pages of each NUMA node";
            return Error::unusable(object, cause, hint);
        }
        let cause = format!("{} of {wanted} huge pages of {size} are free{place}", counts.free);
        let total = counts.total.saturating_add(wanted - counts.free);
        Error::unusable(object, cause, self.reserve(node, total))
    }

    /// Reserves huge pages until there are `total`.
    pub(crate) fn reserve(self, node: Option<u32>, total: usize) -> Remedy {
        let command = match node {
            None if self == Self::TWO_MIB => format!("sudo sysctl vm.nr_hugepages={total}"),
            _ => {
                let file = self.folder(&Host::system(), node).join("nr_hugepages");
                format!("echo {total} | sudo tee {}", file.display())
            }
        };
        Remedy::command("reserve with", command)
    }

    fn folder(self, host: &Host, node: Option<u32>) -> PathBuf {
        let pages = format!("hugepages-{}kB", self.bytes >> 10);
        match node {
            None => host.sys("kernel/mm/hugepages").join(pages),
            Some(node) => host.sys(format!("devices/system/node/node{node}/hugepages")).join(pages),
        }
    }
}

/// Huge pages of one size, on the host or on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: usize,
    pub(crate) free: usize,
}

/// An error unless the host has this NUMA node.
pub(crate) fn check_node(host: &Host, node: u32) -> Result<()> {
    if cfg!(miri) || host.sys(format!("devices/system/node/node{node}")).exists() {
        return Ok(());
    }
    let online = host.read(&host.sys("devices/system/node/online")).unwrap_or_else(|_| "0".into());
    Err(Error::unusable(format!("NUMA node {node}"), "this host has no such node", format!("it has {online}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_with(
        pages: HugePages,
        node: Option<u32>,
        total: &str,
        free: &str,
        reserved: &str,
    ) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        let host = Host::at(root.path());
        let folder = pages.folder(&host, node);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, value) in [("nr_hugepages", total), ("free_hugepages", free), ("resv_hugepages", reserved)] {
            std::fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        (root, host)
    }

    fn shortage(pages: HugePages, host: &Host, node: Option<u32>) -> String {
        pages.shortage(host, 32, node, &io::Error::from_raw_os_error(libc::ENOMEM)).to_string()
    }

    #[test]
    fn a_shortage_names_wanted_free_and_the_command() {
        let (_root, host) = host_with(HugePages::TWO_MIB, None, "10", "5", "2");
        let text = shortage(HugePages::TWO_MIB, &host, None);
        assert!(text.contains("3 of 32 huge pages of 2 MiB are free"), "{text}");
        assert!(text.contains("sudo sysctl vm.nr_hugepages=39"), "{text}");
    }

    #[test]
    fn a_shortage_on_a_node_names_the_node_and_its_file() {
        let (_root, host) = host_with(HugePages::ONE_GIB, Some(1), "0", "0", "0");
        let text = shortage(HugePages::ONE_GIB, &host, Some(1));
        assert!(text.contains("0 of 32 huge pages of 1 GiB are free on NUMA node 1"), "{text}");
        let command = "echo 32 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages";
        assert!(text.contains(command), "{text}");
    }

    #[test]
    fn enough_free_pages_point_to_the_control_group() {
        let (_root, host) = host_with(HugePages::TWO_MIB, None, "64", "64", "0");
        assert!(shortage(HugePages::TWO_MIB, &host, None).contains("control group"));
    }

    #[test]
    fn a_kernel_without_the_size_is_named() {
        let (_root, host) = host_with(HugePages::TWO_MIB, None, "64", "64", "0");
        let text = shortage(HugePages::ONE_GIB, &host, None);
        assert!(text.contains("this kernel has no 1 GiB pages"), "{text}");
    }

    #[test]
    fn without_sysfs_nothing_is_said_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let text = shortage(HugePages::TWO_MIB, &Host::at(root.path()), None);
        assert!(text.contains("without /sys nobody knows how many are free"), "{text}");
    }
}
