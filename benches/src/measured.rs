//! What `pktgen run` does with a burst, beyond receiving or sending it.

use crate::{FRAME, Rig, Work};
use ethdev::{RxQueue as _, TxQueue as _};
use measure::{Coverage, HandOvers, Kind, Load, Pacer, Pattern, Stream, TagWriter, is_intact};
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
        let coverage = Some(Coverage { checksum_at: 40, from: 26, zero_is_none: true });
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
            assert!(batch.iter().all(|packet| is_intact(packet.data(), [])), "all are as they were sent");
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
