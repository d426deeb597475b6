//! `pktgen rfc2544`: the tests of `trial`, their trials done by `pktgen run`.

mod folder;
mod found;
pub(crate) mod measured;
mod progress;

pub(crate) use folder::read;

use crate::args::{Rfc2544Args, RunArgs, Size, Test};
use crate::calibrate::Floors;
use crate::clock::{Calibrated, ClockReport};
use crate::trial::Held;
use crate::{machine, report_folders, trial as runs};
use anyhow::anyhow;
use cli::exit::Failure;
use cli::screen::Screen;
use cli::stop::Stop;
use folder::Folder;
use found::{Above, Found, forwarded_by, found_by, no_throughput};
use measured::Judge;
use progress::Progress;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trial::{
    AnyTest, Ended, LeftOut, Line, Method as _, Outcome, Part, Profile, Reason, Setup, Traffic, Trial, Verdict,
};

/// Frames a second of a highest load without line: more than any port sends.
pub(crate) const UNLIMITED: f64 = 1e12;
/// Bytes of a frame on the wire besides those that sizes with check sequence have.
const WIRE_OVERHEAD: f64 = 20.0;
/// The fewest frames of a trial at the lowest rate if that is not given, and at the highest; and the lowest as a share of the highest.
const FEWEST: f64 = 10.0;
const LOWEST: f64 = 1e-4;

/// A run at work.
#[derive(Debug)]
struct Bench<'a> {
    args: &'a Rfc2544Args,
    profile: Profile,
    /// What an earlier run has measured, and what it could not.
    known: Vec<Part>,
    left_out: Vec<LeftOut>,
    /// Whether a test was begun after these, to which trials that are written belong.
    has_begun: bool,
    /// Whether a trial says anything about the device, and whether one does of a test that was asked for.
    has_counted: bool,
    has_answer: bool,
    folder: Folder,
    /// Ports that are open for frames of the size at hand.
    held: Held,
    stop: Stop,
    progress: Progress,
}

/// Why a run is not complete.
enum Broken {
    Interrupted,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What was asked for, among what a run is measured with.
pub(crate) const ASKED_TESTS: &str = "tests";
pub(crate) const ASKED_SIZES: &str = "sizes";
/// The folder of results that have none of their own.
const OUT: &str = "rfc2544-results";

/// `pktgen rfc2544`.
pub(crate) fn run(args: &Rfc2544Args) -> Result<(), Failure> {
    let (profile, sizes) = (args.profile(), args.sizes().map_err(Failure::usage)?);
    check(args, &profile, &sizes)?;
    let (folder, (known, left_out)) = match (&args.out, &args.resume) {
        (_, Some(path)) => Folder::resume(path, &profile, &conditions(args))?,
        (out, None) => {
            let path = out.as_deref().unwrap_or(Path::new(OUT));
            (Folder::create(path, &profile, about(args, &sizes)?)?, Default::default())
        }
    };
    let sizes = unfinished_first(sizes, &known)?;
    let path = folder.path().to_owned();
    let progress = Progress::new(&profile, args, sizes.len());
    let counted = |part: &&Part| has_counted(part, &profile);
    let has_counted = known.iter().any(|part| counted(&part));
    let is_answer = |part: &&Part| counted(part) || is_bounded(&part.test);
    let has_answer = known.iter().filter(is_answer).any(|part| is_asked_for(args, &part.setup));
    let (held, stop) = (Held::default(), Stop::on_signals()?);
    let mut bench = Bench {
        args,
        profile,
        known,
        left_out,
        has_begun: false,
        has_counted,
        has_answer,
        folder,
        held,
        stop,
        progress,
    };
    let ended = (0..sizes.len()).rev().zip(&sizes).try_for_each(|(left, size)| {
        let ended = bench.size(size).and(bench.close().map_err(Broken::from));
        bench.progress.sizes_left(left);
        ended
    });
    // What cannot be closed after a failure is not the news.
    let _ = bench.close();
    bench.progress.clear();
    // A run that has taken the folder's name since is not this one.
    let is_there = bench.folder.is_there();
    let is_kept = bench.folder.keep();
    if is_kept && !is_there {
        return Err(if let Err(Broken::Failed(failure)) = ended { failure } else { folder::gone(&path) });
    }
    let shown = if is_kept { report_folders::show(std::slice::from_ref(&path), args.json, false) } else { Ok(()) };
    match ended {
        Ok(()) if !bench.has_answer => Err(shown.err().unwrap_or_else(|| nothing(&path, bench.has_counted))),
        Ok(()) => shown,
        Err(Broken::Failed(failure)) => Err(failure),
        Err(Broken::Interrupted) if is_kept => Err(interrupted(&path)),
        Err(Broken::Interrupted) => Err(anyhow!("interrupted by a signal before any trial had ended").into()),
    }
}

/// What a run is measured with: the machine, what was asked for, how exact times are, and what the instrument has measured of itself.
fn about(args: &Rfc2544Args, sizes: &[Size]) -> Result<BTreeMap<String, String>, Failure> {
    let mut about = machine::about();
    about.extend(args.conditions().map(|(name, value)| (name.to_owned(), value)));
    let tests: Vec<&str> = args.tests.iter().map(|test| test.name()).collect();
    about.insert(ASKED_TESTS.to_owned(), tests.join(", "));
    let bytes: Vec<String> = sizes.iter().map(|size| size.bytes.to_string()).collect();
    about.insert(ASKED_SIZES.to_owned(), bytes.join(", "));
    let clock = ClockReport::of(&Calibrated::begin().clock()?);
    about.insert("clock".to_owned(), [clock.words()].into_iter().chain(clock.warning()).collect::<Vec<_>>().join("; "));
    let floors = args.floor.as_ref().map(|path| Floors::read(path)).transpose()?;
    for (floors, size) in floors.iter().flat_map(|floors| sizes.iter().map(move |size| (floors, size))) {
        about.insert(format!("floor, {} bytes", size.bytes), floors.of_size(size.sizes.mean()).join("; "));
    }
    Ok(about)
}

/// What has to be the same when a run goes on: what was asked for, the program and the machine.
fn conditions(args: &Rfc2544Args) -> Vec<(&'static str, String)> {
    let machine = machine::about();
    let of_machine = ["program", "processor", "lcores", "kernel"];
    let of_machine = of_machine.into_iter().filter_map(|name| Some((name, machine.get(name)?.clone())));
    args.conditions().into_iter().chain(of_machine).collect()
}

/// The sizes, that of a test which an earlier run has begun and not ended before all others: trials go to the last test of a run.
fn unfinished_first(mut sizes: Vec<Size>, known: &[Part]) -> Result<Vec<Size>, Failure> {
    let Some(open) = known.last().filter(|part| part.test.next().is_some()) else { return Ok(sizes) };
    let Some(at) = sizes.iter().position(|size| size.bytes == open.size) else {
        let size = open.size;
        return Err(Failure::usage(format!("--sizes: a test of {size} bytes is not finished; ask for that size, too")));
    };
    sizes[..=at].rotate_right(1);
    Ok(sizes)
}

fn nothing(path: &Path, has_counted: bool) -> Failure {
    let path = path.display();
    if has_counted {
        return anyhow!("{path}: no test that was asked for has a figure; the notes in the report say why").into();
    }
    anyhow!("{path}: no trial counted; the limits of the generator in the report say why").into()
}

/// Whether a trial of a test counts. A warm-up is never void, and says nothing.
fn has_counted(part: &Part, profile: &Profile) -> bool {
    let (trials, _) = part.test.spent();
    let warms_up = matches!(part.setup, Setup::Throughput { .. }) && profile.throughput.warm_up_seconds > 0.0;
    let void = u64::try_from(part.void.len()).unwrap_or(u64::MAX);
    trials > void.saturating_add(u64::from(warms_up))
}

/// Whether a test is one of those that were asked for.
fn is_asked_for(args: &Rfc2544Args, setup: &Setup) -> bool {
    test_of(setup).is_some_and(|test| args.tests.contains(&test))
}

/// The test as it is asked for; `None` of one that each run has.
pub(crate) fn test_of(setup: &Setup) -> Option<Test> {
    Some(match setup {
        Setup::Throughput { .. } | Setup::BinarySearch { .. } => Test::Throughput,
        Setup::Latency { .. } => Test::Latency,
        Setup::FrameLoss { .. } => Test::Loss,
        Setup::BackToBack { .. } => Test::BackToBack,
        Setup::Recovery { .. } => Test::Recovery,
        _ => return None,
    })
}

fn interrupted(path: &Path) -> Failure {
    let path = path.display();
    anyhow!("{path}: interrupted by a signal; what was measured is in it: go on with --resume {path}").into()
}

/// Bytes of an Ethernet header and a check sequence.
const HEADER: u32 = 18;

/// Refuses what no run can begin with.
fn check(args: &Rfc2544Args, profile: &Profile, sizes: &[Size]) -> Result<(), Failure> {
    if args.ports.len() != 2 {
        let count = args.ports.len();
        return Err(Failure::usage(format!("--ports: {count} named; name the two that the device is between, as A,B")));
    }
    if let Some(ip) = args.dst_ip.iter().find(|ip| ip.is_ipv6() != args.ipv6) {
        let remedy =
            if args.ipv6 { "leave --ipv6 out, or name one of IPv6" } else { "add --ipv6, or name one of IPv4" };
        return Err(Failure::usage(format!("--dst-ip {ip}: of another family; {remedy}")));
    }
    let mut named = args.tests.iter().enumerate();
    if let Some((_, test)) = named.find(|(nth, test)| args.tests[..*nth].contains(test)) {
        return Err(Failure::usage(format!("--tests: {} is named twice", test.name())));
    }
    if let Some((min, max)) = args.min.zip(args.max).filter(|(min, max)| min >= max) {
        return Err(Failure::usage(format!("--min {min}: not below --max {max}; there is nothing to search between")));
    }
    let times = profile.throughput.goals.iter().flat_map(|goal| [goal.initial_seconds, goal.final_seconds]);
    let seconds = times.fold(profile.loss.seconds, f64::min);
    for size in sizes {
        if let Some(mtu) = args.port_options.mtu.filter(|mtu| size.bytes > u32::from(*mtu) + HEADER) {
            let needed = size.bytes - HEADER;
            return Err(Failure::usage(format!(
                "--mtu {mtu}: frames of {} bytes with check sequence need {needed}; ask for smaller ones, or leave --mtu out",
                size.bytes
            )));
        }
        runs::prepare(&args.trial(size))?;
        let line = args.line.map(|line| on_line(line, size.bytes));
        if let Some(line) = line.filter(|line| line * seconds < FEWEST) {
            return Err(Failure::usage(format!(
                "--line: it carries {line:.1} frames of {} bytes a second, fewer than {FEWEST} in a trial of {seconds} s",
                size.bytes
            )));
        }
        // Loss is not searched for.
        let min = args.min.filter(|_| args.tests.iter().any(|test| *test != Test::Loss));
        for (name, rate) in [("--max", args.max), ("--min", min)] {
            if let Some((rate, line)) = rate.zip(line).filter(|(rate, line)| rate > line) {
                let bytes = size.bytes;
                return Err(Failure::usage(format!(
                    "{name} {rate}: the line carries {line:.0} frames of {bytes} bytes"
                )));
            }
        }
    }
    if let Some(max) = args.max.filter(|max| max * seconds < FEWEST) {
        return Err(Failure::usage(format!("--max {max}: fewer than {FEWEST} frames in a trial of {seconds} s")));
    }
    if let Some(min) = args.min.filter(|min| min * seconds < 1.0) {
        return Err(Failure::usage(format!("--min {min}: less than a frame in a trial of {seconds} s")));
    }
    profile.check().map_err(Failure::usage)
}

/// Whether void trials have made a bound: of a loss, or a recovery.
fn is_bounded(test: &AnyTest) -> bool {
    match test {
        AnyTest::FrameLoss(test) => !test.points().is_empty(),
        AnyTest::Recovery(test) => test.result().is_some(),
        _ => false,
    }
}

/// Frames a second that a line carries.
#[expect(clippy::cast_precision_loss, reason = "speeds of lines")]
fn on_line(bits: u64, size: u32) -> f64 {
    bits as f64 / ((f64::from(size) + WIRE_OVERHEAD) * 8.0)
}

impl Bench<'_> {
    /// Closes the ports: packet memory and MTU are those of a size.
    fn close(&mut self) -> Result<(), Failure> {
        self.stop.closing();
        std::mem::take(&mut self.held).close()
    }

    /// Frames a second that the line carries: by its speed as given, or else as both links have it.
    fn line(&mut self, size: &Size) -> Result<Option<f64>, Broken> {
        let known = self.known.iter().filter(|part| part.size == size.bytes).find_map(|part| match part.setup {
            Setup::Frmol { rate, .. } => Some(rate),
            _ => None,
        });
        if let Some(rate) = known {
            return Ok(Some(rate).filter(|rate| *rate < UNLIMITED));
        }
        let args = self.args.trial(size);
        let bits = match self.args.line {
            None => {
                let frames = runs::prepare(&args)?;
                let line = self.held.line(&args, &frames, &self.stop, &mut Screen::new(true, true));
                if self.stop.is_signalled() {
                    return Err(Broken::Interrupted);
                }
                line?
            }
            line => line,
        };
        Ok(bits.map(|bits| on_line(bits, size.bytes)))
    }

    /// All tests with frames of a size.
    fn size(&mut self, size: &Size) -> Result<(), Broken> {
        let line = self.line(size)?;
        let highest = Setup::Frmol { rate: line.unwrap_or(UNLIMITED), max: self.args.max };
        let (offered, forwards) = match self.test(size, &highest)? {
            AnyTest::Frmol(test) => {
                // Loads that the machine was too busy to keep to end the search soon enough.
                let busy = test.limits().last().filter(|limit| limit.reason == Reason::Stopped);
                let result = test.result();
                // What came out of a buffer after the trial is not forwarded for longer.
                let forwards = result.map(|result| result.forwarded / (1.0 + result.filling.unwrap_or(0.0)));
                (result.map(|result| result.offered).or(busy.map(|limit| limit.reached)), forwards)
            }
            _ => (None, None),
        };
        let offered = offered.filter(|offered| *offered > 0.0);
        // What the ports sent on a machine that was busy is no reason to ask for less than what was asked for.
        let highest = self.args.max.into_iter().chain(line).reduce(f64::min).or(offered);
        let Some(highest) = highest else {
            let all = [Test::Throughput, Test::Latency, Test::Recovery, Test::BackToBack, Test::Loss];
            let why = "no trial at the highest load counted, or none sent a frame, so there is no rate to begin with";
            return self.leave_out(size, &all, why);
        };
        if self.args.tests.iter().any(|test| *test != Test::Loss) {
            self.throughput(size, line, [highest, forwards.unwrap_or(0.0)])?;
        }
        if self.args.tests.contains(&Test::Loss) {
            self.test(size, &Setup::FrameLoss { highest })?;
        }
        Ok(())
    }

    /// The search for the throughput, and the tests that begin with it, with the highest rate and what the device forwards of that.
    fn throughput(&mut self, size: &Size, line: Option<f64>, [highest, most]: [f64; 2]) -> Result<(), Broken> {
        let search = self.search(highest);
        if let Setup::Throughput { low, high, .. } | Setup::BinarySearch { low, high, .. } = search
            && low >= high
        {
            // A lowest rate that --max is not above is refused at the beginning.
            let whose = if line.is_some() { "the line carries" } else { "the ports sent" };
            let why =
                format!("{whose} {high:.0} frames/s at most, and the lowest rate is {low:.0}: no range to search");
            return self.leave_out(size, &[Test::Throughput, Test::Latency, Test::Recovery, Test::BackToBack], &why);
        }
        let found = self.test(size, &search)?;
        let [carried, forwarded] = forwarded_by(&found).map(|rate| rate.max(most));
        let results = if let AnyTest::Throughput(test) = &found { test.results() } else { Vec::new() };
        let is_lossy = results.first().is_some_and(|result| result.ended == Ended::BelowLowest);
        let Some(found) = found_by(&found, &self.profile) else {
            let all = [Test::Latency, Test::Recovery, Test::BackToBack];
            return self.leave_out(size, &all, &no_throughput(&found, most));
        };
        let Found { rate, above, .. } = found;
        if self.args.tests.contains(&Test::Latency) {
            let rates = if self.args.is_strict() { vec![rate] } else { vec![rate, rate / 2.0] };
            self.test(size, &Setup::Latency { rates })?;
        }
        if found.may_lose {
            self.has_answer |= is_lossy && self.asks_for_overload();
            return self.leave_out(size, &[Test::Recovery, Test::BackToBack], "no throughput without loss was found");
        }
        let (no_overload, endless) = match above {
            Above::Loses => ("", ""),
            // A buffer that filled in trials at the highest rate has an end that longer ones may find.
            Above::Nothing if found.has_filled() => {
                ("no rate lost frames, and a buffer may have filled: longer trials tell", "")
            }
            // RFC 9004, 6.1.
            Above::Nothing => ("the highest rate is no overload", "the highest rate is forwarded without end"),
            Above::Unsent => ["no trial above the throughput counted"; 2].into(),
            Above::Unknown => ["no rate above the throughput is known to lose frames"; 2].into(),
        };
        // That there is nothing to find is an answer, too.
        self.has_answer |= above == Above::Nothing && !found.has_filled() && self.asks_for_overload();
        if above != Above::Loses {
            self.leave_out(size, &[Test::Recovery], no_overload)?;
            if above != Above::Nothing || !found.has_filled() {
                return self.leave_out(size, &[Test::BackToBack], endless);
            }
        }
        if above == Above::Loses && self.args.tests.contains(&Test::Recovery) {
            let overload = trial::Recovery::overload(rate, highest);
            // Of a device that loses frames by chance the throughput is far below what it forwards.
            if overload <= carried {
                let does = if overload <= forwarded {
                    "forwards as many where it may lose some"
                } else {
                    "loses no more of them than the search allows"
                };
                let why = format!("{overload:.0} frames/s are no overload: the device {does}");
                self.has_answer = true;
                self.leave_out(size, &[Test::Recovery], &why)?;
            } else {
                self.test(size, &Setup::Recovery { throughput: rate, highest })?;
            }
        }
        if self.args.tests.contains(&Test::BackToBack) {
            let Some(bursts) = found.bursts(highest, forwarded) else {
                let why = format!(
                    "the device forwards {forwarded:.0} frames/s where it may lose some: a burst may lose them by chance, too"
                );
                self.has_answer = true;
                return self.leave_out(size, &[Test::BackToBack], &why);
            };
            self.test(size, &bursts)?;
        }
        Ok(())
    }

    fn asks_for_overload(&self) -> bool {
        [Test::Recovery, Test::BackToBack].iter().any(|test| self.args.tests.contains(test))
    }

    /// Says of those tests that were asked for why they are left out; the report does, too.
    fn leave_out(&mut self, size: &Size, tests: &[Test], why: &str) -> Result<(), Broken> {
        for test in tests.iter().filter(|test| self.args.tests.contains(test)) {
            let name = test.name();
            self.progress.say(&format!("{} bytes: no {name}: {why}", size.bytes));
            if !self.left_out.iter().any(|one| (one.size, &*one.test) == (size.bytes, name)) {
                self.folder.write(&Line::left_out(size.bytes, name, why))?;
            }
        }
        Ok(())
    }

    /// The search for the throughput below a rate.
    fn search(&self, high: f64) -> Setup {
        let goals = self.profile.throughput.goals.clone();
        let seconds = goals.iter().map(|goal| goal.initial_seconds).fold(f64::INFINITY, f64::min);
        let low = self.args.min.unwrap_or_else(|| (high * LOWEST).max(FEWEST / seconds).min(high / 2.0));
        match (self.args.is_strict(), &goals[..]) {
            (true, [goal]) => Setup::BinarySearch { goal: *goal, low, high },
            _ => Setup::Throughput { goals, low, high },
        }
    }

    /// Does a test, or what is left of it.
    fn test(&mut self, size: &Size, setup: &Setup) -> Result<AnyTest, Broken> {
        let is_it = |part: &Part| {
            part.size == size.bytes && std::mem::discriminant(&part.setup) == std::mem::discriminant(setup)
        };
        let last = self.known.len().saturating_sub(1);
        let at = self.known.iter().position(is_it);
        let mut test = match at {
            // Trials go to the last test of a run; of one before it what there is has to do.
            Some(at) if self.has_begun || at < last || self.known[at].test.next().is_none() => {
                self.progress.known(setup);
                return Ok(self.known[at].test.clone());
            }
            Some(at) => self.known[at].test.clone(),
            None if !self.has_begun && self.known.last().is_some_and(|part| part.test.next().is_some()) => {
                let size = self.known[last].size;
                return Err(Failure::usage(format!(
                    "--tests: another test of {size} bytes is not finished, and goes on before others begin; ask for it alone first"
                ))
                .into());
            }
            None => {
                let test = setup.start(&self.profile).map_err(|error| anyhow!("{} bytes: {error}", size.bytes))?;
                self.folder.write(&Line::test(size.bytes, setup.clone()))?;
                self.has_begun = true;
                test
            }
        };
        self.progress.begin(size.bytes, setup);
        while let Some(next) = test.next() {
            self.progress.trial(&next);
            let outcome = self.trial(size, setup, &next)?;
            let line = Line::trial(next, outcome);
            self.folder.write(&line)?;
            // What is told is what is written, so that a report says the same.
            let Line::Trial { outcome, .. } = line else { continue };
            let verdict = test.tell(&outcome).map_err(|error| anyhow!("{} bytes: {error}", size.bytes))?;
            let counted = verdict == Verdict::Counted && !next.warm_up;
            self.has_counted |= counted;
            self.has_answer |= (counted || is_bounded(&test)) && is_asked_for(self.args, setup);
            self.progress.told(&outcome, verdict);
            // What was measured is kept by now, whatever comes.
            if !self.stop.is_signalled() {
                self.stop.wait(Duration::from_secs_f64(next.phases.settle), []);
            }
            if self.stop.is_signalled() {
                return Err(Broken::Interrupted);
            }
        }
        self.progress.end();
        if let Some(at) = at {
            self.known[at].test.clone_from(&test);
        }
        Ok(test)
    }

    /// Does a trial, but for the wait for the device to settle.
    fn trial(&mut self, size: &Size, setup: &Setup, next: &Trial) -> Result<Outcome, Broken> {
        let args = run_args(self.args, size, setup, next);
        let frames = runs::prepare(&args)?;
        let paused = nic::soft_paused();
        let done = runs::perform_on(&mut self.held, true, &args, frames, &mut self.stop, &mut Screen::new(true, true));
        // One that was only waiting for frames under way has measured what it was to measure.
        if self.stop.is_signalled() && !done.as_ref().is_ok_and(runs::Outcome::is_whole) {
            return Err(Broken::Interrupted);
        }
        let judge = match setup {
            Setup::Frmol { .. } => Judge::Forwarded,
            _ => Judge::Loss { tolerance: self.profile.rate_tolerance },
        };
        let mut outcome = measured::outcome(&args, done?, next, judge)?;
        // Software NICs lose frames by the buffers of their cables in bursts of what came while they had no core.
        let paused = nic::soft_paused().saturating_sub(paused);
        if !paused.is_zero() && args.ports.iter().all(nic::Address::is_soft) {
            outcome.doubtful = outcome.doubtful.saturating_add(measured::due_in(paused, next, &outcome));
            outcome.away = outcome.away.map(|away| away + paused.as_secs_f64());
            // What its last frames come late, a cable has made room.
            outcome.late = outcome.late.map(|late| late + paused.as_secs_f64());
        }
        Ok(outcome)
    }
}

/// Frames that open a trial are at most one for so many that count.
const WARM_UP_SHARE: u64 = 1_000;

/// What `pktgen run` is to do for a trial.
pub(crate) fn run_args(args: &Rfc2544Args, size: &Size, setup: &Setup, next: &Trial) -> RunArgs {
    let mut args = args.trial(size);
    let rate = next.traffic.rate();
    let is_unlimited = matches!(setup, Setup::Frmol { .. }) && rate >= UNLIMITED;
    args.traffic.pace.rate = (!is_unlimited).then(|| measure::Load::Frames(millionths(rate))).into_iter().collect();
    args.around.learning = Duration::from_secs_f64(next.phases.routing_wait + next.phases.learning_wait);
    args.around.learning_frames = next.phases.learning_frames;
    args.around.silence = Some(Duration::from_secs_f64(next.phases.drain));
    match next.traffic {
        Traffic::Burst { frames, .. } => args.count = Some(frames),
        Traffic::Overload { rate, seconds, then, then_seconds } => {
            args.around.overload = Some(measure::Load::Frames(millionths(rate)));
            args.warm_up = Duration::from_secs_f64(seconds);
            args.traffic.pace.rate = vec![measure::Load::Frames(millionths(then))];
            args.duration = Some(Duration::from_secs_f64(then_seconds));
        }
        // Frames before a burst would lie in the buffer that it is to fill.
        _ => {
            args.duration = Some(Duration::from_secs_f64(next.traffic.seconds()));
            // What a slow device holds of them when it begins to count is missing in its buffer.
            let most = next.traffic.frames() / WARM_UP_SHARE;
            let frames = next.phases.warm_up_frames.min(u32::try_from(most).unwrap_or(u32::MAX));
            args.warm_up = Duration::from_secs_f64(f64::from(frames) / rate);
        }
    }
    args
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are positive; saturates")]
fn millionths(rate: f64) -> u64 {
    ((rate * 1e6) as u64).max(1)
}
