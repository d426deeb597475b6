//! `pktgen bench`: experiments of the documents that this project is built on, done again, beside their figures.

mod catalogue;
mod results;
mod show;

pub(crate) use catalogue::NAMES;

use crate::args::BenchArgs;
use crate::calibrate::target::Target;
use crate::trial::{self, report};
use crate::{args::RunArgs, machine};
use anyhow::{Context as _, anyhow};
use catalogue::{ALL, Experiment};
use cli::args::PortOptions;
use cli::exit::Failure;
use cli::output;
use cli::screen::Screen;
use cli::stop::Stop;
use results::{Measured, Results};
use std::time::Duration;

/// `pktgen bench`.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.ports.len() != 2 {
        let count = args.ports.len();
        return Err(Failure::usage(format!("--ports: {count} named; name two, as A,B")));
    }
    let is_wanted =
        |experiment: &&Experiment| args.names.is_empty() || args.names.iter().any(|name| name == experiment.name);
    let wanted: Vec<&Experiment> = ALL.iter().filter(is_wanted).collect();
    let (mut shown, mut unmeasured) = (Vec::new(), Vec::new());
    if let Some(folder) = &args.show {
        for experiment in wanted {
            shown.push((experiment, results::read(folder, experiment)?));
        }
    } else if let Some(folder) = &args.out {
        let name = folder.display();
        std::fs::create_dir_all(folder)
            .with_context(|| format!("--out {name}: cannot be made; name another folder"))?;
        let mut stop = Stop::on_signals()?;
        if wanted.iter().any(|experiment| experiment.cannot.is_none()) {
            probe(args, &mut stop)?;
        }
        for experiment in wanted {
            if experiment.cannot.is_none() {
                let results = measure(args, experiment, &mut stop)?;
                // What is stored of an earlier run is better than nothing.
                match results.failure() {
                    None => results.write(folder, experiment)?,
                    Some(why) => unmeasured.push(format!("{}: nothing was measured: {why}", experiment.name)),
                }
            }
            // What is shown is what is stored.
            shown.push((experiment, results::read(folder, experiment)?));
        }
    }
    match &args.html {
        None => output::print(&show::text(&shown))?,
        Some(file) => {
            let name = file.display();
            let unwritable = || format!("--html {name}: cannot be written; name another file");
            let target = Target::open(file).with_context(unwritable)?;
            target.replace(&show::page(&shown)).with_context(unwritable)?;
        }
    }
    if unmeasured.is_empty() { Ok(()) } else { Err(anyhow!("{}", unmeasured.join("; ")).into()) }
}

/// Refuses ports that do not reach each other, before any is measured.
fn probe(args: &BenchArgs, stop: &mut Stop) -> Result<(), Failure> {
    let mut run = args.trial(60, 1, PortOptions::default()).map_err(Failure::usage)?;
    (run.warm_up, run.duration) = (Duration::ZERO, Some(Duration::from_millis(1)));
    trial_of(&run, stop).map(drop)
}

/// Measures all points of an experiment.
fn measure(args: &BenchArgs, experiment: &Experiment, stop: &mut Stop) -> Result<Results, Failure> {
    let mut about = machine::about();
    let ports = args.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" to ");
    about.insert("ports".to_owned(), ports);
    about.insert("measured".to_owned(), format!("{} times each, as fast as the port takes frames", args.repetitions()));
    let mut points = Vec::new();
    let all = experiment.points;
    for (nth, point) in all.iter().enumerate() {
        if args.quick && nth > 0 && nth + 1 < all.len() {
            continue;
        }
        let mut one = Measured::new(*point);
        for _ in 0..args.repetitions() {
            let run = run_args(args, experiment, *point).map_err(Failure::usage)?;
            match trial_of(&run, stop) {
                Ok((forwarded, latency)) => one.add(forwarded, latency),
                Err(_) if stop.is_signalled() => return Err(anyhow!("interrupted by a signal").into()),
                // Huge pages that a host has not are no reason to leave the other points out.
                Err(failure) => one.failed = Some(failure.message()),
            }
        }
        points.push(one);
    }
    Ok(Results::new(experiment, about, points))
}

/// The trial of a point.
fn run_args(args: &BenchArgs, experiment: &Experiment, point: u32) -> Result<RunArgs, String> {
    let (mut size, mut flows, mut options) = (60, 1, PortOptions::default());
    let small = || u16::try_from(point).map_err(|error| error.to_string());
    match experiment.name {
        "batch" => options.batch = small()?,
        "rings" => options.ring_size = small()?,
        "flows" => flows = point.into(),
        "pages" => options.pages = catalogue::pages(point),
        _ => size = small()?.saturating_sub(4),
    }
    args.trial(size, flows, options)
}

/// Frames a second that came through, and how long they took, in microseconds.
fn trial_of(args: &RunArgs, stop: &mut Stop) -> Result<(f64, Option<f64>), Failure> {
    let frames = trial::prepare(args)?;
    let mut outcome = trial::perform(args, frames, stop, &mut Screen::new(true, true))?;
    report::end(args, &mut outcome)?;
    let figures = outcome.figures.first().ok_or_else(|| anyhow!("nothing was measured"))?;
    let seconds = figures.seconds(&outcome.setting(args));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let forwarded = figures.all.verdict.received as f64 / seconds;
    let latency = figures.all.from_ring.map(|times| times.scaled(outcome.clock.nanoseconds(1)).p50 / 1e3);
    Ok((forwarded, latency))
}
