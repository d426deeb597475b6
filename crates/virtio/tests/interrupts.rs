//! Queues that are waited for: a frame ends a wait, in every layout, and so do a device that comes back and a port that is
//! closed; a queue that is polled is not interrupted.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{PATIENCE, Rig, config, frame, layouts, wait};
use device::{EventFd, Interrupts};
use ethdev::{Port as _, RxQueue as _};
use std::time::Duration;
use virtio::Config;
use virtio::fake::FakeConfig;

fn with_interrupts() -> Config {
    let mut config = config();
    config.port.interrupts = Interrupts::Required;
    config
}

fn event(rig: &Rig) -> EventFd {
    rig.rx.eventfd().unwrap().try_clone_to_owned().unwrap().into()
}

fn signalled(rig: &Rig) -> bool {
    event(rig).wait(Duration::ZERO).unwrap()
}

#[test]
fn a_frame_ends_a_wait_and_polling_is_not_interrupted() {
    for features in layouts() {
        let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &with_interrupts());
        assert!(event(&rig).clear(), "{features}: a session has begun");
        // Far enough for every index to wrap.
        for n in 0..70_000_usize {
            let waits = n % 1000 == 999;
            if waits {
                assert!(rig.rx.arm(), "{features}: frame {n}");
                assert!(!signalled(&rig), "{features}: before frame {n}");
            }
            assert!(rig.device.deliver(0, &frame(n, 60)), "{features}");
            if waits {
                assert!(signalled(&rig), "{features}: frame {n}");
                assert!(rig.rx.wait(PATIENCE).unwrap() && !rig.rx.arm(), "{features}: a frame is there");
            }
            assert_eq!(rig.recv(), 1, "{features}: frame {n}");
            rig.batch.clear();
            if waits {
                // A burst without a frame shows the device what it has not seen yet.
                assert_eq!(rig.recv(), 0);
                assert!(!signalled(&rig), "{features}: cleared by the last wait");
            } else if n % 16 == 0 {
                assert!(!signalled(&rig), "{features}: frame {n} was polled for");
            }
        }
        assert!(!rig.rx.wait(Duration::ZERO).unwrap(), "{features}: nothing came");
        rig.close();
    }
}

#[test]
fn a_queue_that_goes_to_sleep_leaves_the_device_all_its_buffers() {
    for features in layouts() {
        let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &with_interrupts());
        let fill = |rig: &mut Rig| {
            let delivered = (0..).take_while(|n| rig.device.deliver(0, &frame(*n, 60))).count();
            while rig.recv() > 0 {
                rig.batch.clear();
            }
            delivered
        };
        rig.recv();
        let all = fill(&mut rig);
        // Fewer than are made available at a time.
        for few in [1, 5, 15] {
            for n in 0..few {
                assert!(rig.device.deliver(0, &frame(n, 60)));
                assert_eq!(rig.recv(), 1);
                rig.batch.clear();
            }
            assert!(rig.rx.arm(), "{features}");
            assert_eq!(fill(&mut rig), all, "{features}: after {few} frames");
        }
        rig.close();
    }
}

#[test]
fn a_wait_in_one_thread_is_ended_by_a_frame_from_another() {
    for features in layouts() {
        let mut rig = Rig::with(FakeConfig { features, ..FakeConfig::default() }, &with_interrupts());
        let device = rig.device.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..200 {
                    wait("room for a frame", || device.deliver(0, &frame(n, 60)));
                }
            });
            let mut received = 0;
            while received < 200 {
                assert!(rig.rx.wait(PATIENCE).unwrap(), "{features}: {received} frames");
                received += rig.recv();
                rig.batch.clear();
            }
        });
        rig.close();
    }
}

#[test]
fn a_device_that_comes_back_and_a_port_that_is_closed_end_a_wait() {
    let mut rig = Rig::with(FakeConfig::default(), &with_interrupts());
    let (device, resets) = (rig.device.clone(), rig.device.resets());
    rig.device.lose("as the test wants it");
    wait("a reset", || device.resets() > resets && device.is_ready());
    std::thread::scope(|scope| {
        let device = rig.device.clone();
        scope.spawn(move || wait("buffers of the new session", || device.deliver(0, &[1; 60])));
        assert!(rig.rx.wait(PATIENCE).unwrap(), "the queue moved over by itself");
    });
    assert_eq!(rig.recv(), 1);
    let Rig { port, mut rx, .. } = rig;
    std::thread::scope(|scope| {
        scope.spawn(move || port.close().unwrap());
        assert!(!rx.wait(PATIENCE).unwrap(), "the port was closed");
    });
    assert!(!rx.arm());
}

#[test]
fn without_interrupts_there_is_nothing_to_wait_for() {
    let mut rig = Rig::with(FakeConfig::default(), &config());
    let message = rig.rx.wait(PATIENCE).unwrap_err().to_string();
    assert!(message.starts_with("the port was opened without interrupts"), "{message}");
    assert!(rig.rx.eventfd().is_none() && !rig.rx.arm());
    rig.close();
}
