//! Scapy builds the same frames byte for byte, and tshark finds none malformed and no checksum wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use stream::{Definition, Stream};

/// Frames of each case.
const FRAMES: usize = 8;

/// Headers by the names used below: as a definition has them, as scapy has them, and as tshark calls the protocol.
const HEADERS: &[(&str, &str, &str, &str)] = &[
    ("eth", "'ethernet'", "Ether(dst='02:00:00:00:00:02', src='02:00:00:00:00:01')", "eth"),
    ("vlan", "{ vlan = { id = 5, priority = 3 } }", "Dot1Q(vlan=5, prio=3)", "vlan"),
    ("vlans", "{ vlan = { id = { from = 10, to = 12 }, drop_eligible = 1 } }", "Dot1Q(vlan=10 + i % 3, id=1)", "vlan"),
    ("mpls1", "{ mpls = { label = 1000, class = 5 } }", "MPLS(label=1000, cos=5, s=0, ttl=64)", "mpls"),
    (
        "mpls",
        "{ mpls = { label = { list = [16, 0xfffff] }, ttl = 9 } }",
        "MPLS(label=[16, 0xfffff][i % 2], s=1, ttl=9)",
        "mpls",
    ),
    ("ip", "'ipv4'", "IP(src='198.18.0.1', dst='198.19.0.1', flags='DF', id=0)", "ip"),
    (
        "ips",
        "{ ipv4 = { source = { from = '10.0.0.255', to = '10.0.1.2' }, destination = { list = ['1.2.3.4', '255.255.255.255', \
         '0.0.0.0'] }, id = { from = 65533, to = 65535 }, dscp = { from = 0, to = 63, step = 21 }, ecn = { list = [3, 0] }, \
         ttl = { from = 250, to = 255 }, dont_fragment = 0 } }",
        "IP(src=f'10.0.{(255 + i % 4) // 256}.{(255 + i % 4) % 256}', dst=['1.2.3.4', '255.255.255.255', '0.0.0.0'][i % 3], \
         id=65533 + i % 3, tos=(21 * (i % 4)) << 2 | [3, 0][i % 2], ttl=250 + i % 6)",
        "ip",
    ),
    ("ip6", "'ipv6'", "IPv6(src='2001:2::1', dst='2001:2::1:0:0:1', hlim=64)", "ipv6"),
    (
        "ip6s",
        "{ ipv6 = { source = { from = '2001:2::fffe', to = '2001:2::1:1' }, destination = { list = ['fd00::1', '2001:db8::'] }, \
         flow_label = { from = 0xffffe, to = 0xfffff }, hop_limit = 1, dscp = 46, ecn = { list = [1, 2] } } }",
        "IPv6(src=['2001:2::fffe', '2001:2::ffff', '2001:2::1:0', '2001:2::1:1'][i % 4], dst=['fd00::1', '2001:db8::'][i % 2], \
         fl=0xffffe + i % 2, hlim=1, tc=46 << 2 | [1, 2][i % 2])",
        "ipv6",
    ),
    ("udp", "'udp'", "UDP(sport=49152, dport=9)", "udp"),
    (
        "udps",
        "{ udp = { source = { from = 1, to = 7, step = 3 }, destination = { list = [20001, 20002] } } }",
        "UDP(sport=1 + 3 * (i % 3), dport=20001 + i % 2)",
        "udp",
    ),
    ("udp0", "{ udp = { checksum = 0, destination = 4789 } }", "UDP(sport=49152, dport=4789, chksum=0)", "udp"),
    ("tcp", "'tcp'", "TCP(sport=49152, dport=9, flags='A', window=65535)", "tcp"),
    (
        "tcps",
        "{ tcp = { source = { list = [9, 8] }, sequence = { from = 0xffff_fffe, to = 0xffff_ffff }, acknowledgement = 77, \
         flags = { list = [2, 0x18] }, window = { from = 0, to = 3 }, urgent = 5 } }",
        "TCP(sport=[9, 8][i % 2], dport=9, seq=0xfffffffe + i % 2, ack=77, flags=[2, 0x18][i % 2], window=i % 4, urgptr=5)",
        "tcp",
    ),
    ("icmp", "{ icmp = { sequence = { from = 0, to = 5 } } }", "ICMP(id=1, seq=i % 6)", "icmp"),
    ("icmp0", "{ icmp = { type = 0, id = { list = [0, 1] } } }", "ICMP(type=0, id=i % 2)", "icmp"),
    ("icmp6", "{ icmpv6 = { sequence = { from = 0, to = 5 } } }", "ICMPv6EchoRequest(id=1, seq=i % 6)", "icmpv6"),
    (
        "arp",
        "{ arp = { operation = { list = [1, 2] }, sender_mac = { from = '02:00:00:00:00:ff', to = '02:00:00:00:01:01' } } }",
        "ARP(op=1 + i % 2, hwsrc=['02:00:00:00:00:ff', '02:00:00:00:01:00', '02:00:00:00:01:01'][i % 3], hwdst='00:00:00:00:00:00', \
         psrc='198.18.0.1', pdst='198.19.0.1')",
        "arp",
    ),
    ("gre", "'gre'", "GRE()", "gre"),
    (
        "gres",
        "{ gre = { checksum = true, key = { from = 7, to = 9 }, sequence = { from = 0, to = 4294967295 } } }",
        "GRE(chksum_present=1, key_present=1, key=7 + i % 3, seqnum_present=1, sequence_number=i)",
        "gre",
    ),
    (
        "vxlan",
        "{ vxlan = { vni = { from = 0xfffffe, to = 0xffffff } } }",
        "VXLAN(vni=0xfffffe + i % 2, flags=8)",
        "vxlan",
    ),
    ("udpv", "'udp'", "UDP(sport=49152, dport=4789)", "udp"),
    // Of an odd length, for what sums it; no protocol to tshark.
    ("raw", "{ raw = 'de ad be ef 01' }", "Raw(bytes.fromhex('deadbeef01'))", ""),
];

/// Stacks of headers: of every protocol, and of tunnels in tunnels.
const STACKS: &[&str] = &[
    "eth ip udp",
    "eth ips udps",
    "eth ips tcps",
    "eth ip tcp",
    "eth ip icmp",
    "eth ip icmp0",
    "eth ip6 udp",
    "eth ip6s udps",
    "eth ip6s tcps",
    "eth ip6 icmp6",
    "eth ip6s icmp6",
    "eth arp",
    "eth vlan arp",
    "eth vlan vlans ips udps",
    "eth vlans ip6s tcps",
    "eth mpls ips tcp",
    "eth mpls1 mpls ips udps",
    "eth mpls1 mpls ip6s udps",
    "eth vlan mpls1 mpls1 mpls ip icmp",
    "eth ips gre ips udps",
    "eth ips gres ips tcps",
    "eth ip6s gres ip6s tcps",
    "eth ips gre eth vlans ip6s udps",
    "eth ips gres eth arp",
    "eth ip gre mpls ips udp",
    "eth ips udpv vxlan eth ips udps",
    "eth ips udp0 vxlan eth ips tcps",
    "eth ip6s udpv vxlan eth vlans ip6s icmp6",
    "eth vlan ips udpv vxlan eth ips udpv vxlan eth ips gres ip6s tcps",
    "eth ips ips udps",
    "eth ips ip6s tcps",
    "eth ip6s ips icmp",
    "eth ip6s ip6s udps",
    "eth ips udps raw",
    "eth vlan ip6s tcps raw",
    "eth ips icmp raw",
    "eth ips gres ip6s icmp6 raw",
];

/// Size, payload and reserved bytes of each stack's frames: in a definition, and in Python.
const SHAPES: &[(&str, &str, &str, &str)] = &[
    ("256", "256", "'zero'", "b'\\0'"),
    ("[257, 300, 1514, 9216]", "[257, 300, 1514, 9216][i % 4]", "{ bytes = 'ff 01 80' }", "b'\\xff\\x01\\x80'"),
];

fn headers(stack: &str) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str, &'static str)> {
    stack.split(' ').map(|name| HEADERS.iter().find(|(known, ..)| *known == name).expect("the header is on the list"))
}

/// The first frames of a stack.
fn frames(stack: &str, size: &str, payload: &str) -> Vec<Vec<u8>> {
    let frame: Vec<&str> = headers(stack).map(|(_, toml, ..)| *toml).collect();
    let text = format!("[[stream]]\nsize = {size}\npayload = {payload}\nframe = [{}]\n", frame.join(", "));
    let definition = Definition::parse("case", &text).unwrap_or_else(|error| panic!("{error}"));
    let mut stream = Stream::new(&definition[0], 0, 1).unwrap();
    let mut frames: Vec<Vec<u8>> = stream.sizes().take(FRAMES).map(|size| vec![0x5A; size.into()]).collect();
    assert_eq!(stream.fill(frames.iter_mut().map(|frame| &mut frame[..])), FRAMES);
    frames
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a Python with scapy prints of a script; `None` where there is none.
fn scapy(script: &str) -> Option<String> {
    let has = |python: &&str| {
        let check = Command::new(python).args(["-c", "import scapy"]).stderr(Stdio::null()).status();
        check.is_ok_and(|status| status.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(has)?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("build.py");
    std::fs::write(&path, script).unwrap();
    let output = Command::new(python).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn scapy_builds_the_same_frames() {
    let mut script = String::from(
        "from scapy.all import *\nload_contrib('mpls')\n\
         def pad(p, size, payload):\n    rest = size - len(p)\n    return p / Raw((payload * (rest // len(payload) + 1))[:rest])\n",
    );
    let mut ours = Vec::new();
    for stack in STACKS {
        let packet: Vec<&str> = headers(stack).map(|(_, _, scapy, _)| *scapy).collect();
        for (size, python_size, payload, python_payload) in SHAPES {
            script += &format!(
                "for i in range({FRAMES}): print(bytes(pad({}, {python_size}, {python_payload})).hex())\n",
                packet.join(" / ")
            );
            ours.extend(frames(stack, size, payload).into_iter().map(|frame| (*stack, *size, hex(&frame))));
        }
    }
    let Some(theirs) = scapy(&script) else {
        skip::test!("scapy is not installed; tests/setup installs it");
        return;
    };
    let theirs: Vec<&str> = theirs.lines().collect();
    assert_eq!(theirs.len(), ours.len());
    let mut wrong = Vec::new();
    for (number, ((stack, size, ours), theirs)) in ours.iter().zip(theirs).enumerate() {
        if ours != theirs {
            let end = ours.len().min(320);
            wrong.push(format!(
                "{stack}, {size}, frame {}:\n ours   {}\n theirs {}",
                number % FRAMES,
                &ours[..end],
                &theirs[..end.min(theirs.len())]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong, such as\n{}", wrong.len(), wrong[..wrong.len().min(6)].join("\n"));
}

/// A capture file of frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: [u32; 6]| words.into_iter().flat_map(u32::to_le_bytes);
    let mut bytes: Vec<u8> = words([0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]).collect();
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        bytes.extend([0, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn tshark_finds_nothing_malformed_and_no_checksum_wrong() {
    let cases = || STACKS.iter().flat_map(|stack| SHAPES.iter().map(move |shape| (stack, shape)));
    let all: Vec<Vec<u8>> = cases().flat_map(|(stack, (size, _, payload, _))| frames(stack, size, payload)).collect();
    // One that is wrong shows that wrong ones would be seen.
    let mut wrong = all[0].clone();
    wrong[41] ^= 1;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture(&[all.clone(), vec![wrong]].concat())).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args(["-n", "-T", "fields", "-E", "separator=;"]);
    for check in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
        command.args(["-o", &format!("{check}:TRUE")]);
    }
    let sums = ["ip", "udp", "tcp", "icmp", "icmpv6"].map(|name| format!("{name}.checksum.status"));
    let fields = ["frame.protocols", "_ws.malformed", "_ws.expert.message"];
    for field in fields.into_iter().chain(sums.iter().map(String::as_str)) {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        skip::test!("tshark is not installed; tests/setup installs it");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = said.lines().collect();
    let wrong = lines.pop().unwrap();
    assert!(wrong.contains("[should be ") && wrong.contains(";1;0;"), "{wrong}");
    assert_eq!(lines.len(), all.len());
    for (number, line) in lines.iter().enumerate() {
        let (stack, (size, ..)) = cases().nth(number / FRAMES).unwrap();
        let columns: Vec<&str> = line.split(';').collect();
        let mut expected: Vec<&str> = headers(stack).map(|(.., name)| *name).filter(|name| !name.is_empty()).collect();
        // Labels are one protocol to it.
        expected.dedup_by(|a, b| a == b && *a == "mpls");
        let found: Vec<&str> = columns[0].split(':').filter(|name| *name != "ethertype").collect();
        assert!(found.starts_with(&expected), "{stack}, {size}: tshark sees {found:?}");
        assert_eq!(columns[1], "", "{stack}, {size}: malformed");
        assert!(!columns[2].to_lowercase().contains("checksum"), "{stack}, {size}: {}", columns[2]);
        // 1 is good, and 3 is that there is none, as in the headers of UDP that say so.
        let good = |status: &str| status == "1" || status == "3" && stack.contains("udp0");
        let statuses: Vec<&str> =
            columns[3..].iter().flat_map(|column| column.split(',')).filter(|text| !text.is_empty()).collect();
        assert!(statuses.iter().all(|status| good(status)), "{stack}, {size}: {line}");
        let summed = headers(stack).filter(|(.., name)| ["ip", "udp", "tcp", "icmp", "icmpv6"].contains(name)).count();
        assert_eq!(statuses.len(), summed, "{stack}, {size}: {line}");
    }
}
