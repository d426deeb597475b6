//! The live table: redrawn in place on a terminal, plain lines elsewhere.

use crate::human::grouped;
use crate::report::Totals;
use comfy_table::{CellAlignment, Table, presets};
use std::io::{self, IsTerminal as _, Write};

/// Where a run shows how it goes.
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
    /// On standard output; on standard error if `json` is to have that for itself; nowhere if `quiet`.
    #[must_use]
    pub fn new(json: bool, quiet: bool) -> Self {
        let (output, terminal) = match json {
            false => (Output::Stdout, io::stdout().is_terminal()),
            true => (Output::Stderr, io::stderr().is_terminal()),
        };
        let style = match (quiet, terminal) {
            (true, _) => Style::Nothing,
            (false, true) => Style::InPlace(0),
            (false, false) => Style::Lines,
        };
        Self { output, style, last: Totals::default() }
    }

    /// Prints a message that stays.
    ///
    /// # Errors
    ///
    /// When the output is gone.
    pub fn say(&mut self, message: &str) -> io::Result<()> {
        match &mut self.style {
            Style::Nothing => return Ok(()),
            Style::InPlace(drawn) => *drawn = 0,
            Style::Lines => {}
        }
        let gap = if matches!(self.style, Style::InPlace(_)) { "\n" } else { "" };
        self.write(&format!("{}\n{gap}", message.trim_end()))
    }

    /// Shows rates since the last call, and totals.
    ///
    /// # Errors
    ///
    /// When the output is gone.
    pub fn update(&mut self, now: Totals) -> io::Result<()> {
        let text = match self.style {
            Style::Nothing => return Ok(()),
            Style::Lines => lines(&now, &self.last),
            Style::InPlace(drawn) => {
                let (columns, rows) = self.size();
                let fitted: Vec<String> = table(&now, &self.last)
                    .lines()
                    .take(rows.saturating_sub(1))
                    .map(|line| line.trim_end().chars().take(columns).collect())
                    .collect();
                self.style = Style::InPlace(fitted.len());
                // To the first column, up over the last table, and away with all below.
                let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
                format!("\r{up}\x1b[J{}\n", fitted.join("\n"))
            }
        };
        self.last = now;
        self.write(&text)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let all = |out: &mut dyn Write| out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match self.output {
            Output::Stdout => all(&mut io::stdout().lock()),
            Output::Stderr => all(&mut io::stderr().lock()),
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

/// A table of all ports, and lines below.
fn table(now: &Totals, before: &Totals) -> String {
    let rates = now.since(before);
    let mut table = plain_table(&[
        "port",
        "link",
        "rx Mpps",
        "rx Gbit/s",
        "tx Mpps",
        "tx Gbit/s",
        "rx missed",
        "rx errors",
        "tx dropped",
    ]);
    for (port, rate) in now.ports.iter().zip(&rates.ports) {
        table.add_row([
            port.name.clone(),
            port.link.clone(),
            format!("{:.3}", rate.rx_mpps),
            format!("{:.3}", rate.rx_gbps),
            format!("{:.3}", rate.tx_mpps),
            format!("{:.3}", rate.tx_gbps),
            grouped(port.rx_missed),
            grouped(port.rx_errors),
            grouped(port.tx_dropped),
        ]);
    }
    align_right(&mut table, 2);
    format!("{}\n{}\n", trimmed(&table), status(now, before))
}

/// One line a port, then one for all.
fn lines(now: &Totals, before: &Totals) -> String {
    let rates = now.since(before);
    let mut text = String::new();
    for (port, rate) in now.ports.iter().zip(&rates.ports) {
        text += &format!(
            "{:.0} s  {}: rx {:.3} Mpps {:.3} Gbit/s, tx {:.3} Mpps {:.3} Gbit/s, missed {}, errors {}, dropped {}{}\n",
            now.seconds,
            port.name,
            rate.rx_mpps,
            rate.rx_gbps,
            rate.tx_mpps,
            rate.tx_gbps,
            port.rx_missed,
            port.rx_errors,
            port.tx_dropped,
            if port.link == "down" { ", link down" } else { "" },
        );
    }
    text + &status(now, before) + "\n"
}

fn status(now: &Totals, before: &Totals) -> String {
    let cycles = now.since(before).cycles_per_packet;
    let cycles = cycles.map_or("no packets".to_owned(), |cycles| format!("{cycles:.0} cycles per packet"));
    let drops = drop_words(now);
    let mut text = format!("{:.0} s  {cycles}, drops: {drops}", now.seconds);
    for note in &now.notes {
        text += &format!("\n{note}");
    }
    text
}

/// Drops by reason in words.
#[must_use]
pub fn drop_words(totals: &Totals) -> String {
    let drops = totals.drops();
    if drops.is_empty() {
        return "none".to_owned();
    }
    drops.iter().map(|(reason, count)| format!("{reason} {}", grouped(*count))).collect::<Vec<_>>().join(", ")
}

/// A table without lines and frames.
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

/// A table as text, without white space at the ends of lines.
#[must_use]
pub fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
