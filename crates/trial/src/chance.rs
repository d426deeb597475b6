//! Where a goal without loss is likely to be met by a device that loses frames by chance.

/// Trials at a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Frames a second.
    pub(crate) rate: f64,
    /// Trials without loss, and those with some.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How much less likely than the best rate another may be, as a logarithm, before it is left for that.
const HOLD: f64 = 0.25;
/// Halvings of the range of rates.
const HALVINGS: u32 = 40;

/// A device that loses each frame with the same small chance: its trials lose none with a probability of exp(-rate). By all that was
/// measured, whatever the order, the rate at which the goal's exceed ratio is crossed.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    loads: Vec<Counted>,
    /// What the exponent is at the rate in question.
    crossed: f64,
    /// The most likely rate.
    pub(crate) rate: f64,
    likelihood: f64,
}

impl Chance {
    /// Takes trials, of which there is one at least.
    pub(crate) fn of(loads: Vec<Counted>, exceed_ratio: f64, [low, high]: [f64; 2]) -> Self {
        let mut chance = Self { loads, crossed: -(-exceed_ratio).ln_1p(), rate: low, likelihood: 0.0 };
        let (mut low, mut high) = (low.ln(), high.ln());
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            *(if chance.is_too_high(middle.exp()) { &mut high } else { &mut low }) = middle;
        }
        chance.rate = f64::midpoint(low, high).exp();
        chance.likelihood = chance.likelihood_of(chance.rate);
        chance
    }

    /// Whether a rate is nearly as likely as the best.
    pub(crate) fn allows(&self, rate: f64) -> bool {
        self.likelihood_of(rate) >= self.likelihood - HOLD
    }

    /// Whether a lower rate is more likely.
    fn is_too_high(&self, rate: f64) -> bool {
        let slope = |load: &Counted| {
            let exponent = load.rate / rate * self.crossed;
            load.high * exponent / exponent.exp_m1() - load.low * exponent
        };
        self.loads.iter().map(slope).sum::<f64>() > 0.0
    }

    fn likelihood_of(&self, rate: f64) -> f64 {
        let of = |load: &Counted| {
            let exponent = load.rate / rate * self.crossed;
            let lost = -(-exponent).exp_m1();
            if load.high > 0.0 { load.high * lost.ln() - load.low * exponent } else { -load.low * exponent }
        };
        self.loads.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_trials_lose_at_the_rate() {
        let of = |loads: &[(f64, f64, f64)]| {
            let loads = loads.iter().map(|&(rate, low, high)| Counted { rate, low, high }).collect();
            Chance::of(loads, 0.5, [1.0, 1e9])
        };
        let even = of(&[(1e5, 10.0, 10.0)]);
        assert!((even.rate / 1e5 - 1.0).abs() < 1e-6 && even.allows(1.1e5) && !even.allows(2e5), "{even:?}");
        // A quarter without loss is two half-lives.
        assert!((of(&[(1e5, 5.0, 15.0)]).rate / 0.5e5 - 1.0).abs() < 1e-6);
        // What is at ends of the range says in which direction, and no more.
        assert!(of(&[(1e5, 0.0, 3.0)]).rate < 200.0 && of(&[(1e5, 3.0, 0.0)]).rate > 0.9e9);
        assert!(of(&[(1e9, 0.0, 3.0), (1e5, 10.0, 10.0)]).rate < 1.000_01e5);
    }
}
