//! Figures of repeated tests.

use crate::trial::real;
use serde::{Deserialize, Serialize};

/// Mean, deviation, least, most and median of repeated measurements.
///
/// ```
/// let summary = trial::Summary::of(&[2.0, 4.0, 9.0]).unwrap();
/// assert_eq!((summary.mean, summary.min, summary.max, summary.median), (5.0, 2.0, 9.0, 4.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (that of a sample); 0 if there is one.
    pub deviation: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The median; of an even number, the mean of the two in the middle.
    pub median: f64,
}

impl Summary {
    /// Summarises values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = real(sorted.len() as u64);
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|value| (value - mean) * (value - mean)).sum();
        let deviation = if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { count: sorted.len() as u64, mean, deviation, min, max, median })
    }
}
