//! Pings on a port in process, whose wire plays hosts that answer well, twice, late, wrongly or not at all.

use super::*;
use ethdev::in_process::{self, InProcess, InProcessRx, InProcessTx, Wire};
use ethdev::{Opened, PortConfig};
use mempool::PoolConfig;
use station::Station;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// What the host does with the reply to a ping, by the ping's number from 0 on.
type Play = Box<dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>>>;

struct Bench {
    pinger: Pinger<InProcessRx, InProcessTx>,
    peer: Station,
    wire: Wire,
    play: Play,
    pings: usize,
    /// What else the host sends at the start.
    greetings: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    _opened: Opened<InProcess>,
}

impl Function for Bench {
    fn poll(&mut self, clock: &mut Clock) -> bool {
        for frame in self.greetings.drain(..) {
            assert!(self.wire.inject(&frame), "there is room");
        }
        let moved = self.pinger.poll(clock);
        while let Some(frame) = self.wire.collect() {
            let mut answers = Vec::new();
            self.peer.receive(std::time::Duration::ZERO, &frame, &mut |answer| answers.push(answer.to_vec()));
            if frame[12..14] == [8, 0] && frame[34] == 8 {
                answers = answers.into_iter().flat_map(|answer| (self.play)(self.pings, answer)).collect();
                self.pings += 1;
            } else if frame[12..14] == [8, 0] {
                self.replies.push(frame);
            }
            answers.iter().for_each(|answer| assert!(self.wire.inject(answer), "there is room"));
        }
        clock.publish_soon();
        moved
    }

    fn publish(&mut self) {
        self.pinger.publish();
    }

    fn is_done(&self) -> bool {
        self.pinger.is_done()
    }
}

fn station(mac: [u8; 6], address: &str) -> Station {
    Station::new(mac, &[address.parse().unwrap()], &[]).unwrap()
}

fn run(count: u64, timeout: u64, greetings: Vec<Vec<u8>>, play: Play) -> Bench {
    let pool = Pool::new(&PoolConfig { slots: 4096, ..PoolConfig::default() }).unwrap();
    let (mut opened, wire) = in_process::open("a", &PortConfig::default(), &pool).unwrap();
    let (from, to) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let plan = Plan { from, to, macs: [OURS, THEIRS], count, interval: 1, settle: 1, cut: Arc::default() };
    let account = Account::new(count, 40, 7, timeout);
    let host = Host::new(station(OURS, "192.0.2.1/24"), &pool);
    let pinger = Pinger::new((opened.rx.remove(0), opened.tx.remove(0)), &pool, host, plan, account);
    let peer = station(THEIRS, "192.0.2.2/24");
    let replies = Vec::new();
    let bench = Bench { pinger, peer, wire, play, pings: 0, greetings, replies, _opened: opened };
    Loop::new(&lcore::Stop::new().unwrap()).run(bench)
}

/// Longer than any test takes, so that nothing is late on a busy machine.
const NEVER: u64 = u64::MAX;

#[test]
fn all_come_back() {
    let Bench { pinger, .. } = run(1000, NEVER, vec![], Box::new(|_, reply| vec![reply]));
    let account = &pinger.account;
    assert_eq!((account.sent, account.received, account.lost()), (1000, 1000, 0));
    assert_eq!((account.duplicate, account.late, account.damaged), (0, 0, 0));
    assert_eq!(account.latency.summary().map(|latency| latency.count), Some(1000));
}

#[test]
fn twice_is_once() {
    let Bench { pinger, .. } = run(50, NEVER, vec![], Box::new(|_, reply| vec![reply.clone(), reply]));
    assert_eq!((pinger.account.received, pinger.account.lost()), (50, 0));
    assert!(
        (49..=50).contains(&pinger.account.duplicate),
        "the last may be on its way: {:?}",
        pinger.account.duplicate
    );
}

#[test]
fn what_is_not_the_ping_is_not_received() {
    let play = |number: usize, mut reply: Vec<u8>| {
        match number {
            // Another byte, without and with its checksum.
            3 => reply[60] ^= 1,
            4 => {
                reply[60] ^= 1;
                let sum = wire::checksum::update_u16(
                    u16::from_be_bytes([reply[36], reply[37]]),
                    u16::from_be_bytes([reply[60] ^ 1, reply[61]]),
                    u16::from_be_bytes([reply[60], reply[61]]),
                );
                reply[36..38].copy_from_slice(&sum.to_be_bytes());
            }
            // A length that is not there.
            5 => reply[16..18].copy_from_slice(&[5, 0xdc]),
            6 => return vec![],
            7 => reply.truncate(50),
            _ => {}
        }
        vec![reply]
    };
    let Bench { pinger, .. } = run(20, 50_000_000, vec![], Box::new(play));
    let account = &pinger.account;
    assert!(account.received + account.late == 15 && account.damaged == 1, "{account:?}");
    assert_eq!(account.lost(), 5 + account.late);
    let counters = pinger.host.station.counters();
    assert_eq!((counters.bad_checksum, counters.malformed), (1, 2));
}

#[test]
fn a_host_that_never_answers_ends_it_all_the_same() {
    let Bench { pinger, .. } = run(5, 1000, vec![], Box::new(|_, _| vec![]));
    assert_eq!((pinger.account.sent, pinger.account.received), (5, 0));
}

#[test]
fn it_is_a_host_meanwhile() {
    let echo = Echo {
        from: "192.0.2.2".parse().unwrap(),
        to: "192.0.2.1".parse().unwrap(),
        identifier: 99,
        sequence: 1,
        payload: b"are you there",
    };
    let mut question = Vec::new();
    echo.write(&mut question, THEIRS, OURS).unwrap();
    let bench = run(10, NEVER, vec![question], Box::new(|_, reply| vec![reply]));
    assert_eq!((bench.pinger.account.received, bench.replies.len()), (10, 1));
    assert_eq!(bench.replies[0][42..55], *b"are you there");
}

#[test]
fn an_address_that_another_has_ends_it() {
    let mut claim = vec![0xff; 6];
    claim.extend(
        [&THEIRS[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &THEIRS, &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 1]].concat(),
    );
    let Bench { pinger, .. } = run(u64::from(u32::MAX), NEVER, vec![claim], Box::new(|_, reply| vec![reply]));
    assert!(matches!(pinger.trouble, Some(Error::Duplicate { mac: THEIRS, .. })), "{:?}", pinger.trouble);
}
