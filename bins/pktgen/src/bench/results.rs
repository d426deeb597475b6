//! What experiments have measured, as files of JSON.

use super::catalogue::Experiment;
use crate::calibrate::target::Target;
use crate::files::open;
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use trial::Summary;

const VERSION: u32 = 1;
/// Bytes of the longest file that is read.
const LONGEST: u64 = 1 << 20;
/// No figure is larger: frames a second, or microseconds.
const MOST: f64 = 1e12;

/// The results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    version: u32,
    experiment: String,
    /// What they were measured with, by name.
    pub(super) about: BTreeMap<String, String>,
    pub(super) points: Vec<Measured>,
    /// How many measurements were not made, since it was cut.
    #[serde(default, skip_serializing_if = "is_zero")]
    missing: usize,
    /// Whether what there is in a folder is of them.
    #[serde(skip)]
    is_kept: Cell<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What was measured at a point, each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) point: u32,
    /// Frames a second that came through.
    forwarded: Vec<f64>,
    /// Medians of how long they took, in microseconds.
    latency: Vec<f64>,
    /// Why it could not be measured.
    pub(super) failed: Option<String>,
}

impl Measured {
    pub(super) fn new(point: u32) -> Self {
        Self { point, forwarded: Vec::new(), latency: Vec::new(), failed: None }
    }

    pub(super) fn add(&mut self, forwarded: f64, latency: Option<f64>) {
        self.forwarded.push(forwarded);
        self.latency.extend(latency);
    }

    /// Whether it was measured once at most.
    pub(super) fn is_single(&self) -> bool {
        self.times() < 2
    }

    /// How often it was measured.
    pub(super) fn times(&self) -> usize {
        self.forwarded.len().max(self.latency.len())
    }

    /// Takes how long frames took, in microseconds, where their rate was given.
    pub(super) fn took(&mut self, latency: f64) {
        self.latency.push(latency);
    }

    /// Frames a second that came through.
    pub(super) fn forwarded(&self) -> Option<Summary> {
        Summary::of(&self.forwarded)
    }

    /// How long they took, in microseconds.
    pub(super) fn latency(&self) -> Option<Summary> {
        Summary::of(&self.latency)
    }
}

impl Results {
    /// Those of points that are to be measured so often.
    pub(super) fn new(
        experiment: &Experiment,
        about: BTreeMap<String, String>,
        points: Vec<Measured>,
        repetitions: u32,
    ) -> Self {
        let missing = usize::try_from(repetitions).unwrap_or(usize::MAX).saturating_mul(points.len());
        Self {
            version: VERSION,
            experiment: experiment.name.to_owned(),
            about,
            points,
            missing,
            is_kept: Cell::default(),
        }
    }

    /// Takes it that so many measurements more were made.
    pub(super) fn made(&mut self, count: usize) {
        self.missing = self.missing.saturating_sub(count);
    }

    /// How many measurements were not made, if it was cut.
    pub(super) fn missing(&self) -> Option<usize> {
        Some(self.missing).filter(|missing| *missing > 0)
    }

    /// Whether ports were named that are no software NICs.
    pub(super) fn has_others(&self) -> bool {
        let is_other = |port: &str| port.parse().is_ok_and(|address: nic::Address| !address.is_soft());
        self.about.get("ports").is_some_and(|ports| ports.split(" to ").any(is_other))
    }

    /// How many measurements there are.
    fn count(&self) -> usize {
        self.points.iter().map(Measured::times).sum()
    }

    /// Why nothing was measured, if that is so.
    pub(super) fn failure(&self) -> Option<&str> {
        let is_empty = self.points.iter().all(|point| point.forwarded.is_empty() && point.latency.is_empty());
        is_empty.then(|| self.points.iter().find_map(|point| point.failed.as_deref()).unwrap_or("there are no points"))
    }

    /// Writes what there is into a folder, if anything was measured: apart from those of an earlier run until nothing is missing.
    pub(super) fn keep(&self, folder: &Path, experiment: &Experiment) -> Result<(), Failure> {
        if self.failure().is_some() {
            return Ok(());
        }
        let [whole, cut] = files(folder, experiment);
        let path = if self.missing > 0 { &cut } else { &whole };
        // What a longer run has left is kept until as much is measured again.
        if self.missing > 0 && !self.is_kept.get() {
            let earlier = read_file(folder, &cut, experiment).ok().flatten();
            if earlier.is_some_and(|earlier| earlier.count() > self.count()) {
                return Ok(());
            }
        }
        let unwritable = || format!("{}: cannot be written; see to its permissions and the space left", path.display());
        let text = format!("{}\n", serde_json::to_string(self)?);
        let target = Target::open(path).with_context(unwritable)?;
        target.replace(&text).with_context(unwritable)?;
        self.is_kept.set(true);
        if self.missing == 0 && cut.exists() {
            std::fs::remove_file(&cut).with_context(|| format!("{}: cannot be removed", cut.display()))?;
        }
        Ok(())
    }
}

/// The files of an experiment: of the last run that was whole, and of a later one that was cut.
fn files(folder: &Path, experiment: &Experiment) -> [PathBuf; 2] {
    ["json", "cut.json"].map(|end| folder.join(format!("{}.{end}", experiment.name)))
}

/// What each file of results begins with.
const BEGIN: &[u8] = br#"{"version":"#;

/// Refuses a folder in which files that are no results have the names of an experiment's.
pub(super) fn check(folder: &Path, experiment: &Experiment) -> Result<(), Failure> {
    for path in files(folder, experiment) {
        let (name, mut begin) = (path.display(), Vec::new());
        match open(OpenOptions::new().read(true), &path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.and_then(|file| file.take(BEGIN.len() as u64).read_to_end(&mut begin)),
        }
        .with_context(|| format!("{name}: cannot be read; name another folder"))?;
        if !BEGIN.starts_with(&begin) {
            return Err(anyhow!("{name}: is there and holds no results; name another folder").into());
        }
    }
    Ok(())
}

/// Reads the results of an experiment from a folder: none, those of a whole run, of one that was cut, or both.
pub(super) fn read(folder: &Path, experiment: &Experiment) -> Result<Vec<Results>, Failure> {
    let [whole, cut] = files(folder, experiment);
    let whole = read_file(folder, &whole, experiment)?;
    // What is left of a run that was cut is in the way of no other.
    let cut = read_file(folder, &cut, experiment).unwrap_or_else(|failure| {
        tracing::warn!("{}; it is left out", failure.message());
        None
    });
    Ok(whole.into_iter().chain(cut).collect())
}

fn read_file(folder: &Path, path: &Path, experiment: &Experiment) -> Result<Option<Results>, Failure> {
    let name = path.display();
    let mut text = String::new();
    match open(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => return Ok(None),
        file => file.and_then(|file| file.take(LONGEST).read_to_string(&mut text)),
    }
    .with_context(|| format!("{name}: cannot be read; name a folder that pktgen bench has written"))?;
    let results: Results =
        serde_json::from_str(&text).map_err(|_| anyhow!("{name}: damaged; measure again with --out"))?;
    let is_right = results.version == VERSION && results.experiment == experiment.name;
    if !is_right {
        return Err(anyhow!("{name}: of another version or experiment; measure again with --out").into());
    }
    let mut figures = results.points.iter().flat_map(|point| point.forwarded.iter().chain(&point.latency));
    if let Some(figure) = figures.find(|figure| !(0.0..=MOST).contains(*figure)) {
        return Err(
            anyhow!("{name}: has the figure {figure:e}, which nobody measured; measure again with --out").into()
        );
    }
    Ok(Some(results))
}
