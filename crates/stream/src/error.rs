//! Errors of definitions, streams and captures.

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
///
/// ```
/// let error = stream::Definition::parse("web.toml", "[[stream]]\nsise = 60\n").unwrap_err();
/// let text = error.to_string();
/// assert!(text.starts_with("web.toml:2:1: unknown key \"sise\"; did you mean \"size\"?\n"), "{text}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A definition that says what cannot be. Shown as a line `FILE:LINE:COLUMN: MESSAGE; EXPECTED`, and below it the line of the file
    /// with the place marked.
    #[error("{file}:{line}:{column}: {message}; {expected}\n{snippet}")]
    Definition {
        /// The file's name, as it was given.
        file: String,
        /// The line number, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong.
        message: String,
        /// What was expected.
        expected: String,
        /// The line itself, with the place marked.
        snippet: String,
    },
    /// Frames have no room for their headers, their fields and the bytes reserved at their ends.
    #[error(
        "stream {stream}: frames of {size} bytes (without FCS) are too small; headers, fields and the {tail} bytes of the tag need {least}"
    )]
    TooSmall {
        /// The stream's name.
        stream: String,
        /// Bytes of its smallest frame, without FCS.
        size: usize,
        /// Bytes reserved at the end.
        tail: usize,
        /// Bytes of the smallest frame that has room.
        least: usize,
    },
    /// Sizes that are none, in text.
    #[error("size {text:?}: {cause}")]
    Size {
        /// The text.
        text: String,
        /// What is wrong, and what to write.
        cause: String,
    },
    /// Flows that cannot be.
    #[error("{cause}")]
    Flows {
        /// What is wrong, and what to do about it.
        cause: String,
    },
    /// A capture that cannot be read.
    #[error("capture {name}: {cause}")]
    Capture {
        /// The capture's name, as it was given.
        name: String,
        /// What is wrong, and what to do about it.
        cause: String,
    },
}
