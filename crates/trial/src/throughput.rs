//! The throughput search: several goals over the same trials (RFC 9971, "Multiple Loss Ratio Search").

use crate::chance::{Chance, Counted};
use crate::estimate::{Draws, Measured, crossing, fit};
use crate::goal::{Class, Tally, conditional_loss};
use crate::grid::Grid;
use crate::method::{Desk, Plan, TRIES};
use crate::trial::{Filling, GROWS, real, whole};
use crate::{Error, Goal, Limit, Method, Outcome, Profile, Reason, Traffic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Trials after which a search ends without its result: so many, or as many as so many loads may need if that is more.
const MOST_TRIALS: u64 = 10_000;
const MOST_LOADS: f64 = 50.0;
/// Steps between the load of which trials disagree and the estimate of all trials up to which it is not left.
const NEAR: f64 = 1.5;
/// Steps beyond which it is not left either while its trials are even: frames lost now and then, whatever the load, look like a capacity far
/// below it.
const FAR: f64 = 2.0;
/// Trials of high loss more or less than the allowed share that are even.
const EVEN: f64 = 1.0;
/// Loads that may be tried by estimate alone, before every second one halves what is open.
const TRUSTED: usize = 6;
/// The same, of loads that are decided, where frames seem to be lost by chance: more of them are near the result.
const TRUSTED_BY_CHANCE: usize = 16;
/// Loads that seemed to meet a goal and did not, before the search goes further down for each than to the next.
const REFUTED: usize = 3;
/// A trial that loses no larger share of the goal's width shows nothing of a capacity: it is as if by chance.
const SLIGHT: f64 = 0.25;
/// Loads that lost so little, and steps from the first to the last of them, which only chance makes.
const SLIGHT_LOADS: usize = 4;
const SLIGHT_SPAN: u64 = 20;

/// A search for the loads that meet goals.
///
/// ```
/// use trial::{Ended, Goal, Method, Outcome, Throughput};
///
/// let mut search = Throughput::new(vec![Goal::NDR, Goal::PDR], 9_001.0..=14_880_952.0, &Default::default())?;
/// while let Some(trial) = search.next() {
///     // A device that forwards a million frames a second.
///     let most = 1e6 * trial.traffic.seconds();
///     let sent = trial.traffic.frames();
///     search.tell(&Outcome::new(sent, sent.min(most as u64)))?;
/// }
/// let [ndr, pdr] = &search.results()[..] else { unreachable!() };
/// assert_eq!(ndr.ended, Ended::Found);
/// assert!(ndr.lower.unwrap() <= 1e6 && ndr.upper.unwrap() > 1e6);
/// assert!(ndr.throughput.unwrap() > 0.995 * 1e6 && pdr.throughput >= ndr.throughput);
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Throughput {
    desk: Desk,
    goals: Vec<Goal>,
    grid: Grid,
    /// The highest load that is tried for each goal: that which the generator reaches, and of which its bursts leave nothing open.
    tops: Vec<u64>,
    /// The goals of which bursts of the generator leave too many loads open.
    given_up: Vec<bool>,
    loads: BTreeMap<u64, Record>,
    /// The trials of high loss, for each goal.
    draws: Vec<Draws>,
    /// The load of the next trial, and its seconds.
    next: Option<(u64, f64)>,
    warm_up: f64,
    most_seconds: f64,
}

/// The trials at a load.
#[derive(Clone, Debug, Default)]
struct Record {
    /// Seconds and loss ratio of each.
    trials: Vec<(f64, f64)>,
    /// The same of those that are void, as bursts of the generator may be why they lost frames.
    open: Vec<(f64, f64)>,
    /// A tally for each goal.
    tallies: Vec<Tally>,
    /// Seconds of the longest trial, and the least by which delays varied in one of that length.
    filling: Option<(f64, Filling)>,
    /// The same of trials in which the machine stopped generator or device for so long that a buffer may hide behind it.
    stopped: Option<(f64, Filling)>,
    /// Of two ways, the same of the one whose delays vary less.
    lesser: Option<(f64, Filling)>,
}

impl Record {
    /// Notes by how much delays grew in a trial.
    fn fill(&mut self, seconds: f64, outcome: &Outcome) {
        let is_stopped = 2.0 * outcome.away.unwrap_or(0.0) > GROWS * seconds;
        let filling = if is_stopped { &mut self.stopped } else { &mut self.filling };
        *filling = least_filling(*filling, seconds, outcome.filling(seconds));
        self.lesser = least_filling(self.lesser, seconds, outcome.lesser_filling(seconds));
    }

    /// Seconds and loss ratio of all trials, the void ones that are open among them. A goal that each trial has to meet has those that do, as the
    /// others are void where the load meets it.
    fn all(&self, goal: &Goal) -> impl Iterator<Item = (f64, f64)> {
        let counts = |&(_, loss): &(f64, f64)| goal.exceed_ratio > 0.0 || loss <= goal.loss_ratio;
        self.trials.iter().chain(&self.open).copied().filter(counts)
    }
}

/// What a search has found for a goal. Loads are in frames a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound: the highest load below [`Self::upper`] that meets the goal.
    pub lower: Option<f64>,
    /// The relevant upper bound: the lowest load that does not meet it.
    pub upper: Option<f64>,
    /// The conditional throughput: the rate forwarded at the lower bound, in the quantile of its trials that the exceed ratio
    /// leaves.
    pub throughput: Option<f64>,
    /// What the device forwards for longer than the trials if a buffer was filling in them (RFC 2544, 24: trials of 60 s): at the lower
    /// bound delays varied in each by more than the width of its seconds, as they do then. `None` if they did not. A device whose delays
    /// vary by so much without a buffer that fills looks the same. Twice the time for which the machine stopped generator or device in a trial is
    /// taken from what delays vary by.
    pub sustained: Option<f64>,
    /// The same without taking that time away: the least that the device forwards for longer.
    #[serde(default)]
    pub sustained_least: Option<f64>,
    /// Of two ways, the most that the one which loses frames may forward for longer: the buffer that fills may be that of the other. Its own
    /// delays vary less, or it loses some at the upper bound.
    #[serde(default)]
    pub sustained_most: Option<f64>,
    /// How the search ended.
    pub ended: Ended,
}

impl GoalResult {
    /// Returns whether [`Self::throughput`] is a lower bound: the search has not found where the goal is no longer met.
    #[must_use]
    pub fn is_at_least(&self) -> bool {
        self.throughput.is_some() && self.ended != Ended::Found
    }
}

/// How a search ended for a goal. All but [`Self::Found`] are irregular results (RFC 9971).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ended {
    /// Both bounds are known, and within the width.
    Found,
    /// The highest load meets the goal: the result is at least that.
    AtHighest,
    /// The highest load that the generator reaches meets the goal: the result is at least that, and [`Method::limits`] says
    /// what stopped it.
    AtGenerator,
    /// The lowest load does not meet the goal.
    BelowLowest,
    /// It has taken too long, or is under way; the bounds are those known so far.
    Open,
    /// Its trials were void; the bounds are those known so far, and [`Method::limits`] says why.
    Void,
}

/// The relevant bounds of a goal, as indices.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    lower: Option<u64>,
    upper: Option<u64>,
}

impl Throughput {
    /// Begins a search between two loads, in frames a second.
    ///
    /// # Errors
    ///
    /// If goals, loads or numbers of the profile are not ones to search with.
    pub fn new(goals: Vec<Goal>, loads: RangeInclusive<f64>, profile: &Profile) -> Result<Self, Error> {
        if goals.is_empty() {
            return Err(Error::NoGoals);
        }
        goals.iter().try_for_each(Goal::check)?;
        let grid = Grid::new(*loads.start(), *loads.end(), &goals)?;
        let plan = &profile.throughput;
        let mut search = Self {
            desk: Desk::new(profile)?,
            tops: vec![grid.top(); goals.len()],
            given_up: vec![false; goals.len()],
            grid,
            draws: vec![Draws::default(); goals.len()],
            goals,
            loads: BTreeMap::new(),
            next: None,
            warm_up: plan.warm_up_seconds,
            most_seconds: plan.most_seconds,
        };
        search.choose();
        Ok(search)
    }

    /// Trials after which the search ends.
    fn most_trials(&self) -> u64 {
        let of_load = self.goals.iter().map(|goal| (goal.duration_sum / goal.final_seconds).ceil()).fold(1.0, f64::max);
        whole(of_load * MOST_LOADS).max(MOST_TRIALS)
    }

    /// Returns what is known so far, a result for each goal.
    #[must_use]
    pub fn results(&self) -> Vec<GoalResult> {
        (0..self.goals.len()).map(|number| self.result(number)).collect()
    }

    fn result(&self, number: usize) -> GoalResult {
        let goal = self.goals[number];
        let bounds = self.bounds(number);
        let record = bounds.lower.and_then(|index| Some((index, self.loads.get(&index)?)));
        let throughput =
            record.map(|(index, record)| self.grid.load(index) * (1.0 - conditional_loss(&goal, record.all(&goal))));
        let ended = match self.ended(number, bounds) {
            Some(ended) => ended,
            None if self.desk.is_over() => Ended::Void,
            None => Ended::Open,
        };
        let load = |index: Option<u64>| index.map(|index| self.grid.load(index));
        let filling = record.and_then(|(_, record)| record.filling.or(record.stopped)).map(|(_, filling)| filling);
        let [sustained, sustained_least] = sustained(throughput, filling, &goal);
        let [lower, upper] = [load(bounds.lower), load(bounds.upper)];
        let lesser = sustained_least.and(record.and_then(|(_, record)| record.lesser));
        let sustained_most = lesser.and_then(|(_, lesser)| sustained_by_lesser(throughput, upper, lesser, &goal));
        GoalResult { goal, lower, upper, throughput, sustained, sustained_least, sustained_most, ended }
    }

    fn class(&self, number: usize, index: u64) -> Class {
        self.loads.get(&index).map_or(Class::Undecided, |record| record.tallies[number].class(&self.goals[number]))
    }

    fn bounds(&self, number: usize) -> Bounds {
        let mut bounds = Bounds::default();
        for &index in self.loads.keys() {
            match self.class(number, index) {
                Class::Undecided => {}
                Class::Lower => bounds.lower = Some(index),
                Class::Upper => {
                    bounds.upper = Some(index);
                    break;
                }
            }
        }
        bounds
    }

    /// How the search has ended for a goal; `None` if it needs more trials.
    fn ended(&self, number: usize, bounds: Bounds) -> Option<Ended> {
        if self.given_up[number] {
            return Some(Ended::Void);
        }
        match (bounds.lower, bounds.upper) {
            (_, Some(0)) => Some(Ended::BelowLowest),
            (Some(lower), Some(upper)) if upper - lower <= self.grid.steps(&self.goals[number]) => Some(Ended::Found),
            (Some(lower), _) if lower >= self.grid.top() => Some(Ended::AtHighest),
            // A load above may have been reached before: it is no neighbour.
            (Some(lower), _) if lower >= self.tops[number] => Some(Ended::AtGenerator),
            _ => None,
        }
    }

    /// The goal that the next trial is for, and its number.
    fn searched(&self) -> Option<(usize, &Goal)> {
        let mut goals = self.goals.iter().enumerate();
        goals.find(|&(number, _)| self.ended(number, self.bounds(number)).is_none())
    }

    /// Takes what a trial says about each goal. One that allows no seconds of high loss gets nothing of a trial that is open, which is repeated.
    fn enter(&mut self, rate: f64, seconds: f64, outcome: &Outcome) -> &mut Record {
        let index = whole(self.grid.place(rate).round());
        let goals = &self.goals;
        let new = || Record { tallies: vec![Tally::default(); goals.len()], ..Record::default() };
        let record = self.loads.entry(index).or_insert_with(new);
        for ((goal, tally), draws) in goals.iter().zip(&mut record.tallies).zip(&mut self.draws) {
            if !goal.is_open(outcome.loss_range()) {
                tally.add(goal, seconds, outcome.loss_ratio());
                draws.add(goal, &self.grid, index, seconds, outcome.loss_ratio());
            } else if goal.exceed_ratio > 0.0 {
                tally.leave_open(goal, seconds);
            }
        }
        record
    }

    /// Decides about the next trial, for the first goal that needs one.
    fn choose(&mut self) {
        self.next = (0..self.goals.len()).find_map(|number| self.choice(number));
    }

    /// The next load for a goal, and for how long: a load without a trial of that length, or one that is undecided for the length that
    /// decides, so there is an end.
    fn choice(&self, number: usize) -> Option<(u64, f64)> {
        let bounds = self.bounds(number);
        if self.ended(number, bounds).is_some() {
            return None;
        }
        let goal = &self.goals[number];
        let steps = self.grid.steps(goal);
        if let Some(chance) = self.chance(number, steps) {
            return Some((self.by_chance(number, bounds, &chance, steps), goal.final_seconds));
        }
        let evidence = self.evidence(number);
        // Loads between the bounds that have been measured; what lies outside cannot become one.
        let open: Vec<Measured> = evidence
            .iter()
            .filter(|load| {
                bounds.lower.is_none_or(|lower| load.index > lower)
                    && bounds.upper.is_none_or(|upper| load.index < upper)
                    && load.index <= self.tops[number]
            })
            .copied()
            .collect();
        if let Some(index) = contested(&open, goal)
            && self.stays(number, &evidence, index, steps)
        {
            return Some((index, goal.final_seconds));
        }
        let (low, high) = fit(&open, goal.exceed_ratio);
        let (below, above) = (low.or(bounds.lower), high.or(bounds.upper));
        if let Some(index) = self.retreat(number, bounds, below, steps) {
            return Some((index, goal.final_seconds));
        }
        let index = match (below, above) {
            (Some(a), _) if a >= self.tops[number] => return Some((a, goal.final_seconds)),
            (Some(a), Some(b)) if b - a <= steps => return Some((self.confirm(number, a, b)?, goal.final_seconds)),
            (Some(a), Some(b)) => self.between(number, &evidence, (a, b), steps),
            (None, Some(0)) => return Some((0, goal.final_seconds)),
            (None, Some(b)) => self.down(number, b, steps),
            (_, None) => self.tops[number],
        };
        Some((index, self.seconds(number, index)))
    }

    /// What trials say if frames are lost by chance; `None` if they are not, as far as is known.
    fn chance(&self, number: usize, steps: u64) -> Option<Chance> {
        let goal = &self.goals[number];
        if goal.loss_ratio > 0.0 || goal.exceed_ratio <= 0.0 || self.misled(number).is_some() {
            return None;
        }
        let is_slight = |&(_, loss): &(f64, f64)| loss > 0.0 && loss <= goal.width * SLIGHT;
        let mut slight = self.loads.iter().filter(|(_, record)| record.trials.iter().any(is_slight));
        let is_refuted = slight.clone().any(|(_, record)| record.tallies[number].is_refuted(goal));
        let below_top: Vec<u64> =
            slight.by_ref().map(|(&index, _)| index).filter(|index| *index < self.tops[number]).collect();
        let is_wide = below_top.len() >= SLIGHT_LOADS
            && below_top[below_top.len() - 1] - below_top[0] >= steps.saturating_mul(SLIGHT_SPAN);
        let all = self.loads.values().map(|record| record.tallies[number].seconds());
        let forwards = all.into_iter().any(|(seconds, high)| high < seconds);
        if !(is_refuted || is_wide && forwards) {
            return None;
        }
        let counted = |(&index, record): (&u64, &Record)| {
            let (seconds, high) = record.tallies[number].full_seconds();
            let [low, high] = [seconds - high, high].map(|seconds| seconds / goal.final_seconds);
            (seconds > 0.0).then(|| Counted { rate: self.grid.load(index), low, high })
        };
        let loads: Vec<Counted> = self.loads.iter().filter_map(counted).collect();
        // The rate may lie outside of what is searched.
        let range = [self.grid.load(0) / 100.0, self.grid.load(self.grid.top()) * 100.0];
        (!loads.is_empty()).then(|| Chance::of(loads, goal.exceed_ratio, range))
    }

    /// The load to measure where frames are lost by chance: one is measured until it is decided, and then its neighbour, as long as they
    /// are likely to be where the goal is met by all trials so far. Those near each bound alone would end the search wherever it
    /// began.
    fn by_chance(&self, number: usize, bounds: Bounds, chance: &Chance, steps: u64) -> u64 {
        let Bounds { lower, upper } = bounds;
        let first = lower.map_or(0, |lower| lower + 1);
        let last = upper.map_or(self.tops[number], |upper| self.tops[number].min(upper - 1));
        let is_likely = |index: u64| chance.allows(self.grid.load(index));
        let open = self.loads.iter().filter(|(index, _)| (first..=last).contains(*index) && is_likely(**index));
        let seconds = |record: &Record| record.tallies[number].seconds().0;
        let most = open.max_by(|(_, one), (_, other)| seconds(one).total_cmp(&seconds(other)));
        if let Some((&index, _)) = most {
            return index;
        }
        // What was measured of a device before it became another one stays likely for long.
        let is_decided = |record: &&Record| {
            let tally = &record.tallies[number];
            tally.full_seconds().0 > 0.0 && tally.class(&self.goals[number]) != Class::Undecided
        };
        let decided = self.loads.values().filter(is_decided).count();
        if decided > TRUSTED_BY_CHANCE && decided.is_multiple_of(2) {
            return first + (last - first) / 2;
        }
        let place = whole(self.grid.place(chance.rate));
        let neighbour = |bound: Option<u64>, to: fn(u64, u64) -> Option<u64>| {
            let bound = bound.filter(|bound| is_likely(*bound))?;
            let index = to(bound, steps).filter(|index| (first..=last).contains(index))?;
            Some((bound.abs_diff(place), index))
        };
        let neighbours = [neighbour(lower, u64::checked_add), neighbour(upper, u64::checked_sub)];
        let nearest = neighbours.into_iter().flatten().min_by_key(|(away, _)| *away);
        nearest.map_or(place.clamp(first, last), |(_, index)| index)
    }

    /// How long a trial is at a load that has none which counts for where to go.
    fn seconds(&self, number: usize, index: u64) -> f64 {
        let Goal { initial_seconds, final_seconds, .. } = self.goals[number];
        if self.misled(number).is_none() {
            return initial_seconds;
        }
        // Between the two first: that refutes most loads that are too high, in less time.
        let middle = (initial_seconds * final_seconds).sqrt();
        let tried = |record: &Record| record.trials.iter().any(|&(seconds, _)| seconds >= middle);
        if self.loads.get(&index).is_some_and(tried) { final_seconds } else { middle }
    }

    /// The highest load at which short trials forwarded what those of full length lost, as those of a device with a large buffer do.
    /// From then on only those of full length say where to go.
    fn misled(&self, number: usize) -> Option<u64> {
        let misleads = |record: &Record| record.tallies[number].misleads(&self.goals[number]);
        self.loads.iter().rev().find(|(_, record)| misleads(record)).map(|(&index, _)| index)
    }

    /// The loads that say something about a goal, in order.
    fn evidence(&self, number: usize) -> Vec<Measured> {
        let misled = self.misled(number).is_some();
        let of = |tally: &Tally| if misled { tally.full_seconds() } else { tally.seconds() };
        let all = self.loads.iter().map(|(&index, record)| {
            let (seconds, high) = of(&record.tallies[number]);
            Measured { index, seconds, high }
        });
        all.filter(|load| load.seconds > 0.0).collect()
    }

    /// How many loads were tried, not counting those of which nothing is known yet.
    fn tried(&self, number: usize) -> usize {
        let misled = self.misled(number).is_some();
        let known =
            |tally: &Tally| tally.full_seconds().0 > 0.0 || tally.class(&self.goals[number]) != Class::Undecided;
        self.loads.values().filter(|record| !misled || known(&record.tallies[number])).count()
    }

    /// Whether a load of which trials disagree is measured until it is decided: where the goal seems to be met, or while they are even and
    /// the goal seems to be met far away.
    fn stays(&self, number: usize, evidence: &[Measured], index: u64, steps: u64) -> bool {
        let Some(rate) = self.estimate(number, evidence, index) else { return true };
        let away = (self.grid.place(rate) - real(index)).abs();
        let goal = &self.goals[number];
        let (seconds, high) = self.loads.get(&index).map_or((0.0, 0.0), |record| record.tallies[number].seconds());
        let is_even = (high - seconds * goal.exceed_ratio).abs() <= EVEN * goal.final_seconds;
        away <= NEAR * real(steps) || is_even && away > FAR * real(steps)
    }

    /// The rate at which a goal is likely to be met, by evidence near a load above all.
    fn estimate(&self, number: usize, evidence: &[Measured], near: u64) -> Option<f64> {
        let misled = self.misled(number).is_some();
        let at = |index| evidence.binary_search_by_key(&index, |load| load.index).is_ok();
        let draws = self.draws[number].iter().filter(|draw| at(draw.index) && (draw.full || !misled));
        crossing(&self.goals[number], &self.grid, evidence.iter().copied(), draws, near)
    }

    /// Of two neighbours the one to measure: the one that is undecided, or has fewer seconds.
    fn confirm(&self, number: usize, a: u64, b: u64) -> Option<u64> {
        let seconds = |index| self.loads.get(&index).map_or(0.0, |record| record.tallies[number].seconds().0);
        let undecided = |index| self.class(number, index) == Class::Undecided;
        match (undecided(a), undecided(b)) {
            (true, true) => Some(if seconds(a) <= seconds(b) { a } else { b }),
            (true, false) => Some(a),
            (false, true) => Some(b),
            (false, false) => None,
        }
    }

    /// A new load between two that are not neighbours, of which the generator reaches more than the lower one.
    fn between(&self, number: usize, evidence: &[Measured], (a, b): (u64, u64), steps: u64) -> u64 {
        let middle = a + (b - a) / 2;
        let tried = self.tried(number);
        if tried > TRUSTED && tried.is_multiple_of(2) {
            return middle.min(self.tops[number]);
        }
        let Some(rate) = self.estimate(number, evidence, b) else { return middle.min(self.tops[number]) };
        // The load below the estimate, if that is new, else the one above.
        let below = self.grid.below(rate);
        let index = if below > a { below } else { a.saturating_add(steps) };
        // Above the lower one, which the generator reaches, and not above what it reaches.
        if index >= b { b - steps } else { index }.max(a + 1).min((b - 1).min(self.tops[number]))
    }

    /// A load below the one that seems to meet the goal, once several that seemed to were refuted: steps double with each, up to
    /// half of what is open.
    fn retreat(&self, number: usize, bounds: Bounds, below: Option<u64>, steps: u64) -> Option<u64> {
        let goal = &self.goals[number];
        let (a, b, lowest) = (below?, bounds.upper?, bounds.lower.unwrap_or(0));
        let refuted = self.loads.range(b..).filter(|(_, record)| record.tallies[number].is_refuted(goal)).count();
        let index = b.saturating_sub(far(steps, refuted.checked_sub(REFUTED)?)).max(lowest + (b - lowest) / 2);
        (index < a).then_some(index)
    }

    /// A load below the lowest that lost frames: where its trials say, and further down with each load that was in vain.
    fn down(&self, number: usize, b: u64, steps: u64) -> u64 {
        let own = self.loads.get(&b).map(|record| record.tallies[number].seconds());
        let own = own.into_iter().map(|(seconds, high)| Measured { index: b, seconds, high });
        let draws = self.draws[number].iter().filter(|draw| draw.index == b);
        let rate = crossing(&self.goals[number], &self.grid, own, draws, b);
        let shown = rate.map_or(b, |rate| self.grid.below(rate));
        let highest = self.misled(number).unwrap_or(u64::MAX);
        let vain = self.loads.keys().filter(|&&index| index > b && index <= highest).count();
        shown.min(b.saturating_sub(far(steps, vain))).min(self.tops[number])
    }
}

/// The load of which trials disagree: whichever way it is decided, it is likely to be a bound, so it is not left before that.
fn contested(open: &[Measured], goal: &Goal) -> Option<u64> {
    let mixed =
        open.iter().filter(|load| load.high > 0.0 && load.high < load.seconds && load.seconds > goal.final_seconds);
    mixed.max_by(|a, b| a.seconds.total_cmp(&b.seconds)).map(|load| load.index)
}

/// What is forwarded for longer than the trials, if a buffer filled meanwhile, and the least of it.
pub(crate) fn sustained(throughput: Option<f64>, filling: Option<Filling>, goal: &Goal) -> [Option<f64>; 2] {
    let shares = [filling.map(|filling| filling.least), filling.map(|filling| filling.most)];
    shares.map(|share| {
        throughput.zip(share.filter(|share| *share > goal.width)).map(|(rate, share)| rate / (1.0 + share))
    })
}

/// Of two ways, the most that the one forwards for longer whose delays vary less.
pub(crate) fn sustained_by_lesser(
    throughput: Option<f64>,
    upper: Option<f64>,
    lesser: Filling,
    goal: &Goal,
) -> Option<f64> {
    sustained(throughput, Some(lesser), goal)[0].or(upper).or(throughput)
}

/// The least of what was so far and a trial of so many seconds, of the longest trials.
fn least_filling(so_far: Option<(f64, Filling)>, seconds: f64, filling: Option<Filling>) -> Option<(f64, Filling)> {
    let Some(filling) = filling else { return so_far };
    match so_far {
        Some((longest, _)) if longest > seconds => so_far,
        Some((longest, least)) if longest >= seconds => Some((seconds, least.min(filling))),
        _ => Some((seconds, filling)),
    }
}

/// A step that doubles with each load that was in vain.
fn far(steps: u64, vain: usize) -> u64 {
    steps.saturating_mul(1 << vain.min(40))
}

impl Plan for Throughput {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        if self.warm_up > 0.0 && self.spent().0 == 0 {
            return Some((Traffic::Steady { rate: self.grid.load(self.grid.top()), seconds: self.warm_up }, true));
        }
        if self.spent().0 >= self.most_trials() || self.desk.seconds() >= self.most_seconds {
            return None;
        }
        let (index, seconds) = self.next?;
        Some((Traffic::Steady { rate: self.grid.load(index), seconds }, false))
    }

    fn count(&mut self, traffic: Traffic, outcome: &Outcome) {
        let Traffic::Steady { rate, seconds } = traffic else { return };
        let record = self.enter(rate, seconds, outcome);
        record.trials.push((seconds, outcome.loss_ratio()));
        record.fill(seconds, outcome);
        self.choose();
    }

    fn is_open(&self, range: [f64; 2], _outcome: &Outcome) -> bool {
        self.searched().is_some_and(|(_, goal)| goal.is_open(range))
    }

    /// A trial that is open may be one that lost frames for the device: were only those kept that lost none, a device that loses some by
    /// chance would seem to lose none at any load at which a trial may be lucky.
    fn leave_open(&mut self, traffic: &Traffic, outcome: &Outcome) -> Option<u32> {
        let Traffic::Steady { rate, seconds } = *traffic else { return None };
        let (number, _) = self.searched()?;
        let record = self.enter(rate, seconds, outcome);
        record.open.push((seconds, outcome.loss_ratio()));
        // It may decide about the load for another goal.
        record.fill(seconds, outcome);
        let (tally, times) = (record.tallies[number], u32::try_from(record.open.len()).unwrap_or(u32::MAX));
        // A single one is done again first.
        (times >= TRIES && tally.stays_open(&self.goals[number])).then_some(times)
    }

    fn unreachable(&mut self, limit: &Limit) -> bool {
        let index = whole(self.grid.place(limit.asked).round());
        // Somewhat less than what it has reached, as it may not reach that each time.
        let reached = self.grid.below(limit.reached * (1.0 - 2.0 * self.desk.tolerance()));
        // What bursts leave open for one goal they need not for another.
        let of_bursts = self.searched().map(|(number, _)| number).filter(|_| limit.reason == Reason::Bursts);
        let lower = index.checked_sub(1).filter(|_| self.desk.may_lower());
        match (lower, of_bursts) {
            (Some(lower), Some(number)) => self.tops[number] = self.tops[number].min(lower).min(reached),
            (Some(lower), None) => self.tops.iter_mut().for_each(|top| *top = (*top).min(lower).min(reached)),
            (None, Some(number)) => self.given_up[number] = true,
            (None, None) => return false,
        }
        self.choose();
        self.next.is_some()
    }
}
