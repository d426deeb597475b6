//! Which process has to end before memory counts as out of a server's reach: the one that answers, whoever had listened.

use crate::server::{HOUR, Server, limit, peer};
use device::vfio_user::message::{self, command};
use device::{Device as _, VfioUserDevice};
use rustix::process::{Pid, Signal};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

const ROLE: &str = "RINGWAY_TEST_ROLE";
const FOLDER: &str = "RINGWAY_TEST_FOLDER";

/// This program again, to play `role`.
fn play(role: &str, folder: &Path, input: Stdio) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::a_role_in_the_tests_of_processes"]).env(ROLE, role).env(FOLDER, folder);
    command.stdin(input).stdout(Stdio::null()).spawn().unwrap()
}

/// Says which process `role` is.
fn tell(folder: &Path, role: &std::process::Child) {
    std::fs::write(folder.join("written"), role.id().to_string()).unwrap();
    std::fs::rename(folder.join("written"), folder.join("pid")).unwrap();
}

/// Which process it was said to be.
fn told(folder: &Path) -> Pid {
    loop {
        let pid = std::fs::read_to_string(folder.join("pid")).unwrap_or_default().parse().ok();
        match pid.and_then(Pid::from_raw) {
            Some(pid) => return pid,
            None => std::thread::yield_now(),
        }
    }
}

/// Nothing by itself.
#[test]
#[expect(clippy::zombie_processes, reason = "the process that listens ends before the one that answers")]
fn a_role_in_the_tests_of_processes() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    if role == "listen" {
        let listener = UnixListener::bind(folder.join("nic.sock")).unwrap();
        let answering = play("answer", &folder, OwnedFd::from(listener).into());
        tell(&folder, &answering);
        // Ends with its input.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        return;
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    if role == "begin" {
        let socket = UnixStream::from(input);
        let asked = message::receive(&socket, None).unwrap().unwrap();
        let body = b"\0\0\0\0{\"capabilities\":{}}\0";
        message::send(&socket, asked.header.reply(body.len()), &[body], &[]).unwrap();
        tell(&folder, &play("go on", &folder, OwnedFd::from(socket).into()));
        return;
    }
    let socket = if role == "go on" { input.into() } else { UnixListener::from(input).accept().unwrap().0 };
    Server::default().serve(&socket, |asked| asked.header.command != command::DEVICE_GET_IRQ_INFO);
    // The connection has ended, and the process has not.
    socket.shutdown(Shutdown::Both).unwrap();
    std::thread::sleep(HOUR / 60);
}

#[test]
fn p5_a_listener_that_has_ended_does_not_vouch_for_the_process_that_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut listening = play("listen", folder.path(), Stdio::piped());
    let pid = told(folder.path());
    let nic = VfioUserDevice::open(&folder.path().join("nic.sock"), peer(), &limit(HOUR).begin()).unwrap();
    nic.set_deadline(None);
    drop(listening.stdin.take());
    listening.wait().unwrap();
    nic.enable_msix(1).unwrap_err();
    assert!(nic.reset().is_err(), "the process that answered lives, and may have the memory mapped");

    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // Each try waits for the end.
    let deadline = limit(HOUR / 60).begin();
    while nic.reset().is_err() {
        deadline.check().expect("it has ended, so the device is quiet");
    }
}

#[test]
fn a_process_that_answered_first_does_not_vouch_for_the_one_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut beginning = play("begin", folder.path(), OwnedFd::from(theirs).into());
    let nic = VfioUserDevice::over(ours, peer(), &limit(HOUR).begin()).unwrap();
    nic.set_deadline(None);
    beginning.wait().unwrap();
    let pid = told(folder.path());
    nic.enable_msix(1).unwrap_err();
    let reset = nic.reset();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert!(reset.is_err(), "the process that went on lived, and may have had the memory mapped");
}
