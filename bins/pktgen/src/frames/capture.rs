//! A capture that is replayed.

use crate::args::TrafficArgs;
use crate::pacing::{Timetable, turn_ns};
use anyhow::Context as _;
use cli::exit::Failure;
use measure::{Clock, Kind};
use std::fs::File;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use stream::{LARGEST, Replay, Timing};
use trial::printable;

/// The choices of `--pcap-speed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// So many times faster than captured.
    Times(f64),
    /// As fast as the port takes frames.
    Max,
}

/// A capture, and how it is replayed.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    pub(super) replay: Arc<Replay>,
    pub(super) name: String,
    /// What is put behind each frame.
    pub(super) kind: Option<Kind>,
    pub(super) turns: Option<u64>,
    /// By its own times; else at a rate, or as fast as can be.
    by_times: bool,
}

impl Capture {
    /// Reads the capture that options name.
    pub(super) fn of(args: &TrafficArgs, path: &Path) -> Result<Self, Failure> {
        let name = printable(&path.display().to_string());
        let timing = match args.pcap_speed {
            _ if !args.pace.rate.is_empty() => Timing::None,
            Some(Speed::Max) => Timing::None,
            Some(Speed::Times(factor)) => Timing::Faster(factor),
            None => Timing::Original,
        };
        let file = File::open(path)
            .with_context(|| format!("--pcap {name}: cannot be opened; name a capture (pcap, pcapng)"))?;
        let read = Replay::read(&name, file, timing);
        let replay = read.map_err(|error| Failure::usage(printable(&format!("--pcap: {error}"))))?;
        let (by_times, kind) = (timing != Timing::None, args.tag);
        if by_times && turn_ns(&replay).is_none() {
            let way = "give --rate, or --pcap-speed max";
            return Err(Failure::usage(format!("--pcap {name}: its frames have no times to replay them by; {way}")));
        }
        let capture = Self { replay: Arc::new(replay), name, kind, turns: args.pcap_turns, by_times };
        let (largest, tag) = (capture.sizes().map(|size| size.1), kind.map_or(0, Kind::bytes));
        if largest.is_some_and(|largest| largest > LARGEST.into()) {
            let problem = format!("a frame of it has no room for {tag} bytes of tag below {LARGEST}; leave out --tag");
            return Err(Failure::usage(format!("--pcap {}: {problem}", capture.name)));
        }
        Ok(capture)
    }

    /// Bytes of the smallest frame, of the largest, and on average, as they are sent.
    pub(super) fn sizes(&self) -> Option<(usize, usize, f64)> {
        let tag = self.kind.map_or(0, Kind::bytes);
        let sizes = || self.replay.frames().map(|frame| frame.bytes.len() + tag);
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        let mean = sizes().sum::<usize>() as f64 / self.replay.len() as f64;
        Some((sizes().min()?, sizes().max()?, mean))
    }

    /// Frames in all, if it is not replayed for ever.
    pub(super) fn frames(&self) -> Option<u64> {
        self.turns.map(|turns| turns.saturating_mul(self.replay.len() as u64))
    }

    /// Whether it is replayed by its own times, or by a multiple of them.
    pub(super) fn keeps_times(&self) -> bool {
        self.by_times
    }

    /// Frames a second on average by its own times, if those are what it is replayed by.
    pub(super) fn per_second(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let mean = |ns: u64| self.replay.len() as f64 / ns as f64 * 1e9;
        turn_ns(&self.replay).filter(|_| self.by_times).map(mean)
    }

    /// When its frames are due, if its own times say so.
    pub(super) fn timetable(&self, clock: &Clock, catch_up: u64) -> Option<Timetable> {
        self.by_times.then(|| Timetable::new(&self.replay, self.turns, clock, catch_up)).flatten()
    }

    /// What of it is not sent, or not as it was.
    pub(super) fn remarks(&self) -> Vec<String> {
        let (left_out, cut) = (self.replay.left_out(), self.replay.cut());
        let left_out =
            (left_out > 0).then(|| format!("{left_out} frames are left out: no Ethernet header, or too long"));
        let cut = (cut > 0).then(|| format!("of {cut} frames only the beginning was captured, and is sent"));
        let damage =
            self.replay.damage().map(|damage| format!("what follows its last frame here is not sent: {damage}"));
        let remark = |remark: String| printable(&format!("--pcap {}: {remark}", self.name));
        [left_out, cut, damage].into_iter().flatten().map(remark).collect()
    }
}

impl Speed {
    /// How many times faster than captured; as fast as can be is 0.
    pub(crate) fn factor(self) -> f64 {
        if let Self::Times(factor) = self { factor } else { 0.0 }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse::<f64>() {
            Ok(factor) if (1e-6..=1e6).contains(&factor) => Ok(Self::Times(factor)),
            _ => Err("write a factor from 0.000001 to 1000000, such as 2, or max".to_owned()),
        }
    }
}
