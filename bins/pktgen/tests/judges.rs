//! What `pktgen tx` sends of all stacks, with tags and with the frames that end streams, as tshark reads it.

use std::process::Command;

/// Headers of a stream with what else it has, and how many checksums are in each of its frames.
const STREAMS: &[(&str, usize)] = &[
    (
        "frame = ['ethernet', { vlan = { tpid = 0x88a8, id = { random = true } } }, 'vlan', 'ipv4', 'udp']\nflows = 50",
        2,
    ),
    (
        "frame = ['ethernet', 'vlan', 'ipv6', { tcp = { sequence = { random = true }, window = { from = 1, to = 7 } } }]",
        1,
    ),
    ("frame = ['ethernet', 'mpls', 'mpls', { ipv4 = { source = { random = true } } }, 'icmp']", 2),
    (
        "frame = ['ethernet', { ipv6 = { flow_label = { random = true } } }, { icmpv6 = { sequence = { random = true } } }]",
        1,
    ),
    ("frame = ['ethernet', 'ipv4', { gre = { checksum = true, key = { random = true } } }, 'ipv4', 'udp']", 4),
    (
        "frame = ['ethernet', 'ipv4', 'udp', { vxlan = { vni = { random = true } } }, 'ethernet', 'ipv6', 'udp']\nflows = 70000",
        3,
    ),
    (
        "frame = ['ethernet', 'ipv4', { raw = 'de ad be ef' }]\nfield = [{ at = 36, bytes = 2, value = { random = true } }]",
        1,
    ),
    ("frame = ['ethernet', { arp = { operation = { list = [1, 2] } } }]", 0),
    ("frame = ['ethernet', { raw = '01 02 03' }]", 0),
];
/// Frames of each stream, and frames that end it.
const FRAMES: usize = 600;
const ENDS: usize = 2;

#[test]
fn tshark_finds_no_checksum_wrong_of_tagged_frames() {
    let folder = tempfile::tempdir().unwrap();
    let [file, capture] = ["streams.toml", "sent.pcap"].map(|name| folder.path().join(name));
    let stream =
        |(headers, _): &(&str, usize)| format!("[[stream]]\nsize = [128, 129]\npayload = 'random'\n{headers}\n");
    std::fs::write(&file, STREAMS.iter().map(stream).collect::<String>()).unwrap();
    for tag in ["short", "full"] {
        let port = format!("soft:a?wire=pcap:,{}", capture.display());
        let count = (STREAMS.len() * FRAMES).to_string();
        let options = ["--count", &count, "--ends", &ENDS.to_string(), "--tag", tag, "--quiet"];
        let mut sent = Command::new(env!("CARGO_BIN_EXE_pktgen"));
        let sent = sent.args(["tx", &port, "--stream"]).arg(&file).args(options).output().unwrap();
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));

        let mut command = Command::new("tshark");
        command.arg("-r").arg(&capture).args(["-n", "-T", "fields", "-E", "separator=;"]);
        for check in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
            command.args(["-o", &format!("{check}:TRUE")]);
        }
        let sums = ["ip", "udp", "tcp", "icmp", "icmpv6", "gre"].map(|name| format!("{name}.checksum.status"));
        for field in ["_ws.malformed", "_ws.expert.message"].into_iter().chain(sums.iter().map(String::as_str)) {
            command.args(["-e", field]);
        }
        let Ok(output) = command.output() else {
            skip::test!("tshark is not installed; tests/setup installs it");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let mut right = 0;
        for line in said.lines() {
            let columns: Vec<&str> = line.split(';').collect();
            assert!(columns[0].is_empty() && !columns[1].to_lowercase().contains("checksum"), "{tag}: {line}");
            let statuses = columns[2..].iter().flat_map(|column| column.split(',')).filter(|text| !text.is_empty());
            statuses.for_each(|status| {
                assert_eq!(status, "1", "{tag}: {line}");
                right += 1;
            });
        }
        // A machine that stops pktgen for a second leaves no time for the second end.
        let ends = (said.lines().count() / STREAMS.len()).saturating_sub(FRAMES);
        assert!(ends <= ENDS, "{tag}: {ends}");
        assert_eq!(said.lines().count(), STREAMS.len() * (FRAMES + ends));
        assert_eq!(right, (FRAMES + ends) * STREAMS.iter().map(|(_, sums)| sums).sum::<usize>(), "{tag}");
    }
}
