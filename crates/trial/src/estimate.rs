//! Where a goal is likely to be met: from which loads lost frames, and from how many frames came through.

use crate::Goal;
use crate::grid::Grid;
use crate::trial::{real, whole};
use std::collections::BTreeMap;

/// A load that was measured: seconds, and those of high loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) index: u64,
    pub(crate) seconds: f64,
    pub(crate) high: f64,
}

/// The highest of these loads (in order) whose share of high-loss seconds seems to be at most the exceed ratio, and the lowest
/// for which it seems to be more: isotonic regression, as the share cannot fall with the load.
pub(crate) fn fit(loads: &[Measured], exceed_ratio: f64) -> (Option<u64>, Option<u64>) {
    // Pools of neighbours: seconds, high-loss seconds, first and last load.
    let mut pools: Vec<(f64, f64, u64, u64)> = Vec::with_capacity(loads.len());
    for load in loads {
        let mut pool = (load.seconds, load.high, load.index, load.index);
        while let Some(&(seconds, high, first, _)) = pools.last()
            && high * pool.0 >= pool.1 * seconds
        {
            pools.pop();
            pool = (pool.0 + seconds, pool.1 + high, first, pool.3);
        }
        pools.push(pool);
    }
    let exceeds = |&(seconds, high, ..): &(f64, f64, u64, u64)| high > seconds * exceed_ratio;
    let below = pools.iter().rev().find(|pool| !exceeds(pool)).map(|pool| pool.3);
    let above = pools.iter().find(|pool| exceeds(pool)).map(|pool| pool.2);
    (below, above)
}

/// What trials of high loss show of the device's capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// The highest load at which their loss would have been low.
    rate: f64,
    pub(crate) index: u64,
    seconds: f64,
    /// Whether they were of full length.
    pub(crate) full: bool,
}

/// All of them, in order: those at one load that differ by less than a sixteenth of the goal's width are one, so that trials can
/// be many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws(BTreeMap<(u64, u64, bool), Draw>);

impl Draws {
    /// Takes a trial.
    pub(crate) fn add(&mut self, goal: &Goal, grid: &Grid, index: u64, seconds: f64, loss: f64) {
        if loss <= goal.loss_ratio {
            return;
        }
        let rate = grid.load(index) * (1.0 - loss) / (1.0 - goal.loss_ratio);
        let place = whole(grid.place(rate) * 16.0 / real(grid.steps(goal)));
        let full = seconds >= goal.final_seconds;
        let draw = self.0.entry((place, index, full)).or_insert(Draw { rate, index, seconds: 0.0, full });
        draw.seconds += seconds;
        draw.rate += (rate - draw.rate) * seconds / draw.seconds;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Draw> {
        self.0.values()
    }
}

/// The rate at which the goal's exceed ratio is crossed, if each trial is a draw from a device whose capacity varies. A trial of
/// high loss shows its capacity; one of low loss shows that it is not below its load. Kaplan and Meier's estimator, in which
/// loads near `near` weigh more. `None` without a trial of high loss. Both `loads` and `draws` are in order, and of the same
/// trials.
pub(crate) fn crossing<'d>(
    goal: &Goal,
    grid: &Grid,
    loads: impl Iterator<Item = Measured> + Clone,
    draws: impl Iterator<Item = &'d Draw>,
    near: u64,
) -> Option<f64> {
    let weight = |index: u64, seconds: f64| seconds / (1.0 + real(index.abs_diff(near)) / 8.0);
    let mut at_risk: f64 = loads.clone().map(|load| weight(load.index, load.seconds)).sum();
    let mut forwarded = loads.peekable();
    let mut survive = 1.0;
    let mut last = None;
    for draw in draws {
        while let Some(load) = forwarded.next_if(|load| (grid.load(load.index), load.index) <= (draw.rate, draw.index))
        {
            at_risk -= weight(load.index, load.seconds - load.high);
        }
        let weight = weight(draw.index, draw.seconds);
        survive *= 1.0 - weight / at_risk;
        last = Some(draw.rate);
        if 1.0 - survive > goal.exceed_ratio {
            return last;
        }
        at_risk -= weight;
    }
    last
}
