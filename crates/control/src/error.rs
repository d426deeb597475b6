//! What is wrong with a line.

use crate::LONGEST_LINE;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The line is longer than [`LONGEST_LINE`] bytes; it was left out up to its end.
    #[error("a line is longer than {LONGEST_LINE} bytes; send a request on a line of its own")]
    TooLong,
    /// The line is not UTF-8.
    #[error("a line is not UTF-8; send JSON as UTF-8")]
    NotUtf8,
    /// The line holds nothing.
    #[error("a line is empty; send an object such as {{\"do\":\"get\"}}")]
    Empty,
    /// The line is no request.
    #[error("{message}; send an object such as {{\"do\":\"get\"}}")]
    Syntax {
        /// What is wrong, in the words of the parser.
        message: String,
    },
    /// The other side speaks HTTP: a browser may have been told to connect, and what follows may be its page's words.
    #[error("this is no web server; send an object of JSON on each line")]
    Http,
    /// A number is out of its range.
    #[error("{field}: {given} is not from {least} to {most}")]
    Range {
        /// What it is called.
        field: &'static str,
        /// What was given.
        given: String,
        /// The least that is allowed.
        least: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// A line of a script is wrong.
    #[error("{line}: {error}")]
    Script {
        /// Its number, from 1 on.
        line: usize,
        /// What is wrong with it.
        error: Box<Error>,
    },
}

impl Error {
    /// Whether nothing more of what comes is to be looked at.
    #[must_use]
    pub fn is_of_another_protocol(&self) -> bool {
        *self == Self::Http
    }

    /// A sentence of one line about what a parser of JSON has said.
    pub(crate) fn syntax(error: &serde_json::Error) -> Self {
        let message = error.to_string();
        // Each request has one line.
        let message = message.replace(" at line 1 column ", " at byte ");
        let message: String =
            message.chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(200).collect();
        Self::Syntax { message }
    }
}
