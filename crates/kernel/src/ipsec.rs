//! How many IPsec policies there are (ip-xfrm(8); `linux/xfrm.h`).

use crate::Error;
use crate::message::HEADER;
use rustix::io::Errno;
use rustix::net::netlink::{SocketAddrNetlink, XFRM};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, recvfrom, sendto, socket_with,
};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Sockets of NETLINK_XFRM in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ipsec {
    fd: OwnedFd,
    /// Hears of changes.
    changes: Option<OwnedFd>,
    sequence: u32,
}

impl Ipsec {
    /// Opens one; `None` if the kernel has none for this process, as it is built without IPsec.
    ///
    /// ```
    /// if let Some(mut ipsec) = kernel::Ipsec::open()? {
    ///     println!("policies: {:?}", ipsec.policies());
    /// }
    /// # Ok::<(), kernel::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Socket`] if there are too many open files, or there is no memory.
    pub fn open() -> Result<Option<Self>, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(XFRM));
        let hears = |fd: &OwnedFd| bind(fd, &SocketAddrNetlink::new(0, 1 << (POLICY_GROUP - 1))).is_ok();
        match socket() {
            Ok(fd) => Ok(Some(Self { fd, changes: socket().ok().filter(hears), sequence: 0 })),
            Err(source @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                Err(Error::Socket { operation: "open", source })
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns what is readable once policies have changed; `None` if the kernel does not tell, such as a process without CAP_NET_ADMIN.
    #[must_use]
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(|fd| fd.as_fd())
    }

    /// Returns whether policies have changed since the last call, as far as the kernel has told.
    pub fn has_changed(&mut self) -> bool {
        let Some(changes) = &self.changes else { return false };
        let mut any = false;
        for _ in 0..CHANGES {
            // What a message says does not matter. Some may be lost.
            match recv(changes, &mut [0_u8; 16][..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        any
    }

    /// Returns how many policies there are that packets may meet which are forwarded, as they come in (`fwd`) and as they leave (`out`), and
    /// one more if what meets none is blocked (`ip xfrm policy setdefault`); `None` if the kernel does not say, such as to a process without
    /// CAP_NET_ADMIN.
    pub fn policies(&mut self) -> Option<u64> {
        let policies = self.ask(XFRM_MSG_GETSPDINFO).as_deref().and_then(forwarded)?;
        // Before Linux 5.15 all passes that meets none.
        let is_blocked = self.ask(XFRM_MSG_GETDEFAULT).as_deref().is_some_and(blocks);
        Some(policies + u64::from(is_blocked))
    }

    /// What the kernel answers to a request.
    fn ask(&mut self, kind: u16) -> Option<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        // The fixed part of one are flags, none of which there are, and that of the other is not looked at.
        let mut request = [0; HEADER + 4];
        request[..4].copy_from_slice(&20_u32.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
        // The kernel has answered before `sendto` returns. What others have sent, and answers to earlier requests, are passed over.
        for _ in 0..16 {
            let mut answer = [0; 256];
            let (len, _, sender) = recvfrom(&self.fd, &mut answer[..], RecvFlags::empty()).ok()?;
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_some_and(|sender| sender.pid() == 0) && word(&answer, 8) == Some(self.sequence) {
                return answer.get(..len).map(<[u8]>::to_vec);
            }
        }
        None
    }
}

/// Whether an answer says that what meets no policy is blocked, as it comes in or as it leaves.
fn blocks(answer: &[u8]) -> bool {
    // struct xfrm_userpolicy_default: in, fwd, out.
    let is_it = answer.get(4..6) == Some(&XFRM_MSG_GETDEFAULT.to_ne_bytes());
    is_it && answer.get(HEADER + 1..HEADER + 3).is_some_and(|ways| ways.contains(&XFRM_USERPOLICY_BLOCK))
}

/// The policies for packets that are forwarded, of an answer.
fn forwarded(answer: &[u8]) -> Option<u64> {
    if answer.get(4..6)? != XFRM_MSG_NEWSPDINFO.to_ne_bytes() {
        return None;
    }
    let mut rest = answer.get(HEADER + 4..)?;
    loop {
        // An attribute: its length with this header, and its type.
        let (len, kind) = (rest.get(..2)?, rest.get(2..4)?);
        let len = usize::from(u16::from_ne_bytes(len.try_into().ok()?));
        let value = rest.get(4..len)?;
        if kind == XFRMA_SPD_INFO.to_ne_bytes() {
            // struct xfrmu_spdinfo: in, out, fwd.
            return Some(u64::from(word(value, 4)?) + u64::from(word(value, 8)?));
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Messages that are read at once.
const CHANGES: usize = 1024;
/// XFRMNLGRP_POLICY.
const POLICY_GROUP: u32 = 4;
const NLM_F_REQUEST: u16 = 1;
const XFRM_MSG_NEWSPDINFO: u16 = 0x24;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
const XFRMA_SPD_INFO: u16 = 1;
