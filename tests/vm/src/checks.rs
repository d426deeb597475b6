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

    /// That a ping had at least so many answers, however many it asked for; prints what it said if not.
    pub(crate) fn answers(&mut self, what: impl Display, text: &str, least: u32) {
        self.ping(what, text, answered(text, least) > 0);
    }

    /// That each of the first `count` requests of a ping had an answer.
    pub(crate) fn answers_to_all(&mut self, what: impl Display, text: &str, count: u32) {
        // Errors name a request, too.
        let answers: Vec<&str> = text.lines().filter(|line| line.contains(" bytes from ")).collect();
        let is_answered = |request: u32| answers.iter().any(|line| line.contains(&format!(" icmp_seq={request} ")));
        self.ping(what, text, (1..=count).all(is_answered) && !text.contains("DUP!"));
    }

    fn ping(&mut self, what: impl Display, text: &str, found: bool) {
        self.that(found, &what);
        if !found {
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

/// How many of the pings that a text is of had at least so many answers. With a deadline (`-w`) ping asks once more while an answer is
/// late, so that one may be lost, or one more come.
pub(crate) fn answered(text: &str, least: u32) -> usize {
    let answers = text.split(',').filter_map(|part| part.trim().strip_suffix(" received")?.parse().ok());
    answers.filter(|answers: &u32| *answers >= least).count()
}

#[cfg(test)]
mod tests {
    use super::answered;

    #[test]
    fn answers_are_read_as_ping_counts_them() {
        let said = "11 packets transmitted, 10 received, 9.09091% packet loss\n\n12 packets transmitted, 12 received, 0% packet loss";
        assert_eq!([9, 10, 11, 12, 13].map(|least| answered(said, least)), [2, 2, 1, 1, 0]);
        assert_eq!(answered("ping: sendmsg: Network is unreachable", 0), 0);
    }
}
