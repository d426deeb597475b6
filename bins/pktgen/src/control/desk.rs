//! Where requests are done, whoever makes them.

use super::figures::Figures;
use super::orders::{Orders, Pace, PairState, Wanted, lock};
use crate::clock::ClockReport;
use crate::frames::Steerable;
use crate::trial::Phase;
use ::control::{Request, Set};
use cli::report::Totals;
use measure::{Load, Pattern, Rate};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Workers are asked no more often, however many want to know.
const SHORTEST_LOOK: Duration = Duration::from_millis(20);
/// Bytes of a frame on the wire besides those in its buffer.
const WIRE_OVERHEAD: f64 = 24.0;

/// What does not change while a run runs.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Names of the ports.
    pub(crate) ports: Vec<String>,
    /// Which of them send.
    pub(crate) senders: Vec<bool>,
    /// Queue pairs of each.
    pub(crate) queues: usize,
    /// Names of the streams of each direction.
    pub(crate) streams: Vec<String>,
    /// What can be set of a port.
    pub(crate) steerable: Vec<Steerable>,
    /// The lines of the ports in bit/s, and patterns of what can be set there.
    pub(crate) lines: Vec<Option<u64>>,
    pub(crate) patterns: Vec<Vec<Pattern>>,
    /// The rates at the begin, likewise.
    pub(crate) loads: Loads,
    /// How exact times are at the begin.
    pub(crate) clock: ClockReport,
    /// Ticks a second, and how late a frame may be, in ticks.
    pub(crate) hz: u64,
    pub(crate) catch_up: u64,
    /// Frames have tags, so what is under way is known.
    pub(crate) tagged: bool,
    /// The run ends also if nobody presses a key.
    pub(crate) has_end: bool,
}

/// Rates by port and what can be set there.
pub(crate) type Loads = Vec<Vec<Option<Load>>>;

/// What is changed for workers, with the number of the order.
type Change = Box<dyn FnOnce(u64, &mut Wanted)>;

/// Where requests are done.
#[derive(Debug)]
pub(crate) struct Desk {
    orders: Arc<Orders>,
    facts: Facts,
    /// Orders are given one after the other.
    setting: Mutex<()>,
    /// The rates that workers were given.
    loads: Mutex<Loads>,
    /// The last look, and when it was: whoever asks soon after is told the same.
    looked: Mutex<Option<(Instant, Figures)>>,
    /// How ports are, and how they were a second before.
    totals: Mutex<[Totals; 2]>,
    /// How exact times are.
    clock: Mutex<ClockReport>,
    closed: Mutex<bool>,
    closing: Condvar,
    pub(super) clients: AtomicU64,
    /// Clients that were dropped, as they did not read.
    pub(super) dropped: AtomicU64,
}

/// What a request leads to.
#[derive(Debug)]
pub(crate) enum Reply {
    Done,
    Figures(Box<Figures>),
    /// Figures every so often.
    Subscribed(Duration),
}

impl Desk {
    pub(super) fn new(orders: Arc<Orders>, facts: Facts) -> Self {
        Self {
            orders,
            loads: Mutex::new(facts.loads.clone()),
            clock: Mutex::new(facts.clock),
            facts,
            setting: Mutex::default(),
            looked: Mutex::default(),
            totals: Mutex::default(),
            closed: Mutex::default(),
            closing: Condvar::new(),
            clients: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Does what is asked for; else returns why not, in a sentence.
    pub(crate) fn perform(&self, request: &Request) -> Result<Reply, String> {
        match request {
            Request::Get {} => Ok(Reply::Figures(Box::new(self.figures()?))),
            Request::Subscribe { interval } => Ok(Reply::Subscribed(Duration::from_secs_f64(*interval))),
            order => self.order_all(&[order]).pop().unwrap_or_else(|| Err(slow())).map(|()| Reply::Done),
        }
    }

    /// Whether workers are told of a request; else it only asks.
    pub(super) fn is_order(request: &Request) -> bool {
        !matches!(request, Request::Get {} | Request::Subscribe { .. })
    }

    /// Does what all of them order, in their order: workers are told once. Returns for each why it was not done.
    pub(super) fn order_all(&self, requests: &[&Request]) -> Vec<Result<(), String>> {
        self.rest();
        let _setting = lock(&self.setting);
        let mut loads = lock(&self.loads).clone();
        let mut changes = Vec::with_capacity(requests.len());
        let mut plan = |request: &&Request| self.change(request, &mut loads).map(|change| changes.push(change));
        let planned: Vec<_> = requests.iter().map(&mut plan).collect();
        if changes.is_empty() {
            return planned;
        }
        let is_over = self.give(changes, loads);
        let done = |request: &Request| match &is_over {
            // Also before any frame counts, which is an end at once.
            Ok(true) if *request != (Request::Quit {}) => Err(over()),
            Ok(_) => Ok(()),
            Err(why) => Err(why.clone()),
        };
        planned.into_iter().zip(requests).map(|(planned, request)| planned.and_then(|()| done(request))).collect()
    }

    /// The figures now.
    pub(crate) fn figures(&self) -> Result<Figures, String> {
        let mut figures = self.look()?;
        [figures.clients, figures.dropped_clients] =
            [&self.clients, &self.dropped].map(|count| count.load(Ordering::Relaxed));
        Ok(figures)
    }

    /// Changes all rates by a factor, as a fraction.
    pub(crate) fn scale(&self, by: [u64; 2]) -> Result<(), String> {
        self.rest();
        let _setting = lock(&self.setting);
        let mut loads = lock(&self.loads).clone();
        let mut any = false;
        for load in loads.iter_mut().flatten().flatten() {
            *load = scaled(*load, by);
            any = true;
        }
        if !any {
            return Err("there is no rate to change; run with --rate".to_owned());
        }
        let all = |_: usize, _: usize| true;
        let change = self.paces_of(&loads, &all)?;
        if self.give(vec![change], loads)? { Err(over()) } else { Ok(()) }
    }

    /// Waits until the run is over, or so long. Returns whether it is over.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let closed = lock(&self.closed);
        let wait = self.closing.wait_timeout_while(closed, limit, |closed| !*closed);
        *wait.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether the run ends also if nobody presses a key.
    pub(super) fn ends_without_keys(&self) -> bool {
        self.facts.has_end
    }

    /// Whether frames have tags.
    pub(super) fn is_tagged(&self) -> bool {
        self.facts.tagged
    }

    /// Whether frames may arrive by several queues of a port.
    pub(super) fn has_several_queues(&self) -> bool {
        self.facts.queues > 1
    }

    /// Whether the run is over.
    pub(super) fn is_closed(&self) -> bool {
        *lock(&self.closed)
    }

    /// The run is over.
    pub(super) fn close(&self) {
        *lock(&self.closed) = true;
        self.closing.notify_all();
    }

    /// Notes how ports are, and how exact times.
    pub(super) fn note(&self, totals: &Totals, clock: ClockReport) {
        *lock(&self.clock) = clock;
        let [before, now] = &mut *lock(&self.totals);
        *before = std::mem::replace(now, totals.clone());
    }

    /// The figures now, or of a moment ago.
    fn look(&self) -> Result<Figures, String> {
        let mut looked = lock(&self.looked);
        if let Some((_, figures)) = looked.as_ref().filter(|(at, _)| at.elapsed() < SHORTEST_LOOK) {
            return Ok(figures.clone());
        }
        let unknown = || "the run has not answered for 10 s; ask again".to_owned();
        let states = self.orders.order(|_, _| {}).ok_or_else(unknown)?;
        Ok(looked.insert((Instant::now(), self.figures_of(&states))).1.clone())
    }

    fn figures_of(&self, states: &[PairState]) -> Figures {
        let joined: Vec<_> = states.chunks(self.facts.queues.max(1)).map(PairState::joined).collect();
        Figures::of(&self.facts, *lock(&self.clock), &joined, &lock(&self.totals))
    }

    /// Waits until workers may be asked again, or until the run is over.
    fn rest(&self) {
        let since = lock(&self.looked).as_ref().map(|(at, _)| at.elapsed());
        if let Some(left) = since.and_then(|since| SHORTEST_LOOK.checked_sub(since)) {
            self.wait(left);
        }
    }

    /// What an order changes, and in `loads` the rates after it. Orders are looked at one after the other.
    fn change(&self, request: &Request, loads: &mut Loads) -> Result<Change, String> {
        Ok(match request {
            Request::Start {} => Box::new(|_, wanted| wanted.runs = true),
            Request::Stop {} => Box::new(|_, wanted| wanted.runs = false),
            Request::Clear {} if !self.facts.tagged => {
                let why = "frames have no tag, so those under way could not be told from those after";
                return Err(format!("clear: {why}; run with --tag short or full"));
            }
            Request::Clear {} => Box::new(|_, wanted| wanted.clears += 1),
            Request::Quit {} => Box::new(|_, wanted| wanted.ends = true),
            Request::Set(set) => self.set(set, loads)?,
            Request::Get {} | Request::Subscribe { .. } => Box::new(|_, _| {}),
        })
    }

    /// Gives one order with all changes, after which the rates are these, and waits until it is done. Returns whether the run is at its end;
    /// then nothing is done any more.
    fn give(&self, changes: Vec<Change>, loads: Loads) -> Result<bool, String> {
        if self.is_closed() {
            return Ok(true);
        }
        let mut looked = lock(&self.looked);
        let change = |number, wanted: &mut Wanted| changes.into_iter().for_each(|change| change(number, wanted));
        let states = self.orders.order(change);
        // Workers that do not answer yet will do it all the same.
        *lock(&self.loads) = loads;
        let states = states.ok_or_else(slow)?;
        let is_over = states.iter().all(|state| state.ended || state.phase > Phase::Counted);
        *looked = Some((Instant::now(), self.figures_of(&states)));
        Ok(is_over)
    }

    fn set(&self, set: &Set, loads: &mut Loads) -> Result<Change, String> {
        let load: Load = set.rate.parse().map_err(|error: measure::Error| format!("rate: {error}"))?;
        let nth = self.steered(set.stream.as_deref())?;
        let port = set.port.as_deref().map(|name| self.sender(name)).transpose()?;
        let is_meant = |index: usize, at: usize| at == nth && port.is_none_or(|port| port == index);
        let mut changed = loads.clone();
        for (index, loads) in changed.iter_mut().enumerate() {
            loads.iter_mut().enumerate().filter(|(at, _)| is_meant(index, *at)).for_each(|(_, one)| *one = Some(load));
        }
        let change = self.paces_of(&changed, &is_meant)?;
        *loads = changed;
        Ok(change)
    }

    /// Which port has a name, and sends.
    fn sender(&self, name: &str) -> Result<usize, String> {
        let Facts { ports, senders, .. } = &self.facts;
        let found = ports.iter().position(|port| port == name);
        let sends = |port: &usize| senders.get(*port).is_some_and(|sends| *sends);
        found.filter(sends).ok_or_else(|| {
            let problem = if found.is_some() { "it sends nothing" } else { "there is none" };
            let those = ports.iter().zip(senders).filter(|(_, sends)| **sends).map(|(port, _)| port.as_str());
            format!("port {name:?}: {problem}; those that send are {}", those.collect::<Vec<_>>().join(", "))
        })
    }

    /// What sets those of the rates that are meant, by port and what can be set there.
    fn paces_of(&self, loads: &Loads, is_meant: &dyn Fn(usize, usize) -> bool) -> Result<Change, String> {
        let mut paces = Vec::with_capacity(loads.len());
        for ((port, loads), sends) in loads.iter().enumerate().zip(&self.facts.senders) {
            paces.push(if *sends { self.paces(port, loads, is_meant)? } else { Vec::new() });
        }
        Ok(Box::new(move |number, wanted| {
            wanted.rates.resize(paces.len(), Vec::new());
            for (all, paces) in wanted.rates.iter_mut().zip(paces) {
                all.resize(paces.len(), None);
                for (one, pace) in all.iter_mut().zip(paces) {
                    *one = pace.map(|pace| (number, pace)).or(*one);
                }
            }
        }))
    }

    /// What workers have to know of the rates of a port that are meant.
    fn paces(
        &self,
        port: usize,
        loads: &[Option<Load>],
        is_meant: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Vec<Option<Pace>>, String> {
        let Facts { steerable, lines, patterns, hz, catch_up, .. } = &self.facts;
        let line = lines.get(port).copied().flatten();
        let (mut paces, mut bits) = (Vec::new(), 0.0);
        for (nth, (one, load)) in steerable.iter().zip(loads).enumerate() {
            let rate = load.map(|load| load.rate_of_mix(one.mean, line)).transpose();
            let rate = rate.map_err(|error| format!("rate: {error}"))?;
            bits += rate.map_or(0.0, Rate::per_second) * (one.mean + WIRE_OVERHEAD) * 8.0;
            let pattern = patterns.get(port).and_then(|all| all.get(nth)).copied().unwrap_or(Pattern::Even);
            let pace = |rate| Pace { rate, pattern, hz: *hz, catch_up: *catch_up, turn: [0, 1] };
            paces.push(rate.filter(|_| is_meant(port, nth)).map(pace));
        }
        #[expect(clippy::cast_precision_loss, reason = "a bound")]
        match line.map(|line| line as f64).filter(|line| bits > *line * (1.0 + 1e-9)) {
            Some(line) => {
                let [bits, line] = [bits, line].map(|bits| bits / 1e9);
                Err(format!(
                    "rate: all streams of {} together would be {bits:.3} Gbit/s with preamble and gap, above the line of \
                     {line} Gbit/s; ask for less",
                    self.facts.ports[port]
                ))
            }
            None => Ok(paces),
        }
    }

    /// Which of what can be set is that of a stream, or that of all without a rate of their own.
    fn steered(&self, stream: Option<&str>) -> Result<usize, String> {
        let Facts { steerable, streams, .. } = &self.facts;
        let own = || steerable.iter().filter_map(|one| one.stream.as_deref()).collect::<Vec<_>>().join(", ");
        let found = match stream {
            None => steerable.iter().position(|one| one.is_shared),
            Some(name) => steerable.iter().position(|one| one.stream.as_deref() == Some(name)),
        };
        match (found, stream) {
            (Some(found), _) if steerable[found].is_timed => {
                Err("rate: the capture keeps its own times; run with --rate to set it".to_owned())
            }
            (Some(found), _) => Ok(found),
            (None, None) => Err(format!("stream: all have rates of their own; name one of {}", own())),
            (None, Some(name)) if streams.iter().any(|stream| stream == name) => {
                Err(format!("stream {name:?}: it takes turns with others; leave it out to set the rate of all of them"))
            }
            (None, Some(name)) => Err(format!("stream {name:?}: there is none; there are {}", streams.join(", "))),
        }
    }
}

fn over() -> String {
    "the run is at its end; nothing changes any more".to_owned()
}

fn slow() -> String {
    "the run has not answered for 10 s; what was asked for is done once it answers again".to_owned()
}

/// A rate, times a fraction; what cannot be is refused later.
fn scaled(load: Load, [times, over]: [u64; 2]) -> Load {
    let [by, of] = [times, over].map(u128::from);
    let small = |value: u64| u64::try_from(u128::from(value) * by / of).unwrap_or(u64::MAX);
    match load {
        Load::Frames(value) => Load::Frames(small(value)),
        Load::Layer1(value) => Load::Layer1(value.saturating_mul(by) / of),
        Load::Layer2(value) => Load::Layer2(value.saturating_mul(by) / of),
        Load::Percent(value) => Load::Percent(small(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Facts {
        /// Of two ports, of which the first sends these streams in turn, without a rate.
        pub(crate) fn of_names<const N: usize>(ports: [&str; 2], streams: [&str; N]) -> Self {
            let steerable = Steerable { stream: None, is_shared: true, is_timed: false, mean: 60.0 };
            Self {
                ports: ports.map(str::to_owned).to_vec(),
                senders: vec![true, false],
                queues: 1,
                streams: streams.map(str::to_owned).to_vec(),
                steerable: vec![steerable],
                lines: vec![None; 2],
                patterns: vec![vec![Pattern::Even]; 2],
                loads: vec![vec![None]; 2],
                clock: ClockReport::default(),
                hz: 1_000_000_000,
                catch_up: 0,
                tagged: true,
                has_end: false,
            }
        }
    }

    #[test]
    fn a_rate_that_was_given_is_gone_on_from_though_nobody_has_answered() {
        let load = "1000".parse().unwrap();
        let facts = Facts { loads: vec![vec![Some(load)]; 2], ..Facts::of_names(["a", "b"], ["1"]) };
        // There is no worker, and none is waited for.
        let mut orders = Orders::new(1, true);
        orders.patience = Duration::ZERO;
        let desk = Desk::new(Arc::new(orders), facts);
        assert_eq!(desk.look().map(drop).unwrap_err(), "the run has not answered for 10 s; ask again");
        for (request, frames) in [(None, "1100"), (Some("{\"do\":\"set\",\"rate\":2000}"), "2000"), (None, "2200")] {
            let said = match request {
                None => desk.scale([11, 10]),
                Some(request) => desk.perform(&Request::parse(request).unwrap()).map(drop),
            };
            assert_eq!(said, Err(slow()));
            assert_eq!(lock(&desk.loads)[0], [Some(frames.parse().unwrap())]);
        }
        let refused = Request::parse("{\"do\":\"set\",\"rate\":3000,\"port\":\"b\"}").unwrap();
        assert!(desk.perform(&refused).map(drop).unwrap_err().contains("it sends nothing"));
        assert_eq!(lock(&desk.loads)[0], [Some("2200".parse().unwrap())]);
    }
}
