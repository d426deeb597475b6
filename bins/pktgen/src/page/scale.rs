//! From values to places on an axis.

use cli::human::grouped;

/// An axis from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// From 0 to a multiple of the step.
    Linear { high: f64, step: f64 },
    /// From one power of ten to another.
    Log { low: i32, high: i32 },
    /// So many names, each in the middle of its share.
    Names { count: usize },
}

/// Steps of a linear axis, and decades of a logarithmic one, at most.
const STEPS: f64 = 5.0;
const DECADES: i32 = 12;
/// What axes reach to; values beyond are at their ends.
const LEAST: f64 = 1e-12;
const MOST: f64 = 1e15;

impl Scale {
    /// The linear axis that values fit on.
    pub(crate) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > LEAST { most.min(MOST) } else { 1.0 };
        let rough = most / STEPS;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|nice| nice * power).into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(rough);
        Self::Linear { high: (most / step * 0.999).ceil().max(1.0) * step, step }
    }

    /// The logarithmic axis that positive values fit on.
    pub(crate) fn log(values: impl Iterator<Item = f64>) -> Self {
        let fits = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = fits.fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)));
        let (low, high) = (low.clamp(LEAST, MOST), high.min(MOST));
        if high < LEAST {
            return Self::Log { low: 0, high: 1 };
        }
        let power = |value: f64| decade(value.log10());
        let (low, mut high) = (power(low), power(high * 0.999) + 1);
        high = high.max(low + 1);
        Self::Log { low: low.max(high - DECADES), high }
    }

    /// The place of a value, from 0 to 1.
    pub(crate) fn at(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { high, .. } => value / high,
            Self::Log { low, high } => (value.max(1e-300).log10() - f64::from(low)) / f64::from(high - low),
            Self::Names { count } => (value + 0.5) / real(count.max(1)),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The values that are marked, and their labels. Names have their own.
    pub(crate) fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { high, step } => {
                let digits = usize::try_from(-decade(step.log10())).unwrap_or(0);
                let is_half = (step / 10_f64.powi(decade(step.log10())) - 2.5).abs() < 0.01;
                let digits = if is_half { digits + 1 } else { digits };
                let values = (0..=10).map(|nth| real(nth) * step).take_while(|value| *value <= high * 1.001);
                values.map(|value| (value, number(value, digits))).collect()
            }
            Self::Log { low, high } => {
                let within: &[f64] = if high - low <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let skip = (high - low) / 7 + 1;
                let decades = (low..=high).filter(|power| (power - low) % skip == 0);
                let all = decades.flat_map(|power| within.iter().map(move |first| (power, first * 10_f64.powi(power))));
                let label = |(power, value): (i32, f64)| (value, number(value, usize::try_from(-power).unwrap_or(0)));
                all.filter(|(_, value)| *value <= 10_f64.powi(high) * 1.001).map(label).collect()
            }
            Self::Names { .. } => Vec::new(),
        }
    }
}

/// A number with its digits in groups of three.
pub(crate) fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let out = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    if fraction.is_empty() { out } else { format!("{out}.{fraction}") }
}

#[expect(clippy::cast_possible_truncation, reason = "a power of ten; saturates")]
fn decade(power: f64) -> i32 {
    (power + 1e-9).floor() as i32
}

#[expect(clippy::cast_precision_loss, reason = "a few names or ticks")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        for (most, texts) in [
            (93.0, &["0", "20", "40", "60", "80", "100"][..]),
            (0.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (12.0, &["0.0", "2.5", "5.0", "7.5", "10.0", "12.5"]),
            (f64::NAN, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (5_000.0, &["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
        ] {
            assert_eq!(labels(Scale::linear([most].into_iter())), texts, "{most}");
        }
        assert_eq!(labels(Scale::log([3.0, 80.0].into_iter())), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(
            labels(Scale::log([0.02, 3_000.0].into_iter())),
            ["0.01", "0.1", "1", "10", "100", "1,000", "10,000"]
        );
        assert_eq!(labels(Scale::log([0.0, f64::INFINITY].into_iter())).len(), 4);
        for most in [1e-300, 1e-11, 0.3, 7.0, 1e12, 1e300, f64::MAX] {
            for scale in [Scale::linear([most].into_iter()), Scale::log([most, most / 1e30].into_iter())] {
                let ticks = scale.ticks();
                assert!((2..=14).contains(&ticks.len()), "{most} {scale:?}");
                assert!(ticks.iter().all(|(value, _)| (0.0..=1.0).contains(&scale.at(*value))), "{most}");
            }
        }
    }
}
