//! What is known of a direction at the end of a run.

use super::direction::Direction;
use super::spread::Spread;
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
    /// Queue pairs of which no probe came back, and how many there are.
    pub(crate) deaf: Vec<usize>,
    pub(crate) queues: usize,
    /// Ticks from the begin to the last hand-over; `None` if no frame was to count.
    pub(crate) ticks: Option<u64>,
    /// Frames of the count that alone was to end it that were not handed over.
    pub(crate) unsent: u64,
    /// Its rate changed, or its counters began anew.
    is_steered: bool,
    /// It was over before its time, by an order or as a device was gone.
    is_cut: bool,
    /// All was sent that was to be, and it ended by itself.
    pub(crate) is_whole: bool,
    /// Ticks from the begin of counters to the end, and frames asked for of each stream, unless without limit.
    asked_for: (u64, Vec<Option<f64>>),
    pub(crate) foreign: u64,
    /// Frames of earlier runs on the same ports.
    pub(crate) late: u64,
    /// Ticks by which the last frame was sent late, and frames that were sent in bursts as the one before them was late.
    pub(crate) lateness: u64,
    pub(crate) in_bursts: u64,
    /// The longest time, in ticks, for which its lcore neither sent nor received.
    pub(crate) away: u64,
    /// Of the warm-up, what was sent, and how many frames of it arrived.
    pub(crate) opening: Option<(Sent, u64)>,
    /// Number of the last frame that was lost of the first stream.
    pub(crate) last_lost: Option<u64>,
    /// Frames that the queue refused, or whose checksum is wrong.
    pub(crate) damaged: u64,
    /// Frames of verified streams that have no checksum that is read any more.
    pub(crate) unread: u64,
    /// Of which streams checksums were read.
    verified: Vec<bool>,
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
    /// What these are of.
    latencies: Option<[Latency; 2]>,
}

impl Figures {
    /// Returns them with the direction's queues.
    pub(crate) fn of<R: RxQueue, T: TxQueue>(mut direction: Direction<R, T>) -> (Self, R, T) {
        direction.look_at_clears();
        let (untagged, damaged, unread) = (direction.untagged(), direction.damaged(), direction.unread);
        let opening = direction.opening.map(|sent| (sent, direction.opening_arrived.received()));
        let [queue, queues] = direction.queue();
        let Direction {
            lane,
            to,
            rx,
            streams,
            spread,
            answered,
            late,
            away,
            mut foreign,
            verified,
            sent,
            is_broken_off,
            ..
        } = direction;
        let answered = spread.as_ref().map_or(answered, |spread| spread.is_answered());
        let ticks = sent.is_some().then(|| lane.ticks());
        let (is_steered, asked_for) = (lane.is_steered() && ticks.is_some(), lane.asked_for());
        let is_cut = lane.is_cut();
        let is_whole = ticks.is_some() && !is_cut && !is_broken_off;
        let sent = sent.unwrap_or_default();
        let last_lost = streams.first().zip(sent.first()).and_then(|(stream, sent)| stream.last_lost(sent.handed));
        let sent_of = |index: usize| sent.get(index).copied().unwrap_or_default();
        let mut streams_of: Vec<_> = match &spread {
            Some(spread) => {
                (0..spread.shares.len()).map(|index| Counted::of_share(spread, index, sent_of(index))).collect()
            }
            None => streams.iter().enumerate().map(|(index, one)| Counted::of(one, sent_of(index))).collect(),
        };
        let mut all = Counted::sum(&streams_of);
        if spread.is_none() {
            // Nothing is added to them.
            streams_of.iter_mut().chain([&mut all]).for_each(|one| one.latencies = None);
        }
        if let Some((arrived, one)) = untagged.zip(streams_of.first_mut()) {
            one.verdict = of_number(one.verdict.sent, arrived);
            all.verdict = one.verdict;
            foreign = arrived - one.verdict.received;
        }
        let figures = Self {
            from: lane.port,
            to,
            deaf: if answered { Vec::new() } else { vec![queue] },
            queues,
            ticks,
            unsent: lane.unsent(),
            is_steered,
            is_cut,
            is_whole,
            asked_for,
            foreign,
            late,
            lateness: lane.lateness(),
            in_bursts: lane.late(),
            away,
            opening,
            last_lost,
            damaged,
            unread,
            verified,
            all,
            streams: streams_of,
        };
        (figures, rx.queue, lane.tx)
    }

    /// A probe of each queue pair came back.
    pub(crate) fn is_answered(&self) -> bool {
        self.deaf.is_empty()
    }

    /// Adds what another queue pair of the same ports has measured.
    pub(crate) fn add(&mut self, other: Self) {
        self.deaf.extend(other.deaf);
        self.ticks = self.ticks.max(other.ticks);
        self.unsent += other.unsent;
        self.is_steered |= other.is_steered;
        self.is_cut |= other.is_cut;
        self.is_whole &= other.is_whole;
        let (ticks, frames) = other.asked_for;
        self.asked_for.0 = self.asked_for.0.max(ticks);
        self.asked_for.1.iter_mut().zip(frames).for_each(|(all, one)| *all = all.zip(one).map(|(all, one)| all + one));
        self.foreign += other.foreign;
        self.late += other.late;
        (self.lateness, self.away) = (self.lateness.max(other.lateness), self.away.max(other.away));
        self.in_bursts += other.in_bursts;
        self.damaged += other.damaged;
        self.unread += other.unread;
        // Numbers of different senders have no order.
        (self.opening, self.last_lost) = (None, None);
        self.verified.iter_mut().zip(other.verified).for_each(|(all, one)| *all &= one);
        self.streams.iter_mut().zip(&other.streams).for_each(|(all, one)| all.add(one));
        self.all = Counted::sum(&self.streams);
    }

    /// Seconds over which rates hold: over the time asked for, or that the frames due take at the rate asked for if their number,
    /// a signal, an order or the loss of a device ended it; up to the last hand-over if that was later. If it was steered, over the time that it took.
    pub(crate) fn seconds(&self, setting: &Setting<'_>) -> f64 {
        let Some(ticks) = self.ticks else { return 0.0 };
        if self.is_steered {
            return (setting.clock.nanoseconds(self.asked_for.0.max(ticks)) / 1e9).max(1e-9);
        }
        let to_last = setting.clock.nanoseconds(ticks) / 1e9;
        let due = [self.all.verdict.sent, self.all.missed];
        span(to_last, setting.asked[self.from].all, (setting.limits, setting.cut || self.is_cut), due)
    }

    /// Frames that arrived and are not as they were sent, and those whose tag says what cannot be.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged + self.all.impossible
    }

    /// Whether damage in a frame of a stream would have been seen by its checksum.
    pub(crate) fn verifies(&self, stream: usize) -> bool {
        self.verified.get(stream).is_some_and(|verified| *verified)
    }

    /// Whether it would have been in a frame of any.
    pub(crate) fn is_verified(&self) -> bool {
        !self.verified.contains(&false)
    }

    /// Frames a second that were asked for of all streams together, and of each; on average, if it was steered.
    pub(crate) fn asked(&self, setting: &Setting<'_>) -> (Option<f64>, Vec<Option<f64>>) {
        let Asked { all, streams, .. } = &setting.asked[self.from];
        if !self.is_steered {
            return (*all, streams.clone());
        }
        let seconds = self.seconds(setting);
        let streams: Vec<_> = self.asked_for.1.iter().map(|frames| frames.map(|frames| frames / seconds)).collect();
        (streams.iter().copied().sum(), streams)
    }

    /// Bytes of a frame on average, as its streams were asked for; `None` if one of these has no rate.
    pub(crate) fn mean_size(&self, setting: &Setting<'_>) -> Option<f64> {
        setting.frames.mean([&self.asked(setting).1[..]].into_iter())
    }

    /// Frames that were asked for, if it was steered and had a rate all the time.
    #[cfg(test)]
    pub(crate) fn asked_frames(&self) -> Option<f64> {
        self.asked_for.1.iter().copied().sum::<Option<f64>>().filter(|_| self.is_steered)
    }

    /// Whether its rate changed, or its counters began anew.
    pub(crate) fn is_steered(&self) -> bool {
        self.is_steered
    }

    /// Frames a second of all streams together.
    pub(crate) fn rates(&self, setting: &Setting<'_>) -> Rates {
        self.all.rates(self.asked(setting).0, self.seconds(setting))
    }

    /// Percent by which less was offered than asked for, where there is a rate: of the frames due, of the stream that was offered least of its
    /// own; or as the last were sent late.
    pub(crate) fn short_percent(&self, setting: &Setting<'_>) -> Option<f64> {
        let (all, streams) = self.asked(setting);
        let of_stream = |(counted, asked): (&Counted, &Option<f64>)| asked.map(|_| counted.short_percent());
        let streams = self.streams.iter().zip(&streams).filter_map(of_stream);
        let ends = (setting.limits, setting.cut || self.is_cut);
        let late = || overrun_percent(setting.clock.nanoseconds(self.ticks?) / 1e9, ends, self.all.verdict.sent);
        let late = all.and_then(|_| late()).filter(|_| !self.is_steered);
        self.ticks.and(streams.chain(all.map(|_| self.all.short_percent())).chain(late).reduce(f64::max))
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
            latencies: Some(stream.latencies().map(Clone::clone)),
        }
    }

    /// Of what several queue pairs send, the part of one of them.
    fn of_share(spread: &Spread, index: usize, sent: Sent) -> Self {
        let verdict = spread.verdict(index, sent.handed);
        let mut counted = Self { missed: sent.missed, verdict, ..Self::default() };
        if let Some(share) = spread.shares.get(index) {
            counted.impossible = share.impossible();
            counted.add_times(share.latencies());
        }
        counted
    }

    /// All streams together.
    fn sum(counted: &[Self]) -> Self {
        let mut all = Self::default();
        counted.iter().for_each(|one| all.add(one));
        all
    }

    fn add(&mut self, other: &Self) {
        self.missed += other.missed;
        self.verdict += other.verdict;
        self.impossible += other.impossible;
        if let Some([due, ring]) = &other.latencies {
            self.add_times([due, ring]);
        }
    }

    fn add_times(&mut self, times: [&Latency; 2]) {
        let all = self.latencies.get_or_insert_with(|| [Latency::new(), Latency::new()]);
        all.iter_mut().zip(times).for_each(|(all, one)| all.add(one));
        [self.from_due, self.from_ring] = [&all[0], &all[1]].map(Latency::summary);
    }

    /// Loss in percent of what was sent; of nothing, nothing.
    pub(crate) fn loss_percent(&self) -> f64 {
        percent(self.verdict.lost, self.verdict.sent)
    }

    /// Frames a second over so many seconds: asked for, handed over, and due but not handed over.
    pub(crate) fn rates(&self, asked: Option<f64>, seconds: f64) -> Rates {
        Rates::of(asked, [self.verdict.sent, self.missed], seconds)
    }

    /// Percent of the frames due that were not offered.
    fn short_percent(&self) -> f64 {
        percent(self.missed, self.verdict.sent + self.missed)
    }
}

/// Those of all ports that have sent, in their order: the figures of queue pairs of a port are one.
pub(super) fn of_ports(mut all: Vec<Figures>) -> Vec<Figures> {
    all.sort_by_key(|figures| figures.from);
    let mut ports: Vec<Figures> = Vec::new();
    for figures in all {
        match ports.last_mut().filter(|last| last.from == figures.from) {
            Some(last) => last.add(figures),
            None => ports.push(figures),
        }
    }
    ports
}

/// Frames a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) intended: Option<f64>,
    pub(crate) offered: f64,
    pub(crate) missed: f64,
}

impl Rates {
    /// Of frames sent and missed in so many seconds.
    pub(crate) fn of(intended: Option<f64>, [sent, missed]: [u64; 2], seconds: f64) -> Self {
        if seconds == 0.0 {
            return Self::default();
        }
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let [sent, missed] = [sent as f64, missed as f64];
        Self { intended, offered: sent / seconds, missed: missed / seconds }
    }
}

/// Seconds over which rates hold of what a port sent and missed, if `to_last` of them passed up to the last hand-over, and it may have been
/// cut.
pub(crate) fn span(to_last: f64, asked: Option<f64>, ends: (Limits, bool), [sent, missed]: [u64; 2]) -> f64 {
    let by_time = ended_by_time(ends, sent);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let due = (sent + missed) as f64;
    let seconds = match (asked, by_time) {
        (None, _) => to_last,
        (Some(_), Some(time)) => to_last.max(time),
        (Some(asked), None) => to_last.max(due / asked),
    };
    seconds.max(1e-9)
}

/// Percent by which the time up to the last hand-over is longer than asked for, where that ended it: frames that were due within it were sent
/// behind it, which is less a second.
pub(crate) fn overrun_percent(to_last: f64, ends: (Limits, bool), sent: u64) -> Option<f64> {
    let time = ended_by_time(ends, sent)?;
    Some((1.0 - time / to_last.max(time)) * 100.0)
}

/// Seconds that were asked for, if they ended what has sent so many frames, and may have been cut.
fn ended_by_time((limits, cut): (Limits, bool), sent: u64) -> Option<f64> {
    let by_time = limits.duration.filter(|_| !cut && limits.count.is_none_or(|count| sent < count));
    by_time.map(|time| time.as_secs_f64()).filter(|time| *time > 0.0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_sent_after_the_time_is_less_a_second() {
        let limits = |count| Limits { duration: Some(Duration::from_secs(5)), count };
        let late = |to_last, count, cut| overrun_percent(to_last, (limits(count), cut), 5000);
        assert_eq!([late(4.99, None, false), late(5.0, None, false)], [Some(0.0); 2]);
        // 5,000 frames in 5.5 s.
        let offered =
            Rates::of(Some(1000.0), [5000, 0], span(5.5, Some(1000.0), (limits(None), false), [5000, 0])).offered;
        assert!((late(5.5, None, false).unwrap() - (1.0 - offered / 1000.0) * 100.0).abs() < 1e-9, "{offered}");
        // What ended otherwise took the time that it took.
        assert_eq!([late(5.5, Some(5000), false), late(5.5, None, true)], [None; 2]);
    }
}
