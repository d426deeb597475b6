//! The work of one step, which all devices of a process wait for: bounded whatever the transmit rings hold.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Driver, Plan, frame, tx};
use softnic::{OnViolation, StrictNic, TransmitFault, Violation};

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];
const HEAD: u32 = 0x10;
/// The model's bound, and the most descriptors of a frame.
const WORK: u32 = 1024;
const MOST: u32 = 64;

fn start(plan: Plan) -> Driver<StrictNic> {
    Driver::start(StrictNic::builder().on_violation(OnViolation::Record).build(), plan)
}

/// Fills a ring with the same descriptor, all but the last place, and rings.
fn fill(driver: &mut Driver<StrictNic>, queue: u32, high: u64) {
    let last = driver.plan.descriptors - 1;
    let buffer = driver.arena.iova(driver.tx_buffer(queue, 0));
    for index in 0..last {
        driver.set_tx(queue, index, buffer, high);
    }
    driver.tx_next[queue as usize] = last;
    driver.ring_tx(queue);
}

#[test]
fn a_burst_on_one_queue_goes_in_a_step() {
    let mut driver = start(Plan { descriptors: 256, ..Plan::default() });
    for n in 0..128 {
        driver.put(0, &[&frame(STATION, 60, n)]);
    }
    driver.ring_tx(0);
    assert_eq!(driver.device.step().transmitted, 128);
}

#[test]
fn all_queues_share_the_work_of_a_step_in_turn() {
    let mut driver = start(Plan { queues: 16, descriptors: 512, buffer_kib: 1, ..Plan::default() });
    for queue in 0..16 {
        for n in 0..384 {
            driver.put(queue, &[&frame(STATION, 60, n as u8)]);
        }
        driver.ring_tx(queue);
    }
    for round in 1..=3 {
        for _ in 0..2 {
            let sent = driver.device.step().transmitted;
            assert!((WORK - 128..=WORK).contains(&sent), "{sent}");
        }
        for queue in 0..16 {
            assert_eq!(driver.read(tx(queue, HEAD)), 128 * round, "TDH of queue {queue}");
        }
    }
    assert_eq!(driver.device.step_until_idle(100).transmitted, 0);
}

#[test]
fn context_descriptors_are_work_too() {
    let mut driver = start(Plan { queues: 2, descriptors: 4096, buffer_kib: 1, ..Plan::default() });
    fill(&mut driver, 0, 1 << 29 | 2 << 20);
    driver.send(1, &frame(STATION, 60, 1));
    let mut sent = 0;
    for step in 1..=4 {
        sent += driver.device.step().transmitted;
        assert!(driver.read(tx(0, HEAD)) <= step * WORK, "step {step}");
        assert!(step < 2 || sent == 1, "the other queue has its turn");
    }
    // Steps that get on with context descriptors alone are not idle.
    driver.device.step_until_idle(100);
    assert_eq!(driver.read(tx(0, HEAD)), 4095);
    assert_eq!(driver.device.violations(), []);
}

#[test]
fn a_frame_of_too_many_descriptors_stops_its_queue() {
    let mut driver = start(Plan { queues: 2, descriptors: 256, buffer_kib: 1, ..Plan::default() });
    fill(&mut driver, 0, 64);
    driver.send(1, &frame(STATION, 60, 1));
    assert_eq!(driver.device.step().transmitted, 1, "of the other queue");
    let cause = TransmitFault::TooManyDescriptors;
    assert_eq!(driver.device.violations(), [Violation::TransmitDescriptor { queue: 0, index: 0, cause }]);
    assert!(driver.device.step().is_idle());
    assert_eq!(driver.read(tx(0, HEAD)), 0);
}

#[test]
fn a_frame_of_as_many_descriptors_as_may_be_is_sent() {
    let mut driver = start(Plan { descriptors: 128, buffer_kib: 1, ..Plan::default() });
    let whole = frame(STATION, 20 * MOST as usize, 1);
    let parts: Vec<_> = whole.chunks(20).collect();
    driver.put(0, &parts);
    driver.ring_tx(0);
    assert_eq!(driver.device.step().transmitted, 1);
    assert_eq!(driver.device.transmitted(), [whole]);
}

/// The end of a frame is looked for when the tail has moved, and not at each step.
#[test]
fn a_frame_without_an_end_waits_for_the_tail() {
    let mut driver = start(Plan { descriptors: 16, ..Plan::default() });
    let whole = frame(STATION, 100, 1);
    let last = driver.put(0, &[&whole[..50], &whole[50..]]);
    driver.write(tx(0, 0x18), last);
    assert!(driver.device.step().is_idle());
    assert!(driver.device.step().is_idle());
    driver.ring_tx(0);
    assert_eq!(driver.device.step().transmitted, 1);
    assert_eq!(driver.device.transmitted(), [whole]);

    // Half a ring's frames later, the same tail: no memory of it is left.
    for n in 0..40u8 {
        let whole = frame(STATION, 100, n);
        let first = driver.tx_next[0];
        driver.put(0, &[&whole[..50], &whole[50..]]);
        driver.write(tx(0, 0x18), (first + 1) % 16);
        assert!(driver.device.step().is_idle(), "{n}");
        // What becomes of the first descriptor now is not seen.
        let at = driver.tx_ring(0) + first as usize * 16 + 8;
        let high = driver.arena.word(at).fetch_or(1 << 24, std::sync::atomic::Ordering::Relaxed);
        assert!(driver.device.step().is_idle(), "{n}");
        driver.arena.word(at).store(high, std::sync::atomic::Ordering::Relaxed);
        driver.ring_tx(0);
        assert_eq!(driver.device.step().transmitted, 1, "{n}");
        assert_eq!(driver.device.transmitted(), [whole]);
    }
    assert_eq!(driver.device.violations(), []);
}
