//! Whether the kernel filters or shapes packets (`linux/netfilter/nf_tables.h`, `linux/rtnetlink.h`): what a data path forwards by itself
//! does not meet that.

use crate::message::{Attributes, HEADER};
use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with,
};
use std::cell::RefCell;

/// Returns the index of the interface of this name in this network namespace; `None` if there is none.
///
/// ```
/// assert_eq!(kernel::index_of("lo"), Some(1));
/// assert_eq!(kernel::index_of("no-such-one"), None);
/// ```
#[must_use]
pub fn index_of(name: &str) -> Option<u32> {
    let any = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    name_to_index(any, name).ok()
}

/// Returns whether this network namespace has rules of nftables, among which are those of `iptables-nft`, or chains that drop what no rule
/// accepts (`policy drop`); `None` if the kernel does not say, such as to a process without CAP_NET_ADMIN.
///
/// ```
/// if kernel::has_nft_rules() == Some(true) {
///     println!("nft list ruleset");
/// }
/// ```
#[must_use]
pub fn has_nft_rules() -> Option<bool> {
    // Of all families, version 0, of no resource.
    let ask = |request, is_found: fn(u16, &[u8]) -> bool| lists(Some(netlink::NETFILTER), request, &[0; 4], is_found);
    let rules = ask(NFT_MSG_GETRULE, |kind, _| kind == NFT_MSG_NEWRULE);
    if rules == Some(true) {
        return rules;
    }
    let chains = ask(NFT_MSG_GETCHAIN, drops);
    if chains == Some(true) { chains } else { rules.and(chains) }
}

/// Whether a message is of a chain with `policy drop`.
fn drops(kind: u16, body: &[u8]) -> bool {
    // struct nfgenmsg: family, version, resource.
    let attributes = body.get(4..).map(Attributes::new).into_iter().flatten();
    kind == NFT_MSG_NEWCHAIN && attributes.flatten().any(|attribute| attribute == (NFTA_CHAIN_POLICY, &NF_DROP))
}

/// Returns whether an interface of this network namespace has tc filters, on its way in, on its way out or at its root queue; `None` if
/// the kernel does not say.
///
/// ```
/// // That of the loopback interface.
/// println!("{:?}", kernel::has_tc_filters(1));
/// ```
#[must_use]
pub fn has_tc_filters(interface: u32) -> Option<bool> {
    let at = |parent: u32| {
        // struct tcmsg: family, interface, handle, parent, info.
        let fixed = [0, interface, 0, parent, 0].map(u32::to_ne_bytes);
        lists(None, RTM_GETTFILTER, fixed.as_flattened(), |kind, _| kind == RTM_NEWTFILTER)
    };
    let found = [TC_INGRESS, TC_EGRESS, 0].map(at);
    if found.contains(&Some(true)) { Some(true) } else { found.into_iter().find(Option::is_some).flatten() }
}

/// Returns the interfaces of this network namespace, by index, whose packets wait in a root queue (tc-qdisc) of another kind than the kernel
/// gives them by itself, such as a shaper, with its kind; `None` if the kernel does not say.
///
/// ```
/// for (interface, kind) in kernel::queues().unwrap_or_default() {
///     println!("{interface}: {kind}");
/// }
/// ```
#[must_use]
pub fn queues() -> Option<Vec<(u32, String)>> {
    let found = RefCell::new(Vec::new());
    let note = |kind, body: &[u8]| {
        found.borrow_mut().extend((kind == RTM_NEWQDISC).then(|| set_by_hand(body)).flatten());
        // It goes on to the end.
        false
    };
    // struct tcmsg of no interface: all are listed.
    lists(None, RTM_GETQDISC, &[0; TCMSG], note)?;
    Some(found.into_inner())
}

/// The interface and the kind of a root queue, unless the kernel gives such by itself.
fn set_by_hand(body: &[u8]) -> Option<(u32, String)> {
    let (fixed, attributes) = body.split_first_chunk::<TCMSG>()?;
    let [_, interface, _, parent, _] = *fixed.as_chunks::<4>().0 else { return None };
    let kind = Attributes::new(attributes).flatten().find(|(kind, _)| *kind == TCA_KIND)?.1;
    let kind = std::str::from_utf8(kind).ok()?.trim_end_matches('\0');
    let is_set = u32::from_ne_bytes(parent) == TC_ROOT && !OF_THE_KERNEL.contains(&kind);
    is_set.then(|| (u32::from_ne_bytes(interface), kind.to_owned()))
}

/// Returns whether an interface of this network namespace has an XDP program; `None` if the kernel does not say, or there is no such
/// interface.
///
/// ```
/// // The loopback interface.
/// println!("{:?}", kernel::has_xdp(1));
/// ```
#[must_use]
pub fn has_xdp(interface: u32) -> Option<bool> {
    // struct ifinfomsg: family and type, index, flags and their mask.
    let fixed = [0, interface, 0, 0].map(u32::to_ne_bytes);
    let is_found = |kind, body: &[u8]| kind == RTM_NEWLINK && is_with_xdp(interface, body);
    // It says of this one only, and then that it has.
    asks(None, RTM_GETLINK, NLM_F_ACK, fixed.as_flattened(), is_found)
}

/// Whether a message of a link is of this one, and says that there is a program.
fn is_with_xdp(interface: u32, body: &[u8]) -> bool {
    let Some((fixed, attributes)) = body.split_first_chunk::<IFINFOMSG>() else { return false };
    let attached =
        |nested| Attributes::new(nested).flatten().any(|(kind, value)| kind == IFLA_XDP_ATTACHED && value != [0]);
    fixed[4..8] == interface.to_ne_bytes()
        && Attributes::new(attributes).flatten().any(|(kind, value)| kind == IFLA_XDP && attached(value))
}

/// Whether the kernel lists anything such, in a dump.
fn lists(
    protocol: Option<Protocol>,
    request: u16,
    fixed: &[u8],
    is_found: impl Fn(u16, &[u8]) -> bool,
) -> Option<bool> {
    asks(protocol, request, NLM_F_DUMP, fixed, is_found)
}

/// Whether the kernel answers a request with anything such: the answer is read until a message, by type and body, that is, or its end.
fn asks(
    protocol: Option<Protocol>,
    request: u16,
    flags: u16,
    fixed: &[u8],
    is_found: impl Fn(u16, &[u8]) -> bool,
) -> Option<bool> {
    let flags = (NLM_F_REQUEST | flags).to_ne_bytes();
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, kind, protocol).ok()?;
    let mut asked = vec![0; HEADER];
    asked[..4].copy_from_slice(&u32::try_from(HEADER + fixed.len()).ok()?.to_ne_bytes());
    asked[4..6].copy_from_slice(&request.to_ne_bytes());
    asked[6..8].copy_from_slice(&flags);
    asked.extend(fixed);
    sendto(&fd, &asked, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut answer = vec![0; LONGEST];
    // Each call to read has the kernel write the next part before it returns.
    for _ in 0..DATAGRAMS {
        let (len, _, sender) = recvfrom(&fd, &mut answer[..], RecvFlags::empty()).ok()?;
        if sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok()).is_none_or(|from| from.pid() != 0) {
            continue;
        }
        if let Some(ended) = find(answer.get(..len)?, &is_found) {
            return ended;
        }
    }
    None
}

/// What a datagram says: that there is one, that there is none, that the kernel does not tell; or nothing yet.
fn find(datagram: &[u8], is_found: impl Fn(u16, &[u8]) -> bool) -> Option<Option<bool>> {
    let mut rest = datagram;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let len = usize::try_from(u32::from_ne_bytes([header[0], header[1], header[2], header[3]])).ok()?;
        let body = behind.get(..len.saturating_sub(HEADER)).unwrap_or(behind);
        match u16::from_ne_bytes([header[4], header[5]]) {
            kind if is_found(kind, body) => return Some(Some(true)),
            // With an error, if it is negative, that has ended it early. An answer that is no dump ends with an error of 0.
            kind @ (NLMSG_DONE | NLMSG_ERROR) => {
                let code = body.first_chunk().map(|code| i32::from_ne_bytes(*code));
                let is_end = code.map_or(kind == NLMSG_DONE, |code| code >= 0);
                return Some(is_end.then_some(false));
            }
            _ => {}
        }
        if len < HEADER {
            return Some(None);
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Parts of a dump are 32 KiB long at most.
const LONGEST: usize = 64 << 10;
/// Those that are read, and messages of others.
const DATAGRAMS: usize = 64;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// NLM_F_ROOT and NLM_F_MATCH.
const NLM_F_DUMP: u16 = 0x300;
/// Bytes of struct ifinfomsg: family, type, index, flags and their mask.
const IFINFOMSG: usize = 16;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The upper half is NFNL_SUBSYS_NFTABLES.
const NFT_MSG_NEWCHAIN: u16 = 0x0A03;
const NFT_MSG_GETCHAIN: u16 = 0x0A04;
const NFT_MSG_NEWRULE: u16 = 0x0A06;
const NFT_MSG_GETRULE: u16 = 0x0A07;
const NFTA_CHAIN_POLICY: u16 = 5;
const NF_DROP: [u8; 4] = [0; 4];
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const TCA_KIND: u16 = 1;
/// Bytes of struct tcmsg: family, interface, handle, parent, info.
const TCMSG: usize = 20;
/// TC_H_ROOT.
const TC_ROOT: u32 = u32::MAX;
/// Queues that an interface has by itself, by `net.core.default_qdisc` or as it has none.
const OF_THE_KERNEL: [&str; 6] = ["noop", "noqueue", "pfifo_fast", "fq", "fq_codel", "mq"];
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
/// Parents of filters: TC_H_CLSACT with TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
const TC_INGRESS: u32 = 0xFFFF_FFF2;
const TC_EGRESS: u32 = 0xFFFF_FFF3;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32, kind: u16) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.resize(message.len().max(usize::try_from(len).unwrap().min(64)), 0);
        message
    }

    #[test]
    fn an_xdp_program_is_found_at_its_interface() {
        // IFLA_XDP, nested as the kernel marks it, with IFLA_XDP_ATTACHED (XDP_ATTACHED_SKB).
        let link = |index: u32, attached: u8| {
            let fixed = [&[0; 4][..], &index.to_ne_bytes(), &[0; 8]].concat();
            let name = [&8_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes(), b"rw0\0"].concat();
            let nested = [&5_u16.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[attached, 0, 0, 0]].concat();
            [&fixed[..], &name, &12_u16.to_ne_bytes(), &(43 | 0x8000_u16).to_ne_bytes(), &nested].concat()
        };
        assert!(is_with_xdp(7, &link(7, 2)));
        assert!(!is_with_xdp(8, &link(7, 2)) && !is_with_xdp(7, &link(7, 0)) && !is_with_xdp(7, &link(7, 2)[..24]));
        (0..link(7, 2).len()).for_each(|cut| assert!(cut >= 33 || !is_with_xdp(7, &link(7, 2)[..cut])));
        assert_eq!(has_xdp(1), Some(false), "nobody loads a program for the loopback interface of a test");
        // No other interface is asked for, however many there are.
        assert_eq!(has_xdp(u32::MAX >> 1), None, "there is none");
    }

    #[test]
    fn a_root_queue_that_was_set_is_found() {
        let queue = |parent: u32, kind: &[u8]| {
            let fixed = [0, 7, 0x8001_0000, parent, 2].map(u32::to_ne_bytes);
            let len = u16::try_from(4 + kind.len()).unwrap();
            [fixed.as_flattened(), &len.to_ne_bytes(), &1_u16.to_ne_bytes(), kind, &[0; 3]].concat()
        };
        assert_eq!(set_by_hand(&queue(u32::MAX, b"tbf\0")), Some((7, "tbf".to_owned())));
        for kind in [&b"noqueue\0"[..], b"pfifo_fast\0", b"fq\0", b"fq_codel\0", b"mq\0", b"noop\0"] {
            assert_eq!(set_by_hand(&queue(u32::MAX, kind)), None, "{kind:?}");
        }
        assert_eq!(set_by_hand(&queue(0xFFFF_FFF1, b"clsact\0")), None, "what comes in has no queue");
        assert_eq!(set_by_hand(&queue(0x0001_0000, b"tbf\0")), None, "below another one");
        assert_eq!(set_by_hand(&queue(u32::MAX, b"\xFF\0")), None);
        (0..27).for_each(|cut| assert_eq!(set_by_hand(&queue(u32::MAX, b"tbf\0")[..cut]), None));
    }

    #[test]
    fn a_dump_ends_with_what_is_looked_for_or_its_end() {
        let [other, rule, done, error] = [5, 44, NLMSG_DONE, NLMSG_ERROR].map(|kind| message(20, kind));
        let find = |datagram: &[u8]| find(datagram, |kind, _| kind == 44);
        assert_eq!(find(&[other.clone(), rule, done.clone()].concat()), Some(Some(true)));
        assert_eq!(find(&[other.clone(), done.clone()].concat()), Some(Some(false)));
        let failed = [&done[..HEADER], &(-95_i32).to_ne_bytes()].concat();
        assert_eq!(find(&[other.clone(), failed].concat()), Some(None), "the kernel does not say");
        assert_eq!(find(&message(16, NLMSG_DONE)), Some(Some(false)), "without a code");
        assert_eq!(find(&error), Some(Some(false)), "an error of 0");
        let refused = [&error[..HEADER], &(-19_i32).to_ne_bytes()].concat();
        assert_eq!(find(&refused), Some(None));
        assert_eq!(find(&other), None, "it goes on");
        for cut in 0..HEADER {
            assert_eq!(find(&other[..cut]), None);
        }
        for len in [0, 15] {
            assert_eq!(find(&message(len, 5)), Some(None), "a length of {len}");
        }
        assert_eq!(find(&message(u32::MAX, 5)), None);
    }
}
