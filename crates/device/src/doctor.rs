//! Checks whether a host is ready for its network cards: what makes a run fail, what makes it slow, and what to do
//! about it.
//!
//! Every check reads `/sys`, `/proc` and `/dev` and changes nothing. None needs root; if something can only be seen by
//! root, the finding says so. A missing file tells something only where the kernel leaves it out for a reason: so a
//! check first looks whether the file system is there ([`Host::unseen_sys`], [`Host::unseen_proc`]), and without it the
//! result is [`Verdict::Unknown`].

use crate::remedy::Remedy;
use crate::{Host, PciAddress, PciDevice};

mod cpu;
mod iommu;
mod memory;
mod neighbours;
mod nic;

/// The result of one check.
///
/// ```no_run
/// use device::{Host, Needs, Verdict};
///
/// let host = Host::system();
/// let needs = Needs { devices: host.network_controllers()?, pool: 6 << 20, rings: 4 << 20, ..Needs::default() };
/// for finding in host.examine(&needs).iter().filter(|finding| finding.verdict == Verdict::Breaks) {
///     println!("{}: {}: {}; {}", finding.check, finding.what, finding.effect, finding.remedy);
/// }
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Name of the check, such as `iommu` or `huge pages`.
    pub check: &'static str,
    /// The device that was checked; `None` for the host.
    pub device: Option<PciAddress>,
    /// How good or bad it is.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub what: String,
    /// What it costs or breaks, in one line; empty if nothing.
    pub effect: String,
    /// What to do; may be empty.
    pub remedy: Remedy,
}

/// How good or bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing is wrong.
    Fine,
    /// It cannot be seen: this user may not, or the host or the device does not show it.
    Unknown,
    /// A run works, but is slower or less safe.
    Costs,
    /// A run fails.
    Breaks,
}

/// What will run on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The cards that will be opened.
    pub devices: Vec<PciDevice>,
    /// Size in bytes of packet memory, all of which every card maps.
    pub pool: usize,
    /// Size in bytes of the descriptor rings of each card.
    pub rings: usize,
    /// Page size in bytes of such packet memory when it was allocated as a test, with [`crate::PageSize::Auto`]; `None`
    /// if it was not tested.
    pub tried_page: Option<usize>,
}

impl Host {
    /// Checks the host, and each device of `needs`. Returns the findings, those about the host first.
    #[must_use]
    pub fn examine(&self, needs: &Needs) -> Vec<Finding> {
        let mut findings = vec![iommu::iommu(self), iommu::interrupt_remapping(self), iommu::modules(self)];
        findings.extend(iommu::container(self));
        findings.extend([iommu::lockdown(self), memory::locked(self, needs)]);
        findings.extend(memory::huge_pages(self, needs));
        findings.extend([
            memory::memfd(self, needs),
            cpu::cores(self, needs),
            cpu::hyper_threads(self),
            cpu::quota(self),
            cpu::frequency(self),
            cpu::clock(self),
            cpu::virtual_machine(self),
        ]);
        findings.extend(neighbours::room(self));
        for device in &needs.devices {
            findings.extend(nic::examine(self, device));
        }
        if needs.devices.is_empty() {
            let why = self.unseen_sys().unwrap_or("no supported network card is here");
            let what = format!("{why}: not looked at are its driver, IOMMU group, PCIe link and NUMA node");
            findings.push(unknown("cards", what));
        }
        findings
    }
}

impl Needs {
    /// Bytes that this process locks when every card has mapped the pool and its rings. Cards of one IOMMU group share a
    /// mapping of the pool; this counts it for each, as an upper bound.
    fn locked(&self) -> usize {
        let each = self.pool.next_multiple_of(PAGE) + self.rings.next_multiple_of(PAGE);
        each * self.devices.len().max(1)
    }

    /// Huge pages of 2 MiB for the pool and all rings.
    fn huge_pages(&self) -> usize {
        self.pool.div_ceil(PAGE) + self.rings.div_ceil(PAGE) * self.devices.len()
    }
}

const PAGE: usize = 2 << 20;

fn fine(check: &'static str, what: impl Into<String>) -> Finding {
    finding(check, Verdict::Fine, what, "", Remedy::default())
}

fn unknown(check: &'static str, what: impl Into<String>) -> Finding {
    finding(check, Verdict::Unknown, what, "", Remedy::default())
}

fn costs(check: &'static str, what: impl Into<String>, effect: impl Into<String>, remedy: Remedy) -> Finding {
    finding(check, Verdict::Costs, what, effect, remedy)
}

fn breaks(check: &'static str, what: impl Into<String>, effect: impl Into<String>, remedy: Remedy) -> Finding {
    finding(check, Verdict::Breaks, what, effect, remedy)
}

fn finding(
    check: &'static str,
    verdict: Verdict,
    what: impl Into<String>,
    effect: impl Into<String>,
    remedy: Remedy,
) -> Finding {
    Finding { check, device: None, verdict, what: what.into(), effect: effect.into(), remedy }
}

/// `one` or `many`, with the number in front: "1 core", "2 cores".
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_and_what_is_reserved() {
        let mut needs = Needs { pool: 5 << 20, rings: 16 << 10, ..Needs::default() };
        assert_eq!((needs.locked(), needs.huge_pages()), (8 << 20, 3));
        let root = Host::at("/nowhere");
        assert!(root.examine(&needs).iter().any(|finding| finding.check == "cards"));
        needs.rings = 4 << 20;
        assert_eq!(needs.locked(), 10 << 20);
    }
}
