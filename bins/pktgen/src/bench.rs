//! `pktgen bench`: experiments of the documents that this project is built on, done again, beside their figures.

mod catalogue;
mod pings;
mod placement;
mod results;
mod show;
mod switch;

pub(crate) use catalogue::NAMES;

use crate::args::BenchArgs;
use crate::clock::ClockReport;
use crate::trial::{self, report};
use crate::{args::RunArgs, machine, page};
use anyhow::{Context as _, anyhow};
use catalogue::{ALL, Experiment};
use cli::args::PortOptions;
use cli::exit::Failure;
use cli::lcore;
use cli::output;
use cli::screen::Screen;
use cli::stop::Stop;
use placement::Threads;
use results::{Measured, Results};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;
use std::time::Duration;

/// `pktgen bench`.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.ports.len() != 2 {
        let count = args.ports.len();
        return Err(Failure::usage(format!("--ports: {count} named; name two, as A,B")));
    }
    let Some(folder) = args.out.as_ref().filter(|_| args.show.is_none()) else { return measure_all(args) };
    // The page may be one of that folder.
    let (name, is_new) = (folder.display(), !folder.exists());
    std::fs::create_dir_all(folder).with_context(|| format!("--out {name}: cannot be made; name another folder"))?;
    let done = measure_all(args);
    if done.is_err() && is_new {
        // Unless something is in it.
        let _ = std::fs::remove_dir(folder);
    }
    done
}

/// Measures what is asked for, or shows what is stored.
fn measure_all(args: &BenchArgs) -> Result<(), Failure> {
    args.html.as_deref().map_or(Ok(()), page::check)?;
    let is_wanted =
        |experiment: &&Experiment| args.names.is_empty() || args.names.iter().any(|name| name == experiment.name);
    let wanted: Vec<&Experiment> = ALL.iter().filter(is_wanted).collect();
    let (mut shown, mut unmeasured, mut interrupted) = (Vec::new(), Vec::new(), None);
    if let Some(folder) = &args.show {
        for experiment in wanted {
            shown.extend(stored(folder, experiment, experiment.cannot)?);
        }
    } else if let Some(folder) = &args.out {
        wanted.iter().try_for_each(|experiment| results::check(folder, experiment))?;
        let mut stop = Stop::on_signals()?;
        if wanted.iter().any(|experiment| needs_ports(experiment) && experiment.cannot.is_none()) {
            probe(args, &mut stop)?;
        }
        for experiment in wanted {
            let cannot = cannot(experiment);
            if cannot.is_none() && !stop.is_signalled() {
                let why = match measure(args, experiment, folder, &mut stop) {
                    // What is stored of an earlier run is better than nothing.
                    Ok(results) => results.failure().map(ToOwned::to_owned),
                    Err(_) if stop.is_signalled() => None,
                    Err(failure) if needs_ports(experiment) => return Err(failure),
                    // A switch that does not start is no reason to leave the other experiments out.
                    Err(failure) => Some(failure.message()),
                };
                unmeasured.extend(why.map(|why| format!("{}: not measured to its end: {why}", experiment.name)));
            }
            // What is shown is what is stored.
            match stored(folder, experiment, cannot.as_deref()) {
                Err(failure) if stop.is_signalled() => shown.push((experiment, Err(failure.message()))),
                stored => shown.extend(stored?),
            }
        }
        interrupted = stop.is_signalled().then(signalled);
    }
    match &args.html {
        None => output::print(&show::text(&shown))?,
        Some(file) => page::write(file, &show::page(&shown))?,
    }
    if let Some(interrupted) = interrupted {
        return Err(interrupted);
    }
    if unmeasured.is_empty() { Ok(()) } else { Err(anyhow!("{}", unmeasured.join("; ")).into()) }
}

/// Why an experiment cannot be done on this machine.
fn cannot(experiment: &Experiment) -> Option<String> {
    match (experiment.cannot, experiment.name) {
        (Some(why), _) => Some(why.to_owned()),
        // One is for the switch's poller.
        (None, "ovs") => needs_two().or_else(switch::cannot),
        (None, "latency") => pings::cannot(),
        (None, "lcores") => needs_two(),
        _ => None,
    }
}

fn needs_two() -> Option<String> {
    let count = lcore::available().map_or(0, |lcores| lcores.len());
    (count < 2).then(|| format!("it needs two lcores, and {count} may be used"))
}

/// What is stored of an experiment: of the last run that was whole, and of a later one that was cut; or why there is nothing.
fn stored<'e>(
    folder: &Path,
    experiment: &'e Experiment,
    cannot: Option<&str>,
) -> Result<Vec<show::Entry<'e>>, Failure> {
    let stored = results::read(folder, experiment)?;
    if stored.is_empty() {
        return Ok(vec![(experiment, Err(nothing(cannot)))]);
    }
    Ok(stored.into_iter().map(|results| (experiment, Ok(results))).collect())
}

/// Why there is nothing of ours.
fn nothing(cannot: Option<&str>) -> String {
    match cannot {
        Some(why) => format!("It cannot run here: {why}. These are the document's figures alone."),
        None => "It has not been run.".to_owned(),
    }
}

/// Whether an experiment is done between the ports that are named.
fn needs_ports(experiment: &Experiment) -> bool {
    !matches!(experiment.name, "ovs" | "latency")
}

/// Refuses ports that do not reach each other, before any is measured.
fn probe(args: &BenchArgs, stop: &mut Stop) -> Result<(), Failure> {
    let mut run = args.trial(60, 1, PortOptions::default()).map_err(Failure::usage)?;
    (run.warm_up, run.duration) = (Duration::ZERO, Some(Duration::from_millis(1)));
    trial_of(&run, stop).map(drop)
}

/// Measures all points of an experiment, and stores them. Whenever it ends before, what it has measured by then is stored apart.
fn measure(args: &BenchArgs, experiment: &Experiment, folder: &Path, stop: &mut Stop) -> Result<Results, Failure> {
    let mut about = machine::about();
    let ports = args.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" to ");
    about.insert("ports".to_owned(), ports);
    about.insert("measured".to_owned(), format!("{} times each, as fast as the port takes frames", args.repetitions()));
    if experiment.name == "latency" {
        about.insert("ports".to_owned(), "a software NIC on a TAP interface, and a veth pair".to_owned());
        about.insert("measured".to_owned(), format!("{} times 100 pings", args.repetitions()));
        let mut results = Results::new(experiment, about, pings::points(), args.repetitions());
        pings::measure(args.repetitions(), stop, &mut results, |results| results.keep(folder, experiment))?;
        return Ok(results);
    }
    let lcores = lcore::available()?;
    let numbers: Vec<usize> = lcores.iter().map(|lcore| lcore.number).collect();
    let threads = Threads::of(&numbers);
    if experiment.name == "lcores" {
        about.insert("threads of one core".to_owned(), threads.words());
    }
    let last = lcores.last().filter(|_| experiment.name == "ovs");
    let mut switch = last.map(|lcore| switch::Switch::start(lcore.number)).transpose()?;
    if switch.is_some() {
        about.insert("ports".to_owned(), "vhost-user, both ways".to_owned());
    }
    let last = experiment.points.len().saturating_sub(1);
    let is_wanted = |nth: usize| !args.quick || nth == 0 || nth == last;
    let wanted = experiment.points.iter().enumerate().filter(|(nth, _)| is_wanted(*nth));
    let points: Vec<Measured> = wanted.map(|(_, point)| Measured::new(*point)).collect();
    let count = points.len();
    let mut results = Results::new(experiment, about, points, args.repetitions());
    let mut clock = None;
    // A round after another, so that a machine which changes its speed changes it for all points.
    for _ in 0..args.repetitions() {
        for nth in 0..count {
            let point = results.points[nth].point;
            let run = match &mut switch {
                Some(switch) => through(args, switch, point)?,
                None => run_args(args, experiment, point).map_err(Failure::usage)?,
            };
            let few = match experiment.name {
                "lcores" => threads.of_point(point).map(Some),
                // The last is the switch's, whose poller leaves a generator no time there.
                "ovs" => Ok(Some(numbers[..numbers.len().saturating_sub(1)].to_vec())),
                _ => Ok(None),
            };
            let measured = match few {
                Ok(few) => on_lcores(few.as_deref(), || trial_of(&run, stop)),
                Err(why) => Err(anyhow!("{why}").into()),
            };
            if stop.is_signalled() {
                return Err(signalled());
            }
            match measured {
                Ok((forwarded, latency, now)) => {
                    results.points[nth].add(forwarded, latency);
                    let worst = clock.map_or(now, |before: ClockReport| before.or_worse(now));
                    results.about.insert("clock".to_owned(), worst.words().replace("clock: ", ""));
                    clock = Some(worst);
                }
                // Huge pages or sibling threads that a host has not are no reason to leave the other points out.
                Err(failure) => results.points[nth].failed = Some(failure.message()),
            }
            results.made(1);
            results.keep(folder, experiment)?;
        }
    }
    Ok(results)
}

fn signalled() -> Failure {
    anyhow!("interrupted by a signal").into()
}

/// The trial of a point through a switch.
fn through(args: &BenchArgs, switch: &mut switch::Switch, point: u32) -> Result<RunArgs, Failure> {
    let size = switch.set(point)?;
    let mut run = args.trial(size, 1, PortOptions::default()).map_err(Failure::usage)?;
    // What it has not heard of, it sends everywhere.
    (run.ports, run.one_way) = (switch.ports()?, false);
    Ok(run)
}

/// Does something on some of the lcores that this program may use, if it matters on which.
fn on_lcores<T>(lcores: Option<&[usize]>, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let Some(lcores) = lcores else { return work() };
    let before = sched_getaffinity(None)?;
    let mut few = CpuSet::new();
    lcores.iter().for_each(|lcore| few.set(*lcore));
    // Threads have the lcores of those that start them.
    sched_setaffinity(None, &few)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    done
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
        "lcores" => {}
        _ => size = small()?.saturating_sub(4),
    }
    args.trial(size, flows, options)
}

/// Frames a second that came through, how long they took, in microseconds, and by which clock.
fn trial_of(args: &RunArgs, stop: &mut Stop) -> Result<(f64, Option<f64>, ClockReport), Failure> {
    let frames = trial::prepare(args)?;
    let mut outcome = trial::perform(args, frames, stop, &mut Screen::new(true, true))?;
    report::end(args, &mut outcome)?;
    let figures = outcome.figures.first().ok_or_else(|| anyhow!("nothing was measured"))?;
    let seconds = figures.seconds(&outcome.setting(args));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let forwarded = figures.all.verdict.received as f64 / seconds;
    let latency = figures.all.from_ring.map(|times| times.scaled(outcome.clock.nanoseconds(1)).p50 / 1e3);
    Ok((forwarded, latency, ClockReport::of(&outcome.clock)))
}
