//! Elements of HTML and SVG. Whatever is no name of an element or attribute is escaped.

use std::fmt::{Display, Write as _};

/// Characters of one text that are shown; what is longer is cut.
const LONGEST: usize = 4_000;

/// Elements that were written so far.
#[derive(Debug, Default)]
pub(crate) struct Markup(String);

/// Names of attributes, and their values.
pub(crate) type Attributes<'a> = [(&'static str, &'a dyn Display)];

impl Markup {
    /// Writes an element with what `inside` writes in it.
    pub(crate) fn within(&mut self, name: &'static str, attributes: &Attributes<'_>, inside: impl FnOnce(&mut Self)) {
        self.begin(name, attributes);
        self.0.push('>');
        inside(self);
        self.0 += "</";
        self.0 += name;
        self.0.push('>');
    }

    /// Writes an element with a text in it.
    pub(crate) fn leaf(&mut self, name: &'static str, attributes: &Attributes<'_>, text: impl Display) {
        self.within(name, attributes, |inside| inside.text(text));
    }

    /// Writes an element without content.
    pub(crate) fn empty(&mut self, name: &'static str, attributes: &Attributes<'_>) {
        self.begin(name, attributes);
        self.0 += "/>";
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: impl Display) {
        escape(&mut self.0, &text.to_string());
    }

    /// Writes a style sheet, which has no `<` and no `&`.
    pub(crate) fn style(&mut self, sheet: &'static str) {
        debug_assert!(!sheet.contains(['<', '&']));
        self.0 += "<style>";
        self.0 += sheet;
        self.0 += "</style>";
    }

    /// Returns what was written.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    fn begin(&mut self, name: &'static str, attributes: &Attributes<'_>) {
        self.0.push('<');
        self.0 += name;
        for (attribute, value) in attributes {
            let _ = write!(self.0, " {attribute}=\"");
            escape(&mut self.0, &value.to_string());
            self.0.push('"');
        }
    }
}

/// Writes a text so that it is nothing else: without characters that XML does not have or that change the direction of what follows.
fn escape(out: &mut String, text: &str) {
    for (nth, letter) in text.chars().enumerate() {
        match letter {
            _ if nth == LONGEST => return out.push('…'),
            '&' => *out += "&amp;",
            '<' => *out += "&lt;",
            '>' => *out += "&gt;",
            '"' => *out += "&quot;",
            '\'' => *out += "&#39;",
            '\n' => out.push('\n'),
            letter if letter.is_control() => out.push('?'),
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('?'),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            letter => out.push(letter),
        }
    }
}

/// A text of at most so many characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
