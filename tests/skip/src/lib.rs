//! How a test says that it, or a part of it, could not be done on this host. `.ci/run` counts these lines, and fails on one
//! that `.ci/skips` does not allow.

#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes `skipped: TEST: REASON` to standard error. The arguments are those of [`format!`], and give the reason.
///
/// ```
/// skip::test!("{} huge pages are free, {} wanted", 0, 4);
/// ```
#[macro_export]
macro_rules! test {
    ($($reason:tt)*) => { $crate::say(format_args!($($reason)*)) };
}

/// As [`test!`]. The output of a test that passes is not shown, but what goes past `print!` to standard error is.
#[doc(hidden)]
pub fn say(reason: Arguments<'_>) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a thread"));
    // In one piece, as other tests write too. With nowhere to write there is nobody to tell.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
