//! What a SIGBUS says before it ends a program.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "reads a page that is gone")]

use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

const CHILD: &str = "RINGWAY_TEST_SIGBUS_CHILD";

#[test]
fn a_page_that_is_taken_away_ends_the_program_with_one_line() {
    if std::env::var_os(CHILD).is_some() {
        panic!("read {:?}", touch_what_is_gone());
    }
    let test = std::env::current_exe().unwrap();
    let output = Command::new(test).args(["--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{:?} {words}", output.status);
    let lines: Vec<_> = words.lines().filter(|line| line.contains("SIGBUS")).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("child: SIGBUS: mapped memory")), "{words}");
}

/// A page of a file that has become shorter: reading it ends the process.
fn touch_what_is_gone() -> io::Result<u8> {
    device::sigbus::say_so("child");
    // A second time changes nothing.
    device::sigbus::say_so("sibling");
    let file = memfd_create("gone", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, 4096)?;
    let map = MmapOptions::new().len(4096).map_raw(&file)?;
    ftruncate(&file, 0)?;
    // SAFETY: inside the mapping.
    Ok(unsafe { map.as_ptr().read_volatile() })
}
