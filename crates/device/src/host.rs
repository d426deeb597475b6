//! Location of the kernel's files: `/sys`, `/proc` and `/dev` of this host, or of a tree made for tests.

use crate::{Error, Result};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A host as seen through its `/sys`, `/proc` and `/dev`.
///
/// ```no_run
/// use device::Host;
///
/// for device in Host::system().network_controllers()? {
///     println!("{} {} {}", device.address, device.ids, device.driver.as_deref().unwrap_or("no driver"));
/// }
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// A host of these files, in a folder that lives as long as the first value.
    #[cfg(test)]
    pub(crate) fn made(files: &[(&str, &str)]) -> (tempfile::TempDir, Self) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = Self::at(root.path());
        (root, host)
    }

    /// Returns the host on which this process runs.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Returns the host whose `sys`, `proc`, `dev`, `etc`, `lib` and `usr` are folders of `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(path)
    }

    pub(crate) fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(path)
    }

    pub(crate) fn dev(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("dev").join(path)
    }

    /// A file outside these, by its path from the root.
    pub(crate) fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// This process's user by name, else by number, for commands.
    pub(crate) fn user(&self) -> String {
        let Some(uid) = self.self_status("Uid:").and_then(|ids| ids.split_whitespace().next().map(str::to_owned))
        else {
            return "$USER".to_owned();
        };
        let users = self.read(&self.file("etc/passwd")).unwrap_or_default();
        let name = users.lines().find_map(|line| match line.split(':').collect::<Vec<_>>().as_slice() {
            [name, _, number, ..] if *number == uid => Some((*name).to_owned()),
            _ => None,
        });
        name.unwrap_or(uid)
    }

    /// A line of `/proc/self/status`, by how it starts.
    pub(crate) fn self_status(&self, start: &str) -> Option<String> {
        let text = self.read(&self.proc("self/status")).ok()?;
        Some(text.lines().find_map(|line| line.strip_prefix(start))?.trim().to_owned())
    }

    /// Processes that have `path` open, as number and name: all of them for root, else those of this user.
    pub(crate) fn holders(&self, path: &str) -> Vec<(u32, String)> {
        let processes = self.names(&self.proc("")).into_iter().filter_map(|name| name.parse::<u32>().ok());
        let holds = |pid: &u32| {
            let folder = self.proc(format!("{pid}/fd"));
            self.names(&folder)
                .iter()
                .any(|fd| std::fs::read_link(folder.join(fd)).is_ok_and(|to| to == Path::new(path)))
        };
        processes
            .filter(holds)
            .map(|pid| (pid, self.read(&self.proc(format!("{pid}/comm"))).unwrap_or_else(|_| "a program".to_owned())))
            .collect()
    }

    /// A file's text without surrounding white space.
    pub(crate) fn read(&self, path: &Path) -> Result<String> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::system("read", path.display().to_string(), source, ""))?;
        Ok(text.trim().to_owned())
    }

    /// Writes one attribute in a single system call, as sysfs wants it.
    pub(crate) fn write(&self, path: &Path, value: &str) -> Result<()> {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| {
                let hint = if source.kind() == io::ErrorKind::PermissionDenied { "run this as root" } else { "" };
                Error::system("write", path.display().to_string(), source, hint)
            })
    }

    /// Why nothing can be read below `/sys`; `None` where it can.
    pub(crate) fn unseen_sys(&self) -> Option<&'static str> {
        self.names(&self.sys("")).is_empty().then_some("/sys is not mounted here, or may not be read")
    }

    /// Why nothing can be read below `/proc`; `None` where it can.
    pub(crate) fn unseen_proc(&self) -> Option<&'static str> {
        self.names(&self.proc("")).is_empty().then_some("/proc is not mounted here, or may not be read")
    }

    /// Names in a folder, sorted; none if it cannot be read.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last part of what a symbolic link points to.
    pub(crate) fn link_name(&self, link: &Path) -> Option<String> {
        Some(std::fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::system()
    }
}
