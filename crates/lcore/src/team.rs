//! Threads that run functions, each on its lcore.

use crate::{Error, Function, Loop, Stop, available, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A group of running threads, each of which returns a `T` when it is done. Dropping a team leaves its threads running.
///
/// ```
/// use lcore::{Stop, Team};
///
/// let stop = Stop::new()?;
/// let members = (1..=3).map(|number| (None, move || number * number)).collect();
/// assert_eq!(Team::start(members, &stop)?.join()?, [1, 4, 9]);
/// # Ok::<(), lcore::Error>(())
/// ```
#[derive(Debug)]
pub struct Team<T> {
    threads: Vec<(String, JoinHandle<T>)>,
    finished: Arc<AtomicUsize>,
    begun: Instant,
}

impl<F: Function + Send + 'static> Team<F> {
    /// Runs each function in a [`Loop`] of its own. As long as there are enough lcores, each loop has one of its own,
    /// beginning with the last; further loops run on any. The loops yield when nothing moves, so that others may share
    /// the lcores. A function that panics requests a stop, so that the others do not run on without it. Joining the team
    /// returns the functions.
    ///
    /// ```
    /// use lcore::{Clock, Stop, Team};
    ///
    /// let stop = Stop::new()?;
    /// let team = Team::run((0..3).map(|_| |_: &mut Clock| false), &stop)?;
    /// stop.request();
    /// assert_eq!(team.join()?.len(), 3);
    /// # Ok::<(), lcore::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn run(functions: impl IntoIterator<Item = F>, stop: &Stop) -> Result<Self, Error> {
        // A host that does not say which there are pins nothing.
        let mut lcores = available().unwrap_or_default();
        let members = functions.into_iter().map(|function| {
            let one = Loop::new(stop).yield_after(Some(IDLE_ROUNDS));
            (lcores.pop().map(|lcore| lcore.number), move || one.run(function))
        });
        let all = stop.clone();
        Self::start_with(members.collect(), stop, move || {
            if std::thread::panicking() {
                all.request();
            }
        })
    }

    /// Runs the functions like [`Self::run`], requests a stop after `time`, and waits for them to end. Returns the
    /// functions.
    ///
    /// ```
    /// use lcore::{Clock, Team};
    /// use std::time::Duration;
    ///
    /// let polls = Team::run_for([|_: &mut Clock| false], Duration::from_millis(1))?;
    /// assert_eq!(polls.len(), 1);
    /// # Ok::<(), lcore::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`] and [`Self::join`].
    pub fn run_for(functions: impl IntoIterator<Item = F>, time: Duration) -> Result<Vec<F>, Error> {
        let (stop, begun) = (Stop::new()?, Instant::now());
        let team = Self::run(functions, &stop)?;
        // A signal handler ends a wait early.
        while !stop.wait(time.saturating_sub(begun.elapsed())) && begun.elapsed() < time {}
        stop.request();
        team.join()
    }
}

/// Rounds without a packet before [`Team::run`]'s loops yield.
const IDLE_ROUNDS: u32 = 100;

impl<T: Send + 'static> Team<T> {
    /// Starts a thread for each member, pinned to its lcore if it has one, and named after that (`lcore-3`, or
    /// `worker`).
    ///
    /// # Errors
    ///
    /// If a thread cannot be started or pinned; then a stop is requested on `stop`. The other threads have begun by then, and one that
    /// could not be pinned does its work where it is: until that stop, if it is a loop.
    pub fn start<F>(members: Vec<(Option<usize>, F)>, stop: &Stop) -> Result<Self, Error>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        Self::start_with(members, stop, || {})
    }

    /// Like [`Self::start`], but each thread also calls `ended` when it has finished its work or panicked. Use this to
    /// wake a thread that watches [`Self::any_finished`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn start_with<F>(
        members: Vec<(Option<usize>, F)>,
        stop: &Stop,
        ended: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let (pinned, results) = mpsc::channel();
        let mut threads = Vec::with_capacity(members.len());
        let (finished, ended) = (Arc::<AtomicUsize>::default(), Arc::new(ended));
        for (lcore, work) in members {
            let ending = Ending { finished: Arc::clone(&finished), ended: Arc::clone(&ended) };
            let name = lcore.map_or("worker".to_owned(), |lcore| format!("lcore-{lcore}"));
            let pinned = pinned.clone();
            let body = move || {
                let _ending = ending;
                let result = lcore.map_or(Ok(()), |lcore| pin(lcore).map_err(|error| Error::Pin { lcore, error }));
                // The receiver waits for one result of each thread.
                let _ = pinned.send(result);
                work()
            };
            match std::thread::Builder::new().name(name.clone()).spawn(body) {
                Ok(thread) => threads.push((name, thread)),
                Err(error) => {
                    stop.request();
                    return Err(Error::Spawn { name, error });
                }
            }
        }
        drop(pinned);
        for result in results.iter().take(threads.len()) {
            result.inspect_err(|_| stop.request())?;
        }
        Ok(Self { threads, finished, begun: Instant::now() })
    }

    /// Returns whether a thread has finished its work or panicked.
    #[must_use]
    pub fn any_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) > 0
    }

    /// Returns whether all threads have finished their work or panicked.
    #[must_use]
    pub fn all_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) == self.threads.len()
    }

    /// Returns the time at which the threads were started.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits for all threads. Returns their results, in the order of the members.
    ///
    /// # Errors
    ///
    /// If one of them panicked.
    pub fn join(self) -> Result<Vec<T>, Error> {
        let join = |(name, thread): (String, JoinHandle<T>)| thread.join().map_err(|_| Error::Panicked { name });
        // All of them, before the first that panicked is reported.
        let results: Vec<_> = self.threads.into_iter().map(join).collect();
        results.into_iter().collect()
    }
}

/// Tells of the end of a thread's work, whether it comes by return or by panic.
struct Ending<E: Fn()> {
    finished: Arc<AtomicUsize>,
    ended: Arc<E>,
}

impl<E: Fn()> Drop for Ending<E> {
    fn drop(&mut self) {
        self.finished.fetch_add(1, Ordering::Release);
        (self.ended)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    type Work = Box<dyn FnOnce() -> u32 + Send>;

    #[test]
    fn a_function_that_panics_is_reported_when_all_have_ended() {
        let (stop, ends) = (Stop::new().unwrap(), Stop::new().unwrap());
        let (first, second) = (Loop::new(&stop), Loop::new(&stop));
        let mut rounds = 0;
        let last = available().unwrap().last().unwrap().number;
        let members: Vec<(_, Work)> = vec![
            (None, Box::new(move || (first.run(|_: &mut Clock| false), 7).1)),
            (
                Some(last),
                Box::new(move || {
                    let panics = |_: &mut Clock| {
                        rounds += 1;
                        assert!(rounds < 3, "as the test wants");
                        true
                    };
                    (second.run(panics), 8).1
                }),
            ),
        ];
        let wakes = ends.clone();
        let team = Team::start_with(members, &stop, move || wakes.request()).unwrap();
        assert!(ends.wait(Duration::from_secs(60)), "the panic has been told of");
        assert!(team.any_finished() && !team.all_finished());
        stop.request();
        let error = team.join().unwrap_err();
        assert!(matches!(&error, Error::Panicked { name } if *name == format!("lcore-{last}")), "{error}");
    }

    #[test]
    fn functions_do_not_run_on_without_one_that_panicked() {
        let stop = Stop::new().unwrap();
        let functions = [true, false].map(|panics| {
            move |_: &mut Clock| {
                assert!(!panics, "as the test wants");
                false
            }
        });
        let team = Team::run(functions, &stop).unwrap();
        assert!(stop.wait(Duration::from_secs(60)), "the others have been stopped");
        let error = team.join().err().unwrap();
        assert!(matches!(error, Error::Panicked { .. }), "{error}");
    }

    #[test]
    fn an_lcore_that_is_not_there_stops_the_others() {
        let stop = Stop::new().unwrap();
        let loop_ = Loop::new(&stop);
        let members: Vec<(_, Work)> =
            vec![(None, Box::new(move || (loop_.run(|_: &mut Clock| false), 7).1)), (Some(usize::MAX), Box::new(|| 8))];
        let error = Team::start(members, &stop).unwrap_err();
        assert!(matches!(error, Error::Pin { lcore: usize::MAX, .. }), "{error}");
        assert!(stop.is_requested());
    }
}
