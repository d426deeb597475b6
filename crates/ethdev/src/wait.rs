//! Waiting for frames.

use crate::RxQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// The error for a wait on a queue that has no interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the port was opened without interrupts, so there is nothing to wait for; set PortConfig::interrupts, or poll")]
pub struct NoInterrupts;

/// Waits until one of `queues` has a frame to receive or is closed with its port, for `limit` at most. Returns whether
/// one has a frame (or a part of one that is still arriving).
///
/// ```
/// use ethdev::{Interrupts, PortConfig, RxQueue as _, in_process, wait_any};
/// use mempool::{Batch, Pool, PoolConfig};
/// use std::time::Duration;
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let config = PortConfig { rx_queues: 2, interrupts: Interrupts::Required, ..PortConfig::default() };
/// let (mut opened, mut wire) = in_process::open("a", &config, &pool)?;
/// assert!(!wait_any(&mut opened.rx, Duration::ZERO)?);
/// let other_side = std::thread::spawn(move || wire.inject_into(1, &[0; 60]));
/// assert!(wait_any(&mut opened.rx, Duration::from_secs(60))?);
/// assert_eq!(opened.rx[1].recv(&mut pool.cache(), &mut Batch::with_capacity(32)).len(), 1);
/// # assert!(other_side.join().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If one of them has no interrupts.
pub fn wait_any<Q: RxQueue>(queues: &mut [Q], limit: Duration) -> Result<bool, NoInterrupts> {
    if queues.iter().any(|queue| queue.eventfd().is_none()) {
        return Err(NoInterrupts);
    }
    let begun = Instant::now();
    loop {
        let armed = queues.iter_mut().all(|queue| !queue.is_ready() && queue.arm());
        let left = limit.saturating_sub(begun.elapsed());
        if !armed || left.is_zero() || queues.is_empty() {
            return Ok(queues.iter_mut().any(RxQueue::is_ready));
        }
        let fds = queues.iter().filter_map(|queue| queue.eventfd());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A limit beyond what the kernel can count is none. A failure, for want of memory or by a signal, is a short wait.
        let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
    }
}
