//! The mailbox against the model's physical function, with what that one can do wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

use device::{Deadline, TimeLimit};
use ixgbevf::{Api, Error, Mailbox, Mode, News, Queues, Registers};
use softnic::{DeviceId, Fault, MailboxPhase, SoftDevice, StrictControl, StrictNic};
use std::sync::Arc;
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x42];

/// A function and who watches it; strict, so that a mistake of the mailbox fails the test.
fn function(id: DeviceId, trusted: bool) -> (Mailbox<StrictNic>, StrictControl) {
    let nic = StrictNic::builder().id(id).mac(MAC).grant(2, trusted).build();
    let control = nic.control();
    (Mailbox::new(Registers::new(Arc::new(nic)).unwrap()).patience(Duration::from_millis(20)), control)
}

fn soon() -> Deadline {
    TimeLimit::default().begin()
}

fn open(id: DeviceId) -> (Mailbox<StrictNic>, StrictControl) {
    let (mut mailbox, control) = function(id, true);
    assert_eq!(mailbox.reset(&soon()).unwrap(), Some(MAC));
    assert_eq!(mailbox.negotiate(&soon()).unwrap(), Api::V1_3);
    (mailbox, control)
}

#[test]
fn every_request_is_granted() {
    for id in [DeviceId::Vf82599, DeviceId::VfX540, DeviceId::VfX550] {
        let (mut mailbox, _) = open(id);
        assert_eq!(mailbox.queues(&soon()).unwrap(), Queues { transmit: 2, receive: 2 });
        mailbox.set_address(&soon(), [2, 0, 0, 0, 0, 1]).unwrap();
        mailbox.set_more_addresses(&soon(), &[[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]]).unwrap();
        mailbox.set_more_addresses(&soon(), &[]).unwrap();
        mailbox.set_vlan(&soon(), 42, true).unwrap();
        mailbox.set_vlan(&soon(), 42, false).unwrap();
        mailbox.set_groups(&soon(), &[0x123; 40]).unwrap();
        mailbox.set_groups(&soon(), &[]).unwrap();
        mailbox.set_longest(&soon(), 9018).unwrap();
        assert_eq!(mailbox.set_mode(&soon(), Mode::AllGroups).unwrap(), Mode::AllGroups);
        let everything = mailbox.set_mode(&soon(), Mode::Everything);
        match id {
            DeviceId::Vf82599 => assert!(matches!(everything, Err(Error::Refused { .. })), "{everything:?}"),
            _ => assert_eq!(everything.unwrap(), Mode::Everything),
        }
        assert!(matches!(mailbox.set_longest(&soon(), 67), Err(Error::Refused { .. })));
        mailbox.set_longest(&soon(), 1518).unwrap();
    }
}

#[test]
fn who_is_not_trusted_gets_less() {
    let (mut mailbox, _) = function(DeviceId::VfX540, false);
    assert!(matches!(mailbox.queues(&soon()), Err(Error::Lost { .. })), "before the first reset");
    mailbox.reset(&soon()).unwrap();
    mailbox.negotiate(&soon()).unwrap();
    let error = mailbox.set_address(&soon(), [2, 0, 0, 0, 0, 1]).unwrap_err().to_string();
    assert!(error.contains("refuses to set the address"), "{error}");
    assert_eq!(mailbox.set_mode(&soon(), Mode::Everything).unwrap(), Mode::Groups);
}

#[test]
fn the_link_is_news() {
    let (mut mailbox, control) = open(DeviceId::VfX540);
    while mailbox.news().unwrap() != News::None {}
    control.set_link(false);
    control.step_until_idle(10);
    assert_eq!(mailbox.news().unwrap(), News::Changed);
    assert_eq!(mailbox.news().unwrap(), News::None);
    // Said while a request is under way, it is not lost either.
    control.set_link(true);
    control.step_until_idle(30);
    mailbox.set_longest(&soon(), 1518).unwrap();
    let heard = (0..1000).any(|_| mailbox.news().unwrap() == News::Changed);
    assert!(heard);
}

type Ask = fn(&mut Mailbox<StrictNic>) -> Result<(), Error>;

/// Each exchange, with the number of messages that it takes.
const ASKS: &[(&str, u32, Ask)] = &[
    ("reset", 1, |mailbox| mailbox.reset(&soon()).map(drop)),
    ("negotiate", 1, |mailbox| mailbox.negotiate(&soon()).map(drop)),
    ("queues", 1, |mailbox| mailbox.queues(&soon()).map(drop)),
    ("address", 1, |mailbox| mailbox.set_address(&soon(), MAC)),
    ("addresses", 3, |mailbox| mailbox.set_more_addresses(&soon(), &[MAC; 3])),
    ("VLAN", 1, |mailbox| mailbox.set_vlan(&soon(), 1, true)),
    ("groups", 1, |mailbox| mailbox.set_groups(&soon(), &[1, 2, 3])),
    ("longest", 1, |mailbox| mailbox.set_longest(&soon(), 1518)),
    ("mode", 1, |mailbox| mailbox.set_mode(&soon(), Mode::Groups).map(drop)),
    ("hashing", 2, |mailbox| mailbox.hashing(&soon()).map(drop)),
];

#[test]
fn a_reset_of_the_physical_function_ends_each_exchange() {
    for phase in MailboxPhase::ALL {
        for (what, messages, ask) in ASKS {
            ends_each_exchange(what, *messages, *ask, phase);
        }
    }
}

fn ends_each_exchange(what: &str, messages: u32, ask: Ask, phase: MailboxPhase) {
    for at in 1..=messages {
        let (mut mailbox, control) = open(DeviceId::VfX540);
        control.inject_fault(Fault::PfReset { at, phase });
        let outcome = ask(&mut mailbox);
        // The last answer was given before the reset.
        let is_answered = phase == MailboxPhase::Answered && at == messages;
        assert!(
            matches!(outcome, Err(Error::Lost { .. })) || is_answered && outcome.is_ok(),
            "{what}, message {at} {phase:?}: {outcome:?}"
        );
        assert_eq!(mailbox.news().unwrap(), News::Lost, "{what}");
        assert!(matches!(mailbox.queues(&soon()), Err(Error::Lost { .. })), "{what}");
        control.clear_faults();
        assert_eq!(mailbox.reset(&soon()).unwrap(), Some(MAC), "{what}");
        mailbox.negotiate(&soon()).unwrap();
        ask(&mut mailbox).unwrap();
    }
}

#[test]
fn silence_ends_each_exchange() {
    for (what, messages, ask) in ASKS {
        for after in 0..*messages {
            let (mut mailbox, control) = open(DeviceId::VfX550);
            control.inject_fault(Fault::PfSilent { after });
            let error = ask(&mut mailbox).unwrap_err();
            assert!(matches!(error, Error::Silent { .. }), "{what}, message {after}: {error}");
            assert!(matches!(mailbox.queues(&soon()), Err(Error::Lost { .. })), "{what}");
            control.clear_faults();
            mailbox.reset(&soon()).unwrap();
        }
    }
    let (mut mailbox, control) = open(DeviceId::VfX550);
    control.inject_fault(Fault::PfGone);
    assert_eq!(mailbox.news().unwrap(), News::Lost);
    assert!(matches!(mailbox.reset(&soon()), Err(Error::Away { .. })), "it does not come back");
    control.clear_faults();
    mailbox.reset(&soon()).unwrap();
    control.inject_fault(Fault::Removal { after_reads: 0 });
    assert!(matches!(mailbox.news(), Err(Error::Gone { .. })));
    assert!(matches!(mailbox.reset(&soon()), Err(Error::Gone { .. })));
}

#[test]
fn refusals_leave_the_mailbox_open() {
    for (what, _, ask) in &ASKS[1..] {
        let (mut mailbox, control) = open(DeviceId::VfX550);
        control.inject_fault(Fault::PfRefuses);
        let error = ask(&mut mailbox).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{what}: {error}");
        control.clear_faults();
        mailbox.queues(&soon()).unwrap();
    }
    let (mut mailbox, control) = open(DeviceId::VfX550);
    control.inject_fault(Fault::PfRefuses);
    assert_eq!(mailbox.reset(&soon()).unwrap(), None, "an address of its own choice");
}

#[test]
fn garbage_ends_each_exchange() {
    for (what, _, ask) in ASKS {
        let (mailbox, control) = open(DeviceId::VfX550);
        let mut mailbox = mailbox.patience(Duration::from_millis(4));
        // Some of it looks like leave to go on.
        for _ in 0..8 {
            control.inject_fault(Fault::PfGarbage);
            let error = ask(&mut mailbox).unwrap_err();
            assert!(!matches!(error, Error::Refused { .. } | Error::Gone { .. }), "{what}: {error}");
            control.clear_faults();
            mailbox.reset(&soon()).unwrap();
            mailbox.negotiate(&soon()).unwrap();
        }
        mailbox.reset(&soon()).unwrap();
        mailbox.queues(&soon()).unwrap_err();
        mailbox.negotiate(&soon()).unwrap();
        mailbox.queues(&soon()).unwrap();
    }
}

#[test]
fn the_operation_ends_when_its_time_is_up() {
    let (mailbox, control) = open(DeviceId::VfX540);
    control.inject_fault(Fault::PfSilent { after: 0 });
    let mut mailbox = mailbox.patience(Duration::from_secs(3600));
    let over = TimeLimit { total: Duration::ZERO, cancel: None }.begin();
    assert!(matches!(mailbox.set_vlan(&over, 1, true), Err(Error::Expired { .. })));
}

#[test]
fn a_flood_ends_exchanges_in_time() {
    let nic = SoftDevice::open("flood?id=1515&wire=sink&mac=02:00:00:00:00:42").unwrap();
    let control = nic.control();
    let mut mailbox = Mailbox::new(Registers::new(Arc::new(nic)).unwrap()).patience(Duration::from_millis(5));
    for period in [1, 2, 7] {
        control.clear_faults();
        let open = (0..10).any(|_| mailbox.reset(&soon()).is_ok());
        assert!(open, "the flood is over");
        mailbox.negotiate(&soon()).unwrap();
        control.inject_fault(Fault::PfFlood { period });
        for id in 0..200 {
            // An answer may be lost, and the mailbox with it; nothing else.
            match mailbox.set_vlan(&soon(), id % 60, true) {
                Ok(()) => {}
                Err(Error::Silent { .. } | Error::Nonsense { .. } | Error::Lost { .. }) => drop(mailbox.reset(&soon())),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
