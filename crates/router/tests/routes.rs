//! Routes files: what is read, and what is refused by line, column and reason.

use router::{MacAddress, Neighbour, Routes};

#[test]
fn both_families_comments_and_any_white_space_are_read() {
    let text = "# routes\r\n\
        0.0.0.0/0\tvia 02:00:00:00:00:01   port 0\r\n\
        \n  2001:db8::/32 via 02:00:00:00:00:02 port 2 # IPv6\n\
        192.0.2.0/24 via 02:00:00:00:00:01 port 0\n\
        ::/0 via 02:00:00:00:00:01 port 1";
    let routes = Routes::parse(text.as_bytes(), 3).unwrap();
    let v4: Vec<_> = routes.ipv4().iter().map(|(prefix, hop)| (prefix.to_string(), hop.get())).collect();
    let v6: Vec<_> = routes.ipv6().iter().map(|(prefix, hop)| (prefix.to_string(), hop.get())).collect();
    assert_eq!(v4, [("0.0.0.0/0".to_owned(), 0), ("192.0.2.0/24".to_owned(), 0)]);
    assert_eq!(v6, [("::/0".to_owned(), 2), ("2001:db8::/32".to_owned(), 1)]);
    let neighbour = |port, last| Neighbour { port, mac: MacAddress([2, 0, 0, 0, 0, last]) };
    assert_eq!(routes.neighbours(), [neighbour(0, 1), neighbour(2, 2), neighbour(1, 1)]);
    assert_eq!(Routes::parse(b"", 0).unwrap().neighbours(), []);
}

#[test]
fn what_is_wrong_is_named_by_line_column_and_reason() {
    for (text, message) in [
        (
            "10.1.2.3/16 via 02:00:00:00:00:02 port 1",
            "line 1, column 1: prefix 10.1.2.3/16 has host bits set; did you mean 10.1.0.0/16?",
        ),
        (
            "\n\t::1/64 via 02:00:00:00:00:02 port 1",
            "line 2, column 2: prefix ::1/64 has host bits set; did you mean ::/64?",
        ),
        ("10.0.0.0/33 via 02:00:00:00:00:02 port 1", "line 1, column 1: prefix length 33 is out of range; use 0 to 32"),
        ("10.0.0/8 via 02:00:00:00:00:02 port 1", "line 1, column 1: cannot parse prefix \"10.0.0/8\": bad address"),
        ("default via 02:00:00:00:00:02 port 1", "line 1, column 1: cannot parse prefix \"default\": no slash"),
        ("10.0.0.0/8", "line 1, column 11: the line ends where via should stand; write PREFIX via MAC port NUMBER"),
        ("10.0.0.0/8 dev 02:00:00:00:00:02 port 1", "line 1, column 12: \"dev\" where via should stand"),
        (
            "10.0.0.0/8 via # nothing",
            "line 1, column 15: the line ends where the MAC address of the next hop should stand",
        ),
        ("10.0.0.0/8 via 10.0.0.1 port 1", "line 1, column 16: \"10.0.0.1\" where a MAC address such as"),
        (
            "10.0.0.0/8 via 01:00:5e:00:00:02 port 1",
            "line 1, column 16: next hop 01:00:5e:00:00:02 is the address of a group",
        ),
        (
            "10.0.0.0/8 via 00:00:00:00:00:00 port 1",
            "line 1, column 16: next hop 00:00:00:00:00:00 is nobody's address",
        ),
        ("10.0.0.0/8 via 02:00:00:00:00:02 port 3", "line 1, column 39: there is no port 3; ports are 0 to 2"),
        ("10.0.0.0/8 via 02:00:00:00:00:02 port 65536", "line 1, column 39: there is no port 65536"),
        ("10.0.0.0/8 via 02:00:00:00:00:02 port -1", "line 1, column 39: \"-1\" where the number of the output port"),
        ("10.0.0.0/8 via 02:00:00:00:00:02 port 1 metric 3", "line 1, column 41: \"metric\" where the end of the line"),
        (
            "10.0.0.0/8 via 02:00:00:00:00:02 port 1\n# é\n 10.0.0.0/8 via 02:00:00:00:00:03 port 1",
            "line 3, column 2: 10.0.0.0/8 has a route in line 1 already; leave one of them out",
        ),
    ] {
        let error = Routes::parse(text.as_bytes(), 3).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text:?}: {error}");
        assert!(error.contains(';') || error.contains('?'), "no next step: {error}");
    }
    let error = Routes::parse(b"# \xc3\xa9\n\xc3\xa9 \xff", 3).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 3: a byte that is no text; write the file in UTF-8");
    let error = Routes::parse(b"10.0.0.0/8 via 02:00:00:00:00:02 port 1", 1).unwrap_err();
    assert!(error.to_string().ends_with("there is no port 1; the only one is 0"), "{error}");
}

#[test]
fn a_word_without_end_makes_a_short_error() {
    let error = Routes::parse(&vec![b'x'; 1 << 20], 1).unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn a_byte_order_mark_and_lines_of_dos_are_read() {
    let text = "\u{feff}10.0.0.0/8 via 02:00:00:00:00:02 port 1\r\n\r\n# end\r\n";
    assert_eq!(Routes::parse(text.as_bytes(), 2).unwrap().ipv4().len(), 1);
    let error = Routes::parse("\u{feff}10.0.0.0/9 via x port 1".as_bytes(), 2).unwrap_err();
    assert!(error.to_string().starts_with("line 1, column 16: \"x\""), "{error}");
    // UTF-16, as some editors write it.
    let error = Routes::parse(b"\xff\xfe1\x000\x00", 2).unwrap_err();
    assert!(error.to_string().starts_with("line 1, column 1: a byte that is no text"), "{error}");
    let error = Routes::parse(b"10.0.0.0/8 via 02:00:00:00:00:02 port 1\n\0\0\0\0", 2).unwrap_err();
    assert!(error.to_string().starts_with("line 2, column 5: the line ends where via"), "{error}");
}

/// Each ends with one error, at once and without taking the memory that the file would.
#[test]
fn what_is_no_routes_file_is_refused_by_kind() {
    let folder = std::env::temp_dir().join(format!("ringway-routes-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("routes");
    let error = |path: &std::path::Path| Routes::read(path, 2).unwrap_err().to_string();
    assert!(error(&path).starts_with("cannot read: No such file"), "{}", error(&path));
    assert_eq!(error(&folder), "cannot read: it is a directory; name a regular file");
    for endless in ["/dev/zero", "/dev/tty"] {
        let path = std::path::Path::new(endless);
        if path.exists() {
            assert!(error(path).starts_with("cannot read: it is a pipe, a socket or a device"), "{}", error(path));
        }
    }
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if made.is_ok_and(|status| status.success()) {
        assert!(error(&pipe).starts_with("cannot read: it is a pipe"), "{}", error(&pipe));
    } else {
        skip::test!("a pipe as routes file (no mkfifo here)");
    }
    // A hole: its bytes are there without a place on the disk.
    let long = std::fs::File::create(&path).unwrap();
    long.set_len(Routes::LONGEST + 1).unwrap();
    assert_eq!(error(&path), "longer than 512 MiB; name a routes file, a route a line");
    drop(long);
    // What another program is at work on.
    std::fs::write(&path, "10.0.0.0/8 via 02:00:00:00:00:02 port 1").unwrap();
    assert!(
        error(&path).starts_with("its last line has no end, so it may be cut short; end each line"),
        "{}",
        error(&path)
    );
    std::fs::write(&path, "").unwrap();
    assert!(error(&path).starts_with("it is empty"), "{}", error(&path));
    std::fs::write(&path, "10.0.0.0/8 via 02:00:00:00:00:02 port 1\n").unwrap();
    assert_eq!(Routes::read(&path, 2).unwrap().ipv4().len(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A million lines, each a route or not, cost a bounded number of bytes each, and the last is as good as the first.
#[test]
fn the_last_of_a_million_lines_is_looked_at() {
    let count: u32 = if cfg!(miri) { 100 } else { 1_000_000 };
    let mut text = String::new();
    for nth in 0..count {
        let [a, b, c, d] = (0x1000_0000 + nth).to_be_bytes();
        text.push_str(&format!("{a}.{b}.{c}.{d}/32 via 02:00:00:00:00:02 port 1\n"));
    }
    let routes = Routes::parse(text.as_bytes(), 2).unwrap();
    assert_eq!((routes.ipv4().len(), routes.neighbours().len()), (count as usize, 1));
    text.push_str("16.0.0.0/32 via 02:00:00:00:00:02 port 1\n");
    let error = Routes::parse(text.as_bytes(), 2).unwrap_err().to_string();
    let expected = format!("line {}, column 1: 16.0.0.0/32 has a route in line 1 already", count + 1);
    assert!(error.starts_with(&expected), "{error}");
}
