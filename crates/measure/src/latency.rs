//! Latency: a log-linear histogram, and figures from it.

/// Steps of an octave, as a power of two: 128 steps, so a figure is right within 0.4 %.
const STEPS: u32 = 7;
/// Longer times count as this: 2^48 ticks, a day or so.
const LONGEST: u64 = (1 << 48) - 1;
/// For 48 octaves; a power of two, so that no index has to be compared with it.
const BUCKETS: usize = 8192;

/// Times in ticks, from 1 on, each counted in a bucket of at most 0.8 % of its value; below 256 ticks exactly.
///
/// ```
/// use measure::Latency;
///
/// let mut latency = Latency::new();
/// (1..=100).for_each(|ticks| latency.record(ticks));
/// let summary = latency.summary().ok_or("nothing was recorded")?;
/// assert_eq!((summary.min, summary.p50, summary.p99, summary.max), (1.0, 50.0, 99.0, 100.0));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latency {
    counts: Box<[u64; BUCKETS]>,
    moments: Moments,
    min: u64,
    /// The greatest less `min`.
    span: u64,
}

/// What is known of times beside how often each came.
#[derive(Clone, Debug, Default)]
struct Moments {
    sum: u128,
    /// Sum of their squares.
    squares: f64,
    last: f64,
    /// Smoothed difference of one time and the next.
    jitter: f64,
}

/// Figures of a [`Latency`], in ticks or in what [`Self::scaled`] makes of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Times recorded.
    pub count: u64,
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median: RFC 8219's typical latency.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile: RFC 8219's worst case latency.
    pub p999: f64,
    /// Longest.
    pub max: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Packet delay variation: 99.9th percentile less the minimum (RFC 5481, 4.2; RFC 8219, 7.3.1).
    pub pdv: f64,
    /// Interarrival jitter after the last frame (RFC 3550, 6.4.1).
    pub jitter: f64,
}

impl Latency {
    /// Bytes that one takes.
    pub(crate) const BYTES: usize = size_of::<Self>() + BUCKETS * size_of::<u64>();

    /// Creates an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), moments: Moments::default(), min: u64::MAX, span: 0 }
    }

    /// Forgets all times.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.moments, self.min, self.span) = (Moments::default(), u64::MAX, 0);
    }

    /// Counts a time; 0 ticks as 1, and more than 2^48 as that.
    #[inline(always)]
    pub fn record(&mut self, ticks: u64) {
        let ticks = ticks.clamp(1, LONGEST);
        self.widen(ticks);
        let mut recorder = self.recorder();
        recorder.record(ticks);
        recorder.save();
    }

    /// Counts the same time for each of so many frames in a row; for none of them, nothing.
    pub fn record_times(&mut self, ticks: u64, frames: u64) {
        if frames == 0 {
            return;
        }
        self.record(ticks);
        let ticks = ticks.clamp(1, LONGEST);
        let count = &mut self.counts[bucket(float(ticks))];
        // Half of what it holds is left for those that come one by one.
        *count = count.saturating_add(frames - 1).min(u64::MAX >> 1);
        let Moments { sum, squares, jitter, .. } = &mut self.moments;
        *sum = sum.saturating_add(u128::from(ticks) * u128::from(frames - 1));
        *squares += float(ticks).powi(2) * weight(frames - 1);
        *jitter *= left(frames - 1);
    }

    /// Adds the times of another. The jitter, which is that of a stream, becomes the mean of both, weighed by their frames.
    ///
    /// ```
    /// use measure::Latency;
    ///
    /// let (mut all, mut other) = (Latency::new(), Latency::new());
    /// (1..=50).for_each(|ticks| all.record(ticks));
    /// (51..=100).for_each(|ticks| other.record(ticks));
    /// all.add(&other);
    /// assert_eq!(all.summary().map(|all| (all.count, all.min, all.p50, all.max)), Some((100, 1.0, 50.0, 100.0)));
    /// ```
    pub fn add(&mut self, other: &Self) {
        if other.min == u64::MAX {
            return;
        }
        let [ours, theirs] = [self.frames(), other.frames()];
        self.widen(other.min);
        self.widen(other.min + other.span);
        for (count, more) in self.counts.iter_mut().zip(&*other.counts) {
            *count = count.saturating_add(*more).min(u64::MAX >> 1);
        }
        let Moments { sum, squares, jitter, .. } = &mut self.moments;
        *sum = sum.saturating_add(other.moments.sum);
        *squares += other.moments.squares;
        *jitter = (*jitter * ours + other.moments.jitter * theirs) / (ours + theirs);
    }

    fn frames(&self) -> f64 {
        weight(self.counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count)))
    }

    #[inline(always)]
    fn widen(&mut self, ticks: u64) {
        if self.min == u64::MAX {
            (self.min, self.span, self.moments.last) = (ticks, 0, float(ticks));
        } else if ticks < self.min {
            self.span += self.min - ticks;
            self.min = ticks;
        } else {
            self.span = self.span.max(ticks - self.min);
        }
    }

    /// For a loop that records times within those recorded before.
    #[inline(always)]
    pub(crate) fn recorder(&mut self) -> Recorder<'_> {
        let Self { counts, moments, min, span } = self;
        // Times of a hand-over are known by 32 bits: what is longer goes the long way.
        let (min, span) = match u64::from(u32::MAX).checked_sub(*min) {
            Some(most) => (*min, (*span).min(most)),
            None => (u64::MAX, 0),
        };
        let Moments { squares, last, jitter, .. } = *moments;
        Recorder { counts, moments, min, span, sum: 0, squares, last, jitter }
    }

    /// Returns the figures; `None` if nothing was recorded.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn summary(&self) -> Option<Summary> {
        let count = self.counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if count == 0 {
            return None;
        }
        let (min, max) = (self.min as f64, (self.min + self.span) as f64);
        let mean = self.moments.sum as f64 / count as f64;
        let first = bucket(1.0);
        let rising = (0..BUCKETS).map(|step| (first + step) % BUCKETS);
        let quantile = |thousandths: u128| {
            let rank = (u128::from(count) * thousandths).div_ceil(1000).max(1);
            let mut below = 0_u128;
            let at = rising.clone().find(|bucket| {
                below += u128::from(self.counts[*bucket]);
                below >= rank
            });
            at.map_or(max, middle).clamp(min, max)
        };
        let variance = self.moments.squares / count as f64 - mean.powi(2);
        // Rounded, equal times would differ.
        let most = (max - mean) * (mean - min);
        let [p50, p90, p99, p999] = [500, 900, 990, 999].map(quantile);
        Some(Summary {
            count,
            min,
            mean,
            p50,
            p90,
            p99,
            p999,
            max,
            deviation: variance.clamp(0.0, most.max(0.0)).sqrt(),
            pdv: p999 - min,
            jitter: self.moments.jitter,
        })
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Summary {
    /// Returns the figures with every time multiplied by `factor`, such as nanoseconds of a tick.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let Self { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter } = *self;
        let [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter] =
            [min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter].map(|ticks| ticks * factor);
        Self { count, min, mean, p50, p90, p99, p999, max, deviation, pdv, jitter }
    }
}

/// What is left of a jitter after so many differences of 0, where there is no need to multiply.
const LEFT: [f64; 64] = {
    let mut left = [1.0; 64];
    let mut n = 1;
    while n < left.len() {
        left[n] = left[n - 1] * (1.0 - 1.0 / 16.0);
        n += 1;
    }
    left
};

/// What is left of a jitter after so many differences of 0.
#[inline(always)]
fn left(differences: u64) -> f64 {
    let powers = || (1.0 - 1.0 / 16.0_f64).powi(i32::try_from(differences).unwrap_or(i32::MAX));
    usize::try_from(differences).ok().and_then(|n| LEFT.get(n)).copied().unwrap_or_else(powers)
}

/// A [`Latency`] with what changes for each frame at hand. Times go back to it when [`Self::save`] is called.
pub(crate) struct Recorder<'a> {
    counts: &'a mut [u64; BUCKETS],
    moments: &'a mut Moments,
    min: u64,
    span: u64,
    sum: u64,
    squares: f64,
    last: f64,
    jitter: f64,
}

impl Recorder<'_> {
    /// Whether a time is between the shortest and the longest that were recorded before.
    #[inline(always)]
    pub(crate) fn is_within(&self, ticks: u64) -> bool {
        ticks.wrapping_sub(self.min) <= self.span
    }

    /// Counts a time that [`Self::is_within`]; at most 65,536 before it is saved.
    #[inline(always)]
    pub(crate) fn record(&mut self, ticks: u64) {
        let time = float(ticks);
        self.counts[bucket(time)] += 1;
        self.sum += ticks;
        self.squares += time * time;
        self.jitter += ((time - self.last).abs() - self.jitter) * (1.0 / 16.0);
        self.last = time;
    }

    #[inline(always)]
    pub(crate) fn save(self) {
        let Self { sum, squares, last, jitter, .. } = self;
        *self.moments = Moments { sum: self.moments.sum + u128::from(sum), squares, last, jitter };
    }
}

#[expect(clippy::cast_precision_loss, reason = "a weight")]
fn weight(frames: u64) -> f64 {
    frames as f64
}

/// A time up to [`LONGEST`], exactly.
#[inline(always)]
fn float(ticks: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "below 2^48")]
    let time = ticks as i64 as f64;
    time
}

/// The bucket of a time from 1 to [`LONGEST`]: exponent and first bits of the fraction (IEEE 754, 3.4), modulo the number of
/// buckets. Those of times below 2 are the last.
#[inline(always)]
fn bucket(time: f64) -> usize {
    (time.to_bits() >> (52 - STEPS)) as usize % BUCKETS
}

/// The middle of a bucket, in ticks.
fn middle(bucket: usize) -> f64 {
    let first = 1.0_f64.to_bits() >> (52 - STEPS);
    // The buckets from that of 1 on go around.
    let from_first = (bucket as u64).wrapping_sub(first) % BUCKETS as u64;
    let [lowest, next] = [0, 1].map(|step| f64::from_bits((first + from_first + step) << (52 - STEPS)).ceil());
    (lowest + (next - 1.0).max(lowest)) / 2.0
}
