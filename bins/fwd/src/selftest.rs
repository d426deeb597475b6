//! `fwd selftest`: whether a NIC does what it should.

use crate::args::SelftestArgs;
use cli::exit::Failure;
use cli::stop::Stop;
use cli::{human, output, ports};
use device::Error;
use nic::{Address, Check, SelfTest, TimeLimit, Verdict};
use rustix::fs::OFlags;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tests the NIC, prints what was found, and writes the report. A failure (exit code 1) if a check failed.
pub(crate) fn run(args: &SelftestArgs) -> Result<(), Failure> {
    let address = &args.device.address;
    ports::check(std::slice::from_ref(address))?;
    let stop = Stop::on_signals()?;
    // Before the test, so that it is not made for nothing.
    let report = args.report.as_deref().map(|path| Ok::<_, Failure>((path, create(path)?))).transpose()?;
    let limit = TimeLimit { total: LIMIT, cancel: Some(stop.cancel()) };
    let begun = Instant::now();
    let access = ports::access(args.device.access.unsafe_no_iommu, limit);
    let found = output::without_log(|| nic::selftest(address, &access))?;
    let took = begun.elapsed();
    let reported = report.map_or(Ok(()), |(path, file)| write(path, file, &text(address, &found, took)));
    output::print(&page(address, &found, took, io::stdout().is_terminal()))?;
    reported?;
    if stop.is_signalled() {
        return Err(Error::unusable(address.name(), "interrupted by a signal while it was tested", "").into());
    }
    let failed: Vec<&str> = found.failed().map(|check| check.name).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let cause = format!("{} of {} checks failed: {}", failed.len(), found.checks.len(), failed.join(", "));
    let hint = if args.report.is_some() {
        "attach the report to a bug report"
    } else {
        "run it again with --report FILE for a bug report"
    };
    Err(Error::unusable(address.name(), cause, hint).into())
}

/// Opens the file, without waiting for a reader where it is a pipe. What was in it stays until there is a report.
fn create(path: &Path) -> Result<File, Failure> {
    let no_wait = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().write(true).create(true).truncate(false).custom_flags(no_wait).open(path);
    file.map_err(|error| unwritable(path, &error))
}

fn write(path: &Path, mut file: File, report: &str) -> Result<(), Failure> {
    // A pipe or a terminal has no length.
    let _ = file.set_len(0);
    file.write_all(report.as_bytes()).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Error::unusable(path.display().to_string(), format!("cannot write the report: {error}"), "name another file").into()
}

/// The checks, one a line, for a person.
fn page(address: &Address, found: &SelfTest, took: Duration, colour: bool) -> String {
    const COLUMNS: usize = 110;
    let ids = found.ids.map(|ids| format!(" ({ids})")).unwrap_or_default();
    let mut text = format!("{}{ids}, MAC {}\n", address.name(), found.mac);
    for (name, part) in &found.parts {
        text += &line("", name, part, COLUMNS);
    }
    for Check { name, verdict, seen, .. } in &found.checks {
        let (code, label) = label(*verdict);
        let line = line(label, name, seen, COLUMNS);
        text += &if colour { line.replacen(label, &format!("\x1b[{code}m{label}\x1b[0m"), 1) } else { line };
    }
    text + &summary(found, took)
}

fn summary(found: &SelfTest, took: Duration) -> String {
    let of = |verdict| found.checks.iter().filter(|check| check.verdict == verdict).count();
    format!(
        "{} ok, {} failed, {} not applicable, in {:.1} s",
        of(Verdict::Ok),
        of(Verdict::Failed),
        of(Verdict::NotApplicable),
        took.as_secs_f64()
    )
}

fn line(label: &str, name: &str, seen: &str, columns: usize) -> String {
    const INDENT: usize = 36;
    let seen = human::wrapped(seen.split_whitespace(), columns, INDENT, INDENT);
    format!("{label:<15} {name:<19} {seen}\n")
}

/// The colour and the word of a verdict.
fn label(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Ok => ("32", "ok"),
        Verdict::Failed => ("31;1", "FAILED"),
        Verdict::NotApplicable => ("2", "not applicable"),
    }
}

/// The report: what others need to know, and nothing of this host.
fn text(address: &Address, found: &SelfTest, took: Duration) -> String {
    let kind = match address {
        Address::Pci(_) => "PCI",
        Address::Soft(_) => "software NIC",
        Address::VfioUser(_) => "vfio-user",
        Address::Null(_) => "no device",
        _ => "vhost-user",
    };
    let [a, b, c, ..] = found.mac.0;
    let mut text = format!("fwd selftest, version {}\n", env!("CARGO_PKG_VERSION"));
    let ids = found.ids.map_or("-".to_owned(), |ids| format!("{ids}"));
    let name = found.ids.and_then(|ids| nic::identify(ids).ok()).unwrap_or("-");
    // A string takes all that is written to it.
    let _ = writeln!(text, "device: {ids}, {name}, {kind}\nMAC: {a:02x}:{b:02x}:{c:02x}:xx:xx:xx");
    for (name, part) in &found.parts {
        let _ = writeln!(text, "{name}: {part}");
    }
    for Check { name, verdict, seen, is_error, .. } in &found.checks {
        // Its next step may name the user, or another process.
        let seen = seen.split_once("; ").filter(|_| *is_error).map_or(&**seen, |(problem, _)| problem);
        let _ = writeln!(text, "{}: {name}: {seen}", label(*verdict).1);
    }
    let text = text + &summary(found, took) + "\n";
    // Errors name the device that they are about, and perhaps a file.
    let names = [address.to_string(), address.name()];
    let text = names.iter().fold(text, |text, name| text.replace(name, "device"));
    text.lines().map(|line| public(line) + "\n").collect()
}

/// A line without the paths of this host that it may name. (Of the card's address drivers say nothing in a check.)
fn public(line: &str) -> String {
    // In units and names of parts, such as Mbit/s and P/N, each slash stands behind a letter or a digit, and one side of it is short.
    let is_path = |word: &str| {
        let parts: Vec<&str> = word.split('/').collect();
        let is_above = |part: &&str| !part.ends_with(char::is_alphanumeric);
        parts.len() > 1 && (parts[..parts.len() - 1].iter().any(is_above) || parts.iter().all(|part| part.len() > 2))
    };
    let words = line.split(' ').map(|word| if is_path(word) { "(path)" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// What the self-test may take.
const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_a_person_and_a_report_for_others() {
        let address: Address = "soft:page-of-a-test?id=x540&fault=no-dd".parse().unwrap();
        let config = ports::access(false, TimeLimit::default());
        let found = nic::selftest(&address, &config).unwrap();
        let page = page(&address, &found, Duration::from_millis(1234), false);
        assert!(page.starts_with("soft:page-of-a-test (8086:1528), MAC 02:"), "{page}");
        assert!(page.lines().any(|line| line.starts_with("FAILED          write-back ")), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 110 && !line.contains('\x1b')), "{page}");
        assert!(page.ends_with(" not applicable, in 1.2 s"), "{page}");
        let mut found = found;
        let mut locked = Check::failed("open", "soft:page-of-a-test: cannot open /dev/vfio/12: busy; ask ann");
        locked.is_error = true;
        found.checks.push(locked);
        found.checks.push(Check::failed("module", "1 of 2 came back; 1 arrived short, at 10000 Mbit/s"));
        let report = text(&address, &found, Duration::from_secs(1));
        assert!(report.contains("FAILED: open: device: cannot open (path) busy\n"), "{report}");
        assert!(report.contains("FAILED: module: 1 of 2 came back; 1 arrived short, at 10000 Mbit/s\n"), "{report}");
        let [.., e, f] = found.mac.0;
        assert!(
            report.contains("device: 8086:1528, X540-T2, software NIC\n") && report.contains(":xx:xx:xx\n"),
            "{report}"
        );
        assert_eq!(public("not applicable: open: a file; see '/a/b"), "not applicable: open: a file; see (path)");
        for secret in ["page-of-a-test", &format!("{e:02x}:{f:02x}")] {
            assert!(!report.contains(secret), "{secret} in {report}");
        }
    }
}
