//! Ports opened by address, on software NICs.
#![cfg(feature = "soft")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mempool::{Batch, Pool, PoolConfig};
use nic::{Error, Port as _, PortConfig, RxQueue as _, TxQueue as _, open};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn pool() -> Pool {
    Pool::new(&PoolConfig { slots: 4096, ..PoolConfig::default() }).unwrap()
}

#[test]
fn what_is_sent_into_a_loop_comes_back_and_every_buffer_goes_home() {
    let pool = pool();
    let mut nic =
        open(&"soft:loop-test?wire=loop&mac=02:00:00:00:00:07".parse().unwrap(), &PortConfig::default(), &pool)
            .unwrap();
    assert_eq!(nic.port.name(), "soft:loop-test");
    assert_eq!(nic.port.mac().0, [2, 0, 0, 0, 0, 7]);
    let link = nic.port.wait_link(Duration::from_secs(5)).unwrap();
    assert!(link.up && link.speed_mbps == 10_000, "{link:?}");

    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    let begun = Instant::now();
    let (mut sent, mut received) = (0_u8, 0_u8);
    while received < 200 {
        if sent < 200 {
            let mut packet = cache.alloc().unwrap();
            packet.append(60).unwrap().fill(sent);
            batch.push(packet).unwrap();
            sent += u8::try_from(nic.tx[0].send(&mut cache, &mut batch)).unwrap();
            cache.free_batch(&mut batch);
        }
        nic.rx[0].recv(&mut cache, &mut batch);
        for packet in batch.iter() {
            assert_eq!(packet.data(), [received; 60]);
            received += 1;
        }
        cache.free_batch(&mut batch);
        assert!(begun.elapsed() < Duration::from_secs(60), "{received} of {sent} came back");
    }
    assert_eq!((nic.rx[0].counters().packets, nic.tx[0].counters().bytes), (200, 12_000));
    let statistics = nic.port.statistics().unwrap();
    assert_eq!((statistics.rx_packets, statistics.tx_packets, statistics.rx_missed), (200, 200, 0));
    assert_eq!(statistics.rx_bytes, 200 * 64, "with check sequence");
    nic.close().unwrap();
    drop((cache, batch));
    assert_eq!(pool.away(), 0);
}

/// A virtual function that is not trusted receives the VLANs that it asks for, and a physical one all.
#[test]
fn a_function_receives_the_vlans_that_it_is_told() {
    for (address, filters) in [("soft:vlan-vf?id=1515&trust=off&wire=loop", true), ("soft:vlan-pf?wire=loop", false)] {
        let pool = pool();
        let mut nic = open(&address.parse().unwrap(), &PortConfig::default(), &pool).unwrap();
        assert!(nic.port.wait_link(Duration::from_secs(60)).unwrap().up);
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
        for (id, on, told) in
            [(7, false, &[][..]), (7, true, &[7]), (9, true, &[7, 9]), (9, true, &[7, 9]), (7, false, &[9])]
        {
            nic.port.set_vlan(id, on).unwrap();
            // The one without a tag is received behind those that are.
            for tag in [Some(7), Some(9), None] {
                // From itself, as the physical function looks at that.
                let mut frame = [[0xFF; 6].as_slice(), &nic.port.mac().0, &[0x88, 0xB5], &[0; 46]].concat();
                if let Some(tag) = tag {
                    frame[12..16].copy_from_slice(&[0x81, 0, 0, tag]);
                }
                let mut packet = cache.alloc().unwrap();
                packet.append(60).unwrap().copy_from_slice(&frame);
                batch.push(packet).unwrap();
            }
            let (begun, mut received, mut is_last) = (Instant::now(), Vec::new(), false);
            let mut unsent = std::mem::replace(&mut batch, Batch::with_capacity(32));
            while !is_last {
                nic.tx[0].send(&mut cache, &mut unsent);
                nic.rx[0].recv(&mut cache, &mut batch);
                for frame in batch.iter().map(|packet| packet.data()) {
                    if frame[12..14] == [0x81, 0] { received.push(frame[15]) } else { is_last = true }
                }
                cache.free_batch(&mut batch);
                assert!(begun.elapsed() < Duration::from_secs(60), "{address}: {received:?} came back");
            }
            assert_eq!(received, if filters { told } else { &[7, 9] }, "{address}");
        }
        for id in [4095, u16::MAX] {
            let error = nic.port.set_vlan(id, true).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("vlan: "), "{error}");
        }
        nic.close().unwrap();
    }
}

#[test]
fn a_queue_is_waited_for_and_a_link_change_told() {
    let pool = pool();
    let config = PortConfig { interrupts: nic::Interrupts::Required, ..PortConfig::default() };
    let mut nic = open(&"soft:wait-test?wire=loop".parse().unwrap(), &config, &pool).unwrap();
    let limit = Duration::from_secs(60);
    nic.port.wait_link(limit).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    assert!(!nic.rx[0].wait(Duration::from_millis(1)).unwrap());
    for frame in 0..100 {
        let mut packet = cache.alloc().unwrap();
        packet.append(60).unwrap().fill(frame);
        batch.push(packet).unwrap();
        nic.tx[0].send(&mut cache, &mut batch);
        assert!(nic.rx[0].wait(limit).unwrap());
        assert_eq!(nic.rx[0].recv(&mut cache, &mut batch).len(), 1);
        assert_eq!(batch[0].data(), [frame; 60]);
        cache.free_batch(&mut batch);
    }
    nic.port.events().unwrap();
    let control = nic.port.soft().expect("a soft NIC");
    control.set_link(false);
    let begun = Instant::now();
    while !nic.port.events().unwrap().link_changed {
        assert!(begun.elapsed() < limit, "nobody told of the link");
        let fds: Vec<_> = nic.port.event_fds().into_iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let [event] = <[_; 1]>::try_from(fds).unwrap().map(device::EventFd::from);
        event.wait(limit).unwrap();
    }
    assert!(!nic.port.link().unwrap().up);
    nic.close().unwrap();
}

#[test]
fn a_queue_of_a_port_without_interrupts_cannot_be_waited_for() {
    let mut nic = open(&"soft:poll-test".parse().unwrap(), &PortConfig::default(), &pool()).unwrap();
    assert!(nic.rx[0].eventfd().is_none() && !nic.rx[0].arm() && nic.port.event_fds().is_empty());
    let error = nic.rx[0].wait(Duration::from_secs(60)).unwrap_err().to_string();
    assert!(error.starts_with("the port was opened without interrupts"), "{error}");
    nic.close().unwrap();
}

#[test]
fn a_name_can_be_opened_again_once_it_is_closed() {
    let (pool, address) = (pool(), "soft:again".parse().unwrap());
    let first = open(&address, &PortConfig::default(), &pool).unwrap();
    let error = open(&address, &PortConfig::default(), &pool).unwrap_err();
    assert!(error.to_string().contains("busy") && !error.is_usage(), "{error}");
    first.close().unwrap();
    open(&address, &PortConfig::default(), &pool).unwrap().close().unwrap();
}

#[test]
fn settings_out_of_range_are_usage_errors_that_name_the_device() {
    let pool = pool();
    for config in [
        PortConfig { rx_ring: 1000, ..PortConfig::default() },
        PortConfig { rx_queues: 0, ..PortConfig::default() },
        PortConfig { mtu: 9217, ..PortConfig::default() },
    ] {
        let error = open(&"soft:range".parse().unwrap(), &config, &pool).unwrap_err();
        assert!(matches!(error, Error::Open { .. }) && error.is_usage(), "{error}");
        assert!(error.to_string().starts_with("soft:range: "), "{error}");
    }
    let error = open(&"soft:spec?wire=none".parse().unwrap(), &PortConfig::default(), &pool).unwrap_err();
    assert!(error.is_usage(), "{error}");
}

#[test]
fn a_pci_address_without_a_device_is_a_failure() {
    let error = open(&"fffe:ff:1f.7".parse().unwrap(), &PortConfig::default(), &pool()).unwrap_err();
    assert!(!error.is_usage() && error.to_string().starts_with("fffe:ff:1f.7: "), "{error}");
}

#[test]
fn the_echo_example_swaps_every_frame_once() {
    // Beside this test's own folder, where cargo puts examples.
    let deps = std::env::current_exe().unwrap();
    let example: PathBuf = deps.parent().unwrap().parent().unwrap().join("examples/echo");
    if !example.exists() {
        return skip::test!("the example is not built; cargo test -p ringway-nic builds it");
    }
    let run = |arguments: &[&str]| {
        let output = Command::new(&example).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&[]).contains("went back"));
    // More frames than the transmit ring holds, so that some wait in the batch.
    let frames: Vec<Vec<u8>> = (0..20_000_u32)
        .map(|number| {
            let len = 60 + number as usize % 1455;
            let mut frame: Vec<u8> = (0..=255).cycle().take(len).collect();
            frame[20..24].copy_from_slice(&number.to_be_bytes());
            frame
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    std::fs::write(&input, capture(&frames)).unwrap();
    run(&[&format!("soft:x?wire=pcap:{},{}", input.display(), output.display()), "20000"]);
    let swapped: Vec<Vec<u8>> =
        frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
    assert!(captured(&std::fs::read(&output).unwrap()) == swapped, "frames differ");
    let source = include_str!("../examples/echo.rs");
    assert!(source.lines().count() <= 30, "short enough to be copied");
}

#[test]
fn p7_a_peer_that_nobody_vouched_for_is_refused_before_it_is_asked() {
    let listener_less = std::env::temp_dir().join("ringway-nic-no-such.sock");
    for scheme in ["vfio-user", "vhost-user"] {
        let address = format!("{scheme}:{}", listener_less.display()).parse().unwrap();
        let error = open(&address, &PortConfig::default(), &pool()).unwrap_err();
        assert!(matches!(error, Error::UntrustedPeer { .. }) && !error.is_usage(), "{error}");
        assert!(error.to_string().contains("trusted_peer"), "{error}");
    }
    assert!(!listener_less.exists());
}

#[test]
fn a_flag_that_is_set_ends_opening_at_once() {
    let time_limit = nic::TimeLimit { cancel: Some(Arc::new(AtomicBool::new(true))), ..nic::TimeLimit::default() };
    let config = PortConfig { time_limit, ..PortConfig::default() };
    let error = open(&"soft:cancelled".parse().unwrap(), &config, &pool()).unwrap_err();
    assert_eq!(error.to_string().split(';').next(), Some("cannot open soft:cancelled: interrupted"));
}

/// A classic little-endian pcap of Ethernet frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        bytes.extend(words(&[0, 0, len, len]));
        bytes.extend(frame);
    }
    bytes
}

/// The frames of such a pcap.
fn captured(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = &bytes[24..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error_of_closing() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (pool, address) = (pool(), format!("soft:full?wire=pcap:,{}", pipe.display()).parse().unwrap());
    // A reader who is there before the port, takes the header of the capture, and goes. One who also opens to write does not
    // wait for a writer.
    let mut reader = std::fs::OpenOptions::new().read(true).write(true).open(pipe).unwrap();
    let mut nic = open(&address, &PortConfig::default(), &pool).unwrap();
    reader.read_exact(&mut [0; 24]).unwrap();
    drop(reader);
    nic.port.wait_link(Duration::from_secs(60)).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    cache.alloc_batch(&mut batch, 32, 60);
    assert_eq!(nic.tx[0].send(&mut cache, &mut batch), 32);
    let begun = Instant::now();
    while !nic.port.transmit_idle() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not sent");
    }
    let message = nic.close().unwrap_err().to_string();
    assert!(message.starts_with("soft:full: cannot write ") && message.contains("32 sent frames"), "{message}");
}

/// A device in the middle of its work learns of the memory before it is told of the frame.
#[test]
fn pools_are_first_sent_from_while_the_device_receives() {
    let pool = pool();
    let mut nic = open(&"soft:pools?wire=gen".parse().unwrap(), &PortConfig::default(), &pool).unwrap();
    nic.port.wait_link(Duration::from_secs(60)).unwrap();
    let (mut cache, mut received) = (pool.cache(), Batch::with_capacity(32));
    for round in 0..200 {
        let other = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        // As many as the card reports done at once.
        let mut batch = Batch::with_capacity(32);
        while let Some(mut packet) = other.alloc().filter(|_| batch.len() < 32) {
            packet.append(60).unwrap().fill(1);
            batch.push(packet).unwrap();
        }
        let begun = Instant::now();
        while !batch.is_empty() || nic.tx[0].in_flight() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the frames of pool {round} are not sent");
            nic.rx[0].recv(&mut cache, &mut received);
            nic.tx[0].send(&mut cache, &mut batch);
            cache.free_batch(&mut received);
        }
    }
    nic.close().unwrap();
}
