//! Frames of any content for a host on a link: nothing panics, a frame is answered by one at most, and whatever is sent has lengths and
//! checksums that are right by sums taken a byte at a time, and is for one station, for all, or for a group that a question is for.

use station::{Echo, Station};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const V4: [u8; 4] = [192, 0, 2, 1];
const V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Runs one input: steps, each of what is done, the time that passes before, a length, and so many bytes.
pub fn run(input: &[u8]) {
    let addresses = [(V4.into(), 24), (V6.into(), 64)].map(|(ip, len)| station::InterfaceAddress::new(ip, len));
    let addresses: Vec<_> = addresses.into_iter().flatten().collect();
    let Ok(mut station) = Station::new(MAC, &addresses, &[Ipv4Addr::new(192, 0, 2, 254).into()]) else { return };
    let (mut now, mut rest) = (Duration::ZERO, input);
    while let Some(([what, time, len], after)) = rest.split_first_chunk::<3>() {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*len)));
        (now, rest) = (now + Duration::from_millis(u64::from(*time) * u64::from(*time)), after);
        match what % 4 {
            0 => receive(&mut station, now, bytes),
            1 => receive(&mut station, now, &likely(*what >> 2, bytes)),
            2 => resolve(&mut station, now, bytes),
            _ => station.poll(now, &mut check),
        }
    }
}

fn receive(station: &mut Station, now: Duration, frame: &[u8]) {
    let mut sent = 0;
    let before = *station.counters();
    station.receive(now, frame, &mut |answer| {
        check(answer);
        assert!(
            answer.len() <= frame.len().max(86),
            "an answer is no longer than its question, or than an advertisement"
        );
        sent += 1;
    });
    let after = *station.counters();
    let answered = |counters: station::Counters| counters.arp_answered + counters.nd_answered + counters.echo_answered;
    assert_eq!(answered(after) - answered(before), sent);
    assert!(sent <= 1, "one frame, one answer");
}

fn resolve(station: &mut Station, now: Duration, bytes: &[u8]) {
    let destination: IpAddr = match (bytes.first_chunk::<16>(), bytes.first()) {
        (Some(octets), _) => Ipv6Addr::from(*octets).into(),
        (None, Some(last)) => Ipv4Addr::new(192, 0, 2 + last % 2, *last).into(),
        (None, None) => return,
    };
    if let (Ok(Some(mac)), Ok(from)) = (station.resolve(now, destination), station.source(destination)) {
        assert_eq!(mac[0] & 1, 0, "a next hop is one station");
        let echo = Echo { from, to: destination, identifier: 1, sequence: 2, payload: bytes };
        let mut frame = Vec::new();
        assert!(echo.write(&mut frame, MAC, mac).is_ok());
        check(&frame);
    }
}

/// Makes of bytes a frame for the station whose lengths and checksums are right.
fn likely(shape: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    frame.resize(frame.len().max(78), 0);
    frame[..6].copy_from_slice(&MAC);
    (frame[6], frame[11]) = (2, frame[11] | 2);
    match shape % 3 {
        0 => {
            frame[12..21].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0]);
            (frame[21], frame[22]) = (1 + frame[21] % 2, 2);
            if shape & 8 != 0 {
                frame[38..42].copy_from_slice(&V4);
            }
        }
        1 => {
            let len = u16::try_from(frame.len() - 14).unwrap_or(u16::MAX).to_be_bytes();
            frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, len[0], len[1]]);
            frame[20..26].copy_from_slice(&[0, 0, 64, 1, 0, 0]);
            frame[30..34].copy_from_slice(&V4);
            frame[36..38].fill(0);
            let sum = (sum(&[&frame[14..34]]), sum(&[&frame[34..]]));
            frame[24..26].copy_from_slice(&sum.0);
            frame[36..38].copy_from_slice(&sum.1);
        }
        _ => {
            let len = u16::try_from(frame.len() - 54).unwrap_or(u16::MAX).to_be_bytes();
            frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], 58, 255]);
            frame[38..54].copy_from_slice(&V6);
            frame[54] = [128, 129, 135, 136, 1, frame[54]][usize::from(shape >> 2) % 6];
            (frame[55], frame[56], frame[57]) = (0, 0, 0);
            if shape & 64 != 0 {
                frame[62..78].copy_from_slice(&V6);
            }
            let sum = sum(&[&frame[22..54], &[len[0], len[1], 0, 58], &frame[54..]]);
            frame[56..58].copy_from_slice(&sum);
        }
    }
    frame
}

/// A frame that the station sends.
fn check(frame: &[u8]) {
    assert!(frame.len() >= 60 && frame[6..12] == MAC);
    let to = &frame[..6];
    assert!(to[0] & 1 == 0 || to == [0xff; 6] || to[..2] == [0x33, 0x33]);
    match frame[12..14] {
        [8, 6] => assert!(frame[14..20] == [0, 1, 8, 0, 6, 4] && frame[22..28] == MAC),
        [8, 0] => {
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            assert_eq!((sum(&[&frame[14..34]]), sum(&[&frame[34..end]])), ([0, 0], [0, 0]));
            assert_eq!(frame[26..30], V4);
        }
        [0x86, 0xdd] => {
            let end = 54 + usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            assert_eq!(sum(&[&frame[22..54], &[frame[18], frame[19], 0, 58], &frame[54..end]]), [0, 0]);
            assert!(frame[38] != 0xff || to[..2] == [0x33, 0x33]);
        }
        _ => panic!("neither ARP nor IP: {frame:02x?}"),
    }
}

/// The checksum of RFC 1071 over pieces of even length but for the last.
fn sum(parts: &[&[u8]]) -> [u8; 2] {
    let shifted = |(n, byte): (usize, &u8)| u64::from(*byte) << if n.is_multiple_of(2) { 8 } else { 0 };
    let words: u64 = parts.iter().flat_map(|part| part.iter().enumerate().map(shifted)).sum();
    let folded = match words % 0xffff {
        0 if words > 0 => 0xffff,
        rest => rest,
    };
    (!u16::try_from(folded).unwrap_or_default()).to_be_bytes()
}
