//! PAUSE frames that the device sends, set up as Linux's driver does it (82599 datasheet 3.7.7, 8.2.3.3), and obeys.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, Plan, frame, wait};
use device::Device;
use softnic::{SoftDevice, StrictNic};

const FCTTV: u32 = 0x3200;
const FCRTL: u32 = 0x3220;
const FCRTH: u32 = 0x3260;
const FCRTV: u32 = 0x32A0;
const RXPBSIZE: u32 = 0x3C00;
const FCCFG: u32 = 0x3D00;
const MFLCN: u32 = 0x4294;
const LXONTXC: u32 = 0x3F60;
const LXOFFTXC: u32 = 0x3F68;
const LXONRXCNT: u32 = 0x41A4;
const LXOFFRXCNT: u32 = 0x41A8;
const MPC: u32 = 0x3FA0;

const LINK: u32 = 1 << 3;
const PRIORITIES: u32 = 2 << 3;
/// FCRTH.FCEN, FCRTL.XONE.
const ENABLED: u32 = 1 << 31;
const KIB: u32 = 1024;
const STATION: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// A device whose thresholds are as [`set`] sets them.
fn start(room: u32, fccfg: u32, fcen: u32, xone: u32) -> Driver<StrictNic> {
    let driver = Driver::start(StrictNic::builder().mac(STATION).build(), Plan::default());
    set(&driver, room, fccfg, fcen, xone);
    driver
}

/// A packet buffer of `room` KiB, with 32 for the high threshold and 8 for the low one.
fn set(driver: &Driver<StrictNic>, room: u32, fccfg: u32, fcen: u32, xone: u32) {
    driver.write(RXPBSIZE, room * KIB);
    driver.write(FCCFG, fccfg);
    driver.write(FCRTL, (8 * KIB) | xone);
    driver.write(FCRTH, (32 * KIB) | fcen);
    driver.write(FCTTV, 0xABCD_0000 | 1000);
    driver.write(FCRTV, 700);
}

/// A frame of 1 KiB that is told from others by its last byte.
fn kib(number: usize) -> Vec<u8> {
    let mut frame = frame(BROADCAST, 1024, 0);
    frame[1023] = number as u8;
    frame
}

/// The frame of IEEE 802.3, annex 31B.
fn pause(time: u16) -> Vec<u8> {
    let mut pause = vec![0x01, 0x80, 0xC2, 0, 0, 1];
    pause.extend(STATION);
    pause.extend([0x88, 0x08, 0, 1]);
    pause.extend(time.to_be_bytes());
    pause.resize(60, 0);
    pause
}

/// What is sent while frames come in, after the descriptors are used up, one a step.
fn sent_while(driver: &Driver<StrictNic>, numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.for_each(|number| {
        driver.device.inject(&kib(number));
        driver.device.step();
    });
    driver.device.transmitted()
}

#[test]
fn xoff_goes_out_above_the_high_threshold_and_xon_below_the_low_one() {
    let mut driver = start(64, LINK, ENABLED, ENABLED);
    // 15 find a descriptor.
    assert_eq!(sent_while(&driver, 0..15 + 31), Vec::<Vec<u8>>::new());
    assert_eq!(sent_while(&driver, 46..47), [pause(1000)], "32 KiB wait");
    assert_eq!(sent_while(&driver, 47..78), Vec::<Vec<u8>>::new(), "once is enough");
    // After 1000 - 700 times 512 bits, a step each, and then again.
    for steps in [300 - 31, 300] {
        (1..steps).for_each(|_| _ = driver.device.step());
        assert_eq!(driver.device.transmitted(), Vec::<Vec<u8>>::new());
        driver.device.step();
        assert_eq!(driver.device.transmitted(), [pause(1000)]);
    }
    // What the buffer holds is kept, what it does not is missed.
    sent_while(&driver, 78..79);
    assert_eq!(driver.device.wire_counters().missed, 0);
    sent_while(&driver, 200..203);
    assert_eq!((driver.read(MPC), driver.device.wire_counters().missed), (3, 3));
    // Of 64 that wait 55 find a descriptor, and 9 are left, before the low threshold.
    for number in 0..79 {
        assert_eq!(driver.receive(0).map(|frame| frame.bytes), Some(kib(number)));
        driver.device.step();
        let expected = if number == 55 { vec![pause(0)] } else { vec![] };
        assert_eq!(driver.device.transmitted(), expected, "frame {number}");
    }
    assert_eq!(driver.receive(0), None);
    // Each is a frame of 64 bytes to a group, and of no queue.
    let counters = [LXONTXC, LXOFFTXC, 0x4080, 0x40D4, 0x40D8, 0x40F0, 0x4090, 0x6030, 0x8700];
    assert_eq!(counters.map(|register| driver.read(register)), [1, 3, 4, 4, 4, 4, 4 * 64, 0, 0]);
    assert_eq!((driver.read(LXONTXC), driver.read(LXOFFTXC)), (0, 0), "they clear on read");
    assert_eq!(driver.device.wire_counters().sent, 4);
    // A reset forgets what was said.
    assert_eq!(sent_while(&driver, 0..15 + 40), [pause(1000)]);
    driver.reset();
    driver.device.step();
    driver.configure_rx();
    driver.start_rx_queue(0);
    set(&driver, 64, LINK, ENABLED, ENABLED);
    driver.enable_receiver();
    driver.wait_link();
    assert_eq!(sent_while(&driver, 0..15 + 31), Vec::<Vec<u8>>::new());
    assert_eq!(sent_while(&driver, 46..47), [pause(1000)]);
}

#[test]
fn pause_frames_are_sent_if_all_three_enable_bits_say_so() {
    for (fccfg, fcen, xone, expected) in [
        (0, ENABLED, ENABLED, vec![]),
        (PRIORITIES, ENABLED, ENABLED, vec![]),
        (LINK, 0, ENABLED, vec![]),
        (LINK, ENABLED, 0, vec![pause(1000)]),
        (LINK, ENABLED, ENABLED, vec![pause(1000), pause(0)]),
    ] {
        let mut driver = start(64, fccfg, fcen, xone);
        let mut sent = sent_while(&driver, 0..15 + 40);
        let mut received = 0;
        while driver.receive(0).is_some() {
            received += 1;
            driver.device.step();
        }
        sent.extend(driver.device.transmitted());
        assert_eq!((received, sent), (55, expected));
    }
}

/// Sends a frame if there is room on the ring, onto which `count` were put before; returns whether there is.
fn send_if_room<D: Device>(driver: &mut Driver<D>, count: usize, frame: &[u8]) -> bool {
    let places = driver.plan.descriptors;
    let room = count < places as usize - 1 || driver.tx_done(0, (driver.tx_next[0] + 1) % places);
    if room {
        driver.send(0, frame);
    }
    room
}

/// 1000 frames to a receiver that takes one in three rounds, while the sender could send one each round. Returns how many come, how
/// many are missed, and how many XOFF and XON are sent.
fn carried(fccfg: u32) -> (usize, u32, [u32; 2]) {
    const FRAMES: usize = 1000;
    let mut to = start(128, fccfg, ENABLED, ENABLED);
    // As Linux has it.
    to.write(FCTTV, 0xFFFF_FFFF);
    to.write(FCRTV, 0x7FFF);
    let mut from = Driver::start(StrictNic::builder().build(), Plan { descriptors: 64, ..Plan::default() });
    from.write(MFLCN, 0xA);
    let (mut sent, mut received) = (0, Vec::new());
    let mut last = 0;
    for round in 0.. {
        if sent < FRAMES && send_if_room(&mut from, sent, &kib(sent)) {
            sent += 1;
        }
        from.device.step();
        from.device.transmitted().iter().for_each(|frame| to.device.inject(frame));
        to.device.step();
        to.device.transmitted().iter().for_each(|frame| from.device.inject(frame));
        if round % 3 == 0
            && let Some(frame) = to.receive(0)
        {
            received.push(frame.bytes);
            last = round;
        }
        if round > last + 1000 {
            break;
        }
    }
    assert!(sent == FRAMES && from.device.transmit_idle());
    assert!(fccfg == 0 || received.iter().enumerate().all(|(number, frame)| *frame == kib(number)), "in order");
    let said = [LXOFFTXC, LXONTXC].map(|register| to.read(register));
    assert_eq!([LXOFFRXCNT, LXONRXCNT].map(|register| from.read(register)), said);
    (received.len(), to.read(MPC), said)
}

#[test]
fn a_peer_that_obeys_loses_nothing() {
    let (received, missed, [xoff, xon]) = carried(LINK);
    assert_eq!((received, missed), (1000, 0));
    assert!(xoff > 1 && xoff == xon, "{xoff} XOFF, {xon} XON");
    let (received, missed, said) = carried(0);
    assert_eq!(said, [0, 0]);
    assert!(missed > 100 && received + missed as usize == 1000, "{received} received, {missed} missed");
}

/// The same on the engine's thread, over a cable that loses what does not fit.
#[test]
fn peers_on_a_cable_that_loses_lose_nothing() {
    const FRAMES: usize = 2000;
    const PROBE: usize = 100;
    let from = SoftDevice::open("pause-from").unwrap();
    let to = SoftDevice::open("pause-to?wire=peer:pause-from&mode=drop").unwrap();
    // A whole ring fits into the packet buffer beyond the high threshold.
    let mut from = Driver::start(from, Plan { descriptors: 128, ..Plan::default() });
    let mut to = Driver::start(to, Plan::default());
    from.write(MFLCN, 0xA);
    to.write(FCCFG, LINK);
    to.write(FCRTL, (64 * KIB) | ENABLED);
    to.write(FCRTH, (128 * KIB) | ENABLED);
    to.write(FCTTV, 0xFFFF_FFFF);
    to.write(FCRTV, 0x7FFF);
    // A receiver is ready once the engine has seen it: until then frames are lost, as on a real cable.
    let mut probes = 0;
    wait("a ready receiver", || {
        probes += usize::from(send_if_room(&mut from, probes, &frame(BROADCAST, PROBE, 0)));
        to.receive(0)
    });
    // Nobody takes a frame until the sender has been told to stop. Its registers are not looked at after that: to the model each
    // look is a moment of the pause.
    let mut sent = 0;
    wait("XOFF", || {
        while send_if_room(&mut from, probes + sent, &kib(sent)) {
            sent += 1;
            assert!(sent < FRAMES, "nobody says stop");
        }
        (from.read(LXOFFRXCNT) != 0).then_some(())
    });
    let mut received = Vec::new();
    wait("all frames", || {
        while sent < FRAMES && send_if_room(&mut from, probes + sent, &kib(sent)) {
            sent += 1;
        }
        while let Some(frame) = to.receive(0) {
            received.push(frame.bytes);
        }
        // The last probes may still be under way.
        received.retain(|frame| frame.len() != PROBE);
        (received.len() == FRAMES).then_some(())
    });
    assert!(received.iter().enumerate().all(|(number, frame)| *frame == kib(number)), "in order");
    assert_eq!((to.read(MPC), to.device.wire_counters().missed), (0, 0));
    assert!(to.read(LXOFFTXC) > 0 && to.read(LXONTXC) > 0);
}
