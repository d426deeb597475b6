//! Routes files of any content: what is read comes back from its text and loads into tables, what is not has a place in the file.

use router::{At, Error, Fib, Interface, Miss, Routes};
use std::fmt::Write as _;

const PORTS: usize = 3;

/// Runs one input: a byte that chooses how the rest becomes text, and the rest. Words of routes stand for bytes in one way, so
/// that most lines are nearly right; in the other bytes are text.
pub fn run(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else { return };
    let text = if choice & 1 == 0 { rest.to_vec() } else { words(rest) };
    match Routes::parse(&text, PORTS) {
        Ok(routes) => loads(&routes),
        Err(error) => has_a_place(&error, &text),
    }
}

/// What a routes file consists of, and what it should not.
const WORDS: [&str; 40] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "0.0.0.0/0",
    "255.255.255.255/32",
    "224.0.0.0/4",
    "10.1.2.3/16",
    "2001:db8::/32",
    "::/0",
    "2001:db8::1/128",
    "::1/64",
    "::ffff:10.0.0.0/104",
    "10.0.0.0/33",
    "::/129",
    "10.0.0/8",
    "via",
    "via",
    "via",
    "port",
    "port",
    "port",
    "02:00:00:00:00:02",
    "02:00:00:00:00:03",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "+2:00:00:00:00:02",
    "0",
    "1",
    "2",
    "3",
    "65536",
    "-1",
    "\n",
    "\n",
    "\r\n",
    "#",
    "\u{feff}",
    "\0",
    "\u{2003}",
];

/// Each byte a word; those beyond the list begin a whole route.
fn words(bytes: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for byte in bytes {
        match WORDS.get(usize::from(*byte)) {
            Some(word) => text.extend([" ", word]),
            None => {
                let len = 8 + byte % 25;
                let bits = u32::from(*byte) << 24 & u32::MAX << (32 - len);
                let address = std::net::Ipv4Addr::from(bits);
                writeln!(text, "{address}/{len} via 02:00:00:00:00:{byte:02x} port {}", byte % 3)
                    .expect("a string takes all");
            }
        }
    }
    text.into_bytes()
}

/// Tables are made of it, and its text has the same routes.
fn loads(routes: &Routes) {
    let mut text = String::new();
    let neighbours = routes.neighbours();
    let mut line = |prefix: String, hop: usize| {
        let neighbour = neighbours[hop];
        writeln!(text, "{prefix} via {} port {}", neighbour.mac, neighbour.port).expect("a string takes all");
    };
    for (prefix, hop) in routes.ipv4() {
        line(prefix.to_string(), hop.get() as usize);
    }
    for (prefix, hop) in routes.ipv6() {
        line(prefix.to_string(), hop.get() as usize);
    }
    let again = Routes::parse(text.as_bytes(), PORTS).expect("what was read");
    let lines = |routes: &Routes| {
        let of = |hop: lpm::NextHop| routes.neighbours()[hop.get() as usize];
        let v4: Vec<_> = routes.ipv4().iter().map(|(prefix, hop)| (*prefix, of(*hop))).collect();
        let v6: Vec<_> = routes.ipv6().iter().map(|(prefix, hop)| (*prefix, of(*hop))).collect();
        (v4, v6)
    };
    assert_eq!(lines(routes), lines(&again));
    let interfaces = [Interface { mac: [2, 0, 0, 0, 1, 0], promiscuous: false, mtu: 1500 }; PORTS];
    let fib = Fib::new(routes, &interfaces).expect("memory");
    assert_eq!(fib.route_counts(), (routes.ipv4().len(), routes.ipv6().len()));
    drop(fib.forwarder(Miss::Refuse));
}

/// The line is one of the text, the column one of the line or the one behind it, and the message short.
fn has_a_place(error: &Error, text: &[u8]) {
    let message = error.to_string();
    assert!(message.len() < 600 && !message.is_empty(), "{message}");
    let (Error::NotText { at }
    | Error::Form { at, .. }
    | Error::Prefix { at, .. }
    | Error::NextHop { at, .. }
    | Error::Port { at, .. }
    | Error::Duplicate { at, .. }) = error
    else {
        panic!("{error:?} has no place");
    };
    let At { line, column } = *at;
    let lossy = String::from_utf8_lossy(text);
    let lines: Vec<&str> = lossy.split('\n').collect();
    assert!((1..=lines.len()).contains(&line), "{message}");
    assert!((1..=lines[line - 1].chars().count() + 1).contains(&column), "{message}");
}
