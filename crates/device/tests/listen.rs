//! Sockets that several want to listen at.

use device::SocketFile;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Barrier;
use std::thread;

#[test]
fn of_those_who_start_at_the_same_moment_one_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    for round in 0..300 {
        // Over a socket that is left behind, and where there is none.
        if round % 2 == 0 {
            drop(UnixListener::bind(&path).unwrap());
        }
        let (ready, tried) = (Barrier::new(4), Barrier::new(4));
        let listens = || {
            ready.wait();
            let listens = SocketFile::listen(&path, 8, None);
            tried.wait();
            if let Err(error) = &listens {
                // Who has the lock may have to wait for a processor.
                assert!(matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::ResourceBusy), "{error}");
            }
            listens.ok()
        };
        let mut won: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(listens)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.len(), 1, "round {round}");
        let (listener, file) = won.remove(0);
        UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        drop(file);
        assert!(!path.exists());
    }
}

#[test]
fn who_finds_the_folder_locked_is_refused_and_leaves_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    drop(UnixListener::bind(&path).unwrap());
    let inode = path.metadata().unwrap().ino();
    // As another process has it between two of its steps.
    let other = File::open(&folder).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let error = SocketFile::listen(&path, 1, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains(&format!("folder {} locked", folder.path().display())), "{error}");
    assert_eq!(path.metadata().unwrap().ino(), inode, "not replaced");
    drop(other);
    // Nobody listens at what is there. Whether the next one is another inode says nothing: a kernel may use a number again.
    assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (_listener, _file) = SocketFile::listen(&path, 1, None).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_folder_that_is_not_there_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(SocketFile::listen(&folder.path().join("no/a.sock"), 1, None).unwrap_err().kind(), ErrorKind::NotFound);
}
