//! What a field holds from frame to frame, as it is written in a definition.

use crate::error::{Error, Result};
use crate::source::{Source, Value, get};
use std::net::{Ipv4Addr, Ipv6Addr};
use toml::de::{DeTable, DeValue};

/// What a field's values look like in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Mac,
    Ipv4,
    Ipv6,
}

/// The values of a field of 64 bits at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Constant(u64),
    /// `from`, `from + step`, and so on, so many, and again from the start.
    Count {
        from: u64,
        step: u64,
        count: u64,
    },
    /// One after the other.
    List(Vec<u64>),
    /// Uniformly random in `from..=from + last`.
    Random {
        from: u64,
        last: u64,
    },
    /// The frame's size less so many bytes.
    Size {
        minus: usize,
    },
}

/// Values of a field as they were read, and whether they move with the flow.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) wide: Wide,
    pub(crate) flow: bool,
}

/// Values of up to 128 bits.
#[derive(Clone, Debug)]
pub(crate) enum Wide {
    Constant(u128),
    Count { from: u128, to: u128, step: u64 },
    List(Vec<u128>),
    Random { from: u128, to: u128 },
}

const KEYS: [&str; 6] = ["from", "to", "step", "list", "random", "flow"];

impl Spec {
    pub(crate) fn constant(value: u128) -> Self {
        Self { wide: Wide::Constant(value), flow: false }
    }

    /// Reads a field of so many bits.
    pub(crate) fn parse(source: Source<'_>, value: &Value<'_>, kind: Kind, bits: usize) -> Result<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return Ok(Self::constant(one(source, value, kind, bits)?));
        };
        source.only(table, &KEYS)?;
        let flow = source.is_true(get(table, "flow"))?;
        let random = source.is_true(get(table, "random"))?;
        let wide = match get(table, "list") {
            Some(list) => Wide::List(listed(source, table, list, kind, bits)?),
            None => moving(source, value, table, kind, bits, random)?,
        };
        Ok(Self { wide, flow })
    }
}

impl Wide {
    /// Both halves of the values of a field of 128 bits. `None` if they cross a boundary of 2^64.
    pub(crate) fn halves(self) -> Option<(Values, Values)> {
        let high = |value: u128| u64::try_from(value >> 64).unwrap_or(0);
        Some(match self {
            Self::Constant(value) => (Values::Constant(high(value)), Values::Constant(low(value))),
            Self::List(list) => {
                let highs = list.iter().map(|value| high(*value)).collect();
                (Values::List(highs), Values::List(list.into_iter().map(low).collect()))
            }
            Self::Count { from, to, .. } | Self::Random { from, to } => {
                let top = (high(from) == high(to)).then(|| high(from))?;
                (Values::Constant(top), self.low())
            }
        })
    }

    /// The lower 64 bits of the values.
    pub(crate) fn low(self) -> Values {
        match self {
            Self::Constant(value) => Values::Constant(low(value)),
            Self::List(list) => Values::List(list.into_iter().map(low).collect()),
            Self::Count { from, to, step } => {
                // All 2^64 values are one more than a count holds; the last one is left out.
                let count = (low(to).wrapping_sub(low(from)) / step).saturating_add(1);
                Values::Count { from: low(from), step, count }
            }
            Self::Random { from, to } => Values::Random { from: low(from), last: low(to).wrapping_sub(low(from)) },
        }
    }
}

fn listed(source: Source<'_>, table: &DeTable<'_>, list: &Value<'_>, kind: Kind, bits: usize) -> Result<Vec<u128>> {
    let others = table.iter().find(|(key, _)| !["list", "flow"].contains(&key.get_ref().as_ref()));
    if let Some((key, _)) = others {
        let message = format!("{} stands beside list", key.get_ref());
        return Err(source.error(key.span(), message, "expected a list alone, or from and to"));
    }
    let values = source.array(list, "an array of values")?;
    if values.is_empty() {
        return Err(source.error(list.span(), "this list is empty", "expected one value at least"));
    }
    values.iter().map(|value| one(source, value, kind, bits)).collect()
}

fn moving(
    source: Source<'_>,
    value: &Value<'_>,
    table: &DeTable<'_>,
    kind: Kind,
    bits: usize,
    random: bool,
) -> Result<Wide> {
    let bound = |key| get(table, key).map(|value| one(source, value, kind, bits)).transpose();
    let (from, to) = (bound("from")?, bound("to")?);
    if !random && (from.is_none() || to.is_none()) {
        let expected = "expected { from = FIRST, to = LAST }, { list = [...] } or { random = true }";
        return Err(source.error(value.span(), "these values have no beginning or no end", expected));
    }
    let (from, to) = (from.unwrap_or(0), to.unwrap_or(largest(bits)));
    if from > to {
        let at = get(table, "from").map_or(value.span(), |from| from.span());
        return Err(source.error(at, "from is above to", "expected the smaller value as from"));
    }
    let step = get(table, "step");
    if let Some(step) = step.filter(|_| random) {
        return Err(source.error(
            step.span(),
            "a step stands beside random",
            "expected a step only between from and to",
        ));
    }
    let step = step.map_or(Ok(1), |step| {
        let number = source.word(step, 0..=u64::try_from(i64::MAX).unwrap_or(0))?;
        if number == 0 {
            Err(source.error(step.span(), "a step of 0 never moves", "expected 1 or more"))
        } else {
            Ok(number)
        }
    })?;
    Ok(if random { Wide::Random { from, to } } else { Wide::Count { from, to, step } })
}

/// One value of a field.
fn one(source: Source<'_>, value: &Value<'_>, kind: Kind, bits: usize) -> Result<u128> {
    if kind == Kind::Number {
        return source.number(value, 0..=largest(bits));
    }
    let expected = match kind {
        Kind::Ipv4 => "an IPv4 address, such as \"198.18.0.1\"",
        Kind::Ipv6 => "an IPv6 address, such as \"2001:2::1\"",
        Kind::Mac | Kind::Number => "a MAC address, such as \"02:00:00:00:00:01\"",
    };
    let text = source.text(value, expected)?;
    let address = match kind {
        Kind::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into()),
        Kind::Ipv6 => text.parse::<Ipv6Addr>().ok().map(u128::from),
        Kind::Mac | Kind::Number => mac(text),
    };
    let bad =
        || -> Error { source.error(value.span(), "this is no address of the kind", format!("expected {expected}")) };
    address.ok_or_else(bad)
}

fn mac(text: &str) -> Option<u128> {
    let parts: Vec<&str> = text.split(':').collect();
    let good =
        parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()));
    good.then(|| parts.concat()).and_then(|digits| u128::from_str_radix(&digits, 16).ok())
}

/// The largest number of so many bits.
fn largest(bits: usize) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

fn low(value: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
    let low = value as u64;
    low
}
