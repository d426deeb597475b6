//! The loads that a search may try: equal steps of their logarithm, so that the distance of two is a relative width.

use crate::error::range;
use crate::trial::{real, whole};
use crate::{Error, Goal};

/// Loads by index, 0 the lowest.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    low: f64,
    high: f64,
    top: u64,
    unit: f64,
}

impl Grid {
    /// Makes the grid in which the narrowest of the goals' widths is a step.
    pub(crate) fn new(low: f64, high: f64, goals: &[Goal]) -> Result<Self, Error> {
        range(low, high)?;
        let narrowest = goals.iter().map(|goal| goal.width).fold(1.0, f64::min);
        let span = (high / low).ln();
        let top = (span / -(-narrowest).ln_1p()).ceil().max(1.0);
        Ok(Self { low, high, top: whole(top), unit: span / top })
    }

    /// The index of the highest load.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    /// Frames a second.
    pub(crate) fn load(&self, index: u64) -> f64 {
        if index >= self.top { self.high } else { self.low * (self.unit * real(index)).exp() }
    }

    /// The place of a rate between indices, 0 to the top.
    pub(crate) fn place(&self, rate: f64) -> f64 {
        if rate <= self.low { 0.0 } else { ((rate / self.low).ln() / self.unit).min(real(self.top)) }
    }

    /// The index of the highest load that is not above a rate.
    pub(crate) fn below(&self, rate: f64) -> u64 {
        let index = whole(self.place(rate));
        if self.load(index) > rate { index.saturating_sub(1) } else { index }
    }

    /// How many steps lie within a goal's width.
    pub(crate) fn steps(&self, goal: &Goal) -> u64 {
        whole(-(-goal.width).ln_1p() / self.unit * (1.0 + 1e-9)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_within_the_width() {
        for (low, high, width) in
            [(9_001.0, 14_880_952.0, 0.005), (1.0, 1.001, 0.1), (1.0, 1e12, 0.3), (5.0, 6.0, 1e-6)]
        {
            let goal = Goal { width, ..Goal::NDR };
            let wide = Goal { width: width.mul_add(2.0, -width * width), ..goal };
            let grid = Grid::new(low, high, &[goal, wide]).unwrap();
            assert_eq!((grid.load(0), grid.load(grid.top())), (low, high));
            for index in (0..grid.top()).step_by(97) {
                let (a, b) = (grid.load(index), grid.load(index + 1));
                assert!(a < b && (b - a) / b <= width * (1.0 + 1e-9), "{a} {b}");
                assert!(grid.below(b) <= index + 1 && grid.below(b) >= index);
                let c = grid.load((index + grid.steps(&wide)).min(grid.top()));
                assert!((c - a) / c <= wide.width * (1.0 + 1e-9));
            }
        }
    }
}
