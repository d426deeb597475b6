//! What a cable is to do to frames, as text.

use crate::Error;

/// What a cable does to the frames that one of its ends sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Knobs {
    /// Chances of a frame, 0 to 1.
    pub(crate) loss: f64,
    pub(crate) burst: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    /// Frames of a burst that is lost.
    pub(crate) burst_frames: u64,
    /// Seconds.
    pub(crate) delay: f64,
    pub(crate) jitter: f64,
    pub(crate) rate: Option<Rate>,
    /// Frames that wait for the rate, the one on its way among them.
    pub(crate) buffer: usize,
    /// Seconds for which all frames are lost after one for which the buffer had no room.
    pub(crate) recovery: f64,
    pub(crate) seed: u64,
    /// Frames that pass untouched at first.
    pub(crate) after: u64,
}

/// How fast frames leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Frames a second.
    Frames(f64),
    /// Bits a second, with so many bytes for a frame beside its own.
    Bits(f64, f64),
}

impl Rate {
    /// Seconds that a frame of so many bytes takes.
    pub(crate) fn seconds(self, len: usize) -> f64 {
        match self {
            Self::Frames(rate) => 1.0 / rate,
            Self::Bits(rate, more) => {
                let bytes = u32::try_from(len).map_or(f64::from(u32::MAX), f64::from);
                (bytes + more) * 8.0 / rate
            }
        }
    }
}

/// Most frames of a buffer or a burst.
pub(crate) const MOST_FRAMES: u64 = 65_536;
const BUFFER: u64 = 1024;
/// Bytes on the wire besides those in the buffer: check sequence (layer 2), and preamble, delimiter and gap (layer 1).
const LAYER2: f64 = 4.0;
const LAYER1: f64 = 24.0;

/// The keys and values of the knobs, as written.
#[derive(Debug, Default)]
pub(crate) struct Written<'s>([Option<&'s str>; KNOBS.len()]);

/// The keys. `rate` is one too, but also one of `wire=gen`.
pub(crate) const KNOBS: [&str; 10] =
    ["loss", "loss-burst", "duplicate", "reorder", "delay", "jitter", "buffer", "recovery", "seed", "after"];

impl<'s> Written<'s> {
    /// Where the value of a key goes; `None` if it is no knob.
    pub(crate) fn slot(&mut self, key: &str) -> Option<&mut Option<&'s str>> {
        let at = KNOBS.iter().position(|knob| *knob == key)?;
        Some(&mut self.0[at])
    }

    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// What the knobs and the rate of a `peer` say; `None` if there are none.
    pub(crate) fn knobs(&self, rate: Option<&str>) -> Result<Option<Knobs>, Error> {
        let [loss, burst, duplicate, reorder, delay, jitter, buffer, recovery, seed, after] = self.0;
        if !self.any() && rate.is_none() {
            return Ok(None);
        }
        for (key, value) in [("buffer", buffer), ("recovery", recovery)] {
            if let Some(value) = value.filter(|_| rate.is_none()) {
                return Err(bad(key, value, "it belongs to a rate, for which frames wait in a buffer"));
            }
        }
        let (burst, burst_frames) = match burst.map(|text| (text, text.split_once(':'))) {
            None => (0.0, 1),
            Some((text, parts)) => {
                let (chance, frames) = parts.ok_or_else(|| bad("loss-burst", text, BURST))?;
                let frames = whole("loss-burst", Some(frames), 1..=MOST_FRAMES, BURST)?.unwrap_or(1);
                (share("loss-burst", Some(chance))?, frames)
            }
        };
        let buffer = whole("buffer", buffer, 1..=MOST_FRAMES, "a whole number of frames from 1 to 65536")?;
        Ok(Some(Knobs {
            loss: share("loss", loss)?,
            burst,
            burst_frames,
            duplicate: share("duplicate", duplicate)?,
            reorder: share("reorder", reorder)?,
            delay: duration("delay", delay)?,
            jitter: duration("jitter", jitter)?,
            rate: rate.map(parse_rate).transpose()?,
            recovery: duration("recovery", recovery)?,
            buffer: usize::try_from(buffer.unwrap_or(BUFFER)).unwrap_or(usize::MAX),
            seed: whole("seed", seed, 0..=u64::MAX, "a whole number")?.unwrap_or(0),
            after: whole("after", after, 0..=u64::MAX, "a whole number of frames")?.unwrap_or(0),
        }))
    }
}

const BURST: &str = "CHANCE:FRAMES, such as 0.1%:20, with at most 65536 frames";

fn bad(key: &'static str, value: &str, allowed: &str) -> Error {
    Error::BadValue { key, value: value.to_owned(), allowed: allowed.to_owned() }
}

/// A number of digits and at most one point; the library takes signs, exponents and `inf` too.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (plain && text.bytes().any(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn whole(
    key: &'static str,
    value: Option<&str>,
    range: std::ops::RangeInclusive<u64>,
    allowed: &str,
) -> Result<Option<u64>, Error> {
    let Some(text) = value else { return Ok(None) };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| range.contains(number)).map(Some).ok_or_else(|| bad(key, text, allowed))
}

/// `0.01` or `1%`.
fn share(key: &'static str, value: Option<&str>) -> Result<f64, Error> {
    let Some(text) = value else { return Ok(0.0) };
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share.filter(|share| *share <= 1.0).ok_or_else(|| bad(key, text, "a share from 0 to 1, or 0% to 100%"))
}

/// `20us`.
fn duration(key: &'static str, value: Option<&str>) -> Result<f64, Error> {
    let Some(text) = value else { return Ok(0.0) };
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some(number(text.strip_suffix(unit)?)? * seconds));
    found.filter(|seconds| *seconds <= 10.0).ok_or_else(|| bad(key, text, "a number with ns, us, ms or s, at most 10s"))
}

/// `10k` frames a second, `1G:L1` or `1G:L2` bits a second.
fn parse_rate(text: &str) -> Result<Rate, Error> {
    const ALLOWED: &str =
        "frames a second such as 500 or 10k, or bit/s of a layer such as 100M:L1 or 1G:L2; from 1 to 1T";
    let wrong = || bad("rate", text, ALLOWED);
    let (amount, layer) = text.split_once(':').map_or((text, None), |(amount, layer)| (amount, Some(layer)));
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let scaled = units.iter().find_map(|(unit, factor)| Some((amount.strip_suffix(unit)?, *factor)));
    let (amount, factor) = scaled.unwrap_or((amount, 1.0));
    let rate =
        number(amount).map(|amount| amount * factor).filter(|rate| (1.0..=1e12).contains(rate)).ok_or_else(wrong)?;
    match layer {
        None => Ok(Rate::Frames(rate)),
        Some("L1") => Ok(Rate::Bits(rate, LAYER1)),
        Some("L2") => Ok(Rate::Bits(rate, LAYER2)),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &'static str)]) -> Result<Option<Knobs>, Error> {
        let (mut written, mut rate) = (Written::default(), None);
        for (key, value) in pairs {
            match written.slot(key) {
                Some(slot) => *slot = Some(value),
                None => rate = Some(*value),
            }
        }
        written.knobs(rate)
    }

    #[test]
    fn knobs_are_read() {
        assert_eq!(parse(&[]).unwrap(), None);
        let knobs = parse(&[
            ("loss", "1%"),
            ("loss-burst", "0.001:20"),
            ("delay", "1.5ms"),
            ("jitter", "0.5s"),
            ("rate", "10G:L1"),
            ("buffer", "512"),
            ("recovery", "20ms"),
            ("seed", "7"),
            ("after", "100"),
        ]);
        let knobs = knobs.unwrap().unwrap();
        assert_eq!((knobs.loss, knobs.burst, knobs.burst_frames, knobs.duplicate), (0.01, 0.001, 20, 0.0));
        assert_eq!(knobs.recovery, 0.02);
        assert_eq!((knobs.delay, knobs.jitter, knobs.buffer, knobs.seed, knobs.after), (0.0015, 0.5, 512, 7, 100));
        // 14,880,952 frames of 60 bytes a second, 64 with check sequence (RFC 2544, appendix B for 10 Gbit/s).
        assert_eq!((1.0 / knobs.rate.unwrap().seconds(60)).floor(), 14_880_952.0);
        assert_eq!(parse(&[("rate", "2k")]).unwrap().unwrap().rate, Some(Rate::Frames(2000.0)));
    }

    #[test]
    fn mistakes_say_what_is_allowed() {
        for (key, value, hint) in [
            ("loss", "1.1", "0% to 100%"),
            ("loss", "-1", "0% to 100%"),
            ("loss", "1e-3", "0% to 100%"),
            ("loss", "", "0% to 100%"),
            ("loss", ".", "0% to 100%"),
            ("duplicate", "inf", "0% to 100%"),
            ("reorder", "NaN", "0% to 100%"),
            ("loss-burst", "0.1", "CHANCE:FRAMES"),
            ("loss-burst", "0.1:0", "CHANCE:FRAMES"),
            ("loss-burst", "0.1:65537", "CHANCE:FRAMES"),
            ("loss-burst", "2:5", "0% to 100%"),
            ("delay", "5", "ns, us, ms or s"),
            ("delay", "11s", "at most 10s"),
            ("jitter", "-1ms", "ns, us, ms or s"),
            ("rate", "0", "frames a second"),
            ("rate", "1G:L3", "L1"),
            ("rate", "1e6", "frames a second"),
            ("buffer", "5", "belongs to a rate"),
            ("recovery", "1s", "belongs to a rate"),
            ("seed", "+1", "a whole number"),
            ("after", "18446744073709551616", "a whole number"),
        ] {
            let message = parse(&[(key, value)]).unwrap_err().to_string();
            assert!(message.contains(hint) && message.contains(key), "{key}={value}: {message}");
        }
    }
}
