//! How many IPsec policies there are (ip-xfrm(8); `linux/xfrm.h`).

use crate::Error;
use crate::message::HEADER;
use rustix::io::Errno;
use rustix::net::netlink::{SocketAddrNetlink, XFRM};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with};
use std::os::fd::OwnedFd;

/// A socket of NETLINK_XFRM in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ipsec {
    fd: OwnedFd,
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
        match socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(XFRM)) {
            Ok(fd) => Ok(Some(Self { fd, sequence: 0 })),
            Err(source @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                Err(Error::Socket { operation: "open", source })
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns how many policies there are that packets may meet which are forwarded, as they come in (`fwd`) and as they leave (`out`);
    /// `None` if the kernel does not say, such as to a process without CAP_NET_ADMIN.
    pub fn policies(&mut self) -> Option<u64> {
        self.sequence = self.sequence.wrapping_add(1);
        // Its fixed part are flags, none of which there are.
        let mut request = [0; HEADER + 4];
        request[..4].copy_from_slice(&20_u32.to_ne_bytes());
        request[4..6].copy_from_slice(&XFRM_MSG_GETSPDINFO.to_ne_bytes());
        request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
        // The kernel has answered before `sendto` returns. What others have sent, and answers to earlier requests, are passed over.
        for _ in 0..16 {
            let mut answer = [0; 256];
            let (len, _, sender) = recvfrom(&self.fd, &mut answer[..], RecvFlags::empty()).ok()?;
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_some_and(|sender| sender.pid() == 0) && word(&answer, 8) == Some(self.sequence) {
                return answer.get(..len).and_then(forwarded);
            }
        }
        None
    }
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

const NLM_F_REQUEST: u16 = 1;
const XFRM_MSG_NEWSPDINFO: u16 = 0x24;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRMA_SPD_INFO: u16 = 1;
