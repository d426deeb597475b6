//! A script: lines that are done one after the other, once frames count.

use super::desk::{Desk, Reply};
use super::figures::{DirectionFigures, Figures, StreamFigures};
use crate::args::short_time;
use crate::trial::Phase;
use crate::trial::figures::percent;
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
        let lost = now.all.lost + now.streams.iter().zip(&asked.streams).map(behind).sum::<u64>();
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

/// What does not hold of what is expected. Frames that are under way are waited for.
fn judge(desk: &Desk, expect: &Expect) -> Result<Vec<String>, String> {
    let asked = desk.figures()?;
    let begun = Instant::now();
    let is_late = || begun.elapsed() >= DRAIN || desk.wait(PAUSE);
    let losses_of =
        |figures: &Figures| figures.directions.iter().zip(&asked.directions).map(Loss::of).collect::<Vec<_>>();
    let is_known = |figures: &Figures| {
        let mut pairs = figures.directions.iter().zip(&asked.directions);
        pairs.all(|(now, asked)| now.streams.iter().zip(&asked.streams).all(|both| behind(both) == 0))
    };
    let mut figures = desk.figures()?;
    while !is_known(&figures) && !is_late() {
        figures = desk.figures()?;
    }
    let mut losses = losses_of(&figures);
    // Of several queues one may have what seems to be lost by another.
    let is_above = |losses: &[Loss]| expect.loss.is_some_and(|most| losses.iter().any(|loss| loss.is_above(most)));
    while desk.has_several_queues() && is_above(&losses) && !is_late() {
        let now = losses_of(&desk.figures()?);
        losses.iter_mut().zip(now).for_each(|(loss, now)| *loss = loss.later(now));
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

    #[test]
    fn frames_that_follow_do_not_thin_a_loss() {
        let asked = Loss { lost: 11, judged: 1000 };
        assert!(asked.later(Loss { lost: 11, judged: 9000 }).is_above(1.0));
        assert!(asked.later(Loss { lost: 50, judged: 9000 }).is_above(1.0));
        // One of them has come by another queue.
        assert!(!asked.later(Loss { lost: 10, judged: 9000 }).is_above(1.0));
    }
}
