//! What a run sends: streams of a file, or flows by options.

use crate::args::RunArgs;
use crate::traffic::Traffic;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr};
use stream::{Definition, Flows, Stream};

/// The longest frame that arrives in one buffer, without check sequence: a tag that lies in two is not found.
const LONGEST: usize = 2048;
/// Bytes that are read of a file, more than one of definitions may have.
const LONGEST_FILE: u64 = (1 << 20) + 1;
/// Bytes of an Ethernet header and a VLAN tag.
const HEADERS: usize = 18;

/// The streams of a run, and what is known of all their frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Of a file; none for what options describe.
    definitions: Vec<Definition>,
    /// Bytes without check sequence.
    smallest: usize,
    largest: usize,
    mean: f64,
}

impl Frames {
    /// Reads what the options name.
    pub(crate) fn of(args: &RunArgs) -> Result<Self, Failure> {
        let definitions = match &args.stream {
            Some(path) => {
                let name = path.display().to_string();
                let mut text = String::new();
                // What is longer than a file may be is not read, and refused.
                File::open(path)
                    .and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text))
                    .with_context(|| format!("--stream {name}: cannot be read; name a file of stream definitions"))?;
                Definition::parse(&name, &text).map_err(|error| Failure::usage(in_one_line(&error, &text)))?
            }
            None => Vec::new(),
        };
        if let Some(stream) = definitions.iter().find(|definition| definition.rate().is_some()) {
            let problem = "streams have no rates of their own here; give weights, and --rate for all";
            return Err(Failure::usage(format!("--stream: stream {} has a rate: {problem}", stream.name())));
        }
        let sizes = definitions.iter().map(|definition| (definition.sizes(), definition.weight()));
        let sizes: Vec<_> = if definitions.is_empty() { vec![(&args.size, 1)] } else { sizes.collect() };
        #[expect(clippy::cast_precision_loss, reason = "weights of frames, for a mean")]
        let weighed = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            sizes.iter().map(|(sizes, weight)| of(sizes.mean(), *weight as f64)).sum()
        };
        let mean = weighed(&|mean, weight| mean * weight) / weighed(&|_, weight| weight);
        let smallest = sizes.iter().map(|(sizes, _)| sizes.smallest()).min().unwrap_or_default();
        let largest = sizes.iter().map(|(sizes, _)| sizes.largest()).max().unwrap_or_default();
        let most = (usize::from(args.port_options.mtu) + HEADERS).min(LONGEST);
        if largest > most {
            let way = if most < LONGEST { "send smaller ones, or raise --mtu" } else { "send smaller ones" };
            return Err(Failure::usage(format!("frames of {largest} bytes: here they have at most {most}; {way}")));
        }
        Ok(Self { definitions, smallest, largest, mean })
    }

    /// Bytes of a frame on average.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// The sizes, in words.
    pub(crate) fn sizes(&self) -> String {
        let Self { smallest, largest, mean, .. } = self;
        match smallest == largest {
            true => format!("{smallest} bytes ({} with FCS)", smallest + 4),
            false => format!("{smallest} to {largest} bytes, {mean:.1} on average ({:.1} with FCS)", mean + 4.0),
        }
    }

    /// The traffic of a port.
    pub(crate) fn traffic(
        &self,
        args: &RunArgs,
        port: usize,
        source: [u8; 6],
        destination: [u8; 6],
    ) -> Result<Traffic, Failure> {
        let way = port % 2;
        let definitions = if self.definitions.is_empty() {
            let to = args.dst_ip.get(way).or(args.dst_ip.last()).ok_or_else(|| anyhow!("--dst-ip: no address"))?;
            vec![flows(args, *to).definition().map_err(Failure::usage)?]
        } else {
            self.definitions.clone()
        };
        let stream = |mut definition: Definition| {
            definition.set_macs(source, destination);
            let stream = Stream::new(&definition, args.tag.bytes(), args.seed.wrapping_add(port as u64));
            stream.map(|stream| (stream, definition.weight()))
        };
        let streams = definitions.into_iter().map(stream).collect::<Result<_, _>>().map_err(Failure::usage)?;
        Traffic::new(streams, self.largest, args.tag).map_err(Failure::usage)
    }
}

/// An error of a definition, with the line that it is about.
fn in_one_line(error: &stream::Error, text: &str) -> String {
    let stream::Error::Definition { file, line, column, message, expected, .. } = error else {
        return error.to_string();
    };
    let about = text.lines().nth(line - 1).unwrap_or_default().trim();
    let about =
        if about.is_empty() { String::new() } else { format!(": {}", &about.chars().take(120).collect::<String>()) };
    let all = format!("{file}:{line}:{column}: {message}; {expected}{about}");
    // A file does not steer the terminal.
    all.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// The flows that options describe.
fn flows(args: &RunArgs, destination: IpAddr) -> Flows {
    let defaults = Flows::default();
    let source = match destination {
        IpAddr::V4(_) => defaults.source,
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(),
    };
    Flows { sizes: args.size.clone(), flows: args.flows, source, destination, ..defaults }
}
