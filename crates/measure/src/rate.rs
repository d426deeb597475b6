//! Rates: frames a second, bits a second of a layer, shares of a line.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// Bytes of a frame on the wire besides those in its buffer: check sequence 4 (layer 2); preamble and delimiter 8, gap 12
/// (layer 1; IEEE 802.3, 3.1.1 and 4.4.2).
const CHECK_SEQUENCE: u128 = 4;
const PREAMBLE_AND_GAP: u128 = 20;

/// A rate as a user asks for it.
///
/// ```
/// use measure::Load;
///
/// let line = Some(10_000_000_000);
/// for (text, pps) in [("1.5M", 1_500_000.0), ("10kpps", 10_000.0), ("100%", 14_880_952.0), ("10G:L1", 14_880_952.0),
///     ("5.12Gbit/s L2", 10_000_000.0)]
/// {
///     assert_eq!(text.parse::<Load>()?.rate(60, line)?.per_second().floor(), pps);
/// }
/// # Ok::<(), measure::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Millionths of a frame a second.
    Frames(u64),
    /// Millionths of a bit a second of layer 1, with preamble and gap.
    Layer1(u128),
    /// Millionths of a bit a second of layer 2, with check sequence.
    Layer2(u128),
    /// Millionths of a percent of the line.
    Percent(u64),
}

/// Frames a second, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    frames: u128,
    seconds: u128,
}

impl Load {
    /// Returns the rate for frames of `size` bytes (without check sequence) on a line of so many bit/s, if it has a
    /// speed.
    ///
    /// # Errors
    ///
    /// If it is next to nothing, or above the line, or a share of a line without speed.
    pub fn rate(self, size: usize, line_bps: Option<u64>) -> Result<Rate, Error> {
        self.rate_of(size as u128 * MILLION, line_bps)
    }

    /// Returns the rate for frames of several sizes, `mean` bytes on average, as [`Self::rate`] does.
    ///
    /// # Errors
    ///
    /// As for [`Self::rate`].
    pub fn rate_of_mix(self, mean: f64, line_bps: Option<u64>) -> Result<Rate, Error> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are below 2^16; saturates")]
        let millionths = (mean.clamp(0.0, 65_535.0) * 1e6).round() as u128;
        self.rate_of(millionths, line_bps)
    }

    /// For a size in millionths of a byte.
    fn rate_of(self, size: u128, line_bps: Option<u64>) -> Result<Rate, Error> {
        // Millionths of the bits of a frame.
        let layer2 = (size + CHECK_SEQUENCE * MILLION) * 8;
        let layer1 = layer2 + PREAMBLE_AND_GAP * MILLION * 8;
        let (frames, seconds) = match self {
            Self::Frames(millionths) => (u128::from(millionths), MILLION),
            Self::Layer1(millionths) => (millionths, layer1),
            Self::Layer2(millionths) => (millionths, layer2),
            Self::Percent(millionths) => {
                let line = u128::from(line_bps.ok_or(Error::NoLine)?);
                (u128::from(millionths) * line, layer1.saturating_mul(100))
            }
        };
        let rate = Rate { frames, seconds };
        if frames.saturating_mul(MILLION) < seconds {
            return Err(Error::Nothing);
        }
        match line_bps {
            Some(line_bps)
                if frames
                    .checked_mul(layer1)
                    .is_none_or(|bits| bits > seconds.saturating_mul(u128::from(line_bps) * MILLION)) =>
            {
                Err(Error::AboveLine {
                    asked: u64::try_from(frames / seconds).unwrap_or(u64::MAX),
                    line_bps,
                    most: u64::try_from(u128::from(line_bps) * MILLION / layer1).unwrap_or(u64::MAX),
                    size: usize::try_from(size / MILLION).unwrap_or(usize::MAX),
                })
            }
            _ => Ok(rate),
        }
    }
}

const MILLION: u128 = 1_000_000;
/// The highest number in a rate: of bits a second, 10 Pbit/s.
const HIGHEST: u128 = 10_000_000_000_000_000;

impl Rate {
    /// Returns the frames a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn per_second(self) -> f64 {
        self.frames as f64 / self.seconds as f64
    }

    /// Returns one of so many equal parts of it; of none, all.
    #[must_use]
    pub fn part(self, of: u16) -> Self {
        Self { seconds: self.seconds.saturating_mul(of.max(1).into()), ..self }
    }

    /// Returns the ticks between two frames as fixed-point number of 64 and 64 bits, for a counter of `hz` ticks a second. It is
    /// rounded up, so that what is due at the end of a time is not due within it; at least 2^-64.
    #[must_use]
    pub fn interval(self, hz: u64) -> u128 {
        let (frames, seconds) = reduced(self.frames, self.seconds);
        // Each is below 2^90 or so; long division keeps the 64 bits of the fraction.
        let ticks = u128::from(hz) * seconds;
        let (whole, mut rest) = (ticks / frames, ticks % frames);
        let mut interval = whole;
        for _ in 0..64 {
            rest <<= 1;
            interval = interval << 1 | u128::from(rest >= frames);
            if rest >= frames {
                rest -= frames;
            }
        }
        interval.saturating_add(u128::from(rest > 0)).max(1)
    }
}

fn reduced(a: u128, b: u128) -> (u128, u128) {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1), b / x.max(1))
}

impl FromStr for Load {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Syntax { text: text.chars().take(40).collect() };
        if let Some(percent) = text.strip_suffix('%') {
            let millionths = decimal(percent).filter(|_| !percent.ends_with(char::is_alphabetic)).ok_or_else(wrong)?;
            return u64::try_from(millionths).map(Self::Percent).map_err(|_| wrong());
        }
        let (number, layer) = match text.split_once(':').or_else(|| text.split_once(' ')) {
            Some((number, layer)) => (number.strip_suffix("bit/s").unwrap_or(number), Some(layer)),
            None => (text.strip_suffix("pps").unwrap_or(text), None),
        };
        let millionths = decimal(number).ok_or_else(wrong)?;
        match layer {
            None => u64::try_from(millionths).map(Self::Frames).map_err(|_| wrong()),
            Some("L1" | "l1") => Ok(Self::Layer1(millionths)),
            Some("L2" | "l2") => Ok(Self::Layer2(millionths)),
            Some(_) => Err(wrong()),
        }
    }
}

/// Millionths of a number such as `1500`, `1.5M`.
fn decimal(text: &str) -> Option<u128> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 1_000),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |digits: &str| (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let number = (whole.parse::<u128>().ok()? * scale + fraction.parse::<u128>().ok()?) * unit;
    (number <= HIGHEST * scale).then(|| number * MILLION / scale)
}

impl fmt::Display for Load {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames(millionths) => write!(f, "{}", *millionths as f64 / 1e6),
            Self::Layer1(millionths) => write!(f, "{}:L1", *millionths as f64 / 1e6),
            Self::Layer2(millionths) => write!(f, "{}:L2", *millionths as f64 / 1e6),
            Self::Percent(millionths) => write!(f, "{}%", *millionths as f64 / 1e6),
        }
    }
}
