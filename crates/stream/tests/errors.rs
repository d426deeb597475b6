//! What cannot be is one clear line with its place, and below it the line of the file; never a panic.

use stream::{Definition, Error, Flows, Sizes, Stream};

/// The error of a definition.
fn error(text: &str) -> Error {
    match Definition::parse("f.toml", text) {
        Err(error) => error,
        Ok(_) => panic!("no error: {text}"),
    }
}

/// A stream around a line, which is the third.
fn stream(line: &str) -> String {
    format!("[[stream]]\nframe = ['ethernet', 'ipv4', 'udp']\n{line}\n")
}

/// Definitions, and the first line of what is said of them.
const DEFINITIONS: &[(&str, &str)] = &[
    ("", "f.toml:1:1: there is no stream; expected streams, each below a line [[stream]]"),
    ("stream = 5", "f.toml:1:10: this is a number; expected streams, each below a line [[stream]]"),
    ("stream = []", "f.toml:1:10: there are 0 streams; expected 1 to 128 streams, each below a line [[stream]]"),
    ("[[straem]]\n", "f.toml:1:3: unknown key \"straem\"; did you mean \"stream\"?"),
    (
        "[[stream]]\n",
        "f.toml:1:1: this stream has no frame; expected its headers, such as frame = [\"ethernet\", \"ipv4\", \"udp\"]",
    ),
    (
        "[[stream]]\nframe = []",
        "f.toml:2:9: this frame is empty; expected an array of headers, such as [\"ethernet\", { ipv4 = { ttl = 1 } }, \"udp\"]",
    ),
    (
        "[[stream]]\nname = 'a'\nframe = ['ethernet']\n[[stream]]\nframe = ['ethernet']\n[[stream]]\nframe = ['ethernet']\nname = 'a'\n",
        "f.toml:8:8: stream 1 has this name too; expected a name of its own",
    ),
    (
        "[[stream]]\nname = '2'\nframe = ['ethernet']\n[[stream]]\nframe = ['ethernet']\n",
        "f.toml:4:1: this stream has no name and so its number, which is the name of stream 1; expected a name of its own",
    ),
    ("[[stream]]\nframe = ['ipv4']", "f.toml:2:10: a frame cannot begin with ipv4; expected ethernet or raw"),
    (
        "[[stream]]\nframe = [{ raw = 'abc' }]",
        "f.toml:2:18: these are no bytes; expected bytes in hexadecimal, such as \"de ad be ef\"",
    ),
];

/// Lines of a stream, and what is said of them.
const LINES: &[(&str, &str)] = &[
    ("sise = 60", "f.toml:3:1: unknown key \"sise\"; did you mean \"size\"?"),
    (
        "qwertz = 60",
        "f.toml:3:1: unknown key \"qwertz\"; known are name, size, frame, payload, flows, field, weight, rate, pattern",
    ),
    (
        "pattern = 'even'",
        "f.toml:3:11: this stream has a pattern and no rate; expected a rate of its own, such as rate = \"10%\"",
    ),
    (
        "rate = 1\nweight = 1",
        "f.toml:4:10: this stream has a weight beside a rate of its own; expected one of them: weights share what has no rate",
    ),
    ("rate = 1\npattern = 1", "f.toml:4:11: this is a number; expected a pattern, such as \"poisson\""),
    ("size = 59", "f.toml:3:8: this number is out of range; expected a number from 60 to 9216"),
    ("size = 9217", "f.toml:3:8: this number is out of range; expected a number from 60 to 9216"),
    ("size = -1", "f.toml:3:8: this number is out of range; expected a number from 60 to 9216"),
    ("size = []", "f.toml:3:8: this list is empty; expected one size at least"),
    ("size = { from = 70, to = 60 }", "f.toml:3:17: from is above to; expected the smaller size as from"),
    ("size = { from = 60, to = 70, step = 0 }", "f.toml:3:37: a step of 0 never moves; expected 1 or more"),
    ("size = { from = 60 }", "f.toml:3:8: these sizes have no to; expected from and to"),
    (
        "size = 'imux'",
        "f.toml:3:8: \"imux\" is no size; write a size, a list (60, 590), a range (60-1514), weights (60*7, 590), imix or \
                       simple-imix; expected a size, a list, { from = 60, to = 1514 }, or text such as \"imix\"",
    ),
    (
        "size = true",
        "f.toml:3:8: this is true or false; expected a size, a list, { from = 60, to = 1514 }, or text such as \"imix\"",
    ),
    ("payload = 'zeros'", "f.toml:3:11: unknown payload \"zeros\"; did you mean \"zero\"?"),
    ("flows = 0", "f.toml:3:9: this number is out of range; expected a number from 1 to 1048576"),
    (
        "field = [{ at = 60, bytes = 1, value = 1 }]",
        "f.toml:3:10: the field of bytes 60 to 60 lies outside of the frame; expected a field within the 60 bytes of the smallest frame",
    ),
    (
        "field = [{ at = 59, bytes = 2, value = 1 }]",
        "f.toml:3:10: the field of bytes 59 to 60 lies outside of the frame; expected a field within the 60 bytes of the smallest frame",
    ),
    (
        "field = [{ at = 41, bytes = 2, value = 1 }]",
        "f.toml:3:10: the field of bytes 41 to 42 overlaps with the header udp; expected the fields of udp by name, or an offset in raw bytes or payload",
    ),
    (
        "field = [{ at = 50, bytes = 4, value = 1 }, { at = 53, bytes = 2, value = 1 }]",
        "f.toml:3:45: the field of bytes 53 to 54 overlaps with the field at 50; expected fields apart from each other",
    ),
    (
        "field = [{ at = 50, bytes = 9, value = 1 }]",
        "f.toml:3:29: this number is out of range; expected a number from 1 to 8",
    ),
    ("field = [{ at = 50, bytes = 2 }]", "f.toml:3:10: this field has no value; expected at, bytes and value"),
    (
        "field = [{ at = 50, bytes = 1, value = 256 }]",
        "f.toml:3:40: this number is out of range; expected a number from 0 to 255",
    ),
    (
        "field = [{ at = 50, bytes = 1, value = { random = true, flow = true } }]",
        "f.toml:3:10: field at 50 moves with the flow, but there are none; expected flows = NUMBER in the stream",
    ),
    ("size = 60\nsize = 61", "f.toml:4:1: duplicate key; write TOML 1.1"),
];

/// Headers behind Ethernet, and what is said of them.
const HEADERS: &[(&str, &str)] = &[
    ("'upd'", "f.toml:2:22: unknown header \"upd\"; did you mean \"udp\"?"),
    ("'udp'", "f.toml:2:22: udp cannot follow ethernet; expected vlan, mpls, ipv4, ipv6, arp, raw"),
    ("'ipv4', 'icmpv6'", "f.toml:2:30: icmpv6 cannot follow ipv4; expected ipv4, ipv6, udp, tcp, icmp, gre, raw"),
    ("'raw', 'raw'", "f.toml:2:29: raw cannot follow raw; expected the end of the frame"),
    ("5", "f.toml:2:22: this is a number; expected a header, such as \"udp\" or { udp = { source = 7 } }"),
    (
        "{ ipv4 = {}, udp = {} }",
        "f.toml:2:22: this table has 2 keys; expected one header for each table, such as { udp = { source = 7 } }",
    ),
    ("{ ipv4 = { tll = 5 } }", "f.toml:2:33: unknown key \"tll\"; did you mean \"ttl\"?"),
    ("{ ipv4 = { ttl = 256 } }", "f.toml:2:39: this number is out of range; expected a number from 0 to 255"),
    ("{ ipv4 = { source = 5 } }", "f.toml:2:42: this is a number; expected an IPv4 address, such as \"198.18.0.1\""),
    (
        "{ ipv4 = { source = '1.2.3' } }",
        "f.toml:2:42: this is no address of the kind; expected an IPv4 address, such as \"198.18.0.1\"",
    ),
    ("{ ipv4 = { ttl = { list = [] } } }", "f.toml:2:48: this list is empty; expected one value at least"),
    ("{ ipv4 = { ttl = { from = 9, to = 8 } } }", "f.toml:2:48: from is above to; expected the smaller value as from"),
    ("{ ipv4 = { ttl = { from = 1, to = 9, step = 0 } } }", "f.toml:2:66: a step of 0 never moves; expected 1 or more"),
    (
        "{ ipv4 = { ttl = { from = 1 } } }",
        "f.toml:2:39: these values have no beginning or no end; expected { from = FIRST, to = LAST }, { list = [...] } or { random = true }",
    ),
    (
        "{ ipv4 = { ttl = { list = [1], to = 4 } } }",
        "f.toml:2:53: to stands beside list; expected a list alone, or from and to",
    ),
    (
        "{ ipv4 = { ttl = { random = true, step = 4 } } }",
        "f.toml:2:63: a step stands beside random; expected a step only between from and to",
    ),
    (
        "{ ipv6 = { source = { from = '1::', to = '2::' } } }",
        "f.toml:2:42: these addresses are not all of one /64; expected from and to of one /64, or a list",
    ),
    (
        "'ipv4', { gre = { checksum = false } }",
        "f.toml:2:51: there is no such checksum; expected true, or no checksum at all",
    ),
    (
        "'ipv6', 'tcp'",
        "f.toml:2:9: frames of 60 bytes are too small for their headers; expected 74 bytes or more (without FCS)",
    ),
];

#[test]
fn every_error_is_one_line_and_its_place() {
    let lines = LINES.iter().map(|(line, said)| (stream(line), *said));
    let headers =
        HEADERS.iter().map(|(headers, said)| (format!("[[stream]]\nframe = ['ethernet', {headers}]\n"), *said));
    let definitions = DEFINITIONS.iter().map(|(text, said)| ((*text).to_owned(), *said));
    for (text, said) in definitions.chain(lines).chain(headers) {
        let shown = error(&text).to_string();
        let first = shown.lines().next().unwrap();
        assert_eq!(first, said, "{text}");
        // Below it the line itself, with the place marked.
        let Error::Definition { line, column, snippet, .. } = error(&text) else { panic!("{shown}") };
        let marked = text.lines().nth(line - 1).unwrap_or("").trim_end();
        assert!(snippet.contains(format!("{line} | {marked}").trim_end()), "{snippet}");
        assert!(first.starts_with(&format!("f.toml:{line}:{column}: ")));
    }
}

#[test]
fn broken_toml_shows_its_line() {
    let error = error("[[stream]]\nname = \"web\nframe = ['ethernet']\n").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[0].starts_with("f.toml:2:12: "), "{error}");
    assert!(lines.iter().any(|line| line.ends_with("2 | name = \"web")), "{error}");
}

#[test]
fn a_line_of_a_megabyte_is_shown_in_part() {
    let text = format!("[[stream]]\nframe = ['ethernet']\nname = '{}' x\n", "n".repeat(1_000_000));
    let error = error(&text).to_string();
    assert!(error.lines().all(|line| line.chars().count() < 400), "{} bytes", error.len());
    let longer = format!("#{}", "n".repeat(1 << 20));
    assert!(Definition::parse("f.toml", &longer).unwrap_err().to_string().contains("longer than 1 MiB"));
}

#[test]
fn a_frame_has_room_for_headers_fields_and_tag() {
    let stream = |text: &str, tail| Stream::new(&Definition::parse("f", text).unwrap()[0], tail, 1);
    let text = "[[stream]]\nname = 'web'\nframe = ['ethernet', 'ipv4', 'udp']\n";
    assert!(stream(text, 18).is_ok());
    assert_eq!(
        stream(text, 19).unwrap_err().to_string(),
        "stream web: frames of 60 bytes (without FCS) are too small; headers, fields and the 19 bytes of the tag need 61"
    );
    let text = "[[stream]]\nsize = [100, 64]\nframe = ['ethernet', 'raw']\nfield = [{ at = 50, bytes = 8, value = 1 }]";
    assert!(stream(text, 6).is_ok());
    let error = stream(text, 7).unwrap_err();
    assert_eq!(error, Error::TooSmall { stream: "1".to_owned(), size: 64, tail: 7, least: 65 });
    assert!(stream(text, usize::MAX).is_err());
}

#[test]
fn flows_that_cannot_be_say_why() {
    let flows = |flows: Flows| flows.definition().unwrap_err().to_string();
    let six = Flows { source: "2001:2::1".parse().unwrap(), ..Flows::default() };
    assert_eq!(flows(six), "2001:2::1 and 198.19.0.1 are of two versions of IP; give two of one");
    let none = Flows { flows: 0, ..Flows::default() };
    assert!(
        flows(none)
            .starts_with("0 flows from 198.18.0.1: this number is out of range; expected a number from 1 to 1048576")
    );
    let last = Flows { flows: 2, source: "255.255.255.255".parse().unwrap(), ..Flows::default() };
    assert!(flows(last).contains("the source address cannot move with 2 flows"));
    let text = "[[stream]]\nframe = ['ethernet', 'arp']\nflows = 2\n";
    assert!(error(text).to_string().starts_with("f.toml:3:9: nothing moves with these flows; expected an IP header"));
}

#[test]
fn many_flows_differ_by_port_too() {
    let flows = Flows { flows: 200_000, ..Flows::default() };
    let mut stream = Stream::flows(&flows, 0, 1).unwrap();
    assert_eq!((stream.flow_count(), stream.period()), (200_000, None));
    let mut seen = std::collections::HashSet::new();
    let mut frame = [0; 60];
    for turn in 0..2 {
        for _ in 0..200_000 {
            stream.fill(std::iter::once(&mut frame[..]));
            seen.insert((frame[26..30].to_vec(), frame[34..36].to_vec()));
        }
        assert_eq!(seen.len(), 200_000, "turn {turn}");
    }
}

#[test]
fn sizes_that_are_none_say_why() {
    let cases = [
        ("", "\"\" is no size"),
        ("60,", "\"\" is no size"),
        ("60*0", "the weight \"0\" is no number above 0"),
        ("60*x", "the weight \"x\" is no number above 0"),
        ("60-70/0", "a step of 0 never reaches the last size"),
        ("70-60", "70 is above 60"),
        ("60*65536, 61", "weights sum up to 65537"),
        ("60-9216,60-9216,60-9216,60-9216,60-9216,60-9216,60-9216,60-9216", "there are more than 65536 sizes"),
        ("99999999999999999999999", "is no size"),
    ];
    for (text, said) in cases {
        let error = text.parse::<Sizes>().unwrap_err().to_string();
        assert!(error.contains(said) && error.lines().count() == 1, "{text}: {error}");
    }
}

#[test]
fn mixes_have_their_shares_spread_evenly() {
    let count = |sizes: &Sizes, size| sizes.cycle().iter().filter(|one| **one == size).count();
    let imix: Sizes = "imix".parse().unwrap();
    assert_eq!([60, 566, 1514].map(|size| count(&imix, size)), [7, 4, 1]);
    assert!((imix.mean() - (28.0 * 60.0 + 16.0 * 566.0 + 4.0 * 1514.0) / 48.0).abs() < 1e-9);
    let even: Sizes = "60*4, 1514*2".parse().unwrap();
    assert_eq!(even.cycle(), [60, 1514, 60]);
    assert_eq!("60, 590, 60".parse::<Sizes>().unwrap().cycle(), [60, 590, 60]);
}
