//! Latency (RFC 2544, 26.2; RFC 8219, 7.2 and 7.3).

use crate::error::{duration, within};
use crate::method::{Desk, Plan};
use crate::{Delays, Error, Limit, Outcome, Profile, Repeated, Summary, Traffic};
use serde::{Deserialize, Serialize};

/// Trials at given rates, each rate repeated, that measure how long frames take.
///
/// RFC 2544 has the rate of the throughput; CSIT has 10, 50 and 90 % of the partial-drop rate.
///
/// ```
/// use trial::{Delays, Latency, Method, Outcome};
///
/// let mut test = Latency::new(vec![1e5, 9e5], &Default::default())?;
/// while let Some(trial) = test.next() {
///     let mut outcome = Outcome::new(trial.traffic.frames(), trial.traffic.frames());
///     outcome.delays = Some(Delays::new(4e3, 5e3, 5e3, 9e3, 9.5e3));
///     test.tell(&outcome)?;
/// }
/// let results = test.results();
/// assert_eq!(results[1].typical().unwrap().median, 5e3);
/// assert_eq!(results[1].variation().unwrap().median, 5e3);
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latency {
    desk: Desk,
    plan: Repeated,
    rates: Vec<f64>,
    /// The rate at hand.
    at: usize,
    results: Vec<LatencyResult>,
}

/// What was measured at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LatencyResult {
    /// Frames a second.
    pub rate: f64,
    /// The delays of each repetition in which frames came back, in nanoseconds.
    pub repetitions: Vec<Delays>,
    /// Of two ways, those of the other in each of these repetitions: each figure is that of the worse way.
    #[serde(default)]
    pub others: Vec<Option<Delays>>,
    /// Frames lost in all repetitions: a rate above the throughput measures the buffers.
    pub lost: u64,
    /// Whether the generator reached the rate.
    pub reached: bool,
    /// The longest time, in seconds, for which the generator did not look for frames, in any repetition, if that is known: so much too long
    /// may delays be.
    #[serde(default)]
    pub away: Option<f64>,
}

impl LatencyResult {
    fn of(&self, pick: impl Fn(&Delays) -> f64) -> Option<Summary> {
        let others = self.others.iter().map(|other| other.as_ref().map(&pick)).chain(std::iter::repeat(None));
        let worse = |(one, other): (&Delays, Option<f64>)| other.into_iter().fold(pick(one), f64::max);
        Summary::of(&self.repetitions.iter().zip(others).map(worse).collect::<Vec<_>>())
    }

    /// Returns the figures of the mean latencies, in nanoseconds: RFC 2544 reports their mean. There the mean is over one tagged
    /// frame a trial, here over all of its frames.
    #[must_use]
    pub fn mean(&self) -> Option<Summary> {
        self.of(|delays| delays.mean)
    }

    /// Returns the figures of the typical latency, in nanoseconds: RFC 8219 reports their median.
    #[must_use]
    pub fn typical(&self) -> Option<Summary> {
        self.of(|delays| delays.median)
    }

    /// Returns the figures of the worst-case latency, in nanoseconds: RFC 8219 reports their median.
    #[must_use]
    pub fn worst(&self) -> Option<Summary> {
        self.of(|delays| delays.p999)
    }

    /// Returns the figures of the packet delay variation, in nanoseconds: RFC 8219 reports their median.
    #[must_use]
    pub fn variation(&self) -> Option<Summary> {
        self.of(Delays::variation)
    }
}

impl Latency {
    /// Begins with rates in frames a second.
    ///
    /// # Errors
    ///
    /// If a rate is none, or a number of the profile is not one to measure with.
    pub fn new(rates: Vec<f64>, profile: &Profile) -> Result<Self, Error> {
        duration("a trial duration", f64::from(profile.latency.seconds))?;
        for &rate in &rates {
            within("a rate", rate, rate > 0.0 && rate <= 1e12, "positive, in frames/s")?;
        }
        let result = |&rate| LatencyResult {
            rate,
            repetitions: Vec::new(),
            others: Vec::new(),
            lost: 0,
            reached: true,
            away: None,
        };
        let results = rates.iter().map(result).collect();
        Ok(Self { desk: Desk::new(profile)?, plan: profile.latency, rates, at: 0, results })
    }

    /// Returns what is known so far, a result for each rate.
    #[must_use]
    pub fn results(&self) -> &[LatencyResult] {
        &self.results
    }
}

impl Plan for Latency {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn plan(&self) -> Option<(Traffic, bool)> {
        // Rates in turn, so that what drifts meets all of them.
        let total = self.rates.len() * self.plan.repetitions as usize;
        let next = (self.at..total).find(|at| self.results[at % self.rates.len()].reached)?;
        let seconds = f64::from(self.plan.seconds);
        Some((Traffic::Steady { rate: self.rates[next % self.rates.len()], seconds }, false))
    }

    fn count(&mut self, _traffic: Traffic, outcome: &Outcome) {
        let count = self.rates.len();
        let Some(at) = (self.at..).take(count).find(|at| self.results[at % count].reached) else { return };
        let result = &mut self.results[at % count];
        result.lost = result.lost.saturating_add(outcome.sent - outcome.received);
        if let Some(delays) = outcome.delays {
            result.repetitions.push(delays);
            result.others.push(outcome.other_delays);
        }
        result.away = [result.away, outcome.away].into_iter().flatten().reduce(f64::max);
        self.at = at + 1;
    }

    /// Losses decide about nothing.
    fn is_open(&self, _range: [f64; 2], _outcome: &Outcome) -> bool {
        false
    }

    fn unreachable(&mut self, _limit: &Limit) -> bool {
        let count = self.rates.len();
        let at = (self.at..).take(count).find(|at| self.results[at % count].reached);
        if let Some(at) = at {
            self.results[at % count].reached = false;
        }
        true
    }
}
