//! What is on the live screen.

use crate::control::figures::{Counts, DirectionFigures, Figures, PortFigures};
use cli::human::grouped;
use cli::screen::short_name;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use trial::printable;

/// What is known.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) figures: Option<Figures>,
    /// What the last key has done.
    pub(super) message: String,
}

const KEYS: &str = "s start/stop   + - rate by 10 %   c clear   q quit";
const PORT_COLUMNS: [&str; 7] = ["port", "link", "rx pps", "tx pps", "missed", "errors", "dropped"];
const COLUMNS: [&str; 10] =
    ["stream", "asked pps", "tx pps", "rx pps", "lost", "under way", "p50 us", "p99 us", "sent", "received"];
/// Blanks before each column but the first.
const SPACING: u16 = 2;

/// Draws it. What a small terminal has no room for is left out at the right and at the bottom.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(figures) = &view.figures else {
        frame.render_widget(Paragraph::new("pktgen run: waiting for the first figures"), frame.area());
        return;
    };
    let ports = u16::try_from(figures.ports.len()).unwrap_or(u16::MAX).saturating_add(2);
    let areas =
        Layout::vertical([Constraint::Length(3), Constraint::Length(ports), Constraint::Min(0), Constraint::Length(2)]);
    let [head, top, middle, bottom] = areas.areas(frame.area());
    frame.render_widget(
        Paragraph::new(vec![title(figures), Line::from(format!("clock {}", figures.clock.error())).dim()]),
        head,
    );
    let room = frame.area().width;
    frame.render_widget(table(&PORT_COLUMNS, figures.ports.iter().map(port).collect(), room), top);
    frame.render_widget(table(&COLUMNS, figures.directions.iter().flat_map(direction).collect(), room), middle);
    frame.render_widget(Paragraph::new(vec![Line::from(printable(&view.message)), Line::from(KEYS).dim()]), bottom);
}

fn title(figures: &Figures) -> Line<'static> {
    let state = if figures.running { figures.phase } else { "stopped" };
    let mut words = format!("pktgen run   {state}   {:.0} s", figures.seconds);
    let [missed, foreign, damaged] = [
        figures.directions.iter().map(|one| one.all.missed).sum::<u64>(),
        figures.directions.iter().map(|one| one.foreign).sum(),
        figures.directions.iter().map(|one| one.damaged).sum(),
    ];
    for (name, count) in [("missed", missed), ("foreign", foreign), ("damaged", damaged)] {
        words += &format!("   {name} {}", grouped(count));
    }
    Line::from(words).bold()
}

/// A table with the columns that there is room for; no number is cut.
fn table(columns: &[&str], rows: Vec<Vec<String>>, room: u16) -> Table<'static> {
    let head: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |at: usize| all().map(|row| row.get(at).map_or(0, |text| text.chars().count())).max().unwrap_or(0);
    let widths: Vec<u16> = (0..columns.len()).map(|at| u16::try_from(width(at)).unwrap_or(u16::MAX)).collect();
    let ends = widths.iter().scan(0_u16, |end, width| {
        *end = end.saturating_add(*width);
        Some(std::mem::replace(end, end.saturating_add(SPACING)))
    });
    let shown = ends.take_while(|end| *end <= room).count().max(1);
    let row = |row: Vec<String>| {
        Row::new(row.into_iter().take(shown).enumerate().map(|(at, text)| cell(text, at)).collect::<Vec<_>>())
    };
    let widths: Vec<_> = widths.into_iter().take(shown).map(Constraint::Length).collect();
    let header = row(head).style(Style::new().bold());
    Table::new(rows.into_iter().map(row).collect::<Vec<_>>(), widths).header(header).column_spacing(SPACING)
}

/// Names are at the left, numbers at the right.
fn cell(text: String, column: usize) -> Cell<'static> {
    Cell::new(Text::from(text).alignment(if column == 0 { Alignment::Left } else { Alignment::Right }))
}

fn port(port: &PortFigures) -> Vec<String> {
    let link = port.link.clone().unwrap_or_else(|| "-".to_owned());
    let mut row = vec![short_name(&port.name), link, rate(port.rx_pps), rate(port.tx_pps)];
    row.extend([port.rx_missed, port.rx_errors, port.tx_dropped].map(grouped));
    row
}

/// A direction, and its streams if it has several.
fn direction(direction: &DirectionFigures) -> Vec<Vec<String>> {
    let name = format!("{} > {}", short_name(&direction.from), short_name(&direction.to));
    let mut rows = vec![counts(name, &direction.all)];
    if direction.streams.len() > 1 {
        rows.extend(direction.streams.iter().map(|one| counts(format!("  {}", printable(&one.name)), &one.counts)));
    }
    rows
}

fn counts(name: String, counts: &Counts) -> Vec<String> {
    let asked = counts.intended_pps.map_or("no limit".to_owned(), rate);
    let mut row = vec![name, asked, rate(counts.offered_pps), rate(counts.received_pps)];
    row.push(match counts.lost {
        None => "-".to_owned(),
        Some(0) => "0".to_owned(),
        Some(lost) => format!("{} {:.2}%", grouped(lost), counts.loss_percent.unwrap_or(0.0)),
    });
    row.push(grouped(counts.under_way));
    let latency = counts.latency_from_due_ns;
    let times = latency.map_or([None; 2], |times| [Some(times.p50), Some(times.p99)]);
    row.extend(times.map(|time| time.map_or("-".to_owned(), |time| format!("{:.1}", time / 1e3))));
    row.extend([counts.sent, counts.received].map(grouped));
    row
}

fn rate(pps: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a figure for people; saturates")]
    let whole = pps.max(0.0).round() as u64;
    grouped(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockReport;
    use crate::control::figures::{StreamFigures, Times};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> View {
        let counts = |sent: u64, lost: u64, under_way: u64| Counts {
            intended_pps: Some(20_000.0),
            offered_pps: 19_999.6,
            received_pps: 19_000.0,
            missed: 3,
            sent,
            received: sent - lost - under_way,
            under_way,
            lost: Some(lost),
            loss_percent: Some(1.0),
            latency_from_due_ns: (lost == 0).then_some(Times { count: 1, p50: 12_340.0, p99: 56_780.0, max: 1e6 }),
            ..Counts::default()
        };
        let stream = |name: &str, counts: Counts| StreamFigures { name: name.to_owned(), counts };
        let direction = |from: &str, to: &str, streams: Vec<StreamFigures>| DirectionFigures {
            from: from.to_owned(),
            to: to.to_owned(),
            all: streams[0].counts.clone(),
            foreign: 1,
            damaged: 0,
            unread: 0,
            streams,
        };
        let port = |name: &str, link: Option<&str>| PortFigures {
            name: name.to_owned(),
            link: link.map(str::to_owned),
            rx_pps: 19_000.0,
            tx_pps: 20_000.0,
            rx_missed: 1,
            rx_errors: 2,
            tx_dropped: 3,
        };
        let untagged = Counts { lost: None, loss_percent: None, ..counts(1000, 0, 40) };
        let streams = vec![stream("voice\x1b[2J", counts(123_456, 0, 7)), stream("bulk", counts(1000, 10, 0))];
        let figures = Figures {
            phase: "counted",
            running: true,
            seconds: 6.2,
            clock: ClockReport::default(),
            directions: vec![
                direction("soft:a", "soft:b", streams),
                direction("soft:b", "soft:a", vec![stream("1", untagged)]),
            ],
            ports: vec![port("soft:a", Some("10 Gbit/s")), port("vfio-user:/run/user/1000/left.sock", None)],
            clients: 0,
            dropped_clients: 0,
            phases: Vec::new(),
        };
        View { figures: Some(figures), message: "counters begin anew".to_owned() }
    }

    /// The rows of a terminal, without blanks at their ends.
    fn screen(columns: u16, rows: u16, view: &View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..rows).map(row).collect()
    }

    #[test]
    fn all_figures_have_their_places() {
        let expected = "\
pktgen run   counted   6 s   missed 6   foreign 2   damaged 0
clock wrong by at most 0.000 ppm and 0 ns

port                   link  rx pps  tx pps  missed  errors  dropped
soft:a            10 Gbit/s  19,000  20,000       1       2        3
vfio-us..ft.sock          -  19,000  20,000       1       2        3

stream           asked pps  tx pps  rx pps      lost  under way  p50 us  p99 us     sent  received
soft:a > soft:b     20,000  20,000  19,000         0          7    12.3    56.8  123,456   123,449
  voice?[2J         20,000  20,000  19,000         0          7    12.3    56.8  123,456   123,449
  bulk              20,000  20,000  19,000  10 1.00%          0       -       -    1,000       990
soft:b > soft:a     20,000  20,000  19,000         -         40    12.3    56.8    1,000       960

counters begin anew
s start/stop   + - rate by 10 %   c clear   q quit";
        let shown = screen(100, 15, &view());
        assert_eq!(shown, expected.lines().collect::<Vec<_>>(), "{}", shown.join("\n"));
    }

    #[test]
    fn it_fits_any_terminal_and_says_that_it_is_stopped() {
        let mut view = view();
        for (columns, rows) in [(1, 1), (3, 2), (40, 5), (80, 24), (500, 200)] {
            screen(columns, rows, &view);
        }
        view.figures.as_mut().unwrap().running = false;
        let shown = screen(80, 24, &view);
        assert!(shown[0].contains("stopped"));
        // Whole columns go.
        assert_eq!(shown[8], "soft:a > soft:b     20,000  20,000  19,000         0          7    12.3    56.8");
        view.figures = None;
        assert_eq!(screen(80, 2, &view)[0], "pktgen run: waiting for the first figures");
    }
}
