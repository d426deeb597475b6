//! Frame sizes in their order.

use crate::error::{Error, Result};
use std::str::FromStr;

/// Bytes of the smallest frame, without FCS.
pub const SMALLEST: u16 = 60;
/// Bytes of the largest frame, without FCS.
pub const LARGEST: u16 = 9216;
/// Frames after which sizes repeat, at most.
pub(crate) const LONGEST_CYCLE: usize = 1 << 16;
/// Bytes of the frame check sequence, which mixes are defined with.
const FCS: u16 = 4;
/// CSIT's IMIX, with FCS.
const IMIX: [(u16, usize); 3] = [(64, 28), (570, 16), (1518, 4)];
/// The simple IMIX of 7:4:1, with FCS.
const SIMPLE_IMIX: [(u16, usize); 3] = [(64, 7), (570, 4), (1518, 1)];

/// Sizes of frames without FCS, in bytes, in the order in which they are sent, over and over.
///
/// In text: one size, a list (`60, 590`), ranges (`60-1514`, with a step `60-1514/2`), weights (`60*7, 566*4, 1514`), `imix` (CSIT's: 28
/// frames of 64 bytes with FCS, 16 of 570, 4 of 1,518) or `simple-imix` (7:4:1). Frames of a mix are spread evenly.
///
/// ```
/// use stream::Sizes;
///
/// let sizes: Sizes = "60*2, 1514".parse()?;
/// assert_eq!(sizes.cycle(), [60, 1514, 60]);
/// assert_eq!("60-62".parse::<Sizes>()?.cycle(), [60, 61, 62]);
/// assert_eq!("imix".parse::<Sizes>()?.cycle().len(), 12);
/// assert_eq!("59".parse::<Sizes>().unwrap_err().to_string(), "size \"59\": 59 is not from 60 to 9216 bytes (without FCS)");
/// # Ok::<(), stream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    cycle: Vec<u16>,
}

impl Sizes {
    /// Frames of one size.
    ///
    /// # Errors
    ///
    /// When it is not from 60 to 9,216 bytes.
    pub fn constant(size: u16) -> Result<Self> {
        size.to_string().parse()
    }

    /// Frames of 60 bytes.
    pub(crate) fn of_smallest() -> Self {
        Self { cycle: vec![SMALLEST] }
    }

    /// All sizes until they repeat, 65,536 at most and 1 at least.
    #[must_use]
    pub fn cycle(&self) -> &[u16] {
        &self.cycle
    }

    /// The smallest size.
    #[must_use]
    pub fn smallest(&self) -> usize {
        self.cycle.iter().copied().min().unwrap_or(SMALLEST).into()
    }

    /// The largest size.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.cycle.iter().copied().max().unwrap_or(SMALLEST).into()
    }

    /// The mean size.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.cycle.iter().copied().map(f64::from).sum();
        sum / self.cycle.len() as f64
    }

    /// The size, if there is one only.
    #[must_use]
    pub fn only(&self) -> Option<u16> {
        let first = *self.cycle.first()?;
        self.cycle.iter().all(|size| *size == first).then_some(first)
    }

    /// Sizes of so many frames each, spread evenly.
    fn mix(parts: &[(u16, usize)]) -> std::result::Result<Self, String> {
        let divisor = parts.iter().fold(0, |divisor, (_, weight)| gcd(divisor, *weight)).max(1);
        let total = parts.iter().fold(0_usize, |total, (_, weight)| total.saturating_add(weight / divisor));
        if total == 0 || total > LONGEST_CYCLE {
            return Err(format!("weights sum up to {total}; write 1 to {LONGEST_CYCLE} in all"));
        }
        if parts.len() == total {
            return Ok(Self { cycle: parts.iter().map(|(size, _)| *size).collect() });
        }
        // Frame `k` of a size with weight `w` is due at (k + 1/2) / w of the cycle.
        let due = |(part, (size, weight)): (usize, &(u16, usize))| {
            let (size, weight) = (*size, weight / divisor);
            (0..weight).map(move |k| ((2 * k + 1) as f64 / weight as f64, part, size)).collect::<Vec<_>>()
        };
        let mut order: Vec<_> = parts.iter().enumerate().flat_map(due).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Ok(Self { cycle: order.into_iter().map(|(_, _, size)| size).collect() })
    }
}

impl FromStr for Sizes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let with_fcs = |parts: [(u16, usize); 3]| Self::mix(&parts.map(|(size, weight)| (size - FCS, weight)));
        let parsed = match text.trim() {
            "imix" => with_fcs(IMIX),
            "simple-imix" => with_fcs(SIMPLE_IMIX),
            list => parts(list).and_then(|parts| Self::mix(&parts)),
        };
        parsed.map_err(|cause| Error::Size { text: text.chars().take(80).collect(), cause })
    }
}

/// Sizes and weights of a list in text.
fn parts(list: &str) -> std::result::Result<Vec<(u16, usize)>, String> {
    let mut parts = Vec::new();
    for item in list.split(',') {
        let (sizes, weight) = item.split_once('*').unwrap_or((item, "1"));
        let weight = match weight.trim().parse() {
            Ok(0) | Err(_) => return Err(format!("the weight {:?} is no number above 0", shown(weight))),
            Ok(weight) => weight,
        };
        let (range, step) = sizes.split_once('/').unwrap_or((sizes, "1"));
        let step = step.trim().parse::<usize>().map_err(|_| format!("the step {:?} is no number", shown(step)))?;
        if step == 0 {
            return Err("a step of 0 never reaches the last size".to_owned());
        }
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (size(from)?, size(to)?);
        if from > to {
            return Err(format!("{from} is above {to}; write the smaller size first"));
        }
        parts.extend((from..=to).step_by(step).map(|size| (size, weight)));
        if parts.len() > LONGEST_CYCLE {
            return Err(format!("there are more than {LONGEST_CYCLE} sizes"));
        }
    }
    Ok(parts)
}

fn size(text: &str) -> std::result::Result<u16, String> {
    let known = "a size, a list (60, 590), a range (60-1514), weights (60*7, 590), imix or simple-imix";
    let size: u64 = text.trim().parse().map_err(|_| format!("{:?} is no size; write {known}", shown(text)))?;
    let good = u16::try_from(size).ok().filter(|size| (SMALLEST..=LARGEST).contains(size));
    good.ok_or_else(|| format!("{size} is not from {SMALLEST} to {LARGEST} bytes (without FCS)"))
}

fn shown(text: &str) -> String {
    text.trim().chars().take(20).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
