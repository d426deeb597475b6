//! What is sent.

use super::{Pace, hosting, mac};
use crate::frames::Speed;
use cli::exit::Failure;
use measure::{Kind, Load};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use stream::Sizes;

/// The frames, and how fast they are sent.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TrafficArgs {
    #[command(flatten)]
    pub(crate) pace: Pace,

    /// Bytes of frames, without the 4 of their check sequence: a number, several in turn (60,566), a range (60-1514), a mix
    /// (60*7,566*4,1514), imix or simple-imix
    #[arg(long, value_name = "SIZES", default_value = "60")]
    pub(crate) size: Sizes,

    /// Frames that a file of stream definitions (TOML) describes, in place of --size, --flows and --dst-ip. Streams with a rate of their own
    /// are paced by it; all others take turns by their weight, at --rate
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "flows", "dst_ip"])]
    pub(crate) stream: Option<PathBuf>,

    /// Frames of a capture (pcap, pcapng), as they are, in place of --size, --flows and --stream. Without --rate they keep its times
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "flows", "stream"])]
    pub(crate) pcap: Option<PathBuf>,

    /// Replay the capture so many times faster (0.5, 2), or max for as fast as the port takes it
    #[arg(long, value_name = "FACTOR", requires = "pcap", conflicts_with = "rate")]
    pub(crate) pcap_speed: Option<Speed>,

    /// Replay the capture so often (1 for once); without it until --duration or --count is over
    #[arg(long, value_name = "N", requires = "pcap", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) pcap_turns: Option<u64>,

    /// Where random fields of streams begin; the same number gives the same frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// What frames carry at their end: short (8 bytes: stream and number) or full (14: and the due time, for latency from it) [default: full; for a
    /// capture none, where a tag is put behind its frames]
    #[arg(long, value_name = "TAG", value_parser = kind)]
    pub(crate) tag: Option<Kind>,

    /// MAC addresses that frames are for: of the next hop of A, then of B, or of the two of each pair; of more ports one for each, in their
    /// order. Without it those of the other port (for tx 02:00:00:00:00:02). Of a capture, only its probes are
    #[arg(long, value_name = "MAC,MAC", value_delimiter = ',', value_parser = mac)]
    pub(crate) dst_mac: Vec<[u8; 6]>,

    /// IPv4 or IPv6 addresses that frames are for: of those that A sends, then B, or the two of each pair; of more ports one for each, in their
    /// order
    #[arg(long, value_name = "ADDRESS,ADDRESS", value_delimiter = ',', default_value = "198.19.0.1")]
    pub(crate) dst_ip: Vec<IpAddr>,

    /// Flows to send in turn each way, up to 1048576; they differ in the source address, from that of --answer or 198.18.0.1 or 2001:2::1 upwards, and above
    /// 65,534 in the source port too
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) flows: u64,

    /// Addresses that ports answer for (`--answer`): of the first, of the second, ...
    #[arg(skip)]
    pub(crate) own: Vec<Vec<IpAddr>>,
}

impl TrafficArgs {
    /// Frames of UDP of one size, at a rate.
    pub(crate) fn constant(size: Sizes, rate: Load, line: Option<u64>) -> Self {
        Self {
            pace: Pace { rate: vec![rate], line, ..Pace::default() },
            size,
            stream: None,
            pcap: None,
            pcap_speed: None,
            pcap_turns: None,
            seed: 1,
            tag: None,
            dst_mac: Vec::new(),
            dst_ip: Vec::new(),
            flows: 1,
            own: Vec::new(),
        }
    }

    /// What frames carry; frames of a capture nothing unless they are told to.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.tag.or(self.pcap.is_none().then_some(Kind::Full))
    }

    /// The MAC address that frames of a port are for, if one is given.
    pub(crate) fn dst_mac(&self, port: usize) -> Option<[u8; 6]> {
        of_port(&self.dst_mac, port).copied()
    }

    /// The IP address that frames of a port come from, in its first flow, if they are for this one: a router that looks where frames
    /// come from (RFC 3704) takes those of its network.
    pub(crate) fn src_ip(&self, port: usize, destination: IpAddr) -> IpAddr {
        let own = self.own.get(port).into_iter().flatten().find(|own| own.is_ipv4() == destination.is_ipv4());
        own.copied().unwrap_or(match destination {
            IpAddr::V4(_) => Ipv4Addr::new(198, 18, 0, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
        })
    }

    /// The IP address that frames of a port are for.
    pub(crate) fn dst_ip(&self, port: usize) -> IpAddr {
        let first = Ipv4Addr::new(198, 19, 0, 1).into();
        of_port(&self.dst_ip, port).copied().unwrap_or(first)
    }

    /// Refuses addresses of which nobody can say which port they are of.
    pub(crate) fn check(&self, ports: usize) -> Result<(), Failure> {
        for (option, given) in [("--dst-mac", self.dst_mac.len()), ("--dst-ip", self.dst_ip.len())] {
            hosting::fits(option, given, ports)?;
            if given > 2 && given < ports {
                let way = "give one for all, two for the ports of each pair, or one for each port";
                return Err(Failure::usage(format!("{option}: there are {given} of them for {ports} ports; {way}")));
            }
        }
        Ok(())
    }
}

/// Which of the values of an option is that of a port: of one it is that, of two those of a pair have one each, of more each port.
fn of_port<T>(values: &[T], port: usize) -> Option<&T> {
    let index = if values.len() > 2 { port } else { port % 2 };
    values.get(index).or(values.last())
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "short" => Ok(Kind::Short),
        "full" => Ok(Kind::Full),
        _ => Err("write short or full".to_owned()),
    }
}
