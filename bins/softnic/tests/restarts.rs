//! SIGKILL and restart under load, forty times each: of the server under a driver, of `fwd`, and of the server under
//! `fwd`. No buffer of a pool is lost, and the next port forwards.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use mempool::Batch;
use nic::{Port as _, RxQueue as _, TxQueue as _};
use rustix::process::Signal;
use server::{Process, Servers, pool, until};
use softnic::{SoftControl, VfioUserServer};
use std::process::Command;
use tempfile::TempDir;
use tests::Fwd;

const ROUNDS: usize = 40;
/// Pairs of processes at a time where they mostly wait.
const LANES: usize = 5;
/// Frames that have passed when it is killed.
const LOAD: u64 = 500;
/// Bytes of a frame in a capture: a header of 16, and the 60 of the generator's frames.
const RECORD: u64 = 76;

/// The server dies, a driver in this process loses both its ports and keeps its buffers, and opens them again at the next
/// server.
#[test]
fn the_server_is_killed_under_load() {
    let pool = pool();
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        // Sockets that the last server left behind are in its way.
        let mut servers = Servers::start(folder, &["a?wire=gen", "b?wire=sink"]);
        let (mut input, mut output) = (servers.open("a", &pool), servers.open("b", &pool));
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
        let mut forward = || {
            input.rx[0].recv(&mut cache, &mut batch);
            output.tx[0].send(&mut cache, &mut batch);
            cache.free_batch(&mut batch);
            output.tx[0].counters().packets
        };
        until("the load", || forward() > LOAD);
        servers.process.signal(Signal::KILL);
        // The driver does not know yet, and goes on.
        (0..100).for_each(|_| {
            forward();
        });
        servers.process.end();
        for mut nic in [input, output] {
            let error = nic.port.statistics().unwrap_err().to_string();
            assert!(error.contains("gone") && error.lines().count() == 1, "round {round}: {error}");
            assert!(nic.close().is_err(), "round {round}: nobody was there to be stopped");
        }
        drop((cache, batch));
        assert_eq!(pool.away(), 0, "round {round}: every buffer is home");
        folder = servers.folder;
    }
}

/// `fwd` dies, the server lets go of its memory, and serves the next `fwd`.
#[test]
fn the_client_is_killed_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |name: &str| VfioUserServer::start(&format!("{name}?wire=gen"), &folder.path().join(name)).unwrap();
    let servers = [serve("left"), serve("right")];
    let controls: Vec<SoftControl> = servers.iter().map(VfioUserServer::control).collect();
    let addresses: Vec<String> =
        servers.iter().map(|server| format!("vfio-user:{}", server.socket().display())).collect();
    let sent = || controls.iter().map(|control| control.wire_counters().sent).sum::<u64>();
    for round in 0..ROUNDS {
        let before = sent();
        let mut fwd = Process::start(Command::new(tests::fwd()).arg("l2").args(&addresses));
        until("the load", || {
            assert!(fwd.child.try_wait().unwrap().is_none(), "round {round}: {:?}", fwd.end());
            sent() > before + LOAD
        });
        fwd.signal(Signal::KILL);
        fwd.end();
        until("memory is let go of", || controls.iter().all(|control| control.mappings() == 0));
    }
    let run =
        Fwd::run([&["l2".to_owned()], &addresses[..], &["--json", "--duration", "0.5"].map(String::from)].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.count("/received") > 0);
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops());
    assert_eq!(controls.iter().map(|control| control.violations().0).sum::<u64>(), 0, "no driver error either");
}

/// The server dies under `fwd`, which says so in one line and ends; both start again. Side by side, as `fwd` looks for a dead
/// server once a second.
#[test]
fn the_server_of_fwd_is_killed_under_load() {
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| (0..ROUNDS / LANES).fold(tempfile::tempdir().unwrap(), kill_the_server_of_fwd));
        }
    });
}

fn kill_the_server_of_fwd(folder: TempDir, round: usize) -> TempDir {
    let capture = folder.path().join("capture");
    let output = format!("b?wire=pcap:,{}", capture.display());
    let mut servers = Servers::start(folder, &["a?wire=gen&rate=100000", &output]);
    let mut fwd = Process::start(Command::new(tests::fwd()).args(["l2", &servers.address("a"), &servers.address("b")]));
    until("the load", || {
        std::thread::yield_now();
        assert!(fwd.child.try_wait().unwrap().is_none(), "round {round}: {:?}", fwd.end());
        std::fs::metadata(&capture).unwrap().len() > LOAD * RECORD
    });
    servers.process.signal(Signal::KILL);
    servers.process.end();
    let (code, stderr) = fwd.end();
    assert_eq!(code, Some(1), "round {round}: {stderr}");
    let errors = stderr.lines().filter(|line| line.starts_with("fwd: ")).collect::<Vec<_>>();
    assert!(errors.len() == 1 && errors[0].contains("gone"), "round {round}: {stderr}");
    assert!(!stderr.contains("kept for ever"), "round {round}: {stderr}");
    servers.folder
}
