//! What is known of a direction at the end of a run.

use super::frames::Frames;
use super::pair::Direction;
use crate::args::RunArgs;
use crate::lane::Sent;
use measure::{Clock, Rate, Summary, Verdict};
use nic::{RxQueue, TxQueue};

/// What a run was asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) args: &'a RunArgs,
    pub(crate) frames: &'a Frames,
    /// The ports of each direction.
    pub(crate) names: &'a [[String; 2]],
    /// The rate of each port.
    pub(crate) rates: &'a [Option<Rate>],
    pub(crate) clock: &'a Clock,
    /// A signal ended it.
    pub(crate) cut: bool,
}

/// What a direction has measured, with times in ticks.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// A probe came back.
    pub(crate) answered: bool,
    /// `None` if no frame was to count.
    pub(crate) sent: Option<Sent>,
    pub(crate) missed: u64,
    pub(crate) verdict: Verdict,
    pub(crate) foreign: u64,
    /// Frames of this stream whose number or time cannot be.
    pub(crate) impossible: u64,
    pub(crate) from_due: Option<Summary>,
    pub(crate) from_ring: Option<Summary>,
}

impl Figures {
    /// Returns them with the direction's queues.
    pub(crate) fn of<R: RxQueue, T: TxQueue>(direction: Direction<R, T>) -> (Self, R, T) {
        let Direction { lane, to, rx, stream, answered, foreign, sent, missed, .. } = direction;
        let figures = Self {
            from: lane.port,
            to,
            answered,
            sent,
            missed,
            verdict: stream.verdict(sent.map_or(0, |sent| sent.handed)),
            foreign,
            impossible: stream.impossible(),
            from_due: stream.from_due(),
            from_ring: stream.from_hand_over(),
        };
        (figures, rx.queue, lane.tx)
    }

    /// Loss in percent of what was sent; of nothing, nothing.
    pub(crate) fn loss_percent(&self) -> f64 {
        percent(self.verdict.lost, self.verdict.sent)
    }

    /// Frames a second: asked for, due, and handed over. Over the time asked for, or that the frames due take at the rate asked for if
    /// their number or a signal ended it; up to the last hand-over if that was later.
    pub(crate) fn rates(&self, setting: &Setting<'_>) -> Rates {
        let Some(sent) = self.sent else { return Rates::default() };
        let asked = setting.rates[self.from].map(Rate::per_second);
        let to_last = setting.clock.nanoseconds(sent.ticks) / 1e9;
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let [handed, due] = [sent.handed as f64, (sent.handed + self.missed) as f64];
        let by_time = setting.args.duration.or(setting.args.count.is_none().then_some(super::DURATION));
        let by_time = by_time.filter(|_| !setting.cut && setting.args.count.is_none_or(|count| sent.handed < count));
        let seconds = match (asked, by_time) {
            (None, _) => to_last,
            (Some(_), Some(time)) => to_last.max(time.as_secs_f64()),
            (Some(asked), None) => to_last.max(due / asked),
        };
        let seconds = seconds.max(1e-9);
        Rates { intended: asked, offered: handed / seconds, missed: (due - handed) / seconds, seconds }
    }

    /// Percent of the frames due that were not offered, where there is a rate.
    pub(crate) fn short_percent(&self, setting: &Setting<'_>) -> Option<f64> {
        let due = self.sent?.handed + self.missed;
        setting.rates[self.from].map(|_| percent(self.missed, due))
    }
}

/// Frames a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) intended: Option<f64>,
    pub(crate) offered: f64,
    pub(crate) missed: f64,
    /// The time over which they hold.
    pub(crate) seconds: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}
