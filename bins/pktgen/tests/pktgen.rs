//! `pktgen` against itself over capture files, and against a reader of our own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::on_small_disk;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn pktgen(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pktgen")).args(arguments).output().unwrap()
}

#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = pktgen(&[arguments, &["--json", "--quiet"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Header and records (with their headers) of a capture.
fn records(path: &Path) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = std::fs::read(path).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while !rest.is_empty() {
        let len = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        records.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    (header.to_vec(), records)
}

fn ones_complement_sum(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (sum & 0xffff) + (sum >> 16)
}

/// What `pktgen rx` makes of a capture with these records.
fn received(header: &[u8], records: &[Vec<u8>]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [header, &records.concat()].concat()).unwrap();
    let received = report(&["rx", &format!("soft:b?wire=pcap:{},", file.path().display()), "--exit-when-idle"]);
    assert_eq!(received["received"], records.len());
    received
}

/// Sent, received, lost, duplicate, late and reordered.
fn counts(verdict: &Value) -> [u64; 6] {
    ["sent", "received", "lost", "duplicate", "late", "reordered"].map(|field| verdict[field].as_u64().unwrap())
}

#[test]
fn frames_are_numbered_and_valid_and_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    let name = capture.to_str().unwrap();
    let sent =
        report(&["tx", &format!("soft:a?wire=pcap:,{name}&mac=02:00:00:00:00:aa"), "--count", "5000", "--size", "128"]);
    assert_eq!(
        (&sent["mode"], &sent["sent"], &sent["ends"]),
        (&Value::from("tx"), &Value::from(5000), &Value::from(10))
    );
    assert_eq!(sent["ports"][0]["tx_bytes"], 5010 * 128);
    assert_eq!((&sent["drops"], &sent["clock"]["error_ppm"].is_number()), (&serde_json::json!({}), &true));

    let (header, records) = records(&capture);
    assert_eq!(records.len(), 5010);
    for (number, record) in records.iter().enumerate() {
        let frame = &record[16..];
        assert_eq!(frame.len(), 128);
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0xaa]);
        assert_eq!(frame[12..14], [0x08, 0x00]);
        assert_eq!(ones_complement_sum(&frame[14..34]), 0xffff, "IPv4 header checksum");
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), 114, "total length");
        assert_eq!(frame[23], 17, "UDP");
        assert_eq!(u16::from_be_bytes([frame[38], frame[39]]), 94, "UDP length");
        let pseudo_header = [&frame[26..34], &[0, 17, 0, 94]].concat();
        assert_eq!(ones_complement_sum(&[&pseudo_header, &frame[34..]].concat()), 0xffff, "UDP checksum");
        assert_eq!(frame[126..], records[0][142..], "all are of one stream");
        match number {
            0..5000 => {
                assert_eq!(frame[120..126], [&u32::try_from(number).unwrap().to_be_bytes(), &b"RF"[..]].concat())
            }
            _ => assert_eq!(frame[114..126], [&5000_u64.to_be_bytes()[2..], b"rendRE"].concat()),
        }
    }

    let verdict = |changed: &[Vec<u8>]| counts(&received(&header, changed)["numbered"]);
    assert_eq!(verdict(&records), [5000, 5000, 0, 0, 0, 0]);
    let mut changed = records.clone();
    changed.swap(100, 103);
    changed.remove(1000);
    changed.insert(2000, records[1999].clone());
    // After the exchange 101, 102 and 100 come after a higher number.
    assert_eq!(verdict(&changed), [5000, 4999, 1, 1, 0, 3]);
    // Head and tail count, and nothing at all is all; of the ends one is enough.
    assert_eq!(verdict(&records[700..]), [5000, 4300, 700, 0, 0, 0]);
    assert_eq!(verdict(&[&records[..4000], &records[5003..5004]].concat()), [5000, 4000, 1000, 0, 0, 0]);
    assert_eq!(verdict(&records[5000..]), [5000, 0, 5000, 0, 0, 0]);
    // Without any the tail is not known of.
    let unknown = received(&header, &records[..4000]);
    assert_eq!(
        (counts(&unknown["numbered"]), &unknown["streams"][0]["ended"]),
        ([4000, 4000, 0, 0, 0, 0], &Value::from(false))
    );
}

/// What `pktgen rx` says of a capture with these records, by its page and its exit code.
fn judged(header: &[u8], records: &[Vec<u8>], expected: &str) -> (Option<i32>, String, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [header, &records.concat()].concat()).unwrap();
    let port = format!("soft:b?wire=pcap:{},", file.path().display());
    let output = pktgen(&["rx", &port, "--exit-when-idle", "--quiet", "--expect-loss", expected]);
    let [page, message] = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    (output.status.code(), page, message)
}

#[test]
fn a_receiver_judges_by_loss() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    report(&["tx", &format!("soft:a?wire=pcap:,{}", capture.display()), "--count", "1000"]);
    let (header, records) = records(&capture);
    let foreign = vec![[&records[0][..16], &[0x55; 60][..]].concat()];
    for (records, most, code, lost, words) in [
        (&records[..], "0", 0, "lost in all: 0.0000 %\n", ""),
        (&records[10..], "1", 0, "lost in all: 1.0000 %\n", ""),
        (
            &records[11..],
            "1",
            3,
            "lost in all: 1.1000 %\n",
            "11 frames of 1,000 lost, 1.1000 %; --expect-loss allows 1 %",
        ),
        // Nobody knows how many there were.
        (
            &records[1..1000],
            "5",
            3,
            "lost in all: 0.1000 % or more, as the end of 1 stream has not come\n",
            "the end of 1 stream has not come, so how many frames there were, which --expect-loss asks for, is not known",
        ),
        (
            &foreign,
            "100",
            3,
            "lost in all: not known, as no frame of any stream has come\n",
            "no frame of any stream has come, so none shows what --expect-loss asks for",
        ),
    ] {
        let (found, page, message) = judged(&header, records, most);
        assert_eq!(found, Some(code), "{page}{message}");
        assert!(page.contains(lost), "{page}");
        assert!(message.contains(words) && message.lines().count() == usize::from(code > 0), "{message}");
    }
}

/// What is further back than 65,536 numbers is late, whether it came before or not, and a run that is cut out of the middle is lost.
#[test]
fn edits_far_apart_are_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    report(&["tx", &format!("soft:a?wire=pcap:,{}", capture.display()), "--count", "80000"]);
    let (header, records) = records(&capture);
    let mut changed = records.clone();
    // From behind, so that places are numbers: a double of 10 and frame 20, each 70,000 later, and frame 30,000 behind 60,000.
    changed.insert(70_011, records[10].clone());
    changed.insert(70_021, records[20].clone());
    changed.insert(60_001, records[30_000].clone());
    changed.drain(40_000..40_500);
    changed.remove(30_000);
    changed.remove(20);
    let numbered = received(&header, &changed)["numbered"].clone();
    assert_eq!(counts(&numbered), [80_000, 79_499, 501, 0, 2, 1], "{numbered}");
    // From 30,001 to 60,000, without what was cut.
    assert_eq!(numbered["greatest_extent"], 29_500, "{numbered}");
    assert_eq!(numbered["mean_extent"], 29_500.0, "{numbered}");
    let (_, page, _) = judged(&header, &changed, "100");
    let [head, row] = ["stream", received(&header, &changed)["streams"][0]["stream"].as_str().unwrap()].map(|begin| {
        page.lines().find(|line| line.trim().starts_with(begin)).unwrap_or_else(|| panic!("{page}")).to_owned()
    });
    let [head, row] = [&head, &row].map(|line| line.split_whitespace().rev().take(3).collect::<Vec<_>>());
    assert_eq!((head, row), (vec!["damaged", "extent", "reordered"], vec!["0", "29,500", "1"]), "{page}");
}

/// The checksum in front of a short tag goes through all values, the mark of a full tag among them.
#[test]
fn short_tags_of_all_numbers_are_of_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    let port = format!("soft:a?wire=pcap:,{}", capture.display());
    report(&["tx", &port, "--tag", "short", "--dst-ip", "2001:2:0:1::1", "--size", "74", "--count", "65536"]);
    let all = report(&["rx", &format!("soft:b?wire=pcap:{},", capture.display()), "--exit-when-idle"]);
    assert_eq!(counts(&all["numbered"]), [65_536, 65_536, 0, 0, 0, 0], "{all}");
    assert_eq!((all["streams"].as_array().unwrap().len(), &all["foreign"]), (1, &Value::from(0)), "{all}");
}

/// A switch takes the tag of a VLAN off frames of 60 bytes, and pads them to as many again.
#[test]
fn frames_whose_vlan_tag_was_taken_off_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let [file, capture] = ["streams.toml", "sent.pcap"].map(|name| folder.path().join(name));
    std::fs::write(&file, "[[stream]]\nframe = ['ethernet', 'vlan', 'ipv4', 'udp']\n").unwrap();
    let port = format!("soft:a?wire=pcap:,{}", capture.display());
    report(&["tx", &port, "--stream", file.to_str().unwrap(), "--count", "500"]);
    let (header, mut records) = records(&capture);
    for record in &mut records {
        assert_eq!((record.len(), &record[16 + 12..16 + 14]), (16 + 60, &[0x81, 0][..]));
        record.drain(16 + 12..16 + 16);
        record.extend([0; 4]);
    }
    records.remove(7);
    let received = received(&header, &records);
    assert_eq!(counts(&received["numbered"]), [500, 499, 1, 0, 0, 0]);
    assert_eq!(["ends", "foreign", "damaged"].map(|name| received[name].as_u64()), [10, 0, 0].map(Some));
}

/// Flips a bit of a record's frame; `is_covered` leaves the checksum of UDP, which then is wrong, and else there is none.
fn flip(record: &mut [u8], from_end: usize, bit: u8, is_covered: bool) {
    let at = record.len() - from_end;
    record[at] ^= 1 << bit;
    if !is_covered {
        record[16 + 40..][..2].fill(0);
    }
}

#[test]
fn a_damaged_frame_is_counted_and_changes_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    report(&["tx", &format!("soft:a?wire=pcap:,{}", capture.display()), "--count", "50"]);
    let (header, records) = records(&capture);
    for is_covered in [true, false] {
        // Bit 35 of the number in the first frame that ends the stream.
        let mut changed = records.clone();
        flip(&mut changed[50], 13, 3, is_covered);
        let all = received(&header, &changed);
        assert_eq!(counts(&all["numbered"]), [50, 50, 0, 0, 0, 0], "{all}");
        let (damaged, ends) = if is_covered { (1, 9) } else { (0, 10) };
        assert_eq!((&all["damaged"], &all["ends"]), (&Value::from(damaged), &Value::from(ends)), "{all}");
        // High bits of the number of a frame, the first and the last too.
        for (frame, bit) in [(0, 0), (20, 7), (20, 3), (49, 2), (49, 0)] {
            let mut changed = records.clone();
            flip(&mut changed[frame], 8, bit, is_covered);
            let all = received(&header, &changed);
            assert_eq!(counts(&all["numbered"]), [50, 49, 1, 0, 0, 0], "{frame}, {bit}, {is_covered}: {all}");
            assert_eq!((&all["damaged"], &all["verified"]), (&Value::from(1), &Value::from(true)), "{all}");
        }
    }
    let changed = |at: usize, bit: u8| {
        let mut changed = records.clone();
        changed[30][16 + at] ^= bit;
        received(&header, &changed)
    };
    // Length, time to live, protocol and checksum of IPv4, and a port of UDP.
    for (at, bit) in [(17, 0x01), (22, 0x80), (23, 0x40), (24, 0x08), (37, 0x20)] {
        let all = changed(at, bit);
        assert_eq!(counts(&all["numbered"]), [50, 49, 1, 0, 0, 0], "{at}: {all}");
        assert_eq!((&all["damaged"], &all["unread"]), (&Value::from(1), &Value::from(0)), "{at}: {all}");
    }
    // EtherType, and length of UDP: no checksum is found, or it does not cover what is there.
    for (at, bit) in [(12, 0x10), (39, 0x01), (38, 0x80)] {
        let all = changed(at, bit);
        assert_eq!(counts(&all["numbered"]), [50, 50, 0, 0, 0, 0], "{at}: {all}");
        assert_eq!((&all["damaged"], &all["unread"]), (&Value::from(0), &Value::from(1)), "{at}: {all}");
        assert!(all["warnings"].to_string().contains("1 frame of streams came without a checksum"), "{all}");
    }
    // Unread, damage is not seen.
    let mut changed = records;
    flip(&mut changed[7], 20, 0, true);
    let file = folder.path().join("changed.pcap");
    std::fs::write(&file, [&header[..], &changed.concat()].concat()).unwrap();
    let port = format!("soft:b?wire=pcap:{},", file.display());
    for (option, damaged) in [(&[][..], 1), (&["--no-verify"], 0)] {
        let all = report(&[&["rx", &port, "--exit-when-idle"], option].concat());
        assert_eq!(
            (&all["damaged"], &all["numbered"]["lost"]),
            (&Value::from(damaged), &Value::from(damaged)),
            "{all}"
        );
    }
}

#[test]
fn streams_of_two_ports_and_sizes_are_told_apart_by_the_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("streams.toml");
    let text = "[[stream]]\nweight = 2\nsize = 200\nframe = ['ethernet', 'ipv4', 'udp']\n\
                [[stream]]\nsize = '76-90'\nframe = ['ethernet', 'ipv6', 'udp']\n";
    std::fs::write(&file, text).unwrap();
    for tag in ["short", "full"] {
        let captures = ["a", "b"].map(|name| folder.path().join(name));
        let ports = [("a", &captures[0]), ("b", &captures[1])]
            .map(|(name, path)| format!("soft:{name}?wire=pcap:,{}", path.display()));
        let options = ["--stream", file.to_str().unwrap(), "--count", "300", "--tag", tag];
        let sent = report(&[&["tx", &ports[0], &ports[1]], &options[..]].concat());
        assert_eq!((&sent["sent"], &sent["ends"]), (&Value::from(600), &Value::from(40)));
        let all: Vec<_> = captures.iter().map(|capture| records(capture)).collect();
        // The first 10 frames of each port are lost.
        let both = [&all[0].1[10..], &all[1].1[10..]].concat();
        let received = received(&all[0].0, &both);
        let mut streams: Vec<_> = received["streams"].as_array().unwrap().iter().map(counts).collect();
        streams.sort_unstable();
        assert_eq!(
            streams,
            [[100, 97, 3, 0, 0, 0], [100, 97, 3, 0, 0, 0], [200, 193, 7, 0, 0, 0], [200, 193, 7, 0, 0, 0]]
        );
        assert_eq!((&received["foreign"], &received["ends"]), (&Value::from(0), &Value::from(40)));
    }
}

/// Frames of 60 to 9,014 bytes to a port that takes them in several buffers, each byte as in the capture.
#[test]
fn a_capture_leaves_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let header = [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 8], &[0, 0, 4, 0, 1, 0, 0, 0]].concat();
    let record = |number: u32| {
        let length = 60 + number * 9;
        let record = [number / 1000, number % 1000 * 1000, length, length].map(u32::to_le_bytes).concat();
        record
            .into_iter()
            .chain((0..length).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()))
            .collect::<Vec<_>>()
    };
    let frames: Vec<_> = (0..996).map(record).collect();
    std::fs::write(&from, [&header[..], &frames.concat()].concat()).unwrap();
    let port = format!("soft:a?wire=pcap:,{}", to.display());
    let options = ["--pcap", from.to_str().unwrap(), "--pcap-turns", "2", "--pcap-speed", "max"];
    let sent = report(&[&["tx", &port], &options[..]].concat());
    assert_eq!((&sent["sent"], &sent["ends"]), (&Value::from(2 * 996), &Value::from(0)));
    let played: Vec<_> = records(&to).1.iter().map(|record| record[16..].to_vec()).collect();
    assert!(played.iter().eq(frames.iter().chain(&frames).map(|frame| &frame[16..])), "they differ");
}

#[test]
fn frames_of_others_are_foreign() {
    let received = report(&["rx", "soft:a?wire=gen&count=3000&size=60-1514", "--exit-when-idle"]);
    assert_eq!((&received["foreign"], &received["consumed"]), (&Value::from(3000), &Value::from(3000)));
    assert_eq!(received["numbered"]["received"], 0);
}

#[test]
fn the_rate_is_kept_over_the_whole_run() {
    // Never ahead of the clock: the last of 2000 frames is due after a second. How far behind depends on the machine.
    let begun = Instant::now();
    let sent = report(&["tx", "soft:a", "soft:b", "--rate", "2000", "--count", "2000"]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs_f64(1999.0 / 2000.0), "{took:?}");
    for port in sent["ports"].as_array().unwrap() {
        assert_eq!(port["tx_packets"], 2010);
        assert_eq!(
            port["tx_queues"],
            serde_json::json!([{"queue": 0, "packets": 2010, "bytes": 120_600, "dropped": 0}])
        );
        assert_eq!(port["rx_queues"], serde_json::json!([]));
    }
}

/// The rate is that of the time for which frames were due, not of what follows: a second of frames that end the stream.
#[test]
fn rates_stand_side_by_side() {
    let begun = Instant::now();
    let options =
        ["--rate", "2k,1k", "--duration", "500ms", "--catch-up", "1s", "--ends", "100", "--expect-rate", "99"];
    let sent = report(&[&["tx", "null:a", "null:b"], &options[..]].concat());
    let number = |field: &str| sent[field].as_f64().unwrap();
    let [seconds, offered] = ["duration_s", "offered_pps"].map(number);
    assert_eq!((number("sent"), number("missed"), number("intended_pps")), (1500.0, 0.0, 3000.0), "{sent}");
    assert!(seconds >= 0.5 && seconds + 0.99 <= begun.elapsed().as_secs_f64(), "{sent}");
    // Either port has a time of its own.
    assert!(offered <= 3000.0 && offered * seconds >= 1499.0, "{sent}");
    // What was sent after the time is not a second's.
    let is_late = |warning: &Value| warning.as_str().unwrap().contains("its last frames were sent after its time");
    assert!(sent["warnings"].as_array().unwrap().iter().all(is_late), "{sent}");
    for (stream, pps) in sent["streams"].as_array().unwrap().iter().zip([2000.0, 1000.0]) {
        let figures = ["intended_pps", "sent"].map(|field| stream[field].as_f64());
        assert_eq!(figures, [pps, pps / 2.0].map(Some), "{sent}");
    }
}

/// More than any machine sends.
#[test]
fn a_rate_that_is_missed_is_told_of() {
    let options = ["tx", "null:a", "--line", "1000G", "--rate", "1G", "--duration", "100ms", "--ends", "1", "--quiet"];
    let output = pktgen(&[&options[..], &["--json", "--expect-rate"]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("less than --rate; --expect-rate allows 0.1 %"), "{message}");
    let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [all, missed] = ["sent", "missed"].map(|field| sent[field].as_u64().unwrap());
    // A frame at the very end may fall on either side.
    assert!((all + missed).abs_diff(100_000_000) <= 2, "{sent}");
    assert!(sent["warnings"][0].as_str().unwrap().contains("% less than its rate"), "{sent}");
    for of in [&sent, &sent["streams"][0]] {
        let of = |field: &str| of[field].as_f64().unwrap();
        // Over the same time as what was offered.
        assert!((of("missed_pps") / of("offered_pps") * of("sent") / of("missed") - 1.0).abs() < 1e-6, "{sent}");
    }
    assert_eq!(sent["error"].as_str().unwrap(), message.trim_end().trim_start_matches("pktgen: "));
    // Without the option it is a warning, and beside each other for people.
    let output = pktgen(&options);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && page.contains("WARNING: null:a: offered "), "{page}");
    assert!(page.contains("intended") && page.contains("1,000,000,000"), "{page}");
}

#[test]
fn flows_take_turns_on_their_way_to_the_next_hop() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("sent.pcap");
    let port = format!("soft:a?wire=pcap:,{}", capture.display());
    let options = ["--dst-mac", "02:00:5e:10:00:fe", "--dst-ip", "192.0.2.7", "--flows", "300", "--count", "1000"];
    let sent = report(&[&["tx", &port], &options[..], &["--ends", "0"]].concat());
    assert_eq!(sent["ends"], 0);
    let (_, records) = records(&capture);
    assert_eq!(records.len(), 1000);
    for (number, record) in records.iter().enumerate() {
        let frame = &record[16..];
        assert_eq!(frame[..6], [2, 0, 0x5e, 0x10, 0, 0xfe]);
        assert_eq!(frame[30..34], [192, 0, 2, 7]);
        let source = u16::try_from(number % 300 + 1).unwrap().to_be_bytes();
        assert_eq!(frame[26..30], [198, 18, source[0], source[1]]);
        assert_eq!(ones_complement_sum(&frame[14..34]), 0xffff, "IPv4 header checksum");
        assert_eq!(frame[52..56], u32::try_from(number).unwrap().to_be_bytes());
    }
}

/// Runs `pktgen`, expects code 1, and returns the last line on standard error.
#[track_caller]
fn failure(arguments: &[&str]) -> String {
    let output = pktgen(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
    message.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_link_that_stays_down_is_an_error() {
    let message = failure(&["tx", "soft:a?link=down", "--count", "5"]);
    assert!(message.starts_with("pktgen: soft:a: the link is down") && message.contains("plug in"), "{message}");
}

#[test]
fn frames_that_were_not_sent_are_an_error() {
    let message = failure(&["tx", "soft:a?fault=tx-frozen", "--count", "100"]);
    assert!(message.starts_with("pktgen: 100 frames of --count not sent"), "{message}");
    // By time there is no count to compare with, but frames that the device keeps.
    let message = failure(&["tx", "soft:a?fault=tx-frozen", "--rate", "1k", "--duration", "0.3"]);
    assert!(message.contains("frames of those that count as sent never left"), "{message}");
}

#[test]
fn a_link_that_is_down_at_the_end_is_an_error() {
    let output = pktgen(&["rx", "soft:a?link=down", "--duration", "0.2", "--json", "--quiet"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("pktgen: soft:a: its link is down at the end"), "{message}");
    let received: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(message.contains(received["error"].as_str().unwrap()), "{received}");
    assert_eq!(received["warnings"], serde_json::json!([]));
}

/// A file system of 64 KiB, which only this run sees. Needs root.
#[test]
fn a_full_disk_is_told_of_and_ends_nothing_early() {
    let folder = tempfile::tempdir().unwrap();
    let port = format!("soft:a?wire=pcap:,{}/out", folder.path().display());
    let run = [env!("CARGO_BIN_EXE_pktgen"), "tx", port.as_str(), "--count", "2000", "--json", "--quiet"];
    let Some(output) = on_small_disk(folder.path(), "64k", "shift; exec \"$@\"", &run) else { return };
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sent"], 2000, "{report}");
    // Beside the header of the file a frame of 60 bytes has one of 16.
    let kept: u64 = (65_536 - 24) / 76;
    let error = report["error"].as_str().unwrap();
    let lost: u64 = error.split(' ').rev().nth(6).and_then(|count| count.parse().ok()).unwrap();
    assert!(error.contains("No space left on device") && error.ends_with("sent frames are not in it"), "{error}");
    assert!((2010 - kept..=2010).contains(&lost), "{error}");
    assert_eq!(said.lines().filter(|line| line.starts_with("pktgen: ")).count(), 1, "{said}");
}

#[test]
fn bad_input_is_one_line() {
    for (arguments, code, words) in [
        (&[][..], 2, "pktgen --help"),
        (&["tx"], 2, "PORT"),
        (&["tx"], 2, "see pktgen tx --help"),
        (&["rxx", "soft:a"], 2, "'rx'"),
        (&["tx", "soft:a", "--lcores", "(0,0,0)"], 2, "--lcores"),
        (&["tx", "soft:a", "--dst-mac", "2:0:0:0:0:1"], 2, "six hexadecimal bytes"),
        (&["tx", "soft:a", "--dst-ip", "::g"], 2, "--dst-ip"),
        (&["tx", "soft:a", "--flows", "0"], 2, "1048576"),
        (&["tx", "soft:a", "--ratee", "5"], 2, "'--rate'"),
        (&["rx", "soft:a", "--count", "5"], 2, "see pktgen rx --help"),
        (&["tx", "eth0"], 2, "soft:NAME"),
        (&["tx", "soft:a", "--size", "59"], 2, "60 to 9216"),
        (&["tx", "soft:a", "--rate", "0"], 2, "--rate"),
        (&["tx", "soft:a", "--rate", "1k,2k"], 2, "2 rates for 1 port that sends; give one for all"),
        (&["tx", "soft:a", "--count", "0"], 2, "--count"),
        (&["tx", "soft:a", "--ring-size", "100"], 2, "power of two"),
        (&["tx", "soft:a", "--ends", "1001"], 2, "--ends"),
        (&["tx", "soft:a", "--expect-rate"], 2, "--expect-rate: there is no rate"),
        (&["rx", "soft:a", "--expect-loss", "101"], 2, "percentage from 0 to 100"),
        (&["tx", "soft:a", "--dst-ip", "2001:2::1"], 2, "the 14 bytes of the tag need 76"),
        (&["rx", "soft:a", "soft:a"], 2, "named twice"),
        (&["tx", "soft:a", "soft:a?wire=loop"], 2, "named twice"),
        (&["rx", "fffe:ff:1f.7"], 1, "no PCI device"),
    ] {
        let output = pktgen(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("pktgen: ") && message.lines().count() == 1, "{message}");
        assert!(message.contains(words), "{message}");
    }
}
