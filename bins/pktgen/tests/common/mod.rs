//! A disk that is soon full.

use std::path::Path;
use std::process::{Command, Output};

/// What a script of `sh` says while a folder is a file system of this size (`8k`), which only the script sees. Its arguments are the folder
/// and these. `None` where none can be mounted, of which the test says that it is skipped. Needs root.
pub(crate) fn on_small_disk(folder: &Path, size: &str, script: &str, arguments: &[&str]) -> Option<Output> {
    let mounted = format!("mount -t tmpfs -o size={size} none \"$1\" || exit 77; {script}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &mounted, "sh"]).arg(folder).args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare: ") || output.status.code() == Some(77) {
        skip::test!("no file system can be mounted here: {}", said.trim());
        return None;
    }
    Some(output)
}
