//! Who is served: one client at a time. Whoever comes while another is there is told so at once.

use super::function::Function;
use super::seldom::Seldom;
use super::session;
use device::vfio_user::message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long someone who is refused may take to say the first word, which the refusal answers.
const COURTESY: Duration = Duration::from_secs(1);
/// How many of them may be at the door. The oldest has to go when there are more.
const CROWD: usize = 16;
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
}

/// A client that will be refused.
struct Refused {
    socket: UnixStream,
    until: Instant,
}

impl Door {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, closing: AtomicBool::new(false), inside: Mutex::default(), lines: Seldom::default() }
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
            let outcome = session::serve(&client, function);
            // From now on the next client may come in; it waits until the device has let go of this one.
            let _ = client.shutdown(Shutdown::Both);
            function.leave();
            match outcome {
                Ok(()) => self.lines.say(|more| tracing::info!("{name}: the client has left{more}")),
                Err(error) => self.lines.say(|more| {
                    tracing::warn!("{name}: the connection to the client has ended: {error}{more}");
                }),
            }
        }
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
        let mut heard = spoken[1..].iter();
        refused.retain(|client| {
            let spoke = heard.next().is_some_and(|spoke| *spoke);
            if spoke {
                refuse(&client.socket);
            }
            !spoke && client.until > now
        });
        spoken[0]
    }

    fn receive(&self, client: UnixStream, admit: &SyncSender<UnixStream>, refused: &mut VecDeque<Refused>) {
        let mut inside = self.inside();
        if inside.as_ref().is_none_or(is_gone)
            && let Ok(handle) = client.try_clone()
        {
            *inside = Some(handle);
            // Whoever closes the door does so before or after this, and shuts this client's connection in the second case.
            let shut = self.closing.load(Ordering::SeqCst);
            drop(inside);
            if !shut {
                // Waits while one client is being seen out and another is next: as long as their messages may take.
                let _ = admit.send(client);
            }
            return;
        }
        drop(inside);
        if refused.len() == CROWD {
            refused.pop_front();
        }
        refused.push_back(Refused { socket: client, until: Instant::now() + COURTESY });
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

/// Answers the first message: the device is busy.
fn refuse(client: &UnixStream) {
    let answer = || -> io::Result<()> {
        client.set_nonblocking(true)?;
        if let Some(first) = message::receive(client, None)? {
            message::send(client, first.header.error(Errno::BUSY.raw_os_error()), &[], &[])?;
        }
        Ok(())
    };
    if let Err(error) = answer() {
        tracing::debug!("a client that came while another is served went before it was refused: {error}");
    }
}
