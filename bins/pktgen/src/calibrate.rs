//! `pktgen calibrate`: measures the instrument against itself, and what later reports show of that.

pub(crate) mod target;

use crate::args::{CalibrateArgs, RunArgs};
use crate::clock::ClockReport;
use crate::frames::Frames;
use crate::trial::figures::Figures;
use crate::trial::{self, Outcome, report};
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use cli::human::grouped;
use cli::output;
use cli::report::rounded;
use cli::screen::{self, Screen};
use cli::stop::Stop;
use measure::Summary;
use serde::{Deserialize, Serialize};
use std::path::Path;
use target::Target;

/// What the instrument measures of itself.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Floors {
    floors: Vec<Floor>,
    /// How exact the times of the last of them are; files of before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<ClockReport>,
}

/// The latency of a wire without anything in between, at a rate and a size; in nanoseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Floor {
    from: String,
    to: String,
    /// Bytes of a frame on average, without check sequence.
    size: f64,
    /// Frames a second that were offered.
    offered_pps: f64,
    sent: u64,
    lost: u64,
    latency_from_due_ns: Times,
    latency_from_ring_ns: Times,
}

/// Of all frames.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Times {
    min: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Bytes of the longest file of floors that is read.
const LONGEST: u64 = 16 << 20;

/// `pktgen calibrate`.
pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let trials: Vec<RunArgs> = args.trials();
    let prepared = trials.iter().map(|one| Ok((one, trial::prepare(one)?))).collect::<Result<Vec<_>, Failure>>()?;
    let file = args.output.display();
    let unwritable = || format!("--output {file}: cannot be written; name another file");
    // Better now than after all trials.
    let target = Target::open(&args.output).with_context(unwritable)?;
    let (floors, result) = measure(prepared, args.json);
    let printed = match floors.clock {
        _ if args.json => output::print_json(&floors),
        Some(clock) if !floors.floors.is_empty() => output::print(&format!("\n{}\n{}", floors.table(), clock.words())),
        _ => Ok(()),
    };
    let stays = if target.is_file() { format!("; {file} is as it was") } else { String::new() };
    let written = result.and_then(|()| Ok(target.replace(&floors.text()?).with_context(unwritable)?));
    written.map_err(|failure| match failure {
        Failure::Failed(_) => anyhow!("{}{stays}", failure.message()).into(),
        other => other,
    })?;
    if !args.json {
        output::print(&format!(
            "in {file}; pktgen run --floor {file} shows it beside its figures, and subtracts nothing"
        ))?;
    }
    printed
}

/// Runs the trials. Returns what was measured until one could not be, and why it could not.
fn measure(prepared: Vec<(&RunArgs, Frames)>, json: bool) -> (Floors, Result<(), Failure>) {
    let mut floors = Floors::default();
    let measure_all = || {
        let mut stop = Stop::on_signals()?;
        for (one, frames) in prepared {
            if stop.is_signalled() {
                return Err(interrupted());
            }
            // No live table: it is the table at the end that counts.
            let outcome = trial::perform(one, frames, &mut stop, &mut Screen::new(json, true))?;
            floors.clock = Some(ClockReport::of(&outcome.clock));
            floors.floors.extend(whole(one, outcome)?);
        }
        Ok(())
    };
    let result = measure_all();
    (floors, result)
}

fn interrupted() -> Failure {
    anyhow!("interrupted by a signal before all was measured").into()
}

/// The floors of a trial, unless something has troubled it.
fn whole(args: &RunArgs, mut outcome: Outcome) -> Result<Vec<Floor>, Failure> {
    report::end(args, &mut outcome)?;
    if outcome.cut {
        return Err(interrupted());
    }
    if let Some(fallen) = outcome.totals.link_warnings().pop() {
        return Err(anyhow!("{fallen}; see to the cable, and measure again").into());
    }
    let floors = floors_of(args, &outcome);
    match outcome.names.get(floors.len()) {
        Some(_) => Err(anyhow!("of the frames of one way none arrived; see to what is between the ports").into()),
        None => Ok(floors),
    }
}

/// What a trial says of each direction.
fn floors_of(args: &RunArgs, outcome: &Outcome) -> Vec<Floor> {
    let (tick, setting) = (outcome.clock.nanoseconds(1), outcome.setting(args));
    let floor = |([from, to], figures): (&[String; 2], &Figures)| {
        Some(Floor {
            from: from.clone(),
            to: to.clone(),
            size: figures.mean_size(&setting)?,
            offered_pps: rounded(figures.rates(&setting).offered),
            sent: figures.all.verdict.sent,
            lost: figures.all.verdict.lost,
            latency_from_due_ns: Times::of(&figures.all.from_due?.scaled(tick)),
            latency_from_ring_ns: Times::of(&figures.all.from_ring?.scaled(tick)),
        })
    };
    outcome.names.iter().zip(&outcome.figures).filter_map(floor).collect()
}

impl Floors {
    /// Reads what `pktgen calibrate` has written.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let file = std::fs::metadata(path);
        if file.as_ref().is_ok_and(|file| !file.is_file()) {
            return Err(Failure::usage(format!("--floor {name}: no regular file; name a file of pktgen calibrate")));
        }
        if file.is_ok_and(|file| file.len() > LONGEST) {
            return Err(Failure::usage(format!("--floor {name}: longer than any file of pktgen calibrate")));
        }
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("--floor {name}: cannot be read; name a file that pktgen calibrate has written")
        })?;
        let floors: Self = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("--floor {name}: {error}; name a file of pktgen calibrate")))?;
        if floors.floors.is_empty() {
            return Err(Failure::usage(format!("--floor {name}: it has no floor; run pktgen calibrate again")));
        }
        Ok(floors)
    }

    /// The file, as [`Self::read`] reads it.
    fn text(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns the one that is nearest in size and rate.
    pub(crate) fn nearest(&self, size: f64, pps: f64) -> Option<&Floor> {
        let distance = |floor: &Floor| {
            let far = |one: f64, other: f64| (one.max(1e-9) / other.max(1e-9)).ln().abs();
            far(floor.size, size) + far(floor.offered_pps, pps)
        };
        self.floors.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }

    /// Returns a line for each of the size that is nearest, at all rates, but no more than a page has room for.
    pub(crate) fn of_size(&self, size: f64) -> Vec<String> {
        let nearest = self.nearest_size(size);
        self.floors.iter().filter(|floor| Some(floor.size) == nearest).take(8).map(Floor::words).collect()
    }

    fn nearest_size(&self, size: f64) -> Option<f64> {
        let sizes = self.floors.iter().map(|floor| floor.size);
        sizes.min_by(|one, other| (one - size).abs().total_cmp(&(other - size).abs()))
    }

    fn table(&self) -> String {
        let columns =
            ["", "bytes", "offered pps", "sent", "lost", "due p50 us", "p99", "max", "ring p50", "p99", "max"];
        let mut table = screen::plain_table(&columns);
        for floor in &self.floors {
            let us = |ns: f64| format!("{:.2}", ns / 1000.0);
            let of = |times: &Times| [times.p50, times.p99, times.max].map(us);
            let name = format!("{} > {}", screen::short_name(&floor.from), screen::short_name(&floor.to));
            let mut row = vec![name, format!("{:.0}", floor.size), format!("{:.0}", floor.offered_pps)];
            row.extend([floor.sent, floor.lost].map(grouped));
            row.extend(of(&floor.latency_from_due_ns).into_iter().chain(of(&floor.latency_from_ring_ns)));
            table.add_row(row);
        }
        screen::align_right(&mut table, 1);
        screen::trimmed(&table)
    }
}

impl Floor {
    /// A line for people.
    pub(crate) fn words(&self) -> String {
        let of = |times: &Times| {
            let [p50, p99, max] = [times.p50, times.p99, times.max].map(|ns| ns / 1000.0);
            format!("p50 {p50:.2}, p99 {p99:.2}, max {max:.2}")
        };
        let (due, ring) = (of(&self.latency_from_due_ns), of(&self.latency_from_ring_ns));
        format!("floor at {:.0} pps of {:.0} bytes, us: due {due}; ring {ring}", self.offered_pps, self.size)
    }

    /// What keeps it from being the floor of such frames.
    pub(crate) fn objection(&self, size: f64, pps: f64) -> Option<String> {
        let differs = |one: f64, other: f64, most: f64| !(1.0 / most..=most).contains(&(one / other.max(1e-9)));
        let is_other = differs(self.size, size, 1.1) || differs(self.offered_pps, pps, 1.5);
        is_other.then(|| {
            let Self { size: floor_size, offered_pps, .. } = self;
            format!("the floor was measured at {offered_pps:.0} pps of {floor_size:.0} bytes, and these are {pps:.0} pps of {size:.0}")
        })
    }
}

impl Times {
    fn of(summary: &Summary) -> Self {
        let Summary { min, p50, p99, p999, max, .. } = *summary;
        let [min, p50, p99, p999, max] = [min, p50, p99, p999, max].map(rounded);
        Self { min, p50, p99, p999, max }
    }
}
