//! What a station asks and answers, frame by frame, and what it drops.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use station::{Counters, Echo, Error, Event, InterfaceAddress, MAX_NEIGHBOURS, Station};
use std::net::IpAddr;
use std::time::Duration;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];
const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn station() -> Station {
    let addresses = ["192.0.2.1/24", "2001:db8::1/64"].map(|address| address.parse().unwrap());
    Station::new(OURS, &addresses, &[ip("192.0.2.254")]).unwrap()
}

/// What comes of a frame: the event in a word, and what is sent.
fn receive(station: &mut Station, now: Duration, frame: &[u8]) -> (String, Vec<Vec<u8>>) {
    let mut sent = Vec::new();
    let event = station.receive(now, frame, &mut |answer| sent.push(answer.to_vec()));
    let event = format!("{event:?}");
    (event.split(['(', ' ']).next().unwrap().to_owned(), sent)
}

fn poll(station: &mut Station, now: Duration) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    station.poll(now, &mut |frame| sent.push(frame.to_vec()));
    sent
}

/// RFC 1071, a byte at a time.
fn sum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

fn arp(operation: u8, sender: ([u8; 6], [u8; 4]), target: [u8; 4]) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &sender.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend([&sender.0[..], &sender.1, &[0; 6], &target].concat());
    frame
}

fn ping_v4(from: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(28 + payload.len()).unwrap().to_be_bytes();
    let mut header = vec![0x45, 0, total[0], total[1], 1, 2, 0, 0, 9, 1, 0, 0];
    header.extend([&from[..], &[192, 0, 2, 1]].concat());
    let check = sum(&[&header]);
    header[10..12].copy_from_slice(&check);
    let mut message = [&[8, 0, 0, 0, 0xab, 0xcd, 0, 7], payload].concat();
    let check = sum(&[&message]);
    message[2..4].copy_from_slice(&check);
    [&OURS[..], &THEIRS, &[8, 0], &header, &message].concat()
}

fn icmpv6(hop_limit: u8, from: &str, to: &str, mut message: Vec<u8>) -> Vec<u8> {
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let (from, to) = (octets(from), octets(to));
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    message[2..4].fill(0);
    let check = sum(&[&from, &to, &len, &[0, 0, 0, 58], &message]);
    message[2..4].copy_from_slice(&check);
    let mac = if to[0] == 0xff { [0x33, 0x33, to[12], to[13], to[14], to[15]] } else { OURS };
    let header = [0x60, 0, 0, 0, len[2], len[3], 58, hop_limit];
    [&mac[..], &THEIRS, &[0x86, 0xdd], &header, &from, &to, &message].concat()
}

fn nd(kind: u8, flags: u8, target: &str, options: &[u8]) -> Vec<u8> {
    let target = target.parse::<std::net::Ipv6Addr>().unwrap().octets();
    [&[kind, 0, 0, 0, flags, 0, 0, 0], &target[..], options].concat()
}

const SOURCE: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
const TARGET: [u8; 8] = [2, 1, 2, 0, 0, 0, 0, 9];
const GROUP: &str = "ff02::1:ff00:1";

/// Questions that a host has to answer, one of each kind.
fn questions() -> [Vec<u8>; 5] {
    [
        arp(1, (THEIRS, [192, 0, 2, 9]), [192, 0, 2, 1]),
        ping_v4([192, 0, 2, 9], b"abc"),
        icmpv6(255, "2001:db8::9", GROUP, nd(135, 0, "2001:db8::1", &SOURCE)),
        icmpv6(255, "::", GROUP, nd(135, 0, "2001:db8::1", &[])),
        icmpv6(64, "2001:db8::9", "2001:db8::1", vec![128, 0, 0, 0, 0, 1, 0, 2, 3]),
    ]
}

#[test]
fn questions_get_one_answer_each() {
    let mut station = station();
    for question in questions() {
        let (event, sent) = receive(&mut station, SECOND, &question);
        assert_eq!((event.as_str(), sent.len()), ("Handled", 1), "{question:02x?}");
        assert!(sent[0].len() >= 60 && sent[0][6..12] == OURS, "{sent:02x?}");
    }
    let Counters { arp_answered, nd_answered, echo_answered, .. } = *station.counters();
    assert_eq!((arp_answered, nd_answered, echo_answered), (1, 2, 2));
}

#[test]
fn the_reply_to_a_ping_is_the_ping_turned_around() {
    let (_, sent) = receive(&mut station(), SECOND, &ping_v4([192, 0, 2, 9], b"payload of odd length"));
    let frame = &sent[0];
    assert_eq!((&frame[..6], &frame[6..12]), (&THEIRS[..], &OURS[..]));
    assert_eq!((&frame[26..30], &frame[30..34]), (&[192, 0, 2, 1][..], &[192, 0, 2, 9][..]));
    assert_eq!((sum(&[&frame[14..34]]), sum(&[&frame[34..63]])), ([0, 0], [0, 0]));
    assert_eq!((&frame[34..36], &frame[38..42]), (&[0, 0][..], &[0xab, 0xcd, 0, 7][..]));
    assert_eq!(frame[42..], b"payload of odd length"[..]);
}

#[test]
fn nothing_else_is_answered() {
    let with = |at: usize, byte: u8, mut frame: Vec<u8>| {
        frame[at] = byte;
        frame
    };
    let [arp_question, ping, ns, probe, ping6] = questions();
    let one = |frame: &Vec<u8>| frame.clone();
    let padded = |frame: &Vec<u8>, options: &[u8]| {
        let mut longer = frame[54..].to_vec();
        longer.extend(options);
        icmpv6(255, "2001:db8::9", GROUP, longer)
    };
    for (why, frame, event) in [
        ("a frame for another", with(5, 7, one(&ping)), "Other"),
        ("a frame of its own", with(11, 1, one(&ping)), "Other"),
        ("ARP for another", arp(1, (THEIRS, [192, 0, 2, 9]), [192, 0, 2, 2]), "Handled"),
        ("ARP of no operation", with(21, 3, one(&arp_question)), "Dropped"),
        ("ARP of a group", arp(1, ([3, 0, 0, 0, 0, 9], [192, 0, 2, 9]), [192, 0, 2, 1]), "Dropped"),
        ("ARP from a group", arp(1, (THEIRS, [224, 0, 0, 1]), [192, 0, 2, 1]), "Dropped"),
        ("ARP for another network", with(15, 6, one(&arp_question)), "Dropped"),
        ("a ping with a wrong header", with(22, 8, one(&ping)), "Dropped"),
        ("a ping with wrong bytes", with(43, 8, one(&ping)), "Dropped"),
        ("a ping with a lying length", with(17, 200, one(&ping)), "Dropped"),
        ("a ping to all at once", with(0, 3, one(&ping)), "Dropped"),
        ("a ping from all", ping_v4([255, 255, 255, 255], b""), "Dropped"),
        ("a ping from the network's all", ping_v4([192, 0, 2, 255], b""), "Dropped"),
        ("a ping from itself", ping_v4([192, 0, 2, 1], b""), "Dropped"),
        ("a solicitation from beyond a router", icmpv6(254, "2001:db8::9", GROUP, ns[54..].to_vec()), "Dropped"),
        ("an option without length", padded(&ns, &[9, 0, 0, 0, 0, 0, 0, 0]), "Dropped"),
        ("an option that ends later", padded(&ns, &[9, 2, 0, 0, 0, 0, 0, 0]), "Dropped"),
        ("half an option", padded(&ns, &[9]), "Dropped"),
        ("a probe with an address", icmpv6(255, "::", GROUP, nd(135, 0, "2001:db8::1", &SOURCE)), "Dropped"),
        ("a probe to one", icmpv6(255, "::", "2001:db8::1", probe[54..].to_vec()), "Dropped"),
        ("a solicitation for a group", icmpv6(255, "2001:db8::9", GROUP, nd(135, 0, "ff02::1", &SOURCE)), "Dropped"),
        ("a wrong checksum", with(60, 8, one(&ping6)), "Dropped"),
        ("a ping to all nodes", icmpv6(64, "2001:db8::9", "ff02::1", ping6[54..].to_vec()), "Other"),
        ("no ICMPv6", with(20, 17, one(&ping6)), "Other"),
        ("a VLAN", [&ping[..12], &[0x81, 0, 0, 5], &ping[12..]].concat(), "Other"),
        ("half a header", ping[..13].to_vec(), "Dropped"),
        ("nothing", Vec::new(), "Dropped"),
    ] {
        let mut station = station();
        assert_eq!(receive(&mut station, SECOND, &frame), (event.to_owned(), vec![]), "{why}");
        let Counters { malformed, bad_checksum, .. } = *station.counters();
        assert_eq!(malformed + bad_checksum, u64::from(event == "Dropped"), "{why}");
    }
    let mut fragment = one(&ping);
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let check = sum(&[&fragment[14..34]]);
    fragment[24..26].copy_from_slice(&check);
    let mut station = station();
    assert_eq!(receive(&mut station, SECOND, &fragment).0, "Dropped");
    assert_eq!(station.counters().fragments, 1);
}

#[test]
fn a_flood_is_answered_in_part() {
    let mut station = station();
    let [question, ping, ..] = questions();
    let mut answers = 0;
    // A million a second, for a second.
    for number in 0..1_000_000 {
        answers += receive_count(&mut station, Duration::from_micros(number), &question);
    }
    assert!((10_900..=11_100).contains(&answers), "{answers} of a million");
    assert_eq!(station.counters().limited, 1_000_000 - answers);
    // Pings have a limit of their own.
    assert_eq!(receive(&mut station, SECOND, &ping).1.len(), 1);
}

fn receive_count(station: &mut Station, now: Duration, frame: &[u8]) -> u64 {
    let mut sent = 0;
    station.receive(now, frame, &mut |_| sent += 1);
    sent
}

#[test]
fn a_next_hop_that_is_silent_is_given_up() {
    for (destination, next_hop) in
        [("192.0.2.9", "192.0.2.9"), ("198.51.100.1", "192.0.2.254"), ("2001:db8::9", "2001:db8::9")]
    {
        let mut station = station();
        poll(&mut station, Duration::ZERO);
        poll(&mut station, SECOND);
        let (mut asked, mut now) = (0, SECOND * 2);
        let error = loop {
            match station.resolve(now, ip(destination)) {
                Ok(mac) => assert_eq!(mac, None),
                Err(error) => break error,
            }
            asked += poll(&mut station, now).len();
            now += Duration::from_millis(10);
            assert!(now < SECOND * 60, "it never gives up");
        };
        assert_eq!((error, asked), (Error::NoAnswer { next_hop: ip(next_hop), asked: 3 }, 3));
        assert!((SECOND * 3..SECOND * 4).contains(&(now - SECOND * 2)), "{now:?}");
        assert_eq!(station.resolve(now + SECOND * 2, ip(destination)), Ok(None), "it asks again later");
    }
}

#[test]
fn what_cannot_be_reached_is_said_at_once() {
    let mut station = station();
    for (destination, error) in [
        ("192.0.2.1", Error::Own(ip("192.0.2.1"))),
        ("192.0.2.255", Error::NotUnicast(ip("192.0.2.255"))),
        ("192.0.2.0", Error::NotUnicast(ip("192.0.2.0"))),
        ("224.0.0.1", Error::NotUnicast(ip("224.0.0.1"))),
        ("ff02::1", Error::NotUnicast(ip("ff02::1"))),
        ("::", Error::NotUnicast(ip("::"))),
        ("2001:db8:1::1", Error::NoRoute(ip("2001:db8:1::1"))),
    ] {
        assert_eq!(station.resolve(SECOND, ip(destination)), Err(error));
    }
    let mut four = Station::new(OURS, &["192.0.2.1/24".parse().unwrap()], &[]).unwrap();
    assert_eq!(four.resolve(SECOND, ip("2001:db8::9")), Err(Error::NoAddress(ip("2001:db8::9"))));
    assert_eq!(Station::new([1, 0, 0, 0, 0, 0], &[], &[]).unwrap_err(), Error::Mac);
    let own = Station::new(OURS, &["192.0.2.1/24".parse().unwrap()], &[ip("192.0.2.1")]);
    assert_eq!(own.unwrap_err(), Error::Own(ip("192.0.2.1")));
}

#[test]
fn next_hops_are_bounded() {
    let address = "10.0.0.1/8".parse().unwrap();
    let mut station = Station::new(OURS, &[address], &[]).unwrap();
    let host = |number: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0100 + number));
    let most = u32::try_from(MAX_NEIGHBOURS).unwrap();
    (0..most).for_each(|number| assert_eq!(station.resolve(SECOND, host(number)), Ok(None)));
    assert_eq!(station.resolve(SECOND, host(most)), Err(Error::Busy(host(most))));
    // An answer makes room, as does one that never came.
    let [.., a, b, c, d] = (0x0a00_0100_u32).to_be_bytes();
    receive(&mut station, SECOND, &arp(2, (THEIRS, [a, b, c, d]), [10, 0, 0, 1]));
    assert_eq!(station.resolve(SECOND, host(0)), Ok(Some(THEIRS)));
    assert_eq!(station.resolve(SECOND, host(most)), Ok(None));
}

#[test]
fn an_answer_counts_only_if_it_was_asked_for() {
    let mut station = station();
    let neighbour = ip("2001:db8::9");
    let answer = |flags, options: &[u8], mac: u8| {
        let mut options = options.to_vec();
        if let Some(last) = options.last_mut() {
            *last = mac;
        }
        icmpv6(255, "2001:db8::9", "2001:db8::1", nd(136, flags, "2001:db8::9", &options))
    };
    receive(&mut station, SECOND, &answer(0x60, &TARGET, 9));
    assert_eq!(station.resolve(SECOND, neighbour), Ok(None), "nobody had asked");
    receive(&mut station, SECOND, &answer(0x60, &[], 9));
    assert_eq!(station.resolve(SECOND, neighbour), Ok(None), "it does not say where");
    receive(&mut station, SECOND, &answer(0x60, &TARGET, 9));
    assert_eq!(station.resolve(SECOND, neighbour), Ok(Some(THEIRS)));
    receive(&mut station, SECOND, &answer(0x40, &TARGET, 8));
    assert_eq!(station.resolve(SECOND, neighbour), Ok(Some(THEIRS)), "without override");
    receive(&mut station, SECOND, &answer(0x20, &TARGET, 8));
    assert_eq!(station.resolve(SECOND, neighbour), Ok(Some([2, 0, 0, 0, 0, 8])));
    assert_eq!(station.counters().moved, 1);
}

#[test]
fn an_address_of_another_is_given_up_in_the_first_second_only() {
    let claims = [
        ("192.0.2.1", arp(2, (THEIRS, [192, 0, 2, 1]), [192, 0, 2, 1])),
        ("2001:db8::1", icmpv6(255, "2001:db8::1", "ff02::1", nd(136, 0x20, "2001:db8::1", &TARGET))),
        ("2001:db8::1", icmpv6(255, "::", GROUP, nd(135, 0, "2001:db8::1", &[]))),
    ];
    for (address, claim) in claims {
        let mut early = station();
        let probes = poll(&mut early, Duration::ZERO);
        // Each asks for an address, and has none.
        assert_eq!(probes.len(), 3, "the link-local address too");
        assert!(probes[0][..6] == [0xff; 6] && probes[0][28..32] == [0; 4] && probes[1][22..38] == [0; 16]);
        assert_eq!(receive(&mut early, SECOND / 2, &claim), ("Dropped".to_owned(), vec![]));
        assert_eq!(early.check(), Err(Error::Duplicate { address: ip(address), mac: THEIRS }));
        let answered: usize =
            questions().iter().map(|question| receive(&mut early, SECOND / 2, question).1.len()).sum();
        assert!(answered < questions().len(), "it no longer answers for {address}");

        let mut late = station();
        poll(&mut late, Duration::ZERO);
        assert_eq!(poll(&mut late, SECOND).len(), 3, "it says that it is there");
        receive(&mut late, SECOND * 2, &claim);
        assert_eq!(late.check(), Ok(()));
    }
}

#[test]
fn errors_on_the_way_name_the_request() {
    let mut station = station();
    let echo = Echo { from: ip("192.0.2.1"), to: ip("203.0.113.5"), identifier: 5, sequence: 6, payload: b"abcd" };
    let mut request = Vec::new();
    echo.write(&mut request, OURS, THEIRS).unwrap();
    // As a router sends it: the IP header and 8 bytes.
    let mut answer = ping_v4([192, 0, 2, 254], &request[14..42]);
    (answer[34], answer[35]) = (3, 1);
    answer[36..42].fill(0);
    let check = sum(&[&answer[34..]]);
    answer[36..38].copy_from_slice(&check);
    match station.receive(SECOND, &answer, &mut |_| panic!("nothing is sent")) {
        Event::Trouble(trouble) => {
            assert_eq!((trouble.to, trouble.identifier, trouble.sequence), (echo.to, 5, 6));
            assert!(trouble.to_string().starts_with("192.0.2.254 says of 203.0.113.5: the host does not answer"));
        }
        other => panic!("{other:?}"),
    }
    let mixed = Echo { to: ip("2001:db8::9"), ..echo };
    assert!(mixed.write(&mut request, OURS, THEIRS).is_err());
    assert!(Echo { payload: &[0; 65_535], ..echo }.write(&mut request, OURS, THEIRS).is_err());
}

#[test]
fn addresses_have_a_prefix() {
    for good in ["192.0.2.1/24", "10.0.0.0/31", "10.0.0.1/32", "2001:db8::/64", "fe80::1/10", "1.2.3.4/0"] {
        assert_eq!(good.parse::<InterfaceAddress>().unwrap().to_string(), good);
    }
    for bad in [
        "192.0.2.1",
        "192.0.2.1/",
        "192.0.2.1/33",
        "192.0.2.1/+8",
        "192.0.2.0/24",
        "192.0.2.255/24",
        "224.0.0.1/4",
        "127.0.0.1/8",
        "0.0.0.0/0",
        "::1/128",
        "::/0",
        "ff02::1/64",
        "2001:db8::1/129",
        "/24",
        "x/24",
        "192.0.2.1/24/3",
    ] {
        assert!(bad.parse::<InterfaceAddress>().is_err(), "{bad}");
    }
    assert_eq!(InterfaceAddress::link_local(OURS).to_string(), "fe80::ff:fe00:1/64");
}

proptest! {
    /// Whatever comes, one frame at most goes, and it is for one station or for all nodes.
    #[test]
    fn any_frame_is_bounded(which in 0_usize..5, changes in prop::collection::vec((0_usize..90, any::<u8>()), 0..6), cut in 0_usize..100) {
        let mut station = station();
        poll(&mut station, Duration::ZERO);
        let mut frame = questions()[which].clone();
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut);
        let (_, sent) = receive(&mut station, SECOND, &frame);
        prop_assert!(sent.len() <= 1);
        for answer in sent {
            prop_assert!(answer[0] & 1 == 0 || answer[..6] == [0x33, 0x33, 0, 0, 0, 1]);
            prop_assert!(answer[6..12] == OURS && answer.len() <= frame.len().max(86));
        }
    }
}
