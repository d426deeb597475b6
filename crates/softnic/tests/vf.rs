//! Virtual functions: the window of registers, the mailbox and who answers it, and frames as a function sees them.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BROADCAST, Driver, ENABLE, Plan, frame, rx};
use device::{Bar as _, Device as _};
use softnic::{DeviceId, Fault, MailboxApi, MailboxPhase, OnViolation, StrictNic, Violation};

const VFCTRL: u32 = 0x000;
const VFLINKS: u32 = 0x010;
const VFMBMEM: u32 = 0x200;
const VFMAILBOX: u32 = 0x2FC;
const REQ: u32 = 1;
const ACK: u32 = 2;
const VFU: u32 = 4;
const PFSTS: u32 = 0x10;
const PFACK: u32 = 0x20;
const RSTI: u32 = 0x40;
const RSTD: u32 = 0x80;
/// First words of answers.
const GRANTED: u32 = 0xA000_0000;
const REFUSED: u32 = 0x6000_0000;
/// How often the mailbox is looked at before the physical function counts as silent.
const POLLS: u32 = 200;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x42];
const MAC_WORDS: [u32; 2] = [0x0000_0002, 0x4200];
const OTHER_WORDS: [u32; 2] = [0x0000_0002, 0x4300];

/// A function in the hands of a driver of a page.
struct Function {
    driver: Driver<StrictNic>,
    /// Bits of VFMAILBOX that a read has cleared and nobody has used.
    seen: u32,
}

impl Function {
    fn new(nic: StrictNic) -> Self {
        let mut function = Self { driver: Driver::stopped(nic, Plan { queues: 4, ..Plan::default() }), seen: 0 };
        function.driver.poll("VFLINKS.UP", VFLINKS, 1 << 30, 1 << 30);
        assert!(function.comes(PFSTS), "the link has come up, says the physical function");
        function
    }

    /// Reset, and told its address.
    fn reset(nic: StrictNic) -> Self {
        let mut function = Self::new(nic);
        function.write(VFCTRL, 1 << 26);
        assert!(function.comes(RSTD), "VFCTRL.RST is over");
        assert_eq!(function.ask(&[1]).unwrap()[..4], [0x8000_0001, MAC_WORDS[0], MAC_WORDS[1], 0]);
        function
    }

    /// Reset, and speaking a version of the API.
    fn speaking(nic: StrictNic, api: u32) -> Self {
        let mut function = Self::reset(nic);
        assert!(function.granted(&[8, api]), "API {api}");
        function
    }

    fn read(&self, register: u32) -> u32 {
        self.driver.read(register)
    }

    fn write(&self, register: u32, value: u32) {
        self.driver.write(register, value);
    }

    fn comes(&mut self, bit: u32) -> bool {
        let came = (0..POLLS).any(|_| {
            self.seen |= self.read(VFMAILBOX);
            self.seen & bit != 0
        });
        self.seen &= !bit;
        came
    }

    /// Sends words; whether they were taken.
    fn send(&mut self, words: &[u32]) -> bool {
        self.write(VFMAILBOX, VFU);
        assert_ne!(self.read(VFMAILBOX) & VFU, 0);
        self.seen = 0;
        for (word, at) in words.iter().zip((VFMBMEM..).step_by(4)) {
            self.write(at, *word);
        }
        self.write(VFMAILBOX, REQ);
        self.comes(PFACK)
    }

    fn memory(&self) -> [u32; 16] {
        std::array::from_fn(|word| self.read(VFMBMEM + 4 * word as u32))
    }

    /// Sends words and waits for the answer.
    fn ask(&mut self, words: &[u32]) -> Option<[u32; 16]> {
        if !self.send(words) || !self.comes(PFSTS) {
            return None;
        }
        self.write(VFMAILBOX, VFU);
        let answer = self.memory();
        self.write(VFMAILBOX, ACK);
        Some(answer)
    }

    fn granted(&mut self, words: &[u32]) -> bool {
        let [first, ..] = self.ask(words).unwrap();
        assert_eq!(first & 0x1FFF_FFFF, words[0], "an answer to what was asked");
        match first & 0xE000_0000 {
            GRANTED => true,
            REFUSED => false,
            _ => panic!("{first:#x}"),
        }
    }

    fn start_tx(&self) {
        let ring = self.driver.arena.iova(self.driver.tx_ring(0));
        for (register, value) in
            [(0x2000, ring as u32), (0x2004, (ring >> 32) as u32), (0x2008, 16 * 16), (0x2028, ENABLE)]
        {
            self.write(register, value);
        }
        self.driver.poll("VFTXDCTL.EN", 0x2028, ENABLE, ENABLE);
    }

    fn send_frame(&mut self, bytes: &[u8]) {
        self.driver.put(0, &[bytes]);
        self.write(0x2018, self.driver.tx_next[0]);
        self.driver.device.step_until_idle(10);
    }

    /// The queue that a frame comes from, if it comes.
    fn receive(&mut self, bytes: &[u8]) -> Option<u32> {
        self.driver.device.inject(bytes);
        self.driver.device.step_until_idle(10);
        (0..4).find(|queue| self.read(rx(*queue, 0x28)) & ENABLE != 0 && self.driver.receive(*queue).is_some())
    }
}

fn nic(id: DeviceId) -> StrictNic {
    StrictNic::builder().id(id).mac(MAC).build()
}

fn untrusted(id: DeviceId) -> StrictNic {
    StrictNic::builder().id(id).mac(MAC).grant(2, false).build()
}

#[test]
fn strict_nothing_is_granted_before_the_reset() {
    let mut function = Function::new(nic(DeviceId::Vf82599));
    assert_eq!(function.driver.device.ids().device, 0x10ED);
    assert_eq!(function.driver.device.bar().size(), 16 << 10);
    assert_eq!(function.ask(&[8, 0]).unwrap()[0], 0x4000_0008, "refused, and no leave to send");
    function.write(VFCTRL, 1 << 26);
    assert!(function.comes(RSTD));
    assert_eq!(function.read(VFMAILBOX) & RSTD, 0, "cleared by reading");
    assert_eq!(function.ask(&[9]).unwrap()[0], 0x4000_0009);
    assert_eq!(function.ask(&[1]).unwrap()[..3], [0x8000_0001, MAC_WORDS[0], MAC_WORDS[1]]);
    assert!(function.granted(&[8, 0]));
    assert_eq!(function.read(VFLINKS) >> 28, 7, "up, 10 Gbit/s");
    function.driver.device.enable_msix(3).unwrap();
    assert!(function.driver.device.enable_msix(4).unwrap_err().to_string().contains("has 3"));
}

#[test]
fn strict_each_version_of_the_api_has_its_requests() {
    // Versions as numbered, and the first that has a request; 1 is 2.0, which nobody speaks.
    let mut function = Function::reset(nic(DeviceId::VfX540));
    for api in [1, 6, 9, u32::MAX] {
        assert!(!function.granted(&[8, api]), "API {api}");
    }
    for (request, first) in [
        (&[0x02, OTHER_WORDS[0], OTHER_WORDS[1]][..], 0),
        (&[0x05, 1518], 0),
        (&[0x1_0004, 7], 0),
        (&[0x1_0003, 0x123], 0),
        (&[0x1_0006, OTHER_WORDS[0], OTHER_WORDS[1]], 0),
        (&[0x09], 2),
        (&[0x0A], 3),
        (&[0x0B], 3),
        (&[0x0C, 2], 3),
        (&[0x0C, 3], 4),
        (&[0x10], 3),
        // IPsec, and what is not of this world.
        (&[0x0D], u32::MAX),
        (&[0x0E], u32::MAX),
        (&[0x11], u32::MAX),
        (&[0x12, 3], 8),
        (&[0x77], u32::MAX),
        (&[0x02, 1, 0], u32::MAX),
        (&[0x02, 0, 0], u32::MAX),
        (&[0x05, 67], u32::MAX),
        (&[0x05, 9729], u32::MAX),
    ] {
        for api in [0, 2, 3, 4, 5, 7, 8] {
            assert!(function.granted(&[8, api]));
            assert_eq!(function.granted(request), api >= first, "{request:x?} under API {api}");
        }
    }
    assert_eq!(function.ask(&[9]).unwrap()[1..5], [4, 4, 0, 0], "queues each way, VLAN, default queue");
    assert_eq!(function.ask(&[0x12, 3]).unwrap()[1], 1, "IPsec, and not VMware's mailbox");
    assert!(function.granted(&[0x0C, 0]));
    assert!(function.send(&[0x8000_0009]) && !function.comes(PFSTS), "an answer is no request");
    let mut function = Function::speaking(nic(DeviceId::Vf82599), 8);
    assert!(!function.granted(&[0x0C, 3]), "an 82599 gives no function everything");
}

#[test]
fn strict_the_newest_version_can_be_chosen() {
    for (newest, number) in MailboxApi::ALL.into_iter().zip([0, 2, 3, 4, 5, 6, 7, 8]) {
        let mut function = Function::reset(StrictNic::builder().id(DeviceId::Vf82599).mac(MAC).api(newest).build());
        let granted: Vec<_> = (0..10).filter(|api| function.granted(&[8, *api])).collect();
        let wanted: Vec<_> =
            [0, 2, 3, 4, 5, 6, 7, 8].into_iter().filter(|api| *api <= number && (*api != 6 || number == 6)).collect();
        assert_eq!(granted, wanted, "{newest:?}");
        assert!(function.granted(&[8, number]));
        // Long frames are for all who speak 1.1, or for nobody.
        assert!(function.granted(&[5, 1518]), "{newest:?}");
        assert_eq!(function.granted(&[5, 1519]), number > 0, "{newest:?}");
        assert!(function.granted(&[8, 0]));
        assert_eq!(function.granted(&[5, 1518]), number == 0, "{newest:?}");
    }
}

#[test]
fn strict_who_is_not_trusted_gets_less() {
    let mut function = Function::speaking(untrusted(DeviceId::VfX540), 8);
    assert_eq!(function.ask(&[9]).unwrap()[1], 2);
    assert!(function.granted(&[0x02, MAC_WORDS[0], MAC_WORDS[1]]), "the address it was given");
    assert!(!function.granted(&[0x02, OTHER_WORDS[0], OTHER_WORDS[1]]));
    assert!(!function.granted(&[0x1_0006, OTHER_WORDS[0], OTHER_WORDS[1]]));
    assert!(function.granted(&[0x06]), "nothing to remove");
    assert!(!function.granted(&[0x0A]) && !function.granted(&[0x0B]));
    assert_eq!(function.ask(&[0x0C, 3]).unwrap()[..2], [0xA000_000C, 1], "groups it asks for, no more");
    function.start_tx();
    let mut mine = frame(BROADCAST, 60, 1);
    function.send_frame(&mine);
    assert!(function.driver.device.transmitted().is_empty(), "from an address that is not its own");
    mine[6..12].copy_from_slice(&MAC);
    function.send_frame(&mine);
    // In as many parts as there can be.
    function.driver.put(0, &[&mine[..7], &mine[7..11], &mine[11..]]);
    function.write(0x2018, function.driver.tx_next[0]);
    function.driver.device.step_until_idle(10);
    assert_eq!(function.driver.device.transmitted(), [mine.clone(), mine]);
    assert_eq!((function.driver.device.wire_counters().discarded, function.read(0x201C)), (1, 2));
}

#[test]
fn strict_frames_pass_by_what_was_asked_for() {
    let mut function = Function::speaking(nic(DeviceId::Vf82599), 2);
    function.start_tx();
    function.driver.start_rx_queue(0);
    let mine = frame(MAC, 100, 1);
    assert_eq!(function.receive(&mine), None, "an 82599's function says first how long frames may be");
    assert!(function.granted(&[0x05, 1518]));
    assert_eq!(function.receive(&mine), Some(0));
    assert_eq!(function.receive(&frame(BROADCAST, 60, 2)), Some(0));
    assert_eq!(function.receive(&frame([2, 0, 0, 0, 0, 0x43], 60, 3)), None);
    assert!(function.granted(&[0x02, OTHER_WORDS[0], OTHER_WORDS[1]]));
    assert_eq!(function.receive(&frame([2, 0, 0, 0, 0, 0x43], 60, 3)), Some(0));
    assert_eq!(function.receive(&mine), None, "no more");
    assert!(function.granted(&[0x1_0006, MAC_WORDS[0], MAC_WORDS[1]]));
    assert_eq!(function.receive(&mine), Some(0), "one more");
    assert!(function.granted(&[0x06]));
    assert_eq!(function.receive(&mine), None, "none");
    // Bits 47:36 of 01:00:5E:00:12:34 in the card's order of bytes.
    let group = frame([1, 0, 0x5E, 0, 0x12, 0x34], 60, 4);
    assert_eq!(function.receive(&group), None);
    assert!(function.granted(&[0x2_0003, 0x341_0007]));
    assert_eq!(function.receive(&group), Some(0));
    let mut tagged = frame([2, 0, 0, 0, 0, 0x43], 64, 5);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
    assert_eq!(function.receive(&tagged), None);
    assert!(function.granted(&[0x1_0004, 42]));
    assert_eq!(function.receive(&tagged), Some(0));
    assert!(function.granted(&[4, 42]));
    assert_eq!(function.receive(&tagged), None);
    function.send_frame(&mine);
    assert_eq!(function.driver.device.transmitted(), [mine]);
    // Two of 64 vlans are taken: 0, and one of these.
    assert!((1..64).all(|id| function.granted(&[0x1_0004, id])));
    assert!(!function.granted(&[0x1_0004, 64]), "the filter is full");
}

/// The table of groups is everybody's, so a group stays in it until a function resets, for which it is set up anew.
#[test]
fn strict_groups_go_with_a_reset() {
    let mut function = Function::speaking(untrusted(DeviceId::VfX540), 8);
    assert!(function.granted(&[0x0C, 1]));
    function.driver.start_rx_queue(0);
    let group = frame([1, 0, 0x5E, 0, 0x12, 0x34], 60, 1);
    assert_eq!(function.receive(&group), None);
    assert!(function.granted(&[0x1_0003, 0x341]));
    assert_eq!(function.receive(&group), Some(0));
    assert!(function.granted(&[0x1_0003, 7]));
    assert_eq!(function.receive(&group), Some(0));
    assert_eq!(function.ask(&[1]).unwrap()[0], 0x8000_0001);
    assert!(function.granted(&[8, 8]) && function.granted(&[0x0C, 1]));
    assert_eq!(function.receive(&group), None);
    assert_eq!(function.receive(&frame(MAC, 60, 2)), Some(0));
    assert!(function.granted(&[0x1_0003, 0x341]));
    assert_eq!(function.receive(&group), Some(0));
}

#[test]
fn strict_counters_neither_clear_nor_go_with_a_reset() {
    let mut function = Function::speaking(nic(DeviceId::VfX540), 8);
    function.start_tx();
    function.driver.start_rx_queue(0);
    for _ in 0..3 {
        function.receive(&frame(MAC, 100, 1)).unwrap();
    }
    assert!(function.granted(&[0x0C, 2]));
    function.receive(&frame([1, 0, 0, 0, 0, 1], 60, 2)).unwrap();
    function.send_frame(&frame(BROADCAST, 200, 3));
    let counters = [0x101C, 0x1020, 0x1024, 0x1034, 0x201C, 0x2020, 0x2024];
    let wanted = [4, 3 * 104 + 64, 0, 1, 1, 204, 0];
    for _ in 0..2 {
        assert_eq!(counters.map(|at| function.read(at)), wanted);
    }
    function.write(VFCTRL, 1 << 26);
    assert!(function.comes(RSTD));
    assert_eq!(counters.map(|at| function.read(at)), wanted);
    assert_eq!(function.read(rx(0, 0x28)) & ENABLE, 0, "but rings are disabled");
    function.driver.device.reset().unwrap();
    assert_eq!(counters.map(|at| function.read(at)), wanted);
}

#[test]
fn strict_flows_spread_as_the_table_says() {
    for (id, queues) in [(DeviceId::Vf82599, 2), (DeviceId::VfX550, 4)] {
        let mut function = Function::speaking(nic(id), 8);
        assert!(function.granted(&[5, 1518]));
        (0..queues).for_each(|queue| function.driver.start_rx_queue(queue));
        let table = function.ask(&[0x0A]).unwrap();
        let key = function.ask(&[0x0B]).unwrap();
        assert!(key[1..11].iter().any(|word| *word != 0));
        // RQPL: 2 queues on the 82599. An X550's function has a table of its own: all in queue 3.
        function.write(0x300, 1 << 29);
        if id == DeviceId::VfX550 {
            (0..16).for_each(|word| function.write(0x3200 + 4 * word, 0x0303_0303));
            (0..10).for_each(|word| function.write(0x3100 + 4 * word, key[1 + word as usize]));
            assert_eq!((function.read(0x323C), function.read(0x3000)), (0x0303_0303, 0));
            function.write(0x3000, 1 | 1 << 17);
        }
        let mut seen = [0; 4];
        for host in 0..64 {
            let mut packet = frame(MAC, 60, 0);
            packet[12..14].copy_from_slice(&[8, 0]);
            packet[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 99, 0, 0, 10, 0, 0, host, 10, 0, 0, 1]);
            seen[function.receive(&packet).unwrap() as usize] += 1;
        }
        match id {
            DeviceId::VfX550 => assert_eq!(seen, [0, 0, 0, 64]),
            _ => assert!(seen[0] > 8 && seen[1] > 8 && seen[2..] == [0, 0], "{seen:?} by {table:x?}"),
        }
    }
}

#[test]
fn strict_the_mailbox_and_queues_have_interrupts() {
    let mut function = Function::new(nic(DeviceId::VfX540));
    let fds = function.driver.device.enable_msix(3).unwrap();
    let fired = |vector: usize| {
        let mut count = [0; 8];
        rustix::io::read(&fds[vector], &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    function.write(VFCTRL, 1 << 26);
    assert!(function.comes(RSTD));
    function.write(0x140, 0x82);
    function.write(0x120, 0x8180);
    function.write(0x108, 7);
    assert_eq!(function.read(0x108), 7);
    assert!(function.ask(&[1]).is_some());
    assert!(fired(2) > 0, "the mailbox has vector 2");
    assert_eq!((fired(0), fired(1)), (0, 0));
    function.driver.start_rx_queue(0);
    function.write(0x114, 1);
    function.receive(&frame(MAC, 60, 0)).unwrap();
    assert_eq!((fired(0), function.read(0x108)), (1, 6), "and queue 0 vector 0, which masks itself");
    function.driver.device.set_link(false);
    function.driver.device.step_until_idle(10);
    assert!(fired(2) > 0, "the physical function says that the link has changed");
    assert_eq!((function.read(VFLINKS), function.memory()[0]), (0, 0x2000_0100));
}

#[test]
fn strict_the_physical_function_fails() {
    let mut function = Function::speaking(nic(DeviceId::VfX540), 8);
    let control = function.driver.device.control();
    control.inject_fault(Fault::PfRefuses);
    assert!(!function.granted(&[0x05, 1518]));
    control.clear_faults();
    control.inject_fault(Fault::PfSilent { after: 1 });
    assert!(function.granted(&[0x05, 1518]));
    assert!(function.ask(&[0x05, 1518]).is_none());
    control.clear_faults();
    control.inject_fault(Fault::PfGarbage);
    let answers = [0; 8].map(|_| function.ask(&[0x05, 1518]).unwrap());
    assert!(answers.windows(2).all(|pair| pair[0] != pair[1]), "{answers:x?}");
    control.clear_faults();
    control.inject_fault(Fault::PfFlood { period: 1 });
    for _ in 0..3 {
        function.driver.device.step();
        assert!(function.comes(PFSTS));
        assert_eq!(function.memory()[0], 0x2000_0100, "a control message");
    }
    control.clear_faults();
    assert!(function.granted(&[0x05, 1518]));
}

#[test]
fn strict_the_physical_function_resets_in_mid_exchange() {
    let mut function = Function::speaking(nic(DeviceId::VfX540), 8);
    function.start_tx();
    function.driver.start_rx_queue(0);
    assert_eq!(function.receive(&frame(MAC, 60, 1)), Some(0));
    let control = function.driver.device.control();
    control.inject_fault(Fault::PfReset { at: 2, phase: MailboxPhase::Taken });
    assert!(function.granted(&[0x05, 1518]));
    assert!(function.send(&[0x05, 1518]), "taken");
    assert!(function.comes(RSTI));
    assert_eq!((function.memory()[0], function.read(VFLINKS)), (0x100, 0), "a control message without leave to send");
    assert!(function.comes(RSTD));
    assert_eq!(function.read(VFMAILBOX) & RSTI, 0);
    assert_eq!(function.receive(&frame(MAC, 60, 2)), None);
    function.send_frame(&frame(BROADCAST, 60, 3));
    assert!(control.transmitted().is_empty(), "nothing goes out");
    // Who reads without leave is told so.
    function.seen = 0;
    function.write(VFMAILBOX, VFU);
    function.write(VFMAILBOX, ACK);
    assert!(function.comes(PFSTS));
    assert_eq!(function.memory()[0], 0x4000_0000);
    assert_eq!(function.ask(&[0x05, 1518]).unwrap()[0], 0x4000_0005);
    // It goes away for good, and comes back.
    control.inject_fault(Fault::PfGone);
    assert!(function.ask(&[1]).is_none());
    assert_ne!(function.read(VFMAILBOX) & RSTI, 0);
    control.clear_faults();
    assert!(function.comes(RSTD));
    function.write(VFCTRL, 1 << 26);
    assert!(function.comes(RSTD));
    assert_eq!(function.ask(&[1]).unwrap()[0], 0x8000_0001);
    function.driver.rx_next[0] = 0;
    function.driver.start_rx_queue(0);
    assert_eq!(function.receive(&frame(MAC, 60, 2)), Some(0));
}

/// What of an exchange is seen, up to a reset in each of its phases.
#[test]
fn strict_a_reset_has_phases() {
    let ask = [0x05, 1518];
    let said = [0x100, 1518];
    for (phase, acknowledged, memory) in [
        (MailboxPhase::Sent, false, said),
        (MailboxPhase::Taken, true, said),
        (MailboxPhase::Answered, true, [GRANTED | 0x05, 1518]),
    ] {
        let mut function = Function::speaking(nic(DeviceId::VfX540), 8);
        let control = function.driver.device.control();
        control.inject_fault(Fault::PfReset { at: 2, phase });
        assert!(function.granted(&ask));
        function.write(VFMAILBOX, VFU);
        function.seen = 0;
        ask.iter().zip([VFMBMEM, VFMBMEM + 4]).for_each(|(word, at)| function.write(at, *word));
        function.write(VFMAILBOX, REQ);
        assert!(function.comes(RSTI), "{phase:?}");
        assert_ne!(function.seen & PFSTS, 0, "{phase:?}");
        assert_eq!(function.seen & PFACK != 0, acknowledged, "{phase:?}");
        assert_eq!(function.memory()[..2], memory, "{phase:?}");
        assert!(function.comes(RSTD), "{phase:?}");
        // Once, and no more.
        function.write(VFCTRL, 1 << 26);
        assert!(function.comes(RSTD), "{phase:?}");
        assert_eq!(function.ask(&[1]).unwrap()[0], 0x8000_0001);
        assert!(function.granted(&ask) && function.granted(&ask) && function.granted(&ask));
    }
}

#[test]
fn strict_who_has_no_address_chooses_one() {
    let mut function = Function::new(StrictNic::builder().id(DeviceId::VfX540).mac([0; 6]).grant(2, false).build());
    function.write(VFCTRL, 1 << 26);
    assert!(function.comes(RSTD));
    assert_eq!(function.ask(&[1]).unwrap()[..3], [0x4000_0001, 0, 0]);
    assert!(function.granted(&[0x02, OTHER_WORDS[0], OTHER_WORDS[1]]), "and is not held to what it never got");
    function.driver.start_rx_queue(0);
    assert_eq!(function.receive(&frame([2, 0, 0, 0, 0, 0x43], 60, 1)), Some(0));
}

#[test]
fn strict_mistakes_with_the_window_are_violations() {
    let builder = StrictNic::builder().id(DeviceId::Vf82599).mac(MAC).grant(1, true);
    let function = Function::new(builder.on_violation(OnViolation::Record).build());
    for (register, value) in
        [(VFMBMEM, 1), (VFMAILBOX, REQ), (rx(1, 0x28), ENABLE), (0x3000, 1), (VFLINKS, 0), (0x10A0, 0)]
    {
        function.write(register, value);
        let found = function.driver.device.violations();
        assert_eq!(found.len(), 1, "{register:#x}: {found:?}");
    }
    function.write(rx(1, 0x28), 0);
    assert_eq!(function.driver.device.violations(), []);
    assert_eq!(function.read(0x5400), 0);
    assert_eq!(function.driver.device.violations(), [Violation::UnknownRegister { offset: 0x5400, write: false }]);
}
