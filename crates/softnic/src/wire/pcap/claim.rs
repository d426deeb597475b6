//! Which files the captures of this process are: none may be written twice at a time, or read while it is written.

use crate::Error;
use rustix::fs::{FileType, FlockOperation, Stat, flock, fstat, stat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Input,
    Output,
}

/// A file by device and inode, however it was named, and what it is open for. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Claim(Option<Entry>);

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

/// Checks captures, an IN and an OUT each, before any of them is opened, as opening an OUT empties it: none may be written that is
/// to be read too, or written twice. What cannot be looked at is for opening it to complain of.
pub(crate) fn check(captures: &[(&str, &str)]) -> Result<(), Error> {
    let known = |path: &str| {
        let stat = stat(path).ok().filter(|stat| !path.is_empty() && !is_character_device(stat))?;
        Some((stat.st_dev, stat.st_ino))
    };
    let inputs: Vec<_> = captures.iter().filter_map(|(input, _)| Some((known(input)?, *input))).collect();
    let mut outputs = Vec::new();
    for (_, output) in captures {
        let Some(id) = known(output) else { continue };
        let clash = |doing: &str, others: &[((u64, u64), &str)]| {
            let (_, other) = others.iter().find(|(known, _)| *known == id)?;
            let same = if other == output { String::new() } else { format!("the same file as {other}, ") };
            Some(Error::SameFile { path: (*output).to_owned(), cause: format!("it is {same}to be {doing} too") })
        };
        if let Some(error) = clash("read", &inputs).or_else(|| clash("written elsewhere", &outputs)) {
            return Err(error);
        }
        outputs.push((id, *output));
    }
    Ok(())
}

fn is_character_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
}

/// Claims a file, unless another capture writes it, of this process or one that locks its captures as this one does (flock), or
/// reads it and this one would write it, or text goes there. Any number may read one file, and any number may share a device node
/// such as /dev/null.
pub(super) fn claim(file: &File, path: &str, role: Role) -> Result<Claim, Error> {
    let fail = |source: rustix::io::Errno| Error::System {
        operation: "look at",
        object: path.to_owned(),
        source: source.into(),
        hint: "name another file",
    };
    let stat = fstat(file).map_err(fail)?;
    if is_character_device(&stat) {
        return Ok(Claim(None));
    }
    let same = |cause: String| Error::SameFile { path: path.to_owned(), cause };
    let is_text = |text: rustix::io::Result<Stat>| {
        text.is_ok_and(|text| (text.st_dev, text.st_ino) == (stat.st_dev, stat.st_ino))
    };
    if role == Role::Output && (is_text(fstat(io::stdout())) || is_text(fstat(io::stderr()))) {
        return Err(same("text goes there, as it is standard output or standard error".to_owned()));
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
        return Err(same(cause));
    }
    let lock = if role == Role::Output {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    // A file system without locks does without.
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && flock(file, lock) == Err(Errno::WOULDBLOCK) {
        let doing = if role == Role::Output { "read or written" } else { "written" };
        return Err(same(format!("another process has it open to be {doing}")));
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
