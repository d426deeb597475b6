//! Frames on their way round.

use super::{ASK_AGAIN, INBOX, PATIENCE, Round};
use crate::selftest::frames::{Maker, Shape};
use ethdev::{Check, Port as _, RxQueue as _, TxQueue as _};
use mempool::{Packet, frames};
use std::time::{Duration, Instant};

/// What became of some frames.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) sent: usize,
    pub(super) came: usize,
    /// Frames of before that came meanwhile.
    pub(super) late: usize,
    /// The queue that each came by.
    pub(super) queues: Vec<Option<usize>>,
    /// What was wrong with the first that came back changed, twice or too early.
    pub(super) wrong: Option<String>,
}

/// Frames on their way.
pub(super) struct Flight<'s> {
    shapes: &'s [Shape],
    /// The number of the first.
    first: u32,
    /// How many have been made.
    made: usize,
    /// Frames that queues had dropped before.
    dropped: u64,
    /// The last that came by each queue.
    last: Vec<u32>,
    exchange: Exchange,
}

impl Exchange {
    pub(super) fn is_right(&self) -> bool {
        self.came == self.sent && self.wrong.is_none()
    }
}

impl Round<'_> {
    /// Drops what has come from the wire, as far as a ring holds.
    pub(super) fn discard_foreign(&mut self) {
        for _ in 0..=usize::from(self.config.rx_ring) / INBOX {
            for queue in &mut self.opened.rx {
                queue.recv(&mut self.cache, &mut self.inbox);
                self.cache.free_batch(&mut self.inbox);
            }
        }
    }

    /// Sends frames through a transmit queue, no more than `window` at a time, and receives them.
    pub(super) fn exchange(
        &mut self,
        name: &'static str,
        shapes: &[Shape],
        queue: usize,
        window: usize,
    ) -> Result<Exchange, Check> {
        let flight = self.flight(shapes);
        self.land(name, flight, queue, window)
    }

    pub(super) fn flight<'s>(&self, shapes: &'s [Shape]) -> Flight<'s> {
        let exchange = Exchange { queues: vec![None; shapes.len()], ..Exchange::default() };
        let last = vec![self.number; self.opened.rx.len()];
        Flight { shapes, first: self.number, made: 0, dropped: self.dropped(), last, exchange }
    }

    /// Makes frames, as many as the window and the memory allow, and hands them to the device. Returns how many packets it took.
    pub(super) fn post(&mut self, flight: &mut Flight<'_>, queue: usize, window: usize) -> usize {
        while let Some(shape) = flight.shapes.get(flight.made) {
            let gone = usize::try_from(self.dropped() - flight.dropped).unwrap_or(usize::MAX);
            let over = flight.exchange.came.saturating_add(gone);
            if flight.made - over.min(flight.made) >= window || !self.make(*shape) {
                break;
            }
            flight.made += 1;
        }
        let taken = self.opened.tx[queue].send(&mut self.cache, &mut self.outbox);
        flight.exchange.sent = flight.made;
        taken
    }

    /// Makes the next frame and puts it into the outbox; false if there is no room or no buffer.
    fn make(&mut self, shape: Shape) -> bool {
        let bytes = self.maker.frame(self.number, shape);
        let room = usize::from(self.cache.pool().data_room());
        if self.outbox.spare() < bytes.len().div_ceil(room) {
            return false;
        }
        let packets: Option<Vec<Packet>> = bytes.chunks(room).map(|part| self.cache.alloc_from(part)).collect();
        let Some(mut packets) = packets else { return false };
        let last = packets.len() - 1;
        packets[..last].iter_mut().for_each(|packet| packet.set_continues(true));
        for packet in packets {
            // There is room.
            let _ = self.outbox.push(packet);
        }
        self.number += 1;
        self.sent_bytes += bytes.len() as u64;
        true
    }

    /// Receives until all frames of a flight are back or known to be dropped, or nothing moves any more. An error if the device does
    /// not answer.
    pub(super) fn land(
        &mut self,
        name: &'static str,
        mut flight: Flight<'_>,
        queue: usize,
        window: usize,
    ) -> Result<Exchange, Check> {
        let (mut patience, mut asked) = (Patience::of_quick_looks(PATIENCE), Instant::now());
        loop {
            // At each turn: a device may make up frames for ever.
            self.deadline.check().map_err(|expired| Check::failed(name, expired))?;
            let progress = self.post(&mut flight, queue, window) + self.receive(&mut flight);
            let over = flight.exchange.came as u64 + self.dropped() - flight.dropped;
            if flight.made == flight.shapes.len() && self.outbox.is_empty() && over >= flight.made as u64 {
                break;
            }
            if progress > 0 {
                patience = Patience::of_quick_looks(PATIENCE);
                continue;
            }
            if patience.is_over() {
                break;
            }
            if asked.elapsed() > ASK_AGAIN {
                asked = Instant::now();
                self.opened.port.link().map_err(|error| Check::ended_by(name, &error))?;
            }
            pause();
        }
        self.cache.free_batch(&mut self.outbox);
        Ok(flight.exchange)
    }

    /// Receives from all queues. Returns how many packets came.
    fn receive(&mut self, flight: &mut Flight<'_>) -> usize {
        let mut came = 0;
        for at in 0..self.opened.rx.len() {
            came += self.opened.rx[at].recv(&mut self.cache, &mut self.inbox).len();
            for frame in frames(&self.inbox) {
                let bytes: Vec<u8> = frame.iter().flat_map(|packet| packet.data()).copied().collect();
                self.maker.number(&bytes).into_iter().for_each(|number| flight.came(at, number, &bytes, &self.maker));
            }
            self.cache.free_batch(&mut self.inbox);
        }
        came
    }

    /// Frames that receive queues have dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.opened.rx.iter().map(|queue| queue.counters().dropped()).sum()
    }
}

impl Flight<'_> {
    /// Notes that frame `number` came by queue `at`.
    fn came(&mut self, at: usize, number: u32, bytes: &[u8], maker: &Maker) {
        let Some(index) = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok()) else {
            self.exchange.late += 1;
            return;
        };
        let Some(shape) = self.shapes.get(index).filter(|_| index < self.made) else {
            self.wrong(format!("frame {number} came, which was not sent"));
            return;
        };
        if self.exchange.queues[index].replace(at).is_some() {
            self.wrong(format!("frame {number} came twice"));
            return;
        }
        self.exchange.came += 1;
        let sent = maker.frame(number, *shape);
        if sent.len() != bytes.len() {
            self.wrong(format!("frame {number} of {} bytes came back with {}", sent.len(), bytes.len()));
        } else if let Some(place) = sent.iter().zip(bytes).position(|(sent, came)| sent != came) {
            self.wrong(format!("frame {number} of {} bytes came back changed at byte {place}", sent.len()));
        } else if number < self.last[at] {
            self.wrong(format!("frame {number} came after frame {}", self.last[at]));
        }
        self.last[at] = number;
    }

    /// Notes the first thing that is wrong.
    fn wrong(&mut self, what: String) {
        self.exchange.wrong.get_or_insert(what);
    }
}

/// How long something is waited for: a time, and a number of looks, so that a device that shares its processors with many others gets
/// its turns.
pub(super) struct Patience {
    begun: Instant,
    limit: Duration,
    looks: u32,
    fewest: u32,
}

impl Patience {
    /// Of looks that wait or read registers, each of which may take its time.
    pub(super) fn new(limit: Duration) -> Self {
        Self { begun: Instant::now(), limit, looks: 0, fewest: 200 }
    }

    /// Of looks at memory, with a [`pause`] behind each: an idle machine makes as many in a fifth of a second.
    pub(super) fn of_quick_looks(limit: Duration) -> Self {
        Self { fewest: 2_000, ..Self::new(limit) }
    }

    /// Counts a look in vain, and returns whether it was the last.
    pub(super) fn is_over(&mut self) -> bool {
        self.looks += 1;
        self.looks >= self.fewest && self.begun.elapsed() > self.limit
    }
}

/// Lets the device work, where it shares a processor with this thread.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_micros(20));
}
