//! The socket: a thread that waits for clients, and disturbs nobody else.

use super::desk::{Desk, Reply};
use super::figures::Figures;
use crate::args::ControlAddress;
use ::control::{Request, Session, Subscription, done, refused};
use anyhow::{Context as _, anyhow};
use cli::exit::Failure;
use device::{EventFd, SocketFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients at a time; of more, one goes ([`Serving::make_room`]).
const MOST_CLIENTS: usize = 256;
/// Connections that may wait to be accepted.
const BACKLOG: u16 = 128;
/// What is accepted in a round.
const MOST_AT_ONCE: usize = 64;
/// Bytes that are read at a time.
const READ: usize = 16_384;
/// How often clients that take nothing are looked for, and how long no more are accepted for want of descriptors.
const PAUSE: Duration = Duration::from_millis(500);

/// A socket that listens. Its file is removed with it.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(SocketFile, UnixListener),
    Tcp(TcpListener),
}

/// The thread that serves clients.
#[derive(Debug)]
pub(super) struct Server {
    thread: JoinHandle<()>,
    /// Wakes it when the run is over.
    over: Arc<EventFd>,
}

/// Lines with figures: the answer to `get`, and what is told again and again.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Told<'a> {
    Answer { ok: bool, figures: &'a Figures },
    Event { event: &'static str, figures: &'a Figures },
    End { event: &'static str },
}

impl<'a> Told<'a> {
    /// The answer to `get`.
    pub(super) fn figures(figures: &'a Figures) -> Self {
        Self::Answer { ok: true, figures }
    }
}

/// What carries bytes.
trait Connection: Read + Write + AsFd + Send {}

impl<C: Read + Write + AsFd + Send> Connection for C {}

struct Client {
    connection: Box<dyn Connection>,
    session: Session,
    /// It sends no more.
    at_end: bool,
    /// Nothing more comes of it.
    is_gone: bool,
    /// What it was told last.
    told: Option<Figures>,
    /// It has asked for something once; and when something last came of it, or it connected.
    has_asked: bool,
    heard: Duration,
}

impl Listener {
    /// Listens.
    pub(crate) fn open(address: &ControlAddress) -> Result<Self, Failure> {
        match address {
            ControlAddress::Unix(path) => {
                let name = path.display();
                let listen = SocketFile::listen(path, BACKLOG, Some(0o600)).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        anyhow!("--control {name}: a program listens there, or it is no socket; name another path")
                    }
                    _ => anyhow!("--control {name}: {error}; name a path in a folder that you may write to"),
                });
                let (listener, file) = listen?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(file, listener))
            }
            ControlAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("--control {address}: cannot listen; name another port"))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
        }
    }

    /// Its file, if it has one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(file, _) => Some(file.path()),
            Self::Tcp(_) => None,
        }
    }

    fn accept(&self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Unix(_, listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // A line is to arrive when it is written.
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(file, _) => file.path().display().fmt(f),
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
        }
    }
}

impl Server {
    /// Serves clients from now on.
    pub(super) fn start(listener: Listener, desk: Arc<Desk>) -> Result<Self, Failure> {
        let over = Arc::new(EventFd::new()?);
        let theirs = Arc::clone(&over);
        let serve = move || {
            let begun = Instant::now();
            Serving { listener, desk, over: theirs, begun, clients: Vec::new(), rests_until: Duration::ZERO }.run();
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(Self { thread, over })
    }

    /// Tells clients of the end, and ends it, once the desk is closed.
    pub(super) fn end(self) {
        self.over.signal();
        // If it panicked, the message has been printed; the run is not worse for it.
        let _ = self.thread.join();
    }
}

struct Serving {
    listener: Listener,
    desk: Arc<Desk>,
    over: Arc<EventFd>,
    begun: Instant,
    clients: Vec<Client>,
    /// Nothing is accepted before.
    rests_until: Duration,
}

impl Serving {
    fn run(mut self) {
        while !self.desk.is_closed() {
            let ready = self.wait();
            let now = self.begun.elapsed();
            if ready.is_none_or(|ready| ready) {
                self.accept(now);
            }
            self.round(now);
            self.clear_up(now);
        }
        let now = self.begun.elapsed();
        for client in &mut self.clients {
            client.session.say(&Told::End { event: "end" });
            client.write(now);
        }
    }

    /// Waits until somebody wants something. Returns whether there is somebody new, if that is known.
    fn wait(&mut self) -> Option<bool> {
        let now = self.begun.elapsed();
        let accepts = now >= self.rests_until;
        let mut fds = vec![PollFd::new(&*self.over, PollFlags::IN)];
        fds.push(match &self.listener {
            Listener::Unix(_, listener) => {
                PollFd::new(listener, if accepts { PollFlags::IN } else { PollFlags::empty() })
            }
            Listener::Tcp(listener) => PollFd::new(listener, if accepts { PollFlags::IN } else { PollFlags::empty() }),
        });
        let mut limit = PAUSE;
        for client in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.session.wants_more() && !client.at_end);
            flags.set(PollFlags::OUT, !client.session.outgoing().is_empty());
            fds.push(PollFd::from_borrowed_fd(client.connection.as_fd(), flags));
            if let Some(subscription) = client.session.subscription {
                limit = limit.min(subscription.next.saturating_sub(now));
            }
            if client.session.has_requests() && client.session.outgoing().is_empty() {
                limit = Duration::ZERO;
            }
        }
        let limit = Timespec::try_from(limit).ok();
        // An interrupted wait is a short one.
        poll(&mut fds, limit.as_ref()).ok()?;
        let is_new = accepts && !fds[1].revents().is_empty();
        let hung_up: Vec<_> =
            fds[2..].iter().map(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR)).collect();
        for (client, hung_up) in self.clients.iter_mut().zip(hung_up) {
            // Else reading or writing says so.
            client.is_gone |= hung_up && client.at_end;
        }
        Some(is_new)
    }

    fn accept(&mut self, now: Duration) {
        for _ in 0..MOST_AT_ONCE {
            match self.listener.accept() {
                Ok(mut connection) if self.clients.len() >= MOST_CLIENTS && !self.make_room(now) => {
                    turn_away(&mut *connection, "all have subscribed, or wait for an answer; close one");
                }
                Ok(connection) => self.clients.push(Client::new(connection, now)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!("--control: {error}; nobody is accepted for half a second");
                    self.rests_until = now + PAUSE;
                    return;
                }
            }
        }
    }

    /// Turns away the client that nothing has come of for longest, first of those that have never asked for anything, so that none locks
    /// others out. What has come of it, and was not read yet, is its word too. Returns false if all have subscribed, or wait for an answer.
    fn make_room(&mut self, now: Duration) -> bool {
        let is_silent = |client: &Client| {
            let session = &client.session;
            session.subscription.is_none() && !session.has_requests() && session.outgoing().is_empty()
        };
        loop {
            let silent = self.clients.iter().enumerate().filter(|(_, client)| is_silent(client));
            let Some((longest, _)) = silent.min_by_key(|(_, client)| (client.has_asked, client.heard)) else {
                return false;
            };
            // Each is read once: then it was heard now.
            let client = &mut self.clients[longest];
            let heard = client.heard;
            client.read(now);
            if client.heard > heard || !is_silent(client) {
                continue;
            }
            turn_away(&mut *self.clients.remove(longest).connection, "this one was silent for longest; connect again");
            return true;
        }
    }

    /// Does one request of each client, whatever more it has sent, and tells each what is due. What orders is done together. Once the run
    /// is over nothing is done any more.
    fn round(&mut self, now: Duration) {
        let mut orders = Vec::new();
        for (index, client) in self.clients.iter_mut().enumerate() {
            if self.desk.is_closed() {
                return;
            }
            client.read(now);
            orders.extend(client.answer(&self.desk, now).map(|order| (index, order)));
        }
        if !orders.is_empty() {
            let requests: Vec<_> = orders.iter().map(|(_, order)| order).collect();
            for ((index, _), result) in orders.iter().zip(self.desk.order_all(&requests)) {
                match result {
                    Ok(()) => self.clients[*index].session.say(&done()),
                    Err(why) => self.clients[*index].session.say(&refused(&why)),
                }
            }
        }
        self.clients.iter_mut().for_each(|client| client.write(now));
    }

    /// Lets those go that have gone, that have nothing more to say, or that do not read.
    fn clear_up(&mut self, now: Duration) {
        let mut dropped = 0;
        self.clients.retain(|client| {
            let is_stuck = client.session.is_overrun(now);
            dropped += u64::from(is_stuck);
            !(client.is_gone || is_stuck || client.is_finished())
        });
        if dropped > 0 {
            let before = self.desk.dropped.fetch_add(dropped, Ordering::Relaxed);
            tracing::warn!("--control: {} clients were dropped, as they did not read", before + dropped);
        }
        self.desk.clients.store(self.clients.len() as u64, Ordering::Relaxed);
    }
}

/// Tells a connection, whose place another has, why.
fn turn_away(connection: &mut dyn Connection, why: &str) {
    if let Ok(mut line) = serde_json::to_vec(&refused(&format!("there are {MOST_CLIENTS} clients already; {why}"))) {
        line.push(b'\n');
        // Whom nothing else waits for has room for it.
        let _ = connection.write(&line);
    }
    // What was not read when a connection is closed would reset it, and who had written first might lose the line.
    let _ = connection.read(&mut [0; READ]);
}

impl Client {
    fn new(connection: Box<dyn Connection>, now: Duration) -> Self {
        let session = Session::new();
        Self { connection, session, at_end: false, is_gone: false, told: None, has_asked: false, heard: now }
    }

    /// Takes what has come, as long as what came before is answered.
    fn read(&mut self, now: Duration) {
        if self.at_end || !self.session.wants_more() {
            return;
        }
        let mut bytes = [0; READ];
        match self.connection.read(&mut bytes) {
            Ok(0) => {
                self.at_end = true;
                self.session.receive_end();
            }
            Ok(count) => {
                self.heard = now;
                self.session.receive(&bytes[..count]);
                self.has_asked |= self.session.has_requests();
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.is_gone = true,
        }
    }

    /// Answers what it asks for next, and tells it what is due. Returns what it orders instead.
    fn answer(&mut self, desk: &Desk, now: Duration) -> Option<Request> {
        let mut order = None;
        match self.session.next_request() {
            Some(Ok(request)) if Desk::is_order(&request) => order = Some(request),
            Some(Ok(request)) => match desk.perform(&request) {
                Ok(Reply::Done) => self.session.say(&done()),
                Ok(Reply::Figures(figures)) => self.tell(*figures, |figures| Told::figures(figures)),
                Ok(Reply::Subscribed(interval)) => {
                    self.session.subscription =
                        (!interval.is_zero()).then_some(Subscription { interval, next: now + interval });
                    self.session.say(&done());
                }
                Err(why) => self.session.say(&refused(&why)),
            },
            Some(Err(error)) => {
                self.session.say(&refused(&error));
                self.at_end |= error.is_of_another_protocol();
                self.is_gone |= error.is_of_another_protocol();
            }
            None => {}
        }
        if self.session.subscription.as_mut().is_some_and(|subscription| subscription.is_due(now))
            && let Ok(figures) = desk.figures()
        {
            self.tell(figures, |figures| Told::Event { event: "figures", figures });
        }
        order
    }

    /// Sends what it has room for.
    fn write(&mut self, now: Duration) {
        if self.session.outgoing().is_empty() {
            return;
        }
        match self.connection.write(self.session.outgoing()) {
            Ok(count) => self.session.sent(count, now),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.session.sent(0, now);
            }
            Err(_) => self.is_gone = true,
        }
    }

    /// Tells it figures, with rates since those before.
    fn tell(&mut self, mut figures: Figures, line: impl FnOnce(&Figures) -> Told<'_>) {
        figures.since(self.told.as_ref());
        self.session.say(&line(&figures));
        self.told = Some(figures);
    }

    /// It asks for nothing more, and has all answers.
    fn is_finished(&self) -> bool {
        let waits = self.session.has_requests() || !self.session.outgoing().is_empty();
        self.at_end && !waits && self.session.subscription.is_none()
    }
}

#[cfg(test)]
mod tests;
