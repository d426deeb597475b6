//! The folder of a run: its lines, each written and synced when it is known.

use crate::files::open;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use trial::printable;
use trial::{LeftOut, Line, Part, Profile, Report};

/// The file of lines in a folder.
const NAME: &str = "trials.jsonl";
/// What its first line begins with.
const BEGIN: &[u8] = br#"{"run":"#;
/// Bytes of the longest file of lines that is read: 10,000 trials have 5 MB.
const LONGEST: u64 = 256 << 20;

/// What a run has measured so far, and what it could not.
pub(super) type Known = (Vec<Part>, Vec<LeftOut>);

/// A folder that lines are written to, by this run alone.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: File,
    /// Whether a trial is in it.
    has_trial: bool,
    /// Whether the folder was made for this run.
    is_new: bool,
}

impl Folder {
    /// Makes a folder, unless there is one, and begins a run in it.
    pub(super) fn create(path: &Path, profile: &Profile, about: BTreeMap<String, String>) -> Result<Self, Failure> {
        let name = path.display();
        let is_new = !path.exists();
        let is_there = |folder: &Path| folder.as_os_str().is_empty() || folder.exists();
        let above = path.ancestors().skip(1).position(is_there).filter(|_| is_new).map_or(0, |at| at + 1);
        std::fs::create_dir_all(path)
            .map_err(|error| anyhow!("--out {name}: cannot be made: {error}; name another folder"))?;
        let lines = path.join(NAME);
        let file = open(OpenOptions::new().read(true).append(true).create(true), &lines);
        let file = file.map_err(|error| anyhow!("--out {name}: cannot be written: {error}; name another folder"))?;
        lock(&file, &format!("--out {name}"))?;
        // A file whose first line was not written to its end holds no result.
        let mut begin = Vec::new();
        let read = (&file).take(LONGEST).read_to_end(&mut begin);
        read.with_context(|| format!("--out {name}: cannot be read; name another folder"))?;
        let length = begin.len().min(BEGIN.len());
        if begin[..length] != BEGIN[..length] {
            return Err(anyhow!("--out {name}: its {NAME} is none of pktgen rfc2544; name another folder").into());
        }
        if begin.contains(&b'\n') {
            return Err(anyhow!("--out {name}: has results; go on with --resume {name}, or name another folder").into());
        }
        file.set_len(0).with_context(|| format!("--out {name}: cannot be written; name another folder"))?;
        let mut folder = Self { path: path.to_owned(), file, has_trial: false, is_new };
        if let Err(error) = folder.put(&Line::run_about(profile.clone(), about)) {
            folder.keep();
            return Err(anyhow!("--out {name}: cannot be written: {error}; make room, or name another folder").into());
        }
        // The file itself is in the folder for good, and new folders in those that they are in, as far as these can be read.
        sync(path).with_context(|| format!("--out {name}: cannot be written"))?;
        path.ancestors().skip(1).take(above).for_each(|folder| drop(sync(folder)));
        Ok(folder)
    }

    /// Goes on with a run. Returns its tests, too, and those that were left out; a last line that was not written to its end is removed.
    pub(super) fn resume(
        path: &Path,
        profile: &Profile,
        conditions: &[(&str, String)],
    ) -> Result<(Self, Known), Failure> {
        let name = path.display();
        let unwritable = || format!("--resume {name}: cannot be written; see to its permissions and the space left");
        let file = match open(OpenOptions::new().read(true).append(true), &path.join(NAME)) {
            Ok(file) => file,
            // What cannot be read either is no folder of results.
            Err(error) => return Err(read(path).err().unwrap_or_else(|| anyhow!("{}: {error}", unwritable()).into())),
        };
        lock(&file, &format!("--resume {name}"))?;
        let (report, whole) = read_whole(path)?;
        // An older pktgen has not written all of them down.
        let theirs = |name: &str| report.about().get(name);
        let differs =
            conditions.iter().find_map(|(name, ours)| Some((name, ours, theirs(name).filter(|of| *of != ours)?)));
        if let Some((what, ours, theirs)) = differs {
            let (theirs, ours) = (printable(theirs), printable(ours));
            return Err(Failure::usage(format!(
                "--resume {name}: its {what}: {theirs}; now: {ours}; give the options of then, or --out another folder"
            )));
        }
        if report.profile() != profile {
            let theirs = printable(&report.profile().name);
            let differs =
                if theirs == profile.name { "times, repetitions or width differ" } else { "is asked for otherwise" };
            return Err(Failure::usage(format!(
                "--resume {name}: it was measured as \"{theirs}\" and {differs} now; give the options of then, or --out another folder"
            )));
        }
        file.set_len(whole).with_context(unwritable)?;
        let known = (report.parts().to_vec(), report.left_out().to_vec());
        Ok((Self { path: path.to_owned(), file, has_trial: true, is_new: false }, known))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what was made if no trial is in it, so that the next run can have its name. Returns whether one is.
    pub(super) fn keep(self) -> bool {
        // Another run may have the name by now.
        if !self.has_trial && self.is_there() {
            // What cannot be removed is in the way of nothing else.
            let _ = std::fs::remove_file(self.path.join(NAME));
            if self.is_new {
                let _ = std::fs::remove_dir(&self.path);
            }
        }
        self.has_trial
    }

    /// Writes a line, and waits until it is kept.
    pub(super) fn write(&mut self, line: &Line) -> Result<(), Failure> {
        let written = self.put(line);
        self.has_trial |= matches!(line, Line::Trial { .. });
        let name = self.path.display();
        written.map_err(|error| {
            anyhow!("{name}: a result cannot be written: {error}; make room, and go on with --resume {name}")
        })?;
        if self.is_there() {
            return Ok(());
        }
        Err(gone(&self.path))
    }

    fn put(&mut self, line: &Line) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data())
    }

    /// Whether the file that is written to is that of the folder.
    pub(super) fn is_there(&self) -> bool {
        let [ours, theirs] = [self.file.metadata(), std::fs::metadata(self.path.join(NAME))];
        let place = |of: std::fs::Metadata| (of.dev(), of.ino());
        theirs.map(place).ok() == ours.map(place).ok()
    }
}

/// Takes the file of lines for this run alone, until it is closed.
fn lock(file: &File, name: &str) -> Result<(), Failure> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(anyhow!("{name}: another run writes to it; wait for its end, or name another folder").into());
        }
        Err(error) => {
            return Err(anyhow!("{name}: cannot be locked: {error}; name a folder of another file system").into());
        }
    }
    // The other run may have ended without a trial in between, and removed it.
    match file.metadata() {
        Ok(of) if of.nlink() > 0 => Ok(()),
        _ => Err(anyhow!("{name}: another run has just removed it; begin again").into()),
    }
}

/// What a folder has is not what was written to it.
pub(super) fn gone(path: &Path) -> Failure {
    let name = path.display();
    anyhow!("{name}: {NAME} was removed, moved or replaced, so nothing more is kept; begin again in another folder")
        .into()
}

/// Waits until the names in a folder are kept.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()
}

/// Reads what is in a folder.
pub(crate) fn read(path: &Path) -> Result<Report, Failure> {
    Ok(read_whole(path)?.0)
}

/// Reads what is in a folder: the report, and how many bytes the lines have that were written to their ends.
fn read_whole(path: &Path) -> Result<(Report, u64), Failure> {
    let name = path.display();
    let mut bytes = Vec::new();
    open(OpenOptions::new().read(true), &path.join(NAME))
        .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
        .with_context(|| format!("{name}: {NAME} cannot be read; name a folder that pktgen rfc2544 has written"))?;
    if bytes.len() as u64 > LONGEST {
        let most = LONGEST >> 20;
        return Err(anyhow!(
            "{name}: {NAME} has more than {most} MiB, and is none of pktgen rfc2544; name another folder"
        )
        .into());
    }
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    // A line that was not written to its end may have any bytes.
    let report = Report::read(&String::from_utf8_lossy(&bytes)).map_err(|error| anyhow!("{name}: {error}"))?;
    Ok((report, whole as u64))
}
