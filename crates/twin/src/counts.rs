//! What is counted of each twin.

use crate::{Class, Police};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Frames of a class.
///
/// ```
/// let count = twin::ClassCount { class: twin::Class::Link, passed: 3, dropped: 0 };
/// # let _ = count;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCount {
    /// The class.
    pub class: Class,
    /// Frames within the rate.
    pub passed: u64,
    /// Frames beyond it, which were dropped.
    pub dropped: u64,
}

/// What a port has handed to the host and got from it.
///
/// ```
/// assert_eq!(twin::Counts::default().to_host, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Frames of the port that were to go to the host, by class.
    pub classes: Vec<ClassCount>,
    /// Of those that passed: dropped, as the queue to the host had no room.
    pub queue_full: u64,
    /// Frames that the host has received by the twin.
    pub to_host: u64,
    /// Frames that it has not, as the twin was down, closed or gone, or did not take them.
    pub to_host_lost: u64,
    /// Frames that the host has sent by the twin, and that went to a worker.
    pub from_host: u64,
    /// Frames of the host that were dropped: longer than the port sends.
    pub from_host_too_long: u64,
    /// For want of packet buffers.
    pub from_host_no_buffer: u64,
    /// As the worker's queue was full.
    pub from_host_queue_full: u64,
    /// As the port did not send them in time.
    pub from_host_unsent: u64,
    /// As the twin was closed: [`Running::set_closed`](crate::Running::set_closed).
    pub from_host_closed: u64,
}

/// The same, while threads count. Cells of the thread that moves frames are apart from those of workers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) police: Police,
    pub(crate) queue_full: AtomicU64,
    pub(crate) unsent: AtomicU64,
    /// Nothing crosses.
    pub(crate) closed: AtomicBool,
    pub(crate) mover: MoverCounts,
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct MoverCounts {
    pub(crate) to_host: AtomicU64,
    pub(crate) to_host_lost: AtomicU64,
    pub(crate) from_host: AtomicU64,
    pub(crate) too_long: AtomicU64,
    pub(crate) no_buffer: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) closed: AtomicU64,
}

impl Shared {
    pub(crate) fn new(police: Police) -> Self {
        let [queue_full, unsent] = [0; 2].map(AtomicU64::new);
        Self { police, queue_full, unsent, closed: AtomicBool::new(false), mover: MoverCounts::default() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> Counts {
        let MoverCounts { to_host, to_host_lost, from_host, too_long, no_buffer, queue_full, closed } = &self.mover;
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let of_class = |class| {
            let (passed, dropped) = self.police.count(class);
            ClassCount { class, passed, dropped }
        };
        Counts {
            classes: Class::ALL.map(of_class).to_vec(),
            queue_full: count(&self.queue_full),
            to_host: count(to_host),
            to_host_lost: count(to_host_lost),
            from_host: count(from_host),
            from_host_too_long: count(too_long),
            from_host_no_buffer: count(no_buffer),
            from_host_queue_full: count(queue_full),
            from_host_unsent: count(&self.unsent),
            from_host_closed: count(closed),
        }
    }
}

/// Counts one.
pub(crate) fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}
