//! Lists of numbers as the kernel writes those of cores and nodes: "0-3,8" (Linux `Documentation/core-api/printk-formats.rst`,
//! `%*pbl`).

/// Returns the numbers of a list, in its order. Parts that are not numbers are ignored, and so are numbers beyond
/// 65,536.
///
/// ```
/// assert_eq!(device::cpulist::parse("0-2,8"), [0, 1, 2, 8]);
/// assert!(device::cpulist::parse("(null)").is_empty());
/// ```
#[must_use]
pub fn parse(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?.min(MOST))
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Returns ascending numbers as a list.
///
/// ```
/// assert_eq!(device::cpulist::format(&[0, 1, 2, 8]), "0-2,8");
/// ```
#[must_use]
pub fn format(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let words = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// More cores than any kernel has.
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(parse(" 5 "), [5]);
        for empty in ["", "(null)", "-", "3-1", "x-4", "4-", "9999999"] {
            assert!(parse(empty).is_empty(), "{empty}");
        }
        assert_eq!(parse("0-99999999999").len(), MOST + 1);
    }

    #[test]
    fn ranges_join_neighbours() {
        assert_eq!(format(&[]), "");
        assert_eq!(format(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
