//! A frame's headers one behind the other: constant bytes, fields with their places, and checksums with what they cover.

use crate::error::Result;
use crate::protocol::{Default, Field as HeaderField, GRE_OPTIONS, PROTOCOLS, Protocol};
use crate::source::{Source, Value, get};
use crate::values::{Spec, Values};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Headers of a frame, at most.
const MOST_LAYERS: usize = 64;

/// Bits of a frame: `width` bytes at `at`, in which a value stands `shift` bits up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) shift: usize,
    /// Bits of the value.
    pub(crate) bits: usize,
}

impl Place {
    fn of(header: usize, bit: usize, bits: usize) -> Self {
        let (first, end) = (bit / 8, (bit + bits).div_ceil(8));
        Self { at: header + first, width: end - first, shift: 8 * end - bit - bits, bits }
    }

    pub(crate) fn end(self) -> usize {
        self.at + self.width
    }

    /// The first bit and the one behind the last, counted from the frame's start.
    pub(crate) fn span(self) -> Range<usize> {
        let end = 8 * self.end() - self.shift;
        end - self.bits..end
    }

    /// The bits of the value in the place's bytes.
    pub(crate) fn mask(self) -> u64 {
        (u64::MAX >> (64 - self.bits)) << self.shift
    }

    /// Writes a value into the bytes of a frame.
    pub(crate) fn write(self, frame: &mut [u8], value: u64) {
        let (bytes, mask) = ((value << self.shift).to_be_bytes(), self.mask().to_be_bytes());
        let from = bytes.len() - self.width;
        for (byte, (new, mask)) in frame[self.at..self.end()].iter_mut().zip(bytes[from..].iter().zip(&mask[from..])) {
            *byte = *byte & !mask | new & mask;
        }
    }
}

/// A field of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) values: Values,
    pub(crate) flow: bool,
    /// The definition has it, so that it is not as it is by default.
    pub(crate) given: bool,
    /// Where it stands in the definition.
    pub(crate) text: Range<usize>,
}

/// A checksum that is computed.
#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) at: usize,
    /// The first byte that it covers, at an even offset.
    pub(crate) from: usize,
    /// The end of what it covers, if not that of the frame.
    pub(crate) to: Option<usize>,
    /// Addresses and protocol of its pseudo-header.
    pub(crate) pseudo: Option<(Range<usize>, u8)>,
    /// 0 means that there is none, and is written as 0xffff.
    pub(crate) never_zero: bool,
}

/// A header.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) protocol: Protocol,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Headers and their fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// Constant bytes of all headers; fields and checksums are 0.
    pub(crate) bytes: Vec<u8>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) fields: Vec<Field>,
    /// From the outermost to the innermost.
    pub(crate) checksums: Vec<Checksum>,
}

/// A header as it is written: its protocol, and its settings.
struct Written<'v, 'a> {
    protocol: Protocol,
    span: Range<usize>,
    settings: Option<&'v Value<'a>>,
}

impl Layout {
    /// Reads an array of headers.
    pub(crate) fn parse(source: Source<'_>, frame: &Value<'_>) -> Result<Self> {
        let expected = "an array of headers, such as [\"ethernet\", { ipv4 = { ttl = 1 } }, \"udp\"]";
        let items = source.array(frame, expected)?;
        let written = items.iter().map(|item| Written::parse(source, item)).collect::<Result<Vec<_>>>()?;
        let Some(first) = written.first() else {
            return Err(source.error(frame.span(), "this frame is empty", format!("expected {expected}")));
        };
        if !matches!(first.protocol, Protocol::Ethernet | Protocol::Raw) {
            let message = format!("a frame cannot begin with {}", first.protocol.name());
            return Err(source.error(first.span.clone(), message, "expected ethernet or raw"));
        }
        if written.len() > MOST_LAYERS {
            return Err(source.error(
                frame.span(),
                "this frame has too many headers",
                format!("expected at most {MOST_LAYERS}"),
            ));
        }
        let mut layout = Self::default();
        for (at, header) in written.iter().enumerate() {
            layout.add(source, header, written.get(at + 1))?;
        }
        Ok(layout)
    }

    fn add(&mut self, source: Source<'_>, header: &Written<'_, '_>, next: Option<&Written<'_, '_>>) -> Result<()> {
        let Written { protocol, span, settings } = header;
        let linked = self.link(source, *protocol, next)?;
        let from = self.bytes.len();
        if *protocol == Protocol::Raw {
            let bytes = settings.map_or(Ok(Vec::new()), |bytes| source.bytes(bytes))?;
            self.bytes.extend(bytes);
            self.layers.push(Layer { protocol: *protocol, from, to: self.bytes.len() });
            return Ok(());
        }
        let empty = DeTable::new();
        let table = settings.map_or(Ok(&empty), |settings| source.table(settings, "a table of the header's fields"))?;
        self.bytes.extend_from_slice(protocol.header());
        let mut fields = protocol.fields().to_vec();
        if *protocol == Protocol::Gre {
            fields.extend(self.gre_options(source, from, table)?);
        }
        let mut known: Vec<&str> = protocol.fields().iter().map(|field| field.name).collect();
        match protocol {
            Protocol::Vlan => known.push("tpid"),
            Protocol::Gre => known.extend(GRE_OPTIONS.iter().map(|(_, field)| field.name)),
            _ => {}
        }
        source.only(table, &known)?;
        self.layers.push(Layer { protocol: *protocol, from, to: self.bytes.len() });
        for field in &fields {
            self.add_field(source, from, *field, get(table, field.name), linked, span)?;
        }
        Ok(())
    }

    /// What the header's field for the next one holds.
    fn link(&self, source: Source<'_>, protocol: Protocol, next: Option<&Written<'_, '_>>) -> Result<u64> {
        let Some(next) = next else { return Ok(protocol.link(None).unwrap_or(0)) };
        let linked = protocol.link(Some(next.protocol)).filter(|_| protocol != Protocol::Raw);
        let Some(linked) = linked else {
            let message = format!("{} cannot follow {}", next.protocol.name(), protocol.name());
            let followers = protocol.followers().join(", ");
            let expected = if followers.is_empty() { "the end of the frame" } else { &followers };
            return Err(source.error(next.span.clone(), message, format!("expected {expected}")));
        };
        // The type of a tag stands before it.
        let tpid = next
            .settings
            .filter(|_| next.protocol == Protocol::Vlan)
            .and_then(|settings| settings.get_ref().as_table());
        tpid.and_then(|table| get(table, "tpid")).map_or(Ok(linked), |tpid| source.word(tpid, 0..=0xFFFF))
    }

    /// Appends the optional words of a GRE header that are asked for.
    fn gre_options(&mut self, source: Source<'_>, header: usize, table: &DeTable<'_>) -> Result<Vec<HeaderField>> {
        let mut fields = Vec::new();
        for (flag, field) in GRE_OPTIONS {
            let Some(value) = get(table, field.name) else { continue };
            if field.default == Default::Checksum && value.get_ref().as_bool() == Some(false) {
                return Err(source.error(
                    value.span(),
                    "there is no such checksum",
                    "expected true, or no checksum at all",
                ));
            }
            fields.push(HeaderField { bit: 8 * (self.bytes.len() - header), ..field });
            self.bytes[header] |= flag;
            self.bytes.extend([0; 4]);
        }
        Ok(fields)
    }

    fn add_field(
        &mut self,
        source: Source<'_>,
        header: usize,
        field: HeaderField,
        value: Option<&Value<'_>>,
        linked: u64,
        layer: &Range<usize>,
    ) -> Result<()> {
        let place = |bit, bits| Place::of(header, bit, bits);
        // `true` asks for the checksum that is computed.
        let given = value.filter(|value| field.default != Default::Checksum || value.get_ref().as_bool() != Some(true));
        let text = given.map_or(layer.clone(), |value| value.span());
        let is_given = given.is_some();
        let spec = match (given, field.default) {
            (Some(value), _) => Spec::parse(source, value, field.kind, field.bits)?,
            (None, Default::Value(value)) => Spec::constant(value.into()),
            (None, Default::Next) => Spec::constant(linked.into()),
            (None, Default::Wide(high, low)) => Spec::constant(u128::from(high) << 64 | u128::from(low)),
            (None, Default::Length(from)) => {
                let (place, values) = (place(field.bit, field.bits), Values::Size { minus: header + from });
                let name = self.name(field.name);
                self.fields.push(Field { name, place, values, flow: false, given: false, text });
                return Ok(());
            }
            (None, Default::Checksum) => {
                self.add_checksum(source, header, place(field.bit, field.bits).at, layer)?;
                return Ok(());
            }
        };
        let (name, flow) = (self.name(field.name), spec.flow);
        let mut push = |bit, bits, values| {
            let (name, text) = (name.clone(), text.clone());
            self.fields.push(Field { name, place: place(bit, bits), values, flow, given: is_given, text });
        };
        if field.bits <= 64 {
            push(field.bit, field.bits, spec.wide.low());
        } else if let Some((high, low)) = spec.wide.halves() {
            push(field.bit, 64, high);
            push(field.bit + 64, 64, low);
        } else {
            let message = "these addresses are not all of one /64";
            return Err(source.error(text, message, "expected from and to of one /64, or a list"));
        }
        Ok(())
    }

    /// A field's name with that of its header, as in `ipv4 source`.
    fn name(&self, field: &str) -> String {
        format!("{} {field}", self.layers.last().map_or("", |layer| layer.protocol.name()))
    }

    fn add_checksum(&mut self, source: Source<'_>, from: usize, at: usize, layer: &Range<usize>) -> Result<()> {
        let Some((last, before)) = self.layers.split_last() else { return Ok(()) };
        let to = (last.protocol == Protocol::Ipv4).then_some(last.to);
        let mut pseudo = None;
        if last.protocol.has_pseudo_header() {
            let ip = before.last().and_then(|ip| match ip.protocol {
                Protocol::Ipv4 => Some(ip.from + 12..ip.from + 20),
                Protocol::Ipv6 => Some(ip.from + 8..ip.from + 40),
                _ => None,
            });
            let Some(ip) = ip else {
                return Err(source.error(
                    layer.clone(),
                    "this checksum needs an IP header",
                    "expected ipv4 or ipv6 before",
                ));
            };
            pseudo = Some((ip, last.protocol.ip_number().unwrap_or(0)));
        }
        let never_zero = last.protocol == Protocol::Udp;
        self.checksums.push(Checksum { at, from, to, pseudo, never_zero });
        Ok(())
    }
}

impl<'v, 'a> Written<'v, 'a> {
    fn parse(source: Source<'_>, item: &'v Value<'a>) -> Result<Self> {
        let (name, span, settings) = match item.get_ref() {
            DeValue::String(name) => (name.as_ref(), item.span(), None),
            DeValue::Table(table) => match table.iter().next().filter(|_| table.len() == 1) {
                Some((name, settings)) => (name.get_ref().as_ref(), name.span(), Some(settings)),
                None => {
                    let expected = "expected one header for each table, such as { udp = { source = 7 } }";
                    return Err(source.error(item.span(), format!("this table has {} keys", table.len()), expected));
                }
            },
            _ => return Err(source.wrong_type(item, "a header, such as \"udp\" or { udp = { source = 7 } }")),
        };
        let known = PROTOCOLS.map(|(name, _)| name);
        let found = PROTOCOLS.iter().find(|(known, _)| *known == name);
        let protocol = found.ok_or_else(|| source.unknown("header", name, span.clone(), &known))?.1;
        Ok(Self { protocol, span, settings })
    }
}
