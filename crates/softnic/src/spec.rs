//! Device specifications: `NAME?key=value&key=value`.

use crate::model::{Grant, IDS, KINDS, MailboxApi, Pages};
use crate::trace::TraceSpec;
use crate::wire::{GeneratorSetup, KNOBS, Knobs, Written, check_captures, check_tap_name};
use crate::{DeviceId, Error, Fault, ModuleKind};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A parsed specification.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) id: DeviceId,
    pub(crate) module: ModuleKind,
    /// What the module says, if that is in a file.
    pub(crate) pages: Option<Pages>,
    pub(crate) mac: [u8; 6],
    pub(crate) link: bool,
    pub(crate) faults: Vec<Fault>,
    pub(crate) grant: Grant,
    pub(crate) trace: Option<TraceSpec>,
    /// `None` if no wire is named: a sink, or the other end of a cable.
    pub(crate) wire: Option<WireSpec>,
}

/// Which wire.
#[derive(Debug)]
pub(crate) enum WireSpec {
    Generator(GeneratorSetup),
    Sink,
    Loop,
    Peer { name: String, drop: bool, knobs: Option<Knobs> },
    Tap(String),
    Pcap { input: String, output: String },
}

const KEYS: &str =
    "wire, size, flows, count, rate, mode, id, module, queues, trust, api, mac, link, fault, trace, trace-reads";
const WIRES: &str = "gen, sink, loop, peer:NAME, tap:IFNAME, pcap:IN,OUT";

/// Versions of what functions say to each other.
const APIS: &[(&str, MailboxApi)] = &[
    ("1.0", MailboxApi::V1_0),
    ("1.1", MailboxApi::V1_1),
    ("1.2", MailboxApi::V1_2),
    ("1.3", MailboxApi::V1_3),
    ("1.4", MailboxApi::V1_4),
    ("1.5", MailboxApi::V1_5),
    ("1.6", MailboxApi::V1_6),
    ("1.7", MailboxApi::V1_7),
];

/// The keys and values of a specification, as written.
#[derive(Default)]
struct Pairs<'s> {
    wire: Option<&'s str>,
    size: Option<&'s str>,
    flows: Option<&'s str>,
    count: Option<&'s str>,
    rate: Option<&'s str>,
    mode: Option<&'s str>,
    id: Option<&'s str>,
    module: Option<&'s str>,
    queues: Option<&'s str>,
    trust: Option<&'s str>,
    api: Option<&'s str>,
    mac: Option<&'s str>,
    link: Option<&'s str>,
    faults: Vec<&'s str>,
    trace: Option<&'s str>,
    trace_reads: Option<&'s str>,
    knobs: Written<'s>,
}

/// Checks the specifications of devices that are to be opened together, before the first is opened: each by itself, and
/// that no capture or trace to be written is also to be read, or written twice. Changes nothing.
///
/// # Errors
///
/// The error that opening them would return, for the first that is wrong; without errors that only an open device can
/// find.
pub fn check(specs: &[&str]) -> Result<(), Error> {
    let specs = specs.iter().map(|spec| spec.parse()).collect::<Result<Vec<Spec>, _>>()?;
    let captures = specs.iter().filter_map(|spec| match &spec.wire {
        Some(WireSpec::Pcap { input, output }) => Some((input.as_str(), output.as_str())),
        _ => None,
    });
    let traces = specs.iter().filter_map(|spec| Some(("", spec.trace.as_ref()?.path.as_str())));
    check_captures(&captures.chain(traces).collect::<Vec<_>>())
}

impl FromStr for Spec {
    type Err = Error;

    /// Parses what stands after `soft:` (which may be there too).
    fn from_str(text: &str) -> Result<Self, Error> {
        let bare = text.strip_prefix("soft:").unwrap_or(text);
        let bad = |cause: &str| Error::BadSpec { spec: text.to_owned(), cause: cause.to_owned() };
        let (name, query) = bare.split_once('?').unwrap_or((bare, ""));
        if name.is_empty() {
            return Err(bad("it has no name"));
        }
        if name.contains(char::is_control) {
            return Err(bad("its name has a control character; leave it out"));
        }
        let pairs = Pairs::split(text, query)?;
        let mac = match pairs.mac {
            Some(mac) => parse_mac(mac)?,
            None => derived_mac(name),
        };
        let id = one_of("id", pairs.id, IDS, DeviceId::Cx4)?;
        let file = pairs.module.filter(|value| value.contains('/') || value.ends_with(".bin"));
        let kind = pairs.module.filter(|_| file.is_none());
        let module = one_of("module", kind, KINDS, ModuleKind::default())?;
        if pairs.module.is_some() && id != DeviceId::SfpPlus {
            return Err(bad("module belongs to id=10fb, which has a cage for it"));
        }
        let grant = pairs.grant()?;
        if !id.is_virtual() && [pairs.queues, pairs.trust, pairs.api].iter().any(Option::is_some) {
            return Err(bad("queues, trust and api belong to virtual functions: id=10ed, 1515 or 1565"));
        }
        let link = one_of("link", pairs.link, &[("up", true), ("down", false)], true)?;
        let faults = pairs.faults.iter().map(|fault| fault.parse()).collect::<Result<Vec<Fault>, _>>()?;
        faults.iter().try_for_each(|fault| fault.check(id)).map_err(bad)?;
        let wire = pairs.wire(name, mac)?;
        let is_generator = matches!(wire, Some(WireSpec::Generator(_)));
        if !is_generator && [pairs.size, pairs.flows, pairs.count].iter().any(Option::is_some) {
            return Err(bad("size, flows and count belong to wire=gen"));
        }
        let is_peer = matches!(wire, Some(WireSpec::Peer { .. }));
        if !is_generator && !is_peer && [pairs.mode, pairs.rate].iter().any(Option::is_some) {
            return Err(bad("mode and rate belong to wire=gen and wire=peer:NAME"));
        }
        if !is_peer && pairs.knobs.any() {
            return Err(bad(&format!("{} belong to wire=peer:NAME", KNOBS.join(", "))));
        }
        let trace =
            pairs.trace().map_err(|problem| problem.unwrap_or_else(|| bad("trace-reads belongs to trace=FILE")))?;
        // In the end, as a file is read for it.
        let pages = file.map(Pages::read).transpose()?;
        Ok(Self { name: name.to_owned(), id, module, pages, mac, link, faults, grant, trace, wire })
    }
}

impl<'s> Pairs<'s> {
    fn split(spec: &str, query: &'s str) -> Result<Self, Error> {
        let mut pairs = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "wire" => &mut pairs.wire,
                "size" => &mut pairs.size,
                "flows" => &mut pairs.flows,
                "count" => &mut pairs.count,
                "rate" => &mut pairs.rate,
                "mode" => &mut pairs.mode,
                "id" => &mut pairs.id,
                "module" => &mut pairs.module,
                "queues" => &mut pairs.queues,
                "trust" => &mut pairs.trust,
                "api" => &mut pairs.api,
                "mac" => &mut pairs.mac,
                "link" => &mut pairs.link,
                "trace" => &mut pairs.trace,
                "trace-reads" => &mut pairs.trace_reads,
                "fault" => {
                    pairs.faults.extend(value.split(','));
                    continue;
                }
                _ => pairs.knobs.slot(key).ok_or_else(|| Error::UnknownKey {
                    spec: spec.to_owned(),
                    key: key.to_owned(),
                    allowed: format!("{KEYS}, {}", KNOBS.join(", ")),
                })?,
            };
            if slot.replace(value).is_some() {
                let cause = format!("{key} is given twice");
                return Err(Error::BadSpec { spec: spec.to_owned(), cause });
            }
        }
        Ok(pairs)
    }

    /// Which accesses to registers are written down, and where.
    fn trace(&self) -> Result<Option<TraceSpec>, Option<Error>> {
        let reads = one_of("trace-reads", self.trace_reads, &[("on", true), ("off", false)], false)?;
        match self.trace {
            Some("") => Err(Some(bad_value("trace", "", "the name of a file"))),
            Some(path) => Ok(Some(TraceSpec { path: path.to_owned(), reads })),
            None if self.trace_reads.is_some() => Err(None),
            None => Ok(None),
        }
    }

    /// What a virtual function is given.
    fn grant(&self) -> Result<Grant, Error> {
        let granted = Grant::default();
        let queues = one_of("queues", self.queues, &[("1", 1), ("2", 2), ("4", 4)], granted.queues)?;
        let trusted = one_of("trust", self.trust, &[("on", true), ("off", false)], granted.trusted)?;
        let newest = one_of("api", self.api, APIS, granted.newest)?;
        Ok(Grant { queues, trusted, newest })
    }

    fn wire(&self, name: &str, mac: [u8; 6]) -> Result<Option<WireSpec>, Error> {
        let Some(wire) = self.wire else { return Ok(None) };
        let (kind, rest) = wire.split_once(':').unwrap_or((wire, ""));
        let drop = one_of("mode", self.mode, &[("wait", false), ("drop", true)], false)?;
        let wire = match kind {
            "gen" if rest.is_empty() => {
                if drop && self.rate.is_none() {
                    return Err(bad_value("mode", "drop", "wait; or drop with a rate, without which nothing is late"));
                }
                WireSpec::Generator(GeneratorSetup {
                    size: sizes(self.size.unwrap_or("60"))?,
                    flows: number("flows", self.flows, u32::MAX)?.unwrap_or(1),
                    count: number("count", self.count, u64::MAX)?,
                    rate: number("rate", self.rate, crate::wire::MOST_RATE)?,
                    drop,
                    destination: mac,
                })
            }
            "sink" if rest.is_empty() => WireSpec::Sink,
            "loop" if rest.is_empty() => WireSpec::Loop,
            "peer" if !rest.is_empty() && rest != name && !rest.contains(char::is_control) => {
                WireSpec::Peer { name: rest.to_owned(), drop, knobs: self.knobs.knobs(self.rate)? }
            }
            "tap" if !rest.is_empty() => {
                check_tap_name(rest)?;
                WireSpec::Tap(rest.to_owned())
            }
            "pcap" if !rest.trim_matches(',').is_empty() => {
                let (input, output) = rest.split_once(',').unwrap_or((rest, ""));
                WireSpec::Pcap { input: input.to_owned(), output: output.to_owned() }
            }
            _ => return Err(bad_value("wire", wire, WIRES)),
        };
        Ok(Some(wire))
    }
}

fn bad_value(key: &'static str, value: &str, allowed: &str) -> Error {
    Error::BadValue { key, value: value.to_owned(), allowed: allowed.to_owned() }
}

pub(crate) fn one_of<T: Copy>(
    key: &'static str,
    value: Option<&str>,
    choices: &[(&str, T)],
    default: T,
) -> Result<T, Error> {
    let Some(value) = value else { return Ok(default) };
    let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        bad_value(key, value, &names.join(", "))
    })
}

/// A number from 1 to `most`, if there is one.
fn number<T>(key: &'static str, value: Option<&str>, most: T) -> Result<Option<T>, Error>
where
    T: FromStr + PartialOrd + From<u8> + Display,
{
    let Some(value) = value else { return Ok(None) };
    match digits(value) {
        Some(number) if number >= T::from(1) && number <= most => Ok(Some(number)),
        _ => Err(bad_value(key, value, &format!("a whole number from 1 to {most}"))),
    }
}

/// A number that is digits only: the library takes a sign too.
fn digits<T: FromStr>(value: &str) -> Option<T> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

/// `60` or `60-1514`: bytes without CRC.
fn sizes(value: &str) -> Result<RangeInclusive<u16>, Error> {
    let limits = crate::wire::GENERATOR_SIZES;
    let bad = || {
        let allowed = format!("N or N-M in bytes without CRC, {} to {}", limits.start(), limits.end());
        bad_value("size", value, &allowed)
    };
    let (low, high) = value.split_once('-').unwrap_or((value, value));
    let (low, high) = (digits(low).ok_or_else(bad)?, digits(high).ok_or_else(bad)?);
    if low > high || !limits.contains(&low) || !limits.contains(&high) {
        return Err(bad());
    }
    Ok(low..=high)
}

fn parse_mac(value: &str) -> Result<[u8; 6], Error> {
    let bad = || bad_value("mac", value, "six hexadecimal bytes like 02:00:00:00:00:01, unicast and not zero");
    let mut mac = [0; 6];
    let mut parts = value.split(':');
    for byte in &mut mac {
        let two = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let part = parts.next().filter(two).ok_or_else(bad)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
    }
    if parts.next().is_some() || mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(bad());
    }
    Ok(mac)
}

/// A locally administered address that depends only on the name (FNV-1a).
pub(crate) fn derived_mac(name: &str) -> [u8; 6] {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [_, _, _, a, b, c, d, e] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_full_specification() {
        let spec: Spec =
            "soft:a?wire=gen&size=64-128&flows=5&count=9&rate=1000&mode=drop&id=10FB&mac=02:00:00:00:00:0a&link=down\
             &fault=no-dd&fault=removal:3,rx-no-eop"
                .parse()
                .unwrap();
        assert_eq!((spec.name.as_str(), spec.id, spec.link), ("a", DeviceId::SfpPlus, false));
        assert_eq!(spec.mac, [2, 0, 0, 0, 0, 10]);
        assert_eq!(spec.faults, [Fault::TxNoDd, Fault::Removal { after_reads: 3 }, Fault::RxNoEop]);
        let Some(WireSpec::Generator(generator)) = spec.wire else { panic!("not a generator") };
        assert_eq!((generator.size, generator.flows, generator.drop), (64..=128, 5, true));
        assert_eq!((generator.count, generator.rate), (Some(9), Some(1000)));
        assert!("b".parse::<Spec>().unwrap().wire.is_none());
        assert_ne!(derived_mac("a"), derived_mac("b"));
        assert_eq!(derived_mac("a")[0], 2);
    }

    #[test]
    fn mistakes_are_one_line_and_say_what_is_allowed() {
        for (text, hint) in [
            ("", "NAME"),
            ("?wire=sink", "NAME"),
            ("a?wires=sink", "wire, size"),
            ("a?wire=string", "tap:IFNAME"),
            ("a?wire=peer:a", "peer:NAME"),
            ("a?wire=sink&wire=sink", "twice"),
            ("a?wire=gen&size=59", "60 to 9000"),
            ("a?wire=gen&size=100-60", "60 to 9000"),
            ("a?wire=gen&flows=0", "a whole number from 1 to 4294967295"),
            ("a?wire=gen&rate=0", "a whole number from 1 to 1000000000"),
            ("a?wire=gen&rate=1000000001", "a whole number from 1 to 1000000000"),
            ("a?wire=gen&rate=+9", "a whole number from 1 to 1000000000"),
            ("a?wire=gen&count=+9", "a whole number from 1 to 18446744073709551615"),
            ("a?wire=gen&count=", "a whole number from 1 to"),
            ("a?wire=gen&flows=+3", "a whole number from 1 to 4294967295"),
            ("a?wire=gen&size=+60-+70", "60 to 9000"),
            ("a?wire=gen&size=60-+70", "60 to 9000"),
            ("a?wire=gen&size=+60", "60 to 9000"),
            ("a?mac=02:00:00:00:00:+a", "six hexadecimal bytes"),
            ("a\nb", "control character"),
            ("a\u{1b}[31m?wire=sink", "control character"),
            ("soft:a\u{7f}", "control character"),
            ("a?wire=peer:b\n", "peer:NAME"),
            ("a?wire=tap:", "tap:IFNAME"),
            ("a?wire=tap:sixteen-letters-", "1 to 15 bytes"),
            ("a?wire=tap:tap%d", "none of them %"),
            ("a?wire=tap:%", "none of them %"),
            ("a?wire=gen&mode=drop", "rate"),
            ("a?wire=sink&mode=drop", "wire=gen"),
            ("a?flows=3", "wire=gen"),
            ("a?rate=3", "wire=peer:NAME"),
            ("a?wire=peer:b&count=3", "wire=gen"),
            ("a?wire=sink&loss=1%", "wire=peer:NAME"),
            ("a?wire=peer:b&loss=2", "0% to 100%"),
            ("a?wire=peer:b&loss=1%&loss=1%", "loss is given twice"),
            ("a?wire=peer:b&rate=fast", "frames a second"),
            ("a?id=15aa", "10f9, 10fb, x540, 1528, x550"),
            ("a?id=x540&fault=firmware-silent", "id=x550"),
            ("a?id=1565&fault=firmware-holds", "not to virtual functions"),
            ("a?id=10fb&module=xfp", "dac, long-dac"),
            ("a?module=sr", "id=10fb"),
            ("a?module=/none.bin", "id=10fb"),
            ("a?id=10fb&module=/none/of\u{1b}these", "read the memory of a module"),
            ("a?id=10fb&module=none.bin", "ethtool -m DEV raw on"),
            ("a?id=10fb&module=/dev/zero", "not a regular file"),
            ("a?id=10fb&module=/", "not a regular file"),
            ("a?queues=2", "virtual functions"),
            ("a?id=1515&queues=3", "1, 2, 4"),
            ("a?id=1515&trust=some", "on, off"),
            ("a?api=1.1", "virtual functions"),
            ("a?id=1515&api=2.0", "1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7"),
            ("a?fault=pf-gone", "virtual functions"),
            ("a?mac=01:00:00:00:00:01", "unicast"),
            ("a?mac=02:00:00:00:00", "six"),
            ("a?link=sideways", "up, down"),
            ("a?fault=gremlins", "stuck-reset"),
            ("a?trace=", "the name of a file"),
            ("a?trace-reads=on", "trace=FILE"),
            ("a?trace=/tmp/a&trace-reads=all", "on, off"),
        ] {
            let message = text.parse::<Spec>().unwrap_err().to_string();
            assert!(message.contains(hint), "{text}: {message}");
            assert!(!message.contains(char::is_control), "{message}");
        }
    }
}
