//! Random definitions against an oracle that builds one frame at a time from scratch, with all checksums computed in full.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use stream::{Definition, Stream};

/// The values of a field of some bits: as text of a definition, and one after the other.
#[derive(Clone, Debug)]
enum Moves {
    Constant(u64),
    Count { from: u64, to: u64, step: u64 },
    List(Vec<u64>),
    Random { from: u64, to: u64 },
}

impl Moves {
    fn strategy(bits: u32) -> BoxedStrategy<Self> {
        let most = u64::MAX >> (64 - bits);
        let edge = prop_oneof![Just(0), Just(most), Just(most - 1), 0..=most, (0..=most).prop_map(move |v| v & 0xFF)];
        let bounds = (edge.clone(), edge.clone()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let near = (edge.clone(), 0..40_u64).prop_map(move |(a, more)| (a.min(most - more.min(most)), more.min(most)));
        let step = prop_oneof![Just(1), 1..=most.min(1 << 40)];
        prop_oneof![
            4 => edge.clone().prop_map(Self::Constant),
            2 => (bounds.clone(), step.clone()).prop_map(|((from, to), step)| Self::Count { from, to, step }),
            2 => near.prop_map(|(from, more)| Self::Count { from, to: from + more, step: 1 }),
            2 => proptest::collection::vec(edge, 1..5).prop_map(Self::List),
            2 => bounds.prop_map(|(from, to)| Self::Random { from, to }),
        ]
        .boxed()
    }

    fn text(&self, show: impl Fn(u64) -> String) -> String {
        match self {
            Self::Constant(value) => show(*value),
            Self::Count { from, to, step } => {
                format!("{{ from = {}, to = {}, step = {step} }}", show(*from), show(*to))
            }
            Self::List(list) => {
                format!("{{ list = [{}] }}", list.iter().map(|v| show(*v)).collect::<Vec<_>>().join(", "))
            }
            Self::Random { from, to } => format!("{{ random = true, from = {}, to = {} }}", show(*from), show(*to)),
        }
    }

    /// The value of a frame. A random one is taken from the frame `found`, if it is in the range.
    fn value(&self, number: u64, found: u64) -> u64 {
        match self {
            Self::Constant(value) => *value,
            Self::Count { from, to, step } => {
                let count = u128::from((to - from) / step) + 1;
                let turn = u64::try_from(u128::from(number) % count).unwrap();
                from + step * turn
            }
            Self::List(list) => list[usize::try_from(number).unwrap() % list.len()],
            Self::Random { from, to } => {
                assert!((*from..=*to).contains(&found), "{found} is not from {from} to {to}");
                found
            }
        }
    }
}

/// A frame's headers: Ethernet, tags, IPv4 or IPv6, UDP or TCP; and below them, or not, VXLAN and the same once more.
#[derive(Clone, Debug)]
struct Case {
    sizes: Vec<u16>,
    payload: Vec<u8>,
    tail: usize,
    tags: Vec<Moves>,
    outer: Option<(Packet, Moves)>,
    inner: Packet,
    /// Fields in the payload: bytes before each, its own, and its values.
    fields: Vec<(usize, usize, Moves)>,
}

/// An IP packet with ports.
#[derive(Clone, Debug)]
struct Packet {
    version: u8,
    /// The lower 64 bits of IPv6 addresses.
    addresses: [Moves; 2],
    /// Identification, or flow label.
    label: Moves,
    hops: Moves,
    tcp: bool,
    ports: [Moves; 2],
    sequence: Moves,
}

impl Packet {
    fn strategy() -> BoxedStrategy<Self> {
        let packet = (any::<bool>(), any::<bool>()).prop_flat_map(|(six, tcp)| {
            let address = if six { 64 } else { 32 };
            let label = if six { 20 } else { 16 };
            (
                [Moves::strategy(address), Moves::strategy(address)],
                Moves::strategy(label),
                Moves::strategy(8),
                [Moves::strategy(16), Moves::strategy(16)],
                Moves::strategy(32),
            )
                .prop_map(move |(addresses, label, hops, ports, sequence)| Self {
                    version: if six { 6 } else { 4 },
                    addresses,
                    label,
                    hops,
                    tcp,
                    ports,
                    sequence,
                })
        });
        packet.boxed()
    }

    fn text(&self) -> String {
        let [source, destination] = self.addresses.each_ref().map(|moves| moves.text(|v| self.address(v)));
        let number = |moves: &Moves| moves.text(|v| v.to_string());
        let (label, hops) = if self.version == 4 { ("id", "ttl") } else { ("flow_label", "hop_limit") };
        let [from, to] = self.ports.each_ref().map(number);
        let transport = if self.tcp {
            format!("{{ tcp = {{ source = {from}, destination = {to}, sequence = {} }} }}", number(&self.sequence))
        } else {
            format!("{{ udp = {{ source = {from}, destination = {to} }} }}")
        };
        format!(
            "{{ ipv{} = {{ source = {source}, destination = {destination}, {label} = {}, {hops} = {} }} }},\n{transport}",
            self.version,
            number(&self.label),
            number(&self.hops)
        )
    }

    fn address(&self, value: u64) -> String {
        if self.version == 4 {
            format!("'{}'", std::net::Ipv4Addr::from(u32::try_from(value).unwrap()))
        } else {
            format!("'{}'", std::net::Ipv6Addr::from(u128::from(value) | 0x2001_0002_u128 << 96))
        }
    }

    fn header_len(&self) -> usize {
        (if self.version == 4 { 20 } else { 40 }) + if self.tcp { 20 } else { 8 }
    }

    /// The packet around a payload. `found` is the packet of the frame, for what is random.
    fn build(&self, number: u64, found: &[u8], payload: &[u8]) -> Vec<u8> {
        let at = |from: usize, to: usize| found[from..to].iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let len = self.header_len() + payload.len();
        let mut ip = Vec::new();
        let (mut pseudo, transport_at) = if self.version == 4 {
            ip.extend([0x45, 0]);
            ip.extend(u16::try_from(len).unwrap().to_be_bytes());
            ip.extend(&self.label.value(number, at(4, 6)).to_be_bytes()[6..]);
            ip.extend([
                0x40,
                0,
                u8::try_from(self.hops.value(number, at(8, 9))).unwrap(),
                if self.tcp { 6 } else { 17 },
                0,
                0,
            ]);
            ip.extend(&self.addresses[0].value(number, at(12, 16)).to_be_bytes()[4..]);
            ip.extend(&self.addresses[1].value(number, at(16, 20)).to_be_bytes()[4..]);
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            (ip[12..20].to_vec(), 20)
        } else {
            let label = self.label.value(number, at(0, 4) & 0xFFFFF);
            ip.extend((6_u32 << 28 | u32::try_from(label).unwrap()).to_be_bytes());
            ip.extend(u16::try_from(len - 40).unwrap().to_be_bytes());
            ip.extend([if self.tcp { 6 } else { 17 }, u8::try_from(self.hops.value(number, at(7, 8))).unwrap()]);
            for (moves, from) in self.addresses.iter().zip([8, 24]) {
                ip.extend([0x20, 1, 0, 2, 0, 0, 0, 0]);
                ip.extend(moves.value(number, at(from + 8, from + 16)).to_be_bytes());
            }
            (ip[8..40].to_vec(), 40)
        };
        let found = &found[transport_at..];
        let at = |from: usize, to: usize| found[from..to].iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let mut transport = Vec::new();
        transport.extend(&self.ports[0].value(number, at(0, 2)).to_be_bytes()[6..]);
        transport.extend(&self.ports[1].value(number, at(2, 4)).to_be_bytes()[6..]);
        let rest = len - transport_at;
        let sum_at = if self.tcp {
            transport.extend(&self.sequence.value(number, at(4, 8)).to_be_bytes()[4..]);
            transport.extend([0, 0, 0, 0, 0x50, 0x10, 0xFF, 0xFF, 0, 0, 0, 0]);
            16
        } else {
            transport.extend(u16::try_from(rest).unwrap().to_be_bytes());
            transport.extend([0, 0]);
            6
        };
        transport.extend(payload);
        pseudo.extend([0, if self.tcp { 6 } else { 17 }]);
        pseudo.extend(u16::try_from(rest).unwrap().to_be_bytes());
        pseudo.extend(&transport);
        let sum = checksum(&pseudo);
        let sum = if sum == 0 && !self.tcp { 0xFFFF } else { sum };
        transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        [ip, transport].concat()
    }
}

impl Case {
    fn strategy() -> impl Strategy<Value = Self> {
        let sizes = prop_oneof![
            4 => (200_u16..400).prop_map(|size| vec![size]),
            2 => proptest::collection::vec(200_u16..1600, 2..5),
            1 => Just(vec![9216, 333]),
        ];
        let outer = proptest::option::weighted(0.3, (Packet::strategy(), Moves::strategy(24)));
        let payload = proptest::collection::vec(any::<u8>(), 1..4);
        let tail = prop_oneof![Just(0), Just(8), Just(14), 0..20_usize];
        let tags = proptest::collection::vec(Moves::strategy(12), 0..3);
        let field = (0..5_usize, 1..=8_usize);
        let field = field.prop_flat_map(|(gap, width)| {
            let bits = u32::try_from(8 * width).unwrap();
            (Just(gap), Just(width), Moves::strategy(bits))
        });
        let fields = proptest::collection::vec(field.boxed(), 0..3);
        (sizes, payload, tail, tags, outer, Packet::strategy(), fields).prop_map(
            |(sizes, payload, tail, tags, outer, inner, fields)| {
                // VXLAN is in UDP.
                let outer = outer.map(|(packet, vni)| (Packet { tcp: false, ..packet }, vni));
                Self { sizes, payload, tail, tags, outer, inner, fields }
            },
        )
    }

    fn text(&self) -> String {
        let number = |moves: &Moves| moves.text(|v| v.to_string());
        let mut frame = vec!["'ethernet'".to_owned()];
        frame.extend(self.tags.iter().map(|id| format!("{{ vlan = {{ id = {} }} }}", number(id))));
        if let Some((packet, vni)) = &self.outer {
            frame.extend([
                packet.text(),
                format!("{{ vxlan = {{ vni = {} }} }}", number(vni)),
                "'ethernet'".to_owned(),
            ]);
        }
        frame.push(self.inner.text());
        let payload: String = self.payload.iter().map(|byte| format!("{byte:02x}")).collect();
        let (sizes, frame) = (&self.sizes, frame.join(",\n"));
        let mut at = self.headers_len();
        let mut fields = Vec::new();
        for (gap, width, moves) in &self.fields {
            let value = moves.text(|value| format!("{value:#x}"));
            fields.push(format!("{{ at = {}, bytes = {width}, value = {value} }}", at + gap));
            at += gap + width;
        }
        let fields = fields.join(",\n");
        format!(
            "[[stream]]\nsize = {sizes:?}\npayload = {{ bytes = '{payload}' }}\nframe = [\n{frame}]\nfield = [{fields}]\n"
        )
    }

    fn build(&self, number: u64, found: &[u8]) -> Vec<u8> {
        let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let mut frame = macs.to_vec();
        for id in &self.tags {
            let at = frame.len() + 2;
            let id = id.value(number, u64::from(u16::from_be_bytes([found[at], found[at + 1]]) & 0xFFF));
            frame.extend([0x81, 0]);
            frame.extend(u16::try_from(id).unwrap().to_be_bytes());
        }
        let ether_type = |version: u8| if version == 4 { [0x08, 0x00] } else { [0x86, 0xDD] };
        let rest = |headers: usize| -> Vec<u8> {
            let len = found.len() - headers;
            let mut payload: Vec<u8> = self.payload.iter().copied().cycle().take(len).collect();
            payload[len - self.tail..].fill(0);
            let mut at = 0;
            for (gap, width, moves) in &self.fields {
                at += gap;
                let found = found[headers + at..][..*width].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
                payload[at..at + width].copy_from_slice(&moves.value(number, found).to_be_bytes()[8 - width..]);
                at += width;
            }
            payload
        };
        frame.extend(ether_type(self.outer.as_ref().map_or(self.inner.version, |(packet, _)| packet.version)));
        let start = frame.len();
        let Some((outer, vni)) = &self.outer else {
            frame.extend(self.inner.build(number, &found[start..], &rest(start + self.inner.header_len())));
            return frame;
        };
        let vxlan = start + outer.header_len();
        let vni =
            vni.value(number, found[vxlan + 4..vxlan + 7].iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let mut inside = vec![8, 0, 0, 0];
        inside.extend(&(vni << 8).to_be_bytes()[4..]);
        inside.extend(macs);
        inside.extend(ether_type(self.inner.version));
        let from = vxlan + inside.len();
        inside.extend(self.inner.build(number, &found[from..], &rest(from + self.inner.header_len())));
        frame.extend(outer.build(number, &found[start..], &inside));
        frame
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn made(text: &str, tail: usize, seed: u64) -> Stream {
    let definitions = Definition::parse("case", text).unwrap_or_else(|error| panic!("{error}"));
    Stream::new(&definitions[0], tail, seed).unwrap()
}

/// The next frames, in buffers that were used before.
fn take(stream: &mut Stream, count: usize) -> Vec<Vec<u8>> {
    let mut sizes = vec![0; count];
    stream.next_sizes(&mut sizes);
    assert!(stream.sizes().take(count).eq(sizes.iter().copied()));
    let mut frames: Vec<Vec<u8>> = sizes.into_iter().map(|size| vec![0xA5; size.into()]).collect();
    assert_eq!(stream.fill(frames.iter_mut().map(|frame| &mut frame[..])), count);
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_frame_is_that_of_the_oracle(case in Case::strategy(), bursts in proptest::collection::vec(0..70_usize, 1..6)) {
        let text = case.text();
        let mut stream = made(&text, case.tail, 1);
        let mut number = 0;
        for burst in bursts {
            for frame in take(&mut stream, burst) {
                prop_assert_eq!(frame.len(), usize::from(case.sizes[number % case.sizes.len()]));
                let expected = case.build(number.try_into().unwrap(), &frame);
                prop_assert!(frame == expected, "frame {}\n ours   {:02x?}\n oracle {:02x?}\n{}", number, frame, expected, text);
                number += 1;
            }
        }
    }

    #[test]
    fn a_seed_repeats_its_frames_whatever_the_bursts(case in Case::strategy(), burst in 1..70_usize) {
        let text = case.text();
        let (mut one, mut other) = (made(&text, case.tail, 5), made(&text, case.tail, 5));
        let whole = take(&mut one, 150);
        let mut parts = Vec::new();
        while parts.len() < 150 {
            parts.extend(take(&mut other, burst.min(150 - parts.len())));
        }
        prop_assert!(whole == parts);
    }

    #[test]
    fn a_tag_and_its_checksum_leave_all_checksums_right(case in Case::strategy(), tag in any::<[u8; 8]>()) {
        let tailed = Case { tail: 8, sizes: vec![300], ..case };
        let mut stream = made(&tailed.text(), 8, 1);
        let at = stream.checksum_at().unwrap();
        for (number, mut frame) in take(&mut stream, 3).into_iter().enumerate() {
            frame[292..].copy_from_slice(&tag);
            let mut sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
            for word in tag.as_chunks::<2>().0 {
                sum = wire::checksum::update_u16(sum, 0, u16::from_be_bytes(*word));
            }
            let sum = if sum == 0 && stream.writes_zero_as_ones() { 0xFFFF } else { sum };
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            // The oracle's payload ends in the tag.
            let headers = tailed.headers_len();
            let payload = [&tailed.payload.iter().copied().cycle().take(292 - headers).collect::<Vec<u8>>()[..], &tag].concat();
            let expected = Case { payload, tail: 0, ..tailed.clone() }.build(number.try_into().unwrap(), &frame);
            prop_assert!(frame == expected, "{:02x?}\n{:02x?}", frame, expected);
        }
    }
}

impl Case {
    /// Bytes of all headers.
    fn headers_len(&self) -> usize {
        let tags = 14 + 4 * self.tags.len();
        let outer = self.outer.as_ref().map_or(0, |(packet, _)| packet.header_len() + 8 + 14);
        tags + outer + self.inner.header_len()
    }
}

/// Of 65,536 frames that differ in two bytes behind the 250th a table would have 16 MiB, and so they are made as they are needed.
#[test]
fn headers_whose_table_is_too_large_are_those_of_the_oracle() {
    let constant = || Moves::Constant(7);
    let count = || Moves::Count { from: 0, to: 65_535, step: 1 };
    for (gap, is_table) in [(210, false), (3, true)] {
        let (addresses, ports) = ([constant(), constant()], [count(), constant()]);
        let (label, hops, sequence) = (constant(), constant(), constant());
        let inner = Packet { version: 4, addresses, label, hops, tcp: false, ports, sequence };
        let fields = vec![(gap, 2, count())];
        let case =
            Case { sizes: vec![300], payload: vec![1, 2, 3], tail: 8, tags: Vec::new(), outer: None, inner, fields };
        let mut stream = made(&case.text(), case.tail, 1);
        assert_eq!(stream.period(), Some(65_536));
        // All that a stream holds, it shows.
        let shown = format!("{stream:?}").len();
        assert_eq!(shown > 65_536 * 40, is_table, "{shown}");
        for (number, frame) in take(&mut stream, 66_000).into_iter().enumerate() {
            if number < 100 || number % 97 == 0 || number > 65_500 {
                assert!(frame == case.build(number.try_into().unwrap(), &frame), "{gap}, {number}: {frame:02x?}");
            }
        }
    }
}

#[test]
fn a_udp_checksum_of_zero_is_written_as_ones() {
    // One of all ports makes the sum 0. With another field that moves, headers are made as they are needed.
    for id in ["0", "{ from = 0, to = 2 }"] {
        let text = format!(
            "[[stream]]\nframe = ['ethernet', {{ ipv4 = {{ id = {id} }} }}, {{ udp = {{ source = {{ from = 0, to = 65535 }} }} }}]"
        );
        let mut stream = made(&text, 0, 1);
        assert_eq!(stream.period().is_some(), id == "0");
        let sums = take(&mut stream, 65_536).into_iter().map(|frame| u16::from_be_bytes([frame[40], frame[41]]));
        let sums: Vec<u16> = sums.collect();
        assert_eq!(
            (sums.iter().filter(|sum| **sum == 0).count(), sums.iter().filter(|sum| **sum == 0xFFFF).count()),
            (0, 1)
        );
    }
}

/// Buffers of which each has had some frame hold what does not move.
fn assert_what_moves_is_enough(text: &str, tail: usize, frames: usize, expected: bool) {
    let (mut whole, mut moving) = (made(text, tail, 1), made(text, tail, 1));
    let (mut buffers, whole) = (take(&mut whole, 7 + frames), take(&mut made(text, tail, 1), frames));
    assert_eq!(moving.write_what_moves(), expected, "{text}");
    if expected {
        let mut done = 0;
        while done < frames {
            let next = (frames - done).min(1 + done % 45);
            moving.fill(buffers[done + 7..done + 7 + next].iter_mut().map(|buffer| &mut buffer[..]));
            done += next;
        }
        assert!(buffers[7..] == whole, "{text}");
        assert!(!moving.write_what_moves());
    }
}

#[test]
fn what_moves_is_enough_where_buffers_keep_the_rest() {
    for (keys, udp, expected) in [
        ("flows = 20000", "'udp'", true),
        ("flows = 3\nsize = 61", "'udp'", true),
        ("flows = 65536\nsize = 9000\npayload = 'increment'", "'udp'", true),
        ("", "{ udp = { source = { list = [5, 6, 7] }, checksum = 0 } }", true),
        // Too many for a table.
        ("flows = 65537", "'udp'", true),
        ("", "{ udp = { source = { random = true }, destination = { random = true } } }", true),
        ("size = 77", "{ udp = { source = { random = true, to = 2 }, checksum = 0 } }", true),
        // All the same; of several sizes; too far from each other.
        ("", "'udp'", false),
        ("flows = 65537\nsize = [60, 61]", "'udp'", false),
        ("size = 100\nfield = [{ at = 80, bytes = 1, value = { random = true } }]", "'udp'", false),
        ("flows = 9\nsize = [60, 61]", "'udp'", false),
        ("flows = 9\nsize = 100\nfield = [{ at = 80, bytes = 1, value = { from = 0, to = 8 } }]", "'udp'", false),
    ] {
        let stream = |ip| format!("[[stream]]\n{keys}\nframe = ['ethernet', '{ip}', {udp}]");
        assert_what_moves_is_enough(&stream("ipv4"), 8, 300, expected);
        if keys.contains("flows = 20000") {
            let vlan = "[[stream]]\nframe = ['ethernet', { vlan = { id = { random = true } } }, { ipv4 = { source = { random = true } } }, 'udp']";
            assert_what_moves_is_enough(vlan, 8, 3_000, true);
            let labels =
                "[[stream]]\nsize = 90\nframe = ['ethernet', { mpls = { label = { random = true } } }, 'ipv4', 'udp']";
            assert_what_moves_is_enough(labels, 14, 3_000, true);
            assert_what_moves_is_enough(&stream("ipv4"), 14, 45_000, expected);
            assert_what_moves_is_enough(&stream("ipv6").replace("flows", "size = 76\nflows"), 14, 300, expected);
        }
    }
}

#[test]
fn values_of_odd_ranges_are_spread_evenly() {
    let text = "[[stream]]\nframe = ['ethernet', { ipv4 = { source = { random = true, to = '191.255.255.255' }, \
                destination = { random = true, from = '10.0.0.0', to = '10.2.255.254' } } }, 'udp']";
    let frames = take(&mut made(text, 0, 1), 30_000);
    for third in 0..3 {
        let upper = frames.iter().filter(|frame| frame[26] >> 6 == third).count();
        let lower = frames.iter().filter(|frame| frame[31] == third).count();
        assert!([upper, lower].iter().all(|count| (9_500..10_500).contains(count)), "{third}: {upper}, {lower}");
    }
}

#[test]
fn flows_move_together_and_repeat() {
    let text = "[[stream]]\nflows = 3\nframe = ['ethernet', { ipv4 = { source = { from = '10.0.0.1', to = '10.0.0.2', flow = true }, \
                destination = { random = true, flow = true }, id = { from = 0, to = 65535 } } }, \
                { udp = { source = { list = [5, 6, 7, 8], flow = true } } }]";
    for seed in 0..20 {
        let frames = take(&mut made(text, 0, seed), 9);
        let sources: Vec<(u8, u8)> = frames.iter().map(|frame| (frame[29], frame[35])).collect();
        assert_eq!(sources, [(1, 5), (2, 6), (1, 7)].repeat(3));
        let to = |frame: usize| &frames[frame][30..34];
        assert_eq!((to(0), to(1), to(2)), (to(3), to(4), to(8)));
        assert_eq!((frames[4][18], frames[4][19]), (0, 4), "the identification does not move with the flow");
    }
}

#[test]
fn random_values_are_spread_and_differ_by_seed_and_field() {
    let text = "[[stream]]\nframe = ['ethernet', { ipv4 = { ttl = { random = true, from = 1, to = 3 } } }, \
                { udp = { source = { random = true }, destination = { random = true } } }]";
    let frames = take(&mut made(text, 0, 1), 30_000);
    for ttl in 1..=3 {
        let share = frames.iter().filter(|frame| frame[22] == ttl).count();
        assert!((9_500..10_500).contains(&share), "time to live {ttl}: {share} of 30000");
    }
    let ports = |frames: &[Vec<u8>], at| frames.iter().map(|frame| [frame[at], frame[at + 1]]).collect::<Vec<_>>();
    assert_ne!(ports(&frames, 34), ports(&frames, 36));
    assert_ne!(ports(&frames[..100], 34), ports(&take(&mut made(text, 0, 2), 100), 34));
    let different: std::collections::BTreeSet<_> = ports(&frames, 34).into_iter().collect();
    assert!(different.len() > 20_000, "{} different ports", different.len());
}
