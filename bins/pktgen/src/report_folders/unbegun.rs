//! What was asked for and not begun, where a run was cut between two tests.

use crate::rfc2544::{ASKED_SIZES, ASKED_TESTS, test_of};
use trial::{Report, printable};

/// Sizes that are named at most.
const NAMED: usize = 8;

/// Returns the tests of a run that were asked for and not begun; `None` if there are none, or its lines do not say what was asked for.
pub(super) fn of(report: &Report) -> Option<String> {
    let asked = |name: &str| Some(report.about().get(name)?.split(", ").collect::<Vec<_>>());
    let (sizes, tests) = (asked(ASKED_SIZES)?, asked(ASKED_TESTS)?);
    let known = |size: u32, test: &str| {
        let is_begun = report
            .parts()
            .iter()
            .any(|part| part.size == size && test_of(&part.setup).is_some_and(|of| of.name() == test));
        is_begun || report.left_out().iter().any(|one| one.size == size && one.test == test)
    };
    let open = sizes.iter().filter_map(|size| {
        let number: u32 = size.parse().ok()?;
        let open: Vec<&str> = tests.iter().copied().filter(|test| !known(number, test)).collect();
        (!open.is_empty()).then(|| format!("{number} bytes: {}", open.join(", ")))
    });
    let open: Vec<String> = open.collect();
    let more =
        open.len().checked_sub(NAMED + 1).map_or_else(String::new, |more| format!("; and {} more sizes", more + 1));
    let named = open[..open.len().min(NAMED)].join("; ");
    (!open.is_empty()).then(|| printable(&format!("asked for and not begun: {named}{more}; --resume goes on")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trial::{Line, Profile};

    /// Lines may have been changed by anyone: none of their words steers a terminal.
    #[test]
    fn what_was_not_begun_is_named_without_escapes() {
        let about = [(ASKED_SIZES, "64, 128"), (ASKED_TESTS, "loss\u{1b}[2J, \u{202e}latency")];
        let about: BTreeMap<_, _> = about.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let report = Report::read(&format!("{}\n", Line::run_about(Profile::default(), about))).unwrap();
        let words = "64 bytes: loss?[2J, ?latency; 128 bytes: loss?[2J, ?latency; --resume goes on";
        assert_eq!(of(&report), Some(format!("asked for and not begun: {words}")));
    }
}
