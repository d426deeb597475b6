//! What `pktgen run` does with a burst, beyond receiving or sending it.

use crate::{FRAME, Rig, Work};
use ethdev::{RxQueue as _, TxQueue as _};
use measure::{
    Checked, Coverage, HandOvers, Kind, Load, Pacer, Pattern, Share, Shared, Stream, Tag, TagWriter, Verdict, check,
};
use mempool::Packet;

/// The driver on a device made of memory, and a stream that is sent or arrives by it.
#[derive(Debug)]
pub struct MeasureRig {
    rig: Rig,
    writer: TagWriter,
    /// Writes what arrives, with the checksum of UDP.
    arriving: TagWriter,
    pacer: Pacer,
    due: Vec<u64>,
    number: u32,
    now: u64,
    hand_overs: HandOvers,
    stream: Stream,
}

const STREAM: u16 = 7;
/// Ticks from one burst to the next, at [`HZ`] ticks a second.
const STEP: u64 = 1000;
const HZ: u64 = 1_000_000_000;

impl MeasureRig {
    /// Opens the driver with rings of `ring` descriptors, for bursts of `burst` packets.
    ///
    /// # Panics
    ///
    /// When it cannot: then there is nothing to measure.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn new(burst: usize, ring: u16) -> Self {
        let writer = TagWriter::new(Kind::Full, STREAM, FRAME.into(), 42, None).expect("room for a tag");
        let coverage = Some(Coverage { checksum_at: 40, from: 26, zero_is_none: true, zero_as_ones: true });
        let arriving = TagWriter::new(Kind::Full, STREAM, FRAME.into(), 42, coverage).expect("room for a tag");
        let pps = burst as u64 * HZ / STEP;
        let rate = pps.to_string().parse::<Load>().and_then(|load| load.rate(FRAME.into(), None)).expect("a rate");
        let mut pacer = Pacer::new(rate, Pattern::Even, HZ, 1_000_000);
        pacer.start(1, None);
        let (hand_overs, stream) = (HandOvers::new(), Stream::new(STREAM, 0));
        Self {
            rig: Rig::new(burst, ring),
            writer,
            arriving,
            pacer,
            due: vec![0; burst],
            number: 0,
            now: 10 * STEP,
            hand_overs,
            stream,
        }
    }

    /// Does `work`, receive or transmit, with `count` packets. Returns the packets it handled.
    #[inline(always)]
    pub fn part(&mut self, work: Work, count: usize) -> usize {
        match work {
            Work::Receive => self.receive::<true, false>(count),
            _ => self.transmit::<true>(count),
        }
    }

    /// Does only what is not measured: hardware, driver, tags of what arrives, and for what is sent a number of 64 bits in the
    /// middle of the frame, without pace. Returns `count`.
    #[inline(always)]
    pub fn driver_part(&mut self, work: Work, count: usize) -> usize {
        match work {
            Work::Receive => self.receive::<false, false>(count),
            _ => self.transmit::<false>(count),
        }
    }

    /// Receives so many packets, and with `MEASURED` counts and times them, with `VERIFIED` also their checksums. Returns how many.
    ///
    /// # Panics
    ///
    /// If one is not as it was sent.
    #[inline(always)]
    pub fn receive<const MEASURED: bool, const VERIFIED: bool>(&mut self, count: usize) -> usize {
        let Rig { rx, hardware, cache, batch, .. } = &mut self.rig;
        hardware.receive(count, FRAME.into());
        let received = rx.recv(cache, batch).len();
        self.now += STEP;
        let first = self.number;
        for (place, due) in self.due.iter_mut().zip((self.now - 2 * STEP..).step_by(31)) {
            *place = due;
        }
        self.arriving.write_all(batch.iter_mut().map(Packet::data_mut), first, &self.due);
        self.number = first.wrapping_add(u32::try_from(received).unwrap_or(0));
        self.hand_overs.note(first, received, self.now - STEP);
        if VERIFIED {
            assert!(batch.iter().all(|packet| check(packet.data(), []) == Checked::Right), "all are as they were sent");
        }
        if MEASURED {
            let frames = batch.iter().map(Packet::data);
            let others = self.stream.saw(frames, self.now, self.number.into(), Some(&self.hand_overs));
            assert_eq!(others, 0, "all are of the stream");
        }
        cache.free_batch(batch);
        received
    }

    #[inline(always)]
    fn transmit<const MEASURED: bool>(&mut self, count: usize) -> usize {
        let Rig { tx, hardware, cache, batch, .. } = &mut self.rig;
        self.now += STEP;
        let due = if MEASURED { self.pacer.take(self.now, &mut self.due[..count]) } else { count };
        cache.alloc_batch(batch, due, FRAME.into());
        if MEASURED {
            self.writer.write_all(batch.iter_mut().map(Packet::data_mut), self.number, &self.due);
        } else {
            for (number, packet) in (u64::from(self.number)..).zip(batch.iter_mut()) {
                if let Some(place) = packet.data_mut().get_mut(50..58) {
                    place.copy_from_slice(&number.to_be_bytes());
                }
            }
        }
        let sent = tx.send(cache, batch);
        if MEASURED {
            self.hand_overs.note(self.number, sent, self.now);
        }
        self.number = self.number.wrapping_add(u32::try_from(sent).unwrap_or(0));
        hardware.transmit(sent);
        sent
    }
}

/// How frames arrive other than in order, of one stream, by one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Of four streams in turn: they are looked at one by one.
    Streams,
    /// Of one stream, a burst by each of two queues in turn: they are looked at one by one, and share what has arrived.
    Queues,
    /// Of one stream, the second of each two before the first.
    Reordered,
    /// Of one stream, in order, with short tags.
    Short,
}

/// Streams of [`Arrival::Streams`].
const STREAMS: u16 = 4;

/// The driver on a device made of memory, by which frames arrive that take the long way of `pktgen run`.
#[derive(Debug)]
pub struct ArrivalRig {
    rig: Rig,
    arrival: Arrival,
    writers: Vec<TagWriter>,
    due: Vec<u64>,
    /// The next of each stream.
    number: u32,
    now: u64,
    hand_overs: Vec<HandOvers>,
    streams: Vec<Stream>,
    shared: Shared,
    shares: [Share; 2],
}

impl ArrivalRig {
    /// Opens the driver with rings of `ring` descriptors, for bursts of `burst` packets.
    ///
    /// # Panics
    ///
    /// When it cannot, or a burst is not to be shared out among the streams, or in twos: then there is nothing to measure.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a bench that cannot start has no better way to say so")]
    pub fn new(arrival: Arrival, burst: usize, ring: u16) -> Self {
        assert!(burst.is_multiple_of(STREAMS.into()), "whole turns of the streams");
        let numbers = STREAM..STREAM + if arrival == Arrival::Streams { STREAMS } else { 1 };
        let kind = if arrival == Arrival::Short { Kind::Short } else { Kind::Full };
        let writer = |stream| TagWriter::new(kind, stream, FRAME.into(), 42, None).expect("room for a tag");
        Self {
            rig: Rig::new(burst, ring),
            arrival,
            writers: numbers.clone().map(writer).collect(),
            due: vec![0; burst],
            number: 0,
            now: 10 * STEP,
            hand_overs: numbers.clone().map(|_| HandOvers::new()).collect(),
            streams: numbers.map(|number| Stream::new(number, 0)).collect(),
            shared: Shared::new(2),
            shares: [0, 1].map(|me| Share::new(me, 1)),
        }
    }

    /// Receives so many packets, and with `MEASURED` counts and times them. Returns how many.
    ///
    /// # Panics
    ///
    /// If one is not of the streams.
    #[inline(always)]
    pub fn receive<const MEASURED: bool>(&mut self, count: usize) -> usize {
        let Self { writers, hand_overs, shared, due, .. } = self;
        let Rig { rx, hardware, cache, batch, .. } = &mut self.rig;
        hardware.receive(count, FRAME.into());
        let received = rx.recv(cache, batch).len();
        self.now += STEP;
        for (place, due) in due.iter_mut().zip((self.now - 2 * STEP..).step_by(31)) {
            *place = due;
        }
        let (first, streams) = (self.number, writers.len());
        let each = received / streams;
        for (nth, (writer, hand_overs)) in writers.iter().zip(hand_overs).enumerate() {
            let frames = batch.iter_mut().skip(nth).step_by(streams);
            writer.write_all(frames.map(Packet::data_mut), first, due);
            hand_overs.note(first, each, self.now - STEP);
        }
        shared.note(first.into(), each, self.now - STEP);
        self.number = first.wrapping_add(u32::try_from(each).unwrap_or(0));
        if MEASURED {
            self.look();
        }
        let Rig { cache, batch, .. } = &mut self.rig;
        cache.free_batch(batch);
        received
    }

    #[inline(always)]
    fn look(&mut self) {
        let (batch, now, sent) = (&self.rig.batch, self.now, u64::from(self.number));
        match (self.arrival, &mut self.streams[..]) {
            (Arrival::Reordered, [stream]) => {
                let frames = (0..batch.len()).map(|index| batch[index ^ 1].data());
                assert_eq!(stream.saw(frames, now, sent, self.hand_overs.first()), 0, "all are of the stream");
            }
            (Arrival::Short, [stream]) => {
                let frames = batch.iter().map(Packet::data);
                assert_eq!(stream.saw(frames, now, sent, self.hand_overs.first()), 0, "all are of the stream");
            }
            (Arrival::Queues, _) => {
                let share = &mut self.shares[usize::from(now / STEP % 2 == 1)];
                for frame in batch.iter().map(Packet::data) {
                    let Some(tag) = Tag::find(frame).filter(|tag| tag.stream == STREAM) else { continue };
                    share.saw(0, &self.shared, tag, now);
                }
            }
            (_, streams) => {
                for frame in batch.iter().map(Packet::data) {
                    let Some(tag) = Tag::find(frame) else { continue };
                    let index = usize::from(tag.stream.wrapping_sub(STREAM));
                    let Some((stream, hand_overs)) = streams.get_mut(index).zip(self.hand_overs.get(index)) else {
                        continue;
                    };
                    stream.saw_one(frame, now, sent, Some(hand_overs));
                }
            }
        }
    }

    /// Returns what became of all frames.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let sent = self.number.into();
        let mut all = Verdict::default();
        if self.arrival == Arrival::Queues {
            all += self.shared.verdict(sent);
            self.shares.iter().for_each(|share| all += share.unusual());
        } else {
            self.streams.iter().for_each(|stream| all += stream.verdict(sent));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_arrives_is_counted_once() {
        for (arrival, reordered) in [(Arrival::Streams, 0), (Arrival::Queues, 0), (Arrival::Reordered, 160)] {
            let mut rig = ArrivalRig::new(arrival, 32, 512);
            assert_eq!((0..10).map(|_| rig.receive::<true>(32)).sum::<usize>(), 320);
            let verdict = rig.verdict();
            assert_eq!((verdict.received, verdict.lost), (320, 0), "{arrival:?}");
            assert_eq!((verdict.duplicate, verdict.reordered), (0, reordered), "{arrival:?}");
        }
    }
}
