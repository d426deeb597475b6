//! Routes files: one route in each line, `PREFIX via MAC port NUMBER`.

use crate::error::{At, Error, Result};
use crate::ethernet::MacAddress;
use lpm::{Ipv4Prefix, Ipv6Prefix, NextHop};
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::FileType;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

/// A next hop: a station behind a port.
///
/// ```
/// use router::{MacAddress, Neighbour};
/// let neighbour = Neighbour { port: 1, mac: MacAddress([2, 0, 0, 0, 0, 2]) };
/// # let _ = neighbour;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The output port; 0 is the first. In a [`LiveFib`](crate::LiveFib), the number of an interface.
    pub port: u16,
    /// The station's MAC address.
    pub mac: MacAddress,
}

/// The routes of a routes file.
///
/// Each line is a route, `PREFIX via MAC port NUMBER`; a `#` begins a comment; empty lines are ignored. Prefixes of
/// both families may be mixed, in any order; each may occur once. Ports count from 0. Lines may end as in DOS, and the
/// file may begin with a byte order mark.
///
/// ```
/// let text = "\
/// ## prefix      next hop              output
/// 192.0.2.0/24   via 02:00:00:00:00:02 port 1
/// 2001:db8::/32  via 02:00:00:00:00:03 port 2
/// ";
/// let routes = router::Routes::parse(text.as_bytes(), 3)?;
/// assert_eq!((routes.ipv4().len(), routes.ipv6().len(), routes.neighbours().len()), (1, 1, 2));
/// # Ok::<(), router::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    v4: Vec<(Ipv4Prefix, NextHop)>,
    v6: Vec<(Ipv6Prefix, NextHop)>,
    neighbours: Vec<Neighbour>,
    ports: usize,
}

impl Routes {
    /// Parses the text of a routes file, for a router with `ports` ports.
    ///
    /// # Errors
    ///
    /// The first mistake in the text, with line and column; if several prefixes have more than one route, the lowest of
    /// these prefixes. [`Error::OutOfMemory`] if memory is short.
    pub fn parse(text: &[u8], ports: usize) -> Result<Self> {
        let text = std::str::from_utf8(text).map_err(|error| not_text(text, error.valid_up_to()))?;
        // Some editors put a byte order mark there.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut parser = Parser { ports, ..Parser::default() };
        for (index, line) in text.lines().enumerate() {
            parser.line(index + 1, line)?;
        }
        let Parser { v4, v6, neighbours, .. } = parser;
        let (v4, v6) = (each_once(v4, text)?, each_once(v6, text)?);
        Ok(Self { v4, v6, neighbours, ports })
    }

    /// Reads and parses a routes file: a regular file of at most [`Self::LONGEST`] bytes, of which the last is a line
    /// feed. Directories, pipes and devices, which may never end, are refused before they are read.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it cannot be read, is not a regular file, is too long or does not end with a line feed; else
    /// those of [`Self::parse`].
    pub fn read(path: &Path, ports: usize) -> Result<Self> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::OutOfMemory => Error::OutOfMemory,
            _ => Error::File { cause: format!("cannot read: {error}"), next: "name a file that this user may read" },
        };
        let refused = |cause: &str| Error::File { cause: cause.to_owned(), next: "name a regular file" };
        let check = |kind: FileType| match kind {
            _ if kind.is_dir() => Err(refused("cannot read: it is a directory")),
            _ if kind.is_file() => Ok(()),
            _ => Err(refused("cannot read: it is a pipe, a socket or a device, which may never end")),
        };
        // To open a device may have effects of its own.
        check(std::fs::metadata(path).map_err(failed)?.file_type())?;
        // It may be another file by now, and some regular files wait for their bytes (/proc/kmsg): neither is waited for.
        let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(failed)?;
        check(file.metadata().map_err(failed)?.file_type())?;
        let mut text = Vec::new();
        file.take(Self::LONGEST + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > Self::LONGEST {
            let cause = format!("longer than {} MiB", Self::LONGEST >> 20);
            return Err(Error::File { cause, next: "name a routes file, a route a line" });
        }
        // Whoever writes it in place is seen at work by those who read it.
        if text.last() != Some(&b'\n') {
            let cause = if text.is_empty() { "it is empty" } else { "its last line has no end" };
            return Err(Error::File {
                cause: format!("{cause}, so it may be cut short"),
                next: "end each line with a line feed, and replace the file by renaming a new one",
            });
        }
        Self::parse(&text, ports)
    }

    /// Largest size of a routes file in bytes: 512 MiB, some 10 million routes.
    pub const LONGEST: u64 = 512 << 20;

    /// Returns the IPv4 routes in prefix order. A next hop is an index into [`Self::neighbours`].
    #[must_use]
    pub fn ipv4(&self) -> &[(Ipv4Prefix, NextHop)] {
        &self.v4
    }

    /// Returns the IPv6 routes in prefix order. A next hop is an index into [`Self::neighbours`].
    #[must_use]
    pub fn ipv6(&self) -> &[(Ipv6Prefix, NextHop)] {
        &self.v6
    }

    /// Returns the next hops, each once.
    #[must_use]
    pub fn neighbours(&self) -> &[Neighbour] {
        &self.neighbours
    }

    /// Returns the number of ports that the routes were parsed for.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.ports
    }
}

/// A route and its line.
struct Read<P> {
    prefix: P,
    line: usize,
    hop: NextHop,
}

#[derive(Default)]
struct Parser {
    ports: usize,
    v4: Vec<Read<Ipv4Prefix>>,
    v6: Vec<Read<Ipv6Prefix>>,
    neighbours: Vec<Neighbour>,
    numbers: HashMap<Neighbour, NextHop>,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        let content = line.split_once('#').map_or(line, |(content, _)| content);
        let mut words = Words { number, line: content, next: 0 };
        let Some(prefix) = words.next() else { return Ok(()) };
        words.keyword("via")?;
        let mac = words.expect("the MAC address of the next hop")?;
        words.keyword("port")?;
        let port = words.expect("the number of the output port")?;
        words.end()?;
        if prefix.text.contains(':') {
            let route = self.route(&words, [prefix, mac, port])?;
            self.v6.try_reserve(1)?;
            self.v6.push(route);
        } else {
            let route = self.route(&words, [prefix, mac, port])?;
            self.v4.try_reserve(1)?;
            self.v4.push(route);
        }
        Ok(())
    }

    fn route<P: FromStr<Err = lpm::Error>>(
        &mut self,
        words: &Words,
        [prefix, mac, port]: [Word; 3],
    ) -> Result<Read<P>> {
        let prefix = words.prefix(prefix)?;
        let (mac, port) = (words.mac(mac)?, words.port(port, self.ports)?);
        Ok(Read { prefix, line: words.number, hop: self.hop(mac, port)? })
    }

    /// The number of a neighbour, which it gets when it is named first.
    fn hop(&mut self, mac: MacAddress, port: u16) -> Result<NextHop> {
        let neighbour = Neighbour { port, mac };
        if let Some(hop) = self.numbers.get(&neighbour) {
            return Ok(*hop);
        }
        let hop = NextHop::new(u32::try_from(self.neighbours.len()).unwrap_or(u32::MAX))?;
        self.neighbours.try_reserve(1)?;
        self.numbers.try_reserve(1)?;
        self.neighbours.push(neighbour);
        self.numbers.insert(neighbour, hop);
        Ok(hop)
    }
}

/// The words of a line.
struct Words<'t> {
    number: usize,
    line: &'t str,
    /// Where the next word is looked for.
    next: usize,
}

/// A word, and at which byte of its line it begins.
#[derive(Clone, Copy)]
struct Word<'t> {
    text: &'t str,
    start: usize,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<Word<'t>> {
        let rest = &self.line[self.next..];
        let rest = rest.trim_start();
        let start = self.line.len() - rest.len();
        let text = rest.split(char::is_whitespace).next().filter(|text| !text.is_empty())?;
        self.next = start + text.len();
        Some(Word { text, start })
    }

    fn expect(&mut self, expected: &'static str) -> Result<Word<'t>> {
        let end = self.line.trim_end().len();
        self.next().ok_or_else(|| self.form(end, "the line ends".to_owned(), expected))
    }

    fn keyword(&mut self, keyword: &'static str) -> Result<()> {
        let word = self.expect(keyword)?;
        if word.text == keyword { Ok(()) } else { Err(self.form(word.start, quoted(word.text), keyword)) }
    }

    fn end(&mut self) -> Result<()> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.form(word.start, quoted(word.text), "the end of the line")),
        }
    }

    fn prefix<P: FromStr<Err = lpm::Error>>(&self, word: Word) -> Result<P> {
        word.text.parse().map_err(|source| Error::Prefix { at: self.at(word.start), source })
    }

    fn mac(&self, word: Word) -> Result<MacAddress> {
        let mac: MacAddress = word
            .text
            .parse()
            .map_err(|()| self.form(word.start, quoted(word.text), "a MAC address such as 02:00:00:00:00:02"))?;
        let what = match mac {
            MacAddress([0, 0, 0, 0, 0, 0]) => "nobody's address",
            _ if mac.is_group() => "the address of a group",
            _ => return Ok(mac),
        };
        Err(Error::NextHop { at: self.at(word.start), mac: mac.to_string(), what })
    }

    fn port(&self, word: Word, ports: usize) -> Result<u16> {
        let digits = word.text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits {
            return Err(self.form(word.start, quoted(word.text), "the number of the output port"));
        }
        match word.text.parse::<u16>() {
            Ok(port) if usize::from(port) < ports => Ok(port),
            _ => Err(Error::Port { at: self.at(word.start), port: shortened(word.text), ports }),
        }
    }

    fn form(&self, byte: usize, found: String, expected: &'static str) -> Error {
        Error::Form { at: self.at(byte), found, expected }
    }

    fn at(&self, byte: usize) -> At {
        At { line: self.number, column: column(&self.line[..byte]) }
    }
}

/// The routes in prefix order, or an error for a prefix that has two.
fn each_once<P: Copy + Ord + Display>(mut routes: Vec<Read<P>>, text: &str) -> Result<Vec<(P, NextHop)>> {
    routes.sort_unstable_by_key(|route| (route.prefix, route.line));
    let twice = routes.windows(2).find(|pair| pair[0].prefix == pair[1].prefix);
    if let Some([first, second]) = twice {
        let line = text.lines().nth(second.line - 1).unwrap_or_default();
        let at = At { line: second.line, column: column(&line[..line.len() - line.trim_start().len()]) };
        return Err(Error::Duplicate { at, prefix: second.prefix.to_string(), first: first.line });
    }
    let mut each = Vec::new();
    each.try_reserve_exact(routes.len())?;
    each.extend(routes.into_iter().map(|route| (route.prefix, route.hop)));
    Ok(each)
}

/// The column that comes after this much of a line.
fn column(before: &str) -> usize {
    before.chars().count() + 1
}

/// Where the bytes that are no text begin.
fn not_text(bytes: &[u8], valid: usize) -> Error {
    let text = String::from_utf8_lossy(&bytes[..valid]);
    let last = text.rsplit('\n').next().unwrap_or_default();
    Error::NotText { at: At { line: text.matches('\n').count() + 1, column: column(last) } }
}

fn quoted(word: &str) -> String {
    format!("{:?}", shortened(word))
}

/// At most 64 characters of a word.
fn shortened(word: &str) -> String {
    word.chars().take(64).collect()
}
