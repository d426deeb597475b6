//! Answers that cannot be.

use crate::server::peer;
use device::vfio_user::message::{self, Header, command};
use device::{TimeLimit, VfioUserDevice};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};

/// Opens a device whose server does `serve` with the connection; returns the error.
fn refusal(serve: impl FnOnce(UnixStream) + Send + 'static) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let message = VfioUserDevice::open(&path, peer(), &TimeLimit::default().begin()).unwrap_err().to_string();
    server.join().unwrap();
    assert!(message.contains("vfio-user:/") && message.contains("nic.sock"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

fn answer(socket: &UnixStream, body: &[u8]) {
    let asked = message::receive(socket, None).unwrap().unwrap();
    message::send(socket, asked.header.reply(body.len()), &[body], &[]).unwrap();
}

const VERSION: &[u8] = b"\0\0\0\0{\"capabilities\":{}}\0";

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (hold, held) = std::sync::mpsc::channel();
    let message = refusal(move |socket| hold.send(socket).unwrap());
    assert!(message.contains("not done within 5 s") && message.contains("another client"), "{message}");
    drop(held);
}

#[test]
fn bad_answers_to_the_version_are_refused() {
    for (body, word) in [
        (&b"\x01\0\0\0{}\0"[..], "version 1"),
        (b"\0\0", "cut short"),
        (b"\0\0\0\0{\"capabilities\"", "no JSON"),
        (b"\0\0\0\0\xFF\xFF\0", "no JSON"),
    ] {
        let message = refusal(move |socket| answer(&socket, body));
        assert!(message.contains(word), "{message}");
    }
    let message = refusal(drop);
    assert!(message.contains("closed") || message.contains("reset") || message.contains("Broken pipe"), "{message}");
    let message = refusal(|mut socket| {
        message::receive(&socket, None).unwrap();
        socket.write_all(&[0xFF; 64]).unwrap();
    });
    assert!(message.contains("a message of 4294967295 bytes"), "{message}");
    let message = refusal(|socket| {
        message::send(&socket, Header::command(7, command::VERSION, 0).reply(0), &[], &[]).unwrap();
        let _ = message::receive(&socket, None);
    });
    assert!(message.contains("a reply to something else"), "{message}");
}

#[test]
fn a_server_that_asks_is_answered_and_its_own_answer_still_counts() {
    let message = refusal(|socket| {
        let asked = message::receive(&socket, None).unwrap().unwrap();
        message::send(&socket, Header::command(9, 11, 0), &[], &[]).unwrap();
        let refused = message::receive(&socket, None).unwrap().unwrap();
        assert_eq!((refused.header.id, refused.header.flags, refused.header.errno), (9, 0x21, 95));
        message::send(&socket, asked.header.reply(VERSION.len()), &[VERSION], &[]).unwrap();
        answer(&socket, &[0; 16]);
    });
    assert!(message.contains("no PCI device"), "{message}");
}

#[test]
fn devices_that_are_not_as_they_must_be_are_refused() {
    let info = |regions: u32| message::words([16, 2, regions, 5]);
    let message = refusal(move |socket| [VERSION, &info(7)].iter().for_each(|body| answer(&socket, body)));
    assert!(message.contains("no PCI device"), "{message}");
    let message = refusal(move |socket| [VERSION, &info(9)[..8]].iter().for_each(|body| answer(&socket, body)));
    assert!(message.contains("cut short"), "{message}");
    // Configuration space reads that have no data.
    let message = refusal(move |socket| [VERSION, &info(9), &[0; 16]].iter().for_each(|body| answer(&socket, body)));
    assert!(message.contains("cut short"), "{message}");
    // Ids, class, and then a region 0 of no bytes.
    let data = [0; 20];
    let region = [0; 32];
    let message =
        refusal(move |socket| [VERSION, &info(9), &data, &data, &region].iter().for_each(|body| answer(&socket, body)));
    assert!(message.contains("no base address region 0"), "{message}");
}

/// With every byte come as many as a sender likes: 16 of a message are taken, and one more ends the connection.
#[test]
fn a_message_with_more_descriptors_than_it_may_have_is_refused() {
    let header = Header::command(1, command::DMA_MAP, 4).to_bytes();
    for pieces in [[16, 0], [9, 7], [17, 0], [9, 8]] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_, spare) = std::io::pipe().unwrap();
        for (bytes, many) in [&header[..], &[0; 4]].iter().zip(pieces) {
            let fds = vec![spare.as_fd(); many];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(many == 0 || control.push(SendAncillaryMessage::ScmRights(&fds)));
            rustix::net::sendmsg(&theirs, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        }
        match message::receive(&ours, None) {
            Ok(message) => assert_eq!((message.unwrap().fds.len(), pieces.iter().sum()), (16, 16)),
            Err(error) => {
                assert_eq!(pieces.iter().sum::<usize>(), 17);
                assert!(error.to_string().contains("more descriptors than a message has"), "{error}");
            }
        }
    }
}
