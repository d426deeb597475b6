//! Lines of any bytes, in pieces of any size; readers that do not read.

use control::{Error, LONGEST_LINE, Lines, ROOM, Request, Session, Step, Subscription};
use proptest::prelude::*;
use std::time::Duration;

proptest! {
    /// Against a split of all bytes at once.
    #[test]
    fn lines_do_not_depend_on_the_pieces_they_come_in(
        bytes in prop::collection::vec(prop_oneof![3 => Just(b'\n'), 1 => Just(b'\r'), 9 => any::<u8>()], 0..200),
        cuts in prop::collection::vec(0..20_usize, 0..40),
    ) {
        let (mut lines, mut found, mut rest) = (Lines::new(), Vec::new(), &bytes[..]);
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            lines.split(piece, |line| found.push(line));
            rest = after;
        }
        lines.split(rest, |line| found.push(line));
        lines.end(|line| found.push(line));
        let whole = bytes.split(|byte| *byte == b'\n').map(|line| std::str::from_utf8(line).map_err(|_| Error::NotUtf8));
        let whole: Vec<_> = whole
            .filter(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty()))
            .map(|line| line.map(|line| line.trim_end_matches('\r').to_owned()))
            .collect();
        prop_assert_eq!(found, whole);
    }

    #[test]
    fn no_line_is_more_than_wrong(line in "\\PC{0,60}") {
        let _ = Request::parse(&line);
        if let Err(error) = Step::parse(&line) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_told_once_and_left_out() {
    let mut session = Session::new();
    for _ in 0..64 {
        session.receive(&[b'x'; 16_384]);
    }
    session.receive(b"x\n{\"do\":\"get\"}\n");
    assert_eq!(session.next_request(), Some(Err(Error::TooLong)));
    assert_eq!(session.next_request(), Some(Ok(Request::Get {})));
    assert_eq!(session.next_request(), None);
    // As long as one may be, and a byte more.
    let longest = format!("{{\"do\":\"get\"}}{}", " ".repeat(LONGEST_LINE - 12));
    session.receive(longest.as_bytes());
    session.receive(b"\n ");
    session.receive(longest.as_bytes());
    session.receive_end();
    assert_eq!(session.next_request(), Some(Ok(Request::Get {})));
    assert_eq!(session.next_request(), Some(Err(Error::TooLong)));
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    for (line, words) in [
        ("{\"do\":\"jump\"}", "unknown variant `jump`"),
        ("{}", "missing field `do`"),
        ("[\"get\"]", "no object"),
        ("nonsense", "no object"),
        ("{\"do\":", "EOF while parsing"),
        ("{\"do\":\"set\"}", "missing field `rate`"),
        ("{\"do\":\"set\",\"rate\":[]}", "rate: neither text nor a number"),
        ("{\"do\":\"get\",\"more\":1}", "unknown field `more`"),
        ("{\"do\":\"subscribe\",\"interval\":0.001}", "interval: 0.001 is not from 0.01 to 3600"),
        ("{\"do\":\"get\"}{\"do\":\"get\"}", "trailing characters"),
    ] {
        let error = Request::parse(line).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{line}: {error}");
    }
    assert!(Request::parse(&"{\"a\":".repeat(1000)).unwrap_err().to_string().contains("recursion limit"));
    for (script, words) in [
        ("{\"do\":\"get\"}\n{\"sleep\":-1}", "2: sleep: -1 is not from 0 to 86400"),
        ("\n# one\n{\"expect\":{}}", "3: expect: nothing is expected"),
        ("{\"expect\":{\"los\":0}}", "1: unknown field `los`"),
        ("{\"expect\":{\"loss\":101}}", "1: loss: 101 is not from 0 to 100"),
        ("{\"do\":\"subscribe\"}", "1: a script has nobody to tell"),
        ("{\"sleep\":1,\"do\":\"stop\"}", "1: unknown field `do`"),
    ] {
        let error = Step::script(script).unwrap_err().to_string();
        assert!(error.starts_with(words) && error.lines().count() == 1, "{script}: {error}");
    }
}

#[test]
fn a_reader_that_does_not_read_is_bounded_and_noticed() {
    let (mut session, second) = (Session::new(), Duration::from_secs(1));
    let line = "x".repeat(1000);
    while !session.is_overrun(second) {
        session.say(&line);
        session.sent(0, second);
        assert!(session.outgoing().len() <= ROOM + line.len() + 3);
    }
    // One that takes nothing for a while, though there is room.
    let mut session = Session::new();
    session.receive(b"{\"do\":\"get\"}\n");
    assert!(session.wants_more());
    session.say(&line);
    session.sent(0, second);
    assert!(!session.wants_more() && !session.is_overrun(second * 10));
    assert!(session.is_overrun(second * 11));
    session.sent(5, second * 11);
    assert!(!session.is_overrun(second * 20));
    session.sent(usize::MAX, second * 20);
    assert!(session.outgoing().is_empty() && session.wants_more() && !session.is_overrun(second * 99));
}

#[test]
fn a_subscription_is_due_at_its_times_and_makes_good_none() {
    let second = Duration::from_secs(1);
    let mut subscription = Subscription { interval: second, next: second };
    let due = |subscription: &mut Subscription, halves: u32| subscription.is_due(second / 2 * halves);
    assert_eq!([1, 2, 2, 3, 5].map(|halves| due(&mut subscription, halves)), [false, true, false, false, true]);
    // Of times that have passed by one is told of.
    assert_eq!(
        (due(&mut subscription, 15), due(&mut subscription, 16), due(&mut subscription, 17)),
        (true, false, true)
    );
}
