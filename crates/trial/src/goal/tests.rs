//! The tables of RFC 9971, appendix "Example Search" ("Load Classification Computations", points 1 to 6), and the values of its
//! "Conditional Throughput Computations".
//!
//! For the goal "20% exceed" the tables of points 5 and 6 call the load a lower bound, where the exceed ratios that they give, 42.857 %
//! and 27.273 %, make it an upper one, and so does the code of the appendix "Load Classification Code", which is normative.

use super::{Class, Goal, Tally, conditional_loss};
use Class::{Lower, Undecided, Upper};

/// Goals "RFC2544", "TST009", "1s final" and "20% exceed".
fn goals() -> [Goal; 4] {
    let goal = |final_seconds, duration_sum, loss_ratio, exceed_ratio| Goal {
        final_seconds,
        duration_sum,
        loss_ratio,
        exceed_ratio,
        ..Goal::NDR
    };
    [
        goal(60.0, 60.0, 0.0, 0.0),
        goal(60.0, 120.0, 0.0, 0.5),
        goal(1.0, 120.0, 0.005, 0.5),
        goal(60.0, 60.0, 0.005, 0.2),
    ]
}

/// So many trials, of so many seconds, with this loss.
type Run = (usize, f64, f64);

fn trials(runs: &[Run]) -> Vec<(f64, f64)> {
    runs.iter().flat_map(|&(count, seconds, loss)| std::iter::repeat_n((seconds, loss), count)).collect()
}

#[test]
fn classes_are_those_of_the_tables() {
    let points: [(&[Run], [Class; 4]); 6] = [
        (&[(59, 1.0, 0.0)], [Undecided; 4]),
        (&[(59, 1.0, 0.0), (1, 1.0, 0.01)], [Upper, Undecided, Undecided, Undecided]),
        (&[(59, 1.0, 0.0), (60, 1.0, 0.01)], [Upper, Undecided, Undecided, Upper]),
        (&[(60, 1.0, 0.0), (60, 1.0, 0.01)], [Upper, Undecided, Lower, Upper]),
        (&[(60, 1.0, 0.0), (60, 1.0, 0.01), (1, 60.0, 0.001)], [Upper, Undecided, Lower, Upper]),
        (&[(60, 1.0, 0.0), (60, 1.0, 0.01), (1, 60.0, 0.001), (1, 60.0, 0.0)], [Upper, Lower, Lower, Upper]),
    ];
    for (number, (runs, classes)) in points.iter().enumerate() {
        for (goal, class) in goals().iter().zip(classes) {
            let mut tally = Tally::default();
            for (seconds, loss) in trials(runs) {
                tally.add(goal, seconds, loss);
            }
            assert_eq!(tally.class(goal), *class, "point {}: {goal:?}: {tally:?}", number + 1);
        }
    }
}

#[test]
fn conditional_throughput_is_that_of_the_example() {
    let all = trials(&[(60, 1.0, 0.0), (60, 1.0, 0.01), (1, 60.0, 0.001), (1, 60.0, 0.0)]);
    let all = || all.iter().copied();
    let [_, tst009, one_second, exceed] = goals();
    assert_eq!(conditional_loss(&tst009, all()), 0.0);
    assert_eq!(conditional_loss(&one_second, all()), 0.0);
    assert_eq!(conditional_loss(&exceed, all()), 0.001);
}
