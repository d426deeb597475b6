//! The text of a definition: its tables and values, and errors that point at them.

use crate::error::{Error, Result};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of the longest text.
const LONGEST: usize = 1 << 20;
/// A name may have been meant if it has at most one error in so many characters, or one at all.
const CHARACTERS_AN_ERROR: usize = 3;
/// Columns of a snippet.
const WIDTH: usize = 120;

pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// A text, and the name of its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl<'a> Source<'a> {
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        if self.text.len() > LONGEST {
            return Err(self.error(0..0, "the file is longer than 1 MiB", "name a file of stream definitions"));
        }
        DeTable::parse(self.text).map_err(|error| {
            let (message, expected) = error.message().split_once('\n').unwrap_or((error.message(), ""));
            // The parser lists what it expected as a sentence of its own, or leaves it out.
            let expected = if expected.is_empty() { "write TOML 1.1" } else { expected };
            let (message, more) = message.split_once(", expected").map_or((message, None), |(a, b)| (a, Some(b)));
            let expected = more.map_or(expected.to_owned(), |more| format!("expected {}", more.trim()));
            self.error(error.span().unwrap_or(0..0), message, &expected)
        })
    }

    /// The line and the column, in characters, both from 1, of a place in bytes of the text.
    pub(crate) fn place(&self, start: usize) -> (usize, usize) {
        let before = &self.text[..floor(self.text, start)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// An error at a place, in bytes of the text.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>, expected: impl Into<String>) -> Error {
        let (message, expected) = (one_line(&message.into()), one_line(&expected.into()));
        let start = floor(self.text, span.start);
        let end = floor(self.text, span.end).max(start);
        let (line, column) = self.place(start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let text = self.text[line_start..line_end].trim_end_matches('\r');
        let marked = (start - line_start).min(text.len())..(end.min(line_end) - line_start).min(text.len());
        let snippet = Snippet::source(text)
            .line_start(line)
            .annotation(AnnotationKind::Primary.span(marked).label(expected.as_str()));
        let report = [Level::ERROR.no_name().primary_title("").element(snippet)];
        let drawn = Renderer::plain().term_width(WIDTH).render(&report);
        // The title is the line above, which has the place too.
        let snippet =
            drawn.lines().skip_while(|line| !line.trim_start().starts_with('|')).collect::<Vec<_>>().join("\n");
        Error::Definition { file: self.name.to_owned(), line, column, message, expected, snippet }
    }

    /// A value of another type than wanted.
    pub(crate) fn wrong_type(&self, value: &Value<'_>, expected: &str) -> Error {
        let found = match value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.error(value.span(), format!("this is {found}"), format!("expected {expected}"))
    }

    /// Refuses keys that are not known.
    pub(crate) fn only(&self, table: &DeTable<'_>, known: &[&str]) -> Result<()> {
        match table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) {
            Some(key) => Err(self.unknown("key", key.get_ref(), key.span(), known)),
            None => Ok(()),
        }
    }

    /// A name that is not known, with the near one.
    pub(crate) fn unknown(&self, what: &str, found: &str, span: Range<usize>, known: &[&str]) -> Error {
        let shown: String = found.chars().take(40).collect();
        let near = known.iter().map(|name| (strsim::damerau_levenshtein(name, &shown), name)).min();
        let near = near.filter(|(errors, name)| *errors <= (name.len() / CHARACTERS_AN_ERROR).max(1));
        let expected = match near {
            Some((_, name)) => format!("did you mean {name:?}?"),
            None => format!("known are {}", known.join(", ")),
        };
        self.error(span, format!("unknown {what} {shown:?}"), expected)
    }

    pub(crate) fn text<'v>(&self, value: &'v Value<'_>, expected: &str) -> Result<&'v str> {
        value.get_ref().as_str().ok_or_else(|| self.wrong_type(value, expected))
    }

    pub(crate) fn table<'v>(&self, value: &'v Value<'a>, expected: &str) -> Result<&'v DeTable<'a>> {
        value.get_ref().as_table().ok_or_else(|| self.wrong_type(value, expected))
    }

    pub(crate) fn array<'v>(&self, value: &'v Value<'a>, expected: &str) -> Result<&'v [Value<'a>]> {
        value.get_ref().as_array().map(|array| &array[..]).ok_or_else(|| self.wrong_type(value, expected))
    }

    /// A number of a range; `true` and `false` are 1 and 0.
    pub(crate) fn number(&self, value: &Value<'_>, range: RangeInclusive<u128>) -> Result<u128> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        let number = match value.get_ref() {
            DeValue::Boolean(is) => Some(u128::from(*is)),
            DeValue::Integer(integer) => u128::from_str_radix(integer.as_str(), integer.radix()).ok(),
            _ => return Err(self.wrong_type(value, &expected)),
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.error(value.span(), "this number is out of range", format!("expected {expected}")))
    }

    /// A number below 2^64.
    pub(crate) fn word(&self, value: &Value<'_>, range: RangeInclusive<u64>) -> Result<u64> {
        let number = self.number(value, (*range.start()).into()..=(*range.end()).into())?;
        Ok(u64::try_from(number).unwrap_or(*range.end()))
    }

    pub(crate) fn is_true(&self, value: Option<&Value<'_>>) -> Result<bool> {
        let Some(value) = value else { return Ok(false) };
        value.get_ref().as_bool().ok_or_else(|| self.wrong_type(value, "true or false"))
    }

    /// Bytes in hexadecimal digits, with blanks and colons or without.
    pub(crate) fn bytes(&self, value: &Value<'_>) -> Result<Vec<u8>> {
        let expected = "bytes in hexadecimal, such as \"de ad be ef\"";
        let text = self.text(value, expected)?;
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
        let bytes = digits.chunks(2).map(|pair| match pair {
            [high, low] => Some(u8::try_from(high.to_digit(16)? << 4 | low.to_digit(16)?).unwrap_or(0)),
            _ => None,
        });
        let bytes = bytes.collect::<Option<Vec<u8>>>();
        bytes.ok_or_else(|| self.error(value.span(), "these are no bytes", format!("expected {expected}")))
    }
}

/// The value of a key.
pub(crate) fn get<'v, 'a>(table: &'v DeTable<'a>, key: &str) -> Option<&'v Value<'a>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

/// The start of the character that a byte belongs to.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ")
}
