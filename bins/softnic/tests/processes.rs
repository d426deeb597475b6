//! Device and driver in different processes: traffic, and the death of either.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use mempool::Batch;
use nic::{Port as _, RxQueue as _, TxQueue as _};
use rustix::process::Signal;
use server::{LIMIT, Process, Servers, pool, until};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use tests::{Capture, Fwd, frame, number};

/// A classic capture file, written from the format's description.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let header: [u32; 6] = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        [0, 0, len, len].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_byte_crosses_two_devices_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> = (0..20_000).map(|n| frame(n, 60 + n as usize * 7 % 1455)).collect();
    write_capture(&folder.path().join("in.pcap"), &frames);
    let wires = [("in", "in.pcap", ""), ("out", "", "out.pcap")].map(|(name, input, output)| {
        let file =
            |name: &str| if name.is_empty() { String::new() } else { folder.path().join(name).display().to_string() };
        format!("{name}?wire=pcap:{},{}", file(input), file(output))
    });
    let servers = Servers::start(folder, &[&wires[0], &wires[1]]);
    let pool = pool();
    let (mut input, mut output) = (servers.open("in", &pool), servers.open("out", &pool));
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    until("all frames are forwarded", || {
        input.rx[0].recv(&mut cache, &mut batch);
        while !batch.is_empty() {
            output.tx[0].send(&mut cache, &mut batch);
        }
        output.tx[0].counters().packets == 20_000
    });
    until("the device has sent them", || output.port.statistics().unwrap().tx_packets == 20_000);
    assert_eq!(input.port.statistics().unwrap().rx_packets, 20_000);
    input.close().unwrap();
    output.close().unwrap();
    drop((cache, batch));
    assert_eq!(pool.away(), 0, "every buffer is home");
    let folder = servers.stop();
    assert_eq!(Capture::read(&folder.path().join("out.pcap")).frames, frames);
    assert!(!folder.path().join("in").exists(), "sockets are removed");
}

#[test]
fn two_devices_of_one_process_are_wired_back_to_back() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["left?wire=peer:right", "right"]);
    let pool = pool();
    let (mut left, mut right) = (servers.open("left", &pool), servers.open("right", &pool));
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    let mut send = |number: u32| {
        let mut packet = cache.alloc().unwrap();
        packet.append(60).unwrap().copy_from_slice(&frame(number, 60));
        batch.push(packet).unwrap();
        let sent = left.tx[0].send(&mut cache, &mut batch) == 1;
        cache.free_batch(&mut batch);
        sent
    };
    let (mut right_cache, mut arrived) = (pool.cache(), Batch::with_capacity(64));
    let mut receive = || {
        right.rx[0].recv(&mut right_cache, &mut arrived);
        let numbers: Vec<u32> = arrived.iter().map(|packet| number(packet.data())).collect();
        right_cache.free_batch(&mut arrived);
        numbers
    };
    // Frames are lost while the other end is not ready, as on any cable.
    until("the first frame has crossed", || {
        send(u32::MAX);
        !receive().is_empty()
    });
    let (mut sent, mut received) = (0, Vec::new());
    until("a thousand frames have crossed", || {
        if sent < 1000 && send(sent) {
            sent += 1;
        }
        received.extend(receive().into_iter().filter(|number| *number != u32::MAX));
        received.len() == 1000
    });
    assert!(received.iter().copied().eq(0..1000));
    left.close().unwrap();
    right.close().unwrap();
    servers.stop();
}

#[test]
fn frames_that_nobody_took_are_printed_at_the_end() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["near?wire=peer:far", "far"]);
    let pool = pool();
    // No driver receives at the far end.
    let mut near = servers.open("near", &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(8));
    for n in 0..7 {
        let mut packet = cache.alloc().unwrap();
        packet.append(60).unwrap().copy_from_slice(&frame(n, 60));
        batch.push(packet).unwrap();
    }
    assert_eq!(near.tx[0].send(&mut cache, &mut batch), 7);
    until("they have left", || near.port.statistics().unwrap().tx_packets == 7);
    near.close().unwrap();
    let line = servers.stop_and_tell("near");
    assert!(line.ends_with("0 frames offered, 0 delivered, 0 sent, 7 lost"), "{line}");
}

#[test]
fn a_server_killed_in_mid_traffic_is_a_typed_error_and_the_forwarder_ends() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen", "b?wire=gen"]);
    let mut fwd = Process::start(Command::new(tests::fwd()).args(["l2", &servers.address("a"), &servers.address("b")]));
    fwd.wait_for("pps");
    servers.process.signal(Signal::KILL);
    let (code, stderr) = fwd.end();
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("fwd: vfio-user:/") && last.contains("gone"), "{stderr}");
    assert!(!stderr.contains("kept for ever"), "a process that has ended reaches no memory: {stderr}");
}

#[test]
fn a_driver_of_a_killed_server_says_gone_and_gets_its_memory_back() {
    let mut servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen"]);
    let pool = pool();
    let mut nic = servers.open("a", &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    until("frames arrive", || !nic.rx[0].recv(&mut cache, &mut batch).is_empty());
    cache.free_batch(&mut batch);
    servers.process.signal(Signal::KILL);
    servers.process.end();
    let error = nic.port.statistics().unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(nic.close().is_err());
    drop((cache, batch));
    assert_eq!(pool.away(), 0, "the rings' buffers too");
}

#[test]
fn a_driver_of_a_server_that_hangs_does_not_hang() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen"]);
    let pool = pool();
    let mut nic = servers.open("a", &pool);
    servers.process.stop();
    let begun = Instant::now();
    let error = nic.port.statistics().unwrap_err();
    assert!(error.to_string().contains("gone") && begun.elapsed() < LIMIT, "{error}");
    // It may come to again, and then it would still reach the memory, which is therefore kept.
    assert!(nic.close().is_err());
    servers.process.signal(Signal::CONT);
    assert!(pool.away() > 0);
}

#[test]
fn a_client_killed_in_mid_traffic_leaves_devices_for_the_next() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen", "b?wire=gen"]);
    let addresses = [servers.address("a"), servers.address("b")];
    for _ in 0..3 {
        let mut fwd = Process::start(Command::new(tests::fwd()).arg("l2").args(&addresses));
        fwd.wait_for("pps");
        fwd.signal(Signal::KILL);
        fwd.end();
    }
    let run =
        Fwd::run([&["l2".to_owned()], &addresses[..], &["--json", "--duration", "0.5"].map(String::from)].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.count("/received") > 0);
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops());
    servers.stop();
}

#[test]
fn mistakes_are_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, nowhere, long) = (path("x.sock"), path("no/such/folder"), "x".repeat(200));
    let (socket, nowhere, long) = (socket.as_str(), nowhere.as_str(), long.as_str());
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    for (arguments, code, words) in [
        (&[][..], 2, &["SOCKET", "--help"][..]),
        (&[socket], 2, &["x.sock", "no device"]),
        (&[socket, "a?wire=string"], 2, &["string", "gen"]),
        (&["x.sock", "a", socket, "b"], 2, &["x.sock", "named for two devices"]),
        (&[file, "a"], 1, &[file, "a file and no socket", "another path"]),
        (&["", "a"], 2, &["\"\": no path of a socket"]),
        (&[socket, "a", "b.sock", "a"], 2, &["busy"]),
        (&[socket, "a?wire=peer:c"], 2, &["a?wire=peer:c", "c is none of the devices"]),
        (&[socket, "a?wire=peer:b", "b.sock", "b?wire=gen"], 2, &["b", "a", "wire of its own"]),
        (&[socket, "a?wire=gen&size=64&size=65"], 2, &["size is given twice"]),
        (&[socket, "a?wire=tap:tap%d"], 2, &["tap:tap%d", "none of them %"]),
        (&[socket, "a?wires=gen"], 2, &["wires", "allowed are wire"]),
        (&[nowhere, "a"], 1, &["no/such/folder", "folder that you may write to"]),
        (&[long, "a"], 1, &["xxx", "107 bytes"]),
        (&[socket, "a", "b.sock", "b", "--trace", "t"], 2, &["--trace", "write trace=FILE into the address of each"]),
        (&[socket, "a?trace=t", "--trace", "t"], 2, &["trace is given twice"]),
        (&[socket, "a", "--trace", "t&mac=1"], 2, &["--trace t&mac=1", "another name"]),
        (&[socket, "a", "--trace", "no/such/folder/t"], 1, &["no/such/folder/t"]),
        (&[socket, "a", "--trace-reads"], 2, &["--trace"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        let Output { status, stderr, .. } = command.args(arguments).current_dir(&folder).output().unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("softnic: ") && message.lines().count() == 1, "{message}");
        for word in words {
            assert!(message.contains(word), "{arguments:?}: no \"{word}\" in {message}");
        }
    }
    assert!(folder.path().read_dir().unwrap().next().is_none(), "no socket is left");
}

#[test]
fn an_option_traces_the_only_device() {
    for (spec, reads) in [("a", false), ("a?id=x540", true)] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        command.current_dir(&folder).args(["a", spec, "--trace", "registers.txt"]);
        let mut process = Process::start(if reads { command.arg("--trace-reads") } else { &mut command });
        process.wait_for("ready");
        let servers = Servers { process, folder };
        servers.open("a", &pool()).close().unwrap();
        let folder = servers.stop();
        let trace = std::fs::read_to_string(folder.path().join("registers.txt")).unwrap();
        assert!(trace.starts_with("# register trace 1: a 8086:") && trace.contains(" RDT[0]"), "{trace}");
        assert_eq!(trace.lines().any(|line| line.contains(" STATUS")), reads, "which is read only");
    }
}

#[test]
fn one_socket_is_named_for_two_devices_by_whichever_way() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("real/deeper")).unwrap();
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    for [first, second] in [["real/x.sock", "link/x.sock"], ["real/x.sock", "real/deeper/../x.sock"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        let output = command.args([first, "a", second, "b"]).current_dir(&folder).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(second) && message.contains("named for two devices"), "{message}");
    }
}

#[test]
fn a_socket_of_another_process_is_refused() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a"]);
    let mut second = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let Output { status, stderr, .. } = second.arg(servers.socket("a")).arg("b").output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("another process serves there; end it, or choose another path"), "{message}");
    servers.stop();
}

/// A limit of the file's size is what a full disk is: the same failure of the same call, at a place that can be chosen.
#[test]
fn s4_a_capture_that_cannot_be_written_is_exit_code_1_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, output) = (folder.path().join("a"), folder.path().join("out.pcap"));
    let spec = format!("a?wire=pcap:,{}", output.display());
    let shell = "ulimit -f 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", shell, env!("CARGO_BIN_EXE_softnic")]).arg(&socket).arg(&spec);
    let mut process = Process::start(&mut command);
    process.wait_for("ready");
    let servers = Servers { process, folder };
    let pool = pool();
    let mut nic = servers.open("a", &pool);
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
    until("a hundred frames are sent", || {
        let mut packet = cache.alloc().unwrap();
        packet.append(1500).unwrap().copy_from_slice(&frame(1, 1500));
        batch.push(packet).unwrap();
        nic.tx[0].send(&mut cache, &mut batch);
        cache.free_batch(&mut batch);
        nic.tx[0].counters().packets == 100
    });
    until("the device has sent them", || nic.port.statistics().unwrap().tx_packets == 100);
    nic.close().unwrap();
    let Servers { mut process, folder } = servers;
    process.signal(Signal::TERM);
    let (code, stderr) = process.end();
    assert_eq!(code, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    let whole = Capture::read(&output).frames.len();
    assert!(
        last.starts_with("softnic: cannot write ") && last.contains("out.pcap") && last.contains("too large"),
        "{last}"
    );
    assert!(whole > 0 && last.contains(&format!("{} sent frames", 100 - whole)), "{whole} are there: {last}");
    drop(folder);
}

#[test]
fn s4_nobody_who_reads_its_output_ends_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a");
    // Closed at once; and a device that takes nothing.
    for full in [false, true] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        command.arg(&socket).arg("a?wire=gen").stdin(Stdio::null()).stderr(Stdio::piped());
        let output = std::fs::File::options().write(true).open("/dev/full").unwrap();
        command.stdout(if full { Stdio::from(output) } else { Stdio::piped() });
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        until("a server that listens", || UnixStream::connect(&socket).is_ok());
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::HUP).unwrap();
        let pool = pool();
        let nic = server::open(&format!("vfio-user:{}", socket.display()), &pool);
        nic.close().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "full {full}");
    }
}

/// The server counts what it has delivered, and knows nothing of `fwd`'s account.
#[test]
fn what_was_delivered_when_a_run_ends_is_in_its_account() {
    let servers = Servers::start(tempfile::tempdir().unwrap(), &["a?wire=gen", "b?wire=sink"]);
    let (a, b) = (servers.address("a"), servers.address("b"));
    let routes = servers.folder.path().join("routes");
    std::fs::write(&routes, "0.0.0.0/0 via 02:00:00:00:00:02 port 1\n").unwrap();
    let mut received = 0;
    for ports in [
        &["rxonly", &a, "--ring-size", "4096"][..],
        &["l2", &a, &b],
        &["l3", &a, &b, "--promiscuous", "--routes", routes.to_str().unwrap()],
    ] {
        let mut fwd = Command::new(tests::fwd());
        let output = fwd.args(ports).args(["--duration", "0.2", "--json", "--quiet"]).output().unwrap();
        assert!(output.status.success(), "{ports:?}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        received += report["received"].as_u64().unwrap();
    }
    let Servers { mut process, folder } = servers;
    process.signal(Signal::TERM);
    let line = process.line(&folder.path().join("a").display().to_string());
    let delivered = line.split(", ").find_map(|part| part.strip_suffix(" delivered")).unwrap().replace(',', "");
    assert!(received > 0);
    assert_eq!(delivered.parse(), Ok(received), "{line}");
}
