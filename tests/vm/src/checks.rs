//! What a scenario has found.

use std::fmt::{Debug, Display};

/// Counts checks and prints each.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    passed: u32,
    failed: u32,
    skipped: Vec<String>,
}

impl Checks {
    /// One check; `what` says what was to be true.
    pub(crate) fn that(&mut self, holds: bool, what: impl Display) {
        if holds {
            self.passed += 1;
            println!("   ok      {what}");
        } else {
            self.failed += 1;
            println!("   FAILED  {what}");
        }
    }

    /// That two values are equal; prints both if they are not.
    pub(crate) fn equal<T: PartialEq + Debug>(&mut self, what: impl Display, found: T, wanted: T) {
        if found == wanted {
            self.that(true, format_args!("{what}: {found:?}"));
        } else {
            self.that(false, format_args!("{what}: found {found:?}, wanted {wanted:?}"));
        }
    }

    /// That `text` contains `part`; prints the text if it does not.
    pub(crate) fn contains(&mut self, what: impl Display, text: &str, part: &str) {
        let found = text.contains(part);
        self.that(found, &what);
        if !found {
            println!("           wanted: {part}");
            text.lines().for_each(|line| println!("           {line}"));
        }
    }

    /// The scenario could not go on.
    pub(crate) fn broken(&mut self, error: &anyhow::Error) {
        self.failed += 1;
        println!("   BROKEN  {error:#}");
    }

    /// The scenario cannot run on this machine.
    pub(crate) fn skip(&mut self, reason: impl Display) {
        println!("   skipped {reason}");
        self.skipped.push(reason.to_string());
    }

    pub(crate) fn all_passed(&self) -> bool {
        self.failed == 0
    }

    /// Why nothing was checked, if so.
    pub(crate) fn skipped(&self) -> &[String] {
        &self.skipped
    }

    pub(crate) fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len())
    }
}
