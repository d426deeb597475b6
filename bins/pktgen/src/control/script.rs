//! A script: lines that are done one after the other, once frames count.

use super::desk::{Desk, Reply};
use super::figures::{DirectionFigures, Figures, StreamFigures};
use crate::args::short_time;
use crate::trial::figures::percent;
use crate::trial::{Phase, UNTAGGED};
use ::control::{Expect, Request, Step};
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are read of a script; a longer one is refused.
const LONGEST: u64 = 1 << 20;
/// How often figures are looked at while something is waited for.
const PAUSE: Duration = Duration::from_millis(20);
/// How long frames that are under way at an expectation are waited for, as at the end of a run.
const DRAIN: Duration = Duration::from_secs(2);

/// A script that was read.
#[derive(Debug)]
pub(crate) struct Script {
    name: String,
    steps: Vec<(usize, Step)>,
}

/// One that is being done.
#[derive(Debug)]
pub(super) struct Playing(JoinHandle<Result<(), Failure>>);

impl Script {
    /// Reads it.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .with_context(|| format!("--script {name}: cannot be read; name a file of lines of JSON"))?;
        if text.len() as u64 > LONGEST {
            return Err(Failure::usage(format!("--script {name}: longer than 1 MiB; split it")));
        }
        let steps = Step::script(&text).map_err(|error| Failure::usage(format!("{name}:{error}")))?;
        let latencies = steps.iter().filter_map(|(line, step)| match step {
            Step::Expect(expect) => Some((line, expect.latency_p99.as_deref()?)),
            _ => None,
        });
        for (line, latency) in latencies {
            short_time(latency).map_err(|error| Failure::usage(format!("{name}:{line}: latency_p99: {error}")))?;
        }
        match steps.is_empty() {
            true => Err(Failure::usage(format!("--script {name}: there is nothing in it; write a request a line"))),
            false => Ok(Self { name, steps }),
        }
    }

    /// Does it, on a thread of its own.
    pub(super) fn play(self, desk: Arc<Desk>) -> Result<Playing, Failure> {
        let thread = std::thread::Builder::new().name("script".to_owned()).spawn(move || self.steps(&desk))?;
        Ok(Playing(thread))
    }

    fn steps(self, desk: &Desk) -> Result<(), Failure> {
        let Self { name, steps } = self;
        let mut unmet = Vec::new();
        if !counts(desk) {
            // Why not, the run says itself.
            return Ok(());
        }
        for (line, step) in steps {
            let place = format!("{name}:{line}");
            let done = match &step {
                _ if desk.wait(Duration::ZERO) => {
                    Err("the run was over before this line; give it a longer --duration or --count".to_owned())
                }
                Step::Sleep(time) => {
                    desk.wait(*time);
                    Ok(())
                }
                Step::Request(Request::Get {}) => desk.figures().and_then(|figures| print(&figures)),
                Step::Request(request) => desk.perform(request).map(|_: Reply| ()),
                Step::Expect(expect) => judge(desk, expect).map(|found| {
                    unmet.extend(found.into_iter().map(|unmet| format!("{place}: {unmet}")));
                }),
            };
            if let Err(why) = done {
                let _ = desk.perform(&Request::Quit {});
                // What did not hold before is not forgotten.
                unmet.push(format!("{place}: {why}"));
                return Err(anyhow!(unmet.join("; ")).into());
            }
            if step == Step::Request(Request::Quit {}) {
                break;
            }
        }
        // Its end is that of the run.
        let _ = desk.perform(&Request::Quit {});
        if unmet.is_empty() { Ok(()) } else { Err(Failure::Unmet(unmet.join("; "))) }
    }
}

impl Playing {
    /// Returns how it ended.
    pub(super) fn end(self) -> Result<(), Failure> {
        let panicked =
            |_| Err(anyhow!("--script: stopped by a fault in this program; please report the message above").into());
        self.0.join().unwrap_or_else(panicked)
    }
}

/// A line of figures, as over a socket.
fn print(figures: &Figures) -> Result<(), String> {
    let mut figures = figures.clone();
    figures.since(None);
    cli::output::print_json(&super::server::Told::figures(&figures)).map_err(|failure| failure.message())
}

/// Waits until frames count. Returns false if the run is over before.
fn counts(desk: &Desk) -> bool {
    while !desk.wait(PAUSE) {
        if desk.figures().is_ok_and(|figures| figures.phases.iter().all(|phase| *phase >= Phase::Counted)) {
            return true;
        }
    }
    false
}

/// Frames that are lost, and of how many.
#[derive(Clone, Copy, Debug)]
struct Loss {
    lost: u64,
    judged: u64,
}

impl Loss {
    /// That of a direction, of which it was `asked` some time before: what was under way then and has not come is lost.
    fn of((now, asked): (&DirectionFigures, &DirectionFigures)) -> Self {
        let lost = now.all.lost.unwrap_or(0) + now.streams.iter().zip(&asked.streams).map(behind).sum::<u64>();
        Self { lost, judged: now.all.received + lost }
    }

    /// As it turns out later, when others that were sent since are known too: of the same frames more may have come.
    fn later(self, now: Self) -> Self {
        Self { lost: self.lost.min(now.lost), ..self }
    }

    fn is_above(self, most: f64) -> bool {
        percent(self.lost, self.judged) > most
    }
}

/// Frames of a stream that were sent when it was asked, and are still under way.
fn behind((now, asked): (&StreamFigures, &StreamFigures)) -> u64 {
    asked.counts.sent.saturating_sub(now.counts.sent - now.counts.under_way)
}

/// Whether counters began anew since figures were asked for: what they counted is none of what is counted now.
fn began_anew(now: &Figures, asked: &Figures) -> bool {
    let mut pairs = now.directions.iter().zip(&asked.directions);
    pairs.any(|(now, asked)| now.all.span[0] > asked.all.span[0])
}

/// What does not hold of what is expected. Frames that are under way are waited for.
fn judge(desk: &Desk, expect: &Expect) -> Result<Vec<String>, String> {
    if expect.loss.is_some() && !desk.is_tagged() {
        return Err(format!("expect: loss: {UNTAGGED}; run with --tag short or full"));
    }
    let mut asked = desk.figures()?;
    let begun = Instant::now();
    let is_late = || begun.elapsed() >= DRAIN || desk.wait(PAUSE);
    let is_known = |figures: &Figures, asked: &Figures| {
        let mut pairs = figures.directions.iter().zip(&asked.directions);
        pairs.all(|(now, asked)| now.streams.iter().zip(&asked.streams).all(|both| behind(both) == 0))
    };
    let mut figures = desk.figures()?;
    loop {
        if began_anew(&figures, &asked) {
            asked = figures.clone();
        }
        if is_known(&figures, &asked) || is_late() {
            break;
        }
        figures = desk.figures()?;
    }
    let losses_of =
        |figures: &Figures| figures.directions.iter().zip(&asked.directions).map(Loss::of).collect::<Vec<_>>();
    let mut losses = losses_of(&figures);
    // Of several queues one may have what seems to be lost by another.
    let is_above = |losses: &[Loss]| expect.loss.is_some_and(|most| losses.iter().any(|loss| loss.is_above(most)));
    while desk.has_several_queues() && is_above(&losses) && !is_late() {
        let now = desk.figures()?;
        if began_anew(&now, &asked) {
            break;
        }
        losses.iter_mut().zip(losses_of(&now)).for_each(|(loss, now)| *loss = loss.later(now));
    }
    Ok(figures.directions.iter().zip(losses).flat_map(|(direction, loss)| unmet(direction, loss, expect)).collect())
}

/// What does not hold of a direction.
fn unmet(now: &DirectionFigures, loss: Loss, expect: &Expect) -> Vec<String> {
    let mut unmet = Vec::new();
    let name = format!("{} > {}", now.from, now.to);
    if let Some(most) = expect.loss.filter(|most| loss.is_above(*most)) {
        let Loss { lost, judged } = loss;
        let percent = percent(lost, judged);
        unmet.push(format!("{name}: {lost} of {judged} frames lost, {percent:.4} %; {most} % are allowed"));
    }
    // Nothing shows what is expected then.
    if expect.loss.is_some() && loss.judged == 0 {
        unmet.push(format!("{name}: no frame has come or is lost since counters began, so none is judged by loss"));
    }
    if expect.rate.is_some() && now.all.sent + now.all.missed == 0 {
        unmet.push(format!("{name}: no frame was due since counters began, so none is judged by rate"));
    }
    let short = percent(now.all.missed, now.all.sent + now.all.missed);
    if let Some(most) = expect.rate.filter(|most| short > *most) {
        unmet.push(format!("{name}: offered {short:.3} % less than its rate; {most} % are allowed"));
    }
    if let Some((words, most)) = expect.latency_p99.as_deref().and_then(|words| Some((words, short_time(words).ok()?)))
    {
        match now.all.latency_from_due_ns {
            Some(times) if times.p99 <= most.as_secs_f64() * 1e9 => {}
            Some(times) => unmet.push(format!("{name}: p99 latency {:.2} us; {words} are allowed", times.p99 / 1e3)),
            None => unmet.push(format!("{name}: p99 latency not known; {words} are allowed")),
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockReport;
    use crate::control::figures::Counts;

    #[test]
    fn frames_that_follow_do_not_thin_a_loss() {
        let asked = Loss { lost: 11, judged: 1000 };
        assert!(asked.later(Loss { lost: 11, judged: 9000 }).is_above(1.0));
        assert!(asked.later(Loss { lost: 50, judged: 9000 }).is_above(1.0));
        // One of them has come by another queue.
        assert!(!asked.later(Loss { lost: 10, judged: 9000 }).is_above(1.0));
    }

    fn figures(since: f64, sent: u64, under_way: u64) -> Figures {
        let counts = Counts { sent, under_way, span: [since, since + 1.0], ..Counts::default() };
        let streams = vec![StreamFigures { name: "1".to_owned(), counts: counts.clone() }];
        let [from, to] = ["a", "b"].map(str::to_owned);
        let direction = DirectionFigures { from, to, all: counts, foreign: 0, damaged: 0, unread: 0, streams };
        Figures {
            phase: "counted",
            running: true,
            seconds: 1.0,
            clock: ClockReport::default(),
            directions: vec![direction],
            ports: Vec::new(),
            clients: 0,
            dropped_clients: 0,
            phases: vec![Phase::Counted],
        }
    }

    #[test]
    fn what_was_counted_before_a_clear_is_not_lost() {
        let asked = figures(1.0, 1000, 10);
        assert!(!began_anew(&figures(1.0, 1100, 10), &asked));
        assert!(began_anew(&figures(5.0, 3, 0), &asked));
    }

    #[test]
    fn a_direction_of_which_nothing_is_judged_does_not_hold() {
        let expect = |loss, rate| Expect { loss, rate, latency_p99: None };
        let unmet = |sent, judged, expect: &Expect| {
            let loss = Loss { lost: 0, judged };
            unmet(&figures(1.0, sent, sent - judged).directions[0], loss, expect).concat()
        };
        assert_eq!(unmet(5, 5, &expect(Some(0.0), Some(0.0))), "");
        assert_eq!(unmet(0, 0, &expect(None, None)), "");
        assert!(unmet(0, 0, &expect(Some(100.0), None)).starts_with("a > b: no frame has come or is lost"));
        assert!(unmet(0, 0, &expect(None, Some(100.0))).starts_with("a > b: no frame was due"));
    }
}
