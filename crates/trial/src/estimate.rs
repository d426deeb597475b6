//! Where a goal is likely to be met: from which loads lost frames, and from how many frames came through.

use crate::Goal;
use crate::grid::Grid;
use crate::trial::real;

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

/// The rate at which the goal's exceed ratio is crossed, if each trial is a draw from a device whose capacity varies. A trial of
/// high loss shows its capacity; one of low loss shows that it is not below its load. Kaplan and Meier's estimator, in which
/// loads near `near` weigh more. `None` without a trial of high loss.
pub(crate) fn crossing(
    goal: &Goal,
    grid: &Grid,
    trials: impl Iterator<Item = (u64, f64, f64)>,
    near: u64,
) -> Option<f64> {
    let mut draws: Vec<(f64, f64, bool)> = trials
        .map(|(index, seconds, loss)| {
            let weight = seconds / (1.0 + real(index.abs_diff(near)) / 8.0);
            let load = grid.load(index);
            let shown = loss > goal.loss_ratio;
            let rate = if shown { load * (1.0 - loss) / (1.0 - goal.loss_ratio) } else { load };
            (rate, weight, shown)
        })
        .collect();
    draws.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut at_risk: f64 = draws.iter().map(|draw| draw.1).sum();
    let mut survive = 1.0;
    let mut last = None;
    for (rate, weight, shown) in draws {
        if shown {
            survive *= 1.0 - weight / at_risk;
            last = Some(rate);
            if 1.0 - survive > goal.exceed_ratio {
                return last;
            }
        }
        at_risk -= weight;
    }
    last
}
