//! What the table holds, and what it leaves to the kernel.

use crate::Plane;

/// What a [`Plane`] holds, and what it leaves to the kernel.
///
/// ```
/// assert_eq!(plane::Report::default().routes, [0, 0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Routes of the kernel, IPv4 and IPv6.
    pub routes: [usize; 2],
    /// Neighbours that the kernel knows, whether they have answered or not.
    pub neighbours: usize,
    /// Next hops by number.
    pub next_hops: usize,
    /// Changes that have found no room, and wait for it; their packets are the kernel's.
    pub waiting: usize,
    /// Numbers of the ports whose interface is not there: nothing is to come in or leave by them, nor by whatever has become of it.
    pub closed: Vec<usize>,
    /// The VLANs that the kernel has on the interfaces of ports: number of the port and id, in order.
    pub vlans: Vec<(usize, u16)>,
    /// What was met while the kernel was followed; of a [`Plane`] alone there is nothing.
    pub follower: kernel::Counts,
    /// What is or was left to the kernel, and why, and what else a person should know: a line each.
    pub lines: Vec<String>,
}

impl Plane {
    pub(crate) fn make_report(&self) -> Report {
        let (v4, v6) = self.fib.route_counts();
        let (hosts_waiting, [own_v4, own_v6]) = self.hosts.counts();
        let (numbers_waiting, next_hops) = self.numbers.counts();
        let (orphans, failed) = self.routes.counts();
        let mut lines: Vec<String> = Vec::new();
        for (family, reason) in ["IPv4", "IPv6"].into_iter().zip(self.bypass) {
            lines.extend(reason.map(|reason| format!("all of {family} is the kernel's: {reason}")));
        }
        if self.ipsec {
            lines.push("all of IPv4 and IPv6 is the kernel's: there are IPsec policies (`ip xfrm policy`)".to_owned());
        }
        lines.extend(
            self.reasons.iter().map(|reason| format!("{reason}, now or before: their packets are the kernel's")),
        );
        let by = self.ways.interfaces();
        let others: Vec<&str> = self.ports.others(&by).collect();
        if !others.is_empty() {
            let (some, rest) = (&others[..others.len().min(NAMED)], others.len().saturating_sub(NAMED));
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            lines
                .push(format!("routes by {}{more}, where no port is: their packets are the kernel's", some.join(", ")));
        }
        if numbers_waiting > 0 {
            lines.push(format!(
                "{numbers_waiting} next hops, to which {orphans} routes lead: the table has no room for them; make it larger"
            ));
        }
        if hosts_waiting > 0 {
            lines.push(format!("{hosts_waiting} neighbours: the table has no room for them; make it larger"));
        }
        for (family, name) in ["IPv4", "IPv6"].into_iter().enumerate() {
            if self.routes.has_failed(family) {
                lines.push(format!(
                    "all of {name}: the table has no memory for some of its routes; allow this process more"
                ));
            }
        }
        if self.numbers.too_wide {
            lines.push("routes with more than 256 next hops".to_owned());
        }
        for (family, policy) in ["ipv4", "ipv6"].into_iter().zip(self.hash_policies) {
            lines.extend(policy.filter(|policy| *policy > 1).map(|policy| {
                format!("net.{family}.fib_multipath_hash_policy is {policy}, and flows are spread as by 0; set 0 or 1")
            }));
        }
        lines.extend(self.ports.lines());
        lines.extend(self.neighbours.lines());
        lines.iter_mut().for_each(|line| *line = printable(line));
        Report {
            routes: [v4 - own_v4.min(v4), v6 - own_v6.min(v6)],
            neighbours: self.neighbours.len(),
            next_hops,
            waiting: numbers_waiting + hosts_waiting + failed,
            closed: self.ports.closed(),
            vlans: self.ports.vlans_of_ports(),
            follower: kernel::Counts::default(),
            lines,
        }
    }
}

/// A line in which control characters are escaped: names of interfaces may have some.
fn printable(line: &str) -> String {
    let escaped = |char: char| char.is_control().then(|| char.escape_default().to_string());
    line.chars().map(|char| escaped(char).unwrap_or_else(|| char.to_string())).collect()
}

/// Interfaces that a line names at most.
const NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_steer_no_terminal() {
        assert_eq!(printable("routes by \x1b[31mX, ü \"q\""), "routes by \\u{1b}[31mX, ü \"q\"");
    }
}
