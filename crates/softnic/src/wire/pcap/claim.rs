//! Which files the captures of this process are: none may be written twice at a time, or read while it is written.

use crate::Error;
use rustix::fs::{FileType, fstat};
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    Output,
}

/// A file by device and inode, however it was named, and what it is open for. Given back when dropped.
#[derive(Debug)]
pub(super) struct Claim(Option<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    device: u64,
    inode: u64,
    role: Role,
    path: String,
}

static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<Entry>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims a file, unless another capture of this process writes it, or reads it and this one would write it. Any number may
/// read one file, and any number may share a device node such as /dev/null.
pub(super) fn claim(file: &File, path: &str, role: Role) -> Result<Claim, Error> {
    let fail = |source: rustix::io::Errno| Error::System {
        operation: "look at",
        object: path.to_owned(),
        source: source.into(),
        hint: "name another file",
    };
    let stat = fstat(file).map_err(fail)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice {
        return Ok(Claim(None));
    }
    let entry = Entry { device: stat.st_dev, inode: stat.st_ino, role, path: path.to_owned() };
    let mut open = open();
    let conflict = |known: &&Entry| {
        (known.device, known.inode) == (entry.device, entry.inode)
            && (known.role == Role::Output || role == Role::Output)
    };
    if let Some(known) = open.iter().find(conflict) {
        let doing = |role| if role == Role::Input { "read" } else { "written" };
        let cause = if known.path == path {
            format!("it is being {} already", doing(known.role))
        } else {
            format!("it is the same file as {}, which is being {}", known.path, doing(known.role))
        };
        return Err(Error::SameFile { path: path.to_owned(), cause });
    }
    open.push(entry.clone());
    Ok(Claim(Some(entry)))
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = open();
        if let Some(at) = self.0.as_ref().and_then(|entry| open.iter().position(|known| known == entry)) {
            open.swap_remove(at);
        }
    }
}
