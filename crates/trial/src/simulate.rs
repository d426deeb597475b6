//! A device under test whose truth is known, and the generator before it.
//!
//! It works on counts, not on frames: a trial of a minute takes no longer than one of a second.

use crate::trial::{real, whole};
use crate::{AnyTest, Delays, Error, Line, Method as _, Outcome, Profile, Setup, Traffic, Trial};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What is true of a device, and of the generator before it. Rates are in frames a second, times in seconds, chances 0 to 1.
///
/// ```
/// use trial::simulate::{Device, Truth};
/// use trial::{Goal, Method, Throughput};
///
/// let mut device = Device::new(Truth { capacity: 5e5, buffer: 256, ..Truth::default() }, 7);
/// let mut search = Throughput::new(vec![Goal::NDR], 9e3..=1e7, &Default::default())?;
/// while let Some(trial) = search.next() {
///     search.tell(&device.run(&trial))?;
/// }
/// assert!(search.results()[0].lower.unwrap() > 0.995 * 5e5);
/// # Ok::<(), trial::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// What it forwards at most.
    pub capacity: f64,
    /// By how much that varies from trial to trial, as a share of it: uniformly, to both sides.
    pub capacity_varies: f64,
    /// Frames that it can hold.
    pub buffer: u64,
    /// How long a frame takes if none waits, and by how much that varies, uniformly.
    pub delay: f64,
    /// See [`Self::delay`].
    pub jitter: f64,
    /// The chance of a frame to be lost.
    pub loss: f64,
    /// The chance of a frame to be the first of a burst that is lost, and frames of a burst.
    pub loss_burst: f64,
    /// See [`Self::loss_burst`].
    pub loss_burst_frames: u64,
    /// The chance of a second to have a stall, and frames that are lost in one.
    pub stall: f64,
    /// See [`Self::stall`].
    pub stall_frames: u64,
    /// The chance of a frame to come after its successor.
    pub reorder: f64,
    /// The chance of a frame to come twice.
    pub duplicate: f64,
    /// For so long after an overload it forwards nothing.
    pub recovery: f64,
    /// The chance of a trial in which the link falls.
    pub link_falls: f64,
    /// The chance of a trial in which the clock jumps.
    pub clock_jumps: f64,
    /// The highest rate of the generator.
    pub generator: f64,
    /// Chance of a trial in which the generator sends a tenth less.
    pub generator_stalls: f64,
    /// Chance of a trial in which the generator is away for so many seconds, and then sends in a burst what was due.
    pub generator_away: f64,
    /// See [`Self::generator_away`].
    pub generator_away_seconds: f64,
}

/// A device of which a [`Truth`] holds.
#[derive(Clone, Debug)]
pub struct Device {
    truth: Truth,
    random: Xoshiro256PlusPlus,
}

impl Default for Truth {
    /// A device that forwards a million frames a second, takes 10 us, and has no faults.
    fn default() -> Self {
        Self {
            capacity: 1e6,
            capacity_varies: 0.0,
            buffer: 0,
            delay: 10e-6,
            jitter: 0.0,
            loss: 0.0,
            loss_burst: 0.0,
            loss_burst_frames: 0,
            stall: 0.0,
            stall_frames: 0,
            reorder: 0.0,
            duplicate: 0.0,
            recovery: 0.0,
            link_falls: 0.0,
            clock_jumps: 0.0,
            generator: f64::INFINITY,
            generator_stalls: 0.0,
            generator_away: 0.0,
            generator_away_seconds: 0.0,
        }
    }
}

impl Device {
    /// Makes a device; with the same truth and seed, the same trials have the same outcomes.
    #[must_use]
    pub fn new(truth: Truth, seed: u64) -> Self {
        Self { truth, random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Does the trials of a test with frames of `size` bytes, and appends the lines of it that a run would have written. Returns the test,
    /// which has ended.
    ///
    /// # Errors
    ///
    /// Those of [`Setup::start`].
    pub fn test(
        &mut self,
        (profile, size): (&Profile, u32),
        setup: Setup,
        lines: &mut String,
    ) -> Result<AnyTest, Error> {
        let mut test = setup.start(profile)?;
        *lines += &format!("{}\n", Line::test(size, setup));
        while let Some(trial) = test.next() {
            let outcome = self.run(&trial);
            *lines += &format!("{}\n", Line::trial(trial, outcome));
            test.tell(&outcome)?;
        }
        Ok(test)
    }

    /// Does a trial.
    pub fn run(&mut self, trial: &Trial) -> Outcome {
        let capacity = self.truth.capacity * (1.0 + self.truth.capacity_varies * (2.0 * self.uniform() - 1.0));
        let seconds = trial.traffic.seconds();
        let slow = if self.happens(self.truth.generator_stalls) { 0.9 } else { 1.0 };
        let reached = (self.truth.generator / trial.traffic.rate()).min(1.0) * slow;
        let sent = whole(real(trial.traffic.frames()) * reached);
        let (queued_out, last_lost) = self.through_queue(&trial.traffic, sent, capacity);
        let away = if self.happens(self.truth.generator_away) { self.truth.generator_away_seconds } else { 0.0 };
        let burst = whole(trial.traffic.rate() * away).min(sent);
        let (spoiled, spoiled_runs) = self.spoiled(queued_out, seconds);
        // What was due meanwhile comes at once, and has the buffer for itself.
        let spoiled = spoiled.saturating_add(burst.saturating_sub(self.truth.buffer)).min(queued_out);
        let mut outcome = Outcome::new(sent, queued_out - spoiled);
        outcome.seconds = Some(seconds);
        // What the queue has no room for is lost one by one, and what comes in a burst at once.
        let runs = spoiled_runs.saturating_add(sent - queued_out).saturating_add(u64::from(burst > self.truth.buffer));
        outcome.runs = (runs > 0).then_some(runs);
        (outcome.doubtful, outcome.away) = (burst, Some(away));
        outcome.link_fell = self.happens(self.truth.link_falls);
        outcome.clock_jumped = self.happens(self.truth.clock_jumps);
        outcome.duplicate = self.count(outcome.received, self.truth.duplicate);
        outcome.reordered = self.count(outcome.received, self.truth.reorder);
        outcome.last_lost = last_lost;
        let excess = (trial.traffic.rate() * reached - capacity).max(0.0);
        outcome.delays = (outcome.received > 0).then(|| {
            let (low, high) = (self.truth.delay, self.truth.delay + self.truth.jitter);
            // The buffer fills while the trial lasts.
            let waits = |share: f64| (excess * seconds * share).min(real(self.truth.buffer)) / capacity;
            // Frames wait in the ring until it looks for them.
            let waits = |share: f64| waits(share) + if share >= 0.999 { away } else { 0.0 };
            let at = |share: f64| (low + (high - low) * share + waits(share)) * 1e9;
            Delays::new(low * 1e9, at(0.5), at(0.5), at(0.999), at(1.0))
        });
        outcome
    }

    /// Frames that leave the queue, and when the last was lost after an overload.
    fn through_queue(&self, traffic: &Traffic, sent: u64, capacity: f64) -> (u64, Option<f64>) {
        match *traffic {
            Traffic::Steady { seconds, .. } => {
                (sent.min(whole(capacity * seconds).saturating_add(self.truth.buffer)), None)
            }
            Traffic::Burst { rate, frames } => {
                let leaves = whole(real(frames) * (capacity / rate).min(1.0));
                (sent.min(leaves.saturating_add(self.truth.buffer)), None)
            }
            Traffic::Overload { rate, seconds, then, then_seconds } => {
                let over = (rate - capacity) * seconds - real(self.truth.buffer);
                let gone = if over > 0.0 { self.truth.recovery.min(then_seconds) } else { 0.0 };
                let lost = whole(over.max(0.0) + gone * then);
                (sent.saturating_sub(lost), (gone > 0.0).then_some(gone))
            }
        }
    }

    /// Frames lost by chance, in bursts and in stalls, and in how many runs.
    fn spoiled(&mut self, frames: u64, seconds: f64) -> (u64, u64) {
        let stalls = self.count(whole(seconds.ceil()), self.truth.stall);
        let bursts = self.count(frames, self.truth.loss_burst);
        let single = self.count(frames, self.truth.loss);
        let of_bursts = bursts.saturating_mul(self.truth.loss_burst_frames);
        let lost = (stalls * self.truth.stall_frames).saturating_add(of_bursts).saturating_add(single).min(frames);
        (lost, stalls.saturating_add(bursts).saturating_add(single))
    }

    /// A number from 0 to below 1.
    fn uniform(&mut self) -> f64 {
        real(self.random.next_u64() >> 11) / real(1 << 53)
    }

    fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.uniform() < chance
    }

    /// How many of so many happen: a draw from the binomial distribution, or from the normal one beside it if that takes long.
    fn count(&mut self, trials: u64, chance: f64) -> u64 {
        if chance <= 0.0 || trials == 0 {
            return 0;
        }
        if chance >= 1.0 {
            return trials;
        }
        let mean = real(trials) * chance;
        if mean > 1_000.0 {
            let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            return whole((mean + normal * (mean * (1.0 - chance)).sqrt()).max(0.0)).min(trials);
        }
        // From one that happens to the next.
        let (mut at, mut happened) = (0.0, 0);
        loop {
            at += ((1.0 - self.uniform()).ln() / (-chance).ln_1p()).floor() + 1.0;
            if at > real(trials) {
                return happened;
            }
            happened += 1;
        }
    }
}
