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

    /// That each of the first `count` requests of a ping had one answer; prints what it said if not.
    pub(crate) fn answers(&mut self, what: impl Display, text: &str, count: u32) {
        let found = answered(text, count) == 1;
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

/// How many of the pings that a text is of had an answer to each of their first `count` requests; none if an answer came twice. With a
/// deadline (`-w`) ping asks on while an answer is late, so its sum may be more, and says nothing of loss.
pub(crate) fn answered(text: &str, count: u32) -> usize {
    // Errors name a request, too.
    let answers: Vec<&str> = text.lines().filter(|line| line.contains(" bytes from ")).collect();
    let to = |request: u32| {
        let request = format!(" icmp_seq={request} ");
        answers.iter().filter(|line| line.contains(&request)).count()
    };
    if text.contains("DUP!") { 0 } else { (1..=count).map(to).min().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::answered;

    #[test]
    fn answers_are_read_as_ping_counts_them() {
        let answer = |request| format!("64 bytes from 10.9.0.2: icmp_seq={request} ttl=64 time=0.1 ms\n");
        let said: String = [1, 2, 11, 1, 2, 4].map(answer).concat();
        let said =
            format!("{said}From 10.9.0.1 icmp_seq=3 Destination Host Unreachable\n7 packets transmitted, 6 received");
        assert_eq!([1, 2, 3, 4].map(|count| answered(&said, count)), [2, 2, 0, 0]);
        assert_eq!(answered(&said.replace("=11 ttl=64 time=0.1 ms", "=1 ttl=64 time=0.1 ms (DUP!)"), 2), 0);
        assert_eq!(answered("ping: sendmsg: Network is unreachable", 1), 0);
    }
}
