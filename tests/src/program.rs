//! The programs as child processes.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The path of the `fwd` binary of this build, built now if that has not happened.
///
/// # Panics
///
/// When it cannot be built.
pub fn fwd() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built("fwd", "usage"))
}

/// The same of `pktgen`.
///
/// # Panics
///
/// When it cannot be built.
pub fn pktgen() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built("pktgen", "pktgen"))
}

/// The same of `softnic`.
///
/// # Panics
///
/// When it cannot be built.
pub fn softnic() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built("softnic", "restarts"))
}

/// With one of its tests: then the crates have the features that they have in a test of the workspace, which has built them.
fn built(name: &str, test: &str) -> PathBuf {
    // .../target/PROFILE/deps/this-test
    let this = std::env::current_exe().expect("a test knows its own path");
    let folder = this.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--workspace", "--bin", name, "--test", test]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // Optimised as this test is, and no other build of it.
        let is_release = folder.file_name() == Some(OsStr::new("release"));
        build.args(["--profile", if is_release { "release" } else { "test" }]);
        assert!(build.status().expect("cargo runs").success(), "{name} cannot be built");
    }
    folder.join(name)
}

/// The cores that this process may use, ascending, for a program that is told its cores.
///
/// # Panics
///
/// When the kernel does not say.
#[must_use]
pub fn cores() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the kernel knows");
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// The lowest of [`cores`].
///
/// # Panics
///
/// When the kernel does not say.
#[must_use]
pub fn first_core() -> usize {
    cores()[0]
}

/// What a finished run of `fwd` left.
#[derive(Debug)]
pub struct Fwd {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The object it printed with `--json`, else null.
    pub json: Value,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Fwd {
    /// Runs `fwd` to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::of(&Command::new(fwd()).args(arguments).output().expect("fwd starts"))
    }

    /// What `output` says.
    #[must_use]
    pub fn of(output: &Output) -> Self {
        let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        Self { code: output.status.code(), json, stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
    }

    /// A number of the object: of keys, and of indices of arrays.
    ///
    /// # Panics
    ///
    /// When it is not there.
    #[must_use]
    pub fn count(&self, pointer: &str) -> u64 {
        let value = self.json.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no count {pointer} in {}; {}", self.json, self.stderr))
    }

    /// The sum of all drops.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let drops = self.json.get("drops").and_then(Value::as_object);
        drops.into_iter().flat_map(|reasons| reasons.values()).filter_map(Value::as_u64).sum()
    }
}
