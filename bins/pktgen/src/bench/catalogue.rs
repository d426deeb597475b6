//! The experiments, and the figures of the documents that have them.

use super::placement;
use crate::page::scale::number;
use cli::args::Pages;

/// An experiment.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What is changed, with its unit.
    pub(crate) what: &'static str,
    pub(crate) points: &'static [u32],
    /// What points from 1 on are called, if their numbers do not say it.
    pub(crate) names: &'static [&'static str],
    /// Points that are compared with each other, if not all are with all.
    pub(crate) pairs: &'static [[u32; 2]],
    /// Why `pktgen` cannot do it by itself.
    pub(crate) cannot: Option<&'static str>,
    /// What a document says, or that it has no figures.
    pub(crate) words: &'static str,
    pub(crate) published: &'static [Published],
    /// What ours lets one conclude.
    pub(crate) conclusion: &'static str,
}

/// A figure of a document.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// Where it is.
    pub(crate) place: &'static str,
}

const fn figure(what: &'static str, value: f64, unit: &'static str, place: &'static str) -> Published {
    Published { what, value, unit, place }
}

/// Names of all, in their order.
pub(crate) const NAMES: [&str; 9] = ["batch", "rings", "pages", "sizes", "flows", "lcores", "numa", "ovs", "latency"];

const ONE_CORE: &str = "white paper, table 5-12, one core";
const TWO_CORES: &str = "white paper, table 5-12, two cores";
const SOCKETS: &str = "white paper, table 5-15, 66 bytes";
const OVS: &str = "OVS-DPDK notes, table of results";
const KERNEL: &str = "AWS blog, latency test, kernel";
const BYPASS: &str = "AWS blog, latency test, bypass";
const SOFT: &str = "Both ends run on this machine, and software NICs take most of the time: compare the points with each other, not with \
                    the document's.";

/// Pages by the size of one in KiB.
pub(super) fn pages(kibibytes: u32) -> Pages {
    match kibibytes {
        4 => Pages::Ordinary,
        2048 => Pages::Huge2M,
        _ => Pages::Huge1G,
    }
}

impl Experiment {
    /// What a point is called.
    pub(super) fn name_of(&self, point: u32) -> String {
        let name = usize::try_from(point).ok().and_then(|point| self.names.get(point.checked_sub(1)?));
        name.map_or_else(|| number(point.into(), 0), |name| (*name).to_owned())
    }
}

/// All of them.
pub(crate) const ALL: &[Experiment] = &[
    Experiment {
        name: "batch",
        title: "Batch size",
        what: "packets of a burst",
        points: &[1, 2, 4, 8, 16, 32, 64, 128, 256],
        names: &[],
        pairs: &[],
        cannot: None,
        words: "Bursts are the main lever; gains end where they leave the first cache (ixy, 5.2 and figure 4, whose values are drawn only).",
        published: &[figure("saved from 1 to 32 packets", 300.0, "cycles a packet", "ixy, section 5.3")],
        conclusion: SOFT,
    },
    Experiment {
        name: "rings",
        title: "Ring sizes",
        what: "descriptors of each ring",
        points: &[64, 128, 256, 512, 1024, 2048, 4096],
        names: &[],
        pairs: &[],
        cannot: None,
        words: "Above 64 descriptors throughput does not change, and latency under overload grows in proportion to the ring (ixy, 5.4, figure 5 \
                and table 2, whose values are drawn only).",
        published: &[],
        conclusion: "The latency is that of frames which wait in full rings. Software NICs take most of the time of a frame.",
    },
    Experiment {
        name: "pages",
        title: "Page sizes",
        what: "size of a page, KiB",
        points: &[4, 2048],
        names: &[],
        pairs: &[],
        cannot: None,
        words: "Huge pages bring little in a driver (ixy, 5.5), and larger huge pages nothing in a router (thesis, table 4.7).",
        published: &[
            figure("gain at 4,096 descriptors", 5.5, "%", "ixy, section 5.5, figure 6"),
            figure("gain at fewer, at least", 1.0, "%", "ixy, section 5.5"),
            figure("gain at fewer, at most", 3.0, "%", "ixy, section 5.5"),
            figure("256 and 256 pages", 14_547_496.0, "pps", "thesis, table 4.7"),
            figure("512 and 512 pages", 14_493_152.0, "pps", "thesis, table 4.7"),
        ],
        conclusion: SOFT,
    },
    Experiment {
        name: "sizes",
        title: "Frame sizes",
        what: "frame size with check sequence, bytes",
        points: &[64, 128, 256, 512, 1024, 1280, 1518],
        names: &[],
        pairs: &[],
        cannot: None,
        words: "Load without loss of two ports of 10 Gbit/s, as a share of the line, for l3fwd on one core and on two.",
        published: &[
            figure("66 bytes", 74.138, "% of line", ONE_CORE),
            figure("128 bytes", 99.601, "% of line", ONE_CORE),
            figure("1024 bytes", 99.618, "% of line", ONE_CORE),
            figure("66 bytes, two cores", 93.478, "% of line", TWO_CORES),
            figure("128 bytes, two cores", 99.601, "% of line", TWO_CORES),
            figure("1024 bytes, two cores", 99.618, "% of line", TWO_CORES),
        ],
        conclusion: SOFT,
    },
    Experiment {
        name: "flows",
        title: "Flows",
        what: "flows in turn",
        points: &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
        names: &[],
        pairs: &[],
        cannot: None,
        words: "The white paper measures with 20,000 flows each way, and with no other number.",
        published: &[],
        conclusion: "Without a device between the ports flows can change the generator alone, whose headers may leave the caches.",
    },
    Experiment {
        name: "lcores",
        title: "Which lcore does what",
        what: "lcores",
        points: &[placement::ONE_FOR_ALL, placement::SIBLING, placement::ANOTHER_CORE],
        names: &["one for all", "another core for the NICs", "a sibling thread for the NICs"],
        pairs: &[],
        cannot: None,
        words: "A router that shares its lcore with the port that sends forwards half, on its sibling thread two thirds.",
        published: &[
            figure("1, 2, 1", 14_515_368.0, "pps", "thesis, table 4.4"),
            figure("1, 2, 2", 7_103_306.0, "pps", "thesis, table 4.4"),
            figure("1, 2, 3", 14_522_364.0, "pps", "thesis, table 4.4"),
            figure("1, 2, 10", 10_513_348.0, "pps", "thesis, table 4.4"),
            figure("1, 9, 1", 10_687_519.0, "pps", "thesis, table 4.6"),
            figure("1, 9, 9", 7_276_288.0, "pps", "thesis, table 4.6"),
        ],
        conclusion: "Here generator and receiver share their lcore with both software NICs, or leave them the other thread of \
                     their core, or another core; a virtual machine may not say which lcores are threads of one core. The document's lcores are \
                     those of port 0, port 1 and a router, with cards that need none: compare the shares, not the rates.",
    },
    Experiment {
        name: "numa",
        title: "NUMA nodes",
        what: "where NIC and core are",
        points: &[],
        names: &[],
        pairs: &[],
        cannot: Some("it needs a card on each of two NUMA nodes"),
        words: "With small frames, cards and cores on different sockets cost 18 to 30 % of the load (white paper); lcores on two nodes cost nothing (thesis).",
        published: &[
            figure("same socket", 93.478, "% of line", SOCKETS),
            figure("core on the other socket", 65.152, "% of line", SOCKETS),
            figure("NIC on the other socket", 76.786, "% of line", SOCKETS),
            figure("lcores on one node (1, 2, 1)", 14_515_368.0, "pps", "thesis, table 4.4"),
            figure("sender on the other node (1, 5, 1)", 14_600_020.0, "pps", "thesis, table 4.5"),
        ],
        conclusion: "",
    },
    Experiment {
        name: "ovs",
        title: "Open vSwitch between virtio ports",
        what: "frame size and flow",
        points: &[1, 2, 3, 4],
        names: &["64, NORMAL", "64, port flow", "1500, NORMAL", "1500, port flow"],
        pairs: &[[1, 2], [3, 4]],
        cannot: None,
        words: "A flow from port to port instead of the NORMAL action more than doubles small frames.",
        published: &[
            figure("64 bytes, NORMAL", 6_284_600.0, "pps", OVS),
            figure("64 bytes, port flow", 16_353_825.0, "pps", OVS),
            figure("64 bytes, and postcopy support", 16_846_890.0, "pps", OVS),
            figure("1500 bytes, NORMAL", 3_572_386.0, "pps", OVS),
            figure("1500 bytes, port flow", 7_380_556.0, "pps", OVS),
            figure("1500 bytes, and postcopy support", 8_045_142.0, "pps", OVS),
        ],
        conclusion: "The switch's poller has the last lcore of this machine, and generator and receiver have the others: of one direction, while the other has as much to do.",
    },
    Experiment {
        name: "latency",
        title: "Latency by the kernel and past it",
        what: "figure of 100 pings",
        points: &[1, 2, 3, 4, 5, 6],
        names: &["kernel, mean", "bypass, mean", "kernel, p99", "bypass, p99", "kernel, most", "bypass, most"],
        pairs: &[[1, 2], [3, 4], [5, 6]],
        cannot: None,
        words: "A user-space stack on a card saves a quarter of the round trip.",
        published: &[
            figure("kernel, mean", 0.186, "ms", KERNEL),
            figure("bypass, mean", 0.140, "ms", BYPASS),
            figure("kernel, p99", 0.207, "ms", KERNEL),
            figure("bypass, p99", 0.161, "ms", BYPASS),
            figure("kernel, most", 0.277, "ms", KERNEL),
            figure("bypass, most", 0.161, "ms", BYPASS),
        ],
        conclusion: "The kernel of this machine answers both, over a veth pair, and over a TAP interface that a software NIC reads and writes in \
                     a thread of its own: no wire, and no card that one could bypass the kernel to. With those: pktgen ping PORT HOST --kernel.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_name_and_points_or_a_reason() {
        assert_eq!(ALL.iter().map(|one| one.name).collect::<Vec<_>>(), NAMES);
        for one in ALL {
            assert_ne!(one.points.is_empty(), one.cannot.is_none(), "{}", one.name);
            assert!(one.names.is_empty() || one.names.len() == one.points.len(), "{}", one.name);
            assert!(one.cannot.is_none() || !one.published.is_empty(), "{}", one.name);
            assert!(one.pairs.as_flattened().iter().all(|point| one.points.contains(point)), "{}", one.name);
        }
    }
}
