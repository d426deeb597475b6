//! What a search for the throughput has found, and what may begin with it.

use trial::{AnyTest, Ended, Goal, GoalResult, Method as _, Profile, Setup};

/// Where a device forwards more than that times its throughput of loads of which it may lose some, it loses frames by chance.
const BY_CHANCE: f64 = 1.1;

/// What is known of rates above a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    /// One loses more.
    Loses,
    /// There is none: the throughput is the highest.
    Nothing,
    /// The generator kept to none.
    Unsent,
    /// The search was given up before that was known.
    Unknown,
}

/// What a search for the throughput has found, without loss or with the least that was searched for and found. Rates are frames a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The throughput.
    pub(super) rate: f64,
    /// What the device forwards for longer than a trial, at least and at most, if a buffer was filling in it.
    sustained: Option<[f64; 2]>,
    /// Of two ways, the most that the one which loses frames may forward for longer, if the buffer was that of the other.
    of_other: Option<f64>,
    /// How long a trial of it is, in seconds.
    seconds: f64,
    /// By which share of itself the throughput may be more than that without the search seeing it.
    width: f64,
    /// The lowest rate above it that loses more.
    upper: Option<f64>,
    /// Whether trials may lose frames at it.
    pub(super) may_lose: bool,
    pub(super) above: Above,
}

impl Above {
    fn of(upper: Option<f64>, at_generator: bool, at_highest: bool) -> Self {
        match (upper, at_generator, at_highest) {
            (Some(_), ..) => Self::Loses,
            (None, true, _) => Self::Unsent,
            (None, false, true) => Self::Nothing,
            (None, false, false) => Self::Unknown,
        }
    }
}

impl Found {
    /// With what is forwarded for longer than a trial: the least, what it is, and of two ways the most of the other one.
    fn new(rate: f64, upper: Option<f64>, sustained: [Option<f64>; 3], goal: &Goal, above: Above) -> Self {
        let [least, usual, of_other] = sustained;
        // Where the machine may be why delays grew, all of the rate may be forwarded for longer.
        let sustained = least.map(|least| [least, usual.or(upper).unwrap_or(rate)]);
        let (seconds, width, may_lose) = (goal.final_seconds, goal.width, goal.loss_ratio > 0.0);
        Self { rate, sustained, of_other, seconds, width, upper, may_lose, above }
    }

    pub(super) fn has_filled(&self) -> bool {
        self.sustained.is_some()
    }

    /// The search for the longest burst, if the device forwards so much of loads of which it may lose some; `None` if that is so much more
    /// than it forwards without loss that it loses frames by chance.
    pub(super) fn bursts(&self, highest: f64, forwarded: f64) -> Option<Setup> {
        let (throughput, [least, most]) = match self.sustained {
            Some([least, most]) => (least, [least / (1.0 + self.width), most]),
            None => (self.rate, [self.rate / (1.0 + self.width), self.upper.unwrap_or(self.rate)]),
        };
        // A buffer that fills in trials makes the rates of the search no less.
        if self.above == Above::Loses && forwarded > most.max(self.upper.unwrap_or(self.rate)) * BY_CHANCE {
            return None;
        }
        // Without the time for which the machine stopped, which makes delays longer, too.
        let filling = self.sustained.map(|[_, most]| (self.rate - most).max(0.0) * self.seconds);
        let most = most.max(forwarded).max(self.of_other.unwrap_or(0.0));
        Some(Setup::BackToBack { rate: highest, throughput, range: Some([least, most]), filling })
    }
}

/// What a search has found; `None` if it has no throughput.
pub(super) fn found_by(test: &AnyTest, profile: &Profile) -> Option<Found> {
    match test {
        AnyTest::Throughput(test) => {
            let result = test.results().into_iter().find(|result| result.lower.is_some())?;
            let ended = |end| result.ended == end;
            let above = Above::of(result.upper, ended(Ended::AtGenerator), ended(Ended::AtHighest));
            let sustained = [result.sustained_least, result.sustained, result.sustained_most];
            Some(Found::new(result.lower?, result.upper, sustained, &result.goal, above))
        }
        AnyTest::BinarySearch(test) => {
            let result = test.result();
            let above = Above::of(result.upper, result.at_generator, result.found && !result.at_generator);
            let sustained = [result.sustained_least, result.sustained, result.sustained_most];
            Some(Found::new(result.throughput?, result.upper, sustained, profile.throughput.goals.first()?, above))
        }
        _ => None,
    }
}

/// Why a search has no throughput, where the device forwards so much of the highest load.
pub(super) fn no_throughput(found: &AnyTest, most: f64) -> String {
    let why = "no throughput was found to measure it at";
    match found {
        AnyTest::BinarySearch(test)
            if !test.is_given_up() && test.result().upper.is_some_and(|lossy| most > lossy * BY_CHANCE) =>
        {
            format!(
                "{why}: each rate lost frames in a trial, and of the highest load {most:.0} frames/s are forwarded; without --profile rfc2544 half \
             of the trials may lose some"
            )
        }
        _ => why.to_owned(),
    }
}

/// The highest load, in frames a second, of which a device loses as little as a goal of a search allows, and the most that it forwards of these.
pub(super) fn forwarded_by(test: &AnyTest) -> [f64; 2] {
    let results = if let AnyTest::Throughput(test) = test { test.results() } else { Vec::new() };
    let most = |rate: fn(&GoalResult) -> Option<f64>| {
        results.iter().filter_map(|result| result.sustained_least.or(rate(result))).fold(0.0, f64::max)
    };
    [most(|result| result.lower), most(|result| result.throughput)]
}

#[cfg(test)]
mod tests {
    use super::super::LOWEST;
    use super::super::measured::{self, Judge};
    use super::*;
    use ::trial::simulate::{Device, Truth};

    /// Does the search and the bursts with a device; returns the least and the most of its buffer, in frames, and what the report has.
    fn buffer_of(truth: Truth, seed: u64, highest: f64) -> Option<([f64; 2], f64)> {
        buffer_of_ways(&[truth], seed, highest)
    }

    /// The same with a device of several ways.
    fn buffer_of_ways(ways: &[Truth], seed: u64, highest: f64) -> Option<([f64; 2], f64)> {
        let profile = Profile::default();
        let mut ways: Vec<_> = ways.iter().map(|truth| Device::new(*truth, seed)).collect();
        let mut done = |setup: Setup| {
            let mut test = setup.start(&profile).unwrap();
            let judge = match setup {
                Setup::Frmol { .. } => Judge::Forwarded,
                _ => Judge::Loss { tolerance: profile.rate_tolerance },
            };
            while let Some(next) = test.next() {
                let outcomes = ways.iter_mut().map(|device| {
                    let mut outcome = device.run(&next);
                    outcome.growth = outcome.delays.map(|delays| delays.growth());
                    outcome
                });
                let outcome = outcomes.reduce(|one, other| measured::worse(one, other, &next.traffic, judge)).unwrap();
                test.tell(&outcome).unwrap();
            }
            test
        };
        let AnyTest::Frmol(most) = done(Setup::Frmol { rate: highest, max: None }) else { unreachable!() };
        let goals = profile.throughput.goals.clone();
        let search = done(Setup::Throughput { goals, low: highest * LOWEST, high: highest });
        let forwarded = forwarded_by(&search)[1].max(most.result().unwrap().forwarded);
        let found = found_by(&search, &profile).unwrap();
        if found.above != Above::Loses || found.may_lose {
            return None;
        }
        let setup = found.bursts(highest, forwarded)?;
        let AnyTest::BackToBack(bursts) = done(setup.clone()) else { unreachable!() };
        let Setup::BackToBack { throughput, range: Some(range), filling, .. } = setup else { unreachable!() };
        let result = bursts.result().unwrap();
        if filling.is_some_and(|filling| result.are_fewer_than(filling)) {
            return None;
        }
        let time = result.buffer_time(throughput, range);
        Some((time.interval.unwrap().map(|seconds| seconds * highest), time.seconds * highest))
    }

    /// A device that forwards 98.8 % of the line, and one that loses frames by chance of all loads.
    #[test]
    fn a_buffer_lies_in_its_interval_whatever_the_search_knows_of_the_device() {
        let (line, buffer) = (14_880_952.0, 512);
        for seed in 1..=10 {
            let near = Truth { capacity: 14.7e6, buffer, ..Truth::default() };
            let ([low, high], _) = buffer_of(near, seed, line).unwrap();
            assert!(low <= 513.0 && high >= 511.0 && low > 0.0, "{seed}: {low} to {high}");
            let usual = Truth { capacity: 5e6, buffer, ..Truth::default() };
            let ([low, high], found) = buffer_of(usual, seed, line).unwrap();
            assert!(low <= 513.0 && high >= 511.0 && high / low < 1.02, "{seed}: {low} to {high}");
            assert!((found / 512.0 - 1.0).abs() < 0.01, "{seed}: {found}");
            let filled = Truth { capacity: 2e3, buffer, ..Truth::default() };
            let ([low, high], found) = buffer_of(filled, seed, 1e4).unwrap();
            assert!(low <= 513.0 && high >= 511.0 && (found / 512.0 - 1.0).abs() < 0.02, "{seed}: {low} to {high}");
            for (capacity, jitter) in [(14.7e6, 0.01), (5e6, 0.1)] {
                let varying = Truth { capacity, buffer, jitter, ..Truth::default() };
                assert_eq!(buffer_of(varying, seed, line), None, "no buffer of that burst delays frames for so long");
            }
            let lossy = Truth { capacity: 1e6, buffer, loss: 1e-5, ..Truth::default() };
            assert_eq!(buffer_of(lossy, seed, 2e6), None, "a burst may lose frames by chance");
            let close = Truth { capacity: 14.82e6, buffer, ..Truth::default() };
            let ([low, high], _) = buffer_of(close, seed, line).unwrap();
            assert!(low <= 513.0 && high >= 511.0, "{seed}: {low} to {high}");
            let open = Truth { capacity: 1e9, loss: 1e-5, ..Truth::default() };
            assert_eq!(buffer_of(open, seed, 1e6), None, "it forwards all, but for what it loses by chance");
        }
    }

    /// The way that loses first fills no buffer in trials, and the other does.
    #[test]
    fn a_buffer_of_the_other_way_leaves_this_one_in_its_interval() {
        let of = |capacity, buffer| Truth { capacity, buffer, ..Truth::default() };
        let (small, large) = (of(9.8e3, 64), of(9e3, 1_000));
        for seed in 1..=10 {
            for ways in [[small, large], [large, small]] {
                let ([low, high], _) = buffer_of_ways(&ways, seed, 1e4).unwrap();
                assert!(low <= 65.0 && high >= 63.0, "{seed}: {low} to {high}");
            }
            // Two ways alike are known as well as one.
            let alike = of(2e3, 512);
            assert_eq!(buffer_of_ways(&[alike; 2], seed, 1e4), buffer_of(alike, seed, 1e4));
        }
    }

    /// A device that loses frames in one second of twenty loses some in nearly each trial of a minute.
    #[test]
    fn a_strict_search_without_a_result_says_why() {
        let why = |truth: Truth| {
            let (profile, mut device) = (Profile::rfc2544(), Device::new(truth, 2));
            let mut test =
                Setup::BinarySearch { goal: profile.throughput.goals[0], low: 1e3, high: 1e6 }.start(&profile).unwrap();
            while let Some(next) = test.next() {
                test.tell(&device.run(&next)).unwrap();
            }
            assert!(found_by(&test, &profile).is_none(), "{test:?}");
            no_throughput(&test, truth.capacity)
        };
        let stalls = Truth { capacity: 5e5, buffer: 64, stall: 0.05, stall_frames: 200, ..Truth::default() };
        assert!(why(stalls).contains("each rate lost frames in a trial, and of the highest load 500000 frames/s"));
        assert!(why(Truth { capacity: 500.0, ..Truth::default() }).ends_with("to measure it at"));
    }
}
