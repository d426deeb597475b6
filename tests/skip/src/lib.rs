//! How a test says that it, or a part of it, could not be done on this host, and how one gets a network namespace. `.ci/run` counts these lines, and fails on one
//! that `.ci/skips` does not allow.

#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::io::Write as _;
use std::process::Command;

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

/// Returns whether this process has a network namespace for the test of this name alone. If not, another process that has one does the test,
/// or the test is skipped where `probe`, a program and its arguments, does not succeed in one.
///
/// # Panics
///
/// If the test fails there.
#[must_use]
pub fn has_namespace(test: &str, probe: &[&str]) -> bool {
    const CHILD: &str = "RINGWAY_TEST_NAMESPACE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let unshare = |words: &[&str]| Command::new("unshare").arg("--net").args(words).env(CHILD, "1").output();
    if !unshare(probe).is_ok_and(|tried| tried.status.success()) {
        let probe = probe.join(" ");
        test!(
            "`unshare --net {probe}` fails: it takes root, util-linux and iproute2, and /dev/net/tun for a TAP interface"
        );
        return false;
    }
    let program = std::env::current_exe().unwrap_or_default();
    let done = unshare(&[&program.to_string_lossy(), "--exact", test, "--nocapture"]).expect("it was started before");
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    // What it has skipped is counted here.
    let skipped =
        said.lines().filter(|line| line.starts_with("skipped: ")).fold(String::new(), |all, line| all + line + "\n");
    let _ = std::io::stderr().lock().write_all(skipped.as_bytes());
    false
}
