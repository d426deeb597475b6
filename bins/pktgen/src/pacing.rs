//! When the frames of a source are due: as a rate says, or as they were captured.

use measure::{Clock, Pacer};
use std::sync::Arc;
use stream::Replay;

/// Due times at a rate, or of a capture.
#[derive(Debug)]
pub(crate) enum Pacing {
    Rate(Pacer),
    Capture(Timetable),
}

/// The due times of a capture, over and over. As with a rate they are absolute, and what is later than the limit of catching up is
/// missed: then the frames that follow are those of their times.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    /// In ticks from the first frame of a turn, ascending; not empty.
    due: Arc<[u64]>,
    /// Ticks of a turn, 1 at least.
    turn: u64,
    /// Frames in all.
    frames: u64,
    catch_up: u64,
    start: u64,
    /// Frames are due before this, in ticks after the start.
    end: u64,
    next: u64,
    missed: u64,
}

impl Pacing {
    /// Starts at a time: from `start` on, for so many ticks, or for ever.
    pub(crate) fn start(&mut self, start: u64, ticks: Option<u64>) {
        match self {
            Self::Rate(pacer) => pacer.start(start, ticks),
            Self::Capture(times) => {
                (times.start, times.end) = (start, ticks.unwrap_or(u64::MAX));
                (times.next, times.missed) = (0, 0);
            }
        }
    }

    /// Returns how many frames were due and are to be sent now, and sets the due times of these.
    #[inline(always)]
    pub(crate) fn take(&mut self, now: u64, due: &mut [u64]) -> usize {
        match self {
            Self::Rate(pacer) => pacer.take(now, due),
            Self::Capture(times) => times.take(now, due),
        }
    }

    /// Misses what was due by `now` and was not taken.
    pub(crate) fn miss(&mut self, now: u64) {
        match self {
            Self::Rate(pacer) => pacer.miss(now),
            Self::Capture(times) => times.skip(now.saturating_sub(times.start).saturating_add(1)),
        }
    }

    /// Puts off all that is still to come by so many ticks, but not the end.
    pub(crate) fn put_off(&mut self, ticks: u64) {
        match self {
            Self::Rate(pacer) => pacer.put_off(ticks),
            Self::Capture(times) => {
                times.start = times.start.saturating_add(ticks);
                if times.end < u64::MAX {
                    times.end = times.end.saturating_sub(ticks);
                }
            }
        }
    }

    /// Frames a tick on average.
    pub(crate) fn frames_per_tick(&self) -> f64 {
        match self {
            Self::Rate(pacer) => pacer.frames_per_tick(),
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            Self::Capture(times) => times.due.len() as f64 / times.turn as f64,
        }
    }

    pub(crate) fn missed(&self) -> u64 {
        match self {
            Self::Rate(pacer) => pacer.missed(),
            Self::Capture(times) => times.missed,
        }
    }

    /// Whether nothing more becomes due.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Rate(pacer) => pacer.is_over(),
            Self::Capture(times) => times.next >= times.frames || times.at(times.next) >= times.end,
        }
    }
}

impl Timetable {
    /// Creates the one of a capture that is played so often, or without end. `None` if it has no times by which it could be.
    pub(crate) fn new(replay: &Replay, turns: Option<u64>, clock: &Clock, catch_up: u64) -> Option<Self> {
        // Rounded up, so that what is due at the end of a time is not due within it.
        let ticks = |ns: u64| {
            u64::try_from((u128::from(ns) * u128::from(clock.hz())).div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
        };
        let due: Arc<[u64]> = replay.frames().map(|frame| ticks(frame.due_ns)).collect();
        let turn = ticks(turn_ns(replay)?).max(due.last()?.saturating_add(1));
        let frames = turns.map_or(u64::MAX, |turns| turns.saturating_mul(due.len() as u64));
        Some(Self { due, turn, frames, catch_up, start: 0, end: 0, next: 0, missed: 0 })
    }

    /// Which frame of the capture comes after those that were taken last: `taken` of them are before it.
    pub(crate) fn position(&self, taken: usize) -> usize {
        let from = self.next.saturating_sub(taken as u64) % self.due.len() as u64;
        usize::try_from(from).unwrap_or(0)
    }

    /// When a frame is due, in ticks after the start.
    #[inline]
    fn at(&self, frame: u64) -> u64 {
        let (turn, nth) = (frame / self.due.len() as u64, frame % self.due.len() as u64);
        let due = usize::try_from(nth).ok().and_then(|nth| self.due.get(nth)).copied().unwrap_or(0);
        turn.saturating_mul(self.turn).saturating_add(due)
    }

    fn take(&mut self, now: u64, due: &mut [u64]) -> usize {
        let elapsed = now.saturating_sub(self.start);
        if elapsed.saturating_sub(self.at(self.next)) > self.catch_up {
            self.skip(elapsed - self.catch_up);
        }
        let last = elapsed.min(self.end.saturating_sub(1));
        let mut count = 0;
        for place in due {
            let at = self.at(self.next);
            if self.end == 0 || self.next >= self.frames || at > last {
                break;
            }
            *place = self.start.wrapping_add(at);
            self.next += 1;
            count += 1;
        }
        count
    }

    /// Misses what was due before `limit`, in ticks after the start.
    #[cold]
    fn skip(&mut self, limit: u64) {
        let limit = limit.min(self.end);
        let within = self.due.partition_point(|due| *due < limit % self.turn) as u64;
        let before = (limit / self.turn).saturating_mul(self.due.len() as u64).saturating_add(within).min(self.frames);
        self.missed += before.saturating_sub(self.next);
        self.next = self.next.max(before);
    }
}

/// Nanoseconds from the first frame of a capture to where it begins again: a mean gap behind the last. `None` without times.
pub(crate) fn turn_ns(replay: &Replay) -> Option<u64> {
    let last = replay.frame(replay.len().checked_sub(1)?)?.due_ns;
    let gap = last.checked_div(replay.len() as u64 - 1)?;
    (last > 0).then(|| last.saturating_add(gap.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Bracket;
    use proptest::prelude::*;

    /// A capture of frames with these times, in microseconds.
    pub(crate) fn capture(times: &[u32]) -> Replay {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        for time in times {
            let [seconds, fraction] = [time / 1_000_000, time % 1_000_000].map(u32::to_le_bytes);
            bytes.extend([seconds, fraction, [60, 0, 0, 0], [60, 0, 0, 0]].concat());
            bytes.extend([7; 60]);
        }
        Replay::read("test", std::io::Cursor::new(bytes), stream::Timing::Original).unwrap()
    }

    /// A tick takes a microsecond.
    fn clock() -> Clock {
        let at = |us: u64| Bracket { before: us, kernel_ns: us * 1000, after: us };
        Clock::new(at(0), at(1_000_000)).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Against a list of all due times.
        #[test]
        fn agrees_with_a_list(
            gaps in prop::collection::vec(0..400_u32, 2..20), turns in prop::option::of(1..4_u64), catch_up in 0..500_u64,
            end in prop::option::of(1..9_000_u64), start in 0..u64::MAX / 2,
            steps in prop::collection::vec((prop_oneof![9 => 0..100_u64, 1 => 0..4_000_u64], 1..9_usize), 1..60),
        ) {
            let mut times: Vec<u32> = gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) }).collect();
            times.iter_mut().for_each(|time| *time -= gaps[0]);
            prop_assume!(times.last() > Some(&0));
            let replay = capture(&times);
            let last = u64::from(*times.last().unwrap()) * 1000;
            let turn = (last + last / (times.len() as u64 - 1)).div_ceil(1000);
            let mut table = Pacing::Capture(Timetable::new(&replay, turns, &clock(), catch_up).unwrap());
            table.start(start, end);
            let until = steps.iter().map(|(step, _)| step).sum::<u64>().max(end.unwrap_or(0));
            let all = (0..turns.unwrap_or(until / turn + 2)).flat_map(|nth| times.iter().map(move |time| nth * turn + u64::from(*time)));
            let due: Vec<u64> = all.take_while(|due| end.is_none_or(|end| *due < end)).collect();
            let (mut now, mut at, mut missed) = (0, 0, 0);
            for (step, room) in steps {
                now += step;
                while due.get(at).is_some_and(|due| now.saturating_sub(*due) > catch_up) {
                    (at, missed) = (at + 1, missed + 1);
                }
                let expected: Vec<u64> = due[at..].iter().copied().take_while(|due| *due <= now).take(room).collect();
                at += expected.len();
                let mut taken = vec![0; room];
                let count = table.take(start + now, &mut taken);
                let taken: Vec<u64> = taken[..count].iter().map(|due| due - start).collect();
                prop_assert_eq!(taken, expected);
                let Pacing::Capture(table) = &table else { unreachable!() };
                prop_assert_eq!((table.missed, table.position(0)), (missed, at % times.len()));
            }
            prop_assert_eq!(table.is_over(), at == due.len());
            table.miss(u64::MAX);
            prop_assert!(turns.is_none() && end.is_none() || table.is_over() && table.missed() == missed + (due.len() - at) as u64);
        }
    }

    #[test]
    fn what_has_no_times_has_no_timetable() {
        for times in [&[5][..], &[5, 5, 5]] {
            assert!(Timetable::new(&capture(times), None, &clock(), 0).is_none());
        }
    }
}
