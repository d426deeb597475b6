//! The file of a server's socket: whose it is, and when it goes.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use softnic::VfioUserServer;
use std::os::unix::net::UnixStream;

/// A listener that never accepts, and whose backlog is full: who connects to it and waits does so for ever.
#[test]
fn a_full_listener_is_one_that_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.sock");
    let address = SocketAddrUnix::new(&path).unwrap();
    let socket = |flags| rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = socket(SocketFlags::CLOEXEC);
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        match rustix::net::connect(&client, &address) {
            Ok(()) => waiting.push(client),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                break;
            }
        }
    }
    let error = VfioUserServer::start("behind-full?wire=sink", &path).unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{error} {cause}").contains("in use"), "{error}: {cause}");
    assert!(path.exists());
}

#[test]
fn a_server_that_ends_leaves_the_socket_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.sock");
    let first = VfioUserServer::start("first-here?wire=sink", &path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = VfioUserServer::start("second-here?wire=sink", &path).unwrap();
    drop(first);
    UnixStream::connect(&path).unwrap();
    drop(second);
    assert!(!path.exists(), "its own goes with it");
}

#[test]
fn a_server_that_does_not_start_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.sock"), folder.path().join("b.sock"));
    let _server = VfioUserServer::start("only-one?wire=sink", &first).unwrap();
    VfioUserServer::start("only-one?wire=sink", &second).unwrap_err();
    assert!(first.exists() && !second.exists());
}

/// As of two servers that are started at the same moment: the other is about to bind and to listen.
#[test]
fn a_server_does_not_take_a_path_while_another_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.sock");
    let other = std::fs::File::open(&folder).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = VfioUserServer::start("late?wire=sink", &path).unwrap_err().to_string();
    assert!(error.contains("nic.sock") && error.contains("locked") && error.contains("another folder"), "{error}");
    assert!(!path.exists());
    drop(other);
    VfioUserServer::start("late?wire=sink", &path).unwrap();
}
