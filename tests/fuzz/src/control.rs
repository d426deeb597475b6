//! Bytes that a client of the control socket sends: nothing panics, what is held is bounded, and each line is answered in one.

use control::{LONGEST_LINE, ROOM, Request, Session, Step, done, refused};
use std::time::Duration;

/// Runs one input: pieces of a length each, as they come, and as a script.
pub fn run(input: &[u8]) {
    if let Some(error) = std::str::from_utf8(input).ok().and_then(|text| Step::script(text).err()) {
        assert_eq!(error.to_string().lines().count(), 1);
    }
    let (mut session, mut now, mut rest) = (Session::new(), Duration::ZERO, input);
    let (mut asked, mut answered) = (0, 0);
    while let Some((length, after)) = rest.split_first() {
        let (piece, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        now += Duration::from_millis(1);
        if session.wants_more() {
            session.receive(piece);
        }
        if rest.is_empty() {
            session.receive_end();
        }
        while let Some(request) = session.next_request() {
            asked += 1;
            match request {
                Ok(Request::Subscribe { interval }) => assert!(interval == 0.0 || interval >= 0.01),
                Ok(_) => session.say(&done()),
                Err(error) => session.say(&refused(&error)),
            }
        }
        assert!(session.outgoing().len() <= ROOM + LONGEST_LINE && !session.is_overrun(now));
        answered += session.outgoing().iter().filter(|byte| **byte == b'\n').count();
        session.sent(usize::MAX, now);
    }
    assert!(answered <= asked && !session.has_requests());
}
