//! What the main thread knows of each worker: its lcore, and how it sleeps.

use cli::idle::Slept;
use lcore::{Lcore, Sleeps};
use serde::Serialize;
use std::sync::Arc;

/// A worker at work.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// The lcore it is pinned to.
    pub(crate) lcore: Option<usize>,
    pub(crate) sleeps: Arc<Sleeps>,
}

/// A worker in `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct WorkerReport {
    /// `null` if it is not pinned.
    lcore: Option<usize>,
    /// The lcore's NUMA node.
    numa_node: Option<u32>,
    #[serde(flatten)]
    slept: Slept,
}

/// Returns the present state of all workers.
pub(crate) fn report(handles: &[WorkerHandle], available: &[Lcore]) -> Vec<WorkerReport> {
    let report = |handle: &WorkerHandle| WorkerReport {
        lcore: handle.lcore,
        numa_node: available.iter().find(|lcore| Some(lcore.number) == handle.lcore).and_then(|lcore| lcore.node),
        slept: Slept::of(&handle.sleeps),
    };
    handles.iter().map(report).collect()
}

/// Returns in words how the workers have slept; empty if none did.
pub(crate) fn sleep_words(workers: &[WorkerReport], seconds: f64) -> String {
    let slept: Vec<Slept> = workers.iter().map(|worker| worker.slept).collect();
    cli::idle::words(&slept, seconds)
}
