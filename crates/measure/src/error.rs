//! Errors of measuring.

/// Why something cannot be measured as asked.
///
/// ```
/// use measure::{Kind, TagWriter};
///
/// let error = TagWriter::new(Kind::Full, 0, 50, 42, None).unwrap_err();
/// assert_eq!(error.to_string(), "50 bytes have no room for 42 of headers and 14 of tag; take 56 or more");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A frame has no room for headers and tag. Sizes are in bytes, without check sequence.
    #[error("{size} bytes have no room for {headers} of headers and {tag} of tag; take {} or more", headers.saturating_add(*tag))]
    TooSmall {
        /// The frame.
        size: usize,
        /// Its headers.
        headers: usize,
        /// Its tag.
        tag: usize,
    },
    /// Text is no rate.
    #[error(
        "{text:?} is no rate; write frames a second (1500, 1.5Mpps), bit/s of a layer (5G:L1, \"5Gbit/s L2\") or a share of the \
         line (12.5%)"
    )]
    Syntax {
        /// The text.
        text: String,
    },
    /// A rate is 0, or less than a frame in 1,000,000 s.
    #[error("a rate of nothing: no frame would ever be sent; write a larger one")]
    Nothing,
    /// A rate is a share of a line that has no speed.
    #[error("a share of the line, where the speed of the line is not known; give it with --line, such as --line 10G")]
    NoLine,
    /// A rate is above what a line carries.
    #[error(
        "{asked:.0} frames a second are above the line: {} Gbit/s carry {most:.0} frames of {size} bytes ({} with check \
         sequence) a second; ask for less, or for 100%",
        *line_bps as f64 / 1e9, size.saturating_add(4)
    )]
    AboveLine {
        /// Frames a second that were asked for, rounded.
        asked: u64,
        /// Bit/s of the line.
        line_bps: u64,
        /// Frames a second that the line carries, rounded down.
        most: u64,
        /// Bytes of a frame, without check sequence.
        size: usize,
    },
    /// A counter or a clock went backwards, or stood still.
    #[error("the time-stamp counter or the kernel's clock went backwards or stood still between two readings")]
    Backwards,
    /// A counter jumped against the kernel's clock.
    #[error("the time-stamp counter jumped by {ppm} ppm against the kernel's clock, so times of this run mean nothing")]
    Jumped {
        /// Change of its rate, in millionths.
        ppm: u64,
    },
}
