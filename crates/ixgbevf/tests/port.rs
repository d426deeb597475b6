#![allow(clippy::unwrap_used, reason = "a test that cannot start fails")]
//! The driver on strict virtual functions: frames both ways, queues, receive modes, and what a physical function can do wrong.

use ethdev::{
    Cause, MacAddress, Port as _, PortConfig, PortError as _, Reta, Rss, RxQueue as _, TxQueue as _, hash_ipv4,
};
use ixgbevf::{Api, Config, Error, Opened};
use mempool::{Batch, Pool, PoolCache, PoolConfig};
use softnic::{DeviceId, Fault, MailboxApi, MailboxPhase, StrictControl, StrictNic};
use std::time::{Duration, Instant};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x42];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 0x43];
const GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 7];
/// One patience (1 s), the time limit (5 s) and what closing may take more, on a slow machine.
const BOUND: Duration = Duration::from_secs(60);
const ALL: [DeviceId; 3] = [DeviceId::Vf82599, DeviceId::VfX540, DeviceId::VfX550];

struct Bench {
    nic: StrictControl,
    pool: Pool,
    opened: Opened<StrictNic>,
    cache: PoolCache,
    batch: Batch,
}

fn pool() -> Pool {
    let slots = if cfg!(miri) { 512 } else { 2048 };
    Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).unwrap()
}

fn function(id: DeviceId, trusted: bool) -> (StrictNic, StrictControl) {
    let device = StrictNic::builder().id(id).mac(MAC).grant(4, trusted).build();
    let nic = device.control();
    (device, nic)
}

fn small() -> PortConfig {
    PortConfig { rx_ring: 64, tx_ring: 64, ..PortConfig::default() }
}

fn bench(id: DeviceId, trusted: bool, config: PortConfig) -> Bench {
    let ((device, nic), pool) = (function(id, trusted), pool());
    let opened = ixgbevf::open(device, &Config::from(config), &pool).unwrap();
    Bench { nic, opened, cache: pool.cache(), batch: Batch::with_capacity(32), pool }
}

fn frame(to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| (at * 7 + len).to_le_bytes()[0]).collect();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&MAC);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame
}

impl Bench {
    /// Receives from queue 0, sends on, and lets the device work, until nothing moves.
    fn forward(&mut self) {
        loop {
            self.nic.step();
            let Opened { rx, tx, .. } = &mut self.opened;
            let received = rx[0].recv(&mut self.cache, &mut self.batch).len();
            let sent = tx[0].send(&mut self.cache, &mut self.batch);
            if received == 0 && sent == 0 && self.nic.step().is_idle() {
                break;
            }
        }
    }

    /// The queue from which a frame comes, if it comes.
    fn arrives(&mut self, frame: &[u8]) -> Option<usize> {
        self.nic.inject(frame);
        self.nic.step_until_idle(20);
        let mut from = None;
        for (number, queue) in self.opened.rx.iter_mut().enumerate() {
            if let Some(packet) = queue.recv(&mut self.cache, &mut self.batch).first() {
                assert_eq!((packet.data(), from), (frame, None));
                from = Some(number);
            }
            self.cache.free_batch(&mut self.batch);
        }
        from
    }

    /// Closes everything. Returns what closing said, and how many slots are not home.
    fn close(self) -> (Result<(), Error>, usize) {
        let Self { opened, cache, batch, pool, .. } = self;
        let closed = opened.close().map(drop);
        drop((cache, batch));
        (closed, pool.away())
    }

    fn ends_well(self) {
        let (closed, away) = self.close();
        closed.unwrap();
        assert_eq!(away, 0);
    }
}

#[test]
fn frames_of_all_sizes_come_out_as_they_went_in() {
    let step = if cfg!(miri) { 251 } else { 1 };
    for id in if cfg!(miri) { &ALL[..1] } else { &ALL } {
        let mut bench = bench(*id, true, small());
        assert_eq!(bench.opened.port.mac(), MacAddress(MAC));
        let frames: Vec<_> = (60..=1514).step_by(step).map(|len| frame(MAC, len)).collect();
        let mut out = Vec::new();
        for some in frames.chunks(37) {
            some.iter().for_each(|frame| bench.nic.inject(frame));
            bench.forward();
            out.extend(bench.nic.transmitted());
        }
        assert!(out == frames, "{id:?}: {} frames of {}", out.len(), frames.len());
        let bytes = frames.iter().map(|frame| frame.len() as u64 + 4).sum();
        for _ in 0..2 {
            let seen = bench.opened.port.statistics().unwrap();
            let count = frames.len() as u64;
            assert_eq!((seen.rx_packets, seen.tx_packets), (count, count), "{id:?}");
            assert_eq!((seen.rx_bytes, seen.tx_bytes, seen.unread), (bytes, bytes, 0), "{id:?}");
        }
        bench.ends_well();
    }
}

#[test]
fn long_frames_go_both_ways_and_closing_says_the_totals() {
    for id in ALL {
        let mut bench = bench(id, true, PortConfig { mtu: 9000, ..small() });
        let frames: Vec<_> = [60, 2048, 2049, 4096, 9000, 9014].map(|len| frame(MAC, len)).into();
        frames.iter().for_each(|frame| bench.nic.inject(frame));
        bench.forward();
        assert!(bench.nic.transmitted() == frames, "{id:?}");
        assert!(matches!(bench.opened.port.set_mtu(9001), Err(Error::Config(_))));
        bench.opened.port.set_mtu(1500).unwrap();
        let before = bench.opened.port.statistics().unwrap();
        assert!(bench.opened.port.transmit_idle());
        let Bench { opened, pool, cache, batch, .. } = bench;
        assert_eq!(opened.close().unwrap(), before);
        drop((cache, batch));
        assert_eq!(pool.away(), 0, "{id:?}");
    }
}

/// IPv4 to port 53, from one of many hosts.
fn flow(host: u8) -> Vec<u8> {
    let mut frame = frame(MAC, 60);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 99, 0, 0, 10, 0, 0, host, 10, 0, 0, 1]);
    frame
}

#[test]
fn flows_go_to_the_queues_that_their_hash_says() {
    // Miri takes its time: two queues of the function with the most settings, and few flows.
    let (ids, counts, hosts) = if cfg!(miri) { (&ALL[2..], &[2][..], 8) } else { (&ALL[..], &[1, 2, 3, 4][..], 64) };
    for &id in ids {
        for &queues in counts {
            if queues == 3 && id != DeviceId::VfX550 {
                continue;
            }
            let mut config = PortConfig { rx_queues: queues, tx_queues: 2, ..small() };
            if id == DeviceId::VfX550 {
                config.rss.key = Rss::SYMMETRIC_KEY;
            }
            let mut bench = bench(id, true, config);
            let hashing = bench.opened.port.hashing().unwrap();
            let mut seen = [0; 4];
            for host in 0..hosts {
                let hash = hash_ipv4(&hashing.key, [10, 0, 0, host].into(), [10, 0, 0, 1].into(), None);
                let wanted = usize::from(hashing.table[hash as usize % 128]);
                assert_eq!(bench.arrives(&flow(host)), Some(wanted), "{id:?}, {queues} queues, host {host}");
                seen[wanted] += 1;
            }
            assert!(seen[..queues.into()].iter().all(|count| *count > hosts / 16), "{id:?}, {queues} queues: {seen:?}");
            let table = bench.opened.port.set_rss_table(&Reta::Table(vec![0]));
            if id == DeviceId::VfX550 {
                table.unwrap();
                assert!((0..hosts / 4).all(|host| bench.arrives(&flow(host)) == Some(0)));
            } else {
                assert!(matches!(table, Err(Error::Unsupported(_))));
            }
            bench.ends_well();
        }
    }
}

#[test]
fn no_more_queues_than_are_granted() {
    for (rx_queues, tx_queues, setting) in [(5, 1, "rx_queues"), (1, 5, "tx_queues"), (3, 1, "rx_queues")] {
        let ((device, _), pool) = (function(DeviceId::VfX540, true), pool());
        let config = PortConfig { rx_queues, tx_queues, ..small() };
        let error = ixgbevf::open(device, &Config::from(config), &pool).unwrap_err();
        assert!(matches!(&error, Error::Config(error) if error.setting == setting), "{error}");
        assert_eq!(pool.away(), 0);
    }
}

#[test]
fn receive_modes_are_what_is_granted() {
    let tagged = {
        let mut frame = frame(MAC, 64);
        frame[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
        frame
    };
    // Who grants what: everything, all groups, and the address.
    for (id, trusted, others, groups) in [
        (DeviceId::VfX540, true, true, true),
        (DeviceId::VfX550, false, false, false),
        (DeviceId::Vf82599, true, false, true),
    ] {
        let mut bench = bench(id, trusted, small());
        let says = |bench: &mut Bench, to| bench.arrives(&frame(to, 60)).is_some();
        assert_eq!(bench.opened.port.capabilities().set_promiscuous, others, "{id:?}");
        assert_eq!(
            [MAC, [0xFF; 6], OTHER, GROUP].map(|to| says(&mut bench, to)),
            [true, true, others, groups],
            "{id:?}"
        );
        bench.opened.port.set_promiscuous(false).unwrap();
        assert_eq!([MAC, OTHER, GROUP].map(|to| says(&mut bench, to)), [true, false, groups], "{id:?}");
        bench.opened.port.set_all_multicast(false).unwrap();
        assert_eq!([MAC, OTHER, GROUP].map(|to| says(&mut bench, to)), [true, false, false], "{id:?}");
        for (wanted, granted) in [(bench.opened.port.set_promiscuous(true), others)] {
            match wanted {
                Ok(()) => assert!(granted, "{id:?}"),
                Err(error) => assert!(!granted && error.to_string().contains("refuses to receive"), "{error}"),
            }
        }
        assert_eq!([MAC, OTHER, GROUP].map(|to| says(&mut bench, to)), [true, others, others], "{id:?}");
        assert_eq!(bench.opened.port.set_all_multicast(true).is_ok(), groups, "{id:?}");
        if !others {
            assert_eq!(bench.arrives(&tagged), None);
            bench.opened.port.set_vlan(42, true).unwrap();
            assert_eq!(bench.arrives(&tagged), Some(0));
        }
        match bench.opened.port.set_mac(MacAddress(OTHER)) {
            Ok(()) => assert!(trusted && says(&mut bench, OTHER)),
            Err(error) => assert!(!trusted && matches!(error, Error::Refused { .. }), "{error}"),
        }
        assert!(matches!(bench.opened.port.set_mac(MacAddress(GROUP)), Err(Error::Config(_))));
        assert!(
            matches!(bench.opened.port.hashing(), Err(Error::Refused { .. })) != (trusted || id == DeviceId::VfX550)
        );
        bench.ends_well();
    }
}

#[test]
fn each_version_of_the_api_has_what_it_has() {
    for newest in MailboxApi::ALL {
        let spoken = match newest {
            MailboxApi::V1_0 => Api::V1_0,
            MailboxApi::V1_1 => Api::V1_1,
            MailboxApi::V1_2 => Api::V1_2,
            _ => Api::V1_3,
        };
        for id in ALL {
            speaks(id, newest, spoken);
        }
    }
}

fn speaks(id: DeviceId, newest: MailboxApi, spoken: Api) {
    let about = format!("{id:?}, {newest:?}");
    let open = |config: PortConfig| {
        let (device, pool) = (StrictNic::builder().id(id).mac(MAC).api(newest).build(), pool());
        let nic = device.control();
        let opened = ixgbevf::open(device, &Config::from(config), &pool)?;
        Ok::<_, Error>(Bench { nic, opened, cache: pool.cache(), batch: Batch::with_capacity(32), pool })
    };
    // Queues from 1.1 on.
    let queues = if spoken < Api::V1_1 { 1 } else { 4 };
    let refused = open(PortConfig { rx_queues: queues + 1, ..small() }).err().unwrap().to_string();
    assert!(refused.starts_with("rx_queues"), "{about}: {refused}");
    // Long frames, but on an 82599 from 1.1 on.
    let is_short = id == DeviceId::Vf82599 && spoken < Api::V1_1;
    let mtu = if is_short { 1500 } else { 9000 };
    if is_short {
        let refused = open(PortConfig { mtu: 1501, ..small() }).err().unwrap();
        assert!(matches!(refused, Error::Refused { .. }), "{about}: {refused}");
    }
    let mut bench = open(PortConfig { mtu, rx_queues: queues, tx_queues: queues, ..small() }).unwrap();
    let port = &mut bench.opened.port;
    let capabilities = port.capabilities();
    assert_eq!(port.api(), spoken, "{about}");
    assert_eq!((capabilities.rx_queues, capabilities.tx_queues), (queues, queues), "{about}");
    assert_eq!(capabilities.mtu, if is_short { 1500 } else { 9216 }, "{about}");
    // Key and table from 1.2 on, but an X550 knows its own.
    assert_eq!(port.hashing().is_ok(), id == DeviceId::VfX550 || spoken >= Api::V1_2, "{about}");
    // Groups of others from 1.2 on, all frames from 1.3 on, but on an 82599; one's own and those that were asked for always.
    let (groups, others) = (spoken >= Api::V1_2, spoken >= Api::V1_3 && id != DeviceId::Vf82599);
    assert_eq!(capabilities.set_promiscuous, others, "{about}");
    let longest = frame(MAC, usize::from(mtu) + 14);
    bench.nic.inject(&longest);
    bench.forward();
    assert!(bench.nic.transmitted() == [longest], "{about}");
    assert!(bench.arrives(&frame([0xFF; 6], 60)).is_some(), "{about}");
    assert_eq!([OTHER, GROUP].map(|to| bench.arrives(&frame(to, 60)).is_some()), [others, groups], "{about}");
    bench.opened.port.set_promiscuous(false).unwrap();
    assert_eq!(bench.opened.port.set_all_multicast(true).is_ok(), groups, "{about}");
    let outcome = bench.opened.port.set_promiscuous(true);
    assert!(if others { outcome.is_ok() } else { matches!(outcome, Err(Error::Refused { .. })) }, "{about}");
    bench.opened.port.set_groups(&[group(7)]).unwrap();
    assert_eq!(heard(&mut bench, &[7]), [7], "{about}");
    // Addresses, VLANs and the longest frame always.
    bench.opened.port.set_mac(MacAddress(OTHER)).unwrap();
    assert!(bench.arrives(&frame(OTHER, 60)).is_some(), "{about}");
    bench.opened.port.set_vlan(42, true).unwrap();
    let mut tagged = frame(OTHER, 64);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
    assert!(bench.arrives(&tagged).is_some(), "{about}");
    bench.opened.port.set_mtu(1000).unwrap();
    // Sent from each queue.
    let sent: Vec<_> = (60..60 + usize::from(queues)).map(|len| frame(GROUP, len)).collect();
    for (queue, bytes) in bench.opened.tx.iter_mut().zip(&sent) {
        bench.batch.push(bench.cache.alloc_from(bytes).unwrap()).unwrap();
        assert_eq!(queue.send(&mut bench.cache, &mut bench.batch), 1, "{about}");
    }
    bench.nic.step_until_idle(20);
    let mut out = bench.nic.transmitted();
    out.sort_by_key(Vec::len);
    assert!(out == sent, "{about}: {} frames", out.len());
    bench.ends_well();
}

/// A group with a hash of its own for each number below 4096.
fn group(number: u16) -> MacAddress {
    let [low, high] = (number << 4).to_le_bytes();
    MacAddress([0x33, 0x33, 0xFF, 0, low, high])
}

/// Of these groups, those whose frames arrive.
fn heard(bench: &mut Bench, numbers: &[u16]) -> Vec<u16> {
    let heard = |number: &&u16| bench.arrives(&frame(group(**number).0, 60)).is_some();
    numbers.iter().filter(heard).copied().collect()
}

#[test]
fn who_is_not_trusted_hears_the_groups_that_it_asks_for() {
    for id in ALL {
        let mut bench = bench(id, false, small());
        assert!(heard(&mut bench, &[1, 2, 0xFFF]).is_empty());
        bench.opened.port.set_groups(&[group(1), group(0xFFF), group(1)]).unwrap();
        assert_eq!(heard(&mut bench, &[1, 2, 0xFFF]), [1, 0xFFF], "{id:?}");
        assert!(matches!(bench.opened.port.set_all_multicast(true), Err(Error::Refused { .. })));
        assert!(matches!(bench.opened.port.set_groups(&[MacAddress(OTHER)]), Err(Error::Config(_))));
        bench.opened.port.set_promiscuous(false).unwrap();
        assert_eq!(heard(&mut bench, &[1, 2, 0xFFF]), [1, 0xFFF], "{id:?}");
        assert!(bench.arrives(&frame([0xFF; 6], 60)).is_some());
        bench.ends_well();
    }
}

#[test]
fn of_more_groups_than_there_is_room_for_the_first_are_heard() {
    let mut bench = bench(DeviceId::Vf82599, false, small());
    // Addresses that share a hash are one.
    let twin = |number| MacAddress([1, 0, 0x5E, 0, group(number).0[4] | 3, group(number).0[5]]);
    let thirty: Vec<_> = (1..=30).flat_map(|number| [group(number), twin(number)]).collect();
    bench.opened.port.set_groups(&thirty).unwrap();
    assert_eq!(heard(&mut bench, &[1, 15, 30, 31]), [1, 15, 30]);
    bench.ends_well();
    let mut bench = self::bench(DeviceId::Vf82599, false, small());
    let many: Vec<_> = (1..=31).map(group).collect();
    let error = bench.opened.port.set_groups(&many).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Config(_)) && message.starts_with("groups: 31 of them"), "{message}");
    assert_eq!(heard(&mut bench, &[1, 15, 30, 31]), [1, 15, 30]);
    bench.opened.port.set_groups(&many[30..]).unwrap();
    assert!(heard(&mut bench, &[31]) == [31], "and it goes on");
    bench.ends_well();
}

/// What the physical function may make of it, and whether the port goes on.
#[test]
fn a_physical_function_that_sets_no_groups_is_told() {
    for (fault, cause, goes_on) in [
        (Fault::PfRefuses, Cause::PfRefused, true),
        (Fault::PfGarbage, Cause::PfNonsense, false),
        (Fault::PfReset { at: 1, phase: MailboxPhase::Taken }, Cause::PfReset, false),
    ] {
        let mut bench = bench(DeviceId::VfX550, false, small());
        bench.opened.port.set_groups(&[group(1)]).unwrap();
        bench.nic.inject_fault(fault);
        let error = bench.opened.port.set_groups(&[group(2)]).unwrap_err();
        assert!(error.known_cause() == Some(cause) && error.to_string().lines().count() == 1, "{fault:?}: {error}");
        bench.nic.clear_faults();
        if goes_on {
            assert_eq!(heard(&mut bench, &[1, 2]), [1]);
            bench.opened.port.set_groups(&[group(2)]).unwrap();
            assert_eq!(heard(&mut bench, &[2]), [2]);
            bench.ends_well();
        } else {
            assert!(matches!(bench.opened.port.set_groups(&[group(2)]), Err(Error::Lost { .. })), "{fault:?}");
            assert_eq!(bench.close().1, 0);
        }
    }
}

#[test]
fn the_link_is_told() {
    for id in ALL {
        let mut bench = bench(id, true, small());
        let up = bench.opened.port.wait_link(Duration::from_secs(60)).unwrap();
        assert_eq!((up.up, up.speed_mbps), (true, 10_000));
        while bench.opened.port.events().unwrap().link_changed {}
        bench.nic.set_link(false);
        bench.nic.step_until_idle(20);
        assert!(bench.opened.port.events().unwrap().link_changed, "{id:?}");
        assert!(!bench.opened.port.events().unwrap().link_changed, "{id:?}");
        assert!(!bench.opened.port.link().unwrap().up, "{id:?}");
        assert!(!bench.opened.port.wait_link(Duration::ZERO).unwrap().up);
        bench.ends_well();
    }
}

/// What is found out in mid-run, and why that is.
type Found = fn(&mut ixgbevf::Port<StrictNic>) -> Result<(), Error>;
const BROKEN: &[(Fault, Found, Cause)] = &[
    (Fault::PfReset { at: 0, phase: MailboxPhase::Taken }, |port| port.events().map(drop), Cause::PfReset),
    (Fault::PfReset { at: 0, phase: MailboxPhase::Taken }, |port| port.statistics().map(drop), Cause::PfReset),
    (Fault::PfReset { at: 1, phase: MailboxPhase::Taken }, |port| port.set_mtu(1000), Cause::PfReset),
    (Fault::PfGone, |port| port.events().map(drop), Cause::PfReset),
    (Fault::PfSilent { after: 0 }, |port| port.set_promiscuous(false), Cause::PfSilent),
    (Fault::PfGarbage, |port| port.set_mtu(1000), Cause::PfNonsense),
    (Fault::Removal { after_reads: 0 }, |port| port.events().map(drop), Cause::Gone),
];

#[test]
fn a_physical_function_that_fails_in_mid_run_is_told_and_all_buffers_come_home() {
    // Silence takes its time.
    std::thread::scope(|scope| {
        for case in BROKEN {
            scope.spawn(|| [true, false].map(|drops_queues_first| fails_in_mid_run(case, drops_queues_first)));
        }
    });
}

/// All that is asked of the physical function in mid-run, with the number of messages that it takes.
const REQUESTS: &[(u32, Found)] = &[
    (1, |port| port.set_vlan(42, true)),
    (1, |port| port.set_vlan(0, false)),
    (1, |port| port.set_mac(MacAddress(OTHER))),
    (1, |port| port.set_promiscuous(false)),
    (1, |port| port.set_groups(&[MacAddress(GROUP)])),
    (1, |port| port.set_mtu(1000)),
    (2, |port| port.hashing().map(drop)),
];

#[test]
fn a_physical_function_that_resets_at_a_request_in_mid_run_is_told_and_all_buffers_come_home() {
    std::thread::scope(|scope| {
        for phase in MailboxPhase::ALL {
            scope.spawn(move || {
                for (messages, request) in REQUESTS {
                    for at in 1..=*messages {
                        let case = (Fault::PfReset { at, phase }, *request, Cause::PfReset);
                        [true, false].into_iter().for_each(|first| fails_in_mid_run(&case, first));
                    }
                }
            });
        }
    });
}

fn fails_in_mid_run((fault, found, cause): &(Fault, Found, Cause), drops_queues_first: bool) {
    let mut bench = bench(DeviceId::VfX540, true, PortConfig { rx_queues: 2, tx_queues: 2, ..small() });
    (0..20).for_each(|host| bench.nic.inject(&flow(host)));
    bench.nic.step();
    bench.opened.rx[0].recv(&mut bench.cache, &mut bench.batch);
    bench.nic.inject_fault(*fault);
    bench.opened.tx[0].send(&mut bench.cache, &mut bench.batch);
    let begun = Instant::now();
    // What was answered before a reset holds, and what comes next says that it is lost.
    let port = &mut bench.opened.port;
    let error = found(port).and_then(|()| port.events().map(drop)).unwrap_err();
    assert!(error.known_cause() == Some(*cause) && error.to_string().lines().count() == 1, "{fault:?}: {error}");
    assert!(bench.opened.port.link().is_err() && bench.opened.port.events().is_err(), "{fault:?}");
    assert!(bench.opened.port.transmit_idle(), "{fault:?}");
    bench.opened.rx[1].recv(&mut bench.cache, &mut bench.batch);
    let Bench { opened: Opened { port, rx, tx }, cache, batch, pool, .. } = bench;
    let closed = if drops_queues_first {
        drop((rx, tx));
        port.close()
    } else {
        let closed = port.close();
        drop((rx, tx));
        closed
    };
    let error = closed.unwrap_err().to_string();
    assert!(error.lines().count() == 1, "{fault:?}: {error}");
    drop((cache, batch));
    assert_eq!(pool.away(), 0, "{fault:?}");
    assert!(begun.elapsed() < BOUND, "{fault:?}: {:?}", begun.elapsed());
}

#[test]
fn a_physical_function_that_fails_at_the_beginning_is_told() {
    let cases = [
        (Fault::PfSilent { after: 0 }, Cause::PfSilent),
        (Fault::PfSilent { after: 3 }, Cause::PfSilent),
        (Fault::PfReset { at: 1, phase: MailboxPhase::Taken }, Cause::PfReset),
        (Fault::PfReset { at: 4, phase: MailboxPhase::Taken }, Cause::PfReset),
        (Fault::PfGone, Cause::PfAway),
        (Fault::PfRefuses, Cause::PfRefused),
        (Fault::PfGarbage, Cause::PfNonsense),
        (Fault::StuckReset, Cause::PfSilent),
        (Fault::Removal { after_reads: 0 }, Cause::Gone),
        (Fault::Removal { after_reads: 100 }, Cause::Gone),
    ];
    std::thread::scope(|scope| {
        for (fault, cause) in cases {
            scope.spawn(move || assert!(fails_at_the_beginning(function(DeviceId::VfX540, true).0, fault, cause)));
        }
    });
}

#[test]
fn a_physical_function_that_resets_at_any_message_of_the_start_is_told() {
    // Reset, API, queues, longest frame and receive mode. An 82599 refuses the most of these; who has no address says which it takes.
    let starts = [
        (DeviceId::Vf82599, MAC, MailboxApi::V1_7, 6),
        (DeviceId::VfX540, MAC, MailboxApi::V1_7, 5),
        (DeviceId::VfX550, MAC, MailboxApi::V1_7, 5),
        (DeviceId::VfX540, [0; 6], MailboxApi::V1_7, 6),
        // Three versions are refused, and there is no mode.
        (DeviceId::VfX540, MAC, MailboxApi::V1_0, 6),
    ];
    std::thread::scope(|scope| {
        for phase in MailboxPhase::ALL {
            scope.spawn(move || {
                for (id, mac, api, messages) in starts {
                    let fails = |at: &u32| {
                        let builder = StrictNic::builder().id(id).mac(mac).api(api);
                        fails_at_the_beginning(builder.build(), Fault::PfReset { at: *at, phase }, Cause::PfReset)
                    };
                    assert_eq!((1..).take_while(fails).count(), messages, "{id:?}, {phase:?}");
                }
            });
        }
    });
}

/// Whether opening fails, which it does as it should.
fn fails_at_the_beginning(device: StrictNic, fault: Fault, cause: Cause) -> bool {
    let pool = pool();
    device.control().inject_fault(fault);
    let begun = Instant::now();
    let outcome = ixgbevf::open(device, &Config::from(small()), &pool);
    let fails = outcome.is_err();
    match outcome {
        Err(error) => {
            assert!(error.known_cause() == Some(cause) && error.to_string().lines().count() == 1, "{fault:?}: {error}")
        }
        Ok(opened) => drop(opened.close().unwrap()),
    }
    assert_eq!(pool.away(), 0, "{fault:?}");
    assert!(begun.elapsed() < BOUND, "{fault:?}: {:?}", begun.elapsed());
    fails
}

#[test]
#[cfg(not(miri))] // Miri has no poll(2) on eventfds.
fn queues_and_the_mailbox_have_vectors() {
    use device::Interrupts;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::AsFd as _;
    let is_readable = |fd: std::os::fd::BorrowedFd<'_>| {
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    };
    let config = PortConfig { rx_queues: 2, tx_queues: 2, interrupts: Interrupts::Required, ..small() };
    let ((device, nic), pool) = (function(DeviceId::VfX550, true), pool());
    let mut config = Config::from(config);
    config.interrupt_interval_us = 0;
    let opened = ixgbevf::open(device, &config, &pool).unwrap();
    let mut bench = Bench { nic, opened, cache: pool.cache(), batch: Batch::with_capacity(32), pool };
    assert!(bench.opened.port.capabilities().interrupts);
    while bench.opened.port.events().unwrap().link_changed {}
    assert!(bench.opened.rx.iter_mut().all(|queue| queue.arm()), "nothing is there yet");
    let mut woken = [0; 2];
    for host in 0..32 {
        bench.nic.inject(&flow(host));
        bench.nic.step_until_idle(2000);
        let readable: Vec<_> = bench.opened.rx.iter().map(|queue| is_readable(queue.eventfd().unwrap())).collect();
        let number = readable.iter().position(|readable| *readable).unwrap();
        woken[number] += 1;
        assert_eq!(bench.opened.rx[number].recv(&mut bench.cache, &mut bench.batch).len(), 1, "host {host}");
        bench.cache.free_batch(&mut bench.batch);
        assert!(bench.opened.rx[number].arm());
    }
    assert!(woken.iter().all(|count| *count > 4), "{woken:?}");
    let told = |bench: &Bench| bench.opened.port.event_fds().iter().any(|fd| is_readable(fd.as_fd()));
    assert!(!told(&bench));
    bench.nic.set_link(false);
    bench.nic.step_until_idle(2000);
    assert!(told(&bench) && bench.opened.port.events().unwrap().link_changed);
    bench.nic.inject_fault(Fault::PfReset { at: 0, phase: MailboxPhase::Taken });
    // Not before a millisecond after the last: it may say much.
    let told_later = (0..1_000_000).any(|_| {
        bench.nic.step_until_idle(10);
        told(&bench)
    });
    assert!(told_later, "a reset of the physical function wakes too");
    assert!(matches!(bench.opened.port.events(), Err(Error::Lost { .. })));
    let (closed, away) = bench.close();
    assert!(matches!(closed, Err(Error::Lost { .. })) && away == 0);
    let ((device, _), pool) = (function(DeviceId::VfX550, true), self::pool());
    let config = PortConfig { rx_queues: 3, interrupts: Interrupts::Required, ..small() };
    let error = ixgbevf::open(device, &Config::from(config), &pool).unwrap_err().to_string();
    assert!(error.contains("has 3"), "{error}");
}

#[test]
fn registers_are_read_and_not_changed() {
    for id in ALL {
        let (device, _) = function(id, true);
        let values = ixgbevf::registers(device).unwrap();
        assert!(values.iter().any(|register| register.name == "VFLINKS" && register.value.is_some()), "{id:?}");
        assert!(values.iter().any(|register| register.name == "VFMAILBOX" && register.value.is_none()), "{id:?}");
        let hashes = values.iter().any(|register| register.offset == 0x3000);
        assert_eq!(hashes, id == DeviceId::VfX550, "its own hashing");
    }
}
