//! Numbers in readable form.

/// Formats a whole number with commas between thousands: `12,345`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `count` with its noun: `1 packet`, `2,000 packets`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats a rate or a total to four digits, with the prefix of its unit: `0`, `0.5`, `350`, `1.157 M`.
#[must_use]
pub fn scaled(value: f64) -> String {
    let (number, prefix) = parts(value);
    if prefix.is_empty() { number } else { format!("{number} {prefix}") }
}

/// Formats a value like [`scaled`], with its unit: `350 pps`, `1.157 Mpps`.
#[must_use]
pub fn with_unit(value: f64, unit: &str) -> String {
    let (number, prefix) = parts(value);
    format!("{number} {prefix}{unit}")
}

/// Joins words to lines of at most `columns` columns, where they fit. The first line begins at column `start`, and all
/// others are indented by `indent`.
#[must_use]
pub fn wrapped<'w>(words: impl Iterator<Item = &'w str>, columns: usize, start: usize, indent: usize) -> String {
    let (mut text, mut column, mut is_first) = (String::new(), start, true);
    for word in words {
        let len = word.chars().count();
        if !is_first && column + 1 + len > columns {
            text += &format!("\n{:indent$}", "");
            column = indent;
        } else if !is_first {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += len;
        is_first = false;
    }
    text
}

fn parts(value: f64) -> (String, &'static str) {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut at) = (value.max(0.0), 0);
    // What would be written as 1000 is 1 of the next prefix.
    while value >= 999.95 && at + 1 < PREFIXES.len() {
        value /= 1000.0;
        at += 1;
    }
    let decimals = match value {
        _ if at > 0 && value < 9.9995 => 3,
        _ if at > 0 && value < 99.995 => 2,
        value if at == 0 && value < 1.0 => 3,
        _ => 1,
    };
    let text = format!("{value:.decimals$}");
    // Below the first prefix a fraction is shown only where there is one.
    let text = if at == 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    (text, PREFIXES[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_values_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (1.0, "1"),
            (0.9997, "1"),
            (10.04, "10"),
            (350.0, "350"),
            (999.9, "999.9"),
            (999.97, "1.000 k"),
            (1000.0, "1.000 k"),
            (1_157_000.0, "1.157 M"),
            (14_880_952.0, "14.88 M"),
            (762_100_000.0, "762.1 M"),
            (9_999_960.0, "10.00 M"),
            (f64::from(u32::MAX), "4.295 G"),
        ] {
            assert_eq!(scaled(value), text);
            assert!(text.len() <= 7, "{text}");
        }
        assert_eq!(with_unit(1.0, "pps"), "1 pps");
        assert_eq!(with_unit(9.52e9, "bit/s"), "9.520 Gbit/s");
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(counted(1, "port"), "1 port");
        assert_eq!(counted(2000, "port"), "2,000 ports");
    }
}
