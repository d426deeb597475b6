//! `pktgen rfc2544` and `pktgen report`.

use super::Hosting;
use super::run::{Expectations, seconds};
use super::{Around, RunArgs, TrafficArgs, mac};
use cli::args::PortOptions;
use cli::human::grouped;
use measure::Load;
use nic::Address;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use stream::Sizes;
use trial::{Goal, Profile};

/// Bytes of the check sequence, which sizes of RFC 2544 include.
const FCS: u16 = 4;
/// The smallest frame with check sequence that has room for a full tag in UDP over IPv6.
const SMALLEST_IPV6: u16 = 80;
/// Flows of the white paper of IXIA that sizes of that name are from.
const WHITEPAPER_FLOWS: u64 = 20_000;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Rfc2544Args {
    /// The two ports that the device under test lies between
    #[arg(long, required = true, value_name = "A,B", value_delimiter = ',')]
    pub(crate) ports: Vec<Address>,

    /// Only from A to B; else both ways at once at the same rate, of which the worse counts
    #[arg(long)]
    pub(crate) one_way: bool,

    /// Bytes of frames with the 4 of their check sequence: rfc2544 (64 to 1518), jumbo (and up to 9216), whitepaper (66, 128, 256, 512,
    /// 1024, with 20,000 flows), imix (a mix, as one size), or numbers (64,1518)
    #[arg(long, value_name = "SIZES", default_value = "rfc2544")]
    pub(crate) sizes: Chosen,

    /// Send IPv6 (RFC 5180); 80 bytes take the place of 64 and 66, which have no room for it
    #[arg(long)]
    pub(crate) ipv6: bool,

    /// Times and repetitions: short (about a minute and a half a size), or those of RFC 2544 (hours), which searches without loss by halves
    #[arg(long, value_name = "NAME", default_value = "short")]
    profile: Named,

    /// What to measure; forwarding at the highest load (RFC 2285) is always measured, and throughput where another test needs it
    #[arg(long, value_name = "TESTS", value_delimiter = ',', default_value = "throughput,latency,loss,back-to-back")]
    pub(crate) tests: Vec<Test>,

    /// Folder to write, which must not have results yet; each trial is in it as soon as it has ended [default: rfc2544-results]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Folder of an earlier run with the same options, to go on with; more sizes or tests may be asked for. What differs is refused: ports and
    /// their settings, line, bounds, addresses, options of ports, profile; of those that an older pktgen has not written down nothing is
    /// known, and they are taken for equal
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,

    /// Speed of the line in bit/s: the highest rate, and what percentages are of [default: that of the slower link; for software
    /// and virtual ports, what they send at most]
    #[arg(long, value_name = "BPS", value_parser = super::pace::bits)]
    pub(crate) line: Option<u64>,

    /// Lowest rate of the throughput search, in frames a second each way [default: a 10,000th of the highest, at least 10 frames a trial]
    #[arg(long, value_name = "RATE", value_parser = frames)]
    pub(crate) min: Option<f64>,

    /// Highest rate of all tests, in frames a second each way; nothing is sent faster, by the highest load neither [default: that of the line,
    /// or what the ports send at most]
    #[arg(long, value_name = "RATE", value_parser = frames)]
    pub(crate) max: Option<f64>,

    /// How exactly the throughput is searched, in percent of it [default: 0.5]
    #[arg(long, value_name = "PERCENT", value_parser = width)]
    width: Option<f64>,

    /// Time of each trial in place of the profile's (100ms, 10s); trials of latency and of the highest load have whole seconds, at least 1
    #[arg(long, value_name = "TIME", value_parser = trial_time)]
    trial_time: Option<Duration>,

    /// How often latency, back-to-back frames, recovery and the highest load are measured, and how many trials decide about a rate of the throughput
    /// search (in that of --profile rfc2544 one always does), in place of the profile's numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,

    /// Flows to send in turn each way [default: 1; for whitepaper 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    flows: Option<u64>,

    /// MAC addresses that frames are for: of the next hop of A, then of B; without it those of the other port
    #[arg(long, value_name = "MAC,MAC", value_delimiter = ',', value_parser = mac)]
    dst_mac: Vec<[u8; 6]>,

    /// IP addresses that frames are for: of those that A sends, then B
    #[arg(long, value_name = "ADDRESS,ADDRESS", value_delimiter = ',')]
    pub(crate) dst_ip: Vec<IpAddr>,

    #[command(flatten)]
    hosting: Hosting,

    /// How late a frame may be sent (100us, 10ms); what is later is missed, and more than 0.1 % of that makes a trial void. What is late comes in
    /// bursts, which the device needs room for: where that may be why frames were lost, the trial is void, too
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = super::pace::time)]
    catch_up: Duration,

    /// What pktgen calibrate has measured: the report shows it beside the latencies, and subtracts nothing
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) floor: Option<PathBuf>,

    /// Print one JSON object at the end, on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ReportArgs {
    /// Folders that rfc2544 has written
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,

    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,

    /// Print comma-separated values with a header
    #[arg(long)]
    pub(crate) csv: bool,

    /// Write a page with drawings into a file, in place of what is printed: one file without script, for screen and paper.
    /// A file that is there is replaced only if it is a page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"])]
    pub(crate) html: Option<PathBuf>,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Test {
    Throughput,
    Latency,
    Loss,
    BackToBack,
    Recovery,
}

impl Test {
    /// Its name in a report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Loss => "loss",
            Self::BackToBack => "back-to-back",
            Self::Recovery => "recovery",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Named {
    Short,
    Rfc2544,
}

/// Frames of a size, or a mix.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// Bytes with check sequence; of a mix, on average.
    pub(crate) bytes: u32,
    pub(crate) sizes: Sizes,
}

/// The sizes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    name: &'static str,
    bytes: Vec<u16>,
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rfc2544 = [64, 128, 256, 512, 1024, 1280, 1518];
        let named = |name, bytes: &[u16]| Ok(Self { name, bytes: bytes.to_vec() });
        match text {
            "rfc2544" => named("rfc2544", &rfc2544),
            "jumbo" => named("jumbo", &[&rfc2544[..], &[2048, 4096, 8192, 9216]].concat()),
            "whitepaper" => named("whitepaper", &[66, 128, 256, 512, 1024]),
            "imix" => named("imix", &[]),
            list => {
                let one = |word: &str| word.parse().ok().filter(|size| (64..=stream::LARGEST + FCS).contains(size));
                let bytes: Option<Vec<u16>> = list.split(',').map(one).collect();
                let what = format!(
                    "write rfc2544, jumbo, whitepaper, imix, or sizes of 64 to {} with check sequence, such as 64,1518",
                    stream::LARGEST + FCS
                );
                let bytes = bytes.ok_or(what)?;
                match (1..bytes.len()).find(|at| bytes[..*at].contains(&bytes[*at])) {
                    Some(at) => Err(format!("{} is there twice", bytes[at])),
                    None => Ok(Self { name: "", bytes }),
                }
            }
        }
    }
}

/// Seconds of the longest search that a profile may have.
const LONGEST_SEARCH: f64 = 1e6;

/// A share below half of which up to a thousand trials make the same number as of half, but of an even one a trial less.
const BELOW_HALF: f64 = 0.499;

impl Rfc2544Args {
    /// The sizes to measure with.
    pub(crate) fn sizes(&self) -> Result<Vec<Size>, String> {
        if self.sizes.name == "imix" && self.ipv6 {
            return Err(
                "--sizes imix: its smallest frames have no room for IPv6 and a tag; leave out --ipv6, or name sizes"
                    .to_owned(),
            );
        }
        if self.sizes.name == "imix" {
            let sizes: Sizes = "imix".parse().map_err(|error| format!("--sizes imix: {error}"))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of sizes")]
            let bytes = sizes.mean().round() as u32 + u32::from(FCS);
            return Ok(vec![Size { bytes, sizes }]);
        }
        let size = |bytes: &u16| {
            let small = self.ipv6 && *bytes < SMALLEST_IPV6;
            if small && self.sizes.name.is_empty() {
                return Err(format!("--sizes {bytes}: IPv6 and a tag need {SMALLEST_IPV6}; ask for that instead"));
            }
            let bytes = if small { SMALLEST_IPV6 } else { *bytes };
            let sizes = Sizes::constant(bytes - FCS).map_err(|error| format!("--sizes {bytes}: {error}"))?;
            Ok(Size { bytes: bytes.into(), sizes })
        };
        self.sizes.bytes.iter().map(size).collect()
    }

    /// Whether throughput is searched by halves, without loss.
    pub(crate) fn is_strict(&self) -> bool {
        self.profile == Named::Rfc2544
    }

    /// The numbers of the tests, under a name that says what else makes results comparable.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = if self.is_strict() { Profile::rfc2544() } else { Profile::default() };
        let ways = if self.one_way { "one way" } else { "both ways" };
        let ports = self.ports.iter().map(Address::name).collect::<Vec<_>>().join(" and ");
        let protocol = if self.ipv6 { "IPv6" } else { "IPv4" };
        let flows = if self.flows() == 1 { "1 flow".to_owned() } else { format!("{} flows", self.flows()) };
        profile.name = format!("{}: {ports}, {ways}, {protocol}, {flows}", profile.name);
        if self.sizes.name == "imix" {
            profile.name += ", imix";
        }
        if self.catch_up != Duration::from_millis(1) {
            profile.name += &format!(", catching up {:?}", self.catch_up);
        }
        let mut most_seconds = profile.throughput.most_seconds;
        for goal in &mut profile.throughput.goals {
            let width = self.width.map_or(goal.width, |percent| percent / 100.0);
            let time = self.trial_time.map_or(goal.final_seconds, |time| time.as_secs_f64());
            let trials = self.repetitions.map_or(goal.duration_sum / goal.final_seconds, f64::from);
            let initial = goal.initial_seconds.min(time);
            // Half of an even number may lose frames as a whole: of two a lucky one would decide.
            let is_even = self.repetitions.is_some_and(|repetitions| repetitions % 2 == 0);
            let exceed_ratio = if is_even { goal.exceed_ratio.min(BELOW_HALF) } else { goal.exceed_ratio };
            // What takes longer may go on for longer; a search by halves has its end.
            if self.profile != Named::Rfc2544 {
                let longer = (trials * time / goal.duration_sum).max(1.0);
                most_seconds = f64::max(most_seconds, (profile.throughput.most_seconds * longer).min(LONGEST_SEARCH));
            }
            let duration_sum = trials * time;
            *goal = Goal { width, exceed_ratio, final_seconds: time, initial_seconds: initial, duration_sum, ..*goal };
        }
        profile.throughput.most_seconds = most_seconds;
        if let Some(time) = self.trial_time {
            let whole = u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
            (profile.latency.seconds, profile.frmol.seconds) = (whole, whole);
            profile.loss.seconds = time.as_secs_f64();
            (profile.recovery.overload_seconds, profile.recovery.recovery_seconds) =
                (time.as_secs_f64(), time.as_secs_f64());
            profile.throughput.warm_up_seconds = profile.throughput.warm_up_seconds.min(time.as_secs_f64());
        }
        if let Some(repetitions) = self.repetitions {
            (profile.latency.repetitions, profile.frmol.repetitions) = (repetitions, repetitions);
            (profile.bursts.repetitions, profile.recovery.repetitions) = (repetitions, repetitions);
        }
        profile
    }

    /// What figures depend on besides the profile, by name: a run that goes on has to have the same.
    pub(crate) fn conditions(&self) -> [(&'static str, String); 9] {
        let either = |given: Option<String>, otherwise: &str| given.unwrap_or_else(|| otherwise.to_owned());
        let words = |words: Vec<String>, separator: &str| Some(words.join(separator)).filter(|words| !words.is_empty());
        let bound = |bound: Option<f64>| either(bound.map(|rate| format!("{rate} pps")), "none given");
        let mac = |mac: &[u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let macs = words(self.dst_mac.iter().map(mac).collect(), ",");
        let ips = words(self.dst_ip.iter().map(ToString::to_string).collect(), ",");
        let PortOptions { batch, ring_size, mtu, pages, .. } = &self.port_options;
        let mtu = mtu.map_or("1500 or what frames need".to_owned(), |mtu| mtu.to_string());
        let line = self.line.map(|bits| format!("{} bit/s", grouped(bits)));
        let no_line = "none given: that of the links where they have a speed, else what the ports sent at most";
        [
            ("ports", either(words(self.ports.iter().map(ToString::to_string).collect(), " and "), "")),
            ("line", either(line, no_line)),
            ("bounds", format!("lowest rate {}, highest rate {}", bound(self.min), bound(self.max))),
            (
                "addresses",
                format!(
                    "MAC {}, IP {}{}",
                    either(macs, "of the ports"),
                    either(ips, "none given"),
                    self.hosting.words()
                ),
            ),
            ("port options", format!("batch {batch}, rings of {ring_size}, MTU {mtu}, pages {pages:?}")),
            ("ways", if self.one_way { "one way" } else { "both ways at once" }.to_owned()),
            ("catch-up", format!("{:?}", self.catch_up)),
            ("protocol", if self.ipv6 { "IPv6" } else { "IPv4" }.to_owned()),
            ("flows", self.flows().to_string()),
        ]
    }

    fn flows(&self) -> u64 {
        self.flows.unwrap_or(if self.sizes.name == "whitepaper" { WHITEPAPER_FLOWS } else { 1 })
    }

    /// A trial of frames of a size at the highest rate, without end.
    pub(crate) fn trial(&self, size: &Size) -> RunArgs {
        let mut traffic = TrafficArgs::constant(size.sizes.clone(), Load::Frames(1_000_000), self.line);
        (traffic.pace.rate, traffic.pace.catch_up) = (Vec::new(), self.catch_up);
        traffic.flows = self.flows();
        traffic.dst_mac.clone_from(&self.dst_mac);
        traffic.dst_ip.clone_from(&self.dst_ip);
        traffic.own = self.hosting.answering.own();
        if self.ipv6 && self.dst_ip.is_empty() {
            traffic.dst_ip = vec![Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 1).into()];
        }
        RunArgs {
            ports: self.ports.clone(),
            one_way: self.one_way,
            traffic,
            hosting: self.hosting.clone(),
            warm_up: Duration::ZERO,
            duration: None,
            count: None,
            no_verify: false,
            floor: None,
            expect: Expectations::default(),
            json: true,
            quiet: true,
            port_options: self.port_options.clone(),
            queues: 1,
            around: Around::default(),
        }
    }
}

fn frames(text: &str) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "a rate to search from")]
    match text.parse() {
        Ok(Load::Frames(millionths)) if millionths > 0 => Ok(millionths as f64 / 1e6),
        _ => Err("write frames a second, such as 1500 or 1.5M".to_owned()),
    }
}

fn width(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.001..=50.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0.001 to 50, such as 0.5".to_owned()),
    }
}

fn trial_time(text: &str) -> Result<Duration, String> {
    let is_fit = |time: &Duration| (Duration::from_millis(10)..=Duration::from_secs(3_600)).contains(time);
    let time = seconds(text).ok().filter(is_fit);
    time.ok_or_else(|| "write a time from 10ms to 3600s, such as 10s".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use trial::simulate::{Device, Truth};
    use trial::{Ended, Method as _, Profile};

    fn profile_of(options: &[&str]) -> Profile {
        let words = ["pktgen", "rfc2544", "--ports", "soft:a,soft:b"];
        let Command::Rfc2544(args) = Args::parse_from([&words[..], options].concat()).command else {
            panic!("{options:?}");
        };
        args.profile()
    }

    /// Of an even number of trials more than half have to keep to a goal.
    #[test]
    fn one_lossless_trial_of_two_decides_about_no_load() {
        for (repetitions, needed) in [("1", 1), ("2", 2), ("3", 2), ("4", 3), ("1000", 501)] {
            let profile = profile_of(&["--repetitions", repetitions]);
            let search = |lossy: u64| {
                let goals = profile.throughput.goals[..1].to_vec();
                let mut test = trial::Throughput::new(goals, 1e3..=1e4, &profile).unwrap();
                // Of the trials of each load that decide, the first lose frames: only those at the lowest count.
                let mut seen = 0;
                while let Some(trial) = test.next() {
                    let sent = trial.traffic.frames();
                    let is_lowest = trial.traffic.rate() < 1_001.0;
                    let is_lossy = !is_lowest || seen < lossy;
                    seen += u64::from(is_lowest);
                    test.tell(&trial::Outcome::new(sent, if is_lossy { sent / 2 } else { sent })).unwrap();
                }
                test.results()[0].lower.is_some()
            };
            let all: u64 = repetitions.parse().unwrap();
            assert!(search(all - needed), "{repetitions}: {needed} of them keep to the goal");
            assert!(!search(all - needed + 1), "{repetitions}: one less than {needed} do");
        }
    }

    /// Searches by longer trials, or by more of them, may take longer: each has a result.
    #[test]
    fn longer_searches_have_the_time_for_a_result() {
        for options in [
            &["--trial-time", "3600s"][..],
            &["--trial-time", "3600s", "--repetitions", "250"],
            &["--profile", "rfc2544", "--trial-time", "1800s"],
            &["--profile", "rfc2544", "--repetitions", "50"],
        ] {
            profile_of(options).check().unwrap();
        }
        assert!(profile_of(&["--trial-time", "3600s", "--repetitions", "300"]).check().is_err(), "twelve days a load");
        for option in [["--trial-time", "60s"], ["--trial-time", "14s"], ["--repetitions", "600"]] {
            let profile = profile_of(&option);
            let mut test = trial::Throughput::new(profile.throughput.goals.clone(), 1e3..=1e6, &profile).unwrap();
            let mut device = Device::new(Truth { capacity: 4e5, ..Truth::default() }, 1);
            while let Some(trial) = test.next() {
                test.tell(&device.run(&trial)).unwrap();
            }
            for result in test.results() {
                assert_eq!(result.ended, Ended::Found, "{option:?}: {result:?}");
                assert!(
                    result.throughput.is_some_and(|rate| (rate / 4e5 - 1.0).abs() < 0.01),
                    "{option:?}: {result:?}"
                );
            }
        }
    }
}
