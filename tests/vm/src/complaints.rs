//! What a guest's kernel complains of.

/// The lines of a console that say that something is wrong: warnings and worse of `ixgbe` and `igb`, faults of the IOMMU, and whatever has a
/// stack trace. What a busy host alone can cause, such as a core that was not scheduled for long, is not among them, nor what
/// QEMU's processors look like (`topology_sane`, before any driver runs).
pub(crate) fn complaints(console: &str, expected: &[(usize, &str)]) -> Vec<String> {
    const ALARMS: [&str; 8] =
        ["WARNING: ", "BUG: ", "Oops", "Kernel panic", "general protection", "NETDEV WATCHDOG", "UBSAN", "KASAN"];
    let is_alarm = |line: &str| {
        let (level, rest) = line.strip_prefix('<').and_then(|line| line.split_once('>')).unwrap_or(("6", line));
        // The lower three bits; 4 is a warning, and what is lower is worse.
        let is_warning = level.parse::<u32>().is_ok_and(|level| level & 7 <= 4);
        let fault = rest.contains("DMAR") && rest.to_lowercase().contains("fault");
        let alarm = ALARMS.iter().any(|word| rest.contains(word))
            && !["soft lockup", "topology_sane"].iter().any(|word| rest.contains(word));
        alarm || fault || (is_warning && ["ixgbe", "igb "].iter().any(|driver| rest.contains(driver)))
    };
    let mut found = Vec::new();
    let mut at = 0;
    for line in console.split_inclusive('\n') {
        let is_expected = expected.iter().any(|(from, words)| at >= *from && line.contains(words));
        if is_alarm(line) && !is_expected {
            found.push(line.trim_end().to_owned());
        }
        at += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::complaints;

    #[test]
    fn alarms_are_told_from_news() {
        let console = "<6>[    1.0] ixgbe 0000:00:05.0: Intel(R) 10 Gigabit Network Connection\r\n\
             <4>[    2.0] ixgbe 0000:00:05.0: Warning firmware error detected\n\
             <3>[    2.5] ixgbe 0000:00:05.0 e0: Adapter removed\n\
             <4>[    3.0] ------------[ cut here ]------------\n\
             <4>[    3.0] WARNING: CPU: 0 PID: 1 at mm/slab.c:1\n\
             <3>[    4.0] DMAR: [DMA Write NO_PASID] Request device [00:05.0] fault addr 0x0\n\
             <4>[    5.0] ACPI: something else\n";
        let found = complaints(console, &[(50, "Adapter removed"), (console.len(), "firmware")]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(complaints(console, &[]).len(), 4);
    }
}
