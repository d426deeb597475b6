//! The figures of a run while it runs.

use super::desk::Facts;
use super::orders::{DirectionState, PairState, StreamState};
use super::phase_word;
use crate::clock::ClockReport;
use crate::trial::Phase;
use crate::trial::figures::percent;
use cli::report::{Totals, rounded};
use measure::{Latency, Verdict};
use serde::Serialize;

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) phase: &'static str,
    pub(crate) running: bool,
    /// Since counters began.
    pub(crate) seconds: f64,
    /// As in the report, by what is known now.
    pub(crate) clock: ClockReport,
    pub(crate) directions: Vec<DirectionFigures>,
    pub(crate) ports: Vec<PortFigures>,
    pub(crate) clients: u64,
    pub(crate) dropped_clients: u64,
    #[serde(skip)]
    pub(crate) phases: Vec<Phase>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DirectionFigures {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(flatten)]
    pub(crate) all: Counts,
    pub(crate) foreign: u64,
    pub(crate) damaged: u64,
    pub(crate) unread: u64,
    pub(crate) streams: Vec<StreamFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamFigures {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// A stream, or several. What was sent is received, lost or under way. Of frames without tags nobody knows which of them are lost: those
/// are under way, too.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Frames a second that are asked for now; `null` without a limit.
    pub(crate) intended_pps: Option<f64>,
    /// Frames a second since the figures before, or since counters began.
    pub(crate) offered_pps: f64,
    pub(crate) received_pps: f64,
    pub(crate) missed: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) under_way: u64,
    /// Numbers that did not come, although a higher one did; `null` of frames without tags, as are the next.
    pub(crate) lost: Option<u64>,
    /// Of those that were received or lost.
    pub(crate) loss_percent: Option<f64>,
    pub(crate) duplicate: Option<u64>,
    pub(crate) late: Option<u64>,
    pub(crate) reordered: Option<u64>,
    pub(crate) latency_from_due_ns: Option<Times>,
    pub(crate) latency_from_ring_ns: Option<Times>,
    /// Since when it is counted, and when that was, in seconds of one clock.
    #[serde(skip)]
    pub(crate) span: [f64; 2],
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PortFigures {
    pub(crate) name: String,
    /// In words; `null` in the first second.
    pub(crate) link: Option<String>,
    pub(crate) rx_pps: f64,
    pub(crate) tx_pps: f64,
    pub(crate) rx_missed: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_dropped: u64,
}

impl Figures {
    /// Ports are as they were at two moments a second apart. Who is connected is not known here.
    pub(super) fn of(facts: &Facts, clock: ClockReport, states: &[PairState], [before, now]: &[Totals; 2]) -> Self {
        let pairs = states.iter().flat_map(|state| state.directions.iter().map(move |direction| (state, direction)));
        let directions = pairs.map(|(state, direction)| DirectionFigures::of(facts, state, direction)).collect();
        let phases: Vec<_> = states.iter().map(|state| state.phase).collect();
        Self {
            phase: phase_word(phases.iter().min().copied().unwrap_or_default()),
            running: states.iter().all(|state| state.runs),
            seconds: rounded(states.iter().map(|state| seconds(facts, state)).fold(0.0, f64::max)),
            clock,
            directions,
            ports: ports(facts, now, before),
            clients: 0,
            dropped_clients: 0,
            phases,
        }
    }

    /// Sets what was sent and received a second since others, which were told before; if counters began anew since, since then.
    pub(crate) fn since(&mut self, before: Option<&Self>) {
        for (index, direction) in self.directions.iter_mut().enumerate() {
            let before = before.and_then(|before| before.directions.get(index));
            direction.all.since(before.map(|before| &before.all));
            for (nth, stream) in direction.streams.iter_mut().enumerate() {
                stream.counts.since(before.and_then(|before| before.streams.get(nth)).map(|before| &before.counts));
            }
        }
    }
}

impl Figures {
    /// Takes the rates of others.
    pub(super) fn keep_rates(&mut self, of: &Self) {
        let keep = |counts: &mut Counts, of: &Counts| {
            (counts.offered_pps, counts.received_pps) = (of.offered_pps, of.received_pps);
        };
        for (direction, of) in self.directions.iter_mut().zip(&of.directions) {
            keep(&mut direction.all, &of.all);
            direction.streams.iter_mut().zip(&of.streams).for_each(|(one, of)| keep(&mut one.counts, &of.counts));
        }
    }
}

impl DirectionFigures {
    fn of(facts: &Facts, state: &PairState, direction: &DirectionState) -> Self {
        let tick = 1e9 / hz(facts);
        let (mut all, mut latencies) = (Counts::none(facts.tagged), [Latency::new(), Latency::new()]);
        (all.intended_pps, all.span) = (Some(0.0), span(facts, state));
        let mut streams = Vec::new();
        let mut damaged = direction.damaged;
        for (index, stream) in direction.streams.iter().enumerate() {
            let counts = Counts::of(stream, facts, state, tick);
            all.add(&counts);
            damaged += stream.impossible;
            latencies.iter_mut().zip([&stream.from_due, &stream.from_ring]).for_each(|(all, one)| all.add(one));
            let name = facts.streams.get(index).cloned().unwrap_or_default();
            streams.push(StreamFigures { name, counts });
        }
        [all.latency_from_due_ns, all.latency_from_ring_ns] = latencies.map(|latency| Times::of(&latency, tick));
        let name = |port: usize| facts.ports.get(port).cloned().unwrap_or_default();
        let DirectionState { from, to, foreign, unread, .. } = *direction;
        Self { from: name(from), to: name(to), all, foreign, damaged, unread, streams }
    }
}

impl Counts {
    /// Of no frame, with tags or without.
    fn none(tagged: bool) -> Self {
        let none = tagged.then_some(0);
        Self {
            lost: none,
            loss_percent: none.map(|_| 0.0),
            duplicate: none,
            late: none,
            reordered: none,
            ..Self::default()
        }
    }

    fn of(stream: &StreamState, facts: &Facts, state: &PairState, tick: f64) -> Self {
        let Verdict { sent: reached, received, lost, duplicate, late, reordered, .. } = stream.verdict;
        let sent = stream.sent.max(reached);
        let known = |count: u64| facts.tagged.then_some(count);
        let counts = Self {
            intended_pps: stream.asked.map(|asked| rounded(asked * hz(facts))),
            missed: stream.missed,
            sent,
            received,
            under_way: sent - reached,
            lost: known(lost),
            duplicate: known(duplicate),
            late: known(late),
            reordered: known(reordered),
            latency_from_due_ns: Times::of(&stream.from_due, tick),
            latency_from_ring_ns: Times::of(&stream.from_ring, tick),
            span: span(facts, state),
            ..Self::default()
        };
        counts.with_loss()
    }

    fn add(&mut self, other: &Self) {
        self.intended_pps = self.intended_pps.zip(other.intended_pps).map(|(all, one)| all + one);
        self.missed += other.missed;
        self.sent += other.sent;
        self.received += other.received;
        self.under_way += other.under_way;
        let sum = |all: Option<u64>, one: Option<u64>| all.zip(one).map(|(all, one)| all + one);
        self.lost = sum(self.lost, other.lost);
        self.duplicate = sum(self.duplicate, other.duplicate);
        self.late = sum(self.late, other.late);
        self.reordered = sum(self.reordered, other.reordered);
        *self = std::mem::take(self).with_loss();
    }

    fn with_loss(mut self) -> Self {
        self.loss_percent = self.lost.map(|lost| percent(lost, self.received + lost));
        self
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn since(&mut self, before: Option<&Self>) {
        let [begun, now] = self.span;
        // Of those before the counters began anew nothing counts.
        let before = before.filter(|before| before.span[0] >= begun && before.span[1] < now);
        let (sent, received, since) =
            before.map_or((0, 0, begun), |before| (before.sent, before.received, before.span[1]));
        let per_second = |now_count: u64, before: u64| {
            let seconds = (now - since).max(1e-9);
            if begun == 0.0 { 0.0 } else { rounded(now_count.saturating_sub(before) as f64 / seconds) }
        };
        (self.offered_pps, self.received_pps) = (per_second(self.sent, sent), per_second(self.received, received));
    }
}

impl Times {
    fn of(latency: &Latency, tick: f64) -> Option<Self> {
        let summary = latency.summary()?.scaled(tick);
        let [p50, p99, max] = [summary.p50, summary.p99, summary.max].map(rounded);
        Some(Self { count: summary.count, p50, p99, max })
    }
}

fn ports(facts: &Facts, now: &Totals, before: &Totals) -> Vec<PortFigures> {
    let rates = now.since(before).ports;
    let port = |(index, name): (usize, &String)| {
        let (now, rates) = (now.ports.get(index), rates.get(index));
        let count = |of: fn(&cli::report::PortTotals) -> u64| now.map_or(0, of);
        PortFigures {
            name: name.clone(),
            link: now.map(|port| port.link.clone()),
            rx_pps: rounded(rates.map_or(0.0, |rates| rates.rx_pps)),
            tx_pps: rounded(rates.map_or(0.0, |rates| rates.tx_pps)),
            rx_missed: count(|port| port.rx_missed),
            rx_errors: count(|port| port.rx_errors),
            tx_dropped: count(|port| port.tx_dropped),
        }
    };
    facts.ports.iter().enumerate().map(port).collect()
}

fn seconds(facts: &Facts, state: &PairState) -> f64 {
    let [begun, now] = span(facts, state);
    if begun == 0.0 { 0.0 } else { now - begun }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn span(facts: &Facts, state: &PairState) -> [f64; 2] {
    [state.since, state.now].map(|ticks| ticks as f64 / hz(facts))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn hz(facts: &Facts) -> f64 {
    facts.hz.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_damaged_as_in_the_report() {
        let facts = Facts { tagged: true, ..Facts::of_names(["a", "b"], ["1", "2"]) };
        let stream = |impossible| StreamState { impossible, ..StreamState::default() };
        let direction =
            DirectionState { to: 1, damaged: 3, unread: 6, streams: vec![stream(4), stream(5)], ..Default::default() };
        let state = PairState { directions: vec![direction], ..PairState::default() };
        let figures = Figures::of(&facts, facts.clock, &[state], &<[Totals; 2]>::default());
        let of = &figures.directions[0];
        assert_eq!((of.damaged, of.unread, of.all.lost), (12, 6, Some(0)));
    }
}
