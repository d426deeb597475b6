//! Who is served: one client at a time. Whoever comes while another is there is told so at once.

use super::closer::Closer;
use super::function::Function;
use super::seldom::Seldom;
use super::session;
use device::vfio_user::message::{self, Header};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long someone who is refused may take to say the first word, which the refusal answers; and how long the next client
/// waits for those before it to be seen out, before it is refused.
const COURTESY: Duration = Duration::from_secs(1);
/// How many of them may be at the door. The oldest has to go when there are more.
const CROWD: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// How long to wait when nobody can be let in, as the process has no descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// The listening socket, and who came in last.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    closing: AtomicBool,
    /// The client that is served or the next to be: gone when its connection is.
    inside: Mutex<Option<UnixStream>>,
    lines: Seldom,
    closer: Closer,
}

/// A client that will be refused.
struct Refused {
    socket: UnixStream,
    until: Instant,
}

impl Door {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self {
            listener,
            closing: AtomicBool::new(false),
            inside: Mutex::default(),
            lines: Seldom::default(),
            closer: Closer::default(),
        }
    }

    /// Ends the service: both threads return.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        // Wakes one thread from poll, and the other from receive. What is closed already needs no waking.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(client) = &*self.inside() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Serves those who are admitted, one after the other.
    pub(super) fn serve(&self, admitted: &Receiver<UnixStream>, function: &mut Function, name: &str) {
        for client in admitted {
            let outcome = session::serve(&client, function, &self.closer);
            // From now on the next client may come in; it waits until the device has let go of this one.
            let _ = client.shutdown(Shutdown::Both);
            function.leave();
            self.closer.close(client);
            match outcome {
                Ok(()) => self.lines.say(|more| tracing::info!("{name}: the client has left{more}")),
                Err(error) => self.lines.say(|more| {
                    tracing::warn!("{name}: the connection to the client has ended: {error}{more}");
                }),
            }
        }
        // Nobody else comes in, as the door is closed.
        let last = self.inside().take();
        last.into_iter().for_each(|client| self.closer.close(client));
    }

    /// Lets clients in, and refuses those who come while another is there.
    pub(super) fn keep(&self, admit: &SyncSender<UnixStream>) {
        let mut refused = VecDeque::new();
        while !self.closing.load(Ordering::SeqCst) {
            let arrived = self.wait(&mut refused);
            if !arrived || self.closing.load(Ordering::SeqCst) {
                continue;
            }
            match self.listener.accept() {
                Ok((client, _)) => self.receive(client, admit, &mut refused),
                Err(_) => thread::sleep(EXHAUSTED),
            }
        }
        refused.into_iter().for_each(|client| self.send_away(client.socket));
        // Those who have connected and were not heard: they would be closed with the listener, by whoever closes that.
        while let Ok((client, _)) = self.listener.accept() {
            self.send_away(client);
        }
    }

    /// Waits until somebody comes, and answers the refused meanwhile; false if nobody has come.
    fn wait(&self, refused: &mut VecDeque<Refused>) -> bool {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(refused.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
        let soon = refused.front().map(|first| first.until.saturating_duration_since(Instant::now()));
        let limit = soon.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        });
        if poll(&mut fds, limit.as_ref()).is_err() {
            return false;
        }
        let spoken: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let now = Instant::now();
        for (client, spoke) in std::mem::take(refused).into_iter().zip(&spoken[1..]) {
            if !*spoke && client.until > now {
                refused.push_back(client);
                continue;
            }
            if *spoke {
                refuse(&client.socket);
            }
            self.send_away(client.socket);
        }
        spoken[0]
    }

    fn receive(&self, client: UnixStream, admit: &SyncSender<UnixStream>, refused: &mut VecDeque<Refused>) {
        let Some(client) = self.admit(client, admit) else { return };
        if refused.len() == CROWD {
            refused.pop_front().into_iter().for_each(|oldest| self.send_away(oldest.socket));
        }
        refused.push_back(Refused { socket: client, until: Instant::now() + COURTESY });
    }

    /// Lets a client in if nobody is inside, and returns those who are not let in.
    fn admit(&self, mut client: UnixStream, admit: &SyncSender<UnixStream>) -> Option<UnixStream> {
        let until = Instant::now() + COURTESY;
        loop {
            let mut inside = self.inside();
            // Whoever closes the door does so before this, or waits for the lock and shuts this client's connection.
            if self.closing.load(Ordering::SeqCst) || !inside.as_ref().is_none_or(is_gone) {
                return Some(client);
            }
            let Ok(handle) = client.try_clone() else { return Some(client) };
            match admit.try_send(client) {
                Ok(()) => {
                    let before = inside.replace(handle);
                    drop(inside);
                    before.into_iter().for_each(|gone| self.closer.close(gone));
                    return None;
                }
                Err(TrySendError::Disconnected(client)) => return Some(client),
                // One client is being seen out, and another that has gone is next.
                Err(TrySendError::Full(back)) if Instant::now() < until => client = back,
                Err(TrySendError::Full(client)) => return Some(client),
            }
            drop(inside);
            thread::sleep(PAUSE);
        }
    }

    /// Ends a connection at once, and closes it when that is possible.
    fn send_away(&self, client: UnixStream) {
        let _ = client.shutdown(Shutdown::Both);
        self.closer.close(client);
    }

    fn inside(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the other side has closed the connection, or this one has.
fn is_gone(client: &UnixStream) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(client, PollFlags::RDHUP)];
    poll(&mut fds, Some(&now)).is_err() || fds[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)
}

/// Answers the first message: the device is busy. What it has of descriptors stays in the socket.
fn refuse(client: &UnixStream) {
    let answer = || -> io::Result<()> {
        let mut bytes = [0; 4096];
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let seen = rustix::net::recvmsg(client, &mut parts, &mut RecvAncillaryBuffer::default(), peek)?;
        if let Some(header) = bytes[..seen.bytes].first_chunk() {
            client.set_nonblocking(true)?;
            message::send(client, Header::from_bytes(*header).error(Errno::BUSY.raw_os_error()), &[], &[])?;
        }
        if !seen.flags.contains(ReturnFlags::CTRUNC) {
            // No descriptors: what has been read does not make the end of the connection a reset.
            rustix::net::recv(client, &mut bytes[..seen.bytes], RecvFlags::DONTWAIT)?;
        }
        Ok(())
    };
    if let Err(error) = answer() {
        tracing::debug!("a client that came while another is served went before it was refused: {error}");
    }
}
