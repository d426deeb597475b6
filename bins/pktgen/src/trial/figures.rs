//! What is known of a direction at the end of a run.

use super::direction::Direction;
use crate::args::RunArgs;
use crate::calibrate::Floors;
use crate::frames::{Asked, Frames, Limits};
use crate::lane::Sent;
use measure::{Clock, Latency, Stream, Summary, Verdict};
use nic::{RxQueue, TxQueue};

/// What a run was asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) args: &'a RunArgs,
    pub(crate) frames: &'a Frames,
    pub(crate) limits: Limits,
    /// The ports of each direction.
    pub(crate) names: &'a [[String; 2]],
    /// The rates of each port.
    pub(crate) asked: &'a [Asked],
    pub(crate) clock: &'a Clock,
    /// A signal ended it.
    pub(crate) cut: bool,
    /// Why no figure holds: the clock jumped.
    pub(crate) void: Option<&'a str>,
    /// What the instrument has measured of itself.
    pub(crate) floors: Option<&'a Floors>,
}

/// What a direction has measured, with times in ticks.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// A probe came back.
    pub(crate) answered: bool,
    /// Ticks from the begin to the last hand-over; `None` if no frame was to count.
    pub(crate) ticks: Option<u64>,
    /// If it was steered: ticks from the begin of counters to the end, and frames asked for of each stream, unless without limit.
    steered: Option<(u64, Vec<Option<f64>>)>,
    pub(crate) foreign: u64,
    /// Frames of earlier runs on the same ports.
    pub(crate) late: u64,
    /// Of the warm-up, what was sent, and how many frames of it arrived.
    pub(crate) opening: Option<(Sent, u64)>,
    /// Number of the last frame that was lost of the first stream.
    pub(crate) last_lost: Option<u64>,
    /// Frames that the queue refused, or whose checksum is wrong.
    damaged: u64,
    /// Checksums were read.
    pub(crate) verified: bool,
    /// All streams together, and each.
    pub(crate) all: Counted,
    pub(crate) streams: Vec<Counted>,
}

/// What was counted of a stream, or of several.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) missed: u64,
    pub(crate) verdict: Verdict,
    /// Frames of this stream whose number or time cannot be.
    pub(crate) impossible: u64,
    pub(crate) from_due: Option<Summary>,
    pub(crate) from_ring: Option<Summary>,
}

impl Figures {
    /// Returns them with the direction's queues.
    pub(crate) fn of<R: RxQueue, T: TxQueue>(direction: Direction<R, T>) -> (Self, R, T) {
        let (untagged, damaged) = (direction.untagged(), direction.damaged());
        let opening = direction.opening.map(|sent| (sent, direction.opening_arrived));
        let Direction { lane, to, rx, streams, answered, late, mut foreign, verifies, sent, .. } = direction;
        let ticks = sent.is_some().then(|| lane.ticks());
        let steered = lane.steered().filter(|_| ticks.is_some());
        let sent = sent.unwrap_or_default();
        let last_lost = streams.first().zip(sent.first()).and_then(|(stream, sent)| stream.last_lost(sent.handed));
        let sent_of = |index: usize| sent.get(index).copied().unwrap_or_default();
        let mut streams_of: Vec<_> =
            streams.iter().enumerate().map(|(index, one)| Counted::of(one, sent_of(index))).collect();
        let mut all = Counted::sum(&streams, &streams_of);
        if let Some((arrived, one)) = untagged.zip(streams_of.first_mut()) {
            one.verdict = of_number(one.verdict.sent, arrived);
            all.verdict = one.verdict;
            foreign = arrived - one.verdict.received;
        }
        let figures = Self {
            from: lane.port,
            to,
            answered,
            ticks,
            steered,
            foreign,
            late,
            opening,
            last_lost,
            damaged,
            verified: verifies,
            all,
            streams: streams_of,
        };
        (figures, rx.queue, lane.tx)
    }

    /// Seconds over which rates hold: over the time asked for, or that the frames due take at the rate asked for if their number
    /// or a signal ended it; up to the last hand-over if that was later. If it was steered, over the time that it took.
    pub(crate) fn seconds(&self, setting: &Setting<'_>) -> f64 {
        let Some(ticks) = self.ticks else { return 0.0 };
        if let Some((steered, _)) = &self.steered {
            return (setting.clock.nanoseconds(*steered.max(&ticks)) / 1e9).max(1e-9);
        }
        let to_last = setting.clock.nanoseconds(ticks) / 1e9;
        let Counted { missed, verdict, .. } = &self.all;
        let by_time = setting.limits.duration;
        let by_time = by_time.filter(|_| !setting.cut && setting.limits.count.is_none_or(|count| verdict.sent < count));
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let due = (verdict.sent + missed) as f64;
        let seconds = match (setting.asked[self.from].all, by_time) {
            (None, _) => to_last,
            (Some(_), Some(time)) => to_last.max(time.as_secs_f64()),
            (Some(asked), None) => to_last.max(due / asked),
        };
        seconds.max(1e-9)
    }

    /// Frames that arrived and are not as they were sent, and those whose tag says what cannot be.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged + self.all.impossible
    }

    /// Frames a second that were asked for of all streams together, and of each; on average, if it was steered.
    pub(crate) fn asked(&self, setting: &Setting<'_>) -> (Option<f64>, Vec<Option<f64>>) {
        let Asked { all, streams, .. } = &setting.asked[self.from];
        let Some((_, frames)) = &self.steered else { return (*all, streams.clone()) };
        let seconds = self.seconds(setting);
        let streams: Vec<_> = frames.iter().map(|frames| frames.map(|frames| frames / seconds)).collect();
        (streams.iter().copied().sum(), streams)
    }

    /// Frames that were asked for, if it was steered and had a rate all the time.
    #[cfg(test)]
    pub(crate) fn asked_frames(&self) -> Option<f64> {
        self.steered.as_ref()?.1.iter().copied().sum()
    }

    /// Whether its rate changed, or its counters began anew.
    pub(crate) fn is_steered(&self) -> bool {
        self.steered.is_some()
    }

    /// Frames a second of all streams together.
    pub(crate) fn rates(&self, setting: &Setting<'_>) -> Rates {
        self.all.rates(self.asked(setting).0, self.seconds(setting))
    }

    /// Percent of the frames due that were not offered, where there is a rate: of the stream that was offered least of its own.
    pub(crate) fn short_percent(&self, setting: &Setting<'_>) -> Option<f64> {
        let (all, streams) = self.asked(setting);
        let of_stream = |(counted, asked): (&Counted, &Option<f64>)| asked.map(|_| counted.short_percent());
        let streams = self.streams.iter().zip(&streams).filter_map(of_stream);
        self.ticks.and(streams.chain(all.map(|_| self.all.short_percent())).reduce(f64::max))
    }
}

impl Counted {
    fn of(stream: &Stream, sent: Sent) -> Self {
        Self {
            missed: sent.missed,
            verdict: stream.verdict(sent.handed),
            impossible: stream.impossible(),
            from_due: stream.from_due(),
            from_ring: stream.from_hand_over(),
        }
    }

    /// All streams together.
    fn sum(streams: &[Stream], counted: &[Self]) -> Self {
        let (mut all, mut latencies) = (Self::default(), [Latency::new(), Latency::new()]);
        for (stream, one) in streams.iter().zip(counted) {
            all.missed += one.missed;
            all.verdict += one.verdict;
            all.impossible += one.impossible;
            latencies.iter_mut().zip(stream.latencies()).for_each(|(all, one)| all.add(one));
        }
        let [from_due, from_ring] = latencies.map(|latency| latency.summary());
        Self { from_due, from_ring, ..all }
    }

    /// Loss in percent of what was sent; of nothing, nothing.
    pub(crate) fn loss_percent(&self) -> f64 {
        percent(self.verdict.lost, self.verdict.sent)
    }

    /// Frames a second over so many seconds: asked for, handed over, and due but not handed over.
    pub(crate) fn rates(&self, asked: Option<f64>, seconds: f64) -> Rates {
        if seconds == 0.0 {
            return Rates::default();
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let [handed, missed] = [self.verdict.sent as f64, self.missed as f64];
        Rates { intended: asked, offered: handed / seconds, missed: missed / seconds }
    }

    /// Percent of the frames due that were not offered.
    fn short_percent(&self) -> f64 {
        percent(self.missed, self.verdict.sent + self.missed)
    }
}

/// Frames a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) intended: Option<f64>,
    pub(crate) offered: f64,
    pub(crate) missed: f64,
}

/// What became of frames without tag, of which so many were sent and so many came.
fn of_number(sent: u64, arrived: u64) -> Verdict {
    let received = arrived.min(sent);
    Verdict { sent, received, lost: sent - received, ..Verdict::default() }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}
