//! The live table: redrawn in place on a terminal, plain lines elsewhere.

use crate::human::{grouped, scaled, with_unit, wrapped};
use crate::output::offer;
use crate::report::{PortRates, PortTotals, Totals};
use comfy_table::{CellAlignment, Table, presets};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

/// The output that shows the progress of a run.
#[derive(Debug)]
pub struct Screen {
    output: Output,
    style: Style,
    last: Totals,
}

#[derive(Clone, Copy, Debug)]
enum Output {
    Stdout,
    Stderr,
}

#[derive(Debug)]
enum Style {
    Nothing,
    Lines,
    /// Redraws; lines drawn last time.
    InPlace(usize),
}

impl Screen {
    /// Creates the output: on standard output; on standard error if `json`, as standard output is then for JSON only;
    /// none if `quiet`.
    #[must_use]
    pub fn new(json: bool, quiet: bool) -> Self {
        let (output, terminal) = match json {
            false => (Output::Stdout, io::stdout().is_terminal()),
            true => (Output::Stderr, io::stderr().is_terminal()),
        };
        // A terminal that knows no control sequences.
        let terminal = terminal && std::env::var_os("TERM").is_none_or(|name| name != "dumb");
        let style = match (quiet, terminal) {
            (true, _) => Style::Nothing,
            (false, true) => Style::InPlace(0),
            (false, false) => Style::Lines,
        };
        Self { output, style, last: Totals::default() }
    }

    /// Prints a message that is not overwritten.
    pub fn say(&mut self, message: &str) {
        match &mut self.style {
            Style::Nothing => return,
            Style::InPlace(drawn) => *drawn = 0,
            Style::Lines => {}
        }
        let gap = if matches!(self.style, Style::InPlace(_)) { "\n" } else { "" };
        self.write(&format!("{}\n{gap}", message.trim_end()));
    }

    /// Shows the rates since the last call, and the totals.
    pub fn update(&mut self, now: Totals) {
        let text = match self.style {
            Style::Nothing => return,
            Style::Lines => lines(&now, &self.last),
            Style::InPlace(drawn) => {
                let (columns, rows) = self.size();
                let mut drawing: Vec<String> = table(&now, &self.last, columns).lines().map(str::to_owned).collect();
                let room = rows.saturating_sub(1).max(1);
                if drawing.len() > room {
                    let more = drawing.len() - (room - 1);
                    drawing.truncate(room - 1);
                    drawing.push(format!("({more} more lines)"));
                }
                self.style = Style::InPlace(drawing.len());
                // To the first column, up over the last table, and away with all below.
                let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
                format!("\r{up}\x1b[J{}\n", drawing.join("\n"))
            }
        };
        self.last = now;
        self.write(&text);
    }

    /// Whoever looked may have gone (`| head -1`), and a run goes on without: that is said once. What somebody who does not read on
    /// has no room for is left out.
    fn write(&mut self, text: &str) {
        let (written, name) = match self.output {
            Output::Stdout => (offer(io::stdout(), text, Duration::ZERO), "standard output"),
            Output::Stderr => (offer(io::stderr(), text, Duration::ZERO), "standard error"),
        };
        if let Err(error) = written {
            self.style = Style::Nothing;
            tracing::warn!(
                "{name}: {error}; the run goes on and rates are no longer shown, end it with Ctrl-C or SIGTERM"
            );
        }
    }

    fn size(&self) -> (usize, usize) {
        let size = match self.output {
            Output::Stdout => rustix::termios::tcgetwinsize(io::stdout()),
            Output::Stderr => rustix::termios::tcgetwinsize(io::stderr()),
        };
        let or = |size: u16, default| if size == 0 { default } else { usize::from(size) };
        size.map_or((80, 24), |size| (or(size.ws_col, 80), or(size.ws_row, 24)))
    }
}

/// The columns of the live table beside the port's name, in the order in which a narrow terminal loses them.
const LOSABLE: [usize; 2] = [4, 3];
/// Shortest name of a port.
const SHORTEST_NAME: usize = 9;

/// A table of all ports with a line for each direction, and lines below. No number is cut: a narrow terminal loses columns,
/// and letters out of the middle of names.
fn table(now: &Totals, before: &Totals, columns: usize) -> String {
    let rates = now.since(before);
    let mut rows = vec![
        ["", "", "rate", "rate", "total", "total"].map(str::to_owned),
        ["port", "", "pps", "wire bit/s", "frames", "lost"].map(str::to_owned),
    ];
    for (port, rate) in now.ports.iter().zip(&rates.ports) {
        rows.extend(directions(port, *rate));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut shown = vec![0, 1, 2, 3, 4, 5];
    // Two blanks before each column.
    let numbers = |shown: &[usize]| shown.iter().skip(1).map(|column| width(*column) + 2).sum::<usize>();
    for lost in LOSABLE {
        if numbers(&shown) + width(0).min(SHORTEST_NAME) > columns {
            shown.retain(|column| *column != lost);
        }
    }
    let name = width(0).min(columns.saturating_sub(numbers(&shown)).max(SHORTEST_NAME));
    let mut text = String::new();
    for row in &rows {
        let mut line = format!("{:name$}", shortened(&row[0], name));
        for column in shown.iter().skip(1) {
            let width = width(*column);
            line += &format!("  {:>width$}", row[*column]);
        }
        text += &format!("{}\n", line.trim_end());
    }
    for line in status(now, before).lines() {
        text += &format!("{}\n", wrapped(line.split(' '), columns, 0, 1));
    }
    text
}

/// The two lines of a port: name and what it received, link and what it sent.
fn directions(port: &PortTotals, rate: PortRates) -> [[String; 6]; 2] {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let total = |count: u64| scaled(count as f64);
    let (rx_pps, rx_bps, tx_pps, tx_bps) =
        (scaled(rate.rx_pps), scaled(rate.rx_bps), scaled(rate.tx_pps), scaled(rate.tx_bps));
    let rx_lost = total(port.rx_missed + port.rx_errors);
    [
        [port.name.clone(), "rx".to_owned(), rx_pps, rx_bps, total(port.rx_packets), rx_lost],
        [
            format!(" link {}", port.link),
            "tx".to_owned(),
            tx_pps,
            tx_bps,
            total(port.tx_packets),
            total(port.tx_dropped),
        ],
    ]
}

/// Shortens the name of a port to at most 16 characters, so that the tables at the end of a run fit 60 columns.
#[must_use]
pub fn short_name(name: &str) -> String {
    shortened(name, 16)
}

/// At most `columns` letters: the middle gives way.
fn shortened(name: &str, columns: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= columns {
        return name.to_owned();
    }
    let (head, tail) = (columns.saturating_sub(2) / 2, columns.saturating_sub(2).div_ceil(2));
    letters[..head].iter().chain(&['.', '.']).chain(&letters[letters.len() - tail..]).collect()
}

/// One line a port, then one for all.
fn lines(now: &Totals, before: &Totals) -> String {
    let rates = now.since(before);
    let mut text = String::new();
    for (port, rate) in now.ports.iter().zip(&rates.ports) {
        text += &format!(
            "{:.0} s  {}: rx {} {}, tx {} {}; total missed {}, errors {}, dropped {}{}\n",
            now.seconds,
            port.name,
            with_unit(rate.rx_pps, "pps"),
            with_unit(rate.rx_bps, "bit/s"),
            with_unit(rate.tx_pps, "pps"),
            with_unit(rate.tx_bps, "bit/s"),
            grouped(port.rx_missed),
            grouped(port.rx_errors),
            grouped(port.tx_dropped),
            if port.link == "down" { ", link down" } else { "" },
        );
    }
    text + &status(now, before) + "\n"
}

fn status(now: &Totals, before: &Totals) -> String {
    let cycles = now.since(before).cycles_per_packet;
    let cycles = cycles.map_or("no packets".to_owned(), |cycles| format!("{cycles:.0} cycles per packet"));
    let drops = drop_words(now);
    let mut text = format!("{:.0} s  {cycles}, total drops: {drops}", now.seconds);
    for note in &now.notes {
        text += &format!("\n{note}");
    }
    text
}

/// Returns the drops by reason, in words.
#[must_use]
pub fn drop_words(totals: &Totals) -> String {
    let drops = totals.drops();
    if drops.is_empty() {
        return "none".to_owned();
    }
    drops.iter().map(|(reason, count)| format!("{reason} {}", grouped(*count))).collect::<Vec<_>>().join(", ")
}

/// Creates a table without lines and frames.
#[must_use]
pub fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// Aligns all columns but the first `words` to the right, for numbers.
pub fn align_right(table: &mut Table, words: usize) {
    table.column_iter_mut().skip(words).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
}

/// Returns a table as text, without white space at the ends of lines.
#[must_use]
pub fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns a table of totals: each row has two words, a port and its direction, followed by numbers under their names.
#[must_use]
pub fn totals_table(numbers: &[&str], rows: impl Iterator<Item = ([String; 2], Vec<u64>)>) -> String {
    let mut table = plain_table(&[&["port", ""], numbers].concat());
    for ([name, direction], numbers) in rows {
        let words = [short_name(&name), direction];
        table.add_row(words.into_iter().chain(numbers.into_iter().map(grouped)));
    }
    align_right(&mut table, 2);
    trimmed(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;

    fn totals(names: &[&str], counters: Counters) -> Totals {
        let port = |name: &&str| {
            let mut port =
                PortTotals { name: (*name).to_owned(), link: "10 Gbit/s".to_owned(), ..PortTotals::default() };
            port.add_rx(0, &counters);
            port.add_tx(0, &counters);
            port
        };
        let ports = names.iter().map(port).collect();
        Totals { seconds: 1.0, counters, ports, ..Totals::default() }
    }

    #[test]
    fn no_number_is_cut_however_narrow_the_terminal() {
        let busy = u64::MAX / 100_000;
        let counters =
            Counters { rx_packets: busy, rx_bytes: busy, tx_packets: busy, tx_bytes: busy, ..Counters::default() };
        let now = totals(&["0000:03:00.0", "vfio-user:/run/a-long-folder/socket-0"], counters);
        for columns in 40..200 {
            let text = table(&now, &Totals::default(), columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            let whole = text.matches("184.5 T").count();
            assert!(whole == 8 || (columns < 60 && whole >= 4), "{columns}:\n{text}");
            assert!(text.contains("pps") && text.contains("lost"), "{columns}:\n{text}");
        }
        let wide = table(&now, &Totals::default(), 60);
        for words in ["rate", "total", "wire bit/s", "frames", "0000:03:00.0", "link 10 Gbit/s"] {
            assert!(wide.contains(words), "no {words} in:\n{wide}");
        }
    }

    #[test]
    fn one_packet_a_second_is_not_nothing() {
        let now = totals(&["soft:a"], Counters { rx_packets: 1, rx_bytes: 60, ..Counters::default() });
        let text = table(&now, &Totals::default(), 60);
        let row = text.lines().find(|line| line.starts_with("soft:a")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["soft:a", "rx", "1", "672", "1", "0"]);
        assert!(
            lines(&now, &Totals::default()).starts_with("1 s  soft:a: rx 1 pps 672 bit/s, tx 0 pps 0 bit/s; total")
        );
    }

    #[test]
    fn long_names_keep_both_ends_and_lines_are_folded_at_blanks() {
        assert_eq!(shortened("vfio-user:/tmp/a.sock", 12), "vfio-...sock");
        assert_eq!(shortened("soft:a", 12), "soft:a");
        assert_eq!(wrapped("one two three".split(' '), 7, 0, 1), "one two\n three");
        let name = "vfio-user:/run/user/1000/ringway/left.sock".to_owned();
        let table = totals_table(
            &["total packets", "total lost"],
            [([name, "rx".to_owned()], vec![10_u64.pow(12); 2])].into_iter(),
        );
        assert!(table.lines().all(|line| line.len() <= 60) && table.contains("vfio-us..ft.sock"), "{table}");
    }
}
