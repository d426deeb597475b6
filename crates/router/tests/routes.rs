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
