//! A stream as its definition says.

use crate::error::{Error, Result};
use crate::layout::{Field, Layout, Place};
use crate::protocol::Protocol;
use crate::sizes::{LARGEST, SMALLEST, Sizes};
use crate::source::{Source, Value, get};
use crate::values::{Kind, Spec, Values};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Streams of a file, at most.
const MOST_STREAMS: usize = 128;
/// Flows of a stream, at most.
const MOST_FLOWS: u64 = 1 << 20;
/// Values that move with flows in all streams of a file: flows times fields.
const MOST_FLOW_VALUES: u64 = 1 << 24;
/// Flows that differ by address alone: hosts of a /16.
const FLOWS_BY_ADDRESS: u64 = 65_534;
/// Fields at given offsets, at most.
const MOST_FIELDS: usize = 256;

const FILE_KEYS: [&str; 1] = ["stream"];
const KEYS: [&str; 9] = ["name", "size", "frame", "payload", "flows", "field", "weight", "rate", "pattern"];
const PAYLOADS: [&str; 3] = ["zero", "increment", "random"];

/// The checksum of a header; one that is given is right of no more than one.
const IPV4_SUM: &str = "ipv4 checksum";
/// Fields by which a receiver finds the checksum of UDP, TCP or ICMP, and whether checksums are right.
const FORM: [&str; 12] = [
    IPV4_SUM,
    "ethernet type",
    "vlan type",
    "ipv4 protocol",
    "ipv6 next_header",
    "ipv4 length",
    "ipv6 length",
    "udp length",
    "udp checksum",
    "tcp checksum",
    "icmp checksum",
    "icmpv6 checksum",
];

/// A stream: its frames, and what changes from one to the next. The [crate] describes how it is written.
///
/// ```
/// let definitions = stream::Definition::parse("web.toml", r#"
///     [[stream]]
///     name = "web"
///     size = "60*7, 590*4, 1514"
///     frame = ["ethernet", "ipv4", { tcp = { destination = 80 } }]
///     flows = 1000
/// "#)?;
/// assert_eq!((definitions[0].name(), definitions[0].flows()), ("web", 1000));
/// # Ok::<(), stream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Definition {
    pub(crate) name: String,
    pub(crate) sizes: Sizes,
    pub(crate) layout: Layout,
    pub(crate) payload: Payload,
    pub(crate) flows: Option<u64>,
    weight: u64,
    /// With its line and column.
    rate: Option<(String, (usize, usize))>,
    /// With its line and column.
    pattern: Option<(String, (usize, usize))>,
}

/// What lies behind the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// 0, 1, 2, and so on.
    Increment,
    /// The same random bytes in all frames.
    Random,
    /// These, over and over.
    Bytes(Vec<u8>),
}

impl Definition {
    /// Reads all streams of a file; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`Error::Definition`], with file, line, column, the line itself and what was expected.
    pub fn parse(name: &str, text: &str) -> Result<Vec<Self>> {
        let source = Source { name, text };
        let file = source.parse()?;
        source.only(file.get_ref(), &FILE_KEYS)?;
        let expected = "streams, each below a line [[stream]]";
        let Some(streams) = get(file.get_ref(), "stream") else {
            return Err(source.error(0..0, "there is no stream", format!("expected {expected}")));
        };
        let streams_of = source.array(streams, expected)?;
        if streams_of.is_empty() || streams_of.len() > MOST_STREAMS {
            let message = format!("there are {} streams", streams_of.len());
            return Err(source.error(streams.span(), message, format!("expected 1 to {MOST_STREAMS} {expected}")));
        }
        let (mut all, mut values) = (Vec::with_capacity(streams_of.len()), 0);
        for (number, stream) in streams_of.iter().enumerate() {
            let definition = Self::one(source, stream, number)?;
            definition.check_name(source, stream, &all)?;
            values += definition.flow_values();
            if values > MOST_FLOW_VALUES {
                let message =
                    format!("fields that move with flows have more than {MOST_FLOW_VALUES} values in all streams");
                return Err(source.error(stream.span(), message, "expected fewer flows, or fewer such fields"));
            }
            all.push(definition);
        }
        Ok(all)
    }

    /// Refuses the name of one of the streams before it: who names a stream means one.
    fn check_name(&self, source: Source<'_>, stream: &Value<'_>, others: &[Self]) -> Result<()> {
        let Some(other) = others.iter().position(|other| other.name == self.name) else { return Ok(()) };
        let given = stream.get_ref().as_table().and_then(|table| get(table, "name"));
        let message = match given {
            Some(_) => format!("stream {} has this name too", other + 1),
            None => format!("this stream has no name and so its number, which is the name of stream {}", other + 1),
        };
        Err(source.error(given.unwrap_or(stream).span(), message, "expected a name of its own"))
    }

    fn flow_values(&self) -> u64 {
        self.flows() * self.layout.fields.iter().filter(|field| field.flow).count() as u64
    }

    fn one(source: Source<'_>, stream: &Value<'_>, number: usize) -> Result<Self> {
        let table = source.table(stream, "a table below a line [[stream]]")?;
        source.only(table, &KEYS)?;
        let text =
            |key, expected| get(table, key).map(|value| source.text(value, expected).map(str::to_owned)).transpose();
        let Some(frame) = get(table, "frame") else {
            let expected = "expected its headers, such as frame = [\"ethernet\", \"ipv4\", \"udp\"]";
            return Err(source.error(stream.span(), "this stream has no frame", expected));
        };
        let rate = match get(table, "rate").map(|rate| (rate, rate.get_ref())) {
            Some((_, DeValue::Integer(rate))) => Some(rate.to_string()),
            Some((rate, _)) => Some(source.text(rate, "a rate, such as \"10%\"")?.to_owned()),
            None => None,
        };
        let place = |key| get(table, key).map(|value| source.place(value.span().start));
        if let Some(pattern) = get(table, "pattern").filter(|_| rate.is_none()) {
            let message = "this stream has a pattern and no rate";
            return Err(source.error(pattern.span(), message, "expected a rate of its own, such as rate = \"10%\""));
        }
        if let Some(weight) = get(table, "weight").filter(|_| rate.is_some()) {
            let message = "this stream has a weight beside a rate of its own";
            return Err(source.error(weight.span(), message, "expected one of them: weights share what has no rate"));
        }
        let mut definition = Self {
            name: text("name", "a name")?.unwrap_or_else(|| (number + 1).to_string()),
            sizes: get(table, "size").map_or(Ok(Sizes::of_smallest()), |size| sizes(source, size))?,
            layout: Layout::parse(source, frame)?,
            payload: get(table, "payload")
                .map_or(Ok(Payload::Bytes(vec![0])), |payload| self::payload(source, payload))?,
            flows: get(table, "flows").map(|flows| source.word(flows, 1..=MOST_FLOWS)).transpose()?,
            weight: get(table, "weight").map_or(Ok(1), |weight| source.word(weight, 1..=u32::MAX.into()))?,
            rate: rate.zip(place("rate")),
            pattern: text("pattern", "a pattern, such as \"poisson\"")?.zip(place("pattern")),
        };
        let least = definition.layout.bytes.len();
        if definition.sizes.smallest() < least {
            let at = get(table, "size").map_or(frame.span(), |size| size.span());
            let message = format!("frames of {} bytes are too small for their headers", definition.sizes.smallest());
            return Err(source.error(at, message, format!("expected {least} bytes or more (without FCS)")));
        }
        if let Some(fields) = get(table, "field") {
            definition.add_fields(source, fields)?;
        }
        let at = get(table, "flows").map(|flows| flows.span());
        definition.let_flow(at).map_err(|(at, message, expected)| source.error(at, message, expected))?;
        Ok(definition)
    }

    /// Reads fields at given offsets.
    fn add_fields(&mut self, source: Source<'_>, fields: &Value<'_>) -> Result<()> {
        let items =
            source.array(fields, "an array of fields, such as [{ at = 50, bytes = 2, value = { random = true } }]")?;
        if items.len() > MOST_FIELDS {
            return Err(source.error(
                fields.span(),
                "these are too many fields",
                format!("expected at most {MOST_FIELDS}"),
            ));
        }
        let begin = self.layout.fields.len();
        for item in items {
            let table = source.table(item, "a field, such as { at = 50, bytes = 2, value = { random = true } }")?;
            source.only(table, &["at", "bytes", "value"])?;
            let key = |key: &str| {
                let missing =
                    || source.error(item.span(), format!("this field has no {key}"), "expected at, bytes and value");
                get(table, key).ok_or_else(missing)
            };
            let at = source.word(key("at")?, 0..=LARGEST.into())?;
            let width = source.word(key("bytes")?, 1..=8)?;
            let (at, width) = (usize::try_from(at).unwrap_or(0), usize::try_from(width).unwrap_or(1));
            let place = Place { at, width, shift: 0, bits: 8 * width };
            self.check_place(source, place, &self.layout.fields[begin..], item.span())?;
            let spec = Spec::parse(source, key("value")?, Kind::Number, place.bits)?;
            let name = format!("field at {at}");
            let field = Field { name, place, values: spec.wide.low(), flow: spec.flow, given: true, text: item.span() };
            self.layout.fields.push(field);
        }
        Ok(())
    }

    /// Refuses a field outside of the smallest frame, in a header, or over another.
    fn check_place(&self, source: Source<'_>, place: Place, others: &[Field], at: Range<usize>) -> Result<()> {
        let smallest = self.sizes.smallest();
        let field = format!("the field of bytes {} to {}", place.at, place.end() - 1);
        if place.end() > smallest {
            let expected = format!("expected a field within the {smallest} bytes of the smallest frame");
            return Err(source.error(at, format!("{field} lies outside of the frame"), expected));
        }
        let header = self
            .layout
            .layers
            .iter()
            .find(|layer| layer.protocol != Protocol::Raw && layer.from < place.end() && place.at < layer.to);
        if let Some(layer) = header {
            let name = layer.protocol.name();
            let expected = format!("expected the fields of {name} by name, or an offset in raw bytes or payload");
            return Err(source.error(at, format!("{field} overlaps with the header {name}"), expected));
        }
        let overlaps = |other: &&Field| {
            let (a, b) = (place.span(), other.place.span());
            a.start < b.end && b.start < a.end
        };
        match others.iter().find(overlaps) {
            Some(other) => {
                let message = format!("{field} overlaps with the {}", other.name);
                Err(source.error(at, message, "expected fields apart from each other"))
            }
            None => Ok(()),
        }
    }

    /// Makes the source address move with the flow, unless fields are named that do; above 65,534 flows the port too.
    fn let_flow(&mut self, at: Option<Range<usize>>) -> std::result::Result<(), (Range<usize>, String, String)> {
        let moving = self.layout.fields.iter().find(|field| field.flow);
        let values = self.flow_values();
        if let Some(at) = at.clone().filter(|_| values > MOST_FLOW_VALUES) {
            let message = format!("fields that move with these flows have {values} values");
            return Err((
                at,
                message,
                format!("expected at most {MOST_FLOW_VALUES}: fewer flows, or fewer such fields"),
            ));
        }
        let (flows, at) = match (self.flows.zip(at), moving) {
            (None, Some(field)) => {
                let message = format!("{} moves with the flow, but there are none", field.name);
                return Err((field.text.clone(), message, "expected flows = NUMBER in the stream".to_owned()));
            }
            (None, None) | (Some(_), Some(_)) => return Ok(()),
            (Some(found), None) => found,
        };
        let expected = "expected an IP header with a constant source, or fields with flow = true".to_owned();
        let ip = self.layout.layers.iter().position(|layer| matches!(layer.protocol, Protocol::Ipv4 | Protocol::Ipv6));
        let Some(ip) = ip else {
            return Err((at, "nothing moves with these flows".to_owned(), expected));
        };
        let layers = &self.layout.layers;
        let (from, last) = match layers[ip].protocol {
            Protocol::Ipv4 => (layers[ip].from + 12, u32::MAX.into()),
            _ => (layers[ip].from + 16, u64::MAX),
        };
        let ports = layers.get(ip + 1).filter(|layer| matches!(layer.protocol, Protocol::Udp | Protocol::Tcp));
        let ports = ports.map(|layer| layer.from);
        let hosts = flows.min(FLOWS_BY_ADDRESS);
        let constant = |fields: &[Field], at| match fields.iter().position(|field| field.place.at == at) {
            Some(index) => match fields[index].values {
                Values::Constant(value) => Some((index, value)),
                _ => None,
            },
            None => None,
        };
        let source = constant(&self.layout.fields, from).filter(|(_, first)| last - first >= hosts - 1);
        let Some((index, first)) = source else {
            return Err((at, format!("the source address cannot move with {flows} flows"), expected));
        };
        self.layout.fields[index].values = Values::Count { from: first, step: 1, count: hosts };
        self.layout.fields[index].flow = true;
        if flows > hosts {
            let Some((index, port)) = ports.and_then(|at| constant(&self.layout.fields, at)) else {
                let expected = format!("expected {hosts}, udp or tcp behind the IP header, or fields with flow = true");
                return Err((at, format!("{flows} flows need a source port that can move too"), expected));
            };
            let ports = (0..flows).map(|flow| (port + flow / hosts) % 65_536).collect();
            self.layout.fields[index].values = Values::List(ports);
            self.layout.fields[index].flow = true;
        }
        Ok(())
    }

    /// The stream's name: as given, or its number in the file, from 1.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sizes of its frames.
    #[must_use]
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Flows that it has, 1 unless given.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.flows.unwrap_or(1)
    }

    /// Its share beside other streams without a rate, from 1; 1 unless given.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Sets the addresses of the outermost Ethernet header, each unless the definition has it.
    ///
    /// ```
    /// use stream::{Definition, Stream};
    ///
    /// let text = "[[stream]]\nframe = [{ ethernet = { source = '02:00:00:00:00:07' } }, 'ipv4', 'udp']";
    /// let mut definition = Definition::parse("a.toml", text)?.remove(0);
    /// definition.set_macs([2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]);
    /// let mut frame = [0; 60];
    /// Stream::new(&definition, 0, 1)?.fill([&mut frame[..]].into_iter());
    /// assert_eq!(frame[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
    /// # Ok::<(), stream::Error>(())
    /// ```
    pub fn set_macs(&mut self, source: [u8; 6], destination: [u8; 6]) {
        let is_ethernet = self.layout.layers.first().is_some_and(|layer| layer.protocol == Protocol::Ethernet);
        for (at, address) in [(0, destination), (6, source)] {
            let mut fields = self.layout.fields.iter_mut();
            if let Some(field) = fields.find(|field| is_ethernet && field.place.at == at && !field.given) {
                let address = address.into_iter().fold(0, |all, byte| all << 8 | u64::from(byte));
                field.values = Values::Constant(address);
            }
        }
    }

    /// Whether all frames read like the first, types, protocols, lengths and checksums being what they are in that one: none of these is
    /// given and moves, no length is given where sizes differ, and no checksum of IPv4 is given.
    ///
    /// ```
    /// use stream::Definition;
    ///
    /// let of_length = |length: &str| {
    ///     let text = format!("[[stream]]\nframe = ['ethernet', 'ipv4', {{ udp = {{ length = {length} }} }}]");
    ///     Definition::parse("a.toml", &text).map(|definitions| definitions[0].has_one_form())
    /// };
    /// assert_eq!([of_length("26")?, of_length("{ list = [26, 20] }")?], [true, false]);
    ///
    /// // Right of the first frame only.
    /// let text = "[[stream]]\nframe = ['ethernet', { ipv4 = { checksum = 0x1234, id = { from = 0, to = 99 } } }, 'udp']";
    /// assert!(!Definition::parse("a.toml", text)?[0].has_one_form());
    /// # Ok::<(), stream::Error>(())
    /// ```
    #[must_use]
    pub fn has_one_form(&self) -> bool {
        let stays = |field: &Field| match field.values {
            Values::Constant(_) if field.name.ends_with(" length") => self.sizes.only().is_some(),
            Values::Constant(_) => field.name != IPV4_SUM,
            _ => false,
        };
        self.layout.fields.iter().all(|field| !field.given || !FORM.contains(&field.name.as_str()) || stays(field))
    }

    /// Its rate, as it is written; what it means is left to the caller.
    #[must_use]
    pub fn rate(&self) -> Option<&str> {
        self.rate.as_ref().map(|(rate, _)| rate.as_str())
    }

    /// How its frames are spread, as it is written; what it means is left to the caller. Only a stream with a rate has it.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_ref().map(|(pattern, _)| pattern.as_str())
    }

    /// The line and the column of its pattern, both from 1.
    #[must_use]
    pub fn pattern_place(&self) -> Option<(usize, usize)> {
        self.pattern.as_ref().map(|(_, place)| *place)
    }

    /// The line and the column of its rate, both from 1.
    #[must_use]
    pub fn rate_place(&self) -> Option<(usize, usize)> {
        self.rate.as_ref().map(|(_, place)| *place)
    }
}

fn sizes(source: Source<'_>, value: &Value<'_>) -> Result<Sizes> {
    let expected = "a size, a list, { from = 60, to = 1514 }, or text such as \"imix\"";
    let number = |value: &Value<'_>| source.number(value, SMALLEST.into()..=LARGEST.into());
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(_) => number(value)?.to_string(),
        DeValue::Array(list) if list.is_empty() => {
            return Err(source.error(value.span(), "this list is empty", "expected one size at least"));
        }
        DeValue::Array(list) => {
            let sizes = list.iter().map(|size| number(size).map(|size| size.to_string()));
            sizes.collect::<Result<Vec<_>>>()?.join(",")
        }
        DeValue::Table(table) => range(source, value, table)?,
        _ => return Err(source.wrong_type(value, expected)),
    };
    text.parse().map_err(|error| match error {
        Error::Size { cause, .. } => source.error(value.span(), cause, format!("expected {expected}")),
        other => other,
    })
}

/// A range of sizes in the text that [`Sizes`] reads.
fn range(source: Source<'_>, value: &Value<'_>, table: &DeTable<'_>) -> Result<String> {
    source.only(table, &["from", "to", "step"])?;
    let bound = |key| {
        let missing = || source.error(value.span(), format!("these sizes have no {key}"), "expected from and to");
        source.word(get(table, key).ok_or_else(missing)?, SMALLEST.into()..=LARGEST.into())
    };
    let (from, to) = (bound("from")?, bound("to")?);
    if from > to {
        let at = get(table, "from").map_or(value.span(), |from| from.span());
        return Err(source.error(at, "from is above to", "expected the smaller size as from"));
    }
    let step = match get(table, "step") {
        Some(step) => match source.word(step, 0..=LARGEST.into())? {
            0 => return Err(source.error(step.span(), "a step of 0 never moves", "expected 1 or more")),
            step => step,
        },
        None => 1,
    };
    Ok(format!("{from}-{to}/{step}"))
}

fn payload(source: Source<'_>, value: &Value<'_>) -> Result<Payload> {
    if let DeValue::Table(table) = value.get_ref() {
        source.only(table, &["bytes"])?;
        let bytes = get(table, "bytes").map_or(Ok(Vec::new()), |bytes| source.bytes(bytes))?;
        let empty = || source.error(value.span(), "these are no bytes", "expected { bytes = \"de ad be ef\" }");
        return if bytes.is_empty() { Err(empty()) } else { Ok(Payload::Bytes(bytes)) };
    }
    match source.text(value, "\"zero\", \"increment\", \"random\" or { bytes = \"de ad be ef\" }")? {
        "zero" => Ok(Payload::Bytes(vec![0])),
        "increment" => Ok(Payload::Increment),
        "random" => Ok(Payload::Random),
        other => Err(source.unknown("payload", other, value.span(), &PAYLOADS)),
    }
}
