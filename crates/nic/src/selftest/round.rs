//! One round of frames through an open port: they go round inside the device.

mod flight;

use super::HIGH;
use super::frames::{Maker, SHORTEST, Shape};
use crate::{Error, Opened};
use device::Deadline;
use ethdev::{Check, LinkStatus, Port as _, PortConfig, RxQueue as _, Statistics, TxQueue as _, hash_frame};
use flight::{Exchange, Patience, pause};
use mempool::{Batch, CHUNK, Pool, PoolCache};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// What a round does besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extras {
    /// Its memory was asked to be above 4 GiB.
    pub(super) high: bool,
    /// It is the last, and looks at the link.
    pub(super) is_last: bool,
}

/// An open device, and what was sent through it.
pub(super) struct Round<'p> {
    opened: Opened,
    cache: PoolCache,
    outbox: Batch,
    inbox: Batch,
    config: &'p PortConfig,
    deadline: Deadline,
    maker: Maker,
    /// The number of the next frame.
    number: u32,
    sent_bytes: u64,
    /// The device's counters before the first frame.
    before: Statistics,
    /// All counts as they were before the present check.
    mark: Mark,
}

/// What was counted up to a moment.
#[derive(Default)]
struct Mark {
    /// The number of the next frame.
    number: u32,
    device: Statistics,
    /// Packets that receive queues dropped: with a bad length, marked as bad, without an end.
    drops: [u64; 3],
}

/// A check, or, as error, the last one: nothing else makes sense.
type Step = Result<Check, Check>;

impl<'p> Round<'p> {
    pub(super) fn new(opened: Opened, pool: &Pool, config: &'p PortConfig, deadline: Deadline) -> Self {
        let maker = Maker::new(opened.port.mac());
        let [outbox, inbox] = [OUTBOX, INBOX].map(Batch::with_capacity);
        let (number, sent_bytes, before, mark) = Default::default();
        Self { opened, cache: pool.cache(), outbox, inbox, config, deadline, maker, number, sent_bytes, before, mark }
    }

    /// Makes the checks, closes the device, and adds what was found to `checks`. Returns whether another round makes sense.
    pub(super) fn run(mut self, extras: Extras, iova: Option<u64>, checks: &mut Vec<Check>) -> bool {
        let mut goes_on = true;
        if self.opened.port.capabilities().loopback {
            goes_on = self.frames(extras, iova, checks);
        } else {
            let why = "this device cannot loop frames back inside itself, or its firmware forbids it";
            checks.push(Check::not_applicable(LOOP, why));
        }
        if extras.is_last && goes_on {
            checks.push(self.link());
        }
        let Self { opened, cache, outbox, inbox, .. } = self;
        drop((outbox, inbox));
        let Opened { port, rx, tx } = opened;
        drop(rx);
        let closed = port.close();
        drop((tx, cache));
        checks.push(match closed {
            Ok(_) => Check::ok(CLOSE, "in order"),
            #[cfg(feature = "soft")]
            Err(error @ Error::Lost { source: softnic::WireError::Untraced { .. }, .. }) => {
                Check::ended_by(TRACE, &error)
            }
            Err(error) => Check::ended_by(CLOSE, &error),
        });
        goes_on
    }

    /// The checks of frames. Returns whether frames go round at all.
    fn frames(&mut self, extras: Extras, iova: Option<u64>, checks: &mut Vec<Check>) -> bool {
        let steps: [fn(&mut Self) -> Step; 7] = [
            Self::first,
            Self::write_back,
            Self::sizes,
            Self::counts,
            Self::spread,
            Self::interrupts,
            Self::statistics,
        ];
        let mut goes_round = true;
        for step in steps {
            self.mark = self.mark();
            let outcome = step(self);
            goes_round = outcome.is_ok();
            checks.push(outcome.unwrap_or_else(|last| last));
            if !goes_round {
                break;
            }
        }
        if goes_round && extras.high {
            checks.push(above_4_gib(iova));
        }
        match self.opened.port.set_loopback(false) {
            Ok(()) => goes_round,
            Err(error) => {
                if goes_round {
                    checks.push(Check::ended_by(LOOP, &error));
                }
                false
            }
        }
    }

    /// What is counted by now. A device that does not answer counts what it did before; the check that follows finds out.
    fn mark(&mut self) -> Mark {
        let port = &mut self.opened.port;
        let device = port.statistics().unwrap_or_else(|_| port.totals());
        Mark { number: self.number, device, drops: self.drops() }
    }

    fn drops(&self) -> [u64; 3] {
        let counters = self.opened.rx.iter().map(|queue| queue.counters());
        counters.fold([0; 3], |[length, errors, endless], now| {
            [length + now.bad_length, errors + now.frame_errors, endless + now.too_long]
        })
    }

    /// A first frame by itself.
    fn first(&mut self) -> Step {
        let fail = |error: Error| Check::ended_by(LOOP, &error);
        self.opened.port.set_loopback(true).map_err(fail)?;
        self.discard_foreign();
        self.before = self.opened.port.statistics().map_err(fail)?;
        self.mark = self.mark();
        let one = Shape { len: SHORTEST, flow: 0 };
        let alone = self.exchange(LOOP, &[one], 0, 1)?;
        if alone.is_right() {
            return Ok(Check::ok(LOOP, "a frame comes back"));
        }
        if alone.came == 0 && self.dropped() == 0 {
            let second = self.exchange(LOOP, &[one], 0, 1)?;
            if second.late == 1 {
                let problem =
                    "a frame comes only when another follows: descriptors are completed late, or out of order";
                return Err(Check::failed(LOOP, problem));
            }
        }
        Err(self.explained(LOOP, &alone))
    }

    /// Whether the device reports frames sent, without which their buffers do not come back.
    fn write_back(&mut self) -> Step {
        let shapes = [Shape { len: SHORTEST, flow: 0 }; CHUNK];
        // With the one before, a whole chunk is in the ring.
        let rest = self.exchange(WRITE_BACK, &shapes[1..], 0, WINDOW)?;
        if self.reported_within(0, CHUNK) {
            return Ok(Check::ok(WRITE_BACK, format!("{CHUNK} frames sent are reported as sent")));
        }
        if !rest.is_right() {
            return Ok(self.explained(WRITE_BACK, &rest));
        }
        let before = self.opened.tx[0].in_flight();
        self.exchange(WRITE_BACK, &shapes, 0, WINDOW)?;
        let problem = if self.reported_within(0, before + CHUNK) {
            "frames sent are reported only when more follow: descriptors are written back late, or out of order"
        } else {
            "frames sent are never reported: descriptors are not written back (DD)"
        };
        Err(Check::failed(WRITE_BACK, problem))
    }

    /// Waits until fewer than `count` frames of a transmit queue are not reported.
    fn reported_within(&mut self, queue: usize, count: usize) -> bool {
        let mut patience = Patience::of_quick_looks(PATIENCE);
        loop {
            self.opened.tx[queue].send(&mut self.cache, &mut self.outbox);
            if self.opened.tx[queue].in_flight() < count {
                return true;
            }
            if patience.is_over() || self.deadline.check().is_err() {
                return false;
            }
            pause();
        }
    }

    fn sizes(&mut self) -> Step {
        let longest = usize::from(self.config.mtu) + TAGGED_HEADER;
        let ordinary = longest.min(ORDINARY);
        let mut shapes: Vec<Shape> = (SHORTEST..=ordinary).map(|len| Shape { len, flow: 0 }).collect();
        let mut text = format!("{SHORTEST} to {ordinary} bytes");
        if longest > ordinary {
            shapes.push(Shape { len: longest, flow: 0 });
            text += &format!(", and {longest}");
        }
        let exchange = self.exchange(SIZES, &shapes, 0, WINDOW)?;
        Ok(self.verdict(SIZES, &exchange, format!("{text}: all come back as they were")))
    }

    /// Bursts of each length, on all transmit queues in turn.
    fn counts(&mut self) -> Step {
        // A receive ring may be short of a chunk that is still to be announced to the device.
        let most = usize::from(self.config.tx_ring - 1).min(usize::from(self.config.rx_ring) - CHUNK);
        let shapes = vec![Shape { len: SHORTEST, flow: 0 }; most];
        let queues = self.opened.tx.len();
        let mut sum = 0;
        for count in 1..=most {
            let exchange = self.exchange(COUNTS, &shapes[..count], count % queues, count)?;
            sum += count;
            if !exchange.is_right() {
                return Ok(self.verdict(COUNTS, &exchange, String::new()));
            }
        }
        Ok(Check::ok(COUNTS, format!("bursts of 1 to {most}: all {sum} frames come back, in order")))
    }

    /// Whether each flow arrives by the queue that its Toeplitz hash leads to.
    fn spread(&mut self) -> Step {
        let queues = self.config.rx_queues;
        if queues < 2 || self.opened.port.capabilities().rss.is_none() {
            return Ok(Check::not_applicable(RSS, "one receive queue"));
        }
        let first = self.number;
        let shapes: Vec<Shape> = (0..FLOWS).map(|flow| Shape { len: SHORTEST, flow }).collect();
        let exchange = self.exchange(RSS, &shapes, 0, WINDOW)?;
        let numbered = (first..).zip(&shapes).zip(&exchange.queues);
        let mut astray = numbered.filter_map(|((number, shape), queue)| {
            let hash = hash_frame(&self.config.rss, &self.maker.frame(number, *shape));
            let expected = usize::from(self.config.rss.queue(hash, queues));
            queue.filter(|queue| *queue != expected).map(|queue| (hash, queue, expected))
        });
        if let Some((hash, queue, expected)) = astray.next() {
            let others = astray.count();
            let problem =
                format!("hash {hash:#010x} arrives by queue {queue}, not {expected}; so do {others} more of {FLOWS}");
            return Ok(Check::failed(RSS, problem));
        }
        let text = format!("{FLOWS} flows on {queues} queues, each where its Toeplitz hash leads");
        Ok(self.verdict(RSS, &exchange, text))
    }

    /// Whether a frame makes the interrupt of its queue fire.
    fn interrupts(&mut self) -> Step {
        if !self.opened.port.capabilities().interrupts {
            let why =
                if self.config.interrupts == ethdev::Interrupts::Off { "polled in this round" } else { "none here" };
            return Ok(Check::not_applicable(INTERRUPTS, why));
        }
        for queue in 0..self.opened.rx.len() {
            let Some(flow) = self.flow_to(queue) else { continue };
            if !self.is_quiet(queue) {
                return Ok(Check::failed(
                    INTERRUPTS,
                    format!("that of queue {queue} fires again and again without a frame"),
                ));
            }
            let shapes = [Shape { len: SHORTEST, flow }];
            let mut flight = self.flight(&shapes);
            self.post(&mut flight, 0, 1);
            if !self.fires_in_time(queue) {
                return Ok(Check::failed(
                    INTERRUPTS,
                    format!("a frame on queue {queue} brings none within {PATIENCE:?}"),
                ));
            }
            let exchange = self.land(INTERRUPTS, flight, 0, 1)?;
            if !exchange.is_right() {
                return Ok(self.explained(INTERRUPTS, &exchange));
            }
        }
        Ok(Check::ok(INTERRUPTS, format!("a frame brings one, on each of {} queues", self.opened.rx.len())))
    }

    /// The device's counters against what was sent.
    fn statistics(&mut self) -> Step {
        let sent = u64::from(self.number);
        let bytes = self.sent_bytes + Statistics::CRC * sent;
        let mut patience = Patience::new(PATIENCE);
        loop {
            let now = self.opened.port.statistics().map_err(|error| Check::ended_by(STATISTICS, &error))?;
            let before = &self.before;
            let counted = [
                ("frames sent", now.tx_packets - before.tx_packets, sent),
                ("bytes sent", now.tx_bytes - before.tx_bytes, bytes),
                ("frames received", now.rx_packets - before.rx_packets, sent),
                ("bytes received", now.rx_bytes - before.rx_bytes, bytes),
                ("frames missed", now.rx_missed - before.rx_missed, 0),
                ("frames in error", now.rx_errors.total() - before.rx_errors.total(), 0),
            ];
            match counted.iter().find(|(_, count, right)| count != right) {
                None => {
                    return Ok(Check::ok(
                        STATISTICS,
                        format!("{sent} frames and {bytes} bytes each way, as were sent"),
                    ));
                }
                Some((what, count, right)) if patience.is_over() || self.deadline.check().is_err() => {
                    return Ok(Check::failed(STATISTICS, format!("{count} {what}, and not {right}")));
                }
                Some(_) => pause(),
            }
        }
    }

    /// Whether there is a link, and whether it stays. One that comes up late is watched once more.
    fn link(&mut self) -> Check {
        let left = self.deadline.remaining().unwrap_or_default().saturating_sub(2 * WATCH + CLOSING);
        let (begun, mut waited) = (Instant::now(), Duration::ZERO);
        let watched = self.opened.port.wait_link(left.min(LINK_LIMIT)).and_then(|link| {
            waited = begun.elapsed();
            let (now, changes) = self.watch()?;
            if link.up || !now.up { Ok((now, changes)) } else { self.watch() }
        });
        match watched {
            Err(error) => Check::ended_by(LINK, &error),
            Ok((_, changes)) if changes > 0 => {
                Check::failed(LINK, format!("changes by itself, {changes} times in {WATCH:?}"))
            }
            Ok((link, _)) if link.up => Check::ok(LINK, format!("{link}")),
            Ok(_) => {
                let why = self.opened.port.no_carrier();
                let why = why.unwrap_or_else(|| {
                    format!("none in {} s; no cable, nobody at its other end, or slow to negotiate", waited.as_secs())
                });
                Check::not_applicable(LINK, format!("down: {why}"))
            }
        }
    }

    /// Watches the link for a while. Returns its state at the end, and how often it changed at least: the device remembers changes
    /// that are over before anybody looks.
    fn watch(&mut self) -> crate::Result<(LinkStatus, u32)> {
        let port = &mut self.opened.port;
        // What happened before is no news.
        port.events()?;
        let (mut changes, mut noticed, mut patience) = (0, 0, Patience::new(WATCH));
        let mut before = port.link()?;
        while !patience.is_over() && self.deadline.check().is_ok() {
            pause();
            let link = port.link()?;
            changes += u32::from(before.up != link.up);
            noticed += u32::from(port.events()?.link_changed);
            before = link;
        }
        Ok((before, changes.max(noticed)))
    }

    /// A flow whose frames arrive by this queue.
    fn flow_to(&self, queue: usize) -> Option<u16> {
        let queues = self.config.rx_queues;
        (0..4096).find(|&flow| {
            let frame = self.maker.frame(0, Shape { len: SHORTEST, flow });
            queues < 2 || usize::from(self.config.rss.queue(hash_frame(&self.config.rss, &frame), queues)) == queue
        })
    }

    /// Lets the interrupt of a queue fire, and waits until what was still due has fired.
    fn is_quiet(&mut self, queue: usize) -> bool {
        (0..SPURIOUS).any(|_| self.opened.rx[queue].arm() && !self.fires(queue, QUIET))
    }

    fn fires_in_time(&self, queue: usize) -> bool {
        let mut patience = Patience::new(PATIENCE);
        loop {
            if self.fires(queue, QUIET) {
                return true;
            }
            if patience.is_over() || self.deadline.check().is_err() {
                return false;
            }
        }
    }

    fn fires(&self, queue: usize, limit: Duration) -> bool {
        let Some(fd) = self.opened.rx[queue].eventfd() else { return false };
        let limit = Timespec::try_from(limit).ok();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn verdict(&mut self, name: &'static str, exchange: &Exchange, seen: String) -> Check {
        if exchange.is_right() { Check::ok(name, seen) } else { self.explained(name, exchange) }
    }

    /// The check of an exchange that went wrong, with what can be told of it.
    fn explained(&mut self, name: &'static str, exchange: &Exchange) -> Check {
        let mut text = format!("{} of {} frames came back", exchange.came, exchange.sent);
        if let Some(wrong) = &exchange.wrong {
            text += &format!("; {wrong}");
        }
        let (before, now) = (self.mark.drops, self.drops());
        let since = [0, 1, 2].map(|kind| now[kind] - before[kind]);
        let drops = [
            ("with a length of 0 or beyond its buffer", since[0]),
            ("marked as bad", since[1]),
            ("without an end (EOP)", since[2]),
        ];
        for (what, count) in drops.iter().filter(|(_, count)| *count > 0) {
            text += &format!("; {count} arrived {what}");
        }
        if exchange.came < exchange.sent && self.opened.rx.iter_mut().any(|queue| queue.is_ready()) {
            text += "; one has begun to arrive, and has no end (EOP)";
        }
        let cause = match self.opened.port.statistics() {
            Ok(now) => {
                let (before, frames) = (&self.mark.device, self.number - self.mark.number);
                let (sent, received) = (now.tx_packets - before.tx_packets, now.rx_packets - before.rx_packets);
                text += &format!("; of {frames} in this check the device counts {sent} sent and {received} received");
                None
            }
            Err(error) => {
                text += &format!("; {error}");
                error.known_cause()
            }
        };
        let mut check = Check::failed(name, text);
        check.cause = cause;
        check
    }
}

fn above_4_gib(iova: Option<u64>) -> Check {
    match iova {
        Some(iova) if iova >= HIGH => Check::ok(ADDRESSES, "all of these frames lay there"),
        Some(_) => Check::not_applicable(ADDRESSES, "there are no such addresses here for the device"),
        None => Check::not_applicable(ADDRESSES, "cannot be told here"),
    }
}

const LOOP: &str = "loop inside";
const WRITE_BACK: &str = "write-back";
const SIZES: &str = "frame sizes";
const COUNTS: &str = "frame counts";
const RSS: &str = "RSS";
const INTERRUPTS: &str = "interrupts";
const STATISTICS: &str = "statistics";
const ADDRESSES: &str = "DMA above 4 GiB";
const LINK: &str = "link";
const CLOSE: &str = "close";
/// Not of the device: what it was asked to write down is missing.
#[cfg(feature = "soft")]
const TRACE: &str = "trace";

/// Bytes of an Ethernet header with a VLAN tag.
const TAGGED_HEADER: usize = 18;
/// The longest frame that is not jumbo, with a VLAN tag, in bytes without check sequence.
const ORDINARY: usize = 1518;
/// Frames that are on their way at most, where no more are asked for.
const WINDOW: usize = 32;
const OUTBOX: usize = 256;
const INBOX: usize = 64;
const FLOWS: u16 = 256;
/// How long nothing may move, by far more than any frame takes.
const PATIENCE: Duration = Duration::from_millis(600);
/// How often a device that is silent is asked whether it is there.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Interrupts that may still be due, and how long without one is quiet.
const SPURIOUS: usize = 4;
const QUIET: Duration = Duration::from_millis(3);
/// How long the link may take to come up, and is watched.
const LINK_LIMIT: Duration = Duration::from_secs(9);
/// Time that is left for closing the device.
const CLOSING: Duration = Duration::from_secs(1);
const WATCH: Duration = Duration::from_millis(200);

#[cfg(all(test, feature = "soft"))]
mod tests {
    use super::*;
    use device::TimeLimit;
    use ethdev::Cause;
    use mempool::PoolConfig;
    use softnic::Fault;

    /// Pulled out at any read of a round: one check says so, no other round follows, and all buffers come home.
    #[test]
    fn a_nic_that_is_pulled_out_in_mid_test_loses_no_buffer() {
        let config = PortConfig { rx_queues: 2, rx_ring: 128, tx_ring: 128, ..PortConfig::default() };
        std::thread::scope(|scope| {
            for after_reads in [0, 3, 9, 50, 180, 200, 260, 400] {
                let config = &config;
                scope.spawn(move || {
                    let pool = Pool::new(&PoolConfig { slots: 1200, ..PoolConfig::default() }).expect("memory");
                    let address = format!("soft:pulled-{after_reads}").parse().expect("an address");
                    let opened = crate::open(&address, config, &pool).expect("a healthy device");
                    opened.port.soft().expect("a soft NIC").inject_fault(Fault::Removal { after_reads });
                    let mut checks = Vec::new();
                    let limit = TimeLimit { total: Duration::from_secs(600), cancel: None };
                    let round = Round::new(opened, &pool, config, limit.begin());
                    let goes_on = round.run(Extras { high: true, is_last: true }, None, &mut checks);
                    let failed: Vec<_> =
                        checks.iter().filter(|check| check.verdict == ethdev::Verdict::Failed).collect();
                    // What found nothing to move for long on this machine, before it was pulled out, is no finding. Closing says so anyway.
                    let last = failed.iter().rfind(|check| check.name != CLOSE).or(failed.last());
                    assert!(last.is_some_and(|check| check.cause == Some(Cause::Gone)), "{checks:#?}");
                    assert!(!goes_on || failed.iter().all(|check| [LINK, CLOSE].contains(&check.name)), "{checks:#?}");
                    assert_eq!(pool.away(), 0, "{after_reads}");
                });
            }
        });
    }

    /// Makes a check of a device with a fault.
    fn with<'p>(round: &mut Round<'p>, fault: Fault, step: fn(&mut Round<'p>) -> Step) -> Check {
        round.opened.port.soft().expect("a soft NIC").inject_fault(fault);
        round.mark = round.mark();
        let check = step(round).unwrap_or_else(|last| last);
        round.opened.port.soft().expect("a soft NIC").clear_faults();
        check
    }

    /// A check that fails counts what happened in it, and nothing of those before.
    #[test]
    fn counts_are_those_of_the_check_that_failed() {
        let config = PortConfig { rx_ring: 256, tx_ring: 64, ..PortConfig::default() };
        let pool = Pool::new(&PoolConfig { slots: 1200, ..PoolConfig::default() }).expect("memory");
        let opened = crate::open(&"soft:counted".parse().expect("an address"), &config, &pool).expect("a device");
        let mut round = Round::new(opened, &pool, &config, config.time_limit.begin());
        assert_eq!(with(&mut round, Fault::RxErrorBits { every: 5000 }, Round::first).verdict, ethdev::Verdict::Ok);
        let marked = with(&mut round, Fault::RxErrorBits { every: 100 }, Round::sizes);
        assert!(marked.seen.contains("14 arrived marked as bad"), "{marked:?}");
        let cut = with(&mut round, Fault::RxLengthZero { every: 40 }, Round::counts);
        assert!(cut.seen.contains("1 arrived with a length of 0") && !cut.seen.contains("marked"), "{cut:?}");
        // Bursts of 1 to 9 frames are 45.
        assert!(cut.seen.contains("of 45 in this check the device counts 45 sent and 45 received"), "{cut:?}");
        round.opened.port.set_loopback(false).expect("it ends");
    }
}
