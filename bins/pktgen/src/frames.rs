//! What is sent: streams of a file, flows by options, or a capture.

mod capture;

pub(crate) use capture::Speed;

use crate::args::{Pace, Spread, TrafficArgs};
use crate::clock::ticks;
use crate::lane::Source;
use crate::pacing::Pacing;
use crate::traffic::{Part, Traffic};
use anyhow::Context as _;
use capture::Capture;
use cli::args::PortOptions;
use cli::exit::Failure;
use measure::{Clock, Kind, Load, Pacer, Pattern, Rate};
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;
use stream::{Definition, Flows, Stream};
use trial::printable;

/// Bytes that are read of a file, more than one of definitions may have.
const LONGEST_FILE: u64 = (1 << 20) + 1;
/// Bytes of an Ethernet header, and beside it of a VLAN tag, for which ports leave room.
const HEADER: usize = 14;
const VLAN_TAG: usize = 4;
/// How long a run takes if nothing else ends it.
const DURATION: Duration = Duration::from_secs(10);
/// Bytes of the buffers that ports receive into.
const BUFFER: u16 = 2048;
/// Bytes of a frame on the wire besides those in its buffer.
const WIRE_OVERHEAD: f64 = 24.0;

/// The streams of a run, and what is known of all their frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Of a file; none for what options describe.
    definitions: Vec<Definition>,
    capture: Option<Capture>,
    /// Streams that take turns, by their indices: each with a rate of its own is alone, all others are the last.
    groups: Vec<Group>,
    /// Bytes without check sequence; on average as weights have it, and of each stream.
    smallest: usize,
    largest: usize,
    mean: f64,
    means: Vec<f64>,
}

/// Streams that are paced together.
#[derive(Debug)]
struct Group {
    streams: Vec<usize>,
    /// None for as fast as the port takes frames, one for all ports, or one for each that sends.
    loads: Vec<Load>,
    /// How they are spread: for all ports, or for each that sends.
    spreads: Vec<Spread>,
    /// What errors call its own rate, if it has one.
    rate_of: Option<String>,
    /// Bytes of a frame on average.
    mean: f64,
}

/// A rate that can change while a run runs.
#[derive(Clone, Debug)]
pub(crate) struct Steerable {
    /// The stream that it is of, if it is of one.
    pub(crate) stream: Option<String>,
    /// It is that of all streams without a rate of their own.
    pub(crate) is_shared: bool,
    /// It is that of a capture's times.
    pub(crate) is_timed: bool,
    /// Bytes of a frame on average.
    pub(crate) mean: f64,
}

/// What ends the part of a run that counts: the first of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) duration: Option<Duration>,
    /// Frames each way.
    pub(crate) count: Option<u64>,
}

/// Rates of what a port sends.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    groups: Vec<(Option<Rate>, Spread)>,
    /// Frames a second of all streams together, and of each; `None` without a limit.
    pub(crate) all: Option<f64>,
    pub(crate) streams: Vec<Option<f64>>,
    /// How the frames of each are spread, with those it takes turns with; `None` without a rate.
    pub(crate) patterns: Vec<Option<Spread>>,
}

/// Whether a port with this MTU takes frames of so many bytes.
fn fits(largest: usize, mtu: u16) -> bool {
    largest <= usize::from(mtu) + HEADER + VLAN_TAG
}

impl Frames {
    /// Reads what the options name.
    pub(crate) fn of(args: &TrafficArgs, options: &PortOptions) -> Result<Self, Failure> {
        let definitions = args.stream.as_ref().map_or(Ok(Vec::new()), |path| definitions(path))?;
        let capture = args.pcap.as_ref().map(|path| Capture::of(args, path)).transpose()?;
        let sizes = definitions.iter().map(|definition| (definition.sizes(), definition.weight()));
        let sizes: Vec<_> = if definitions.is_empty() { vec![(&args.size, 1)] } else { sizes.collect() };
        let smallest = sizes.iter().map(|(sizes, _)| sizes.smallest()).min().unwrap_or_default();
        let largest = sizes.iter().map(|(sizes, _)| sizes.largest()).max().unwrap_or_default();
        let sizes: Vec<_> = sizes.into_iter().map(|(sizes, weight)| (sizes.mean(), weight)).collect();
        let mean = mean(sizes.iter().copied());
        let (smallest, largest, mean) = capture.as_ref().and_then(Capture::sizes).unwrap_or((smallest, largest, mean));
        let sizes = if capture.is_some() { vec![(mean, 1)] } else { sizes };
        let parts = largest.div_ceil(BUFFER.into());
        if parts > usize::from(options.batch) {
            let problem =
                format!("frames of {largest} bytes arrive in {parts} buffers, of which a burst has {}", options.batch);
            return Err(Failure::usage(format!("{problem}; give --batch {parts} or more")));
        }
        if let Some(mtu) = options.mtu.filter(|mtu| !fits(largest, *mtu)) {
            return Err(Failure::usage(format!(
                "--mtu {mtu}: frames of {largest} bytes need {}; send smaller ones, or leave --mtu out",
                largest.saturating_sub(HEADER)
            )));
        }
        let keeps_times = capture.as_ref().is_some_and(Capture::keeps_times);
        if keeps_times && !args.pace.pattern.is_empty() {
            let way = "leave it out, or give --rate";
            let patterns = args.pace.patterns();
            return Err(Failure::usage(format!("--pattern {patterns}: the capture keeps its own times; {way}")));
        }
        let groups = groups(args, &definitions, &sizes)?;
        for group in &groups {
            group.check(args.pace.line)?;
        }
        let means = sizes.into_iter().map(|(mean, _)| mean).collect();
        Ok(Self { definitions, capture, groups, smallest, largest, mean, means })
    }

    /// The options of ports that let all frames pass.
    pub(crate) fn port_options(&self, options: &PortOptions) -> PortOptions {
        let needed = u16::try_from(self.largest.saturating_sub(HEADER)).unwrap_or(u16::MAX);
        PortOptions {
            mtu: Some(if fits(self.largest, options.mtu()) { options.mtu() } else { needed }),
            ..options.clone()
        }
    }

    /// Bytes of the largest frame.
    pub(crate) fn largest(&self) -> usize {
        self.largest
    }

    /// Whether frames are known by number only, as they have no tag.
    pub(crate) fn are_untagged(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.kind.is_none())
    }

    /// Whether they are for whomever a capture says.
    pub(crate) fn are_for_others(&self) -> bool {
        self.capture.is_some()
    }

    /// Frames after which nothing more is sent.
    pub(crate) fn count(&self, count: Option<u64>) -> Option<u64> {
        count.into_iter().chain(self.capture.as_ref().and_then(Capture::frames)).min()
    }

    /// An error if nothing has a rate that `--expect-rate` could compare with.
    pub(crate) fn check_expected(&self, rate: Option<f64>) -> Result<(), Failure> {
        if rate.is_some() && !self.are_paced() {
            return Err(Failure::usage("--expect-rate: there is no rate to compare with; give one with --rate"));
        }
        Ok(())
    }

    /// What ends a run.
    pub(crate) fn limits(&self, duration: Option<Duration>, count: Option<u64>) -> Limits {
        let count = self.count(count);
        Limits { duration: duration.or(count.is_none().then_some(DURATION)), count }
    }

    /// What a reader has to know of the frames.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.capture.as_ref().map_or(Vec::new(), Capture::remarks)
    }

    /// Whether they are those of a capture.
    pub(crate) fn are_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// Bytes of a frame on average, where so many frames a second are asked for of the streams, of one port after the other: as weights have
    /// it if all take turns, else as these rates have it. `None` if one of them has no rate.
    pub(crate) fn mean<'a>(&self, asked: impl Iterator<Item = &'a [Option<f64>]>) -> Option<f64> {
        if !self.are_paced_apart() {
            return Some(self.mean);
        }
        let mut each = asked.flat_map(|streams| streams.iter().zip(&self.means));
        let add = |[bytes, frames]: [f64; 2], (pps, mean): (&Option<f64>, &f64)| {
            pps.map(|pps| [bytes + pps * mean, frames + pps])
        };
        let [bytes, frames] = each.try_fold([0.0, 0.0], add)?;
        (frames > 0.0).then(|| bytes / frames)
    }

    /// Names of the streams.
    pub(crate) fn names(&self) -> Vec<String> {
        match &self.definitions[..] {
            [] => vec![self.capture.as_ref().map_or("1".to_owned(), |capture| capture.name.clone())],
            definitions => definitions.iter().map(|definition| definition.name().to_owned()).collect(),
        }
    }

    /// Whether some have rates of their own.
    pub(crate) fn are_paced_apart(&self) -> bool {
        self.groups.len() > 1
    }

    /// The rates that can change, in the order of a port's sources.
    pub(crate) fn steerable(&self) -> Vec<Steerable> {
        let names = self.names();
        let steerable = |group: &Group| {
            let own = |index: &usize| self.definitions.get(*index).is_some_and(|one| one.rate().is_some());
            let stream = if let [one] = group.streams[..] { names.get(one).cloned() } else { None };
            let is_timed = self.capture.is_some() && group.loads.is_empty();
            Steerable { stream, is_shared: !group.streams.iter().any(own), is_timed, mean: group.mean }
        };
        self.groups.iter().map(steerable).collect()
    }

    /// The rates of these at the begin, of the port that sends as the one of this number.
    pub(crate) fn loads(&self, sender: usize) -> Vec<Option<Load>> {
        self.groups.iter().map(|group| group.load(sender)).collect()
    }

    /// How their frames are spread by the port `port`, which sends as the one of number `sender`.
    pub(crate) fn patterns(&self, port: usize, sender: usize) -> Vec<Pattern> {
        self.groups.iter().enumerate().map(|(nth, group)| group.spread(sender).of(port, nth)).collect()
    }

    /// Names of the streams that are spread in a way of their own, and how.
    pub(crate) fn own_patterns(&self) -> impl Iterator<Item = (&str, &str)> {
        self.definitions.iter().filter_map(|definition| Some((definition.name(), definition.pattern()?)))
    }

    /// Whether some have a rate, of their own or all together, or times that a capture has.
    pub(crate) fn are_paced(&self) -> bool {
        self.have_rates() || self.capture.as_ref().is_some_and(|capture| capture.per_second().is_some())
    }

    /// Whether some have a rate, of their own or all together, at which patterns spread them.
    pub(crate) fn have_rates(&self) -> bool {
        self.groups.iter().any(|group| !group.loads.is_empty())
    }

    /// An error if patterns are asked for and nothing that they could spread has a rate, nor can be given one while it runs.
    pub(crate) fn check_patterns(&self, pace: &Pace) -> Result<(), Failure> {
        let own = |index: &usize| self.definitions.get(*index).is_some_and(|one| one.pattern().is_some());
        let is_spread = |group: &Group| !group.loads.is_empty() && !group.streams.iter().any(own);
        if pace.pattern.is_empty() || self.groups.iter().any(is_spread) {
            return Ok(());
        }
        let problem = "there is no rate at which it could spread frames";
        Err(Failure::usage(format!("--pattern {}: {problem}; give --rate, or leave it out", pace.patterns())))
    }

    /// The sizes, in words.
    pub(crate) fn sizes(&self) -> String {
        let Self { smallest, largest, mean, .. } = self;
        match smallest == largest {
            true => format!("{smallest} bytes ({} with FCS)", smallest + 4),
            false if self.are_paced_apart() => format!("{smallest} to {largest} bytes"),
            false => format!("{smallest} to {largest} bytes, {mean:.1} on average ({:.1} with FCS)", mean + 4.0),
        }
    }

    /// Returns the rates of the port that sends as the one of this number, on a line of so many bit/s if it has a speed.
    pub(crate) fn asked(&self, sender: usize, line: Option<u64>) -> Result<Asked, Failure> {
        let rate = |group: &Group| Ok((group.rate_on(sender, line)?, group.spread(sender)));
        let rates = self.groups.iter().map(rate).collect::<Result<Vec<_>, Failure>>()?;
        let mut streams = vec![None; self.groups.iter().map(|group| group.streams.len()).sum()];
        let mut patterns = vec![None; streams.len()];
        let (mut all, mut bits) = (Some(0.0), 0.0);
        for (group, (rate, spread)) in self.groups.iter().zip(&rates) {
            let pps = rate.map(Rate::per_second).or(self.capture.as_ref().and_then(Capture::per_second));
            let weight = |stream: &usize| self.definitions.get(*stream).map_or(1, Definition::weight);
            let weights: u64 = group.streams.iter().map(weight).sum();
            for stream in &group.streams {
                #[expect(clippy::cast_precision_loss, reason = "weights, for a share")]
                let share = weight(stream) as f64 / weights as f64;
                streams[*stream] = pps.map(|pps| pps * share);
                patterns[*stream] = rate.map(|_| *spread);
            }
            all = all.zip(pps).map(|(all, pps)| all + pps);
            bits += pps.unwrap_or(0.0) * (group.mean + WIRE_OVERHEAD) * 8.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a bound")]
        let line = line.map(|line| line as f64).filter(|line| bits > *line * (1.0 + 1e-9));
        if let Some(line) = line.filter(|_| self.are_paced_apart()) {
            let [bits, line] = [bits, line].map(|bits| bits / 1e9);
            let all = format!("all streams together are {bits:.3} Gbit/s with preamble and gap");
            return Err(Failure::usage(format!("--stream: {all}, above the line of {line} Gbit/s; ask for less")));
        }
        Ok(Asked { groups: rates, all, streams, patterns })
    }

    /// What a port sends, in streams that take turns. Addresses are those of Ethernet; `way` says which of several of IP.
    pub(crate) fn sources(
        &self,
        args: &TrafficArgs,
        port: usize,
        macs: [[u8; 6]; 2],
        asked: &Asked,
        clock: &Clock,
    ) -> Result<Vec<Source>, Failure> {
        self.sources_of_queue(args, (port, [0, 1]), macs, asked, clock)
    }

    /// What one of several queues of a port sends: its part of each stream, in which what is random is its own.
    pub(crate) fn sources_of_queue(
        &self,
        args: &TrafficArgs,
        (port, [queue, queues]): (usize, [u16; 2]),
        [source, destination]: [[u8; 6]; 2],
        asked: &Asked,
        clock: &Clock,
    ) -> Result<Vec<Source>, Failure> {
        let catch_up = ticks(clock, args.pace.catch_up);
        if let Some(capture) = &self.capture {
            let parts = vec![Part::capture(Arc::clone(&capture.replay), capture.kind)];
            let pacer = |(rate, spread): (Option<Rate>, Spread)| {
                Some(Pacing::Rate(Pacer::new(rate?, spread.of(port, 0), clock.hz(), catch_up)))
            };
            let pacing = asked
                .groups
                .first()
                .copied()
                .and_then(pacer)
                .or(capture.timetable(clock, catch_up).map(Pacing::Capture));
            return Ok(vec![Source::new(Traffic::new(parts, self.largest), pacing)]);
        }
        let kind = args.tag.unwrap_or(Kind::Full);
        let mut definitions = if self.definitions.is_empty() {
            let flows = Flows { source_mac: source, destination_mac: destination, ..flows(args, port) };
            vec![flows.definition().map_err(Failure::usage)?]
        } else {
            self.definitions.clone()
        };
        definitions.iter_mut().for_each(|definition| definition.set_macs(source, destination));
        let part = |index: &usize| -> Result<Part, Failure> {
            let definition = &definitions[*index];
            let seed = args.seed.wrapping_add(port as u64).wrapping_add((*index as u64) << 32);
            let seed = seed.wrapping_add(u64::from(queue) << 16);
            let stream = Stream::new(definition, kind.bytes(), seed).map_err(Failure::usage)?;
            let number = u16::try_from(*index).map_err(Failure::usage)?;
            Part::new(number, stream, definition.weight(), kind).map_err(Failure::usage)
        };
        let source = |(nth, (group, (rate, spread))): (usize, (&Group, &(Option<Rate>, Spread)))| {
            let parts = group.streams.iter().map(part).collect::<Result<_, _>>()?;
            let pattern = spread.of(port | usize::from(queue) << 16, nth);
            let pacer = |rate: Rate| {
                Pacing::Rate(Pacer::new(rate.part(queues), pattern, clock.hz(), catch_up).in_turn(queue, queues))
            };
            Ok(Source::new(Traffic::new(parts, self.largest), rate.map(pacer)))
        };
        self.groups.iter().zip(&asked.groups).enumerate().map(source).collect()
    }

    /// The probes of a port, unless they are like what counts: frames as options describe them.
    pub(crate) fn probe(
        &self,
        args: &TrafficArgs,
        port: usize,
        macs: [[u8; 6]; 2],
    ) -> Result<Option<Traffic>, Failure> {
        self.capture.is_some().then(|| Self::small(args, port, macs)).transpose()
    }

    /// Small frames of a port, as options describe them.
    pub(crate) fn small(
        args: &TrafficArgs,
        port: usize,
        [source_mac, destination_mac]: [[u8; 6]; 2],
    ) -> Result<Traffic, Failure> {
        let destination = args.dst_ip(port);
        let least = if destination.is_ipv4() { "60" } else { "76" };
        let sizes = least.parse().map_err(Failure::usage)?;
        let flows = Flows { source_mac, destination_mac, sizes, flows: 1, ..flows(args, port) };
        let stream = Stream::flows(&flows, Kind::Full.bytes(), args.seed).map_err(Failure::usage)?;
        let part = Part::new(0, stream, 1, Kind::Full).map_err(Failure::usage)?;
        Ok(Traffic::new(vec![part], flows.sizes.largest()))
    }
}

impl Group {
    /// That of the port that sends as the one of this number.
    fn load(&self, sender: usize) -> Option<Load> {
        self.loads.get(sender).or(self.loads.first()).copied()
    }

    fn spread(&self, sender: usize) -> Spread {
        self.spreads.get(sender).or(self.spreads.first()).copied().unwrap_or(Spread(Pattern::Even))
    }

    /// Refuses rates that no line has; a share of one whose speed is not known yet may be right.
    fn check(&self, line: Option<u64>) -> Result<(), Failure> {
        for load in &self.loads {
            match load.rate_of_mix(self.mean, line) {
                Err(measure::Error::NoLine) | Ok(_) => {}
                Err(error) => return Err(self.failure(*load, &error)),
            }
        }
        Ok(())
    }

    fn rate_on(&self, sender: usize, line: Option<u64>) -> Result<Option<Rate>, Failure> {
        let rate = |load: Load| load.rate_of_mix(self.mean, line).map_err(|error| self.failure(load, &error));
        self.load(sender).map(rate).transpose()
    }

    fn failure(&self, load: Load, error: &measure::Error) -> Failure {
        let rate_of = self.rate_of.clone().unwrap_or_else(|| format!("--rate {load}"));
        Failure::usage(format!("{rate_of}: {error}"))
    }
}

/// Reads a file of definitions.
fn definitions(path: &std::path::Path) -> Result<Vec<Definition>, Failure> {
    let name = printable(&path.display().to_string());
    let mut bytes = Vec::new();
    // What is longer than a file may be is not read, and refused.
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes))
        .with_context(|| format!("--stream {name}: cannot be read; name a file of stream definitions"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let right = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = right.iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::usage(printable(&format!("{name}:{line}: this is no UTF-8; name a file of stream definitions")))
    })?;
    Definition::parse(&name, &text).map_err(|error| Failure::usage(in_one_line(&error, &text)))
}

/// The streams that are paced together. `sizes` has mean size and weight of each.
fn groups(args: &TrafficArgs, definitions: &[Definition], sizes: &[(f64, u64)]) -> Result<Vec<Group>, Failure> {
    let (mut groups, mut others) = (Vec::new(), Vec::new());
    for (index, (mean, _)) in sizes.iter().enumerate() {
        let Some((definition, rate)) = definitions.get(index).and_then(|one| Some((one, one.rate()?))) else {
            others.push(index);
            continue;
        };
        let file = args.stream.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let of = |what: &str, text: &str, place: Option<(usize, usize)>| {
            let (line, column) = place.unwrap_or_default();
            printable(&format!("{file}:{line}:{column}: {what} {text:?} of stream {}", definition.name()))
        };
        let rate_of = of("rate", rate, definition.rate_place());
        let load = rate.parse().map_err(|error| Failure::usage(format!("{rate_of}: {error}")))?;
        let spreads = match definition.pattern() {
            None => args.pace.pattern.clone(),
            Some(pattern) => vec![pattern.parse().map_err(|error| {
                Failure::usage(format!("{}: {error}", of("pattern", pattern, definition.pattern_place())))
            })?],
        };
        groups.push(Group { streams: vec![index], loads: vec![load], spreads, rate_of: Some(rate_of), mean: *mean });
    }
    let loads = args.pace.rate.clone();
    if !loads.is_empty() && others.is_empty() {
        return Err(Failure::usage(format!(
            "--rate {}: all streams of the file have rates of their own; leave it out",
            args.pace.rates()
        )));
    }
    if !args.pace.pattern.is_empty() && definitions.iter().all(|one| one.pattern().is_some()) && !definitions.is_empty()
    {
        return Err(Failure::usage(format!(
            "--pattern {}: all streams of the file have patterns of their own; leave it out",
            args.pace.patterns()
        )));
    }
    if !others.is_empty() {
        let mean = mean(others.iter().map(|index| sizes[*index]));
        groups.push(Group { streams: others, loads, spreads: args.pace.pattern.clone(), rate_of: None, mean });
    }
    Ok(groups)
}

/// The mean of sizes by their weights.
#[expect(clippy::cast_precision_loss, reason = "weights of frames, for a mean")]
fn mean(sizes: impl Iterator<Item = (f64, u64)>) -> f64 {
    let (sum, weights) =
        sizes.fold((0.0, 0.0), |(sum, weights), (mean, weight)| (sum + mean * weight as f64, weights + weight as f64));
    sum / weights
}

/// An error of a definition, with the line that it is about.
fn in_one_line(error: &stream::Error, text: &str) -> String {
    let stream::Error::Definition { file, line, column, message, expected, .. } = error else {
        return error.to_string();
    };
    let about = text.lines().nth(line - 1).unwrap_or_default().trim();
    let about =
        if about.is_empty() { String::new() } else { format!(": {}", &about.chars().take(120).collect::<String>()) };
    printable(&format!("{file}:{line}:{column}: {message}; {expected}{about}"))
}

/// The flows of a port that options describe.
fn flows(args: &TrafficArgs, port: usize) -> Flows {
    let destination = args.dst_ip(port);
    let source = args.src_ip(port, destination);
    Flows { sizes: args.size.clone(), flows: args.flows, source, destination, ..Flows::default() }
}
