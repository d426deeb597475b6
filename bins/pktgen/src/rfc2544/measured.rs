//! What a trial has measured, as `trial` takes it.

use crate::args::RunArgs;
use crate::trial::figures::Figures;
use crate::trial::{Outcome as Run, report};
use cli::exit::Failure;
use cli::report::PortTotals;
use measure::Clock;
use std::time::Duration;
use trial::{Delays, Outcome, Traffic, Trial};

/// A burst is none of the rate asked for if it took longer by more than this, or this share of it: times of hand-overs are not exact.
const LATE: f64 = 50e-6;
const LATE_SHARE: f64 = 0.005;

/// The share of frames whose hand-over may be unknown before delays are those from when they were due.
const UNKNOWN: f64 = 1e-4;

/// What makes one of two ways the worse.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judge {
    /// That its rate was missed by more than a share, and then what it lost.
    Loss { tolerance: f64 },
    /// That less was forwarded: no rate is too low.
    Forwarded,
}

/// Returns the outcome of a trial: of two ways, that of the worse. An error is one of the run, as a device that is gone or a way that
/// no frame goes.
pub(crate) fn outcome(args: &RunArgs, mut run: Run, trial: &Trial, judge: Judge) -> Result<Outcome, Failure> {
    let jumped = run.void.is_some();
    if run.figures.iter().any(|figures| !figures.is_answered()) {
        // A link that is not up again ends the next trial before it begins.
        if run.trouble.is_ok() && !jumped && run.totals.ports.iter().any(link_fell) {
            let mut outcome = Outcome::new(0, 0);
            (outcome.link_fell, outcome.from_earlier) = (true, run.late);
            return Ok(outcome);
        }
        report::end(args, &mut run)?;
    }
    if !jumped {
        std::mem::replace(&mut run.trouble, Ok(()))?;
    }
    let ways = run.figures.iter().map(|figures| {
        let ports = [figures.from, figures.to].map(|port| &run.totals.ports[port]);
        of(figures, ports, &run.clock, (&trial.traffic, args.traffic.pace.catch_up))
    });
    let mut outcome = ways.reduce(|one, other| worse(one, other, &trial.traffic, judge)).unwrap_or_default();
    outcome.clock_jumped |= jumped;
    outcome.from_earlier = run.late;
    Ok(outcome)
}

/// So large a share of a count, rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count; saturates")]
fn share_of(count: u64, share: f64) -> u64 {
    (real(count) * share).floor() as u64
}

#[expect(clippy::cast_precision_loss, reason = "frames of a trial")]
fn real(frames: u64) -> f64 {
    frames as f64
}

/// Returns how many frames of a trial were due in a time, at the rate at which they were sent.
pub(super) fn due_in(time: Duration, trial: &Trial, outcome: &Outcome) -> u64 {
    let share = time.as_secs_f64() / trial.traffic.seconds();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count; saturates")]
    let frames = (real(outcome.sent) * share).ceil() as u64;
    frames.min(outcome.sent)
}

/// The worse of two ways. Where a rate counts, one that was not sent at it makes the trial void, whatever the other lost.
pub(super) fn worse(one: Outcome, other: Outcome, traffic: &Traffic, judge: Judge) -> Outcome {
    let is_first = match judge {
        Judge::Loss { tolerance } => {
            let badness = |one: &Outcome| (traffic.is_missed(one.sent, tolerance), one.loss_ratio());
            badness(&one) >= badness(&other)
        }
        Judge::Forwarded => {
            let rate = |one: &Outcome| real(one.received) / one.seconds.unwrap_or(0.0).max(traffic.seconds());
            rate(&one) <= rate(&other)
        }
    };
    let (worse, other) = if is_first { (one, other) } else { (other, one) };
    let mut joined = joined(worse, &other);
    match judge {
        // Rates are by the time of their own way.
        Judge::Forwarded => joined.seconds = worse.seconds,
        // What the other way lost for certain leaves less in doubt. Which frame was the last is another matter.
        Judge::Loss { .. } if !matches!(traffic, Traffic::Overload { .. }) => {
            let certain = share_of(worse.sent, other.loss_range()[0]);
            if certain > 0 {
                joined.doubtful =
                    joined.doubtful.min((worse.sent - worse.received.min(worse.sent)).saturating_sub(certain));
            }
        }
        Judge::Loss { .. } => {}
    }
    joined
}

/// The worse of two ways, with what the other adds to its incidents and delays.
fn joined(mut worse: Outcome, other: &Outcome) -> Outcome {
    worse.link_fell |= other.link_fell;
    worse.away = [worse.away, other.away].into_iter().flatten().reduce(f64::max);
    // What is known of the last lost frame may be of either.
    worse.doubtful = worse.doubtful.max(if other.last_lost.is_some() { other.doubtful } else { 0 });
    worse.own = worse.own.saturating_add(other.own);
    worse.late = [worse.late, other.late].into_iter().flatten().reduce(f64::max);
    worse.duplicate += other.duplicate;
    worse.reordered += other.reordered;
    worse.damaged += other.damaged;
    worse.last_lost = [worse.last_lost, other.last_lost].into_iter().flatten().reduce(f64::max);
    worse.seconds = [worse.seconds, other.seconds].into_iter().flatten().reduce(f64::max);
    // A buffer may fill one way while frames of the other take longer.
    worse.lesser_growth = worse.growth.zip(other.growth).map(|(one, other)| one.min(other));
    worse.growth = [worse.growth, other.growth].into_iter().flatten().reduce(f64::max);
    (worse.delays, worse.other_delays) =
        (worse.delays.or(other.delays), other.delays.filter(|_| worse.delays.is_some()));
    worse
}

/// The outcome of one way, whose frames may be late by what is caught up. What the ports counted as sent and kept, and what arrived and
/// their rings had no room for, the generator lost, and not the device: it is as if it had not been sent. Where others arrived, too,
/// those of earlier trials and those that came twice among them, nobody knows which the rings had no room for.
pub(crate) fn of(figures: &Figures, ports: [&PortTotals; 2], clock: &Clock, asked: (&Traffic, Duration)) -> Outcome {
    let ((traffic, catch_up), seconds) = (asked, |ticks: u64| clock.nanoseconds(ticks) / 1e9);
    let verdict = figures.all.verdict;
    let (kept, missed) = (ports[0].tx_dropped, ports[1].rx_missed);
    let is_alone = figures.foreign == 0 && figures.late == 0 && verdict.duplicate == 0;
    let [own, others] = if is_alone { [kept + missed, 0] } else { [kept, missed] };
    let mut outcome = Outcome::new(verdict.sent.saturating_sub(own.min(verdict.lost)), verdict.received);
    (outcome.own, outcome.doubtful) = (own, figures.in_bursts.saturating_add(others));
    // Those that the ports lost may each have been a run.
    outcome.runs = Some(verdict.runs_lost).filter(|runs| *runs > 0).map(|runs| runs.saturating_sub(own).max(1));
    outcome.away = Some(seconds(figures.away));
    // The last frame may be late as all others may.
    let lateness = seconds(figures.lateness).min(catch_up.as_secs_f64());
    outcome.seconds = figures.ticks.map(|ticks| match traffic {
        Traffic::Burst { .. } => seconds(ticks),
        _ => (seconds(ticks) - lateness).max(f64::MIN_POSITIVE),
    });
    if let (Traffic::Burst { .. }, Some(seconds)) = (traffic, outcome.seconds) {
        let late = (traffic.seconds() * LATE_SHARE).max(LATE);
        outcome.late = Some((seconds - traffic.seconds()).max(0.0));
        outcome.seconds = (seconds > traffic.seconds() + late).then_some(seconds);
    }
    outcome.link_fell = ports.iter().any(|port| link_fell(port));
    if let (Traffic::Overload { seconds, then, .. }, Some((opening, arrived))) = (traffic, figures.opening) {
        // What counts in the run is what comes after the overload.
        outcome.sent += opening.handed;
        outcome.runs = None;
        outcome.received += arrived.min(opening.handed);
        outcome.seconds = outcome.seconds.map(|after| seconds + after);
        outcome.last_lost = figures.last_lost.map(|number| real(number) / then);
        // Which of the lost ones the ports lost, and when, is not known.
        outcome.doubtful = outcome.doubtful.saturating_add(own);
    }
    (outcome.duplicate, outcome.reordered) = (verdict.duplicate, verdict.reordered);
    outcome.damaged = figures.damaged;
    // Of a frame behind which too many others are under way the hand-over is not known any more, only when it was due.
    let is_whole = |times: &measure::Summary| {
        figures.all.from_due.is_none_or(|due| real(times.count) >= real(due.count) * (1.0 - UNKNOWN))
    };
    let times = figures.all.from_ring.filter(is_whole).or(figures.all.from_due);
    outcome.delays = times.map(|times| delays(&times, clock));
    outcome.growth = outcome.delays.map(|delays| delays.growth());
    outcome
}

fn link_fell(port: &PortTotals) -> bool {
    port.link == "down" || port.link_downs > 0
}

/// From the hand-over to the ring: what the generator was late is not the device's.
fn delays(ticks: &measure::Summary, clock: &Clock) -> Delays {
    let times = ticks.scaled(clock.nanoseconds(1));
    Delays::new(times.min, times.mean, times.p50, times.p999, times.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Judge = Judge::Loss { tolerance: 0.001 };
    const STEADY: Traffic = Traffic::Steady { rate: 800.0, seconds: 1.0 };

    #[test]
    fn of_two_ways_the_one_that_loses_is_worse_if_the_other_lacks_a_frame() {
        let [a, b] = [Outcome::new(799, 799), Outcome::new(800, 760)];
        for joined in [worse(a, b, &STEADY, LOSS), worse(b, a, &STEADY, LOSS)] {
            assert_eq!((joined.sent, joined.received), (800, 760));
        }
        // Two lacking are a rate that was missed.
        let missed = Outcome::new(798, 798);
        for joined in [worse(missed, b, &STEADY, LOSS), worse(b, missed, &STEADY, LOSS)] {
            assert_eq!((joined.sent, joined.received), (798, 798));
        }
    }

    /// A buffer of 0.2 s fills, and frames the other way take 0.3 s.
    #[test]
    fn a_buffer_that_fills_one_way_is_seen_behind_a_delay_of_the_other() {
        let of = |delays: Delays| {
            let mut outcome = Outcome::new(800, 800);
            (outcome.delays, outcome.growth) = (Some(delays), Some(delays.growth()));
            outcome
        };
        let far = of(Delays::new(300e6, 300e6, 300e6, 300e6, 300e6));
        let fills = of(Delays::new(0.0, 100e6, 100e6, 200e6, 200e6));
        for (joined, other) in [(worse(far, fills, &STEADY, LOSS), fills), (worse(fills, far, &STEADY, LOSS), far)] {
            assert_eq!((joined.other_delays, joined.growth), (other.delays, Some(200e6)));
            assert_eq!(joined.lesser_growth, Some(0.0));
        }
    }

    /// At the highest load a way that is sent less has missed nothing, and the other may forward less.
    #[test]
    fn of_two_ways_at_the_highest_load_the_one_that_forwards_less_is_worse() {
        let [mut slow, mut lossy] = [Outcome::new(796, 796), Outcome::new(800, 400)];
        (slow.seconds, lossy.seconds) = (Some(1.5), Some(1.0));
        for joined in [worse(slow, lossy, &STEADY, Judge::Forwarded), worse(lossy, slow, &STEADY, Judge::Forwarded)] {
            assert_eq!((joined.sent, joined.received, joined.seconds), (800, 400, Some(1.0)));
        }
        // The larger share of what is lost may be that of a way that forwards more.
        let [more, less] = [Outcome::new(3_000, 1_900), Outcome::new(1_000, 970)];
        for joined in [worse(more, less, &STEADY, Judge::Forwarded), worse(less, more, &STEADY, Judge::Forwarded)] {
            assert_eq!((joined.sent, joined.received), (1_000, 970));
        }
    }

    /// What one way lost for certain is not in doubt as the other lost more for the generator.
    #[test]
    fn what_the_other_way_lost_for_certain_is_certain() {
        let [mut doubtful, certain] = [Outcome::new(1_000, 990), Outcome::new(1_000, 992)];
        doubtful.doubtful = 10;
        for joined in [worse(doubtful, certain, &STEADY, LOSS), worse(certain, doubtful, &STEADY, LOSS)] {
            assert_eq!((joined.received, joined.doubtful), (990, 2));
        }
    }
}
