//! What this machine is, for whoever compares results: its processor, kernel and time, and no name or address of it.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns what results are measured with, by name.
pub(crate) fn about() -> BTreeMap<String, String> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let of_cpu = |name: &str| {
        let mut values = cpus.lines().filter_map(|line| line.split_once(':'));
        values.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let lcores = std::thread::available_parallelism().map_or_else(|_| String::new(), |count| count.to_string());
    let is_virtual = of_cpu("flags").split(' ').any(|flag| flag == "hypervisor");
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = [
        ("program", format!("pktgen {}", env!("CARGO_PKG_VERSION"))),
        ("processor", of_cpu("model name")),
        ("lcores", lcores),
        ("virtual machine", if is_virtual { "yes" } else { "not said" }.to_owned()),
        ("kernel", format!("Linux {}", read("/proc/sys/kernel/osrelease").trim())),
        ("begun", date(time.as_secs())),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The time of seconds since 1970, as `2024-02-29 12:00 UTC`.
fn date(seconds: u64) -> String {
    let (mut days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while year < 9999 && days >= 365 + u64::from(is_leap(year)) {
        (days, year) = (days - 365 - u64::from(is_leap(year)), year + 1);
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        (days, month) = (days - length, month + 1);
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", days + 1, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS` has them.
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_709_208_000, "2024-02-29 12:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
        assert!(!date(u64::MAX).is_empty());
    }
}
