//! The kernel's neighbour tables, out of which a router by the kernel's tables (`fwd l3 --kernel`) forwards.

use super::{costs, fine};
use crate::remedy::Remedy;
use crate::{Finding, Host};

const CHECK: &str = "neighbours";

/// Whether there is room for further neighbours; `None` where the kernel does not show it, as in a network namespace.
pub(super) fn room(host: &Host) -> Option<Finding> {
    let tables: Vec<Table> = FAMILIES.iter().filter_map(|family| Table::read(host, *family)).collect();
    if tables.is_empty() {
        return None;
    }
    let what: Vec<String> = tables.iter().map(Table::describe).collect();
    let short: Vec<&Table> = tables.iter().filter(|table| table.is_short()).collect();
    if short.is_empty() {
        return Some(fine(CHECK, what.join(", ")));
    }
    let effect = "Linux does not find hosts beyond that, so fwd l3 --kernel does not reach them";
    let raise = |remedy: Remedy, table: &&Table| {
        let limit = table.limit.max(table.entries).saturating_mul(4);
        remedy.then(format!("sudo sysctl -w net.{}.neigh.default.gc_thresh3={limit}", table.family))
    };
    let remedy = short.iter().fold(Remedy::words("let the tables be larger, until the next boot"), raise);
    Some(costs(CHECK, what.join(", "), effect, remedy))
}

/// A family's name in `/proc/sys/net`, and the file with the figures of its table.
const FAMILIES: [(&str, &str, &str); 2] = [("IPv4", "ipv4", "arp_cache"), ("IPv6", "ipv6", "ndisc_cache")];

struct Table {
    name: &'static str,
    family: &'static str,
    entries: u64,
    limit: u64,
    /// How often it was full, since the boot.
    fulls: u64,
}

impl Table {
    fn read(host: &Host, (name, family, file): (&'static str, &'static str, &str)) -> Option<Self> {
        let limit = host.proc(format!("sys/net/{family}/neigh/default/gc_thresh3"));
        let limit = host.read(&limit).ok()?.parse().ok()?;
        // A line of names, then one of hexadecimal numbers for each processor; all show the same number of entries.
        let text = host.read(&host.proc(format!("net/stat/{file}"))).ok()?;
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next()?.split_whitespace().collect();
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
        let column = |name: &str| {
            let at = names.iter().position(|other| *other == name)?;
            let numbers = lines.iter().filter_map(|line| u64::from_str_radix(line.get(at)?, 16).ok());
            Some(numbers.collect::<Vec<_>>())
        };
        let entries = column("entries")?.into_iter().max()?;
        let fulls = column("table_fulls").unwrap_or_default().into_iter().fold(0, u64::saturating_add);
        Some(Self { name, family, entries, limit, fulls })
    }

    /// Nine tenths are taken, or there was no room once.
    fn is_short(&self) -> bool {
        self.entries >= self.limit - self.limit / 10 || self.fulls > 0
    }

    fn describe(&self) -> String {
        let Self { name, entries, limit, fulls, .. } = self;
        let full = if *fulls > 0 { format!(" ({fulls} times there was no room)") } else { String::new() };
        format!("{entries} of {name} of at most {limit}{full}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    const LIMITS: [&str; 2] =
        ["proc/sys/net/ipv4/neigh/default/gc_thresh3", "proc/sys/net/ipv6/neigh/default/gc_thresh3"];
    const STATS: [&str; 2] = ["proc/net/stat/arp_cache", "proc/net/stat/ndisc_cache"];

    /// As two processors show it.
    fn stat(entries: u64, fulls: [u64; 2]) -> String {
        let line = |fulls| format!("{entries:08x} 00001178 {fulls:08x}\n");
        format!("entries  allocs   table_fulls\n{}{}", line(fulls[0]), line(fulls[1]))
    }

    fn found(v4: &str, v6: &str) -> Option<Finding> {
        let (_folder, host) =
            Host::made(&[(LIMITS[0], "1024\n"), (LIMITS[1], "512\n"), (STATS[0], v4), (STATS[1], v6)]);
        room(&host)
    }

    #[test]
    fn a_table_that_is_nearly_full_is_named_with_a_command() {
        let roomy = found(&stat(921, [0, 0]), &stat(460, [0, 0])).unwrap();
        assert_eq!(
            (roomy.verdict, &*roomy.what),
            (Verdict::Fine, "921 of IPv4 of at most 1024, 460 of IPv6 of at most 512")
        );

        let short = found(&stat(922, [0, 0]), &stat(3, [0, 0])).unwrap();
        assert_eq!(short.verdict, Verdict::Costs);
        assert_eq!(short.remedy.commands, ["sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=4096"]);
    }

    #[test]
    fn a_table_that_was_full_once_is_named_by_all_processors() {
        let full = found(&stat(2, [0, 0]), &stat(2, [3, 0x10])).unwrap();
        assert_eq!((full.verdict, full.remedy.commands.len()), (Verdict::Costs, 1));
        assert_eq!(full.what, "2 of IPv4 of at most 1024, 2 of IPv6 of at most 512 (19 times there was no room)");
        assert_eq!(full.remedy.commands, ["sudo sysctl -w net.ipv6.neigh.default.gc_thresh3=2048"]);
    }

    #[test]
    fn where_the_kernel_shows_no_table_there_is_no_finding() {
        let (_folder, host) = Host::made(&[(STATS[0], &stat(2, [0, 0]))]);
        assert_eq!(room(&host), None);
        assert_eq!(found("", "entries\n"), None);
        assert_eq!(found("allocs\n1\n", "entries\nx\n"), None);
    }
}
