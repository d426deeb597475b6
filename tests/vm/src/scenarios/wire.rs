//! Frames that no Linux would send, from the wires of cards of each kind to Linux's `ixgbe`, and what Linux sends, byte for byte.
//!
//! All cards play the same capture, and each is alone in a network namespace. In `n1` Linux verifies checksums, takes tags off and puts
//! them on; in the others the card does. What the card and Linux count, what arrives at a socket, and which queue each frame came
//! through, follow from the capture alone.

use super::linux::{LINKED, ethtool, snmp};
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Machine, Rig, Setup};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) const CARD: [u8; 6] = [2, 0, 0, 0, 0, 0x0A];
/// Where frames come from, and where Linux sends its own.
pub(super) const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
pub(super) const ADDRESS: [u8; 4] = [10, 9, 0, 1];
pub(super) const TAGGED_ADDRESS: [u8; 4] = [10, 42, 0, 1];
const JOINED: [u8; 4] = [239, 1, 2, 3];
/// Its address has another place in the table that the card filters by.
const NOT_JOINED: [u8; 4] = [239, 9, 9, 9];
pub(super) const VLAN: u16 = 42;
const PORT: u16 = 5000;
const QUEUES: usize = 4;
/// The cards.
const IDS: [&str; 4] = ["10f9", "10fb", "x540", "x550"];
/// The one with which Linux does itself what the others do.
const IDLE: usize = 1;
/// Datagrams that Linux sends each way of tagging.
const SENT: usize = 8;

/// What is to become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It reaches the socket.
    Arrives,
    /// The card lets it through, and it ends there for a wrong checksum.
    BadIp,
    BadUdp,
    BadTcp,
    /// The card's filters drop it.
    Filtered,
}

/// A frame of the capture.
struct Frame {
    bytes: Vec<u8>,
    fate: Fate,
    tagged: bool,
}

pub(super) fn judged(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    let capture = capture();
    frames::write_all(&file("in"), capture.iter().map(|frame| &*frame.bytes))?;
    let nic = |name: &str, id: &str| {
        let (input, output) = (file("in"), file(name));
        let wire = format!("{},{}", input.display(), output.display());
        format!("{name}?id={id}&link=down&mac=02:00:00:00:00:0a&wire=pcap:{wire}")
    };
    let nics: Vec<_> = (0..).zip(IDS).map(|(index, id)| nic(&format!("out{index}"), id)).collect();
    let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
    let setup = Setup { nics: &nics, kernel: "ipv6.disable=1", cpus: 4, ..Setup::default() };
    let mut vm = rig.boot(&setup)?;
    vm.sh(UP)?;
    // Only now: between its steps a driver takes addresses out of the filter.
    for index in 0..IDS.len() {
        vm.nic(index).set_link(true);
    }
    vm.sh(&LINKED.replace("0 1", "0 1 2 3"))?;
    vm.until("the captures have been played", |vm| {
        let done = |index| vm.nic(index).source_finished() && vm.nic(index).wire_counters().offered >= all(&capture);
        (0..IDS.len()).all(done)
    });
    for index in 0..IDS.len() {
        received(&mut vm, checks, &capture, index)?;
    }
    // All at once, as each datagram is a program.
    vm.sh(&format!(
        "for i in 0 1 2 3; do
             for to in 10.9.0.9 10.42.0.9; do for n in $(seq {SENT}); do
                 echo \"datagram $n\" | ip netns exec n$i socat -u - UDP4-SENDTO:$to:6000
             done; done &
         done; wait"
    ))?;
    for index in 0..IDS.len() {
        sent(&vm, checks, &file(&format!("out{index}")), index)?;
        let (count, first) = vm.nic(index).violations();
        checks.that(count == 0, format!("nothing that the datasheet forbids was done to NIC {index}: {first:?}"));
    }
    Ok(())
}

/// Each card in its namespace, with a socket that writes down what arrives.
const UP: &str = r"
modprobe ixgbe
echo 16777216 >/proc/sys/net/core/rmem_max
for i in 0 1 2 3; do (
    dev=$(ls /sys/bus/pci/devices/0000:00:0$((5 + i)).0/net)
    ip netns add n$i
    ip link set $dev netns n$i name e$i
    [ $i = 1 ] && how=off || how=on
    ip netns exec n$i ethtool -K e$i rx $how tx $how rxvlan $how txvlan $how gro off
    ip netns exec n$i sh -c 'for rule in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$rule; done'
    ip -n n$i link set lo up
    ip -n n$i link set e$i up
    ip -n n$i addr add 10.9.0.1/16 dev e$i
    ip -n n$i addr add 239.1.2.3/32 dev e$i autojoin
    ip -n n$i link add link e$i name v$i type vlan id 42
    ip -n n$i link set v$i up
    ip -n n$i addr add 10.42.0.1/24 dev v$i
    ip -n n$i neigh add 10.9.0.9 lladdr 02:00:00:00:00:99 dev e$i
    ip -n n$i neigh add 10.42.0.9 lladdr 02:00:00:00:00:99 dev v$i
    ip netns exec n$i socat -u UDP4-RECV:5000,rcvbuf=8388608 CREATE:/tmp/got$i >/tmp/socat$i 2>&1 &
    for try in $(seq 300); do ip netns exec n$i grep -q ':1388 ' /proc/net/udp && break; sleep 0.1; done
) & done
wait
";

/// What one card, its driver and Linux made of the capture.
fn received(vm: &mut Machine, checks: &mut Checks, capture: &[Frame], index: usize) -> Result<()> {
    let (by_card, id) = (index != IDLE, IDS[index]);
    let about = format!("{id}, {}", if by_card { "the card verifies" } else { "Linux verifies" });
    let count = |fate: Fate| capture.iter().filter(|frame| frame.fate == fate).count() as u64;
    let passed: Vec<_> = capture.iter().filter(|frame| frame.fate != Fate::Filtered).collect();
    // The last to come through have still to get through Linux.
    let said = vm.sh(&format!(
        "for try in $(seq 600); do [ $(wc -l </tmp/got{index}) -ge {} ] && break; sleep 0.1; done; sleep 1
         cat /tmp/socat{index}; ip netns exec n{index} ethtool -S e{index}
         ip netns exec n{index} cat /proc/net/snmp; ip netns exec n{index} grep ^IpExt: /proc/net/netstat",
        count(Fate::Arrives)
    ))?;
    let wire = vm.nic(index).wire_counters();
    checks.equal(
        format!("{about}: frames that came through the filters, and that did not"),
        [wire.delivered, wire.dropped],
        [passed.len() as u64, count(Fate::Filtered)],
    );
    let of = ethtool(&said);
    // Those of UDP the driver does not count on an 82599, which takes sums of 0 for wrong (its specification update).
    let of_udp = if id.starts_with('x') { count(Fate::BadUdp) } else { 0 };
    let bad = count(Fate::BadIp) + count(Fate::BadTcp) + of_udp;
    checks.equal(
        "  wrong checksums that the card found (rx_csum_offload_errors)",
        of.get("rx_csum_offload_errors").copied(),
        Some(if by_card { bad } else { 0 }),
    );
    checks.equal(
        "  and that Linux counted: of IP headers, UDP and TCP",
        [("IpExt", "InCsumErrors"), ("Udp", "InCsumErrors"), ("Tcp", "InCsumErrors")]
            .map(|(protocol, field)| snmp(&said, protocol, field)),
        [Fate::BadIp, Fate::BadUdp, Fate::BadTcp].map(|fate| Some(count(fate))),
    );
    let got = vm.sh(&format!("cat /tmp/got{index}"))?;
    let mut lines: Vec<_> = got.lines().collect();
    lines.sort_unstable();
    let mut wanted: Vec<_> = capture
        .iter()
        .enumerate()
        .filter(|(_, frame)| frame.fate == Fate::Arrives)
        .map(|(number, _)| payload(number).trim_end().to_owned())
        .collect();
    wanted.sort_unstable();
    let strange = lines.iter().find(|line| !wanted.iter().any(|wanted| wanted == *line));
    checks.equal("  datagrams at the socket, and the first that should not be there", (lines.len(), strange), {
        (wanted.len(), None)
    });
    checks.that(lines == wanted, "  each of them once");
    // A tag that the card took off is not among the bytes that the driver got.
    let bytes = |frame: &&Frame| frame.bytes.len() as u64 - if frame.tagged && by_card { 4 } else { 0 };
    let of_queues = |what: &str| -> Vec<u64> {
        (0..QUEUES).map(|queue| of.get(&*format!("rx_queue_{queue}_{what}")).copied().unwrap_or(0)).collect()
    };
    let total = of_queues("bytes").iter().sum::<u64>();
    let what = if by_card { "without the tags that the card took off" } else { "with all tags" };
    checks.equal(format!("  bytes of the queues, {what}"), total, passed.iter().map(bytes).sum());
    let spread = spread(&vm.sh(&format!("ip netns exec n{index} ethtool -x e{index}"))?, &passed)?;
    checks.that(spread.iter().all(|frames| *frames > 50), format!("  flows for all queues: {spread:?}"));
    checks.equal("  frames by queue, as key and table of RSS have it", of_queues("packets"), spread);
    Ok(())
}

/// What Linux sends: tags and checksums as the wire sees them.
fn sent(vm: &Machine, checks: &mut Checks, out: &Path, index: usize) -> Result<()> {
    let about =
        format!("{}, {}", IDS[index], if index == IDLE { "Linux tags and sums" } else { "the card tags and sums" });
    let collect = || -> Result<BTreeMap<[u8; 4], Vec<Vec<u8>>>> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        frames::read(out, |bytes| {
            // UDP over IPv4 to port 6000, whatever tags are in front.
            let at = bytes.windows(2).position(|pair| pair == [0x45, 0x00]).unwrap_or(0);
            if bytes.get(at + 22..at + 24) == Some(&6000_u16.to_be_bytes()) {
                let to = [16, 17, 18, 19].map(|byte| bytes[at + byte]);
                found.entry(to).or_default().push(bytes.to_vec());
            }
        })?;
        Ok(found)
    };
    vm.until("what Linux sends is recorded", |vm| {
        // Which also writes the capture out.
        let idle = vm.nic(index).transmit_idle();
        idle && collect().is_ok_and(|found| found.values().map(Vec::len).sum::<usize>() >= 2 * SENT)
    });
    let found = collect()?;
    for (to, head) in [([10, 9, 0, 9], &[0x08, 0x00][..]), ([10, 42, 0, 9], &[0x81, 0x00, 0x00, 0x2A, 0x08, 0x00])] {
        let frames = found.get(&to).cloned().unwrap_or_default();
        let heads: BTreeSet<_> = frames.iter().map(|bytes| bytes[12..12 + head.len()].to_vec()).collect();
        checks.equal(
            format!("{about}: datagrams to {to:?} on the wire, and what follows the addresses"),
            (frames.len(), heads.into_iter().collect::<Vec<_>>()),
            (SENT, vec![head.to_vec()]),
        );
        let at = 12 + head.len();
        let wrong = frames.iter().filter(|bytes| !is_right(&bytes[at..])).count();
        checks.equal("  of which have a wrong checksum", wrong, 0);
    }
    Ok(())
}

/// Frames that each queue gets: the Toeplitz hash of the addresses, and of the ports of TCP, under what `ethtool -x` shows.
fn spread(shown: &str, frames: &[&Frame]) -> Result<Vec<u64>> {
    let entries: Vec<usize> = shown
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .filter(|(index, _)| index.parse::<u32>().is_ok())
        .flat_map(|(_, queues)| queues.split_whitespace().filter_map(|queue| queue.parse().ok()))
        .collect();
    let key = shown.split("RSS hash key:").nth(1).and_then(|rest| rest.split_whitespace().next());
    let key = key.context("ethtool -x shows no key")?;
    let key = key.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(!entries.is_empty() && key.len() == 40, "ethtool -x shows {} entries", entries.len());
    let mut spread = vec![0; QUEUES];
    for frame in frames {
        let ip = &frame.bytes[if frame.tagged { 18 } else { 14 }..];
        let end = if ip[9] == 6 { 24 } else { 20 };
        let hash = hash(&key, &ip[12..end]);
        let entry = usize::try_from(hash)? % entries.len();
        spread[entries[entry]] += 1;
    }
    Ok(spread)
}

/// The Toeplitz hash of some bytes.
pub(super) fn hash(key: &[u8], bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |hash, (at, byte)| {
        // For each bit that is set, the 32 bits of the key from that place on.
        let window = key[at..at + 5].iter().fold(0_u64, |window, byte| window << 8 | u64::from(*byte));
        (0..8)
            .filter(|bit| byte >> (7 - bit) & 1 == 1)
            .fold(hash, |hash, bit| hash ^ (window << bit >> 8 & 0xFFFF_FFFF))
    })
}

/// All frames, in the order of the wire.
fn capture() -> Vec<Frame> {
    let mut capture = Vec::new();
    let mut add = |count: usize, fate: Fate, make: &dyn Fn(usize) -> (Vec<u8>, bool)| {
        for _ in 0..count {
            let (bytes, tagged) = make(capture.len());
            capture.push(Frame { bytes, fate, tagged });
        }
    };
    let to_card = |ip: Vec<u8>| (ethernet(CARD, None, &ip), false);
    let tagged = |id: u16, ip: Vec<u8>| (ethernet(CARD, Some(id), &ip), true);
    let group = |[_, b, c, d]: [u8; 4], ip: Vec<u8>| (ethernet([1, 0, 0x5E, b & 0x7F, c, d], None, &ip), false);
    // Good ones around bad ones, several times over.
    for _ in 0..4 {
        add(128, Fate::Arrives, &|number| to_card(datagram(number, ADDRESS)));
        add(10, Fate::Arrives, &|number| to_card(without_sum(datagram(number, ADDRESS))));
        add(10, Fate::BadUdp, &|number| to_card(flipped(datagram(number, ADDRESS), 30)));
        add(10, Fate::BadIp, &|number| to_card(flipped(datagram(number, ADDRESS), 4)));
        add(10, Fate::BadTcp, &|number| to_card(flipped(segment(number), 36)));
        add(10, Fate::Arrives, &|number| group(JOINED, datagram(number, JOINED)));
        add(10, Fate::Filtered, &|number| group(NOT_JOINED, datagram(number, NOT_JOINED)));
        add(10, Fate::Filtered, &|number| (ethernet(FAR, None, &datagram(number, ADDRESS)), false));
        add(20, Fate::Arrives, &|number| tagged(VLAN, datagram(number, TAGGED_ADDRESS)));
        add(10, Fate::BadUdp, &|number| tagged(VLAN, flipped(datagram(number, TAGGED_ADDRESS), 30)));
        add(10, Fate::Filtered, &|number| tagged(VLAN + 1, datagram(number, TAGGED_ADDRESS)));
    }
    capture
}

fn all(capture: &[Frame]) -> u64 {
    capture.len() as u64
}

/// The line that datagram `number` carries.
fn payload(number: usize) -> String {
    format!("datagram {number:06} of the wire\n")
}

pub(super) fn ethernet(to: [u8; 6], tag: Option<u16>, ip: &[u8]) -> Vec<u8> {
    let mut frame = [to, FAR].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0x00]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame
}

/// UDP from an address and a port of its own.
pub(super) fn datagram(number: usize, to: [u8; 4]) -> Vec<u8> {
    let text = payload(number);
    let from = u16::try_from(1024 + number).unwrap_or(u16::MAX).to_be_bytes();
    let len = u16::try_from(8 + text.len()).unwrap_or(u16::MAX).to_be_bytes();
    let udp = [&from[..], &PORT.to_be_bytes(), &len, &[0, 0], text.as_bytes()].concat();
    packet(number, to, 17, 6, udp)
}

/// The first segment of a TCP connection.
fn segment(number: usize) -> Vec<u8> {
    let from = u16::try_from(1024 + number).unwrap_or(u16::MAX).to_be_bytes();
    let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xFF, 0xFF, 0, 0, 0, 0];
    packet(number, ADDRESS, 6, 16, [&from[..], &PORT.to_be_bytes(), &rest, &[0; 12]].concat())
}

fn packet(number: usize, to: [u8; 4], protocol: u8, sum_at: usize, mut transport: Vec<u8>) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    // Of the network of the card, and none of its own addresses.
    let from = if to == TAGGED_ADDRESS { [10, 42, 0, low & 0x7F | 2] } else { [10, 9, high + 1, low] };
    let [a, b] = u16::try_from(20 + transport.len()).unwrap_or(u16::MAX).to_be_bytes();
    let pseudo = [&from[..], &to, &[0, protocol], &u16::try_from(transport.len()).unwrap_or(0).to_be_bytes()].concat();
    let sum = !sum(&[&pseudo[..], &transport].concat());
    transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, a, b, high, low, 0, 0, 64, protocol, 0, 0];
    ip.extend([from, to].concat());
    let sum = !self::sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(transport);
    ip
}

/// The packet with one bit changed.
fn flipped(mut ip: Vec<u8>, at: usize) -> Vec<u8> {
    ip[at] ^= 0x10;
    ip
}

/// A datagram that has no checksum (RFC 768).
fn without_sum(mut ip: Vec<u8>) -> Vec<u8> {
    ip[26..28].fill(0);
    ip
}

/// Whether both checksums of a datagram over IPv4 are right.
fn is_right(ip: &[u8]) -> bool {
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let udp = &ip[20..total];
    let pseudo = [&ip[12..20], &[0, 17], &u16::try_from(udp.len()).unwrap_or(0).to_be_bytes()].concat();
    sum(&ip[..20]) == 0xFFFF && sum(&[&pseudo[..], udp].concat()) == 0xFFFF
}

/// The ones' complement sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_their_fate_says() {
        let capture = capture();
        let mut lines = BTreeSet::new();
        for (number, frame) in capture.iter().enumerate() {
            assert!(frame.bytes.len() >= 60, "{number}");
            let ip = &frame.bytes[if frame.tagged { 18 } else { 14 }..];
            let right = ip[9] == 17 && (is_right(ip) || ip[26..28] == [0, 0]);
            let wrong = matches!(frame.fate, Fate::BadIp | Fate::BadUdp | Fate::BadTcp);
            assert_eq!(right, !wrong, "{number}: {:?}", frame.fate);
            assert!(lines.insert(payload(number)));
        }
    }
}
