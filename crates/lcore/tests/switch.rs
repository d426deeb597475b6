//! Frames between ports: they go where they are steered, whole and in order, and what does not go is counted.
#![expect(clippy::unwrap_used, reason = "tests")]

use ethdev::in_process::{self, Wire};
use ethdev::{Opened, PortConfig};
use lcore::{Loop, Steer, Stop, Switch};
use mempool::{Packet, Pool, PoolConfig};

fn open(names: &[&str], config: &PortConfig, pool: &Pool) -> (Vec<Opened<in_process::InProcess>>, Vec<Wire>) {
    names.iter().map(|name| in_process::open(name, config, pool).unwrap()).unzip()
}

/// Runs a switch for as long as frames move.
fn run<R: ethdev::RxQueue, T: ethdev::TxQueue, S: Steer>(switch: Switch<R, T, S>) -> Switch<R, T, S> {
    let stop = Stop::new().unwrap();
    stop.request();
    Loop::new(&stop).run(switch)
}

fn collected(wire: &mut Wire) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| wire.collect()).collect()
}

#[test]
fn frames_go_where_they_are_steered() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut ports, mut wires) = open(&["a", "b", "c"], &PortConfig::default(), &pool);
    // The first byte says where to: 3 is no port, and 4 is nowhere.
    let steer = |_| {
        |port: usize, packet: &mut Packet| {
            packet.data_mut()[1] = u8::try_from(port).unwrap();
            Some(usize::from(packet.data()[0])).filter(|port| *port < 4)
        }
    };
    let mut switches = Switch::of(&mut ports, &pool, steer);
    assert_eq!(switches.len(), 1);
    for number in 0..250_u8 {
        assert!(wires[usize::from(number) % 3].inject(&[&[number % 5, 0, number][..], &[0; 57]].concat()));
    }
    let switch = run(switches.remove(0));
    assert_eq!(switch.dropped(), 100);
    for (port, wire) in wires.iter_mut().enumerate() {
        let frames = collected(wire);
        assert_eq!(frames.len(), 50);
        assert!(frames.iter().all(|frame| usize::from(frame[2]) % 5 == port && frame[1] == frame[2] % 3));
        for from in 0..3 {
            let numbers: Vec<u8> = frames.iter().filter(|frame| frame[1] == from).map(|frame| frame[2]).collect();
            assert!(numbers.is_sorted(), "in order");
        }
    }
    drop((switch, ports, wires));
    assert_eq!(pool.away(), 0);
}

#[test]
fn frames_in_several_buffers_are_steered_once_and_stay_whole() {
    let pool = Pool::new(&PoolConfig { data_room: 100, ..PoolConfig::default() }).unwrap();
    let (mut ports, mut wires) = open(&["a", "b"], &PortConfig::default(), &pool);
    let mut switches = Switch::of(&mut ports, &pool, |_| {
        let mut seen = 0;
        move |_: usize, _: &mut Packet| {
            seen += 1;
            (seen % 2 == 1).then_some(1)
        }
    });
    let frames: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; 60 + usize::from(number) * 5]).collect();
    assert!(frames.iter().all(|frame| wires[0].inject(frame)));
    run(switches.remove(0));
    let every_other: Vec<Vec<u8>> = frames.into_iter().step_by(2).collect();
    assert_eq!(collected(&mut wires[1]), every_other);
}

#[test]
fn what_a_port_has_no_room_for_is_dropped_and_counted() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut ports, mut wires) = open(&["a", "b"], &PortConfig { tx_ring: 64, ..PortConfig::default() }, &pool);
    let mut switches = Switch::of(&mut ports, &pool, |_| |port: usize, _: &mut Packet| Some(1 - port));
    assert!((0..400).all(|_| wires[0].inject(&[1; 60])));
    let switch = run(switches.remove(0));
    assert_eq!((switch.dropped(), collected(&mut wires[1]).len()), (400 - 64, 64), "what fits into the ring");
}

#[test]
fn each_pair_of_queues_has_a_switch_of_its_own() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let config = PortConfig { rx_queues: 3, tx_queues: 2, ..PortConfig::default() };
    let (mut ports, mut wires) = open(&["a", "b"], &config, &pool);
    let switches = Switch::of(&mut ports, &pool, |number| {
        move |port: usize, packet: &mut Packet| {
            packet.data_mut().fill(u8::try_from(number).unwrap());
            Some(1 - port)
        }
    });
    assert_eq!((switches.len(), ports[0].rx.len(), ports[0].tx.len()), (2, 1, 0));
    assert!((0..3).all(|queue| wires[0].inject_into(queue, &[9; 60])));
    switches.into_iter().for_each(|switch| drop(run(switch)));
    assert_eq!(collected(&mut wires[1]), [[0; 60], [1; 60]]);
}
