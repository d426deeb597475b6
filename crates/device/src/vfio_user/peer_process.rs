//! Which process answers on a connection, and whether it has ended (Linux unix(7), `SO_PASSCRED`; pidfd_open(2)).
//!
//! The credentials of the socket itself (`SO_PEERCRED`) are those of the process that called listen(2), which may have
//! handed the connection to another one and ended long before that.

use crate::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The process that answers, as it becomes known with the first two answers.
///
/// The kernel says with each answer which process sent it, by number. A number can be used again, so it takes two: the
/// process that is opened by number after the first answer, and still lives after a second one came from the same number,
/// is the one that sent the second.
#[derive(Debug)]
pub(super) enum PeerProcess {
    /// No answer yet.
    Silent,
    /// One answer.
    Heard(Pid, OwnedFd),
    /// Two answers from this process.
    Known(OwnedFd),
    /// Not to be had: processes take turns, or it is in a namespace out of our sight.
    Nobody,
}

impl PeerProcess {
    /// Has the kernel say so of every message from now on.
    pub(super) fn listen(socket: &UnixStream) -> Self {
        match rustix::net::sockopt::set_socket_passcred(socket, true) {
            Ok(()) => Self::Silent,
            Err(_) => Self::Nobody,
        }
    }

    /// Looks at an answer that has arrived and has not been read; the second is the last.
    pub(super) fn hear(&mut self, socket: &UnixStream) {
        let now = match std::mem::replace(self, Self::Nobody) {
            Self::Silent => sender(socket).and_then(|pid| {
                let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
                Some(Self::Heard(pid, process))
            }),
            Self::Heard(pid, process) => {
                let same = sender(socket) == Some(pid) && !is_ready(process.as_fd(), PollFlags::IN);
                same.then_some(Self::Known(process))
            }
            decided => {
                *self = decided;
                return;
            }
        };
        *self = now.unwrap_or(Self::Nobody);
        if !self.is_open() {
            // Else each message that is read would need room for it.
            let _ = rustix::net::sockopt::set_socket_passcred(socket, false);
        }
    }

    /// Whether the next answer is of interest.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Silent | Self::Heard(..))
    }

    /// Whether the process has ended and nobody else holds its end of `socket`; false if that is not known. A process that
    /// ends closes its connections a little before it is gone, so this waits for it until the deadline.
    pub(super) fn has_ended(&self, socket: &UnixStream, deadline: &Deadline) -> bool {
        let Self::Known(process) = self else { return false };
        let ended =
            is_ready(process.as_fd(), PollFlags::IN) || deadline.wait_for(process.as_fd(), PollFlags::IN).is_ok();
        ended && is_ready(socket.as_fd(), PollFlags::HUP)
    }
}

fn is_ready(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready == 1) && fds[0].revents().intersects(events)
}

/// The process that sent the next byte to be read.
fn sender(socket: &UnixStream) -> Option<Pid> {
    /// One control message. There is no room for descriptors, so peeking opens none.
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        credentials: libc::ucred,
    }
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all its fields are integers, for which 0 is a value.
    let mut control: Control = unsafe { std::mem::zeroed() };
    // SAFETY: its fields are integers and pointers, for which 0 is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), size_of::<Control>() as _);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let got = loop {
        // SAFETY: the message points to one byte and to a control buffer of the length it says, which outlive the call.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break got;
        }
    };
    let kind = (control.header.cmsg_level, control.header.cmsg_type);
    if got != 1 || kind != (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
        return None;
    }
    // 0 is a process of a namespace that this one does not see.
    Some(control.credentials.pid).filter(|pid| *pid > 0).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeLimit;
    use rustix::process::{WaitId, WaitIdOptions};
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn the_process_that_answers_is_known_after_two_answers() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let mut peer = PeerProcess::listen(&ours);
        for answers in 1..=3 {
            theirs.write_all(&[answers]).unwrap();
            peer.hear(&ours);
            let mut byte = [0];
            ours.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [answers], "looking takes nothing away");
            assert_eq!(matches!(peer, PeerProcess::Known(_)), answers >= 2);
            assert_eq!(rustix::net::sockopt::socket_passcred(&ours).unwrap(), answers < 2);
        }
        let moment = TimeLimit { total: Duration::from_millis(1), cancel: None }.begin();
        assert!(!peer.has_ended(&ours, &moment));
        drop(theirs);
        assert!(!peer.has_ended(&ours, &moment), "this process closed the connection, and lives");
    }

    /// As where its number was used again for another process.
    #[test]
    fn a_process_that_ended_between_its_answers_is_nobody() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut peer = PeerProcess::listen(&ours);
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf 1; read line; printf 2"]).stdin(Stdio::piped()).stdout(OwnedFd::from(theirs));
        let mut child = shell.spawn().unwrap();
        let long = TimeLimit { total: Duration::from_secs(60), cancel: None }.begin();
        long.wait_for(ours.as_fd(), PollFlags::IN).unwrap();
        peer.hear(&ours);
        assert!(matches!(peer, PeerProcess::Heard(..)));
        ours.read_exact(&mut [0]).unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        // It has ended, and its number is still its own.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
        peer.hear(&ours);
        assert!(matches!(peer, PeerProcess::Nobody));
        child.wait().unwrap();
    }

    #[test]
    fn nothing_to_look_at_is_nobody() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut peer = PeerProcess::listen(&ours);
        peer.hear(&ours);
        assert!(matches!(peer, PeerProcess::Nobody));
    }
}
